//! Traces: choices that replay, and the same run told in words.

use core::fmt;
use core::str::FromStr;

use crate::machine::Machine;
use crate::machine::chain::{Kind, Request};
use crate::step::{Answers, Step, StepKind};

/// One choice: which of the possible steps, and the answers to its questions of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Choice {
    pub(crate) index: u8,
    pub(crate) answers: Answers,
}

/// A run as a string of choices, to be replayed on the same model with the same knobs.
///
/// One character per step (`0`–`9`, `a`–`z`, `A`–`Z`, then `(62)` and so on): which of the possible steps was
/// taken; then a `+` or `-` for each question of time that was answered with yes or no.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace(pub(crate) Vec<Choice>);

/// A string that is no trace.
///
/// No example: what parsing a trace fails with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadTrace {
    /// Where it stops being one, bytes.
    pub at: usize,
}

impl fmt::Display for BadTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a trace: unexpected character at byte {}", self.at)
    }
}
impl core::error::Error for BadTrace {}

const DIGITS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for choice in &self.0 {
            match DIGITS.get(usize::from(choice.index)) {
                Some(&digit) => write!(f, "{}", char::from(digit))?,
                None => write!(f, "({})", choice.index)?,
            }
            for i in 0..choice.answers.count {
                f.write_str(if choice.answers.get(i) == Some(true) {
                    "+"
                } else {
                    "-"
                })?;
            }
        }
        Ok(())
    }
}

impl FromStr for Trace {
    type Err = BadTrace;
    fn from_str(text: &str) -> Result<Self, BadTrace> {
        let mut choices: Vec<Choice> = Vec::new();
        let mut at = 0;
        while let Some(&byte) = text.as_bytes().get(at) {
            let bad = BadTrace { at };
            let answers = Answers::default();
            match byte {
                b'+' | b'-' => {
                    let last = choices.last_mut().ok_or_else(|| bad.clone())?;
                    if last.answers.count >= Answers::MAX {
                        return Err(bad);
                    }
                    last.answers.push(byte == b'+');
                }
                b'(' => {
                    let end = text[at..].find(')').ok_or_else(|| bad.clone())? + at;
                    let index = text[at + 1..end].parse().map_err(|_| bad)?;
                    choices.push(Choice { index, answers });
                    at = end;
                }
                _ => {
                    let index = DIGITS.iter().position(|&d| d == byte).ok_or(bad)? as u8;
                    choices.push(Choice { index, answers });
                }
            }
            at += 1;
        }
        Ok(Self(choices))
    }
}

/// What a step did to memory, for drawing.
///
/// No example: part of a counterexample, for who draws it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Memory to client.
    Read,
    /// Client to memory.
    Write,
    /// Both ways.
    Atomic,
}

/// Where a step touched memory.
///
/// No example: part of a counterexample, for who draws it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Touch {
    /// Number of the 64-byte line, counted over all memory.
    pub line: u32,
    /// What was done.
    pub access: Access,
    /// It was one of several units of its request: its number from 1, and how many there are.
    pub part: Option<(u8, u8)>,
}

/// One step of a counterexample, in words.
///
/// No example: part of a counterexample, for who draws it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceStep {
    /// Which client's step it was, from 0.
    pub client: usize,
    /// What happened.
    pub what: String,
    /// Where.
    pub touch: Option<Touch>,
    /// What the client did on account of it.
    pub then: Vec<String>,
}

/// A run that is being told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    /// Names of places: first flat byte, one past the last, name.
    pub(crate) names: Vec<(u32, u32, String)>,
    pub(crate) steps: Vec<TraceStep>,
}

impl Log {
    pub(crate) fn then(&mut self, what: String) {
        if let Some(step) = self.steps.last_mut() {
            step.then.push(what);
        }
    }
}

/// Small numbers as people write them, large ones in hexadecimal.
pub(crate) fn number(x: u64) -> String {
    if x < 10_000 {
        x.to_string()
    } else {
        format!("{x:#x}")
    }
}

