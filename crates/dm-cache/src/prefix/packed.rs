//! The bytes of a packed image.
//!
//! ```text
//!   at 6 │ branch 1 │ type and flags 1 │ number 4 │ parent 4 │ slots, spare, prefix, removed 4 │ (incarnation 4)
//!   prefix bytes │ key byte of each slot 1 │ code of each slot 5 │ to a multiple of 4
//! ```
//! A slot's code is one of: a leaf's address; a node's address and type; "removed"; or the number of the child's image,
//! which contains the address and the type. If the word of any slot is none of these (a far address, a leaf of another
//! size), all slots of the image are *wide*: each has the word and the child's number, 12 bytes.

use dm_layout::{LINE_BYTES, SlotWord};

use super::arena::{GRANULE, NONE};
use super::entry::Entry;

const HEAD: usize = 20;
const NARROW: usize = 5;
const WIDE: usize = 12;

// Flags of the first word, above a node type of five bits.
const TYPE_SHIFT: u32 = 56;
const TYPE_MASK: u64 = 0x1f;
const IS_WIDE: u64 = 1 << 61;
/// Marks an image whose incarnation is [`FIRST`], which is then not stored.
const IS_FIRST: u64 = 1 << 62;
const HAS_256: u64 = 1 << 63;
/// A flag in the byte of the prefix's length.
const IS_DIRECT: u8 = 0x80;

const FIRST: u32 = 1;

// Codes have two bits of tag above 38 bits.
const TAG_SHIFT: u32 = 38;
const LEAF: u64 = 0;
const KID: u64 = 1;
const NODE: u64 = 2;
const REMOVED: u64 = 3;
const LEAF_LINE_BITS: u32 = 30;
const NODE_LINE_BITS: u32 = 27;
const NODE_TYPE_SHIFT: u32 = 35;
/// Bits of a packed remote pointer that are its offset.
const OFFSET_BITS: u32 = 48;

/// The part of a slot's content that its code contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Said {
    /// The slot holds this word, and no image is linked there.
    Word(SlotWord),
    /// This image is linked in the slot. The word is given if it is stored.
    Kid(u32, Option<SlotWord>),
}

/// Reads a packed image.
#[derive(Clone, Copy)]
pub(super) struct View<'a>(&'a [u8]);

fn word_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b))
}

fn half_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |b| u32::from_le_bytes(*b))
}

/// Returns the number of bytes of the image at the front of `bytes`.
pub(super) fn bytes_of(bytes: &[u8]) -> usize {
    View(bytes).size()
}

/// Returns the size of the image at the front of `bytes`, and its number.
pub(super) fn outline(bytes: &[u8]) -> (usize, u32) {
    (View(bytes).size(), half_at(bytes, 8))
}

fn lines_of(at: u64) -> (u64, u64) {
    (
        at >> OFFSET_BITS,
        (at & ((1 << OFFSET_BITS) - 1)) / LINE_BYTES as u64,
    )
}

fn pointer(node: u64, lines: u64) -> u64 {
    (node << OFFSET_BITS) | (lines * LINE_BYTES as u64)
}

/// Returns the code of a word, or `None` if no code can represent it. All leaves that have a code are `leaf_lines`
/// long.
fn code_of(word: SlotWord, incarnation: u32, leaf_lines: u8) -> Option<u64> {
    let partial = word.partial();
    if !word.has_child() {
        return (word == SlotWord::removed(partial, incarnation)).then_some(REMOVED << TAG_SHIFT);
    }
    let (node, lines) = lines_of(word.pointer());
    match word.decode().ok()? {
        dm_layout::RadixSlot::Leaf { lines: long, .. }
            if long == leaf_lines && lines >> LEAF_LINE_BITS == 0 =>
        {
            Some(LEAF << TAG_SHIFT | node << LEAF_LINE_BITS | lines)
        }
        dm_layout::RadixSlot::Inner { node_type, .. } if node_type < 8 && lines >> NODE_LINE_BITS == 0 => {
            Some(NODE << TAG_SHIFT | u64::from(node_type) << NODE_TYPE_SHIFT | node << NODE_LINE_BITS | lines)
        }
        _ => None,
    }
}

/// The positions of an image's key bytes and codes, computed once for a step of a walk.
#[derive(Clone, Copy)]
pub(super) struct Slots<'a> {
    image: View<'a>,
    key_bytes: &'a [u8],
    codes: &'a [u8],
    wide: bool,
    direct: bool,
}

