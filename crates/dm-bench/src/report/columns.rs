//! The columns of a row and their purposes. The page `docs/rows.md` is generated from them.

use std::fmt::{self, Write};

use serde_json::{Map, Value};

use super::Row;
use super::table::header_of;

/// A column of the CSV, and a name in a JSON line.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// The column's name.
    pub name: &'static str,
    /// The Rust type of its values.
    pub of: &'static str,
    /// The unit of its values, or an empty string.
    pub unit: &'static str,
    /// The purpose of the column.
    pub kind: Kind,
    /// The meaning of the column, as a sentence.
    pub meaning: &'static str,
}

/// The purpose of a column in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The column names the curve or the panel of the row.
    Curve,
    /// The column must be equal in all rows of one curve.
    Setting,
    /// The column differs along a curve. `Row::place` contains all of these columns.
    Along,
    /// The column differs between the runs of one point.
    Seed,
    /// The column is the time of the measurement.
    Date,
    /// The column is a result.
    Result(Fold),
}

/// The way in which the results of several seeds are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fold {
    /// The mean of the results.
    Mean,
    /// The sum of the results.
    Sum,
    /// The largest result.
    Most,
    /// The result of the first seed.
    First,
    /// Half of the 95 % interval of the mean of the column whose name comes before `_ci95`.
    Interval,
}

impl Column {
    /// Returns whether the column describes the measurement itself, and not its time or its results.
    pub(crate) fn identifies(&self) -> bool {
        !matches!(self.kind, Kind::Date | Kind::Result(_))
    }

    /// Returns the type for a reader who does not know Rust.
    fn words(&self) -> &'static str {
        match self.of {
            "String" => "text",
            "bool" => "true or false",
            "f64" => "number",
            "Option<f64>" => "number or missing",
            "Option<String>" => "text or missing",
            _ => "whole number",
        }
    }

    /// Returns whether the column's value may be infinite or not a number.
    pub(crate) fn is_float(&self) -> bool {
        matches!(self.of, "f64" | "Option<f64>")
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Curve => "curve",
            Self::Setting => "setting",
            Self::Along => "along",
            Self::Seed => "seed",
            Self::Date => "date",
            Self::Result(Fold::Mean) => "result, mean",
            Self::Result(Fold::Sum) => "result, sum",
            Self::Result(Fold::Most) => "result, largest",
            Self::Result(Fold::First) => "result, first",
            Self::Result(Fold::Interval) => "result, interval",
        })
    }
}

/// The first column in which two rows differ, and their values in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The column.
    pub column: &'static str,
    /// The values of both rows.
    pub values: [String; 2],
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [one, other] = &self.values;
        write!(
            f,
            "`{}` is {one} in the first and {other} in the second",
            self.column
        )
    }
}

impl Row {
    /// Returns the row's values by column.
    pub(crate) fn values(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(values)) => values,
            _ => Map::new(),
        }
    }

    /// Returns the differences of the rows in the columns for which `matters` returns `true`.
    fn differences(&self, other: &Self, matters: impl Fn(&Column) -> bool) -> Vec<Difference> {
        let (ours, theirs) = (self.values(), other.values());
        // If both rows are simulated, the machine has no influence.
        let places = !(self.simulated && other.simulated);
        let value = |of: &Map<String, Value>, name| of.get(name).map_or_else(String::new, Value::to_string);
        Self::COLUMNS
            .iter()
            .filter(|column| matters(column) && (places || column.name != "host"))
            .filter(|column| ours.get(column.name) != theirs.get(column.name))
            .map(|column| Difference {
                column: column.name,
                values: [value(&ours, column.name), value(&theirs, column.name)],
            })
            .collect()
    }

    /// Returns the first difference of the rows in the columns for which `matters` returns `true`.
    pub(crate) fn difference(&self, other: &Self, matters: impl Fn(&Column) -> bool) -> Option<Difference> {
        self.differences(other, matters).into_iter().next()
    }

    /// Compares this row with each of `others`. Returns the first difference from the row that differs in the fewest
    /// columns.
    pub(crate) fn nearest_difference<'a>(
        &self,
        others: impl Iterator<Item = &'a Self>,
        matters: impl Fn(&Column) -> bool,
    ) -> Option<Difference> {
        let all = others.map(|other| self.differences(other, &matters));
        all.min_by_key(Vec::len)?.into_iter().next()
    }
}

/// Returns a Markdown page that describes the columns.
pub fn columns_page() -> String {
    let mut page = PREFACE.to_owned();
    for column in Row::COLUMNS {
        let meaning = column.meaning.trim().replace('|', "\\|");
        let (shown, unit) = (header_of(column.name).unwrap_or_default(), column.unit);
        let (words, kind) = (column.words(), column.kind);
        let _ = writeln!(
            page,
            "| `{}` | {shown} | {words} | {unit} | {kind} | {meaning} |",
            column.name
        );
    }
    page
}

const PREFACE: &str = "\
<!-- Made from the type `Row` of dm-bench; change that, then run `DMKIT_WRITE_ROWS=1 cargo test -p dm-bench columns`. -->

# Rows

A row is the result of one point: one index with one number of clients and one size of caches under one workload, with
one seed. It contains the whole setting, so that rows of different settings are never mistaken for each other.

