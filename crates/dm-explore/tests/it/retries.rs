//! Retry loops that keep the result of some attempts and rewind others.

#![expect(clippy::unwrap_used, reason = "a panic is how a client of a test fails")]

use dm_explore::{Client, Model, NoSpec, Search};
use dm_verbs::{Nanos, NodeId, RemotePtr, Verbs, Why};

const LEASE: Nanos = Nanos::from_millis(1);

/// Changes a word under a lock with a lease. If a holder's lease is over, the client takes the lock over. It measures
/// the lease from the time when it first saw this holder.
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

/// A rewind returns to the last result that the loop has kept, and no further. All searches agree, and reach no state
/// that the loop cannot reach.
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
