//! Litmus test L4: a reader reads the version, the data, and the version again, each by a READ of its own.

use dm_explore::{Knobs, Model};
use dm_verbs::{LineOrder, NodeId, Verbs};

use super::{Bare, OK, bytes_of, sides, word, word_of};
use crate::{Entry, Explorable, How, Kind, Knob, Setting, Twin, matrix};

pub(crate) const ENTRY: Entry = Entry {
    name: "L4",
    kind: Kind::Litmus,
    source: "Ziegler et al., SIGMOD 2023 (optimistic validation, unfenced and fenced)",
    about: "A writer makes a version odd, changes two lines, and makes the version even. A reader READs the \
        version, the data, and the version again. If both versions are equal and even, the data are not \
        mixed. Behind one doorbell this needs fences, or READs in increasing order.",
    cases: || {
        let all = matrix(&Knobs::weak(), &[Knob::ReadOrder, Knob::WriteOrder]);
        let any = |k: &Knobs| k.read_lines == LineOrder::Any;
        let mut cases = sides("one chain", How::Check, all.clone(), any);
        cases.extend(sides("one chain, fenced", How::Check, all.clone(), |_| false));
        cases.extend(sides("each awaited", How::Check, all, |_| false));
        cases
    },
    published: None,
    mutants: &[Twin {
        name: "never-odd",
        about: "the writer does not make the version odd",
        cases: || sides("each awaited", How::Check, vec![Knobs::strong()], |_| true),
    }],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let (version, data) = (word(0, 3, 0), word(0, 0, 7));
    let never_odd = s.mutant("never-odd");
    let how = s.shape.to_owned();
    let model = Model::new(s.title.clone())
        .place(version, 8, "version")
        .place(data, 16, "data");
    let writes = move |c: Bare| async move {
        let chain = c.verbs().chain(NodeId(0));
        let chain = if never_odd {
            chain
        } else {
            chain.write_word(version, 1)
        };
        let chain = chain.write(data, &bytes_of(&[1, 1])).write_word(version, 2);
        chain.post().await.expect(OK);
    };
    let reads = move |c: Bare| {
        let how = how.clone();
        async move {
            let v = c.verbs();
            let chain = v.chain(NodeId(0)).word(version);
            let (before, bytes, after) = match &*how {
                "one chain" => chain.read(data, 16).word(version).post().await.expect(OK),
                "one chain, fenced" => {
                    let fenced = chain.fence().read(data, 16).fence().word(version);
                    fenced.post().await.expect(OK)
                }
                _ => {
                    let before = chain.post().await.expect(OK);
                    let bytes = v.read(data, 16).await.expect(OK);
                    (before, bytes, v.word(version).await.expect(OK))
                }
            };
            let words = [word_of(&bytes, 0), word_of(&bytes, 8)];
            let accepted = before == after && before % 2 == 0;
            c.check(!accepted || words[0] == words[1], || {
                format!("version {before} before and behind {words:?}")
            });
        }
    };
    Box::new(model.client("writer", 0, writes).client("reader", 1, reads))
}
