//! Rule `banned-paths`: some paths of std must not be used. A clippy lint cannot check this, because dm-sync's atomics
//! are the same types, so it would flag legal uses too.

use super::{
    Finding, finding,
    tree::{Tree, is_library, package},
};
use proc_macro2::{Delimiter, Punct, Spacing, TokenStream, TokenTree};

/// Paths of atomics that only dm-sync may use. Tests must not use them either, because loom and shuttle would not see
/// them.
const ATOMICS: [&str; 2] = ["std::sync::atomic", "core::sync::atomic"];
/// Paths for which library code must use dm-sync's replacements.
const THREADS: [&str; 4] = ["std::sync", "alloc::sync", "core::sync", "std::thread"];
/// Paths for which library code must use the `Env` of its world.
const CLOCKS: [&str; 2] = ["Instant::now", "SystemTime::now"];
/// Crates that may use the clock: worlds with real threads, the control plane of a memory node, the explorer (whose
/// searches have a time limit), and dm-sync (which waits for a lock that another process holds).
const HAVE_CLOCKS: [&str; 5] = ["dm-sync", "dm-explore", "dm-loopback", "dm-control", "dm-ib"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    // A loom model counts its runs with an atomic that loom must not see.
    let counts_runs = |path: &str| path.ends_with("/tests/loom.rs");
    for (path, text) in tree.files(".rs").filter(|(path, _)| !counts_runs(path)) {
        let package = package(path);
        for Named { name, line, in_test } in named(text) {
            let names = |banned: &[&str]| {
                let name = format!("::{name}::");
                banned.iter().any(|path| name.contains(&format!("::{path}::")))
            };
            let library = is_library(path) && !in_test;
            let message = if package != "dm-sync" && names(&ATOMICS) {
                "atomics come from dm-sync"
            } else if library && package != "dm-sync" && names(&THREADS) && !says_why_std(text, line) {
                "take it from dm-sync, or say in a comment why it must be std's"
            } else if library && !HAVE_CLOCKS.contains(&package) && names(&CLOCKS) {
                "time comes from the world's `Env`"
            } else {
                continue;
            };
            found.push(finding(path, line, format!("`{name}`: {message}")));
        }
    }
    found
}

/// Returns whether a comment on this line, or on the previous one, mentions std, to say why std's own type is needed.
fn says_why_std(text: &str, line: usize) -> bool {
    let mut near = text.lines().skip(line.saturating_sub(2)).take(2);
    near.any(|line| {
        line.split_once("//")
            .is_some_and(|(_, comment)| comment.contains("std"))
    })
}

/// A path of two or more names, its line, and whether it is under `#[cfg(test)]`.
struct Named {
    name: String,
    line: usize,
    in_test: bool,
}

/// Returns every path in a file, including paths in macro calls. If the file is not Rust, returns none; the compiler
/// rejects such a file.
fn named(text: &str) -> Vec<Named> {
    let mut found = Vec::new();
    walk(text.parse().unwrap_or_default(), "", false, &mut found);
    found
}

/// Adds the paths in `tokens` to `found`. The tokens are a whole file, or all tokens between two brackets. In a group
/// of a `use`, every path starts with `prefix`.
fn walk(tokens: TokenStream, prefix: &str, all_in_test: bool, found: &mut Vec<Named>) {
    let (mut name, mut line, mut in_test) = (String::new(), 0, all_in_test);
    let end = TokenTree::Punct(Punct::new(';', Spacing::Alone));
    for token in tokens.into_iter().chain([end]) {
        match &token {
            TokenTree::Ident(next) if name.ends_with("::") => name += &next.to_string(),
            TokenTree::Punct(mark) if mark.as_char() == ':' => name.push(':'),
            _ => {
                let name = core::mem::take(&mut name);
                if let TokenTree::Group(group) = &token {
                    let prefix = if name.ends_with("::") { &name } else { "" };
                    walk(group.stream(), prefix, in_test, found);
                }
                if name.contains("::") {
                    found.push(Named { name, line, in_test });
                }
            }
        }
        match &token {
            TokenTree::Ident(first) if name.is_empty() => {
                name = format!("{prefix}{first}");
                line = first.span().start().line;
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
                let condition = group.stream().to_string().replace(' ', "");
                in_test |= condition.starts_with("cfg(test") || condition.starts_with("cfg(all(test");
            }
            // The item under the attribute ends here.
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => in_test = all_in_test,
            TokenTree::Punct(mark) if mark.as_char() == ';' => in_test = all_in_test,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn atomics_threads_and_clocks_of_std_are_found() {
        let sample = r#"== crates/dm-a/src/lib.rs
use core::sync::{
    atomic::AtomicU64};
use std::{fmt, sync::Arc};

fn f() { call!(Instant::now()) } // std::thread
// `Wake` takes std's.
use std::sync::Arc;
const S: &str = "std::thread";
#[cfg(test)]
mod tests { use std::thread; }
fn g() { std::thread::yield_now() }
== crates/dm-a/tests/t.rs
use std::sync::Arc;
use std::sync::atomic::fence;
fn f() { SystemTime::now() }
== crates/dm-b/tests/loom.rs
use std::sync::atomic::fence;
== crates/dm-loopback/src/lib.rs
fn f() { std::time::Instant::now() }
== crates/dm-sync/src/lib.rs
use std::sync::Arc;
"#;
        // The first two lines are both the path of an atomic and the beginning of a path of std::sync.
        let library = [2, 1, 3, 5, 11].map(|line| format!("crates/dm-a/src/lib.rs:{line} "));
        let expected = format!("{}crates/dm-a/tests/t.rs:2", library.concat());
        super::super::expect(super::check, sample, &expected);
    }
}
