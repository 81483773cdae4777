//! A hash table of the images of the prefix cache. Its keys are the prefixes of the nodes.
//!
//! A node's prefix identifies the node, so a lookup needs no other image: it probes the prefixes of a key, the longest
//! one first. Each image stores its whole prefix. In return, eviction may remove any image.
//!
//! The images of a bucket are chained through their parent fields, which have no other use here. The table grows by one
//! bucket at a time (linear hashing), so it never needs memory for two tables.

use dm_layout::{Find, KEY_BYTES_MAX, NodeTypes, RadixHeader, SlotWord};
use dm_sync::{Fingerprint, fingerprint_of};
use dm_verbs::RemotePtr;

use super::arena::{EXPIRED, NONE};
use super::entry::{About, Entry};
use super::images::Images;
use super::index::Index;
use super::packed::View;
use super::{CachedSlot, PrefixHit, PrefixImage, Seen};

/// An index that finds images by a hash of their prefixes.
#[derive(Debug)]
pub(super) struct Table {
    images: Images,
    /// The first image of each bucket.
    heads: Vec<u32>,
}

/// The offset basis and the prime of the hash FNV-1a.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

fn hash_on(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(PRIME)
}

fn hash_of(prefix: &[u8]) -> u64 {
    prefix.iter().fold(BASIS, |hash, &byte| hash_on(hash, byte))
}

/// The prefixes of a key that may be those of nodes on the key's path.
struct Prefixes<'k> {
    key: &'k [u8],
    /// The hash of each prefix, by its length.
    hashes: [u64; KEY_BYTES_MAX],
}

impl<'k> Prefixes<'k> {
    fn of(key: &'k [u8]) -> Self {
        let key = &key[..key.len().min(KEY_BYTES_MAX)];
        let (mut hashes, mut hash) = ([0; KEY_BYTES_MAX], BASIS);
        for (slot, &byte) in hashes.iter_mut().zip(key) {
            *slot = hash;
            hash = hash_on(hash, byte);
        }
        Self { key, hashes }
    }

