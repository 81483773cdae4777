//! The row of a point: first its settings, then its results.

use dm_workload::Trace;
use twox_hash::XxHash3_64;

use super::limit::limit;
use super::{Latencies, Row};
use crate::origin::Utc;
use crate::{Fabric, Fill, Measured, Origin, Point, ScanLength, Slice};

impl Row {
    /// Returns the row that a point will have, without results.
    pub fn planned(point: &Point, origin: &Origin) -> Self {
        let at = &point.setting;
        let (assumptions, model_hash) = match &at.fabric {
            Fabric::Sim(model) => {
                let assumed: Vec<String> = model.assumptions().iter().map(ToString::to_string).collect();
                // The Debug format contains every parameter, even those that are added later.
                let parameters = format!("{model:?} {:?}", at.cpu_cost);
                let hash = XxHash3_64::oneshot(parameters.as_bytes());
                (assumed.join("; "), format!("{hash:016x}"))
            }
            Fabric::Ib(_) => Default::default(),
            Fabric::Loopback => (
                "in-process memory, lines never torn, CAS→READ in order".to_owned(),
                String::new(),
            ),
        };
        let micros = |nanos: u64| nanos as f64 / 1e3;
        let knobs = at.knobs.to_string().trim_start().to_owned();
        Self {
            index: point.index.clone(),
            variant: point.variant.clone(),
            sharing: at.sharing.map(|s| s.name().to_owned()).unwrap_or_default(),
            knobs,
            recovery: if at.faults.recovery { "" } else { "off" }.to_owned(),
            panel: point.panel.clone(),
            workload: at.mix.to_string(),
            distribution: match at.trace {
                Some(_) => "trace".to_owned(),
                None => at.distribution.to_string(),
            },
            ranks: at.ranks.max(at.keys),
            scan_length: match at.scan_length {
                ScanLength::UpTo(most) => format!("1-{most}"),
                ScanLength::Fixed(number) => number.to_string(),
            },
            trace: at.trace.as_ref().map(recorded).unwrap_or_default(),
            fabric: at.fabric.name(),
            model_hash,
            simulated: at.fabric.is_simulated(),
            compute_nodes: at.compute_nodes,
            memory_nodes: at.memory_nodes,
            colocated: at.colocated,
            clients: at.clients,
            coroutines: at.coroutines,
            keys: at.keys,
            key_bytes: at.key_bytes as u64,
            value_bytes: at.value_bytes as u64,
            cache_limit_bytes: at.cache_bytes,
            fill: match at.fill {
                Fill::Even(share) => share.to_string(),
                Fill::AsInserted => "as-inserted".to_owned(),
            },
            ops_limit: at.ops,
            warm_up_us: micros(at.warm_up_ns),
            duration_us: micros(at.duration_ns.unwrap_or(0)),
            lease_us: micros(at.faults.lease.filter(|_| at.faults.recovery).unwrap_or(0)),
            kills: at.faults.text(),
            slice_us: micros(at.faults.slice.unwrap_or(0)),
            mode: mode(at),
            seed: at.seed,
            seeds: 1,
            assumptions,
            machine: match &at.fabric {
                Fabric::Ib(cluster) => cluster.machine.to_string(),
                _ => String::new(),
            },
            version: origin.version.clone(),
            commit: origin.commit.clone(),
            host: origin.host.clone(),
            ..Self::default()
        }
    }

    /// Returns the row with the results of its point, which has just ended.
    ///
    /// # Errors
    /// Returns the name of the first column whose number is not finite.
    pub fn finished(self, m: &Measured) -> Result<Self, &'static str> {
        let ops = m.ops.max(1) as f64;
        let per_op = |n: u64| n as f64 / ops;
        let c = &m.counters;
        let micros = |q| m.latency.value_at_quantile(q) as f64 / 1e3;
        let mops = m.ops as f64 / m.seconds / 1e6;
        let busiest = m
            .busiest
            .map(|busiest| (busiest.resource.to_string(), busiest.share));
        let row = Self {
            ops: m.ops,
            seconds: m.seconds,
            mops,
            bound_mops: m.busiest.map(|busiest| mops / busiest.share),
            bound_by: busiest.as_ref().map(|(resource, _)| resource.clone()),
            bound_share: busiest.as_ref().map(|(_, share)| *share),
            lock_waits: m.lock_waits,
            limit: busiest.map(|busiest| limit(busiest, m.lock_waits, c)),
            mean_us: m.latency.mean() / 1e3,
            p50_us: micros(0.5),
            p90_us: micros(0.9),
            p99_us: micros(0.99),
            p999_us: micros(0.999),
            max_us: m.latency.max() as f64 / 1e3,
            round_trips: per_op(c.round_trips),
            verbs: per_op(c.verbs()),
            bytes_read: per_op(c.bytes_read),
            bytes_written: per_op(c.bytes_written),
            lock_retries: per_op(c.lock_retries),
            torn_reads: per_op(c.torn_reads),
            delegated: per_op(c.delegated),
            combined: per_op(c.combined),
            cache_bytes: m.cache_bytes,
            local_bytes: m.local_bytes,
            remote_bytes_per_key: m.remote_bytes as f64 / m.keys.max(1) as f64,
            trace_passes: m.trace_passes,
            wrong_values: m.wrong_values,
            failed_ops: m.deaths.failed_ops,
            killed: m.deaths.killed,
            expelled: m.deaths.expelled,
            freed_locks: m.deaths.freed_locks,
            recovery_us: m.deaths.recoveries.iter().max().map(|nanos| *nanos as f64 / 1e3),
            timeline: timeline(&m.timeline),
            assumptions: m.promises.clone().unwrap_or(self.assumptions),
            // `dmkit merge` combines rows of several machines.
            latencies: match self.machine.as_str() {
                "" => String::new(),
                _ => Latencies::text(&m.latency),
            },
            date: Utc::now().to_string(),
            ..self
        };
        match row.not_finite() {
            Some(column) => Err(column),
            None => Ok(row),
        }
    }
}

/// Writes slices as the column `timeline` has them.
fn timeline(slices: &[Slice]) -> String {
    let one = |slice: &Slice| match slice.failed {
        0 => slice.ops.to_string(),
        failed => format!("{}+{failed}", slice.ops),
    };
    slices.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// Describes a trace of recorded operations.
fn recorded(trace: &Trace) -> String {
    format!("{} operations of {} keys", trace.operations(), trace.keys())
}

/// Returns the settings that the command line cannot set.
fn mode(at: &crate::Setting) -> String {
    let least = format!("least={}", at.least);
    let all = [
        (at.addresses, "addresses"),
        (at.own_updates, "own-updates"),
        (at.by_thread, "by-thread"),
        (at.steady, "steady"),
        (at.least > 0, least.as_str()),
    ];
    let named: Vec<&str> = all
        .into_iter()
        .filter_map(|(is, name)| is.then_some(name))
        .collect();
    named.join(" ")
}
