//! Small protocols that test the engine: correct ones pass, and each broken twin fails.

#![expect(
    clippy::unwrap_used,
    reason = "a panic is how a test, or a client in one, fails"
)]

use dm_explore::{Client, Counter, CounterOp, Failure, Knobs, Model, NoSpec, Search};
use dm_lock::{GlobalLockTable, LockFlaws, LockOptions, Locks};
use dm_verbs::{Capability, ChipPtr, Env, LineOrder, NodeId, RemotePtr, Verbs};

fn at(offset: u64) -> RemotePtr {
    RemotePtr::new(NodeId(0), offset).unwrap()
}

/// Returns a model of two clients that read a counter and write it back without a lock.
fn unlocked() -> Model<(), Counter> {
    let add = |c: Client<(), Counter>| async move {
        let v = c.verbs();
        c.op(CounterOp::Add(1), async {
            let old = v.word(at(64)).await.unwrap();
            v.write(at(64), &(old + 1).to_le_bytes()).await.unwrap();
            old
        })
        .await;
    };
    Model::new("lost update")
        .spec(Counter(0))
        .place(at(64), 8, "counter")
        .client("A", 0, add)
        .client("B", 1, add)
}

#[test]
fn an_update_without_a_lock_is_lost() {
    let found = unlocked().run(Search::exhaustive()).expect_counterexample();
    assert!(
        matches!(found.failure, Failure::NotLinearizable { .. }),
        "{found}"
    );
    println!("{found}");
    assert!(
        found.shortest && found.steps.len() == 6,
        "start, read, start, read, write, write\n{found}"
    );
    let again = unlocked().replay(&found.trace).unwrap();
    assert_eq!((&again.failure, &again.steps), (&found.failure, &found.steps));
}

/// Returns a model with a lock on one memory node and its data on another. If `awaited` is set, the client releases
/// the lock only after its WRITE has completed; otherwise, the WRITE may still be in flight.
fn two_nodes(awaited: bool) -> Model {
    let lock = RemotePtr::new(NodeId(1), 64).unwrap();
    let client = move |c: Client<(), NoSpec>| async move {
        let (v, me) = (c.verbs(), u64::from(c.verbs().client().0));
        if v.cas(lock, 0, me).await.unwrap() != 0 {
            return;
        }
        c.enter("critical");
        c.ghost("posted", me);
        let writing = v.chain(NodeId(0)).write_word(at(64), me).post();
        if awaited {
            writing.await.unwrap();
        }
        c.leave("critical");
        v.cas(lock, me, 0).await.unwrap();
    };
    Model::new("two memory nodes")
        .memory_nodes(2)
        .client("A", 0, client)
        .client("B", 1, client)
        .always("free means landed", move |now| {
            let (landed, posted) = (now.word(at(64)), now.ghost("posted"));
            if now.word(lock) == 0 && landed != posted {
                return Err(format!("free, and {posted} has not landed: {landed}"));
            }
            Ok(())
        })
        .always("who is inside has the lock", move |now| {
            if now.ghost("critical") == 1 && now.word(lock) == 0 {
                return Err("nobody has it".to_owned());
            }
            Ok(())
        })
}

#[test]
fn a_ghost_shows_what_is_under_way_and_is_told() {
    for search in [Search::exhaustive(), Search::naive()] {
        two_nodes(true).run(search).expect_pass();
    }
    for search in [Search::exhaustive(), Search::naive(), Search::random(1, 100)] {
        let found = two_nodes(false).run(search).expect_counterexample();
        let name = "free means landed";
        assert!(
            matches!(found.failure, Failure::Invariant { name: n, .. } if n == name),
            "{found}"
        );
        assert!(found.to_string().contains("ghost posted 0 → "), "{found}");
        let again = two_nodes(false).replay(&found.trace).unwrap();
        assert_eq!((&again.failure, &again.steps), (&found.failure, &found.steps));
    }
}

/// Returns a model in which clients on these compute nodes each add to a counter under dm-lock.
fn hocl(name: &str, nodes: &[u16], options: LockOptions, adds: u32) -> Model<Locks, Counter> {
    let table = GlobalLockTable::on_chip(1, 1);
    let model = Model::new(name)
        .shared(move |_| Locks::new(options, table.clone()))
        .spec(Counter(0))
        .place(at(4096), 64, "node")
        .place(ChipPtr::new(NodeId(0), 0).unwrap(), 8, "lock");
    let mut model = model.invariant("free at the end", |end| {
        let word = dm_lock::LockWord::unpack(end.word(ChipPtr::new(NodeId(0), 0).unwrap()));
        if word.locked {
            Err(format!("held: {word:?}"))
        } else {
            Ok(())
        }
    });
    for (i, &node) in nodes.iter().enumerate() {
        let name = char::from(b'A' + i as u8).to_string();
        model = model.client(name, node, move |c| async move {
            for _ in 0..adds {
                c.op(CounterOp::Add(1), add(&c)).await;
            }
        });
    }
    model
}

async fn add(c: &Client<Locks, Counter>) -> u64 {
    let (v, node) = (c.verbs(), at(4096));
    let (guard, bytes) = c.shared().lock_and_read(v, node, node, 8).await.unwrap();
    c.enter("critical");
    let old = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    c.leave("critical");
    guard
        .write_back(v.chain(node.node()).write_word(node, old + 1))
        .await
        .unwrap();
    old
}

