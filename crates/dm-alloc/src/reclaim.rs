//! Reclamation: retired blocks wait until every operation that may have seen them is over.
//!
//! Of a compute node: its operations run in [epochs](dm_sync::epoch) that it learns from one word of the pool. Once per
//! period one of its clients does a *round*:
//! 1. What was retired so far is closed, and gets the epoch word's value g as its tag (FAA: the word grows).
//! 2. It announces the epoch of its oldest running operation, or the present one, by CAS on its slot.
//! 3. It reads all slots. What has a tag below every announcement is free.
//!
//! An operation that is announced with an epoch above g began after the FAA, hence after the block was unlinked.

use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;

use dm_sync::atomic::{AtomicU64, Ordering};
use dm_sync::epoch::{Epochs, Seat};
use dm_sync::{Arc, Fingerprint, Mutex, fingerprint_of};
use dm_verbs::{
    Control, ControlError, ControlReply, ControlRequest, Env, Exhausted, LocalStep, Nanos, NodeId, RemotePtr,
    Verbs, Why,
};

use crate::block::{Block, Class};
use crate::limbo::Limbo;
use crate::members::{MemberArea, Membership, SlotWord, Standing};
use crate::pool::{NodePool, Orphan};
use crate::{AllocError, Allocator};

/// How a compute node takes part in reclamation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReclaimOptions {
    /// Time between two announcements; `Nanos(u64::MAX)` for none but by [`Allocator::collect`].
    pub period: Nanos,
    /// Operations of a client after which it looks whether its compute node is still a member, due or not.
    pub operations: u32,
    /// Looks in a row at a slot that find the same, before its member counts as silent and is fenced off after its lease;
    /// `u32::MAX`, the default, for never: a silent member then pins memory. A member that is busy but makes no round for
    /// a lease (R7a) is fenced off as well, so this is for those who can say how long that may take.
    pub looks: u32,
    /// Looks at a slot, or at another client's joining, before a typed error.
    pub attempts: u32,
    /// Published nowhere; for study, each with its counterexample.
    pub flaws: ReclaimFlaws,
}

/// What reclamation must not do, switchable for the explorer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReclaimFlaws {
    /// A retired block is free at once.
    pub no_grace: bool,
    /// A block is handed out with the incarnation and version of its last life.
    pub same_life: bool,
    /// The present epoch is announced, not the one of the oldest operation that runs.
    pub announces_now: bool,
    /// A silent member is taken for gone without being fenced.
    pub no_fence: bool,
    /// A dead node is not written dead (for whoever writes nodes).
    pub unburied: bool,
}

/// Default of [`ReclaimOptions::period`].
pub const DEFAULT_PERIOD: Nanos = Nanos::from_micros(1_000);
/// Default of [`ReclaimOptions::operations`].
pub const DEFAULT_OPERATIONS: u32 = 64;

impl ReclaimOptions {
    /// Defaults.
    pub const fn new() -> Self {
        Self {
            period: DEFAULT_PERIOD,
            operations: DEFAULT_OPERATIONS,
            looks: u32::MAX,
            attempts: 1 << 20,
            flaws: ReclaimFlaws {
                no_grace: false,
                same_life: false,
                announces_now: false,
                no_fence: false,
                unburied: false,
            },
        }
    }
}

impl ReclaimOptions {
    /// Whether a round is due, the last having begun at `last`.
    fn is_due<E: Env>(&self, env: &E, last: Nanos) -> bool {
        self.period.0 < u64::MAX && env.elapsed(last, self.period)
    }
}

impl Default for ReclaimOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// What the clients of a compute node share for reclamation.
pub(crate) struct Reclaim {
    area: MemberArea,
    options: ReclaimOptions,
    epochs: Arc<Epochs>,
    /// When the last round began; beside the section, for a look at every operation.
    last_round: AtomicU64,
    membership: Mutex<Membership>,
    limbo: Mutex<Limbo>,
}

impl fmt::Debug for Reclaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reclaim")
            .field("area", &self.area)
            .finish_non_exhaustive()
    }
}

