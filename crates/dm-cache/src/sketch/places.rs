//! The addresses of leaves, in four bytes each, or in six if they are far apart.

use core::mem::size_of;

use dm_verbs::{NodeId, RemotePtr};

/// Leaves must lie at multiples of this many bytes.
const UNIT: u64 = 64;
/// Bits of a near leaf's packed address that hold its distance from the base in units. The other 8 of its 32 bits hold
/// the memory node.
const NEAR_BITS: u32 = 24;
/// Bits of a far leaf's packed address that hold its offset in units. The other 8 of its 48 bits hold the memory node.
const FAR_BITS: u32 = 40;

/// The addresses of leaves, by number.
///
/// Each address takes four bytes as long as all offsets lie in the GiB around the leaf for which the list was made.
/// When a leaf is added whose offset lies outside, all addresses are converted to six bytes each, which suffices for
/// offsets below 64 TiB. Leaves that are not at a multiple of 64 bytes, or that are on memory nodes from number 256 on,
/// cannot be stored.
#[derive(Debug, Hash)]
pub(super) enum Places {
    /// 8 bits for the memory node, and 24 bits for the units from `base` on.
    Near {
        /// The base of the addresses, in units.
        base: u64,
        /// The packed address of each leaf.
        of: Vec<u32>,
    },
    /// 8 bits for the memory node, and 40 bits for the units, little-endian.
    Far(Vec<[u8; 6]>),
}

/// Returns a leaf's memory node and its units, if it can be stored.
fn parts(leaf: RemotePtr) -> Option<(u8, u64)> {
    let node = u8::try_from(leaf.node().0).ok()?;
    let units = leaf.offset() / UNIT;
    let exact = leaf.offset().is_multiple_of(UNIT) && units >> FAR_BITS == 0;
    exact.then_some((node, units))
}

fn near(base: u64, (node, units): (u8, u64)) -> Option<u32> {
    let place = units.checked_sub(base).filter(|place| place >> NEAR_BITS == 0)?;
    Some(u32::from(node) << NEAR_BITS | place as u32)
}

fn far((node, units): (u8, u64)) -> [u8; 6] {
    let [a, b, c, d, e, f, ..] = (u64::from(node) << FAR_BITS | units).to_le_bytes();
    [a, b, c, d, e, f]
}

impl Places {
    /// Makes an empty list whose first leaves will be near `leaf`.
    pub(super) fn around(leaf: RemotePtr) -> Self {
        Self::Near {
            // Other leaves may lie on either side.
            base: (leaf.offset() / UNIT).saturating_sub(1 << (NEAR_BITS - 1)),
            of: Vec::new(),
        }
    }

    /// Returns whether a list can store this leaf, in one of the two forms.
    pub(super) fn can_store(leaf: RemotePtr) -> bool {
        parts(leaf).is_some()
    }

    /// Returns whether the leaf can be stored in the current form.
    pub(super) fn takes(&self, leaf: RemotePtr) -> bool {
        parts(leaf).is_some_and(|parts| match self {
            Self::Near { base, .. } => near(*base, parts).is_some(),
            Self::Far(_) => true,
        })
    }

    pub(super) fn get(&self, i: usize) -> Option<RemotePtr> {
        let (node, units) = match self {
            Self::Near { base, of } => {
                let place = *of.get(i)?;
                let units = u64::from(place & ((1 << NEAR_BITS) - 1));
                (place >> NEAR_BITS, base + units)
            }
            Self::Far(of) => {
                let [a, b, c, d, e, node] = *of.get(i)?;
                (u32::from(node), u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]))
            }
        };
        RemotePtr::new(NodeId(node as u16), units * UNIT)
    }

    /// Converts all addresses to the far form.
    fn widen(&mut self) {
        if let Self::Near { of, .. } = self {
            let mut wide = Vec::with_capacity(of.len());
            let all = (0..of.len()).filter_map(|i| self.get(i).and_then(parts));
            wide.extend(all.map(far));
            *self = Self::Far(wide);
        }
    }

    /// Replaces the leaf of number `i`; returns `false` if it cannot be stored.
    pub(super) fn set(&mut self, i: usize, leaf: RemotePtr) -> bool {
        let Some(parts) = parts(leaf) else { return false };
        if !self.takes(leaf) {
            self.widen();
        }
        match self {
            Self::Near { base, of } => of[i] = near(*base, parts).unwrap_or_default(),
            Self::Far(of) => of[i] = far(parts),
        }
        true
    }

    /// Inserts a leaf as number `i`; returns `false` if it cannot be stored.
    pub(super) fn insert(&mut self, i: usize, leaf: RemotePtr) -> bool {
        let Some(parts) = parts(leaf) else { return false };
        if !self.takes(leaf) {
            self.widen();
        }
        match self {
            Self::Near { base, of } => {
                of.reserve_exact(1);
                of.insert(i, near(*base, parts).unwrap_or_default());
            }
            Self::Far(of) => {
                of.reserve_exact(1);
                of.insert(i, far(parts));
            }
        }
        true
    }

    pub(super) fn remove(&mut self, i: usize) {
        match self {
            Self::Near { of, .. } => drop(of.remove(i)),
            Self::Far(of) => drop(of.remove(i)),
        }
    }

    /// Copies number `from` to number `to`.
    pub(super) fn copy(&mut self, from: usize, to: usize) {
        match self {
            Self::Near { of, .. } => of[to] = of[from],
            Self::Far(of) => of[to] = of[from],
        }
    }

    pub(super) fn truncate(&mut self, len: usize) {
        match self {
            Self::Near { of, .. } => of.truncate(len),
            Self::Far(of) => of.truncate(len),
        }
    }

    pub(super) fn shrink(&mut self) {
        match self {
            Self::Near { of, .. } => of.shrink_to_fit(),
            Self::Far(of) => of.shrink_to_fit(),
        }
    }

    /// Returns the allocated bytes.
    pub(super) fn heap(&self) -> usize {
        match self {
            Self::Near { of, .. } => of.capacity() * size_of::<u32>(),
            Self::Far(of) => of.capacity() * size_of::<[u8; 6]>(),
        }
    }
}

#[cfg(all(test, not(dm_loom)))]
mod tests {
    use super::*;

    fn at(node: u16, offset: u64) -> RemotePtr {
        RemotePtr::new(NodeId(node), offset).expect("in range")
    }

    #[test]
    fn leaves_far_apart_take_six_bytes_each_and_are_the_same() {
        let first = at(3, 5 << 30);
        let mut places = Places::around(first);
        let mut all = vec![first, at(0, (5 << 30) + 64), at(255, (5 << 30) - 4096)];
        for (i, leaf) in all.iter().enumerate() {
            assert!(places.takes(*leaf) && places.insert(i, *leaf));
        }
        assert_eq!(places.heap(), 12);
        let far = at(7, 40 << 40);
        assert!(!places.takes(far) && places.insert(1, far));
        all.insert(1, far);
        assert_eq!(places.heap(), 24);
        for (i, leaf) in all.iter().enumerate() {
            assert_eq!(places.get(i), Some(*leaf));
        }
        for none in [at(256, 64), at(0, 96), at(0, 65 << 40)] {
            assert!(!places.takes(none) && !places.insert(0, none) && !places.set(0, none));
        }
        assert!(places.set(0, at(1, 64)));
        places.copy(0, 2);
        places.remove(0);
        assert_eq!(places.get(1), Some(at(1, 64)));
        assert_eq!(places.get(3), None);
    }
}
