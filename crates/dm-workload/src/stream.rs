//! The operations of each client.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::distribution::{Chooser, Distribution, Drawn};
use crate::error::WorkloadError;
use crate::mix::{Mix, OpKind};
use crate::permutation::scramble;
use crate::trace::{Dealt, Trace};

/// The number of keys that a scan requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanLength {
    /// A number from 1 to this, all equally likely (YCSB E with 100).
    UpTo(u32),
    /// Always this number (Sherman, Dolphin).
    Fixed(u32),
}

impl Default for ScanLength {
    fn default() -> Self {
        Self::UpTo(100)
    }
}

/// A description of the operations of clients. [`Workload::plan`] checks it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct Workload {
    mix: Mix,
    distribution: Distribution,
    scan_length: ScanLength,
    own_updates: bool,
    loaded: u64,
    ranks: Option<u64>,
    operations: u64,
    clients: u32,
    seed: u64,
}

impl Workload {
    /// Makes a workload of `operations` operations of `mix` on `loaded` keys, which have the indices 0, 1, …. It uses
    /// the usual distribution of the mix, one client, scans of up to 100 keys, and seed 0.
    pub fn new(mix: Mix, loaded: u64, operations: u64) -> Self {
        let distribution = mix.usual_distribution();
        let scan_length = ScanLength::default();
        Self {
            mix,
            distribution,
            scan_length,
            own_updates: false,
            loaded,
            ranks: None,
            operations,
            clients: 1,
            seed: 0,
        }
    }

    /// Sets the distribution of keys.
    pub fn distribution(self, distribution: Distribution) -> Self {
        Self { distribution, ..self }
    }

    /// Sets the number of ranks over which Zipf's law draws. The default is the number of loaded keys.
    pub fn ranks(self, ranks: u64) -> Self {
        Self {
            ranks: Some(ranks),
            ..self
        }
    }

    /// Sets the length of scans.
    pub fn scan_length(self, scan_length: ScanLength) -> Self {
        Self { scan_length, ..self }
    }

    /// Sets whether no two clients update the same key. A client then replaces the key that it draws for an update, an
    /// upsert or a read-modify-write by a loaded key of its own: with `n` clients, every `n`-th key is its own. The
    /// client writes the key that replaces a hot key at least as often as it would write the hot key. Other operations
    /// keep the keys that are drawn.
    pub fn own_updates(self, own_updates: bool) -> Self {
        Self { own_updates, ..self }
    }

    /// Sets the number of clients among which the operations are split.
    pub fn clients(self, clients: u32) -> Self {
        Self { clients, ..self }
    }

    /// Sets the seed of all draws.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Checks the description.
    ///
    /// # Errors
    /// Returns [`WorkloadError`], which names the invalid part, if the description is not valid.
    pub fn plan(self) -> Result<Plan, WorkloadError> {
        if self.clients == 0 || self.clients >= dm_history::CLIENT_LIMIT {
            return Err(WorkloadError::Clients { count: self.clients });
        }
        if matches!(self.scan_length, ScanLength::UpTo(0) | ScanLength::Fixed(0)) {
            return Err(WorkloadError::ScanLength);
        }
        if self.loaded == 0 && self.mix.needs_loaded_keys() {
            return Err(WorkloadError::NoKeys);
        }
        if self.own_updates && self.loaded < u64::from(self.clients) {
            return Err(WorkloadError::OwnKeys {
                loaded: self.loaded,
                clients: self.clients,
            });
        }
        let loaded = self.loaded.max(1); // a pure load never draws
        let ranks = self.ranks.unwrap_or(loaded);
        if ranks < loaded {
            return Err(WorkloadError::Ranks { ranks, loaded });
        }
        let chooser = Chooser::new(self.distribution, loaded, ranks, self.seed).ok_or_else(|| {
            WorkloadError::Distribution {
                text: self.distribution.to_string(),
            }
        })?;
        Ok(Plan {
            workload: self,
            ranks,
            chooser,
            trace: None,
        })
    }
}

/// A checked workload. A clone of it is cheap.
#[derive(Clone, Debug)]
pub struct Plan {
    workload: Workload,
    ranks: u64,
    chooser: Chooser,
    /// The recorded operations, if the operations come from a trace.
    trace: Option<Trace>,
}

impl Plan {
    /// Makes a plan of `operations` operations of a trace, which are given to the `clients` in turn. After the last
    /// row of the trace, the first row follows again. All keys of the trace must be loaded.
    ///
    /// # Errors
    /// Returns [`WorkloadError::Clients`] if there are no clients or too many.
    pub fn of_trace(trace: Trace, clients: u32, operations: u64) -> Result<Self, WorkloadError> {
        let workload = Workload::new(trace.mix(), trace.keys(), operations).clients(clients);
        Ok(Self {
            trace: Some(trace),
            ..workload.plan()?
        })
    }

