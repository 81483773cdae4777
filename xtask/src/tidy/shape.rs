//! Rules `file-docs`, `unsafe` and `size`: how a source file begins and how long it gets.

use super::{
    Finding,
    tree::{Place, Tree},
};

/// Lines a file may have outside its tests before it should become two.
const FILE_LINES_MAX: usize = 600;

/// Lines a function may have; a warning, since some tables and matches read best in one piece.
const FUNCTION_LINES_MAX: usize = 90;

pub(super) fn file_docs(tree: &Tree) -> Vec<Finding> {
    tree.rust_files()
        .filter(|file| file.place != Place::Outside)
        .filter(|file| {
            let first = file.source.text.lines().next().unwrap_or_default();
            first
                .strip_prefix("//!")
                .is_none_or(|sentence| sentence.trim().is_empty())
        })
        .map(|file| Finding::error(file.path, 1, "line 1 must say with `//!` what this file is for"))
        .collect()
}

pub(super) fn unsafe_policy(tree: &Tree) -> Vec<Finding> {
    let targets = tree.packages().iter().flat_map(|package| &package.targets);
    let roots = targets.filter(|target| {
        target
            .kind
            .iter()
            .any(|kind| kind.ends_with("lib") || kind == "bin")
    });
    roots
        .filter_map(|target| {
            let path = tree.relative(&target.src_path);
            let source = tree.source(&path)?;
            let forbids = source.code.contains("#![forbid(unsafe_code)]");
            let explains = source.comments.lines().any(|line| line.trim() == "//! # Unsafe");
            let message =
                "neither `#![forbid(unsafe_code)]` nor a `# Unsafe` section that says what needs it";
            (!forbids && !explains).then(|| Finding::error(path, 0, message))
        })
        .collect()
}

pub(super) fn sizes(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.rust_files() {
        let lines = file.source.lines_without_tests();
        if file.place == Place::Src && lines > FILE_LINES_MAX {
            let message =
                format!("{lines} lines without tests; over {FILE_LINES_MAX} a file holds two ideas");
            found.push(Finding::warning(file.path, 0, message));
        }
        for function in file
            .source
            .functions()
            .iter()
            .filter(|function| function.lines > FUNCTION_LINES_MAX)
        {
            let message = format!(
                "`{}` has {} lines, over {FUNCTION_LINES_MAX}",
                function.name, function.lines
            );
            found.push(Finding::warning(file.path, function.line, message));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{super::tree::sample, *};
    use crate::workspace::{Package, Target};

    #[test]
    fn a_source_file_without_its_sentence_is_found() {
        let tree = sample([
            ("crates/dm-a/src/lib.rs", "//! Says what it is.\n"),
            ("crates/dm-a/src/b.rs", "\n//! Too late.\n"),
            ("crates/dm-a/src/c.rs", "//!\n//! Nothing said on line 1.\n"),
            ("crates/dm-a/src/d.rs", ""),
            ("crates/dm-a/examples/e.rs", "fn main() {}"),
        ]);
        let found: Vec<_> = file_docs(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(
            found,
            [
                "crates/dm-a/src/b.rs",
                "crates/dm-a/src/c.rs",
                "crates/dm-a/src/d.rs"
            ]
        );
    }

    #[test]
    fn a_crate_that_says_nothing_of_unsafe_is_found() {
        let target = |kind: &str, path: &str| Target {
            name: "dm-a".to_owned(),
            kind: vec![kind.to_owned()],
            src_path: path.into(),
        };
        let package = Package {
            name: "dm-a".to_owned(),
            manifest_path: "/sample/crates/dm-a/Cargo.toml".into(),
            dependencies: Vec::new(),
            targets: vec![
                target("lib", "/sample/crates/dm-a/src/lib.rs"),
                target("lib", "/sample/crates/dm-b/src/lib.rs"),
                target("bin", "/sample/crates/dm-c/src/main.rs"),
                target("test", "/sample/crates/dm-a/tests/t.rs"),
            ],
        };
        let tree = sample([
            ("crates/dm-a/src/lib.rs", "//! A.\n#![forbid(unsafe_code)]"),
            (
                "crates/dm-b/src/lib.rs",
                "//! B.\n//!\n//! # Unsafe\n//! Maps files.",
            ),
            ("crates/dm-c/src/main.rs", "//! C.\n// #![forbid(unsafe_code)]"),
            ("crates/dm-a/tests/t.rs", ""),
        ])
        .with_packages(vec![package]);
        let found: Vec<_> = unsafe_policy(&tree)
            .into_iter()
            .map(|finding| finding.path)
            .collect();
        assert_eq!(found, ["crates/dm-c/src/main.rs"]);
    }

    #[test]
    fn long_files_and_functions_warn() {
        let long_function = format!(
            "fn long() {{\n{}}}\n",
            "    let x = 1;\n".repeat(FUNCTION_LINES_MAX)
        );
        let long_file = "//! A.\n".repeat(FILE_LINES_MAX + 1);
        let long_tests = format!(
            "//! A.\n#[cfg(test)]\nmod tests {{\n{}}}\n",
            "// t\n".repeat(FILE_LINES_MAX)
        );
        let tree = sample([
            ("crates/dm-a/src/function.rs", &long_function),
            ("crates/dm-a/src/file.rs", &long_file),
            ("crates/dm-a/src/tested.rs", &long_tests),
        ]);
        let found = sizes(&tree);
        assert!(found.iter().all(|finding| finding.warning));
        let paths: Vec<_> = found.iter().map(|finding| finding.path.as_str()).collect();
        assert_eq!(paths, ["crates/dm-a/src/file.rs", "crates/dm-a/src/function.rs"]);
    }
}
