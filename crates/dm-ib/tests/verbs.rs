//! Tests of verbs over a real device: soft-RoCE in `cargo xtask rxe`, or a card.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{at, cluster};
use dm_ib::{Endpoint, Ib, IbError, MemoryNode, Secret, Thread};
use dm_verbs::{
    Capability, Control, ControlError, ControlReply, ControlRequest, Effect, Env, MaskedCas, NodeId,
    RemotePtr, Transport, VerbErrorKind, Verbs, masked_cas,
};

const MIB: u64 = 1 << 20;

/// Runs one coroutine.
fn run<F: Future>(thread: &Thread, future: F) -> F::Output {
    thread.run([future]).remove(0)
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed))
        .collect()
}

#[test]
fn bytes_of_all_sizes_arrive_where_they_belong() {
    let cluster = cluster(2, MIB, &[]);
    let thread = cluster.ib.thread().unwrap();
    let v = thread.connect(0).unwrap();
    run(&thread, async {
        for (i, len) in [1, 7, 8, 63, 64, 65, 100, 1024, 4096, 65_536, 1 << 19]
            .into_iter()
            .enumerate()
        {
            for node in [0, 1] {
                let place = at(node, 8192 + 13);
                let before = v.read(at(node, 8192), 13).await.unwrap();
                v.write(place, &pattern(i as u8, len)).await.unwrap();
                let back = v.read(place, len as u32).await.unwrap();
                assert!(*back == *pattern(i as u8, len), "{len} bytes on node {node}");
                assert_eq!(*v.read(at(node, 8192), 13).await.unwrap(), *before);
                v.write(place, &vec![0; len]).await.unwrap();
                assert_eq!(v.word(at(node, 8192 + 16)).await.unwrap(), 0);
            }
        }
        v.write(at(0, 8192), &[]).await.unwrap();
    });
}

#[test]
fn atomics_answer_the_old_word() {
    let cluster = cluster(1, MIB, &[]);
    let thread = cluster.ib.thread().unwrap();
    let v = thread.connect(0).unwrap();
    run(&thread, async {
        let word = at(0, 4096);
        v.write(word, &0x0102_0304_0506_0708_u64.to_le_bytes())
            .await
            .unwrap();
        assert_eq!(v.word(word).await.unwrap(), 0x0102_0304_0506_0708);
        assert_eq!(v.cas(word, 1, 2).await.unwrap(), 0x0102_0304_0506_0708, "fails");
        assert_eq!(
            v.cas(word, 0x0102_0304_0506_0708, u64::MAX).await.unwrap(),
            0x0102_0304_0506_0708
        );
        assert_eq!(v.faa(word, 3).await.unwrap(), u64::MAX);
        assert_eq!(v.faa(word, 1).await.unwrap(), 2, "wraps");
        assert_eq!(v.word(word).await.unwrap(), 3);
    });
}

#[test]
fn masked_cas_is_emulated_and_metered_as_what_it_is() {
    let cluster = cluster(1, MIB, &[]);
    let thread = cluster.ib.thread().unwrap();
    let v = thread.connect(0).unwrap();
    run(&thread, async {
        let word = at(0, 4096);
        v.write(word, &0xAB00_u64.to_le_bytes()).await.unwrap();
        let take = MaskedCas {
            compare: 0,
            compare_mask: 1,
            swap: 0xF1,
            swap_mask: 0xFF,
        };
        let before = v.meter().counters();
        // The guess is wrong, which costs one more CAS. The second CAS expects the word that the first one returned.
        assert_eq!(masked_cas(&v, word, take, 0, 9).await, Ok(0xAB00));
        assert_eq!(v.word(word).await.unwrap(), 0xABF1);
        assert_eq!(masked_cas(&v, word, take, 0xABF1, 9).await, Ok(0xABF1), "held");
        let cost = v.meter().counters() - before;
        assert_eq!((cost.cas, cost.masked_cas, cost.reads), (2, 0, 2));
        let refused = v.chain(NodeId(0)).masked_cas(word, take).await.unwrap_err();
        let lacks = VerbErrorKind::Unsupported(Capability::MaskedAtomics);
        assert_eq!((refused.kind, refused.overall()), (lacks, Effect::None));
    });
}

