//! Tests of the traits of `dm-verbs` with one client: results of chains, typed errors, faults, capabilities.

use std::future::Future;
use std::task::{Context, Poll, Waker};

use dm_loopback::{Builder, ConnectError, Endpoint, Loopback, Trouble, block_on, turns};
use dm_verbs::{
    AtomicUnit, AtomicVsWrite, Capability, CasThenRead, ChipPtr, ClientId, Control, ControlError,
    ControlReply, ControlRequest, Effect, Env, LineOrder, MaskedCas, NodeId, RemotePtr, Transport,
    VerbErrorKind, Verbs, Wqe, masked_cas,
};

fn small() -> Builder {
    Loopback::builder().nodes(2).host_bytes(64 << 10).chip_bytes(4096)
}

fn client(builder: Builder) -> (Loopback, Endpoint) {
    let world = builder.build().expect("memory");
    let client = world.connect(0).expect("an id");
    (world, client)
}

fn at(offset: u64) -> RemotePtr {
    RemotePtr::new(NodeId(1), offset).expect("48 bits")
}

#[test]
fn a_chain_runs_in_order_and_answers_each() {
    for builder in [small(), small().delays(4), small().atomic_unit(AtomicUnit::Word)] {
        let (_, v) = client(builder);
        block_on(async {
            let lane = MaskedCas {
                compare: 0,
                compare_mask: 0xFF,
                swap: 0xAB,
                swap_mask: 0xFF,
            };
            let chain = v
                .chain(NodeId(1))
                .write(at(4100), b"across")
                .write_word(at(4096 + 64), 5);
            let (old, masked, word, bytes) = chain
                .faa(at(4160), 2)
                .free_masked_cas(at(4168), lane)
                .word(at(4160))
                .read(at(4101), 5)
                .await
                .expect("no faults");
            assert_eq!((old, masked, word, &*bytes), (5, 0, 7, &b"cross"[..]));
            // A failed CAS does not stop the later requests of the chain.
            let (old, word) = v
                .chain(NodeId(1))
                .cas(at(4160), 0, 1)
                .word(at(4168))
                .await
                .expect("no faults");
            assert_eq!((old, word), (7, 0xAB));
            // On-chip memory is separate from host memory.
            let chip = ChipPtr::new(NodeId(1), 4088).expect("48 bits");
            assert_eq!(v.faa(chip, 3).await, Ok(0));
            assert_eq!(v.word(chip).await, Ok(3));
            assert_eq!(v.word(at(4088)).await, Ok(0));
            // Node 0 is separate from node 1.
            assert_eq!(
                v.word(RemotePtr::new(NodeId(0), 4160).expect("48 bits")).await,
                Ok(0)
            );
        });
    }
}

#[test]
fn leases_outlive_tickets_and_posts_run_side_by_side() {
    let (_, v) = client(small());
    block_on(async {
        let posted = [0u8, 1, 2].map(|n| v.write(at(8192 + 64 * u64::from(n)), &[n; 64]));
        for ticket in posted {
            ticket.await.expect("no faults");
        }
        let before = v.meter().counters();
        let posted = [0, 1, 2].map(|n| v.read(at(8192 + 64 * n), 64));
        let mut leases = Vec::new();
        for ticket in posted {
            leases.push(ticket.await.expect("no faults"));
        }
        let cost = v.meter().counters() - before;
        assert_eq!(
            (cost.reads, cost.bytes_read, cost.doorbells, cost.round_trips),
            (3, 192, 3, 1)
        );
        v.write(at(8192), &[9; 64]).await.expect("no faults");
        leases[1][0] = 77;
        assert_eq!(
            leases.iter().map(|l| l[0]).collect::<Vec<_>>(),
            [0, 77, 2],
            "leases are the reader's own"
        );
    });
}

