//! Worlds for tests, in which clients run jobs.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use std::collections::BTreeMap;

use crate::Cards;
use dm_loopback::Loopback;
use dm_sim::{CostModel, RunEnd, Sim};
use dm_sync::{Arc, Mutex, thread};
use dm_verbs::{CasThenRead, Control, LineOrder, Nanos, Verbs};
use dm_worlds::AnyEndpoint;

/// The compute node and the thread of a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Seat {
    /// The number of its compute node.
    pub compute_node: u16,
    /// Its thread there; all clients with the same seat share it.
    pub thread: u16,
}

/// Returns seats: `threads` threads spread over `compute_nodes`, each with `coroutines` clients.
#[must_use]
pub fn seats(compute_nodes: u16, threads: u16, coroutines: u16) -> Vec<Seat> {
    let seat = |t| Seat {
        compute_node: t % compute_nodes.max(1),
        thread: t / compute_nodes.max(1),
    };
    (0..threads)
        .flat_map(|t| (0..coroutines).map(move |_| seat(t)))
        .collect()
}

/// The work of each of several clients.
pub trait Job: Send + Sync + 'static {
    /// The result of a client.
    type Out: Send + 'static;

    /// Does the work of client number `number` (an index into the seats).
    fn run<V: Verbs + Control>(&self, number: usize, v: &V) -> impl Future<Output = Self::Out>;
}

/// A world that runs jobs. A job finds the memory as the previous one left it.
///
/// ```
/// use dm_loopback::Loopback;
/// use dm_testkit::{Job, Seat, TestWorld, World, seats};
/// use dm_verbs::{Control, NodeId, RemotePtr, Verbs};
/// use std::sync::Arc;
///
/// struct Add(RemotePtr);
/// impl Job for Add {
///     type Out = u64;
///     async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> u64 {
///         v.faa(self.0, 1).await.expect("the node is up")
///     }
/// }
///
/// let world = World::from(Loopback::builder().nodes(1).build().unwrap());
/// let word = RemotePtr::new(NodeId(0), 4096).unwrap();
/// // Two threads on two compute nodes, three clients each.
/// let seats: Vec<Seat> = seats(2, 2, 3);
/// let mut found = TestWorld::run(&world, &seats, &Arc::new(Add(word)));
/// found.sort_unstable();
/// assert_eq!(found, [0, 1, 2, 3, 4, 5]);
/// assert_eq!(world.run_one(Add(word)), 6);
/// ```
pub trait TestWorld {
    /// Runs `job` concurrently on a client for each of `seats`, and returns their results, in order.
    ///
    /// # Panics
    /// Panics if a client panics, or if there cannot be that many clients.
    fn run<J: Job>(&self, seats: &[Seat], job: &Arc<J>) -> Vec<J::Out>;

    /// Runs `job` on a single client.
    ///
    /// # Panics
    /// Panics in the same cases as [`TestWorld::run`].
    fn run_one<J: Job>(&self, job: J) -> J::Out {
        let seat = Seat {
            compute_node: 0,
            thread: 0,
        };
        let mut out = self.run(&[seat], &Arc::new(job));
        out.remove(0)
    }
}

/// A kind of worlds that can be built, such as [`WorldKind`]. Other crates implement it for their own worlds.
pub trait TestWorlds: Copy + fmt::Display {
    /// A world of this kind.
    type World: TestWorld;

    /// Builds a world with these numbers of compute and memory nodes.
    ///
    /// # Panics
    /// Panics if it cannot be built.
    fn build(self, compute_nodes: u16, memory_nodes: u16, seed: u64) -> Self::World;
    /// Returns the number by which long scripts divide their numbers of operations and keys. It is above 1 for worlds
    /// whose verbs are slow, and for those that a test runs several of.
    fn thinned(self) -> u64 {
        1
    }
}

/// A world of this workspace that needs no device. A job is compiled once for both worlds.
#[derive(Debug)]
pub enum World {
    /// Clients are real threads over in-process memory.
    Loopback(Loopback),
    /// Clients run in virtual time on a simulated testbed.
    Sim(Box<Sim>),
}

/// Returns a builder of a loopback for a single client whose verbs are counted. The clock of this loopback does not
/// depend on real time, so no verb is repeated because the thread was suspended.
pub fn counted() -> dm_loopback::Builder {
    Loopback::builder().counted_clock(Nanos::from_micros(1))
}

/// Connects a client of `pool` on this compute node. The client has the same type as the clients of a [`World`].
///
/// Tests that use an index without a [`Job`] use this type too, because an index is compiled once for each type of
/// client.
///
/// # Panics
/// Panics if the client cannot be connected.
pub fn connect(pool: &Loopback, compute_node: u16) -> AnyEndpoint {
    AnyEndpoint::Loopback(pool.connect(compute_node).expect("tests have few clients"))
}

