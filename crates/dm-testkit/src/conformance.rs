//! One script for every index in every world.

use core::fmt::Display;

use dm_index::{Applied, Fill, IndexError, Key8, KeyBytes, KeyN, RangeIndex, Scan};
use dm_sync::Arc;
use dm_verbs::{Control, Verbs};

use crate::any_index::AnyIndex;
use crate::{
    Family, IndexUnderTest, Job, Mix, Model, Op, Report, Rng, Stress, TestKey, TestWorld, TestWorlds, apply,
    check_all, seats, stress, value_of,
};

/// Runs the conformance script for `family` in worlds of `kind`, for several sizes of keys and values:
///
/// 1. all parts of [`conform_one`] with 8-byte keys and values;
/// 2. the single client of [`conform_one`] with 8-byte keys and values of 1, 64 and 200 bytes;
/// 3. the single client, the bulk loads and the many clients of [`conform_one`] with 24-byte keys and values of 8 to
///    100 bytes.
///
/// # Panics
/// Panics with the seed if any check fails.
///
/// `docs/assemble.md` has an example, and lists the requirements on an index. The tests of every index call this.
pub fn conform<F: Family>(family: &F, kind: impl TestWorlds) {
    for value_bytes in [1, 64, 200] {
        single(family.index::<Key8>(value_bytes), kind);
    }
    conform_one(|| family.index::<Key8>(8), kind);
    for value_bytes in [8, 64] {
        single(family.index::<KeyN<24>>(value_bytes), kind);
    }
    waves(family.index::<KeyN<24>>(16), kind);
    many(
        family.index::<KeyN<24>>(100),
        kind,
        mix::<F::Index<KeyN<24>>>(),
        true,
    );
    bulk(|| family.index::<KeyN<24>>(20), kind);
}

/// Runs the script for an index of one size of keys and values, which `index` describes, in worlds of `kind`. For an
/// index that is not generic over keys, this function alone is enough.
///
/// 1. One client against the model: the empty index, the smallest and the largest key, a random script of all six
///    operations, and refused arguments. Then a second handle reads the whole content.
/// 2. Many clients that concurrently open and fill an empty pool.
/// 3. One client that uses two handles in turns, so that the cache of each handle goes out of date.
/// 4. Many clients on several compute and memory nodes, on an empty index and on one that grows and shrinks, with all
///    answers checked.
/// 5. Bulk loads with several fills, which are read back, refused if the index is not empty, and grown.
/// 6. Many clients on a loaded index. A third of their operations are scans across many nodes.
///
/// An index that is not [`IndexUnderTest::ORDERED`] skips part 5, and the scans of parts 4 and 6.
///
/// The index must count splits in the meter of its `Verbs` ([`Event::Split`](dm_verbs::Event::Split)). The script fails
/// if too few splits were counted.
///
/// # Panics
/// Panics with the seed if any check fails.
///
/// Example: the README of this crate.
pub fn conform_one<I: IndexUnderTest>(index: impl Fn() -> I, kind: impl TestWorlds) {
    let mix = mix::<I>();
    single(index(), kind);
    bootstrap(index(), kind);
    second_handle(index(), kind);
    many(index(), kind, mix, false);
    waves(index(), kind);
    bulk(&index, kind);
    many(index(), kind, if I::ORDERED { Mix::SCANS } else { mix }, true);
}

/// Returns the usual mix of operations, without scans if they are expensive.
fn mix<I: IndexUnderTest>() -> Mix {
    match I::ORDERED {
        true => Mix::DEFAULT,
        false => Mix {
            scan: 0,
            ..Mix::DEFAULT
        },
    }
}