#[test]
fn a_chain_is_one_doorbell_and_keeps_its_order() {
    let cluster = cluster(1, MIB, &[]);
    let thread = cluster.ib.thread().unwrap();
    let v = thread.connect(0).unwrap();
    assert!(
        v.caps(NodeId(0)).inline_bytes >= 32,
        "both kinds of payload are tried below"
    );
    run(&thread, async {
        let (node, lock) = (at(0, 8192), at(0, 4096));
        for round in 1..=50_u64 {
            // A payload within the inline limit, and a longer one.
            for len in [32, 4096] {
                let before = v.meter().counters();
                let mut payload = pattern(round as u8, len);
                let ticket = v
                    .chain(node.node())
                    .write(node, &payload)
                    .write_word(lock, round)
                    .fence()
                    .faa(lock, 1000)
                    .word(lock)
                    .read(node, len as u32)
                    .post();
                payload.fill(0);
                let (old, word, bytes) = ticket.await.unwrap();
                assert_eq!((old, word), (round, round + 1000));
                assert!(
                    *bytes == *pattern(round as u8, len),
                    "the payload was copied when it was pushed"
                );
                let cost = v.meter().counters() - before;
                assert_eq!((cost.doorbells, cost.round_trips, cost.verbs()), (1, 1, 5));
            }
        }
        // A failed CAS does not stop the later requests of the chain.
        let (old, word) = v.chain(node.node()).cas(lock, 7, 8).word(lock).await.unwrap();
        assert_eq!((old, word), (1050, 1050));
        v.chain(NodeId(0)).await.unwrap();
    });
}

#[test]
fn chains_beyond_the_queue_wait_for_room_in_order() {
    let node = dm_ib::MemoryNode::builder(MIB).start().unwrap();
    let ib = Ib::builder(&[node.address()]).queue_depth(16).build().unwrap();
    let thread = ib.thread().unwrap();
    let v = thread.connect(0).unwrap();
    run(&thread, async {
        let word = at(0, 4096);
        // Posts ten times as many requests as the queue holds, and awaits half of the tickets. Each READ must see
        // exactly the WRITEs before it.
        let tickets: Vec<_> = (1..=80_u64)
            .map(|n| {
                v.write(word, &n.to_le_bytes()).detach();
                (n, v.word(word))
            })
            .collect();
        for (n, ticket) in tickets {
            assert_eq!(ticket.await.unwrap(), n);
        }
        let mut long = v.chain(NodeId(0)).many();
        for _ in 0..16 {
            long = long.faa(word, 1);
        }
        let olds = long.await.unwrap();
        assert_eq!((olds.old(0), olds.old(15)), (80, 95));
        let mut longer = v.chain(NodeId(0)).many();
        for _ in 0..17 {
            longer = longer.faa(word, 1);
        }
        let refused = longer.await.unwrap_err();
        assert_eq!(
            (refused.kind, refused.overall()),
            (VerbErrorKind::QueueFull, Effect::None)
        );
        assert_eq!(v.word(word).await.unwrap(), 96);
    });
}

