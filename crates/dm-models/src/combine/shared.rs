//! Models of operations that the clients of one compute node share, while another compute node also runs operations.

use dm_combine::RdwcFlaws;
use dm_explore::Knobs;
use dm_history::KvOp::{Get, Remove, Update, Upsert};

use super::world::{Script, one_lock, script};
use crate::{Case, Entry, Explorable, How, Kind, Setting, Twin};

/// The shapes. All clients run on compute node 0, except that the last client may run on compute node 1.
const SHAPES: &[(&str, Script)] = &[
    (
        "3+1 readers",
        Script {
            loaded: &[1],
            clients: &[
                (0, &[Get(1)]),
                (0, &[Get(1)]),
                (0, &[Get(1)]),
                (1, &[Update(1, 101)]),
            ],
        },
    ),
    (
        "3+1 writers",
        Script {
            loaded: &[1],
            clients: &[
                (0, &[Update(1, 101)]),
                (0, &[Upsert(1, 102)]),
                (0, &[Update(1, 103)]),
                (1, &[Get(1), Get(1)]),
            ],
        },
    ),
    (
        "3+1 writers of an absent key",
        Script {
            loaded: &[],
            clients: &[
                (0, &[Update(1, 101)]),
                (0, &[Upsert(1, 102)]),
                (0, &[Upsert(1, 103)]),
                (1, &[Get(1), Get(1)]),
            ],
        },
    ),
    (
        "3+1 remove",
        Script {
            loaded: &[1],
            clients: &[
                (0, &[Update(1, 101)]),
                (0, &[Upsert(1, 102)]),
                (0, &[Get(1)]),
                (1, &[Remove(1), Get(1)]),
            ],
        },
    ),
    (
        "3+0 two keys",
        Script {
            loaded: &[1, 2],
            clients: &[
                (0, &[Update(1, 101), Get(1)]),
                (0, &[Upsert(2, 201), Get(2)]),
                (0, &[Update(1, 102)]),
            ],
        },
    ),
    (
        "2+1 rewritten",
        Script {
            loaded: &[1],
            clients: &[
                (0, &[Update(1, 101)]),
                (0, &[Update(1, 102)]),
                (1, &[Get(1), Update(1, 103), Get(1)]),
            ],
        },
    ),
    (
        "2+1 twice",
        Script {
            loaded: &[1],
            clients: &[
                (0, &[Update(1, 101), Get(1)]),
                (0, &[Update(1, 102), Get(1)]),
                (1, &[Get(1), Update(1, 103), Get(1)]),
            ],
        },
    ),
];

pub(crate) const RDWC: Entry = Entry {
    name: "rdwc",
    kind: Kind::Combine,
    source: "SMART §4.2; docs/protocol/combine.md C1–C12",
    about: "Among the clients of a compute node, gets share a READ, and writes share a write. Another \
        compute node reads, writes and removes the same key meanwhile.",
    cases: || {
        let mut cases = Vec::new();
        for (shape, _) in SHAPES {
            for knobs in [Knobs::weak(), Knobs::declared()] {
                cases.push(sized(Case::holds(shape, knobs), &["2+1 twice"]));
            }
        }
        cases
    },
    published: None,
    mutants: &[
        Twin {
            name: "any-key",
            about: "every client that finds a lock taken becomes a follower, whatever its key",
            cases: || vec![Case::fails(How::NotLinearizable, "3+0 two keys", Knobs::weak())],
        },
        Twin {
            name: "absorbs-upserts",
            about: "an upsert counts as done although its leader found the key absent",
            cases: || {
                let shape = "3+1 writers of an absent key";
                vec![Case::fails(How::NotLinearizable, shape, Knobs::weak())]
            },
        },
    ],
    build,
};

pub(crate) const CANCELLED: Entry = Entry {
    name: "rdwc-cancelled",
    kind: Kind::Combine,
    source: "docs/protocol/combine.md C4, C7, C10",
    about: "The same, and one client's future is dropped at any await, whether it leads, follows, gathers or \
        already has its result. The other clients end, and their results are right.",
    cases: || {
        let large = ["3+1 remove", "2+1 twice"];
        let once = SHAPES
            .iter()
            .map(|(shape, _)| Case::holds(shape, Knobs::weak().cancels(1)));
        let mut cases: Vec<Case> = once.map(|case| sized(case, &large)).collect();
        let large = ["3+1 writers", "3+1 writers of an absent key"];
        for shape in ["3+1 readers", "2+1 rewritten"].into_iter().chain(large) {
            let twice = Case::holds(shape, Knobs::declared().cancels(2));
            cases.push(sized(twice, &large));
        }
        cases
    },
    published: None,
    mutants: &[
        Twin {
            name: "leaves-silently",
            about: "a leader that is dropped wakes no other client",
            cases: || {
                let stuck = |shape| Case::fails(How::Stuck, shape, Knobs::weak().cancels(1));
                vec![stuck("3+1 readers"), stuck("3+1 writers")]
            },
        },
        Twin {
            name: "tells-unknown",
            about: "the followers of a dropped leader return as if their writes were done",
            cases: || {
                let knobs = Knobs::weak().cancels(1);
                vec![Case::fails(How::NotLinearizable, "3+1 writers", knobs)]
            },
        },
        Twin {
            name: "anothers-value",
            about: "a leader writes the value that a follower has left in the lock's buffer: when the leader \
                is dropped, the follower writes it once more",
            cases: || {
                let knobs = Knobs::weak().cancels(1);
                vec![Case::fails(How::NotLinearizable, "2+1 rewritten", knobs)]
            },
        },
    ],
    build,
};

/// Makes the case nightly if its shape is one of `large`.
fn sized(case: Case, large: &[&str]) -> Case {
    match large.contains(&case.shape) {
        true => case.nightly(),
        false => case,
    }
}

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let flaws = RdwcFlaws {
        any_key: s.mutant("any-key"),
        absorbs_upserts: s.mutant("absorbs-upserts"),
        leaves_silently: s.mutant("leaves-silently"),
        tells_unknown: s.mutant("tells-unknown"),
        buffer_of_lock: s.mutant("anothers-value"),
        ..RdwcFlaws::NONE
    };
    Box::new(script(SHAPES, s.shape).model(s.title.clone(), one_lock(flaws)))
}
