//! Failing queue pairs: what their requests may do afterwards, and two protocols that rely on more than the traits of
//! `dm-verbs` promise.

#![expect(
    clippy::unwrap_used,
    reason = "a panic is how a test, or a client in one, fails"
)]

use dm_explore::{Client, Failure, Knobs, Late, Model, NoSpec, Search};

use dm_sync::{Arc, Mutex};
use dm_verbs::{
    AtomicUnit, ClientId, Control, ControlRequest, Effect, LineOrder, NodeId, RemotePtr, VerbError,
    VerbErrorKind, Verbs, Why,
};

type C = Client<(), NoSpec>;

fn at(offset: u64) -> RemotePtr {
    RemotePtr::new(NodeId(0), offset).unwrap()
}

/// Returns a model in which two clients add one each by FAA. A client that gets an error adds again.
fn counts_twice() -> Model {
    let add = |c: C| async move { while c.verbs().faa(at(64), 1).await.is_err() {} };
    Model::new("retries an FAA")
        .knobs(Knobs::weak().failures(1))
        .place(at(64), 8, "count")
        .client("A", 0, add)
        .client("B", 1, add)
        .invariant("each add counts once", |end| match end.word(at(64)) {
            2 => Ok(()),
            n => Err(format!("2 adds made {n}")),
        })
}

#[test]
fn an_faa_that_is_tried_again_after_an_error_counts_twice() {
    let found = counts_twice().run(Search::exhaustive()).expect_counterexample();
    assert!(matches!(found.failure, Failure::Invariant { .. }), "{found}");
}

/// Returns whether client D, which waits for two crashes of three that are allowed, runs to its end after exactly
/// `deaths` crashes in some execution.
fn reserve_runs_after(deaths: usize) -> bool {
    let add = |c: C| async move {
        let _ends_the_client_either_way = c.verbs().faa(at(64), 1).await;
    };
    let model = Model::new("three may crash")
        .knobs(Knobs::weak().crashes(3))
        .place(at(64), 8, "count")
        .place(at(128), 8, "mark of D")
        .client("A", 0, add)
        .client("B", 1, add)
        .client("C", 2, add)
        .survivor("D", 3, |c: C| async move {
            c.verbs().write(at(128), &1_u64.to_le_bytes()).await.unwrap();
        })
        .after_deaths(2)
        .spared()
        .invariant("D does not run after this number of crashes", move |end| {
            let dead = (0..3).filter(|client| end.crashed(*client)).count();
            match end.word(at(128)) == 1 && dead == deaths {
                true => Err(format!("{dead} crashes")),
                false => Ok(()),
            }
        });
    model.run(Search::exhaustive()).counterexample().is_some()
}

#[test]
fn a_client_in_reserve_begins_after_exactly_its_number_of_crashes() {
    assert_eq!([1, 2, 3].map(reserve_runs_after), [false, true, true]);
}

/// Returns a model in which two clients add one each by FAA, and one of them may crash.
fn crashes_or_adds() -> Model {
    let add = |c: C| async move {
        let _ends_the_client_either_way = c.verbs().faa(at(64), 1).await;
    };
    Model::new("crashes or adds")
        .knobs(Knobs::weak().crashes(1))
        .place(at(64), 8, "count")
        .client("A", 0, add)
        .client("B", 1, add)
}

#[test]
fn an_invariant_knows_whether_all_clients_ran_to_their_end() {
    let right = crashes_or_adds().invariant("both have added, or one crashed", |end| {
        let crashed = end.crashed(0) || end.crashed(1);
        match (end.all_finished(), crashed, end.word(at(64))) {
            (true, false, 2) | (false, true, _) => Ok(()),
            what => Err(format!("{what:?}")),
        }
    });
    right.run(Search::exhaustive()).expect_pass();
    for finishes in [true, false] {
        let wrong = crashes_or_adds().invariant("always the same", move |end| match end.all_finished() {
            all if all == finishes => Ok(()),
            all => Err(format!("{all}")),
        });
        wrong.run(Search::exhaustive()).expect_counterexample();
    }
}

