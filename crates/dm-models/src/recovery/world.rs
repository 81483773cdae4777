//! Two words under one lock. A writer changes one after the other, so a writer that dies leaves them different.

use dm_alloc::Sweep;
use dm_explore::{Client, Counter, CounterOp};
use dm_lock::{GlobalLockTable, LockError, LockOptions, LockPlace, LockWord, Locks};
use dm_sync::roster::Roster;
use dm_sync::{Arc, Fingerprint};
use dm_verbs::{Control, ControlRequest, Env, NodeId, Place, RemotePtr, Verbs};

use crate::locks::{lock_word, node, one_lock};

/// The payload of the lock word, which must survive: all of its bits except the lowest one, which is `DOUBT`.
pub(crate) const PAYLOAD: u32 = 6;

/// The ghost variable that tells whether the last client that made the words equal had found the lock in doubt.
pub(crate) const MENDED: &str = "mended";

/// The number of the member that dies, or is fenced while it lives.
pub(crate) const DEAD: u16 = 1;
/// The byte offset of the lock word in a node that contains it.
const LOCK_AT: u32 = 32;
/// Bytes of the node that a client reads under its lock.
const LEN: u32 = 16;

/// Returns the address of the word that marks the first member as expelled.
fn mark() -> RemotePtr {
    RemotePtr::new(NodeId(0), 512).unwrap_or(RemotePtr::NULL)
}

/// The place of the lock word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Home {
    /// In a lock table. The client that expels a member sweeps the table.
    Table,
    /// In the node. A client that waits for the lock frees it.
    Node,
}

/// The mistakes of a broken twin.
#[derive(Clone, Copy)]
pub(crate) struct Flaws {
    pub(crate) no_fence: bool,
    pub(crate) sweep_before_fence: bool,
    pub(crate) freed: fn(u64, u16) -> Option<u64>,
}

/// The locks and the roster of one compute node.
pub(crate) struct Shared {
    locks: Locks,
    roster: Arc<Roster>,
}

impl Fingerprint for Shared {
    fn fingerprint(&self) -> u64 {
        self.locks.fingerprint()
    }
}

impl Shared {
    /// Returns the state of compute node `compute_node`. The number of its member is greater by one.
    pub(crate) fn of(home: Home, compute_node: u16) -> Self {
        let roster = Arc::new(Roster::default());
        roster.join(1 + compute_node);
        let locks = Locks::new(LockOptions::default(), home.table()).in_roster(roster.clone());
        Self { locks, roster }
    }
}

impl Home {
    /// Returns the place of the lock word.
    pub(crate) fn word(self) -> Place {
        match self {
            Self::Table => lock_word(LockPlace::Chip),
            Self::Node => node().add(u64::from(LOCK_AT)).into(),
        }
    }

    fn table(self) -> GlobalLockTable {
        match self {
            Self::Table => one_lock(LockPlace::Chip),
            Self::Node => GlobalLockTable::in_nodes(1, LOCK_AT),
        }
    }
}

/// Adds one as a client of the member that is expelled.
pub(crate) async fn add_as_member(c: &Client<Shared, Counter>) {
    let v = c.verbs();
    let enlisted = v.call(ControlRequest::Enlist { member: DEAD }).await;
    // A client that enlists too late to be fenced finds the mark (R6).
    if enlisted.is_ok() && v.word(mark()).await.is_ok_and(|mark| mark == 0) {
        add(c).await;
    }
}

/// Adds one to both words under the lock. Returns whether the add is acknowledged.
pub(crate) async fn add(c: &Client<Shared, Counter>) -> bool {
    let adding = async { try_add(c).await.ok() };
    c.try_op(CounterOp::Add(1), adding).await.is_some()
}

