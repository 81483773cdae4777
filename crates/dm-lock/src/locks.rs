//! The locks that the clients of one compute node share.

use dm_sync::roster::Roster;
use dm_sync::{Arc, Fingerprint, fingerprint_of};
use dm_verbs::{Capability, ClientId, Place, RemotePtr, Verbs};

use crate::acquire::ReadTo;
use crate::cell::{Cell, Kind, Plan, Plans};
use crate::guard::Guard;
use crate::hints::Hints;
use crate::local::{Handed, LocalLockTable};
use crate::packed::{PackedTickets, PackedTurn};
use crate::study::LockFlaws;
use crate::{CLIENTS_MAX, GlobalLockTable, Local, LockError, LockId, LockOptions, LockWord, ReleaseBy};

/// Hierarchical on-chip locks (Sherman §4.3): the global table, and the local table of this compute node. Each
/// compute node has one `Locks` per pool, which its clients share. All clients of a pool need the same tables, the same
/// value of [`LockOptions::shared`] and, for flaws that change the words, the same flaws.
#[derive(Debug)]
pub struct Locks {
    pub(crate) options: LockOptions,
    pub(crate) table: GlobalLockTable,
    local: LocalTable,
    plans: Plans,
    pub(crate) hints: Hints,
    pub(crate) roster: Arc<Roster>,
}

#[derive(Debug)]
pub(crate) enum LocalTable {
    Off,
    Spin(LocalLockTable),
    Queue(LocalLockTable),
    Packed(PackedTickets),
}

/// The kind of local turn that a holder has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seat {
    None,
    Turn,
    Packed,
}

/// The remote side of a lock, and its plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) cell: Cell,
    pub(crate) plan: Plan,
}

impl Locks {
    /// Makes locks with these options and this table.
    ///
    /// # Panics
    /// Panics if `options` request locks that can be shared together with 16-bit lanes or with release by FAA: both
    /// would change the count of sharers. Also panics if a flaw has tickets of 0 bits, or of more than 32, or if it has
    /// 16-bit lanes in nodes or in tables of 2^30 words or more.
    pub fn new(options: LockOptions, table: GlobalLockTable) -> Self {
        //= docs/protocol/lock.md L15
        assert!(
            !options.shared || (!options.flaws().lanes16 && options.release != ReleaseBy::Faa),
            "locks that are shared have a word each, and no FAA releases them"
        );
        assert!(
            table.words_per_node().checked_mul(options.lanes()).is_some(),
            "the lanes of a memory node are numbered by 32 bits, and a node's own lock word has none"
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
            roster: Arc::default(),
        }
    }

    /// Returns these locks for a compute node that is a member of its pool. Their words name the member, and a client
    /// that waits for a lock of a member that is gone frees this lock.
    #[must_use]
    pub fn in_roster(mut self, roster: Arc<Roster>) -> Self {
        if self.options.shared {
            roster.sharing();
        }
        self.roster = roster;
        self
    }

    #[inline]
    pub(crate) fn local(&self) -> &LocalTable {
        &self.local
    }

    /// Returns the options.
    pub fn options(&self) -> &LockOptions {
        &self.options
    }

    /// Returns the global table.
    pub fn table(&self) -> &GlobalLockTable {
        &self.table
    }

    /// Returns the lock of the node at `address`. Several nodes can have the same lock.
    ///
    /// # Errors
    /// Returns [`LockError::NoLockTable`] if the address's memory node has no lock table, and
    /// [`LockError::NoLockWord`] if nodes contain their own locks, and no node can begin at `address`.
    #[inline(always)]
    pub fn lock_of(&self, address: RemotePtr) -> Result<LockId, LockError> {
        match self.table.id(address, self.options.lanes()) {
            Some(id) => Ok(id),
            None => Err(self.no_lock(address)),
        }
    }

    #[cold]
    fn no_lock(&self, address: RemotePtr) -> LockError {
        match self.table.covers(address.node()) {
            true => LockError::NoLockWord { at: address },
            false => LockError::NoLockTable { node: address.node() },
        }
    }

    /// Returns the place of the word that holds the lock of the node at `address`.
    ///
    /// # Errors
    /// Returns the same errors as [`Locks::lock_of`].
    pub fn word_at(&self, address: RemotePtr) -> Result<Place, LockError> {
        Ok(self.cell(self.lock_of(address)?).place)
    }

    /// Returns the bytes of this compute node's memory that locks use, spare capacity included. The roster, the ticket
    /// locks of a flaw, and a few bytes for each memory node are not counted.
    pub fn local_bytes(&self) -> usize {
        size_of::<Self>()
            + self.hints.bytes()
            + match &self.local {
                LocalTable::Spin(table) | LocalTable::Queue(table) => table.bytes(),
                LocalTable::Off | LocalTable::Packed(_) => 0,
            }
    }

