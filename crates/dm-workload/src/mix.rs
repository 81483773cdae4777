//! Kinds of operations, and the share of each kind in a workload.

use std::fmt;
use std::str::FromStr;

use rand::RngCore;

use crate::distribution::Distribution;
use crate::error::WorkloadError;

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OpKind {
    /// Reads one key.
    Get,
    /// Writes a key, if it is present.
    Update,
    /// Writes a loaded key, which may exist or not.
    Upsert,
    /// Adds a key that does not exist.
    Insert,
    /// Removes a loaded key. After a while, some of these keys are absent.
    Remove,
    /// Reads a number of keys in order.
    Scan,
    /// Reads one key and then writes it.
    ReadModifyWrite,
}

impl OpKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Get,
        Self::Update,
        Self::Upsert,
        Self::Insert,
        Self::Remove,
        Self::Scan,
        Self::ReadModifyWrite,
    ];

    /// Returns the name of this kind in a mix.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Update => "update",
            Self::Upsert => "upsert",
            Self::Insert => "insert",
            Self::Remove => "remove",
            Self::Scan => "scan",
            Self::ReadModifyWrite => "rmw",
        }
    }

    fn place(self) -> usize {
        self as usize
    }
}

impl fmt::Display for OpKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

type Weights = &'static [(OpKind, u32)];

/// YCSB's core workloads (its `workloads/workload[a-f]`), the mixes of Sherman's evaluation, and the mixes of two of
/// Twitter's caches. The latter follow the published statistics (OSDI 2020, and the table that belongs to the traces
/// of March 2020).
const PRESETS: [(&str, Weights); 14] = [
    ("a", &[(OpKind::Get, 50), (OpKind::Update, 50)]),
    ("b", &[(OpKind::Get, 95), (OpKind::Update, 5)]),
    ("c", &[(OpKind::Get, 1)]),
    ("d", &[(OpKind::Get, 95), (OpKind::Insert, 5)]),
    ("e", &[(OpKind::Scan, 95), (OpKind::Insert, 5)]),
    ("f", &[(OpKind::Get, 50), (OpKind::ReadModifyWrite, 50)]),
    ("load", &[(OpKind::Insert, 1)]),
    ("write-only", &[(OpKind::Upsert, 1)]),
    ("write-intensive", &[(OpKind::Get, 50), (OpKind::Upsert, 50)]),
    ("read-intensive", &[(OpKind::Get, 95), (OpKind::Upsert, 5)]),
    ("range-only", &[(OpKind::Scan, 1)]),
    ("range-write", &[(OpKind::Scan, 50), (OpKind::Upsert, 50)]),
    ("twitter-8", &[(OpKind::Get, 50), (OpKind::Upsert, 50)]),
    ("twitter-9", &[(OpKind::Get, 99), (OpKind::Upsert, 1)]),
];

pub(crate) fn preset_names() -> String {
    PRESETS.map(|(name, _)| name).join(", ")
}

pub(crate) fn kind_names() -> String {
    OpKind::ALL.map(OpKind::name).join(", ")
}

/// The share of each kind of operation.
///
/// ```
/// use dm_workload::{Mix, OpKind};
/// let mix: Mix = "get:1,upsert:3".parse()?;
/// assert_eq!(mix.share(OpKind::Upsert), 0.75);
/// assert_eq!("A".parse::<Mix>()?.to_string(), "a");
/// # Ok::<(), dm_workload::WorkloadError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    weights: [u32; OpKind::ALL.len()],
    /// Cumulative upper bounds, scaled to 32 bits. A kind is drawn with one comparison per bound.
    bounds: [u64; OpKind::ALL.len()],
    preset: Option<&'static str>,
}

impl Mix {
    /// Makes a mix of the given weights; `None` if all are zero, or if the sum for one kind exceeds 32 bits.
    #[must_use]
    pub fn new(weights: &[(OpKind, u32)]) -> Option<Self> {
        let mut each = [0_u32; OpKind::ALL.len()];
        for &(kind, weight) in weights {
            each[kind.place()] = each[kind.place()].checked_add(weight)?;
        }
        let sum: u64 = each.iter().map(|&weight| u64::from(weight)).sum();
        let mut so_far = 0;
        let bounds = each.map(|weight| {
            so_far += u64::from(weight);
            (u128::from(so_far) << 32)
                .checked_div(u128::from(sum))
                .map_or(0, |bound| bound as u64)
        });
        (sum > 0).then_some(Self {
            weights: each,
            bounds,
            preset: None,
        })
    }

    /// Returns the share of operations of `kind`, from 0 to 1.
    #[must_use]
    pub fn share(&self, kind: OpKind) -> f64 {
        let sum: u64 = self.weights.iter().map(|&weight| u64::from(weight)).sum();
        f64::from(self.weights[kind.place()]) / sum as f64
    }

