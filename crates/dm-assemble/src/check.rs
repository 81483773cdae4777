//! Checks a whole index, and finishes what dead clients have left in it.

use core::fmt::{self, Write as _};

use dm_alloc::{AllocError, Census, CensusStep, Members, Restored, Sweep, rest};
use dm_index::{Finding, Flaw, IndexError, LevelCount, Survey};
use dm_lock::{DOUBT, LockWord};
use dm_sync::epoch::Epochs;
use dm_verbs::{Control, Nanos, Place, Verbs};

use crate::{Handle, Parts};

/// Maximum number of walks of a check. The check reports a fault only if two successive walks find it unchanged. Maximum number
/// of walks of a census, too.
const WALKS: u32 = 4;
/// Maximum number of walks of a sweep. A walk may finish nodes that could not be finished before the previous walk.
const SWEEP_WALKS: u32 = 8;
/// Maximum number of censuses of a sweep. A census ends without a result if a member leaves or is expelled meanwhile.
const CENSUSES: u32 = 4;
/// Leases after which a census is given up if a member does not answer it.
const CENSUS_LEASES: u64 = 8;
/// Shortest time after which a census is given up. Compute nodes that remember addresses begin operations in a later epoch only
/// after two turns of their caches.
const CENSUS_LEAST: Nanos = Nanos::from_millis(2000);
/// Parts of a lease that lie between two rounds of a census.
const CENSUS_PARTS: u64 = 64;
/// The time between two walks. It is longer than any operation that is not interrupted.
const BETWEEN: Nanos = Nanos::from_millis(5);

/// A lock that a client holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldLock {
    /// The lock word.
    pub at: Place,
    /// The client that took the lock.
    pub client: u16,
    /// The number of its member; 0 if its compute node is no member.
    pub member: u16,
    /// Whether this member is gone.
    pub gone: bool,
}

/// The result of [`Handle::check`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckReport {
    /// Nodes by level, from the leaves on. All nodes of a radix tree count as one level.
    pub levels: Vec<LevelCount>,
    /// Number of keys.
    pub keys: u64,
    /// Leaves of removed keys that are still linked.
    pub removed: u64,
    /// Nodes without an entry in the inner structure, which operations reach through their left neighbours.
    pub unlisted: u64,
    /// Entries of the inner structure that are hints, and lead to no node any more.
    pub stale_hints: u64,
    /// Locks that are held.
    pub held: Vec<HeldLock>,
    /// Bytes of all nodes that can be reached, and of the items to which they refer.
    pub reachable_bytes: u64,
    /// Bytes that the memory nodes have handed out for nodes and items.
    pub allocated_bytes: u64,
    /// Bytes that were handed out, cannot be reached, and are neither in the depots nor in this compute node's
    /// allocator. They include the free memory of other members; the rest is lost.
    pub leaked_bytes: u64,
    /// Nodes and words that clients were changing during the check.
    pub in_change: u64,
    /// Faults.
    pub findings: Vec<Finding>,
}

