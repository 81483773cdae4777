//! The testbed and the workload in an experiment file. Each panel states only its changes.

use std::collections::BTreeMap;

use dm_index::Fill;
use dm_sim::CostModel;
use dm_workload::{Distribution, Mix};
use serde::Deserialize;

macro_rules! setup {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)*) => {
        /// The settings of a run, as a file gives them. All are optional.
        #[derive(Debug, Clone, Default, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        pub(crate) struct Setup { $($(#[$doc])* pub(crate) $name: Option<$type>,)* }

        impl Setup {
            /// Returns these settings, with each setting of `over` in place of the one here.
            pub(crate) fn overlaid(self, over: &Self) -> Self {
                Self { $($name: over.$name.clone().or(self.$name),)* }
            }
        }
    };
}

setup! {
    /// The simulated RNIC: `cx5-ib` or `cx6-roce`.
    model: String;
    compute_nodes: u16;
    memory_nodes: u16;
    /// Whether compute and memory nodes share machines and RNICs.
    colocated: bool;
    /// Number of clients over all compute nodes. If there are more than `threads`, several coroutines share a thread.
    clients: u32;
    /// Number of hardware threads over all compute nodes.
    threads: u32;
    /// Coroutines per client, if the paper counts clients and not coroutines. Then `clients` is the number of threads.
    coroutines: u32;
    /// Number of keys that are loaded first.
    keys: u64;
    /// The paper's number of keys. Zipf ranks are drawn over these keys, and several ranks stand for one loaded key.
    ranks: u64;
    /// Zipf's exponent; 0 is uniform.
    skew: f64;
    /// Whether the keys that were inserted last are read most, as in YCSB D. This replaces Zipf.
    latest: bool;
    /// Bytes of a compute node's index cache per loaded key.
    cache_bytes_per_key: f64;
    /// Fill level of loaded leaves: a share, or `"as-inserted"`.
    fill: Loaded;
    key_bytes: usize;
    /// Whether keys of 32 bytes look like mail addresses.
    addresses: bool;
    value_bytes: usize;
    /// Entries of a leaf, if the paper fixes them; otherwise nodes have 1024 bytes.
    entries: usize;
    mix: String;
    /// Whether no two clients update the same key.
    own_updates: bool;
    /// Number of keys that a scan requests.
    scan: u32;
    /// Whether half of the threads scan, and the others run the rest of the mix.
    by_thread: bool;
    /// Whether the lock's CAS and the leaf's READ are in one chain, which the paper does not do.
    lock_and_read: bool;
    /// Knobs that only some indexes have, by their names. An index without a knob ignores it. A panel's knobs replace
    /// those of the experiment.
    knobs: BTreeMap<String, u64>;
    /// Number of operations of all clients, including the warm-up.
    operations: u64;
    /// Number of locks on the only memory node.
    locks: u32;
    /// Virtual time of a run without a tree, or the minimum virtual time of a run with a tree. The first quarter is the
    /// warm-up.
    window_ms: f64;
    /// Bytes of a WRITE, or of a READ of a whole block.
    write_bytes: usize;
}

/// A [`Fill`] in the form in which a file gives it.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Loaded {
    Even(f64),
    Law(Law),
}

/// Fills that are not a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Law {
    AsInserted,
}

impl From<Loaded> for Fill {
    fn from(loaded: Loaded) -> Self {
        match loaded {
            Loaded::Even(share) => Self::Even(share),
            Loaded::Law(Law::AsInserted) => Self::AsInserted,
        }
    }
}

/// The dial of a panel. A file names it as here, with hyphens, or as `knob` and the knob's name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Dial {
    Clients,
    Coroutines,
    MemoryNodes,
    Skew,
    Ranks,
    Scan,
    /// Percent of inserts in the mix. The other operations are gets.
    Inserts,
    KeyBytes,
    ValueBytes,
    CacheBytesPerKey,
    Entries,
    WriteBytes,
    /// A knob that only some indexes have.
    Knob(String),
}

impl Dial {
    /// The dials that are not knobs, with their names in a file and their labels for axes.
    const NAMED: [(Self, &'static str, &'static str); 12] = [
        (Self::Clients, "clients", "client threads"),
        (Self::Coroutines, "coroutines", "coroutines of a client thread"),
        (Self::MemoryNodes, "memory-nodes", "memory nodes"),
        (Self::Skew, "skew", "Zipf exponent"),
        (Self::Ranks, "ranks", "keys over which Zipf ranks are drawn"),
        (Self::Scan, "scan", "keys of a range query"),
        (Self::Inserts, "inserts", "inserts, in percent of all operations"),
        (Self::KeyBytes, "key-bytes", "bytes of a key"),
        (Self::ValueBytes, "value-bytes", "bytes of a value"),
        (
            Self::CacheBytesPerKey,
            "cache-bytes-per-key",
            "bytes of index cache per loaded key",
        ),
        (Self::Entries, "entries", "entries of a leaf"),
        (Self::WriteBytes, "write-bytes", "bytes of a WRITE"),
    ];

