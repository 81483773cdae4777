//! Assembles an index from B-link inner levels and leaves with a version in each line, and uses it. `dmkit new` writes
//! such an index with its tests and models. Run: `cargo run -p dmkit-examples --bin own_index`.
#![expect(clippy::print_stdout, reason = "an example prints")]
use dm_alloc::{Allocator, Descriptor};
use dm_assemble::{Common, Handle, OpenError, Parts, Pool};
use dm_index::*;
use dm_leaf::{NodeOptions, Nodes};
use dm_verbs::{Control, Env, Verbs};
type Format = dm_layout::Slotted<Key8>;
/// Inner levels and leaves. Another format, lock or inner structure is another type here.
struct Mine(dm_blink::Blink<Key8, Nodes<Key8, Format>>, Nodes<Key8, Format>);
impl Parts for Mine {
    type Key = Key8;
    type Options = usize; // The entries of a node.
    fn fit<V: Verbs>(_: &V, &span: &usize) -> Result<usize, OpenError> {
        Ok(span) // An index may choose other options if the card lacks a promise.
    }
    fn descriptor(&span: &usize) -> Descriptor {
        Descriptor::of(b"mine", [span as u64]) // All clients must agree on this, so the superblock stores it.
    }
    fn common(_: &usize) -> Common {
        Common::default() // These are the options that every index has, such as its retry limit.
    }
    async fn assemble<V: Verbs + Control>(pool: &mut Pool<'_, V>, &span: &usize) -> Result<Self, OpenError> {
        let (locks, alloc) = (pool.locks(Default::default())?, pool.alloc().clone());
        let (inner, leaf) = (Format::with_span(span, CHILD_BYTES)?, Format::with_span(span, 8)?);
        let mut options = NodeOptions::default();
        let leaves = Nodes::new(leaf, locks.clone(), alloc.clone(), options);
        options.kind = 1; // A dead node's block is reused only for its own kind.
        let (cache, root) = (dm_cache::IndexCache::new(1 << 20), pool.root_word());
        let inner = Nodes::new(inner, locks, alloc, options);
        let inner = dm_blink::Blink::new(inner, cache, root, Default::default());
        Ok(Self(inner, leaves)) // All clients of a compute node share these.
    }
    fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> impl Exchange<Key = Key8> {
        Composed::new(v, &self.0, &self.1, ComposedOptions::default()) // The inner levels find a key's leaf.
    }
    async fn warm<V: Verbs + Control>(&self, v: &V, alloc: &Allocator) -> Result<u64, IndexError> {
        alloc.visit(v, self.0.warm(v)).await // This reads inner nodes into the cache.
    }
    fn cache_bytes(&self) -> u64 {
        self.0.cache().bytes() // A measurement reports this size.
    }
    async fn survey<V: Verbs + Control>(&self, v: &V, survey: &mut Survey) -> Result<(), IndexError> {
        survey_index(v, &self.0, &self.1, survey).await // This visits all nodes, for checks and for counts of memory.
    }
}
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let world = dm_loopback::Loopback::builder().nodes(2).build()?;
    let (v, mut value) = (world.connect(0)?, Vec::new());
    dm_loopback::block_on(async {
        let index = Handle::<Mine>::create_or_open(&v, &16).await?;
        index.client(&v).insert(&Key8(7), b"assemble").await?;
        let before = v.meter().counters().round_trips;
        assert!(index.client(&v).get(&Key8(7), &mut value).await?);
        let (value, after) = (String::from_utf8(value)?, v.meter().counters().round_trips);
        println!("key 7 has the value {value:?}; {} round trip", after - before);
        Ok(())
    })
}