impl CheckReport {
    /// Returns whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// Returns the report as one JSON object.
    pub fn to_json(&self) -> String {
        let levels = self.levels.iter().zip(0..).map(|(count, level): (_, u32)| {
            let LevelCount {
                nodes,
                entries,
                bytes,
            } = count;
            format!("{{\"level\":{level},\"nodes\":{nodes},\"entries\":{entries},\"bytes\":{bytes}}}")
        });
        let held = self.held.iter().map(|lock| {
            let HeldLock {
                at,
                client,
                member,
                gone,
            } = lock;
            format!("{{\"at\":\"{at}\",\"client\":{client},\"member\":{member},\"gone\":{gone}}}")
        });
        let findings = self.findings.iter().map(|Finding { at, flaw }| {
            let why = flaw.to_string().replace('\\', "\\\\").replace('"', "\\\"");
            format!(
                "{{\"at\":\"{at}\",\"flaw\":\"{}\",\"why\":\"{why}\"}}",
                flaw.name()
            )
        });
        let list = |items: &mut dyn Iterator<Item = String>| items.collect::<Vec<_>>().join(",");
        format!(
            "{{\"clean\":{},\"keys\":{},\"levels\":[{}],\"removed\":{},\"unlisted\":{},\"stale_hints\":{},\
             \"held\":[{}],\"reachable_bytes\":{},\"allocated_bytes\":{},\"leaked_bytes\":{},\"in_change\":{},\
             \"findings\":[{}]}}",
            self.is_clean(),
            self.keys,
            list(&mut levels.into_iter()),
            self.removed,
            self.unlisted,
            self.stale_hints,
            list(&mut held.into_iter()),
            self.reachable_bytes,
            self.allocated_bytes,
            self.leaked_bytes,
            self.in_change,
            list(&mut findings.into_iter()),
        )
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} keys", self.keys)?;
        for (level, count) in self.levels.iter().enumerate().rev() {
            let LevelCount {
                nodes,
                entries,
                bytes,
            } = count;
            writeln!(
                f,
                "level {level}: {nodes} nodes, {entries} entries, {bytes} bytes"
            )?;
        }
        writeln!(
            f,
            "{} bytes handed out, {} can be reached, {} leaked or free on other compute nodes",
            self.allocated_bytes, self.reachable_bytes, self.leaked_bytes
        )?;
        for (count, what) in [
            (
                self.unlisted,
                "nodes without an entry above them, found by their left neighbours",
            ),
            (self.stale_hints, "entries that are out of date"),
            (self.removed, "leaves of removed keys that are still linked"),
            (self.in_change, "nodes or words in change"),
        ] {
            if count > 0 {
                writeln!(f, "{count} {what}")?;
            }
        }
        for HeldLock {
            at,
            client,
            member,
            gone,
        } in &self.held
        {
            let gone = if *gone { ", which is gone" } else { "" };
            writeln!(
                f,
                "the lock at {at} is held by client {client} of member {member}{gone}"
            )?;
        }
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        match self.findings.len() {
            0 => f.write_str("nothing is wrong"),
            n => write!(f, "{n} findings"),
        }
    }
}

/// The result of [`Handle::sweep`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SweepReport {
    /// Members that were expelled because they were silent.
    pub expelled: u64,
    /// Locks of members that are gone and that were still held.
    pub freed: u64,
    /// Nodes that were mended.
    pub mended: u64,
    /// Lock words whose doubt was cleared.
    pub cleared: u64,
    /// Blocks of dead members that were given back. `None` if no census succeeded. The reasons may be that members came
    /// and went, that the index changed during each walk, that a member did not answer, that a step of the census
    /// failed, or that a walk cannot reach all nodes of this kind of index.
    pub restored: Option<Restored>,
    /// The error that ended the census, if one did.
    pub census_failed: Option<IndexError>,
    /// The state of the index afterwards.
    pub check: CheckReport,
}

impl SweepReport {
    /// Returns the faults that remain, each as a line of text.
    pub fn faults(&self) -> Vec<String> {
        self.check.findings.iter().map(ToString::to_string).collect()
    }

    /// Returns the faults that remain, and the memory that is still lost if it is more than `most` bytes. Call it if no
    /// other compute node has memory of the pool.
    pub fn faults_and_leaks(&self, most: u64) -> Vec<String> {
        let mut faults = self.faults();
        let CheckReport {
            allocated_bytes,
            reachable_bytes,
            leaked_bytes,
            ..
        } = self.check;
        if leaked_bytes > most {
            let restored = self.restored;
            faults.push(format!(
                "{leaked_bytes} of {allocated_bytes} bytes are lost, {reachable_bytes} can be reached, and the census gave back \
                 {restored:?}"
            ));
        }
        faults
    }

