//! No compute node that begins operations at least twice per lease is fenced as silent, whatever the lease and the
//! intervals between the operations of all compute nodes.

use std::cell::Cell;
use std::rc::Rc;

use dm_alloc::{AllocError, Allocator, MemberArea, ReclaimFlaws, ReclaimOptions};
use dm_sim::{CostModel, Endpoint, QueueKind, RunEnd, Sim};
use dm_sync::epoch::Epochs;
use dm_verbs::{Env, Nanos, NodeId, RemotePtr};

/// Leases from 1 ms to 10 s.
const LEASES: [Nanos; 5] = [
    Nanos::from_millis(1),
    Nanos::from_millis(10),
    Nanos::from_millis(100),
    Nanos::from_millis(1_000),
    Nanos::from_millis(10_000),
];

fn allocator(compute_node: u16, flaws: ReclaimFlaws) -> Allocator {
    let at = RemotePtr::new(NodeId(0), 8192).expect("a small offset");
    let options = ReclaimOptions {
        // With fewer looks than the default, silence is detected sooner. With the flaw `beat_bits`, a beat that has
        // wrapped around is then mistaken for an unchanged one more often.
        looks: 4,
        flaws,
        ..ReclaimOptions::new()
    };
    Allocator::new(1, compute_node).reclaiming(MemberArea { at, slots: 2 }, options)
}

fn testbed(lease: Nanos) -> Sim {
    let mut model = CostModel::cx5_ib();
    model.lease_ns = lease.0 as f64;
    Sim::builder(model)
        .compute_nodes(2)
        .memory_bytes(1 << 20)
        .queue(QueueKind::Heap)
        .build()
        .expect("a testbed")
}

/// Begins an empty operation every `interval` until `end`.
async fn operate(v: &Endpoint, alloc: &Allocator, interval: Nanos, end: Nanos) -> Result<(), AllocError> {
    let seat = Epochs::seat(alloc.epochs().expect("it reclaims"));
    while v.now() < end {
        if alloc.is_due(v) {
            alloc.prepare(v, &seat).await?;
        }
        let running = loop {
            if let Some(running) = seat.enter() {
                break running;
            }
            alloc.prepare(v, &seat).await?;
        };
        drop(running);
        v.charge(interval).await;
    }
    Ok(())
}

/// Two compute nodes begin operations at these intervals. Returns whether one of them is fenced although its interval
/// is at most half a lease.
fn is_fenced(lease: Nanos, intervals: [Nanos; 2], flaws: ReclaimFlaws) -> bool {
    let sim = testbed(lease);
    let fenced = Rc::new(Cell::new(false));
    // The run is long enough for the slower compute node to judge three times whether the other one is silent. It needs
    // at least a lease for each judgement.
    let slower = intervals[0].max(intervals[1]).max(Nanos(lease.0 / 4));
    let end = Nanos(slower.0 * 14);
    for node in 0..2 {
        let (v, interval) = (sim.endpoint(node, 0), intervals[usize::from(node)]);
        let fenced = Rc::clone(&fenced);
        sim.spawn_task(async move {
            let alloc = allocator(node, flaws);
            // The slower compute node may be fenced rightly if its interval is longer than half a lease. This does not
            // count.
            if operate(&v, &alloc, interval, end).await.is_err() && Nanos(interval.0 * 2) <= lease {
                fenced.set(true);
            }
        });
    }
    assert_eq!(sim.run(), RunEnd::Finished);
    fenced.get()
}

/// Returns pairs of intervals. The first compute node operates at least twice per lease. The second one looks at it
/// after different numbers of announcements, at some of which a beat of a few bits has wrapped.
fn pairs(lease: Nanos) -> Vec<[Nanos; 2]> {
    let mut pairs = Vec::new();
    for k in 1..=8 {
        for eighths in [4, 7, 8, 9, 12, 16] {
            let busy = Nanos((lease.0 >> k) * eighths / 8);
            if busy.0 * 2 > lease.0 {
                continue;
            }
            // The default period is a millisecond. If the lease does not shorten it, the first compute node announces
            // itself at most once in this time.
            let announces = busy.0.max(1_000_000);
            for m in [0, 1, 5, 6, 7] {
                for eighths in [4, 8, 9, 16] {
                    pairs.push([busy, Nanos((announces << m) * eighths / 8)]);
                }
            }
        }
    }
    pairs.retain(|p| p[1].0 / p[0].0 < 2_000);
    pairs
}

/// Returns the number of all pairs of intervals, and the leases and pairs with which a compute node is fenced wrongly.
fn sweep(flaws: ReclaimFlaws) -> (usize, Vec<(Nanos, [Nanos; 2])>) {
    let all = LEASES
        .into_iter()
        .flat_map(|lease| pairs(lease).into_iter().map(move |p| (lease, p)));
    let all: Vec<_> = all.collect();
    let fenced = all.iter().filter(|(lease, pair)| is_fenced(*lease, *pair, flaws));
    (all.len(), fenced.copied().collect())
}

#[test]
fn who_operates_is_not_fenced_at_any_interval_and_lease() {
    let (pairs, fenced) = sweep(ReclaimFlaws::default());
    assert!(pairs > 4_000, "only {pairs} pairs of intervals");
    assert_eq!(fenced, [], "lease, and intervals of the two");
}

/// The pairs of intervals find the error for which they were chosen. If looks compare only 6 bits of a beat, 64
/// announcements look like none.
#[test]
fn a_beat_that_wraps_is_found() {
    let flaws = ReclaimFlaws {
        beat_bits: 6,
        ..ReclaimFlaws::default()
    };
    let (pairs, fenced) = sweep(flaws);
    assert!(
        fenced.len() > 20,
        "{} of {pairs} pairs of intervals",
        fenced.len()
    );
}
