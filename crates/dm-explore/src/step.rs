//! Steps, from which a search chooses, and the rule that decides whether two steps commute.

/// The kind of a step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum StepKind {
    /// A client is polled for the first time.
    Start,
    /// A section begins on state that the clients of a compute node share.
    Local,
    /// A request to the control plane is carried out.
    Control,
    /// A client continues, because its waker was called or its pause may end.
    Wake,
    /// One unit of one request takes effect. A racy atomic may take two such steps.
    Unit { chain: u8, request: u8, unit: u8 },
    /// The client's future is dropped.
    Cancel,
    /// The client crashes. Its posted requests may still take effect.
    Crash,
    /// The client's queue pair to a memory node fails. Its chains end in errors, and their remaining requests may
    /// still take effect. The error of the first chain reports that `told` of its requests were carried out.
    Fail { node: u8, told: u8 },
    /// The client stays cut off from a memory node. The requests that it posted there are refused.
    Refuse { node: u8 },
    /// One unit of a pending request of a crashed client or a failed queue pair takes effect. If `must` is set, the
    /// request can no longer be lost.
    Late {
        chain: u8,
        request: u8,
        unit: u8,
        must: bool,
    },
}

/// One step of one client. Equal states offer equal steps in equal order, whichever path led to them, because a chain
/// is identified by its position among the live or the late ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    pub(crate) client: u8,
    pub(crate) kind: StepKind,
}

impl Step {
    /// Returns whether the step is neither a fault nor the late effect of a request that may be lost.
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

/// The footprint of a step: everything that it touched. It is recorded when the step is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Footprint {
    pub(crate) client: u8,
    /// Whether the step commutes with no other step.
    pub(crate) global: bool,
    /// Identifies the request of a unit: whether its chain is late, the chain, and the request. `None` unless at least
    /// two more units of the request follow.
    pub(crate) inner: Option<(bool, u8, u8)>,
    /// The range of flat memory that the step touched.
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) writes: bool,
    /// Whether a pause began, so that the step compared remote memory with the values that the client had read.
    pub(crate) compares: bool,
    /// The clients, as bits, that were polled, woken or overtaken, or that a fault concerned.
    pub(crate) clients: u64,
    /// The compute nodes whose shared state was touched, as bits.
    pub(crate) nodes: u64,
    pub(crate) invokes: bool,
    pub(crate) responds: bool,
    /// Whether the step wrote a ghost variable.
    pub(crate) ghosts: bool,
    /// Whether the step used up one of the faults that the knobs allow.
    pub(crate) fault: bool,
}

impl Footprint {
    /// Adds the footprint `o`, for a step with several outcomes.
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

    /// Returns true only if two steps that are possible in one state commute: both orders lead to the same state, and
    /// neither step enables or disables the other.
    #[inline]
    pub(crate) fn commutes(&self, o: &Self) -> bool {
        if self.global || o.global {
            return false;
        }
        let memory = self.from < o.to && o.from < self.to && (self.writes || o.writes);
        if self.client == o.client {
            // Steps of one client commute only if both are units of one request, and the second one completes the
            // request in neither order.
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

/// The answers to the open questions (`Env::elapsed`) of one step, in the order of the questions.
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
    /// Returns the next sequence of answers: the last "no" becomes "yes", and the answers after it are dropped.
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
        // There are two questions, and a third one only after two "yes".
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
        assert!(inner(0).commutes(&inner(64)), "units inside one request commute");
        let late = Footprint {
            inner: Some((true, 0, 0)),
            ..inner(64)
        };
        assert!(
            !inner(0).commutes(&late),
            "a unit of a late chain belongs to another request"
        );
    }
}
