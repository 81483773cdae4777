//! All unsafe code of this crate: calls of libibverbs, and accesses to memory that a card also reads or writes.
//!
//! # Guarantees for other modules
//! * **F1** A buffer of a request belongs to the table of chains in flight ([`Port`]), from posting until the
//!   completion of the chain's last request. No reference to this buffer exists meanwhile.
//! * **F2** Queue pairs are destroyed before the buffers that their requests point to. Buffers are freed before their
//!   registration, the registration before the mapping, and the mapping before the device is closed.
//! * **F3** Memory that is lent to others ([`Lent`]) is never accessed through a reference.

mod device;
mod inspect;
mod memory;
mod pool;
mod port;
mod queue;

pub(crate) use device::Device;
pub use device::{AtomicScope, Limits};
pub use inspect::{DeviceReport, GidReport, PortReport, devices};
pub(crate) use memory::{ChipLent, Lent};
pub use pool::Lease;
pub(crate) use pool::{PIECE_BYTES_MAX, Pool};
pub(crate) use port::{CHAIN_MAX, Fault, Port, Request, What};
pub(crate) use queue::{Cq, Patience, Peer, Qp, QueueOptions, RETRIES_MAX};

use std::io;

/// Converts the result of a call that returns an error number.
fn check(number: core::ffi::c_int) -> io::Result<()> {
    match number {
        0 => Ok(()),
        // Some verbs return -1 and set errno; the others return the error number.
        -1 => Err(io::Error::last_os_error()),
        number => Err(io::Error::from_raw_os_error(number.abs())),
    }
}
