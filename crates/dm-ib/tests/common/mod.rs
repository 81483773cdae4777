//! Memory nodes in this process, and a world of them.

use dm_ib::{Ib, MemoryNode};
use dm_verbs::{Capability, NodeId, RemotePtr};

/// Memory nodes and a world that uses them.
pub(crate) struct Cluster {
    pub(crate) ib: Ib,
    /// This field is after the world, because the world must be dropped before the nodes.
    pub(crate) _nodes: Vec<MemoryNode>,
}

/// Starts `count` memory nodes of `bytes` bytes each, in a world that assumes `assumed`.
pub(crate) fn cluster(count: usize, bytes: u64, assumed: &[Capability]) -> Cluster {
    let start = || {
        MemoryNode::builder(bytes)
            .start()
            .expect("these tests need an RDMA device: `cargo xtask rxe` runs them with one")
    };
    let nodes: Vec<_> = (0..count).map(|_| start()).collect();
    let addresses: Vec<_> = nodes.iter().map(MemoryNode::address).collect();
    let ib = Ib::builder(&addresses)
        .assume(assumed)
        // A round trip of soft-RoCE on an emulated processor takes 50 µs or more, and other machines may use the
        // processor meanwhile.
        .slower(64)
        .build()
        .expect("the nodes have a device");
    Cluster { ib, _nodes: nodes }
}

/// Returns a place on node `node`.
#[allow(
    clippy::allow_attributes,
    dead_code,
    reason = "not every test binary needs places"
)]
pub(crate) fn at(node: u16, offset: u64) -> RemotePtr {
    RemotePtr::new(NodeId(node), offset).expect("in range")
}
