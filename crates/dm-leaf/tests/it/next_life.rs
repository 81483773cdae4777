//! A client dies while it writes a node into the memory of a dead node. Clients that find the dead node's address in a
//! cache must continue at another node, whichever lines of the new node were written.

use dm_index::{Answer, Key8, Lead, NodeAccess, NodeCopies, NodeCopy, Stale, Write};
use dm_layout::{FenceKeys, Hopscotch, Leaf, NodeFormat, NodeInit, NodeState, Slotted};
use dm_lock::{DOUBT, GlobalLockTable, LockWord};
use dm_loopback::block_on;
use dm_verbs::{NodeId, RemotePtr, Verbs};

use crate::common::{Setup, pool};

const LINE: usize = 64;

fn at(number: u64) -> RemotePtr {
    RemotePtr::new(NodeId(0), 1 << 20 | number << 12).unwrap()
}

/// Returns the image of a dead node with its left neighbour's address, and that of the next node in its memory.
fn lives<F: NodeFormat<Key8>>(format: &F) -> [Vec<u8>; 2] {
    let (mut dead, mut next) = (vec![0; format.node_bytes()], vec![0; format.node_bytes()]);
    let fences = FenceKeys::new(Key8(0), Some(Key8(9)));
    format.build(
        &mut dead,
        &NodeInit::live(0, fences),
        [(Key8(1), (&[1; 8][..]).into())],
    );
    format.bury(&mut dead, at(1).raw()).unwrap();
    let last = format.header(&dead).unwrap();
    let init = NodeInit {
        state: NodeState::Splitting,
        owner: 7,
        incarnation: last.incarnation + 1,
        version: last.version.wrapping_add(1),
        ..NodeInit::live(0, fences)
    };
    format.build(&mut next, &init, [(Key8(1), (&[2; 8][..]).into())]);
    [dead, next]
}

fn check<F: NodeFormat<Key8> + Clone>(format: &F) {
    let [dead, next] = lives(format);
    let lines = dead.len() / LINE;
    let pool = pool(1);
    let v = pool.connect(0).unwrap();
    let nodes = Setup::plain().nodes(format.clone(), 1, 0);
    let table = GlobalLockTable::on_chip(1, 64);
    let place = table.word_at(table.lock_of(at(0)).unwrap());
    for (mask, doubt) in (0..1_u32 << lines).flat_map(|mask| [(mask, false), (mask, true)]) {
        let mut image = dead.clone();
        for line in (0..lines).filter(|line| mask >> line & 1 != 0) {
            let line = line * LINE..(line + 1) * LINE;
            image[line.clone()].copy_from_slice(&next[line]);
        }
        block_on(v.write(at(0), &image)).unwrap();
        let word = LockWord {
            payload: if doubt { DOUBT } else { 0 },
            ..LockWord::default()
        };
        block_on(v.write(place, &word.pack().to_le_bytes())).unwrap();
        // The header is in the first line.
        let stale = match mask & 1 {
            0 => Stale::Right(Lead::hint(at(1))),
            _ => Stale::Elsewhere,
        };
        let lead = Lead::hint(at(0));
        for write in [Write::Update(&[3; 8]), Write::Insert(&[3; 8]), Write::Remove] {
            let written = block_on(nodes.write(&v, lead, 0, &Key8(1), write, None));
            assert_eq!(written, Ok(Answer::Stale(stale)), "{mask:b}, {doubt}, {write:?}");
        }
        let got = block_on(nodes.get(&v, lead, 0, &Key8(1), &mut Vec::new()));
        assert_eq!(got, Ok(Answer::Stale(stale)), "{mask:b}");
        let mut copy = NodeCopy::new();
        let alive = block_on(nodes.copy(&v, at(0), &mut copy)).unwrap();
        let complete = mask + 1 == 1 << lines;
        assert_eq!((alive, copy.unborn), (complete, mask & 1 == 1), "{mask:b}");
        if mask & 1 == 0 {
            assert_eq!(copy.sibling, at(1), "{mask:b}");
        } else if !complete {
            assert_eq!(copy.sibling, RemotePtr::NULL, "{mask:b}");
        }
    }
}

#[test]
fn a_node_whose_creator_died_keeps_nobody() {
    check(&Slotted::with_node_bytes(256, 8).unwrap());
    check(&Leaf::with_node_bytes(256, 8, true).unwrap());
    check(&Hopscotch::new(16, 4, 8).unwrap());
}
