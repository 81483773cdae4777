//! The main job: runs every index of the registry in a setting that shows the effects that the papers claim.
//!
//! As in the papers of SMART and CHIME, there is one memory node, and a cache holds a small part of the inner nodes:
//! half a byte per loaded key. Client threads have two coroutines, so that they can fully load the memory node's RNIC.

use std::io;

use dm_bench::{
    CostModel, Distribution, Fabric, Fill, IndexEntry, Mix, OpKind, Output, Point, Registry, Setting,
    UnknownIndex,
};

/// The numbers of client threads, over 10 compute nodes.
const CLIENTS: [u32; 4] = [10, 40, 160, 320];
/// The number of client threads in the panel that compares caches.
const CACHE_CLIENTS: u32 = 160;
/// Bytes of a compute node's cache in the panels that vary the clients.
const CACHE: u64 = 500_000;
/// Bytes of a compute node's cache in the panel that compares caches.
const CACHES: [u64; 5] = [125_000, 500_000, 2_000_000, 8_000_000, 32_000_000];
/// The name of the panel that compares caches.
const CACHE_PANEL: &str = "YCSB C by cache size";
/// The names of panels, with the papers' figures that show the same.
const FIGURES: [(&str, &str); 5] = [
    ("YCSB C", "CHIME, Figure 12"),
    ("YCSB A", "CHIME, Figure 12"),
    ("YCSB LOAD", "CHIME, Figure 12"),
    ("YCSB E", "CHIME, Figure 12"),
    (CACHE_PANEL, "CHIME, Figure 18 b"),
];
/// Operations of each point, and of each point of workload E, whose scans request about 50 keys on average.
const OPS: u64 = 78_000;
const SCANS: u64 = 14_000;
/// The time after which all clients have joined the pool. They join one after another, each in its first operation. All
/// points use the time of the largest number of clients, because the points of a curve must not differ in the warm-up.
const WARM_UP_NS: u64 = 1_700_000;
/// Number of loaded keys, and the papers' 60 million keys over which Zipf ranks are drawn.
const KEYS: u64 = 1_000_000;
const RANKS: u64 = 60_000_000;
/// The baseline of Sherman's paper, which is drawn together with the indexes.
const BASELINE: (&str, &str) = ("sherman", "fg+");

/// Runs the main job and writes its files.
pub(crate) fn perform(registry: &Registry, output: &Output) -> io::Result<bool> {
    let model = CostModel::cx6_roce();
    let title = format!("dmkit, {}, 10 CN + 1 MN colocated", model.name);
    let points = points(registry, &model).map_err(io::Error::other)?;
    let mut output = output.clone();
    for (panel, figure) in FIGURES {
        output.titles.add_figure(panel, figure);
    }
    dm_bench::perform(&title, &points, &output)
}

/// Returns the points of FG+ and of every index of the registry.
fn points(registry: &Registry, model: &CostModel) -> Result<Vec<Point>, UnknownIndex> {
    let all = registry
        .entries()
        .iter()
        .map(|entry| (entry.name(), IndexEntry::DEFAULT));
    let baseline = registry.find(BASELINE.0).is_ok().then_some(BASELINE);
    let indexes: Vec<(&str, &str)> = baseline.into_iter().chain(all).collect();
    let setting = |mix: &str, clients, cache_bytes| {
        let mix: Mix = mix.parse().expect("a preset");
        Setting {
            mix,
            distribution: Distribution::Zipf {
                theta: Distribution::USUAL_THETA,
            },
            ranks: RANKS,
            compute_nodes: 10,
            memory_nodes: 1,
            colocated: true,
            clients,
            coroutines: 2,
            keys: KEYS,
            ops: if mix.share(OpKind::Scan) > 0.0 { SCANS } else { OPS },
            warm_up_ns: WARM_UP_NS,
            cache_bytes,
            fill: Fill::Even(0.7),
            ..Setting::new(Fabric::Sim(Box::new(model.clone())))
        }
    };
    let mut points = Vec::new();
    for mix in ["c", "a", "load", "e"] {
        for (index, variant) in &indexes {
            for clients in CLIENTS {
                points.push(registry.point(index, variant, setting(mix, clients, CACHE))?);
            }
        }
    }
    for (index, variant) in &indexes {
        for cache in CACHES {
            let mut point = registry.point(index, variant, setting("c", CACHE_CLIENTS, cache))?;
            CACHE_PANEL.clone_into(&mut point.panel);
            points.push(point);
        }
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_is_in_every_panel() {
        let registry = dm_shipped::shipped();
        let points = points(&registry, &CostModel::cx6_roce()).expect("all have keys of 8 bytes");
        let columns = registry.entries().len() + 1;
        assert_eq!(points.len(), columns * (4 * CLIENTS.len() + CACHES.len()));
        dm_bench::check(&points).expect("the points of each curve belong together");
        let empty = super::points(&Registry::new(), &CostModel::cx6_roce());
        assert!(empty.is_ok_and(|points| points.is_empty()));
    }
}
