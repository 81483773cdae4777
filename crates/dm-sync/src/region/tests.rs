//! Tests of regions with one thread, several threads, and several processes.

use std::path::PathBuf;
use std::process::{Child, Command};

use proptest::prelude::*;

use super::*;

fn both_units() -> [Region; 2] {
    [AtomicUnit::Line, AtomicUnit::Word].map(|unit| Region::anonymous(4096, unit).expect("4 KiB"))
}

fn bytes_at(region: &Region, offset: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0xEE; len];
    region.read(offset, &mut out).expect("in bounds, nobody died");
    out
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: crate::scaled(300, 4) as u32, failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn writes_and_reads_are_those_of_a_vec(
        script in prop::collection::vec((0u64..500, prop::collection::vec(any::<u8>(), 0..200)), 1..12),
        seed in any::<u64>(), word_unit in any::<bool>(),
    ) {
        let unit = if word_unit { AtomicUnit::Word } else { AtomicUnit::Line };
        let region = Region::anonymous(512, unit).expect("512 B");
        let mut model = vec![0u8; 512];
        for (offset, bytes) in script {
            let inside = offset as usize + bytes.len() <= model.len();
            prop_assert_eq!(region.write(offset, &bytes).is_ok(), inside);
            if inside {
                model[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
                let mut out = vec![0; bytes.len() + 1];
                if region.read_ordered(offset, &mut out, LineOrder::Seeded(seed)).is_ok() {
                    prop_assert_eq!(&out, &model[offset as usize..][..bytes.len() + 1]);
                }
            }
            prop_assert_eq!(&bytes_at(&region, 0, 512), &model);
        }
    }
}

#[test]
fn bounds_and_alignment_are_errors() {
    for region in both_units() {
        let size = region.size();
        let past = |offset, len| RegionError::OutOfBounds { offset, len, size };
        assert_eq!(region.write(size - 3, &[1; 4]), Err(past(size - 3, 4)));
        assert_eq!(region.read(u64::MAX, &mut [0; 2]), Err(past(u64::MAX, 2)));
        assert_eq!(region.read(size, &mut []), Ok(()));
        assert_eq!(region.faa(size, 1), Err(past(size, 8)));
        assert_eq!(region.read_word(12), Err(RegionError::Unaligned { offset: 12 }));
        assert!(
            bytes_at(&region, 0, 4096).iter().all(|&byte| byte == 0),
            "a refused write wrote"
        );
    }
    let none = Region::anonymous(0, AtomicUnit::Line).expect("no bytes are allowed");
    assert_eq!(
        none.read_word(0),
        Err(RegionError::OutOfBounds {
            offset: 0,
            len: 8,
            size: 0
        })
    );
    assert!(matches!(
        Region::anonymous(u64::MAX, AtomicUnit::Line),
        Err(RegionError::Map { .. })
    ));
}

#[test]
fn atomics_answer_with_the_old_word() {
    for region in both_units() {
        assert_eq!(region.cas(8, 0, 5), Ok(0));
        assert_eq!(region.cas(8, 0, 6), Ok(5));
        assert_eq!(region.faa(8, u64::MAX), Ok(5));
        assert_eq!(region.read_word(8), Ok(4));
        // Bits 0..8 must be 4; bits 8..16 are set; the rest stays.
        assert_eq!(region.masked_cas(8, 0x9904, 0xFF, 0xAB00, 0xFF00), Ok(4));
        assert_eq!(region.masked_cas(8, 0, 0xFF, 0, u64::MAX), Ok(0xAB04));
        assert_eq!(bytes_at(&region, 8, 3), [0x04, 0xAB, 0x00]);
        assert_eq!(region.write_word(16, 0x0201), Ok(()));
        assert_eq!(bytes_at(&region, 15, 4), [0, 1, 2, 0]);
        assert_eq!(
            region.write_word(17, 1),
            Err(RegionError::Unaligned { offset: 17 })
        );
    }
}

/// Writers store lines of one repeated byte. No reader may see a mixed line, in any order of lines.
#[test]
fn a_line_is_never_torn() {
    const LINES: usize = crate::scaled(4, 2);
    let region = Region::anonymous((LINES * LINE_BYTES) as u64, AtomicUnit::Line).expect("four lines");
    let rounds = crate::scaled(40_000, 12);
    std::thread::scope(|scope| {
        for writer in 0..2u8 {
            let region = &region;
            scope.spawn(move || {
                for round in 0..rounds {
                    let byte = (round as u8).wrapping_mul(2).wrapping_add(writer);
                    region.write(0, &[byte; LINES * LINE_BYTES]).expect("in bounds");
                }
            });
        }
        for seed in 0..rounds as u64 {
            let mut out = [0; LINES * LINE_BYTES];
            region
                .read_ordered(0, &mut out, LineOrder::Seeded(seed))
                .expect("in bounds");
            for line in out.chunks(LINE_BYTES) {
                assert!(line.iter().all(|byte| *byte == line[0]), "torn line {line:?}");
            }
        }
    });
}

