//! Tasks, in slots that never move. The table is not borrowed while a task is polled, so the task can spawn, cancel or
//! drop other tasks.

use core::cell::{Cell, OnceCell, RefCell};
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use std::sync::Arc as StdArc; // std's, even if dm-sync uses another one: std's wakers require it
use std::task::{Wake, Waker};

use dm_sync::atomic::{AtomicBool, Ordering};
use dm_sync::{Arc, Mutex};

/// Number of slots in a chunk.
const CHUNK: usize = 256;
/// Maximum number of chunks.
const CHUNKS: usize = 1024;

/// A task's own future.
pub(crate) type Job = Pin<Box<dyn Future<Output = ()>>>;

/// Tasks that were woken from outside the engine: by other tasks, or by another holder of their waker.
#[derive(Debug)]
pub(crate) struct Inbox {
    full: AtomicBool,
    tasks: Mutex<Vec<u32>>,
}

impl Inbox {
    /// Returns whether there may be woken tasks.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        // Acquire: pairs with Release in `wake_by_ref`. If this misses a wake by another thread, the next event finds
        // it.
        self.full.load(Ordering::Acquire)
    }

    /// Removes all tasks, and passes each of them to `each`.
    pub(crate) fn drain(&self, mut each: impl FnMut(u32)) {
        self.full.store(false, Ordering::Relaxed); // Relaxed: the list's own mutex orders what follows.
        self.tasks.with(|tasks| tasks.drain(..).for_each(&mut each));
    }
}

/// The waker of a slot. `Wake` requires std's `Arc`.
struct TaskWaker {
    task: u32,
    inbox: Arc<Inbox>,
}

impl Wake for TaskWaker {
    fn wake(self: StdArc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &StdArc<Self>) {
        self.inbox.tasks.with(|tasks| tasks.push(self.task));
        // Release: pairs with Acquire in `Inbox::is_full`, so that a thread that sees the flag also sees the
        // push.
        self.inbox.full.store(true, Ordering::Release);
    }
}

/// A slot, which holds one task at a time.
pub(crate) struct Slot {
    /// The future of a waiting task; it is taken out while the task runs.
    job: Cell<Option<Job>>,
    /// The waker of the task in the slot.
    pub(crate) waker: Waker,
    generation: Cell<u32>,
}

impl Slot {
    /// Returns the task's future, if it waits.
    #[inline(always)]
    pub(crate) fn take(&self) -> Option<Job> {
        self.job.take()
    }
    /// Puts the future of a waiting task back.
    #[inline(always)]
    pub(crate) fn put(&self, job: Job) {
        // The old content is forgotten and not dropped. It is empty, because the future was taken out.
        core::mem::forget(self.job.replace(Some(job)));
    }
}

/// All tasks.
pub(crate) struct Tasks {
    chunks: Box<[OnceCell<Box<[Slot; CHUNK]>>; CHUNKS]>,
    /// Number of slots that were ever used.
    used: Cell<u32>,
    free: RefCell<Vec<u32>>,
    live: Cell<usize>,
    pub(crate) inbox: Arc<Inbox>,
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks")
            .field("live", &self.live.get())
            .finish_non_exhaustive()
    }
}

impl Tasks {
    pub(crate) fn new() -> Self {
        Self {
            chunks: Box::new([const { OnceCell::new() }; CHUNKS]),
            used: Cell::new(0),
            free: RefCell::default(),
            live: Cell::new(0),
            inbox: Arc::new(Inbox {
                full: AtomicBool::new(false),
                tasks: Mutex::new(Vec::new()),
            }),
        }
    }

    /// Returns slot number `index`, if its chunk exists.
    #[inline(always)]
    pub(crate) fn slot(&self, index: u32) -> Option<&Slot> {
        let chunk = self.chunks.get(index as usize / CHUNK)?.get()?;
        Some(&chunk[index as usize % CHUNK])
    }

    /// Puts a task into a slot; returns its number and generation.
    ///
    /// # Panics
    /// Panics if there are more than 2^18 tasks at the same time.
    pub(crate) fn start(&self, job: Job) -> (u32, u32) {
        let index = self
            .free
            .borrow_mut()
            .pop()
            .unwrap_or_else(|| self.used.replace(self.used.get() + 1));
        let chunk = self
            .chunks
            .get(index as usize / CHUNK)
            .expect("at most 2^18 tasks")
            .get_or_init(|| self.chunk(index));
        let slot = &chunk[index as usize % CHUNK];
        slot.job.set(Some(job));
        self.live.set(self.live.get() + 1);
        (index, slot.generation.get())
    }

    /// Makes a chunk of slots, the first of which has number `first`.
    fn chunk(&self, first: u32) -> Box<[Slot; CHUNK]> {
        Box::new(core::array::from_fn(|i| Slot {
            job: Cell::new(None),
            waker: Waker::from(StdArc::new(TaskWaker {
                task: first + i as u32,
                inbox: Arc::clone(&self.inbox),
            })),
            generation: Cell::new(0),
        }))
    }

    /// Takes the future of a waiting task out of its slot.
    pub(crate) fn take(&self, index: u32, generation: u32) -> Option<Job> {
        let slot = self.slot(index)?;
        if slot.generation.get() == generation {
            slot.take()
        } else {
            None
        }
    }

    /// Ends a task whose future was taken out.
    pub(crate) fn end(&self, index: u32, job: Job) {
        // Drop the future first, because its destructor may call this table.
        drop(job);
        self.live.set(self.live.get() - 1);
        if let Some(slot) = self.slot(index) {
            slot.generation.set(slot.generation.get().wrapping_add(1));
        }
        self.free.borrow_mut().push(index);
    }

    /// Returns the number of tasks that have not ended.
    pub(crate) fn live(&self) -> usize {
        self.live.get()
    }
}
