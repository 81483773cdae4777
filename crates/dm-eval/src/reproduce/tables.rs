//! Hash tables that fill one leaf: hopscotch, and three other ways to place colliding keys (CHIME §3.1.2). A table
//! takes keys until an insert finds no free entry, or no way to make one free.

use dm_layout::{FenceKeys, Hopscotch, Key8, NodeEdit, NodeInit, NodeRead, NodeShape, Place};
use dm_workload::KeySpace;

/// A hash table with room for a fixed number of keys.
pub(crate) trait Table {
    /// Returns the number of entries.
    fn entries(&self) -> usize;

    /// Inserts a new key. Returns `false` if the table has no room for it; other keys may have moved.
    fn insert(&mut self, key: u64) -> bool;

    /// Returns the contents of the entries that a lookup of `key` reads.
    fn read(&self, key: u64) -> Vec<Option<u64>>;
}

/// The figures of a table after the first insert that failed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Filled {
    /// The share of the entries that are in use.
    pub(crate) load_factor: f64,
    /// The mean number of entries that a lookup of a key of the table reads.
    pub(crate) entries_read: f64,
}

/// Inserts `keys` until the first one fails, and looks up all those that the table took.
///
/// # Errors
/// Returns a key that the table took, if a lookup does not find it.
pub(crate) fn fill(table: &mut dyn Table, keys: impl Iterator<Item = u64>) -> Result<Filled, u64> {
    let taken: Vec<u64> = keys.take_while(|key| table.insert(*key)).collect();
    let mut read = 0;
    for key in &taken {
        let entries = table.read(*key);
        if !entries.contains(&Some(*key)) {
            return Err(*key);
        }
        read += entries.len();
    }
    Ok(Filled {
        load_factor: taken.len() as f64 / table.entries() as f64,
        entries_read: read as f64 / taken.len().max(1) as f64,
    })
}

/// Returns a number below `count` that depends on the key. Different values of `nth` give independent numbers.
fn hash(key: u64, nth: u64, count: usize) -> usize {
    let hash = KeySpace::scrambled(nth).number(key);
    // This is less than `count`, because the hash is less than 2^64.
    ((u128::from(hash) * count as u128) >> 64) as usize
}

/// Buckets of equal size. A key may be in any entry of its bucket.
#[derive(Debug)]
struct Buckets {
    size: usize,
    entries: Vec<Option<u64>>,
}

impl Buckets {
    fn new(count: usize, size: usize) -> Self {
        Self {
            size,
            entries: vec![None; count * size],
        }
    }

    fn count(&self) -> usize {
        self.entries.len() / self.size
    }

    fn bucket(&self, nth: usize) -> &[Option<u64>] {
        &self.entries[nth * self.size..][..self.size]
    }

    fn used(&self, nth: usize) -> usize {
        self.bucket(nth).iter().flatten().count()
    }

    fn insert(&mut self, nth: usize, key: u64) -> bool {
        let bucket = &mut self.entries[nth * self.size..][..self.size];
        let free = bucket.iter_mut().find(|entry| entry.is_none());
        free.map(|entry| *entry = Some(key)).is_some()
    }
}

/// Associative buckets: the hash of a key selects a bucket.
#[derive(Debug)]
pub(crate) struct Associative(Buckets);

impl Associative {
    /// Makes a table of as many whole buckets as fit into `entries`, but at least one. A lookup reads `bucket` entries.
    pub(crate) fn new(entries: usize, bucket: usize) -> Self {
        Self(Buckets::new((entries / bucket).max(1), bucket))
    }

    fn bucket(&self, key: u64) -> usize {
        hash(key, 0, self.0.count())
    }
}

impl Table for Associative {
    fn entries(&self) -> usize {
        self.0.entries.len()
    }

    fn insert(&mut self, key: u64) -> bool {
        self.0.insert(self.bucket(key), key)
    }

    fn read(&self, key: u64) -> Vec<Option<u64>> {
        self.0.bucket(self.bucket(key)).to_vec()
    }
}

/// The table of RACE (ATC 2021), without its directory. In a group of three buckets, the one in the middle takes the
/// overflow of the other two. Each of two hashes selects a bucket with its overflow bucket, and a key goes into the
/// emptier of these two pairs.
#[derive(Debug)]
pub(crate) struct Race(Buckets);

