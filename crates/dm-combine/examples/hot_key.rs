//! Measures the savings and the cost of sharing, over loopback, by runs without and with sharing. It prints the verbs
//! per operation, once if all coroutines use one key and once if each has its own key. It also prints the time per
//! operation of a client that runs alone, and the size of the local locks.
#![expect(clippy::print_stdout, reason = "an example that measures prints")]

use dm_combine::{Combined, Combiner, Rdwc};
use dm_index::{IndexError, Key8, RangeIndex, Words};
use dm_loopback::{Endpoint, Loopback, block_on, run_all};
use dm_verbs::{Counters, Env, NodeId, RemotePtr};

const CLIENTS: u64 = 16;
const TIMES: u64 = 2_000;
const ALONE: u64 = 400_000;

type Client<'h> = Combined<'h, Endpoint, Words<'h, Endpoint>>;

async fn work(client: &Client<'_>, key: Key8, times: u64) -> Result<(), IndexError> {
    let mut value = Vec::new();
    for n in 0..times {
        client.upsert(&key, &(n as u32).to_le_bytes()).await?;
        client.get(&key, &mut value).await?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let base = RemotePtr::new(NodeId(0), 4096).expect("a small offset");
    let on = Combiner::new(&Rdwc::ON);
    for (name, table) in [("the index alone", None), ("shared", Some(&on))] {
        for (whose, keys) in [("one key", 1), ("a key each", CLIENTS)] {
            // Completions are delayed, so that operations overlap.
            let world = Loopback::builder().delays(3).build()?;
            let v = (0..CLIENTS)
                .map(|_| world.connect(0))
                .collect::<Result<Vec<_>, _>>()?;
            let clients: Vec<_> = v
                .iter()
                .map(|v| Combined::new(v, Words::new(v, base, CLIENTS), table))
                .collect();
            let all = clients
                .iter()
                .zip(0..)
                .map(|(client, n)| work(client, Key8(n % keys), TIMES));
            run_all(all).into_iter().collect::<Result<(), _>>()?;
            let sum = v
                .iter()
                .fold(Counters::default(), |sum, v| sum + v.meter().counters());
            let per_op = |n: u64| n as f64 / (CLIENTS * TIMES * 2) as f64;
            println!(
                "{name:16} {whose:11} {:5.2} verbs an operation, {:4.2} delegated, {:4.2} combined",
                per_op(sum.verbs()),
                per_op(sum.delegated),
                per_op(sum.combined),
            );
        }
        let world = Loopback::builder().build()?;
        let v = world.connect(0)?;
        let client = Combined::new(&v, Words::new(&v, base, 1), table);
        block_on(work(&client, Key8(0), ALONE / 10))?;
        let start = v.now();
        block_on(work(&client, Key8(0), ALONE))?;
        println!(
            "{name:16} {:5} ns an operation, alone",
            (v.now() - start).0 / ALONE / 2
        );
    }
    println!("{} bytes of local locks", on.bytes());
    Ok(())
}
