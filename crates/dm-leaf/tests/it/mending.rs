//! Tests of nodes that a client has left in the middle of a merge, of a hop, or of a WRITE of one entry. The next
//! writer of either node mends them, regardless of which requests have taken effect.

use std::cell::Cell;

use dm_index::{
    Answer, Applied, IndexError, Key8, Lead, NodeAccess, NodeCopies, NodeCopy, Restructure, Stale, Tended,
    Write,
};
use dm_layout::{
    Checksummed, FenceKeys, Hopscotch, Leaf, NodeEdit, NodeFormat, NodeInit, NodeRead, NodeShape, NodeState,
    NodeStructure, Slotted, ValueRef,
};
use dm_leaf::{LeafFlaws, Nodes};
use dm_lock::{DOUBT, GlobalLockTable, LockWord};
use dm_loopback::{Endpoint, Loopback, Trouble, block_on};
use dm_verbs::{Env, Nanos, NodeId, RemotePtr, Verbs};

use crate::common::{Setup, cost, pool};
use crate::memory::reclaiming;

/// The keys of the left node, and those of the right one.
const KEYS: [[u64; 2]; 2] = [[10, 11], [20, 21]];
const LINE: usize = 64;

/// Returns the address of node number `number`.
fn at(number: u64) -> RemotePtr {
    RemotePtr::new(NodeId(0), 1 << 20 | number << 12).unwrap()
}

const fn value(key: u64) -> [u8; 8] {
    [key as u8; 8]
}

/// One WRITE of a merge: its address and its bytes.
type Step = (RemotePtr, Vec<u8>);

struct Pair<F> {
    _pool: Loopback,
    v: Endpoint,
    nodes: Nodes<Key8, F>,
    left: RemotePtr,
    right: RemotePtr,
    /// The merge's WRITEs, in order.
    steps: Vec<Step>,
}

impl<F: NodeFormat<Key8> + Clone> Pair<F> {
    fn new(format: &F, flaws: LeafFlaws) -> Self {
        let pool = pool(1);
        let v = pool.connect(0).unwrap();
        let mut setup = Setup::plain();
        setup.nodes.flaws = flaws;
        let (nodes, _) = setup.nodes_and_memory(format.clone(), 1, 0);
        let (left, right) = (at(0), at(1));
        let fences =
            [(0, Some(20)), (20, Some(40))].map(|(low, high)| FenceKeys::new(Key8(low), high.map(Key8)));
        let siblings = [right.raw(), at(2).raw()];
        let mut images = [(0, left), (1, right)].map(|(i, at)| {
            let mut image = vec![0; format.node_bytes()];
            let init = NodeInit {
                sibling: siblings[i],
                ..NodeInit::live(0, fences[i])
            };
            let values = KEYS[i].map(value);
            let entries = KEYS[i]
                .iter()
                .zip(&values)
                .map(|(key, value)| (Key8(*key), ValueRef::from(&value[..])));
            format.build(&mut image, &init, entries);
            block_on(v.write(at, &image)).unwrap();
            image
        });
        let [one, other] = &mut images;
        let line = |at: RemotePtr| (at.offset() / LINE as u64) as u32;
        let mut steps = Vec::new();
        let mut step = |at: RemotePtr, image: &[u8], range: core::ops::Range<usize>| {
            steps.push((at.add(range.start as u64), image[range].to_vec()));
        };
        let was = format.header(other).unwrap();
        let range = format.freeze(other, line(left)).unwrap();
        step(right, other, range);
        let by_steps = !format.range(dm_layout::Part::Rest).is_empty();
        let range = format.announce_merge(one, line(right)).unwrap();
        if by_steps {
            step(left, one, range);
        }
        let range = format.copy_merge(one, other).unwrap();
        if by_steps {
            step(left, one, range);
        }
        let range = format.widen_merge(one, &was).unwrap();
        step(left, one, range);
        let range = format.bury(other, left.raw()).unwrap();
        step(right, other, range);
        let range = format.open(one).unwrap();
        step(left, one, range);
        Self {
            _pool: pool,
            v,
            nodes,
            left,
            right,
            steps,
        }
    }