#[test]
fn a_thousand_coroutines_share_a_thread() {
    let cluster = cluster(2, MIB, &[]);
    let thread = cluster.ib.thread().unwrap();
    let clients: Vec<Endpoint> = (0..1000).map(|_| thread.connect(0).unwrap()).collect();
    let ids: std::collections::BTreeSet<u16> = clients.iter().map(|v| v.client().0).collect();
    assert_eq!(ids.len(), 1000);
    let sums = thread.run(clients.iter().enumerate().map(|(me, v)| async move {
        let own = at(1, 8192 + 64 * me as u64);
        let mut sum = 0;
        for round in 0..5_u64 {
            let (posted, counted) = (v.write(own, &pattern(me as u8, 40)), v.faa(at(0, 4096), 1));
            posted.await.unwrap();
            sum += counted.await.unwrap();
            v.faa(at(1, 4096), round).await.unwrap();
            assert!(*v.read(own, 40).await.unwrap() == *pattern(me as u8, 40));
        }
        sum
    }));
    // The clients together saw every number from 0 to 4999 exactly once.
    assert_eq!(sums.iter().sum::<u64>(), 4999 * 5000 / 2);
    let counts = run(&thread, async {
        let v = &clients[0];
        (
            v.word(at(0, 4096)).await.unwrap(),
            v.word(at(1, 4096)).await.unwrap(),
        )
    });
    assert_eq!(counts, (5000, 10_000));
}

#[test]
fn threads_have_queue_pairs_of_their_own() {
    let cluster = cluster(1, MIB, &[]);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let thread = cluster.ib.thread().unwrap();
                let clients: Vec<_> = (0..8).map(|_| thread.connect(1).unwrap()).collect();
                thread.run(clients.iter().map(|v| async move {
                    for _ in 0..20 {
                        // The lock holds its owner's id, and protects a counter.
                        let (lock, counter, me) = (at(0, 4096), at(0, 4160), u64::from(v.client().0));
                        while v.cas(lock, 0, me).await.unwrap() != 0 {
                            v.pause().await;
                        }
                        let count = v.word(counter).await.unwrap();
                        let release = v
                            .chain(NodeId(0))
                            .write_word(counter, count + 1)
                            .free_cas(lock, me, 0);
                        assert_eq!(release.await.unwrap(), me);
                    }
                }));
            });
        }
    });
    let thread = cluster.ib.thread().unwrap();
    let v = thread.connect(0).unwrap();
    assert_eq!(
        run(&thread, async { v.word(at(0, 4160)).await.unwrap() }),
        3 * 8 * 20
    );
}

#[test]
fn dropped_requests_still_land() {
    let cluster = cluster(1, MIB, &[]);
    let thread = cluster.ib.thread().unwrap();
    let v = thread.connect(0).unwrap();
    // Each operation is posted, and then dropped in flight together with its buffers.
    for n in 1..=200_u64 {
        run(&thread, async {
            drop(v.read(at(0, 8192), 4096));
            v.chain(NodeId(0))
                .write(at(0, 8192), &pattern(9, 4096))
                .faa(at(0, 4096), 1)
                .post()
                .detach();
        });
        assert_eq!(run(&thread, async { v.word(at(0, 4096)).await.unwrap() }), n);
    }
    assert!(v.operation().is_ok());
}

#[test]
fn invalid_requests_are_refused_locally_and_the_connection_stays() {
    let cluster = cluster(1, MIB, &[]);
    let thread = cluster.ib.thread().unwrap();
    let v = thread.connect(0).unwrap();
    run(&thread, async {
        let size = MIB;
        let end = at(0, MIB - 4);
        let beyond = VerbErrorKind::OutOfBounds { size };
        assert_eq!(v.read(end, 5).await.unwrap_err().kind, beyond);
        assert_eq!(v.write(at(0, 1 << 47), b"x").await.unwrap_err().kind, beyond);
        assert_eq!(
            v.cas(end, 0, 1).await.unwrap_err().kind,
            VerbErrorKind::Misaligned
        );
        let lost = v.read(at(7, 4096), 8).await.unwrap_err();
        assert_eq!(lost.kind, VerbErrorKind::NoSuchNode);
        dm_verbs::testing::check_refusals(&v).await;
        // If one request of a chain is invalid, no request of the chain is sent.
        let chain = v.chain(NodeId(0)).write_word(at(0, 4096), 1).write(end, b"12345");
        assert_eq!(chain.await.unwrap_err().overall(), Effect::None);
        assert_eq!(v.word(at(0, 4096)).await.unwrap(), 0);
        // Nobody awaits this WRITE, so the next operation returns its error.
        v.write(end, b"12345").detach();
        assert_eq!(v.operation().unwrap_err().kind, beyond);
        assert!(v.operation().is_ok());
    });
}

