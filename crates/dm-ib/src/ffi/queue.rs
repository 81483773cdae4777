//! Completion queues and reliable connected queue pairs.

use core::fmt;
use core::ptr::NonNull;
use std::io;

use dm_sync::Arc;
use ibverbs_sys as sys;

use super::{Device, check};

/// A completion queue.
pub(crate) struct Cq {
    raw: NonNull<sys::ibv_cq>,
    device: Arc<Device>,
}

// SAFETY: libibverbs locks the state that calls on one queue share.
unsafe impl Send for Cq {}
// SAFETY: as above.
unsafe impl Sync for Cq {}

impl Cq {
    /// Creates a queue that holds at least `entries` completions.
    pub(crate) fn new(device: &Arc<Device>, entries: u32) -> io::Result<Self> {
        let entries = core::ffi::c_int::try_from(entries).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: no channel and no user data is passed, and completion vector 0 always exists.
        let raw = unsafe {
            sys::ibv_create_cq(
                device.context(),
                entries,
                core::ptr::null_mut(),
                core::ptr::null_mut(),
                0,
            )
        };
        Ok(Self {
            raw: NonNull::new(raw).ok_or_else(io::Error::last_os_error)?,
            device: Arc::clone(device),
        })
    }

    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Takes the completions that have arrived, and returns their number.
    pub(super) fn poll(&self, into: &mut [sys::ibv_wc]) -> io::Result<usize> {
        let most = core::ffi::c_int::try_from(into.len()).unwrap_or(core::ffi::c_int::MAX);
        // SAFETY: the provider fills its table when it opens the device, and the context of the queue is open.
        let poll = unsafe { (*self.device.context()).ops.poll_cq };
        let poll = poll.ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: `into` has room for `most` completions.
        let found = unsafe { poll(self.raw.as_ptr(), most, into.as_mut_ptr()) };
        // A provider fails with a negative number of its own, which is not an error number of the system.
        usize::try_from(found)
            .map_err(|_| io::Error::other(format!("polling the completion queue failed with code {found}")))
    }

    /// Makes all later polls of this device's completion queues return `ANSWER`, which must not be positive: the device
    /// then acts like one that has failed (a negative number) or that reports no completions any more (0).
    #[cfg(test)]
    pub(crate) fn answer_polls<const ANSWER: core::ffi::c_int>(&self) {
        unsafe extern "C" fn answer<const ANSWER: core::ffi::c_int>(
            _: *mut sys::ibv_cq,
            _: core::ffi::c_int,
            _: *mut sys::ibv_wc,
        ) -> core::ffi::c_int {
            ANSWER
        }
        const { assert!(ANSWER <= 0, "no completion is written") };
        // SAFETY: the context is open, and only the test's own thread polls queues of this context.
        unsafe { (*self.device.context()).ops.poll_cq = Some(answer::<ANSWER>) };
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: `new` created it. Queue pairs hold a reference to it, so none uses it any more.
        unsafe { sys::ibv_destroy_cq(self.raw.as_ptr()) };
    }
}

impl fmt::Debug for Cq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cq").finish_non_exhaustive()
    }
}

/// The parameters of a new queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueOptions {
    /// Number of work requests that the queue pair can hold.
    pub(crate) depth: u32,
    /// Requested number of payload bytes within a work request.
    pub(crate) inline: u32,
    /// Whether the peer may READ, WRITE and use atomics through the queue pair.
    pub(crate) serves: bool,
}

/// The parameters of one end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Peer {
    /// Number of the queue pair.
    pub(crate) number: u32,
    /// The number of the first packet that it sends.
    pub(crate) first_packet: u32,
    /// The address of the device on Ethernet.
    pub(crate) gid: [u8; 16],
    /// The address of the device on InfiniBand.
    pub(crate) lid: u16,
    /// Path MTU, as the verbs encode it: 1 stands for 256, and 5 for 4096.
    pub(crate) mtu: u8,
    /// Number of READs and atomics that this end can serve at a time, or that the peer is asked to serve.
    pub(crate) depth: u8,
}