impl From<Loopback> for World {
    fn from(world: Loopback) -> Self {
        Self::Loopback(world)
    }
}
impl From<Sim> for World {
    fn from(world: Sim) -> Self {
        Self::Sim(Box::new(world))
    }
}

impl World {
    /// Runs `job` concurrently on a client for each of `seats`, and returns their results, in order.
    ///
    /// # Panics
    /// Panics if a client panics, no client id is left, or (in the simulator, which can tell) clients wait
    /// for ever.
    pub fn run<J: Job>(&self, seats: &[Seat], job: &Arc<J>) -> Vec<J::Out> {
        let results: Vec<Option<J::Out>> = seats.iter().map(|_| None).collect();
        let results = Arc::new(Mutex::new(results));
        self.run_clients(seats, &|number, v| {
            let (job, results) = (Arc::clone(job), Arc::clone(&results));
            Box::pin(async move {
                let result = job.run(number, &v).await;
                results.with(|results| results[number] = Some(result));
            })
        });
        let results = results.with(core::mem::take).into_iter();
        results
            .map(|result| result.expect("every client of a finished run has ended"))
            .collect()
    }

    /// Runs the clients of a job. The job's type is erased here, because a test program has dozens of jobs, and would
    /// otherwise have this code once for each of them.
    fn run_clients(&self, seats: &[Seat], client: &Client<'_>) {
        match self {
            Self::Loopback(world) => run_loopback(world, seats, client),
            Self::Sim(sim) => run_sim(sim, seats, client),
        }
    }

    /// Runs `job` on a single client.
    ///
    /// # Panics
    /// Panics in the same cases as [`World::run`].
    pub fn run_one<J: Job>(&self, job: J) -> J::Out {
        TestWorld::run_one(self, job)
    }
}

impl TestWorld for World {
    fn run<J: Job>(&self, seats: &[Seat], job: &Arc<J>) -> Vec<J::Out> {
        self.run(seats, job)
    }
}

/// Returns the numbers of each thread's clients.
///
/// It is for implementations of [`TestWorld`]:
/// ```
/// use dm_testkit::{by_thread, seats};
///
/// let seats = seats(1, 2, 2);
/// let threads = by_thread(&seats);
/// assert_eq!((&threads[&seats[0]], &threads[&seats[2]]), (&vec![0, 1], &vec![2, 3]));
/// ```
#[must_use]
pub fn by_thread(seats: &[Seat]) -> BTreeMap<Seat, Vec<usize>> {
    let mut threads: BTreeMap<Seat, Vec<usize>> = BTreeMap::new();
    for (number, seat) in seats.iter().enumerate() {
        threads.entry(*seat).or_default().push(number);
    }
    threads
}

/// Makes the future of the client with this number. The future runs the job, and stores the result.
type Client<'j> = dyn Fn(usize, AnyEndpoint) -> Pin<Box<dyn Future<Output = ()>>> + Sync + 'j;

