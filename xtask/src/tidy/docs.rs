//! Rules `doc-code`, `examples`, `links` and `mentions`: documentation that is compiled and that leads somewhere.

use super::{Finding, tree::Tree};
use crate::workspace::Package;
use std::collections::BTreeSet;

pub(super) fn code(tree: &Tree) -> Vec<Finding> {
    let compiled = included(tree);
    let mut found = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| path.ends_with(".md")) {
        for fence in fences(text, "") {
            found.extend(ignored(path, &fence));
            let is_rust = fence.tags.first().is_some_and(|tag| tag == "rust");
            if is_rust && !compiled.contains(path) {
                let message =
                    "a Rust block that nothing compiles: include this file under `cfg(doctest)` in a lib.rs";
                found.push(Finding::error(path, fence.line, message));
            }
        }
    }
    for file in tree.rust_files() {
        for marker in ["///", "//!"] {
            for fence in fences(&file.source.comments, marker) {
                found.extend(ignored(file.path, &fence));
            }
        }
    }
    found
}

/// A library's own page shows how it is used, in code that is compiled.
pub(super) fn examples(tree: &Tree) -> Vec<Finding> {
    let compiled = included(tree);
    let is_library = |package: &&Package| {
        let kinds = package.targets.iter().flat_map(|target| &target.kind);
        kinds.into_iter().any(|kind| kind.ends_with("lib"))
    };
    let mut found = Vec::new();
    for package in tree.packages().iter().filter(is_library) {
        let manifest = tree.relative(&package.manifest_path);
        let page = manifest.replace("Cargo.toml", "README.md");
        // A block without a tag is Rust to rustdoc.
        let is_rust = |fence: &Fence| fence.tags.first().is_none_or(|tag| tag == "rust");
        let shows = tree
            .file(&page)
            .is_some_and(|text| fences(text, "").iter().any(is_rust));
        if !shows || !compiled.contains(&page) {
            let message =
                "no Rust block that is compiled: show the crate in use, and include this file in its lib.rs";
            found.push(Finding::error(page, 0, message));
        }
    }
    found
}

pub(super) fn links(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| path.ends_with(".md")) {
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        for (index, line) in text.lines().enumerate() {
            for target in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let file = target.split('#').next().unwrap_or_default();
                if file.is_empty() || file.contains("://") || file.starts_with("mailto:") {
                    continue;
                }
                if !resolve(dir, file).is_some_and(|file| tree.exists(&file)) {
                    found.push(Finding::error(
                        path,
                        index + 1,
                        format!("`{target}` leads nowhere"),
                    ));
                }
            }
        }
    }
    found
}

/// Files named in passing, such as `docs/TESTING.md`: from the root, from the file's own place, or by name alone.
pub(super) fn mentions(tree: &Tree) -> Vec<Finding> {
    let names: BTreeSet<_> = tree
        .files()
        .filter_map(|(path, _)| path.rsplit('/').next())
        .collect();
    let prose = tree.files().filter(|(path, _)| path.ends_with(".md"));
    let comments = tree
        .rust_files()
        .filter(|file| file.package != "xtask")
        .map(|file| (file.path, file.source.comments.as_str()));
    let mut found = Vec::new();
    for (path, text) in prose.chain(comments) {
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        for (index, line) in text.lines().enumerate() {
            let parts = line.split(|c: char| !(c.is_ascii_alphanumeric() || "_-./*<>:".contains(c)));
            let parts = parts.map(|part| part.trim_end_matches(['.', ':']));
            for mention in parts.filter(|part| part.ends_with(".md") && *part != ".md") {
                if mention.contains(['*', '<', ':']) {
                    continue;
                }
                let known = names.contains(mention)
                    || tree.exists(mention)
                    || resolve(dir, mention).is_some_and(|file| tree.exists(&file));
                if !known {
                    found.push(Finding::error(
                        path,
                        index + 1,
                        format!("`{mention}` is no file of this tree"),
                    ));
                }
            }
        }
    }
    found
}

/// A fenced block's opening line.
struct Fence {
    line: usize,
    tags: Vec<String>,
}

/// The fenced blocks of `text`; with a marker, those whose lines start with it.
fn fences(text: &str, marker: &str) -> Vec<Fence> {
    let mut open = false;
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some(line) = line.trim_start().strip_prefix(marker) else {
            // The comment that held the block is over.
            open = false;
            continue;
        };
        let Some(info) = line.trim_start().strip_prefix("```") else {
            continue;
        };
        open = !open;
        if open {
            let tags = info
                .split([',', ' '])
                .map(str::trim)
                .filter(|tag| !tag.is_empty())
                .map(str::to_owned);
            found.push(Fence {
                line: index + 1,
                tags: tags.collect(),
            });
        }
    }
    found
}

