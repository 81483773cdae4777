//! Budgets for leaves of 64 entries of 16 bytes, of which an operation reads a neighbourhood of 8.

/// Bytes that a get reads: a neighbourhood, with the versions of its lines and a copy of the fence keys.
pub(crate) const GET_BYTES: u64 = 175;
/// Bytes that an update reads: the whole leaf, if the neighbourhood wraps around its end.
pub(crate) const UPDATE_BYTES: u64 = 1_472;
/// Round trips of an insert that splits nothing: one more, if the neighbourhood is full and entries hop.
pub(crate) const INSERT_TRIPS: u64 = 3;
/// Bytes that it reads: then, the whole leaf behind the neighbourhood.
pub(crate) const INSERT_BYTES: u64 = UPDATE_BYTES + GET_BYTES;
/// Bytes that it writes: the entry and the lock, and before them up to the whole leaf for each entry that hops. Here, at most
/// two entries hop.
pub(crate) const INSERT_WRITES: u64 = 2 * UPDATE_BYTES + 64;
