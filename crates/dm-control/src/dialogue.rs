//! A node's side of one connection, without the network: it is given the bodies of messages, and returns
//! messages.

use core::fmt;
use std::io;
use std::time::Instant;

use dm_sync::{Arc, Mutex};

use crate::ledger::{Connection, Ledger, Ports};
use crate::lines::Lines;
use crate::metrics::Metrics;
use crate::secret::{Secret, Side, fresh};
use crate::wire::{Answer, Message, Nonce, Port, Refusal, Request, VERSION, WireError};

/// The node's device, as the control plane uses it.
pub trait Fabric: Ports + Send + Sync + 'static {
    /// Opens a queue pair and connects it to the client's, which `theirs` describes. Returns it with its
    /// description.
    ///
    /// # Errors
    /// Fails if the device has no queue pair left, or does not understand the description.
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
/// let (answer, end) = Dialogue::new(&desk).hear(&Message::Hello { version: VERSION, nonce }.encode());
/// assert!(matches!(answer, Some(Message::Challenge { secret: false, .. })) && end.is_none());
/// let (answer, end) = Dialogue::new(&desk).hear(&Message::Hello { version: 999, nonce }.encode());
/// assert_eq!(answer, Some(Message::Refuse(Refusal::Version(VERSION))));
/// assert!(matches!(end, Some(End::Refused(_))));
/// # Ok::<(), dm_control::StartError>(())
/// ```
pub struct Desk<F: Fabric> {
    pub(crate) ledger: Mutex<Ledger<F>>,
    pub(crate) fabric: Arc<F>,
    pub(crate) secret: Option<Secret>,
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

    /// Returns the limit on lines about a peer.
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
    Greeted(Connection),
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
    /// The peer was refused, and the refusal was sent to it.
    Refused(Refusal),
    /// The system has no random bytes.
    Random(io::Error),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wire(e) => e.fmt(f),
            Self::OutOfTurn => f.write_str("a message out of its turn"),
            Self::Refused(Refusal::Secret) => f.write_str("wrong secret"),
            Self::Refused(refusal) => write!(f, "refused: {refusal:?}"),
            Self::Random(e) => e.fmt(f),
        }
    }
}

/// The state of one connection. Dropping it ends its clients and its queue pair.
pub struct Dialogue<F: Fabric> {
    desk: Arc<Desk<F>>,
    state: State,
}

impl<F: Fabric> Dialogue<F> {
    /// Starts the dialogue of a new peer of `desk`.
    pub fn new(desk: &Arc<Desk<F>>) -> Self {
        Self {
            desk: Arc::clone(desk),
            state: State::Silent,
        }
    }

    /// Returns whether the peer has given the required proof, so that its queue pair is open.
    pub fn has_greeted(&self) -> bool {
        matches!(self.state, State::Greeted(_))
    }

    /// Returns whether the next message must be a proof.
    pub(crate) fn awaits_proof(&self) -> bool {
        matches!(self.state, State::Challenged(_))
    }

    /// Handles `body`. Returns the answer, and the reason if the dialogue ends.
    pub fn hear(&mut self, body: &[u8]) -> (Option<Message>, Option<End>) {
        match self.take_turn(body) {
            Ok(message) => (Some(message), None),
            Err(end) => {
                self.close();
                let last = match end {
                    End::Refused(refusal) => Some(Message::Refuse(refusal)),
                    _ => None,
                };
                (last, Some(end))
            }
        }
    }

    fn take_turn(&mut self, body: &[u8]) -> Result<Message, End> {
        let message = Message::decode(body).map_err(End::Wire)?;
        match (&self.state, message) {
            (
                State::Silent,
                Message::Hello {
                    version,
                    nonce: theirs,
                },
            ) => {
                if version != VERSION {
                    return Err(End::Refused(Refusal::Version(VERSION)));
                }
                let ours = fresh().map_err(End::Random)?;
                self.state = State::Challenged([theirs, ours]);
                Ok(Message::Challenge {
                    nonce: ours,
                    secret: self.desk.secret.is_some(),
                })
            }
            (State::Challenged(nonces), Message::Proof { tag, port }) => {
                let (desk, nonces) = (Arc::clone(&self.desk), *nonces);
                let none = Secret::default();
                let secret = desk.secret.as_ref().unwrap_or(&none);
                // Before this check, the node opens, allocates and discloses nothing.
                if !secret.verify(Side::Client, &nonces, &[port.bytes()], &tag) {
                    return Err(End::Refused(Refusal::Secret));
                }
                let opened = desk.fabric.open(&port);
                let (opened, port) = opened.map_err(|error| {
                    if desk.clients_lines.may(Instant::now()) {
                        tracing::warn!(%error, "no queue pair for a client");
                    }
                    End::Refused(Refusal::Device)
                })?;
                let (connection, boot) = desk.ledger.with(|l| (l.connect(opened), l.boot()));
                self.state = State::Greeted(connection);
                let tag = secret.prove(Side::Node, &nonces, &[&boot.to_le_bytes(), port.bytes()]);
                Ok(Message::Welcome { tag, boot, port })
            }
            (&State::Greeted(connection), Message::Enter(entrance)) => {
                let answer = self.desk.ledger.with(|l| l.enter(connection, entrance));
                self.desk.metrics.entered(&answer);
                match answer {
                    Answer::Claimed { .. } | Answer::Done => tracing::debug!(?entrance, ?answer, "entered"),
                    _ if self.desk.clients_lines.may(Instant::now()) => {
                        tracing::warn!(?entrance, ?answer, "not entered");
                    }
                    _ => {}
                }
                Ok(Message::Answer(answer))
            }
            (&State::Greeted(connection), Message::Call { caller, request }) => {
                let answer = self.desk.ledger.with(|l| l.answer(connection, caller, request));
                self.desk.metrics.answered(&request, &answer);
                self.log(caller, &request, &answer);
                Ok(Message::Answer(answer))
            }
            _ => Err(End::OutOfTurn),
        }
    }

    /// Logs requests that are rare and have consequences.
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
        if let State::Greeted(connection) = core::mem::replace(&mut self.state, State::Over) {
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
