//! Long histories. A history of hot keys with many concurrent clients passes within a limit of steps. A single wrong
//! result is found, and the counterexample has few lines.

use dm_history::{History, KvMap, KvOp, KvRet, Limits, Operation, Verdict, check};

type Call = Operation<KvOp<u64, u64>, KvRet<u64>>;

/// A generator of random numbers (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % limit
    }
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    clients: u32,
    operations: u64,
    keys: u64,
    /// The percentage of writes.
    writes: u64,
    removes: u64,
    /// On average one in this number of operations never returns, and half of these take effect. If the number is 0,
    /// all operations return.
    crashes: u64,
}

/// Runs clients on a map. Each operation that returns takes effect at one moment within its interval. One that never
/// returns takes effect at one moment after its invocation, or not at all. So the history is linearizable. Written
/// values are distinct.
fn run(shape: Shape, seed: u64) -> Vec<Call> {
    let mut dice = Dice(seed);
    let mut map = std::collections::HashMap::new();
    let mut calls: Vec<Call> = Vec::new();
    // An event is its time, whether the call takes effect then, the client, and the call.
    let mut agenda = std::collections::BinaryHeap::new();
    for client in 0..shape.clients {
        agenda.push(std::cmp::Reverse((dice.below(100), false, client, 0)));
    }
    while let Some(std::cmp::Reverse((now, takes_effect, client, at))) = agenda.pop() {
        if takes_effect {
            let call: &mut Call = &mut calls[at];
            let key = *call.op.key();
            let ret = match &call.op {
                KvOp::Get(_) => map.get(&key).map_or(KvRet::Absent, |value| KvRet::Found(*value)),
                KvOp::Upsert(_, value) => map
                    .insert(key, *value)
                    .map_or(KvRet::Inserted, |_| KvRet::Replaced),
                KvOp::Remove(_) => map.remove(&key).map_or(KvRet::Absent, |_| KvRet::Removed),
                KvOp::Insert(..) | KvOp::Update(..) => unreachable!("not generated"),
            };
            let crashed = shape.crashes > 0 && dice.below(shape.crashes * 2) == 0;
            let returned = now + dice.below(60);
            call.returned = (!crashed).then_some((returned, ret));
            agenda.push(std::cmp::Reverse((
                returned + 1 + dice.below(20),
                false,
                client,
                0,
            )));
        } else if (calls.len() as u64) < shape.operations {
            let key = dice.below(shape.keys);
            let op = match dice.below(100) {
                kind if kind < shape.writes => KvOp::Upsert(key, calls.len() as u64 + 1_000_000),
                kind if kind < shape.writes + shape.removes => KvOp::Remove(key),
                _ => KvOp::Get(key),
            };
            let lost = shape.crashes > 0 && dice.below(shape.crashes * 2) == 0;
            calls.push(Operation {
                client,
                op,
                invoked: now,
                returned: None,
            });
            if lost {
                agenda.push(std::cmp::Reverse((now + 1 + dice.below(80), false, client, 0)));
            } else {
                agenda.push(std::cmp::Reverse((
                    now + dice.below(60),
                    true,
                    client,
                    calls.len() - 1,
                )));
            }
        }
    }
    calls
}

fn steps(shape: Shape, seed: u64) -> f64 {
    let history: History<_, _> = run(shape, seed).into_iter().collect();
    let passed = check(&KvMap::empty(), &history, Limits::default()).expect_linearizable();
    assert_eq!(passed.operations as u64, shape.operations);
    passed.steps as f64 / shape.operations as f64
}

const HOT: Shape = Shape {
    clients: 64,
    operations: 100_000,
    keys: 1,
    writes: 50,
    removes: 0,
    crashes: 0,
};

