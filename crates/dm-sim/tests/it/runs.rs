//! Whole runs on four testbeds. Each run must have its recorded hash. The hash covers everything that clients observe
//! (including the contents of READs), the counters of the cards, and the final memory. A change of the engine that is
//! not meant to change the model must leave the hashes as they are. After a change of the model, record new ones.
#![expect(clippy::unwrap_used, reason = "a test panics")]

use std::cell::Cell;
use std::ops::Deref;
use std::rc::Rc;

use dm_sim::{CostModel, Endpoint, QueueKind, Sim, SimBuilder, Tearing};
use dm_verbs::{
    AtomicUnit, AtomicVsWrite, CasThenRead, ChipPtr, ClientId, Control, ControlRequest, Env, FailedCas,
    LineOrder, Nanos, NodeId, RemotePtr, Space, VerbError, Verbs,
};

/// The hash of a run so far.
#[derive(Clone, Default)]
struct Seen(Rc<Cell<u64>>);

impl Seen {
    fn add(&self, bytes: &[u8]) {
        let add = |hash: u64, part: &[u8]| {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            (hash ^ u64::from_le_bytes(word))
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .rotate_left(29)
        };
        self.0.set(bytes.chunks(8).fold(self.0.get(), add));
    }

    /// Adds the result that client `v` has just received from `at`: bytes, or an error.
    fn got(&self, v: &Endpoint, at: RemotePtr, result: Result<impl Deref<Target = [u8]>, VerbError>) {
        self.add(
            &[u64::from(v.client().0), v.now().0, at.raw()]
                .map(u64::to_le_bytes)
                .concat(),
        );
        match result {
            Ok(bytes) => self.add(&bytes),
            Err(error) => self.add(format!("{error:?}").as_bytes()),
        }
    }
}

fn word(result: Result<u64, VerbError>) -> Result<Vec<u8>, VerbError> {
    result.map(|word| word.to_le_bytes().to_vec())
}

/// Runs `steps` random steps: READs, WRITEs and atomics, alone and in chains, on a few KB that all clients share.
async fn client(v: Endpoint, nodes: u64, steps: u32, seen: Seen) {
    let fill = v.client().0 as u8;
    for step in 0..steps {
        let r = v.rng(0);
        let node = NodeId((r >> 60) as u16 % nodes as u16);
        let any = RemotePtr::new(node, 4096 + r % 3000).unwrap();
        let leaf = RemotePtr::new(node, 4096 + r % 3 * 1024).unwrap();
        let aligned = leaf.add(r >> 8 & 0x3F8);
        let lock = ChipPtr::new(node, (r >> 8) % 12 * 8).unwrap();
        let len = 1 + (r >> 24) as u32 % 1100;
        let payload = vec![fill ^ step as u8; len as usize];
        match r >> 40 & 15 {
            0 | 1 => seen.got(&v, leaf, v.read(leaf, 1024).await),
            2 => seen.got(&v, any, v.read(any, len).await),
            3 => seen.got(&v, any, v.read(any, 1 + len % 64).await),
            4 => {
                // Three requests at once. One of them is dropped.
                let (first, second) = (v.read(leaf, 1024), v.read(any, len));
                drop(v.read(any, 300));
                seen.got(&v, any, second.await);
                seen.got(&v, leaf, first.await);
            }
            5 | 6 => {
                let written = v.write(leaf, &[fill ^ step as u8; 1024]).await;
                seen.got(&v, leaf, written.map(|()| Vec::new()));
            }
            7 => seen.got(&v, any, v.write(any, &payload).await.map(|()| Vec::new())),
            8 => v.write(any, &payload[..payload.len().min(24)]).detach(),
            9 => seen.got(&v, aligned, word(v.cas(aligned, r & 1, r).await)),
            10 => {
                let chain = v.chain(node).write(any, &payload).faa(aligned, 1);
                seen.got(&v, aligned, word(chain.await));
            }
            11 => {
                let result = v.chain(node).cas(aligned, 0, r).read(leaf, 1024).await;
                match result {
                    Ok((old, lease)) => {
                        seen.got(&v, aligned, word(Ok(old)));
                        seen.got(&v, leaf, Ok(lease));
                    }
                    Err(error) => seen.got(&v, aligned, word(Err(error))),
                }
            }
            12 => {
                let chain = v.chain(node).write(leaf, &payload).fence().word(lock);
                seen.got(&v, leaf, word(chain.await));
            }
            13 => v.charge(Nanos(r >> 50 & 0xFFF)).await,
            _ => {
                // A lock on chip, a READ of the leaf, and a chain that changes an entry and unlocks.
                let old = v.cas(lock, 0, u64::from(fill)).await;
                let free = old == Ok(0);
                seen.got(&v, leaf, word(old));
                seen.got(&v, leaf, v.read(leaf, 1024).await);
                if free {
                    let chain = v.chain(node).write(aligned, &payload[..payload.len().min(100)]);
                    let unlocked = chain.write_word(lock, 0).await;
                    seen.got(&v, aligned, unlocked.map(|()| Vec::new()));
                }
            }
        }
    }
}

