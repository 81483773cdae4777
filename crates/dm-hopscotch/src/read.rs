//! Reading one key.

use dm_index::{IndexError, NodeStore};
use dm_layout::{KeyBytes, Near, Reach};
use dm_verbs::{RemotePtr, Verbs};

use crate::Neighbourhoods;

/// Where a stretch of the node at `at` lies, and how long it is, as verbs count it.
pub(crate) fn stretch(at: RemotePtr, range: &core::ops::Range<usize>) -> (RemotePtr, u32) {
    // A node has at most 64 KiB.
    (at.add(range.start as u64), range.len() as u32)
}

impl<K: KeyBytes, S> Neighbourhoods<K, S> {
    /// Whether the neighbourhood answers for `key`, and if so, whether it is there: its value is in `value` then.
    pub(crate) async fn get_near<V: Verbs>(
        &self,
        v: &V,
        (at, linked): (RemotePtr, bool),
        key: &K,
        value: &mut Vec<u8>,
    ) -> Result<Option<bool>, IndexError>
    where
        S: NodeStore<V, K>,
    {
        let reach = self.format.geometry().reach(self.format.home(key));
        let posted = v.now();
        let (from, len) = stretch(at, &reach.first);
        let answer = match &reach.second {
            None => {
                let bytes = v.read(from, len).await?;
                self.judge(&reach, (&bytes, &[]), key, linked, value)
            }
            Some(second) => {
                let (start, rest) = stretch(at, second);
                let (first, second) = v.chain(at.node()).read(from, len).read(start, rest).await?;
                self.judge(&reach, (&first, &second), key, linked, value)
            }
        };
        //= docs/protocol/chime.md H2
        let slow = v.elapsed(posted, self.options.read_window);
        Ok(answer.filter(|_| !slow))
    }

    fn judge(
        &self,
        reach: &Reach,
        parts: (&[u8], &[u8]),
        key: &K,
        linked: bool,
        out: &mut Vec<u8>,
    ) -> Option<bool> {
        match self
            .format
            .near(reach, parts, key, linked, self.options.flaws.near)
        {
            Near::Found { value, .. } => {
                out.clear();
                value.append_to(out);
                Some(true)
            }
            Near::Absent { .. } => Some(false),
            Near::Unsure => None,
        }
    }
}