impl Fingerprint for Reclaim {
    fn fingerprint(&self) -> u64 {
        fingerprint_of(&(
            self.epochs.fingerprint(),
            self.membership.fingerprint(),
            self.limbo.fingerprint(),
        ))
    }
}

impl Fingerprint for Membership {
    fn fingerprint(&self) -> u64 {
        // Times are observations, which an explorer folds in itself.
        let seen: Vec<_> = self.seen.iter().map(|s| s.map(|s| (s.word, s.looks))).collect();
        fingerprint_of(&(self.standing, &self.posted, self.in_round, seen))
    }
}

impl Reclaim {
    pub(crate) fn limbo_bytes(&self) -> u64 {
        self.limbo.with(|l| l.bytes())
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let limbo = self.limbo.with(|l| l.heap_bytes());
        limbo + self.epochs.heap_bytes()
    }

    fn place(&self) -> RemotePtr {
        self.area.at
    }
}

impl Allocator {
    /// This, reclaiming what is retired, for a pool whose members announce themselves in `area`.
    #[must_use]
    pub fn reclaiming(mut self, area: MemberArea, options: ReclaimOptions) -> Self {
        self.reclaim = Some(Reclaim {
            area,
            options,
            epochs: Arc::new(Epochs::new()),
            last_round: AtomicU64::new(0),
            membership: Mutex::new(Membership::default()),
            limbo: Mutex::new(Limbo::default()),
        });
        self
    }

    pub(crate) fn area(&self) -> Option<&MemberArea> {
        self.reclaim.as_ref().map(|r| &r.area)
    }

    /// The epochs that operations on this pool must run in; `None` if nothing is reclaimed.
    pub fn epochs(&self) -> Option<&Arc<Epochs>> {
        self.reclaim.as_ref().map(|r| &r.epochs)
    }

    /// Takes a block out of use that other clients may still be reading. Nothing leads to it any more, every line of it
    /// says that its node is dead, and all of that has been awaited. `block` is as it is to be handed out next.
    ///
    /// Where nothing is reclaimed, it is lost.
    pub fn retire(&self, block: Block, class: Class) {
        let Some(reclaim) = &self.reclaim else { return };
        self.pool_of(block.at).with(|pool| pool.retire(class));
        let block = if reclaim.options.flaws.same_life {
            Block {
                incarnation: block.incarnation.wrapping_sub(1),
                version: block.version.wrapping_sub(2),
                ..block
            }
        } else {
            block
        };
        if reclaim.options.flaws.no_grace {
            self.pool_of(block.at)
                .with(|pool| pool.put_reclaimed(block, class));
            return;
        }
        reclaim.limbo.with(|limbo| limbo.retire(block, class));
    }

    /// To be awaited by a client whose seat lets it in no more: joins the pool if need be, enrolls the seat, and does the
    /// compute node's round if it is due. Counted as housekeeping.
    ///
    /// # Errors
    /// [`AllocError::NoSlot`] when all slots are taken by others that announce themselves; verbs' and the control
    /// plane's own, [`ControlError::Fenced`] among them: this compute node was silent for too long.
    pub async fn attend<V: Verbs + Control>(&self, v: &V, seat: &Seat) -> Result<(), AllocError> {
        let _unmetered = v.meter().housekeeping();
        self.enrolled(v, seat).await?;
        self.round(v, false).await
    }

    /// [`Allocator::attend`] without the round.
    async fn enrolled<V: Verbs + Control>(&self, v: &V, seat: &Seat) -> Result<(), AllocError> {
        let Some(reclaim) = &self.reclaim else {
            return Ok(());
        };
        let mut retry = v.retry(reclaim.options.attempts);
        loop {
            v.local(LocalStep::Section).await;
            let generation = reclaim.epochs.generation();
            match reclaim.membership.with(Membership::stand) {
                Standing::Outside => reclaim.join(v).await?,
                Standing::Joining => retry.again(reclaim.place(), Why::Changing).await?,
                Standing::Member { slot, word } => {
                    if !seat.is_enrolled(generation) && !reclaim.enlist(v, slot, word).await? {
                        continue;
                    }
                    self.land(v).await?;
                    seat.enroll(generation, reclaim.options.operations);
                    return Ok(());
                }
            }
        }
    }

