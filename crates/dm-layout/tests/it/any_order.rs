//! Checks every READ that an RNIC could return while a node changes: each line may come from another moment.
//!
//! A *timeline* contains the node after each line that was written. A READ may show each line as it was at another
//! moment. With small nodes, a test can try all combinations.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::ops::Range;

use dm_layout::{
    Bookend, CheckFailure, Checksummed, FIRST_VERSION, FenceKeys, Key8, KeyBytes, KeyN, LINE_BYTES, Lookup,
    NodeEdit, NodeFormat, NodeInit, NodeRead, NodeShape, NodeState, NodeSteps, NodeStructure, Packed, Place,
    Slotted, SplitBias, SplitRequest, Stale, TornPart,
};

/// The order in which the lines of one WRITE take effect.
#[derive(Clone, Copy, PartialEq)]
enum Landing {
    Increasing,
    Decreasing,
}

struct Remote {
    timeline: Vec<Vec<u8>>,
    landing: Landing,
}

impl Remote {
    fn new(image: &[u8], landing: Landing) -> Self {
        Self {
            timeline: vec![image.to_vec()],
            landing,
        }
    }

    /// WRITEs `image[range]`, one line after the other.
    fn write(&mut self, image: &[u8], range: Range<usize>) {
        let lines = range.start / LINE_BYTES..range.end.div_ceil(LINE_BYTES);
        let mut lines: Vec<_> = lines.collect();
        if self.landing == Landing::Decreasing {
            lines.reverse();
        }
        for line in lines {
            let from = range.start.max(line * LINE_BYTES);
            let to = range.end.min((line + 1) * LINE_BYTES);
            let mut next = self.timeline.last().unwrap().clone();
            next[from..to].copy_from_slice(&image[from..to]);
            if next != *self.timeline.last().unwrap() {
                self.timeline.push(next);
            }
        }
    }

    /// Calls `judge` with every mixture of lines.
    fn every_read(&self, mut judge: impl FnMut(&[u8])) {
        let lines = self.timeline[0].len() / LINE_BYTES;
        let mut moments = vec![0; lines];
        let mut read = self.timeline[0].clone();
        'reads: loop {
            for (line, moment) in moments.iter().enumerate() {
                let range = line * LINE_BYTES..(line + 1) * LINE_BYTES;
                read[range.clone()].copy_from_slice(&self.timeline[*moment][range]);
            }
            judge(&read);
            for moment in &mut moments {
                *moment += 1;
                if *moment < self.timeline.len() {
                    continue 'reads;
                }
                *moment = 0;
            }
            return;
        }
    }
}

fn key<K: KeyBytes>(small: u8) -> K {
    K::read_from(&[small; 32])
}

/// Returns a key that is zero except for its last byte. Such keys are close to each other.
fn near<K: KeyBytes>(small: u8) -> K {
    let mut bytes = [0; 32];
    bytes[K::LEN - 1] = small;
    K::read_from(&bytes)
}

/// Returns a near key for a small number, and a far key for a larger number.
fn mixed<K: KeyBytes>(small: u8) -> K {
    if small < 100 { near(small) } else { key(small) }
}

fn value(small: u8, len: usize) -> Vec<u8> {
    vec![small; len]
}

#[derive(Debug, Default, PartialEq)]
struct Verdict {
    answers: u64,
    torn: u64,
    wrong: u64,
}

/// Checks every key in `keys` in every READ. All of them are present all the time, in this node or, from the separator
/// on, in a node to the right. A READ is correct if it shows the key with a value of a single write, if it leads to the
/// sibling for a key from the separator on, or if it is torn.
fn judge_keys<K: KeyBytes, F: NodeFormat<K>>(
    format: &F,
    remote: &Remote,
    (keys, key): (&[u8], fn(u8) -> K),
    lowest_separator: u8,
    values: impl Fn(u8) -> Vec<u8>,
) -> Verdict {
    let mut verdict = Verdict::default();
    remote.every_read(|read| {
        for small in keys {
            let right = match format.lookup(read, &key(*small), 0) {
                Err(CheckFailure::Torn { .. }) => {
                    verdict.torn += 1;
                    continue;
                }
                Ok(Lookup::Found { value: found, .. }) => {
                    let found = found.to_vec();
                    found.iter().all(|byte| *byte == found[0]) && values(*small).contains(&found[0])
                }
                Ok(Lookup::GoRight { .. }) => *small >= lowest_separator,
                Ok(Lookup::Absent | Lookup::Stale(_)) | Err(_) => false,
            };
            verdict.answers += 1;
            verdict.wrong += u64::from(!right);
        }
        // A scan of an accepted node must find all keys within the fence keys.
        if let Ok(header) = format.accept(read) {
            let mut entries = Vec::new();
            if format.gather(read, &header.fences, &mut entries).is_ok() {
                let want = keys
                    .iter()
                    .map(|small| key(*small))
                    .filter(|key| header.fences.contains(key));
                let complete = want.clone().all(|key| entries.iter().any(|entry| entry.0 == key));
                verdict.wrong += u64::from(!complete);
            }
        }
    });
    verdict
}

