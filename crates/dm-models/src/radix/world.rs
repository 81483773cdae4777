//! A SMART tree of tiny nodes as a subject of scripts.

use dm_explore::End;
use dm_index::Key8;
use smart::{NodeTypes, Options, Smart, SmartParts};

use super::memory::contents;
use crate::tree::subject::SubjectParts;
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

impl SubjectParts for SmartParts<Key8> {
    fn sound(options: Options) -> Options {
        Options {
            flaws: smart::Flaws::default(),
            ..options
        }
    }

    fn contents(end: &End<'_>, options: &Options) -> Result<Vec<(u64, u64)>, String> {
        contents(end, &options.types, options.compression.skips())
    }
}
