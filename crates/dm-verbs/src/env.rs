//! The environment of a client: time, randomness, CPU time, pauses, and access to the state that the threads
//! of a compute node share.

use core::fmt;
use core::future::Future;
use core::ops::{Add, Sub};
use core::pin::Pin;
use core::task::{Context, Poll};

use crate::Meter;

/// A point in time, or a duration, in nanoseconds. Each world chooses the origin of its clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Converts microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Self(us * 1_000)
    }
    /// Converts milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, o: Self) -> Self {
        Self(self.0.saturating_add(o.0))
    }
}
impl Sub for Nanos {
    type Output = Self;
    /// Saturates at zero.
    fn sub(self, o: Self) -> Self {
        Self(self.0.saturating_sub(o.0))
    }
}

/// The id of a client, which is one coroutine that posts verbs. No two clients of the cluster have the same id at the
/// same time. The word of a held lock contains the id of the client that took it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u16);

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {}", self.0)
    }
}

/// A step of a client on state that the threads of one compute node share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalStep {
    /// The client is about to access shared state, such as a queue, a table or a cache.
    Section,
    /// Another thread has woken the client and handed something over. The simulator charges the cost of a hand-off
    /// between cores.
    HandOff,
}

/// The attempts of retry loops. Only the explorer implements these methods; every other world uses the defaults.
pub trait Attempts {
    /// Marks the start of a retry loop whose failed attempts leave the client's state unchanged. Returns the mark for
    /// [`Attempts::rewind`].
    fn mark(&self) -> u64 {
        0
    }
    /// Reports that an attempt has failed, and that the client's state is the same as at `mark`. **Soundness depends
    /// on this claim**, so only [`crate::Retry`] calls this.
    fn rewind(&self, _mark: u64) {}
    /// Returns how many attempts a loop with the budget `attempts` may make. The explorer returns `u32::MAX` if it
    /// rewinds failed attempts, and otherwise a number that its knobs limit.
    fn budget(&self, attempts: u32) -> u32 {
        attempts
    }
}

/// The environment of protocol code.
///
/// ```
/// use dm_verbs::{Env, LocalStep, Nanos};
///
/// /// Waits until `ready` returns true for shared state of the compute node, a millisecond at most.
/// async fn wait<E: Env>(env: &E, ready: impl Fn() -> bool) -> bool {
///     let since = env.now();
///     loop {
///         env.local(LocalStep::Section).await;
///         if ready() || env.elapsed(since, Nanos::from_millis(1)) {
///             return ready();
///         }
///         env.pause().await;
///     }
/// }
/// ```
pub trait Env: Attempts {
    /// Returns this client's id.
    fn client(&self) -> ClientId;
    /// Returns the compute node on which the client runs.
    fn compute_node(&self) -> u16;
    /// Reads the clock, for measurements only. Protocol code calls [`Env::elapsed`] instead.
    fn now(&self) -> Nanos;
    /// Returns whether at least `limit` has passed since `since`. Protocol code observes time in no other way, so the
    /// explorer may return either result.
    fn elapsed(&self, since: Nanos, limit: Nanos) -> bool {
        self.now() - since >= limit
    }
    /// Returns the next number of this client's random stream `stream`.
    fn rng(&self, stream: u32) -> u64;
    /// Returns this client's meter.
    fn meter(&self) -> &Meter;

    /// Lets other clients run until memory or state that this client has read may have changed. Retry loops must wait
    /// only in this way.
    fn pause(&self) -> Pause<'_, Self>
    where
        Self: Sized,
    {
        Pause { env: self, state: 0 }
    }
    /// Charges `work` of client CPU time. Only the simulator implements this; in other worlds it does nothing.
    fn charge(&self, work: Nanos) -> Charge<'_, Self>
    where
        Self: Sized,
    {
        Charge {
            env: self,
            work,
            until: None,
        }
    }
    /// Await this before each access to state that the threads of a compute node share.
    fn local(&self, step: LocalStep) -> Step<'_, Self>
    where
        Self: Sized,
    {
        Step {
            env: self,
            step,
            state: 0,
        }
    }

    /// Implements [`Env::pause`] for a world. `state` is 0 at the first poll; later the world may store anything in
    /// it.
    fn poll_pause(&self, state: &mut u64, cx: &mut Context<'_>) -> Poll<()>;
    /// Implements [`Env::local`] for a world; `state` is 0 at the first poll.
    fn poll_local(&self, _step: LocalStep, _state: &mut u64, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
    /// Implements [`Env::charge`] for a world. `until` is `None` at the first poll, and afterwards the time at which
    /// the work will be done.
    fn poll_charge(&self, _work: Nanos, _until: &mut Option<Nanos>, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

/// See [`Env::pause`].
#[derive(Debug)]
#[must_use = "a pause does nothing unless awaited"]
pub struct Pause<'e, E> {
    env: &'e E,
    state: u64,
}

impl<E: Env> Future for Pause<'_, E> {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.env.poll_pause(&mut this.state, cx)
    }
}

/// See [`Env::charge`].
#[derive(Debug)]
#[must_use = "CPU is charged only when this is awaited"]
pub struct Charge<'e, E> {
    env: &'e E,
    work: Nanos,
    until: Option<Nanos>,
}

impl<E: Env> Future for Charge<'_, E> {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.env.poll_charge(this.work, &mut this.until, cx)
    }
}

/// See [`Env::local`].
#[derive(Debug)]
#[must_use = "a step is taken only when awaited"]
pub struct Step<'e, E> {
    env: &'e E,
    step: LocalStep,
    state: u64,
}

impl<E: Env> Future for Step<'_, E> {
    type Output = ();
    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.env.poll_local(this.step, &mut this.state, cx)
    }
}