#[test]
fn errors_are_typed_and_name_the_request() {
    let (_, v) = client(small());
    let size = 64 << 10;
    let kind = |error: Result<(), dm_verbs::VerbError>| {
        let error = error.expect_err("must fail");
        (error.kind, error.index, error.effect, error.rest)
    };
    block_on(async {
        let refused = |kind| (kind, 0, Effect::None, Effect::None);
        let nowhere = RemotePtr::new(NodeId(2), 0).expect("48 bits");
        assert_eq!(
            kind(v.word(nowhere).await.map(drop)),
            refused(VerbErrorKind::NoSuchNode)
        );
        assert_eq!(
            kind(v.word(at(4)).await.map(drop)),
            refused(VerbErrorKind::Misaligned)
        );
        assert_eq!(
            kind(v.faa(at(12), 1).await.map(drop)),
            refused(VerbErrorKind::Misaligned)
        );
        assert_eq!(
            kind(v.read(at(0), 0).await.map(drop)),
            refused(VerbErrorKind::BadLength { len: 0 })
        );
        let huge = VerbErrorKind::BadLength {
            len: u64::from(u32::MAX),
        };
        assert_eq!(kind(v.read(at(0), u32::MAX).await.map(drop)), refused(huge));
        let beyond = refused(VerbErrorKind::OutOfBounds { size });
        assert_eq!(kind(v.read(at(size - 63), 64).await.map(drop)), beyond);
        assert_eq!(kind(v.write(at(size), &[1]).await), beyond);
        assert_eq!(kind(v.word(at((1 << 48) - 8)).await.map(drop)), beyond);
        assert_eq!(v.caps(NodeId(2)), dm_verbs::Caps::default());

        // A request in the middle of a chain fails. The requests before it have taken effect, and the later ones have
        // not.
        let chain = v
            .chain(NodeId(1))
            .write_word(at(4096), 1)
            .write_word(at(size), 2)
            .write_word(at(4104), 3);
        let middle = (VerbErrorKind::OutOfBounds { size }, 1, Effect::None, Effect::None);
        assert_eq!(kind(chain.await), middle);
        assert_eq!((v.word(at(4096)).await, v.word(at(4104)).await), (Ok(1), Ok(0)));
        // If one request cannot be sent, the whole chain is not sent.
        let chain = v.chain(NodeId(1)).write_word(at(4096), 4).word(at(4));
        assert_eq!(kind(chain.await.map(drop)), refused(VerbErrorKind::Misaligned));
        assert_eq!(v.word(at(4096)).await, Ok(1));
    });
}

#[test]
fn the_error_of_a_detached_request_fails_the_next_operation() {
    for builder in [small(), small().delays(3)] {
        let (_, v) = client(builder);
        assert!(v.operation().is_ok());
        v.write(at(1 << 40), &[1]).detach();
        v.write_later_error_is_not_kept();
        let error = v.operation().expect_err("the detached WRITE failed");
        assert_eq!(
            (error.kind, error.at),
            (VerbErrorKind::OutOfBounds { size: 64 << 10 }, at(1 << 40).into())
        );
        assert!(v.operation().is_ok(), "an error is reported only once");
        // The caller has already received the error of an awaited request.
        assert!(block_on(v.word(at(1 << 40)).into_future()).is_err());
        assert!(v.operation().is_ok());
        // A chain whose doorbell was not rung reports no error and has no effect.
        drop(v.chain(NodeId(1)).write_word(at(4096), 1).word(at(4)));
        assert!(v.operation().is_ok());
        assert_eq!(block_on(v.word(at(4096))), Ok(0));
    }
}

trait LaterError {
    fn write_later_error_is_not_kept(&self);
}
impl LaterError for Endpoint {
    /// Causes a second error, which must not replace the first.
    fn write_later_error_is_not_kept(&self) {
        self.write(at(1 << 41), &[1]).detach();
    }
}

