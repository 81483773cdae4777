//! Litmus tests of the knobs, which show the outcomes that each setting allows.
#![expect(
    clippy::unwrap_used,
    reason = "a panic is how a test, or a client in one, fails"
)]

use std::collections::BTreeSet;

use dm_explore::{Client, Knobs, Model, NoSpec, Search};
use dm_sync::{Arc, Mutex};
use dm_verbs::{
    AtomicUnit, AtomicVsWrite, CasThenRead, ChipPtr, FailedCas, LineOrder, NodeId, RemotePtr, Verbs,
};

type C = Client<(), NoSpec>;
type Outcomes = BTreeSet<Vec<u64>>;

/// Two words in neighbouring lines.
const X: RemotePtr = RemotePtr::from_raw(64);
const Y: RemotePtr = RemotePtr::from_raw(128);

fn first_word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

fn outcomes_of(
    model: Model,
    knobs: &Knobs,
    read: impl Fn(&dm_explore::End<'_>) -> Vec<u64> + Send + Sync + 'static,
) -> Outcomes {
    let all = Arc::new(Mutex::new(Outcomes::new()));
    let seen = Arc::clone(&all);
    let model = model.invariant("collect", move |end| {
        seen.with(|seen| seen.insert(read(end)));
        Ok(())
    });
    model.run_with(knobs, Search::exhaustive()).expect_pass();
    all.with(core::mem::take)
}

fn both_outputs(end: &dm_explore::End<'_>) -> Vec<u64> {
    [end.outputs(0), end.outputs(1)].concat()
}

#[test]
fn lines_of_a_read() {
    let model = || {
        Model::new("two WRITEs, one READ")
            .client("writer", 0, |c: C| async move {
                c.verbs().write(Y, &[1; 8]).await.unwrap();
                c.verbs().write(X, &[1; 8]).await.unwrap();
            })
            .client("reader", 1, |c| async move {
                let bytes = c.verbs().read(X, 128).await.unwrap();
                c.output(first_word(&bytes) & 1);
                c.output(first_word(&bytes[64..]) & 1);
            })
    };
    let increasing = Knobs {
        read_lines: LineOrder::Increasing,
        ..Knobs::weak()
    };
    let [any, increasing] = [Knobs::weak(), increasing].map(|k| outcomes_of(model(), &k, both_outputs));
    let overtaken = vec![1, 0];
    assert!(any.len() == 4 && any.contains(&overtaken), "{any:?}");
    assert!(
        increasing.len() == 3 && !increasing.contains(&overtaken),
        "{increasing:?}"
    );
}

#[test]
fn lines_of_a_write() {
    let model = || {
        Model::new("one WRITE, two READs")
            .client("writer", 0, |c: C| async move {
                c.verbs().write(X, &[1; 128]).await.unwrap()
            })
            .client("reader", 1, |c| async move {
                c.output(c.verbs().word(Y).await.unwrap() & 1);
                c.output(c.verbs().word(X).await.unwrap() & 1);
            })
    };
    let any = Knobs {
        write_lines: LineOrder::Any,
        ..Knobs::weak()
    };
    let [any, increasing] = [any, Knobs::weak()].map(|k| outcomes_of(model(), &k, both_outputs));
    assert!(
        any.contains(&vec![1, 0]) && !increasing.contains(&vec![1, 0]),
        "{any:?} {increasing:?}"
    );
}

#[test]
fn words_of_a_line() {
    let model = || {
        Model::new("a line")
            .client("writer", 0, |c: C| async move {
                c.verbs().write(X, &[1; 16]).await.unwrap()
            })
            .client("reader", 1, |c| async move {
                let bytes = c.verbs().read(X, 16).await.unwrap();
                c.output(u64::from(first_word(&bytes) == first_word(&bytes[8..])));
            })
    };
    let word = Knobs {
        unit: AtomicUnit::Word,
        ..Knobs::weak()
    };
    let [word, line] = [word, Knobs::weak()].map(|k| outcomes_of(model(), &k, both_outputs));
    assert_eq!((word.len(), line), (2, [vec![1]].into()));
}

#[test]
fn a_write_behind_a_read() {
    let model = |fence: bool| {
        Model::new("READ then WRITE").client("A", 0, move |c: C| async move {
            let chain = c.verbs().chain(NodeId(0)).read(X, 8);
            let chain = if fence { chain.fence() } else { chain };
            let bytes = chain.write_word(X, 1).post().await.unwrap();
            c.output(first_word(&bytes));
        })
    };
    let never = Knobs {
        write_overtakes: false,
        ..Knobs::weak()
    };
    assert_eq!(
        outcomes_of(model(false), &Knobs::weak(), both_outputs),
        [vec![0], vec![1]].into()
    );
    assert_eq!(
        outcomes_of(model(true), &Knobs::weak(), both_outputs),
        [vec![0]].into()
    );
    assert_eq!(outcomes_of(model(false), &never, both_outputs), [vec![0]].into());
}

#[test]
fn a_read_behind_a_cas() {
    // X is a lock that the client `holder` holds until it has changed Y. The client `next` locks X, and reads X and Y,
    // in one chain.
    let model = || {
        Model::new("CAS then READ")
            .setup(|v| async move { v.write(X, &1u64.to_le_bytes()).await.unwrap() })
            .client("holder", 0, |c: C| async move {
                c.verbs().write(Y, &1u64.to_le_bytes()).await.unwrap();
                c.verbs().write(X, &0u64.to_le_bytes()).await.unwrap();
            })
            .client("next", 1, |c| async move {
                let (old, bytes) = c
                    .verbs()
                    .chain(NodeId(0))
                    .cas(X, 0, 2)
                    .read(X, 128)
                    .post()
                    .await
                    .unwrap();
                if old == 0 {
                    // The outputs tell whether the READ returns the client's own tag, and which data follows the tag.
                    c.output(u64::from(first_word(&bytes) == 2));
                    c.output(first_word(&bytes[64..]));
                }
            })
    };
    let with = |cas_then_read| {
        let knobs = Knobs {
            cas_then_read,
            ..Knobs::weak()
        };
        outcomes_of(model(), &knobs, both_outputs)
    };
    let (mixed, before, good) = (vec![1, 0], vec![0, 0], vec![1, 1]);
    let any = with(CasThenRead::AnyLineFirst);
    assert!(
        any.contains(&mixed) && any.contains(&before) && any.contains(&good),
        "{any:?}"
    );
    let whole = with(CasThenRead::WholeReadFirst);
    assert!(
        !whole.contains(&mixed) && whole.contains(&before) && whole.contains(&good),
        "{whole:?}"
    );
    assert_eq!(with(CasThenRead::InOrder), [vec![], good].into());
}

#[test]
fn atomics_and_writes() {
    let faa = || {
        Model::new("FAA and WRITE")
            .client("A", 0, |c: C| async move {
                let _ = c.verbs().faa(X, 1).await.unwrap();
            })
            .client("B", 1, |c| async move {
                c.verbs().write(X, &10u64.to_le_bytes()).await.unwrap()
            })
    };
    let cas = || {
        Model::new("failing CAS and WRITE")
            .client("A", 0, |c: C| async move {
                let _ = c.verbs().cas(X, 5, 6).await.unwrap();
            })
            .client("B", 1, |c| async move {
                c.verbs().write(X, &10u64.to_le_bytes()).await.unwrap()
            })
    };
    let end = |e: &dm_explore::End<'_>| vec![e.word(X)];
    let serialised = Knobs {
        atomic_vs_write: AtomicVsWrite::Serialised,
        ..Knobs::weak()
    };
    let alone = Knobs {
        failed_cas: FailedCas::LeavesAlone,
        ..Knobs::weak()
    };
    assert_eq!(
        outcomes_of(faa(), &Knobs::weak(), end),
        [vec![1], vec![10], vec![11]].into()
    );
    assert_eq!(outcomes_of(faa(), &serialised, end), [vec![10], vec![11]].into());
    assert_eq!(
        outcomes_of(cas(), &Knobs::weak(), end),
        [vec![0], vec![10]].into()
    );
    assert_eq!(outcomes_of(cas(), &alone, end), [vec![10]].into());
    // Atomics exclude one another with every setting of the knob.
    let three = || {
        let add = |c: C| async move {
            let _ = c.verbs().faa(X, 1).await.unwrap();
        };
        Model::new("three FAAs")
            .client("A", 0, add)
            .client("B", 1, add)
            .client("C", 2, add)
    };
    assert_eq!(outcomes_of(three(), &Knobs::weak(), end), [vec![3]].into());
}

#[test]
fn host_and_chip() {
    let chip = ChipPtr::new(NodeId(0), 0).unwrap();
    let model = || {
        Model::new("host then chip")
            .client("A", 0, move |c: C| async move {
                c.verbs()
                    .chain(NodeId(0))
                    .write_word(X, 1)
                    .write_word(chip, 1)
                    .await
                    .unwrap();
            })
            .client("B", 1, move |c| async move {
                c.output(c.verbs().word(chip).await.unwrap());
                c.output(c.verbs().word(X).await.unwrap());
            })
    };
    let unordered = Knobs {
        host_before_chip: false,
        ..Knobs::weak()
    };
    assert!(!outcomes_of(model(), &Knobs::weak(), both_outputs).contains(&vec![1, 0]));
    assert!(outcomes_of(model(), &unordered, both_outputs).contains(&vec![1, 0]));
}

#[test]
fn nothing_orders_two_queue_pairs_but_an_awaited_completion() {
    let elsewhere = RemotePtr::new(NodeId(1), 64).unwrap();
    let model = |awaits: bool| {
        Model::new("two nodes")
            .memory_nodes(2)
            .client("A", 0, move |c: C| async move {
                let first = c.verbs().write(X, &[1; 8]);
                if awaits {
                    first.await.unwrap();
                } else {
                    first.detach();
                }
                c.verbs().write(elsewhere, &[1; 8]).await.unwrap();
            })
            .client("B", 1, move |c| async move {
                c.output(c.verbs().word(elsewhere).await.unwrap() & 1);
                c.output(c.verbs().word(X).await.unwrap() & 1);
            })
    };
    assert!(outcomes_of(model(false), &Knobs::strong(), both_outputs).contains(&vec![1, 0]));
    assert!(!outcomes_of(model(true), &Knobs::weakest(), both_outputs).contains(&vec![1, 0]));
}

#[test]
fn shared_state_is_opened_before_any_client_starts() {
    let model = Model::new("opened")
        .setup(|v| async move { v.load(X, &7u64.to_le_bytes()).unwrap() })
        .shared_opened(|v, node| async move { v.word(X).await.unwrap() + u64::from(node) })
        .client("A", 0, |c: Client<u64, NoSpec>| async move {
            c.verbs().write(X, &0u64.to_le_bytes()).await.unwrap();
        })
        .client("B", 1, |c| async move { c.output(*c.shared()) })
        .invariant("as it was set up", |end| match end.outputs(1) {
            [8] => Ok(()),
            other => Err(format!("{other:?}")),
        });
    model.run(Search::exhaustive()).expect_pass();
}