impl<'a> Slots<'a> {
    /// Returns the place at which the slot of key byte `partial` is stored, or as an error the place at which it would
    /// be inserted.
    #[inline]
    pub(super) fn place(self, partial: u8) -> Result<usize, usize> {
        position(self.key_bytes, partial, self.direct)
    }

    fn code(self, place: usize) -> Option<&'a [u8]> {
        match self.wide {
            true => self.codes.get(place * WIDE..)?.get(..WIDE),
            false => self.codes.get(place * NARROW..)?.get(..NARROW),
        }
    }

    /// Returns the image that is linked in the slot at `place`, or the leaf to which the slot points.
    #[inline]
    pub(super) fn below(self, place: usize) -> Below {
        let Some(code) = self.code(place) else {
            return Below::Other;
        };
        if self.wide {
            let word = SlotWord::from_raw(word_at(code, 0));
            return match half_at(code, 8) {
                NONE if word.is_leaf() => Below::Leaf(word.pointer()),
                NONE => Below::Other,
                kid => Below::Kid(kid),
            };
        }
        let Some(code) = narrow(code) else {
            return Below::Other;
        };
        match code >> TAG_SHIFT {
            KID => Below::Kid(code as u32),
            LEAF => Below::Leaf(pointer(
                code >> LEAF_LINE_BITS & 0xff,
                code & ((1 << LEAF_LINE_BITS) - 1),
            )),
            _ => Below::Other,
        }
    }

    /// Returns the content of the slot at `place`, whose key byte is `partial`.
    #[inline]
    pub(super) fn said(self, place: usize, partial: u8, leaf_lines: u8) -> Said {
        let Some(code) = self.code(place) else {
            return Said::Word(SlotWord::default());
        };
        if self.wide {
            let word = SlotWord::from_raw(word_at(code, 0));
            return match half_at(code, 8) {
                NONE => Said::Word(word),
                kid => Said::Kid(kid, Some(word)),
            };
        }
        let code = narrow(code).unwrap_or_default();
        let low = |bits: u32| code & ((1 << bits) - 1);
        let node = |bits: u32| code >> bits & 0xff;
        let word = match code >> TAG_SHIFT {
            KID => return Said::Kid(code as u32, None),
            LEAF => SlotWord::leaf(
                partial,
                pointer(node(LEAF_LINE_BITS), low(LEAF_LINE_BITS)),
                leaf_lines,
            ),
            NODE => {
                let node_type = (code >> NODE_TYPE_SHIFT & 7) as u8;
                SlotWord::inner(
                    partial,
                    pointer(node(NODE_LINE_BITS), low(NODE_LINE_BITS)),
                    node_type,
                )
            }
            _ => Some(SlotWord::removed(partial, self.image.incarnation())),
        };
        Said::Word(word.unwrap_or_default())
    }
}

/// Returns a code of [`NARROW`] bytes.
#[inline]
fn narrow(code: &[u8]) -> Option<u64> {
    let &[a, b, c, d, high] = code.first_chunk::<NARROW>()?;
    Some(u64::from(u32::from_le_bytes([a, b, c, d])) | u64::from(high) << 32)
}

/// The part of a slot's content that a walk needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Below {
    /// An image.
    Kid(u32),
    /// A leaf, as a packed remote pointer.
    Leaf(u64),
    /// A node without an image, or no child.
    Other,
}

/// A word whose bytes are all 1.
const ONES: u64 = 0x0101_0101_0101_0101;

/// Returns the position of `partial` among eight bytes.
#[inline]
fn among(eight: [u8; 8], partial: u8) -> Option<usize> {
    // Bytes that equal `partial` are zero in `differs`. The lowest bit that is set in `zero` belongs to the first of
    // them.
    let differs = u64::from_le_bytes(eight) ^ (ONES * u64::from(partial));
    let zero = differs.wrapping_sub(ONES) & !differs & (ONES << 7);
    (zero != 0).then(|| zero.trailing_zeros() as usize / 8)
}

