//! A worker: a copy of this process that does one run after another. It keeps the index that it has loaded last. Each
//! run but the last one with this index takes place in a copy of the worker, so that the next one finds the index
//! unchanged.
//!
//! ```text
//!   command ──number──► worker: loads the index ──► copy: measures a point ──┐
//!      ▲                  │                    └──► copy: …                  │
//!      └──────result──────┴──────────────────────────────────────────────────┘
//! ```

use std::io::{self, PipeReader, PipeWriter};

use indicatif::ProgressBar;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::child::{Child, in_child, receive, send};
use super::run::{Runs, caught, here};
use crate::RunError;
use crate::run::{Ready, bad};

/// A worker, seen from the command.
#[derive(Debug)]
pub(super) struct Worker {
    /// `None` when there are no more runs, or when the worker has died.
    numbers: Option<PipeWriter>,
    results: PipeReader,
    child: Option<Child>,
}

impl Worker {
    /// Starts a worker for `runs`. `others` are the workers that exist already. The new worker closes its copies of
    /// their pipes.
    ///
    /// # Errors
    /// Returns the system's error if there can be no further process or pipe, or if standard output cannot be written.
    pub(super) fn start<R: Runs>(runs: &R, others: &mut Vec<Self>) -> io::Result<Self> {
        let ((take, give), (results, tell)) = (io::pipe()?, io::pipe()?);
        let (mut give, mut results) = (Some(give), Some(results));
        let mut ends = Some((take, tell));
        let child = Child::start(|| {
            drop((give.take(), results.take()));
            for other in others.drain(..) {
                other.forget();
            }
            let (mut take, mut tell) = ends.take().expect("the copy has its ends");
            work(runs, &mut take, &mut tell)
        })?;
        let (Some(give), Some(results)) = (give, results) else {
            return Err(io::Error::other("a copy's ends of the pipes are missing"));
        };
        Ok(Self {
            numbers: Some(give),
            results,
            child: Some(child),
        })
    }

    /// Does run `number`. `last` tells the worker that no later run begins with the same index.
    ///
    /// # Errors
    /// Returns an error if the worker has died. It does no further run then.
    pub(super) fn run<T: DeserializeOwned>(
        &mut self,
        number: usize,
        last: bool,
    ) -> io::Result<Result<T, RunError>> {
        self.answer(Asked { number, last })
            .map(|bytes| decoded(&bytes))
            .map_err(|e| {
                // The exit status of the process explains the failure better than the error of the pipe.
                self.numbers = None;
                let ended = self.child.take().map_or(Ok(()), Child::join);
                ended.err().unwrap_or(e)
            })
    }

    fn answer(&mut self, asked: Asked) -> io::Result<Vec<u8>> {
        let numbers = self.numbers.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        send(numbers, &asked.to_bytes())?;
        receive(&mut self.results)
    }

    /// Drops a worker of another process.
    fn forget(mut self) {
        self.child = None;
    }
}

impl Drop for Worker {
    /// Lets the worker end, and waits for it.
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            // Send an empty message: closing the pipe may not be enough, because another process may have a copy of
            // this end. If sending fails, the worker has died.
            let _told = self.numbers.as_mut().map(|numbers| send(numbers, &[]));
            self.numbers = None;
            // The exit status adds nothing: every run has a result or an error already.
            let _ended = child.join();
        }
    }
}

/// The order to do a run.
#[derive(Clone, Copy)]
struct Asked {
    number: usize,
    last: bool,
}

impl Asked {
    fn to_bytes(self) -> [u8; 9] {
        let mut bytes = [u8::from(self.last); 9];
        bytes[..8].copy_from_slice(&(self.number as u64).to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (number, last) = bytes.split_first_chunk::<8>()?;
        let number = usize::try_from(u64::from_le_bytes(*number)).ok()?;
        Some(Self {
            number,
            last: last == [1],
        })
    }
}

/// Runs the loop of the worker until it is told that there are no more runs, or until the command has died.
fn work<R: Runs>(runs: &R, take: &mut PipeReader, tell: &mut PipeWriter) -> io::Result<()> {
    let mut loaded: Option<(String, Box<dyn Ready>)> = None;
    while let Some(asked) = receive(take).ok().and_then(|bytes| Asked::from_bytes(&bytes)) {
        send(tell, &run(runs, asked, &mut loaded)?)?;
    }
    Ok(())
}

/// Does a run, and returns its encoded result.
fn run<R: Runs>(
    runs: &R,
    asked: Asked,
    loaded: &mut Option<(String, Box<dyn Ready>)>,
) -> io::Result<Vec<u8>> {
    let hidden = ProgressBar::hidden();
    let number = asked.number;
    let Some((point, key)) = runs
        .point(number)
        .and_then(|point| Some((point, point.load_key()?)))
    else {
        *loaded = None;
        return encoded(here(runs, number, &hidden));
    };
    if loaded.as_ref().is_none_or(|(of, _)| *of != key) {
        // Drop the old index first, so that memory never holds two.
        *loaded = None;
        match caught(|| point.ready()) {
            Ok(ready) => *loaded = Some((key, ready)),
            Err(e) => return encoded::<R::Result>(Err(e)),
        }
    }
    let mut measure = || {
        encoded(caught(|| {
            let (_, ready) = loaded.take().expect("it was just loaded");
            point.check()?;
            let measured = ready.measure(&point.setting, &hidden)?;
            runs.result(number, Some(measured))
        }))
    };
    // If the system refuses another process, the worker itself measures. The next run then has to load the index again.
    let copied = match asked.last {
        true => None,
        false => in_child(&mut measure),
    };
    copied.map_or_else(&mut measure, |copied| {
        copied.or_else(|e| encoded::<R::Result>(Err(bad(format_args!("the run: {e}")))))
    })
}

/// Encodes a result for the other process.
fn encoded<T: Serialize>(result: Result<T, RunError>) -> io::Result<Vec<u8>> {
    serde_json::to_vec(&result.map_err(|e| e.to_string())).map_err(io::Error::other)
}

/// Decodes a result of the other process.
fn decoded<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, RunError> {
    let result: Result<T, String> = serde_json::from_slice(bytes)
        .map_err(|e| bad(format_args!("the result of this run can't be read: {e}")))?;
    result.map_err(RunError::Bad)
}
