//! Tests of the explorer as a world: faults, fences, time, budgets, stuck clients, panics.

#![expect(
    clippy::unwrap_used,
    reason = "a panic is how a test, or a client in one, fails"
)]

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use dm_explore::{
    Client, Counter, CounterOp, Cut, Elapsed, Failure, Knobs, Model, NoSpec, Retries, Search, Trace, Verdict,
};
use dm_sync::{Arc, Mutex};
use dm_verbs::{
    ClientId, Control, ControlReply, ControlRequest, Effect, Env, Nanos, NodeId, RESERVED_BYTES, RemotePtr,
    VerbErrorKind, Verbs, Why,
};

type C = Client<(), NoSpec>;

fn at(offset: u64) -> RemotePtr {
    RemotePtr::new(NodeId(0), offset).unwrap()
}

/// Returns a model in which a writer may crash. A successor takes over, with or without a fence. The writer's WRITE
/// must not take effect after the takeover.
fn takeover(fence: bool) -> Model {
    Model::new("zombie write")
        .knobs(Knobs::weak().crashes(1))
        .crash_may_block()
        .place(at(64), 8, "value")
        .client("writer", 0, |c: C| async move {
            // If the fence comes first, the WRITE fails.
            let _ = c.verbs().write(at(64), &1u64.to_le_bytes()).await;
        })
        .client("successor", 1, move |c| async move {
            let v = c.verbs();
            if fence {
                v.call(ControlRequest::Fence { client: ClientId(1) })
                    .await
                    .unwrap();
            }
            let (first, second) = (v.word(at(64)).await.unwrap(), v.word(at(64)).await.unwrap());
            c.check(first == second, || format!("{first}, then {second}"));
        })
}

#[test]
fn a_dead_clients_writes_land_late_unless_it_is_fenced() {
    let found = takeover(false).run(Search::exhaustive()).expect_counterexample();
    assert!(
        matches!(found.failure, Failure::Check { client: 1, .. }),
        "{found}"
    );
    takeover(true).run(Search::exhaustive()).expect_pass();
}

#[test]
fn requests_of_a_dead_client_land_wholly_in_part_or_never() {
    let ends = Arc::new(Mutex::new(std::collections::BTreeSet::new()));
    let seen = ends.clone();
    let model = Model::new("torn by a crash")
        .knobs(Knobs::weak().crashes(1))
        .client("writer", 0, |c: C| async move {
            c.verbs().write(at(64), &[1; 128]).await.unwrap()
        })
        .invariant("collect", move |end| {
            let end = (end.word(at(64)) != 0, end.word(at(128)) != 0, end.crashed(0));
            seen.with(|seen| seen.insert(end));
            Ok(())
        });
    model.run(Search::exhaustive()).expect_pass();
    let want = [
        (false, false, true),
        (true, false, true),
        (true, true, false),
        (true, true, true),
    ];
    assert_eq!(ends.with(core::mem::take), want.into());
}

#[test]
fn a_chain_that_fails_keeps_what_has_landed_and_its_poster_goes_on() {
    let ends = Arc::new(Mutex::new(std::collections::BTreeSet::new()));
    let seen = ends.clone();
    let model = Model::new("a chain fails")
        .knobs(Knobs::weak().failures(1))
        .client("writer", 0, |c: C| async move {
            let v = c.verbs();
            let both = v.chain(NodeId(0)).write_word(at(64), 1).write_word(at(128), 1);
            if let Err(e) = both.await {
                assert_eq!(e.kind, VerbErrorKind::ConnectionLost);
                assert_eq!(e.overall(), Effect::Unknown);
                // At most one failure happens.
                v.write(at(192), &1u64.to_le_bytes()).await.unwrap();
            }
        })
        .invariant("collect", move |end| {
            seen.with(|seen| seen.insert([64, 128, 192].map(|offset| end.word(at(offset)))));
            Ok(())
        });
    model.run(Search::exhaustive()).expect_pass();
    // Without a failure, both requests of the chain take effect, and the third request is not posted. After a failure,
    // none of the two, the first, or both have taken effect when the third request takes effect. These effects come
    // before or after the client receives the error.
    let want = [[0, 0, 1], [1, 0, 1], [1, 1, 0], [1, 1, 1]].into();
    assert_eq!(ends.with(core::mem::take), want);
}

