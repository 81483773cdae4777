//! Tests of faults that only code of this crate can cause. Like the integration tests of the crate, they need a
//! device.

use dm_verbs::{Effect, RemotePtr, VerbErrorKind, Verbs};

use super::*;
use crate::{Ib, MemoryNode};

#[test]
fn a_wrong_key_is_refused_at_once_and_a_new_queue_pair_repairs_it() {
    let nodes = [0, 1].map(|_| {
        MemoryNode::builder(1 << 20)
            .start()
            .expect("a device: see `cargo xtask rxe`")
    });
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
