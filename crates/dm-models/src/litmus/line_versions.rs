//! Litmus test L2: every line has a version.

use dm_explore::{Knobs, Model};
use dm_verbs::{AtomicUnit, Verbs};

use super::{Bare, OK, bytes_of, sides, word, word_of};
use crate::{Entry, Explorable, How, Kind, Knob, Setting, Twin, matrix};

pub(crate) const ENTRY: Entry = Entry {
    name: "L2",
    kind: Kind::Litmus,
    source: "FaRM §4.2 (a version in every line)",
    about: "One WRITE changes two lines, each with its version. If a READ finds equal versions, it has not \
        mixed two states. This is false if a line can be torn.",
    cases: || {
        let all = matrix(&Knobs::weak(), &[Knob::ReadOrder, Knob::WriteOrder, Knob::Unit]);
        sides("", How::Check, all, |k| k.unit == AtomicUnit::Word)
    },
    published: None,
    mutants: &[Twin {
        name: "one-version",
        about: "the reader checks the version of the first line only",
        cases: || sides("", How::Check, vec![Knobs::weak(), Knobs::strong()], |_| true),
    }],
    build,
};

/// Builds the model. The node has the last two words of one line (data, version) and the first two words of the next
/// line (version, data).
fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let node = word(0, 0, 6);
    let one = s.mutant("one-version");
    let model = Model::new(s.title.clone()).place(node, 32, "node");
    let writes = move |c: Bare| async move {
        c.verbs().write(node, &bytes_of(&[1; 4])).await.expect(OK);
    };
    let reads = move |c: Bare| async move {
        let seen = c.verbs().read(node, 32).await.expect(OK);
        let [first, version, other, second] = [0, 8, 16, 24].map(|at| word_of(&seen, at));
        let accepted = one || version == other;
        c.check(!accepted || first == version && second == version, || {
            format!("versions {version} and {other}, data {first} and {second}")
        });
    };
    Box::new(model.client("writer", 0, writes).client("reader", 1, reads))
}