#[test]
fn waiting_for_what_never_comes_is_stuck() {
    let model = Model::new("waits for nobody").client("waiter", 0, |c: C| async move {
        let v = c.verbs();
        let mut retry = v.retry(3);
        while v.word(at(64)).await.unwrap() == 0 {
            if retry.again(at(64), Why::Raced).await.is_err() {
                return;
            }
        }
    });
    let found = model.run(Search::exhaustive()).expect_counterexample();
    assert_eq!(found.failure, Failure::Stuck { clients: vec![0] });
    // If attempts are counted and not rewound, the budget runs out.
    let counted = Knobs {
        retries: Retries::Bounded(3),
        ..Knobs::weak()
    };
    model.run_with(&counted, Search::exhaustive()).expect_pass();
}

#[test]
fn a_wait_that_time_limits_ends_in_the_explorer_only_if_attempts_are_bounded() {
    let waiter = |c: C| async move {
        let v = c.verbs();
        let mut retry = v.retry(1);
        while v.word(at(64)).await.unwrap() == 0 {
            if retry.again_within(Nanos(1), at(64), Why::Raced).await.is_err() {
                return c.output(1);
            }
        }
        c.output(2);
    };
    let waits = || Model::new("waits for long").client("waiter", 0, waiter);
    let written = || {
        waits().client("writer", 1, |c| async move {
            c.verbs().write(at(64), &[1; 8]).await.unwrap()
        })
    };
    // If attempts are rewound, the budget never runs out, so the loop never asks whether the time is over.
    let found = waits().run(Search::exhaustive()).expect_counterexample();
    assert_eq!(found.failure, Failure::Stuck { clients: vec![0] });
    assert_eq!(written().run(Search::exhaustive()).expect_pass().ends, 1);
    // Bounded attempts end the wait, even if time never passes.
    for elapsed in [Elapsed::Free, Elapsed::Never] {
        let bounded = Knobs {
            retries: Retries::Bounded(3),
            elapsed,
            ..Knobs::weak()
        };
        waits().run_with(&bounded, Search::exhaustive()).expect_pass();
        let report = written().run_with(&bounded, Search::exhaustive()).expect_pass();
        assert!(report.ends >= 2, "one end gives up, the other one sees the value");
    }
}

