//! Tests of a node in every state: the answers that readers and writers get, and the state that writers leave.

use dm_index::{
    Answer, Applied, Condition, IndexError, Inspected, Key8, Lead, NodeAccess, NodeCopies, NodeCopy,
    Restructure, Stale, Tended, Write,
};
use dm_layout::{
    Checksummed, FenceKeys, Leaf, NodeEdit, NodeFormat, NodeInit, NodeRead, NodeShape, NodeState, NodeSteps,
    NodeStructure, Place, Slotted, SplitRequest, ValueRef,
};
use dm_leaf::Nodes;
use dm_lock::{GlobalLockTable, Locks};
use dm_loopback::{Endpoint, Loopback, Trouble, block_on};
use dm_verbs::{NodeId, RemotePtr, Verbs};

use crate::common::{Setup, cost, pool};

/// The keys of a node that covers 10 to 50.
const KEYS: [u64; 2] = [10, 20];
const VALUE: [u8; 8] = [1; 8];

struct One<F> {
    pool: Loopback,
    v: Endpoint,
    nodes: Nodes<Key8, F>,
    format: F,
    at: RemotePtr,
}

fn at(node: u16, line: u64) -> RemotePtr {
    RemotePtr::new(NodeId(node), 1 << 20 | line << 12).unwrap()
}

impl<F: NodeFormat<Key8> + Clone> One<F> {
    /// Makes a node from `init` with those of the `KEYS` that the node covers, and applies `change` to its bytes. The
    /// node's memory is not from the allocator.
    fn new(format: &F, init: NodeInit<Key8>, change: impl FnOnce(&F, &mut Vec<u8>)) -> Self {
        let pool = pool(2);
        let v = pool.connect(0).unwrap();
        let this = Self {
            nodes: Setup::plain().nodes(format.clone(), 2, 0),
            pool,
            v,
            format: format.clone(),
            at: at(0, 0),
        };
        this.put(this.at, init, change);
        this
    }

    fn put(&self, at: RemotePtr, init: NodeInit<Key8>, change: impl FnOnce(&F, &mut Vec<u8>)) {
        let mut image = vec![0; self.format.node_bytes()];
        let inside = |key: &u64| init.fences.contains(&Key8(*key));
        let entries = KEYS
            .iter()
            .filter(|key| inside(key))
            .map(|key| (Key8(*key), ValueRef::from(&VALUE[..])));
        self.format.build(&mut image, &init, entries.collect::<Vec<_>>());
        change(&self.format, &mut image);
        block_on(self.v.write(at, &image)).unwrap();
    }

    fn image(&self, at: RemotePtr) -> Vec<u8> {
        block_on(self.v.read(at, self.format.node_bytes() as u32))
            .unwrap()
            .to_vec()
    }

    fn lead(&self, linked: bool) -> Lead {
        Lead { at: self.at, linked }
    }

    fn get(&self, linked: bool, key: u64) -> Result<Answer<Key8, bool>, IndexError> {
        block_on(
            self.nodes
                .get(&self.v, self.lead(linked), 0, &Key8(key), &mut Vec::new()),
        )
    }

    fn write(&self, linked: bool, key: u64, write: Write<'_>) -> Result<Answer<Key8, Applied>, IndexError> {
        block_on(
            self.nodes
                .write(&self.v, self.lead(linked), 0, &Key8(key), write, None),
        )
    }

    /// Tries a get and all kinds of writes but an exchange. Checks the answer of the get, and that all writes end with
    /// the same answer.
    #[track_caller]
    fn says(&self, linked: bool, key: u64, get: &str, written: &str) {
        assert_eq!(told(&self.get(linked, key)), get, "get of {key}");
        for write in [
            Write::Insert(&VALUE),
            Write::Update(&VALUE),
            Write::Upsert(&VALUE),
            Write::Remove,
        ] {
            assert_eq!(
                told(&self.write(linked, key, write)),
                written,
                "{write:?} of {key}"
            );
        }
    }
}

fn told<T: core::fmt::Debug>(answer: &Result<Answer<Key8, T>, IndexError>) -> String {
    match answer {
        Ok(Answer::Done(done)) => format!("{done:?}"),
        Ok(Answer::Sparse(done)) => format!("{done:?}, sparse"),
        Ok(Answer::Split(done, split)) => {
            let done = done
                .as_ref()
                .map_or("undone".to_owned(), |done| format!("{done:?}"));
            format!("{done}, split at {}", split.separator.0)
        }
        Ok(Answer::Stale(Stale::Elsewhere)) => "elsewhere".to_owned(),
        Ok(Answer::Stale(Stale::Right(lead))) => {
            format!(
                "right to {}{}",
                lead.at.offset() >> 12 & 0xff,
                if lead.linked { ", linked" } else { "" }
            )
        }
        Err(IndexError::Corrupt { .. }) => "corrupt".to_owned(),
        Err(IndexError::Exhausted(_)) => "exhausted".to_owned(),
        Err(other) => format!("{other}"),
    }
}

fn slotted() -> Slotted<Key8> {
    Slotted::with_span(4, 8).unwrap()
}

fn live(sibling: u64) -> NodeInit<Key8> {
    NodeInit {
        sibling,
        ..NodeInit::live(0, FenceKeys::new(Key8(10), Some(Key8(50))))
    }
}

fn unborn(fences: FenceKeys<Key8>) -> NodeInit<Key8> {
    NodeInit {
        state: NodeState::Splitting,
        owner: 7,
        ..NodeInit::live(0, fences)
    }
}

