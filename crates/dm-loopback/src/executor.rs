//! Runs coroutines: one on a thread, or many on one thread.
//!
//! Futures need not be `Send`; wakers may be called from any thread. A thread parks while all of its coroutines wait.
//! A coroutine that woke itself (in a pause, or because of a delayed completion) runs again after the others. From
//! time to time the thread first yields its processor, because the coroutine may wait for a client on a thread that
//! does not run.

use core::cell::Cell;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::task::Wake;

use dm_sync::Mutex;
use dm_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use dm_sync::thread::{self, Thread};

// `Wake` requires std's `Arc`, even under loom.
use std::sync::Arc as StdArc;

/// Counts the turns in which a thread could yield its processor. It really yields in every [`TURNS_PER_YIELD`]th turn.
#[derive(Default)]
struct Turns(u32);

/// This number of turns takes a fraction of a time slice. On a busy machine, a yield costs one time slice of every
/// other thread, and most waits are shorter, or are for a coroutine of the same thread. A model checker must see every
/// turn, so there the number is 1.
const TURNS_PER_YIELD: u32 = dm_sync::scaled(1024, 1) as u32;

impl Turns {
    fn pass(&mut self) {
        self.0 = self.0.wrapping_add(1);
        if self.0.is_multiple_of(TURNS_PER_YIELD) {
            thread::yield_now();
        }
    }
}

/// Wakes one parked thread.
struct Parker {
    thread: Thread,
    woken: AtomicBool,
}

impl Parker {
    fn new() -> Self {
        Self {
            thread: thread::current(),
            woken: AtomicBool::new(false),
        }
    }

    fn unpark(&self) {
        // Release: pairs with Acquire in `take`, so that the next poll sees all that the caller of the waker did
        // before.
        if !self.woken.swap(true, Ordering::Release) {
            self.thread.unpark();
        }
    }

    /// Returns whether this thread was woken since the last call.
    fn take(&self) -> bool {
        // Acquire: pairs with Release in `unpark`.
        self.woken.swap(false, Ordering::Acquire)
    }

    /// Waits until this thread is woken. Returns at once if this has already happened.
    fn park(&self, turns: &mut Turns) {
        if self.take() {
            turns.pass();
            return;
        }
        // `unpark` sets the flag before it provides the token. So even if other code has consumed the token, this
        // thread finds the flag.
        while !self.take() {
            thread::park();
        }
    }
}

impl Wake for Parker {
    fn wake(self: StdArc<Self>) {
        self.unpark();
    }
    fn wake_by_ref(self: &StdArc<Self>) {
        self.unpark();
    }
}

std::thread_local! {
    static TURNS: Cell<u32> = const { Cell::new(0) };
}

fn begin_turn() {
    TURNS.set(TURNS.get().wrapping_add(1));
}

/// Returns the number of polls by the executors of this thread. The count wraps around.
///
/// ```
/// use dm_loopback::{block_on, turns};
///
/// let before = turns();
/// block_on(async {});
/// assert_eq!(turns() - before, 1, "nothing to wait for");
/// ```
pub fn turns() -> u32 {
    TURNS.get()
}

/// Runs `future` to its end on this thread. The thread parks while the future waits.
///
/// ```
/// assert_eq!(dm_loopback::block_on(async { 6 * 7 }), 42);
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = core::pin::pin!(future);
    let parker = StdArc::new(Parker::new());
    let waker = Waker::from(StdArc::clone(&parker));
    let mut cx = Context::from_waker(&waker);
    let mut turns = Turns::default();
    loop {
        begin_turn();
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        parker.park(&mut turns);
    }
}

/// The coroutines of one thread that must be polled.
struct Ready {
    queue: Mutex<VecDeque<usize>>,
    parker: Parker,
    /// The coroutine that is being polled, or [`NOBODY`] after it has woken itself.
    polled: AtomicUsize,
}

const NOBODY: usize = usize::MAX;

/// Puts one coroutine into the queue, unless it is already there.
struct TaskWaker {
    index: usize,
    queued: AtomicBool,
    ready: StdArc<Ready>,
}

impl TaskWaker {
    fn enqueue(&self) {
        // AcqRel: pairs with the swap before the poll. So either the coroutine is queued, or the poll that follows sees
        // this wake.
        if !self.queued.swap(true, Ordering::AcqRel) {
            // Relaxed: this decides only whether the thread yields. A wake by another thread may count as the
            // coroutine's own.
            if self.ready.polled.load(Ordering::Relaxed) == self.index {
                self.ready.polled.store(NOBODY, Ordering::Relaxed);
            }
            self.ready.queue.with(|queue| queue.push_back(self.index));
            self.ready.parker.unpark();
        }
    }
}

impl Wake for TaskWaker {
    fn wake(self: StdArc<Self>) {
        self.enqueue();
    }
    fn wake_by_ref(self: &StdArc<Self>) {
        self.enqueue();
    }
}

