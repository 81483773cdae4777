//! Messages: what is said between a client and a memory node, and how it is written down.
//!
//! A frame is a 32-bit little-endian length of 1 to [`BODY_MAX`], then the body: a tag byte, then fields of fixed size,
//! at most one of them of variable length, with a byte of length before it. Decoding is total: any bytes give a message
//! or a [`WireError`], and a message that was decoded encodes to the same bytes.

use core::fmt;

/// Bytes that a body may have.
pub const BODY_MAX: usize = 256;
/// Bytes of what a device has to tell another about a queue pair.
pub const PORT_MAX: usize = 128;
/// The version of this protocol; both sides must speak the same.
pub const VERSION: u16 = 2;
/// First word of a greeting.
const MAGIC: u64 = u64::from_le_bytes(*b"dmkitCTL");

/// Fresh random bytes of one side.
pub type Nonce = [u8; 32];
/// Proof that one side knows the secret.
pub type Tag = [u8; 32];

/// What a device tells another about a queue pair: at most [`PORT_MAX`] bytes that mean nothing here.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Port(Vec<u8>);

impl Port {
    /// `None` if there are too many.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Option<Self> {
        let bytes = bytes.into();
        (bytes.len() <= PORT_MAX).then_some(Self(bytes))
    }
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// What is sent.
///
/// ```
/// use dm_control::{Message, Request, WireError};
///
/// let call = Message::Call { caller: 1, request: Request::Chunk { bytes: 100 } };
/// let body = call.encode();
/// assert_eq!(Message::decode(&body), Ok(call));
/// assert_eq!(Message::decode(&body[..body.len() - 1]), Err(WireError::Cut));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Client: I speak this version.
    Hello {
        /// Which.
        version: u16,
        /// Never used before.
        nonce: Nonce,
    },
    /// Node: so do I; prove that you know the secret.
    Challenge {
        /// Never used before.
        nonce: Nonce,
        /// Whether there is a secret.
        secret: bool,
    },
    /// Client: here is the proof, and my queue pair.
    Proof {
        /// Over both nonces and the queue pair.
        tag: Tag,
        /// The queue pair.
        port: Port,
    },
    /// Node: I know it as well; here is mine.
    Welcome {
        /// Over both nonces, the boot and the queue pair.
        tag: Tag,
        /// Another number after each start of the node.
        boot: u64,
        /// The queue pair, and the memory that it leads to.
        port: Port,
    },
    /// Node: no, and good-bye.
    Refuse(Refusal),
    /// Client: a request of client `caller` (0: of none yet).
    Call {
        /// Whose.
        caller: u16,
        /// What.
        request: Request,
    },
    /// Node: its answer.
    Answer(Answer),
}

/// Why a node refuses a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It speaks this version.
    Version(u16),
    /// The proof is wrong.
    Secret,
    /// There are too many connections.
    Busy,
    /// Its device has no queue pair for the client.
    Device,
}

/// What is asked of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// A client id for this connection.
    Claim,
    /// The node whose boot is `giver` has given `client` to the process behind this connection.
    Attach {
        /// The id.
        client: u16,
        /// Of which membership.
        epoch: u32,
        /// The giver's boot.
        giver: u64,
    },
    /// The client is gone.
    Release {
        /// Which.
        client: u16,
    },
    /// Fresh memory.
    Chunk {
        /// How much.
        bytes: u64,
    },
    /// How much is handed out.
    Describe,
    /// The caller's lease begins anew.
    Join,
    /// The caller's lease ends.
    Leave,
    /// Nothing that `client` does has an effect any more.
    Fence {
        /// Whom.
        client: u16,
    },
    /// The caller belongs to `group`, and to no other.
    Enlist {
        /// Which.
        group: u16,
    },
    /// Nothing that any client of `group` does has an effect any more.
    FenceGroup {
        /// Which.
        group: u16,
    },
    /// This connection has come to `place`, where `of` connections meet; asked again until all are there.
    Meet {
        /// A name that all of them know.
        place: u64,
        /// How many.
        of: u16,
    },
}

/// What a node answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// To `Claim`.
    Claimed {
        /// The id.
        client: u16,
        /// Grows whenever the id is given out anew.
        epoch: u32,
    },
    /// To `Claim`: none is free, or this connection has too many.
    NoIdLeft,
    /// To `Chunk`.
    Chunk {
        /// Where it begins.
        offset: u64,
    },
    /// To `Chunk`.
    OutOfMemory {
        /// Bytes left.
        left: u64,
    },
    /// To `Describe`.
    Region {
        /// Bytes that there are.
        bytes: u64,
        /// Bytes handed out.
        used: u64,
    },
    /// To `Join`.
    Joined {
        /// Of the caller's membership.
        epoch: u32,
        /// How long a lease lasts.
        lease_nanos: u64,
    },
    /// Done.
    Done,
    /// The caller was fenced off.
    Fenced,
    /// There is no such client.
    NoSuchClient,
    /// The caller's id is none of this connection's.
    NotYours,
    /// To `Meet`.
    Met {
        /// How many are there.
        arrived: u16,
    },
    /// The node's device refused.
    Failed,
}

