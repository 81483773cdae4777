//! Reads arbitrary bytes as a block of items, once unchanged and once with a matching checksum. Also reads the bytes as
//! a reference. Decoded items and references must encode again.
#![no_main]

use dm_indirect::{Bundle, Reference, block_of};
use dm_layout::checksum_of;
use libfuzzer_sys::fuzz_target;

fn read(block: &[u8]) {
    let Ok(bundle) = Bundle::parse(block) else { return };
    let items: Vec<_> = bundle.iter().collect();
    assert!(items.is_sorted_by(|a, b| a.0 < b.0), "by ascending key");
    for (key, value) in &items {
        assert_eq!(bundle.get(key), Some(*value));
    }
    let again = block_of(items.iter().copied());
    let bytes = bundle.iter().count();
    assert_eq!(Bundle::parse(&again).map(|b| b.iter().count()), Ok(bytes));
}

fuzz_target!(|data: &[u8]| {
    read(data);
    if let Ok(reference) = Reference::decode(data) {
        assert_eq!(Reference::decode(&reference.encode()), Ok(reference));
    }
    let mut block = data.to_vec();
    if let Some(bytes) = block.get(12..).and_then(<[u8]>::first_chunk) {
        let bytes = (u32::from_le_bytes(*bytes) as usize).clamp(8, block.len());
        let checksum = checksum_of(&block[8..bytes]);
        block[..8].copy_from_slice(&checksum.to_le_bytes());
        read(&block);
    }
});
