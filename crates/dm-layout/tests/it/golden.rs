//! Tests of exact bytes, and of reading and editing such bytes. If a test of exact bytes fails, the bytes in existing
//! pools have changed.

use dm_layout::{
    Bookend, CheckFailure, Checksummed, FenceKeys, GeometryError, Guard, Key8, LineLag, LineVersions, Lookup,
    NodeEdit, NodeFormat, NodeInit, NodeRead, NodeShape, NodeState, NodeStructure, Packed, Reason, Slotted,
    SplitBias, SplitRequest, Stale,
};

fn hex(bytes: &[u8]) -> Vec<String> {
    let lines = bytes
        .chunks(32)
        .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    lines.collect()
}

const INIT: NodeInit<Key8> = NodeInit {
    level: 2,
    incarnation: 0x0102_0304,
    version: 0x15,
    state: NodeState::Splitting,
    owner: 0xaabb_ccdd,
    fences: FenceKeys {
        low: Key8(0x10),
        high: Some(Key8(0x99)),
    },
    sibling: 0x0001_0000_0000_0440,
};

fn built<F: NodeFormat<Key8>>(format: &F) -> Vec<u8> {
    let values = [0x1111_u64, 0x2222, 0x3333].map(u64::to_le_bytes);
    let entries = [0x30, 0x10, 0x20].into_iter().zip(&values);
    let mut image = vec![0xee; format.node_bytes()];
    format.build(
        &mut image,
        &INIT,
        entries.map(|(key, value)| (Key8(key), value.into())),
    );
    image
}

#[test]
fn slotted_bytes() {
    let format = Slotted::<Key8>::tiny(8).unwrap();
    assert_eq!(
        hex(&built(&format)),
        [
            "15d102120403020140040000000001000000000000000099ddccbbaa01000000",
            "0000000030111100000000000001000000000000001022220000000000000000",
            "1501000000000000002033330000000000000000000000000000000000000000",
            "0000000000000000000000000000000000000000000000000000001000000000",
        ]
    );
}

/// An entry of 73 bytes takes two lines, each of which begins with its line version and the entry's version.
#[test]
fn slotted_bytes_of_larger_entries() {
    let format = Slotted::<Key8>::with_span(2, 64).unwrap();
    let mut image = vec![0xee; format.node_bytes()];
    let values = [[0x11; 64], [0x22; 64]];
    let entries = [0x30, 0x10].into_iter().zip(&values);
    format.build(
        &mut image,
        &INIT,
        entries.map(|(key, value)| (Key8(key), value.into())),
    );
    let slot = dm_layout::find(&format, &image, &Key8(0x10)).unwrap().unwrap();
    for round in 1..0x102_u16 {
        let range = format.update(&mut image, slot, (&[round as u8; 64]).into());
        assert_eq!(range, 192..192 + 79);
    }
    assert_eq!(
        hex(&image),
        [
            "15d202120403020140040000000001000000000000000099ddccbbaa00000000",
            "0000001000000000000000000000000000000000000000000000000000000000",
            "1501000100000000000000301111111111111111111111111111111111111111",
            "1111111111111111111111111111111111111111111111111111111111111111",
            "1501001111111111111111111111110000000000000000000000000000000000",
            "0000000000000000000000000000000000000000000000000000000000000000",
            "1502010100000000000000100101010101010101010101010101010101010101",
            "0101010101010101010101010101010101010101010101010101010101010101",
            "1502010101010101010101010101010000000000000000000000000000000000",
            "0000000000000000000000000000000000000000000000000000000000000000",
        ]
    );
}

/// Entries with their own lines had other versions before. A node of the former format has the kind byte of slotted
/// nodes with in-line entries, so it is refused.
#[test]
fn nodes_of_the_former_format_are_refused() {
    let format = Slotted::<Key8>::with_span(2, 64).unwrap();
    let mut image = vec![0; format.node_bytes()];
    format.build(&mut image, &NodeInit::live(0, FenceKeys::ALL), []);
    let in_line = Slotted::<Key8>::tiny(8).unwrap();
    image[1] = built(&in_line)[1];
    let failures = [
        format.header(&image).err(),
        format.accept(&image).err(),
        format.lookup(&image, &Key8(1), 0).err(),
        format.judge(&image, &Key8(1), 0).err(),
    ];
    for failure in failures {
        assert!(
            matches!(failure, Some(CheckFailure::Corrupt(c)) if c.reason == Reason::Kind),
            "{failure:?}"
        );
    }
}

