//! Indexes whose values lie outside of their leaves.

use dm_assemble::{Handle, OpenError, Parts};
use dm_combine::{Combined, Combiner};
use dm_index::{IndexError, RangeIndex};
use dm_indirect::{OutOfLine, leading_bytes};
use dm_verbs::{Control, LINE, Verbs};

use crate::{BenchIndex, BenchKey, Checked, Driver, Footprint, Rdwc, Setting};

/// An index whose leaves hold references to blocks, each with one key and its value. Any index that `dm-assemble` puts
/// together can be measured in this way, if its options are those for items.
///
/// No two keys of the harness have the same prefix, so a write does not read the block that it replaces.
#[derive(Debug)]
pub struct Indirect<P: Parts> {
    handle: Handle<P>,
    combiner: Option<Combiner<P::Key>>,
    value_bytes: usize,
}

/// The options of an [`Indirect`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IndirectOptions<O> {
    /// Options of the index, for items. They must not let the index's clients share operations: the clients share whole
    /// values (see `rdwc`), and not the references in the index.
    pub index: O,
    /// The operations that clients of a compute node share.
    pub rdwc: Rdwc,
    /// Bytes of a value.
    pub value_bytes: usize,
}

/// Bytes of a block besides a key and its value.
const BLOCK_HEADER: usize = 24;

impl<P> Indirect<P>
where
    P: Parts + Send + Sync + 'static,
    P::Key: BenchKey,
    P::Options: 'static,
{
    /// Makes a driver. For a setting, `options` returns the options of the index for items, and the operations that
    /// clients share.
    pub fn driver(options: impl Fn(&Setting) -> (P::Options, Rdwc) + Send + Sync + 'static) -> Driver<Self> {
        let driver = Driver::new(move |at| {
            let (index, rdwc) = options(at);
            let value_bytes = at.value_bytes;
            Ok(IndirectOptions {
                index,
                rdwc,
                value_bytes,
            })
        });
        let block = |at: &Setting| (BLOCK_HEADER + at.key_bytes + at.value_bytes).next_multiple_of(LINE);
        driver
            .block_bytes(move |at| block(at) as u64)
            .entry_bytes(move |at| {
                let in_leaf = at.key_bytes + dm_indirect::REFERENCE_BYTES + 8;
                // The blocks of replaced values stay for a while.
                (2 * block(at) + 4 * in_leaf) as u64
            })
    }

    fn over(handle: Handle<P>, options: &IndirectOptions<P::Options>) -> Self {
        Self {
            handle,
            combiner: options.rdwc.is_on().then(|| Combiner::new(&options.rdwc)),
            value_bytes: options.value_bytes,
        }
    }
}

impl<P> BenchIndex for Indirect<P>
where
    P: Parts + Send + Sync + 'static,
    P::Key: BenchKey,
    P::Options: 'static,
{
    type Key = P::Key;
    type Options = IndirectOptions<P::Options>;

    async fn create<V: Verbs + Control>(v: &V, options: &Self::Options) -> Result<Self, OpenError> {
        let handle = Handle::create_or_open(v, &options.index).await?;
        Ok(Self::over(handle, options))
    }
    async fn open<V: Verbs + Control>(v: &V, options: &Self::Options) -> Result<Self, OpenError> {
        let handle = Handle::open(v, &options.index).await?;
        Ok(Self::over(handle, options))
    }
    fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> impl RangeIndex<Key = P::Key> {
        let items = self.handle.items(v, leading_bytes);
        let items = items.expect("the options of the index must be those for items");
        let values = OutOfLine::<_, _, P::Key>::new(items.exact(), self.value_bytes);
        Combined::new(v, values, self.combiner.as_ref())
    }
    async fn warm<V: Verbs + Control>(&self, v: &V) -> Result<(), IndexError> {
        BenchIndex::warm(&self.handle, v).await
    }
    async fn warm_for<V: Verbs + Control>(
        &self,
        v: &V,
        keys: impl Iterator<Item = P::Key>,
    ) -> Result<(), IndexError> {
        BenchIndex::warm_for(&self.handle, v, keys).await
    }
    fn gets_to_learn(&self) -> usize {
        BenchIndex::gets_to_learn(&self.handle)
    }
    async fn warm_like<V: Verbs + Control>(&self, v: &V, first: &Self) -> Result<(), IndexError> {
        BenchIndex::warm_like(&self.handle, v, &first.handle).await
    }
    fn footprint(&self) -> Footprint {
        let own = BenchIndex::footprint(&self.handle);
        let shared = self.combiner.as_ref().map_or(0, Combiner::bytes);
        Footprint {
            local: own.local + shared as u64,
            ..own
        }
    }
    async fn check<V: Verbs + Control>(&self, v: &V, sweeps: bool) -> Result<Option<Checked>, IndexError> {
        BenchIndex::check(&self.handle, v, sweeps).await
    }
}
