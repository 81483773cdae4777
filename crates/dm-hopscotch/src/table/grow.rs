//! Doubling the directory.

use dm_alloc::{AllocError, Allocator, Block, Class};
use dm_index::{IndexError, KeyBytes};
use dm_verbs::{Control, Effect, LocalStep, Verbs};
use smallvec::SmallVec;

use super::directory::{Directory, PARALLEL};
use super::known::Root;
use super::scatter::lead_of;

/// Maximum size in bytes of one READ or WRITE of slots.
const PIECE: usize = 16 << 10;
/// The kind of a directory's memory. Nodes have another kind, so no memory is ever used first for a node and then for a
/// directory, or the other way round.
const KIND: u8 = 2;

/// The right to grow the directory. Only one client of a compute node has it at a time.
struct Growing<'d, K>(&'d Directory<K>);

impl<'d, K> Growing<'d, K> {
    fn begin(directory: &'d Directory<K>) -> Option<Self> {
        let busy = directory
            .known
            .with(|known| core::mem::replace(&mut known.growing, true));
        (!busy).then_some(Self(directory))
    }
}

impl<K> Drop for Growing<'_, K> {
    fn drop(&mut self) {
        self.0.known.with(|known| known.growing = false);
    }
}

/// A new directory to which no root word points yet. If it is dropped while `armed` is set, its memory returns to the
/// allocator.
struct Unnamed<'d, V: Verbs> {
    v: &'d V,
    alloc: &'d Allocator,
    class: Class,
    block: Block,
    /// Whether WRITEs to the directory may have been posted, and so may be in flight.
    written: bool,
    armed: bool,
}

impl<V: Verbs> Drop for Unnamed<'_, V> {
    fn drop(&mut self) {
        let next = self.block.after(self.block.version);
        match (self.armed, self.written) {
            (false, _) => {}
            (true, false) => self.alloc.give_back(self.block, self.class),
            //= docs/protocol/reclaim.md R11
            (true, true) => self.alloc.give_back_unawaited(self.v.client(), next, self.class),
        }
    }
}

impl<K: KeyBytes> Directory<K> {
    /// Doubles the directory if no slot begins at `separator`. Does nothing if the directory has its maximum depth, if
    /// it has more than two slots per leaf (in a sample of slots around the separator's), if another client of the
    /// compute node is doubling it, or if the allocator has no block of this size. Returns whether the root word has
    /// changed; another compute node may have changed it.
    pub(super) async fn grow<V: Verbs + Control>(
        &self,
        v: &V,
        root: Root,
        separator: &K,
    ) -> Result<bool, IndexError> {
        let lead = lead_of(separator);
        let told: K = root.first_key(root.number(lead));
        if told == *separator || root.depth >= self.depth_max {
            return Ok(false);
        }
        v.local(LocalStep::Section).await;
        if !self.known.with(|known| known.is_dense(lead)) {
            return Ok(false);
        }
        let Some(_growing) = Growing::begin(self) else {
            return Ok(false);
        };
        let deeper = root.depth + 1;
        let class = Class {
            bytes: 8 << deeper,
            kind: KIND,
        };
        let block = match self.alloc.take(v, class, None).await {
            Ok(block) => block,
            // The table works without a larger directory, but operations on some keys then take more steps to the
            // right.
            Err(AllocError::Exhausted { .. } | AllocError::BadSize { .. }) => return Ok(false),
            Err(e) => return Err(e.into()),
        };
        let mut unnamed = Unnamed {
            v,
            alloc: &self.alloc,
            class,
            block,
            written: false,
            armed: true,
        };
        let new = Root {
            at: block.at,
            depth: deeper,
        };
        let old = self.read_slots(v, root).await?;
        let mut slots: Vec<u64> = old.iter().flat_map(|leaf| [*leaf; 2]).collect();
        unnamed.written = true;
        self.write_slots(v, new, &slots).await?;
        unnamed.armed = false;
        //= docs/protocol/chime.md H12
        match v.cas(self.root_word, root.pack(), new.pack()).await {
            Ok(found) if found == root.pack() => {}
            Ok(_) => {
                // Another compute node was faster.
                unnamed.armed = true;
                return Ok(true);
            }
            Err(e) => {
                unnamed.armed = e.overall() == Effect::None;
                return Err(e.into());
            }
        }
        self.carry_over(v, (root, &old), (new, &mut slots)).await?;
        v.local(LocalStep::Section).await;
        self.known.with(|known| known.adopt(new, slots));
        Ok(true)
    }

    /// Copies the slots that were changed in the old directory after they were copied and before the root word changed.
    /// A client that changes a slot after that reads the root word, and finds the new directory.
    async fn carry_over<V: Verbs>(
        &self,
        v: &V,
        (root, old): (Root, &[u64]),
        (new, slots): (Root, &mut [u64]),
    ) -> Result<(), IndexError> {
        //= docs/protocol/chime.md H13
        if root.depth == 0 {
            return Ok(());
        }
        let again = self.read_slots(v, root).await?;
        let changed = old.iter().zip(&again).zip(slots.chunks_exact_mut(2)).zip(0_u64..);
        for (((before, now), halves), number) in changed.filter(|(((before, now), _), _)| before != now) {
            for (half, number) in halves.iter_mut().zip(2 * number..) {
                let found = v.cas(new.slot(number), *before, *now).await?;
                if found == *before {
                    *half = *now;
                }
            }
        }
        Ok(())
    }

    /// Reads the slots of a directory: the addresses of leaves.
    pub(super) async fn read_slots<V: Verbs>(&self, v: &V, root: Root) -> Result<Vec<u64>, IndexError> {
        if root.depth == 0 {
            return Ok(vec![root.at.raw()]);
        }
        if root.depth > self.depth_max {
            return Err(IndexError::Pool {
                at: self.root_word,
                why: "the root word names a directory that is deeper than `depth_max`",
            });
        }
        let bytes = root.len() as usize * 8;
        let mut slots = Vec::with_capacity(root.len() as usize);
        let starts: Vec<usize> = (0..bytes).step_by(PIECE).collect();
        for batch in starts.chunks(PARALLEL) {
            let posted: SmallVec<[_; PARALLEL]> = batch
                .iter()
                .map(|&from| v.read(root.at.add(from as u64), PIECE.min(bytes - from) as u32))
                .collect();
            for ticket in posted {
                let piece = ticket.await?;
                slots.extend(
                    piece
                        .as_chunks::<8>()
                        .0
                        .iter()
                        .map(|word| u64::from_le_bytes(*word)),
                );
            }
        }
        for (number, word) in (0..).zip(&slots) {
            self.leaf_of(root, number, *word)?;
        }
        Ok(slots)
    }

    async fn write_slots<V: Verbs>(&self, v: &V, root: Root, slots: &[u64]) -> Result<(), IndexError> {
        let bytes: Vec<u8> = slots.iter().flat_map(|leaf| leaf.to_le_bytes()).collect();
        let pieces: Vec<(usize, &[u8])> = (0..).step_by(PIECE).zip(bytes.chunks(PIECE)).collect();
        for batch in pieces.chunks(PARALLEL) {
            let posted: SmallVec<[_; PARALLEL]> = batch
                .iter()
                .map(|(from, piece)| v.write(root.at.add(*from as u64), piece))
                .collect();
            for ticket in posted {
                match self.flaws().directory_unawaited {
                    true => ticket.detach(),
                    false => ticket.await?,
                }
            }
        }
        Ok(())
    }
}
