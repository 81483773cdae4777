//! Locks: what the clients of one compute node share, and how one of them takes a lock.

use dm_sync::{Fingerprint, fingerprint_of};
use dm_verbs::{Capability, ClientId, Place, RemotePtr, Verbs};

use crate::acquire::ReadTo;
use crate::cell::{Cell, Kind, Plan, Plans};
use crate::guard::Guard;
use crate::hints::Hints;
use crate::local::{Handed, LocalLockTable};
use crate::packed::{PackedTickets, PackedTurn};
use crate::study::LockFlaws;
use crate::{CLIENTS_MAX, GlobalLockTable, Local, LockError, LockId, LockOptions, ReleaseBy};

/// Hierarchical on-chip locks (Sherman §4.3): the global table, and the local table of this compute node. One per
/// compute node and pool, shared by its clients; all clients of a pool need equal tables and, for flaws that change
/// the words, equal flaws.
#[derive(Debug)]
pub struct Locks {
    pub(crate) options: LockOptions,
    table: GlobalLockTable,
    local: LocalTable,
    plans: Plans,
    pub(crate) hints: Hints,
}

#[derive(Debug)]
pub(crate) enum LocalTable {
    Off,
    Spin(LocalLockTable),
    Queue(LocalLockTable),
    Packed(PackedTickets),
}

/// Which kind of local turn a holder has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seat {
    None,
    Turn,
    Packed,
}

/// What is known of a lock before it is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) cell: Cell,
    pub(crate) plan: Plan,
}

impl Locks {
    /// With these options over these tables.
    ///
    /// # Panics
    /// When locks are to be shared that four to a word are, or that FAA releases: neither leaves a count in the word alone.
    pub fn new(options: LockOptions, table: GlobalLockTable) -> Self {
        //= docs/protocol/lock.md L15
        assert!(
            !options.shared || (!options.flaws().lanes16 && options.release != ReleaseBy::Faa),
            "locks that are shared have a word each, and no FAA releases them"
        );
        let locks = table.words() * options.lanes() as usize;
        let LockFlaws {
            packed_tickets,
            narrow_tickets,
            ..
        } = options.flaws();
        let local = match (packed_tickets, narrow_tickets, options.local) {
            (Some(width), ..) => LocalTable::Packed(PackedTickets::new(width, true)),
            (_, Some(width), _) => LocalTable::Packed(PackedTickets::new(width, false)),
            (.., Local::Off) => LocalTable::Off,
            (.., Local::Spin) => LocalTable::Spin(LocalLockTable::for_locks(0, locks)),
            (.., Local::Queue { handover_max }) => {
                LocalTable::Queue(LocalLockTable::for_locks(handover_max, locks))
            }
        };
        Self {
            options,
            plans: Plans::new(table.memory_nodes()),
            table,
            local,
            hints: Hints::default(),
        }
    }

    #[inline]
    pub(crate) fn local(&self) -> &LocalTable {
        &self.local
    }

    /// The options.
    pub fn options(&self) -> &LockOptions {
        &self.options
    }

    /// The global table.
    pub fn table(&self) -> &GlobalLockTable {
        &self.table
    }

    /// The lock of the node at `address`; equal for nodes that share one.
    ///
    /// # Errors
    /// [`LockError::NoLockTable`].
    #[inline(always)]
    pub fn lock_of(&self, address: RemotePtr) -> Result<LockId, LockError> {
        let missing = LockError::NoLockTable { node: address.node() };
        self.table.id(address, self.options.lanes()).ok_or(missing)
    }

    /// Where the word lies that holds the lock of the node at `address`.
    ///
    /// # Errors
    /// [`LockError::NoLockTable`].
    pub fn word_at(&self, address: RemotePtr) -> Result<Place, LockError> {
        Ok(self.cell(self.lock_of(address)?).place)
    }

    /// Bytes of this compute node's memory that locking takes, spare capacity included.
    pub fn local_bytes(&self) -> usize {
        size_of::<Self>()
            + self.hints.bytes()
            + match &self.local {
                LocalTable::Spin(table) | LocalTable::Queue(table) => table.bytes(),
                LocalTable::Off | LocalTable::Packed(_) => 0,
            }
    }

    /// Takes the lock of `node`.
    ///
    /// Round trips: 1 if it is free, 0 if it is handed over. Two more at most per lost race where masked atomics are
    /// missing.
    ///
    /// # Errors
    /// [`LockError`]; then the lock is not held, but for an unreachable lock whose CAS had an unknown effect.
    pub async fn lock<'a, V: Verbs>(&'a self, v: &'a V, node: RemotePtr) -> Result<Guard<'a, V>, LockError> {
        let id = self.lock_of(node)?;
        let (guard, _) = self.take(v, id, None).await?;
        Ok(guard)
    }

