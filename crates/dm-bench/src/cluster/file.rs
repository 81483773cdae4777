//! Reads a cluster file. An error message names the file and, if they are known, the line and the key.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::ops::Range;
use std::path::{Path, PathBuf};

use dm_control::Secret;
use dm_verbs::Capability;
use serde::Deserialize;
use toml::Spanned;

use super::{capability, shown};

/// Maximum size of a file in bytes. This is enough for thousands of memory nodes.
const BYTES_MAX: u64 = 1 << 20;
/// Maximum number of characters of a parser's error or of a key, and below of a path, that a message shows.
const ERROR_MAX: usize = 200;
const PATH_MAX: usize = 400;

/// A cluster, as described by its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterFile {
    /// Addresses of the memory nodes' control planes, `host:port`. Their order gives the nodes' numbers, so
    /// it must be the same on every machine.
    pub nodes: Vec<String>,
    /// The file with the shared secret. If its path in the cluster file is relative, it is relative to the cluster
    /// file.
    pub secret_file: Option<PathBuf>,
    /// The RDMA device; default: the first active one.
    pub device: Option<String>,
    /// The port of the device.
    pub port: Option<u8>,
    /// The index of the port's GID.
    pub gid: Option<u8>,
    /// Capabilities that the user tells dmkit to assume, although the devices do not promise them.
    pub assume: Vec<String>,
    /// The factor by which a round trip takes longer than between RNICs. It is above 1 for emulated devices.
    pub slower: u32,
}

/// The keys of a file, with their places.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    nodes: Option<Spanned<Vec<Spanned<String>>>>,
    secret_file: Option<Spanned<PathBuf>>,
    device: Option<Spanned<String>>,
    port: Option<Spanned<u8>>,
    gid: Option<u8>,
    #[serde(default)]
    assume: Vec<Spanned<String>>,
    slower: Option<Spanned<u32>>,
}

/// An error in a file.
struct Fault {
    /// The range of bytes that contains the error.
    at: Range<usize>,
    /// The key, if the line does not contain it.
    key: Option<&'static str>,
    message: String,
}

fn fault(at: Range<usize>, message: impl Into<String>) -> Fault {
    Fault {
        at,
        key: None,
        message: message.into(),
    }
}

impl ClusterFile {
    /// Reads and checks the file at `path`, and the secret that it names.
    ///
    /// # Errors
    /// Returns a message that names the file and the problem if the file cannot be read or is invalid. If the problem
    /// is in a line, the message names the line too, and the key if it is known.
    pub fn read(path: &Path) -> Result<Self, String> {
        let named = |e: &dyn fmt::Display| format!("{}: {e}", path.display());
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes))
            .map_err(|e| named(&e))?;
        if bytes.len() as u64 > BYTES_MAX {
            return Err(named(&format_args!(
                "a cluster file has at most {BYTES_MAX} bytes"
            )));
        }
        let text = String::from_utf8(bytes).map_err(|e| {
            let before = e.as_bytes().get(..e.utf8_error().valid_up_to());
            let line = line_of(before.unwrap_or_default());
            format!("{}:{line}: this line is not UTF-8", path.display())
        })?;
        Self::check(&text, path).map_err(|fault| {
            let before = text.get(..fault.at.start).unwrap_or(&text);
            let place = format!("{}:{}", path.display(), line_of(before.as_bytes()));
            match fault.key.or_else(|| key_at(&text, fault.at.start)) {
                Some(key) => format!("{place}: {}: {}", shorten(key, ERROR_MAX), fault.message),
                None => format!("{place}: {}", fault.message),
            }
        })
    }

    fn check(text: &str, path: &Path) -> Result<Self, Fault> {
        let keys: Keys = toml::from_str(text).map_err(|e| {
            // The `Display` text of the error repeats the whole line, so only the message is used.
            fault(e.span().unwrap_or_default(), shorten(e.message(), ERROR_MAX))
        })?;
        let missing = || Fault {
            at: 0..0,
            key: Some("nodes"),
            message: "is missing: there is no memory node".to_owned(),
        };
        let nodes = keys.nodes.ok_or_else(missing)?;
        if nodes.get_ref().is_empty() {
            return Err(fault(nodes.span(), "there is no memory node"));
        }
        let mut known = BTreeMap::new();
        for (number, node) in nodes.get_ref().iter().enumerate() {
            let message = |e: String| format!("{}: {e}", shown(node.get_ref()));
            let place = host_and_port(node.get_ref()).map_err(|e| fault(node.span(), message(e)))?;
            if let Some(first) = known.insert(place, number) {
                let twice = format!("nodes {first} and {number} are the same");
                return Err(fault(node.span(), message(twice)));
            }
        }
        for name in &keys.assume {
            capability(name.get_ref()).map_err(|e| fault(name.span(), e))?;
        }
        let secret_file = keys.secret_file.as_ref().map(|named| {
            let beside = path.parent().unwrap_or(Path::new(""));
            let file = beside.join(named.get_ref());
            let refused = |e: String| fault(named.span(), e);
            if named.get_ref().as_os_str().is_empty() {
                return Err(refused("the path is empty".to_owned()));
            }
            match Secret::from_file(&file) {
                Ok(_) => Ok(file),
                Err(e) => {
                    let file = shorten(&file.display().to_string(), PATH_MAX);
                    Err(refused(format!("{file}: {e}")))
                }
            }
        });
        if let Some(device) = keys.device.as_ref().filter(|device| device.get_ref().is_empty()) {
            return Err(fault(
                device.span(),
                "the name is empty; without it, the first active one is used",
            ));
        }
        if let Some(port) = keys.port.as_ref().filter(|port| *port.get_ref() == 0) {
            return Err(fault(port.span(), "a device's ports begin with 1"));
        }
        if let Some(slower) = keys.slower.as_ref().filter(|slower| *slower.get_ref() == 0) {
            return Err(fault(slower.span(), "the factor is at least 1"));
        }
        Ok(Self {
            nodes: nodes.into_inner().into_iter().map(Spanned::into_inner).collect(),
            secret_file: secret_file.transpose()?,
            device: keys.device.map(Spanned::into_inner),
            port: keys.port.map(Spanned::into_inner),
            gid: keys.gid,
            assume: keys.assume.into_iter().map(Spanned::into_inner).collect(),
            slower: keys.slower.map_or(1, Spanned::into_inner),
        })
    }

    /// Returns the capabilities that the file tells dmkit to assume.
    ///
    /// # Errors
    /// Returns a message if a name is not that of a capability.
    pub fn capabilities(&self) -> Result<Vec<Capability>, String> {
        self.assume.iter().map(|name| capability(name)).collect()
    }

    /// Returns the addresses of the memory nodes.
    ///
    /// # Errors
    /// Returns a message if an address cannot be resolved, or if two memory nodes have the same address.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>, String> {
        let mut found: Vec<SocketAddr> = Vec::with_capacity(self.nodes.len());
        for (number, node) in self.nodes.iter().enumerate() {
            let named = |e: &dyn fmt::Display| format!("memory node {number} ({}): {e}", shown(node));
            // IPv4 addresses come first, because Soft-RoCE and the control networks of most clusters use IPv4.
            let mut all: Vec<_> = node.to_socket_addrs().map_err(|e| named(&e))?.collect();
            all.sort_by_key(SocketAddr::is_ipv6);
            let address = *all.first().ok_or_else(|| named(&"no address"))?;
            if let Some(first) = found.iter().position(|other| *other == address) {
                return Err(named(&format_args!("{address} is node {first}'s address too")));
            }
            found.push(address);
        }
        Ok(found)
    }
}

