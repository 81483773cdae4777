//! Messages between a client and a memory node, and their encoding.
//!
//! A frame is a 32-bit little-endian length of 1 to [`BODY_MAX`], then the body: a tag byte, then fields of
//! fixed size, and at most one field of variable length, preceded by its length in one byte. Any bytes decode
//! to a message or a [`WireError`], and a decoded message encodes to the same bytes.

use core::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use subtle::ConstantTimeEq;

/// Maximum length of a body in bytes.
pub const BODY_MAX: usize = 256;
/// Maximum length of a device's description of a queue pair in bytes.
pub const PORT_MAX: usize = 128;
/// The version of this protocol. Both sides must use the same version.
pub const VERSION: u16 = 3;
/// First word of a `Hello` message.
const MAGIC: u64 = u64::from_le_bytes(*b"dmkitCTL");

/// Fresh random bytes of one side.
pub type Nonce = [u8; 32];
/// A proof that one side knows the secret.
pub type Tag = [u8; 32];

/// A client's identity: an id, the number of clients that have had it, and the memory node that gave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The id.
    pub client: u16,
    /// The number of the id's holders so far, including this one.
    pub epoch: u32,
    /// The boot number of the memory node that gave the id.
    pub giver: u64,
}

/// A random number that only the holder of an id and the memory nodes know. Without the token, nobody can move the id
/// to another connection.
#[derive(Clone, Copy)]
pub struct Token(pub [u8; 16]);

impl PartialEq for Token {
    /// Compares in a time that does not depend on the tokens.
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// A device's description of a queue pair for another device: at most [`PORT_MAX`] bytes, opaque to this
/// crate.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Port(Vec<u8>);

impl Port {
    #[cfg(test)]
    pub(crate) const EMPTY: Self = Self(Vec::new());

    /// Returns `None` if there are too many bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Option<Self> {
        let bytes = bytes.into();
        (bytes.len() <= PORT_MAX).then_some(Self(bytes))
    }
    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Port {
    /// Shows only the length, because the bytes contain memory keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Port({} bytes)", self.0.len())
    }
}

/// The address of a node's control plane. An IPv4 address has one form, whether it was written as IPv4 or IPv6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    ip: Ipv6Addr,
    port: u16,
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        Self {
            ip,
            port: address.port(),
        }
    }
}

impl Address {
    pub(crate) fn bytes(&self) -> [u8; 18] {
        let mut bytes = [0; 18];
        let (ip, port) = bytes.split_at_mut(16);
        ip.copy_from_slice(&self.ip.octets());
        port.copy_from_slice(&self.port.to_le_bytes());
        bytes
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::from((self.ip.to_canonical(), self.port)).fmt(f)
    }
}

/// A message. After the welcome, an authentication code follows each message (see [`crate::Session`]).
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
    /// From the client: the version that it supports.
    Hello {
        /// The version.
        version: u16,
        /// A number that was never used before.
        nonce: Nonce,
    },
    /// From the node: it supports this version too, and requests a proof of the secret.
    Challenge {
        /// A number that was never used before.
        nonce: Nonce,
        /// Whether there is a secret.
        secret: bool,
    },
    /// From the client: its proof, and its queue pair.
    Proof {
        /// The proof over the greeting.
        tag: Tag,
        /// The address that the client has connected to.
        to: Address,
        /// The queue pair.
        port: Port,
    },
    /// From the node: its own proof, and its queue pair.
    Welcome {
        /// The proof over the greeting and this message.
        tag: Tag,
        /// A random number that the node draws at each start.
        boot: u64,
        /// The queue pair, and the memory that it gives access to.
        port: Port,
    },
    /// From the node: it refuses and ends the connection.
    Refuse(Refusal),
    /// From the client: it wants to use an id on this connection.
    Enter(Entrance),
    /// From the client: a request of client `caller`.
    Call {
        /// The client's id.
        caller: u16,
        /// The request.
        request: Request,
    },
    /// From the node: its reply to an entrance or a request.
    Answer(Answer),
}

/// The two ways to bring a client to a connection. After that, the connection sends requests of this client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entrance {
    /// Asks for a new client.
    Claim,
    /// Attaches a client whose id was given by another node, or by this node on an earlier connection.
    Attach {
        /// The client.
        identity: Identity,
        /// The token that the client received together with its id.
        token: Token,
    },
}

/// The reason why a node refuses a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The node supports only this version.
    Version(u16),
    /// The proof is wrong.
    Secret,
    /// There are too many connections.
    Busy,
    /// The node's device has no queue pair left, or does not understand the description of the client's.
    Device,
    /// The client has connected to an address that is not this node's.
    Address,
}

