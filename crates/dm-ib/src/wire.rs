//! Messages between clients and memory nodes over TCP: queue-pair data once, then control requests.
//!
//! A message is a 32-bit little-endian length of at most [`BODY_MAX`], then a tag byte, then fields of fixed size.
//! Decoding is total: any bytes give a message or [`WireError`].

use core::fmt;
use std::io::{self, Read, Write};

use crate::ffi::Peer;

/// Bytes that a message may have behind its length.
const BODY_MAX: usize = 128;
/// First word of both greetings: the format and its version.
const MAGIC: u64 = u64::from_le_bytes(*b"dmkitIB1");

/// Memory that a node lends: where it begins, with which key, how much.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Window {
    pub(crate) address: u64,
    pub(crate) key: u32,
    pub(crate) bytes: u64,
}

/// What is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// Client: my queue pair.
    Hello(Peer),
    /// Node: mine, and my memories.
    Welcome { peer: Peer, host: Window, chip: Window },
    /// Client: request of `caller` (0: of none yet).
    Call { caller: u16, request: Request },
    /// Node: its answer.
    Answer(Answer),
}

/// What is asked of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// A client id for this connection.
    Claim,
    /// Another node has given `client` to this connection.
    Attach { client: u16 },
    /// The client is gone.
    Release { client: u16 },
    /// Fresh memory.
    Chunk { bytes: u64 },
    /// How much is handed out.
    Describe,
    /// The caller's lease begins anew.
    Join,
    /// The caller's lease ends.
    Leave,
    /// Nothing that `client` does has an effect any more.
    Fence { client: u16 },
}

/// What a node answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Claimed {
        client: u16,
    },
    NoIdLeft,
    Chunk {
        offset: u64,
    },
    OutOfMemory {
        left: u64,
    },
    Region {
        bytes: u64,
        used: u64,
    },
    Joined {
        epoch: u32,
        lease_nanos: u64,
    },
    Done,
    Fenced,
    NoSuchClient,
    /// The node's device refused.
    Failed,
}

/// Bytes that are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WireError {
    /// Longer than any message, or empty.
    Length(u32),
    /// The body ends early or late.
    Cut,
    /// No message begins with this tag.
    Tag(u8),
    /// Another format or version.
    Magic(u64),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(bytes) => write!(f, "a message of {bytes} bytes"),
            Self::Cut => f.write_str("a message whose length does not fit its kind"),
            Self::Tag(tag) => write!(f, "a message of unknown kind {tag}"),
            Self::Magic(found) => write!(f, "no dmkit greeting of this version ({found:#018x})"),
        }
    }
}

impl core::error::Error for WireError {}

