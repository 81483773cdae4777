//! An operation of property tests, fuzzing and scripts.

use crate::{Rng, TestKey};

/// An operation of a range index. A seed stands for a value ([`value_of`]), so one script works with any
/// value size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op<K> {
    /// Reads a key.
    Get(K),
    /// Adds a key.
    Insert(K, u64),
    /// Replaces a key's value.
    Update(K, u64),
    /// Adds a key or replaces its value.
    Upsert(K, u64),
    /// Removes a key.
    Remove(K),
    /// Reads up to this many entries from a key on.
    Scan(K, usize),
}

/// Bytes from which [`Op::decode`] makes an operation.
pub const OP_BYTES: usize = 5;

impl<K: TestKey> Op<K> {
    /// Decodes an operation from arbitrary bytes, on one of `keys` numbered keys (at most 65,536) or (one time in 64)
    /// on the smallest or the largest key. Fuzzing and property tests use it, because every byte string is a script,
    /// small changes of the bytes are small changes of the script, and zeroes are the simplest script.
    #[must_use]
    pub fn decode(bytes: [u8; OP_BYTES], keys: u64) -> Self {
        let [kind, edge, low, high, argument] = bytes;
        let key = match edge {
            252.. if edge % 2 == 0 => K::MIN,
            252.. => K::MAX,
            _ => K::nth(u64::from(u16::from_le_bytes([low, high])) % keys.max(1)),
        };
        let seed = u64::from(argument);
        match kind % 16 {
            0..3 => Self::Get(key),
            3..7 => Self::Insert(key, seed),
            7..9 => Self::Update(key, seed),
            9..12 => Self::Upsert(key, seed),
            12..14 => Self::Remove(key),
            // A scan may cover several nodes.
            _ => Self::Scan(key, usize::from(argument) * 2),
        }
    }

    /// Returns an operation on one of `keys` numbered keys or an edge of the key space, drawn from `rng`.
    pub fn draw(rng: &mut Rng, keys: u64) -> Self {
        let word = rng.word().to_le_bytes();
        let op = Self::decode([word[0], word[1], word[2], word[3], word[4]], keys);
        // `decode` takes the seed from one byte. With 64 bits, the values are distinct.
        match op {
            Self::Insert(k, _) => Self::Insert(k, rng.word()),
            Self::Update(k, _) => Self::Update(k, rng.word()),
            Self::Upsert(k, _) => Self::Upsert(k, rng.word()),
            other => other,
        }
    }
}

/// Returns the value of `seed`, `bytes` long. From 8 bytes on, different seeds below `u64::MAX` give different values.
/// Seed 0 gives zeroes and seed 255 all ones, which are ordinary values.
///
/// ```
/// use dm_testkit::value_of;
///
/// assert_eq!((value_of(0, 3), value_of(255, 2)), (vec![0; 3], vec![0xff; 2]));
/// assert_ne!(value_of(1, 8), value_of(2, 8));
/// ```
#[must_use]
pub fn value_of(seed: u64, bytes: usize) -> Vec<u8> {
    match seed {
        0 => vec![0; bytes],
        255 => vec![0xff; bytes],
        _ => {
            let mut value = seed.to_le_bytes().to_vec();
            let mut rng = Rng::new(seed, 0);
            while value.len() < bytes {
                value.extend_from_slice(&rng.word().to_le_bytes());
            }
            value.truncate(bytes);
            value
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dm_index::Key8;

    #[test]
    fn every_kind_of_operation_and_both_edges_are_drawn() {
        let mut rng = Rng::new(1, 0);
        let ops: Vec<Op<Key8>> = (0..5_000).map(|_| Op::draw(&mut rng, 100)).collect();
        let count = |f: fn(&Op<Key8>) -> bool| ops.iter().filter(|op| f(op)).count();
        let kinds: [fn(&Op<Key8>) -> bool; 8] = [
            |op| matches!(op, Op::Get(_)),
            |op| matches!(op, Op::Insert(..)),
            |op| matches!(op, Op::Update(..)),
            |op| matches!(op, Op::Upsert(..)),
            |op| matches!(op, Op::Remove(_)),
            |op| matches!(op, Op::Scan(..)),
            |op| matches!(op, Op::Get(Key8(u64::MAX))),
            |op| matches!(op, Op::Insert(Key8(u64::MAX), _)),
        ];
        for kind in kinds {
            assert!(count(kind) > 3);
        }
        assert!(ops.iter().any(|op| matches!(op, Op::Scan(Key8(0..100), 1..))));
    }

    #[test]
    fn values_have_their_length_and_differ() {
        for bytes in [0, 1, 8, 64, 200] {
            assert_eq!(value_of(77, bytes).len(), bytes);
        }
        assert_ne!(value_of(1, 8), value_of(2, 8));
        assert_eq!((value_of(0, 2), value_of(255, 2)), (vec![0, 0], vec![255, 255]));
    }
}