    /// Returns the operations of client number `client`.
    ///
    /// # Panics
    /// Panics if there is no such client.
    #[must_use]
    pub fn client(&self, client: u32) -> OpStream {
        let Workload {
            operations,
            clients,
            seed,
            mix,
            scan_length,
            own_updates,
            loaded,
            ..
        } = self.workload;
        assert!(
            client < clients,
            "the workload has {clients} clients, none of number {client}"
        );
        let (each, more) = (operations / u64::from(clients), operations % u64::from(clients));
        let seed = scramble(scramble(seed).wrapping_add(u64::from(client)));
        OpStream {
            mix,
            scan_length,
            own_updates,
            chooser: self.chooser,
            loaded,
            clients,
            client,
            left: each + u64::from(u64::from(client) < more),
            inserted: 0,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            dealt: self.trace.as_ref().map(|trace| trace.dealt(client, clients)),
        }
    }

    /// Returns the number of clients.
    #[must_use]
    pub fn clients(&self) -> u32 {
        self.workload.clients
    }

    /// Returns the number of keys that must be loaded, which have the indices from 0 on.
    #[must_use]
    pub fn loaded(&self) -> u64 {
        self.workload.loaded
    }

    /// Returns the loaded keys by their share of the draws, the hottest key first. Inserts may change this order
    /// later.
    pub fn hottest(&self) -> impl DoubleEndedIterator<Item = u64> + use<> {
        let (chooser, loaded) = (self.chooser, self.workload.loaded);
        let recorded = self.trace.as_ref().map(Trace::hottest);
        (0..loaded).map(move |rank| match &recorded {
            // A trace has as many keys as are loaded.
            Some(keys) => keys[rank as usize],
            None => chooser.hottest(rank, loaded),
        })
    }

    /// Returns the number of operations of all clients.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.workload.operations
    }

    /// Returns the number of keys over which ranks are drawn.
    #[must_use]
    pub fn ranks(&self) -> u64 {
        self.ranks
    }

    /// Returns the mix.
    #[must_use]
    pub fn mix(&self) -> Mix {
        self.workload.mix
    }

    /// Returns the distribution.
    #[must_use]
    pub fn distribution(&self) -> Distribution {
        self.workload.distribution
    }
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// The kind of operation.
    pub kind: OpKind,
    /// The index of the key (see [`crate::KeySpace`]); for a scan, of its first key.
    pub key: u64,
    /// Number of keys that a scan requests; 0 for other operations.
    pub scan_len: u32,
}

/// The operations of one client, in order. An operation allocates no memory.
///
/// The n-th key that a client inserts (from n = 0) has the index `loaded + n · clients + client`. So no two clients
/// insert the same key, and a pure load without loaded keys fills `0..operations`.
///
/// ```
/// use dm_workload::{OpKind, OpStream, ScanLength, Workload};
///
/// let workload = Workload::new("scan:100".parse()?, 1_000, 10).clients(2);
/// let plan = workload.scan_length(ScanLength::Fixed(5)).plan()?;
/// let mut ops: OpStream = plan.client(1);
/// assert_eq!(ops.left(), 5);
/// assert!(ops.all(|op| op.kind == OpKind::Scan && op.scan_len == 5));
/// # Ok::<(), dm_workload::WorkloadError>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpStream {
    mix: Mix,
    scan_length: ScanLength,
    own_updates: bool,
    chooser: Chooser,
    loaded: u64,
    clients: u32,
    client: u32,
    left: u64,
    inserted: u64,
    rng: Xoshiro256PlusPlus,
    /// The recorded operations, if the operations come from a trace.
    dealt: Option<Dealt>,
}

impl OpStream {
    /// Returns the number of operations that are left.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Returns the next operation. `inserted(client)` must return the number of inserts that a client has completed,
    /// because [`Distribution::Latest`] prefers the newest keys of all clients. In contrast, the iterator uses only
    /// this client's inserts, so it is deterministic and does not depend on the speed of other clients.
    pub fn next_seeing(&mut self, inserted: impl Fn(u32) -> u64) -> Option<Op> {
        self.left = self.left.checked_sub(1)?;
        if let Some(dealt) = &mut self.dealt {
            return Some(dealt.next());
        }
        let kind = self.mix.draw(&mut self.rng);
        let key = if kind == OpKind::Insert {
            let nth = self.inserted;
            self.inserted += 1;
            self.inserted_key(self.client, nth)
        } else {
            match self.chooser.draw(&mut self.rng) {
                Drawn::Index(index) => index,
                Drawn::Age(age) => self.key_of_age(age, inserted),
            }
        };
        let updates = matches!(kind, OpKind::Update | OpKind::Upsert | OpKind::ReadModifyWrite);
        let key = if updates && self.own_updates {
            self.own_key(key)
        } else {
            key
        };
        let scan_len = if kind == OpKind::Scan {
            self.draw_scan_length()
        } else {
            0
        };
        Some(Op { kind, key, scan_len })
    }

