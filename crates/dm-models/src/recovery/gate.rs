//! The model of the gate. It runs the shipped locks, gate and sweep, but has a look of its own, which is a single READ.
//! So the model is small enough to be searched completely. The model `shares` runs the looks of the shipped allocator.

use dm_alloc::Sweep;
use dm_explore::{Client, Counter, Knobs, Model};
use dm_index::IndexError;
use dm_lock::{LockPlace, LockWord, Locks};
use dm_sync::atomic::{AtomicU64, Ordering};
use dm_sync::roster::Roster;
use dm_sync::{Arc, Fingerprint, count_section, fingerprint_of};
use dm_verbs::{Control, ControlRequest, Env, NodeId, RemotePtr, Verbs, Why};

use super::sums::{LEN, add, every_add_counts, restored, sharing, sum_up, wait_for};
use crate::locks::{lock_word, node, one_lock};
use crate::{Case, Entry, Explorable, How, Kind, Setting, Twin};

pub(crate) const ENTRY: Entry = Entry {
    name: "gate",
    kind: Kind::Crash,
    source: "docs/protocol/recovery.md V10–V13; docs/protocol/lock.md L14–L17",
    about: "S, of the first member, adds under a share and may die at any step. E, of the second, fences it, shuts the \
        gate, awaits the answers, resets the counts of sharers, opens the gate, and then holds the lock alone. T, of the \
        third, adds twice, under a share or alone, and answers between two of its operations. In `two clients` U, of the \
        same compute node, looks while T adds. So it does in `dropped`, where T drops its first share without awaiting \
        anything. In `a member joins`, T takes its slot at any time. No add is lost or counted twice, and at the end no \
        share is counted.",
    cases: || {
        let mut cases = Vec::new();
        for knobs in [Knobs::declared(), Knobs::weak()] {
            cases.push(Case::holds("a sharer dies", knobs.clone().crashes(1)));
            cases.push(Case::holds("two clients", knobs.clone()));
            cases.push(Case::holds("dropped", knobs.clone()));
            cases.push(Case::holds("a member joins", knobs));
        }
        let knobs = Knobs::declared().crashes(1);
        cases.push(Case::holds("a sharer dies, two clients", knobs));
        cases
    },
    published: None,
    mutants: &[
        Twin {
            name: "no-fence",
            about: "the counts are reset although the dead client is not fenced",
            cases: || wrong("a sharer dies", Knobs::declared().crashes(1)),
        },
        Twin {
            name: "no-gate",
            about: "clients begin shares while the gate is shut",
            cases: || wrong("a sharer dies", Knobs::declared()),
        },
        Twin {
            name: "nobody-answers",
            about: "the counts are reset before the other members have answered",
            cases: || wrong("two clients", Knobs::declared()),
        },
        Twin {
            name: "answers-early",
            about: "a member answers although one of its clients shares",
            cases: || wrong("two clients", Knobs::declared()),
        },
        Twin {
            name: "unsettled",
            about: "a member answers although the requests of a share that was dropped may still land",
            cases: || wrong("dropped", Knobs::declared()),
        },
        Twin {
            name: "joins-late",
            about: "a member that joins reads the gate before it takes its slot",
            cases: || wrong("a member joins", Knobs::declared()),
        },
    ],
    build,
};

fn wrong(shape: &'static str, knobs: Knobs) -> Vec<Case> {
    let case = Case::fails(How::Invariant, shape, knobs);
    vec![case.or(How::Check).or(How::Stuck)]
}

/// The line that a look reads: the gate (0: open, 1: shut, 2: open again), then whether T's member has a slot, and
/// whether it has answered. The next line has the mark of S's slot.
const GATE: RemotePtr = match RemotePtr::new(NodeId(0), 512) {
    Some(at) => at,
    None => RemotePtr::NULL,
};
const SHUT: u64 = 1;
/// The number of clients for which the gate has words; the model has fewer.
const CLIENTS: u16 = 8;
const OPENED: u64 = 2;

fn slot() -> RemotePtr {
    GATE.add(8)
}
fn answer() -> RemotePtr {
    GATE.add(16)
}
fn mark() -> RemotePtr {
    GATE.add(64)
}