    /// Executes the first `whole` WRITEs, and of the next WRITE only the lines in `mask`, as if the client had died
    /// then. Marks the lock words as suspect, as a sweep of the dead client's locks does.
    fn die(&self, whole: usize, mask: u64) {
        for (at, bytes) in &self.steps[..whole] {
            block_on(self.v.write(*at, bytes)).unwrap();
        }
        if let Some((at, bytes)) = self.steps.get(whole) {
            for (i, line) in bytes.chunks(LINE).enumerate() {
                if mask >> i & 1 != 0 {
                    block_on(self.v.write(at.add((i * LINE) as u64), line)).unwrap();
                }
            }
        }
        self.doubt();
    }

    fn doubt(&self) {
        let table = GlobalLockTable::on_chip(1, 64);
        let word = LockWord {
            payload: DOUBT,
            ..LockWord::default()
        };
        for node in [self.left, self.right] {
            let place = table.word_at(table.lock_of(node).unwrap());
            block_on(self.v.write(place, &word.pack().to_le_bytes())).unwrap();
        }
    }

    /// Follows sibling and forwarding pointers from `at` until a node answers.
    fn get(&self, at: RemotePtr, key: u64) -> Result<Option<Vec<u8>>, IndexError> {
        let (mut lead, mut found) = (Lead::hint(at), Vec::new());
        for _ in 0..8 {
            match block_on(self.nodes.get(&self.v, lead, 0, &Key8(key), &mut found))? {
                Answer::Done(present) => return Ok(present.then_some(found)),
                Answer::Stale(Stale::Right(next)) => lead = next,
                other => panic!("{key}: {other:?}"),
            }
        }
        panic!("{key}: no end")
    }

    fn write(&self, at: RemotePtr, key: u64, write: Write<'_>) -> Result<Applied, IndexError> {
        let mut lead = Lead::hint(at);
        for _ in 0..8 {
            match block_on(self.nodes.write(&self.v, lead, 0, &Key8(key), write, None))? {
                Answer::Done(applied) | Answer::Sparse(applied) => return Ok(applied),
                Answer::Stale(Stale::Right(next)) => lead = next,
                other => panic!("{key}: {other:?}"),
            }
        }
        panic!("{key}: no end")
    }

    fn state(&self, at: RemotePtr) -> NodeState {
        let image = block_on(self.v.read(at, self.nodes.format().node_bytes() as u32)).unwrap();
        dm_layout::audit(self.nodes.format(), &image)
            .expect("the node is not torn")
            .state
    }

    /// Checks that readers find every key from the left node, and the right node's keys also from the right node.
    /// Checks too that both nodes can be copied.
    fn is_readable(&self, what: &str) {
        for key in KEYS.concat() {
            for at in [self.left, self.right]
                .into_iter()
                .filter(|at| key >= 20 || *at == self.left)
            {
                assert_eq!(
                    self.get(at, key),
                    Ok(Some(value(key).to_vec())),
                    "{key} from {at}, {what}"
                );
            }
        }
        for at in [self.left, self.right] {
            let copied = block_on(self.nodes.copy(&self.v, at, &mut NodeCopy::new()));
            assert!(copied.is_ok(), "{copied:?}, {what}");
        }
    }

    /// Checks that neither node is in the middle of a change.
    fn is_whole(&self, what: &str) {
        assert_eq!(self.state(self.left), NodeState::Live, "{what}");
        let right = self.state(self.right);
        assert!(
            matches!(right, NodeState::Live | NodeState::Dead),
            "{right:?}, {what}"
        );
    }
}

