//! Traces. A trace is the list of the choices of a run: it can be replayed, or printed step by step.

use core::fmt;
use core::str::FromStr;

use dm_verbs::trace::{self, Event, What, number};

use crate::machine::Machine;
use crate::machine::chain::{Chain, Kind, Request};
use crate::step::{Answers, Step, StepKind};

/// One choice: the index of the step among the possible ones, and the results of the step's calls of `Env::elapsed`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Choice {
    pub(crate) index: u8,
    pub(crate) answers: Answers,
}

/// The choices of a run, as a string that can be replayed on the same model with the same knobs.
///
/// Each step is the index of the step among the possible ones: one character (`0`–`9`, `a`–`z`, `A`–`Z`), or from 62 on
/// a number in parentheses, such as `(62)`. With [`Elapsed::Free`](crate::Elapsed::Free), it is followed by a `+`
/// (true) or `-` (false) for each call of `Env::elapsed` in the step. A `~` stands before the cycle of an endless run:
/// the steps after it lead back to the state before them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    pub(crate) choices: Vec<Choice>,
    /// The number of choices before the cycle, if the run ends in one.
    pub(crate) cycle: Option<usize>,
}

impl Trace {
    pub(crate) fn of(choices: Vec<Choice>) -> Self {
        Self { choices, cycle: None }
    }
}

/// The error for a string that is not a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadTrace {
    /// The byte offset of the first character that does not fit.
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
        for (i, choice) in self.choices.iter().enumerate() {
            if self.cycle == Some(i) {
                f.write_str("~")?;
            }
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
        let mut cycle = None;
        let mut at = 0;
        while let Some(&byte) = text.as_bytes().get(at) {
            let bad = BadTrace { at };
            let answers = Answers::default();
            match byte {
                b'+' | b'-' if cycle != Some(choices.len()) => {
                    let last = choices.last_mut().ok_or_else(|| bad.clone())?;
                    if last.answers.count >= Answers::MAX {
                        return Err(bad);
                    }
                    last.answers.push(byte == b'+');
                }
                b'~' => {
                    // A cycle has at least one step, and a trace has at most one cycle.
                    if cycle.is_some() || at + 1 == text.len() {
                        return Err(bad);
                    }
                    cycle = Some(choices.len());
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
        Ok(Self { choices, cycle })
    }
}

/// The kind of a step's access to memory. Charts draw it as an arrow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A read: data goes from memory to the client.
    Read,
    /// A write: data goes from the client to memory.
    Write,
    /// An atomic: data goes both ways.
    Atomic,
}

/// The memory that a step touched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Touch {
    /// Number of the 64-byte line, counted over the memory of all nodes.
    pub line: u32,
    /// The access.
    pub access: Access,
    /// If the request has several units: the number of this unit, from 1, and the number of units.
    pub part: Option<(u8, u8)>,
}

/// One step of a counterexample, in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceStep {
    /// The step's client, counted from 0.
    pub client: usize,
    /// The step in words.
    pub what: String,
    /// The step as an event, for programs.
    pub kind: What,
    /// The memory that the step touched.
    pub touch: Option<Touch>,
    /// The consequences of the step: completions, and the actions of clients that follow from them.
    pub then: Vec<Event>,
}

/// The description of a run in words, as it grows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    /// Names of places: first flat byte, one past the last, name.
    pub(crate) names: Vec<(u32, u32, String)>,
    pub(crate) steps: Vec<TraceStep>,
    /// The posted chains with the machine's slots for them, newest last.
    pub(crate) chains: Vec<Kept>,
}

/// A posted chain: its client, its slot in the machine, and its number among the chains of that client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    client: u8,
    at: u16,
    number: u32,
}

impl Log {
    /// Records an action of client `c` (from 0) that follows from the last step.
    pub(crate) fn then(&mut self, c: u8, what: What, text: String) {
        let at = self.steps.len() as u64;
        if let Some(step) = self.steps.last_mut() {
            step.then.push(Event {
                at,
                client: Machine::id(c).0,
                what,
                text,
            });
        }
    }

    /// Records an action that has no event, only text.
    pub(crate) fn remark(&mut self, c: u8, text: String) {
        self.then(c, What::Other, text);
    }

    /// Numbers a chain that client `c` posts and that the machine stores in slot `at`.
    fn posted(&mut self, c: u8, at: u16) -> u32 {
        let number = self.chains.iter().filter(|k| k.client == c).map(|k| k.number);
        let number = number.max().unwrap_or(0) + 1;
        self.chains.push(Kept {
            client: c,
            at,
            number,
        });
        number
    }

