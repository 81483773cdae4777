//! The links between the images of the prefix cache.

use dm_layout::{Find, NodeTypes, RadixSlot, SlotWord};
use dm_sync::{Fingerprint, fingerprint_of};
use dm_verbs::RemotePtr;

use super::arena::{Arena, EXPIRED, NONE};
use super::entry::{About, Entry};
use super::packed::{Below, Edit, Said, Slots, View, pack};
use super::{Apart, CachedSlot, PrefixHit, PrefixImage, Seen};

/// The content of a cache.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) arena: Arena,
    pub(super) root: u32,
    budget: u64,
    /// The chunk that eviction visited last.
    pub(super) hand: usize,
    /// Slots have short codes only for leaves of this many lines, the size of the first leaf. It is 0 before there is a
    /// leaf.
    leaf_lines: u8,
    /// A buffer in which images are packed. It is kept for reuse if it has at most [`PACKED_MAX`] bytes.
    packed: Vec<u8>,
}

/// Maximum size of the buffer that a cache keeps for packing. Most images fit into it.
const PACKED_MAX: usize = 512;
/// Caches smaller than this keep no buffer.
const PACKED_FROM: u64 = 64 << 10;

/// One step of a walk along a key's path.
struct Way<'a> {
    image: u32,
    view: View<'a>,
    /// The image above, and the place of its slot that leads here.
    above: Option<(View<'a>, usize)>,
    /// The key's byte in the node, and the place where the slot of this byte is stored or would be stored.
    byte: u8,
    place: Result<usize, usize>,
    apart: Option<Apart>,
    /// Whether an image on the path, or the one that is apart, does not hold its whole prefix.
    skipped: bool,
}

impl Way<'_> {
    /// Returns the slot that points to this node.
    fn link(&self) -> Option<CachedSlot> {
        let (parent, place) = self.above?;
        let byte = *parent.key_bytes().get(place)?;
        let direct = parent.is_direct();
        Some(CachedSlot {
            node: RemotePtr::from_raw(parent.at()),
            incarnation: parent.incarnation(),
            branch: parent.branch(),
            index: if direct { usize::from(byte) } else { place },
            // The linked image contains the address and the type.
            word: SlotWord::inner(byte, self.view.at(), self.view.node_type()).unwrap_or_default(),
            seen: Seen(self.view.parent()),
        })
    }
}

/// Returns the first position at which `key` differs from the stored bytes in front of the branch of `below`.
#[inline]
fn leaves(key: &[u8], below: View<'_>) -> Option<Apart> {
    let partial = below.partial();
    if partial.is_empty() {
        return None;
    }
    let from = below.branch() - partial.len() as u8;
    let rest = &key[usize::from(from)..];
    let i = partial.iter().zip(rest).position(|(a, b)| a != b)?;
    Some(Apart {
        at: from + i as u8,
        byte: partial[i],
    })
}

impl Tree {
    pub(super) fn new(budget: u64) -> Self {
        Self {
            arena: Arena::new(),
            root: NONE,
            budget,
            hand: 0,
            leaf_lines: 0,
            packed: Vec::new(),
        }
    }

    pub(super) fn budget(&self) -> u64 {
        self.budget
    }

    /// Returns a copy within `budget`, or `None` if it does not fit.
    pub(super) fn copy(&self, budget: u64) -> Option<Self> {
        let copy = Self {
            arena: self.arena.copy(),
            packed: Vec::new(),
            budget,
            ..*self
        };
        (copy.bytes() <= copy.limit()).then_some(copy)
    }

    /// Returns the bytes that images and their lists may take.
    fn limit(&self) -> u64 {
        match self.budget >= PACKED_FROM {
            true => self.budget - PACKED_MAX as u64,
            false => self.budget,
        }
    }

    /// Keeps the buffer for the next image, if it is small enough.
    fn keep_buffer(&mut self, mut packed: Vec<u8>) {
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
    fn young(&self, image: u32) -> Option<View<'_>> {
        self.view(image).filter(|_| self.arena.age(image) < EXPIRED)
    }

