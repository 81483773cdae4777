//! Masked compare-and-swap, and its emulation by plain CAS.

use crate::{Exhausted, Place, VerbError, Verbs, Why};

/// Operands of a masked CAS: if `(old & compare_mask) == (compare & compare_mask)`, the word becomes
/// `(old & !swap_mask) | (swap & swap_mask)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MaskedCas {
    /// Expected bits.
    pub compare: u64,
    /// Mask of the bits that are compared.
    pub compare_mask: u64,
    /// New bits.
    pub swap: u64,
    /// Mask of the bits that are replaced.
    pub swap_mask: u64,
}

impl MaskedCas {
    /// Returns whether `old` passes the comparison.
    #[inline]
    pub const fn matches(&self, old: u64) -> bool {
        (old ^ self.compare) & self.compare_mask == 0
    }
    /// Returns the new word after the comparison with `old` succeeded.
    #[inline]
    pub const fn apply(&self, old: u64) -> u64 {
        old & !self.swap_mask | self.swap & self.swap_mask
    }
}

/// The errors of a stand-alone masked CAS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MaskedCasError {
    /// A verb failed.
    Verb(VerbError),
    /// The CAS was emulated, and in every attempt the word had another value than the plain CAS expected.
    Exhausted(Exhausted),
}

impl From<VerbError> for MaskedCasError {
    fn from(e: VerbError) -> Self {
        Self::Verb(e)
    }
}
impl core::fmt::Display for MaskedCasError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Verb(e) => e.fmt(f),
            Self::Exhausted(e) => e.fmt(f),
        }
    }
}
impl core::error::Error for MaskedCasError {}

/// Carries out a masked CAS at `at` and returns the old value. It takes one verb if the hardware has masked CAS.
/// Otherwise it posts plain CASes, until one succeeds or the word does not pass the comparison; each expects the value
/// that the one before it returned. `guess` is the value of the whole word that the first plain CAS expects. If `guess`
/// does not pass the comparison, the word is read first. The meter counts the verbs that were posted.
///
/// # Errors
/// Returns [`MaskedCasError`] if a verb fails, or if the emulation has lost `budget` races.
///
/// ```
/// use dm_verbs::{MaskedCas, MaskedCasError, RemotePtr, Verbs, masked_cas};
///
/// /// Sets the lowest bit if it is not set, whatever the other bits are.
/// async fn take<V: Verbs>(v: &V, at: RemotePtr) -> Result<bool, MaskedCasError> {
///     let bit = MaskedCas { compare: 0, compare_mask: 1, swap: 1, swap_mask: 1 };
///     let old = masked_cas(v, at, bit, 0, 100).await?;
///     Ok(old & 1 == 0)
/// }
/// ```
pub async fn masked_cas<V: Verbs>(
    v: &V,
    at: impl Into<Place>,
    m: MaskedCas,
    guess: u64,
    budget: u32,
) -> Result<u64, MaskedCasError> {
    let at = at.into();
    if v.caps(at.node()).masked_atomics {
        return Ok(v.chain(at.node()).masked_cas(at, m).post().await?);
    }
    // A word that fails the comparison must not change. If `guess` fails the comparison, a plain CAS that expects
    // `guess` is useless, so this reads the word instead.
    let mut expect = if m.matches(guess) {
        guess
    } else {
        v.word(at).await?
    };
    let mut retry = v.retry(budget);
    loop {
        if !m.matches(expect) {
            return Ok(expect);
        }
        let old = v.cas(at, expect, m.apply(expect)).await?;
        if old == expect {
            return Ok(old);
        }
        expect = old;
        retry
            .again(at, Why::Raced)
            .await
            .map_err(MaskedCasError::Exhausted)?;
    }
}

#[cfg(test)]
mod tests {
    use super::MaskedCas;

    #[test]
    fn compares_and_swaps_only_masked_bits() {
        let m = MaskedCas {
            compare: 0,
            compare_mask: 1,
            swap: 0xF1,
            swap_mask: 0xFF,
        };
        assert!(m.matches(0xAB00) && !m.matches(0xAB01));
        assert_eq!(m.apply(0xAB00), 0xABF1);
    }
}
