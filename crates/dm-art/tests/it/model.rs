//! Random scripts, compared with a `BTreeMap`. Two compute nodes alternate, so that each has an outdated cache when the
//! other one has changed the tree.

use dm_art::{ArtOptions, PrefixIndex};
use dm_index::{Key8, RangeIndex, Scan};
use dm_layout::NodeTypes;
use dm_loopback::block_on;
use dm_testkit::{Model, Op, Rng, TestKey, apply, check_all};
use dm_verbs::{Counters, Env, Nanos};

use crate::common::{Setup, draw, pool, spread, spread_far};

/// Runs a script of operations on keys `0..keys`, and returns the counters of its verbs.
fn run<K: TestKey>(setup: Setup, key: impl Fn(u64) -> K, keys: u64, seed: u64, operations: u64) -> Counters {
    let world = pool(2);
    let (v, w) = (world.connect(0).unwrap(), world.connect(1).unwrap());
    let trees = [setup.open::<K>(&v), setup.open::<K>(&w)];
    let clients = [trees[0].client(&v), trees[1].client(&w)];
    let mut model = Model::new(8);
    let mut rng = Rng::new(seed, 0);
    for i in 0..operations {
        let turn = (i / 7 % 2) as usize;
        // Phases in which the tree grows alternate with phases in which it shrinks.
        let op = match (Op::<Key8>::draw(&mut rng, keys), i / (operations / 4) % 2) {
            (Op::Insert(k, _), 1) if i % 3 > 0 => Op::Remove(k),
            (op, _) => op,
        };
        let op = with_key(&op, |k| key(k.0));
        if let Err(e) = block_on(apply(&clients[turn], &mut model, &op)) {
            panic!("operation {i} of seed {seed}: {e}");
        }
    }
    for client in &clients {
        block_on(check_all(client, &model)).unwrap();
    }
    block_on(check_all(&setup.open::<K>(&v).client(&v), &model)).unwrap();
    draw(&v, &trees[0], &setup.art.types);
    v.meter().counters() + w.meter().counters()
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

/// Returns setups with this index of the cache. They differ in the node sizes, in the size of the cache, in the slack
/// of link depths, and in whether memory is reused.
fn setups(cache_index: PrefixIndex) -> Vec<Setup> {
    let shipped = [
        NodeTypes::SHIPPED,
        NodeTypes::FINE,
        NodeTypes::new(&[2, 3, 5, 256]).unwrap(),
    ];
    let caches = [0, 4 << 10, 1 << 20];
    let mut setups = Vec::new();
    for (i, types) in shipped.into_iter().enumerate() {
        for (j, cache_bytes) in caches.into_iter().enumerate() {
            let base = [Setup::small(), Setup::reclaiming()][(i + j) % 2];
            let art = ArtOptions {
                types,
                cache_bytes,
                cache_index,
                turn: Nanos::from_micros(20),
                depth_slack: (i + j) as u8 % 3,
                attempts: 100,
                ..base.art
            };
            setups.push(Setup { art, ..base });
        }
    }
    setups
}

#[test]
fn keys_of_8_bytes_answer_as_a_map() {
    for index in [PrefixIndex::Radix, PrefixIndex::Hash] {
        let mut sum = Counters::default();
        for (seed, mut setup) in (0..).zip(setups(index)) {
            setup.reclaim.period = Nanos::from_micros(10);
            sum += run(setup, |n| Key8(spread(n)), 300, seed, 1_200);
        }
        assert!(
            sum.splits > 100 && sum.merges > 20 && sum.stale_reads > 30,
            "{index:?}: {sum:?}"
        );
    }
}

#[test]
fn keys_of_32_bytes_answer_as_a_map() {
    for index in [PrefixIndex::Radix, PrefixIndex::Hash] {
        let mut sum = Counters::default();
        for (seed, setup) in (20..).zip(setups(index)) {
            sum += run(setup, spread_far, 200, seed, 600);
        }
        assert!(
            sum.splits > 100 && sum.merges > 20 && sum.stale_reads > 30,
            "{index:?}: {sum:?}"
        );
    }
}

/// Scans with several limits and from many keys, over nodes of every size.
#[test]
fn scans_begin_at_their_key_and_end_at_their_limit() {
    let world = pool(2);
    let v = world.connect(0).unwrap();
    let setup = Setup::small();
    let tree = setup.open::<Key8>(&v);
    let client = tree.client(&v);
    let mut keys: Vec<u64> = (0..150)
        .map(spread)
        .chain((0..200).map(|n| n << 40 | 5))
        .collect();
    for key in &keys {
        block_on(client.upsert(&Key8(*key), &key.to_le_bytes())).unwrap();
    }
    keys.sort_unstable();
    keys.dedup();
    let mut scan = Scan::new();
    for from in keys
        .iter()
        .step_by(7)
        .flat_map(|key| [key.saturating_sub(1), *key, key.saturating_add(1)])
    {
        let rest: Vec<Key8> = keys
            .iter()
            .copied()
            .filter(|key| *key >= from)
            .map(Key8)
            .collect();
        for limit in [0, 1, 2, 63, 64, 65, 130, 1_000] {
            block_on(client.scan(&Key8(from), limit, &mut scan)).unwrap();
            assert_eq!(
                scan.keys(),
                &rest[..limit.min(rest.len())],
                "{limit} from {from:x}"
            );
            assert!(scan.iter().all(|(key, value)| value == key.0.to_le_bytes()));
        }
    }
}
