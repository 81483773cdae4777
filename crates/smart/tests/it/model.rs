//! Property tests, which compare random sequences of operations with a `BTreeMap`, on keys that share prefixes of every
//! length.

use crate::common::{Tree, art, out_of_place, under_tables};
use dm_layout::NodeTypes;
use dm_loopback::{Loopback, block_on};
use dm_testkit::{IndexUnderTest, Model, OP_BYTES, Op, TestKey, apply, check_all, connect};
use dm_verbs::{Counters, Env};
use proptest::prelude::*;
use smart::{Compression, Key8, KeyN, Options, PrefixIndex};

fn run<K: TestKey>(options: Options, ops: &[Op<K>]) -> Result<Counters, TestCaseError> {
    let world = Loopback::builder()
        .nodes(2)
        .host_bytes(64 << 20)
        .build()
        .expect("memory");
    let (v, w) = (connect(&world, 0), connect(&world, 1));
    block_on(async {
        let index = Tree::<K>::new(Options {
            chunk_bytes: 64 << 10,
            ..options
        });
        // Two compute nodes alternate, so that each has an outdated cache when the other one has changed nodes.
        let trees = [
            index.open(&v).await.expect("an empty pool"),
            index.open(&w).await.expect("a pool"),
        ];
        let mut model = Model::new(options.value_bytes);
        for (i, op) in ops.iter().enumerate() {
            let turn = i / 7 % 2;
            let v = if turn == 0 { &v } else { &w };
            if let Err(e) = apply(&trees[turn].client(v), &mut model, op).await {
                return Err(TestCaseError::fail(e.to_string()));
            }
        }
        let cold = index.open(&v).await.expect("a pool");
        for tree in trees.iter().chain([&cold]) {
            if let Err(e) = check_all(&tree.client(&v), &model).await {
                return Err(TestCaseError::fail(e.to_string()));
            }
        }
        Ok(v.meter().counters() + w.meter().counters())
    })
}

/// Returns a key whose bytes are often equal to those of other keys.
fn spread(n: u64) -> u64 {
    let byte = |i: u32| [0, 1, 0x80, 0xff][(n >> (2 * i) & 3) as usize];
    u64::from_be_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| byte(i * 5 % 8)))
}

/// Returns a key of 32 bytes, in which the bytes that depend on `n` are too far apart for one header.
fn spread_far(n: u64) -> [u8; 32] {
    let mut key = [7; 32];
    for (i, byte) in spread(n).to_be_bytes().into_iter().enumerate() {
        key[(i * i * 5 / 8) % 32] = byte;
    }
    key
}

fn with_key<A, B>(op: &Op<A>, key: impl Fn(&A) -> B) -> Op<B> {
    match op {
        Op::Get(k) => Op::Get(key(k)),
        Op::Insert(k, v) => Op::Insert(key(k), *v),
        Op::Update(k, v) => Op::Update(key(k), *v),
        Op::Upsert(k, v) => Op::Upsert(key(k), *v),
        Op::Remove(k) => Op::Remove(key(k)),
        Op::Scan(k, n) => Op::Scan(key(k), *n),
    }
}

fn ops(keys: u64, most: usize) -> impl Strategy<Value = Vec<Op<Key8>>> {
    let op = any::<[u8; OP_BYTES]>().prop_map(move |bytes| Op::decode(bytes, keys));
    proptest::collection::vec(op, 0..most)
}

fn types() -> impl Strategy<Value = NodeTypes> {
    let small = NodeTypes::new(&[2, 3, 5, 256]).expect("ascending");
    prop_oneof![
        Just(NodeTypes::SHIPPED),
        Just(NodeTypes::FINE),
        Just(NodeTypes::ONE),
        Just(small)
    ]
}

fn cache() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(4 << 10), Just(1 << 20)]
}

fn switched(options: Options) -> impl Strategy<Value = Options> {
    let switches = prop_oneof![
        Just(options),
        Just(under_tables(options)),
        Just(out_of_place(options)),
        Just(art(options))
    ];
    let compression = prop_oneof![
        Just(Compression::PESSIMISTIC),
        Just(Compression::HYBRID),
        Just(Compression::OPTIMISTIC),
        Just(Compression::NONE)
    ];
    // A hash index needs whole prefixes.
    (switches, compression, any::<bool>()).prop_map(|(switches, compression, hash)| Options {
        compression,
        cache_index: match hash && !compression.skips() {
            true => PrefixIndex::Hash,
            false => PrefixIndex::Radix,
        },
        ..switches
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn small_keys(
        ops in ops(400, 900), types in types(), cache_bytes in cache(), bytes in 1usize..40,
        switches in switched(Options::new(8)),
    ) {
        let ops: Vec<_> = ops.iter().map(|op| with_key(op, |k| Key8(spread(k.0)))).collect();
        run(Options { types, cache_bytes, value_bytes: bytes, ..switches }, &ops)?;
    }

    #[test]
    fn large_keys(
        ops in ops(200, 600), types in types(), cache_bytes in cache(), switches in switched(Options::new(24)),
    ) {
        let ops: Vec<_> = ops.iter().map(|op| with_key(op, |k| KeyN(spread_far(k.0)))).collect();
        run(Options { types, cache_bytes, ..switches }, &ops)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Uses few keys, whose different bytes are far apart, so that most prefixes have bytes that no header holds.
    #[test]
    fn skipped_bytes(
        ops in ops(40, 500), types in types(), cache_bytes in cache(), switches in switched(Options::new(8)),
    ) {
        let ops: Vec<_> = ops.iter().map(|op| with_key(op, |k| KeyN(spread_far(k.0.wrapping_mul(0x0401))))).collect();
        for compression in [Compression::OPTIMISTIC, Compression::HYBRID] {
            let cache_index = PrefixIndex::Radix;
            run(Options { types, cache_bytes, cache_index, compression, ..switches }, &ops)?;
        }
    }
}

/// Checks that scripts of this size split and merge nodes, and find outdated caches.
#[test]
fn scripts_of_this_size_split_and_merge() {
    let mut rng = dm_testkit::Rng::new(9, 0);
    let script: Vec<Op<Key8>> = (0..1_200)
        .map(|_| with_key(&Op::draw(&mut rng, 400), |k: &Key8| Key8(spread(k.0))))
        .collect();
    let cost = run::<Key8>(Options::new(8), &script).expect("the model's answers");
    assert!(
        cost.splits > 100 && cost.merges > 20 && cost.stale_reads > 30,
        "{cost:?}"
    );
}

/// Inserts keys in ascending, descending and interleaved order, removes all keys, and uses the same tree again.
#[test]
fn insertion_orders() {
    let orders: [fn(u64) -> u64; 3] = [|i| i, |i| 700 - i, |i| i * 997 % 701];
    for order in orders {
        let key = |i: u64| Key8(i.wrapping_mul(0x9e37_79b9) << 3);
        let keys = (1..700).map(order);
        let script: Vec<Op<Key8>> = keys
            .clone()
            .map(|i| Op::Insert(key(i), i))
            .chain([Op::Scan(Key8(0), 1_000)])
            .chain(keys.clone().map(|i| Op::Remove(key(i))))
            .chain([Op::Scan(Key8(0), 10)])
            .chain(keys.map(|i| Op::Upsert(key(i / 2), i)))
            .chain([Op::Scan(Key8(0), 1_000)])
            .collect();
        let cost = run::<Key8>(Options::new(8), &script).expect("the model's answers");
        assert!(cost.splits > 10 && cost.merges > 5, "{cost:?}");
    }
}
