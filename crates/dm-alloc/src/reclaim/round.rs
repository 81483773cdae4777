//! The round: what was retired is closed, this compute node announces itself, and looks at the others.
//!
//! One client at a time does a whole round. While it stays in its round, however long, the other clients announce their
//! compute node and look at the others.

use dm_sync::atomic::Ordering;
use dm_verbs::{Control, ControlError, ControlRequest, Env, LocalStep, Nanos, NodeId, Verbs};

use super::Reclaim;
use crate::limbo::Limbo;
use crate::members::{Look, Membership, SlotWord, Standing};
use crate::{AllocError, Allocator};

/// The slots as a round saw them. The list stays on the stack for as many members as most pools have.
pub(super) type Looks = smallvec::SmallVec<[(u16, Look); 16]>;

/// A client's part in this compute node's rounds.
struct Part<'r> {
    reclaim: &'r Reclaim,
    /// The slot when it began.
    mine: SlotWord,
    /// When the last announcement before was posted.
    before: Nanos,
    /// The whole round is this client's, not only an announcement.
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
                // Given up: due still.
                self.reclaim.announced_at(m, self.before);
            }
        });
    }
}

/// The announcement that a client is about to post.
struct Announcement {
    slot: u16,
    /// What the slot says as far as is known, and what it is to say.
    word: SlotWord,
    next: SlotWord,
    /// The CAS alone may change nothing: the epoch is the same, or another CAS may have landed, or may yet land before it.
    beat: bool,
}

impl Allocator {
    /// Does the compute node's round if it is due (or `now`). While another client is in a round, it announces and looks
    /// only, if that is overdue (or `now`).
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

    /// The announcement that nobody has made for long, and no more: its caller may hold a lock meanwhile.
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
        let done = self.announce(v, reclaim, &part).await;
        part.over = true;
        done.map(drop)
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
        self.give_up(v, &reclaim.area).await
    }

    /// Announces this compute node, and removes silent members if the look counts.
    async fn announce_and_look<V: Verbs + Control>(
        &self,
        v: &V,
        reclaim: &Reclaim,
        part: &Part<'_>,
    ) -> Result<(), AllocError> {
        // Before the READ is posted, so that what the look finds is of this moment or a later one.
        let asked = reclaim.membership.with(|m| reclaim.look_counts(v, m));
        let others = self.announce(v, reclaim, part).await?;
        match asked {
            Some(asked) => reclaim.watch(v, asked, others).await,
            None => Ok(()),
        }
    }

    /// Announces since when this compute node's oldest operation runs, and frees what that and all others allow; what the
    /// others announce.
    async fn announce<V: Verbs>(
        &self,
        v: &V,
        reclaim: &Reclaim,
        part: &Part<'_>,
    ) -> Result<Looks, AllocError> {
        v.local(LocalStep::Section).await;
        let Some(Announcement {
            slot,
            word,
            next,
            beat,
        }) = reclaim.next_announcement(v, part.mine)
        else {
            // Another client has found out.
            return Err(ControlError::Fenced.into());
        };
        //= docs/protocol/reclaim.md R3
        let area = &reclaim.area;
        // Posted in the same step as it is noted: who stays here for long has announced all the same.
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
            // Another's announcement, or one that was given up: it will do until the next.
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
        looks.retain(|(i, _)| *i != slot);
        let oldest = looks.iter().map(|(_, look)| look.word.epoch()).min();
        self.free_below(
            reclaim,
            oldest.map_or(own.epoch(), |oldest| oldest.min(own.epoch())),
        );
        Ok(looks)
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
    /// This client's part, if there is one to do.
    fn part<E: Env>(&self, env: &E, now: bool) -> Option<Part<'_>> {
        self.membership.with(|m| {
            let due = match m.in_round {
                _ if now => true,
                false => self.is_due(env),
                //= docs/protocol/reclaim.md R7a
                // The one who is in it may be held up.
                true => self.is_overdue(env),
            };
            due.then(|| self.take_part(m, !m.in_round)).flatten()
        })
    }

    fn take_part(&self, m: &mut Membership, whole: bool) -> Option<Part<'_>> {
        let Standing::Member { word: mine, .. } = m.standing else {
            return None;
        };
        if self.options.flaws.one_announces && m.announcing > 0 {
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

    /// Notes when the last announcement was posted.
    fn announced_at(&self, m: &mut Membership, at: Nanos) {
        m.last_round = at;
        // Relaxed: as `Reclaim::has_passed` says.
        self.last_round.store(at.0, Ordering::Relaxed);
    }

    /// What is to be announced, and is about to be posted; `None` if this compute node is no longer the member of `mine`.
    fn next_announcement<E: Env>(&self, env: &E, mine: SlotWord) -> Option<Announcement> {
        self.membership.with(|m| {
            let (slot, word) = match m.standing {
                Standing::Member { slot, word } if word.number() == mine.number() => (slot, word),
                _ => return None,
            };
            // The view first: an operation that `oldest` misses begins in this one or later.
            let view = self.epochs.epoch();
            let oldest = self.epochs.oldest();
            let oldest = oldest.filter(|_| !self.options.flaws.announces_now);
            let next = word.announcing(oldest.unwrap_or(view).min(view));
            let beat = next == word || !m.posted.is_empty();
            // Before it is posted: given up, it may land all the same.
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

    /// What our slot says now.
    fn announced(&self, slot: u16, word: SlotWord) {
        self.membership.with(|m| {
            if m.is(word) {
                m.settle(slot, word);
            }
        });
    }

    /// Returns the number of looks that have counted so far if the next one may count too: a part of a lease has passed
    /// since the last.
    pub(super) fn look_counts<E: Env>(&self, env: &E, m: &Membership) -> Option<u64> {
        let part = Nanos(m.lease.0 / u64::from(self.options.parts()));
        let counts = self.options.watches() && !m.fences_nobody && env.elapsed(m.looked, part);
        counts.then_some(m.counted)
    }

    /// Counts a look, and removes the members that were silent for a lease. Does nothing if another look has been counted
    /// since [`Reclaim::look_counts`] returned `asked`.
    ///
    /// # Errors
    /// The first error, after every silent member was tried.
    pub(super) async fn watch<V: Verbs + Control>(
        &self,
        v: &V,
        asked: u64,
        looks: Looks,
    ) -> Result<(), AllocError> {
        v.local(LocalStep::Section).await;
        let parts = self.options.parts();
        let silent = self.membership.with(|m| {
            let mut silent = Vec::new();
            //= docs/protocol/reclaim.md R7
            // Two looks that were posted side by side are not a part of a lease apart.
            if m.counted != asked {
                return silent;
            }
            m.counted += 1;
            m.looked = v.now();
            for (slot, look) in looks {
                if m.see(slot, self.options.compared(look), parts) >= parts {
                    silent.push((slot, look.word));
                }
            }
            silent
        });
        let mut done = Ok(());
        for (slot, word) in silent {
            done = done.and(self.expel(v, slot, word).await);
        }
        done
    }

    async fn expel<V: Verbs + Control>(&self, v: &V, slot: u16, word: SlotWord) -> Result<(), AllocError> {
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
