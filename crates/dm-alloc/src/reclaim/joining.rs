//! Joining: a compute node takes a slot, and its clients enlist in its group, so that they are fenced
//! together.

use dm_sync::roster::{MEMBERS_MAX, Roster};
use dm_verbs::{
    Control, ControlError, ControlReply, ControlRequest, Exhausted, LocalStep, Nanos, Verbs, Why,
};

use super::Reclaim;
use crate::members::{SlotWord, Standing};
use crate::{AllocError, Allocator};

/// A join in progress. If it is dropped, another client may join instead.
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
            // The CAS that takes the slot may still be in flight. This second CAS frees the slot again. It follows the
            // first one on the same queue pair, and has no effect if the first one found another word.
            self.v.cas(self.reclaim.area.slot(slot), word.0, 0).detach();
        }
    }
}

/// Number of leases for which a client waits for another client's join.
const JOIN_LEASES: u64 = 8;
/// Shortest time limit for the wait for another client's join. It is long because a compute node learns its lease only
/// while it joins, and because a busy machine may not run a thread for a long time.
const JOIN_LEAST: Nanos = Nanos::from_millis(10_000);

/// Returns the time for which a client waits for another client's join. `lease` is 0 if it is not known yet.
pub(super) fn patience(lease: Nanos) -> Nanos {
    Nanos(lease.0.saturating_mul(JOIN_LEASES)).max(JOIN_LEAST)
}

/// Bytes of the words in the area's first line: the epoch, the next number, the gate and the census.
const FIRST_WORDS: u32 = 32;

impl Reclaim {
    /// Ends this compute node's membership `mine`, because other members have expelled it, or are about to do so. Does
    /// nothing if the compute node has joined again since.
    pub(super) fn lost(&self, mine: SlotWord) {
        self.membership.with(|m| {
            // Another client may have noticed this earlier, and joined again.
            if m.is(mine) {
                m.standing = Standing::Outside;
                self.epochs.revoke();
            }
        });
    }

    /// Draws the number of a new member. 0 stands for a compute node that is not a member.
    async fn next_number<V: Verbs>(&self, v: &V) -> Result<u16, AllocError> {
        loop {
            let number = v.faa(self.area.next_number(), 1).await? % u64::from(MEMBERS_MAX);
            if number != 0 {
                return Ok(number as u16);
            }
        }
    }

    /// Enlists this client, so that it is fenced with its compute node. Returns `false` if the compute node is no
    /// longer the member `mine`.
    pub(super) async fn enlist<V: Verbs + Control>(
        &self,
        v: &V,
        slot: u16,
        mine: SlotWord,
        (roster, memory_nodes): (&Roster, u16),
    ) -> Result<bool, AllocError> {
        let before = roster.number_of(v.client().0);
        let unsettled = roster.gate().unsettled(v.client().0);
        //= docs/protocol/recovery.md V1
        // Once the client enlists again, a fence of its earlier member no longer fences its earlier requests. So they
        // must have landed before.
        if before != 0
            && before != mine.number()
            // Boxed, because it is rare and would make the futures of operations large.
            && !Box::pin(self.all_landed(v, memory_nodes)).await
        {
            return Err(AllocError::Contended(Exhausted {
                at: self.place().into(),
                why: Why::Changing,
                attempts: 1,
            }));
        }
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
        // A member that expels this one marks the slot before it fences. So either this READ sees the mark, or the
        // fence includes this client.
        let found = SlotWord(v.word(self.area.slot(slot)).await?);
        if found.is_of(mine) {
            if before != 0 && before != mine.number() {
                // All requests that this client posted in its earlier membership have landed.
                roster.gate().settle(v.client().0, unsettled);
            }
            roster.enlist(v.client().0, mine.number());
            return Ok(true);
        }
        v.local(LocalStep::Section).await;
        self.lost(mine);
        Ok(false)
    }
}

impl Allocator {
    /// Takes a slot for this compute node. The caller has set the standing to [`Standing::Joining`].
    pub(super) async fn join<V: Verbs + Control>(&self, v: &V, reclaim: &Reclaim) -> Result<(), AllocError> {
        let mut joining = Joining {
            reclaim,
            v,
            posted: None,
        };
        let lease = match v.call(ControlRequest::Join).await? {
            ControlReply::Joined(membership) => membership.lease,
            other => unreachable!("the control plane answered a join with {other:?}"),
        };
        reclaim.membership.with(|m| {
            (m.lease, m.suspects) = (lease, false);
            reclaim.pace(m, false);
        });
        let mut number = reclaim.next_number(v).await?;
        let mut retry = v.retry(reclaim.options.attempts);
        loop {
            let asked = reclaim.membership.with(|m| reclaim.look_counts(v, m));
            let image = v.read(reclaim.area.at, reclaim.area.bytes()).await?;
            let epoch = image.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            let Some((slot, _)) = reclaim.area.looks(&image).find(|(_, look)| look.word.is_free()) else {
                // No slot is free, but some of the members may be dead and can be expelled.
                let taken: super::round::Looks = reclaim.area.looks(&image).collect();
                drop(image);
                if let Some(asked) = asked {
                    v.local(LocalStep::Section).await;
                    let silent = reclaim.silent(v, asked, &taken);
                    self.remove(v, reclaim, &silent, &[]).await?;
                }
                if retry.again(reclaim.place(), Why::Changing).await.is_err() {
                    return Err(AllocError::NoSlot {
                        slots: reclaim.area.slots,
                    });
                }
                continue;
            };
            if reclaim
                .area
                .looks(&image)
                .any(|(_, look)| !look.word.is_free() && look.word.number() == number)
            {
                // Member numbers wrap, and an earlier member with this number still has a slot.
                drop(image);
                number = reclaim.next_number(v).await?;
                retry.again(reclaim.place(), Why::Changing).await?;
                continue;
            }
            drop(image);
            // Operations of an earlier membership may still be running.
            let oldest = reclaim.epochs.oldest().map_or(epoch, |oldest| oldest.min(epoch));
            let word = SlotWord::active(number, oldest);
            joining.posted = Some((slot, word));
            if v.cas(reclaim.area.slot(slot), 0, word.0).await? != 0 {
                joining.posted = None;
                retry.again(reclaim.place(), Why::Raced).await?;
                continue;
            }
            //= docs/protocol/reclaim.md R5
            // Until the slot was taken, other members freed blocks without regard to this one. These blocks had been
            // unlinked, so no READ from now on finds a link to them.
            //= docs/protocol/recovery.md V12
            let line = v.read(reclaim.area.at, FIRST_WORDS).await?;
            let mut epoch = line.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            let (gate, census) = (reclaim.area.gate_of(&line), reclaim.area.census_of(&line));
            drop(line);
            //= docs/protocol/recovery.md V23
            let known = reclaim.membership.with(|m| m.census);
            if census.round() != known.round() && !self.holds_nothing(reclaim) {
                // Boxed, because it is rare and would make the futures of operations large.
                epoch = Box::pin(self.forget_memory(v, reclaim)).await?;
            }
            v.local(LocalStep::Section).await;
            joining.posted = None;
            reclaim.advance(epoch);
            self.roster.join(number);
            self.learn_gate(reclaim, gate);
            //= docs/protocol/recovery.md V19
            if !reclaim.options.flaws().joins_unrecorded {
                self.learn_census(reclaim, census);
            }
            reclaim.membership.with(|m| m.settle(slot, word));
            return Ok(());
        }
    }
}
