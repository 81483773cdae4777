//! The shared secret.

use core::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use zeroize::Zeroizing;

/// Minimum length of a secret in bytes.
pub const SECRET_MIN: usize = 16;
/// Maximum length of a secret in bytes.
pub const SECRET_MAX: usize = 4096;
/// Maximum length of a secret's file in bytes. White space at both ends is not part of the secret, so the file may be
/// longer than the longest secret.
const FILE_MAX: usize = 2 * SECRET_MAX;
/// A secret with less than this number of bits of entropy is weak.
const WEAK_BITS: f64 = 80.0;
/// Bits of entropy of one word of a passphrase, if the words were drawn from a list of 4096 words.
const WORD_BITS: f64 = 12.0;

/// The secret that only the memory nodes and clients of a cluster know. Its bytes are overwritten when it is
/// dropped.
///
/// No secret is empty:
/// ```compile_fail,E0599
/// let empty = dm_control::Secret::default();
/// ```
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

/// The reason why bytes cannot be a secret.
#[derive(Debug)]
#[non_exhaustive]
pub enum SecretError {
    /// The length is below [`SECRET_MIN`] or above [`SECRET_MAX`].
    Length(usize),
    /// The file contains more than [`SECRET_MAX`] bytes without the white space at both ends, or more than twice as
    /// many with it.
    TooLong,
    /// The file has these permissions: its group may write it, or users other than its owner and group may read, write
    /// or execute it.
    Open(u32),
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
            Self::TooLong => write!(
                f,
                "a secret has at most {SECRET_MAX} bytes, and its file at most {FILE_MAX}: this file has more"
            ),
            Self::Open(mode) => write!(
                f,
                "others may read or change the file (mode {mode:04o}): `chmod 600` protects it"
            ),
            Self::File(e) => write!(f, "cannot read the secret's file: {e}"),
        }
    }
}

impl core::error::Error for SecretError {}

