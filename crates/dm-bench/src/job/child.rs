//! Work in a copy of this process.
//!
//! A copy begins with this process's memory, and the kernel copies a page only when one of the two processes writes to
//! it. So a copy of a process that has loaded an index has the index without loading it, and its changes to the index
//! stay in the copy.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::exit;

use nix::errno::Errno;
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getpid, getppid};

/// The signals that the command handles. A copy ignores them, because the command itself decides when its copies end.
const COMMANDS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// A copy of this process.
#[derive(Debug)]
pub(super) struct Child(Pid);

impl Child {
    /// Makes a copy that runs `work`, and then ends. On Linux, the copy also ends when the thread that has made it
    /// ends.
    ///
    /// Other threads of this process do not exist in the copy. A lock that one of them holds at this moment is never
    /// released in the copy. So the caller must make sure that `work` waits for no lock that another thread may hold.
    ///
    /// # Errors
    /// Returns the system's error if there can be no further process, or if standard output cannot be written. `work`
    /// was not called then.
    pub(super) fn start(work: impl FnOnce() -> io::Result<()>) -> io::Result<Self> {
        // Text that is not written yet would be written by both processes.
        io::stdout().flush()?;
        // Signals are blocked until the copy ignores them. Otherwise a signal that reaches both processes could run the
        // command's handler in the copy too.
        let mut blocked = SigSet::empty();
        blocked.extend(COMMANDS);
        let before = blocked.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)?;
        let parent = getpid();
        // SAFETY: the copy has only the thread that called `fork`. If this process has no other threads, the copy may
        // do everything. If it has, the caller has made sure that `work` needs no lock that one of them may hold; the C
        // library releases its own locks (those of the heap) in the copy.
        let forked = unsafe { fork() };
        if let Ok(ForkResult::Child) = forked {
            ignore_commands();
            end_with(parent);
            let _unblocked = before.thread_set_mask();
            // A panic must not unwind into the callers of this function, which belong to the other process.
            let done = catch_unwind(AssertUnwindSafe(work));
            exit(i32::from(!matches!(done, Ok(Ok(())))));
        }
        before.thread_set_mask()?;
        match forked? {
            ForkResult::Parent { child } => Ok(Self(child)),
            ForkResult::Child => Err(io::Error::other("the copy has ended before")),
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

fn ignore_commands() {
    for number in COMMANDS {
        // SAFETY: an ignored signal runs no handler.
        let _ignored = unsafe { signal(number, SigHandler::SigIgn) };
    }
}

/// On Linux, asks the kernel to kill this process when the thread that made it ends, so that no copy outlives a command
/// that was killed. Ends this process if `parent` has died already.
fn end_with(parent: Pid) {
    #[cfg(target_os = "linux")]
    let _set = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
    // The parent may have died before the request. This process then has another parent.
    if getppid() != parent {
        exit(1);
    }
}

/// Returns the bytes that `work` returns in a copy of this process. Returns `None` if no copy can be made. `work` was
/// not called then.
///
/// # Errors
/// Returns an error if `work` failed, or if the copy was killed.
pub(super) fn in_child(work: impl FnOnce() -> io::Result<Vec<u8>>) -> Option<io::Result<Vec<u8>>> {
    let (from, mut to) = io::pipe().ok()?;
    let mut from = Some(from);
    let child = Child::start(|| {
        // If the other process dies, writing fails instead of waiting for a reader.
        drop(from.take());
        to.write_all(&work()?)
    })
    .ok()?;
    drop(to);
    let mut bytes = Vec::new();
    let read = from.take().map(|mut from| from.read_to_end(&mut bytes));
    Some(child.join().and_then(|()| read.transpose()).map(|_| bytes))
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
