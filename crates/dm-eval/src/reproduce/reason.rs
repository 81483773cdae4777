//! The reason why a claim is missed. It is computed from the rows of the run, so it cannot become stale.
//!
//! A miss counts as understood only if the reason covers the whole gap. There are seven such reasons ([`KINDS`] has them
//! for readers of the table):
//! * A resource would have to be busy for more than all the time to reach the paper's number.
//! * The same resource makes the mean latency of all clients larger than the paper's 99th percentile.
//! * A latency is the paper's relative to the mean latency, and its miss is that of the throughput.
//! * Clients wait for locks, and without these waits they would reach the number.
//! * The entries alone take more memory than the paper's number.
//! * One key and one address of each leaf take more cache than the paper's number.
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
/// The bytes of an address of a leaf.
const ADDRESS: f64 = 6.0;
/// The bytes of a reference to an item's block.
const REFERENCE: f64 = 8.0;
/// Two quotients that differ by at most this share count as the same.
const SAME: f64 = 0.1;
/// Waits below this share of the clients' time (in percent) are not mentioned.
const NAMED: f64 = 10.0;

/// The kinds of reasons, for readers of the table of claims.
pub(crate) const KINDS: [(&str, &str); 7] = [
    (
        "A resource would have to be busy more than 100 % of the time",
        "the paper's number needs a larger throughput. With the same work for each operation, this throughput is more than \
         the busiest resource of the model allows, however busy it is now.",
    ),
    (
        "The mean latency is above the paper's 99th percentile",
        "a resource is busy nearly all the time. Each client makes one operation at a time, so the mean latency of the \
         clients cannot be lower at the bound of this resource.",
    ),
    (
        "Relative to the mean latency, the latency is the paper's",
        "each client makes one operation at a time, so the mean latency is the number of clients over the throughput. The \
         latency as a multiple of the mean is within 20 % of the paper's multiple. The throughput at the same points has a \
         claim of its own, which is reproduced, or missed with a reason.",
    ),
    (
        "Clients wait for locks",
        "without these waits, the throughput could be the paper's.",
    ),
    (
        "The entries take more memory",
        "a key and its value, or a key, a reference and the item's block, take more bytes than the paper's number in leaves \
         as full as the experiment's, and nearly all bytes of the model.",
    ),
    (
        "Keys and addresses take more cache",
        "one key and one address for each leaf take more bytes than the paper's number, and nearly all bytes of the model.",
    ),
    (
        "A write leaves the key as it is",
        "with the bytes of the key, it has the paper's number of bytes.",
    ),
];

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
    /// The number of keys in a leaf, if the experiment says how many entries a leaf has.
    pub(crate) keys_per_leaf: Option<f64>,
}

/// The model's figure and the paper's number of one claim.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Compared {
    pub(crate) model: f64,
    pub(crate) paper: f64,
}

impl Compared {
    /// Returns the model's figure as a multiple of the paper's number.
    fn ratio(self) -> f64 {
        self.model / self.paper
    }

