//! A shard of the local lock table: its held locks, and their queues as linked lists through one slab of waiters.

use core::task::Waker;

use dm_sync::{Fingerprint, fingerprint_of, fingerprint_unordered};
use dm_verbs::ClientId;

use crate::LockId;
use crate::local::Handed;

const NONE: u32 = u32::MAX;

/// A lock of which a client has the turn, or which is unsettled.
#[derive(Debug)]
struct Entry {
    id: LockId,
    /// The client that has the turn. It is `None` only if the lock is unsettled.
    holder: Option<ClientId>,
    /// Handovers since the lock was last taken from memory.
    run: u32,
    unsettled: Option<u64>,
    /// First and last waiter of the queue.
    head: u32,
    tail: u32,
}

#[derive(Debug)]
struct Waiter {
    client: ClientId,
    state: State,
    previous: u32,
    next: u32,
}

#[derive(Debug)]
enum State {
    /// The waiter is in the free list, which is linked by `next`.
    Free,
    Waiting(Waker),
    /// The waiter has left the queue, but its client was not polled since.
    Granted(Grant),
}

/// State that a waiter receives with its turn.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Grant {
    pub(crate) handed: Option<Handed>,
    pub(crate) unsettled: Option<u64>,
}

pub(crate) enum Entered {
    /// The client has the turn. The unsettled word comes with it.
    Turn(Option<u64>),
    /// The client queues behind others, as this waiter. In the result of [`Shard::try_enter`], the number is `NONE`,
    /// and the client does not queue.
    Queued(u32),
    AlreadyHeld,
}

pub(crate) enum Waited {
    /// The client still waits. The caller must drop the replaced waker outside the section.
    Still(Option<Waker>),
    Granted(Grant),
}

/// INVARIANT: a waiter is in exactly one place: in the free list, in one queue, or granted (then its client is the
/// holder of its lock). A queue is non-empty only while its lock has a holder.
#[derive(Debug)]
pub(crate) struct Shard {
    // The list is scanned from the front. It is short, because it has about as many locks as there are clients that use
    // the shard at the same time.
    entries: Vec<Entry>,
    waiters: Vec<Waiter>,
    free: u32,
    /// The number of waiters in queues.
    waiting: u32,
}

impl Default for Shard {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            waiters: Vec::new(),
            free: NONE,
            waiting: 0,
        }
    }
}

impl Shard {
    #[inline]
    pub(crate) fn try_enter(&mut self, id: LockId, client: ClientId) -> Entered {
        let Some(entry) = self.entries.iter_mut().find(|e| e.id == id) else {
            let holder = Some(client);
            self.entries.push(Entry {
                id,
                holder,
                run: 0,
                unsettled: None,
                head: NONE,
                tail: NONE,
            });
            return Entered::Turn(None);
        };
        match entry.holder {
            Some(holder) if holder == client => Entered::AlreadyHeld,
            Some(_) => Entered::Queued(NONE),
            None => {
                entry.holder = Some(client);
                Entered::Turn(entry.unsettled.take())
            }
        }
    }

    #[inline]
    pub(crate) fn enter(&mut self, id: LockId, client: ClientId, waker: &Waker) -> Entered {
        match self.try_enter(id, client) {
            Entered::Queued(_) => Entered::Queued(self.enqueue(id, client, waker)),
            other => other,
        }
    }

    fn enqueue(&mut self, id: LockId, client: ClientId, waker: &Waker) -> u32 {
        let i = self.entry(id);
        let waiter = Waiter {
            client,
            state: State::Waiting(waker.clone()),
            previous: self.entries[i].tail,
            next: NONE,
        };
        let number = match self.free {
            NONE => {
                self.waiters.push(waiter);
                (self.waiters.len() - 1) as u32
            }
            free => {
                self.free = self.waiters[free as usize].next;
                self.waiters[free as usize] = waiter;
                free
            }
        };
        let tail = core::mem::replace(&mut self.entries[i].tail, number);
        match tail {
            NONE => self.entries[i].head = number,
            tail => self.waiters[tail as usize].next = number,
        }
        self.waiting += 1;
        number
    }

