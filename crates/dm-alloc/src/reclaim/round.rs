//! The round: what was retired is closed, this compute node announces itself, and looks at the others.

use dm_sync::atomic::Ordering;
use dm_verbs::{Control, ControlError, ControlRequest, Env, LocalStep, Nanos, NodeId, Verbs, Why};

use super::Reclaim;
use crate::limbo::Limbo;
use crate::members::{Membership, SlotWord, Standing};
use crate::{AllocError, Allocator};

/// The right to do this compute node's round.
struct Turn<'r> {
    reclaim: &'r Reclaim,
    slot: u16,
    /// What the slot says as far as is known.
    word: SlotWord,
    /// When the round before began.
    before: Nanos,
    over: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.reclaim.membership.with(|m| {
            m.in_round = false;
            if !self.over {
                //= docs/protocol/reclaim.md R3a
                // Given up: due still.
                self.reclaim.began_round(m, self.before);
            }
        });
    }
}

impl Allocator {
    /// The compute node's round, if it is due (or `now`) and nobody else is at it.
    pub(super) async fn round<V: Verbs + Control>(&self, v: &V, now: bool) -> Result<(), AllocError> {
        let Some(reclaim) = &self.reclaim else {
            return Ok(());
        };
        v.local(LocalStep::Section).await;
        let Some(mut turn) = reclaim.turn(v, now) else {
            return Ok(());
        };
        let done = self.whole_round(v, reclaim, &turn).await;
        turn.over = true;
        done
    }

    /// The announcement of a round that nobody has begun for long, and no more: its caller may hold a lock meanwhile.
    pub(super) async fn announcement<V: Verbs + Control>(&self, v: &V) -> Result<(), AllocError> {
        let Some(reclaim) = &self.reclaim else {
            return Ok(());
        };
        v.local(LocalStep::Section).await;
        let Some(mut turn) = reclaim.turn(v, false) else {
            return Ok(());
        };
        let done = self.announce(v, reclaim, &turn).await;
        turn.over = true;
        done.map(drop)
    }

    async fn whole_round<V: Verbs + Control>(
        &self,
        v: &V,
        reclaim: &Reclaim,
        turn: &Turn<'_>,
    ) -> Result<(), AllocError> {
        //= docs/protocol/reclaim.md R3
        let tag = if reclaim.limbo.with(Limbo::close) {
            Some(v.faa(reclaim.area.epoch(), 1).await?)
        } else {
            None
        };
        v.local(LocalStep::Section).await;
        if let Some(tag) = tag {
            reclaim.limbo.with(|limbo| limbo.tag(tag));
        }
        for (slot, word) in self.announce(v, reclaim, turn).await? {
            reclaim.watch(v, slot, word).await?;
        }
        self.give_up(v, &reclaim.area).await
    }

    /// Announces since when this compute node's oldest operation runs, and frees what that and all others allow; what the
    /// others announce.
    async fn announce<V: Verbs>(
        &self,
        v: &V,
        reclaim: &Reclaim,
        turn: &Turn<'_>,
    ) -> Result<Vec<(u16, SlotWord)>, AllocError> {
        let mut word = turn.word;
        let mut retry = v.retry(reclaim.options.attempts);
        loop {
            v.local(LocalStep::Section).await;
            let (announced, next) = reclaim.next_word(word);
            let chain = v
                .chain(NodeId(0))
                .cas(reclaim.area.slot(turn.slot), word.0, next.0)
                .read(reclaim.area.at, reclaim.area.bytes());
            let (found, image) = chain.await?;
            v.local(LocalStep::Section).await;
            if found == word.0 {
                reclaim.announced(turn.slot, next);
                let epoch = image.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
                reclaim.learn(epoch);
                let others = reclaim.area.words(&image);
                let others: Vec<_> = others.filter(|(i, w)| *i != turn.slot && !w.is_free()).collect();
                let oldest = others.iter().map(|(_, w)| w.epoch()).min();
                self.free_below(reclaim, oldest.map_or(announced, |oldest| oldest.min(announced)));
                return Ok(others);
            }
            let found = SlotWord(found);
            if !found.is_of(word) {
                reclaim.lost(word);
                return Err(ControlError::Fenced.into());
            }
            //= docs/protocol/reclaim.md R3a
            // One that was given up has landed: this one goes behind it. Were it left at that, one given up after the other
            // would leave the slot as it is.
            reclaim.announced(turn.slot, found);
            word = found;
            retry.again_wiser(reclaim.place(), Why::Raced).await?;
        }
    }

    /// Frees what every operation has begun after.
    fn free_below(&self, reclaim: &Reclaim, oldest: u64) {
        //= docs/protocol/reclaim.md R4
        let freed = reclaim.limbo.with(|limbo| limbo.free_below(oldest));
        for (block, class) in freed.into_iter().flatten() {
            self.pool_of(block.at)
                .with(|pool| pool.put_reclaimed(block, class));
        }
    }
}

impl Reclaim {
    /// This client's to do, if the round is due (or `now`) and nobody is at it.
    fn turn<E: Env>(&self, env: &E, now: bool) -> Option<Turn<'_>> {
        self.membership.with(|m| {
            let Standing::Member { slot, word } = m.standing else {
                return None;
            };
            let due = now || self.options.is_due(env, m.last_round);
            if m.in_round || !due {
                return None;
            }
            m.in_round = true;
            let before = m.last_round;
            self.began_round(m, env.now());
            Some(Turn {
                reclaim: self,
                slot,
                word,
                before,
                over: false,
            })
        })
    }

    /// Notes when the last round began.
    fn began_round(&self, m: &mut Membership, at: Nanos) {
        m.last_round = at;
        // Relaxed: as `Reclaim::last_round` says.
        self.last_round.store(at.0, Ordering::Relaxed);
    }

    /// The epoch to announce, and the slot's word for it, if `word` is what it says. Noted as posted.
    fn next_word(&self, word: SlotWord) -> (u64, SlotWord) {
        let view = self.epochs.epoch();
        let oldest = self.epochs.oldest();
        let oldest = oldest.filter(|_| !self.options.flaws.announces_now);
        let announced = oldest.unwrap_or(view).min(view);
        let next = word.announcing(announced);
        // Before it is posted: given up, it may land all the same.
        self.membership.with(|m| {
            if !m.posted.contains(&next) {
                m.posted.push(next);
            }
        });
        (announced, next)
    }

    /// What our slot says now.
    fn announced(&self, slot: u16, word: SlotWord) {
        self.membership.with(|m| {
            if m.is(word) {
                m.settle(slot, word);
            }
        });
    }

    /// Looks whether a member is silent for longer than its lease, and removes it then.
    pub(super) async fn watch<V: Verbs + Control>(
        &self,
        v: &V,
        slot: u16,
        word: SlotWord,
    ) -> Result<(), AllocError> {
        v.local(LocalStep::Section).await;
        let (seen, lease, nobody) = self.membership.with(|m| {
            let seen = m.see(slot, word, v.now(), self.options.looks);
            (seen, m.lease, m.fences_nobody)
        });
        if word.is_free() || nobody || seen.looks < self.options.looks || !v.elapsed(seen.since, lease) {
            return Ok(());
        }
        //= docs/protocol/reclaim.md R7
        let at = self.area.slot(slot);
        let marked = word.expelled();
        if !word.is_expelled() && v.cas(at, word.0, marked.0).await? != word.0 {
            return Ok(());
        }
        if !self.options.flaws.no_fence {
            v.call(ControlRequest::FenceMember {
                member: word.number(),
            })
            .await?;
        }
        v.cas(at, marked.0, 0).await?;
        Ok(())
    }
}
