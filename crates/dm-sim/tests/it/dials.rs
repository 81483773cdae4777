//! One test for each dial of the simulated cards. Each test shows that the behaviour that a setting allows occurs, and
//! that other behaviour does not.
#![expect(clippy::unwrap_used, reason = "a test panics")]

use std::cell::Cell;
use std::rc::Rc;

use dm_sim::{CostModel, Endpoint, QueueKind, RunEnd, Sim, Tearing};
use dm_verbs::{
    AtomicUnit, AtomicVsWrite, Capability, CasThenRead, ChipPtr, Env, FailedCas, LineOrder, MaskedCas, Nanos,
    NodeId, RemotePtr, Space, Transport, VerbErrorKind, Verbs,
};
use proptest::prelude::*;
use proptest::sample::select;

const N0: NodeId = NodeId(0);

fn host(offset: u64) -> RemotePtr {
    RemotePtr::new(N0, offset).unwrap()
}
fn chip(offset: u64) -> ChipPtr {
    ChipPtr::new(N0, offset).unwrap()
}
fn first_word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}
fn word(sim: &Sim, at: usize) -> u64 {
    sim.with_memory(N0, Space::Host, |m| first_word(&m[at..]))
        .unwrap()
}

/// Makes a testbed of two compute nodes. `turn` sets the dials of its card.
fn bed(turn: impl FnOnce(&mut CostModel)) -> Sim {
    let mut model = CostModel::cx5_ib();
    turn(&mut model);
    Sim::builder(model)
        .compute_nodes(2)
        .memory_bytes(1 << 20)
        .seed(1)
        .build()
        .unwrap()
}

/// Returns how often `odd` returns true. Three clients call `odd` 2,000 times each, while another client calls `write`
/// with 1, 2, and so on.
fn found(
    turn: impl FnOnce(&mut CostModel),
    write: impl AsyncFn(&Endpoint, u64) + 'static,
    odd: impl AsyncFn(&Endpoint) -> bool + Copy + 'static,
) -> u32 {
    let sim = bed(|m| {
        // Lines are slow, so that many events happen during a READ or WRITE.
        m.torn_line_ns = 1_000.0;
        turn(m);
    });
    let (found, readers) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(3)));
    for c in 0..3 {
        let (found, readers) = (Rc::clone(&found), Rc::clone(&readers));
        sim.spawn(1, c, move |v| async move {
            for _ in 0..2_000 {
                found.set(found.get() + u32::from(odd(&v).await));
            }
            readers.set(readers.get() - 1);
        });
    }
    sim.spawn(0, 0, move |v| async move {
        for i in 1.. {
            write(&v, i).await;
            if readers.get() == 0 {
                break;
            }
        }
    });
    assert_eq!(sim.run(), RunEnd::Finished);
    found.get()
}

#[test]
fn lines_of_a_read() {
    let overtaken = |order| {
        found(
            |m| m.caps.read_lines = order,
            async |v, i| {
                let chain = v.chain(N0).write(host(4160), &i.to_le_bytes());
                chain.write(host(4096), &i.to_le_bytes()).await.unwrap();
            },
            async |v| {
                let both = v.read(host(4096), 128).await.unwrap();
                first_word(&both) > first_word(&both[64..])
            },
        )
    };
    assert_eq!(overtaken(LineOrder::Increasing), 0);
    assert!(overtaken(LineOrder::Any) > 0);
}

#[test]
fn lines_of_a_write() {
    let overtaken = |order| {
        found(
            |m| m.caps.write_lines = order,
            async |v, i| v.write(host(4096), &i.to_le_bytes().repeat(16)).await.unwrap(),
            async |v| {
                // The two READs are in order, so the first line is read no earlier than the last line.
                let (last, first) = v.chain(N0).word(host(4160)).word(host(4096)).await.unwrap();
                last > first
            },
        )
    };
    assert_eq!(overtaken(LineOrder::Increasing), 0);
    assert!(overtaken(LineOrder::Any) > 0);
}

#[test]
fn words_of_a_line() {
    let torn = |unit| {
        found(
            |m| m.caps.atomic_unit = unit,
            async |v, i| v.write(host(4096), &i.to_le_bytes().repeat(8)).await.unwrap(),
            async |v| {
                let line = v.read(host(4096), 64).await.unwrap();
                line.chunks(8).any(|w| w != &line[..8])
            },
        )
    };
    assert_eq!(torn(AtomicUnit::Line), 0);
    assert!(torn(AtomicUnit::Word) > 0);
}

