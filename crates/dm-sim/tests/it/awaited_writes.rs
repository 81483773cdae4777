//! Tests that an awaited WRITE is visible to everything that any client posts afterwards.

use dm_sim::{CostModel, RunEnd, Sim, Tearing};
use dm_verbs::{NodeId, RemotePtr, Verbs};

#[test]
fn an_awaited_write_of_many_lines_is_seen_whole_on_any_queue_pair() {
    const LEN: usize = 64 << 10;
    for seed in 0..20 {
        let mut model = CostModel::cx5_ib();
        // A line may take long, and all lines together take longer than a round trip.
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

/// After two WRITEs in one chain, memory holds the bytes of the second one. This must hold at whatever time the lines
/// of the first WRITE take effect, even in the picosecond in which the second WRITE arrives. That case occurs once in
/// half a million draws.
#[test]
fn the_later_of_two_writes_of_a_chain_stays() {
    let mut model = CostModel::cx5_ib();
    model.tearing = Tearing::Random;
    let sim = Sim::builder(model).build().expect("a testbed");
    sim.spawn(0, 0, |v| async move {
        let at = RemotePtr::new(NodeId(0), 4096).expect("a small offset");
        for round in 0_u64..1_000_000 {
            let lines = 2 + round as usize % 17;
            let (below, above) = ([0xB; 18 * 64], round.to_le_bytes());
            let place = at.add((lines as u64 - 1) * 64 + 8);
            let chain = v.chain(at.node()).write(at, &below[..lines * 64]);
            chain.write(place, &above).await.expect("no trouble");
            let stays = v.word(place).await.expect("no trouble");
            assert_eq!(stays, round, "{lines} lines");
        }
    });
    assert_eq!(sim.run(), RunEnd::Finished);
}
