//! Lists the locks of a pool that are held.

use dm_alloc::Superblock;
use dm_lock::LockWord;
use dm_testkit::{Job, World};
use dm_verbs::{Control, Verbs};

struct Look;

impl Job for Look {
    type Out = Vec<String>;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Vec<String> {
        let superblock = Superblock::inspect(v).await.expect("a pool");
        let mut held = Vec::new();
        for table in &superblock.lock_tables {
            for index in 0..u64::from(superblock.locks_per_node) {
                let place = table.add(8 * index);
                let word = LockWord::unpack(v.word(place).await.expect("the node is up"));
                if word.locked {
                    held.push(format!("{place}: {word}"));
                }
            }
        }
        held
    }
}

/// Returns every lock that is held, with its place and holder.
pub(crate) fn held(world: &World) -> Vec<String> {
    world.run_one(Look)
}