    /// Returns whether any client holds the lock of `node`. The result may be outdated immediately. This takes 1 round
    /// trip.
    ///
    /// # Errors
    /// Returns the same errors as [`Locks::lock_of`], and [`LockError::Verb`] if the READ fails.
    pub async fn is_held<V: Verbs>(&self, v: &V, node: RemotePtr) -> Result<bool, LockError> {
        let cell = self.cell(self.lock_of(node)?);
        Ok(cell.word(v.word(cell.place).await?).locked)
    }

    /// Takes the lock of `node`.
    ///
    /// This takes 1 round trip if the lock is free, and 0 if it is handed over. Without masked atomics, a wrong guess
    /// of the word costs one more round trip, and each lost race costs at most two.
    ///
    /// # Errors
    /// Returns a [`LockError`]. The lock is then not held, unless its memory node is unreachable and the CAS had an
    /// unknown effect.
    pub async fn lock<'a, V: Verbs>(&'a self, v: &'a V, node: RemotePtr) -> Result<Guard<'a, V>, LockError> {
        let id = self.lock_of(node)?;
        let (guard, _) = self.take(v, id, None).await?;
        Ok(guard)
    }

    /// Takes the lock of `node` and READs `len` bytes at `read_at` (same memory node) under it.
    ///
    /// If the world serves a READ after the CAS in its chain, and the options allow it, this takes one chain and one
    /// round trip. Otherwise the READ follows the CAS. If the lock is handed over, only the READ is posted.
    ///
    /// # Errors
    /// Returns a [`LockError`]. The lock is then not held, as with [`Locks::lock`].
    ///
    /// # Panics
    /// Panics if `read_at` is on another memory node than `node`.
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

    /// Returns the word with which the waiting client must replace `word` by CAS to free the lock, if the member that
    /// holds the lock is gone. Otherwise returns `None`, and asks the roster about this member.
    pub(crate) fn freed(&self, cell: Cell, word: u64) -> Option<u64> {
        let member = cell.word(word).member;
        if self.roster.is_gone(member) {
            //= docs/protocol/recovery.md V4
            return LockWord::freed(word, member);
        }
        self.roster.ask(member);
        None
    }

    /// Returns whether the lock may be handed to the next client in the local queue. The result may be outdated
    /// immediately.
    #[inline]
    pub(crate) fn can_hand_over(&self, id: LockId) -> bool {
        match &self.local {
            LocalTable::Spin(table) | LocalTable::Queue(table) => table.can_hand_over(id),
            LocalTable::Off | LocalTable::Packed(_) => false,
        }
    }

    /// Gives the turn and the lock to the longest waiting client. Returns `false` and does nothing if no client waits,
    /// if the bound on handovers is reached, or if this client does not belong to the member that the word names. Also
    /// returns `false` if the local table has no handover.
    pub(crate) fn hand_over(&self, id: LockId, handed: Handed) -> bool {
        match &self.local {
            LocalTable::Spin(table) | LocalTable::Queue(table) => {
                match table.turn(id).hand_over_if(handed, |next| {
                    //= docs/protocol/recovery.md V1
                    let member = self.cell(id).word(handed.raw).member;
                    member == 0 || self.roster.number_of(next.0) == member
                }) {
                    Ok(()) => true,
                    Err(turn) => {
                        turn.keep();
                        false
                    }
                }
            }
            LocalTable::Off | LocalTable::Packed(_) => false,
        }
    }

    /// Returns `raw`, the word as held, if it names another client than `client` as owner, and otherwise `None`. If
    /// `client` passes the turn on before its unlock has completed, the next client must receive this word. The next
    /// client must not post a CAS until it has READ another word.
    #[inline]
    pub(crate) fn unsettled(&self, cell: Cell, raw: u64, client: ClientId) -> Option<u64> {
        //= docs/protocol/lock.md L9
        // If the word names `client`, the order of that client's own queue pair suffices.
        let anothers = cell.word(raw).owner != client.0;
        (anothers && !self.options.flaws().unsettled_unsaid).then_some(raw)
    }

    /// Passes the local turn of a holder on, with the unsettled word if there is one.
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

    /// Checks that `caps` include every capability that the options need and for which there is no fallback, apart from
    /// on-chip memory.
    ///
    /// # Errors
    /// Returns the error of [`LockOptions::check`] as [`LockError::Refused`].
    pub fn check(&self, caps: &dm_verbs::Caps) -> Result<(), LockError> {
        Ok(self.options.check(caps)?)
    }

    /// Returns the same capabilities as [`LockOptions::needs`].
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
        match (self.hints.fingerprint(), self.roster.fingerprint()) {
            (0, 0) => local,
            others => fingerprint_of(&(local, others)),
        }
    }
}
