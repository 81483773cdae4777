//! Runs a whole tree: a variant of an index with a mix of operations on the simulated testbed.

use dm_bench::{CpuCost, Fabric, Knobs, Measured, OpKind, Point, Registry, RunError, Setting};
use dm_verbs::Nanos;
use dm_workload::ScanLength;
use hdrhistogram::Histogram;

use super::cases::Figures;
use super::metric::Metric;
use super::setup::Resolved;

/// Returns the point of the series named `series`.
///
/// # Errors
/// Returns [`RunError`] if there is no such series, if it does not run with the setup's key size, or if the setup has
/// no mix.
pub(crate) fn point(
    registry: &Registry,
    series: &str,
    setup: &Resolved,
    seed: u64,
) -> Result<Point, RunError> {
    let bad = |e: &dyn std::fmt::Display| RunError::Bad(e.to_string());
    let setting = setting(setup, seed).map_err(|e| bad(&e))?;
    registry.series_point(series, setting).map_err(|e| bad(&e))
}

fn setting(setup: &Resolved, seed: u64) -> Result<Setting, &'static str> {
    let mix = setup.mix.ok_or("the experiment has no mix")?;
    let mut knobs = Knobs::default();
    if let Some(entries) = setup.entries {
        knobs.set("span", entries as u64);
    }
    if let Some(on) = setup.lock_and_read {
        knobs.set("lock-and-read", u64::from(on));
    }
    for (name, &value) in &setup.knobs {
        knobs.set(name, value);
    }
    Ok(Setting {
        compute_nodes: setup.compute_nodes,
        memory_nodes: setup.memory_nodes,
        colocated: setup.colocated,
        clients: setup.clients,
        coroutines: setup.coroutines,
        keys: setup.keys,
        ops: setup.operations,
        mix,
        distribution: setup.distribution,
        ranks: setup.ranks,
        own_updates: setup.own_updates,
        scan_length: ScanLength::Fixed(setup.scan),
        key_bytes: setup.key_bytes,
        value_bytes: setup.value_bytes,
        cache_bytes: setup.cache_bytes,
        fill: setup.fill,
        seed,
        addresses: setup.addresses,
        knobs,
        cpu_cost: scaled(CpuCost::MODEL, setup.cpu_scale),
        by_thread: setup.by_thread,
        steady: true,
        least: setup.window_ns,
        ..Setting::new(Fabric::Sim(Box::new(setup.model.clone())))
    })
}

fn scaled(cpu: CpuCost, by: f64) -> CpuCost {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time times a factor near 1"
    )]
    let scale = |time: Nanos| Nanos((time.0 as f64 * by).round() as u64);
    CpuCost {
        locate: scale(cpu.locate),
        locate_mean: scale(cpu.locate_mean),
        search: scale(cpu.search),
    }
}