/// Splits the node `rounds` times, and merges the two nodes after each split if `merge` is true. The keys in `keys` are
/// present all the time. Their order is the order of their slots. Returns the verdict about the left node.
fn structural<K: KeyBytes, F: NodeFormat<K>>(
    format: &F,
    (keys, key): (&[u8], fn(u8) -> K),
    new: Option<u8>,
    rounds: usize,
    merge: bool,
    landing: Landing,
) -> Verdict {
    let values: Vec<_> = keys
        .iter()
        .chain(&new)
        .map(|small| (*small, value(*small, format.value_len())))
        .collect();
    let mut left = vec![0; format.node_bytes()];
    let entries = values.iter().filter(|(small, _)| keys.contains(small));
    let entries = entries.map(|(small, value)| (key(*small), value.as_slice().into()));
    format.build(&mut left, &NodeInit::live(0, FenceKeys::ALL), entries);
    let mut remote = Remote::new(&left, landing);
    let mut lowest = u8::MAX;
    for round in 0..rounds {
        let new = if round == 0 { new } else { None };
        let request = SplitRequest {
            right_address: 64,
            right_incarnation: 1,
            right_version: FIRST_VERSION,
            owner: 3,
            new: new.map(|small| {
                (
                    key(small),
                    values.iter().find(|v| v.0 == small).unwrap().1.as_slice().into(),
                )
            }),
            bias: SplitBias::Median,
        };
        let mut right = vec![0; format.node_bytes()];
        let plan = format
            .prepare_split(&left, &mut right, &request)
            .unwrap()
            .unwrap();
        let moves = |small: &u8| key(*small) >= plan.separator;
        lowest = keys
            .iter()
            .chain(&new)
            .copied()
            .filter(moves)
            .fold(lowest, u8::min);
        let range = format.announce_split(&mut left, &plan).unwrap();
        remote.write(&left, range);
        let range = format.clear_split(&mut left, &plan).unwrap();
        remote.write(&left, range);
        let range = format.finish_split(&mut left).unwrap();
        remote.write(&left, range);
        // The right node has all keys that are not less than the separator.
        format.open(&mut right).unwrap();
        let moved = values.iter().filter(|(small, _)| key(*small) >= plan.separator);
        for (small, value) in moved {
            let found = format.lookup(&right, &key(*small), 0).unwrap();
            assert!(matches!(found, Lookup::Found { value: found, .. } if found.to_vec() == *value));
        }
        if let Some(small) = new.filter(|small| key(*small) < plan.separator) {
            assert!(
                dm_layout::find(format, &left, &key(small)).unwrap().is_some(),
                "the new key is in the left node"
            );
        }
        if merge {
            let right_header = format.header(&right).unwrap();
            // After writes to the right node, its entries may be in any slots. Here they are in the order of keys.
            let before = right.clone();
            let mut sorted = Vec::new();
            format.gather(&before, &right_header.fences, &mut sorted).unwrap();
            let init = NodeInit {
                sibling: right_header.sibling,
                ..NodeInit::live(0, right_header.fences)
            };
            format.build(&mut right, &init, sorted);
            let range = format.announce_merge(&mut left, 3).unwrap();
            remote.write(&left, range);
            let range = format.copy_merge(&mut left, &right).unwrap();
            remote.write(&left, range);
            let range = format.widen_merge(&mut left, &right_header).unwrap();
            remote.write(&left, range);
            let range = format.open(&mut left).unwrap();
            remote.write(&left, range);
            // Without the new key, the next split has a higher separator, so keys that were merged back stay.
            if let Some(slot) = new.and_then(|small| dm_layout::find(format, &left, &key(small)).unwrap()) {
                let range = format.remove(&mut left, slot);
                remote.write(&left, range);
            }
        }
    }
    assert_eq!(
        *remote.timeline.last().unwrap(),
        left,
        "the steps' ranges cover every change"
    );
    if F::NAME == "packed" || F::NAME == "slotted" && format.value_len() <= 30 {
        // If a writer dies after any line, readers still find every key.
        for (line, left_behind) in remote.timeline.iter().enumerate() {
            for small in keys {
                let found = format.lookup(left_behind, &key(*small), 0);
                assert!(found.is_ok(), "{small} after {line} lines: {found:?}");
            }
        }
    }
    judge_keys(format, &remote, (keys, key), lowest, |small| value(small, 1))
}

