//! The main job: every index of the registry on the model of a paper's testbed.

use std::io;

use dm_bench::{
    CostModel, Distribution, Fabric, Fill, IndexEntry, Mix, Output, Point, Registry, Setting, UnknownIndex,
};

/// The numbers of client threads, over 8 compute nodes. 176 threads are the 22 per machine of Sherman.
const CLIENTS: [u32; 5] = [16, 48, 88, 176, 352];
/// Operations of each point; the five points of a curve have more than a million.
const OPS: u64 = 240_000;
/// Keys that are loaded, and the number over which Zipf ranks are drawn: Sherman's 10^9.
const KEYS: u64 = 1_000_000;
const RANKS: u64 = 1_000_000_000;
/// The baseline of Sherman's paper, which is drawn beside the indexes.
const BASELINE: (&str, &str) = ("sherman", "fg+");

/// Runs the job.
pub(crate) fn perform(registry: &Registry, output: &Output) -> io::Result<bool> {
    let model = CostModel::cx5_ib();
    let title = format!("dmkit, {}, 8 CN + 8 MN colocated", model.name);
    let points = points(registry, &model).map_err(io::Error::other)?;
    dm_bench::perform(&title, &points, output)
}

/// Returns the points of FG+ and of every index of the registry under YCSB C, A and LOAD.
fn points(registry: &Registry, model: &CostModel) -> Result<Vec<Point>, UnknownIndex> {
    let fabric = Fabric::Sim(Box::new(model.clone()));
    let all = registry
        .entries()
        .iter()
        .map(|entry| (entry.name(), IndexEntry::DEFAULT));
    let baseline = registry.find(BASELINE.0).is_ok().then_some(BASELINE);
    let indexes: Vec<(&str, &str)> = baseline.into_iter().chain(all).collect();
    let mut points = Vec::new();
    for mix in ["c", "a", "load"] {
        let mix: Mix = mix.parse().expect("a preset");
        for (index, variant) in &indexes {
            for clients in CLIENTS {
                let setting = Setting {
                    mix,
                    distribution: Distribution::Zipf {
                        theta: Distribution::USUAL_THETA,
                    },
                    ranks: RANKS,
                    colocated: true,
                    clients,
                    keys: KEYS,
                    ops: OPS,
                    fill: Fill::Even(0.8),
                    ..Setting::new(fabric.clone())
                };
                points.push(registry.point(index, variant, setting)?);
            }
        }
    }
    Ok(points)
}
