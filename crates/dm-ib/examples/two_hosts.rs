//! The client side of a cluster test. `cargo xtask rxe --two` runs it with memory nodes on another machine.
//!
//! `two_hosts STEP SECRET-FILE ADDRESS…` runs one of these steps: `load` (loads a tree), `write` (writes to it until
//! the process is killed, and records acknowledged writes), `survive` (writes to the same tree nodes while such
//! processes are killed), `verify` (checks the recorded writes), `outage` (survives an outage of the last node) or
//! `cut` (survives a cut of the link). A step prints its progress in lines `two: …`. `cargo xtask rxe --two` reads
//! these lines, and then acts on the other machine.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a command's output is its purpose")]

use std::error::Error;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use dm_ib::{Endpoint, Ib, IbError, Secret, Thread};
use dm_verbs::{Capability, Control, Effect, Env, NodeId, RemotePtr, VerbErrorKind, Verbs};
use sherman::{Applied, Key8, Options, RangeIndex, Sherman};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Number of loaded keys. The writer writes the keys from this number on, until it is killed.
const LOADED: u64 = 400;
/// Number of keys, from `LOADED` on, that several processes write.
const HOT: u64 = 8;
/// The file that ends `survive`.
const ENOUGH: &str = "enough";
/// The file in which the writer records acknowledged writes.
const ACKNOWLEDGED: &str = "acknowledged";
/// Time for which a step waits for an event on the other machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [step, secret, nodes @ ..] = words.as_slice() else {
        return Err("two_hosts STEP SECRET-FILE ADDRESS…".into());
    };
    let nodes = nodes
        .iter()
        .map(|node| node.parse())
        .collect::<std::result::Result<Vec<_>, _>>()?;
    let ib = world(&nodes, Path::new(secret))?;
    let thread = ib.thread()?;
    let v = thread.connect(0)?;
    match step.as_str() {
        "load" => run(&thread, load(&v)),
        "write" => run(&thread, write(&v)),
        "survive" => run(&thread, survive(&v)),
        "verify" => run(&thread, verify(&v)),
        "outage" => outage(&ib, &thread, v),
        "cut" => cut(&thread, &v),
        _ => Err(format!("no step {step}").into()),
    }
}

fn world(nodes: &[SocketAddr], secret: &Path) -> Result<Ib> {
    let ib = Ib::builder(nodes)
        .secret(Secret::from_file(secret)?)
        .assume(&[Capability::LineAtomicity])
        // Two emulated machines share a processor with other programs, so answers may be late.
        .slower(256)
        .patience(6, 16)
        .build()?;
    println!("two: {}", ib.promises());
    Ok(ib)
}

fn run<T>(thread: &Thread, future: impl Future<Output = T>) -> T {
    thread.run([future]).remove(0)
}

fn options() -> Options {
    Options {
        chunk_bytes: 1 << 18,
        ..Options::new(16)
    }
}

fn value(key: u64) -> [u8; 16] {
    let mut value = [0; 16];
    value[..8].copy_from_slice(&key.to_le_bytes());
    value[8..].copy_from_slice(&(!key).to_le_bytes());
    value
}

async fn load(v: &Endpoint) -> Result<()> {
    let tree = Sherman::<Key8>::create_or_open(v, &options()).await?;
    let client = tree.client(v);
    for key in 0..LOADED {
        if client.insert(&Key8(key), &value(key)).await? != Applied::Inserted {
            return Err(format!("key {key} was there before").into());
        }
    }
    println!("two: loaded {LOADED} keys");
    Ok(())
}

/// Writes until the process is killed.
async fn write(v: &Endpoint) -> Result<()> {
    let tree = Sherman::<Key8>::open(v, &options()).await?;
    let client = tree.client(v);
    for key in LOADED.. {
        client.upsert(&Key8(key), &value(key)).await?;
        // Other clients write these keys too, so they must wait for a lock if this client dies now.
        let hot = LOADED + key % HOT;
        client.upsert(&Key8(hot), &value(hot)).await?;
        fs::write(ACKNOWLEDGED, key.to_string())?;
        if key == LOADED + 50 {
            println!("two: writing");
        }
    }
    Ok(())
}

/// Writes the first keys that a [`write`] process also writes, until the file [`ENOUGH`] exists and this process has
/// expelled a member. So this process must wait for locks of writers that were killed.
async fn survive(v: &Endpoint) -> Result<()> {
    let tree = Sherman::<Key8>::open(v, &options()).await?;
    let client = tree.client(v);
    let (mut longest, mut written, started) = (Duration::ZERO, 0_u64, Instant::now());
    for key in (LOADED..LOADED + HOT).cycle() {
        let began = Instant::now();
        client.upsert(&Key8(key), &value(key)).await?;
        longest = longest.max(began.elapsed());
        written += 1;
        if written == 50 {
            println!("two: surviving");
        }
        // The dead writers must also be expelled, a lease after their deaths.
        if Path::new(ENOUGH).exists() && v.meter().counters().expelled > 0 {
            break;
        }
        if started.elapsed() > PATIENCE {
            return Err("nobody was expelled".into());
        }
    }
    let counters = v.meter().counters();
    println!(
        "two: survived: {written} writes, the longest took {} ms; expelled {}, freed {} locks, mended {} nodes",
        longest.as_millis(),
        counters.expelled,
        counters.freed_locks,
        counters.mended
    );
    if longest > PATIENCE {
        return Err("a write waited too long for a dead client".into());
    }
    Ok(())
}

