//! An index whose operations wait until the test decides their results, and clients that the test polls explicitly.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Wake;

use dm_index::{Applied, Fill, IndexError, Key8, RangeIndex, Scan};
use dm_sync::atomic::{AtomicBool, Ordering};

/// An operation that a client requested from the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    Get(u64),
    Insert(u64, u32),
    Update(u64, u32),
    Upsert(u64, u32),
    Remove(u64),
}

/// The answer of the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answered {
    Got(Option<u32>),
    Applied(Applied),
}

impl Asked {
    /// Applies the operation to `map` and returns its answer.
    pub(crate) fn on(self, map: &mut BTreeMap<u64, u32>) -> Answered {
        let applied = match self {
            Self::Get(key) => return Answered::Got(map.get(&key).copied()),
            Self::Insert(key, _) if map.contains_key(&key) => Applied::Present,
            Self::Update(key, _) if !map.contains_key(&key) => Applied::Absent,
            Self::Insert(key, value) | Self::Update(key, value) | Self::Upsert(key, value) => {
                match map.insert(key, value) {
                    Some(_) => Applied::Replaced,
                    None => Applied::Inserted,
                }
            }
            Self::Remove(key) => match map.remove(&key) {
                Some(_) => Applied::Removed,
                None => Applied::Absent,
            },
        };
        Answered::Applied(applied)
    }
}

/// An operation that arrived at the index.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) asked: Asked,
    /// Whether the caller still waits for the answer.
    pub(crate) waited_for: bool,
    /// The answer, if the operation has taken effect.
    pub(crate) done: Option<Answered>,
    reply: Option<Result<Answered, IndexError>>,
    waker: Option<Waker>,
}

/// All operations that have arrived, in order. Each client has a clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(pub(crate) Rc<RefCell<Vec<Call>>>);

pub(crate) const BROKEN: IndexError = IndexError::BadInput { why: "on purpose" };

impl Gate {
    /// Returns the operation that arrived last.
    pub(crate) fn last(&self) -> Asked {
        self.0.borrow().last().expect("an operation has arrived").asked
    }

    pub(crate) fn count(&self) -> usize {
        self.0.borrow().len()
    }

    /// Ends call `number`.
    pub(crate) fn reply(&self, number: usize, reply: Result<Answered, IndexError>) {
        let waker = {
            let call = &mut self.0.borrow_mut()[number];
            call.reply = Some(reply);
            call.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn call(&self, asked: Asked) -> Calling {
        self.0.borrow_mut().push(Call {
            asked,
            waited_for: true,
            done: None,
            reply: None,
            waker: None,
        });
        Calling {
            gate: self.clone(),
            number: self.count() - 1,
        }
    }

    async fn apply(&self, asked: Asked) -> Result<Applied, IndexError> {
        match self.call(asked).await? {
            Answered::Applied(applied) => Ok(applied),
            Answered::Got(_) => unreachable!("a write's answer"),
        }
    }
}

struct Calling {
    gate: Gate,
    number: usize,
}

impl Future for Calling {
    type Output = Result<Answered, IndexError>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let call = &mut self.gate.0.borrow_mut()[self.number];
        if let Some(reply) = call.reply {
            return Poll::Ready(reply);
        }
        call.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        let call = &mut self.gate.0.borrow_mut()[self.number];
        (call.waited_for, call.waker) = (false, None);
    }
}

fn number(value: &[u8]) -> Result<u32, IndexError> {
    let bytes = value.try_into().map_err(|_| IndexError::ValueLength {
        found: value.len(),
        expected: 4,
    })?;
    Ok(u32::from_le_bytes(bytes))
}

impl RangeIndex for Gate {
    type Key = Key8;
    fn value_bytes(&self) -> usize {
        4
    }
    async fn get(&self, key: &Key8, value: &mut Vec<u8>) -> Result<bool, IndexError> {
        value.clear();
        let Answered::Got(found) = self.call(Asked::Get(key.0)).await? else {
            unreachable!("a get's answer")
        };
        value.extend(found.into_iter().flat_map(u32::to_le_bytes));
        Ok(found.is_some())
    }
    async fn insert(&self, key: &Key8, value: &[u8]) -> Result<Applied, IndexError> {
        self.apply(Asked::Insert(key.0, number(value)?)).await
    }
    async fn update(&self, key: &Key8, value: &[u8]) -> Result<Applied, IndexError> {
        self.apply(Asked::Update(key.0, number(value)?)).await
    }
    async fn upsert(&self, key: &Key8, value: &[u8]) -> Result<Applied, IndexError> {
        self.apply(Asked::Upsert(key.0, number(value)?)).await
    }
    async fn remove(&self, key: &Key8) -> Result<Applied, IndexError> {
        self.apply(Asked::Remove(key.0)).await
    }
    async fn scan(&self, _: &Key8, _: usize, out: &mut Scan<Key8>) -> Result<(), IndexError> {
        out.reset(4);
        Ok(())
    }
    async fn bulk_load(
        &self,
        _: impl Into<Fill>,
        _: impl FnMut(&mut Vec<u8>) -> Option<Key8>,
    ) -> Result<u64, IndexError> {
        Ok(0)
    }
}

/// Runs `asked` on any index.
pub(crate) async fn run<I: RangeIndex<Key = Key8>>(index: &I, asked: Asked) -> Result<Answered, IndexError> {
    let mut value = vec![0xEE; 3];
    let applied = match asked {
        Asked::Get(key) => {
            let found = index.get(&Key8(key), &mut value).await?;
            return Ok(Answered::Got(found.then(|| number(&value)).transpose()?));
        }
        Asked::Insert(key, value) => index.insert(&Key8(key), &value.to_le_bytes()).await,
        Asked::Update(key, value) => index.update(&Key8(key), &value.to_le_bytes()).await,
        Asked::Upsert(key, value) => index.upsert(&Key8(key), &value.to_le_bytes()).await,
        Asked::Remove(key) => index.remove(&Key8(key)).await,
    };
    applied.map(Answered::Applied)
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        // Relaxed: there is only one thread.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A future that is polled only after it was woken.
pub(crate) struct Task<'f, T> {
    future: Pin<Box<dyn Future<Output = T> + 'f>>,
    flag: Arc<Flag>,
}

impl<'f, T> Task<'f, T> {
    pub(crate) fn new(future: impl Future<Output = T> + 'f) -> Self {
        Self {
            future: Box::pin(future),
            flag: Arc::new(Flag(AtomicBool::new(true))),
        }
    }

    /// Returns a task that has been polled once and waits.
    pub(crate) fn begun(future: impl Future<Output = T> + 'f) -> Self {
        let mut task = Self::new(future);
        assert!(task.step().is_none(), "the task ended at once");
        task
    }

    pub(crate) fn is_woken(&self) -> bool {
        // Relaxed: there is only one thread.
        self.flag.0.load(Ordering::Relaxed)
    }

    /// Polls the task with a new waker while it still waits. After that, the old waker must not be called.
    pub(crate) fn moves(&mut self) {
        self.flag = Arc::new(Flag(AtomicBool::new(true)));
        assert!(self.step().is_none(), "the task ended at once");
    }

    /// Polls the task if it was woken. Returns its output if it has ended.
    pub(crate) fn step(&mut self) -> Option<T> {
        // Relaxed: there is only one thread.
        if !self.flag.0.swap(false, Ordering::Relaxed) {
            return None;
        }
        let waker = Waker::from(Arc::clone(&self.flag));
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(out) => Some(out),
            Poll::Pending => None,
        }
    }
}