/// Bytes that are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WireError {
    /// Longer than any message, or empty.
    Length(u32),
    /// The body ends early or late.
    Cut,
    /// No message begins with this tag.
    Tag(u8),
    /// A field of this value means nothing.
    Field(u8),
    /// No greeting of this protocol.
    Magic(u64),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(bytes) => write!(f, "a message of {bytes} bytes"),
            Self::Cut => f.write_str("a message whose length does not fit its kind"),
            Self::Tag(tag) => write!(f, "a message of unknown kind {tag}"),
            Self::Field(value) => write!(f, "a field of meaningless value {value}"),
            Self::Magic(found) => write!(f, "no greeting of this protocol ({found:#018x})"),
        }
    }
}

impl core::error::Error for WireError {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(known) => write!(f, "it speaks version {known} of the protocol, not {VERSION}"),
            Self::Secret => f.write_str("the secret is another one"),
            Self::Busy => f.write_str("it has too many connections"),
            Self::Device => f.write_str("its device has no queue pair left"),
        }
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn tag(tag: u8) -> Self {
        let mut bytes = Vec::with_capacity(BODY_MAX);
        bytes.push(tag);
        Self(bytes)
    }
    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }
    fn u16(self, v: u16) -> Self {
        self.bytes(&v.to_le_bytes())
    }
    fn u32(self, v: u32) -> Self {
        self.bytes(&v.to_le_bytes())
    }
    fn u64(self, v: u64) -> Self {
        self.bytes(&v.to_le_bytes())
    }
    fn port(self, p: &Port) -> Self {
        // At most PORT_MAX.
        self.bytes(&[p.0.len() as u8]).bytes(&p.0)
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
        let [byte] = self.bytes()?;
        Ok(byte)
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
    fn flag(&mut self) -> Result<bool, WireError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(WireError::Field(other)),
        }
    }
    fn port(&mut self) -> Result<Port, WireError> {
        let length = self.u8()?;
        if usize::from(length) > PORT_MAX {
            return Err(WireError::Field(length));
        }
        let (head, tail) = self
            .0
            .split_at_checked(usize::from(length))
            .ok_or(WireError::Cut)?;
        self.0 = tail;
        Ok(Port(head.to_vec()))
    }
}

impl Message {
    /// The body.
    pub fn encode(&self) -> Vec<u8> {
        let writer = match self {
            Self::Hello { version, nonce } => Writer::tag(1).u64(MAGIC).u16(*version).bytes(nonce),
            Self::Challenge { nonce, secret } => Writer::tag(2).bytes(nonce).bytes(&[u8::from(*secret)]),
            Self::Proof { tag, port } => Writer::tag(3).bytes(tag).port(port),
            Self::Welcome { tag, boot, port } => Writer::tag(4).bytes(tag).u64(*boot).port(port),
            Self::Refuse(refusal) => match *refusal {
                Refusal::Version(known) => Writer::tag(5).u16(known),
                Refusal::Secret => Writer::tag(6),
                Refusal::Busy => Writer::tag(7),
                Refusal::Device => Writer::tag(8),
            },
            Self::Call { caller, request } => request.encode(*caller),
            Self::Answer(answer) => answer.encode(),
        };
        writer.0
    }

    /// The message of a body.
    ///
    /// # Errors
    /// [`WireError`], for every other bytes.
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader(body);
        let tag = r.u8()?;
        let message = match tag {
            1 => {
                r.magic()?;
                Self::Hello {
                    version: r.u16()?,
                    nonce: r.bytes()?,
                }
            }
            2 => Self::Challenge {
                nonce: r.bytes()?,
                secret: r.flag()?,
            },
            3 => Self::Proof {
                tag: r.bytes()?,
                port: r.port()?,
            },
            4 => Self::Welcome {
                tag: r.bytes()?,
                boot: r.u64()?,
                port: r.port()?,
            },
            5 => Self::Refuse(Refusal::Version(r.u16()?)),
            6 => Self::Refuse(Refusal::Secret),
            7 => Self::Refuse(Refusal::Busy),
            8 => Self::Refuse(Refusal::Device),
            10..=20 => Self::Call {
                caller: r.u16()?,
                request: Request::decode(tag, &mut r)?,
            },
            _ => Self::Answer(Answer::decode(tag, &mut r)?),
        };
        if r.0.is_empty() {
            Ok(message)
        } else {
            Err(WireError::Cut)
        }
    }
}

