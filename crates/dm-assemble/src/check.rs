//! Checks a whole index.

use core::fmt;

use dm_alloc::{Members, rest};
use dm_index::{Finding, Flaw, IndexError, LevelCount, Survey};
use dm_lock::{DOUBT, LockWord};
use dm_verbs::{Control, Nanos, Place, Verbs};

use crate::{Handle, Parts};

/// Maximum number of walks of a check, and of a census. A check reports a fault only if two successive walks find it
/// unchanged.
pub(crate) const WALKS: u32 = 4;
/// The time between two walks of a check. It is much longer than an operation on one key usually takes.
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
    /// The number of hints in the inner structure that lead to no leaf, or to a leaf that does not begin at the hint's
    /// key.
    pub stale_hints: u64,
    /// Locks that are held.
    pub held: Vec<HeldLock>,
    /// Bytes of all nodes that can be reached, and of the items to which they refer.
    pub reachable_bytes: u64,
    /// Bytes that the memory nodes have handed out for nodes and items.
    pub allocated_bytes: u64,
    /// Bytes that were handed out, cannot be reached, and are neither in the depots nor in this compute node's
    /// allocator. They include the stock of other members; the rest is lost.
    pub leaked_bytes: u64,
    /// Nodes that clients were changing during the last walk, and the faults that only this walk has found.
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

/// The results of one walk.
pub(crate) struct Walk {
    pub(crate) survey: Survey,
    /// The members before and after the walk.
    members: [Members; 2],
    /// Lock words in the pool's tables that were held or in doubt before the walk.
    pub(crate) words: Vec<(Place, u64)>,
    pub(crate) held: Vec<HeldLock>,
    /// Faults, each with a hash of the bytes that show it.
    faults: Vec<(Finding, u64)>,
}

impl Walk {
    /// Returns whether the members stayed the same during the walk: no member has joined, lost its slot, or was being
    /// expelled.
    pub(crate) fn is_stable(&self) -> bool {
        let [before, after] = &self.members;
        before.are_all_in(after)
    }

    /// Returns whether every node was visited that was in use throughout the walk.
    pub(crate) fn reached_all(&self) -> bool {
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

    /// Returns whether every node was visited and no node was damaged or in change. After any other fault than that of
    /// a lock, nodes may be missing, because a wrong pointer hides nodes.
    pub(crate) fn is_complete(&self) -> bool {
        let locks = |flaw| matches!(flaw, Flaw::InDoubt | Flaw::LockOfGone { .. });
        self.survey.in_change == 0 && self.faults.iter().all(|(finding, _)| locks(finding.flaw))
    }
}

impl<P: Parts> Handle<P> {
    /// Visits the whole index, and returns counts of its parts and its faults. It changes nothing. Other clients may
    /// work meanwhile, so a fault is reported only if two successive walks have found it in the same bytes.
    ///
    /// This takes a round trip for each node of a B-link tree, each radix node and each leaf of many keys, and one for
    /// each 64 leaves of one key. If anything looks wrong, it takes up to four times as long. The verbs are metered as
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

    /// Makes an empty survey of this index.
    pub(crate) fn survey_of(&self, mends: bool) -> Survey {
        let referred = self
            .refers_to_blocks()
            .then_some(dm_indirect::referred as dm_index::Referred);
        Survey::new(mends, referred)
    }

    /// Walks over the whole index once.
    pub(crate) async fn walk<V: Verbs + Control>(
        &self,
        v: &V,
        mut survey: Survey,
    ) -> Result<Walk, IndexError> {
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
