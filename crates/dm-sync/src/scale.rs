//! Constants that shrink where every step is expensive.

/// Whether this build runs under loom, shuttle, Miri or a fuzzer. Important constants are then small, so that
/// tests soon reach their limits.
pub const SMALL_WORLD: bool = cfg!(any(dm_loom, dm_shuttle, miri, fuzzing));

/// Returns `normal`, or `small` in a [`SMALL_WORLD`].
///
/// ```
/// const SHARDS: usize = dm_sync::scaled(64, 2);
/// assert!(SHARDS == 64 || dm_sync::SMALL_WORLD);
/// ```
pub const fn scaled(normal: usize, small: usize) -> usize {
    if SMALL_WORLD { small } else { normal }
}