/// Returns the position of `partial` among the key bytes of an image's slots, or the position where it would
/// be inserted.
#[inline]
fn position(bytes: &[u8], partial: u8, direct: bool) -> Result<usize, usize> {
    if direct {
        // If all key bytes up to this one are present, no search is needed.
        if bytes.get(usize::from(partial)) == Some(&partial) {
            return Ok(usize::from(partial));
        }
        // Some are absent. The search starts near the position that a uniform distribution would give.
        let from = (usize::from(partial) * bytes.len() / 256).saturating_sub(4);
        let near = bytes.get(from..).and_then(|rest| rest.first_chunk::<8>());
        return match near.and_then(|eight| among(*eight, partial)) {
            Some(place) => Ok(from + place),
            None => bytes.binary_search(&partial),
        };
    }
    let (eights, rest) = bytes.as_chunks::<8>();
    for (i, eight) in eights.iter().enumerate() {
        if let Some(place) = among(*eight, partial) {
            return Ok(8 * i + place);
        }
    }
    let found = rest.iter().position(|b| *b == partial);
    found.map(|i| 8 * eights.len() + i).ok_or(bytes.len())
}

impl<'a> View<'a> {
    /// Returns the image's slots.
    #[inline]
    pub(super) fn slots(self) -> Slots<'a> {
        let none = Slots {
            image: self,
            key_bytes: &[],
            codes: &[],
            wide: false,
            direct: false,
        };
        let Some(head) = self.0.first_chunk::<HEAD>() else {
            return none;
        };
        // The flags of the first word, in its last byte.
        let flag = |flag: u64| head[7] & (flag >> TYPE_SHIFT) as u8 != 0;
        let len = usize::from(head[16]) + if flag(HAS_256) { 256 } else { 0 };
        let partial = usize::from(head[18] & !IS_DIRECT);
        let at = HEAD + if flag(IS_FIRST) { 0 } else { 4 } + partial;
        let Some((key_bytes, rest)) = self.0.get(at..).and_then(|rest| rest.split_at_checked(len)) else {
            return none;
        };
        Slots {
            image: self,
            key_bytes,
            codes: rest.get(usize::from(head[17])..).unwrap_or(&[]),
            wide: flag(IS_WIDE),
            direct: head[18] & IS_DIRECT != 0,
        }
    }

    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    #[inline]
    fn first(&self) -> u64 {
        word_at(self.0, 0)
    }

    /// Returns the address as a packed remote pointer.
    #[inline]
    pub(super) fn at(&self) -> u64 {
        let raw = self.first() & ((1 << 48) - 1);
        pointer(raw >> 40, raw & ((1 << 40) - 1))
    }
    #[inline]
    pub(super) fn branch(&self) -> u8 {
        self.0[6]
    }
    #[inline]
    pub(super) fn node_type(&self) -> u8 {
        self.0[7] & TYPE_MASK as u8
    }
    #[inline]
    pub(super) fn parent(&self) -> u32 {
        half_at(self.0, 12)
    }
    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.0[16]) + if self.first() & HAS_256 != 0 { 256 } else { 0 }
    }
    #[inline]
    fn capacity(&self) -> usize {
        self.len() + usize::from(self.0[17])
    }
    #[inline]
    fn partial_len(&self) -> usize {
        usize::from(self.0[18] & !IS_DIRECT)
    }
    #[inline]
    pub(super) fn is_direct(&self) -> bool {
        self.0[18] & IS_DIRECT != 0
    }
    /// Returns the number of slots that have a child.
    #[inline]
    pub(super) fn children(&self) -> usize {
        self.len() - usize::from(self.0[19])
    }
    #[inline]
    fn is_wide(&self) -> bool {
        self.first() & IS_WIDE != 0
    }
    #[inline]
    fn width(&self) -> usize {
        if self.is_wide() { WIDE } else { NARROW }
    }
    #[inline]
    fn partial_at(&self) -> usize {
        HEAD + if self.first() & IS_FIRST != 0 { 0 } else { 4 }
    }
    #[inline]
    pub(super) fn incarnation(&self) -> u32 {
        match self.first() & IS_FIRST != 0 {
            true => FIRST,
            false => half_at(self.0, HEAD),
        }
    }
    /// Returns the key bytes in front of the branch that the image stores.
    #[inline]
    pub(super) fn partial(&self) -> &'a [u8] {
        &self.0[self.partial_at()..][..self.partial_len()]
    }
    #[inline]
    fn bytes_at(&self) -> usize {
        self.partial_at() + self.partial_len()
    }
    #[inline]
    fn code_at(&self, place: usize) -> usize {
        self.bytes_at() + self.capacity() + place * self.width()
    }
    fn size(&self) -> usize {
        self.code_at(self.capacity()).next_multiple_of(GRANULE)
    }
    /// Returns the key bytes of the slots: in their order, or ascending in a direct node.
    #[inline]
    pub(super) fn key_bytes(&self) -> &'a [u8] {
        &self.0[self.bytes_at()..][..self.len()]
    }

    /// Returns the place at which the slot of key byte `partial` is stored, or as an error the place at which it would
    /// be inserted.
    #[inline]
    pub(super) fn place(&self, partial: u8) -> Result<usize, usize> {
        position(self.key_bytes(), partial, self.is_direct())
    }

    /// Returns whether [`View::copy_with`] can make room for one more slot.
    pub(super) fn can_grow(&self) -> bool {
        !self.is_wide() && self.len() < 255
    }

    /// Appends the bytes of the same image to `out`, with room for `spare` more slots, but for at most 255 in all. The
    /// image must not be wide.
    pub(super) fn copy_with(&self, spare: usize, out: &mut Vec<u8>) {
        let (len, bytes) = (self.len(), self.bytes_at());
        let spare = spare.min(255 - len.min(255));
        let capacity = len + spare;
        let end = bytes + capacity * (1 + NARROW);
        out.reserve_exact(end.next_multiple_of(GRANULE));
        out.extend_from_slice(&self.0[..bytes + len]);
        out.resize(bytes + capacity, 0);
        out.extend_from_slice(&self.0[self.code_at(0)..self.code_at(len)]);
        out.resize(end.next_multiple_of(GRANULE), 0);
        out[17] = spare as u8;
    }

    /// Returns the images that are linked in the slots of this image.
    pub(super) fn kids(self) -> impl Iterator<Item = u32> + 'a {
        let slots = self.slots();
        (0..slots.key_bytes.len()).filter_map(move |place| match slots.below(place) {
            Below::Kid(kid) => Some(kid),
            Below::Leaf(_) | Below::Other => None,
        })
    }

    /// Returns the place of the slot in which `kid` is linked.
    pub(super) fn place_of(self, kid: u32) -> Option<usize> {
        let slots = self.slots();
        let len = slots.key_bytes.len();
        if slots.wide {
            return (0..len).find(|&place| slots.below(place) == Below::Kid(kid));
        }
        let [a, b, c, d, e, ..] = (KID << TAG_SHIFT | u64::from(kid)).to_le_bytes();
        let (codes, _) = slots.codes.as_chunks::<NARROW>();
        codes.iter().take(len).position(|code| *code == [a, b, c, d, e])
    }
}

