//! Handles Ctrl-C: after the first one no further point begins, and the second one ends the process.

use std::fmt;
use std::io::{self, Write};
// The handler runs on its own thread and uses the types of std, because no model runs it.
use std::sync::{Arc, Mutex, OnceLock};

/// The exit status of a command that was interrupted, as a shell reports SIGINT.
pub const INTERRUPTED: u8 = 130;

/// A flag that is set when no further point may begin.
#[derive(Debug, Clone, Default)]
pub(super) struct Stop(Arc<Mutex<bool>>);

impl Stop {
    /// Returns the flag that SIGINT, SIGTERM and SIGHUP set.
    pub(super) fn on_signals() -> Self {
        static STOP: OnceLock<Stop> = OnceLock::new();
        let stop = STOP.get_or_init(|| {
            let stop = Self::default();
            let told = stop.clone();
            // If the program has already set a handler with `ctrlc`, that handler stays and alone decides what happens.
            // Any other handler is replaced.
            let _kept = ctrlc::set_handler(move || told.signal());
            stop
        });
        stop.clone()
    }

    fn signal(&self) {
        if self.is_set() {
            std::process::exit(INTERRUPTED.into());
        }
        self.set();
        // Standard error may be closed. The flag is set nevertheless.
        let _unheard = writeln!(
            io::stderr(),
            "dmkit: interrupted: no new point begins, the running ones end; interrupt again to end them now"
        );
    }

    pub(super) fn set(&self) {
        *self.0.lock().expect("no thread panics while it holds this") = true;
    }

    pub(super) fn is_set(&self) -> bool {
        *self.0.lock().expect("no thread panics while it holds this")
    }
}

/// The error of a run that was interrupted, of the kind [`io::ErrorKind::Interrupted`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupted {
    /// The number of points that have a row.
    pub done: usize,
    /// The number of all points.
    pub of: usize,
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { done, of } = self;
        write!(
            f,
            "interrupted after {done} of {of} points; the same command with --resume runs the others"
        )
    }
}

impl std::error::Error for Interrupted {}

impl From<Interrupted> for io::Error {
    fn from(e: Interrupted) -> Self {
        Self::new(io::ErrorKind::Interrupted, e)
    }
}
