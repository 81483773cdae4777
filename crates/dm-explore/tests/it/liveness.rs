//! Tests that a hang which no client can leave is never a pass, whatever the clients do meanwhile.

#![expect(
    clippy::unwrap_used,
    reason = "a panic is how a test, or a client in one, fails"
)]

use dm_explore::{
    BadReplay, Client, Counterexample, Failure, Knobs, Model, NoSpec, Retries, Search, Trace, Verdict,
};
use dm_verbs::{NodeId, RemotePtr, Verbs, Why};

type C = Client<(), NoSpec>;

fn at(i: u64) -> RemotePtr {
    RemotePtr::new(NodeId(0), 64 * i).unwrap()
}

/// Takes one from a word by FAA. If the word was empty, undoes the FAA and tries again.
async fn take(c: &C, word: RemotePtr) {
    let v = c.verbs();
    let mut retry = v.retry(100);
    while v.faa(word, u64::MAX).await.unwrap() == 0 {
        v.faa(word, 1).await.unwrap();
        retry.again(word, Why::Raced).await.unwrap();
    }
}

/// Returns a model in which one client takes one from a word with the initial value `there`.
fn alone(there: u64) -> Model {
    Model::new("alone")
        .setup(move |v| async move { v.write(at(1), &there.to_le_bytes()).await.unwrap() })
        .place(at(1), 8, "word")
        .client("A", 0, |c: C| async move { take(&c, at(1)).await })
}

/// Returns a model of two clients that wait for each other's flag. Both toggle a bit again and again to show that they
/// are alive. `first` tells which of them set their own flag before they wait.
fn mutual(first: [bool; 2]) -> Model {
    let mut model = Model::new("mutual");
    for (i, set) in first.into_iter().enumerate() {
        let (mine, other, beat) = (at(1 + i as u64), at(2 - i as u64), at(3 + i as u64));
        model = model.client(["A", "B"][i], i as u16, move |c: C| async move {
            let v = c.verbs();
            if set {
                v.write(mine, &[1; 8]).await.unwrap();
            }
            let mut retry = v.retry(100);
            while v.word(other).await.unwrap() == 0 {
                v.faa(beat, 1 << 63).await.unwrap();
                retry.again(other, Why::Raced).await.unwrap();
            }
            if !set {
                v.write(mine, &[1; 8]).await.unwrap();
            }
        });
    }
    model
}

fn livelock(verdict: Verdict, who: &[u8]) -> Counterexample {
    let found = verdict.expect_counterexample();
    assert_eq!(
        found.failure,
        Failure::Livelock {
            clients: who.to_vec()
        },
        "{found}"
    );
    found
}

#[test]
fn one_client_that_does_and_undoes_for_ever_is_caught() {
    for search in [Search::exhaustive(), Search::cached(), Search::shortest()] {
        alone(1).run(search).expect_pass();
        let found = livelock(alone(0).run(search), &[0]);
        let lasso = found.lasso.unwrap();
        assert_eq!(lasso.doomed, Some(0), "there never was an end\n{found}");
        assert!(found.shortest && lasso.begins < found.steps.len());
    }
}

#[test]
fn two_that_wait_for_each_other_are_caught_although_each_has_a_beat() {
    for knobs in [Knobs::weak(), Knobs::declared()] {
        for first in [[true, true], [true, false], [false, true]] {
            mutual(first).run_with(&knobs, Search::exhaustive()).expect_pass();
        }
        let found = livelock(mutual([false; 2]).run_with(&knobs, Search::exhaustive()), &[0, 1]);
        let lasso = found.lasso.unwrap();
        for client in [0, 1] {
            let acts = found.steps[lasso.begins..].iter().any(|s| s.client == client);
            assert!(acts, "every client acts in the cycle\n{found}");
        }
    }
}

#[test]
fn the_run_goes_to_the_first_state_without_a_way_out() {
    // Both clients see the only unit before either takes it. The client that takes second waits for ever, because no
    // client puts the unit back.
    let model = || {
        let one = |c: C| async move {
            if c.verbs().word(at(1)).await.unwrap() == 1 {
                take(&c, at(1)).await;
            }
        };
        Model::new("one for two")
            .setup(|v| async move { v.write(at(1), &1u64.to_le_bytes()).await.unwrap() })
            .place(at(1), 8, "word")
            .knobs(Knobs::declared())
            .client("A", 0, one)
            .client("B", 1, one)
    };
    let found = model().run(Search::exhaustive()).expect_counterexample();
    // Both clients start and READ. The client that takes second never ends.
    assert_eq!(found.lasso.unwrap().doomed, Some(4), "{found}");
    let text = found.to_string();
    for part in ["from here on no run ends", "repeat for ever", "livelock: "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(
        found.chart().contains('┌') && found.chart().contains('└'),
        "{}",
        found.chart()
    );
    assert!(found.svg().contains("<path d=\"M46"), "{}", found.svg());

    let trace: Trace = found.trace.to_string().parse().unwrap();
    let again = model().replay(&trace).unwrap();
    assert_eq!((&again.failure, &again.steps), (&found.failure, &found.steps));
    // If one step is missing, the cycle does not close.
    let cut = trace.to_string();
    let cut: Trace = cut[..cut.len() - 1].parse().unwrap();
    assert_eq!(model().replay(&cut), Err(BadReplay::NoCycle));
}

#[test]
fn a_crash_may_leave_others_waiting_only_where_the_model_says_so() {
    // Each client takes the only unit and puts it back, so one client may have to wait for the other.
    let model = || {
        let mut model = Model::new("held").knobs(Knobs::declared().crashes(1));
        model = model.setup(|v| async move { v.write(at(1), &1u64.to_le_bytes()).await.unwrap() });
        for (i, name) in ["A", "B"].into_iter().enumerate() {
            model = model.client(name, i as u16, |c: C| async move {
                take(&c, at(1)).await;
                c.verbs().faa(at(1), 1).await.unwrap();
            });
        }
        model
    };
    model()
        .run_with(&Knobs::declared(), Search::exhaustive())
        .expect_pass();
    let found = model().run(Search::exhaustive()).expect_counterexample();
    assert!(matches!(found.failure, Failure::Livelock { .. }), "{found}");
    model().crash_may_block().run(Search::exhaustive()).expect_pass();
}

#[test]
fn without_a_cache_an_endless_run_is_cut_short() {
    for search in [
        Search::naive(),
        Search::sleeping(),
        Search::random(1, 3),
        Search::pct(1, 3, 2),
    ] {
        let verdict = alone(0).run(search.depth(500));
        assert!(matches!(verdict, Verdict::Truncated { .. }), "{verdict}");
    }
}

#[test]
fn budgets_that_run_out_are_an_end() {
    let knobs = Knobs {
        retries: Retries::Bounded(2),
        ..Knobs::declared()
    };
    let model = Model::new("gives up").client("A", 0, |c: C| async move {
        let v = c.verbs();
        let mut retry = v.retry(100);
        while v.faa(at(1), 1).await.unwrap() == 0 {
            v.faa(at(1), u64::MAX).await.unwrap();
            if retry.again(at(1), Why::Raced).await.is_err() {
                return;
            }
        }
    });
    model.run_with(&knobs, Search::exhaustive()).expect_pass();
}
