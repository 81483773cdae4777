//! Locks: what the clients of one compute node share, and how one of them takes a lock.

use core::future::Future;

use dm_sync::Fingerprint;
use dm_verbs::{Capability, ClientId, Event, Exhausted, LocalStep, Place, RemotePtr, Verbs, Why};

use crate::cell::{Cell, Kind, Plan, Undo};
use crate::guard::{Guard, Taken};
use crate::local::{Handed, LocalLockTable, Turn};
use crate::packed::{PackedTickets, PackedTurn};
use crate::{CLIENTS_MAX, GlobalLockTable, Local, LockError, LockFlaws, LockId, LockOptions};

/// Hierarchical on-chip locks (Sherman §4.3): the global table, and the local table of this compute node. One per
/// compute node and pool, shared by its clients; all clients of a pool need equal tables and, for flaws that change
/// the words, equal flaws.
#[derive(Debug)]
pub struct Locks {
    pub(crate) options: LockOptions,
    table: GlobalLockTable,
    local: LocalTable,
}

#[derive(Debug)]
enum LocalTable {
    Off,
    Spin(LocalLockTable),
    Queue(LocalLockTable),
    Packed(PackedTickets),
}

/// The right to go for the remote lock, as the local table gave it.
#[derive(Debug)]
pub(crate) enum LocalTurn<'a> {
    None,
    Turn(Turn<'a>),
    /// Held for its drop.
    Packed(#[expect(dead_code, reason = "dropping it serves the next ticket")] PackedTurn<'a>),
}

/// What is known of a lock before it is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) id: LockId,
    pub(crate) cell: Cell,
    pub(crate) plan: Plan,
}

impl Locks {
    /// With these options over these tables.
    pub fn new(options: LockOptions, table: GlobalLockTable) -> Self {
        let locks = table.words() * options.lanes() as usize;
        let LockFlaws {
            packed_tickets,
            narrow_tickets,
            ..
        } = options.flaws;
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
            table,
            local,
        }
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
    #[inline]
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

    /// Whether the tables lie where the options ask for; if not, they fell back.
    pub fn placed_as_asked(&self, address: RemotePtr) -> bool {
        self.word_at(address).is_ok_and(|place| self.options.wants(place))
    }

    /// Bytes of this compute node's memory that locking takes, spare capacity included.
    pub fn local_bytes(&self) -> usize {
        size_of::<Self>()
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
        let target = self.target(v, node)?;
        self.take(v, target).await
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
    #[inline]
    pub fn lock_and_read<'a, V: Verbs>(
        &'a self,
        v: &'a V,
        node: RemotePtr,
        read_at: RemotePtr,
        len: u32,
    ) -> impl Future<Output = Result<(Guard<'a, V>, V::Lease), LockError>> {
        assert_eq!(
            node.node(),
            read_at.node(),
            "a lock lies on the memory node of what it guards"
        );
        self.acquire(v, self.target(v, node), ReadTo { at: read_at, len })
    }

    #[inline]
    pub(crate) fn target<V: Verbs>(&self, v: &V, node: RemotePtr) -> Result<Target, LockError> {
        self.target_of(v, self.lock_of(node)?)
    }

    #[inline]
    pub(crate) fn target_of<V: Verbs>(&self, v: &V, id: LockId) -> Result<Target, LockError> {
        let client = v.client();
        if client.0 >= CLIENTS_MAX {
            return Err(LockError::ClientTooLarge { client });
        }
        let cell = self.cell(id);
        Ok(Target {
            id,
            cell,
            plan: Plan::new(v, &self.options, cell.place)?,
        })
    }

    #[inline]
    fn cell(&self, id: LockId) -> Cell {
        let lanes = self.options.lanes();
        let place = self.table.word_at(LockId {
            index: id.index / lanes,
            ..id
        });
        let kind = if lanes == 1 {
            Kind::Word
        } else {
            Kind::Lane {
                shift: 16 * (id.index % lanes),
            }
        };
        Cell { place, kind }
    }