#[test]
fn hierarchical_locks_pass() {
    for (nodes, name) in [(&[0, 0][..], "1x2"), (&[0, 1], "2x1"), (&[0, 0, 1], "2+1")] {
        for knobs in [Knobs::weak(), Knobs::weakest(), Knobs::declared()] {
            let verdict = hocl(name, nodes, LockOptions::default(), 1).run_with(&knobs, Search::exhaustive());
            println!("{verdict}");
            verdict.expect_pass();
        }
    }
}

#[test]
fn handing_over_before_the_write_back_loses_an_update() {
    let flaws = LockFlaws {
        handover_before_write_back: true,
        ..LockFlaws::default()
    };
    let options = LockOptions {
        flaws,
        ..LockOptions::default()
    };
    let found = hocl("T-S3", &[0, 0], options, 1)
        .run(Search::exhaustive())
        .expect_counterexample();
    println!("{found}");
    assert!(
        matches!(found.failure, Failure::NotLinearizable { .. }),
        "{found}"
    );
}

#[test]
fn lock_and_read_on_a_card_that_serves_the_read_first_loses_an_update() {
    let model = hocl("T: lock-and-read forced", &[0, 1], LockOptions::default(), 1);
    let forced = Knobs::weak().pretend(Capability::CasThenReadInOrder);
    let found = model
        .run_with(&forced, Search::exhaustive())
        .expect_counterexample();
    assert!(
        matches!(found.failure, Failure::NotLinearizable { .. }),
        "{found}"
    );
}

/// Returns a model with one version before and one after the payload, a word each. The reader accepts equal versions.
fn bookend(write_order: LineOrder, read_order: LineOrder) -> Model<(), NoSpec> {
    let knobs = Knobs {
        unit: dm_verbs::AtomicUnit::Word,
        write_lines: write_order,
        read_lines: read_order,
        ..Knobs::strong()
    };
    Model::new("bookend versions")
        .place(at(64), 32, "node")
        .knobs(knobs)
        .client("writer", 0, |c: Client<(), NoSpec>| async move {
            let node: Vec<u8> = [1u64, 1, 1, 1].iter().flat_map(|w| w.to_le_bytes()).collect();
            c.verbs().write(at(64), &node).await.unwrap();
        })
        .client("reader", 1, |c| async move {
            let bytes = c.verbs().read(at(64), 32).await.unwrap();
            let words: Vec<u64> = bytes
                .chunks(8)
                .map(|w| u64::from_le_bytes(w.try_into().unwrap()))
                .collect();
            c.check(words[0] != words[3] || words[1] == words[2], || {
                format!("accepted torn payload {words:?}")
            });
        })
}

#[test]
fn bookend_versions_fail_even_in_increasing_order() {
    let found = bookend(LineOrder::Increasing, LineOrder::Increasing)
        .run(Search::exhaustive())
        .expect_counterexample();
    println!("{found}");
    // Both clients start. In the six steps that follow, the reader reads its four words, and the writer writes its
    // first two words meanwhile. The check happens in the last step.
    println!("{}", found.chart());
    assert_eq!(found.steps.len(), 8, "{found}");
    assert!(
        !bookend(LineOrder::Any, LineOrder::Any)
            .run(Search::exhaustive())
            .is_pass()
    );
    // Atomic lines hide this failure, because the whole node lies in one line.
    let lines = Knobs::weak();
    bookend(LineOrder::Any, LineOrder::Any)
        .run_with(&lines, Search::exhaustive())
        .expect_pass();
}

#[test]
fn a_cancelled_client_leaves_no_lock_behind() {
    for nodes in [&[0, 0][..], &[0, 1], &[0, 0, 1]] {
        for knobs in [Knobs::weak(), Knobs::declared()] {
            let verdict = hocl("one cancelled", nodes, LockOptions::default(), 1)
                .run_with(&knobs.cancels(1), Search::exhaustive());
            println!("{}", verdict.to_string().lines().next().unwrap());
            verdict.expect_pass();
        }
    }
}

#[test]
fn a_dead_holder_leaves_the_lock_held() {
    let model = hocl("holder dies", &[0, 1], LockOptions::default(), 1);
    let found = model
        .run_with(&Knobs::declared().crashes(1), Search::exhaustive())
        .expect_counterexample();
    assert!(
        matches!(found.failure, Failure::Stuck { .. } | Failure::Invariant { .. }),
        "{found}"
    );
}

#[test]
fn a_fingerprint_of_the_lock_table_agrees_with_folding() {
    let folded = hocl("2+1", &[0, 0, 1], LockOptions::default(), 1);
    let told =
        hocl("2+1", &[0, 0, 1], LockOptions::default(), 1).fingerprint(dm_sync::Fingerprint::fingerprint);
    let (folded, told) = (
        folded.run(Search::exhaustive()).expect_pass(),
        told.run(Search::exhaustive()).expect_pass(),
    );
    println!(
        "folded {} states, {} ends; told {} states, {} ends",
        folded.states, folded.ends, told.states, told.ends
    );
    assert!(told.states <= folded.states && told.ends <= folded.ends);
}

#[test]
fn every_search_ends_alike_under_dm_lock() {
    for (nodes, knobs) in [
        (&[0, 0][..], Knobs::weak()),
        (&[0, 0], Knobs::declared()),
        (&[0, 1], Knobs::declared()),
    ] {
        let model = hocl("twice", nodes, LockOptions::default(), 1);
        let naive = model
            .run_with(&knobs, Search::naive().steps(40_000_000))
            .expect_pass();
        let both = model.run_with(&knobs, Search::exhaustive()).expect_pass();
        println!(
            "{} runs one by one, {} with cache and sleep sets",
            naive.executions, both.executions
        );
        assert_eq!((naive.ends, naive.ends_hash), (both.ends, both.ends_hash));
    }
}