/// Runs a check for each format.
macro_rules! every_format {
    ($check:ident) => {
        $check(&slotted());
        $check(&Leaf::with_node_bytes(256, 8, true).unwrap());
        $check(&Checksummed::with_span(4, 8).unwrap());
    };
}

#[test]
fn a_live_node_answers_for_its_keys_and_leads_to_others() {
    fn check<F: NodeFormat<Key8> + Clone>(format: &F) {
        let one = One::new(format, live(at(0, 3).raw()), |_, _| {});
        for linked in [false, true] {
            assert_eq!(told(&one.get(linked, 10)), "true");
            assert_eq!(told(&one.get(linked, 11)), "false");
            one.says(linked, 9, "elsewhere", "elsewhere");
            one.says(linked, 50, "right to 3, linked", "right to 3, linked");
        }
        let mut copy = NodeCopy::new();
        assert_eq!(block_on(one.nodes.copy(&one.v, one.at, &mut copy)), Ok(true));
        assert_eq!(
            (copy.at, copy.level, copy.unborn, copy.sibling),
            (one.at, 0, false, at(0, 3))
        );
        assert_eq!(copy.fences, FenceKeys::new(Key8(10), Some(Key8(50))));
        let entries: Vec<_> = copy.iter().map(|(key, value)| (key.0, value.to_vec())).collect();
        assert_eq!(entries, KEYS.map(|key| (key, VALUE.to_vec())));
        // One node has another level, and one has a high fence key but no right neighbour.
        let other = One::new(format, NodeInit { level: 1, ..live(64) }, |_, _| {});
        other.says(true, 10, "elsewhere", "elsewhere");
        let alone = One::new(format, live(0), |_, _| {});
        alone.says(true, 50, "corrupt", "corrupt");
        assert_eq!(told(&alone.get(true, 10)), "true");
    }
    every_format!(check);
}

#[test]
fn a_dead_node_forwards_by_a_hint() {
    fn check<F: NodeFormat<Key8> + Clone>(format: &F) {
        for (forward, says) in [(at(0, 5).raw(), "right to 5"), (0, "elsewhere")] {
            let one = One::new(format, live(0), |format, image| {
                format.freeze(image, 9).unwrap();
                format.bury(image, forward).unwrap();
            });
            for key in [9, 10, 50] {
                one.says(true, key, says, says);
            }
            assert_eq!(
                block_on(one.nodes.copy(&one.v, one.at, &mut NodeCopy::new())),
                Ok(false)
            );
        }
    }
    every_format!(check);
}

/// A client with an old address cannot know whether an unborn node is linked, so it does not use the node.
#[test]
fn an_unborn_node_is_not_used_through_a_hint() {
    fn check<F: NodeFormat<Key8> + Clone>(format: &F) {
        let fences = FenceKeys::new(Key8(10), Some(Key8(50)));
        let one = One::new(format, unborn(fences), |_, _| {});
        one.says(false, 10, "elsewhere", "elsewhere");
        assert_eq!(told(&one.get(true, 10)), "true");
        let mut copy = NodeCopy::new();
        assert_eq!(block_on(one.nodes.copy(&one.v, one.at, &mut copy)), Ok(true));
        assert!(copy.unborn);
        // If the format has a state word, the client that has made the split makes the node live without a lock. That
        // client may still be alive, so a writer waits for it.
        let waits = format.state_word().is_some();
        let written = one.write(true, 10, Write::Update(&VALUE));
        assert_eq!(told(&written), if waits { "exhausted" } else { "Replaced" });
        // Any writer that finds a linked, unborn root makes the root live.
        let root = One::new(format, unborn(FenceKeys::ALL), |_, _| {});
        assert_eq!(told(&root.write(false, 10, Write::Update(&VALUE))), "elsewhere");
        assert_eq!(told(&root.write(true, 10, Write::Update(&VALUE))), "Replaced");
        let header = format.header(&root.image(root.at)).unwrap();
        assert_eq!(header.state, NodeState::Live);
        assert_eq!(told(&root.get(false, 10)), "true");
    }
    every_format!(check);
}

/// If a frozen node does not name the other node of its merge, it cannot be mended. Readers use it, and writers wait.
#[test]
fn a_frozen_node_is_read_and_waited_for() {
    fn check<F: NodeFormat<Key8> + Clone>(format: &F) {
        let one = One::new(format, live(0), |format, image| {
            format.freeze(image, 0).unwrap();
        });
        assert_eq!(
            (told(&one.get(false, 10)), told(&one.get(false, 11))),
            ("true".to_owned(), "false".to_owned())
        );
        let (written, cost) = cost(
            &one.v,
            one.nodes
                .write(&one.v, one.lead(true), 0, &Key8(10), Write::Remove, None),
        );
        assert_eq!(told(&written), "exhausted");
        // The writer uses all of its attempts, and takes the lock each time.
        assert!(
            cost.starts_with("64 reads") && cost.contains("64 masked_cas"),
            "{cost}"
        );
        // The lock is free again.
        one.put(one.at, live(0), |_, _| {});
        assert_eq!(told(&one.write(true, 10, Write::Update(&VALUE))), "Replaced");
    }
    every_format!(check);
}

