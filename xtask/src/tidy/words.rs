//! Rules `unfinished` and `words`: what a text must not say.

use super::{Finding, tree::Tree};

/// The list of forbidden words, one a line, matched without regard to case; `#` starts a note.
const LIST: &str = "xtask/forbidden-words.txt";

/// Placeholders in code. Spelled in two halves, so that this file passes its own rule.
const PLACEHOLDERS: &[&str] = &[concat!("todo", "!"), concat!("unimplemented", "!")];

/// Notes to self, in comments and in prose.
const NOTES: &[&str] = &[
    concat!("FIX", "ME"),
    concat!("TO", "DO"),
    concat!("XX", "X"),
    concat!("HA", "CK"),
];

pub(super) fn unfinished(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.rust_files() {
        for (number, line) in numbered(&file.source.code) {
            for placeholder in PLACEHOLDERS
                .iter()
                .filter(|placeholder| has_word(line, placeholder))
            {
                found.push(Finding::error(
                    file.path,
                    number,
                    format!("`{placeholder}`: finish it or leave it out"),
                ));
            }
            if line.contains("#[ignore]") {
                found.push(Finding::error(
                    file.path,
                    number,
                    "`#[ignore]` without a reason is a silent skip",
                ));
            }
        }
    }
    for (path, text) in tree.files().filter(|(path, _)| is_prose_or_code(path)) {
        for (number, line) in numbered(text) {
            for note in NOTES.iter().filter(|note| has_word(line, note)) {
                found.push(Finding::error(
                    path,
                    number,
                    format!("`{note}`: do it now, or leave it unsaid"),
                ));
            }
        }
    }
    found
}

pub(super) fn forbidden(tree: &Tree) -> Vec<Finding> {
    let Some(list) = tree.file(LIST) else {
        return vec![Finding::error(LIST, 0, "the list of forbidden words is missing")];
    };
    let words: Vec<_> = list
        .lines()
        .map(|line| {
            line.split_once('#')
                .map_or(line, |(word, _)| word)
                .trim()
                .to_lowercase()
        })
        .filter(|word| !word.is_empty())
        .collect();
    let mut found = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| *path != LIST) {
        for (number, line) in numbered(text) {
            let line = line.to_lowercase();
            for word in words.iter().filter(|word| has_word(&line, word)) {
                found.push(Finding::error(
                    path,
                    number,
                    format!("`{word}` is on the list {LIST}"),
                ));
            }
        }
    }
    found
}

fn is_prose_or_code(path: &str) -> bool {
    [".rs", ".md", ".toml", ".sh", ".yml"]
        .iter()
        .any(|end| path.ends_with(end))
        || path.starts_with(".ci/")
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

/// Whether `needle` stands in `line` with no letter or digit against an end that is itself a letter or digit.
fn has_word(line: &str, needle: &str) -> bool {
    let joins = |a: Option<char>, b: Option<char>| {
        let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        is_word(a) && is_word(b)
    };
    line.match_indices(needle).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + needle.len()..].chars().next();
        !joins(before, needle.chars().next()) && !joins(needle.chars().next_back(), after)
    })
}

#[cfg(test)]
mod tests {
    use super::{
        super::tree::{lines, sample},
        *,
    };

    #[test]
    fn placeholders_notes_and_silent_skips_are_found() {
        let code = format!(
            "fn a() {{ {}() }}\n// {}: later\n#[ignore]\nfn b() {{}}",
            PLACEHOLDERS[0], NOTES[0]
        );
        let prose = format!("Fine.\n{}: write this.", NOTES[1]);
        let tree = sample([("crates/dm-a/src/lib.rs", &code), ("docs/a.md", &prose)]);
        let found = lines(unfinished(&tree));
        let lib = || "crates/dm-a/src/lib.rs".to_owned();
        assert_eq!(
            found,
            [(lib(), 1), (lib(), 3), (lib(), 2), ("docs/a.md".to_owned(), 2)]
        );
    }

    #[test]
    fn words_that_only_contain_a_note_pass() {
        let text = format!(
            "{}ABC and mas{} and `#[ignore = \"needs a card\"]`",
            NOTES[1],
            NOTES[3].to_lowercase()
        );
        assert_eq!(
            unfinished(&sample([("docs/a.md", &text), ("crates/a/src/lib.rs", &text)])),
            []
        );
    }

    #[test]
    fn listed_words_are_found_in_every_file_but_the_list() {
        let tree = sample([
            (LIST, "# a note\nsecret   # why\n/srv/box/\n"),
            ("README.md", "A Secret.\nsecretary\n"),
            (".ci/run", "cd /srv/box/x"),
        ]);
        let found = lines(forbidden(&tree));
        assert_eq!(found, [(".ci/run".to_owned(), 1), ("README.md".to_owned(), 1)]);
    }

    /// Pages that only their authors ever had.
    #[test]
    fn this_trees_list_knows_what_is_not_in_the_tree() {
        let list = include_str!("../../forbidden-words.txt");
        for text in [concat!("see DES", "IGN §3"), concat!("(`DES", "IGN` §1)")] {
            assert_eq!(
                forbidden(&sample([(LIST, list), ("docs/a.md", text)])).len(),
                1,
                "{text}"
            );
        }
        let fine = "The design, §3 of the paper.";
        assert_eq!(forbidden(&sample([(LIST, list), ("docs/a.md", fine)])), []);
    }

    #[test]
    fn a_missing_list_is_an_error() {
        assert_eq!(forbidden(&sample([])).len(), 1);
    }
}
