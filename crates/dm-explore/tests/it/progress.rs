//! Tests of the two progress requirements that a model may have: bounded bypass and lock freedom.

#![expect(
    clippy::unwrap_used,
    reason = "a panic is how a test, or a client in one, fails"
)]

use dm_explore::{Client, Cut, Failure, Knobs, Model, NoSpec, Retries, Search, Verdict};
use dm_sync::Mutex;
use dm_verbs::{Env, LocalStep, NodeId, RemotePtr, Verbs, Why};

type C = Client<(), NoSpec>;

fn at(i: u64) -> RemotePtr {
    RemotePtr::new(NodeId(0), 64 * i).unwrap()
}

/// Returns a model of clients that take a lock. Client `i` takes it `times[i]` times, with a ticket or by trying a
/// word.
fn lock(times: &'static [u32], tickets: bool, k: u32) -> Model {
    let mut model = Model::new("lock").bypass("inside", k);
    for (i, &times) in times.iter().enumerate() {
        model = model.client(["A", "B", "C"][i], i as u16, move |c: C| async move {
            let v = c.verbs();
            for _ in 0..times {
                let ticket = if tickets {
                    v.faa(at(1), 1).await.unwrap()
                } else {
                    0
                };
                c.waits("inside");
                let mut retry = v.retry(100);
                while match tickets {
                    true => v.word(at(2)).await.unwrap() != ticket,
                    false => v.cas(at(2), 0, 1).await.unwrap() != 0,
                } {
                    retry.again(at(2), Why::Raced).await.unwrap();
                }
                c.enter("inside");
                c.leave("inside");
                // The word is released by CAS because other clients try it by CAS: a WRITE could be lost between the
                // two steps of their CAS.
                match tickets {
                    true => v.write(at(2), &(ticket + 1).to_le_bytes()).await.unwrap(),
                    false => drop(v.cas(at(2), 1, 0).await.unwrap()),
                }
            }
        });
    }
    model
}

#[test]
fn tickets_bound_how_often_a_client_is_overtaken() {
    for knobs in [Knobs::weak(), Knobs::declared()] {
        lock(&[2, 2], true, 1)
            .run_with(&knobs, Search::exhaustive())
            .expect_pass();
        lock(&[1, 1, 1], true, 2)
            .run_with(&knobs, Search::exhaustive())
            .expect_pass();
        let found = lock(&[1, 1, 1], true, 1).run_with(&knobs, Search::exhaustive());
        let found = found.expect_counterexample();
        assert!(
            matches!(found.failure, Failure::Bypass { limit: 1, .. }),
            "{found}"
        );
    }
}

#[test]
fn a_client_that_tries_a_word_can_be_overtaken_any_number_of_times() {
    for search in [Search::exhaustive(), Search::cached(), Search::shortest()] {
        let found = lock(&[1, 3], false, 2).run(search).expect_counterexample();
        let failure = Failure::Bypass {
            client: 0,
            name: "inside",
            by: 1,
            limit: 2,
        };
        assert_eq!(found.failure, failure, "{found}");
        assert!(
            found
                .to_string()
                .contains("A (1) waits for `inside`, and B (2) has overtaken it"),
            "{found}"
        );
        lock(&[1, 3], false, 3).run(search).expect_pass();
    }
}

#[test]
fn a_crashed_client_is_not_overtaken() {
    let model = || {
        lock(&[1, 2], false, 1)
            .knobs(Knobs::declared().crashes(1))
            .crash_may_block()
    };
    // While A runs, B can overtake it twice. After A has crashed, no entry counts as overtaking it.
    assert!(model().run(Search::exhaustive()).counterexample().is_some());
    let model = |k| {
        Model::new("dead waiter")
            .bypass("inside", k)
            .knobs(Knobs::declared().crashes(1))
            .client("A", 0, |c: C| async move {
                c.waits("inside");
                c.verbs().write(at(3), &[1; 8]).await.unwrap();
                c.enter("inside");
                c.leave("inside");
            })
            .survivor("B", 1, |c: C| async move {
                c.enter("inside");
                c.leave("inside");
            })
    };
    model(0).run(Search::exhaustive()).expect_pass();
}

/// Adds one by READ and CAS.
async fn add(c: &C) {
    let v = c.verbs();
    let mut retry = v.retry(100);
    loop {
        let old = v.word(at(1)).await.unwrap();
        if v.cas(at(1), old, old + 1).await.unwrap() == old {
            return;
        }
        retry.again(at(1), Why::Raced).await.unwrap();
    }
}

