//! A client of a stress run. It draws operations, and checks that their answers are allowed.

mod successor;

use core::fmt::Display;

use dm_history::scan::{check_complete, check_items};
use dm_history::{KvOp, KvRet, LOADER, Monotone, Stamp, check_value, stamp};
use dm_index::{Applied, IndexError, KEY_BYTES_MAX, KeyBytes, RangeIndex, Scan};
use dm_sync::atomic::{AtomicU32, Ordering};
use dm_verbs::{Effect, Env, Nanos};

use crate::kills::Life;
use crate::stress::{DOUBTFUL, Done, HOT_AT_ONCE, HotHistory, LOADED, Shunned};
use crate::{Report, Rng, Stress, TestKey, answer};
use successor::Doubt;
pub(crate) use successor::Past;

/// An operation on a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Get,
    Insert,
    Update,
    Upsert,
    Remove,
    Scan,
}

pub(crate) struct Client<'r, E> {
    stress: &'r Stress,
    /// For each client, the number of writes that it has begun. No read may return a later write.
    begun: &'r [AtomicU32],
    shunned: &'r Shunned,
    me: usize,
    env: &'r E,
    rng: Rng,
    report: Report,
    own: Vec<u32>,
    hot: HotHistory,
    seen: Monotone<u64>,
    value: Vec<u8>,
    scan_keys: Vec<u64>,
    made: u64,
    quota: u64,
    /// Access to the plan of deaths, if clients may be killed.
    life: Option<Life<'r>>,
    /// The write that is running: its kind, its key and its number.
    running: Option<(Kind, u64, u32)>,
    doubt: Option<Doubt>,
}

/// Returns the client that writes the key, if it is not hot.
fn owner(key: u64, clients: usize) -> usize {
    usize::try_from(key % clients as u64).unwrap_or(0)
}

/// The client watches its gets of all hot keys, and of one in this many of the other keys. On a watched key, a get must
/// not find an earlier write of a client after another get has found a later write of that client.
const WATCHED: u64 = 16;
/// Limit on draws of a key on which no write has failed.
const DRAWS_MAX: u32 = 100_000;

/// Returns the expected answer to write number `sequence` of a key that contains write `before`, and the number of the
/// write that the key contains afterwards. The number 0 means that the key is absent.
fn after(kind: Kind, before: u32, sequence: u32) -> (Applied, u32) {
    match (kind, before) {
        (Kind::Insert, 0) => (Applied::Inserted, sequence),
        (Kind::Insert, before) => (Applied::Present, before),
        (Kind::Update | Kind::Remove, 0) => (Applied::Absent, 0),
        (Kind::Update, _) => (Applied::Replaced, sequence),
        (Kind::Remove, _) => (Applied::Removed, 0),
        (_, 0) => (Applied::Inserted, sequence),
        (_, _) => (Applied::Replaced, sequence),
    }
}

fn word(stamp: Stamp) -> u64 {
    u64::from(stamp.client) << 32 | u64::from(stamp.sequence)
}

fn key_bytes<K: KeyBytes>(key: &K) -> [u8; KEY_BYTES_MAX] {
    let mut bytes = [0; KEY_BYTES_MAX];
    key.write_to(&mut bytes);
    bytes
}

impl<'r, E: Env> Client<'r, E> {
    pub(crate) fn new(
        stress: &'r Stress,
        (begun, shunned): (&'r [AtomicU32], &'r Shunned),
        me: usize,
        env: &'r E,
        value_bytes: usize,
    ) -> Self {
        let clients = begun.len() as u64;
        let own_count = stress.keys.div_ceil(clients) as usize;
        let quota = stress.operations / clients + u64::from((me as u64) < stress.operations % clients);
        Self {
            stress,
            begun,
            shunned,
            me,
            env,
            rng: Rng::new(stress.seed, me as u64 + 1),
            report: Report::default(),
            own: (0..own_count as u64)
                .map(|i| u32::from(stress.is_loaded(i * clients + me as u64)) * LOADED)
                .collect(),
            hot: HotHistory::new(),
            seen: Monotone::new(),
            value: vec![0; value_bytes],
            scan_keys: Vec::new(),
            made: 0,
            quota,
            life: None,
            running: None,
            doubt: None,
        }
    }

