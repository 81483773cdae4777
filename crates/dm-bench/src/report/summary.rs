//! Summarises the rows of a run in sentences: the fastest index of each panel, its lead, and the resource that limits
//! it.

use std::collections::HashSet;

use super::Row;

/// Returns one sentence for each panel, in the order of the rows, and one for each row in which compute nodes died.
pub fn sentences(rows: &[Row]) -> Vec<String> {
    let panels = panels(rows).into_iter();
    let mut all: Vec<String> = panels
        .filter_map(|(title, rows)| sentence(title, &rows))
        .collect();
    all.extend(rows.iter().filter(|row| row.killed > 0).map(deaths));
    all
}

/// Describes the consequences of the deaths in a row.
fn deaths(row: &Row) -> String {
    let number = |count: u64, one: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {one}s"),
    };
    let mut text = format!(
        "{}, {}: {} died",
        row.series(),
        row.workload,
        number(row.killed, "compute node")
    );
    text += &match row.recovery_us {
        Some(longest) => format!(
            "; the others expelled {} and freed {}, at most {:.2} ms after a death",
            row.expelled,
            number(row.freed_locks, "lock"),
            longest / 1e3
        ),
        None => "; nobody was expelled".to_owned(),
    };
    text + &format!("; {} ended in an error.", number(row.failed_ops, "operation"))
}

/// Returns the rows of each panel, in the order in which the panels first occur. A row without its own panel belongs to
/// its workload's panel.
pub(super) fn panels(rows: &[Row]) -> Vec<(&str, Vec<&Row>)> {
    let mut panels: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in rows {
        let title = row.panel_title();
        match panels.iter_mut().find(|(known, _)| *known == title) {
            Some((_, rows)) => rows.push(row),
            None => panels.push((title, vec![row])),
        }
    }
    panels
}

/// Returns the fastest row of each series, in descending order of throughput.
fn peaks<'a>(rows: &[&'a Row]) -> Vec<&'a Row> {
    let mut peaks: Vec<&Row> = Vec::new();
    for row in rows {
        match peaks.iter_mut().find(|peak| peak.series() == row.series()) {
            Some(peak) if peak.mops < row.mops => *peak = row,
            Some(_) => {}
            None => peaks.push(row),
        }
    }
    peaks.sort_by(|a, b| b.mops.total_cmp(&a.mops));
    peaks
}

/// Returns the name of the row's curve. Adds how many points the curve has if other curves of the panel have more, as
/// after an interrupted run.
fn curve(row: &Row, rows: &[&Row]) -> String {
    let all: HashSet<_> = rows.iter().map(|row| row.place()).collect();
    let series = row.series();
    let own = rows.iter().filter(|row| row.series() == series);
    let own = own.map(|row| row.place()).collect::<HashSet<_>>().len();
    match all.len() {
        all if own < all => format!("{series} (incomplete: {own} of {all} points)"),
        _ => series,
    }
}

fn sentence(title: &str, rows: &[&Row]) -> Option<String> {
    let peaks = peaks(rows);
    let (first, others) = peaks.split_first()?;
    let mut text = format!(
        "{title}: {} reaches {:.2} Mops at {} clients",
        curve(first, rows),
        first.mops,
        first.clients
    );
    if rows
        .iter()
        .any(|row| row.cache_limit_bytes != first.cache_limit_bytes)
    {
        text += &format!(" with caches of {}", first.cache_limit());
    }
    if let Some(second) = others.first() {
        let times = first.mops / second.mops.max(f64::MIN_POSITIVE);
        text += &format!(", {times:.2} times {} ({:.2})", curve(second, rows), second.mops);
    }
    if let Some(last) = others.last().filter(|_| others.len() > 1) {
        let times = first.mops / last.mops.max(f64::MIN_POSITIVE);
        text += &format!(" and {times:.2} times {} ({:.2})", curve(last, rows), last.mops);
    }
    text += &binding(first);
    Some(text + ".")
}

