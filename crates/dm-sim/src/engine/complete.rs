//! The end of a chain: who is told, and what the run's digest takes in.

use super::{Engine, Odd, Turn};
use crate::chain::{FOREIGN, NOBODY, State};

impl Engine {
    /// The completion of `chain` is found.
    #[inline]
    pub(super) fn done(&mut self, chain: u32) -> Turn {
        if self.any_cut {
            return self.done_after_a_cut(chain);
        }
        self.completed(chain)
    }

    #[cold]
    fn done_after_a_cut(&mut self, chain: u32) -> Turn {
        let c = &self.chains[chain as usize];
        if c.cuts != self.nodes[usize::from(c.node)].cuts && self.cut_meanwhile(chain) {
            return Turn::Idle;
        }
        self.completed(chain)
    }

    #[inline(always)]
    fn completed(&mut self, chain: u32) -> Turn {
        let c = &mut self.chains[chain as usize];
        c.state = State::Done;
        self.verbs_done += u64::from(c.count);
        self.digest = c.requests().fold(self.digest, |digest, r| {
            let address = r.at().raw() ^ (r.space() as u64) << 47;
            (digest ^ self.now)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .rotate_left(29)
                ^ address
        });
        let task = c.owner;
        if c.failed || c.closed || task >= FOREIGN {
            return self.completed_oddly(chain);
        }
        Turn::Poll(task)
    }

    /// It failed, or no task waits for it.
    #[inline(never)]
    fn completed_oddly(&mut self, chain: u32) -> Turn {
        let c = &mut self.chains[chain as usize];
        if c.failed {
            self.pairs[c.qp as usize].odd.set(Odd::BROKEN, false);
        }
        if c.closed {
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
