//! A limit on the lines that peers can cause in the log.

use std::time::{Duration, Instant};

use dm_sync::Mutex;

/// Maximum number of lines per [`WINDOW`].
const LINES: u32 = 100;
const WINDOW: Duration = Duration::from_secs(10);

/// Counts log lines. Peers that have greeted and strangers have separate counters, so that lines about strangers
/// cannot suppress lines about clients.
#[derive(Default)]
pub(crate) struct Lines(Mutex<Count>);

#[derive(Default)]
struct Count {
    began: Option<Instant>,
    written: u32,
    left_out: u64,
}

impl Lines {
    /// Counts a line, and returns whether it may be written. At the first line after a window, logs how many lines of
    /// this window were left out, if any.
    pub(crate) fn may(&self, now: Instant) -> bool {
        let (may, left_out) = self.0.with(|count| count.may(now));
        if left_out > 0 {
            tracing::warn!(left_out, "lines about peers were left out");
        }
        may
    }
}

impl Count {
    fn may(&mut self, now: Instant) -> (bool, u64) {
        let mut left_out = 0;
        let over = |began| now.saturating_duration_since(began) >= WINDOW;
        if self.began.is_none_or(over) {
            left_out = self.left_out;
            *self = Self {
                began: Some(now),
                ..Self::default()
            };
        }
        let may = self.written < LINES;
        match may {
            true => self.written += 1,
            false => self.left_out += 1,
        }
        (may, left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_a_limited_number_of_lines_and_the_rest_is_counted() {
        let (mut count, now) = (Count::default(), Instant::now());
        let written = (0..1000).filter(|_| count.may(now).0).count();
        assert_eq!(written, LINES as usize);
        assert_eq!(count.may(now + WINDOW), (true, 900));
        assert_eq!(count.may(now + WINDOW), (true, 0));
    }
}
