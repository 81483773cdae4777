//! Clients that die, are suspended and are fenced, on loopback and in the simulator.

use super::*;
use crate::{Death, Job, Seat, World};
use dm_loopback::Loopback;
use dm_sim::{CostModel, Sim};
use dm_sync::Arc;
use dm_verbs::{RemotePtr, Verbs};

const SEAT: Seat = Seat {
    compute_node: 0,
    thread: 0,
};

fn at(offset: u64) -> RemotePtr {
    RemotePtr::new(NodeId(0), 4096 + offset).expect("in range")
}

fn worlds() -> [World; 2] {
    let sim = Sim::builder(CostModel::cx6_roce()).compute_nodes(3);
    [
        Loopback::builder().nodes(1).build().expect("memory").into(),
        sim.build().expect("memory").into(),
    ]
}

/// A job that returns the words from `at(0)` on.
struct Look(usize);

impl Job for Look {
    type Out = Vec<u64>;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Vec<u64> {
        // Wait until all requests on their way have arrived.
        let since = v.now();
        while !v.elapsed(since, Nanos::from_micros(100)) {
            v.charge(Nanos::from_micros(100)).await;
            v.pause().await;
        }
        let bytes = v.read(at(0), 8 * self.0 as u32).await.expect("the node is up");
        dm_verbs::trace::words(&bytes)
    }
}

/// A guard that posts a WRITE when it is dropped, like the guard of a lock that posts an unlock.
struct Undo<'v, V: Verbs>(&'v V);

impl<V: Verbs> Drop for Undo<'_, V> {
    fn drop(&mut self) {
        self.0.write_word_at(at(56));
    }
}

trait WriteWord: Verbs {
    fn write_word_at(&self, at: RemotePtr) {
        self.write(at, &99_u64.to_le_bytes()).detach();
    }
}
impl<V: Verbs> WriteWord for V {}

/// A client that posts one request, a chain of four, a call of the control plane, and a loaded image. At the end, its
/// guard posts one more request.
struct Chained(Doom);

impl Job for Chained {
    type Out = bool;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> bool {
        let v = Mortal::new(v, &self.0);
        let ended = v.unless_dead(async {
            let _undo = Undo(&v);
            v.faa(at(0), 1).await.expect("the node is up");
            let chain = v.chain(NodeId(0)).write_word(at(8), 1).faa(at(16), 1);
            let chain = chain.free_cas(at(24), 0, 1).write(at(64), &[1; 200]);
            chain.await.expect("the node is up");
            v.call(ControlRequest::Join).await.expect("it is up");
            v.load(at(32), &[1]).expect("loopback and simulator can");
            v.pause().await;
        });
        ended.await.is_some()
    }
}

#[test]
fn a_death_cuts_a_chain_between_any_two_requests_and_nothing_follows() {
    for requests in 0..8 {
        for world in worlds() {
            let doom = Doom::default();
            doom.arm(Death {
                requests,
                ..Death::default()
            });
            let lives = world.run_one(Chained(doom));
            // The fifth request is one WRITE, and the sixth is a call of the control plane.
            let told = |n: u64| u64::from(requests >= n);
            let ones = if requests >= 5 { 0x0101_0101_0101_0101 } else { 0 };
            let undone = if lives { 99 } else { 0 };
            assert_eq!(lives, requests > 7, "{requests}");
            let words = world.run_one(Look(9));
            let whole = [told(1), told(2), told(3), told(4), told(7), 0, 0, undone, ones];
            assert_eq!(words, whole, "{requests} requests");
        }
    }
    for world in worlds() {
        assert!(world.run_one(Chained(Doom::default())), "it is not armed");
        assert_eq!(
            world.run_one(Look(9))[7],
            99,
            "the guard posts if its client lives"
        );
    }
}

#[test]
fn a_write_may_land_in_part() {
    for lines in 0..5 {
        for world in worlds() {
            let doom = Doom::default();
            doom.arm(Death {
                requests: 4,
                lines,
                ..Death::default()
            });
            assert!(!world.run_one(Chained(doom)));
            let words = world.run_one(Look(40));
            let landed = words[8..].iter().filter(|word| **word != 0).count() as u64;
            assert_eq!(landed, (8 * lines).min(25), "of 200 bytes");
        }
    }
}

#[test]
fn lines_are_those_of_memory() {
    let part = |offset, lines| first_lines(at(offset).into(), &[0; 100], lines).len();
    assert_eq!(
        [part(0, 1), part(60, 1), part(60, 2), part(60, 9)],
        [64, 4, 68, 100]
    );
}

