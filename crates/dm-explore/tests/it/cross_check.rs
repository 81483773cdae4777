//! Checks the explorer against itself with random programs. Their sets of end states and their verdicts must not
//! depend on the search.

#![expect(
    clippy::unwrap_used,
    reason = "a panic is how a test, or a client in one, fails"
)]

use core::mem::discriminant;

use dm_explore::{Client, Elapsed, Knobs, Late, Model, Register, RegisterOp, Search, Verdict};
use dm_sync::{Arc, Mutex};
use dm_verbs::{
    AtomicUnit, AtomicVsWrite, CasThenRead, ClientId, Control, ControlRequest, Env, FailedCas, LineOrder,
    LocalStep, Nanos, NodeId, RemotePtr,
};
use dm_verbs::{VerbError, Verbs, Why};

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) ^ (self.0 >> 47)
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    fn flip(&mut self) -> bool {
        self.next() & 1 == 0
    }
}

/// Returns the address of a word. The words lie in two lines, so that requests of 16 and of 80 bytes may have several
/// units.
fn word(i: u64) -> RemotePtr {
    RemotePtr::new(NodeId(0), 64 + [0, 8, 56, 64, 72][i as usize % 5]).unwrap()
}

#[derive(Clone, Debug)]
enum Act {
    Read {
        at: u64,
        len: u32,
    },
    Write {
        at: u64,
        words: usize,
        value: u64,
    },
    Cas {
        at: u64,
        compare: u64,
        swap: u64,
    },
    Faa {
        at: u64,
    },
    /// Posts a WRITE and never awaits it.
    Post {
        at: u64,
        value: u64,
    },
    CasThenRead {
        at: u64,
        read: u64,
    },
    /// Posts two chains and awaits the second one first.
    Both {
        a: u64,
        b: u64,
    },
    Chain {
        at: u64,
        fence: bool,
    },
    Local,
    /// Repeats until the word is not zero.
    Until {
        at: u64,
    },
    Time {
        at: u64,
    },
    /// Repeats until the shared number is large. Only models with a fingerprint use it.
    UntilShared,
    Enter,
    /// Asks the control plane to fence the first client.
    Fence,
    RegisterWrite {
        value: u64,
    },
    RegisterRead,
}

fn act(rng: &mut Rng, registers: bool, told: bool) -> Act {
    if registers {
        return if rng.flip() {
            Act::RegisterWrite {
                value: 1 + rng.below(2),
            }
        } else {
            Act::RegisterRead
        };
    }
    let (at, value) = (rng.below(5), rng.below(3));
    match rng.below(19) {
        0 | 1 => Act::Read {
            at: 0,
            len: [8, 16, 80][rng.below(3) as usize],
        },
        2 | 3 => Act::Write {
            at,
            words: 1 + rng.below(2) as usize,
            value,
        },
        4 | 5 => Act::Cas {
            at,
            compare: value,
            swap: value + 1,
        },
        6 => Act::Faa { at },
        7 => Act::Post { at, value },
        8 => Act::CasThenRead {
            at,
            read: rng.below(5),
        },
        9 => Act::Both {
            a: at,
            b: rng.below(5),
        },
        10 => Act::Chain {
            at,
            fence: rng.flip(),
        },
        11 | 12 => Act::Local,
        13 => Act::Until { at },
        14 if told => Act::UntilShared,
        15 => Act::Enter,
        16 => Act::Fence,
        _ => Act::Time { at },
    }
}

type Shared = Mutex<u64>;
type Program = Client<Shared, Register<(u64, u64)>>;

