//! Measures the client CPU time per verb in this world, in nanoseconds, and reports the best of five runs. Run it while
//! no other thread of the machine is busy.
#![expect(clippy::print_stdout, reason = "the program prints a table")]

use dm_loopback::{Endpoint, Loopback, block_on};
use dm_verbs::{Control, Env, NodeId, RemotePtr, VerbError, Verbs};

const OPS: u32 = 1_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Loopback::builder().nodes(1).build()?.connect(0)?;
    let v = &client;
    let base = block_on(v.chunk(NodeId(0), 1 << 20))?;
    let near = |i: u32| base.add(u64::from(i % 512) * 1024);
    row(v, "READ 64 B", async |i| v.read(near(i), 64).await.map(drop))?;
    row(v, "READ 1 KiB", async |i| v.read(near(i), 1024).await.map(drop))?;
    row(v, "word READ", async |i| v.word(near(i)).await.map(drop))?;
    row(v, "WRITE 64 B", async |i| v.write(near(i), &[1; 64]).await)?;
    row(v, "WRITE 64 B, ticket dropped", async |i| {
        v.write(near(i), &[1; 64]).detach();
        Ok(())
    })?;
    row(v, "CAS", async |i| v.cas(near(i), 0, 0).await.map(drop))?;
    row(v, "CAS + READ 1 KiB, one chain", async |i| {
        v.chain(NodeId(0))
            .cas(near(i), 0, 0)
            .read(near(i), 1024)
            .await
            .map(drop)
    })?;
    row(v, "WRITE 64 B + unlock, one chain", async |i| {
        v.chain(NodeId(0))
            .write(near(i), &[1; 64])
            .write_word(near(i), 0)
            .await
    })?;
    row(v, "4 READs of 128 B in flight", async |i| {
        gather(v, near(i)).await
    })?;
    Ok(())
}

async fn gather(v: &Endpoint, at: RemotePtr) -> Result<(), VerbError> {
    let posted = [0, 128, 256, 384].map(|offset| v.read(at.add(offset), 128));
    for ticket in posted {
        ticket.await?;
    }
    Ok(())
}

fn row(v: &Endpoint, name: &str, op: impl AsyncFn(u32) -> Result<(), VerbError>) -> Result<(), VerbError> {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let begin = v.now();
        block_on(async {
            for i in 0..OPS {
                op(i).await?;
            }
            Ok(())
        })?;
        best = best.min((v.now() - begin).0 as f64 / f64::from(OPS));
    }
    println!("{name:32} {best:7.1} ns");
    Ok(())
}
