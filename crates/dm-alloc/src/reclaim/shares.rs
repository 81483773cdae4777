//! The gate: while it is shut, no client of the pool shares a lock, so that the counts of sharers can be reset.
//!
//! This takes several steps. After each look at the gate, a compute node does the next step that is possible, so
//! nothing here waits for other members.

use dm_verbs::{Control, ControlRequest, Event, LocalStep, Verbs};

use super::Reclaim;
use super::round::Looks;
use crate::members::{GateWord, MemberArea, SlotWord};
use crate::{AllocError, Allocator};

/// The state of the gate and of the members' answers, as one look found them.
pub(super) struct GateLook {
    gate: GateWord,
    /// The slot and the number of the looking compute node.
    slot: u16,
    own: u16,
    /// Whether this compute node has answered.
    answered: bool,
    /// Whether all other active members have answered.
    all_answered: bool,
    /// Whether the member that the gate's word names has no slot.
    orphan: bool,
    /// The slots of members that are marked as expelled.
    marked: Vec<(u16, SlotWord)>,
}

impl GateLook {
    /// Returns what an image of the area says.
    pub(super) fn new(area: &MemberArea, image: &[u8], others: &Looks, (slot, own): (u16, u16)) -> Self {
        let gate = area.gate_of(image);
        let has_answered = |slot| area.answered_of(image, slot) == gate.round();
        let mut active = others.iter().filter(|(_, look)| !look.word.is_expelled());
        let marked = others.iter().filter(|(_, look)| look.word.is_expelled());
        let is_owner = |word: SlotWord| word.number() == gate.owner();
        Self {
            gate,
            slot,
            own,
            answered: has_answered(slot),
            all_answered: active.all(|(slot, _)| has_answered(*slot)),
            orphan: gate.owner() != own && !others.iter().any(|(_, look)| is_owner(look.word)),
            marked: marked.map(|(slot, look)| (*slot, look.word)).collect(),
        }
    }
}

impl Allocator {
    /// Learns the word of the gate from an image of the area. Returns the state of the gate if this compute node may
    /// have to act on it, that is, if the gate is shut or a slot is marked.
    #[inline(never)]
    pub(super) fn look_at_gate(
        &self,
        reclaim: &Reclaim,
        image: &[u8],
        others: &Looks,
        own: (u16, u16),
    ) -> Option<Box<GateLook>> {
        let look = GateLook::new(&reclaim.area, image, others, own);
        self.learn_gate(reclaim, look.gate);
        let orphan = (look.orphan && !look.gate.is_open()).then_some(look.gate);
        reclaim.membership.with(|m| m.orphan = orphan);
        let work = !look.gate.is_open() || !look.marked.is_empty();
        work.then(|| Box::new(look))
    }

    /// Returns whether the gate is shut and this client has unsettled shares.
    pub(super) fn is_to_settle<V: Verbs>(&self, v: &V) -> bool {
        let (gate, client) = (self.roster.gate(), v.client().0);
        self.roster.shares() && gate.is_shut(client) && gate.unsettled(client) > 0
    }

    /// Settles this client's shares: reads a word from each memory node, so that the requests of its ended shares have
    /// landed. If a READ fails, the shares stay unsettled.
    pub(super) async fn settle<V: Verbs>(&self, v: &V, reclaim: &Reclaim) {
        let (gate, client) = (self.roster.gate(), v.client().0);
        let unsettled = gate.unsettled(client);
        //= docs/protocol/recovery.md V11
        if reclaim.all_landed(v, self.memory_nodes()).await {
            gate.settle(client, unsettled);
        }
    }

    /// Shuts or opens the gate of this compute node, if this word of the pool's gate is later than all words before.
    pub(super) fn learn_gate(&self, reclaim: &Reclaim, word: GateWord) {
        let gate = self.roster.gate();
        reclaim.membership.with(|m| {
            if word.order() <= m.gate.order() {
                return;
            }
            m.gate = word;
            match word.is_open() {
                true => gate.open(),
                false if reclaim.options.flaws().gate_ignored => {}
                false => gate.shut(),
            }
        });
    }