    /// Records that the machine has moved the rest of a chain from slot `from` to slot `to`.
    pub(crate) fn moved(&mut self, c: u8, from: u16, to: u16) {
        let number = self.chain_number(c, from);
        self.chains.push(Kept {
            client: c,
            at: to,
            number,
        });
    }

    /// Returns the number of the chain of client `c` in slot `at` of the machine.
    fn chain_number(&self, c: u8, at: u16) -> u32 {
        let newest = self.chains.iter().rev().find(|k| (k.client, k.at) == (c, at));
        newest.map_or(0, |k| k.number)
    }
}

impl Machine {
    /// Returns the name of flat byte `at`, or its address.
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

    /// Returns the name of line number `line`: the names of the places in it, or its address.
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

    /// Describes `step`, which is about to be taken.
    pub(crate) fn log_step(&mut self, step: Step) {
        let c = step.client;
        let (what, kind, touch) = match step.kind {
            StepKind::Unit { chain, request, unit } => {
                let i = self.clients[usize::from(c)].live[usize::from(chain)];
                let (what, touch) = self.tell_unit(c, i, request, unit);
                (what, self.effect(c, i, request, unit), touch)
            }
            StepKind::Late {
                chain, request, unit, ..
            } => {
                let i = self.clients[usize::from(c)].late[usize::from(chain)];
                let (what, touch) = self.tell_unit(c, i, request, unit);
                (format!("late: {what}"), self.effect(c, i, request, unit), touch)
            }
            other => (self.tell_other(c, other), What::Other, None),
        };
        if let Some(log) = &mut self.log {
            log.steps.push(TraceStep {
                client: usize::from(c),
                what,
                kind,
                touch,
                then: Vec::new(),
            });
        }
    }

    fn tell_other(&self, c: u8, step: StepKind) -> String {
        let told = match step {
            StepKind::Start => "starts",
            StepKind::Local => "enters a section on its compute node",
            StepKind::Control => {
                let request = self.clients[usize::from(c)].control;
                return request.map_or_else(String::new, |r| format!("control plane: {r:?}"));
            }
            StepKind::Wake => "goes on",
            StepKind::Cancel => "is cancelled",
            StepKind::Crash => "crashes",
            StepKind::Fail { node, told } => {
                let known = match told {
                    0 => String::new(),
                    n => format!(", {n} request(s) known to be carried out"),
                };
                return format!(
                    "its connection to node {node} fails: an error for all that is in flight there{known}"
                );
            }
            StepKind::Refuse { node } => return format!("is still cut off from node {node}: refused"),
            StepKind::Unit { .. } | StepKind::Late { .. } => "",
        };
        told.to_owned()
    }

    /// Returns the effect of a unit that is about to be served, as an event.
    fn effect(&self, c: u8, at: u16, request: u8, unit: u8) -> What {
        let chain = self.chain(c, at);
        let r = &chain.requests[usize::from(request)];
        let (from, to) = r.unit(unit, self.unit_bytes());
        let held = self.mem.read(from, to);
        let written = match r.kind {
            Kind::Read | Kind::Word => Vec::new(),
            Kind::Write => {
                let data = (r.data + from - r.at) as usize;
                trace::words(&chain.data[data..data + held.len()])
            }
            _ => self.swapped(r).into_iter().collect(),
        };
        What::Effect {
            chain: self.log.as_ref().map_or(0, |log| log.chain_number(c, at)),
            request: u16::from(request),
            part: (unit + 1, r.units),
            held: trace::words(held),
            written,
        }
    }

    /// Returns the word that an atomic is about to write, if any.
    fn swapped(&self, r: &Request) -> Option<u64> {
        let now = self.mem.word(r.at);
        let racy = self.knobs.atomic_vs_write == dm_verbs::AtomicVsWrite::Racy;
        match r.kind {
            _ if r.half => Some(r.new),
            _ if racy => None,
            Kind::Faa => Some(now.wrapping_add(r.operands.swap)),
            _ => r.operands.matches(now).then(|| r.operands.apply(now)),
        }
    }

