//! Everything that this machine's devices say of themselves, for people.

use core::ptr::NonNull;
use std::io;

use dm_sync::Arc;
use ibverbs_sys as sys;

use super::device::{Gid, for_each_device, gids, limits, port_attributes};
use super::{Cq, Device, Limits, Qp, QueueOptions, check};
use crate::choice::DeviceChoice;

unsafe extern "C" {
    fn dm_ib_pci_atomics(context: *mut sys::ibv_context, sizes: *mut u16) -> core::ffi::c_int;
    fn dm_ib_in_order(qp: *mut sys::ibv_qp, opcode: core::ffi::c_int) -> core::ffi::c_int;
}

/// What a device says of itself.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// Its name.
    pub name: String,
    /// Its firmware's version.
    pub firmware: String,
    /// Its maker's number and its own, as in a PCI listing.
    pub vendor: (u32, u32),
    /// Sizes and depths.
    pub limits: Limits,
    /// The largest registration, bytes.
    pub registration_max: u64,
    /// How many registrations there may be.
    pub registrations_max: u32,
    /// How many queue pairs there may be.
    pub queue_pairs_max: u32,
    /// Atomics that it does over PCI, so that the processor's are atomic with them: fetch-and-add, swap, compare-and-swap.
    pub pci_atomics: [bool; 3],
    /// The most inline bytes that it grants of 1024, 512, …
    pub inline_max: u32,
    /// Whether `ibv_query_qp_data_in_order` promises that a READ's, a WRITE's data is placed in order.
    pub in_order: Option<[bool; 2]>,
    /// Its ports.
    pub ports: Vec<PortReport>,
    /// Why dmkit can't use it, if it can't.
    pub unusable: Option<String>,
}

/// What a port says of itself.
#[derive(Clone, Debug)]
pub struct PortReport {
    /// From 1.
    pub number: u8,
    /// Whether packets go through it.
    pub active: bool,
    /// RoCE, not InfiniBand.
    pub ethernet: bool,
    /// Bytes of a packet's payload.
    pub mtu: u32,
    /// On InfiniBand.
    pub lid: u16,
    /// Its addresses.
    pub gids: Vec<GidReport>,
}

/// One of a port's addresses.
#[derive(Clone, Debug)]
pub struct GidReport {
    /// Its number, for `--gid`.
    pub index: u8,
    /// The address.
    pub gid: [u8; 16],
    /// RoCE v2: over UDP and IP.
    pub routable: bool,
}

/// All devices of this machine.
///
/// # Errors
/// The system can't tell of any: no kernel module, no permission.
pub fn devices() -> io::Result<Vec<DeviceReport>> {
    let mut found = Vec::new();
    for_each_device(|device, name| {
        // One that can't even be opened has only its name to tell.
        if let Ok(report) = report(device, name) {
            found.push(report);
        }
    })?;
    Ok(found)
}

/// An open device that is closed again.
struct Opened(NonNull<sys::ibv_context>);

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: opened by `report`, which made nothing in it.
        unsafe { sys::ibv_close_device(self.0.as_ptr()) };
    }
}

fn report(device: *mut sys::ibv_device, name: &str) -> io::Result<DeviceReport> {
    // SAFETY: `device` is an entry of a device list that is not freed yet.
    let context = unsafe { sys::ibv_open_device(device) };
    let opened = Opened(NonNull::new(context).ok_or_else(io::Error::last_os_error)?);
    let mut attr = sys::ibv_device_attr::default();
    // SAFETY: `attr` is writable.
    check(unsafe { sys::ibv_query_device(opened.0.as_ptr(), &raw mut attr) })?;
    let mut sizes = [0; 3];
    // A provider that does not know the question does none: the answer stays 0.
    // SAFETY: there is room for three.
    let _ = unsafe { dm_ib_pci_atomics(opened.0.as_ptr(), sizes.as_mut_ptr()) };
    let firmware = attr.fw_ver.iter().take_while(|byte| **byte != 0);
    let mut report = DeviceReport {
        name: name.to_owned(),
        firmware: firmware.map(|byte| char::from(byte.cast_unsigned())).collect(),
        vendor: (attr.vendor_id, attr.vendor_part_id),
        limits: limits(opened.0)?,
        registration_max: attr.max_mr_size,
        registrations_max: u32::try_from(attr.max_mr).unwrap_or(0),
        queue_pairs_max: u32::try_from(attr.max_qp).unwrap_or(0),
        pci_atomics: sizes.map(|sizes| sizes != 0),
        inline_max: 0,
        in_order: None,
        ports: (1..=attr.phys_port_cnt)
            .filter_map(|port| port_report(opened.0, port).ok())
            .collect(),
        unusable: None,
    };
    drop(opened);
    if let Err(error) = try_queue_pair(&mut report) {
        report.unusable = Some(error.to_string());
    }
    Ok(report)
}

/// What only a queue pair can tell.
fn try_queue_pair(report: &mut DeviceReport) -> io::Result<()> {
    let device = Arc::new(Device::open(&DeviceChoice::from(report.name.as_str()))?);
    let queue = Arc::new(Cq::new(&device, 16)?);
    let options = QueueOptions {
        depth: 16,
        inline: 1024,
        serves: false,
    };
    let qp = Qp::new(&queue, options)?;
    report.inline_max = qp.inline_bytes();
    let opcodes = [
        sys::ibv_wr_opcode::IBV_WR_RDMA_READ,
        sys::ibv_wr_opcode::IBV_WR_RDMA_WRITE,
    ];
    report.in_order = Some(opcodes.map(|opcode| {
        // SAFETY: the queue pair lives.
        let answer = unsafe { dm_ib_in_order(qp.raw(), opcode as core::ffi::c_int) };
        answer == 1
    }));
    Ok(())
}

fn port_report(context: NonNull<sys::ibv_context>, port: u8) -> io::Result<PortReport> {
    let attr = port_attributes(context, port)?;
    let told = |gid: &Gid| GidReport {
        index: gid.index,
        gid: gid.raw,
        routable: gid.routable,
    };
    Ok(PortReport {
        number: port,
        active: attr.state == sys::ibv_port_state::IBV_PORT_ACTIVE,
        ethernet: u32::from(attr.link_layer) == sys::IBV_LINK_LAYER_ETHERNET,
        // The verbs number them: 1 for 256 to 5 for 4096.
        mtu: 128 << attr.active_mtu.min(5),
        lid: attr.lid,
        gids: gids(context, port, attr.gid_tbl_len).iter().map(told).collect(),
    })
}
