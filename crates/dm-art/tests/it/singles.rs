//! Tests of leaves of one entry.

use dm_art::{Single, SingleOptions, SingleSeen, SingleStore, Singles};
use dm_index::{Condition, IndexError, Key8};
use dm_layout::SingleLeaf;
use dm_lock::{GlobalLockTable, LockOptions, LockPlace, Locks};
use dm_loopback::{Endpoint, Loopback, Trouble, block_on};
use dm_sync::Arc;
use dm_verbs::{NodeId, RemotePtr, Verbs};

use crate::common::{cost, pool};

struct One {
    pool: Loopback,
    v: Endpoint,
    singles: Singles<Key8>,
}

/// The size of a value in bytes. Such a value lies in three lines.
const BYTES: usize = 100;

fn at(n: u64) -> RemotePtr {
    RemotePtr::new(NodeId(0), (1 << 20) + n * 256).unwrap()
}

impl One {
    /// Makes a leaf for each key from 1 to 70. Its link depth and every byte of its value are the key's number.
    fn new() -> Self {
        let pool = pool(1);
        let v = pool.connect(0).unwrap();
        let layout = SingleLeaf::<Key8>::new(BYTES).unwrap();
        let table = GlobalLockTable::in_nodes(1, layout.lock_at() as u32);
        let locks = LockOptions {
            place: LockPlace::Host,
            budget: 64,
            ..LockOptions::default()
        };
        let options = SingleOptions::new(64);
        let singles = Singles::new(layout, Arc::new(Locks::new(locks, table)), options);
        let this = Self { pool, v, singles };
        for n in 1..=70 {
            this.write(n, &[n as u8; BYTES], n);
        }
        this
    }

    fn store(&self) -> &impl SingleStore<Endpoint, Key8> {
        &self.singles
    }

    fn write(&self, n: u64, value: &[u8], depth: u64) {
        let mut image = vec![0xee];
        self.store().image(&Key8(n), value, depth, &mut image);
        assert_eq!(image.len(), self.store().block_bytes() as usize);
        block_on(self.v.write(at(n), &image)).unwrap();
    }

    fn damage(&self, n: u64, offset: usize, with: u8) {
        let byte = at(n).add(offset as u64);
        let old = block_on(self.v.read(byte, 1)).unwrap()[0];
        block_on(self.v.write(byte, &[old ^ with])).unwrap();
    }

    fn get(&self, n: u64, key: u64) -> (Result<Single<Key8>, IndexError>, Vec<u8>, String) {
        let mut value = vec![0xee];
        let (found, spent) = cost(&self.v, self.store().get(&self.v, at(n), &Key8(key), &mut value));
        (found, value, spent)
    }
}

const READ: &str = "1 reads, 132 bytes_read, 1 round_trips";

#[test]
fn a_leaf_returns_its_value_or_the_key_that_it_holds() {
    let one = One::new();
    assert_eq!(one.store().value_bytes(), BYTES);
    let (found, value, spent) = one.get(3, 3);
    assert_eq!(
        (found, value, spent.as_str()),
        (Ok(Single::Hit), vec![3; BYTES], READ)
    );
    let other = Single::Other {
        key: Key8(3),
        depth: 3,
    };
    assert_eq!((one.get(3, 4).0, one.get(3, 4).2.as_str()), (Ok(other), READ));
    let v = &one.v;
    block_on(v.faa(one.store().depth_at(at(3)), 2)).unwrap();
    let deeper = Single::Other {
        key: Key8(3),
        depth: 5,
    };
    assert_eq!(one.get(3, 4).0, Ok(deeper));

    let update = |n, key, value: u8, before: Option<&[u8]>| {
        cost(
            v,
            one.store().update(v, at(n), &Key8(key), &[value; BYTES], before),
        )
    };
    let remove = |n, key, before: Option<&[u8]>| cost(v, one.store().remove(v, at(n), &Key8(key), before));
    let locked = |written: usize| {
        let writes = 1 + usize::from(written > 0);
        format!(
            "1 reads, {writes} writes, 132 bytes_read, {} bytes_written, 2 round_trips, 1 masked_cas",
            8 + written
        )
    };
    assert_eq!(update(3, 3, 9, None), (Ok(Single::Hit), locked(8 + BYTES)));
    assert_eq!(one.get(3, 3).1, [9; BYTES]);
    assert_eq!(
        one.get(3, 4).0,
        Ok(deeper),
        "an update leaves the link depth as it is"
    );
    assert_eq!(update(3, 4, 1, None), (Ok(deeper), locked(0)));
    assert_eq!(
        update(3, 3, 1, Some(&[8; BYTES])),
        (Ok(Single::Differs), locked(0))
    );
    assert_eq!(update(3, 3, 7, Some(&[9; BYTES])).0, Ok(Single::Hit));
    assert_eq!(remove(3, 3, Some(&[9; BYTES])), (Ok(Single::Differs), locked(0)));
    assert_eq!(remove(3, 4, None).0, Ok(deeper));
    assert_eq!(one.get(3, 3).1, [7; BYTES]);
    assert_eq!(remove(3, 3, Some(&[7; BYTES])), (Ok(Single::Hit), locked(8)));
    assert_eq!(one.get(3, 3).0, Ok(Single::Removed));
    assert_eq!(one.get(3, 4).0, Ok(Single::Removed));
    assert_eq!(update(3, 3, 1, None).0, Ok(Single::Removed));
    assert_eq!(remove(3, 3, None).0, Ok(Single::Removed));
}

