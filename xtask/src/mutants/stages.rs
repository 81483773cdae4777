//! The crates, and the tests that may kill their mutants.

/// A crate whose mutants are kept.
#[derive(Debug)]
pub(crate) struct Subject {
    /// The crate's name.
    pub(crate) name: &'static str,
    /// The tests that its mutants go through, in this order.
    pub(crate) stages: &'static [Stage],
}

/// Tests that are built and run together.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stage {
    /// A word for the table and for the file of outcomes.
    pub(crate) name: &'static str,
    /// The crate that holds the tests.
    pub(crate) package: &'static str,
    /// The test target; `None` for the unit tests and every integration test.
    pub(crate) target: Option<&'static str>,
    /// Parts of the tests' names; none for all of them.
    pub(crate) filter: &'static [&'static str],
    /// Whether it is built for loom.
    pub(crate) loom: bool,
}

impl Stage {
    /// Whether these are tests of the mutated crate itself.
    pub(crate) fn is_own(&self) -> bool {
        self.name == OWN || self.name == LOOM
    }
}

const OWN: &str = "own";
const LOOM: &str = "loom";

const fn own(package: &'static str) -> Stage {
    Stage {
        name: OWN,
        package,
        target: None,
        filter: &[],
        loom: false,
    }
}

const fn loom(package: &'static str) -> Stage {
    Stage {
        name: LOOM,
        package,
        target: Some("loom"),
        filter: &[],
        loom: true,
    }
}

const fn models(name: &'static str, filter: &'static [&'static str]) -> Stage {
    Stage {
        name,
        package: "dm-models",
        target: Some("registry"),
        filter,
        loom: false,
    }
}

const fn facade(package: &'static str) -> Stage {
    Stage {
        name: package,
        package,
        target: Some("tree"),
        filter: &[],
        loom: false,
    }
}

const LOCKS: Stage = models("models: locks", &["locks_are", "crashes_are"]);
const SHARING: Stage = models("models: sharing", &["sharing_is"]);
const NODES: Stage = models("models: nodes", &["nodes_are"]);
const TREES: Stage = models("models: trees", &["trees_are", "crashes_are"]);

/// Every crate with its stages.
pub(crate) const SUBJECTS: &[Subject] = &[
    Subject {
        name: "dm-lock",
        stages: &[own("dm-lock"), loom("dm-lock"), LOCKS, facade("sherman")],
    },
    Subject {
        name: "dm-leaf",
        stages: &[own("dm-leaf"), NODES, TREES, facade("sherman")],
    },
    Subject {
        name: "dm-combine",
        stages: &[own("dm-combine"), loom("dm-combine"), SHARING, facade("smart")],
    },
    Subject {
        name: "dm-indirect",
        stages: &[own("dm-indirect"), TREES, facade("sherman")],
    },
    Subject {
        name: "dm-alloc",
        stages: &[own("dm-alloc"), loom("dm-alloc"), TREES, facade("sherman")],
    },
    Subject {
        name: "dm-hopscotch",
        stages: &[own("dm-hopscotch"), NODES, TREES, facade("chime")],
    },
    Subject {
        name: "dm-art",
        stages: &[own("dm-art"), TREES, facade("smart"), facade("dolphin")],
    },
];