    fn tell_unit(&self, c: u8, chain: u16, request: u8, unit: u8) -> (String, Option<Touch>) {
        let chain = self.chain(c, chain);
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
            (true, true) => format!(
                "{verb} {name} reads {}, and will write {}",
                number(now),
                number(new)
            ),
            (false, _) => format!("{verb} {name} fails: the word is {}", number(now)),
        }
    }

    /// Logs the posting of chain `at` by client `c`.
    pub(crate) fn log_post(&mut self, c: u8, at: u16) {
        let requests = self.requests(self.chain(c, at));
        let text = trace::posting(&requests);
        if let Some(log) = &mut self.log {
            let chain = log.posted(c, at);
            log.then(c, What::Posts { chain, requests }, text);
        }
    }

    /// Logs the completion of chain `at` of client `c`.
    pub(crate) fn log_completion(&mut self, c: u8, at: u16) {
        if self.log.is_none() {
            return;
        }
        let chain = self.chain(c, at);
        let values = self.returned(c, at);
        let error = chain.error.map(|e| e.to_string());
        let told: Vec<String> = self
            .requests(chain)
            .iter()
            .zip(&values)
            .map(|(request, value)| match value[..] {
                [] => request.to_string(),
                [word] => format!("{request} ⇒ {}", number(word)),
                _ => format!("{request} ⇒ {}", in_brackets(value)),
            })
            .collect();
        let text = match &error {
            None => format!("completes: {}", told.join(" ▸ ")),
            Some(error) => format!("receives an error: {error}"),
        };
        if let Some(log) = &mut self.log {
            let chain = log.chain_number(c, at);
            log.then(c, What::Completes { chain, values, error }, text);
        }
    }

    /// Returns the words that each request of chain `at` of client `c` returned.
    fn returned(&self, c: u8, at: u16) -> Vec<Vec<u64>> {
        let of = |(i, r): (usize, &Request)| match r.kind {
            Kind::Write => Vec::new(),
            Kind::Read => {
                let buffer = self.buffer(c, at, i);
                buffer.map_or_else(Vec::new, |bytes| trace::words(bytes))
            }
            _ => vec![r.old],
        };
        let requests = self.chain(c, at).requests.iter().enumerate();
        requests.map(of).collect()
    }

    fn requests(&self, chain: &Chain) -> Vec<trace::Request> {
        let describe = |r: &Request| {
            let o = &r.operands;
            let (verb, operands) = match r.kind {
                Kind::Read | Kind::Word => ("READ", Vec::new()),
                Kind::Write => ("WRITE", Vec::new()),
                Kind::Cas => ("CAS", vec![o.compare, o.swap]),
                Kind::MaskedCas => ("masked CAS", vec![o.compare, o.swap, o.compare_mask, o.swap_mask]),
                Kind::Faa => ("FAA", vec![o.swap]),
            };
            trace::Request {
                verb: verb.to_owned(),
                place: self.mem.place(r.at).to_string(),
                name: Some(self.name(r.at)),
                bytes: r.len,
                fenced: r.fence,
                operands,
            }
        };
        chain.requests.iter().map(describe).collect()
    }
}

/// Formats the words of a piece of memory. Long pieces are cut.
fn words(bytes: &[u8]) -> String {
    match trace::words(bytes)[..] {
        [one] => number(one),
        ref all => in_brackets(all),
    }
}

fn in_brackets(all: &[u64]) -> String {
    const SHOWN: usize = 4;
    let last = all.iter().rposition(|&w| w != 0).map_or(1, |i| i + 1);
    let mut told: Vec<String> = all.iter().take(SHOWN.min(last)).map(|&w| number(w)).collect();
    if last > SHOWN || last < all.len() {
        told.push(if last > SHOWN { "…" } else { "0 …" }.to_owned());
    }
    format!("[{}]", told.join(", "))
}

fn changes(before: &[u8], after: &[u8]) -> String {
    let (old, new) = (trace::words(before), trace::words(after));
    let differ: Vec<(usize, u64, u64)> = old
        .into_iter()
        .zip(new)
        .enumerate()
        .map(|(i, (b, a))| (i, b, a))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_its_string() {
        let text = "01a+-Z(99)+3";
        let trace: Trace = text.parse().unwrap();
        assert_eq!(trace.to_string(), text);
        assert_eq!(trace.choices.len(), 6);
        let endless: Trace = "01-~2+3".parse().unwrap();
        assert_eq!(
            (endless.cycle, endless.to_string()),
            (Some(2), "01-~2+3".to_owned())
        );
        for (text, at) in [("0~", 1), ("0~1~2", 3), ("0~+1", 2)] {
            assert_eq!(text.parse::<Trace>(), Err(BadTrace { at }), "{text}");
        }
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
