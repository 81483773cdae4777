//! Mending: finishing a merge or a hop that another client has left unfinished because it died, was cut off, or dropped
//! the operation.
//!
//! If a client holds a node's lock and finds such a change, the client that began the change posts no more requests to
//! the node, because it would need this lock. A frozen node *names* the other node of its merge in its header (S24a):
//! the header contains the number of the line in which the other node begins. A client that has locked both nodes L and
//! R of a merge sees from their headers which steps of [`crate::merge`] have taken effect:
//!
//! | L | R | WRITEs that have taken effect | the mending client |
//! |---|---|---|---|
//! | anything else | Frozen, names L | R's header | makes R live; L does not show the merge |
//! | Frozen, names R, its lines are newer than the header | Frozen, names L | some of L's lines | copies L's lines again, and does the rest of the merge |
//! | Frozen, names R, covers R's keys | Frozen, names L, perhaps torn | L, and some of R's lines | marks R as dead, makes L live |
//! | Frozen, names R, covers R's keys | Dead, perhaps torn | some or all of R | marks R as dead if R is torn, makes L live |
//!
//! The mending client only posts WRITEs that the merge posts too, or undoes a merge that has not changed L. So if the
//! mending client dies, it also leaves one of the states above.

use dm_index::{IndexError, Stale, Tended};
use dm_layout::{Corrupt, FenceKeys, Header, KeyBytes, LINE_BYTES, LineLag, NodeFormat, NodeState, Reason};
use dm_lock::{Guard, SetGuard};
use dm_verbs::{Control, Event, LocalStep, RemotePtr, Verbs, Why};

use crate::Nodes;
use crate::read::follow;
use crate::write::failure;

/// The result of an attempt to mend a node.
pub(crate) enum Mend {
    /// The node was mended, by this client or by another one. Read the node again.
    Again,
    /// The node is dead. Continue at the node that this holds.
    Gone(Stale),
    /// The node's header does not show how to finish the change. Wait for the client that began it.
    Wait,
}

/// The progress of an unfinished merge of two nodes that are both locked.
enum Stage {
    /// Only the right node has been frozen.
    Frozen,
    /// The left node, the first or the second of the two, has been changed.
    Begun { second_is_left: bool },
}

/// Returns the number that names the node at `at` in the header of the other node of its merge. It is the node's offset
/// in lines. Returns `None` if the number does not fit into 32 bits, or is 0.
pub(crate) fn name(at: RemotePtr) -> Option<u32> {
    let line = u32::try_from(at.offset() / LINE_BYTES as u64).ok();
    line.filter(|line| *line != 0)
}

/// Returns the other node of the merge in which the node at `at` takes part.
fn partner<K>(at: RemotePtr, header: &Header<K>) -> Option<RemotePtr> {
    let offset = u64::from(header.owner) * LINE_BYTES as u64;
    RemotePtr::new(at.node(), offset).filter(|other| header.owner != 0 && *other != at)
}

/// Returns whether a merge of these two neighbours has begun to change the left one.
fn has_begun<K: KeyBytes>(
    (left, left_at): (&Header<K>, RemotePtr),
    (right, right_at): (&Header<K>, RemotePtr),
) -> bool {
    let frozen = right.state == NodeState::Frozen && partner(right_at, right) == Some(left_at);
    let dead = right.state == NodeState::Dead && right.sibling == left_at.raw();
    let named = left.state == NodeState::Frozen && partner(left_at, left) == Some(right_at);
    named
        && left.level == right.level
        && match left.lag {
            LineLag::Ahead => {
                frozen && left.fences.high == Some(right.fences.low) && left.sibling == right_at.raw()
            }
            LineLag::Equal => (frozen || dead) && left.fences.contains(&right.fences.low),
            LineLag::Behind => false,
        }
}

impl<K: KeyBytes, F: NodeFormat<K>> Nodes<K, F> {
    /// Returns the node at which a reader continues after a torn READ of the node at `at`, or `None` if the header
    /// leads to no other node. The header itself lies in one line, so it is never torn. A node that is torn while it is
    /// frozen or dead is the right one of a merge, and its left node has all keys by now. The exception is a root that
    /// was replaced: it is dead without a forwarding address, or still a live inner node that covers all keys. For such
    /// a node, this returns the null address, because the reader must begin again at the root word.
    pub(crate) fn beyond(&self, at: RemotePtr, bytes: &[u8]) -> Option<RemotePtr> {
        let header = self.format.header(bytes).ok()?;
        match header.state {
            NodeState::Dead => Some(RemotePtr::from_raw(header.sibling)),
            NodeState::Frozen => partner(at, &header),
            NodeState::Live if header.level > 0 && header.fences == FenceKeys::ALL => Some(RemotePtr::NULL),
            NodeState::Live | NodeState::Splitting => None,
        }
    }