async fn perform(c: &Program, act: &Act) -> Result<(), VerbError> {
    let v = c.verbs();
    match *act {
        Act::Read { at, len } => drop(v.read(word(at), len).await?),
        Act::Write { at, words, value } => {
            let bytes: Vec<u8> = (0..words).flat_map(|_| value.to_le_bytes()).collect();
            v.write(word(at), &bytes).await?;
        }
        Act::Cas { at, compare, swap } => {
            // The client's next request depends on the word that it saw.
            if v.cas(word(at), compare, swap).await? == compare {
                v.write(word(at + 1), &[7; 8]).await?;
            }
        }
        Act::Faa { at } => drop(v.faa(word(at), 1).await?),
        Act::Post { at, value } => v.write(word(at), &value.to_le_bytes()).detach(),
        Act::CasThenRead { at, read } => {
            let _ = v
                .chain(NodeId(0))
                .cas(word(at), 0, 5)
                .read(word(read), 16)
                .post()
                .await?;
        }
        Act::Both { a, b } => {
            let (first, second) = (v.read(word(a), 16), v.word(word(b)));
            let seen = second.await?;
            v.write(word(a), &seen.to_le_bytes()).detach();
            let _ = first.await?;
        }
        Act::Chain { at, fence } => {
            let chain = v.chain(NodeId(0)).read(word(at), 8);
            let chain = if fence { chain.fence() } else { chain };
            let _ = chain.write_word(word(at), 9).post().await?;
        }
        Act::Local => {
            v.local(LocalStep::Section).await;
            let me = u64::from(v.client().0);
            let seen = c.shared().with(|x| {
                *x = *x * 3 + me;
                *x
            });
            if seen.is_multiple_of(2) {
                v.write(word(0), &seen.to_le_bytes()).await?;
            }
        }
        Act::Until { at } => {
            let mut retry = v.retry(100);
            while v.word(word(at)).await? == 0 {
                if retry.again(word(at), Why::Raced).await.is_err() {
                    return Ok(());
                }
            }
        }
        Act::Time { at } => {
            if v.elapsed(Nanos(0), Nanos(1)) {
                v.faa(word(at), 2).await?;
            }
        }
        Act::UntilShared => {
            let mut retry = v.retry(100);
            loop {
                v.local(LocalStep::Section).await;
                if c.shared().with(|x| *x) > 3 || retry.again(word(0), Why::Raced).await.is_err() {
                    return Ok(());
                }
            }
        }
        Act::Enter => {
            c.enter_up_to("both", 2);
            let _ = v.word(word(0)).await?;
            c.leave("both");
            c.ghost("last to leave", u64::from(v.client().0));
        }
        Act::Fence => {
            let client = ClientId(1);
            // A client that is fenced already gets an error here.
            let _ = v.call(ControlRequest::Fence { client }).await;
        }
        Act::RegisterWrite { value } => write_register(c, value).await,
        Act::RegisterRead => read_register(c).await,
    }
    Ok(())
}

async fn write_register(c: &Program, value: u64) {
    let bytes: Vec<u8> = [value, value].iter().flat_map(|w| w.to_le_bytes()).collect();
    c.try_op(RegisterOp::Write((value, value)), async {
        c.verbs().write(word(0), &bytes).await.ok().map(|()| None)
    })
    .await;
}

async fn read_register(c: &Program) {
    c.try_op(RegisterOp::Read, async {
        let bytes = c.verbs().read(word(0), 16).await.ok()?;
        let half = |i: usize| u64::from_le_bytes(bytes[i * 8..i * 8 + 8].try_into().unwrap());
        Some(Some((half(0), half(1))))
    })
    .await;
}

fn knobs(rng: &mut Rng) -> Knobs {
    let order = |rng: &mut Rng| {
        if rng.flip() {
            LineOrder::Any
        } else {
            LineOrder::Increasing
        }
    };
    Knobs {
        read_lines: order(rng),
        write_lines: order(rng),
        unit: if rng.flip() {
            AtomicUnit::Word
        } else {
            AtomicUnit::Line
        },
        write_overtakes: rng.flip(),
        cas_then_read: [
            CasThenRead::AnyLineFirst,
            CasThenRead::WholeReadFirst,
            CasThenRead::InOrder,
        ][rng.below(3) as usize],
        atomic_vs_write: if rng.flip() {
            AtomicVsWrite::Racy
        } else {
            AtomicVsWrite::Serialised
        },
        failed_cas: if rng.flip() {
            FailedCas::WritesBack
        } else {
            FailedCas::LeavesAlone
        },
        elapsed: if rng.flip() { Elapsed::Free } else { Elapsed::Never },
        crashes: u8::from(rng.below(4) == 0),
        cancels: u8::from(rng.below(4) == 0),
        ..Knobs::weak()
    }
}

