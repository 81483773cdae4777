//! A CHIME tree of tiny leaves, its clients, and what each of them does.

use std::cell::RefCell;
use std::rc::Rc;

use chime::{Chime, HopFlaws, LeafFlaws, Options};
use dm_alloc::Superblock;
use dm_explore::{Client, Endpoint, Knobs, Model};
use dm_history::{KvMap, scan};
use dm_index::{IndexError, Key8, RangeIndex, Scan};
use dm_layout::Hopscotch;
use dm_sync::Fingerprint;
use dm_verbs::{ClientId, Control, Env, NodeId};

use crate::tree::memory::{as_written, contents_of};
use crate::tree::world::{Do, LIMIT, MEMORY, Script, Spec, apply_to, loaded, number_of, timeless};
use crate::{Case, Explorable, Setting};

/// Leaves of three lines: 4 entries, three in one line and one in the next, in neighbourhoods of 2. Inner nodes have
/// three children. 16 locks to a memory node.
///
/// Homes, by key: 0 of 2, 6, 8; 1 of 4, 5, 9; 2 of 7, 10, 15; 3 of 1, 3, 11.
pub(super) const fn options() -> Options {
    Options {
        span: 4,
        neighbourhood: 2,
        inner_span: 3,
        locks_per_node: 16,
        chunk_bytes: 4096,
        cache_bytes: 1 << 20,
        // Reclamation has models of its own.
        members: 0,
        ..Options::new(8)
    }
}

/// A script, and its name.
pub(super) type Shape = (&'static str, Script);

pub(super) const fn with(script: Script, clients: &'static [(u16, &'static [Do])]) -> Script {
    Script { clients, ..script }
}

/// A weak card and one as cards are declared to be, with time standing still.
pub(super) fn plain() -> [Knobs; 2] {
    [timeless(Knobs::weak()), timeless(Knobs::declared())]
}

pub(super) fn holds(shapes: &'static [Shape]) -> Vec<Case> {
    let each = |&(shape, _): &Shape| plain().into_iter().map(move |k| Case::holds(shape, k));
    shapes.iter().flat_map(each).collect()
}

pub(super) fn build(shapes: &[Shape], s: &Setting<'_>, options: Options) -> Box<dyn Explorable> {
    let found = shapes.iter().find(|(name, _)| *name == s.shape);
    let (_, script) = found.unwrap_or_else(|| unreachable!("no such shape: {}", s.shape));
    Box::new(model(*script, s.title.clone(), options))
}

type Me = Client<Chime<Key8>, Spec>;

/// The model: every operation linearizable, none fails.
fn model(script: Script, title: String, options: Options) -> Model<Chime<Key8>, Spec> {
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
                    flaws: HopFlaws::default(),
                    leaf_flaws: LeafFlaws::default(),
                    ..options
                };
                set_up(script, &v, &sound).await.expect("room, and no faults");
                *keep.borrow_mut() = Some(Superblock::inspect(&v).await.expect("a pool"));
            }
        })
        .shared_opened(move |v: Endpoint, _| {
            let found = Rc::clone(&found);
            async move {
                let superblock = found.borrow().clone().expect("set up before");
                let tree = Chime::<Key8>::from_superblock(&v, &options, &superblock);
                let tree = tree.expect("the same options");
                if script.warm {
                    tree.warm(&v).await.expect("no faults");
                }
                tree
            }
        })
        .fingerprint(Chime::fingerprint)
        .spec(KvMap::loaded(script.present().map(|k| (k, loaded(k)))))
        .invariant("memory holds what was written", move |end| {
            let leaf = Hopscotch::<Key8>::new(options.span, options.neighbourhood, 8).expect("small");
            as_written(end, &script, &contents_of(end, &leaf)?)
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
    let tree = Chime::<Key8>::create_or_open(v, options)
        .await
        .expect("an empty pool");
    let client = tree.client(v);
    for &key in script.preload {
        client.insert(&Key8(key), &loaded(key).to_le_bytes()).await?;
    }
    for &key in script.removed {
        client.remove(&Key8(key)).await?;
    }
    if script.first_is_full {
        while v.chunk(NodeId(0), 4096).await.is_ok() {}
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