fn all_sound<K: KeyBytes, F: NodeFormat<K>>(format: &F) {
    all_sound_of(format, key);
}

fn all_sound_of<K: KeyBytes, F: NodeFormat<K>>(format: &F, key: fn(u8) -> K) {
    let mut ascending: Vec<u8> = (1..=format.capacity() as u8).map(|small| small * 10).collect();
    while !format.takes(&K::MIN, &mut ascending.iter().map(|small| key(*small))) {
        ascending.remove(0);
    }
    let descending: Vec<u8> = ascending.iter().rev().copied().collect();
    // The greatest key is second, so that the header's line has keys of both halves.
    let mut mixed = ascending.clone();
    mixed[1..].rotate_right(1);
    for (landing, full) in [
        (Landing::Increasing, &ascending),
        (Landing::Decreasing, &descending),
        (Landing::Increasing, &mixed),
    ] {
        for new in [5, 25, 255] {
            let verdict = structural(format, (full, key), Some(new), 1, false, landing);
            assert_eq!(verdict.wrong, 0, "split of {format:?} with {new}: {verdict:?}");
            assert!(
                verdict.answers > 0 && verdict.torn > 0,
                "both happened: {verdict:?}"
            );
        }
        let verdict = structural(format, (full, key), None, 1, true, landing);
        assert_eq!(verdict.wrong, 0, "split and merge of {format:?}: {verdict:?}");
        assert!(
            verdict.answers > 0 && verdict.torn > 0,
            "both happened: {verdict:?}"
        );
    }
}

#[test]
fn splits_and_merges_are_sound_in_any_order() {
    all_sound::<Key8, _>(&Slotted::tiny(8).unwrap());
    all_sound::<Key8, _>(&Slotted::with_node_bytes(256, 8).unwrap());
    all_sound::<Key8, _>(&Slotted::with_node_bytes(256, 30).unwrap());
    all_sound::<Key8, _>(&Slotted::with_node_bytes(320, 100).unwrap());
    all_sound::<KeyN<32>, _>(&Slotted::with_node_bytes(256, 8).unwrap());
    all_sound::<Key8, _>(&Checksummed::with_node_bytes(192, 8).unwrap());
    for key in [key, near, mixed] {
        all_sound_of::<Key8, _>(&Packed::with_node_bytes(192, 8).unwrap(), key);
        all_sound_of::<Key8, _>(&Packed::with_node_bytes(256, 16).unwrap(), key);
    }
    for key in [key, near, mixed] {
        all_sound_of::<KeyN<32>, _>(&Packed::with_node_bytes(256, 8).unwrap(), key);
    }
}

#[test]
fn repeated_changes_are_sound_in_any_order() {
    let keys = [10, 30, 20];
    let format = Slotted::<Key8>::tiny(8).unwrap();
    for landing in [Landing::Increasing, Landing::Decreasing] {
        let verdict = structural(&format, (&keys, key), None, 3, true, landing);
        assert_eq!(verdict.wrong, 0, "{verdict:?}");
        let format = Slotted::<Key8>::with_span(5, 8).unwrap();
        let verdict = structural(&format, (&[20, 30, 40, 50], key), Some(5), 2, true, landing);
        assert_eq!(verdict.wrong, 0, "{verdict:?}");
    }
}

