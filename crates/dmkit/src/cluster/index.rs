//! `dmkit index`: creates, opens and shows the index of a cluster, through its superblock.

use std::io::{self, Write};

use dm_alloc::Superblock;
use dm_ib::{Endpoint, Thread};

use super::ClusterRun;
use super::bench::{alone, world};
use crate::bench_tree::BenchTree;
use crate::cli::{Fabric, IndexAction, IndexCommand};
use crate::dispatch::{WithTree, with_tree};
use crate::point::{BenchKey, Point};
use crate::run::RunError;

/// Carries out the action, and describes the index afterwards.
pub(crate) fn perform(asked: &IndexCommand) -> io::Result<bool> {
    let Fabric::Ib(cluster) = &asked.bench.fabric else {
        return Err(io::Error::other("which cluster: --fabric ib:cluster.toml"));
    };
    let point = Point::all(&asked.bench).remove(0);
    let told = tell(asked.action, &point, cluster).map_err(io::Error::other)?;
    writeln!(io::stdout(), "{told}")?;
    Ok(true)
}

fn tell(action: IndexAction, point: &Point, cluster: &ClusterRun) -> Result<String, RunError> {
    let world = world(&cluster.file, point.seed)?;
    let thread = world.thread().map_err(crate::run::bad)?;
    let v = thread.connect(0).map_err(crate::run::bad)?;
    if action != IndexAction::Show {
        let handle = Handle {
            action,
            thread: &thread,
            v: &v,
            point,
        };
        with_tree(point, handle)?;
    }
    let lies = alone(&thread, Superblock::inspect(&v)).map_err(crate::run::bad)?;
    let kind: String = lies
        .kind
        .to_le_bytes()
        .iter()
        .map(|byte| char::from(*byte))
        .collect();
    Ok(format!(
        "an index of kind {kind:?} over {} memory nodes, {} locks on each, {}; root word at {}",
        lies.memory_nodes(),
        lies.locks_per_node,
        match lies.members {
            Some(area) => format!("{} members at most", area.slots),
            None => "no reclamation".to_owned(),
        },
        lies.root_word
    ))
}

/// Opens a handle and drops it again; closing takes no more than that.
struct Handle<'a> {
    action: IndexAction,
    thread: &'a Thread,
    v: &'a Endpoint,
    point: &'a Point,
}

impl WithTree for Handle<'_> {
    type Out = ();
    fn with<K: BenchKey, T: BenchTree<Key = K>>(self) -> Result<(), RunError> {
        let Self { v, point, .. } = self;
        let tree = async {
            match self.action {
                IndexAction::Create => T::create(v, point).await,
                IndexAction::Open | IndexAction::Show => T::open(v, point).await,
            }
        };
        alone(self.thread, tree).map(drop)
    }
}