    /// Takes the lock of `node` and READs `len` bytes at `read_at` (same memory node) under it.
    ///
    /// One chain and one round trip where the world serves a READ after the CAS before it, and the options say so;
    /// else the READ follows the lock. One round trip, the READ alone, if the lock is handed over.
    ///
    /// # Errors
    /// [`LockError`]; then the lock is not held, as with [`Locks::lock`].
    ///
    /// # Panics
    /// When `read_at` is on another memory node than `node`.
    pub async fn lock_and_read<'a, V: Verbs>(
        &'a self,
        v: &'a V,
        node: RemotePtr,
        read_at: RemotePtr,
        len: u32,
    ) -> Result<(Guard<'a, V>, V::Lease), LockError> {
        assert_eq!(
            node.node(),
            read_at.node(),
            "a lock lies on the memory node of what it guards"
        );
        let id = self.lock_of(node)?;
        let read = ReadTo { at: read_at, len };
        let (guard, lease) = self.take(v, id, Some(read)).await?;
        Ok((guard, lease.expect("an acquisition with a READ gives bytes")))
    }

    #[inline(always)]
    pub(crate) fn target<V: Verbs>(&self, v: &V, id: LockId) -> Result<Target, LockError> {
        if !self.table.covers(id.node) {
            return Err(LockError::NoLockTable { node: id.node });
        }
        let client = v.client();
        if client.0 >= CLIENTS_MAX {
            return Err(LockError::ClientTooLarge { client });
        }
        let cell = self.cell(id);
        Ok(Target {
            cell,
            plan: self.plans.of(v, &self.options, cell.place)?,
        })
    }

    #[inline(always)]
    pub(crate) fn cell(&self, id: LockId) -> Cell {
        let lanes = self.options.lanes();
        let place = self.table.word_at(LockId {
            index: id.index / lanes,
            ..id
        });
        let kind = match lanes {
            1 if self.options.shared => Kind::Shared,
            1 => Kind::Word,
            _ => Kind::Lane {
                shift: 16 * (id.index % lanes),
            },
        };
        Cell { place, kind }
    }

    /// Whether the next in the local queue may be handed the lock. May be out of date at once.
    #[inline]
    pub(crate) fn can_hand_over(&self, id: LockId) -> bool {
        match &self.local {
            LocalTable::Spin(table) | LocalTable::Queue(table) => table.can_hand_over(id),
            LocalTable::Off | LocalTable::Packed(_) => false,
        }
    }

    /// Gives the turn and the lock to the longest waiting client; `false`, and nothing done, if there is none, or the
    /// bound is reached.
    pub(crate) fn hand_over(&self, id: LockId, handed: Handed) -> bool {
        match &self.local {
            LocalTable::Spin(table) | LocalTable::Queue(table) => match table.turn(id).hand_over(handed) {
                Ok(()) => true,
                Err(turn) => {
                    turn.keep();
                    false
                }
            },
            LocalTable::Off | LocalTable::Packed(_) => false,
        }
    }

    /// The word that the next client must see gone before it posts a CAS, if `client` leaves a lock behind unawaited.
    pub(crate) fn unsettled(&self, cell: Cell, raw: u64, client: ClientId) -> Option<u64> {
        //= docs/protocol/lock.md L9
        // Under its own name the order of its own queue pair is enough.
        let anothers = cell.word(raw).owner != client.0;
        (anothers && !self.options.flaws().unsettled_unsaid).then_some(raw)
    }

    /// Passes on the local turn of a holder, with the word that is unsettled.
    #[inline]
    pub(crate) fn leave(&self, id: LockId, seat: Seat, unsettled: Option<u64>) {
        match (&self.local, seat) {
            (LocalTable::Spin(table) | LocalTable::Queue(table), Seat::Turn) => {
                table.pass(id, unsettled);
            }
            (LocalTable::Packed(table), Seat::Packed) => drop(PackedTurn::new(table, id)),
            _ => {}
        }
    }

    /// What these options need that `caps` do not promise and that has no fallback.
    ///
    /// # Errors
    /// As [`LockOptions::check`].
    pub fn check(&self, caps: &dm_verbs::Caps) -> Result<(), LockError> {
        Ok(self.options.check(caps)?)
    }

    /// What these options need to the letter, as [`LockOptions::needs`].
    pub fn needs(&self) -> Vec<Capability> {
        self.options.needs()
    }
}

impl Fingerprint for Locks {
    fn fingerprint(&self) -> u64 {
        let local = match &self.local {
            LocalTable::Off => 0,
            LocalTable::Spin(table) | LocalTable::Queue(table) => table.fingerprint(),
            LocalTable::Packed(table) => table.fingerprint(),
        };
        match self.hints.fingerprint() {
            0 => local,
            hints => fingerprint_of(&(local, hints)),
        }
    }
}