    /// Returns the number of waiters in queues.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting
    }

    #[inline]
    fn entry(&self, id: LockId) -> usize {
        self.entries
            .iter()
            .position(|e| e.id == id)
            .expect("a lock that is held or waited for has an entry")
    }

    pub(crate) fn poll(&mut self, waiter: u32, waker: &Waker) -> Waited {
        match &mut self.waiters[waiter as usize].state {
            State::Granted(grant) => {
                let grant = *grant;
                self.recycle(waiter);
                Waited::Granted(grant)
            }
            State::Waiting(before) => {
                Waited::Still((!before.will_wake(waker)).then(|| core::mem::replace(before, waker.clone())))
            }
            State::Free => unreachable!("only its own future recycles a waiter"),
        }
    }

    fn recycle(&mut self, waiter: u32) -> State {
        let next = core::mem::replace(&mut self.free, waiter);
        let w = &mut self.waiters[waiter as usize];
        w.next = next;
        core::mem::replace(&mut w.state, State::Free)
    }

    /// Unlinks the first waiter of the queue and gives its client the turn.
    #[inline]
    fn grant(&mut self, i: usize, grant: Grant) -> Option<Waker> {
        let head = self.entries[i].head;
        if head == NONE {
            return None;
        }
        self.unlink(i, head);
        let w = &mut self.waiters[head as usize];
        self.entries[i].holder = Some(w.client);
        match core::mem::replace(&mut w.state, State::Granted(grant)) {
            State::Waiting(waker) => Some(waker),
            State::Granted(_) | State::Free => unreachable!("only waiting clients are in queues"),
        }
    }

    fn unlink(&mut self, i: usize, waiter: u32) {
        self.waiting -= 1;
        let (previous, next) = (
            self.waiters[waiter as usize].previous,
            self.waiters[waiter as usize].next,
        );
        match previous {
            NONE => self.entries[i].head = next,
            previous => self.waiters[previous as usize].next = next,
        }
        match next {
            NONE => self.entries[i].tail = previous,
            next => self.waiters[next as usize].previous = previous,
        }
    }

    /// Passes the turn on without the remote lock. Returns the waker of the client that gets it.
    #[inline(always)]
    pub(crate) fn pass(&mut self, id: LockId, unsettled: Option<u64>) -> Option<Waker> {
        // The common case: it is the shard's only lock, no client waits, and no word is unsettled.
        if let [entry] = &*self.entries
            && entry.id == id
            && entry.head == NONE
            && unsettled.is_none()
        {
            self.entries.clear();
            return None;
        }
        self.pass_on(id, unsettled)
    }

    #[inline(never)]
    fn pass_on(&mut self, id: LockId, unsettled: Option<u64>) -> Option<Waker> {
        let i = self.entry(id);
        if self.entries[i].head == NONE && unsettled.is_none() {
            self.entries.swap_remove(i);
            return None;
        }
        self.entries[i].run = 0;
        let waker = self.grant(
            i,
            Grant {
                handed: None,
                unsettled,
            },
        );
        if waker.is_none() {
            self.entries[i].holder = None;
            self.entries[i].unsettled = unsettled;
        }
        waker
    }

    #[inline]
    pub(crate) fn can_hand_over(&self, id: LockId, max: u32) -> bool {
        let entry = &self.entries[self.entry(id)];
        entry.head != NONE && entry.run < max
    }

    pub(crate) fn hand_over(
        &mut self,
        id: LockId,
        handed: Handed,
        max: u32,
        may: impl FnOnce(ClientId) -> bool,
    ) -> Result<Waker, ()> {
        let i = self.entry(id);
        let next = self.entries[i].head;
        if self.entries[i].run >= max || next == NONE || !may(self.waiters[next as usize].client) {
            return Err(());
        }
        let waker = self
            .grant(
                i,
                Grant {
                    handed: Some(handed),
                    unsettled: None,
                },
            )
            .ok_or(())?;
        self.entries[i].run += 1;
        Ok(waker)
    }

    /// Removes a waiter. Returns its grant if it had been granted the turn already: the caller then holds the turn,
    /// and must pass it on.
    pub(crate) fn cancel(&mut self, id: LockId, waiter: u32) -> Option<Grant> {
        if let State::Waiting(_) = self.waiters[waiter as usize].state {
            let i = self.entry(id);
            self.unlink(i, waiter);
        }
        match self.recycle(waiter) {
            State::Granted(grant) => Some(grant),
            State::Waiting(_) | State::Free => None,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.waiters.capacity() * size_of::<Waiter>()
    }

    fn queue(&self, entry: &Entry) -> Vec<u16> {
        let mut clients = Vec::new();
        let mut at = entry.head;
        while at != NONE {
            clients.push(self.waiters[at as usize].client.0);
            at = self.waiters[at as usize].next;
        }
        clients
    }
}

impl Fingerprint for Shard {
    /// Returns a hash of all entries, their queues and the grants, or 0 if there is no entry. The hash omits slab
    /// numbers and capacities, so that equal queues have equal fingerprints wherever they lie in the slab.
    fn fingerprint(&self) -> u64 {
        if self.entries.is_empty() {
            return 0;
        }
        let entries = fingerprint_unordered(
            self.entries
                .iter()
                .map(|e| (e.id, e.holder, e.run, e.unsettled, self.queue(e))),
        );
        let granted = fingerprint_unordered(self.waiters.iter().filter_map(|w| match w.state {
            State::Granted(grant) => Some((w.client, grant)),
            _ => None,
        }));
        fingerprint_of(&(entries, granted))
    }
}
