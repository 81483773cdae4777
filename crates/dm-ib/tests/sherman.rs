//! An index over real queue pairs: the script of every world, a stress run, and what is refused without an assumption.

#![expect(clippy::print_stdout, reason = "a run says what it assumes and what it did")]

mod common;

use std::fmt;
use std::marker::PhantomData;
use std::time::Instant;

use common::{Cluster, cluster};
use dm_layout::Slotted;
use dm_sim::{CostModel, Sim};
use dm_sync::{Arc, thread};
use dm_testkit::{
    Failure, Family, IndexUnderTest, Job, Model, Op, Rng, Seat, Stress, TestKey, TestWorld, TestWorlds,
    World, apply, by_thread, conform, seats, stress,
};
use dm_verbs::{Capability, Caps, Control, Counters, NodeId, Verbs};
use sherman::{Key8, NodeSize, Options, RangeIndex, Sherman};

/// What line versions need, and nothing else.
const LINES: &[Capability] = &[Capability::LineAtomicity];
/// Everything that locks make use of.
const ORDERS: &[Capability] = &[
    Capability::LineAtomicity,
    Capability::AtomicVsWriteSerialised,
    Capability::CasThenReadInOrder,
    Capability::WriteLinesIncreasing,
];
/// Host memory of a node: registered, so all of it is really there.
const NODE_BYTES: u64 = 48 << 20;

/// A tree that takes memory in small chunks.
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

impl TestWorld for Cluster {
    fn run<J: Job>(&self, seats: &[Seat], job: &Arc<J>) -> Vec<J::Out> {
        let work = |seat: &Seat, numbers: &[usize]| {
            let thread = self.ib.thread().expect("the nodes are up");
            let connect = |_| thread.connect(seat.compute_node).expect("tests have few clients");
            let clients: Vec<_> = numbers.iter().map(connect).collect();
            thread.run(
                numbers
                    .iter()
                    .zip(&clients)
                    .map(|(&number, v)| async move { (number, job.run(number, v).await) }),
            )
        };
        let mut out: Vec<(usize, J::Out)> = thread::scope(|scope| {
            let running: Vec<_> = by_thread(seats)
                .into_iter()
                .map(|(seat, numbers)| scope.spawn(move || work(&seat, &numbers)))
                .collect();
            let joined = running.into_iter().map(|thread| thread.join());
            // The first panic goes on with its own message.
            joined
                .flat_map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        out.sort_unstable_by_key(|(number, _)| *number);
        out.into_iter().map(|(_, out)| out).collect()
    }
}

/// Clusters of this machine's device under some assumptions.
#[derive(Clone, Copy)]
struct Clusters(&'static [Capability]);

impl fmt::Display for Clusters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("real queue pairs")?;
        self.0
            .iter()
            .try_for_each(|capability| write!(f, ", assuming {capability}"))
    }
}

impl TestWorlds for Clusters {
    type World = Cluster;
    fn build(self, _: u16, memory_nodes: u16, _: u64) -> Cluster {
        cluster(usize::from(memory_nodes), NODE_BYTES, self.0)
    }
    /// A round trip over soft-RoCE in an emulator takes a hundred microseconds of the one processor.
    fn thinned(self) -> u64 {
        5
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
    let kind = Clusters(LINES);
    println!("{}", kind.build(1, 1, 0).ib.promises());
    let began = Instant::now();
    conform(&Trees, kind);
    println!("the script took {:.1?}", began.elapsed());
}

/// Operations of a stress run.
const STRESS: u64 = 15_000;

/// Small nodes and values of two words, so that nodes split and values can tear.
fn stressed(assumed: &'static [Capability], seed: u64) {
    let world = Clusters(assumed).build(3, 2, seed);
    println!("{}", world.ib.promises());
    let options = Options {
        node: NodeSize::Bytes(256),
        ..Options::new(16)
    };
    let began = Instant::now();
    let report = stress(
        tree::<Key8>(options),
        &world,
        &seats(3, 6, 8),
        &Stress::new(STRESS, seed),
    )
    .expect_correct();
    println!("{report}\n  in {:.1?}", began.elapsed());
    assert_eq!(report.calls.total(), STRESS);
    assert!(
        report.meter.splits > STRESS / 200
            && report.linearized.0 > STRESS / 40
            && report.verified > STRESS / 15,
        "{report}"
    );
}

#[test]
fn stressed_with_line_atomicity_alone() {
    stressed(LINES, 11);
}

#[test]
fn stressed_with_every_order() {
    stressed(ORDERS, 12);
}

/// Operations of the script that is compared.
const SCRIPT: usize = 3_000;

/// One client's script: what it cost, and under which promises.
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
        let (real, caps) = cluster(2, NODE_BYTES, assumed).run_one(Costs);
        let mut model = CostModel::cx6_roce();
        model.caps = caps;
        let sim = Sim::builder(model)
            .memory_nodes(2)
            .memory_bytes(NODE_BYTES)
            .build()
            .expect("memory");
        let (simulated, sim_caps) = World::from(sim).run_one(Costs);
        // How much fits into a request is the cards' own matter: no verb depends on it.
        let inline_bytes = caps.inline_bytes;
        assert_eq!(
            caps,
            Caps {
                inline_bytes,
                ..sim_caps
            }
        );
        // What goes by the clock goes by each world's own.
        let own = |name: &str| name.starts_with("housekeeping");
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