    pub(crate) fn done(self) -> Done {
        Done {
            me: self.me,
            report: self.report,
            own: self.own,
            hot: self.hot,
        }
    }

    /// Runs the client's share of the operations. It stops at the first error, unless an outage may have caused the
    /// error.
    pub(crate) async fn run<I>(&mut self, index: &I)
    where
        I: RangeIndex,
        I::Key: TestKey,
    {
        let mut scan = Scan::new();
        let mut read = Vec::new();
        if let Err(e) = self.settle(index, &mut read).await {
            self.unless_expelled(&e).await;
            let key = self.doubt.as_ref().map_or(0, |doubt| doubt.key);
            return self.wrong(key, &format_args!("after its predecessor's death: {e}"));
        }
        while self.made < self.quota {
            if let Some(life) = &self.life {
                life.rest().await;
            }
            let began = self.env.now();
            let kind = self.draw();
            let key = self.draw_key(kind);
            let result = match kind {
                Kind::Get => self.get(index, key, &mut read).await,
                Kind::Scan => self.scan(index, key, &mut scan).await,
                _ => self.write(index, kind, key).await,
            };
            self.lives().await;
            let Err(e) = result else {
                self.made += 1;
                self.ended(began);
                continue;
            };
            self.unless_expelled(&e).await;
            self.made += 1;
            if self.stress.outage_end == Nanos(0) {
                self.wrong(key, &format_args!("{kind:?} erred: {e}"));
                return;
            }
            self.failed(kind, key, &e);
        }
    }

    /// Waits for ever if the client was killed during an operation, because a dead client gets no answer.
    async fn lives(&self) {
        if let Some(life) = &self.life {
            life.lives().await;
        }
    }

    /// Counts an operation that was answered.
    fn ended(&mut self, began: Nanos) {
        if let Some(life) = &self.life {
            let took = self.env.now() - began;
            self.report.killed.longest = self.report.killed.longest.max(took);
            life.operation_ended();
        }
    }

    /// Handles an operation that failed during an outage.
    fn failed(&mut self, kind: Kind, key: u64, e: &IndexError) {
        self.report.failed += 1;
        if matches!(kind, Kind::Get | Kind::Scan) {
            return;
        }
        self.shunned.with(|keys| keys.insert(key));
        if self.is_own(key) && e.effect() != Effect::None {
            *self.last(key) = DOUBTFUL;
        }
    }

    /// Records that the client could not begin.
    pub(crate) fn fails(&mut self, why: &str) {
        self.wrong(0, &format_args!("opening the index: {why}"));
    }

    fn wrong(&mut self, key: u64, what: &dyn Display) {
        let (me, made) = (self.me, self.made);
        self.report
            .note(|| format!("client {me}, operation {made}, key {key}: {what}"));
    }

    /// Draws the next operation. While the index should shrink, most operations that would add a key become removes of
    /// the key.
    fn draw(&mut self) -> Kind {
        let parts = 2 * self.stress.waves;
        let shrinks = (self.made * parts / self.quota.max(1)) % 2 == 1;
        let kind = self.draw_by_mix();
        let calls = &mut self.report.calls;
        let instead = match kind {
            Kind::Insert => &mut calls.inserts,
            Kind::Upsert => &mut calls.upserts,
            _ => return kind,
        };
        if !shrinks || self.rng.below(16) == 0 {
            return kind;
        }
        *instead -= 1;
        calls.removes += 1;
        Kind::Remove
    }

    fn draw_by_mix(&mut self) -> Kind {
        let mix = &self.stress.mix;
        let calls = &mut self.report.calls;
        let mut at = self.rng.below(mix.total());
        for (weight, kind, count) in [
            (mix.get, Kind::Get, &mut calls.gets),
            (mix.insert, Kind::Insert, &mut calls.inserts),
            (mix.update, Kind::Update, &mut calls.updates),
            (mix.upsert, Kind::Upsert, &mut calls.upserts),
            (mix.remove, Kind::Remove, &mut calls.removes),
        ] {
            if at < u64::from(weight) {
                *count += 1;
                return kind;
            }
            at -= u64::from(weight);
        }
        calls.scans += 1;
        Kind::Scan
    }