/// The result of a look.
#[derive(Clone, Copy)]
struct Look {
    gate: u64,
    is_member: bool,
    answered: bool,
}

/// The mistakes of broken twins.
#[derive(Clone, Copy)]
struct Flaws {
    no_fence: bool,
    no_gate: bool,
    nobody_answers: bool,
    answers_early: bool,
    unsettled: bool,
    joins_late: bool,
}

/// The state that the clients of one compute node share.
struct Node {
    locks: Locks,
    roster: Arc<Roster>,
    /// The latest word of the gate that is recorded on this compute node.
    known: AtomicU64,
}

impl Fingerprint for Node {
    fn fingerprint(&self) -> u64 {
        // Relaxed: fingerprints are taken between steps, while no client runs.
        let known = self.known.load(Ordering::Relaxed);
        fingerprint_of(&(self.locks.fingerprint(), self.roster.fingerprint(), known))
    }
}

type C = Client<Node, Counter>;

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let flaws = Flaws {
        no_fence: s.mutant("no-fence"),
        no_gate: s.mutant("no-gate"),
        nobody_answers: s.mutant("nobody-answers"),
        answers_early: s.mutant("answers-early"),
        unsettled: s.mutant("unsettled"),
        joins_late: s.mutant("joins-late"),
    };
    let shape = s.shape.to_owned();
    let (joins, drops, dies) = (
        shape == "a member joins",
        shape == "dropped",
        shape.starts_with("a sharer dies"),
    );
    let looks = shape.ends_with("two clients") || drops;
    let model = Model::new(s.title.clone())
        .shared(|on| {
            let roster = Arc::new(Roster::default());
            roster.join(1 + on);
            let locks = Locks::new(sharing(), one_lock(LockPlace::Chip)).in_roster(roster.clone());
            let known = AtomicU64::new(0);
            Node { locks, roster, known }
        })
        .fingerprint(Fingerprint::fingerprint)
        .spec(Counter(0))
        .place(node(), LEN, "sum and words")
        .place(lock_word(LockPlace::Chip), 8, "lock")
        .place(GATE, LEN, "gate, slot and answer")
        .place(mark(), 8, "mark of S")
        .invariant("every add counts once", |end| every_add_counts(end, 3))
        .invariant("nothing is shared, and the gate is open", |end| {
            restored(end, end.word(GATE) != SHUT)
        });
    let model = model.client("S", 0, move |c: C| async move {
        if dies {
            // An error means that the client was fenced.
            let _fenced = add_as_member(&c).await;
        }
    });
    let model = model
        .client("E", 1, move |c: C| async move {
            let done = expel(&c, joins, flaws).await;
            c.check(done.is_ok(), || format!("{done:?}"));
        })
        .spared()
        .client("T", 2, move |c: C| async move {
            let done = if joins {
                join(&c, flaws).await
            } else {
                share(&c, drops, flaws).await
            };
            c.check(done.is_ok(), || format!("{done:?}"));
        })
        .spared();
    Box::new(match looks {
        true => model
            .client("U", 2, move |c: C| async move {
                let done = async {
                    wait_for(&c, GATE).await?;
                    look_and_answer(&c, flaws).await
                };
                let done = done.await;
                c.check(done.is_ok(), || format!("{done:?}"));
            })
            .spared(),
        false => model,
    })
}

