//! Tests of the memory of nodes: how it is allocated, abandoned, freed and reused.

use std::pin::pin;
use std::task::{Context, Waker};

use dm_alloc::{Allocator, Descriptor, ReclaimOptions, Superblock};
use dm_index::{
    Answer, Applied, BulkLoad, IndexError, Key8, Lead, NodeAccess, NodeCopies, NodeCopy, NodeStore,
    RangeIndex, Reclaim, Restructure, Stale, Write,
};
use dm_layout::{
    Checksummed, FenceKeys, Hopscotch, Leaf, NodeFormat, NodeShape, NodeState, NodeSteps, Slotted,
};
use dm_leaf::Nodes;
use dm_lock::{GlobalLockTable, Locks};
use dm_loopback::{Endpoint, Loopback, block_on};
use dm_sync::Arc;
use dm_verbs::{Env, Nanos, RemotePtr, Verbs};

use crate::common::{Setup, Table, client, cost, pool};

/// Makes a compute node's nodes in a pool whose memory is reused. A round is due once per `period`. With the period
/// [`NEVER`], rounds run only when the test starts them.
pub(crate) fn reclaiming<F: NodeFormat<Key8>>(
    v: &Endpoint,
    format: F,
    period: Nanos,
) -> (Nodes<Key8, F>, Arc<Allocator>) {
    let descriptor = Descriptor {
        members: 3,
        ..Descriptor::of(b"test", [0])
    };
    let superblock = block_on(Superblock::create_or_open(v, &descriptor)).unwrap();
    let reclaim = ReclaimOptions {
        period,
        ..ReclaimOptions::new()
    };
    let setup = Setup::plain();
    let alloc = Allocator::for_pool(&superblock, v.compute_node(), reclaim).chunk_bytes(8 << 10);
    let alloc = Arc::new(alloc);
    let locks = Locks::new(
        setup.locks,
        GlobalLockTable::on_chip(superblock.memory_nodes(), 64),
    );
    (
        Nodes::new(format, Arc::new(locks), Arc::clone(&alloc), setup.nodes),
        alloc,
    )
}

const NEVER: Nanos = Nanos(u64::MAX);

fn slotted() -> Slotted<Key8> {
    Slotted::with_span(4, 8).unwrap()
}

/// The memory of a node that was never linked is reused for the next node, with another incarnation.
#[test]
fn memory_of_a_forgotten_node_is_reused_with_another_incarnation() {
    fn check<F: NodeFormat<Key8> + Clone>(format: &F) {
        let pool = pool(1);
        let v = pool.connect(0).unwrap();
        let (nodes, alloc) = reclaiming(&v, format.clone(), NEVER);
        let image = |at: RemotePtr| block_on(v.read(at, format.node_bytes() as u32)).unwrap().to_vec();
        let make =
            |unborn| block_on(nodes.create(&v, 0, FenceKeys::ALL, &[(Key8(1), &[1; 8])], unborn)).unwrap();
        let first = make(false);
        let born = dm_layout::audit(format, &image(first.at)).unwrap();
        assert_eq!(
            (born.state, born.owner, born.incarnation),
            (NodeState::Live, 0, first.incarnation)
        );
        let in_use = alloc.stats().in_use_bytes;
        Restructure::<Endpoint, Key8>::forget(&nodes, first);
        assert_eq!(
            alloc.stats().in_use_bytes,
            in_use - i64::from(Restructure::<Endpoint, Key8>::node_bytes(&nodes))
        );
        let second = make(true);
        assert_eq!((second.at, alloc.stats().in_use_bytes), (first.at, in_use));
        let unborn = dm_layout::audit(format, &image(second.at)).unwrap();
        assert_eq!(
            (unborn.state, unborn.owner),
            (NodeState::Splitting, u32::from(v.client().0) + 1)
        );
        assert_eq!(
            (unborn.incarnation, unborn.version),
            (second.incarnation, second.version)
        );
        assert!(second.incarnation != first.incarnation && second.version != first.version);
        // A client with an old address must not accept the node before the node is opened. The second call of `open`
        // changes nothing.
        let get = || {
            let mut value = Vec::new();
            block_on(nodes.get(&v, Lead::hint(second.at), 0, &Key8(1), &mut value)).unwrap()
        };
        assert_eq!(get(), Answer::Stale(Stale::Elsewhere));
        assert_eq!(block_on(nodes.open(&v, &second)), Ok(()));
        assert_eq!(get(), Answer::Done(true));
        let opened = image(second.at);
        assert_eq!(dm_layout::audit(format, &opened).unwrap().state, NodeState::Live);
        assert_eq!(block_on(nodes.open(&v, &second)), Ok(()));
        assert_eq!(image(second.at), opened);
        // Corrupt bytes are an error, and the lock is released.
        if format.state_word().is_none() {
            block_on(v.write(second.at, &vec![0xff; format.node_bytes()])).unwrap();
            assert!(matches!(
                block_on(nodes.open(&v, &second)),
                Err(IndexError::Corrupt { .. })
            ));
            let mut torn = opened.clone();
            *torn.last_mut().unwrap() ^= 1;
            block_on(v.write(second.at, &torn)).unwrap();
            let torn = block_on(nodes.open(&v, &second));
            assert!(matches!(torn, Err(IndexError::Exhausted(_)) | Ok(())), "{torn:?}");
            block_on(v.write(second.at, &opened)).unwrap();
            assert_eq!(block_on(nodes.open(&v, &second)), Ok(()));
        }
    }
    check(&slotted());
    check(&Leaf::with_node_bytes(256, 8, true).unwrap());
    check(&Checksummed::with_span(4, 8).unwrap());
}

