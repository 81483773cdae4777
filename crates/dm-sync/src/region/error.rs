//! Errors of regions.

use core::fmt;

/// The reason why a region could not be made, or an access could not be done. A failed access had no effect, unless the
/// variant says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegionError {
    /// The access extends beyond the region's end. It had no effect.
    OutOfBounds {
        /// First byte of the access.
        offset: u64,
        /// Bytes requested.
        len: u64,
        /// Bytes in the region.
        size: u64,
    },
    /// The offset of an atomic's word is not a multiple of eight. The access had no effect.
    Unaligned {
        /// Offset of the word.
        offset: u64,
    },
    /// The process that locked the line died while it wrote, so the line may be half written. If the access was a
    /// write, the lines before this one were written.
    HolderDead {
        /// First byte of the line.
        offset: u64,
        /// The dead process.
        pid: u32,
    },
    /// A living process kept the line locked for the whole waiting time of 5 seconds, most likely because it was
    /// stopped. If the access was a write, the lines before this one were written.
    Busy {
        /// First byte of the line.
        offset: u64,
        /// The process that holds the line.
        pid: u32,
    },
    /// The operating system refused the mapping or did not tell the file's length, or the region is too large to be
    /// mapped.
    Map {
        /// Bytes requested.
        bytes: u64,
        /// The system's error number.
        errno: i32,
    },
    /// The file is shorter than the region.
    FileTooShort {
        /// Bytes that the region needs, from the file's start.
        needed: u64,
        /// Bytes that the file has.
        found: u64,
    },
    /// The region's offset in the file is not a multiple of [`FILE_ALIGN`](super::FILE_ALIGN).
    FileUnaligned {
        /// The requested offset.
        at: u64,
    },
    /// This process's id does not fit into the 22 bits that a line lock has for it (the limit of Linux).
    PidTooBig {
        /// The process id.
        pid: u32,
    },
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OutOfBounds { offset, len, size } => {
                write!(
                    f,
                    "{len} bytes at offset {offset:#x} reach past the region's {size} bytes"
                )
            }
            Self::Unaligned { offset } => write!(f, "atomic at offset {offset:#x} is not 8-byte aligned"),
            Self::HolderDead { offset, pid } => {
                write!(
                    f,
                    "process {pid} died while it wrote the line at offset {offset:#x}"
                )
            }
            Self::Busy { offset, pid } => {
                write!(f, "the line at offset {offset:#x} stayed locked by process {pid}")
            }
            Self::Map { bytes, errno } => {
                let reason = std::io::Error::from_raw_os_error(errno);
                write!(f, "can't map {bytes} bytes: {reason}")
            }
            Self::FileTooShort { needed, found } => {
                write!(f, "the file has {found} bytes, the region ends at {needed}")
            }
            Self::FileUnaligned { at } => {
                write!(
                    f,
                    "a region can't begin at file offset {at:#x}: not a multiple of the page size"
                )
            }
            Self::PidTooBig { pid } => write!(f, "process id {pid} does not fit a line lock"),
        }
    }
}

impl core::error::Error for RegionError {}
