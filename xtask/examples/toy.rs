//! A program of known cost, for the test of `bench client`. Each operation computes 100 sums and copies 4 KiB.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the count is printed for the bench to read")]

use std::{env, hint::black_box};

fn main() {
    let args: Vec<String> = env::args().collect();
    let ops = args
        .windows(2)
        .find(|pair| pair[0] == "--ops")
        .and_then(|pair| pair[1].parse::<u64>().ok())
        .expect("usage: toy --op <any> --ops <n>");
    let source = vec![1_u8; 4096];
    let mut target = vec![0_u8; 4096];
    for op in 0..ops {
        for number in 0..100_u64 {
            black_box(op + number);
        }
        // The compiler can't know this length, so it makes a real call.
        let length = black_box(4096);
        target[..length].copy_from_slice(&source[..length]);
        black_box(&target);
    }
    println!("ops {ops}");
}
