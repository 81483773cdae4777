//! Clients that add to their own words under a share of one lock, and a client that moves these words into a sum.

use dm_explore::{Client, Counter, End};
use dm_index::IndexError;
use dm_lock::{LockError, LockOptions, LockPlace, Locks};
use dm_verbs::{RemotePtr, Verbs, Why};

use crate::locks::{lock_word, node};

/// Bytes of the sum and of the words of two clients, which follow the sum.
pub(super) const LEN: u32 = 24;

/// The value that a client outputs when it begins an add. The next constant is the output when the add is done.
const BEGUN: u64 = 1;
const ADDED: u64 = 2;

/// Returns the options of locks that can be shared.
pub(super) fn sharing() -> LockOptions {
    LockOptions {
        shared: true,
        ..LockOptions::default()
    }
}

/// Checks that no add of the first `clients` clients is lost or counted twice.
pub(super) fn every_add_counts(end: &End<'_>, clients: usize) -> Result<(), String> {
    let sum: u64 = (0..3).map(|i| end.word(node().add(8 * i))).sum();
    let count = |of: u64| {
        let outputs = (0..clients).flat_map(|i| end.outputs(i));
        outputs.filter(|output| **output == of).count() as u64
    };
    let (least, most) = (count(ADDED), count(BEGUN));
    match (least..=most).contains(&sum) {
        true => Ok(()),
        false => Err(format!("{sum}, {least} to {most} adds")),
    }
}

/// Checks that no client holds or shares the lock, and that the gate is open.
pub(super) fn restored(end: &End<'_>, open: bool) -> Result<(), String> {
    let word = end.word(lock_word(LockPlace::Chip));
    match (word >> 48, word & 1, open) {
        (0, 0, true) => Ok(()),
        (sharers, held, open) => Err(format!(
            "{sharers} share it, held: {held}, the gate is open: {open}"
        )),
    }
}

/// Waits by READs until the word at `at` has changed from 0.
pub(super) async fn wait_for<S>(c: &Client<S, Counter>, at: RemotePtr) -> Result<(), IndexError> {
    let v = c.verbs();
    let mut retry = v.retry(1 << 10);
    while v.word(at).await? == 0 {
        retry.again(at, Why::Changing).await?;
    }
    Ok(())
}

/// Adds one to `own` under a share, or alone if the lock cannot be shared now.
pub(super) async fn add<S>(c: &Client<S, Counter>, locks: &Locks, own: RemotePtr) -> Result<(), IndexError> {
    let v = c.verbs();
    c.output(BEGUN);
    let plus_one = |bytes: &[u8]| bytes.first_chunk().map_or(0, |b| u64::from_le_bytes(*b)) + 1;
    match locks.share_and_read(v, node(), own, 8).await {
        Ok((share, bytes)) => {
            let chain = v.chain(own.node()).write_word(own, plus_one(&bytes));
            share.write_back(chain).await?;
        }
        Err(LockError::Held(_)) => {
            let (guard, bytes) = locks.lock_and_read(v, node(), own, 8).await?;
            let chain = v.chain(own.node()).write_word(own, plus_one(&bytes));
            guard.write_back(chain).await?;
        }
        Err(e) => return Err(e.into()),
    }
    c.output(ADDED);
    Ok(())
}

/// Moves all words into the sum, while holding the lock alone.
pub(super) async fn sum_up<S>(c: &Client<S, Counter>, locks: &Locks) -> Result<(), IndexError> {
    let v = c.verbs();
    let (guard, bytes) = locks.lock_and_read(v, node(), node(), LEN).await?;
    let word = |at: usize| bytes[at..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
    let mut swept = [0; LEN as usize];
    swept[..8].copy_from_slice(&(word(0) + word(8) + word(16)).to_le_bytes());
    guard
        .write_back(v.chain(node().node()).write(node(), &swept))
        .await?;
    Ok(())
}
