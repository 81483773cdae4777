//! Models of a radix tree whose headers hold no key bytes, so that clients skip the bytes in front of a branch.

use super::races::{FULL, ROOM, SPARSE};
use super::world::{build, options};
use crate::tree::world::{Do, Script, Shape, cold, holds, plain, with};
use crate::{Case, Entry, How, Kind, Twin};
use Do::{Get, Insert, Remove, Scan};
use smart::{Compression, Options};

const fn skipping() -> Options {
    Options {
        compression: Compression::OPTIMISTIC,
        ..options()
    }
}

const SHAPES: &[Shape] = &[
    (
        // The second client finds the leaf of key 1, or the new node above it.
        "header split, get",
        with(FULL, &[(0, &[Insert(0x101)]), (1, &[Get(1), Get(0x101)])]),
    ),
    (
        // The second client may find a slot without a child in the old node.
        "header split, get vacant",
        with(ROOM, &[(0, &[Insert(0x103)]), (1, &[Get(0x103)])]),
    ),
    (
        "header split, header split",
        with(FULL, &[(0, &[Insert(0x101)]), (1, &[Insert(0x201)])]),
    ),
    (
        // The second header split is above the first one.
        "header split, header split above",
        with(FULL, &[(0, &[Insert(0x101)]), (1, &[Insert(0x1_0101)])]),
    ),
    (
        "header split, same key",
        with(ROOM, &[(0, &[Insert(0x103)]), (1, &[Insert(0x103)])]),
    ),
    (
        "header split, insert",
        with(ROOM, &[(0, &[Insert(0x103)]), (1, &[Insert(3), Get(0x103)])]),
    ),
    (
        "growth, header split",
        with(FULL, &[(0, &[Insert(3)]), (1, &[Insert(0x101)])]),
    ),
    (
        "merge, header split",
        with(SPARSE, &[(0, &[Remove(1)]), (1, &[Insert(0x103)])]),
    ),
    (
        // If both keys are removed first, no leaf shows the node's prefix.
        "removals, header split",
        with(FULL, &[(0, &[Remove(1), Remove(2)]), (1, &[Insert(0x103)])]),
    ),
    (
        "scan, header split",
        Script {
            always: &[1, 2],
            ..with(FULL, &[(0, &[Insert(0x101)]), (1, &[Scan(1)])])
        },
    ),
    (
        "header split, insert, get",
        with(
            cold(FULL, &[2]),
            &[(0, &[Insert(0x101)]), (1, &[Insert(0x201)]), (2, &[Get(0x101)])],
        ),
    ),
];

pub(crate) const RACES: Entry = Entry {
    name: "radix-skipped",
    kind: Kind::Tree,
    source: "docs/protocol/smart.md M29, M30",
    about: "Header splits run at the same time as gets, inserts, growth, removals, merges and scans on a radix \
        tree whose headers hold no key bytes. Every result is right, and every leaf is where its key belongs.",
    cases: || holds(SHAPES),
    published: None,
    mutants: &[Twin {
        name: "trusts-skipped",
        about: "a node that a client reaches through a cached link proves that a key is absent, although the \
            client skipped key bytes on its way",
        cases: || {
            plain()
                .map(|k| Case::fails(How::NotLinearizable, "header split, get", k))
                .into()
        },
    }],
    build: |s| {
        let mut options = skipping();
        options.flaws.inner.trusts_skipped = s.mutant("trusts-skipped");
        build(SHAPES, s, options)
    },
};
