//! Selects the protocols that `dmkit doctor` tries. Each of them runs on a simulated RNIC: with exactly the promises of
//! the device, and again with further assumptions.
//!
//! This module does not decide which protocols can run. An index refuses an RNIC that lacks a required capability,
//! and a fallback shows in the round trips of the index's operations.

use dm_bench::{CostModel, Fabric, IndexEntry, Point, Registry, Setting};

/// Number of loaded keys. It is small, so that a trial is quick.
const KEYS: u64 = 2000;

/// Returns the variants to try, each with the name that it has in the report.
pub(super) fn all(registry: &Registry) -> Vec<(String, Point)> {
    let pairs = registry.entries().iter().flat_map(|entry| {
        let probed = entry.variants().iter().filter(|variant| variant.is_probed());
        probed.map(move |variant| (entry, variant))
    });
    let tried = pairs.filter_map(|(entry, variant)| {
        let name = match variant.name() {
            IndexEntry::DEFAULT => entry.name().to_owned(),
            other => format!("{} ({other})", entry.name()),
        };
        let setting = Setting {
            compute_nodes: 1,
            memory_nodes: 1,
            clients: 1,
            keys: KEYS,
            key_bytes: *variant.key_bytes().first()?,
            ..Setting::new(Fabric::Sim(Box::new(CostModel::cx6_roce())))
        };
        let point = registry.point(entry.name(), variant.name(), setting).ok()?;
        Some((name, point))
    });
    tried.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dm_verbs::{Capability, Caps};

    #[test]
    fn promises_decide_what_runs_and_what_it_costs() {
        let nothing = Caps::default();
        let lines = nothing.assume(Capability::LineAtomicity);
        let strong = lines
            .assume(Capability::CasThenReadInOrder)
            .assume(Capability::AtomicVsWriteSerialised);
        let tried = all(&dm_shipped::shipped());
        let names: Vec<&str> = tried.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "sherman",
                "sherman (fg+)",
                "smart",
                "chime",
                "dolphin",
                "marlin",
                "rolex"
            ]
        );
        let refused = tried[0].1.trips(nothing).unwrap_err().to_string();
        assert!(refused.contains("64-byte line atomicity"), "{refused}");
        for (name, point) in tried.iter().filter(|(name, _)| name != "sherman (fg+)") {
            let (weak, strong) = (point.trips(lines).unwrap(), point.trips(strong).unwrap());
            assert!(strong.update < weak.update, "{name}: {strong:?} and {weak:?}");
            // Marlin's values are not in its leaves.
            let get = if name == "marlin" { 2.0 } else { 1.0 };
            assert!((strong.get - get).abs() < 0.2, "{name}: {strong:?}");
        }
    }
}