fn ignored(path: &str, fence: &Fence) -> Option<Finding> {
    let ignores = fence
        .tags
        .iter()
        .any(|tag| tag == "ignore" || tag.starts_with("ignore-"));
    ignores.then(|| {
        Finding::error(
            path,
            fence.line,
            "an ignored block rots: compile it, or use `text`",
        )
    })
}

/// Every file that some source includes as text.
fn included(tree: &Tree) -> BTreeSet<String> {
    tree.rust_files()
        .flat_map(|file| {
            let dir = file.path.rsplit_once('/').map_or("", |(dir, _)| dir);
            file.source
                .included_texts()
                .into_iter()
                .filter_map(move |target| resolve(dir, target))
        })
        .collect()
}

/// `target` seen from `dir`; `None` if it leaves the tree.
fn resolve(dir: &str, target: &str) -> Option<String> {
    let mut parts: Vec<_> = dir.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::{
        super::tree::{lines, sample},
        *,
    };
    use crate::workspace::Target;

    #[test]
    fn ignored_blocks_are_found_in_prose_and_in_doc_comments() {
        let tree = sample([
            ("docs/a.md", "```text\nok\n```\n```ignore\n```\n"),
            (
                "crates/dm-a/src/lib.rs",
                "//! A.\n//! ```rust,ignore\n//! ```\n\n/// ```\n/// ok\n/// ```\nfn a() {}",
            ),
            ("crates/dm-a/src/ok.rs", "const S: &str = \"/// ```ignore\";"),
        ]);
        assert_eq!(
            lines(code(&tree)),
            [
                ("docs/a.md".to_owned(), 4),
                ("crates/dm-a/src/lib.rs".to_owned(), 2)
            ]
        );
    }

    #[test]
    fn a_rust_block_that_nothing_includes_is_found() {
        let block = "Text.\n\n```rust\nfn main() {}\n```\n";
        let tree = sample([
            ("README.md", block),
            ("docs/a.md", block),
            (
                "crates/dm-a/src/lib.rs",
                "#[doc = include_str!(\"../../../README.md\")]\n#[cfg(doctest)]\nstruct R;",
            ),
        ]);
        assert_eq!(lines(code(&tree)), [("docs/a.md".to_owned(), 3)]);
    }

    #[test]
    fn a_library_without_a_compiled_example_is_found() {
        let package = |name: &str, kind: &str| Package {
            name: name.to_owned(),
            manifest_path: format!("/sample/crates/{name}/Cargo.toml").into(),
            dependencies: Vec::new(),
            targets: vec![Target {
                name: name.to_owned(),
                kind: vec![kind.to_owned()],
                src_path: "/sample/x.rs".into(),
            }],
        };
        let includes = "//! A.\n#[doc = include_str!(\"../README.md\")]\nstruct R;";
        let tree = sample([
            ("crates/shown/README.md", "```\nfn main() {}\n```\n"),
            ("crates/shown/src/lib.rs", includes),
            ("crates/drawn/README.md", "```text\nfn main() {}\n```\n"),
            ("crates/drawn/src/lib.rs", includes),
            ("crates/not-compiled/README.md", "```rust\nfn main() {}\n```\n"),
            ("crates/not-compiled/src/lib.rs", "//! A."),
        ]);
        let packages = [
            ("shown", "lib"),
            ("drawn", "lib"),
            ("not-compiled", "rlib"),
            ("command", "bin"),
            ("silent", "lib"),
        ];
        let tree = tree.with_packages(packages.map(|(name, kind)| package(name, kind)).into());
        let found: Vec<_> = examples(&tree).into_iter().map(|finding| finding.path).collect();
        let expected = ["drawn", "not-compiled", "silent"].map(|name| format!("crates/{name}/README.md"));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_link_to_nothing_is_found() {
        let tree = sample([
            (
                "docs/a.md",
                "[b](b.md) [up](../README.md#x) [web](https://example.org) [here](#a)\n[gone](c.md)\n[out](../../x)",
            ),
            ("docs/b.md", "[dir](../docs)"),
            ("README.md", ""),
        ]);
        assert_eq!(
            lines(links(&tree)),
            [("docs/a.md".to_owned(), 2), ("docs/a.md".to_owned(), 3)]
        );
    }

    #[test]
    fn a_mention_of_no_file_is_found() {
        let tree = sample([
            (
                "docs/a.md",
                "See GONE.md, docs/b.md, b.md and `docs/layout/*.md`.\n",
            ),
            ("docs/b.md", "https://example.org/x.md"),
            (
                "crates/dm-a/src/lib.rs",
                "//! By `docs/b.md`, not\n//! (docs/c.md).\nconst S: &str = \"d.md\";",
            ),
        ]);
        let lib = "crates/dm-a/src/lib.rs".to_owned();
        assert_eq!(lines(mentions(&tree)), [("docs/a.md".to_owned(), 1), (lib, 2)]);
    }
}
