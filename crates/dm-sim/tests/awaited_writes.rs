//! A WRITE that was awaited is seen by whatever any client posts afterwards.

use dm_sim::{CostModel, RunEnd, Sim, Tearing};
use dm_verbs::{NodeId, RemotePtr, Verbs};

#[test]
fn an_awaited_write_of_many_lines_is_seen_whole_on_any_queue_pair() {
    const LEN: usize = 64 << 10;
    for seed in 0..20 {
        let mut model = CostModel::cx5_ib();
        // Each line may take long: longer in all than a round trip.
        model.tearing = Tearing::Random;
        let sim = Sim::builder(model)
            .compute_nodes(2)
            .seed(seed)
            .build()
            .expect("a testbed");
        let (writer, reader) = (sim.endpoint(0, 0), sim.endpoint(1, 0));
        sim.spawn_task(async move {
            let at = RemotePtr::new(NodeId(0), 4096).expect("a small offset");
            writer.write(at, &[1; LEN]).await.expect("no trouble");
            let last = reader.word(at.add(LEN as u64 - 8)).await.expect("no trouble");
            assert_eq!(last, u64::from_le_bytes([1; 8]), "seed {seed}");
        });
        assert_eq!(sim.run(), RunEnd::Finished);
    }
}
