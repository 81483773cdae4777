//! Rules `atomics` and `time`: paths that only some crates may name.
//!
//! A lint can't hold these: a re-exported atomic is the same type, so that `disallowed-types` flags its legal user too.

use super::{
    Finding,
    source::Source,
    tree::{Place, RustFile, Tree},
};

/// What goes through dm-sync everywhere, tests too: a second spelling would escape the builds for loom and shuttle.
const ATOMICS: &[&str] = &["std::sync::atomic", "core::sync::atomic"];

/// What library code takes from dm-sync; tests, examples and programs may use std's.
const THREADS: &[&str] = &["std::sync", "alloc::sync", "core::sync", "std::thread"];

/// What reads the machine's clock.
const CLOCKS: &[&str] = &["Instant::now", "SystemTime::now"];

/// Crates whose matter is the machine's time: worlds of real threads, a node's control plane, the programs, and the words of a
/// mapped region, whose waiters give a stopped process only so long.
const HAVE_CLOCKS: &[&str] = &[
    "dm-sync",
    "dm-explore",
    "dm-loopback",
    "dm-control",
    "dm-ib",
    "dmkit",
    "xtask",
];

pub(super) fn atomics_and_threads(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    // A loom model counts its runs with an atomic that loom does not see.
    let counts_runs = |file: &RustFile<'_>| file.path.ends_with("/tests/loom.rs");
    for file in tree
        .rust_files()
        .filter(|file| file.package != "dm-sync" && !counts_runs(file))
    {
        for (line, path) in Source::paths(&file.source.code) {
            if ATOMICS.iter().any(|banned| starts_with_path(&path, banned)) {
                found.push(Finding::error(
                    file.path,
                    line,
                    format!("`{path}`: atomics come from dm-sync"),
                ));
            }
        }
        let is_library = file.place == Place::Src && !matches!(file.package, "dmkit" | "xtask");
        if !is_library {
            continue;
        }
        for (line, path) in Source::paths(&file.source.shipped) {
            if ATOMICS.iter().any(|known| starts_with_path(&path, known)) {
                continue;
            }
            if THREADS.iter().any(|banned| starts_with_path(&path, banned)) && !says_why_std(&file, line) {
                let message =
                    format!("`{path}`: take it from dm-sync, or say in a comment why it must be std's");
                found.push(Finding::error(file.path, line, message));
            }
        }
    }
    found
}

pub(super) fn clocks(tree: &Tree) -> Vec<Finding> {
    let library = |file: &RustFile<'_>| file.place == Place::Src && !HAVE_CLOCKS.contains(&file.package);
    let mut found = Vec::new();
    for file in tree.rust_files().filter(library) {
        for (line, path) in Source::paths(&file.source.shipped) {
            if CLOCKS
                .iter()
                .any(|clock| path == *clock || path.ends_with(&format!("::{clock}")))
            {
                found.push(Finding::error(
                    file.path,
                    line,
                    format!("`{path}`: time comes from the world's `Env`"),
                ));
            }
        }
    }
    found
}

/// Some interfaces of std take std's own types, `std::task::Wake` its `Arc`: a comment on the line, or right above, that
/// speaks of std lets that pass.
fn says_why_std(file: &RustFile<'_>, line: usize) -> bool {
    let mut near = file.source.comments.lines().skip(line.saturating_sub(2)).take(2);
    near.any(|comment| comment.contains("std"))
}

fn starts_with_path(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

#[cfg(test)]
mod tests {
    use super::{
        super::tree::{lines, sample},
        *,
    };

    #[test]
    fn atomics_outside_dm_sync_are_found_in_tests_too() {
        let tree = sample([
            (
                "crates/dm-sync/src/lib.rs",
                "pub use std::sync::atomic::AtomicU64;",
            ),
            (
                "crates/dm-lock/src/lib.rs",
                "//! Doc.\nuse core::sync::{atomic::AtomicU64};",
            ),
            (
                "crates/dm-lock/tests/t.rs",
                "fn f() { std::sync::atomic::fence(o) }",
            ),
            (
                "crates/dm-lock/src/ok.rs",
                "use dm_sync::atomic::AtomicU64; // not std::sync::atomic",
            ),
        ]);
        let found = lines(atomics_and_threads(&tree));
        assert_eq!(
            found,
            [
                ("crates/dm-lock/src/lib.rs".to_owned(), 2),
                ("crates/dm-lock/tests/t.rs".to_owned(), 1)
            ]
        );
    }

    #[test]
    fn library_code_takes_no_threads_or_locks_of_std() {
        let tree = sample([
            (
                "crates/dm-a/src/lib.rs",
                "use std::{fmt, sync::Arc};\nfn f() { std::thread::yield_now() }",
            ),
            (
                "crates/dm-a/src/ok.rs",
                "#[cfg(test)]\nmod tests { use std::sync::Arc; }\nfn f() { dm_sync::thread::yield_now() }",
            ),
            ("crates/dm-a/src/b/tests.rs", "use std::thread;"),
            ("crates/dm-a/examples/e.rs", "use std::thread;"),
            (
                "crates/dm-a/src/wake.rs",
                "// `Wake` takes std's.\nuse std::sync::Arc;\n\nuse std::thread;",
            ),
            ("crates/dmkit/src/main.rs", "use std::sync::Arc;"),
        ]);
        let lib = "crates/dm-a/src/lib.rs".to_owned();
        let wake = "crates/dm-a/src/wake.rs".to_owned();
        assert_eq!(
            lines(atomics_and_threads(&tree)),
            [(lib.clone(), 1), (lib, 2), (wake, 4)]
        );
    }

    #[test]
    fn a_clock_in_library_code_is_found() {
        let read = "fn f() { let t = std::time::Instant::now(); }";
        let tree = sample([
            ("crates/dm-lock/src/lib.rs", read),
            ("crates/dm-lock/src/short.rs", "fn f() {\n SystemTime::now() }"),
            ("crates/dm-lock/tests/t.rs", read),
            ("crates/dm-loopback/src/lib.rs", read),
        ]);
        assert_eq!(
            lines(clocks(&tree)),
            [
                ("crates/dm-lock/src/lib.rs".to_owned(), 1),
                ("crates/dm-lock/src/short.rs".to_owned(), 2)
            ]
        );
    }
}
