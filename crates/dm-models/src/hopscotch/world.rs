//! A CHIME tree of tiny leaves, its clients, and their operations.

use chime::{Chime, ChimeParts, Flaws, Options};
use dm_explore::End;
use dm_index::Key8;
use dm_layout::Hopscotch;

use crate::tree::memory::{at_rest, contents_of};
use crate::tree::subject::SubjectParts;
use crate::tree::world::{Shape, script};
use crate::{Explorable, Setting};

/// Returns options with leaves of three lines: 4 entries in neighbourhoods of 2; three entries are in one line and one
/// is in the next line. Inner nodes have three children. Each memory node has 16 locks.
///
/// Keys by home: 2, 6, 8 have home 0; 4, 5, 9 home 1; 7, 10, 15 home 2; 1, 3, 11 home 3.
pub(super) const fn options() -> Options {
    Options {
        span: 4,
        neighbourhood: 2,
        inner_span: 3,
        locks_per_node: 16,
        chunk_bytes: 4096,
        cache_bytes: 1 << 20,
        hotspot_bytes: 0,
        // Reclamation has its own models.
        members: 0,
        ..Options::new(8)
    }
}

pub(super) fn build(shapes: &[Shape], s: &Setting<'_>, options: Options) -> Box<dyn Explorable> {
    Box::new(script(shapes, s.shape).model::<Chime<Key8>>(s.title.clone(), options))
}

/// Builds a model in which other clients may wait for ever after a client has died or a chain has failed.
pub(super) fn build_faulty(shapes: &[Shape], s: &Setting<'_>, options: Options) -> Box<dyn Explorable> {
    let model = script(shapes, s.shape).model::<Chime<Key8>>(s.title.clone(), options);
    Box::new(model.crash_may_block())
}

impl SubjectParts for ChimeParts<Key8> {
    fn sound(options: Options) -> Options {
        Options {
            flaws: Flaws::default(),
            ..options
        }
    }

    fn contents(end: &End<'_>, options: &Options) -> Result<Vec<(u64, u64)>, String> {
        let leaf = Hopscotch::<Key8>::new(options.span, options.neighbourhood, 8).expect("small");
        contents_of(end, &leaf)
    }

    fn at_rest(end: &End<'_>, options: &Options) -> Result<(), String> {
        let leaf = Hopscotch::<Key8>::new(options.span, options.neighbourhood, 8).expect("small");
        at_rest(end, &leaf)
    }
}