    /// Returns the report as one JSON object.
    pub fn to_json(&self) -> String {
        let mut text = String::new();
        let Self {
            expelled,
            freed,
            mended,
            cleared,
            restored,
            census_failed,
            check,
        } = self;
        let restored = restored.map_or_else(
            || "null".to_owned(),
            |Restored { blocks, bytes }| format!("{{\"blocks\":{blocks},\"bytes\":{bytes}}}"),
        );
        let census_failed = census_failed.map_or_else(
            || "null".to_owned(),
            |e| format!("\"{}\"", e.to_string().replace('\\', "\\\\").replace('"', "\\\"")),
        );
        let written = write!(
            text,
            "{{\"expelled\":{expelled},\"freed\":{freed},\"mended\":{mended},\"cleared\":{cleared},\
             \"restored\":{restored},\"census_failed\":{census_failed},\"check\":{}}}",
            check.to_json()
        );
        debug_assert!(written.is_ok(), "a string accepts everything");
        text
    }
}

impl fmt::Display for SweepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            expelled,
            freed,
            mended,
            cleared,
            restored,
            census_failed,
            check,
        } = self;
        writeln!(
            f,
            "{expelled} silent members expelled, {freed} locks freed, {mended} nodes finished, {cleared} words no longer \
             in doubt"
        )?;
        match restored {
            Some(Restored { blocks, bytes }) => {
                writeln!(f, "{blocks} lost blocks given back, {bytes} bytes")?
            }
            None => f.write_str("no census of blocks succeeded, so lost memory was not given back\n")?,
        }
        if let Some(e) = census_failed {
            writeln!(f, "the census failed: {e}")?;
        }
        check.fmt(f)
    }
}

/// The result of a census.
enum Outcome {
    Restored(Restored),
    /// Members came and went, or the index was in change during each walk.
    Disturbed,
    /// The walk does not reach all nodes.
    Impossible,
}

/// The results of one walk.
struct Walk {
    survey: Survey,
    /// The members before and after the walk.
    members: [Members; 2],
    /// Lock words in the pool's tables that were held or in doubt before the walk.
    words: Vec<(Place, u64)>,
    held: Vec<HeldLock>,
    /// Faults, each with a hash of the bytes that show it.
    faults: Vec<(Finding, u64)>,
}

impl Walk {
    /// Returns whether no member has lost its slot during the walk.
    fn is_stable(&self) -> bool {
        let [before, after] = &self.members;
        before.are_all_in(after)
    }

    /// Returns whether every node was visited that was in use throughout the walk.
    fn reached_all(&self) -> bool {
        let harmless = |flaw| {
            matches!(
                flaw,
                Flaw::InDoubt
                    | Flaw::LockOfGone { .. }
                    | Flaw::NotASibling
                    | Flaw::Separator
                    | Flaw::Unfinished(_)
            )
        };
        self.survey.unread == 0 && self.faults.iter().all(|(finding, _)| harmless(finding.flaw))
    }

    /// Returns whether every node was visited and no node was damaged or in change. A wrong pointer may hide nodes.
    fn is_complete(&self) -> bool {
        let locks = |flaw| matches!(flaw, Flaw::InDoubt | Flaw::LockOfGone { .. });
        self.survey.in_change == 0 && self.faults.iter().all(|(finding, _)| locks(finding.flaw))
    }
}

impl<P: Parts> Handle<P> {
    /// Visits the whole index, and returns counts of its parts and its faults. It changes nothing. Other clients may
    /// work meanwhile, so a fault is reported only if two successive walks have found it in the same bytes.
    ///
    /// This takes a round trip for each node of a B-link tree, each radix node and each leaf of many keys, and one for each 64
    /// leaves of one key. If anything looks wrong, it takes up to four times as long. The verbs are metered as
    /// housekeeping.
    ///
    /// # Errors
    /// Returns errors of verbs and of the control plane. Damage in the index is not an error: the report lists it as
    /// findings.
    pub async fn check<V: Verbs + Control>(&self, v: &V) -> Result<CheckReport, IndexError> {
        let _unmetered = v.meter().housekeeping();
        self.alloc.visit(v, Box::pin(self.check_within(v))).await
    }

