//! The round: a client closes the list of retired blocks, announces its compute node, and looks at the other
//! members.
//!
//! One client at a time does a whole round. If the round takes long, the other clients of the compute node
//! announce it and look at the other members meanwhile.

use dm_sync::atomic::Ordering;
use dm_verbs::{Control, ControlError, ControlRequest, Env, Event, LocalStep, Nanos, NodeId, Verbs};

use super::Reclaim;
use super::census::CensusLook;
use super::shares::GateLook;
use crate::depot::SURPLUS;
use crate::limbo::Limbo;
use crate::members::{Look, Membership, SlotWord, Standing};
use crate::{AllocError, Allocator};

/// The slots that a round has read. The list needs no allocation for up to 16 slots.
pub(super) type Looks = smallvec::SmallVec<[(u16, Look); 16]>;

/// One client's part in this compute node's rounds.
struct Part<'r> {
    reclaim: &'r Reclaim,
    /// The slot's word when this part began.
    mine: SlotWord,
    /// Time at which the previous announcement was posted.
    before: Nanos,
    /// Whether this client does the whole round, not only an announcement.
    whole: bool,
    over: bool,
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.reclaim.membership.with(|m| {
            m.announcing -= 1;
            if self.whole {
                m.in_round = false;
            }
            if !self.over {
                //= docs/protocol/reclaim.md R3a
                // The client abandoned its part, so an announcement is still due.
                self.reclaim.announced_at(m, self.before);
            }
        });
    }
}

/// The announcement that a client is about to post.
struct Announcement {
    slot: u16,
    /// The slot's last known word, and the word to write.
    word: SlotWord,
    next: SlotWord,
    /// Whether the beat must change, because this announcement might not change the slot's word. This is so if the
    /// epoch is the same as before, or if an earlier CAS can land first.
    beat: bool,
}

impl Allocator {
    /// Does the compute node's round if it is due or `now` is set. If another client is in a round, and an announcement
    /// is overdue or `now` is set, this client only announces the compute node and looks at the slots.
    pub(super) async fn round<V: Verbs + Control>(&self, v: &V, now: bool) -> Result<(), AllocError> {
        let Some(reclaim) = &self.reclaim else {
            return Ok(());
        };
        v.local(LocalStep::Section).await;
        let Some(mut part) = reclaim.part(v, now) else {
            return Ok(());
        };
        let done = match part.whole {
            true => self.whole_round(v, reclaim, &part).await,
            false => self.announce_and_look(v, reclaim, &part).await,
        };
        part.over = true;
        done
    }

    /// Announces the compute node and looks at the slots, if its last announcement is overdue. Clients that wait for
    /// others call this, because all clients of the compute node may wait for the same dead member.
    pub(super) async fn announcement<V: Verbs + Control>(&self, v: &V) -> Result<(), AllocError> {
        let Some(reclaim) = &self.reclaim else {
            return Ok(());
        };
        v.local(LocalStep::Section).await;
        let part = reclaim
            .membership
            .with(|m| reclaim.is_overdue(v).then(|| reclaim.take_part(m, false)));
        let Some(mut part) = part.flatten() else {
            return Ok(());
        };
        //= docs/protocol/recovery.md V6
        let done = self.announce_and_look(v, reclaim, &part).await;
        part.over = true;
        done
    }

    async fn whole_round<V: Verbs + Control>(
        &self,
        v: &V,
        reclaim: &Reclaim,
        part: &Part<'_>,
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
        self.announce_and_look(v, reclaim, part).await?;
        self.give_up(v, reclaim, SURPLUS).await
    }

    /// Announces this compute node and looks at the slots. Then removes members that are silent or absent, and does
    /// this compute node's next step at the gate and in a census, if there is one.
    async fn announce_and_look<V: Verbs + Control>(
        &self,
        v: &V,
        reclaim: &Reclaim,
        part: &Part<'_>,
    ) -> Result<(), AllocError> {
        // The state is taken before the READ is posted, so that the READ sees the slots as they are now or later.
        let asked = reclaim.membership.with(|m| reclaim.look_counts(v, m));
        let questions = self.roster.questions();
        let before = reclaim.membership.with(|m| (m.gate, m.orphan));
        let (next, others, (gate, census)) = self.announce(v, reclaim, part).await?;
        let slots = others
            .iter()
            .map(|(_, look)| (look.word.number(), !look.word.is_expelled()));
        let absent = self.roster.answer(&questions, next, slots);
        let silent = match asked {
            Some(asked) => {
                v.local(LocalStep::Section).await;
                reclaim.silent(v, asked, &others)
            }
            None => Vec::new(),
        };
        drop(others);
        reclaim.membership.with(|m| reclaim.pace(m, gate.is_some()));
        if silent.is_empty() && absent.is_empty() && gate.is_none() && census.is_none() {
            return Ok(());
        }
        // Boxed, because it is rare and would make the future of every round large.
        Box::pin(async move {
            let mut done = self.remove(v, reclaim, &silent, &absent).await;
            if let Some(gate) = gate {
                done = done.and(self.after_gate(v, reclaim, &gate, before).await);
            }
            if let Some(census) = census {
                done = done.and(match self.after_census(v, reclaim, &census).await {
                    Err(e) if !e.is_fenced() => {
                        // The error is only logged, because the next look tries again and operations do not depend on
                        // the census.
                        tracing::debug!("a census was not answered: {e}");
                        Ok(())
                    }
                    done => done,
                });
            }
            done
        })
        .await
    }

