//! The models of a census: the shipped allocator finds the blocks that a dead member has lost, while another member
//! takes, links, unlinks and retires blocks.

use dm_alloc::{
    AllocError, Allocator, Census, CensusStep, Class, Life, MemberArea, ReclaimFlaws, ReclaimOptions,
    Restored,
};
use dm_explore::{Client, Endpoint, Knobs, Model, NoSpec};
use dm_sync::Fingerprint;
use dm_sync::epoch::{Epochs, Seat};
use dm_verbs::{Nanos, RemotePtr, Verbs, Why};

use super::member::AREA;
use crate::{Case, Entry, Explorable, How, Kind, Setting, Twin};

pub(crate) const ENTRY: Entry = Entry {
    name: "census",
    kind: Kind::Crash,
    source: "docs/protocol/recovery.md V16 to V23, V25; docs/protocol/reclaim.md R16",
    about: "A member has gone with a chunk. S takes a census, while W, of another member, replaces the linked block by one from \
        its compute node's stock and retires the old one. R does the rounds of W's compute node. In `began before`, W has taken \
        the new block before the census. In `begins late`, W begins when all members record. In `links late`, it links the new \
        block after the walk, and in `unlinks early` it has unlinked the old one before. In `leaves`, W is alone on its compute \
        node, which records, and leaves after the operation. In `joins`, W's compute node joins when all others record, and its \
        block comes from the depot; in `joins late`, it does so between the walk and S's READ of the depot. In `holds`, W is alone on its compute node and \
        holds the old block beyond its operation; it retires the block during the second of two censuses. A census gives back \
        all lost blocks and no others, or ends without a result.",
    cases: || {
        let at_night = [
            "began before",
            "begins late",
            "links late",
            "unlinks early",
            "joins",
        ];
        let small = ["leaves", "joins late", "holds"];
        let at_night = at_night.map(|shape| Case::holds(shape, Knobs::strong()).nightly());
        small
            .map(|shape| Case::holds(shape, Knobs::strong()))
            .into_iter()
            .chain(at_night)
            .collect()
    },
    published: None,
    mutants: &[
        Twin {
            name: "no-record",
            about: "members do not record the blocks that leave their free memory",
            cases: || vec![lying("links late")],
        },
        Twin {
            name: "walks-at-once",
            about: "the walk does not wait for operations that began before the record",
            cases: || vec![lying("began before")],
        },
        Twin {
            name: "asks-at-once",
            about: "the question does not wait for operations that began before the end of the walk",
            cases: || vec![lying("unlinks early")],
        },
        Twin {
            name: "leaves-it-open",
            about: "a member that leaves does not end the census",
            cases: || vec![lying("leaves")],
        },
        Twin {
            name: "joins-unrecorded",
            about: "a member that joins begins its record with its first look",
            cases: || vec![lying("joins late")],
        },
        Twin {
            name: "unheld",
            about: "a census does not learn of a block that a client holds between its operations",
            cases: || vec![lying("holds")],
        },
    ],
    build,
};

fn lying(shape: &'static str) -> Case {
    Case::fails(How::Check, shape, Knobs::strong())
}

/// Blocks of one line. A chunk takes one page of 4096 bytes, and the last line of the page is the record of the chunk.
const CLASS: Class = Class { bytes: 64, kind: 0 };
const CHUNK: u64 = 4096;
const BLOCKS: u64 = CHUNK / 64 - 1;
/// The number of unused magazines in the chunk from which the depot's only magazine was cut.
const MAGAZINES: u64 = 6;
/// Rounds after which all operations that have ended are announced as such.
const ROUNDS: u32 = 3;

/// Returns the address of a word of the model.
fn word(i: u64) -> RemotePtr {
    RemotePtr::from_raw(128 + 64 * i)
}

/// Returns the address of the word that leads to the linked block.
fn root() -> RemotePtr {
    word(0)
}

/// Returns the address of the word that is set while W's operation may still run.
fn busy() -> RemotePtr {
    word(1)
}

/// Returns the address of the number of rounds for which S has asked.
fn asked() -> RemotePtr {
    word(2)
}

/// Returns the address of the word that is set when W has taken its block, or has unlinked the old one. It is [`AGAIN`]
/// when the second census begins.
fn ready() -> RemotePtr {
    word(4)
}

/// Returns the address of the word that is set when S has walked.
fn walked() -> RemotePtr {
    word(5)
}

