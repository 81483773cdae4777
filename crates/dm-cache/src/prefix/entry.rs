//! One image.

use dm_layout::{Find, NodeTypes, PARTIAL_MAX, SlotWord};
use dm_sync::atomic::{AtomicU32, Ordering};
use dm_sync::fingerprint_of;

/// No entry.
pub(super) const NONE: u32 = u32::MAX;
/// Slots of room that an image grows by.
const GROW: usize = 8;

/// The image of a node, without its empty slots.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) at: u64,
    pub(super) incarnation: u32,
    /// The entry in whose slot this one hangs; `NONE` for the root.
    pub(super) parent: u32,
    /// When it was last used, in admissions.
    used: AtomicU32,
    pub(super) node_type: u8,
    pub(super) branch: u8,
    /// Key bytes between the parent's slot and the branch.
    partial: [u8; PARTIAL_MAX],
    partial_len: u8,
    children: u16,
    direct: bool,
    /// Filled slots: in their order, or by key byte in a direct node.
    words: Vec<SlotWord>,
    /// The cached children's entries, slot by slot; empty if there are none.
    kids: Vec<u32>,
}

/// What an entry is about.
pub(super) struct About<'a> {
    pub(super) at: u64,
    pub(super) incarnation: u32,
    pub(super) node_type: u8,
    pub(super) branch: u8,
    pub(super) partial: &'a [u8],
    pub(super) parent: u32,
}

impl Entry {
    pub(super) fn new(types: &NodeTypes, about: &About<'_>, now: u32) -> Self {
        let mut partial = [0; PARTIAL_MAX];
        partial[..about.partial.len()].copy_from_slice(about.partial);
        Self {
            at: about.at,
            incarnation: about.incarnation,
            parent: about.parent,
            used: AtomicU32::new(now),
            node_type: about.node_type,
            branch: about.branch,
            partial,
            partial_len: about.partial.len() as u8,
            children: 0,
            direct: types.is_direct(about.node_type),
            words: Vec::new(),
            kids: Vec::new(),
        }
    }

    /// A hash of what it says; where it is kept does not count.
    pub(super) fn digest(&self) -> u64 {
        let cached = |kid: &u32| *kid != NONE;
        let kids: Vec<bool> = self.kids.iter().map(cached).collect();
        fingerprint_of(&(self.at, self.incarnation, self.branch, &self.words, kids))
    }

    /// Bytes that it takes beside itself.
    pub(super) fn heap_bytes(&self) -> u64 {
        (self.words.capacity() * size_of::<SlotWord>() + self.kids.capacity() * size_of::<u32>()) as u64
    }

    pub(super) fn partial(&self) -> &[u8] {
        &self.partial[..usize::from(self.partial_len)]
    }

    pub(super) fn touch(&self, now: u32) {
        // Relaxed: a hint for eviction, it orders nothing. Written only when it changes: readers share the line.
        if self.used.load(Ordering::Relaxed) != now {
            self.used.store(now, Ordering::Relaxed);
        }
    }

    pub(super) fn last_used(&self) -> u32 {
        // Relaxed: as above.
        self.used.load(Ordering::Relaxed)
    }

    /// Slots that have a child.
    pub(super) fn children(&self) -> usize {
        usize::from(self.children)
    }

    fn count(&mut self) {
        // At most 256.
        self.children = self.words.iter().filter(|w| w.has_child()).count() as u16;
    }

    pub(super) fn has_kids(&self) -> bool {
        !self.kids.is_empty()
    }

