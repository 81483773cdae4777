//! Finds the file of this workspace to which an instruction belongs, even if it was inlined into other code.
//!
//! An instruction belongs to the innermost frame of our own code. For example, a load in `core::sync::atomic` may be
//! inlined into a region's read, which is inlined into a client's get. The load then belongs to the region. The
//! compiler stores these frames in the debug information, and addr2line of binutils reads them.

use super::split::own_path;
use crate::Result;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};
use xshell::{Shell, cmd};

/// Returns, for each address of `program`, the innermost source file of this workspace, if there is one.
pub(super) fn own_files(
    shell: &Shell,
    program: &Path,
    addresses: &BTreeSet<u64>,
    crates: &[String],
) -> Result<BTreeMap<u64, String>> {
    let input: String = addresses
        .iter()
        .map(|address| format!("{address:#x}\n"))
        .collect();
    let output = cmd!(shell, "addr2line --inlines --addresses --exe={program}")
        .stdin(input)
        .quiet()
        .read()
        .map_err(|error| format!("{error}; on Debian: apt-get install binutils"))?;
    parse(&output, crates)
}

/// Parses lines that have an address, followed by its frames as `file:line`, the innermost one first.
fn parse(output: &str, crates: &[String]) -> Result<BTreeMap<u64, String>> {
    let mut files = BTreeMap::new();
    let mut address = None;
    for line in output.lines() {
        if let Some(hex) = line.strip_prefix("0x") {
            address = Some(u64::from_str_radix(hex, 16)?);
        } else if let (Some(address), Some(file)) = (address, own_path(line, crates)) {
            let file = file.split(':').next().unwrap_or(file);
            files.entry(address).or_insert_with(|| file.to_owned());
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_frame_of_ours_wins() {
        let output = "0x0000000000001010\n/rustc/abc/library/core/src/sync/atomic.rs:4 (discriminator 2)\n\
                      /x/crates/dm-sync/src/region/line.rs:20\n/x/crates/sherman/src/tree.rs:9\n\
                      0x0000000000001018\n??:0\n0x0000000000001020\n/x/crates/sherman/src/tree.rs:10\n";
        let files = parse(output, &["dm-sync".to_owned(), "sherman".to_owned()]).unwrap();
        let expected = [
            (0x1010, "crates/dm-sync/src/region/line.rs"),
            (0x1020, "crates/sherman/src/tree.rs"),
        ];
        assert_eq!(
            files,
            BTreeMap::from(expected.map(|(address, file)| (address, file.to_owned())))
        );
    }
}
