//! Rules `dead-files`, `file-docs`, `width` and `words`.

use super::{Finding, finding, tree::Tree};

/// The maximum width of a line with a comment. rustfmt limits code to 110 columns and leaves comments as they are. A
/// comment may be wider because of a long name or address.
const COLUMNS: usize = 130;

/// The list of forbidden words: one word per line, in any case; `#` starts a note.
const WORDS: &str = "xtask/forbidden-words.txt";

/// Finds source files that are not compiled.
pub(super) fn dead(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, _) in sources(tree) {
        let name = path.trim_end_matches(".rs").trim_end_matches("/mod");
        let (dir, name) = name.rsplit_once('/').unwrap_or_default();
        let is_root = dir.ends_with("/bin") || dir.ends_with("/src") && ["lib", "main"].contains(&name);
        let parents = [".rs", "/mod.rs", "/lib.rs", "/main.rs"].map(|end| format!("{dir}{end}"));
        let mut lines = parents.iter().flat_map(|parent| tree.text(parent).lines());
        let declares = |line: &str| !line.trim().starts_with("//") && line.ends_with(&format!("mod {name};"));
        if !is_root && !lines.any(declares) {
            let message = "no `mod` names this file: add one or remove the file";
            found.push(finding(path, 1, message));
        }
    }
    found
}

/// Finds source files that do not begin with a description. The compiler requires one only for public modules.
pub(super) fn silent(tree: &Tree) -> Vec<Finding> {
    let silent = sources(tree).filter(|(_, text)| !text.starts_with("//! "));
    let finding = |(path, _)| finding(path, 1, "begin with a `//!` sentence: what is this file for?");
    silent.map(finding).collect()
}

/// Finds comments that are too wide. Rows of tables are allowed, because they cannot be broken.
pub(super) fn wide(tree: &Tree) -> Vec<Finding> {
    let is_wide = |line: &str| {
        let comment = line.trim_start().strip_prefix("//");
        let is_row = |text: &str| text.trim_start_matches(['/', '!', ' ']).starts_with('|');
        line.chars().count() > COLUMNS && comment.is_some_and(|text| !is_row(text))
    };
    let lines = tree.lines(".rs").filter(|(_, _, line)| is_wide(line));
    let finding = |(path, at, _)| finding(path, at, format!("over {COLUMNS} columns: break the line"));
    lines.map(finding).collect()
}

pub(super) fn forbidden_words(tree: &Tree) -> Vec<Finding> {
    let list = tree.text(WORDS).to_lowercase();
    let words = list.lines().filter_map(|line| line.split('#').next());
    let words: Vec<_> = words.map(str::trim).filter(|word| !word.is_empty()).collect();
    let mut found = Vec::new();
    for (path, at, line) in tree.lines("").filter(|(path, ..)| *path != WORDS) {
        let line = line.to_lowercase();
        for word in words.iter().filter(|word| has_word(&line, word)) {
            found.push(finding(path, at, format!("`{word}` is on the list {WORDS}")));
        }
    }
    found
}

/// Returns whether `line` contains `word`, and not only as a part of a longer word. If `word` begins or ends with a
/// mark, any character may stand before or after this mark.
fn has_word(line: &str, word: &str) -> bool {
    let joined = |a: &str, b: &str| {
        let ends = [a.chars().next_back(), b.chars().next()];
        ends.iter().all(|end| end.is_some_and(char::is_alphanumeric))
    };
    let mut places = line.match_indices(word).map(|(at, _)| at);
    places.any(|at| !joined(&line[..at], word) && !joined(word, &line[at + word.len()..]))
}

fn sources(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    let ours = |path: &str| !path.starts_with("fuzz/") && path.contains("/src/");
    tree.files(".rs").filter(move |(path, _)| ours(path))
}

#[cfg(test)]
mod tests {
    use super::super::expect;

    #[test]
    fn a_file_that_no_mod_reaches_is_found() {
        let sample = "== crates/a/src/lib.rs
mod b;
pub(crate) mod old;
== crates/a/src/b.rs
mod tests;
// mod dead;
== crates/a/src/b/dead.rs
== crates/a/src/b/tests.rs
== crates/a/src/old/inner.rs
== crates/a/src/old/mod.rs
mod inner;
== crates/a/tests/t.rs
";
        expect(super::dead, sample, "crates/a/src/b/dead.rs:1");
    }

    #[test]
    fn a_file_without_a_description_is_found() {
        let sample = "== crates/a/src/b.rs\n\n//! Too late.\n== crates/a/src/lib.rs\n//! Good.\n\
            == crates/a/tests/t.rs\n== xtask/src/main.rs\n//!\n//! Nothing on line 1.";
        expect(super::silent, sample, "crates/a/src/b.rs:1 xtask/src/main.rs:1");
    }

    #[test]
    fn a_wide_comment_is_found() {
        let wide = "é".repeat(super::COLUMNS);
        let sample = format!("== crates/a/src/lib.rs\n//! | {wide} |\n    // {wide}\nf(\"{wide}\");");
        expect(super::wide, &sample, "crates/a/src/lib.rs:2");
    }

    #[test]
    fn a_listed_word_is_found_in_every_file_but_the_list() {
        let sample = "== .ci/run
cd /srv/box/x
== README.md
secretary
A Secret.
== xtask/forbidden-words.txt
# a note
secret   # why
/srv/box/
";
        expect(super::forbidden_words, sample, ".ci/run:1 README.md:2");
    }
}
