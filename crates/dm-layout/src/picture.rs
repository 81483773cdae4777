//! Pictures of the bytes of the shipped layouts, which are computed from the constants and types of the code.

use core::fmt::Write as _;
use core::mem::offset_of;

use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use crate::bookend::Bookend;
use crate::checksum::{CHECKSUM_BYTES, Checksummed, SEAL_BYTES};
use crate::format::NodeShape;
use crate::header::{HeaderPlace, OWNER_BYTES, PREFIX_BYTES, Prefix};
use crate::hopscotch::{HopGeometry, Hopscotch, MARK_HEAD, MARK_VERSION};
use crate::key::{Key8, KeyBytes, KeyN};
use crate::packed::Packed;
use crate::slotted::{SlotGeometry, Slotted, VERSIONS};
use crate::{LINE_BYTES, error::GeometryError};

mod packed;

/// A range of bytes of a node with one meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    at: usize,
    bytes: usize,
    name: String,
}

fn field(at: usize, bytes: usize, name: &str) -> Field {
    Field {
        at,
        bytes,
        name: String::from(name),
    }
}

fn header_fields(place: &HeaderPlace, key_len: usize) -> Vec<Field> {
    let at = place.base;
    let high_at = at + PREFIX_BYTES;
    let low = place.low;
    let mut fields = vec![
        field(at + offset_of!(Prefix, version), 1, "node version"),
        field(
            at + offset_of!(Prefix, kind),
            1,
            &format!("kind, {:#04x}", place.kind),
        ),
        field(at + offset_of!(Prefix, level), 1, "level"),
        field(
            at + offset_of!(Prefix, state),
            1,
            "state (low nibble), flags: high fence, lines behind, ahead",
        ),
        field(at + offset_of!(Prefix, incarnation), 4, "incarnation"),
        field(at + offset_of!(Prefix, sibling), 8, "sibling pointer"),
        field(high_at, key_len, "high fence"),
        field(high_at + key_len, OWNER_BYTES, "owner"),
    ];
    if low.first_len == key_len {
        fields.push(field(low.first_at, key_len, "low fence"));
    } else {
        fields.push(field(low.first_at, low.first_len, "low fence, first part"));
        fields.push(field(
            low.second_at,
            key_len - low.first_len,
            "low fence, second part",
        ));
    }
    fields
}

fn slotted_fields(geometry: &SlotGeometry) -> Vec<Field> {
    let mut fields = header_fields(&geometry.place, geometry.key_len());
    for line in 1..geometry.node_bytes() / LINE_BYTES {
        fields.push(field(line * LINE_BYTES, 1, "line version"));
    }
    let entry = match geometry.is_marked() {
        true if geometry.holds_words() => "entry: word, odd if there is one, key",
        true => "entry: value, odd where there is one, key",
        false => "entry: presence 1, key, value",
    };
    for index in 0..geometry.capacity() {
        let at = geometry.slot_offset(index);
        if geometry.is_in_line() {
            fields.push(field(at, geometry.entry_bytes(), entry));
            continue;
        }
        let mut left = geometry.entry_bytes();
        let mut from = at;
        while left > 0 {
            let bytes = left.min(LINE_BYTES - from % LINE_BYTES);
            fields.push(field(from - VERSIONS + 1, VERSIONS - 1, "entry version"));
            fields.push(field(
                from,
                bytes,
                if from == at { entry } else { "value, continued" },
            ));
            left -= bytes;
            from += bytes + VERSIONS;
        }
    }
    fields
}

