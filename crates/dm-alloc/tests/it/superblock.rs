//! Superblocks over loopback. One client creates a pool, all others open it, and every mismatch has its own error.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Barrier;

use dm_alloc::{AllocError, Descriptor, LockHome, LockPlan, Superblock};
use dm_loopback::{Loopback, Trouble, block_on};
use dm_verbs::testing::Altered;
use dm_verbs::{ChipPtr, ClientId, NodeId, Place, RemotePtr, Space, Transport, Verbs};

const KIND: u32 = u32::from_le_bytes(*b"test");

fn descriptor(home: LockHome, per_node: u32) -> Descriptor {
    Descriptor {
        kind: KIND,
        bytes: [7; 64],
        locks: LockPlan { home, per_node },
        ..Descriptor::of(b"test", [])
    }
}

fn small() -> Descriptor {
    descriptor(LockHome::ChipIfAny, 64)
}

fn world() -> Loopback {
    Loopback::builder().host_bytes(1 << 20).build().unwrap()
}

#[test]
fn of_eight_that_create_at_once_one_creates_and_all_see_the_same() {
    for round in 0..20 {
        let world = Loopback::builder()
            .host_bytes(1 << 20)
            .chip_bytes(0)
            .delays(3)
            .seed(round)
            .build()
            .unwrap();
        let start = Barrier::new(8);
        let opened: Vec<Superblock> = dm_sync::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|cn| {
                    let client = world.connect(cn).unwrap();
                    let start = &start;
                    scope.spawn(move || {
                        start.wait();
                        block_on(Superblock::create_or_open(&client, &small())).unwrap()
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(opened.iter().filter(|sb| sb.created).count(), 1);
        for sb in &opened {
            assert_eq!(
                (&sb.lock_tables, sb.root_word),
                (&opened[0].lock_tables, opened[0].root_word)
            );
        }
    }
}

#[test]
fn lock_tables_go_on_chip_or_fall_back() {
    let world = world();
    let client = world.connect(0).unwrap();
    let sb = block_on(Superblock::create_or_open(
        &client,
        &descriptor(LockHome::ChipIfAny, 32_768),
    ))
    .unwrap();
    let chip = |n| Place::from(ChipPtr::new(NodeId(n), 0).unwrap());
    assert_eq!(&*sb.lock_tables, [chip(0), chip(1)]);

    let world = Loopback::builder()
        .host_bytes(1 << 20)
        .chip_bytes(0)
        .build()
        .unwrap();
    let client = world.connect(0).unwrap();
    let sb = block_on(Superblock::create_or_open(&client, &small())).unwrap();
    for (n, table) in sb.lock_tables.iter().enumerate() {
        assert_eq!((table.space(), table.node()), (Space::Host, NodeId(n as u16)));
        assert!(table.offset() >= 4096, "not in the reserved page");
    }
}

#[test]
fn too_little_chip_is_refused_and_leaves_the_pool_uncreated() {
    let world = Loopback::builder()
        .host_bytes(1 << 20)
        .chip_bytes(1024)
        .build()
        .unwrap();
    let client = world.connect(0).unwrap();
    let create = |home, n| block_on(Superblock::create_or_open(&client, &descriptor(home, n)));
    let refused = AllocError::ChipTooSmall {
        node: NodeId(0),
        wanted: 1032,
        has: 1024,
    };
    assert_eq!(create(LockHome::Chip, 129), Err(refused.clone()));
    assert_eq!(create(LockHome::ChipIfAny, 129), Err(refused));
    assert!(
        create(LockHome::Chip, 128).unwrap().created,
        "the failures set the state back"
    );
}

#[test]
fn a_pool_without_locks_is_refused_and_stays_uncreated() {
    let world = world();
    let client = world.connect(0).unwrap();
    let create = |home, n| block_on(Superblock::create_or_open(&client, &descriptor(home, n)));
    for home in [LockHome::Chip, LockHome::ChipIfAny, LockHome::Host] {
        assert_eq!(create(home, 0), Err(AllocError::NoLocks));
    }
    assert!(
        create(LockHome::Host, 1).unwrap().created,
        "the failures set the state back"
    );
    // A client that opens a pool uses the locks that the pool has.
    assert_eq!(create(LockHome::Host, 0).unwrap().locks_per_node, 1);
}

#[test]
fn another_endpoint_reopens_and_mismatches_are_named() {
    let world = world();
    let client = world.connect(0).unwrap();
    let open = |d: &Descriptor| block_on(Superblock::open(&client, d));
    let state_at = RemotePtr::from_raw(0);
    assert_eq!(
        open(&small()),
        Err(AllocError::NotFormatted {
            at: state_at,
            word: 0
        })
    );

    let created = block_on(Superblock::create_or_open(&client, &small())).unwrap();
    assert_eq!(block_on(client.cas(created.root_word, 0, 4096)), Ok(0));

    let other = world.connect(3).unwrap();
    let opened = block_on(Superblock::create_or_open(&other, &small())).unwrap();
    assert_eq!(
        opened,
        Superblock {
            created: false,
            ..created
        }
    );
    assert_eq!(block_on(other.word(opened.root_word)), Ok(4096));

    assert_eq!(
        open(&Descriptor { kind: 1, ..small() }),
        Err(AllocError::OtherKind {
            found: KIND,
            wanted: 1
        })
    );
    let mut wanted = [7; 64];
    wanted[63] = 8;
    let text = open(&Descriptor {
        bytes: wanted,
        ..small()
    })
    .unwrap_err()
    .to_string();
    assert!(
        text.contains("from byte 63 on, found 0x07, wanted 0x08"),
        "{text}"
    );

    assert_eq!(block_on(Superblock::inspect(&other)).unwrap().kind, KIND);
}

#[test]
fn damage_is_noticed_before_it_is_believed() {
    let world = world();
    let client = world.connect(0).unwrap();
    block_on(Superblock::create_or_open(&client, &small())).unwrap();
    let damage = |at: u64, byte: u8| {
        let at = RemotePtr::from_raw(at);
        let before = block_on(client.read(at, 1)).unwrap()[0];
        client.load(at, &[byte]).unwrap();
        let answer = block_on(Superblock::open(&client, &small()));
        client.load(at, &[before]).unwrap();
        answer.unwrap_err()
    };
    assert!(matches!(
        damage(140, 0),
        AllocError::Corrupt {
            what: "the checksum does not fit",
            ..
        }
    ));
    assert!(matches!(
        damage(64, b'x'),
        AllocError::Corrupt { what: "no magic", .. }
    ));
    assert_eq!(
        damage(72, 9),
        AllocError::OtherFormat {
            found: 9,
            ours: dm_alloc::FORMAT_VERSION
        }
    );
    assert!(matches!(damage(0, 9), AllocError::NotFormatted { word, .. } if word != 0));
    assert!(block_on(Superblock::open(&client, &small())).is_ok());
}

#[test]
fn a_creator_that_stops_is_named_and_one_that_is_dropped_gives_up_its_place() {
    let world = Loopback::builder().host_bytes(1 << 20).delays(4).build().unwrap();
    let stopped = world.connect_as(0, ClientId(41)).unwrap();
    let other = world.connect_as(1, ClientId(42)).unwrap();

    let dead = u64::from_le_bytes(*b"\0\0dmk-cr") | 41;
    let mut named = 0;
    // Each iteration polls the creation at most `polls` times, and drops it. Then the state word must not name its
    // client, so that another client can create or open the pool.
    for polls in 1..24 {
        let descriptor = small();
        let mut creation = Box::pin(Superblock::create_or_open(&stopped, &descriptor));
        let mut cx = core::task::Context::from_waker(core::task::Waker::noop());
        let done = (0..polls).any(|_| creation.as_mut().poll(&mut cx).is_ready());
        named += u32::from(block_on(other.word(RemotePtr::from_raw(0))) == Ok(dead));
        drop(creation);
        let _ = stopped.take_deferred();
        if !done {
            let state = block_on(other.word(RemotePtr::from_raw(0))).unwrap();
            assert!(
                state == 0 || state & 0xFFFF == 0,
                "state {state:#x} still names the creator after {polls} polls"
            );
        }
    }
    assert!(named > 0, "the state names who creates");

    // A creator died: its state word stays.
    let world = Loopback::builder().host_bytes(1 << 20).build().unwrap();
    let other = world.connect_as(1, ClientId(42)).unwrap();
    assert_eq!(block_on(other.cas(RemotePtr::from_raw(0), 0, dead)), Ok(0));
    let stuck = block_on(Superblock::create_or_open_within(&other, &small(), 5));
    assert_eq!(
        stuck,
        Err(AllocError::CreationStuck {
            at: RemotePtr::from_raw(0),
            creator: 41,
            attempts: 5
        })
    );
    let unfinished = block_on(Superblock::open(&other, &small())).unwrap_err();
    let (at, word) = (RemotePtr::from_raw(0), dead);
    assert_eq!(unfinished, AllocError::NotFormatted { at, word });
    let text = unfinished.to_string();
    assert!(
        text.contains("client 41 has begun to create the pool") && text.contains("mn0+0x0"),
        "{text}"
    );
    let foreign = AllocError::NotFormatted { at, word: 9 }.to_string();
    assert!(foreign.contains("not a pool of dmkit"), "{foreign}");
}

#[test]
fn an_unreachable_node_is_an_error_with_its_place() {
    let world = world();
    let client = world.connect(0).unwrap();
    world.cut(NodeId(0), Trouble::Unreachable);
    match block_on(Superblock::create_or_open(&client, &small())) {
        Err(AllocError::Verb(e)) => assert_eq!(e.at, Place::from(RemotePtr::from_raw(0))),
        other => panic!("{other:?}"),
    }
    world.restore(NodeId(0));
    // The lock table of memory node 1 is to be in host memory, and its control plane is unreachable. The creation
    // returns an error, and the state is set back.
    world.cut(NodeId(1), Trouble::Unreachable);
    let host = descriptor(LockHome::Host, 64);
    assert!(matches!(
        block_on(Superblock::create_or_open(&client, &host)),
        Err(AllocError::Control(_))
    ));
    world.restore(NodeId(1));
    assert!(
        block_on(Superblock::create_or_open(&client, &host))
            .unwrap()
            .created
    );
}

#[test]
fn a_pool_may_span_fewer_memory_nodes_than_are_listed_and_as_many_as_its_index_can_name() {
    let world = Loopback::builder().nodes(3).host_bytes(1 << 20).build().unwrap();
    let v = world.connect(0).unwrap();
    let spanning = |nodes_max| Descriptor { nodes_max, ..small() };
    assert_eq!(
        block_on(Superblock::create_or_open(&v, &spanning(2))),
        Err(AllocError::TooManyNodes { listed: 3, most: 2 })
    );
    let lists = |nodes| Altered {
        nodes: Some(nodes),
        ..Altered::new(world.connect(0).unwrap())
    };
    let created = block_on(Superblock::create_or_open(&lists(2), &spanning(2))).unwrap();
    assert_eq!((created.memory_nodes(), created.members), (2, None));
    assert_eq!(
        block_on(Superblock::open(&v, &small())).unwrap().memory_nodes(),
        2
    );
    assert_eq!(
        block_on(Superblock::open(&lists(1), &small())),
        Err(AllocError::NodesMissing {
            created_with: 2,
            listed: 1
        })
    );
    let most = dm_alloc::MEMORY_NODES_MAX;
    assert!(block_on(Superblock::open(&lists(most), &small())).is_ok());
    assert_eq!(
        block_on(Superblock::open(&lists(most + 1), &small())),
        Err(AllocError::TooManyNodes {
            listed: most + 1,
            most
        })
    );
}

#[test]
fn lock_tables_are_on_chip_where_they_may_be() {
    assert_eq!(
        [true, false].map(LockHome::chip_if),
        [LockHome::ChipIfAny, LockHome::Host]
    );
}
