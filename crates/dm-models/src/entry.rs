//! An entry of the registry: a model, its source, its expected verdicts, and its twins.

use core::fmt;

use dm_explore::{Counterexample, Failure, Knobs, Model, Search, Trace, Verdict};
use dm_history::Spec;

/// The subject of a model.
///
/// ```
/// use dm_models::{Kind, all};
///
/// assert!(all().any(|entry| entry.kind == Kind::Crash && entry.kind.name() == "crash"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// A few requests that show one rule of the RNIC's contract.
    Litmus,
    /// Locks, without an index.
    Lock,
    /// Read delegation and write combining.
    Combine,
    /// Clients of one node or of a few nodes, without a whole index.
    Node,
    /// Whole indexes, and the reuse of their memory.
    Tree,
    /// Clients that die, are fenced, or lose a connection.
    Crash,
}

impl Kind {
    /// Returns the name to print.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Litmus => "litmus",
            Self::Lock => "lock",
            Self::Combine => "combine",
            Self::Node => "node",
            Self::Tree => "tree",
            Self::Crash => "crash",
        }
    }
}

/// The size of a case, which decides how often it runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Size {
    /// Runs in every check.
    Check,
    /// Runs every night, because it takes too long for every check.
    Nightly,
}

/// The way in which a broken twin fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// The operations are not linearizable.
    NotLinearizable,
    /// An invariant is broken.
    Invariant,
    /// More clients are in a section than its limit allows.
    Monitor,
    /// A client saw something that it must not see.
    Check,
    /// A client panics in one of the runs.
    Panic,
    /// Clients wait for ever.
    Stuck,
    /// Clients run for ever, and no continuation ends.
    Livelock,
    /// A waiting client is overtaken too often.
    Bypass,
    /// Clients run or wait for ever, and no operation completes.
    NotLockFree,
}

impl How {
    /// Returns the kind of `failure`. Returns `None` if the failure shows an error of the model itself, for example
    /// that a client is not deterministic.
    pub fn of(failure: &Failure) -> Option<Self> {
        Some(match failure {
            Failure::NotLinearizable { .. } => Self::NotLinearizable,
            Failure::Invariant { .. } => Self::Invariant,
            Failure::Monitor { .. } => Self::Monitor,
            Failure::Check { .. } => Self::Check,
            Failure::Panic { .. } => Self::Panic,
            Failure::Stuck { .. } => Self::Stuck,
            Failure::Livelock { .. } => Self::Livelock,
            Failure::Bypass { .. } => Self::Bypass,
            Failure::NotLockFree { .. } => Self::NotLockFree,
            _ => return None,
        })
    }

    /// Returns the name to print.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotLinearizable => "not linearizable",
            Self::Invariant => "invariant broken",
            Self::Monitor => "two inside",
            Self::Check => "a client sees it",
            Self::Panic => "a client panics",
            Self::Stuck => "stuck",
            Self::Livelock => "livelock",
            Self::Bypass => "overtaken",
            Self::NotLockFree => "not lock-free",
        }
    }
}

/// The verdict that a case must have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expect {
    /// The model holds, exhaustively.
    Holds,
    /// There is a counterexample of this kind.
    Fails(How),
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Holds => f.write_str("holds"),
            Self::Fails(how) => write!(f, "fails ({})", how.name()),
        }
    }
}

/// One run of a model: a shape, the knobs under which it is explored, and the expected verdict. The *shape* selects
/// the size and the operations of the model, for example its number of clients.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    /// The name of the model's shape; empty if the model has only one.
    pub shape: &'static str,
    /// The knobs: the freedoms of the RNIC, and the maximum number of faults of each kind.
    pub knobs: Knobs,
    /// The verdict that the search must return.
    pub expect: Expect,
    /// Other accepted failures. If several failures are possible, the search determines which one is found.
    pub or: Vec<How>,
    /// The size of the case.
    pub size: Size,
}

impl Case {
    /// Makes a case that must hold.
    pub fn holds(shape: &'static str, knobs: Knobs) -> Self {
        Self {
            shape,
            knobs,
            expect: Expect::Holds,
            or: Vec::new(),
            size: Size::Check,
        }
    }

    /// Makes a case that must fail.
    pub fn fails(how: How, shape: &'static str, knobs: Knobs) -> Self {
        Self {
            expect: Expect::Fails(how),
            ..Self::holds(shape, knobs)
        }
    }

    /// Also accepts failures of this kind.
    #[must_use]
    pub fn or(mut self, how: How) -> Self {
        self.or.push(how);
        self
    }

    /// Makes the case run only every night.
    #[must_use]
    pub fn nightly(mut self) -> Self {
        self.size = Size::Nightly;
        self
    }
}

/// A variant of a model: dmkit's own protocol, or a twin.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Variant {
    /// The protocol of dmkit.
    Ours,
    /// The protocol as it was published.
    Published,
    /// A version with this name that was broken on purpose. It must fail.
    Mutant(&'static str),
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours => f.write_str("ours"),
            Self::Published => f.write_str("as published"),
            Self::Mutant(name) => write!(f, "mutant {name}"),
        }
    }
}

