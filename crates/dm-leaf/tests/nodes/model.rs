//! Random scripts against a plain map, on nodes of every format: two compute nodes in turns, each with a map of its own of where
//! leaves begin.

use dm_index::{Key8, NodeStore};
use dm_layout::{Checksummed, FenceKeys, Leaf, NodeFormat, Slotted};
use dm_loopback::block_on;
use dm_testkit::{Model, Op, Rng, apply, check_all};
use dm_verbs::{Counters, Env};

use crate::common::{Setup, Table, client, pool};

fn run<F: NodeFormat<Key8> + Clone>(setup: Setup, format: F, memory_nodes: u16, seed: u64) -> Counters {
    let world = pool(memory_nodes);
    let (v, w) = (world.connect(0).unwrap(), world.connect(1).unwrap());
    let bytes = format.value_len();
    let nodes = [
        setup.nodes(format.clone(), memory_nodes, 0),
        setup.nodes(format, memory_nodes, 1),
    ];
    let first = block_on(nodes[0].create(&v, 0, FenceKeys::ALL, &[], false))
        .unwrap()
        .at;
    let tables = [Table::of(first), Table::of(first)];
    let clients = [
        client(&v, &tables[0], &nodes[0]),
        client(&w, &tables[1], &nodes[1]),
    ];
    let (mut model, mut rng) = (Model::new(bytes), Rng::new(seed, 0));
    for i in 0..1_200_u64 {
        // Phases of growth and of decline.
        let op = match (Op::<Key8>::draw(&mut rng, 120), i / 300 % 2) {
            (Op::Insert(k, _) | Op::Upsert(k, _), 1) if i % 3 > 0 => Op::Remove(k),
            (op, _) => op,
        };
        if let Err(e) = block_on(apply(&clients[(i / 7 % 2) as usize], &mut model, &op)) {
            panic!("operation {i} of seed {seed}: {e}");
        }
    }
    for client in &clients {
        block_on(check_all(client, &model)).unwrap();
    }
    block_on(check_all(&client(&v, &Table::of(first), &nodes[0]), &model)).unwrap();
    v.meter().counters() + w.meter().counters()
}

#[test]
fn every_format_answers_as_a_map() {
    let mut costs = Vec::new();
    for (seed, setup) in (0..).zip([Setup::plain(), Setup::sharing()]) {
        costs.push(("slotted", run(setup, Slotted::with_span(6, 8).unwrap(), 1, seed)));
        costs.push((
            "slotted, values of lines",
            run(setup, Slotted::with_span(4, 100).unwrap(), 2, seed),
        ));
        costs.push((
            "packed",
            run(setup, Leaf::with_node_bytes(256, 8, true).unwrap(), 2, seed),
        ));
        costs.push((
            "checksummed",
            run(setup, Checksummed::with_span(5, 8).unwrap(), 1, seed),
        ));
    }
    for (name, cost) in costs {
        assert!(cost.splits > 5 && cost.merges > 3, "{name}: {cost:?}");
    }
}
