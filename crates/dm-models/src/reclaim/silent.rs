//! The model of a compute node that dies during an operation that writes. The memory that the operation kept from reuse
//! becomes free, and the operation's WRITE never takes effect there.

use dm_alloc::{AllocError, Allocator, ReclaimFlaws};
use dm_explore::{Client, Knobs, Model, NoSpec};
use dm_sync::Fingerprint;
use dm_sync::epoch::Epochs;
use dm_verbs::Verbs;

use super::{NEXT, begin, block, first_life, member, root, use_again};
use crate::{Case, Entry, Explorable, How, Kind, Setting, Twin};

pub(crate) const ENTRY: Entry = Entry {
    name: "reclaim-silent-member",
    kind: Kind::Crash,
    source: "docs/protocol/reclaim.md R7",
    about: "A client of one compute node dies at any step of an operation that follows the root to a block \
        and writes to it; its requests land at any time. The other compute node unlinks and retires the \
        block, waits for the lease, fences the silent compute node, and reuses the block. No request of the \
        last life lands in the next. The shape `never back` claims that memory pinned by a dead client \
        stays pinned, and must fail.",
    cases: || {
        let dying = Knobs::strong().crashes(1);
        vec![
            Case::holds("2x1", dying.clone()),
            Case::fails(How::Invariant, "2x1, never back", dying),
        ]
    },
    published: None,
    mutants: &[Twin {
        name: "no-fence",
        about: "a silent member counts as gone without being fenced",
        cases: || vec![Case::fails(How::Invariant, "2x1", Knobs::strong().crashes(1))],
    }],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let flaws = ReclaimFlaws {
        no_fence: s.mutant("no-fence"),
        ..ReclaimFlaws::default()
    };
    let never_back = s.shape.ends_with("never back");
    let model = Model::new(s.title.clone())
        .shared_opened(move |v, _| member(v, 1, flaws))
        .fingerprint(Fingerprint::fingerprint)
        .place(root(), 8, "root")
        .place(block(), 16, "block")
        .setup(|v| async move { first_life(&v) })
        .invariant("the next life is as it was written", move |end| {
            let value = end.word(block().add(8));
            if end.outputs(1).is_empty() || value == NEXT {
                return Ok(());
            }
            Err(format!("it holds {value}"))
        })
        .invariant("what a dead client pins stays pinned", move |end| {
            // The client died after the start of its operation, so its announcement still counts.
            let pinned = end.crashed(0) && !end.outputs(0).is_empty();
            if never_back && pinned && !end.outputs(1).is_empty() {
                return Err("the block is used again".into());
            }
            Ok(())
        })
        .client("S", 0, |c: Client<Allocator, NoSpec>| async move {
            // An error means that the client was fenced. Then it writes no more memory.
            let _fenced = write(&c).await;
        })
        .client("W", 1, |c: Client<Allocator, NoSpec>| async move {
            if let Ok(true) = use_again(c.verbs(), c.shared(), 3).await {
                c.output(1);
            }
        });
    Box::new(model)
}

/// Runs one operation. It follows the root to the block and writes to the block.
async fn write(c: &Client<Allocator, NoSpec>) -> Result<(), AllocError> {
    let (v, alloc) = (c.verbs(), c.shared());
    let Some(epochs) = alloc.epochs() else {
        return Ok(());
    };
    let seat = Epochs::seat(epochs);
    let running = begin(v, alloc, &seat).await?;
    c.output(0);
    if v.word(root()).await? != 0 {
        v.write(block().add(8), &8u64.to_le_bytes()).await?;
    }
    drop(running);
    drop(seat);
    alloc.leave(v);
    Ok(())
}