/// Returns a text about what limits a row.
fn binding(row: &Row) -> String {
    let (Some(share), Some(by), Some(limit)) = (row.bound_share, &row.bound_by, &row.limit) else {
        return String::new();
    };
    let percent = 100.0 * share;
    if limit == by {
        format!("; its limit: {by} ({percent:.0} % busy)")
    } else {
        format!("; its limit: {limit}; {by}: {percent:.0} % busy")
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::samples;
    use super::*;

    #[test]
    fn each_panel_has_a_sentence_that_its_rows_bear_out() {
        let rows = samples();
        let told = sentences(&rows);
        assert_eq!(told.len(), 3);
        for (text, workload) in told.iter().zip(["c", "a", "load"]) {
            let of = |series: &str| {
                let of = rows
                    .iter()
                    .filter(|row| row.workload == workload && row.series() == series);
                of.map(|row| row.mops).fold(0.0, f64::max)
            };
            let (first, second, last) = (of("sherman"), of("sherman (published)"), of("fg+"));
            let expected = format!(
                "{workload}: sherman reaches {first:.2} Mops at 512 clients, {:.2} times sherman (published) ({second:.2}) \
                 and {:.2} times fg+ ({last:.2}); its limit: mn rx (95 % busy).",
                first / second,
                first / last
            );
            assert_eq!(*text, expected);
        }
    }

    #[test]
    fn a_curve_that_lacks_points_is_called_incomplete() {
        let mut rows = samples();
        rows.retain(|row| row.workload == "c" && (row.index != "fg+" || row.clients < 128));
        let told = sentences(&rows).remove(0);
        let expected = format!("times fg+ (incomplete: 3 of 6 points) ({:.2})", rows[14].mops);
        assert!(told.contains(&expected), "{told}");
        assert_eq!(told.matches("incomplete").count(), 1, "{told}");
        // The leader may be the curve that lacks points.
        rows.retain(|row| row.series() != "sherman" || row.clients == 512);
        let told = sentences(&rows).remove(0);
        assert!(
            told.starts_with("c: sherman (incomplete: 1 of 6 points) reaches "),
            "{told}"
        );
    }

    #[test]
    fn deaths_are_told() {
        let mut row = samples().remove(0);
        (row.killed, row.failed_ops) = (1, 2);
        assert_eq!(
            deaths(&row),
            "sherman, c: 1 compute node died; nobody was expelled; 2 operations ended in an error."
        );
        (row.killed, row.expelled, row.freed_locks, row.recovery_us) = (3, 2, 1, Some(11_900.0));
        row.recovery = "off".to_owned();
        assert_eq!(
            sentences(&[row])[1],
            "sherman (recovery:off), c: 3 compute nodes died; the others expelled 2 and freed 1 lock, at most 11.90 ms after a \
             death; 2 operations ended in an error."
        );
    }

    #[test]
    fn the_caches_of_the_leader_are_told_where_caches_differ() {
        let mut rows = samples();
        rows.truncate(6);
        for (cache, row) in (1..).zip(&mut rows) {
            (row.clients, row.cache_limit_bytes) = (160, cache * 2_000_000);
        }
        let told = sentences(&rows).remove(0);
        assert!(
            told.starts_with(&format!(
                "c: sherman reaches {:.2} Mops at 160 clients with caches of 12 MB;",
                rows[5].mops
            )),
            "{told}"
        );
    }

    #[test]
    fn a_limit_that_is_no_resource_is_told_with_the_busiest_one() {
        let mut rows = samples();
        rows.truncate(1);
        rows[0].bound_share = Some(0.25);
        rows[0].limit = Some("lock waits 61 %".to_owned());
        let told = sentences(&rows).remove(0);
        assert!(
            told.ends_with("; its limit: lock waits 61 %; mn rx: 25 % busy."),
            "{told}"
        );
        rows[0].bound_share = None;
        assert!(!sentences(&rows)[0].contains("limit"));
    }

    #[test]
    fn a_panel_of_its_own_is_apart_from_the_workload() {
        let mut rows = samples();
        for row in rows.iter_mut().filter(|row| row.clients == 16) {
            row.panel = "cache".to_owned();
        }
        let titles: Vec<String> = panels(&rows)
            .into_iter()
            .map(|(title, _)| title.to_owned())
            .collect();
        assert_eq!(titles, ["cache", "c", "a", "load"]);
    }
}
