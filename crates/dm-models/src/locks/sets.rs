//! Models of clients that take several locks at once; some of the nodes share a lock.

use dm_explore::{Client, Knobs, Model, NoSpec};
use dm_lock::{GlobalLockTable, LockError, LockOptions, LockWord, Locks};
use dm_sync::Fingerprint;
use dm_verbs::{ChipPtr, NodeId, RemotePtr, Verbs};

use super::counter::compute_nodes;
use crate::{Case, Entry, Explorable, How, Kind, Knob, Setting, Twin, matrix};

pub(crate) const ENTRY: Entry = Entry {
    name: "lock-sets",
    kind: Kind::Lock,
    source: "docs/protocol/lock.md L10",
    about: "Clients rotate the words of three nodes on two memory nodes under a set of locks; two of the \
        nodes share a lock. The clients pass the nodes in opposite orders. There is no deadlock, and no \
        word is lost.",
    cases: || {
        let all = matrix(
            &Knobs::weak(),
            &[Knob::AtomicVsWrite, Knob::ChipOrder, Knob::Masked],
        );
        let mut cases: Vec<Case> = all.iter().map(|k| Case::holds("2x1", k.clone())).collect();
        cases.extend(all.iter().map(|k| Case::holds("1x2", k.clone())));
        for knobs in [Knobs::weak(), Knobs::declared()] {
            cases.push(Case::holds("2+1", knobs.clone()));
            cases.push(Case::holds("2x1", knobs.cancels(1)));
        }
        cases
    },
    published: None,
    mutants: &[
        Twin {
            name: "unsorted",
            about: "each client takes the locks in the order in which it passes them",
            cases: || {
                let stuck = |shape| Case::fails(How::Stuck, shape, Knobs::weak());
                vec![stuck("2x1"), stuck("1x2")]
            },
        },
        Twin {
            name: "twice",
            about: "a lock that two nodes share is taken twice",
            cases: || vec![Case::fails(How::Panic, "1x2", Knobs::weak())],
        },
    ],
    build,
};

fn at(node: u16, offset: u64) -> RemotePtr {
    RemotePtr::new(NodeId(node), offset).unwrap_or(RemotePtr::NULL)
}

/// Returns the addresses of three nodes. There is one lock per memory node, so the first two nodes share a lock.
fn nodes() -> [RemotePtr; 3] {
    [at(0, 4096), at(0, 4160), at(1, 4096)]
}

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let taking = match () {
        () if s.mutant("unsorted") => Taking::AsNamed,
        () if s.mutant("twice") => Taking::EachNode,
        () => Taking::Set,
    };
    let mut model: Model<Locks, NoSpec> = Model::new(s.title.clone())
        .memory_nodes(2)
        .shared(move |_| Locks::new(LockOptions::default(), GlobalLockTable::on_chip(2, 1)))
        .fingerprint(Fingerprint::fingerprint)
        .setup(|v| async move {
            for (i, node) in nodes().into_iter().enumerate() {
                v.load(node, &(i as u64 + 1).to_le_bytes()).expect("setting up");
            }
        })
        .invariant("every word is somewhere", |end| {
            let mut words = nodes().map(|n| end.word(n));
            words.sort_unstable();
            if words == [1, 2, 3] {
                Ok(())
            } else {
                Err(format!("{words:?}"))
            }
        })
        .invariant("all locks are free at the end", |end| {
            let chip = |n| ChipPtr::new(NodeId(n), 0).unwrap_or(ChipPtr::NULL);
            let words = [0, 1].map(|n| LockWord::unpack(end.word(chip(n))));
            if words.iter().any(|w| w.locked) {
                Err(format!("{words:?}"))
            } else {
                Ok(())
            }
        });
    for (i, node) in nodes().into_iter().enumerate() {
        model = model.place(node, 8, format!("node {}", i + 1));
    }
    for n in 0..2 {
        let chip = ChipPtr::new(NodeId(n), 0).unwrap_or(ChipPtr::NULL);
        model = model.place(chip, 8, format!("lock of memory node {n}"));
    }
    for (i, &on) in compute_nodes(s.shape).iter().enumerate() {
        let name = char::from(b'A' + i as u8).to_string();
        model = model.client(name, on, move |c: Client<Locks, NoSpec>| async move {
            let mut named = nodes();
            if i % 2 == 1 {
                named.reverse();
            }
            rotate(&c, named, taking).await.expect("no faults in this model");
        });
    }
    Box::new(model)
}

#[derive(Clone, Copy)]
enum Taking {
    Set,
    AsNamed,
    EachNode,
}

/// Moves every word to the next node.
async fn rotate(c: &Client<Locks, NoSpec>, named: [RemotePtr; 3], taking: Taking) -> Result<(), LockError> {
    let (v, locks) = (c.verbs(), c.shared());
    let [first, second, third] = named;
    if let Taking::Set = taking {
        let set = locks.lock_set(v, &named).await?;
        let words = read(c, named).await?;
        return set
            .write_back(moved(named, words).map(|(at, w)| v.chain(at.node()).write_word(at, w)))
            .await;
    }
    let mut guards = vec![locks.lock(v, first).await?];
    for at in [second, third] {
        let have = guards.iter().any(|g| Ok(g.id()) == locks.lock_of(at));
        if !have || matches!(taking, Taking::EachNode) {
            guards.push(locks.lock(v, at).await?);
        }
    }
    let words = read(c, named).await?;
    for (at, w) in moved(named, words) {
        v.write(at, &w.to_le_bytes()).await?;
    }
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

async fn read(c: &Client<Locks, NoSpec>, named: [RemotePtr; 3]) -> Result<[u64; 3], LockError> {
    let mut words = [0; 3];
    for (word, at) in words.iter_mut().zip(named) {
        *word = c.verbs().word(at).await?;
    }
    Ok(words)
}

fn moved(named: [RemotePtr; 3], words: [u64; 3]) -> [(RemotePtr, u64); 3] {
    [(named[0], words[2]), (named[1], words[0]), (named[2], words[1])]
}
