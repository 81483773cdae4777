//! Delays for hosts that send wrong proofs. The first few wrong proofs cause no delay. Each further one makes the
//! host's next proof wait longer, up to a limit.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::doorman::Host;

/// Number of wrong proofs of a host that cause no delay.
const FREE: u32 = 3;
/// The delay after one more than [`FREE`] wrong proofs. Each further wrong proof doubles the delay.
const DELAY: Duration = Duration::from_millis(8);
/// The longest delay. It also delays honest clients of the same host.
const DELAY_MAX: Duration = Duration::from_millis(256);
/// After this time without a wrong proof, a host has no delay.
const FORGIVEN: Duration = Duration::from_secs(60);
/// Maximum number of hosts that are remembered.
const HOSTS_MAX: usize = 4096;

/// Counts wrong proofs.
#[derive(Default)]
pub(crate) struct Backoff(BTreeMap<Host, (u32, Instant)>);

impl Backoff {
    /// Returns the time for which a proof of `host` must wait.
    pub(crate) fn delay(&self, host: Host, now: Instant) -> Duration {
        match self.wrong(host, now).checked_sub(FREE + 1) {
            None => Duration::ZERO,
            Some(doublings) => DELAY.saturating_mul(1 << doublings.min(16)).min(DELAY_MAX),
        }
    }

    /// Records a wrong proof.
    pub(crate) fn note_wrong(&mut self, host: Host, now: Instant) {
        let wrong = self.wrong(host, now).saturating_add(1);
        if self.0.len() >= HOSTS_MAX && !self.0.contains_key(&host) {
            let oldest = self.0.iter().min_by_key(|(_, (_, last))| *last);
            let oldest = oldest.map(|(host, _)| *host);
            oldest.map(|oldest| self.0.remove(&oldest));
        }
        self.0.insert(host, (wrong, now));
    }

    fn wrong(&self, host: Host, now: Instant) -> u32 {
        let recent = |(_, last): &&(u32, Instant)| now.saturating_duration_since(*last) < FORGIVEN;
        self.0.get(&host).filter(recent).map_or(0, |(wrong, _)| *wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_proofs_delay_their_own_host_and_are_forgiven() {
        let mut backoff = Backoff::default();
        let now = Instant::now();
        let delays: Vec<_> = (0..12)
            .map(|_| {
                backoff.note_wrong(Host::V4(1), now);
                backoff.delay(Host::V4(1), now).as_millis()
            })
            .collect();
        assert_eq!(delays, [0, 0, 0, 8, 16, 32, 64, 128, 256, 256, 256, 256]);
        assert_eq!(backoff.delay(Host::V4(2), now), Duration::ZERO);
        let later = now + FORGIVEN;
        assert_eq!(backoff.delay(Host::V4(1), later), Duration::ZERO);
        backoff.note_wrong(Host::V4(1), later);
        assert_eq!(backoff.delay(Host::V4(1), later), Duration::ZERO);
        // Even very many hosts do not fill the memory.
        for host in 0..2 * HOSTS_MAX as u32 {
            backoff.note_wrong(Host::V4(host), later);
        }
        assert_eq!(backoff.0.len(), HOSTS_MAX);
    }
}
