//! Rule `orderings`: a memory ordering has its reason beside it, or nobody dares to change it.

use super::{
    Finding,
    source::words,
    tree::{Place, Tree},
};
use std::collections::BTreeSet;

/// Their names, bare or behind `Ordering::`.
const ORDERINGS: &[&str] = &["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];

/// How many lines above a use its comment may end: one comment serves a short group of accesses.
const REACH_LINES: usize = 8;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.rust_files().filter(|file| file.place == Place::Src) {
        let commented: BTreeSet<usize> = numbered(&file.source.comments)
            .filter(|(_, line)| !line.trim().is_empty())
            .map(|(number, _)| number)
            .collect();
        let mut in_use = false;
        for (number, line) in numbered(&file.source.shipped) {
            in_use |= words(line).take(3).any(|(_, word)| word == "use");
            let named =
                words(line).find(|(at, word)| ORDERINGS.contains(word) && is_argument(line, *at, word));
            let imports = in_use;
            in_use &= !line.contains(';');
            let Some((_, name)) = named.filter(|_| !imports) else {
                continue;
            };
            if commented
                .range(number.saturating_sub(REACH_LINES)..=number)
                .next()
                .is_none()
            {
                found.push(Finding::warning(
                    file.path,
                    number,
                    format!("`{name}` without a comment that says why"),
                ));
            }
        }
    }
    found
}

/// `Acquire` may also be a type's name: an ordering stands between brackets and commas, or behind `Ordering::`.
fn is_argument(line: &str, at: usize, word: &str) -> bool {
    let before = line[..at].trim_end();
    let after = line[at + word.len()..].trim_start();
    before.ends_with("Ordering::")
        || (before.is_empty() || before.ends_with(['(', ','])) && after.starts_with([')', ','])
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

#[cfg(test)]
mod tests {
    use super::{super::tree::sample, *};

    #[test]
    fn an_ordering_without_a_reason_is_found() {
        let far = "\n".repeat(REACH_LINES);
        let code = format!(
            "//! Doc.\nuse dm_sync::atomic::{{\n    Ordering::{{Acquire, Relaxed}},\n}};\n{far}\
             fn f() {{\n    a.load(Acquire);\n}}\n{far}\
             impl Drop for Acquire<'_, Acquire> {{}}\nfn g() {{\n    // Relaxed: a counter.\n    a.load(Ordering::Relaxed);\n    b.load(Acquire); // pairs with h\n}}\n\
             #[cfg(test)]\nmod tests {{\n{far}    fn t() {{ a.load(Acquire); }}\n}}\n"
        );
        let found = check(&sample([("crates/dm-a/src/lib.rs", &code)]));
        let lines: Vec<_> = found.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [4 + REACH_LINES + 2]);
        assert!(found[0].warning);
    }
}