/// The broken twin of the test above. Without line locks, torn lines must occur; otherwise that test would
/// prove nothing.
#[test]
#[cfg_attr(miri, ignore = "needs many racing rounds")]
fn a_line_is_torn_in_word_mode() {
    let region = Region::anonymous(LINE_BYTES as u64, AtomicUnit::Word).expect("one line");
    let done = std::sync::atomic::AtomicBool::new(false);
    let torn = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut byte = 0u8;
            // Relaxed: the flag only stops the loop.
            while !done.load(Relaxed) {
                byte = byte.wrapping_add(1);
                region.write(0, &[byte; LINE_BYTES]).expect("in bounds");
            }
        });
        let torn = (0..50_000_000u64).any(|_| {
            let mut out = [0; LINE_BYTES];
            region.read(0, &mut out).expect("in bounds");
            out.as_chunks::<WORD_BYTES>()
                .0
                .iter()
                .for_each(|word| assert_eq!(*word, [word[0]; 8]));
            out.iter().any(|byte| *byte != out[0])
        });
        done.store(true, Relaxed);
        torn
    });
    assert!(torn, "50 M reads of a line under writing, and none torn");
}

/// Different writers write different bytes of one word, and atomics change the next two words. No write may be
/// lost.
#[test]
fn neighbours_keep_their_bytes() {
    for region in both_units() {
        let rounds = crate::scaled(20_000, 20) as u64;
        std::thread::scope(|scope| {
            for lane in 0..3u64 {
                let region = &region;
                scope.spawn(move || {
                    for round in 0..rounds {
                        region
                            .write(2 * lane, &(round as u16).to_le_bytes())
                            .expect("in bounds");
                        let mut seen = [0; 2];
                        region.read(2 * lane, &mut seen).expect("in bounds");
                        assert_eq!(u16::from_le_bytes(seen), round as u16);
                        region.faa(8, 1 + (1 << 32)).expect("in bounds");
                        let old = region.read_word(16).expect("in bounds");
                        region.cas(16, old, old + 1).expect("in bounds");
                    }
                });
            }
        });
        assert_eq!(region.read_word(8), Ok(3 * rounds * (1 + (1 << 32))));
        let swapped = region.read_word(16).expect("in bounds");
        assert!(
            (rounds..=3 * rounds).contains(&swapped),
            "{swapped} of {rounds} to {}",
            3 * rounds
        );
    }
}

/// Runs the store-buffer litmus test: two threads start together, and each writes one word and reads the
/// other's word. Returns how often both read the old word. The region is in word mode, because on x86 the
/// line locks would order the accesses too.
///
/// It ends early if the machine is too busy to run both threads at the same time, because each round would
/// then take a time slice.
fn both_old(between: fn()) -> u64 {
    const ROUNDS: u64 = 100_000;
    const YIELDS_MAX: u32 = 100;
    const OVER: u64 = u64::MAX;
    let region = Region::anonymous(4096, AtomicUnit::Word).expect("4 KiB");
    let arrived = [const { core::sync::atomic::AtomicU64::new(0) }; 2];
    let run = |me: usize| {
        let mut seen = Vec::new();
        let mut yields = 0;
        for round in 1..=ROUNDS {
            // This loads the word into the cache, so that the read below is fast and the other thread's write
            // is slow.
            region.read_word(1024 * (1 - me as u64)).expect("in bounds");
            arrived[me].store(round, SeqCst); // SeqCst: only to start together
            let mut spins = 0u32;
            while arrived[1 - me].load(SeqCst) < round {
                spins += 1;
                if spins % 1024 == 0 {
                    if yields == YIELDS_MAX {
                        arrived[me].store(OVER, SeqCst); // SeqCst: as above
                        return seen;
                    }
                    yields += 1;
                    std::thread::yield_now();
                }
            }
            region
                .write(1024 * me as u64, &round.to_le_bytes())
                .expect("in bounds");
            between();
            seen.push(region.read_word(1024 * (1 - me as u64)).expect("in bounds"));
        }
        seen
    };
    let (left, right) = std::thread::scope(|scope| {
        let left = scope.spawn(|| run(0));
        let right = run(1);
        (left.join().expect("no panic"), right)
    });
    (1..)
        .zip(left.iter().zip(&right))
        .filter(|(round, (l, r))| *l < round && *r < round)
        .count() as u64
}

