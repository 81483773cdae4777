//! Rules that decide when the result of a leader's operation is also valid for its followers.

use dm_index::Applied;

/// The kind of operation that a client wants to run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Wish {
    Get,
    Update,
    Upsert,
}

/// The result of an operation on the index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Told {
    /// The result of a get: whether the key was present.
    Got(bool),
    /// The result of a write.
    Applied(Applied),
}

impl Wish {
    /// Returns the result of a follower with this wish if its leader's operation ended with `told`. Returns `None` if
    /// the leader's result does not determine one. The follower must then run its own operation.
    ///
    /// A follower's get takes effect together with the leader's get. A follower's write takes effect immediately before
    /// the leader's write, either with the key present (`Replaced`) or with the key absent (`Absent`, `Inserted`). If
    /// the key is absent, a follower's upsert would insert it, which contradicts the leader's result. So this case has
    /// no result.
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

    /// Returns the key's value after a write that takes effect in `state`, and the write's result.
    fn write(state: Option<u8>, wish: Wish, value: u8) -> (Option<u8>, Applied) {
        match (state, wish) {
            (Some(_), _) => (Some(value), Applied::Replaced),
            (None, Wish::Upsert) => (Some(value), Applied::Inserted),
            (None, _) => (None, Applied::Absent),
        }
    }

    /// Checks which writes of followers are absorbed: exactly those that change neither the leader's result nor the
    /// final value if they take effect immediately before the leader's write.
    #[test]
    fn an_absorbed_write_takes_effect_right_before_the_leaders() {
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
    fn gets_and_writes_do_not_share_results() {
        assert_eq!(Wish::Get.absorbed_by(Told::Got(true)), Some(Told::Got(true)));
        assert_eq!(Wish::Get.absorbed_by(Told::Applied(Applied::Replaced)), None);
        assert_eq!(Wish::Update.absorbed_by(Told::Got(true)), None);
        assert_eq!(Wish::Upsert.absorbed_by(Told::Applied(Applied::Present)), None);
    }
}
