//! Compares the checker with an enumeration of every order, on small random histories.

use dm_history::{Effect, History, KvMap, KvOp, KvRet, Limits, Operation, Spec, Verdict, check};
use proptest::prelude::*;

type Call = Operation<KvOp<u8, u8>, KvRet<u8>>;

/// Searches all orders of all subsets that contain every operation that has returned. The recursion follows the
/// definition of linearizability directly.
fn some_order_explains(spec: &KvMap<u8, u8>, state: Option<u8>, rest: &[Call]) -> bool {
    if rest.iter().all(|call| call.returned.is_none()) {
        return true;
    }
    (0..rest.len()).any(|at| {
        let call = &rest[at];
        let is_next = rest
            .iter()
            .enumerate()
            .all(|(other, before)| match before.returned {
                Some((returned, _)) => {
                    let in_program_order =
                        before.client == call.client && other < at && returned <= call.invoked;
                    other == at || !(returned < call.invoked || in_program_order)
                }
                None => true,
            });
        let ret = call.returned.as_ref().map(|(_, ret)| ret);
        let Some(next) = is_next.then(|| spec.step(&state, &call.op, ret)).flatten() else {
            return false;
        };
        let mut rest = rest.to_vec();
        rest.remove(at);
        some_order_explains(spec, next, &rest)
    })
}

/// `KvMap` without effects and classes, so that the check is a plain search.
struct Plain(KvMap<u8, u8>);

impl Spec for Plain {
    type Key = u8;
    type Op = KvOp<u8, u8>;
    type Ret = KvRet<u8>;
    type State = Option<u8>;
    fn key(&self, op: &Self::Op) -> u8 {
        self.0.key(op)
    }
    fn initial(&self, key: &u8) -> Option<u8> {
        self.0.initial(key)
    }
    fn step(&self, state: &Option<u8>, op: &Self::Op, ret: Option<&Self::Ret>) -> Option<Option<u8>> {
        self.0.step(state, op, ret)
    }
    fn effect(&self, _: &Self::Op, _: Option<&Self::Ret>) -> Effect<Option<u8>> {
        Effect::Unknown
    }
}

/// Draws one client's next call: the pause before it, its duration, operation and outcome. There are few values and
/// few ticks, so that both are repeated often.
fn call(values: u8) -> impl Strategy<Value = (u64, u64, KvOp<u8, u8>, Option<KvRet<u8>>)> {
    let key = 0..1_u8;
    let found = prop_oneof![4 => (0..values).prop_map(KvRet::Found), 1 => Just(KvRet::Absent)];
    let write = prop_oneof![1 => Just(KvRet::Inserted), 4 => Just(KvRet::Replaced)];
    let operation = prop_oneof![
        6 => (key.clone(), found).prop_map(|(k, r)| (KvOp::Get(k), r)),
        5 => (key.clone(), 0..values, write).prop_map(|(k, v, r)| (KvOp::Upsert(k, v), r)),
        1 => (key.clone(), 0..values, prop_oneof![Just(KvRet::Inserted), Just(KvRet::Present)])
            .prop_map(|(k, v, r)| (KvOp::Insert(k, v), r)),
        1 => (key.clone(), 0..values, prop_oneof![Just(KvRet::Replaced), Just(KvRet::Absent)])
            .prop_map(|(k, v, r)| (KvOp::Update(k, v), r)),
        1 => (key, prop_oneof![Just(KvRet::Removed), Just(KvRet::Absent)]).prop_map(|(k, r)| (KvOp::Remove(k), r)),
    ];
    (0..3_u64, 0..6_u64, operation, prop::bool::weighted(0.9))
        .prop_map(|(pause, takes, (op, ret), returns)| (pause, takes, op, returns.then_some(ret)))
}

fn history(values: u8) -> impl Strategy<Value = Vec<Call>> {
    prop::collection::vec(prop::collection::vec(call(values), 0..4), 1..4).prop_map(|clients| {
        let mut calls = Vec::new();
        for (client, script) in (0..).zip(clients) {
            let mut now = 0;
            for (pause, takes, op, ret) in script {
                let invoked = now + pause;
                now = invoked + takes;
                calls.push(Operation {
                    client,
                    op,
                    invoked,
                    returned: ret.map(|ret| (now, ret)),
                });
            }
        }
        calls.truncate(8);
        calls
    })
}

fn agrees(loaded: bool, calls: Vec<Call>) -> Result<bool, TestCaseError> {
    let spec = if loaded {
        KvMap::loaded([(0, 0)])
    } else {
        KvMap::empty()
    };
    let expected = some_order_explains(&spec, spec.initial(&0), &calls);
    let recorded: History<_, _> = calls.into_iter().collect();
    let verdict = check(&spec, &recorded, Limits::default());
    prop_assert_eq!(verdict.is_linearizable(), expected, "{}", verdict);
    let plain = check(&Plain(spec.clone()), &recorded, Limits::default());
    prop_assert_eq!(plain.is_linearizable(), expected, "without effects: {}", plain);
    if let Verdict::Counterexample(found) = verdict {
        // By the definition, the piece also fails from each of its starting states, without the results after its end.
        prop_assert!(!found.positions.is_empty());
        let all: Vec<_> = recorded.operations().cloned().collect();
        let mut positions = found.positions.clone();
        positions.sort_unstable();
        let mut piece: Vec<_> = positions.into_iter().map(|at| all[at].clone()).collect();
        for call in &mut piece {
            call.returned = call.returned.filter(|(at, _)| *at <= found.end);
        }
        for start in &found.starts {
            prop_assert!(
                !some_order_explains(&spec, *start, &piece),
                "explained after all: {found}"
            );
        }
    }
    Ok(expected)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40_000) })]

    #[test]
    fn the_verdict_is_that_of_the_definition(loaded: bool, calls in history(3)) {
        agrees(loaded, calls)?;
    }

    #[test]
    fn and_with_distinct_values_where_the_shortcuts_work_most(loaded: bool, mut calls in history(4)) {
        let mut next = 0;
        for call in &mut calls {
            if let KvOp::Upsert(_, value) | KvOp::Insert(_, value) | KvOp::Update(_, value) = &mut call.op {
                next += 1;
                *value = next;
            }
        }
        agrees(loaded, calls)?;
    }
}

/// Checks that these strategies produce many histories that are linearizable, and many that are not.
#[test]
fn random_histories_are_of_both_kinds() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let good = (0..2_000).filter(|_| {
        let calls = history(3).new_tree(&mut runner).unwrap().current();
        calls.len() > 2 && agrees(true, calls).unwrap()
    });
    let good = good.count();
    assert!((150..1_700).contains(&good), "{good} of 2000 are linearizable");
}