    async fn check_within<V: Verbs + Control>(&self, v: &V) -> Result<CheckReport, IndexError> {
        let mut walk = self.walk(v, self.survey_of(false)).await?;
        let mut confirmed = Vec::new();
        for _ in 1..WALKS {
            if walk.faults.is_empty() {
                break;
            }
            rest(v, BETWEEN).await;
            let next = self.walk(v, self.survey_of(false)).await?;
            confirmed.clone_from(&next.faults);
            confirmed.retain(|fault| walk.faults.contains(fault));
            let settled = confirmed.len() == next.faults.len();
            walk = next;
            if settled {
                break;
            }
        }
        let bytes = self.alloc.pool_bytes(v).await?;
        let Walk {
            survey, held, faults, ..
        } = walk;
        let reachable_bytes = survey.bytes();
        let known = reachable_bytes
            .saturating_add(bytes.own)
            .saturating_add(bytes.depots);
        Ok(CheckReport {
            keys: survey.keys,
            removed: survey.removed,
            unlisted: survey.unlisted,
            stale_hints: survey.stale_hints,
            held,
            reachable_bytes,
            allocated_bytes: bytes.allocated,
            leaked_bytes: bytes.allocated.saturating_sub(known),
            in_change: survey.in_change + (faults.len() - confirmed.len()) as u64,
            findings: confirmed.into_iter().map(|(finding, _)| finding).collect(),
            levels: survey.levels,
        })
    }

    /// Expels silent members, frees the locks of members that are gone, finishes what they have left unfinished, clears the
    /// doubt of lock words (V8), and gives back the blocks that dead members have lost (V16). Other clients may work
    /// meanwhile. It ends with a [check](Handle::check).
    ///
    /// It waits for about one lease if a member is silent. Afterwards it takes as long as three checks or more, and several
    /// rounds of all members. The list of the blocks that it has reached takes 8 bytes of local memory for each block.
    ///
    /// # Errors
    /// Returns errors of verbs and of the control plane. If a memory node does not answer, a member cannot be fenced,
    /// and its locks stay held.
    pub async fn sweep<V: Verbs + Control>(&self, v: &V) -> Result<SweepReport, IndexError> {
        let _unmetered = v.meter().housekeeping();
        // The seat keeps this compute node in the pool between the parts of the sweep.
        let seat = self.alloc.epochs().map(Epochs::seat);
        let swept = Box::pin(self.sweep_all(v)).await;
        drop(seat);
        self.alloc.leave_if_empty(v);
        swept
    }

    async fn sweep_all<V: Verbs + Control>(&self, v: &V) -> Result<SweepReport, IndexError> {
        let mut report = self.alloc.visit(v, Box::pin(self.sweep_within(v))).await?;
        for _ in 0..CENSUSES {
            match self.take_census(v).await {
                Ok(Outcome::Restored(restored)) => report.restored = Some(restored),
                Ok(Outcome::Impossible) => {}
                // All that was found and mended before is reported all the same.
                Err(e) => report.census_failed = Some(e),
                Ok(Outcome::Disturbed) => {
                    let waiting = async { Ok::<_, IndexError>(self.alloc.outlast_silent(v).await?) };
                    self.alloc.visit(v, waiting).await?;
                    continue;
                }
            }
            break;
        }
        report.check = self.check(v).await?;
        Ok(report)
    }

    /// Finds the blocks that dead members have lost, and gives them back.
    async fn take_census<V: Verbs + Control>(&self, v: &V) -> Result<Outcome, IndexError> {
        let beginning = Box::pin(self.alloc.begin_census(v));
        let Some(mut census) = self.alloc.while_announcing(v, beginning).await? else {
            return Ok(Outcome::Disturbed);
        };
        //= docs/protocol/recovery.md V20
        if !self.until(v, async || census.told().await).await? {
            return Ok(Outcome::Disturbed);
        }
        census.grace().await?;
        if !self.until(v, async || census.quiet().await).await? {
            return Ok(Outcome::Disturbed);
        }
        let walk = Box::pin(self.whole_walk(v));
        let Some(walk) = self.alloc.visit(v, walk).await? else {
            return Ok(Outcome::Disturbed);
        };
        let Some(reached) = walk.survey.reached else {
            return Ok(Outcome::Impossible);
        };
        census.know(&reached);
        drop(reached);
        let knowing = Box::pin(census.know_depots());
        if self.alloc.while_announcing(v, knowing).await? != CensusStep::Done {
            return Ok(Outcome::Disturbed);
        }
        census.grace().await?;
        if !self.until(v, async || census.quiet().await).await? {
            return Ok(Outcome::Disturbed);
        }
        self.ask(v, census).await
    }

