//! Tests with bytes that no client writes, and with a request that fails. An operation that cannot use such bytes
//! returns an error that names their address. No operation panics or runs for ever.

use dm_alloc::Superblock;
use dm_art::SingleStore;
use dm_index::{IndexError, Key8, RangeIndex, Scan};
use dm_layout::{RADIX_HEAD_BYTES, RadixHeader, SlotWord, build_radix_node};
use dm_loopback::{Endpoint, block_on};
use dm_verbs::{NodeId, RemotePtr, VerbErrorKind, Verbs};

use crate::common::{Setup, Tree, pool};

const KEY: u64 = 0x0102_0304_0506_0708;

/// Puts a word into the root's slot for `KEY`'s first byte.
fn link(v: &Endpoint, tree: &Tree<Key8>, word: SlotWord) {
    let slot = tree.root().add((RADIX_HEAD_BYTES + 8) as u64);
    block_on(v.write(slot, &word.raw().to_le_bytes())).unwrap();
}

fn somewhere(line: u64) -> RemotePtr {
    RemotePtr::new(NodeId(0), (2 << 20) + line * 4096).unwrap()
}

/// Writes a leaf of this key and link depth, and returns its address.
fn leaf(v: &Endpoint, tree: &Tree<Key8>, line: u64, key: u64, depth: u64) -> RemotePtr {
    let (at, mut image) = (somewhere(line), Vec::new());
    SingleStore::<Endpoint, Key8>::image(tree.leaves(), &Key8(key), &[1; 8], depth, &mut image);
    block_on(v.write(at, &image)).unwrap();
    at
}

/// Writes a node of two slots, and returns its address.
fn node(v: &Endpoint, setup: &Setup, line: u64, header: RadixHeader, children: &[SlotWord]) -> RemotePtr {
    let (at, mut image) = (somewhere(line), Vec::new());
    build_radix_node(&setup.art.types, header, 1, children, &mut image);
    block_on(v.write(at, &image)).unwrap();
    at
}

/// Runs every operation on the bytes, each from a client with an empty cache, and returns the results.
fn answers(v: &Endpoint, setup: &Setup) -> Vec<Result<(), IndexError>> {
    let ask = |which: u8| {
        let cold = setup.open::<Key8>(v);
        let client = cold.client(v);
        let key = Key8(KEY);
        block_on(async {
            match which {
                0 => client.get(&key, &mut Vec::new()).await.map(drop),
                1 => client.update(&key, &[2; 8]).await.map(drop),
                2 => client.upsert(&key, &[3; 8]).await.map(drop),
                3 => client.insert(&key, &[3; 8]).await.map(drop),
                4 => client.remove(&key).await.map(drop),
                _ => client.scan(&Key8(KEY - 1), 5, &mut Scan::new()).await,
            }
        })
    };
    (0..6).map(ask).collect()
}

/// Writes the nodes of a case to memory, if it needs any. Returns a word for the root's slot, and the address that the
/// errors must name.
type Make<'a> = dyn Fn(&Endpoint, &Tree<Key8>) -> (SlotWord, RemotePtr) + 'a;

#[test]
fn misplaced_nodes_are_reported_as_corrupt() {
    let mut setup = Setup::small();
    setup.art.attempts = 50;
    let case = |name: &str, make: &Make<'_>| {
        let world = pool(1);
        let v = world.connect(0).unwrap();
        let tree = setup.open::<Key8>(&v);
        let (word, at) = make(&v, &tree);
        link(&v, &tree, word);
        for (i, answer) in answers(&v, &setup).into_iter().enumerate() {
            match answer {
                Err(IndexError::Corrupt { node, .. }) if node == at => {}
                other => panic!("{name}, operation {i}: {other:?}, expected `Corrupt` at {at}"),
            }
        }
    };
    case("a slot with a node type that the tree does not have", &|_, _| {
        (SlotWord::inner(1, somewhere(1).raw(), 9).unwrap(), somewhere(1))
    });
    case("a node of another type than its slot says", &|v, _| {
        let at = node(v, &setup, 1, RadixHeader::new(1, 2, &[2, 3]), &[]);
        (SlotWord::inner(1, at.raw(), 1).unwrap(), at)
    });
    case("a header that begins behind the slot", &|v, tree| {
        let child = leaf(v, tree, 2, KEY, 4);
        let child = SlotWord::leaf(4, child.raw(), 1).unwrap();
        let at = node(v, &setup, 1, RadixHeader::new(2, 1, &[3]), &[child]);
        (SlotWord::inner(1, at.raw(), 1).unwrap(), at)
    });
    case("a branch behind the key's last byte", &|v, _| {
        let at = node(v, &setup, 1, RadixHeader::new(2, 1, &[3, 4, 5, 6, 7, 8]), &[]);
        let above = RadixHeader::new(1, 1, &[]);
        let above = node(v, &setup, 3, above, &[SlotWord::inner(2, at.raw(), 1).unwrap()]);
        (SlotWord::inner(1, above.raw(), 1).unwrap(), at)
    });
    case("zeroes", &|_, _| {
        (SlotWord::inner(1, somewhere(1).raw(), 1).unwrap(), somewhere(1))
    });
}

