//! The command of dmkit with this index in addition: `bench`, `plot`, the main job and so on.

use std::process::ExitCode;

use dm_bench::{Driver, IndexEntry};
use dm_combine::Rdwc;
use dm_index::Key8;
use my_index::{Index, Options};

fn main() -> ExitCode {
    let mine = IndexEntry::new("my-index", "an index of my own")
        // Add one call for each further key type.
        .runs(Driver::<Index<Key8>>::new(options));
    dmkit::Cli::run(&dmkit::shipped().with(mine))
}

/// Returns the index's options for a measurement.
fn options(at: &dm_bench::Setting) -> Result<Options, String> {
    Ok(Options {
        cache_bytes: at.cache_bytes,
        // The model determines the CPU time of an operation, and it is the same for every index.
        cpu: at.cpu(),
        rdwc: at.sharing_or(Rdwc::OFF),
        ..Options::new(at.value_bytes)
    })
}
