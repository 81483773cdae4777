//! Tests of published flaws, each switched on alone, and of all of them together. Except for T-S13, a flaw must show,
//! and the default must pass the same scenario.
//!
//! T-S2b and T-S4 need a request that is delayed by several round trips. Neither loopback nor the simulated network
//! delays a request that long, so the explorer tests these flaws. The test of T-S7 is in `dm-cache`.

use crate::common::Tree;
use dm_alloc::Superblock;
use dm_index::{Applied, IndexError, RangeIndex};
use dm_layout::{Bookend, Slotted};
use dm_loopback::{Loopback, block_on};
use dm_sim::{CostModel, Sim};
use dm_sync::Arc;
use dm_testkit::{IndexUnderTest, Job, Mix, Report, Seat, Stress, TestKey, World, connect, seats, stress};
use dm_verbs::{AtomicVsWrite, Control, FailedCas, RemotePtr, Verbs};
use sherman::{Flaws, Key8, LeafFormat, NodeSize, Options, Sherman};

const DEFAULT: Flaws = Options::new(8).flaws;

fn options(flaws: Flaws) -> Options {
    Options {
        node: NodeSize::Bytes(256),
        attempts: 20_000,
        flaws,
        ..Options::new(16)
    }
}

fn testbed(seed: u64) -> dm_sim::SimBuilder {
    Sim::builder(CostModel::cx5_ib())
        .compute_nodes(2)
        .memory_nodes(2)
        .seed(seed)
}

// ---- T-S5 -------------------------------------------------------------------------------------------------------

struct FirstInsert(Options);

impl Job for FirstInsert {
    type Out = Result<Applied, IndexError>;
    async fn run<V: Verbs + Control>(&self, number: usize, v: &V) -> Self::Out {
        let tree = Tree::<Key8>::new(self.0).open(v).await.expect("an empty pool");
        tree.client(v).insert(&Key8::nth(number as u64), &[1; 16]).await
    }
}

#[test]
fn t_s5_the_client_that_loses_the_race_for_the_first_leaf_fails() {
    let race = |flaws| {
        let seats = [0, 1].map(|compute_node| Seat {
            compute_node,
            thread: 0,
        });
        // Both clients find an empty tree, and create its first leaf at about the same time.
        let world = World::from(testbed(1).build().expect("memory"));
        drop(world.run_one(Opened::<Slotted<Key8>>::new(options(flaws))));
        world.run(&seats, &Arc::new(FirstInsert(options(flaws))))
    };
    assert_eq!(race(DEFAULT), [Ok(Applied::Inserted); 2]);
    let published = race(Flaws {
        root_race_fatal: true,
        ..DEFAULT
    });
    let lost: Vec<_> = published.iter().filter_map(|end| end.err()).collect();
    assert_eq!(lost.len(), 1, "one of the two wins: {published:?}");
    assert!(lost[0].to_string().contains("T-S5"), "{}", lost[0]);
}

struct Opened<F>(Options, core::marker::PhantomData<fn() -> F>);

impl<F> Opened<F> {
    fn new(options: Options) -> Self {
        Self(options, core::marker::PhantomData)
    }
}

impl<F: LeafFormat<Key8>> Job for Opened<F> {
    type Out = Sherman<Key8, F>;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Self::Out {
        Tree::<Key8, F>::new(self.0).open(v).await.expect("a pool")
    }
}

// ---- T-S1 and T-S2a: images torn by hand ------------------------------------------------------------------------

/// Returns the answer of a get of key 1 whose READ is torn: number `line` of the lines that an update changes is from
/// before the update, and the other lines are from after it. The update changes 200 bytes, which fill several lines,
/// from 1 to 2.
async fn read_torn<F: LeafFormat<Key8>, V: Verbs + Control>(
    v: &V,
    flaws: Flaws,
    line: usize,
) -> Result<Option<Vec<u8>>, IndexError> {
    let options = Options {
        attempts: 20,
        flaws,
        ..Options::new(200)
    };
    let tree = Tree::<Key8, F>::new(options)
        .open(v)
        .await
        .expect("an empty pool");
    let client = tree.client(v);
    assert_eq!(client.insert(&Key8(1), &[1; 200]).await, Ok(Applied::Inserted));
    // The tree has one leaf. Its level is 0, so the root word is its address.
    let leaf = RemotePtr::from_raw(v.word(Superblock::ROOT_WORD).await.expect("no faults"));
    let before = v.read(leaf, 1024).await.expect("no faults").to_vec();
    assert_eq!(client.update(&Key8(1), &[2; 200]).await, Ok(Applied::Replaced));
    let mut torn = v.read(leaf, 1024).await.expect("no faults").to_vec();
    let changed: Vec<usize> = (0..16)
        .filter(|i| torn[i * 64..][..64] != before[i * 64..][..64])
        .collect();
    assert!(changed.len() > 3, "the value fills several lines: {changed:?}");
    let line = changed[line] * 64;
    torn[line..line + 64].copy_from_slice(&before[line..line + 64]);
    v.load(leaf, &torn).expect("in range");
    let mut value = Vec::new();
    client
        .get(&Key8(1), &mut value)
        .await
        .map(|found| found.then_some(value))
}