fn hopscotch_fields(geometry: &HopGeometry) -> Vec<Field> {
    let mut fields = header_fields(&geometry.place, geometry.key_len);
    // The low fence key is in pieces in the first marks, which are added below.
    fields.retain(|field| field.at < LINE_BYTES);
    for slot in 0..geometry.span() {
        fields.push(field(
            geometry.slot_at(slot),
            geometry.entry_bytes(),
            "entry: node version, youth and presence 1, key, value",
        ));
    }
    for group in 0..geometry.groups {
        let at = geometry.mark_at(group);
        let piece = match group % geometry.pieces < geometry.pieces / 2 {
            true => "mark: low fence",
            false => "mark: high fence",
        };
        if geometry.is_in_line() && group < geometry.entry_groups() {
            let (before, after) = geometry.boundary(group);
            fields.push(field(before, 1, "mark: hops across the next boundary"));
            fields.push(field(after, 1, "hops across the boundary before"));
        }
        fields.push(field(at + MARK_VERSION, 1, "mark: node version"));
        fields.push(field(at + MARK_VERSION + 1, 1, "mark: flags"));
        fields.push(field(at + MARK_HEAD, geometry.piece, piece));
    }
    fields
}

fn bookend_fields<K: KeyBytes>(format: &Bookend<K>) -> Vec<Field> {
    let mut fields = header_fields(&format.place, K::LEN);
    for index in 0..format.capacity() {
        let (at, bytes) = (format.slot_offset(index), format.entry_bytes());
        fields.push(field(
            at,
            bytes,
            "entry: front version and presence 1, key, value, rear version 1",
        ));
    }
    fields.push(field(format.node_bytes() - 1, 1, "rear node version"));
    fields
}

fn checksummed_fields<K: KeyBytes>(format: &Checksummed<K>) -> Vec<Field> {
    let mut fields = header_fields(&format.place, K::LEN);
    fields.push(field(0, CHECKSUM_BYTES, "XXH3-64 of all that follows"));
    fields.push(field(CHECKSUM_BYTES, SEAL_BYTES - CHECKSUM_BYTES, "count"));
    for index in 0..format.capacity() {
        fields.push(field(
            format.slot_offset(index),
            format.entry_bytes(),
            "entry, ascending: key, value",
        ));
    }
    fields
}

/// Sorts the fields and adds fields for the gaps, so that they cover the whole node. Panics if two fields overlap.
fn tile(mut fields: Vec<Field>, node_bytes: usize) -> Vec<Field> {
    fields.sort_unstable_by_key(|field| field.at);
    let mut tiled: Vec<Field> = Vec::new();
    let mut at = 0;
    for next in fields.into_iter().filter(|field| field.bytes > 0) {
        assert!(
            next.at >= at,
            "`{}` at {} overlaps what ends at {at}",
            next.name,
            next.at
        );
        if next.at > at {
            tiled.push(field(at, next.at - at, "spare"));
        }
        at = next.at + next.bytes;
        tiled.push(next);
    }
    assert!(
        at <= node_bytes,
        "fields end at {at} in a node of {node_bytes} bytes"
    );
    if at < node_bytes {
        tiled.push(field(at, node_bytes - at, "spare"));
    }
    tiled
}

fn row(out: &mut String, at: usize, bytes: usize, name: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "| {at} | {bytes} | {name} |");
}

const TABLE_HEAD: &str = "| offset | bytes | field |\n|---:|---:|---|\n";

/// Draws one table per line. Successive equal lines are drawn only once.
fn by_lines(fields: &[Field], node_bytes: usize) -> String {
    let lines = node_bytes / LINE_BYTES;
    let shape = |line: usize| -> Vec<(usize, usize, &str)> {
        let inside = |field: &&Field| field.at / LINE_BYTES == line;
        fields
            .iter()
            .filter(inside)
            .map(|f| (f.at - line * LINE_BYTES, f.bytes, f.name.as_str()))
            .collect()
    };
    let mut out = String::new();
    let mut line = 0;
    while line < lines {
        let alike = (line..lines)
            .take_while(|next| shape(*next) == shape(line))
            .count();
        let last = line + alike - 1;
        let _ = match alike {
            1 => writeln!(out, "\nLine {line} (byte {} on)\n", line * LINE_BYTES),
            _ => writeln!(
                out,
                "\nLines {line} to {last}, each (byte {} on)\n",
                line * LINE_BYTES
            ),
        };
        out.push_str(TABLE_HEAD);
        for (at, bytes, name) in shape(line) {
            row(&mut out, at, bytes, name);
        }
        line += alike;
    }
    out
}