#[test]
fn entries_are_read_at_once_and_removed_ones_are_left_out() {
    let one = One::new();
    let all: Vec<_> = (1..=70).map(at).collect();
    assert_eq!(
        block_on(one.store().remove(&one.v, at(7), &Key8(7), None)),
        Ok(Single::Hit)
    );
    let mut found = Vec::new();
    let each = |key: Key8, value: &[u8]| {
        assert!(value == [key.0 as u8; BYTES]);
        found.push(key.0);
    };
    let (done, spent) = cost(&one.v, one.store().entries(&one.v, &all, each));
    assert!(done.is_ok() && spent.starts_with("70 reads"), "{spent}");
    assert!(found.iter().copied().eq((1..=70).filter(|n| *n != 7)));
}

/// A torn leaf is read again a bounded number of times, and then causes an error. Bytes that are not a leaf cause an
/// error at once. In both cases the lock is released.
#[test]
fn a_torn_value_is_read_again_and_garbage_is_reported() {
    let one = One::new();
    let v = &one.v;
    let last = one.singles.layout().read_bytes() - 1;
    one.damage(3, last, 1);
    let torn = [
        one.get(3, 3).0,
        block_on(one.store().update(v, at(3), &Key8(3), &[1; BYTES], None)),
        block_on(one.store().remove(v, at(3), &Key8(3), None)),
        block_on(one.store().entries(v, &[at(2), at(3)], |_, _| {})).map(|()| Single::Hit),
    ];
    for torn in torn {
        assert!(matches!(torn, Err(IndexError::Exhausted(_))), "{torn:?}");
    }
    assert!(one.get(3, 3).2.starts_with("64 reads"), "{}", one.get(3, 3).2);
    one.damage(3, last, 1);
    assert_eq!(
        block_on(one.store().update(v, at(3), &Key8(3), &[1; BYTES], None)),
        Ok(Single::Hit)
    );

    block_on(v.write(at(5), &[0x77; 16])).unwrap();
    let corrupt = [
        one.get(5, 5).0,
        block_on(one.store().update(v, at(5), &Key8(5), &[1; BYTES], None)),
        block_on(one.store().remove(v, at(5), &Key8(5), None)),
        block_on(one.store().entries(v, &[at(2), at(5)], |_, _| {})).map(|()| Single::Hit),
    ];
    for corrupt in corrupt {
        assert!(
            matches!(corrupt, Err(IndexError::Corrupt { node, .. }) if node == at(5)),
            "{corrupt:?}"
        );
    }
    one.write(5, &[5; BYTES], 0);
    assert_eq!(
        block_on(one.store().remove(v, at(5), &Key8(5), None)),
        Ok(Single::Hit)
    );
}

/// A check reads many leaves at once, and reports the state of each of them.
#[test]
fn an_inspection_reports_the_states_of_leaves() {
    let one = One::new();
    let inspect = |all: &[RemotePtr]| {
        let mut found = Vec::new();
        let each = |i, seen: SingleSeen<Key8>, value: &[u8]| found.push((i, seen, value.to_vec()));
        let (done, spent) = cost(&one.v, one.store().inspect(&one.v, all, each));
        done.map(|()| (found, spent))
    };
    let all: Vec<_> = (1..=70).map(at).collect();
    let (found, spent) = inspect(&all).unwrap();
    let len = one.store().block_bytes();
    assert_eq!(spent, format!("70 reads, {} bytes_read, 2 round_trips", 70 * len));
    for (n, (i, seen, value)) in found.into_iter().enumerate() {
        assert_eq!((i, seen.condition, seen.lock), (n, Condition::Live, None));
        assert_eq!(
            (seen.key, value),
            (Some(Key8(n as u64 + 1)), vec![n as u8 + 1; BYTES])
        );
    }
    let seen = |at| inspect(&[at]).map(|(found, spent)| (found[0].1, spent));
    let once = format!("1 reads, {len} bytes_read, 1 round_trips");
    let removed = one.store().remove(&one.v, at(2), &Key8(2), None);
    assert_eq!(block_on(removed), Ok(Single::Hit));
    let (dead, spent) = seen(at(2)).unwrap();
    assert_eq!(
        (dead.condition, dead.key, &spent),
        (Condition::Dead, Some(Key8(2)), &once)
    );
    // A torn leaf is read again a few times, because a WRITE may be in progress.
    one.damage(3, one.singles.layout().read_bytes() - 1, 1);
    let (torn, spent) = seen(at(3)).unwrap();
    assert_eq!((torn.condition, torn.key), (Condition::Torn, None));
    assert_eq!(spent, format!("8 reads, {} bytes_read, 8 round_trips", 8 * len));
    block_on(one.v.write(at(5), &[0x77; 16])).unwrap();
    let (corrupt, spent) = seen(at(5)).unwrap();
    assert!(matches!(corrupt.condition, Condition::Corrupt(_)), "{corrupt:?}");
    assert_eq!(spent, once);
    let nowhere = RemotePtr::new(NodeId(0), 1 << 40).unwrap();
    let (lost, _) = seen(nowhere).unwrap();
    assert_eq!(
        (lost.condition, lost.key, lost.lock),
        (Condition::Nowhere, None, None)
    );
    one.pool.cut(NodeId(0), Trouble::Unreachable);
    assert!(seen(at(1)).is_err());
}