fn on_loopback<F: LeafFormat<Key8>>(flaws: Flaws, line: usize) -> Result<Option<Vec<u8>>, IndexError> {
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
    block_on(read_torn::<F, _>(&v, flaws, line))
}

#[test]
fn t_s1_a_torn_entry_counts_as_absent() {
    let torn_entry_absent = Flaws {
        torn_entry_absent: true,
        ..DEFAULT
    };
    for line in 0..3 {
        let found = on_loopback::<Slotted<Key8>>(DEFAULT, line);
        // The image stays torn, so the client reads again until its budget is used up. It never returns a wrong value.
        assert!(matches!(found, Err(IndexError::Exhausted(_))), "{found:?}");
        assert_eq!(
            on_loopback::<Slotted<Key8>>(torn_entry_absent, line),
            Ok(None),
            "a false miss, line {line}"
        );
    }
}

#[test]
fn t_s2a_bookends_accept_a_mixture() {
    // The middle of the value is old, and both ends are new.
    let mixed = on_loopback::<Bookend<Key8>>(DEFAULT, 1)
        .expect("accepted")
        .expect("present");
    assert!(
        mixed.contains(&1) && mixed.contains(&2),
        "a mixture of two writes: {mixed:?}"
    );
    let found = on_loopback::<Slotted<Key8>>(DEFAULT, 1);
    assert!(
        matches!(found, Err(IndexError::Exhausted(_))),
        "line versions detect it: {found:?}"
    );
}

// ---- flaws that appear with many concurrent clients -------------------------------------------------------------

/// Runs 32 clients on two compute nodes, with few keys.
fn crowd<F: LeafFormat<Key8>>(options: Options, world: &World, seed: u64) -> Report {
    let script = Stress {
        keys: 400,
        hot_keys: 8,
        hot_percent: 20,
        mix: Mix {
            get: 30,
            insert: 20,
            update: 25,
            upsert: 10,
            remove: 15,
            scan: 0,
        },
        ..Stress::new(12_000, seed)
    };
    stress(Tree::<Key8, F>::new(options), world, &seats(2, 8, 4), &script)
}

/// Checks that at least one seed shows the flaw, and that the default passes with every seed.
fn shows<F: LeafFormat<Key8>>(what: &str, flawed: Options, plain: Options, world: impl Fn(u64) -> World) {
    let mut shown = Vec::new();
    for seed in 0..4 {
        let right = crowd::<Slotted<Key8>>(plain, &world(seed), seed).expect_correct();
        assert!(right.meter.splits > 20, "{right}");
        let report = crowd::<F>(flawed, &world(seed), seed);
        if report.wrong > 0 {
            shown.push(report);
        }
    }
    assert!(!shown.is_empty(), "no seed shows {what}");
}

#[test]
fn t_s3_a_lock_handed_over_before_the_write_back_loses_updates() {
    let flaws = Flaws {
        handover_before_write_back: true,
        ..DEFAULT
    };
    let world = |seed| testbed(seed).build().expect("memory").into();
    shows::<Slotted<Key8>>("T-S3", options(flaws), options(DEFAULT), world);
}

#[test]
fn t_s6_tickets_that_carry_break_mutual_exclusion() {
    let flaws = Flaws {
        packed_tickets: Some(2),
        ..DEFAULT
    };
    let world = |seed| testbed(seed).build().expect("memory").into();
    shows::<Slotted<Key8>>("T-S6", options(flaws), options(DEFAULT), world);
}

/// If an RNIC declares that its atomics race with WRITEs, dm-lock releases lanes by CAS. So this test passes; the
/// explorer tests lanes that a plain WRITE releases while atomics race (T-S13).
#[test]
fn t_s13_lanes_are_exact_on_a_card_that_declares_racy_atomics() {
    // Four locks share a word, and there are few words.
    let lanes = Options {
        locks_per_node: 4,
        on_chip: false,
        ..options(Flaws {
            lanes16: true,
            ..DEFAULT
        })
    };
    let world = |seed| {
        let mut model = CostModel::cx5_ib();
        model.caps.atomic_vs_write = AtomicVsWrite::Racy;
        model.caps.failed_cas = FailedCas::WritesBack;
        let sim = Sim::builder(model)
            .compute_nodes(2)
            .memory_nodes(2)
            .seed(seed)
            .build();
        sim.expect("memory").into()
    };
    for seed in 0..4 {
        let report = crowd::<Slotted<Key8>>(lanes, &world(seed), seed).expect_correct();
        assert!(report.meter.splits > 20, "{report}");
    }
}

#[test]
fn the_published_tree_shows_a_flaw() {
    let world = |seed| testbed(seed).build().expect("memory").into();
    let published = sherman::Variant::Published.apply(options(DEFAULT));
    shows::<Bookend<Key8>>("any published flaw", published, options(DEFAULT), world);
}
