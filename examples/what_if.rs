//! Simulates a lock under load, in host memory and in the memory of the network card. Run: `cargo run --release -p
//! dmkit-examples --bin what_if`. The figures come from a model, not from a card.
#![expect(clippy::print_stdout, reason = "an example prints")]

use dm_sim::{BuildError, CostModel, RunEnd, Sim};
use dm_verbs::{ChipPtr, Env, Nanos, NodeId, Place, RemotePtr, Verbs};
use std::{cell::Cell, rc::Rc};

const RUN: Nanos = Nanos::from_micros(500);

/// Returns how many million times a second `clients` clients take and free one lock.
fn mops(model: CostModel, lock: Place, clients: u16) -> Result<f64, BuildError> {
    let sim = Sim::builder(model)
        .compute_nodes(4)
        .memory_nodes(1)
        .seed(1)
        .build()?;
    let taken = Rc::new(Cell::new(0u32));
    for n in 0..clients {
        let taken = taken.clone();
        sim.spawn(n % 4, n / 4, |v| async move {
            while v.now() < RUN {
                if v.cas(lock, 0, 1).await.expect("the node is up") == 0 {
                    taken.set(taken.get() + 1);
                    v.write(lock, &[0; 8]).await.expect("the node is up");
                }
            }
        });
    }
    assert_eq!(sim.run(), RunEnd::Finished);
    Ok(f64::from(taken.get()) / (RUN.0 as f64 / 1000.0))
}

fn main() -> Result<(), BuildError> {
    let host = RemotePtr::new(NodeId(0), 4096).expect("within 48 bits").into();
    let chip = ChipPtr::new(NodeId(0), 0).expect("within the card").into();
    // In the changed model, a CAS on host memory blocks its bucket for half as long.
    let half = || CostModel {
        bucket_cas_ns: CostModel::cx5_ib().bucket_cas_ns / 2.0,
        ..CostModel::cx5_ib()
    };
    println!("clients   host memory   host, CAS in half the time   card memory   (million locks per second)");
    for clients in [4, 16, 64] {
        let as_is = mops(CostModel::cx5_ib(), host, clients)?;
        let (faster, on_chip) = (
            mops(half(), host, clients)?,
            mops(CostModel::cx5_ib(), chip, clients)?,
        );
        println!("{clients:7} {as_is:13.2} {faster:28.2} {on_chip:13.2}");
        assert!(
            as_is <= faster && faster <= on_chip,
            "an atomic that ends sooner blocks less"
        );
    }
    Ok(())
}
