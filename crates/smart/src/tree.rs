//! The tree that the threads of a compute node share.

use dm_alloc::{Allocator, Descriptor};
use dm_art::{Art, Compression, Singles};
use dm_assemble::{Common, Handle, OpenError, Parts, Pool};
use dm_index::{Exchange, IndexError, Survey};
use dm_layout::{KeyBytes, SingleLeaf};
use dm_lock::LockPlace;
use dm_sync::Fingerprint;
use dm_verbs::{Control, RemotePtr, Verbs};

use crate::Options;

/// A SMART tree with the state that the threads of one compute node share: prefix cache, local locks, allocator,
/// running operations.
///
/// [`Handle`] has the methods that every index has, and [`SmartParts`] has the methods of this index.
///
/// ```
/// use dm_loopback::{Loopback, block_on};
/// use smart::{Key8, Options, Smart, leading_bytes};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Loopback::builder().nodes(2).build()?;
/// let v = pool.connect(0)?;
/// block_on(async {
///     let tree = Smart::<Key8>::create_or_open(&v, &Options::items()).await?;
///     let client = tree.items(&v, leading_bytes)?;
///     client.insert(b"ada", b"countess of lovelace").await?;
///     let mut value = Vec::new();
///     assert!(client.get(b"ada", &mut value).await? && value == b"countess of lovelace");
///     Ok(())
/// })
/// # }
/// ```
pub type Smart<K> = Handle<SmartParts<K>>;

/// The parts of a SMART tree: radix nodes, and leaves of one entry.
#[derive(Debug)]
pub struct SmartParts<K: KeyBytes> {
    art: Art<K, Singles<K>>,
}

/// The kind of index in a pool's superblock.
const KIND: &[u8; 4] = b"smrt";
/// Maximum number of memory nodes: a slot can distinguish this many.
const MEMORY_NODES_MAX: u16 = 256;

impl<K: KeyBytes> Parts for SmartParts<K> {
    type Key = K;
    type Options = Options;

    fn fit<V: Verbs>(_: &V, options: &Options) -> Result<Options, OpenError> {
        SingleLeaf::<K>::new(options.value_bytes)?;
        options.inner().check().map_err(OpenError::Index)?;
        Ok(*options)
    }

    fn descriptor(options: &Options) -> Descriptor {
        // Each switch that differs from its default sets a bit, so the description of a default tree has none of them.
        let switches = [
            options.items,
            !options.rear_locks,
            options.locked_nodes,
            !options.in_place,
            options.compression.partial_max() < Compression::PESSIMISTIC.partial_max(),
            options.compression.skips(),
        ];
        let switches = switches
            .iter()
            .rev()
            .fold(0, |bits, &on| bits << 1 | u64::from(on));
        let [types, more_types] = options.types.describe();
        let numbers = [
            switches,
            K::LEN as u64,
            options.value_bytes as u64,
            types,
            more_types,
        ];
        Descriptor {
            // If no lock is in a table, the pool's lock table has one word on each memory node and is not used.
            locks: options.lock_plan(),
            members: options.members,
            nodes_max: MEMORY_NODES_MAX,
            ..Descriptor::of(KIND, numbers)
        }
    }

    fn common(options: &Options) -> Common {
        options.common()
    }

    async fn assemble<V: Verbs + Control>(
        pool: &mut Pool<'_, V>,
        options: &Options,
    ) -> Result<Self, OpenError> {
        let layout = SingleLeaf::new(options.value_bytes)?;
        // Leaves and nodes share these locks, because both use the same words.
        let tables = match options.has_tables() {
            true => Some(pool.locks(options.locks(LockPlace::Chip))?),
            false => None,
        };
        let locks = match &tables {
            Some(tables) if !options.rear_locks => tables.clone(),
            _ => pool.locks_in_nodes(layout.lock_at(), options.locks(LockPlace::Host))?,
        };
        let leaves = Singles::new(layout, locks, options.leaves());
        let (v, alloc, root_word) = (pool.verbs(), pool.alloc().clone(), pool.root_word());
        let art = Art::open(v, leaves, alloc, root_word, options.inner()).await?;
        Ok(Self {
            art: match tables.filter(|_| options.locked_nodes) {
                Some(tables) => art.with_node_locks(tables),
                None => art,
            },
        })
    }

    fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> impl Exchange<Key = K> {
        self.art.client(v)
    }

    async fn warm<V: Verbs + Control>(&self, v: &V, _: &Allocator) -> Result<u64, IndexError> {
        self.art.warm(v).await
    }

    async fn collect<V: Verbs + Control>(&self, v: &V, _: &Allocator) -> Result<(), IndexError> {
        self.art.collect(v).await
    }

    /// Reads the inner nodes on each key's path that are not cached yet, one key after another. If the cache has no
    /// room for all of these nodes, those that are read last replace others. No leaf is read. The verbs are metered as
    /// housekeeping.
    async fn warm_for<V: Verbs + Control>(
        &self,
        v: &V,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<(), IndexError> {
        self.art.client(v).warm_for(keys).await
    }

    async fn adopt_cache<V: Verbs + Control>(&self, v: &V, other: &Self) -> Result<bool, IndexError> {
        self.art.adopt_cache(v, &other.art).await
    }

    fn cache_bytes(&self) -> u64 {
        self.art.cache().bytes()
    }

    async fn survey<V: Verbs + Control>(&self, v: &V, survey: &mut Survey) -> Result<(), IndexError> {
        let count = |survey: &mut Survey, at, _, value: &[u8], image| survey.key(at, value, image);
        self.art.survey(v, survey, count).await
    }
}

impl<K: KeyBytes> SmartParts<K> {
    /// Returns the address of the root node.
    pub fn root(&self) -> RemotePtr {
        self.art.root()
    }
}

impl<K: KeyBytes> Fingerprint for SmartParts<K> {
    fn fingerprint(&self) -> u64 {
        self.art.fingerprint()
    }
}
