//! Runs many clients on one index while compute nodes die, and checks every answer.
//!
//! ```text
//!   compute node   0 ───────────✗            a dead client's keys, its script and their expected contents pass on
//!                  1 ──────────────────✗     to a client of a spare compute node, which begins later
//!                  2 ─────────────────────────────
//!   spare          3            · · ──────────────
//!                  4                   · ─────────
//! ```

use core::future::{Future, pending, poll_fn};
use core::pin::pin;
use core::task::{Poll, Waker};

use dm_history::{KvMap, Limits, Verdict, check};
use dm_index::IndexError;
use dm_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use dm_sync::{Arc, Mutex};
use dm_verbs::{Control, ControlReply, ControlRequest, Counters, Env, Nanos, NodeId, Verbs};

use crate::any_index::AnyIndex;
use crate::stress::{Done, HotHistory, Shunned};
use crate::stress_client::{Client, Past, load, verify};
use crate::{Death, Doom, Failure, IndexUnderTest, Job, Mortal, Report, Rng, Seat, Stress, TestWorld};

/// The moment of a death.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// At any request of any of the compute node's clients.
    AnyRequest,
    /// While one of the compute node's clients is between two operations. A client that is alone on its compute node
    /// holds no lock then.
    BetweenOperations,
}

/// Size and shape of a run whose compute nodes die.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kills {
    /// The operations and keys of the run. The number of clients is the product of `compute_nodes`, `threads` and
    /// `coroutines`.
    pub script: Stress,
    /// Number of compute nodes that are killed, and replaced. With [`Moment::AnyRequest`], about a quarter of these
    /// compute nodes is suspended for up to three leases instead. A suspended compute node that the others have
    /// expelled gets errors, and is replaced too.
    pub kills: u16,
    /// Number of compute nodes that live at the same time, except while some are being replaced.
    pub compute_nodes: u16,
    /// Number of threads of each compute node.
    pub threads: u16,
    /// Number of clients of each thread.
    pub coroutines: u16,
    /// The moments of the deaths.
    pub moment: Moment,
    /// Whether fences work. A run without working fences must fail, because suspended clients continue to write to
    /// nodes whose locks other clients have taken.
    pub fences: bool,
    /// The world's lease. A compute node is replaced after at most twice that time.
    pub lease: Nanos,
}

/// Number of spare compute nodes that replace compute nodes which are expelled although they live.
const MORE_SPARES: u16 = 16;
/// One in this many compute nodes is suspended for up to three leases instead of killed.
const SLEEPS: u64 = 4;

impl Kills {
    /// Makes a run of `script` with `kills` deaths of compute nodes. Three compute nodes live at a time, each with two
    /// threads of two clients.
    #[must_use]
    pub const fn new(script: Stress, kills: u16, lease: Nanos) -> Self {
        Self {
            script,
            kills,
            compute_nodes: 3,
            threads: 2,
            coroutines: 2,
            moment: Moment::AnyRequest,
            fences: true,
            lease,
        }
    }

    /// Returns the number of compute nodes that the world must have.
    #[must_use]
    pub const fn compute_nodes_in_all(&self) -> u16 {
        self.compute_nodes + self.kills + MORE_SPARES
    }

    const fn group_size(&self) -> usize {
        self.threads as usize * self.coroutines as usize
    }

    const fn clients(&self) -> usize {
        self.compute_nodes as usize * self.group_size()
    }

    /// Returns the seats of all clients, spare ones included.
    fn seats(&self) -> Vec<Seat> {
        let threads = |compute_node| (0..self.threads).map(move |thread| Seat { compute_node, thread });
        (0..self.compute_nodes_in_all())
            .flat_map(threads)
            .flat_map(|seat| (0..self.coroutines).map(move |_| seat))
            .collect()
    }
}

/// Checks an index after a run, when all its clients have ended.
pub trait Checker<I: IndexUnderTest>: Send + Sync + 'static {
    /// Returns the faults that it finds.
    fn check<V: Verbs + Control>(&self, handle: &I::Handle, v: &V) -> impl Future<Output = Vec<String>>;
}

/// A checker that does nothing, for runs that check only the answers.
#[derive(Clone, Copy, Debug)]
pub struct NoChecker;

