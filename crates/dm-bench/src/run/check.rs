//! Checks the index of a cluster, or an index that is loaded in this process.

use dm_loopback::{Loopback, block_on};

use super::{RunError, bad};
use crate::{AnyEndpoint, Checked, Fabric, Point};

impl Point {
    /// Checks the index of a cluster or, on loopback, a new index with the keys of the setting. If `sweeps` is `true`,
    /// first finishes what dead clients have left in the index.
    ///
    /// # Errors
    /// Returns [`RunError`] if the world could not be made or is the simulator, if the index can't be loaded or opened
    /// or has no check, or if a request failed.
    pub fn check_index(&self, sweeps: bool) -> Result<Checked, RunError> {
        match &self.setting.fabric {
            Fabric::Loopback => {
                let world = Loopback::builder()
                    .nodes(self.setting.memory_nodes)
                    .host_bytes(self.driver.memory_bytes(&self.setting))
                    .seed(self.setting.seed)
                    .build()
                    .map_err(bad)?;
                let v = world.connect(0).map(AnyEndpoint::Loopback).map_err(bad)?;
                block_on(self.driver.check(&v, &self.setting, true, sweeps))
            }
            #[cfg(feature = "ib")]
            Fabric::Ib(cluster) => super::ib::check(self, cluster, sweeps),
            #[cfg(not(feature = "ib"))]
            Fabric::Ib(_) => Err(bad(crate::cluster::MISSING)),
            Fabric::Sim(_) => Err(bad(
                "which index: --fabric ib:cluster.toml, or loopback for a new one in this process",
            )),
        }
    }
}