| place | content |
|---|---|
| `rows.jsonl` in the directory of a run | one JSON object per line and point, in the order in which points end; each line is written when its point ends |
| `rows.csv` in the same directory | the same columns with a header line; the rows of several seeds are one row |
| standard output with `--json` | one JSON object per line; the rows of several seeds are one row |

`dmkit plot` and `dmkit merge` read JSON lines. A missing value is `null` in JSON and empty in CSV.

The kind of a column determines how it is used:

* **curve** names the curve or the panel to which a row belongs.
* **setting** must be equal in all rows of one curve. Rows that differ in a setting are refused, not drawn.
* **along** differs along a curve, which goes either along the clients or along the caches. Rows that agree in all of these
  are one point.
* **seed** differs between the runs of one point.
* **date** may differ, and does not affect the result.
* **result** is a measured value. With `--seeds N`, the rows of all seeds become one row, with the mean, the sum, the
  largest or the first of their values. An interval is half of the 95 % confidence interval of a mean, from Student's t.

`commit` is the commit of the checkout in which dmkit was built, followed by `-dirty` if files of the checkout had
changed. A build outside of a checkout takes it from the environment variable `DMKIT_COMMIT`. Without this variable, the
commit is `unknown`.

The second column of this page is the header in the table that a run prints. There, `panel` is the workload
if a row has no panel of its own, `index` is the name of the curve, and `cache` is the sum of `cache_bytes` and
`local_bytes`.

| column | in the table | type | unit | kind | meaning |
|---|---|---|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::super::samples::samples;
    use super::*;

    /// The type, the table of columns and both formats have the same names in the same order.
    #[test]
    fn columns_are_the_fields_of_the_type() {
        let row = &samples()[0];
        let names: Vec<&str> = Row::COLUMNS.iter().map(|column| column.name).collect();
        let mut csv = csv::Writer::from_writer(Vec::new());
        csv.serialize(row).unwrap();
        let csv = String::from_utf8(csv.into_inner().unwrap()).unwrap();
        assert_eq!(csv.lines().next().unwrap(), names.join(","));
        assert_eq!(row.values().len(), names.len());
        for column in Row::COLUMNS {
            let value = &row.values()[column.name];
            let fits = match column.words() {
                "text" => value.is_string(),
                "true or false" => value.is_boolean(),
                "number" => value.is_number(),
                "whole number" => value.is_u64(),
                "number or missing" => value.is_number() || value.is_null(),
                "text or missing" => value.is_string() || value.is_null(),
                other => panic!("{other}"),
            };
            assert!(fits, "{} is {value}", column.name);
            assert!(column.meaning.trim().ends_with('.'), "{}", column.name);
        }
    }

    #[test]
    fn every_interval_belongs_to_a_mean() {
        let find = |name: &str| Row::COLUMNS.iter().find(|column| column.name == name);
        let mut intervals = 0;
        for column in Row::COLUMNS
            .iter()
            .filter(|c| c.kind == Kind::Result(Fold::Interval))
        {
            let of = column.name.strip_suffix("_ci95").expect("a name that ends so");
            assert_eq!(find(of).expect("the mean").kind, Kind::Result(Fold::Mean), "{of}");
            intervals += 1;
        }
        assert!(intervals >= 3, "{intervals}");
    }

    #[test]
    fn the_page_is_that_of_the_columns() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rows.md");
        let page = columns_page();
        if std::env::var_os("DMKIT_WRITE_ROWS").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        let present = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            present == page,
            "docs/rows.md differs from the columns; DMKIT_WRITE_ROWS=1 cargo test -p dm-bench columns"
        );
    }

    #[test]
    fn rows_differ_in_the_first_column_that_matters() {
        let rows = samples();
        let setting = |column: &Column| column.kind == Kind::Setting;
        assert_eq!(
            rows[0].difference(&rows[1], setting),
            None,
            "only clients and results differ"
        );
        let mut other = rows[0].clone();
        other.keys = 500_000;
        other.fill = "as-inserted".to_owned();
        let found = rows[0].difference(&other, setting).unwrap();
        assert_eq!(found.column, "keys");
        assert_eq!(found.values, ["1000000", "500000"]);
    }

    #[test]
    fn a_place_has_every_column_along_a_curve() {
        let along = Row::COLUMNS.iter().filter(|column| column.kind == Kind::Along);
        let mut count = 0;
        for column in along {
            let row = &samples()[0];
            let mut values = row.values();
            values.insert(column.name.to_owned(), 77.into());
            let other: Row = serde_json::from_value(values.into()).unwrap();
            assert_ne!(row.place(), other.place(), "{}", column.name);
            count += 1;
        }
        assert_eq!(count, 2);
    }

    #[test]
    fn the_nearest_row_is_the_one_with_the_fewest_differences() {
        let rows = samples();
        let mut row = rows[4].clone();
        row.cache_limit_bytes = 7;
        let near = row.nearest_difference(rows.iter(), Column::identifies).unwrap();
        assert_eq!(near.column, "cache_limit_bytes");
        assert_eq!(near.values, ["7", "0"]);
    }

    #[test]
    fn the_host_matters_only_if_time_is_real() {
        let mut rows = samples();
        rows.truncate(2);
        rows[1].host = "elsewhere".to_owned();
        let setting = |column: &Column| column.kind == Kind::Setting;
        assert_eq!(rows[0].difference(&rows[1], setting), None);
        rows.iter_mut().for_each(|row| row.simulated = false);
        assert_eq!(rows[0].difference(&rows[1], setting).unwrap().column, "host");
    }
}
