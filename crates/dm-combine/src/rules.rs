//! Outcome rules: what the answer to one operation says about others that were waiting for the same key.

use dm_index::Applied;

/// What a client asks of its key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Wish {
    Get,
    Update,
    Upsert,
}

/// What an operation on the index came to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Told {
    /// A get: whether the key was there.
    Got(bool),
    /// A write.
    Applied(Applied),
}

impl Wish {
    /// What a follower with this wish is told when its leader's operation came to `told`; `None`: nothing, it goes on.
    ///
    /// A follower's get takes effect together with the leader's, a follower's write right before it, at a moment when the
    /// key was present (`Replaced`) or absent (`Absent`, `Inserted`). An upsert that finds the key absent would have
    /// to be the one that inserts: no answer to the leader says that of it.
    #[inline]
    pub(crate) fn absorbed_by(self, told: Told) -> Option<Told> {
        //= docs/protocol/combine.md C6
        match (told, self) {
            (Told::Got(_), Self::Get) => Some(told),
            (Told::Applied(Applied::Replaced), Self::Update | Self::Upsert) => Some(told),
            (Told::Applied(Applied::Absent | Applied::Inserted), Self::Update) => {
                Some(Told::Applied(Applied::Absent))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the key's value is, after a write that takes effect there, with its answer.
    fn write(state: Option<u8>, wish: Wish, value: u8) -> (Option<u8>, Applied) {
        match (state, wish) {
            (Some(_), _) => (Some(value), Applied::Replaced),
            (None, Wish::Upsert) => (Some(value), Applied::Inserted),
            (None, _) => (None, Applied::Absent),
        }
    }

    /// Whenever a follower is absorbed, doing its write right before the leader's gives both answers and the same end.
    #[test]
    fn an_absorbed_write_is_one_that_came_right_before() {
        let writes = [Wish::Update, Wish::Upsert];
        let mut absorbed = 0;
        for state in [None, Some(1)] {
            for leader in writes {
                let (end, answer) = write(state, leader, 2);
                for follower in writes {
                    let before = write(state, follower, 3);
                    let both = write(before.0, leader, 2);
                    match follower.absorbed_by(Told::Applied(answer)) {
                        Some(told) => {
                            absorbed += 1;
                            assert_eq!(told, Told::Applied(before.1));
                            assert_eq!(both, (end, answer));
                        }
                        None => assert_ne!(
                            both,
                            (end, answer),
                            "{follower:?} before {leader:?} could be absorbed"
                        ),
                    }
                }
            }
        }
        assert_eq!(absorbed, 6);
    }

    #[test]
    fn gets_and_writes_tell_each_other_nothing() {
        assert_eq!(Wish::Get.absorbed_by(Told::Got(true)), Some(Told::Got(true)));
        assert_eq!(Wish::Get.absorbed_by(Told::Applied(Applied::Replaced)), None);
        assert_eq!(Wish::Update.absorbed_by(Told::Got(true)), None);
        assert_eq!(Wish::Upsert.absorbed_by(Told::Applied(Applied::Present)), None);
    }
}
