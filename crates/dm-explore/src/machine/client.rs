//! The machine's record of a client: a hash of everything that the client has observed, and the events that
//! it waits for.

use dm_verbs::{ControlError, ControlReply, ControlRequest, VerbError};

use super::chain::{Chain, Seen};
use super::offer::Offers;
use super::shared::Shared;
use crate::fp::Fp;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Status {
    #[default]
    NotStarted,
    Running,
    Done,
    Cancelled,
    Crashed,
}

/// The times of a recorded operation: the steps at which it was invoked (its first unit, section, wake-up or request to
/// the control plane) and returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Times {
    /// The fingerprints of the operation and of its result.
    pub(crate) op: Fp,
    pub(crate) ret: Option<Fp>,
    pub(crate) invoked: Option<u32>,
    pub(crate) returned: Option<u32>,
}

/// The client's state at the beginning of a retry loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) seen: Fp,
    pub(crate) acts: u32,
    pub(crate) rng: u32,
    pub(crate) reads: usize,
    pub(crate) asked: u32,
    pub(crate) looks: u32,
    pub(crate) changed: Fp,
}

/// A client's state, and the steps that it offers.
pub(crate) type Client = Shared<ClientState, Offers>;

#[derive(Clone, Debug, Default)]
pub(crate) struct ClientState {
    pub(crate) status: Status,
    pub(crate) node: u16,
    /// A hash of everything that the client has observed.
    pub(crate) seen: Fp,
    /// The number of the client's actions so far. Together with `seen` it identifies the point that the client has
    /// reached.
    pub(crate) acts: u32,
    pub(crate) rng: u32,
    /// All chains of the client. The other lists refer to chains by their positions in this one. `free` lists the
    /// positions that are not in use.
    pub(crate) chains: Vec<Shared<Chain>>,
    pub(crate) free: Vec<u16>,
    /// Chains that are in flight, and chains whose completion the client has not seen yet, in the order of their
    /// doorbells.
    pub(crate) live: Vec<u16>,
    /// Late chains: chains that were in flight when a queue pair failed or the client crashed, and whose requests may
    /// still take effect. They are in the order of these failures, and those of one queue pair are in the order of
    /// their doorbells.
    pub(crate) late: Vec<u16>,
    /// A bit for each memory node from which the client may stay cut off: a queue pair to this memory node has failed,
    /// the knobs allowed another failure then, and no later request of the client has taken effect there.
    pub(crate) down: u8,
    pub(crate) awaiting: Vec<u16>,
    /// Chains to which the client has a handle, in the order in which they were opened.
    pub(crate) open: Vec<u16>,
    pub(crate) reads: Vec<Seen>,
    pub(crate) marks: Vec<Mark>,
    /// The memory that the last failed attempt has read. The next pause ends when this memory changes.
    pub(crate) watch: Vec<Seen>,
    pub(crate) rewound: bool,
    pub(crate) paused: bool,
    /// Whether the pause may end: something that the client watches has changed, or attempts are counted.
    pub(crate) ready: bool,
    /// `asked` counts the calls of `Env::elapsed`, and with a clock only those that returned true. `timed` tells
    /// whether the attempt before the pause made such a call. If so, the pause may also end because time has passed.
    pub(crate) asked: u32,
    pub(crate) asked_before: u32,
    pub(crate) timed: bool,
    pub(crate) granted_pause: bool,
    /// `looks` counts the accesses to the shared state of the compute node. `changed` is a hash of the changes that the
    /// client's own polls made there and did not undo.
    pub(crate) looks: u32,
    pub(crate) changed: Fp,
    /// The values of `looks` and `changed` at the end of the last pause that followed no rewind, or at the last call of
    /// `forget`.
    pub(crate) looks_before: u32,
    pub(crate) changed_before: Fp,
    /// The value of `changed` at the beginning of the attempt before the current pause. If that attempt changed shared
    /// state, the next attempt may act differently.
    pub(crate) pause_base: Fp,
    /// The number of retry loops that had begun before the current poll.
    pub(crate) marks_before: usize,
    /// The retry loop to which the current pause belongs.
    pub(crate) pause_mark: Option<usize>,
    /// The fingerprint of the shared state after the client's last access.
    pub(crate) looked: Fp,
    pub(crate) watch_local: bool,
    pub(crate) at_local: bool,
    pub(crate) granted_local: bool,
    pub(crate) woken: bool,
    /// A request to the control plane that was sent and is not carried out yet. Its future may have been dropped.
    pub(crate) control: Option<ControlRequest>,
    /// The reply that the client has not taken yet. The client never takes it if it has dropped the future of its
    /// request.
    pub(crate) reply: Option<Result<ControlReply, ControlError>>,
    pub(crate) deferred: Option<VerbError>,
    pub(crate) fenced: bool,
    /// The group of clients that are fenced together with this client.
    pub(crate) group: Option<u16>,
    /// The number of recorded operations that the client has begun.
    pub(crate) operations: u32,
    /// The number of the client's current operation, and whether that operation counts as invoked.
    pub(crate) open_operation: Option<u32>,
    pub(crate) invoked: bool,
    pub(crate) outputs: Vec<u64>,
    pub(crate) output_hash: Fp,
    pub(crate) forgotten: u32,
    /// The section that the client waits for, and how often other clients have entered it since.
    pub(crate) waits: Option<(&'static str, u32)>,
}

impl ClientState {
    /// Returns the state of client `number` before it starts.
    pub(crate) fn new(number: usize, node: u16) -> Self {
        Self {
            node,
            seen: Fp::seed(number as u64),
            ..Self::default()
        }
    }

    /// Stores `chain` and returns its index.
    pub(super) fn keep(&mut self, chain: Chain) -> u16 {
        let i = self.free.pop().unwrap_or(self.chains.len() as u16);
        match self.chains.get_mut(usize::from(i)) {
            Some(free) => *free = chain.into(),
            None => self.chains.push(chain.into()),
        }
        i
    }

    /// Removes chain `i`, which is in no list any more.
    pub(super) fn drop_chain(&mut self, i: u16) {
        self.chains[usize::from(i)] = Shared::default();
        self.free.push(i);
    }

    /// Returns the client's progress in its operations.
    pub(super) fn progress(&self) -> u64 {
        u64::from(self.operations) << 1 | u64::from(self.invoked)
    }

    /// Returns whether the client may be polled, because its waker was called, something changed, or time has passed.
    pub(crate) fn can_wake(&self) -> bool {
        self.status == Status::Running && (self.woken || self.paused && (self.ready || self.timed))
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.status, Status::Done | Status::Cancelled | Status::Crashed)
    }
}
