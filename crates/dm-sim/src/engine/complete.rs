//! The end of a chain: the engine tells the executor which task to poll, and adds the completion to the digest of the
//! run.

use super::{Engine, Odd, Turn};
use crate::chain::{FOREIGN, NOBODY};
use crate::request::Request;
use crate::status::State;

impl Engine {
    /// Handles the completion of `chain` in the usual case, and returns the task that must be polled. Returns `None` in
    /// all other cases, which `done` handles.
    #[inline(always)]
    pub(super) fn lands(&mut self, chain: u32) -> Option<u32> {
        let c = &mut self.chains[chain as usize];
        if !c.status.flies() || c.owner >= FOREIGN || c.count != 1 || self.any_cut {
            return None;
        }
        c.status.land();
        self.verbs_done += 1;
        self.digest = take_in(self.digest, self.now, &c.first);
        Some(c.owner)
    }

    /// Handles the completion of any chain.
    #[inline(never)]
    pub(super) fn done(&mut self, chain: u32) -> Turn {
        let c = &self.chains[chain as usize];
        if self.any_cut && c.cuts != self.nodes[usize::from(c.node)].cuts && self.cut_meanwhile(chain) {
            return Turn::Idle;
        }
        let c = &mut self.chains[chain as usize];
        self.verbs_done += u64::from(c.count);
        self.digest = c.requests().fold(self.digest, |d, r| take_in(d, self.now, r));
        c.status.set_state(State::Done);
        if c.status.failed() {
            self.pairs[c.qp as usize].odd.set(Odd::BROKEN, false);
        }
        if c.status.closed() {
            self.defer_error(chain);
            self.recycle(chain);
            return Turn::Idle;
        }
        match core::mem::replace(&mut c.owner, NOBODY) {
            NOBODY => Turn::Idle,
            FOREIGN => {
                self.woken = self.foreign.remove(&chain);
                Turn::Wake
            }
            task => Turn::Poll(task),
        }
    }
}

/// Returns the digest extended by a request that completed at time `now`.
#[inline(always)]
fn take_in(digest: u64, now: u64, r: &Request) -> u64 {
    let address = r.at().raw() ^ (r.space() as u64) << 47;
    (digest ^ now).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29) ^ address
}
