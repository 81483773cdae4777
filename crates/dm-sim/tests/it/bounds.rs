//! Tests three properties for several resources that can be the limit: no run exceeds the limit of the cost model, a
//! saturated run comes close to it, and the simulation finds this resource to be the busiest.
#![expect(clippy::unwrap_used, reason = "a test panics")]

use std::cell::Cell;
use std::rc::Rc;

use dm_sim::{Busy, CostModel, Demand, MixDemand, Resource, Side, Sim, Testbed, VerbKind};
use dm_verbs::{Env, MaskedCas, Nanos, NodeId, RemotePtr, Verbs};

/// Returns the Mops of a saturated run, its busiest resource, and the share of time for which it was busy. Half of the
/// verbs are READs of `read` bytes, the others WRITEs of `write` bytes, spread over all memory nodes.
fn run(bed: Testbed, clients_per_thread: u16, read: u32, write: usize, cpu: Nanos) -> (f64, Busy, f64) {
    let sim = Sim::builder(CostModel::cx5_ib())
        .compute_nodes(bed.compute_nodes)
        .memory_nodes(bed.memory_nodes)
        .colocated(bed.colocated)
        .seed(4)
        .build()
        .unwrap();
    let (from, to) = (Nanos::from_micros(200), Nanos::from_micros(1000));
    let done = Rc::new(Cell::new(0u32));
    for c in 0..bed.compute_nodes * bed.threads * clients_per_thread {
        let done = Rc::clone(&done);
        sim.spawn(
            c % bed.compute_nodes,
            c / bed.compute_nodes % bed.threads,
            move |v| async move {
                while v.now() < to {
                    if cpu > Nanos(0) {
                        v.charge(cpu).await;
                    }
                    let r = v.rng(0);
                    let node = NodeId((r % u64::from(bed.memory_nodes)) as u16);
                    let at = RemotePtr::new(node, 4096 + (r >> 32) % 8192 * 2048).unwrap();
                    if r >> 20 & 1 == 0 {
                        drop(v.read(at, read).await.unwrap());
                    } else {
                        v.write(at, &vec![1; write]).await.unwrap();
                    }
                    let now = v.now();
                    if now >= from && now < to {
                        done.set(done.get() + 1);
                    }
                }
            },
        );
    }
    sim.run_until(from);
    let before = sim.busy();
    sim.run_until(to);
    let busiest = sim.busy().since(&before)[0];
    sim.run();
    let time = (to - from).0 as f64;
    (
        f64::from(done.get()) * 1e3 / time,
        busiest,
        busiest.ns as f64 / time,
    )
}

#[test]
fn clients_that_change_one_word_are_limited_by_its_atomics() {
    let sim = Sim::builder(CostModel::cx5_ib())
        .compute_nodes(2)
        .memory_nodes(2)
        .build()
        .unwrap();
    for c in 0..64 {
        sim.spawn(c % 2, c / 2, async move |v| {
            let word = RemotePtr::new(NodeId(1), 4096).unwrap();
            for _ in 0..50 {
                v.faa(word, 1).await.unwrap();
            }
        });
    }
    let before = sim.busy();
    sim.run();
    let busiest = sim.busy().since(&before)[0];
    assert_eq!(busiest.to_string(), "atomics on the same bytes of memory node 1");
    let stalled = busiest.stalled_ns as f64 / busiest.ns as f64;
    assert!((0.5..1.0).contains(&stalled), "{stalled}");
    let share = busiest.ns as f64 / sim.now().0 as f64;
    assert!((0.9..=1.0).contains(&share), "{share}");
}