/// Calls `each` for every number of WRITEs of a merge that have taken effect when the client dies, and for subsets of
/// the lines of the next WRITE.
fn every_death<F: NodeFormat<Key8> + Clone>(
    format: &F,
    flaws: LeafFlaws,
    each: impl Fn(&Pair<F>, usize, &str),
) {
    let steps = Pair::new(format, flaws).steps;
    // In a format that is written whole, no client can read the left node after a partial WRITE. So such deaths are
    // left out.
    let whole_only = |step: &Step| {
        format.range(dm_layout::Part::Rest).is_empty() && step.0 == at(0) && format.node_bytes() > LINE
    };
    for (landed, step) in steps.iter().enumerate() {
        let lines = step.1.len() / LINE;
        for mask in 0..1_u64 << lines.min(5) {
            if whole_only(step) && mask != 0 || mask.count_ones() as usize == lines {
                continue;
            }
            let pair = Pair::new(format, flaws);
            pair.die(landed, mask);
            each(
                &pair,
                landed,
                &format!("{landed} landed, and of the next {mask:b}"),
            );
        }
    }
}

/// Runs a check for each format.
macro_rules! every_format {
    ($check:ident) => {
        $check(&Slotted::with_span(8, 8).unwrap());
        $check(&Leaf::with_node_bytes(256, 8, true).unwrap());
        $check(&Hopscotch::new(16, 4, 8).unwrap());
        $check(&Checksummed::with_span(12, 8).unwrap());
    };
}

#[test]
fn an_unfinished_merge_is_finished_by_the_next_writer_of_either_node() {
    fn check<F: NodeFormat<Key8> + Clone>(format: &F) {
        for (from_right, key, write) in [
            (false, 10, Write::Update(&[77; 8])),
            (false, 21, Write::Update(&[77; 8])),
            (true, 21, Write::Update(&[77; 8])),
            (true, 25, Write::Insert(&[77; 8])),
            (false, 12, Write::Upsert(&[77; 8])),
            (true, 20, Write::Remove),
        ] {
            every_death(format, LeafFlaws::NONE, |pair, landed, what| {
                pair.is_readable(what);
                let before = pair.v.meter().counters();
                let start = if from_right { pair.right } else { pair.left };
                let done = pair.write(start, key, write);
                assert!(
                    matches!(done, Ok(Applied::Replaced | Applied::Inserted | Applied::Removed)),
                    "{done:?}, {what}"
                );
                let mended = (pair.v.meter().counters() - before).mended;
                assert!(mended <= 1, "{mended}, {what}");
                // Writes to the other keys finish the merge if the first write did not need to.
                for other in [10, 20, 21] {
                    let start = if other < 20 { pair.left } else { pair.right };
                    let _settled = pair.write(start, other, Write::Insert(&[9; 8]));
                }
                pair.is_whole(what);
                for now in KEYS.concat().into_iter().chain([12, 25]) {
                    let expected = match write {
                        Write::Remove if now == key => Some(vec![9; 8]),
                        Write::Remove | Write::Update(_) | Write::Insert(_) | Write::Upsert(_)
                            if now == key =>
                        {
                            Some(vec![77; 8])
                        }
                        _ => KEYS.concat().contains(&now).then(|| value(now).to_vec()),
                    };
                    let starts = [pair.left, pair.right];
                    for at in starts.into_iter().filter(|at| now >= 20 || *at == pair.left) {
                        assert_eq!(pair.get(at, now), Ok(expected.clone()), "{now} from {at}, {what}");
                    }
                }
                // Before the left node is changed, the merge is undone. After that it is completed.
                let by_steps = !format.range(dm_layout::Part::Rest).is_empty();
                let completed = landed >= if by_steps { 2 } else { 3 };
                assert!(!completed || pair.state(pair.right) == NodeState::Dead, "{what}");
            });
        }
    }
    every_format!(check);
}

