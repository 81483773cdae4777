//! The ledger against its invariants, without a network.

use dm_sync::Mutex;

use super::*;
use crate::CHUNK_UNIT;

/// Ports that are numbers. This records which ports were shut, and refuses to shut some.
#[derive(Clone, Default)]
struct Shut(Arc<Mutex<Vec<u32>>>, Option<u32>);

impl Ports for Shut {
    type Port = u32;
    fn shut(&self, port: &u32) -> io::Result<()> {
        if self.1 == Some(*port) {
            return Err(io::ErrorKind::Other.into());
        }
        self.0.with(|shut| shut.push(*port));
        Ok(())
    }
}

const BOOT: u64 = 77;

fn ledger(ports: Shut) -> Ledger<Shut> {
    let facts = Facts {
        bytes: 4 * CHUNK_UNIT,
        boot: BOOT,
        lease: Duration::from_millis(1),
        clients_per_connection: 5000,
    };
    Ledger::new(Arc::new(ports), facts)
}

fn claim(l: &mut Ledger<Shut>, connection: Connection) -> (u16, u32) {
    match l.answer(connection, 0, Request::Claim) {
        Answer::Claimed { client, epoch } => (client, epoch),
        other => panic!("{other:?}"),
    }
}

#[test]
fn ids_rest_before_they_come_back_and_run_out_at_the_end() {
    let mut l = ledger(Shut::default());
    let c = l.connect(1);
    assert_eq!(claim(&mut l, c), (1, 1));
    assert_eq!(l.answer(c, 1, Request::Release { client: 1 }), Answer::Done);
    for id in 2..CLIENTS_END {
        assert_eq!(claim(&mut l, c), (id, 1));
    }
    assert_eq!(claim(&mut l, c), (1, 2));
    assert_eq!(l.answer(c, 0, Request::Claim), Answer::NoIdLeft);
    // The number of a connection's clients is limited.
    let mut l = ledger(Shut::default());
    l.facts.clients_per_connection = 1;
    let (c, d) = (l.connect(1), l.connect(2));
    claim(&mut l, c);
    assert_eq!(l.answer(c, 0, Request::Claim), Answer::NoIdLeft);
    assert_eq!(claim(&mut l, d), (2, 1));
}

#[test]
fn chunks_are_whole_pages_until_there_are_none() {
    let mut l = ledger(Shut::default());
    let mut chunk = |bytes| l.answer(1, 0, Request::Chunk { bytes });
    assert_eq!(chunk(1), Answer::Chunk { offset: 4096 });
    assert_eq!(chunk(u64::MAX), Answer::OutOfMemory { left: 8192 });
    assert_eq!(chunk(4097), Answer::Chunk { offset: 8192 });
    assert_eq!(chunk(0), Answer::OutOfMemory { left: 0 });
}

#[test]
fn nobody_speaks_for_another_connections_client() {
    let mut l = ledger(Shut::default());
    let (c, d) = (l.connect(1), l.connect(2));
    let (id, _) = claim(&mut l, c);
    let all = [
        Request::Join,
        Request::Leave,
        Request::Enlist { group: 1 },
        Request::Release { client: id },
    ];
    for request in all {
        assert_eq!(l.answer(d, id, request), Answer::NotYours, "{request:?}");
        assert_eq!(l.answer(d, 0, request), Answer::NotYours, "{request:?}");
    }
    assert!(matches!(
        l.answer(c, id, Request::Join),
        Answer::Joined { epoch: 1, .. }
    ));
}

#[test]
fn a_fence_shuts_the_port_first_and_outlives_the_connection() {
    let ports = Shut::default();
    let mut l = ledger(ports.clone());
    let (c, d) = (l.connect(10), l.connect(20));
    let (id, epoch) = claim(&mut l, c);
    let (judge, _) = claim(&mut l, d);
    let fence = |client| Request::Fence { client };
    assert_eq!(l.answer(d, judge, fence(4000)), Answer::NoSuchClient);
    assert_eq!(l.answer(d, judge, fence(id)), Answer::Done);
    assert_eq!(ports.0.with(|shut| shut.clone()), [10]);
    assert_eq!(l.answer(c, id, Request::Chunk { bytes: 1 }), Answer::Fenced);
    // The client stays fenced after it reconnects. The next holder of the id is another client.
    l.disconnect(c);
    let c = l.connect(30);
    let attach = |epoch| Request::Attach {
        client: id,
        epoch,
        giver: BOOT,
    };
    assert_eq!(l.answer(c, 0, attach(epoch)), Answer::Fenced);
    while claim(&mut l, c).0 != id {}
    assert!(matches!(
        l.answer(c, id, Request::Join),
        Answer::Joined { epoch: 2, .. }
    ));
    assert_eq!(l.answer(d, 0, attach(epoch)), Answer::NotYours);
}