impl<I: IndexUnderTest> Checker<I> for NoChecker {
    async fn check<V: Verbs + Control>(&self, _: &I::Handle, _: &V) -> Vec<String> {
        Vec::new()
    }
}

/// A checker that sweeps the index and returns the faults that remain.
#[derive(Clone, Copy, Debug)]
pub struct SweepChecker {
    /// Maximum number of bytes that may be lost after the sweep.
    pub leaked_max: u64,
}

impl SweepChecker {
    /// Makes the checker of a run with this number of deaths. A sweep cannot give back the ends of chunks that no block
    /// fills. It cannot give back a chunk of 64 KiB or more either, if a compute node died between fetching and
    /// recording the chunk. In long runs of Marlin, one death in about 30 loses such a chunk. The checker admits a loss
    /// of 64 KiB per 16 deaths, and of at least 256 KiB.
    #[must_use]
    pub fn after(deaths: u16) -> Self {
        Self {
            leaked_max: (256 << 10).max(u64::from(deaths) * (4 << 10)),
        }
    }
}

impl<I: IndexUnderTest> Checker<I> for SweepChecker {
    async fn check<V: Verbs + Control>(&self, handle: &I::Handle, v: &V) -> Vec<String> {
        match I::sweep(handle, v, self.leaked_max).await {
            Ok(faults) => faults,
            Err(e) => vec![format!("the sweep failed: {e}")],
        }
    }
}

/// A value for which several clients wait.
struct Gate<T>(Mutex<(Option<T>, Vec<Waker>)>);

impl<T: Clone> Gate<T> {
    fn new() -> Self {
        Self(Mutex::new((None, Vec::new())))
    }

    /// Sets the value if it is not set yet, and wakes the waiting clients.
    fn open(&self, value: T) {
        let waiting = self.0.with(|(is, waiting)| {
            is.get_or_insert(value);
            core::mem::take(waiting)
        });
        waiting.into_iter().for_each(Waker::wake);
    }

    async fn passed(&self) -> T {
        poll_fn(|cx| {
            self.0.with(|(is, waiting)| match is {
                Some(value) => Poll::Ready(value.clone()),
                None => {
                    waiting.push(cx.waker().clone());
                    Poll::Pending
                }
            })
        })
        .await
    }
}

/// The clients of a compute node.
struct Group {
    doom: Doom,
    /// The number of clients that the compute node gets when it begins; 0 if the compute node is not needed.
    begins: Gate<usize>,
    /// Whether the clients die at the end of an operation.
    rests: AtomicBool,
    state: Mutex<GroupState>,
}

#[derive(Default)]
struct GroupState {
    /// The states of the dead clients that this compute node takes over, by place.
    takes: Vec<Option<Past>>,
    /// The states of this compute node's dead clients, for their successors.
    left: Vec<Past>,
    /// The number of clients with which the compute node began.
    at_work: usize,
    /// The number of these clients that have ended or died.
    gone: usize,
}

/// Decides when each compute node dies, and which spare compute node takes over its clients.
struct Deaths {
    kills: Kills,
    groups: Vec<Group>,
    /// The number of operations that were answered.
    ended: AtomicU64,
    course: Mutex<Course>,
}

struct Course {
    rng: Rng,
    killed: u16,
    /// The compute node that will die next, and whether it is suspended instead.
    armed: Option<(usize, bool)>,
    next_spare: usize,
    /// The number of clients whose work is not done.
    unfinished: usize,
    died: u64,
    suspended: u64,
    expelled: u64,
}

impl Deaths {
    fn new(kills: Kills) -> Self {
        let group = |_| Group {
            doom: match kills.fences {
                true => Doom::default(),
                false => Doom::powerless(),
            },
            begins: Gate::new(),
            rests: AtomicBool::new(false),
            state: Mutex::default(),
        };
        let this = Self {
            kills,
            groups: (0..kills.compute_nodes_in_all()).map(group).collect(),
            ended: AtomicU64::new(0),
            course: Mutex::new(Course {
                rng: Rng::new(kills.script.seed, u64::MAX),
                killed: 0,
                armed: None,
                next_spare: usize::from(kills.compute_nodes),
                unfinished: kills.clients(),
                died: 0,
                suspended: 0,
                expelled: 0,
            }),
        };
        let first = this.groups.iter().take(usize::from(kills.compute_nodes));
        for group in first {
            let takes = (0..kills.group_size()).map(|_| None).collect();
            group.begin(takes);
        }
        this
    }

