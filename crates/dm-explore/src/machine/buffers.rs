//! The buffers that READs fill. They are not part of a state, because only clients that are polled use them. A state
//! has a hash of the bytes that were read.

use std::rc::Rc;

use crate::lease::{Lease, Pool};

/// Buffers by client, chain and request.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    pool: Rc<Pool>,
    chains: Vec<Vec<Vec<Option<Lease>>>>,
}

impl Buffers {
    /// Removes all buffers.
    pub(super) fn clear(&mut self) {
        self.chains.iter_mut().flatten().for_each(Vec::clear);
    }

    /// Removes the buffers of chain `i` of client `c`, so that a new chain can use the place.
    pub(super) fn begin(&mut self, c: u8, i: u16) {
        let (c, i) = (usize::from(c), usize::from(i));
        if self.chains.len() <= c {
            self.chains.resize_with(c + 1, Vec::new);
        }
        let chains = &mut self.chains[c];
        if chains.len() <= i {
            chains.resize_with(i + 1, Vec::new);
        }
        chains[i].clear();
    }

    /// Adds the buffer of a chain's next request, if that request is a READ of `len` bytes.
    pub(super) fn push(&mut self, c: u8, i: u16, len: Option<u32>) {
        let buffer = len.map(|len| self.pool.take(len as usize));
        self.chains[usize::from(c)][usize::from(i)].push(buffer);
    }

    pub(super) fn get(&self, c: u8, i: u16, request: usize) -> Option<&Lease> {
        let chain = self.chains.get(usize::from(c))?.get(usize::from(i))?;
        chain.get(request)?.as_ref()
    }

    fn slot(&mut self, c: u8, i: u16, request: usize) -> Option<&mut Option<Lease>> {
        let chain = self.chains.get_mut(usize::from(c))?.get_mut(usize::from(i))?;
        chain.get_mut(request)
    }

    pub(super) fn get_mut(&mut self, c: u8, i: u16, request: usize) -> Option<&mut Lease> {
        self.slot(c, i, request)?.as_mut()
    }

    pub(super) fn take(&mut self, c: u8, i: u16, request: usize) -> Option<Lease> {
        self.slot(c, i, request)?.take()
    }
}
