//! A gate that clients pass before they share a lock, and that recovery shuts.
//!
//! The locks of a pool count their sharers, but do not name them. Before the counts of dead clients can be reset, no
//! living client may share, and all requests that living clients have posted for shares must have taken effect. Each
//! client of a compute node has a word here, which counts the shares in progress, and the ended shares whose requests
//! may still land.
//!
//! ```
//! use dm_sync::gate::Gate;
//!
//! let gate = Gate::new(8);
//! let pass = gate.enter(3).expect("the gate is open");
//! gate.shut();
//! assert!(gate.enter(5).is_none());
//! assert!(!gate.is_clear(3), "a share is in progress");
//! pass.done();
//! assert!(gate.is_clear(3));
//! gate.open();
//!
//! // A share that is dropped may still have requests in flight.
//! drop(gate.enter(3));
//! let unsettled = gate.unsettled(3);
//! assert!(!gate.is_clear(3));
//! // The client now awaits an answer from each memory node. Then it is known that they have landed.
//! gate.settle(3, unsettled);
//! assert!(gate.is_clear(3));
//! ```

use core::fmt;
use core::mem;

use crate::atomic::{AtomicU16, AtomicU64, Ordering};
use crate::{Fingerprint, count_section, fingerprint_of};

/// One share in progress. The lowest 16 bits of a word count these.
const SHARE: u64 = 1;
/// One share that has ended, although its requests may still land.
const UNSETTLED: u64 = 1 << 16;
const SHUT: u64 = 1 << 63;
/// Set if a memory node did not answer when one of the unsettled shares ended.
const CUT_OFF: u64 = 1 << 62;
const FLAGS: u64 = SHUT | CUT_OFF;

/// Words in a cache line. If the gate has several lines, clients whose ids are close to each other usually have their
/// words in different lines.
const IN_LINE: usize = 8;

/// The gate of one compute node.
pub struct Gate {
    words: Box<[AtomicU64]>,
    /// The highest id of a client that has tried to pass, plus 1. Only fingerprints need it.
    used: AtomicU16,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}

/// The permission to share, or to reset counts of sharers. If it is dropped, its requests count as unsettled.
#[must_use = "dropping a pass leaves its client unsettled"]
#[derive(Debug)]
pub struct Pass<'g>(&'g AtomicU64);

impl Pass<'_> {
    /// Ends a share, all of whose requests were awaited or were never posted.
    #[inline]
    pub fn done(self) {
        count_section();
        // Release: pairs with Acquire in `is_clear`. Everything that this client awaited has happened before its
        // compute node reports that the client is clear.
        self.0.fetch_sub(SHARE, Ordering::Release);
        mem::forget(self);
    }
}

impl Pass<'_> {
    /// Ends the share after an error. The memory node did not answer, so the client does not try to settle the share
    /// before the gate is shut.
    pub fn failed(self) {
        count_section();
        // Relaxed: only the client itself acts on this flag.
        self.0.fetch_or(CUT_OFF, Ordering::Relaxed);
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        count_section();
        // Release: as `done` says.
        self.0.fetch_add(UNSETTLED - SHARE, Ordering::Release);
    }
}

impl Gate {
    /// Makes an open gate for the clients with ids below `clients`.
    pub fn new(clients: u16) -> Self {
        Self {
            words: (0..clients).map(|_| AtomicU64::new(0)).collect(),
            used: AtomicU16::new(0),
        }
    }

    /// Returns the number of bytes that this gate takes on the heap.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    #[inline]
    fn word(&self, client: u16) -> &AtomicU64 {
        let (len, client) = (self.words.len(), usize::from(client));
        let lines = len / IN_LINE;
        match client < lines * IN_LINE {
            true => &self.words[client % lines * IN_LINE + client / lines],
            false => &self.words[client % len],
        }
    }

