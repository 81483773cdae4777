//! Runs many coroutines on one thread, and polls the completion queue between them.
//!
//! Futures need not be `Send`; wakers may be called from any thread. The thread never parks, because a card
//! reports a completion only to a thread that polls. When a poll finds no completion, the thread yields its processor
//! to other threads.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::task::Wake;

use dm_sync::Mutex;
use dm_sync::atomic::{AtomicBool, Ordering};
use dm_sync::thread;

// The trait `Wake` requires std's `Arc`.
use std::sync::Arc as StdArc;

/// The coroutines that must be polled.
type Ready = StdArc<Mutex<VecDeque<usize>>>;

/// Puts one coroutine into the queue, at most once.
struct TaskWaker {
    index: usize,
    queued: AtomicBool,
    ready: Ready,
}

impl TaskWaker {
    fn enqueue(&self) {
        // AcqRel: pairs with the swap before the poll. So either the coroutine is queued, or the poll that follows sees
        // this wake.
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.ready.with(|queue| queue.push_back(self.index));
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

/// Runs all `futures` to their ends, and returns their outputs in order. `advance` handles events such as completions,
/// and returns whether there were any.
pub(crate) fn run_all<F: Future>(
    futures: impl IntoIterator<Item = F>,
    mut advance: impl FnMut() -> bool,
) -> Vec<F::Output> {
    let mut tasks: Vec<_> = futures.into_iter().map(Box::pin).map(Task::Running).collect();
    let ready = Ready::new(Mutex::new((0..tasks.len()).collect()));
    let flags: Vec<_> = (0..tasks.len())
        .map(|index| {
            StdArc::new(TaskWaker {
                index,
                queued: AtomicBool::new(true),
                ready: StdArc::clone(&ready),
            })
        })
        .collect();
    let wakers: Vec<_> = flags
        .iter()
        .map(|flag| Waker::from(StdArc::clone(flag)))
        .collect();
    let mut batch = VecDeque::with_capacity(tasks.len());
    let mut running = tasks.len();
    while running > 0 {
        ready.with(|queue| core::mem::swap(queue, &mut batch));
        let idle = batch.is_empty();
        for index in batch.drain(..) {
            // AcqRel: this poll sees all that callers of the waker did before. A wake from now on queues the coroutine
            // again.
            flags[index].queued.swap(false, Ordering::AcqRel);
            if tasks[index].poll(&mut Context::from_waker(&wakers[index])) {
                running -= 1;
            }
        }
        if !advance() && (idle || running > 0) {
            thread::yield_now();
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

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::RefCell;

    #[test]
    fn coroutines_are_woken_by_external_events() {
        // Each coroutine waits for its own event. `advance` produces one event per call, in reverse order.
        let waiting: RefCell<Vec<(usize, Waker)>> = RefCell::default();
        let happened = RefCell::new(vec![false; 100]);
        let coroutine = |me: usize| {
            let (waiting, happened) = (&waiting, &happened);
            core::future::poll_fn(move |cx| {
                if happened.borrow()[me] {
                    return Poll::Ready(me);
                }
                waiting.borrow_mut().push((me, cx.waker().clone()));
                Poll::Pending
            })
        };
        let outputs = run_all((0..100).map(coroutine), || {
            let Some((next, waker)) = waiting.borrow_mut().pop() else {
                return false;
            };
            happened.borrow_mut()[next] = true;
            waker.wake();
            true
        });
        assert_eq!(outputs, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn wakes_from_other_threads_are_never_lost() {
        for _ in 0..50 {
            let (done, mut started) = (StdArc::new(AtomicBool::new(false)), false);
            let future = core::future::poll_fn(|cx| {
                // Acquire: pairs with the Release below.
                if done.load(Ordering::Acquire) {
                    return Poll::Ready(());
                }
                if !core::mem::replace(&mut started, true) {
                    let (done, waker) = (StdArc::clone(&done), cx.waker().clone());
                    thread::spawn(move || {
                        done.store(true, Ordering::Release);
                        waker.wake();
                    });
                }
                Poll::Pending
            });
            run_all([future], || false);
        }
    }
}
