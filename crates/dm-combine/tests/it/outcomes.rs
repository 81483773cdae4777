//! Tests which operation leads, which results the others get, and what happens if a leader fails or is dropped.

use crate::common::{Answered, Asked, BROKEN, Gate, Task, run};
use dm_combine::{Combined, Combiner, Rdwc, RdwcFlaws};
use dm_index::{Applied, IndexError, Key8, RangeIndex};
use dm_loopback::{Endpoint, Loopback};
use dm_sync::Fingerprint;
use dm_verbs::{Effect, Env};

type Client<'h> = Combined<'h, Endpoint, Gate>;

const FOUND: Answered = Answered::Got(Some(7));
const REPLACED: Answered = Answered::Applied(Applied::Replaced);
const INSERTED: Answered = Answered::Applied(Applied::Inserted);
const ABSENT: Answered = Answered::Applied(Applied::Absent);

/// Runs `test` with four clients of a compute node that has one lock for gets and one for writes.
fn with_clients(test: impl FnOnce([&Client<'_>; 4], &Gate)) {
    let world = Loopback::builder().build().expect("the world is built");
    let v = [0; 4].map(|cn| world.connect(cn).expect("the client connects"));
    let table = Combiner::new(&Rdwc { locks: 1, ..Rdwc::ON });
    let idle = table.fingerprint();
    let gate = Gate::default();
    let clients = v.each_ref().map(|v| Combined::new(v, gate.clone(), Some(&table)));
    test(clients.each_ref(), &gate);
    assert_eq!(table.fingerprint(), idle, "a client is left at a lock");
}

fn task<'a>(client: &'a Client<'_>, asked: Asked) -> Task<'a, Result<Answered, IndexError>> {
    Task::begun(run(client, asked))
}

fn delegated_and_combined(client: &Client<'_>) -> (u64, u64) {
    let counted = client.verbs().meter().counters();
    (counted.delegated, counted.combined)
}

#[test]
fn gathered_gets_share_the_next_read_and_not_the_current_one() {
    with_clients(|[a, b, c, d], gate| {
        let mut first = task(a, Asked::Get(1));
        let (mut second, mut third) = (task(b, Asked::Get(1)), task(c, Asked::Get(1)));
        assert_eq!(gate.count(), 1);
        gate.reply(0, Ok(Answered::Got(Some(6))));
        assert_eq!(first.step(), Some(Ok(Answered::Got(Some(6)))));
        // The operation that joined last leads.
        assert_eq!((second.step(), third.step(), gate.count()), (None, None, 2));
        let mut fourth = task(d, Asked::Get(1));
        gate.reply(1, Ok(FOUND));
        assert_eq!(
            second.step(),
            None,
            "the follower gets its answer when the leader is polled"
        );
        assert_eq!(third.step(), Some(Ok(FOUND)));
        assert_eq!(second.step(), Some(Ok(FOUND)));
        assert_eq!((fourth.step(), gate.count()), (None, 3));
        gate.reply(2, Ok(Answered::Got(None)));
        assert_eq!(fourth.step(), Some(Ok(Answered::Got(None))));
        assert_eq!([a, b, c, d].map(|c| delegated_and_combined(c).0), [0, 1, 0, 0]);
    });
}

/// Returns the results of two followers, an update and an upsert, if their leader's write gets this answer.
fn told(leader: Asked, answer: Answered) -> [Option<Answered>; 2] {
    let mut told = [None, None];
    with_clients(|[a, b, c, d], gate| {
        let mut first = task(a, Asked::Update(1, 1));
        let followers = [(b, Asked::Update(1, 2)), (c, Asked::Upsert(1, 3))];
        let mut followers = followers.map(|(client, asked)| task(client, asked));
        let mut newest = task(d, leader);
        gate.reply(0, Ok(REPLACED));
        assert_eq!(first.step(), Some(Ok(REPLACED)));
        assert_eq!(
            (newest.step(), gate.last()),
            (None, leader),
            "the leader must write its own value"
        );
        gate.reply(1, Ok(answer));
        assert_eq!(newest.step(), Some(Ok(answer)));
        for (told, follower) in told.iter_mut().zip(&mut followers) {
            *told = follower.step().map(|answer| answer.expect("no error"));
        }
        // A follower without a result runs its own operation.
        if told[1].is_none() {
            assert_eq!(gate.last(), Asked::Upsert(1, 3));
            gate.reply(2, Ok(INSERTED));
            assert_eq!(followers[1].step(), Some(Ok(INSERTED)));
        }
    });
    told
}

#[test]
fn followers_get_the_result_of_a_write_right_before_the_leaders() {
    let (update, upsert) = (Asked::Update(1, 4), Asked::Upsert(1, 4));
    assert_eq!(told(update, REPLACED), [Some(REPLACED), Some(REPLACED)]);
    assert_eq!(told(upsert, REPLACED), [Some(REPLACED), Some(REPLACED)]);
    assert_eq!(told(update, ABSENT), [Some(ABSENT), None]);
    assert_eq!(told(upsert, INSERTED), [Some(ABSENT), None]);
}

#[test]
fn an_error_is_only_the_leaders_and_the_oldest_follower_leads_next() {
    with_clients(|[a, b, c, d], gate| {
        assert_eq!(BROKEN.effect(), Effect::None);
        let unknown = IndexError::OutOfMemory { wanted: 1, nodes: 1 };
        for (error, round) in [(BROKEN, 0), (unknown, 1)] {
            let before = gate.count();
            let mut first = task(a, Asked::Update(1, 1));
            let (mut second, mut third) = (task(b, Asked::Update(1, 2)), task(c, Asked::Update(1, 3)));
            let mut fourth = task(d, Asked::Update(1, 4));
            gate.reply(before, Err(error));
            assert_eq!(first.step(), Some(Err(error)));
            assert_eq!((fourth.step(), gate.last()), (None, Asked::Update(1, 4)));
            gate.reply(before + 1, Err(error));
            assert_eq!(fourth.step(), Some(Err(error)));
            assert_eq!((third.step(), second.step()), (None, None));
            assert_eq!(
                gate.last(),
                Asked::Update(1, 2),
                "the operation that retries must lead first"
            );
            gate.reply(before + 2, Ok(REPLACED));
            assert_eq!(
                (second.step(), third.step()),
                (Some(Ok(REPLACED)), Some(Ok(REPLACED)))
            );
            assert_eq!(delegated_and_combined(c), (0, round + 1));
        }
    });
}

#[test]
fn followers_of_a_dropped_leader_continue() {
    with_clients(|[a, b, c, _], gate| {
        let first = task(a, Asked::Upsert(1, 1));
        let (second, mut third) = (task(b, Asked::Upsert(1, 2)), task(c, Asked::Upsert(1, 3)));
        drop(first);
        assert!(!second.is_woken() && third.is_woken(), "one is elected");
        assert_eq!((third.step(), gate.last()), (None, Asked::Upsert(1, 3)));
        // The leader is dropped in the middle of its write, while it has a follower.
        drop(third);
        let mut second = second;
        assert_eq!((second.step(), gate.last()), (None, Asked::Upsert(1, 2)));
        gate.reply(2, Ok(REPLACED));
        assert_eq!(second.step(), Some(Ok(REPLACED)));
    });
}

#[test]
fn another_operation_leads_if_the_elected_one_is_dropped() {
    with_clients(|[a, b, c, _], gate| {
        let mut first = task(a, Asked::Get(1));
        let (mut second, third) = (task(b, Asked::Get(1)), task(c, Asked::Get(1)));
        gate.reply(0, Ok(FOUND));
        assert_eq!(first.step(), Some(Ok(FOUND)));
        drop(third);
        assert_eq!((second.step(), gate.count()), (None, 2));
        gate.reply(1, Ok(FOUND));
        assert_eq!(second.step(), Some(Ok(FOUND)));
        // The last operation frees the lock: another key can take it.
        let mut first = task(a, Asked::Get(1));
        let second = task(b, Asked::Get(1));
        gate.reply(2, Ok(FOUND));
        assert_eq!(first.step(), Some(Ok(FOUND)));
        drop(second);
        drop(task(c, Asked::Get(2)));
        assert_eq!(c.verbs().meter().counters().went_alone, 0);
    });
}

#[test]
fn a_dropped_follower_leaves_nothing_behind() {
    with_clients(|[a, b, c, d], gate| {
        let mut first = task(a, Asked::Update(1, 1));
        // Waiters of the next epoch are dropped: first the first one, then the middle one, then the last one.
        for gone in 0..3 {
            let mut gathered = [b, c, d].map(|client| Some(task(client, Asked::Update(1, 2))));
            gathered[gone] = None;
        }
        let [second, third, fourth] = [b, c, d].map(|client| task(client, Asked::Update(1, 2)));
        let (mut second, mut fourth) = (second, fourth);
        gate.reply(0, Ok(REPLACED));
        assert_eq!((first.step(), fourth.step()), (Some(Ok(REPLACED)), None));
        // A waiter of a closed epoch is dropped. The other one still gets its result.
        drop(third);
        gate.reply(1, Ok(REPLACED));
        assert_eq!(fourth.step(), Some(Ok(REPLACED)));
        assert!(second.is_woken());
        assert_eq!(second.step(), Some(Ok(REPLACED)));
        assert_eq!(gate.count(), 2);
    });
    with_clients(|[a, b, c, _], gate| {
        let mut first = task(a, Asked::Update(1, 1));
        let (second, mut third) = (task(b, Asked::Update(1, 2)), task(c, Asked::Update(1, 3)));
        gate.reply(0, Ok(REPLACED));
        assert_eq!((first.step(), third.step()), (Some(Ok(REPLACED)), None));
        gate.reply(1, Ok(REPLACED));
        assert_eq!(third.step(), Some(Ok(REPLACED)));
        drop(second);
    });
}

#[test]
fn another_key_at_the_same_lock_runs_alone() {
    with_clients(|[a, b, c, _], gate| {
        let (first, second) = (task(a, Asked::Get(1)), task(b, Asked::Get(2)));
        // Gets and writes have separate locks.
        let third = task(c, Asked::Update(2, 2));
        assert_eq!(gate.count(), 3);
        assert_eq!(
            [a, b, c].map(|c| c.verbs().meter().counters().went_alone),
            [0, 1, 0]
        );
        drop((first, second, third));
    });
}

#[test]
fn other_operations_and_values_of_wrong_length_bypass_the_locks() {
    with_clients(|[a, b, c, d], gate| {
        let leads = task(a, Asked::Update(1, 1));
        let others = [
            task(b, Asked::Insert(1, 2)),
            task(c, Asked::Remove(1)),
            task(d, Asked::Remove(1)),
        ];
        assert_eq!(gate.count(), 4);
        let mut long = Task::new(dm_index::RangeIndex::update(b, &Key8(1), b"five!"));
        let refused = IndexError::ValueLength {
            found: 5,
            expected: 4,
        };
        assert_eq!(long.step(), Some(Err(refused)));
        drop((leads, others));
    });
}

#[test]
fn without_a_table_or_switched_off_nothing_is_shared() {
    let world = Loopback::builder().build().expect("the world is built");
    let v = world.connect(0).expect("the client connects");
    for rdwc in [
        Rdwc::OFF,
        Rdwc {
            delegate: true,
            ..Rdwc::OFF
        },
    ] {
        let table = Combiner::new(&rdwc);
        let gate = Gate::default();
        let clients = [0; 2].map(|_| Combined::new(&v, gate.clone(), Some(&table)));
        let tasks = clients
            .each_ref()
            .map(|c| (task(c, Asked::Get(1)), task(c, Asked::Update(1, 1))));
        assert_eq!(gate.count(), if rdwc.delegate { 3 } else { 4 });
        drop(tasks);
    }
    let (gate, off) = (Gate::default(), Combiner::<Key8>::new(&Rdwc::OFF));
    assert_eq!(off.bytes(), 0);
    let client = Combined::new(&v, gate.clone(), None);
    drop((task(&client, Asked::Get(1)), task(&client, Asked::Get(1))));
    assert_eq!(gate.count(), 2);
}

#[test]
fn a_table_takes_kilobytes() {
    let bytes = |locks| Combiner::<Key8>::new(&Rdwc { locks, ..Rdwc::ON }).bytes();
    assert!(bytes(128) <= 32 << 10, "{}", bytes(128));
    assert!(bytes(1024) <= 128 << 10, "{}", bytes(1024));
    assert_eq!(bytes(0), bytes(1));
    assert_eq!(bytes(1000), bytes(1024));
}

#[test]
fn a_waiter_is_woken_by_its_latest_waker() {
    with_clients(|[a, b, _, _], gate| {
        let mut first = task(a, Asked::Get(1));
        let mut second = task(b, Asked::Get(1));
        second.moves();
        gate.reply(0, Ok(FOUND));
        assert_eq!(first.step(), Some(Ok(FOUND)));
        assert!(second.is_woken());
        assert_eq!((second.step(), gate.count()), (None, 2));
        gate.reply(1, Ok(FOUND));
        assert_eq!(second.step(), Some(Ok(FOUND)));
        assert_eq!(a.value_bytes(), 4);
    });
}

#[test]
fn keys_of_different_locks_do_not_conflict() {
    let world = Loopback::builder().build().expect("the world is built");
    let rdwc = Rdwc {
        locks: 1 << 14,
        ..Rdwc::ON
    };
    let (table, gate) = (Combiner::new(&rdwc), Gate::default());
    let v = [0; 48].map(|cn| world.connect(cn).expect("the client connects"));
    let clients = v.each_ref().map(|v| Combined::new(v, gate.clone(), Some(&table)));
    let keys = (0..).zip(&clients);
    let tasks: Vec<_> = keys.map(|(key, client)| task(client, Asked::Get(key))).collect();
    assert_eq!(gate.count(), 48);
    let alone: u64 = v.iter().map(|v| v.meter().counters().went_alone).sum();
    assert!(
        alone <= 1,
        "{alone} of 48 keys found their lock taken by another key"
    );
    drop(tasks);
}

/// With the flaw, a get joins an earlier READ. The models rely on this.
#[test]
fn with_the_flaw_a_get_joins_a_read_that_was_posted_before() {
    let world = Loopback::builder().build().expect("the world is built");
    let flaws = RdwcFlaws {
        joins_earlier_read: true,
        ..RdwcFlaws::NONE
    };
    let (table, gate) = (Combiner::new(&Rdwc { flaws, ..Rdwc::ON }), Gate::default());
    let v = [0; 2].map(|cn| world.connect(cn).expect("the client connects"));
    let clients = v.each_ref().map(|v| Combined::new(v, gate.clone(), Some(&table)));
    let [mut first, mut second] = clients.each_ref().map(|client| task(client, Asked::Get(1)));
    gate.reply(0, Ok(FOUND));
    assert_eq!((first.step(), second.step()), (Some(Ok(FOUND)), Some(Ok(FOUND))));
    assert_eq!(gate.count(), 1);
}

/// Every waiting client is part of the fingerprint, because the explorer distinguishes states by it.
#[test]
fn tables_with_other_waiters_have_other_fingerprints() {
    let world = Loopback::builder().build().expect("the world is built");
    let v = [0; 3].map(|cn| world.connect(cn).expect("the client connects"));
    let table = Combiner::new(&Rdwc { locks: 1, ..Rdwc::ON });
    let gate = Gate::default();
    let clients = v.each_ref().map(|v| Combined::new(v, gate.clone(), Some(&table)));
    let mut seen = vec![table.fingerprint()];
    let mut tasks = Vec::new();
    for client in &clients {
        tasks.push(task(client, Asked::Update(1, 1)));
        seen.push(table.fingerprint());
    }
    for (i, one) in seen.iter().enumerate() {
        assert!(!seen[..i].contains(one), "{i} clients");
    }
    // A client that was dropped is no longer part of the fingerprint.
    tasks.pop();
    assert_eq!(table.fingerprint(), seen[2]);
    // A client that has its answer, but was not polled yet, is still part of the fingerprint.
    tasks.push(task(&clients[2], Asked::Update(1, 1)));
    for (call, leader) in [(0, 0), (1, 2)] {
        let _ = tasks[leader].step();
        gate.reply(call, Ok(REPLACED));
        assert_eq!(tasks[leader].step(), Some(Ok(REPLACED)));
    }
    assert_ne!(table.fingerprint(), seen[0]);
    assert_eq!(tasks[1].step(), Some(Ok(REPLACED)));
    assert_eq!(table.fingerprint(), seen[0]);
}

/// The flaw of the buffer needs several clients. A single client writes the right value.
#[test]
fn with_the_buffer_flaw_a_single_write_is_correct() {
    let world = Loopback::builder().build().expect("the world is built");
    let v = world.connect(0).expect("the client connects");
    let flaws = RdwcFlaws {
        buffer_of_lock: true,
        ..RdwcFlaws::NONE
    };
    let rdwc = Rdwc {
        locks: 1,
        flaws,
        ..Rdwc::ON
    };
    let (table, gate) = (Combiner::new(&rdwc), Gate::default());
    let client = Combined::new(&v, gate.clone(), Some(&table));
    let mut write = task(&client, Asked::Upsert(1, 7));
    assert_eq!(gate.last(), Asked::Upsert(1, 7));
    gate.reply(0, Ok(INSERTED));
    assert_eq!(write.step(), Some(Ok(INSERTED)));
}
