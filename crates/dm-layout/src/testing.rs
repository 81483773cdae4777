//! Operations on nodes as data, and their comparison with a plain map. Property tests and fuzz targets share them.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::format::{Judged, Lookup, NodeFormat, Place, Stale, judge};
use crate::header::{FIRST_VERSION, NodeInit};
use crate::key::{FenceKeys, KEY_BYTES_MAX, KeyBytes};
use crate::split::{SplitBias, SplitRequest};
use crate::value::ValueRef;

/// An operation on a leaf. Keys and values are small numbers, so that operations collide; see [`key_of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeOp {
    /// Inserts the key, or replaces its value.
    Upsert(u8, u8),
    /// Removes the key.
    Remove(u8),
    /// Looks the key up.
    Get(u8),
    /// Splits at the median, and continues with the left or the right node.
    Split {
        /// Whether to continue with the right node.
        keep_right: bool,
    },
    /// Splits the node, and then merges the two nodes again.
    SplitAndMerge,
}

impl NodeOp {
    /// Converts any three bytes to an operation. Every input is valid, so that a fuzzer wastes no input.
    #[must_use]
    pub const fn from_bytes([kind, key, value]: [u8; 3]) -> Self {
        match kind % 16 {
            0..=7 => Self::Upsert(key, value),
            8..=11 => Self::Remove(key),
            12 | 13 => Self::Get(key),
            14 => Self::Split {
                keep_right: value & 1 == 1,
            },
            _ => Self::SplitAndMerge,
        }
    }
}

/// Returns the key for a small number. Keys have the order of the numbers, and include both extremes (all bytes 0, all
/// bytes 255).
///
/// ```
/// use dm_layout::{Key8, testing::key_of};
///
/// assert_eq!([key_of::<Key8>(0), key_of(255)], [Key8(0), Key8(u64::MAX)]);
/// assert!(key_of::<Key8>(6) < key_of(7));
/// ```
#[must_use]
pub fn key_of<K: KeyBytes>(small: u8) -> K {
    K::read_from(&[small; KEY_BYTES_MAX])
}

/// Returns the key for a small number, like [`key_of`], but keys form clusters: keys differ only in their last,
/// third-last, middle and first byte, and neighbours usually only in the last one.
#[must_use]
pub fn clustered_key_of<K: KeyBytes>(small: u8) -> K {
    let mut bytes = [0; KEY_BYTES_MAX];
    for (at, shift) in [(0, 6), (K::LEN / 2, 4), (K::LEN - 3, 2), (K::LEN - 1, 0)] {
        bytes[at] = small >> shift & 3;
    }
    K::read_from(&bytes)
}

/// Returns the value for a small number. Every byte differs from its neighbours.
#[must_use]
pub fn value_of(small: u8, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| small.wrapping_mul(31).wrapping_add(at as u8))
        .collect()
}

/// A node's image, the bytes in remote memory that its WRITEs produced, and a map. All three must have the same
/// content.
///
/// ```
/// use dm_layout::testing::{NodeModel, NodeOp, clustered_key_of};
/// use dm_layout::{Key8, Packed};
///
/// // A property test generates the bytes; node and map stay equal for any bytes.
/// let format = Packed::<Key8>::with_node_bytes(256, 8).expect("a geometry");
/// let mut model = NodeModel::with_keys(format, clustered_key_of);
/// model.apply(NodeOp::Upsert(7, 1));
/// for byte in 0..200 {
///     model.apply(NodeOp::from_bytes([byte, byte.wrapping_mul(37), byte]));
/// }
/// ```
#[derive(Clone, Debug)]
pub struct NodeModel<K, F> {
    format: F,
    key_of: fn(u8) -> K,
    image: Vec<u8>,
    remote: Vec<u8>,
    map: BTreeMap<K, Vec<u8>>,
}

impl<K: KeyBytes, F: NodeFormat<K>> NodeModel<K, F> {
    /// Makes an empty leaf for the range of all keys.
    #[must_use]
    pub fn new(format: F) -> Self {
        Self::with_keys(format, key_of)
    }

    /// Makes an empty leaf for the range of all keys, with another function from numbers to keys, which must be
    /// ascending.
    #[must_use]
    pub fn with_keys(format: F, key_of: fn(u8) -> K) -> Self {
        let mut image = vec![0; format.node_bytes()];
        format.build(&mut image, &NodeInit::live(0, FenceKeys::ALL), []);
        Self {
            format,
            key_of,
            remote: image.clone(),
            image,
            map: BTreeMap::new(),
        }
    }