impl Machine {
    /// What to call flat byte `at`.
    pub(crate) fn name(&self, at: u32) -> String {
        let named = self.log.as_ref().and_then(|log| {
            log.names
                .iter()
                .filter(|n| n.0 <= at && at < n.1)
                .min_by_key(|n| n.1 - n.0)
        });
        match named {
            Some((from, _, name)) if *from == at => name.clone(),
            Some((from, _, name)) => format!("{name}+{}", at - from),
            None => self.mem.place(at).to_string(),
        }
    }

    /// What to call line number `line`: what lies in it.
    pub(crate) fn line_name(&self, line: u32) -> String {
        let (from, to) = (line * dm_verbs::LINE as u32, (line + 1) * dm_verbs::LINE as u32);
        let inside = self
            .log
            .iter()
            .flat_map(|log| &log.names)
            .filter(|n| n.0 < to && from < n.1);
        let mut names: Vec<String> = inside
            .map(|(first, end, name)| {
                let part = if *first >= from && *end <= to {
                    None
                } else {
                    Some((from.max(*first) - first) / 64)
                };
                part.map_or_else(|| name.clone(), |i| format!("{name}[{i}]"))
            })
            .collect();
        names.dedup();
        if names.is_empty() {
            self.mem.place(from).to_string()
        } else {
            names.join("/")
        }
    }

    /// Tells of `step`, which is about to be taken.
    pub(crate) fn log_step(&mut self, step: Step) {
        let (what, touch) = match step.kind {
            StepKind::Start => ("starts".to_owned(), None),
            StepKind::Local => ("enters a section on its compute node".to_owned(), None),
            StepKind::Control => {
                let request = self.clients[usize::from(step.client)].control;
                (
                    request.map_or_else(String::new, |r| format!("control plane: {r:?}")),
                    None,
                )
            }
            StepKind::Wake => ("goes on".to_owned(), None),
            StepKind::Cancel => ("is cancelled".to_owned(), None),
            StepKind::Crash => ("crashes".to_owned(), None),
            StepKind::Lose => ("(what it had posted is lost)".to_owned(), None),
            StepKind::Fail { .. } => ("loses the rest of a chain".to_owned(), None),
            StepKind::Unit { chain, request, unit } => {
                let i = self.clients[usize::from(step.client)].live[usize::from(chain)];
                self.tell_unit(i, request, unit)
            }
        };
        if let Some(log) = &mut self.log {
            log.steps.push(TraceStep {
                client: usize::from(step.client),
                what,
                touch,
                then: Vec::new(),
            });
        }
    }

    fn tell_unit(&self, chain: u16, request: u8, unit: u8) -> (String, Option<Touch>) {
        let chain = self.chain(chain);
        let r = &chain.requests[usize::from(request)];
        let (from, to) = r.unit(unit, self.unit_bytes());
        let name = self.name(from);
        let part = (r.units > 1).then_some((unit + 1, r.units));
        let suffix = part.map_or_else(String::new, |(i, n)| format!("   [part {i} of {n}]"));
        let before = self.mem.read(from, to);
        let (what, access) = match r.kind {
            Kind::Read | Kind::Word => (format!("READ {name} = {}", words(before)), Access::Read),
            Kind::Write => {
                let at = (r.data + from - r.at) as usize;
                let after = &chain.data[at..at + before.len()];
                let change = if before == after {
                    format!("= {} (unchanged)", words(after))
                } else {
                    changes(before, after)
                };
                (format!("WRITE {name} {change}"), Access::Write)
            }
            _ => (self.tell_atomic(r, &name), Access::Atomic),
        };
        let line = from / dm_verbs::LINE as u32;
        (format!("{what}{suffix}"), Some(Touch { line, access, part }))
    }

