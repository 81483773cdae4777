//! An entry of the registry: a model, where it comes from, what is expected of it, and its broken twins.

use core::fmt;

use dm_explore::{Counterexample, Failure, Knobs, Model, Search, Trace, Verdict};
use dm_history::Spec;

/// What a model is about.
///
/// ```
/// use dm_models::{Kind, all};
///
/// assert!(all().any(|entry| entry.kind == Kind::Crash && entry.kind.name() == "crash"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// A few requests that tell one side of the RNIC's contract from the other.
    Litmus,
    /// Locks.
    Lock,
    /// Read delegation and write combining.
    Combine,
    /// One node.
    Node,
    /// Whole indexes.
    Tree,
    /// Clients that die.
    Crash,
}

impl Kind {
    /// As printed.
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

/// When a case is run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Size {
    /// On every check.
    Check,
    /// By night: too long for every check.
    Nightly,
}

/// How a broken twin fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// The operations' results can't be explained.
    NotLinearizable,
    /// An invariant is broken.
    Invariant,
    /// Two are inside where one may be.
    Monitor,
    /// A client saw what it must not see.
    Check,
    /// A client panics.
    Panic,
    /// Clients wait for ever.
    Stuck,
    /// Clients go on for ever, and no run ends.
    Livelock,
    /// A client that waits is overtaken too often.
    Bypass,
    /// Clients go on for ever, or wait, and no operation completes.
    NotLockFree,
}

impl How {
    /// What `failure` is.
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

    /// As printed.
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
    /// It holds, exhaustively.
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

/// One run of a model: a shape of it, the freedoms it is explored under, and the verdict it must have.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    /// Which shape of the model (how many clients, say), in its own words; empty where there is only one.
    pub shape: &'static str,
    /// The freedoms of the RNIC, crashes and cancellations.
    pub knobs: Knobs,
    /// What must come out.
    pub expect: Expect,
    /// Other ways in which it may fail: which run is found first is the search's choice.
    pub or: Vec<How>,
    /// When it is run.
    pub size: Size,
}

impl Case {
    /// A case that must hold.
    pub fn holds(shape: &'static str, knobs: Knobs) -> Self {
        Self {
            shape,
            knobs,
            expect: Expect::Holds,
            or: Vec::new(),
            size: Size::Check,
        }
    }

    /// A case that must fail.
    pub fn fails(how: How, shape: &'static str, knobs: Knobs) -> Self {
        Self {
            expect: Expect::Fails(how),
            ..Self::holds(shape, knobs)
        }
    }

    /// The same, which may also fail in this way.
    #[must_use]
    pub fn or(mut self, how: How) -> Self {
        self.or.push(how);
        self
    }

    /// The same, run by night only.
    #[must_use]
    pub fn nightly(mut self) -> Self {
        self.size = Size::Nightly;
        self
    }
}

/// Which twin of a model.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Variant {
    /// As dmkit does it.
    Ours,
    /// As it was published.
    Published,
    /// Broken on purpose, by name: it must fail.
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

/// A twin of a model that differs from ours.
///
/// ```
/// use dm_models::{Expect, Twin, find};
///
/// let published: Twin = find("T-S3").unwrap().published.expect("it was published otherwise");
/// assert!((published.cases)().iter().any(|case| matches!(case.expect, Expect::Fails(_))));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Twin {
    /// Short, for the command line.
    pub name: &'static str,
    /// What is different.
    pub about: &'static str,
    /// Its runs; at least one must fail.
    pub cases: fn() -> Vec<Case>,
}

/// What a model is built from.
///
/// A model under other knobs than those of its cases:
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
    /// What to call it.
    pub title: String,
    /// Which shape, out of the case.
    pub shape: &'a str,
    /// Which twin.
    pub variant: Variant,
    /// The knobs that it will be explored with.
    pub knobs: &'a Knobs,
}

impl Setting<'_> {
    /// Whether this is that mutant.
    pub fn mutant(&self, name: &str) -> bool {
        matches!(self.variant, Variant::Mutant(m) if m == name)
    }

    /// Whether this is the published twin.
    pub fn published(&self) -> bool {
        self.variant == Variant::Published
    }
}

/// A model of the registry.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Unique. A flaw's model bears its id.
    pub name: &'static str,
    /// What it is about.
    pub kind: Kind,
    /// The paper's section, the code, or the document that it comes from.
    pub source: &'static str,
    /// One sentence.
    pub about: &'static str,
    /// The runs of ours, with the verdict of each.
    pub cases: fn() -> Vec<Case>,
    /// As published, where that is something else.
    pub published: Option<Twin>,
    /// Broken twins.
    pub mutants: &'static [Twin],
    /// Makes the model.
    pub build: fn(&Setting<'_>) -> Box<dyn Explorable>,
}

impl Entry {
    /// All its twins, ours first.
    pub fn variants(&self) -> impl Iterator<Item = Variant> + use<> {
        let mutants = self.mutants.iter().map(|m| Variant::Mutant(m.name));
        [Variant::Ours]
            .into_iter()
            .chain(self.published.map(|_| Variant::Published))
            .chain(mutants)
    }

    /// What is different about one of them; nothing about ours.
    pub fn twin(&self, variant: Variant) -> Option<&Twin> {
        match variant {
            Variant::Ours => None,
            Variant::Published => self.published.as_ref(),
            Variant::Mutant(name) => self.mutants.iter().find(|m| m.name == name),
        }
    }

    /// The runs of one of them; none where there is no such twin.
    pub fn cases_of(&self, variant: Variant) -> Vec<Case> {
        match variant {
            Variant::Ours => (self.cases)(),
            twin => self.twin(twin).map_or_else(Vec::new, |twin| (twin.cases)()),
        }
    }

    /// The model of a case.
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

/// A model without its types.
pub trait Explorable {
    /// Explores under these knobs.
    fn explore(&self, knobs: &Knobs, search: Search) -> Verdict;

    /// Runs a trace again.
    ///
    /// # Errors
    /// When it is a trace of another model or other knobs, or does not fail.
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