async fn try_add(c: &Client<Shared, Counter>) -> Result<u64, LockError> {
    let (v, roster) = (c.verbs(), &c.shared().roster);
    roster.enlist(v.client().0, roster.own());
    let (guard, bytes) = c.shared().locks.lock_and_read(v, node(), node(), LEN).await?;
    let word = |at: usize| bytes[at..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
    let (first, second) = (word(0), word(8));
    c.check(first == second || guard.in_doubt(), || {
        format!("the words are {first} and {second}, and the lock is not in doubt")
    });
    // A dead client's add counts if its first WRITE landed.
    let chain = v.chain(node().node()).write_word(node(), first + 1);
    let in_doubt = guard.in_doubt();
    guard
        .write_back(chain.write_word(node().add(8), first + 1))
        .await?;
    c.ghost(MENDED, u64::from(in_doubt));
    Ok(first)
}

/// Expels the first member, whether it is alive or not, because any failure detector may be wrong.
pub(crate) async fn expel(c: &Client<Shared, Counter>, home: Home, flaws: Flaws) {
    let v = c.verbs();
    let marked = v.write(mark(), &1u64.to_le_bytes()).await;
    c.check(marked.is_ok(), || format!("{marked:?}"));
    if flaws.sweep_before_fence {
        sweep(c, home, flaws).await;
    }
    if !flaws.no_fence {
        let fenced = v.call(ControlRequest::FenceMember { member: DEAD }).await;
        c.check(fenced.is_ok(), || format!("{fenced:?}"));
    }
    if !flaws.sweep_before_fence {
        sweep(c, home, flaws).await;
    }
    c.shared().roster.bury(DEAD);
}

async fn sweep(c: &Client<Shared, Counter>, home: Home, flaws: Flaws) {
    if home == Home::Node {
        return;
    }
    let sweep = Sweep {
        tables: vec![home.word()].into(),
        words: 1,
        freed: flaws.freed,
        unshared: LockWord::unshared,
    };
    let swept = sweep.run(c.verbs(), DEAD).await;
    c.check(swept.is_ok(), || format!("{swept:?}"));
}

/// Visits the only node. Finishes what the dead client has left there, or clears the doubt of the lock word if nothing
/// is left. With `early`, reads the lock word only after it has visited the node, which is the mistake of a twin.
pub(crate) async fn visit_and_clear(c: &Client<Shared, Counter>, early: bool) {
    let v = c.verbs();
    let table = Sweep {
        tables: vec![Home::Table.word()].into(),
        words: 1,
        freed: LockWord::freed,
        unshared: LockWord::unshared,
    };
    let doubted = async || {
        let words = table.words(v, |word| LockWord::cleared(word).is_some()).await;
        words.expect("nobody fences this client")
    };
    let before = if early { Vec::new() } else { doubted().await };
    if visit(c).await {
        // The mending was a release, so the word has changed. Another sweep clears it.
        return;
    }
    let words = if early { doubted().await } else { before };
    let cleared = Sweep::clear(v, words, LockWord::cleared).await;
    c.check(cleared.is_ok(), || format!("{cleared:?}"));
}

/// Reads the node, and makes the words equal if they differ. Returns whether they differed.
async fn visit(c: &Client<Shared, Counter>) -> bool {
    let (v, roster) = (c.verbs(), &c.shared().roster);
    let words =
        |bytes: &[u8]| [0, 8].map(|at| bytes[at..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b)));
    let [first, second] = words(&v.read(node(), LEN).await.expect("nobody fences this client"));
    if first == second {
        return false;
    }
    roster.enlist(v.client().0, roster.own());
    let Ok((guard, bytes)) = c.shared().locks.lock_and_read(v, node(), node(), LEN).await else {
        return true;
    };
    let [first, second] = words(&bytes);
    let chain = v.chain(node().node());
    let done = match first == second {
        true => guard.release().await,
        false => guard.write_back(chain.write_word(node().add(8), first)).await,
    };
    c.check(done.is_ok(), || format!("{done:?}"));
    true
}

/// Reads the first word.
pub(crate) async fn get(c: &Client<Shared, Counter>) {
    let reading = async { c.verbs().word(node()).await.expect("nobody fences this client") };
    c.op(CounterOp::Add(0), reading).await;
}

/// Frees a word as [`LockWord::freed`] does, but clears the lowest bit of the payload (bit 32 of the word), which is
/// [`dm_lock::DOUBT`].
pub(crate) fn without_doubt(word: u64, member: u16) -> Option<u64> {
    LockWord::freed(word, member).map(|free| free & !(1 << 32))
}

/// Frees a word as [`LockWord::freed`] does, but keeps only the bits below the payload, and the payload's lowest bit
/// [`dm_lock::DOUBT`].
pub(crate) fn without_payload(word: u64, member: u16) -> Option<u64> {
    LockWord::freed(word, member).map(|free| free & 0x1_FFFF_FFFF)
}
