//! The results of exploring a model: verdicts, counterexamples and reports.

use core::fmt;
use core::time::Duration;

use dm_verbs::trace::{Event, Recording};

use crate::knobs::{Elapsed, Knobs, Late, Retries};
use crate::trace::{Trace, TraceStep};

/// The kind of failure in which a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The history of the operations is not linearizable.
    NotLinearizable {
        /// The part of the history that shows the failure.
        why: String,
    },
    /// An invariant does not hold.
    Invariant {
        /// The invariant's name.
        name: &'static str,
        /// The invariant's message.
        why: String,
    },
    /// More clients are inside a section than its limit allows.
    Monitor {
        /// The client that entered last, counted from 0.
        client: u8,
        /// The section.
        name: &'static str,
        /// The number of clients inside.
        inside: u32,
        /// The limit.
        limit: u32,
    },
    /// A client's own check failed ([`Client::check`](crate::Client::check)).
    Check {
        /// The client, counted from 0.
        client: u8,
        /// The check's message.
        why: String,
    },
    /// A client panicked.
    Panic {
        /// The client, counted from 0.
        client: u8,
        /// The panic's message.
        message: String,
    },
    /// These clients have not ended, and no step is possible except faults and late requests that may be lost.
    Stuck {
        /// The clients, counted from 0.
        clients: Vec<u8>,
    },
    /// After some state, no run ends unless there is a further fault. All continuations stay in a closed set of
    /// states, in which these clients have not run to their end. [`Counterexample::lasso`] shows where the cycle
    /// begins.
    Livelock {
        /// The clients, counted from 0.
        clients: Vec<u8>,
    },
    /// A client that waited for a section was overtaken once more than [`crate::Model::bypass`] allows.
    Bypass {
        /// The client that waited, counted from 0.
        client: u8,
        /// The section.
        name: &'static str,
        /// The client that entered it, counted from 0.
        by: u8,
        /// The number of times that others may enter.
        limit: u32,
    },
    /// These clients can run for ever without completing an operation: either they wait for others, or the run is a
    /// cycle. [`crate::Model::lock_free`] forbids both.
    NotLockFree {
        /// The clients, counted from 0.
        clients: Vec<u8>,
    },
    /// The client acted differently after the same observations. Either it keeps state across `rewind`, or it uses
    /// state that is neither remote nor managed by `dm-sync`.
    NotDeterministic {
        /// The client, counted from 0.
        client: u8,
    },
    /// The search found a failing run, but the run does not fail in this way when every client is polled. Either a
    /// client is not deterministic, or [`Model::fingerprint`](crate::Model::fingerprint) is not complete.
    NotReproduced {
        /// The failure that the search found.
        why: String,
    },
}

impl Failure {
    pub(crate) fn tell(&self, names: &[String]) -> String {
        let name = |c: &u8| {
            names
                .get(usize::from(*c))
                .cloned()
                .unwrap_or_else(|| format!("client {c}"))
        };
        match self {
            Self::NotLinearizable { why } => format!("not linearizable\n{}", why.trim_end()),
            Self::Invariant { name, why } => format!("invariant `{name}` broken: {why}"),
            Self::Monitor {
                client,
                name: section,
                inside,
                limit,
            } => format!(
                "{} entered `{section}`: {inside} clients are inside, and at most {limit} may be",
                name(client)
            ),
            Self::Check { client, why } => format!("{} reports: {why}", name(client)),
            Self::Panic { client, message } => format!("{} panicked: {message}", name(client)),
            Self::Stuck { clients } => {
                let who: Vec<String> = clients.iter().map(name).collect();
                format!("stuck: {} wait(s), and nothing can change", who.join(", "))
            }
            Self::Livelock { clients } => {
                let who: Vec<String> = clients.iter().map(name).collect();
                format!(
                    "livelock: {} never end(s), whichever steps follow",
                    who.join(", ")
                )
            }
            Self::Bypass {
                client,
                name: section,
                by,
                limit,
            } => format!(
                "{} waits for `{section}`, and {} has overtaken it: more than {limit} time(s) in all",
                name(client),
                name(by)
            ),
            Self::NotLockFree { clients } => {
                let who: Vec<String> = clients.iter().map(name).collect();
                let who = who.join(", ");
                format!("not lock-free: {who} can run or wait for ever while no operation completes")
            }
            Self::NotDeterministic { client } => format!(
                "{} acted differently after observing the same: it keeps something across `rewind`, or uses hidden state",
                name(client)
            ),
            Self::NotReproduced { why } => format!(
                "this run does not fail again: a client is not deterministic, or the model's fingerprint leaves \
                 something out; the search found: {why}"
            ),
        }
    }
}

