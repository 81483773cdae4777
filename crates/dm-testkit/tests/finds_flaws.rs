//! Tests of the test kit: a correct map passes the whole script, and each kind of error is found.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;

use dm_index::{Applied, Fill, IndexError, Key8, RangeIndex, Scan};
use dm_loopback::Loopback;
use dm_sync::{Arc, Mutex};
use dm_testkit::{
    Failure, Family, IndexUnderTest, Kills, Moment, NoChecker, Report, Stress, TestKey, World, WorldKind,
    conform_one, seats, stress, stress_with_kills,
};
use dm_verbs::{Control, Event, Nanos, NodeId, RemotePtr, Verbs};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flaw {
    None,
    /// One write in 200 is acknowledged and forgotten.
    LosesWrites,
    /// One value in 200 consists of halves of two values.
    Tears,
    /// One get in 200 returns the value from before the last write.
    ReadsStale,
    /// Scans leave out their third entry.
    SkipsInScans,
    /// Writes, such as inserts, check and act in two steps.
    InsertsInTwoSteps,
    /// A client that dies in the middle of a write leaves half of its value.
    DiesTorn,
    /// A client that dies in the middle of a write also undoes the previous write of the key.
    DiesWithMore,
    /// The write of a client that died takes effect, or loses its effect, only when the key has been read a few times.
    ChangesItsMind,
    /// Nobody can write a key whose last writer died.
    BlocksForEver,
}

struct State<K> {
    now: BTreeMap<K, Vec<u8>>,
    before: BTreeMap<K, Option<Vec<u8>>>,
    calls: u64,
    /// Contents that keys get after this many more reads.
    later: BTreeMap<K, (u32, Option<Vec<u8>>)>,
    blocked: BTreeSet<K>,
}

impl<K: TestKey> State<K> {
    fn set(&mut self, key: K, content: Option<Vec<u8>>) {
        match content {
            Some(value) => self.now.insert(key, value),
            None => self.now.remove(&key),
        };
    }

    /// Counts a read of a key whose content changes after some reads.
    fn read(&mut self, key: &K) {
        let due = self.later.get_mut(key).is_some_and(|(reads, _)| {
            *reads -= 1;
            *reads == 0
        });
        if due && let Some((_, content)) = self.later.remove(key) {
            self.set(*key, content);
        }
    }
}

/// A write in progress. It shows the flaws of dying clients if it is dropped.
struct Running<'c, K: TestKey> {
    map: &'c Map<K>,
    key: K,
    value: Option<&'c [u8]>,
    acted: bool,
    over: bool,
}

impl<K: TestKey> Drop for Running<'_, K> {
    fn drop(&mut self) {
        let (key, over) = (self.key, self.over);
        let value = self.value.map(<[u8]>::to_vec);
        self.map.state.with(|s| match self.map.flaw {
            _ if over => {}
            Flaw::DiesTorn => {
                if let Some(mut value) = value {
                    let half = value.len() / 2;
                    value[half..].fill(0x11);
                    s.set(key, Some(value));
                }
            }
            Flaw::DiesWithMore => {
                let before = s.before.get(&key).cloned();
                let beyond = (!self.acted).then_some(before).flatten();
                if let Some(content) = beyond {
                    s.set(key, content);
                }
            }
            Flaw::ChangesItsMind if self.acted => {
                if let Some(content) = s.before.get(&key).cloned() {
                    s.later.insert(key, (3, content));
                }
            }
            Flaw::ChangesItsMind => {
                s.later.insert(key, (3, value));
            }
            Flaw::BlocksForEver => {
                s.blocked.insert(key);
            }
            _ => {}
        });
    }
}

/// A map in this process's memory; the world provides only clients and time.
#[derive(Clone)]
struct Map<K> {
    state: Arc<Mutex<State<K>>>,
    flaw: Flaw,
    value_bytes: usize,
}

impl<K: TestKey> Map<K> {
    fn new(flaw: Flaw, value_bytes: usize) -> Self {
        let state = State {
            now: BTreeMap::new(),
            before: BTreeMap::new(),
            calls: 0,
            later: BTreeMap::new(),
            blocked: BTreeSet::new(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            flaw,
            value_bytes,
        }
    }
}

/// Returns the address of a word in remote memory that every write increments.
fn place() -> RemotePtr {
    RemotePtr::new(NodeId(0), 4096).expect("in range")
}

struct Client<'h, K, V> {
    map: &'h Map<K>,
    v: &'h V,
}

