//! The sending side of a thread: its queue pairs, its completion queue, and the table of chains in flight.
//!
//! The id of a work request consists of the number of its chain, the generation of the chain, and the position of the
//! request in the chain. So a late completion of an earlier chain with the same number is recognised.

use core::fmt;
use std::io;

use dm_sync::Arc;
use ibverbs_sys as sys;
use sys::{ibv_wc_status as status, ibv_wr_opcode as opcode};

use super::pool::Lease;
use super::queue::{Cq, Qp};

/// One request of a chain.
pub(crate) struct Request {
    /// The verb.
    pub(crate) what: What,
    /// The address, as the peer has registered it.
    pub(crate) address: u64,
    /// The peer's key for this memory.
    pub(crate) key: u32,
    /// Whether the request waits for all earlier READs and atomics.
    pub(crate) fence: bool,
}

/// The verb of a request, with its operands and buffers.
pub(crate) enum What {
    /// A READ that fills the lease.
    Read(Lease),
    /// A WRITE of the lease.
    Write(Lease),
    /// A WRITE of these bytes of the work list's inline payload.
    WriteInline(core::ops::Range<usize>),
    /// A CAS that stores the old word in the lease.
    Cas { answer: Lease, compare: u64, swap: u64 },
    /// An FAA that stores the old word in the lease.
    Faa { answer: Lease, add: u64 },
}

/// The requests of a chain, and everything that they point to. The buffers are reused.
#[derive(Default)]
pub(crate) struct WorkList {
    pub(crate) requests: Vec<Option<Request>>,
    pub(crate) inline: Vec<u8>,
    wrs: Vec<sys::ibv_send_wr>,
    sges: Vec<sys::ibv_sge>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    Building,
    Flying,
    Landed,
    /// The card may still use the buffers, and no completion will report when it stops.
    Lost,
}

struct Entrance {
    list: WorkList,
    state: State,
    generation: u32,
}

/// The fault that a completion reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The peer refused the request. Neither this request nor a later one had an effect.
    Refused,
    /// This machine's card refused the request, so the peer did not receive it. Neither this request nor a later one
    /// had an effect.
    Malformed,
    /// No answer arrived, or an earlier request failed. The effect is unknown.
    Unknown,
}

/// A completion of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Landed {
    /// The chain's number.
    pub(crate) index: u32,
    /// The position of the failed request and its fault, if a request failed.
    pub(crate) fault: Option<(u16, Fault)>,
    /// Whether the last request has completed, which ends the chain.
    pub(crate) over: bool,
}

/// Maximum number of completions that are taken at a time.
const BATCH: usize = 32;
/// Maximum number of requests in a chain.
pub(crate) const CHAIN_MAX: usize = 1 << 12;
const INDEX_BITS: u32 = 24;
const GENERATION_BITS: u32 = 28;

/// The sending side of a thread; see the documentation of this module.
pub(crate) struct Port {
    // This field is dropped before the table, because the card may write to their buffers until the queue pairs are
    // destroyed (F2).
    qps: Vec<Qp>,
    cq: Arc<Cq>,
    table: Table,
    completions: [sys::ibv_wc; BATCH],
}

/// The chains by number.
#[derive(Default)]
struct Table {
    entries: Vec<Entrance>,
    free: Vec<u32>,
}

impl Port {
    pub(crate) fn new(cq: Arc<Cq>, qps: Vec<Qp>) -> Self {
        Self {
            qps,
            cq,
            table: Table::default(),
            completions: [sys::ibv_wc::default(); BATCH],
        }
    }

    pub(crate) fn qp(&self, qp: usize) -> Option<&Qp> {
        self.qps.get(qp)
    }

    pub(crate) fn cq(&self) -> &Arc<Cq> {
        &self.cq
    }

    /// Replaces a queue pair that was shut. No chain may be in flight on it: its completion would never arrive.
    pub(crate) fn replace(&mut self, at: usize, qp: Qp) {
        if let Some(old) = self.qps.get_mut(at) {
            *old = qp;
        }
    }

