//! The model of a block that is reused while a compute node remembers its address from an earlier operation.

use dm_alloc::{AllocError, Allocator, ReclaimFlaws};
use dm_explore::{Client, Knobs, Model, NoSpec};
use dm_sync::Fingerprint;
use dm_sync::epoch::Epochs;
use dm_verbs::Verbs;

use super::{DEAD, allocator_that, begin, block, first_life, joined, root, use_again};
use crate::{Case, Entry, Explorable, How, Kind, Setting, Twin};

pub(crate) const ENTRY: Entry = Entry {
    name: "reclaim-remembered",
    kind: Kind::Tree,
    source: "docs/protocol/reclaim.md R15",
    about: "An operation reads a block's address and ends. Later operations of its compute node use the address without a \
            check, until the second next turn, beside rounds and turns. Meanwhile another compute node unlinks the block, \
            retires it, and reuses it when it may. The operations find the first life or a dead block, never the next life.",
    cases: || {
        // This model reads and writes only single words, so most freedoms of a card make no difference.
        vec![
            Case::holds("2x1", Knobs::strong()),
            Case::holds("2x1", Knobs::weak()).nightly(),
        ]
    },
    published: None,
    mutants: &[
        Twin {
            name: "never-forgets",
            about: "the address is used without a limit",
            cases: || vec![Case::fails(How::Check, "2x1", Knobs::strong())],
        },
        Twin {
            name: "announces-latest",
            about: "operations begin in the latest epoch, even if an address is remembered",
            cases: || vec![Case::fails(How::Check, "2x1", Knobs::strong())],
        },
    ],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let (forgets, lags) = (!s.mutant("never-forgets"), !s.mutant("announces-latest"));
    let model = Model::new(s.title.clone())
        .shared_opened(move |v, node| async move {
            let remembers = node == 0 && lags;
            let flaws = ReclaimFlaws::default();
            joined(&v, allocator_that(node, 2, u32::MAX, remembers, flaws)).await
        })
        .fingerprint(Fingerprint::fingerprint)
        .place(root(), 8, "root")
        .place(block(), 16, "block")
        .setup(|v| async move { first_life(&v) })
        .client("R", 0, move |c: Client<Allocator, NoSpec>| async move {
            // An error means that the client was fenced. Then it reads no more memory.
            let _fenced = remember(&c, forgets).await;
        })
        .client("W", 1, |c: Client<Allocator, NoSpec>| async move {
            if let Ok(true) = use_again(c.verbs(), c.shared(), 3).await {
                c.output(1);
            }
        });
    Box::new(model)
}

/// Runs the operations of one client. The first operation reads the address, and the later ones use it until it is too
/// old. Each later operation also runs a collection and a turn, in place of another client of the compute node.
async fn remember(c: &Client<Allocator, NoSpec>, forgets: bool) -> Result<(), AllocError> {
    let (v, alloc) = (c.verbs(), c.shared());
    let Some(epochs) = alloc.epochs() else {
        return Ok(());
    };
    let seat = Epochs::seat(epochs);
    let running = begin(v, alloc, &seat).await?;
    let known = v.word(root()).await? != 0;
    drop(running);
    let mut turns = 0;
    for _ in 0..3 {
        let running = begin(v, alloc, &seat).await?;
        let used = known && turns < 2;
        alloc.collect(v, &seat).await?;
        alloc.turn(|| turns += u32::from(forgets));
        if used {
            let life = v.word(block()).await?;
            c.check(life == 1 || life == DEAD, || {
                format!("life {life} at an address of life 1, remembered for {turns} turns")
            });
        }
        drop(running);
    }
    drop(seat);
    alloc.leave(v);
    Ok(())
}