    pub(crate) async fn take<'a, V: Verbs>(
        &'a self,
        v: &'a V,
        target: Target,
    ) -> Result<Guard<'a, V>, LockError> {
        self.acquire(v, Ok(target), Nothing).await
    }

    /// Takes the local turn (the remote lock may come with it), then the remote lock, and READs what is wanted: in
    /// the lock's chain if the plan says so and a chain is needed, else behind it.
    // In one piece: every layer of async moves a guard, as many instructions as a queue costs.
    async fn acquire<'a, V: Verbs, W: Want<'a, V>>(
        &'a self,
        v: &'a V,
        target: Result<Target, LockError>,
        want: W,
    ) -> Result<W::Got, LockError> {
        let target = target?;
        let Target { id, cell, plan } = target;
        let turn = match &self.local {
            LocalTable::Off => LocalTurn::None,
            LocalTable::Queue(table) => {
                v.local(LocalStep::Section).await;
                // Arrived by handover while this future was dropped: released here, for there is nobody else.
                let orphan = move |handed: Handed| {
                    cell.abandon(v, handed.raw, handed.payload);
                    unsettled(cell, handed.raw, v.client())
                };
                let entered = table.acquire(id, v.client(), orphan).await;
                let (mut turn, arrival) =
                    entered.map_err(|_| LockError::AlreadyHeld { place: cell.place })?;
                if arrival.waited {
                    if let Some(handed) = arrival.handed {
                        v.meter().note(Event::Handover);
                        let guard = Guard::handed(self, v, target, turn, handed);
                        v.local(LocalStep::HandOff).await;
                        return want.after(v, guard).await;
                    }
                    v.local(LocalStep::HandOff).await;
                }
                if turn.unsettled().is_some() {
                    self.settle(v, cell, &mut turn).await?;
                }
                LocalTurn::Turn(turn)
            }
            table => self.turn_without_queue(v, target, table).await?,
        };
        let take = cell.take(v.client(), self.options.epoch);
        let mut retry = v.retry(self.options.budget);
        loop {
            // Without masked atomics: plain CASes of the whole word, each expecting what the one before it saw. A
            // new attempt starts from the same guess: what the last one saw may not survive it (`Retry`'s promise).
            let mut expect = 0;
            let mut left = if plan.masked {
                1
            } else {
                v.budget(self.options.budget)
            };
            let held = loop {
                // Armed before posting, so that no await lies between.
                let undo = match plan.masked {
                    true => Undo::masked(v, cell, take),
                    false => Undo::plain(v, cell, expect, take.apply(expect)),
                };
                let chain = v.chain(cell.place.node());
                let chain = match plan.masked {
                    true => chain.masked_cas(cell.place, take),
                    false => chain.cas(cell.place, expect, take.apply(expect)),
                };
                //= docs/protocol/lock.md L3
                let answer = match want.read().filter(|_| plan.read_in_order) {
                    Some(ReadTo { at, len }) => {
                        let ticket = chain.read(at, len).post();
                        ticket.await.map(|(old, lease)| (old, Some(lease)))
                    }
                    None => chain.post().await.map(|old| (old, None)),
                };
                let (old, lease) = known(undo, answer)?;
                //= docs/protocol/lock.md L2
                if !take.matches(old) {
                    break old;
                }
                if plan.masked || old == expect {
                    let raw = cell.own(take.apply(old));
                    let taken = Taken {
                        raw,
                        payload: cell.word(raw).payload,
                    };
                    let guard = Guard::new(self, v, target, turn, taken);
                    return match lease {
                        Some(lease) => Ok(want.along(guard, lease)),
                        None => want.after(v, guard).await,
                    };
                }
                left = left.saturating_sub(1);
                if left == 0 {
                    let attempts = v.budget(self.options.budget);
                    return Err(LockError::Held(Exhausted {
                        at: cell.place,
                        why: Why::Raced,
                        attempts,
                    }));
                }
                expect = old;
            };
            let word = cell.word(held).pack();
            retry.again(cell.place, Why::LockHeld { word }).await?;
        }
    }

    /// The local turn as tables without a queue give it.
    async fn turn_without_queue<'a, V: Verbs>(
        &'a self,
        v: &'a V,
        target: Target,
        table: &'a LocalTable,
    ) -> Result<LocalTurn<'a>, LockError> {
        let Target { id, cell, .. } = target;
        let already = |_| LockError::AlreadyHeld { place: cell.place };
        Ok(match table {
            LocalTable::Off | LocalTable::Queue(_) => LocalTurn::None,
            LocalTable::Spin(table) => {
                let mut retry = v.retry(self.options.budget);
                let mut turn = loop {
                    v.local(LocalStep::Section).await;
                    if let Some(turn) = table.try_acquire(id, v.client()).map_err(already)? {
                        break turn;
                    }
                    retry.again(cell.place, Why::Raced).await?;
                };
                self.settle(v, cell, &mut turn).await?;
                LocalTurn::Turn(turn)
            }
            LocalTable::Packed(table) => {
                v.local(LocalStep::Section).await;
                let (ticket, served) = table.draw(id);
                let mut retry = v.retry(self.options.budget);
                while !served && !table.served(id, ticket) {
                    retry.again(cell.place, Why::Raced).await?;
                    v.local(LocalStep::Section).await;
                }
                LocalTurn::Packed(PackedTurn { table, id })
            }
        })
    }

    /// Waits until the unlock of a holder that went away has landed, before any CAS is posted for the lock.
    async fn settle<V: Verbs>(&self, v: &V, cell: Cell, turn: &mut Turn<'_>) -> Result<(), LockError> {
        //= docs/protocol/lock.md L9
        if let Some(raw) = turn.unsettled() {
            let mut retry = v.retry(self.options.budget);
            loop {
                let word = v.word(cell.place).await?;
                if cell.own(word) != raw {
                    break;
                }
                retry
                    .again(
                        cell.place,
                        Why::LockHeld {
                            word: cell.word(word).pack(),
                        },
                    )
                    .await?;
            }
            turn.set_unsettled(None);
        }
        Ok(())
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
        match &self.local {
            LocalTable::Off => 0,
            LocalTable::Spin(table) | LocalTable::Queue(table) => table.fingerprint(),
            LocalTable::Packed(table) => table.fingerprint(),
        }
    }
}

