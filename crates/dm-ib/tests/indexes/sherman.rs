//! Runs Sherman over real queue pairs. Checks that it refuses to run without assumptions, and compares a client's
//! costs with those in the simulator.

use std::marker::PhantomData;

use dm_layout::Slotted;
use dm_sim::{CostModel, Sim};
use dm_testkit::{Failure, Family, IndexUnderTest, Job, Model, Op, Rng, TestKey, TestWorld, World, apply};
use dm_verbs::{Caps, Control, Counters, NodeId, Verbs};
use sherman::{Key8, NodeSize, Options, RangeIndex, Sherman};

use crate::common::cluster;
use crate::world::{LINES, NODE_BYTES, ORDERS, passes, stressed};

/// Sherman trees that take memory in small chunks.
struct Tree<K>(Options, PhantomData<fn() -> K>);

fn tree<K>(options: Options) -> Tree<K> {
    let options = Options {
        chunk_bytes: 1 << 18,
        ..options
    };
    Tree(options, PhantomData)
}

impl<K: TestKey> IndexUnderTest for Tree<K> {
    type Key = K;
    type Handle = Sherman<K, Slotted<K>>;
    fn value_bytes(&self) -> usize {
        self.0.value_bytes
    }
    async fn open<V: Verbs + Control>(&self, v: &V) -> Result<Self::Handle, Failure> {
        Ok(Sherman::create_or_open(v, &self.0).await?)
    }
    fn client<'h, V: Verbs + Control>(handle: &'h Self::Handle, v: &'h V) -> impl RangeIndex<Key = K> {
        handle.client(v)
    }
}

struct Trees;

impl Family for Trees {
    type Index<K: TestKey> = Tree<K>;
    fn index<K: TestKey>(&self, value_bytes: usize) -> Tree<K> {
        tree(Options::new(value_bytes))
    }
}

#[test]
fn without_an_assumption_the_start_is_refused_by_name() {
    let cluster = cluster(1, NODE_BYTES, &[]);
    let thread = cluster.ib.thread().unwrap();
    let v = thread.connect(0).unwrap();
    let opened = thread.run([Sherman::<Key8>::create_or_open(
        &v,
        &tree::<Key8>(Options::new(8)).0,
    )]);
    let refused = opened.into_iter().next().unwrap().unwrap_err().to_string();
    println!("{refused}");
    assert!(
        refused.contains("64-byte line atomicity, which this world does not promise"),
        "{refused}"
    );
    assert!(cluster.ib.promises().assumed.is_empty());
}

#[test]
fn conforms() {
    passes(&Trees);
}

/// Returns a tree with small nodes, so that nodes split. Values have two words, so that they can tear.
fn small() -> Tree<Key8> {
    tree(Options {
        node: NodeSize::Bytes(256),
        ..Options::new(16)
    })
}

#[test]
fn stressed_with_line_atomicity_alone() {
    stressed(small(), LINES, 11, 30);
}

#[test]
fn stressed_with_every_order() {
    stressed(small(), ORDERS, 12, 30);
}

/// Number of operations of the script whose costs are compared.
const SCRIPT: usize = 3_000;

/// A job that runs the script with one client, and returns its costs and the capabilities of its world.
struct Costs;

impl Job for Costs {
    type Out = (Counters, Caps);
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Self::Out {
        let options = Options {
            node: NodeSize::Bytes(256),
            ..Options::new(16)
        };
        let handle = tree::<Key8>(options);
        let handle = handle.open(v).await.expect("a new pool");
        let index = Tree::<Key8>::client(&handle, v);
        let mut model = Model::new(16);
        let mut rng = Rng::new(5, 5);
        let before = v.meter().counters();
        for i in 0..SCRIPT {
            let op = Op::draw(&mut rng, 600);
            apply(&index, &mut model, &op)
                .await
                .unwrap_or_else(|e| panic!("operation {i}: {e}"));
        }
        (v.meter().counters() - before, v.caps(NodeId(0)))
    }
}

#[test]
fn a_client_costs_what_it_costs_in_the_simulator() {
    for assumed in [LINES, ORDERS] {
        let measure = || cluster(2, NODE_BYTES, assumed).run_one(Costs);
        let (mut real, caps) = measure();
        let mut model = CostModel::cx6_roce();
        model.caps = caps;
        let sim = Sim::builder(model)
            .memory_nodes(2)
            .memory_bytes(NODE_BYTES)
            .build()
            .expect("memory");
        let (simulated, sim_caps) = World::from(sim).run_one(Costs);
        // The number of inline bytes depends on the card, but the verbs do not depend on this number.
        let inline_bytes = caps.inline_bytes;
        assert_eq!(
            caps,
            Caps {
                inline_bytes,
                ..sim_caps
            }
        );
        // Times, and counts that depend on the clock, differ between worlds.
        let own = |name: &str| name.starts_with("housekeeping") || name.ends_with("_ns");
        let differs = |real: &Counters| {
            let mut pairs = real.named().zip(simulated.named());
            pairs.any(|((name, real), (_, simulated))| !own(name) && real != simulated)
        };
        // If the thread loses the processor in the middle of a READ, the READ takes longer than its version window and
        // is repeated.
        for _ in 0..3 {
            if differs(&real) {
                (real, _) = measure();
            }
        }
        for ((name, real), (_, simulated)) in real.named().zip(simulated.named()) {
            assert!(
                own(name) || real == simulated,
                "{name}: {real}, simulated {simulated}"
            );
        }
        println!("{real:?}");
        assert!(
            real.splits > 30 && real.verbs() > 5_000 && real.round_trips > 4_000,
            "{real:?}"
        );
    }
}