/// Memory is zeroed, then holds a node, then the dead node, and then another node that begins as Splitting. For each
/// mixture of their lines, a lookup finds the value that belongs to the key, reports a stale node, or fails. It never
/// reports a key as absent.
#[test]
fn nodes_in_one_memory_are_never_mixed() {
    never_mix::<Key8, _>(&Slotted::with_node_bytes(192, 8).unwrap(), key);
    for key in [key, near] {
        never_mix::<Key8, _>(&Packed::with_node_bytes(192, 8).unwrap(), key);
    }
    for key in [key, near] {
        never_mix::<KeyN<32>, _>(&Packed::with_node_bytes(256, 8).unwrap(), key);
    }
}

fn never_mix<K: KeyBytes, F: NodeFormat<K>>(format: &F, key: fn(u8) -> K) {
    let bytes = format.node_bytes();
    let mut keys: Vec<u8> = (1..=format.capacity() as u8).collect();
    while !format.takes(&key(1), &mut keys.iter().map(|small| key(*small))) {
        keys.pop();
    }
    let values: Vec<_> = keys.iter().map(|small| value(*small, 8)).collect();
    let entries = |from: usize| {
        let entries = keys.iter().zip(&values).skip(from);
        entries.map(|(small, value)| (key(*small), value.as_slice().into()))
    };
    for landing in [Landing::Increasing, Landing::Decreasing] {
        let mut image = vec![0; bytes];
        let mut remote = Remote::new(&image, landing);
        let mut init = NodeInit::live(0, FenceKeys::new(key(1), None));
        format.build(&mut image, &init, entries(0));
        remote.write(&image, 0..bytes);
        let range = format.bury(&mut image, 77).unwrap();
        remote.write(&image, range);
        let dead = format.header(&image).unwrap();
        // The fence keys differ, so an equal stored difference belongs to another key.
        init = NodeInit::live(0, FenceKeys::new(key(2), None)).reusing(dead.version, dead.incarnation);
        init.state = NodeState::Splitting;
        format.build(&mut image, &init, entries(1));
        remote.write(&image, 0..bytes);
        let mut answers = 0;
        remote.every_read(|read| {
            for small in &keys {
                match format.lookup(read, &key(*small), 0) {
                    Ok(Lookup::Found { value: found, .. }) => {
                        assert_eq!(found.to_vec(), value(*small, 8));
                        answers += 1;
                    }
                    Ok(Lookup::Stale(Stale::Below)) => assert_eq!(*small, 1),
                    Ok(Lookup::Stale(stale)) => assert_eq!(stale, Stale::Dead { forward: 77 }),
                    Ok(other) => panic!("{small}: {other:?}"),
                    Err(_) => {}
                }
            }
        });
        assert!(answers > 0);
    }
}

/// Each line of entries changes its shape three times. Each mixture shows the entries that stay, each with a value of
/// one write.
#[test]
fn shapes_are_never_mixed() {
    let format = Packed::<Key8>::with_node_bytes(192, 16).unwrap();
    for landing in [Landing::Increasing, Landing::Decreasing] {
        let values = [20, 21, 22, 30].map(|small| (near::<Key8>(small), value(small, 16)));
        let mut image = vec![0; 192];
        let entries = values.iter().map(|(key, value)| (*key, value.as_slice().into()));
        format.build(&mut image, &NodeInit::live(0, FenceKeys::ALL), entries);
        let mut remote = Remote::new(&image, landing);
        let mut shapes = Vec::new();
        // At most two entries of each line stay, and new entries may be put into any line.
        let gone = |small| (small, false);
        let comes = |small| (small, true);
        let script = [
            [gone(21), gone(22), comes(200), comes(201)],
            [gone(200), gone(201), comes(11), comes(12)],
            [comes(13), comes(14), gone(11), gone(12)],
            [gone(13), gone(14), comes(202), comes(203)],
        ];
        for (small, comes) in script.into_iter().flatten() {
            let key = mixed(small);
            let range = match comes {
                true => match format.place(&image, &key).unwrap() {
                    Place::Free(slot) => format.put(&mut image, slot, &key, (&[small; 16]).into()),
                    place => panic!("{small}: {place:?}"),
                },
                false => {
                    let slot = dm_layout::find(&format, &image, &key)
                        .unwrap()
                        .expect("it is there");
                    format.remove(&mut image, slot)
                }
            };
            assert_eq!(range.start / LINE_BYTES, (range.end - 1) / LINE_BYTES, "one line");
            remote.write(&image, range);
            shapes.push([64, 128].map(|line| image[line + 1] >> 6));
            // A value changes between the changes of shape.
            let slot = dm_layout::find(&format, &image, &near(20))
                .unwrap()
                .expect("it is there");
            let range = format.update(&mut image, slot, (&[shapes.len() as u8; 16]).into());
            remote.write(&image, range);
        }
        shapes.dedup();
        assert_eq!(shapes, [[0, 0], [1, 0], [1, 1], [0, 1], [0, 0], [1, 0], [1, 1]]);
        let values = |small| match small {
            20 => (1..=20).collect(),
            small => vec![small],
        };
        let verdict = judge_keys(&format, &remote, (&[20, 30], mixed), u8::MAX, values);
        assert_eq!((verdict.wrong, verdict.torn), (0, 0), "{verdict:?}");
        assert!(verdict.answers > 0);
    }
}

