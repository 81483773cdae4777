//! Tests of the ledger's invariants, without a network.

use dm_sync::Mutex;

use super::*;
use crate::CHUNK_UNIT;

/// Ports that are numbers. The first field records the ports that were shut. The second is a port that the device
/// refuses to shut.
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
const HOST: Host = Host::V4(1);

fn ledger(ports: Shut) -> Ledger<Shut> {
    let facts = Facts {
        bytes: 4 * CHUNK_UNIT,
        boot: BOOT,
        lease: Duration::from_millis(1),
        clients_per_connection: 5000,
        clients_per_host: 5000,
        bytes_per_host: u64::MAX,
    };
    Ledger::new(Arc::new(ports), facts)
}

fn claim(l: &mut Ledger<Shut>, connection: Connection) -> (Identity, Token) {
    match l.enter(connection, Entrance::Claim) {
        Answer::Claimed { client, epoch, token } => (identity(client, epoch, BOOT), token),
        other => panic!("{other:?}"),
    }
}

fn identity(client: u16, epoch: u32, giver: u64) -> Identity {
    Identity { client, epoch, giver }
}

/// Attaches a client whose token is derived from its identity.
fn attach(l: &mut Ledger<Shut>, connection: Connection, identity: Identity) -> Answer {
    let mut token = [0; 16];
    token[..4].copy_from_slice(&identity.epoch.to_le_bytes());
    token[4..12].copy_from_slice(&identity.giver.to_le_bytes());
    attach_by(l, connection, identity, Token(token))
}

fn attach_by(l: &mut Ledger<Shut>, connection: Connection, identity: Identity, token: Token) -> Answer {
    l.enter(connection, Entrance::Attach { identity, token })
}

#[test]
fn ids_rest_before_they_come_back_and_run_out_at_the_end() {
    let mut l = ledger(Shut::default());
    let c = l.connect(1, HOST);
    let numbers = |(who, _): (Identity, Token)| (who.client, who.epoch);
    assert_eq!(numbers(claim(&mut l, c)), (1, 1));
    assert_eq!(l.answer(c, 1, Request::Release), Answer::Done);
    for id in 2..CLIENTS_END {
        assert_eq!(numbers(claim(&mut l, c)), (id, 1));
    }
    assert_eq!(numbers(claim(&mut l, c)), (1, 2));
    assert_eq!(l.enter(c, Entrance::Claim), Answer::NoIdLeft);
    // The number of a connection's clients is limited.
    let mut l = ledger(Shut::default());
    l.facts.clients_per_connection = 1;
    let (c, d) = (l.connect(1, HOST), l.connect(2, HOST));
    claim(&mut l, c);
    assert_eq!(l.enter(c, Entrance::Claim), Answer::NoIdLeft);
    assert_eq!(numbers(claim(&mut l, d)), (2, 1));
}

#[test]
fn chunks_are_whole_pages_until_there_are_none() {
    let mut l = ledger(Shut::default());
    let c = l.connect(1, HOST);
    let (who, _) = claim(&mut l, c);
    let mut chunk = |bytes| l.answer(c, who.client, Request::Chunk { bytes });
    assert_eq!(chunk(1), Answer::Chunk { offset: 4096 });
    assert_eq!(chunk(u64::MAX), Answer::OutOfMemory { left: 8192 });
    assert_eq!(chunk(4097), Answer::Chunk { offset: 8192 });
    assert_eq!(chunk(0), Answer::OutOfMemory { left: 0 });
}

