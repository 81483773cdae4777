//! The models of flaws of published trees: T-S4 and T-S5.

use dm_explore::{Client, Knobs, Model};
use dm_history::{KvMap, KvOp};
use dm_layout::{Key8, Slotted};
use dm_testkit::perform;
use dm_verbs::LineOrder;
use sherman::{Options, Sherman};

use super::split::read_first;
use super::world::{Do, Script, Spec, options, script, timeless};
use crate::{Case, Entry, Explorable, How, Kind, Knob, Setting, Twin, matrix};
use Do::{Get, Insert, Update};

/// The old leaf is on memory node 0 and its parent on node 1. Client A splits the leaf, B may reach the new leaf
/// through the changed parent, and the first get of C may cache the old parent.
const T_S4_SHAPES: &[(&str, Script)] = &[(
    "3x1",
    Script {
        preload: &[10, 20, 30, 40, 50],
        memory_nodes: 2,
        cold: &[0, 1, 2],
        clients: &[(0, &[Insert(45)]), (1, &[Update(50)]), (2, &[Get(30), Get(50)])],
        ..Script::EMPTY
    },
)];

pub(crate) const T_S4: Entry = Entry {
    name: "T-S4",
    kind: Kind::Tree,
    source: "Sherman's code, Tree.cpp:967",
    about: "The parent is changed for a split while the old leaf's WRITE is still in flight. An update goes to the new \
            leaf, and a reader with an old cache finds the old value in the old leaf.",
    cases: || t_s4_knobs().into_iter().map(|k| Case::holds("3x1", k)).collect(),
    published: Some(Twin {
        name: "published",
        about: "the old leaf's WRITE is not awaited",
        cases: || {
            let fails = |k| Case::fails(How::NotLinearizable, "3x1", k);
            t_s4_knobs().into_iter().map(fails).collect()
        },
    }),
    mutants: &[],
    build: |s| {
        let mut options = options();
        options.flaws.parent_before_left = s.published();
        let script = script(T_S4_SHAPES, s.shape);
        Box::new(script.model::<Sherman<Key8, Slotted<Key8>>>(s.title.clone(), options))
    },
};

fn t_s4_knobs() -> Vec<Knobs> {
    matrix(&timeless(Knobs::declared()), &[Knob::ReadOrder, Knob::WriteOrder])
}

const T_S5_SHAPES: &[(&str, Script)] = &[
    (
        "2x1",
        Script {
            clients: &[(0, &[Insert(10)]), (1, &[Insert(20)])],
            ..Script::EMPTY
        },
    ),
    (
        "1x2",
        Script {
            clients: &[(0, &[Insert(10)]), (0, &[Insert(20)])],
            ..Script::EMPTY
        },
    ),
    (
        "3x1",
        Script {
            clients: &[(0, &[Insert(10)]), (1, &[Insert(10)]), (2, &[Get(10)])],
            ..Script::EMPTY
        },
    ),
    // Both clients may split the root leaf, one after the other, before either of them has added a root above it.
    (
        "first root",
        Script {
            preload: &[10, 20, 30],
            clients: &[(0, &[Insert(40)]), (1, &[Insert(50), Insert(60)])],
            ..Script::EMPTY
        },
    ),
    (
        "2 MN, first root",
        Script {
            preload: &[10, 20, 30],
            memory_nodes: 2,
            clients: &[(0, &[Insert(40)]), (1, &[Insert(50), Insert(60)])],
            ..Script::EMPTY
        },
    ),
];

pub(crate) const T_S5: Entry = Entry {
    name: "T-S5",
    kind: Kind::Tree,
    source: "Sherman's code, Tree.cpp:824 and :986",
    about: "Clients race to create the first leaf, or to put the first root above it. The loser continues \
        with the leaf or root of the winner.",
    cases: || {
        let under = matrix(
            &timeless(Knobs::weak()),
            &[Knob::CasThenRead, Knob::AtomicVsWrite],
        );
        let shapes = T_S5_SHAPES.iter().filter(|(shape, _)| *shape != "1x2");
        let mut cases: Vec<Case> = shapes
            .flat_map(|&(shape, _)| under.iter().map(move |k| Case::holds(shape, k.clone())))
            .collect();
        // Two clients of one compute node change shared state, so there are millions of states.
        cases.push(Case::holds("1x2", timeless(Knobs::declared())).nightly());
        cases
    },
    published: Some(Twin {
        name: "published",
        about: "losing the race is fatal",
        cases: || {
            let under = [timeless(Knobs::weak()), timeless(Knobs::declared())];
            let shapes = ["2x1", "3x1", "first root"].into_iter();
            shapes
                .flat_map(|shape| {
                    under
                        .iter()
                        .map(move |k| Case::fails(How::Check, shape, k.clone()))
                })
                .collect()
        },
    }),
    mutants: &[Twin {
        name: "read-first",
        about: "lock-and-read uses one chain on a card that may serve the READ first",
        cases: || read_first("first root"),
    }],
    build: |s| build(s, options()),
};

fn build(s: &Setting<'_>, mut options: Options) -> Box<dyn Explorable> {
    options.flaws.root_race_fatal = s.published();
    Box::new(script(T_S5_SHAPES, s.shape).model::<Sherman<Key8, Slotted<Key8>>>(s.title.clone(), options))
}

/// The pool is empty at the start, and every client creates or opens it.
pub(crate) const BOOTSTRAP: Entry = Entry {
    name: "bootstrap",
    kind: Kind::Tree,
    source: "Sherman's code, creation of the root; dm-alloc",
    about: "Clients of several compute nodes create or open one pool at once, create the first leaf and insert. One \
            client creates the pool, the others wait for it, and no key is lost.",
    // Three clients would have tens of millions of states.
    cases: || opening().into_iter().map(|k| Case::holds("2x1", k)).collect(),
    published: None,
    mutants: &[Twin {
        name: "fatal-race",
        about: "losing the race for the first leaf is fatal",
        cases: || {
            let fails = |k| Case::fails(How::Check, "2x1", k);
            opening().into_iter().map(fails).collect()
        },
    }],
    build: |s| {
        let mut options = options();
        options.flaws.root_race_fatal = s.mutant("fatal-race");
        let mut model = Model::new(s.title.clone())
            .memory(64 << 10, 256)
            .spec(KvMap::empty())
            .fingerprint(|(): &()| 0);
        for i in 0..2 {
            let name = char::from(b'A' + i as u8).to_string();
            model = model.client(name, i, move |c| open_and_insert(c, options, i));
        }
        Box::new(model)
    },
};

/// Returns knobs under which the lines of a READ are in order, because the client reads the page of the superblock. In
/// any order, its 63 lines that no client writes any more would give 2^63 states.
fn opening() -> Vec<Knobs> {
    let base = Knobs {
        read_lines: LineOrder::Increasing,
        ..timeless(Knobs::weak())
    };
    matrix(&base, &[Knob::CasThenRead, Knob::AtomicVsWrite])
}

async fn open_and_insert(c: Client<(), Spec>, options: Options, number: u16) {
    let tree = Box::pin(Sherman::<Key8>::create_or_open(c.verbs(), &options)).await;
    let Ok(tree) = tree else {
        c.check(false, || "the pool can't be opened".into());
        return;
    };
    let key = 10 * u64::from(number + 1);
    for op in [KvOp::Insert(key, u64::from(number)), KvOp::Get(key)] {
        let run = async {
            let done = perform(&tree.client(c.verbs()), &op).await;
            done.map_err(|e| c.check(false, || e.to_string())).ok()
        };
        c.try_op(op.clone(), run).await;
    }
}