/// Starts 40 clients on `bed`, which has 4 compute nodes and 2 memory nodes.
fn start(bed: SimBuilder, queue: QueueKind) -> (Sim, Seen, Vec<dm_sim::TaskId>) {
    let bed = bed.compute_nodes(4).memory_nodes(2).memory_bytes(1 << 14);
    let (sim, seen) = (bed.queue(queue).build().unwrap(), Seen::default());
    let spawn = |c: u16| {
        let seen = seen.clone();
        sim.spawn(c % 4, c / 8, |v| client(v, 2, 400, seen))
    };
    let tasks = (0..40).map(spawn).collect();
    (sim, seen, tasks)
}

/// Ends a run, and returns its hash.
fn end(sim: &Sim, seen: &Seen) -> u64 {
    let finished = sim.run();
    let mut windows = 0;
    for n in 0..2 {
        for space in [Space::Host, Space::Chip] {
            sim.with_memory(NodeId(n), space, |m| seen.add(m)).unwrap();
        }
        let cards = [
            sim.memory_nic(NodeId(n)),
            sim.compute_nic(n),
            sim.compute_nic(n + 2),
        ];
        seen.add(format!("{cards:?}").as_bytes());
        windows += cards[0].torn_windows;
    }
    // The recorded hashes are older than these counters, which are 0 here.
    let meter = ["lock_wait_ns: 0, ", "restored_blocks: 0, "]
        .iter()
        .fold(format!("{:?}", sim.meter()), |text, newer| {
            text.replace(newer, "")
        });
    let seen_in_all = format!("{finished:?} ({:?}, {:?}, {meter})", sim.now(), sim.verbs());
    seen.add(seen_in_all.as_bytes());
    seen.add(&sim.digest().to_le_bytes());
    assert!(windows > 8_000, "only {windows} transfers moved in two steps");
    seen.0.get()
}

fn assert_runs(run: impl Fn(QueueKind) -> u64, expected: u64) {
    for queue in [QueueKind::Wheel, QueueKind::Heap] {
        let hash = run(queue);
        assert_eq!(
            hash, expected,
            "{queue:?}: {hash:#018x} instead of {expected:#018x}"
        );
    }
}

#[test]
fn a_card_that_keeps_every_promise() {
    let run = |queue| {
        let (sim, seen, _) = start(Sim::builder(CostModel::cx5_ib()).seed(11), queue);
        end(&sim, &seen)
    };
    assert_runs(run, 0x6a8d_5640_070c_d5d2);
}

#[test]
fn a_card_that_keeps_no_promise() {
    let run = |queue| {
        let mut model = CostModel::cx6_roce();
        model.torn_line_ns = 20.0;
        (model.caps.atomic_unit, model.caps.failed_cas) = (AtomicUnit::Word, FailedCas::WritesBack);
        (model.caps.read_lines, model.caps.write_lines) = (LineOrder::Any, LineOrder::Any);
        (model.caps.cas_then_read, model.caps.atomic_vs_write) =
            (CasThenRead::AnyLineFirst, AtomicVsWrite::Racy);
        model.caps.host_before_chip = false;
        let (sim, seen, _) = start(Sim::builder(model).colocated(true).seed(12), queue);
        end(&sim, &seen)
    };
    assert_runs(run, 0x06d3_c463_b17c_7cb7);
}

#[test]
fn slow_words_and_every_fault() {
    let run = |queue| {
        let mut model = CostModel::cx6_roce();
        (model.torn_line_ns, model.tearing) = (60.0, Tearing::EqualSpeed);
        (model.caps.atomic_unit, model.caps.write_lines) = (AtomicUnit::Word, LineOrder::Any);
        let bed = Sim::builder(model).stalls(20, Nanos::from_micros(30)).seed(13);
        let (sim, seen, tasks) = start(bed, queue);
        sim.cut_off(NodeId(1), Nanos::from_micros(300));
        sim.restore(NodeId(1), Nanos::from_micros(340));
        sim.spawn(0, 9, |v| async move {
            v.charge(Nanos::from_micros(200)).await;
            let fence = ControlRequest::Fence { client: ClientId(7) };
            v.call(fence).await.unwrap();
        });
        sim.run_until(Nanos::from_micros(150));
        assert!(sim.cancel(tasks[3]) && sim.crash(tasks[4]));
        end(&sim, &seen)
    };
    assert_runs(run, 0xde31_2d08_435c_bee7);
}

#[test]
fn a_card_with_many_events_at_the_same_time() {
    let run = |queue| {
        let mut model = CostModel::cx6_roce();
        (model.tearing, model.torn_line_ns) = (Tearing::EqualSpeed, 20.0);
        (model.jitter_ns, model.link_ns_per_byte, model.pcie_ns_per_byte) = (0.0, 0.0, 0.0);
        (
            model.requester_ns,
            model.responder_read_ns,
            model.responder_line_ns,
        ) = (20.0, 20.0, 0.0);
        (
            model.responder_write_ns,
            model.responder_atomic_ns,
            model.responder_chip_ns,
        ) = (20.0, 20.0, 20.0);
        (model.bucket_cas_ns, model.bucket_faa_ns, model.bucket_chip_ns) = (140.0, 280.0, 40.0);
        let (sim, seen, _) = start(Sim::builder(model).seed(0), queue);
        end(&sim, &seen)
    };
    assert_runs(run, 0x0b98_13dc_c435_6cef);
}