#[test]
fn saturated_runs_come_near_the_bound_and_never_pass_it() {
    let one = Testbed {
        compute_nodes: 8,
        memory_nodes: 1,
        colocated: false,
        threads: 10,
    };
    let fan_out = Testbed {
        compute_nodes: 1,
        memory_nodes: 6,
        colocated: false,
        threads: 64,
    };
    let colocated = Testbed {
        compute_nodes: 4,
        memory_nodes: 4,
        colocated: true,
        threads: 20,
    };
    let few_threads = Testbed {
        compute_nodes: 2,
        memory_nodes: 2,
        colocated: false,
        threads: 2,
    };
    for (bed, per_thread, read, write, cpu, limit) in [
        (one, 6, 64, 8, 0, Resource::Responder),
        (one, 6, 1024, 8, 0, Resource::LinkOut(Side::Memory)),
        (fan_out, 6, 8, 8, 0, Resource::Requester),
        (fan_out, 6, 8, 1024, 0, Resource::LinkOut(Side::Compute)),
        (colocated, 6, 1024, 1024, 0, Resource::LinkOut(Side::Shared)),
        (few_threads, 8, 64, 64, 2_000, Resource::ClientThreads),
    ] {
        let mix = MixDemand {
            verbs: vec![
                Demand::new(VerbKind::Read, f64::from(read), 0.5),
                Demand::new(VerbKind::Write, write as f64, 0.5),
            ],
            chains: 1.0,
            cpu_ns: cpu as f64,
        };
        let bound = CostModel::cx5_ib().bound(&mix, &bed);
        let (mops, busiest, busy) = run(bed, per_thread, read, write, Nanos(cpu));
        println!(
            "{:<28} bound {:>6.2}, model {mops:>6.2} Mops",
            bound.limit.to_string(),
            bound.mops
        );
        assert_eq!(bound.limit, limit, "{bound:?}");
        // Both directions of a shared card's link carry the same bytes here.
        let both = [Resource::LinkOut(Side::Shared), Resource::LinkIn(Side::Shared)];
        let same = busiest.resource == limit || both.contains(&limit) && both.contains(&busiest.resource);
        assert!(same, "{busiest} was busy for {busy}, and not {limit}");
        assert!((0.93..=1.005).contains(&busy), "{busiest} was busy for {busy}");
        // A verb that completes in the measured window may have used the resource before the window. So the throughput
        // may exceed the bound by up to half a percent.
        assert!(
            (0.93..=1.005).contains(&(mops / bound.mops)),
            "{limit}: {mops} of {}",
            bound.mops
        );
    }
}

#[test]
fn the_bound_and_the_simulation_send_the_same_bytes() {
    let bed = Testbed {
        compute_nodes: 1,
        memory_nodes: 1,
        colocated: false,
        threads: 1,
    };
    let word = RemotePtr::new(NodeId(0), 4096).unwrap();
    for kind in [
        VerbKind::Read,
        VerbKind::Write,
        VerbKind::Cas,
        VerbKind::MaskedCas,
        VerbKind::Faa,
    ] {
        let model = CostModel::cx6_roce();
        let mix = MixDemand {
            verbs: vec![Demand::new(kind, 8.0, 1.0)],
            chains: 1.0,
            cpu_ns: 0.0,
        };
        let bound = model.bound(&mix, &bed);
        let of = |resource| bound.all.iter().find(|(r, _)| *r == resource).unwrap().1;
        let bytes = |resource| (1e3 / of(resource) / model.link_ns_per_byte).round() as u64;
        let (sent, received) = (
            bytes(Resource::LinkOut(Side::Memory)),
            bytes(Resource::LinkIn(Side::Memory)),
        );
        let sim = Sim::builder(model).build().unwrap();
        sim.spawn(0, 0, move |v| async move {
            let masked = MaskedCas {
                compare: 0,
                compare_mask: 1,
                swap: 1,
                swap_mask: 1,
            };
            match kind {
                VerbKind::Read => drop(v.read(word, 8).await.unwrap()),
                VerbKind::Write => v.write(word, &[1; 8]).await.unwrap(),
                VerbKind::Cas => drop(v.cas(word, 0, 1).await.unwrap()),
                VerbKind::MaskedCas => drop(v.chain(NodeId(0)).masked_cas(word, masked).await.unwrap()),
                VerbKind::Faa => drop(v.faa(word, 1).await.unwrap()),
            }
        });
        sim.run();
        let card = sim.memory_nic(NodeId(0));
        assert_eq!((card.bytes_out, card.bytes_in), (sent, received), "{kind:?}");
    }
}
