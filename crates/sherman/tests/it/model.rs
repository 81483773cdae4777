//! Property tests, which compare random sequences of operations with a `BTreeMap`. Nodes are so small that several
//! levels split.

use crate::common::Tree;
use dm_index::RangeIndex;
use dm_layout::{Checksummed, Slotted};
use dm_loopback::{Loopback, block_on};
use dm_testkit::{IndexUnderTest, Model, OP_BYTES, Op, TestKey, apply, check_all, connect};
use dm_verbs::Env;
use proptest::prelude::*;
use sherman::{Key8, KeyN, LeafFormat, NodeSize, Options, Variant};

/// The counts of a test's tree.
struct Grown {
    entries: usize,
    splits: u64,
    merges: u64,
}

fn run<K: TestKey, F: LeafFormat<K>>(options: Options, ops: &[Op<K>]) -> Result<Grown, TestCaseError> {
    let world = Loopback::builder()
        .nodes(2)
        .host_bytes(64 << 20)
        .build()
        .expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        let index = Tree::<K, F>::new(Options {
            chunk_bytes: 64 << 10,
            ..options
        });
        let tree = index.open(&v).await.expect("an empty pool");
        let client = tree.client(&v);
        let mut model = Model::new(client.value_bytes());
        for op in ops {
            if let Err(e) = apply(&client, &mut model, op).await {
                return Err(TestCaseError::fail(e.to_string()));
            }
        }
        // A client of the same tree, and a client with an empty cache, must find all entries.
        let cold = index.open(&v).await.expect("a pool");
        for tree in [&tree, &cold] {
            if let Err(e) = check_all(&tree.client(&v), &model).await {
                return Err(TestCaseError::fail(e.to_string()));
            }
        }
        Ok(Grown {
            entries: model.entries().len(),
            splits: v.meter().counters().splits,
            merges: v.meter().counters().merges,
        })
    })
}

fn ops<K: TestKey>(keys: u64, most: usize) -> impl Strategy<Value = Vec<Op<K>>> {
    let op = any::<[u8; OP_BYTES]>().prop_map(move |bytes| Op::decode(bytes, keys));
    proptest::collection::vec(op, 0..most)
}

fn node() -> impl Strategy<Value = NodeSize> {
    prop_oneof![(4usize..9).prop_map(NodeSize::Span), Just(NodeSize::Bytes(256))]
}

fn variant() -> impl Strategy<Value = Variant> {
    prop_oneof![
        Just(Variant::Default),
        Just(Variant::TwoLevel),
        Just(Variant::PaperRtt)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    #[test]
    fn line_versions(ops in ops::<Key8>(300, 1500), node in node(), variant in variant(), bytes in 0usize..40) {
        let options = variant.apply(Options { node, ..Options::new(bytes.max(1)) });
        run::<Key8, Slotted<Key8>>(options, &ops)?;
    }

    #[test]
    fn large_keys(ops in ops::<KeyN<24>>(300, 800), span in 4usize..9) {
        let options = Options { node: NodeSize::Span(span), ..Options::new(24) };
        run::<KeyN<24>, Slotted<KeyN<24>>>(options, &ops)?;
    }

    #[test]
    fn checksums(ops in ops::<Key8>(300, 800), node in node()) {
        let options = Variant::Hierarchical.apply(Options { node, ..Options::new(8) });
        run::<Key8, Checksummed<Key8>>(options, &ops)?;
    }
}

/// Checks that scripts of this size split leaves, inner nodes, and nodes above those.
#[test]
fn scripts_of_this_size_split_on_several_levels() {
    let mut rng = dm_testkit::Rng::new(9, 0);
    let script: Vec<Op<Key8>> = (0..1_500).map(|_| Op::draw(&mut rng, 300)).collect();
    let options = Options {
        node: NodeSize::Span(4),
        ..Options::new(8)
    };
    let grown = run::<Key8, Slotted<Key8>>(options, &script).expect("the model's answers");
    // There are at most four entries per leaf and four children per node: 120 entries need 30 leaves, 8 nodes, 2 nodes
    // and a root.
    assert!(grown.entries >= 120, "{}", grown.entries);
    assert!(
        grown.splits > grown.entries as u64 / 4 + 8 + 2,
        "{}",
        grown.splits
    );
}

/// Inserts keys in ascending, descending and interleaved order, removes all keys, and uses the same tree again.
#[test]
fn insertion_orders() {
    let orders: [fn(u64) -> u64; 3] = [|i| i, |i| 2_000 - i, |i| i * 997 % 2_003];
    for order in orders {
        for bias in [dm_layout::SplitBias::Median, dm_layout::SplitBias::Ascending] {
            let options = Options {
                node: NodeSize::Span(5),
                bias,
                ..Options::new(8)
            };
            let keys = (1..2_000).map(order);
            let key = |i: u64| Key8::nth(i);
            let script: Vec<Op<Key8>> = keys
                .clone()
                .map(|i| Op::Insert(key(i), i))
                .chain([Op::Scan(key(0), 3_000)])
                .chain(keys.clone().map(|i| Op::Remove(key(i))))
                .chain([Op::Scan(key(0), 10)])
                .chain(keys.map(|i| Op::Upsert(key(i / 2), i)))
                .chain([Op::Scan(key(0), 3_000)])
                .collect();
            let grown = run::<Key8, Slotted<Key8>>(options, &script).expect("the model's answers");
            // All keys were removed between the insertions.
            assert!(
                grown.splits > 300 && grown.merges > 100,
                "{} {}",
                grown.splits,
                grown.merges
            );
        }
    }
}

/// Inserts ascending keys, then others far above them, and then keys that descend from there towards a full leaf. With
/// the split position for ascending inserts, the tree needs at most two splits more than with the median.
#[test]
fn descending_keys_behind_a_full_leaf() {
    let splits = |bias, descending: u64| {
        let options = Options {
            node: NodeSize::Span(60),
            bias,
            ..Options::new(8)
        };
        let keys = (0..60)
            .chain(10_000..10_060)
            .chain((10_000 - descending..10_000).rev());
        let script: Vec<Op<Key8>> = keys.map(|i| Op::Insert(Key8::nth(i), i)).collect();
        let grown = run::<Key8, Slotted<Key8>>(options, &script);
        grown.expect("the model's answers").splits
    };
    for descending in [60, 2_000] {
        let [median, ascending] = [dm_layout::SplitBias::Median, dm_layout::SplitBias::Ascending]
            .map(|bias| splits(bias, descending));
        assert!(
            ascending <= median + 2 && median < 6 + descending / 20,
            "{descending} keys: {median} splits by the median, {ascending} for ascending keys"
        );
    }
}
