//! Write combining with the published flaw T-R2: the leader writes the value that it finds in a buffer of its lock.

use core::future::poll_fn;
use core::task::Poll;

use dm_index::{Applied, IndexError, RangeIndex};
use dm_verbs::{Env, LocalStep};

use crate::Combined;
use crate::lanes::{Came, Lanes};
use crate::rules::{Told, Wish};
use crate::shard::Entering;
use crate::shard::published::Checked;

impl<'h, V: Env, I: RangeIndex> Combined<'h, V, I> {
    /// Runs an update or upsert with the flaw [`crate::RdwcFlaws::buffer_of_lock`].
    pub(crate) async fn write_as_published(
        &self,
        lanes: &'h Lanes<I::Key>,
        key: &I::Key,
        value: &[u8],
        wish: Wish,
    ) -> Result<Applied, IndexError> {
        let at = lanes.of(key);
        self.v.local(LocalStep::Section).await;
        match lanes.shard(at).with(|s| s.check(at.lane(), key, value)) {
            Checked::Alone => return self.apply(key, value, wish).await,
            Checked::Leads => {}
            Checked::Follows => {
                // Between the check and this section, the lock may have been taken for another key.
                self.v.local(LocalStep::Section).await;
                let client = self.v.client();
                let store = poll_fn(|cx| {
                    let waker = cx.waker();
                    let who = Entering { client, wish, waker };
                    Poll::Ready(lanes.shard(at).with(|s| s.store(at.lane(), key, value, who)))
                });
                if let Some(number) = store.await {
                    let mut unused = Vec::new();
                    let mut join = lanes.waits(key, (client, wish), number, &mut unused);
                    match (&mut join).await {
                        Came::Told(told) => return Ok(self.combined(told)),
                        _ => join.begin(),
                    }
                }
            }
        }
        let lead = lanes.lead(at);
        self.v.local(LocalStep::Section).await;
        let sampled = lanes.shard(at).with(|s| s.sample(at.lane()));
        let result = self.apply(key, &sampled, wish).await;
        let answer = result.as_ref().ok().map(|&applied| Told::Applied(applied));
        self.tell(lead, answer.map(|told| (told, [].as_slice()))).await;
        result
    }
}