/// Two clients of one compute node, and a third client of another one. The first client dies while two of its WRITEs
/// are in flight. The second client waits for ever, so the death must wake it. The third client fences their member
/// after a pause, and then reads the memory.
struct Fenced {
    doom: Doom,
    death: Death,
    pause: Nanos,
}

impl Fenced {
    async fn member<V: Verbs + Control>(&self, number: usize, v: &Mortal<'_, V>) {
        v.call(ControlRequest::Enlist { member: 5 })
            .await
            .expect("it is up");
        if number > 0 {
            return core::future::pending().await;
        }
        v.write(at(0), &[1; 8]).detach();
        self.doom.arm(self.death);
        v.write(at(8), &[1; 8]).detach();
        v.write(at(16), &[1; 8]).await.expect("the node is up");
    }
}

impl Job for Fenced {
    type Out = Option<[u64; 2]>;
    async fn run<V: Verbs + Control>(&self, number: usize, v: &V) -> Self::Out {
        if number < 2 {
            let mortal = Mortal::new(v, &self.doom);
            let ended = mortal.unless_dead(self.member(number, &mortal)).await;
            assert_eq!(ended, None);
            return None;
        }
        while !self.doom.is_dead() {
            v.pause().await;
        }
        v.charge(self.pause).await;
        let fence = ControlRequest::FenceMember { member: 5 };
        v.call(fence).await.expect("the control plane is up");
        let words = |bytes: &[u8]| (0..3).filter(|i| bytes[8 * i] == 1).count() as u64;
        let early = words(&v.read(at(0), 24).await.expect("the node is up"));
        v.charge(Nanos::from_micros(500)).await;
        let late = words(&v.read(at(0), 24).await.expect("the node is up"));
        Some([early, late])
    }
}

/// Fences a dead member at several times after its death. Returns, for each time, how many of the member's WRITEs have
/// landed.
fn fenced(world: impl Fn() -> World, loses_posted: bool) -> Vec<u64> {
    let other = Seat {
        compute_node: 1,
        thread: 0,
    };
    let pauses = (0..40).map(|n| Nanos(50 * n));
    let run = |pause| {
        let fenced = Fenced {
            doom: Doom::default(),
            death: Death {
                requests: 1,
                loses_posted,
                ..Death::default()
            },
            pause,
        };
        let out = world().run(&[SEAT, SEAT, other], &Arc::new(fenced));
        let [early, late] = out[2].expect("the last client looked");
        assert_eq!(early, late, "nothing lands after the answer to the fence");
        early
    };
    pauses.map(run).collect()
}

#[test]
fn a_dead_member_can_be_fenced_while_its_requests_are_on_their_way() {
    let sim = || {
        let sim = Sim::builder(CostModel::cx6_roce()).compute_nodes(2);
        World::from(sim.build().expect("memory"))
    };
    let landed = fenced(sim, false);
    assert!(
        landed.iter().all(|n| *n <= 2),
        "the third was not posted: {landed:?}"
    );
    assert!(
        landed.contains(&2) && landed.iter().any(|n| *n < 2),
        "early and late fences: {landed:?}"
    );
    let lost = fenced(sim, true);
    assert!(lost.iter().all(|n| *n == 0), "both were on their way: {lost:?}");
    let loopback = || World::from(Loopback::builder().nodes(1).build().expect("memory"));
    assert_eq!(
        fenced(loopback, false),
        [2; 40],
        "requests take effect when they are posted"
    );
}

/// A client that is suspended before its third WRITE, which it does not await. It awaits its fourth WRITE.
struct Sleeps(Doom);

impl Job for Sleeps {
    type Out = Nanos;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Nanos {
        let v = Mortal::new(v, &self.0);
        let work = async {
            let chain = v.chain(NodeId(0)).write_word(at(0), 1).write_word(at(8), 1);
            chain.await.expect("the node is up");
            let since = v.now();
            v.write_word_at(at(16));
            let last = v.write(at(24), &[1; 8]);
            assert!(
                v.doom.sleeps(v.now()).is_some(),
                "it is still in the poll in which it fell asleep"
            );
            last.await.expect("the node is up");
            v.now() - since
        };
        v.unless_dead(work).await.expect("nobody dies")
    }
}

#[test]
fn a_suspended_client_posts_later_what_it_was_about_to() {
    for world in worlds() {
        let doom = Doom::default();
        doom.arm(Death {
            requests: 2,
            sleeps: Some(Nanos::from_millis(3)),
            ..Death::default()
        });
        let took = world.run_one(Sleeps(doom));
        assert!(took >= Nanos::from_millis(3), "{took:?}");
        assert_eq!(world.run_one(Look(4)), [1, 1, 99, 0x0101_0101_0101_0101]);
    }
}
