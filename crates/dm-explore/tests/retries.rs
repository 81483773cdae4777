//! Retry loops that learn from some attempts and rewind others.

#![expect(clippy::unwrap_used, reason = "a panic is how a client of a test fails")]

use dm_explore::{Client, Failure, Knobs, Model, NoSpec, Search};
use dm_verbs::{Nanos, NodeId, RemotePtr, Verbs, Why};

const LEASE: Nanos = Nanos::from_millis(1);

/// Takes a lock word from a holder whose lease is over, by the time since this client first saw that holder.
async fn under_lease<V: Verbs>(v: &V) {
    let [lock, data] = [64, 128].map(|offset| RemotePtr::new(NodeId(0), offset).unwrap());
    let me = u64::from(v.client().0);
    let mut retry = v.retry(1000);
    let (mut known, mut since) = (0, v.now());
    loop {
        let holder = v.cas(lock, 0, me).await.unwrap();
        if holder == 0 {
            break;
        }
        if holder != known {
            (known, since) = (holder, v.now());
            v.elapsed(since, LEASE);
            let held = Why::LockHeld { word: holder };
            retry.again_wiser(lock, held).await.unwrap();
            continue;
        }
        if v.elapsed(since, LEASE) && v.cas(lock, holder, me).await.unwrap() == holder {
            break;
        }
        let held = Why::LockHeld { word: holder };
        retry.again(lock, held).await.unwrap();
    }
    v.word(data).await.unwrap();
    v.write(data, &me.to_le_bytes()).await.unwrap();
    v.cas(lock, me, 0).await.unwrap();
}

/// A rewind goes back to what the loop last learnt, not beyond it: the searches agree, and no state is one that the loop
/// never was in.
#[test]
fn a_loop_that_learns_and_rewinds_is_the_same_in_every_search() {
    let lease = |c: Client<(), NoSpec>| async move { under_lease(c.verbs()).await };
    let model = Model::new("lease").client("A", 0, lease).client("B", 1, lease);
    let reports = [Search::exhaustive(), Search::cached(), Search::shortest()]
        .map(|search| model.run(search.threads(1)).expect_pass());
    for report in &reports {
        assert_eq!(
            (report.states, report.ends_hash),
            (reports[0].states, reports[0].ends_hash)
        );
    }
}

/// Reads a word that nobody changes until it has read it `attempts` times, or, with 0, for ever; each second attempt reads
/// another word where `two` says so.
fn counts(attempts: u64, two: bool) -> Model<(), NoSpec> {
    let at = |i: u64| RemotePtr::new(NodeId(0), 64 * (i + 1)).unwrap();
    Model::new("counts")
        .client("A", 0, move |c: Client<(), NoSpec>| async move {
            let (v, mut made) = (c.verbs(), 0);
            let mut retry = v.retry(1000);
            loop {
                let place = at(if two { made % 2 } else { 0 });
                made += 1;
                if v.word(place).await.unwrap() != 0 {
                    return;
                }
                if made == attempts {
                    return c.output(made);
                }
                retry.again_wiser(place, Why::Stale).await.unwrap();
            }
        })
        .invariant("gave up", move |end| match end.outputs(0) {
            [made] if *made == attempts => Ok(()),
            other => Err(format!("{other:?}")),
        })
}

/// An attempt that follows one of `again_wiser` is made although nothing changed, so that a counted budget runs out.
#[test]
fn a_loop_that_counts_its_attempts_gives_up() {
    for search in [Search::exhaustive(), Search::cached(), Search::shortest()] {
        counts(2, false).run(search).expect_pass();
        for (attempts, repeats) in [(3, 2), (5, 4), (5, 9)] {
            let knobs = Knobs {
                repeats,
                ..Knobs::weak()
            };
            counts(attempts, false).run_with(&knobs, search).expect_pass();
        }
    }
    let found = counts(3, false).run(Search::exhaustive()).expect_counterexample();
    assert_eq!(
        found.failure,
        Failure::Stuck { clients: vec![0] },
        "two attempts read the same"
    );
}

/// The search of a loop that would never give up has an end, also where its attempts take turns with what they read.
#[test]
fn a_loop_that_learns_nothing_any_more_waits() {
    for two in [false, true] {
        for repeats in [0, 1, 3] {
            let knobs = Knobs {
                repeats,
                ..Knobs::weak()
            };
            let found = counts(0, two)
                .run_with(&knobs, Search::exhaustive())
                .expect_counterexample();
            assert_eq!(found.failure, Failure::Stuck { clients: vec![0] });
        }
    }
}
