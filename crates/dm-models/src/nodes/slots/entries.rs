//! The models T-D1, T-D2, T-D4, T-D5 and T-D6. Each has one flaw.

use dm_explore::{Client, Knobs, Model};
use dm_history::KvMap;
use dm_history::KvOp::{Get, Insert, Update};
use dm_verbs::{LineOrder, Verbs};

use super::operations::{Op, Spec, Worker};
use super::{Leaf, NO_END, SLOTS, SlotFlaws, Slots, separator};
use crate::tree::world::{loaded, timeless};
use crate::{Case, Entry, Explorable, How, Kind, Knob, Setting, Twin, matrix};

/// The keys of the left leaf, by slot. Then, for each client, whether it starts without a cache, and its operations.
struct Script {
    keys: &'static [u64],
    clients: Vec<(bool, Vec<Op>)>,
}

fn script(shape: &str) -> Script {
    let full = |keys: &'static [u64], clients| Script { keys, clients };
    let warm = |operations: &[Op]| (false, operations.to_vec());
    let cold = |operations: &[Op]| (true, operations.to_vec());
    match shape {
        "split, then gets" => full(
            &[30, 20, 10],
            vec![warm(&[Insert(40, 40_001), Get(10), Get(20), Get(30)])],
        ),
        "split, get" => full(&[30, 20, 10], vec![warm(&[Insert(40, 40_001)]), cold(&[Get(30)])]),
        "insert, get" => full(&[10], vec![warm(&[Insert(20, 20_001)]), warm(&[Get(20)])]),
        "two inserts" => full(
            &[10],
            vec![
                warm(&[Insert(20, 20_001), Get(20)]),
                warm(&[Insert(30, 30_002), Get(30)]),
            ],
        ),
        "one key, two inserts" => full(
            &[10],
            vec![warm(&[Insert(20, 20_001)]), warm(&[Insert(20, 20_002), Get(20)])],
        ),
        "one key, two inserts, get" => full(
            &[10],
            vec![
                warm(&[Insert(20, 20_001)]),
                warm(&[Insert(20, 20_002)]),
                warm(&[Get(20)]),
            ],
        ),
        "split, update, stale get" => full(
            &[10, 20, 30],
            vec![
                warm(&[Insert(40, 40_001)]),
                cold(&[Update(30, 30_002)]),
                warm(&[Get(30)]),
            ],
        ),
        "split, stale get" => full(&[10, 20, 30], vec![warm(&[Insert(40, 40_001)]), warm(&[Get(30)])]),
        "two splits" => full(
            &[10, 20, 30],
            vec![warm(&[Insert(40, 40_001)]), warm(&[Insert(15, 15_002), Get(20)])],
        ),
        _ => unreachable!("no such shape: {shape}"),
    }
}

/// Returns the knobs of a weak card, and those of a declared card with each order of the lines of READs and WRITEs.
fn under() -> Vec<Knobs> {
    let mut all = matrix(&timeless(Knobs::declared()), &[Knob::ReadOrder, Knob::WriteOrder]);
    all.push(timeless(Knobs::weak()));
    all
}

/// Returns a case that must hold. It is nightly if it has a million states or more.
fn holds(shape: &'static str, knobs: Knobs) -> Case {
    let in_order = knobs.read_lines == LineOrder::Increasing && knobs.write_lines == LineOrder::Increasing;
    let case = Case::holds(shape, knobs);
    match shape {
        "split, update, stale get" if !in_order => case.nightly(),
        "two splits" => case.nightly(),
        _ => case,
    }
}

fn each(shapes: &[&'static str], case: impl Fn(&'static str, Knobs) -> Case) -> Vec<Case> {
    let pairs = shapes
        .iter()
        .flat_map(|shape| under().into_iter().map(move |k| (*shape, k)));
    pairs.map(|(shape, k)| case(shape, k)).collect()
}

