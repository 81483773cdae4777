//! Damages bits in remote memory. Every operation must still end.

use dm_index::{Applied, RangeIndex, Scan};
use dm_loopback::Loopback;
use dm_verbs::{Control, RemotePtr, Verbs};

use crate::any_index::AnyIndex;
use crate::{Cards, IndexUnderTest, Rng, TestKey, World, value_of};

/// The number of keys in [`damage`]; they are numbered from 0.
pub const DAMAGE_KEYS: u64 = 200;

/// Rounds of damage with readers, followed by as many with writers.
const ROUNDS: u64 = 2_000;

/// The numbers of operations that found damage and reported an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Damage {
    /// Operations that reported an error in rounds in which all clients only read.
    pub read: u64,
    /// Operations that reported an error in rounds in which some clients wrote.
    pub written: u64,
}

/// Flips a few bits of a word in one of `places` (an address and a number of bytes, both multiples of 8). Then two
/// clients use the index: the first client's compute node has nodes of the index cached (`known`), and the second
/// client has nothing cached. Then the word is restored. This is repeated thousands of times. Every operation must end,
/// with an answer or a typed error. An operation that only reads must change nothing. An operation that writes may
/// write to a wrong place because of damaged bytes.
///
/// The index must hold the keys with numbers below [`DAMAGE_KEYS`], and no others.
///
/// # Panics
/// Panics if an operation panics, if anything is lost after operations that only read, or if `places` is empty.
pub async fn damage<I, V>(index: &I, v: &V, known: &I::Handle, places: &[(RemotePtr, u64)]) -> Damage
where
    I: IndexUnderTest,
    V: Verbs + Control,
{
    let (mut rng, mut met) = (Rng::new(4, 4), Damage::default());
    let client = AnyIndex::of::<I>(known, v);
    let value = value_of(2, index.value_bytes());
    for round in 0..2 * ROUNDS {
        let writes = round >= ROUNDS;
        if round == ROUNDS {
            let (first, mut scan) = (I::Key::nth(0), Scan::new());
            let done = client.scan(&first, 2 * DAMAGE_KEYS as usize, &mut scan);
            assert_eq!(done.await, Ok(()), "all is mended");
            assert_eq!(scan.len() as u64, DAMAGE_KEYS, "all is mended");
        }
        let (from, bytes) = places[(round % places.len() as u64) as usize];
        let at = from.add(8 * rng.below(bytes / 8));
        let before = v.word(at).await.expect("no faults");
        let flips = (0..1 + rng.below(3)).fold(0, |flips, _| flips ^ 1 << rng.below(64));
        v.load(at, &(before ^ flips).to_le_bytes()).expect("in range");
        // The first handle has the leaves cached, and this one has nothing cached.
        let cold = index.open(v).await.expect("a pool");
        let cold = AnyIndex::of::<I>(&cold, v);
        let number = rng.below(DAMAGE_KEYS);
        let (key, other) = (I::Key::nth(number), I::Key::nth(number + DAMAGE_KEYS));
        let mut scan = Scan::new();
        let mut ends = vec![
            client.get(&key, &mut Vec::new()).await.err(),
            cold.get(&key, &mut Vec::new()).await.err(),
            cold.scan(&key, 50, &mut scan).await.err(),
        ];
        if writes {
            ends.extend([
                cold.update(&key, &value).await.err(),
                cold.upsert(&other, &value).await.err(),
                cold.remove(&key).await.err(),
            ]);
        }
        for e in ends.into_iter().flatten() {
            assert!(!e.to_string().is_empty());
            *(if writes { &mut met.written } else { &mut met.read }) += 1;
        }
        // This verb completes after all requests that the clients have posted.
        v.word(at).await.expect("no faults");
        v.load(at, &before.to_le_bytes()).expect("in range");
    }
    met
}

/// Returns worlds for [`damage`]: loopback, and simulated testbeds of [weak cards](Cards::Weak).
///
/// # Panics
/// Panics if one cannot be built.
pub fn damage_worlds() -> impl Iterator<Item = World> {
    let loopback = Loopback::builder().build().expect("memory");
    let weak = (0..3).map(|seed| World::from(Cards::Weak.testbed(seed).build().expect("a testbed")));
    core::iter::once(World::from(loopback)).chain(weak)
}

/// Inserts the keys of [`damage`].
///
/// # Panics
/// Panics if a key is present already, or is refused.
pub async fn load_for_damage<R: RangeIndex>(client: &R)
where
    R::Key: TestKey,
{
    let value = value_of(1, client.value_bytes());
    for n in 0..DAMAGE_KEYS {
        let done = client.insert(&R::Key::nth(n), &value).await;
        assert_eq!(done, Ok(Applied::Inserted), "room, and no faults");
    }
}
