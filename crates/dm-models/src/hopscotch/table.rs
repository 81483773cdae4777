//! Models of hash tables of tiny leaves, which split while the directory grows.

use dm_alloc::Superblock;
use dm_explore::{End, Endpoint, Knobs};
use dm_hopscotch::{HashTable, TableFlaws, TableOptions, gather};
use dm_index::{Key8, RangeIndex};
use dm_layout::{Hopscotch, NodeRead, NodeShape};
use dm_sync::Fingerprint;
use dm_verbs::{LineOrder, RemotePtr};

use crate::tree::memory::contents_from;
use crate::tree::subject::Subject;
use crate::tree::world::{Do, Script, Shape, cold, holds, plain, script, timeless, with};
use crate::{Case, Entry, Explorable, How, Kind, Setting, Size, Twin};
use Do::{Get, Insert, Remove, Update, Upsert};

/// Returns options with leaves of three lines: 4 entries in neighbourhoods of 2, 16 locks per memory node.
///
/// Keys by home, with the first bits of their scattered hashes: home 0 has 3 (1000), 5 (0110), 19 (0101 0110), 27
/// (0001); home 1 has 12 (1100), 23 (0011 0101), 25 (1001), 38 (0011 0011); home 2 has 7 (1100), 8 (0000), 11
/// (0101 1000); home 3 has 1 (0101 0000), 2 (0011 0101), 9 (1011).
fn options() -> TableOptions {
    TableOptions {
        span: 4,
        neighbourhood: 2,
        locks_per_node: 16,
        chunk_bytes: 4096,
        ..TableOptions::new(8)
    }
}

impl Subject for HashTable<Key8> {
    type Options = TableOptions;

    fn sound(options: TableOptions) -> TableOptions {
        TableOptions {
            flaws: TableFlaws::default(),
            ..options
        }
    }

    async fn create(v: &Endpoint, options: &TableOptions) -> Self {
        Self::create_or_open(v, options).await.expect("an empty pool")
    }

    async fn open(v: &Endpoint, options: &TableOptions, superblock: &Superblock) -> Self {
        Self::from_superblock(v, options, superblock).expect("the same options")
    }

    async fn warm(&self, v: &Endpoint) {
        Self::warm(self, v).await.expect("no faults");
    }

    fn client<'h>(&'h self, v: &'h Endpoint) -> impl RangeIndex<Key = Key8> {
        Self::client(self, v)
    }

    fn state(&self) -> u64 {
        self.fingerprint()
    }

    fn contents(end: &End<'_>, options: &TableOptions) -> Result<Vec<(u64, u64)>, String> {
        let leaf = Hopscotch::<Key8>::new(options.span, options.neighbourhood, 8).expect("small");
        let word = end.word(Superblock::ROOT_WORD);
        let (at, depth) = (RemotePtr::from_raw(word & !63), word & 63);
        let first = match depth {
            0 => at,
            _ => slot(end, &leaf, at, depth, 0)?,
        };
        for number in 1..1 << depth {
            slot(end, &leaf, at, depth, number)?;
        }
        let mut found = contents_from(end, &leaf, first)?;
        for (key, _) in &mut found {
            *key = gather(&Key8(*key)).0;
        }
        Ok(found)
    }
}

/// Checks that a slot of the directory points to a leaf that is not unborn, and whose range begins at the slot or
/// before it (H11).
fn slot(
    end: &End<'_>,
    leaf: &Hopscotch<Key8>,
    at: RemotePtr,
    depth: u64,
    number: u64,
) -> Result<RemotePtr, String> {
    let named = RemotePtr::from_raw(end.word(at.add(8 * number)));
    let bytes = end.bytes(named, leaf.node_bytes() as u32).to_vec();
    let header = leaf.header(&bytes).map_err(|e| format!("slot {number}: {e}"))?;
    let first = Key8(number << (64 - depth));
    match header.fences.low <= first && !leaf.is_unborn(&bytes) {
        true => Ok(named),
        false => Err(format!("slot {number} names {header:?}")),
    }
}

fn build(shapes: &[Shape], s: &Setting<'_>, options: TableOptions) -> Box<dyn Explorable> {
    Box::new(script(shapes, s.shape).model::<HashTable<Key8>>(s.title.clone(), options))
}

fn build_faulty(shapes: &[Shape], s: &Setting<'_>, options: TableOptions) -> Box<dyn Explorable> {
    let model = script(shapes, s.shape).model::<HashTable<Key8>>(s.title.clone(), options);
    Box::new(model.crash_may_block())
}

/// One full leaf and no directory. Inserting 3 splits the leaf in the middle of the range of hashes. Keys 7 and 9 move
/// to the new leaf, and 3 is inserted there too.
const ONE: Script = Script {
    preload: &[27, 23, 7, 9],
    ..Script::EMPTY
};
/// A directory of four slots. The first two slots point to the first leaf, which is full. Inserting 19 splits this
/// leaf between the two slots, so that 1 and 11 move.
const FOUR: Script = Script {
    preload: &[27, 23, 7, 9, 3, 12, 25, 11, 1],
    ..Script::EMPTY
};
/// Two full leaves and a directory of two slots. Inserting 38 splits the first leaf, and inserting 25 splits the
/// second one. Both new leaves need a larger directory.
const TWO: Script = Script {
    preload: &[27, 23, 7, 9, 3, 12, 8, 2],
    ..Script::EMPTY
};

