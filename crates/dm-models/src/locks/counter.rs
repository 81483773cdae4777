//! A model of clients that add to a counter under a lock of `dm-lock`.

use dm_explore::{Client, Counter, CounterOp, Model};
use dm_lock::{GlobalLockTable, LockError, LockOptions, LockPlace, LockWord, Locks};
use dm_sync::Fingerprint;
use dm_verbs::{ChipPtr, NodeId, Place, RemotePtr, Verbs};

/// The way in which a client reads the counter under the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Read {
    /// With a separate READ after the lock was taken. The model checks that at most one client at a time is between
    /// taking the lock and the end of the READ.
    Apart,
    /// With `lock_and_read`, which reads the node in the chain of the CAS.
    Along,
    /// With `lock_and_read` of two lines. Both lines contain the counter, and must agree.
    Wide,
}

impl Read {
    /// Returns the address of the counter: the first word of the node, or the last word of its first line and the
    /// first word of its second line.
    fn counter(self) -> RemotePtr {
        match self {
            Self::Apart | Self::Along => node(),
            Self::Wide => node().add(56),
        }
    }
}

/// The parameters of the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adders {
    /// The compute node of each client.
    pub(crate) on: &'static [u16],
    /// Number of adds of each client. The last entry applies to all further clients.
    pub(crate) adds: &'static [u32],
    pub(crate) read: Read,
    /// Whether operations are recorded and must be linearizable. Otherwise only the final sum must be right, which
    /// takes far fewer states, because recorded histories distinguish states.
    pub(crate) recorded: bool,
    pub(crate) options: LockOptions,
}

impl Default for Adders {
    /// Returns two clients of one compute node that each add once, with `lock_and_read` and recorded operations.
    fn default() -> Self {
        Self {
            on: &[0, 0],
            adds: &[1],
            read: Read::Along,
            recorded: true,
            options: LockOptions::default(),
        }
    }
}

/// Returns the address of the node.
pub(crate) fn node() -> RemotePtr {
    RemotePtr::new(NodeId(0), 4096).unwrap_or(RemotePtr::NULL)
}

/// Returns a table with one lock word on memory node 0, on the chip or in host memory.
pub(crate) fn one_lock(place: LockPlace) -> GlobalLockTable {
    GlobalLockTable::new(vec![lock_word(place)], 1)
}

/// Returns the address of the lock word.
pub(crate) fn lock_word(place: LockPlace) -> Place {
    match place {
        LockPlace::Chip => ChipPtr::new(NodeId(0), 0).unwrap_or(ChipPtr::NULL).into(),
        LockPlace::Host => RemotePtr::new(NodeId(0), 2048).unwrap_or(RemotePtr::NULL).into(),
    }
}

/// Builds a model of one lock with these options, and of the `bytes` at `data` that it protects.
pub(crate) fn guarded(
    title: &str,
    options: LockOptions,
    (data, bytes, name): (RemotePtr, u32, &str),
) -> Model<Locks, Counter> {
    Model::new(title)
        .shared(move |_| Locks::new(options, one_lock(options.place)))
        .fingerprint(Fingerprint::fingerprint)
        .spec(Counter(0))
        .place(data, bytes, name)
        .place(lock_word(options.place), 8, "lock")
}

/// Returns the compute node of each client of a shape. For example, `3x2` means three compute nodes with two clients
/// each, and `2+1` means two clients on one compute node and one client on another.
pub(crate) fn compute_nodes(shape: &str) -> &'static [u16] {
    match shape.split([' ', ',']).next() {
        Some("1x2") => &[0, 0],
        Some("2x1") => &[0, 1],
        Some("1x3") => &[0, 0, 0],
        Some("2+1") => &[0, 0, 1],
        Some("2x2") => &[0, 0, 1, 1],
        Some("3x1") => &[0, 1, 2],
        Some("3x2") => &[0, 0, 1, 1, 2, 2],
        Some("1x5") => &[0; 5],
        _ => unreachable!("no such shape: {shape}"),
    }
}

impl Adders {
    /// Builds the model. It checks that every add counts, and that the lock is free at the end. If operations are
    /// recorded, it also checks that they are linearizable. With [`Read::Apart`], it checks that at most one client is
    /// in the section.
    pub(crate) fn model(self, title: String) -> Model<Locks, Counter> {
        let word = lock_word(self.options.place);
        let counter = self.read.counter();
        let adds_of = move |i: usize| self.adds[i.min(self.adds.len() - 1)];
        let sum: u64 = (0..self.on.len()).map(|i| u64::from(adds_of(i))).sum();
        let mut model = guarded(&title, self.options, (counter, 8, "counter"))
            .invariant("every add counted", move |end| match end.word(counter) {
                n if n == sum => Ok(()),
                n => Err(format!("{n} of {sum}")),
            })
            .invariant("the lock is free at the end", move |end| free(end.word(word)));
        for (i, &on) in self.on.iter().enumerate() {
            let name = char::from(b'A' + i as u8).to_string();
            let adds = adds_of(i);
            model = model.client(name, on, move |c| async move {
                for _ in 0..adds {
                    let adding = async { add(&c, self.read).await.expect("no faults in this model") };
                    if self.recorded {
                        c.op(CounterOp::Add(1), adding).await;
                    } else {
                        adding.await;
                    }
                    c.forget();
                }
            });
        }
        model
    }
}

fn free(word: u64) -> Result<(), String> {
    let word = LockWord::unpack(word);
    if word.locked {
        return Err(format!("it is {word}"));
    }
    Ok(())
}

/// Adds one, and returns the old value.
pub(crate) async fn add(c: &Client<Locks, Counter>, read: Read) -> Result<u64, LockError> {
    let (v, node, counter) = (c.verbs(), node(), read.counter());
    if read == Read::Apart {
        let guard = c.shared().lock(v, node).await?;
        c.enter("critical section");
        let old = v.word(counter).await?;
        c.leave("critical section");
        guard
            .write_back(v.chain(node.node()).write_word(counter, old + 1))
            .await?;
        return Ok(old);
    }
    let copies = if read == Read::Wide { 2 } else { 1 };
    let (guard, bytes) = c.shared().lock_and_read(v, node, counter, 8 * copies).await?;
    let seen: Vec<u64> = bytes.chunks_exact(8).map(word).collect();
    let old = seen[0];
    c.check(seen.iter().all(|w| *w == old), || {
        format!("read under the lock: {seen:?}")
    });
    let data = (old + 1).to_le_bytes().repeat(copies as usize);
    guard
        .write_back(v.chain(node.node()).write(counter, &data))
        .await?;
    Ok(old)
}

fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
