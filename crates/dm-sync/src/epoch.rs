//! Who is running since when: epochs among the threads of one compute node.
//!
//! Each client has a [`Seat`]. While one of its operations runs, the seat is pinned to the epoch in which that
//! operation began; [`Epochs::oldest`] is the oldest of them all. To begin and to end takes a few instructions and no
//! allocation. The epochs themselves mean nothing here: a compute node learns them from remote memory
//! (the protocol above).
//!
//! ```
//! use dm_sync::epoch::Epochs;
//! let epochs = dm_sync::Arc::new(Epochs::new());
//! let seat = Epochs::seat(&epochs);
//! seat.enroll(epochs.generation(), 8);
//! epochs.advance(5);
//! let running = seat.enter().expect("enrolled");
//! epochs.advance(6);
//! assert_eq!(epochs.oldest(), Some(5));
//! drop(running);
//! assert_eq!(epochs.oldest(), None);
//! ```

use core::cell::Cell;
use core::fmt;

use crate::atomic::{AtomicU64, Ordering, fence};
use crate::thread::unwinds_under_checker;
use crate::{Arc, CachePadded, Fingerprint, Mutex, count_section, fingerprint_of, fingerprint_unordered};

/// The view: a generation above the epoch.
const EPOCH_BITS: u32 = 48;
const EPOCH_MASK: u64 = (1 << EPOCH_BITS) - 1;
/// What an idle seat holds; a pinned one holds its epoch + 1.
const IDLE: u64 = 0;

type Pin = Arc<CachePadded<AtomicU64>>;

/// Epochs as one compute node sees them, and the seats of its clients.
///
/// One thread at a time may call [`Epochs::advance`] and [`Epochs::close`]: the caller sees to it.
#[derive(Debug)]
pub struct Epochs {
    view: AtomicU64,
    seats: Mutex<Vec<Pin>>,
    #[cfg(dm_loom)]
    unordered: bool,
}

impl Default for Epochs {
    fn default() -> Self {
        Self::new()
    }
}

impl Epochs {
    /// At epoch 0 of generation 0, without seats.
    pub fn new() -> Self {
        Self {
            view: AtomicU64::new(0),
            seats: Mutex::new(Vec::new()),
            #[cfg(dm_loom)]
            unordered: false,
        }
    }

    /// A mutant for models: nothing orders a pin and the look at the view behind it, nor a view and the look at the pins.
    #[cfg(dm_loom)]
    pub fn unordered() -> Self {
        Self {
            unordered: true,
            ..Self::new()
        }
    }

    /// Stands between what one side stores and what it loads of the other: a seat its pin and the view, `oldest` the view
    /// and the pins. One of the two sees the other's store.
    #[inline]
    fn order(&self) {
        #[cfg(dm_loom)]
        if self.unordered {
            return;
        }
        // SeqCst: a store before a load of another word, on both sides; nothing weaker orders that.
        fence(Ordering::SeqCst);
    }

    /// A seat for one client. It lets nobody in before [`Seat::enroll`].
    pub fn seat(this: &Arc<Self>) -> Seat {
        let pin: Pin = Arc::new(CachePadded::new(AtomicU64::new(IDLE)));
        this.seats.with(|seats| seats.push(Arc::clone(&pin)));
        Seat {
            epochs: Arc::clone(this),
            pin,
            generation: Cell::new(u64::MAX),
            depth: Cell::new(0),
            forgotten: Cell::new(0),
            left: Cell::new(0),
        }
    }

    /// The epoch in which an operation would begin now.
    #[inline]
    pub fn epoch(&self) -> u64 {
        count_section();
        // Acquire: pairs with Release in `advance`; whoever acts on an epoch sees what its announcer did before.
        self.view.load(Ordering::Acquire) & EPOCH_MASK
    }

    /// Grows with every [`Epochs::close`]; seats of another generation must enroll again.
    #[inline]
    pub fn generation(&self) -> u64 {
        count_section();
        // Acquire: as in `epoch`.
        self.view.load(Ordering::Acquire) >> EPOCH_BITS
    }

    /// Operations begin in `epoch` from now on, if that is later than before.
    pub fn advance(&self, epoch: u64) {
        // Relaxed: only the caller writes the view.
        let view = self.view.load(Ordering::Relaxed);
        if epoch & EPOCH_MASK > view & EPOCH_MASK {
            // Release: as `epoch` says.
            self.view
                .store(view & !EPOCH_MASK | epoch & EPOCH_MASK, Ordering::Release);
        }
    }

