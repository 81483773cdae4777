//! Simulates the death of a compute node: decides when its clients die, and which of their last requests still reach
//! memory.

use core::task::Waker;

use dm_sync::Mutex;
use dm_sync::atomic::{AtomicU8, Ordering};
use dm_verbs::{ClientId, Nanos};

/// The planned death of a compute node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Death {
    /// Number of requests that the clients, counted together, still post. The next request is not posted. If a chain
    /// contains that next request, only the requests before it in the chain are posted.
    pub requests: u64,
    /// If the request that is not posted is a WRITE, at most this number of its 64-byte lines is written nevertheless,
    /// because a card may die in the middle of a message.
    pub lines: u64,
    /// Whether posted requests that have not arrived yet are lost too. A card that dies with its host loses the
    /// requests that it has not sent; a card that survives its host sends them.
    pub loses_posted: bool,
    /// If this is set, the clients do not die: they are suspended for this time, and then post their next requests. If
    /// the time is longer than a lease, the other members may have expelled the clients meanwhile.
    pub sleeps: Option<Nanos>,
}

/// Decides when the clients of one compute node die. All clients of a compute node share one `Doom` and die together,
/// because the process is the unit of failure.
///
/// After the death, no request of the clients is sent, their polls never return `Ready`, and the control plane never
/// answers them. So dropping their futures posts nothing either, as if the process had been killed.
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
    /// One of the states [`CALM`], [`ARMED`], [`ASLEEP`] and [`DEAD`], which says how the clients behave:
    ///
    /// ```text
    ///         arm              next request, if `Death::sleeps`          time is over
    ///  CALM ───────▶ ARMED ──────────────────────────────────▶ ASLEEP ───────────────▶ CALM
    ///                  │ next request
    ///                  ▼
    ///                DEAD     (`strike` leads here from every state)
    /// ```
    state: AtomicU8,
    fate: Mutex<Fate>,
    /// Whether the clients' requests to fence a member have no effect, although the clients receive an answer.
    powerless: bool,
}

/// The clients live, and nothing is planned for them.
const CALM: u8 = 0;
/// The clients live, and die or are suspended after [`Death::requests`] more requests.
const ARMED: u8 = 1;
/// The clients are suspended, and become calm again at `Fate::until`.
const ASLEEP: u8 = 2;
/// The clients are dead. No other state follows.
const DEAD: u8 = 3;

/// The part of a [`Doom`] that is changed under its mutex.
#[derive(Debug, Default)]
struct Fate {
    death: Death,
    /// The time at which a suspension ends.
    until: Nanos,
    /// Whether the clients were ever suspended.
    slept: bool,
    clients: Vec<ClientId>,
    waiting: Vec<Waker>,
}

/// The part of a chain that reaches memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    All,
    Nothing,
    /// The client is suspended, so its chain is posted when the suspension ends.
    Later,
    /// The clients die now. The chain's first `requests` requests are posted. If the next one is a WRITE, at most
    /// `lines` lines of it are written.
    Last {
        requests: usize,
        lines: u64,
        /// The clients whose requests on the way are lost. Empty unless [`Death::loses_posted`] is set.
        lost: Vec<ClientId>,
    },
}

impl Doom {
    /// Makes a `Doom` whose clients receive an answer to each request to fence a member, but fence nobody. A run with
    /// such clients must fail.
    pub(crate) fn powerless() -> Self {
        Self {
            powerless: true,
            ..Self::default()
        }
    }

    pub(crate) fn is_powerless(&self) -> bool {
        self.powerless
    }

    /// Plans the death or the suspension of the clients, and replaces an earlier plan. [`Death::requests`] counts from
    /// now on. Does nothing if the clients are suspended or dead.
    pub fn arm(&self, death: Death) {
        self.fate.with(|fate| {
            // Relaxed: all changes of the state are made in this section.
            if matches!(self.state.load(Ordering::Relaxed), CALM | ARMED) {
                fate.death = death;
                self.state.store(ARMED, Ordering::Release); // pairs with Acquire in `sends`
            }
        });
    }

    /// Kills the clients now, after their last posted request.
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

    /// Returns whether the clients live, are not suspended, and no death is planned.
    pub(crate) fn is_calm(&self) -> bool {
        self.state.load(Ordering::Acquire) == CALM // as in `is_dead`
    }

    /// Returns whether the clients were ever suspended. If so, other members may have expelled them.
    pub(crate) fn has_slept(&self) -> bool {
        self.fate.with(|fate| fate.slept)
    }

    /// Returns whether a planned death or suspension has not happened yet.
    pub(crate) fn is_armed(&self) -> bool {
        self.state.load(Ordering::Acquire) == ARMED // as in `is_dead`
    }

    /// Returns the rest of the suspension, or `None` if the clients are not suspended. Ends the suspension if its time
    /// is over.
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

    /// Registers a waker that is called when the clients die, because a client whose poll is pending has nothing else
    /// to wake it.
    pub(crate) fn wake_at_death(&self, waker: &Waker) {
        self.fate.with(|fate| {
            if !fate.waiting.iter().any(|w| w.will_wake(waker)) {
                fate.waiting.push(waker.clone());
            }
        });
    }

    /// Marks the clients as dead. Returns the wakers that the caller must call after it has unlocked the mutex.
    fn die(&self, fate: &mut Fate) -> Vec<Waker> {
        self.state.store(DEAD, Ordering::Release); // pairs with Acquire in `is_dead`
        core::mem::take(&mut fate.waiting)
    }

    /// Registers a client of this compute node.
    pub(crate) fn enter(&self, client: ClientId) {
        self.fate.with(|fate| fate.clients.push(client));
    }

    /// Counts the next `requests` requests of `client`, which it posts as one chain, and returns the part that is
    /// sent.
    pub(crate) fn sends(&self, client: ClientId, now: Nanos, requests: usize) -> Sent {
        // Acquire: pairs with Release in `arm` and `die`. If another thread kills the clients after this load, this
        // chain counts as posted before the death.
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
            // The fences run in this order. The client itself is last, because a fenced client cannot fence others.
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
            "no death is planned"
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
        assert!(doom.is_dead(), "a dead client stays dead");
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
