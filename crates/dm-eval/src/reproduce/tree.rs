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
    let micros = |q| m.latency.value_at_quantile(q) as f64 / 1e3;
    let seconds = m.steady.until.saturating_sub(m.steady.from).max(1) as f64 / 1e9;
    let share = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
    let keys = m.keys.max(1) as f64;
    let mut metrics = vec![
        (Metric::Mops, m.steady.ops as f64 / seconds / 1e6),
        (Metric::P50, micros(0.5)),
        (Metric::P90, micros(0.9)),
        (Metric::P99, micros(0.99)),
        (Metric::LockRetries, c.lock_retries as f64 / all),
        (Metric::TornReads, c.torn_reads as f64 / all * 1e6),
        (
            Metric::HitRatio,
            share(c.cache_hits, c.cache_hits + c.cache_misses),
        ),
        (Metric::Stale, share(c.stale_reads, c.cache_hits)),
        (Metric::CacheBytesPerKey, m.cache_bytes as f64 / keys),
        (Metric::NodeBytesPerKey, m.remote_bytes as f64 / keys),
        (Metric::WrongValues, m.wrong_values as f64),
        (Metric::Operations, m.steady.ops as f64),
        (Metric::LockWaits, 100.0 * m.lock_waits),
        (Metric::Stall, 100.0 * m.nic.stalled),
        (Metric::Responder, 100.0 * m.nic.worked),
        (Metric::Delegated, share(c.delegated, m.ops)),
        (Metric::Combined, share(c.combined, m.ops)),
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
    if let Some(busiest) = &m.busiest {
        let mops = m.steady.ops as f64 / seconds / 1e6;
        metrics.push((Metric::BoundMops, mops / busiest.share));
        metrics.push((Metric::OfBound, 100.0 * busiest.share));
    }
    if point.setting.share(OpKind::Scan) > 0.0 {
        metrics.push((Metric::ScanMops, m.steady.scans as f64 / seconds / 1e6));
    }
    let w = &m.writes;
    if w.count > 0 {
        let trips = |n| share(w.round_trips.count_at(n), w.count);
        metrics.extend([
            (Metric::TwoTrips, trips(2)),
            (Metric::ThreeTrips, trips(3)),
            (Metric::FourTrips, trips(4)),
            (Metric::TripsP99, w.round_trips.value_at_quantile(0.99) as f64),
            (Metric::WriteBytes, w.bytes.value_at_quantile(0.5) as f64),
            (Metric::Splits, share(w.splits, w.count)),
            (Metric::Handovers, share(c.handovers, w.count)),
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