/// The number of the round in which all members have begun to record. The next constant is the number of the round in
/// which the first grace period ends.
const RECORDED: u64 = 2;
const QUIET: u64 = 3;
const AGAIN: u64 = 2;
/// Rounds of the second census before W retires the block that it holds.
const HELD_ROUNDS: u32 = 2;

/// Returns the address of a word with the number of the last round that the other member has done for S. The word is
/// `u64::MAX` if that member does no rounds.
fn done() -> RemotePtr {
    word(3)
}

type C = Client<Allocator, NoSpec>;

/// Makes the allocator of a compute node.
fn allocator(compute_node: u16, flaws: ReclaimFlaws) -> Allocator {
    let area = MemberArea { at: AREA, slots: 3 };
    let options = ReclaimOptions {
        period: Nanos(u64::MAX),
        operations: 2,
        looks: u32::MAX,
        attempts: 2,
        remembers: false,
        flaws,
    };
    let alloc = Allocator::new(1, compute_node).reclaiming(area, options);
    alloc.restores(CLASS, Life::Unversioned);
    alloc.chunk_bytes(CHUNK)
}

fn seat(alloc: &Allocator) -> Seat {
    Epochs::seat(alloc.epochs().expect("the pool has members"))
}

/// Lets a compute node join, take a block, and leave. With `links`, the block is linked, and the free blocks go to the
/// depot. Otherwise, all blocks of its chunk are lost.
async fn go(v: &Endpoint, links: bool) {
    let alloc = allocator(9, ReclaimFlaws::default());
    let seat = seat(&alloc);
    alloc.prepare(v, &seat).await.expect("a free slot");
    let block = alloc.take(v, CLASS, None).await.expect("a chunk");
    if links {
        v.load(root(), &block.at.raw().to_le_bytes()).expect("setting up");
        alloc.give_away(v).await.expect("a magazine");
    }
    alloc.vacate(v, seat);
}

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let flaws = ReclaimFlaws {
        unrecorded: s.mutant("no-record"),
        leaves_open: s.mutant("leaves-it-open"),
        joins_unrecorded: s.mutant("joins-unrecorded"),
        unheld: s.mutant("unheld"),
        ..ReclaimFlaws::default()
    };
    let graces = (!s.mutant("walks-at-once"), !s.mutant("asks-at-once"));
    let starts = match s.shape {
        "began before" => Starts::First,
        "begins late" => Starts::Late,
        "links late" => Starts::LinksLate,
        "unlinks early" => Starts::UnlinksEarly,
        "leaves" => Starts::Leaves,
        "joins" => Starts::Joins,
        "holds" => Starts::Holds,
        _ => Starts::JoinsLate,
    };
    let (joins, leaves) = (starts.joins(), starts == Starts::Leaves);
    // In `leaves`, W's compute node leaves with its free blocks, so the number of lost blocks is not checked.
    let lost = (!leaves).then_some(BLOCKS + if joins { MAGAZINES } else { 0 });
    let model = Model::new(s.title.clone())
        .memory(64 << 10, 0)
        .setup(move |v| async move {
            v.load(busy(), &1_u64.to_le_bytes()).expect("setting up");
            go(&v, false).await;
            if joins {
                go(&v, true).await;
                v.load(done(), &u64::MAX.to_le_bytes()).expect("setting up");
            }
        })
        .shared_opened(move |v, on| async move {
            let alloc = allocator(on, flaws);
            if on == 0 && joins {
                return alloc;
            }
            let seat = seat(&alloc);
            alloc.prepare(&v, &seat).await.expect("a free slot");
            if on == 0 {
                let block = alloc.take(&v, CLASS, None).await.expect("a chunk");
                v.load(root(), &block.at.raw().to_le_bytes()).expect("setting up");
            }
            alloc
        })
        .fingerprint(Fingerprint::fingerprint)
        .place(root(), 8, "root")
        .place(busy(), 8, "W is busy")
        .place(asked(), 8, "rounds asked for")
        .place(done(), 8, "rounds done")
        .place(AREA.add(24), 8, "census")
        .client("S", 1, move |c: C| async move {
            if matches!(starts, Starts::First | Starts::Holds) {
                let begun = wait_until(&c, ready(), |ready| ready == 1).await;
                c.check(begun.is_ok(), || format!("{begun:?}"));
            }
            let mut round = 0;
            let restored = take_census(&c, starts, graces, &mut round).await;
            let judged = judge(&c, restored, lost).await;
            c.check(judged.is_ok(), || format!("{judged:?}"));
            if starts == Starts::Holds {
                let next = c.verbs().write(ready(), &AGAIN.to_le_bytes()).await;
                c.check(next.is_ok(), || format!("{next:?}"));
                // The first census has found all lost blocks, so another one finds none.
                let restored = take_census(&c, starts, graces, &mut round).await;
                let judged = judge(&c, restored, Some(0)).await;
                c.check(judged.is_ok(), || format!("{judged:?}"));
            }
            let over = c.verbs().write(asked(), &u64::MAX.to_le_bytes()).await;
            c.check(over.is_ok(), || format!("{over:?}"));
        });
    let model = model.client("W", 0, move |c: C| async move {
        let worked = work(&c, starts).await;
        c.check(worked.is_ok(), || format!("{worked:?}"));
    });
    Box::new(match leaves || joins || starts == Starts::Holds {
        true => model,
        false => model.client("R", 0, |c: C| async move {
            let seat = seat(c.shared());
            let served = serve(&c, &seat, u64::MAX).await;
            c.check(served.is_ok(), || format!("{served:?}"));
        }),
    })
}