#[test]
fn long_hot_histories_need_few_steps() {
    for (shape, most) in [
        (HOT, 8.0),
        (Shape { clients: 256, ..HOT }, 20.0),
        (Shape { writes: 100, ..HOT }, 2.0),
        (Shape { removes: 5, ..HOT }, 12.0),
        (
            Shape {
                keys: 20,
                removes: 10,
                crashes: 100,
                ..HOT
            },
            12.0,
        ),
        (
            Shape {
                keys: 1000,
                removes: 5,
                ..HOT
            },
            4.0,
        ),
    ] {
        for seed in 0..3 {
            let steps = steps(shape, seed);
            println!("{shape:?}, seed {seed}: {steps:.1} steps per operation");
            assert!(
                steps < most,
                "{shape:?}, seed {seed}: {steps} steps per operation"
            );
        }
    }
}

/// Changes one read in the middle, so that it returns a value that was overwritten before the read began.
#[test]
fn one_stale_read_among_20_000_operations_is_found_and_shown_small() {
    for seed in 0..5 {
        let mut calls = run(
            Shape {
                operations: 20_000,
                clients: 16,
                ..HOT
            },
            seed,
        );
        // The write of the stale value returned more than 500 units of time before the read began. A value of this hot
        // key does not last so long, so it had been overwritten.
        let read = (10_000..)
            .find(|&at| matches!(calls[at].returned, Some((_, KvRet::Found(_)))))
            .unwrap();
        let stale = calls[..read]
            .iter()
            .rev()
            .filter_map(|call| match (&call.op, &call.returned) {
                (KvOp::Upsert(_, value), Some((at, _))) if at + 500 < calls[read].invoked => Some(*value),
                _ => None,
            });
        let stale = stale.take(1).next().unwrap();
        calls[read].returned.as_mut().unwrap().1 = KvRet::Found(stale);
        let history: History<_, _> = calls.into_iter().collect();
        let Verdict::Counterexample(found) = check(&KvMap::empty(), &history, Limits::default()) else {
            panic!("seed {seed}: the stale read of {stale} must be found");
        };
        let text = found.to_string();
        assert!(found.positions.contains(&read), "{text}");
        assert!(text.lines().count() <= 16, "{text}");
        assert!(text.contains(&format!("Get(0) -> Found({stale})")), "{text}");
    }
}

/// Two updates begin from the same value, as after a lock that was handed over too early. A reader that begins after
/// both updates have returned sees the value of the first one.
#[test]
fn a_lost_update_is_found() {
    let mut history = History::new();
    for (client, op, invoked, returned, ret) in [
        (0, KvOp::Update(1, 'a'), 10, 20, KvRet::Replaced),
        (1, KvOp::Update(1, 'b'), 21, 30, KvRet::Replaced),
        (2, KvOp::Get(1), 5, 35, KvRet::Found('0')),
        (2, KvOp::Get(1), 36, 40, KvRet::Found('a')),
    ] {
        history.push(Operation {
            client,
            op,
            invoked,
            returned: Some((returned, ret)),
        });
    }
    let Verdict::Counterexample(found) = check(&KvMap::loaded([(1, '0')]), &history, Limits::default())
    else {
        panic!("must fail")
    };
    assert_eq!(
        found.to_string(),
        "key 1: no order explains these 1 of 4 operations,\n\
         beginning with Some('b')\n\
         \x20 client   2  [36, 40]  Get(1) -> Found('a')   <- can't be explained\n\
         its values were written, outside of it, by\n\
         \x20 client   0  [10, 20]  Update(1, 'a') -> Replaced\n\
         \x20 client   1  [21, 30]  Update(1, 'b') -> Replaced\n"
    );
}

/// If the search runs out of steps, the verdict is `TooLarge`.
#[test]
fn too_few_steps_are_no_pass() {
    let history: History<_, _> = run(
        Shape {
            operations: 1_000,
            ..HOT
        },
        1,
    )
    .into_iter()
    .collect();
    let verdict = check(&KvMap::empty(), &history, Limits { steps_per_key: 100 });
    assert!(
        matches!(&verdict, Verdict::TooLarge(large) if large.steps == 100),
        "{verdict}"
    );
    assert!(!verdict.is_linearizable());
}