    /// Draws a key on which no write has failed.
    fn draw_key(&mut self, kind: Kind) -> u64 {
        for _ in 0..DRAWS_MAX {
            let key = self.draw_any_key(kind);
            if self.stress.outage_end == Nanos(0) || !self.shunned.with(|keys| keys.contains(&key)) {
                return key;
            }
        }
        panic!("an outage has made writes to nearly every key fail, those of other memory nodes too");
    }

    /// Draws a hot key or one of the client's own keys. Half of the reads that do not draw a hot key draw any key.
    fn draw_any_key(&mut self, kind: Kind) -> u64 {
        if kind != Kind::Scan && self.rng.below(100) < self.stress.hot_percent {
            let groups = self.stress.hot_keys.div_ceil(HOT_AT_ONCE);
            let group = self.made * groups / self.quota.max(1);
            let hot = (group * HOT_AT_ONCE + self.rng.below(HOT_AT_ONCE)).min(self.stress.hot_keys - 1);
            return hot * self.stress.hot_stride();
        }
        if matches!(kind, Kind::Get | Kind::Scan) && self.rng.below(2) == 0 {
            return self.rng.below(self.stress.keys);
        }
        let key = self.rng.below(self.own.len() as u64) * self.begun.len() as u64 + self.me as u64;
        // If the number of keys is no multiple of the number of clients, some clients have one key less.
        if key < self.stress.keys {
            key
        } else {
            self.me as u64
        }
    }

    fn is_own(&self, key: u64) -> bool {
        owner(key, self.begun.len()) == self.me && !self.stress.is_hot(key)
    }

    /// Returns the last write of one of the client's own keys.
    fn last(&mut self, key: u64) -> &mut u32 {
        &mut self.own[key as usize / self.begun.len()]
    }

    /// Checks whether `value` is a possible value of `key` now.
    fn judge<K: TestKey>(&self, key: u64, value: &[u8]) -> Result<Stamp, String> {
        let bytes = key_bytes(&K::nth(key));
        let found = check_value(&bytes[..K::LEN], value).map_err(|e| e.to_string())?;
        let clients = self.begun.len();
        let of = found.client as usize;
        if found.client == LOADER && self.stress.is_loaded(key) {
            if self.is_own(key) && !matches!(self.own[key as usize / clients], LOADED | DOUBTFUL) {
                return Err("as loaded, but it was written since".to_owned());
            }
            return Ok(found);
        }
        if of >= clients || !(self.stress.is_hot(key) || of == owner(key, clients)) {
            return Err(format!("a value of client {of}, who does not write there"));
        }
        // Acquire: pairs with Release in `write`; a write that was seen has been counted before.
        let begun = self.begun[of].load(Ordering::Acquire);
        if found.sequence == 0 || found.sequence > begun {
            return Err(format!(
                "write {} of client {of}, who has begun {begun}",
                found.sequence
            ));
        }
        if self.is_own(key) {
            let last = self.own[key as usize / clients];
            if found.sequence != last && last != DOUBTFUL {
                return Err(format!("own write {}, but the last was {last}", found.sequence));
            }
        }
        Ok(found)
    }

    fn watch(&mut self, key: u64, found: Stamp) {
        let watched = self.stress.is_hot(key) || key % WATCHED == 1;
        if watched && let Err(e) = self.seen.observe(&key, found) {
            self.wrong(key, &e);
        }
    }

