//! The lists of a census. They name the blocks of a chunk that the walk has not reached and no depot lists.
//!
//! The member that takes the census allocates a block for each list. A list has a bit for each block of a part of a
//! chunk. At first, a bit is 1 if the walk has not reached the block and no depot lists it. Members clear the bits of
//! the blocks that they hold. No bit becomes 1 again.
//!
//! ```text
//!   pointer   address, a multiple of 64 · lines of the list that are in use, minus 1, in the 6 low bits
//!   list   pointer to the next list 8 · first block 8 · bytes of a block 4 · blocks 4 · magic 8 · round of the census 8 ·
//!          number of the list 8 · zero 16 · words of 64 bits …
//! ```
//! A member that reads a list compares its round and its number with those that it expects. So it notices a list of
//! another census.

use dm_verbs::{LINE, RemotePtr, Verbs};
use smallvec::SmallVec;

use crate::AllocError;
use crate::block::Class;
use crate::pool::Holdings;

/// The class of lists.
pub(crate) const LIST: Class = Class {
    // The cast loses nothing: both are small.
    bytes: dm_sync::scaled(4096, 128) as u32,
    kind: u8::MAX - 1,
};
/// Maximum number of blocks in a list.
pub(crate) const LIST_BLOCKS: u64 = (LIST.bytes as u64 - LINE as u64) * 8;
const MAGIC: u64 = u64::from_le_bytes(*b"dmkit/ls");
const MAGIC_AT: usize = 24;
const WORD: u64 = 64;
/// Number of CASes that are in flight at the same time.
const PARALLEL: usize = 16;

/// A pointer to a list. It contains the number of lines that are in use, so that a client reads only these lines of a
/// short list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct ListPtr(pub(crate) u64);

impl ListPtr {
    /// Returns the pointer to a list with this number of words.
    pub(crate) fn new(at: RemotePtr, words: usize) -> Self {
        Self(at.raw() | (8 * words).div_ceil(LINE) as u64)
    }
    /// Returns whether there is no list.
    pub(crate) fn is_null(self) -> bool {
        self.0 == 0
    }
    /// Returns the address of the list.
    pub(crate) fn at(self) -> RemotePtr {
        RemotePtr::from_raw(self.0 & !(LINE as u64 - 1))
    }
    /// Returns the size in bytes of the part that must be read.
    pub(crate) fn bytes(self) -> u32 {
        // The casts lose nothing: the number is less than 64.
        (1 + (self.0 % LINE as u64) as u32) * LINE as u32
    }
}

/// A list in decoded form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct List {
    pub(crate) round: u64,
    pub(crate) number: u64,
    pub(crate) next: ListPtr,
    pub(crate) first: RemotePtr,
    /// Size of a block in bytes.
    pub(crate) bytes: u64,
    pub(crate) blocks: u64,
    /// The bits, lowest first.
    pub(crate) words: Vec<u64>,
}

impl List {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut image = vec![0; LINE];
        image[..8].copy_from_slice(&self.next.0.to_le_bytes());
        image[8..16].copy_from_slice(&self.first.raw().to_le_bytes());
        // The casts lose nothing: a class has 32 bits, and a list has at most `LIST_BLOCKS` blocks.
        image[16..20].copy_from_slice(&(self.bytes as u32).to_le_bytes());
        image[20..24].copy_from_slice(&(self.blocks as u32).to_le_bytes());
        image[MAGIC_AT..MAGIC_AT + 8].copy_from_slice(&MAGIC.to_le_bytes());
        image[32..40].copy_from_slice(&self.round.to_le_bytes());
        image[40..48].copy_from_slice(&self.number.to_le_bytes());
        image.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
        image
    }

    /// Decodes the bytes of a list. Returns `None` if they are not a list.
    pub(crate) fn decode(image: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(*image.get(at..)?.first_chunk()?));
        let half = |at: usize| Some(u64::from(u32::from_le_bytes(*image.get(at..)?.first_chunk()?)));
        let (bytes, blocks) = (half(16)?, half(20)?);
        if word(MAGIC_AT)? != MAGIC || bytes == 0 || blocks > LIST_BLOCKS {
            return None;
        }
        let words = (0..blocks.div_ceil(WORD)).map(|i| word(LINE + 8 * i as usize));
        Some(Self {
            round: word(32)?,
            number: word(40)?,
            next: ListPtr(word(0)?),
            first: RemotePtr::from_raw(word(8)?),
            bytes,
            blocks,
            words: words.collect::<Option<_>>()?,
        })
    }

    /// Returns the number of the block that contains this address.
    fn number_of(&self, at: RemotePtr) -> Option<u64> {
        let offset = at.offset().checked_sub(self.first.offset())?;
        let number = offset / self.bytes;
        (at.node() == self.first.node() && number < self.blocks).then_some(number)
    }

    /// Returns the addresses of the blocks whose bits are 1.
    pub(crate) fn set_blocks(&self) -> impl Iterator<Item = RemotePtr> + '_ {
        let is_set = |number: &u64| self.words[(number / WORD) as usize] >> (number % WORD) & 1 == 1;
        let numbers = (0..self.blocks).filter(is_set);
        numbers.map(|number| self.first.add(number * self.bytes))
    }

    /// Clears the bits that are 0 in `image`, which holds the bytes of the same list as a later READ returned them.
    /// Ignores the header in `image`.
    pub(crate) fn narrow(&mut self, image: &[u8]) {
        let words = image.get(LINE..).unwrap_or_default().chunks_exact(8);
        let words = words.map(|word| word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)));
        // A word that is missing counts as 0.
        for (mine, word) in self.words.iter_mut().zip(words.chain(core::iter::repeat(0))) {
            *mine &= word;
        }
    }

    /// Returns the bits of the blocks that `holdings` contains. The blocks of `holdings` must be sorted.
    fn held(&self, holdings: &Holdings) -> Vec<u64> {
        let mut held = vec![0; self.words.len()];
        let mut set = |number: u64| held[(number / WORD) as usize] |= 1 << (number % WORD);
        let begin = holdings.blocks.partition_point(|block| *block < self.first);
        let mine = holdings.blocks[begin..]
            .iter()
            .map_while(|block| self.number_of(*block));
        mine.for_each(&mut set);
        for (start, bytes) in &holdings.rests {
            let end = start.offset() + bytes;
            let from = start.offset().max(self.first.offset());
            if let Some(mut number) = self.number_of(start.add(from - start.offset())) {
                while number < self.blocks && self.first.offset() + number * self.bytes < end {
                    set(number);
                    number += 1;
                }
            }
        }
        held
    }

    /// Clears the bits of the blocks that `holdings` contains in the list at `at` in remote memory. `self` is an
    /// earlier image of that list. The blocks of `holdings` must be sorted. Other members may clear other bits
    /// meanwhile.
    //= docs/protocol/recovery.md V21
    pub(crate) async fn clear<V: Verbs>(
        &self,
        v: &V,
        at: RemotePtr,
        holdings: &Holdings,
    ) -> Result<(), AllocError> {
        let held = self.held(holdings);
        let (mut i, words) = (0, &self.words);
        let place = |i: usize| at.add((LINE + 8 * i) as u64);
        let mut shared = Vec::new();
        while i < words.len() {
            // One WRITE clears successive words that become zero. It overwrites no change of another member, because
            // members only clear bits.
            let zeros = (i..words.len()).take_while(|&i| words[i] & !held[i] == 0);
            let zeros = zeros.count();
            if words[i..i + zeros].iter().any(|word| *word != 0) {
                v.write(place(i), &vec![0; 8 * zeros]).await?;
            }
            i += zeros;
            if zeros == 0 {
                shared.extend((words[i] & held[i] != 0).then_some(i));
                i += 1;
            }
        }
        for batch in shared.chunks(PARALLEL) {
            let cas = |i: &usize| v.cas(place(*i), words[*i], words[*i] & !held[*i]);
            let posted: SmallVec<[_; PARALLEL]> = batch.iter().map(cas).collect();
            for (&i, cas) in batch.iter().zip(posted) {
                let found = cas.await?;
                if found != words[i] {
                    clear_word(v, place(i), found, held[i]).await?;
                }
            }
        }
        Ok(())
    }
}