impl Request {
    fn encode(&self, caller: u16) -> Writer {
        let call = |kind| Writer::tag(kind).u16(caller);
        match *self {
            Self::Claim => call(10),
            Self::Attach { client, epoch, giver } => call(11).u16(client).u32(epoch).u64(giver),
            Self::Release { client } => call(12).u16(client),
            Self::Chunk { bytes } => call(13).u64(bytes),
            Self::Describe => call(14),
            Self::Join => call(15),
            Self::Leave => call(16),
            Self::Fence { client } => call(17).u16(client),
            Self::Enlist { group } => call(18).u16(group),
            Self::FenceGroup { group } => call(19).u16(group),
            Self::Meet { place, of } => call(20).u64(place).u16(of),
        }
    }

    fn decode(tag: u8, r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match tag {
            10 => Self::Claim,
            11 => Self::Attach {
                client: r.u16()?,
                epoch: r.u32()?,
                giver: r.u64()?,
            },
            12 => Self::Release { client: r.u16()? },
            13 => Self::Chunk { bytes: r.u64()? },
            14 => Self::Describe,
            15 => Self::Join,
            16 => Self::Leave,
            17 => Self::Fence { client: r.u16()? },
            18 => Self::Enlist { group: r.u16()? },
            19 => Self::FenceGroup { group: r.u16()? },
            20 => Self::Meet {
                place: r.u64()?,
                of: r.u16()?,
            },
            other => return Err(WireError::Tag(other)),
        })
    }
}

impl Answer {
    fn encode(&self) -> Writer {
        match *self {
            Self::Claimed { client, epoch } => Writer::tag(30).u16(client).u32(epoch),
            Self::NoIdLeft => Writer::tag(31),
            Self::Chunk { offset } => Writer::tag(32).u64(offset),
            Self::OutOfMemory { left } => Writer::tag(33).u64(left),
            Self::Region { bytes, used } => Writer::tag(34).u64(bytes).u64(used),
            Self::Joined { epoch, lease_nanos } => Writer::tag(35).u32(epoch).u64(lease_nanos),
            Self::Done => Writer::tag(36),
            Self::Fenced => Writer::tag(37),
            Self::NoSuchClient => Writer::tag(38),
            Self::NotYours => Writer::tag(39),
            Self::Met { arrived } => Writer::tag(40).u16(arrived),
            Self::Failed => Writer::tag(41),
        }
    }

    fn decode(tag: u8, r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match tag {
            30 => Self::Claimed {
                client: r.u16()?,
                epoch: r.u32()?,
            },
            31 => Self::NoIdLeft,
            32 => Self::Chunk { offset: r.u64()? },
            33 => Self::OutOfMemory { left: r.u64()? },
            34 => Self::Region {
                bytes: r.u64()?,
                used: r.u64()?,
            },
            35 => Self::Joined {
                epoch: r.u32()?,
                lease_nanos: r.u64()?,
            },
            36 => Self::Done,
            37 => Self::Fenced,
            38 => Self::NoSuchClient,
            39 => Self::NotYours,
            40 => Self::Met { arrived: r.u16()? },
            41 => Self::Failed,
            other => return Err(WireError::Tag(other)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all() -> Vec<Message> {
        let port = Port::new([7; PORT_MAX]).unwrap();
        let mut all = vec![
            Message::Hello {
                version: 9,
                nonce: [1; 32],
            },
            Message::Challenge {
                nonce: [2; 32],
                secret: true,
            },
            Message::Proof {
                tag: [3; 32],
                port: port.clone(),
            },
            Message::Welcome {
                tag: [4; 32],
                boot: u64::MAX,
                port,
            },
        ];
        // Every kind that has no fields but numbers, by its tag.
        for tag in (5..=8).chain(10..=20).chain(30..=41) {
            let found = (0..=40).find_map(|length| {
                let mut body = vec![tag; 1 + length];
                body[0] = tag;
                Message::decode(&body).ok()
            });
            all.push(found.expect("some length fits"));
        }
        all
    }

    #[test]
    fn every_message_comes_back_and_no_part_of_one_does() {
        for message in all() {
            let body = message.encode();
            assert!((1..=BODY_MAX).contains(&body.len()), "{message:?}");
            assert_eq!(Message::decode(&body), Ok(message.clone()));
            for cut in 0..body.len() {
                assert!(Message::decode(&body[..cut]).is_err(), "{message:?}, {cut}");
            }
            let mut longer = body;
            longer.push(0);
            assert_eq!(Message::decode(&longer), Err(WireError::Cut));
        }
    }

    #[test]
    fn strangers_are_named() {
        let web = Message::decode(b"\x01GET / HT").unwrap_err();
        assert_eq!(web, WireError::Magic(u64::from_le_bytes(*b"GET / HT")));
        assert_eq!(Message::decode(&[9]), Err(WireError::Tag(9)));
        assert_eq!(Port::new(vec![0; PORT_MAX + 1]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(
            tag in 0..48_u8,
            rest in proptest::collection::vec(any::<u8>(), 0..BODY_MAX),
        ) {
            let mut body = vec![tag];
            body.extend(rest);
            if let Ok(message) = Message::decode(&body) {
                prop_assert_eq!(message.encode(), body);
            }
        }
    }
}