const SHAPES: &[Shape] = &[
    (
        "first directory, get moved twice",
        with(ONE, &[(0, &[Insert(3)]), (1, &[Get(9), Get(9)])]),
    ),
    (
        "first directory, get new twice",
        with(ONE, &[(0, &[Insert(3)]), (1, &[Get(3), Get(3)])]),
    ),
    (
        "first directory, update moved",
        with(ONE, &[(0, &[Insert(3)]), (1, &[Update(9)])]),
    ),
    (
        "first directory, two inserts",
        with(ONE, &[(0, &[Insert(3)]), (1, &[Insert(25)])]),
    ),
    (
        "2 MN, first directory on the other, get moved",
        Script {
            memory_nodes: 2,
            first_is_full: true,
            ..with(ONE, &[(0, &[Insert(3)]), (1, &[Get(9)])])
        },
    ),
    // The client may read the new directory as soon as the root word points to it.
    (
        "2 MN, first directory on the other, cold get",
        Script {
            memory_nodes: 2,
            first_is_full: true,
            ..cold(with(ONE, &[(0, &[Insert(3)]), (1, &[Get(9)])]), &[1])
        },
    ),
    (
        "slots entered, get moved twice",
        with(FOUR, &[(0, &[Insert(19)]), (1, &[Get(11), Get(11)])]),
    ),
    (
        "slots entered, remove moved",
        with(FOUR, &[(0, &[Insert(19)]), (1, &[Remove(11)])]),
    ),
    (
        "empty, two first inserts",
        cold(
            with(Script::EMPTY, &[(0, &[Insert(3)]), (1, &[Upsert(3)])]),
            &[0, 1],
        ),
    ),
];

/// Shapes that run only at night.
const LARGE: &[Shape] = &[
    (
        "two splits, two deeper directories",
        with(TWO, &[(0, &[Insert(38)]), (1, &[Insert(25)])]),
    ),
    (
        "first directory, get and update moved",
        with(ONE, &[(0, &[Insert(3)]), (1, &[Get(9)]), (1, &[Update(9)])]),
    ),
];

pub(crate) const ENTRY: Entry = Entry {
    name: "hash-table",
    kind: Kind::Tree,
    source: "CHIME §4.5, docs/protocol/chime.md H10 to H13",
    about: "Leaves of a hash table are split, their slots are updated, and the directory doubles. Meanwhile \
        other clients use old slots: they get and write keys that move and keys that are new, and split \
        leaves themselves.",
    cases: || {
        let mut cases = holds(SHAPES);
        cases.extend(holds(LARGE).into_iter().map(|case| Case {
            size: Size::Nightly,
            ..case
        }));
        cases
    },
    published: None,
    mutants: &[
        Twin {
            name: "believes-slots",
            about: "a reader uses the leaf to which its slot points, without checking the leaf's fence keys",
            cases: || {
                let case = |k| Case::fails(How::NotLinearizable, "first directory, get moved twice", k);
                plain().into_iter().map(case).collect()
            },
        },
        Twin {
            name: "directory-unawaited",
            about: "the root word points to a directory whose WRITE was not awaited",
            cases: || {
                let shape = "2 MN, first directory on the other, cold get";
                let case = |k| Case::fails(How::Check, shape, k).or(How::Invariant);
                plain().into_iter().map(case).collect()
            },
        },
    ],
    build: |s| {
        let mut options = options();
        options.flaws.hop.near.any_range = s.mutant("believes-slots");
        options.flaws.directory_unawaited = s.mutant("directory-unawaited");
        match LARGE.iter().any(|(shape, _)| *shape == s.shape) {
            true => build(LARGE, s, options),
            false => build(SHAPES, s, options),
        }
    },
};

const FAULTS: &[Shape] = &[
    (
        "first directory, get moved",
        with(ONE, &[(0, &[Insert(3)]), (1, &[Get(9)])]),
    ),
    (
        "slots entered, update moved",
        with(FOUR, &[(0, &[Insert(19)]), (1, &[Update(11)])]),
    ),
];

/// Returns three sets of knobs in which the lines of a WRITE take effect in any order. Each of them allows one fault of
/// another kind.
fn faults() -> [Knobs; 3] {
    let any = Knobs {
        write_lines: LineOrder::Any,
        ..timeless(Knobs::declared())
    };
    [any.clone().crashes(1), any.clone().cancels(1), any.failures(1)]
}

pub(crate) const FAULTY: Entry = Entry {
    name: "hash-table-faults",
    kind: Kind::Crash,
    source: "docs/protocol/chime.md H10 to H13, Alone: a hash table",
    about: "The client that splits a leaf and updates its slots dies, is cancelled, or loses the rest of a \
        chain, at any step. Every result is right, no key is lost, and every slot leads to a live leaf at \
        or left of its keys.",
    cases: || {
        let each = |&(shape, _): &Shape| faults().map(move |k| Case::holds(shape, k));
        FAULTS.iter().flat_map(each).collect()
    },
    published: None,
    mutants: &[Twin {
        name: "never-in-doubt",
        about: "no writer checks whether a structural change failed midway under the lock",
        cases: || {
            let [.., fails] = faults();
            vec![Case::fails(How::Invariant, "slots entered, update moved", fails).or(How::NotLinearizable)]
        },
    }],
    build: |s| {
        let mut options = options();
        options.flaws.hop.never_in_doubt = s.mutant("never-in-doubt");
        build_faulty(FAULTS, s, options)
    },
};
