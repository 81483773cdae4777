//! Measures the cost of one draw on this machine, in nanoseconds.
#![expect(clippy::print_stdout, reason = "an example whose output is its purpose")]

use std::hint::black_box;
use std::time::Instant;

use dm_workload::{KeySpace, Workload, Zipf};
use rand::SeedableRng;
use rand_distr::Distribution as _;
use rand_xoshiro::Xoshiro256PlusPlus;

const DRAWS: u32 = 10_000_000;

fn time(name: &str, mut draw: impl FnMut() -> u64) {
    let begin = Instant::now();
    for _ in 0..DRAWS {
        black_box(draw());
    }
    println!(
        "{name:<44} {:6.1} ns",
        begin.elapsed().as_secs_f64() * 1e9 / f64::from(DRAWS)
    );
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    for theta in [0.5, 0.99, 1.2] {
        let zipf = Zipf::new(60_000_000, theta).ok_or("theta is in range")?;
        time(&format!("Zipf {theta} over 6e7"), || zipf.draw(&mut rng));
        let reference = rand_distr::Zipf::new(6e7, theta).map_err(|wrong| wrong.to_string())?;
        time(&format!("rand_distr's Zipf {theta} over 6e7"), || {
            reference.sample(&mut rng) as u64
        });
    }
    for (mix, distribution) in [
        ("c", "uniform"),
        ("c", "zipf:0.99"),
        ("a", "zipf:0.99"),
        ("d", "latest"),
        ("e", "uniform"),
    ] {
        let workload = Workload::new(mix.parse()?, 1_000_000, u64::from(DRAWS)).ranks(60_000_000);
        let mut stream = workload.distribution(distribution.parse()?).plan()?.client(0);
        time(&format!("operation of {mix}, {distribution}"), || {
            stream.next().map_or(0, |op| op.key)
        });
    }
    let keys = KeySpace::scrambled(1);
    let mut index = 0;
    time("32-byte key", || {
        index += 1;
        u64::from(keys.bytes::<32>(index)[31])
    });
    Ok(())
}