#[test]
fn versions_have_the_stated_numbers_of_bits() {
    let bits = |format: Slotted<Key8>| {
        (
            format.geometry().version_bits(),
            format.geometry().entry_version_bits(),
        )
    };
    let larger = Slotted::with_span(2, 64).unwrap();
    assert_eq!(bits(Slotted::tiny(8).unwrap()), (8, None));
    assert_eq!(bits(larger), (8, Some(16)));
    assert_eq!(bits(larger.with_version_bits(3).unwrap()), (3, Some(3)));
    for wrong in [1, 9] {
        assert_eq!(
            larger.with_version_bits(wrong).err(),
            Some(GeometryError::VersionBits(wrong))
        );
    }
}

#[test]
fn bookend_bytes() {
    let format = Bookend::<Key8>::with_span(3, 8).unwrap();
    assert_eq!(
        hex(&built(&format)),
        [
            "05b202120403020140040000000001000000000000000099ddccbbaa00000000",
            "0000001081000000000000003011110000000000000181000000000000001022",
            "2200000000000001810000000000000020333300000000000001000000000000",
            "0000000000000000000000000000000000000000000000000000000000000005",
        ]
    );
}

#[test]
fn checksummed_bytes() {
    let format = Checksummed::<Key8>::with_span(3, 8).unwrap();
    assert_eq!(
        hex(&built(&format)),
        [
            "d3d191db966cbb9e030015c30212040302014004000000000100000000000000",
            "0099ddccbbaa0000000000000010000000000000001022220000000000000000",
            "0000000000203333000000000000000000000000003011110000000000000000",
            "0000000000000000000000000000000000000000000000000000000000000000",
        ]
    );
}

/// Decoding an encoded header gives the same header, for every field and flag.
#[test]
fn headers_round_trip() {
    let format = Slotted::<Key8>::tiny(8).unwrap();
    let mut image = built(&format);
    let mut header = format.accept(&image).unwrap();
    assert_eq!(
        (header.level, header.incarnation, header.version),
        (2, 0x0102_0304, 0x15)
    );
    assert_eq!(
        (header.owner, header.sibling, header.fences),
        (INIT.owner, INIT.sibling, INIT.fences)
    );
    for state in [
        NodeState::Live,
        NodeState::Splitting,
        NodeState::Frozen,
        NodeState::Dead,
    ] {
        for lag in [LineLag::Equal, LineLag::Behind, LineLag::Ahead] {
            for high in [None, Some(Key8(u64::MAX))] {
                (header.state, header.lag, header.fences.high) = (state, lag, high);
                format.seal_head(&mut image, &header);
                assert_eq!(format.header(&image), Ok(header));
            }
        }
    }
}

#[test]
fn garbage_is_recognised() {
    let format = Slotted::<Key8>::tiny(8).unwrap();
    let image = built(&format);
    let corrupt = |at: usize, byte: u8| {
        let mut image = image.clone();
        image[at] = byte;
        match (
            dm_layout::audit(&format, &image),
            format.lookup(&image, &Key8(0x77), 2),
        ) {
            (Err(CheckFailure::Corrupt(corrupt)), _) => Some((corrupt.offset, corrupt.reason)),
            _ => None,
        }
    };
    assert_eq!(corrupt(1, 0), Some((1, Reason::Kind)));
    assert_eq!(corrupt(3, 0x19), Some((3, Reason::State)));
    assert_eq!(corrupt(3, 0x92), Some((3, Reason::State)));
    assert_eq!(
        corrupt(23, 0x0f),
        Some((16, Reason::Fences)),
        "high fence below the low one"
    );
    assert_eq!(corrupt(28, 7), Some((28, Reason::Presence)));
    assert_eq!(
        corrupt(36, 0x99),
        Some((28, Reason::Order)),
        "a key outside the fences"
    );
    assert_eq!(corrupt(36, 0x20), Some((65, Reason::Order)), "a key twice");
    let short = format.accept(&image[1..]).unwrap_err();
    assert_eq!(
        short.to_string(),
        "corrupt node at byte 127: not the length of a node"
    );
    assert_eq!(
        format.accept(&[0; 128]).unwrap_err().to_string(),
        "corrupt node at byte 1: kind byte of another format"
    );
}

#[test]
fn lookups_say_where_to_go() {
    let format = Slotted::<Key8>::tiny(8).unwrap();
    let mut image = built(&format);
    assert_eq!(
        format.lookup(&image, &Key8(0x99), 2),
        Ok(Lookup::GoRight {
            sibling: INIT.sibling
        })
    );
    assert_eq!(
        format.lookup(&image, &Key8(0x0f), 2),
        Ok(Lookup::Stale(Stale::Below))
    );
    assert_eq!(
        format.lookup(&image, &Key8(0x30), 0),
        Ok(Lookup::Stale(Stale::Level(2)))
    );
    assert_eq!(format.lookup(&image, &Key8(0x31), 2), Ok(Lookup::Absent));
    // A torn line prevents a proof of absence, but not the lookup of a key in another line.
    image[64] ^= 1;
    assert!(matches!(
        format.lookup(&image, &Key8(0x30), 2),
        Ok(Lookup::Found { .. })
    ));
    assert!(
        format
            .lookup(&image, &Key8(0x20), 2)
            .is_err_and(|failure| failure.is_torn())
    );
    assert!(
        format
            .lookup(&image, &Key8(0x31), 2)
            .is_err_and(|failure| failure.is_torn())
    );
}