/// The completeness of a search.
///
/// ```
/// use dm_explore::{Client, Coverage, Cut, Model, NoSpec, Search, Verdict};
/// use dm_verbs::{NodeId, RemotePtr, Verbs};
///
/// let word = RemotePtr::new(NodeId(0), 64).unwrap();
/// let add = move |c: Client<(), NoSpec>| async move {
///     c.verbs().faa(word, 1).await.unwrap();
/// };
/// let model = Model::new("adds").client("A", 0, add).client("B", 1, add);
/// assert_eq!(model.run(Search::exhaustive()).report().coverage, Coverage::Exhaustive);
/// // A sample is not a pass, however large it is.
/// let some = model.run(Search::random(7, 10));
/// assert!(matches!(some, Verdict::Sampled(_)) && !some.is_pass());
/// assert_eq!(some.expect_sample().coverage, Coverage::Sampled { runs: 10, seed: 7 });
/// // A search that ended early is not a pass.
/// let cut = model.run(Search::exhaustive().states(1));
/// assert!(matches!(cut, Verdict::Truncated { by: Cut::States, .. }));
/// assert_eq!(cut.report().coverage, Coverage::Partial);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coverage {
    /// The search reached every reachable state within the bounds of the model.
    Exhaustive,
    /// The search reached a limit or found a failure, so it may not have reached all states.
    Partial,
    /// Runs were chosen at random from this seed. The result is valid only for these runs. For a replay, this is one
    /// run and the seed 0.
    Sampled {
        /// The number of runs that the search was to make. It makes fewer if it finds a failure or reaches a limit.
        runs: u64,
        /// The seed.
        seed: u64,
    },
}

/// The extent of a search, and the assumptions of its result.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The model's name.
    pub model: String,
    /// The completeness of the search.
    pub coverage: Coverage,
    /// Distinct states; 0 if the search keeps no cache.
    pub states: u64,
    /// Steps taken, including those of replays.
    pub steps: u64,
    /// Steps of replays that the search avoided by restoring saved states.
    pub spared: u64,
    /// Executions begun, and returns to saved states.
    pub executions: u64,
    /// Fingerprints under which outcomes of steps were stored, summed over the threads; 0 if the search keeps no cache.
    pub outcomes: u64,
    /// Distinct end states.
    pub ends: u64,
    /// A hash of the set of end states. All complete searches of one model with the same knobs must agree on it.
    pub ends_hash: (u64, u64),
    /// Length of the longest run, in steps.
    pub depth: u32,
    /// Wall-clock time.
    pub time: Duration,
    /// The knobs that were explored.
    pub knobs: Knobs,
    /// The assumptions of the model and of the explorer.
    pub assumptions: Vec<String>,
}

impl Report {
    /// Returns an upper bound of the probability that two distinct states, or two distinct inputs of steps, had the
    /// same fingerprint, so that a state was omitted. This is the birthday bound of `states` and `outcomes`
    /// fingerprints of 128 bits each. It is 0 if the search keeps no cache. The bound does not cover the 64 bits of a
    /// [`Model::fingerprint`](crate::Model::fingerprint).
    ///
    /// ```
    /// use dm_explore::{Client, Model, NoSpec, Search};
    ///
    /// let model = Model::new("nothing").client("A", 0, |_: Client<(), NoSpec>| async {});
    /// let report = model.run(Search::exhaustive()).expect_pass();
    /// assert!(report.omission() > 0.0 && report.omission() < 1e-36);
    /// assert_eq!(model.run(Search::naive()).expect_pass().omission(), 0.0);
    /// ```
    #[must_use]
    pub fn omission(&self) -> f64 {
        let all = self.states as f64 + self.outcomes as f64;
        let pairs = all * all / 2.0;
        pairs / 2.0_f64.powi(128)
    }

