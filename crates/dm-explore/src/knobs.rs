//! What the modelled RNIC, and the world around it, may do: one knob per freedom.

use core::fmt;

use dm_verbs::{AtomicUnit, AtomicVsWrite, Capability, Caps, CasThenRead, FailedCas, LineOrder};

/// How `Env::elapsed` is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Elapsed {
    /// Both answers are explored, at each question.
    Free,
    /// Never: no time limit is ever reached.
    Never,
    /// By a clock that stands still but for [`crate::Client::pass_time`]: for protocols that rely on how far apart in
    /// time two steps are, where the model says how far they are.
    Clock,
}

/// How retry loops are explored.
///
/// ```
/// use dm_explore::{Client, Knobs, Model, NoSpec, Retries, Search};
/// use dm_verbs::{NodeId, RemotePtr, Verbs, Why};
///
/// let lock = RemotePtr::new(NodeId(0), 64).unwrap();
/// // Nobody ever gives the lock back.
/// let take = move |c: Client<(), NoSpec>| async move {
///     let mut retry = c.verbs().retry(100);
///     while c.verbs().cas(lock, 0, 1).await.unwrap() != 0 {
///         if retry.again(lock, Why::Raced).await.is_err() {
///             return c.output(u64::from(retry.failed()));
///         }
///     }
/// };
/// let model = Model::new("held").client("A", 0, take).client("B", 1, take);
/// // Rewound, a loop is waited in for ever; bounded, it gives up.
/// assert!(model.run(Search::exhaustive()).counterexample().is_some());
/// let knobs = Knobs { retries: Retries::Bounded(2), ..Knobs::weak() };
/// assert!(model.run_with(&knobs, Search::exhaustive()).is_pass());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retries {
    /// A failed attempt returns the client to the state before it (`Retry`'s promise), so that loops are finite and
    /// budgets are never used up.
    Rewound,
    /// Attempts are counted and nothing is rewound; a loop has at most this many.
    Bounded(u32),
}

/// How long requests may still take effect that a failed queue pair left behind.
///
/// ```
/// use dm_explore::{Client, Knobs, Late, Model, NoSpec, Search};
/// use dm_verbs::{NodeId, RemotePtr, Verbs};
///
/// let word = RemotePtr::new(NodeId(0), 64).unwrap();
/// let model = Model::new("writes again").client("A", 0, move |c: Client<(), NoSpec>| async move {
///     let v = c.verbs();
///     if v.write(word, &1u64.to_le_bytes()).await.is_err() {
///         v.write(word, &2u64.to_le_bytes()).await.unwrap();
///         c.output(2);
///     }
/// });
/// let model = model.invariant("the last WRITE stays", move |end| match end.outputs(0).last() {
///     Some(&last) if last != end.word(word) => Err("the first one landed behind it".to_owned()),
///     _ => Ok(()),
/// });
/// let knobs = Knobs::weak().failures(1);
/// assert!(model.run_with(&knobs, Search::exhaustive()).is_pass());
/// let knobs = Knobs { late: Late::UntilFenced, ..knobs };
/// assert!(model.run_with(&knobs, Search::exhaustive()).counterexample().is_some());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Late {
    /// Until the control plane has fenced their client, or the next request of that client to that memory node takes
    /// effect. The seam promises so much: a client that connects anew has its old queue pair shut first.
    UntilNext,
    /// Until the control plane has fenced their client: what it posts later goes by another queue pair, which nothing
    /// orders behind the old one. For protocols on connections that do not shut the old queue pair first.
    UntilFenced,
}

/// The RNIC's freedoms (what [`dm_verbs::Caps`] may leave unpromised) and the faults to explore. Fields are public:
/// start from [`Knobs::weak`] or [`Knobs::strong`] and change what matters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Knobs {
    /// In which order the units of one READ are served; with `Any`, separate READs of one queue pair as well.
    pub read_lines: LineOrder,
    /// In which order the units of one WRITE land.
    pub write_lines: LineOrder,
    /// The unit that is never torn.
    pub unit: AtomicUnit,
    /// A WRITE may take effect before an earlier, unfenced READ or atomic of its queue pair.
    pub write_overtakes: bool,
    /// What a READ behind an atomic of its queue pair may do.
    pub cas_then_read: CasThenRead,
    /// `Racy`: an atomic is a read step and a write-back step, exclusive among atomics only.
    pub atomic_vs_write: AtomicVsWrite,
    /// Whether a racy CAS that fails writes back what it read.
    pub failed_cas: FailedCas,
    /// Whether host WRITEs take effect before later on-chip requests of the same queue pair.
    pub host_before_chip: bool,
    /// Whether the cards have masked atomics.
    pub masked_atomics: bool,
    /// Answers to `Env::elapsed`.
    pub elapsed: Elapsed,
    /// Retry loops.
    pub retries: Retries,
    /// At most this many clients crash, at any step; their posted requests land later, in part, or never.
    pub crashes: u8,
    /// At most this many clients are cancelled (their future is dropped), at any step.
    pub cancels: u8,
    /// At most this many queue pairs of clients fail, at any step at which a chain is in flight. All its chains end in
    /// errors that tell an unknown effect. What has taken effect stays; of the rest any part that the queue pair's order
    /// allows may take effect at any time from then on (see [`Knobs::late`]), or never. What the client posts afterwards
    /// goes by a new queue pair; or, as one more failure, is refused without effect while the client is cut off.
    pub failures: u8,
    /// How long what a failed queue pair left behind may take effect.
    pub late: Late,
    /// Declared to the protocol although the knobs do not hold it: what a protocol does that relies on it in vain.
    pub pretended: Vec<Capability>,
}