/// Reads the gate, and shuts or opens the gate of this compute node.
async fn look(c: &C, flaws: Flaws) -> Result<Look, IndexError> {
    let line = c.verbs().read(GATE, LEN).await?;
    let word = |at: usize| line[at..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
    let [gate, is_member, answered] = [0, 8, 16].map(word);
    learn(c, gate, flaws);
    Ok(Look {
        gate,
        is_member: is_member != 0,
        answered: answered != 0,
    })
}

/// Records a word of the gate, and shuts or opens the gate of this compute node. Does nothing if this word or a later
/// one is recorded.
fn learn(c: &C, word: u64, flaws: Flaws) {
    let node = c.shared();
    count_section();
    // Relaxed: the explorer runs one client at a time.
    if node.known.fetch_max(word, Ordering::Relaxed) >= word {
        return;
    }
    match word {
        SHUT if flaws.no_gate => {}
        SHUT => node.roster.gate().shut(),
        _ => node.roster.gate().open(),
    }
}

/// Looks, and answers if the gate is shut and no client of this compute node shares.
async fn look_and_answer(c: &C, flaws: Flaws) -> Result<(), IndexError> {
    let look = look(c, flaws).await?;
    let (v, node) = (c.verbs(), c.shared());
    let gate = node.roster.gate();
    let client = v.client().0;
    let unsettled = gate.unsettled(client);
    if look.gate == SHUT && unsettled > 0 {
        // Everything that this client has posted before has landed when this READ is answered.
        v.word(own_word()).await?;
        gate.settle(client, unsettled);
    }
    if flaws.unsettled {
        (0..CLIENTS).for_each(|client| gate.settle(client, gate.unsettled(client)));
    }
    let clear = flaws.answers_early || node.roster.is_clear(node.roster.own());
    if look.gate == SHUT && !look.answered && clear {
        v.write(answer(), &1u64.to_le_bytes()).await?;
    }
    Ok(())
}

fn enlist(c: &C) {
    let roster = &c.shared().roster;
    roster.enlist(c.verbs().client().0, roster.own());
}

/// Adds as a client of the member that is expelled.
async fn add_as_member(c: &C) -> Result<(), IndexError> {
    let v = c.verbs();
    v.call(ControlRequest::Enlist { member: 1 }).await?;
    // A client that enlists too late to be fenced finds the mark (R6).
    if v.word(mark()).await? != 0 {
        return Ok(());
    }
    enlist(c);
    add(c, &c.shared().locks, node().add(8)).await
}

/// Expels S, has the counts of sharers reset, and takes the lock alone.
async fn expel(c: &C, joins: bool, flaws: Flaws) -> Result<(), IndexError> {
    let (v, node) = (c.verbs(), c.shared());
    enlist(c);
    let sweep = Sweep {
        tables: vec![lock_word(LockPlace::Chip)].into(),
        words: 1,
        freed: LockWord::freed,
        unshared: LockWord::unshared,
    };
    v.write(mark(), &1u64.to_le_bytes()).await?;
    if !flaws.no_fence {
        v.call(ControlRequest::FenceMember { member: 1 }).await?;
    }
    sweep.run(v, 1).await?;
    node.roster.bury(1);
    v.cas(GATE, 0, SHUT).await?;
    learn(c, SHUT, flaws);
    // These looks are posted when the gate is known to be shut (V12).
    let mut retry = v.retry(1 << 10);
    loop {
        let found = look(c, flaws).await?;
        if found.answered || joins && !found.is_member || flaws.nobody_answers {
            break;
        }
        retry.again(GATE, Why::Changing).await?;
    }
    let reset = Sweep {
        freed: |word, _| LockWord::unshared(word),
        ..sweep
    };
    reset.run(v, 0).await?;
    v.cas(GATE, SHUT, OPENED).await?;
    learn(c, OPENED, flaws);
    sum_up(c, &node.locks).await
}

/// Adds, looks, adds again, and answers if the compute node has not answered yet. With `drops`, drops a share instead
/// of the first add.
async fn share(c: &C, drops: bool, flaws: Flaws) -> Result<(), IndexError> {
    let (v, locks) = (c.verbs(), &c.shared().locks);
    enlist(c);
    match drops {
        // An error means that sharing is forbidden.
        true => drop(locks.share_and_read(v, node(), own_word(), 8).await.ok()),
        false => add(c, locks, own_word()).await?,
    }
    look_and_answer(c, flaws).await?;
    add(c, locks, own_word()).await?;
    wait_for(c, GATE).await?;
    look_and_answer(c, flaws).await
}

/// Takes a slot, adds, and answers.
async fn join(c: &C, flaws: Flaws) -> Result<(), IndexError> {
    let v = c.verbs();
    enlist(c);
    if flaws.joins_late {
        look(c, flaws).await?;
    }
    v.write(slot(), &1u64.to_le_bytes()).await?;
    if !flaws.joins_late {
        look_and_answer(c, flaws).await?;
    }
    add(c, &c.shared().locks, own_word()).await?;
    wait_for(c, GATE).await?;
    look_and_answer(c, flaws).await
}

/// Returns the address of T's word.
fn own_word() -> RemotePtr {
    node().add(16)
}