    /// Returns the prefixes of fewer than `below` bytes with their hashes, the longest one first.
    fn shorter_than(&self, below: usize) -> impl Iterator<Item = (&'k [u8], u64)> + '_ {
        let lengths = (0..below.min(self.key.len())).rev();
        lengths.map(|len| (&self.key[..len], self.hashes[len]))
    }

    fn all(&self) -> impl Iterator<Item = (&'k [u8], u64)> + '_ {
        self.shorter_than(self.key.len())
    }
}

impl Table {
    /// Makes a table within `budget`, which includes its own structure.
    pub(super) fn new(budget: u64) -> Self {
        Self {
            images: Images::new(budget.saturating_sub(size_of::<Self>() as u64)),
            heads: Vec::new(),
        }
    }

    /// Returns a copy whose images and buckets are within `budget`, or `None` if they do not fit.
    pub(super) fn copy(&self, budget: u64) -> Option<Self> {
        let copy = Self {
            images: self.images.copy(budget),
            heads: self.heads.clone(),
        };
        (copy.images.bytes() <= copy.limit()).then_some(copy)
    }

    /// Returns the bytes of the buckets.
    pub(super) fn head_bytes(&self) -> u64 {
        (self.heads.capacity() * size_of::<u32>()) as u64
    }

    /// Returns the bucket of a hash, if there are any buckets.
    fn bucket(&self, hash: u64) -> Option<usize> {
        let round = self.heads.len().checked_ilog2()?;
        // The low bits of a product depend on the low bits of the bytes alone.
        let hash = (hash ^ hash >> 32) as usize;
        let [narrow, wide] = [round, round + 1].map(|bits| hash & ((1 << bits) - 1));
        // If the wide bucket does not exist yet, its images are still in the narrow one.
        Some(if wide < self.heads.len() { wide } else { narrow })
    }

    /// Returns the images of a bucket.
    fn chain(&self, bucket: Option<usize>) -> impl Iterator<Item = (u32, View<'_>)> {
        let mut next = bucket
            .and_then(|bucket| self.heads.get(bucket))
            .copied()
            .unwrap_or(NONE);
        core::iter::from_fn(move || {
            let (image, view) = (next, self.images.view(next)?);
            next = view.parent();
            Some((image, view))
        })
    }

    /// Returns the image of the node with this prefix.
    fn find(&self, prefix: &[u8], hash: u64) -> Option<(u32, View<'_>)> {
        self.chain(self.bucket(hash))
            .find(|(_, view)| view.partial() == prefix)
    }

    /// Returns the first valid image with one of these prefixes, of which the longest comes first.
    fn longest<'p>(&self, prefixes: impl Iterator<Item = (&'p [u8], u64)>) -> Option<(u32, View<'_>)> {
        let valid = |&(image, _): &(u32, View<'_>)| self.images.arena.age(image) < EXPIRED;
        let mut found = prefixes.filter_map(|(prefix, hash)| self.find(prefix, hash).filter(valid));
        found.next()
    }

    /// Returns the valid image of the node at `at`, on the key's path.
    fn image_at(&self, prefixes: &Prefixes<'_>, at: u64) -> Option<(u32, View<'_>)> {
        prefixes.all().find_map(|(prefix, hash)| {
            let (image, view) = self.find(prefix, hash)?;
            (view.at() == at && self.images.arena.age(image) < EXPIRED).then_some((image, view))
        })
    }

    /// Returns the content of the slot of `byte`, if the image has one.
    fn word(&self, view: View<'_>, byte: u8) -> Option<SlotWord> {
        let slots = view.slots();
        let place = slots.place(byte).ok()?;
        Some(self.images.slot(slots, place, byte).0)
    }

    /// Returns the leaf to which the deepest cached node on `key`'s path points for the key, and that node's branch.
    pub(super) fn leaf(&self, key: &[u8]) -> Option<(RemotePtr, u8)> {
        let (image, view) = self.longest(Prefixes::of(key).all())?;
        let branch = view.branch();
        let word = self.word(view, key[usize::from(branch)])?;
        if !word.is_leaf() {
            return None;
        }
        self.images.arena.touch(image);
        Some((RemotePtr::from_raw(word.pointer()), branch))
    }

    pub(super) fn lookup(&self, types: &NodeTypes, key: &[u8]) -> Option<PrefixHit> {
        let prefixes = Prefixes::of(key);
        let found = self.longest(prefixes.all())?;
        Some(self.hit(types, &prefixes, found))
    }

    /// Returns the deepest valid image on `key`'s path whose branch is at most `byte`, and the branch of the image
    /// below it, if there is one.
    pub(super) fn over(&self, types: &NodeTypes, key: &[u8], byte: u8) -> Option<(PrefixHit, Option<u8>)> {
        let prefixes = Prefixes::of(key);
        let found = self.longest(prefixes.shorter_than(usize::from(byte) + 1))?;
        let hit = self.hit(types, &prefixes, found);
        let below = match hit.find {
            Find::Child(_, word) => self.image_at(&prefixes, word.pointer()),
            _ => None,
        };
        Some((hit, below.map(|(_, view)| view.branch())))
    }

    /// Returns a leaf below the node at `at`, on `key`'s path, if a valid image on this path points to a leaf.
    pub(super) fn leaf_below(&self, key: &[u8], at: RemotePtr) -> Option<RemotePtr> {
        let prefixes = Prefixes::of(key);
        let mut node = at.raw();
        loop {
            let (_, view) = self.image_at(&prefixes, node)?;
            let own = self
                .word(view, key[usize::from(view.branch())])
                .filter(|word| word.has_child());
            let any = || {
                let words = view.key_bytes().iter().filter_map(|&byte| self.word(view, byte));
                words.into_iter().find(|word| word.is_leaf())
            };
            let word = own.or_else(any)?;
            if word.is_leaf() {
                return Some(RemotePtr::from_raw(word.pointer()));
            }
            node = word.pointer();
        }
    }

    fn hit(&self, types: &NodeTypes, prefixes: &Prefixes<'_>, (image, view): (u32, View<'_>)) -> PrefixHit {
        self.images.arena.touch(image);
        let branch = view.branch();
        let byte = prefixes.key[usize::from(branch)];
        PrefixHit {
            at: RemotePtr::from_raw(view.at()),
            seen: Seen(image),
            node_type: view.node_type(),
            incarnation: view.incarnation(),
            branch,
            find: self.images.find(types, view, byte).0,
            children: view.children(),
            link: self.link(types, prefixes, view),
            apart: None,
            skipped: false,
        }
    }

