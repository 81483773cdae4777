//! Runs every case of check size; prints states and time.
#![expect(clippy::print_stdout, reason = "a command")]
use dm_explore::Search;
use dm_models::{Size, all};

fn main() {
    let pick = std::env::args().nth(1);
    for entry in all().filter(|e| pick.as_deref().is_none_or(|p| e.name == p)) {
        for variant in entry.variants() {
            let (mut states, mut time, mut wrong) = (0, 0.0, 0);
            for (i, case) in entry.cases_of(variant).into_iter().enumerate() {
                if case.size == Size::Nightly && std::env::args().nth(2).is_none() {
                    continue;
                }
                let ran = entry.run(variant, i, Search::exhaustive());
                let r = ran.verdict.report();
                states += r.states;
                time += r.time.as_secs_f64();
                if r.time.as_secs_f64() > 0.5 {
                    println!(
                        "   {} {variant} {i} {} {} states {:.2} s {}",
                        entry.name,
                        case.shape,
                        r.states,
                        r.time.as_secs_f64(),
                        case.knobs
                    );
                }
                if let Err(e) = ran.judge() {
                    wrong += 1;
                    if wrong < 3 {
                        println!("{e}");
                    }
                }
            }
            println!(
                "{:<14} {variant:<20} {states:>9} states {time:>7.2} s, {wrong} wrong",
                entry.name
            );
        }
    }
}
