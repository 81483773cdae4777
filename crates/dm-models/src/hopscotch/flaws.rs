//! Models of the flaws of the published leaf: T-C1 to T-C4.

use dm_explore::{Client, Elapsed, Knobs, Model, NoSpec};
use dm_lock::{LockOptions, LockPlace, LockWord, Locks};
use dm_sync::Fingerprint;
use dm_verbs::{Env, MaskedCas, Verbs};

use super::hops::{BEHIND, NEXT, TAKEN};
use super::splits::FULL;
use super::world::{build, options};
use crate::locks::{lock_word, node, one_lock};
use crate::tree::world::{Do, Script, Shape, holds, plain, with};
use crate::{Case, Entry, Explorable, How, Kind, Setting, Twin};
use Do::{Get, Insert, Remove};

const T_C1_SHAPES: &[Shape] = &[("1x1", with(BEHIND, &[(0, &[Insert(5), Get(5)])]))];
const T_C2_SHAPES: &[Shape] = &[
    ("2x1", with(NEXT, &[(0, &[Insert(5)]), (1, &[Get(7)])])),
    (
        "2x1, with a remove",
        with(TAKEN, &[(0, &[Remove(10), Insert(5)]), (1, &[Get(7)])]),
    ),
];

fn fails(shapes: &'static [Shape]) -> Vec<Case> {
    let case = |shape, k| Case::fails(How::NotLinearizable, shape, k).or(How::Invariant);
    let each = |&(shape, _): &Shape| plain().into_iter().map(move |k| case(shape, k));
    shapes.iter().flat_map(each).collect()
}

pub(crate) const T_C1: Entry = Entry {
    name: "T-C1",
    kind: Kind::Tree,
    source: "CHIME's code, Tree.cpp:412",
    about: "An insert finds its key although a slot before the key has become free.",
    cases: || holds(T_C1_SHAPES),
    published: Some(Twin {
        name: "published",
        about: "the insert searches only from the home to the first free slot",
        cases: || fails(T_C1_SHAPES),
    }),
    mutants: &[],
    build: |s| {
        let mut options = options();
        options.flaws.hop.near.stops_at_vacancy = s.published();
        build(T_C1_SHAPES, s, options)
    },
};

pub(crate) const T_C2: Entry = Entry {
    name: "T-C2",
    kind: Kind::Tree,
    source: "CHIME §4.1.2",
    about: "A key that hops while a reader fetches its neighbourhood, with lines in any order, is always \
        found, even if another key of the same home was removed to make room.",
    cases: || holds(T_C2_SHAPES),
    published: Some(Twin {
        name: "published",
        about: "a hop does not show in the leaf",
        cases: || {
            // Keep only the cases in which a card serves lines in any order.
            let any = |c: &Case| c.knobs.read_lines == dm_verbs::LineOrder::Any;
            fails(T_C2_SHAPES).into_iter().filter(any).collect()
        },
    }),
    mutants: &[Twin {
        name: "absent-unchecked",
        about: "hops are counted, but absence is concluded from unequal copies of a count",
        cases: || {
            let case = |k| Case::fails(How::NotLinearizable, "2x1", k);
            plain().into_iter().map(case).collect()
        },
    }],
    build: |s| {
        let mut options = options();
        options.flaws.hop.hop_uncounted = s.published();
        options.flaws.hop.near.absent_unchecked = s.mutant("absent-unchecked");
        build(T_C2_SHAPES, s, options)
    },
};

/// The first get may read the whole node. The header that it finds may already lead to the right half, which has the
/// new key 5 in the published protocol. If the lines of the left half are still old, the second get may read only these
/// lines, in which key 5 is absent.
const T_C3_SHAPES: &[Shape] = &[
    ("2x1", with(FULL, &[(0, &[Insert(5)]), (1, &[Get(5), Get(5)])])),
    (
        "2 MN, 2x1",
        Script {
            memory_nodes: 2,
            first_is_full: true,
            ..with(FULL, &[(0, &[Insert(5)]), (1, &[Get(5), Get(5)])])
        },
    ),
];