    /// The earliest epoch that a running operation is pinned to; `None` if none runs. An operation that this misses
    /// begins, with all it does, after this: it sees what the caller stored before.
    pub fn oldest(&self) -> Option<u64> {
        // Either the load below sees the pin, or the seat sees the view that the caller stored before, and pins anew.
        self.order();
        self.seats.with(|seats| {
            // Acquire: pairs with Release in `Running::drop`; what an ended operation did is over.
            let pins = seats.iter().map(|pin| pin.load(Ordering::Acquire));
            pins.filter(|pin| *pin != IDLE).min().map(|pin| pin - 1)
        })
    }

    /// Lets nobody in any more, if nobody is in: the generation grows, every seat must enroll again. `false`, and
    /// nothing has changed, if an operation runs.
    pub fn close(&self) -> bool {
        // Relaxed: only the caller writes the view.
        let view = self.view.load(Ordering::Relaxed);
        let next = view.wrapping_add(1 << EPOCH_BITS);
        // Release: as in `advance`.
        self.view.store(next, Ordering::Release);
        if self.oldest().is_some() {
            // Release: as in `advance`.
            self.view.store(view, Ordering::Release);
            return false;
        }
        true
    }

    /// Makes every seat enroll again, whoever is in.
    pub fn revoke(&self) {
        // Relaxed: only the caller writes the view.
        let view = self.view.load(Ordering::Relaxed);
        // Release: as in `advance`.
        self.view
            .store(view.wrapping_add(1 << EPOCH_BITS), Ordering::Release);
    }

    /// Seats that there are.
    pub fn seats(&self) -> usize {
        self.seats.with(|seats| seats.len())
    }

    /// Bytes that seats and their list have allocated.
    pub fn heap_bytes(&self) -> usize {
        self.seats.with(|seats| {
            seats.capacity() * size_of::<Pin>() + seats.len() * size_of::<CachePadded<AtomicU64>>()
        })
    }
}

impl Fingerprint for Epochs {
    fn fingerprint(&self) -> u64 {
        let pins = self.seats.peek(|seats| {
            // Relaxed: looked at between steps.
            fingerprint_unordered(seats.iter().map(|pin| pin.load(Ordering::Relaxed)))
        });
        // Relaxed: as above.
        fingerprint_of(&(self.view.load(Ordering::Relaxed), pins))
    }
}

/// A client's place among the running operations of its compute node. Dropped, it is given up.
///
/// ```
/// use dm_sync::epoch::{Epochs, Running, Seat};
///
/// let epochs = dm_sync::Arc::new(Epochs::new());
/// let seat: Seat = Epochs::seat(&epochs);
/// assert!(seat.enter().is_none(), "nobody enrolled it");
/// seat.enroll(epochs.generation(), 1);
/// let running: Running<'_> = seat.enter().expect("enrolled");
/// assert!(seat.is_running() && seat.is_due(), "it was the last that the enrolment allows");
/// drop(running);
/// assert!(!seat.is_running() && seat.enter().is_none());
/// ```
pub struct Seat {
    epochs: Arc<Epochs>,
    pin: Pin,
    generation: Cell<u64>,
    /// Operations of this client that run inside of each other.
    depth: Cell<u32>,
    /// Those of them that are over, but for what they may have left in flight.
    forgotten: Cell<u32>,
    /// Operations that may begin before the client has to attend to its enrolment.
    left: Cell<u32>,
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat")
            .field("running", &self.depth.get())
            .finish_non_exhaustive()
    }
}

impl Seat {
    /// Begins an operation, which ends when the answer is dropped. `None` if the client has to enroll first
    /// ([`Seat::enroll`]): it never has, the compute node has left meanwhile, or its operations are used up.
    #[inline]
    pub fn enter(&self) -> Option<Running<'_>> {
        let depth = self.depth.get();
        if depth == 0 {
            let left = self.left.get().checked_sub(1)?;
            count_section();
            // Relaxed: looked at again behind the fence.
            let mut view = self.epochs.view.load(Ordering::Relaxed);
            loop {
                if view >> EPOCH_BITS != self.generation.get() {
                    // Release: as in `Running::drop`.
                    self.pin.store(IDLE, Ordering::Release);
                    return None;
                }
                // Relaxed: the fence orders it.
                self.pin.store((view & EPOCH_MASK) + 1, Ordering::Relaxed);
                // As `Epochs::oldest` says.
                self.epochs.order();
                // Relaxed: the fence orders it.
                let now = self.epochs.view.load(Ordering::Relaxed);
                if now == view {
                    break;
                }
                view = now;
            }
            self.left.set(left);
        }
        self.depth.set(depth + 1);
        Some(Running { seat: self })
    }

    /// Whether [`Seat::enter`] asks for an enrolment at the next operation, or would if none ran.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.left.get() == 0
    }

    /// Lets the client begin `operations` operations as long as the generation is `generation`.
    pub fn enroll(&self, generation: u64, operations: u32) {
        self.generation.set(generation);
        self.left.set(operations);
    }

    /// Whether it was enrolled in this generation.
    pub fn is_enrolled(&self, generation: u64) -> bool {
        self.generation.get() == generation
    }

    /// Ends operations that were [forgotten](Running::forget), all of whose requests have landed. Nothing is ended while an
    /// operation runs.
    pub fn end_forgotten(&self) {
        if self.is_running() {
            return;
        }
        self.depth.set(0);
        self.forgotten.set(0);
        // Release: as in `Running::drop`.
        self.pin.store(IDLE, Ordering::Release);
    }

    /// Whether an operation of this client runs; forgotten ones do not.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.depth.get() > self.forgotten.get()
    }

    /// A number that no other seat of these epochs has as long as this one is there.
    pub fn id(&self) -> usize {
        Arc::as_ptr(&self.pin).addr()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if !unwinds_under_checker() {
            self.epochs
                .seats
                .with(|seats| seats.retain(|pin| !Arc::ptr_eq(pin, &self.pin)));
        }
    }
}

