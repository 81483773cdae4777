//! `dmkit serve`: a memory node.

use std::io::{self, Write};
use std::sync::mpsc;

use dm_ib::{ConnectionLimits, DeviceChoice, MemoryNode, Secret};
use dm_verbs::Nanos;

use crate::cli::Serve;

/// Serves until it is told to stop (SIGINT, SIGTERM or SIGHUP).
pub(crate) fn perform(asked: &Serve) -> io::Result<bool> {
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_max_level(tracing::Level::INFO)
        .init();
    let mut builder = MemoryNode::builder(asked.bytes)
        .listen(asked.listen)
        .lease(Nanos::from_millis(asked.lease_ms))
        .device(DeviceChoice {
            name: asked.device.clone(),
            port: asked.port,
            gid: asked.gid,
        });
    if let Some(path) = &asked.secret_file {
        let named = |e| io::Error::other(format!("--secret-file {}: {e}", path.display()));
        builder = builder.secret(Secret::from_file(path).map_err(named)?);
    }
    let mut limits = ConnectionLimits::default();
    limits.bytes_per_host = asked.host_bytes;
    builder = builder.limits(limits);
    for address in &asked.known_as {
        builder = builder.known_as(*address);
    }
    if let Some(address) = asked.metrics {
        builder = builder.metrics(address);
    }
    if let Some(bytes) = asked.chip_bytes {
        builder = builder.chip_bytes(bytes);
    }
    let (stop, stopped) = mpsc::channel();
    ctrlc::set_handler(move || {
        // If nobody receives this, the node has stopped already, and nothing is left to do.
        let _ = stop.send(());
    })
    .map_err(io::Error::other)?;
    let node = builder.start().map_err(io::Error::other)?;
    writeln!(
        io::stdout(),
        "serving {} bytes and {} on chip of {} at {}",
        asked.bytes,
        node.chip_bytes(),
        node.device(),
        node.address()
    )?;
    if let Some(address) = node.metrics_address() {
        writeln!(io::stdout(), "metrics at http://{address}/metrics")?;
    }
    io::stdout().flush()?;
    let _ = stopped.recv();
    drop(node);
    writeln!(io::stdout(), "stopped")?;
    Ok(true)
}
