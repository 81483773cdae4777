//! Runs the script of every index, and many clients with every answer checked.

use dm_index::Key8;
use dm_testkit::{Family, Stress, TestKey, WorldKind, conform, seats, stress};

use crate::Opened;

/// The index with nodes of this many entries.
struct Span(usize);

impl Family for Span {
    type Index<K: TestKey> = Opened<K>;
    fn index<K: TestKey>(&self, value_bytes: usize) -> Self::Index<K> {
        Opened::with_span(self.0, value_bytes)
    }
}

// Nodes are small, so that they split and merge.

#[test]
fn it_passes_the_script_of_every_index_on_loopback() {
    conform(&Span(6), WorldKind::LoopbackDelays);
}

#[test]
fn it_passes_the_script_of_every_index_on_a_simulated_testbed() {
    conform(&Span(6), WorldKind::SimCx6);
}

#[test]
fn many_clients_get_only_right_answers_on_cards_that_promise_little() {
    for seed in 0..8 {
        let script = Stress {
            // The index grows and shrinks four times.
            waves: 4,
            keys: 1_000,
            ..Stress::new(8_000, seed)
        };
        let world = WorldKind::SimWeak(seed).build(3, 2, seed);
        let report = stress(
            Opened::<Key8>::with_span(6, 8),
            &world,
            &seats(3, 6, 3),
            &script,
        );
        let report = report.expect_correct();
        assert!(report.meter.splits > 10, "{report}");
        assert!(report.meter.merges > 0, "{report}");
    }
}
