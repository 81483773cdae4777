//! Tests of exhausted memory, and of the texts of errors.

use core::fmt::Display;
use std::collections::BTreeMap;

use dm_index::{Applied, IndexError, RangeIndex, Scan};
use dm_verbs::{Control, Verbs};

use crate::any_index::AnyIndex;
use crate::{IndexUnderTest, Job, Rng, TestKey, World, value_of};

/// Panics if the text of `error` lacks one of `parts`.
///
/// ```should_panic
/// dm_testkit::says(&"the lock is held", &["lock", "by client 3"]);
/// ```
pub fn says(error: &impl Display, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}

/// Runs a get, an update to `value`, a removal, and a scan from `key` on, and returns their errors in this
/// order.
pub async fn failures<R: RangeIndex>(client: &R, key: &R::Key, value: &[u8]) -> [Option<IndexError>; 4] {
    [
        client.get(key, &mut Vec::new()).await.err(),
        client.update(key, value).await.err(),
        client.remove(key).await.err(),
        client.scan(key, 10, &mut Scan::new()).await.err(),
    ]
}

/// The content of an index that was filled up. See [`fill_up`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Filled {
    /// Keys that are present.
    pub present: u64,
    /// Keys whose inserts were acknowledged.
    pub acknowledged: u64,
}

/// Inserts keys into an empty index until nothing fits any more, and continues until 200 inserts have been refused.
/// Every refusal must say that no memory node has room, every acknowledged key must be present, and operations that
/// need no memory must succeed.
///
/// # Panics
/// Panics if any of this is violated.
pub fn fill_up<I: IndexUnderTest>(index: I, world: &World) -> Filled {
    world.run_one(FillUp(index))
}

/// Number of refused inserts after which the test stops.
const REFUSALS: u64 = 200;

struct FillUp<I>(I);

impl<I: IndexUnderTest> Job for FillUp<I> {
    type Out = Filled;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Filled {
        let index = self.0.open(v).await.expect("an empty pool");
        let (client, bytes) = (AnyIndex::of::<I>(&index, v), self.0.value_bytes());
        let (mut there, mut refusals, mut rng) = (BTreeMap::new(), 0, Rng::new(1, 0));
        while refusals < REFUSALS {
            let number = rng.word();
            let done = client
                .insert(&I::Key::nth(number), &value_of(number, bytes))
                .await;
            if let Err(e) = &done {
                assert!(matches!(e, IndexError::OutOfMemory { .. }), "{e}");
                says(e, &["out of memory", "memory nodes"]);
                refusals += 1;
            }
            // A failed insert may have added the key, because the error may concern only the separator of the leaf that
            // the insert has split off.
            there.insert(number, done.is_ok());
        }
        let mut filled = Filled {
            present: 0,
            acknowledged: 0,
        };
        let mut value = Vec::new();
        for (&number, &acknowledged) in &there {
            let found = client.get(&I::Key::nth(number), &mut value).await;
            let found = found.expect("a READ needs no room");
            assert!(found || !acknowledged, "{number} was acknowledged");
            assert!(!found || value == value_of(number, bytes), "{number}");
            filled.present += u64::from(found);
            filled.acknowledged += u64::from(acknowledged);
        }
        let mut scan = Scan::new();
        assert_eq!(client.scan(&I::Key::nth(0), usize::MAX, &mut scan).await, Ok(()));
        assert_eq!(scan.len() as u64, filled.present);
        // Operations that need no memory still succeed.
        let known = there.iter().find(|(_, acknowledged)| **acknowledged);
        let key = I::Key::nth(*known.expect("some were inserted").0);
        let value = value_of(9, bytes);
        let updated = client.update(&key, &value).await;
        let refused = !I::UPDATES_IN_PLACE && matches!(updated, Err(IndexError::OutOfMemory { .. }));
        assert!(refused || updated == Ok(Applied::Replaced), "{updated:?}");
        assert_eq!(client.remove(&key).await, Ok(Applied::Removed));
        assert_eq!(client.get(&key, &mut Vec::new()).await, Ok(false));
        filled
    }
}
