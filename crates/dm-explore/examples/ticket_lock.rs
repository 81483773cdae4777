//! A model of an RDMA ticket lock, and its broken twin. `docs/model-your-lock.md` explains the same lock.

#![expect(clippy::print_stdout, reason = "an example shows its output")]

use dm_explore::{Client, Counter, CounterOp, Knobs, Model, Search, Verdict};
use dm_verbs::{NodeId, RemotePtr, VerbError, Verbs, Why};

/// Returns the address of word `i`. Word 1 holds the next ticket, word 2 the ticket being served, and word 3 the
/// counter that the lock guards.
const fn word(i: u64) -> RemotePtr {
    match RemotePtr::new(NodeId(0), 64 * i) {
        Some(p) => p,
        None => RemotePtr::NULL,
    }
}
const NEXT: RemotePtr = word(1);
const SERVING: RemotePtr = word(2);
const COUNT: RemotePtr = word(3);

/// The order in which a client releases the lock and writes the data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Release {
    /// The WRITE of the data and the WRITE of the lock are in one chain. WRITEs of one queue pair take effect in
    /// order.
    Chained,
    /// Broken: the client releases the lock before it writes the data.
    First,
}

/// Adds one under the lock and returns the old value. The function is generic over the world, so the explorer runs
/// exactly the code that a program runs.
async fn add_one<V: Verbs>(v: &V, release: Release) -> Result<u64, VerbError> {
    let ticket = v.faa(NEXT, 1).await?;
    let mut retry = v.retry(1000);
    while v.word(SERVING).await? != ticket {
        if retry
            .again(SERVING, Why::LockHeld { word: ticket })
            .await
            .is_err()
        {
            unreachable!("the explorer rewinds attempts; a real client would report this");
        }
    }
    let old = v.word(COUNT).await?;
    let (data, next) = ((old + 1).to_le_bytes(), (ticket + 1).to_le_bytes());
    match release {
        Release::Chained => {
            v.chain(NodeId(0))
                .write(COUNT, &data)
                .write(SERVING, &next)
                .post()
                .await?
        }
        Release::First => {
            v.chain(NodeId(0))
                .write(SERVING, &next)
                .write(COUNT, &data)
                .post()
                .await?
        }
    }
    Ok(old)
}

/// Returns the model: clients on separate compute nodes each add one.
fn model(name: &str, clients: u16, release: Release) -> Model<(), Counter> {
    let mut model = Model::new(name)
        .spec(Counter(0))
        .place(NEXT, 8, "next ticket")
        .place(SERVING, 8, "now serving")
        .place(COUNT, 8, "count")
        .invariant("every add counted", move |end| match end.word(COUNT) {
            n if n == u64::from(clients) => Ok(()),
            n => Err(format!("{n} of {clients}")),
        });
    for i in 0..clients {
        model = model.client(
            format!("client {}", i + 1),
            i,
            move |c: Client<(), Counter>| async move {
                let add = async {
                    add_one(c.verbs(), release)
                        .await
                        .expect("no faults in this model")
                };
                c.op(CounterOp::Add(1), add).await;
            },
        );
    }
    model
}

fn main() {
    for knobs in [Knobs::weak(), Knobs::weakest()] {
        println!(
            "{}",
            model("ticket lock", 3, Release::Chained).run_with(&knobs, Search::exhaustive())
        );
    }
    match model("ticket lock, released first", 2, Release::First).run(Search::exhaustive()) {
        Verdict::Counterexample(found) => println!("{found}\n\n{}", found.chart()),
        other => println!("no counterexample was found for the broken twin: {other}"),
    }
}

#[test]
fn the_lock_passes_and_its_twin_fails() {
    for knobs in [Knobs::weak(), Knobs::weakest()] {
        model("ticket lock", 3, Release::Chained)
            .run_with(&knobs, Search::exhaustive())
            .expect_pass();
    }
    let found = model("released first", 2, Release::First)
        .run(Search::exhaustive())
        .expect_counterexample();
    assert!(found.shortest, "{found}");
}
