//! The model of a compute node that runs operations while another compute node checks whether it is silent.

use dm_alloc::{AllocError, Allocator, ReclaimFlaws};
use dm_explore::{Client, Knobs, Model, NoSpec};
use dm_sync::Fingerprint;
use dm_sync::epoch::Epochs;
use dm_verbs::{NodeId, RemotePtr, Verbs};

use super::member;
use crate::{Case, Entry, Explorable, How, Kind, Setting, Twin};

pub(crate) const ENTRY: Entry = Entry {
    name: "reclaim-working-member",
    kind: Kind::Crash,
    source: "docs/protocol/reclaim.md R7, R7a",
    about: "A compute node announces itself between two looks of another one: twice, or once while one of \
        its clients is delayed at any step of a round. It is not fenced, whatever the clocks show. In \
        `given up` that round may be cancelled. The shape `stands still` claims the same of a compute node \
        that announces nothing between the looks, and must fail.",
    cases: || {
        vec![
            Case::holds("2x1", Knobs::strong()),
            Case::holds("2x1", Knobs::weak()),
            Case::holds("held up", Knobs::strong()),
            Case::holds("given up", Knobs::strong().cancels(1)).nightly(),
            Case::fails(How::Check, "stands still", Knobs::strong()),
        ]
    },
    published: None,
    mutants: &[
        Twin {
            name: "one-bit",
            about: "looks compare one bit of a beat, so two announcements are not noticed",
            cases: || vec![Case::fails(How::Check, "2x1", Knobs::strong())],
        },
        Twin {
            name: "one-announces",
            about: "while one client is in a round, no other client announces their compute node",
            cases: || vec![Case::fails(How::Check, "held up", Knobs::strong())],
        },
    ],
    build,
};

/// Returns the address of the word that is set after the first look at the compute node's slot.
fn looked() -> RemotePtr {
    RemotePtr::new(NodeId(0), 2048).unwrap_or(RemotePtr::NULL)
}

/// Returns the address of the word that is set after the announcements that follow the first look.
fn announced() -> RemotePtr {
    RemotePtr::new(NodeId(0), 2112).unwrap_or(RemotePtr::NULL)
}

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let flaws = ReclaimFlaws {
        beat_bits: u32::from(s.mutant("one-bit")),
        one_announces: s.mutant("one-announces"),
        ..ReclaimFlaws::default()
    };
    let (times, beside) = match s.shape {
        "stands still" => (0, false),
        "2x1" => (2, false),
        _ => (1, true),
    };
    let model = Model::new(s.title.clone())
        .shared_opened(move |v, node| {
            // The compute node that runs operations checks no other compute node.
            let looks = if node == 0 { u32::MAX } else { 1 };
            member(v, looks, flaws)
        })
        .fingerprint(Fingerprint::fingerprint)
        .place(looked(), 8, "looked")
        .place(announced(), 8, "announced")
        .client("B", 0, move |c: Client<Allocator, NoSpec>| async move {
            let worked = work(&c, times).await;
            c.check(worked.is_ok(), || {
                format!("a working compute node ends in {worked:?}")
            });
        })
        .client("W", 1, |c: Client<Allocator, NoSpec>| async move {
            // No compute node checks this one, so its result does not matter.
            let _looked = look(&c).await;
        });
    if beside {
        let model = model.client("H", 0, |c: Client<Allocator, NoSpec>| async move {
            let _held_up = round(&c).await;
        });
        return Box::new(model);
    }
    Box::new(model)
}

/// Collects once, if the first look is over.
async fn round(c: &Client<Allocator, NoSpec>) -> Result<(), AllocError> {
    let (v, alloc) = (c.verbs(), c.shared());
    let Some(epochs) = alloc.epochs() else {
        return Ok(());
    };
    if v.word(looked()).await? == 0 {
        return Ok(());
    }
    let seat = Epochs::seat(epochs);
    alloc.collect(v, &seat).await
}

/// Announces the compute node `times` times, if the first look is over.
async fn work(c: &Client<Allocator, NoSpec>, times: u32) -> Result<(), AllocError> {
    let (v, alloc) = (c.verbs(), c.shared());
    let Some(epochs) = alloc.epochs() else {
        return Ok(());
    };
    if v.word(looked()).await? == 0 {
        return Ok(());
    }
    let seat = Epochs::seat(epochs);
    // This enlists the client in its member, so that both are fenced together.
    alloc.prepare(v, &seat).await?;
    for _ in 0..times {
        alloc.collect(v, &seat).await?;
    }
    v.write(announced(), &1u64.to_le_bytes()).await?;
    v.word(announced()).await?;
    Ok(())
}

/// Looks at the other compute node's slot. Looks again if the client there has done its announcements in between.
async fn look(c: &Client<Allocator, NoSpec>) -> Result<(), AllocError> {
    let (v, alloc) = (c.verbs(), c.shared());
    let Some(epochs) = alloc.epochs() else {
        return Ok(());
    };
    let seat = Epochs::seat(epochs);
    alloc.collect(v, &seat).await?;
    v.write(looked(), &1u64.to_le_bytes()).await?;
    if v.word(announced()).await? != 0 {
        alloc.collect(v, &seat).await?;
    }
    Ok(())
}
