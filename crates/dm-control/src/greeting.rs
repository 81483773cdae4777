//! Proofs of the secret, and the keys of the messages after a greeting.
//!
//! Every proof and key is an HMAC-SHA-256 with the secret as its key, over a label and the data that both sides have
//! exchanged so far. A side without a secret uses an empty key, which only another side without a secret accepts.

use hmac::{Hmac, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::secret::Secret;
use crate::wire::{Address, Nonce, Port, Tag, WireError};

/// Bytes of a message authentication code.
const MAC_BYTES: usize = 32;

/// The data of a greeting that one side has sent and received. Both sides compute the same proofs and keys only if
/// their data agree.
#[derive(Debug)]
pub struct Greeting<'a> {
    /// The secret, if there is one.
    pub secret: Option<&'a Secret>,
    /// The client's nonce and the node's.
    pub nonces: [Nonce; 2],
    /// The address to which the client has connected. The proofs cover this address, so a peer in between that relays
    /// the messages to another node cannot change it.
    pub to: Address,
    /// The client's queue pair.
    pub client: &'a Port,
}

/// The data of a node that its welcome contains.
#[derive(Clone, Copy, Debug)]
pub struct Welcoming<'a> {
    /// The boot number: a random number that the node draws at each start.
    pub boot: u64,
    /// The node's queue pair.
    pub node: &'a Port,
}

impl Greeting<'_> {
    fn mac(&self, label: &[u8], welcoming: Option<Welcoming<'_>>) -> Hmac<Sha256> {
        let key = self.secret.map_or(&[][..], Secret::key);
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
        let mut part = |bytes: &[u8]| {
            // Each part is preceded by its length, so that no two lists of parts give the same bytes.
            mac.update(&(bytes.len() as u64).to_le_bytes());
            mac.update(bytes);
        };
        part(label);
        self.nonces.iter().for_each(|nonce| part(nonce));
        part(&self.to.bytes());
        part(self.client.bytes());
        if let Some(Welcoming { boot, node }) = welcoming {
            part(&boot.to_le_bytes());
            part(node.bytes());
        }
        mac
    }

    /// Returns the client's proof.
    pub fn proof(&self) -> Tag {
        self.mac(b"dmkit control 3: client", None)
            .finalize()
            .into_bytes()
            .into()
    }

    /// Returns whether `tag` is the client's proof, in a time that does not depend on `tag`.
    pub fn proves(&self, tag: &Tag) -> bool {
        self.mac(b"dmkit control 3: client", None)
            .verify_slice(tag)
            .is_ok()
    }

    /// Returns the node's proof.
    pub fn welcome(&self, welcoming: Welcoming<'_>) -> Tag {
        let mac = self.mac(b"dmkit control 3: node", Some(welcoming));
        mac.finalize().into_bytes().into()
    }

    /// Returns whether `tag` is the node's proof, in a time that does not depend on `tag`.
    pub fn welcomes(&self, welcoming: Welcoming<'_>, tag: &Tag) -> bool {
        let mac = self.mac(b"dmkit control 3: node", Some(welcoming));
        mac.verify_slice(tag).is_ok()
    }

    /// Returns the session that begins after the welcome, for `side`.
    pub fn session(&self, side: Side, welcoming: Welcoming<'_>) -> Session {
        let key = |label| Direction {
            key: Zeroizing::new(self.mac(label, Some(welcoming)).finalize().into_bytes().into()),
            messages: 0,
        };
        let client = key(b"dmkit control 3: messages of the client".as_slice());
        let node = key(b"dmkit control 3: messages of the node".as_slice());
        match side {
            Side::Client => Session {
                out: client,
                back: node,
            },
            Side::Node => Session {
                out: node,
                back: client,
            },
        }
    }
}

/// A side of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The client.
    Client,
    /// The node.
    Node,
}

/// The keys and message counters of one connection, one of each for each direction.
///
/// ```
/// use dm_control::{Address, Greeting, Port, Side, Welcoming, WireError};
///
/// let port = Port::default();
/// let to = Address::from("127.0.0.1:7471".parse::<std::net::SocketAddr>()?);
/// let greeting = Greeting { secret: None, nonces: [[1; 32], [2; 32]], to, client: &port };
/// let welcoming = Welcoming { boot: 7, node: &port };
/// let mut client = greeting.session(Side::Client, welcoming);
/// let mut node = greeting.session(Side::Node, welcoming);
/// let sealed = client.seal(b"a message");
/// assert_eq!(node.open(&sealed), Ok(b"a message".as_slice()));
/// assert_eq!(node.open(&sealed), Err(WireError::Forged), "it was said once");
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug)]
pub struct Session {
    out: Direction,
    back: Direction,
}

struct Direction {
    key: Zeroizing<[u8; 32]>,
    messages: u64,
}

impl core::fmt::Debug for Direction {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Direction")
            .field("messages", &self.messages)
            .finish_non_exhaustive()
    }
}