    /// Opens a new chain. Returns its number and generation.
    pub(crate) fn open(&mut self) -> Option<(u32, u32)> {
        self.table.open()
    }

    /// Returns the requests of a chain that is not in flight.
    pub(crate) fn list(&mut self, index: u32, generation: u32) -> Option<&mut WorkList> {
        self.table.list(index, generation)
    }

    /// Frees the number and the buffers of a chain that is not in flight.
    pub(crate) fn close(&mut self, index: u32) {
        self.table.close(index);
    }

    /// Posts a complete chain. Its last request is signalled.
    pub(crate) fn post(&mut self, index: u32, qp: usize) -> io::Result<()> {
        let qp = self.qps.get(qp).ok_or(io::ErrorKind::NotFound)?;
        let first = self.table.launch(index).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: `launch` made a finite list over buffers that the table owns. No code can access them before `poll`
        // has taken the completion of the last request (`list` refuses the access). If the port is dropped, the queue
        // pair is destroyed before the buffers.
        let posted = unsafe { qp.post(first) };
        if posted.is_err() {
            // The first requests of the list may be in flight without a signal, so the buffers of the chain are
            // abandoned.
            self.table.abandon(index);
        }
        posted
    }

    /// Gives up a chain in flight whose completion will not be awaited. The chain keeps its number and its buffers for
    /// ever, because the card may still write to the buffers. If the completion arrives nevertheless, it is ignored.
    pub(crate) fn abandon(&mut self, index: u32) {
        self.table.abandon(index);
    }

    /// Takes completions, and passes those of chains in flight to `tell`. Returns the number of all completions that
    /// were taken.
    pub(crate) fn poll(&mut self, mut tell: impl FnMut(Landed)) -> io::Result<usize> {
        let found = self.cq.poll(&mut self.completions)?;
        for wc in &self.completions[..found] {
            let status = wc.error().map(|(status, _)| status);
            if let Some(landed) = self.table.land(wc.wr_id(), status) {
                tell(landed);
            }
        }
        Ok(found)
    }
}

impl Table {
    fn open(&mut self) -> Option<(u32, u32)> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.entries.len()).ok()?;
                if index >> INDEX_BITS != 0 {
                    return None;
                }
                self.entries.push(Entrance {
                    list: WorkList::default(),
                    state: State::Free,
                    generation: 0,
                });
                index
            }
        };
        let entry = &mut self.entries[index as usize];
        entry.state = State::Building;
        Some((index, entry.generation))
    }

    fn list(&mut self, index: u32, generation: u32) -> Option<&mut WorkList> {
        let entry = self.entries.get_mut(index as usize)?;
        let still = matches!(entry.state, State::Building | State::Landed);
        (still && entry.generation == generation).then_some(&mut entry.list)
    }

    fn close(&mut self, index: u32) {
        let Some(entry) = self.entries.get_mut(index as usize) else {
            return;
        };
        if !matches!(entry.state, State::Building | State::Landed) {
            return;
        }
        entry.list.requests.clear();
        entry.list.inline.clear();
        entry.generation = (entry.generation + 1) & ((1 << GENERATION_BITS) - 1);
        entry.state = State::Free;
        self.free.push(index);
    }

    /// Links the requests of a complete chain. From now on the chain is in flight. Returns the first work request, or
    /// `None` if the chain cannot be posted.
    fn launch(&mut self, index: u32) -> Option<&mut sys::ibv_send_wr> {
        let entry = self.entries.get_mut(index as usize)?;
        if entry.state != State::Building {
            return None;
        }
        let generation = entry.generation;
        let first = entry.list.link(|number| work_id(index, generation, number))?;
        entry.state = State::Flying;
        Some(first)
    }

    fn abandon(&mut self, index: u32) {
        if let Some(entry) = self.entries.get_mut(index as usize)
            && entry.state == State::Flying
        {
            entry.state = State::Lost;
        }
    }

    /// Records the completion of work request `id`, whose status is given if it is an error. Returns `None` if the
    /// request belongs to no chain in flight.
    fn land(&mut self, id: u64, error: Option<status::Type>) -> Option<Landed> {
        let index = (id >> (64 - INDEX_BITS)) as u32;
        let generation = (id >> (64 - INDEX_BITS - GENERATION_BITS)) as u32 & ((1 << GENERATION_BITS) - 1);
        let number = (id & (CHAIN_MAX as u64 - 1)) as usize;
        let entry = self.entries.get_mut(index as usize)?;
        if entry.generation != generation || entry.state != State::Flying {
            return None;
        }
        let over = number + 1 == entry.list.requests.len();
        if over {
            entry.state = State::Landed;
        }
        let fault = error.map(|status| (number as u16, fault(status)));
        Some(Landed { index, fault, over })
    }
}

