//! The operations of a client. A get ignores the leaf's counter. An update or an insert adds 1 to the counter while it
//! works in the leaf, so that a split waits for it.

use dm_explore::{Client, Endpoint};
use dm_history::{KvMap, KvOp, KvRet};
use dm_verbs::{RemotePtr, Verbs, Why};

use super::split::split;
use super::{ALONE, CLAIMED, Leaf, OK, SLOTS, SlotFlaws, Slots, separator};

pub(super) type Spec = KvMap<u64, u64>;
pub(super) type Op = KvOp<u64, u64>;

/// A retry limit that none of these models reaches.
pub(super) const ATTEMPTS: u32 = 1000;

/// One client, with its cache and its flaws.
pub(super) struct Worker<'c> {
    pub(super) c: &'c Client<(), Spec>,
    pub(super) flaws: SlotFlaws,
    /// Whether the client reads the separator. Otherwise its cache says that there is no right leaf.
    pub(super) cold: bool,
}

/// The result of looking for the slot of a key.
enum Slot {
    /// The key is present.
    Present,
    /// The client has claimed this slot for its key.
    Claimed(usize),
    /// Another client has claimed this slot for the same key.
    Taken(usize),
    /// The leaf has no empty slot.
    Full,
}

impl Worker<'_> {
    pub(super) fn verbs(&self) -> &Endpoint {
        self.c.verbs()
    }

    pub(super) async fn run(&self, op: &Op) -> KvRet<u64> {
        let leaf = self.begin(*op.key()).await;
        match *op {
            KvOp::Get(key) => self.get(leaf, key).await,
            KvOp::Update(key, value) => self.update(leaf, key, value).await,
            KvOp::Insert(key, value) => self.insert(leaf, key, value).await,
            KvOp::Upsert(..) | KvOp::Remove(..) => unreachable!("no model of this leaf does so"),
        }
    }

    /// Returns the leaf where the client begins to look for the key.
    async fn begin(&self, key: u64) -> Leaf {
        if !self.cold {
            return Leaf::left();
        }
        let separator = self.verbs().word(separator()).await.expect(OK);
        match separator == 0 || key < separator {
            true => Leaf::left(),
            false => Leaf::right(),
        }
    }

    /// Reads the keys, then the values, then the fence key. A split lowers the fence key before it removes a key. So if
    /// the fence key still covers the key, the keys were complete when they were read. With the flaw `fence_first`,
    /// reads the fence key first.
    async fn get(&self, mut leaf: Leaf, key: u64) -> KvRet<u64> {
        loop {
            let chain = self.verbs().chain(leaf.0.node());
            let (keys, values, high) = if self.flaws.fence_first {
                let chain = chain.word(leaf.high()).fence().read(leaf.key(0), LINE);
                let (high, keys, values) = chain.fence().read(leaf.value(0), LINE).await.expect(OK);
                (keys, values, high)
            } else {
                let chain = chain.read(leaf.key(0), LINE).fence().read(leaf.value(0), LINE);
                chain.fence().word(leaf.high()).await.expect(OK)
            };
            let slots = Slots::of(&keys, &values);
            if key >= high {
                leaf = Leaf::right();
                continue;
            }
            return match slots.find(key) {
                Some(slot) => KvRet::Found(slots.values[slot]),
                None => KvRet::Absent,
            };
        }
    }

    async fn update(&self, leaf: Leaf, key: u64, value: u64) -> KvRet<u64> {
        let (leaf, slots) = self.share(leaf, key).await;
        let Some(slot) = slots.find(key) else {
            self.leave(leaf).await;
            return KvRet::Absent;
        };
        self.write_and_leave(leaf, slot, value).await;
        KvRet::Replaced
    }

    async fn insert(&self, mut leaf: Leaf, key: u64, value: u64) -> KvRet<u64> {
        loop {
            let slots;
            (leaf, slots) = self.share(leaf, key).await;
            match self.slot(leaf, key, &slots).await {
                Slot::Present => {
                    self.leave(leaf).await;
                    return KvRet::Present;
                }
                Slot::Taken(slot) => {
                    self.wait_for(leaf.key(slot), |now| now == key).await;
                    self.leave(leaf).await;
                    return KvRet::Present;
                }
                Slot::Claimed(slot) => {
                    let first = slots.keys.iter().position(|k| *k == 0);
                    let lost = first != Some(slot);
                    let value = match lost && self.flaws.stale_value {
                        true => slots.values[slot],
                        false => value,
                    };
                    self.fill(leaf, slot, key, value).await;
                    return KvRet::Inserted;
                }
                Slot::Full => {
                    self.leave(leaf).await;
                    split(self, leaf).await;
                }
            }
        }
    }

    /// Finds the key's slot, or claims the first empty slot. Two inserts of one key compete for the same slot, because
    /// slots become empty only while a client holds the leaf alone.
    async fn slot(&self, leaf: Leaf, key: u64, slots: &Slots) -> Slot {
        let claim = match self.flaws.key_first {
            true => key,
            false => key | CLAIMED,
        };
        for slot in 0..SLOTS {
            let mut seen = slots.keys[slot];
            if seen == 0 {
                seen = self.verbs().cas(leaf.key(slot), 0, claim).await.expect(OK);
                if seen == 0 {
                    return Slot::Claimed(slot);
                }
                if self.flaws.own_key_unseen {
                    continue;
                }
            }
            if seen == key {
                return Slot::Present;
            }
            if seen & !CLAIMED == key {
                return Slot::Taken(slot);
            }
        }
        Slot::Full
    }

    /// Adds one to the counter of the leaf that covers `key`, and returns the leaf and its slots. A split waits until
    /// the counted clients have left, so no entry moves meanwhile.
    async fn share(&self, mut leaf: Leaf, key: u64) -> (Leaf, Slots) {
        loop {
            let (high, slots) = self.count(leaf).await;
            if key < high {
                return (leaf, slots);
            }
            self.leave(leaf).await;
            leaf = Leaf::right();
        }
    }

    /// Adds one to the counter of this leaf. Returns the end of the leaf's range, and its slots.
    async fn count(&self, leaf: Leaf) -> (u64, Slots) {
        let mut retry = self.verbs().retry(ATTEMPTS);
        loop {
            let chain = self.verbs().chain(leaf.0.node()).faa(leaf.counter(), 1).fence();
            let (count, bytes) = chain.read(leaf.0, Leaf::BYTES as u32).await.expect(OK);
            if !is_alone(count) {
                let [_, high, _] = super::words(&bytes);
                return (high, Slots::of(&bytes[Leaf::KEYS..], &bytes[Leaf::VALUES..]));
            }
            self.leave(leaf).await;
            retry.again(leaf.counter(), Why::Changing).await.expect(OK);
        }
    }

    async fn leave(&self, leaf: Leaf) {
        self.verbs()
            .faa(leaf.counter(), 1u64.wrapping_neg())
            .await
            .expect(OK);
    }

    /// Writes the value, and subtracts one from the counter.
    async fn write_and_leave(&self, leaf: Leaf, slot: usize, value: u64) {
        let chain = self.verbs().chain(leaf.0.node());
        let chain = chain.write_word(leaf.value(slot), value);
        chain.faa(leaf.counter(), 1u64.wrapping_neg()).await.expect(OK);
    }

    /// Writes a claimed slot's value, then its key, and subtracts one from the counter.
    async fn fill(&self, leaf: Leaf, slot: usize, key: u64, value: u64) {
        if self.flaws.key_first {
            return self.write_and_leave(leaf, slot, value).await;
        }
        let chain = self.verbs().chain(leaf.0.node());
        let chain = chain
            .write_word(leaf.value(slot), value)
            .free_cas(leaf.key(slot), key | CLAIMED, key);
        chain.faa(leaf.counter(), 1u64.wrapping_neg()).await.expect(OK);
    }

    /// Waits until `wanted` returns true for the word.
    pub(super) async fn wait_for(&self, at: RemotePtr, wanted: impl Fn(u64) -> bool) {
        let mut retry = self.verbs().retry(ATTEMPTS);
        loop {
            let word = self.verbs().word(at).await.expect(OK);
            if wanted(word) {
                return;
            }
            retry.again(at, Why::LockHeld { word }).await.expect(OK);
        }
    }
}

/// The size of a line in bytes.
const LINE: u32 = 64;

/// Returns whether a split holds the leaf alone, or waits for this.
pub(super) fn is_alone(count: u64) -> bool {
    count > u64::MAX - 2 * ALONE
}
