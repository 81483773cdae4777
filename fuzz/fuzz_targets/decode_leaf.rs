//! Reads arbitrary bytes as a leaf of every format. Each operation must return an answer or a typed error, without a
//! panic.
//!
//! The first byte picks the format, the second byte picks the key, and the rest is the node. The node is cut or filled
//! with zeros to the format's length, except for one value in eight of the first byte, with which it keeps its length.
//! Another target tests further operations of hopscotch leaves.
#![no_main]

use dm_layout::testing::{key_of, read_everything};
use dm_layout::{Bookend, Checksummed, Hopscotch, Key8, KeyBytes, KeyN, NodeFormat, Packed, Slotted};
use libfuzzer_sys::fuzz_target;

/// Reads the node in formats with in-line and striped values, a partly filled last line, and narrow versions.
fn read_as(format: u8, key: u8, bytes: &[u8]) {
    let any_length = format >= 224;
    match format % 16 {
        0 => read::<Key8, _>(Slotted::with_node_bytes(1024, 8), key, bytes, any_length),
        1 => read::<Key8, _>(Slotted::with_span(8, 16), key, bytes, any_length),
        2 => read::<KeyN<32>, _>(Slotted::with_span(5, 200), key, bytes, any_length),
        3 => read::<Key8, _>(Slotted::tiny(8), key, bytes, any_length),
        4 => read::<Key8, _>(Checksummed::with_node_bytes(512, 8), key, bytes, any_length),
        5 => read::<KeyN<32>, _>(Checksummed::with_span(5, 40), key, bytes, any_length),
        6 => read::<Key8, _>(Bookend::with_node_bytes(512, 8), key, bytes, any_length),
        7 => read::<KeyN<32>, _>(Bookend::with_span(5, 40), key, bytes, any_length),
        8 => read::<Key8, _>(Hopscotch::new(12, 4, 8), key, bytes, any_length),
        9 => read::<Key8, _>(Hopscotch::new(6, 3, 200), key, bytes, any_length),
        10 => read::<KeyN<32>, _>(Hopscotch::new(7, 3, 8), key, bytes, any_length),
        11 => read::<Key8, _>(Packed::with_node_bytes(1024, 8), key, bytes, any_length),
        12 => read::<Key8, _>(Packed::with_node_bytes(256, 13), key, bytes, any_length),
        13 => read::<Key8, _>(Slotted::words_with_node_bytes(1024), key, bytes, any_length),
        14 => read::<KeyN<32>, _>(Slotted::words_with_span(5), key, bytes, any_length),
        _ => read::<KeyN<32>, _>(Packed::with_node_bytes(320, 8), key, bytes, any_length),
    }
}

fn read<K: KeyBytes, F: NodeFormat<K>>(
    format: Result<F, dm_layout::GeometryError>,
    key: u8,
    bytes: &[u8],
    any_length: bool,
) {
    let format = format.expect("sizes that make a node");
    let mut node = bytes.to_vec();
    if !any_length {
        node.resize(format.node_bytes(), 0);
    }
    read_everything::<K, F>(&format, &node, &key_of(key));
    // Arbitrary bytes rarely pass an acceptance rule. So the same entries are also read with a header and a guard that
    // pass.
    if let Ok(header) = format.header(&node) {
        format.seal_head(&mut node, &header);
        format.seal_rest(&mut node, header.version);
        read_everything::<K, F>(&format, &node, &key_of(key));
    }
}

fuzz_target!(|data: &[u8]| {
    if let [format, key, bytes @ ..] = data {
        read_as(*format, *key, bytes);
    }
});
