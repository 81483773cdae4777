//! The client's side: greets a node, then sends it one request at a time.

use core::fmt;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::frame;
use crate::greeting::{Greeting, Session, Side, Welcoming};
use crate::secret::{Secret, fresh};
use crate::wire::{Answer, Entrance, Message, Port, Refusal, Request, VERSION, WireError};

/// The usual `patience` of [`Client::connect`]: the time for connecting to a node and greeting it, and then the time
/// for each answer.
pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(2);

/// A connection to a node, after the greeting.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    session: Session,
    patience: Duration,
    /// Whether a request has failed. After an error the client sends no more requests, because a late reply
    /// would be mistaken for the reply to the next request.
    broken: bool,
}

/// A node's description of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Welcomed {
    /// The boot number: a random number that the node draws at each start. The node's memory is empty then.
    pub boot: u64,
    /// The node's queue pair, and the memory that it gives access to.
    pub port: Port,
}

/// The reason why a node could not be greeted, or a request failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The node could not be reached, did not answer in time, or ended the connection; or this machine has no random
    /// bytes.
    Io(io::Error),
    /// The node sent bytes that are not a message of this protocol, or a message with a wrong authentication code.
    Wire(WireError),
    /// The node sent a message that does not belong to the request.
    OutOfTurn,
    /// The node refused the connection.
    Refused(Refusal),
    /// The node requires a secret, and none was given.
    SecretNeeded,
    /// The node does not know the secret, so it belongs to another cluster.
    Impostor,
    /// An earlier request failed, so the connection is unusable, because the late answer could still arrive.
    Broken,
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(e) if e.kind() == io::ErrorKind::TimedOut => f.write_str("no answer in time"),
            Self::Io(e) => e.fmt(f),
            Self::Wire(e @ WireError::Forged) => e.fmt(f),
            Self::Wire(e) => write!(f, "not a memory node: {e}"),
            Self::OutOfTurn => f.write_str("not a memory node: it answered with an unexpected message"),
            Self::Refused(refusal) => write!(f, "refused: {refusal}"),
            Self::SecretNeeded => f.write_str("it requires a secret"),
            Self::Impostor => f.write_str("it does not know the secret"),
            Self::Broken => f.write_str("an earlier request on this connection failed"),
        }
    }
}

impl core::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Io(e) => Some(e),
            Self::Wire(e) => Some(e),
            _ => None,
        }
    }
}

impl From<io::Error> for ClientError {
    fn from(e: io::Error) -> Self {
        match e.downcast::<WireError>() {
            Ok(wire) => Self::Wire(wire),
            Err(e) => Self::Io(e),
        }
    }
}

impl Client {
    /// Connects to the node at `address` and greets it with the queue pair `port`. Tries again if the node has too many
    /// connections, or ends this one during the greeting.
    ///
    /// # Errors
    /// Returns [`ClientError`] if the node cannot be reached and greeted within `patience`, if it refuses the client,
    /// if it requires a secret and `secret` is `None`, or if it cannot prove that it knows the secret.
    pub fn connect(
        address: SocketAddr,
        secret: Option<&Secret>,
        port: &Port,
        patience: Duration,
    ) -> Result<(Self, Welcomed), ClientError> {
        let deadline = Instant::now() + patience;
        loop {
            let result = Self::greet(address, secret, port, deadline, patience);
            let displaced = match &result {
                Err(ClientError::Refused(Refusal::Busy)) => true,
                // A node that ends this connection in favour of a new one may have been unable to send the reason.
                Err(ClientError::Io(e)) => matches!(
                    e.kind(),
                    io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof
                ),
                _ => false,
            };
            if !displaced || Instant::now() >= deadline {
                return result;
            }
            crate::pause(Duration::from_millis(20));
        }
    }

