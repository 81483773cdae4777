//! The shared secret, and the proofs by which each side shows that it knows the secret without sending it.
//!
//! A proof is an HMAC-SHA-256 over a label of the side, both nonces, and the data that the side sends with
//! it. A side without a secret proves with an empty key, which another side without a secret accepts.

use core::fmt;
use std::io;
use std::path::Path;

use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::wire::{Nonce, Tag};

/// Minimum length of a secret in bytes.
pub const SECRET_MIN: usize = 16;
/// Maximum length of a secret in bytes.
pub const SECRET_MAX: usize = 4096;

/// The secret that only the memory nodes and clients of a cluster know.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(Vec<u8>);

/// The reason why bytes cannot be a secret.
#[derive(Debug)]
#[non_exhaustive]
pub enum SecretError {
    /// The length is below [`SECRET_MIN`] or above [`SECRET_MAX`].
    Length(usize),
    /// The file could not be read.
    File(io::Error),
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(bytes) => write!(
                f,
                "a secret has {SECRET_MIN} to {SECRET_MAX} bytes, this one {bytes}"
            ),
            Self::File(e) => write!(f, "the file of the secret: {e}"),
        }
    }
}

impl core::error::Error for SecretError {}

impl Secret {
    /// Makes a secret of these bytes.
    ///
    /// # Errors
    /// Returns [`SecretError::Length`].
    pub fn new(bytes: &[u8]) -> Result<Self, SecretError> {
        if !(SECRET_MIN..=SECRET_MAX).contains(&bytes.len()) {
            return Err(SecretError::Length(bytes.len()));
        }
        Ok(Self(bytes.to_vec()))
    }

    /// Reads a secret from a file, and removes white space at its ends.
    ///
    /// # Errors
    /// Returns [`SecretError`].
    pub fn from_file(path: &Path) -> Result<Self, SecretError> {
        let bytes = std::fs::read(path).map_err(SecretError::File)?;
        Self::new(bytes.trim_ascii())
    }

    fn mac(&self, side: Side, dialogue: &[Nonce; 2], said: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(side.label());
        for nonce in dialogue {
            mac.update(nonce);
        }
        for part in said {
            // Each part is preceded by its length, so that no two lists of parts give the same bytes.
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac
    }

    /// Returns `side`'s proof over the data `said`, in the dialogue with these two nonces (the client's and
    /// the node's).
    pub fn prove(&self, side: Side, dialogue: &[Nonce; 2], said: &[&[u8]]) -> Tag {
        self.mac(side, dialogue, said).finalize().into_bytes().into()
    }

    /// Returns whether `tag` equals [`Secret::prove`]'s result, in a time that does not depend on `tag`.
    pub fn verify(&self, side: Side, dialogue: &[Nonce; 2], said: &[&[u8]], tag: &Tag) -> bool {
        self.mac(side, dialogue, said).verify_slice(tag).is_ok()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The side that makes a proof. A proof of one side is not valid for the other.
#[derive(Clone, Copy, Debug)]
pub enum Side {
    /// The client's proof covers its port.
    Client,
    /// The node's proof covers its boot number, 8 bytes, and its port.
    Node,
}

impl Side {
    fn label(self) -> &'static [u8] {
        match self {
            Self::Client => b"dmkit control 3 client",
            Self::Node => b"dmkit control 3 node  ",
        }
    }
}

/// Returns fresh random bytes from the system.
///
/// # Errors
/// Fails if the system cannot provide random bytes.
pub(crate) fn fresh<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| io::Error::other(e.to_string()))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_own_dialogue_side_and_words_alone() {
        let secret = Secret::new(b"sixteen bytes ok").unwrap();
        let dialogue = [[1; 32], [2; 32]];
        let tag = secret.prove(Side::Client, &dialogue, &[b"a", b"bc"]);
        let holds = |s: &Secret, side, d: &[Nonce; 2], said: &[&[u8]]| s.verify(side, d, said, &tag);
        assert!(holds(&secret, Side::Client, &dialogue, &[b"a", b"bc"]));
        assert!(!holds(&secret, Side::Node, &dialogue, &[b"a", b"bc"]));
        assert!(!holds(&secret, Side::Client, &dialogue, &[b"ab", b"c"]));
        assert!(!holds(&secret, Side::Client, &[[2; 32], [1; 32]], &[b"a", b"bc"]));
        assert!(!holds(
            &Secret::default(),
            Side::Client,
            &dialogue,
            &[b"a", b"bc"]
        ));
        let mut other = tag;
        other[31] ^= 1;
        assert!(!secret.verify(Side::Client, &dialogue, &[b"a", b"bc"], &other));
    }

    #[test]
    fn secrets_are_long_enough_and_never_shown() {
        assert!(matches!(Secret::new(&[1; 15]), Err(SecretError::Length(15))));
        assert!(matches!(Secret::new(&[1; 4097]), Err(SecretError::Length(4097))));
        let secret = Secret::new(b"swordfish swordfish").unwrap();
        assert!(!format!("{secret:?}").contains("sword"));
        assert_ne!(fresh::<32>().unwrap(), fresh().unwrap());
    }
}
