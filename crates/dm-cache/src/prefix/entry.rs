//! An image in unpacked form, for changes that cannot be made in its packed form.

use dm_layout::{KEY_BYTES_MAX, NodeTypes, SlotWord};
use dm_sync::fingerprint_of;

use super::arena::NONE;

/// The image of a node, without its empty slots.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) at: u64,
    pub(super) incarnation: u32,
    /// The image in whose slot this one is linked; `NONE` for the root. In a table, the next image of the chain.
    pub(super) parent: u32,
    pub(super) node_type: u8,
    pub(super) branch: u8,
    /// The key bytes in front of the branch that the image stores: those behind the parent's slot, or the whole prefix.
    partial: [u8; KEY_BYTES_MAX],
    partial_len: u8,
    pub(super) direct: bool,
    /// Filled slots: in the order of the node, or by key byte in a direct node.
    pub(super) words: Vec<SlotWord>,
    /// The cached children's numbers, slot by slot.
    kids: Vec<u32>,
}

/// The fields of an entry without its slots.
pub(super) struct About<'a> {
    pub(super) at: u64,
    pub(super) incarnation: u32,
    pub(super) node_type: u8,
    pub(super) branch: u8,
    pub(super) partial: &'a [u8],
    pub(super) parent: u32,
}

impl Entry {
    pub(super) fn new(types: &NodeTypes, about: &About<'_>) -> Self {
        let mut partial = [0; KEY_BYTES_MAX];
        let len = about.partial.len().min(KEY_BYTES_MAX);
        partial[..len].copy_from_slice(&about.partial[..len]);
        Self {
            at: about.at,
            incarnation: about.incarnation,
            parent: about.parent,
            node_type: about.node_type,
            branch: about.branch,
            partial,
            partial_len: len as u8,
            direct: types.is_direct(about.node_type),
            words: Vec::new(),
            kids: Vec::new(),
        }
    }

    /// Adds the slots, and the images that are linked in them.
    pub(super) fn with_slots(mut self, slots: impl Iterator<Item = (SlotWord, u32)>) -> Self {
        let room = slots.size_hint().0 + 1;
        (self.words, self.kids) = (Vec::with_capacity(room), Vec::with_capacity(room));
        for (word, kid) in slots {
            self.words.push(word);
            self.kids.push(kid);
        }
        self
    }

    /// Returns a hash of the entry's content, regardless of where it is stored.
    pub(super) fn digest(&self) -> u64 {
        let kids: Vec<bool> = self.kids.iter().map(|kid| *kid != NONE).collect();
        fingerprint_of(&(self.at, self.incarnation, self.branch, &self.words, kids))
    }

    pub(super) fn partial(&self) -> &[u8] {
        &self.partial[..usize::from(self.partial_len)]
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = (SlotWord, u32)> + '_ {
        self.words.iter().copied().zip(self.kids.iter().copied())
    }

    /// Returns the number of slots that have a child.
    pub(super) fn children(&self) -> usize {
        self.words.iter().filter(|w| w.has_child()).count()
    }

    fn place(&self, partial: u8) -> Result<usize, usize> {
        let found = self.words.iter().position(|w| w.partial() == partial);
        found.ok_or_else(|| match self.direct {
            true => self.words.partition_point(|w| w.partial() < partial),
            false => self.words.len(),
        })
    }

    /// Links the image `kid` into the slot of `partial`; [`NONE`] unlinks the current one.
    pub(super) fn hang(&mut self, partial: u8, kid: u32) {
        if let Ok(place) = self.place(partial) {
            self.kids[place] = kid;
        }
    }

    /// Makes this entry a child of an image with this branch. It then no longer stores the part of the prefix that the
    /// parent stores.
    pub(super) fn moved_below(&mut self, parent: u32, branch: u8) {
        self.parent = parent;
        let len = usize::from(self.branch.saturating_sub(branch + 1));
        let all = usize::from(self.partial_len);
        self.partial.copy_within(all.saturating_sub(len)..all, 0);
        self.partial_len = len.min(all) as u8;
    }

    /// Stores the word of slot `index`, with no image linked in the slot.
    pub(super) fn take(&mut self, index: usize, word: SlotWord) {
        match self.place(word.partial()) {
            Ok(place) => {
                self.words[place] = word;
                self.kids[place] = NONE;
            }
            Err(place) if self.direct || place == index => {
                self.words.insert(place, word);
                self.kids.insert(place, NONE);
            }
            // Except in a direct node, `words` holds the node's first slots without a gap. A slot further on cannot be
            // stored before those between them.
            Err(_) => {}
        }
    }

    /// Stores the slots in use; in a node that is not direct, only those before the first empty slot. Returns the
    /// cached children that are no longer children of this node. A slot keeps its image only if its word is unchanged,
    /// apart from the frozen bit. A different word leads to another node, which may be at the same address if the
    /// memory is reused for a node of another type.
    pub(super) fn refill(&mut self, words: impl Iterator<Item = SlotWord>) -> Vec<u32> {
        let new: Vec<SlotWord> = if self.direct {
            words.filter(|w| !w.is_empty()).collect()
        } else {
            // A READ may have seen a slot that was filled after an earlier slot, but the earlier slot still
            // empty. So only the slots before the first empty one count.
            words.take_while(|w| !w.is_empty()).collect()
        };
        let old: Vec<(SlotWord, u32)> = self.slots().filter(|(_, kid)| *kid != NONE).collect();
        self.kids = vec![NONE; new.len()];
        self.words = new;
        let mut orphans = Vec::new();
        for (word, kid) in old {
            match self.place(word.partial()) {
                Ok(place) if self.words[place].thawed() == word.thawed() => self.kids[place] = kid,
                _ => orphans.push(kid),
            }
        }
        orphans
    }
}
