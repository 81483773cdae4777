//! The mutants of a crate, as cargo-mutants lists them.

use super::stages::{SUBJECTS, Subject};
use crate::Result;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use serde::Deserialize;
use std::{collections::BTreeMap, fs, ops::Range, path::Path, process::Command};

/// One change of the code in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mutant {
    /// A number, unique among all crates, that picks the mutant in a build with many mutants.
    pub(crate) id: usize,
    /// The mutant's name without line numbers: the file within the crate, the change, and the function. The second
    /// mutant of the same name ends in ` #2`.
    pub(crate) key: String,
    /// The file, relative to the root.
    pub(crate) file: String,
    /// The bytes to replace.
    pub(crate) span: Range<usize>,
    /// The text that replaces them.
    pub(crate) replacement: String,
    /// The outermost function that contains the mutant; `None` if there is none, or if its body cannot be copied.
    pub(crate) function: Option<Function>,
}

/// A function whose body can be copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// The `const` of a `const fn`. Such a function cannot read which mutant is active.
    pub(crate) constant: Option<Range<usize>>,
    /// The function's name.
    pub(crate) name: String,
    /// The function's body, including both braces.
    pub(crate) body: Range<usize>,
}

/// A mutant as `cargo mutants --list --json` prints it.
#[derive(Debug, Deserialize)]
struct Listed {
    file: String,
    name: String,
    replacement: String,
    span: Span,
    function: Option<Around>,
}

#[derive(Debug, Deserialize)]
struct Around {
    function_name: String,
    return_type: String,
    span: Span,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Span {
    start: Place,
    end: Place,
}

/// A line and a column in characters, both counted from 1.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Place {
    line: usize,
    column: usize,
}

/// Lists all mutants of a crate in the order of their places.
pub(crate) fn list(root: &Path, subject: &Subject) -> Result<Vec<Mutant>> {
    let output = Command::new("cargo")
        .args(["mutants", "--list", "--json", "--package", subject.name])
        .current_dir(root)
        .output()?;
    if !output.status.success() {
        return Err(format!(
            "cargo mutants --list failed; is it installed? `cargo install cargo-mutants --locked`: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )
        .into());
    }
    let listed: Vec<Listed> = serde_json::from_slice(&output.stdout)?;
    let mut texts = BTreeMap::new();
    for one in &listed {
        if !texts.contains_key(&one.file) {
            texts.insert(one.file.clone(), fs::read_to_string(root.join(&one.file))?);
        }
    }
    let first = 1 + 10_000 * SUBJECTS.iter().position(|s| s.name == subject.name).unwrap_or(0);
    Ok(mutants(subject.name, first, &listed, &texts))
}

fn mutants(package: &str, first: usize, listed: &[Listed], texts: &BTreeMap<String, String>) -> Vec<Mutant> {
    let codes: BTreeMap<&String, TokenStream> = texts
        .iter()
        .map(|(f, text)| (f, text.parse().unwrap_or_default()))
        .collect();
    let mut seen = BTreeMap::new();
    let mut found: Vec<Mutant> = Vec::new();
    for (at, one) in listed.iter().enumerate() {
        let (text, code) = (&texts[&one.file], &codes[&one.file]);
        let short = one
            .file
            .strip_prefix(&format!("crates/{package}/"))
            .unwrap_or(&one.file);
        // `file:line:column: what`.
        let what = one
            .name
            .split_once(": ")
            .map_or(one.name.as_str(), |(_, what)| what);
        let mut key = format!("{short}: {what}");
        let times = seen
            .entry(key.clone())
            .and_modify(|times| *times += 1)
            .or_insert(1);
        if *times > 1 {
            key += &format!(" #{times}");
        }
        found.push(Mutant {
            id: first + at,
            key,
            file: one.file.clone(),
            span: offset(text, one.span.start)..offset(text, one.span.end),
            replacement: one.replacement.clone(),
            function: one
                .function
                .as_ref()
                .and_then(|around| function(text, code, around)),
        });
    }
    outermost(&mut found);
    found
}

fn function(text: &str, code: &TokenStream, around: &Around) -> Option<Function> {
    // The copies of such a body would have different types.
    if around.return_type.contains("impl ") {
        return None;
    }
    let (constant, body) = body(code.clone(), offset(text, around.span.start))?;
    let name = around
        .function_name
        .rsplit("::")
        .next()
        .unwrap_or_default()
        .to_owned();
    Some(Function { constant, name, body })
}

/// Returns the `const` and the body of the first function that begins at byte `from` or later.
fn body(code: TokenStream, from: usize) -> Option<(Option<Range<usize>>, Range<usize>)> {
    let mut tokens = code.into_iter().peekable();
    let mut constant = None;
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => {
                if let Some(found) = body(group.stream(), from) {
                    return Some(found);
                }
            }
            // `fn(u8)` is a type and not a function.
            TokenTree::Ident(word) if word == "fn" && matches!(tokens.peek(), Some(TokenTree::Ident(_))) => {
                let is_body = |token| match token {
                    TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group),
                    _ => None,
                };
                if word.span().byte_range().start >= from {
                    let body = tokens.find_map(is_body)?;
                    return Some((constant, body.span().byte_range()));
                }
            }
            TokenTree::Ident(word) if word == "const" => constant = Some(word.span().byte_range()),
            _ => constant = None,
        }
    }
    None
}