/// Posts 500 CASes, each with a READ behind it in the same chain. Returns how many READs return the first line from
/// before their CAS, and how many of these return a last line that another client wrote after it had seen the CAS.
fn early(promise: CasThenRead, torn_line_ns: f64) -> (u32, u32) {
    let sim = bed(|m| (m.caps.cas_then_read, m.torn_line_ns) = (promise, torn_line_ns));
    let early = Rc::new(Cell::new((0, 0)));
    let out = Rc::clone(&early);
    sim.spawn(0, 0, |v| async move {
        for i in 0..500 {
            let (_, both) = v
                .chain(N0)
                .cas(host(4096), i, i + 1)
                .read(host(4096), 128)
                .await
                .unwrap();
            let (first, last) = (first_word(&both), first_word(&both[64..]));
            let (mut whole, mut line) = out.get();
            whole += u32::from(first == i);
            line += u32::from(first == i && last == i + 1);
            out.set((whole, line));
        }
    });
    sim.spawn(1, 0, |v| async move {
        let mut seen = 0;
        while seen < 500 {
            seen = v.word(host(4096)).await.unwrap();
            v.write(host(4160), &seen.to_le_bytes()).await.unwrap();
        }
    });
    assert_eq!(sim.run(), RunEnd::Finished);
    early.get()
}

#[test]
fn a_read_behind_a_cas() {
    // Slow lines give another client time to see the CAS and to WRITE during the READ.
    let (quick, slow) = (4.0, 4_000.0);
    for time in [quick, slow] {
        assert_eq!(early(CasThenRead::InOrder, time), (0, 0));
        assert_eq!(early(CasThenRead::WholeReadFirst, time).1, 0);
        assert!(early(CasThenRead::AnyLineFirst, time).0 > 100);
    }
    assert!(early(CasThenRead::WholeReadFirst, quick).0 > 100);
    assert!(early(CasThenRead::AnyLineFirst, slow).1 > 0);
}

/// Returns the final value of the word at 4096 if atomics and WRITEs race, after each of 8 clients has incremented it
/// 600 times. In the same chain as each increment, the client WRITEs `len` bytes from `at` on. Lines are slow, so most
/// of these WRITEs are still in progress when the increment is served.
fn increments_kept(at: u64, len: usize, turn: impl Fn(&mut CostModel)) -> u64 {
    let sim = bed(|m| {
        m.torn_line_ns = 200.0;
        m.caps.atomic_vs_write = AtomicVsWrite::Racy;
        turn(m);
    });
    for c in 0..8 {
        sim.spawn(c % 2, c, move |v| async move {
            for _ in 0..600 {
                let zeros = vec![0; len];
                let _old = v
                    .chain(N0)
                    .write(host(at), &zeros)
                    .faa(host(4096), 1)
                    .await
                    .unwrap();
            }
        });
    }
    assert_eq!(sim.run(), RunEnd::Finished);
    word(&sim, 4096)
}

#[test]
fn racing_atomics_lose_nothing_to_writes_of_neighbouring_words() {
    let turns: [fn(&mut CostModel); 5] = [
        |_| {},
        |m| m.atomics_stall = false,
        |m| m.caps.cas_then_read = CasThenRead::WholeReadFirst,
        |m| m.caps.atomic_unit = AtomicUnit::Word,
        // The responder takes no time, so requests act when they arrive.
        |m| {
            (m.responder_atomic_ns, m.responder_write_ns, m.pcie_ns) = (0.0, 0.0, 0.0);
            m.jitter_ns = 0.0;
        },
    ];
    for (i, turn) in turns.into_iter().enumerate() {
        for (at, len) in [(4104, 8), (4104, 300), (4096 - 200, 200), (4160, 1000)] {
            let kept = increments_kept(at, len, turn);
            assert_eq!(kept, 4_800, "card {i}: WRITEs of {len} bytes at {at}");
        }
    }
}

/// Returns how many of a client's WRITEs of a word are undone by other clients, which meanwhile run `act` on the word.
fn writes_lost(turn: impl FnOnce(&mut CostModel), act: impl AsyncFn(&Endpoint) + Copy + 'static) -> u32 {
    let sim = bed(turn);
    let lost = Rc::new(Cell::new(0));
    let out = Rc::clone(&lost);
    sim.spawn(0, 0, |v| async move {
        for i in 1..2_000u64 {
            v.write(host(4096), &(i << 32).to_le_bytes()).await.unwrap();
            if v.word(host(4096)).await.unwrap() >> 32 != i {
                out.set(out.get() + 1);
            }
        }
    });
    for c in 0..3 {
        sim.spawn(1, c, move |v| async move {
            for _ in 0..2_000 {
                act(&v).await;
            }
        });
    }
    assert_eq!(sim.run(), RunEnd::Finished);
    lost.get()
}

