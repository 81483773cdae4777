//! Pictures of packed nodes, whose lines have several shapes.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

use super::{Facts, Field, TABLE_HEAD, by_lines, field, head, header_fields, row, tile};
use crate::LINE_BYTES;
use crate::error::GeometryError;
use crate::key::KeyBytes;
use crate::packed::{Packed, PackedGeometry, Shape};

/// Returns the fields of the lines before the first line of entries.
fn head_fields(geometry: &PackedGeometry) -> Vec<Field> {
    let mut fields = header_fields(&geometry.place, geometry.key_len());
    for line in 1..geometry.first_line() {
        fields.push(field(line * LINE_BYTES, 1, "line version"));
    }
    tile(fields, geometry.first_line() * LINE_BYTES)
}

/// Returns the fields of a line of entries that has this shape.
fn line_fields(number: usize, shape: Shape) -> Vec<Field> {
    let mut fields = Vec::from([
        field(0, 1, "line version"),
        field(
            1,
            1,
            &format!("shape {number} (upper two bits), a bit for each entry"),
        ),
    ]);
    for nth in 0..shape.count() {
        let rise = format!("entry {nth}: rise above the low fence");
        fields.push(field(shape.key_at(nth), shape.width(), &rise));
        let value = shape.entry_bytes() - shape.width();
        fields.push(field(shape.value_at(nth), value, &format!("entry {nth}: value")));
    }
    tile(fields, LINE_BYTES)
}

pub(super) fn packed<K: KeyBytes>(
    title: &'static str,
    format: Result<Packed<K>, GeometryError>,
) -> Result<String, GeometryError> {
    let format = format?;
    let geometry = format.geometry();
    let widest = geometry.shapes().len() - 1;
    let facts = Facts {
        title,
        node_bytes: geometry.node_bytes(),
        key_len: geometry.key_len(),
        value_len: geometry.value_len(),
        capacity: geometry.capacity(),
        guard: format!(
            "Guard: 8-bit line versions. This is the capacity for keys near the low fence; for any keys it is {}.",
            geometry.capacity_of(widest)
        ),
    };
    let mut out = head(&facts) + &by_lines(&head_fields(geometry), geometry.first_line() * LINE_BYTES);
    let (first, last) = (
        geometry.first_line(),
        geometry.first_line() + geometry.lines() - 1,
    );
    for (number, shape) in geometry.shapes().iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "\nLines {first} to {last}, each in shape {number}\n");
        out.push_str(TABLE_HEAD);
        for Field { at, bytes, name } in line_fields(number, *shape) {
            row(&mut out, at, bytes, &name);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that no two fields overlap, that none extends beyond the line, and that the rest of a line has no room
    /// for another entry, unless the line already has the maximum of six entries.
    #[test]
    fn all_geometries_tile() {
        let (sizes, step) = if cfg!(miri) { (24, 11) } else { (1, 1) };
        for key_len in (8..=32).step_by(sizes) {
            for value_len in (0..=62 - key_len).step_by(step) {
                let Ok(geometry) = PackedGeometry::with_node_bytes(256, key_len, value_len) else {
                    panic!("{key_len} and {value_len} fit");
                };
                let sum: usize = head_fields(&geometry).iter().map(|field| field.bytes).sum();
                assert_eq!(sum, geometry.first_line() * LINE_BYTES, "{geometry:?}");
                for (number, shape) in geometry.shapes().iter().enumerate() {
                    let fields = line_fields(number, *shape);
                    assert_eq!(fields.iter().map(|field| field.bytes).sum::<usize>(), LINE_BYTES);
                    let spare = fields.last().filter(|field| field.name == "spare");
                    let spare = spare.map_or(0, |field| field.bytes);
                    assert!(shape.count() == 6 || spare < shape.entry_bytes(), "{geometry:?}");
                }
                let counts = geometry.shapes().windows(2);
                assert!(counts.into_iter().all(|pair| pair[0].count() > pair[1].count()));
            }
        }
    }
}