    /// Does the second half of a census.
    async fn ask<V: Verbs + Control>(&self, v: &V, mut census: Census<'_, V>) -> Result<Outcome, IndexError> {
        let asking = async { Ok::<_, IndexError>(self.alloc.while_announcing(v, census.ask()).await?) };
        let asked = self.alloc.visit(v, Box::pin(asking));
        if asked.await? != CensusStep::Done || !self.until(v, async || census.told().await).await? {
            return Ok(Outcome::Disturbed);
        }
        let Some(restored) = census.close().await? else {
            return Ok(Outcome::Disturbed);
        };
        let has_clients = self.alloc.epochs().is_some_and(|epochs| epochs.seats() > 1);
        if has_clients {
            return Ok(Outcome::Restored(restored));
        }
        // This compute node is about to leave, so the blocks must be in the depots before, or they are lost again.
        let since = v.now();
        while self.alloc.stats().limbo_bytes > 0 && !v.elapsed(since, self.patience()) {
            self.collect(v).await?;
            rest(v, Nanos(self.alloc.lease().0 / CENSUS_PARTS)).await;
        }
        self.alloc.give_away(v).await?;
        Ok(Outcome::Restored(restored))
    }

    /// Walks until a walk has reached all nodes, and returns that walk; `None` if no walk has.
    async fn whole_walk<V: Verbs + Control>(&self, v: &V) -> Result<Option<Walk>, IndexError> {
        for _ in 0..WALKS {
            let walk = self.walk(v, self.survey_of(false).recording()).await?;
            if walk.reached_all() {
                return Ok(Some(walk));
            }
        }
        Ok(None)
    }

    /// Returns the time after which a step of a census is given up.
    fn patience(&self) -> Nanos {
        let lease = self.alloc.lease();
        Nanos(lease.0.saturating_mul(CENSUS_LEASES).max(CENSUS_LEAST.0))
    }

    /// Does rounds until a step of a census is done. Returns `false` if the census is over, or a member does not answer.
    async fn until<V: Verbs + Control>(
        &self,
        v: &V,
        step: impl AsyncFn() -> Result<CensusStep, AllocError>,
    ) -> Result<bool, IndexError> {
        let since = v.now();
        loop {
            self.collect(v).await?;
            match step().await? {
                CensusStep::Done => return Ok(true),
                CensusStep::Over => return Ok(false),
                CensusStep::Waits if v.elapsed(since, self.patience()) => return Ok(false),
                CensusStep::Waits => rest(v, Nanos(self.alloc.lease().0 / CENSUS_PARTS)).await,
            }
        }
    }

    async fn sweep_within<V: Verbs + Control>(&self, v: &V) -> Result<SweepReport, IndexError> {
        let mut report = SweepReport {
            expelled: self.alloc.outlast_silent(v).await?,
            ..SweepReport::default()
        };
        for _ in 0..SWEEP_WALKS {
            //= docs/protocol/recovery.md V8
            let walk = self.walk(v, self.survey_of(true)).await?;
            report.mended += walk.survey.mended;
            let freed = self.free(v, &walk).await?;
            report.freed += freed;
            if freed > 0 || walk.survey.mended > 0 || !walk.is_stable() {
                continue;
            }
            let (cleared, changed) = self.clear(v, &walk).await?;
            report.cleared += cleared;
            if changed == 0 && walk.is_complete() {
                break;
            }
        }
        Ok(report)
    }

    /// Frees the locks of members that are gone. Returns their number.
    async fn free<V: Verbs + Control>(&self, v: &V, walk: &Walk) -> Result<u64, IndexError> {
        let mut members: Vec<u16> = walk
            .held
            .iter()
            .filter(|held| held.gone)
            .map(|held| held.member)
            .collect();
        members.sort_unstable();
        members.dedup();
        let mut freed = 0;
        for member in members {
            let Some(swept) = self.alloc.free_locks_of(v, member).await? else {
                continue;
            };
            freed += swept;
            for &(at, word, _) in &walk.survey.words {
                //= docs/protocol/recovery.md V4
                if let Some(free) = LockWord::freed(word, member) {
                    freed += u64::from(v.cas(at, word, free).await? == word);
                }
            }
        }
        Ok(freed)
    }

