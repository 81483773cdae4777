//! Recorded operations.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead};
// This is std's `Arc`, because no model checker runs this code.
use std::sync::Arc;

use crate::mix::{Mix, OpKind};
use crate::stream::Op;

/// A recorded operation and the number of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    kind: OpKind,
    key: u32,
}

impl Row {
    pub(crate) fn op(self) -> Op {
        Op {
            kind: self.kind,
            key: self.key.into(),
            scan_len: 0,
        }
    }
}

/// A trace of a cache, in the form of Twitter's traces (Yang, Yue and Rashmi, OSDI 2020;
/// `github.com/twitter/cache-trace`). Each request is a row of comma-separated columns:
/// `timestamp,key,key size,value size,client id,operation,TTL`.
///
/// Keys are numbered in the order of their first appearance: key `n` of the trace is key `n` of any
/// [`crate::KeySpace`]. Load all keys first, because a trace does not begin with an empty cache. The operations `get`
/// and `gets` become [`Get`](OpKind::Get), and `delete` becomes [`Remove`](OpKind::Remove). The other operations of
/// memcached become [`Upsert`](OpKind::Upsert), because a trace does not record whether an entry was absent or expired.
/// Times, sizes, client ids and TTLs are ignored.
///
/// ```
/// use dm_workload::{OpKind, Plan, Trace};
///
/// let rows = "0,aa,2,39,7,get,0\n0,bb,2,39,7,set,7200\n1,aa,2,39,9,get,0\n";
/// let trace = Trace::read(rows.as_bytes(), u64::MAX)?;
/// assert_eq!((trace.keys(), trace.operations()), (2, 3));
/// assert!((trace.mix().share(OpKind::Get) - 2.0 / 3.0).abs() < 1e-6);
/// // The second of two clients gets the rows 1, 3, … (counted from 0), and begins again when the trace ends.
/// let plan = Plan::of_trace(trace, 2, 4)?;
/// let ops: Vec<_> = plan.client(1).map(|op| (op.kind, op.key)).collect();
/// assert_eq!(ops, [(OpKind::Upsert, 1), (OpKind::Get, 0)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Trace {
    rows: Arc<[Row]>,
    /// The number of different keys. It does not fit into a `u32` if every number of a key is in use.
    keys: u64,
    mix: Mix,
}

/// The reason why a trace cannot be read.
///
/// ```
/// use dm_workload::{Trace, TraceError};
///
/// let failed = Trace::read("0,aa,2,39,7,get,0\nnonsense\n".as_bytes(), u64::MAX);
/// assert!(matches!(failed, Err(TraceError::Row { line: 2, .. })));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum TraceError {
    /// Reading failed.
    Io(io::Error),
    /// A row is malformed.
    Row {
        /// The number of the row, from 1.
        line: u64,
        /// The text of the row.
        text: String,
    },
    /// There is no row.
    Empty,
    /// There are more than 2³² different keys.
    Keys,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(e) => write!(f, "trace: {e}"),
            Self::Row { line, text } => write!(
                f,
                "trace, line {line}: {text:?} is not timestamp,key,key size,value size,client,operation,TTL"
            ),
            Self::Empty => write!(f, "trace: no requests"),
            Self::Keys => write!(f, "trace: more than 2^32 keys"),
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(e) => Some(e),
            _ => None,
        }
    }
}

impl From<io::Error> for TraceError {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

/// Returns the key and the kind of a row. Keys may contain commas, and the other columns may not, so columns are
/// counted from both ends.
fn parse(text: &str) -> Option<(&str, OpKind)> {
    let (_, rest) = text.split_once(',')?;
    let mut from_the_end = rest.rsplitn(6, ',');
    let (_ttl, operation) = (from_the_end.next()?, from_the_end.next()?);
    let (_client, _value, _key) = (from_the_end.next()?, from_the_end.next()?, from_the_end.next()?);
    let key = from_the_end.next()?;
    let kind = match operation {
        "get" | "gets" => OpKind::Get,
        "set" | "add" | "replace" | "cas" | "append" | "prepend" | "incr" | "decr" => OpKind::Upsert,
        "delete" => OpKind::Remove,
        _ => return None,
    };
    Some((key, kind))
}

impl Trace {
    /// Reads up to `limit` rows. A row takes 8 bytes of memory. Keys are kept in memory only while the trace is read.
    ///
    /// # Errors
    /// Returns [`TraceError`] if reading fails, a row is malformed, there is no row, or there are too many keys.
    pub fn read(mut from: impl BufRead, limit: u64) -> Result<Self, TraceError> {
        let (mut rows, mut numbers) = (Vec::new(), HashMap::new());
        let mut counts = [0_u64; OpKind::ALL.len()];
        let (mut text, mut line) = (String::new(), 0);
        while line < limit {
            text.clear();
            if from.read_line(&mut text)? == 0 {
                break;
            }
            line += 1;
            let row = text.trim_end_matches(['\n', '\r']);
            let (key, kind) = parse(row).ok_or_else(|| TraceError::Row {
                line,
                text: row.to_owned(),
            })?;
            let key = match numbers.get(key) {
                Some(&number) => number,
                None => {
                    let number = u32::try_from(numbers.len()).map_err(|_| TraceError::Keys)?;
                    numbers.insert(key.to_owned(), number);
                    number
                }
            };
            counts[kind as usize] += 1;
            rows.push(Row { kind, key });
        }
        let parts = |&kind: &OpKind| {
            // The share is rounded up to millionths, so that every kind that occurs has a share above 0.
            let part = (counts[kind as usize] * 1_000_000).div_ceil(line.max(1));
            (kind, part as u32)
        };
        let mix = Mix::new(&OpKind::ALL.iter().map(parts).collect::<Vec<_>>()).ok_or(TraceError::Empty)?;
        Ok(Self {
            rows: rows.into(),
            keys: numbers.len() as u64,
            mix,
        })
    }