fn build(s: &Setting<'_>, flaw: fn(&mut SlotFlaws)) -> Box<dyn Explorable> {
    let mut flaws = SlotFlaws::default();
    if s.published() {
        flaw(&mut flaws);
    }
    let Script { keys, clients } = script(s.shape);
    let mut slots = Slots::default();
    for (slot, key) in keys.iter().enumerate() {
        (slots.keys[slot], slots.values[slot]) = (*key, loaded(*key));
    }
    let image = slots.image(NO_END);
    let mut model = Model::new(s.title.clone())
        .spec(KvMap::loaded(keys.iter().map(|key| (*key, loaded(*key)))))
        .place(separator(), 8, "separator");
    for (leaf, name) in [(Leaf::left(), "left"), (Leaf::right(), "right")] {
        model = model
            .place(leaf.counter(), 8, format!("{name} counter"))
            .place(leaf.high(), 8, format!("{name} high"))
            .place(leaf.key(0), 8 * SLOTS as u32, format!("{name} keys"))
            .place(leaf.value(0), 8 * SLOTS as u32, format!("{name} values"));
    }
    model = model.setup(move |v| {
        let image = image.clone();
        async move { v.load(Leaf::left().0, &image).expect("setting up") }
    });
    for (i, (cold, operations)) in clients.into_iter().enumerate() {
        let name = char::from(b'A' + i as u8).to_string();
        model = model.client(name, i as u16, move |c: Client<(), Spec>| {
            let operations = operations.clone();
            async move {
                for op in operations {
                    let worker = Worker { c: &c, flaws, cold };
                    c.op(op.clone(), worker.run(&op)).await;
                    c.forget();
                }
            }
        });
    }
    Box::new(model)
}

macro_rules! flaw {
    ($entry:ident, $name:literal, $source:literal, $about:literal, $different:literal, $shapes:expr, $flaw:expr) => {
        flaw!(
            $entry,
            $name,
            $source,
            $about,
            $different,
            $shapes,
            [],
            $flaw
        );
    };
    // This arm also accepts more shapes, which run only without the flaw.
    ($entry:ident, $name:literal, $source:literal, $about:literal, $different:literal, $shapes:expr, $more:expr,
     $flaw:expr) => {
        pub(in crate::nodes) const $entry: Entry = Entry {
            name: $name,
            kind: Kind::Node,
            source: $source,
            about: $about,
            cases: || [each(&$shapes, holds), each(&$more, holds)].concat(),
            published: Some(Twin {
                name: "published",
                about: $different,
                cases: || {
                    each(&$shapes, |shape, k| {
                        Case::fails(How::NotLinearizable, shape, k)
                    })
                },
            }),
            mutants: &[],
            build: |s| build(s, $flaw),
        };
    };
}

flaw!(
    T_D1,
    "T-D1",
    "Dolphin's code, Tree.cpp: std::sort of a leaf's keys; a leaf of its own, for study",
    "A leaf whose keys were inserted in descending order is split: each value stays with its key.",
    "the keys are sorted, and the values stay where they were",
    ["split, then gets", "split, get"],
    |f| f.values_stay = true
);
flaw!(
    T_D2,
    "T-D2",
    "Dolphin (MSST 2024), insert; a leaf of its own, for study",
    "A reader finds a slot that is being filled. The key is visible only after its value is.",
    "the slot is claimed with the key itself, and the value is written afterwards",
    ["insert, get"],
    |f| f.key_first = true
);
flaw!(
    T_D4,
    "T-D4",
    "Dolphin's code, Tree.cpp, retry; a leaf of its own, for study",
    "Two inserts compete for an empty slot, and the loser takes the next one.",
    "the loser writes the value that it read from that slot earlier, not its own",
    ["two inserts"],
    |f| f.stale_value = true
);
flaw!(
    T_D5,
    "T-D5",
    "Dolphin's code, Tree.cpp, retry; a leaf of its own, for study",
    "Two inserts of one key compete for an empty slot: exactly one of them inserts the key.",
    "the loser does not notice that the winner has the same key, and takes the next slot",
    ["one key, two inserts", "one key, two inserts, get"],
    |f| f.own_key_unseen = true
);
flaw!(
    T_D6_I,
    "T-D6i",
    "Dolphin (MSST 2024), READ-SMO conflicts; its code, Tree.cpp; a leaf of its own, for study",
    "A leaf is split while an update finds the new leaf by its separator, and a reader goes to the old leaf.",
    "the separator becomes visible before the old leaf has changed",
    ["split, update, stale get"],
    ["two splits"],
    |f| f.shown_first = true
);
flaw!(
    T_D6_II,
    "T-D6ii",
    "Dolphin (MSST 2024), READ-SMO conflicts; a leaf of its own, for study",
    "A reader reads a leaf while a split removes keys. It reads the fence once more after the keys.",
    "the reader looks at the fence only before the keys, and takes the key for absent",
    ["split, stale get"],
    |f| f.fence_first = true
);