    /// Mends the node at `at`. The caller has read `image` under `guard`, and found the node frozen, or torn while the
    /// lock word is suspect. Releases the guard.
    pub(crate) async fn mend<'a, V: Verbs + Control>(
        &'a self,
        v: &'a V,
        mut guard: Guard<'a, V>,
        at: RemotePtr,
        image: &mut [u8],
    ) -> Result<Mend, IndexError> {
        let header = match self.format.header(image) {
            Ok(header) => header,
            Err(e) => {
                guard.release().await?;
                return Err(failure(at, e));
            }
        };
        if header.state == NodeState::Live
            && let Some(range) = self.format.repair(image).map_err(|e| failure(at, e))?
        {
            //= docs/protocol/chime.md H9a
            guard.doubt_if_lost();
            let chain = v
                .chain(at.node())
                .write(at.add(range.start as u64), &image[range]);
            guard.write_back(chain).await?;
            v.meter().note(Event::Mended);
            return Ok(Mend::Again);
        }
        // To finish a merge, the client needs the locks of both nodes, and it must take a set of locks in a fixed
        // order. So this lock is released first.
        guard.release().await?;
        match header.state {
            NodeState::Dead => Ok(Mend::Gone(follow(header.sibling))),
            NodeState::Frozen => match partner(at, &header) {
                Some(partner) => {
                    self.finish_merge(v, at, partner).await?;
                    Ok(Mend::Again)
                }
                None => Ok(Mend::Wait),
            },
            NodeState::Live | NodeState::Splitting => Ok(match self.beyond(at, image) {
                Some(next) => Mend::Gone(follow(next.raw())),
                None => Mend::Wait,
            }),
        }
    }

    /// Finishes or undoes the merge of the node at `at` and its `partner`, unless another client has done so.
    async fn finish_merge<V: Verbs + Control>(
        &self,
        v: &V,
        at: RemotePtr,
        partner: RemotePtr,
    ) -> Result<(), IndexError> {
        // With both locks, no other client can be in the middle of this merge.
        //= docs/protocol/sherman.md S24a
        let nodes = match self.options.flaws().one_lock_mends {
            false => [at, partner],
            true => [at, at],
        };
        let locking = self.locks.lock_set(v, &nodes);
        let mut set = self.alloc.while_announcing(v, locking).await?;
        let (one, other) = (v.read(at, self.node_len()), v.read(partner, self.node_len()));
        let (mut one, mut other) = (one.await?, other.await?);
        let stage = match self.stage((at, &one), (partner, &other)) {
            Ok(Some(stage)) => stage,
            Ok(None) => return Ok(set.release().await?),
            Err(e) => {
                set.release().await?;
                return Err(e);
            }
        };
        for node in nodes {
            if let Some(guard) = set.of(node) {
                guard.doubt_if_lost();
            }
        }
        match stage {
            Stage::Frozen => {
                let head = self.format.open(&mut one).map_err(|e| failure(at, e))?;
                let chain = v.chain(at.node()).write(at.add(head.start as u64), &one[head]);
                set.write_back([chain]).await?;
                v.meter().note(Event::Mended);
                Ok(())
            }
            Stage::Begun { second_is_left } => match second_is_left {
                false => self.complete(v, set, (at, &mut one), (partner, &mut other)).await,
                true => self.complete(v, set, (partner, &mut other), (at, &mut one)).await,
            },
        }
    }

    /// Returns the progress of a merge of these two locked nodes. Returns `None` if the first node is in no such merge.
    fn stage(
        &self,
        (at, one): (RemotePtr, &[u8]),
        (other_at, other): (RemotePtr, &[u8]),
    ) -> Result<Option<Stage>, IndexError> {
        let mine = self.format.header(one).map_err(|e| failure(at, e))?;
        if mine.state != NodeState::Frozen || partner(at, &mine) != Some(other_at) {
            return Ok(None);
        }
        // If the merge has not changed the other node, that node may have died since. Its bytes then need not be a node
        // with a valid header.
        if let Ok(theirs) = self.format.header(other) {
            let flawed = self.options.flaws().reopens_widened;
            if has_begun((&mine, at), (&theirs, other_at)) && !flawed {
                return Ok(Some(Stage::Begun {
                    second_is_left: false,
                }));
            }
            if has_begun((&theirs, other_at), (&mine, at)) && !flawed {
                return Ok(Some(Stage::Begun { second_is_left: true }));
            }
        }
        match mine.lag {
            LineLag::Equal => Ok(Some(Stage::Frozen)),
            LineLag::Ahead | LineLag::Behind => Err(contradiction(at)),
        }
    }

    /// Completes a merge that has begun to change its left node, and retires the right node. After each WRITE, readers
    /// find every key, as in the merge itself.
    async fn complete<'a, V: Verbs + Control>(
        &self,
        v: &'a V,
        set: SetGuard<'a, V>,
        (left_at, left): (RemotePtr, &mut [u8]),
        (right_at, right): (RemotePtr, &mut [u8]),
    ) -> Result<(), IndexError> {
        let bad = |e| failure(left_at, e);
        let was = self.format.header(right).map_err(bad)?;
        let mut chain = v.chain(left_at.node());
        if self.format.header(left).map_err(bad)?.lag == LineLag::Ahead {
            self.format.accept(left).map_err(bad)?;
            self.format.accept(right).map_err(|e| failure(right_at, e))?;
            if !self.format.merge_fits(left, right).map_err(bad)? {
                set.release().await?;
                return Err(contradiction(left_at));
            }
            let rest = self.format.copy_merge(left, right).map_err(bad)?;
            chain = chain.write(left_at.add(rest.start as u64), &left[rest]);
            let head = self.format.widen_merge(left, &was).map_err(bad)?;
            chain = chain.write(left_at.add(head.start as u64), &left[head]);
        }
        let buried = matches!(self.format.accept(right), Ok(header) if header.state == NodeState::Dead);
        if !buried {
            let whole = self.format.bury(right, left_at.raw()).map_err(bad)?;
            chain = chain.write(right_at.add(whole.start as u64), &right[whole]);
        }
        let head = self.format.open(left).map_err(bad)?;
        chain = chain.write(left_at.add(head.start as u64), &left[head]);
        let dead = self.format.header(right).map_err(bad)?;
        set.write_back([chain]).await?;
        v.meter().note(Event::Mended);
        v.local(LocalStep::Section).await;
        // No pointer of the index leads to the right node any more: the merge removed the parent's entry first, or the
        // inner structure has only hints. Only the client that makes the left node live retires the right one.
        self.retire(right_at, &dead);
        Ok(())
    }

    /// Reads the node at `at`, which must be linked. If another client has left a change of this node unfinished,
    /// finishes it.
    pub(crate) async fn tend_node<V: Verbs + Control>(
        &self,
        v: &V,
        at: RemotePtr,
    ) -> Result<Tended, IndexError> {
        let mut retry = v.retry(self.options.attempts);
        let mut tended = Tended::Sound;
        loop {
            let seen = v.read(at, self.node_len()).await?;
            if self.is_sound(at, &seen)? {
                return Ok(tended);
            }
            drop(seen);
            let locking = self.locks.lock_and_read(v, at, at, self.node_len());
            let (guard, mut image) = self.alloc.while_announcing(v, locking).await?;
            let why = match self.format.accept(&image) {
                // If the header is newer than the other lines, this is the left node of an unfinished split. Otherwise
                // it is an unborn node.
                Ok(header) if header.state == NodeState::Splitting => {
                    match header.lag {
                        LineLag::Behind => self.finish_split(v, guard, at, &mut image).await?,
                        _ => self.finish_opening(v, guard, at, &mut image).await?,
                    }
                    tended = Tended::Mended;
                    continue;
                }
                // Another client has finished the change since the READ.
                Ok(header) if header.state != NodeState::Frozen => {
                    guard.release().await?;
                    continue;
                }
                // If the lock word is not suspect, the last holder's WRITE is still in progress.
                Err(e) if !e.is_torn() || !self.is_doubtful(&guard) => {
                    guard.release().await?;
                    match e.is_torn() {
                        true => Why::Torn,
                        false => return Err(failure(at, e)),
                    }
                }
                // The node is frozen, or is torn under a suspect lock word.
                Ok(_) | Err(_) => match self.mend(v, guard, at, &mut image).await? {
                    Mend::Again => {
                        tended = Tended::Mended;
                        continue;
                    }
                    Mend::Gone(_) => return Ok(tended),
                    Mend::Wait => Why::Changing,
                },
            };
            drop(image);
            retry.again(at, why).await?;
            self.have_patience(v, &retry).await?;
        }
    }

    /// Returns whether these bytes show a node that needs no mending.
    fn is_sound(&self, at: RemotePtr, bytes: &[u8]) -> Result<bool, IndexError> {
        match self.format.accept(bytes) {
            Ok(header) => Ok(match header.state {
                NodeState::Live | NodeState::Dead => true,
                // An unborn right node of a split is sound, because its left node shows the unfinished split, and the
                // next writer of the left node finishes it (S16). An unborn node that its own writers must make live
                // is not sound (R9).
                NodeState::Splitting => header.lag == LineLag::Equal && !self.opens_here(at, bytes)?,
                NodeState::Frozen => false,
            }),
            Err(e) if e.is_torn() => Ok(false),
            Err(e) => Err(failure(at, e)),
        }
    }
}

