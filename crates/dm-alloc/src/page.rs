//! The bytes of the superblock page.
//!
//! ```text
//!    0  state     word: empty · creating, by whom · ready             a line of its own, changed by CAS only
//!   64  head      magic 8 · version 4 · kind 4 · locks per node 4 · memory nodes 2 · zero 2 · checksum 8 · members 8 · zero 24
//!  128  descriptor 64 opaque bytes of the index
//!  192  root      word: the index's root pointer                      a line of its own, changed by CAS only
//!  256  tables    a word per memory node: space 1 (host, chip) above a 48-bit offset
//! ```
//! The field `members` holds the number of slots in its upper 16 bits, and the offset of their area on memory node 0 in
//! its lower 48 bits; 0 means that there is no area. All numbers are little-endian. The checksum covers the head
//! without the checksum itself, the descriptor and the tables.

use core::hash::Hasher;

use dm_sync::FingerprintHasher;
use dm_verbs::{ChipPtr, NodeId, Place, RESERVED_BYTES, RemotePtr, Space};

use crate::{AllocError, MemberArea, Superblock};

pub(crate) const STATE_AT: u64 = 0;
pub(crate) const HEAD_AT: u64 = 64;
pub(crate) const ROOT_AT: u64 = 192;
const DESCRIPTOR_AT: usize = 128;
const TABLES_AT: usize = 256;
const CHECKSUM_AT: usize = HEAD_AT as usize + 24;
const MEMBERS_AT: usize = HEAD_AT as usize + 32;

/// Maximum number of memory nodes in a superblock.
pub const MEMORY_NODES_MAX: u16 = ((RESERVED_BYTES as usize - TABLES_AT) / 8) as u16;
/// Version of the formats that this code reads and writes: those of the superblock, the area of the members, the
/// records of chunks, the depots and the lists of a census.
pub const FORMAT_VERSION: u32 = 5;

pub(crate) const PAGE_BYTES: usize = RESERVED_BYTES as usize;
const MAGIC: u64 = u64::from_le_bytes(*b"dmkit/sb");
const SPACE_HOST: u8 = 1;
const SPACE_CHIP: u8 = 2;

/// The state word, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Empty,
    Creating { creator: u16 },
    Ready,
    Foreign(u64),
}

const CREATING_TAG: u64 = u64::from_le_bytes(*b"\0\0dmk-cr");
const READY_WORD: u64 = u64::from_le_bytes(*b"\0\0dmk-ok");

impl State {
    pub(crate) const fn pack(self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Creating { creator } => CREATING_TAG | creator as u64,
            Self::Ready => READY_WORD,
            Self::Foreign(word) => word,
        }
    }

    pub(crate) const fn unpack(word: u64) -> Self {
        match word {
            0 => Self::Empty,
            READY_WORD => Self::Ready,
            _ if word & !0xFFFF == CREATING_TAG => Self::Creating { creator: word as u16 },
            _ => Self::Foreign(word),
        }
    }
}

/// Returns the address of a place in the superblock page.
pub(crate) const fn at(offset: u64) -> RemotePtr {
    // On node 0, the offset is the whole pointer.
    RemotePtr::from_raw(offset)
}

fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
    page[at..at + bytes.len()].copy_from_slice(bytes);
}

fn get<const N: usize>(page: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&page[at..at + N]);
    bytes
}

fn checksum(page: &[u8], nodes: usize) -> u64 {
    let mut hasher = FingerprintHasher::new();
    hasher.write(&page[HEAD_AT as usize..CHECKSUM_AT]);
    hasher.write(&page[CHECKSUM_AT + 8..ROOT_AT as usize]);
    hasher.write(&page[TABLES_AT..TABLES_AT + 8 * nodes]);
    hasher.finish()
}

fn table_word(table: Place) -> u64 {
    let space = match table.space() {
        Space::Host => SPACE_HOST,
        Space::Chip => SPACE_CHIP,
    };
    u64::from(space) << 56 | table.offset()
}

fn table_place(node: u16, word: u64) -> Option<Place> {
    let (space, offset) = ((word >> 56) as u8, word & !(0xFF << 56));
    let place: Place = match space {
        SPACE_HOST => RemotePtr::new(NodeId(node), offset)?.into(),
        SPACE_CHIP => ChipPtr::new(NodeId(node), offset)?.into(),
        _ => return None,
    };
    offset.is_multiple_of(8).then_some(place)
}

/// Returns the page as its creator writes it, with state word and root zero.
pub(crate) fn encode(sb: &Superblock) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    let head = HEAD_AT as usize;
    put(&mut page, head, &MAGIC.to_le_bytes());
    put(&mut page, head + 8, &FORMAT_VERSION.to_le_bytes());
    put(&mut page, head + 12, &sb.kind.to_le_bytes());
    put(&mut page, head + 16, &sb.locks_per_node.to_le_bytes());
    put(&mut page, head + 20, &sb.memory_nodes().to_le_bytes());
    let members = sb.members.map_or(0, |m| u64::from(m.slots) << 48 | m.at.offset());
    put(&mut page, MEMBERS_AT, &members.to_le_bytes());
    put(&mut page, DESCRIPTOR_AT, &sb.descriptor);
    for (i, &table) in sb.lock_tables.iter().enumerate() {
        put(&mut page, TABLES_AT + 8 * i, &table_word(table).to_le_bytes());
    }
    let sum = checksum(&page, sb.lock_tables.len());
    put(&mut page, CHECKSUM_AT, &sum.to_le_bytes());
    page
}

