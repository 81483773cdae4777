//! Blocks to which the index does not point yet.

use dm_alloc::{Allocator, Block, Class};
use dm_index::IndexError;
use dm_verbs::{Capability, Control, Ticket, VerbErrorKind, Verbs};

use crate::Reference;
use crate::reference::{BLOCK_BYTES_MAX, class_of};

/// A block that is being written. When it is dropped, it goes back to the allocator, unless an exchange may have
/// published it.
pub(crate) struct Draft<'a, V: Verbs> {
    v: &'a V,
    alloc: &'a Allocator,
    block: Block,
    class: Class,
    reference: Reference,
    written: Option<Ticket<'a, V, ()>>,
    /// Whether an exchange has published the block, or may have published it. Then the block does not go back to the
    /// allocator.
    known: bool,
}

impl<'a, V: Verbs + Control> Draft<'a, V> {
    /// Takes a block for `bytes` and posts the WRITE.
    pub(crate) async fn write(v: &'a V, alloc: &'a Allocator, bytes: &[u8]) -> Result<Self, IndexError> {
        let mut draft = Self::take(v, alloc, bytes).await?;
        draft.written = Some(v.write(draft.block.at, bytes));
        Ok(draft)
    }

    /// Takes a block for `bytes` and writes it directly, without a verb, if the world supports this. Otherwise posts
    /// the WRITE.
    pub(crate) async fn load(v: &'a V, alloc: &'a Allocator, bytes: &[u8]) -> Result<Self, IndexError> {
        let mut draft = Self::take(v, alloc, bytes).await?;
        match v.load(draft.block.at, bytes) {
            Err(e) if e.kind == VerbErrorKind::Unsupported(Capability::DirectLoad) => {
                draft.written = Some(v.write(draft.block.at, bytes));
            }
            other => other?,
        }
        Ok(draft)
    }

    /// Takes a block for `bytes`.
    async fn take(v: &'a V, alloc: &'a Allocator, bytes: &[u8]) -> Result<Self, IndexError> {
        let too_long = IndexError::BadInput {
            why: "the items with this key prefix do not fit into a block of 1 MiB",
        };
        if bytes.len() > BLOCK_BYTES_MAX {
            return Err(too_long);
        }
        let class = class_of(bytes.len().div_ceil(dm_verbs::LINE) as u32);
        let block = alloc.take(v, class, None).await?;
        let Some(reference) = Reference::new(block.at, bytes.len()) else {
            alloc.give_back(block, class);
            return Err(IndexError::BadInput {
                why: "a reference can address only the first 256 memory nodes",
            });
        };
        Ok(Self {
            v,
            alloc,
            block,
            class,
            reference,
            written: None,
            known: false,
        })
    }

    /// Waits until the block is written.
    //= docs/protocol/indirect.md N1
    pub(crate) async fn landed(&mut self) -> Result<Reference, IndexError> {
        if let Some(written) = &mut self.written {
            let done = written.await;
            // After an error, the WRITE may still land, so it counts as not awaited.
            done?;
            self.written = None;
        }
        Ok(self.reference)
    }

    /// Returns the reference to the block.
    pub(crate) const fn reference(&self) -> Reference {
        self.reference
    }

    /// Sets whether an exchange has published the block, or may have published it.
    pub(crate) fn set_known(&mut self, known: bool) {
        self.known = known;
    }
}

impl<V: Verbs> Drop for Draft<'_, V> {
    fn drop(&mut self) {
        //= docs/protocol/indirect.md N5
        if self.known {
            return;
        }
        let next = self.block.after(self.block.version);
        match self.written.is_some() {
            true => self.alloc.give_back_unawaited(self.v.client(), next, self.class),
            false => self.alloc.give_back(next, self.class),
        }
    }
}
