//! Exact draws from Zipf's law: the k-th hottest key is drawn with a probability proportional to k^-θ, for 0 ≤ θ < 100
//! and any number of keys.

use rand::{Rng, RngCore};

/// Draws ranks; rank 0 is the hottest.
///
/// Many generators are approximations (a closed form of Gray et al. that is wrong for the first ranks and above θ =
/// 0.992, or a truncated table). This generator draws from a continuous envelope by inversion and rejects the
/// difference, so its distribution is exact up to the rounding of `f64`.
///
/// The envelope is that of rejection-inversion (Hörmann and Derflinger, TOMACS 1996): the area under x^-θ around each
/// integer. Most draws are accepted without the computation of a second power.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    count: u64,
    theta: f64,
    /// 1 − θ.
    rest: f64,
    /// Areas at the two ends of the range.
    low: f64,
    high: f64,
    /// A draw whose distance below its rank is at most this is accepted at once.
    sure: f64,
}

impl Zipf {
    /// Makes Zipf's law over `count` ranks. Returns `None` unless `count` > 0 and 0 ≤ `theta` < 100.
    #[must_use]
    pub fn new(count: u64, theta: f64) -> Option<Self> {
        if count == 0 || !(0.0..100.0).contains(&theta) {
            return None;
        }
        let mut zipf = Self {
            count,
            theta,
            rest: 1.0 - theta,
            low: 0.0,
            high: 0.0,
            sure: 0.0,
        };
        zipf.low = zipf.area(1.5) - 1.0;
        zipf.high = zipf.area(count as f64 + 0.5);
        zipf.sure = 2.0 - zipf.area_inverse(zipf.area(2.5) - zipf.density(2.0));
        Some(zipf)
    }

    /// Returns the number of ranks.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Draws a rank; 0 is the most frequent one.
    #[inline]
    pub fn draw(&self, rng: &mut impl RngCore) -> u64 {
        loop {
            let area = self.high + rng.random::<f64>() * (self.low - self.high);
            let point = self.area_inverse(area);
            let rank = (point + 0.5).clamp(1.0, self.count as f64).floor();
            if rank - point <= self.sure || area >= self.area(rank + 0.5) - self.density(rank) {
                return rank as u64 - 1;
            }
        }
    }

    /// Returns x^-θ.
    fn density(&self, x: f64) -> f64 {
        x.powf(-self.theta)
    }

    /// Returns the integral of the density from 1 to x: (x^(1-θ) − 1) / (1 − θ). The result is precise even if 1 − θ
    /// is close to zero.
    fn area(&self, x: f64) -> f64 {
        let log = x.ln();
        expm1_over(self.rest * log) * log
    }

    /// Returns the x at which the area is `area`.
    fn area_inverse(&self, area: f64) -> f64 {
        // Rounding may make the product less than -1, and then 1 + product has no logarithm.
        let product = (area * self.rest).max(-1.0);
        (ln1p_over(product) * area).exp()
    }
}

/// Returns (e^x − 1) / x.
fn expm1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 {
        x.exp_m1() / x
    } else {
        1.0 + x / 2.0
    }
}

/// Returns ln(1 + x) / x.
fn ln1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 {
        x.ln_1p() / x
    } else {
        1.0 - x / 2.0
    }
}