#[test]
fn a_node_is_tended_without_a_write() {
    fn check<F: NodeFormat<Key8> + Clone>(format: &F) {
        let sound = Pair::new(format, LeafFlaws::NONE);
        let (tended, spent) = cost(&sound.v, sound.nodes.tend(&sound.v, sound.left));
        let read = format!("1 reads, {} bytes_read, 1 round_trips", format.node_bytes());
        assert_eq!((tended, spent), (Ok(Tended::Sound), read));
        every_death(format, LeafFlaws::NONE, |pair, _, what| {
            let mut mended = 0;
            for at in [pair.right, pair.left] {
                let tended = block_on(pair.nodes.tend(&pair.v, at));
                mended += u32::from(tended == Ok(Tended::Mended));
                assert!(tended.is_ok(), "{tended:?}, {what}");
            }
            pair.is_whole(what);
            pair.is_readable(what);
            let again = [pair.left, pair.right].map(|at| block_on(pair.nodes.tend(&pair.v, at)));
            assert_eq!(again, [Ok(Tended::Sound); 2], "{what}");
            assert!(mended <= 1, "{what}");
        });
    }
    every_format!(check);
}

/// The block of the dead node is retired once, by the client that opens the left node.
#[test]
fn the_dead_node_is_retired_once() {
    let format = Slotted::with_span(8, 8).unwrap();
    let died = Cell::new(0);
    every_death(&format, LeafFlaws::NONE, |pair, _, what| {
        let (nodes, alloc) = reclaiming(&pair.v, format, Nanos::from_millis(1_000));
        let before = alloc.stats().in_use_bytes;
        for at in [pair.left, pair.right, pair.left] {
            block_on(nodes.tend(&pair.v, at)).unwrap();
        }
        let dead = pair.state(pair.right) == NodeState::Dead;
        let expected = if dead { format.node_bytes() as i64 } else { 0 };
        assert_eq!(before - alloc.stats().in_use_bytes, expected, "{what}");
        died.set(died.get() + u32::from(dead));
    });
    assert!(died.get() > 10);
}

/// If a client makes both nodes live although the left one has all keys, a key can have two values.
#[test]
fn opening_a_widened_node_and_its_neighbour_loses_writes() {
    let flaws = LeafFlaws {
        reopens_widened: true,
        ..LeafFlaws::NONE
    };
    let pair = Pair::new(&Slotted::with_span(8, 8).unwrap(), flaws);
    pair.die(4, 0);
    assert_eq!(
        pair.write(pair.left, 21, Write::Update(&[77; 8])),
        Ok(Applied::Replaced)
    );
    assert_eq!(block_on(pair.nodes.tend(&pair.v, pair.right)), Ok(Tended::Mended));
    assert_eq!(
        pair.get(pair.right, 21),
        Ok(Some(value(21).to_vec())),
        "the old value"
    );
}

/// If the lock word is not suspect, the WRITE of a torn node may still be in progress, so no client mends the node.
#[test]
fn a_torn_node_is_mended_only_in_doubt() {
    for (forgets, doubt) in [(false, true), (true, true), (false, false)] {
        let flaws = LeafFlaws {
            forgets_doubt: forgets,
            ..LeafFlaws::NONE
        };
        let pair = Pair::new(&Hopscotch::new(16, 4, 8).unwrap(), flaws);
        for (at, bytes) in &pair.steps[..4] {
            block_on(pair.v.write(*at, bytes)).unwrap();
        }
        let (at, bytes) = &pair.steps[4];
        block_on(pair.v.write(at.add(LINE as u64), &bytes[LINE..2 * LINE])).unwrap();
        if doubt {
            pair.doubt();
        }
        let tended = block_on(pair.nodes.tend(&pair.v, pair.right));
        if doubt && !forgets {
            assert_eq!(tended, Ok(Tended::Mended));
        } else {
            assert!(matches!(tended, Err(IndexError::Exhausted(_))), "{tended:?}");
        }
        let lead = Lead::hint(pair.right);
        let write = pair
            .nodes
            .write(&pair.v, lead, 0, &Key8(25), Write::Upsert(&[1; 8]), None);
        match block_on(write) {
            Ok(Answer::Stale(Stale::Right(next))) if doubt && !forgets => assert_eq!(next.at, pair.left),
            Err(IndexError::Exhausted(_)) if !doubt || forgets => {}
            other => panic!("{doubt}, {forgets}: {other:?}"),
        }
    }
}

