//! Steps: what a search chooses among, and which two of them commute.

/// What kind of step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum StepKind {
    /// A client's first poll.
    Start,
    /// A section on state that a compute node shares.
    Local,
    /// A request to the control plane is carried out.
    Control,
    /// A client goes on: its waker was called, or something that it read has changed.
    Wake,
    /// One unit of one request.
    Unit { chain: u8, request: u8, unit: u8 },
    /// The client's future is dropped.
    Cancel,
    /// The client dies; what it posted may still land.
    Crash,
    /// The client's queue pair to a memory node fails: its chains end in errors, what is left of them may still land. The
    /// first of them tells this many of its requests as carried out.
    Fail { node: u8, told: u8 },
    /// The client is cut off from a memory node: what it posted there is refused.
    Refuse { node: u8 },
    /// One unit of what a crashed client, or a failed queue pair, left behind. `must`: it can't be lost any more.
    Late {
        chain: u8,
        request: u8,
        unit: u8,
        must: bool,
    },
}

/// One step of one client. Equal states offer equal steps in equal order, whatever path led there: chains are
/// numbered by their place among those that live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    pub(crate) client: u8,
    pub(crate) kind: StepKind,
}

impl Step {
    /// Whether it is part of the program, as opposed to a fault that may or may not strike.
    pub(crate) fn is_progress(self) -> bool {
        !matches!(
            self.kind,
            StepKind::Cancel
                | StepKind::Crash
                | StepKind::Fail { .. }
                | StepKind::Refuse { .. }
                | StepKind::Late { must: false, .. }
        )
    }
}

/// What a step that was taken touched: recorded, not declared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Footprint {
    pub(crate) client: u8,
    /// It commutes with nothing.
    pub(crate) global: bool,
    /// Whether it was late, chain and request, if it was a unit and at least two more of that request are still to come.
    pub(crate) inner: Option<(bool, u8, u8)>,
    /// Bytes of flat memory.
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) writes: bool,
    /// It compared remote memory with what the client read: a pause began.
    pub(crate) compares: bool,
    /// Clients polled or woken.
    pub(crate) clients: u64,
    /// Compute nodes whose shared state was touched.
    pub(crate) nodes: u64,
    pub(crate) invokes: bool,
    pub(crate) responds: bool,
    /// It wrote a ghost variable.
    pub(crate) ghosts: bool,
    /// It used up one of the faults that may strike.
    pub(crate) fault: bool,
}

impl Footprint {
    /// Of both: for a step with several outcomes.
    pub(crate) fn join(&mut self, o: &Self) {
        self.global |= o.global || (self.from, self.to) != (o.from, o.to);
        self.inner = if self.inner == o.inner { self.inner } else { None };
        self.writes |= o.writes;
        self.compares |= o.compares;
        self.clients |= o.clients;
        self.nodes |= o.nodes;
        self.invokes |= o.invokes;
        self.responds |= o.responds;
        self.ghosts |= o.ghosts;
        self.fault |= o.fault;
    }

    /// Whether the two, possible in one state, lead to the same state in either order, neither enabling nor
    /// disabling the other.
    #[inline]
    pub(crate) fn commutes(&self, o: &Self) -> bool {
        if self.global || o.global {
            return false;
        }
        let memory = self.from < o.to && o.from < self.to && (self.writes || o.writes);
        if self.client == o.client {
            // Two units of one request, neither of which completes it in either order.
            return self.inner.is_some() && self.inner == o.inner && !memory;
        }
        !(memory
            || self.compares && o.writes
            || o.compares && self.writes
            || self.clients & o.clients != 0
            || self.nodes & o.nodes != 0
            || self.invokes && o.responds
            || self.responds && o.invokes
            || self.ghosts && o.ghosts
            || self.fault && o.fault)
    }
}

/// Answers to the free questions (`Env::elapsed`) of one step, in the order asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Answers {
    pub(crate) bits: u64,
    pub(crate) count: u8,
}

impl Answers {
    pub(crate) const MAX: u8 = 60;

    pub(crate) fn get(self, i: u8) -> Option<bool> {
        (i < self.count).then(|| self.bits >> i & 1 == 1)
    }
    pub(crate) fn push(&mut self, answer: bool) {
        self.bits |= u64::from(answer) << self.count;
        self.count += 1;
    }
    /// The next of all sequences: the last "no" becomes "yes" and what follows is asked anew.
    pub(crate) fn next(mut self) -> Option<Self> {
        while self.count > 0 {
            self.count -= 1;
            let bit = 1 << self.count;
            if self.bits & bit == 0 {
                self.bits |= bit;
                self.count += 1;
                return Some(self);
            }
            self.bits &= !bit;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_run_through_all_sequences_of_a_question_tree() {
        // Two questions, and a third only after two "yes".
        let mut seen = Vec::new();
        let mut given = Some(Answers::default());
        while let Some(preset) = given {
            let mut used = preset;
            while used.count < 2 || (used.bits == 3 && used.count < 3) {
                used.push(false);
            }
            seen.push((used.count, used.bits));
            given = used.next();
        }
        assert_eq!(seen, [(2, 0), (2, 2), (2, 1), (3, 3), (3, 7)]);
    }

    #[test]
    fn disjoint_units_commute_and_overlapping_writes_do_not() {
        let unit = |client, from: u32, writes| Footprint {
            client,
            from,
            to: from + 64,
            writes,
            clients: 0,
            ..Footprint::default()
        };
        assert!(unit(0, 0, true).commutes(&unit(1, 64, true)));
        assert!(unit(0, 0, false).commutes(&unit(1, 0, false)));
        assert!(!unit(0, 0, true).commutes(&unit(1, 32, false)));
        assert!(
            !unit(0, 0, false).commutes(&unit(0, 64, false)),
            "one client's steps keep their order"
        );
        let inner = |from| Footprint {
            inner: Some((false, 0, 0)),
            ..unit(0, from, false)
        };
        assert!(inner(0).commutes(&inner(64)), "but for units inside one request");
        let late = Footprint {
            inner: Some((true, 0, 0)),
            ..inner(64)
        };
        assert!(!inner(0).commutes(&late), "which is not that of a late chain");
    }
}