/// Draws one table. A run of equal fields is drawn only once.
fn by_fields(fields: &[Field]) -> String {
    let mut out = format!("\n{TABLE_HEAD}");
    for run in fields.chunk_by(|a, b| a.name == b.name && a.bytes == b.bytes) {
        let first = &run[0];
        if run.len() == 1 {
            row(&mut out, first.at, first.bytes, &first.name);
        } else {
            row(
                &mut out,
                first.at,
                run.len() * first.bytes,
                &format!("{} × {}", run.len(), first.name),
            );
        }
    }
    out
}

/// The facts at the top of a picture.
struct Facts {
    title: &'static str,
    node_bytes: usize,
    key_len: usize,
    value_len: usize,
    capacity: usize,
    guard: String,
}

fn head(facts: &Facts) -> String {
    let Facts {
        title,
        node_bytes,
        key_len,
        value_len,
        capacity,
        guard,
    } = facts;
    // The unit is a hundredth of a byte, as a whole number, so that the text is the same on every machine.
    let per_key = node_bytes * 100 / capacity;
    // ln 2 ≈ 0.693 is the average fill of nodes after inserts in random order with splits at the median.
    let random = node_bytes * 100_000 / (capacity * 693);
    format!(
        "# {title}\n\n{node_bytes} bytes, {key_len}-byte keys, {value_len}-byte values: **{capacity} entries**. \
         {}.{:02} bytes per key in a full node, {}.{:02} at a fill of 69.3 % (median splits, random inserts).\n\
         {guard}\n\nNumbers are little-endian, 8-byte keys big-endian.\n",
        per_key / 100,
        per_key % 100,
        random / 100,
        random % 100,
    )
}

fn slotted<K: KeyBytes>(
    title: &'static str,
    format: Result<Slotted<K>, GeometryError>,
) -> Result<String, GeometryError> {
    let format = format?;
    let geometry = format.geometry();
    let entry = match geometry.entry_version_bits() {
        Some(bits) => format!(" and {bits}-bit entry versions"),
        None => String::new(),
    };
    let facts = Facts {
        title,
        node_bytes: geometry.node_bytes(),
        key_len: geometry.key_len(),
        value_len: geometry.value_len(),
        capacity: geometry.capacity(),
        guard: format!("Guard: {}-bit line versions{entry}.", geometry.version_bits()),
    };
    let fields = tile(slotted_fields(geometry), geometry.node_bytes());
    Ok(head(&facts) + &by_lines(&fields, geometry.node_bytes()))
}

fn hopscotch<K: KeyBytes>(
    title: &'static str,
    format: Result<Hopscotch<K>, GeometryError>,
    full: &str,
) -> Result<String, GeometryError> {
    let format = format?;
    let geometry = format.geometry();
    let facts = Facts {
        title,
        node_bytes: geometry.node_bytes(),
        key_len: K::LEN,
        value_len: format.value_len(),
        capacity: format.capacity(),
        guard: format!("Guard: a 6-bit node version with every entry and every mark.{full}"),
    };
    let fields = tile(hopscotch_fields(geometry), geometry.node_bytes());
    Ok(head(&facts) + &by_lines(&fields, geometry.node_bytes()))
}

fn bookend() -> Result<String, GeometryError> {
    let format = Bookend::<Key8>::with_node_bytes(1024, 8)?;
    let facts = Facts {
        title: "Bookend two-level node, 1 KB",
        node_bytes: format.node_bytes(),
        key_len: Key8::LEN,
        value_len: format.value_len(),
        capacity: format.capacity(),
        guard: format!(
            "Guard: {}-bit versions at both ends of node and entry (unsound).",
            format.place.version_bits()
        ),
    };
    Ok(head(&facts) + &by_fields(&tile(bookend_fields(&format), format.node_bytes())))
}

