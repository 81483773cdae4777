//! Shows the progress of a run and the estimated time of its end: as a bar on a terminal, otherwise as a line every few
//! seconds.

use std::io::{self, IsTerminal, Write};
// The ticker is a thread of the command line tool. It uses the types of std, because no model runs it.
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::Point;

/// The time between two lines if there is no terminal.
const LINES: Duration = Duration::from_secs(5);
/// The time between two updates of the bar.
const PICTURES: Duration = Duration::from_millis(200);

/// The progress of one point.
struct Counted {
    all: u64,
    /// The number of operations that the point has made.
    made: ProgressBar,
    /// Whether the point ends after a time. Then `all` is only a limit, and does not show when the point ends.
    timed: bool,
}

/// The progress of all points.
pub(super) struct Progress {
    began: Instant,
    points: Vec<Counted>,
    names: Vec<String>,
    /// The number of points that have ended, and the point that began last.
    state: Mutex<(usize, usize)>,
}

impl Progress {
    pub(super) fn new(points: &[&Point], names: Vec<String>) -> Self {
        let of = |point: &&Point| Counted {
            all: point.setting.ops.max(1),
            made: ProgressBar::hidden(),
            timed: point.setting.duration_ns.is_some(),
        };
        Self {
            began: Instant::now(),
            points: points.iter().map(of).collect(),
            names,
            state: Mutex::default(),
        }
    }

    /// Records that a point begins, and returns its counter.
    pub(super) fn begin(&self, point: usize) -> &ProgressBar {
        self.state.lock().expect("no thread panics while it holds this").1 = point;
        &self.points[point].made
    }

    /// Records that a point has ended, even if it has made fewer operations than planned.
    pub(super) fn end(&self, point: usize) {
        let Counted { all, made, .. } = &self.points[point];
        made.set_position(*all);
        self.state.lock().expect("no thread panics while it holds this").0 += 1;
    }

    /// Returns the share of the operations that have been made.
    fn share(&self) -> f64 {
        let (mut made, mut all) = (0.0, 0.0);
        for point in &self.points {
            let position = point.made.position().min(point.all);
            if !point.timed || position == point.all {
                made += position as f64;
            }
            all += point.all as f64;
        }
        made / f64::max(all, 1.0)
    }

    /// Returns the share, and a text for the user at the time `passed`.
    fn words(&self, passed: Duration) -> (f64, String) {
        let (ended, current) = *self.state.lock().expect("no thread panics while it holds this");
        let share = self.share();
        let left = match share {
            share if share > 0.0 => {
                let left = passed.as_secs_f64() * (1.0 - share) / share;
                format!(
                    "about {} left",
                    minutes(Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX))
                )
            }
            _ => "no estimate yet".to_owned(),
        };
        let name = self.names.get(current).map_or("", String::as_str);
        let words = format!(
            "{ended} of {} points, {} passed, {left}: {name}",
            self.points.len(),
            minutes(passed)
        );
        (share, words)
    }

    /// Shows the progress until the other end of `over` is dropped.
    pub(super) fn show(&self, over: &mpsc::Receiver<()>) {
        if io::stderr().is_terminal() {
            self.draw(over);
        } else {
            self.write_lines(over, LINES, &mut io::stderr());
        }
    }

    fn draw(&self, over: &mpsc::Receiver<()>) {
        const STEPS: u64 = 1000;
        let bar = ProgressBar::new(STEPS);
        let style = ProgressStyle::with_template("{bar:30} {percent:>3}% {msg}");
        bar.set_style(style.expect("a valid template"));
        while over.recv_timeout(PICTURES) == Err(mpsc::RecvTimeoutError::Timeout) {
            let (share, words) = self.words(self.began.elapsed());
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a share of 1000"
            )]
            bar.set_position((share * STEPS as f64) as u64);
            bar.set_message(words);
        }
        bar.finish_and_clear();
    }

    fn write_lines(&self, over: &mpsc::Receiver<()>, every: Duration, to: &mut impl Write) {
        while over.recv_timeout(every) == Err(mpsc::RecvTimeoutError::Timeout) {
            let (share, words) = self.words(self.began.elapsed());
            // Standard error may be closed; the run continues.
            let _unheard = writeln!(to, "dmkit: {:.0} %, {words}", share * 100.0);
        }
    }
}

/// Formats a time as minutes and seconds, or hours, minutes and seconds.
fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy;

    fn two_points() -> Progress {
        let points = [toy::point(1, 300), toy::point(2, 100)];
        let points: Vec<&Point> = points.iter().collect();
        Progress::new(&points, vec!["one".to_owned(), "two".to_owned()])
    }

    #[test]
    fn the_rest_takes_as_long_as_its_operations() {
        let progress = two_points();
        let after = Duration::from_secs(90);
        assert_eq!(
            progress.words(after),
            (0.0, "0 of 2 points, 1:30 passed, no estimate yet: one".to_owned())
        );
        progress.begin(0).inc(100);
        assert_eq!(
            progress.words(after),
            (
                0.25,
                "0 of 2 points, 1:30 passed, about 4:30 left: one".to_owned()
            )
        );
        // A point that ends early has no operations left.
        progress.end(0);
        progress.begin(1);
        assert_eq!(
            progress.words(after),
            (
                0.75,
                "1 of 2 points, 1:30 passed, about 0:30 left: two".to_owned()
            )
        );
        assert_eq!(minutes(Duration::from_secs(7265)), "2:01:05");
    }

    #[test]
    fn a_point_that_time_ends_counts_when_it_has_ended() {
        let points = [1, 2].map(|clients| {
            let mut point = toy::point(clients, 1_000_000);
            point.setting.duration_ns = Some(1_000);
            point
        });
        let points: Vec<&Point> = points.iter().collect();
        let progress = Progress::new(&points, vec![String::new(); 2]);
        progress.begin(0).inc(1_000);
        assert!(
            progress
                .words(Duration::from_secs(9))
                .1
                .contains("no estimate yet")
        );
        progress.end(0);
        assert!(
            progress
                .words(Duration::from_secs(9))
                .1
                .contains("about 0:09 left")
        );
    }

    #[test]
    fn without_a_terminal_there_is_a_line_every_so_often() {
        let progress = two_points();
        progress.begin(0).inc(200);
        let (sender, over) = mpsc::channel();
        let mut text = Vec::new();
        std::thread::scope(|scope| {
            let (progress, text) = (&progress, &mut text);
            scope.spawn(move || progress.write_lines(&over, Duration::from_millis(5), text));
            let (_never, end) = mpsc::channel::<()>();
            assert!(end.recv_timeout(Duration::from_millis(100)).is_err());
            drop(sender);
        });
        let text = String::from_utf8(text).unwrap();
        assert!(text.lines().count() >= 2, "{text}");
        assert!(
            text.starts_with("dmkit: 50 %, 0 of 2 points, 0:00 passed, about 0:0"),
            "{text}"
        );
    }
}
