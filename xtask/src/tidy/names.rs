//! Rule `names`: two crates must not use one name for different public types.

use super::{
    Finding, finding,
    tree::{Tree, is_library, package},
};
use std::collections::BTreeMap;

/// The list of shared names. Each line has a name, the crates that define it, a colon and the reason; `#` starts a
/// note.
const LIST: &str = "xtask/shared-names.txt";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut defined: BTreeMap<&str, BTreeMap<&str, (&str, usize)>> = BTreeMap::new();
    for (path, at, line) in tree.lines(".rs").filter(|(path, ..)| is_library(path)) {
        if let Some(name) = public_type(line) {
            defined.entry(name).or_default().insert(package(path), (path, at));
        }
    }
    defined.retain(|_, crates| crates.len() > 1);
    let mut found = Vec::new();
    let is_entry = |line: &str| !line.is_empty() && !line.starts_with('#');
    for (_, at, line) in tree.lines(LIST).filter(|(.., line)| is_entry(line)) {
        let (names, reason) = line.split_once(':').unwrap_or_default();
        let mut names = names.split_whitespace();
        let crates = defined
            .remove(names.next().unwrap_or_default())
            .unwrap_or_default();
        if reason.is_empty() || !names.eq(crates.keys().copied()) || crates.is_empty() {
            let message = "give the crates that share the name, in order, and a reason; or drop the line";
            found.push(finding(LIST, at, message));
        }
    }
    for (name, crates) in defined {
        let all: Vec<_> = crates.keys().copied().collect();
        let all = all.join(" and ");
        for (path, at) in crates.into_values() {
            let message = format!("{all} have a `{name}`: rename one, or give a reason in {LIST}");
            found.push(finding(path, at, message));
        }
    }
    found
}

/// Returns the name of the type or trait that this line defines, if it is public.
fn public_type(line: &str) -> Option<&str> {
    // An indented line belongs to a test or to a macro.
    let (kind, rest) = line.strip_prefix("pub ")?.split_once(' ')?;
    let is_type = ["struct", "enum", "union", "trait", "type"].contains(&kind);
    let end = rest.find(|c: char| !c.is_alphanumeric());
    is_type.then(|| &rest[..end.unwrap_or(rest.len())])
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_of_two_types_needs_a_reason() {
        let sample = "== crates/a/src/lib.rs
pub use b::Again;
pub struct Kept;
pub enum Two<T> {}
== crates/b/src/lib.rs
pub trait Kept: Sized {}
pub struct Again;
== crates/b/src/two.rs
pub type Two = u8;
#[cfg(test)]
mod tests {
    pub struct Again;
}
== crates/c/src/lib.rs
pub(crate) struct Again;
== crates/c/tests/t.rs
pub struct Again;
== xtask/shared-names.txt
# a note: why
Kept a b: two sides of one thing
Gone a b: once
";
        let expected = "xtask/shared-names.txt:3 crates/a/src/lib.rs:3 crates/b/src/two.rs:1";
        super::super::expect(super::check, sample, expected);
    }
}