/// Changes a packed image in place, as far as its slots' codes and its room allow.
pub(super) struct Edit<'a>(pub(super) &'a mut [u8]);

impl Edit<'_> {
    fn view(&self) -> View<'_> {
        View(self.0)
    }

    pub(super) fn set_parent(&mut self, parent: u32) {
        self.0[12..16].copy_from_slice(&parent.to_le_bytes());
    }

    fn write_code(&mut self, place: usize, code: u64) {
        let at = self.view().code_at(place);
        self.0[at..at + NARROW].copy_from_slice(&code.to_le_bytes()[..NARROW]);
    }

    /// Links `kid` into a slot that has a child.
    pub(super) fn hang(&mut self, place: usize, kid: u32) {
        if self.view().is_wide() {
            let at = self.view().code_at(place) + 8;
            self.0[at..at + 4].copy_from_slice(&kid.to_le_bytes());
        } else {
            self.write_code(place, KID << TAG_SHIFT | u64::from(kid));
        }
    }

    /// Stores `word`, without an image, in the slot at `place`. Returns `false` if the image must be packed
    /// in another form for this. `had` tells whether the slot had a child.
    pub(super) fn set(&mut self, place: usize, word: SlotWord, had: bool, leaf_lines: u8) -> bool {
        let view = self.view();
        if view.is_wide() {
            let at = view.code_at(place);
            self.0[at..at + 8].copy_from_slice(&word.raw().to_le_bytes());
            self.0[at + 8..at + WIDE].copy_from_slice(&NONE.to_le_bytes());
        } else {
            let Some(code) = code_of(word, view.incarnation(), leaf_lines) else {
                return false;
            };
            self.write_code(place, code);
        }
        match (had, word.has_child()) {
            // The count of removed children has one byte. So if all 256 children of a direct node are removed, one
            // still counts as present until the node is read again.
            (true, false) => self.0[19] = self.0[19].saturating_add(1),
            (false, true) => self.0[19] = self.0[19].saturating_sub(1),
            _ => {}
        }
        true
    }

    /// Inserts a slot with a child at `place`. Returns `false` if the word has no child, if there is no room, or if the
    /// image must be packed in another form.
    pub(super) fn insert(&mut self, place: usize, word: SlotWord, leaf_lines: u8) -> bool {
        let view = self.view();
        let (len, spare) = (view.len(), self.0[17]);
        if spare == 0 || len >= 255 || view.is_wide() || !word.has_child() {
            return false;
        }
        let Some(code) = code_of(word, view.incarnation(), leaf_lines) else {
            return false;
        };
        let bytes = view.bytes_at();
        let (from, to) = (view.code_at(place), view.code_at(len));
        self.0.copy_within(from..to, from + NARROW);
        self.0.copy_within(bytes + place..bytes + len, bytes + place + 1);
        self.0[bytes + place] = word.partial();
        // The capacity stays the same: there is one more slot, and one less spare slot.
        self.0[16] += 1;
        self.0[17] -= 1;
        self.write_code(place, code);
        true
    }
}