/// Returns the number, from 1, of the line in which the byte after `before` lies.
fn line_of(before: &[u8]) -> usize {
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

/// Returns the key of the line of `at`, or the last key before this line if it has none.
fn key_at(text: &str, at: usize) -> Option<&str> {
    let line_ends = text.get(at..)?.find('\n').map_or(text.len(), |end| at + end);
    let key = |line: &str| line.split_once('=').map(|(key, _)| key.trim().len());
    let lines = text.get(..line_ends)?.lines().rev();
    let line = lines
        .into_iter()
        .find(|line| key(line).is_some_and(|length| length > 0))?;
    line.split('=').next().map(str::trim)
}

/// Returns the first `most` characters of a text as one line. `…` follows if there are more.
fn shorten(text: &str, most: usize) -> String {
    let one_line = |c: char| if c.is_control() { ' ' } else { c };
    let line: String = text.chars().map(one_line).take(most).collect();
    match text.chars().nth(most) {
        Some(_) => line + "…",
        None => line,
    }
}

/// Splits `host:port` and normalises the host, so that different spellings of one address or name give equal results.
/// Names are not resolved.
fn host_and_port(node: &str) -> Result<(String, u16), String> {
    const FORM: &str = "a node is host:port, such as 10.0.0.1:7471 or [fd00::1]:7471";
    let bare = node.parse::<Ipv6Addr>().is_ok();
    let (host, port) = node
        .rsplit_once(':')
        .filter(|_| !bare)
        .ok_or_else(|| format!("no port; {FORM}"))?;
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let number = port.parse().ok().filter(|number| digits && *number > 0);
    let number: u16 =
        number.ok_or_else(|| format!("{} is not a port from 1 to 65535; {FORM}", shown(port)))?;
    if let Some(inner) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        let ip: Ipv6Addr = inner
            .parse()
            .map_err(|_| format!("no IPv6 address in brackets; {FORM}"))?;
        return Ok((ip.to_canonical().to_string(), number));
    }
    let in_names = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if host.is_empty() || !host.bytes().all(in_names) {
        return Err(format!("{} is not a host; {FORM}", shown(host)));
    }
    let host = match host.parse::<IpAddr>() {
        Ok(ip) => ip.to_canonical().to_string(),
        Err(_) => host.to_ascii_lowercase(),
    };
    Ok((host, number))
}

#[cfg(test)]
mod tests;
