//! The model T-R4: tickets have fewer values than the queue has clients.

use dm_explore::Knobs;
use dm_lock::{LockFlaws, LockOptions};

use super::counter::{Adders, compute_nodes};
use crate::{Case, Entry, Explorable, How, Kind, Setting, Twin};

pub(crate) const ENTRY: Entry = Entry {
    name: "T-R4",
    kind: Kind::Lock,
    source: "SMART's and CHIME's code, local lock table",
    about: "With 2^width clients ahead of it (8 bits in the code, fewer here), a client draws the number \
        that is being served, and gets the local turn together with the holder. When both leave, the number \
        skips a waiting client.",
    cases: || {
        let knobs = [Knobs::weak(), Knobs::declared()];
        let three = knobs.clone().map(|k| Case::holds("1x3, 1 bit", k));
        three
            .into_iter()
            .chain([Case::holds("1x5, 2 bits", Knobs::declared()).nightly()])
            .collect()
    },
    published: Some(Twin {
        name: "published",
        about: "tickets of 1 bit and 3 clients, of 2 bits and 5 clients",
        cases: || {
            let stuck = |shape, k| Case::fails(How::Stuck, shape, k);
            vec![
                stuck("1x3, 1 bit", Knobs::weak()),
                stuck("1x3, 1 bit", Knobs::declared()),
                stuck("1x5, 2 bits", Knobs::declared()),
            ]
        },
    }),
    mutants: &[],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let bits = if s.shape.ends_with("1 bit") { 1 } else { 2 };
    let flaws = LockFlaws {
        narrow_tickets: s.published().then_some(bits),
        ..LockFlaws::default()
    };
    let adders = Adders {
        on: compute_nodes(s.shape),
        options: LockOptions {
            flaws,
            ..LockOptions::default()
        },
        ..Adders::default()
    };
    Box::new(adders.model(s.title.clone()))
}
