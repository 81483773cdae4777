//! The program's own RDMA layer: connections that execute lists of work requests.
//!
//! Here, a memory node is a buffer behind a mutex. Nothing in this file depends on dmkit.

use std::sync::{Arc, Mutex};

/// A work request, with the offset of its target.
pub(crate) enum Request {
    Read(u64, usize),
    Write(u64, Vec<u8>),
    CompareSwap(u64, u64, u64),
    FetchAdd(u64, u64),
}

/// One thread's queue pairs to all memory nodes.
#[derive(Clone)]
pub(crate) struct Connection(Arc<[Mutex<Vec<u8>>]>);

impl Connection {
    /// Creates memory nodes and a connection to them. A clone is another connection to the same memory nodes.
    pub(crate) fn new(memory_nodes: u16, bytes: usize) -> Self {
        Self((0..memory_nodes).map(|_| Mutex::new(vec![0; bytes])).collect())
    }

    /// Posts a list to one memory node, and waits until the last request has completed. Returns the bytes that the
    /// READs and atomics returned, in posting order, or the index of the request that failed.
    pub(crate) fn execute(&self, node: u16, requests: &[Request]) -> Result<Vec<Vec<u8>>, usize> {
        let mut answers = Vec::new();
        for (number, request) in requests.iter().enumerate() {
            answers.extend(self.execute_one(node, request).ok_or(number)?);
        }
        Ok(answers)
    }

    /// Executes one request, as an RNIC does. Returns `None` for a bad address, and otherwise the result if the request
    /// has one.
    fn execute_one(&self, node: u16, request: &Request) -> Option<Option<Vec<u8>>> {
        let (offset, len) = match request {
            Request::Read(offset, len) => (*offset, *len),
            Request::Write(offset, bytes) => (*offset, bytes.len()),
            Request::CompareSwap(offset, ..) | Request::FetchAdd(offset, _) => (*offset, 8),
        };
        let mut memory = self.0.get(usize::from(node))?.lock().ok()?;
        let start = usize::try_from(offset).ok()?;
        let place = memory.get_mut(start..start.checked_add(len)?)?;
        let old = place.to_vec();
        let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).ok();
        match request {
            Request::Read(..) => {}
            Request::Write(_, bytes) => {
                place.copy_from_slice(bytes);
                return Some(None);
            }
            Request::CompareSwap(_, compare, swap) => {
                if word(&old)? == *compare {
                    place.copy_from_slice(&swap.to_le_bytes());
                }
            }
            Request::FetchAdd(_, add) => {
                place.copy_from_slice(&word(&old)?.wrapping_add(*add).to_le_bytes());
            }
        }
        Some(Some(old))
    }
}