    /// Returns the number of different keys.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.rows.len() as u64
    }

    /// Returns the share of each kind of operation, to a millionth.
    #[must_use]
    pub fn mix(&self) -> Mix {
        self.mix
    }

    /// Returns the keys, the most frequent one first.
    pub(crate) fn hottest(&self) -> Vec<u64> {
        let mut counts = vec![0_u64; self.keys as usize];
        for row in &*self.rows {
            counts[row.key as usize] += 1;
        }
        let mut keys: Vec<u64> = (0..self.keys()).collect();
        keys.sort_by_key(|key| core::cmp::Reverse(counts[*key as usize]));
        keys
    }

    /// Returns the rows of client number `client` of `clients`.
    pub(crate) fn dealt(&self, client: u32, clients: u32) -> Dealt {
        Dealt {
            rows: self.rows.clone(),
            next: client as usize % self.rows.len(),
            step: clients as usize,
        }
    }
}

/// The rows of a trace that one client gets.
#[derive(Clone, Debug)]
pub(crate) struct Dealt {
    rows: Arc<[Row]>,
    next: usize,
    step: usize,
}

impl Dealt {
    #[inline]
    pub(crate) fn next(&mut self) -> Op {
        let row = self.rows[self.next];
        self.next = (self.next + self.step) % self.rows.len();
        row.op()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Plan;

    fn row(key: &str, operation: &str) -> String {
        format!("0,{key},{},8,1,{operation},0\n", key.len())
    }

    #[test]
    fn every_row_is_dealt_once() {
        let text: String = (0..100).map(|i| row(&format!("k{}", i % 37), "get")).collect();
        let trace = Trace::read(text.as_bytes(), u64::MAX).unwrap();
        assert_eq!((trace.keys(), trace.operations()), (37, 100));
        let mut dealt = [0; 37];
        let plan = Plan::of_trace(trace, 4, 100).unwrap();
        for op in (0..4).flat_map(|client| plan.client(client)) {
            dealt[op.key as usize] += 1;
        }
        // There are 100 rows, so the first 26 keys appear once more than the others.
        assert!(plan.hottest().take(26).all(|key| key < 26));
        let expected: Vec<i32> = (0..37)
            .map(|key| (0..100).filter(|i| i % 37 == key).count() as i32)
            .collect();
        assert_eq!(dealt.to_vec(), expected);
    }

    #[test]
    fn kinds_and_keys_with_commas() {
        let text = ["get", "gets", "set", "cas", "incr", "delete"].map(|operation| row("n,z:u", operation));
        let trace = Trace::read(text.concat().as_bytes(), 5).unwrap();
        assert_eq!((trace.keys(), trace.operations()), (1, 5));
        let share = |kind| trace.mix().share(kind);
        assert!((share(OpKind::Get) - 0.4).abs() < 1e-5 && (share(OpKind::Upsert) - 0.6).abs() < 1e-5);
        assert_eq!(share(OpKind::Remove), 0.0);
    }

    /// To read a trace with this number of keys takes too much memory, so the test only replaces their number.
    #[test]
    fn a_trace_can_have_as_many_keys_as_there_are_numbers() {
        let most = u64::from(u32::MAX) + 1;
        let short = Trace::read(row("k", "get").as_bytes(), 1).unwrap();
        let full = Trace { keys: most, ..short };
        assert_eq!(full.keys(), most);
        let plan = Plan::of_trace(full, 1, 1).unwrap();
        assert_eq!(plan.loaded(), most);
    }

    #[test]
    fn an_error_names_the_line_that_is_not_a_row() {
        for (text, line) in [
            ("0,k,1,8,1,get,0\nnonsense\n", 2),
            ("0,k,1,8,1,fetch,0\n", 1),
            ("get,0\n", 1),
        ] {
            match Trace::read(text.as_bytes(), u64::MAX) {
                Err(TraceError::Row { line: found, .. }) => assert_eq!(found, line),
                other => panic!("{text:?} gave {other:?}"),
            }
        }
        assert!(matches!(Trace::read(&b""[..], 9), Err(TraceError::Empty)));
        assert!(matches!(Trace::read(&b"\xff\n"[..], 9), Err(TraceError::Io(_))));
    }
}