#[test]
fn a_write_between_a_racing_atomics_halves_is_lost() {
    for torn_line_ns in [4.0, 200.0] {
        let lost = |promise| {
            let turn = |m: &mut CostModel| {
                (m.torn_line_ns, m.caps.atomic_vs_write) = (torn_line_ns, promise);
            };
            writes_lost(turn, async |v| {
                let chain = v.chain(N0).write(host(4104), &[1; 300]);
                let _old = chain.faa(host(4096), 1).await.unwrap();
            })
        };
        assert_eq!(lost(AtomicVsWrite::Serialised), 0);
        assert!(lost(AtomicVsWrite::Racy) > 100);
    }
}

#[test]
fn a_cas_that_fails() {
    let lost = |race, failed| {
        let turn = |m: &mut CostModel| (m.caps.atomic_vs_write, m.caps.failed_cas) = (race, failed);
        writes_lost(turn, async |v| {
            assert_ne!(v.cas(host(4096), u64::MAX, 0).await.unwrap(), u64::MAX);
        })
    };
    assert!(lost(AtomicVsWrite::Racy, FailedCas::WritesBack) > 100);
    assert_eq!(lost(AtomicVsWrite::Racy, FailedCas::LeavesAlone), 0);
    assert_eq!(
        lost(AtomicVsWrite::Serialised, FailedCas::WritesBack),
        0,
        "the write-back is invisible"
    );
}

#[test]
fn host_memory_and_the_chip() {
    let overtaken = |ordered| {
        found(
            |m| m.caps.host_before_chip = ordered,
            async |v, i| {
                let chain = v.chain(N0).write(host(4096), &i.to_le_bytes().repeat(250));
                chain.write_word(chip(0), i).await.unwrap();
            },
            async |v| {
                // Read on-chip memory first: if it announces data, the data must already be in host memory.
                let (announced, there) = v.chain(N0).word(chip(0)).word(host(4096 + 1992)).await.unwrap();
                there < announced
            },
        )
    };
    assert_eq!(overtaken(true), 0);
    assert!(overtaken(false) > 0);
}

#[test]
fn requests_that_the_card_lacks_return_the_matching_error() {
    let sim = bed(|m| (m.caps.chip_bytes, m.caps.masked_atomics) = (0, false));
    sim.spawn(0, 0, |v| async move {
        assert!(!v.caps(N0).has(Capability::ChipMemory) && !v.caps(N0).has(Capability::MaskedAtomics));
        let bit = MaskedCas {
            compare: 0,
            compare_mask: 1,
            swap: 1,
            swap_mask: 1,
        };
        let kind = v.chain(N0).masked_cas(host(4096), bit).await.unwrap_err().kind;
        assert_eq!(kind, VerbErrorKind::Unsupported(Capability::MaskedAtomics));
        let kind = v.word(chip(0)).await.unwrap_err().kind;
        assert_eq!(kind, VerbErrorKind::Unsupported(Capability::ChipMemory));
    });
    assert_eq!(sim.run(), RunEnd::Finished);
}

/// Draws a card: any setting of every dial, with slow or fast lines.
fn cards() -> impl Strategy<Value = CostModel> {
    let orders = vec![LineOrder::Any, LineOrder::Increasing];
    let reads = [
        CasThenRead::AnyLineFirst,
        CasThenRead::WholeReadFirst,
        CasThenRead::InOrder,
    ];
    let units = (
        select(vec![AtomicUnit::Word, AtomicUnit::Line]),
        select(orders.clone()),
        select(orders),
    );
    let atomics = (
        select(reads.to_vec()),
        select(vec![AtomicVsWrite::Racy, AtomicVsWrite::Serialised]),
        select(vec![FailedCas::WritesBack, FailedCas::LeavesAlone]),
    );
    let times = (
        any::<bool>(),
        select(vec![Tearing::EqualSpeed, Tearing::Random]),
        select(vec![4.0, 200.0, 5_000.0]),
    );
    (units, atomics, any::<bool>(), times).prop_map(|(units, atomics, host_before_chip, times)| {
        let mut m = CostModel::cx6_roce();
        (m.caps.atomic_unit, m.caps.read_lines, m.caps.write_lines) = units;
        (m.caps.cas_then_read, m.caps.atomic_vs_write, m.caps.failed_cas) = atomics;
        m.caps.host_before_chip = host_before_chip;
        (m.atomics_stall, m.tearing, m.torn_line_ns) = times;
        m
    })
}

