//! Describes the setup of an experiment in words.

use dm_index::Fill;
use dm_workload::{Distribution, hottest_share};

use super::cases::Effort;
use super::experiment::{Experiment, Panel, RunKind};
use super::setup::{Dial, Resolved};
use dm_bench::report::figure;

/// Describes the setup of a run: first what all panels share, then what only some of them have.
pub(crate) fn of(experiment: &Experiment, effort: Effort) -> Vec<String> {
    let panels: Vec<(&str, Vec<String>)> = experiment
        .panels
        .iter()
        .filter_map(|panel| Some((panel.name.as_str(), of_panel(experiment, panel, effort)?)))
        .collect();
    let Some((_, first)) = panels.first() else {
        return Vec::new();
    };
    let shared = |fact: &String| panels.iter().all(|(_, facts)| facts.contains(fact));
    let mut facts: Vec<String> = first.iter().filter(|fact| shared(fact)).cloned().collect();
    facts.push(match effort.seeds {
        1 => "1 seed".to_owned(),
        seeds => format!("{seeds} seeds"),
    });
    // Panels with the same facts are named together.
    let mut groups: Vec<(Vec<&str>, String)> = Vec::new();
    for (name, facts) in &panels {
        let own: Vec<&str> = facts
            .iter()
            .filter(|fact| !shared(fact))
            .map(String::as_str)
            .collect();
        let own = own.join(", ");
        match groups.iter_mut().find(|(_, known)| *known == own) {
            Some((names, _)) => names.push(name),
            None => groups.push((vec![name], own)),
        }
    }
    groups.retain(|(_, own)| !own.is_empty());
    facts.extend(
        groups
            .into_iter()
            .map(|(names, own)| format!("panel {}: {own}", names.join(" and "))),
    );
    facts
}

/// Describes the setup of a panel, with all values of its dial and with the settings of single series.
fn of_panel(experiment: &Experiment, panel: &Panel, effort: Effort) -> Option<Vec<String>> {
    let at = panel.places().next().flatten();
    let dial = panel.over.as_ref().map(|over| &over.dial);
    let describe = |setup| words(experiment.kind, &effort.applied(experiment.kind, setup), dial);
    let mut facts = describe(experiment.resolve(panel, at).ok()?);
    let common = facts.clone();
    for series in panel.own.keys() {
        let mut own = describe(experiment.resolve_for(panel, at, series).ok()?);
        own.retain(|fact| !common.contains(fact));
        facts.push(format!("{series} with {}", own.join(", ")));
    }
    if let Some(over) = &panel.over {
        let values: Vec<String> = over.at.iter().map(f64::to_string).collect();
        facts.push(format!("{}: {}", over.dial.label(), values.join(" ")));
    }
    Some(facts)
}

