//! Stands for the RDMA layer that a program has: connections that execute lists of work requests.
//!
//! A memory node is a buffer behind a mutex here. Nothing in this file knows of dmkit.

use std::sync::{Arc, Mutex};

/// A work request, with the offset that it goes to.
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
    /// To new memory nodes; a clone is another connection to the same.
    pub(crate) fn new(memory_nodes: u16, bytes: usize) -> Self {
        Self((0..memory_nodes).map(|_| Mutex::new(vec![0; bytes])).collect())
    }

    /// Posts a list to one memory node, and waits until the last request has completed: what READs brought and what atomics
    /// found, in the order of posting; or the number of the request that failed.
    pub(crate) fn execute(&self, node: u16, requests: &[Request]) -> Result<Vec<Vec<u8>>, usize> {
        let mut answers = Vec::new();
        for (number, request) in requests.iter().enumerate() {
            answers.extend(self.execute_one(node, request).ok_or(number)?);
        }
        Ok(answers)
    }

    /// What a card does: `None` for a bad address, else the answer, if the request has one.
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
