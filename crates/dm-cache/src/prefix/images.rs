//! The images of a cache, and their memory. An index finds them ([`super::index::Index`]).

use dm_layout::{Find, NodeTypes, SlotWord};

use super::PrefixImage;
use super::arena::{Arena, EXPIRED, NONE};
use super::entry::{About, Entry};
use super::packed::{Edit, Said, Slots, View};

/// The images of a cache.
#[derive(Debug)]
pub(super) struct Images {
    pub(super) arena: Arena,
    budget: u64,
    /// The chunk that eviction visited last.
    pub(super) hand: usize,
    /// Slots have short codes only for leaves of this many lines, the size of the first leaf. It is 0 before there is a
    /// leaf.
    pub(super) leaf_lines: u8,
    /// A buffer in which images are packed. It is kept for reuse if it has at most [`PACKED_MAX`] bytes.
    pub(super) packed: Vec<u8>,
}

/// Maximum size in bytes of the buffer that a cache keeps for packing. Most images fit into it.
const PACKED_MAX: usize = 512;
/// Caches with a budget of fewer bytes keep no buffer.
const PACKED_FROM: u64 = 64 << 10;

impl Images {
    pub(super) fn new(budget: u64) -> Self {
        Self {
            arena: Arena::new(),
            budget,
            hand: 0,
            leaf_lines: 0,
            packed: Vec::new(),
        }
    }

    pub(super) fn budget(&self) -> u64 {
        self.budget
    }

    /// Returns a copy with this budget, which the copy may exceed.
    pub(super) fn copy(&self, budget: u64) -> Self {
        Self {
            arena: self.arena.copy(),
            packed: Vec::new(),
            budget,
            ..*self
        }
    }

    /// Returns the bytes that images, their lists and their index may take.
    pub(super) fn limit(&self) -> u64 {
        match self.budget >= PACKED_FROM {
            true => self.budget - PACKED_MAX as u64,
            false => self.budget,
        }
    }

    /// Keeps the buffer for the next image, if it is small enough.
    pub(super) fn keep_buffer(&mut self, mut packed: Vec<u8>) {
        packed.clear();
        if self.budget >= PACKED_FROM && packed.capacity() <= PACKED_MAX {
            self.packed = packed;
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.arena.bytes() + self.packed.capacity() as u64
    }

    pub(super) fn nodes(&self) -> usize {
        self.arena.live()
    }

    #[inline]
    pub(super) fn view(&self, image: u32) -> Option<View<'_>> {
        self.arena.get(image).map(View::new)
    }

    /// Returns an image if it is still valid.
    #[inline]
    pub(super) fn young(&self, image: u32) -> Option<View<'_>> {
        self.view(image).filter(|_| self.arena.age(image) < EXPIRED)
    }

    pub(super) fn edit(&mut self, image: u32) -> Option<Edit<'_>> {
        self.arena.get_mut(image).map(Edit)
    }

    /// Returns the word of a slot, and the image that is linked there.
    #[inline]
    pub(super) fn slot(&self, slots: Slots<'_>, place: usize, partial: u8) -> (SlotWord, u32) {
        match slots.said(place, partial, self.leaf_lines) {
            Said::Word(word) => (word, NONE),
            Said::Kid(kid, Some(word)) => (word, kid),
            Said::Kid(kid, None) => {
                let word = self
                    .view(kid)
                    .and_then(|below| SlotWord::inner(partial, below.at(), below.node_type()));
                (word.unwrap_or_default(), kid)
            }
        }
    }

    /// Returns the key byte's slot in the node, and the cached child in it.
    pub(super) fn find(&self, types: &NodeTypes, view: View<'_>, partial: u8) -> (Find, u32) {
        self.find_at(types, view, partial, view.slots().place(partial))
    }

    /// Returns the result of [`Images::find`] for a byte whose slot is stored, or would be stored, at `place`.
    #[inline]
    pub(super) fn find_at(
        &self,
        types: &NodeTypes,
        view: View<'_>,
        partial: u8,
        place: Result<usize, usize>,
    ) -> (Find, u32) {
        let direct = view.is_direct();
        let index = |place: usize| if direct { usize::from(partial) } else { place };
        match place {
            Ok(place) => match self.slot(view.slots(), place, partial) {
                (word, kid) if word.has_child() => (Find::Child(index(place), word), kid),
                (word, _) => (Find::Vacant(index(place), word), NONE),
            },
            Err(place) if direct || place < types.slots(view.node_type()) => (
                Find::Vacant(index(place), SlotWord::empty(view.incarnation())),
                NONE,
            ),
            Err(_) => (Find::Full, NONE),
        }
    }

    pub(super) fn unpack(&self, types: &NodeTypes, view: View<'_>) -> Entry {
        let about = About {
            at: view.at(),
            incarnation: view.incarnation(),
            node_type: view.node_type(),
            branch: view.branch(),
            partial: view.partial(),
            parent: view.parent(),
        };
        let (slots, bytes) = (view.slots(), view.key_bytes().iter().enumerate());
        Entry::new(types, &about).with_slots(bytes.map(|(place, &byte)| self.slot(slots, place, byte)))
    }

    /// Returns whether an image has the branch, the incarnation and the slots of its node as it has just been read.
    pub(super) fn says(
        &self,
        view: View<'_>,
        read: &PrefixImage<impl Iterator<Item = SlotWord> + Clone>,
    ) -> bool {
        if view.branch() != read.header.branch() || view.incarnation() != read.incarnation {
            return false;
        }
        let (slots, direct) = (view.slots(), view.is_direct());
        let mut said = view.key_bytes().iter().enumerate();
        for word in read.words.clone() {
            match word.is_empty() {
                false => {}
                true if direct => continue,
                // The image has no further slots.
                true => break,
            }
            let same = |(place, &byte)| byte == word.partial() && self.slot(slots, place, byte).0 == word;
            if !said.next().is_some_and(same) {
                return false;
            }
        }
        said.next().is_none()
    }

    /// Makes an image at least `age` turns old, because it now contains data of that age.
    pub(super) fn grow_to(&mut self, image: u32, age: u8) {
        if self.arena.age(image) < age {
            self.arena.set_age(image, age.min(EXPIRED));
        }
    }
}
