//! A pipelined resource: first come, first served, with a fixed service time per piece of work.

/// One resource. Times are virtual picoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Server {
    free: u64,
}

impl Server {
    /// Work that can start at `ready`, which is not before any earlier caller's: plain first come, first served.
    /// Answers when it starts.
    #[inline]
    pub(crate) fn fifo(&mut self, ready: u64, service: u64) -> u64 {
        let start = self.free.max(ready);
        self.free = start + service;
        start
    }

    /// Work that would end at `end`, which is not before any earlier caller's: as [`Self::fifo`], but answers when it
    /// ends. What began before time 0 began then.
    #[inline]
    pub(crate) fn through(&mut self, end: u64, service: u64) -> u64 {
        self.free = (self.free + service).max(end);
        self.free
    }

    /// Work decided on at `now` that can start at `ready >= now`. Answers when it ends.
    ///
    /// A server reserved for a future start (`free = max(free, ready) + service`) would block the work that comes
    /// before that start. So the queue is what was *decided* before: its backlog at `now` is kept, not its gaps.
    #[inline]
    pub(crate) fn booked(&mut self, now: u64, ready: u64, service: u64) -> u64 {
        let turn = self.free.max(now);
        self.free = turn + service;
        ready.max(turn) + service
    }

    /// When the work accepted so far ends.
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