/// Returns the figures of a point.
///
/// # Errors
/// Returns [`RunError`] if an operation had a wrong answer.
pub(crate) fn figures(point: &Point, m: &Measured) -> Result<Figures, RunError> {
    if m.wrong_values > 0 {
        return Err(RunError::Bad(format!("{} reads of wrong values", m.wrong_values)));
    }
    let (c, all) = (&m.counters, m.ops.max(1) as f64);
    let (counted, w) = (&m.counted, &m.writes);
    let micros = |q| m.latency.value_at_quantile(q) as f64 / 1e3;
    let seconds = m.steady.until.saturating_sub(m.steady.from).max(1) as f64 / 1e9;
    let share = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
    let keys = m.keys.max(1) as f64;
    let mut metrics = vec![
        (Metric::Mops, m.steady.ops as f64 / seconds / 1e6),
        (Metric::P50, micros(0.5)),
        (Metric::P90, micros(0.9)),
        (Metric::P99, micros(0.99)),
        (
            Metric::LockRetries,
            counted.counters.lock_retries as f64 / counted.ops.max(1) as f64,
        ),
        (Metric::TornReads, c.torn_reads as f64 / all * 1e6),
        (
            Metric::HitRatio,
            share(c.cache_hits, c.cache_hits + c.cache_misses),
        ),
        (
            Metric::Stale,
            share(counted.counters.stale_reads, counted.counters.cache_hits),
        ),
        (Metric::CacheBytesPerKey, m.cache_bytes as f64 / keys),
        (Metric::NodeBytesPerKey, m.remote_bytes as f64 / keys),
        (Metric::WrongValues, m.wrong_values as f64),
        (Metric::Operations, m.steady.ops as f64),
        (Metric::LockWaits, 100.0 * m.lock_waits),
        (Metric::Stall, 100.0 * m.nic.stalled),
        (Metric::Responder, 100.0 * m.nic.worked),
        (Metric::Delegated, share(counted.counters.delegated, counted.gets)),
        (Metric::Combined, share(counted.counters.combined, w.count)),
        (Metric::Verbs, c.verbs() as f64 / all),
        (Metric::RoundTrips, c.round_trips as f64 / all),
        (Metric::ReadBytes, c.bytes_read as f64 / all),
    ];
    if c.speculations > 0 {
        let gets = (m.ops as f64 * point.setting.share(OpKind::Get) - c.delegated as f64).max(1.0);
        metrics.push((Metric::Speculated, 100.0 * c.speculations as f64 / gets));
        let right = c.speculations - c.wrong_speculations;
        metrics.push((Metric::SpeculatedRight, share(right, c.speculations)));
    }
    if point.block_bytes() > 0 {
        metrics.push((Metric::BlockBytes, point.block_bytes() as f64));
    }
    if let Some(busiest) = &m.busiest {
        let mops = m.steady.ops as f64 / seconds / 1e6;
        metrics.push((Metric::BoundMops, mops / busiest.share));
        metrics.push((Metric::OfBound, 100.0 * busiest.share));
    }
    if point.setting.share(OpKind::Scan) > 0.0 {
        metrics.push((Metric::ScanMops, m.steady.scans as f64 / seconds / 1e6));
    }
    if w.count > 0 {
        let trips = |n| share(w.round_trips.count_at(n), w.count);
        metrics.extend([
            (Metric::TwoTrips, trips(2)),
            (Metric::ThreeTrips, trips(3)),
            (Metric::FourTrips, trips(4)),
            (Metric::TripsP99, w.round_trips.value_at_quantile(0.99) as f64),
            (Metric::WriteBytes, w.bytes.value_at_quantile(0.5) as f64),
            (Metric::Splits, share(w.splits, w.count)),
            (Metric::Handovers, share(w.handovers, w.count)),
        ]);
    }
    Ok(Figures {
        // Leave out figures without a finite value, such as the bound of a resource that was never busy.
        metrics: metrics
            .into_iter()
            .filter(|(_, figure)| figure.is_finite())
            .collect(),
        round_trips: distribution(&w.round_trips),
        busiest: m.busiest.map(|busiest| busiest.resource.to_string()),
    })
}