/// A leaf is linked at a slot, but its key does not have the bytes that lead to this slot. A reader concludes that the
/// searched key is absent. A writer that would have to split the leaf gets an error.
#[test]
fn a_misplaced_leaf_is_not_split() {
    let mut setup = Setup::small();
    setup.art.attempts = 50;
    for (stray, depth) in [(0x0999 << 48, 0), (0x0999 << 48, 7)] {
        let world = pool(1);
        let v = world.connect(0).unwrap();
        let tree = setup.open::<Key8>(&v);
        let at = leaf(&v, &tree, 1, stray, depth);
        link(&v, &tree, SlotWord::leaf(1, at.raw(), 1).unwrap());
        for (i, answer) in answers(&v, &setup).into_iter().enumerate() {
            match (i, answer) {
                // An insert or an upsert fails. The other operations do not depend on the misplaced leaf.
                (2 | 3, Err(IndexError::Corrupt { node, .. })) if node == at => {}
                (0 | 1 | 4 | 5, Ok(())) => {}
                (i, other) => panic!("operation {i}: {other:?}"),
            }
        }
        let mut scan = Scan::new();
        block_on(tree.client(&v).scan(&Key8(0), 5, &mut scan)).unwrap();
        assert_eq!(scan.keys(), [Key8(stray)]);
    }
}

/// If two slots link the same leaf, a scan returns its entry once.
#[test]
fn a_leaf_that_is_linked_twice_is_scanned_once() {
    let world = pool(1);
    let v = world.connect(0).unwrap();
    let tree = Setup::small().open::<Key8>(&v);
    let at = leaf(&v, &tree, 1, KEY, 0);
    for byte in [1, 2_u8] {
        let slot = tree.root().add((RADIX_HEAD_BYTES + 8 * usize::from(byte)) as u64);
        let word = SlotWord::leaf(byte, at.raw(), 1).unwrap();
        block_on(v.write(slot, &word.raw().to_le_bytes())).unwrap();
    }
    let mut scan = Scan::new();
    block_on(tree.client(&v).scan(&Key8(0), 5, &mut scan)).unwrap();
    assert_eq!(scan.keys(), [Key8(KEY)]);
}

/// A root word that does not hold the address of a root is an error.
#[test]
fn a_root_word_without_the_address_of_a_root_is_refused() {
    let world = pool(1);
    let v = world.connect(0).unwrap();
    let setup = Setup::small();
    let tree = setup.open::<Key8>(&v);
    let root = tree.root();
    let word = block_on(Superblock::inspect(&v)).unwrap().root_word;
    for wrong in [1, root.raw() + 8, 1 << 63] {
        block_on(v.write(word, &u64::to_le_bytes(wrong))).unwrap();
        let refused = setup.try_open::<Key8>(&v).map(drop).unwrap_err();
        assert!(
            matches!(refused, IndexError::Corrupt { node, .. } if node.raw() == wrong),
            "{refused}"
        );
    }
}

/// If an earlier request that was not awaited has failed, a bulk load returns its error and does not begin, like every
/// operation.
#[test]
fn a_bulk_load_returns_an_earlier_error() {
    let world = pool(1);
    let v = world.connect(0).unwrap();
    let tree = Setup::small().open::<Key8>(&v);
    let client = tree.client(&v);
    let outside = RemotePtr::new(NodeId(0), 1 << 40).unwrap();
    v.write(outside, &[1; 8]).detach();
    let loaded = || block_on(client.bulk_load(1.0, |_| None));
    match loaded() {
        Err(IndexError::Verb(e)) => assert!(
            e.at == outside.into() && matches!(e.kind, VerbErrorKind::OutOfBounds { .. }),
            "{e}"
        ),
        other => panic!("{other:?}"),
    }
    assert_eq!(loaded(), Ok(0));
}
