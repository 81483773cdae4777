//! Litmus test L1: one version lies before the data, and one behind it.

use dm_explore::{Knobs, Model};
use dm_verbs::{AtomicUnit, Verbs};

use super::{Bare, OK, sides, word, word_of};
use crate::{Entry, Explorable, How, Kind, Knob, Setting, matrix};

pub(crate) const ENTRY: Entry = Entry {
    name: "L1",
    kind: Kind::Litmus,
    source: "Sherman §4.4 (bookend versions)",
    about: "One WRITE changes a node and the versions at its two ends. If a READ finds equal versions, it \
        has not mixed two states. With any order of lines, this is false as soon as a unit lies between two \
        units that hold a version.",
    cases: || {
        let lines = matrix(&Knobs::weak(), &[Knob::ReadOrder, Knob::WriteOrder]);
        let units = matrix(&Knobs::weak(), &[Knob::ReadOrder, Knob::WriteOrder, Knob::Unit]);
        let mut cases = sides("1 line", How::Check, units, |k| k.unit == AtomicUnit::Word);
        cases.extend(sides("2 lines", How::Check, lines.clone(), |_| false));
        cases.extend(sides("3 lines", How::Check, lines, |_| true));
        cases
    },
    published: None,
    mutants: &[],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    // The node extends from the last word of its first line to the first word of its last line, or is three words of
    // one line.
    let (from, len) = match s.shape {
        "1 line" => (word(0, 0, 0), 24),
        "2 lines" => (word(0, 0, 7), 16),
        _ => (word(0, 0, 7), 80),
    };
    let model = Model::new(s.title.clone()).place(from, len, "node");
    let writes = move |c: Bare| async move {
        let node: Vec<u8> = 1u64.to_le_bytes().repeat(len as usize / 8);
        c.verbs().write(from, &node).await.expect(OK);
    };
    let reads = move |c: Bare| async move {
        let node = c.verbs().read(from, len).await.expect(OK);
        let words: Vec<u64> = (0..len as usize)
            .step_by(8)
            .map(|at| word_of(&node, at))
            .collect();
        let (first, last) = (words[0], words[words.len() - 1]);
        c.check(first != last || words.iter().all(|w| *w == first), || {
            format!("versions {first} and {last}, words {words:?}")
        });
    };
    Box::new(model.client("writer", 0, writes).client("reader", 1, reads))
}