/// The moment at which W begins its operation, and what else it does.
#[derive(Clone, Copy, PartialEq)]
enum Starts {
    First,
    Late,
    LinksLate,
    UnlinksEarly,
    Leaves,
    Joins,
    JoinsLate,
    Holds,
}

impl Starts {
    fn joins(self) -> bool {
        matches!(self, Self::Joins | Self::JoinsLate)
    }
}

/// Waits by READs until the word at `at` is as wanted, and returns it.
async fn wait_until(c: &C, at: RemotePtr, wanted: impl Fn(u64) -> bool) -> Result<u64, AllocError> {
    let v = c.verbs();
    let mut retry = v.retry(1 << 10);
    loop {
        let word = v.word(at).await?;
        if wanted(word) {
            return Ok(word);
        }
        retry.again(at, Why::Changing).await?;
    }
}

/// Does the rounds for which S asks, up to the one of this number.
async fn serve(c: &C, seat: &Seat, last: u64) -> Result<(), AllocError> {
    let mut round = 0;
    while round < last {
        round = wait_until(c, asked(), |asked| asked > round).await?;
        if round == u64::MAX {
            return Ok(());
        }
        c.shared().collect(c.verbs(), seat).await?;
        c.verbs().write(done(), &round.to_le_bytes()).await?;
    }
    Ok(())
}

/// Replaces the linked block, in one operation.
async fn replace(c: &C, seat: &Seat, starts: Starts) -> Result<(), AllocError> {
    let (v, alloc) = (c.verbs(), c.shared());
    let running = loop {
        match seat.enter() {
            Some(running) => break running,
            None => alloc.prepare(v, seat).await?,
        }
    };
    let block = alloc.take(v, CLASS, None).await?;
    let is_ready = 1_u64.to_le_bytes();
    if matches!(starts, Starts::First | Starts::LinksLate | Starts::JoinsLate) {
        v.write(ready(), &is_ready).await?;
    }
    if starts == Starts::LinksLate {
        wait_until(c, walked(), |walked| walked == 1).await?;
    }
    let old = v.word(root()).await?;
    v.write(root(), &block.at.raw().to_le_bytes()).await?;
    if starts == Starts::UnlinksEarly {
        v.write(ready(), &is_ready).await?;
        // The old block is retired at some time after that.
        v.word(root()).await?;
    }
    let old = dm_alloc::Block::fresh(RemotePtr::from_raw(old));
    if starts != Starts::Holds {
        alloc.retire(old.after(1), CLASS);
        return Ok(());
    }
    let held = alloc.hold(old.at);
    drop(running);
    v.write(busy(), &0_u64.to_le_bytes()).await?;
    v.write(ready(), &is_ready).await?;
    // From now on W only does rounds, and retires the block in one of them.
    let (mut round, mut again, mut held) = (0, 0, Some(held));
    loop {
        round = wait_until(c, asked(), |asked| asked > round).await?;
        if round == u64::MAX {
            return Ok(());
        }
        again += u32::from(v.word(ready()).await? == AGAIN);
        if again > HELD_ROUNDS
            && let Some(held) = held.take()
        {
            alloc.retire_held(held, old.after(1), CLASS);
        }
        alloc.collect(v, seat).await?;
        v.write(done(), &round.to_le_bytes()).await?;
    }
}

