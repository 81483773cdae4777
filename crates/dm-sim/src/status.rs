//! The status of a chain as one word. For nearly every chain a single comparison suffices.

/// The state of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Free,
    Building,
    Flying,
    Done,
}

/// A chain's generation, the number of its requests that have arrived but not yet acted on memory, its
/// unusual conditions, and its state.
///
/// ```text
///  63 ········ 32 | 31 ···· 16 | 15 ··· 8 | 7 ·· 0
///   generation    |    late    |   odd    | state
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status(u64);

const LATE: u32 = 16;
const GENERATION: u32 = 32;
/// Set if the engine's list holds an error of the chain.
const FAILED: u64 = 1 << 8;
/// Set if the owner has returned the chain.
const CLOSED: u64 = 1 << 9;

impl Status {
    /// The status of a free chain in generation 0.
    pub(crate) const NEW: Self = Self(State::Free as u64);

    #[inline(always)]
    pub(crate) fn state(self) -> State {
        match self.0 as u8 {
            0 => State::Free,
            1 => State::Building,
            2 => State::Flying,
            _ => State::Done,
        }
    }
    #[inline(always)]
    pub(crate) fn set_state(&mut self, to: State) {
        self.0 = self.0 & !0xFF | to as u64;
    }

    #[inline(always)]
    pub(crate) fn generation(self) -> u32 {
        (self.0 >> GENERATION) as u32
    }
    #[inline]
    pub(crate) fn failed(self) -> bool {
        self.0 & FAILED != 0
    }
    #[inline]
    pub(crate) fn set_failed(&mut self) {
        self.0 |= FAILED;
    }
    /// Returns whether the chain has failed, and clears this flag.
    #[inline]
    pub(crate) fn take_failed(&mut self) -> bool {
        let failed = self.failed();
        self.0 &= !FAILED;
        failed
    }
    #[inline]
    pub(crate) fn closed(self) -> bool {
        self.0 & CLOSED != 0
    }
    #[inline]
    pub(crate) fn set_closed(&mut self) {
        self.0 |= CLOSED;
    }

    /// Counts a request that has arrived and acts on memory later.
    #[inline]
    pub(crate) fn acts_late(&mut self) {
        self.0 += 1 << LATE;
    }
    /// Counts a late request that has acted.
    #[inline]
    pub(crate) fn executed(&mut self) {
        debug_assert!(self.0 >> LATE & 0xFFFF != 0, "a request acts once");
        self.0 -= 1 << LATE;
    }

    #[inline(always)]
    pub(crate) fn is_free(self) -> bool {
        self.0 as u8 == State::Free as u8
    }
    /// Makes the chain free, in the next generation.
    #[inline(always)]
    pub(crate) fn free(&mut self) {
        self.0 = u64::from(self.generation().wrapping_add(1)) << GENERATION | State::Free as u64;
    }
    /// Changes the chain from free to in flight.
    #[inline(always)]
    pub(crate) fn take_off(&mut self) {
        debug_assert_eq!(self.0 as u32, State::Free as u32, "it was free");
        self.0 += State::Flying as u64 - State::Free as u64;
    }
    /// Returns whether the chain is in flight, without unusual conditions.
    #[inline(always)]
    pub(crate) fn flies(self) -> bool {
        self.0 as u32 == State::Flying as u32
    }
    /// Changes the chain from in flight to done.
    #[inline(always)]
    pub(crate) fn land(&mut self) {
        self.0 += State::Done as u64 - State::Flying as u64;
    }
    /// Returns whether the chain is in flight and has `generation`, without unusual conditions.
    #[inline(always)]
    pub(crate) fn is_flying(self, generation: u32) -> bool {
        self == Self(u64::from(generation) << GENERATION | State::Flying as u64)
    }
    /// Returns whether the chain is done and has `generation`, without unusual conditions.
    #[inline(always)]
    pub(crate) fn is_done(self, generation: u32) -> bool {
        self == Self(u64::from(generation) << GENERATION | State::Done as u64)
    }
    /// Returns whether the chain is closed and done, and all its requests have acted on memory.
    #[inline]
    pub(crate) fn is_over(self) -> bool {
        let asked = CLOSED | 0xFFFF << LATE | 0xFF;
        self.0 & asked == CLOSED | State::Done as u64
    }
}

impl core::fmt::Debug for Status {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?} of generation {}", self.state(), self.generation())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_one_part_leaves_the_others_unchanged() {
        let mut s = Status::NEW;
        s.take_off();
        assert!(s.is_flying(0) && s.flies());
        s.land();
        assert!(s.is_done(0) && !s.is_over());
        s.set_closed();
        assert!(s.is_over() && !s.is_done(0));
        s.free();
        assert_eq!((s.state(), s.generation(), s.closed()), (State::Free, 1, false));
        s.take_off();
        (0..u16::MAX).for_each(|_| s.acts_late());
        assert!(!s.flies() && s.generation() == 1);
        (1..u16::MAX).for_each(|_| s.executed());
        s.set_failed();
        s.set_closed();
        s.set_state(State::Done);
        assert!(!s.is_over(), "one request has not acted yet");
        s.executed();
        assert!(s.is_over() && s.take_failed() && !s.failed() && s.closed());
        s.free();
        assert_eq!((s.generation(), s.state()), (2, State::Free));
    }
}
