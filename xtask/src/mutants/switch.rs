//! Puts many mutants into one source text. Each mutated function has a copy of its body for each of its mutants, and
//! picks one of them at run time.

use super::list::Mutant;
use std::{collections::BTreeMap, ops::Range};

/// The environment variable that picks the mutant.
pub(crate) const VARIABLE: &str = "DMKIT_MUTANT";

/// The code that is added to the end of a mutated crate's root file.
pub(crate) const SWITCH: &str = r#"
pub(crate) mod mutant_switch {
    static ON: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    pub(crate) fn on() -> usize {
        *ON.get_or_init(|| std::env::var("DMKIT_MUTANT").ok().and_then(|on| on.parse().ok()).unwrap_or(0))
    }
}
"#;

/// A text with mutants, and the lines of each mutant.
#[derive(Debug, Default)]
pub(crate) struct Switched {
    /// The text.
    pub(crate) text: String,
    /// Ranges of lines, counted from 1, each with the id of its mutant.
    pub(crate) lines: Vec<(Range<usize>, usize)>,
}

/// Puts mutants of one file into its text. Each mutant must be in a function.
pub(crate) fn switched(text: &str, mutants: &[&Mutant]) -> Switched {
    let mut functions = BTreeMap::new();
    for mutant in mutants {
        if let Some(function) = &mutant.function {
            functions
                .entry(function.body.start)
                .or_insert_with(|| (function, Vec::new()))
                .1
                .push(*mutant);
        }
    }
    let mut out = Switched::default();
    let mut done = 0;
    for (function, mutants) in functions.into_values() {
        if let Some(word) = &function.constant {
            out.text += &text[done..word.start];
            done = word.end;
        }
        let body = &function.body;
        out.text += &text[done..body.start];
        let ids = || mutants.iter().map(|m| m.id);
        let (low, high) = (ids().min().unwrap_or(0), ids().max().unwrap_or(0));
        // The original body comes first, because it determines the type of the others.
        out.text += &format!(
            "{{ match crate::mutant_switch::on() {{ on if on < {low} || on > {high} => {}",
            &text[body.clone()]
        );
        for mutant in mutants {
            out.text += &format!("\n{} =>\n", mutant.id);
            let from = out.line();
            out.text += &mutated(text, body, mutant);
            out.lines.push((from..out.line() + 1, mutant.id));
        }
        out.text += "\n_ => unreachable!(\"no such mutant\"), } }";
        done = body.end;
    }
    out.text += &text[done..];
    out
}

/// Returns this part of the text with the mutant.
pub(crate) fn mutated(text: &str, part: &Range<usize>, mutant: &Mutant) -> String {
    let Mutant {
        span, replacement, ..
    } = mutant;
    format!(
        "{} {replacement} {}",
        &text[part.start..span.start],
        &text[span.end..part.end]
    )
}

impl Switched {
    fn line(&self) -> usize {
        1 + self.text.matches('\n').count()
    }

    /// Returns the mutant to which a line belongs.
    pub(crate) fn mutant_at(&self, line: usize) -> Option<usize> {
        let at = self.lines.iter().find(|(lines, _)| lines.contains(&line))?;
        Some(at.1)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::list::Function, *};

    const TEXT: &str = "fn f(a: u8) -> bool {\n    a == 1\n}\nconst fn g() -> u8 { 2 }\n";

    fn mutant(id: usize, what: &str, with: &str, function: &Function) -> Mutant {
        let at = TEXT.find(what).unwrap();
        Mutant {
            id,
            key: String::new(),
            file: String::new(),
            span: at..at + what.len(),
            replacement: with.to_owned(),
            function: Some(function.clone()),
        }
    }

    #[test]
    fn every_mutant_has_a_copy_and_the_rest_stays() {
        let f = Function {
            constant: None,
            name: "f".to_owned(),
            body: 20..34,
        };
        let word = TEXT.find("const").unwrap();
        let g = Function {
            constant: Some(word..word + 5),
            name: "g".to_owned(),
            body: TEXT.find("{ 2 }").unwrap()..TEXT.len() - 1,
        };
        let mutants = [
            mutant(5, "==", "!=", &f),
            mutant(6, "a == 1", "true", &f),
            mutant(9, "2", "0", &g),
        ];
        let all = switched(TEXT, &mutants.iter().collect::<Vec<_>>());
        let flat = all.text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            flat,
            "fn f(a: u8) -> bool { match crate::mutant_switch::on() { on if on < 5 || on > 6 => { a == 1 } \
             5 => { a != 1 } 6 => { true } _ => unreachable!(\"no such mutant\"), } } \
             fn g() -> u8 { match crate::mutant_switch::on() { on if on < 9 || on > 9 => { 2 } 9 => { 0 } \
             _ => unreachable!(\"no such mutant\"), } }"
        );
        for (number, line) in (1..).zip(all.text.lines()) {
            let of = [("a  !=  1", 5), ("{ 0", 9), ("true", 6)]
                .iter()
                .find(|(part, _)| line.contains(part));
            if let Some((_, id)) = of {
                assert_eq!(all.mutant_at(number), Some(*id), "{line}");
            }
        }
        assert_eq!(all.mutant_at(2), None, "what was there before is no mutant's");
    }

    #[test]
    fn the_switch_reads_the_variable_that_runs_set() {
        assert!(SWITCH.contains(&format!("\"{VARIABLE}\"")));
    }
}
