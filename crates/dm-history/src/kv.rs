//! A specification: a map of keys to values.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;

use crate::spec::{Effect, Spec};

/// An operation on one key of a map.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KvOp<K, V> {
    /// Reads the value.
    Get(K),
    /// Adds the key. Does nothing if the key is present.
    Insert(K, V),
    /// Replaces the value. Does nothing if the key is absent.
    Update(K, V),
    /// Adds the key or replaces its value.
    Upsert(K, V),
    /// Removes the key.
    Remove(K),
}

impl<K, V> KvOp<K, V> {
    /// Returns the key that the operation works on.
    pub fn key(&self) -> &K {
        match self {
            Self::Get(key)
            | Self::Insert(key, _)
            | Self::Update(key, _)
            | Self::Upsert(key, _)
            | Self::Remove(key) => key,
        }
    }
}

/// The result of an operation on a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvRet<V> {
    /// A get found this value.
    Found(V),
    /// A get, update or remove found no such key.
    Absent,
    /// An insert found the key present and did nothing.
    Present,
    /// An insert or upsert added the key.
    Inserted,
    /// An update or upsert replaced a value.
    Replaced,
    /// A remove removed the key.
    Removed,
}

/// A map from `K` to `V`, in which every key is a separate object.
///
/// Checks are fastest and most precise if no two writes write the same value: see [`crate::stamp()`].
#[derive(Clone, Debug)]
pub struct KvMap<K, V> {
    loaded: HashMap<K, V>,
}

impl<K: Eq + Hash, V> KvMap<K, V> {
    /// Makes a map that is empty when the history begins.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            loaded: HashMap::new(),
        }
    }

    /// Makes a map that holds `pairs` when the history begins.
    pub fn loaded(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        Self {
            loaded: pairs.into_iter().collect(),
        }
    }
}

impl<K, V> Spec for KvMap<K, V>
where
    K: Clone + Eq + Hash + Debug,
    V: Clone + Eq + Hash + Debug,
{
    type Key = K;
    type Op = KvOp<K, V>;
    type Ret = KvRet<V>;
    type State = Option<V>;

    fn key(&self, op: &KvOp<K, V>) -> K {
        op.key().clone()
    }

    fn initial(&self, key: &K) -> Option<V> {
        self.loaded.get(key).cloned()
    }

    fn step(&self, state: &Option<V>, op: &KvOp<K, V>, ret: Option<&KvRet<V>>) -> Option<Option<V>> {
        let Some(ret) = ret else {
            return match (op, state) {
                (KvOp::Insert(_, value), None)
                | (KvOp::Update(_, value), Some(_))
                | (KvOp::Upsert(_, value), _) => Some(Some(value.clone())),
                (KvOp::Remove(_), Some(_)) => Some(None),
                _ => None,
            };
        };
        match (op, ret, state) {
            (KvOp::Get(_), KvRet::Found(seen), Some(held)) => (seen == held).then(|| state.clone()),
            (KvOp::Get(_) | KvOp::Update(..) | KvOp::Remove(_), KvRet::Absent, None)
            | (KvOp::Insert(..), KvRet::Present, Some(_)) => Some(state.clone()),
            (KvOp::Insert(_, value) | KvOp::Upsert(_, value), KvRet::Inserted, None)
            | (KvOp::Update(_, value) | KvOp::Upsert(_, value), KvRet::Replaced, Some(_)) => {
                Some(Some(value.clone()))
            }
            (KvOp::Remove(_), KvRet::Removed, Some(_)) => Some(None),
            _ => None,
        }
    }

    fn effect(&self, op: &KvOp<K, V>, ret: Option<&KvRet<V>>) -> Effect<Option<V>> {
        match (op, ret) {
            (KvOp::Get(_), Some(KvRet::Found(value))) => Effect::PureIn(Some(value.clone())),
            (_, Some(KvRet::Absent)) => Effect::PureIn(None),
            (KvOp::Update(_, value) | KvOp::Upsert(_, value), Some(KvRet::Replaced)) => {
                Effect::Overwrites(Some(value.clone()))
            }
            (KvOp::Insert(_, value) | KvOp::Upsert(_, value), Some(KvRet::Inserted))
            | (KvOp::Insert(_, value) | KvOp::Update(_, value) | KvOp::Upsert(_, value), None) => {
                Effect::Sets(Some(value.clone()))
            }
            (KvOp::Remove(_), Some(KvRet::Removed) | None) => Effect::Sets(None),
            // This covers gets without a result, inserts that did nothing, and results that the operation can never
            // have.
            _ => Effect::Pure,
        }
    }

    fn alike(&self, left: &Option<V>, right: &Option<V>) -> bool {
        left.is_some() == right.is_some()
    }

    fn class(&self, op: &KvOp<K, V>, ret: Option<&KvRet<V>>) -> Option<u8> {
        match (op, ret) {
            // These change the key from absent to present. A pending upsert may also replace a value.
            (KvOp::Insert(..), Some(KvRet::Inserted)) | (KvOp::Upsert(..), None | Some(KvRet::Inserted)) => {
                Some(0)
            }
            // These keep the key present.
            (KvOp::Update(..), None | Some(KvRet::Replaced)) | (KvOp::Upsert(..), Some(KvRet::Replaced)) => {
                Some(1)
            }
            // These change the key from present to absent.
            (KvOp::Remove(_), None | Some(KvRet::Removed)) => Some(2),
            // A pending insert has its own class, because pending upserts are possible in more states.
            (KvOp::Insert(..), None) => Some(3),
            _ => None,
        }
    }
}