    fn inserted_key(&self, client: u32, nth: u64) -> u64 {
        self.loaded
            .wrapping_add(nth.wrapping_mul(u64::from(self.clients)))
            .wrapping_add(u64::from(client))
    }

    /// Returns this client's loaded key in the group of `key`. A group has one key of each client. A key above the last
    /// complete group of loaded keys is mapped to another group.
    fn own_key(&self, key: u64) -> u64 {
        let clients = u64::from(self.clients);
        let groups = self.loaded / clients;
        (key / clients % groups) * clients + u64::from(self.client)
    }

    /// Returns the key of this age. Successive ages belong to successive clients: age 0 is this client's newest
    /// insert, age 1 the next client's newest insert, and so on. If a client has no key of this age, returns a loaded
    /// key; ages then count from the last loaded key down.
    fn key_of_age(&self, age: u64, inserted: impl Fn(u32) -> u64) -> u64 {
        let clients = u64::from(self.clients);
        // The cast loses nothing: the result is below the number of clients, which is a u32.
        let client = ((u64::from(self.client) + age % clients) % clients) as u32;
        match inserted(client).checked_sub(1 + age / clients) {
            Some(nth) => self.inserted_key(client, nth),
            None => self.loaded - 1 - age % self.loaded,
        }
    }

    fn draw_scan_length(&mut self) -> u32 {
        match self.scan_length {
            ScanLength::UpTo(most) => self.rng.random_range(1..=most),
            ScanLength::Fixed(count) => count,
        }
    }
}

impl Iterator for OpStream {
    type Item = Op;

    #[inline]
    fn next(&mut self) -> Option<Op> {
        let (me, mine) = (self.client, self.inserted);
        self.next_seeing(|client| if client == me { mine } else { 0 })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left).ok();
        (left.unwrap_or(usize::MAX), left)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn plan(mix: &str, loaded: u64, operations: u64, clients: u32, seed: u64) -> Plan {
        Workload::new(mix.parse().unwrap(), loaded, operations)
            .clients(clients)
            .seed(seed)
            .plan()
            .unwrap()
    }

    /// Checks that a key is drawn more often if its rank is hotter.
    #[test]
    fn hottest_keys_come_first() {
        let c = plan("c", 1000, 200_000, 1, 3);
        let mut drawn = vec![0_u32; 1000];
        for op in c.client(0) {
            drawn[op.key as usize] += 1;
        }
        let hottest: Vec<u64> = c.hottest().collect();
        let share = |keys: &[u64]| keys.iter().map(|&key| drawn[key as usize]).sum::<u32>();
        let tenths: Vec<u32> = hottest.chunks(100).map(share).collect();
        assert!(
            tenths.is_sorted_by(|a, b| a > b) && tenths[0] > 2 * tenths[1],
            "{tenths:?}"
        );
        assert_eq!(HashSet::<u64>::from_iter(hottest).len(), 1000);
        // The newest key is read most often.
        assert!(plan("d", 1000, 1, 1, 3).hottest().eq((0..1000).rev()));
    }

    proptest! {
        #[test]
        fn counts_add_up_and_a_load_inserts_each_key_once(operations in 0..2000_u64, clients in 1..50_u32) {
            let load = plan("load", 0, operations, clients, 1);
            let mut keys: Vec<u64> = (0..clients).flat_map(|client| load.client(client)).map(|op| op.key).collect();
            keys.sort_unstable();
            prop_assert_eq!(keys, (0..operations).collect::<Vec<_>>());
        }

        #[test]
        fn operations_are_a_function_of_workload_and_client(seed: u64, client in 0..8_u32, mix in "[a-f]") {
            let plan = plan(&mix, 1000, 800, 8, seed);
            let operations: Vec<_> = plan.client(client).collect();
            prop_assert_eq!(operations.len(), 100);
            prop_assert_eq!(&operations, &plan.client(client).collect::<Vec<_>>());
            prop_assert_ne!(&operations, &plan.client((client + 1) % 8).collect::<Vec<_>>());
            let other = Workload { seed: seed.wrapping_add(1), ..plan.workload }.plan().unwrap();
            prop_assert_ne!(&operations, &other.client(client).collect::<Vec<_>>());
        }

        #[test]
        fn inserts_are_new_and_everything_else_exists(seed: u64, mix in "[a-f]") {
            let plan = plan(&mix, 100, 900, 3, seed);
            let mut inserted = HashSet::new();
            for client in 0..3 {
                let mut mine = HashSet::new();
                for op in plan.client(client) {
                    if op.kind == OpKind::Insert {
                        prop_assert!(op.key >= 100 && inserted.insert(op.key));
                        mine.insert(op.key);
                    } else {
                        prop_assert!(op.key < 100 || mine.contains(&op.key));
                    }
                    prop_assert_eq!(op.scan_len > 0, op.kind == OpKind::Scan);
                    prop_assert!(op.scan_len <= 100);
                }
            }
        }
    }

