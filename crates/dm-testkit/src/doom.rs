//! The end of a compute node: when its clients die, and what of their last requests still reaches memory.

use core::task::Waker;

use dm_sync::Mutex;
use dm_sync::atomic::{AtomicU8, Ordering};
use dm_verbs::{ClientId, Nanos};

/// How a compute node dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Death {
    /// Requests that its clients still post together. The request after these is the one that is not posted. If it is in
    /// the middle of a chain, the requests before it are posted.
    pub requests: u64,
    /// Number of 64-byte lines of that request that are written nevertheless, if it is a WRITE. A card may die in the
    /// middle of a message.
    pub lines: u64,
    /// Whether the requests that are still on their way are lost as well. A card that dies with its host loses what it has
    /// not sent; a card that lives on sends it.
    pub loses_posted: bool,
    /// If this is set, the clients do not die: they are suspended for so long, and then post what they were about to. If
    /// that is longer than a lease, the other members have expelled them meanwhile.
    pub sleeps: Option<Nanos>,
}

/// Decides when the clients of one compute node die. They share it, and die together: the process is the unit of failure.
///
/// From then on nothing that they post is sent, their polls never end, and the control plane never answers them. So
/// dropping their futures posts nothing either, as when the process was killed.
///
/// ```
/// use dm_loopback::{Loopback, block_on};
/// use dm_testkit::{Death, Doom, Mortal};
/// use dm_verbs::{NodeId, RemotePtr, Verbs};
///
/// let world = Loopback::builder().nodes(1).build()?;
/// let v = world.connect(0)?;
/// let word = RemotePtr::new(NodeId(0), 4096).unwrap();
/// let doom = Doom::default();
/// doom.arm(Death { requests: 3, ..Death::default() });
/// let mortal = Mortal::new(&v, &doom);
/// let ended = block_on(mortal.unless_dead(async {
///     loop {
///         mortal.faa(word, 1).await.expect("the node is up");
///     }
/// }));
/// assert_eq!(ended, None::<()>);
/// assert_eq!(block_on(v.word(word)), Ok(3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Doom {
    /// [`CALM`], [`ARMED`], [`ASLEEP`] or [`DEAD`].
    state: AtomicU8,
    fate: Mutex<Fate>,
    /// Whether its clients' fences do nothing.
    powerless: bool,
}

const CALM: u8 = 0;
const ARMED: u8 = 1;
const ASLEEP: u8 = 2;
const DEAD: u8 = 3;

#[derive(Debug, Default)]
struct Fate {
    death: Death,
    /// The time at which the clients go on, if they are suspended.
    until: Nanos,
    /// Whether the clients were ever suspended.
    slept: bool,
    clients: Vec<ClientId>,
    waiting: Vec<Waker>,
}

/// What of a chain reaches memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    All,
    Nothing,
    /// The client is suspended: the chain is posted when it goes on.
    Later,
    /// The client dies now. These many of its requests are posted, and then so many lines of the next one.
    Last {
        requests: usize,
        lines: u64,
        /// The clients whose posted requests are lost.
        lost: Vec<ClientId>,
    },
}

impl Doom {
    /// Makes one whose clients fence nobody, although they are told so. A run with such clients must fail.
    pub(crate) fn powerless() -> Self {
        Self {
            powerless: true,
            ..Self::default()
        }
    }

    pub(crate) fn is_powerless(&self) -> bool {
        self.powerless
    }

    /// Lets the clients die as `death` says, counted from now on. It does nothing if they are suspended or dead.
    pub fn arm(&self, death: Death) {
        self.fate.with(|fate| {
            // Relaxed: all changes of the state are made in this section.
            if matches!(self.state.load(Ordering::Relaxed), CALM | ARMED) {
                fate.death = death;
                self.state.store(ARMED, Ordering::Release); // pairs with Acquire in `sends`
            }
        });
    }

    /// Kills the clients now, between two requests.
    pub fn strike(&self) {
        let waiting = self.fate.with(|fate| self.die(fate));
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Returns whether the clients are dead.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        // Acquire: pairs with Release in `die`.
        self.state.load(Ordering::Acquire) == DEAD
    }

    /// Returns whether the clients live, and are not suspended or about to die.
    pub(crate) fn is_calm(&self) -> bool {
        self.state.load(Ordering::Acquire) == CALM // as in `is_dead`
    }

    /// Returns whether the clients were ever suspended. The others may have expelled them then.
    pub(crate) fn has_slept(&self) -> bool {
        self.fate.with(|fate| fate.slept)
    }

    /// Returns whether the clients are still to die or to be suspended, as [`Doom::arm`] said.
    pub(crate) fn is_armed(&self) -> bool {
        self.state.load(Ordering::Acquire) == ARMED // as in `is_dead`
    }