    /// Returns the label for axes.
    pub(crate) fn label(&self) -> &str {
        match self {
            Self::Knob(name) => name,
            named => Self::NAMED
                .iter()
                .find(|(dial, ..)| dial == named)
                .map_or("", |&(_, _, label)| label),
        }
    }
}

impl TryFrom<String> for Dial {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix("knob ") {
            return Ok(Self::Knob(name.to_owned()));
        }
        let named = Self::NAMED.into_iter().find(|(_, name, _)| *name == text);
        let names = || Self::NAMED.map(|(_, name, _)| name).join(", ");
        named.map(|(dial, ..)| dial).ok_or_else(|| {
            format!(
                "no dial {text:?}; it is \"knob\" and a knob's name, or one of {}",
                names()
            )
        })
    }
}

/// A complete setup. The settings that all kinds of runs need are present. Any other setting that the file lacks
/// has its default, or is `None`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Resolved {
    pub(crate) model: CostModel,
    pub(crate) compute_nodes: u16,
    pub(crate) memory_nodes: u16,
    pub(crate) colocated: bool,
    pub(crate) clients: u32,
    pub(crate) coroutines: u32,
    pub(crate) keys: u64,
    pub(crate) ranks: u64,
    pub(crate) distribution: Distribution,
    pub(crate) cache_bytes: u64,
    pub(crate) fill: Fill,
    pub(crate) key_bytes: usize,
    pub(crate) addresses: bool,
    pub(crate) value_bytes: usize,
    pub(crate) entries: Option<usize>,
    pub(crate) mix: Option<Mix>,
    pub(crate) own_updates: bool,
    pub(crate) scan: u32,
    pub(crate) by_thread: bool,
    pub(crate) lock_and_read: Option<bool>,
    pub(crate) knobs: BTreeMap<String, u64>,
    pub(crate) operations: u64,
    pub(crate) locks: u32,
    pub(crate) window_ns: u64,
    pub(crate) write_bytes: usize,
    /// Factor of the client CPU time that a tree's operations are charged. It is 1 except in a sensitivity study.
    pub(crate) cpu_scale: f64,
}

impl Setup {
    /// Returns values for the required settings that a run without a network does not use.
    pub(crate) fn without_network() -> Self {
        Self {
            model: Some("cx6-roce".to_owned()),
            compute_nodes: Some(1),
            memory_nodes: Some(1),
            colocated: Some(false),
            clients: Some(1),
            skew: Some(0.0),
            ..Self::default()
        }
    }

    /// Completes the setup, with a dial set to a value.
    ///
    /// # Errors
    /// Returns a message that names the setting if one is missing or invalid.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "values of dials are small and positive, and the file's test would show another"
    )]
    pub(crate) fn resolve(mut self, dial: Option<(&Dial, f64)>) -> Result<Resolved, String> {
        if let Some((dial, value)) = dial {
            match dial {
                Dial::Clients => self.clients = Some(value as u32),
                Dial::Coroutines => self.coroutines = Some(value as u32),
                Dial::MemoryNodes => self.memory_nodes = Some(value as u16),
                Dial::Skew => self.skew = Some(value),
                Dial::Ranks => self.ranks = Some(value as u64),
                Dial::Scan => self.scan = Some(value as u32),
                Dial::Inserts => self.mix = Some(format!("get:{},insert:{value}", 100.0 - value)),
                Dial::KeyBytes => self.key_bytes = Some(value as usize),
                Dial::ValueBytes => self.value_bytes = Some(value as usize),
                Dial::CacheBytesPerKey => self.cache_bytes_per_key = Some(value),
                Dial::Entries => self.entries = Some(value as usize),
                Dial::WriteBytes => self.write_bytes = Some(value as usize),
                Dial::Knob(name) => {
                    self.knobs
                        .get_or_insert_default()
                        .insert(name.clone(), value as u64);
                }
            }
        }
        let model = match self.model.as_deref() {
            Some("cx5-ib") => CostModel::cx5_ib(),
            Some("cx6-roce") => CostModel::cx6_roce(),
            Some(other) => return Err(format!("no model {other:?}")),
            None => return Err(missing("model")),
        };
        let clients = self.clients.ok_or_else(|| missing("clients"))?;
        let each = self.coroutines.unwrap_or(1).max(1);
        let clients = clients * each;
        let threads = self.threads.unwrap_or(clients / each);
        let coroutines = clients.div_ceil(threads.max(1)).max(1);
        if clients == 0 || !clients.is_multiple_of(coroutines) {
            return Err(format!("{clients} clients do not share {threads} threads evenly"));
        }
        let keys = self.keys.unwrap_or(0);
        let skew = self.skew.ok_or_else(|| missing("skew"))?;
        let distribution = if self.latest == Some(true) {
            Distribution::Latest { theta: skew }
        } else if skew == 0.0 {
            Distribution::Uniform
        } else {
            Distribution::Zipf { theta: skew }
        };
        let mix = self
            .mix
            .as_deref()
            .map(str::parse::<Mix>)
            .transpose()
            .map_err(|e| e.to_string())?;
        Ok(Resolved {
            model,
            compute_nodes: self.compute_nodes.ok_or_else(|| missing("compute-nodes"))?,
            memory_nodes: self.memory_nodes.ok_or_else(|| missing("memory-nodes"))?,
            colocated: self.colocated.ok_or_else(|| missing("colocated"))?,
            clients: clients / coroutines,
            coroutines,
            keys,
            ranks: self.ranks.unwrap_or(keys).max(keys),
            distribution,
            cache_bytes: (self.cache_bytes_per_key.unwrap_or(0.0) * keys as f64) as u64,
            fill: self.fill.map_or(Fill::Even(1.0), Loaded::into),
            key_bytes: self.key_bytes.unwrap_or(8),
            addresses: self.addresses.unwrap_or(false),
            value_bytes: self.value_bytes.unwrap_or(8),
            entries: self.entries,
            mix,
            own_updates: self.own_updates.unwrap_or(false),
            scan: self.scan.unwrap_or(100),
            by_thread: self.by_thread.unwrap_or(false),
            lock_and_read: self.lock_and_read,
            knobs: self.knobs.unwrap_or_default(),
            operations: self.operations.unwrap_or(0),
            locks: self.locks.unwrap_or(0),
            window_ns: (self.window_ms.unwrap_or(0.0) * 1e6) as u64,
            write_bytes: self.write_bytes.unwrap_or(0),
            cpu_scale: 1.0,
        })
    }
}

