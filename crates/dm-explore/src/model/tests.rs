//! Tests which states a cache may merge, and which it must not.

use std::collections::BTreeSet;

use dm_sync::{Arc, Mutex};
use dm_verbs::{Env, LocalStep, NodeId, RemotePtr, Verbs, Why};

use super::*;
use crate::spec::{Counter, CounterOp};
use crate::verdict::Cut;

fn at(offset: u64) -> RemotePtr {
    RemotePtr::new(NodeId(0), offset).unwrap()
}

type Ends = Arc<Mutex<BTreeSet<(u64, u64)>>>;

/// Returns a model with two clients of one compute node. The value that each client writes at the end depends on the
/// order of all earlier sections.
fn sections(ends: &Ends) -> Model<Mutex<u64>> {
    let ends = Arc::clone(ends);
    let client = |to: u64| {
        move |c: Client<Mutex<u64>, NoSpec>| async move {
            let (v, me) = (c.verbs(), u64::from(c.verbs().client().0));
            v.local(LocalStep::Section).await;
            c.shared().with(|x| *x = *x * 3 + me);
            v.local(LocalStep::Section).await;
            let seen = c.shared().with(|x| *x);
            v.write(at(to), &seen.to_le_bytes()).await.unwrap();
        }
    };
    Model::new("sections")
        .shared(|_| Mutex::new(1))
        .client("A", 0, client(64))
        .client("B", 0, client(128))
        .invariant("collect", move |end| {
            ends.with(|ends| ends.insert((end.word(at(64)), end.word(at(128)))));
            Ok(())
        })
}

#[test]
fn a_cache_blind_to_shared_state_loses_ends_and_still_says_pass() {
    let run = |blind: bool, fingerprint: bool, search: Search| {
        let ends = Ends::default();
        let mut model = sections(&ends);
        model.blind = blind;
        if fingerprint {
            model = model.fingerprint(|x| x.with(|x| *x));
        }
        let report = model.run(search).expect_pass();
        (ends.with(core::mem::take), report.states)
    };
    let (all, _) = run(false, false, Search::naive());
    let (folded, states) = run(false, false, Search::exhaustive());
    let (told, fewer) = run(false, true, Search::exhaustive());
    let (lost, _) = run(true, false, Search::cached());
    assert_eq!((&folded, &told), (&all, &all));
    assert!(fewer <= states, "{fewer} {states}");
    assert!(lost.len() < all.len() && lost.is_subset(&all), "{lost:?} {all:?}");
}

#[test]
fn states_that_only_a_ghost_tells_apart_are_two() {
    let run = |search: Search| {
        let seen = Arc::new(Mutex::new((BTreeSet::new(), BTreeSet::new())));
        let (now, end) = (Arc::clone(&seen), Arc::clone(&seen));
        let client = |me: u64| {
            move |c: Client<(), NoSpec>| async move {
                // Both clients write the same value, so the states do not differ in memory.
                c.verbs().write(at(64), &[1; 8]).await.unwrap();
                c.ghost("last", me);
            }
        };
        let model = Model::new("who was last")
            .client("A", 0, client(1))
            .client("B", 1, client(2))
            .always("collect", move |state| {
                now.with(|seen| seen.0.insert(state.ghost("last")));
                Ok(())
            })
            .invariant("collect", move |state| {
                end.with(|seen| seen.1.insert(state.ghost("last")));
                Ok(())
            });
        model.run(search).expect_pass();
        seen.with(core::mem::take)
    };
    let all = (BTreeSet::from([0, 1, 2]), BTreeSet::from([1, 2]));
    for search in [
        Search::naive(),
        Search::sleeping(),
        Search::cached(),
        Search::exhaustive(),
        Search::shortest(),
    ] {
        let name = format!("{search:?}");
        assert_eq!(run(search), all, "{name}");
    }
}

/// Returns a model with a client that counts its attempts, although `Retry` rewinds them. After two attempts the
/// client acts differently.
fn lying() -> Model {
    Model::new("a lying rewind")
        .client("liar", 0, |c: Client<(), NoSpec>| async move {
            let v = c.verbs();
            let mut retry = v.retry(10);
            let mut attempts = 0;
            while v.word(at(64)).await.unwrap() < 2 {
                attempts += 1;
                retry.again(at(64), Why::Raced).await.unwrap();
                if attempts == 2 {
                    v.write(at(128), &[1; 8]).await.unwrap();
                }
            }
        })
        .client("other", 1, |c| async move {
            for value in [1u64, 0, 2] {
                c.verbs().write(at(64), &value.to_le_bytes()).await.unwrap();
            }
        })
}

#[test]
fn a_lying_rewind_is_caught_where_nothing_is_cached_and_only_there() {
    for search in [
        Search::naive(),
        Search::sleeping(),
        Search::random(1, 1000),
        Search::pct(1, 1000, 3),
    ] {
        let found = lying().run(search).expect_counterexample();
        assert_eq!(found.failure, Failure::NotDeterministic { client: 0 }, "{found}");
    }
    // The search merges two states that differ, and so misses the failing run. Therefore a pass of a search with a
    // cache assumes that loops rewind correctly.
    lying().run(Search::exhaustive()).expect_pass();
}