    /// Returns the slot that points to the node of `view`, if the deepest valid image above it has this slot.
    fn link(&self, types: &NodeTypes, prefixes: &Prefixes<'_>, view: View<'_>) -> Option<CachedSlot> {
        let (image, above) = self.longest(prefixes.shorter_than(usize::from(view.branch())))?;
        let byte = prefixes.key[usize::from(above.branch())];
        let Find::Child(index, word) = self.images.find(types, above, byte).0 else {
            return None;
        };
        let points = SlotWord::inner(byte, view.at(), view.node_type()) == Some(word);
        points.then_some(CachedSlot {
            node: RemotePtr::from_raw(above.at()),
            incarnation: above.incarnation(),
            branch: above.branch(),
            index,
            word,
            seen: Seen(image),
        })
    }

    /// Caches an image of a node whose prefix `key` has.
    pub(super) fn admit(
        &mut self,
        types: &NodeTypes,
        key: &[u8],
        image: PrefixImage<impl Iterator<Item = SlotWord> + Clone>,
        age: u8,
    ) -> bool {
        let (header, branch) = (image.header, usize::from(image.header.branch()));
        let prefix = key
            .get(..branch)
            .filter(|_| branch < key.len().min(KEY_BYTES_MAX));
        // The key must have the part of the prefix that the header holds.
        let prefix = prefix.filter(|prefix| prefix.ends_with(header.partial()));
        age < EXPIRED && prefix.is_some_and(|prefix| self.admit_at(types, prefix, image, age))
    }