/// If only some lines of a hop were written, no key is lost. The next writer that needs the whole leaf makes the two
/// copies of each hop count equal again.
#[test]
fn an_unfinished_hop_is_finished() {
    let format = Hopscotch::<Key8>::new(16, 2, 8).unwrap();
    // Keys are inserted until one needs two hops.
    let mut image = vec![0; format.node_bytes()];
    format.build(&mut image, &NodeInit::live(0, FenceKeys::ALL), []);
    let mut keys = Vec::new();
    let (hopping, plan) = (1..)
        .find_map(|key| match format.place(&image, &Key8(key)).unwrap() {
            dm_layout::Place::Free(slot) => {
                format.put(&mut image, slot, &Key8(key), (&value(key)).into());
                keys.push(key);
                None
            }
            _ => {
                let plan = format.plan_hops(&image, &Key8(key), &format.geometry().all());
                let plan = plan.unwrap()?;
                (plan.moves().len() == 2).then_some((key, plan))
            }
        })
        .unwrap();
    let before = image.clone();
    let mut writes = Vec::new();
    let entry = value(hopping);
    format.hop(
        &mut image,
        &plan,
        (&Key8(hopping), (&entry).into()),
        true,
        |at, bytes| {
            writes.push((at, bytes.to_vec()));
        },
    );
    assert!(writes.len() > 1);
    let absent = (hopping + 1..).find(|key| !keys.contains(key)).unwrap();
    // The WRITEs before number `whole` have landed completely. Of WRITE number `whole`, only some lines have landed.
    for (whole, (from, last)) in writes.iter().enumerate() {
        let lines: Vec<usize> = (from / LINE..(from + last.len()).div_ceil(LINE)).collect();
        for mask in 0..1_u64 << lines.len() {
            let pair = Pair::new(&format, LeafFlaws::NONE);
            let mut left = before.clone();
            for (at, bytes) in &writes[..whole] {
                left[*at..at + bytes.len()].copy_from_slice(bytes);
            }
            for (nth, line) in lines.iter().enumerate() {
                if mask >> nth & 1 != 0 {
                    let range = (line * LINE).max(*from)..((line + 1) * LINE).min(from + last.len());
                    left[range.clone()].copy_from_slice(&last[range.start - from..range.end - from]);
                }
            }
            block_on(pair.v.write(pair.left, &left)).unwrap();
            pair.doubt();
            let torn = format.accept(&left).is_err();
            let counters = pair.v.meter().counters();
            assert_eq!(
                pair.write(pair.left, absent, Write::Update(&[1; 8])),
                Ok(Applied::Absent)
            );
            let mended = (pair.v.meter().counters() - counters).mended;
            assert_eq!(mended, u64::from(torn), "{whole}, {mask:b}");
            for key in &keys {
                assert_eq!(
                    pair.get(pair.left, *key),
                    Ok(Some(value(*key).to_vec())),
                    "{key}: {whole}, {mask:b}"
                );
                assert_eq!(
                    pair.write(pair.left, *key, Write::Update(&[5; 8])),
                    Ok(Applied::Replaced)
                );
                assert_eq!(pair.get(pair.left, *key), Ok(Some(vec![5; 8])));
                assert_eq!(pair.write(pair.left, *key, Write::Remove), Ok(Applied::Removed));
                assert_eq!(
                    pair.get(pair.left, *key),
                    Ok(None),
                    "no copy of {key}: {whole}, {mask:b}"
                );
            }
        }
    }
}

