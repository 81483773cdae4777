//! Bytes of nodes on disaggregated memory: consistency guards, fence keys, headers, states, incarnations
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bookend;
mod checksum;
mod error;
mod format;
mod guard;
mod header;
mod key;
pub mod picture;
mod slotted;
pub mod testing;
mod value;

pub use bookend::Bookend;
pub use checksum::Checksummed;
pub use error::{CheckFailure, Corrupt, GeometryError, Reason, TornPart};
pub use format::{Lookup, NodeFormat, Part, Place, Slot, SplitBias, SplitPlan, SplitRequest, Stale};
pub use guard::{Bookends, Checksum, Guard, LineVersions, checksum_of};
pub use header::{FIRST_VERSION, Header, LineLag, NodeInit, NodeState};
pub use key::{FenceKeys, Key8, Key32, KeyBytes};
pub use slotted::{SlotGeometry, Slotted};
pub use value::ValueRef;

/// Bytes of a line: what an RNIC reads and writes untorn.
pub const LINE_BYTES: usize = 64;
/// Bytes of a line beside its version.
pub const LINE_PAYLOAD: usize = LINE_BYTES - 1;
type Line = [u8; LINE_BYTES];
