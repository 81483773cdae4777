//! Measures how many verbs are simulated per second of CPU time. The rates depend on the machine and on other programs
//! on it, so they are only information; tests compare counters and digests instead.
//!
//! `cargo run --release -p dm-sim --example sim_bench -- [--op MIX] [--clients N] [--ops VERBS]`
//!
//! It prints one row for each mix and number of clients, or only for the given ones. With `--op`, it also prints the
//! lines that `cargo xtask bench sim` reads: the number of verbs, and the CPU time in microseconds.

#![expect(clippy::print_stdout, reason = "a bench prints")]

use dm_sim::{CostModel, Endpoint, RunEnd, Sim};
use dm_verbs::{ChipPtr, Env, NodeId, RemotePtr, Verbs};

const REGION: u64 = 64 << 20;

/// Returns this thread's CPU time in seconds.
fn cpu_seconds() -> f64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is a valid timespec that is valid during the call; the clock id is one that Linux has.
    let ok = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut t) };
    assert_eq!(ok, 0, "this thread has a CPU clock");
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

#[derive(Clone, Copy)]
enum Mix {
    Read64,
    Cas,
    Read1K,
    /// 50 % READs and 30 % WRITEs of this number of bytes, and 20 % CASes.
    Mixed(u32),
    /// Sherman's verbs. Half of the operations READ a leaf; the other half lock it, READ it, and WRITE an entry with
    /// the unlock.
    Sherman,
}

/// Picks a random place for `len` bytes.
fn place(r: u64, len: u64) -> RemotePtr {
    let offset = 4096 + (((r >> 16) % (REGION - 8192)) & !(len.next_power_of_two() - 1));
    RemotePtr::new(NodeId(0), offset).expect("the offset is in range")
}

async fn reads<const LEN: u32>(v: Endpoint, verbs: u64) {
    for _ in 0..verbs {
        drop(
            v.read(place(v.rng(0), LEN.into()), LEN)
                .await
                .expect("the node is up"),
        );
    }
}

async fn swaps(v: Endpoint, verbs: u64) {
    for _ in 0..verbs {
        v.cas(place(v.rng(0), 64), 0, 1).await.expect("the node is up");
    }
}

async fn mixed(v: Endpoint, verbs: u64, len: u32) {
    for _ in 0..verbs {
        let r = v.rng(0);
        let at = place(r, len.into());
        match r % 10 {
            0..5 => drop(v.read(at, len).await.expect("the node is up")),
            5..8 => v
                .write(at, &[3; 1024][..len as usize])
                .await
                .expect("the node is up"),
            _ => {
                v.cas(at, 0, 1).await.expect("the node is up");
            }
        }
    }
}

async fn sherman(v: Endpoint, verbs: u64) {
    let mut done = 0;
    while done < verbs {
        let r = v.rng(0);
        let leaf = place(r, 1024);
        done += 1;
        if r & 1 == 0 {
            drop(v.read(leaf, 1024).await.expect("the node is up"));
            continue;
        }
        let lock = ChipPtr::new(NodeId(0), (r >> 20) % 32_768 * 8).expect("the offset is in range");
        while v.cas(lock, 0, 1).await.expect("the node is up") != 0 {
            done += 1;
        }
        drop(v.read(leaf, 1024).await.expect("the node is up"));
        v.chain(NodeId(0))
            .write(leaf.add(r & 0x3C0), &[1; 17])
            .write_word(lock, 0)
            .await
            .expect("the node is up");
        done += 3;
    }
}

fn spawn(sim: &Sim, mix: Mix, client: u16, verbs: u64) {
    let (node, thread) = (client % 8, client / 8);
    match mix {
        Mix::Read64 => sim.spawn(node, thread, |v| reads::<64>(v, verbs)),
        Mix::Read1K => sim.spawn(node, thread, |v| reads::<1024>(v, verbs)),
        Mix::Cas => sim.spawn(node, thread, |v| swaps(v, verbs)),
        Mix::Mixed(len) => sim.spawn(node, thread, move |v| mixed(v, verbs, len)),
        Mix::Sherman => sim.spawn(node, thread, |v| sherman(v, verbs)),
    };
}

/// Runs a mix and prints its row. Returns the number of verbs and the CPU time in seconds.
fn row(name: &str, mix: Mix, clients: u16, verbs: u64) -> (u64, f64) {
    let sim = Sim::builder(CostModel::cx5_ib())
        .compute_nodes(8)
        .memory_bytes(REGION)
        .huge_pages(true)
        .seed(1)
        .build()
        .expect("64 MiB can be mapped");
    // The first touch of the memory is not part of the measurement.
    sim.with_memory(NodeId(0), dm_verbs::Space::Host, |m| m.fill(0));
    for c in 0..clients {
        spawn(&sim, mix, c, verbs / u64::from(clients));
    }
    let start = cpu_seconds();
    assert_eq!(sim.run(), RunEnd::Finished);
    let seconds = cpu_seconds() - start;
    let (n, virtual_s) = (sim.verbs() as f64, sim.now().0 as f64 * 1e-9);
    println!(
        "{name:>10} {clients:>5} clients  {:>6.2} M simulated verbs per CPU second   {:>4.2} events/verb   model {:>6.2} Mverbs/s   digest {:016x}",
        n / seconds / 1e6,
        sim.events() as f64 / n,
        n / virtual_s / 1e6,
        sim.digest(),
    );
    (sim.verbs(), seconds)
}

/// Returns the value of argument `name`, if it is given.
fn argument<T: std::str::FromStr>(name: &str) -> Option<T> {
    let mut args = std::env::args().skip_while(|a| a != name).skip(1);
    let value = args.next()?;
    let Ok(value) = value.parse() else {
        panic!("{name} does not take the value {value}")
    };
    Some(value)
}

fn main() {
    let verbs = argument("--ops").unwrap_or(2_000_000);
    let (only_mix, only_clients) = (argument::<String>("--op"), argument::<u16>("--clients"));
    let mixes = [
        ("READ64", Mix::Read64),
        ("CAS", Mix::Cas),
        ("READ1K", Mix::Read1K),
        ("mixed64", Mix::Mixed(64)),
        ("mixed1K", Mix::Mixed(1024)),
        ("Sherman", Mix::Sherman),
    ];
    let mixes = mixes
        .iter()
        .filter(|(name, _)| only_mix.as_deref().is_none_or(|m| m == *name));
    for clients in only_clients.map_or(vec![64, 640, 1024], |c| vec![c]) {
        for (name, mix) in mixes.clone() {
            let (done, seconds) = row(name, *mix, clients, verbs);
            if only_mix.is_some() {
                println!("ops {done}\nmicroseconds {:.0}", seconds * 1e6);
            }
        }
    }
}
