//! An index of words in remote memory, its clients, and their operations.

use dm_combine::{Combined, Combiner, Rdwc, RdwcFlaws};
use dm_explore::{Client, Endpoint, Model};
use dm_history::{KvMap, KvOp, KvRet};
use dm_index::{IndexError, Key8, RangeIndex, Words};
use dm_sync::Fingerprint;
use dm_testkit::perform;
use dm_verbs::{NodeId, RemotePtr};

/// Keys and values are numbers.
pub(crate) type Spec = KvMap<u64, u64>;
/// An operation, with the value that it writes if it writes one.
pub(crate) type Op = KvOp<u64, u64>;

/// The words at the start, and the operations of all clients. The keys are 1 and 2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    /// Keys that are present at the start. Key k has the value 100 k; all later values of key k are between 100 k and
    /// 100 k + 99.
    pub(crate) loaded: &'static [u64],
    /// The compute node and the operations of each client.
    pub(crate) clients: &'static [(u16, &'static [Op])],
}

/// Number of words; the first one belongs to no key.
const WORDS: u64 = 3;

fn base() -> RemotePtr {
    RemotePtr::new(NodeId(0), 4096).unwrap_or(RemotePtr::NULL)
}

/// Returns options with one lock for gets and one for writes.
pub(crate) const fn one_lock(flaws: RdwcFlaws) -> Rdwc {
    Rdwc {
        locks: 1,
        flaws,
        ..Rdwc::ON
    }
}

/// Returns the script of a shape.
pub(crate) fn script(shapes: &[(&str, Script)], shape: &str) -> Script {
    let found = shapes.iter().find(|(name, _)| *name == shape);
    found.map_or_else(|| unreachable!("no such shape: {shape}"), |(_, script)| *script)
}

impl Script {
    /// Builds the model. It checks that all operations are linearizable, that none fails, and that at the end no key
    /// has a value of another key.
    pub(crate) fn model(self, title: String, rdwc: Rdwc) -> Model<Combiner<Key8>, Spec> {
        let mut model = Model::new(title)
            .setup(move |v: Endpoint| async move {
                let mut keys = self.loaded.iter();
                let load = |value: &mut Vec<u8>| {
                    let key = *keys.next()?;
                    let loaded = u32::try_from(key * 100).unwrap_or(u32::MAX);
                    value.extend(loaded.to_le_bytes());
                    Some(Key8(key))
                };
                let loaded = Words::new(&v, base(), WORDS).bulk_load(1.0, load).await;
                assert_eq!(loaded, Ok(self.loaded.len() as u64));
            })
            .shared(move |_| Combiner::new(&rdwc))
            .fingerprint(Combiner::fingerprint)
            .spec(KvMap::loaded(self.loaded.iter().map(|&k| (k, k * 100))))
            .invariant("each key has a value of its own", |end| {
                let wrong = (1..WORDS).find(|key| {
                    let value = end.word(base().add(key * 8)) & u64::from(u32::MAX);
                    value != 0 && value / 100 != *key
                });
                wrong.map_or(Ok(()), |key| Err(format!("key {key} has not")))
            });
        for key in 1..WORDS {
            model = model.place(base().add(key * 8), 8, format!("key {key}"));
        }
        for (i, &(on, does)) in self.clients.iter().enumerate() {
            let name = char::from(b'A' + i as u8).to_string();
            model = model.client(name, on, move |c| async move {
                for op in does {
                    let run = async {
                        run(&c, op)
                            .await
                            .map_err(|e| c.check(false, || e.to_string()))
                            .ok()
                    };
                    c.try_op(op.clone(), run).await;
                    c.forget();
                }
            });
        }
        model
    }
}

async fn run(c: &Client<Combiner<Key8>, Spec>, op: &Op) -> Result<KvRet<u64>, IndexError> {
    let v = c.verbs();
    perform(
        &Combined::new(v, Words::new(v, base(), WORDS), Some(c.shared())),
        op,
    )
    .await
}
