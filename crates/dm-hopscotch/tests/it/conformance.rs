//! Runs the conformance script of every index on tables with different options. Together the tests use most kinds of
//! worlds.

use dm_hopscotch::TableOptions;
use dm_testkit::{Family, TestKey, WorldKind, conform};

use crate::common::{Table, small};

struct Tables(fn(usize) -> TableOptions);

impl Family for Tables {
    type Index<K: TestKey> = Table<K>;
    fn index<K: TestKey>(&self, value_bytes: usize) -> Self::Index<K> {
        Table::new((self.0)(value_bytes))
    }
}

#[test]
fn default() {
    conform(&Tables(TableOptions::new), WorldKind::SimCx6Colocated);
}

#[test]
fn small_leaves() {
    for kind in [WorldKind::LoopbackDelays, WorldKind::SimCx5] {
        conform(&Tables(small), kind);
    }
}

#[test]
fn on_cards_that_promise_little() {
    for number in 0..dm_testkit::WEAK_WORLDS {
        conform(&Tables(small), WorldKind::SimWeak(number));
    }
}

/// The directory might not become deep enough, so some keys are found further to the right.
#[test]
fn shallow_directory() {
    let shallow = |value_bytes| TableOptions {
        depth_max: 4,
        ..small(value_bytes)
    };
    conform(&Tables(shallow), WorldKind::LoopbackBare);
}