    /// Returns for how long the clients are still suspended, and lets them go on if that time is over.
    pub(crate) fn sleeps(&self, now: Nanos) -> Option<Nanos> {
        // Acquire: as in `is_dead`.
        if self.state.load(Ordering::Acquire) != ASLEEP {
            return None;
        }
        self.fate.with(|fate| {
            let left = Some(fate.until - now).filter(|left| left.0 > 0);
            // Relaxed: all changes of the state are made in this section.
            if left.is_none() && self.state.load(Ordering::Relaxed) == ASLEEP {
                self.state.store(CALM, Ordering::Release); // pairs with Acquire in `sends`
            }
            left
        })
    }

    pub(crate) fn wake_at_death(&self, waker: &Waker) {
        self.fate.with(|fate| {
            if !fate.waiting.iter().any(|w| w.will_wake(waker)) {
                fate.waiting.push(waker.clone());
            }
        });
    }

    fn die(&self, fate: &mut Fate) -> Vec<Waker> {
        self.state.store(DEAD, Ordering::Release); // pairs with Acquire in `is_dead`
        core::mem::take(&mut fate.waiting)
    }

    /// Records a client.
    pub(crate) fn enter(&self, client: ClientId) {
        self.fate.with(|fate| fate.clients.push(client));
    }

    /// Returns what is sent of a chain of so many requests, by `client`.
    pub(crate) fn sends(&self, client: ClientId, now: Nanos, requests: usize) -> Sent {
        // Acquire: pairs with Release in `arm` and `die`. A client that another thread's death overtakes here has posted
        // its chain a moment before.
        match self.state.load(Ordering::Acquire) {
            CALM => return Sent::All,
            ARMED => {}
            ASLEEP => return Sent::Later,
            _ => return Sent::Nothing,
        }
        let (sent, waiting) = self.fate.with(|fate| {
            // Relaxed: all changes of the state are made in this section.
            match self.state.load(Ordering::Relaxed) {
                ARMED => {}
                CALM => return (Sent::All, Vec::new()),
                ASLEEP => return (Sent::Later, Vec::new()),
                _ => return (Sent::Nothing, Vec::new()),
            }
            let left = fate.death.requests;
            if left >= requests as u64 {
                fate.death.requests -= requests as u64;
                return (Sent::All, Vec::new());
            }
            if let Some(sleep) = fate.death.sleeps {
                fate.until = now + sleep;
                fate.slept = true;
                self.state.store(ASLEEP, Ordering::Release); // pairs with Acquire above
                return (Sent::Later, Vec::new());
            }
            // The client itself is last, because a client that is fenced may not fence others.
            let mut lost: Vec<_> = fate.clients.iter().copied().filter(|c| *c != client).collect();
            lost.push(client);
            if !fate.death.loses_posted {
                lost.clear();
            }
            let last = Sent::Last {
                requests: usize::try_from(left).unwrap_or(requests),
                lines: fate.death.lines,
                lost,
            };
            (last, self.die(fate))
        });
        waiting.into_iter().for_each(Waker::wake);
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_all_clients_count_together_and_a_chain_is_cut_where_the_count_ends() {
        let doom = Doom::default();
        doom.enter(ClientId(1));
        doom.enter(ClientId(2));
        assert_eq!(
            doom.sends(ClientId(1), Nanos(0), 100),
            Sent::All,
            "it is not armed"
        );
        doom.arm(Death {
            requests: 5,
            lines: 2,
            loses_posted: true,
            sleeps: None,
        });
        assert_eq!(doom.sends(ClientId(1), Nanos(0), 2), Sent::All);
        assert_eq!(doom.sends(ClientId(2), Nanos(0), 3), Sent::All);
        assert!(!doom.is_dead());
        let last = Sent::Last {
            requests: 0,
            lines: 2,
            lost: vec![ClientId(2), ClientId(1)],
        };
        assert_eq!(doom.sends(ClientId(1), Nanos(0), 1), last);
        assert!(doom.is_dead());
        assert_eq!(doom.sends(ClientId(2), Nanos(0), 1), Sent::Nothing);
        doom.arm(Death::default());
        assert!(doom.is_dead(), "nobody comes back");
    }

    #[test]
    fn suspended_clients_post_nothing_until_they_go_on() {
        let doom = Doom::default();
        let sends = |at| doom.sends(ClientId(1), Nanos(at), 2);
        doom.arm(Death {
            requests: 3,
            sleeps: Some(Nanos(100)),
            ..Death::default()
        });
        assert_eq!(
            [sends(0), sends(50), sends(60)],
            [Sent::All, Sent::Later, Sent::Later]
        );
        assert!(!doom.is_armed() && !doom.is_dead());
        assert_eq!(
            [doom.sleeps(Nanos(149)), doom.sleeps(Nanos(150))],
            [Some(Nanos(1)), None]
        );
        assert_eq!(sends(150), Sent::All);
    }
}
