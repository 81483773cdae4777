//! Models of reclamation. They run the shipped `dm-alloc`, and nodes of `dm-leaf` that die and whose memory is reused.

mod creator_dies;
mod late;
mod next_life;
mod remembered;
mod reuse;
mod silent;
mod working;

use dm_alloc::{AllocError, Allocator, Class, MemberArea, ReclaimFlaws, ReclaimOptions};
use dm_explore::Endpoint;
use dm_sync::epoch::{Epochs, Running, Seat};
use dm_verbs::{Env, Nanos, NodeId, RemotePtr, Verbs};

use crate::Entry;

/// The entries of this module, in the order of the page.
pub(crate) const ENTRIES: &[Entry] = &[
    reuse::ENTRY,
    silent::ENTRY,
    working::ENTRY,
    next_life::ENTRY,
    remembered::ENTRY,
    late::ENTRY,
    creator_dies::ENTRY,
];

/// Returns the address of the word that leads to the block.
fn root() -> RemotePtr {
    RemotePtr::new(NodeId(0), 256).unwrap_or(RemotePtr::NULL)
}

/// Returns the address of the block. The block holds the number of times that it was used, and a value.
fn block() -> RemotePtr {
    RemotePtr::new(NodeId(0), 1024).unwrap_or(RemotePtr::NULL)
}

/// The first word of a dead block.
const DEAD: u64 = u64::MAX;
/// The value in the next use of the block.
const NEXT: u64 = 9;

const CLASS: Class = Class { bytes: 64, kind: 0 };

/// Makes the allocator of a compute node in a pool for `slots` members. It collects only on request. It counts a
/// member as silent if this number of consecutive `looks` at the member's slot finds no change, and enough time has
/// passed.
pub(crate) fn allocator(compute_node: u16, slots: u16, looks: u32, flaws: ReclaimFlaws) -> Allocator {
    allocator_that(compute_node, slots, looks, false, flaws)
}

/// Makes an allocator as [`allocator`] does, with or without addresses that the compute node remembers.
fn allocator_that(
    compute_node: u16,
    slots: u16,
    looks: u32,
    remembers: bool,
    flaws: ReclaimFlaws,
) -> Allocator {
    reclaiming(Allocator::new(1, compute_node), slots, looks, remembers, flaws)
}

/// Makes an allocator for `v`'s compute node over `memory_nodes` memory nodes.
fn allocator_over(memory_nodes: u16, v: &Endpoint, flaws: ReclaimFlaws) -> Allocator {
    let alloc = Allocator::new(memory_nodes, v.compute_node());
    reclaiming(alloc, 2, u32::MAX, false, flaws)
}

fn reclaiming(alloc: Allocator, slots: u16, looks: u32, remembers: bool, flaws: ReclaimFlaws) -> Allocator {
    let area = MemberArea {
        at: RemotePtr::new(NodeId(0), 512).unwrap_or(RemotePtr::NULL),
        slots,
    };
    let options = ReclaimOptions {
        period: Nanos(u64::MAX),
        operations: 1,
        looks,
        attempts: 2,
        remembers,
        flaws,
    };
    alloc.reclaiming(area, options)
}

/// Makes an allocator for `v`'s compute node that is already a member of the pool.
async fn member(v: Endpoint, looks: u32, flaws: ReclaimFlaws) -> Allocator {
    joined(&v, allocator(v.compute_node(), 2, looks, flaws)).await
}

async fn joined(v: &Endpoint, alloc: Allocator) -> Allocator {
    if let Some(epochs) = alloc.epochs() {
        let seat = Epochs::seat(epochs);
        alloc.prepare(v, &seat).await.expect("nobody else is there yet");
    }
    alloc
}

/// Starts an operation. Calls `prepare` until the epoch allows the operation to start.
async fn begin<'s>(v: &Endpoint, alloc: &Allocator, seat: &'s Seat) -> Result<Running<'s>, AllocError> {
    loop {
        if let Some(running) = seat.enter() {
            return Ok(running);
        }
        alloc.prepare(v, seat).await?;
    }
}

/// Unlinks the block, marks it dead and retires it, and reuses it if it becomes free within `rounds` collections.
/// Returns whether it was reused. This need not run inside an operation, because it reads no memory that another
/// client reuses.
async fn use_again(v: &Endpoint, alloc: &Allocator, rounds: u32) -> Result<bool, AllocError> {
    let Some(epochs) = alloc.epochs() else {
        return Ok(false);
    };
    let seat = Epochs::seat(epochs);
    let chain = v.chain(NodeId(0)).write(root(), &[0; 8]);
    chain.write(block(), &DEAD.to_le_bytes()).await?;
    let next = dm_alloc::Block::fresh(block()).after(1);
    alloc.retire(next, CLASS);
    for _ in 0..rounds {
        if alloc.stats().free_bytes > 0 {
            break;
        }
        alloc.collect(v, &seat).await?;
    }
    if alloc.stats().free_bytes == 0 {
        return Ok(false);
    }
    let life = alloc.take(v, CLASS, None).await?;
    let words = [u64::from(life.incarnation), NEXT];
    v.write(life.at, &words.map(u64::to_le_bytes).concat()).await?;
    Ok(true)
}

/// Writes the block for its first use, and the root that leads to the block.
fn first_life(v: &Endpoint) {
    v.load(root(), &block().raw().to_le_bytes()).expect("setting up");
    v.load(block(), &[1u64, 7].map(u64::to_le_bytes).concat())
        .expect("setting up");
}