/// Packs `entry` under its number, with room for `spare` more slots, into `out` (which is cleared first).
pub(super) fn pack(entry: &Entry, number: u32, spare: usize, leaf_lines: u8, out: &mut Vec<u8>) {
    let len = entry.words.len();
    let spare = spare.min(256 - len.min(256)).min(255);
    let code = |(word, kid): (SlotWord, u32)| match kid {
        NONE => code_of(word, entry.incarnation, leaf_lines),
        kid => Some(KID << TAG_SHIFT | u64::from(kid)),
    };
    let (node, lines) = lines_of(entry.at);
    let mut first =
        node << 40 | lines | u64::from(entry.branch) << 48 | u64::from(entry.node_type) << TYPE_SHIFT;
    for (flag, on) in [(IS_FIRST, entry.incarnation == FIRST), (HAS_256, len == 256)] {
        first |= if on { flag } else { 0 };
    }
    let gone = len - entry.children();
    let direct = if entry.direct { IS_DIRECT } else { 0 };
    out.clear();
    out.extend_from_slice(&first.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&entry.parent.to_le_bytes());
    out.extend_from_slice(&[
        len as u8,
        spare as u8,
        entry.partial().len() as u8 | direct,
        gone.min(255) as u8,
    ]);
    if entry.incarnation != FIRST {
        out.extend_from_slice(&entry.incarnation.to_le_bytes());
    }
    out.extend_from_slice(entry.partial());
    out.extend(entry.words.iter().map(|w| w.partial()));
    out.resize(out.len() + spare, 0);
    let codes_at = out.len();
    let narrow = entry.slots().all(|slot| {
        let code = code(slot);
        out.extend_from_slice(&code.unwrap_or(0).to_le_bytes()[..NARROW]);
        code.is_some()
    });
    if !narrow {
        // Some word has no code, so all slots are wide.
        out.truncate(codes_at);
        out[..8].copy_from_slice(&(first | IS_WIDE).to_le_bytes());
        for (word, kid) in entry.slots() {
            out.extend_from_slice(&word.raw().to_le_bytes());
            out.extend_from_slice(&kid.to_le_bytes());
        }
    }
    let width = if narrow { NARROW } else { WIDE };
    out.resize((out.len() + spare * width).next_multiple_of(GRANULE), 0);
}

#[cfg(test)]
mod tests {
    use super::super::entry::About;
    use super::*;
    use dm_layout::NodeTypes;
    use dm_verbs::{NodeId, RemotePtr};

    fn at(node: u16, line: u64) -> u64 {
        RemotePtr::new(NodeId(node), line * 64).map_or(0, RemotePtr::raw)
    }

    fn entry(incarnation: u32, node_type: u8, words: &[SlotWord]) -> Entry {
        let about = About {
            at: at(3, 77),
            incarnation,
            node_type,
            branch: 5,
            partial: b"abc",
            parent: 9,
        };
        let mut entry = Entry::new(&NodeTypes::SHIPPED, &about);
        assert!(entry.refill(words.iter().copied()).is_empty());
        entry
    }

