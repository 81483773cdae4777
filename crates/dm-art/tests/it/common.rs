//! Helpers that open trees, and that draw a tree from the bytes on the memory nodes.

use std::fmt::Write as _;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use dm_alloc::{Allocator, Descriptor, ReclaimOptions, Superblock};
use dm_art::{Art, ArtClient, ArtOptions};
use dm_art::{SingleOptions, Singles};
use dm_index::{IndexError, KeyBytes, KeyN};
use dm_layout::{NodeTypes, RADIX_HEAD_BYTES, RadixNode, RadixSlot, SingleLeaf};
use dm_lock::{GlobalLockTable, LockOptions, LockPlace, Locks};
use dm_loopback::{Endpoint, Loopback, block_on};
use dm_sync::Arc;
use dm_verbs::{Counters, Env, Nanos, RemotePtr, Verbs};

pub(crate) type Tree<K> = Art<K, Singles<K>>;
pub(crate) type Client<'h, K> = ArtClient<'h, Endpoint, K, Singles<K>>;

/// The options with which a compute node opens a tree.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) art: ArtOptions,
    /// The number of compute nodes that can use the pool at once; 0 for a pool in which no memory is reused.
    pub(crate) members: u16,
    pub(crate) reclaim: ReclaimOptions,
    pub(crate) chunk_bytes: u64,
}

impl Setup {
    /// Returns options with small nodes. Rounds of reclamation happen only when a test starts them.
    pub(crate) fn small() -> Self {
        Self {
            art: ArtOptions {
                types: NodeTypes::new(&[2, 4, 8, 256]).unwrap(),
                ..ArtOptions::default()
            },
            members: 0,
            reclaim: ReclaimOptions {
                period: Nanos(u64::MAX),
                remembers: true,
                ..ReclaimOptions::new()
            },
            chunk_bytes: 16 << 10,
        }
    }

    /// Returns options with small nodes, for a pool whose memory is reused.
    pub(crate) fn reclaiming() -> Self {
        Self {
            members: 3,
            ..Self::small()
        }
    }

    /// Opens the pool's tree for the compute node of this connection, and creates it if there is none.
    pub(crate) fn open<K: KeyBytes>(&self, v: &Endpoint) -> Tree<K> {
        self.try_open(v).unwrap()
    }

    pub(crate) fn try_open<K: KeyBytes>(&self, v: &Endpoint) -> Result<Tree<K>, IndexError> {
        let descriptor = Descriptor {
            members: self.members,
            ..Descriptor::of(b"test", [0])
        };
        let superblock = block_on(Superblock::create_or_open(v, &descriptor)).unwrap();
        let leaf = SingleLeaf::<K>::new(8).unwrap();
        let in_leaves = GlobalLockTable::in_nodes(superblock.memory_nodes(), leaf.lock_at() as u32);
        let lock_options = LockOptions {
            place: LockPlace::Host,
            ..LockOptions::default()
        };
        let locks = Arc::new(Locks::new(lock_options, in_leaves));
        let alloc = Allocator::for_pool(&superblock, v.compute_node(), self.reclaim);
        let alloc = Arc::new(alloc.chunk_bytes(self.chunk_bytes));
        let leaves = Singles::new(leaf, locks, SingleOptions::default());
        block_on(Art::open(v, leaves, alloc, superblock.root_word, self.art))
    }
}

/// Makes a pool of this many memory nodes. Its clock advances by a fixed amount at each reading. With only one client,
/// every run therefore posts the same verbs.
pub(crate) fn pool(memory_nodes: u16) -> Loopback {
    let pool = Loopback::builder().nodes(memory_nodes).host_bytes(4 << 20);
    pool.counted_clock(Nanos(50)).build().unwrap()
}

/// Polls `future` at most this many times. Returns its output if it has ended.
pub(crate) fn poll_times<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    (0..polls).find_map(|_| match future.as_mut().poll(&mut cx) {
        Poll::Ready(out) => Some(out),
        Poll::Pending => None,
    })
}

/// Runs `work`. Returns its result, and a list of the connection's counters that it has raised, without doorbells.
pub(crate) fn cost<T>(v: &Endpoint, work: impl Future<Output = T>) -> (T, String) {
    let before = v.meter().counters();
    let out = block_on(work);
    (out, told(v.meter().counters() - before))
}

