//! A Dolphin tree of tiny leaves and radix nodes as a subject of scripts.

use dm_alloc::Superblock;
use dm_explore::{End, Endpoint};
use dm_index::{Key8, RangeIndex};
use dm_layout::Slotted;
use dm_sync::Fingerprint;
use dm_verbs::RemotePtr;
use dolphin::{Dolphin, Flaws, NodeTypes, Options};

use crate::radix;
use crate::tree::memory::contents_from;
use crate::tree::subject::Subject;
use crate::tree::world::{Shape, script};
use crate::{Explorable, Setting};

/// Returns options with leaves of two lines and 3 entries with whole keys, radix nodes of one line with 2 or 4 slots,
/// and 16 locks per memory node. Packed leaves would hold twice as many entries; they have their own models, with a
/// single leaf.
pub(super) const fn options() -> Options {
    Options {
        leaf_bytes: 128,
        packed_keys: false,
        types: NodeTypes::TINY,
        locks_per_node: 16,
        chunk_bytes: 4096,
        cache_bytes: 1 << 20,
        // Reclamation has its own models.
        members: 0,
        ..Options::new(8)
    }
}

pub(super) fn build(shapes: &[Shape], s: &Setting<'_>, options: Options) -> Box<dyn Explorable> {
    Box::new(script(shapes, s.shape).model::<Dolphin<Key8>>(s.title.clone(), options))
}

impl Subject for Dolphin<Key8> {
    type Options = Options;

    fn sound(mut options: Options) -> Options {
        options.flaws = Flaws::default();
        options.separators.exact = false;
        options
    }

    async fn create(v: &Endpoint, options: &Options) -> Self {
        Self::create_or_open(v, options).await.expect("an empty pool")
    }

    async fn open(v: &Endpoint, options: &Options, superblock: &Superblock) -> Self {
        Self::from_superblock(v, options, superblock)
            .await
            .expect("the same options")
    }

    async fn warm(&self, v: &Endpoint) {
        Self::warm(self, v).await.expect("no faults");
    }

    fn client<'h>(&'h self, v: &'h Endpoint) -> impl RangeIndex<Key = Key8> {
        Self::client(self, v)
    }

    fn state(&self) -> u64 {
        self.fingerprint()
    }

    fn contents(end: &End<'_>, options: &Options) -> Result<Vec<(u64, u64)>, String> {
        let separators = radix::memory::contents(end, &options.types)?;
        // The separator of the smallest key leads to the first leaf, and each leaf leads to the next one.
        let Some(&(0, first)) = separators.first() else {
            return Err(format!("no separator names the first leaf: {separators:?}"));
        };
        let leaf = Slotted::with_node_bytes(options.leaf_bytes, options.value_bytes).expect("small");
        contents_from(end, &leaf, RemotePtr::from_raw(first))
    }
}