/// Assigns the mutants of inner functions to the outer function, so that no copied body contains another.
fn outermost(mutants: &mut [Mutant]) {
    let all: Vec<(String, Function)> = mutants
        .iter()
        .filter_map(|m| Some((m.file.clone(), m.function.clone()?)))
        .collect();
    for mutant in mutants {
        let Some(inner) = &mutant.function else { continue };
        let around = |f: &Function| f.body.start < inner.body.start && inner.body.end < f.body.end;
        let outer = all.iter().filter(|(file, f)| *file == mutant.file && around(f));
        if let Some((_, outer)) = outer.min_by_key(|(_, f)| f.body.start) {
            mutant.function = Some(outer.clone());
        }
    }
}

/// Returns the byte offset of a place.
fn offset(text: &str, place: Place) -> usize {
    let line: usize = text
        .split_inclusive('\n')
        .take(place.line - 1)
        .map(str::len)
        .sum();
    let column: usize = text[line..]
        .chars()
        .take(place.column - 1)
        .map(char::len_utf8)
        .sum();
    line + column
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "// é\nimpl A {\n    pub const fn f(a: [u8; 2]) -> bool {\n        fn g(x: u8) -> bool { x == 1 }\n        g(a[0]) == g(a[1])\n    }\n}\n";

    fn listed(line: usize, column: usize, name: &str, span: [(usize, usize); 2]) -> Listed {
        let place = |(line, column)| Place { line, column };
        Listed {
            file: "crates/dm-a/src/a.rs".to_owned(),
            name: format!("crates/dm-a/src/a.rs:{line}:{column}: replace == with != in {name}"),
            replacement: "!=".to_owned(),
            span: Span {
                start: place((line, column)),
                end: place((line, column + 2)),
            },
            function: Some(Around {
                function_name: name.to_owned(),
                return_type: "-> bool".to_owned(),
                span: Span {
                    start: place(span[0]),
                    end: place(span[1]),
                },
            }),
        }
    }

    #[test]
    fn keys_hold_no_lines_and_are_unique() {
        let texts = BTreeMap::from([("crates/dm-a/src/a.rs".to_owned(), TEXT.to_owned())]);
        let outer = [(3, 5), (6, 6)];
        let all = [
            listed(5, 17, "A::f", outer),
            listed(5, 17, "A::f", outer),
            listed(4, 33, "A::f::g", [(4, 9), (4, 39)]),
        ];
        let found = mutants("dm-a", 7, &all, &texts);
        let keys: Vec<&str> = found.iter().map(|m| m.key.as_str()).collect();
        assert_eq!(
            keys,
            [
                "src/a.rs: replace == with != in A::f",
                "src/a.rs: replace == with != in A::f #2",
                "src/a.rs: replace == with != in A::f::g"
            ]
        );
        assert_eq!(found.iter().map(|m| m.id).collect::<Vec<_>>(), [7, 8, 9]);
        for mutant in &found {
            assert_eq!(&TEXT[mutant.span.clone()], "==");
            let function = mutant.function.as_ref().unwrap();
            assert_eq!(&TEXT[function.constant.clone().unwrap()], "const");
            assert!(
                TEXT[function.body.clone()].starts_with("{\n        fn g"),
                "the outer one's"
            );
        }
    }

    #[test]
    fn a_function_of_an_unnamed_type_has_no_copies() {
        let mut one = listed(5, 17, "A::f", [(3, 5), (6, 6)]);
        one.function.as_mut().unwrap().return_type = "-> impl Future<Output = ()>".to_owned();
        let texts = BTreeMap::from([("crates/dm-a/src/a.rs".to_owned(), TEXT.to_owned())]);
        assert_eq!(mutants("dm-a", 1, &[one], &texts)[0].function, None);
    }
}