/// Polls `work` this many times and drops it. Returns whether it had not ended.
fn dropped_after<F: Future>(polls: usize, work: F) -> bool {
    let mut work = pin!(work);
    let mut cx = Context::from_waker(Waker::noop());
    !(0..polls).any(|_| work.as_mut().poll(&mut cx).is_ready())
}

/// If an operation is dropped before anything points to its new node, the node's block is freed.
#[test]
fn an_operation_that_is_dropped_before_linking_frees_its_block() {
    let mut cases = [0; 2];
    for (polls, splits) in (0..30).flat_map(|polls| [(polls, false), (polls, true)]) {
        let pool = Loopback::builder()
            .nodes(1)
            .delays(3)
            .seed(3)
            .host_bytes(256 << 10)
            .build()
            .unwrap();
        let v = pool.connect(0).unwrap();
        let (nodes, alloc) = reclaiming(&v, slotted(), NEVER);
        let entries: Vec<_> = (1..5).map(|n| (Key8(n * 10), &[1; 8][..])).collect();
        let first = block_on(nodes.create(&v, 0, FenceKeys::ALL, &entries, false))
            .unwrap()
            .at;
        let in_use = alloc.stats().in_use_bytes;
        let dropped = match splits {
            false => dropped_after(polls, nodes.create(&v, 0, FenceKeys::ALL, &[], false)),
            true => {
                let write = Write::Insert(&[2; 8]);
                dropped_after(
                    polls,
                    nodes.write(&v, Lead::hint(first), 0, &Key8(45), write, None),
                )
            }
        };
        let mut copy = NodeCopy::new();
        assert_eq!(block_on(nodes.copy(&v, first, &mut copy)), Ok(true));
        let linked = !copy.sibling.is_null();
        let taken = alloc.stats().in_use_bytes - in_use;
        let one = i64::from(Restructure::<Endpoint, Key8>::node_bytes(&nodes));
        let expected = if dropped && !linked { 0 } else { one };
        assert_eq!(
            taken, expected,
            "{polls} polls, split: {splits}, dropped: {dropped}, linked: {linked}"
        );
        cases[usize::from(splits)] += u32::from(dropped && !linked);
    }
    assert!(cases[0] > 0 && cases[1] > 3, "{cases:?}");
}

