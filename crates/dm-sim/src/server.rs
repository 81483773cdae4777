//! A pipelined resource. The caller gives the service time of each piece of work. Pieces are served in the order of the
//! calls, except that [`Server::booked`] reserves no idle time before a future start.

/// One resource. Times are virtual picoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Server {
    free: u64,
}

impl Server {
    /// Adds work that can start at `ready`, and returns its start. Work is served in the order of the calls, even if a
    /// later call has an earlier `ready`.
    #[inline]
    pub(crate) fn fifo(&mut self, ready: u64, service: u64) -> u64 {
        let start = self.free.max(ready);
        self.free = start + service;
        start
    }

    /// Adds work that would end at `end` if the server were idle, and returns its real end. `end` must not decrease.
    /// Work that would begin before time 0 begins at time 0.
    #[inline]
    pub(crate) fn through(&mut self, end: u64, service: u64) -> u64 {
        self.free = (self.free + service).max(end);
        self.free
    }

    /// Adds work that is submitted at `now` and can start at `ready >= now`. Returns its end.
    ///
    /// A reservation of a future start (`free = max(free, ready) + service`) would block work that arrives before that
    /// start. So only the work that was *submitted* before and is not done at `now` delays this work. Idle time before
    /// a future start is not reserved.
    #[inline]
    pub(crate) fn booked(&mut self, now: u64, ready: u64, service: u64) -> u64 {
        let turn = self.free.max(now);
        self.free = turn + service;
        ready.max(turn) + service
    }

    /// Returns the end of the work accepted so far.
    #[inline]
    pub(crate) fn free_at(&self) -> u64 {
        self.free
    }
}

#[cfg(test)]
mod tests {
    use super::Server;

    #[test]
    fn a_future_start_does_not_block_earlier_work() {
        let mut s = Server::default();
        assert_eq!(s.booked(0, 1000, 10), 1010);
        assert_eq!(
            s.booked(0, 5, 10),
            20,
            "waits for the backlog of 10, not until 1010"
        );
    }

    #[test]
    fn sustained_load_is_bounded_by_the_service_time() {
        let mut s = Server::default();
        let last = (0..1000).map(|i| s.booked(i, i + 500, 10)).max();
        assert_eq!(
            last,
            Some(10_000),
            "1000 pieces of 10 each, whatever their starts"
        );
    }
}