    fn tell_atomic(&self, r: &Request, name: &str) -> String {
        let verb = match r.kind {
            Kind::Cas => "CAS",
            Kind::MaskedCas => "masked CAS",
            _ => "FAA",
        };
        let now = self.mem.word(r.at);
        if r.half {
            return format!("{verb} {name} writes back: {} → {}", number(now), number(r.new));
        }
        let racy = self.knobs.atomic_vs_write == dm_verbs::AtomicVsWrite::Racy;
        let (wins, new) = match r.kind {
            Kind::Faa => (true, now.wrapping_add(r.operands.swap)),
            _ => (r.operands.matches(now), r.operands.apply(now)),
        };
        match (wins, racy) {
            (true, false) => format!("{verb} {name} {} → {}", number(now), number(new)),
            (true, true) => format!("{verb} {name} reads {}, is to write {}", number(now), number(new)),
            (false, _) => format!("{verb} {name} fails, it holds {}", number(now)),
        }
    }

    /// Tells what client `c` rings.
    pub(crate) fn log_post(&mut self, _c: u8, chain: u16) {
        let chain = self.chain(chain);
        let told: Vec<String> = chain.requests.iter().map(|r| self.tell_request(r)).collect();
        if let Some(log) = &mut self.log {
            log.then(format!("posts {}", told.join(" ▸ ")));
        }
    }

    fn tell_request(&self, r: &Request) -> String {
        let name = self.name(r.at);
        let fence = if r.fence { "fenced " } else { "" };
        let o = &r.operands;
        match r.kind {
            Kind::Read => format!("{fence}READ {name} ({} B)", r.len),
            Kind::Word => format!("{fence}READ {name}"),
            Kind::Write => format!("{fence}WRITE {name} ({} B)", r.len),
            Kind::Cas => format!("{fence}CAS {name} {}→{}", number(o.compare), number(o.swap)),
            Kind::MaskedCas => format!(
                "{fence}masked CAS {name} {}→{}",
                number(o.compare),
                number(o.swap)
            ),
            Kind::Faa => format!("{fence}FAA {name} +{}", number(o.swap)),
        }
    }
}

/// The words of a piece of memory; long pieces are cut.
fn words(bytes: &[u8]) -> String {
    const SHOWN: usize = 4;
    let all: Vec<u64> = bytes.chunks(8).map(word).collect();
    if let [one] = all[..] {
        return number(one);
    }
    let last = all.iter().rposition(|&w| w != 0).map_or(1, |i| i + 1);
    let mut told: Vec<String> = all.iter().take(SHOWN.min(last)).map(|&w| number(w)).collect();
    if last > SHOWN || last < all.len() {
        told.push(if last > SHOWN { "…" } else { "0 …" }.to_owned());
    }
    format!("[{}]", told.join(", "))
}

fn changes(before: &[u8], after: &[u8]) -> String {
    let differ: Vec<(usize, u64, u64)> = before
        .chunks(8)
        .zip(after.chunks(8))
        .enumerate()
        .map(|(i, (b, a))| (i, word(b), word(a)))
        .filter(|(_, b, a)| b != a)
        .collect();
    let told: Vec<String> = differ
        .iter()
        .take(4)
        .map(|&(i, b, a)| {
            let at = if before.len() > 8 {
                format!("word {i}: ")
            } else {
                String::new()
            };
            format!("{at}{} → {}", number(b), number(a))
        })
        .collect();
    let more = if differ.len() > 4 { ", …" } else { "" };
    format!("{}{more}", told.join(", "))
}

fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_its_string() {
        let text = "01a+-Z(99)+3";
        let trace: Trace = text.parse().unwrap();
        assert_eq!(trace.to_string(), text);
        assert_eq!(trace.0.len(), 6);
        assert_eq!("0*".parse::<Trace>(), Err(BadTrace { at: 1 }));
        assert_eq!("+".parse::<Trace>(), Err(BadTrace { at: 0 }));
    }

    #[test]
    fn values_are_told_shortly() {
        assert_eq!(words(&[1, 0, 0, 0, 0, 0, 0, 0]), "1");
        assert_eq!(words(&[0; 64]), "[0, 0 …]");
        let (mut a, b) = ([0; 64], [0; 64]);
        a[8] = 7;
        assert_eq!(changes(&b, &a), "word 1: 0 → 7");
    }
}
