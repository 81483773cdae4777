//! A shard of locks and their waiters: the state machine of epochs. Each transition is one critical section, called
//! *section*.

use core::hash::Hash;
use core::task::Waker;

use dm_index::Applied;
use dm_sync::{Fingerprint, fingerprint_of, fingerprint_unordered};
use dm_verbs::ClientId;

use crate::rules::{Told, Wish};
use crate::study::RdwcFlaws;
use crate::waiters::{List, NONE, State, Waiter, Waiters};

pub(crate) mod published;

/// One local lock, with its states.
///
/// ```text
///              enter                       finish, others gather
///   free ───────────────▶ led ─────────────────────────────────────▶ elected
///    ▲                   │ ▲ ▲                                          │
///    └───────────────────┘ │ └──────────────────────────────────────────┘
///     finish, no others    │                 seal: those that gather
///                         join: gather       are the leader's followers
/// ```
#[derive(Debug)]
struct Lane<K> {
    /// INVARIANT: this is `None` if and only if both lists are empty and no client leads.
    held: Option<Held<K>>,
    /// The leader's followers: they joined before the leader began, and share its result.
    sealed: List,
    /// The operations of the next epoch.
    gathering: List,
}

#[derive(Clone, Copy, Debug)]
struct Held<K> {
    /// The key for which the lock is held.
    key: K,
    /// The waiter that was elected and has not begun to lead, or `NONE` while a client leads.
    elected: u32,
}

/// An operation that joins the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entering<'a> {
    pub(crate) client: ClientId,
    pub(crate) wish: Wish,
    pub(crate) waker: &'a Waker,
}

pub(crate) enum Entered {
    /// The lock was free. The caller leads and has no followers.
    Leads,
    /// The lock is held for another key.
    Alone,
    /// The caller waits, as the waiter with this number.
    Waits(u32),
}

pub(crate) enum Polled {
    /// The operation still waits. The caller must drop the replaced waker outside the section.
    Still(Option<Waker>),
    /// The waiter must lead: the caller calls [`Shard::seal`] next.
    Elected,
    Told(Told),
}

#[derive(Debug)]
pub(crate) struct Shard<K> {
    lanes: Box<[Lane<K>]>,
    waiters: Waiters,
    /// One value per lock, used by flaw T-R2 only.
    buffers: Vec<Vec<u8>>,
}

impl<K: Copy + Eq> Shard<K> {
    pub(crate) fn new(lanes: usize) -> Self {
        let free = || Lane {
            held: None,
            sealed: List::EMPTY,
            gathering: List::EMPTY,
        };
        Self {
            lanes: (0..lanes).map(|_| free()).collect(),
            waiters: Waiters::default(),
            buffers: Vec::new(),
        }
    }

    /// Takes the lock if it is free, and joins the next epoch if it is held for the same key.
    #[inline]
    pub(crate) fn enter(&mut self, lane: usize, key: &K, who: Entering<'_>, flaws: &RdwcFlaws) -> Entered {
        let l = &mut self.lanes[lane];
        let Some(held) = &l.held else {
            l.held = Some(Held {
                key: *key,
                elected: NONE,
            });
            return Entered::Leads;
        };
        //= docs/protocol/combine.md C1
        if held.key != *key && !flaws.any_key {
            return Entered::Alone;
        }
        let joins_late = match who.wish {
            Wish::Get => flaws.joins_earlier_read,
            Wish::Update | Wish::Upsert => flaws.joins_after_sample,
        };
        //= docs/protocol/combine.md C3
        let sealed = joins_late && held.elected == NONE;
        let list = if sealed { &mut l.sealed } else { &mut l.gathering };
        let number = self.waiters.push(list, who.client, who.wish, who.waker);
        self.waiters.get(number).sealed = sealed;
        Entered::Waits(number)
    }

    /// Returns the state of a waiter that is polled with `waker`. If the waiter has its answer, frees it, and appends
    /// the value to `value` if a get has found one.
    pub(crate) fn poll(&mut self, number: u32, waker: &Waker, value: &mut Vec<u8>) -> Polled {
        let w = self.waiters.get(number);
        match &mut w.state {
            State::Waiting(before) => {
                Polled::Still((!before.will_wake(waker)).then(|| core::mem::replace(before, waker.clone())))
            }
            State::Elected => Polled::Elected,
            State::Told(told) => {
                let told = *told;
                if told == Told::Got(true) {
                    value.extend_from_slice(&w.value);
                }
                self.waiters.recycle(number);
                Polled::Told(told)
            }
            State::Free => unreachable!("only its own future recycles a waiter"),
        }
    }

    /// Makes the elected waiter the leader. From here on, no operation joins its epoch.
    pub(crate) fn seal(&mut self, lane: usize, number: u32) {
        let l = &mut self.lanes[lane];
        let held = l.held.as_mut().expect("a lock with an elected leader is held");
        assert_eq!(held.elected, number, "only the elected waiter may lead");
        held.elected = NONE;
        self.waiters.unlink(&mut l.gathering, number);
        self.waiters.recycle(number);
        //= docs/protocol/combine.md C3
        l.sealed = core::mem::replace(&mut l.gathering, List::EMPTY);
        let mut at = l.sealed.head;
        while at != NONE {
            self.waiters.get(at).sealed = true;
            at = self.waiters.after(at);
        }
    }

