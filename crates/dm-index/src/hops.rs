//! Steps along sibling pointers, bounded.

use dm_verbs::{Env, Exhausted, RemotePtr, Retry, Why};

/// So many steps to the right in a row are an attempt: a chain of splits whose parents don't know yet is shorter.
pub const HOPS_FREE: u32 = 64;

/// Counts the steps of one operation over sibling pointers. Two nodes may point at each other for good, if their bytes
/// are corrupt or a merge of them failed: every 64th step is an attempt of the operation's loop.
#[derive(Debug, Default)]
pub struct Hops(u32);

impl Hops {
    /// A step to the node at `to`. `true` once, when it has become a long way: it may have begun in memory that is another
    /// node's by now, far to the left.
    ///
    /// # Errors
    /// [`Exhausted`] when the loop's budget is used up.
    #[inline]
    pub async fn step<E: Env>(&mut self, retry: &mut Retry<'_, E>, to: RemotePtr) -> Result<bool, Exhausted> {
        self.0 = self.0.wrapping_add(1);
        if self.0.is_multiple_of(HOPS_FREE) {
            // Where it has come to stays with the caller.
            retry.again_wiser(to, Why::Stale).await?;
        }
        Ok(self.0 == HOPS_FREE)
    }

    /// Steps until now.
    #[inline]
    pub fn taken(&self) -> u32 {
        self.0
    }
}
