//! Model-checks a spin lock of one word. With a CAS as its unlock, the lock is correct on every card that keeps to the
//! specification. With a WRITE as its unlock, the explorer finds a card on which another client's CAS undoes the WRITE.
//! Run: `cargo run -p dmkit-examples --bin own_lock`. docs/model-your-lock.md explains such models with a ticket lock.
#![expect(clippy::print_stdout, reason = "an example prints")]

use dm_explore::{Client, Knobs, Model, NoSpec, Search};
use dm_verbs::{NodeId, RemotePtr, VerbError, Verbs, Why};

/// Returns the address of a word in a line of its own.
fn word(n: u64) -> RemotePtr {
    RemotePtr::new(NodeId(0), 64 * n).expect("within 48 bits")
}

/// Adds 1 to a word under the lock. This is the code that would ship: it runs in every world.
async fn add_one<V: Verbs>(v: &V, unlock_by_cas: bool) -> Result<(), VerbError> {
    let (lock, count, me) = (word(1), word(2), u64::from(v.client().0));
    let mut retry = v.retry(100);
    loop {
        let word = v.cas(lock, 0, me).await?;
        if word == 0 {
            break;
        }
        let again = retry.again(lock, Why::LockHeld { word });
        again.await.expect("within the budget");
    }
    let old = v.word(count).await?;
    // One queue pair executes a chain in order, so the count is written before the lock is free.
    let write = v.chain(NodeId(0)).write_word(count, old + 1);
    if unlock_by_cas {
        write.cas(lock, me, 0).await.map(drop)
    } else {
        write.write_word(lock, 0).await.map(drop)
    }
}

fn model(unlock_by_cas: bool) -> Model<(), NoSpec> {
    let client = move |c: Client<(), NoSpec>| async move {
        add_one(c.verbs(), unlock_by_cas).await.expect("no faults")
    };
    Model::new("spin lock")
        .place(word(1), 8, "lock")
        .place(word(2), 8, "count")
        .client("A", 0, client)
        .client("B", 1, client)
        .invariant("no addition is lost", |end| match end.word(word(2)) {
            2 => Ok(()),
            count => Err(format!("the count is {count}")),
        })
        .knobs(Knobs::weakest())
}

fn main() {
    let passed = model(true).run(Search::exhaustive()).expect_pass();
    println!("unlock by CAS: passes, {passed}");
    let found = model(false).run(Search::exhaustive()).expect_counterexample();
    println!("\nunlock by WRITE: {found}");
}
