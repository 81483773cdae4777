//! The operations that wait at the locks of a shard: a slab of waiters, and linked lists through it.

use core::task::Waker;

use dm_verbs::ClientId;

use crate::rules::{Told, Wish};

pub(crate) const NONE: u32 = u32::MAX;

/// An operation that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) client: ClientId,
    pub(crate) wish: Wish,
    /// Whether an earlier epoch of this operation ended without a result for it.
    pub(crate) again: bool,
    /// Whether a waiter that is in a list is in the list of a closed epoch. If not, it is in the list of the next
    /// epoch.
    pub(crate) sealed: bool,
    pub(crate) state: State,
    /// The value that a get found. The buffer is kept for reuse.
    pub(crate) value: Vec<u8>,
    previous: u32,
    next: u32,
}

#[derive(Debug)]
pub(crate) enum State {
    /// The waiter is in the free list, which is linked by `next`.
    Free,
    /// The waiter is in one of its lock's two lists.
    Waiting(Waker),
    /// The waiter is still in the list of the next epoch and was elected as its leader, but its client has not begun to
    /// lead.
    Elected,
    /// The waiter has its answer and is in no list.
    Told(Told),
}

/// The first and the last waiter of a list.
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

/// The waiters of a shard. INVARIANT: a waiter is in exactly one place: in the free list, in one list of its lock, or
/// in the state [`State::Told`].
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

    /// Adds a waiter at the end of `list` and returns its number.
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

    /// Moves all waiters of `front`, in their order, to the beginning of `list`.
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

    /// Frees a waiter that is in no list. Returns its former state.
    pub(crate) fn recycle(&mut self, number: u32) -> State {
        let next = core::mem::replace(&mut self.free, number);
        let w = self.get(number);
        w.next = next;
        core::mem::replace(&mut w.state, State::Free)
    }

    /// Returns the number of the next waiter in the same list, or [`NONE`].
    pub(crate) fn after(&self, number: u32) -> u32 {
        self.slab[number as usize].next
    }

    /// Returns the waiters of a list, in order.
    pub(crate) fn of(&self, list: List) -> impl Iterator<Item = &Waiter> {
        let some = |n: u32| (n != NONE).then_some(n);
        let numbers = core::iter::successors(some(list.head), move |&n| some(self.after(n)));
        numbers.map(|n| &self.slab[n as usize])
    }

    /// Returns all waiters with a result that the client has not taken yet.
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
