//! The control region: a header, the allocation state of the nodes, and the membership of the clients. In a shared pool
//! it is at the start of the file.
//!
//! ```text
//!      0  magic · version · nodes · host bytes · chip bytes · unit · alarm       one line
//!     64  next client id                                                         one line
//!   4096  per node:   chunk bytes handed out · trouble                           one line each
//!  69632  per client: state · busy · group                                       one line each
//!         per node:   host region, chip region                                   (in a file: the following bytes)
//! ```
//! All words are little-endian, and are accessed atomically.

use dm_sync::region::{AtomicUnit, FILE_ALIGN, LINE_BYTES, Region, RegionError};
use dm_verbs::RESERVED_BYTES;

/// `dmkitLBK`, read as a little-endian word.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"dmkitLBK");
/// The version of the layout.
pub(crate) const VERSION: u64 = 1;
/// Maximum number of memory nodes.
pub(crate) const NODES_MAX: u16 = 1024;
/// Client ids are from 1 to this number minus one. Id 0 is not used, so that a lock word of zero names no client.
pub(crate) const CLIENTS_MAX: u32 = dm_sync::scaled(1 << 12, 64) as u32;

const LINE: u64 = LINE_BYTES as u64;
const NODES_AT: u64 = 4096;
const CLIENTS_AT: u64 = NODES_AT + LINE * NODES_MAX as u64;
/// Bytes of the control region.
pub(crate) const CONTROL_BYTES: u64 = CLIENTS_AT + LINE * CLIENTS_MAX as u64;

/// Offsets of the header's words.
pub(crate) mod header {
    pub(crate) const MAGIC: u64 = 0;
    pub(crate) const VERSION: u64 = 8;
    pub(crate) const NODES: u64 = 16;
    pub(crate) const HOST_BYTES: u64 = 24;
    pub(crate) const CHIP_BYTES: u64 = 32;
    pub(crate) const UNIT: u64 = 40;
    /// Not 0 if any node was cut off or any client was fenced. Then all clients make the slow checks.
    pub(crate) const ALARM: u64 = 48;
    pub(crate) const NEXT_CLIENT: u64 = 64;
}

/// Returns the offset of the word that counts the bytes of `node` that were handed out, with the reserved page.
pub(crate) fn node_used(node: u16) -> u64 {
    NODES_AT + LINE * u64::from(node)
}

/// Returns the offset of the word that holds `node`'s trouble: see [`crate::Trouble`].
pub(crate) fn node_trouble(node: u16) -> u64 {
    node_used(node) + 8
}

/// Returns the offset of the word that holds `client`'s [`crate::members::State`].
pub(crate) fn client_state(client: u16) -> u64 {
    CLIENTS_AT + LINE * u64::from(client)
}

/// Returns the offset of the word that is 1 while `client` carries out a chain that changes memory.
pub(crate) fn client_busy(client: u16) -> u64 {
    client_state(client) + 8
}

/// Returns the offset of the word that holds the number of `client`'s group plus one; 0 means no group.
pub(crate) fn client_group(client: u16) -> u64 {
    client_state(client) + 16
}

/// Sizes of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) nodes: u16,
    pub(crate) host_bytes: u64,
    pub(crate) chip_bytes: u64,
    pub(crate) unit: AtomicUnit,
}

impl Shape {
    /// Rounds sizes up; returns `None` if they are out of range.
    pub(crate) fn new(nodes: u16, host_bytes: u64, chip_bytes: u64, unit: AtomicUnit) -> Option<Self> {
        let addressable = 1 << 48;
        let host_bytes = host_bytes.checked_next_multiple_of(FILE_ALIGN)?;
        let chip_bytes = chip_bytes.checked_next_multiple_of(LINE)?;
        let fits = host_bytes > RESERVED_BYTES && host_bytes <= addressable && chip_bytes <= addressable;
        fits.then_some(Self {
            nodes,
            host_bytes,
            chip_bytes,
            unit,
        })
    }

    /// Returns the offsets of `node`'s two regions in a file: host and on-chip. For the number after the last node,
    /// the first offset is the end of the file.
    pub(crate) fn file_offsets(&self, node: u16) -> Option<(u64, u64)> {
        let host = Region::file_bytes(self.host_bytes)?;
        let chip = Region::file_bytes(self.chip_bytes)?;
        let before = host.checked_add(chip)?.checked_mul(u64::from(node))?;
        let begin = Region::file_bytes(CONTROL_BYTES)?.checked_add(before)?;
        Some((begin, begin.checked_add(host)?))
    }

    /// Writes the header. The magic word is written last.
    pub(crate) fn store(&self, control: &Region) -> Result<(), RegionError> {
        control.write_word(header::VERSION, VERSION)?;
        control.write_word(header::NODES, u64::from(self.nodes))?;
        control.write_word(header::HOST_BYTES, self.host_bytes)?;
        control.write_word(header::CHIP_BYTES, self.chip_bytes)?;
        control.write_word(header::UNIT, u64::from(self.unit == AtomicUnit::Word))?;
        control.write_word(header::NEXT_CLIENT, 1)?;
        for node in 0..self.nodes {
            control.write_word(node_used(node), RESERVED_BYTES)?;
        }
        control.write_word(header::MAGIC, MAGIC)
    }

    /// Reads the rest of the header after magic and version. The error describes an invalid header.
    pub(crate) fn load(control: &Region) -> Result<Self, &'static str> {
        let word = |offset| control.read_word(offset).map_err(|_| "the header is unreadable");
        let nodes = u16::try_from(word(header::NODES)?)
            .ok()
            .filter(|nodes| (1..=NODES_MAX).contains(nodes));
        let unit = match word(header::UNIT)? {
            0 => AtomicUnit::Line,
            1 => AtomicUnit::Word,
            _ => return Err("unknown atomic unit"),
        };
        let (host, chip) = (word(header::HOST_BYTES)?, word(header::CHIP_BYTES)?);
        let shape = Self::new(nodes.ok_or("impossible number of nodes")?, host, chip, unit);
        shape
            .filter(|s| s.host_bytes == host && s.chip_bytes == chip)
            .ok_or("impossible sizes")
    }
}