    /// Describes which requests may be lost or late, and which clients may crash.
    fn losses(knobs: &Knobs) -> String {
        let until = match knobs.late {
            Late::UntilNext => {
                "its client's next request to that memory node takes effect, or its client is fenced"
            }
            Late::UntilFenced => "its client is fenced",
        };
        let crashes = match knobs.crashes {
            0 => "no client crashes".to_owned(),
            n => format!(
                "at most {n} crash(es), of clients that have not ended; the requests of a crashed client land late, in part or never"
            ),
        };
        let failures = match knobs.failures {
            0 => "no request is lost, and no queue pair fails".to_owned(),
            n => format!(
                "at most {n} queue pair(s) fail; the requests that one leaves behind are lost, or late until {until}; after a \
                 request that is never carried out, none of its queue pair is; an error tells of a carried-out prefix \
                 only if the prefix holds an atomic"
            ),
        };
        format!("{failures}; {crashes}")
    }

    pub(crate) fn engine_assumptions(knobs: &Knobs) -> Vec<String> {
        let mut all = vec![
            "remote memory is sequentially consistent per unit; nothing orders queue pairs but awaited completions"
                .to_owned(),
            "a completion means that the request took effect; no request is carried out twice".to_owned(),
            Self::losses(knobs),
            "atomics of one queue pair run in order; READs and atomics never overtake an earlier WRITE to the same memory"
                .to_owned(),
            "payloads are copied at posting, so the reuse of a send buffer goes unseen".to_owned(),
            "states are told apart by 128-bit fingerprints of what each client observed; clients are deterministic"
                .to_owned(),
            "a pausing client is woken only by a change of what it read; from every state some run ends, but an \
             unfair run need not end: starvation goes unseen"
                .to_owned(),
        ];
        if knobs.retries == Retries::Rewound {
            all.push(
                "a failed attempt of a retry loop leaves nothing behind (`rewind`); budgets never run out"
                    .into(),
            );
        }
        if knobs.elapsed == Elapsed::Never {
            all.push("no time limit is ever reached".into());
        }
        if knobs.elapsed == Elapsed::Clock {
            all.push("time passes where the model says so, and nowhere else".into());
        }
        all
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.coverage {
            Coverage::Exhaustive => {
                write!(f, "exhaustive within its bounds: {} states", self.states)?;
                if self.states > 0 {
                    write!(
                        f,
                        " (one is left out with a probability below {:.0e})",
                        self.omission()
                    )?;
                }
            }
            Coverage::Partial => write!(f, "{} states", self.states)?,
            Coverage::Sampled { runs, seed } => {
                write!(f, "{runs} sampled runs (seed {seed}), no claim beyond them")?
            }
        }
        write!(
            f,
            ", {} end states, depth {}, {} steps, {} executions, {:.3} s",
            self.ends,
            self.depth,
            self.steps,
            self.executions,
            self.time.as_secs_f64()
        )?;
        write!(f, "\n  knobs: {}", self.knobs)?;
        for a in &self.assumptions {
            write!(f, "\n  assuming: {a}")?;
        }
        Ok(())
    }
}

/// The limit that ended a search early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Cut {
    /// The search reached its limit of states.
    States,
    /// The search reached its time limit.
    Time,
    /// A thread of the search reached its limit of steps.
    Steps,
    /// A run was longer than its limit.
    Depth,
    /// A state offered more steps than the search can choose among (128).
    Width,
    /// The linearizability check of a history reached its limit of steps, so the history may or may not be
    /// linearizable.
    History {
        /// The number of operations on the key for which the check gave up.
        operations: usize,
    },
}

