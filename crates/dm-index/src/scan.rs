//! Results of a scan, in a buffer that can be reused.

/// Entries in key order. Keys and values are stored apart; all values have one length.
#[derive(Clone, Debug, Default)]
pub struct Scan<K> {
    keys: Vec<K>,
    values: Vec<u8>,
    value_bytes: usize,
}

impl<K: Copy> Scan<K> {
    /// Makes an empty result.
    pub const fn new() -> Self {
        Self {
            keys: Vec::new(),
            values: Vec::new(),
            value_bytes: 0,
        }
    }
    /// Clears the result for values of `value_bytes` bytes, and keeps the allocated memory.
    pub fn reset(&mut self, value_bytes: usize) {
        self.keys.clear();
        self.values.clear();
        self.value_bytes = value_bytes;
    }
    /// Appends an entry.
    ///
    /// # Panics
    /// Panics if the length of `value` is not the one given to [`Scan::reset`].
    #[inline]
    pub fn push(&mut self, key: K, value: &[u8]) {
        assert_eq!(value.len(), self.value_bytes, "a scan holds values of one length");
        self.keys.push(key);
        self.values.extend_from_slice(value);
    }
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.keys.len()
    }
    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
    /// Returns the keys.
    pub fn keys(&self) -> &[K] {
        &self.keys
    }
    /// Returns entry `i`.
    pub fn get(&self, i: usize) -> Option<(K, &[u8])> {
        let at = i * self.value_bytes;
        Some((*self.keys.get(i)?, self.values.get(at..at + self.value_bytes)?))
    }
    /// Returns all entries.
    pub fn iter(&self) -> impl Iterator<Item = (K, &[u8])> {
        (0..self.len()).filter_map(|i| self.get(i))
    }
}

#[cfg(test)]
mod tests {
    use super::Scan;

    #[test]
    fn keeps_entries_in_order_of_pushing_and_memory_over_reset() {
        let mut s = Scan::new();
        s.reset(2);
        s.push(1u64, b"ab");
        s.push(2, b"cd");
        assert_eq!(s.iter().collect::<Vec<_>>(), [(1, &b"ab"[..]), (2, &b"cd"[..])]);
        assert_eq!(s.get(2), None);
        s.reset(0);
        s.push(7, b"");
        assert_eq!((s.len(), s.get(0)), (1, Some((7, &b""[..]))));
    }
}