    /// Caches an image of the node with this prefix, in the place of an older image with the same prefix.
    fn admit_at(
        &mut self,
        types: &NodeTypes,
        prefix: &[u8],
        image: PrefixImage<impl Iterator<Item = SlotWord> + Clone>,
        age: u8,
    ) -> bool {
        let known = self.find(prefix, hash_of(prefix));
        let node_type = image.header.node_type();
        // A client that searches for absent keys reads the same nodes again and again, so this must not allocate.
        if let Some((known, view)) = known
            && (view.at(), view.node_type()) == (image.at.raw(), node_type)
            && self.images.says(view, &image)
        {
            self.images.arena.touch(known);
            self.images.arena.set_age(known, age);
            return true;
        }
        let about = About {
            at: image.at.raw(),
            incarnation: image.incarnation,
            node_type,
            branch: image.header.branch(),
            partial: prefix,
            parent: NONE,
        };
        let mut entry = Entry::new(types, &about);
        entry.refill(image.words);
        let known = known.map(|(known, _)| known);
        match self.keep(known, &entry, 0, known.as_slice()) {
            Some(new) => {
                self.images.arena.touch(new);
                self.images.arena.set_age(new, age);
                true
            }
            None => {
                // The node was read again, so the old image is out of date.
                known.into_iter().for_each(|known| self.cut(known));
                false
            }
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
        let prefixes = Prefixes::of(key);
        // A node has at most one image that is valid, and an operation finds no other one.
        let there = self.images.view(seen).is_some_and(|view| view.at() == at.raw());
        let image = match there {
            true => seen,
            false => self.image_at(&prefixes, at.raw())?.0,
        };
        if !word.is_empty() {
            let before = self.word(self.images.view(image)?, word.partial());
            self.images.grow_to(image, age);
            self.learn_slot(image, index, word.thawed());
            // The node to which the slot led is no longer its child.
            let moved =
                |before: &SlotWord| before.has_child() && !before.is_leaf() && *before != word.thawed();
            if let Some(before) = before.filter(moved) {
                self.forget(key, RemotePtr::from_raw(before.pointer()));
            }
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
        let parent = self.image_at(&Prefixes::of(key), at.raw());
        let prefix = parent.and_then(|(_, parent)| prefix_below(parent, word.partial(), &image.header));
        if let Some((parent, _)) = parent {
            self.images.grow_to(parent, age);
            self.learn_slot(parent, index, word.thawed());
        }
        // Without the parent's image, nothing shows that the key has the new node's prefix.
        let admitted = match &prefix {
            Some(prefix) if age < EXPIRED => self.admit_at(types, prefix, image.clone(), age),
            _ => false,
        };
        let prefix = prefix
            .as_deref()
            .or(key.get(..usize::from(image.header.branch())));
        let old = prefix
            .filter(|_| !admitted)
            .and_then(|prefix| self.find(prefix, hash_of(prefix)));
        if let Some((old, _)) = old {
            self.cut(old);
        }
    }

    pub(super) fn forget(&mut self, key: &[u8], at: RemotePtr) {
        if let Some((image, _)) = self.image_at(&Prefixes::of(key), at.raw()) {
            self.cut(image);
        }
    }

    /// Adds a bucket, if the budget allows, and moves to it its part of another bucket.
    fn widen(&mut self) {
        let len = self.heads.len();
        if len == self.heads.capacity() {
            // The list grows by a sixteenth, because slack counts against the budget.
            let more = len / 16 + 8;
            if self.images.bytes() + (more * size_of::<u32>()) as u64 > self.limit() {
                return;
            }
            self.heads.reserve_exact(more);
        }
        self.heads.push(NONE);
        let Some(round) = len.checked_ilog2() else { return };
        let split = len - (1 << round);
        let chain: Vec<u32> = self.chain(Some(split)).map(|(image, _)| image).collect();
        self.heads[split] = NONE;
        for image in chain {
            self.enter(image);
        }
    }

    /// Puts an image in front of its bucket's chain.
    fn enter(&mut self, image: u32) {
        let bucket = self
            .images
            .view(image)
            .and_then(|view| self.bucket(hash_of(view.partial())));
        let Some(head) = bucket.and_then(|bucket| self.heads.get_mut(bucket)) else {
            return;
        };
        let next = core::mem::replace(head, image);
        self.set_next(image, next);
    }

    /// Takes an image out of its bucket's chain.
    fn leave(&mut self, image: u32) {
        let Some(view) = self.images.view(image) else {
            return;
        };
        let (bucket, next) = (self.bucket(hash_of(view.partial())), view.parent());
        let before = self.chain(bucket).find(|(_, before)| before.parent() == image);
        match before.map(|(before, _)| before) {
            Some(before) => self.set_next(before, next),
            None => {
                let head = bucket.and_then(|bucket| self.heads.get_mut(bucket));
                if let Some(head) = head.filter(|head| **head == image) {
                    *head = next;
                }
            }
        }
    }

    fn set_next(&mut self, image: u32, next: u32) {
        if let Some(mut edit) = self.images.edit(image) {
            edit.set_parent(next);
        }
    }
}

/// Returns the prefix of a node with this header, to which the slot of `byte` points. Returns `None` if the header does
/// not hold all bytes behind the slot.
fn prefix_below(parent: View<'_>, byte: u8, header: &RadixHeader) -> Option<Vec<u8>> {
    let below = header.partial_from(parent.branch() + 1)?;
    Some([parent.partial(), &[byte], below].concat())
}

impl Index for Table {
    fn images(&self) -> &Images {
        &self.images
    }

    fn images_mut(&mut self) -> &mut Images {
        &mut self.images
    }

    fn limit(&self) -> u64 {
        self.images.limit().saturating_sub(self.head_bytes())
    }

    /// Any image can go, because no other image is found through it.
    fn is_evictable(&self, _: View<'_>) -> bool {
        true
    }

    fn cut(&mut self, image: u32) {
        self.leave(image);
        self.images.arena.remove(image);
    }

    /// Does nothing, because slots hold no links.
    fn drop_loose(&mut self, _: u32) {}

    fn keep(&mut self, image: Option<u32>, entry: &Entry, spare: usize, kept: &[u32]) -> Option<u32> {
        if self.heads.len() <= self.images.nodes() {
            self.widen();
        }
        if self.heads.is_empty() {
            return None;
        }
        // Evictions change the chains, but the packed image already contains its link. So the image leaves its chain
        // first.
        image.into_iter().for_each(|image| self.leave(image));
        let new = self.store(image, entry, spare, kept);
        new.or(image).into_iter().for_each(|image| self.enter(image));
        new
    }
}

impl Fingerprint for Table {
    /// Covers the cached images. Their use bits are covered only if the images take more than half of the budget,
    /// because only then may they decide which image is evicted.
    fn fingerprint(&self) -> u64 {
        let tight = self.images.arena.bytes() * 2 > self.images.budget();
        let all = (0..self.heads.len()).flat_map(|bucket| self.chain(Some(bucket)));
        let mut live: Vec<(u64, u64)> = all
            .map(|(image, view)| {
                let used = tight && self.images.arena.was_used(image);
                let digest = self.images.unpack(&NodeTypes::SHIPPED, view).digest();
                let age = self.images.arena.age(image);
                (view.at(), fingerprint_of(&(view.partial(), digest, used, age)))
            })
            .collect();
        live.sort_unstable();
        fingerprint_of(&(live, if tight { self.images.hand } else { 0 }))
    }
}