    #[test]
    fn own_updates_never_meet_and_stay_skewed() {
        let workload = Workload::new("a".parse().unwrap(), 1000, 70_000).clients(7);
        let plan = workload.own_updates(true).plan().unwrap();
        for client in 0..7 {
            let updated = plan.client(client).filter(|op| op.kind == OpKind::Update);
            let mut counts = [0_u32; 1000];
            for op in updated {
                assert_eq!(op.key % 7, u64::from(client));
                counts[op.key as usize] += 1;
            }
            let hottest = counts.iter().max().unwrap();
            assert!(
                *hottest > 500,
                "the hottest of 143 keys has {hottest} of 5000 updates"
            );
        }
        let drawn = workload.plan().unwrap();
        let gets = |plan: &Plan| -> Vec<_> { plan.client(3).filter(|op| op.kind == OpKind::Get).collect() };
        assert_eq!(gets(&plan), gets(&drawn));
        let few = Workload::new("a".parse().unwrap(), 6, 10).clients(7);
        let (loaded, clients) = (6, 7);
        assert_eq!(
            few.own_updates(true).plan().unwrap_err(),
            WorkloadError::OwnKeys { loaded, clients }
        );
    }

    #[test]
    fn latest_prefers_the_newest_of_all_clients_when_told_of_them() {
        let plan = plan("d", 1_000, 40_000, 4, 1);
        let count_new = |seen: bool| {
            let mut stream = plan.client(0);
            let mut new = [0_u32; 5]; // per client, and loaded ones
            while let Some(op) = if seen {
                stream.next_seeing(|_| 250)
            } else {
                stream.next()
            } {
                let from = if op.key < 1000 { 4 } else { (op.key - 1000) % 4 };
                new[from as usize] += u32::from(op.kind == OpKind::Get);
            }
            new
        };
        let told = count_new(true);
        assert!(told[..4].iter().all(|&reads| reads > 1000), "{told:?}");
        assert_eq!(
            told[4], 0,
            "1000 inserted keys are all newer than the loaded ones: {told:?}"
        );
        let alone = count_new(false);
        assert!(
            alone[0] > 1000 && alone[1..4] == [0; 3] && alone[4] > 1000,
            "{alone:?}"
        );
    }

    #[test]
    fn scans_are_as_long_as_asked_for() {
        let lengths = |scan_length| {
            let workload = Workload::new("e".parse().unwrap(), 10, 20_000).scan_length(scan_length);
            let scans = workload
                .plan()
                .unwrap()
                .client(0)
                .filter(|op| op.kind == OpKind::Scan);
            scans.map(|op| op.scan_len).collect::<HashSet<_>>()
        };
        assert_eq!(lengths(ScanLength::Fixed(1000)), HashSet::from([1000]));
        assert_eq!(lengths(ScanLength::UpTo(100)), (1..=100).collect());
    }

    #[test]
    fn invalid_workloads_are_refused() {
        let a = || Workload::new("a".parse().unwrap(), 100, 10);
        assert_eq!(
            a().clients(0).plan().unwrap_err(),
            WorkloadError::Clients { count: 0 }
        );
        assert_eq!(
            a().clients(4096).plan().unwrap_err(),
            WorkloadError::Clients { count: 4096 }
        );
        assert_eq!(
            a().ranks(99).plan().unwrap_err(),
            WorkloadError::Ranks {
                ranks: 99,
                loaded: 100
            }
        );
        assert_eq!(
            a().scan_length(ScanLength::UpTo(0)).plan().unwrap_err(),
            WorkloadError::ScanLength
        );
        let empty = Workload::new("a".parse().unwrap(), 0, 10);
        assert_eq!(empty.plan().unwrap_err(), WorkloadError::NoKeys);
        let theta = a().distribution(Distribution::Zipf { theta: -1.0 }).plan();
        assert_eq!(
            theta.unwrap_err(),
            WorkloadError::Distribution {
                text: "zipf:-1".to_owned()
            }
        );
    }
}
