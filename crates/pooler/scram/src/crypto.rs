//! The few primitives of SCRAM-SHA-256: HMAC, H, Hi, and comparison in constant time.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

/// Bytes of a SHA-256 digest, and so of every key here.
pub(crate) const KEY_BYTES: usize = 32;

/// Whether two secrets are the same, in a time that depends on their lengths only.
pub fn equal(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}

/// HMAC-SHA-256 over the joined parts.
pub(crate) fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; KEY_BYTES] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

pub(crate) fn hash(data: &[u8]) -> [u8; KEY_BYTES] {
    Sha256::digest(data).into()
}

/// `Hi`: the salted password.
pub(crate) fn salted_password(password: &[u8], salt: &[u8], iterations: u32) -> [u8; KEY_BYTES] {
    pbkdf2::pbkdf2_hmac_array::<Sha256, KEY_BYTES>(password, salt, iterations)
}

pub(crate) fn xor(a: &[u8; KEY_BYTES], b: &[u8; KEY_BYTES]) -> [u8; KEY_BYTES] {
    core::array::from_fn(|i| a[i] ^ b[i])
}

/// What is derived from a password, a salt and a number of iterations. Wiped from memory when dropped.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) client_key: [u8; KEY_BYTES],
    pub(crate) server_key: [u8; KEY_BYTES],
}

impl Keys {
    /// The keys that follow from a salted password.
    pub(crate) fn of(salted: &[u8; KEY_BYTES]) -> Self {
        Self { client_key: hmac(salted, &[b"Client Key"]), server_key: hmac(salted, &[b"Server Key"]) }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.client_key.zeroize();
        self.server_key.zeroize();
    }
}