/// A torn node is read again a bounded number of times, and then causes an error. Bytes that are not a node cause an
/// error at once.
#[test]
fn torn_bytes_are_read_again_and_garbage_is_reported() {
    fn check<F: NodeFormat<Key8> + Clone>(format: &F) {
        let line = format.node_bytes() - 64;
        let torn = One::new(format, live(0), |_, image| image[line] ^= 0x55);
        let (got, spent) = cost(
            &torn.v,
            torn.nodes
                .get(&torn.v, torn.lead(true), 0, &Key8(11), &mut Vec::new()),
        );
        assert_eq!(told(&got), "exhausted");
        assert!(spent.starts_with("64 reads"), "{spent}");
        assert_eq!(told(&torn.write(true, 11, Write::Insert(&VALUE))), "exhausted");
        let copied = block_on(torn.nodes.copy(&torn.v, torn.at, &mut NodeCopy::new()));
        assert!(matches!(copied, Err(IndexError::Exhausted(_))), "{copied:?}");
        let garbage = One::new(format, live(0), |_, image| image.fill(0xff));
        garbage.says(true, 10, "corrupt", "corrupt");
        let copied = block_on(garbage.nodes.copy(&garbage.v, garbage.at, &mut NodeCopy::new()));
        assert!(matches!(copied, Err(IndexError::Corrupt { node, .. }) if node == garbage.at));
        // The lock is free again.
        torn.put(torn.at, live(0), |_, _| {});
        assert_eq!(told(&torn.write(true, 11, Write::Insert(&VALUE))), "Inserted");
    }
    every_format!(check);
}

/// Copies of several nodes are returned in their order, up to the first node that is torn or dead. If a corrupt node
/// comes earlier, an error is returned.
#[test]
fn copies_end_at_the_first_node_that_is_torn_or_dead() {
    fn check<F: NodeFormat<Key8> + Clone>(format: &F) {
        let one = One::new(format, live(0), |_, _| {});
        let all: Vec<_> = (0..70).map(|n| at((n % 2) as u16, n)).collect();
        for at in &all {
            one.put(*at, live(0), |_, _| {});
        }
        let shown = |one: &One<F>, most: usize| {
            let mut shown = Vec::new();
            let each = |copy: &NodeCopy<Key8>| {
                shown.push(copy.at);
                assert_eq!(copy.entries.len(), 2);
                shown.len() < most
            };
            let done = block_on(one.nodes.copies(&one.v, &all, &mut NodeCopy::new(), each));
            done.map(|()| shown)
        };
        assert_eq!(shown(&one, 99), Ok(all.clone()));
        assert_eq!(shown(&one, 40), Ok(all[..40].to_vec()));
        let (_, spent) = cost(&one.v, async { shown(&one, 99) });
        assert!(
            spent.contains("70 reads") && spent.contains("3 round_trips"),
            "{spent}"
        );
        one.put(all[50], live(0), |format, image| {
            image[format.node_bytes() - 64] ^= 0x55
        });
        assert_eq!(shown(&one, 99), Ok(all[..50].to_vec()));
        one.put(all[40], live(0), |format, image| {
            format.freeze(image, 9).unwrap();
            format.bury(image, 0).unwrap();
        });
        assert_eq!(shown(&one, 99), Ok(all[..40].to_vec()));
        one.put(all[33], live(0), |_, image| image.fill(0xff));
        assert!(matches!(shown(&one, 99), Err(IndexError::Corrupt { node, .. }) if node == all[33]));
    }
    every_format!(check);
}

/// The next writer finishes a split that was abandoned after the right node was linked. The right node may be on any
/// memory node, and may already be live.
#[test]
fn an_abandoned_split_is_finished_by_the_next_writer() {
    fn check<F: NodeFormat<Key8> + Clone>(format: &F) {
        for (home, opened, key) in [
            (0, false, 10),
            (0, true, 20),
            (1, false, 20),
            (1, true, 10),
            (1, false, 10),
        ] {
            let right_at = at(home, 1);
            let (one, mut right) = given_up(format, right_at);
            if opened {
                one.format.open(&mut right).unwrap();
            }
            block_on(one.v.write(right_at, &right)).unwrap();
            assert_eq!(told(&one.get(false, 10)), "true", "readers must continue");
            let expected = if key == 10 {
                "Replaced"
            } else {
                "right to 1, linked"
            };
            assert_eq!(told(&one.write(false, key, Write::Update(&VALUE))), expected);
            for (at, low, high, sibling) in [(one.at, 10, 20, right_at), (right_at, 20, 50, at(0, 3))] {
                let image = one.image(at);
                let header = dm_layout::audit(format, &image).unwrap();
                assert_eq!(header.state, NodeState::Live, "{home}, {opened}");
                assert_eq!(header.fences, FenceKeys::new(Key8(low), Some(Key8(high))));
                assert_eq!((header.sibling, format.len(&image)), (sibling.raw(), Ok(1)));
            }
        }
    }
    check(&slotted());
    check(&Leaf::with_node_bytes(256, 8, true).unwrap());
}

/// A sweep of an index finishes a split too, without a write.
#[test]
fn an_abandoned_split_is_finished_by_a_sweep() {
    fn check<F: NodeFormat<Key8> + Clone>(format: &F) {
        let right_at = at(1, 1);
        let (one, right) = given_up(format, right_at);
        block_on(one.v.write(right_at, &right)).unwrap();
        // The left node shows the split, so tending the right node alone changes nothing.
        assert_eq!(block_on(one.nodes.tend(&one.v, right_at)), Ok(Tended::Sound));
        assert_eq!(block_on(one.nodes.tend(&one.v, one.at)), Ok(Tended::Mended));
        assert_eq!(block_on(one.nodes.tend(&one.v, one.at)), Ok(Tended::Sound));
        for (at, low, high) in [(one.at, 10, 20), (right_at, 20, 50)] {
            let image = one.image(at);
            let header = dm_layout::audit(format, &image).unwrap();
            assert_eq!(header.state, NodeState::Live);
            assert_eq!(header.fences, FenceKeys::new(Key8(low), Some(Key8(high))));
            assert_eq!(format.len(&image), Ok(1));
        }
        // If the creator of an unborn root has died, only a writer or a sweep makes the root live.
        let root = One::new(format, unborn(FenceKeys::ALL), |_, _| {});
        assert_eq!(block_on(root.nodes.tend(&root.v, root.at)), Ok(Tended::Mended));
        let header = format.header(&root.image(root.at)).unwrap();
        assert_eq!(header.state, NodeState::Live);
    }
    check(&slotted());
    check(&Leaf::with_node_bytes(256, 8, true).unwrap());
}