/// Runs all `futures` to their ends as coroutines of this thread, and returns their outputs in order.
///
/// To run futures of several types, pass them as `Pin<Box<dyn Future<Output = T> + '_>>`.
///
/// ```
/// let squares = dm_loopback::run_all((0..3).map(|n| async move { n * n }));
/// assert_eq!(squares, [0, 1, 4]);
/// ```
pub fn run_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut tasks: Vec<_> = futures.into_iter().map(Box::pin).map(Task::Running).collect();
    let all = (0..tasks.len()).collect();
    let ready = StdArc::new(Ready {
        queue: Mutex::new(all),
        parker: Parker::new(),
        polled: AtomicUsize::new(NOBODY),
    });
    let wakers: Vec<_> = (0..tasks.len())
        .map(|index| {
            let ready = StdArc::clone(&ready);
            StdArc::new(TaskWaker {
                index,
                queued: AtomicBool::new(true),
                ready,
            })
        })
        .collect();
    let std_wakers: Vec<_> = wakers
        .iter()
        .map(|waker| Waker::from(StdArc::clone(waker)))
        .collect();
    let mut batch = VecDeque::with_capacity(tasks.len());
    let mut running = tasks.len();
    let mut turns = Turns::default();
    while running > 0 {
        // All wakes so far are in the queue.
        ready.parker.take();
        ready.queue.with(|queue| core::mem::swap(queue, &mut batch));
        if batch.is_empty() {
            ready.parker.park(&mut turns);
            continue;
        }
        let mut gave_way = false;
        for index in batch.drain(..) {
            ready.polled.store(index, Ordering::Relaxed); // as in `enqueue`
            // AcqRel: this poll sees all that callers of the waker did before. A wake from now on queues the coroutine
            // again.
            wakers[index].queued.swap(false, Ordering::AcqRel);
            begin_turn();
            if tasks[index].poll(&mut Context::from_waker(&std_wakers[index])) {
                running -= 1;
            }
            gave_way |= ready.polled.load(Ordering::Relaxed) == NOBODY; // as in `enqueue`
        }
        // A coroutine that has woken itself may wait for a client on a thread that does not run.
        if gave_way {
            turns.pass();
        }
    }
    tasks.into_iter().filter_map(Task::output).collect()
}

enum Task<F: Future> {
    Running(Pin<Box<F>>),
    Done(F::Output),
}

impl<F: Future> Task<F> {
    /// Polls a future that has not ended. Returns whether it ended now.
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let Self::Running(future) = self else { return false };
        match future.as_mut().poll(cx) {
            Poll::Pending => false,
            Poll::Ready(output) => {
                *self = Self::Done(output);
                true
            }
        }
    }

    fn output(self) -> Option<F::Output> {
        match self {
            Self::Running(_) => None,
            Self::Done(output) => Some(output),
        }
    }
}

#[cfg(all(test, not(dm_loom)))]
mod tests {
    use super::*;
    use core::cell::Cell;
    use dm_sync::Arc;

    /// A future that is ready after another thread has called its waker. The thread starts at the first poll.
    struct FromElsewhere {
        done: Option<Arc<AtomicBool>>,
    }

    impl Future for FromElsewhere {
        type Output = ();
        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            let Some(done) = &self.done else {
                let done = Arc::new(AtomicBool::new(false));
                let waker = cx.waker().clone();
                self.done = Some(Arc::clone(&done));
                thread::spawn(move || {
                    done.store(true, Ordering::Release); // pairs with the Acquire below
                    waker.wake_by_ref();
                    waker.wake();
                });
                return Poll::Pending;
            };
            if done.load(Ordering::Acquire) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }
    }

    #[test]
    fn wakes_from_other_threads_are_never_lost() {
        for _ in 0..200 {
            block_on(FromElsewhere { done: None });
        }
        assert_eq!(run_all((0..50).map(|_| FromElsewhere { done: None })).len(), 50);
    }

    /// A future that wakes itself once and is then ready.
    struct GiveWay(bool);

    impl Future for GiveWay {
        type Output = ();
        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            if core::mem::replace(&mut self.0, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    }

    #[test]
    fn coroutines_of_a_thread_take_turns() {
        // Each coroutine waits until the one with the number before has set `turn`. All of them end only if every
        // coroutine that has woken itself is polled again.
        let turn = Cell::new(0);
        let outputs = run_all((0..1000).rev().map(|me| {
            let turn = &turn;
            async move {
                while turn.get() != me {
                    GiveWay(false).await;
                }
                turn.set(me + 1);
                me
            }
        }));
        assert_eq!(outputs, (0..1000).rev().collect::<Vec<_>>());
        assert!(run_all(Vec::<core::future::Ready<()>>::new()).is_empty());
    }

    #[test]
    fn a_panicking_coroutine_panics_its_thread() {
        let ran = std::panic::catch_unwind(|| run_all([async { panic!("on purpose") }]));
        assert!(ran.is_err());
    }
}
