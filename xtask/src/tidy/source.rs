//! Just enough of Rust's lexical grammar to tell code from comments, strings and tests.

use std::ops::Range;

/// One file in three views of equal length and equal lines: a byte that a view does not show is a blank there.
#[derive(Debug)]
pub(crate) struct Source {
    /// The text as it stands.
    pub(crate) text: String,
    /// Code only: comments and the insides of string and char literals are blank.
    pub(crate) code: String,
    /// Comments only.
    pub(crate) comments: String,
    /// Code only, with every item under `#[cfg(test)]` blank too.
    pub(crate) shipped: String,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Its name.
    pub(crate) name: String,
    /// The line of its `fn`, from 1.
    pub(crate) line: usize,
    /// How many lines from there to its closing brace.
    pub(crate) lines: usize,
}

/// A `mod name;` that lives in a file of its own.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ModFile {
    /// The inline modules around it, outermost first.
    pub(crate) inside: Vec<String>,
    /// Its name.
    pub(crate) name: String,
    /// What `#[path = "…"]` says, if it says something.
    pub(crate) path: Option<String>,
}

impl Source {
    /// Splits `text` into its views. Text that is no valid Rust gives some split, never a panic.
    pub(crate) fn lex(text: &str) -> Self {
        let mut kinds = Lexer {
            bytes: text.as_bytes(),
            kinds: vec![Kind::Code; text.len()],
        };
        kinds.run();
        let code = view(text, &kinds.kinds, Kind::Code);
        let comments = view(text, &kinds.kinds, Kind::Comment);
        let shipped = without_tests(&code);
        Self {
            text: text.to_owned(),
            code,
            comments,
            shipped,
        }
    }

    /// Every path that `use` declarations and inline paths of `code` name, with its line. Groups are expanded.
    pub(crate) fn paths(code: &str) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        let words: Vec<_> = words(code).collect();
        let mut skip_to = 0;
        for (at, word) in words {
            if at < skip_to {
                continue;
            }
            if word == "use" {
                let end = code[at..].find(';').map_or(code.len(), |end| at + end);
                let mut expanded = Vec::new();
                expand_use(code, at + word.len()..end, "", &mut expanded);
                found.extend(
                    expanded
                        .into_iter()
                        .map(|(offset, path)| (line_of(code, offset), path)),
                );
                skip_to = end;
            } else {
                let path = path_at(code, at);
                if path.contains("::") {
                    skip_to = at + path.len();
                    found.push((line_of(code, at), path));
                }
            }
        }
        found
    }

    /// Every function with a body, in order, test code too.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let code = &self.code;
        let mut all = words(code).peekable();
        let mut found = Vec::new();
        while let Some((at, word)) = all.next() {
            if word != "fn" {
                continue;
            }
            // `fn(u8)` is a type: its next byte after blanks is a bracket, not a name.
            let Some(&(name_at, name)) = all.peek() else { break };
            if !code[at + 2..name_at].trim().is_empty() {
                continue;
            }
            if let Some(body) = body_after(code, name_at) {
                let lines = code[at..body.end].matches('\n').count() + 1;
                found.push(Function {
                    name: name.to_owned(),
                    line: line_of(code, at),
                    lines,
                });
            }
        }
        found
    }

    /// Every `mod name;` of this file.
    pub(crate) fn mod_files(&self) -> Vec<ModFile> {
        let code = &self.code;
        let mut open: Vec<(String, usize)> = Vec::new();
        let mut found = Vec::new();
        let mut all = words(code).peekable();
        while let Some((at, word)) = all.next() {
            open.retain(|(_, end)| *end > at);
            if word != "mod" {
                continue;
            }
            let Some(&(name_at, name)) = all.peek() else { break };
            let after = code[name_at + name.len()..].trim_start();
            if after.starts_with('{') {
                if let Some(body) = body_after(code, name_at) {
                    open.push((name.to_owned(), body.end));
                }
            } else if after.starts_with(';') {
                let inside = open.iter().map(|(name, _)| name.clone()).collect();
                found.push(ModFile {
                    inside,
                    name: name.to_owned(),
                    path: self.path_attribute(at),
                });
            }
        }
        found
    }

    /// The `#[path = "…"]` among the attributes right before byte `at`.
    fn path_attribute(&self, at: usize) -> Option<String> {
        let start = self.code[..at].rfind([';', '}', '{']).map_or(0, |end| end + 1);
        let attribute = start + self.code[start..at].find("path")?;
        let quoted = self.text.get(attribute..at)?.split('"').nth(1)?;
        Some(quoted.to_owned())
    }

    /// What every `include_str!("…")` of this file names.
    pub(crate) fn included_texts(&self) -> Vec<&str> {
        self.code
            .match_indices("include_str!")
            .filter_map(|(at, _)| self.text.get(at..)?.split('"').nth(1))
            .collect()
    }

    /// How many lines the file has outside `#[cfg(test)]` items.
    pub(crate) fn lines_without_tests(&self) -> usize {
        let in_tests: usize = test_items(&self.code)
            .iter()
            .map(|item| self.code[item.clone()].matches('\n').count())
            .sum();
        self.text.lines().count() - in_tests
    }
}