/// A client has died after it had written only some lines of a value that fills several lines. Readers find the value
/// torn. The next write of the key writes all lines, and keeps none of the dead client's lines.
#[test]
fn a_torn_entry_is_written_over_in_doubt() {
    let format = Slotted::<Key8>::with_span(3, 150).unwrap();
    for (mask, remove) in (1..7).flat_map(|mask| [(mask, false), (mask, true)]) {
        let pool = pool(1);
        let v = pool.connect(0).unwrap();
        let nodes = Setup::plain().nodes(format, 1, 0);
        let mut image = vec![0; format.node_bytes()];
        let old = [1; 150];
        format.build(
            &mut image,
            &NodeInit::live(0, FenceKeys::ALL),
            [(Key8(7), (&old[..]).into())],
        );
        block_on(v.write(at(0), &image)).unwrap();
        let slot = dm_layout::find(&format, &image, &Key8(7)).unwrap().unwrap();
        let range = format.update(&mut image, slot, (&[2; 150][..]).into());
        let first = range.start / LINE;
        for line in (0..3).filter(|line| mask >> line & 1 != 0) {
            let from = (first + line) * LINE;
            block_on(v.write(at(0).add(from as u64), &image[from..from + LINE])).unwrap();
        }
        let get = || {
            let mut found = Vec::new();
            let got = block_on(nodes.get(&v, Lead::hint(at(0)), 0, &Key8(7), &mut found));
            got.map(|_| found)
        };
        assert!(matches!(get(), Err(IndexError::Exhausted(_))), "{mask:b}");
        let write = |write| block_on(nodes.write(&v, Lead::hint(at(0)), 0, &Key8(7), write, None));
        assert!(
            matches!(write(Write::Update(&[3; 150])), Err(IndexError::Exhausted(_))),
            "{mask:b}"
        );
        let table = GlobalLockTable::on_chip(1, 64);
        let word = LockWord {
            payload: DOUBT,
            ..LockWord::default()
        };
        let place = table.word_at(table.lock_of(at(0)).unwrap());
        block_on(v.write(place, &word.pack().to_le_bytes())).unwrap();
        if remove {
            assert_eq!(write(Write::Remove), Ok(Answer::Done(Applied::Removed)));
            assert_eq!(
                write(Write::Insert(&[3; 150])),
                Ok(Answer::Done(Applied::Inserted))
            );
        } else {
            assert_eq!(
                write(Write::Update(&[3; 150])),
                Ok(Answer::Done(Applied::Replaced))
            );
        }
        assert_eq!(get(), Ok(vec![3; 150]), "{mask:b}");
    }
}

/// If other lines of the node are torn too, a client that writes only the entry would leave them torn.
#[test]
fn a_torn_entry_of_a_torn_node_is_not_written_over() {
    let format = Slotted::<Key8>::with_span(3, 150).unwrap();
    for torn_node in [false, true] {
        let pair = Pair::new(&Slotted::with_span(8, 8).unwrap(), LeafFlaws::NONE);
        let nodes = Setup::plain().nodes(format, 1, 0);
        let mut image = vec![0; format.node_bytes()];
        let entries = [(Key8(7), (&[1; 150][..]).into())];
        format.build(&mut image, &NodeInit::live(0, FenceKeys::ALL), entries);
        let slot = dm_layout::find(&format, &image, &Key8(7)).unwrap().unwrap();
        let before = image.clone();
        let range = format.update(&mut image, slot, (&[2; 150][..]).into());
        let line = range.start / LINE * LINE;
        image[line..line + LINE].copy_from_slice(&before[line..line + LINE]);
        if torn_node {
            let last = image.len() - LINE;
            image[last] ^= 0x55;
        }
        block_on(pair.v.write(pair.left, &image)).unwrap();
        pair.doubt();
        let write = Write::Update(&[3; 150]);
        let written = block_on(nodes.write(&pair.v, Lead::hint(pair.left), 0, &Key8(7), write, None));
        if torn_node {
            assert!(matches!(written, Err(IndexError::Exhausted(_))), "{written:?}");
        } else {
            assert_eq!(written, Ok(Answer::Done(Applied::Replaced)));
        }
    }
}

