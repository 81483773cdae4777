//! `dmkit index`: creates, opens and shows the index of a cluster, through its superblock.

use std::io::{self, Write};

use dm_alloc::Superblock;
use dm_ib::Endpoint;
use dm_index::{Key8, Key32};
use dm_layout::{Bookend, Checksummed, Slotted};
use sherman::{LeafKind, Sherman};
use smart::Smart;

use super::ClusterRun;
use super::bench::{alone, world};
use crate::bench_tree::BenchTree;
use crate::cli::{Fabric, Index, IndexAction, IndexCommand};
use crate::point::Point;
use crate::run::RunError;

/// Does what is asked, says what lies there then.
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
        alone(&thread, handle(action, &v, point))?;
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

/// Opens a handle and closes it again: dropping it is all that closing takes.
async fn handle(action: IndexAction, v: &Endpoint, point: &Point) -> Result<(), RunError> {
    match (point.index, point.variant.leaf(), point.key_size) {
        (Index::Smart, _, 8) => open::<Smart<Key8>>(action, v, point).await,
        (Index::Smart, _, 32) => open::<Smart<Key32>>(action, v, point).await,
        (Index::Sherman, LeafKind::TwoLevel, 8) => {
            open::<Sherman<Key8, Slotted<Key8>>>(action, v, point).await
        }
        (Index::Sherman, LeafKind::TwoLevel, 32) => {
            open::<Sherman<Key32, Slotted<Key32>>>(action, v, point).await
        }
        (Index::Sherman, LeafKind::Checksummed, 8) => {
            open::<Sherman<Key8, Checksummed<Key8>>>(action, v, point).await
        }
        (Index::Sherman, LeafKind::Bookend, 8) => {
            open::<Sherman<Key8, Bookend<Key8>>>(action, v, point).await
        }
        (index, _, size) => Err(crate::run::bad(format_args!(
            "no {} of this variant with keys of {size} bytes here",
            index.name()
        ))),
    }
}

async fn open<T: BenchTree>(action: IndexAction, v: &Endpoint, point: &Point) -> Result<(), RunError> {
    let tree = match action {
        IndexAction::Create => T::create(v, point).await?,
        IndexAction::Open | IndexAction::Show => T::open(v, point).await?,
    };
    drop(tree);
    Ok(())
}