    async fn get<I>(&mut self, index: &I, key: u64, read: &mut Vec<u8>) -> Result<(), IndexError>
    where
        I: RangeIndex,
        I::Key: TestKey,
    {
        let hot = self.stress.is_hot(key);
        let call = hot.then(|| self.hot.invoke(self.me as u32, KvOp::Get(key), self.env.now().0));
        let present = index.get(&I::Key::nth(key), read).await;
        self.lives().await;
        let present = present?;
        let mut ret = KvRet::Absent;
        if present {
            match self.judge::<I::Key>(key, read) {
                Ok(found) => {
                    ret = KvRet::Found(word(found));
                    self.watch(key, found);
                }
                Err(e) => {
                    self.wrong(key, &format_args!("get: {e}"));
                    ret = KvRet::Found(u64::MAX);
                }
            }
        } else if self.is_own(key) && !matches!(*self.last(key), 0 | DOUBTFUL) {
            let last = *self.last(key);
            self.wrong(key, &format_args!("get: absent, but own write {last} is there"));
        }
        if let Some(call) = call {
            self.hot.respond(call, ret, self.env.now().0);
        }
        Ok(())
    }

    async fn write<I>(&mut self, index: &I, kind: Kind, number: u64) -> Result<(), IndexError>
    where
        I: RangeIndex,
        I::Key: TestKey,
    {
        let key = I::Key::nth(number);
        // Release: pairs with Acquire in `judge`.
        let sequence = self.begun[self.me].fetch_add(1, Ordering::Release) + 1;
        self.running = Some((kind, number, sequence));
        let me = self.me as u32;
        stamp(&key_bytes(&key)[..I::Key::LEN], me, sequence, &mut self.value);
        let value = word(Stamp { client: me, sequence });
        let hot = self.stress.is_hot(number).then(|| {
            let op = match kind {
                Kind::Insert => KvOp::Insert(number, value),
                Kind::Update => KvOp::Update(number, value),
                Kind::Remove => KvOp::Remove(number),
                _ => KvOp::Upsert(number, value),
            };
            self.hot.invoke(me, op, self.env.now().0)
        });
        let applied = match kind {
            Kind::Insert => index.insert(&key, &self.value).await,
            Kind::Update => index.update(&key, &self.value).await,
            Kind::Remove => index.remove(&key).await,
            _ => index.upsert(&key, &self.value).await,
        };
        self.lives().await;
        let applied = applied?;
        self.running = None;
        if let Some(call) = hot {
            self.hot.respond(call, answer(applied), self.env.now().0);
            return Ok(());
        }
        let last = self.last(number);
        let known = *last != DOUBTFUL;
        let (expected, after) = after(kind, *last, sequence);
        *last = after;
        if known && applied != expected {
            self.wrong(
                number,
                &format_args!("{kind:?} answered {applied:?}, not {expected:?}"),
            );
        }
        Ok(())
    }

    async fn scan<I>(&mut self, index: &I, from: u64, out: &mut Scan<I::Key>) -> Result<(), IndexError>
    where
        I: RangeIndex,
        I::Key: TestKey,
    {
        let limit = 1 + self.rng.below(self.stress.scan_max) as usize;
        let scanned = index.scan(&I::Key::nth(from), limit, out).await;
        self.lives().await;
        scanned?;
        self.report.scanned += out.len() as u64;
        let found: Vec<(u64, &[u8])> = out
            .iter()
            .map(|(key, value)| (key.number().unwrap_or(u64::MAX), value))
            .collect();
        let end = Some(&self.stress.keys);
        let mut fault = check_items(&from, end, limit, &found, |key, value| {
            let stamp = self.judge::<I::Key>(*key, value)?;
            if self.is_own(*key) && self.own[*key as usize / self.begun.len()] == 0 {
                return Err(format!("own key was removed, and is of write {}", stamp.sequence));
            }
            Ok(())
        })
        .err();
        if fault.is_none() {
            // The client's own keys do not change during its scan.
            let mut always = core::mem::take(&mut self.scan_keys);
            self.own_keys(
                from,
                found.last().filter(|_| found.len() == limit).map(|f| f.0),
                &mut always,
            );
            fault = check_complete(&from, end, limit, &found, &always).err();
            self.scan_keys = always;
        }
        if let Some(fault) = fault {
            self.wrong(from, &fault);
        }
        Ok(())
    }