/// Returns a model in which three clients add one each under a lock on memory node `lock_on`; the counter is on memory
/// node 0. A client that gets an error while it holds the lock releases it if `releases` is set, and otherwise keeps
/// it.
fn late_write(lock_on: u16, releases: bool, late: Late) -> Model {
    let lock = RemotePtr::new(NodeId(lock_on), 128).unwrap();
    let count = at(64);
    let add = move |c: C| async move {
        let v = c.verbs();
        let mut retry = v.retry(100);
        loop {
            match v.cas(lock, 0, 1).await {
                Ok(0) => break,
                Ok(word) if retry.again(lock, Why::LockHeld { word }).await.is_ok() => {}
                _ => return,
            }
        }
        let written = match v.word(count).await {
            Ok(old) => v.write(count, &(old + 1).to_le_bytes()).await,
            Err(e) => Err(e),
        };
        c.output(u64::from(written.is_ok()));
        if written.is_ok() || releases {
            let _ = v.write(lock, &0u64.to_le_bytes()).await;
        }
    };
    Model::new("late WRITE")
        .memory_nodes(2)
        .knobs(Knobs {
            late,
            ..Knobs::declared().failures(1)
        })
        .crash_may_block()
        .place(lock, 8, "lock")
        .place(count, 8, "count")
        .client("A", 0, add)
        .client("B", 1, add)
        .client("C", 2, add)
        .invariant("no add is lost that was answered", move |end| {
            let answered: u64 = (0..3).flat_map(|c| end.outputs(c)).sum();
            match end.word(count) {
                n if n >= answered => Ok(()),
                n => Err(format!("{n} of {answered}")),
            }
        })
}

#[test]
fn a_lock_that_is_given_back_after_an_error_loses_an_update() {
    let run = |lock_on, releases, late| late_write(lock_on, releases, late).run(Search::exhaustive());
    // The lock is on another memory node, so there is no order between its queue pair and the queue pair to the data.
    let found = run(1, true, Late::UntilNext).expect_counterexample();
    assert!(matches!(found.failure, Failure::Invariant { .. }), "{found}");
    run(1, false, Late::UntilNext).expect_pass();
    // On one memory node, the unlock proves that the WRITE can no longer take effect, if the old queue pair is shut
    // first.
    run(0, true, Late::UntilNext).expect_pass();
    let _ = run(0, true, Late::UntilFenced).expect_counterexample();
    run(0, false, Late::UntilFenced).expect_pass();
}

/// A client's last requests, if it does not await them, may be lost although the client has run to its end.
#[test]
fn the_last_requests_of_an_ended_client_may_be_lost() {
    let model = |failures| {
        Model::new("posts and ends")
            .knobs(Knobs::weak().failures(failures))
            .client(
                "A",
                0,
                |c: C| async move { c.verbs().write(at(64), &[1]).detach() },
            )
            .client("B", 1, |c: C| async move {
                let mut retry = c.verbs().retry(100);
                while c.verbs().word(at(64)).await == Ok(0) {
                    retry.again(at(64), Why::Raced).await.unwrap();
                }
            })
    };
    model(0).run(Search::exhaustive()).expect_pass();
    let found = model(1).run(Search::exhaustive()).expect_counterexample();
    assert!(matches!(found.failure, Failure::Stuck { .. }), "{found}");
}

/// Three queue pairs have late effects, and one of the effects shuts another queue pair. Sleep sets still reach all
/// ends.
#[test]
fn a_late_effect_that_shuts_an_older_queue_pair_hides_no_end() {
    let flag = RemotePtr::new(NodeId(1), 64).unwrap();
    let run = |search| {
        Model::new("three queue pairs")
            .memory_nodes(2)
            .knobs(Knobs {
                write_lines: LineOrder::Any,
                unit: AtomicUnit::Word,
                ..Knobs::weak().failures(3)
            })
            .client("A", 0, move |c: C| async move {
                let v = c.verbs();
                let _ = v.write(at(64), &[1]).await;
                let _ = v.write(at(128), &[1; 24]).await;
                let _ = v.write(at(192), &[1]).await;
                let _ = v.write(flag, &[1]).await;
            })
            .client("B", 1, move |c: C| async move {
                let mut retry = c.verbs().retry(100);
                while c.verbs().word(flag).await == Ok(0) {
                    if retry.again(flag, Why::Raced).await.is_err() {
                        return;
                    }
                }
                let seen = c.verbs().word(at(136)).await.unwrap_or(9);
                c.output(seen);
            })
            .crash_may_block()
            .run(search)
            .expect_pass()
    };
    let (whole, slept) = (run(Search::cached()), run(Search::exhaustive()));
    assert_eq!((whole.ends, whole.ends_hash), (slept.ends, slept.ends_hash));
    assert_eq!(whole.states, slept.states);
}