    fn greet(
        address: SocketAddr,
        secret: Option<&Secret>,
        port: &Port,
        deadline: Instant,
        patience: Duration,
    ) -> Result<(Self, Welcomed), ClientError> {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut stream = TcpStream::connect_timeout(&address, left.max(Duration::from_millis(1)))?;
        stream.set_nodelay(true)?;
        let ours = fresh()?;
        let hello = Message::Hello {
            version: VERSION,
            nonce: ours,
        };
        frame::send(&mut stream, &hello.encode(), patience)?;
        let (theirs, wanted) = match next(&mut stream, deadline)? {
            Message::Challenge { nonce, secret } => (nonce, secret),
            Message::Refuse(refusal) => return Err(ClientError::Refused(refusal)),
            _ => return Err(ClientError::OutOfTurn),
        };
        if wanted && secret.is_none() {
            return Err(ClientError::SecretNeeded);
        }
        let greeting = Greeting {
            secret,
            nonces: [ours, theirs],
            to: address.into(),
            client: port,
        };
        let proof = Message::Proof {
            tag: greeting.proof(),
            to: greeting.to,
            port: port.clone(),
        };
        frame::send(&mut stream, &proof.encode(), patience)?;
        match next(&mut stream, deadline)? {
            Message::Welcome { tag, boot, port } => {
                let welcoming = Welcoming { boot, node: &port };
                if !greeting.welcomes(welcoming, &tag) {
                    return Err(ClientError::Impostor);
                }
                let client = Self {
                    stream,
                    session: greeting.session(Side::Client, welcoming),
                    patience,
                    broken: false,
                };
                Ok((client, Welcomed { boot, port }))
            }
            // A node without a secret accepts only proofs of clients without a secret.
            Message::Refuse(Refusal::Secret) if !wanted => Err(ClientError::Impostor),
            Message::Refuse(refusal) => Err(ClientError::Refused(refusal)),
            _ => Err(ClientError::OutOfTurn),
        }
    }

    /// Claims an id for this connection or attaches a client to it, and waits for the answer.
    ///
    /// # Errors
    /// Returns [`ClientError`] under the same conditions as [`Client::call`].
    pub fn enter(&mut self, entry: Entrance) -> Result<Answer, ClientError> {
        self.once(&Message::Enter(entry))
    }

    /// Sends a request on behalf of client `caller`, and waits for the answer.
    ///
    /// # Errors
    /// Returns [`ClientError`] if no valid answer arrives in time, or an earlier request failed. The node may have
    /// carried out the request nevertheless, and this connection cannot be used any more.
    pub fn call(&mut self, caller: u16, request: Request) -> Result<Answer, ClientError> {
        self.once(&Message::Call { caller, request })
    }

    fn once(&mut self, message: &Message) -> Result<Answer, ClientError> {
        if self.broken {
            return Err(ClientError::Broken);
        }
        let answer = self.ask(message);
        if answer.is_err() {
            self.broken = true;
            // The node notices this at once, and frees the state of this connection.
            let _ = self.stream.shutdown(Shutdown::Both);
        }
        answer
    }

    fn ask(&mut self, message: &Message) -> Result<Answer, ClientError> {
        let sealed = self.session.seal(&message.encode());
        frame::send(&mut self.stream, &sealed, self.patience)?;
        let sealed = next_body(&mut self.stream, Instant::now() + self.patience)?;
        let body = self.session.open(&sealed).map_err(ClientError::Wire)?;
        match Message::decode(body).map_err(ClientError::Wire)? {
            Message::Answer(answer) => Ok(answer),
            _ => Err(ClientError::OutOfTurn),
        }
    }

    /// Waits until `of` connections to this node have called this with the same `place`, but no longer than `most`.
    /// `caller` is any client of this connection. Returns whether all connections have arrived.
    ///
    /// # Errors
    /// Returns [`ClientError`] under the same conditions as [`Client::call`].
    pub fn meet(&mut self, caller: u16, place: u64, of: u16, most: Duration) -> Result<bool, ClientError> {
        let deadline = Instant::now() + most;
        loop {
            match self.call(caller, Request::Meet { place, of })? {
                Answer::Met { arrived } if arrived >= of => return Ok(true),
                Answer::Met { .. } if Instant::now() < deadline => crate::pause(Duration::from_millis(2)),
                Answer::Met { .. } => return Ok(false),
                _ => return Err(ClientError::OutOfTurn),
            }
        }
    }
}

fn next(stream: &mut TcpStream, deadline: Instant) -> Result<Message, ClientError> {
    Message::decode(&next_body(stream, deadline)?).map_err(ClientError::Wire)
}

fn next_body(stream: &mut TcpStream, deadline: Instant) -> Result<Vec<u8>, ClientError> {
    let body = frame::receive(stream, deadline)?;
    Ok(body.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?)
}