    /// Collects the client's own present keys from `from` up to `last`, or to the end.
    fn own_keys(&self, from: u64, last: Option<u64>, keys: &mut Vec<u64>) {
        let clients = self.begun.len() as u64;
        let first = from.saturating_sub(self.me as u64).div_ceil(clients) as usize;
        keys.clear();
        for (i, &write) in self.own.iter().enumerate().skip(first) {
            let key = i as u64 * clients + self.me as u64;
            if last.is_some_and(|last| key > last) {
                break;
            }
            if !matches!(write, 0 | DOUBTFUL) {
                keys.push(key);
            }
        }
    }
}

/// The fill leaves room for later inserts.
const FILL: f64 = 0.7;

/// Loads the keys that are present from the start.
pub(crate) async fn load<I>(index: &I, stress: &Stress) -> Result<u64, IndexError>
where
    I: RangeIndex,
    I::Key: TestKey,
{
    let value_bytes = index.value_bytes();
    let mut numbers = (0..stress.keys).filter(|&key| stress.is_loaded(key));
    let next = |value: &mut Vec<u8>| {
        let key = I::Key::nth(numbers.next()?);
        value.resize(value_bytes, 0);
        stamp(&key_bytes(&key)[..I::Key::LEN], LOADER, 0, value);
        Some(key)
    };
    index.bulk_load(FILL, next).await
}

/// Minimum number of entries per scan of the final check.
const LOOK: usize = 1_000;

/// Scans everything after all clients have ended. Each owned key must be as its owner left it. Returns the number of
/// keys that are correct.
pub(crate) async fn verify<I>(index: &I, stress: &Stress, own: &[Vec<u32>], report: &mut Report) -> u64
where
    I: RangeIndex,
    I::Key: TestKey,
{
    // A scan of a hash table reads all of it, so only a few scans are made.
    let look = usize::try_from(stress.keys / 4).unwrap_or(LOOK).max(LOOK);
    let mut scan = Scan::new();
    let mut next = 0;
    let mut verified = 0;
    let mut from = I::Key::nth(0);
    loop {
        if let Err(e) = index.scan(&from, look, &mut scan).await {
            report.note(|| format!("last look, from key {next}: {e}"));
            return verified;
        }
        for (key, value) in scan.iter() {
            let Some(number) = key.number().filter(|&n| n >= next && n < stress.keys) else {
                report.note(|| format!("last look: {key:?} after key {next}"));
                return verified;
            };
            verified += absent_between(next, number, stress, own, report);
            verified += u64::from(is_last(key, number, value, stress, own, report));
            next = number + 1;
        }
        if scan.len() < look || next == stress.keys {
            return verified + absent_between(next, stress.keys, stress, own, report);
        }
        from = I::Key::nth(next);
    }
}

fn last_of(key: u64, own: &[Vec<u32>]) -> (usize, u32) {
    let of = owner(key, own.len());
    (of, own[of][key as usize / own.len()])
}

fn absent_between(from: u64, to: u64, stress: &Stress, own: &[Vec<u32>], report: &mut Report) -> u64 {
    let mut fine = 0;
    for key in (from..to).filter(|&key| !stress.is_hot(key)) {
        match last_of(key, own) {
            (_, 0 | DOUBTFUL) => fine += 1,
            (of, last) => {
                report.note(|| format!("last look: key {key} is lost (write {last} of client {of})"))
            }
        }
    }
    fine
}

fn is_last<K: TestKey>(
    key: K,
    number: u64,
    value: &[u8],
    stress: &Stress,
    own: &[Vec<u32>],
    report: &mut Report,
) -> bool {
    let found = match check_value(&key_bytes(&key)[..K::LEN], value) {
        Ok(found) => found,
        Err(e) => {
            report.note(|| format!("last look: key {number}: {e}"));
            return false;
        }
    };
    let (of, last) = last_of(number, own);
    let right = match found.client {
        LOADER => matches!(last, LOADED | DOUBTFUL) && stress.is_loaded(number),
        client if last == DOUBTFUL => client as usize == of,
        client => stress.is_hot(number) || (client as usize, found.sequence) == (of, last),
    };
    if !right {
        report.note(|| {
            let Stamp { client, sequence } = found;
            format!("last look: key {number} is of write {sequence} of client {client}, not {last} of {of}")
        });
    }
    right
}