#[test]
fn one_host_does_not_take_all_memory_or_all_ids() {
    let mut l = ledger(Shut::default());
    l.facts.bytes_per_host = 2 * CHUNK_UNIT;
    l.facts.clients_per_host = 2;
    let [(c, own), (d, again), (e, other)] = [HOST, HOST, Host::V4(2)].map(|host| {
        let connection = l.connect(1, host);
        (connection, claim(&mut l, connection))
    });
    assert_eq!(l.enter(d, Entrance::Claim), Answer::NoIdLeft);
    assert_eq!(attach(&mut l, d, identity(9, 1, 100)), Answer::NoIdLeft);
    // A client that moves does not count twice.
    assert_eq!(attach_by(&mut l, d, own.0, own.1), Answer::Done);
    l.disconnect(c);
    let chunk = |l: &mut Ledger<Shut>, connection, who: Identity, pages| {
        let bytes = pages * CHUNK_UNIT;
        l.answer(connection, who.client, Request::Chunk { bytes })
    };
    assert_eq!(chunk(&mut l, d, own.0, 1), Answer::Chunk { offset: 4096 });
    assert_eq!(chunk(&mut l, d, again.0, 2), Answer::OutOfMemory { left: 4096 });
    assert_eq!(chunk(&mut l, d, again.0, 1), Answer::Chunk { offset: 8192 });
    assert_eq!(chunk(&mut l, e, other.0, 2), Answer::OutOfMemory { left: 4096 });
    assert_eq!(chunk(&mut l, e, other.0, 1), Answer::Chunk { offset: 12288 });
    // Chunks are never given back, so a host does not get more memory by a new connection.
    l.disconnect(d);
    let d = l.connect(1, HOST);
    let who = claim(&mut l, d).0;
    assert_eq!(chunk(&mut l, d, who, 1), Answer::OutOfMemory { left: 0 });
}

#[test]
fn nobody_speaks_for_another_connections_client_or_without_one() {
    let mut l = ledger(Shut::default());
    let (c, d) = (l.connect(1, HOST), l.connect(2, HOST));
    let (who, _) = claim(&mut l, c);
    let all = [
        Request::Join,
        Request::Leave,
        Request::Enlist { group: 1 },
        Request::Release,
        Request::Chunk { bytes: 1 },
        Request::Describe,
        Request::Fence(who),
        Request::FenceGroup { group: 0 },
        Request::Holder { client: who.client },
        Request::Meet { place: 1, of: 1 },
    ];
    for request in all {
        for caller in [who.client, 0, CLIENTS_END] {
            assert_eq!(l.answer(d, caller, request), Answer::NotYours, "{request:?}");
        }
    }
    assert!(matches!(
        l.answer(c, who.client, Request::Join),
        Answer::Joined { epoch: 1, .. }
    ));
}

#[test]
fn a_fence_shuts_the_port_first_and_outlives_the_connection() {
    let ports = Shut::default();
    let mut l = ledger(ports.clone());
    let (c, d) = (l.connect(10, HOST), l.connect(20, HOST));
    let (doomed, token) = claim(&mut l, c);
    let judge = claim(&mut l, d).0.client;
    let fence = |l: &mut Ledger<Shut>, who| l.answer(d, judge, Request::Fence(who));
    for nobody in [(4000, 1), (doomed.client, 2), (doomed.client, 0), (0, 1)] {
        let nobody = identity(nobody.0, nobody.1, BOOT);
        assert_eq!(fence(&mut l, nobody), Answer::NoSuchClient, "{nobody:?}");
    }
    assert_eq!(fence(&mut l, doomed), Answer::Done);
    assert_eq!(ports.0.with(|shut| shut.clone()), [10]);
    let chunk = Request::Chunk { bytes: 1 };
    assert_eq!(l.answer(c, doomed.client, chunk), Answer::Fenced);
    // The client stays fenced after it reconnects. The next holder of the id is not fenced.
    l.disconnect(c);
    let c = l.connect(30, HOST);
    assert_eq!(attach_by(&mut l, c, doomed, token), Answer::Fenced);
    while claim(&mut l, c).0.client != doomed.client {}
    assert!(matches!(
        l.answer(c, doomed.client, Request::Join),
        Answer::Joined { epoch: 2, .. }
    ));
    assert_eq!(attach_by(&mut l, d, doomed, token), Answer::Fenced);
    // The node returns the epoch of the latest holder.
    let latest = Request::Holder {
        client: doomed.client,
    };
    assert_eq!(l.answer(c, doomed.client, latest), Answer::Holder { epoch: 2 });
}

