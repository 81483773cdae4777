//! A SMART tree of tiny nodes as a subject of scripts.

use dm_alloc::Superblock;
use dm_explore::{End, Endpoint};
use dm_index::{Key8, RangeIndex};
use dm_sync::Fingerprint;
use smart::{NodeTypes, Options, Smart};

use super::memory::contents;
use crate::tree::subject::Subject;
use crate::tree::world::{Shape, script};
use crate::{Explorable, Setting};

/// Returns options with nodes of one line and 2 or 4 slots.
pub(super) const fn options() -> Options {
    Options {
        types: NodeTypes::TINY,
        chunk_bytes: 4096,
        cache_bytes: 1 << 20,
        // Shared operations have their own models, and would hide races here.
        rdwc: smart::Rdwc::OFF,
        // Reclamation has its own models, too.
        members: 0,
        // With this, each split raises a depth.
        depth_slack: 0,
        ..Options::new(8)
    }
}

pub(super) fn build(shapes: &[Shape], s: &Setting<'_>, options: Options) -> Box<dyn Explorable> {
    Box::new(script(shapes, s.shape).model::<Smart<Key8>>(s.title.clone(), options))
}

impl Subject for Smart<Key8> {
    type Options = Options;

    fn sound(options: Options) -> Options {
        Options {
            flaws: smart::Flaws::default(),
            ..options
        }
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
        contents(end, &options.types)
    }
}