/// Another client finishes the change between a sweep's first READ and its lock. The sweep changes nothing and waits
/// for nothing.
#[test]
fn a_sweep_that_comes_too_late_reads_the_node_again() {
    let format = slotted();
    let pool = Loopback::builder().nodes(2).host_bytes(2 << 20);
    let pool = pool.suspend_every_wait().build().unwrap();
    let (v, w) = (pool.connect(0).unwrap(), pool.connect(1).unwrap());
    let mut setup = Setup::plain();
    // A sweep that waits once ends in an error.
    setup.nodes.attempts = 1;
    let nodes = setup.nodes(format, 2, 0);
    let mut image = vec![0; format.node_bytes()];
    format.build(&mut image, &live(0), []);
    let whole = image.clone();
    format.freeze(&mut image, 9).unwrap();
    block_on(w.write(at(0, 0), &image)).unwrap();
    let mut tending = Box::pin(nodes.tend(&v, at(0, 0)));
    let mut first = true;
    let work = core::future::poll_fn(|cx| {
        let polled = tending.as_mut().poll(cx);
        if core::mem::take(&mut first) {
            w.write(at(0, 0), &whole).detach();
        }
        polled
    });
    let (tended, spent) = cost(&v, work);
    assert_eq!(tended, Ok(Tended::Sound));
    let expected = "3 reads, 1 writes, 384 bytes_read, 8 bytes_written, 4 round_trips, 1 masked_cas";
    assert_eq!(spent, expected);
}

/// A check looks at nodes in every state, and changes none of them.
#[test]
fn a_check_reports_the_state_of_a_node() {
    fn check<F: NodeFormat<Key8> + Clone>(format: &F) {
        let one = One::new(format, live(0), |_, _| {});
        let inspect = |at| {
            let mut copy = NodeCopy::new();
            let (seen, spent) = cost(&one.v, one.nodes.inspect(&one.v, at, &mut copy));
            (seen, spent, copy)
        };
        let reads = |n: usize, of_lock: bool| {
            let bytes = n * format.node_bytes() + if of_lock { 8 } else { 0 };
            let all = n + usize::from(of_lock);
            format!("{all} reads, {bytes} bytes_read, {all} round_trips")
        };
        // The lock of a live node is not read, even if it is held.
        let locks = Locks::new(Setup::plain().locks, GlobalLockTable::on_chip(2, 64));
        let w = one.pool.connect(1).unwrap();
        for held in [false, true] {
            let guard = held.then(|| block_on(locks.lock(&w, one.at)).unwrap());
            let corrupt = |condition| matches!(condition, Condition::Corrupt(_));
            let torn = format.node_bytes() - 64;
            type Change<F> = (fn(Condition) -> bool, Box<dyn Fn(&F, &mut Vec<u8>)>);
            let changes: [Change<F>; 5] = [
                (|condition| condition == Condition::Live, Box::new(|_, _| {})),
                (
                    |condition| condition == Condition::Frozen,
                    Box::new(|format, image| {
                        format.freeze(image, 9).unwrap();
                    }),
                ),
                (
                    |condition| condition == Condition::Dead,
                    Box::new(|format, image| {
                        format.freeze(image, 9).unwrap();
                        format.bury(image, 0).unwrap();
                    }),
                ),
                (corrupt, Box::new(|_, image| image.fill(0xff))),
                (
                    |condition| condition == Condition::Torn,
                    Box::new(move |_, image| image[torn] ^= 0x55),
                ),
            ];
            for (n, (is, change)) in changes.into_iter().enumerate() {
                one.put(one.at, live(0), change);
                let before = one.image(one.at);
                let (seen, spent, copy) = inspect(one.at);
                let seen = seen.unwrap();
                assert!(is(seen.condition), "{n}: {seen:?}");
                assert_eq!((seen.held, seen.strays), (held && n > 0, 0), "{n}");
                // A torn node is read again a few times, because a WRITE may be in progress.
                let times = if seen.condition == Condition::Torn { 8 } else { 1 };
                assert!(spent.starts_with(&reads(times, n > 0)), "{n}: {spent}");
                assert_eq!(
                    copy.at,
                    if corrupt(seen.condition) {
                        RemotePtr::NULL
                    } else {
                        one.at
                    }
                );
                assert_eq!(one.image(one.at), before);
            }
            drop(guard);
        }
        one.put(one.at, unborn(FenceKeys::ALL), |_, _| {});
        assert_eq!(inspect(one.at).0.unwrap().condition, Condition::Unborn);
        // A pointer that leads nowhere is a finding, and a memory node that does not answer is an error.
        for nowhere in [at(9, 0), RemotePtr::new(NodeId(0), 1 << 40).unwrap()] {
            assert_eq!(inspect(nowhere).0, Ok(Inspected::NOWHERE));
        }
        one.pool.cut(NodeId(0), Trouble::Unreachable);
        assert!(inspect(one.at).0.is_err());
        // A sweep reports bytes that are not a node, and takes no lock for them.
        one.pool.restore(NodeId(0));
        one.put(one.at, live(0), |_, image| image.fill(0xff));
        let (tended, spent) = cost(&one.v, one.nodes.tend(&one.v, one.at));
        assert!(matches!(tended, Err(IndexError::Corrupt { node, .. }) if node == one.at));
        assert_eq!(spent, reads(1, false));
    }
    every_format!(check);
    // Two entries lie outside of the fence keys, and one lies inside.
    fn strays<F: NodeFormat<Key8> + Clone>(format: &F) {
        let fences = FenceKeys::new(Key8(20), Some(Key8(30)));
        let one = One::new(format, NodeInit::live(0, fences), |format, image| {
            let entries = [10, 20, 40].map(|key| (Key8(key), ValueRef::from(&VALUE[..])));
            format.build(image, &NodeInit::live(0, fences), entries);
        });
        let mut copy = NodeCopy::new();
        let seen = block_on(one.nodes.inspect(&one.v, one.at, &mut copy)).unwrap();
        assert_eq!((seen.condition, seen.strays), (Condition::Live, 2));
        assert_eq!(copy.entries.len(), 1);
    }
    strays(&slotted());
    strays(&Checksummed::with_span(4, 8).unwrap());
    let (left, _) = given_up(&slotted(), at(0, 1));
    let seen = block_on(left.nodes.inspect(&left.v, left.at, &mut NodeCopy::new()));
    assert_eq!(seen.unwrap().condition, Condition::Splitting);
}

