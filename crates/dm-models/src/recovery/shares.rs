//! The models of the shares of a dead client: the shipped allocator shuts the gate, awaits the answers, resets the
//! counts of sharers, and opens the gate.

use dm_alloc::ReclaimFlaws;
use dm_explore::{Client, Counter, Knobs, Model};
use dm_index::IndexError;
use dm_lock::LockPlace;
use dm_sync::Fingerprint;
use dm_sync::epoch::Seat;
use dm_verbs::{RemotePtr, Verbs};

use super::member::{AREA, LEASE, Member, timed};
use super::sums::{LEN, add, every_add_counts, restored, sharing, sum_up, wait_for};
use crate::locks::{lock_word, node};
use crate::{Case, Entry, Explorable, How, Kind, Setting, Twin};

pub(crate) const ENTRY: Entry = Entry {
    name: "shares",
    kind: Kind::Crash,
    source: "docs/protocol/recovery.md V10–V14; docs/protocol/lock.md L14–L17",
    about: "S, of the first member, adds under a share and may die at any step. E, of the second, finds it silent, \
        expels it, has the counts of sharers reset, and then holds the lock alone. T, of the third, adds twice under \
        a share, or alone while nobody may share. In the other shapes S shares nothing, except in `E dies`. In `two \
        clients`, T adds while U, of the same compute node, answers. In `dropped`, T drops its first share without \
        awaiting anything. In `E dies`, E may die at any step, and X, of T's compute node, does all of it again. No \
        add is lost or counted twice, E and X get the lock, and at the end no share is counted and the gate is open.",
    cases: || {
        vec![
            Case::holds("a sharer dies", timed(Knobs::strong()).crashes(1)).nightly(),
            Case::holds("T shares", timed(Knobs::strong())).nightly(),
            Case::holds("two clients", timed(Knobs::strong())).nightly(),
            Case::holds("dropped", timed(Knobs::strong())),
            Case::holds("E dies", timed(Knobs::strong()).crashes(1)).nightly(),
        ]
    },
    published: None,
    mutants: &[
        Twin {
            name: "no-gate",
            about: "clients begin shares while the gate is shut",
            cases: || vec![corrupting("a sharer dies", Knobs::declared())],
        },
        Twin {
            name: "no-fence",
            about: "the counts are reset although the dead client is not fenced",
            cases: || vec![corrupting("a sharer dies", Knobs::declared().crashes(1))],
        },
    ],
    build,
};

fn corrupting(shape: &'static str, knobs: Knobs) -> Case {
    let case = Case::fails(How::Invariant, shape, timed(knobs));
    case.or(How::Check).or(How::Stuck)
}

/// Returns the address of the word of the gate.
fn gate() -> RemotePtr {
    AREA.add(16)
}

/// Returns the address of the word that is set when E has looked once. Then T announces its compute node, so that T
/// does not count as silent.
fn looked() -> RemotePtr {
    AREA.add(40)
}

/// Returns the address of the beat of slot `i`. The next function returns the address of the last round that the slot
/// has answered.
fn beat_of(i: u64) -> RemotePtr {
    AREA.add(64 * (1 + i) + 8)
}
fn answered_of(i: u64) -> RemotePtr {
    AREA.add(64 * (1 + i) + 16)
}

