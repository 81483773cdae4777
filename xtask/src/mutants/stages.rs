//! The crates with mutants, and the tests that may kill the mutants.

/// A crate whose mutants are tested.
#[derive(Debug)]
pub(crate) struct Subject {
    /// The crate's name.
    pub(crate) name: &'static str,
    /// The stages of tests, in the order in which they run.
    pub(crate) stages: &'static [Stage],
}

/// Tests that are built and run together.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stage {
    /// The name of the stage in the table and in the file of outcomes.
    pub(crate) name: &'static str,
    /// The crate that contains the tests.
    pub(crate) package: &'static str,
    /// The test target, or `None` for the unit tests and all integration tests.
    pub(crate) target: Option<&'static str>,
    /// Run only tests whose names contain one of these; empty for all tests.
    pub(crate) filter: &'static [&'static str],
    /// The full names of tests that are left out, because they take much longer than the others.
    pub(crate) skip: &'static [&'static str],
    /// Whether the tests are built for loom.
    pub(crate) loom: bool,
}

impl Stage {
    /// Returns whether these are tests of the mutated crate itself.
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
        skip: &[],
        loom: false,
    }
}

const fn own_but(package: &'static str, skip: &'static [&'static str]) -> Stage {
    Stage { skip, ..own(package) }
}

const fn loom(package: &'static str) -> Stage {
    Stage {
        name: LOOM,
        package,
        target: Some("loom"),
        filter: &[],
        skip: &[],
        loom: true,
    }
}

const fn models(name: &'static str, filter: &'static [&'static str]) -> Stage {
    Stage {
        name,
        package: "dm-models",
        target: Some("it"),
        filter,
        skip: &[],
        loom: false,
    }
}

const fn facade(package: &'static str, filter: &'static [&'static str]) -> Stage {
    Stage {
        name: package,
        package,
        target: Some("it"),
        filter,
        skip: &[],
        loom: false,
    }
}

// These stages search only the first states of each kind's models, which takes seconds. Whole models would take up to a
// minute for each mutant.
const LOCKS: Stage = models("models: locks", &["locks_begin", "crashes_begin"]);
const SHARING: Stage = models("models: sharing", &["sharing_begins"]);
const NODES: Stage = models("models: nodes", &["nodes_begin"]);
const TREES: Stage = models("models: trees", &["trees_begin", "crashes_begin"]);

// These are the façade's tests that count verbs and blocks, use bad input, or run every operation. They take a few
// seconds.
const SHERMAN: Stage = facade(
    "dm-sherman",
    &[
        "budgets::",
        "items::",
        "bad_input::",
        "reclaim::",
        "a_tree_shrinks",
    ],
);
const SMART: Stage = facade(
    "dm-smart",
    &["budgets::", "items::", "bad_input::", "reclaim::", "one_key::"],
);
const CHIME: Stage = facade(
    "dm-chime",
    &["budgets::", "items::", "bad_input::", "conformance::"],
);
const DOLPHIN: Stage = facade(
    "dm-dolphin",
    &["budgets::", "hints::", "bad_input::", "conformance::"],
);

/// Every crate with its stages.
pub(crate) const SUBJECTS: &[Subject] = &[
    Subject {
        name: "dm-lock",
        stages: &[own("dm-lock"), loom("dm-lock"), LOCKS, SHERMAN],
    },
    Subject {
        name: "dm-leaf",
        stages: &[own("dm-leaf"), NODES, TREES, SHERMAN],
    },
    Subject {
        name: "dm-combine",
        stages: &[own("dm-combine"), loom("dm-combine"), SHARING, SHERMAN],
    },
    Subject {
        name: "dm-indirect",
        stages: &[own("dm-indirect"), NODES, TREES, SHERMAN],
    },
    Subject {
        name: "dm-alloc",
        stages: &[
            // Each of these tests makes thousands of simulated runs.
            own_but(
                "dm-alloc",
                &[
                    "silent::who_operates_is_not_fenced_at_any_interval_and_lease",
                    "silent::a_beat_that_wraps_is_found",
                ],
            ),
            loom("dm-alloc"),
            TREES,
            SHERMAN,
        ],
    },
    Subject {
        name: "dm-hopscotch",
        stages: &[
            // Each of these tests runs the whole conformance script of the test kit at least once, which takes seconds.
            own_but(
                "dm-hopscotch",
                &[
                    "conformance::default",
                    "conformance::on_cards_that_promise_little",
                    "conformance::shallow_directory",
                    "conformance::small_leaves",
                ],
            ),
            NODES,
            TREES,
            CHIME,
        ],
    },
    Subject {
        name: "dm-art",
        stages: &[own("dm-art"), TREES, SMART, DOLPHIN],
    },
];
