//! A Dolphin tree of tiny leaves and radix nodes as a subject of scripts.

use dm_explore::End;
use dm_index::Key8;
use dm_layout::Slotted;
use dm_verbs::RemotePtr;
use dolphin::{Dolphin, DolphinParts, Flaws, NodeTypes, Options};

use crate::radix;
use crate::tree::memory::contents_from;
use crate::tree::subject::SubjectParts;
use crate::tree::world::{Shape, script};
use crate::{Explorable, Setting};

/// Returns options with leaves of two lines and 5 entries with whole keys, radix nodes of one line with 2 or 4 slots,
/// and 16 locks per memory node. Packed leaves have their own models, with a single leaf.
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

impl SubjectParts for DolphinParts<Key8> {
    fn sound(mut options: Options) -> Options {
        options.flaws = Flaws::default();
        options.separators.exact = false;
        options
    }

    fn contents(end: &End<'_>, options: &Options) -> Result<Vec<(u64, u64)>, String> {
        let separators = radix::memory::contents(end, &options.types, false)?;
        // The separator of the smallest key leads to the first leaf, and each leaf leads to the next one.
        let Some(&(0, first)) = separators.first() else {
            return Err(format!("no separator names the first leaf: {separators:?}"));
        };
        let leaf = Slotted::with_node_bytes(options.leaf_bytes, options.value_bytes).expect("small");
        contents_from(end, &leaf, RemotePtr::from_raw(first))
    }
}
