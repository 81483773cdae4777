//! The reason why a claim is missed. It is computed from the rows of the run, so it cannot become stale.
//!
//! A miss counts as understood only if the reason covers the whole gap. There are five such reasons:
//! * A resource is busy nearly all the time, and its own bound is below the paper's number.
//! * The same resource makes the mean latency of all clients larger than the paper's 99th percentile.
//! * Clients wait for locks, and without these waits they would reach the number.
//! * The entries alone take more memory than the paper's number.
//! * A write has fewer bytes than an item, and with the key's bytes it has the paper's number.
//!
//! Everything else is "not understood", with the measured facts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::grade::TOLERANCE;
use super::metric::Metric;
use dm_bench::report::figure;

/// A resource that is busy for at least this share of the time (in percent) limits the throughput.
const BINDS: f64 = 90.0;
/// If the 99th percentile is at most this multiple of the median, nearly all operations wait in one queue.
const ONE_QUEUE: f64 = 2.0;
/// Bytes of an index up to this multiple of those that its entries need are explained by the entries.
const ENTRIES_ALONE: f64 = 1.25;
/// Waits below this share of the clients' time (in percent) are not mentioned.
const NAMED: f64 = 10.0;

/// One point of a claim, with the means over the seeds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Point {
    /// The series, and the place on the dial.
    pub(crate) name: String,
    pub(crate) metrics: BTreeMap<Metric, f64>,
    /// The busiest resource of the first seed.
    pub(crate) busiest: Option<String>,
    pub(crate) loaded: Option<Loaded>,
    /// Bytes of a key.
    pub(crate) key: f64,
    /// Bytes of a key and its value.
    pub(crate) item: f64,
}

/// How a point's keys were loaded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Loaded {
    /// The share of a leaf's slots that are filled.
    pub(crate) fill: f64,
    /// The number of clients, each of which makes one operation at a time.
    pub(crate) clients: f64,
}

/// The result of the search for a reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reason {
    /// Whether the reason covers the whole gap.
    pub(crate) understood: bool,
    pub(crate) text: String,
}

impl Point {
    fn get(&self, metric: Metric) -> Option<f64> {
        self.metrics
            .get(&metric)
            .copied()
            .filter(|value| value.is_finite())
    }

    fn resource(&self) -> &str {
        self.busiest.as_deref().unwrap_or("its busiest resource")
    }

    /// Returns the share of time for which the busiest resource is busy, if that is nearly all the time.
    fn bound(&self) -> Option<f64> {
        self.get(Metric::OfBound).filter(|share| *share >= BINDS)
    }

    /// Returns the facts that may explain the point's throughput or latency.
    fn facts(&self) -> String {
        let mut facts = Vec::new();
        if let Some(mops) = self.get(Metric::Mops) {
            facts.push(format!("{} Mops", figure(mops)));
        }
        if let Some(bytes) = self.get(Metric::UpdateBytes) {
            facts.push(format!("an update writes {} bytes", figure(bytes)));
        }
        if let Some(share) = self.get(Metric::OfBound) {
            facts.push(format!("{} {share:.0} % busy", self.resource()));
        }
        if let Some(waits) = self.get(Metric::LockWaits).filter(|waits| *waits >= NAMED) {
            facts.push(format!("clients wait for locks {waits:.0} % of their time"));
        }
        if let Some(retries) = self.get(Metric::LockRetries).filter(|retries| *retries >= 0.1) {
            facts.push(format!("{} failed CAS an operation", figure(retries)));
        }
        format!("{}: {}", self.name, facts.join(", "))
    }
}

/// Explains a throughput that would have to be `factor` times as large. `slow` is the point that is too slow; `other`
/// is the other point of the quotient.
pub(crate) fn too_slow(factor: f64, slow: &Point, other: Option<&Point>) -> Reason {
    let rest = other
        .map(|other| format!(" {}.", other.facts()))
        .unwrap_or_default();
    if let Some(text) = bound_too_low(factor, slow) {
        return understood(text + &rest);
    }
    let waits = slow.get(Metric::LockWaits).unwrap_or(0.0);
    if waits >= NAMED && factor * (1.0 - waits / 100.0) <= 1.0 {
        let text = format!(
            "{}: clients wait for locks {waits:.0} % of their time. The paper's number needs {factor:.2} times this \
             throughput; without these waits it could be {:.2} times as large.{rest}",
            slow.name,
            1.0 / (1.0 - waits / 100.0)
        );
        return understood(text);
    }
    not_understood(&[Some(slow), other])
}

