//! Bulk load: builds a tree from keys in ascending order, along its right edge.

use dm_alloc::{Block, Class};
use dm_index::{IndexError, KeyBytes};
use dm_layout::{LINE_BYTES, RadixHeader, SlotWord, build_radix_node};
use dm_verbs::{Capability, Control, NodeId, RemotePtr, VerbErrorKind, Verbs};

use crate::SingleStore;
use crate::art::{ArtClient, FIRST_INCARNATION, KeyText, shared};
use crate::block::{leaf_class, node_class};
use crate::errors::unaddressable;

/// New nodes at most this number of levels below the root are placed on the memory nodes in turn. A deeper node is
/// placed on the memory node of its parent. A node that is inserted above another one is placed on the memory node of
/// that one.
const SPREAD_HEIGHT: usize = 2;

/// A node on the right edge, with the children that are known so far.
struct Open {
    branch: usize,
    children: Vec<SlotWord>,
    memory_node: u16,
}

/// A key whose leaf is not written yet, because the link depth of the leaf depends on the next key.
struct Pending {
    text: KeyText,
    shared_before: usize,
}

/// A bulk load in progress.
struct Load<'c, 'h, V: Verbs, K, L> {
    client: &'c ArtClient<'h, V, K, L>,
    fill: f64,
    /// The nodes of the right edge, from the root down.
    edge: Vec<Open>,
    next_node: u16,
    bytes: Vec<u8>,
}

impl<V, K, L> ArtClient<'_, V, K, L>
where
    V: Verbs + Control,
    K: KeyBytes,
    L: SingleStore<V, K>,
{
    pub(crate) async fn load_keys(
        &self,
        fill: f64,
        mut next: impl FnMut(&mut Vec<u8>) -> Option<K>,
    ) -> Result<u64, IndexError> {
        let (root, kind) = (self.art.root, self.art.types().largest());
        let bytes = self.read_node(root, kind).await?;
        if self.decode(&bytes, root, kind)?.words().any(|w| !w.is_empty()) {
            return Err(IndexError::NotEmpty { root });
        }
        drop(bytes);
        //= docs/protocol/reclaim.md R11
        self.art.alloc.land(self.v).await?;
        let mut load = Load {
            client: self,
            fill,
            edge: vec![Open {
                branch: 0,
                children: Vec::new(),
                memory_node: 0,
            }],
            next_node: 0,
            bytes: Vec::new(),
        };
        let expected = self.art.leaves.value_bytes();
        let (mut value, mut ahead) = (Vec::new(), Vec::new());
        let mut pending: Option<(K, Pending)> = None;
        let mut total = 0;
        loop {
            ahead.clear();
            let Some(key) = next(&mut ahead) else { break };
            if ahead.len() != expected {
                let found = ahead.len();
                return Err(IndexError::ValueLength { found, expected });
            }
            let text = KeyText::of(&key);
            let mut shared_before = 0;
            if let Some((last, before)) = &pending {
                if *last >= key {
                    return Err(IndexError::BadInput {
                        why: "a bulk load's keys must ascend strictly",
                    });
                }
                shared_before = shared(&before.text, &text);
                load.leaf(last, before, shared_before, &value).await?;
                load.close(&before.text, shared_before).await?;
            }
            pending = Some((key, Pending { text, shared_before }));
            core::mem::swap(&mut value, &mut ahead);
            total += 1;
        }
        if let Some((last, before)) = &pending {
            load.leaf(last, before, 0, &value).await?;
            load.close(&before.text, 0).await?;
        }
        load.root().await?;
        Ok(total)
    }
}

