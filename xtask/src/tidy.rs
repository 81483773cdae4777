//! The rules that no compiler checks; CONTRIBUTING.md lists them. Each rule gets all files, so it can compare them.

mod docs;
mod files;
mod flaws;
mod floors;
mod names;
mod paths;
mod tree;

pub(crate) use docs::resolve;

use crate::Result;
use std::path::Path;
use tree::Tree;

type Rule = fn(&Tree) -> Vec<Finding>;

/// Every rule, with the name that is printed with its findings.
const RULES: [(&str, Rule); 10] = [
    ("floors", floors::check),
    ("banned-paths", paths::check),
    ("dead-files", files::dead),
    ("file-docs", files::silent),
    ("width", files::wide),
    ("words", files::forbidden_words),
    ("examples", docs::examples),
    ("links", docs::links),
    ("names", names::check),
    ("flaws", flaws::check),
];

/// One breach of a rule.
struct Finding {
    /// The file, relative to the root.
    path: String,
    /// The line, from 1.
    line: usize,
    /// The fault, and the way to correct it.
    message: String,
}

fn finding(path: &str, line: usize, message: impl Into<String>) -> Finding {
    let (path, message) = (path.to_owned(), message.into());
    Finding { path, line, message }
}

/// Checks every rule on the tree at `root`, prints the findings, and fails if there are any.
pub(crate) fn run(root: &Path) -> Result<()> {
    let tree = Tree::load(root)?;
    let mut count = 0;
    for (name, rule) in RULES {
        for Finding { path, line, message } in rule(&tree) {
            println!("error[{name}]: {path}:{line}: {message}");
            count += 1;
        }
    }
    match count {
        0 => Ok(()),
        count => Err(format!("tidy found {count} errors").into()),
    }
}

/// Compares a rule's findings in a sample with the expected findings, each a path and a line.
#[cfg(test)]
fn expect(rule: Rule, sample: &str, expected: &str) {
    let findings = rule(&Tree::sample(sample)).into_iter();
    let found: Vec<_> = findings.map(|f| format!("{}:{}", f.path, f.line)).collect();
    assert_eq!(found.join(" "), expected);
}

/// If the workspace breaks a rule, a plain `cargo test` fails too.
#[test]
fn this_workspace_is_tidy() {
    run(&crate::workspace::root().unwrap()).unwrap();
}