/// Checks the report of a run that fails only the first time, because a client keeps state outside the world. The
/// report must not call this a failure of the protocol.
#[test]
fn a_failure_that_does_not_repeat_is_reported_as_such() {
    let polled = Arc::new(std::sync::OnceLock::new());
    let model = Model::new("fails once").client("one", 0, move |c: Client<(), NoSpec>| {
        let polled = Arc::clone(&polled);
        async move {
            c.verbs().read(at(64), 8).await.unwrap();
            if polled.set(()).is_ok() {
                c.check(false, || "the first time".into());
            }
        }
    });
    let found = model.run(Search::exhaustive().threads(1)).expect_counterexample();
    assert!(matches!(found.failure, Failure::NotReproduced { .. }), "{found}");
    assert!(found.to_string().contains("the first time"), "{found}");
}

#[test]
fn an_honest_loop_is_finite_and_deterministic() {
    let model = || {
        Model::new("waits")
            .client("waiter", 0, |c: Client<(), NoSpec>| async move {
                let v = c.verbs();
                let mut retry = v.retry(10);
                while v.word(at(64)).await.unwrap() < 2 {
                    retry.again(at(64), Why::Raced).await.unwrap();
                }
            })
            .client("other", 1, |c| async move {
                for value in [1u64, 0, 2] {
                    c.verbs().write(at(64), &value.to_le_bytes()).await.unwrap();
                }
            })
    };
    let naive = model().run(Search::naive()).expect_pass();
    let cached = model().run(Search::exhaustive()).expect_pass();
    assert_eq!(naive.ends_hash, cached.ends_hash);
    model().run(Search::pct(3, 500, 3)).expect_sample();
}

#[test]
fn an_attempt_that_mends_what_its_node_shares_is_not_stuck() {
    // A stale note makes one attempt fail, and that attempt removes the note. No other client acts.
    let model = |told: bool| {
        let model = Model::new("stale note").shared(|_| Mutex::new(true));
        let model = if told {
            model.fingerprint(|stale| stale.with(|s| u64::from(*s)))
        } else {
            model
        };
        model.client("A", 0, |c: Client<Mutex<bool>, NoSpec>| async move {
            let v = c.verbs();
            let mut outer = v.retry(10);
            loop {
                v.local(LocalStep::Section).await;
                let stale = c.shared().with(core::mem::take);
                // An inner loop must not hide the change.
                let mut inner = v.retry(10);
                while v.faa(at(64), 1).await.unwrap() == 0 {
                    inner.again(at(64), Why::Raced).await.unwrap();
                }
                if !stale {
                    return;
                }
                outer.again(at(128), Why::Stale).await.unwrap();
            }
        })
    };
    for told in [false, true] {
        model(told).run(Search::exhaustive()).expect_pass();
    }
}

/// Returns a model of two clients that each add one to a counter. The adds are linearizable if `atomic` is set.
fn adds(atomic: bool) -> Model<(), Counter> {
    let add = move |c: Client<(), Counter>| async move {
        let v = c.verbs();
        c.op(CounterOp::Add(1), async {
            if atomic {
                return v.faa(at(64), 1).await.unwrap();
            }
            let old = v.word(at(64)).await.unwrap();
            v.write(at(64), &(old + 1).to_le_bytes()).await.unwrap();
            old
        })
        .await;
    };
    Model::new("adds")
        .spec(Counter(0))
        .client("A", 0, add)
        .client("B", 1, add)
}

#[test]
fn a_history_too_large_to_check_is_a_limit_and_no_counterexample() {
    adds(true).run(Search::exhaustive()).expect_pass();
    // These steps are enough for one operation.
    let limits = Limits { steps_per_key: 2 };
    for search in [
        Search::exhaustive(),
        Search::naive(),
        Search::shortest(),
        Search::random(1, 10),
        Search::pct(1, 10, 3),
    ] {
        let mut model = adds(true);
        model.limits = limits;
        let verdict = model.run(search);
        let by = Cut::History { operations: 2 };
        assert!(
            matches!(verdict, Verdict::Truncated { by: cut, .. } if cut == by),
            "{verdict}"
        );
        assert!(verdict.to_string().contains("check 2 operations on one key"));
        // A broken invariant of the same state is reported, because it is certain.
        let broken = model.always("fewer than two", move |now| match now.word(at(64)) {
            2 => Err("two".to_owned()),
            _ => Ok(()),
        });
        let found = broken.run(search).expect_counterexample();
        assert!(matches!(found.failure, Failure::Invariant { .. }), "{found}");
    }
    // A replay does not call such a history a failure either.
    let found = adds(false).run(Search::exhaustive()).expect_counterexample();
    let mut model = adds(false);
    model.limits = limits;
    assert_eq!(
        model.replay(&found.trace).map(|found| found.failure),
        Err(BadReplay::HistoryTooLarge { operations: 2 })
    );
}

/// Two adds that are not atomic leave one or two. Each history is too large to check, and two breaks an invariant.
#[test]
fn a_sampled_search_goes_on_after_a_history_too_large_to_check() {
    let mut model = adds(false).always("fewer than two", |now| match now.word(at(64)) {
        2 => Err("two".to_owned()),
        _ => Ok(()),
    });
    model.limits = Limits { steps_per_key: 2 };
    let is_cut = |seed: &u64| matches!(model.run(Search::random(*seed, 1)), Verdict::Truncated { .. });
    let seed = (0..100).find(is_cut).expect("a first run that leaves one");
    let found = model.run(Search::random(seed, 100)).expect_counterexample();
    assert!(matches!(found.failure, Failure::Invariant { .. }), "{found}");
}

/// The hash could not be applied to the new shared state, and a model that dropped it would still claim to use it.
#[test]
#[should_panic(expected = "call `shared` before `fingerprint`")]
fn a_fingerprint_of_other_shared_state_is_refused() {
    let model = Model::new("too early").fingerprint(|(): &()| 0);
    let _ = model.shared(|_| Mutex::new(1u64));
}
