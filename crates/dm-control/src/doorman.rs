//! Admission of connections. There is a limit for all connections, a limit per address, and lower limits for
//! peers that have not greeted.

use std::collections::BTreeMap;
use std::net::IpAddr;

use dm_sync::{Arc, Mutex};

use crate::limits::Limits;

#[derive(Clone, Copy, Default)]
struct Count {
    strangers: usize,
    greeted: usize,
}

/// Counts connections by address.
pub(crate) struct Doorman {
    limits: Limits,
    hosts: Mutex<BTreeMap<IpAddr, Count>>,
}

/// A connection's admission, which ends when this is dropped.
pub(crate) struct Pass {
    doorman: Arc<Doorman>,
    host: IpAddr,
    greeted: bool,
}

impl Doorman {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            hosts: Mutex::default(),
        })
    }

    /// Admits a connection, or returns `None` if too many connections have not greeted yet.
    pub(crate) fn admit(self: &Arc<Self>, host: IpAddr) -> Option<Pass> {
        let limits = &self.limits;
        let admitted = self.hosts.with(|hosts| {
            let all: usize = hosts.values().map(|count| count.strangers).sum();
            let own = hosts.get(&host).copied().unwrap_or_default().strangers;
            let room = all < limits.strangers && own < limits.strangers_per_host;
            if room {
                hosts.entry(host).or_default().strangers += 1;
            }
            room
        });
        admitted.then(|| Pass {
            doorman: Arc::clone(self),
            host,
            greeted: false,
        })
    }
}

impl Pass {
    /// Records that the peer has greeted. Returns false if too many peers have greeted.
    pub(crate) fn greet(&mut self) -> bool {
        let limits = &self.doorman.limits;
        let room = self.doorman.hosts.with(|hosts| {
            let all: usize = hosts.values().map(|count| count.greeted).sum();
            let own = hosts.entry(self.host).or_default();
            let room = all < limits.connections && own.greeted < limits.connections_per_host;
            if room {
                own.strangers -= 1;
                own.greeted += 1;
            }
            room
        });
        self.greeted |= room;
        room
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.doorman.hosts.with(|hosts| {
            let Some(own) = hosts.get_mut(&self.host) else {
                return;
            };
            if self.greeted {
                own.greeted -= 1;
            } else {
                own.strangers -= 1;
            }
            if own.greeted + own.strangers == 0 {
                hosts.remove(&self.host);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_can_not_take_the_room_of_others() {
        let limits = Limits {
            strangers: 3,
            strangers_per_host: 2,
            connections: 2,
            connections_per_host: 1,
            ..Limits::default()
        };
        let doorman = Doorman::new(limits);
        let host = |n| IpAddr::from([10, 0, 0, n]);
        let mut a = doorman.admit(host(1)).unwrap();
        let mut b = doorman.admit(host(1)).unwrap();
        assert!(doorman.admit(host(1)).is_none(), "too many of this address");
        let mut c = doorman.admit(host(2)).unwrap();
        assert!(doorman.admit(host(3)).is_none(), "too many in all");
        assert!(a.greet() && !b.greet() && c.greet());
        let mut d = doorman.admit(host(3)).unwrap();
        assert!(!d.greet(), "too many have greeted");
        drop(a);
        assert!(d.greet());
        drop((b, c, d));
        assert!(doorman.hosts.with(|hosts| hosts.is_empty()));
    }
}
