//! `dmkit doctor`: a report on what this machine's device promises, and on which protocols can run on it.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;

use dm_bench::{Registry, RunError, Trips};
use dm_verbs::{AtomicUnit, AtomicVsWrite, Capability, Caps, CasThenRead, LineOrder};

use super::protocols;
use super::sysfs;
use crate::cli::Doctor;

/// Packages for real queue pairs, on Debian and Ubuntu.
const PACKAGES: &str = "libibverbs-dev libnl-3-dev libnl-route-3-dev ibverbs-providers rdma-core \
    cmake libclang-dev pkg-config gcc libc6-dev";

/// Examines this machine and prints the report. Returns `false` if it has no device that this build can use.
pub(crate) fn perform(asked: &Doctor, registry: &Registry) -> io::Result<bool> {
    let mut text = String::new();
    let ports = sysfs::ports(Path::new(sysfs::INFINIBAND));
    let usable = device_part(&mut text, &ports, asked)?;
    contract_part(&mut text, &usable.unwrap_or_default(), asked);
    protocol_part(&mut text, usable, asked, registry);
    write!(io::stdout(), "{text}")?;
    Ok(usable.is_some())
}

/// Reports that there is no device, and what to install.
fn nothing(text: &mut String) {
    let _ = write!(
        text,
        "This machine has no RDMA device: {} is empty or missing.\n\n\
         If it has a card, install the drivers of the kernel and of libibverbs, and then run this command again:\n  \
         apt-get install {PACKAGES}\n  \
         modprobe mlx5_ib          # ConnectX; irdma, bnxt_re, … for others\n\n\
         Without a card, the kernel module rdma_rxe can emulate one on any Ethernet interface (the same verbs, but slow):\n  \
         modprobe rdma_rxe\n  \
         rdma link add rxe0 type rxe netdev eth0\n\n\
         The simulated and in-process worlds need no device: `dmkit`, `dmkit bench --fabric loopback`.\n\n",
        sysfs::INFINIBAND
    );
}

#[cfg(not(feature = "ib"))]
fn device_part(text: &mut String, ports: &[sysfs::SysPort], _: &Doctor) -> io::Result<Option<Caps>> {
    if ports.is_empty() {
        nothing(text);
        return Ok(None);
    }
    for port in ports {
        let _ = writeln!(
            text,
            "{} port {}: {}, {}",
            port.device, port.port, port.link, port.state
        );
    }
    let _ = write!(
        text,
        "\nThis dmkit was built without RDMA and can't examine them further. Install\n  apt-get install {PACKAGES}\n\
         and build it again:\n  cargo run --release --package dmkit --features ib -- doctor\n\n"
    );
    Ok(None)
}

#[cfg(feature = "ib")]
fn device_part(text: &mut String, ports: &[sysfs::SysPort], asked: &Doctor) -> io::Result<Option<Caps>> {
    if ports.is_empty() {
        nothing(text);
        return Ok(None);
    }
    let mut chosen = None;
    for report in dm_ib::devices()? {
        describe(text, &report);
        let wanted = asked.device.as_ref().is_none_or(|name| *name == report.name);
        if wanted && report.unusable.is_none() && chosen.is_none() {
            let _ = write!(text, "  dmkit uses this one.\n\n");
            chosen = Some(Caps {
                chip_bytes: report.limits.chip_bytes,
                inline_bytes: report.inline_max,
                ..Caps::default()
            });
        } else {
            text.push('\n');
        }
    }
    if chosen.is_none() {
        let _ = writeln!(text, "None of these devices can be used as it is.\n");
    }
    Ok(chosen)
}