/// Returns a cumulative distribution as steps from 0 to 1.
fn distribution(histogram: &Histogram<u64>) -> Vec<(u64, f64)> {
    let all = histogram.len().max(1) as f64;
    let mut so_far = 0;
    histogram
        .iter_recorded()
        .map(|step| {
            so_far += step.count_at_value();
            (step.value_iterated_to(), so_far as f64 / all)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    // The result belongs to a thread of std, because no model runs it.
    use std::sync::Mutex;

    use dm_bench::{Events, Place, Runs, run_all};
    use dm_shipped::shipped;
    use indicatif::ProgressBar;

    use super::super::setup::Setup;
    use super::*;

    /// The run of one point, and its result, which `of` reads from the figures and from what was measured.
    struct One {
        point: Point,
        of: fn(&Figures, &Measured) -> (f64, f64),
        result: Mutex<Option<(f64, f64)>>,
    }

    impl Runs for One {
        type Result = (f64, f64);

        fn count(&self) -> usize {
            1
        }

        fn point(&self, _number: usize) -> Option<&Point> {
            Some(&self.point)
        }

        fn result(&self, _number: usize, measured: Option<Measured>) -> Result<(f64, f64), RunError> {
            let measured = measured.expect("the run has a point");
            Ok((self.of)(&figures(&self.point, &measured)?, &measured))
        }
    }

    impl Events<(f64, f64)> for One {
        fn stops(&self) -> bool {
            false
        }

        fn begins(&self, _number: usize) -> ProgressBar {
            ProgressBar::hidden()
        }

        fn ended(&self, _number: usize, result: Result<(f64, f64), RunError>) {
            *self.result.lock().unwrap() = Some(result.unwrap());
        }
    }

    /// Runs a series on a small tree, and returns its result.
    fn ran(series: &str, mix: &str, of: fn(&Figures, &Measured) -> (f64, f64)) -> (f64, f64) {
        let setup = Setup {
            model: Some("cx5-ib".to_owned()),
            compute_nodes: Some(2),
            clients: Some(32),
            keys: Some(2_000),
            skew: Some(0.99),
            cache_bytes_per_key: Some(2.0),
            operations: Some(4_000),
            mix: Some(mix.to_owned()),
            ..Setup::without_network()
        };
        let run = One {
            point: point(&shipped(), series, &setup.resolve(None).unwrap(), 1).unwrap(),
            of,
            result: Mutex::default(),
        };
        run_all(&run, Place::Threads, &run, drop);
        run.result.into_inner().unwrap().expect("the run has ended")
    }

    /// Handovers are counted with the writes that got the locks, after the warm-up.
    #[test]
    fn handovers_are_a_share_of_the_counted_writes() {
        let share = |mix| {
            ran("+two-level", mix, |figures, m| {
                let w = &m.writes;
                assert!(w.handovers < m.counters.handovers, "the warm-up is left out");
                let figure = figures.metrics[&Metric::Handovers];
                assert_eq!(figure, 100.0 * w.handovers as f64 / w.count as f64);
                (figure, 100.0 * m.counters.handovers as f64 / m.ops as f64)
            })
        };
        let (of_writes, of_all) = share("update:100");
        assert!(
            of_all > 1.0 && (0.9..1.1).contains(&(of_writes / of_all)),
            "{of_writes} {of_all}"
        );
        // Half of the operations are writes.
        let (of_writes, of_all) = share("get:50,update:50");
        assert!((1.8..2.2).contains(&(of_writes / of_all)), "{of_writes} {of_all}");
    }

    /// A delegated get is one of the gets, and a combined write one of the writes. The shares of all operations would
    /// be those of the mix too.
    #[test]
    fn shared_operations_are_a_share_of_their_kind() {
        let shared = ran("smart", "get:75,update:25", |figures, m| {
            let (counted, all) = (&m.counted.counters, &m.counters);
            assert!(counted.delegated < all.delegated && counted.combined < all.combined);
            assert_eq!((m.counted.ops, m.counted.gets + m.writes.count), (3_000, 3_000));
            let share = |metric, part: u64, of: u64| {
                let figure = figures.metrics[&metric];
                assert_eq!(figure, 100.0 * part as f64 / of as f64);
                figure
            };
            (
                share(Metric::Delegated, counted.delegated, m.counted.gets),
                share(Metric::Combined, counted.combined, m.writes.count),
            )
        });
        assert!(shared.0 > 0.0 && shared.1 > 0.0, "{shared:?}");
    }

    /// With an update, the old leaf's address in the other compute node's cache becomes out of date. Retries of locks
    /// and such addresses are counted after the warm-up, as latencies are.
    #[test]
    fn retries_and_stale_addresses_are_counted_after_the_warm_up() {
        let (stale, _) = ran("art +lock-free", "get:50,update:50", |figures, m| {
            let (counted, all) = (&m.counted.counters, &m.counters);
            assert!(counted.stale_reads < all.stale_reads && counted.cache_hits < all.cache_hits);
            let figure = figures.metrics[&Metric::Stale];
            assert_eq!(
                figure,
                100.0 * counted.stale_reads as f64 / counted.cache_hits as f64
            );
            (figure, 0.0)
        });
        let (retries, _) = ran("fg+", "update:100", |figures, m| {
            assert!(m.counted.counters.lock_retries < m.counters.lock_retries);
            let figure = figures.metrics[&Metric::LockRetries];
            assert_eq!(
                figure,
                m.counted.counters.lock_retries as f64 / m.counted.ops as f64
            );
            (figure, 0.0)
        });
        assert!(stale > 0.0 && retries > 0.0, "{stale} {retries}");
    }
}