impl<K: TestKey, V: Verbs> Client<'_, K, V> {
    /// Counts this call, and returns whether the flaw shows in it.
    fn shows(&self, state: &mut State<K>, flaw: Flaw) -> bool {
        state.calls += 1;
        self.map.flaw == flaw && state.calls.is_multiple_of(200)
    }

    async fn write(
        &self,
        key: &K,
        value: Option<&[u8]>,
        judge: impl Fn(bool) -> Applied,
    ) -> Result<Applied, IndexError> {
        let expected = self.map.value_bytes;
        if let Some(found) = value.map(<[u8]>::len).filter(|&n| n != expected) {
            return Err(IndexError::ValueLength { found, expected });
        }
        self.v.pause().await;
        let state = &self.map.state;
        if state.with(|s| s.blocked.contains(key)) {
            return Err(IndexError::LockTimeout {
                lock: place().into(),
                owner: 0,
                attempts: 1,
            });
        }
        let mut running = Running {
            map: self.map,
            key: *key,
            value,
            acted: false,
            over: false,
        };
        // The writer may die here, or after the write.
        self.v.faa(place(), 1).await.map_err(IndexError::Verb)?;
        let mut applied = state.with(|s| judge(s.now.contains_key(key)));
        if self.map.flaw == Flaw::InsertsInTwoSteps {
            self.v.faa(place(), 1).await.map_err(IndexError::Verb)?;
            self.v.pause().await;
        } else {
            applied = state.with(|s| self.act(s, key, value, &judge));
        }
        if self.map.flaw == Flaw::InsertsInTwoSteps {
            state.with(|s| self.act(s, key, value, &|_| applied));
        }
        running.acted = true;
        self.v.faa(place(), 1).await.map_err(IndexError::Verb)?;
        running.over = true;
        if applied == Applied::Inserted {
            self.v.meter().note(Event::Split);
        }
        self.v.pause().await;
        Ok(applied)
    }

    fn act(
        &self,
        s: &mut State<K>,
        key: &K,
        value: Option<&[u8]>,
        judge: &dyn Fn(bool) -> Applied,
    ) -> Applied {
        let applied = judge(s.now.contains_key(key));
        if matches!(applied, Applied::Present | Applied::Absent) || self.shows(s, Flaw::LosesWrites) {
            return applied;
        }
        let before = match value {
            Some(value) => {
                let mut value = value.to_vec();
                let half = value.len() / 2;
                if self.shows(s, Flaw::Tears) {
                    value[half..].fill(0x11);
                }
                s.now.insert(*key, value)
            }
            None => s.now.remove(key),
        };
        s.before.insert(*key, before);
        applied
    }
}

