//! Meetings of client machines: barriers, so that a measurement begins on all machines at once.

use std::collections::BTreeSet;

use crate::ledger::Connection;

/// Maximum number of meetings at a time. If there are more, the oldest is dropped.
const MEETINGS_MAX: usize = 64;

/// Meetings in progress.
#[derive(Default)]
pub(crate) struct Meetings {
    /// The meetings, the newest last.
    open: Vec<Meeting>,
}

struct Meeting {
    place: u64,
    of: u16,
    here: BTreeSet<Connection>,
    /// The connections that were told that all have arrived.
    told: BTreeSet<Connection>,
}

impl Meeting {
    fn is_full(&self) -> bool {
        self.here.len() >= usize::from(self.of)
    }
}

impl Meetings {
    /// Records that `who` has arrived at `place`, and returns how many connections have arrived. After all connections
    /// have arrived and each of them was told so, the place is free again.
    pub(crate) fn meet(&mut self, place: u64, of: u16, who: Connection) -> u16 {
        // Drop a meeting at this place that waits for another number of connections. Also drop a full meeting in which
        // `who` does not take part: one of its connections has probably left without learning that all had arrived.
        // `who` then begins the next meeting.
        self.open
            .retain(|m| m.place != place || m.of == of && (!m.is_full() || m.here.contains(&who)));
        let at = match self.open.iter().position(|m| m.place == place) {
            Some(at) => at,
            None => {
                if self.open.len() == MEETINGS_MAX {
                    self.open.remove(0);
                }
                self.open.push(Meeting {
                    place,
                    of,
                    here: BTreeSet::new(),
                    told: BTreeSet::new(),
                });
                self.open.len() - 1
            }
        };
        let Some(meeting) = self.open.get_mut(at) else {
            return 0;
        };
        meeting.here.insert(who);
        let arrived = u16::try_from(meeting.here.len()).unwrap_or(u16::MAX);
        if meeting.is_full() {
            meeting.told.insert(who);
            if meeting.told.len() == meeting.here.len() {
                self.open.remove(at);
            }
        }
        arrived
    }

    /// Removes `who` from all meetings that are not full.
    pub(crate) fn leave(&mut self, who: Connection) {
        for meeting in &mut self.open {
            if !meeting.is_full() {
                meeting.here.remove(&who);
            }
        }
        self.open.retain(|meeting| !meeting.here.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_told_and_the_place_is_free_again() {
        let mut m = Meetings::default();
        for _ in 0..3 {
            assert_eq!(m.meet(9, 2, 1), 1);
            assert_eq!(m.meet(9, 2, 1), 1, "asked again");
            assert_eq!(m.meet(9, 2, 2), 2);
            assert_eq!(m.meet(9, 2, 1), 2);
            assert!(m.open.is_empty());
        }
        assert_eq!(m.meet(1, 1, 5), 1);
        assert_eq!(m.meet(1, 0, 5), 1);
    }

    #[test]
    fn a_connection_that_left_does_not_count() {
        let mut m = Meetings::default();
        m.meet(9, 2, 1);
        m.leave(1);
        assert_eq!(m.meet(9, 2, 2), 1);
        assert_eq!(m.meet(9, 2, 3), 2);
        // Connection 2 ended before it was notified.
        assert_eq!(m.meet(9, 2, 4), 1);
        for place in 100..1000 {
            m.meet(place, 2, 4);
        }
        assert_eq!(m.open.len(), MEETINGS_MAX);
    }
}
