//! The links between the images of the prefix cache.

use dm_layout::{Find, NodeTypes, SlotWord};
use dm_sync::{Fingerprint, fingerprint_of};
use dm_verbs::RemotePtr;

use super::arena::{EXPIRED, NONE};
use super::entry::{About, Entry};
use super::images::Images;
use super::index::Index;
use super::packed::{Below, View};
use super::{Apart, CachedSlot, PrefixHit, PrefixImage, Seen};

/// An index whose images are linked as the nodes are. It needs no memory beside the images.
#[derive(Debug)]
pub(super) struct Tree {
    images: Images,
    root: u32,
}

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
    /// Whether the prefix of an image on the path, or of the child in `apart`, has bytes that the image does not hold.
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
            images: Images::new(budget),
            root: NONE,
        }
    }

    /// Returns a copy within `budget`, or `None` if it does not fit.
    pub(super) fn copy(&self, budget: u64) -> Option<Self> {
        let copy = Self {
            images: self.images.copy(budget),
            ..*self
        };
        (copy.images.bytes() <= copy.limit()).then_some(copy)
    }

    /// Walks down `key`'s path as long as `on` accepts the current image and the next one.
    #[inline]
    fn walk(&self, key: &[u8], mut on: impl FnMut(View<'_>, u32) -> bool) -> Option<Way<'_>> {
        let mut way = Way {
            image: self.root,
            view: self.images.view(self.root)?,
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
            let Some(below) = self.images.view(kid).filter(|_| on(way.view, kid)) else {
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

    /// Walks like [`Tree::walk`], but only over valid images. Returns `None` if the root has none.
    #[inline]
    fn walk_young(&self, key: &[u8], mut on: impl FnMut(View<'_>, u32) -> bool) -> Option<Way<'_>> {
        self.images.young(self.root)?;
        self.walk(key, |view, image| {
            self.images.arena.age(image) < EXPIRED && on(view, image)
        })
    }

    /// Returns the leaf to which the deepest cached node on `key`'s path points for the key, and that node's
    /// branch.
    #[inline]
    pub(super) fn leaf(&self, key: &[u8]) -> Option<(RemotePtr, u8)> {
        let mut image = self.root;
        let mut view = self.images.young(image)?;
        loop {
            let branch = view.branch();
            let &byte = key.get(usize::from(branch))?;
            let slots = view.slots();
            let kid = match slots.below(slots.place(byte).ok()?) {
                Below::Kid(kid) => kid,
                Below::Leaf(at) => {
                    self.images.arena.touch(image);
                    return Some((RemotePtr::from_raw(at), branch));
                }
                Below::Other => return None,
            };
            let below = self.images.young(kid)?;
            if leaves(key, below).is_some() {
                return None;
            }
            (image, view) = (kid, below);
        }
    }

    pub(super) fn lookup(&self, types: &NodeTypes, key: &[u8]) -> Option<PrefixHit> {
        Some(self.hit(types, self.walk_young(key, |_, _| true)?))
    }

    /// Returns the deepest valid image on `key`'s path whose branch is at most `byte`, and the branch of the image
    /// below it, if there is one. Returns `None` if there is no such image, or if it has no slot for the key.
    pub(super) fn over(&self, types: &NodeTypes, key: &[u8], byte: u8) -> Option<(PrefixHit, Option<u8>)> {
        let branch = |image| self.images.young(image).map(|view| view.branch());
        let way = self.walk_young(key, |_, image| branch(image).is_some_and(|branch| branch <= byte))?;
        let below = match way.view.slots().below(way.place.ok()?) {
            Below::Kid(kid) => branch(kid),
            Below::Leaf(_) | Below::Other => None,
        };
        Some((self.hit(types, way), below))
    }

    /// Returns a leaf below the node at `at`, on `key`'s path. Every image from the root down to the leaf is valid.
    pub(super) fn leaf_below(&self, key: &[u8], at: RemotePtr) -> Option<RemotePtr> {
        let way = self.walk_young(key, |view, _| view.at() != at.raw())?;
        let mut view = Some(way.view).filter(|view| view.at() == at.raw())?;
        loop {
            let slots = view.slots();
            let own = key.get(usize::from(view.branch())).map(|&byte| slots.place(byte));
            let places = own.and_then(Result::ok).into_iter().chain(0..view.len());
            // Only one path is tried: if it ends at a node that is not cached, the client reads nodes.
            let below = places.map(|place| slots.below(place));
            match below.into_iter().find(|below| !matches!(below, Below::Other))? {
                Below::Kid(kid) => view = self.images.young(kid)?,
                Below::Leaf(leaf) => return Some(RemotePtr::from_raw(leaf)),
                Below::Other => return None,
            }
        }
    }

    /// Describes the node at which a walk over valid images has ended.
    fn hit(&self, types: &NodeTypes, way: Way<'_>) -> PrefixHit {
        self.images.arena.touch(way.image);
        PrefixHit {
            at: RemotePtr::from_raw(way.view.at()),
            seen: Seen(way.image),
            node_type: way.view.node_type(),
            incarnation: way.view.incarnation(),
            branch: way.view.branch(),
            find: self.images.find_at(types, way.view, way.byte, way.place).0,
            children: way.view.children(),
            link: way.link(),
            apart: way.apart,
            skipped: way.skipped,
        }
    }

    /// Returns the image of the node at `at`, on `key`'s path.
    fn image_at(&self, key: &[u8], at: RemotePtr) -> Option<u32> {
        let way = self.walk(key, |view, _| view.at() != at.raw())?;
        (way.view.at() == at.raw()).then_some(way.image)
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
        if let Some((known, view)) = known.and_then(|known| Some((known, self.images.view(known)?)))
            && self.images.says(view, &image)
        {
            self.images.arena.touch(known);
            self.images.arena.set_age(known, age);
            return Some(known);
        }
        let entry =
            known.and_then(|known| Some((known, self.images.unpack(types, self.images.view(known)?))));
        // A node's branch never changes. So if the branch differs, the image is of another incarnation, or damaged.
        let other =
            |entry: &Entry| entry.branch != image.header.branch() || entry.incarnation != image.incarnation;
        let Some((known, mut entry)) = entry.filter(|(_, entry)| !other(entry)) else {
            if let Some(known) = known {
                self.cut(known);
            }
            let new = self.hang(types, key, image, kept)?;
            self.images.arena.set_age(new, age);
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
        self.images.arena.touch(new);
        self.images.arena.set_age(new, age);
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
            let (find, _) = self.images.find_at(types, way.view, way.byte, way.place);
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
        self.images
            .view(parent)
            .map_or(NONE, |view| self.images.find(types, view, byte).1)
    }

    /// Links `kid` into the slot of `byte`, which points to its node.
    fn hang_into(&mut self, parent: u32, byte: u8, kid: u32) {
        let Some(Ok(place)) = self.images.view(parent).map(|view| view.place(byte)) else {
            return;
        };
        if let Some(mut edit) = self.images.edit(parent) {
            edit.hang(place, kid);
        }
    }

    /// Unlinks the image from slot `place` of `parent`. The slot still points to the node.
    fn take_off(&mut self, parent: u32, place: usize) {
        let Some(view) = self.images.view(parent) else {
            return;
        };
        let byte = view.key_bytes()[place];
        let (word, _) = self.images.slot(view.slots(), place, byte);
        let leaf_lines = self.images.leaf_lines;
        let done = self
            .images
            .edit(parent)
            .is_some_and(|mut edit| edit.set(place, word, true, leaf_lines));
        if !done && !self.repack(parent, |entry| entry.hang(byte, NONE)) {
            self.cut(parent);
        }
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
        let there = self.images.view(seen).is_some_and(|view| view.at() == at.raw());
        let image = match there {
            true => Some(seen),
            false => self.image_at(key, at),
        };
        let image = image?;
        if !word.is_empty() {
            self.images.grow_to(image, age);
            self.learn_slot(image, index, word.thawed());
        }
        // The image may have been removed.
        let view = self.images.view(image).filter(|view| view.at() == at.raw())?;
        Some(view.children())
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
        // The old image is unlinked first, so that `learn_slot` does not remove it.
        let old = self.kid(types, parent, byte);
        if let Some(Ok(place)) = self
            .images
            .view(parent)
            .filter(|_| old != NONE)
            .map(|v| v.place(byte))
        {
            self.take_off(parent, place);
        }
        self.images.grow_to(parent, age);
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
        let (Some(before), Some(after)) = (self.images.view(old), self.images.view(new)) else {
            return;
        };
        let branch = after.branch();
        let (slots, bytes) = (after.slots(), after.key_bytes().iter().enumerate());
        // The slot must point to the same node: if the memory is now a node of another type, the image is not
        // linked there.
        let byte_of = |node: View<'_>| {
            let mut words = bytes
                .clone()
                .map(|(place, &byte)| self.images.slot(slots, place, byte).0.thawed());
            words
                .find(|w| SlotWord::inner(w.partial(), node.at(), node.node_type()) == Some(*w))
                .map(|w| w.partial())
        };
        let mut moved: Vec<(u8, u32)> = Vec::new();
        if let Some(byte) = byte_of(before) {
            moved.push((byte, old));
        } else if before.branch() == branch {
            let kids = before
                .kids()
                .filter_map(|kid| Some((self.images.view(kid)?, kid)));
            moved.extend(kids.filter_map(|(node, kid)| Some((byte_of(node)?, kid))));
        }
        for (byte, kid) in moved {
            if let Some(place) = self
                .images
                .view(old)
                .filter(|_| kid != old)
                .and_then(|v| v.place_of(kid))
            {
                self.take_off(old, place);
            }
            // If another image was linked in the slot, it is removed now. Otherwise it would stay in memory for ever.
            let other = self.kid(types, new, byte);
            self.hang_into(new, byte, kid);
            if other != kid {
                self.cut_loose(other);
            }
            let Some(view) = self.images.view(kid) else {
                continue;
            };
            if usize::from(view.branch()) == usize::from(branch) + 1 + view.partial().len() {
                if let Some(mut edit) = self.images.edit(kid) {
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
        if let Some(Ok(place)) = self.images.view(parent).map(|view| view.place(byte)) {
            self.take_off(parent, place);
        }
        self.cut_loose(kid);
    }

    pub(super) fn forget(&mut self, key: &[u8], at: RemotePtr) {
        if let Some(image) = self.image_at(key, at) {
            self.cut(image);
        }
    }

    fn hangs(&self, image: u32) -> bool {
        let above = |view: View<'_>| {
            self.images
                .view(view.parent())
                .is_some_and(|a| a.place_of(image).is_some())
        };
        self.root == image || self.images.view(image).is_some_and(above)
    }

    /// Removes an image and the images below it, except those that are still linked.
    fn cut_loose(&mut self, image: u32) {
        if image == NONE {
            return;
        }
        let mut loose = vec![image];
        while let Some(image) = loose.pop() {
            // An image that is linked elsewhere stays.
            let Some(view) = self.images.view(image) else {
                continue;
            };
            if self.hangs(image) {
                continue;
            }
            loose.extend(view.kids());
            self.images.arena.remove(image);
        }
    }
}

impl Index for Tree {
    fn images(&self) -> &Images {
        &self.images
    }

    fn images_mut(&mut self) -> &mut Images {
        &mut self.images
    }

    /// Only an image without a cached child can go, and never the root's, because the others are found through it.
    fn is_evictable(&self, view: View<'_>) -> bool {
        view.parent() != NONE && view.kids().next().is_none()
    }

    /// Removes an image and those below it.
    fn cut(&mut self, image: u32) {
        let Some(view) = self.images.view(image) else {
            return;
        };
        let parent = view.parent();
        if parent == NONE {
            self.root = NONE;
        } else if let Some(place) = self.images.view(parent).and_then(|above| above.place_of(image)) {
            self.take_off(parent, place);
        }
        self.cut_loose(image);
    }

    fn drop_loose(&mut self, image: u32) {
        self.cut_loose(image);
    }
}

impl Fingerprint for Tree {
    /// Covers the cached images. Their use bits are covered only if the images take more than half of the budget,
    /// because only then may they decide which image is evicted.
    fn fingerprint(&self) -> u64 {
        let mut live: Vec<(u64, u64)> = Vec::new();
        let mut loose = vec![self.root];
        let tight = self.images.arena.bytes() * 2 > self.images.budget();
        while let Some(image) = loose.pop() {
            if let Some(view) = self.images.view(image) {
                loose.extend(view.kids());
                let used = tight && self.images.arena.was_used(image);
                let digest = self.images.unpack(&NodeTypes::SHIPPED, view).digest();
                live.push((
                    view.at(),
                    fingerprint_of(&(digest, used, self.images.arena.age(image))),
                ));
            }
        }
        live.sort_unstable();
        fingerprint_of(&(live, if tight { self.images.hand } else { 0 }))
    }
}
