//! The options of an index, and the CPU costs that a simulator charges.

use dm_verbs::{Env, Nanos};

#[cfg(feature = "study")]
use super::Flaws;

/// CPU time of a client's own work, for worlds that model it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuCost {
    /// Fixed part of finding a leaf.
    pub locate: Nanos,
    /// Mean of the variable part of finding a leaf (cache misses), which is exponentially distributed.
    pub locate_mean: Nanos,
    /// Searching a leaf.
    pub search: Nanos,
}

impl CpuCost {
    /// No cost, for worlds in which CPU time is real.
    pub const NONE: Self = Self {
        locate: Nanos(0),
        locate_mean: Nanos(0),
        search: Nanos(0),
    };

    /// The cost of a client's own work in a simulator. On average, half of the time to find a leaf is fixed. The other
    /// half is exponentially distributed and stands for misses of the CPU's caches. The numbers are fitted to a median
    /// read of 4.9 us (Sherman, Table 1). All indexes have the same cost, so that a comparison shows only their use of
    /// the network.
    pub const MODEL: Self = Self {
        locate: Nanos(950),
        locate_mean: Nanos(950),
        search: Nanos(500),
    };

    /// Charges the cost of one operation, before it takes any lock.
    #[inline]
    pub async fn charge<E: Env>(&self, env: &E) {
        if *self == Self::NONE {
            return;
        }
        // 53 random bits make a uniform number above 0 and at most 1.
        let uniform = ((env.rng(RNG_CPU) >> 11) + 1) as f64 / (1u64 << 53) as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small positive number"
        )]
        let rest = (self.locate_mean.0 as f64 * -uniform.ln()) as u64;
        env.charge(self.locate + Nanos(rest) + self.search).await;
    }
}

/// Random stream of CPU costs.
const RNG_CPU: u32 = 0x6370_7531;

/// The options of a [`Composed`](crate::Composed).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ComposedOptions {
    /// Retry limit of an operation's loop; exceeding it returns
    /// [`IndexError::Exhausted`](crate::IndexError::Exhausted).
    pub attempts: u32,
    /// CPU time of each operation.
    pub cpu: CpuCost,
    /// Published flaws.
    #[cfg(feature = "study")]
    pub flaws: Flaws,
}

impl ComposedOptions {
    /// Returns options without flaws.
    pub fn new(attempts: u32, cpu: CpuCost) -> Self {
        Self {
            attempts,
            cpu,
            #[cfg(feature = "study")]
            flaws: Flaws::default(),
        }
    }
}

impl Default for ComposedOptions {
    fn default() -> Self {
        Self::new(1 << 20, CpuCost::NONE)
    }
}