    /// Returns the comparison of the inverse quotients.
    pub(crate) fn inverse(self) -> Self {
        Self {
            model: 1.0 / self.model,
            paper: 1.0 / self.paper,
        }
    }
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
            .filter(|_| slow.bound().is_some())
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

/// Explains a latency that is the paper's relative to the mean latency. In quotients, `latency` and `throughput` have the
/// same dividend. `what` names the claim about the throughput at the same points, `grade` is its grade in words, and
/// `own` are its own numbers, whose dividend may be the other point.
///
/// In a closed loop, the mean latency is the number of clients over the throughput. The paper's clients are as many as
/// the model's, so the model's multiple of the mean, divided by the paper's, is the product of the two ratios. Returns
/// `None` if this product is not within the tolerance.
pub(crate) fn late_as_the_mean(
    latency: Compared,
    throughput: Compared,
    (what, grade, own): (&str, &str, Compared),
) -> Option<Reason> {
    let relative = latency.ratio() * throughput.ratio() - 1.0;
    (relative.abs() <= TOLERANCE).then(|| {
        understood(format!(
            "Each client makes one operation at a time, so the mean latency is the number of clients over the throughput. \
             As a multiple of the mean latency, this latency is within {:.0} % of the paper's ({:+.0} %). The rest of the \
             miss is that of the throughput: the claim {what:?} is {grade} ({:+.0} %).",
            100.0 * TOLERANCE,
            100.0 * relative,
            100.0 * (own.ratio() - 1.0)
        ))
    })
}

/// Explains bytes of an index cache that are more than the paper's, if they are little more than one key and one address
/// of each leaf need.
pub(crate) fn cache_too_large(model: f64, paper: f64, point: &Point) -> Reason {
    let keys = point.loaded.and_then(|loaded| loaded.keys_per_leaf);
    let needs = keys.map(|keys| (keys, (point.key + ADDRESS) / keys));
    match needs.filter(|(_, least)| *least > paper && model <= least * ENTRIES_ALONE) {
        Some((keys, least)) => understood(format!(
            "A leaf has {} keys, so a cache with a key of {} B and an address of {ADDRESS} B for each leaf takes at least {} B \
             per key. The paper's number leaves {} B for each leaf.",
            figure(keys),
            point.key,
            figure(least),
            figure(paper * keys)
        )),
        None => not_understood(&[Some(point)]),
    }
}

/// Returns a text if a quotient of two points is that of the work of an operation: on both sides, the same kind of
/// resource is busy nearly all the time, and the quotient of the bytes or verbs that it serves is the claim's. This says
/// where the gap is, but does not explain it. `quotient` is `of` by `over`, and larger for more work.
pub(crate) fn counted_not_timed(quotient: f64, of: &Point, over: &Point) -> Option<String> {
    let served = |point: &Point| {
        let kinds = [
            ("link out", Metric::ReadBytes, "bytes that an operation reads"),
            ("responder", Metric::Verbs, "verbs of an operation"),
        ];
        point.bound()?;
        let busiest = point.busiest.as_deref()?;
        kinds.into_iter().find(|(kind, ..)| busiest.starts_with(kind))
    };
    let (kind, metric, work) = served(of).filter(|kind| Some(*kind) == served(over))?;
    let counted = of.get(metric)? / over.get(metric)?;
    ((counted / quotient - 1.0).abs() <= SAME).then(|| {
        format!(
            " The {kind} is busy on both sides, and the quotient of the {work} is {}: the gap is counted, not timed.",
            figure(counted)
        )
    })
}

/// Explains bytes on memory nodes that are more than the paper's, if they are little more than the entries need. If each
/// item has a block outside of the leaves, the entry has a reference to it, and the block counts too.
pub(crate) fn too_large(model: f64, paper: f64, point: &Point) -> Reason {
    let block = point.get(Metric::BlockBytes).unwrap_or(0.0);
    let entry = if block > 0.0 {
        point.key + REFERENCE
    } else {
        point.item
    };
    let needs = point.loaded.map(|of| (of.fill, entry / of.fill));
    match needs.filter(|(_, least)| least + block > paper && model <= (least + block) * ENTRIES_ALONE) {
        Some((fill, least)) if block > 0.0 => understood(format!(
            "Entries of {entry} B in leaves that are {:.0} % full, and a block of {block} B for each item, take at least {} B \
             per key; the paper's number leaves {} B for a block.",
            100.0 * fill,
            figure(least + block),
            figure((paper - least).max(0.0))
        )),
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

/// Returns a text if the point's busiest resource would have to be busy for more than all the time at `factor` times the
/// point's throughput. How busy it is now does not matter.
fn bound_too_low(factor: f64, slow: &Point) -> Option<String> {
    let share = slow.get(Metric::OfBound)?;
    let needed = share * factor;
    (needed > 100.0).then(|| {
        format!(
            "{}: {} is {share:.0} % busy. The paper's number needs {factor:.2} times this throughput. With the same work for \
             each operation, the resource would have to be busy {needed:.0} % of the time.",
            slow.name,
            slow.resource()
        )
    })
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
                keys_per_leaf: None,
            });
            point.metrics.extend([(Metric::P50, p50), (Metric::P99, p99)]);
            point
        };
        let median = too_late(Metric::P50, 1.4, &with(10.0, 20.0), None);
        assert!(
            median.understood && median.text.contains("busy 137 %"),
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
            loaded: Some(Loaded {
                fill,
                clients: 40.0,
                keys_per_leaf: None,
            }),
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
                && bound.text.contains("busy 126 %"),
            "{bound:?}"
        );
        // A resource that is idle for 30 % of the time allows 1.42 times the throughput, but not twice.
        assert!(!too_slow(1.42, &point(4.0, 70.0, 0.0), None).understood);
        let twice = too_slow(2.0, &point(4.0, 70.0, 0.0), None);
        assert!(
            twice.understood && twice.text.contains("busy 140 % of the time"),
            "{twice:?}"
        );
        // The clients do not wait in its queue, so it does not explain their median latency.
        let mut calm = point(4.0, 70.0, 0.0);
        calm.metrics.extend([(Metric::P50, 10.0), (Metric::P99, 11.0)]);
        assert!(!too_late(Metric::P50, 2.0, &calm, None).understood);
        // Without waits for a quarter of the time, the throughput could be a third larger, but not more.
        assert!(too_slow(1.3, &point(4.0, 70.0, 25.0), None).understood);
        let waits = too_slow(1.4, &point(4.0, 70.0, 25.0), None);
        assert!(
            !waits.understood && waits.text.contains("25 % of their time"),
            "{waits:?}"
        );
    }

    /// The claims are pairs of a latency and the throughput at the same points, each with the model's figure and the
    /// paper's number. A latency that is another multiple of the mean latency than the paper's stays open.
    #[test]
    fn a_latency_may_be_the_papers_relative_to_the_mean() {
        let reason = |latency: (f64, f64), throughput: Compared, own: Compared| {
            let latency = Compared {
                model: latency.0,
                paper: latency.1,
            };
            late_as_the_mean(latency, throughput, ("throughput", "missed", own))
        };
        // The dividend of a quotient of latencies is the slower system, and that of throughputs the faster one.
        let quotients = |latency: (f64, f64), (model, paper): (f64, f64)| {
            let own = Compared { model, paper };
            reason(latency, own.inverse(), own)
        };
        // The text gives the deviation of the claim about the throughput as the table does.
        let text = quotients((1.24, 1.7), (1.19, 1.6)).unwrap().text;
        assert!(text.contains("is missed (-26 %)"), "{text}");
        for (latency, throughput) in [
            // CHIME Fig. 15 a, LOAD: median and p99.
            ((1.24, 1.7), (1.19, 1.6)),
            ((1.04, 1.4), (1.19, 1.6)),
            // Sherman Fig. 10 a and b, and a step of b.
            ((22.7, 35.8), (15.6, 24.7)),
            ((18.8, 30.2), (15.2, 23.6)),
            ((1.52, 3.18), (1.51, 3.37)),
        ] {
            let found = quotients(latency, throughput);
            assert!(found.is_some_and(|reason| reason.understood), "{latency:?}");
        }
        for (latency, throughput) in [
            // Sherman Fig. 11 a.
            ((1.21, 2.01), (1.28, 1.24)),
            // SMART Fig. 18: LOAD, A and C.
            ((1.04, 1.4), (1.43, 1.5)),
            ((0.973, 11.3), (0.965, 3.0)),
            ((0.781, 1.3), (1.08, 1.1)),
            // Sherman Fig. 16: p99 of two steps.
            ((2.25, 3.65), (3.60, 3.85)),
            ((2.22, 3.19), (2.54, 2.34)),
        ] {
            assert_eq!(quotients(latency, throughput), None, "{latency:?}");
        }
        // Sherman Table 1: a latency in microseconds, and a throughput that is larger than the paper's.
        let throughput = Compared {
            model: 21.1,
            paper: 18.7,
        };
        let alone = reason((14.7, 19.0), throughput, throughput).unwrap();
        assert!(
            alone.text.contains("of the paper's (-13 %)") && alone.text.contains("is missed (+13 %)"),
            "{alone:?}"
        );
        assert_eq!(reason((12.0, 19.0), throughput, throughput), None);
    }

    /// Entries of 16 bytes in half-full leaves and blocks of 64 bytes are 96 bytes per key.
    #[test]
    fn a_block_of_each_item_counts_with_the_entries() {
        let with_block = |bytes: f64| {
            let mut point = point(4.0, 50.0, 0.0);
            point.loaded = Some(Loaded {
                fill: 0.5,
                clients: 40.0,
                keys_per_leaf: None,
            });
            point.metrics.insert(Metric::BlockBytes, bytes);
            point
        };
        let found = too_large(110.0, 50.8, &with_block(64.0));
        assert!(
            found.understood
                && found.text.contains("at least 96.0 B per key")
                && found.text.contains("leaves 18.8 B for a block"),
            "{found:?}"
        );
        assert!(
            !too_large(121.0, 50.8, &with_block(64.0)).understood,
            "more than these"
        );
        assert!(!too_large(110.0, 50.8, &with_block(0.0)).understood, "no block");
        assert!(
            !too_large(118.0, 97.0, &with_block(64.0)).understood,
            "the paper's would do"
        );
    }

    /// A leaf has 16 entries and is 70 % full, so a key of 8 bytes and an address take 1.25 bytes per key.
    #[test]
    fn a_key_and_an_address_of_each_leaf_explain_a_cache() {
        let cached = |keys_per_leaf: Option<f64>| Point {
            loaded: Some(Loaded {
                fill: 0.7,
                clients: 40.0,
                keys_per_leaf,
            }),
            ..point(4.0, 50.0, 0.0)
        };
        let small = cached(Some(11.2));
        let found = cache_too_large(1.35, 0.52, &small);
        assert!(
            found.understood
                && found.text.contains("at least 1.25 B")
                && found.text.contains("leaves 5.82 B for each leaf"),
            "{found:?}"
        );
        assert!(!cache_too_large(1.6, 0.52, &small).understood, "more than these");
        assert!(
            !cache_too_large(1.6, 1.3, &small).understood,
            "the paper's would do"
        );
        assert!(!cache_too_large(1.35, 0.52, &cached(None)).understood);
    }

    /// Both sides read all the time, and the quotient is that of their bytes.
    #[test]
    fn a_quotient_of_counts_is_said() {
        let reads = |busiest: &str, of_bound: f64, bytes: f64| {
            let mut point = point(4.0, of_bound, 0.0);
            point.metrics.insert(Metric::ReadBytes, bytes);
            point.busiest = Some(busiest.to_owned());
            point
        };
        let link = "link out of machine 0";
        let (of, over) = (reads(link, 100.0, 28_300.0), reads(link, 100.0, 12_700.0));
        let text = counted_not_timed(2.16, &of, &over).unwrap();
        assert!(text.contains("bytes that an operation reads is 2.23"), "{text}");
        assert_eq!(counted_not_timed(1.8, &of, &over), None, "another quotient");
        assert_eq!(counted_not_timed(2.16, &of, &reads(link, 80.0, 12_700.0)), None);
        let responder = reads("responder of machine 0", 100.0, 12_700.0);
        assert_eq!(counted_not_timed(2.16, &of, &responder), None);
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
