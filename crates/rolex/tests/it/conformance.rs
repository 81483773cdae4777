//! Runs the script of every index on all three indexes with different options. Some of them pass it in every world, and
//! the others in one.

use core::marker::PhantomData;

use dm_testkit::{Family, TestKey, WorldKind, conform};
use rolex::{ChimeLearnedParts, Options, PublishedParts, Rdwc, RolexParts};

use crate::common::{Learns, Tree};

/// Chooses one of the three indexes.
pub(crate) trait Kind {
    type Parts<K: TestKey>: Learns + dm_assemble::Parts<Key = K>;
}

pub(crate) struct Whole;

impl Kind for Whole {
    type Parts<K: TestKey> = RolexParts<K>;
}

pub(crate) struct Hop;

impl Kind for Hop {
    type Parts<K: TestKey> = ChimeLearnedParts<K>;
}

pub(crate) struct AsPublished;

impl Kind for AsPublished {
    type Parts<K: TestKey> = PublishedParts<K>;
}

/// Indexes whose options are changed by a function, and whose clients retrain the models after this many operations (0
/// for never).
struct Trees<F>(fn(&mut Options), u32, PhantomData<F>);

impl<F> Trees<F> {
    const fn new(change: fn(&mut Options), visits: u32) -> Self {
        Self(change, visits, PhantomData)
    }
}

impl<F: Kind> Family for Trees<F> {
    type Index<K: TestKey> = Tree<F::Parts<K>>;
    fn index<K: TestKey>(&self, value_bytes: usize) -> Self::Index<K> {
        let mut options = F::Parts::<K>::options(value_bytes);
        (self.0)(&mut options);
        Tree::new(options).visiting(self.1)
    }
}

dm_testkit::conformance! {
    whole => Trees::<Whole>::new(|_| {}, 0);
    small_leaves_and_visits => Trees::<Whole>::new(|o| o.span = 5, 300);
    hopscotch => Trees::<Hop>::new(|o| (o.span, o.neighbourhood) = (12, 4), 0);
    as_published => Trees::<AsPublished>::new(|_| {}, 0);
    as_published_with_small_leaves_and_visits => Trees::<AsPublished>::new(|o| (o.span, o.error) = (5, 3), 300);
}

#[test]
fn hopscotch_and_visits() {
    let small = Trees::<Hop>::new(|o| (o.span, o.neighbourhood) = (6, 3), 300);
    conform(&small, WorldKind::LoopbackDelays);
}

#[test]
fn a_cache_for_a_part_of_the_leaves() {
    let part = Trees::<Whole>::new(|o| (o.span, o.cache_bytes) = (5, 4_000), 500);
    conform(&part, WorldKind::SimCx6);
}

#[test]
fn as_published_with_a_cache_for_a_part_of_the_leaves() {
    let part = Trees::<AsPublished>::new(|o| (o.span, o.cache_bytes) = (5, 4_000), 500);
    conform(&part, WorldKind::SimCx6);
}

#[test]
fn as_published_with_shared_operations() {
    let shared = Trees::<AsPublished>::new(|o| o.rdwc = Rdwc { locks: 8, ..Rdwc::ON }, 500);
    conform(&shared, WorldKind::LoopbackDelays);
}

#[test]
fn without_local_queues() {
    conform(
        &Trees::<Whole>::new(|o| o.hierarchical = false, 500),
        WorldKind::SimCx5,
    );
}

#[test]
fn rdwc() {
    let shared = Trees::<Whole>::new(|o| o.rdwc = Rdwc { locks: 8, ..Rdwc::ON }, 500);
    conform(&shared, WorldKind::LoopbackDelays);
}