    /// To be awaited now and then by an operation that takes long: does the round if it is due, so that its compute node
    /// does not seem silent. Counted as housekeeping.
    ///
    /// # Errors
    /// [`ControlError::Fenced`] if it seemed so already: what the operation reads is not protected any more.
    pub async fn beat<V: Verbs + Control>(&self, v: &V, seat: &Seat) -> Result<(), AllocError> {
        let Some(reclaim) = &self.reclaim else {
            return Ok(());
        };
        v.local(LocalStep::Section).await;
        if !seat.is_enrolled(reclaim.epochs.generation()) {
            return Err(ControlError::Fenced.into());
        }
        let _unmetered = v.meter().housekeeping();
        self.round(v, false).await
    }

    /// A round now, due or not, if none is under way; for compute nodes that run no operations. Counted as housekeeping.
    ///
    /// # Errors
    /// As [`Allocator::attend`].
    pub async fn collect<V: Verbs + Control>(&self, v: &V, seat: &Seat) -> Result<(), AllocError> {
        let _unmetered = v.meter().housekeeping();
        self.enrolled(v, seat).await?;
        self.round(v, true).await
    }

    /// Gives this compute node's membership up if none of its operations runs; what it has retired waits until it is a
    /// member again. Posted, not awaited.
    pub fn leave<V: Verbs>(&self, v: &V) {
        let Some(reclaim) = &self.reclaim else { return };
        let left = reclaim.membership.with(|m| match m.standing {
            Standing::Member { slot, word } if !m.in_round && reclaim.epochs.close() => {
                m.standing = Standing::Outside;
                let mut words = core::mem::take(&mut m.posted);
                words.push(word);
                Some((slot, words))
            }
            _ => None,
        });
        if let Some((slot, words)) = left {
            let _unmetered = v.meter().housekeeping();
            // The last announcement that was awaited goes first: what was posted upon it fails then.
            for word in words.into_iter().rev() {
                v.cas(reclaim.area.slot(slot), word.0, 0).detach();
            }
        }
    }

    /// Reads behind this client's unawaited WRITEs to blocks that were given up: they have landed then.
    async fn land<V: Verbs>(&self, v: &V) -> Result<(), AllocError> {
        for (node, pool) in (0..).zip(&self.pools) {
            v.local(LocalStep::Section).await;
            // Those of now: one that comes later may be written to behind the READ.
            let orphans = pool.with(|p| p.take_orphans(v.client()));
            if orphans.is_empty() {
                continue;
            }
            let mut landing = Landing { pool, orphans };
            let at = RemotePtr::new(NodeId(node), 0).unwrap_or(RemotePtr::NULL);
            // WRITE→READ of one queue pair is in order.
            v.word(at).await?;
            v.local(LocalStep::Section).await;
            let landed = core::mem::take(&mut landing.orphans);
            pool.with(|p| p.landed(landed));
        }
        Ok(())
    }

    /// Whether this compute node's round is due: a look at the clock.
    #[inline]
    pub fn is_due<E: Env>(&self, env: &E) -> bool {
        let Some(reclaim) = &self.reclaim else {
            return false;
        };
        // Relaxed: a hint; the round looks again in its section.
        let last = Nanos(reclaim.last_round.load(Ordering::Relaxed));
        reclaim.options.is_due(env, last)
    }

    /// To be awaited where an operation waits for others and tries again: does the round if it is due, so that its compute
    /// node does not seem silent. Counted as housekeeping.
    ///
    /// # Errors
    /// As [`Allocator::attend`].
    #[inline]
    pub async fn tend<V: Verbs + Control>(&self, v: &V) -> Result<(), AllocError> {
        if !self.is_due(v) {
            return Ok(());
        }
        let _unmetered = v.meter().housekeeping();
        // In a box: it is done once per period, and would make every loop's future large.
        Box::pin(self.round(v, false)).await
    }