    /// Removes members that are silent, and fences members that have no slot although their locks are still held.
    ///
    /// # Errors
    /// Returns the first error. All other members are still removed.
    pub(super) async fn remove<V: Verbs + Control>(
        &self,
        v: &V,
        reclaim: &Reclaim,
        silent: &[(u16, SlotWord)],
        absent: &[u16],
    ) -> Result<(), AllocError> {
        let mut done = Ok(());
        for &(slot, word) in silent {
            done = done.and(self.expel(v, reclaim, slot, word).await);
        }
        if !reclaim.can_fence() {
            return done;
        }
        for &member in absent {
            //= docs/protocol/recovery.md V5
            match v.call(ControlRequest::FenceMember { member }).await {
                Ok(_) => self.roster.bury(member),
                Err(e) => done = done.and(Err(e.into())),
            }
        }
        done
    }

    /// Announces the epoch of this compute node's oldest running operation, and frees the blocks whose tags are below
    /// every member's announced epoch. Returns the number that the next member will draw and the other members' slots.
    /// Also returns the state of the gate and that of a census, each only if this compute node may have to act on it.
    async fn announce<V: Verbs>(
        &self,
        v: &V,
        reclaim: &Reclaim,
        part: &Part<'_>,
    ) -> Result<(u16, Looks, (Option<Box<GateLook>>, Option<Box<CensusLook>>)), AllocError> {
        v.local(LocalStep::Section).await;
        let Some(Announcement {
            slot,
            word,
            next,
            beat,
        }) = reclaim.next_announcement(v, part.mine)
        else {
            // Another client has noticed that this compute node was fenced.
            return Err(ControlError::Fenced.into());
        };
        //= docs/protocol/reclaim.md R3
        let area = &reclaim.area;
        // The chain is posted in the same step in which the announcement is recorded. So if this client is delayed
        // after that, it has already posted the announcement that the record shows.
        let chain = v.chain(NodeId(0));
        let (cas, image) = if next == word {
            let chain = chain.faa(area.beat(slot), 1);
            let (_, image) = chain.read(area.at, area.bytes()).await?;
            (None, image)
        } else if beat {
            let chain = chain.faa(area.beat(slot), 1);
            let chain = chain.cas(area.slot(slot), word.0, next.0);
            let (_, found, image) = chain.read(area.at, area.bytes()).await?;
            (Some(found), image)
        } else {
            let chain = chain.cas(area.slot(slot), word.0, next.0);
            let (found, image) = chain.read(area.at, area.bytes()).await?;
            (Some(found), image)
        };
        v.local(LocalStep::Section).await;
        let mut looks: Looks = area
            .looks(&image)
            .filter(|(_, look)| !look.word.is_free())
            .collect();
        let own = match cas {
            Some(found) if found == word.0 => next,
            // The CAS has failed. Either another announcement of this compute node has landed, which suffices until the
            // next round, or the compute node has lost its slot.
            Some(found) => SlotWord(found),
            None => looks
                .iter()
                .find(|(i, _)| *i == slot)
                .map_or(SlotWord(0), |(_, look)| look.word),
        };
        if !own.is_of(word) {
            reclaim.lost(word);
            return Err(ControlError::Fenced.into());
        }
        reclaim.announced(slot, own);
        reclaim.learn(image.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)));
        let next = area.next_of(&image);
        looks.retain(|(i, _)| *i != slot);
        let gate = match self.roster.shares() {
            true => self.look_at_gate(reclaim, &image, &looks, (slot, own.number())),
            false => None,
        };
        let census = self.look_at_census(reclaim, &image, slot);
        let oldest = looks.iter().map(|(_, look)| look.word.epoch()).min();
        self.free_below(
            reclaim,
            oldest.map_or(own.epoch(), |oldest| oldest.min(own.epoch())),
        );
        Ok((next, looks, (gate, census)))
    }

    /// Frees the blocks that were unlinked before every running operation began.
    fn free_below(&self, reclaim: &Reclaim, oldest: u64) {
        //= docs/protocol/reclaim.md R4
        reclaim.limbo.with(|limbo| {
            // The blocks move within one section, so that an answer to a census misses none.
            for (block, class) in limbo.free_below(oldest).into_iter().flatten() {
                self.pool_of(block.at)
                    .with(|pool| pool.put_reclaimed(block, class));
            }
        });
    }
}