/// A reliable connected queue pair.
pub(crate) struct Qp {
    raw: NonNull<sys::ibv_qp>,
    cq: Arc<Cq>,
    number: u32,
    inline: u32,
    options: QueueOptions,
}

// SAFETY: libibverbs locks the state that calls on one queue pair share.
unsafe impl Send for Qp {}
// SAFETY: as above.
unsafe impl Sync for Qp {}

impl Qp {
    pub(crate) fn new(cq: &Arc<Cq>, options: QueueOptions) -> io::Result<Self> {
        let mut wish = options.inline;
        loop {
            let mut init = sys::ibv_qp_init_attr {
                send_cq: cq.raw.as_ptr(),
                recv_cq: cq.raw.as_ptr(),
                cap: sys::ibv_qp_cap {
                    max_send_wr: options.depth,
                    max_recv_wr: 1,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: wish,
                },
                qp_type: sys::ibv_qp_type::IBV_QPT_RC,
                sq_sig_all: 0,
                ..Default::default()
            };
            // SAFETY: the domain and the completion queue exist, and `init` is complete.
            let raw = unsafe { sys::ibv_create_qp(cq.device.pd(), &raw mut init) };
            let Some(raw) = NonNull::new(raw) else {
                let error = io::Error::last_os_error();
                // Some providers refuse the requested size instead of granting a smaller one.
                if wish == 0 {
                    return Err(error);
                }
                wish /= 2;
                continue;
            };
            return Ok(Self {
                // SAFETY: the queue pair was created above.
                number: unsafe { raw.as_ref() }.qp_num,
                raw,
                cq: Arc::clone(cq),
                inline: init.cap.max_inline_data,
                options,
            });
        }
    }

    pub(super) fn raw(&self) -> *mut sys::ibv_qp {
        self.raw.as_ptr()
    }

    /// Returns the number of payload bytes that a work request may contain.
    pub(crate) fn inline_bytes(&self) -> u32 {
        self.inline
    }

    /// Returns the parameters of this end, which the peer needs.
    pub(crate) fn local(&self, first_packet: u32) -> Peer {
        let device = self.cq.device();
        let limits = device.limits;
        Peer {
            number: self.number,
            first_packet,
            gid: device.address.gid,
            lid: device.address.lid,
            mtu: device.address.mtu,
            depth: if self.options.serves {
                limits.responder_depth
            } else {
                limits.initiator_depth
            },
        }
    }

    /// Connects to `peer`. `first_packet` is the packet number that the peer has received in this end's parameters.
    pub(crate) fn connect(&self, first_packet: u32, peer: &Peer, wait: Patience) -> io::Result<()> {
        use sys::ibv_qp_attr_mask as mask;
        let device = self.cq.device();
        let serve = sys::ibv_access_flags::IBV_ACCESS_REMOTE_READ
            | sys::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE
            | sys::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC;
        let own = sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE;
        let init = sys::ibv_qp_attr {
            qp_state: sys::ibv_qp_state::IBV_QPS_INIT,
            port_num: device.port,
            qp_access_flags: (if self.options.serves { own | serve } else { own }).0,
            ..Default::default()
        };
        self.modify(
            init,
            mask::IBV_QP_STATE | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_ACCESS_FLAGS,
        )?;
        let depth = |own: u8| own.min(peer.depth).max(1);
        let mut receive = sys::ibv_qp_attr {
            qp_state: sys::ibv_qp_state::IBV_QPS_RTR,
            path_mtu: u32::from(device.address.mtu.min(peer.mtu).clamp(1, 5)),
            dest_qp_num: peer.number,
            rq_psn: peer.first_packet,
            max_dest_rd_atomic: depth(device.limits.responder_depth),
            min_rnr_timer: 12,
            ..Default::default()
        };
        receive.ah_attr.port_num = device.port;
        receive.ah_attr.dlid = peer.lid;
        if device.address.ethernet {
            receive.ah_attr.is_global = 1;
            receive.ah_attr.grh.dgid = sys::ibv_gid { raw: peer.gid };
            receive.ah_attr.grh.sgid_index = device.address.gid_index;
            receive.ah_attr.grh.hop_limit = 64;
        }
        self.modify(
            receive,
            mask::IBV_QP_STATE
                | mask::IBV_QP_AV
                | mask::IBV_QP_PATH_MTU
                | mask::IBV_QP_DEST_QPN
                | mask::IBV_QP_RQ_PSN
                | mask::IBV_QP_MAX_DEST_RD_ATOMIC
                | mask::IBV_QP_MIN_RNR_TIMER,
        )?;
        let send = sys::ibv_qp_attr {
            qp_state: sys::ibv_qp_state::IBV_QPS_RTS,
            sq_psn: first_packet,
            timeout: wait.timeout,
            retry_cnt: wait.retries,
            rnr_retry: wait.retries,
            max_rd_atomic: depth(device.limits.initiator_depth),
            ..Default::default()
        };
        self.modify(
            send,
            mask::IBV_QP_STATE
                | mask::IBV_QP_SQ_PSN
                | mask::IBV_QP_TIMEOUT
                | mask::IBV_QP_RETRY_CNT
                | mask::IBV_QP_RNR_RETRY
                | mask::IBV_QP_MAX_QP_RD_ATOMIC,
        )
    }