    /// `work` that waits for others (for a lock, say), and the rounds that come due meanwhile beside it.
    pub async fn tending<V: Verbs + Control, T>(&self, v: &V, work: impl Future<Output = T>) -> T {
        if self.reclaim.is_none() {
            return work.await;
        }
        let mut work = pin!(work);
        let mut round = None;
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                // A round that is not over yet is given up: what it posted lands.
                return Poll::Ready(done);
            }
            if round.is_none() && self.is_due(v) {
                round = Some(Box::pin(self.round(v, false)));
            }
            // For the time of the poll only: the work's verbs are metered.
            let _unmetered = v.meter().housekeeping();
            if round.as_mut().is_some_and(|r| r.as_mut().poll(cx).is_ready()) {
                // What failed here fails the work as well.
                round = None;
            }
            Poll::Pending
        })
        .await
    }

    /// The compute node's round, if it is due (or `now`) and nobody else is at it.
    async fn round<V: Verbs + Control>(&self, v: &V, now: bool) -> Result<(), AllocError> {
        let Some(reclaim) = &self.reclaim else {
            return Ok(());
        };
        v.local(LocalStep::Section).await;
        let Some((_turn, slot, word)) = reclaim.turn(v, now) else {
            return Ok(());
        };
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
        let view = reclaim.epochs.epoch();
        let oldest = reclaim
            .epochs
            .oldest()
            .filter(|_| !reclaim.options.flaws.announces_now);
        let announced = oldest.unwrap_or(view).min(view);
        let next = word.announcing(announced);
        // Before it is posted: given up, it may land all the same.
        reclaim.membership.with(|m| {
            if !m.posted.contains(&next) {
                m.posted.push(next);
            }
        });
        let chain = v
            .chain(NodeId(0))
            .cas(reclaim.area.slot(slot), word.0, next.0)
            .read(reclaim.area.at, reclaim.area.bytes());
        let (found, image) = chain.await?;
        v.local(LocalStep::Section).await;
        if found != word.0 {
            let found = SlotWord(found);
            if !found.is_of(word) {
                reclaim.lost(word);
                return Err(ControlError::Fenced.into());
            }
            // An announcement of ours that was thought failed has landed.
            reclaim.announced(slot, found);
            return Ok(());
        }
        reclaim.announced(slot, next);
        let epoch = image.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        reclaim.advance(epoch);
        let others = reclaim
            .area
            .words(&image)
            .filter(|(i, w)| *i != slot && !w.is_free());
        let others: Vec<_> = others.collect();
        let oldest = others.iter().map(|(_, w)| w.epoch()).min();
        self.free_below(reclaim, oldest.map_or(announced, |oldest| oldest.min(announced)));
        for (slot, word) in others {
            reclaim.watch(v, slot, word).await?;
        }
        self.give_up(v, &reclaim.area).await
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

impl Membership {
    /// How it stands; who finds it outside is to join for all.
    fn stand(&mut self) -> Standing {
        let standing = self.standing;
        if standing == Standing::Outside {
            self.standing = Standing::Joining;
            // What was seen before is of another time.
            self.seen.clear();
        }
        standing
    }
}

/// A joining under way; given up, another client may try.
struct Joining<'r, 'v, V: Verbs> {
    reclaim: &'r Reclaim,
    v: &'v V,
    /// A CAS on a slot that may succeed.
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
            // Names this member, so it does nothing if the CAS failed; on the same queue pair it comes behind it.
            self.v.cas(self.reclaim.area.slot(slot), word.0, 0).detach();
        }
    }
}

/// Orphans whose WRITEs are being waited for.
struct Landing<'p> {
    pool: &'p Mutex<NodePool>,
    orphans: Vec<Orphan>,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        let orphans = core::mem::take(&mut self.orphans);
        if !orphans.is_empty() {
            self.pool.with(|p| p.put_back(orphans));
        }
    }
}

/// The right to do this compute node's round.
struct Turn<'r>(&'r Reclaim);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.membership.with(|m| m.in_round = false);
    }
}

