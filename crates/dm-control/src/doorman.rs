//! Admission of connections. The number of peers that have greeted is limited, in all and per host. Peers that have not
//! greeted (strangers) have lower limits of their own. A new connection never waits for a stranger to leave. If its own
//! host has too many strangers, the new connection displaces the oldest of these. Otherwise, if there are too many
//! strangers in all, it displaces the oldest stranger of the host that has the most.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::limits::Limits;

/// A host, as far as an address identifies it: an IPv4 address, or the first 64 bits of an IPv6 address, because one
/// host may use all addresses of such a network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Host {
    V4(u32),
    V6(u64),
}

impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.to_bits()),
            IpAddr::V6(address) => Self::V6((address.to_bits() >> 64) as u64),
        }
    }
}

#[derive(Default)]
struct Guests {
    /// Numbers of connections; a later connection has a greater number.
    strangers: BTreeSet<usize>,
    greeted: BTreeSet<usize>,
}

/// Counts connections by host.
pub(crate) struct Doorman {
    limits: Limits,
    hosts: BTreeMap<Host, Guests>,
}

impl Doorman {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            hosts: BTreeMap::new(),
        }
    }

    /// Admits connection `number`. Returns the stranger that must leave, if there are too many.
    pub(crate) fn admit(&mut self, number: usize, host: Host) -> Option<usize> {
        let all: usize = self.hosts.values().map(|guests| guests.strangers.len()).sum();
        let own = self.hosts.get(&host);
        let goes = match own.filter(|own| own.strangers.len() >= self.limits.strangers_per_host) {
            Some(own) => own.strangers.first().copied(),
            None if all >= self.limits.strangers => self.longest_waiting(),
            None => None,
        };
        self.hosts.entry(host).or_default().strangers.insert(number);
        goes
    }

    /// Returns the oldest stranger of the host that has the most strangers. Among hosts with equally many, one without
    /// greeted connections is preferred.
    pub(crate) fn longest_waiting(&self) -> Option<usize> {
        let worst = self.hosts.values().max_by_key(|guests| {
            let first = guests.strangers.first().copied();
            let known = !guests.greeted.is_empty();
            (guests.strangers.len(), core::cmp::Reverse((known, first)))
        });
        worst?.strangers.first().copied()
    }

    /// Records that connection `number` has greeted. Returns false if too many have greeted.
    pub(crate) fn greet(&mut self, number: usize, host: Host) -> bool {
        let all: usize = self.hosts.values().map(|guests| guests.greeted.len()).sum();
        let own = self.hosts.entry(host).or_default();
        let room = all < self.limits.connections && own.greeted.len() < self.limits.connections_per_host;
        if room && own.strangers.remove(&number) {
            own.greeted.insert(number);
        }
        room
    }

    /// Records that connection `number` has ended.
    pub(crate) fn leave(&mut self, number: usize, host: Host) {
        let Some(guests) = self.hosts.get_mut(&host) else {
            return;
        };
        guests.strangers.remove(&number);
        guests.greeted.remove(&number);
        if guests.strangers.len() + guests.greeted.len() == 0 {
            self.hosts.remove(&host);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(last: u8) -> Host {
        IpAddr::from([10, 0, 0, last]).into()
    }

    /// Admits connections, and removes the strangers that must leave.
    fn admit(
        doorman: &mut Doorman,
        hosts: &mut BTreeMap<usize, u8>,
        number: usize,
        host: u8,
    ) -> Option<usize> {
        let goes = doorman.admit(number, v4(host));
        hosts.insert(number, host);
        if let Some(goes) = goes {
            doorman.leave(goes, v4(hosts[&goes]));
        }
        goes
    }

    #[test]
    fn a_newcomer_takes_the_place_of_the_host_with_most_strangers() {
        let limits = Limits {
            strangers: 5,
            strangers_per_host: 3,
            ..Limits::default()
        };
        let (mut doorman, mut hosts) = (Doorman::new(limits), BTreeMap::new());
        let mut admit = |doorman: &mut _, number, host| admit(doorman, &mut hosts, number, host);
        for (number, host, goes) in [
            (10, 1, None),
            (11, 1, None),
            (12, 1, None),
            (13, 1, Some(10)), // too many of this host
            (14, 2, None),
            (15, 2, None),
            (16, 3, Some(11)), // too many in all
            (17, 3, Some(12)), // the older stranger of two hosts with equally many
            (18, 4, Some(14)),
        ] {
            assert_eq!(admit(&mut doorman, number, host), goes, "{number}");
        }
        // The strangers are now 13 of host 1, 15 of host 2, 16 and 17 of host 3, and 18 of host 4.
        assert_eq!(
            admit(&mut doorman, 19, 1),
            Some(16),
            "13 is older, but not of the worst host"
        );
        // Among hosts with equally many strangers, one with a greeted connection is chosen last.
        let two = Limits {
            strangers: 2,
            ..limits
        };
        let mut doorman = Doorman::new(two);
        assert_eq!(admit(&mut doorman, 1, 1), None);
        assert!(doorman.greet(1, v4(1)));
        assert_eq!(admit(&mut doorman, 2, 1), None);
        assert_eq!(admit(&mut doorman, 3, 2), None);
        assert_eq!(admit(&mut doorman, 4, 3), Some(3), "2 is older, but of host 1");
    }

    #[test]
    fn connections_that_have_greeted_are_never_sent_away_and_limited() {
        let limits = Limits {
            strangers: 2,
            connections: 2,
            connections_per_host: 1,
            ..Limits::default()
        };
        let mut doorman = Doorman::new(limits);
        let enter = |doorman: &mut Doorman, number, host| {
            doorman.admit(number, v4(host));
            doorman.greet(number, v4(host))
        };
        assert!(enter(&mut doorman, 1, 1));
        assert!(!enter(&mut doorman, 2, 1), "too many of this host");
        doorman.leave(2, v4(1));
        assert!(enter(&mut doorman, 3, 2));
        assert!(!enter(&mut doorman, 4, 3), "too many in all");
        let mut hosts = BTreeMap::from([(4, 3)]);
        for number in 5..10 {
            let goes = admit(&mut doorman, &mut hosts, number, 9);
            assert!(goes.is_none_or(|goes| goes >= 4), "{goes:?}");
        }
        doorman.leave(1, v4(1));
        assert!(doorman.greet(9, v4(9)));
        for (number, host) in hosts.into_iter().chain([(3, 2)]) {
            doorman.leave(number, v4(host));
        }
        assert!(doorman.hosts.is_empty());
    }

    #[test]
    fn addresses_of_one_network_are_one_host() {
        let host = |address: &str| Host::from(address.parse::<IpAddr>().unwrap());
        assert_eq!(host("2001:db8:1:2::1"), host("2001:db8:1:2:ffff::7"));
        assert_ne!(host("2001:db8:1:2::1"), host("2001:db8:1:3::1"));
        assert_eq!(host("::ffff:10.0.0.1"), v4(1));
        assert_ne!(v4(1), v4(2));
    }
}
