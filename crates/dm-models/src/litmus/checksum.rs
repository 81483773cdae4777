//! Litmus test L3: a checksum shows whether a READ has mixed two states.

use dm_explore::{Knobs, Model};
use dm_sync::fingerprint_of;
use dm_verbs::Verbs;

use super::{Bare, OK, bytes_of, sides, word, word_of};
use crate::{Entry, Explorable, How, Kind, Knob, Setting, Twin, matrix};

pub(crate) const ENTRY: Entry = Entry {
    name: "L3",
    kind: Kind::Litmus,
    source: "Pilaf §4.1; FG's leaf checksum",
    about: "One WRITE changes data and their checksum. If the checksum of a READ is right, the READ has not \
        mixed two states, with any order of lines and any atomic unit.",
    cases: || {
        let all = matrix(&Knobs::weak(), &[Knob::ReadOrder, Knob::WriteOrder, Knob::Unit]);
        sides("", How::Check, all, |_| false)
    },
    published: None,
    mutants: &[Twin {
        name: "first-line",
        about: "the checksum covers the first line only",
        cases: || sides("", How::Check, vec![Knobs::weak(), Knobs::strong()], |_| true),
    }],
    build,
};

/// Builds the model. The node has two words in one line (checksum, data) and two words in the next line (data, data).
fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let node = word(0, 0, 6);
    let covered = if s.mutant("first-line") { 1 } else { 3 };
    let image = move |data: u64| {
        let data = [data; 3];
        bytes_of(&[fingerprint_of(&data[..covered]), data[0], data[1], data[2]])
    };
    let model = Model::new(s.title.clone())
        .place(node, 32, "node")
        .setup(move |v| async move { v.load(node, &image(0)).expect(OK) });
    let writes = move |c: Bare| async move {
        c.verbs().write(node, &image(1)).await.expect(OK);
    };
    let reads = move |c: Bare| async move {
        let seen = c.verbs().read(node, 32).await.expect(OK);
        let data = [8, 16, 24].map(|at| word_of(&seen, at));
        let fits = word_of(&seen, 0) == fingerprint_of(&data[..covered]);
        c.check(!fits || data == [data[0]; 3], || {
            format!("the checksum fits {data:?}")
        });
    };
    Box::new(model.client("writer", 0, writes).client("reader", 1, reads))
}