/// A WRITE has more than 64 units, and stores the values that memory already has. The number of served units is part
/// of the state nevertheless.
#[test]
fn units_beyond_the_sixty_fourth_tell_states_apart() {
    let model = Model::new("a long WRITE")
        .memory(4096, 64)
        .knobs(Knobs {
            unit: AtomicUnit::Word,
            ..Knobs::strong()
        })
        .client("A", 0, |c: C| async move {
            c.verbs().write(at(64), &[0; 1000]).await.unwrap()
        });
    let states = model.run(Search::cached()).expect_pass().states;
    assert_eq!(
        states, 127,
        "before the start, and one for each number of words served"
    );
}

type Ends = std::collections::BTreeSet<Vec<u64>>;

/// Returns the end states of a program with one client: the client's outputs, then the words at 64, 128 and 192.
fn ends<F: Future<Output = ()> + 'static>(
    knobs: Knobs,
    program: impl Fn(C) -> F + Send + Sync + 'static,
) -> Ends {
    let all = Arc::new(Mutex::new(Ends::new()));
    let seen = all.clone();
    let model = Model::new("one client")
        .client("A", 0, program)
        .invariant("collect", move |end| {
            let words = [64, 128, 192].map(|offset| end.word(at(offset)));
            seen.with(|all| all.insert([end.outputs(0), &words].concat()));
            Ok(())
        });
    let _ = model.run_with(&knobs, Search::exhaustive()).expect_pass();
    all.with(core::mem::take)
}

/// Encodes an error's kind, the index of its request, and its effect; 0 is a success.
fn told(result: Result<(), VerbError>) -> u64 {
    match result {
        Ok(()) => 0,
        Err(e) => {
            let kind = match e.kind {
                VerbErrorKind::ConnectionLost => 1,
                VerbErrorKind::Unreachable => 2,
                other => panic!("{other}"),
            };
            let effect = match (e.effect, e.rest) {
                (Effect::Unknown, Effect::Unknown) => 1,
                (Effect::None, Effect::None) => 2,
                other => panic!("{other:?}"),
            };
            100 * kind + 10 * u64::from(e.index) + effect
        }
    }
}

fn set<const N: usize>(all: &[[u64; N]]) -> Ends {
    all.iter().map(|e| e.to_vec()).collect()
}

#[test]
fn requests_of_a_failed_chain_land_wholly_in_part_or_never() {
    let found = ends(Knobs::weak().failures(1), |c| async move {
        let both = c
            .verbs()
            .chain(NodeId(0))
            .write_word(at(64), 1)
            .write_word(at(128), 1);
        c.output(told(both.await));
    });
    let want = [[0, 1, 1, 0], [101, 0, 0, 0], [101, 1, 0, 0], [101, 1, 1, 0]];
    assert_eq!(found, set(&want));
}

#[test]
fn a_later_request_lands_behind_a_late_one_only_if_the_old_queue_pair_is_shut() {
    for (late, stale) in [(Late::UntilNext, false), (Late::UntilFenced, true)] {
        for atomic in [false, true] {
            let knobs = Knobs {
                late,
                ..Knobs::declared().failures(1)
            };
            let found = ends(knobs, move |c| async move {
                let v = c.verbs();
                let done = match atomic {
                    true => v.faa(at(64), 1).await.map(drop),
                    false => v.write(at(64), &1u64.to_le_bytes()).await,
                };
                if done.is_err() {
                    c.output(v.word(at(64)).await.unwrap());
                }
            });
            let mut want = set(&[[0, 0, 0, 0], [1, 1, 0, 0]]);
            want.insert(vec![1, 0, 0]);
            if stale {
                want.insert(vec![0, 1, 0, 0]);
            }
            assert_eq!(found, want, "{late:?}");
        }
    }
}