/// An endless run: the steps that lead to a cycle, and the cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lasso {
    /// The number of steps before the cycle. The cycle consists of all later steps.
    pub begins: usize,
    /// The number of steps after which no end could be reached any more; `None` in a replay, and for
    /// [`Failure::NotLockFree`].
    pub doomed: Option<usize>,
    /// The number of states in the set that the run never leaves; `None` in a replay, and for [`Failure::NotLockFree`].
    pub states: Option<u64>,
}

/// A run that breaks the model.
#[derive(Clone, PartialEq, Debug)]
pub struct Counterexample {
    /// The failure.
    pub failure: Failure,
    /// The choices of the run; [`crate::Model::replay`] runs them again.
    pub trace: Trace,
    /// The steps of the run in words.
    pub steps: Vec<TraceStep>,
    /// The cycle, if the run is endless.
    pub lasso: Option<Lasso>,
    /// Names of the clients.
    pub clients: Vec<String>,
    /// Names of the lines touched, with their numbers as in [`crate::Touch`].
    pub lines: Vec<(u32, String)>,
    /// Whether the search has shown that no shorter run fails. If the run is endless, no shorter run leads to a state
    /// from which no end can be reached or, for [`Failure::NotLockFree`], to a cycle.
    pub shortest: bool,
    /// The extent of the search until it found this run.
    pub report: Report,
}

impl Lasso {
    /// Returns the note to print before step `i` (from 0) of `steps`.
    fn before(&self, i: usize, steps: usize) -> Option<String> {
        let begins = (i == self.begins).then(|| {
            let of = self.states.map_or_else(String::new, |n| {
                format!(
                    " (in a set of {n} state{} that no step leaves)",
                    if n == 1 { "" } else { "s" }
                )
            });
            format!("steps {} to {steps} repeat for ever{of}", i + 1)
        });
        let doomed = (Some(i) == self.doomed).then(|| "from here on no run ends".to_owned());
        match (doomed, begins) {
            (Some(doomed), Some(begins)) => Some(format!("{doomed}; {begins}")),
            (doomed, begins) => doomed.or(begins),
        }
    }
}

impl Counterexample {
    /// Describes the failure in words, with the names of the clients.
    #[must_use]
    pub fn reason(&self) -> String {
        self.failure.tell(&self.clients)
    }

    /// Returns the run as events, in the format that all worlds share.
    ///
    /// ```
    /// use dm_explore::{Client, Model, NoSpec, Search};
    /// use dm_verbs::trace::What;
    /// use dm_verbs::{NodeId, RemotePtr, Verbs};
    ///
    /// let word = RemotePtr::new(NodeId(0), 64).unwrap();
    /// let model = Model::new("one add").client("A", 0, move |c: Client<(), NoSpec>| async move {
    ///     let old = c.verbs().faa(word, 1).await.unwrap();
    ///     c.check(old > 0, || "nobody added before".to_owned());
    /// });
    /// let run = model.run(Search::exhaustive()).expect_counterexample().recording();
    /// assert_eq!((run.unit.as_str(), run.clients.as_slice()), ("step", &["A (1)".to_owned()][..]));
    /// let posts = |e: &&dm_verbs::trace::Event| matches!(e.what, What::Posts { .. });
    /// assert_eq!(run.events.iter().filter(posts).count(), 1);
    /// ```
    #[must_use]
    pub fn recording(&self) -> Recording {
        let mut run = Recording::new("explorer", "step", self.clients.clone());
        for (i, step) in self.steps.iter().enumerate() {
            run.events.push(Event {
                at: i as u64 + 1,
                client: step.client as u16 + 1,
                what: step.kind.clone(),
                text: step.what.clone(),
            });
            run.events.extend(step.then.iter().cloned());
        }
        run
    }
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = if self.shortest { "shortest run" } else { "a run" };
        writeln!(
            f,
            "{}: {} ({length}, {} steps)",
            self.report.model,
            self.failure.tell(&self.clients),
            self.steps.len()
        )?;
        for (i, step) in self.steps.iter().enumerate() {
            if let Some(note) = self.lasso.and_then(|l| l.before(i, self.steps.len())) {
                writeln!(f, "      --- {note}")?;
            }
            let who = self.clients.get(step.client).map_or("?", String::as_str);
            writeln!(f, "{:>4}. {who}: {}", i + 1, step.what)?;
            for then in &step.then {
                let client = usize::from(then.client.saturating_sub(1));
                let who = self.clients.get(client).map_or("?", String::as_str);
                writeln!(f, "        {who} {then}")?;
            }
        }
        write!(
            f,
            "replay with trace \"{}\"\n  knobs: {}",
            self.trace, self.report.knobs
        )
    }
}

