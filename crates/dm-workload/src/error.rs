//! The errors in the description of a workload.

use std::fmt;

/// An error in the description of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkloadError {
    /// The mix is neither a preset nor a list of `kind:weight`, or its weights are all zero or too large.
    Mix {
        /// The part that is not valid.
        part: String,
    },
    /// The distribution is not `uniform`, `zipf` or `latest` (the last two with or without `:THETA`), or THETA is not a
    /// number from 0 to below 100.
    Distribution {
        /// The invalid text.
        text: String,
    },
    /// There is no client, or there are more than [`dm_history::CLIENT_LIMIT`] − 1. The last client number marks loaded
    /// data.
    Clients {
        /// The requested number.
        count: u32,
    },
    /// The mix uses loaded keys, but none are loaded.
    NoKeys,
    /// Clients have keys of their own, but there are fewer keys than clients.
    OwnKeys {
        /// The loaded keys.
        loaded: u64,
        /// The clients.
        clients: u32,
    },
    /// Ranks are drawn over fewer keys than are loaded, so the other keys would never be used.
    Ranks {
        /// The ranks.
        ranks: u64,
        /// The loaded keys.
        loaded: u64,
    },
    /// Scans have length 0.
    ScanLength,
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mix { part } => write!(
                f,
                "mix: {part:?} is neither a preset ({}) nor kind:weight with a kind of {}",
                crate::mix::preset_names(),
                crate::mix::kind_names(),
            ),
            Self::Distribution { text } => {
                write!(
                    f,
                    "distribution: {text:?} is none of uniform, zipf:THETA, latest, latest:THETA"
                )
            }
            Self::Clients { count } => {
                write!(
                    f,
                    "clients: {count} is not between 1 and {}",
                    dm_history::CLIENT_LIMIT - 1
                )
            }
            Self::NoKeys => write!(f, "keys: the mix works on loaded keys, and none are loaded"),
            Self::OwnKeys { loaded, clients } => {
                write!(
                    f,
                    "keys: {loaded} loaded keys are too few for {clients} clients with keys of their own"
                )
            }
            Self::Ranks { ranks, loaded } => {
                write!(
                    f,
                    "ranks: {ranks} ranks leave some of {loaded} loaded keys untouched"
                )
            }
            Self::ScanLength => write!(f, "scan length: a scan returns at least one item"),
        }
    }
}

impl std::error::Error for WorkloadError {}
