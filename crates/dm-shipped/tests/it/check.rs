//! Checks of the shipped indexes: a clean index has no finding, and planted damage is found at its address.

use std::cell::Cell;
use std::pin::Pin;

use dm_alloc::Superblock;
use dm_assemble::{CheckReport, Finding, Flaw, Handle, Parts};
use dm_index::{Condition, Key8, RangeIndex};
use dm_lock::{DOUBT, LockWord};
use dm_loopback::{Endpoint, Loopback, block_on, run_all};
use dm_verbs::{Control, ControlReply, ControlRequest, Env, NodeId, Place, RemotePtr, Verbs};

const KEYS: u64 = 3_000;
/// The number of a member that never existed. The allocation of member numbers does not reach it in these tests.
const GONE: u16 = 2_000;

fn sherman() -> sherman::Options {
    sherman::Options {
        chunk_bytes: 64 << 10,
        ..sherman::Options::new(8)
    }
}

fn chime() -> chime::Options {
    chime::Options {
        chunk_bytes: 64 << 10,
        ..chime::Options::new(8)
    }
}

fn dolphin() -> dolphin::Options {
    dolphin::Options {
        chunk_bytes: 64 << 10,
        ..dolphin::Options::new(8)
    }
}

fn marlin() -> marlin::Options {
    marlin::Options {
        chunk_bytes: 64 << 10,
        ..marlin::Options::new(8)
    }
}

fn rolex() -> rolex::Options {
    rolex::Options {
        chunk_bytes: 64 << 10,
        ..rolex::Options::new(8)
    }
}

fn smart() -> smart::Options {
    smart::Options {
        chunk_bytes: 64 << 10,
        ..smart::Options::new(8)
    }
}

/// Makes an index with scattered keys, of which a third is removed again, and runs `test`.
fn with<P: Parts<Key = Key8>>(options: &P::Options, test: impl AsyncFnOnce(&Handle<P>, &Endpoint)) {
    let world = Loopback::builder()
        .nodes(2)
        .host_bytes(16 << 20)
        .build()
        .expect("memory");
    let v = world.connect(0).expect("a client");
    block_on(async {
        let index = Handle::<P>::create_or_open(&v, options)
            .await
            .expect("a new pool");
        {
            let client = index.client(&v);
            for i in 0..KEYS {
                client.insert(&key(i), &i.to_le_bytes()).await.expect("room");
            }
            for i in (0..KEYS).step_by(3) {
                client.remove(&key(i)).await.expect("no faults");
            }
        }
        test(&index, &v).await;
    });
}