/// Returns a random model. In every fourth one the clients read and write a two-word register, and their operations
/// are recorded.
fn model(seed: u64) -> Model<Shared, Register<(u64, u64)>> {
    let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    rng.next();
    let registers = seed.is_multiple_of(4);
    let mut knobs = knobs(&mut rng).failures([1, 0, 0, 2, 0, 1, 0][seed as usize % 7]);
    if seed.is_multiple_of(2) {
        knobs.late = Late::UntilFenced;
    }
    let told = rng.flip();
    let clients = 2 + rng.below(2);
    let mut model = Model::new(format!("random {seed}"))
        .shared(|_| Shared::new(1))
        .spec(Register((0, 0)))
        .crash_may_block()
        .knobs(knobs);
    if told {
        model = model.fingerprint(|x| x.with(|x| *x));
    }
    for i in 0..clients {
        let length = if clients == 2 { 1 + rng.below(3) } else { 1 };
        let acts: Arc<Vec<Act>> = Arc::new((0..length).map(|_| act(&mut rng, registers, told)).collect());
        let node = rng.below(2) as u16;
        model = model.client(format!("{i} {acts:?}"), node, move |c| {
            let acts = Arc::clone(&acts);
            async move {
                for act in &*acts {
                    // If a chain fails, the client continues with its next act.
                    if perform(&c, act).await.is_err() {
                        c.output(1);
                    }
                }
            }
        });
    }
    model
}

/// Returns the part of a verdict that must not depend on the search.
fn found(verdict: &Verdict) -> Result<(u64, (u64, u64)), std::mem::Discriminant<dm_explore::Failure>> {
    match verdict {
        Verdict::Counterexample(found) => Err(discriminant(&found.failure)),
        other => Ok((other.report().ends, other.report().ends_hash)),
    }
}

/// Returns the number of programs. `DM_SEEDS` sets another one.
fn seeds() -> u64 {
    std::env::var("DM_SEEDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(600)
}

#[test]
fn all_searches_find_the_same_ends_and_the_same_verdict() {
    let (mut agreed, mut failing, mut too_big, mut saved) = (0, 0, 0, (0, 0));
    // With the last two seeds, the searches of an earlier explorer did not agree. In seed 1253 a loop begins in the
    // poll of a section on shared state. In seed 1956 two queue pairs fail.
    for seed in (0..seeds()).chain([1253, 1956]) {
        let model = model(seed);
        let naive = model.run(Search::naive().steps(150_000).unshortened());
        if matches!(naive, Verdict::Truncated { .. }) {
            too_big += 1;
            continue;
        }
        let (want, cached) = (found(&naive), model.run(Search::cached().unshortened()));
        let both = model.run(Search::exhaustive().unshortened());
        let sleeping = model.run(Search::sleeping().unshortened());
        let breadth = model.run(Search::shortest());
        let together = model.run(Search::exhaustive().threads(3).alone(seed % 20).unshortened());
        for other in [&cached, &both, &sleeping, &breadth, &together] {
            // If several failures are possible, the search determines which one is found first.
            let same = match (&want, found(other)) {
                (Err(_), Err(_)) => true,
                (want, got) => *want == got,
            };
            assert!(same, "seed {seed}\nnaive: {naive}\nother: {other}\n{model:?}");
        }
        if naive.is_pass() {
            assert_eq!(cached.report().states, together.report().states, "seed {seed}");
            assert_eq!(
                cached.report().states,
                both.report().states,
                "sleep sets leave out steps, never states"
            );
            saved.0 += cached.report().steps;
            saved.1 += both.report().steps;
        } else {
            failing += 1;
        }
        agreed += 1;
    }
    println!("{agreed} programs agree, {failing} of them failing; {too_big} too big; steps {saved:?}");
    assert!(
        agreed > seeds() / 2 && failing > seeds() / 10,
        "{agreed} {failing}"
    );
}
