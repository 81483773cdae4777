//! Joining: a compute node takes a slot, and its clients enlist in its group, so that they are fenced
//! together.

use dm_sync::atomic::Ordering;
use dm_verbs::{Control, ControlError, ControlReply, ControlRequest, LocalStep, Verbs, Why};

use super::Reclaim;
use crate::AllocError;
use crate::members::{SlotWord, Standing};

/// A join in progress. If it is dropped, another client may try.
struct Joining<'r, 'v, V: Verbs> {
    reclaim: &'r Reclaim,
    v: &'v V,
    /// The slot and word of a CAS that may succeed.
    posted: Option<(u16, SlotWord)>,
}

impl<V: Verbs> Drop for Joining<'_, '_, V> {
    fn drop(&mut self) {
        self.reclaim.membership.with(|m| {
            if m.standing == Standing::Joining {
                m.standing = Standing::Outside;
            }
        });
        if let Some((slot, word)) = self.posted {
            // This CAS expects the word of this member, so it does nothing if the first CAS failed. It follows the
            // first CAS on the same queue pair.
            self.v.cas(self.reclaim.area.slot(slot), word.0, 0).detach();
        }
    }
}

impl Reclaim {
    /// Records that the other members have removed this compute node, or are about to remove it.
    pub(super) fn lost(&self, mine: SlotWord) {
        self.membership.with(|m| {
            // Another client may have noticed this earlier, and joined again.
            if m.is(mine) {
                m.standing = Standing::Outside;
                self.epochs.revoke();
            }
        });
    }

    /// Takes a slot for this compute node. The caller has set the standing to [`Standing::Joining`].
    pub(super) async fn join<V: Verbs + Control>(&self, v: &V) -> Result<(), AllocError> {
        let mut joining = Joining {
            reclaim: self,
            v,
            posted: None,
        };
        let lease = match v.call(ControlRequest::Join).await? {
            ControlReply::Joined(membership) => membership.lease,
            other => unreachable!("the control plane answered a join with {other:?}"),
        };
        self.membership.with(|m| m.lease = lease);
        let period = self.options.period_within(lease);
        // Relaxed: as `Reclaim::is_due` says.
        self.period.store(period.0, Ordering::Relaxed);
        let mut number = v.faa(self.area.next_number(), 1).await? as u16;
        let mut retry = v.retry(self.options.attempts);
        loop {
            let asked = self.membership.with(|m| self.look_counts(v, m));
            let image = v.read(self.area.at, self.area.bytes()).await?;
            let epoch = image.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            let Some((slot, _)) = self.area.looks(&image).find(|(_, look)| look.word.is_free()) else {
                // Some of these members may be dead.
                let taken: super::round::Looks = self.area.looks(&image).collect();
                drop(image);
                if let Some(asked) = asked {
                    self.watch(v, asked, taken).await?;
                }
                if retry.again(self.place(), Why::Changing).await.is_err() {
                    return Err(AllocError::NoSlot {
                        slots: self.area.slots,
                    });
                }
                continue;
            };
            if self
                .area
                .looks(&image)
                .any(|(_, look)| !look.word.is_free() && look.word.number() == number)
            {
                // Member numbers wrap, and an earlier member with this number still has a slot.
                drop(image);
                number = v.faa(self.area.next_number(), 1).await? as u16;
                retry.again(self.place(), Why::Changing).await?;
                continue;
            }
            drop(image);
            // Operations of an earlier membership may still be running.
            let oldest = self.epochs.oldest().map_or(epoch, |oldest| oldest.min(epoch));
            let word = SlotWord::active(number, oldest);
            joining.posted = Some((slot, word));
            if v.cas(self.area.slot(slot), 0, word.0).await? != 0 {
                joining.posted = None;
                retry.again(self.place(), Why::Raced).await?;
                continue;
            }
            //= docs/protocol/reclaim.md R5
            // Blocks that were freed before the slot was taken had already been unlinked, so no later READ
            // finds a link to them.
            let epoch = v.word(self.area.epoch()).await?;
            v.local(LocalStep::Section).await;
            joining.posted = None;
            self.advance(epoch);
            self.membership.with(|m| m.settle(slot, word));
            return Ok(());
        }
    }

    /// Enlists this client, so that it is fenced with its compute node. Returns `false` if the compute node is no
    /// longer the member `mine`.
    pub(super) async fn enlist<V: Verbs + Control>(
        &self,
        v: &V,
        slot: u16,
        mine: SlotWord,
    ) -> Result<bool, AllocError> {
        //= docs/protocol/reclaim.md R6
        match v
            .call(ControlRequest::Enlist {
                member: mine.number(),
            })
            .await
        {
            Ok(_) => {}
            // This control plane has no groups, so no member can be fenced. A silent member then prevents all reuse of
            // memory.
            Err(ControlError::NoSuchNode { .. }) => self.membership.with(|m| m.fences_nobody = true),
            Err(e) => return Err(e.into()),
        }
        // A member that removes this one marks the slot before it fences. So either this READ sees the mark,
        // or the fence includes this client.
        let found = SlotWord(v.word(self.area.slot(slot)).await?);
        if found.is_of(mine) {
            return Ok(true);
        }
        v.local(LocalStep::Section).await;
        self.lost(mine);
        Ok(false)
    }
}
