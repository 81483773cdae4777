//! An index for the harness's own tests: a map in this process. Each operation posts one verb, except for a bulk load,
//! which posts none, and the first operation of a late client.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use dm_assemble::OpenError;
use dm_index::{Applied, Fill, IndexError, Key8, RangeIndex, Scan};
use dm_verbs::{Control, NodeId, RemotePtr, Verbs};

use crate::{BenchIndex, Driver, Fabric, IndexEntry, Point, Setting};

/// The entries of a pool, and the flaw of the index.
#[derive(Debug, Clone, Default)]
pub(crate) struct Toy {
    entries: Arc<Mutex<BTreeMap<Key8, Vec<u8>>>>,
    value_bytes: usize,
    flaw: Option<Flaw>,
}

/// A flaw of a toy index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// A get panics.
    Panic,
    /// A get ends the process.
    Abort,
    /// A get returns a value whose second half is changed.
    WrongValue,
    /// The index cannot be created.
    NoMemory,
    /// The first operation of a client takes a hundred more round trips for each client with a smaller id.
    LateClients,
}

/// Returns a driver of a toy.
pub(crate) fn driver(flaw: Option<Flaw>) -> Driver<Toy> {
    let entries = Arc::default();
    Driver::new(move |at| {
        Ok(Toy {
            entries: Arc::clone(&entries),
            value_bytes: at.value_bytes,
            flaw,
        })
    })
}

/// Returns a small setting on the simulator.
pub(crate) fn setting(clients: u32, ops: u64) -> Setting {
    Setting {
        compute_nodes: 1,
        memory_nodes: 1,
        clients,
        keys: 200,
        ranks: 200,
        ops,
        ..Setting::new("sim:cx5-ib".parse::<Fabric>().unwrap())
    }
}

/// Returns a point of a toy without a flaw.
pub(crate) fn point(clients: u32, ops: u64) -> Point {
    Point::of("toy", driver(None), setting(clients, ops))
}

/// Returns a point of a toy with a flaw, under another name.
pub(crate) fn flawed(flaw: Flaw) -> Point {
    Point::of(&format!("{flaw:?}"), driver(Some(flaw)), setting(2, 100))
}

/// Returns the entry of a toy.
pub(crate) fn entry() -> IndexEntry {
    IndexEntry::new("toy", "a map")
        .runs(driver(None))
        .knob("span", "nothing")
}

impl BenchIndex for Toy {
    type Key = Key8;
    type Options = Self;

    async fn create<V: Verbs + Control>(_v: &V, options: &Self) -> Result<Self, OpenError> {
        if options.flaw == Some(Flaw::NoMemory) {
            return Err(IndexError::OutOfMemory { wanted: 1, nodes: 1 }.into());
        }
        options.entries.lock().unwrap().clear();
        Ok(options.clone())
    }

    async fn open<V: Verbs + Control>(_v: &V, options: &Self) -> Result<Self, OpenError> {
        Ok(options.clone())
    }

    fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> impl RangeIndex<Key = Key8> {
        let late = match self.flaw {
            Some(Flaw::LateClients) => 100 * v.client().0,
            _ => 0,
        };
        Client {
            toy: self,
            v,
            late: Cell::new(late),
        }
    }
}

struct Client<'h, V> {
    toy: &'h Toy,
    v: &'h V,
    /// Number of additional round trips of the first operation.
    late: Cell<u16>,
}

impl<V: Verbs> Client<'_, V> {
    /// Takes one round trip, or more at first if the client is late, and then changes or reads the map.
    async fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<Key8, Vec<u8>>) -> T) -> Result<T, IndexError> {
        let at = RemotePtr::new(NodeId(0), 64).expect("an address");
        for _ in 0..=self.late.take() {
            self.v.word(at).await?;
        }
        Ok(work(&mut self.toy.entries.lock().unwrap()))
    }
}

impl<V: Verbs> RangeIndex for Client<'_, V> {
    type Key = Key8;

    fn value_bytes(&self) -> usize {
        self.toy.value_bytes
    }

    async fn get(&self, key: &Key8, value: &mut Vec<u8>) -> Result<bool, IndexError> {
        assert!(self.toy.flaw != Some(Flaw::Panic), "a toy that panics");
        if self.toy.flaw == Some(Flaw::Abort) {
            std::process::abort();
        }
        let half = self.toy.flaw == Some(Flaw::WrongValue);
        value.clear();
        self.with(|entries| {
            let found = entries.get(key);
            value.extend(found.into_iter().flatten());
            if half {
                let middle = value.len() / 2;
                value[middle..].iter_mut().for_each(|byte| *byte ^= 0x55);
            }
            found.is_some()
        })
        .await
    }

    async fn insert(&self, key: &Key8, value: &[u8]) -> Result<Applied, IndexError> {
        self.with(|entries| match entries.contains_key(key) {
            true => Applied::Present,
            false => {
                entries.insert(*key, value.to_vec());
                Applied::Inserted
            }
        })
        .await
    }

    async fn update(&self, key: &Key8, value: &[u8]) -> Result<Applied, IndexError> {
        self.with(|entries| match entries.get_mut(key) {
            Some(old) => {
                *old = value.to_vec();
                Applied::Replaced
            }
            None => Applied::Absent,
        })
        .await
    }

    async fn upsert(&self, key: &Key8, value: &[u8]) -> Result<Applied, IndexError> {
        self.with(|entries| match entries.insert(*key, value.to_vec()) {
            Some(_) => Applied::Replaced,
            None => Applied::Inserted,
        })
        .await
    }

    async fn remove(&self, key: &Key8) -> Result<Applied, IndexError> {
        self.with(|entries| match entries.remove(key) {
            Some(_) => Applied::Removed,
            None => Applied::Absent,
        })
        .await
    }

    async fn scan(&self, from: &Key8, limit: usize, out: &mut Scan<Key8>) -> Result<(), IndexError> {
        out.reset(self.toy.value_bytes);
        self.with(|entries| {
            for (key, value) in entries.range(from..).take(limit) {
                out.push(*key, value);
            }
        })
        .await
    }

    async fn bulk_load(
        &self,
        _fill: impl Into<Fill>,
        mut next: impl FnMut(&mut Vec<u8>) -> Option<Key8>,
    ) -> Result<u64, IndexError> {
        let mut entries = self.toy.entries.lock().unwrap();
        let mut value = Vec::new();
        while let Some(key) = next(&mut value) {
            entries.insert(key, std::mem::take(&mut value));
        }
        Ok(entries.len() as u64)
    }
}
