//! Tests of faults that only code of this crate can cause. Like the integration tests of the crate, they need a
//! device.

use core::pin::Pin;
use core::task::{Context, Poll};

use dm_sync::atomic::{AtomicU32, Ordering::Relaxed};
use dm_verbs::{Effect, RemotePtr, VerbError, VerbErrorKind, Verbs};

use super::*;
use crate::{Ib, MemoryNode};

/// Counts how often it was called.
#[derive(Default)]
struct Calls(AtomicU32);

impl std::task::Wake for Calls {
    fn wake(self: std::sync::Arc<Self>) {
        // Relaxed: one thread makes and counts all calls.
        self.0.fetch_add(1, Relaxed);
    }
}

/// Polls a request once, and returns its error if it has one.
fn error_of<T>(
    request: &mut (impl Future<Output = Result<T, VerbError>> + Unpin),
    waker: &Waker,
) -> Option<VerbError> {
    match Pin::new(request).poll(&mut Context::from_waker(waker)) {
        Poll::Ready(answer) => answer.err(),
        Poll::Pending => None,
    }
}

fn memory_node() -> MemoryNode {
    let node = MemoryNode::builder(1 << 20).start();
    node.expect("a device: see `cargo xtask rxe`")
}

#[test]
fn all_requests_fail_when_the_completion_queue_cannot_be_polled() {
    let nodes = [0, 1].map(|_| memory_node());
    let world = Ib::builder(&nodes.each_ref().map(MemoryNode::address));
    let thread = world.queue_depth(1).build().unwrap().thread().unwrap();
    let v = thread.connect(0).unwrap();
    let at = |node| RemotePtr::new(NodeId(node), 4096).unwrap();
    // The second request to node 0 waits until the queue pair has room.
    let mut posted = [0, 1, 0].map(|node| v.faa(at(node), 1));
    thread.inner.state.borrow().port.cq().answer_polls::<-2>();
    let calls = std::sync::Arc::new(Calls::default());
    let waker = Waker::from(std::sync::Arc::clone(&calls));
    for request in &mut posted {
        assert_eq!(error_of(request, &waker), None, "it is in flight, or waits");
    }
    assert!(thread.inner.advance());
    assert_eq!(calls.0.load(Relaxed), 3, "each task is woken");
    let lost = (VerbErrorKind::ConnectionLost, Effect::Unknown);
    let refused = (VerbErrorKind::Unreachable, Effect::None);
    for (request, (node, expected)) in posted.iter_mut().zip([(0, lost), (1, lost), (0, refused)]) {
        let error = error_of(request, &waker).expect("it has failed");
        assert_eq!((error.kind, error.overall()), expected);
        assert_eq!(error.at, at(node).into());
    }
    let later = thread.run([0, 1].map(|node| v.faa(at(node), 1)));
    for answer in later {
        let error = answer.unwrap_err();
        assert_eq!((error.kind, error.overall()), refused);
    }
    assert!(thread.is_cut_off(NodeId(0)) && thread.is_cut_off(NodeId(1)));
    let reconnected = thread.reconnect(NodeId(0));
    let connected = thread.connect(0).map(drop);
    for never in [reconnected, connected].map(Result::unwrap_err) {
        assert!(
            matches!(&never, IbError::CompletionQueue { reason } if reason.to_string().contains("code -2")),
            "{never}"
        );
    }
}

#[test]
fn requests_whose_completions_never_arrive_fail_at_a_reconnect() {
    let node = memory_node();
    let world = Ib::builder(&[node.address()]).build().unwrap();
    let thread = world.thread().unwrap();
    let v = thread.connect(0).unwrap();
    let mut posted = v.faa(RemotePtr::new(NodeId(0), 4096).unwrap(), 1);
    thread.inner.state.borrow().port.cq().answer_polls::<0>();
    assert_eq!(error_of(&mut posted, Waker::noop()), None, "it is in flight");
    thread.reconnect(NodeId(0)).unwrap();
    let error = error_of(&mut posted, Waker::noop()).expect("it has failed");
    assert_eq!(
        (error.kind, error.overall()),
        (VerbErrorKind::ConnectionLost, Effect::Unknown)
    );
}

#[test]
fn completions_after_a_flush_leave_the_queue_at_a_reconnect() {
    let node = memory_node();
    let world = Ib::builder(&[node.address()]).build().unwrap();
    let thread = world.thread().unwrap();
    let v = thread.connect(0).unwrap();
    let at = RemotePtr::new(NodeId(0), 4096).unwrap();
    let mut posted: Vec<_> = (0..40).map(|_| v.faa(at, 1)).collect();
    for request in &mut posted {
        assert_eq!(error_of(request, Waker::noop()), None, "it is in flight");
    }
    // The flush gives up like this if its time is over.
    thread.inner.with(|state, due| state.abandon(0, due));
    for request in &mut posted {
        let error = error_of(request, Waker::noop()).expect("it has failed");
        assert_eq!(error.kind, VerbErrorKind::ConnectionLost);
    }
    thread.reconnect(NodeId(0)).unwrap();
    let mut state = thread.inner.state.borrow_mut();
    let left = state
        .port
        .poll(|landed| panic!("{landed:?} is of no chain in flight"));
    assert_eq!(left.unwrap(), 0);
    drop(state);
    let answers = thread.run((0..40).map(|_| v.faa(at, 0)));
    assert!(
        answers.iter().all(|found| found.is_ok_and(|found| found <= 40)),
        "{answers:?}"
    );
}

#[test]
fn a_wrong_key_is_refused_at_once_and_a_new_queue_pair_repairs_it() {
    let nodes = [0, 1].map(|_| memory_node());
    let world = Ib::builder(&nodes.each_ref().map(MemoryNode::address))
        .build()
        .unwrap();
    let thread = world.thread().unwrap();
    let v = thread.connect(0).unwrap();
    let at = |node| RemotePtr::new(NodeId(node), 4096).unwrap();
    let run = |future| {
        let boxed: core::pin::Pin<Box<dyn Future<Output = _> + '_>> = future;
        thread.run([boxed]).remove(0)
    };
    assert_eq!(run(Box::pin(async { v.faa(at(0), 7).await })), Ok(0));
    thread.inner.state.borrow_mut().links[0].host.key ^= 0xff00;
    let refused = run(Box::pin(async { v.faa(at(0), 1).await })).unwrap_err();
    assert_eq!(
        (refused.kind, refused.overall()),
        (VerbErrorKind::Refused, Effect::None)
    );
    let later = run(Box::pin(async { v.faa(at(0), 1).await })).unwrap_err();
    assert_eq!(
        (later.kind, later.effect),
        (VerbErrorKind::Unreachable, Effect::None)
    );
    assert!(thread.is_cut_off(NodeId(0)) && !thread.is_cut_off(NodeId(1)));
    assert_eq!(
        run(Box::pin(async { v.faa(at(1), 1).await })),
        Ok(0),
        "the other node goes on"
    );
    thread.reconnect(NodeId(0)).unwrap();
    assert_eq!(
        run(Box::pin(async { v.faa(at(0), 1).await })),
        Ok(7),
        "the same memory"
    );
}
