//! Rules `examples` and `links`: blocks of Rust are compiled, and links lead to files.

use super::{Finding, finding, tree::Tree};
use std::collections::BTreeSet;

/// Finds blocks of Rust that no test compiles, and libraries whose README has no block of Rust.
pub(super) fn examples(tree: &Tree) -> Vec<Finding> {
    let mut compiled = BTreeSet::new();
    for (path, _, line) in tree.lines(".rs") {
        let included = line.split("include_str!(\"").nth(1);
        compiled.extend(included.and_then(|rest| resolve(path, rest.split('"').next()?)));
    }
    let mut found = Vec::new();
    for (path, at, line) in tree.lines(".md").chain(tree.lines(".rs")) {
        let block = line.trim_start_matches(['/', '!', ' ']).strip_prefix("```");
        let tags = block.unwrap_or_default();
        let is_page = path.ends_with(".md");
        if tags.contains("ignore") || is_page && tags.starts_with("rust") && !compiled.contains(path) {
            let message = "nothing compiles this block: include the page in a lib.rs, or tag it `text`";
            found.push(finding(path, at, message));
        }
    }
    for (library, _) in tree.files("/src/lib.rs") {
        let page = library.replace("src/lib.rs", "README.md");
        if !tree.text(&page).contains("\n```rust") {
            found.push(finding(
                &page,
                1,
                "add a block of Rust that shows how to use the crate",
            ));
        }
    }
    found
}

/// Finds links in Markdown, and names of Markdown files, that do not lead to a file.
pub(super) fn links(tree: &Tree) -> Vec<Finding> {
    let pages = tree.files(".md").filter_map(|(path, _)| path.rsplit('/').next());
    let pages: BTreeSet<_> = pages.collect();
    let rust = tree.lines(".rs").filter(|(path, ..)| path.starts_with("crates/"));
    let comments = rust.filter(|(_, _, line)| line.trim_start().starts_with("//"));
    let mut found = Vec::new();
    for (path, at, line) in tree.lines(".md").chain(comments) {
        let leads = |target: &str| resolve(path, target).is_some_and(|file| tree.exists(&file));
        // Links in Rust files are checked by rustdoc.
        let links = line.split("](").skip(1).filter(|_| path.ends_with(".md"));
        let links = links.filter_map(|rest| rest.split([')', '#']).next());
        let words = line.split(|c: char| !(c.is_ascii_alphanumeric() || "_-./*<>:".contains(c)));
        let names = words.map(|word| word.trim_end_matches(['.', ':']));
        let names = names.filter(|word| word.ends_with(".md"));
        let names = names.filter(|file| !pages.contains(file) && !tree.exists(file));
        let targets: BTreeSet<_> = links.chain(names).collect();
        for file in targets.into_iter().filter(|file| !leads(file)) {
            if !file.is_empty() && !file.contains([':', '*', '<']) {
                found.push(finding(path, at, format!("`{file}` leads nowhere")));
            }
        }
    }
    found
}

/// Resolves `target` relative to a file. Returns `None` if it leaves the tree.
pub(crate) fn resolve(file: &str, target: &str) -> Option<String> {
    let mut parts: Vec<_> = file.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop()?,
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::expect;

    #[test]
    fn code_that_is_not_compiled_or_not_there_is_found() {
        let sample = "== crates/a/README.md
# A
```rust
== crates/a/src/lib.rs
#[doc = include_str!(\"../README.md\")]\n/// ```rust,ignore
== crates/b/README.md
```text
== crates/b/src/lib.rs
//! B.
== docs/c.md
```text
```
```rust
";
        let expected = "docs/c.md:3 crates/a/src/lib.rs:2 crates/b/README.md:1";
        expect(super::examples, sample, expected);
    }

    #[test]
    fn a_link_or_a_name_that_leads_to_no_file_is_found() {
        let sample = "== README.md
`docs/a.md` <https://example.org/x.md>
== crates/a/src/lib.rs
//! By `docs/a.md`, not
//! (docs/c.md).
const S: &str = \"d.md\";
== docs/a.md
[up](../README.md#x) [web](https://a.org) [here](#a) [dir](../docs/)
[out](../../x)
== docs/b.md
a.md, `docs/*.md`,
GONE.md
";
        let expected = "docs/a.md:2 docs/b.md:2 crates/a/src/lib.rs:2";
        expect(super::links, sample, expected);
    }
}
