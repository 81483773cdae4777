//! The model of a CAS that takes effect late, after its operation has ended in an error and while the block is being
//! reused.

use dm_alloc::{AllocError, Allocator, Block, ReclaimFlaws};
use dm_explore::{Client, Endpoint, Knobs, Model, NoSpec, Retries};
use dm_index::{IndexError, end_operation};
use dm_sync::Fingerprint;
use dm_verbs::{NodeId, RemotePtr, Verbs};

use super::{CLASS, DEAD, allocator_over, begin, joined, root};
use crate::{Case, Entry, Explorable, How, Kind, Setting, Twin};

pub(crate) const ENTRY: Entry = Entry {
    name: "reclaim-late-cas",
    kind: Kind::Crash,
    source: "docs/protocol/reclaim.md R2a",
    about: "The queue pair of a client may fail after it has posted a CAS on a block, and the CAS may land \
        later. The operation ends in an error, and its compute node continues at another memory node. A \
        second compute node retires the block and reuses it when it may, with the value that the CAS \
        compares. The CAS never lands in that life.",
    cases: || {
        let cut_off = |knobs: Knobs| Knobs {
            retries: Retries::Bounded(2),
            ..knobs.failures(2)
        };
        vec![
            Case::holds("2x1", Knobs::declared().failures(1)),
            Case::holds("2x1", cut_off(Knobs::declared())),
        ]
    },
    published: None,
    mutants: &[
        Twin {
            name: "ends-unproved",
            about: "an operation stops being announced when it ends in an error",
            cases: || vec![Case::fails(How::Invariant, "2x1", Knobs::declared().failures(1))],
        },
        Twin {
            name: "error-proves",
            about: "a refused READ counts as proof that all earlier requests have landed",
            cases: || vec![Case::fails(How::Invariant, "2x1", Knobs::declared().failures(2))],
        },
    ],
    build,
};

/// Returns the address of the block, which is on another memory node than the members' slots.
fn block() -> RemotePtr {
    RemotePtr::new(NodeId(1), 1024).unwrap_or(RemotePtr::NULL)
}

/// The block's value, in its first and in its second use.
const VALUE: u64 = 7;
/// The value that the operation stores.
const CHANGED: u64 = 8;

fn value() -> RemotePtr {
    block().add(8)
}

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let ends_unproved = s.mutant("ends-unproved");
    let flaws = ReclaimFlaws {
        error_proves: s.mutant("error-proves"),
        ..ReclaimFlaws::default()
    };
    let model = Model::new(s.title.clone())
        .memory_nodes(2)
        .shared_opened(move |v, _| async move {
            let alloc = allocator_over(2, &v, flaws);
            joined(&v, alloc).await
        })
        .fingerprint(Fingerprint::fingerprint)
        .place(root(), 8, "root")
        .place(block(), 16, "block")
        .setup(|v| async move {
            v.load(root(), &block().raw().to_le_bytes()).expect("setting up");
            v.load(block(), &[1, VALUE].map(u64::to_le_bytes).concat())
                .expect("setting up");
        })
        .invariant("no CAS lands in the next life", |end| {
            let used_again = !end.outputs(1).is_empty();
            match end.word(value()) {
                VALUE => Ok(()),
                CHANGED if !used_again => Ok(()),
                found => Err(format!("the value is {found}")),
            }
        })
        .client("R", 0, move |c: Client<Allocator, NoSpec>| async move {
            let (v, alloc) = (c.verbs(), c.shared());
            let Some(seat) = alloc.seat(v) else { return };
            if let Ok(running) = begin(v, alloc, &seat).await {
                let done = change(v).await;
                match ends_unproved {
                    true => drop(running),
                    false => drop(end_operation(Some(running), done)),
                }
                // The compute node does further rounds.
                for _ in 0..2 {
                    if alloc.collect(v, &seat).await.is_err() {
                        break;
                    }
                }
            }
            alloc.vacate(v, seat);
        })
        .client("W", 1, |c: Client<Allocator, NoSpec>| async move {
            if let Ok(true) = use_again(c.verbs(), c.shared()).await {
                c.output(1);
            }
        });
    Box::new(model)
}

/// Runs one operation: follows the root to the block, and changes it by a CAS without a lock.
async fn change(v: &Endpoint) -> Result<(), IndexError> {
    if v.word(root()).await? != 0 {
        v.cas(value(), VALUE, CHANGED).await?;
    }
    Ok(())
}

/// Retires the block, and reuses it if it becomes free within three collections. Returns whether it was reused.
async fn use_again(v: &Endpoint, alloc: &Allocator) -> Result<bool, AllocError> {
    let Some(seat) = alloc.seat(v) else {
        return Ok(false);
    };
    v.write(root(), &[0; 8]).await?;
    v.write(block(), &DEAD.to_le_bytes()).await?;
    alloc.retire(Block::fresh(block()).after(1), CLASS);
    for _ in 0..3 {
        if alloc.stats().free_bytes == 0 {
            alloc.collect(v, &seat).await?;
        }
    }
    if alloc.stats().free_bytes == 0 {
        return Ok(false);
    }
    let life = alloc.take(v, CLASS, None).await?;
    let words = [u64::from(life.incarnation), VALUE];
    v.write(life.at, &words.map(u64::to_le_bytes).concat()).await?;
    Ok(true)
}