type C = Client<Member, Counter>;

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let flaws = ReclaimFlaws {
        no_fence: s.mutant("no-fence"),
        gate_ignored: s.mutant("no-gate"),
        ..ReclaimFlaws::NONE
    };
    let shape = s.shape.to_owned();
    let dies = shape == "E dies";
    let model = Model::new(s.title.clone())
        .shared_opened(move |v, _| Member::open(v, sharing(), flaws))
        .fingerprint(Fingerprint::fingerprint)
        .spec(Counter(0))
        .place(node(), LEN, "sum and words")
        .place(lock_word(LockPlace::Chip), 8, "lock")
        .place(gate(), 8, "gate")
        .place(AREA.add(64), 24, "slot of S")
        .place(AREA.add(128), 24, "slot of E")
        .place(AREA.add(192), 24, "slot of T")
        .invariant("every add counts once", |end| every_add_counts(end, 3))
        .invariant("nothing is shared, and the gate is open", |end| {
            restored(end, end.word(gate()) & 0xFFFF == 0)
        });
    let (share_first, shares) = (shape == "a sharer dies" || dies, !dies);
    let model = model.client("S", 0, move |c: C| async move {
        if share_first {
            // An error means that the client was fenced.
            let _fenced = add_as_member(&c).await;
        }
    });
    let model = if dies { model.spared() } else { model };
    let model = model.client("E", 1, |c: C| async move {
        let done = expel(&c).await;
        c.check(done.is_ok(), || format!("{done:?}"));
    });
    let model = if dies { model } else { model.spared() };
    let drops = shape == "dropped";
    let model = model
        .client("T", 2, move |c: C| async move {
            let done = answer(&c, drops, shares).await;
            c.check(done.is_ok(), || format!("{done:?}"));
        })
        .spared();
    Box::new(match shape.as_str() {
        "two clients" => model
            .client("U", 2, |c: C| async move {
                let done = collect_once_shut(&c).await;
                c.check(done.is_ok(), || format!("{done:?}"));
            })
            .spared(),
        "E dies" => model
            .survivor("X", 2, |c: C| async move {
                let done = take_over(&c).await;
                c.check(done.is_ok(), || format!("{done:?}"));
            })
            .spared(),
        _ => model,
    })
}

async fn collect(c: &C, seat: &Seat) -> Result<(), IndexError> {
    Ok(c.shared().alloc.collect(c.verbs(), seat).await?)
}

/// Adds as an operation of a member that announces nothing afterwards.
async fn add_as_member(c: &C) -> Result<(), IndexError> {
    let (v, shared) = (c.verbs(), c.shared());
    let seat = shared.seat();
    let number = shared.alloc.roster().own();
    shared.alloc.prepare(v, &seat).await?;
    // If the member was expelled before, `prepare` has joined again with another number, and this client adds nothing.
    let Some(running) = seat.enter().filter(|_| shared.alloc.roster().own() == number) else {
        return Ok(());
    };
    let added = add(c, &shared.locks, node().add(8)).await;
    drop(running);
    added
}

/// Expels S, has the counts of sharers reset, and takes the lock.
async fn expel(c: &C) -> Result<(), IndexError> {
    let seat = c.shared().seat();
    c.pass_time(LEASE);
    collect(c, &seat).await?;
    c.verbs().write(looked(), &1u64.to_le_bytes()).await?;
    wait_for(c, beat_of(2)).await?;
    c.pass_time(LEASE);
    // The first collection marks and fences S, and the second one shuts the gate.
    collect(c, &seat).await?;
    collect(c, &seat).await?;
    wait_for(c, answered_of(2)).await?;
    collect(c, &seat).await?;
    sum_up(c, &c.shared().locks).await
}

/// Announces T's compute node, adds, answers, and adds again. With `drops`, drops a share instead of the first add.
/// Without `adds`, adds nothing.
async fn answer(c: &C, drops: bool, adds: bool) -> Result<(), IndexError> {
    let (v, shared, own) = (c.verbs(), c.shared(), node().add(16));
    let seat = shared.seat();
    wait_for(c, looked()).await?;
    collect(c, &seat).await?;
    if drops {
        // An error means that sharing is forbidden.
        drop(shared.locks.share_and_read(v, node(), own, 8).await.ok());
    } else if adds {
        add(c, &shared.locks, own).await?;
    }
    wait_for(c, gate()).await?;
    collect(c, &seat).await?;
    match adds {
        true => add(c, &shared.locks, own).await,
        false => Ok(()),
    }
}

async fn collect_once_shut(c: &C) -> Result<(), IndexError> {
    wait_for(c, gate()).await?;
    collect(c, &c.shared().seat()).await
}

/// Expels E as well, which has died, and then does the work of E again.
async fn take_over(c: &C) -> Result<(), IndexError> {
    let seat = c.shared().seat();
    for _ in 0..2 {
        c.pass_time(LEASE);
        collect(c, &seat).await?;
    }
    for _ in 0..3 {
        collect(c, &seat).await?;
    }
    sum_up(c, &c.shared().locks).await
}
