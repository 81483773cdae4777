//! Limits for leaves of 64 entries of 16 bytes, which an operation reads whole.

/// Bytes that a get reads.
pub(crate) const GET_BYTES: u64 = 1_408;
/// Bytes that an update reads.
pub(crate) const UPDATE_BYTES: u64 = GET_BYTES;
/// Round trips of an insert that splits no leaf.
pub(crate) const INSERT_TRIPS: u64 = 2;
/// Bytes that an insert reads.
pub(crate) const INSERT_BYTES: u64 = GET_BYTES;
/// Bytes that an insert writes: the entry and the lock word.
pub(crate) const INSERT_WRITES: u64 = 64;