    /// Counts an operation that was answered, and plans the next death if it is due.
    fn operation_ended(&self) {
        // Relaxed: the count determines only the time of the next death.
        let ended = self.ended.fetch_add(1, Ordering::Relaxed) + 1;
        let kills = &self.kills;
        self.course.with(|course| {
            let due =
                |nth: u16| ended * (u64::from(kills.kills) + 2) >= kills.script.operations * u64::from(nth);
            let armed = course.armed.filter(|(armed, _)| self.groups[*armed].is_to_die());
            if let Some((armed, sleeps)) = armed {
                if self.groups[armed].works() {
                    return;
                }
                // The compute node's clients ended before it could die.
                course.killed -= 1;
                course.suspended -= u64::from(sleeps);
            }
            course.armed = None;
            if course.killed == kills.kills || !due(course.killed + 1) {
                return;
            }
            let living = (0..self.groups.len()).filter(|g| self.groups[*g].works());
            let living: Vec<usize> = living.filter(|g| self.groups[*g].doom.is_calm()).collect();
            let Some(victim) = living.get(course.rng.below(living.len().max(1) as u64) as usize) else {
                return;
            };
            let group = &self.groups[*victim];
            let sleeps = kills.moment == Moment::AnyRequest && course.rng.below(SLEEPS) == 0;
            course.killed += 1;
            course.suspended += u64::from(sleeps);
            course.armed = Some((*victim, sleeps));
            match kills.moment {
                Moment::BetweenOperations => group.rests.store(true, Ordering::Relaxed), // as in `rest`
                Moment::AnyRequest => group.doom.arm(Death {
                    requests: course.rng.below(16 * kills.group_size() as u64),
                    lines: course.rng.below(8),
                    loses_posted: course.rng.below(2) == 0,
                    sleeps: sleeps.then(|| Nanos(course.rng.below(3 * kills.lease.0))),
                }),
            }
        });
    }

    /// Records that a client of `group` has ended, or has died. If it has died, `left` is the state for its successor.
    fn gone(&self, group: usize, left: Option<Past>) {
        let finished = usize::from(left.is_none());
        let heirs = self.groups[group].state.with(|state| {
            state.left.extend(left);
            state.gone += 1;
            match state.gone == state.at_work {
                true => core::mem::take(&mut state.left),
                false => Vec::new(),
            }
        });
        let (spare, over) = self.course.with(|course| {
            course.unfinished -= finished;
            let spare = (!heirs.is_empty()).then(|| {
                course.died += 1;
                course.next_spare += 1;
                course.next_spare - 1
            });
            (spare, course.unfinished == 0)
        });
        if let Some(spare) = spare {
            let spare = self.groups.get(spare);
            let spare = spare.expect("more compute nodes died than there are spare ones");
            spare.begin(heirs.into_iter().map(Some).collect());
        }
        if over {
            self.groups.iter().for_each(|group| group.begins.open(0));
        }
    }
}

impl Group {
    fn begin(&self, takes: Vec<Option<Past>>) {
        let clients = takes.len();
        self.state.with(|state| {
            state.at_work = clients;
            state.takes = takes;
        });
        self.begins.open(clients);
    }

    /// Returns whether the compute node has a planned death or suspension that has not happened yet.
    fn is_to_die(&self) -> bool {
        let rests = self.rests.load(Ordering::Relaxed); // as in `rest`
        self.doom.is_armed() || rests && !self.doom.is_dead()
    }

    /// Returns whether the compute node lives and some of its clients have work to do.
    fn works(&self) -> bool {
        !self.doom.is_dead() && self.state.with(|state| state.gone < state.at_work)
    }
}

/// A client's access to the plan of deaths, for its script.
#[derive(Clone, Copy)]
pub(crate) struct Life<'r> {
    deaths: &'r Deaths,
    group: usize,
}