impl<V, K, L> Load<'_, '_, V, K, L>
where
    V: Verbs + Control,
    K: KeyBytes,
    L: SingleStore<V, K>,
{
    fn last(&mut self) -> &mut Open {
        self.edge
            .last_mut()
            .expect("the root is always on the right edge")
    }

    /// Returns the memory node for the next child of the edge's last node.
    fn place(&mut self) -> u16 {
        if self.edge.len() > SPREAD_HEIGHT {
            return self.last().memory_node;
        }
        let nodes = self.client.art.alloc.memory_nodes().max(1);
        self.next_node = (self.next_node + 1) % nodes;
        self.next_node
    }

    async fn block(&self, class: Class, memory_node: u16) -> Result<Block, IndexError> {
        let near = RemotePtr::new(NodeId(memory_node), 0);
        let alloc = &self.client.art.alloc;
        //= docs/protocol/reclaim.md R16
        Ok(alloc.take(self.client.v, class, near).await?)
    }

    async fn place_bytes(&self, at: RemotePtr, bytes: &[u8]) -> Result<(), IndexError> {
        let v = self.client.v;
        match v.load(at, bytes) {
            Err(e) if e.kind == VerbErrorKind::Unsupported(Capability::DirectLoad) => {
                let _unmetered = v.meter().housekeeping();
                Ok(v.write(at, bytes).await?)
            }
            other => Ok(other?),
        }
    }

    /// Writes the leaf of `key`, which shares `shared_after` bytes with the next key.
    async fn leaf(
        &mut self,
        key: &K,
        pending: &Pending,
        shared_after: usize,
        value: &[u8],
    ) -> Result<(), IndexError> {
        let branch = pending.shared_before.max(shared_after);
        if self.last().branch < branch {
            let memory_node = self.place();
            self.edge.push(Open {
                branch,
                children: Vec::new(),
                memory_node,
            });
        }
        let memory_node = if self.edge.len() == 1 {
            self.place()
        } else {
            self.last().memory_node
        };
        let art = self.client.art;
        let Block { at, .. } = self
            .block(leaf_class(art.leaves.block_bytes()), memory_node)
            .await?;
        art.leaves
            .image(key, value, art.leaf_depth(branch), &mut self.bytes);
        self.place_bytes(at, &self.bytes).await?;
        let lines = (self.bytes.len() / LINE_BYTES) as u8;
        let word = SlotWord::leaf(pending.text[branch], at.raw(), lines).ok_or_else(unaddressable)?;
        self.last().children.push(word);
        Ok(())
    }

    /// Writes the nodes of the right edge to which no later key belongs. `text` is the last key, and the next key
    /// shares `shared` bytes with it.
    async fn close(&mut self, text: &KeyText, shared: usize) -> Result<(), IndexError> {
        while self.last().branch > shared {
            let Some(done) = self.edge.pop() else { break };
            if self.last().branch < shared {
                // The next key differs from `text` at a byte between the branches of this node and of its parent. A new
                // node with this branch will link this node and the next key's leaf.
                let memory_node = done.memory_node;
                self.edge.push(Open {
                    branch: shared,
                    children: Vec::new(),
                    memory_node,
                });
            }
            let from = self.last().branch + 1;
            let word = self.node(&done, text, from).await?;
            self.last().children.push(word);
        }
        Ok(())
    }

    /// Writes a node. If its header cannot hold all key bytes from `from` on, and clients do not skip key bytes, also
    /// writes nodes with one child above it. Returns the word for the slot that links the topmost of these nodes.
    async fn node(&mut self, done: &Open, text: &KeyText, from: usize) -> Result<SlotWord, IndexError> {
        let types = *self.client.art.types();
        let compression = self.client.art.options.compression;
        let room = done.children.len() as f64 / self.fill;
        let mut kind = types.fitting(room.ceil() as usize);
        let mut children = done.children.clone();
        let mut branch = done.branch;
        loop {
            // Each node above holds as many bytes as its header takes, and one more in its slot. The remaining bytes
            // fit into this header.
            let above = compression.nodes_above(from, branch);
            let begin = from + above * (compression.partial_max() + 1);
            let header = compression.header(kind, begin, branch, text);
            let block = self.block(node_class(&types, kind), done.memory_node).await?;
            let at = block.at;
            build_radix_node(&types, header, block.incarnation, &children, &mut self.bytes);
            self.place_bytes(at, &self.bytes).await?;
            let word = SlotWord::inner(text[begin - 1], at.raw(), kind).ok_or_else(unaddressable)?;
            if above == 0 {
                return Ok(word);
            }
            children = vec![word];
            (kind, branch) = (types.fitting(1), begin - 1);
        }
    }

    async fn root(&mut self) -> Result<(), IndexError> {
        let art = self.client.art;
        let children = core::mem::take(&mut self.last().children);
        let header = RadixHeader::new(0, art.types().largest(), &[]);
        build_radix_node(art.types(), header, FIRST_INCARNATION, &children, &mut self.bytes);
        self.place_bytes(art.root, &self.bytes).await
    }
}
