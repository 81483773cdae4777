//! Epochs among the threads of one compute node. They record the running operations, and the epochs in which
//! these began.
//!
//! Each client has a [`Seat`]. While one of its operations runs, the seat is pinned to the epoch in which
//! that operation began; [`Epochs::oldest`] is the oldest of these epochs. Beginning and ending an operation
//! takes a few instructions and no allocation. The numbers of the epochs come from remote memory, by the
//! protocol of the allocator. Their meaning does not matter in this module.
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

/// The number of low bits of the view that hold the epoch. The generation is in the high bits.
const EPOCH_BITS: u32 = 48;
const EPOCH_MASK: u64 = (1 << EPOCH_BITS) - 1;
/// The value of an idle seat; a pinned one holds its epoch + 1.
const IDLE: u64 = 0;

type Pin = Arc<CachePadded<AtomicU64>>;

/// The current epoch of one compute node, and the seats of its clients.
///
/// Only one thread at a time may call [`Epochs::advance`], [`Epochs::close`] or [`Epochs::revoke`]. The caller must
/// ensure this.
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
    /// Starts at epoch 0 of generation 0, without seats.
    pub fn new() -> Self {
        Self {
            view: AtomicU64::new(0),
            seats: Mutex::new(Vec::new()),
            #[cfg(dm_loom)]
            unordered: false,
        }
    }

    /// Makes a mutant for models. It has no fence between a store of a pin and the load of the view, or between a store
    /// of the view and the loads of the pins.
    #[cfg(dm_loom)]
    pub fn unordered() -> Self {
        Self {
            unordered: true,
            ..Self::new()
        }
    }

    /// Orders a thread's store before its load of the other side's word. A seat stores its pin and loads the
    /// view; `oldest` is called after the view was stored, and loads the pins. At least one of the two sides
    /// sees the other's store.
    #[inline]
    fn order(&self) {
        #[cfg(dm_loom)]
        if self.unordered {
            return;
        }
        // SeqCst: both sides store one word and then load another word. No weaker ordering suffices for this.
        fence(Ordering::SeqCst);
    }

    /// Makes a seat for one client. No operation can begin on it before [`Seat::enroll`].
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

    /// Returns the epoch in which an operation would begin now.
    #[inline]
    pub fn epoch(&self) -> u64 {
        count_section();
        // Acquire: pairs with Release in `advance`; a thread that uses an epoch sees everything that the thread which
        // set it did before.
        self.view.load(Ordering::Acquire) & EPOCH_MASK
    }

    /// Returns the generation. It grows with every [`Epochs::revoke`], and with every [`Epochs::close`] that returns
    /// `true`; seats of another generation must enroll again.
    #[inline]
    pub fn generation(&self) -> u64 {
        count_section();
        // Acquire: as in `epoch`.
        self.view.load(Ordering::Acquire) >> EPOCH_BITS
    }

    /// Lets operations begin in `epoch` from now on, if it is later than the current one.
    pub fn advance(&self, epoch: u64) {
        // Relaxed: only the caller writes the view.
        let view = self.view.load(Ordering::Relaxed);
        if epoch & EPOCH_MASK > view & EPOCH_MASK {
            // Release: as `epoch` says.
            self.view
                .store(view & !EPOCH_MASK | epoch & EPOCH_MASK, Ordering::Release);
        }
    }

    /// Returns the earliest epoch to which a running or [forgotten](Running::forget) operation is pinned, or `None` if
    /// there is none. If this misses an operation, that operation begins after this call has begun, and sees
    /// everything that the caller stored before.
    pub fn oldest(&self) -> Option<u64> {
        // Either the load below sees the pin, or the seat sees the view that the caller stored before, and pins again.
        self.order();
        self.seats.with(|seats| {
            // Acquire: pairs with Release in `Running::drop`, so that everything that an ended operation did
            // has happened before.
            let pins = seats.iter().map(|pin| pin.load(Ordering::Acquire));
            pins.filter(|pin| *pin != IDLE).min().map(|pin| pin - 1)
        })
    }

    /// Prevents further operations if none is running or [forgotten](Running::forget): the generation grows, every
    /// seat must enroll again, and this returns `true`. Otherwise restores the generation and returns `false`. In the
    /// meantime, [`Seat::enter`] may return `None`.
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

    /// Makes every seat enroll again, even if operations are running.
    pub fn revoke(&self) {
        // Relaxed: only the caller writes the view.
        let view = self.view.load(Ordering::Relaxed);
        // Release: as in `advance`.
        self.view
            .store(view.wrapping_add(1 << EPOCH_BITS), Ordering::Release);
    }

    /// Returns the number of seats.
    pub fn seats(&self) -> usize {
        self.seats.with(|seats| seats.len())
    }

    /// Returns the number of bytes that the seats and their list have allocated.
    pub fn heap_bytes(&self) -> usize {
        self.seats.with(|seats| {
            seats.capacity() * size_of::<Pin>() + seats.len() * size_of::<CachePadded<AtomicU64>>()
        })
    }
}

