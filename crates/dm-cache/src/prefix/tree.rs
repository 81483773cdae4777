//! The images and how they hang together.

use dm_layout::{Find, NodeTypes, SlotWord};
use dm_sync::{Fingerprint, fingerprint_of};
use dm_verbs::RemotePtr;

use super::entry::{About, Entry, NONE};
use super::{Apart, CachedSlot, PrefixHit, PrefixImage};

/// The content of a cache.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) entries: Vec<Option<Box<Entry>>>,
    free: Vec<u32>,
    pub(super) root: u32,
    pub(super) budget: u64,
    /// Bytes of all images.
    image_bytes: u64,
    /// Admissions so far: the clock of recency.
    pub(super) now: u32,
    /// State of the draws of an eviction.
    pub(super) draw: u64,
}

/// How far a key's way is cached.
struct Way {
    entry: u32,
    link: Option<CachedSlot>,
    find: Find,
    apart: Option<Apart>,
}

/// The first byte at which `key`, from byte `from` on, leaves `partial`.
fn leaves(key: &[u8], from: u8, partial: &[u8]) -> Option<Apart> {
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
            entries: Vec::new(),
            free: Vec::new(),
            root: NONE,
            budget,
            image_bytes: 0,
            now: 0,
            draw: 0x9E37_79B9_7F4A_7C15,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        let slab = self.entries.capacity() * size_of::<Option<Box<Entry>>>();
        self.image_bytes + (slab + self.free.capacity() * size_of::<u32>()) as u64
    }

    pub(super) fn nodes(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(super) fn get(&self, entry: u32) -> Option<&Entry> {
        self.entries.get(entry as usize)?.as_deref()
    }

    fn get_mut(&mut self, entry: u32) -> Option<&mut Entry> {
        self.entries.get_mut(entry as usize)?.as_deref_mut()
    }

    /// Walks down `key`'s way as long as `on` likes the entry.
    fn walk(&self, types: &NodeTypes, key: &[u8], mut on: impl FnMut(&Entry) -> bool) -> Option<Way> {
        let mut way = Way {
            entry: self.root,
            link: None,
            find: Find::Full,
            apart: None,
        };
        loop {
            let entry = self.get(way.entry)?;
            let &byte = key.get(usize::from(entry.branch))?;
            let (find, kid) = entry.find(types, byte);
            way.find = find;
            let (Find::Child(index, word), Some(below)) = (find, self.get(kid)) else {
                return Some(way);
            };
            if !on(entry) {
                return Some(way);
            }
            way.apart = leaves(key, entry.branch + 1, below.partial());
            if way.apart.is_some() {
                return Some(way);
            }
            way.link = Some(CachedSlot {
                node: RemotePtr::from_raw(entry.at),
                incarnation: entry.incarnation,
                branch: entry.branch,
                index,
                word,
            });
            way.entry = kid;
        }
    }

    pub(super) fn lookup(&self, types: &NodeTypes, key: &[u8]) -> Option<PrefixHit> {
        let way = self.walk(types, key, |_| true)?;
        let entry = self.get(way.entry)?;
        entry.touch(self.now);
        Some(PrefixHit {
            at: RemotePtr::from_raw(entry.at),
            node_type: entry.node_type,
            incarnation: entry.incarnation,
            branch: entry.branch,
            find: way.find,
            children: entry.children(),
            link: way.link,
            apart: way.apart,
        })
    }

    /// The entry of the node at `at`, on `key`'s way.
    fn entry_at(&self, types: &NodeTypes, key: &[u8], at: RemotePtr) -> Option<u32> {
        let way = self.walk(types, key, |entry| entry.at != at.raw())?;
        (self.get(way.entry)?.at == at.raw()).then_some(way.entry)
    }

    pub(super) fn admit(
        &mut self,
        types: &NodeTypes,
        key: &[u8],
        image: PrefixImage<impl Iterator<Item = SlotWord>>,
    ) -> bool {
        let branch = image.header.branch();
        self.now = self.now.wrapping_add(1);
        let entry = match self.entry_at(types, key, image.at) {
            Some(known) => known,
            None => match self.hang(types, key, image.at, image.incarnation, &image.header) {
                Some(new) => new,
                None => return false,
            },
        };
        let now = self.now;
        let Some(known) = self.get_mut(entry) else {
            return false;
        };
        debug_assert_eq!(known.branch, branch, "a node's branch never changes");
        let before = known.heap_bytes();
        let orphans = known.refill(image.words);
        known.touch(now);
        let after = known.heap_bytes();
        self.image_bytes = self.image_bytes + after - before;
        for orphan in orphans {
            self.cut(orphan);
        }
        self.fit(entry)
    }

    /// A new, empty entry under its parent's slot.
    fn hang(
        &mut self,
        types: &NodeTypes,
        key: &[u8],
        at: RemotePtr,
        incarnation: u32,
        header: &dm_layout::RadixHeader,
    ) -> Option<u32> {
        let branch = header.branch();
        let (parent, from) = if self.root == NONE {
            (NONE, 0)
        } else {
            let way = self.walk(types, key, |entry| entry.branch < branch)?;
            let parent = self.get(way.entry)?;
            let points = matches!(way.find, Find::Child(_, word) if word.pointer() == at.raw());
            if parent.branch >= branch || !points {
                return None;
            }
            (way.entry, parent.branch + 1)
        };
        let partial = header.partial_from(from)?;
        let about = About {
            at: at.raw(),
            incarnation,
            node_type: header.node_type(),
            branch,
            partial,
            parent,
        };
        let entry = Box::new(Entry::new(types, &about, self.now));
        self.image_bytes += size_of::<Entry>() as u64;
        let new = match self.free.pop() {
            Some(free) => {
                self.entries[free as usize] = Some(entry);
                free
            }
            None => {
                if self.entries.len() == self.entries.capacity() {
                    // By an eighth: slack counts against the budget.
                    self.entries.reserve_exact(self.entries.len() / 8 + 16);
                }
                self.entries.push(Some(entry));
                (self.entries.len() - 1) as u32
            }
        };
        if parent == NONE {
            self.root = new;
        } else {
            let byte = key[usize::from(from - 1)];
            // Another node's image that hung there is out of date.
            let old = self.kid(types, parent, byte);
            self.hang_into(parent, byte, new);
            self.cut_loose(old);
        }
        Some(new)
    }

    fn kid(&self, types: &NodeTypes, parent: u32, byte: u8) -> u32 {
        self.get(parent).map_or(NONE, |p| p.find(types, byte).1)
    }

    fn hang_into(&mut self, parent: u32, byte: u8, kid: u32) {
        let Some(entry) = self.get_mut(parent) else { return };
        let before = entry.heap_bytes();
        entry.hang(byte, kid);
        let after = entry.heap_bytes();
        self.image_bytes = self.image_bytes + after - before;
    }

    pub(super) fn learn(
        &mut self,
        types: &NodeTypes,
        key: &[u8],
        at: RemotePtr,
        index: usize,
        word: SlotWord,
    ) {
        if word.is_empty() {
            return;
        }
        let Some(entry) = self.entry_at(types, key, at) else {
            return;
        };
        let Some(known) = self.get_mut(entry) else { return };
        let before = known.heap_bytes();
        let orphan = known.learn(index, word);
        let after = known.heap_bytes();
        self.image_bytes = self.image_bytes + after - before;
        if let Some(orphan) = orphan {
            self.hang_into(entry, word.partial(), NONE);
            self.cut_loose(orphan);
        }
        let _kept = self.fit(entry);
    }

    pub(super) fn replace(
        &mut self,
        types: &NodeTypes,
        key: &[u8],
        (at, index, word): (RemotePtr, usize, SlotWord),
        image: PrefixImage<impl Iterator<Item = SlotWord>>,
    ) {
        let Some(parent) = self.entry_at(types, key, at) else {
            return;
        };
        let byte = word.partial();
        // Off the slot, so that learning leaves it alone.
        let old = self.kid(types, parent, byte);
        self.hang_into(parent, byte, NONE);
        self.learn(types, key, at, index, word);
        let new_at = image.at;
        let admitted = self.admit(types, key, image);
        let new = self.entry_at(types, key, new_at).filter(|_| admitted);
        if let Some(new) = new {
            self.inherit(types, old, new);
        }
        self.cut_loose(old);
        if let Some(new) = new {
            let _kept = self.fit(new);
        }
    }

    /// Hangs under `new` what it shares with the entry `old` that it replaces: `old` itself, or its children.
    fn inherit(&mut self, types: &NodeTypes, old: u32, new: u32) {
        let (Some(before), Some(after)) = (self.get(old), self.get(new)) else {
            return;
        };
        let mut moved: Vec<(u8, u32)> = Vec::new();
        if let Some(byte) = after.byte_of(before.at) {
            moved.push((byte, old));
        } else if before.branch == after.branch {
            let kids = before.kids().filter_map(|kid| Some((self.get(kid)?.at, kid)));
            moved.extend(kids.filter_map(|(at, kid)| Some((after.byte_of(at)?, kid))));
        }
        let branch = after.branch;
        for (byte, kid) in moved {
            if kid != old {
                self.unhang(old, kid);
            }
            // No image is lost that hangs there already.
            let other = self.kid(types, new, byte);
            self.hang_into(new, byte, kid);
            self.cut_loose(other);
            if let Some(entry) = self.get_mut(kid) {
                entry.moved_below(new, branch);
            }
        }
    }

    pub(super) fn forget(&mut self, key: &[u8], at: RemotePtr) {
        // Which slots there are does not matter here.
        if let Some(entry) = self.entry_at(&NodeTypes::SHIPPED, key, at) {
            self.cut(entry);
        }
    }

    /// Drops an entry and those below it.
    pub(super) fn cut(&mut self, entry: u32) {
        let Some(known) = self.get(entry) else { return };
        let parent = known.parent;
        if parent == NONE {
            self.root = NONE;
        } else if let Some(above) = self.get(parent) {
            let hangs = above.kids().any(|kid| kid == entry);
            if hangs {
                self.unhang(parent, entry);
            }
        }
        self.cut_loose(entry);
    }

    fn unhang(&mut self, parent: u32, kid: u32) {
        let Some(entry) = self.get_mut(parent) else { return };
        let before = entry.heap_bytes();
        entry.unhang(kid);
        let after = entry.heap_bytes();
        self.image_bytes = self.image_bytes + after - before;
    }

    fn hangs(&self, entry: u32, known: &Entry) -> bool {
        self.root == entry
            || self
                .get(known.parent)
                .is_some_and(|above| above.kids().any(|kid| kid == entry))
    }

    /// Drops what hangs nowhere any more.
    fn cut_loose(&mut self, entry: u32) {
        let mut loose = vec![entry];
        while let Some(entry) = loose.pop() {
            // What found another place stays.
            if self.get(entry).is_some_and(|known| self.hangs(entry, known)) {
                continue;
            }
            let Some(known) = self.entries.get_mut(entry as usize).and_then(Option::take) else {
                continue;
            };
            self.image_bytes -= size_of::<Entry>() as u64 + known.heap_bytes();
            loose.extend(known.kids());
            self.free.push(entry);
        }
    }
}

impl Fingerprint for Tree {
    /// What is cached. When things were used counts only near the budget, where it decides what goes.
    fn fingerprint(&self) -> u64 {
        let mut live: Vec<(u64, u64)> = Vec::new();
        let mut loose = vec![self.root];
        let tight = self.bytes() * 2 > self.budget;
        while let Some(entry) = loose.pop() {
            if let Some(known) = self.get(entry) {
                loose.extend(known.kids());
                let used = if tight { known.last_used() } else { 0 };
                live.push((known.at, fingerprint_of(&(known.digest(), used))));
            }
        }
        live.sort_unstable();
        fingerprint_of(&(live, if tight { self.draw } else { 0 }))
    }
}
