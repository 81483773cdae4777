//! The model of a client that dies while it writes a node into the memory of a dead one.

use dm_alloc::Allocator;
use dm_explore::{Client, Knobs, Model, NoSpec, Retries};
use dm_index::{Answer, Lead, NodeAccess, NodeCopies, NodeCopy, Write};
use dm_layout::{
    FenceKeys, Key8, NodeEdit, NodeInit, NodeRead, NodeShape, NodeState, NodeStructure, Slotted,
};
use dm_leaf::{LeafFlaws, NodeOptions, TwoLevel};
use dm_lock::{GlobalLockTable, LockOptions, Locks};
use dm_sync::{Arc, Fingerprint, fingerprint_of};
use dm_verbs::{LineOrder, NodeId, RemotePtr, Verbs};

use crate::tree::world::timeless;
use crate::{Case, Entry, Explorable, How, Kind, Setting, Twin};

pub(crate) const ENTRY: Entry = Entry {
    name: "creator-dies",
    kind: Kind::Crash,
    source: "docs/protocol/reclaim.md R8, R9; docs/protocol/sherman.md S26",
    about: "A client writes the right node of a split into the memory of a dead node, and may die at any step, so \
        that any lines are those of the dead node for ever. Nothing leads to the node yet. Another client has the \
        dead node's address in its cache. Its write, get or copy continues elsewhere, and it never waits.",
    cases: || {
        let mut cases = Vec::new();
        for shape in ["1+1, write", "1+1, get", "1+1, copy"] {
            // In any order of lines, the header may be the last line to be written.
            let any = Knobs {
                write_lines: LineOrder::Any,
                ..Knobs::weak()
            };
            for knobs in [Knobs::weak(), any, Knobs::declared()] {
                cases.push(Case::holds(shape, timeless(knobs.crashes(1))));
            }
        }
        cases
    },
    published: None,
    mutants: &[Twin {
        name: "waits",
        about: "a writer waits until the torn node is complete",
        // Attempts are bounded, because each of them changes the release count of a lock word, so that the states
        // repeat only after 256 attempts.
        cases: || {
            let mut knobs = timeless(Knobs::weak().crashes(1));
            knobs.retries = Retries::Bounded(2);
            vec![Case::fails(How::Check, "1+1, write", knobs)]
        },
    }],
    build,
};

/// The state of one compute node.
struct Shared {
    leaves: TwoLevel<Key8>,
    alloc: Arc<Allocator>,
    locks: Arc<Locks>,
}

impl Fingerprint for Shared {
    fn fingerprint(&self) -> u64 {
        fingerprint_of(&(self.alloc.fingerprint(), self.locks.fingerprint()))
    }
}

/// The key for which the other client uses the dead node's address.
const KEY: Key8 = Key8(11);

/// Returns the address of the node.
fn node() -> RemotePtr {
    RemotePtr::new(NodeId(0), 1024).unwrap_or(RemotePtr::NULL)
}

/// Returns the address of the node that has the dead node's keys.
fn left() -> RemotePtr {
    RemotePtr::new(NodeId(0), 2048).unwrap_or(RemotePtr::NULL)
}

fn format() -> Slotted<Key8> {
    Slotted::with_span(5, 8).expect("five entries of 17 bytes make a node")
}

/// Returns the image of the dead node, and that of the next node in its memory.
fn lives() -> [Vec<u8>; 2] {
    let format = format();
    let (mut dead, mut next) = (vec![0; format.node_bytes()], vec![0; format.node_bytes()]);
    let fences = FenceKeys::new(Key8(10), Some(Key8(20)));
    let value = [1; 8];
    let entries = || [(KEY, (&value[..]).into())];
    format.build(&mut dead, &NodeInit::live(0, fences), entries());
    format.bury(&mut dead, left().raw()).expect("a node");
    let last = format.header(&dead).expect("a node");
    let init = NodeInit {
        state: NodeState::Splitting,
        owner: 1,
        incarnation: last.incarnation + 1,
        version: last.version.wrapping_add(1),
        ..NodeInit::live(0, fences)
    };
    format.build(&mut next, &init, entries());
    [dead, next]
}

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let options = NodeOptions {
        flaws: LeafFlaws {
            waits_for_unborn: s.mutant("waits"),
            ..LeafFlaws::default()
        },
        ..NodeOptions::default()
    };
    let [dead, next] = lives();
    let bytes = next.len();
    let shape = s.shape.to_owned();
    let model = Model::new(s.title.clone())
        .shared(move |node| {
            let locks = Arc::new(Locks::new(LockOptions::default(), GlobalLockTable::on_chip(1, 1)));
            let alloc = Arc::new(Allocator::new(1, node));
            let leaves = TwoLevel::new(format(), locks.clone(), alloc.clone(), options);
            Shared { leaves, alloc, locks }
        })
        .fingerprint(Fingerprint::fingerprint)
        .place(node(), bytes as u32, "node")
        .setup(move |v| {
            let dead = dead.clone();
            async move { v.load(node(), &dead).expect("setting up") }
        })
        .client("M", 0, move |c: Client<Shared, NoSpec>| {
            let next = next.clone();
            async move {
                c.verbs()
                    .write(node(), &next)
                    .await
                    .expect("no faults in this model")
            }
        })
        .client("W", 1, move |c: Client<Shared, NoSpec>| {
            let shape = shape.clone();
            async move { stray(&c, &shape).await }
        });
    Box::new(model)
}

/// Uses the dead node's address.
async fn stray(c: &Client<Shared, NoSpec>, shape: &str) {
    let (v, leaves, lead) = (c.verbs(), &c.shared().leaves, Lead::hint(node()));
    let (away, result) = match shape {
        "1+1, write" => {
            let answer = leaves.write(v, lead, 0, &KEY, Write::Update(&[3; 8]), None).await;
            (matches!(answer, Ok(Answer::Stale(_))), format!("{answer:?}"))
        }
        "1+1, get" => {
            let answer = leaves.get(v, lead, 0, &KEY, &mut Vec::new()).await;
            (matches!(answer, Ok(Answer::Stale(_))), format!("{answer:?}"))
        }
        _ => {
            let mut copy = NodeCopy::new();
            let alive = leaves.copy(v, node(), &mut copy).await;
            (alive == Ok(false) || copy.unborn, format!("{alive:?}"))
        }
    };
    c.check(away, || format!("it does not continue elsewhere: {result}"));
}
