//! The bytes of B-link nodes on disaggregated memory: consistency guards, fence keys, states, incarnations.
//!
//! A reader fetches a node with a one-sided READ while a writer may be WRITEing it. Only the bytes show the reader
//! whether it saw one state of the node or a mixture of two. This crate defines these bytes, and the rules for reading
//! and editing them. It consists of pure functions, without I/O, locks or unsafe code. It has five formats with one
//! trait ([`NodeFormat`]):
//!
//! | format | guard | a small write | for |
//! |---|---|---|---|
//! | [`Slotted`] | a version in every 64-byte line | one entry | use: leaves and inner nodes |
//! | [`Packed`] | a version in every 64-byte line | the line up to the entry's end | use: leaves of close keys |
//! | [`Bookend`] | versions at both ends of node and entry (Sherman, SIGMOD'22 §4.4) | one entry | study: unsound |
//! | [`Checksummed`] | one 64-bit checksum, entries sorted (FG, FG+) | the whole node | baseline |
//! | [`Hopscotch`] | a version in every entry and group (CHIME §4.1) | an entry; a hop: a few lines | use: partial READs |
//!
//! The crate also defines the bytes of a radix tree, whose words are changed one by one: inner nodes of 8-byte slots
//! ([`RadixNode`], [`SlotWord`]) and leaves of one entry ([`SingleLeaf`]).
//!
//! The picture shows a slotted node of 1 KiB with 8-byte keys and values, which has 47 entries.
//! (`docs/layout/` has every picture in full; the module `picture`, behind the feature `testing`, computes
//! them.)
//!
//! ```text
//! line 0    | version kind level state | incarnation | sibling | high fence | owner | entry entry .. |
//! line 1    | version | entry  entry  entry | low fence .... |
//! line 2-15 | version | entry  entry  entry | spare ........ |        entry = presence 1, key 8, value 8
//! ```
//!
//! # Rules for writers
//! There is one writer at a time, which holds the node's lock (the lock is not part of this crate). Only updates within
//! a line ([`NodeShape::updates_in_line`]) and of words ([`NodeShape::holds_words`]) may be concurrent. The writer
//! edits an *image*, a copy of the node's bytes that it has READ under this lock, and WRITEs the byte ranges that the
//! edits return. In formats with line versions, an entry that fits into a line is written in place without the line's
//! version. A larger entry takes whole lines, and each of these lines also has an *entry version*. An insert or update
//! of such an entry is one WRITE, which gives all its lines the same new entry version. A structural change (split,
//! merge, death) consists of a few WRITEs in a fixed order. Each of these WRITEs is a step of [`NodeFormat`].
//!
//! # Checks of readers
//! In a slotted, packed or hopscotch node, a reader accepts a *node cut*: every line on which the result depends has
//! the header's node version, or the neighbouring version that the header allows during a split or merge ([`LineLag`]).
//! This is enough for these reasons:
//!
//! * **I1** A line is never torn; the lines of one READ or WRITE may be served in any order.
//! * **I2** A key has one slot (in a packed node one line), and keeps it until the key is removed, or until a split, a
//!   merge or a hop moves the key. A split and a merge change the node version, and a hop from one line to another
//!   changes hop counts. So if only in-place writes happen during a READ, the READ shows for each key a state that this
//!   key had during the READ, whatever the order of the lines.
//! * **I3** A split first writes the complete right node, then the left header (version v+1, *behind*, new high fence
//!   key and sibling), then the left node's lines without the moved entries (v+1), then the left header again
//!   (*equal*). A reader rejects header v with a line of v+1, because moved entries are missing. It accepts header v+1
//!   *behind* with a line of v, because the moved entries of this line are not below the new high fence key, and its
//!   other entries did not move. It rejects header v+1 *equal* with a line of v.
//! * **I4** A merge first freezes the right node. Then it writes the left header (v, *ahead*), then the lines with the
//!   copied entries (v+1), then the left header again (v+1, *equal*, wider range). A reader rejects header v+1 with a
//!   line of v, because this line may lack copied entries. If the header got the wider range *without* a new version, a
//!   reader that read the lines early and the header late would miss keys.
//! * **I5** When a node is built and when it dies, every line gets a new version. So lines of two nodes that were
//!   built in the same memory are never accepted as one node. Only a header with a *behind* or *ahead* lag allows a
//!   neighbouring version, and the header of a new node has the lag *equal*, even if its state is *Splitting*.
//! * **I6** Versions wrap. A READ may be accepted although it is torn, if 2<sup>bits</sup> − 1 structural changes
//!   complete during this READ, or 2<sup>bits</sup> writes of one multi-line entry. Node versions have 8 bits in packed
//!   and slotted nodes, and 6 bits in hopscotch nodes. Entry versions have 16 bits in slotted nodes, and 8 bits in
//!   hopscotch nodes. The caller must limit the time of a READ.
//!
//! To prove that a key is absent, a reader checks all lines and the low fence key. If the key is present, it checks
//! only the header's line and the lines of the key's entry, and in a packed node also the low fence key. (In a
//! hopscotch node, the lines and marks of one neighbourhood are enough: [`Near`].)
//!
//! # Example
//! ```
//! use dm_layout::{FenceKeys, Key8, Lookup, NodeEdit, NodeInit, NodeRead, NodeShape, Place, Slotted};
//!
//! let format = Slotted::<Key8>::with_node_bytes(1024, 8)?;
//! let mut image = vec![0; format.node_bytes()];
//! format.build(&mut image, &NodeInit::live(0, FenceKeys::ALL), []);
//! let remote = &mut image.clone(); // the bytes on the memory node
//!
//! // A writer, under the lock:
//! let Place::Free(slot) = format.place(&image, &Key8(u64::MAX))? else { unreachable!("empty") };
//! let range = format.put(&mut image, slot, &Key8(u64::MAX), (&7_u64.to_le_bytes()).into());
//! assert_eq!(range.len(), 17); // presence, key, value: these bytes go over the wire
//! remote[range.clone()].copy_from_slice(&image[range]);
//!
//! // A reader, at any time:
//! match format.lookup(remote, &Key8(u64::MAX), 0)? {
//!     Lookup::Found { value, .. } => assert_eq!(value.as_u64(), 7),
//!     other => panic!("{other:?}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits
//! Keys have 8 to 32 bytes, and nodes at most 64 KiB. A packed node has only values that fit into a line with their
//! key. Memory whose atomic unit is smaller than a line needs [`Checksummed`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bookend;
mod checksum;
mod chunks;
mod cut;
mod error;
mod format;
mod fullness;
mod guard;
mod header;
mod hopscotch;
mod key;
mod leaf;
mod packed;
#[cfg(feature = "testing")]
pub mod picture;
mod radix;
mod single;
#[cfg(test)]
mod sizes;
mod slotted;
mod split;
#[cfg(feature = "testing")]
pub mod testing;
mod value;

