//! Tests that every error is typed and names its place, that nothing hangs or panics, and that no acknowledged write is
//! lost.

use chime::{Applied, Chime, IndexError, Key8, OpenError, Options, RangeIndex, Scan};
use dm_alloc::{AllocError, Superblock};
use dm_loopback::{Loopback, Trouble, block_on};
use dm_sim::{CostModel, Sim};
use dm_testkit::{IndexUnderTest, Rng, World, connect, cut_off, failures, fill_up, says};
use dm_verbs::{Control, Effect, NodeId, RemotePtr, Verbs};

use crate::common::Tree;

/// Returns options with small nodes, chunks and budgets.
fn options() -> Options {
    Options {
        span: 12,
        neighbourhood: 4,
        inner_span: 8,
        locks_per_node: 64,
        hotspot_bytes: 4 << 10,
        chunk_bytes: 16 << 10,
        attempts: 2_000,
        ..Options::new(16)
    }
}

async fn open<V: Verbs + Control>(v: &V, options: Options) -> Chime<Key8> {
    Tree::<Key8>::new(options).open(v).await.expect("a pool")
}

#[test]
fn a_full_pool_loses_no_acknowledged_write() {
    let loopback = Loopback::builder().nodes(2).host_bytes(128 << 10).build();
    let sim = Sim::builder(CostModel::cx6_roce())
        .memory_nodes(2)
        .memory_bytes(128 << 10)
        .build();
    for world in [
        World::from(loopback.expect("memory")),
        World::from(sim.expect("memory")),
    ] {
        let filled = fill_up(Tree::<Key8>::new(options()), &world);
        assert!(filled.acknowledged > 1_000, "{filled:?}");
    }
}

#[test]
fn a_cut_memory_node_affects_only_its_own_keys() {
    let lost = (0..4).map(Trouble::LostAfter);
    for trouble in [Trouble::Unreachable, Trouble::AnswersLost]
        .into_iter()
        .chain(lost)
    {
        let cut = cut_off(&Tree::<Key8>::new(options()), trouble, |_| NodeId(2));
        assert!(cut.done > 100 && cut.failed > 50, "{trouble:?}: {cut:?}");
        assert!(trouble != Trouble::Unreachable || cut.blocked == 0, "{cut:?}");
    }
}

#[test]
fn a_pool_of_another_geometry_is_refused() {
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        let missing = Chime::<Key8>::open(&v, &options())
            .await
            .expect_err("an empty pool");
        assert!(
            matches!(missing, OpenError::Pool(AllocError::NotFormatted { word: 0, .. })),
            "{missing}"
        );
        drop(open(&v, options()).await);
        let changed: [fn(&mut Options); 4] = [
            |o| o.value_bytes = 8,
            |o| o.span = 13,
            |o| o.neighbourhood = 5,
            |o| o.inner_span = 9,
        ];
        for change in changed {
            let mut other = options();
            change(&mut other);
            let refused = Chime::<Key8>::open(&v, &other)
                .await
                .expect_err("another geometry");
            assert!(matches!(refused, OpenError::Pool(_)), "{refused}");
        }
        let none = Options {
            neighbourhood: 1,
            ..options()
        };
        let refused = Chime::<Key8>::create_or_open(&v, &none)
            .await
            .expect_err("no leaf");
        assert!(matches!(refused, OpenError::Geometry(_)), "{refused}");
        let client = open(&v, options()).await;
        let refused = client
            .client(&v)
            .insert(&Key8(1), &[1; 15])
            .await
            .expect_err("too short");
        assert_eq!(refused.effect(), Effect::None);
        says(&refused, &["15 bytes", "16 bytes"]);
    });
}

/// The bits of a root word that are not part of the address.
const ROOT_LEVEL: u64 = 63;

async fn root<V: Verbs>(v: &V) -> RemotePtr {
    RemotePtr::from_raw(v.word(Superblock::ROOT_WORD).await.expect("no faults") & !ROOT_LEVEL)
}

#[test]
fn a_damaged_leaf_is_reported_with_its_address() {
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        let tree = open(&v, options()).await;
        let client = tree.client(&v);
        assert_eq!(client.insert(&Key8(1), &[1; 16]).await, Ok(Applied::Inserted));
        let leaf = root(&v).await;
        let bytes = tree.geometry().node_bytes();
        let image = v.read(leaf, bytes as u32).await.expect("no faults").to_vec();
        for garbage in [vec![0; bytes], vec![0xff; bytes]] {
            v.load(leaf, &garbage).expect("in range");
            for found in failures(&client, &Key8(1), &[2; 16]).await {
                let found = found.expect("no leaf is there");
                assert!(
                    matches!(found, IndexError::Corrupt { node, .. } if node == leaf),
                    "{found}"
                );
                says(&found, &[&leaf.to_string(), "corrupt"]);
            }
        }
        v.load(leaf, &image).expect("in range");
        assert_eq!(client.get(&Key8(1), &mut Vec::new()).await, Ok(true));
    });
}

/// Damages bytes at random places. Each operation must then end with a typed error or an answer, and never with a
/// panic.
#[test]
fn damaged_bytes_anywhere_end_in_an_error_or_an_answer() {
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        let options = Options {
            attempts: 50,
            ..options()
        };
        let tree = open(&v, options).await;
        let client = tree.client(&v);
        let bytes = tree.geometry().node_bytes() as u64;
        let mut leaf = RemotePtr::NULL;
        for n in 0..200 {
            assert_eq!(client.insert(&Key8(n), &[1; 16]).await, Ok(Applied::Inserted));
            if n == 0 {
                leaf = root(&v).await;
            }
        }
        let mut rng = Rng::new(4, 4);
        let mut errors = 0;
        for _ in 0..2_000 {
            // The test changes a line of one of the first leaves, or of a node between them.
            let at = leaf.add(64 * rng.below(bytes / 64 * 6));
            let before = v.read(at, 64).await.expect("no faults").to_vec();
            let mut damaged = before.clone();
            for _ in 0..1 + rng.below(3) {
                damaged[rng.below(64) as usize] ^= 1 << rng.below(8);
            }
            v.load(at, &damaged).expect("in range");
            let key = Key8(rng.below(200));
            let mut scan = Scan::new();
            // One handle has hotspots, and the other one has empty caches.
            let cold = open(&v, options).await;
            let cold = cold.client(&v);
            let ends = [
                client.get(&key, &mut Vec::new()).await.err(),
                cold.get(&key, &mut Vec::new()).await.err(),
                cold.scan(&key, 50, &mut scan).await.err(),
            ];
            for e in ends.into_iter().flatten() {
                assert!(!e.to_string().is_empty());
                errors += 1;
            }
            v.load(at, &before).expect("in range");
        }
        assert!(errors > 50, "{errors}");
        let mut scan = Scan::new();
        assert_eq!(client.scan(&Key8(0), 500, &mut scan).await, Ok(()));
        assert_eq!(scan.len(), 200, "the nodes are restored");
    });
}