    /// Returns whether some operation of the mix uses a loaded key.
    #[must_use]
    pub fn needs_loaded_keys(&self) -> bool {
        OpKind::ALL
            .iter()
            .any(|&kind| kind != OpKind::Insert && self.share(kind) > 0.0)
    }

    /// Returns the usual distribution of the mix: latest for D, the Zipf exponents that were fitted to Twitter's
    /// caches (1.7366 for cluster 8, 1.6796 for cluster 9), and Zipf 0.99 for all others.
    #[must_use]
    pub fn usual_distribution(&self) -> Distribution {
        let theta = Distribution::USUAL_THETA;
        match self.preset {
            Some("d") => Distribution::Latest { theta },
            Some("twitter-8") => Distribution::Zipf { theta: 1.7366 },
            Some("twitter-9") => Distribution::Zipf { theta: 1.6796 },
            _ => Distribution::Zipf { theta },
        }
    }

    /// Draws a kind.
    #[inline]
    pub fn draw(&self, rng: &mut impl RngCore) -> OpKind {
        let draw = u64::from(rng.next_u32());
        let place = self.bounds.iter().position(|&bound| draw < bound);
        place.map_or(OpKind::Get, |place| OpKind::ALL[place]) // the last bound is 2^32: always found
    }
}

impl FromStr for Mix {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let lower = text.to_ascii_lowercase();
        if let Some((name, weights)) = PRESETS.iter().find(|(name, _)| *name == lower) {
            let mix = Self::new(weights).map(|mix| Self {
                preset: Some(name),
                ..mix
            });
            return mix.ok_or_else(|| WorkloadError::Mix { part: lower.clone() });
        }
        let mut weights = Vec::new();
        for part in lower.split(',') {
            let wrong = || WorkloadError::Mix {
                part: part.to_owned(),
            };
            let (name, weight) = part.split_once(':').ok_or_else(wrong)?;
            let kind = OpKind::ALL
                .into_iter()
                .find(|kind| kind.name() == name.trim())
                .ok_or_else(wrong)?;
            weights.push((kind, weight.trim().parse().map_err(|_| wrong())?));
        }
        Self::new(&weights).ok_or(WorkloadError::Mix { part: lower })
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.preset {
            return f.pad(name);
        }
        let parts = OpKind::ALL
            .iter()
            .zip(self.weights)
            .filter(|(_, weight)| *weight > 0);
        let parts: Vec<_> = parts.map(|(kind, weight)| format!("{kind}:{weight}")).collect();
        f.pad(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn kinds_come_in_their_shares(weights in prop::collection::vec(0..100_u32, 7), seed: u64) {
            let weights: Vec<_> = OpKind::ALL.into_iter().zip(weights).collect();
            prop_assume!(weights.iter().any(|(_, weight)| *weight > 0));
            let mix = Mix::new(&weights).unwrap();
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut counts = [0_u32; 7];
            for _ in 0..20_000 {
                counts[mix.draw(&mut rng).place()] += 1;
            }
            for kind in OpKind::ALL {
                let (share, seen) = (mix.share(kind), f64::from(counts[kind.place()]) / 20_000.0);
                // The limit is five standard deviations, so that all cases together fail by chance in about
                // one of 10^4 runs.
                let allowed = 5.0 * (share * (1.0 - share) / 20_000.0).sqrt();
                prop_assert!((share - seen).abs() <= allowed, "{}: {} instead of {}", kind, seen, share);
            }
        }

        #[test]
        fn text_and_mix_are_one(weights in prop::collection::vec(0..1000_u32, 7)) {
            let weights: Vec<_> = OpKind::ALL.into_iter().zip(weights).collect();
            prop_assume!(weights.iter().any(|(_, weight)| *weight > 0));
            let mix = Mix::new(&weights).unwrap();
            prop_assert_eq!(mix.to_string().parse::<Mix>().unwrap(), mix);
        }
    }

    #[test]
    fn presets_are_ycsbs() {
        let share = |name: &str, kind| name.parse::<Mix>().unwrap().share(kind);
        assert_eq!(share("a", OpKind::Update), 0.5);
        assert_eq!(share("b", OpKind::Update), 0.05);
        assert_eq!(share("c", OpKind::Get), 1.0);
        assert_eq!(share("d", OpKind::Insert), 0.05);
        assert_eq!(share("e", OpKind::Scan), 0.95);
        assert_eq!(share("f", OpKind::ReadModifyWrite), 0.5);
        assert_eq!(share("load", OpKind::Insert), 1.0);
        assert!(!"load".parse::<Mix>().unwrap().needs_loaded_keys());
        for (name, _) in PRESETS {
            assert_eq!(name.parse::<Mix>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (text, part) in [
            ("g", "g"),
            ("get:1,put:2", "put:2"),
            ("get:x", "get:x"),
            ("get:0", "get:0"),
        ] {
            assert_eq!(
                text.parse::<Mix>(),
                Err(WorkloadError::Mix {
                    part: part.to_owned()
                })
            );
        }
    }
}