impl Default for Knobs {
    fn default() -> Self {
        Self::weak()
    }
}

impl Knobs {
    /// The default of the contract ([`dm_verbs::Caps`]): weak, except for lines of one WRITE (increasing), the atomic unit
    /// (line) and on-chip order (host before chip).
    #[must_use]
    pub fn weak() -> Self {
        Self {
            read_lines: LineOrder::Any,
            write_lines: LineOrder::Increasing,
            unit: AtomicUnit::Line,
            write_overtakes: true,
            cas_then_read: CasThenRead::AnyLineFirst,
            atomic_vs_write: AtomicVsWrite::Racy,
            failed_cas: FailedCas::WritesBack,
            host_before_chip: true,
            masked_atomics: true,
            elapsed: Elapsed::Free,
            retries: Retries::Rewound,
            crashes: 0,
            cancels: 0,
            failures: 0,
            late: Late::UntilNext,
            pretended: Vec::new(),
        }
    }

    /// The weak side of every knob.
    #[must_use]
    pub fn weakest() -> Self {
        Self {
            write_lines: LineOrder::Any,
            unit: AtomicUnit::Word,
            host_before_chip: false,
            ..Self::weak()
        }
    }

    /// What loopback and the simulator's presets declare: CAS→READ in order, atomics serialised with WRITEs.
    #[must_use]
    pub fn declared() -> Self {
        Self {
            cas_then_read: CasThenRead::InOrder,
            atomic_vs_write: AtomicVsWrite::Serialised,
            failed_cas: FailedCas::LeavesAlone,
            ..Self::weak()
        }
    }

    /// The strong side of every knob; each READ, WRITE and atomic still interleaves unit by unit.
    #[must_use]
    pub fn strong() -> Self {
        Self {
            read_lines: LineOrder::Increasing,
            write_overtakes: false,
            ..Self::declared()
        }
    }

    /// At most `n` crashes.
    #[must_use]
    pub fn crashes(mut self, n: u8) -> Self {
        self.crashes = n;
        self
    }

    /// At most `n` cancellations.
    #[must_use]
    pub fn cancels(mut self, n: u8) -> Self {
        self.cancels = n;
        self
    }

    /// At most `n` queue pairs that fail.
    #[must_use]
    pub fn failures(mut self, n: u8) -> Self {
        self.failures = n;
        self
    }

    /// Declares `c` to the protocol without holding it.
    #[must_use]
    pub fn pretend(mut self, c: Capability) -> Self {
        self.pretended.push(c);
        self
    }

    /// What the protocol is told of a node with so much memory.
    pub(crate) fn caps(&self, host_bytes: u64, chip_bytes: u64) -> Caps {
        let caps = Caps {
            host_bytes,
            chip_bytes,
            masked_atomics: self.masked_atomics,
            inline_bytes: 64,
            atomic_unit: self.unit,
            read_lines: self.read_lines,
            write_lines: self.write_lines,
            cas_then_read: self.cas_then_read,
            atomic_vs_write: self.atomic_vs_write,
            failed_cas: self.failed_cas,
            host_before_chip: self.host_before_chip,
        };
        self.pretended.iter().fold(caps, |caps, &c| caps.assume(c))
    }
}

impl fmt::Display for Knobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = |o| if o == LineOrder::Any { "any" } else { "increasing" };
        let unit = if self.unit == AtomicUnit::Line {
            "line"
        } else {
            "word"
        };
        write!(
            f,
            "read {}, write {}, unit {unit}",
            order(self.read_lines),
            order(self.write_lines)
        )?;
        write!(
            f,
            ", CAS→READ {}",
            match self.cas_then_read {
                CasThenRead::AnyLineFirst => "any line first",
                CasThenRead::WholeReadFirst => "whole READ first",
                CasThenRead::InOrder => "in order",
            }
        )?;
        f.write_str(if self.atomic_vs_write == AtomicVsWrite::Racy {
            ", atomics race with WRITEs"
        } else {
            ", atomics serialised with WRITEs"
        })?;
        if self.atomic_vs_write == AtomicVsWrite::Racy && self.failed_cas == FailedCas::WritesBack {
            f.write_str(" (a failed CAS writes back)")?;
        }
        f.write_str(if self.write_overtakes {
            ", WRITE overtakes READ"
        } else {
            ", WRITE never overtakes"
        })?;
        f.write_str(if self.host_before_chip {
            ", host before chip"
        } else {
            ", host and chip unordered"
        })?;
        if !self.masked_atomics {
            f.write_str(", no masked atomics")?;
        }
        match self.elapsed {
            Elapsed::Free => {}
            Elapsed::Never => f.write_str(", time never passes")?,
            Elapsed::Clock => f.write_str(", time passes as the model says")?,
        }
        match self.retries {
            Retries::Rewound => f.write_str(", retries rewound")?,
            Retries::Bounded(n) => write!(f, ", at most {n} retries")?,
        }
        if self.crashes > 0 {
            write!(f, ", {} crash(es)", self.crashes)?;
        }
        if self.cancels > 0 {
            write!(f, ", {} cancellation(s)", self.cancels)?;
        }
        if self.failures > 0 {
            write!(f, ", {} failure(s)", self.failures)?;
        }
        if self.failures > 0 && self.late == Late::UntilFenced {
            f.write_str(", old queue pairs live on")?;
        }
        for c in &self.pretended {
            write!(f, ", pretending {c}")?;
        }
        Ok(())
    }
}
