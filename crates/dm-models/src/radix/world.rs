//! A SMART tree of tiny nodes, its clients, and what each of them does.

use std::cell::RefCell;
use std::rc::Rc;

use dm_alloc::Superblock;
use dm_explore::{Client, Endpoint, Model};
use dm_history::{KvMap, scan};
use dm_index::{IndexError, Key8, RangeIndex, Scan};
use dm_sync::Fingerprint;
use dm_verbs::{ClientId, Env};
use smart::{NodeTypes, Options, Smart};

use super::memory::contents;
use crate::tree::memory::as_written;
use crate::tree::world::{Do, LIMIT, MEMORY, Script, Spec, apply_to, loaded, number_of};

/// A script, and the compute nodes that begin with nothing cached.
pub(super) type Shape = (&'static str, Script, &'static [u16]);

/// Nodes of one line, with 2 or 4 slots.
pub(super) const fn options() -> Options {
    Options {
        types: NodeTypes::TINY,
        chunk_bytes: 4096,
        cache_bytes: 1 << 20,
        // What clients share has models of its own, and would hide races here.
        rdwc: smart::Rdwc::OFF,
        ..Options::new(8)
    }
}

type Me = Client<Smart<Key8>, Spec>;

/// The model: every operation linearizable, none fails.
pub(super) fn model(
    (script, cold): (Script, &'static [u16]),
    title: String,
    options: Options,
) -> Model<Smart<Key8>, Spec> {
    let found: Rc<RefCell<Option<Superblock>>> = Rc::default();
    let keep = Rc::clone(&found);
    let mut model = Model::new(title)
        .memory_nodes(script.memory_nodes)
        .memory(MEMORY, 256)
        .setup(move |v: Endpoint| {
            let keep = Rc::clone(&keep);
            async move {
                // Whatever is prepared is prepared by the protocol as it should be.
                let sound = Options {
                    flaws: smart::Flaws::default(),
                    ..options
                };
                set_up(script, &v, &sound).await.expect("room, and no faults");
                *keep.borrow_mut() = Some(Superblock::inspect(&v).await.expect("a pool"));
            }
        })
        .shared_opened(move |v: Endpoint, node| {
            let found = Rc::clone(&found);
            async move {
                let superblock = found.borrow().clone().expect("set up before");
                let tree = Smart::<Key8>::from_superblock(&v, &options, &superblock).await;
                let tree = tree.expect("the same options");
                if !cold.contains(&node) {
                    tree.warm(&v).await.expect("no faults");
                }
                tree
            }
        })
        .fingerprint(Smart::fingerprint)
        .spec(KvMap::loaded(script.present().map(|k| (k, loaded(k)))))
        .invariant("memory holds what was written", move |end| {
            as_written(end, &script, &contents(end, &options.types)?)
        });
    for (i, &(on, does)) in script.clients.iter().enumerate() {
        let name = char::from(b'A' + i as u8).to_string();
        model = model.client(name, on, move |c| async move {
            for (number, what) in does.iter().enumerate() {
                run(script, &c, *what, number).await;
                c.forget();
            }
        });
    }
    model
}

async fn set_up(script: Script, v: &Endpoint, options: &Options) -> Result<(), IndexError> {
    let tree = Smart::<Key8>::create_or_open(v, options)
        .await
        .expect("an empty pool");
    let client = tree.client(v);
    for &key in script.preload {
        client.insert(&Key8(key), &loaded(key).to_le_bytes()).await?;
    }
    for &key in script.removed {
        client.remove(&Key8(key)).await?;
    }
    Ok(())
}

async fn run(script: Script, c: &Me, what: Do, number: usize) {
    let ClientId(me) = c.verbs().client();
    let fail = |e: IndexError| c.check(false, || format!("client {me}: {e}"));
    let tree = c.shared().client(c.verbs());
    if let Some(op) = what.op(c.verbs().client(), number) {
        let done = c.try_op(op.clone(), async {
            apply_to(&tree, &op).await.map_err(fail).ok()
        });
        done.await;
        return;
    }
    let Do::Scan(from) = what else { return };
    let mut out = Scan::new();
    if let Err(e) = Box::pin(tree.scan(&Key8(from), LIMIT, &mut out)).await {
        fail(e);
        return;
    }
    let items: Vec<(u64, u64)> = out.iter().map(|(k, v)| (k.0, number_of(v))).collect();
    // Every value of a key lies within its thousand.
    let legal = |key: &u64, value: &u64| match value / 1000 == *key {
        true => Ok(()),
        false => Err("another key's value"),
    };
    let fault = scan::check_items(&from, None, LIMIT, &items, legal)
        .and_then(|()| scan::check_complete(&from, None, LIMIT, &items, script.always));
    c.check(fault.is_ok(), || format!("{fault:?} in {items:?}"));
}