/// Returns the id of a work request.
fn work_id(index: u32, generation: u32, number: usize) -> u64 {
    u64::from(index) << (64 - INDEX_BITS)
        | u64::from(generation) << (64 - INDEX_BITS - GENERATION_BITS)
        | number as u64
}

fn fault(status: status::Type) -> Fault {
    match status {
        status::IBV_WC_REM_ACCESS_ERR | status::IBV_WC_REM_INV_REQ_ERR => Fault::Refused,
        status::IBV_WC_LOC_LEN_ERR | status::IBV_WC_LOC_PROT_ERR | status::IBV_WC_LOC_QP_OP_ERR => {
            Fault::Malformed
        }
        _ => Fault::Unknown,
    }
}

impl WorkList {
    /// Links the work requests of the chain's requests, and returns the first one.
    fn link(&mut self, id: impl Fn(usize) -> u64) -> Option<&mut sys::ibv_send_wr> {
        let count = self.requests.len();
        if count == 0 || count > CHAIN_MAX {
            return None;
        }
        self.wrs.clear();
        self.sges.clear();
        // Both vectors are complete before any pointer into them is made.
        for (number, request) in self.requests.iter().enumerate() {
            let request = request.as_ref()?;
            let (wr, sge) = request.encode(&self.inline)?;
            let signalled = number + 1 == count;
            let mut flags = wr.send_flags;
            if signalled {
                flags |= sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
            }
            if request.fence {
                flags |= sys::ibv_send_flags::IBV_SEND_FENCE.0;
            }
            self.wrs.push(sys::ibv_send_wr {
                wr_id: id(number),
                send_flags: flags,
                num_sge: core::ffi::c_int::from(sge.length != 0),
                ..wr
            });
            self.sges.push(sge);
        }
        let sges = self.sges.as_mut_ptr();
        let wrs = self.wrs.as_mut_ptr();
        for number in 0..count {
            // `wrapping_add` stays within the vectors, which have `count` entries.
            let next = if number + 1 == count {
                core::ptr::null_mut()
            } else {
                wrs.wrapping_add(number + 1)
            };
            // SAFETY: entry `number` exists, and no other reference into the vector exists now.
            let wr = unsafe { &mut *wrs.wrapping_add(number) };
            wr.next = next;
            wr.sg_list = sges.wrapping_add(number);
        }
        // SAFETY: there is at least one request, and the pointer may access all of them.
        Some(unsafe { &mut *wrs })
    }
}

