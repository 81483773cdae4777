//! Ctrl-C: the first one lets no new point begin, the second one ends the process.

use std::fmt;
use std::io::{self, Write};
// The handler runs on a thread of its own: std's types, nothing here is modelled.
use std::sync::{Arc, Mutex, OnceLock};

/// The exit status of a command that was interrupted, as a shell reports SIGINT.
pub const INTERRUPTED: u8 = 130;

/// Whether no new point may begin.
#[derive(Debug, Clone, Default)]
pub(super) struct Stop(Arc<Mutex<bool>>);

impl Stop {
    /// Returns the one that SIGINT, SIGTERM and SIGHUP set.
    pub(super) fn on_signals() -> Self {
        static STOP: OnceLock<Stop> = OnceLock::new();
        let stop = STOP.get_or_init(|| {
            let stop = Self::default();
            let told = stop.clone();
            // A program with a handler of its own keeps it; then only its handler decides.
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
        // Standard error may be closed; the stop counts all the same.
        let _unheard = writeln!(
            io::stderr(),
            "dmkit: interrupted: no new point begins, the running ones end; interrupt again to give them up"
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
    /// The points that have a row.
    pub done: usize,
    /// All points.
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
