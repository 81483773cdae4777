//! A limit on steps along sibling pointers.

use dm_verbs::{Env, Exhausted, RemotePtr, Retry, Why};

/// Steps to the right in a row that count as one attempt. A chain of splits that the parents do not know yet is
/// shorter.
pub const HOPS_FREE: u32 = 64;

/// A counter of one operation's steps along sibling pointers. Two nodes may point at each other for good if their
/// bytes are corrupt or a merge of them failed, so every 64th step is an attempt of the operation's retry loop.
#[derive(Debug, Default)]
pub struct Hops(u32);

impl Hops {
    /// Counts a step to the node at `to`. Returns `true` once, when the way has become long: it may have begun in
    /// memory that belongs to another node by now, far to the left.
    ///
    /// # Errors
    /// [`Exhausted`] if the retry loop's budget is used up.
    #[inline]
    pub async fn step<E: Env>(&mut self, retry: &mut Retry<'_, E>, to: RemotePtr) -> Result<bool, Exhausted> {
        self.0 = self.0.wrapping_add(1);
        if self.0.is_multiple_of(HOPS_FREE) {
            // The caller keeps its progress.
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
