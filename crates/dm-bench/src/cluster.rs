//! The cluster file: the memory nodes, and how this machine reaches them.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use dm_verbs::Capability;
use serde::Deserialize;

/// The reason why nothing can use real queue pairs in a build without the feature `ib`.
#[cfg(not(feature = "ib"))]
pub const MISSING: &str = "this dmkit was built without RDMA: \
    `cargo run --release --package dmkit --features ib -- …` has it, and `dmkit doctor` says what that needs";

/// A cluster, as described by its file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// Addresses of the memory nodes' control planes, `host:port`. Their order gives the nodes' numbers, so
    /// it must be the same on every machine.
    pub nodes: Vec<String>,
    /// The file with the shared secret. Its path is relative to this file, unless it is absolute.
    #[serde(default)]
    pub secret_file: Option<PathBuf>,
    /// The RDMA device; default: the first active one.
    #[serde(default)]
    pub device: Option<String>,
    /// Its port.
    #[serde(default)]
    pub port: Option<u8>,
    /// The index of its GID.
    #[serde(default)]
    pub gid: Option<u8>,
    /// Capabilities that the user vouches for, beyond what devices promise.
    #[serde(default)]
    pub assume: Vec<String>,
    /// The factor by which a round trip is slower than between cards, for emulated devices.
    #[serde(default = "one")]
    pub slower: u32,
}

fn one() -> u32 {
    1
}

/// The capabilities that can be assumed, by their names in files and flags.
const ASSUMABLE: [(&str, Capability); 5] = [
    ("lines", Capability::LineAtomicity),
    ("cas-read", Capability::CasThenReadInOrder),
    ("atomic-write", Capability::AtomicVsWriteSerialised),
    ("write-lines", Capability::WriteLinesIncreasing),
    ("host-before-chip", Capability::HostBeforeChip),
];

/// Returns the capability with this name.
///
/// # Errors
/// Returns a message that lists the names.
pub fn capability(name: &str) -> Result<Capability, String> {
    let found = ASSUMABLE.iter().find(|(known, _)| *known == name);
    found.map(|(_, capability)| *capability).ok_or_else(|| {
        let names = ASSUMABLE.map(|(known, _)| known).join(", ");
        format!("nothing called {name:?} can be assumed; there are {names}")
    })
}

impl ClusterFile {
    /// Reads and checks the file at `path`.
    ///
    /// # Errors
    /// Returns a message that names the file and the problem.
    pub fn read(path: &Path) -> Result<Self, String> {
        let named = |e: &dyn fmt::Display| format!("{}: {e}", path.display());
        let text = std::fs::read_to_string(path).map_err(|e| named(&e))?;
        let mut file: Self = toml::from_str(&text).map_err(|e| named(&e))?;
        if file.nodes.is_empty() {
            return Err(named(&"there is no memory node in `nodes`"));
        }
        file.capabilities().map_err(|e| named(&e))?;
        if let (Some(secret), Some(dir)) = (&mut file.secret_file, path.parent()) {
            // An absolute path stays as it is.
            *secret = dir.join(&secret);
        }
        Ok(file)
    }

    /// Returns the assumed capabilities.
    ///
    /// # Errors
    /// Returns a message for a name that is none.
    pub fn capabilities(&self) -> Result<Vec<Capability>, String> {
        self.assume.iter().map(|name| capability(name)).collect()
    }

    /// Returns the addresses of the memory nodes.
    ///
    /// # Errors
    /// Returns a message for an address that does not resolve.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>, String> {
        let resolve = |node: &String| {
            let found = node
                .to_socket_addrs()
                .map_err(|e| format!("memory node {node}: {e}"))?;
            // Soft-RoCE and the control networks of most clusters use IPv4.
            let mut all: Vec<_> = found.collect();
            all.sort_by_key(SocketAddr::is_ipv6);
            all.first()
                .copied()
                .ok_or_else(|| format!("memory node {node}: no address"))
        };
        self.nodes.iter().map(resolve).collect()
    }
}

/// The number of a client machine, and the number of machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Its number, from 0.
    pub number: u16,
    /// The number of machines.
    pub of: u16,
}

impl Machine {
    /// A single machine.
    pub const ALONE: Self = Self { number: 0, of: 1 };
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Machine {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let parsed = s
            .split_once('/')
            .and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match parsed {
            Some((number, of)) if number < of => Ok(Self { number, of }),
            _ => Err(format!(
                "{s:?} is no machine: 0/2 is the first of two, 1/2 the second"
            )),
        }
    }
}

/// The use of a cluster by a bench.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterRun {
    /// The path as the user gave it.
    pub path: PathBuf,
    /// Its content.
    pub file: ClusterFile,
    /// Which client machine this is.
    pub machine: Machine,
    /// Whether the index exists already, loaded with the same keys.
    pub existing: bool,
    /// The time that the machines wait for each other.
    pub patience: Duration,
}

impl ClusterRun {
    /// Reads the file at `path`, for a single client machine and a new index.
    ///
    /// # Errors
    /// Returns a message that names the file and the problem.
    pub fn read(path: &str) -> Result<Self, String> {
        Ok(Self {
            path: path.into(),
            file: ClusterFile::read(Path::new(path))?,
            machine: Machine::ALONE,
            existing: false,
            patience: Duration::from_secs(60),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, text: &str) -> Result<ClusterFile, String> {
        let dir = std::env::temp_dir().join(format!("dmkit-cluster-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("cluster.toml");
        std::fs::write(&path, text).unwrap();
        let read = ClusterFile::read(&path);
        std::fs::remove_dir_all(&dir).unwrap();
        read
    }

    #[test]
    fn a_small_file_is_enough_and_a_secret_lies_beside_it() {
        let file = read(
            "small",
            "nodes = [\"127.0.0.1:7471\"]\nsecret_file = \"the.secret\"",
        )
        .unwrap();
        assert_eq!((file.nodes.len(), file.slower, file.gid), (1, 1, None));
        let secret = file.secret_file.unwrap();
        assert!(
            secret.is_absolute() && secret.ends_with("the.secret"),
            "{secret:?}"
        );
        let file = read("absolute", "nodes = [\"a:1\"]\nsecret_file = \"/etc/the.secret\"").unwrap();
        assert_eq!(file.secret_file, Some("/etc/the.secret".into()));
    }

    #[test]
    fn what_a_file_must_not_say_is_named() {
        let wrong = [
            ("empty", "nodes = []", "no memory node"),
            ("none", "device = \"mlx5_0\"", "nodes"),
            ("unknown", "nodes = [\"a:1\"]\nnote = 1", "unknown field `note`"),
            ("assumes", "nodes = [\"a:1\"]\nassume = [\"luck\"]", "cas-read"),
        ];
        for (name, text, words) in wrong {
            let error = read(name, text).unwrap_err();
            assert!(error.contains(words) && error.contains("cluster.toml"), "{error}");
        }
    }

    #[test]
    fn machines_are_counted_from_zero() {
        assert_eq!("1/2".parse(), Ok(Machine { number: 1, of: 2 }));
        for wrong in ["2/2", "1", "a/b", "1/0"] {
            assert!(wrong.parse::<Machine>().is_err(), "{wrong}");
        }
    }
}
