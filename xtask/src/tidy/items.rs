//! Rule `item-examples`: every public item is shown in use, or says why not.

use super::{
    Finding,
    source::words,
    tree::{Place, RustFile, Tree},
};
use std::collections::BTreeSet;

/// How an item says why it is not shown.
const REASON: &str = "No example: ";
/// What an item may be. A constant's definition shows it, a macro is shown where it is called.
const KINDS: [&str; 6] = ["struct", "enum", "trait", "fn", "type", "union"];

/// A public item at the top of a file.
struct Item<'a> {
    line: usize,
    name: &'a str,
    /// The lines of its doc comment, without the marker.
    docs: Vec<&'a str>,
}

impl Item<'_> {
    fn says_why(&self) -> bool {
        self.docs.iter().any(|line| line.trim_start().starts_with(REASON))
    }
}

/// An item is shown by an example of its own, or by one that names it anywhere in the workspace.
pub(super) fn examples(tree: &Tree) -> Vec<Finding> {
    let named = named(tree);
    let mut found = Vec::new();
    for file in tree.rust_files().filter(is_library) {
        for item in items(file.source) {
            let shown = named.contains(item.name) || !rust_blocks(item.docs.iter().copied()).is_empty();
            if !shown && !item.says_why() {
                let message = format!(
                    "`{}` is in no compiled example: show it, or say why not in a line `{REASON}…`",
                    item.name
                );
                found.push(Finding::error(file.path, item.line, message));
            }
        }
    }
    found
}

fn is_library(file: &RustFile<'_>) -> bool {
    // What an `unreachable_pub` of the compiler lets stand is public. A command's items have no readers.
    let command = ["xtask", "fuzz", "dmkit"].contains(&file.package);
    file.place == Place::Src && !command
}

/// Every word of code that the documentation compiles, and of `examples`.
fn named(tree: &Tree) -> BTreeSet<String> {
    let mut code = String::new();
    // That each block so tagged is compiled is another rule's.
    for (_, text) in tree.files().filter(|(path, _)| path.ends_with(".md")) {
        code.push_str(&blocks(text.lines(), &["rust"]));
    }
    for file in tree.rust_files() {
        if file.path.contains("/examples/") {
            code.push_str(&file.source.code);
        }
        for marker in ["///", "//!"] {
            let lines = file.source.comments.lines();
            code.push_str(&rust_blocks(
                lines.map(|line| line.trim_start().strip_prefix(marker).unwrap_or("")),
            ));
        }
    }
    words(&code).map(|(_, word)| word.to_owned()).collect()
}

/// The fenced blocks that are Rust to rustdoc.
fn rust_blocks<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    blocks(lines, &["", "rust", "no_run", "should_panic"])
}

/// The fenced blocks whose first tag is one of these.
fn blocks<'a>(lines: impl Iterator<Item = &'a str>, tagged: &[&str]) -> String {
    let (mut inside, mut rust) = (false, false);
    let mut found = String::new();
    for line in lines {
        if let Some(tags) = line.trim_start().strip_prefix("```") {
            inside = !inside;
            rust = inside && tagged.contains(&tags.split([',', ' ']).next().unwrap_or_default().trim());
        } else if rust {
            found.push_str(line);
            found.push('\n');
        }
    }
    found
}

/// The public items that begin a line, outside tests.
fn items(source: &super::source::Source) -> Vec<Item<'_>> {
    let mut found = Vec::new();
    let (mut docs, mut hidden) = (Vec::new(), false);
    for (index, (shipped, text)) in source.shipped.lines().zip(source.text.lines()).enumerate() {
        if let Some(doc) = text.strip_prefix("///") {
            docs.push(doc);
            continue;
        }
        if text.starts_with("#[") || text.starts_with("//") {
            hidden |= text.contains("doc(hidden)");
            continue;
        }
        if let Some(name) = public_name(shipped).filter(|_| !hidden) {
            found.push(Item {
                line: index + 1,
                name,
                docs: core::mem::take(&mut docs),
            });
        }
        docs.clear();
        hidden = false;
    }
    found
}

/// The name of the item that this line begins, if it is a public one.
fn public_name(line: &str) -> Option<&str> {
    let mut rest = line.strip_prefix("pub ")?;
    for word in ["const ", "unsafe ", "async "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let (kind, rest) = rest.split_once(' ')?;
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
    KINDS.contains(&kind).then(|| &rest[..end.unwrap_or(rest.len())])
}

#[cfg(test)]
mod tests {
    use super::{
        super::tree::{lines, sample},
        *,
    };

    #[test]
    fn an_item_that_no_example_names_and_that_does_not_say_why_is_found() {
        let tree = sample([
            (
                "crates/dm-a/src/lib.rs",
                "//! A.\n//! ```text\n//! Bare\n//! ```\n//! ```\n//! Named::new();\n//! ```\n\n\
                 /// Is named above.\npub struct Named;\n\
                 /// Has its own.\n/// ```\n/// shown();\n/// ```\n#[must_use]\npub const fn own() {}\n\
                 /// Why not.\n///\n/// No example: nobody makes one.\n#[derive(Debug)]\npub enum Excused {}\n\
                 /// A picture is no example.\n/// ```text\n/// b\n/// ```\npub struct Bare;\n\
                 pub(crate) struct Inner;\npub const LIMIT: u32 = 1;\n#[doc(hidden)]\npub fn hidden() {}\n\
                 #[cfg(test)]\nmod tests {\n}\n",
            ),
            (
                "crates/dm-a/src/b.rs",
                "//! B.\npub trait Elsewhere {}\npub fn nowhere() {}\n",
            ),
            ("crates/dm-b/examples/e.rs", "//! E.\nimpl Elsewhere for () {}\n"),
            ("crates/dmkit/src/main.rs", "//! M.\npub fn command() {}\n"),
            ("docs/a.md", "```text\nnowhere()\n```\n```\nnowhere()\n```\n"),
        ]);
        let found = lines(examples(&tree));
        let expected = [("crates/dm-a/src/b.rs", 3), ("crates/dm-a/src/lib.rs", 26)];
        assert_eq!(found, expected.map(|(path, line)| (path.to_owned(), line)));
    }
}
