//! A split of the left leaf by a client that holds the leaf alone.

use dm_verbs::Verbs;

use super::operations::{Worker, is_alone};
use super::{ALONE, Leaf, NO_END, OK, SLOTS, Slots, separator};

/// Waits until `worker` holds the leaf alone, splits the leaf if it is still full, and releases it. If another client
/// already splits the leaf, only waits until that split has ended.
pub(super) async fn split(worker: &Worker<'_>, leaf: Leaf) {
    assert_eq!(leaf, Leaf::left(), "no model fills the right leaf");
    let v = worker.verbs();
    let before = v
        .faa(leaf.counter(), ALONE.wrapping_neg())
        .await
        .expect("no faults in this model");
    if is_alone(before) {
        // Another client is already splitting the leaf.
        v.faa(leaf.counter(), ALONE).await.expect(OK);
        return worker.wait_for(leaf.counter(), |count| !is_alone(count)).await;
    }
    worker
        .wait_for(leaf.counter(), |count| count == ALONE.wrapping_neg())
        .await;
    let bytes = v.read(leaf.0, Leaf::BYTES as u32).await.expect(OK);
    let old = Slots::of(&bytes[Leaf::KEYS..], &bytes[Leaf::VALUES..]);
    if old.keys.contains(&0) {
        v.faa(leaf.counter(), ALONE).await.expect(OK);
        return;
    }
    let (between, left, right) = halves(&old, worker.flaws.values_stay);
    let right_image = right.image(NO_END);
    v.write(Leaf::right().0, &right_image).await.expect(OK);
    if worker.flaws.shown_first {
        v.cas(separator(), 0, between).await.expect(OK);
    }
    // First the fence key is lowered, and then the keys above it are removed. The values are not changed, because
    // readers may still read the values of the remaining keys.
    let keys = &left.image(between)[Leaf::KEYS..Leaf::VALUES];
    let chain = v.chain(leaf.0.node()).write_word(leaf.high(), between);
    chain.write(leaf.key(0), keys).await.expect(OK);
    if !worker.flaws.shown_first {
        v.cas(separator(), 0, between).await.expect(OK);
    }
    v.faa(leaf.counter(), ALONE).await.expect(OK);
}

/// Returns the separator, and the slots of the left and the right half. A key that stays in the left half keeps its
/// slot. With the flaw `values_stay`, the keys are sorted, and the values are not moved with them.
fn halves(old: &Slots, values_stay: bool) -> (u64, Slots, Slots) {
    let mut sorted = old.keys;
    sorted.sort_unstable();
    let middle = SLOTS / 2;
    let between = sorted[middle];
    let (mut left, mut right) = (*old, Slots::default());
    if values_stay {
        left.keys = sorted;
        left.keys[middle..].fill(0);
        right.keys[..SLOTS - middle].copy_from_slice(&sorted[middle..]);
        right.values[..SLOTS - middle].copy_from_slice(&old.values[middle..]);
        return (between, left, right);
    }
    let moved = (0..SLOTS).filter(|slot| old.keys[*slot] >= between);
    for (to, from) in moved.enumerate() {
        (right.keys[to], right.values[to]) = (old.keys[from], old.values[from]);
        left.keys[from] = 0;
    }
    (between, left, right)
}
