//! The model of a block that is reused while a running operation may still use its address.

use dm_alloc::{AllocError, Allocator, ReclaimFlaws};
use dm_explore::{Client, Knobs, Model, NoSpec};
use dm_sync::Fingerprint;
use dm_sync::epoch::Epochs;
use dm_verbs::Verbs;

use super::{DEAD, begin, block, first_life, member, root, use_again};
use crate::{Case, Entry, Explorable, How, Kind, Setting, Twin};

pub(crate) const ENTRY: Entry = Entry {
    name: "reclaim-reuse-vs-reader",
    kind: Kind::Tree,
    source: "docs/protocol/reclaim.md R2 to R7",
    about: "A compute node unlinks a block, retires it, does rounds, and reuses it when it may. Meanwhile an operation of \
            another compute node announces itself and follows the root to the block. It finds the first life or a dead \
            block, never the next life, whether its compute node announces itself again or leaves.",
    cases: || {
        [Knobs::weak(), Knobs::declared(), Knobs::strong()]
            .map(|k| Case::holds("2x1", k))
            .into()
    },
    published: None,
    mutants: &[
        Twin {
            name: "no-grace",
            about: "a retired block is free at once",
            cases: || vec![Case::fails(How::Check, "2x1", Knobs::strong())],
        },
        Twin {
            name: "announces-now",
            about: "a compute node announces the current epoch, not the epoch of its oldest operation",
            cases: || vec![Case::fails(How::Check, "2x1", Knobs::strong())],
        },
    ],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let flaws = ReclaimFlaws {
        no_grace: s.mutant("no-grace"),
        announces_now: s.mutant("announces-now"),
        ..ReclaimFlaws::default()
    };
    let model = Model::new(s.title.clone())
        .shared_opened(move |v, _| member(v, u32::MAX, flaws))
        .fingerprint(Fingerprint::fingerprint)
        .place(root(), 8, "root")
        .place(block(), 16, "block")
        .setup(|v| async move { first_life(&v) })
        .client("R", 0, |c: Client<Allocator, NoSpec>| async move {
            // An error means that the client was fenced. Then it reads no more memory.
            let _fenced = follow(&c).await;
        })
        .client("W", 1, |c: Client<Allocator, NoSpec>| async move {
            if let Ok(true) = use_again(c.verbs(), c.shared(), 3).await {
                c.output(1);
            }
        });
    Box::new(model)
}

/// Runs one operation. It follows the root to the block.
async fn follow(c: &Client<Allocator, NoSpec>) -> Result<(), AllocError> {
    let (v, alloc) = (c.verbs(), c.shared());
    let Some(epochs) = alloc.epochs() else {
        return Ok(());
    };
    let seat = Epochs::seat(epochs);
    let running = begin(v, alloc, &seat).await?;
    if v.word(root()).await? != 0 {
        for _ in 0..2 {
            // The first collection learns the epoch that the second one may announce.
            alloc.collect(v, &seat).await?;
        }
        let life = v.word(block()).await?;
        c.check(life == 1 || life == DEAD, || {
            format!("the operation finds life {life} at an address of life 1")
        });
    }
    drop(running);
    drop(seat);
    alloc.leave(v);
    Ok(())
}
