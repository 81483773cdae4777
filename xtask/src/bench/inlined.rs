//! Finds the file and function of this workspace to which an instruction belongs, even if it was inlined into other
//! code.
//!
//! An instruction belongs to the innermost frame of our own code. For example, a load in `core::sync::atomic` may be
//! inlined into a region's read, which is inlined into a client's get. The load then belongs to the region. If a frame
//! is a world's, the instruction belongs to the world, because a world calls no code of an index. The
//! compiler stores these frames in the debug information, and addr2line of binutils reads them. The debug information
//! of release builds has no names for closures and the bodies of async functions, so the name of a function is read
//! from its source.

use super::{
    callgrind::Origin,
    split::{is_world, own_path},
};
use crate::Result;
use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fs,
    path::Path,
};
use xshell::{Shell, cmd};

/// Returns, for each of `addresses` in `program`, the function of this workspace to which the instruction there
/// belongs, if there is one.
pub(super) fn own_functions(
    shell: &Shell,
    program: &Path,
    addresses: &BTreeSet<u64>,
    crates: &[String],
) -> Result<BTreeMap<u64, Origin>> {
    let input: String = addresses
        .iter()
        .map(|address| format!("{address:#x}\n"))
        .collect();
    let output = cmd!(shell, "addr2line --inlines --addresses --exe={program}")
        .stdin(input)
        .quiet()
        .read()
        .map_err(|error| format!("{error}; on Debian: apt-get install binutils"))?;
    let root = shell.current_dir();
    let mut sources = BTreeMap::new();
    let mut origins = BTreeMap::new();
    for (address, (file, line)) in parse(&output, crates)? {
        let source = sources
            .entry(file.clone())
            .or_insert_with(|| fs::read_to_string(root.join(&file)).unwrap_or_default());
        let function = function_at(source, line).unwrap_or_default().to_owned();
        origins.insert(address, Origin { file, function });
    }
    Ok(origins)
}

/// Parses lines that have an address, followed by its frames as `file:line`, the innermost one first. Returns the file
/// and line to which each address belongs.
fn parse(output: &str, crates: &[String]) -> Result<BTreeMap<u64, (String, usize)>> {
    let mut places = BTreeMap::new();
    let mut address = None;
    for line in output.lines() {
        if let Some(hex) = line.strip_prefix("0x") {
            address = Some(u64::from_str_radix(hex, 16)?);
        } else if let (Some(address), Some(place)) = (address, own_path(line, crates)) {
            let (file, line) = place.split_once(':').unwrap_or((place, ""));
            let digits = line.split(|c: char| !c.is_ascii_digit()).next();
            // The debug information may have no line, which is written as "?".
            let number = digits.and_then(|digits| digits.parse().ok()).unwrap_or(0);
            let place = (file.to_owned(), number);
            match places.entry(address) {
                Entry::Vacant(entry) => drop(entry.insert(place)),
                Entry::Occupied(mut entry) => {
                    if is_world(file) && !is_world(&entry.get().0) {
                        entry.insert(place);
                    }
                }
            }
        }
    }
    Ok(places)
}

/// Returns the name of the function that contains line `number` of a formatted source: the last function that begins at
/// or above this line and is not indented further.
fn function_at(source: &str, number: usize) -> Option<&str> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let lines: Vec<_> = source.lines().take(number).collect();
    let most = indent(lines.last()?);
    lines
        .iter()
        .rev()
        .filter(|line| indent(line) <= most)
        .find_map(|line| function_name(line))
}

/// Returns the name of the function that a line declares.
fn function_name(line: &str) -> Option<&str> {
    let (before, name) = line.split_once("fn ")?;
    let qualifiers = ["pub", "const", "async", "unsafe", "extern", "\"C\"", "default"];
    let is_qualifier = |word: &str| qualifiers.contains(&word) || word.starts_with("pub(");
    // `pub(in path)` has a blank in it.
    let is_path = |word: &str| word.ends_with(')');
    if !before
        .split_whitespace()
        .all(|word| is_qualifier(word) || is_path(word))
    {
        return None;
    }
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_frame_of_ours_wins_unless_a_world_is_around_it() {
        let output = "0x0000000000001010\n/rustc/abc/library/core/src/sync/atomic.rs:4 (discriminator 2)\n\
                      /x/crates/dm-sync/src/region/line.rs:20\n/x/crates/sherman/src/tree.rs:9\n\
                      0x0000000000001018\n??:0\n0x0000000000001020\n/x/crates/sherman/src/tree.rs:10 (discriminator 2)\n";
        let output = format!(
            "{output}0x0000000000001028\n/x/crates/dm-verbs/src/wqe.rs:4\n/x/crates/dm-loopback/src/chains.rs:5\n\
             /x/crates/dm-loopback/src/endpoint.rs:6\n"
        );
        let crates = ["dm-sync", "sherman", "dm-verbs", "dm-loopback"].map(str::to_owned);
        let places = parse(&output, &crates).unwrap();
        let expected = [
            (0x1010, ("crates/dm-sync/src/region/line.rs", 20)),
            (0x1020, ("crates/sherman/src/tree.rs", 10)),
            (0x1028, ("crates/dm-loopback/src/chains.rs", 5)),
        ];
        assert_eq!(
            places,
            BTreeMap::from(expected.map(|(address, (file, line))| (address, (file.to_owned(), line))))
        );
    }

    #[test]
    fn a_line_belongs_to_the_function_around_it() {
        let source = "impl X {\n    pub(crate) async fn a(&self) {\n        let f = |x| {\n            x\n        };\n    }\n\n    \
                      fn b() {\n        fn inner() {\n        }\n        a();\n    }\n}\n";
        let at = |line| function_at(source, line);
        assert_eq!([at(2), at(4), at(6)], [Some("a"); 3]);
        assert_eq!([at(8), at(10), at(12)], [Some("b"), Some("inner"), Some("b")]);
        assert_eq!([at(1), at(0)], [None; 2]);
    }
}
