//! The fingerprint of a state. It covers memory, queues, the shared state of compute nodes, recorded operations, ghost
//! variables, and for each client a hash of what it has observed.

use super::Machine;
use super::chain::{Chain, error_hash};
use super::client::ClientState;
use crate::fp::Fp;

impl Machine {
    /// Returns the fingerprint of the current state.
    pub(crate) fn fingerprint(&self) -> Fp {
        let mut all = self.mem.hash;
        for c in 0..self.clients.len() - 1 {
            all.xor(self.client_hash(c));
        }
        for (n, node) in self.nodes.iter().enumerate() {
            let mut f = Fp::seed(n as u64 | 1 << 33);
            f.fold2(node.chain);
            all.xor(f);
        }
        // The fingerprint is the XOR of its parts, so the change that two commuting steps make in it is the XOR of
        // their changes (see `search/dfs.rs`).
        all.xor(self.history);
        for &(name, value) in self.ghosts.iter() {
            if value > 0 {
                all.xor(Fp::at(Fp::bytes(name.as_bytes()).a, value));
            }
        }
        let mut rest = Fp::seed(1 << 34);
        if *self.allocated != *self.kept_allocated {
            for &a in self.allocated.iter() {
                rest.fold(a);
            }
        }
        rest.fold(self.clock);
        let (crashes, cancels, failures) = self.faults;
        rest.fold(u64::from(crashes) | u64::from(cancels) << 8 | u64::from(failures) << 16);
        all.xor(rest);
        all
    }

    fn fold_changes(&self, client: &ClientState, f: &mut Fp) {
        let outermost = (client.looks_before, client.changed_before);
        let marks = client.marks.iter().map(|m| (m.looks, m.changed));
        for (looks, mut changed) in marks.chain([outermost]) {
            if self.own_fingerprints {
                changed.xor(client.changed);
                f.fold2(changed);
            } else {
                f.fold(u64::from(client.looks > looks));
            }
        }
    }

    /// Returns the hash of the state of client `c`. Together with memory and the shared state of the compute node, this
    /// state determines what the client can do.
    pub(super) fn client_hash(&self, c: usize) -> Fp {
        self.clients[c].hash(|client| self.hash_client(c, client))
    }

    fn hash_client(&self, c: usize, client: &ClientState) -> Fp {
        let mut f = Fp::seed(c as u64 | 1 << 32);
        f.fold2(client.seen);
        let flags = [
            client.paused,
            client.ready,
            client.paused && client.timed,
            client.rewound,
            client.watch_local,
            client.at_local,
            client.woken,
            client.control.is_some(),
            client.fenced,
            client.open_operation.is_some(),
        ];
        let bits = flags
            .iter()
            .enumerate()
            .fold(0, |bits, (i, &on)| bits | u64::from(on) << i);
        f.fold(bits | (client.status as u64) << 16 | u64::from(client.acts) << 32);
        f.fold(u64::from(client.rng) | client.group.map_or(0, |g| 1 + u64::from(g)) << 32);
        f.fold2(client.output_hash);
        if let Some(e) = &client.deferred {
            f.fold2(error_hash(e));
        }
        // A rewind resets `seen`, so `seen` does not contain the changes that failed attempts of nested loops made to
        // shared state.
        self.fold_changes(client, &mut f);
        if let Some((section, overtaken)) = client.waits {
            f.fold2(Fp::bytes(section.as_bytes()));
            f.fold(u64::from(overtaken));
        }
        if client.paused && !client.ready {
            // Memory determines the watched bytes, so only their addresses are hashed.
            let mut watch = Fp::default();
            for s in &client.watch {
                watch.add(Fp::at(u64::from(s.from), u64::from(s.to)));
            }
            f.fold2(watch);
        }
        for &i in &client.live {
            // Most steps change only one chain, so the hashes of the chains that do not change are cached.
            f.fold2(client.chains[usize::from(i)].hash(chain_hash));
        }
        if !client.late.is_empty() || client.down != 0 {
            f.fold(u64::from(client.down) | 1 << 60);
            for &i in &client.late {
                f.fold2(client.chains[usize::from(i)].hash(chain_hash));
            }
        }
        f
    }
}

/// Returns the hash of a live or late chain, which is a part of its client's hash.
fn chain_hash(chain: &Chain) -> Fp {
    let mut f = chain.content;
    f.fold(u64::from(chain.done) | u64::from(chain.closed) << 1 | u64::from(chain.operations) << 8);
    match &chain.error {
        None => f.fold(u64::from(chain.pair) << 8),
        Some(e) => f.fold2(error_hash(e)),
    }
    for r in &chain.requests {
        f.fold(r.done as u64);
        if r.units > 64 {
            f.fold((r.done >> 64) as u64);
        }
        f.fold(u64::from(r.half) | u64::from(r.finished) << 1 | u64::from(r.overtaken) << 2);
        if r.half {
            f.fold(r.old);
        }
        if !chain.closed {
            f.fold(r.old);
            f.fold2(r.seen);
        }
    }
    f
}
