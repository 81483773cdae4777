//! The rules that no compiler checks. Each rule reads one picture of the tree and answers with findings.
//!
//! | rule | what it holds |
//! |---|---|
//! | `top-level` | the root holds the agreed names and dot files, nothing else |
//! | `floors` | a crate uses only crates of a lower floor; every crate has a floor, and is drawn there; directory name = package name |
//! | `atomics` | atomics are named by dm-sync alone; threads and locks of std are not named in library code |
//! | `time` | no wall clock outside the worlds that have one, and tests |
//! | `orderings` | (warning) a memory ordering has a comment beside it |
//! | `dead-files` | every source file is reached by a `mod` |
//! | `file-docs` | line 1 of every source file is a `//!` sentence |
//! | `unsafe` | a crate forbids unsafe code, or says in a `# Unsafe` section why it can't |
//! | `unfinished` | no placeholders and no notes to self |
//! | `doc-code` | code in docs compiles: none ignored, every Markdown block included by a crate |
//! | `examples` | every library's README has an example that is compiled |
//! | `links` | relative links in Markdown lead to a file |
//! | `mentions` | a Markdown file that prose or a comment names exists |
//! | `words` | no word of `xtask/forbidden-words.txt` |
//! | `size` | (warning) files over 600 lines without tests, functions over 90 |

mod banned;
mod docs;
mod floors;
mod modules;
mod orderings;
mod shape;
pub(crate) mod source;
mod top_level;
mod tree;
mod words;

use crate::{Result, workspace};
use std::{fmt, path::Path};
use tree::Tree;

/// Looks at the whole tree, so that a rule can compare files.
type Rule = fn(&Tree) -> Vec<Finding>;

/// Every rule, by the name its findings carry.
const RULES: &[(&str, Rule)] = &[
    ("top-level", top_level::check),
    ("floors", floors::check),
    ("atomics", banned::atomics_and_threads),
    ("time", banned::clocks),
    ("orderings", orderings::check),
    ("dead-files", modules::dead_files),
    ("file-docs", shape::file_docs),
    ("unsafe", shape::unsafe_policy),
    ("unfinished", words::unfinished),
    ("doc-code", docs::code),
    ("examples", docs::examples),
    ("links", docs::links),
    ("mentions", docs::mentions),
    ("words", words::forbidden),
    ("size", shape::sizes),
];

/// One breach of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    /// The file, relative to the root.
    path: String,
    /// The line, from 1; 0 when the finding is about the whole file.
    line: usize,
    /// What is wrong, and what would be right.
    message: String,
    /// A warning is printed and fails nothing.
    warning: bool,
}

impl Finding {
    fn error(path: impl Into<String>, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            line,
            message: message.into(),
            warning: false,
        }
    }

    fn warning(path: impl Into<String>, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            line,
            message: message.into(),
            warning: true,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Checks every rule on the tree at `root`, prints what it finds, and fails if something is an error.
pub(crate) fn run(root: &Path) -> Result<()> {
    let tree = Tree::load(root, workspace::packages(root)?)?;
    let mut errors = 0;
    for (rule, finding) in findings(&tree) {
        let level = if finding.warning { "warning" } else { "error" };
        println!("{level}[{rule}]: {finding}");
        errors += usize::from(!finding.warning);
    }
    match errors {
        0 => Ok(()),
        1 => Err("tidy found 1 error".into()),
        n => Err(format!("tidy found {n} errors").into()),
    }
}

fn findings(tree: &Tree) -> Vec<(&'static str, Finding)> {
    RULES
        .iter()
        .flat_map(|(name, rule)| rule(tree).into_iter().map(move |finding| (*name, finding)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The workspace itself is tidy, so that a breach fails a plain `cargo test` too.
    #[test]
    fn this_workspace_is_tidy() {
        let root = workspace::root().unwrap();
        let tree = Tree::load(&root, workspace::packages(&root).unwrap()).unwrap();
        assert!(
            tree.files().count() > 40,
            "the walk found only {} files",
            tree.files().count()
        );
        let errors: Vec<_> = findings(&tree)
            .into_iter()
            .filter(|(_, finding)| !finding.warning)
            .map(|(rule, finding)| format!("{rule}: {finding}"))
            .collect();
        assert!(errors.is_empty(), "{}", errors.join("\n"));
    }
}
