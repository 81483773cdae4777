//! The choice of a key for each operation that is not an insert.

use std::fmt;
use std::str::FromStr;

use rand::{Rng, RngCore};

use crate::error::WorkloadError;
use crate::permutation::{Permutation, scramble};
use crate::zipf::Zipf;

/// The distribution of operations over the keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Every loaded key is equally likely.
    Uniform,
    /// Zipf's law over ranks, which are mapped to loaded keys in a random order.
    Zipf {
        /// The exponent: 0 is uniform, YCSB's default is 0.99.
        theta: f64,
    },
    /// Zipf's law over ages of loaded and inserted keys: the newest key is the hottest (YCSB D).
    Latest {
        /// The exponent.
        theta: f64,
    },
}

impl Distribution {
    /// YCSB's exponent.
    pub const USUAL_THETA: f64 = 0.99;

    /// Returns the exponent, if the distribution has one.
    #[must_use]
    pub fn theta(&self) -> Option<f64> {
        match *self {
            Self::Uniform => None,
            Self::Zipf { theta } | Self::Latest { theta } => Some(theta),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.pad("uniform"),
            Self::Zipf { theta } => f.pad(&format!("zipf:{theta}")),
            Self::Latest { theta } => f.pad(&format!("latest:{theta}")),
        }
    }
}

impl FromStr for Distribution {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let (name, theta) = text
            .split_once(':')
            .map_or((text, None), |(name, theta)| (name, Some(theta)));
        let theta = theta.map_or(Some(Self::USUAL_THETA), |theta| theta.parse().ok());
        let theta = theta.filter(|theta: &f64| Zipf::new(1, *theta).is_some());
        match (name.to_ascii_lowercase().as_str(), theta) {
            ("uniform", _) if name.len() == text.len() => Ok(Self::Uniform),
            ("zipf", Some(theta)) => Ok(Self::Zipf { theta }),
            ("latest", Some(theta)) => Ok(Self::Latest { theta }),
            _ => Err(WorkloadError::Distribution {
                text: text.to_owned(),
            }),
        }
    }
}

/// Draws indices of loaded keys, or ages of keys.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Chooser {
    Uniform {
        loaded: u64,
    },
    Zipf {
        zipf: Zipf,
        fold: Fold,
    },
    /// Draws ages; the stream converts them to keys.
    Latest {
        zipf: Zipf,
    },
}

impl Chooser {
    pub(crate) fn new(distribution: Distribution, loaded: u64, ranks: u64, seed: u64) -> Option<Self> {
        Some(match distribution {
            Distribution::Uniform => Self::Uniform { loaded },
            Distribution::Zipf { theta } => Self::Zipf {
                zipf: Zipf::new(ranks, theta)?,
                fold: Fold::new(loaded, seed),
            },
            Distribution::Latest { theta } => Self::Latest {
                zipf: Zipf::new(ranks, theta)?,
            },
        })
    }

    /// Returns the loaded key with this rank. About `rank` other keys are drawn more often, unless all keys are drawn
    /// equally often.
    pub(crate) fn hottest(&self, rank: u64, loaded: u64) -> u64 {
        match self {
            Self::Uniform { .. } => rank,
            // Ranks beyond the number of loaded keys are spread about evenly over all keys.
            Self::Zipf { fold, .. } => fold.index(rank),
            Self::Latest { .. } => loaded - 1 - rank,
        }
    }

    /// Returns an index of a loaded key, or an age.
    #[inline]
    pub(crate) fn draw(&self, rng: &mut impl RngCore) -> Drawn {
        match self {
            Self::Uniform { loaded } => Drawn::Index(rng.random_range(0..*loaded)),
            Self::Zipf { zipf, fold } => Drawn::Index(fold.index(zipf.draw(rng))),
            Self::Latest { zipf } => Drawn::Age(zipf.draw(rng)),
        }
    }
}

pub(crate) enum Drawn {
    Index(u64),
    Age(u64),
}

/// Maps ranks to loaded keys: the first ranks one to one, and the colder ranks by a hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fold {
    loaded: u64,
    permutation: Permutation,
    salt: u64,
}

impl Fold {
    fn new(loaded: u64, seed: u64) -> Self {
        let salt = scramble(seed ^ 0x666f_6c64);
        Self {
            loaded,
            permutation: Permutation::new(loaded, salt),
            salt,
        }
    }

    #[inline]
    fn index(&self, rank: u64) -> u64 {
        if rank < self.loaded {
            return self.permutation.at(rank);
        }
        // The upper half of the product is below `loaded`. This takes no division.
        ((u128::from(scramble(rank ^ self.salt)) * u128::from(self.loaded)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn texts() {
        for text in ["uniform", "zipf:0.99", "latest:0.8", "zipf:0"] {
            assert_eq!(text.parse::<Distribution>().unwrap().to_string(), text);
        }
        assert_eq!("Zipf".parse(), Ok(Distribution::Zipf { theta: 0.99 }));
        for text in ["zipf:-1", "zipf:nan", "zipf:", "uniform:0.5", "normal", ""] {
            assert_eq!(
                text.parse::<Distribution>(),
                Err(WorkloadError::Distribution {
                    text: text.to_owned()
                })
            );
        }
    }

    /// Tests 1,000 loaded keys with 60 million ranks. The hottest key has about the same share of draws as with 60
    /// million keys, and the ranks above 1,000 are spread evenly over the keys.
    #[test]
    fn folding_keeps_the_share_of_the_hottest_key() {
        let (loaded, ranks, draws) = (1000, 60_000_000, 1_000_000_u32);
        let chooser = Chooser::new(Distribution::Zipf { theta: 0.99 }, loaded, ranks, 3).unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(4);
        let mut counts = vec![0_u32; loaded as usize];
        for _ in 0..draws {
            let Drawn::Index(index) = chooser.draw(&mut rng) else {
                panic!("an index")
            };
            counts[index as usize] += 1;
        }
        counts.sort_unstable();
        let share = |count: u32| f64::from(count) / f64::from(draws);
        let top = crate::hottest_share(ranks, 0.99);
        let ranked: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-0.99)).sum::<f64>() * top;
        let spread = (1.0 - ranked) / 1000.0; // the part of the colder ranks that each key gets
        assert!(
            (share(counts[999]) - (top + spread)).abs() < 0.001,
            "hottest {}",
            share(counts[999])
        );
        assert!(
            (share(counts[500]) - spread).abs() < spread * 0.5,
            "a cold one {}",
            share(counts[500])
        );
    }
}
