//! READs of a node during a WRITE: how they tear, and how many torn READs a bookend version detects.
#![expect(clippy::unwrap_used, reason = "a test panics and prints")]

use std::cell::Cell;
use std::rc::Rc;

use dm_sim::{CostModel, Sim, Tearing};
use dm_verbs::{Env, LineOrder, Nanos, NodeId, RemotePtr, Space, Verbs};

const NODE: u64 = 4096;

/// Counts the READs, the torn READs, and those whose first and last words differ.
fn count(bytes: usize, tearing: Tearing, order: LineOrder) -> [u64; 3] {
    let mut model = CostModel::cx5_ib();
    model.tearing = tearing;
    model.caps.read_lines = order;
    model.caps.write_lines = order;
    let sim = Sim::builder(model).compute_nodes(3).seed(2).build().unwrap();
    let counts = Rc::new(Cell::new([0u64; 3]));
    let end = Nanos::from_millis(10);
    let at = RemotePtr::new(NodeId(0), NODE).unwrap();
    sim.spawn(0, 0, move |v| async move {
        let mut node = vec![0; bytes];
        for version in 1u64.. {
            node.chunks_exact_mut(8)
                .for_each(|w| w.copy_from_slice(&version.to_le_bytes()));
            v.write(at, &node).await.unwrap();
            if v.now() > end {
                break;
            }
        }
    });
    for c in 0..8 {
        let counts = Rc::clone(&counts);
        sim.spawn(1 + c % 2, c, move |v| async move {
            while v.now() < end {
                let node = v.read(at, bytes as u32).await.unwrap();
                let torn = node.chunks_exact(8).any(|w| w != &node[..8]);
                let ends = node[..8] != node[bytes - 8..];
                let [all, t, e] = counts.get();
                counts.set([all + 1, t + u64::from(torn), e + u64::from(ends)]);
            }
        });
    }
    sim.run();
    counts.get()
}

#[test]
fn bookend_versions_miss_all_torn_reads_at_equal_speed() {
    let [all, torn, ends] = count(1024, Tearing::EqualSpeed, LineOrder::Increasing);
    println!("equal speed: {all} READs, {torn} torn, {ends} seen by first and last word");
    assert!(torn * 200 > all, "more than 0.5 % of the READs tear");
    assert_eq!(ends, 0, "the published flaw of bookend versions");
}

#[test]
fn bookend_versions_detect_some_torn_reads_at_random_speed() {
    let [all, torn, ends] = count(1024, Tearing::Random, LineOrder::Increasing);
    println!("random speed: {all} READs, {torn} torn, {ends} seen by first and last word");
    assert!(ends > 0 && torn > ends);
    let [_, torn, ends] = count(1024, Tearing::Random, LineOrder::Any);
    println!("any order: {torn} torn, {ends} seen by first and last word");
    assert!(ends > 0 && torn > ends);
}

#[test]
fn a_change_from_outside_reaches_the_second_part_of_a_read() {
    let mut model = CostModel::cx5_ib();
    (model.tearing, model.torn_line_ns) = (Tearing::EqualSpeed, 10_000.0);
    model.wire_ns = 100_000.0;
    let sim = Sim::builder(model).build().unwrap();
    let at = RemotePtr::new(NodeId(0), NODE).unwrap();
    let ended = Rc::new(Cell::new(false));
    let out = Rc::clone(&ended);
    sim.spawn(0, 0, move |v| async move {
        let read = v.read(at, 256).await.unwrap();
        assert_eq!(read[..64], [0; 64]);
        assert_eq!(read[192..], [7; 64]);
        out.set(true);
    });
    // The request arrives after about a hundred microseconds, and its second part acts sixty microseconds later. The
    // time on the wire is longer than sixty microseconds, so the READ is copied when it arrives.
    sim.run_for(Nanos::from_micros(130));
    sim.with_memory(NodeId(0), Space::Host, |m| m.fill(7)).unwrap();
    sim.run();
    assert!(ended.get());
}

#[test]
fn one_line_never_tears() {
    assert_eq!(count(64, Tearing::Random, LineOrder::Any)[1], 0);
}