/// Decodes the page. Returns an error, never a panic, for any bytes.
pub(crate) fn decode(page: &[u8]) -> Result<Superblock, AllocError> {
    let corrupt = |offset: usize, what| {
        Err(AllocError::Corrupt {
            at: at(offset as u64),
            what,
        })
    };
    if page.len() < PAGE_BYTES {
        return corrupt(0, "the page is cut short");
    }
    let head = HEAD_AT as usize;
    if u64::from_le_bytes(get(page, head)) != MAGIC {
        return corrupt(head, "no magic");
    }
    // The version is checked before the checksum, because other versions may compute the checksum
    // differently.
    let version = u32::from_le_bytes(get(page, head + 8));
    if version != FORMAT_VERSION {
        return Err(AllocError::OtherFormat {
            found: version,
            ours: FORMAT_VERSION,
        });
    }
    let nodes = u16::from_le_bytes(get(page, head + 20));
    if nodes == 0 || nodes > MEMORY_NODES_MAX {
        return corrupt(head + 20, "impossible number of memory nodes");
    }
    if u64::from_le_bytes(get(page, CHECKSUM_AT)) != checksum(page, usize::from(nodes)) {
        return corrupt(CHECKSUM_AT, "the checksum does not fit");
    }
    let locks_per_node = u32::from_le_bytes(get(page, head + 16));
    if locks_per_node == 0 {
        return corrupt(head + 16, "lock tables without words");
    }
    let mut lock_tables = Vec::with_capacity(usize::from(nodes));
    for node in 0..nodes {
        let word_at = TABLES_AT + 8 * usize::from(node);
        match table_place(node, u64::from_le_bytes(get(page, word_at))) {
            Some(place) => lock_tables.push(place),
            None => return corrupt(word_at, "impossible lock table place"),
        }
    }
    let members = u64::from_le_bytes(get(page, MEMBERS_AT));
    let members = (members != 0).then(|| MemberArea {
        at: at(members & ((1 << 48) - 1)),
        slots: (members >> 48) as u16,
    });
    Ok(Superblock {
        root_word: at(ROOT_AT),
        lock_tables: lock_tables.into(),
        locks_per_node,
        kind: u32::from_le_bytes(get(page, head + 12)),
        members,
        descriptor: get(page, DESCRIPTOR_AT),
        created: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Superblock {
        Superblock {
            root_word: at(ROOT_AT),
            lock_tables: [
                ChipPtr::new(NodeId(0), 0).unwrap().into(),
                RemotePtr::new(NodeId(1), 0x2000).unwrap().into(),
            ]
            .into(),
            locks_per_node: 32_768,
            kind: u32::from_le_bytes(*b"test"),
            members: Some(MemberArea {
                at: at(0x3000),
                slots: 5,
            }),
            descriptor: core::array::from_fn(|i| i as u8),
            created: false,
        }
    }

    #[test]
    fn the_page_is_as_pictured() {
        let page = encode(&sample());
        assert_eq!(&page[64..84], b"dmkit/sb\x05\0\0\0test\0\x80\0\0");
        assert_eq!(page[84..88], [2, 0, 0, 0]);
        assert_eq!(page[96..104], [0, 0x30, 0, 0, 0, 0, 5, 0]);
        assert_eq!(page[128..132], [0, 1, 2, 3]);
        assert_eq!(page[192..256], [0; 64], "the root word has a line of its own");
        assert_eq!(page[256..264], [0, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(page[264..272], [0, 0x20, 0, 0, 0, 0, 0, 1]);
        assert_eq!(decode(&page), Ok(sample()));
    }

    #[test]
    fn as_many_memory_nodes_as_fit_and_no_more() {
        let most = Superblock {
            lock_tables: (0..MEMORY_NODES_MAX)
                .map(|node| ChipPtr::new(NodeId(node), 0).unwrap().into())
                .collect(),
            ..sample()
        };
        let mut page = encode(&most);
        assert_eq!(decode(&page), Ok(most));
        for count in [0, MEMORY_NODES_MAX + 1] {
            put(&mut page, 84, &count.to_le_bytes());
            let named =
                matches!(decode(&page), Err(AllocError::Corrupt { at: place, .. }) if place == at(84));
            assert!(named, "{count} memory nodes");
        }
    }

    /// The checksum of these pages is right, so only the values can show that they are no superblocks.
    #[test]
    fn impossible_lock_tables_are_refused() {
        let corrupt_at = |sb: Superblock| match decode(&encode(&sb)) {
            Err(AllocError::Corrupt { at: place, .. }) => place.offset(),
            other => panic!("{other:?}"),
        };
        let no_words = Superblock {
            locks_per_node: 0,
            ..sample()
        };
        assert_eq!(corrupt_at(no_words), HEAD_AT + 16);
        let mut unaligned = sample();
        unaligned.lock_tables[1] = RemotePtr::new(NodeId(1), 0x2004).unwrap().into();
        assert_eq!(corrupt_at(unaligned), 264);
    }

    #[test]
    fn state_words_are_told_apart() {
        for state in [
            State::Empty,
            State::Creating { creator: 0 },
            State::Creating { creator: 77 },
            State::Ready,
        ] {
            assert_eq!(State::unpack(state.pack()), state);
        }
        assert_eq!(State::unpack(1), State::Foreign(1));
    }

    proptest! {
        #[test]
        fn every_damaged_byte_is_noticed(at in 64usize..272, flip in 1u8..) {
            let mut page = encode(&sample());
            page[at] ^= flip;
            let root = 192..256;
            prop_assert_eq!(decode(&page).is_ok(), root.contains(&at));
        }

        #[test]
        fn any_bytes_decode_to_something_or_an_error(page in proptest::collection::vec(any::<u8>(), 0..PAGE_BYTES + 8)) {
            let _ = decode(&page);
        }
    }
}