    /// Frees the lock and returns `true` if no other operation waits at it. Otherwise returns `false`; the caller must
    /// then call [`Shard::finish_for_others`].
    #[inline]
    pub(crate) fn finish_alone(&mut self, lane: usize) -> bool {
        let l = &mut self.lanes[lane];
        let alone = l.sealed.is_empty() && l.gathering.is_empty();
        if alone {
            l.held = None;
        }
        alone
    }

    /// Ends the epoch. `answer` is the leader's result, or `None` if the leader failed or was dropped. Adds to `wake`
    /// the wakers that the caller must call.
    pub(crate) fn finish_for_others(
        &mut self,
        lane: usize,
        answer: Option<(Told, &[u8])>,
        wake: &mut Vec<Waker>,
        flaws: &RdwcFlaws,
    ) {
        let l = &mut self.lanes[lane];
        let mut at = l.sealed.head;
        while at != NONE {
            let number = at;
            at = self.waiters.after(number);
            let wish = self.waiters.get(number).wish;
            let told = answer.and_then(|(told, _)| absorbed(wish, told, flaws));
            let (Some(told), Some((_, value))) = (told, answer) else {
                //= docs/protocol/combine.md C7
                let w = self.waiters.get(number);
                (w.again, w.sealed) = (true, false);
                continue;
            };
            self.waiters.unlink(&mut l.sealed, number);
            let w = self.waiters.get(number);
            //= docs/protocol/combine.md C8
            w.value.clear();
            w.value.extend_from_slice(value);
            wake.extend(waker(core::mem::replace(&mut w.state, State::Told(told))));
        }
        let left = core::mem::replace(&mut l.sealed, List::EMPTY);
        self.waiters.prepend(left, &mut l.gathering);
        wake.extend(self.elect(lane));
    }

    /// Elects the next leader among the operations that gather, or frees the lock if there is none.
    fn elect(&mut self, lane: usize) -> Option<Waker> {
        let l = &mut self.lanes[lane];
        let List { head, tail } = l.gathering;
        let Some(held) = l.held.as_mut().filter(|_| head != NONE) else {
            l.held = None;
            return None;
        };
        //= docs/protocol/combine.md C9
        held.elected = if self.waiters.get(head).again { head } else { tail };
        let w = self.waiters.get(held.elected);
        waker(core::mem::replace(&mut w.state, State::Elected))
    }

    /// Removes a waiter. Returns the waker of the client that is elected in its place, and the waiter's former state.
    /// The caller must drop the state outside the section.
    pub(crate) fn cancel(&mut self, lane: usize, number: u32) -> (Option<Waker>, State) {
        //= docs/protocol/combine.md C10
        let l = &mut self.lanes[lane];
        let w = self.waiters.get(number);
        let elected = matches!(w.state, State::Elected);
        if elected || matches!(w.state, State::Waiting(_)) {
            let list = if w.sealed { &mut l.sealed } else { &mut l.gathering };
            self.waiters.unlink(list, number);
        }
        let was = self.waiters.recycle(number);
        (if elected { self.elect(lane) } else { None }, was)
    }

    pub(crate) fn bytes(&self) -> usize {
        let buffers: usize = self.buffers.iter().map(Vec::capacity).sum();
        size_of_val(&*self.lanes) + self.waiters.bytes() + buffers
    }
}

fn absorbed(wish: Wish, told: Told, flaws: &RdwcFlaws) -> Option<Told> {
    let upsert = flaws.absorbs_upserts && wish == Wish::Upsert;
    wish.absorbed_by(told)
        .or(upsert.then_some(Told::Applied(Applied::Replaced)))
}

fn waker(state: State) -> Option<Waker> {
    match state {
        State::Waiting(waker) => Some(waker),
        State::Free | State::Elected | State::Told(_) => None,
    }
}

impl<K: Hash> Fingerprint for Shard<K> {
    /// Returns a hash of all locks and their waiters, or 0 if no client leads or waits, every client has taken its
    /// result, and no buffer of flaw T-R2 exists. The hash omits slab numbers and capacities.
    fn fingerprint(&self) -> u64 {
        let name = |w: &Waiter| (w.client, w.wish, w.again);
        let held = self.lanes.iter().enumerate().filter_map(|(i, l)| {
            let held = l.held.as_ref()?;
            let elected = self
                .waiters
                .of(l.gathering)
                .map(|w| matches!(w.state, State::Elected));
            let sealed: Vec<_> = self.waiters.of(l.sealed).map(name).collect();
            let gathering: Vec<_> = self.waiters.of(l.gathering).map(name).zip(elected).collect();
            Some((i, &held.key, sealed, gathering))
        });
        let held: Vec<_> = held.collect();
        let told: Vec<_> = self.waiters.told().collect();
        if held.is_empty() && told.is_empty() && self.buffers.is_empty() {
            return 0;
        }
        let told = fingerprint_unordered(told.iter().map(|(w, told)| (w.client, told, &w.value)));
        fingerprint_of(&(held, told, &self.buffers))
    }
}