fn checksummed() -> Result<String, GeometryError> {
    let format = Checksummed::<Key8>::with_node_bytes(1024, 8)?;
    let facts = Facts {
        title: "Checksummed sorted node, 1 KB",
        node_bytes: format.node_bytes(),
        key_len: Key8::LEN,
        value_len: format.value_len(),
        capacity: format.capacity(),
        guard: String::from("Guard: one 64-bit checksum."),
    };
    Ok(head(&facts) + &by_fields(&tile(checksummed_fields(&format), format.node_bytes())))
}

/// Returns pictures of the nodes of all formats with fence keys: a file stem and its Markdown. `cargo xtask layout`
/// writes them to `docs/layout/`.
#[must_use]
pub fn pictures() -> Vec<(&'static str, String)> {
    let pictures = [
        (
            "slotted-1k",
            slotted("Slotted node, 1 KB", Slotted::<Key8>::with_node_bytes(1024, 8)),
        ),
        (
            "slotted-span32",
            slotted("Slotted node, span 32", Slotted::<Key8>::with_span(32, 8)),
        ),
        (
            "slotted-span64",
            slotted("Slotted node, span 64", Slotted::<Key8>::with_span(64, 8)),
        ),
        (
            "slotted-tiny",
            slotted("Slotted node, tiny", Slotted::<Key8>::tiny(8)),
        ),
        (
            "slotted-1k-key24",
            slotted(
                "Slotted node, 1 KB, 24-byte keys",
                Slotted::<KeyN<24>>::with_node_bytes(1024, 8),
            ),
        ),
        (
            "slotted-1k-key32",
            slotted(
                "Slotted node, 1 KB, 32-byte keys",
                Slotted::<KeyN<32>>::with_node_bytes(1024, 8),
            ),
        ),
        (
            "slotted-1k-inner",
            slotted(
                "Slotted inner node, 1 KB, children of 4 bytes",
                Slotted::<Key8>::marked_with_node_bytes(1024, 4),
            ),
        ),
        (
            "slotted-1k-inner-far",
            slotted(
                "Slotted inner node, 1 KB, children of 6 bytes",
                Slotted::<Key8>::with_node_bytes(1024, 6),
            ),
        ),
        (
            "slotted-1k-words",
            slotted(
                "Slotted leaf, 1 KB, words",
                Slotted::<Key8>::words_with_node_bytes(1024),
            ),
        ),
        (
            "slotted-1k-value64",
            slotted(
                "Slotted node, 1 KB, 64-byte values",
                Slotted::<Key8>::with_node_bytes(1024, 64),
            ),
        ),
        (
            "packed-1k",
            packed::packed("Packed leaf, 1 KB", Packed::<Key8>::with_node_bytes(1024, 8)),
        ),
        (
            "packed-1k-value16",
            packed::packed(
                "Packed leaf, 1 KB, 16-byte values",
                Packed::<Key8>::with_node_bytes(1024, 16),
            ),
        ),
        (
            "packed-1k-key32",
            packed::packed(
                "Packed leaf, 1 KB, 32-byte keys",
                Packed::<KeyN<32>>::with_node_bytes(1024, 8),
            ),
        ),
        (
            "hopscotch-span64",
            hopscotch(
                "Hopscotch leaf, span 64, neighbourhood 8",
                Hopscotch::<Key8>::new(64, 8, 8),
                " A full leaf has some 57 entries.",
            ),
        ),
        (
            "hopscotch-span16-key15",
            hopscotch(
                "Hopscotch leaf, span 16, neighbourhood 4, 15-byte keys",
                Hopscotch::<KeyN<15>>::new(16, 4, 8),
                " A mark holds half of a fence key; the second half of an odd key ends with a zero.",
            ),
        ),
        ("bookend-1k", bookend()),
        ("checksummed-1k", checksummed()),
    ];
    let drawn = pictures.into_iter().map(|(stem, picture)| match picture {
        Ok(picture) => (stem, picture),
        Err(error) => panic!("the shipped geometry {stem} is sound: {error}"),
    });
    drawn.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the fields of every accepted geometry of these sizes cover its node: no two fields overlap, and none
    /// extends beyond the node or crosses the end of a line.
    #[test]
    fn all_geometries_tile() {
        // Miri would take an hour for all lengths, and the errors that it can find do not depend on the length.
        let step = if cfg!(miri) { 67 } else { 1 };
        let sizes = if cfg!(miri) { 24 } else { 1 };
        for key_len in (8..=32).step_by(sizes) {
            for value_len in (0..200).step_by(step) {
                for node_bytes in [192, 256, 1024, 1088] {
                    let plain = SlotGeometry::with_node_bytes(node_bytes, key_len, value_len);
                    let marked = SlotGeometry::marked_with_node_bytes(node_bytes, key_len, value_len);
                    let words = SlotGeometry::words_with_node_bytes(node_bytes, key_len);
                    for geometry in plain.into_iter().chain(marked).chain(words) {
                        for index in 0..geometry.capacity() {
                            let at = geometry.slot_offset(index);
                            assert!(!geometry.holds_words() || at.is_multiple_of(8), "{geometry:?}");
                        }
                        let fields = tile(slotted_fields(&geometry), node_bytes);
                        let sum: usize = fields.iter().map(|field| field.bytes).sum();
                        assert_eq!(sum, node_bytes, "{geometry:?}");
                        let spanning = fields.iter().find(|f| f.at / 64 != (f.at + f.bytes - 1) / 64);
                        assert_eq!(spanning, None, "{geometry:?}: no field crosses a line");
                    }
                }
            }
        }
    }

    /// Checks that the fields of hopscotch nodes cover the node. Their marks contain fence keys as a whole or in
    /// halves.
    #[test]
    fn all_hopscotch_geometries_tile() {
        let step = if cfg!(miri) { 24 } else { 1 };
        for key_len in (8..=32).step_by(step) {
            for value_len in (0..150).step_by(step) {
                let Ok(geometry) = HopGeometry::new(9, 4, key_len, value_len) else {
                    panic!("{key_len} and {value_len} fit");
                };
                assert!(geometry.fence_bytes() >= key_len, "{geometry:?}");
                let fields = tile(hopscotch_fields(&geometry), geometry.node_bytes());
                let sum: usize = fields.iter().map(|field| field.bytes).sum();
                assert_eq!(sum, geometry.node_bytes(), "{geometry:?}");
                let marks = fields.iter().filter(|field| field.name.starts_with("mark"));
                for mark in marks {
                    assert_eq!(mark.at / 64, (mark.at + mark.bytes - 1) / 64, "{geometry:?}");
                }
            }
        }
    }

    #[test]
    fn overlaps_are_seen() {
        let overlapping = vec![field(0, 3, "a"), field(2, 1, "b")];
        assert!(std::panic::catch_unwind(|| tile(overlapping, 64)).is_err());
    }

    #[test]
    fn pictures_show_the_capacities() {
        let pictures = pictures();
        let has = |stem, text: &str| {
            pictures
                .iter()
                .any(|(s, picture)| *s == stem && picture.contains(text))
        };
        assert!(has("slotted-1k", "**47 entries**"));
        assert!(has("slotted-1k-inner", "**77 entries**"));
        assert!(has("slotted-1k-inner-far", "**62 entries**"));
        assert!(has("slotted-1k-key32", "**15 entries**"));
        assert!(has("slotted-1k-words", "**47 entries**"));
        assert!(has("packed-1k", "**90 entries**"));
        assert!(has("packed-1k-key32", "**84 entries**"));
        assert!(has("bookend-1k", "**54 entries**"));
        assert!(has("checksummed-1k", "**61 entries**"));
    }
}