#[test]
fn a_fenced_connection_asks_for_nothing_by_whichever_client() {
    let mut l = ledger(Shut::default());
    let (c, d) = (l.connect(10, HOST), l.connect(20, HOST));
    let (doomed, other) = (claim(&mut l, c).0, claim(&mut l, c).0.client);
    let healthy = claim(&mut l, d).0;
    assert_eq!(l.answer(d, healthy.client, Request::Fence(doomed)), Answer::Done);
    for caller in [0, doomed.client, other] {
        assert_eq!(l.answer(c, caller, Request::Fence(healthy)), Answer::Fenced);
        let group = Request::FenceGroup { group: 0 };
        assert_eq!(l.answer(c, caller, group), Answer::Fenced);
    }
    assert_eq!(l.enter(c, Entrance::Claim), Answer::Fenced);
    assert_eq!(attach(&mut l, c, identity(9, 1, 100)), Answer::Fenced);
    assert_eq!(l.answer(d, healthy.client, Request::Leave), Answer::Done);
}

#[test]
fn a_fence_that_the_device_refuses_is_not_believed() {
    let ports = Shut(Arc::default(), Some(10));
    let mut l = ledger(ports);
    let (c, d) = (l.connect(10, HOST), l.connect(20, HOST));
    let ((who, token), judge) = (claim(&mut l, c), claim(&mut l, d).0.client);
    assert_eq!(
        l.answer(c, who.client, Request::Enlist { group: 1 }),
        Answer::Done
    );
    assert_eq!(l.answer(d, judge, Request::Fence(who)), Answer::Failed);
    let group = Request::FenceGroup { group: 1 };
    assert_eq!(l.answer(d, judge, group), Answer::Failed);
    assert_eq!(
        attach_by(&mut l, d, who, token),
        Answer::Failed,
        "nor moves a client"
    );
    assert_eq!(
        l.answer(c, who.client, Request::Leave),
        Answer::Done,
        "it was not fenced"
    );
}

#[test]
fn a_fence_holds_when_another_givers_client_had_the_id_since() {
    let mut l = ledger(Shut::default());
    let (c, d) = (l.connect(1, HOST), l.connect(2, HOST));
    let (doomed, judge) = (identity(5, 3, 100), claim(&mut l, d).0.client);
    assert_eq!(attach(&mut l, c, doomed), Answer::Done);
    assert_eq!(l.answer(d, judge, Request::Fence(doomed)), Answer::Done);
    l.disconnect(c);
    let c = l.connect(3, HOST);
    assert_eq!(attach(&mut l, c, identity(5, 1, 101)), Answer::Done);
    l.disconnect(c);
    let c = l.connect(4, HOST);
    assert_eq!(attach(&mut l, c, doomed), Answer::Fenced);
    assert_eq!(
        attach(&mut l, c, identity(5, 2, 100)),
        Answer::Fenced,
        "an earlier one"
    );
    assert_eq!(attach(&mut l, c, identity(5, 4, 100)), Answer::Done);
}

#[test]
fn a_fence_holds_for_a_client_that_this_node_has_not_met() {
    let mut l = ledger(Shut::default());
    let (c, d) = (l.connect(1, HOST), l.connect(2, HOST));
    let judge = claim(&mut l, d).0.client;
    assert_eq!(attach(&mut l, c, identity(5, 3, 100)), Answer::Done);
    // The holder of epoch 4 is fenced before it attaches. The client that is attached now is an earlier holder.
    let fence = Request::Fence(identity(5, 4, 100));
    assert_eq!(l.answer(d, judge, fence), Answer::Done);
    assert_eq!(l.answer(c, 5, Request::Leave), Answer::Fenced);
    assert_eq!(attach(&mut l, d, identity(5, 4, 100)), Answer::Fenced);
}