#[test]
fn one_write_split_is_sound_for_readers() {
    let format = Slotted::<Key8>::with_node_bytes(256, 8).unwrap();
    let keys: Vec<u8> = (1..=format.capacity() as u8).collect();
    let values: Vec<_> = keys.iter().map(|small| value(*small, 8)).collect();
    let mut left = vec![0; 256];
    let entries = keys
        .iter()
        .zip(&values)
        .map(|(small, value)| (key(*small), value.as_slice().into()));
    format.build(&mut left, &NodeInit::live(0, FenceKeys::ALL), entries);
    let mut remote = Remote::new(&left, Landing::Decreasing);
    let request = SplitRequest {
        right_address: 64,
        right_incarnation: 1,
        right_version: FIRST_VERSION,
        owner: 3,
        new: None,
        bias: SplitBias::Median,
    };
    let mut right = vec![0; 256];
    let plan = format
        .prepare_split(&left, &mut right, &request)
        .unwrap()
        .unwrap();
    let range = format.split_at_once(&mut left, &plan).unwrap();
    remote.write(&left, range);
    let verdict = judge_keys(&format, &remote, (&keys, key), keys[keys.len() / 2], |small| {
        vec![small]
    });
    assert_eq!(verdict.wrong, 0, "{verdict:?}");
}

/// Checks with versions of 2 bits that no READ is wrong within the limit that the crate documents, and that some READ
/// is wrong beyond this limit.
#[test]
fn versions_wrap_where_stated() {
    // A merge puts 20 into another line than before.
    let keys = [10, 30, 20];
    let format = |bits| Slotted::<Key8>::tiny(8).unwrap().with_version_bits(bits).unwrap();
    let two_changes = structural(&format(2), (&keys, key), None, 1, true, Landing::Increasing);
    assert_eq!(two_changes.wrong, 0, "{two_changes:?}");
    let four_changes = structural(&format(2), (&keys, key), None, 2, true, Landing::Increasing);
    assert!(
        four_changes.wrong > 0,
        "a 2-bit version wraps after four changes: {four_changes:?}"
    );
    let wider = structural(&format(3), (&keys, key), None, 2, true, Landing::Increasing);
    assert_eq!(wider.wrong, 0, "{wider:?}");
}

/// An entry is written again and again between the reading of two of its lines. The READ is torn, unless the number of
/// these writes is a multiple of the number of entry versions.
#[test]
fn writes_of_one_entry_during_a_read_are_detected() {
    fn check(format: &Slotted<Key8>, torn_after: &[u32], whole_after: u32) {
        let len = format.value_len();
        let (old, kept) = (value(0, len), value(9, len));
        let mut image = vec![0; format.node_bytes()];
        let entries = [
            (key(10), kept.as_slice().into()),
            (key(20), old.as_slice().into()),
        ];
        format.build(&mut image, &NodeInit::live(0, FenceKeys::ALL), entries);
        let before = image.clone();
        let slot = dm_layout::find(format, &image, &key(20)).unwrap().unwrap();
        let mut written = 0;
        for &count in torn_after.iter().chain([&whole_after]) {
            let mut range = 0..0;
            while written < count {
                written += 1;
                range = format.update(&mut image, slot, (&value(written as u8 | 1, len)[..]).into());
            }
            let lines = range.start / LINE_BYTES..range.end.div_ceil(LINE_BYTES);
            assert!(lines.len() > 1, "{format:?}");
            for line in lines {
                // This line was read after the writes, and the others before, or the other way round.
                for (first, last) in [(&before, &image), (&image, &before)] {
                    let mut read = first.clone();
                    let line = line * LINE_BYTES..(line + 1) * LINE_BYTES;
                    read[line.clone()].copy_from_slice(&last[line]);
                    let found = format.lookup(&read, &key(20), 0);
                    if count == whole_after {
                        assert!(matches!(found, Ok(Lookup::Found { .. })), "{count}: {found:?}");
                        continue;
                    }
                    let torn = matches!(
                        found,
                        Err(CheckFailure::Torn {
                            part: TornPart::Entry,
                            ..
                        })
                    );
                    assert!(torn, "{format:?}: {count} writes: {found:?}");
                    assert!(format.entry(&read, slot).is_err_and(|failure| failure.is_torn()));
                    let other = format.lookup(&read, &key(10), 0);
                    assert!(matches!(other, Ok(Lookup::Found { value, .. }) if value.to_vec() == kept));
                }
            }
        }
    }
    for value_len in [64, 100, 200] {
        let format = Slotted::<Key8>::with_span(2, value_len).unwrap();
        let counts = [1, 2, 15, 16, 17, 32, 48, 255, 256, 512, 65_535];
        check(&format, &counts, 65_536);
        check(&format.with_version_bits(2).unwrap(), &[1, 2, 3], 4);
    }
}