pub(crate) fn told(cost: Counters) -> String {
    let some = |&(name, n): &(&str, u64)| n != 0 && name != "doorbells";
    let parts: Vec<String> = cost
        .named()
        .filter(some)
        .map(|(name, n)| format!("{n} {name}"))
        .collect();
    parts.join(", ")
}

/// Returns a key whose bytes are often equal to those of other keys.
pub(crate) fn spread(n: u64) -> u64 {
    let byte = |i: u32| [0, 1, 0x80, 0xff][(n >> (2 * i) & 3) as usize];
    u64::from_be_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| byte(i * 5 % 8)))
}

/// Returns a key of 32 bytes. The bytes at which such keys differ are too far apart for one header.
pub(crate) fn spread_far(n: u64) -> KeyN<32> {
    let mut key = [7; 32];
    for (i, byte) in spread(n).to_be_bytes().into_iter().enumerate() {
        key[(i * i * 5 / 8) % 32] = byte;
    }
    KeyN(key)
}

/// Draws the tree from the bytes on the memory nodes, and checks them by the rules of docs/protocol/smart.md.
///
/// A node is drawn as its number of slots, `@` with its branch, the key bytes that its header holds, and its children
/// by their key bytes. `leaf3` is a leaf of link depth 3, `dead3` a removed one, `-` a removed slot, `!` a frozen
/// slot.
pub(crate) fn draw<K: KeyBytes>(v: &Endpoint, tree: &Tree<K>, types: &NodeTypes) -> String {
    let mut out = String::new();
    node(
        v,
        tree,
        types,
        (tree.root(), types.largest()),
        &mut Vec::new(),
        &mut out,
    );
    out
}

/// Draws one node. `way` holds the bytes that all keys below the node share.
fn node<K: KeyBytes>(
    v: &Endpoint,
    tree: &Tree<K>,
    types: &NodeTypes,
    (at, kind): (RemotePtr, u8),
    way: &mut Vec<u8>,
    out: &mut String,
) {
    let bytes = block_on(v.read(at, types.bytes(kind) as u32)).unwrap().to_vec();
    let this = RadixNode::decode(&bytes, types, kind).unwrap();
    let (header, from) = (this.header(), way.len());
    //= docs/protocol/smart.md M18 type=test
    let partial = header
        .partial_from(from as u8)
        .expect("a header begins at or before the parent's branch");
    way.extend_from_slice(partial);
    let told = &way[usize::from(header.depth())..];
    assert_eq!(header.partial(), told, "the header's bytes differ from the path");
    write!(out, "{}@{}", types.slots(kind), header.branch()).unwrap();
    if !header.partial().is_empty() {
        write!(out, "+{}", hex(header.partial())).unwrap();
    }
    out.push('{');
    let mut seen = Vec::new();
    let mut ended = false;
    let mut first = true;
    for (index, word) in this.words().enumerate() {
        let slot = word.thawed().decode().unwrap();
        let (RadixSlot::Inner { partial, .. }
        | RadixSlot::Leaf { partial, .. }
        | RadixSlot::Removed { partial }) = slot
        else {
            //= docs/protocol/smart.md M5 type=test
            assert_eq!(
                word.thawed().raw() as u32,
                this.incarnation(),
                "an empty slot contains another incarnation"
            );
            ended = true;
            if word.is_frozen() {
                out.push('!');
            }
            continue;
        };
        //= docs/protocol/smart.md M3 type=test
        match types.is_direct(kind) {
            true => assert_eq!(
                index,
                usize::from(partial),
                "a slot of a direct node belongs to another byte"
            ),
            false => assert!(!ended, "a slot was filled behind an empty one"),
        }
        assert!(!seen.contains(&partial), "two slots of one key byte");
        seen.push(partial);
        let gap = if core::mem::take(&mut first) { "" } else { " " };
        write!(
            out,
            "{gap}{}{partial:02x}:",
            if word.is_frozen() { "!" } else { "" }
        )
        .unwrap();
        way.push(partial);
        match slot {
            RadixSlot::Inner { at, node_type, .. } => {
                node(v, tree, types, (RemotePtr::from_raw(at), node_type), way, out);
            }
            RadixSlot::Leaf { at, lines, .. } => leaf(v, tree, (at, lines), way, out),
            _ => {
                //= docs/protocol/smart.md M5 type=test
                assert_eq!(word.thawed().raw() as u32, this.incarnation());
                out.push('-');
            }
        }
        way.pop();
    }
    way.truncate(from);
    out.push('}');
}

