//! Consistency guards for objects in remote memory that are not nodes.

use crate::chunks::Chunks as _;
use twox_hash::XxHash3_64;

use crate::error::{CheckFailure, Reason};
use crate::key::sealed;
use crate::{LINE_BYTES, LINE_PAYLOAD};

/// Returns the 64-bit XXH3 of `bytes`, which [`Checksum`] and the checksummed node store.
///
/// ```
/// use dm_layout::checksum_of;
///
/// assert_eq!(checksum_of(b""), 0x2D06_8005_38D3_94C2);
/// assert_ne!(checksum_of(b"one"), checksum_of(b"other"));
/// ```
#[must_use]
pub fn checksum_of(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// A way to detect whether all bytes of one READ are from the same WRITE. This trait is sealed.
///
/// The *buffer* is an object in remote memory, and the *payload* is the user's data in the buffer. Only one client
/// writes at a time.
///
/// ```
/// use dm_layout::{Guard, LineVersions};
///
/// let mut buffer = [0; 128];
/// LineVersions::seal(&mut buffer, b"as much as fits", 1);
/// let mut payload = [0; 15];
/// assert_eq!(LineVersions::open(&buffer, &mut payload), Ok(1));
/// assert_eq!(&payload, b"as much as fits");
/// // One line belongs to the next write, and the other line to this one.
/// let old = buffer;
/// LineVersions::seal(&mut buffer, &[7; 126], 2);
/// buffer[64..].copy_from_slice(&old[64..]);
/// assert!(LineVersions::open(&buffer, &mut [0; 126]).is_err());
/// ```
pub trait Guard: sealed::Sealed {
    /// The name of the guard in tables.
    const NAME: &'static str;

    /// Returns how many payload bytes fit into a buffer of `buffer_bytes`.
    fn payload_bytes(buffer_bytes: usize) -> usize;

    /// Stores `payload` in `buffer` under the guard. `version` must be one more than that of the last write; it wraps.
    /// Panics if the payload is longer than [`payload_bytes`](Self::payload_bytes). [`Bookends`] and [`Checksum`] also
    /// panic if the buffer is too short for the guard itself.
    fn seal(buffer: &mut [u8], payload: &[u8], version: u8);

    /// Fills `payload` with the beginning of the stored payload, and returns the version of the write. Panics if
    /// `payload` is longer than the buffer's payload.
    ///
    /// # Errors
    /// Returns [`CheckFailure::Torn`] if the guard detects that the bytes mix two writes. Returns
    /// [`CheckFailure::Corrupt`] if the buffer is too short for a guard, or, with [`LineVersions`], if it does not
    /// consist of whole lines. In both cases `payload` does not change.
    fn open(buffer: &[u8], payload: &mut [u8]) -> Result<u8, CheckFailure>;
}

/// A version byte before the 63 payload bytes of every 64-byte line. It is sound if every line is atomic, in whatever
/// order the lines are served, and if fewer than 256 writes happen during one READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineVersions;

/// A version byte before and after the payload. It is unsound: it accepts a READ whose middle is from another WRITE
/// than its ends.
///
/// ```
/// use dm_layout::{Bookends, Guard};
///
/// let mut buffer = [0; 192];
/// Bookends::seal(&mut buffer, &[1; 190], 1);
/// let old = buffer;
/// Bookends::seal(&mut buffer, &[2; 190], 2);
/// // The middle line belongs to the older write. Both ends belong to the newer one, so the guard accepts it.
/// buffer[64..128].copy_from_slice(&old[64..128]);
/// assert_eq!(Bookends::open(&buffer, &mut [0; 190]), Ok(2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bookends;

/// A version byte, and a 64-bit XXH3 of this byte and the payload. Except for hash collisions it is sound, even if
/// lines are torn.
///
/// ```
/// use dm_layout::{Checksum, Guard};
///
/// let mut buffer = [0; 192];
/// Checksum::seal(&mut buffer, &[1; 150], 1);
/// let old = buffer;
/// Checksum::seal(&mut buffer, &[2; 150], 2);
/// buffer[64..128].copy_from_slice(&old[64..128]);
/// assert!(Checksum::open(&buffer, &mut [0; 150]).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum;

fn fits<G: Guard>(buffer: &[u8], payload: &[u8]) {
    let room = G::payload_bytes(buffer.len());
    assert!(
        payload.len() <= room,
        "a payload of {} bytes where {room} fit",
        payload.len()
    );
}

impl sealed::Sealed for LineVersions {}
impl sealed::Sealed for Bookends {}
impl sealed::Sealed for Checksum {}

impl Guard for LineVersions {
    const NAME: &'static str = "line versions";

    fn payload_bytes(buffer_bytes: usize) -> usize {
        buffer_bytes / LINE_BYTES * LINE_PAYLOAD
    }

    fn seal(buffer: &mut [u8], payload: &[u8], version: u8) {
        fits::<Self>(buffer, payload);
        let mut pieces = payload.chunks(LINE_PAYLOAD);
        for line in buffer.in_chunks_mut::<LINE_BYTES>() {
            let piece = pieces.next().unwrap_or(&[]);
            line[0] = version;
            line[1..1 + piece.len()].copy_from_slice(piece);
            line[1 + piece.len()..].fill(0);
        }
    }

    fn open(buffer: &[u8], payload: &mut [u8]) -> Result<u8, CheckFailure> {
        let (lines, rest) = buffer.in_chunks::<LINE_BYTES>();
        let Some((first, others)) = lines.split_first().filter(|_| rest.is_empty()) else {
            return Err(CheckFailure::corrupt(buffer.len(), Reason::Length));
        };
        fits::<Self>(buffer, payload);
        if let Some(line) = others.iter().position(|line| line[0] != first[0]) {
            return Err(CheckFailure::node_torn((line + 1) * LINE_BYTES));
        }
        for (piece, line) in payload.chunks_mut(LINE_PAYLOAD).zip(lines) {
            piece.copy_from_slice(&line[1..1 + piece.len()]);
        }
        Ok(first[0])
    }
}

impl Guard for Bookends {
    const NAME: &'static str = "bookends";

    fn payload_bytes(buffer_bytes: usize) -> usize {
        buffer_bytes.saturating_sub(2)
    }

    fn seal(buffer: &mut [u8], payload: &[u8], version: u8) {
        fits::<Self>(buffer, payload);
        let [front, middle @ .., rear] = buffer else {
            panic!("bookends take two bytes")
        };
        (*front, *rear) = (version, version);
        middle[..payload.len()].copy_from_slice(payload);
        middle[payload.len()..].fill(0);
    }

    fn open(buffer: &[u8], payload: &mut [u8]) -> Result<u8, CheckFailure> {
        let [front, middle @ .., rear] = buffer else {
            return Err(CheckFailure::corrupt(buffer.len(), Reason::Length));
        };
        fits::<Self>(buffer, payload);
        if front != rear {
            return Err(CheckFailure::node_torn(buffer.len() - 1));
        }
        payload.copy_from_slice(&middle[..payload.len()]);
        Ok(*front)
    }
}

/// Size in bytes of the checksum and the version together.
const SEAL_BYTES: usize = 9;

impl Guard for Checksum {
    const NAME: &'static str = "checksum";

    fn payload_bytes(buffer_bytes: usize) -> usize {
        buffer_bytes.saturating_sub(SEAL_BYTES)
    }

    fn seal(buffer: &mut [u8], payload: &[u8], version: u8) {
        fits::<Self>(buffer, payload);
        let Some((checksum, sealed)) = buffer.split_first_chunk_mut::<8>() else {
            panic!("a checksum takes eight bytes");
        };
        let [at, middle @ ..] = sealed else {
            panic!("a version takes a byte")
        };
        *at = version;
        middle[..payload.len()].copy_from_slice(payload);
        middle[payload.len()..].fill(0);
        *checksum = checksum_of(sealed).to_le_bytes();
    }

    fn open(buffer: &[u8], payload: &mut [u8]) -> Result<u8, CheckFailure> {
        let Some((checksum, sealed)) = buffer.split_first_chunk::<8>() else {
            return Err(CheckFailure::corrupt(buffer.len(), Reason::Length));
        };
        let [version, middle @ ..] = sealed else {
            return Err(CheckFailure::corrupt(buffer.len(), Reason::Length));
        };
        fits::<Self>(buffer, payload);
        if u64::from_le_bytes(*checksum) != checksum_of(sealed) {
            return Err(CheckFailure::node_torn(0));
        }
        payload.copy_from_slice(&middle[..payload.len()]);
        Ok(*version)
    }
}