/// Returns the error for a node whose header contradicts the header of the other node of its merge.
fn contradiction(node: RemotePtr) -> IndexError {
    let what = Corrupt {
        offset: 0,
        reason: Reason::State,
    };
    IndexError::Corrupt { node, what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeOptions;
    use dm_alloc::Allocator;
    use dm_layout::{Key8, NodeEdit, NodeInit, NodeShape, NodeSteps, Slotted};
    use dm_lock::{GlobalLockTable, LockOptions, Locks};
    use dm_sync::Arc;
    use dm_verbs::NodeId;

    /// Returns the address of node number `number`.
    fn at(number: u64) -> RemotePtr {
        RemotePtr::new(NodeId(0), 1 << 20 | number << 12).unwrap()
    }

    /// Returns the header of a node from `low` to `high`, whose sibling is node number 1.
    fn header(state: NodeState, named: RemotePtr, low: u64, high: u64) -> Header<Key8> {
        Header {
            version: 1,
            level: 0,
            state,
            lag: LineLag::Equal,
            incarnation: 1,
            sibling: at(1).raw(),
            owner: name(named).unwrap(),
            fences: FenceKeys::new(Key8(low), Some(Key8(high))),
        }
    }

    #[test]
    fn a_merge_has_begun_only_if_both_headers_say_so() {
        let begun = |left: &Header<Key8>, right: &Header<Key8>| has_begun((left, at(0)), (right, at(1)));
        let frozen = NodeState::Frozen;
        // The left node has all keys.
        let left = header(frozen, at(1), 10, 40);
        let right = header(frozen, at(0), 20, 40);
        let dead = Header {
            sibling: at(0).raw(),
            owner: 0,
            ..header(NodeState::Dead, at(0), 20, 40)
        };
        assert!(begun(&left, &right) && begun(&left, &dead));
        // The left node's lines are not complete.
        let ahead = Header {
            lag: LineLag::Ahead,
            ..header(frozen, at(1), 10, 20)
        };
        assert!(begun(&ahead, &right) && !begun(&ahead, &dead));
        let behind = Header {
            lag: LineLag::Behind,
            ..left
        };
        assert!(!begun(&behind, &right));
        for left in [left, ahead] {
            for other in [
                header(NodeState::Live, at(1), 10, 40).state,
                NodeState::Splitting,
                NodeState::Dead,
            ] {
                assert!(!begun(&Header { state: other, ..left }, &right), "{other:?}");
            }
            let third = Header {
                owner: name(at(2)).unwrap(),
                ..left
            };
            assert!(!begun(&third, &right), "the left node refers to a third node");
            assert!(!begun(&Header { level: 1, ..left }, &right));
            for not in [
                header(NodeState::Live, at(0), 20, 40),
                header(frozen, at(2), 20, 40),
                // This node is live, and its sibling pointer leads to the left node.
                Header {
                    state: NodeState::Live,
                    ..dead
                },
                Header {
                    sibling: at(2).raw(),
                    ..dead
                },
            ] {
                assert!(!begun(&left, &not), "{not:?}");
            }
        }
        let elsewhere = Header {
            sibling: at(2).raw(),
            ..ahead
        };
        assert!(!begun(&elsewhere, &right));
        let shorter = header(frozen, at(1), 10, 19);
        assert!(
            !begun(&shorter, &right),
            "the right node's keys are not in the left one"
        );
        assert!(!begun(
            &Header {
                lag: LineLag::Ahead,
                ..shorter
            },
            &right
        ));
    }

    /// After a client has read a frozen node, and before it has both locks, other clients may finish the merge and
    /// begin another one.
    #[test]
    fn a_node_of_another_merge_is_left_alone() {
        let format = Slotted::<Key8>::with_span(4, 8).unwrap();
        let locks = Locks::new(LockOptions::default(), GlobalLockTable::on_chip(1, 64));
        let alloc = Arc::new(Allocator::new(1, 0));
        let nodes = Nodes::new(format, Arc::new(locks), alloc, NodeOptions::default());
        let image = |number: u64, named: Option<u64>| {
            let mut image = vec![0; format.node_bytes()];
            let fences = FenceKeys::new(Key8(number), Some(Key8(number + 1)));
            format.build(&mut image, &NodeInit::live(0, fences), []);
            if let Some(named) = named {
                format.freeze(&mut image, name(at(named)).unwrap()).unwrap();
            }
            image
        };
        let other = image(0, None);
        let is_frozen = |named| {
            let stage = nodes.stage((at(1), &image(1, named)), (at(0), &other)).unwrap();
            assert!(matches!(stage, None | Some(Stage::Frozen)));
            stage.is_some()
        };
        assert!(is_frozen(Some(0)));
        assert!(!is_frozen(Some(2)) && !is_frozen(None));
    }
}