/// Describes a setup, without the setting of the dial.
fn words(kind: RunKind, r: &Resolved, dial: Option<&Dial>) -> Vec<String> {
    let place = if r.colocated {
        "on the same machines"
    } else {
        "on machines of their own"
    };
    let mut facts = vec![
        r.model.name.to_owned(),
        match dial {
            Some(Dial::MemoryNodes) => format!("{} compute nodes, and memory nodes {place}", r.compute_nodes),
            _ => format!(
                "{} compute and {} memory nodes {place}",
                r.compute_nodes, r.memory_nodes
            ),
        },
    ];
    if dial != Some(&Dial::Clients) {
        facts.push(format!("{} client threads", r.clients));
    }
    if r.coroutines > 1 && dial != Some(&Dial::Coroutines) {
        facts.push(format!("{} coroutines a thread", r.coroutines));
    }
    match kind {
        RunKind::Tree => {
            let like = if r.addresses { " like mail addresses" } else { "" };
            facts.push(match dial {
                Some(Dial::KeyBytes) => format!("{} keys, values of {} bytes", count(r.keys), r.value_bytes),
                Some(Dial::ValueBytes) => format!("{} keys of {} bytes{like}", count(r.keys), r.key_bytes),
                _ => format!(
                    "{} keys of {} + {} bytes{like}",
                    count(r.keys),
                    r.key_bytes,
                    r.value_bytes
                ),
            });
            if let Some(entries) = r.entries.filter(|_| dial != Some(&Dial::Entries)) {
                facts.push(format!("{entries} entries a node"));
            }
            let varies = |name: &str| matches!(dial, Some(Dial::Knob(knob)) if knob == name);
            let knobs = r.knobs.iter().filter(|(name, _)| !varies(name));
            facts.extend(knobs.map(|(name, value)| format!("{} {value}", name.replace('-', " "))));
            facts.push(match r.fill {
                Fill::Even(share) => format!("leaves loaded {:.0} % full", share * 100.0),
                Fill::AsInserted => "leaves as full as inserts in random order leave them".to_owned(),
            });
            if dial != Some(&Dial::CacheBytesPerKey) {
                let each = r.cache_bytes as f64 / r.keys.max(1) as f64;
                facts.push(format!("{} bytes of index cache per key", figure(each)));
            }
            if dial == Some(&Dial::Inserts) {
                facts.push("gets and inserts".to_owned());
            } else if let Some(mix) = &r.mix {
                facts.push(format!("mix {mix}"));
            }
            if r.own_updates {
                facts.push("no two clients update the same key".to_owned());
            }
            facts.push(skew(r, dial));
            facts.push(format!(
                "{} operations a run, a quarter to warm up",
                count(r.operations)
            ));
            if r.window_ns > 0 {
                facts.push(format!(
                    "at least {} ms of virtual time",
                    r.window_ns as f64 / 1e6
                ));
            }
        }
        RunKind::Locks => {
            facts.push(format!("{} locks", count(u64::from(r.locks))));
            if dial != Some(&Dial::Skew) {
                facts.push(law(r, dial));
            }
            facts.push(format!(
                "{} ms of virtual time, a quarter to warm up",
                r.window_ns as f64 / 1e6
            ));
        }
        RunKind::Writes => facts.push(format!(
            "{} µs of virtual time, a quarter to warm up",
            r.window_ns / 1000
        )),
        RunKind::Reads => {
            facts.push(format!("{} blocks, {}", count(r.keys), law(r, dial)));
            facts.push(format!(
                "{} µs of virtual time, a quarter to warm up",
                r.window_ns / 1000
            ));
        }
        RunKind::Leaves => return of_leaves(r, dial),
    }
    facts
}

/// Describes leaves that are used without a network.
fn of_leaves(r: &Resolved, dial: Option<&Dial>) -> Vec<String> {
    let mut facts = vec!["no network".to_owned()];
    if let Some(entries) = r.entries.filter(|_| dial != Some(&Dial::Entries)) {
        facts.push(format!("leaves of {entries} entries"));
    }
    if dial != Some(&Dial::KeyBytes) {
        facts.push(format!("items of {} + {} bytes", r.key_bytes, r.value_bytes));
    }
    if r.operations > 0 {
        facts.push(format!("{} tables filled", r.operations));
    }
    facts
}

/// Returns the distribution. If Zipf's exponent varies, the text leaves it out.
fn law(r: &Resolved, dial: Option<&Dial>) -> String {
    let zipf = match r.distribution.theta() {
        _ if dial == Some(&Dial::Skew) => "Zipf".to_owned(),
        Some(theta) => format!("Zipf {theta}"),
        None => return "uniform".to_owned(),
    };
    match r.distribution {
        Distribution::Latest { .. } => format!("the latest keys most, {zipf}"),
        Distribution::Uniform | Distribution::Zipf { .. } => zipf,
    }
}

/// Returns the distribution of a tree's operations, and the number of ranks if there are more than loaded keys and if
/// it does not vary. For Zipf's law with one exponent, also returns the share of the hottest key.
fn skew(r: &Resolved, dial: Option<&Dial>) -> String {
    let law = law(r, dial);
    let varies = dial == Some(&Dial::Skew);
    let uniform = r.distribution == Distribution::Uniform && !varies;
    if uniform || r.ranks == r.keys || dial == Some(&Dial::Ranks) {
        return law;
    }
    let law = format!("{law} over {} ranks", count(r.ranks));
    match r.distribution {
        Distribution::Latest { .. } => law,
        Distribution::Zipf { theta } if !varies => format!(
            "{law}, several for each loaded key: the hottest key has {:.2} % of the draws instead of {:.2} %",
            100.0 * hottest_share(r.ranks, theta),
            100.0 * hottest_share(r.keys, theta)
        ),
        Distribution::Uniform | Distribution::Zipf { .. } => format!("{law}, several for each loaded key"),
    }
}

