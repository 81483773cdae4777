//! Those who wait at the locks of a shard: one slab, and lists through it.

use core::task::Waker;

use dm_verbs::ClientId;

use crate::rules::{Told, Wish};

pub(crate) const NONE: u32 = u32::MAX;

/// Somebody who waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) client: ClientId,
    pub(crate) wish: Wish,
    /// An epoch that it belonged to ended without an answer for it.
    pub(crate) again: bool,
    /// In the list of an epoch that is closed, and not among those that gather.
    pub(crate) sealed: bool,
    pub(crate) state: State,
    /// What a get found; kept for its memory.
    pub(crate) value: Vec<u8>,
    previous: u32,
    next: u32,
}

#[derive(Debug)]
pub(crate) enum State {
    /// In the free list (through `next`).
    Free,
    /// In one of its lock's two lists.
    Waiting(Waker),
    /// Among those that gather: the next leader, which has not noticed yet.
    Elected,
    /// In no list.
    Told(Told),
}

/// First and last of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    pub(crate) head: u32,
    pub(crate) tail: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
    };

    pub(crate) const fn is_empty(self) -> bool {
        self.head == NONE
    }
}

/// INVARIANT: a waiter is in exactly one place: the free list, one list of its lock, or told.
#[derive(Debug)]
pub(crate) struct Waiters {
    slab: Vec<Waiter>,
    free: u32,
}

impl Default for Waiters {
    fn default() -> Self {
        Self {
            slab: Vec::new(),
            free: NONE,
        }
    }
}

impl Waiters {
    #[inline]
    pub(crate) fn get(&mut self, number: u32) -> &mut Waiter {
        &mut self.slab[number as usize]
    }

    /// A new waiter at the end of `list`.
    pub(crate) fn push(&mut self, list: &mut List, client: ClientId, wish: Wish, waker: &Waker) -> u32 {
        let number = self.allot(client, wish, State::Waiting(waker.clone()));
        self.get(number).previous = list.tail;
        match core::mem::replace(&mut list.tail, number) {
            NONE => list.head = number,
            tail => self.get(tail).next = number,
        }
        number
    }

    fn allot(&mut self, client: ClientId, wish: Wish, state: State) -> u32 {
        let number = self.free;
        if number == NONE {
            self.slab.push(Waiter {
                client,
                wish,
                again: false,
                sealed: false,
                state,
                value: Vec::new(),
                previous: NONE,
                next: NONE,
            });
            return u32::try_from(self.slab.len() - 1).expect("clients are numbered in 16 bits");
        }
        let w = &mut self.slab[number as usize];
        self.free = core::mem::replace(&mut w.next, NONE);
        (w.client, w.wish, w.state) = (client, wish, state);
        (w.again, w.sealed) = (false, false);
        number
    }

    pub(crate) fn unlink(&mut self, list: &mut List, number: u32) {
        let w = self.get(number);
        let previous = core::mem::replace(&mut w.previous, NONE);
        let next = core::mem::replace(&mut w.next, NONE);
        match previous {
            NONE => list.head = next,
            previous => self.get(previous).next = next,
        }
        match next {
            NONE => list.tail = previous,
            next => self.get(next).previous = previous,
        }
    }

    /// Puts all of `front` before `list`, in their order.
    pub(crate) fn prepend(&mut self, front: List, list: &mut List) {
        if front.is_empty() {
            return;
        }
        match list.head {
            NONE => list.tail = front.tail,
            head => {
                self.get(head).previous = front.tail;
                self.get(front.tail).next = head;
            }
        }
        list.head = front.head;
    }

    /// Gives a waiter that is in no list to the free ones; the answer is what it was.
    pub(crate) fn recycle(&mut self, number: u32) -> State {
        let next = core::mem::replace(&mut self.free, number);
        let w = self.get(number);
        w.next = next;
        core::mem::replace(&mut w.state, State::Free)
    }

    /// Who comes behind that waiter in its list.
    pub(crate) fn after(&self, number: u32) -> u32 {
        self.slab[number as usize].next
    }

    /// The waiters of a list, in order.
    pub(crate) fn of(&self, list: List) -> impl Iterator<Item = &Waiter> {
        let some = |n: u32| (n != NONE).then_some(n);
        let numbers = core::iter::successors(some(list.head), move |&n| some(self.after(n)));
        numbers.map(|n| &self.slab[n as usize])
    }

    /// All that have been told something and have not noticed.
    pub(crate) fn told(&self) -> impl Iterator<Item = (&Waiter, Told)> {
        self.slab.iter().filter_map(|w| match w.state {
            State::Told(told) => Some((w, told)),
            _ => None,
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        let values: usize = self.slab.iter().map(|w| w.value.capacity()).sum();
        self.slab.capacity() * size_of::<Waiter>() + values
    }
}