/// Clears the bits `held` of a word that was last read as `word`.
async fn clear_word<V: Verbs>(v: &V, at: RemotePtr, mut word: u64, held: u64) -> Result<(), AllocError> {
    while word & held != 0 {
        let found = v.cas(at, word, word & !held).await?;
        if found == word {
            break;
        }
        word = found;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dm_verbs::NodeId;
    use proptest::prelude::*;

    fn at(offset: u64) -> RemotePtr {
        RemotePtr::new(NodeId(2), offset).expect("a small offset")
    }

    fn list() -> List {
        List {
            round: 7,
            number: 3,
            next: ListPtr(77),
            first: at(0x1000),
            bytes: 128,
            blocks: 100,
            words: vec![u64::MAX, (1 << 36) - 1],
        }
    }

    #[test]
    fn a_pointer_says_how_long_the_list_is() {
        for (words, bytes) in [(1, 128), (8, 128), (9, 192), (504, 4096)] {
            let list = ListPtr::new(at(0x1000), words);
            assert_eq!((list.at(), list.bytes()), (at(0x1000), bytes), "{words} words");
        }
        assert!(ListPtr::default().is_null());
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        assert_eq!(List::decode(&list().encode()), Some(list()));
        assert_eq!(List::decode(&[0; 4096]), None);
        let short = list().encode();
        assert_eq!(List::decode(&short[..short.len() - 1]), None);
        let all: Vec<_> = list().set_blocks().collect();
        assert_eq!(
            (all.len(), all[0], all[99]),
            (100, at(0x1000), at(0x1000 + 99 * 128))
        );
    }

    #[test]
    fn only_bits_are_cleared_by_what_is_read_later() {
        let mut mine = list();
        let mut read = List {
            first: at(0x77),
            blocks: 128,
            words: vec![0b110, u64::MAX],
            ..list()
        };
        mine.words[0] = 0b011;
        mine.narrow(&read.encode());
        assert_eq!(
            (mine.first, mine.words.clone()),
            (at(0x1000), vec![0b010, (1 << 36) - 1])
        );
        read.words.pop();
        mine.narrow(&read.encode());
        assert_eq!(mine.words, [0b010, 0], "nothing says that the others are lost");
    }

    #[test]
    fn blocks_and_rests_are_found_in_the_list() {
        let holdings = Holdings {
            blocks: vec![at(0x0800), at(0x1000), at(0x1000 + 65 * 128), at(0x8000)],
            rests: vec![
                (at(0x0), 0x1080),
                (at(0x1000 + 98 * 128), 1 << 20),
                (at(0x9000), 64),
            ],
        };
        assert_eq!(list().held(&holdings), [1, 1 << 1 | 0b11 << 34]);
        let elsewhere = Holdings {
            blocks: vec![RemotePtr::from_raw(0x1000)],
            rests: vec![(RemotePtr::from_raw(0x1000), 1 << 20)],
        };
        assert_eq!(list().held(&elsewhere), [0, 0]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_list_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = List::decode(&bytes);
        }
    }
}
