//! Work in a copy of this process.
//!
//! A copy begins with this process's memory, and the kernel copies a page only when one of both writes to it. So a copy
//! of a process that has loaded an index has that index without loading it, and nothing that it does to the index is
//! seen outside of the copy.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::process::exit;

use nix::errno::Errno;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

/// A copy of this process.
#[derive(Debug)]
pub(super) struct Copy(Pid);

impl Copy {
    /// Makes a copy that runs `work`, and then ends. The copy ignores Ctrl-C: this process decides what that means.
    ///
    /// Other threads of this process do not exist in the copy. A lock that one of them holds at this moment is never
    /// released there, so no other thread may be at work now that `work` could wait for.
    ///
    /// # Errors
    /// Returns the system's error if there can be no further process.
    pub(super) fn start(work: impl FnOnce() -> io::Result<()>) -> io::Result<Self> {
        // Text that is not written yet would be written by both processes.
        io::stdout().flush()?;
        // SAFETY: a copy of a process with one thread may do what the process may do. If there are further threads, the
        // caller has made sure that `work` waits for none of their locks; the C library releases its own ones (those of
        // the heap) in the copy.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => Ok(Self(child)),
            ForkResult::Child => {
                for number in [Signal::SIGINT, Signal::SIGHUP] {
                    // SAFETY: ignoring a signal runs no handler.
                    let _ignored = unsafe { signal(number, SigHandler::SigIgn) };
                }
                // SAFETY: the default for SIGTERM ends the process, without a handler.
                let _default = unsafe { signal(Signal::SIGTERM, SigHandler::SigDfl) };
                exit(i32::from(work().is_err()))
            }
        }
    }

    /// Waits for the end of the copy.
    ///
    /// # Errors
    /// Returns an error if the work failed, or if the copy was killed.
    pub(super) fn join(self) -> io::Result<()> {
        loop {
            return match waitpid(self.0, None) {
                Ok(WaitStatus::Exited(_, 0)) => Ok(()),
                Ok(WaitStatus::Signaled(_, signal, _)) => {
                    Err(io::Error::other(format!("its process was ended by {signal}")))
                }
                Ok(other) => Err(io::Error::other(format!("its process ended with {other:?}"))),
                Err(Errno::EINTR) => continue,
                Err(e) => Err(e.into()),
            };
        }
    }
}

/// Returns the bytes that `work` returns in a copy of this process.
///
/// # Errors
/// Returns an error if there can be no further process, or if the copy was killed.
pub(super) fn in_copy(work: impl FnOnce() -> Vec<u8>) -> io::Result<Vec<u8>> {
    let (mut from, mut to) = io::pipe()?;
    let copy = Copy::start(|| to.write_all(&work()))?;
    drop(to);
    let mut bytes = Vec::new();
    let read = from.read_to_end(&mut bytes);
    copy.join()?;
    read.map(|_| bytes)
}

/// Writes bytes, and their number before them.
pub(super) fn send(to: &mut PipeWriter, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(bytes)
}

/// Reads bytes that [`send`] has written.
pub(super) fn receive(from: &mut PipeReader) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}
