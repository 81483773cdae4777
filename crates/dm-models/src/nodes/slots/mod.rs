//! The published leaf of Dolphin, for study: an array of keys and one of values, claimed slot by slot under a counter.
//!
//! dmkit ships no such leaf: its entries are a key and a value in one line, and a slot is chosen under the leaf's lock
//! (docs/protocol/dolphin.md, D9). So the flaws of the published protocol are shown on a leaf of its own, written by hand
//! over the verbs, where each is a switch and all else is mended:
//!
//! ```text
//!   left, right   +0 [counter, high]   +64 [key 0, key 1, key 2]   +128 [value 0, value 1, value 2]
//!   above                [separator]
//! ```
//!
//! * The counter counts who works in the leaf; a split takes [`ALONE`] off it, and waits until nobody else is counted.
//! * `high` is where the left leaf ends: at the separator, once it is split; the right leaf holds the rest.
//! * A slot's key is 0 while it is empty, and [`CLAIMED`] until its value is there. So keys here are not 0.
//! * The separator is 0 until there is a right leaf: a client with a cache has read it before, one without reads it now.

mod entries;
mod operations;
mod split;

pub(super) use entries::{T_D1, T_D2, T_D4, T_D5, T_D6_I, T_D6_II};

use dm_verbs::{NodeId, RemotePtr};

/// The published flaws, each off by default and each alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct SlotFlaws {
    /// T-D1: a split sorts the keys and leaves the values where they are.
    values_stay: bool,
    /// T-D2: a key is there as soon as its slot is claimed, before its value.
    key_first: bool,
    /// T-D4: an insert that lost its slot writes at the next one the value that it has read there.
    stale_value: bool,
    /// T-D5: an insert that lost its slot does not look whether it was its own key that won.
    own_key_unseen: bool,
    /// T-D6 (i): the separator is there before the old leaf has changed.
    shown_first: bool,
    /// T-D6 (ii): a reader looks at the fence only before it looks at the keys.
    fence_first: bool,
}

/// Slots of a leaf.
const SLOTS: usize = 3;
/// What a split takes off a leaf's counter.
const ALONE: u64 = 1 << 32;
/// Beside a key whose value is not there yet.
const CLAIMED: u64 = 1 << 63;
/// A leaf's end where none follows: above every key.
const NO_END: u64 = u64::MAX;
/// Why a verb of these models must succeed.
const OK: &str = "no faults in this model";

/// A leaf's place, and those of its parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Leaf(RemotePtr);

impl Leaf {
    const BYTES: usize = 192;
    /// Where in its bytes the keys lie, and the values.
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

/// The word that leads to the right leaf.
fn separator() -> RemotePtr {
    host(1024)
}

fn host(offset: u64) -> RemotePtr {
    RemotePtr::new(NodeId(0), offset).unwrap_or(RemotePtr::NULL)
}

/// A leaf's slots, as read.
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

    /// The slot of a key whose value is there.
    fn find(&self, key: u64) -> Option<usize> {
        self.keys.iter().position(|k| *k == key)
    }

    /// The bytes of a leaf of these slots that nobody works in.
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