impl Reclaim {
    /// Returns the part of the round that this client must do, if there is one.
    fn part<E: Env>(&self, env: &E, now: bool) -> Option<Part<'_>> {
        self.membership.with(|m| {
            let due = match m.in_round {
                _ if now => true,
                false => self.is_due(env),
                //= docs/protocol/reclaim.md R7a
                // The client that is in the round may be delayed.
                true => self.is_overdue(env),
            };
            due.then(|| self.take_part(m, !m.in_round)).flatten()
        })
    }

    fn take_part(&self, m: &mut Membership, whole: bool) -> Option<Part<'_>> {
        let Standing::Member { word: mine, .. } = m.standing else {
            return None;
        };
        if self.options.flaws().one_announces && m.announcing > 0 {
            return None;
        }
        m.announcing += 1;
        m.in_round |= whole;
        Some(Part {
            reclaim: self,
            mine,
            before: m.last_round,
            whole,
            over: false,
        })
    }

    /// Returns whether this compute node may fence others.
    pub(super) fn can_fence(&self) -> bool {
        self.options.watches() && self.membership.with(|m| !m.fences_nobody)
    }

    /// Counts a look. Returns the slots of the members that were silent for a lease, with their words. Returns nothing
    /// if another look has been counted since [`Reclaim::look_counts`] returned `asked`. Call it in a section.
    pub(super) fn silent<E: Env>(&self, env: &E, asked: u64, looks: &Looks) -> Vec<(u16, SlotWord)> {
        let parts = self.options.parts();
        self.membership.with(|m| {
            let mut silent = Vec::new();
            //= docs/protocol/reclaim.md R7
            // Of two looks that were posted at the same time only one counts, because no part of a lease lies between
            // them.
            if m.counted != asked {
                return silent;
            }
            m.counted += 1;
            m.looked = env.now();
            m.suspects = false;
            for &(slot, look) in looks {
                let silent_for = m.see(slot, self.options.compared(look), parts);
                m.suspects |= silent_for >= self.options.parts_of_suspicion();
                if silent_for >= parts {
                    silent.push((slot, look.word));
                }
            }
            silent
        })
    }

    /// Records when the last announcement was posted.
    fn announced_at(&self, m: &mut Membership, at: Nanos) {
        m.last_round = at;
        // Relaxed: as `Reclaim::has_passed` says.
        self.last_round.store(at.0, Ordering::Relaxed);
    }

    /// Records and returns the announcement to post now. Returns `None` if this compute node is no longer the member
    /// that announced `mine`.
    fn next_announcement<E: Env>(&self, env: &E, mine: SlotWord) -> Option<Announcement> {
        self.membership.with(|m| {
            let (slot, word) = match m.standing {
                Standing::Member { slot, word } if word.number() == mine.number() => (slot, word),
                _ => return None,
            };
            // The view is read first, so that an operation that `oldest` does not see begins in this epoch or
            // a later one.
            let view = self.epochs.epoch();
            let oldest = self.epochs.oldest();
            let oldest = oldest.filter(|_| !self.options.flaws().announces_now);
            let next = word.announcing(oldest.unwrap_or(view).min(view));
            let beat = next == word || !m.posted.is_empty();
            // The word is recorded before it is posted, because an abandoned announcement may still land.
            if next != word && !m.posted.contains(&next) {
                m.posted.push(next);
            }
            self.announced_at(m, env.now());
            Some(Announcement {
                slot,
                word,
                next,
                beat,
            })
        })
    }

    /// Records the word that the slot has now.
    fn announced(&self, slot: u16, word: SlotWord) {
        self.membership.with(|m| {
            if m.is(word) {
                m.settle(slot, word);
            }
        });
    }

    /// Returns the number of looks counted so far, if a look that is posted now may count too. It may count if a part
    /// of a lease has passed since the last counted look ended. Returns `None` if it may not, or if this compute node
    /// fences nobody.
    pub(super) fn look_counts<E: Env>(&self, env: &E, m: &Membership) -> Option<u64> {
        let part = Nanos(m.lease.0 / u64::from(self.options.parts()));
        let counts = self.options.watches() && !m.fences_nobody && env.elapsed(m.looked, part);
        counts.then_some(m.counted)
    }
}

impl Allocator {
    /// Expels a silent member: marks its slot, fences the member, ends the census, frees the member's locks, and then
    /// frees its slot. If the locks can be shared, this does not free the slot, because the counts of sharers must be
    /// reset before that. Does nothing if `word` does not mark the slot, and the slot has another word by now.
    async fn expel<V: Verbs + Control>(
        &self,
        v: &V,
        reclaim: &Reclaim,
        slot: u16,
        word: SlotWord,
    ) -> Result<(), AllocError> {
        //= docs/protocol/reclaim.md R7
        let (at, member) = (reclaim.area.slot(slot), word.number());
        let marked = word.expelled();
        if !word.is_expelled() && v.cas(at, word.0, marked.0).await? != word.0 {
            return Ok(());
        }
        tracing::warn!(member, "a member was silent for a lease and is expelled");
        self.fence_and_sweep(v, reclaim, member).await?;
        //= docs/protocol/recovery.md V10
        if self.roster.shares() {
            // The slot stays marked until the counts of sharers are reset. The next look begins this by shutting the
            // gate.
            return Ok(());
        }
        if v.cas(at, marked.0, 0).await? == marked.0 {
            v.meter().note(Event::Expelled);
        }
        Ok(())
    }
}
