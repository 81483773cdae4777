//! One connection of a node. It passes received bytes to a dialogue and sends the answers, and never blocks.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::{Duration, Instant};

use mio::net::TcpStream;

use crate::backoff::Backoff;
use crate::dialogue::{Dialogue, End, Fabric};
use crate::doorman::{Doorman, Host};
use crate::frame::{Got, Inbox, frame};
use crate::limits::Limits;
use crate::wire::{Message, Refusal, WireError};

/// Maximum number of messages that a connection handles in a row, before the thread serves other connections.
const MESSAGES: usize = 16;
/// Time after which a host counts as failed, if it does not answer probes or does not acknowledge bytes.
pub(crate) const VANISHED: Duration = Duration::from_secs(25);

/// The reason why a connection ended.
#[derive(Debug)]
pub(crate) enum Left {
    /// The client closed it.
    Closed,
    /// A new connection has displaced this one.
    Displaced,
    Ended(End),
    Broken(io::Error),
}

/// The state of a connection after its turn.
#[derive(Debug)]
pub(crate) enum Progress {
    /// It waits for an event of its stream, or until [`Peer::deadline`].
    Waits,
    /// It has more work; it was interrupted so that other connections are served.
    Again,
    Over(Left),
}

/// The state that connections share.
pub(crate) struct Shared {
    pub(crate) doorman: Doorman,
    pub(crate) backoff: Backoff,
    pub(crate) limits: Limits,
}

/// Bytes that the stream has not accepted yet.
#[derive(Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    taken: usize,
}

impl Outbox {
    pub(crate) fn put(&mut self, bytes: Vec<u8>) {
        *self = Self { bytes, taken: 0 };
    }

    /// Writes as many bytes as the stream accepts. Returns whether it has accepted all of them.
    pub(crate) fn flush(&mut self, to: &mut impl Write) -> io::Result<bool> {
        while let Some(rest) = self.bytes.get(self.taken..).filter(|rest| !rest.is_empty()) {
            match to.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(some) => self.taken += some,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }
}

/// A connection.
pub(crate) struct Peer<F: Fabric> {
    pub(crate) number: usize,
    pub(crate) address: SocketAddr,
    pub(crate) host: Host,
    pub(crate) stream: TcpStream,
    dialogue: Dialogue<F>,
    inbox: Inbox,
    outbox: Outbox,
    /// The deadline of the greeting, of an incomplete message, or of an answer that the peer has not accepted yet.
    until: Option<Instant>,
    /// A proof, and the time until which it waits because its host has sent wrong proofs.
    held: Option<(Instant, Vec<u8>)>,
    /// The reason why this connection ends after its last message is sent.
    end: Option<End>,
}

impl<F: Fabric> Peer<F> {
    pub(crate) fn new(
        number: usize,
        stream: TcpStream,
        address: SocketAddr,
        dialogue: Dialogue<F>,
        greeting_ends: Option<Instant>,
    ) -> Self {
        Self {
            number,
            address,
            host: address.ip().into(),
            stream,
            dialogue,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            until: greeting_ends,
            held: None,
            end: None,
        }
    }

    pub(crate) fn has_greeted(&self) -> bool {
        self.dialogue.has_greeted()
    }

    /// Returns the time at which this connection must be served, even without an event.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let held = self.held.as_ref().map(|(until, _)| *until);
        [held, self.until].into_iter().flatten().min()
    }

    /// Reads and answers as much as is possible without waiting.
    pub(crate) fn turn(&mut self, now: Instant, shared: &mut Shared) -> Progress {
        let turn = self.messages(now, shared);
        // Check the deadline after reading, because bytes that have already arrived are in time, even if this thread is
        // late.
        let late = self.until.is_some_and(|until| until <= now);
        match turn {
            Ok(Progress::Waits) if late => Progress::Over(Left::Broken(io::ErrorKind::TimedOut.into())),
            Ok(turn) => turn,
            Err(error) => Progress::Over(match error.downcast::<WireError>() {
                Ok(wire) => Left::Ended(End::Wire(wire)),
                Err(error) => Left::Broken(error),
            }),
        }
    }