impl Life<'_> {
    fn doom(&self) -> &Doom {
        &self.deaths.groups[self.group].doom
    }

    /// Returns at once if the client lives. If it is dead, this never returns.
    pub(crate) async fn lives(&self) {
        if self.doom().is_dead() {
            pending().await
        }
    }

    /// Kills the compute node now, between two operations, if its death is planned. If the client is dead, this never
    /// returns.
    pub(crate) async fn rest(&self) {
        // Relaxed: the flag orders no other data, and the clients may see it late.
        if self.deaths.groups[self.group].rests.load(Ordering::Relaxed) {
            self.doom().strike();
        }
        self.lives().await;
    }

    /// Kills the compute node, because the other members have expelled it. This never returns.
    pub(crate) async fn expelled(&self) {
        if !self.doom().is_dead() {
            self.deaths.course.with(|course| course.expelled += 1);
            self.doom().strike();
        }
        self.lives().await;
    }

    /// Returns whether the compute node was suspended, so that it may have been expelled.
    pub(crate) fn was_suspended(&self) -> bool {
        self.doom().has_slept()
    }

    pub(crate) fn operation_ended(&self) {
        self.deaths.operation_ended();
    }

    /// Runs `work`, which only reads, for at most half a lease. Returns `None` if it has not ended by then.
    pub(crate) async fn within<E: Env, T>(&self, env: &E, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let since = env.now();
        let longest = Nanos(self.deaths.kills.lease.0 / 2);
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if env.elapsed(since, longest) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }
}

struct Run<I: IndexUnderTest> {
    index: Arc<I>,
    deaths: Deaths,
    /// The handle of each compute node.
    handles: Vec<Gate<Result<Arc<I::Handle>, String>>>,
    begun: Vec<AtomicU32>,
    shunned: Shunned,
}

impl<I: IndexUnderTest> Run<I> {
    /// Opens the index, or waits until another client of the compute node has done so.
    async fn open<V: Verbs + Control>(
        &self,
        group: usize,
        place: usize,
        v: &V,
    ) -> Result<Arc<I::Handle>, String> {
        let gate = &self.handles[group];
        if place == 0 {
            let opened = self.index.open(v).await;
            let opened = opened.map(Arc::new).map_err(|e: Failure| e.to_string());
            Life {
                deaths: &self.deaths,
                group,
            }
            .lives()
            .await;
            gate.open(opened);
        }
        gate.passed().await
    }

    /// Waits for a random time of less than two leases. So the wait may end before or after the other members notice
    /// the death.
    async fn wait<V: Verbs>(&self, v: &V) {
        let kills = &self.deaths.kills;
        let wait = Nanos(
            self.deaths
                .course
                .with(|course| course.rng.below(2 * kills.lease.0)),
        );
        let since = v.now();
        while !v.elapsed(since, wait) {
            // In the simulator, this is one long step.
            v.charge(wait).await;
            v.pause().await;
        }
    }
}

impl<I: IndexUnderTest> Job for Run<I> {
    type Out = Option<Done>;
    async fn run<V: Verbs + Control>(&self, number: usize, v: &V) -> Option<Done> {
        let kills = &self.deaths.kills;
        let (group, place) = (number / kills.group_size(), number % kills.group_size());
        let here = &self.deaths.groups[group];
        if place >= here.begins.passed().await {
            return None;
        }
        if group >= usize::from(kills.compute_nodes) && place == 0 {
            self.wait(v).await;
        }
        let past = here.state.with(|state| state.takes[place].take());
        let me = past.as_ref().map_or(number, |past| past.me);
        let mortal = Mortal::new(v, &here.doom);
        let life = Life {
            deaths: &self.deaths,
            group,
        };
        let shared = (&self.begun[..], &self.shunned);
        let client = Client::new(&kills.script, shared, me, &mortal, self.index.value_bytes());
        let mut client = client.succeeding(past, life);
        let work = async {
            match self.open(group, place, &mortal).await {
                Ok(handle) => client.run(&AnyIndex::of::<I>(&handle, &mortal)).await,
                Err(_) if life.was_suspended() => life.expelled().await,
                Err(e) => client.fails(&e),
            }
        };
        let ended = mortal.unless_dead(work).await;
        if ended.is_none() {
            self.deaths.gone(group, Some(client.killed()));
            return None;
        }
        let mut done = client.done();
        done.report.meter += v.meter().counters();
        self.deaths.gone(group, None);
        Some(done)
    }
}

