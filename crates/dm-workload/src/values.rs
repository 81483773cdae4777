//! The bytes of values, stamped with their writer.

use dm_history::{LOADER, Stamp, Wrong, check_value, stamp};

/// The values of one client. Each write gets the next sequence number.
///
/// ```
/// use dm_workload::Values;
/// let mut values = Values::of_client(3);
/// let mut value = [0; 100];
/// let written = values.fill(b"key", &mut value);
/// assert_eq!(Values::check(b"key", &value), Ok(written));
/// ```
#[derive(Clone, Debug)]
pub struct Values {
    client: u32,
    next: u32,
}

impl Values {
    /// Makes the values of client number `client`.
    ///
    /// # Panics
    /// Panics if `client` is not below [`LOADER`], the number that marks loaded data.
    #[must_use]
    pub fn of_client(client: u32) -> Self {
        assert!(client < LOADER, "clients are numbered below {LOADER}");
        Self { client, next: 0 }
    }

    /// Fills `value` (8 bytes or more) for this client's next write of `key`.
    ///
    /// # Panics
    /// Panics if `value` is shorter than 8 bytes, and after 2²⁸ writes, because a stamp has no greater numbers.
    pub fn fill(&mut self, key: &[u8], value: &mut [u8]) -> Stamp {
        let written = Stamp {
            client: self.client,
            sequence: self.next,
        };
        stamp(key, written.client, written.sequence, value);
        self.next += 1;
        written
    }

    /// Fills `value` for a key that is loaded before the run. The value is the same in every run.
    ///
    /// # Panics
    /// Panics if `value` is shorter than 8 bytes.
    pub fn fill_loaded(key: &[u8], value: &mut [u8]) {
        stamp(key, LOADER, 0, value);
    }

    /// Returns the write of `key` that wrote the whole `value`.
    ///
    /// # Errors
    /// Returns [`Wrong`] if no single write of `key` did.
    pub fn check(key: &[u8], value: &[u8]) -> Result<Stamp, Wrong> {
        check_value(key, value)
    }
}
