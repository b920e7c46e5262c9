//! The client's side of SCRAM-SHA-1 (RFC 5802), for servers that know a user's password in no other way: MongoDB before
//! version 4.0. SHA-1 is no longer safe for signatures; as the function of an HMAC it still is.

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha1::{Digest, Sha1};

use crate::{
    client::KeyCache,
    crypto::{self, KEY_BYTES, Keys},
    message::{self, Challenge, Error},
};

pub(crate) const SHA1_BYTES: usize = 20;

/// Sets the keys of SHA-1 apart from those of SHA-256.
pub(crate) const KIND: &[u8] = b"SHA-1";

/// One login, seen from the client. Call [`Sha1Client::respond`], then [`Sha1Client::verify`], each once.
pub struct Sha1Client(State);

enum State {
    Greeted {
        bare: String,
        /// Where our nonce begins in it.
        nonce_at: usize,
    },
    Responded {
        /// What the server must show.
        signature: [u8; SHA1_BYTES],
    },
    Over,
}

impl Sha1Client {
    /// Starts an exchange and gives the first message. `nonce` is fresh randomness, printable and without commas.
    pub fn named(user: &str, nonce: &str) -> (Self, Vec<u8>) {
        let bare = format!("n={},r={nonce}", user.replace('=', "=3D").replace(',', "=2C"));
        let first = format!("n,,{bare}").into_bytes();
        let nonce_at = bare.len() - nonce.len();
        (Self(State::Greeted { bare, nonce_at }), first)
    }

    /// Takes the server's challenge and gives the last message. The password is taken as it is, without SASLprep.
    ///
    /// # Errors
    /// The challenge is none, or out of turn.
    pub fn respond(&mut self, server_first: &[u8], password: &str, cache: &KeyCache) -> Result<Vec<u8>, Error> {
        let State::Greeted { bare, nonce_at } = std::mem::replace(&mut self.0, State::Over) else {
            return Err(Error::OutOfTurn);
        };
        let Challenge { text, nonce, salt, iterations } = Challenge::read(server_first, &bare[nonce_at..])?;
        let keys = cache.find(KIND, password, &salt, iterations, || derive(password, &salt, iterations));
        let (client_key, server_key) = (&keys.client_key[..SHA1_BYTES], &keys.server_key[..SHA1_BYTES]);
        let unproved = format!("c=biws,r={nonce}");
        let signed = [bare.as_bytes(), b",", text.as_bytes(), b",", unproved.as_bytes()];
        let stored: [u8; SHA1_BYTES] = Sha1::digest(client_key).into();
        let signature = hmac(&stored, &signed);
        let proof: [u8; SHA1_BYTES] = core::array::from_fn(|i| client_key[i] ^ signature[i]);
        self.0 = State::Responded { signature: hmac(server_key, &signed) };
        Ok(format!("{unproved},p={}", STANDARD.encode(proof)).into_bytes())
    }

    /// Checks that the server, too, knows the password.
    ///
    /// # Errors
    /// The server does not know the password, or what it says is no end of an exchange.
    pub fn verify(&mut self, server_final: &[u8]) -> Result<(), Error> {
        let State::Responded { signature } = std::mem::replace(&mut self.0, State::Over) else {
            return Err(Error::OutOfTurn);
        };
        let shown = STANDARD.decode(message::signature(server_final)?);
        let shown = shown.map_err(|_| Error::Malformed("a signature of 20 bytes"))?;
        if crypto::equal(&shown, &signature) { Ok(()) } else { Err(Error::WrongProof) }
    }
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; SHA1_BYTES] {
    let mut mac = Hmac::<Sha1>::new_from_slice(key).expect("HMAC takes a key of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// The keys, each in the first bytes of one of SHA-256.
fn derive(password: &str, salt: &[u8], iterations: u32) -> Keys {
    keys(&pbkdf2::pbkdf2_hmac_array::<Sha1, SHA1_BYTES>(password.as_bytes(), salt, iterations))
}

/// The keys that follow from a salted password.
pub(crate) fn keys(salted: &[u8; SHA1_BYTES]) -> Keys {
    let key = |name: &[u8]| {
        let mut key = [0; KEY_BYTES];
        key[..SHA1_BYTES].copy_from_slice(&hmac(salted, &[name]));
        key
    };
    Keys { client_key: key(b"Client Key"), server_key: key(b"Server Key") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHALLENGE: &[u8] = b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096";

    #[test]
    fn the_example_of_rfc_5802() {
        let cache = KeyCache::default();
        for _ in 0..2 {
            let (mut client, first) = Sha1Client::named("user", "fyko+d2lbbFgONRv9qkxdawL");
            assert_eq!(first, b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL");
            let last = client.respond(CHALLENGE, "pencil", &cache).unwrap();
            assert_eq!(
                String::from_utf8(last).unwrap(),
                "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
            );
            assert_eq!(client.verify(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ="), Ok(()));
        }
    }

    #[test]
    fn a_server_that_does_not_know_the_password_is_found_out() {
        let (mut client, _) = Sha1Client::named("user", "fyko+d2lbbFgONRv9qkxdawL");
        assert_eq!(client.verify(b"v="), Err(Error::OutOfTurn));
        let (mut client, _) = Sha1Client::named("user", "fyko+d2lbbFgONRv9qkxdawL");
        client.respond(CHALLENGE, "pencil", &KeyCache::default()).unwrap();
        assert_eq!(client.verify(b"v=smF9pqV8S7suAoZWja4dJRkFsKQ="), Err(Error::WrongProof));
        let (mut client, _) = Sha1Client::named("user", "other");
        assert!(client.respond(CHALLENGE, "pencil", &KeyCache::default()).is_err());
    }
}