#[test]
fn both_answers_of_time_are_explored_and_time_ends_a_pause() {
    let model = Model::new("gives up in time")
        .client("waiter", 0, |c: C| async move {
            let v = c.verbs();
            let begun = v.now();
            let mut retry = v.retry(100);
            while v.word(at(64)).await.unwrap() == 0 {
                if v.elapsed(begun, Nanos(1)) {
                    c.output(1);
                    return;
                }
                retry.again(at(64), Why::Raced).await.unwrap();
            }
            c.output(2);
        })
        .client("writer", 1, |c| async move {
            c.verbs().write(at(64), &[1; 8]).await.unwrap()
        });
    let report = model.run(Search::exhaustive()).expect_pass();
    assert_eq!(report.ends, 2, "one end gives up, the other one sees the value");
    let late = model.invariant("never gives up", |end| match end.outputs(0) {
        [2] => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let found = late.run(Search::exhaustive()).expect_counterexample();
    let trace: Trace = found.trace.to_string().parse().unwrap();
    assert_eq!(
        late.replay(&trace).unwrap().steps,
        found.steps,
        "answers are part of a trace"
    );
}

#[test]
fn panics_are_findings() {
    let model = Model::new("panics")
        .client("A", 0, |c: C| async move {
            let seen = c.verbs().word(at(64)).await.unwrap();
            assert!(seen != 1, "saw the 1");
        })
        .client("B", 1, |c| async move {
            c.verbs().write(at(64), &1u64.to_le_bytes()).await.unwrap()
        });
    let found = model.run(Search::exhaustive()).expect_counterexample();
    assert_eq!(
        found.failure,
        Failure::Panic {
            client: 0,
            message: "saw the 1".to_owned()
        }
    );
    let svg = found.svg();
    assert!(
        svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>") && svg.contains("WRITE"),
        "{svg}"
    );
    assert!(found.chart().lines().count() >= found.steps.len() + 2);
}

#[test]
fn a_search_cut_short_is_no_pass() {
    let model = Model::new("three writers")
        .client("A", 0, |c: C| async move {
            c.verbs().write(at(64), &[1; 256]).await.unwrap()
        })
        .client("B", 0, |c| async move {
            c.verbs().write(at(64), &[2; 256]).await.unwrap()
        });
    for search in [
        Search::exhaustive().states(5),
        Search::exhaustive().depth(3),
        Search::shortest().steps(20),
    ] {
        let verdict = model.run(search);
        assert!(
            matches!(verdict, Verdict::Truncated { .. }) && !verdict.is_pass(),
            "{verdict}"
        );
        assert!(verdict.to_string().contains("not a pass"));
    }
    for search in [Search::random(1, 3), Search::pct(1, 3, 2)] {
        let verdict = model.run(search);
        assert!(
            matches!(verdict, Verdict::Sampled(_)) && !verdict.is_pass(),
            "{verdict}"
        );
        let told = verdict.to_string();
        assert!(told.contains("not a pass") && !told.contains("exhaustive") && !told.contains("PASS"));
    }
}

#[test]
fn every_search_means_the_same_by_the_length_of_a_run() {
    // Each run has two steps: the client starts, and its WRITE takes effect.
    let model = Model::new("one WRITE").client("A", 0, |c: C| async move {
        c.verbs().write(at(64), &[1; 8]).await.unwrap();
    });
    for search in [
        Search::exhaustive(),
        Search::naive(),
        Search::shortest(),
        Search::random(1, 10),
        Search::pct(1, 10, 2),
    ] {
        let whole = model.run(search.depth(2));
        assert!(!matches!(whole, Verdict::Truncated { .. }), "{whole}");
        assert_eq!(whole.report().depth, 2, "{whole}");
        let cut = model.run(search.depth(1));
        assert!(
            matches!(cut, Verdict::Truncated { by: Cut::Depth, .. }),
            "{search:?}: {cut}"
        );
    }
}

#[test]
fn errors_say_what_was_done() {
    let model = Model::new("errors")
        .memory(4096, 0)
        .client("A", 0, |c: C| async move {
            let v = c.verbs();
            let end = at(4096);
            let chain = v
                .chain(NodeId(0))
                .write_word(at(64), 1)
                .write_word(end, 1)
                .write_word(at(72), 1);
            let e = chain.post().await.unwrap_err();
            assert_eq!(
                (e.kind, e.index, e.effect),
                (VerbErrorKind::OutOfBounds { size: 4096 }, 1, Effect::None)
            );
            assert_eq!(
                (v.word(at(64)).await.unwrap(), v.word(at(72)).await.unwrap()),
                (1, 0)
            );
            v.cas(at(4), 0, 1).detach();
            assert_eq!(
                v.operation().unwrap_err().kind,
                VerbErrorKind::Misaligned,
                "a dropped ticket's error"
            );
            assert!(v.operation().is_ok());
            assert_eq!(
                v.word(RemotePtr::new(NodeId(3), 0).unwrap())
                    .await
                    .unwrap_err()
                    .kind,
                VerbErrorKind::NoSuchNode
            );
        });
    model.run(Search::exhaustive()).expect_pass();
}

#[test]
fn requests_that_cannot_be_carried_out_are_refused_as_in_every_world() {
    for (chip_bytes, masked) in [(0, false), (64, true)] {
        let knobs = Knobs {
            masked_atomics: masked,
            ..Knobs::weak()
        };
        let model = Model::new("refusals")
            .memory(4096, chip_bytes)
            .setup(|v| async move { dm_verbs::testing::check_refusals(&v).await })
            .client("A", 0, |c: C| async move {
                dm_verbs::testing::check_refusals(c.verbs()).await;
            });
        model.run_with(&knobs, Search::exhaustive()).expect_pass();
    }
}

#[test]
fn a_reply_to_a_dropped_request_is_not_taken_for_another_one() {
    let ends = Arc::new(Mutex::new(std::collections::BTreeSet::new()));
    let seen = ends.clone();
    let model = Model::new("a dropped request").client("A", 0, move |c: C| {
        let seen = seen.clone();
        async move {
            let v = c.verbs();
            {
                let mut dropped = pin!(v.chunk(NodeId(0), 4096));
                let sent = poll_fn(|cx| Poll::Ready(dropped.as_mut().poll(cx).is_pending())).await;
                assert!(sent);
            }
            // The dropped request may be carried out while the client waits for this word.
            v.word(at(64)).await.unwrap();
            let reply = v.call(ControlRequest::Describe { node: NodeId(0) }).await;
            let Ok(ControlReply::Region(region)) = reply else {
                panic!("the reply to a description is {reply:?}")
            };
            seen.with(|seen| seen.insert(region.used));
        }
    });
    model.run(Search::exhaustive()).expect_pass();
    let (without, with) = (RESERVED_BYTES, 2 * RESERVED_BYTES);
    ends.with(|ends| assert_eq!(ends.iter().copied().collect::<Vec<_>>(), [without, with]));
}

#[test]
fn chunks_are_fresh_and_setting_up_is_where_executions_begin() {
    let model = Model::new("chunks")
        .memory(1 << 14, 64)
        .setup(|v| async move {
            let p = v.chunk(NodeId(0), 64).await.unwrap();
            assert_eq!(p, at(4096));
            v.write(p, &7u64.to_le_bytes()).await.unwrap();
            assert!(v.chunk(NodeId(0), 1 << 20).await.is_err(), "beyond the node");
            v.load(p.add(8), &8u64.to_le_bytes()).unwrap();
        })
        .client("A", 0, |c: C| async move {
            c.output(c.verbs().chunk(NodeId(0), 64).await.unwrap().offset());
        })
        .client("B", 1, |c| async move {
            c.output(c.verbs().chunk(NodeId(0), 64).await.unwrap().offset())
        })
        .invariant("two chunks", |end| {
            let mut got = [end.outputs(0)[0], end.outputs(1)[0]];
            got.sort_unstable();
            assert_eq!((end.word(at(4096)), end.word(at(4104))), (7, 8));
            if got == [8192, 12288] {
                Ok(())
            } else {
                Err(format!("{got:?}"))
            }
        });
    assert_eq!(model.run(Search::exhaustive()).expect_pass().ends, 2);
}

/// Checks operations whose effect is a request to the control plane. Each operation allocates the next 64 bytes and
/// returns the number of earlier allocations. A also reads afterwards, so B may allocate and return before A returns.
/// A's operation counts as invoked at its request, so it may precede B's, and it stays in the history if A crashes.
#[test]
fn a_request_to_the_control_plane_invokes_an_operation() {
    let allocate = |reads: bool| {
        move |c: Client<(), Counter>| async move {
            let v = c.verbs();
            c.op(CounterOp::Add(1), async {
                let chunk = v.chunk(NodeId(0), 64).await.unwrap();
                if reads {
                    v.word(at(64)).await.unwrap();
                }
                (chunk.offset() - RESERVED_BYTES) / 64
            })
            .await;
        }
    };
    let model = Model::new("chunks in order")
        .chunk_align(64)
        .spec(Counter(0))
        .client("A", 0, allocate(true))
        .client("B", 1, allocate(false));
    for knobs in [Knobs::weak(), Knobs::weak().crashes(1)] {
        for search in [Search::exhaustive(), Search::naive(), Search::shortest()] {
            model.run_with(&knobs, search).expect_pass();
        }
    }
}

#[test]
fn an_attempt_that_took_too_long_is_repeated_not_stuck() {
    let model = Model::new("repeats a slow READ").client("reader", 0, |c: C| async move {
        let v = c.verbs();
        let mut retry = v.retry(100);
        loop {
            let begun = v.now();
            let seen = v.word(at(64)).await.unwrap();
            if !v.elapsed(begun, Nanos(1)) {
                return c.output(seen);
            }
            retry.again(at(64), Why::Torn).await.unwrap();
        }
    });
    assert_eq!(model.run(Search::exhaustive()).expect_pass().ends, 1);
}