    /// Clears the doubt of lock words that have not changed since before the walk. Returns the number of cleared words,
    /// and the number of words that have changed.
    async fn clear<V: Verbs>(&self, v: &V, walk: &Walk) -> Result<(u64, u64), IndexError> {
        let in_tables = walk.words.iter().filter(|_| walk.is_complete()).copied();
        let in_nodes = walk.survey.words.iter().filter(|(.., sound)| *sound);
        let in_nodes = in_nodes.map(|&(at, word, _)| (at, word));
        Ok(Sweep::clear(v, in_tables.chain(in_nodes), LockWord::cleared).await?)
    }

    /// Makes an empty survey of this index.
    fn survey_of(&self, mends: bool) -> Survey {
        let referred = self
            .holds_items()
            .then_some(dm_indirect::referred as dm_index::Referred);
        Survey::new(mends, referred)
    }

    /// Walks over the whole index once.
    async fn walk<V: Verbs + Control>(&self, v: &V, mut survey: Survey) -> Result<Walk, IndexError> {
        let before = self.alloc.members(v).await?;
        let words = match self.alloc.lock_tables() {
            Some(tables) => tables.words(v, is_notable).await?,
            None => Vec::new(),
        };
        let walking = Box::pin(self.survey(v, &mut survey));
        self.alloc.while_announcing(v, walking).await?;
        let members = [before, self.alloc.members(v).await?];
        let in_nodes = survey.words.iter().map(|&(at, word, _)| (at, word));
        let mut faults = survey.faults.clone();
        let mut held = Vec::new();
        for (at, raw) in words.iter().copied().chain(in_nodes) {
            let word = LockWord::unpack(raw);
            if word.locked {
                let (client, member) = (word.owner, word.member);
                let gone = members.iter().all(|members| members.lacks(member));
                held.push(HeldLock {
                    at,
                    client,
                    member,
                    gone,
                });
                if gone {
                    faults.push((finding(at, Flaw::LockOfGone { client, member }), raw));
                }
            }
            if word.payload & DOUBT != 0 {
                // The hash is 0, because the word itself changes with every release.
                faults.push((finding(at, Flaw::InDoubt), 0));
            }
        }
        Ok(Walk {
            survey,
            members,
            words,
            held,
            faults,
        })
    }
}

const fn finding(at: Place, flaw: Flaw) -> Finding {
    Finding { at, flaw }
}

/// Returns whether a lock word is held or in doubt.
fn is_notable(word: u64) -> bool {
    let word = LockWord::unpack(word);
    word.locked || word.payload & DOUBT != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use dm_index::Condition;
    use dm_verbs::{NodeId, RemotePtr};

    #[test]
    fn a_report_says_what_and_where() {
        let at = RemotePtr::new(NodeId(1), 4096).expect("a small offset");
        let report = CheckReport {
            levels: vec![LevelCount {
                nodes: 2,
                entries: 9,
                bytes: 2048,
            }],
            keys: 9,
            held: vec![HeldLock {
                at: at.into(),
                client: 3,
                member: 4,
                gone: true,
            }],
            findings: vec![
                finding(at.into(), Flaw::LowFence),
                finding(at.into(), Flaw::Unfinished(Condition::Frozen)),
            ],
            ..CheckReport::default()
        };
        let text = report.to_string();
        for words in [
            "level 0: 2 nodes, 9 entries",
            "client 3 of member 4, which is gone",
            "2 findings",
            &at.to_string(),
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let json = report.to_json();
        for words in [
            "\"clean\":false",
            "\"flaw\":\"low-fence\"",
            "\"nodes\":2",
            "\"gone\":true",
        ] {
            assert!(json.contains(words), "{words}: {json}");
        }
        assert!(CheckReport::default().to_string().ends_with("nothing is wrong"));
    }
}
