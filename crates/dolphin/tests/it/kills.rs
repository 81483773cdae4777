//! Kills compute nodes at any point of their work, and checks every answer of the compute nodes that take over. `cargo
//! test` runs a few short runs; `cargo xtask stress --kills` runs the full size.

use core::future::Future;
use core::task::{Context, Waker};

use dm_alloc::Superblock;
use dm_loopback::{Loopback, block_on};
use dm_testkit::{AnyEndpoint, KillRun, connect, full_kills_on_loopback, full_kills_simulated, short_kills};
use dm_verbs::{Nanos, Verbs};
use dolphin::{Dolphin, Key8, Options, RangeIndex, ReclaimOptions};

use crate::common::Tree;

/// Returns a tree with small leaves, so that they split and merge often. Values have two words, so that a get which
/// mixes two values is noticed.
fn tree(run: KillRun) -> Tree<Key8> {
    Tree::new(Options {
        leaf_bytes: 512,
        cache_bytes: 24 << 10,
        chunk_bytes: 64 << 10,
        reclaim: ReclaimOptions {
            period: Nanos::from_micros(20),
            operations: 4,
            ..ReclaimOptions::new()
        },
        packed_keys: run.seed.is_multiple_of(2),
        attempts: run.attempts,
        ..Options::new(16)
    })
}

/// Returns the same tree without shared locks, so that each update waits for the previous one.
fn unshared(run: KillRun) -> Tree<Key8> {
    let mut tree = tree(run);
    tree.options.shared_updates = false;
    tree
}

#[test]
fn kills_without_shares_in_both_worlds() {
    for report in short_kills(unshared) {
        println!("{report}");
    }
}

#[test]
fn kills_in_both_worlds() {
    for report in short_kills(tree) {
        println!("{report}");
    }
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress --kills`"]
fn full_kills_on_simulated_testbeds() {
    full_kills_simulated(tree, |report| println!("{report}"));
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress --kills`"]
fn full_kills_of_threads() {
    full_kills_on_loopback(tree, |report| println!("{report}"));
}

/// Returns the sum of the sharer counts of all lock words.
#[expect(clippy::unwrap_used, reason = "a test may panic")]
async fn counted(v: &AnyEndpoint) -> u64 {
    let superblock = Superblock::inspect(v).await.unwrap();
    let mut counted = 0;
    for table in &superblock.lock_tables {
        let words = v.read(*table, 8 * superblock.locks_per_node).await.unwrap();
        let words = words
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        counted += words.map(|word| word >> 48).sum::<u64>();
    }
    counted
}

#[test]
fn the_share_of_a_client_that_dies_in_an_update_is_freed() {
    let mut shared = 0;
    // The clock advances only when it is read, so that only the seed and the number of polls decide where the client
    // dies.
    for (seed, polls) in (1..=16).flat_map(|seed| (1..=6).map(move |polls| (seed, polls))) {
        let world = Loopback::builder()
            .nodes(1)
            .host_bytes(8 << 20)
            .delays(2)
            .seed(seed)
            .lease(Nanos::from_millis(40))
            .counted_clock(Nanos::from_micros(1))
            .build()
            .unwrap();
        let options = Options {
            locks_per_node: 64,
            ..Options::new(8)
        };
        let tree = |v: &AnyEndpoint| block_on(Dolphin::<Key8>::create_or_open(v, &options)).unwrap();
        let (one, other) = (connect(&world, 0), connect(&world, 1));
        let (dead, living) = (tree(&one), tree(&other));
        let (sharer, holder) = (dead.client(&one), living.client(&other));
        block_on(sharer.insert(&Key8(5), &[1; 8])).unwrap();
        // The holder's compute node becomes a member before the sharer's compute node dies.
        assert!(block_on(holder.get(&Key8(5), &mut Vec::new())).unwrap());
        let mut update = Box::pin(sharer.update(&Key8(5), &[2; 8]));
        for _ in 0..polls {
            if update
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_ready()
            {
                break;
            }
        }
        // The client posts nothing from here on.
        core::mem::forget(update);
        shared += block_on(counted(&other));
        // The insert and the remove take the lock of the same leaf alone, and the update shares it.
        block_on(holder.insert(&Key8(6), &[3; 8])).unwrap();
        block_on(holder.update(&Key8(5), &[4; 8])).unwrap();
        block_on(holder.remove(&Key8(5))).unwrap();
        assert_eq!(block_on(counted(&other)), 0, "seed {seed}, after {polls} polls");
    }
    assert!(shared > 0, "no client died while it shared");
}