    /// Runs `op` on the node and on the map, WRITEs the bytes that the edits return, and compares the contents. Panics
    /// at the first difference.
    pub fn apply(&mut self, op: NodeOp) {
        match op {
            NodeOp::Upsert(key, value) => {
                let mut value = value_of(value, self.format.value_len());
                if let Some(first) = value.first_mut() {
                    *first |= self.format.value_mark();
                }
                self.upsert((self.key_of)(key), &value);
            }
            NodeOp::Remove(key) => self.remove(&(self.key_of)(key)),
            NodeOp::Get(key) => self.get(&(self.key_of)(key)),
            NodeOp::Split { keep_right } => self.split(keep_right),
            NodeOp::SplitAndMerge => self.split_and_merge(),
        }
        self.compare();
    }

    fn write(&mut self, range: core::ops::Range<usize>) {
        self.remote[range.clone()].copy_from_slice(&self.image[range]);
    }

    fn fences(&self) -> FenceKeys<K> {
        self.format.accept(&self.image).expect("an image at rest").fences
    }

    /// Checks that a writer's single pass over the node has the same result as two passes.
    fn judge(&self, key: &K) {
        let (one, two) = (
            self.format.judge(&self.remote, key, 0),
            judge(&self.format, &self.remote, key, 0),
        );
        assert_eq!(one, two, "{key:?}");
    }

    fn upsert(&mut self, key: K, value: &[u8]) {
        self.judge(&key);
        if !self.fences().contains(&key) {
            return;
        }
        let range = match self.format.place(&self.image, &key).expect("an image at rest") {
            Place::Present(slot) => self.format.update(&mut self.image, slot, value.into()),
            Place::Free(slot) => self.format.put(&mut self.image, slot, &key, value.into()),
            Place::Full => {
                assert!(
                    !F::ANYWHERE || self.map.len() == self.format.capacity(),
                    "full means full"
                );
                assert!(
                    !self.map.contains_key(&key),
                    "a present key is found in a full node"
                );
                return;
            }
        };
        self.map.insert(key, value.to_vec());
        self.write(range);
    }

    fn remove(&mut self, key: &K) {
        let slot = crate::find(&self.format, &self.image, key).expect("an image at rest");
        assert_eq!(slot.is_some(), self.map.remove(key).is_some(), "found is present");
        if let Some(slot) = slot {
            let range = self.format.remove(&mut self.image, slot);
            self.write(range);
        }
    }

    fn get(&self, key: &K) {
        self.judge(key);
        let fences = self.fences();
        match self.format.lookup(&self.remote, key, 0).expect("a node at rest") {
            Lookup::Found { slot, value } => {
                assert_eq!(
                    Some(value.to_vec()).as_ref(),
                    self.map.get(key),
                    "the value of {key:?}"
                );
                assert_eq!(
                    crate::find(&self.format, &self.remote, key),
                    Ok(Some(slot)),
                    "one key, one slot"
                );
            }
            Lookup::Absent => assert!(
                fences.contains(key) && !self.map.contains_key(key),
                "{key:?} absent"
            ),
            Lookup::GoRight { .. } => assert!(fences.is_below(key), "{key:?} lies right"),
            Lookup::Stale(stale) => assert!(*key < fences.low && stale == Stale::Below, "{key:?}: {stale:?}"),
        }
        let floor = self.format.floor(&self.remote, key).expect("a node at rest");
        let want = self.map.range(..=*key).next_back();
        assert_eq!(
            floor.map(|(_, k, v)| (k, v.to_vec())),
            want.map(|(k, v)| (*k, v.clone())),
            "floor"
        );
    }

    fn request<'v>() -> SplitRequest<'v, K> {
        SplitRequest {
            right_address: 7,
            right_incarnation: 1,
            right_version: FIRST_VERSION,
            owner: 9,
            new: None,
            bias: SplitBias::Median,
        }
    }

    /// Splits the node, WRITEs each step, and returns the separator and the right node. Returns `None` if there are
    /// fewer than two keys.
    fn split_steps(&mut self) -> Option<(K, Vec<u8>)> {
        let format = self.format.clone();
        let mut right = vec![0xee; format.node_bytes()];
        let plan = format
            .prepare_split(&self.image, &mut right, &Self::request())
            .expect("sound")?;
        let range = format.announce_split(&mut self.image, &plan).expect("sound");
        self.write(range);
        let range = format.clear_split(&mut self.image, &plan).expect("sound");
        self.write(range);
        let range = format.finish_split(&mut self.image).expect("sound");
        self.write(range);
        format.open(&mut right).expect("sound");
        Some((plan.separator, right))
    }

