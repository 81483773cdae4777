//! Litmus test L17: a WRITE takes effect after its error was reported.

use dm_explore::{Knobs, Late, Model};
use dm_verbs::{ClientId, Control, ControlRequest, Env, VerbError, Verbs, Why};

use super::lost_answer::failing;
use super::{Bare, sides, word};
use crate::{Entry, Explorable, How, Kind, Setting};

pub(crate) const ENTRY: Entry = Entry {
    name: "L17",
    kind: Kind::Litmus,
    source: "the specification bounds no delay; docs/protocol/lock.md L18, docs/protocol/control.md C3 and C8",
    about: "Three clients add one to a counter under a lock, and the queue pair of one fails while it holds \
        the lock. Its WRITE may land after the error was reported. If it still releases the lock, the WRITE \
        may undo the WRITE of the next holder, unless the lock is on the same memory node and the old queue \
        pair was shut before the new one was used. If it keeps the lock, no completed add is lost. Others \
        may then take the lock over after they have fenced the client.",
    cases: || {
        let all = failing(vec![Knobs::weak(), Knobs::declared()]);
        let mut cases = sides("gives back, lock apart", How::Invariant, all.clone(), |_| true);
        let stale = |k: &Knobs| k.late == Late::UntilFenced;
        cases.extend(sides(
            "gives back, lock beside",
            How::Invariant,
            all.clone(),
            stale,
        ));
        cases.extend(sides("taken over unfenced", How::Invariant, all.clone(), |_| {
            true
        }));
        for shape in [
            "keeps it, lock apart",
            "keeps it, lock beside",
            "taken over fenced",
        ] {
            cases.extend(sides(shape, How::Invariant, all.clone(), |_| false));
        }
        cases
    },
    published: None,
    mutants: &[],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let gives_back = s.shape.starts_with("gives back");
    let takes_over = s.shape.starts_with("taken over");
    let fences = s.shape == "taken over fenced";
    let counter = word(0, 0, 0);
    let lock = word(u16::from(s.shape.ends_with("apart")), 1, 0);
    // If the second client takes over, two clients are enough, because the second one need not wait until the first one
    // has received its error.
    let clients = if takes_over { 2 } else { 3 };
    let mut model = Model::new(s.title.clone())
        .memory_nodes(2)
        .crash_may_block()
        .place(lock, 8, "lock")
        .place(counter, 8, "counter")
        .invariant("no answered add is lost", move |end| {
            let answered: u64 = (0..clients).flat_map(|c| end.outputs(c)).sum();
            match end.word(counter) {
                n if n >= answered => Ok(()),
                n => Err(format!("the counter is {n}; {answered} adds were answered")),
            }
        });
    for i in 0..clients {
        let name = char::from(b'A' + i as u8).to_string();
        model = model.client(name, i as u16, move |c: Bare| async move {
            let v = c.verbs();
            let me = u64::from(v.client().0);
            // The client that takes over adds twice, so that the late WRITE restores an earlier value of the counter.
            let adds = if takes_over && i > 0 { 2 } else { 1 };
            for _ in 0..adds {
                let mut retry = v.retry(100);
                let mut expect = 0;
                loop {
                    match v.cas(lock, expect, me).await {
                        Ok(old) if old == expect => break,
                        Ok(old) if takes_over && i > 0 => {
                            let client = ClientId(old as u16);
                            let fence = ControlRequest::Fence { client };
                            if old != 0 && fences && v.call(fence).await.is_err() {
                                return;
                            }
                            expect = old;
                        }
                        Ok(word) if retry.again(lock, Why::LockHeld { word }).await.is_ok() => {}
                        _ => return,
                    }
                }
                let added: Result<(), VerbError> = async {
                    let old = v.word(counter).await?;
                    v.write(counter, &(old + 1).to_le_bytes()).await
                }
                .await;
                c.output(u64::from(added.is_ok()));
                if added.is_err() && !gives_back {
                    return;
                }
                if v.cas(lock, me, 0).await.is_err() {
                    return;
                }
            }
        });
    }
    Box::new(model)
}