    /// Handles messages in the order of the protocol. An answer is sent completely before the next message is read, and
    /// a connection ends only after its last answer is sent.
    fn messages(&mut self, now: Instant, shared: &mut Shared) -> io::Result<Progress> {
        for _ in 0..MESSAGES {
            if !self.outbox.flush(&mut self.stream)? {
                self.until = self.until.or(now.checked_add(shared.limits.message));
                return Ok(Progress::Waits);
            }
            // Between two messages a client may be silent for any time.
            if self.has_greeted() && !self.inbox.has_begun() {
                self.until = None;
            }
            if let Some(end) = self.end.take() {
                return Ok(Progress::Over(Left::Ended(end)));
            }
            match self.held.take() {
                Some((until, body)) if until <= now => self.hear(&body, now, shared),
                Some(held) => {
                    self.held = Some(held);
                    return Ok(Progress::Waits);
                }
                None => match self.inbox.read(&mut self.stream) {
                    Ok(Got::Part) if self.has_greeted() => {
                        self.until = self.until.or(now.checked_add(shared.limits.message));
                    }
                    Ok(Got::Part) => {}
                    Ok(Got::Body(body)) => self.hear_or_hold(body, now, shared),
                    Ok(Got::End) => return Ok(Progress::Over(Left::Closed)),
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Progress::Waits),
                    Err(e) => return Err(e),
                },
            }
        }
        Ok(Progress::Again)
    }

    /// Handles a message. A proof of a host that has sent wrong proofs waits first.
    fn hear_or_hold(&mut self, body: Vec<u8>, now: Instant, shared: &mut Shared) {
        let delay = shared.backoff.delay(self.host, now);
        if self.dialogue.awaits_proof() && !delay.is_zero() {
            self.held = now.checked_add(delay).map(|until| (until, body));
        } else {
            self.hear(&body, now, shared);
        }
    }

    /// Passes a message to the dialogue and takes its answer. If the peer has greeted with this message, but too many
    /// peers have greeted already, refuses the peer instead.
    fn hear(&mut self, body: &[u8], now: Instant, shared: &mut Shared) {
        let was_stranger = !self.has_greeted();
        let (mut message, mut end) = self.dialogue.hear(body);
        if was_stranger && self.has_greeted() && !shared.doorman.greet(self.number, self.host) {
            let busy = Refusal::Busy;
            (message, end) = (Some(Message::Refuse(busy).encode()), Some(End::Refused(busy)));
        }
        if matches!(end, Some(End::Refused(Refusal::Secret))) {
            shared.backoff.note_wrong(self.host, now);
        }
        if let Some(message) = message {
            self.outbox.put(frame(&message));
        }
        self.end = end;
    }

    /// Closes the connection. Before that, sends `last` if the stream accepts it at once.
    pub(crate) fn close(mut self, last: Option<Refusal>) {
        if let Some(refusal) = last {
            // If a connection is closed while received bytes are unread, the system discards the bytes that it has not
            // sent. So read first.
            let _ = self.stream.read(&mut [0; 512]);
            let _ = self.stream.write(&frame(&Message::Refuse(refusal).encode()));
        }
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Makes the system end a connection whose host has failed: such a host neither sends nor acknowledges anything.
pub(crate) fn notice_dead_hosts(stream: socket2::SockRef<'_>) -> io::Result<()> {
    // While no bytes wait for an acknowledgement, the system sends probes.
    let alive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    stream.set_tcp_keepalive(&alive)?;
    // While bytes wait for an acknowledgement, the system does not probe, but would send the bytes again for many
    // minutes. This option limits that time.
    #[cfg(target_os = "linux")]
    stream.set_tcp_user_timeout(Some(VANISHED))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vanished_host_is_noticed_with_and_without_an_answer_under_way() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let socket = socket2::SockRef::from(&stream);
        notice_dead_hosts(socket2::SockRef::from(&stream)).unwrap();
        assert!(socket.keepalive().unwrap());
        let probes = socket.tcp_keepalive_interval().unwrap() * socket.tcp_keepalive_retries().unwrap();
        assert_eq!(socket.tcp_keepalive_time().unwrap() + probes, VANISHED);
        #[cfg(target_os = "linux")]
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(VANISHED));
    }

    #[test]
    fn an_outbox_keeps_what_the_stream_does_not_take() {
        struct Narrow(Vec<u8>, usize);
        impl Write for Narrow {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                if self.1 == 0 {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                let some = bytes.len().min(self.1);
                self.0.extend_from_slice(&bytes[..some]);
                self.1 -= some;
                Ok(some)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (mut outbox, mut to) = (Outbox::default(), Narrow(Vec::new(), 3));
        outbox.put(b"message".to_vec());
        assert!(!outbox.flush(&mut to).unwrap());
        to.1 = 100;
        assert!(outbox.flush(&mut to).unwrap() && outbox.flush(&mut to).unwrap());
        assert_eq!(to.0, b"message");
    }
}