/// Does the work of W.
async fn work(c: &C, starts: Starts) -> Result<(), AllocError> {
    let (v, alloc) = (c.verbs(), c.shared());
    let seat = seat(alloc);
    match starts {
        Starts::First | Starts::Holds => {}
        Starts::Leaves => serve(c, &seat, QUIET).await?,
        Starts::Joins => _ = wait_until(c, asked(), |asked| asked >= RECORDED).await?,
        Starts::JoinsLate => _ = wait_until(c, walked(), |walked| walked == 1).await?,
        _ => _ = wait_until(c, asked(), |asked| asked >= QUIET).await?,
    }
    replace(c, &seat, starts).await?;
    if starts == Starts::Holds {
        return Ok(());
    }
    if starts == Starts::Leaves {
        alloc.vacate(v, seat);
        v.write(done(), &u64::MAX.to_le_bytes()).await?;
        return Ok(v.write(busy(), &0_u64.to_le_bytes()).await?);
    }
    if starts.joins() {
        v.write(done(), &0_u64.to_le_bytes()).await?;
    }
    v.write(busy(), &0_u64.to_le_bytes()).await?;
    match starts.joins() {
        true => serve(c, &seat, u64::MAX).await,
        false => Ok(()),
    }
}

/// Does rounds until a step of the census is done. Returns `false` if the census is over.
async fn until(
    c: &C,
    seat: &Seat,
    round: &mut u64,
    step: impl AsyncFn() -> Result<CensusStep, AllocError>,
) -> Result<bool, AllocError> {
    for tries in 0..=2 * ROUNDS {
        if tries == ROUNDS {
            // W's operation might not have ended yet. The rounds after its end suffice.
            wait_until(c, busy(), |busy| busy == 0).await?;
        }
        c.shared().collect(c.verbs(), seat).await?;
        *round += 1;
        c.verbs().write(asked(), &round.to_le_bytes()).await?;
        let asked = *round;
        wait_until(c, done(), |done| done >= asked).await?;
        match step().await? {
            CensusStep::Done => return Ok(true),
            CensusStep::Over => return Ok(false),
            CensusStep::Waits => {}
        }
    }
    c.check(false, || "the members do not answer".to_owned());
    Ok(false)
}

/// If the census has a result, checks that it gave back `lost` blocks, if this is known, and not the linked one.
async fn judge(
    c: &C,
    restored: Result<Option<Restored>, AllocError>,
    lost: Option<u64>,
) -> Result<(), AllocError> {
    let Some(restored) = restored? else { return Ok(()) };
    let expected = lost.is_none_or(|lost| lost == restored.blocks);
    c.check(expected, || format!("{restored:?}"));
    wait_until(c, busy(), |busy| busy == 0).await?;
    let linked = RemotePtr::from_raw(c.verbs().word(root()).await?);
    c.check(!c.shared().holds(linked), || {
        format!("{linked} is linked, and was given back")
    });
    Ok(())
}

/// Takes a census. The index consists only of the block to which the root leads.
async fn take_census(
    c: &C,
    starts: Starts,
    graces: (bool, bool),
    round: &mut u64,
) -> Result<Option<Restored>, AllocError> {
    let (v, alloc) = (c.verbs(), c.shared());
    let seat = seat(alloc);
    let Some(mut census) = alloc.begin_census(v).await? else {
        return Ok(None);
    };
    if !until(c, &seat, round, async || census.told().await).await?
        || graces.0 && !grace(c, &seat, round, &mut census).await?
    {
        return Ok(None);
    }
    if matches!(starts, Starts::LinksLate | Starts::UnlinksEarly) {
        wait_until(c, ready(), |ready| ready == 1).await?;
    }
    census.know(&[RemotePtr::from_raw(v.word(root()).await?)]);
    if matches!(starts, Starts::LinksLate | Starts::JoinsLate) {
        v.write(walked(), &1_u64.to_le_bytes()).await?;
    }
    if starts == Starts::JoinsLate {
        wait_until(c, ready(), |ready| ready == 1).await?;
    }
    if census.know_depots().await? != CensusStep::Done
        || graces.1 && !grace(c, &seat, round, &mut census).await?
        || census.ask().await? != CensusStep::Done
        || !until(c, &seat, round, async || census.told().await).await?
    {
        return Ok(None);
    }
    census.close().await
}

async fn grace(
    c: &C,
    seat: &Seat,
    round: &mut u64,
    census: &mut Census<'_, Endpoint>,
) -> Result<bool, AllocError> {
    census.grace().await?;
    until(c, seat, round, async || census.quiet().await).await
}
