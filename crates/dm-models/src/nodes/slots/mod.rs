//! The published leaf of Dolphin, for study: an array of keys and an array of values. A counter protects the leaf
//! while clients claim slots one by one.
//!
//! dmkit ships no such leaf. In its leaves, an entry holds a key together with its value, and a client chooses a slot
//! under the leaf's lock (docs/protocol/dolphin.md, D9). So the flaws of the published protocol are shown on a separate
//! leaf, which is written by hand over the verbs. Each flaw is a switch; without flaws, the protocol is correct.
//!
//! ```text
//!   left, right   +0 [counter, high]   +64 [key 0, key 1, key 2]   +128 [value 0, value 1, value 2]
//!   above                [separator]
//! ```
//!
//! * The counter counts the clients that insert or update in the leaf. A split subtracts [`ALONE`] and waits until no
//!   other client is counted.
//! * `high` is the end of the leaf's range. A split lowers the left leaf's `high` to the separator, and the right leaf
//!   holds the rest.
//! * A slot's key is 0 while the slot is empty, and has the bit [`CLAIMED`] until its value is written. So no key is 0
//!   here.
//! * The separator is 0 until there is a right leaf. A client with a cache has read it before the split; a client
//!   without one reads it during its operation.

mod entries;
mod operations;
mod split;

pub(super) use entries::{T_D1, T_D2, T_D4, T_D5, T_D6_I, T_D6_II};

use dm_verbs::{NodeId, RemotePtr};

/// The published flaws. Each is off by default, and a model turns on one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct SlotFlaws {
    /// T-D1: a split sorts the keys but does not move the values.
    values_stay: bool,
    /// T-D2: a key is visible as soon as its slot is claimed, before its value is written.
    key_first: bool,
    /// T-D4: an insert that lost its slot takes the next slot. Instead of its own value, it writes the value that it
    /// has read from that next slot.
    stale_value: bool,
    /// T-D5: an insert that lost its slot does not check whether the winner inserts the same key.
    own_key_unseen: bool,
    /// T-D6 (i): the separator is visible before the old leaf has changed.
    shown_first: bool,
    /// T-D6 (ii): a reader reads the fence key before it reads the keys, and not again afterwards.
    fence_first: bool,
}

/// Number of slots of a leaf.
const SLOTS: usize = 3;
/// The number that a split subtracts from a leaf's counter to hold the leaf alone.
const ALONE: u64 = 1 << 32;
/// A bit set beside a key whose value is not written yet.
const CLAIMED: u64 = 1 << 63;
/// The end of a leaf without a right neighbour; it is above every key.
const NO_END: u64 = u64::MAX;
/// The reason why a verb of these models must succeed.
const OK: &str = "no faults in this model";

/// The address of a leaf. Its methods return the addresses of its parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Leaf(RemotePtr);

impl Leaf {
    const BYTES: usize = 192;
    /// Byte offset of the keys. The next constant is the byte offset of the values.
    const KEYS: usize = 64;
    const VALUES: usize = 128;

    fn left() -> Self {
        Self(host(4096))
    }

    fn right() -> Self {
        Self(host(4096 + 256))
    }

    fn counter(self) -> RemotePtr {
        self.0
    }

    fn high(self) -> RemotePtr {
        self.0.add(8)
    }

    fn key(self, slot: usize) -> RemotePtr {
        self.0.add((Self::KEYS + 8 * slot) as u64)
    }

    fn value(self, slot: usize) -> RemotePtr {
        self.0.add((Self::VALUES + 8 * slot) as u64)
    }
}

/// Returns the address of the word that leads to the right leaf.
fn separator() -> RemotePtr {
    host(1024)
}

fn host(offset: u64) -> RemotePtr {
    RemotePtr::new(NodeId(0), offset).unwrap_or(RemotePtr::NULL)
}

/// The slots of a leaf, as a client has read them.
#[derive(Clone, Copy, Debug, Default)]
struct Slots {
    keys: [u64; SLOTS],
    values: [u64; SLOTS],
}

impl Slots {
    fn of(keys: &[u8], values: &[u8]) -> Self {
        Self {
            keys: words(keys),
            values: words(values),
        }
    }

    /// Returns the slot that holds `key`, if its value is written.
    fn find(&self, key: u64) -> Option<usize> {
        self.keys.iter().position(|k| *k == key)
    }

    /// Returns the bytes of a leaf with these slots, with a counter of zero.
    fn image(&self, high: u64) -> Vec<u8> {
        let mut image = vec![0; Leaf::BYTES];
        put(&mut image[8..], &[high]);
        put(&mut image[Leaf::KEYS..], &self.keys);
        put(&mut image[Leaf::VALUES..], &self.values);
        image
    }
}

fn words(bytes: &[u8]) -> [u64; SLOTS] {
    let mut words = bytes.chunks_exact(8).map(|word| {
        let word = word.first_chunk().copied();
        u64::from_le_bytes(word.unwrap_or_default())
    });
    core::array::from_fn(|_| words.next().unwrap_or_default())
}

fn put(bytes: &mut [u8], words: &[u64]) {
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}