#[test]
fn a_loop_with_cas_is_lock_free() {
    for knobs in [Knobs::weak(), Knobs::declared(), Knobs::declared().crashes(1)] {
        let model = Model::new("adds")
            .client("A", 0, |c: C| async move { add(&c).await })
            .client("B", 1, |c: C| async move { add(&c).await })
            .client("C", 2, |c: C| async move { add(&c).await });
        model
            .lock_free()
            .run_with(&knobs, Search::exhaustive())
            .expect_pass();
    }
}

#[test]
fn the_limits_of_a_search_hold_for_each_search_of_a_run() {
    let model = || {
        Model::new("adds")
            .client("A", 0, |c: C| async move { add(&c).await })
            .client("B", 1, |c: C| async move { add(&c).await })
    };
    let search = Search::exhaustive().threads(1);
    let first = model().run(search).expect_pass().steps;
    // A model that requires lock freedom needs a second search, of the whole graph.
    let model = || model().lock_free();
    let second = model().run(search).expect_pass().steps - first;
    assert!(first > 2 && second > 2, "{first} and {second} steps");
    model().run(search.steps(first.max(second))).expect_pass();
    let cut = model().run(search.steps(1));
    assert!(matches!(cut, Verdict::Truncated { by: Cut::Steps, .. }), "{cut}");
}

/// Returns a model in which each client announces itself by FAA. As long as another client is announced, it takes this
/// back and tries again.
fn announced() -> Model {
    let one = |c: C| async move {
        let v = c.verbs();
        let mut retry = v.retry(100);
        while v.faa(at(1), 1).await.unwrap() != 0 {
            v.faa(at(1), u64::MAX).await.unwrap();
            retry.again(at(1), Why::Raced).await.unwrap();
        }
        v.faa(at(1), u64::MAX).await.unwrap();
    };
    Model::new("announced").client("A", 0, one).client("B", 1, one)
}

#[test]
fn a_cycle_that_can_be_left_is_no_livelock_but_is_not_lock_free() {
    announced().run(Search::exhaustive()).expect_pass();
    let found = announced()
        .lock_free()
        .run(Search::exhaustive())
        .expect_counterexample();
    assert!(matches!(found.failure, Failure::NotLockFree { .. }), "{found}");
    let lasso = found.lasso.unwrap();
    assert!(lasso.begins < found.steps.len() && lasso.doomed.is_none());
    let again = announced().lock_free().replay(&found.trace).unwrap();
    assert_eq!((&again.failure, &again.steps), (&found.failure, &found.steps));
}

#[test]
fn a_wait_is_not_lock_free_however_it_ends() {
    let waits = |c: C| async move {
        let mut retry = c.verbs().retry(100);
        while c.verbs().word(at(1)).await.unwrap() == 0 {
            if retry.again(at(1), Why::Raced).await.is_err() {
                return;
            }
        }
    };
    let set = |c: C| async move { c.verbs().write(at(1), &[1; 8]).await.unwrap() };
    let model = || Model::new("waits").client("A", 0, waits).client("B", 1, set);
    let bounded = Knobs {
        retries: Retries::Bounded(3),
        ..Knobs::weak()
    };
    for knobs in [Knobs::weak(), bounded] {
        model().run_with(&knobs, Search::exhaustive()).expect_pass();
        let found = model().lock_free().run_with(&knobs, Search::exhaustive());
        let found = found.expect_counterexample();
        assert_eq!(
            found.failure,
            Failure::NotLockFree { clients: vec![0] },
            "{found}"
        );
        assert!(
            found.lasso.is_none(),
            "the next attempt is like the last: no steps to show"
        );
    }
}

#[test]
fn a_wait_for_a_waker_is_not_lock_free() {
    use core::task::{Poll, Waker};
    type Turn = Mutex<(bool, Option<Waker>)>;
    let model = || {
        Model::new("waker")
            .shared(|_| Turn::new((false, None)))
            .client("A", 0, |c: Client<Turn, NoSpec>| async move {
                c.verbs().local(LocalStep::Section).await;
                core::future::poll_fn(|cx| {
                    c.shared().with(|turn| {
                        turn.1 = Some(cx.waker().clone());
                        if turn.0 { Poll::Ready(()) } else { Poll::Pending }
                    })
                })
                .await;
            })
            .client("B", 0, |c: Client<Turn, NoSpec>| async move {
                c.verbs().local(LocalStep::Section).await;
                let waker = c.shared().with(|turn| {
                    turn.0 = true;
                    turn.1.take()
                });
                waker.into_iter().for_each(Waker::wake);
            })
    };
    model().run(Search::exhaustive()).expect_pass();
    let found = model()
        .lock_free()
        .run(Search::exhaustive())
        .expect_counterexample();
    assert_eq!(
        found.failure,
        Failure::NotLockFree { clients: vec![0] },
        "{found}"
    );
}