impl<K: TestKey, V: Verbs> RangeIndex for Client<'_, K, V> {
    type Key = K;
    fn value_bytes(&self) -> usize {
        self.map.value_bytes
    }
    async fn get(&self, key: &K, value: &mut Vec<u8>) -> Result<bool, IndexError> {
        self.v.pause().await;
        let found = self.map.state.with(|s| {
            s.read(key);
            let stale = self
                .shows(s, Flaw::ReadsStale)
                .then(|| s.before.get(key).cloned())
                .flatten();
            stale.unwrap_or_else(|| s.now.get(key).cloned())
        });
        self.v.pause().await;
        value.clear();
        value.extend_from_slice(found.as_deref().unwrap_or(&[]));
        Ok(found.is_some())
    }
    async fn insert(&self, key: &K, value: &[u8]) -> Result<Applied, IndexError> {
        let judge = |present| {
            if present {
                Applied::Present
            } else {
                Applied::Inserted
            }
        };
        self.write(key, Some(value), judge).await
    }
    async fn update(&self, key: &K, value: &[u8]) -> Result<Applied, IndexError> {
        let judge = |present| {
            if present {
                Applied::Replaced
            } else {
                Applied::Absent
            }
        };
        self.write(key, Some(value), judge).await
    }
    async fn upsert(&self, key: &K, value: &[u8]) -> Result<Applied, IndexError> {
        let judge = |present| {
            if present {
                Applied::Replaced
            } else {
                Applied::Inserted
            }
        };
        self.write(key, Some(value), judge).await
    }
    async fn remove(&self, key: &K) -> Result<Applied, IndexError> {
        self.write(key, None, |present| {
            if present {
                Applied::Removed
            } else {
                Applied::Absent
            }
        })
        .await
    }
    async fn scan(&self, from: &K, limit: usize, out: &mut Scan<K>) -> Result<(), IndexError> {
        self.v.pause().await;
        self.map.state.with(|s| {
            out.reset(self.map.value_bytes);
            let skip = self.map.flaw == Flaw::SkipsInScans;
            s.now
                .range(*from..)
                .enumerate()
                .filter(|(i, _)| !skip || *i != 2)
                .take(limit)
                .for_each(|(_, (key, value))| out.push(*key, value));
        });
        Ok(())
    }
    async fn bulk_load(
        &self,
        fill: impl Into<Fill>,
        mut next: impl FnMut(&mut Vec<u8>) -> Option<K>,
    ) -> Result<u64, IndexError> {
        fill.into().checked()?;
        let mut loaded = BTreeMap::new();
        let mut value = Vec::new();
        while let Some(key) = next(&mut value) {
            if loaded.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return Err(IndexError::BadInput { why: "order" });
            }
            loaded.insert(key, core::mem::take(&mut value));
        }
        self.map.state.with(|s| {
            // An index has a root after its first load, even if the load had no entries.
            if s.calls > 0 || !s.now.is_empty() {
                return Err(IndexError::NotEmpty {
                    root: RemotePtr::NULL,
                });
            }
            s.calls = 1;
            s.now = loaded;
            Ok(s.now.len() as u64)
        })
    }
}

impl<K: TestKey> IndexUnderTest for Map<K> {
    type Key = K;
    type Handle = Self;
    fn value_bytes(&self) -> usize {
        self.value_bytes
    }
    async fn open<V: Verbs + Control>(&self, _: &V) -> Result<Self, Failure> {
        Ok(self.clone())
    }
    fn client<'h, V: Verbs + Control>(map: &'h Self, v: &'h V) -> impl RangeIndex<Key = K> {
        Client { map, v }
    }
}

struct Maps(PhantomData<()>);

impl Family for Maps {
    type Index<K: TestKey> = Map<K>;
    fn index<K: TestKey>(&self, value_bytes: usize) -> Map<K> {
        Map::new(Flaw::None, value_bytes)
    }
}

dm_testkit::conformance! {
    a_map => Maps(PhantomData);
}

/// An index of numbers: its keys are `Key8`, and its values have eight bytes.
struct Numbers(Map<Key8>);

impl Numbers {
    fn new(flaw: Flaw) -> Self {
        Self(Map::new(flaw, 8))
    }
}

impl IndexUnderTest for Numbers {
    type Key = Key8;
    type Handle = Map<Key8>;
    fn value_bytes(&self) -> usize {
        self.0.value_bytes
    }
    async fn open<V: Verbs + Control>(&self, _: &V) -> Result<Map<Key8>, Failure> {
        Ok(self.0.clone())
    }
    fn client<'h, V: Verbs + Control>(map: &'h Map<Key8>, v: &'h V) -> impl RangeIndex<Key = Key8> {
        Client { map, v }
    }
}

dm_testkit::conformance! { one
    numbers => Numbers::new(Flaw::None);
}

#[test]
#[should_panic(expected = "single client, 8-byte keys, 8-byte values")]
fn an_index_of_one_size_is_refused_for_its_flaw() {
    conform_one(|| Numbers::new(Flaw::LosesWrites), WorldKind::SimCx5);
}

/// One client cannot find this flaw. The message names the part that found it, and the world.
#[test]
#[should_panic(
    expected = "many clients on an empty index, 8-byte keys, 8-byte values, in simulated cx5-ib, 18 clients, seed 0x3a17"
)]
fn an_index_is_refused_for_a_flaw_that_needs_many_clients() {
    conform_one(|| Numbers::new(Flaw::InsertsInTwoSteps), WorldKind::SimCx5);
}