async fn verify(v: &Endpoint) -> Result<()> {
    let last: u64 = fs::read_to_string(ACKNOWLEDGED)?.parse()?;
    let tree = Sherman::<Key8>::open(v, &options()).await?;
    let client = tree.client(v);
    let mut found = Vec::new();
    for key in 0..=last {
        if !client.get(&Key8(key), &mut found).await? || found != value(key) {
            return Err(format!("key {key} of {last} was acknowledged, and is not there").into());
        }
    }
    // A write that was not acknowledged must be there completely, or not at all.
    if client.get(&Key8(last + 1), &mut found).await? && found != value(last + 1) {
        return Err("a torn value".into());
    }
    if client.update(&Key8(0), &value(0)).await? != Applied::Replaced {
        return Err("key 0 is gone".into());
    }
    println!(
        "two: verified {} keys, the last {} of a killed client",
        last + 1,
        last - LOADED + 1
    );
    Ok(())
}

/// Allocates a chunk on `node`, and returns the address of its first word.
fn word(thread: &Thread, v: &Endpoint, node: NodeId) -> Result<RemotePtr> {
    Ok(run(thread, v.chunk(node, 4096))?)
}

/// Increments the word at `at` until an increment fails. Returns the number of successful increments, and how long the
/// failure took.
fn count_until_lost(thread: &Thread, v: &Endpoint, at: RemotePtr) -> Result<(u64, Duration)> {
    let began = Instant::now();
    for counted in 0.. {
        let asked = Instant::now();
        if let Err(lost) = run(thread, v.faa(at, 1)) {
            let took = asked.elapsed();
            println!("two: lost after {} ms: {lost}", took.as_millis());
            if (lost.kind, lost.effect) != (VerbErrorKind::ConnectionLost, Effect::Unknown) {
                return Err("expected ConnectionLost with unknown effect".into());
            }
            let later = run(thread, v.faa(at, 1)).expect_err("a request on a lost connection must fail");
            if (later.kind, later.effect) != (VerbErrorKind::Unreachable, Effect::None) {
                return Err(format!("{later}: expected Unreachable without effect").into());
            }
            return Ok((counted, took));
        }
        if began.elapsed() > PATIENCE {
            break;
        }
    }
    Err("no request failed".into())
}

/// Tries to reconnect until the node can be reached, or [`PATIENCE`] is over.
fn come_back(thread: &Thread, node: NodeId) -> std::result::Result<(), IbError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match thread.reconnect(node) {
            Err(IbError::Node { .. }) if Instant::now() < deadline => std::thread::yield_now(),
            other => return other,
        }
    }
}

/// Tests a restart of the last node, which loses its memory.
fn outage(ib: &Ib, thread: &Thread, v: Endpoint) -> Result<()> {
    let (near, far) = (NodeId(0), NodeId(ib.memory_nodes() - 1));
    let (here, there) = (word(thread, &v, near)?, word(thread, &v, far)?);
    println!("two: ready");
    let (_, took) = count_until_lost(thread, &v, there)?;
    if took > Duration::from_secs(10) {
        return Err("that took too long".into());
    }
    run(thread, v.faa(here, 1))?;
    println!("two: the other node goes on");
    match come_back(thread, far) {
        Err(IbError::Restarted { node }) if node == far => println!("two: it is known to be empty"),
        other => return Err(format!("it was started again, but: {other:?}").into()),
    }
    drop(v);
    let thread = ib.thread()?;
    let v = thread.connect(0)?;
    let fresh = word(&thread, &v, far)?;
    if run(&thread, v.faa(fresh, 1))? != 0 {
        return Err("its memory is not empty".into());
    }
    println!("two: begun again");
    Ok(())
}

/// Tests a cut of the link, after which the memory must be unchanged.
fn cut(thread: &Thread, v: &Endpoint) -> Result<()> {
    let at = word(thread, v, NodeId(0))?;
    println!("two: ready");
    let (counted, _) = count_until_lost(thread, v, at)?;
    come_back(thread, NodeId(0))?;
    let found = run(thread, v.word(at))?;
    // The effect of the last increment is unknown, so it may have happened.
    if found != counted && found != counted + 1 {
        return Err(format!("{counted} were counted, {found} are there").into());
    }
    run(thread, v.chunk(NodeId(0), 1))?;
    println!("two: back, {found} counted");
    Ok(())
}