/// Explains a latency that would have to be divided by `factor`. `slow` is the point whose operations take too long;
/// `other` is the other point of the quotient.
///
/// A client begins its next operation when the last one has ended, so the mean latency times the throughput is the
/// number of clients. If nearly all operations wait in one queue, the median falls only with the mean; the 99th
/// percentile hardly ever falls below the mean.
pub(crate) fn too_late(metric: Metric, factor: f64, slow: &Point, other: Option<&Point>) -> Reason {
    let (p50, p99) = (slow.get(Metric::P50), slow.get(Metric::P99));
    let explained = match metric {
        Metric::P50 => bound_too_low(factor, slow)
            .filter(|_| p50.zip(p99).is_some_and(|(p50, p99)| p99 <= ONE_QUEUE * p50))
            .map(|text| format!("The clients wait in one queue, which becomes shorter only as throughput rises. {text}")),
        _ => p99.filter(|_| metric == Metric::P99).and_then(|p99| {
            let (mops, share) = slow.get(Metric::Mops).zip(slow.bound())?;
            let mean = slow.loaded?.clients / mops * share / 100.0;
            (p99 / factor < mean).then(|| {
                format!(
                    "{}: {} is {share:.0} % busy, so the mean latency of its clients is at least {} µs. The paper's number \
                     needs a 99th percentile below it.",
                    slow.name,
                    slow.resource(),
                    figure(mean)
                )
            })
        }),
    };
    explained.map_or_else(|| not_understood(&[Some(slow), other]), understood)
}

/// Explains bytes on memory nodes that are more than the paper's, if they are little more than the entries need.
pub(crate) fn too_large(model: f64, paper: f64, point: &Point) -> Reason {
    let entry = point.item;
    let needs = point.loaded.map(|of| (of.fill, entry / of.fill));
    match needs.filter(|(_, least)| *least > paper && model <= least * ENTRIES_ALONE) {
        Some((fill, least)) => understood(format!(
            "Entries of {entry} B in leaves that are {:.0} % full take at least {} B per key; the paper's number needs \
             leaves that are at least {:.0} % full.",
            100.0 * fill,
            figure(least),
            100.0 * entry / paper
        )),
        None => not_understood(&[Some(point)]),
    }
}

/// Explains bytes of a write that are fewer than the paper's, if they cannot include the key, and the key makes the
/// difference. `unit` is the number of bytes that a figure of 1 stands for.
pub(crate) fn without_key(model: f64, paper: f64, unit: f64, point: &Point) -> Reason {
    let with = model * unit + point.key;
    let lacks_key = model * unit < point.item;
    if lacks_key && model < paper && (with / (paper * unit) - 1.0).abs() <= TOLERANCE {
        return understood(format!(
            "{}: a write of {} B is shorter than an item, so it leaves the key as it is. With the key's {} B it would write {} B; the \
             paper's number is {} B.",
            point.name,
            figure(model * unit),
            point.key,
            figure(with),
            figure(paper * unit)
        ));
    }
    not_understood(&[Some(point)])
}

/// Returns a text if the point's busiest resource is busy nearly all the time, and allows less than `factor` times the
/// point's throughput.
fn bound_too_low(factor: f64, slow: &Point) -> Option<String> {
    let share = slow.bound().filter(|share| share * factor > 100.0)?;
    Some(format!(
        "{}: {} is {share:.0} % busy. The paper's number needs {factor:.2} times this throughput, which is {:.0} % more \
         than this resource allows.",
        slow.name,
        slow.resource(),
        share * factor - 100.0
    ))
}

fn understood(text: String) -> Reason {
    Reason {
        understood: true,
        text,
    }
}

/// States the facts about points whose difference from the paper is not explained by the rows.
pub(crate) fn not_understood(points: &[Option<&Point>]) -> Reason {
    let facts: Vec<String> = points.iter().flatten().map(|point| point.facts()).collect();
    Reason {
        understood: false,
        text: format!("Not understood. {}.", facts.join("; ")).replace(" .", ""),
    }
}

