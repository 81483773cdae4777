//! Limits for leaves of 64 entries of 16 bytes. An operation reads a neighbourhood of 8 entries.

/// Bytes that a get reads: a neighbourhood, with the versions of its lines and a copy of the fence keys.
pub(crate) const GET_BYTES: u64 = 175;
/// Limit of the bytes that an update reads: a whole leaf.
pub(crate) const UPDATE_BYTES: u64 = 1_472;
/// Round trips of an insert that splits no leaf. If the neighbourhood is full, an insert reads the slots behind it, and
/// the rest of the leaf if entries must hop further.
pub(crate) const INSERT_TRIPS: u64 = 4;
/// Bytes that an insert reads: the neighbourhood, and the whole leaf if entries hop.
pub(crate) const INSERT_BYTES: u64 = UPDATE_BYTES + GET_BYTES;
/// Limit of the bytes that an insert writes: the entry, the lock word, and a whole leaf for each of two entries that
/// hop.
pub(crate) const INSERT_WRITES: u64 = 2 * UPDATE_BYTES + 64;
