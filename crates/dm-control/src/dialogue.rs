//! A node's side of one connection, without the network. The caller passes in the bodies of messages, and gets
//! messages back.

use core::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use dm_sync::{Arc, Mutex};

use crate::doorman::Host;
use crate::greeting::{Greeting, Session, Side, Welcoming};
use crate::ledger::{Connection, Ledger, Ports};
use crate::lines::Lines;
use crate::metrics::Metrics;
use crate::secret::{Secret, fresh};
use crate::wire::{Address, Answer, Message, Nonce, Port, Refusal, Request, VERSION, WireError};

/// The node's device, as the control plane uses it.
pub trait Fabric: Ports + Send + Sync + 'static {
    /// Opens a queue pair and connects it to the client's queue pair, which `theirs` describes. Returns the new queue
    /// pair and its description.
    ///
    /// # Errors
    /// Returns an error if the device has no queue pair left, or does not understand the description.
    fn open(&self, theirs: &Port) -> io::Result<(Self::Port, Port)>;
}

/// A node's control plane without a network: the state that its dialogues share.
///
/// ```
/// # use dm_control::{Fabric, Port, Ports};
/// # struct Nothing;
/// # impl Ports for Nothing {
/// #     type Port = ();
/// #     fn shut(&self, _: &()) -> std::io::Result<()> {
/// #         Ok(())
/// #     }
/// # }
/// # impl Fabric for Nothing {
/// #     fn open(&self, _: &Port) -> std::io::Result<((), Port)> {
/// #         Ok(((), Port::default()))
/// #     }
/// # }
/// use dm_control::{Builder, Desk, Dialogue, End, Message, Nonce, Refusal, VERSION};
///
/// // A server does this for two connections.
/// let desk: std::sync::Arc<Desk<Nothing>> = Builder::new(1 << 20).desk(Nothing)?;
/// let nonce: Nonce = [7; 32];
/// let (peer, here) = ("10.0.0.9:50000".parse()?, "10.0.0.1:7471".parse()?);
/// let hello = |version| Message::Hello { version, nonce }.encode();
/// let (answer, end) = Dialogue::new(&desk, peer, here).hear(&hello(VERSION));
/// let answer = answer.map(|body| Message::decode(&body)).transpose()?;
/// assert!(matches!(answer, Some(Message::Challenge { secret: false, .. })) && end.is_none());
/// let (answer, end) = Dialogue::new(&desk, peer, here).hear(&hello(999));
/// let answer = answer.map(|body| Message::decode(&body)).transpose()?;
/// assert_eq!(answer, Some(Message::Refuse(Refusal::Version(VERSION))));
/// assert!(matches!(end, Some(End::Refused(_))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Desk<F: Fabric> {
    pub(crate) ledger: Mutex<Ledger<F>>,
    pub(crate) fabric: Arc<F>,
    pub(crate) secret: Option<Secret>,
    /// Further addresses at which clients may reach this node, such as that of a proxy.
    pub(crate) known_as: Vec<Address>,
    pub(crate) metrics: Metrics,
    pub(crate) strangers_lines: Lines,
    pub(crate) clients_lines: Lines,
    pub(crate) bytes: u64,
    pub(crate) born: Instant,
}

impl<F: Fabric> Desk<F> {
    /// Returns the counters, in the text format of Prometheus.
    pub fn metrics(&self) -> String {
        let census = self.ledger.with(|ledger| ledger.census(Instant::now()));
        self.metrics.text(&census, self.bytes, self.born)
    }

    /// Returns the counter that limits log lines about clients, or about strangers if the peer has not greeted.
    pub(crate) fn lines(&self, has_greeted: bool) -> &Lines {
        match has_greeted {
            true => &self.clients_lines,
            false => &self.strangers_lines,
        }
    }
}

impl<F: Fabric> fmt::Debug for Desk<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

enum State {
    Silent,
    Challenged([Nonce; 2]),
    Greeted(Connection, Session),
    Over,
}

/// The reason why a dialogue ended, for the log.
#[derive(Debug)]
#[non_exhaustive]
pub enum End {
    /// The bytes are not a message.
    Wire(WireError),
    /// The message is not allowed at this point.
    OutOfTurn,
    /// The peer was refused. The last answer tells it so.
    Refused(Refusal),
    /// The system has no random bytes.
    Random(io::Error),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wire(e) => e.fmt(f),
            Self::OutOfTurn => f.write_str("a message that is not allowed at this point"),
            Self::Refused(Refusal::Secret) => f.write_str("wrong secret"),
            Self::Refused(Refusal::Address) => f.write_str("it has connected to the address of another node"),
            Self::Refused(refusal) => write!(f, "refused: {refusal:?}"),
            Self::Random(e) => e.fmt(f),
        }
    }
}

/// The state of one connection. Dropping it detaches its clients and closes its queue pair.
pub struct Dialogue<F: Fabric> {
    desk: Arc<Desk<F>>,
    host: Host,
    /// The address of this node to which the peer has connected.
    here: Address,
    state: State,
}

impl<F: Fabric> Dialogue<F> {
    /// Starts the dialogue of a new connection between the addresses `peer` and `here`.
    pub fn new(desk: &Arc<Desk<F>>, peer: SocketAddr, here: SocketAddr) -> Self {
        Self {
            desk: Arc::clone(desk),
            host: peer.ip().into(),
            here: here.into(),
            state: State::Silent,
        }
    }

    /// Returns whether the peer has given the required proof, so that its queue pair is open.
    pub fn has_greeted(&self) -> bool {
        matches!(self.state, State::Greeted(..))
    }

