//! Encodes an 8-byte masked compare-and-swap for mlx5 cards, because the verbs have no such request. **Not run on
//! hardware.**
//!
//! The result is a raw work request for `mlx5dv_wr_raw_wqe`: four segments, whose sizes are multiples of 16 bytes.
//! Numbers are big-endian, as the card requires, and so is the old value in the local buffer.
//!
//! ```text
//!   0  control         opmod 9 │ index (driver) │ opcode 0x14      queue number << 8 │ units
//!   8                  signature, stream, flags                    immediate
//!  16  remote address  address                                     key │ reserved
//!  32  masked atomic   swap                                        compare
//!  48                  swap mask                                   compare mask
//!  64  data            bytes │ local key                           local address
//! ```

use dm_verbs::MaskedCas;

/// Length of the request in bytes.
pub const MASKED_CAS_BYTES: usize = 80;
/// `MLX5_OPCODE_ATOMIC_MASKED_CS`.
pub const OPCODE_ATOMIC_MASKED_CS: u8 = 0x14;
/// The modifier of an extended atomic of 2^3 bytes: 8 means "extended"; the logarithm of the size, minus 2, is added.
pub const OPMOD_EXTENDED_8_BYTES: u8 = 8 | (3 - 2);
/// `MLX5_WQE_CTRL_CQ_UPDATE`: the completion is signalled.
pub const FLAG_SIGNALLED: u8 = 2 << 2;
/// `MLX5_WQE_CTRL_FENCE`: the request waits for all earlier READs and atomics.
pub const FLAG_FENCE: u8 = 4 << 5;

/// The destination of a masked CAS, and the buffer for its old value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// Number of the queue pair, 24 bits.
    pub queue: u32,
    /// The address of the word, as the peer has registered it. It must be aligned to 8 bytes.
    pub remote: u64,
    /// The peer's key.
    pub remote_key: u32,
    /// A local buffer of 8 bytes.
    pub local: u64,
    /// The key of the local buffer.
    pub local_key: u32,
}

/// Returns the bytes of the request. `flags` is [`FLAG_SIGNALLED`], [`FLAG_FENCE`], both or 0. The driver fills in the
/// index.
pub fn masked_cas(to: &Route, operands: &MaskedCas, flags: u8) -> [u8; MASKED_CAS_BYTES] {
    const UNITS: u32 = (MASKED_CAS_BYTES / 16) as u32;
    let opmod_opcode = u32::from(OPMOD_EXTENDED_8_BYTES) << 24 | u32::from(OPCODE_ATOMIC_MASKED_CS);
    let mut bytes = [0; MASKED_CAS_BYTES];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, &opmod_opcode.to_be_bytes());
    put(4, &(to.queue << 8 | UNITS).to_be_bytes());
    put(11, &[flags]);
    put(16, &to.remote.to_be_bytes());
    put(24, &to.remote_key.to_be_bytes());
    put(32, &operands.swap.to_be_bytes());
    put(40, &operands.compare.to_be_bytes());
    put(48, &operands.swap_mask.to_be_bytes());
    put(56, &operands.compare_mask.to_be_bytes());
    put(64, &8u32.to_be_bytes());
    put(68, &to.local_key.to_be_bytes());
    put(72, &to.local.to_be_bytes());
    bytes
}

/// Returns the old value that the completed request has stored in the local buffer.
pub const fn old_value(buffer: [u8; 8]) -> u64 {
    u64::from_be_bytes(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the bytes with a request that was written by hand from `struct mlx5_wqe_ctrl_seg`,
    /// `mlx5_wqe_raddr_seg`, `mlx5_wqe_masked_atomic_seg` (swap_add, compare, swap_add_mask, compare_mask)
    /// and `mlx5_wqe_data_seg`.
    #[test]
    fn the_bytes_are_those_of_the_documented_segments() {
        let to = Route {
            queue: 0x00AB_CDEF,
            remote: 0x1122_3344_5566_7788,
            remote_key: 0x99AA_BBCC,
            local: 0x0102_0304_0506_0708,
            local_key: 0xDDEE_FF00,
        };
        let operands = MaskedCas {
            compare: 0xC0,
            compare_mask: 0xC1,
            swap: 0x50,
            swap_mask: 0x51,
        };
        #[rustfmt::skip]
        let expected: [u8; MASKED_CAS_BYTES] = [
            0x09, 0, 0, 0x14,             0xAB, 0xCD, 0xEF, 5,
            0, 0, 0, 0x88,                0, 0, 0, 0,
            0x11, 0x22, 0x33, 0x44,       0x55, 0x66, 0x77, 0x88,
            0x99, 0xAA, 0xBB, 0xCC,       0, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 0, 0x50,    0, 0, 0, 0, 0, 0, 0, 0xC0,
            0, 0, 0, 0, 0, 0, 0, 0x51,    0, 0, 0, 0, 0, 0, 0, 0xC1,
            0, 0, 0, 8,                   0xDD, 0xEE, 0xFF, 0x00,
            0x01, 0x02, 0x03, 0x04,       0x05, 0x06, 0x07, 0x08,
        ];
        assert_eq!(masked_cas(&to, &operands, FLAG_SIGNALLED | FLAG_FENCE), expected);
        assert_eq!(old_value([0, 0, 0, 0, 0, 0, 1, 2]), 0x102);
    }
}