/// Runs 12 clients that mix READs, WRITEs, CASes and FAAs on a few lines of both memories, and wait up to a second
/// between verbs. Returns the digest of the run, its number of events, the final memory, and the values of the two
/// counters that no WRITE touches.
fn run(model: CostModel, seed: u64, queue: QueueKind) -> (u64, u64, Vec<u8>, [u64; 2]) {
    let sim = Sim::builder(model)
        .compute_nodes(3)
        .memory_bytes(1 << 16)
        .seed(seed)
        .queue(queue)
        .build()
        .unwrap();
    for c in 0..12 {
        sim.spawn(c % 3, c / 6, |v| async move {
            for _ in 0..40 {
                let r = v.rng(0);
                let (at, len) = (4096 + (r & 0x1F8), 8 + (r >> 16) % 200);
                match r >> 32 & 7 {
                    0 => drop(v.read(host(at), len as u32).await.unwrap()),
                    1 => v.write(host(at), &vec![r as u8; len as usize]).detach(),
                    2 => drop(
                        v.chain(N0)
                            .cas(host(at), 0, r)
                            .read(host(4096), 300)
                            .await
                            .unwrap(),
                    ),
                    3 => drop(
                        v.chain(N0)
                            .write(chip(at), &r.to_le_bytes())
                            .word(host(at))
                            .await
                            .unwrap(),
                    ),
                    4 => v.charge(Nanos(1 << (r >> 40 & 0x1F) >> 1)).await,
                    _ => {}
                }
                let chain = v.chain(N0).write(host(4104), &[r as u8; 150]);
                let _old = chain.faa(host(4096 - 8), 1).faa(chip(0), 1).await.unwrap();
            }
        });
    }
    assert_eq!(sim.run(), RunEnd::Finished);
    let left = sim
        .with_memory(N0, Space::Host, |m| m[4000..5000].to_vec())
        .unwrap();
    let chip = sim.with_memory(N0, Space::Chip, |m| first_word(m)).unwrap();
    (sim.digest(), sim.events(), left, [word(&sim, 4096 - 8), chip])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn on_any_card_one_seed_is_one_run_and_no_increment_is_lost(card in cards(), seed in any::<u64>()) {
        let wheel = run(card.clone(), seed, QueueKind::Wheel);
        prop_assert_eq!(wheel.3, [480, 480]);
        prop_assert_eq!(run(card.clone(), seed, QueueKind::Heap), wheel.clone());
        prop_assert_eq!(run(card, seed, QueueKind::Wheel), wheel);
    }
}

/// Suspended clients see the changes made meanwhile and lose no wake-up. Two runs with one seed are equal.
#[test]
fn stalls() {
    let run = |stalls: Option<Nanos>, seed| {
        let bed = Sim::builder(CostModel::cx5_ib()).compute_nodes(2).seed(seed);
        let sim = match stalls {
            Some(longest) => bed.stalls(10, longest).build().unwrap(),
            None => bed.build().unwrap(),
        };
        for c in 0..8 {
            sim.spawn(c % 2, c / 2, |v| async move {
                for _ in 0..100 {
                    v.faa(host(4096), 1).await.unwrap();
                    v.pause().await;
                }
            });
        }
        assert_eq!(sim.run(), RunEnd::Finished);
        assert_eq!(word(&sim, 4096), 800, "every add counts");
        (sim.now(), sim.digest())
    };
    let (millisecond, plain) = (Some(Nanos::from_millis(1)), run(None, 1));
    let stalled = run(millisecond, 1);
    assert_eq!(stalled, run(millisecond, 1));
    assert_ne!(stalled, run(millisecond, 2));
    // Each client has about twenty stalls, of half a millisecond on average.
    assert!(
        stalled.0 > plain.0 + Nanos::from_millis(5),
        "{stalled:?}, {plain:?}"
    );
}

/// A task that starts in the slot of a suspended task that was cancelled or crashed is not suspended in its place.
#[test]
fn a_suspension_ends_with_its_task() {
    let (mut suspended, mut ran) = (0, 0);
    for seed in 0..64 {
        // A suspension lasts half a second on average, which is far beyond the end of this run.
        let bed = Sim::builder(CostModel::cx5_ib()).seed(seed);
        let sim = bed.stalls(2, Nanos::from_millis(1000)).build().unwrap();
        let has_run = || {
            let flag = Rc::new(Cell::new(false));
            let set = Rc::clone(&flag);
            let task = sim.spawn(0, 0, |v| async move {
                set.set(true);
                v.charge(Nanos::from_millis(1)).await;
            });
            sim.run_for(Nanos::from_micros(2));
            (task, flag.get())
        };
        let (first, first_ran) = has_run();
        if first_ran {
            continue;
        }
        suspended += 1;
        assert!(if seed % 2 == 0 {
            sim.cancel(first)
        } else {
            sim.crash(first)
        });
        ran += u32::from(has_run().1);
    }
    assert!(suspended > 10 && ran > 0, "{ran} of {suspended}");
    assert!(
        ran < suspended,
        "a new task can be suspended too: {ran} of {suspended}"
    );
}
