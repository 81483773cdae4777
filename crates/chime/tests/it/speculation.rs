//! Tests the share of gets that read a single entry, and the share of these that were right, for different kinds of
//! keys.

use chime::{Key8, KeyN, Options};
use dm_index::{KeyBytes, RangeIndex};
use dm_sim::{CostModel, Sim};
use dm_testkit::{IndexUnderTest, Job, TestKey, World};
use dm_verbs::{Control, Verbs};
use dm_workload::{KeySpace, Workload};

use crate::common::Tree;

const KEYS: u64 = 50_000;
const GETS: u64 = 100_000;

/// A job that runs gets with Zipf 0.99 over `KEYS` keys, and with half a byte of hotspot buffer per key.
struct Gets<K>(fn(u64) -> K);

impl<K: TestKey> Job for Gets<K> {
    type Out = (f64, f64);
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Self::Out {
        let options = Options {
            hotspot_bytes: KEYS / 2,
            ..Options::new(8)
        };
        let tree = Tree::<K>::new(options).open(v).await.expect("an empty pool");
        let client = tree.client(v);
        let mut keys: Vec<K> = (0..KEYS).map(self.0).collect();
        keys.sort_unstable();
        let mut next = keys.into_iter();
        let loaded = client.bulk_load(0.7, |out| {
            out.extend_from_slice(&[7; 8]);
            next.next()
        });
        assert_eq!(loaded.await, Ok(KEYS));
        tree.warm(v).await.expect("inner nodes");
        let plan = Workload::new("c".parse().expect("a mix"), KEYS, GETS)
            .distribution("zipf:0.99".parse().expect("one"));
        let plan = plan.seed(3).plan().expect("sound");
        let (mut before, mut out) = (v.meter().counters(), Vec::new());
        for (n, op) in plan.client(0).enumerate() {
            if n as u64 == GETS / 2 {
                // From here on, the buffer has the hot keys.
                before = v.meter().counters();
            }
            assert_eq!(client.get(&(self.0)(op.key), &mut out).await, Ok(true));
        }
        let c = v.meter().counters() - before;
        let right = (c.speculations - c.wrong_speculations) as f64;
        (
            c.speculations as f64 / (GETS / 2) as f64,
            right / c.speculations as f64,
        )
    }
}

#[expect(clippy::print_stdout, reason = "the test prints the ratios")]
fn ratios<K: TestKey>(what: &str, key: fn(u64) -> K) {
    let sim = Sim::builder(CostModel::cx6_roce()).memory_nodes(2);
    let (tried, right) = World::from(sim.build().expect("memory")).run_one(Gets(key));
    println!(
        "{what}: {:.1} % of the gets speculate, {:.2} % of these are right",
        tried * 100.0,
        right * 100.0
    );
    assert!(tried > 0.5 && right > 0.99, "{what}: {tried}, {right}");
}

/// The paper uses the last bytes of a key as its fingerprint. The last bytes distinguish integers, but not padded
/// strings.
#[test]
fn speculation_is_right_for_every_kind_of_key() {
    ratios::<Key8>("dense", |n| Key8(KeySpace::dense().number(n)));
    ratios::<Key8>("hashed", |n| Key8(KeySpace::scrambled(1).number(n)));
    ratios::<KeyN<32>>("mail addresses", |n| {
        KeyN::<32>::read_from(&KeySpace::addresses().bytes::<32>(n))
    });
}