struct Load<I: IndexUnderTest>(Arc<I>, Stress);

impl<I: IndexUnderTest> Job for Load<I> {
    type Out = Result<(), String>;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Self::Out {
        let handle = self.0.open(v).await.map_err(|e| e.to_string())?;
        if self.1.preload {
            let loaded = load(&AnyIndex::of::<I>(&handle, v), &self.1).await;
            loaded.map_err(|e: IndexError| e.to_string())?;
        }
        Ok(())
    }
}

/// A client that joins at the end and checks the whole index.
struct Look<I, C> {
    index: Arc<I>,
    stress: Stress,
    own: Vec<Vec<u32>>,
    checker: C,
}

impl<I: IndexUnderTest, C: Checker<I>> Job for Look<I, C> {
    type Out = (u64, Report);
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> (u64, Report) {
        let mut report = Report::default();
        let handle = match self.index.open(v).await {
            Ok(handle) => handle,
            Err(e) => {
                report.note(|| format!("opening the index again: {e}"));
                return (0, report);
            }
        };
        let verified = verify(
            &AnyIndex::of::<I>(&handle, v),
            &self.stress,
            &self.own,
            &mut report,
        )
        .await;
        for fault in self.checker.check(&handle, v).await {
            report.note(|| format!("checker: {fault}"));
        }
        for node in (0..v.memory_nodes()).map(NodeId) {
            match v.call(ControlRequest::Describe { node }).await {
                Ok(ControlReply::Region(region)) => report.killed.allocated += region.used,
                other => report.note(|| format!("{node}: {other:?}")),
            }
        }
        (verified, report)
    }
}

/// Runs clients over a new index in `world`, kills and replaces compute nodes, and checks every answer. At the end,
/// checks the content of the index, and calls `checker`.
///
/// A write that was not answered may have been applied or not. The client's successor reads the key, and from then on
/// the key must have the content that was found. If the key is hot or cannot be read in time, the successor writes it
/// instead. In the history of a hot key, the unanswered write never ends. Every operation of a client that is neither
/// killed nor expelled must succeed.
///
/// # Panics
/// Panics if `world` has fewer compute nodes than [`Kills::compute_nodes_in_all`], or if more compute nodes end than
/// there are spare ones.
pub fn stress_with_kills<I: IndexUnderTest, C: Checker<I>>(
    index: I,
    world: &impl TestWorld,
    kills: &Kills,
    checker: C,
) -> Report {
    let index = Arc::new(index);
    let script = kills.script;
    let clients = kills.clients();
    let mut report = Report {
        title: format!(
            "{clients} clients, {} kills, seed {:#x}",
            kills.kills, script.seed
        ),
        ..Report::default()
    };
    if let Err(e) = world.run_one(Load(Arc::clone(&index), script)) {
        report.note(|| format!("loading: {e}"));
        return report;
    }
    let run = Arc::new(Run {
        index: Arc::clone(&index),
        deaths: Deaths::new(*kills),
        handles: (0..kills.compute_nodes_in_all()).map(|_| Gate::new()).collect(),
        begun: (0..clients).map(|_| AtomicU32::new(0)).collect(),
        shunned: Shunned::default(),
    });
    let mut hot = HotHistory::new();
    let mut own = vec![Vec::new(); clients];
    for (me, done) in world
        .run(&kills.seats(), &run)
        .into_iter()
        .flatten()
        .map(|done| (done.me, done))
    {
        report.absorb(done.report);
        hot.append(done.hot);
        own[me] = done.own;
    }
    run.deaths.course.with(|course| {
        report.killed.nodes = course.died;
        report.killed.suspended = course.suspended;
        report.killed.expelled = course.expelled;
    });
    match check(&KvMap::empty(), &hot, Limits::default()) {
        Verdict::Linearizable(passed) => report.linearized = (passed.operations as u64, passed.keys as u64),
        other => {
            let mut found = Report::default();
            found.note(|| format!("hot keys: {other}"));
            report.absorb(found);
        }
    }
    let (verified, last) = world.run_one(Look {
        index,
        stress: script,
        own,
        checker,
    });
    report.verified = verified;
    // The verbs of the final check are not part of the run.
    report.absorb(Report {
        meter: Counters::default(),
        ..last
    });
    report
}