#[cfg(feature = "ib")]
fn describe(text: &mut String, report: &dm_ib::DeviceReport) {
    let limits = &report.limits;
    let yes = |is| if is { "yes" } else { "no" };
    let atomics = match limits.atomics {
        dm_ib::AtomicScope::None => "none",
        dm_ib::AtomicScope::Device => "atomic among themselves (HCA)",
        dm_ib::AtomicScope::Machine => "atomic with the processor's atomics too (GLOB)",
    };
    let [faa, _, cas] = report.pci_atomics;
    let order = match report.in_order {
        Some([read, write]) => format!("READ {}, WRITE {}", yes(read), yes(write)),
        None => "unknown".to_owned(),
    };
    let on_chip = match limits.chip_bytes {
        0 => "none: lock tables lie in host memory".to_owned(),
        bytes => format!("{bytes} bytes (ibv_alloc_dm)"),
    };
    let masked = match report.vendor.0 {
        0x02c9 => {
            "emulated by CAS: libibverbs has no verb for them, and dmkit does not use this maker's own work requests"
        }
        _ => "emulated by CAS",
    };
    let rows = [
        ("firmware", report.firmware.clone()),
        (
            "maker, part",
            format!("{:#06x}, {:#06x}", report.vendor.0, report.vendor.1),
        ),
        ("atomics", atomics.to_owned()),
        ("atomics over PCI", format!("FAA {}, CAS {}", yes(faa), yes(cas))),
        ("masked atomics", masked.to_owned()),
        ("device memory", on_chip),
        ("data in order", format!("{order} (ibv_query_qp_data_in_order)")),
        ("inline", format!("{} bytes", report.inline_max)),
        (
            "READs, atomics at a time",
            format!("{} out, {} in", limits.initiator_depth, limits.responder_depth),
        ),
        ("work requests of a queue", limits.queue_depth_max.to_string()),
        ("completions of a queue", limits.completions_max.to_string()),
        ("queue pairs", report.queue_pairs_max.to_string()),
        (
            "registrations",
            format!(
                "{} of {} bytes",
                report.registrations_max, report.registration_max
            ),
        ),
        (
            "retries",
            "6, each after 67 ms: a lost connection is detected after 0.5 s".to_owned(),
        ),
    ];
    let _ = writeln!(text, "{}", report.name);
    for (name, value) in rows {
        let _ = writeln!(text, "  {name:<26}{value}");
    }
    for port in &report.ports {
        let link = if port.ethernet { "RoCE" } else { "InfiniBand" };
        let state = if port.active { "active" } else { "not active" };
        let _ = writeln!(
            text,
            "  port {}: {link}, {state}, packets of {} bytes, LID {}",
            port.number, port.mtu, port.lid
        );
        for gid in &port.gids {
            let kind = if gid.routable {
                "RoCE v2"
            } else {
                "RoCE v1 or InfiniBand"
            };
            let address = std::net::Ipv6Addr::from(gid.gid);
            let _ = writeln!(text, "    GID {:>3}  {address}  {kind}", gid.index);
        }
    }
    if let Some(why) = &report.unusable {
        let _ = writeln!(text, "  can't be used: {why}");
    }
}

/// Reports each item of the contract that protocols rely on.
fn contract_part(text: &mut String, caps: &Caps, asked: &Doctor) {
    let caps = asked.assume.iter().fold(*caps, |caps, &more| caps.assume(more));
    let order = |order| match order {
        LineOrder::Any => "not promised",
        LineOrder::Increasing => "increasing",
    };
    let rows = [
        ("lines of one READ", order(caps.read_lines), "cannot be queried"),
        (
            "lines of one WRITE",
            order(caps.write_lines),
            "assume: write-lines",
        ),
        (
            "what is never torn",
            match caps.atomic_unit {
                AtomicUnit::Word => "8-byte words",
                AtomicUnit::Line => "64-byte lines",
            },
            "assume: lines (seen on x86 hosts)",
        ),
        (
            "order of one queue pair",
            "WRITE→WRITE, WRITE→READ",
            "by the specification; dmkit never requests relaxed ordering",
        ),
        (
            "CAS→READ, one queue pair",
            match caps.cas_then_read {
                CasThenRead::InOrder => "in order",
                _ => "not promised",
            },
            "assume: cas-read",
        ),
        (
            "order of two queue pairs",
            "none",
            "await a completion in between",
        ),
        (
            "atomics against WRITEs",
            match caps.atomic_vs_write {
                AtomicVsWrite::Racy => "not promised",
                AtomicVsWrite::Serialised => "serialised",
            },
            "assume: atomic-write",
        ),
        (
            "a failed CAS",
            "may write the old value back",
            "seen on soft-RoCE of Linux 6.1",
        ),
        (
            "host before on-chip",
            if caps.host_before_chip {
                "in order"
            } else {
                "not promised"
            },
            "assume: host-before-chip",
        ),
    ];
    let _ = writeln!(text, "Guarantees for protocols");
    for (item, holds, source) in rows {
        let _ = writeln!(text, "  {item:<26}{holds:<30}{source}");
    }
    text.push('\n');
}