/// One compute node inserts and removes all keys three times, and another one reads them. Each has only some of the
/// leaves in its table. After the third time, the first one has fetched hardly more memory than after the first time.
#[test]
fn inserting_and_removing_all_keys_again_takes_no_more_memory() {
    let pool = pool(1);
    let [v, w] = [0, 1].map(|cn| pool.connect(cn).unwrap());
    let format = Slotted::with_span(6, 8).unwrap();
    let (here, alloc) = reclaiming(&v, format, NEVER);
    let (there, other) = reclaiming(&w, format, NEVER);
    let first = block_on(here.create(&v, 0, FenceKeys::ALL, &[], false))
        .unwrap()
        .at;
    let tables = [Table::of(first), Table::of(first)];
    let empty = alloc.stats().in_use_bytes + other.stats().in_use_bytes;
    let mut fetched = Vec::new();
    for round in 0..3_u8 {
        let (one, two) = (client(&v, &tables[0], &here), client(&w, &tables[1], &there));
        for n in 0..200 {
            assert_eq!(block_on(one.insert(&Key8(n), &[round; 8])), Ok(Applied::Inserted));
        }
        let mut value = Vec::new();
        for n in 0..200 {
            assert_eq!(block_on(two.get(&Key8(n), &mut value)), Ok(true));
            assert_eq!(value, [round; 8]);
        }
        for n in 0..200 {
            assert_eq!(block_on(one.remove(&Key8(n))), Ok(Applied::Removed));
        }
        // Between operations, a client pins no memory.
        for _ in 0..5 {
            block_on(alloc.collect_alone(&v)).unwrap();
            block_on(other.collect_alone(&w)).unwrap();
        }
        let stats = alloc.stats();
        assert_eq!(stats.limbo_bytes, 0, "round {round}");
        let leaves = (stats.in_use_bytes + other.stats().in_use_bytes - empty) / format.node_bytes() as i64;
        assert!(leaves < 12, "{leaves} leaves of no key in round {round}");
        fetched.push(stats.fetched_bytes);
    }
    assert!(fetched[2] <= fetched[0] + (8 << 10), "{fetched:?}");
}

/// If an announcement is due, a compute node announces itself at the beginning of an operation, and in a loop that
/// waits for other clients.
#[test]
fn a_compute_node_announces_itself_when_it_is_due() {
    let announced = |cost: &str| cost.contains("housekeeping_verbs");
    for (period, due) in [(NEVER, false), (Nanos(2_000), true)] {
        let pool = pool(1);
        let v = pool.connect(0).unwrap();
        let (nodes, alloc) = reclaiming(&v, slotted(), period);
        let first = block_on(nodes.create(&v, 0, FenceKeys::ALL, &[(Key8(1), &[1; 8])], false))
            .unwrap()
            .at;
        let table = Table::of(first);
        let index = client(&v, &table, &nodes);
        assert_eq!(block_on(index.get(&Key8(1), &mut Vec::new())), Ok(true));
        assert_eq!(alloc.epochs().unwrap().seats(), 1);
        let mut cost_of_gets = String::new();
        for _ in 0..40 {
            cost_of_gets += &cost(&v, index.get(&Key8(1), &mut Vec::new())).1;
        }
        assert_eq!(announced(&cost_of_gets), due, "{cost_of_gets}");
        // The operation waits for a frozen node that names no other node.
        let format = slotted();
        let mut image = block_on(v.read(first, format.node_bytes() as u32))
            .unwrap()
            .to_vec();
        format.freeze(&mut image, 0).unwrap();
        block_on(v.write(first, &image)).unwrap();
        let wait = nodes.write(&v, Lead::hint(first), 0, &Key8(1), Write::Update(&[2; 8]), None);
        let (waited, spent) = cost(&v, wait);
        assert!(matches!(waited, Err(IndexError::Exhausted(_))));
        assert_eq!(announced(&spent), due, "{spent}");
        // When the last client of a compute node ends, the compute node leaves the pool.
        let before = v.meter().counters();
        drop(index);
        let left = v.meter().counters() - before;
        assert!(left.verbs() + left.housekeeping_verbs > 0, "{left:?}");
    }
    // A pool without members needs no announcements.
    let pool = pool(1);
    let v = pool.connect(0).unwrap();
    let nodes = Setup::plain().nodes(slotted(), 1, 0);
    assert!(!NodeStore::<Endpoint, Key8>::reclaim(&nodes).is_due(&v));
}

/// If an announcement is due, a compute node also announces itself while it waits for a torn node that it must open. The
/// format is written whole, because nodes of other formats are opened without a READ.
#[test]
fn a_compute_node_announces_itself_while_it_opens_a_node() {
    for (period, due) in [(NEVER, false), (Nanos(1), true)] {
        let pool = pool(1);
        let v = pool.connect(0).unwrap();
        let format = Checksummed::with_span(4, 8).unwrap();
        let (nodes, _) = reclaiming(&v, format, period);
        let reclaim = NodeStore::<Endpoint, Key8>::reclaim(&nodes);
        let seat = Reclaim::seat(reclaim, &v).unwrap();
        block_on(Reclaim::prepare(reclaim, &v, &seat)).unwrap();
        let node = block_on(nodes.create(&v, 0, FenceKeys::ALL, &[], true)).unwrap();
        let mut torn = block_on(v.read(node.at, format.node_bytes() as u32))
            .unwrap()
            .to_vec();
        *torn.last_mut().unwrap() ^= 1;
        block_on(v.write(node.at, &torn)).unwrap();
        let (opened, spent) = cost(&v, nodes.open(&v, &node));
        assert!(matches!(opened, Err(IndexError::Exhausted(_))), "{opened:?}");
        assert_eq!(spent.contains("housekeeping_verbs"), due, "{spent}");
        Reclaim::vacate(reclaim, &v, seat);
    }
}