#[test]
fn fences_are_kept_and_other_givers_are_forgotten_in_bounded_memory() {
    let mut l = ledger(Shut::default());
    let d = l.connect(1, HOST);
    let judge = claim(&mut l, d).0.client;
    let doomed = identity(5, 3, 100);
    assert_eq!(l.answer(d, judge, Request::Fence(doomed)), Answer::Done);
    for giver in 200..300 {
        let c = l.connect(2, HOST);
        assert_eq!(attach(&mut l, c, identity(7, 1, giver)), Answer::Done, "{giver}");
        l.disconnect(c);
    }
    assert_eq!(l.clients.len(), 1 + GIVERS_MAX);
    assert_eq!(attach(&mut l, d, doomed), Answer::Fenced);
    // When every remembered giver has a fence, clients of a further giver cannot attach, and a fence of them is not
    // confirmed.
    let done = (300..400).filter(|giver| {
        let fence = Request::Fence(identity(7, 1, *giver));
        l.answer(d, judge, fence) == Answer::Done
    });
    assert_eq!(done.count(), GIVERS_MAX - 1);
    let fence = Request::Fence(identity(7, 1, 500));
    assert_eq!(l.answer(d, judge, fence), Answer::Failed);
    assert_eq!(attach(&mut l, d, identity(7, 1, 500)), Answer::NoIdLeft);
}

#[test]
fn no_id_and_epoch_are_given_twice() {
    let mut l = ledger(Shut::default());
    let (c, d) = (l.connect(1, HOST), l.connect(2, HOST));
    let first = claim(&mut l, c).0;
    l.disconnect(c);
    // A large epoch of another giver does not make this node's own epochs wrap round.
    let c = l.connect(3, HOST);
    let strange = identity(first.client, u32::MAX, 100);
    assert_eq!(attach(&mut l, c, strange), Answer::Done);
    while claim(&mut l, d).0.client != CLIENTS_END - 1 {}
    assert_eq!(l.enter(d, Entrance::Claim), Answer::NoIdLeft, "the id is in use");
    l.disconnect(c);
    assert_eq!(claim(&mut l, d).0, Identity { epoch: 2, ..first });
    // An id of this node whose epoch cannot grow is not given out again.
    assert_eq!(l.answer(d, first.client, Request::Release), Answer::Done);
    l.clients.get_mut(&(first.client, BOOT)).unwrap().epoch = u32::MAX;
    assert_eq!(l.enter(d, Entrance::Claim), Answer::NoIdLeft);
}

#[test]
fn a_group_is_fenced_with_those_who_were_cut_off_and_not_with_those_who_come_later() {
    let ports = Shut::default();
    let mut l = ledger(ports.clone());
    let (c, d, e) = (l.connect(10, HOST), l.connect(20, HOST), l.connect(30, HOST));
    let all = [c, d, e].map(|connection| claim(&mut l, connection));
    for (connection, (who, _), group) in [(c, all[0], 7), (d, all[1], 7), (e, all[2], 8)] {
        let enlist = Request::Enlist { group };
        assert_eq!(l.answer(connection, who.client, enlist), Answer::Done);
    }
    l.disconnect(d);
    let judge = all[2].0.client;
    assert_eq!(l.answer(e, judge, Request::FenceGroup { group: 7 }), Answer::Done);
    assert_eq!(ports.0.with(|shut| shut.clone()), [10]);
    let d = l.connect(21, HOST);
    assert_eq!(attach_by(&mut l, d, all[1].0, all[1].1), Answer::Fenced);
    let late = claim(&mut l, d).0.client;
    assert_eq!(l.answer(d, late, Request::Enlist { group: 7 }), Answer::Done);
    assert_eq!(l.answer(d, late, Request::Leave), Answer::Done);
    assert_eq!(l.answer(e, judge, Request::Leave), Answer::Done);
}

