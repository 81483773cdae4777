//! Litmus test L9: versions wrap around during a READ.

use dm_explore::{Knobs, Model};
use dm_verbs::Verbs;

use super::{Bare, OK, bytes_of, sides, word, word_of};
use crate::{Entry, Explorable, How, Kind, Knob, Setting, matrix};

/// Number of values of a 2-bit version.
const VERSIONS: u64 = 4;

pub(crate) const ENTRY: Entry = Entry {
    name: "L9",
    kind: Kind::Litmus,
    source: "Sherman §4.4, CHIME §4.1 (4-bit versions, shrunk to 2)",
    about: "Every line has a version, and there are several WRITEs during one READ. If the READ finds equal \
        versions, it has not mixed two states, as long as there are fewer WRITEs than versions.",
    cases: || {
        let all = matrix(&Knobs::weak(), &[Knob::ReadOrder, Knob::WriteOrder]);
        let mut cases = sides("3 WRITEs", How::Check, all.clone(), |_| false);
        cases.extend(sides("4 WRITEs", How::Check, all, |_| true));
        cases
    },
    published: None,
    mutants: &[],
    build,
};

/// Builds the model. The node has the last two words of one line (data, version) and the first two words of the next
/// line (version, data).
fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let node = word(0, 0, 6);
    let writes = if s.shape == "3 WRITEs" { 3 } else { 4 };
    let model = Model::new(s.title.clone()).place(node, 32, "node");
    let writer = move |c: Bare| async move {
        for n in 1..=writes {
            let version = n % VERSIONS;
            let image = bytes_of(&[n, version, version, n]);
            c.verbs().write(node, &image).await.expect(OK);
        }
    };
    let reader = move |c: Bare| async move {
        let seen = c.verbs().read(node, 32).await.expect(OK);
        let [first, version, other, second] = [0, 8, 16, 24].map(|at| word_of(&seen, at));
        c.check(version != other || first == second, || {
            format!("version {version} twice, data of WRITEs {first} and {second}")
        });
    };
    Box::new(model.client("writer", 0, writer).client("reader", 1, reader))
}