    /// Returns whether the next message must be a proof.
    pub(crate) fn awaits_proof(&self) -> bool {
        matches!(self.state, State::Challenged(_))
    }

    /// Handles the body of a message. Returns the body of the answer, if there is one, and the reason if the dialogue
    /// ends.
    pub fn hear(&mut self, body: &[u8]) -> (Option<Vec<u8>>, Option<End>) {
        match self.take_turn(body) {
            Ok(body) => (Some(body), None),
            Err(end) => {
                self.close();
                let last = match end {
                    End::Refused(refusal) => Some(Message::Refuse(refusal).encode()),
                    _ => None,
                };
                (last, Some(end))
            }
        }
    }

    fn take_turn(&mut self, body: &[u8]) -> Result<Vec<u8>, End> {
        match &mut self.state {
            State::Silent => self.challenge(body),
            State::Challenged(nonces) => {
                let nonces = *nonces;
                self.welcome(nonces, body)
            }
            State::Greeted(connection, session) => {
                let connection = *connection;
                let message = session.open(body).and_then(Message::decode).map_err(End::Wire)?;
                let answer = self.answer(connection, message)?.encode();
                match &mut self.state {
                    State::Greeted(_, session) => Ok(session.seal(&answer)),
                    _ => Err(End::OutOfTurn),
                }
            }
            State::Over => Err(End::OutOfTurn),
        }
    }

    fn challenge(&mut self, body: &[u8]) -> Result<Vec<u8>, End> {
        let Message::Hello { version, nonce } = Message::decode(body).map_err(End::Wire)? else {
            return Err(End::OutOfTurn);
        };
        if version != VERSION {
            return Err(End::Refused(Refusal::Version(VERSION)));
        }
        let ours = fresh().map_err(End::Random)?;
        self.state = State::Challenged([nonce, ours]);
        let challenge = Message::Challenge {
            nonce: ours,
            secret: self.desk.secret.is_some(),
        };
        Ok(challenge.encode())
    }

    fn welcome(&mut self, nonces: [Nonce; 2], body: &[u8]) -> Result<Vec<u8>, End> {
        let Message::Proof { tag, to, port } = Message::decode(body).map_err(End::Wire)? else {
            return Err(End::OutOfTurn);
        };
        let desk = Arc::clone(&self.desk);
        let greeting = Greeting {
            secret: desk.secret.as_ref(),
            nonces,
            to,
            client: &port,
        };
        // Until these checks have passed, the node opens no queue pair, and tells nothing about its memory.
        if !greeting.proves(&tag) {
            return Err(End::Refused(Refusal::Secret));
        }
        if to != self.here && !desk.known_as.contains(&to) {
            return Err(End::Refused(Refusal::Address));
        }
        let opened = desk.fabric.open(&port);
        let (opened, node) = opened.map_err(|error| {
            if desk.clients_lines.may(Instant::now()) {
                tracing::warn!(%error, "no queue pair for a client");
            }
            End::Refused(Refusal::Device)
        })?;
        let (connection, boot) = desk.ledger.with(|l| (l.connect(opened, self.host), l.boot()));
        let welcoming = Welcoming { boot, node: &node };
        let session = greeting.session(Side::Node, welcoming);
        let tag = greeting.welcome(welcoming);
        self.state = State::Greeted(connection, session);
        Ok(Message::Welcome {
            tag,
            boot,
            port: node,
        }
        .encode())
    }

    fn answer(&self, connection: Connection, message: Message) -> Result<Message, End> {
        let desk = &self.desk;
        let answer = match message {
            Message::Enter(entrance) => {
                let answer = desk.ledger.with(|l| l.enter(connection, entrance));
                desk.metrics.entered(&answer);
                match answer {
                    Answer::Claimed { .. } | Answer::Done => tracing::debug!(?entrance, ?answer, "entered"),
                    _ if desk.clients_lines.may(Instant::now()) => {
                        tracing::warn!(?entrance, ?answer, "not entered");
                    }
                    _ => {}
                }
                answer
            }
            Message::Call { caller, request } => {
                let answer = desk.ledger.with(|l| l.answer(connection, caller, request));
                desk.metrics.answered(&request, &answer);
                self.log(caller, &request, &answer);
                answer
            }
            _ => return Err(End::OutOfTurn),
        };
        Ok(Message::Answer(answer))
    }

    /// Logs a request and its answer. Logs fences as information and refused requests as warnings, unless there are too
    /// many lines. Logs all other requests at the debug level.
    fn log(&self, caller: u16, request: &Request, answer: &Answer) {
        let is_fence = matches!(request, Request::Fence(_) | Request::FenceGroup { .. });
        let is_refused = matches!(
            answer,
            Answer::Fenced | Answer::NotYours | Answer::Failed | Answer::OutOfMemory { .. }
        );
        if !is_fence && !is_refused {
            tracing::debug!(caller, ?request, ?answer, "answered");
        } else if self.desk.clients_lines.may(Instant::now()) {
            match is_fence {
                true => tracing::info!(caller, ?request, ?answer, "fence"),
                false => tracing::warn!(caller, ?request, ?answer, "refused"),
            }
        }
    }

    fn close(&mut self) {
        if let State::Greeted(connection, _) = core::mem::replace(&mut self.state, State::Over) {
            self.desk.ledger.with(|l| l.disconnect(connection));
        }
    }
}

impl<F: Fabric> fmt::Debug for Dialogue<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialogue")
            .field("greeted", &self.has_greeted())
            .finish_non_exhaustive()
    }
}

impl<F: Fabric> Drop for Dialogue<F> {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests;