/// A request to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Gives back the caller's id.
    Release,
    /// Asks for new memory.
    Chunk {
        /// The size in bytes. The node rounds it up to a multiple of [`crate::CHUNK_UNIT`].
        bytes: u64,
    },
    /// Asks how much memory the node has, and how much of it is used.
    Describe,
    /// Begins or renews the caller's lease.
    Join,
    /// Ends the caller's lease.
    Leave,
    /// Asks for the latest holder of `client`, an id that this node has given.
    Holder {
        /// The id.
        client: u16,
    },
    /// Fences a client and the earlier holders of its id: after the answer `Done`, none of their requests has an
    /// effect.
    Fence(Identity),
    /// Puts the caller into `group`, and removes it from its earlier group.
    Enlist {
        /// The group's number.
        group: u16,
    },
    /// Fences every client of `group`.
    FenceGroup {
        /// The group's number.
        group: u16,
    },
    /// Reports that this connection has arrived at `place`, where `of` connections wait for each other. The client
    /// repeats this request until all have arrived.
    Meet {
        /// An identifier on which all of them have agreed.
        place: u64,
        /// The number of connections that wait for each other.
        of: u16,
    },
}

/// An answer of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The answer to `Claim`.
    Claimed {
        /// The id.
        client: u16,
        /// The number of the id's holders so far, including this one.
        epoch: u32,
        /// The client's token.
        token: Token,
    },
    /// The answer to `Holder`.
    Holder {
        /// The epoch of the latest holder.
        epoch: u32,
    },
    /// The answer to an entrance if no id is free, if this connection or its host has too many clients, or if the node
    /// remembers too many other givers of ids.
    NoIdLeft,
    /// The answer to `Chunk`.
    Chunk {
        /// The offset at which the chunk begins.
        offset: u64,
    },
    /// The answer to `Chunk` if not enough memory is left, or the caller's host has reached its limit.
    OutOfMemory {
        /// Bytes left for this host.
        left: u64,
    },
    /// The answer to `Describe`.
    Region {
        /// Bytes of memory in all.
        bytes: u64,
        /// Bytes handed out, plus the first [`crate::CHUNK_UNIT`], which are reserved.
        used: u64,
    },
    /// The answer to `Join`.
    Joined {
        /// The epoch of the caller's id.
        epoch: u32,
        /// The length of a lease in nanoseconds.
        lease_nanos: u64,
    },
    /// The node has carried out the request.
    Done,
    /// The connection was shut, because one of its clients was fenced or has moved to another connection; or the client
    /// that wants to attach was fenced.
    Fenced,
    /// There is no such client.
    NoSuchClient,
    /// The caller's id does not belong to this connection, or the client that wants to attach has a wrong token, an
    /// outdated epoch, or an id that another client uses.
    NotYours,
    /// The answer to `Meet`.
    Met {
        /// The number of connections that have arrived.
        arrived: u16,
    },
    /// The node's device refused, the node has no random bytes, or it cannot keep another fence.
    Failed,
}

/// The reason why bytes are not a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WireError {
    /// The length is 0, or greater than the maximum length of a message.
    Length(u32),
    /// The body is too short or too long for its message, or the stream has ended within a frame.
    Cut,
    /// No message has this tag.
    Tag(u8),
    /// A field has this value, which has no meaning.
    Field(u8),
    /// The greeting does not begin with the magic word.
    Magic(u64),
    /// The message after a greeting is not exactly the next message of the other side.
    Forged,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(bytes) => write!(f, "a message of {bytes} bytes"),
            Self::Cut => f.write_str("a message whose length does not fit its kind"),
            Self::Tag(tag) => write!(f, "a message of unknown kind {tag}"),
            Self::Field(value) => write!(f, "a field of meaningless value {value}"),
            Self::Magic(found) => write!(f, "not a greeting of this protocol ({found:#018x})"),
            Self::Forged => f.write_str("a message that was changed, repeated or made up on its way"),
        }
    }
}

