//! Tests that recording does not change the behaviour of a client, and that the recording is complete.

use std::cell::RefCell;
use std::rc::Rc;

use dm_sim::{CostModel, Sim};
use dm_verbs::trace::{Event, Traced, What};
use dm_verbs::{Counters, Nanos, NodeId, RemotePtr, Verbs};

/// Takes a lock, adds 1 to the first byte of a two-line record, and releases the lock.
async fn add_one<V: Verbs>(v: &V) {
    let at = |offset| RemotePtr::new(NodeId(0), offset).expect("in range");
    let (lock, data) = (at(4096), at(8192));
    while v.cas(lock, 0, 1).await.expect("the node is up") != 0 {
        v.pause().await;
    }
    let mut bytes = v.read(data, 128).await.expect("the node is up").to_vec();
    bytes[0] += 1;
    let unlock = v.chain(NodeId(0)).write(data, &bytes).write_word(lock, 0);
    unlock.await.expect("the node is up");
}

/// Returns the end time of a run, the counters, and the events if `traced` is set.
fn run(traced: bool) -> (Nanos, Counters, Vec<Event>) {
    let sim = Sim::builder(CostModel::cx5_ib()).compute_nodes(2).build();
    let sim = sim.expect("memory");
    let events = Rc::new(RefCell::new(Vec::new()));
    for node in 0..2 {
        let events = Rc::clone(&events);
        sim.spawn(node, 0, move |v| async move {
            if traced {
                let v = Traced::new(v);
                add_one(&v).await;
                events.borrow_mut().extend(v.take_events());
            } else {
                add_one(&v).await;
            }
        });
    }
    sim.run();
    (sim.now(), sim.meter(), events.take())
}

/// As in the explorer's recordings, the list of values has an entry for every request, even for one without a result.
#[test]
fn values_are_listed_by_request() {
    let sim = Sim::builder(CostModel::cx5_ib()).build().expect("memory");
    let events = Rc::new(RefCell::new(Vec::new()));
    let recorded = Rc::clone(&events);
    sim.spawn(0, 0, move |v| async move {
        let v = Traced::new(v);
        let at = |offset| RemotePtr::new(NodeId(0), offset).expect("in range");
        let chain = v.chain(NodeId(0)).write_word(at(4096), 7).faa(at(4096), 1);
        chain
            .write_word(at(8192), 9)
            .word(at(8192))
            .await
            .expect("the node is up");
        recorded.borrow_mut().extend(v.take_events());
    });
    sim.run();
    let listed = events.borrow().iter().find_map(|event| match &event.what {
        What::Completes { values, .. } => Some(values.clone()),
        _ => None,
    });
    assert_eq!(listed, Some(vec![vec![], vec![7], vec![], vec![9]]));
}

#[test]
fn recording_changes_neither_times_nor_counts() {
    let (plain, traced) = (run(false), run(true));
    assert_eq!((plain.0, plain.1), (traced.0, traced.1));
    assert!(plain.2.is_empty());
}

#[test]
fn each_posted_chain_completes_once_with_its_result() {
    let (end, counters, events) = run(true);
    let mut posted = Vec::new();
    let (mut requests_posted, mut locks_taken) = (0, 0);
    for event in &events {
        assert!(event.at <= end.0 && (1..=2).contains(&event.client), "{event:?}");
        match &event.what {
            What::Posts { chain, requests } => {
                requests_posted += requests.len() as u64;
                posted.push((event.client, *chain, requests.clone(), event.at));
            }
            What::Completes { chain, values, error } => {
                let of = |p: &(u16, u32, _, u64)| (p.0, p.1) == (event.client, *chain);
                let at = posted
                    .iter()
                    .position(of)
                    .expect("it was posted, and completes once");
                let (_, _, requests, since) = posted.remove(at);
                assert!(since < event.at && error.is_none(), "{event:?}");
                assert_eq!(values.len(), requests.len(), "{event:?}");
                match requests[0].verb.as_str() {
                    "CAS" => locks_taken += usize::from(values[0] == [0]),
                    "READ" => assert_eq!(values[0].len(), 16, "128 bytes"),
                    verb => assert!(verb == "WRITE" && values.concat().is_empty()),
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(posted.is_empty(), "chains that never completed: {posted:?}");
    assert_eq!(locks_taken, 2);
    assert_eq!(requests_posted, counters.reads + counters.writes + counters.cas);
}