/// Returns knobs with which any READ may seem slow. After a slow READ, a client reads the whole node.
fn slow_reads() -> [Knobs; 2] {
    [Knobs::weak(), Knobs::declared()].map(|k| Knobs {
        elapsed: Elapsed::Free,
        ..k
    })
}

pub(crate) const T_C3: Entry = Entry {
    name: "T-C3",
    kind: Kind::Tree,
    source: "CHIME §4.2.3, Tree.cpp:1793 and 1869; docs/protocol/chime.md H6",
    about: "A leaf is half split: its header leads to the right half, and its lines are not cleared yet. An \
        entry that is read in an old line is still right, because no client, not even the one that splits, \
        writes to the right half before the lines are cleared.",
    cases: || {
        let each = |&(shape, _): &Shape| slow_reads().map(move |k| Case::holds(shape, k));
        T_C3_SHAPES.iter().flat_map(each).collect()
    },
    published: Some(Twin {
        name: "published",
        about: "the right half is live from the start, with the entry that caused the split",
        cases: || {
            let each =
                |&(shape, _): &Shape| slow_reads().map(move |k| Case::fails(How::NotLinearizable, shape, k));
            T_C3_SHAPES.iter().flat_map(each).collect()
        },
    }),
    mutants: &[],
    build: |s| {
        let mut options = options();
        options.flaws.leaf.right_born_live = s.published();
        build(T_C3_SHAPES, s, options)
    },
};

/// The payload of the lock word. In CHIME it is the vacancy bitmap; in dmkit it shows that a holder may have failed
/// midway.
const CARRIED: u32 = 5;

pub(crate) const T_C4: Entry = Entry {
    name: "T-C4",
    kind: Kind::Crash,
    source: "CHIME §4.2.1, Tree.cpp:202; docs/protocol/lock.md L2",
    about: "A client dies at any step while it takes, holds or releases a lock. The payload of the lock word \
        is preserved. As published, taking the lock sets all bits of the word, and only the holder knows \
        the payload.",
    cases: || {
        let dying = [Knobs::weak(), Knobs::declared()].map(|k| k.crashes(1));
        dying.map(|k| Case::holds("1x1", k)).into()
    },
    published: Some(Twin {
        name: "published",
        about: "the CAS that takes the lock replaces the whole word",
        cases: || {
            let dying = [Knobs::weak(), Knobs::declared()].map(|k| k.crashes(1));
            dying.map(|k| Case::fails(How::Invariant, "1x1", k)).into()
        },
    }),
    mutants: &[],
    build: build_carried,
};

fn build_carried(s: &Setting<'_>) -> Box<dyn Explorable> {
    let word = lock_word(LockPlace::Chip);
    let published = s.published();
    let free = LockWord {
        payload: CARRIED,
        ..LockWord::default()
    };
    let model = Model::new(s.title.clone())
        .shared(move |_| Locks::new(LockOptions::default(), one_lock(LockPlace::Chip)))
        .fingerprint(Fingerprint::fingerprint)
        .place(node(), 8, "leaf")
        .place(word, 8, "lock")
        .setup(move |v| async move {
            v.load(word, &free.pack().to_le_bytes()).expect("setting up");
        })
        .invariant(
            "the word carries what it did",
            move |end| match LockWord::unpack(end.word(word)).payload {
                CARRIED => Ok(()),
                lost => Err(format!("it is {lost:#x}")),
            },
        )
        .client("A", 0, move |c: Client<Locks, NoSpec>| async move {
            let (v, at) = (c.verbs(), node());
            let data = v.chain(at.node()).write_word(at, 1);
            if !published {
                let guard = c.shared().lock(v, at).await.expect("nobody is in the way");
                return guard.write_back(data).await.expect("no faults but death");
            }
            // These verbs are written by hand, because no lock of dmkit works in this way.
            let all = MaskedCas {
                swap: u64::MAX,
                swap_mask: u64::MAX,
                ..LockWord::acquire(v.client(), 0)
            };
            let taken = v.chain(at.node()).masked_cas(word, all);
            let old = taken.await.expect("no faults but death");
            let unlocked = data.write_word(word, old);
            unlocked.await.expect("no faults but death");
        });
    Box::new(model)
}