impl core::error::Error for WireError {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(known) => write!(f, "it speaks version {known} of the protocol, not {VERSION}"),
            Self::Secret => f.write_str("the secrets differ"),
            Self::Busy => f.write_str("it has too many connections"),
            Self::Device => f.write_str("its device has no queue pair left"),
            Self::Address => f.write_str(
                "it does not have this address: if it is reached through a proxy, `dmkit serve --known-as` \
                 gives it the proxy's address",
            ),
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
    fn identity(self, who: &Identity) -> Self {
        self.u16(who.client).u32(who.epoch).u64(who.giver)
    }
    fn port(self, p: &Port) -> Self {
        // The cast loses nothing: the length is at most PORT_MAX.
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
    fn identity(&mut self) -> Result<Identity, WireError> {
        Ok(Identity {
            client: self.u16()?,
            epoch: self.u32()?,
            giver: self.u64()?,
        })
    }
    fn address(&mut self) -> Result<Address, WireError> {
        Ok(Address {
            ip: Ipv6Addr::from(self.bytes::<16>()?),
            port: self.u16()?,
        })
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
    /// Returns the body of the message.
    pub fn encode(&self) -> Vec<u8> {
        let writer = match self {
            Self::Hello { version, nonce } => Writer::tag(1).u64(MAGIC).u16(*version).bytes(nonce),
            Self::Challenge { nonce, secret } => Writer::tag(2).bytes(nonce).bytes(&[u8::from(*secret)]),
            Self::Proof { tag, to, port } => Writer::tag(3).bytes(tag).bytes(&to.bytes()).port(port),
            Self::Welcome { tag, boot, port } => Writer::tag(4).bytes(tag).u64(*boot).port(port),
            Self::Refuse(refusal) => match *refusal {
                Refusal::Version(known) => Writer::tag(5).u16(known),
                Refusal::Secret => Writer::tag(6),
                Refusal::Busy => Writer::tag(7),
                Refusal::Device => Writer::tag(8),
                Refusal::Address => Writer::tag(9),
            },
            Self::Enter(Entrance::Claim) => Writer::tag(10),
            Self::Enter(Entrance::Attach { identity, token }) => {
                Writer::tag(11).identity(identity).bytes(&token.0)
            }
            Self::Call { caller, request } => request.encode(*caller),
            Self::Answer(answer) => answer.encode(),
        };
        writer.0
    }

    /// Decodes a body.
    ///
    /// # Errors
    /// Returns [`WireError`] if the bytes are not a message.
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
                to: r.address()?,
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
            9 => Self::Refuse(Refusal::Address),
            10 => Self::Enter(Entrance::Claim),
            11 => Self::Enter(Entrance::Attach {
                identity: r.identity()?,
                token: Token(r.bytes()?),
            }),
            12..=21 => Self::Call {
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
            Self::Release => call(12),
            Self::Chunk { bytes } => call(13).u64(bytes),
            Self::Describe => call(14),
            Self::Join => call(15),
            Self::Leave => call(16),
            Self::Fence(identity) => call(17).identity(&identity),
            Self::Enlist { group } => call(18).u16(group),
            Self::FenceGroup { group } => call(19).u16(group),
            Self::Meet { place, of } => call(20).u64(place).u16(of),
            Self::Holder { client } => call(21).u16(client),
        }
    }

    fn decode(tag: u8, r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match tag {
            12 => Self::Release,
            13 => Self::Chunk { bytes: r.u64()? },
            14 => Self::Describe,
            15 => Self::Join,
            16 => Self::Leave,
            17 => Self::Fence(r.identity()?),
            18 => Self::Enlist { group: r.u16()? },
            19 => Self::FenceGroup { group: r.u16()? },
            20 => Self::Meet {
                place: r.u64()?,
                of: r.u16()?,
            },
            21 => Self::Holder { client: r.u16()? },
            other => return Err(WireError::Tag(other)),
        })
    }
}

impl Answer {
    fn encode(&self) -> Writer {
        match *self {
            Self::Claimed { client, epoch, token } => Writer::tag(30).u16(client).u32(epoch).bytes(&token.0),
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
            Self::Holder { epoch } => Writer::tag(42).u32(epoch),
        }
    }

    fn decode(tag: u8, r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match tag {
            30 => Self::Claimed {
                client: r.u16()?,
                epoch: r.u32()?,
                token: Token(r.bytes()?),
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
            42 => Self::Holder { epoch: r.u32()? },
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
                to: SocketAddr::from(([1, 2, 3, 4], 5)).into(),
                port: port.clone(),
            },
            Message::Welcome {
                tag: [4; 32],
                boot: u64::MAX,
                port,
            },
        ];
        // These are the tags of all other messages.
        for tag in (5..=9).chain(10..=21).chain(30..=42) {
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
        assert_eq!(Message::decode(&[22]), Err(WireError::Tag(22)));
        assert_eq!(Port::new(vec![0; PORT_MAX + 1]), None);
    }

    #[test]
    fn keys_and_tokens_are_not_shown() {
        let port = Port::new([77; 60]).unwrap();
        let token = Token([77; 16]);
        let identity = Identity {
            client: 1,
            epoch: 2,
            giver: 3,
        };
        let shown = [
            format!(
                "{:?}",
                Message::Welcome {
                    tag: [4; 32],
                    boot: 1,
                    port: port.clone()
                }
            ),
            format!("{:?}", Message::Enter(Entrance::Attach { identity, token })),
            format!(
                "{:?}",
                Answer::Claimed {
                    client: 1,
                    epoch: 2,
                    token
                }
            ),
        ];
        for shown in shown {
            assert!(!shown.contains("77"), "{shown}");
        }
    }

    #[test]
    fn an_address_has_one_form() {
        let address = |text: &str| Address::from(text.parse::<SocketAddr>().unwrap());
        assert_eq!(address("[::ffff:10.0.0.1]:7"), address("10.0.0.1:7"));
        assert_ne!(address("10.0.0.1:7"), address("10.0.0.1:8"));
        assert_eq!(address("[::ffff:10.0.0.1]:7").to_string(), "10.0.0.1:7");
        assert_eq!(address("[fe80::1]:7").to_string(), "[fe80::1]:7");
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