#[test]
fn a_cut_node_fails_typed_and_comes_back() {
    let (world, v) = client(small());
    block_on(async {
        world.cut(NodeId(1), Trouble::Unreachable);
        let error = v.write(at(4096), &[1]).await.expect_err("cut off");
        assert_eq!(
            (error.kind, error.overall()),
            (VerbErrorKind::Unreachable, Effect::None)
        );
        let error = v
            .chain(NodeId(1))
            .write_word(at(4096), 1)
            .read(at(0), 8)
            .await
            .expect_err("cut off");
        assert_eq!(
            (error.kind, error.overall()),
            (VerbErrorKind::Unreachable, Effect::None)
        );
        assert!(v.read(at(0), 8).await.is_err() && v.word(at(0)).await.is_err());
        assert_eq!(
            v.chunk(NodeId(1), 1).await,
            Err(ControlError::Unreachable { node: NodeId(1) })
        );
        assert_eq!(
            v.word(RemotePtr::new(NodeId(0), 0).expect("48 bits")).await,
            Ok(0),
            "the other node"
        );

        world.cut(NodeId(1), Trouble::AnswersLost);
        let error = v.faa(at(4096), 1).await.expect_err("no answer");
        assert_eq!(
            (error.kind, error.effect),
            (VerbErrorKind::ConnectionLost, Effect::Unknown)
        );
        let error = v
            .chain(NodeId(1))
            .write_word(at(4104), 2)
            .write_word(at(4112), 3)
            .await;
        assert_eq!(error.expect_err("no answer").overall(), Effect::Unknown);

        world.cut(NodeId(1), Trouble::LostAfter(1));
        let error = v
            .chain(NodeId(1))
            .write_word(at(4120), 4)
            .write_word(at(4128), 5)
            .await;
        assert_eq!(error.expect_err("no answer").overall(), Effect::Unknown);
        v.write(at(4136), &[6]).detach();

        world.restore(NodeId(1));
        let words = v.read(at(4096), 48).await.expect("restored");
        let words: Vec<_> = words
            .as_chunks()
            .0
            .iter()
            .map(|w| u64::from_le_bytes(*w))
            .collect();
        assert_eq!(words, [1, 2, 3, 4, 0, 6]);
        assert_eq!(
            v.operation().expect_err("the detached one").kind,
            VerbErrorKind::ConnectionLost
        );
    });
}

#[test]
fn capabilities_can_be_withdrawn() {
    let bare = small()
        .masked_atomics(false)
        .chip_bytes(0)
        .atomic_unit(AtomicUnit::Word);
    let bare = bare
        .cas_then_read(CasThenRead::WholeReadFirst)
        .atomic_vs_write(AtomicVsWrite::Racy);
    let (_, v) = client(bare.read_lines(LineOrder::Any));
    let caps = v.caps(NodeId(0));
    use Capability::{
        AtomicVsWriteSerialised, CasThenReadInOrder, ChipMemory, HostBeforeChip, LineAtomicity, MaskedAtomics,
    };
    for missing in [
        MaskedAtomics,
        ChipMemory,
        LineAtomicity,
        CasThenReadInOrder,
        AtomicVsWriteSerialised,
    ] {
        let refused = caps
            .require("test", &[HostBeforeChip, missing])
            .expect_err("withdrawn");
        assert_eq!(refused.missing, missing);
    }
    block_on(async {
        let m = MaskedCas {
            compare: 0,
            compare_mask: 1,
            swap: 3,
            swap_mask: 3,
        };
        let error = v
            .chain(NodeId(1))
            .write_word(at(4096), 8)
            .free_masked_cas(at(4096), m)
            .await;
        let error = error.expect_err("no masked atomics");
        assert_eq!(error.kind, VerbErrorKind::Unsupported(MaskedAtomics));
        assert_eq!(v.word(at(4096)).await, Ok(0), "nothing of the chain was sent");
        assert_eq!(masked_cas(&v, at(4096), m, 0, 4).await, Ok(0), "emulated");
        assert_eq!(v.word(at(4096)).await, Ok(3));
        dm_verbs::testing::check_refusals(&v).await;
    });
}

#[test]
fn requests_that_cannot_be_carried_out_are_refused_as_in_every_world() {
    for builder in [small(), small().delays(3), small().chip_bytes(0)] {
        let (_, v) = client(builder);
        block_on(dm_verbs::testing::check_refusals(&v));
    }
}