impl Direction {
    /// Returns the authentication code of the next message of this direction.
    fn mac(&self, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key[..]).expect("HMAC takes keys of any length");
        mac.update(&self.messages.to_le_bytes());
        mac.update(body);
        mac
    }
}

impl Session {
    /// Returns `body` followed by its authentication code.
    pub fn seal(&mut self, body: &[u8]) -> Vec<u8> {
        let code = self.out.mac(body).finalize().into_bytes();
        self.out.messages += 1;
        [body, code.as_slice()].concat()
    }

    /// Returns the body of the next message of the other side.
    ///
    /// # Errors
    /// Returns [`WireError::Forged`] if `sealed` is not exactly the other side's next message. The connection must end
    /// then.
    pub fn open<'a>(&mut self, sealed: &'a [u8]) -> Result<&'a [u8], WireError> {
        let split = sealed.len().checked_sub(MAC_BYTES);
        let (body, code) = split
            .and_then(|at| sealed.split_at_checked(at))
            .ok_or(WireError::Forged)?;
        self.back
            .mac(body)
            .verify_slice(code)
            .map_err(|_| WireError::Forged)?;
        self.back.messages += 1;
        Ok(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: Welcoming<'static> = Welcoming {
        boot: 1,
        node: &Port::EMPTY,
    };

    fn address(port: u16) -> Address {
        std::net::SocketAddr::from(([10, 0, 0, 1], port)).into()
    }

    #[test]
    fn a_proof_holds_for_its_own_greeting_and_side_alone() {
        let secret = Secret::new(b"sixteen bytes ok").unwrap();
        let another = Secret::new(b"sixteen bytes no").unwrap();
        let (a, b) = (Port::new(*b"a").unwrap(), Port::new(*b"b").unwrap());
        let greeting = |secret, nonces, to, client| Greeting {
            secret,
            nonces,
            to,
            client,
        };
        let (one, two) = ([1; 32], [2; 32]);
        let own = greeting(Some(&secret), [one, two], address(1), &a);
        let (proof, welcome) = (own.proof(), own.welcome(SAID));
        assert!(own.proves(&proof) && own.welcomes(SAID, &welcome));
        assert!(!own.proves(&welcome) && !own.welcomes(SAID, &proof));
        let others = [
            greeting(Some(&another), [one, two], address(1), &a),
            greeting(None, [one, two], address(1), &a),
            greeting(Some(&secret), [two, one], address(1), &a),
            greeting(Some(&secret), [one, two], address(2), &a),
            greeting(Some(&secret), [one, two], address(1), &b),
        ];
        for other in &others {
            assert!(
                !other.proves(&proof) && !other.welcomes(SAID, &welcome),
                "{other:?}"
            );
        }
        for said in [Welcoming { boot: 2, ..SAID }, Welcoming { node: &a, ..SAID }] {
            assert!(!own.welcomes(said, &welcome), "{said:?}");
        }
        for bit in [0, 100, 255] {
            let mut wrong = proof;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(!own.proves(&wrong));
        }
    }

    #[test]
    fn messages_are_accepted_once_in_order_and_from_their_side_alone() {
        let secret = Secret::new(b"sixteen bytes ok").unwrap();
        let greeting = Greeting {
            secret: Some(&secret),
            nonces: [[1; 32], [2; 32]],
            to: address(1),
            client: &Port::EMPTY,
        };
        let both = || {
            (
                greeting.session(Side::Client, SAID),
                greeting.session(Side::Node, SAID),
            )
        };
        let (mut client, mut node) = both();
        let [first, second] = [b"first", b"other"].map(|body| client.seal(body));
        assert_eq!(node.open(&second), Err(WireError::Forged), "left out");
        assert_eq!(node.open(&first), Ok(b"first".as_slice()));
        assert_eq!(node.open(&first), Err(WireError::Forged), "repeated");
        for bit in 0..8 * second.len() {
            let mut changed = second.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(node.open(&changed), Err(WireError::Forged), "{bit}");
        }
        for cut in 0..second.len() {
            assert_eq!(node.open(&second[..cut]), Err(WireError::Forged), "{cut}");
        }
        assert_eq!(node.open(&second), Ok(b"other".as_slice()));
        // A message is not accepted by its own sender, or in another session.
        let (mut client, _) = both();
        let sent = client.seal(b"first");
        assert_eq!(client.open(&sent), Err(WireError::Forged));
        let later = Greeting {
            nonces: [[1; 32], [3; 32]],
            ..greeting
        };
        assert_eq!(
            later.session(Side::Node, SAID).open(&sent),
            Err(WireError::Forged)
        );
    }

    #[test]
    fn keys_are_not_shown() {
        let greeting = Greeting {
            secret: None,
            nonces: [[1; 32], [2; 32]],
            to: address(1),
            client: &Port::EMPTY,
        };
        let shown = format!("{:?}", greeting.session(Side::Node, SAID));
        assert!(!shown.contains('['), "{shown}");
    }
}
