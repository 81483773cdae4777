//! Tests the way from a file to graded claims, with a small real run of each kind.

use dm_shipped::shipped;

use super::*;

/// Returns the experiment with this name, with few operations.
fn small(name: &str) -> Experiment {
    let all = experiment::all().unwrap();
    let mut e = all.into_iter().find(|e| e.name == name).unwrap();
    let panels = e.panels.iter_mut().map(|panel| &mut panel.setup);
    for setup in panels.chain([&mut e.setup]) {
        setup.keys = Some(20_000);
        setup.operations = Some(8_000);
        setup.window_ms = Some(0.2);
    }
    e
}

/// Returns the experiment with only its first panel.
fn tiny(name: &str) -> Experiment {
    let e = small(name);
    let first = e.panels[0].name.clone();
    e.only(|panel| panel == first)
}

/// Runs an experiment without results of earlier runs.
fn run_whole(e: &Experiment, asked: &Reproduce) -> Record {
    run(e, asked, None, "", &shipped(), &Memory::default(), Place::Threads).unwrap()
}

fn asked() -> Reproduce {
    Reproduce {
        names: Vec::new(),
        panels: Vec::new(),
        list: false,
        seeds: Some(1),
        quick: false,
        keys: None,
        leave_one_out: false,
        sensitivity: false,
        page: false,
        evidence: None,
    }
}

#[test]
fn panels_of_an_experiment_can_be_run_one_by_one() {
    let mut e = small("smart-14");
    for panel in &mut e.panels {
        panel.over.as_mut().unwrap().at.truncate(1);
        panel.extra.clear();
    }
    let only = |panel: &str| Reproduce {
        panels: vec![panel.to_owned()],
        ..asked()
    };
    let memory = Memory::default();
    let first = run(&e, &only("C"), None, "", &shipped(), &memory, Place::Threads).unwrap();
    assert_eq!(first.command, "dmkit reproduce smart-14 --seeds 1 --panel \"C\"");
    let part = first.part(&e);
    assert!(part.panels.iter().all(|p| p.name == "C") && part.claims.iter().all(|c| c.panel == "C"));
    assert_eq!(first.outcomes.len(), part.claims.len());

    let both = run(
        &e,
        &only("B"),
        Some(first.clone()),
        "",
        &shipped(),
        &memory,
        Place::Threads,
    )
    .unwrap();
    assert_eq!(both.part(&e).panels.len(), 2);
    assert!(both.samples.starts_with(&first.samples));
    let again = run(
        &e,
        &only("B"),
        Some(both.clone()),
        "",
        &shipped(),
        &memory,
        Place::Threads,
    )
    .unwrap();
    assert_eq!(
        again.samples, both.samples,
        "a panel that is run again takes its own place"
    );
    // Another program's results are not kept, because a record names one commit.
    let newer = run(
        &e,
        &only("B"),
        Some(both.clone()),
        "0a1b",
        &shipped(),
        &memory,
        Place::Threads,
    )
    .unwrap();
    assert!(newer.samples.iter().all(|s| s.panel == "B"));
    // These arguments differ, so none of the earlier results is kept.
    let other = Reproduce {
        seeds: Some(2),
        ..only("B")
    };
    let other = run(&e, &other, Some(both), "", &shipped(), &memory, Place::Threads).unwrap();
    assert!(other.samples.iter().all(|s| s.panel == "B"));

    let unknown = run(&e, &only("Z"), None, "", &shipped(), &memory, Place::Threads).unwrap_err();
    assert!(unknown.to_string().contains("no panel \"Z\""), "{unknown}");
}