/// Returns why a quotient above the paper's is fair: the baseline keeps its busiest resource busy nearly all the time.
/// Returns the facts as an error if it does not.
pub(crate) fn fairness(baseline: Option<&Point>) -> Result<String, String> {
    let Some(baseline) = baseline else {
        return Err(
            "There is no baseline, so a larger number only shows that the model is faster than the card."
                .to_owned(),
        );
    };
    match baseline.bound() {
        Some(share) => Ok(format!(
            "Fair: the baseline {} uses {} for {share:.0} % of the time, so the excess is not a handicap of the baseline.",
            baseline.name,
            baseline.resource()
        )),
        _ => Err(format!(
            "The excess is not shown to be fair, because no resource limits the baseline. {}.",
            baseline.facts()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(mops: f64, of_bound: f64, waits: f64) -> Point {
        let metrics = [
            (Metric::Mops, mops),
            (Metric::OfBound, of_bound),
            (Metric::LockWaits, waits),
        ];
        Point {
            name: "x at 8".to_owned(),
            metrics: metrics.into_iter().collect(),
            busiest: Some("responder of memory node 0".to_owned()),
            loaded: None,
            key: 8.0,
            item: 16.0,
        }
    }

    /// A bound does not explain the median of a latency with a long tail. Half-full leaves explain memory only if their
    /// entries need more than the paper's number and nearly all of the model's.
    #[test]
    fn only_one_queue_explains_a_median_and_only_entries_explain_memory() {
        let with = |p50: f64, p99: f64| {
            let mut point = point(4.0, 98.0, 0.0);
            point.loaded = Some(Loaded {
                fill: 0.5,
                clients: 40.0,
            });
            point.metrics.extend([(Metric::P50, p50), (Metric::P99, p99)]);
            point
        };
        let median = too_late(Metric::P50, 1.4, &with(10.0, 20.0), None);
        assert!(
            median.understood && median.text.contains("37 % more"),
            "{median:?}"
        );
        assert!(!too_late(Metric::P50, 1.4, &with(10.0, 90.0), None).understood);
        assert!(!too_late(Metric::P50, 1.01, &with(10.0, 20.0), None).understood);
        // With 40 clients and 4 Mops, the mean is 10 µs, or 9.8 µs at the bound.
        let tail = too_late(Metric::P99, 3.0, &with(8.0, 29.0), None);
        assert!(
            tail.understood && tail.text.contains("at least 9.80 µs"),
            "{tail:?}"
        );
        assert!(!too_late(Metric::P99, 2.9, &with(8.0, 29.0), None).understood);
        let loaded = |fill| Point {
            loaded: Some(Loaded { fill, clients: 40.0 }),
            ..point(4.0, 50.0, 0.0)
        };
        let half = too_large(38.0, 27.3, &loaded(0.5));
        assert!(
            half.understood
                && half.text.contains("at least 32.0 B per key")
                && half.text.contains("59 % full"),
            "{half:?}"
        );
        assert!(
            !too_large(41.0, 27.3, &loaded(0.5)).understood,
            "more than entries"
        );
        assert!(
            !too_large(28.0, 27.3, &loaded(0.7)).understood,
            "the paper's would do"
        );
    }

    /// The same gap is understood or not, depending on the rows alone.
    #[test]
    fn a_reason_covers_the_whole_gap_or_is_none() {
        let bound = too_slow(1.3, &point(4.0, 97.0, 0.0), None);
        assert!(bound.understood, "{bound:?}");
        assert!(
            bound.text.contains("responder of memory node 0 is 97 % busy")
                && bound.text.contains("26 % more"),
            "{bound:?}"
        );
        // A resource that is idle for 30 % of the time is not the reason, whatever its bound.
        assert!(!too_slow(2.0, &point(4.0, 70.0, 0.0), None).understood);
        // Without waits for a quarter of the time, the throughput could be a third larger, but not more.
        assert!(too_slow(1.3, &point(4.0, 70.0, 25.0), None).understood);
        let waits = too_slow(1.4, &point(4.0, 70.0, 25.0), None);
        assert!(
            !waits.understood && waits.text.contains("25 % of their time"),
            "{waits:?}"
        );
    }

    #[test]
    fn bytes_of_a_write_are_explained_if_the_key_is_missing_in_them() {
        let point = point(4.0, 50.0, 0.0);
        let bytes = without_key(8.0, 17.0, 1.0, &point);
        assert!(
            bytes.understood && bytes.text.contains("would write 16.0 B"),
            "{bytes:?}"
        );
        // 0.5 of an item of 16 B, and 8 B of the key, are 16 B of 17.6.
        assert!(without_key(0.5, 1.1, 16.0, &point).understood);
        assert!(
            !without_key(8.0, 25.0, 1.0, &point).understood,
            "more than the key is missing"
        );
        assert!(
            !without_key(18.0, 12.0, 1.0, &point).understood,
            "more bytes than the paper's"
        );
        assert!(
            !without_key(16.0, 25.0, 1.0, &point).understood,
            "an item with its key"
        );
    }

    #[test]
    fn only_a_baseline_at_its_own_bound_makes_an_excess_fair() {
        assert!(fairness(Some(&point(4.0, 95.0, 0.0))).is_ok());
        assert!(
            fairness(Some(&point(4.0, 40.0, 0.0)))
                .unwrap_err()
                .contains("40 % busy")
        );
        assert!(fairness(None).is_err());
    }
}