#[test]
fn the_control_plane_hands_out_memory_ids_and_leases() {
    let cluster = cluster(2, 64 * 4096, &[]);
    let thread = cluster.ib.thread().unwrap();
    let (v, w) = (thread.connect(0).unwrap(), thread.connect(0).unwrap());
    assert_ne!(v.client(), w.client());
    run(&thread, async {
        assert_eq!(v.memory_nodes(), 2);
        let first = v.chunk(NodeId(1), 10_000).await.unwrap();
        assert_eq!(first, at(1, 4096));
        assert_eq!(w.chunk(NodeId(1), 1).await.unwrap(), at(1, 4 * 4096));
        assert!(v.read(first, 12_288).await.unwrap().iter().all(|byte| *byte == 0));
        let full = v.chunk(NodeId(0), 63 * 4096 + 1).await.unwrap_err();
        // The clients of one host may take 15/16 of a node.
        let (node, wanted, left) = (NodeId(0), 63 * 4096 + 1, 60 * 4096);
        assert_eq!(full, ControlError::OutOfMemory { node, wanted, left });
        let region = v
            .call(ControlRequest::Describe { node: NodeId(1) })
            .await
            .unwrap();
        let (bytes, used) = (64 * 4096, 5 * 4096);
        assert_eq!(region, ControlReply::Region(dm_verbs::Region { bytes, used }));
        let nobody = v.chunk(NodeId(2), 1).await.unwrap_err();
        assert_eq!(nobody, ControlError::NoSuchNode { node: NodeId(2) });
        let ControlReply::Joined(membership) = v.call(ControlRequest::Join).await.unwrap() else {
            panic!("unexpected answer to a join")
        };
        assert_eq!((membership.epoch, membership.lease), (1, dm_ib::DEFAULT_LEASE));
        assert_eq!(v.call(ControlRequest::Leave).await, Ok(ControlReply::Done));
    });
}

#[test]
fn a_fenced_client_changes_nothing_any_more() {
    let cluster = cluster(2, MIB, &[]);
    let (doomed, judge) = (cluster.ib.thread().unwrap(), cluster.ib.thread().unwrap());
    let (v, w) = (doomed.connect(0).unwrap(), judge.connect(1).unwrap());
    run(&doomed, async {
        v.write(at(1, 4096), &7_u64.to_le_bytes()).await.unwrap()
    });
    run(&judge, async {
        let fence = |client| w.call(ControlRequest::Fence { client });
        assert_eq!(fence(v.client()).await, Ok(ControlReply::Done));
        let nobody = dm_verbs::ClientId(4000);
        assert_eq!(
            fence(nobody).await,
            Err(ControlError::NoSuchClient { client: nobody })
        );
    });
    run(&doomed, async {
        for node in [0, 1] {
            let lost = v.write(at(node, 4096), &8_u64.to_le_bytes()).await.unwrap_err();
            assert_eq!(
                (lost.kind, lost.effect),
                (VerbErrorKind::ConnectionLost, Effect::Unknown)
            );
        }
        assert_eq!(v.chunk(NodeId(0), 1).await, Err(ControlError::Fenced));
    });
    let words = run(&judge, async {
        (
            w.word(at(0, 4096)).await.unwrap(),
            w.word(at(1, 4096)).await.unwrap(),
        )
    });
    assert_eq!(words, (0, 7));
}

