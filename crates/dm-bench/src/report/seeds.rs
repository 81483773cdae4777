//! Combines the rows of several seeds into one row, with confidence intervals of the means.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::Row;
use super::columns::{Fold, Kind};
use super::mixed::{MixedRows, check_curves, curve};

/// The quantile 0.975 of Student's t for 1 to 30 degrees of freedom.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// Returns the quantile 0.975 of Student's t.
fn t(degrees: usize) -> f64 {
    const Z: f64 = 1.959_964;
    match degrees.checked_sub(1).and_then(|at| T.get(at)) {
        Some(known) => *known,
        // This is the first term of the expansion in 1/degrees. It is right to three digits here.
        None => Z + (Z.powi(3) + Z) / (4.0 * degrees as f64),
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns half of the 95 % confidence interval of the mean of at least two values.
fn half_interval(values: &[f64]) -> f64 {
    let (count, mean) = (values.len(), mean(values));
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = (squares / (count - 1) as f64).sqrt();
    t(count - 1) * deviation / (count as f64).sqrt()
}

/// Returns one row for each point, in the order in which points first appear.
///
/// # Errors
/// Returns [`MixedRows`] if the rows of a curve do not belong together.
pub fn over_seeds(rows: &[Row]) -> Result<Vec<Row>, MixedRows> {
    check_curves(rows)?;
    let (mut points, mut numbers): (Vec<Vec<&Row>>, _) = (Vec::new(), HashMap::new());
    for row in rows {
        let number = *numbers.entry((curve(row), row.place())).or_insert(points.len());
        if number == points.len() {
            points.push(Vec::new());
        }
        points[number].push(row);
    }
    Ok(points.into_iter().map(|rows| one(&rows)).collect())
}

fn one(rows: &[&Row]) -> Row {
    let [first, _, ..] = rows else {
        return rows[0].clone();
    };
    let all: Vec<Map<String, Value>> = rows.iter().map(|row| row.values()).collect();
    let figures = |name: &str| -> Vec<f64> { all.iter().filter_map(|row| row.get(name)?.as_f64()).collect() };
    let counts = |name: &str| {
        all.iter()
            .filter_map(|row| row.get(name)?.as_u64())
            .collect::<Vec<_>>()
    };
    let mut values = first.values();
    values.insert("seed".to_owned(), rows.iter().map(|row| row.seed).min().into());
    for column in Row::COLUMNS {
        let Kind::Result(fold) = column.kind else {
            continue;
        };
        let value = match fold {
            Fold::First => continue,
            Fold::Sum => counts(column.name).iter().sum::<u64>().into(),
            Fold::Most if column.is_float() => figures(column.name).into_iter().fold(0.0, f64::max).into(),
            Fold::Most => counts(column.name).into_iter().max().into(),
            Fold::Mean => match figures(column.name).as_slice() {
                [] => Value::Null,
                all => mean(all).into(),
            },
            Fold::Interval => {
                let of = column.name.trim_end_matches("_ci95");
                half_interval(&figures(of)).into()
            }
        };
        values.insert(column.name.to_owned(), value);
    }
    serde_json::from_value(Value::Object(values)).expect("each column kept its type")
}

#[cfg(test)]
mod tests {
    use super::super::samples::samples;
    use super::*;

    #[test]
    fn the_interval_is_students() {
        // The four values have mean 10 and standard deviation 2, so the result is 3.182 * 2 / sqrt(4).
        let values = [8.0, 8.0, 12.0, 12.0].map(|value: f64| 10.0 + (value - 10.0) * (3.0_f64 / 4.0).sqrt());
        assert!((mean(&values) - 10.0).abs() < 1e-9);
        assert!(
            (half_interval(&values) - 3.182).abs() < 1e-3,
            "{}",
            half_interval(&values)
        );
        assert_eq!(half_interval(&[5.0; 7]), 0.0);
        // The published values are 2.042 for 30 degrees of freedom, 2.021 for 40, and 1.984 for 100.
        for (degrees, published) in [(30, 2.042), (40, 2.021), (100, 1.984)] {
            assert!((t(degrees) - published).abs() < 2e-3, "{degrees}: {}", t(degrees));
        }
    }

    #[test]
    fn seeds_become_one_row_in_the_order_of_points() {
        let single = samples();
        let mut rows = Vec::new();
        for seed in 7..10 {
            rows.extend(single.iter().cloned().map(|row| Row {
                seed,
                mops: row.mops + (seed as f64 - 8.0),
                max_us: seed as f64,
                wrong_values: u64::from(seed == 9),
                bound_mops: None,
                ..row
            }));
        }
        let all = over_seeds(&rows).unwrap();
        assert_eq!(all.len(), single.len());
        for (point, was) in all.iter().zip(&single) {
            assert_eq!((point.name(), point.seeds), (was.name(), 3));
            assert!((point.mops - was.mops).abs() < 1e-9);
            assert!((point.mops_ci95.unwrap() - 4.303 / 3.0_f64.sqrt()).abs() < 1e-9);
            assert!(point.p99_us_ci95.unwrap() < 1e-9);
            assert_eq!(
                (point.ops, point.wrong_values, point.max_us),
                (3 * was.ops, 1, 9.0)
            );
            assert_eq!((point.bound_mops, &point.bound_by), (None, &was.bound_by));
        }
        // Rows that already combine several seeds stay unchanged.
        assert!(over_seeds(&all).unwrap() == all);
    }

    #[test]
    fn rows_along_caches_are_points_of_their_own() {
        let mut rows = samples();
        rows.truncate(3);
        for (cache, row) in (1..).zip(&mut rows) {
            (row.clients, row.cache_limit_bytes) = (16, cache);
        }
        assert!(over_seeds(&rows).unwrap() == rows);
        let second = rows.clone().into_iter().map(|row| Row { seed: 8, ..row });
        let all = over_seeds(&[rows.clone(), second.collect()].concat()).unwrap();
        let points: Vec<_> = all.iter().map(|row| (row.cache_limit_bytes, row.seeds)).collect();
        assert_eq!(points, [(1, 2), (2, 2), (3, 2)]);
    }

    #[test]
    fn rows_that_do_not_belong_together_are_no_seeds() {
        let mut rows = samples();
        let other = Row {
            seed: 8,
            keys: 5,
            ..rows[0].clone()
        };
        rows.push(other);
        assert!(matches!(over_seeds(&rows), Err(MixedRows::Settings { .. })));
    }
}