#[test]
fn ids_of_another_node_attach_and_a_restarted_givers_ids_displace_nobody() {
    let ports = Shut::default();
    let mut l = ledger(ports.clone());
    let (c, d) = (l.connect(1, HOST), l.connect(2, HOST));
    let who = identity(5, 3, 100);
    assert_eq!(attach(&mut l, c, who), Answer::Done);
    assert_eq!(attach(&mut l, c, who), Answer::Done, "asked again");
    assert_eq!(attach(&mut l, d, identity(5, 1, 101)), Answer::NotYours);
    assert_eq!(attach(&mut l, d, identity(5, 4, 100)), Answer::NotYours);
    // The client attaches to a second connection before the node has noticed the end of the first one. The first one
    // is shut.
    ports.0.with(|shut| assert!(shut.is_empty()));
    assert_eq!(attach(&mut l, d, who), Answer::Done);
    ports.0.with(|shut| assert_eq!(*shut, [1]));
    assert_eq!(l.answer(c, 5, Request::Leave), Answer::Fenced);
    l.disconnect(c);
    assert_eq!(l.answer(d, 5, Request::Leave), Answer::Done);
    l.disconnect(d);
    let d = l.connect(3, HOST);
    assert_eq!(
        attach(&mut l, d, identity(5, 2, 100)),
        Answer::NotYours,
        "long gone"
    );
    assert_eq!(attach(&mut l, d, identity(5, 1, 101)), Answer::Done);
    assert_eq!(attach(&mut l, d, identity(6, 1, BOOT)), Answer::NoSuchClient);
    for odd in [0, CLIENTS_END, u16::MAX] {
        assert_eq!(attach(&mut l, d, identity(odd, 1, 100)), Answer::NoSuchClient);
    }
}

#[test]
fn a_live_client_moves_to_another_connection_only_by_its_token() {
    let ports = Shut::default();
    let mut l = ledger(ports.clone());
    let (c, d) = (l.connect(1, HOST), l.connect(2, HOST));
    let (who, token) = claim(&mut l, c);
    for wrong in [Token([0; 16]), Token([255; 16])] {
        assert_eq!(attach_by(&mut l, d, who, wrong), Answer::NotYours);
    }
    let next = identity(who.client, who.epoch + 1, BOOT);
    assert_eq!(attach_by(&mut l, d, next, token), Answer::NoSuchClient);
    let foreign = identity(9, 1, 100);
    assert_eq!(attach_by(&mut l, c, foreign, Token([1; 16])), Answer::Done);
    assert_eq!(attach_by(&mut l, d, foreign, Token([2; 16])), Answer::NotYours);
    ports.0.with(|shut| assert!(shut.is_empty()));
    // The same holds for a connection that was cut off.
    l.disconnect(c);
    assert_eq!(attach_by(&mut l, d, who, Token([0; 16])), Answer::NotYours);
    assert_eq!(attach_by(&mut l, d, foreign, Token([2; 16])), Answer::NotYours);
    assert_eq!(attach_by(&mut l, d, foreign, Token([1; 16])), Answer::Done);
    assert_eq!(attach_by(&mut l, d, who, token), Answer::Done);
    assert_eq!(l.answer(d, who.client, Request::Leave), Answer::Done);
}

#[test]
fn a_lease_may_have_any_length() {
    for lease in [Duration::MAX, Duration::ZERO] {
        let mut l = ledger(Shut::default());
        l.facts.lease = lease;
        let c = l.connect(1, HOST);
        let who = claim(&mut l, c).0;
        let told = l.answer(c, who.client, Request::Join);
        let lease_nanos = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
        assert_eq!(
            told,
            Answer::Joined {
                epoch: 1,
                lease_nanos
            }
        );
        let later = Instant::now() + Duration::from_secs(1);
        assert_eq!(l.census(later).lapsed, usize::from(lease.is_zero()));
    }
}

#[test]
fn the_census_counts_connections_and_clients() {
    let mut l = ledger(Shut::default());
    let (c, d) = (l.connect(1, HOST), l.connect(2, HOST));
    let a = claim(&mut l, c).0.client;
    let b = claim(&mut l, d).0;
    l.answer(c, a, Request::Join);
    l.answer(c, a, Request::Fence(b));
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