#[test]
fn a_tree_experiment_runs_from_file_to_page() {
    let e = tiny("sherman-10");
    let record = run_whole(&e, &asked());
    assert_eq!(record.samples.len(), e.panels[0].all_series().count());
    for sample in &record.samples {
        let figure = |metric| sample.figures.metrics[&metric];
        assert!(figure(metric::Metric::Mops) > 0.0, "{}", sample.series);
        // Of 8,000 operations, the first quarter is the warm-up and is not counted. When the first client has done its
        // last operation, each other client may have one operation in progress; these are not counted either.
        let counted = figure(metric::Metric::Operations);
        assert!((6_000.0 - 176.0..=6_000.0).contains(&counted), "{counted}");
    }
    // With skewed keys, Sherman is much faster than FG+, even in a small run.
    let ratio = record.outcomes[0].model.unwrap().mean;
    assert!(ratio > 2.0, "{ratio}");
    let text = terminal::claims(&e, &record);
    assert!(
        text.contains("Sherman against FG+: throughput") && text.contains("24.7×"),
        "{text}"
    );

    let directory = std::env::temp_dir().join(format!("dmkit-reproduce-{}", std::process::id()));
    record.write(&directory).unwrap();
    let read = Record::read(&directory, &e.name).unwrap().unwrap();
    assert!(Record::read(&directory, "sherman-0").unwrap().is_none());
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(read == record, "a record comes back as it was");
    let counts = tally::papers(std::slice::from_ref(&e), std::slice::from_ref(&read));
    let page = page::page(&[(e.clone(), read)], &counts, &shipped());
    // With one seed, nothing is graded.
    for part in ["24.7×", "20 k keys", "not graded", "1 seed instead of 3"] {
        assert!(page.contains(part), "{part}");
    }
}

/// A point whose result is known is not run again, neither by this process nor by the next one of the same program.
#[test]
fn a_stopped_run_continues_with_its_missing_points() {
    let mut e = tiny("sherman-16");
    e.panels[0].series.truncate(2);
    let directory = std::env::temp_dir().join(format!("dmkit-resume-{}", std::process::id()));
    let effort = Effort {
        seeds: 1,
        quick: false,
        keys: None,
    };
    let cases = Case::all(&e, effort).unwrap();
    let first = {
        let memory = Memory::open(&directory, "0a1b").unwrap();
        cases::run_all("t", &cases[..1], &shipped(), &memory, Place::Threads).unwrap()
    };
    let file = directory.join("points.jsonl");
    let kept = fs::read_to_string(&file).unwrap();
    assert_eq!(kept.lines().count(), 1);
    // The file gets the content that a kill in the middle of the next line leaves. The stored point gets a metric of
    // its own, so that the test recognises it.
    let mark = kept.replace("\"operations\":", "\"splits\":77.0,\"operations\":");
    assert_ne!(mark, kept);
    fs::write(&file, mark + "{\"commit\":\"0a1b\",\"key").unwrap();
    let all = |commit: &str| {
        let memory = Memory::open(&directory, commit).unwrap();
        cases::run_all("t", &cases, &shipped(), &memory, Place::Threads).unwrap()
    };
    let resumed = all("0a1b");
    assert_eq!(resumed[0].figures.metrics[&metric::Metric::Splits], 77.0);
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 3);
    // Another program does not use these results.
    assert!(all("0a1c")[0] == first[0]);
    fs::remove_dir_all(&directory).unwrap();
}

/// Runs one cheap experiment. Its section in docs/EVIDENCE.md must be what this program measures.
#[test]
fn the_evidence_is_what_this_program_measures() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/EVIDENCE.md");
    // A package does not contain the repository's pages.
    let Ok(evidence) = fs::read_to_string(path) else {
        return;
    };
    let all = experiment::all().unwrap();
    let e = all.iter().find(|e| e.name == "sherman-3").unwrap();
    let asked = Reproduce {
        seeds: None,
        leave_one_out: true,
        ..asked()
    };
    let record = run_whole(e, &asked);
    let section = evidence::section(e, &record);
    assert!(
        evidence.contains(&section),
        "docs/EVIDENCE.md does not have this section:\n{section}"
    );
    // All four claims are fitted. With constants from other papers' figures, two of them are reproduced. The other two
    // state the speed of the link, which is the same in all papers, so there is nothing to replace.
    let mut runs = [(e.clone(), record)];
    assert_eq!(tally::without_fits(&runs), [("Sherman".to_owned(), [0, 0, 4, 2])]);
    // Graded claims are counted by themselves, and a claim without a result in the other run does not stand.
    for outcome in &mut runs[0].1.outcomes {
        outcome.fitted.clear();
        outcome.grade = grade::Grade::Reproduced;
    }
    assert_eq!(tally::without_fits(&runs), [("Sherman".to_owned(), [4, 2, 0, 0])]);
}