/// The line of byte `at`, from 1.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
        + 1
}

/// Identifiers and keywords with their offsets.
pub(crate) fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let bytes = code.as_bytes();
        while at < bytes.len() && !is_word(bytes[at]) {
            at += 1;
        }
        let start = at;
        while at < bytes.len() && is_word(bytes[at]) {
            at += 1;
        }
        (start < at).then(|| (start, &code[start..at]))
    })
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The longest `a::b::c` that starts at byte `at`, without blanks.
fn path_at(code: &str, at: usize) -> String {
    let bytes = code.as_bytes();
    let mut end = at;
    while end < bytes.len() {
        if is_word(bytes[end]) {
            end += 1;
        } else if bytes[end..].starts_with(b"::") && bytes.get(end + 2).is_some_and(|byte| is_word(*byte)) {
            end += 2;
        } else {
            break;
        }
    }
    code[at..end].to_owned()
}

/// Expands one use tree: `a::{b, c::{d, e}}` gives `a::b`, `a::c::d`, `a::c::e`; renames are dropped.
fn expand_use(code: &str, range: Range<usize>, prefix: &str, found: &mut Vec<(usize, String)>) {
    let text = &code[range.clone()];
    let Some(open) = text.find('{') else {
        let path = text
            .split(" as ")
            .next()
            .unwrap_or("")
            .split_whitespace()
            .collect::<String>();
        if !path.is_empty() {
            let lead = text.len() - text.trim_start().len();
            found.push((range.start + lead, format!("{prefix}{path}")));
        }
        return;
    };
    let head: String = text[..open].split_whitespace().collect();
    let prefix = format!("{prefix}{head}");
    let close = text.rfind('}').unwrap_or(text.len());
    let mut depth = 0;
    let mut start = open + 1;
    for (at, byte) in text.bytes().enumerate().take(close).skip(open + 1) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                expand_use(code, range.start + start..range.start + at, &prefix, found);
                start = at + 1;
            }
            _ => {}
        }
    }
    if start < close {
        expand_use(code, range.start + start..range.start + close, &prefix, found);
    }
}

/// The `{…}` that follows byte `at` before a `;` outside brackets ends the item.
pub(crate) fn body_after(code: &str, at: usize) -> Option<Range<usize>> {
    let bytes = code.as_bytes();
    let mut depth = 0_i32;
    let open = (at..bytes.len()).find_map(|i| match bytes[i] {
        b'(' | b'[' => {
            depth += 1;
            None
        }
        b')' | b']' => {
            depth -= 1;
            None
        }
        b';' if depth == 0 => Some(None),
        b'{' if depth == 0 => Some(Some(i)),
        _ => None,
    })??;
    Some(open..closing(code, open)?)
}

