//! A member that cannot be fenced does not keep the others from being removed.

use dm_alloc::{AllocError, Allocator, MemberArea, ReclaimOptions};
use dm_sim::{CostModel, RunEnd, Sim};
use dm_sync::epoch::Epochs;
use dm_verbs::testing::Altered;
use dm_verbs::{ControlError, ControlRequest, Env, Nanos, NodeId, RemotePtr, Verbs};

/// The lease of the simulated control plane.
const LEASE: Nanos = Nanos::from_millis(10);
/// The number of the first member.
const UNFENCEABLE: u16 = 1;
const TROUBLE: ControlError = ControlError::Unreachable { node: NodeId(0) };

fn place() -> RemotePtr {
    RemotePtr::new(NodeId(0), 8192).expect("a small offset")
}

fn allocator(compute_node: u16) -> Allocator {
    let area = MemberArea {
        at: place(),
        slots: 3,
    };
    Allocator::new(1, compute_node).reclaiming(area, ReclaimOptions::new())
}

/// Two compute nodes join and die. The third one finds both of them silent in the same look.
#[test]
fn a_member_that_cannot_be_fenced_stays_and_the_next_one_is_removed() {
    let sim = Sim::builder(CostModel::cx5_ib())
        .compute_nodes(3)
        .memory_bytes(1 << 20)
        .build()
        .expect("a testbed");
    let joining = [sim.endpoint(0, 0), sim.endpoint(1, 0)];
    let v = Altered {
        refuses: |request| match request {
            ControlRequest::FenceMember { member: UNFENCEABLE } => Some(TROUBLE),
            _ => None,
        },
        ..Altered::new(sim.endpoint(2, 0))
    };
    sim.spawn_task(async move {
        for joining in joining {
            let alloc = allocator(joining.compute_node());
            let seat = Epochs::seat(alloc.epochs().expect("it reclaims"));
            alloc.prepare(&joining, &seat).await.expect("a slot");
        }
        let alloc = allocator(2);
        let seat = Epochs::seat(alloc.epochs().expect("it reclaims"));
        let failed = loop {
            let collected = alloc.collect(&v, &seat).await;
            if let Err(e) = collected {
                break e;
            }
            v.charge(Nanos(LEASE.0 / 8)).await;
            assert!(v.now() < Nanos(4 * LEASE.0), "nobody is found silent");
        };
        assert_eq!(failed, AllocError::Control(TROUBLE), "the error is told");
        let first = v.word(place().add(64)).await.expect("no trouble");
        let second = v.word(place().add(128)).await.expect("no trouble");
        assert_ne!(first, 0, "it may still write, so its slot counts");
        assert_eq!(second, 0, "removed at the same look");
    });
    assert_eq!(sim.run(), RunEnd::Finished);
}