/// An operation that runs; it ends when this is dropped.
#[derive(Debug)]
#[must_use = "the operation ends when this is dropped"]
pub struct Running<'s> {
    seat: &'s Seat,
}

impl Running<'_> {
    /// It is over, but what it posted may not have landed: its seat stays as it is until [`Seat::end_forgotten`].
    pub fn forget(self) {
        self.seat.forgotten.set(self.seat.forgotten.get() + 1);
        core::mem::forget(self);
    }
}

impl Drop for Running<'_> {
    #[inline]
    fn drop(&mut self) {
        let depth = self.seat.depth.get() - 1;
        self.seat.depth.set(depth);
        if depth == 0 && !unwinds_under_checker() {
            count_section();
            // Release: pairs with Acquire in `Epochs::oldest`; the operation is over before the seat is idle.
            self.seat.pin.store(IDLE, Ordering::Release);
        }
    }
}

#[cfg(all(test, not(any(dm_loom, dm_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn what_was_forgotten_ends_when_told_and_never_beneath_an_operation() {
        let epochs = Arc::new(Epochs::new());
        let seat = Epochs::seat(&epochs);
        seat.enroll(0, 8);
        let outer = seat.enter().expect("enrolled");
        seat.enter().expect("within the first").forget();
        assert!(seat.is_running());
        seat.end_forgotten();
        let inner = seat.enter().expect("within the first");
        drop(inner);
        assert!(seat.is_running(), "the first one still runs");
        drop(outer);
        assert!(!seat.is_running());
        assert_ne!(
            seat.pin.load(Ordering::Relaxed),
            IDLE,
            "something may be in flight"
        );
        seat.end_forgotten();
        assert_eq!(seat.pin.load(Ordering::Relaxed), IDLE);
        drop(seat.enter().expect("enrolled"));
        assert_eq!(seat.pin.load(Ordering::Relaxed), IDLE);
    }

    #[test]
    fn operations_inside_of_each_other_count_as_the_first() {
        let epochs = Arc::new(Epochs::new());
        let seat = Epochs::seat(&epochs);
        assert!(seat.enter().is_none(), "not enrolled");
        seat.enroll(0, 3);
        epochs.advance(7);
        let outer = seat.enter().expect("enrolled");
        epochs.advance(9);
        let inner = seat.enter().expect("enrolled");
        assert_eq!(epochs.oldest(), Some(7));
        drop(outer);
        assert_eq!(epochs.oldest(), Some(7), "one still runs");
        drop(inner);
        drop(seat.enter().expect("two are left"));
        drop(seat.enter().expect("one is left"));
        assert!(seat.is_due() && seat.enter().is_none());
        assert_eq!((epochs.oldest(), epochs.epoch()), (None, 9));
        epochs.advance(8);
        assert_eq!(epochs.epoch(), 9, "epochs never go back");
    }

    #[test]
    fn closing_waits_for_nobody_and_asks_all_to_enroll_again() {
        let epochs = Arc::new(Epochs::new());
        let (a, b) = (Epochs::seat(&epochs), Epochs::seat(&epochs));
        a.enroll(0, 9);
        b.enroll(0, 9);
        let running = a.enter().expect("enrolled");
        assert!(!epochs.close());
        drop(b.enter().expect("still open"));
        drop(running);
        assert!(epochs.close());
        assert!(a.enter().is_none() && b.enter().is_none());
        assert_eq!((epochs.generation(), epochs.seats()), (1, 2));
        drop(b);
        assert_eq!(epochs.seats(), 1);
    }
}