/// The flaw of the model T-S2a: bookends accept a mixture, so that a present key counts as absent.
#[test]
fn bookends_accept_mixtures() {
    let format = Bookend::<Key8>::with_node_bytes(192, 8).unwrap();
    // The entries that move are within lines, and the entries across lines stay.
    let keys = [8, 1, 5, 6, 7, 2, 3, 4];
    let verdict = structural(&format, (&keys, key), None, 1, true, Landing::Increasing);
    assert!(verdict.wrong > 0, "{verdict:?}");
}

/// Updates one key in place, while other keys are removed and inserted. Returns the verdict about the updated key: a
/// READ is wrong if it mixes the values of several updates.
fn in_place<F: NodeFormat<Key8>>(format: &F, landing: Landing) -> Verdict {
    let len = format.value_len();
    let first = [value(1, len), value(2, len)];
    let entries = [
        (key(10), first[0].as_slice().into()),
        (key(20), first[1].as_slice().into()),
    ];
    let mut image = vec![0; format.node_bytes()];
    format.build(&mut image, &NodeInit::live(0, FenceKeys::ALL), entries);
    let mut remote = Remote::new(&image, landing);
    for round in 3..5 {
        let new = value(round, len);
        let slot = dm_layout::find(format, &image, &key(20)).unwrap().unwrap();
        let range = format.update(&mut image, slot, new.as_slice().into());
        remote.write(&image, range);
        let slot = dm_layout::find(format, &image, &key(10)).unwrap();
        if let Some(slot) = slot {
            let range = format.remove(&mut image, slot);
            remote.write(&image, range);
            let Place::Free(free) = format.place(&image, &key(15)).unwrap() else {
                panic!("one is free")
            };
            let range = format.put(&mut image, free, &key(15), new.as_slice().into());
            remote.write(&image, range);
        }
    }
    judge_keys(format, &remote, (&[20], key), u8::MAX, |_| vec![2, 3, 4])
}

#[test]
fn values_over_lines_are_never_mixed() {
    for landing in [Landing::Increasing, Landing::Decreasing] {
        for value_len in [8, 54, 55, 100] {
            let verdict = in_place(&Slotted::<Key8>::with_span(2, value_len).unwrap(), landing);
            assert_eq!(verdict.wrong, 0, "{value_len}: {verdict:?}");
            assert!(
                verdict.answers > 0 && (verdict.torn > 0 || value_len < 55),
                "{value_len}: {verdict:?}"
            );
        }
        let verdict = in_place(&Packed::<Key8>::with_node_bytes(192, 30).unwrap(), landing);
        assert_eq!(verdict.wrong, 0, "{verdict:?}");
        let verdict = in_place(&Checksummed::<Key8>::with_span(2, 60).unwrap(), landing);
        assert_eq!(verdict.wrong, 0, "{verdict:?}");
        let verdict = in_place(&Bookend::<Key8>::with_span(2, 120).unwrap(), landing);
        assert!(
            verdict.wrong > 0,
            "bookends around an entry of three lines: {verdict:?}"
        );
    }
}
