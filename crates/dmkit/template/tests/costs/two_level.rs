//! Budgets for leaves that an operation reads whole: 64 entries of 16 bytes.

/// Bytes that a get reads.
pub(crate) const GET_BYTES: u64 = 1_408;
/// Bytes that an update reads.
pub(crate) const UPDATE_BYTES: u64 = GET_BYTES;
/// Round trips of an insert that splits nothing.
pub(crate) const INSERT_TRIPS: u64 = 2;
/// Bytes that it reads.
pub(crate) const INSERT_BYTES: u64 = GET_BYTES;
/// Bytes that it writes: the entry, and the lock.
pub(crate) const INSERT_WRITES: u64 = 64;
