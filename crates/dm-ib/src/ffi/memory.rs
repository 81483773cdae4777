//! Mapped and registered memory.

use core::fmt;
use core::ptr::NonNull;
use std::io;

use dm_sync::Arc;
use ibverbs_sys as sys;

use super::{Device, check};

unsafe extern "C" {
    fn dm_ib_alloc_dm(context: *mut sys::ibv_context, bytes: u64) -> *mut sys::ibv_dm;
    fn dm_ib_free_dm(dm: *mut sys::ibv_dm) -> core::ffi::c_int;
    fn dm_ib_reg_dm(pd: *mut sys::ibv_pd, dm: *mut sys::ibv_dm, bytes: u64) -> *mut sys::ibv_mr;
    fn dm_ib_write_dm(
        dm: *mut sys::ibv_dm,
        offset: u64,
        from: *const core::ffi::c_void,
        bytes: u64,
    ) -> core::ffi::c_int;
}

const HUGE_PAGE: usize = 2 << 20;

/// Private, zeroed memory of this process.
struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
    huge: bool,
}

impl Mapping {
    /// Maps huge pages if the system has some, and otherwise ordinary pages.
    fn new(bytes: usize) -> io::Result<Self> {
        let rounded = bytes
            .max(1)
            .checked_next_multiple_of(HUGE_PAGE)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let map = |more: i32| {
            // SAFETY: this makes a new anonymous mapping at an address that the system chooses.
            let at = unsafe {
                libc::mmap(
                    core::ptr::null_mut(),
                    rounded,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | more,
                    -1,
                    0,
                )
            };
            (at != libc::MAP_FAILED)
                .then(|| NonNull::new(at.cast::<u8>()))
                .flatten()
        };
        let (at, huge) = match map(libc::MAP_HUGETLB) {
            Some(at) => (at, true),
            None => (map(0).ok_or_else(io::Error::last_os_error)?, false),
        };
        Ok(Self {
            at,
            bytes: rounded,
            huge,
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` mapped it with this length, and nothing uses it any more (F2).
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// The access rights to registered memory. Relaxed ordering is never requested, because data must be placed before the
/// unlock that follows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Only this process's own requests may access it.
    Own,
    /// Other processes may READ, WRITE and use atomics too.
    Everybody,
}

/// Registered memory. It is zeroed at first.
pub(crate) struct Registered {
    mr: NonNull<sys::ibv_mr>,
    mapping: Mapping,
    _device: Arc<Device>,
}

// SAFETY: this is plain memory and a handle that libibverbs locks. The owner decides which code accesses the bytes.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

impl Registered {
    pub(super) fn new(device: &Arc<Device>, bytes: usize, access: Access) -> io::Result<Self> {
        let mapping = Mapping::new(bytes)?;
        let own = sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE;
        let flags = match access {
            Access::Own => own,
            Access::Everybody => {
                own | sys::ibv_access_flags::IBV_ACCESS_REMOTE_READ
                    | sys::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE
                    | sys::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC
            }
        };
        // SAFETY: the mapping has this length, and exists longer than the registration.
        let mr = unsafe {
            sys::ibv_reg_mr(
                device.pd(),
                mapping.at.as_ptr().cast(),
                mapping.bytes,
                flags.0 as core::ffi::c_int,
            )
        };
        Ok(Self {
            mr: NonNull::new(mr).ok_or_else(io::Error::last_os_error)?,
            mapping,
            _device: Arc::clone(device),
        })
    }

    pub(super) fn at(&self) -> NonNull<u8> {
        self.mapping.at
    }

    pub(super) fn bytes(&self) -> usize {
        self.mapping.bytes
    }

    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: the registration exists as long as `self`.
        unsafe { self.mr.as_ref() }.lkey
    }

    fn remote_key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { self.mr.as_ref() }.rkey
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: `new` registered it, and no queue pair uses it any more (F2).
        unsafe { sys::ibv_dereg_mr(self.mr.as_ptr()) };
    }
}

/// A memory node's host memory. Clients read and write it; this process never accesses it (F3).
pub(crate) struct Lent {
    memory: Registered,
    bytes: u64,
}

impl Lent {
    pub(crate) fn new(device: &Arc<Device>, bytes: u64) -> io::Result<Self> {
        let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let memory = Registered::new(device, length, Access::Everybody)?;
        Ok(Self { memory, bytes })
    }

    /// Returns the address that clients use for the first byte.
    pub(crate) fn address(&self) -> u64 {
        self.memory.at().as_ptr() as u64
    }

    pub(crate) fn key(&self) -> u32 {
        self.memory.remote_key()
    }

    /// Returns the requested number of bytes. Bytes that were added by rounding are not used.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn on_huge_pages(&self) -> bool {
        self.memory.mapping.huge
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent")
            .field("bytes", &self.bytes)
            .field("huge", &self.on_huge_pages())
            .finish_non_exhaustive()
    }
}

/// A memory node's on-chip memory, which is zeroed at first. This was not run on hardware.
pub(crate) struct ChipLent {
    mr: NonNull<sys::ibv_mr>,
    dm: NonNull<sys::ibv_dm>,
    bytes: u64,
    _device: Arc<Device>,
}

// SAFETY: these are handles that libibverbs locks.
unsafe impl Send for ChipLent {}
// SAFETY: as above.
unsafe impl Sync for ChipLent {}

impl ChipLent {
    pub(crate) fn new(device: &Arc<Device>, bytes: u64) -> io::Result<Self> {
        // SAFETY: the context is open. If the provider has no device memory, the call returns null.
        let dm = unsafe { dm_ib_alloc_dm(device.context(), bytes) };
        let dm = NonNull::new(dm).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the memory has this length.
        let mr = unsafe { dm_ib_reg_dm(device.pd(), dm.as_ptr(), bytes) };
        let Some(mr) = NonNull::new(mr) else {
            let error = io::Error::last_os_error();
            // SAFETY: the memory was allocated above and is not registered.
            unsafe { dm_ib_free_dm(dm.as_ptr()) };
            return Err(error);
        };
        let lent = Self {
            mr,
            dm,
            bytes,
            _device: Arc::clone(device),
        };
        let zeroes = [0u8; 4096];
        let mut offset = 0;
        while offset < bytes {
            let part = (bytes - offset).min(zeroes.len() as u64);
            // SAFETY: `part` bytes from `offset` on lie within the memory, and `zeroes` has this number of bytes.
            check(unsafe { dm_ib_write_dm(lent.dm.as_ptr(), offset, zeroes.as_ptr().cast(), part) })?;
            offset += part;
        }
        Ok(lent)
    }

    pub(crate) fn key(&self) -> u32 {
        // SAFETY: the registration exists as long as `self`.
        unsafe { self.mr.as_ref() }.rkey
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for ChipLent {
    fn drop(&mut self) {
        // SAFETY: `new` registered it, and no queue pair uses it any more (F2).
        unsafe { sys::ibv_dereg_mr(self.mr.as_ptr()) };
        // SAFETY: `new` allocated it, and it is not registered any more.
        unsafe { dm_ib_free_dm(self.dm.as_ptr()) };
    }
}

impl fmt::Debug for ChipLent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChipLent")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