/// Without the capability CAS→READ, some READs see the word as it was before the CAS. With the capability, or with a
/// fence, every READ sees the word as it is after the CAS.
#[test]
fn a_read_overtakes_a_cas_only_without_the_capability() {
    let early = |order: CasThenRead, fenced: bool| {
        let (_, v) = client(small().cas_then_read(order).seed(3));
        block_on(async {
            let mut early = 0;
            for round in 0..100 {
                let mut chain = v.chain(NodeId(1)).cas(at(4096), round, round + 1);
                if fenced {
                    chain = chain.fence();
                }
                let (old, seen) = chain.read(at(4096), 8).await.expect("no faults");
                assert_eq!(old, round);
                early += u32::from(*seen != (round + 1).to_le_bytes());
            }
            early
        })
    };
    assert_eq!(early(CasThenRead::InOrder, false), 0);
    assert!((20..80).contains(&early(CasThenRead::WholeReadFirst, false)));
    assert_eq!(early(CasThenRead::WholeReadFirst, true), 0);
}

#[test]
fn delayed_completions_take_polls_and_effects_do_not() {
    let (world, v) = client(small().delays(5).seed(9));
    let mut cx = Context::from_waker(Waker::noop());
    let mut pending = 0;
    for n in 0..50u64 {
        let mut ticket = v.write(at(4096 + 8 * n), &[1]);
        let mut byte = [0];
        world.inspect(at(4096 + 8 * n), &mut byte).expect("in bounds");
        assert_eq!(byte, [1], "the effect is there before any poll");
        // Half of the chains are dropped after one poll.
        for _ in 0..6 {
            match std::pin::Pin::new(&mut ticket).poll(&mut cx) {
                Poll::Pending => pending += 1,
                Poll::Ready(done) => {
                    done.expect("no faults");
                    break;
                }
            }
            if n % 2 == 0 {
                break;
            }
        }
    }
    assert!(pending > 40, "{pending} pending polls");
    assert!(v.operation().is_ok());
}

#[test]
fn a_client_has_a_limited_number_of_chains() {
    let (_, v) = client(small().chains_max(3));
    let open: Vec<_> = (0..3).map(|_| v.chain(NodeId(0))).collect();
    let error = block_on(v.chain(NodeId(1)).word(at(0)).into_future()).expect_err("a fourth chain");
    assert_eq!(
        (error.kind, error.overall()),
        (VerbErrorKind::QueueFull, Effect::None)
    );
    drop(open);
    assert_eq!(block_on(v.chain(NodeId(1)).word(at(0)).into_future()), Ok(0));
}

#[test]
fn chunks_are_disjoint_zeroed_aligned_and_end() {
    let (_, v) = client(small());
    block_on(async {
        let first = v.chunk(NodeId(1), 1).await.expect("room");
        let second = v.chunk(NodeId(1), 10_000).await.expect("room");
        assert_eq!((first.offset(), second.offset()), (4096, 8192));
        let described = v.call(ControlRequest::Describe { node: NodeId(1) }).await;
        assert_eq!(
            described,
            Ok(ControlReply::Region(dm_verbs::Region {
                bytes: 64 << 10,
                used: 20 << 10
            }))
        );
        for wanted in [45 << 10, u64::MAX] {
            let full = ControlError::OutOfMemory {
                node: NodeId(1),
                wanted,
                left: 44 << 10,
            };
            assert_eq!(v.chunk(NodeId(1), wanted).await, Err(full));
        }
        assert_eq!(
            v.chunk(NodeId(1), 44 << 10).await.map(RemotePtr::offset),
            Ok(20 << 10)
        );
        assert!(v.chunk(NodeId(1), 1).await.is_err());
        assert_eq!(
            v.chunk(NodeId(9), 1).await,
            Err(ControlError::NoSuchNode { node: NodeId(9) })
        );
    });
}