    fn split(&mut self, keep_right: bool) {
        let Some((separator, right)) = self.split_steps() else {
            assert!(self.map.len() < 2, "two keys can split");
            return;
        };
        let moved = self.map.split_off(&separator);
        assert!(
            !moved.is_empty() && !self.map.is_empty(),
            "both sides hold something"
        );
        if keep_right {
            self.compare();
            self.map = moved;
            self.image.clone_from(&right);
            self.remote = right;
        }
    }

    fn split_and_merge(&mut self) {
        let Some((_, mut right)) = self.split_steps() else {
            return;
        };
        let format = self.format.clone();
        format.freeze(&mut right, 9).expect("sound");
        assert!(
            format.merge_fits(&self.image, &right).expect("sound"),
            "halves fit together"
        );
        let right_header = format.accept(&right).expect("sound");
        let range = format.announce_merge(&mut self.image, 9).expect("sound");
        self.write(range);
        let range = format.copy_merge(&mut self.image, &right).expect("sound");
        self.write(range);
        let range = format.widen_merge(&mut self.image, &right_header).expect("sound");
        self.write(range);
        format.bury(&mut right, 5).expect("sound");
        let range = format.open(&mut self.image).expect("sound");
        self.write(range);
        let dead = format.lookup(&right, &K::MIN, 0);
        assert_eq!(
            dead,
            Ok(Lookup::Stale(Stale::Dead { forward: 5 })),
            "dead nodes forward"
        );
        assert_eq!(format.len(&right), Ok(0), "dead nodes hold nothing");
    }

    /// Checks that the remote bytes equal the image, and that both have the content of the map.
    fn compare(&self) {
        assert_eq!(self.remote, self.image, "the ranges cover every change");
        let header = crate::audit(&self.format, &self.remote).expect("a node at rest");
        let mut entries: Vec<(K, ValueRef<'_>)> = Vec::new();
        self.format
            .gather(&self.remote, &header.fences, &mut entries)
            .expect("a node at rest");
        assert_eq!(
            self.format.len(&self.remote),
            Ok(entries.len()),
            "no entry outside the fences"
        );
        let entries: Vec<_> = entries
            .iter()
            .map(|(key, value)| (*key, value.to_vec()))
            .collect();
        let want: Vec<_> = self
            .map
            .iter()
            .map(|(key, value)| (*key, value.clone()))
            .collect();
        assert_eq!(entries, want, "the node against the map");
    }
}

/// Calls the reading functions on arbitrary bytes, to check that none of them panics. Panics if the two implementations
/// of `judge` contradict each other, or if a value does not have the format's length.
///
/// ```
/// use dm_layout::{Key8, Slotted, testing::read_everything};
///
/// // A fuzz target calls this with its bytes.
/// let format = Slotted::<Key8>::with_node_bytes(256, 8).expect("a geometry");
/// read_everything(&format, &[0x5A; 256], &Key8(7));
/// read_everything(&format, b"not a node", &Key8(7));
/// ```
pub fn read_everything<K: KeyBytes, F: NodeFormat<K>>(format: &F, bytes: &[u8], key: &K) {
    let _ = format.lookup(bytes, key, 0);
    let _ = format.header(bytes);
    let _ = format.place(bytes, key);
    let _ = format.floor(bytes, key);
    let _ = crate::audit(format, bytes);
    let (one, two) = (format.judge(bytes, key, 0), judge(format, bytes, key, 0));
    match (one, two) {
        // The two functions may report different failures, and the single pass checks fewer bytes if the key is
        // present.
        (Err(_) | Ok(Judged::Here(Place::Present(_))), Err(_)) => {}
        // The key may be less than the low fence key, which the single pass does not check if it finds an entry with
        // the key.
        (Err(_) | Ok(Judged::Here(Place::Present(_))), Ok(Judged::Stale(Stale::Below))) => {}
        (one, two) => assert_eq!(one, two, "{key:?}"),
    }
    let header = format.accept(bytes);
    let fences = header.map_or(FenceKeys::ALL, |header| header.fences);
    let mut entries = Vec::new();
    if format.gather(bytes, &fences, &mut entries).is_ok() {
        for (_, value) in &entries {
            assert_eq!(
                value.to_vec().len(),
                format.value_len(),
                "a value of the format's length"
            );
        }
    }
    let mut right = vec![0; format.node_bytes()];
    let _ = format.prepare_split(bytes, &mut right, &NodeModel::<K, F>::request());
}