    /// Lets `client` share once. Returns `None` if the gate is shut. The client may post requests of the share until it
    /// ends the pass.
    #[inline]
    pub fn enter(&self, client: u16) -> Option<Pass<'_>> {
        let (pass, before) = self.begin(client);
        if before & SHUT == 0 {
            return Some(pass);
        }
        pass.done();
        None
    }

    /// Marks `client` as busy, although the gate may be shut. The client that resets the counts calls this. If it drops
    /// the pass before it has finished, its requests must land before another client resets the counts.
    pub fn occupy(&self, client: u16) -> Pass<'_> {
        self.begin(client).0
    }

    /// Begins a share of `client`. Returns the pass, and the client's word before the change.
    #[inline]
    fn begin(&self, client: u16) -> (Pass<'_>, u64) {
        count_section();
        // Relaxed: only fingerprints read it, between two steps.
        if self.used.load(Ordering::Relaxed) <= client {
            self.used.fetch_max(client + 1, Ordering::Relaxed); // Relaxed: as above.
        }
        let word = self.word(client);
        // Acquire: pairs with Release in `open`. The counts were reset before this client posts its share.
        let before = word.fetch_add(SHARE, Ordering::Acquire);
        (Pass(word), before)
    }

    /// Returns whether the gate is shut for `client`.
    #[inline]
    pub fn is_shut(&self, client: u16) -> bool {
        count_section();
        // Relaxed: a hint.
        self.word(client).load(Ordering::Relaxed) & SHUT != 0
    }

    /// Shuts the gate: no client enters from now on.
    pub fn shut(&self) {
        count_section();
        for word in &*self.words {
            // Relaxed: a change of one word is ordered with every other change of this word, so a client that enters
            // later finds the gate shut, and `is_clear` sees every client that entered before.
            word.fetch_or(SHUT, Ordering::Relaxed);
        }
    }

    /// Opens the gate.
    pub fn open(&self) {
        count_section();
        for word in &*self.words {
            // Release: pairs with Acquire in `begin`.
            word.fetch_and(!SHUT, Ordering::Release);
        }
    }

    /// Returns whether `client` has no share in progress, and everything that it posted for shares has landed. While
    /// the gate is shut, no share begins, so `true` remains correct.
    pub fn is_clear(&self, client: u16) -> bool {
        count_section();
        // Acquire: pairs with Release in `Pass::done` and in `settle`.
        self.word(client).load(Ordering::Acquire) & !FLAGS == 0
    }

    /// Returns the number of ended shares of `client` whose requests may still land.
    #[inline]
    pub fn unsettled(&self, client: u16) -> u64 {
        count_section();
        // Relaxed: only the client's own thread ends its shares.
        (self.word(client).load(Ordering::Relaxed) & !FLAGS) / UNSETTLED
    }

    /// Records that the requests of `shares` ended shares of `client` have landed. The caller got this number from
    /// [`Gate::unsettled`], and has then awaited an answer from each memory node to a request that `client` posted
    /// later.
    pub fn settle(&self, client: u16, shares: u64) {
        count_section();
        let word = self.word(client);
        // Relaxed: as `Pass::failed` says.
        word.fetch_and(!CUT_OFF, Ordering::Relaxed);
        // Release: as `Pass::done` says.
        word.fetch_sub(shares * UNSETTLED, Ordering::Release);
    }

    /// Returns whether `client` must settle its shares before it waits for others: it has unsettled ones, and either
    /// its memory nodes answer or the gate is shut.
    #[inline]
    pub fn is_to_settle(&self, client: u16) -> bool {
        count_section();
        // Relaxed: as `unsettled` says. The gate is only a hint here.
        let word = self.word(client).load(Ordering::Relaxed);
        (word & !FLAGS) / UNSETTLED > 0 && word & FLAGS != CUT_OFF
    }
}

impl Fingerprint for Gate {
    fn fingerprint(&self) -> u64 {
        // Relaxed: fingerprints are taken between steps, while no client runs.
        let used = self.used.load(Ordering::Relaxed);
        let words = (0..used).map(|client| (client, self.word(client).load(Ordering::Relaxed))); // Relaxed: as above.
        let busy: Vec<(u16, u64)> = words.filter(|(_, word)| *word != 0).collect();
        match busy.is_empty() {
            true => 0,
            false => fingerprint_of(&busy),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_its_own_word() {
        for clients in [1, 7, 8, 9, 64, 100, 4096] {
            let gate = Gate::new(clients);
            let passes: Vec<_> = (0..clients).map(|client| gate.enter(client)).collect();
            assert!(
                gate.words
                    .iter()
                    .all(|word| word.load(Ordering::Relaxed) == SHARE)
            );
            drop(passes);
            assert!((0..clients).all(|client| gate.unsettled(client) == 1));
        }
        let gate = Gate::new(4096);
        let at = |client| (&raw const *gate.word(client)).addr() / 64;
        assert_ne!(at(0), at(1), "two lines");
    }

    #[test]
    fn a_shut_gate_lets_nobody_in_and_shares_end() {
        let gate = Gate::new(4);
        let (a, b) = (gate.enter(1).expect("open"), gate.enter(1).expect("open"));
        gate.shut();
        gate.shut();
        assert!(gate.enter(1).is_none() && gate.is_shut(1) && gate.is_shut(2));
        assert!(gate.is_clear(2) && !gate.is_clear(1));
        a.done();
        assert!(!gate.is_clear(1));
        drop(b);
        assert!(!gate.is_clear(1));
        let unsettled = gate.unsettled(1);
        drop(gate.occupy(1));
        gate.settle(1, unsettled);
        assert!(!gate.is_clear(1), "one more share was dropped meanwhile");
        gate.settle(1, gate.unsettled(1));
        assert!(gate.is_clear(1));
        gate.open();
        assert!(gate.enter(1).is_some());
    }

    #[test]
    fn equal_gates_have_equal_fingerprints() {
        let (a, b) = (Gate::new(8), Gate::new(8));
        assert_eq!(a.fingerprint(), 0);
        drop(a.enter(3));
        assert_ne!(a.fingerprint(), b.fingerprint());
        drop(b.enter(3));
        assert_eq!(a.fingerprint(), b.fingerprint());
        a.settle(3, 1);
        assert_eq!(a.fingerprint(), 0);
    }
}
