//! Tests coroutines of one thread that use one key at the same time, so that they wait at one local lock and at one
//! lock of delegation and combining. No coroutine may wait for one that cannot continue. The simulator detects tasks
//! that wait for ever.

use crate::common::{Tree, art, out_of_place, under_tables};
use dm_loopback::Loopback;
use dm_sim::{CostModel, Sim};
use dm_sync::Arc;
use dm_testkit::{IndexUnderTest, Job, Seat, World};
use dm_verbs::{Control, Verbs};
use smart::{Applied, Key8, Options, RangeIndex, Rdwc, Smart};

struct Open(Options);

impl Job for Open {
    type Out = Smart<Key8>;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Smart<Key8> {
        Tree::<Key8>::new(self.0).open(v).await.expect("a pool")
    }
}

struct Together(Smart<Key8>);

impl Job for Together {
    /// The number of times that the client inserted the key, and the number of times that it removed the key.
    type Out = (u64, u64);
    async fn run<V: Verbs + Control>(&self, number: usize, v: &V) -> (u64, u64) {
        let client = self.0.client(v);
        let (mut value, mut brought, mut taken) = (Vec::new(), 0, 0);
        for n in 0..400 {
            let key = Key8(7);
            match (n + number) % 5 {
                0 => drop(client.get(&key, &mut value).await.expect("no faults")),
                1 => drop(client.update(&key, &[1; 8]).await.expect("no faults")),
                2 => {
                    let removed = client.remove(&key).await.expect("no faults");
                    taken += u64::from(removed == Applied::Removed);
                }
                _ => {
                    let put = client.upsert(&key, &[2; 8]).await.expect("no faults");
                    brought += u64::from(put == Applied::Inserted);
                }
            }
        }
        (brought, taken)
    }
}

#[test]
fn coroutines_of_one_thread_never_wait_for_ever() {
    let seat = Seat {
        compute_node: 0,
        thread: 0,
    };
    let techniques: [fn(Options) -> Options; 4] = [core::convert::identity, under_tables, out_of_place, art];
    for techniques in techniques {
        for (rdwc, hierarchical) in [(Rdwc::OFF, true), (Rdwc::ON, true), (Rdwc::ON, false)] {
            let loopback = Loopback::builder().delays(4).build().expect("memory");
            let sim = Sim::builder(CostModel::cx6_roce()).build().expect("memory");
            for world in [World::from(loopback), World::from(sim)] {
                let options = techniques(Options {
                    rdwc,
                    hierarchical,
                    ..Options::new(8)
                });
                let tree = world.run_one(Open(options));
                let ends = world.run(&[seat; 3], &Arc::new(Together(tree)));
                let sum = |of: fn(&(u64, u64)) -> u64| ends.iter().map(of).sum::<u64>();
                let (brought, taken) = (sum(|end| end.0), sum(|end| end.1));
                assert!(
                    taken > 0 && brought - taken <= 1,
                    "{brought} brought, {taken} taken: {options:?}"
                );
            }
        }
    }
}