/// If the WRITE of an entry over several lines fails, some of the lines may be missing, so the lock word becomes
/// suspect. A WRITE within one line is never torn, so the lock word does not become suspect.
#[test]
fn a_failed_write_of_an_entry_of_several_lines_leaves_doubt() {
    let (mut within, mut at_end, mut across) = (0, 0, 0);
    for value_len in 8..120 {
        let format = Slotted::<Key8>::with_span(6, value_len).unwrap();
        let values: Vec<_> = (0..6).map(|key| vec![key; value_len]).collect();
        let mut image = vec![0; format.node_bytes()];
        let entries = (0..).map(Key8).zip(values.iter().map(|value| value[..].into()));
        format.build(&mut image, &NodeInit::live(0, FenceKeys::ALL), entries);
        for key in (0..6).map(Key8) {
            let slot = dm_layout::find(&format, &image, &key).unwrap().unwrap();
            let new = vec![9; value_len];
            let range = format.update(&mut image.clone(), slot, new[..].into());
            let doubts = range.start / LINE != (range.end - 1) / LINE;
            match (doubts, range.end % LINE) {
                (true, _) => across += 1,
                (false, 0) => at_end += 1,
                (false, _) => within += 1,
            }
            let pool = Loopback::builder().nodes(1).host_bytes(2 << 20);
            let pool = pool.delays(100).seed(7).build().unwrap();
            let v = pool.connect(0).unwrap();
            let nodes = Setup::plain().nodes(format, 1, 0);
            block_on(v.write(at(0), &image)).unwrap();
            let lead = Lead::hint(at(0));
            let mut writing = Box::pin(nodes.write(&v, lead, 0, &key, Write::Update(&new), None));
            let waker = core::task::Waker::noop();
            let polled = writing.as_mut().poll(&mut core::task::Context::from_waker(waker));
            assert!(polled.is_pending(), "the lock is taken, and the answer is late");
            // Of the next chain, the WRITE of the entry takes effect, and the unlock does not.
            pool.cut(NodeId(0), Trouble::LostAfter(1));
            assert!(block_on(writing).is_err());
            pool.restore(NodeId(0));
            let table = GlobalLockTable::on_chip(1, 64);
            let place = table.word_at(table.lock_of(at(0)).unwrap());
            let word = LockWord::unpack(block_on(v.word(place)).unwrap());
            assert_eq!(
                (word.locked, word.payload & DOUBT != 0),
                (false, doubts),
                "{key:?} of {value_len} bytes: {range:?}"
            );
        }
    }
    assert!(
        within > 10 && at_end > 3 && across > 100,
        "{within}, {at_end}, {across}"
    );
}

/// A client died while it marked a replaced root as dead. Readers of that node go back to the root word.
#[test]
fn readers_of_a_torn_dead_root_return_to_the_root_word() {
    let format = Slotted::<Key8>::with_span(8, 8).unwrap();
    for (level, fences, gone) in [
        (1, FenceKeys::ALL, true),
        (1, FenceKeys::new(Key8(0), Some(Key8(9))), false),
        (0, FenceKeys::ALL, false),
    ] {
        let pair = Pair::new(&format, LeafFlaws::NONE);
        let mut image = vec![0; format.node_bytes()];
        let child = at(2).raw().to_le_bytes();
        format.build(
            &mut image,
            &NodeInit::live(level, fences),
            [(Key8(0), (&child).into())],
        );
        block_on(pair.v.write(pair.left, &image)).unwrap();
        format.bury(&mut image, 0).unwrap();
        let last = image.len() - LINE;
        block_on(pair.v.write(pair.left.add(last as u64), &image[last..])).unwrap();
        pair.doubt();
        let mut copy = NodeCopy::new();
        let copied = block_on(pair.nodes.copy(&pair.v, pair.left, &mut copy));
        let write = pair.nodes.write(
            &pair.v,
            Lead::linked(pair.left),
            level,
            &Key8(5),
            Write::Upsert(&child),
            None,
        );
        let written = block_on(write);
        if gone {
            assert_eq!((copied, copy.sibling), (Ok(false), RemotePtr::NULL));
            assert_eq!(written, Ok(Answer::Stale(Stale::Elsewhere)));
        } else {
            assert!(matches!(copied, Err(IndexError::Exhausted(_))), "{copied:?}");
            assert!(matches!(written, Err(IndexError::Exhausted(_))), "{written:?}");
        }
    }
}