/// Writes several times to an empty root. Returns the answer to each write, and its cost.
fn costs<F: NodeFormat<Key8> + Clone>(format: &F, setup: Setup) -> Vec<String> {
    let pool = pool(1);
    let v = pool.connect(0).unwrap();
    let nodes = setup.nodes(format.clone(), 1, 0);
    let first = block_on(nodes.create(&v, 0, FenceKeys::ALL, &[], false)).unwrap();
    let met = |before, after| Write::Exchange { before, after };
    let writes: [(u64, Write<'_>); 8] = [
        (1, Write::Insert(&[1; 8])),
        (1, Write::Insert(&[1; 8])),
        (1, Write::Update(&[2; 8])),
        (2, Write::Update(&[2; 8])),
        (1, met(Some(&[2; 8]), Some(&[3; 8]))),
        (1, met(Some(&[2; 8]), None)),
        (1, Write::Remove),
        (1, Write::Remove),
    ];
    let told = |(key, write)| {
        let key = Key8(key);
        let (done, spent) = cost(&v, nodes.write(&v, Lead::hint(first.at), 0, &key, write, None));
        format!("{}: {spent}", told(&done))
    };
    writes.into_iter().map(told).collect()
}

/// Checks the cost of every write, exact to the byte.
#[test]
fn every_write_costs_what_it_must() {
    let (plain, sharing) = (Setup::plain(), Setup::sharing());
    let packed = Leaf::with_node_bytes(256, 8, true).unwrap();
    let found = [
        costs(&slotted(), plain),
        costs(&slotted(), sharing),
        costs(&packed, sharing),
        costs(&Checksummed::with_span(4, 8).unwrap(), plain),
    ];
    let expected: [[&str; 8]; 4] = [
        // Slotted, exclusive locks.
        [
            "Inserted: 1 reads, 2 writes, 128 bytes_read, 25 bytes_written, 2 round_trips, 1 masked_cas",
            "Present: 1 reads, 1 writes, 128 bytes_read, 8 bytes_written, 2 round_trips, 1 masked_cas",
            "Replaced: 1 reads, 2 writes, 128 bytes_read, 16 bytes_written, 2 round_trips, 1 masked_cas",
            "Absent: 1 reads, 1 writes, 128 bytes_read, 8 bytes_written, 2 round_trips, 1 masked_cas",
            "Replaced: 1 reads, 2 writes, 128 bytes_read, 16 bytes_written, 2 round_trips, 1 masked_cas",
            "Differs: 1 reads, 1 writes, 128 bytes_read, 8 bytes_written, 2 round_trips, 1 masked_cas",
            "Removed: 1 reads, 2 writes, 128 bytes_read, 9 bytes_written, 2 round_trips, 1 masked_cas",
            "Absent: 1 reads, 1 writes, 128 bytes_read, 8 bytes_written, 2 round_trips, 1 masked_cas",
        ],
        // Slotted, shared locks: an update takes a share of the node's lock by FAA.
        [
            "Inserted: 1 reads, 1 writes, 128 bytes_read, 17 bytes_written, 2 round_trips, 2 masked_cas",
            "Present: 1 reads, 128 bytes_read, 2 round_trips, 2 masked_cas",
            "Replaced: 1 reads, 1 writes, 128 bytes_read, 8 bytes_written, 2 round_trips, 2 faa",
            "Absent: 1 reads, 128 bytes_read, 2 round_trips, 2 faa",
            "Replaced: 1 reads, 1 writes, 128 bytes_read, 8 bytes_written, 2 round_trips, 2 masked_cas",
            "Differs: 1 reads, 128 bytes_read, 2 round_trips, 2 masked_cas",
            "Removed: 1 reads, 1 writes, 128 bytes_read, 1 bytes_written, 2 round_trips, 2 masked_cas",
            "Absent: 1 reads, 128 bytes_read, 2 round_trips, 2 masked_cas",
        ],
        // Packed, shared locks.
        [
            "Inserted: 1 reads, 1 writes, 256 bytes_read, 21 bytes_written, 2 round_trips, 2 masked_cas",
            "Present: 1 reads, 256 bytes_read, 2 round_trips, 2 masked_cas",
            "Replaced: 1 reads, 1 writes, 256 bytes_read, 8 bytes_written, 2 round_trips, 2 faa",
            "Absent: 1 reads, 256 bytes_read, 2 round_trips, 2 faa",
            "Replaced: 1 reads, 1 writes, 256 bytes_read, 8 bytes_written, 2 round_trips, 2 masked_cas",
            "Differs: 1 reads, 256 bytes_read, 2 round_trips, 2 masked_cas",
            "Removed: 1 reads, 1 writes, 256 bytes_read, 1 bytes_written, 2 round_trips, 2 masked_cas",
            "Absent: 1 reads, 256 bytes_read, 2 round_trips, 2 masked_cas",
        ],
        // Checksummed: the whole node is written.
        [
            "Inserted: 1 reads, 2 writes, 128 bytes_read, 136 bytes_written, 2 round_trips, 1 masked_cas",
            "Present: 1 reads, 1 writes, 128 bytes_read, 8 bytes_written, 2 round_trips, 1 masked_cas",
            "Replaced: 1 reads, 2 writes, 128 bytes_read, 136 bytes_written, 2 round_trips, 1 masked_cas",
            "Absent: 1 reads, 1 writes, 128 bytes_read, 8 bytes_written, 2 round_trips, 1 masked_cas",
            "Replaced: 1 reads, 2 writes, 128 bytes_read, 136 bytes_written, 2 round_trips, 1 masked_cas",
            "Differs: 1 reads, 1 writes, 128 bytes_read, 8 bytes_written, 2 round_trips, 1 masked_cas",
            "Removed: 1 reads, 2 writes, 128 bytes_read, 136 bytes_written, 2 round_trips, 1 masked_cas",
            "Absent: 1 reads, 1 writes, 128 bytes_read, 8 bytes_written, 2 round_trips, 1 masked_cas",
        ],
    ];
    assert_eq!(
        found.map(|all| all.join("\n")),
        expected.map(|all| all.join("\n"))
    );
}

/// A full node is split at its median key, and the new entry is in its half. The right node is on the memory node of
/// the left one, unless nodes are spread.
#[test]
fn a_full_node_splits() {
    fn check<F: NodeFormat<Key8> + Clone>(format: &F) {
        let capacity = format.capacity() as u64;
        for (spread, new) in [
            (false, 15),
            (true, 15),
            (false, 10 * capacity + 5),
            (true, 10 * capacity + 5),
        ] {
            let pool = pool(2);
            let v = pool.connect(0).unwrap();
            let mut setup = Setup::plain();
            setup.nodes.spread = spread;
            let nodes = setup.nodes(format.clone(), 2, 0);
            let entries: Vec<_> = (1..=capacity).map(|n| (Key8(10 * n), &VALUE[..])).collect();
            let first = block_on(nodes.create(&v, 0, FenceKeys::ALL, &entries, false))
                .unwrap()
                .at;
            let mut after = NodeCopy::new();
            let (key, write) = (Key8(new), Write::Insert(&[2; 8]));
            let done = nodes.write(&v, Lead::hint(first), 0, &key, write, Some(&mut after));
            let (done, spent) = cost(&v, done);
            let Ok(Answer::Split(Some(Applied::Inserted), split)) = done else {
                panic!("{done:?}");
            };
            assert!(spent.ends_with("1 splits"), "{spent}");
            assert_eq!((split.level, split.left, split.until), (0, first, None));
            assert_eq!(split.right.node() == first.node(), !spread);
            NodeCopies::<Endpoint, Key8>::unfold(&nodes, &mut after).unwrap();
            let (mut left, mut right) = (NodeCopy::new(), NodeCopy::new());
            assert_eq!(block_on(nodes.copy(&v, first, &mut left)), Ok(true));
            assert_eq!(block_on(nodes.copy(&v, split.right, &mut right)), Ok(true));
            assert_eq!((after.fences, after.sibling), (left.fences, left.sibling));
            assert!(
                after.iter().eq(left.iter()),
                "the caller's copy must equal the node"
            );
            assert_eq!(
                (left.fences.high, left.sibling),
                (Some(split.separator), split.right)
            );
            assert_eq!(
                (right.fences, right.unborn),
                (FenceKeys::new(split.separator, None), false)
            );
            let keys: Vec<u64> = left.iter().chain(right.iter()).map(|(key, _)| key.0).collect();
            let mut all: Vec<u64> = (1..=capacity).map(|n| 10 * n).chain([new]).collect();
            all.sort_unstable();
            assert_eq!(keys, all);
            assert!(left.entries.len().abs_diff(right.entries.len()) <= 1);
            let value = [left, right].iter().find_map(|copy| {
                let found = copy.iter().find(|(key, _)| key.0 == new);
                found.map(|(_, value)| value.to_vec())
            });
            assert_eq!(value, Some(vec![2; 8]));
        }
    }
    check(&slotted());
    check(&Checksummed::with_span(4, 8).unwrap());
}

/// A leaf is sparse if at most a quarter of it is in use. A leaf without a neighbour does not count as sparse.
#[test]
fn a_remove_reports_that_its_leaf_is_sparse() {
    let format = Slotted::with_span(8, 8).unwrap();
    for (fences, sparse) in [
        (FenceKeys::new(Key8(0), Some(Key8(99))), true),
        (FenceKeys::ALL, false),
    ] {
        let pool = pool(1);
        let v = pool.connect(0).unwrap();
        let nodes = Setup::plain().nodes(format, 1, 0);
        let entries: Vec<_> = (0..4).map(|n| (Key8(n), &VALUE[..])).collect();
        let at = block_on(nodes.create(&v, 0, fences, &entries, false)).unwrap().at;
        let remove = |key| {
            told(&block_on(nodes.write(
                &v,
                Lead::hint(at),
                0,
                &Key8(key),
                Write::Remove,
                None,
            )))
        };
        let found: Vec<_> = (0..4).map(remove).collect();
        let left = |n: usize| {
            if sparse && n <= 2 {
                "Removed, sparse"
            } else {
                "Removed"
            }
        };
        assert_eq!(found, [3, 2, 1, 0].map(left));
    }
}

/// After a write, the caller's copy of a node equals the node in memory.
#[test]
fn a_write_gives_its_caller_a_copy_of_the_node() {
    fn check<F: NodeFormat<Key8> + Clone>(format: &F) {
        let one = One::new(format, live(at(0, 3).raw()), |_, _| {});
        let (mut after, mut copy) = (NodeCopy::new(), NodeCopy::new());
        let key = Key8(10);
        let write = one.nodes.write(
            &one.v,
            one.lead(true),
            0,
            &key,
            Write::Upsert(&[2; 8]),
            Some(&mut after),
        );
        assert_eq!(told(&block_on(write)), "Replaced");
        NodeCopies::<Endpoint, Key8>::unfold(&one.nodes, &mut after).unwrap();
        assert_eq!(block_on(one.nodes.copy(&one.v, one.at, &mut copy)), Ok(true));
        assert_eq!(
            (after.at, after.level, after.fences, after.sibling),
            (copy.at, copy.level, copy.fences, copy.sibling)
        );
        assert!(after.iter().eq(copy.iter()));
        assert_eq!(after.iter().next(), Some((key, &[2; 8][..])));
    }
    every_format!(check);
}

/// If a writer with a share must go to another node, it gives the share back, awaits this, and does not take the lock.
#[test]
fn a_sharer_of_a_node_without_its_key_gives_its_share_back() {
    let format = slotted();
    let mut one = One::new(&format, live(at(0, 3).raw()), |_, _| {});
    one.nodes = Setup::sharing().nodes(format, 2, 0);
    let update = |one: &One<Slotted<Key8>>| {
        let update = Write::Update(&VALUE);
        let (done, spent) = cost(
            &one.v,
            one.nodes
                .write(&one.v, one.lead(true), 0, &Key8(50), update, None),
        );
        (told(&done), spent)
    };
    let spent = "1 reads, 128 bytes_read, 2 round_trips, 2 faa";
    assert_eq!(update(&one), ("right to 3, linked".to_owned(), spent.to_owned()));
    one.put(one.at, live(0), |format, image| {
        format.freeze(image, 9).unwrap();
        format.bury(image, at(0, 5).raw()).unwrap();
    });
    assert_eq!(update(&one), ("right to 5".to_owned(), spent.to_owned()));
}

#[test]
fn flaws_have_their_effects() {
    // With the flaw, an insert into a free slot and a remove take a share of the lock.
    let mut setup = Setup::sharing();
    setup.nodes.flaws.slots_shared = true;
    let found = costs(&slotted(), setup);
    assert_eq!(
        [&found[0], &found[6]],
        [
            "Inserted: 1 reads, 1 writes, 128 bytes_read, 17 bytes_written, 2 round_trips, 2 faa",
            "Removed: 1 reads, 1 writes, 128 bytes_read, 1 bytes_written, 2 round_trips, 2 faa"
        ]
    );
    // If an entry is torn, the node is read again. With the flaw, the entry counts as absent.
    let format = Slotted::<Key8>::with_span(2, 100).unwrap();
    for has in [false, true] {
        let pool = pool(1);
        let v = pool.connect(0).unwrap();
        let mut setup = Setup::plain();
        setup.nodes.flaws.torn_entry_absent = has;
        let nodes = setup.nodes(format, 1, 0);
        let entries = [(Key8(10), &[1; 100][..])];
        let at = block_on(nodes.create(&v, 0, FenceKeys::ALL, &entries, false))
            .unwrap()
            .at;
        let mut image = block_on(v.read(at, format.node_bytes() as u32)).unwrap().to_vec();
        let Ok(Place::Present(slot)) = format.place(&image, &Key8(10)) else {
            panic!("the key is missing")
        };
        // The second line of the entry has another entry version than the first one.
        image[(slot.offset() / 64 + 1) * 64 + 1] ^= 5;
        block_on(v.write(at, &image)).unwrap();
        let got = block_on(nodes.get(&v, Lead::hint(at), 0, &Key8(10), &mut Vec::new()));
        assert_eq!(told(&got), if has { "false" } else { "exhausted" });
    }
}

/// Makes a node with `KEYS` in which a split was abandoned after the node had been linked to its right node at
/// `right_at`. Returns the image of the right node too, which is not written.
fn given_up<F: NodeFormat<Key8> + Clone>(format: &F, right_at: RemotePtr) -> (One<F>, Vec<u8>) {
    let mut right = vec![0; format.node_bytes()];
    let one = One::new(format, live(at(0, 3).raw()), |format, image| {
        let before = image.clone();
        let plan = format
            .prepare_split(&before, &mut right, &request(right_at))
            .unwrap()
            .unwrap();
        format.announce_split(image, &plan).unwrap();
    });
    (one, right)
}

fn request<'v>(right_at: RemotePtr) -> SplitRequest<'v, Key8> {
    SplitRequest {
        right_address: right_at.raw(),
        right_incarnation: 1,
        right_version: 1,
        owner: 7,
        new: None,
        bias: dm_layout::SplitBias::Median,
    }
}

/// A client that finishes a split does not change the right node if it is live or is itself being split.
#[test]
fn a_right_node_in_a_split_of_its_own_is_left_as_it_is() {
    fn check<F: NodeFormat<Key8> + Clone>(format: &F) {
        let right_at = at(0, 1);
        let (one, _) = given_up(format, right_at);
        let init = NodeInit::live(0, FenceKeys::new(Key8(20), Some(Key8(50))));
        let entries = [20, 30].map(|key| (Key8(key), ValueRef::from(&VALUE[..])));
        let mut right = vec![0; format.node_bytes()];
        format.build(&mut right, &init, entries);
        let (before, mut third) = (right.clone(), right.clone());
        let plan = format
            .prepare_split(&before, &mut third, &request(at(0, 2)))
            .unwrap()
            .unwrap();
        format.announce_split(&mut right, &plan).unwrap();
        block_on(one.v.write(right_at, &right)).unwrap();
        assert_eq!(told(&one.write(false, 10, Write::Update(&VALUE))), "Replaced");
        assert!(one.image(right_at) == right);
    }
    check(&slotted());
    check(&Leaf::with_node_bytes(256, 8, true).unwrap());
}

/// A reader may read only one neighbourhood of a hopscotch leaf. So in this format, the moved entries are cleared
/// before the right node is opened, which takes one more round trip.
#[test]
fn finishing_a_split_takes_as_many_round_trips_as_its_order_needs() {
    fn spent<F: NodeFormat<Key8> + Clone>(format: &F) -> String {
        let (one, right) = given_up(format, at(0, 1));
        block_on(one.v.write(at(0, 1), &right)).unwrap();
        let (key, update) = (Key8(10), Write::Update(&VALUE));
        let (done, spent) = cost(
            &one.v,
            one.nodes.write(&one.v, one.lead(true), 0, &key, update, None),
        );
        assert_eq!(told(&done), "Replaced");
        let told = spent.split(", ").find(|part| part.ends_with("round_trips"));
        told.unwrap().to_owned()
    }
    assert_eq!(spent(&slotted()), "6 round_trips");
    assert_eq!(
        spent(&dm_layout::Hopscotch::new(16, 4, 8).unwrap()),
        "7 round_trips"
    );
}

/// Checks the verbs of every split, on one and on two memory nodes.
#[test]
fn every_split_costs_what_it_must() {
    fn spent<F: NodeFormat<Key8> + Clone>(format: &F, spread: bool, used: bool, born_live: bool) -> String {
        let pool = pool(2);
        let v = pool.connect(0).unwrap();
        let mut setup = Setup::plain();
        setup.nodes.spread = spread;
        setup.nodes.flaws.right_born_live = born_live;
        let nodes = setup.nodes(format.clone(), 2, 0);
        let entries: Vec<_> = (1..=format.capacity() as u64)
            .map(|n| (Key8(10 * n), &VALUE[..]))
            .collect();
        let create = |entries: &[_]| block_on(nodes.create(&v, 0, FenceKeys::ALL, entries, false)).unwrap();
        let first = create(&entries).at;
        // If another node used the memory before, a client with an old address must not accept the node until it is
        // linked.
        let before = used.then(|| {
            loop {
                let other = create(&[]);
                if (other.at.node() == first.node()) != spread {
                    Restructure::<Endpoint, Key8>::forget(&nodes, other);
                    break other;
                }
            }
        });
        let split = nodes.write(&v, Lead::hint(first), 0, &Key8(15), Write::Insert(&[2; 8]), None);
        let (done, spent) = cost(&v, split);
        let Ok(Answer::Split(Some(Applied::Inserted), split)) = done else {
            panic!("{done:?}");
        };
        if let Some(before) = before.filter(|_| !spread) {
            assert_eq!(split.right, before.at);
        }
        let image = block_on(v.read(split.right, format.node_bytes() as u32)).unwrap();
        let right = dm_layout::audit(format, &image).unwrap();
        assert_eq!(right.state, NodeState::Live);
        spent
    }
    let (slotted, whole) = (slotted(), Checksummed::with_span(4, 8).unwrap());
    let found = [
        spent(&slotted, false, false, false),
        spent(&slotted, true, false, false),
        spent(&slotted, false, true, false),
        spent(&whole, false, false, false),
        spent(&whole, true, false, false),
        spent(&whole, false, true, false),
        spent(&slotted, true, false, true),
    ];
    let expected = [
        // On one memory node, the chain that links the right node also opens it. On two memory nodes, a CAS opens it
        // between two chains to the left node.
        "1 reads, 6 writes, 128 bytes_read, 392 bytes_written, 3 round_trips, 1 masked_cas, 1 splits",
        "1 reads, 5 writes, 1 cas, 128 bytes_read, 328 bytes_written, 5 round_trips, 1 masked_cas, 1 splits",
        "1 reads, 6 writes, 128 bytes_read, 392 bytes_written, 3 round_trips, 1 masked_cas, 1 splits",
        // A node that is written whole is live from the start. If another node used its memory before, it is opened
        // under its own lock.
        "1 reads, 3 writes, 128 bytes_read, 264 bytes_written, 3 round_trips, 1 masked_cas, 1 splits",
        "1 reads, 3 writes, 128 bytes_read, 264 bytes_written, 3 round_trips, 1 masked_cas, 1 splits",
        "2 reads, 5 writes, 256 bytes_read, 400 bytes_written, 5 round_trips, 2 masked_cas, 1 splits",
        // With the flaw, the right node is live from the start.
        "1 reads, 5 writes, 128 bytes_read, 328 bytes_written, 3 round_trips, 1 masked_cas, 1 splits",
    ];
    assert_eq!(found, expected);
}
