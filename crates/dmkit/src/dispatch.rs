//! From the names in a point to the types of its index.

use chime::Chime;
use dm_index::{Key8, Key32};
use dm_layout::{Bookend, Checksummed, Slotted};
use dolphin::Dolphin;
use sherman::{LeafKind, Sherman, Variant};
use smart::Smart;

use crate::bench_tree::BenchTree;
use crate::cli::Index;
use crate::point::{BenchKey, Point};
use crate::run::{RunError, bad};

/// An action that is generic over keys and index.
pub(crate) trait WithTree {
    /// The result.
    type Out;
    /// Carries out the action.
    fn with<K: BenchKey, T: BenchTree<Key = K>>(self) -> Result<Self::Out, RunError>;
}

/// Carries out `what` with the index that `point` names.
pub(crate) fn with_tree<W: WithTree>(point: &Point, what: W) -> Result<W::Out, RunError> {
    match point.key_size {
        8 => with_key::<Key8, W>(point, what),
        32 => with_key::<Key32, W>(point, what),
        n => Err(bad(format_args!("keys have 8 or 32 bytes, not {n}"))),
    }
}

fn with_key<K: BenchKey, W: WithTree>(point: &Point, what: W) -> Result<W::Out, RunError> {
    if point.index != Index::Sherman && point.variant != Variant::Default {
        return Err(bad(format_args!("{} has no variants", point.index.name())));
    }
    match (point.index, point.variant.leaf()) {
        (Index::Smart, _) => what.with::<K, Smart<K>>(),
        (Index::Chime, _) => what.with::<K, Chime<K>>(),
        (Index::Dolphin, _) => what.with::<K, Dolphin<K>>(),
        (Index::Sherman, LeafKind::TwoLevel) => what.with::<K, Sherman<K, Slotted<K>>>(),
        (Index::Sherman, LeafKind::Checksummed) => what.with::<K, Sherman<K, Checksummed<K>>>(),
        (Index::Sherman, LeafKind::Bookend) => what.with::<K, Sherman<K, Bookend<K>>>(),
    }
}
