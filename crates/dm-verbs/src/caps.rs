//! Capabilities of a world. A protocol queries capabilities and never assumes them. Each field of [`Caps`] is a rule of
//! the RNIC contract, a feature, or a size.

use core::fmt;

/// The order in which the lines of one READ or WRITE are served.
///
/// ```
/// use dm_verbs::{AtomicUnit, AtomicVsWrite, Capability, Caps, CasThenRead, FailedCas, LineOrder};
///
/// // The capabilities of a card whose lines are atomic and whose WRITEs are served in order.
/// let caps = Caps {
///     atomic_unit: AtomicUnit::Line,
///     write_lines: LineOrder::Increasing,
///     cas_then_read: CasThenRead::InOrder,
///     atomic_vs_write: AtomicVsWrite::Racy,
///     failed_cas: FailedCas::LeavesAlone,
///     ..Caps::default()
/// };
/// assert!(caps.require("a lock", &[Capability::CasThenReadInOrder]).is_ok());
/// let refused = caps.require("a lock released by WRITE", &[Capability::AtomicVsWriteSerialised]).unwrap_err();
/// assert_eq!(refused.missing, Capability::AtomicVsWriteSerialised);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LineOrder {
    /// The lines are served in any order.
    Any,
    /// The lines are served by increasing address.
    Increasing,
}

/// The largest aligned unit that is never seen torn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AtomicUnit {
    /// An aligned 8-byte word.
    Word,
    /// An aligned 64-byte line.
    Line,
}

/// The order of an atomic and a later READ of the same client from the same memory node. Both use one queue pair, so
/// the order is the same whether they are in one chain or in two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CasThenRead {
    /// Any line of the READ may be served before the CAS.
    AnyLineFirst,
    /// The READ as a whole may be served before the CAS.
    WholeReadFirst,
    /// The CAS takes effect before any line of the READ is served.
    InOrder,
}

/// Whether an atomic and a plain WRITE to the same 8 bytes exclude each other. Two atomics always exclude each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AtomicVsWrite {
    /// A WRITE between the atomic's read and its write-back may be lost.
    Racy,
    /// The atomic and the WRITE take effect one after the other.
    Serialised,
}

/// The effect of a failed CAS on memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailedCas {
    /// It writes the old value back.
    WritesBack,
    /// It does not write to memory.
    LeavesAlone,
}

/// A capability that a protocol may need from a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Capability {
    /// Masked compare-and-swap.
    MaskedAtomics,
    /// On-chip memory.
    ChipMemory,
    /// 64-byte lines are never torn.
    LineAtomicity,
    /// An atomic takes effect before a later READ of the same queue pair is served, in one chain or in two.
    CasThenReadInOrder,
    /// Atomics and WRITEs to one word are serialised.
    AtomicVsWriteSerialised,
    /// On one queue pair, a WRITE to a memory node's host memory is visible before a later WRITE or atomic to the same
    /// node's on-chip memory.
    HostBeforeChip,
    /// The lines of one WRITE take effect by increasing address.
    WriteLinesIncreasing,
    /// Memory can be written directly, without verbs ([`crate::Verbs::load`]).
    DirectLoad,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MaskedAtomics => "masked atomics",
            Self::ChipMemory => "on-chip memory",
            Self::LineAtomicity => "64-byte line atomicity",
            Self::CasThenReadInOrder => "CAS→READ in order on one queue pair",
            Self::AtomicVsWriteSerialised => "atomics serialised with WRITEs to the same word",
            Self::HostBeforeChip => "host WRITEs visible before later on-chip WRITEs",
            Self::WriteLinesIncreasing => "lines of a WRITE landing in increasing order",
            Self::DirectLoad => "direct loading of an image",
        })
    }
}