    /// Shuts the queue pair. From now on, requests that arrive here have no effect, and requests that were posted here
    /// complete with an error. But a posted request that has already left this card may still take effect at the peer.
    pub(crate) fn shut(&self) -> io::Result<()> {
        let error = sys::ibv_qp_attr {
            qp_state: sys::ibv_qp_state::IBV_QPS_ERR,
            ..Default::default()
        };
        self.modify(error, sys::ibv_qp_attr_mask::IBV_QP_STATE)
    }

    fn modify(&self, mut attr: sys::ibv_qp_attr, mask: sys::ibv_qp_attr_mask) -> io::Result<()> {
        // SAFETY: the queue pair exists, and the fields in `mask` are set.
        let answer =
            unsafe { sys::ibv_modify_qp(self.raw.as_ptr(), &raw mut attr, mask.0 as core::ffi::c_int) };
        check(answer)
    }

    /// Posts the list that begins at `first`.
    ///
    /// # Safety
    /// The requests must form a finite list. The buffers that they point to must stay allocated until the last request
    /// completes, and no code may access them before that: the card reads the data of WRITEs, and writes the results of
    /// READs and atomics. Inline payloads and the list itself may be changed or freed after the call.
    pub(super) unsafe fn post(&self, first: &mut sys::ibv_send_wr) -> io::Result<()> {
        // SAFETY: the provider fills its table when it opens the device, and the context of the queue pair is open.
        let post = unsafe { (*self.cq.device.context()).ops.post_send };
        let post = post.ok_or(io::ErrorKind::Unsupported)?;
        let mut bad = core::ptr::null_mut();
        // SAFETY: the queue pair exists, and the caller guarantees that the list is valid.
        check(unsafe { post(self.raw.as_ptr(), first, &raw mut bad) })
    }
}

/// The timeout and the number of retries if a peer does not acknowledge a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Patience {
    /// The exponent of the timeout: an attempt lasts 4.096 µs · 2^`timeout`.
    pub(crate) timeout: u8,
    /// Number of attempts after the first one; at most [`RETRIES_MAX`].
    pub(crate) retries: u8,
}

/// Maximum number of retries. The value 7 is not allowed, because soft-RoCE treats it as infinite.
pub(crate) const RETRIES_MAX: u8 = 6;

impl Default for Patience {
    /// Returns seven attempts of 67 ms each.
    fn default() -> Self {
        Self {
            timeout: 14,
            retries: RETRIES_MAX,
        }
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        // SAFETY: `new` created it, and no more requests are posted to it.
        unsafe { sys::ibv_destroy_qp(self.raw.as_ptr()) };
    }
}

impl fmt::Debug for Qp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Qp")
            .field("number", &self.number)
            .field("inline", &self.inline)
            .finish_non_exhaustive()
    }
}
