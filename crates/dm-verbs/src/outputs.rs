//! Results of a chain as types: each request that returns a value appends a marker type to a tuple.

use core::marker::PhantomData;
use core::task::{Context, Poll};

use crate::{Outcome, Slot, VerbError, Verbs};

/// Marker of the old value of an atomic, or of a word READ. The value is a `u64`.
#[derive(Debug)]
pub enum Old {}
/// Marker of the bytes of a READ. The value is the world's lease.
#[derive(Debug)]
pub enum Bytes {}
/// Marker of results whose number is known only at run time. See [`crate::Chain::many`].
#[derive(Debug)]
pub enum Many {}

/// A marker: the type of one result.
pub trait Marker<L> {
    /// The type of the value.
    type Value;
    /// Takes the value out of the outcome.
    fn unwrap(o: Outcome<L>) -> Self::Value;
}

impl<L> Marker<L> for Old {
    type Value = u64;
    #[inline(always)]
    fn unwrap(o: Outcome<L>) -> u64 {
        match o {
            Outcome::Old(v) => v,
            _ => unreachable!("the world answered an atomic with something that is no word"),
        }
    }
}

impl<L> Marker<L> for Bytes {
    type Value = L;
    #[inline(always)]
    fn unwrap(o: Outcome<L>) -> L {
        match o {
            Outcome::Lease(l) => l,
            _ => unreachable!("the world answered a READ without bytes"),
        }
    }
}

/// The results of a chain. The value is `()` for none, the bare value for one, a tuple for two to six, and
/// [`Outcomes`] for [`Many`].
pub trait Outputs<'v, V: Verbs + 'v>: Sized {
    /// The type of the value.
    type Out;
    /// Collects the results of a completed slot. Closes the slot, unless the results need it.
    fn collect(v: &'v V, slot: Slot) -> Self::Out;
    /// Polls a rung slot. If the result is ready, this has collected the outputs, or has closed the slot after an
    /// error.
    // Inlined, because the caller takes the result apart at once, so that it is never built in memory.
    #[inline(always)]
    fn poll(v: &'v V, slot: &Slot, cx: &mut Context<'_>) -> Poll<Result<Self::Out, VerbError>> {
        match core::task::ready!(v.poll_chain(slot, cx)) {
            Ok(()) => Poll::Ready(Ok(Self::collect(v, slot.same()))),
            Err(e) => {
                v.close(slot.same());
                Poll::Ready(Err(e))
            }
        }
    }
}

/// The results `Self` followed by one more result `M`.
#[diagnostic::on_unimplemented(message = "a chain gives at most six typed results; use `.many()` for more")]
pub trait Then<M> {
    /// The longer tuple.
    type Next;
}

impl<M> Then<M> for Many {
    type Next = Many;
}

impl<'v, V: Verbs + 'v> Outputs<'v, V> for () {
    type Out = ();
    #[inline]
    fn collect(v: &'v V, slot: Slot) {
        v.close(slot);
    }
}

impl<'v, V: Verbs + 'v, A: Marker<V::Lease>> Outputs<'v, V> for (A,) {
    type Out = A::Value;
    #[inline]
    fn collect(v: &'v V, slot: Slot) -> A::Value {
        let outcome = v.take(&slot, 0);
        v.close(slot);
        A::unwrap(outcome)
    }
    // Inlined, so that a wide result is never built in memory.
    #[inline(always)]
    fn poll(v: &'v V, slot: &Slot, cx: &mut Context<'_>) -> Poll<Result<A::Value, VerbError>> {
        match core::task::ready!(v.poll_single(slot, cx)) {
            Ok(outcome) => Poll::Ready(Ok(A::unwrap(outcome))),
            Err(e) => Poll::Ready(Err(e)),
        }
    }
}

macro_rules! outputs {
    ($($name:ident $i:literal),+) => {
        impl<'v, V: Verbs + 'v, $($name: Marker<V::Lease>),+> Outputs<'v, V> for ($($name,)+) {
            type Out = ($($name::Value,)+);
            #[inline(always)]
            fn collect(v: &'v V, slot: Slot) -> Self::Out {
                let out = ($($name::unwrap(v.take(&slot, $i)),)+);
                v.close(slot);
                out
            }
        }
    };
}
outputs!(A 0, B 1);
outputs!(A 0, B 1, C 2);
outputs!(A 0, B 1, C 2, D 3);
outputs!(A 0, B 1, C 2, D 3, E 4);
outputs!(A 0, B 1, C 2, D 3, E 4, F 5);

macro_rules! then {
    ($($name:ident),*) => {
        impl<$($name,)* M> Then<M> for ($($name,)*) {
            type Next = ($($name,)* M,);
        }
    };
}
then!();
then!(A);
then!(A, B);
then!(A, B, C);
then!(A, B, C, D);
then!(A, B, C, D, E);

/// Results of a completed chain, taken by number. Dropping it recycles the results that were not taken.
///
/// ```
/// use dm_verbs::{Outcomes, RemotePtr, VerbError, Verbs};
///
/// /// The words at `at`, all on one memory node, in one round trip.
/// async fn words<V: Verbs>(v: &V, at: &[RemotePtr]) -> Result<Vec<u64>, VerbError> {
///     let Some(first) = at.first() else { return Ok(Vec::new()) };
///     let chain = at.iter().fold(v.chain(first.node()).many(), |chain, at| chain.word(*at));
///     let words: Outcomes<'_, V> = chain.await?;
///     Ok((0..at.len()).map(|i| words.old(i as u16)).collect())
/// }
/// ```
#[derive(Debug)]
pub struct Outcomes<'v, V: Verbs> {
    v: &'v V,
    slot: Option<Slot>,
    _not_shared: PhantomData<core::cell::Cell<()>>,
}

impl<V: Verbs> Outcomes<'_, V> {
    /// Returns the `i`-th result, an old value or a word. Take each result only once.
    pub fn old(&self, i: u16) -> u64 {
        Old::unwrap(self.take(i))
    }
    /// Returns the `i`-th result, the bytes of a READ. Take each result only once.
    pub fn lease(&self, i: u16) -> V::Lease {
        Bytes::unwrap(self.take(i))
    }
    fn take(&self, i: u16) -> Outcome<V::Lease> {
        match &self.slot {
            Some(slot) => self.v.take(slot, i),
            None => Outcome::None,
        }
    }
}

impl<V: Verbs> Drop for Outcomes<'_, V> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.v.close(slot);
        }
    }
}

impl<'v, V: Verbs + 'v> Outputs<'v, V> for Many {
    type Out = Outcomes<'v, V>;
    fn collect(v: &'v V, slot: Slot) -> Self::Out {
        Outcomes {
            v,
            slot: Some(slot),
            _not_shared: PhantomData,
        }
    }
}