/// Makes a `#[test]` of [`conform`] for each named [`Family`] and each world; with `one`, a test of [`conform_one`] for
/// each named [`IndexUnderTest`].
///
/// ```text
/// dm_testkit::conformance! {
///     default => MyFamily::new();
///     without_cache => MyFamily::new().cache_bytes(0);
/// }
///
/// dm_testkit::conformance! { one
///     numbers => MyIndexOfNumbers::new();
/// }
/// ```
#[macro_export]
macro_rules! conformance {
    (one $($name:ident => $index:expr;)*) => {
        $crate::conformance! { @each conform_one $($name => || $index;)* }
    };
    ($($name:ident => $family:expr;)*) => {
        $crate::conformance! { @each conform $($name => &$family;)* }
    };
    (@each $conform:ident $($name:ident => $subject:expr;)*) => { $(
        mod $name {
            use super::*;
            #[test]
            fn loopback() {
                $crate::$conform($subject, $crate::WorldKind::Loopback);
            }
            #[test]
            fn loopback_delays() {
                $crate::$conform($subject, $crate::WorldKind::LoopbackDelays);
            }
            #[test]
            fn loopback_bare() {
                $crate::$conform($subject, $crate::WorldKind::LoopbackBare);
            }
            #[test]
            fn sim_cx5() {
                $crate::$conform($subject, $crate::WorldKind::SimCx5);
            }
            #[test]
            fn sim_cx6() {
                $crate::$conform($subject, $crate::WorldKind::SimCx6);
            }
            #[test]
            fn sim_cx6_colocated() {
                $crate::$conform($subject, $crate::WorldKind::SimCx6Colocated);
            }
            #[test]
            fn sim_weak() {
                for number in 0..$crate::WEAK_WORLDS {
                    $crate::$conform($subject, $crate::WorldKind::SimWeak(number));
                }
            }
        }
    )* };
}

/// Number of weak worlds in which [`conformance!`](crate::conformance) runs.
pub const WEAK_WORLDS: u64 = 5;

type Checked = Result<(), String>;

fn text(e: impl Display) -> String {
    e.to_string()
}

fn expect<T: PartialEq + core::fmt::Debug>(what: &str, found: T, expected: T) -> Checked {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what}: expected {expected:?}, found {found:?}"))
    }
}

#[track_caller]
fn pass(part: &str, kind: impl TestWorlds, seed: u64, result: Checked) {
    if let Err(e) = result {
        panic!("{part}, in {kind}, seed {seed:#x}: {e}");
    }
}

/// Operations of the drawn script of a single client.
const SCRIPT: usize = 3_000;
/// The number of its keys.
const SCRIPT_KEYS: u64 = 600;

fn script(kind: impl TestWorlds) -> usize {
    SCRIPT / kind.thinned() as usize
}

struct Single<I> {
    index: I,
    seed: u64,
    script: usize,
}

fn single<I: IndexUnderTest>(index: I, kind: impl TestWorlds) {
    let (key_bytes, value_bytes) = (I::Key::LEN, index.value_bytes());
    let part = format!("single client, {key_bytes}-byte keys, {value_bytes}-byte values");
    let seed = 0x51 + value_bytes as u64;
    let script = script(kind);
    let result = kind.build(1, 3, seed).run_one(Single { index, seed, script });
    pass(&part, kind, seed, result);
}

impl<I: IndexUnderTest> Job for Single<I> {
    type Out = Checked;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Checked {
        let handle = self.index.open(v).await.map_err(text)?;
        let mut model = Model::new(self.index.value_bytes());
        {
            let client = AnyIndex::of::<I>(&handle, v);
            operations(&client, &mut model, self.seed, self.script).await?;
        }
        let again = self.index.open(v).await.map_err(text)?;
        check_all(&AnyIndex::of::<I>(&again, v), &model)
            .await
            .map_err(|e| format!("over a second handle: {e}"))
    }
}

/// Runs all operations of a single client with `script` drawn ones among them.
async fn operations<I>(index: &I, model: &mut Model<I::Key>, seed: u64, script: usize) -> Checked
where
    I: RangeIndex,
    I::Key: TestKey,
{
    empty(index).await?;
    edges(index, model).await?;
    let mut rng = Rng::new(seed, 0);
    for i in 0..script {
        let op = Op::draw(&mut rng, SCRIPT_KEYS);
        apply(index, model, &op)
            .await
            .map_err(|e| format!("operation {i}: {e}"))?;
    }
    check_all(index, model).await.map_err(text)?;
    refused(index).await
}