/// Reports how protocols run with the promises of the device (no promises if there is no device), and with further
/// assumptions.
fn protocol_part(text: &mut String, device: Option<Caps>, asked: &Doctor, registry: &Registry) {
    let caps = device.unwrap_or_default();
    let lines = caps.assume(Capability::LineAtomicity);
    let all = lines
        .assume(Capability::CasThenReadInOrder)
        .assume(Capability::AtomicVsWriteSerialised)
        .assume(Capability::WriteLinesIncreasing)
        .assume(Capability::HostBeforeChip);
    let mut settings = vec![
        match device {
            Some(caps) => ("as the device is", caps),
            None => ("assuming nothing", caps),
        },
        ("assuming lines", lines),
        ("assuming all", all),
    ];
    if !asked.assume.is_empty() {
        let own = asked.assume.iter().fold(caps, |caps, &more| caps.assume(more));
        settings.insert(1, ("as you assume", own));
    }
    let _ = writeln!(
        text,
        "Protocols, with the round trips of a get, an update and an insert"
    );
    for (name, point) in protocols::all(registry) {
        let best = point.trips(all);
        for (setting, caps) in &settings {
            let verdict = verdict(&point.trips(*caps), best.as_ref().ok());
            let _ = writeln!(text, "  {name:<16}{setting:<20}{verdict}");
        }
    }
    if device.is_some_and(|caps| caps.chip_bytes == 0) {
        let _ = writeln!(
            text,
            "  No memory on the device: locks that could be there are in host memory."
        );
    }
}

fn verdict(outcome: &Result<Trips, RunError>, best: Option<&Trips>) -> String {
    match outcome {
        Err(words) => format!("refused: {words}"),
        Ok(trips) => {
            let costs = format!("{:.1}, {:.1}, {:.1}", trips.get, trips.update, trips.insert);
            match best {
                Some(best) if trips.update > best.update + 0.05 => {
                    format!("{costs}: falls back: more round trips than with all guarantees")
                }
                _ => format!("{costs}: runs without a fallback"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_device_is_told_what_to_install() {
        let mut text = String::new();
        let asked = Doctor {
            device: None,
            assume: vec![Capability::LineAtomicity],
        };
        let usable = device_part(&mut text, &[], &asked).unwrap();
        assert!(usable.is_none());
        for words in [
            "no RDMA device",
            "apt-get install libibverbs-dev",
            "rdma link add rxe0",
        ] {
            assert!(text.contains(words), "{text}");
        }
        contract_part(&mut text, &Caps::default(), &asked);
        assert!(
            text.contains("64-byte lines") && text.contains("not promised"),
            "{text}"
        );
        protocol_part(&mut text, None, &asked, &dm_shipped::shipped());
        assert!(
            text.contains("a line-versioned node needs ")
                && text.contains("falls back: more round trips")
                && text.contains("assuming nothing"),
            "{text}"
        );
        assert!(
            !text.contains("the device is") && !text.contains("on the device"),
            "{text}"
        );
        let mut text = String::new();
        protocol_part(&mut text, Some(Caps::default()), &asked, &dm_shipped::shipped());
        assert!(
            text.contains("as the device is") && text.contains("in host memory"),
            "{text}"
        );
    }
}
