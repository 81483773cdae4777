//! Records two simulated clients that contend for a lock word, and prints the recording as JSON (`docs/trace.md`).

#![expect(clippy::print_stdout, reason = "a command's output is its purpose")]

use std::cell::RefCell;
use std::rc::Rc;

use dm_sim::{CostModel, Sim};
use dm_verbs::trace::{Recording, Traced};
use dm_verbs::{NodeId, RemotePtr, Verbs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", serde_json::to_string_pretty(&record()?)?);
    Ok(())
}

fn record() -> Result<Recording, Box<dyn std::error::Error>> {
    let sim = Sim::builder(CostModel::cx5_ib()).compute_nodes(2).build()?;
    let lock = RemotePtr::new(NodeId(0), 4096).ok_or("the offset is out of range")?;
    let names = (1..=2).map(|i| format!("client {i}")).collect();
    let run = Rc::new(RefCell::new(Recording::new("simulator", "ns", names)));
    for node in 0..2 {
        let run = Rc::clone(&run);
        sim.spawn(node, 0, move |v| async move {
            let v = Traced::new(v);
            v.begins("try to lock");
            let won = v.cas(lock, 0, 1).await.is_ok_and(|old| old == 0);
            v.returns("try to lock", won.to_string());
            run.borrow_mut().merge(v.take_events());
        });
    }
    sim.run();
    Ok(run.borrow().clone())
}