impl Race {
    /// Makes a table of as many whole groups as fit into `entries`, but at least one. A lookup reads four buckets of
    /// `bucket` entries.
    pub(crate) fn new(entries: usize, bucket: usize) -> Self {
        Self(Buckets::new((entries / (3 * bucket)).max(1) * 3, bucket))
    }

    /// Returns the bucket and the overflow bucket of both choices.
    fn pairs(&self, key: u64) -> [[usize; 2]; 2] {
        [0, 1].map(|nth| {
            let pair = hash(key, nth, self.0.count() / 3 * 2);
            [pair / 2 * 3 + pair % 2 * 2, pair / 2 * 3 + 1]
        })
    }
}

impl Table for Race {
    fn entries(&self) -> usize {
        self.0.entries.len()
    }

    fn insert(&mut self, key: u64) -> bool {
        let used = |pair: &[usize; 2]| pair.iter().map(|nth| self.0.used(*nth)).sum::<usize>();
        let [first, second] = self.pairs(key);
        let pair = if used(&second) < used(&first) {
            second
        } else {
            first
        };
        pair.into_iter().any(|nth| self.0.insert(nth, key))
    }

    fn read(&self, key: u64) -> Vec<Option<u64>> {
        let buckets = self.pairs(key).into_iter().flatten();
        buckets.flat_map(|nth| self.0.bucket(nth).to_vec()).collect()
    }
}

/// FaRM's associative hopscotch table (NSDI 2014), without its chains of overflow blocks: a key is in the bucket that
/// its hash selects, or in the next one.
#[derive(Debug)]
pub(crate) struct Farm(Buckets);

impl Farm {
    /// Makes a table of as many whole buckets as fit into `entries`, but at least two. A lookup reads two buckets of
    /// `bucket` entries.
    pub(crate) fn new(entries: usize, bucket: usize) -> Self {
        Self(Buckets::new((entries / bucket).max(2), bucket))
    }

    fn home(&self, key: u64) -> usize {
        hash(key, 0, self.0.count())
    }

    /// Frees an entry of bucket `nth` by moving a key to the next bucket, which must have a free entry. Returns `false`
    /// if no key of bucket `nth` may move.
    fn push_on(&mut self, nth: usize) -> bool {
        let moving = self
            .0
            .bucket(nth)
            .iter()
            .flatten()
            .copied()
            .find(|key| self.home(*key) == nth);
        let Some(key) = moving else { return false };
        let old = self.0.entries[nth * self.0.size..]
            .iter_mut()
            .find(|entry| **entry == Some(key));
        *old.expect("the bucket has the key") = None;
        self.0.insert((nth + 1) % self.0.count(), key)
    }
}

impl Table for Farm {
    fn entries(&self) -> usize {
        self.0.entries.len()
    }

    fn insert(&mut self, key: u64) -> bool {
        let (home, count) = (self.home(key), self.0.count());
        let nth = |distance: usize| (home + distance) % count;
        let has_room = |distance: &usize| self.0.used(nth(*distance)) < self.0.size;
        let Some(free) = (0..count).find(has_room) else {
            return false;
        };
        (1..free).rev().all(|distance| self.push_on(nth(distance))) && self.0.insert(nth(free.min(1)), key)
    }

    fn read(&self, key: u64) -> Vec<Option<u64>> {
        let home = self.home(key);
        let next = (home + 1) % self.0.count();
        [self.0.bucket(home), self.0.bucket(next)].concat()
    }
}

/// A hopscotch leaf of the node format that the indexes use. As in the indexes, an insert makes at most three hops.
#[derive(Debug)]
pub(crate) struct HopscotchLeaf {
    format: Hopscotch<Key8>,
    image: Vec<u8>,
}

const VALUE: [u8; 8] = [1; 8];

impl HopscotchLeaf {
    /// Makes an empty leaf. A lookup reads `neighbourhood` entries, and sometimes one more.
    ///
    /// # Errors
    /// Returns a message if a leaf cannot have these numbers of entries.
    pub(crate) fn new(entries: usize, neighbourhood: usize) -> Result<Self, String> {
        let format = Hopscotch::new(entries, neighbourhood, VALUE.len()).map_err(|e| e.to_string())?;
        let mut image = vec![0; format.node_bytes()];
        format.build(&mut image, &NodeInit::live(0, FenceKeys::ALL), []);
        Ok(Self { format, image })
    }
}

impl Table for HopscotchLeaf {
    fn entries(&self) -> usize {
        self.format.capacity()
    }

