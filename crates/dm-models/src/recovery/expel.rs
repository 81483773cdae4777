//! The model of an expulsion, from a silent slot to a free lock. The shipped allocator marks the slot, fences the
//! member, frees the member's locks, and frees the slot.

use dm_alloc::ReclaimFlaws;
use dm_explore::{Client, Counter, CounterOp, Knobs, Model};
use dm_index::IndexError;
use dm_lock::{LockOptions, LockPlace, LockWord};
use dm_sync::Fingerprint;
use dm_verbs::Verbs;

use super::member::{AREA, LEASE, Member, timed};
use crate::locks::{lock_word, node};
use crate::{Case, Entry, Explorable, How, Kind, Setting, Twin};

pub(crate) const ENTRY: Entry = Entry {
    name: "expel",
    kind: Kind::Crash,
    source: "docs/protocol/recovery.md V1, V2; docs/protocol/reclaim.md R7",
    about: "S, of the first member, adds to a counter under a lock and may die at any step. W, of another member, \
        finds the first slot silent in two looks, expels that member, and adds too. No add is lost or counted \
        twice, and the lock is free at the end. In `joins again`, T is another client of the first \
        compute node. If it finds itself expelled, it joins again and adds as a client of the new member, while S \
        may still hold the lock as a client of the old one.",
    cases: || {
        vec![
            Case::holds("2 members", timed(Knobs::declared())),
            Case::holds("2 members", timed(Knobs::weak()).crashes(1)),
            Case::holds("joins again", timed(Knobs::strong())).nightly(),
        ]
    },
    published: None,
    mutants: &[Twin {
        name: "no-fence",
        about: "the silent member is not fenced",
        cases: || vec![corrupting("2 members")],
    }],
    build,
};

fn corrupting(shape: &'static str) -> Case {
    let case = Case::fails(How::NotLinearizable, shape, timed(Knobs::declared()).crashes(1));
    case.or(How::Invariant)
}

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let flaws = ReclaimFlaws {
        no_fence: s.mutant("no-fence"),
        ..ReclaimFlaws::NONE
    };
    let model = Model::new(s.title.clone())
        .shared_opened(move |v, _| Member::open(v, LockOptions::default(), flaws))
        .fingerprint(Fingerprint::fingerprint)
        .spec(Counter(0))
        .place(node(), 8, "counter")
        .place(lock_word(LockPlace::Chip), 8, "lock")
        .place(AREA.add(64), 16, "slot of S")
        .place(AREA.add(128), 16, "slot of W")
        .invariant("the lock is free", |end| {
            let word = LockWord::unpack(end.word(lock_word(LockPlace::Chip)));
            match word.locked {
                false => Ok(()),
                true => Err(format!("it is {word}")),
            }
        })
        // S announces nothing after its operation has begun. W watches the slots and expels S.
        .client("S", 0, |c: Client<Member, Counter>| async move {
            // An error means that the client was fenced.
            let _fenced = add_as_member(&c).await;
        })
        .client("W", 1, |c: Client<Member, Counter>| async move {
            let done = watch_and_add(&c).await;
            c.check(done.is_ok(), || format!("{done:?}"));
        })
        .spared();
    let model = match s.shape {
        "joins again" => model.client("T", 0, |c: Client<Member, Counter>| async move {
            // An error means that the client was fenced.
            let _fenced = add_again(&c).await;
        }),
        _ => model,
    };
    Box::new(model)
}

/// Adds as an operation of a member that announces nothing afterwards.
async fn add_as_member(c: &Client<Member, Counter>) -> Result<(), IndexError> {
    let (v, shared) = (c.verbs(), c.shared());
    let seat = shared.seat();
    // If the member was expelled before, `prepare` joins again with another number, and this client adds nothing.
    let number = shared.alloc.roster().own();
    shared.alloc.prepare(v, &seat).await?;
    let Some(running) = seat.enter().filter(|_| shared.alloc.roster().own() == number) else {
        return Ok(());
    };
    let added = add(c).await;
    drop(running);
    added
}

/// Adds as an operation of a member that joins again if it was expelled.
async fn add_again(c: &Client<Member, Counter>) -> Result<(), IndexError> {
    let seat = c.shared().seat();
    let running = loop {
        match seat.enter() {
            Some(running) => break running,
            None => c.shared().alloc.prepare(c.verbs(), &seat).await?,
        }
    };
    let added = add(c).await;
    drop(running);
    added
}

/// Looks at the slots twice, so that every member that announces nothing is expelled, and then adds.
async fn watch_and_add(c: &Client<Member, Counter>) -> Result<(), IndexError> {
    let seat = c.shared().seat();
    for _ in 0..2 {
        c.pass_time(LEASE);
        c.shared().alloc.collect(c.verbs(), &seat).await?;
    }
    add(c).await
}

async fn add(c: &Client<Member, Counter>) -> Result<(), IndexError> {
    let v = c.verbs();
    let adding = async {
        let (guard, bytes) = c.shared().locks.lock_and_read(v, node(), node(), 8).await?;
        let old = bytes.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        guard
            .write_back(v.chain(node().node()).write_word(node(), old + 1))
            .await?;
        Ok(old)
    };
    let mut done = Ok(());
    let op = async {
        let added: Result<u64, IndexError> = adding.await;
        match added {
            Ok(old) => Some(old),
            Err(e) => {
                done = Err(e);
                None
            }
        }
    };
    c.try_op(CounterOp::Add(1), op).await;
    done
}