/// Returns the share of the hottest of `count` keys: the reciprocal of the generalised harmonic number. The number is
/// computed from its first terms and the Euler–Maclaurin formula, with a relative error below 10⁻¹².
///
/// ```
/// assert!((dm_workload::hottest_share(1_000_000_000, 0.99) - 0.0424).abs() < 0.00005);
/// ```
#[must_use]
pub fn hottest_share(count: u64, theta: f64) -> f64 {
    let head = count.min(1000);
    let mut sum: f64 = (1..=head).map(|rank| (rank as f64).powf(-theta)).sum();
    if count > head {
        let (from, to) = (head as f64, count as f64);
        let density = |x: f64| x.powf(-theta);
        let area = |x: f64| expm1_over((1.0 - theta) * x.ln()) * x.ln();
        let slope = |x: f64| -theta * x.powf(-theta - 1.0);
        sum += area(to) - area(from) + (density(to) - density(from)) / 2.0 + (slope(to) - slope(from)) / 12.0;
    }
    1.0 / sum
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_distr::Distribution as _;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    /// Returns the chi-square of `counts` against Zipf's law, in standard deviations above its mean.
    fn surprise(counts: &[u64], theta: f64) -> f64 {
        let weights: Vec<f64> = (1..=counts.len())
            .map(|rank| (rank as f64).powf(-theta))
            .collect();
        let (sum, draws) = (weights.iter().sum::<f64>(), counts.iter().sum::<u64>() as f64);
        let chi: f64 = counts
            .iter()
            .zip(&weights)
            .map(|(&count, weight)| {
                let expected = draws * weight / sum;
                (count as f64 - expected).powi(2) / expected
            })
            .sum();
        let freedom = (counts.len() - 1) as f64;
        (chi - freedom) / (2.0 * freedom).sqrt()
    }

    const THETAS: [f64; 8] = [0.0, 0.5, 0.8, 0.99, 1.0, 1.000_000_1, 1.2, 2.5];

    #[test]
    fn every_rank_comes_as_often_as_the_law_says() {
        for (seed, theta) in (0..).zip(THETAS) {
            let (mut ours, mut theirs) = (vec![0; 100], vec![0; 100]);
            let zipf = Zipf::new(100, theta).unwrap();
            let reference = rand_distr::Zipf::new(100.0, theta).unwrap();
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            for _ in 0..1_000_000 {
                ours[zipf.draw(&mut rng) as usize] += 1;
                theirs[reference.sample(&mut rng) as usize - 1] += 1;
            }
            let (ours, theirs) = (surprise(&ours, theta), surprise(&theirs, theta));
            assert!(ours < 5.0, "theta {theta}: {ours} standard deviations off");
            assert!(
                theirs < 5.0,
                "theta {theta}: the reference is {theirs} standard deviations off"
            );
        }
    }

    /// Checks that the statistic of the test above detects a law that is slightly wrong.
    #[test]
    fn a_theta_that_is_one_hundredth_off_is_noticed() {
        let zipf = Zipf::new(100, 0.98).unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut counts = vec![0; 100];
        (0..1_000_000).for_each(|_| counts[zipf.draw(&mut rng) as usize] += 1);
        assert!(surprise(&counts, 0.99) > 10.0);
    }

    #[test]
    fn the_hottest_key_gets_the_share_that_papers_quote() {
        for (count, share) in [
            (1_000_000_000, 0.0424),
            (60_000_000, 0.0495),
            (10_000_000, 0.0554),
            (1_000_000, 0.0650),
        ] {
            let exact = hottest_share(count, 0.99);
            assert!((exact - share).abs() < 0.000_05, "{count} keys: {exact}");
            let zipf = Zipf::new(count, 0.99).unwrap();
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(count);
            let draws = 1_000_000;
            let hot = (0..draws).filter(|_| zipf.draw(&mut rng) == 0).count();
            let (seen, allowed) = (
                hot as f64 / f64::from(draws),
                4.5 * (exact / f64::from(draws)).sqrt(),
            );
            assert!(
                (seen - exact).abs() < allowed,
                "{count} keys: {seen} instead of {exact}"
            );
        }
    }

    #[test]
    fn the_share_is_the_sum_of_the_series() {
        for theta in THETAS {
            let sum: f64 = (1..=5000).map(|rank| f64::from(rank).powf(-theta)).sum();
            let share = hottest_share(5000, theta);
            assert!((share * sum - 1.0).abs() < 1e-11, "theta {theta}");
        }
    }

    #[test]
    fn small_and_senseless_counts() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let one = Zipf::new(1, 0.99).unwrap();
        assert!((0..1000).all(|_| one.draw(&mut rng) == 0));
        let two = Zipf::new(2, 0.99).unwrap();
        assert!((0..1000).all(|_| two.draw(&mut rng) < 2));
        let huge = Zipf::new(u64::MAX, 0.5).unwrap();
        assert!((0..1000).any(|_| huge.draw(&mut rng) > 1 << 60));
        assert!(
            Zipf::new(0, 0.99).is_none() && Zipf::new(1, -0.1).is_none() && Zipf::new(1, f64::NAN).is_none()
        );
    }
}
