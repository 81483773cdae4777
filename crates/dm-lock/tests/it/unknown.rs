//! A share whose last request has an unknown effect.

use dm_lock::{LockError, LockOptions};
use dm_loopback::{Trouble, block_on};
use dm_verbs::testing::Altered;
use dm_verbs::{Effect, NodeId, VerbError};

use crate::common::*;

/// It is unknown whether the share was given back, and the chain has no further requests.
#[test]
fn a_share_whose_end_is_unknown_is_not_given_back_again() {
    let options = LockOptions {
        shared: true,
        ..LockOptions::default()
    };
    let bench = bench(builder(), 1, options);
    let v = Altered {
        fails: |error| VerbError {
            rest: Effect::None,
            ..error
        },
        ..Altered::new(bench.client(0))
    };
    let at = node(0, 1);
    let (share, _) = block_on(bench.locks[0].share_and_read(&v, at, at, 64)).unwrap();
    bench.world.cut(NodeId(0), Trouble::AnswersLost);
    let left = block_on(share.leave());
    assert!(
        matches!(left, Err(LockError::Verb(e)) if e.effect == Effect::Unknown && e.rest == Effect::None),
        "{left:?}"
    );
    bench.world.restore(NodeId(0));
    assert_eq!(bench.word(at).payload >> 16, 0);
}