/// Keys and values of all zeroes or all ones are not special.
#[test]
fn all_zeros_and_all_ones_are_ordinary() {
    let format = Slotted::<Key8>::tiny(8).unwrap();
    let mut image = vec![0; 128];
    format.build(&mut image, &NodeInit::live(0, FenceKeys::ALL), []);
    for key in [Key8(0), Key8(u64::MAX)] {
        assert_eq!(format.lookup(&image, &key, 0), Ok(Lookup::Absent));
    }
    for (index, key) in [Key8(0), Key8(u64::MAX)].iter().enumerate() {
        let slot = format.slots(&image).nth(index).unwrap();
        let value = [if index == 0 { 0 } else { 0xff }; 8];
        let range = format.put(&mut image, slot, key, (&value).into());
        let mut entry = [0; 17];
        assert_eq!(format.encode_entry(key, &value, &mut entry), 17);
        assert_eq!(image[range], entry, "an entry without an image is the same");
        assert_eq!(format.value_offset(slot), Some(slot.offset() + 9));
    }
    for (key, byte) in [(Key8(0), 0), (Key8(u64::MAX), 0xff)] {
        let found = format.lookup(&image, &key, 0).unwrap();
        assert!(matches!(found, Lookup::Found { value, .. } if value.to_vec() == [byte; 8]));
    }
}

#[test]
fn ascending_inserts_leave_full_nodes() {
    let format = Slotted::<Key8>::tiny(8).unwrap();
    let inner = built(&format);
    let mut last = inner.clone();
    let mut header = format.header(&last).unwrap();
    header.fences.high = None;
    format.seal_head(&mut last, &header);
    let value = [9; 8];
    let mut request = SplitRequest {
        right_address: 0x80,
        right_incarnation: 1,
        right_version: 1,
        owner: 5,
        new: Some((Key8(0x40), (&value).into())),
        bias: SplitBias::Ascending,
    };
    let mut right = vec![0; 128];
    let plan = format
        .prepare_split(&last, &mut right, &request)
        .unwrap()
        .unwrap();
    assert_eq!((plan.separator, format.len(&right)), (Key8(0x40), Ok(1)));
    let header = format.accept(&right).unwrap();
    assert_eq!(header.fences, FenceKeys::new(Key8(0x40), None));
    assert_eq!(
        (header.state, header.owner, header.sibling),
        (NodeState::Splitting, 5, INIT.sibling)
    );
    // A node that is not the last of its level splits in the middle.
    let plan = format
        .prepare_split(&inner, &mut right, &request)
        .unwrap()
        .unwrap();
    assert_eq!((plan.separator, format.len(&right)), (Key8(0x30), Ok(2)));
    // If the new key is less than the greatest one, the node splits in the middle.
    request.new = Some((Key8(0x25), (&value).into()));
    let plan = format
        .prepare_split(&last, &mut right, &request)
        .unwrap()
        .unwrap();
    assert_eq!((plan.separator, format.len(&right)), (Key8(0x25), Ok(2)));
}

/// A guard works without a node too: sealed bytes can be opened, and a mixture of lines cannot.
#[test]
fn guards_open_what_they_sealed() {
    fn round_trip<G: Guard>(buffer_bytes: usize) {
        let payload: Vec<u8> = (0..G::payload_bytes(buffer_bytes)).map(|at| at as u8).collect();
        let (mut old, mut new) = (vec![0; buffer_bytes], vec![0; buffer_bytes]);
        G::seal(&mut old, &payload[1..], 7);
        G::seal(&mut new, &payload, 8);
        let mut out = vec![0; payload.len()];
        assert_eq!(G::open(&new, &mut out), Ok(8), "{}", G::NAME);
        assert_eq!(out, payload, "{}", G::NAME);
        let first_line_old = [&old[..64], &new[64..]].concat();
        assert!(
            G::open(&first_line_old, &mut out).is_err_and(|failure| failure.is_torn()),
            "{}",
            G::NAME
        );
    }
    round_trip::<LineVersions>(192);
    round_trip::<dm_layout::Bookends>(192);
    round_trip::<dm_layout::Checksum>(192);
}

