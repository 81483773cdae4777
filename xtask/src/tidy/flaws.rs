//! Rule `flaws`: no public item of a library names a type of flaws unless the feature `study` is on.

use super::{
    Finding, finding,
    tree::{Tree, is_library, package},
};

/// The line that must precede such an item.
const GATE: &str = r#"#[cfg(feature = "study")]"#;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.files(".rs") {
        // A `study.rs` is a module that is private without the feature, and dm-models always turns the feature on.
        if !is_library(path) || path.ends_with("/study.rs") || package(path) == "dm-models" {
            continue;
        }
        let mut before = "";
        for (number, line) in text.lines().map(str::trim).enumerate() {
            if line.starts_with("pub ") && line.contains("Flaws") && before != GATE {
                let message =
                    format!("a public item names flaws: put `{GATE}` before it, or move it to study.rs");
                found.push(finding(path, number + 1, message));
            }
            before = line;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #[test]
    fn flaws_without_the_feature_are_found() {
        let sample = r#"== crates/dm-a/src/lib.rs
#[cfg(feature = "study")]
pub use study::AFlaws;
pub use study::BFlaws;
pub struct Options {
    pub flaws: AFlaws,
    #[cfg(feature = "study")]
    pub more: AFlaws,
    pub(crate) inside: AFlaws,
}
== crates/dm-a/src/study.rs
pub struct AFlaws;
== crates/dm-models/src/lib.rs
pub use dm_a::AFlaws;
== crates/dm-a/tests/t.rs
pub use dm_a::AFlaws;
"#;
        super::super::expect(
            super::check,
            sample,
            "crates/dm-a/src/lib.rs:3 crates/dm-a/src/lib.rs:5",
        );
    }
}