pub use bookend::Bookend;
pub use checksum::Checksummed;
pub use error::{CheckFailure, Corrupt, GeometryError, Reason, TornPart};
pub use format::{
    Judged, Lookup, NodeEdit, NodeFormat, NodeRead, NodeShape, NodeSteps, NodeStructure, Part, Place, Slot,
    Stale, audit, find,
};
pub use fullness::Fullness;
pub use guard::{Bookends, Checksum, Guard, LineVersions, checksum_of};
pub use header::{FIRST_INCARNATION, FIRST_VERSION, Header, LineLag, NodeInit, NodeState};
#[cfg(feature = "study")]
pub use hopscotch::{EntryFlaws, NearFlaws};
pub use hopscotch::{HopGeometry, HopPlan, Hopscotch, Known, Near, Reach};
pub use key::{FenceKeys, KEY_BYTES_MAX, Key8, KeyBytes, KeyN};
pub use leaf::Leaf;
pub use packed::{Packed, PackedGeometry, Shape};
pub use radix::{
    DIRECT, Find, LEAF_LINES_MAX, NodeTypes, PARTIAL_MAX, RADIX_HEAD_BYTES, RADIX_INCARNATION_AT,
    RadixHeader, RadixNode, Slot as RadixSlot, SlotWord, build_radix_node,
};
pub use single::{SingleEntry, SingleLeaf};
pub use slotted::{SlotGeometry, Slotted};
pub use split::{SplitBias, SplitPlan, SplitRequest};
pub use value::ValueRef;

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;

/// Size of a line in bytes. Formats with versions need an RNIC that reads and writes a line atomically.
pub const LINE_BYTES: usize = 64;
/// Size in bytes of a line without its version.
pub const LINE_PAYLOAD: usize = LINE_BYTES - 1;
type Line = [u8; LINE_BYTES];

/// Checks the node size in bytes and the capacity of the main geometries at compile time.
const _: () = {
    const fn slotted<K: KeyBytes>(format: Result<Slotted<K>, GeometryError>) -> (usize, usize) {
        match format {
            Ok(format) => (format.geometry().node_bytes(), format.geometry().capacity()),
            Err(_) => panic!("a shipped geometry is sound"),
        }
    }
    const fn is(found: (usize, usize), node_bytes: usize, capacity: usize) -> bool {
        found.0 == node_bytes && found.1 == capacity
    }
    assert!(is(slotted(Slotted::<Key8>::with_node_bytes(1024, 8)), 1024, 47));
    assert!(is(
        slotted(Slotted::<KeyN<32>>::with_node_bytes(1024, 8)),
        1024,
        15
    ));
    assert!(is(slotted(Slotted::<Key8>::with_span(32, 8)), 704, 32));
    assert!(is(slotted(Slotted::<Key8>::with_span(64, 8)), 1408, 64));
    assert!(is(
        slotted(Slotted::<Key8>::marked_with_node_bytes(1024, 4)),
        1024,
        77
    ));
    assert!(is(
        slotted(Slotted::<Key8>::words_with_node_bytes(1024)),
        1024,
        47
    ));
    assert!(is(slotted(Slotted::<Key8>::words_with_span(3)), 128, 3));
    assert!(is(slotted(Slotted::<Key8>::tiny(8)), 128, 3));
    assert!(is(slotted(Slotted::<KeyN<32>>::tiny(8)), 256, 3));
    const fn packed<K: KeyBytes>(format: Result<Packed<K>, GeometryError>) -> (usize, usize) {
        match format {
            Ok(format) => (format.geometry().node_bytes(), format.geometry().capacity()),
            Err(_) => panic!("a shipped geometry is sound"),
        }
    }
    assert!(is(packed(Packed::<Key8>::with_node_bytes(1024, 8)), 1024, 90));
    assert!(is(packed(Packed::<KeyN<32>>::with_node_bytes(1024, 8)), 1024, 84));
};