impl Request {
    fn encode(&self, inline: &[u8]) -> Option<(sys::ibv_send_wr, sys::ibv_sge)> {
        let local = |lease: &Lease| sys::ibv_sge {
            addr: lease.address(),
            length: u32::try_from(lease.len()).unwrap_or(u32::MAX),
            lkey: lease.key(),
        };
        let rdma = |opcode, flags| sys::ibv_send_wr {
            opcode,
            send_flags: flags,
            wr: sys::ibv_send_wr__bindgen_ty_2 {
                rdma: sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 {
                    remote_addr: self.address,
                    rkey: self.key,
                },
            },
            ..Default::default()
        };
        let atomic = |opcode, compare_add, swap| sys::ibv_send_wr {
            opcode,
            wr: sys::ibv_send_wr__bindgen_ty_2 {
                atomic: sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
                    remote_addr: self.address,
                    compare_add,
                    swap,
                    rkey: self.key,
                },
            },
            ..Default::default()
        };
        Some(match &self.what {
            What::Read(lease) => (rdma(opcode::IBV_WR_RDMA_READ, 0), local(lease)),
            What::Write(lease) => (rdma(opcode::IBV_WR_RDMA_WRITE, 0), local(lease)),
            What::WriteInline(range) => {
                let bytes = inline.get(range.clone())?;
                let sge = sys::ibv_sge {
                    addr: bytes.as_ptr() as u64,
                    length: u32::try_from(bytes.len()).ok()?,
                    lkey: 0,
                };
                let flags = sys::ibv_send_flags::IBV_SEND_INLINE.0;
                (rdma(opcode::IBV_WR_RDMA_WRITE, flags), sge)
            }
            What::Cas {
                answer,
                compare,
                swap,
            } => (
                atomic(opcode::IBV_WR_ATOMIC_CMP_AND_SWP, *compare, *swap),
                local(answer),
            ),
            What::Faa { answer, add } => (
                atomic(opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, *add, 0),
                local(answer),
            ),
        })
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port")
            .field("qps", &self.qps.len())
            .field("chains", &(self.table.entries.len() - self.table.free.len()))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens a chain of `count` empty WRITEs, and launches it. Returns its number and its generation.
    fn launched(table: &mut Table, count: usize) -> (u32, u32) {
        let (index, generation) = table.open().unwrap();
        let list = table.list(index, generation).unwrap();
        list.requests.resize_with(count, || {
            Some(Request {
                what: What::WriteInline(0..0),
                address: 0,
                key: 0,
                fence: false,
            })
        });
        assert!(table.launch(index).is_some());
        (index, generation)
    }

    #[test]
    fn the_completion_of_the_last_request_ends_a_chain() {
        let mut table = Table::default();
        let (index, generation) = launched(&mut table, 3);
        assert!(
            table.list(index, generation).is_none(),
            "the card has the buffers"
        );
        let id = |number| work_id(index, generation, number);
        let refused = table.land(id(0), Some(status::IBV_WC_REM_ACCESS_ERR));
        let fault = Some((0, Fault::Refused));
        assert_eq!(
            refused,
            Some(Landed {
                index,
                fault,
                over: false
            })
        );
        let last = table.land(id(2), Some(status::IBV_WC_WR_FLUSH_ERR));
        let fault = Some((2, Fault::Unknown));
        assert_eq!(
            last,
            Some(Landed {
                index,
                fault,
                over: true
            })
        );
        assert!(table.list(index, generation).is_some());
    }

    #[test]
    fn a_late_completion_does_not_touch_a_later_chain() {
        let mut table = Table::default();
        let (index, first) = launched(&mut table, 1);
        assert!(table.land(work_id(index, first, 0), None).is_some());
        table.close(index);
        let (again, second) = launched(&mut table, 1);
        assert_eq!((again, second), (index, first + 1));
        assert_eq!(table.land(work_id(index, first, 0), None), None);
        assert!(table.list(index, second).is_none(), "it is still in flight");
        assert!(table.land(work_id(index, second, 0), None).is_some());
    }

    #[test]
    fn an_abandoned_chain_keeps_its_number_and_its_buffers() {
        let mut table = Table::default();
        let (index, generation) = launched(&mut table, 2);
        table.abandon(index);
        table.close(index);
        let (other, _) = table.open().unwrap();
        assert_ne!(other, index);
        for number in 0..2 {
            assert_eq!(table.land(work_id(index, generation, number), None), None);
        }
        table.close(index);
        assert!(table.list(index, generation).is_none());
        assert_eq!(table.entries[index as usize].list.requests.len(), 2);
    }
}
