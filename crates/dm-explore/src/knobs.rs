//! The knobs: one for each freedom of the modelled RNIC and of its environment.

use core::fmt;

use dm_verbs::{AtomicUnit, AtomicVsWrite, Capability, Caps, CasThenRead, FailedCas, LineOrder};

/// The results that `Env::elapsed` may return.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Elapsed {
    /// Each call is explored with both results.
    Free,
    /// The result is always `false`: no time limit is ever reached.
    Never,
    /// The result comes from a clock, which advances only in [`crate::Client::pass_time`]. This is for protocols that
    /// rely on the time between two steps; the model sets that time.
    Clock,
}

/// The way in which retry loops are explored.
///
/// ```
/// use dm_explore::{Client, Knobs, Model, NoSpec, Retries, Search};
/// use dm_verbs::{NodeId, RemotePtr, Verbs, Why};
///
/// let lock = RemotePtr::new(NodeId(0), 64).unwrap();
/// // No client ever releases the lock.
/// let take = move |c: Client<(), NoSpec>| async move {
///     let mut retry = c.verbs().retry(100);
///     while c.verbs().cas(lock, 0, 1).await.unwrap() != 0 {
///         if retry.again(lock, Why::Raced).await.is_err() {
///             return c.output(u64::from(retry.failed()));
///         }
///     }
/// };
/// let model = Model::new("held").client("A", 0, take).client("B", 1, take);
/// // If attempts are rewound, the client waits for ever; if they are bounded, the loop ends with an error.
/// assert!(model.run(Search::exhaustive()).counterexample().is_some());
/// let knobs = Knobs { retries: Retries::Bounded(2), ..Knobs::weak() };
/// assert!(model.run_with(&knobs, Search::exhaustive()).is_pass());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retries {
    /// After a failed attempt, the client is in the same state as before the attempt, as `Retry` promises. So budgets
    /// are never used up, and loops are finite, except those that the crate's documentation lists among its limits.
    Rewound,
    /// Attempts are counted, and the client is not rewound. A loop makes at most this many attempts (but always one),
    /// and with `Retry::again_within` at most one more.
    Bounded(u32),
}

/// The time until which pending requests of a failed queue pair may still take effect.
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
    /// Pending requests may take effect until the control plane has fenced the client, or until the client's next
    /// request to that memory node takes effect. The traits of `dm-verbs` promise this: when a client reconnects, its
    /// old queue pair is shut first.
    UntilNext,
    /// Pending requests may take effect until the control plane has fenced the client. The client's later requests use
    /// another queue pair, so they are not ordered after the pending ones. Use this for protocols whose connections do
    /// not shut the old queue pair before they use a new one.
    UntilFenced,
}

/// The freedoms of the RNIC (most of them are fields of [`dm_verbs::Caps`]), of time and of retry loops, and the faults
/// to explore. Start from [`Knobs::weak`] or [`Knobs::strong`], and change the fields that matter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Knobs {
    /// The order in which the units of one READ are served. With `Any`, separate READs of one queue pair are
    /// unordered too.
    pub read_lines: LineOrder,
    /// The order in which the units of one WRITE take effect.
    pub write_lines: LineOrder,
    /// The unit that is never torn.
    pub unit: AtomicUnit,
    /// Whether a WRITE without a fence may take effect before an earlier READ or atomic of its queue pair.
    pub write_overtakes: bool,
    /// The ways in which a READ may overtake an earlier atomic of its queue pair.
    pub cas_then_read: CasThenRead,
    /// With `Racy`, an atomic is a read step and a write-back step, which exclude only other atomics.
    pub atomic_vs_write: AtomicVsWrite,
    /// Whether a racy CAS that fails writes back what it read.
    pub failed_cas: FailedCas,
    /// Whether a WRITE to host memory takes effect before later on-chip requests of the same queue pair, and a WRITE to
    /// on-chip memory before later host requests.
    pub host_before_chip: bool,
    /// Whether the cards have masked atomics.
    pub masked_atomics: bool,
    /// The results of `Env::elapsed`.
    pub elapsed: Elapsed,
    /// The treatment of retry loops.
    pub retries: Retries,
    /// The maximum number of clients that crash. A client may crash at any step between its start and its end. Its
    /// posted requests may take effect later, in part, or never.
    pub crashes: u8,
    /// The maximum number of clients that are cancelled. A client's future may be dropped at any step between its start
    /// and its end.
    pub cancels: u8,
    /// The maximum number of failures of queue pairs. A queue pair may fail at any step at which a chain is in flight
    /// on it. All its chains in flight then end in errors. The effect of these errors is unknown, unless a chain had
    /// already been refused and has nothing left to carry out. Effects that have happened stay. Any part of the other
    /// requests that the queue pair's order allows may take effect at any later time (see [`Knobs::late`]), or never.
    /// Requests that the client posts afterwards use a new queue pair. The client may also stay cut off, so that they
    /// are refused without effect; this counts as another failure.
    pub failures: u8,
    /// The time until which pending requests of a failed queue pair may take effect.
    pub late: Late,
    /// Capabilities that are declared to the protocol although the knobs do not provide them. They show what happens if
    /// a protocol relies on a capability that the RNIC lacks.
    pub pretended: Vec<Capability>,
}

impl Default for Knobs {
    fn default() -> Self {
        Self::weak()
    }
}

impl Knobs {
    /// Returns the contract against which the protocols of dmkit are written. Every knob of [`dm_verbs::Caps`] is weak
    /// except the order of the lines of one WRITE (increasing), the atomic unit (line), the on-chip order (host before
    /// chip) and masked atomics (present). There are no faults.
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

    /// Returns [`Knobs::weak`] with the weakest order of the lines of a WRITE, atomic unit and on-chip order. Masked
    /// atomics are present.
    #[must_use]
    pub fn weakest() -> Self {
        Self {
            write_lines: LineOrder::Any,
            unit: AtomicUnit::Word,
            host_before_chip: false,
            ..Self::weak()
        }
    }

    /// Returns [`Knobs::weak`] with what loopback and the simulator's presets declare about atomics: CAS→READ in order,
    /// atomics serialised with WRITEs, and a failed CAS that writes nothing.
    #[must_use]
    pub fn declared() -> Self {
        Self {
            cas_then_read: CasThenRead::InOrder,
            atomic_vs_write: AtomicVsWrite::Serialised,
            failed_cas: FailedCas::LeavesAlone,
            ..Self::weak()
        }
    }

    /// Returns the strongest setting of every knob of [`dm_verbs::Caps`], and lets no WRITE overtake. There are no
    /// faults. Each READ and WRITE still interleaves unit by unit.
    #[must_use]
    pub fn strong() -> Self {
        Self {
            read_lines: LineOrder::Increasing,
            write_overtakes: false,
            ..Self::declared()
        }
    }

    /// Allows at most `n` crashes.
    #[must_use]
    pub fn crashes(mut self, n: u8) -> Self {
        self.crashes = n;
        self
    }

    /// Allows at most `n` cancellations.
    #[must_use]
    pub fn cancels(mut self, n: u8) -> Self {
        self.cancels = n;
        self
    }

    /// Allows at most `n` failures of queue pairs.
    #[must_use]
    pub fn failures(mut self, n: u8) -> Self {
        self.failures = n;
        self
    }

    /// Declares `c` to the protocol although the knobs do not provide it.
    #[must_use]
    pub fn pretend(mut self, c: Capability) -> Self {
        self.pretended.push(c);
        self
    }

    /// Returns the capabilities that the protocol sees for a node with this much memory.
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