/// Formats a count, in thousands, millions or billions if one decimal is enough for it: for example 2 M instead of
/// 2000000.
pub(crate) fn count(count: u64) -> String {
    for (unit, name) in [(1_000_000_000, " G"), (1_000_000, " M"), (1_000, " k")] {
        if count >= unit && count.is_multiple_of(unit / 10) {
            return format!("{}{name}", count as f64 / unit as f64);
        }
    }
    count.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_short() {
        assert_eq!(
            [64, 10_240, 400_000, 1_500_000, 1_000_000_000].map(count),
            ["64", "10240", "400 k", "1.5 M", "1 G"]
        );
    }

    fn facts(effort: Effort) -> String {
        let all = super::super::experiment::all().unwrap();
        let fig10 = all.iter().find(|e| e.name == "sherman-10").unwrap();
        of(fig10, effort).join("; ")
    }

    #[test]
    fn both_key_counts_are_said() {
        let text = facts(Effort {
            seeds: 3,
            quick: false,
            keys: None,
        });
        for part in [
            "1 G ranks",
            "4.24 %",
            "2 M keys",
            "400 k operations",
            "3 seeds",
            "panel a: mix write-only",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    /// Returns the facts of an experiment after `change`.
    fn changed(name: &str, keys: Option<u64>, change: impl Fn(&mut Experiment)) -> String {
        let mut all = super::super::experiment::all().unwrap();
        let experiment = all.iter_mut().find(|e| e.name == name).unwrap();
        change(experiment);
        let effort = Effort {
            seeds: 3,
            quick: false,
            keys,
        };
        of(experiment, effort).join("; ")
    }

    /// If the exponent varies, the facts have the law and all exponents, even if the first one is that of uniform keys.
    #[test]
    fn all_exponents_of_a_dial_are_said() {
        let with_ranks = |ranks| {
            changed("chime-18a", None, |e| {
                e.setup.ranks = ranks;
                e.panels[0].over.as_mut().unwrap().at = vec![0.0, 0.99];
            })
        };
        let exponents = "Zipf exponent: 0 0.99";
        let text = with_ranks(Some(60_000_000));
        let law = "; Zipf over 60 M ranks, several for each loaded key; ";
        assert!(text.contains(law) && text.contains(exponents), "{text}");
        assert!(!text.contains("uniform"), "{text}");
        // There is one rank for each key.
        let text = with_ranks(None);
        assert!(text.contains("; Zipf; ") && text.contains(exponents), "{text}");
        let text = changed("chime-18a", None, |e| e.setup.latest = Some(true));
        assert!(
            text.contains("the latest keys most, Zipf over 60 M ranks; "),
            "{text}"
        );
        // An exponent of 0 beside a dial of another setting is that of uniform keys.
        let text = changed("sherman-10", None, |e| e.setup.skew = Some(0.0));
        assert!(text.contains("uniform") && !text.contains("Zipf"), "{text}");
    }

    /// If the number of ranks varies, the facts do not have the number and the hottest key of its first value.
    #[test]
    fn all_numbers_of_ranks_of_a_dial_are_said() {
        let text = changed("smart-22gh", None, |_| ());
        assert!(text.contains("; Zipf 0.99; "), "{text}");
        assert!(
            text.contains("Zipf ranks are drawn: 60000000 120000000"),
            "{text}"
        );
        assert!(!text.contains("60 M") && !text.contains("hottest"), "{text}");
    }

    /// READs of blocks draw over the blocks, whatever their number.
    #[test]
    fn blocks_have_a_rank_each() {
        for keys in [None, Some(100_000)] {
            let text = changed("smart-5cd", keys, |_| ());
            assert!(
                text.contains(" blocks, Zipf 0.99; ") && !text.contains("ranks"),
                "{text}"
            );
        }
    }

    /// The facts are those of the run, not those of the experiment's file.
    #[test]
    fn facts_are_those_of_the_run() {
        let text = facts(Effort {
            seeds: 1,
            quick: true,
            keys: Some(50_000),
        });
        for part in ["50 k keys", "66666 operations", "1 seed"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("2 M keys") && !text.contains("400 k"), "{text}");
    }
}