/// The result of exploring a model.
#[derive(Clone, PartialEq, Debug)]
#[must_use = "only `Pass` is a pass"]
pub enum Verdict {
    /// Nothing failed, and the search was complete.
    Pass(Box<Report>),
    /// Nothing failed in the runs that were chosen at random. Other runs may fail, so this is not a pass.
    Sampled(Box<Report>),
    /// A run fails.
    Counterexample(Box<Counterexample>),
    /// The search reached a limit before it was complete, so this is not a pass.
    Truncated {
        /// The limit that the search reached.
        by: Cut,
        /// The extent of the search until then.
        report: Box<Report>,
    },
}

impl Verdict {
    /// Returns whether the model passed: the search was complete, and nothing failed. A sample never passes.
    #[must_use]
    pub fn is_pass(&self) -> bool {
        matches!(self, Self::Pass(_))
    }

    /// Returns the counterexample, if there is one.
    #[must_use]
    pub fn counterexample(&self) -> Option<&Counterexample> {
        match self {
            Self::Counterexample(found) => Some(found),
            _ => None,
        }
    }

    /// Returns the extent of the search.
    #[must_use]
    pub fn report(&self) -> &Report {
        match self {
            Self::Pass(report) | Self::Sampled(report) | Self::Truncated { report, .. } => report,
            Self::Counterexample(found) => &found.report,
        }
    }

    /// Returns the report of a pass. This is for tests.
    ///
    /// # Panics
    /// Panics with the whole verdict unless it is a pass.
    #[track_caller]
    pub fn expect_pass(self) -> Report {
        match self {
            Self::Pass(report) => *report,
            other => panic!("{other}"),
        }
    }

    /// Returns the report of a sample. This is for tests.
    ///
    /// # Panics
    /// Panics with the whole verdict unless it is a sample in which nothing failed.
    #[track_caller]
    pub fn expect_sample(self) -> Report {
        match self {
            Self::Sampled(report) => *report,
            other => panic!("a sample was expected\n{other}"),
        }
    }

    /// Returns the counterexample. This is for tests of broken twins.
    ///
    /// # Panics
    /// Panics unless there is a counterexample.
    #[track_caller]
    pub fn expect_counterexample(self) -> Counterexample {
        match self {
            Self::Counterexample(found) => *found,
            other => panic!("a counterexample was expected\n{other}"),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass(report) => write!(f, "{}: PASS, {report}", report.model),
            Self::Sampled(report) => {
                write!(
                    f,
                    "{}: NOTHING FOUND, which is not a pass; {report}",
                    report.model
                )
            }
            Self::Counterexample(found) => write!(f, "FAIL {found}"),
            Self::Truncated { by, report } => {
                let limit = match by {
                    Cut::States => "states",
                    Cut::Time => "time",
                    Cut::Steps => "steps",
                    Cut::Depth => "depth of a run",
                    Cut::Width => "steps offered at once",
                    Cut::History { operations } => &format!(
                        "steps to check {operations} operations on one key for linearizability (use fewer operations)"
                    ),
                };
                write!(
                    f,
                    "{}: TRUNCATED by the limit of {limit}, which is not a pass; so far {report}",
                    report.model
                )
            }
        }
    }
}