    /// Does this compute node's next step after a look at the gate. `known` is the latest word of the gate that was
    /// read before the look was posted. `was_orphan` is the word that the look before this one found, if the member
    /// that it names had no slot in that look.
    ///
    /// # Errors
    /// Returns the errors of verbs, of the control plane and of the sweep. The next look tries again.
    pub(super) async fn after_gate<V: Verbs + Control>(
        &self,
        v: &V,
        reclaim: &Reclaim,
        look: &GateLook,
        (known, was_orphan): (GateWord, Option<GateWord>),
    ) -> Result<(), AllocError> {
        let (gate, own) = (look.gate, look.own);
        if gate.is_open() {
            // The lines of a look may be read in any order. So a look may show the open gate together with slots from a
            // moment before it was opened. This cannot happen if this compute node already knew that the gate is open
            // when it posted the look.
            if known.order() == gate.order() {
                return self.shut_gate(v, reclaim, look).await;
            }
            return Ok(());
        }
        if self.is_to_settle(v) {
            self.settle(v, reclaim).await;
        }
        v.local(LocalStep::Section).await;
        if gate.owner() == own {
            //= docs/protocol/recovery.md V12
            // The lines of a look may be read in any order. So a look may show the shut gate, and miss a member that
            // joined before it was shut. A look that was posted after this compute node knew of the shut gate cannot
            // miss it.
            let complete = known.order() == gate.order() && look.all_answered;
            if complete {
                return self.reset_shares(v, reclaim, look).await;
            }
            return Ok(());
        }
        //= docs/protocol/recovery.md V14
        let marked = look.marked.iter().any(|(_, word)| word.number() == gate.owner());
        let gone = marked && self.roster.is_gone(gate.owner());
        if gone || (look.orphan && was_orphan == Some(gate) && reclaim.can_fence()) {
            if !gone {
                // Its last requests might not have landed.
                let member = gate.owner();
                v.call(ControlRequest::FenceMember { member }).await?;
                self.roster.bury(member);
            }
            v.cas(reclaim.area.gate(), gate.0, gate.taken_by(own).0).await?;
            return Ok(());
        }
        //= docs/protocol/recovery.md V11
        if !look.answered && self.roster.is_clear(own) {
            let answer = gate.round().to_le_bytes();
            v.write(reclaim.area.answered(look.slot), &answer).await?;
        }
        Ok(())
    }

    /// Shuts the gate if this compute node has fenced a member that still has its slot.
    async fn shut_gate<V: Verbs>(&self, v: &V, reclaim: &Reclaim, look: &GateLook) -> Result<(), AllocError> {
        //= docs/protocol/recovery.md V10
        if !look
            .marked
            .iter()
            .any(|(_, word)| self.roster.is_gone(word.number()))
        {
            return Ok(());
        }
        let shut = look.gate.shut_by(look.own);
        if v.cas(reclaim.area.gate(), look.gate.0, shut.0).await? == look.gate.0 {
            v.local(LocalStep::Section).await;
            self.learn_gate(reclaim, shut);
        }
        Ok(())
    }

    /// Fences the marked members and frees their locks. Then resets the counts of sharers, frees the slots of these
    /// members, and opens the gate. All other members must have answered. Stops before the reset if the gate has
    /// changed since the look, or if clients of this compute node have unsettled shares. Does nothing if the allocator
    /// has no lock tables.
    async fn reset_shares<V: Verbs + Control>(
        &self,
        v: &V,
        reclaim: &Reclaim,
        look: &GateLook,
    ) -> Result<(), AllocError> {
        let Some(sweep) = &self.sweep else {
            return Ok(());
        };
        //= docs/protocol/recovery.md V13
        for (_, word) in &look.marked {
            self.fence_and_sweep(v, reclaim, word.number()).await?;
        }
        v.local(LocalStep::Section).await;
        let pass = reclaim.membership.with(|m| {
            let may = self.roster.is_clear(look.own) && m.gate.order() == look.gate.order();
            may.then(|| self.roster.gate().occupy(v.client().0))
        });
        // If this client is dropped or fails from here on, its pass counts as an unsettled share. Then no client of
        // this compute node resets the counts before this client's requests have landed.
        let Some(pass) = pass else {
            return Ok(());
        };
        // The gate's word is read again, because an earlier client of this compute node may have been dropped after it
        // had posted the CAS that opens the gate.
        let found = GateWord(v.word(reclaim.area.gate()).await?);
        if found != look.gate {
            v.local(LocalStep::Section).await;
            pass.done();
            return Ok(());
        }
        let reset = sweep.reset(v).await?;
        tracing::info!(reset, "reset the counts of sharers");
        for (slot, word) in &look.marked {
            if v.cas(reclaim.area.slot(*slot), word.0, 0).await? == word.0 {
                v.meter().note(Event::Expelled);
            }
        }
        let opened = look.gate.opened();
        let found = v.cas(reclaim.area.gate(), look.gate.0, opened.0).await?;
        v.local(LocalStep::Section).await;
        if found == look.gate.0 {
            self.learn_gate(reclaim, opened);
        }
        pass.done();
        Ok(())
    }

    /// Fences a marked member, ends the census, and frees the member's locks. Does nothing if a client of this compute
    /// node has already done this.
    pub(super) async fn fence_and_sweep<V: Verbs + Control>(
        &self,
        v: &V,
        reclaim: &Reclaim,
        member: u16,
    ) -> Result<(), AllocError> {
        if self.roster.is_gone(member) {
            return Ok(());
        }
        //= docs/protocol/recovery.md V2
        if !reclaim.options.flaws().no_fence {
            v.call(ControlRequest::FenceMember { member }).await?;
        }
        self.close_census(v, reclaim).await?;
        let mut freed = 0;
        if let Some(sweep) = &self.sweep {
            freed = sweep.run(v, member).await?;
        }
        tracing::info!(member, freed, "fenced a silent member and freed its locks");
        self.roster.bury(member);
        Ok(())
    }
}