    /// Near and far words of every kind are unchanged after packing and unpacking, narrow or wide.
    #[test]
    fn packing_loses_nothing() {
        let leaf = |p, line, lines| SlotWord::leaf(p, at(200, line), lines).unwrap();
        let inner = |p, line, kind| SlotWord::inner(p, at(255, line), kind).unwrap();
        let narrow = [
            leaf(b'x', (1 << 30) - 1, 2),
            inner(b'y', (1 << 27) - 1, 3),
            SlotWord::removed(b'z', 7),
        ];
        let far = [leaf(b'x', 1 << 30, 2), inner(b'y', 1, 3)];
        let other = [leaf(b'x', 5, 3), leaf(b'q', 6, 2)];
        let of_another_life = [SlotWord::removed(b'z', 6), leaf(b'q', 6, 2)];
        for (words, wide) in [
            (&narrow[..], false),
            (&far, true),
            (&other, true),
            (&of_another_life, true),
        ] {
            for spare in [0, 3] {
                let mut e = entry(7, 2, words);
                e.hang(b'y', 42);
                let mut bytes = Vec::new();
                pack(&e, 11, spare, 2, &mut bytes);
                let view = View::new(&bytes);
                assert_eq!((view.is_wide(), outline(&bytes)), (wide, (bytes.len(), 11)));
                assert_eq!(
                    (view.at(), view.branch(), view.node_type(), view.parent()),
                    (at(3, 77), 5, 2, 9)
                );
                assert_eq!(
                    (view.incarnation(), view.partial(), view.len()),
                    (7, &b"abc"[..], words.len())
                );
                assert_eq!(view.children(), words.iter().filter(|w| w.has_child()).count());
                for word in words {
                    let place = view.place(word.partial()).unwrap();
                    match view.slots().said(place, word.partial(), 2) {
                        Said::Word(said) => assert_eq!(said, *word),
                        Said::Kid(kid, _) => assert_eq!((kid, word.partial()), (42, b'y')),
                    }
                }
                assert_eq!(view.place(b'!'), Err(words.len()));
            }
        }
    }

    #[test]
    fn slots_come_and_change_in_place() {
        let leaf = |p, line| SlotWord::leaf(p, at(1, line), 1).unwrap();
        let e = entry(1, 3, &[leaf(10, 1), leaf(20, 2)]);
        let mut bytes = Vec::new();
        pack(&e, 0, 2, 1, &mut bytes);
        let size = bytes.len();
        let mut edit = Edit(&mut bytes);
        assert!(edit.insert(1, leaf(15, 3), 1) && edit.insert(0, leaf(5, 4), 1));
        assert!(!edit.insert(4, leaf(30, 5), 1), "no room");
        assert!(edit.set(1, SlotWord::removed(10, 1), true, 1));
        edit.hang(2, 6);
        assert!(
            !edit.set(3, SlotWord::leaf(20, at(1, 2), 2).unwrap(), true, 1),
            "another size"
        );
        let view = View::new(&bytes);
        assert_eq!(
            (view.key_bytes(), view.children(), bytes_of(&bytes)),
            (&[5, 10, 15, 20][..], 3, size)
        );
        let said: Vec<Said> = (0..4)
            .map(|i| view.slots().said(i, view.key_bytes()[i], 1))
            .collect();
        assert_eq!(
            said,
            [
                Said::Word(leaf(5, 4)),
                Said::Word(SlotWord::removed(10, 1)),
                Said::Kid(6, None),
                Said::Word(leaf(20, 2))
            ]
        );
        assert_eq!(
            (view.place_of(6), view.kids().collect::<Vec<_>>()),
            (Some(2), vec![6])
        );
    }

    /// A full direct node has 256 slots, one for each value of a byte.
    #[test]
    fn all_key_bytes_fit() {
        let words: Vec<SlotWord> = (0..=255)
            .map(|p| SlotWord::leaf(p, at(0, 9), 1).unwrap())
            .collect();
        let mut bytes = Vec::new();
        pack(&entry(1, 3, &words), 0, 0, 1, &mut bytes);
        let view = View::new(&bytes);
        assert_eq!(
            (view.len(), view.children(), view.place(255)),
            (256, 256, Ok(255))
        );
        assert!(bytes.len() <= 256 * 6 + 24, "{}", bytes.len());
    }
}