impl Secret {
    /// Makes a secret of these bytes.
    ///
    /// # Errors
    /// Returns [`SecretError::Length`] if there are fewer than [`SECRET_MIN`] or more than [`SECRET_MAX`] bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, SecretError> {
        if !(SECRET_MIN..=SECRET_MAX).contains(&bytes.len()) {
            return Err(SecretError::Length(bytes.len()));
        }
        Ok(Self(Zeroizing::new(bytes.to_vec())))
    }

    /// Reads a secret from a file, and removes white space at both ends. With this white space, the file may have twice
    /// [`SECRET_MAX`] bytes. On Unix, the file's group must not have the
    /// permission to write the file, and users other than its owner and group must have no permission at all.
    ///
    /// # Errors
    /// Returns [`SecretError`] if the file cannot be read, has other permissions, has more than [`SECRET_MAX`] bytes,
    /// or contains a secret that is too short.
    pub fn from_file(path: &Path) -> Result<Self, SecretError> {
        let file = File::open(path).map_err(SecretError::File)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = file.metadata().map_err(SecretError::File)?.permissions().mode();
            if mode & 0o027 != 0 {
                return Err(SecretError::Open(mode & 0o7777));
            }
        }
        // A vector that grows leaves copies of the secret in freed memory, so this one is allocated in full at first.
        let mut bytes = Zeroizing::new(Vec::with_capacity(FILE_MAX + 2));
        file.take(FILE_MAX as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(SecretError::File)?;
        let secret = bytes.trim_ascii();
        if bytes.len() > FILE_MAX || secret.len() > SECRET_MAX {
            return Err(SecretError::TooLong);
        }
        Self::new(secret)
    }

    /// Estimates whether an attacker who has recorded a greeting could guess the secret by trying many. The command
    /// `openssl rand -hex 32` prints a strong secret.
    ///
    /// ```
    /// use dm_control::Secret;
    ///
    /// assert!(Secret::new(b"correct horse battery staple")?.is_weak());
    /// assert!(!Secret::new(b"53c7f0b4a1d26e98d3b05f7c8e6a9d14")?.is_weak());
    /// # Ok::<(), dm_control::SecretError>(())
    /// ```
    pub fn is_weak(&self) -> bool {
        let bytes = self.0.as_slice();
        let separates = |byte: &u8| b" -_.,;:".contains(byte);
        let bits = if bytes
            .iter()
            .all(|byte| byte.is_ascii_alphabetic() || separates(byte))
        {
            // A run of letters counts as one word for every 8 letters, because it may be several words without a
            // space.
            let words = bytes.split(separates).map(|word| word.len().div_ceil(8));
            words.sum::<usize>() as f64 * WORD_BITS
        } else {
            let distinct = bytes.iter().collect::<std::collections::BTreeSet<_>>().len();
            let per_byte = match bytes.is_ascii() {
                true => (distinct as f64).log2(),
                // A short secret of random bytes repeats some values, so the true alphabet is larger than the number
                // of different bytes.
                false => (distinct as f64).log2() + 2.0,
            };
            bytes.len() as f64 * per_byte
        };
        bits < WEAK_BITS
    }

    /// Returns the bytes as a key.
    pub(crate) fn key(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Returns random bytes from the system.
///
/// # Errors
/// Returns an error if the system cannot provide random bytes.
pub(crate) fn fresh<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| io::Error::other(e.to_string()))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_long_enough_and_never_shown() {
        for wrong in [0, 15, 4097] {
            let error = Secret::new(&vec![1; wrong]).unwrap_err();
            assert!(matches!(error, SecretError::Length(bytes) if bytes == wrong));
        }
        let secret = Secret::new(b"swordfish swordfish").unwrap();
        assert!(!format!("{secret:?}").contains("sword"));
        assert_ne!(fresh::<32>().unwrap(), fresh().unwrap());
    }

    #[test]
    fn passphrases_are_weak_and_random_bytes_are_strong() {
        let weak = |bytes: &[u8]| Secret::new(bytes).unwrap().is_weak();
        for passphrase in [
            b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".as_slice(),
            b"1234567890123456",
            b"correct-horse-battery-staple",
            b"passwordpasswordpassword",
            b"the cat sat on the mat",
        ] {
            assert!(weak(passphrase), "{}", String::from_utf8_lossy(passphrase));
        }
        // Eight drawn words have 96 bits of entropy.
        assert!(!weak(b"pond attic gravel moth siren cobalt dune harp"));
        for _ in 0..1000 {
            let bytes = fresh::<32>().unwrap();
            let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
            assert!(!weak(hex(&bytes).as_bytes()) && !weak(hex(&bytes[..16]).as_bytes()));
            assert!(!weak(&bytes) && !weak(&bytes[..16]));
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_may_read_or_that_is_no_secret_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = std::env::temp_dir().join(format!("dm-control-secret-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("secret");
        let read = |content: &[u8], mode: u32| {
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let read = Secret::from_file(&path);
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            read
        };
        let good = b"  sixteen bytes ok\n";
        for mode in [0o600, 0o400, 0o640] {
            assert_eq!(read(good, mode).unwrap().key(), b"sixteen bytes ok");
        }
        for mode in [0o666, 0o644, 0o604, 0o620, 0o602, 0o601] {
            let error = read(good, mode).unwrap_err();
            assert!(error.to_string().contains(&format!("{mode:04o}")), "{error}");
        }
        assert!(matches!(read(b"", 0o600), Err(SecretError::Length(0))));
        assert!(matches!(
            read(b"   too short   \n", 0o600),
            Err(SecretError::Length(9))
        ));
        // White space around the longest secret does not make it too long.
        let longest = "x".repeat(SECRET_MAX);
        for content in [format!("{longest}\n"), format!(" {longest}\r\n\n")] {
            assert_eq!(read(content.as_bytes(), 0o600).unwrap().key(), longest.as_bytes());
        }
        for content in [
            format!("{longest}x\n"),
            "x".repeat(5000),
            longest + &" ".repeat(SECRET_MAX + 1),
        ] {
            let error = read(content.as_bytes(), 0o600).unwrap_err();
            assert!(matches!(error, SecretError::TooLong), "{error}");
        }
        // A file of 256 MiB is refused without being read to its end.
        std::fs::write(&path, []).unwrap();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(256 << 20)
            .unwrap();
        assert!(matches!(Secret::from_file(&path), Err(SecretError::TooLong)));
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(matches!(Secret::from_file(&path), Err(SecretError::File(_))));
    }
}
