//! Slices as arrays of a fixed length. The standard library has this from Rust 1.88 on, and the `rust-version` of this
//! crate is older.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Splits a slice into arrays. The compiler removes the checks, because no cast here can fail.
pub(crate) trait Chunks<T> {
    /// Returns as many whole arrays as fit, and the elements behind them.
    fn in_chunks<const N: usize>(&self) -> (&[[T; N]], &[T]);

    /// Returns as many whole arrays as fit.
    fn in_chunks_mut<const N: usize>(&mut self) -> &mut [[T; N]];
}

impl<T: FromBytes + IntoBytes + Immutable> Chunks<T> for [T] {
    #[inline(always)]
    fn in_chunks<const N: usize>(&self) -> (&[[T; N]], &[T]) {
        let (whole, rest) = self.split_at(self.len() / N * N);
        let bytes = whole.as_bytes();
        // Arrays of `T` have `T`'s alignment, and `whole` is as long as its arrays, so this is always `Ok`.
        let arrays = <[[T; N]]>::ref_from_bytes_with_elems(bytes, self.len() / N);
        (arrays.unwrap_or_default(), rest)
    }

    #[inline(always)]
    fn in_chunks_mut<const N: usize>(&mut self) -> &mut [[T; N]] {
        let count = self.len() / N;
        let bytes = self[..count * N].as_mut_bytes();
        // Always `Ok`, for the same reason.
        <[[T; N]]>::mut_from_bytes_with_elems(bytes, count).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::Chunks;

    #[test]
    fn whole_arrays_are_lent_and_the_rest_is_told() {
        let mut bytes = [1u8, 2, 3, 4, 5, 6, 7];
        assert_eq!(bytes.in_chunks::<3>(), (&[[1, 2, 3], [4, 5, 6]][..], &[7][..]));
        bytes.in_chunks_mut::<2>()[2] = [9, 9];
        assert_eq!(bytes, [1, 2, 3, 4, 9, 9, 7]);
        assert_eq!(bytes[..2].in_chunks::<3>(), (&[][..], &[1, 2][..]));
        let words = [[1u8; 4], [2; 4], [3; 4]];
        assert_eq!(words.in_chunks::<2>().0, [[[1; 4], [2; 4]]]);
    }
}
