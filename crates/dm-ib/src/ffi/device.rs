//! An open device with a protection domain. All other objects of the module `ffi` belong to a device.

use core::ffi::CStr;
use core::fmt;
use core::ptr::NonNull;
use std::io;

use ibverbs_sys as sys;

use super::check;
use crate::choice::DeviceChoice;

unsafe extern "C" {
    fn dm_ib_device_memory(context: *mut sys::ibv_context, bytes: *mut u64) -> core::ffi::c_int;
}

/// The accesses against which the device's atomics are atomic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicScope {
    /// The device has no atomics.
    None,
    /// Atomics through the same device.
    Device,
    /// All accesses to the machine's memory, including those of its processors.
    Machine,
}

/// Limits and capabilities that the device reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The scope of the device's atomics.
    pub atomics: AtomicScope,
    /// Bytes of device memory.
    pub chip_bytes: u64,
    /// Number of READs and atomics that a queue pair may have in flight as requester.
    pub initiator_depth: u8,
    /// Number of READs and atomics that a queue pair may serve at a time.
    pub responder_depth: u8,
    /// Work requests that a queue may hold.
    pub queue_depth_max: u32,
    /// Completions that a completion queue may hold.
    pub completions_max: u32,
}

/// The address of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Address {
    pub(crate) gid: [u8; 16],
    pub(crate) gid_index: u8,
    pub(crate) lid: u16,
    pub(crate) mtu: u8,
    pub(crate) ethernet: bool,
}

/// An open device and its protection domain.
pub(crate) struct Device {
    context: NonNull<sys::ibv_context>,
    pd: NonNull<sys::ibv_pd>,
    name: String,
    pub(crate) port: u8,
    pub(crate) address: Address,
    pub(crate) limits: Limits,
}

// SAFETY: libibverbs is thread-safe ("unless said otherwise"); it locks the state that calls on one context or domain
// share.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// Opens the device, port and GID of `choice`. Parts that are `None` are selected automatically.
    pub(crate) fn open(choice: &DeviceChoice) -> io::Result<Self> {
        let name = choice.name.as_deref();
        let mut opened = Err(io::Error::new(
            io::ErrorKind::NotFound,
            match name {
                Some(name) => format!("no RDMA device called {name}"),
                None => "no RDMA device with an active port".to_owned(),
            },
        ));
        for_each_device(|device, found| {
            if name.is_none_or(|name| name == found) && opened.is_err() {
                opened = Self::open_raw(device, found, choice);
            }
        })?;
        opened
    }

    fn open_raw(device: *mut sys::ibv_device, name: &str, choice: &DeviceChoice) -> io::Result<Self> {
        // SAFETY: `device` is an entry of a device list that has not been freed yet.
        let context = unsafe { sys::ibv_open_device(device) };
        let context = NonNull::new(context).ok_or_else(io::Error::last_os_error)?;
        let described =
            pick_port(context, choice).and_then(|(port, address)| Ok((port, address, limits(context)?)));
        // SAFETY: the context is open.
        let pd =
            described.and_then(
                |known| match NonNull::new(unsafe { sys::ibv_alloc_pd(context.as_ptr()) }) {
                    Some(pd) => Ok((known, pd)),
                    None => Err(io::Error::last_os_error()),
                },
            );
        match pd {
            Ok(((port, address, limits), pd)) => Ok(Self {
                context,
                pd,
                name: name.to_owned(),
                port,
                address,
                limits,
            }),
            Err(e) => {
                // SAFETY: the context was opened above, and nothing uses it.
                unsafe { sys::ibv_close_device(context.as_ptr()) };
                Err(e)
            }
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn context(&self) -> *mut sys::ibv_context {
        self.context.as_ptr()
    }

    pub(super) fn pd(&self) -> *mut sys::ibv_pd {
        self.pd.as_ptr()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: every object of the domain holds a reference to the device, so none exists any more.
        unsafe { sys::ibv_dealloc_pd(self.pd.as_ptr()) };
        // SAFETY: as above.
        unsafe { sys::ibv_close_device(self.context.as_ptr()) };
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.name)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Calls `each` with every device of this machine and its name.
pub(super) fn for_each_device(mut each: impl FnMut(*mut sys::ibv_device, &str)) -> io::Result<()> {
    let mut count = 0;
    // SAFETY: `count` is writable; the list is freed below.
    let list = unsafe { sys::ibv_get_device_list(&raw mut count) };
    let Some(list) = NonNull::new(list) else {
        return Err(io::Error::last_os_error());
    };
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the list has `count` entries, and `index` is less than `count`.
        let device = unsafe { list.add(index) };
        // SAFETY: as above, and each entry is a device until the list is freed.
        let device = unsafe { *device.as_ptr() };
        // SAFETY: it is a device of the list.
        let found = unsafe { sys::ibv_get_device_name(device) };
        // SAFETY: a device's name is a C string that lives as long as the device.
        let found = unsafe { CStr::from_ptr(found) };
        each(device, &found.to_string_lossy());
    }
    // SAFETY: the list came from `ibv_get_device_list`. Devices that were opened outlive the list.
    unsafe { sys::ibv_free_device_list(list.as_ptr()) };
    Ok(())
}

/// Returns the requested port, or the first usable one.
fn pick_port(context: NonNull<sys::ibv_context>, choice: &DeviceChoice) -> io::Result<(u8, Address)> {
    let ports = match choice.port {
        Some(port) => port..=port,
        None => 1..=port_count(context)?.max(1),
    };
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for port in ports {
        match address(context, port, choice.gid) {
            Ok(address) => return Ok((port, address)),
            Err(e) => last = e,
        }
    }
    Err(last)
}

fn port_count(context: NonNull<sys::ibv_context>) -> io::Result<u8> {
    let mut attr = sys::ibv_device_attr::default();
    // SAFETY: `attr` is writable.
    check(unsafe { sys::ibv_query_device(context.as_ptr(), &raw mut attr) })?;
    Ok(attr.phys_port_cnt)
}

pub(super) fn port_attributes(
    context: NonNull<sys::ibv_context>,
    port: u8,
) -> io::Result<sys::ibv_port_attr> {
    let mut attr = sys::ibv_port_attr::default();
    // SAFETY: `attr` is writable. The exported symbol fills only the beginning of this structure, because the
    // structure was shorter in older versions.
    let answer = unsafe { sys::ibv_query_port(context.as_ptr(), port, (&raw mut attr).cast()) };
    check(answer)?;
    Ok(attr)
}

/// An entry of a port's table of GIDs.
#[derive(Clone, Copy)]
pub(super) struct Gid {
    pub(super) index: u8,
    pub(super) raw: [u8; 16],
    pub(super) routable: bool,
}

impl Gid {
    pub(super) fn is_ipv4(&self) -> bool {
        self.raw.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff])
    }
}

