//! Models of items of variable length. They run the shipped `dm-indirect` and `dm-alloc` over an index of one
//! word.

mod word;

use dm_alloc::Allocator;
use dm_explore::{Client, Knobs, Model};
use dm_history::KvOp::{Get, Insert, Remove, Update, Upsert};
use dm_history::{KvMap, KvOp, KvRet};
use dm_index::{IndexError, Key8};
use dm_indirect::{ItemFlaws, Items};
use dm_sync::Fingerprint;
use dm_testkit::answer;

use crate::{Case, Entry, Explorable, How, Kind, Setting, Twin};
use word::{Word, allocator, place};

/// The entries of this module, in the order of the page.
pub(crate) const ENTRIES: &[Entry] = &[SHARED, CANCELLED];

/// The specification: a map of numbers to numbers.
type Spec = KvMap<u64, u64>;
type Op = KvOp<u64, u64>;
/// The compute node and the operations of each client.
type Script = &'static [(u16, &'static [Op])];

/// All keys have the same prefix, so their items share a block. The shapes that begin with [`OWN`] have only one key, and
/// its item has the block for itself (`Items::exact`).
const SHAPES: &[(&str, Script)] = &[
    (
        "two keys",
        &[(0, &[Upsert(1, 11), Get(1)]), (1, &[Upsert(2, 21), Get(1)])],
    ),
    (
        "one key",
        &[(0, &[Insert(1, 11)]), (1, &[Insert(1, 12)]), (2, &[Get(1)])],
    ),
    (
        "replaced",
        &[(0, &[Upsert(1, 11), Upsert(1, 12)]), (1, &[Get(1), Get(1)])],
    ),
    (
        "removed",
        &[
            (0, &[Upsert(1, 11), Remove(1)]),
            (1, &[Upsert(2, 21)]),
            (2, &[Get(2)]),
        ],
    ),
    (
        "used again",
        &[
            (0, &[Upsert(1, 11)]),
            (0, &[Upsert(2, 21)]),
            (1, &[Get(1), Get(1)]),
        ],
    ),
    (
        "updated",
        &[
            (0, &[Upsert(1, 11), Update(1, 12)]),
            (1, &[Update(1, 13), Get(1)]),
        ],
    ),
    (
        "own, inserted",
        &[(0, &[Insert(1, 11)]), (1, &[Upsert(1, 12)]), (2, &[Get(1)])],
    ),
    (
        "own, replaced",
        &[(0, &[Upsert(1, 11), Upsert(1, 12)]), (1, &[Get(1), Get(1)])],
    ),
    (
        "own, updated",
        &[
            (0, &[Upsert(1, 11), Update(1, 12)]),
            (1, &[Update(1, 13), Get(1)]),
        ],
    ),
    (
        "own, removed",
        &[(0, &[Upsert(1, 11), Remove(1)]), (1, &[Update(1, 12), Get(1)])],
    ),
];

/// The beginning of the names of shapes whose item shares its block with no other one.
const OWN: &str = "own";

const SHARED: Entry = Entry {
    name: "items",
    kind: Kind::Node,
    source: "CHIME §4.5; docs/protocol/indirect.md N1, N2, N2a",
    about: "Clients of several compute nodes write and read items whose keys share a block, or one item that has a \
        block of its own. The block is on another memory node than the word that points to it.",
    cases: || {
        let mut cases = Vec::new();
        for (shape, _) in SHAPES {
            for knobs in [Knobs::weak(), Knobs::declared()] {
                cases.push(Case::holds(shape, knobs));
            }
        }
        cases
    },
    published: None,
    mutants: &[
        Twin {
            name: "unawaited",
            about: "the word points to a block whose WRITE was not awaited: a reader finds memory that is \
                not a block",
            cases: || {
                let shapes = ["replaced", "own, replaced"];
                shapes
                    .map(|shape| Case::fails(How::Check, shape, Knobs::weak()))
                    .into()
            },
        },
        Twin {
            name: "blind",
            about: "the word is replaced even if it has changed: the other key's item is lost",
            cases: || vec![Case::fails(How::NotLinearizable, "two keys", Knobs::weak())],
        },
    ],
    build,
};

const CANCELLED: Entry = Entry {
    name: "items-cancelled",
    kind: Kind::Node,
    source: "docs/protocol/indirect.md N5",
    about: "The same, and one client's future is dropped at any await. Its operation has happened as a whole \
        or not at all, and no block to which the word may point is reused.",
    cases: || {
        let shapes = [
            "two keys",
            "replaced",
            "removed",
            "used again",
            "own, replaced",
            "own, removed",
        ];
        let cases = shapes.map(|shape| Case::holds(shape, Knobs::weak().cancels(1)));
        cases.into()
    },
    published: None,
    mutants: &[Twin {
        name: "gives-back",
        about: "a block is reused at once after its exchange was dropped: an item that was read has \
            disappeared",
        cases: || {
            let knobs = Knobs::weak().cancels(1);
            vec![Case::fails(How::NotLinearizable, "used again", knobs)]
        },
    }],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let flaws = ItemFlaws {
        unawaited: s.mutant("unawaited"),
        blind: s.mutant("blind"),
        gives_back: s.mutant("gives-back"),
    };
    let found = SHAPES.iter().find(|(name, _)| *name == s.shape);
    let script = found.map_or_else(
        || unreachable!("no such shape: {}", s.shape),
        |(_, script)| *script,
    );
    let mut model = Model::new(s.title.clone())
        .shared(allocator)
        .fingerprint(Fingerprint::fingerprint)
        .spec(KvMap::empty())
        .memory_nodes(2)
        .place(place(), 8, "word");
    let own = s.shape.starts_with(OWN);
    for (i, &(on, does)) in script.iter().enumerate() {
        let name = char::from(b'A' + i as u8).to_string();
        model = model.client(name, on, move |c| async move {
            for op in does {
                let run = async {
                    let done = run(&c, op, own, flaws).await;
                    done.map_err(|e| c.check(false, || e.to_string())).ok()
                };
                c.try_op(op.clone(), run).await;
                c.forget();
            }
        });
    }
    Box::new(model)
}

async fn run(
    c: &Client<Allocator, Spec>,
    op: &Op,
    own: bool,
    flaws: ItemFlaws,
) -> Result<KvRet<u64>, IndexError> {
    let (v, alloc) = (c.verbs(), c.shared());
    let items = Items::new(v, Word::new(v), alloc, |_| Key8(0), 8)?.with_flaws(flaws);
    let items = if own { items.exact() } else { items };
    let key = [*op.key() as u8];
    let byte = |value: u64| [value as u8];
    let mut value = Vec::new();
    let applied = match *op {
        Get(_) => {
            let found = items.get(&key, &mut value).await?;
            return Ok(match value.first() {
                Some(value) if found => KvRet::Found(u64::from(*value)),
                _ => KvRet::Absent,
            });
        }
        Insert(_, new) => items.insert(&key, &byte(new)).await,
        Update(_, new) => items.update(&key, &byte(new)).await,
        Upsert(_, new) => items.upsert(&key, &byte(new)).await,
        Remove(_) => items.remove(&key).await,
    };
    Ok(answer(applied?))
}