fn key(i: u64) -> Key8 {
    Key8(i.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

async fn checked<P: Parts>(index: &Handle<P>, v: &Endpoint) -> CheckReport {
    index.check(v).await.expect("no verb fails")
}

fn has(report: &CheckReport, at: impl Into<Place>, flaw: Flaw) {
    let wanted = Finding { at: at.into(), flaw };
    assert!(report.findings.contains(&wanted), "no {wanted} in:\n{report}");
}

/// Returns all 64-byte lines of the pool's memory that `is` accepts, except those of the first page of each memory
/// node.
async fn lines(v: &Endpoint, is: impl Fn(&[u8]) -> bool) -> Vec<RemotePtr> {
    let mut found = Vec::new();
    for node in (0..v.memory_nodes()).map(NodeId) {
        let Ok(ControlReply::Region(region)) = v.call(ControlRequest::Describe { node }).await else {
            panic!("{node} does not answer");
        };
        for page in (4096..region.used).step_by(4096) {
            let at = RemotePtr::new(node, page).expect("in range");
            let bytes = v.read(at, 4096).await.expect("in range");
            let lines = bytes.chunks_exact(64).zip(0..);
            found.extend(lines.filter(|(line, _)| is(line)).map(|(_, i)| at.add(64 * i)));
        }
    }
    found
}

/// Returns a leaf of many keys that is not the last one, and its first 64 bytes.
async fn leaf(v: &Endpoint) -> (RemotePtr, [u8; 64]) {
    let kinds = [0xd1, 0xd4, 0xd8];
    let linked = |line: &[u8]| {
        let sibling = line[8..16].iter().any(|byte| *byte != 0);
        kinds.contains(&line[1]) && line[2..4] == [0, 0x11] && line[4] == 1 && line[5..8] == [0; 3] && sibling
    };
    let found = lines(v, linked).await;
    let at = found[found.len() / 2];
    let bytes = v.read(at, 64).await.expect("in range");
    (at, *bytes.first_chunk().expect("a line"))
}

fn sibling(head: &[u8; 64]) -> RemotePtr {
    RemotePtr::from_raw(u64::from_le_bytes(*head[8..].first_chunk().expect("eight bytes")))
}

async fn plant(v: &Endpoint, at: RemotePtr, bytes: &[u8]) {
    v.write(at, bytes).await.expect("in range");
}

async fn word(v: &Endpoint, at: impl Into<Place>) -> u64 {
    v.word(at).await.expect("in range")
}

async fn set(v: &Endpoint, at: impl Into<Place>, new: u64) {
    let at = at.into();
    let old = word(v, at).await;
    assert_eq!(v.cas(at, old, new).await, Ok(old));
}

/// Writes damage into the pool's lock tables. A check of the index must find it, and a sweep must repair it.
async fn locks_in_tables<P: Parts>(index: &Handle<P>, v: &Endpoint) {
    let pool = Superblock::inspect(v).await.expect("a pool");
    let (held, doubted) = (pool.lock_tables[1].add(8 * 5), pool.lock_tables[0].add(8 * 7));
    let lock = LockWord {
        locked: true,
        owner: 3,
        member: GONE,
        count: 9,
        payload: 0,
    };
    set(v, held, lock.pack()).await;
    set(
        v,
        doubted,
        LockWord {
            payload: DOUBT,
            ..LockWord::default()
        }
        .pack(),
    )
    .await;
    let report = checked(index, v).await;
    assert_eq!(report.findings.len(), 2, "{report}");
    has(
        &report,
        held,
        Flaw::LockOfGone {
            client: 3,
            member: GONE,
        },
    );
    has(&report, doubted, Flaw::InDoubt);
    let swept = index.sweep(v).await.expect("no verb fails");
    assert!(swept.check.is_clean(), "{swept}");
    assert_eq!((swept.freed, swept.cleared), (1, 2), "{swept}");
    assert_eq!(word(v, doubted).await, 0);
    let free = LockWord {
        count: 10,
        ..LockWord::default()
    };
    assert_eq!(word(v, held).await, free.pack());
}

/// Damages the leaves of an index whose leaves have sibling pointers, and expects the findings. `exact` says whether
/// its inner structure lists each leaf for certain, and `version` is the offset of a byte with a node version.
async fn leaves_of_many_keys<P: Parts<Key = Key8>>(
    index: &Handle<P>,
    v: &Endpoint,
    (exact, version): (bool, u64),
) {
    let clean = checked(index, v).await;
    assert!(
        clean.is_clean() && clean.held.is_empty() && clean.in_change == 0,
        "{clean}"
    );
    assert_eq!((clean.keys, clean.unlisted), (KEYS - KEYS / 3, 0), "{clean}");
    assert!(clean.levels.len() > 1 && clean.levels[0].nodes > 10, "{clean}");
    assert_eq!(clean.leaked_bytes, 0, "{clean}");
    locks_in_tables(index, v).await;

    // The sibling pointer skips the next leaf.
    let (at, head) = leaf(v).await;
    let next = sibling(&head);
    let beyond = sibling(
        v.read(next, 64)
            .await
            .expect("in range")
            .first_chunk()
            .expect("a line"),
    );
    plant(v, at.add(8), &beyond.raw().to_le_bytes()).await;
    let report = checked(index, v).await;
    match exact {
        true => has(&report, next, Flaw::NotASibling),
        false => assert_eq!(report.stale_hints, clean.stale_hints + 1, "{report}"),
    }
    if !beyond.is_null() {
        has(&report, beyond, Flaw::LowFence);
    }
    // The sibling pointer leads outside of the memory, then to its own leaf, and then to no node.
    let beyond_memory = RemotePtr::new(NodeId(1), 1 << 40).expect("48 bits");
    plant(v, at.add(8), &beyond_memory.raw().to_le_bytes()).await;
    has(&checked(index, v).await, beyond_memory, Flaw::Nowhere);
    plant(v, at.add(8), &at.raw().to_le_bytes()).await;
    has(&checked(index, v).await, at, Flaw::Cycle);
    plant(v, at.add(8), &[0; 8]).await;
    has(&checked(index, v).await, at, Flaw::NoSibling);
    plant(v, at.add(8), &next.raw().to_le_bytes()).await;
    assert!(checked(index, v).await.is_clean());

    // A line of the leaf is torn. Then the leaf's bytes are not a node.
    let old = v.read(at.add(version), 1).await.expect("in range").to_vec();
    plant(v, at.add(version), &[old[0] ^ 0x08]).await;
    has(&checked(index, v).await, at, Flaw::Torn);
    plant(v, at.add(version), &old).await;
    plant(v, at.add(1), &[0x77]).await;
    let report = checked(index, v).await;
    let corrupt = |finding: &&Finding| matches!(finding.flaw, Flaw::Corrupt(_)) && finding.at == at.into();
    assert!(report.findings.iter().find(corrupt).is_some(), "{report}");
    plant(v, at.add(1), &head[1..2]).await;

    // A split has linked its right node and is not finished. A sweep finishes it.
    plant(v, at.add(3), &[0x32]).await;
    has(
        &checked(index, v).await,
        at,
        Flaw::Unfinished(Condition::Splitting),
    );
    let swept = index.sweep(v).await.expect("no verb fails");
    assert!(swept.check.is_clean() && swept.mended == 1, "{swept}");
    assert_eq!(swept.check.keys, clean.keys);
}

/// Changes the high fence key of a leaf, so that the next leaf no longer begins there, and expects the finding.
async fn high_fence<P: Parts<Key = Key8>>(index: &Handle<P>, v: &Endpoint) {
    let (at, head) = leaf(v).await;
    let high = u64::from_be_bytes(*head[16..].first_chunk().expect("eight bytes"));
    plant(v, at.add(16), &(high + 1).to_be_bytes()).await;
    has(&checked(index, v).await, sibling(&head), Flaw::LowFence);
}

#[test]
fn sherman_is_checked() {
    with::<sherman::ShermanParts<Key8, dm_layout::Slotted<Key8>>>(&sherman(), async |index, v| {
        leaves_of_many_keys(index, v, (true, 64)).await;
        high_fence(index, v).await;
    });
}

#[test]
fn chime_is_checked() {
    with::<chime::ChimeParts<Key8>>(&chime(), async |index, v| {
        leaves_of_many_keys(index, v, (true, 64 + 53)).await
    });
}

#[test]
fn dolphin_is_checked() {
    with::<dolphin::DolphinParts<Key8>>(&dolphin(), async |index, v| {
        leaves_of_many_keys(index, v, (false, 64)).await;
        high_fence(index, v).await;
    });
}

#[test]
fn marlin_is_checked() {
    with::<marlin::MarlinParts<Key8>>(&marlin(), async |index, v| {
        leaves_of_many_keys(index, v, (true, 64)).await;
        high_fence(index, v).await;
    });
}

#[test]
fn rolex_is_checked() {
    with::<rolex::RolexParts<Key8>>(&rolex(), async |index, v| {
        index.retrain(v).await.expect("no faults");
        leaves_of_many_keys(index, v, (false, 64)).await;
        high_fence(index, v).await;
    });
}

#[test]
fn smart_is_checked() {
    with::<smart::SmartParts<Key8>>(&smart(), async |index, v| {
        let clean = checked(index, v).await;
        assert!(clean.is_clean() && clean.held.is_empty(), "{clean}");
        assert_eq!((clean.keys, clean.removed), (KEYS - KEYS / 3, 0), "{clean}");
        assert_eq!(clean.leaked_bytes, 0, "{clean}");

        // A leaf's lock word is at its end, behind 16 bytes of header, the key, the checksum and the value (8 bytes
        // each).
        let live = lines(v, |line| line[8..16] == *b"live\0\0\0\x01").await;
        let (held, doubted) = (live[10].add(40), live[20].add(40));
        let lock = LockWord {
            locked: true,
            owner: 3,
            member: GONE,
            ..LockWord::default()
        };
        let doubt = LockWord {
            payload: DOUBT,
            ..LockWord::default()
        };
        set(v, held, lock.pack()).await;
        set(v, doubted, doubt.pack()).await;
        let report = checked(index, v).await;
        let (client, member) = (3, GONE);
        has(&report, held, Flaw::LockOfGone { client, member });
        has(&report, doubted, Flaw::InDoubt);
        let swept = index.sweep(v).await.expect("no verb fails");
        assert!(
            swept.check.is_clean() && (swept.freed, swept.cleared) == (1, 2),
            "{swept}"
        );

        // First the value is torn, then the leaf has the content of another leaf, and then its bytes are not a leaf.
        let leaf = live[30];
        let old = v.read(leaf, 64).await.expect("in range").to_vec();
        plant(v, leaf.add(32), &[old[32] ^ 1]).await;
        has(&checked(index, v).await, leaf, Flaw::Torn);
        plant(v, leaf.add(32), &old[32..33]).await;
        let other = v.read(live[31], 64).await.expect("in range").to_vec();
        plant(v, leaf.add(16), &other[16..40]).await;
        has(&checked(index, v).await, leaf, Flaw::Path);
        plant(v, leaf.add(16), &old[16..40]).await;
        plant(v, leaf.add(8), &[0]).await;
        let report = checked(index, v).await;
        let corrupt =
            |finding: &&Finding| matches!(finding.flaw, Flaw::Corrupt(_)) && finding.at == leaf.into();
        assert!(report.findings.iter().find(corrupt).is_some(), "{report}");
        plant(v, leaf.add(8), &old[8..9]).await;
        assert!(checked(index, v).await.is_clean());

        // Another client has begun to replace the node. A sweep finishes the replacement.
        let is_node = |line: &[u8]| {
            line[12..16] == [b'r', b'x', 0, 0] && line[0] > 0 || line[12..16] == [b'x', b'r', 0, 0]
        };
        let nodes = lines(v, is_node).await;
        let nodes: Vec<_> = nodes.into_iter().filter(|at| *at != index.root()).collect();
        for at in nodes {
            let slot = at.add(16);
            let raw = word(v, slot).await;
            set(v, slot, dm_layout::SlotWord::from_raw(raw).frozen().raw()).await;
            let report = checked(index, v).await;
            if !report.is_clean() {
                has(&report, at, Flaw::Unfinished(Condition::Frozen));
                let swept = index.sweep(v).await.expect("no verb fails");
                assert!(swept.check.is_clean() && swept.mended == 1, "{swept}");
                assert_eq!(swept.check.keys, clean.keys);
                return;
            }
            // The node was no longer part of the tree, so try the next one.
        }
        panic!("the tree has only a root");
    });
}

/// Runs writers of two compute nodes concurrently with checks, and then a sweep. A change during a check must not be
/// reported as a finding.
fn checked_while_used<P: Parts<Key = Key8>>(options: &P::Options) {
    const WRITERS: u64 = 6;
    let world = Loopback::builder()
        .nodes(2)
        .host_bytes(64 << 20)
        .delays(2)
        .build()
        .expect("memory");
    let endpoints: Vec<Endpoint> = (0..=WRITERS as u16)
        .map(|i| world.connect(i % 2).expect("a client"))
        .collect();
    let [v, writers @ ..] = &endpoints[..] else {
        unreachable!("there are seven")
    };
    let handles = block_on(async {
        let first = Handle::<P>::create_or_open(v, options).await.expect("a new pool");
        let second = Handle::<P>::open(&writers[0], options).await.expect("a pool");
        [first, second]
    });
    let (ended, kept) = (Cell::new(0), Cell::new(0));
    let mut work: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = Vec::new();
    for (me, v) in (0..).zip(writers) {
        let (index, ended, kept) = (&handles[usize::from(v.compute_node())], &ended, &kept);
        work.push(Box::pin(async move {
            let client = index.client(v);
            // The tree grows, shrinks and grows again.
            for round in 0..3 {
                for i in 0..1_500 {
                    let key = key(WRITERS * i + me);
                    let done = match round {
                        1 if i % 8 != 0 => client.remove(&key).await,
                        _ => client.upsert(&key, &i.to_le_bytes()).await,
                    };
                    done.expect("no faults");
                }
            }
            kept.set(kept.get() + 1_500);
            ended.set(ended.get() + 1);
        }));
    }
    work.push(Box::pin(async {
        let mut checks = 0;
        while ended.get() < WRITERS {
            let report = checked(&handles[0], v).await;
            assert!(report.is_clean(), "{report}");
            checks += 1;
        }
        assert!(checks > 1, "{checks} checks");
        let swept = handles[0].sweep(v).await.expect("no verb fails");
        assert!(swept.check.is_clean(), "{swept}");
        assert_eq!(
            (swept.check.keys, swept.check.in_change),
            (kept.get(), 0),
            "{swept}"
        );
    }));
    run_all(work);
}

#[test]
fn indexes_are_checked_while_they_are_used() {
    checked_while_used::<sherman::ShermanParts<Key8, dm_layout::Slotted<Key8>>>(&sherman());
    checked_while_used::<chime::ChimeParts<Key8>>(&chime());
    checked_while_used::<dolphin::DolphinParts<Key8>>(&dolphin());
    checked_while_used::<smart::SmartParts<Key8>>(&smart());
}