#[test]
fn a_fence_that_the_device_refuses_is_not_believed() {
    let ports = Shut(Arc::default(), Some(10));
    let mut l = ledger(ports);
    let (c, d) = (l.connect(10), l.connect(20));
    let (id, _) = claim(&mut l, c);
    assert_eq!(l.answer(d, 0, Request::Fence { client: id }), Answer::Failed);
    assert_eq!(l.answer(c, id, Request::Leave), Answer::Done, "it was not fenced");
}

#[test]
fn a_group_is_fenced_with_those_who_were_cut_off_and_not_with_those_who_come_later() {
    let ports = Shut::default();
    let mut l = ledger(ports.clone());
    let (c, d, e) = (l.connect(10), l.connect(20), l.connect(30));
    let ids = [c, d, e].map(|connection| claim(&mut l, connection));
    for (connection, (id, _), group) in [(c, ids[0], 7), (d, ids[1], 7), (e, ids[2], 8)] {
        assert_eq!(l.answer(connection, id, Request::Enlist { group }), Answer::Done);
    }
    l.disconnect(d);
    assert_eq!(
        l.answer(e, ids[2].0, Request::FenceGroup { group: 7 }),
        Answer::Done
    );
    assert_eq!(ports.0.with(|shut| shut.clone()), [10]);
    let d = l.connect(21);
    let again = Request::Attach {
        client: ids[1].0,
        epoch: ids[1].1,
        giver: BOOT,
    };
    assert_eq!(l.answer(d, 0, again), Answer::Fenced);
    let (late, _) = claim(&mut l, d);
    assert_eq!(l.answer(d, late, Request::Enlist { group: 7 }), Answer::Done);
    assert_eq!(l.answer(d, late, Request::Leave), Answer::Done);
    assert_eq!(l.answer(e, ids[2].0, Request::Leave), Answer::Done);
}

#[test]
fn ids_of_another_node_attach_and_a_restarted_givers_ids_displace_nobody() {
    let ports = Shut::default();
    let mut l = ledger(ports.clone());
    let (c, d) = (l.connect(1), l.connect(2));
    let attach = |client, epoch, giver| Request::Attach { client, epoch, giver };
    assert_eq!(l.answer(c, 0, attach(5, 3, 100)), Answer::Done);
    assert_eq!(l.answer(c, 0, attach(5, 3, 100)), Answer::Done, "asked again");
    assert_eq!(l.answer(d, 0, attach(5, 1, 101)), Answer::NotYours);
    assert_eq!(l.answer(d, 0, attach(5, 4, 100)), Answer::NotYours);
    // The same client uses another connection before the end of the first one was noticed. The first one is
    // shut.
    ports.0.with(|shut| assert!(shut.is_empty()));
    assert_eq!(l.answer(d, 0, attach(5, 3, 100)), Answer::Done);
    ports.0.with(|shut| assert_eq!(*shut, [1]));
    assert_eq!(l.answer(c, 5, Request::Leave), Answer::NotYours);
    l.disconnect(c);
    assert_eq!(l.answer(d, 5, Request::Leave), Answer::Done);
    l.disconnect(d);
    let d = l.connect(3);
    assert_eq!(l.answer(d, 0, attach(5, 2, 100)), Answer::NotYours, "long gone");
    assert_eq!(l.answer(d, 0, attach(5, 1, 101)), Answer::Done);
    assert_eq!(l.answer(d, 0, attach(6, 1, BOOT)), Answer::NoSuchClient);
    for odd in [0, CLIENTS_END, u16::MAX] {
        assert_eq!(l.answer(d, 0, attach(odd, 1, 100)), Answer::NoSuchClient);
    }
}

#[test]
fn the_census_counts_who_is_here() {
    let mut l = ledger(Shut::default());
    let (c, d) = (l.connect(1), l.connect(2));
    let (a, _) = claim(&mut l, c);
    let (b, _) = claim(&mut l, d);
    l.answer(c, a, Request::Join);
    l.answer(d, 0, Request::Fence { client: b });
    let census = l.census(Instant::now() + Duration::from_secs(1));
    let expected = Census {
        used: 4096,
        connections: 2,
        clients: 2,
        fenced: 1,
        lapsed: 1,
    };
    assert_eq!(census, expected);
    l.disconnect(c);
    l.disconnect(d);
    let none = Census {
        used: 4096,
        ..Census::default()
    };
    assert_eq!(l.census(Instant::now()), none);
}