    fn edit(&mut self, image: u32) -> Option<Edit<'_>> {
        self.arena.get_mut(image).map(Edit)
    }

    /// Returns the word of a slot, and the image that is linked there.
    #[inline]
    fn slot(&self, slots: Slots<'_>, place: usize, partial: u8) -> (SlotWord, u32) {
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
    fn find(&self, types: &NodeTypes, view: View<'_>, partial: u8) -> (Find, u32) {
        self.find_at(types, view, partial, view.slots().place(partial))
    }

    /// Returns the result of [`Tree::find`] for a byte whose slot is stored, or would be stored, at `place`.
    #[inline]
    fn find_at(
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

    /// Walks down `key`'s path as long as `on` accepts the current image and the next one.
    #[inline]
    fn walk(&self, key: &[u8], mut on: impl FnMut(View<'_>, u32) -> bool) -> Option<Way<'_>> {
        let mut way = Way {
            image: self.root,
            view: self.view(self.root)?,
            above: None,
            byte: 0,
            place: Err(0),
            apart: None,
            skipped: false,
        };
        loop {
            let branch = way.view.branch();
            way.byte = *key.get(usize::from(branch))?;
            let slots = way.view.slots();
            way.place = slots.place(way.byte);
            let Ok(place) = way.place else { break };
            let Below::Kid(kid) = slots.below(place) else {
                break;
            };
            let Some(below) = self.view(kid).filter(|_| on(way.view, kid)) else {
                break;
            };
            way.skipped |= usize::from(below.branch() - branch) != 1 + below.partial().len();
            way.apart = leaves(key, below);
            if way.apart.is_some() {
                break;
            }
            way.above = Some((way.view, place));
            (way.image, way.view) = (kid, below);
        }
        Some(way)
    }

    /// Returns the leaf to which the deepest cached node on `key`'s path points for the key, and that node's
    /// branch.
    #[inline]
    pub(super) fn leaf(&self, key: &[u8]) -> Option<(RemotePtr, u8)> {
        let mut image = self.root;
        let mut view = self.young(image)?;
        loop {
            let branch = view.branch();
            let &byte = key.get(usize::from(branch))?;
            let slots = view.slots();
            let kid = match slots.below(slots.place(byte).ok()?) {
                Below::Kid(kid) => kid,
                Below::Leaf(at) => {
                    self.arena.touch(image);
                    return Some((RemotePtr::from_raw(at), branch));
                }
                Below::Other => return None,
            };
            let below = self.young(kid)?;
            if leaves(key, below).is_some() {
                return None;
            }
            (image, view) = (kid, below);
        }
    }

    pub(super) fn lookup(&self, types: &NodeTypes, key: &[u8]) -> Option<PrefixHit> {
        self.hit(types, self.walk(key, |_, image| self.arena.age(image) < EXPIRED)?)
    }

    /// Returns the deepest valid image on `key`'s path whose branch is at most `byte`, and the branch of the image
    /// below it, if there is one.
    pub(super) fn over(&self, types: &NodeTypes, key: &[u8], byte: u8) -> Option<(PrefixHit, Option<u8>)> {
        let branch = |image| self.young(image).map(|view| view.branch());
        let way = self.walk(key, |_, image| branch(image).is_some_and(|branch| branch <= byte))?;
        let below = match way.view.slots().below(way.place.ok()?) {
            Below::Kid(kid) => branch(kid),
            Below::Leaf(_) | Below::Other => None,
        };
        Some((self.hit(types, way)?, below))
    }

    /// Returns a leaf below the node at `at`, on `key`'s path. Every image above the leaf is valid.
    pub(super) fn leaf_below(&self, key: &[u8], at: RemotePtr) -> Option<RemotePtr> {
        let young = |image| self.arena.age(image) < EXPIRED;
        let way = self.walk(key, |view, image| view.at() != at.raw() && young(image))?;
        let mut view = self.young(way.image).filter(|view| view.at() == at.raw())?;
        loop {
            let slots = view.slots();
            let own = key.get(usize::from(view.branch())).map(|&byte| slots.place(byte));
            let places = own.and_then(Result::ok).into_iter().chain(0..view.len());
            // Only one path is tried: if it ends at a node that is not cached, the client reads nodes.
            let below = places.map(|place| slots.below(place));
            match below.into_iter().find(|below| !matches!(below, Below::Other))? {
                Below::Kid(kid) => view = self.young(kid)?,
                Below::Leaf(leaf) => return Some(RemotePtr::from_raw(leaf)),
                Below::Other => return None,
            }
        }
    }

    fn hit(&self, types: &NodeTypes, way: Way<'_>) -> Option<PrefixHit> {
        // The walk has checked the ages of all images except the root's.
        self.young(way.image)?;
        self.arena.touch(way.image);
        Some(PrefixHit {
            at: RemotePtr::from_raw(way.view.at()),
            seen: Seen(way.image),
            node_type: way.view.node_type(),
            incarnation: way.view.incarnation(),
            branch: way.view.branch(),
            find: self.find_at(types, way.view, way.byte, way.place).0,
            children: way.view.children(),
            link: way.link(),
            apart: way.apart,
            skipped: way.skipped,
        })
    }

    /// Returns the image of the node at `at`, on `key`'s path.
    fn image_at(&self, key: &[u8], at: RemotePtr) -> Option<u32> {
        let way = self.walk(key, |view, _| view.at() != at.raw())?;
        (way.view.at() == at.raw()).then_some(way.image)
    }

    fn unpack(&self, types: &NodeTypes, view: View<'_>) -> Entry {
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

    /// Returns whether an image equals its node as it has just been read.
    fn says(&self, view: View<'_>, read: &PrefixImage<impl Iterator<Item = SlotWord> + Clone>) -> bool {
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

    /// Stores `entry` under its number, or under a new one if it has none. Returns the number. Returns `None`
    /// if there is no room, and then leaves the old content as it was.
    fn keep(&mut self, image: Option<u32>, entry: &Entry, spare: usize, kept: &[u32]) -> Option<u32> {
        if self.leaf_lines == 0 {
            let lines = |w: &SlotWord| match w.decode() {
                Ok(RadixSlot::Leaf { lines, .. }) => Some(lines),
                _ => None,
            };
            self.leaf_lines = entry.words.iter().find_map(lines).unwrap_or(0);
        }
        let (mut packed, mut number) = (core::mem::take(&mut self.packed), None);
        let done = self.with_room(kept, |tree| {
            let Some(new) = image.or_else(|| tree.arena.number(tree.limit())) else {
                return false;
            };
            // An eviction may free another number, which the image must then contain.
            if number.replace(new) != Some(new) {
                pack(entry, new, spare, tree.leaf_lines, &mut packed);
            }
            tree.arena.put(new, &packed, tree.limit())
        });
        self.keep_buffer(packed);
        number.filter(|_| done)
    }

    pub(super) fn admit(
        &mut self,
        types: &NodeTypes,
        key: &[u8],
        image: PrefixImage<impl Iterator<Item = SlotWord> + Clone>,
        age: u8,
    ) -> bool {
        age < EXPIRED && self.admit_beside(types, key, image, age, NONE).is_some()
    }

    fn admit_beside(
        &mut self,
        types: &NodeTypes,
        key: &[u8],
        image: PrefixImage<impl Iterator<Item = SlotWord> + Clone>,
        age: u8,
        kept: u32,
    ) -> Option<u32> {
        let known = self.image_at(key, image.at);
        // A client that searches for absent keys reads the same nodes again and again, so this must not
        // allocate.
        if let Some((known, view)) = known.and_then(|known| Some((known, self.view(known)?)))
            && self.says(view, &image)
        {
            self.arena.touch(known);
            self.arena.set_age(known, age);
            return Some(known);
        }
        let entry = known.and_then(|known| Some((known, self.unpack(types, self.view(known)?))));
        // A node's branch never changes, so the image is of another incarnation, or damaged.
        let other =
            |entry: &Entry| entry.branch != image.header.branch() || entry.incarnation != image.incarnation;
        let Some((known, mut entry)) = entry.filter(|(_, entry)| !other(entry)) else {
            if let Some(known) = known {
                self.cut(known);
            }
            let new = self.hang(types, key, image, kept)?;
            self.arena.set_age(new, age);
            return Some(new);
        };
        let orphans = entry.refill(image.words);
        // The unlinked children must not be evicted before they are handled below, although no path leads to them any
        // more. The remaining children must not be evicted either, because the entry contains their numbers.
        let mut stay = vec![known, kept];
        stay.extend_from_slice(&orphans);
        stay.extend(entry.slots().map(|(_, kid)| kid).filter(|kid| *kid != NONE));
        let new = self.keep(Some(known), &entry, 0, &stay);
        if new.is_none() {
            // The node was read again, so the image is out of date.
            self.cut(known);
        }
        for orphan in orphans {
            self.cut_loose(orphan);
        }
        let new = new?;
        self.arena.touch(new);
        self.arena.set_age(new, age);
        Some(new)
    }

    /// Links a new image under its parent's slot, and returns its number. Returns `None` if no cached parent points to
    /// the node, or if there is no room.
    fn hang(
        &mut self,
        types: &NodeTypes,
        key: &[u8],
        image: PrefixImage<impl Iterator<Item = SlotWord> + Clone>,
        kept: u32,
    ) -> Option<u32> {
        let (header, at) = (image.header, image.at);
        let branch = header.branch();
        let (parent, from) = if self.root == NONE {
            // Only the tree's root may be the root here, and no other node differs by the first key byte.
            if branch > 0 {
                return None;
            }
            (NONE, 0)
        } else {
            let way = self.walk(key, |view, _| view.branch() < branch)?;
            let (find, _) = self.find_at(types, way.view, way.byte, way.place);
            let points = matches!(find, Find::Child(_, word) if word.pointer() == at.raw());
            if way.view.branch() >= branch || !points {
                return None;
            }
            (way.image, way.view.branch() + 1)
        };
        // A header that begins behind `from` does not hold the whole prefix.
        let partial = header.partial_from(from.max(header.depth()))?;
        let about = About {
            at: at.raw(),
            incarnation: image.incarnation,
            node_type: header.node_type(),
            branch,
            partial,
            parent,
        };
        let mut entry = Entry::new(types, &about);
        entry.refill(image.words);
        let new = self.keep(None, &entry, 0, &[parent, kept])?;
        if parent == NONE {
            self.root = new;
        } else {
            let byte = key[usize::from(from - 1)];
            // An image of another node that was linked there is out of date.
            let old = self.kid(types, parent, byte);
            self.hang_into(parent, byte, new);
            self.cut_loose(old);
        }
        Some(new)
    }

    fn kid(&self, types: &NodeTypes, parent: u32, byte: u8) -> u32 {
        self.view(parent)
            .map_or(NONE, |view| self.find(types, view, byte).1)
    }

    /// Links `kid` into the slot of `byte`, which points to its node.
    fn hang_into(&mut self, parent: u32, byte: u8, kid: u32) {
        let Some(Ok(place)) = self.view(parent).map(|view| view.place(byte)) else {
            return;
        };
        if let Some(mut edit) = self.edit(parent) {
            edit.hang(place, kid);
        }
    }

    /// Unlinks the image from slot `place` of `parent`. The slot still points to the node.
    fn take_off(&mut self, parent: u32, place: usize) {
        let Some(view) = self.view(parent) else { return };
        let byte = view.key_bytes()[place];
        let (word, _) = self.slot(view.slots(), place, byte);
        let leaf_lines = self.leaf_lines;
        let done = self
            .edit(parent)
            .is_some_and(|mut edit| edit.set(place, word, true, leaf_lines));
        if !done && !self.repack(parent, |entry| entry.hang(byte, NONE)) {
            self.cut(parent);
        }
    }

    /// Changes an image through its unpacked form. Returns `false` if there is no room for the result.
    fn repack(&mut self, image: u32, change: impl FnOnce(&mut Entry)) -> bool {
        // Only the image's own flag shows whether it is direct, so any types will do here.
        let types = &NodeTypes::SHIPPED;
        let Some(view) = self.view(image) else {
            return false;
        };
        let mut entry = self.unpack(types, view);
        entry.direct = view.is_direct();
        // Small images grow slot by slot: packing them again is cheap, and most images are small.
        let spare = entry.words.len() / 16;
        change(&mut entry);
        // If the image stays, its children stay too; otherwise all of them are removed.
        let mut kept: Vec<u32> = entry
            .slots()
            .map(|(_, kid)| kid)
            .filter(|kid| *kid != NONE)
            .collect();
        kept.push(image);
        self.keep(Some(image), &entry, spare, &kept).is_some()
    }

    pub(super) fn learn(
        &mut self,
        key: &[u8],
        (at, seen): (RemotePtr, u32),
        index: usize,
        word: SlotWord,
        age: u8,
    ) -> Option<usize> {
        // A node has at most one image, so an image of the node is the right one.
        let there = self.view(seen).is_some_and(|view| view.at() == at.raw());
        let image = match there {
            true => Some(seen),
            false => self.image_at(key, at),
        };
        let image = image?;
        if !word.is_empty() {
            self.grow_to(image, age);
            self.learn_slot(image, index, word.thawed());
        }
        // The image may have been removed.
        let view = self.view(image).filter(|view| view.at() == at.raw())?;
        Some(view.children())
    }

    /// Makes an image at least `age` turns old, because it now contains data of that age.
    fn grow_to(&mut self, image: u32, age: u8) {
        if self.arena.age(image) < age {
            self.arena.set_age(image, age.min(EXPIRED));
        }
    }

    fn learn_slot(&mut self, image: u32, index: usize, word: SlotWord) {
        let Some(view) = self.view(image) else { return };
        let leaf_lines = self.leaf_lines;
        let found = view.place(word.partial());
        let direct = view.is_direct();
        let mut orphan = NONE;
        let done = match found {
            Ok(place) => {
                let (old, kid) = self.slot(view.slots(), place, word.partial());
                if old == word {
                    return;
                }
                orphan = kid;
                let edit = self.edit(image);
                edit.is_some_and(|mut edit| edit.set(place, word, old.has_child(), leaf_lines))
            }
            Err(place) if direct || place == index => {
                let edit = self.edit(image);
                edit.is_some_and(|mut edit| edit.insert(place, word, leaf_lines))
            }
            Err(_) => return,
        };
        let done = done || (found.is_err() && self.grow(image, found.unwrap_or_else(|place| place), word));
        // If the image cannot store the word, it must be removed. Otherwise a client that lost a race for the
        // slot would use the old word again, and lose again.
        if !done && !self.repack(image, |entry| entry.take(index, word)) {
            self.cut(image);
        }
        self.cut_loose(orphan);
    }

    /// Inserts a slot into an image that has no room for it, through a copy that has room.
    fn grow(&mut self, image: u32, place: usize, word: SlotWord) -> bool {
        let Some(view) = self.view(image).filter(|view| view.can_grow()) else {
            return false;
        };
        // Small images grow slot by slot: copying them is cheap, and most images are small.
        let spare = view.len() / 16 + 1;
        let mut copy = core::mem::take(&mut self.packed);
        // The view is fetched again, because the buffer was taken out of the tree.
        if let Some(view) = self.view(image) {
            view.copy_with(spare, &mut copy);
        }
        let done = Edit(&mut copy).insert(place, word, self.leaf_lines)
            // This does not evict, because an eviction could remove images below this one, whose numbers are
            // in the copy.
            && self.arena.put(image, &copy, self.limit());
        self.keep_buffer(copy);
        done
    }

    pub(super) fn replace(
        &mut self,
        types: &NodeTypes,
        key: &[u8],
        (at, index, word): (RemotePtr, usize, SlotWord),
        image: PrefixImage<impl Iterator<Item = SlotWord> + Clone>,
        age: u8,
    ) {
        let Some(parent) = self.image_at(key, at) else {
            return;
        };
        let byte = word.partial();
        // The old image is unlinked first, so that `learn` does not remove it.
        let old = self.kid(types, parent, byte);
        if let Some(Ok(place)) = self.view(parent).filter(|_| old != NONE).map(|v| v.place(byte)) {
            self.take_off(parent, place);
        }
        self.grow_to(parent, age);
        self.learn_slot(parent, index, word.thawed());
        if age >= EXPIRED {
            self.cut_loose(old);
            return;
        }
        if let Some(new) = self.admit_beside(types, key, image, age, old) {
            self.inherit(types, old, new);
        }
        self.cut_loose(old);
    }

    /// Links the image `old`, or its children, under the image `new` that replaces it, as far as the new node
    /// leads to them.
    fn inherit(&mut self, types: &NodeTypes, old: u32, new: u32) {
        let (Some(before), Some(after)) = (self.view(old), self.view(new)) else {
            return;
        };
        let branch = after.branch();
        let (slots, bytes) = (after.slots(), after.key_bytes().iter().enumerate());
        // The slot must point to the same node: if the memory is now a node of another type, the image is not
        // linked there.
        let byte_of = |node: View<'_>| {
            let mut words = bytes
                .clone()
                .map(|(place, &byte)| self.slot(slots, place, byte).0.thawed());
            words
                .find(|w| SlotWord::inner(w.partial(), node.at(), node.node_type()) == Some(*w))
                .map(|w| w.partial())
        };
        let mut moved: Vec<(u8, u32)> = Vec::new();
        if let Some(byte) = byte_of(before) {
            moved.push((byte, old));
        } else if before.branch() == branch {
            let kids = before.kids().filter_map(|kid| Some((self.view(kid)?, kid)));
            moved.extend(kids.filter_map(|(node, kid)| Some((byte_of(node)?, kid))));
        }
        for (byte, kid) in moved {
            if let Some(place) = self
                .view(old)
                .filter(|_| kid != old)
                .and_then(|v| v.place_of(kid))
            {
                self.take_off(old, place);
            }
            // If another image is linked in the slot already, it is unlinked first. Otherwise it would stay in memory
            // for ever.
            let other = self.kid(types, new, byte);
            self.hang_into(new, byte, kid);
            if other != kid {
                self.cut_loose(other);
            }
            let Some(view) = self.view(kid) else { continue };
            if usize::from(view.branch()) == usize::from(branch) + 1 + view.partial().len() {
                if let Some(mut edit) = self.edit(kid) {
                    edit.set_parent(new);
                }
            } else if !self.repack(kid, |entry| entry.moved_below(new, branch)) {
                self.cut_below(new, byte, kid);
            }
        }
    }

    /// Unlinks `kid` from this slot, and removes it. Unlike [`Tree::cut`], this does not use the parent field of `kid`,
    /// which still contains the number of another image.
    fn cut_below(&mut self, parent: u32, byte: u8, kid: u32) {
        if let Some(Ok(place)) = self.view(parent).map(|view| view.place(byte)) {
            self.take_off(parent, place);
        }
        self.cut_loose(kid);
    }

    pub(super) fn forget(&mut self, key: &[u8], at: RemotePtr) {
        if let Some(image) = self.image_at(key, at) {
            self.cut(image);
        }
    }

    /// Removes an image and those below it.
    pub(super) fn cut(&mut self, image: u32) {
        let Some(view) = self.view(image) else { return };
        let parent = view.parent();
        if parent == NONE {
            self.root = NONE;
        } else if let Some(place) = self.view(parent).and_then(|above| above.place_of(image)) {
            self.take_off(parent, place);
        }
        self.cut_loose(image);
    }

    fn hangs(&self, image: u32) -> bool {
        let above = |view: View<'_>| {
            self.view(view.parent())
                .is_some_and(|a| a.place_of(image).is_some())
        };
        self.root == image || self.view(image).is_some_and(above)
    }

    /// Removes an image and the images below it, except those that are still linked.
    fn cut_loose(&mut self, image: u32) {
        if image == NONE {
            return;
        }
        let mut loose = vec![image];
        while let Some(image) = loose.pop() {
            // An image that is linked elsewhere stays.
            let Some(view) = self.view(image) else { continue };
            if self.hangs(image) {
                continue;
            }
            loose.extend(view.kids());
            self.arena.remove(image);
        }
    }
}

impl Fingerprint for Tree {
    /// Covers the cached images. Their use bits are covered only near the budget, where they decide which image is
    /// evicted.
    fn fingerprint(&self) -> u64 {
        let mut live: Vec<(u64, u64)> = Vec::new();
        let mut loose = vec![self.root];
        let tight = self.arena.bytes() * 2 > self.budget;
        while let Some(image) = loose.pop() {
            if let Some(view) = self.view(image) {
                loose.extend(view.kids());
                let used = tight && self.arena.was_used(image);
                let digest = self.unpack(&NodeTypes::SHIPPED, view).digest();
                live.push((view.at(), fingerprint_of(&(digest, used, self.arena.age(image)))));
            }
        }
        live.sort_unstable();
        fingerprint_of(&(live, if tight { self.hand } else { 0 }))
    }
}