#[test]
fn every_flaw_is_found_in_both_kinds_of_worlds() {
    for kind in [WorldKind::SimCx5, WorldKind::Loopback] {
        let run = |flaw| {
            let script = Stress {
                hot_percent: 20,
                ..Stress::new(20_000, 5)
            };
            stress(
                Map::<Key8>::new(flaw, 16),
                &kind.build(2, 1, 5),
                &seats(2, 4, 4),
                &script,
            )
        };
        let right = run(Flaw::None).expect_correct();
        assert!(right.verified > 1_900 && right.linearized.0 > 3_000, "{right}");
        for (flaw, sign) in [
            (Flaw::LosesWrites, "own write"),
            (Flaw::Tears, "torn"),
            (Flaw::ReadsStale, "own write"),
            (Flaw::SkipsInScans, "leaves out"),
            (Flaw::InsertsInTwoSteps, "hot keys"),
        ] {
            let report = run(flaw);
            assert!(report.wrong > 0, "{kind} does not find {flaw:?}: {report}");
            let texts = report.texts.join("\n");
            assert!(texts.contains(sign), "{kind}, {flaw:?}: no {sign:?} in {report}");
        }
    }
}

#[test]
fn a_simulated_run_is_a_function_of_its_seed() {
    let run = |seed| {
        let script = Stress::new(3_000, seed);
        let kind = WorldKind::SimCx6;
        let report = stress(
            Map::<Key8>::new(Flaw::None, 8),
            &kind.build(2, 1, seed),
            &seats(2, 2, 4),
            &script,
        );
        report.expect_correct().to_string()
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

/// Kills 20 compute nodes in a run on a simulated testbed or on loopback.
fn with_kills(flaw: Flaw, moment: Moment, simulated: bool) -> Report {
    let script = Stress {
        hot_percent: 30,
        keys: 600,
        ..Stress::new(20_000, 5)
    };
    let kills = Kills {
        moment,
        ..Kills::new(script, 20, Nanos::from_millis(1))
    };
    let world: World = match simulated {
        true => WorldKind::SimCx6.build(kills.compute_nodes_in_all(), 1, 5),
        false => Loopback::builder().nodes(1).build().expect("memory").into(),
    };
    stress_with_kills(Map::<Key8>::new(flaw, 16), &world, &kills, NoChecker)
}

#[test]
fn an_index_that_survives_deaths_passes_in_both_worlds() {
    for moment in [Moment::AnyRequest, Moment::BetweenOperations] {
        for simulated in [true, false] {
            let report = with_kills(Flaw::None, moment, simulated).expect_correct();
            let killed = report.killed;
            // On loopback the clients may end before their compute node can die.
            let nodes = if simulated { 20 } else { 14 };
            assert!(
                killed.nodes + killed.suspended >= nodes && killed.expelled == 0,
                "{report}"
            );
            assert!(
                report.calls.total() >= 20_000 && report.linearized.0 > 5_000,
                "{report}"
            );
            let open = killed.unanswered > 10 && killed.applied > 2 && killed.applied < killed.unanswered;
            assert!(open || moment == Moment::BetweenOperations, "{report}");
        }
    }
}

#[test]
fn forbidden_effects_of_a_death_are_found() {
    for (flaw, sign) in [
        (Flaw::DiesTorn, "torn"),
        (Flaw::DiesWithMore, "in doubt"),
        (Flaw::ChangesItsMind, "own write"),
        (Flaw::ChangesItsMind, "hot keys"),
        (Flaw::BlocksForEver, "still held"),
    ] {
        let report = with_kills(flaw, Moment::AnyRequest, true);
        assert!(report.wrong > 0, "{flaw:?} is not found: {report}");
        let texts = report.texts.join("\n");
        assert!(texts.contains(sign), "{flaw:?}: no {sign:?} in {report}");
    }
}

#[test]
fn a_simulated_run_with_kills_is_a_function_of_its_seed() {
    let run = || with_kills(Flaw::None, Moment::AnyRequest, true).to_string();
    assert_eq!(run(), run());
}
