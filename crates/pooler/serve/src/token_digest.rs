//! The hash of a bearer token, as it is configured and compared.

use std::fmt;

use redis_session::Fingerprint;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

/// The SHA-256 of a token. Tokens are long and random, so that a hash that takes long to compute would protect nothing
/// more.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Reads `sha256:` and the digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("sha256:")?;
        if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// An identifier of the token for sessions. They never compare it with a token that a client shows.
    pub fn fingerprint(self) -> Fingerprint {
        Fingerprint(self.0)
    }

    /// Compares in constant time.
    pub fn is(&self, other: Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:...")
    }
}

pub fn digest(token: &[u8]) -> Digest {
    Digest(Sha256::digest(token).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_read_as_sha256sum_writes_it() {
        let text = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        assert_eq!(Digest::parse(text), Some(digest(b"hello")));
        for wrong in ["", "hello", "sha256:", "sha256:2cf2", &text[7..], &text.replace('2', "+")] {
            assert_eq!(Digest::parse(wrong), None, "{wrong}");
        }
        assert_eq!(format!("{:?}", digest(b"hello")), "sha256:...");
    }
}
