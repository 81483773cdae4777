//! The bytes of values, stamped by their writer.

use dm_history::{LOADER, Stamp, Wrong, check_value, stamp};

/// One client's values: each write gets the next sequence number.
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
    /// Panics if the number is not below [`LOADER`], whose stamps mark the loaded data.
    #[must_use]
    pub fn of_client(client: u32) -> Self {
        assert!(client < LOADER, "clients are numbered below {LOADER}");
        Self { client, next: 0 }
    }

    /// Fills `value` (8 bytes or more) for this client's next write of `key`.
    ///
    /// # Panics
    /// Panics after 2²⁸ writes, because a stamp cannot number more.
    pub fn fill(&mut self, key: &[u8], value: &mut [u8]) -> Stamp {
        let written = Stamp {
            client: self.client,
            sequence: self.next,
        };
        stamp(key, written.client, written.sequence, value);
        self.next += 1;
        written
    }

    /// Fills `value` like the loader. The value is the same in every run.
    pub fn fill_loaded(key: &[u8], value: &mut [u8]) {
        stamp(key, LOADER, 0, value);
    }

    /// Returns which write of `key` made the whole `value`.
    ///
    /// # Errors
    /// Returns [`Wrong`] if there is none.
    pub fn check(key: &[u8], value: &[u8]) -> Result<Stamp, Wrong> {
        check_value(key, value)
    }
}