async fn empty<I>(index: &I) -> Checked
where
    I: RangeIndex,
    I::Key: TestKey,
{
    let mut model = Model::new(index.value_bytes());
    for key in [I::Key::MIN, I::Key::nth(5), I::Key::MAX] {
        for op in [
            Op::Get(key),
            Op::Scan(key, 10),
            Op::Update(key, 1),
            Op::Remove(key),
            Op::Scan(key, 0),
        ] {
            apply(index, &mut model, &op)
                .await
                .map_err(|e| format!("empty index: {e}"))?;
        }
    }
    Ok(())
}

/// Checks that no key and no value is reserved.
async fn edges<I>(index: &I, model: &mut Model<I::Key>) -> Checked
where
    I: RangeIndex,
    I::Key: TestKey,
{
    for key in [I::Key::MIN, I::Key::MAX] {
        // All zeroes, all ones, and an arbitrary value.
        for seed in [0, 255, 7] {
            for op in [
                Op::Insert(key, seed),
                Op::Get(key),
                Op::Insert(key, 3),
                Op::Scan(I::Key::MIN, 10),
                Op::Remove(key),
                Op::Get(key),
                Op::Upsert(key, seed),
                Op::Update(key, seed ^ 255),
                Op::Scan(key, 1),
                Op::Upsert(key, seed),
                Op::Get(key),
                Op::Remove(key),
                Op::Remove(key),
            ] {
                apply(index, model, &op)
                    .await
                    .map_err(|e| format!("edge of the key space: {e}"))?;
            }
        }
        apply(index, model, &Op::Insert(key, 9)).await.map_err(text)?;
    }
    Ok(())
}

/// Checks that invalid arguments, and a bulk load into an index with entries, are refused with the right error.
async fn refused<I>(index: &I) -> Checked
where
    I: RangeIndex,
    I::Key: TestKey,
{
    let expected = index.value_bytes();
    for found in [0, expected - 1, expected + 1] {
        let error = IndexError::ValueLength { found, expected };
        let key = I::Key::nth(1);
        let long = value_of(7, found);
        expect(
            "a value of the wrong length, inserted",
            index.insert(&key, &long).await,
            Err(error),
        )?;
        expect(
            "a value of the wrong length, updated",
            index.update(&key, &long).await,
            Err(error),
        )?;
        expect(
            "a value of the wrong length, upserted",
            index.upsert(&key, &long).await,
            Err(error),
        )?;
    }
    match index.bulk_load(1.0, |_| None).await {
        Err(IndexError::NotEmpty { .. }) => Ok(()),
        other => Err(format!(
            "a bulk load into an index with entries answered {other:?}"
        )),
    }
}

/// Number of clients that concurrently open an empty pool.
const BOOT: u64 = 24;
/// Number of keys that each of these clients inserts.
const BOOT_KEYS: u64 = 40;

struct Boot<I>(I);

impl<I: IndexUnderTest> Job for Boot<I> {
    type Out = Result<I::Handle, String>;
    async fn run<V: Verbs + Control>(&self, number: usize, v: &V) -> Self::Out {
        let handle = self
            .0
            .open(v)
            .await
            .map_err(|e| format!("client {number} opens: {e}"))?;
        {
            let client = AnyIndex::of::<I>(&handle, v);
            let me = number as u64;
            for i in 0..BOOT_KEYS {
                let (key, value) = (
                    I::Key::nth(i * BOOT + me),
                    value_of(1000 + me, self.0.value_bytes()),
                );
                let applied = client.insert(&key, &value).await;
                expect(
                    &format!("client {me}, insert {i}"),
                    applied,
                    Ok(Applied::Inserted),
                )?;
            }
            // All clients insert this key. One of them adds the key, and the others find it present.
            let common = I::Key::nth(BOOT * BOOT_KEYS);
            let applied = client
                .insert(&common, &value_of(1, self.0.value_bytes()))
                .await
                .map_err(text)?;
            if !matches!(applied, Applied::Inserted | Applied::Present) {
                return Err(format!("client {me}: an insert answered {applied:?}"));
            }
        }
        Ok(handle)
    }
}

struct BootLook<I: IndexUnderTest>(Vec<I::Handle>, usize);