impl Fingerprint for Epochs {
    fn fingerprint(&self) -> u64 {
        let pins = self.seats.peek(|seats| {
            // Relaxed: the explorer reads this between steps.
            fingerprint_unordered(seats.iter().map(|pin| pin.load(Ordering::Relaxed)))
        });
        // Relaxed: as above.
        fingerprint_of(&(self.view.load(Ordering::Relaxed), pins))
    }
}

/// A client's record of the epoch in which its running operation began. Dropping the seat removes the record.
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
    /// The nested operations of this client that are running or forgotten.
    depth: Cell<u32>,
    /// The nested operations that have ended but may have left requests in flight.
    forgotten: Cell<u32>,
    /// Operations that may begin before the client must enroll again.
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
    /// Begins an operation, which ends when the result is dropped. Returns `None` if the client must enroll first
    /// ([`Seat::enroll`]): because it has never enrolled, because the generation has changed, or because the client has
    /// begun as many operations as the enrolment allows. While an operation of this client runs, another one always
    /// begins.
    #[inline]
    pub fn enter(&self) -> Option<Running<'_>> {
        let depth = self.depth.get();
        if !self.is_running() {
            let left = self.left.get().checked_sub(1)?;
            count_section();
            // Relaxed: the view is loaded again after the fence.
            let mut view = self.epochs.view.load(Ordering::Relaxed);
            loop {
                if view >> EPOCH_BITS != self.generation.get() {
                    if depth == 0 {
                        // Release: as in `Running::drop`.
                        self.pin.store(IDLE, Ordering::Release);
                    }
                    return None;
                }
                if depth > 0 {
                    // The seat is still pinned by a forgotten operation, so its epoch is not later than the
                    // current one.
                    break;
                }
                // Relaxed: the fence orders it.
                self.pin.store((view & EPOCH_MASK) + 1, Ordering::Relaxed);
                // `Epochs::oldest` explains this order.
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

    /// Returns whether the enrolment allows no further operation. Then [`Seat::enter`] requires a new enrolment at the
    /// next operation that begins while no other operation runs.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.left.get() == 0
    }

    /// Lets the client begin `operations` operations while the generation is `generation`. An operation that begins
    /// while another one of the client runs does not count.
    pub fn enroll(&self, generation: u64, operations: u32) {
        self.generation.set(generation);
        self.left.set(operations);
    }

    /// Returns whether the seat was enrolled in this generation.
    pub fn is_enrolled(&self, generation: u64) -> bool {
        self.generation.get() == generation
    }

    /// Ends operations that were [forgotten](Running::forget). Call this after all of their requests have
    /// landed. It does nothing while an operation runs.
    pub fn end_forgotten(&self) {
        if self.is_running() {
            return;
        }
        self.depth.set(0);
        self.forgotten.set(0);
        // Release: as in `Running::drop`.
        self.pin.store(IDLE, Ordering::Release);
    }

    /// Returns whether an operation of this client runs; forgotten ones do not count.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.depth.get() > self.forgotten.get()
    }

    /// Returns whether there are [forgotten](Running::forget) operations that [`Seat::end_forgotten`] has not ended.
    #[inline]
    pub fn has_forgotten(&self) -> bool {
        self.forgotten.get() > 0
    }

    /// Returns a number that no other seat of these epochs has while this seat exists.
    pub fn id(&self) -> usize {
        Arc::as_ptr(&self.pin).addr()
    }
}

impl Fingerprint for Seat {
    /// Returns the fingerprint of the seat, without the state of its [`Epochs`].
    fn fingerprint(&self) -> u64 {
        // Relaxed: the explorer reads this between steps.
        let pin = self.pin.load(Ordering::Relaxed);
        let operations = [self.depth.get(), self.forgotten.get(), self.left.get()];
        fingerprint_of(&(pin, self.generation.get(), operations))
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

/// A running operation; it ends when this is dropped.
#[derive(Debug)]
#[must_use = "the operation ends when this is dropped"]
pub struct Running<'s> {
    seat: &'s Seat,
}

impl Running<'_> {
    /// Ends the operation although its requests might not have landed. The seat stays pinned until
    /// [`Seat::end_forgotten`].
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
    fn a_forgotten_operation_ends_on_request_but_not_inside_another_one() {
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
    fn an_operation_after_a_forgotten_one_keeps_its_pin_and_counts_for_the_enrolment() {
        let epochs = Arc::new(Epochs::new());
        let seat = Epochs::seat(&epochs);
        seat.enroll(0, 2);
        epochs.advance(3);
        seat.enter().expect("enrolled").forget();
        epochs.advance(5);
        assert!(seat.has_forgotten() && !seat.is_running());
        drop(seat.enter().expect("one is left"));
        assert_eq!(epochs.oldest(), Some(3), "the first one may still land");
        assert!(seat.enter().is_none(), "none is left");
        seat.enroll(0, 2);
        epochs.revoke();
        assert!(seat.enter().is_none(), "another generation");
        assert_eq!(epochs.oldest(), Some(3));
        seat.end_forgotten();
        assert!(!seat.has_forgotten());
        assert_eq!(epochs.oldest(), None);
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
