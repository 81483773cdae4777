//! Sweeps of lock tables: which words change, and what happens to words that others change meanwhile.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use core::future::poll_fn;

use dm_alloc::{AllocError, Sweep};
use dm_loopback::{Endpoint, Loopback, block_on};
use dm_verbs::{Env, NodeId, Place, RemotePtr, Verbs, Why};

/// A table is read in pieces of 2048 words.
const PIECE: u64 = 2048;
const WORDS: u32 = PIECE as u32 + 3;

/// Frees a word if its lowest 16 bits name `member`, which holds the lock. The next 16 bits count releases.
fn freed(word: u64, member: u16) -> Option<u64> {
    (word as u16 == member).then_some((word >> 16 << 16) + (1 << 16))
}

/// Clears the count of sharers in the highest 16 bits of a word.
fn unshared(word: u64) -> Option<u64> {
    (word >> 48 != 0).then_some(word << 16 >> 16)
}

fn table(node: u16) -> Place {
    RemotePtr::new(NodeId(node), 64 << 10).unwrap().into()
}

fn sweep(words: u32) -> Sweep {
    Sweep {
        tables: [table(0), table(1)].into(),
        words,
        freed,
        unshared,
    }
}

/// Makes a world in which each completion comes at the poll after the one that posted its request.
fn world() -> Loopback {
    let world = Loopback::builder().nodes(2).host_bytes(1 << 20);
    world.suspend_every_wait().build().unwrap()
}

/// Returns the place of word `i` in the table of a memory node.
fn place(node: u16, i: u64) -> Place {
    table(node).add(8 * i)
}

fn put(v: &Endpoint, at: Place, word: u64) {
    block_on(v.write(at, &word.to_le_bytes())).unwrap();
}

fn word(v: &Endpoint, at: Place) -> u64 {
    block_on(v.word(at)).unwrap()
}

#[test]
fn a_sweep_changes_the_words_of_one_member_in_all_tables() {
    let world = world();
    let (v, w) = (world.connect(0).unwrap(), world.connect(1).unwrap());
    let held = 1 << 48 | 5 << 16 | 3;
    let mine = [0, 7, PIECE - 1, PIECE, PIECE + 2];
    for node in 0..2 {
        mine.iter().for_each(|i| put(&w, place(node, *i), held));
        put(&w, place(node, 1), 4);
        put(&w, place(node, u64::from(WORDS)), held);
    }
    let sweep = sweep(WORDS);
    assert!(format!("{sweep:?}").contains("words: 2051"));
    let found = block_on(sweep.words(&v, |word| word as u16 == 3)).unwrap();
    let places = |node| mine.map(|i| (place(node, i), held));
    assert_eq!(found, [places(0), places(1)].concat());
    let before = v.meter().counters();
    assert_eq!(block_on(sweep.run(&v, 3)), Ok(10));
    let spent = v.meter().counters() - before;
    assert_eq!((spent.reads, spent.cas, spent.freed_locks), (4, 10, 10));
    for node in 0..2 {
        for i in mine {
            assert_eq!(word(&w, place(node, i)), 1 << 48 | 6 << 16, "word {i} of {node}");
        }
        assert_eq!(word(&w, place(node, 1)), 4, "another member's");
        assert_eq!(word(&w, place(node, 2)), 0);
        assert_eq!(word(&w, place(node, u64::from(WORDS))), held, "behind the table");
    }
    assert_eq!(block_on(sweep.run(&v, 3)), Ok(0));
}

/// Between the READ and the CAS, another client changes the word. The sweep judges the new word.
#[test]
fn a_word_that_changes_meanwhile_is_judged_again() {
    for (now, changed, then) in [(9 << 32 | 3_u64, 1, 9 << 32 | 1 << 16), (4, 0, 4), (0, 0, 0)] {
        let world = world();
        let (v, w) = (world.connect(0).unwrap(), world.connect(1).unwrap());
        put(&w, place(0, 5), 3);
        let sweep = sweep(8);
        let mut sweeping = Box::pin(sweep.run(&v, 3));
        let mut first = true;
        let swept = block_on(poll_fn(|cx| {
            let polled = sweeping.as_mut().poll(cx);
            if core::mem::take(&mut first) {
                assert_eq!(v.meter().counters().reads, 2);
                w.write(place(0, 5), &now.to_le_bytes()).detach();
            }
            polled
        }));
        assert_eq!(swept, Ok(changed), "{now:#x}");
        assert_eq!(word(&w, place(0, 5)), then);
    }
}

#[test]
fn a_word_that_always_changes_is_an_error_with_its_place() {
    let world = world();
    let (v, w) = (world.connect(0).unwrap(), world.connect(1).unwrap());
    put(&w, place(1, 5), 3);
    let sweep = sweep(8);
    let mut sweeping = Box::pin(sweep.run(&v, 3));
    let mut other = 0;
    let swept = block_on(poll_fn(|cx| {
        let polled = sweeping.as_mut().poll(cx);
        // In this world a request takes effect when it is posted. So this WRITE changes the word before the next CAS,
        // which then fails.
        other += 1;
        w.write(place(1, 5), &(other << 32 | 3_u64).to_le_bytes())
            .detach();
        polled
    }));
    let error = swept.unwrap_err();
    let AllocError::Contended(e) = error else {
        panic!("{error}")
    };
    assert_eq!((e.at, e.why, e.attempts), (place(1, 5), Why::Raced, 1024));
    assert_eq!(v.meter().counters().cas, 1024);
}

/// A word is cleared only if it has not changed since it was read.
#[test]
fn words_in_doubt_are_cleared_unless_they_have_changed() {
    let world = world();
    let v = world.connect(0).unwrap();
    let read = [9, 9, 9, 1].map(|word| word << 16);
    for (i, word) in [9, 8, 9, 1].into_iter().enumerate() {
        put(&v, place(0, i as u64), word << 16);
    }
    let words = (0..).map(|i| place(0, i)).zip(read);
    let cleared = |word| (word >= 9 << 16).then_some(word + 1);
    assert_eq!(block_on(Sweep::clear(&v, words, cleared)), Ok((2, 1)));
    let now = [0, 1, 2, 3].map(|i| word(&v, place(0, i)));
    assert_eq!(now, [9 << 16 | 1, 8 << 16, 9 << 16 | 1, 1 << 16]);
}