#[test]
fn nothing_is_carried_out_behind_what_never_is() {
    // A WRITE may overtake the FAA before it. But both were sent then, so the FAA takes effect as well. A fenced WRITE
    // waits for the FAA's answer.
    for fence in [false, true] {
        for knobs in [Knobs::weak().failures(1), Knobs::weak().crashes(1)] {
            let found = ends(knobs, move |c| async move {
                let chain = c.verbs().chain(NodeId(0)).faa(at(64), 1);
                let chain = if fence { chain.fence() } else { chain };
                let _ = chain.write_word(at(128), 1).post().await;
            });
            assert_eq!(found, set(&[[0, 0, 0], [1, 0, 0], [1, 1, 0]]), "{fence}");
        }
    }
}

#[test]
fn all_that_is_in_flight_to_a_node_fails_together() {
    let found = ends(Knobs::weak().failures(1), |c| async move {
        let v = c.verbs();
        let (a, b) = (v.write(at(64), &[1; 8]), v.write(at(128), &[1; 8]));
        c.output(told(a.await));
        c.output(told(b.await));
    });
    let outcomes: Ends = found.iter().map(|e| e[..2].to_vec()).collect();
    assert_eq!(outcomes, set(&[[0, 0], [0, 101], [101, 101]]));
    assert!(
        found.iter().all(|e| e[3] == 0 || e[2] != 0),
        "in order: {found:?}"
    );
}

#[test]
fn an_error_may_tell_that_the_atomic_in_front_was_carried_out() {
    let found = ends(Knobs::declared().failures(1), |c| async move {
        let chain = c.verbs().chain(NodeId(0)).faa(at(64), 1).write_word(at(128), 1);
        c.output(told(chain.post().await.map(drop)));
    });
    let want = [
        [0, 1, 1, 0],
        [101, 0, 0, 0],
        [101, 1, 0, 0],
        [101, 1, 1, 0],
        [111, 1, 0, 0],
        [111, 1, 1, 0],
    ];
    assert_eq!(found, set(&want));
}

#[test]
fn a_client_that_is_still_cut_off_is_told_that_nothing_was_done() {
    let found = ends(Knobs::declared().failures(2), |c| async move {
        let v = c.verbs();
        if v.write(at(64), &1u64.to_le_bytes()).await.is_err() {
            c.output(told(v.write(at(128), &1u64.to_le_bytes()).await));
        }
    });
    let of = |first: u64| found.iter().filter(move |e| e.len() == 4 && e[0] == first);
    // A refused request never takes effect, and does not shut the old queue pair.
    assert!(of(202).all(|e| e[2] == 0) && of(202).count() == 2, "{found:?}");
    assert_eq!((of(0).count(), of(101).count()), (2, 4), "{found:?}");
}

#[test]
fn a_fence_ends_what_an_error_left_open() {
    let model = |fence| {
        Model::new("fenced after an error")
            .client("A", 0, |c: C| async move {
                let _ = c.verbs().write(at(64), &1u64.to_le_bytes()).await;
                c.output(1);
            })
            .client("B", 1, move |c| async move {
                let v = c.verbs();
                if fence {
                    let client = ClientId(1);
                    v.call(ControlRequest::Fence { client }).await.unwrap();
                }
                let (Ok(first), Ok(second)) = (v.word(at(64)).await, v.word(at(64)).await) else {
                    return;
                };
                c.check(first == second, || format!("{first}, then {second}"));
            })
    };
    for late in [Late::UntilNext, Late::UntilFenced] {
        let knobs = Knobs {
            late,
            ..Knobs::weak().failures(1)
        };
        let _ = model(false)
            .run_with(&knobs, Search::exhaustive())
            .expect_counterexample();
        let report = model(true).run_with(&knobs, Search::exhaustive()).expect_pass();
        let told = report
            .assumptions
            .iter()
            .any(|a| a.starts_with("at most 1 queue pair(s) fail"));
        assert!(told, "{report}");
    }
    let without = model(true)
        .run_with(&Knobs::weak(), Search::exhaustive())
        .expect_pass();
    assert!(
        without
            .assumptions
            .iter()
            .any(|a| a.starts_with("no request is lost")),
        "{without}"
    );
}