#[test]
fn a_group_is_fenced_together_and_later_members_are_not() {
    let cluster = cluster(2, MIB, &[]);
    let (one, other, judge) = (
        cluster.ib.thread().unwrap(),
        cluster.ib.thread().unwrap(),
        cluster.ib.thread().unwrap(),
    );
    let (v, w, j) = (
        one.connect(1).unwrap(),
        other.connect(1).unwrap(),
        judge.connect(2).unwrap(),
    );
    let enlist = |member| ControlRequest::Enlist { member };
    run(&one, async {
        assert_eq!(v.call(enlist(7)).await, Ok(ControlReply::Done))
    });
    run(&judge, async {
        assert_eq!(j.call(enlist(8)).await, Ok(ControlReply::Done));
        let fenced = j.call(ControlRequest::FenceMember { member: 7 }).await;
        assert_eq!(fenced, Ok(ControlReply::Done));
    });
    run(&other, async {
        assert_eq!(w.call(enlist(7)).await, Ok(ControlReply::Done));
        w.faa(at(1, 4096), 1).await.unwrap();
    });
    run(&one, async {
        assert_eq!(v.call(enlist(7)).await, Err(ControlError::Fenced));
        for node in [0, 1] {
            let lost = v.faa(at(node, 4096), 100).await.unwrap_err();
            assert_eq!(lost.kind, VerbErrorKind::ConnectionLost);
        }
    });
    // After a fence, unlike after a cut link, the thread cannot reconnect.
    let back = one.reconnect(NodeId(1)).unwrap_err();
    assert!(
        matches!(back, IbError::Fenced { client } if client == v.client()),
        "{back}"
    );
    run(&judge, async {
        assert_eq!(j.word(at(0, 4096)).await.unwrap(), 0);
        assert_eq!(j.word(at(1, 4096)).await.unwrap(), 1);
    });
}

#[test]
fn nodes_and_clients_must_share_a_secret() {
    let secret = |bytes: &[u8]| Secret::new(bytes).unwrap();
    let node = MemoryNode::builder(MIB)
        .secret(secret(b"what only these know"))
        .start()
        .unwrap();
    let world = |secret: Option<Secret>| {
        let builder = Ib::builder(&[node.address()]);
        let builder = match secret {
            Some(secret) => builder.secret(secret),
            None => builder,
        };
        builder.build().unwrap().thread()
    };
    for wrong in [None, Some(secret(b"what others think it is"))] {
        let refused = world(wrong).unwrap_err();
        assert!(refused.to_string().contains("secret"), "{refused}");
    }
    let thread = world(Some(secret(b"what only these know"))).unwrap();
    let v = thread.connect(0).unwrap();
    assert_eq!(run(&thread, async { v.faa(at(0, 4096), 1).await }), Ok(0));
    assert!(
        node.metrics().contains("dmkit_node_wrong_secret_total 1\n"),
        "{}",
        node.metrics()
    );
    let anywhere = MemoryNode::builder(MIB).listen(([0, 0, 0, 0], 0).into()).start();
    assert!(anywhere.unwrap_err().to_string().contains("needs a secret"));
}

#[test]
fn a_node_is_not_used_twice() {
    let node = MemoryNode::builder(MIB).start().unwrap();
    let twice = Ib::builder(&[node.address(); 2]).build().unwrap();
    let refused = twice.thread().unwrap_err();
    assert!(matches!(refused, IbError::SameNode { .. }), "{refused}");
}

