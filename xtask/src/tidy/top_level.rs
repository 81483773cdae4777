//! Rule `top-level`: the root holds the agreed names and dot files, nothing else.

use super::{Finding, tree::Tree};

/// Names that must be there.
const REQUIRED: &[&str] = &[
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "clippy.toml",
    "crates",
    "docs",
    "rustfmt.toml",
    "xtask",
];

/// Names that may be there: a workspace of its own, which a checkout without fuzzing can do without.
const ALLOWED: &[&str] = &["fuzz"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let present = tree.top_level();
    let missing = REQUIRED
        .iter()
        .filter(|name| !present.contains(**name))
        .map(|name| Finding::error(*name, 0, "missing in the top level"));
    let extra = present
        .iter()
        .filter(|name| !name.starts_with('.') && !REQUIRED.contains(*name) && !ALLOWED.contains(*name))
        .map(|name| {
            Finding::error(
                *name,
                0,
                "does not belong in the top level: move it below crates, docs or xtask",
            )
        });
    missing.chain(extra).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::tree::sample, *};

    const FULL: [(&str, &str); 12] = [
        ("Cargo.lock", ""),
        ("Cargo.toml", ""),
        ("LICENSE-APACHE", ""),
        ("LICENSE-MIT", ""),
        ("README.md", ""),
        ("clippy.toml", ""),
        ("crates/a/Cargo.toml", ""),
        ("docs/a.md", ""),
        ("rustfmt.toml", ""),
        ("xtask/Cargo.toml", ""),
        (".gitignore", ""),
        ("fuzz/Cargo.toml", ""),
    ];

    #[test]
    fn the_agreed_names_pass() {
        assert_eq!(check(&sample(FULL)), []);
    }

    #[test]
    fn a_missing_and_a_stray_name_are_found() {
        let mut files = FULL;
        files[2].0 = "notes.txt";
        let found: Vec<_> = check(&sample(files))
            .into_iter()
            .map(|finding| finding.path)
            .collect();
        assert_eq!(found, ["LICENSE-APACHE", "notes.txt"]);
    }
}