impl Reclaim {
    fn turn<E: Env>(&self, env: &E, now: bool) -> Option<(Turn<'_>, u16, SlotWord)> {
        let (slot, word) = self.membership.with(|m| {
            let Standing::Member { slot, word } = m.standing else {
                return None;
            };
            let due = now || self.options.is_due(env, m.last_round);
            if m.in_round || !due {
                return None;
            }
            m.in_round = true;
            m.last_round = env.now();
            // Relaxed: as `is_due` says.
            self.last_round.store(m.last_round.0, Ordering::Relaxed);
            Some((slot, word))
        })?;
        Some((Turn(self), slot, word))
    }

    /// What our slot says now.
    fn announced(&self, slot: u16, word: SlotWord) {
        self.membership.with(|m| {
            if m.is(word) {
                m.settle(slot, word);
            }
        });
    }

    /// Others took this compute node for gone, or are about to.
    fn lost(&self, mine: SlotWord) {
        self.membership.with(|m| {
            // Another client may have found that out before, and joined anew.
            if m.is(mine) {
                m.standing = Standing::Outside;
                self.epochs.revoke();
            }
        });
    }

    fn advance(&self, epoch: u64) {
        // In a section with all others that change the view: `Epochs` wants one at a time.
        self.membership.with(|_| self.epochs.advance(epoch));
    }

    /// Takes a slot for this compute node. The caller has found it outside.
    async fn join<V: Verbs + Control>(&self, v: &V) -> Result<(), AllocError> {
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
        let mut number = v.faa(self.area.next_number(), 1).await? as u16;
        let mut retry = v.retry(self.options.attempts);
        loop {
            let image = v.read(self.area.at, self.area.bytes()).await?;
            let epoch = image.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            let Some((slot, _)) = self.area.words(&image).find(|(_, word)| word.is_free()) else {
                // Some of them may be gone.
                let taken: Vec<_> = self.area.words(&image).collect();
                drop(image);
                for (slot, word) in taken {
                    self.watch(v, slot, word).await?;
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
                .words(&image)
                .any(|(_, word)| !word.is_free() && word.number() == number)
            {
                // Numbers wrap, and one of those before is still there.
                drop(image);
                number = v.faa(self.area.next_number(), 1).await? as u16;
                retry.again(self.place(), Why::Changing).await?;
                continue;
            }
            drop(image);
            // Operations of an earlier membership may still run.
            let oldest = self.epochs.oldest().map_or(epoch, |oldest| oldest.min(epoch));
            let word = SlotWord::active(number, oldest);
            joining.posted = Some((slot, word));
            if v.cas(self.area.slot(slot), 0, word.0).await? != 0 {
                joining.posted = None;
                retry.again(self.place(), Why::Raced).await?;
                continue;
            }
            //= docs/protocol/reclaim.md R5
            // What was freed before the slot was taken was unlinked before anything is read from here on.
            let epoch = v.word(self.area.epoch()).await?;
            v.local(LocalStep::Section).await;
            joining.posted = None;
            self.advance(epoch);
            self.membership.with(|m| m.settle(slot, word));
            return Ok(());
        }
    }

    /// Makes this client one that is fenced with its compute node; `false` if that is a member no more.
    async fn enlist<V: Verbs + Control>(&self, v: &V, slot: u16, mine: SlotWord) -> Result<bool, AllocError> {
        //= docs/protocol/reclaim.md R6
        match v
            .call(ControlRequest::Enlist {
                member: mine.number(),
            })
            .await
        {
            Ok(_) => {}
            // A control plane that knows no groups: nobody is fenced, and a silent member pins memory for good.
            Err(ControlError::NoSuchNode { .. }) => self.membership.with(|m| m.fences_nobody = true),
            Err(e) => return Err(e.into()),
        }
        // Who expels marks the slot before he fences: either this sees the mark, or the fence sees this client.
        let found = SlotWord(v.word(self.area.slot(slot)).await?);
        if found.is_of(mine) {
            return Ok(true);
        }
        v.local(LocalStep::Section).await;
        self.lost(mine);
        Ok(false)
    }

    /// Looks whether a member is silent for longer than its lease, and removes it then.
    async fn watch<V: Verbs + Control>(&self, v: &V, slot: u16, word: SlotWord) -> Result<(), AllocError> {
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

impl From<Exhausted> for AllocError {
    fn from(e: Exhausted) -> Self {
        Self::Contended(e)
    }
}
