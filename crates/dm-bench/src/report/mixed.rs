//! Refuses rows with different settings that a plot would show as one curve.

use std::collections::HashMap;
use std::fmt;

use super::Row;
use super::columns::{Column, Difference, Kind};

/// The reason why rows do not belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MixedRows {
    /// Two rows of one curve were measured in different settings.
    Settings {
        /// The rows.
        rows: [String; 2],
        /// The first column in which they differ.
        difference: Difference,
    },
    /// One point was measured twice with one seed.
    Twice {
        /// The rows.
        rows: [String; 2],
    },
}

impl fmt::Display for MixedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settings {
                rows: [one, other],
                difference,
            } => write!(f, "{one} and {other} are not points of one curve: {difference}"),
            Self::Twice { rows: [one, other] } => {
                write!(f, "{one} and {other} are the same point: keep one of them")
            }
        }
    }
}

impl std::error::Error for MixedRows {}

/// Returns the name of a row with its number in the list, from 1.
fn numbered(at: usize, row: &Row) -> String {
    format!("row {} ({})", at + 1, row.name())
}

/// Returns the curve on which a row is drawn: its panel and its series.
pub(crate) fn curve(row: &Row) -> (&str, String) {
    (row.panel_title(), row.series())
}

/// Checks that the rows of each curve have the same setting except for their place on the curve and their seed, and
/// that no point occurs twice with one seed. The place on a curve is the number of clients or the size of the caches.
///
/// # Errors
/// Returns [`MixedRows`], which names the first two rows that do not belong together.
pub fn check_curves(rows: &[Row]) -> Result<(), MixedRows> {
    let mut curves: HashMap<_, Vec<usize>> = HashMap::new();
    for (at, row) in rows.iter().enumerate() {
        let earlier = curves.entry(curve(row)).or_default();
        check_after(rows, earlier, at)?;
        earlier.push(at);
    }
    Ok(())
}

/// Checks that row `at` belongs to the `earlier` rows of its curve.
fn check_after(rows: &[Row], earlier: &[usize], at: usize) -> Result<(), MixedRows> {
    let row = &rows[at];
    let pair = |other: usize| [numbered(other, &rows[other]), numbered(at, row)];
    let mixed = |other: usize, matters: fn(&Column) -> bool| match rows[other].difference(row, matters) {
        Some(difference) => Err(MixedRows::Settings {
            rows: pair(other),
            difference,
        }),
        None => Ok(()),
    };
    let find = |is: &dyn Fn(&Row) -> bool| earlier.iter().copied().find(|&other| is(&rows[other]));
    if let Some(&first) = earlier.first() {
        mixed(first, |column| column.kind == Kind::Setting)?;
    }
    // Along one curve, either the number of clients or the size of the caches varies.
    if find(&|other| other.clients != row.clients).is_some()
        && let Some(other) = find(&|other| other.cache_limit_bytes != row.cache_limit_bytes)
    {
        mixed(other, |column| column.name == "cache_limit_bytes")?;
    }
    // A row that combines several seeds is taken to cover consecutive seeds, beginning with its own.
    let seeds = |row: &Row| row.seed..row.seed.saturating_add(row.seeds.max(1));
    let again = find(&|other| {
        let (ours, theirs) = (seeds(row), seeds(other));
        other.place() == row.place() && ours.start < theirs.end && theirs.start < ours.end
    });
    again.map_or(Ok(()), |other| Err(MixedRows::Twice { rows: pair(other) }))
}

#[cfg(test)]
mod tests {
    use super::super::samples::samples;
    use super::*;

    #[test]
    fn rows_of_one_run_belong_together() {
        assert_eq!(check_curves(&samples()), Ok(()));
        let mut seeds = samples();
        let more = seeds.iter().cloned().map(|row| Row { seed: 8, ..row });
        seeds.extend(more.collect::<Vec<_>>());
        assert_eq!(check_curves(&seeds), Ok(()));
    }

    #[test]
    fn the_two_rows_and_the_first_field_are_named() {
        let mut rows = samples();
        rows[3].value_bytes = 64;
        rows[3].cache_limit_bytes = 1;
        assert_eq!(
            check_curves(&rows).unwrap_err().to_string(),
            "row 1 (sherman, c, 16 clients, cache 0 MB, seed 7) and row 4 (sherman, c, 128 clients, \
             cache 0.000001 MB, seed 7) are not points of one curve: \
             `value_bytes` is 8 in the first and 64 in the second"
        );
        // A difference in any setting is refused; the commit of dmkit counts as a setting.
        for column in [
            "fabric",
            "model_hash",
            "memory_nodes",
            "commit",
            "duration_us",
            "assumptions",
        ] {
            let mut values = samples()[5].values();
            let other = match &values[column] {
                serde_json::Value::String(_) => "other".into(),
                _ => 77.into(),
            };
            values.insert(column.to_owned(), other);
            let mut rows = samples();
            rows[5] = serde_json::from_value(values.into()).unwrap();
            match check_curves(&rows) {
                Err(MixedRows::Settings { difference, .. }) => assert_eq!(difference.column, column),
                other => panic!("{column}: {other:?}"),
            }
        }
    }

    #[test]
    fn other_curves_and_other_panels_may_have_other_settings() {
        let mut rows = samples();
        for row in rows
            .iter_mut()
            .filter(|row| row.index == "fg+" || row.workload == "load")
        {
            row.cache_limit_bytes = 1;
        }
        assert_eq!(check_curves(&rows), Ok(()));
        rows.iter_mut()
            .filter(|row| row.workload == "a")
            .for_each(|row| row.workload = "c".to_owned());
        assert!(matches!(check_curves(&rows), Err(MixedRows::Twice { .. })));
        rows.iter_mut()
            .skip(18)
            .for_each(|row| row.panel = "another".to_owned());
        rows.retain(|row| row.workload != "load");
        assert_eq!(check_curves(&rows), Ok(()));
    }

    #[test]
    fn a_curve_goes_along_clients_or_along_caches() {
        let mut rows = samples();
        for (at, row) in rows.iter_mut().enumerate() {
            row.clients = 16;
            row.cache_limit_bytes = at as u64;
        }
        assert_eq!(check_curves(&rows), Ok(()));
        rows[4].clients = 32;
        let told = check_curves(&rows).unwrap_err().to_string();
        assert!(
            told.contains("`cache_limit_bytes` is 0 in the first and 4 in the second"),
            "{told}"
        );
    }

    #[test]
    fn one_point_is_not_there_twice() {
        let mut rows = samples();
        rows.push(rows[2].clone());
        let told = check_curves(&rows).unwrap_err().to_string();
        assert!(
            told.starts_with("row 3 (sherman, c, 64 clients, cache 0 MB, seed 7) and row 55 (")
                && told.ends_with("keep one of them"),
            "{told}"
        );
        rows[54].seed = 8;
        assert_eq!(check_curves(&rows), Ok(()));
        // This row combines the seeds 5, 6 and 7, and seed 7 is also the seed of row 3.
        (rows[54].seed, rows[54].seeds) = (5, 3);
        assert!(matches!(check_curves(&rows), Err(MixedRows::Twice { .. })));
    }
}
