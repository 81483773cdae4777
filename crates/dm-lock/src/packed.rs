//! Local ticket locks with their published flaws, for study. In T-S6 the two fields of a ticket lock share a word, and
//! an overflow of one changes the other. In T-R4 the fields are too narrow for the length of the queue.

use dm_sync::{Fingerprint, Mutex, fingerprint_unordered};

use crate::LockId;

/// Ticket locks of `width` bits per field: the low field counts the tickets that were drawn, the high field is the
/// number that is being served.
///
/// With `carries`, drawing a ticket adds 1 to the whole word, so the 2^width-th ticket also advances the served
/// number (T-S6). Without `carries`, each field wraps on its own, and the 2^width-th waiter draws the number that is
/// being served (T-R4).
#[derive(Debug)]
pub(crate) struct PackedTickets {
    width: u32,
    carries: bool,
    words: Mutex<Words>,
}

#[derive(Debug, Default)]
struct Words(Vec<(LockId, u64)>);

impl PackedTickets {
    pub(crate) fn new(width: u32, carries: bool) -> Self {
        assert!((1..=32).contains(&width), "packed tickets have 1 to 32 bits");
        Self {
            width,
            carries,
            words: Mutex::default(),
        }
    }

    fn with<R>(&self, id: LockId, f: impl FnOnce(&mut u64) -> R) -> R {
        self.words.with(|Words(words)| {
            let i = words.iter().position(|w| w.0 == id).unwrap_or_else(|| {
                words.push((id, 0));
                words.len() - 1
            });
            f(&mut words[i].1)
        })
    }

    fn field(&self, word: u64, shift: u32) -> u64 {
        word >> shift & ((1 << self.width) - 1)
    }

    /// Draws a ticket. Returns the ticket, and whether it is already being served according to the word
    /// before the draw.
    pub(crate) fn draw(&self, id: LockId) -> (u64, bool) {
        self.with(id, |word| {
            let ticket = self.field(*word, 0);
            let served = self.field(*word, self.width) == ticket;
            if self.carries {
                // T-S6: the low field carries into the high one.
                *word = word.wrapping_add(1);
            } else {
                // T-R4: a waiter, or the holder, may have this number already.
                *word = *word - ticket + self.field(ticket + 1, 0);
            }
            (ticket, served)
        })
    }

    /// Returns whether `ticket` is being served now.
    pub(crate) fn served(&self, id: LockId, ticket: u64) -> bool {
        self.with(id, |word| self.field(*word, self.width) == ticket)
    }

    fn leave(&self, id: LockId) {
        self.with(id, |word| *word = word.wrapping_add(1 << self.width));
    }
}

impl Fingerprint for PackedTickets {
    fn fingerprint(&self) -> u64 {
        self.words.fingerprint()
    }
}

impl Fingerprint for Words {
    fn fingerprint(&self) -> u64 {
        fingerprint_unordered(self.0.iter().copied())
    }
}

/// A ticket that is being served. Dropping it advances to the next ticket.
#[derive(Debug)]
pub(crate) struct PackedTurn<'t> {
    table: &'t PackedTickets,
    id: LockId,
    kept: bool,
}

impl<'t> PackedTurn<'t> {
    /// Returns the turn of the ticket that is being served.
    pub(crate) fn new(table: &'t PackedTickets, id: LockId) -> Self {
        Self {
            table,
            id,
            kept: false,
        }
    }

    /// Consumes this value without advancing to the next ticket. The lock's guard records that it has the turn, and
    /// passes the turn on later.
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for PackedTurn<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.table.leave(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use dm_verbs::NodeId;

    use super::*;

    #[test]
    fn a_full_queue_draws_the_number_that_is_served() {
        let table = PackedTickets::new(2, false);
        let id = LockId {
            node: NodeId(0),
            high: 0,
            index: 0,
        };
        assert_eq!(table.draw(id), (0, true));
        for waiter in 1..4 {
            assert_eq!(table.draw(id), (waiter, false));
        }
        assert_eq!(table.draw(id), (0, true), "two are inside");
    }

    #[test]
    fn the_carry_lets_two_in_and_then_nobody() {
        let table = PackedTickets::new(2, true);
        let id = LockId {
            node: NodeId(0),
            high: 0,
            index: 0,
        };
        for expected in 0..3 {
            assert_eq!(table.draw(id), (expected, true));
            table.leave(id);
        }
        // The fourth client draws ticket 3, which is served at once. The carry of this draw changes the served number
        // to 0, which is the fifth client's ticket.
        assert_eq!(table.draw(id), (3, true));
        assert_eq!(table.draw(id), (0, true), "two are inside");
        // Both leave. From now on the served number is one ahead of the tickets.
        table.leave(id);
        table.leave(id);
        let (sixth, served) = table.draw(id);
        assert!(
            !served && !table.served(id, sixth),
            "nobody is inside, and nobody gets in"
        );
    }
}