impl From<WireError> for io::Error {
    fn from(e: WireError) -> Self {
        Self::new(io::ErrorKind::InvalidData, e)
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn tag(tag: u8) -> Self {
        Self(vec![tag])
    }
    fn u16(mut self, v: u16) -> Self {
        self.0.extend_from_slice(&v.to_le_bytes());
        self
    }
    fn u32(mut self, v: u32) -> Self {
        self.0.extend_from_slice(&v.to_le_bytes());
        self
    }
    fn u64(mut self, v: u64) -> Self {
        self.0.extend_from_slice(&v.to_le_bytes());
        self
    }
    fn peer(mut self, p: &Peer) -> Self {
        self = self.u32(p.number).u32(p.first_packet);
        self.0.extend_from_slice(&p.gid);
        self = self.u16(p.lid);
        self.0.extend_from_slice(&[p.mtu, p.depth]);
        self
    }
    fn window(self, w: &Window) -> Self {
        self.u64(w.address).u32(w.key).u64(w.bytes)
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(WireError::Cut)?;
        self.0 = tail;
        Ok(*head)
    }
    fn u8(&mut self) -> Result<u8, WireError> {
        Ok(self.bytes::<1>()?[0])
    }
    fn u16(&mut self) -> Result<u16, WireError> {
        self.bytes().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Result<u32, WireError> {
        self.bytes().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Result<u64, WireError> {
        self.bytes().map(u64::from_le_bytes)
    }
    fn magic(&mut self) -> Result<(), WireError> {
        match self.u64()? {
            MAGIC => Ok(()),
            other => Err(WireError::Magic(other)),
        }
    }
    fn peer(&mut self) -> Result<Peer, WireError> {
        Ok(Peer {
            number: self.u32()?,
            first_packet: self.u32()?,
            gid: self.bytes()?,
            lid: self.u16()?,
            mtu: self.u8()?,
            depth: self.u8()?,
        })
    }
    fn window(&mut self) -> Result<Window, WireError> {
        Ok(Window {
            address: self.u64()?,
            key: self.u32()?,
            bytes: self.u64()?,
        })
    }
}

impl Message {
    fn encode(&self) -> Vec<u8> {
        let writer = match self {
            Self::Hello(peer) => Writer::tag(1).u64(MAGIC).peer(peer),
            Self::Welcome { peer, host, chip } => {
                Writer::tag(2).u64(MAGIC).peer(peer).window(host).window(chip)
            }
            Self::Call { caller, request } => {
                let call = |kind| Writer::tag(kind).u16(*caller);
                match *request {
                    Request::Claim => call(10),
                    Request::Attach { client } => call(11).u16(client),
                    Request::Release { client } => call(12).u16(client),
                    Request::Chunk { bytes } => call(13).u64(bytes),
                    Request::Describe => call(14),
                    Request::Join => call(15),
                    Request::Leave => call(16),
                    Request::Fence { client } => call(17).u16(client),
                }
            }
            Self::Answer(answer) => match *answer {
                Answer::Claimed { client } => Writer::tag(30).u16(client),
                Answer::NoIdLeft => Writer::tag(31),
                Answer::Chunk { offset } => Writer::tag(32).u64(offset),
                Answer::OutOfMemory { left } => Writer::tag(33).u64(left),
                Answer::Region { bytes, used } => Writer::tag(34).u64(bytes).u64(used),
                Answer::Joined { epoch, lease_nanos } => Writer::tag(35).u32(epoch).u64(lease_nanos),
                Answer::Done => Writer::tag(36),
                Answer::Fenced => Writer::tag(37),
                Answer::NoSuchClient => Writer::tag(38),
                Answer::Failed => Writer::tag(39),
            },
        };
        writer.0
    }

    fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader(body);
        let tag = r.u8()?;
        let message = match tag {
            1 => {
                r.magic()?;
                Self::Hello(r.peer()?)
            }
            2 => {
                r.magic()?;
                Self::Welcome {
                    peer: r.peer()?,
                    host: r.window()?,
                    chip: r.window()?,
                }
            }
            10..=17 => {
                let caller = r.u16()?;
                let request = match tag {
                    10 => Request::Claim,
                    11 => Request::Attach { client: r.u16()? },
                    12 => Request::Release { client: r.u16()? },
                    13 => Request::Chunk { bytes: r.u64()? },
                    14 => Request::Describe,
                    15 => Request::Join,
                    16 => Request::Leave,
                    _ => Request::Fence { client: r.u16()? },
                };
                Self::Call { caller, request }
            }
            30 => Self::Answer(Answer::Claimed { client: r.u16()? }),
            31 => Self::Answer(Answer::NoIdLeft),
            32 => Self::Answer(Answer::Chunk { offset: r.u64()? }),
            33 => Self::Answer(Answer::OutOfMemory { left: r.u64()? }),
            34 => Self::Answer(Answer::Region {
                bytes: r.u64()?,
                used: r.u64()?,
            }),
            35 => Self::Answer(Answer::Joined {
                epoch: r.u32()?,
                lease_nanos: r.u64()?,
            }),
            36 => Self::Answer(Answer::Done),
            37 => Self::Answer(Answer::Fenced),
            38 => Self::Answer(Answer::NoSuchClient),
            39 => Self::Answer(Answer::Failed),
            other => return Err(WireError::Tag(other)),
        };
        if r.0.is_empty() {
            Ok(message)
        } else {
            Err(WireError::Cut)
        }
    }

    /// Sends it.
    pub(crate) fn send(&self, to: &mut impl Write) -> io::Result<()> {
        let body = self.encode();
        // In one piece, so that it travels in one packet.
        let mut frame = Vec::with_capacity(4 + body.len());
        frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
        frame.extend_from_slice(&body);
        to.write_all(&frame)
    }

    /// Receives one; `None` when the other side has closed the connection between two messages.
    pub(crate) fn receive(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut length = [0; 4];
        let mut got = 0;
        while got < 4 {
            match from.read(&mut length[got..]) {
                Ok(0) if got == 0 => return Ok(None),
                Ok(0) => return Err(WireError::Cut.into()),
                Ok(n) => got += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        let length = u32::from_le_bytes(length);
        let mut body = [0; BODY_MAX];
        let body = body
            .get_mut(..length as usize)
            .filter(|body| !body.is_empty())
            .ok_or(WireError::Length(length))?;
        from.read_exact(body)?;
        Ok(Some(Self::decode(body)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Message> {
        let peer = Peer {
            number: 0x0102_0304,
            first_packet: 5,
            gid: [7; 16],
            lid: 8,
            mtu: 3,
            depth: 16,
        };
        let window = Window {
            address: u64::MAX,
            key: 9,
            bytes: 1 << 40,
        };
        let requests = [
            Request::Claim,
            Request::Attach { client: 1 },
            Request::Release { client: 2 },
            Request::Chunk { bytes: 3 },
            Request::Describe,
            Request::Join,
            Request::Leave,
            Request::Fence { client: 4 },
        ];
        let answers = [
            Answer::Claimed { client: 1 },
            Answer::NoIdLeft,
            Answer::Chunk { offset: 2 },
            Answer::OutOfMemory { left: 3 },
            Answer::Region { bytes: 4, used: 5 },
            Answer::Joined {
                epoch: 6,
                lease_nanos: 7,
            },
            Answer::Done,
            Answer::Fenced,
            Answer::NoSuchClient,
            Answer::Failed,
        ];
        let mut all = vec![
            Message::Hello(peer),
            Message::Welcome {
                peer,
                host: window,
                chip: Window::default(),
            },
        ];
        all.extend(requests.map(|request| Message::Call { caller: 10, request }));
        all.extend(answers.map(Message::Answer));
        all
    }

    #[test]
    fn every_message_comes_back_and_no_part_of_one_does() {
        for message in all() {
            let mut bytes = Vec::new();
            message.send(&mut bytes).unwrap();
            assert!(bytes.len() <= 4 + BODY_MAX);
            let back = Message::receive(&mut &bytes[..]).unwrap();
            assert_eq!(back, Some(message));
            for cut in 1..bytes.len() {
                assert!(
                    Message::receive(&mut &bytes[..cut]).is_err(),
                    "{message:?}, {cut}"
                );
            }
            let mut longer = message.encode();
            longer.push(0);
            assert_eq!(Message::decode(&longer), Err(WireError::Cut));
        }
        assert_eq!(Message::receive(&mut &[][..]).unwrap(), None);
    }

    #[test]
    fn lengths_are_limited_and_strangers_are_named() {
        for length in [0u32, BODY_MAX as u32 + 1, u32::MAX] {
            let error = Message::receive(&mut &length.to_le_bytes()[..]).unwrap_err();
            assert_eq!(error.to_string(), WireError::Length(length).to_string());
        }
        let web = Message::decode(b"\x01GET / HT").unwrap_err();
        assert_eq!(web, WireError::Magic(u64::from_le_bytes(*b"GET / HT")));
        // Any bytes: an answer, never a panic.
        let mut state = 1u64;
        for _ in 0..20_000 {
            let body: Vec<u8> = (0..state % 90)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 56) as u8
                })
                .collect();
            state = state.wrapping_add(1);
            if let Ok(message) = Message::decode(&body) {
                assert_eq!(message.encode(), body);
            }
        }
    }
}