#[test]
fn equal_seeds_give_equal_figures_and_others_do_not() {
    let mut e = tiny("sherman-16");
    e.panels[0].series = vec!["host".to_owned(), "+handover".to_owned()];
    let effort = Effort {
        seeds: 2,
        quick: false,
        keys: None,
    };
    let figures = || {
        let cases = Case::all(&e, effort).unwrap();
        cases::run_all("t", &cases, &shipped(), &Memory::default(), Place::Threads).unwrap()
    };
    let (one, two) = (figures(), figures());
    assert!(one == two, "one seed, one run");
    assert_ne!(one[0].figures, one[1].figures, "seeds 1 and 2 of one series");
    let handovers = |at: usize| one[at].figures.metrics[&metric::Metric::Handovers];
    assert!(handovers(0) == 0.0 && handovers(2) > 1.0, "{}", handovers(2));
}

#[test]
fn writes_are_bound_by_messages_then_by_the_link() {
    let mut e = tiny("sherman-3");
    let over = e.panels[0].over.as_mut().unwrap();
    over.at = vec![8.0, 1024.0];
    let record = run_whole(&e, &asked());
    let rate = |at, metric| {
        let sample = record
            .samples
            .iter()
            .find(|s| s.at == Some(at) && s.series == "inbound");
        sample.unwrap().figures.metrics[&metric]
    };
    assert!(rate(8.0, metric::Metric::Mops) > 50.0);
    let link = rate(1024.0, metric::Metric::GbytesPerS);
    assert!((10.0..12.5).contains(&link), "{link} GB/s of 12.5");
}

/// Returns the experiment with only the last place of its first panel's dial.
fn last_point(name: &str) -> Experiment {
    let mut e = tiny(name);
    if let Some(over) = &mut e.panels[0].over {
        over.at = over.at.split_off(over.at.len() - 1);
    }
    e
}

/// In these runs, the queue of the busiest resource is never empty while operations are counted. But before that, the
/// first requests have not arrived yet, and at the end the last responses are on their way. A stall by an atomic is added
/// as a whole, so the share of the locks' run has an error of one stall.
#[test]
fn busy_shares_of_runs_without_a_tree_are_those_of_the_counted_time() {
    for (name, error) in [("sherman-2", 7.0), ("sherman-3", 1.0), ("smart-5cd", 1.0)] {
        let mut e = last_point(name);
        e.panels[0].setup.window_ms = Some(0.04);
        e.panels[0].series.truncate(1);
        e.panels[0].extra.clear();
        e.claims.clear();
        let record = run_whole(&e, &asked());
        let share = record.samples[0].figures.metrics[&metric::Metric::OfBound];
        assert!((share - 100.0).abs() < error, "{name}: {share}");
    }
}

/// The number of blocks decides how often clients access the same one, as the number of keys does in a tree. Other runs
/// do not use this number, so `--keys` changes nothing in them.
#[test]
fn reads_of_another_number_of_blocks_are_not_graded() {
    let asked = Reproduce {
        seeds: None,
        keys: Some(1_000),
        ..asked()
    };
    let record = run_whole(&last_point("smart-5cd"), &asked);
    let outcome = &record.outcomes[0];
    assert!(
        outcome.grade == grade::Grade::NotGraded && outcome.at_this_setting.is_some(),
        "{outcome:?}"
    );
    assert!(
        outcome.note.as_ref().unwrap().contains("own setting: 1 k blocks"),
        "{outcome:?}"
    );
    let e = tiny("sherman-16");
    let setup = e.resolve(&e.panels[0], None).unwrap();
    assert_eq!(setup.keys, 20_000);
    for (kind, deviation) in [
        (RunKind::Tree, Some("1 k keys")),
        (RunKind::Reads, Some("1 k blocks")),
        (RunKind::Locks, None),
        (RunKind::Writes, None),
        (RunKind::Leaves, None),
    ] {
        let changes = record.effort.applied(kind, setup.clone()) != setup;
        let deviations = record.effort.deviations(kind);
        assert_eq!(deviations.first().map(String::as_str), deviation, "{kind:?}");
        assert_eq!(changes, deviation.is_some(), "{kind:?}");
    }
}

