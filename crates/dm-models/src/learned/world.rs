//! A ROLEX index of tiny leaves as a subject of scripts.

use dm_alloc::Superblock;
use dm_explore::{End, Endpoint};
use dm_index::{CHILD_BYTES, Child, IndexError, Key8};
use dm_layout::{KeyBytes, Slotted};
use dm_learned::Flaws;
use dm_verbs::RemotePtr;
use rolex::{Options, RolexParts};

use crate::tree::memory::contents_from;
use crate::tree::subject::SubjectParts;

/// Returns options with leaves of two lines and 3 entries, and 16 locks per memory node.
pub(super) const fn options() -> Options {
    Options {
        span: 3,
        locks_per_node: 16,
        chunk_bytes: 4096,
        // Reclamation has its own models.
        members: 0,
        ..Options::new(8)
    }
}

/// Bytes of a page before its entries.
const HEADER: usize = 16;

impl SubjectParts for RolexParts<Key8> {
    fn sound(mut options: Options) -> Options {
        options.flaws.learned = Flaws::NONE;
        options
    }

    fn contents(end: &End<'_>, options: &Options) -> Result<Vec<(u64, u64)>, String> {
        let leaf = Slotted::with_span(options.span, options.value_bytes).expect("small");
        let word = end.word(Superblock::ROOT_WORD);
        let at = RemotePtr::from_raw(word & !63);
        if word & 1 == 0 {
            return contents_from(end, &leaf, at);
        }
        // The first entry of a table leads to the first leaf, and each leaf leads to the next one.
        let entry = HEADER..HEADER + Key8::LEN + CHILD_BYTES;
        let page = end.bytes(at, 64).to_vec();
        let first = Child::decode(&page[entry][Key8::LEN..]);
        match first.is_null() {
            true => Err(format!("the table at {at} does not name the first leaf")),
            false => contents_from(end, &leaf, first),
        }
    }

    async fn visit(&self, v: &Endpoint) -> Result<(), IndexError> {
        self.retrain(v).await.map(drop)
    }
}
