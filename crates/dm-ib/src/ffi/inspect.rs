//! A report about the devices of this machine, for users.

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

/// The report about one device.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// The name of the device.
    pub name: String,
    /// The version of its firmware.
    pub firmware: String,
    /// The vendor id and the device id, as in a PCI listing.
    pub vendor: (u32, u32),
    /// The device's limits.
    pub limits: Limits,
    /// The maximum size of a registration in bytes.
    pub registration_max: u64,
    /// The maximum number of registrations.
    pub registrations_max: u32,
    /// The maximum number of queue pairs.
    pub queue_pairs_max: u32,
    /// For fetch-and-add, swap and compare-and-swap, in this order: whether the device carries out the operation over
    /// PCI, so that it is atomic with the processor's operations.
    pub pci_atomics: [bool; 3],
    /// The number of inline bytes that the device grants. The first request is for 1024 bytes, and each refusal halves
    /// it. 0 if no queue pair could be made.
    pub inline_max: u32,
    /// Whether `ibv_query_qp_data_in_order` reports that the data of a READ, and of a WRITE, is placed in order. `None`
    /// if no queue pair could be made.
    pub in_order: Option<[bool; 2]>,
    /// The ports of the device.
    pub ports: Vec<PortReport>,
    /// The reason why dmkit cannot use the device, if it cannot.
    pub unusable: Option<String>,
}

/// The report about one port.
#[derive(Clone, Debug)]
pub struct PortReport {
    /// The number of the port, from 1.
    pub number: u8,
    /// Whether the link is up.
    pub active: bool,
    /// Whether it is RoCE and not InfiniBand.
    pub ethernet: bool,
    /// Payload bytes of a packet.
    pub mtu: u32,
    /// The LID on InfiniBand.
    pub lid: u16,
    /// The GIDs of the port.
    pub gids: Vec<GidReport>,
}

/// One of the GIDs of a port.
#[derive(Clone, Debug)]
pub struct GidReport {
    /// The index of the GID, for `--gid`.
    pub index: u8,
    /// The GID.
    pub gid: [u8; 16],
    /// Whether the GID is for RoCE v2, which runs over UDP and IP.
    pub routable: bool,
}

/// Returns reports about all devices of this machine that can be opened and queried.
///
/// # Errors
/// Returns an error if the system cannot list devices: the kernel module is missing, or permission is denied.
pub fn devices() -> io::Result<Vec<DeviceReport>> {
    let mut found = Vec::new();
    for_each_device(|device, name| {
        // A device that cannot be opened or queried is left out.
        if let Ok(report) = report(device, name) {
            found.push(report);
        }
    })?;
    Ok(found)
}

/// An open device, which is closed on drop.
struct Opened(NonNull<sys::ibv_context>);

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: `report` has opened it, and made no object that belongs to it.
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
    // A provider that does not support the query has no such atomics, and the result stays 0.
    // SAFETY: `sizes` has room for three sizes.
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

/// Queries the limits that only a queue pair reports.
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
        // SAFETY: the queue pair exists.
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
        // The verbs encode sizes as numbers: 1 stands for 256, and 5 for 4096.
        mtu: 128 << attr.active_mtu.min(5),
        lid: attr.lid,
        gids: gids(context, port, attr.gid_tbl_len).iter().map(told).collect(),
    })
}