/// An experiment is counted among those without the fits to their paper exactly if its claims have a column for the
/// grades without these fits. This holds even if that run leaves all claims open, as it does for Sherman's Fig. 2.
#[test]
fn experiments_without_fits_are_counted_and_have_a_column() {
    const COLUMN: &str = "without this paper's fits";
    let asked = Reproduce {
        leave_one_out: true,
        ..asked()
    };
    let effort = Effort {
        seeds: 3,
        quick: false,
        keys: None,
    };
    let record = |e: &Experiment| Record {
        name: e.name.clone(),
        command: command(e, &asked, &effort),
        effort,
        commit: String::new(),
        seconds: 0.0,
        panels: e.panels.iter().map(|panel| panel.name.clone()).collect(),
        samples: Vec::new(),
        outcomes: grade::grade(e, &[], &[]),
        sensitivity: Vec::new(),
        left_out: Vec::new(),
    };
    for e in experiment::all().unwrap() {
        let record = record(&e);
        let run = [(e.clone(), record.clone())];
        let is_counted = !tally::without_fits(&run).is_empty();
        // CHIME's Fig. 16 has no network, and no other paper replaces a constant for Dolphin's.
        for (name, expected) in [("sherman-2", true), ("chime-16", false), ("dolphin-7", false)] {
            assert!(e.name != name || is_counted == expected, "{name}");
        }
        let page = page::page(&run, &[], &shipped());
        for text in [
            evidence::section(&e, &record),
            terminal::claims(&e, &record),
            page,
        ] {
            assert_eq!(text.contains(COLUMN), is_counted, "{}", e.name);
        }
        let reason = terminal::nothing_to_leave_out(&e);
        assert_eq!(
            reason.contains("no network"),
            e.kind == RunKind::Leaves,
            "{reason}"
        );
    }
}

/// Runs experiments about leaves and about READs. Each of their claims gets a figure.
#[test]
fn leaves_and_reads_run_from_file_to_claims() {
    for name in ["smart-table-2", "chime-19-load", "smart-5cd"] {
        let mut e = small(name);
        for panel in &mut e.panels {
            panel.setup.operations = Some(10);
        }
        let record = run_whole(&e, &asked());
        for outcome in &record.outcomes {
            let figure = outcome.model.unwrap().mean;
            assert!(figure > 0.0, "{name} {}: {figure}", outcome.what);
        }
        let facts = facts::of(&e, record.effort).join("; ");
        assert_eq!(facts.contains("no network"), name != "smart-5cd", "{facts}");
    }
}

/// Half of the threads only scan, and the throughput of the scans is a figure of its own.
#[test]
fn scans_and_writes_by_thread() {
    let mut e = tiny("sherman-12");
    e.panels[0].setup.mix = Some("range-write".to_owned());
    e.panels[0].setup.by_thread = Some(true);
    e.panels[0].over.as_mut().unwrap().at = vec![100.0];
    e.panels[0].series.truncate(1);
    e.panels[0].extra.clear();
    e.claims.clear();
    let record = run_whole(&e, &asked());
    let figures = &record.samples[0].figures.metrics;
    let (scans, all) = (figures[&metric::Metric::ScanMops], figures[&metric::Metric::Mops]);
    assert!(scans > 0.0 && scans < all * 0.8, "{scans} of {all}");
}

