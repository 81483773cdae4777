//! Calibration at the level of an index: uniform point operations of FG, FG+ and Sherman. All inner nodes are cached,
//! and each of eight machines is both compute and memory node (Sherman Table 1 and §5.2). All figures are those of the
//! model.
#![expect(clippy::unwrap_used, reason = "a test panics")]

use std::rc::Rc;

use crate::common::{Grade, Recorder, row};
use dm_sim::{CostModel, Endpoint, Sim};
use dm_verbs::{ChipPtr, Env, Nanos, NodeId, RemotePtr, Verbs};

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Four round trips. The lock is released by fetch-and-add, and the whole leaf is written back.
    Fg,
    /// Four round trips. The lock is released by WRITE, and the whole leaf is written back.
    FgPlus,
    /// The lock is on chip. The entry and the unlock are written in one chain.
    Sherman,
}

/// Returns the client CPU time of a cache look-up: a constant half and an exponentially distributed half. It is fitted
/// to the p50 of reads in Table 1.
fn lookup(random: u64) -> Nanos {
    let u = ((random >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    Nanos(950 + (-950.0 * u.ln()) as u64)
}
/// Client CPU time of searching a leaf.
const SCAN: Nanos = Nanos(500);

async fn operation(v: &Endpoint, kind: Kind, write: bool) {
    v.charge(lookup(v.rng(1))).await;
    let r = v.rng(0);
    let node = NodeId((r & 7) as u16);
    let (leaf_number, lock_number) = ((r >> 8) % 16_000, (r >> 40) % 10_240);
    let leaf = RemotePtr::new(node, (1 << 20) + leaf_number * 1024).unwrap();
    if !write {
        v.read(leaf, 1024).await.unwrap();
        v.charge(SCAN).await;
        return;
    }
    let host = RemotePtr::new(node, 4096 + lock_number * 8).unwrap();
    let chip = ChipPtr::new(node, lock_number * 8).unwrap();
    if kind == Kind::Sherman {
        while v.cas(chip, 0, 1).await.unwrap() != 0 {}
    } else {
        while v.cas(host, 0, 1).await.unwrap() != 0 {}
    }
    v.read(leaf, 1024).await.unwrap();
    v.charge(SCAN).await;
    if kind == Kind::Sherman {
        v.chain(node)
            .write(leaf.add((r >> 24 & 31) * 32), &[1; 17])
            .write_word(chip, 0)
            .await
            .unwrap();
        return;
    }
    v.write(leaf, &[1; 1024]).await.unwrap();
    if kind == Kind::Fg {
        v.faa(host, u64::MAX).await.unwrap();
    } else {
        v.write(host, &[0; 8]).await.unwrap();
    }
}

fn run(kind: Kind, writes_percent: u64, per_thread: u16) -> Rc<Recorder> {
    let sim = Sim::builder(CostModel::cx5_ib())
        .compute_nodes(8)
        .memory_nodes(8)
        .colocated(true)
        .seed(1)
        .build()
        .unwrap();
    let recorder = Recorder::new(Nanos::from_micros(300), Nanos::from_micros(1500));
    for c in 0..176 * per_thread {
        let recorder = Rc::clone(&recorder);
        sim.spawn(c % 8, c / 8 % 22, move |v| async move {
            while v.now() < recorder.to {
                let start = v.now();
                operation(&v, kind, v.rng(2) % 100 < writes_percent).await;
                recorder.note(start, v.now(), 0);
            }
        });
    }
    sim.run();
    recorder
}

#[test]
fn table_1_uniform_and_section_5_2() {
    let reads = run(Kind::Fg, 5, 1);
    let writes = run(Kind::Fg, 50, 1);
    row(
        "Sherman Table 1: read-intensive uniform, Mops",
        31.8,
        reads.mops(),
        Grade::Prediction,
    );
    row(
        "Sherman Table 1: read-intensive uniform, p50 µs",
        4.9,
        reads.quantile(0.5),
        Grade::Fit,
    );
    row(
        "Sherman Table 1: write-intensive uniform, Mops",
        18.7,
        writes.mops(),
        Grade::Prediction,
    );
    let (plus, sherman) = (run(Kind::FgPlus, 50, 1).mops(), run(Kind::Sherman, 50, 1).mops());
    row(
        "Sherman Fig. 11b: Sherman against FG+, uniform",
        1.15,
        sherman / plus,
        Grade::Prediction,
    );
    let many = run(Kind::Sherman, 50, 3).mops();
    row(
        "Sherman Fig. 13: 528 clients uniform, Mops",
        44.0,
        many,
        Grade::KnownGap(57.0),
    );
}