/// Disarms the undo if it is certain what the CAS did.
#[inline]
fn known<V: Verbs, T>(undo: Undo<'_, V>, answer: Result<T, dm_verbs::VerbError>) -> Result<T, LockError> {
    match &answer {
        Ok(_) => undo.disarm(),
        Err(e) if e.index == 0 && e.effect == dm_verbs::Effect::None => undo.disarm(),
        Err(_) => drop(undo),
    }
    Ok(answer?)
}

/// The word that the next client must see gone before it posts a CAS, if `client` leaves a lock behind unawaited.
pub(crate) fn unsettled(cell: Cell, raw: u64, client: ClientId) -> Option<u64> {
    // Under its own name the order of its own queue pair is enough.
    (cell.word(raw).owner != client.0).then_some(raw)
}

/// What is wanted along with a lock.
trait Want<'a, V: Verbs + 'a>: Copy {
    /// The guard, and what was wanted.
    type Got;
    /// The READ that gets it.
    fn read(self) -> Option<ReadTo>;
    /// It came in the lock's chain.
    fn along(self, guard: Guard<'a, V>, lease: V::Lease) -> Self::Got;
    /// It is fetched under the lock. If that fails the guard unlocks.
    async fn after(self, v: &'a V, guard: Guard<'a, V>) -> Result<Self::Got, LockError>;
}

/// The lock alone.
#[derive(Clone, Copy, Debug)]
struct Nothing;

impl<'a, V: Verbs + 'a> Want<'a, V> for Nothing {
    type Got = Guard<'a, V>;
    #[inline]
    fn read(self) -> Option<ReadTo> {
        None
    }
    fn along(self, guard: Guard<'a, V>, _: V::Lease) -> Guard<'a, V> {
        guard
    }
    async fn after(self, _: &'a V, guard: Guard<'a, V>) -> Result<Guard<'a, V>, LockError> {
        Ok(guard)
    }
}

/// A READ.
#[derive(Clone, Copy, Debug)]
struct ReadTo {
    at: RemotePtr,
    len: u32,
}

impl<'a, V: Verbs + 'a> Want<'a, V> for ReadTo {
    type Got = (Guard<'a, V>, V::Lease);
    #[inline]
    fn read(self) -> Option<ReadTo> {
        Some(self)
    }
    #[inline]
    fn along(self, guard: Guard<'a, V>, lease: V::Lease) -> Self::Got {
        (guard, lease)
    }
    async fn after(self, v: &'a V, guard: Guard<'a, V>) -> Result<Self::Got, LockError> {
        let lease = v.read(self.at, self.len).await?;
        Ok((guard, lease))
    }
}