fn run_loopback(world: &Loopback, seats: &[Seat], client: &Client<'_>) {
    let threads = by_thread(seats);
    let run = |seat: Seat, numbers: &[usize]| {
        let clients = numbers
            .iter()
            .map(|&number| async move { client(number, connect(world, seat.compute_node)).await });
        dm_loopback::run_all(clients);
    };
    thread::scope(|scope| {
        let running: Vec<_> = threads
            .iter()
            .map(|(&seat, numbers)| scope.spawn(move || run(seat, numbers)))
            .collect();
        for thread in running {
            // The first panic continues with its own message.
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}

fn run_sim(sim: &Sim, seats: &[Seat], client: &Client<'_>) {
    for (number, seat) in seats.iter().enumerate() {
        let v = AnyEndpoint::Sim(sim.endpoint(seat.compute_node, seat.thread));
        sim.spawn_task(client(number, v));
    }
    let end = sim.run();
    assert_eq!(end, RunEnd::Finished, "at {} ns of virtual time", sim.now().0);
}

/// The worlds in which an index must work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorldKind {
    /// Loopback with its defaults.
    Loopback,
    /// Loopback with delayed completions, and the lines of READs in any order.
    LoopbackDelays,
    /// Loopback without masked atomics, without on-chip memory, and with READs that overtake a CAS.
    LoopbackBare,
    /// The simulated testbed of Sherman, with compute and memory nodes apart.
    SimCx5,
    /// The simulated testbed of SMART and CHIME, with compute and memory nodes apart.
    SimCx6,
    /// The same testbed, with a compute node and a memory node in each machine.
    SimCx6Colocated,
    /// A simulated testbed with weak cards of this number: see [`Cards::Weak`].
    SimWeak(u64),
}

impl WorldKind {
    /// All kinds, with one of the weak ones.
    pub const ALL: [Self; 7] = [
        Self::Loopback,
        Self::LoopbackDelays,
        Self::LoopbackBare,
        Self::SimCx5,
        Self::SimCx6,
        Self::SimCx6Colocated,
        Self::SimWeak(0),
    ];

    /// Host memory of each memory node in bytes. It is mapped but not touched.
    pub const MEMORY_BYTES: u64 = 1 << 30;

    /// Builds a world with these numbers of compute and memory nodes. The seed of [`WorldKind::SimWeak`] is its own
    /// number instead of `seed`.
    ///
    /// # Panics
    /// Panics if it cannot be built.
    #[must_use]
    pub fn build(self, compute_nodes: u16, memory_nodes: u16, seed: u64) -> World {
        let loopback = Loopback::builder()
            .nodes(memory_nodes)
            .host_bytes(Self::MEMORY_BYTES)
            .seed(seed);
        let sim = |model| {
            Sim::builder(model)
                .compute_nodes(compute_nodes)
                .memory_nodes(memory_nodes)
                .memory_bytes(Self::MEMORY_BYTES)
                .seed(seed)
        };
        let loopback = match self {
            Self::Loopback => loopback,
            Self::LoopbackDelays => loopback.delays(3).read_lines(LineOrder::Any),
            Self::LoopbackBare => loopback
                .masked_atomics(false)
                .chip_bytes(0)
                .cas_then_read(CasThenRead::WholeReadFirst),
            Self::SimCx5 => return build_sim(sim(CostModel::cx5_ib())),
            Self::SimCx6 => return build_sim(sim(CostModel::cx6_roce())),
            Self::SimCx6Colocated => return build_sim(sim(CostModel::cx6_roce()).colocated(true)),
            Self::SimWeak(number) => {
                let bed = Cards::Weak.testbed(number).compute_nodes(compute_nodes);
                let bed = bed.memory_nodes(memory_nodes).memory_bytes(Self::MEMORY_BYTES);
                return build_sim(bed);
            }
        };
        loopback.build().expect("memory for a test's world").into()
    }
}

fn build_sim(builder: dm_sim::SimBuilder) -> World {
    builder.build().expect("memory for a test's world").into()
}

impl TestWorlds for WorldKind {
    type World = World;
    fn build(self, compute_nodes: u16, memory_nodes: u16, seed: u64) -> World {
        self.build(compute_nodes, memory_nodes, seed)
    }

    fn thinned(self) -> u64 {
        match self {
            Self::SimWeak(_) => 2,
            _ => 1,
        }
    }
}

impl fmt::Display for WorldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::SimWeak(number) = self {
            return write!(f, "simulated weak cards number {number}");
        }
        f.pad(match self {
            Self::SimWeak(_) => "",
            Self::Loopback => "loopback",
            Self::LoopbackDelays => "loopback with delays and READ lines in any order",
            Self::LoopbackBare => "loopback without masked atomics, on-chip memory and CAS→READ order",
            Self::SimCx5 => "simulated cx5-ib",
            Self::SimCx6 => "simulated cx6-roce",
            Self::SimCx6Colocated => "simulated cx6-roce, colocated",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dm_verbs::{NodeId, RemotePtr};

    /// A job in which every client adds to one word and reports its number and its compute node.
    struct Adds;

    impl Job for Adds {
        type Out = (usize, u16);
        async fn run<V: Verbs + Control>(&self, number: usize, v: &V) -> (usize, u16) {
            let word = RemotePtr::new(NodeId(1), 4096).expect("in range");
            for _ in 0..10 {
                v.faa(word, 1).await.expect("the node is up");
            }
            (number, v.compute_node())
        }
    }

    struct Sum;

    impl Job for Sum {
        type Out = u64;
        async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> u64 {
            v.word(RemotePtr::new(NodeId(1), 4096).expect("in range"))
                .await
                .expect("the node is up")
        }
    }

    #[test]
    fn every_world_runs_every_client_where_it_sits() {
        let seats = seats(2, 4, 3);
        assert_eq!(seats.len(), 12);
        for kind in WorldKind::ALL {
            let world = kind.build(2, 2, 7);
            let out = world.run(&seats, &Arc::new(Adds));
            for (i, (number, node)) in out.into_iter().enumerate() {
                assert_eq!((number, node), (i, seats[i].compute_node), "{kind}");
            }
            assert_eq!(
                world.run_one(Sum),
                120,
                "{kind}: the next job finds what the first one left"
            );
        }
    }
}