/// A memory node as a process of its own.
struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    fn start(listen: SocketAddr) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_memory-node"))
            .args([MIB.to_string(), listen.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim().parse().unwrap();
        Self { child, address }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops or continues the process. Its card continues to work meanwhile.
    fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

#[test]
fn a_node_that_died_and_came_back_is_known_to_be_empty() {
    let mut far = Process::start(ANY);
    let near = MemoryNode::builder(MIB).start().unwrap();
    let ib = Ib::builder(&[near.address(), far.address])
        .patience(2, 14)
        .build()
        .unwrap();
    let thread = ib.thread().unwrap();
    let v = thread.connect(0).unwrap();
    run(&thread, async { v.faa(at(1, 4096), 5).await.unwrap() });
    far.kill();
    let lost = run(&thread, async { v.faa(at(1, 4096), 5).await.unwrap_err() });
    assert_eq!(
        (lost.kind, lost.effect),
        (VerbErrorKind::ConnectionLost, Effect::Unknown)
    );
    assert!(thread.is_cut_off(NodeId(1)) && !thread.is_cut_off(NodeId(0)));
    let absent = thread.reconnect(NodeId(1)).unwrap_err();
    assert!(matches!(absent, IbError::Node { .. }), "{absent}");
    let _again = Process::start(far.address);
    let restarted = thread.reconnect(NodeId(1)).unwrap_err();
    assert!(
        matches!(restarted, IbError::Restarted { node: NodeId(1) }),
        "{restarted}"
    );
    run(&thread, async { v.faa(at(0, 4096), 1).await.unwrap() });
    drop(v);
    // A client that starts again uses the empty node.
    let thread = ib.thread().unwrap();
    let v = thread.connect(0).unwrap();
    assert_eq!(run(&thread, async { v.faa(at(1, 4096), 1).await.unwrap() }), 0);
}

#[test]
fn a_stopped_control_plane_stops_no_verb_and_no_other_node() {
    let far = Process::start(ANY);
    let near = MemoryNode::builder(MIB).start().unwrap();
    let ib = Ib::builder(&[near.address(), far.address]).build().unwrap();
    let thread = ib.thread().unwrap();
    let v = thread.connect(0).unwrap();
    far.signal("-STOP");
    run(&thread, async {
        let began = Instant::now();
        let unheard = v.chunk(NodeId(1), 1).await.unwrap_err();
        assert_eq!(unheard, ControlError::Unreachable { node: NodeId(1) });
        let took = began.elapsed();
        assert!(took < Duration::from_secs(6), "{took:?}");
        v.faa(at(1, 4096), 1).await.unwrap();
        v.chunk(NodeId(0), 1).await.unwrap();
    });
    far.signal("-CONT");
    // The node has kept its memory. Late answers to earlier requests are not taken for answers to later ones.
    thread.reconnect(NodeId(1)).unwrap();
    run(&thread, async {
        assert_eq!(v.faa(at(1, 4096), 1).await.unwrap(), 1);
        assert!(v.chunk(NodeId(1), 1).await.is_ok());
    });
}

#[test]
fn a_killed_peer_is_noticed_within_a_second() {
    let mut peer = Process::start(ANY);
    let near = dm_ib::MemoryNode::builder(MIB).start().unwrap();
    let ib = Ib::builder(&[peer.address, near.address()]).build().unwrap();
    let thread = ib.thread().unwrap();
    let v = thread.connect(0).unwrap();
    let word: RemotePtr = at(0, 4096);
    run(&thread, async { v.faa(word, 1).await.unwrap() });
    peer.kill();
    run(&thread, async {
        let began = Instant::now();
        let (first, second) = (
            v.chain(NodeId(0)).write_word(word, 9).faa(word, 1).post(),
            v.word(word),
        );
        let lost = first.await.unwrap_err();
        let took = began.elapsed();
        assert!(took < Duration::from_secs(1), "{took:?}");
        assert_eq!(
            (lost.kind, lost.overall()),
            (VerbErrorKind::ConnectionLost, Effect::Unknown)
        );
        assert_eq!(second.await.unwrap_err().kind, VerbErrorKind::ConnectionLost);
        // Later requests fail at once and without effect. The other node is not affected.
        let later = v.faa(word, 1).await.unwrap_err();
        assert_eq!(
            (later.kind, later.effect),
            (VerbErrorKind::Unreachable, Effect::None)
        );
        let unheard = v.chunk(NodeId(0), 1).await.unwrap_err();
        assert_eq!(unheard, ControlError::Unreachable { node: NodeId(0) });
        assert_eq!(v.faa(at(1, 4096), 5).await.unwrap(), 0);
    });
}
