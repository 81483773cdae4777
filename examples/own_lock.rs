//! Model-checks a spin lock of one word: once as it should be, and once with a flaw that the explorer finds.
//! Run: `cargo run -p dmkit-examples --bin own_lock`. docs/model-your-lock.md explains every line.
#![expect(clippy::print_stdout, reason = "an example prints")]

use dm_explore::{Client, Knobs, Model, NoSpec, Search};
use dm_verbs::{NodeId, RemotePtr, VerbError, Verbs, Why};

fn word(n: u64) -> RemotePtr {
    RemotePtr::new(NodeId(0), 64 * n).expect("within 48 bits")
}

/// Adds 1 to a word under the lock. This is the code that would ship: it runs in every world.
async fn add_one<V: Verbs>(v: &V, atomic: bool) -> Result<(), VerbError> {
    let (lock, count, me) = (word(1), word(2), u64::from(v.client().0));
    let mut retry = v.retry(100);
    loop {
        // The flaw: another client can take the lock between the READ and the WRITE.
        if atomic && v.cas(lock, 0, me).await? == 0 {
            break;
        } else if !atomic && v.word(lock).await? == 0 {
            break v.write(lock, &me.to_le_bytes()).await?;
        }
        let held = Why::LockHeld { word: me };
        retry.again(lock, held).await.expect("within the budget");
    }
    let old = v.word(count).await?;
    // One queue pair executes its WRITEs in order, so the count is written before the lock is free.
    let unlock = v.chain(NodeId(0)).write_word(count, old + 1);
    unlock.write_word(lock, 0).await.map(drop)
}

fn model(atomic: bool) -> Model<(), NoSpec> {
    let client =
        move |c: Client<(), NoSpec>| async move { add_one(c.verbs(), atomic).await.expect("no faults") };
    let none_lost = |count| {
        if count == 2 {
            Ok(())
        } else {
            Err(format!("the count is {count}, not 2"))
        }
    };
    Model::new("spin lock")
        .place(word(1), 8, "lock")
        .place(word(2), 8, "count")
        .client("A", 0, client)
        .client("B", 1, client)
        .invariant("no addition is lost", move |end| none_lost(end.word(word(2))))
        .knobs(Knobs::weakest())
}

fn main() {
    println!("{}", model(true).run(Search::exhaustive()).expect_pass());
    println!(
        "{}",
        model(false).run(Search::exhaustive()).expect_counterexample()
    );
}