impl Resolved {
    /// Returns the value of a knob, or `usual` if the experiment does not set it.
    pub(crate) fn knob(&self, name: &str, usual: u64) -> usize {
        self.knobs.get(name).copied().unwrap_or(usual) as usize
    }

    /// Sets the number of loaded keys, and scales the cache in proportion. Zipf ranks are still drawn over the paper's
    /// number of keys, or over `keys` if that is larger.
    pub(crate) fn load(&mut self, keys: u64) {
        let per_key = self.cache_bytes as f64 / self.keys.max(1) as f64;
        self.cache_bytes = (per_key * keys as f64) as u64;
        self.keys = keys;
        self.ranks = self.ranks.max(keys);
    }
}

fn missing(what: &str) -> String {
    format!("{what} is missing")
}

#[cfg(test)]
mod tests {
    use dm_workload::OpKind;

    use super::*;

    fn base() -> Setup {
        Setup {
            model: Some("cx5-ib".to_owned()),
            compute_nodes: Some(8),
            memory_nodes: Some(8),
            colocated: Some(true),
            clients: Some(176),
            threads: Some(176),
            skew: Some(0.99),
            keys: Some(1_000_000),
            ranks: Some(1_000_000_000),
            cache_bytes_per_key: Some(0.5),
            ..Setup::default()
        }
    }

    #[test]
    fn clients_beyond_the_threads_are_coroutines() {
        let at = |clients| base().resolve(Some((&Dial::Clients, clients)));
        let of = |r: Resolved| (r.clients, r.coroutines);
        assert_eq!(of(at(88.0).unwrap()), (88, 1));
        assert_eq!(of(at(528.0).unwrap()), (176, 3));
        assert!(at(177.0).unwrap_err().contains("evenly"));
        let two_each = Setup {
            coroutines: Some(2),
            threads: None,
            ..base()
        };
        assert_eq!(
            of(two_each.resolve(Some((&Dial::Clients, 88.0))).unwrap()),
            (88, 2)
        );
    }

    #[test]
    fn a_panel_changes_only_what_it_says() {
        let panel = Setup {
            skew: Some(0.0),
            ..Setup::default()
        };
        let r = base().overlaid(&panel).resolve(None).unwrap();
        assert_eq!(r.distribution, Distribution::Uniform);
        assert_eq!(
            (r.keys, r.cache_bytes, r.ranks),
            (1_000_000, 500_000, 1_000_000_000)
        );
    }

    #[test]
    fn a_dial_is_a_setting_or_a_knob() {
        let dial = |text: &str| Dial::try_from(text.to_owned());
        assert_eq!(dial("memory-nodes"), Ok(Dial::MemoryNodes));
        assert_eq!(dial("knob span"), Ok(Dial::Knob("span".to_owned())));
        assert!(dial("span").unwrap_err().contains("memory-nodes, "));
        let with = |text, value| base().resolve(Some((&dial(text).unwrap(), value))).unwrap();
        assert_eq!(with("memory-nodes", 2.0).memory_nodes, 2);
        let inserts = |percent| with("inserts", percent).mix.map(|mix| mix.share(OpKind::Insert));
        assert_eq!([0.0, 40.0, 100.0].map(inserts), [0.0, 0.4, 1.0].map(Some));
        assert_eq!(with("knob span", 16.0).knobs.get("span"), Some(&16));
    }
}