#[test]
fn a_key_that_is_there_twice_is_an_error_of_a_split() {
    let format = Checksummed::<Key8>::with_span(5, 8).unwrap();
    let mut image = vec![0; format.node_bytes()];
    let entries = (1..6u64).map(|n| (Key8(16 * n), [n as u8; 8]));
    let entries: Vec<_> = entries.collect();
    let shown = entries.iter().map(|(key, value)| (*key, value.into()));
    format.build(&mut image, &NodeInit::live(0, FenceKeys::ALL), shown);
    // The greatest key overwrites the one before it, so that a key is duplicate. The checksum is correct.
    let last = format.slots(&image).map(|slot| slot.offset()).collect::<Vec<_>>();
    image.copy_within(last[4]..last[4] + 8, last[3]);
    let header = format.header(&image).unwrap();
    format.seal_head(&mut image, &header);
    let request = SplitRequest {
        right_address: 0x80,
        right_incarnation: 1,
        right_version: 1,
        owner: 5,
        new: None,
        bias: SplitBias::Median,
    };
    let mut right = vec![0; format.node_bytes()];
    let split = format.prepare_split(&image, &mut right, &request);
    assert!(
        matches!(split, Err(CheckFailure::Corrupt(c)) if c.reason == Reason::Order),
        "{split:?}"
    );
}

/// No format whose nodes have each key once builds a node from entries of which two have the same key.
#[test]
fn a_key_that_is_there_twice_is_an_error_of_a_new_node() {
    fn is_order(built: Result<(), CheckFailure>) -> bool {
        matches!(built, Err(CheckFailure::Corrupt(c)) if c.reason == Reason::Order)
    }
    fn from<F: NodeFormat<Key8>>(format: &F, keys: &[u64]) -> Vec<u8> {
        let (mut image, value) = (vec![0; format.node_bytes()], vec![7; format.value_len()]);
        let entries = keys.iter().map(|key| (Key8(*key), value.as_slice().into()));
        format.build(&mut image, &NodeInit::live(0, FenceKeys::ALL), entries);
        image
    }
    fn check<F: NodeFormat<Key8>>(format: &F) {
        let (mut image, value) = (vec![0; format.node_bytes()], vec![7; format.value_len()]);
        let init = NodeInit::live(0, FenceKeys::ALL);
        let old = from(format, &[1, 2]);
        let mut build = |key| format.build_from(&mut image, &init, &old, Some((Key8(key), (&*value).into())));
        assert_eq!(build(3), Ok(()), "{}", F::NAME);
        assert!(is_order(build(2)), "{}", F::NAME);
    }
    let slotted = Slotted::<Key8>::tiny(8).unwrap();
    check(&slotted);
    check(&Slotted::<Key8>::tiny(64).unwrap());
    check(&Slotted::<Key8>::words_with_span(3).unwrap());
    check(&Bookend::<Key8>::with_span(3, 8).unwrap());
    check(&Checksummed::<Key8>::with_span(3, 8).unwrap());
    check(&Packed::<Key8>::with_node_bytes(256, 8).unwrap());
    // Both entries of the key are in the old node. Entries outside the fence keys do not count.
    let twice = from(&slotted, &[1, 5, 5]);
    let mut image = vec![0; slotted.node_bytes()];
    let mut below = |high| {
        let fences = FenceKeys::new(Key8(0), high);
        slotted.build_from(&mut image, &NodeInit::live(0, fences), &twice, None)
    };
    assert!(is_order(below(None)));
    assert_eq!(below(Some(Key8(5))), Ok(()));
}

/// A new node that has no room for its entries is reported as such, and not as a wrong order of keys.
#[test]
fn entries_that_do_not_fit_are_recognised() {
    fn check<F: NodeFormat<Key8>>(format: &F) {
        let keys = 0..format.capacity() as u64;
        let value = [7; 8];
        let mut full = vec![0; format.node_bytes()];
        let init = NodeInit::live(0, FenceKeys::ALL);
        format.build(
            &mut full,
            &init,
            keys.clone().map(|key| (Key8(key), (&value).into())),
        );
        let mut image = vec![0; format.node_bytes()];
        let new = Some((Key8(keys.end), (&value).into()));
        let built = format.build_from(&mut image, &init, &full, new);
        assert!(
            matches!(built, Err(CheckFailure::Corrupt(c)) if c.reason == Reason::Room),
            "{built:?}"
        );
        assert_eq!(format.build_from(&mut image, &init, &full, None), Ok(()));
    }
    check(&Slotted::<Key8>::tiny(8).unwrap());
    check(&Bookend::<Key8>::with_span(3, 8).unwrap());
    check(&Checksummed::<Key8>::with_span(3, 8).unwrap());
}