    pub(super) fn kids(&self) -> impl Iterator<Item = u32> + '_ {
        self.kids.iter().copied().filter(|kid| *kid != NONE)
    }

    /// Where the word of key byte `partial` is kept, or would be.
    fn place(&self, partial: u8) -> Result<usize, usize> {
        if !self.direct {
            let found = self.words.iter().position(|w| w.partial() == partial);
            return found.ok_or(self.words.len());
        }
        // All are there: no search.
        let here = usize::from(partial);
        match self.words.get(here) {
            Some(word) if word.partial() == partial => Ok(here),
            _ => self.words.binary_search_by_key(&partial, |w| w.partial()),
        }
    }

    /// The key byte's slot in the node, and the cached child in it.
    pub(super) fn find(&self, types: &NodeTypes, partial: u8) -> (Find, u32) {
        let index = |place: usize| if self.direct { usize::from(partial) } else { place };
        match self.place(partial) {
            Ok(place) => {
                let word = self.words[place];
                let kid = self.kids.get(place).copied().unwrap_or(NONE);
                match word.has_child() {
                    true => (Find::Child(index(place), word), kid),
                    false => (Find::Vacant(index(place), word), NONE),
                }
            }
            Err(place) if self.direct || place < types.slots(self.node_type) => (
                Find::Vacant(index(place), SlotWord::empty(self.incarnation)),
                NONE,
            ),
            Err(_) => (Find::Full, NONE),
        }
    }

    /// Hangs `kid` (or nothing) into the slot of `partial`.
    pub(super) fn hang(&mut self, partial: u8, kid: u32) {
        let Ok(place) = self.place(partial) else { return };
        if kid != NONE && self.kids.is_empty() {
            self.kids.reserve_exact(self.words.len());
            self.kids.resize(self.words.len(), NONE);
        }
        if let Some(slot) = self.kids.get_mut(place) {
            *slot = kid;
        }
        if self.kids.iter().all(|kid| *kid == NONE) {
            self.kids = Vec::new();
        }
    }

    /// The key byte of the slot that points to `at`.
    pub(super) fn byte_of(&self, at: u64) -> Option<u8> {
        let points = |w: &&SlotWord| w.has_child() && w.pointer() == at;
        self.words.iter().find(points).map(|w| w.partial())
    }

    /// It hangs in an entry of this branch from now on: what that says of the prefix is not said here.
    pub(super) fn moved_below(&mut self, parent: u32, branch: u8) {
        self.parent = parent;
        let len = usize::from(self.branch.saturating_sub(branch + 1));
        let all = usize::from(self.partial_len);
        self.partial.copy_within(all.saturating_sub(len)..all, 0);
        self.partial_len = len.min(all) as u8;
    }

    /// Takes `kid` off its slot.
    pub(super) fn unhang(&mut self, kid: u32) {
        for slot in self.kids.iter_mut().filter(|slot| **slot == kid) {
            *slot = NONE;
        }
        if self.kids.iter().all(|kid| *kid == NONE) {
            self.kids = Vec::new();
        }
    }

    /// Takes what slot `index` holds. Answers a cached child that is another's now.
    pub(super) fn learn(&mut self, index: usize, word: SlotWord) -> Option<u32> {
        let orphan = self.take(index, word.thawed());
        self.count();
        orphan
    }

    fn take(&mut self, index: usize, word: SlotWord) -> Option<u32> {
        match self.place(word.partial()) {
            Ok(place) => {
                let orphan = self.kids.get(place).copied().filter(|kid| *kid != NONE);
                let moved = self.words[place].pointer() != word.pointer();
                self.words[place] = word;
                orphan.filter(|_| moved)
            }
            // In a node that is not direct the words are the first slots: one further on can't be kept yet.
            Err(place) if self.direct || place == index => {
                if self.words.len() == self.words.capacity() {
                    self.words.reserve_exact(GROW);
                }
                self.words.insert(place, word);
                if !self.kids.is_empty() {
                    self.kids.insert(place, NONE);
                }
                None
            }
            Err(_) => None,
        }
    }

    /// Takes all slots as they are now. Answers cached children that are others' now.
    pub(super) fn refill(&mut self, words: impl Iterator<Item = SlotWord>) -> Vec<u32> {
        let mut new: Vec<SlotWord> = if self.direct {
            words.filter(|w| !w.is_empty()).collect()
        } else {
            // A READ may have caught a slot that was filled behind one that was not: only those before count.
            words.take_while(|w| !w.is_empty()).collect()
        };
        new.shrink_to_fit();
        let mut kept = Vec::new();
        let mut orphans = Vec::new();
        for (place, &kid) in self.kids.iter().enumerate().filter(|(_, kid)| **kid != NONE) {
            let old = self.words[place];
            let same = |w: &&SlotWord| w.partial() == old.partial() && w.pointer() == old.pointer();
            match new.iter().find(same) {
                Some(_) => kept.push((old.partial(), kid)),
                None => orphans.push(kid),
            }
        }
        self.words = new;
        self.count();
        self.kids = Vec::new();
        for (partial, kid) in kept {
            self.hang(partial, kid);
        }
        orphans
    }
}
