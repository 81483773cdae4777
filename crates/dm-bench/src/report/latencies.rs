//! Latencies as text, so that rows of several machines can be combined without losing their percentiles.

use std::fmt::Write;

use hdrhistogram::Histogram;

/// Number of significant digits of every histogram here.
const DIGITS: u8 = 3;

/// A histogram that a row can contain: `nanoseconds:count` pairs.
#[derive(Debug)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn none() -> Self {
        Self(Histogram::new(DIGITS).expect("3 digits are in range"))
    }

    /// Returns a histogram as text.
    pub(crate) fn text(histogram: &Histogram<u64>) -> String {
        let mut text = String::new();
        for bucket in histogram.iter_recorded() {
            let separator = if text.is_empty() { "" } else { " " };
            let (value, count) = (bucket.value_iterated_to(), bucket.count_at_value());
            let _ = write!(text, "{separator}{value}:{count}");
        }
        text
    }

    /// Adds the counts of a histogram that is given as text.
    pub(crate) fn add(&mut self, text: &str) -> Result<(), String> {
        for pair in text.split_whitespace() {
            let parsed = pair
                .split_once(':')
                .and_then(|(value, count)| Some((value.parse().ok()?, count.parse().ok()?)));
            let recorded = parsed.is_some_and(|(value, count)| self.0.record_n(value, count).is_ok());
            if !recorded {
                return Err(format!("{pair:?} is not a latency with its count"));
            }
        }
        Ok(())
    }

    /// Returns the mean in microseconds.
    pub(crate) fn mean_us(&self) -> f64 {
        self.0.mean() / 1e3
    }

    /// Returns a quantile in microseconds.
    pub(crate) fn quantile_us(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_halves_are_the_whole() {
        let mut whole = Histogram::<u64>::new(DIGITS).unwrap();
        let mut halves = [whole.clone(), whole.clone()];
        for i in 0..10_000_u64 {
            let value = 500 + i * i % 77_777;
            whole.record(value).unwrap();
            halves[(i % 2) as usize].record(value).unwrap();
        }
        let mut sum = Latencies::none();
        for half in &halves {
            sum.add(&Latencies::text(half)).unwrap();
        }
        for q in [0.5, 0.9, 0.99, 1.0] {
            let (ours, all) = (sum.quantile_us(q), whole.value_at_quantile(q) as f64 / 1e3);
            assert!((ours - all).abs() <= all / 1000.0, "{q}: {ours} and {all}");
        }
        assert!(Latencies::none().add("12").is_err());
    }
}