    fn insert(&mut self, key: u64) -> bool {
        let (format, key, value) = (self.format, Key8(key), VALUE.as_slice().into());
        let sound = "only this table writes the image";
        match format.place(&self.image, &key).expect(sound) {
            Place::Present(_) => true,
            Place::Free(slot) => !format.put(&mut self.image, slot, &key, value).is_empty(),
            Place::Full => {
                let all = format.geometry().all();
                let plan = format.plan_hops(&self.image, &key, &all).expect(sound);
                plan.map(|plan| format.hop(&mut self.image, &plan, (&key, value), true, |_, _| ()))
                    .is_some()
            }
        }
    }

    fn read(&self, key: u64) -> Vec<Option<u64>> {
        let geometry = self.format.geometry();
        let reach = geometry.reach(self.format.home(&Key8(key)));
        let parts = || [Some(&reach.first), reach.second.as_ref()].into_iter().flatten();
        let is_read = |number: usize| {
            let entry = geometry.entry(number);
            parts().any(|part| part.start <= entry.start && entry.end <= part.end)
        };
        let slots = self
            .format
            .slots(&self.image)
            .enumerate()
            .filter(|(number, _)| is_read(*number));
        slots
            .map(|(_, slot)| {
                let entry = self.format.entry(&self.image, slot);
                entry
                    .expect("only this table writes the image")
                    .map(|(key, _)| key.0)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the mean load factor of 4,000 tables.
    fn mean(make: impl Fn() -> Box<dyn Table>) -> f64 {
        let one = |nth: u64| fill(&mut *make(), keys(nth)).unwrap().load_factor;
        (0..4_000).map(one).sum::<f64>() / 4_000.0
    }

    fn keys(nth: u64) -> impl Iterator<Item = u64> {
        (nth << 20..).map(|index| KeySpace::scrambled(7).number(index))
    }

    fn is_near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 0.01, "{found} of {expected}");
    }

    /// Tables that are so small that their mean load factor can be computed by hand.
    #[test]
    fn load_factors_of_tiny_tables_are_known() {
        // The second of two keys finds the other bucket with a probability of a half.
        is_near(mean(|| Box::new(Associative::new(2, 1))), 0.75);
        // Two keys fit in a quarter of the cases, three in 3/8, and four in 3/8.
        is_near(mean(|| Box::new(Associative::new(4, 2))), 25.0 / 32.0);
        // The third key fails if it and the second have both choices in the first key's pair: in 1/16 of the cases.
        is_near(mean(|| Box::new(Race::new(3, 1))), 1.0 - 1.0 / 16.0 / 3.0);
        // Each of these neighbourhoods is the whole table.
        is_near(mean(|| Box::new(Farm::new(4, 2))), 1.0);
        is_near(mean(|| Box::new(Associative::new(4, 4))), 1.0);
        is_near(mean(|| Box::new(HopscotchLeaf::new(8, 8).unwrap())), 1.0);
    }

    /// `fill` looks up every key, and reports one that is lost. Lookups read as many entries as CHIME's paper states.
    #[test]
    fn tables_keep_their_keys_and_lookups_read_a_neighbourhood() {
        for nth in 0..100 {
            let mut hopscotch = HopscotchLeaf::new(128, 8).unwrap();
            let tables: [&mut dyn Table; 3] = [
                &mut Associative::new(128, 8),
                &mut Race::new(128, 2),
                &mut Farm::new(128, 4),
            ];
            for table in tables {
                let filled = fill(table, keys(nth)).unwrap();
                assert_eq!(filled.entries_read, 8.0);
                assert!((0.05..=1.0).contains(&filled.load_factor), "{filled:?}");
            }
            // The bytes that prove to which leaf the entries belong may contain one more entry.
            let read = fill(&mut hopscotch, keys(nth)).unwrap().entries_read;
            assert!((8.0..8.5).contains(&read), "{read}");
        }
    }

    #[test]
    fn a_lost_key_is_reported() {
        struct Forgetful(Associative);
        impl Table for Forgetful {
            fn entries(&self) -> usize {
                self.0.entries()
            }
            fn insert(&mut self, key: u64) -> bool {
                self.0.insert(key)
            }
            fn read(&self, key: u64) -> Vec<Option<u64>> {
                self.0.read(key).split_off(1)
            }
        }
        let first = keys(0).next().unwrap();
        let mut table = Forgetful(Associative::new(8, 2));
        assert_eq!(fill(&mut table, keys(0)), Err(first));
    }
}