/// The store passes calls of `keep_alive` and `announce_if_due` on to the allocator, which announces the compute node.
#[test]
fn a_long_operation_announces_its_compute_node() {
    for tends in [false, true] {
        let pool = pool(1);
        let v = pool.connect(0).unwrap();
        let (nodes, _) = reclaiming(&v, slotted(), Nanos(1));
        let reclaim = NodeStore::<Endpoint, Key8>::reclaim(&nodes);
        let seat = Reclaim::seat(reclaim, &v).unwrap();
        block_on(Reclaim::prepare(reclaim, &v, &seat)).unwrap();
        let (done, spent) = match tends {
            false => cost(&v, Reclaim::keep_alive(reclaim, &v, &seat)),
            true => cost(&v, Reclaim::announce_if_due(reclaim, &v)),
        };
        assert_eq!(done, Ok(()));
        assert!(spent.contains("housekeeping_verbs"), "{spent}");
        Reclaim::vacate(reclaim, &v, seat);
    }
}

/// The result of a READ that took longer than the version window is not used.
#[test]
fn a_read_that_took_too_long_is_repeated() {
    for (step, flaw, answers) in [
        (50, false, true),
        (2_000_000, false, false),
        (2_000_000, true, true),
    ] {
        let pool = Loopback::builder()
            .nodes(1)
            .counted_clock(Nanos(step))
            .host_bytes(256 << 10)
            .build()
            .unwrap();
        let v = pool.connect(0).unwrap();
        let mut setup = Setup::plain();
        setup.nodes.flaws.no_read_window = flaw;
        let nodes = setup.nodes(slotted(), 1, 0);
        let at = block_on(nodes.create(&v, 0, FenceKeys::ALL, &[(Key8(1), &[1; 8])], false))
            .unwrap()
            .at;
        let got = block_on(nodes.get(&v, Lead::hint(at), 0, &Key8(1), &mut Vec::new()));
        assert_eq!(got == Ok(Answer::Done(true)), answers, "{got:?}");
        let mut copy = NodeCopy::new();
        assert_eq!(block_on(nodes.copy(&v, at, &mut copy)) == Ok(true), answers);
        let mut shown = 0;
        let each = |_: &NodeCopy<Key8>| {
            shown += 1;
            true
        };
        assert_eq!(block_on(nodes.copies(&v, &[at, at], &mut copy, each)), Ok(()));
        assert_eq!(shown, if answers { 2 } else { 0 });
    }
}

/// For a bulk load, the store returns the values of its format.
#[test]
fn a_store_returns_the_values_of_its_format() {
    fn check<F: NodeFormat<Key8> + Clone>(format: &F, refuses: bool) {
        let nodes = Setup::plain().nodes(format.clone(), 1, 0);
        assert_eq!(BulkLoad::<Endpoint, Key8>::capacity(&nodes), format.capacity());
        assert_eq!(
            NodeAccess::<Endpoint, Key8>::value_bytes(&nodes),
            format.value_len()
        );
        assert_eq!(
            Restructure::<Endpoint, Key8>::node_bytes(&nodes) as usize,
            format.node_bytes()
        );
        let mut copy = NodeCopy::new();
        let mut refused = 0;
        for n in 1..format.capacity() as u64 {
            let key = Key8(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            copy.entries.push((key, 0));
            let count = copy.entries.len();
            let takes = BulkLoad::<Endpoint, Key8>::takes(&nodes, &copy, count);
            let mut keys = copy.entries.iter().map(|(key, _)| *key);
            assert_eq!(takes, format.takes(&copy.fences.low, &mut keys), "{n}");
            // If a node takes these entries, it also takes them without the last one.
            assert!(
                !takes || BulkLoad::<Endpoint, Key8>::takes(&nodes, &copy, count - 1),
                "{n}"
            );
            refused += u32::from(!takes);
            if !takes {
                copy.entries.pop();
            }
        }
        assert_eq!(refused > 0, refuses);
    }
    check(&slotted(), false);
    check(&Hopscotch::new(64, 4, 8).unwrap(), true);
}
