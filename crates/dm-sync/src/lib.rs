//! The only place in dmkit that names atomics, cells and threads: std, or loom under cfg(dm_loom)