/// The list has every figure of the papers: the name of its experiment, or the reason why there is none.
#[test]
fn the_list_has_every_figure_and_why_it_does_not_run() {
    let all = experiment::all().unwrap();
    let text = listing(&all);
    for e in &all {
        assert!(text.lines().any(|line| line.starts_with(&e.name)), "{}", e.name);
    }
    for figure in catalogue::all() {
        let name = format!("{} {}: {}", figure.paper, figure.figure, figure.shows);
        let line = text.lines().find(|line| line.contains(&name)).unwrap();
        assert!(line.contains(figure.why.as_deref().unwrap_or_default()), "{line}");
    }
    for figure in [
        "SMART Fig. 22 g",
        "CHIME Fig. 18 d",
        "Dolphin Table I:",
        "Sherman Table 2",
    ] {
        assert!(text.contains(figure), "{figure}");
    }
}

/// The rear lock saves a round trip of each update (SMART §5.3.1), and locks of inner nodes cost an insert two.
#[test]
fn the_steps_from_art_to_smart_have_the_papers_round_trips() {
    let e = small("smart-18");
    let setup = e.resolve(&e.panels[0], None).unwrap();
    let trips = |series: &str| {
        let point = tree::point(&shipped(), series, &setup, 1).unwrap();
        let trips = point.trips(setup.model.caps).unwrap();
        (trips.update.round(), trips.insert.round())
    };
    let steps = ["art", "art +lock-free", "art +in-place", "smart -rdwc"];
    assert_eq!(steps.map(trips), [(3.0, 3.0), (3.0, 1.0), (4.0, 1.0), (3.0, 1.0)]);
    let others = ["art +read-delegation", "smart", "smart published-delegation"];
    assert_eq!(others.map(trips), [(3.0, 1.0); 3]);
}

#[test]
fn unknown_names_are_refused_with_the_list() {
    let all = experiment::all().unwrap();
    let wrong = choose(&all, &["sherman-99".to_owned()]).unwrap_err().to_string();
    assert!(wrong.contains("sherman-table-1"), "{wrong}");
    assert_eq!(choose(&all, &["all".to_owned()]).unwrap().len(), all.len());
}

#[test]
fn an_experiment_may_be_a_file_of_ones_own() {
    let all = experiment::all().unwrap();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/chime-12.toml").to_owned();
    let chosen = choose(&all, &["dolphin-7".to_owned(), file]).unwrap();
    let names: Vec<&str> = chosen.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(names, ["dolphin-7", "chime-12"]);
    for (name, why) in [
        ("/no/such/file.toml", "/no/such/file.toml"),
        ("chime-1", "chime-12"),
    ] {
        let refused = choose(&all, &[name.to_owned()]).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn every_series_of_every_experiment_is_in_the_registry() {
    for experiment in experiment::all().unwrap() {
        experiment.check_series(&shipped()).unwrap();
    }
    let mut e = tiny("sherman-10");
    e.panels[0].series.push("fg++".to_owned());
    let wrong = e.check_series(&shipped()).unwrap_err().to_string();
    assert!(
        wrong.contains("did you mean \"fg+\"") && wrong.contains("smart -rdwc"),
        "{wrong}"
    );
}

/// A file of few lines is an experiment, and its result is on the page.
#[test]
fn an_experiment_of_ones_own_is_short_and_on_the_page() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/own-experiment.toml");
    assert!(fs::read_to_string(file).unwrap().lines().count() <= 60);
    let directory = std::env::temp_dir().join(format!("dmkit-own-{}", std::process::id()));
    let output = dm_bench::Output {
        out: directory.clone(),
        no_plot: true,
        ..dm_bench::Output::default()
    };
    let asked = Reproduce {
        names: vec![file.to_owned()],
        seeds: None,
        page: true,
        evidence: Some(directory.join("EVIDENCE.md")),
        ..asked()
    };
    perform(&asked, &output, &shipped()).unwrap();
    let page = fs::read_to_string(directory.join("index.html")).unwrap();
    let evidence = fs::read_to_string(directory.join("EVIDENCE.md")).unwrap();
    // The table is made from the results, without the rows.
    let all: Vec<_> = fs::read_dir(directory.join("evidence"))
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    assert!(matches!(&all[..], [one] if one.contains("outcomes") && !one.contains("samples")));
    fs::remove_dir_all(&directory).unwrap();
    for text in [&page, &evidence] {
        for part in ["Reads of two indexes", "20 k keys", "direction only", "Example"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
