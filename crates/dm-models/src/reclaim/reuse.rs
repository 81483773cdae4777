//! A block is used again beside an operation that may hold its address.

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
    about: "A compute node unlinks a block, retires it, does rounds, and uses it again when it may; an operation of \
            another follows the root to it. It finds the first life or a dead block, never the next life: whether \
            it is announced in time, leaves, or is taken for silent at any look and fenced.",
    cases: || {
        [Knobs::weak(), Knobs::declared(), Knobs::strong()]
            .map(|k| Case::holds("2x1", k))
            .into()
    },
    published: None,
    mutants: &[
        Twin {
            name: "no-grace",
            about: "what is retired is free at once",
            cases: || vec![Case::fails(How::Check, "2x1", Knobs::strong())],
        },
        Twin {
            name: "no-fence",
            about: "a silent member is taken for gone without being fenced",
            cases: || vec![Case::fails(How::Check, "2x1", Knobs::strong())],
        },
    ],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let flaws = ReclaimFlaws {
        no_grace: s.mutant("no-grace"),
        no_fence: s.mutant("no-fence"),
        ..ReclaimFlaws::default()
    };
    let model = Model::new(s.title.clone())
        .shared_opened(move |v, _| member(v, 2, flaws))
        .fingerprint(Fingerprint::fingerprint)
        .place(root(), 8, "root")
        .place(block(), 16, "block")
        .setup(|v| async move { first_life(&v) })
        .client("R", 0, |c: Client<Allocator, NoSpec>| async move {
            // An error is a fence: it reads nothing more.
            let _fenced = follow(&c).await;
        })
        .client("W", 1, |c: Client<Allocator, NoSpec>| async move {
            if let Ok(true) = use_again(c.verbs(), c.shared()).await {
                c.output(1);
            }
        });
    Box::new(model)
}

/// One operation: from the root to the block.
async fn follow(c: &Client<Allocator, NoSpec>) -> Result<(), AllocError> {
    let (v, alloc) = (c.verbs(), c.shared());
    let Some(epochs) = alloc.epochs() else {
        return Ok(());
    };
    let seat = Epochs::seat(epochs);
    let running = begin(v, alloc, &seat).await?;
    if v.word(root()).await? != 0 {
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