/// Only the fence prevents both threads from reading old words. Without it, most machines show this within a few
/// rounds. If the two processors of a machine never really run at the same time, it does not happen, and the test only
/// prints a message.
#[test]
#[cfg_attr(miri, ignore = "needs many racing rounds")]
fn a_fence_orders_write_before_read() {
    assert_eq!(both_old(fence), 0);
    if !(0..5).any(|_| both_old(|| ()) > 0) {
        println!("without the fence this machine showed no reordering either");
    }
}

const ROLE: &str = "DM_SYNC_REGION_TEST_ROLE";
const FILE: &str = "DM_SYNC_REGION_TEST_FILE";

struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, bytes: u64) -> (Self, File) {
        let path = std::env::temp_dir().join(format!("dm-sync-{name}-{}", std::process::id()));
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .expect("temp file");
        file.set_len(bytes).expect("room for a few pages");
        (Self(path), file)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn child(role: &str, path: &std::path::Path) -> Child {
    Command::new(std::env::current_exe().expect("this test's binary"))
        .args(["--exact", "region::tests::child_process", "--nocapture"])
        .env(ROLE, role)
        .env(FILE, path)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("a second process")
}

/// This is not a separate test: the second process runs it when one of the tests below starts that process.
#[test]
fn child_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let file = File::options()
        .read(true)
        .write(true)
        .open(std::env::var(FILE).expect("set with the role"));
    let region = Region::in_file(
        &file.expect("the parent made it"),
        FILE_ALIGN,
        4096,
        AtomicUnit::Line,
    );
    let region = region.expect("the parent mapped it too");
    match role.as_str() {
        "add" => add(&region),
        "die" => {
            region.line(128).1.lock(region.holder).expect("nobody else");
            std::process::exit(0);
        }
        other => panic!("unknown role {other}"),
    }
}

fn add(region: &Region) {
    for round in 0..20_000u64 {
        region.faa(0, 1).expect("the other process lives");
        region
            .write(64, &[round as u8; 64])
            .expect("the other process lives");
        let line = bytes_at(region, 64, 64);
        assert!(line.iter().all(|byte| *byte == line[0]), "torn line {line:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "no processes")]
fn two_processes_share_a_file() {
    let (path, file) = TempFile::new("share", FILE_ALIGN + Region::file_bytes(4096).expect("small"));
    let region = Region::in_file(&file, FILE_ALIGN, 4096, AtomicUnit::Line).expect("mapped");
    let mut other = child("add", &path.0);
    add(&region);
    assert!(other.wait().expect("a child to wait for").success());
    assert_eq!(region.read_word(0), Ok(40_000));
}

#[test]
#[cfg_attr(miri, ignore = "no processes")]
fn a_dead_holder_is_named() {
    let (path, file) = TempFile::new("dead", FILE_ALIGN + Region::file_bytes(4096).expect("small"));
    let region = Region::in_file(&file, FILE_ALIGN, 4096, AtomicUnit::Line).expect("mapped");
    let mut other = child("die", &path.0);
    let pid = other.id();
    // The child was not waited for yet, because a zombie must count as dead. Until the child has locked the
    // line, reads succeed.
    let dead = Err(RegionError::HolderDead { offset: 128, pid });
    let mut out = [0; 200];
    while region.read(0, &mut out) != dead {
        std::thread::yield_now();
    }
    assert!(other.wait().expect("a child to wait for").success());
    assert_eq!(region.write(190, &[1; 2]), dead, "also once its id is free");
    assert_eq!(
        region.faa(136, 1),
        Err(RegionError::HolderDead { offset: 128, pid })
    );
    assert_eq!(region.write(192, &[1; 2]), Ok(()), "other lines go on");
}

#[test]
#[cfg_attr(miri, ignore = "no files")]
fn a_file_that_does_not_fit_is_refused() {
    let (_path, file) = TempFile::new("short", 8192);
    let needed = Region::file_bytes(1 << 20).expect("small");
    let short = Region::in_file(&file, 0, 1 << 20, AtomicUnit::Line).err();
    assert_eq!(short, Some(RegionError::FileTooShort { needed, found: 8192 }));
    let crooked = Region::in_file(&file, 64, 64, AtomicUnit::Line).err();
    assert_eq!(crooked, Some(RegionError::FileUnaligned { at: 64 }));
}

/// Checks that in word mode a READ in a seeded order copies all bytes, although it begins within a word.
#[test]
fn word_mode_serves_each_word_once() {
    let region = Region::anonymous(4096, AtomicUnit::Word).expect("4 KiB");
    let bytes: Vec<u8> = (0..200).collect();
    region.write(13, &bytes).expect("in bounds");
    for seed in 0..20 {
        for len in [0, 1, 3, 8, 51, 64, 200] {
            let mut out = vec![0xEE; len];
            region
                .read_ordered(13, &mut out, LineOrder::Seeded(seed))
                .expect("in bounds");
            assert_eq!(out, bytes[..len]);
        }
    }
}
