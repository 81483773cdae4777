//! The interface of an index for the harness.

use core::future::Future;

use dm_assemble::{Handle, OpenError, Parts};
use dm_index::{IndexError, RangeIndex};
use dm_verbs::{Control, Verbs};

use crate::BenchKey;

/// An index that the harness can open, warm, run and measure. A value of this type is the state that the clients of one
/// compute node share.
///
/// Every [`Handle`] of `dm-assemble` implements this trait, so an index that is assembled from parts needs no code
/// here.
pub trait BenchIndex: Sized + Send + Sync + 'static {
    /// The index's keys.
    type Key: BenchKey;
    /// The options of one compute node.
    type Options: 'static;

    /// Creates the index in an empty pool.
    ///
    /// # Errors
    /// Returns [`OpenError`] if the world lacks a capability, if no node has the sizes in the options, or if the pool
    /// cannot be created.
    fn create<V: Verbs + Control>(
        v: &V,
        options: &Self::Options,
    ) -> impl Future<Output = Result<Self, OpenError>>;

    /// Opens the index of a pool.
    ///
    /// # Errors
    /// Returns [`OpenError`] if the pool is empty or holds another index, or for the reasons of [`BenchIndex::create`].
    fn open<V: Verbs + Control>(
        v: &V,
        options: &Self::Options,
    ) -> impl Future<Output = Result<Self, OpenError>>;

    /// Makes a client over `v`'s connections.
    fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> impl RangeIndex<Key = Self::Key>;

    /// Fills the cache, as far as it has room. By default, does nothing.
    ///
    /// # Errors
    /// Returns an error if a verb fails or a node's bytes contradict each other.
    fn warm<V: Verbs + Control>(&self, _v: &V) -> impl Future<Output = Result<(), IndexError>> {
        async { Ok(()) }
    }

    /// Brings a warm cache that cannot hold the whole index into its steady state for these keys. The keys have the
    /// order in which operations use them, so the last keys are those of the most recent operations. By default, does
    /// nothing.
    ///
    /// # Errors
    /// Returns an error if a verb fails or a node's bytes contradict each other.
    fn warm_for<V: Verbs + Control>(
        &self,
        _v: &V,
        _keys: impl Iterator<Item = Self::Key>,
    ) -> impl Future<Output = Result<(), IndexError>> {
        async { Ok(()) }
    }

    /// Returns the number of gets of a skewed workload after which the compute node's record of hot keys should hold
    /// the hottest ones; 0 if there is no such record. The harness makes these gets before a simulated run with skewed
    /// keys, but unless the run is steady, not more of them than the run has operations.
    fn gets_to_learn(&self) -> usize {
        0
    }

    /// Copies the cache of another compute node to this one, together with what that node has learned about hot keys.
    /// By default, only warms this compute node's own cache.
    ///
    /// # Errors
    /// Returns an error if a verb fails or a node's bytes contradict each other.
    fn warm_like<V: Verbs + Control>(
        &self,
        v: &V,
        _first: &Self,
    ) -> impl Future<Output = Result<(), IndexError>> {
        self.warm(v)
    }

    /// Returns the bytes that this compute node uses.
    fn footprint(&self) -> Footprint {
        Footprint::default()
    }

    /// Checks the whole index. If `sweeps` is `true`, first finishes what dead clients have left in the index. Returns
    /// `None` if the index cannot be checked.
    ///
    /// # Errors
    /// Returns errors of verbs and of the control plane.
    fn check<V: Verbs + Control>(
        &self,
        _v: &V,
        _sweeps: bool,
    ) -> impl Future<Output = Result<Option<Checked>, IndexError>> {
        async { Ok(None) }
    }
}

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checked {
    /// Whether nothing is wrong.
    pub clean: bool,
    /// The report, as text.
    pub text: String,
    /// The report, as one JSON object.
    pub json: String,
}

/// The bytes that one compute node uses for an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Footprint {
    /// Bytes of the index cache, and of what the compute node has learned about hot keys.
    pub cache: u64,
    /// Bytes of everything else in the compute node's own memory: tables of locks and of shared operations, allocators.
    pub local: u64,
    /// Bytes on memory nodes that the compute node's clients allocated, minus those that they freed. The sum over all
    /// compute nodes is the memory in use.
    pub remote: i64,
}

impl<P: Parts + Send + Sync + 'static> BenchIndex for Handle<P>
where
    P::Key: BenchKey,
    P::Options: 'static,
{
    type Key = P::Key;
    type Options = P::Options;

    async fn create<V: Verbs + Control>(v: &V, options: &P::Options) -> Result<Self, OpenError> {
        Self::create_or_open(v, options).await
    }
    async fn open<V: Verbs + Control>(v: &V, options: &P::Options) -> Result<Self, OpenError> {
        Self::open(v, options).await
    }
    fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> impl RangeIndex<Key = P::Key> {
        Self::client(self, v)
    }
    async fn warm<V: Verbs + Control>(&self, v: &V) -> Result<(), IndexError> {
        Self::warm(self, v).await.map(drop)
    }
    async fn warm_for<V: Verbs + Control>(
        &self,
        v: &V,
        keys: impl Iterator<Item = P::Key>,
    ) -> Result<(), IndexError> {
        Self::warm_for(self, v, keys).await
    }
    fn gets_to_learn(&self) -> usize {
        P::gets_to_learn(self)
    }
    async fn warm_like<V: Verbs + Control>(&self, v: &V, first: &Self) -> Result<(), IndexError> {
        if !Self::adopt_cache(self, v, first).await? {
            Self::warm(self, v).await?;
        }
        Ok(())
    }
    fn footprint(&self) -> Footprint {
        Footprint {
            cache: self.cache_bytes() + self.learned_bytes(),
            local: self.local_bytes(),
            remote: self.allocated_bytes(),
        }
    }
    async fn check<V: Verbs + Control>(&self, v: &V, sweeps: bool) -> Result<Option<Checked>, IndexError> {
        Ok(Some(match sweeps {
            true => {
                let report = Self::sweep(self, v).await?;
                Checked {
                    clean: report.check.is_clean(),
                    text: report.to_string(),
                    json: report.to_json(),
                }
            }
            false => {
                let report = Self::check(self, v).await?;
                Checked {
                    clean: report.is_clean(),
                    text: report.to_string(),
                    json: report.to_json(),
                }
            }
        }))
    }
}