/// One past the brace that closes the one at `open`.
fn closing(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// The items under `#[cfg(test)]` or `#[cfg(all(test, …))]`, attribute included.
fn test_items(code: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for (at, _) in code.match_indices("#[cfg(") {
        if found.last().is_some_and(|last| last.contains(&at)) {
            continue;
        }
        let Some(end) = code[at..].find(']').map(|end| at + end + 1) else {
            continue;
        };
        let condition = &code[at + "#[cfg(".len()..end];
        let names_test = words(condition).any(|(_, word)| word == "test");
        if !names_test || words(condition).any(|(_, word)| word == "not" || word == "any") {
            continue;
        }
        let item_end = match body_after(code, end) {
            Some(body) => body.end,
            None => code[end..]
                .find(';')
                .map_or(code.len(), |semicolon| end + semicolon + 1),
        };
        found.push(at..item_end);
    }
    found
}

fn without_tests(code: &str) -> String {
    let mut bytes = code.as_bytes().to_vec();
    for item in test_items(code) {
        bytes[item]
            .iter_mut()
            .filter(|byte| **byte != b'\n')
            .for_each(|byte| *byte = b' ');
    }
    String::from_utf8(bytes).unwrap_or_default()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// The bytes of one kind; the others blank, lines kept.
fn view(text: &str, kinds: &[Kind], wanted: Kind) -> String {
    let bytes: Vec<u8> = text
        .bytes()
        .zip(kinds)
        .map(|(byte, kind)| {
            if *kind == wanted || byte == b'\n' {
                byte
            } else {
                b' '
            }
        })
        .collect();
    // Comments and literals start and end at ASCII bytes, so that no character is cut in two.
    String::from_utf8(bytes).unwrap_or_default()
}

struct Lexer<'a> {
    bytes: &'a [u8],
    kinds: Vec<Kind>,
}

impl Lexer<'_> {
    fn run(&mut self) {
        let mut at = 0;
        while at < self.bytes.len() {
            let rest = &self.bytes[at..];
            at = match rest[0] {
                b'/' if rest.starts_with(b"//") => self.fill(at, self.line_end(at), Kind::Comment),
                b'/' if rest.starts_with(b"/*") => self.fill(at, self.block_end(at), Kind::Comment),
                b'"' => self.literal(at, self.string_end(at + 1)),
                b'r' if !self.in_word(at) => match self.raw_string(at + 1) {
                    Some(span) => self.literal(span.start, span.end),
                    None => at + 1,
                },
                // `br"` and `cr"`: the `r` is met next, as if it began a word.
                b'b' | b'c'
                    if !self.in_word(at)
                        && self.raw_string(at + 2).is_some()
                        && rest.get(1) == Some(&b'r') =>
                {
                    let span = self.raw_string(at + 2).unwrap_or(at..at + 1);
                    self.literal(span.start, span.end)
                }
                b'\'' => match self.char_end(at) {
                    Some(end) => self.literal(at, end),
                    None => at + 1,
                },
                _ => at + 1,
            };
        }
    }

    fn in_word(&self, at: usize) -> bool {
        at > 0 && is_word(self.bytes[at - 1])
    }

    fn fill(&mut self, from: usize, to: usize, kind: Kind) -> usize {
        self.kinds[from..to].fill(kind);
        to
    }

    /// Blanks a literal but for its first and last byte, which stay code: they tell that something stood there.
    fn literal(&mut self, from: usize, to: usize) -> usize {
        self.kinds[(from + 1).min(to)..to.saturating_sub(1).max(from + 1).min(to)].fill(Kind::Literal);
        to.max(from + 1)
    }

    fn line_end(&self, at: usize) -> usize {
        self.bytes[at..]
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(self.bytes.len(), |end| at + end)
    }

    fn block_end(&self, start: usize) -> usize {
        let (mut at, mut depth) = (start, 0_usize);
        while at < self.bytes.len() {
            if self.bytes[at..].starts_with(b"/*") {
                depth += 1;
                at += 2;
            } else if self.bytes[at..].starts_with(b"*/") {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            } else {
                at += 1;
            }
        }
        self.bytes.len()
    }

    fn string_end(&self, mut at: usize) -> usize {
        while at < self.bytes.len() {
            match self.bytes[at] {
                b'\\' => at += 2,
                b'"' => return at + 1,
                _ => at += 1,
            }
        }
        self.bytes.len()
    }

    /// The raw string whose hashes or quote stand at `at`, just past its `r`: from its quote to past its last hash.
    fn raw_string(&self, at: usize) -> Option<Range<usize>> {
        let hashes = self
            .bytes
            .get(at..)?
            .iter()
            .take_while(|byte| **byte == b'#')
            .count();
        let open = at + hashes;
        if self.bytes.get(open) != Some(&b'"') {
            return None;
        }
        let closing = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
        let length = self.bytes[open + 1..]
            .windows(closing.len())
            .position(|window| window == closing)?;
        Some(open..open + 1 + length + closing.len())
    }

    /// One past a char literal at `at`; `None` for a lifetime.
    fn char_end(&self, at: usize) -> Option<usize> {
        match self.bytes.get(at + 1)? {
            b'\\' => {
                let close = self.bytes[(at + 3).min(self.bytes.len())..]
                    .iter()
                    .position(|byte| *byte == b'\'')?;
                Some(at + 3 + close + 1)
            }
            first => {
                let width = match first {
                    0..=0x7F => 1,
                    0x80..=0xDF => 2,
                    0xE0..=0xEF => 3,
                    _ => 4,
                };
                (self.bytes.get(at + 1 + width) == Some(&b'\'')).then_some(at + width + 2)
            }
        }
    }
}

#[cfg(test)]
mod tests;