fn leaf<K: KeyBytes>(v: &Endpoint, tree: &Tree<K>, (at, lines): (u64, u8), way: &[u8], out: &mut String) {
    let layout = tree.leaves().layout();
    assert_eq!(usize::from(lines) * 64, layout.block_bytes());
    let bytes = block_on(v.read(RemotePtr::from_raw(at), layout.read_bytes() as u32)).unwrap();
    let entry = layout.open(&bytes).unwrap();
    let mut key = [0; 64];
    entry.key.write_to(&mut key[..K::LEN]);
    assert_eq!(
        &key[..way.len()],
        way,
        "the leaf's key does not have the bytes of its path"
    );
    //= docs/protocol/smart.md M9 type=test
    assert!(
        entry.depth + 1 >= way.len() as u64,
        "a link depth below the node's branch"
    );
    let kind = if entry.live { "leaf" } else { "dead" };
    write!(out, "{kind}{}", entry.depth).unwrap();
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns, for each child of the root, its key byte and its memory node.
pub(crate) fn homes<K: KeyBytes>(v: &Endpoint, tree: &Tree<K>, types: &NodeTypes) -> Vec<(u8, u16)> {
    let bytes = block_on(v.read(tree.root(), types.bytes(types.largest()) as u32))
        .unwrap()
        .to_vec();
    let words = bytes[RADIX_HEAD_BYTES..].as_chunks::<8>().0;
    let words = words
        .iter()
        .map(|raw| dm_layout::SlotWord::from_raw(u64::from_le_bytes(*raw)));
    words
        .filter(|word| word.has_child())
        .map(|word| (word.partial(), RemotePtr::from_raw(word.pointer()).node().0))
        .collect()
}

/// Returns the number of nodes and leaves of the tree on one memory node.
pub(crate) fn blocks_on<K: KeyBytes>(v: &Endpoint, tree: &Tree<K>, types: &NodeTypes, home: u16) -> u64 {
    let mut rest = vec![(tree.root(), types.largest())];
    let mut blocks = 0;
    while let Some((at, kind)) = rest.pop() {
        blocks += u64::from(at.node().0 == home);
        if kind == 0 {
            continue;
        }
        let bytes = block_on(v.read(at, types.bytes(kind) as u32)).unwrap().to_vec();
        for word in RadixNode::decode(&bytes, types, kind).unwrap().words() {
            match word.decode().unwrap() {
                RadixSlot::Inner { at, node_type, .. } => rest.push((RemotePtr::from_raw(at), node_type)),
                RadixSlot::Leaf { at, .. } => rest.push((RemotePtr::from_raw(at), 0)),
                _ => {}
            }
        }
    }
    blocks
}

/// Returns the number of slots of the node in the root's slot of `byte`, or 0 if there is none.
pub(crate) fn size_below<K: KeyBytes>(v: &Endpoint, tree: &Tree<K>, types: &NodeTypes, byte: u8) -> usize {
    let slot = tree.root().add((RADIX_HEAD_BYTES + 8 * usize::from(byte)) as u64);
    match dm_layout::SlotWord::from_raw(block_on(v.word(slot)).unwrap()).decode() {
        Ok(RadixSlot::Inner { node_type, .. }) => types.slots(node_type),
        _ => 0,
    }
}

/// Returns the node in the root's slot of `byte`, and its incarnation.
pub(crate) fn node_below<K: KeyBytes>(
    v: &Endpoint,
    tree: &Tree<K>,
    types: &NodeTypes,
    byte: u8,
) -> (RemotePtr, u32) {
    let slot = tree.root().add((RADIX_HEAD_BYTES + 8 * usize::from(byte)) as u64);
    let word = dm_layout::SlotWord::from_raw(block_on(v.word(slot)).unwrap());
    let RadixSlot::Inner { at, node_type, .. } = word.decode().unwrap() else {
        panic!("the slot links no node");
    };
    let at = RemotePtr::from_raw(at);
    let bytes = block_on(v.read(at, types.bytes(node_type) as u32))
        .unwrap()
        .to_vec();
    (
        at,
        RadixNode::decode(&bytes, types, node_type).unwrap().incarnation(),
    )
}
