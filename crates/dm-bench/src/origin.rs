//! The program, the machine and the time of a row.

use std::fmt;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// The program that measured a row, and its machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// dmkit's version.
    pub version: String,
    /// The git commit from which it was built, or `unknown`.
    pub commit: String,
    /// The machine's name, or `unknown`.
    pub host: String,
}

impl Origin {
    /// The value for an unknown commit or host.
    const UNKNOWN: &str = "unknown";

    /// Returns the origin of rows that this process measures. A library does not know the commit, so the program must
    /// pass it.
    pub fn here(commit: Option<&str>) -> Self {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let known = |text: &str| match text.trim() {
            "" => Self::UNKNOWN.to_owned(),
            text => text.to_owned(),
        };
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: known(commit.unwrap_or_default()),
            host: known(&host),
        }
    }
}

/// A date and time in UTC, to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Utc {
    date: [u64; 3],
    time: [u64; 3],
}

impl Utc {
    /// Returns the time of the machine's clock.
    pub(crate) fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self::from_epoch(since.map_or(0, |since| since.as_secs()))
    }

    fn from_epoch(seconds: u64) -> Self {
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        // The calendar repeats after 400 years. Years begin in March here, so that a leap day is the last day of a
        // year.
        let day = days + 719_468;
        let (era, of_era) = (day / 146_097, day % 146_097);
        let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let of_month = of_year - (153 * month + 2) / 5 + 1;
        let january = u64::from(month >= 10);
        Self {
            date: [era * 400 + year + january, (month + 2) % 12 + 1, of_month],
            time: [second / 3_600, second / 60 % 60, second % 60],
        }
    }

    /// Returns the time without separators, for the name of a file: `20260131T235959Z`.
    pub(crate) fn compact(self) -> String {
        self.to_string().replace(['-', ':'], "")
    }
}

/// Writes `2026-01-31T23:59:59Z`.
impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([year, month, day], [hour, minute, second]) = (self.date, self.time);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_767_225_600, "2026-01-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(Utc::from_epoch(seconds).to_string(), date);
        }
        assert_eq!(Utc::from_epoch(1_767_225_601).compact(), "20260101T000001Z");
    }

    #[test]
    fn an_unknown_commit_is_called_unknown() {
        assert_eq!(Origin::here(None).commit, "unknown");
        assert_eq!(Origin::here(Some("0a1b")).commit, "0a1b");
    }
}
