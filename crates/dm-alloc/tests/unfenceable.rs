//! One member that cannot be fenced does not keep the others from being removed.

use core::task::{Context, Poll};

use dm_alloc::{AllocError, Allocator, MemberArea, ReclaimOptions};
use dm_sim::{CostModel, Endpoint, RunEnd, Sim};
use dm_sync::epoch::Epochs;
use dm_verbs::{
    Caps, ClientId, Control, ControlError, ControlReply, ControlRequest, Env, LocalStep, Meter, Nanos,
    NodeId, Outcome, Place, RemotePtr, Slot, VerbError, Verbs, Wqe,
};

/// The lease of the simulated control plane.
const LEASE: Nanos = Nanos::from_millis(10);
/// The number of the first member.
const UNFENCEABLE: u16 = 0;
const TROUBLE: ControlError = ControlError::Unreachable { node: NodeId(0) };

/// An endpoint whose control plane cannot fence the first member.
struct Troubled(Endpoint);

impl Control for Troubled {
    fn memory_nodes(&self) -> u16 {
        self.0.memory_nodes()
    }
    fn poll_control(
        &self,
        request: &ControlRequest,
        state: &mut u64,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ControlReply, ControlError>> {
        match request {
            ControlRequest::FenceMember { member: UNFENCEABLE } => Poll::Ready(Err(TROUBLE)),
            _ => self.0.poll_control(request, state, cx),
        }
    }
}

impl Env for Troubled {
    fn client(&self) -> ClientId {
        self.0.client()
    }
    fn compute_node(&self) -> u16 {
        self.0.compute_node()
    }
    fn now(&self) -> Nanos {
        self.0.now()
    }
    fn rng(&self, stream: u32) -> u64 {
        self.0.rng(stream)
    }
    fn meter(&self) -> &Meter {
        self.0.meter()
    }
    fn poll_pause(&self, state: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_pause(state, cx)
    }
    fn poll_local(&self, step: LocalStep, state: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_local(step, state, cx)
    }
    fn reserve_cpu(&self, work: Nanos) -> Nanos {
        self.0.reserve_cpu(work)
    }
    fn poll_until(&self, at: Nanos, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_until(at, cx)
    }
}

impl Verbs for Troubled {
    type Lease = <Endpoint as Verbs>::Lease;
    fn caps(&self, node: NodeId) -> Caps {
        self.0.caps(node)
    }
    fn open(&self, node: NodeId) -> Slot {
        self.0.open(node)
    }
    fn push(&self, slot: &Slot, wqe: Wqe<'_>) {
        self.0.push(slot, wqe);
    }
    fn ring(&self, slot: &Slot) {
        self.0.ring(slot);
    }
    fn poll_chain(&self, slot: &Slot, cx: &mut Context<'_>) -> Poll<Result<(), VerbError>> {
        self.0.poll_chain(slot, cx)
    }
    fn take(&self, slot: &Slot, i: u16) -> Outcome<Self::Lease> {
        self.0.take(slot, i)
    }
    fn close(&self, slot: Slot) {
        self.0.close(slot);
    }
    fn take_deferred(&self) -> Option<VerbError> {
        self.0.take_deferred()
    }
    fn load_image(&self, at: Place, bytes: &[u8]) -> Result<(), VerbError> {
        self.0.load_image(at, bytes)
    }
}

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

/// Two compute nodes join and die; the third finds both of them silent at the same look.
#[test]
fn a_member_that_cannot_be_fenced_stays_and_the_next_one_is_removed() {
    let sim = Sim::builder(CostModel::cx5_ib())
        .compute_nodes(3)
        .memory_bytes(1 << 20)
        .build()
        .expect("a testbed");
    let joining = [sim.endpoint(0, 0), sim.endpoint(1, 0)];
    let v = Troubled(sim.endpoint(2, 0));
    sim.spawn_task(async move {
        for joining in joining {
            let alloc = allocator(joining.compute_node());
            let seat = Epochs::seat(alloc.epochs().expect("it reclaims"));
            alloc.attend(&joining, &seat).await.expect("a slot");
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
