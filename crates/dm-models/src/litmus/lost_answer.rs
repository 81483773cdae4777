//! Litmus test L16: the answer to an FAA is lost.

use dm_explore::{Knobs, Late, Model};
use dm_verbs::Verbs;

use super::{Bare, sides, word};
use crate::{Entry, Explorable, How, Kind, Knob, Setting, matrix};

pub(crate) const ENTRY: Entry = Entry {
    name: "L16",
    kind: Kind::Litmus,
    source: "the specification of reliable connections; Varuna (an atomic whose acknowledgement was lost has been carried \
             out, or is yet to be)",
    about: "Two clients add one to a counter by FAA, and the queue pair of one fails. If this client \
        retries, its add may count twice, because the first FAA may have been carried out and only its \
        result was lost. If it reports an unknown effect to its caller, at most one add is missing and none \
        counts twice. If each client adds by WRITE to its own word, a retry writes the same value again, \
        and no add is missing.",
    cases: || {
        let all = failing(matrix(&Knobs::weak(), &[Knob::AtomicVsWrite]));
        let mut cases = sides("FAA, tried again", How::Invariant, all.clone(), |_| true);
        cases.extend(sides("FAA, told", How::Invariant, all.clone(), |_| false));
        cases.extend(sides("own words, tried again", How::Invariant, all, |_| false));
        cases
    },
    published: None,
    mutants: &[],
    build,
};

/// Returns each of these knobs twice, with one failure and each value of [`dm_explore::Late`].
pub(super) fn failing(all: Vec<Knobs>) -> Vec<Knobs> {
    let both = |knobs: Knobs| {
        [Late::UntilNext, Late::UntilFenced].map(|late| Knobs {
            late,
            ..knobs.clone().failures(1)
        })
    };
    all.into_iter().flat_map(both).collect()
}

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let own = s.shape.starts_with("own");
    let again = s.shape.ends_with("again");
    let counter = move |i: u64| word(0, if own { i } else { 0 }, 0);
    let mut model = Model::new(s.title.clone()).invariant("each add counts once", move |end| {
        let counted: u64 = if own { 2 } else { 1 };
        let sum: u64 = (0..counted).map(|i| end.word(counter(i))).sum();
        let answered = (0..2).flat_map(|c| end.outputs(c)).sum();
        if (answered..=2).contains(&sum) {
            return Ok(());
        }
        Err(format!(
            "the counter is {sum}; of 2 adds {answered} were answered"
        ))
    });
    for (i, name) in [(0, "A"), (1, "B")] {
        let at = counter(i);
        model = model.place(
            at,
            8,
            if own {
                format!("counter of {name}")
            } else {
                "counter".into()
            },
        );
        model = model.client(name, i as u16, move |c: Bare| async move {
            loop {
                let v = c.verbs();
                let added = match own {
                    true => v.write(at, &1u64.to_le_bytes()).await,
                    false => v.faa(at, 1).await.map(drop),
                };
                c.output(u64::from(added.is_ok()));
                if added.is_ok() || !again {
                    return;
                }
            }
        });
    }
    Box::new(model)
}