#[test]
fn a_fenced_client_does_nothing_any_more() {
    let (world, v) = client(small());
    let other = world.connect(1).expect("an id");
    block_on(async {
        v.write(at(4096), &[1]).await.expect("not yet");
        let fenced = other.call(ControlRequest::Fence { client: v.client() }).await;
        assert_eq!(fenced, Ok(ControlReply::Done));
        for error in [
            v.write(at(4096), &[2]).await.expect_err("fenced"),
            v.word(at(4096)).await.expect_err("fenced"),
            v.read(at(4096), 8).await.map(drop).expect_err("fenced"),
            v.chain(NodeId(1))
                .write(at(4096), &[2])
                .word(at(4096))
                .await
                .expect_err("fenced"),
        ] {
            assert_eq!(
                (error.kind, error.overall()),
                (VerbErrorKind::Fenced, Effect::None)
            );
        }
        assert_eq!(
            v.load(at(4096), &[2]).expect_err("fenced").kind,
            VerbErrorKind::Fenced
        );
        assert_eq!(v.chunk(NodeId(1), 1).await, Err(ControlError::Fenced));
        assert_eq!(other.word(at(4096)).await, Ok(1));
        let nobody = ClientId(999);
        let fenced = other.call(ControlRequest::Fence { client: nobody }).await;
        assert_eq!(fenced, Err(ControlError::NoSuchClient { client: nobody }));
    });
}

#[test]
fn ids_are_unique_and_epochs_grow() {
    let (world, v) = client(small());
    let epoch = |v: &Endpoint| match block_on(v.call(ControlRequest::Join)) {
        Ok(ControlReply::Joined(membership)) => membership.epoch,
        other => panic!("join answered {other:?}"),
    };
    let id = v.client();
    assert_ne!(world.connect(0).expect("an id").client(), id);
    assert_eq!(
        world.connect_as(0, id).err(),
        Some(ConnectError::IdInUse { client: id })
    );
    assert_eq!(
        world.connect_as(0, ClientId(0)).err(),
        Some(ConnectError::IdInUse { client: ClientId(0) })
    );
    let before = epoch(&v);
    drop(v);
    let again = world.connect_as(7, id).expect("free again");
    assert_eq!(
        (again.client(), again.compute_node(), epoch(&again)),
        (id, 7, before + 1)
    );
    // A fence of the old holder of an id does not affect the new holder.
    let other = world.connect(0).expect("an id");
    assert_eq!(
        block_on(other.call(ControlRequest::Fence { client: id })),
        Ok(ControlReply::Done)
    );
    drop(again);
    let third = world.connect_as(0, id).expect("free again");
    assert_eq!(block_on(third.word(at(0))), Ok(0));
}

#[test]
fn random_streams_repeat_per_client_and_seed() {
    let draw = |seed: u64, client: u16| {
        let world = small().seed(seed).build().expect("memory");
        let v = world.connect_as(0, ClientId(client)).expect("free");
        [v.rng(0), v.rng(5), v.rng(0)]
    };
    assert_eq!(draw(1, 4), draw(1, 4));
    assert_ne!(draw(1, 4), draw(2, 4));
    assert_ne!(draw(1, 4), draw(1, 5));
    let [first, other, second] = draw(1, 4);
    assert!(first != other && first != second);
}

#[test]
fn the_spi_takes_single_requests_through_slots_too() {
    let (_, v) = client(small());
    let slot = v.open(NodeId(1));
    v.push(
        &slot,
        Wqe::from(dm_verbs::Op::Faa {
            at: at(4096).into(),
            add: 2,
        }),
    );
    v.ring(&slot);
    let mut cx = Context::from_waker(Waker::noop());
    assert_eq!(v.poll_chain(&slot, &mut cx), Poll::Ready(Ok(())));
    assert!(matches!(v.take(&slot, 0), dm_verbs::Outcome::Old(0)));
    v.close(slot);
}

#[test]
fn a_wait_suspends_even_if_its_turn_polls_again() {
    let (_, v) = client(small().suspend_every_wait());
    let before = turns();
    let old = block_on(async {
        let mut ticket = core::pin::pin!(v.faa(at(4096), 2));
        let asked = core::future::poll_fn(|cx| {
            let again = (0..3).any(|_| ticket.as_mut().poll(cx).is_ready());
            Poll::Ready(again)
        });
        assert!(!asked.await, "it completed in the turn that posted it");
        let old = ticket.await;
        v.chain(NodeId(1))
            .write(at(4096), b"eight by")
            .read(at(4096), 8)
            .await?;
        old
    });
    assert_eq!((old, turns() - before), (Ok(0), 3));
    let refused = block_on(async { v.word(at(1 << 40)).await });
    assert!(refused.is_err());
    assert_eq!(
        turns() - before,
        4,
        "nothing was carried out, so nothing is awaited"
    );
}