/// The capabilities of the connection to one memory node.
///
/// The default is the weakest value of every field: no on-chip memory, no masked atomics, no inlining.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caps {
    /// Bytes of host memory that verbs can access.
    pub host_bytes: u64,
    /// Bytes of on-chip memory; 0 if there is none.
    pub chip_bytes: u64,
    /// Whether the hardware has masked CAS.
    pub masked_atomics: bool,
    /// Largest payload in bytes that a work request can carry inline.
    pub inline_bytes: u32,
    /// The largest unit that is never torn.
    pub atomic_unit: AtomicUnit,
    /// Order of a READ's lines.
    pub read_lines: LineOrder,
    /// Order of a WRITE's lines.
    pub write_lines: LineOrder,
    /// The order of an atomic and a later READ of the same queue pair.
    pub cas_then_read: CasThenRead,
    /// Whether atomics and WRITEs to the same word exclude each other.
    pub atomic_vs_write: AtomicVsWrite,
    /// The effect of a failed CAS on memory.
    pub failed_cas: FailedCas,
    /// Whether host WRITEs are visible before later on-chip WRITEs and atomics of the same queue pair.
    pub host_before_chip: bool,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            host_bytes: 0,
            chip_bytes: 0,
            masked_atomics: false,
            inline_bytes: 0,
            atomic_unit: AtomicUnit::Word,
            read_lines: LineOrder::Any,
            write_lines: LineOrder::Any,
            cas_then_read: CasThenRead::AnyLineFirst,
            atomic_vs_write: AtomicVsWrite::Racy,
            failed_cas: FailedCas::WritesBack,
            host_before_chip: false,
        }
    }
}

impl Caps {
    /// Returns whether the world promises `c`. It never promises [`Capability::DirectLoad`]: only the answer of
    /// [`crate::Verbs::load`] tells whether direct loading works.
    pub fn has(&self, c: Capability) -> bool {
        match c {
            Capability::MaskedAtomics => self.masked_atomics,
            Capability::ChipMemory => self.chip_bytes > 0,
            Capability::LineAtomicity => self.atomic_unit == AtomicUnit::Line,
            Capability::CasThenReadInOrder => self.cas_then_read == CasThenRead::InOrder,
            Capability::AtomicVsWriteSerialised => self.atomic_vs_write == AtomicVsWrite::Serialised,
            Capability::HostBeforeChip => self.host_before_chip,
            Capability::WriteLinesIncreasing => self.write_lines == LineOrder::Increasing,
            Capability::DirectLoad => false,
        }
    }

    /// Checks that the world has all capabilities in `needs`, which `protocol` requires.
    ///
    /// # Errors
    /// Returns [`Refused`], with the protocol and the first missing capability, if one is missing.
    pub fn require(&self, protocol: &'static str, needs: &[Capability]) -> Result<(), Refused> {
        match needs.iter().find(|c| !self.has(**c)) {
            None => Ok(()),
            Some(&missing) => Err(Refused { protocol, missing }),
        }
    }

    /// Returns these capabilities with `c` added, because the user asserts that the hardware has it. Nothing checks the
    /// assertion. [`Capability::ChipMemory`] and [`Capability::DirectLoad`] are not added.
    #[must_use]
    pub fn assume(mut self, c: Capability) -> Self {
        match c {
            Capability::MaskedAtomics => self.masked_atomics = true,
            Capability::LineAtomicity => self.atomic_unit = AtomicUnit::Line,
            Capability::CasThenReadInOrder => self.cas_then_read = CasThenRead::InOrder,
            Capability::AtomicVsWriteSerialised => self.atomic_vs_write = AtomicVsWrite::Serialised,
            Capability::HostBeforeChip => self.host_before_chip = true,
            Capability::WriteLinesIncreasing => self.write_lines = LineOrder::Increasing,
            // On-chip memory and direct loading cannot be assumed, because an assumption does not create them.
            Capability::ChipMemory | Capability::DirectLoad => {}
        }
        self
    }
}

/// The error of a protocol that cannot run in this world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The protocol that was requested.
    pub protocol: &'static str,
    /// The missing capability.
    pub missing: Capability,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} needs {}, which this world does not promise",
            self.protocol, self.missing
        )
    }
}

impl core::error::Error for Refused {}
