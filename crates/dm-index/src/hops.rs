//! A limit on steps along sibling pointers.

use dm_verbs::{Env, Exhausted, RemotePtr, Retry, Why};

/// Number of steps along sibling pointers that count as one attempt. A chain of split nodes that are still missing in
/// their parents is normally shorter.
pub const HOPS_FREE: u32 = 64;

/// A counter of one operation's steps along sibling pointers. Two nodes may point at each other permanently if their
/// bytes are corrupt or their merge failed. Therefore every 64th step counts as an attempt of the operation's retry
/// loop.
#[derive(Debug, Default)]
pub struct Hops(u32);

impl Hops {
    /// Counts a step to the node at `to`. Returns `true` at the 64th step, and `false` at all others. After so many
    /// steps, the first address was probably wrong: its memory may belong to another node by now, far to the left.
    ///
    /// # Errors
    /// Returns [`Exhausted`] if the retry loop's budget is used up.
    #[inline]
    pub async fn step<E: Env>(&mut self, retry: &mut Retry<'_, E>, to: RemotePtr) -> Result<bool, Exhausted> {
        self.0 = self.0.wrapping_add(1);
        if self.0.is_multiple_of(HOPS_FREE) {
            // The caller keeps its progress, so the explorer must not rewind past this attempt.
            retry.again_wiser(to, Why::Stale).await?;
        }
        Ok(self.0 == HOPS_FREE)
    }

    /// Returns the number of steps so far.
    #[inline]
    pub fn taken(&self) -> u32 {
        self.0
    }
}