/// Returns the entries that are not empty, among the first 255 of the table.
pub(super) fn gids(context: NonNull<sys::ibv_context>, port: u8, length: i32) -> Vec<Gid> {
    let mut found = Vec::new();
    for index in 0..u8::try_from(length.clamp(0, 255)).unwrap_or(0) {
        let mut entry = sys::ibv_gid_entry::default();
        // SAFETY: `entry` is writable and has the size that is passed.
        let answer = unsafe {
            sys::_ibv_query_gid_ex(
                context.as_ptr(),
                u32::from(port),
                u32::from(index),
                &raw mut entry,
                0,
                size_of::<sys::ibv_gid_entry>(),
            )
        };
        // SAFETY: the 16 bytes are initialised, whichever member of the union was written.
        let raw = unsafe { entry.gid.raw };
        if answer == 0 && raw != [0; 16] {
            let routable = entry.gid_type == sys::IBV_GID_TYPE_ROCE_V2;
            found.push(Gid { index, raw, routable });
        }
    }
    found
}

fn address(context: NonNull<sys::ibv_context>, port: u8, wanted: Option<u8>) -> io::Result<Address> {
    let attr = port_attributes(context, port)?;
    if attr.state != sys::ibv_port_state::IBV_PORT_ACTIVE {
        return Err(io::Error::new(
            io::ErrorKind::NotConnected,
            format!("the device's port {port} is not active"),
        ));
    }
    let ethernet = u32::from(attr.link_layer) == sys::IBV_LINK_LAYER_ETHERNET;
    let all = gids(context, port, attr.gid_tbl_len);
    let best = match wanted {
        Some(index) => all.iter().find(|gid| gid.index == index),
        // This prefers RoCE v2 over IPv4, then other RoCE v2, then an entry with an IPv4 address, then any entry. Among
        // equal entries it takes the first one.
        None => all
            .iter()
            .rev()
            .max_by_key(|gid| u8::from(gid.routable) * 2 + u8::from(gid.is_ipv4())),
    };
    let best = match best {
        Some(gid) => *gid,
        // InfiniBand routes by the LID.
        None if !ethernet && wanted.is_none() => Gid {
            index: 0,
            raw: [0; 16],
            routable: false,
        },
        None => {
            return Err(io::Error::new(
                io::ErrorKind::AddrNotAvailable,
                match wanted {
                    Some(index) => format!("port {port} has no GID {index}"),
                    None => "the device's network interface has no address".to_owned(),
                },
            ));
        }
    };
    Ok(Address {
        gid: best.raw,
        gid_index: best.index,
        lid: attr.lid,
        mtu: u8::try_from(attr.active_mtu).unwrap_or(1),
        ethernet,
    })
}

pub(super) fn limits(context: NonNull<sys::ibv_context>) -> io::Result<Limits> {
    let mut attr = sys::ibv_device_attr::default();
    // SAFETY: `attr` is writable.
    check(unsafe { sys::ibv_query_device(context.as_ptr(), &raw mut attr) })?;
    let mut chip_bytes = 0;
    // A provider that does not support the query has no on-chip memory, and the result stays 0.
    // SAFETY: `chip_bytes` is writable.
    let _ = unsafe { dm_ib_device_memory(context.as_ptr(), &raw mut chip_bytes) };
    let depth = |most: i32| u8::try_from(most.clamp(0, 255)).unwrap_or(u8::MAX);
    Ok(Limits {
        atomics: match attr.atomic_cap {
            sys::IBV_ATOMIC_NONE => AtomicScope::None,
            sys::IBV_ATOMIC_HCA => AtomicScope::Device,
            _ => AtomicScope::Machine,
        },
        chip_bytes,
        initiator_depth: depth(attr.max_qp_init_rd_atom),
        responder_depth: depth(attr.max_qp_rd_atom),
        queue_depth_max: u32::try_from(attr.max_qp_wr).unwrap_or(0),
        completions_max: u32::try_from(attr.max_cqe).unwrap_or(0),
    })
}