/// A twin: a variant of a model that differs from dmkit's protocol.
///
/// ```
/// use dm_models::{Expect, Twin, find};
///
/// let published: Twin = find("T-S3").unwrap().published.expect("it was published otherwise");
/// assert!((published.cases)().iter().any(|case| matches!(case.expect, Expect::Fails(_))));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Twin {
    /// The short name for the command line.
    pub name: &'static str,
    /// The difference from dmkit's protocol.
    pub about: &'static str,
    /// The cases of the twin; at least one must fail.
    pub cases: fn() -> Vec<Case>,
}

/// The parameters from which a model is built.
///
/// This example explores a model under knobs that differ from those of its cases:
/// ```
/// use dm_explore::{Knobs, Search};
/// use dm_models::{Explorable, Setting, Variant, find};
///
/// let (entry, knobs) = (find("T-S3").unwrap(), Knobs::weak());
/// let shape = (entry.cases)()[0].shape;
/// let setting = Setting { title: "as Figure 6".to_owned(), shape, variant: Variant::Published, knobs: &knobs };
/// let model: Box<dyn Explorable> = (entry.build)(&setting);
/// let found = model.explore(&knobs, Search::exhaustive()).expect_counterexample();
/// assert_eq!(model.replay(&knobs, &found.trace).unwrap().failure, found.failure);
/// ```
#[derive(Clone, Debug)]
pub struct Setting<'a> {
    /// The name to print.
    pub title: String,
    /// The shape, as in the case.
    pub shape: &'a str,
    /// The variant to build.
    pub variant: Variant,
    /// The knobs under which the model will be explored.
    pub knobs: &'a Knobs,
}

impl Setting<'_> {
    /// Returns whether this is the mutant `name`.
    pub fn mutant(&self, name: &str) -> bool {
        matches!(self.variant, Variant::Mutant(m) if m == name)
    }

    /// Returns whether this is the twin with the published protocol.
    pub fn published(&self) -> bool {
        self.variant == Variant::Published
    }
}

/// A model of the registry.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The unique name of the entry. The model of a flaw has the id of the flaw as its name.
    pub name: &'static str,
    /// The subject of the model.
    pub kind: Kind,
    /// The section of a paper, the code, or the document that describes the protocol.
    pub source: &'static str,
    /// A description of the model.
    pub about: &'static str,
    /// The cases of dmkit's protocol, with their verdicts.
    pub cases: fn() -> Vec<Case>,
    /// The published twin, if the paper's protocol differs.
    pub published: Option<Twin>,
    /// The broken twins, each of which must fail in one of its cases.
    pub mutants: &'static [Twin],
    /// Builds the model of a variant, a shape and knobs.
    pub build: fn(&Setting<'_>) -> Box<dyn Explorable>,
}

impl Entry {
    /// Returns all variants, dmkit's protocol first.
    pub fn variants(&self) -> impl Iterator<Item = Variant> + use<> {
        let mutants = self.mutants.iter().map(|m| Variant::Mutant(m.name));
        [Variant::Ours]
            .into_iter()
            .chain(self.published.map(|_| Variant::Published))
            .chain(mutants)
    }

    /// Returns the twin of this variant; `None` for dmkit's protocol, or if there is no such twin.
    pub fn twin(&self, variant: Variant) -> Option<&Twin> {
        match variant {
            Variant::Ours => None,
            Variant::Published => self.published.as_ref(),
            Variant::Mutant(name) => self.mutants.iter().find(|m| m.name == name),
        }
    }

    /// Returns the cases of a variant; none if there is no such twin.
    pub fn cases_of(&self, variant: Variant) -> Vec<Case> {
        match variant {
            Variant::Ours => (self.cases)(),
            twin => self.twin(twin).map_or_else(Vec::new, |twin| (twin.cases)()),
        }
    }

    /// Builds the model of a case.
    pub fn model(&self, variant: Variant, case: &Case) -> Box<dyn Explorable> {
        let mut title = self.name.to_owned();
        if variant != Variant::Ours {
            title += &format!(", {variant}");
        }
        if !case.shape.is_empty() {
            title += &format!(", {}", case.shape);
        }
        (self.build)(&Setting {
            title,
            shape: case.shape,
            variant,
            knobs: &case.knobs,
        })
    }
}

/// A model behind a trait without type parameters.
pub trait Explorable {
    /// Explores the model under these knobs.
    fn explore(&self, knobs: &Knobs, search: Search) -> Verdict;

    /// Runs a trace again.
    ///
    /// # Errors
    /// Returns an error if the trace belongs to another model or other knobs, if its run does not fail, or if its cycle
    /// does not lead back to its beginning.
    fn replay(&self, knobs: &Knobs, trace: &Trace) -> Result<Counterexample, dm_explore::BadReplay>;
}

impl<S, P> Explorable for Model<S, P>
where
    S: 'static,
    P: Spec + Sync + 'static,
    P::Op: Clone + core::hash::Hash,
    P::Ret: Clone + core::hash::Hash,
{
    fn explore(&self, knobs: &Knobs, search: Search) -> Verdict {
        self.run_with(knobs, search)
    }

    fn replay(&self, knobs: &Knobs, trace: &Trace) -> Result<Counterexample, dm_explore::BadReplay> {
        self.replay_with(knobs, trace)
    }
}