impl<I: IndexUnderTest> Job for BootLook<I> {
    type Out = Checked;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Checked {
        let mut model = Model::new(self.1);
        for n in 0..BOOT * BOOT_KEYS {
            model.write(&Op::Insert(I::Key::nth(n), 1000 + n % BOOT));
        }
        model.write(&Op::Insert(I::Key::nth(BOOT * BOOT_KEYS), 1));
        for handle in &self.0 {
            check_all(&AnyIndex::of::<I>(handle, v), &model)
                .await
                .map_err(text)?;
        }
        Ok(())
    }
}

fn bootstrap<I: IndexUnderTest>(index: I, kind: impl TestWorlds) {
    let seed = 0xb007;
    let world = kind.build(4, 3, seed);
    let value_bytes = index.value_bytes();
    let opened = world.run(&seats(4, 8, (BOOT / 8) as u16), &Arc::new(Boot(index)));
    let result = opened
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .and_then(|handles| world.run_one(BootLook::<I>(handles, value_bytes)));
    pass("concurrent bootstrap", kind, seed, result);
}

/// Entries of a bulk load, which leaves out every third number.
const BULK: u64 = 5_000;

struct Bulk<I> {
    index: I,
    fill: Fill,
    entries: u64,
    script: usize,
}

impl<I: IndexUnderTest> Job for Bulk<I> {
    type Out = Checked;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Checked {
        let handle = self.index.open(v).await.map_err(text)?;
        load_and_grow(
            &AnyIndex::of::<I>(&handle, v),
            self.fill,
            self.entries,
            self.script,
        )
        .await
    }
}

/// Checks that loads with invalid arguments are refused. Loads the index, reads it, checks that a second load is
/// refused, and lets the index grow.
async fn load_and_grow<I>(index: &I, fill: Fill, entries: u64, script: usize) -> Checked
where
    I: RangeIndex,
    I::Key: TestKey,
{
    let bytes = index.value_bytes();
    let descending = [I::Key::nth(2), I::Key::nth(1)];
    for (why, fill, keys) in [
        ("a fill of 0", 0.0, &descending[..1]),
        ("a fill above 1", 1.5, &descending[..1]),
        ("descending keys", 0.5, &descending[..]),
    ] {
        let mut keys = keys.iter();
        let refused = index.bulk_load(fill, |value| {
            value.extend_from_slice(&value_of(1, bytes));
            keys.next().copied()
        });
        match refused.await {
            Err(IndexError::BadInput { .. }) => {}
            other => return Err(format!("a bulk load with {why} answered {other:?}")),
        }
    }
    // These add nothing, so the index is still empty.
    let (key, value) = (I::Key::nth(1), value_of(1, bytes));
    expect("an update", index.update(&key, &value).await, Ok(Applied::Absent))?;
    expect("a remove", index.remove(&key).await, Ok(Applied::Absent))?;
    let mut model = Model::new(bytes);
    let mut numbers = (0..entries).map(|i| i + i / 2);
    let loaded = index.bulk_load(fill, |value| {
        let n = numbers.next()?;
        model.write(&Op::Insert(I::Key::nth(n), n));
        value.extend_from_slice(&value_of(n, bytes));
        Some(I::Key::nth(n))
    });
    expect("entries loaded", loaded.await, Ok(entries))?;
    check_all(index, &model)
        .await
        .map_err(|e| format!("as loaded: {e}"))?;
    let again = index.bulk_load(fill, |_| None).await;
    // After a bulk load of nothing the index may still be empty.
    let refused = matches!(again, Err(IndexError::NotEmpty { .. }));
    if !(refused || entries == 0 && again == Ok(0)) {
        return Err(format!("a second bulk load answered {again:?}"));
    }
    let mut rng = Rng::new(entries, 1);
    for _ in 0..script {
        let op = Op::draw(&mut rng, entries * 3 / 2 + 10);
        apply(index, &mut model, &op)
            .await
            .map_err(|e| format!("after the load: {e}"))?;
    }
    check_all(index, &model).await.map_err(|e| format!("grown: {e}"))
}

