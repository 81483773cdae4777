//! Finishes what dead clients have left in an index.

use core::fmt::{self, Write as _};

use dm_alloc::{Restored, Sweep};
use dm_index::IndexError;
use dm_lock::LockWord;
use dm_sync::epoch::Epochs;
use dm_verbs::{Control, Verbs};

use crate::census::Outcome;
use crate::check::{CheckReport, Walk};
use crate::{Handle, Parts};

/// Maximum number of walks of a sweep. A walk may finish nodes that the previous walk could not finish, because their
/// locks were freed only after it.
const SWEEP_WALKS: u32 = 8;
/// Maximum number of censuses of a sweep. A census ends without a result if a member leaves or is expelled meanwhile.
const CENSUSES: u32 = 4;

/// The result of [`Handle::sweep`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SweepReport {
    /// Members that lost their slots while the sweep waited for silent members: they were expelled, or they left.
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
    /// The step in which the last census ended without a result and without an error.
    pub census_disturbed: Option<&'static str>,
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

    /// Returns the faults that remain, and the memory that is still lost if it is more than `most` bytes. Call it only
    /// if no other compute node holds free memory of the pool, because such memory would count as lost.
    pub fn faults_and_leaks(&self, most: u64) -> Vec<String> {
        let mut faults = self.faults();
        let CheckReport {
            allocated_bytes,
            reachable_bytes,
            leaked_bytes,
            ..
        } = self.check;
        if leaked_bytes > most {
            let (restored, why, e) = (self.restored, self.census_disturbed, &self.census_failed);
            faults.push(format!(
                "{leaked_bytes} of {allocated_bytes} bytes are lost, {reachable_bytes} can be reached, and the census gave back \
                 {restored:?} ({why:?}, {e:?})"
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
            census_disturbed,
            census_failed,
            check,
        } = self;
        let census_disturbed = census_disturbed.map_or_else(|| "null".to_owned(), |why| format!("\"{why}\""));
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
             \"restored\":{restored},\"census_disturbed\":{census_disturbed},\
             \"census_failed\":{census_failed},\"check\":{}}}",
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
            census_disturbed,
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
        if let Some(why) = census_disturbed {
            writeln!(f, "the last census ended without a result in this step: {why}")?;
        }
        if let Some(e) = census_failed {
            writeln!(f, "the census failed: {e}")?;
        }
        check.fmt(f)
    }
}
impl<P: Parts> Handle<P> {
    /// Expels silent members, frees the locks of members that are gone, finishes what they have left unfinished, clears
    /// the doubt of lock words (V8), and gives back the blocks that dead members have lost (V16). Other clients may
    /// work meanwhile. It ends with a [check](Handle::check).
    ///
    /// It waits for about one lease if a member is silent. Afterwards it takes as long as three checks or more, and
    /// several rounds of all members. The list of the blocks that it has reached takes 8 bytes of local memory for each
    /// block.
    ///
    /// # Errors
    /// Returns errors of verbs and of the control plane. An error of the census is not returned: the report contains
    /// it. If a memory node does not answer, a member cannot be fenced, and its locks stay held.
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
                Ok(Outcome::Restored(restored)) => {
                    report.restored = Some(restored);
                    report.census_disturbed = None;
                }
                Ok(Outcome::Impossible) => {}
                // Everything that was found and mended before this error is still reported.
                Err(e) => report.census_failed = Some(e),
                Ok(Outcome::Disturbed(why)) => {
                    report.census_disturbed = Some(why);
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

    /// Frees the locks of members that are gone. Returns the number of freed locks.
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

    /// Clears the doubt of lock words that have not changed since they were read: words in tables, if the walk is
    /// complete, and words in nodes whose bytes are consistent. Returns the number of cleared words, and the number of
    /// words that have changed.
    async fn clear<V: Verbs>(&self, v: &V, walk: &Walk) -> Result<(u64, u64), IndexError> {
        let in_tables = walk.words.iter().filter(|_| walk.is_complete()).copied();
        let in_nodes = walk.survey.words.iter().filter(|(.., sound)| *sound);
        let in_nodes = in_nodes.map(|&(at, word, _)| (at, word));
        Ok(Sweep::clear(v, in_tables.chain(in_nodes), LockWord::cleared).await?)
    }
}
