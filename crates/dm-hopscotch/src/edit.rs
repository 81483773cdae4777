//! The edit of one entry in a neighbourhood that was read under the lock.

use dm_index::{Applied, Write};
use dm_layout::{KeyBytes, Near, Reach, Slot};
use dm_lock::Guard;
use dm_verbs::{RemotePtr, Verbs};

use crate::Neighbourhoods;
use crate::read::{Span, stretch};
use crate::write::inserts;

/// Maximum size in bytes of an entry that lies in one line.
pub(crate) const ENTRY_MAX: usize = 64;

/// The effect of a write on an entry.
#[derive(Clone, Copy)]
pub(crate) struct Done {
    pub(crate) applied: Applied,
    pub(crate) slot: Slot,
    /// Whether the neighbourhood has no other entry. After a remove, this is `false` if leaves are not merged. After an
    /// insert, it is always `false`.
    pub(crate) lonely: bool,
}

/// The decision about a write, from a neighbourhood that was read under the lock.
pub(crate) enum Edit<'x> {
    /// There is nothing to write; this is the result.
    Nothing(Applied),
    /// Write these bytes at this offset of the node.
    Bytes(usize, &'x [u8], Done),
    /// The neighbourhood, in a node of this version, has no free slot for this value.
    Full(u8, &'x [u8]),
    /// The write cannot be decided from the neighbourhood alone.
    Unsure,
}

impl<K: KeyBytes> Neighbourhoods<K> {
    /// Returns the addresses and lengths of the READs under the lock. They cover the neighbourhood, or the whole node
    /// if entries span lines.
    #[inline]
    pub(crate) fn under_lock(&self, at: RemotePtr, reach: &Reach) -> (Span, Option<Span>) {
        match self.format.geometry().is_in_line() {
            true => {
                let second = reach.second.as_ref().map(|range| stretch(at, range));
                (stretch(at, &reach.first), second)
            }
            false => ((at, self.node_len()), None),
        }
    }

    /// Searches a neighbourhood that was read under the lock. If the lock is in doubt, the result is [`Near::Unsure`].
    #[inline]
    pub(crate) fn judged<'b, V: Verbs>(
        &self,
        guard: &Guard<'_, V>,
        reach: &Reach,
        parts: (&'b [u8], &'b [u8]),
        key: &K,
        write: Write<'_>,
    ) -> Near<'b> {
        //= docs/protocol/chime.md H5
        match guard.in_doubt() && !self.options.flaws().never_in_doubt {
            true => Near::Unsure,
            false => self.near(reach, parts, key, false, inserts(write)),
        }
    }

    /// Decides what `write` changes, where `near` is the result of the search for the key. The bytes of a new entry, or
    /// the first byte of a removed one, are written to `entry`.
    #[inline]
    pub(crate) fn edit<'x>(
        &self,
        near: Near<'_>,
        key: &K,
        write: Write<'x>,
        entry: &'x mut [u8; ENTRY_MAX],
    ) -> Edit<'x> {
        let found = match near {
            Near::Unsure | Near::Found { twice: true, .. } => return Edit::Unsure,
            Near::Found { value, .. } => Some(value),
            Near::Absent { .. } => None,
        };
        let Some(write) = write.meeting(found) else {
            return Edit::Nothing(Applied::Differs);
        };
        match (write, near) {
            (Write::Insert(_), Near::Found { .. }) => Edit::Nothing(Applied::Present),
            (Write::Insert(value) | Write::Upsert(value), Near::Absent { free, version }) => {
                let Some(slot) = free else {
                    return Edit::Full(version, value);
                };
                let len = self.format.encode_entry(version, key, value, entry);
                let done = Done {
                    applied: Applied::Inserted,
                    slot,
                    lonely: false,
                };
                Edit::Bytes(slot.offset(), &entry[..len], done)
            }
            (Write::Update(value) | Write::Upsert(value), Near::Found { slot, lonely, .. }) => {
                let done = Done {
                    applied: Applied::Replaced,
                    slot,
                    lonely,
                };
                Edit::Bytes(self.format.value_offset(slot), value, done)
            }
            (
                Write::Remove,
                Near::Found {
                    slot,
                    version,
                    lonely,
                    ..
                },
            ) => {
                entry[0] = dm_layout::Hopscotch::<K>::removed_byte(version);
                let done = Done {
                    applied: Applied::Removed,
                    slot,
                    lonely: lonely && self.options.merges,
                };
                Edit::Bytes(slot.offset(), &entry[..1], done)
            }
            (Write::Update(_) | Write::Remove, Near::Absent { .. }) => Edit::Nothing(Applied::Absent),
            (Write::Exchange { .. } | Write::Swap { .. }, _) => {
                unreachable!("`Write::meeting` has turned it into another write")
            }
            (_, Near::Unsure) => Edit::Unsure,
        }
    }
}