fn bulk<I: IndexUnderTest>(index: impl Fn() -> I, kind: impl TestWorlds) {
    if !I::ORDERED {
        return;
    }
    let many = BULK / kind.thinned();
    for (fill, entries) in [
        (Fill::Even(0.5), many),
        (Fill::Even(0.8), many),
        (Fill::Even(1.0), many),
        (Fill::Even(1.0), 0),
        (Fill::AsInserted, 1),
        (Fill::AsInserted, many),
        (Fill::Even(0.001), 40),
    ] {
        let seed = 0xb01c;
        let result = kind.build(1, 3, seed).run_one(Bulk {
            index: index(),
            fill,
            entries,
            script: script(kind),
        });
        pass(
            &format!("bulk load of {entries} entries, fill {fill:?}"),
            kind,
            seed,
            result,
        );
    }
}

/// The job of a client that uses two handles alternately, like two compute nodes. Each handle has cached nodes that the
/// other handle then changes.
struct Turns<I>(I);

impl<I: IndexUnderTest> Job for Turns<I> {
    type Out = Checked;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Checked {
        let handles = [
            self.0.open(v).await.map_err(text)?,
            self.0.open(v).await.map_err(text)?,
        ];
        let mut model = Model::new(self.0.value_bytes());
        let mut rng = Rng::new(2, 2);
        for turn in 0..20 {
            let client = AnyIndex::of::<I>(&handles[turn % 2], v);
            for _ in 0..200 {
                // The number of keys grows, so nodes split while the other handle has them cached.
                let op = Op::draw(&mut rng, 100 + 200 * turn as u64);
                apply(&client, &mut model, &op)
                    .await
                    .map_err(|e| format!("turn {turn}: {e}"))?;
            }
        }
        let mut scan = Scan::new();
        let other = AnyIndex::of::<I>(&handles[0], v);
        other.scan(&I::Key::MIN, 7, &mut scan).await.map_err(text)?;
        check_all(&other, &model).await.map_err(text)
    }
}

fn second_handle<I: IndexUnderTest>(index: I, kind: impl TestWorlds) {
    let seed = 0x2d;
    pass(
        "two handles in turns",
        kind,
        seed,
        kind.build(1, 2, seed).run_one(Turns(index)),
    );
}

/// Operations of all clients together.
const MANY: u64 = 20_000;

/// Runs a script of many clients. Panics if the report has a wrong answer. The report's title names the part and the
/// world.
#[track_caller]
fn clients<I: IndexUnderTest>(part: &str, index: I, kind: impl TestWorlds, script: &Stress) -> Report {
    let (key_bytes, value_bytes) = (I::Key::LEN, index.value_bytes());
    let world = kind.build(3, 3, script.seed);
    let report = stress(index, &world, &seats(3, 6, 3), script);
    let sizes = format!("{key_bytes}-byte keys, {value_bytes}-byte values");
    let title = format!("{part}, {sizes}, in {kind}, {}", report.title);
    let report = Report { title, ..report }.expect_correct();
    assert_eq!(report.calls.total(), script.operations, "{report}");
    report
}

fn many<I: IndexUnderTest>(index: I, kind: impl TestWorlds, mix: Mix, preload: bool) {
    let many = MANY / kind.thinned();
    let script = Stress {
        mix,
        preload,
        keys: 4_000 / kind.thinned(),
        hot_percent: 10,
        scan_max: 400,
        ..Stress::new(many, 0x3a17)
    };
    let part = match preload {
        true => "many clients on a loaded index",
        false => "many clients on an empty index",
    };
    let report = clients(part, index, kind, &script);
    // A radix node has room for 256 neighbouring keys, so a preloaded radix tree need not split.
    assert!(
        (preload || report.meter.splits > many / 2_000) && (mix.scan == 0 || report.scanned > many / 4),
        "{report}"
    );
    assert!(
        report.linearized.0 > many / 20 && report.verified > many * 3 / 20,
        "{report}"
    );
}

fn waves<I: IndexUnderTest>(index: I, kind: impl TestWorlds) {
    let many = MANY / kind.thinned();
    let script = Stress {
        mix: mix::<I>(),
        waves: 3,
        keys: 1_500 / kind.thinned(),
        scan_max: 400,
        ..Stress::new(many, 0x3a7e)
    };
    let part = "many clients on an index that grows and shrinks";
    let report = clients(part, index, kind, &script);
    assert!(report.meter.splits > many / 10_000, "{report}");
}
