//! Limits for leaves of 64 entries of 16 bytes. An operation reads a neighbourhood of 8 entries.

/// Bytes that a get reads: a neighbourhood, with the versions of its lines and a copy of the fence keys.
pub(crate) const GET_BYTES: u64 = 175;
/// Bytes that an update reads.
pub(crate) const UPDATE_BYTES: u64 = GET_BYTES;
/// Round trips of an insert that splits no leaf. If the neighbourhood is full, an insert reads the slots behind it, and
/// the rest of the leaf if entries must hop further.
pub(crate) const INSERT_TRIPS: u64 = 4;
/// Limit of the bytes that an insert reads: the size of a leaf, because no byte is read twice.
pub(crate) const INSERT_BYTES: u64 = 1_472;
/// Limit of the bytes that an insert writes: at most four lines for each of two hops and for the new entry, and the lock
/// word.
pub(crate) const INSERT_WRITES: u64 = 3 * 4 * 64 + 8;
