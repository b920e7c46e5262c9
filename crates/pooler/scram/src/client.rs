//! The client's side of the exchange, and a cache of what is slow in it.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};
use zeroize::Zeroize;

use crate::LoginKeys;
use crate::binding::{self, ChannelBinding};
use crate::crypto::{self, KEY_BYTES, Keys};
use crate::message::{self, Challenge, Error};
use crate::prepare::prepare;
use crate::verifier::key_from;

/// Most entries of a [`KeyCache`]; beyond it the cache starts anew.
const MAX_CACHED_KEYS: usize = 1024;

/// One login, seen from the client. Call [`Client::respond`], then [`Client::verify`], each once.
pub struct Client {
    binding: ChannelBinding,
    state: State,
}

enum State {
    Greeted {
        bare: String,
        /// Where the nonce of the client begins in `bare`.
        nonce_at: usize,
    },
    Responded {
        /// The signature that the server must show.
        signature: [u8; KEY_BYTES],
    },
    Over,
}

impl Client {
    /// Starts an exchange and gives the first message. `nonce` is fresh randomness, printable and without commas. The
    /// user's name stays empty, as PostgreSQL's clients leave it.
    pub fn new(nonce: String) -> (Self, Vec<u8>) {
        Self::with_name("", nonce, ChannelBinding::Unsupported)
    }

    /// As [`Client::new`], for the mechanism that goes with `binding`.
    pub fn bound(nonce: String, binding: ChannelBinding) -> (Self, Vec<u8>) {
        Self::with_name("", nonce, binding)
    }

    /// As [`Client::new`], for a protocol whose messages name the user here, as MongoDB's do.
    pub fn named(user: &str, nonce: String) -> (Self, Vec<u8>) {
        Self::with_name(&user.replace('=', "=3D").replace(',', "=2C"), nonce, ChannelBinding::Unsupported)
    }

    fn with_name(name: &str, nonce: String, binding: ChannelBinding) -> (Self, Vec<u8>) {
        assert!(message::nonce(&nonce).is_ok(), "our own nonce is printable");
        let bare = format!("n={name},r={nonce}");
        let first = format!("{}{bare}", binding.header()).into_bytes();
        let nonce_at = bare.len() - nonce.len();
        (Self { binding, state: State::Greeted { bare, nonce_at } }, first)
    }

    /// Takes the server's challenge and gives the last message.
    pub fn respond(&mut self, server_first: &[u8], password: &str, cache: &KeyCache) -> Result<Vec<u8>, Error> {
        self.answer(server_first, |salt, iterations| Ok(cache.keys(password, salt, iterations)))
    }

    /// Answers the challenge with keys instead of a password: `find` gets the server's salt and iterations and returns
    /// the keys that fit. [`Error::NoKeys`] if there are none.
    pub fn respond_with<K: std::ops::Deref<Target = LoginKeys>>(
        &mut self,
        server_first: &[u8],
        find: impl FnOnce(&[u8], u32) -> Option<K>,
    ) -> Result<Vec<u8>, Error> {
        self.answer(server_first, |salt, iterations| {
            let found = find(salt, iterations).filter(|keys| keys.fit(salt, iterations)).ok_or(Error::NoKeys)?;
            Ok(found.keys.clone())
        })
    }

    fn answer(
        &mut self,
        server_first: &[u8],
        keys: impl FnOnce(&[u8], u32) -> Result<Keys, Error>,
    ) -> Result<Vec<u8>, Error> {
        let State::Greeted { bare, nonce_at } = std::mem::replace(&mut self.state, State::Over) else {
            return Err(Error::OutOfTurn);
        };
        let challenge = Challenge::read(server_first, &bare[nonce_at..])?;
        let keys = keys(&challenge.salt, challenge.iterations)?;
        let bound = binding::input(&self.binding.header(), self.binding.data());
        let unproved = format!("c={},r={}", STANDARD.encode(bound), challenge.nonce);
        let signed = [bare.as_bytes(), b",", challenge.text.as_bytes(), b",", unproved.as_bytes()];
        let stored_key = crypto::hash(&keys.client_key);
        let proof = crypto::xor(&keys.client_key, &crypto::hmac(&stored_key, &signed));
        self.state = State::Responded { signature: crypto::hmac(&keys.server_key, &signed) };
        Ok(format!("{unproved},p={}", STANDARD.encode(proof)).into_bytes())
    }

    /// Checks that the server, too, knows the verifier.
    pub fn verify(&mut self, server_final: &[u8]) -> Result<(), Error> {
        let State::Responded { signature } = std::mem::replace(&mut self.state, State::Over) else {
            return Err(Error::OutOfTurn);
        };
        let shown = key_from(message::signature(server_final)?).ok_or(Error::Malformed("a signature of 32 bytes"))?;
        if crypto::equal(&shown, &signature) { Ok(()) } else { Err(Error::WrongProof) }
    }
}

/// Remembers the keys of a password, a salt and a number of iterations: deriving them is slow, and a pool logs in with
/// the same ones again and again.
#[derive(Default)]
pub struct KeyCache {
    /// By the hash of password, salt and iterations: the cache holds no password.
    entries: Mutex<HashMap<[u8; KEY_BYTES], Keys>>,
}

impl KeyCache {
    fn keys(&self, password: &str, salt: &[u8], iterations: u32) -> Keys {
        self.find(b"", password, salt, iterations, || {
            let mut salted = crypto::salted_password(prepare(password).as_bytes(), salt, iterations);
            let keys = Keys::of(&salted);
            salted.zeroize();
            keys
        })
    }

    /// The keys, derived if they are not known. `kind` sets the hashes of different mechanisms apart.
    pub(crate) fn find(
        &self,
        kind: &[u8],
        password: &str,
        salt: &[u8],
        iterations: u32,
        derive: impl FnOnce() -> Keys,
    ) -> Keys {
        let name = Self::name(kind, password, salt, iterations);
        if let Some(keys) = self.lock().get(&name) {
            return keys.clone();
        }
        // Derived outside the lock: other logins need not wait for it.
        let keys = derive();
        self.insert(name, keys.clone());
        keys
    }

    /// The name that the keys are kept under.
    pub(crate) fn name(kind: &[u8], password: &str, salt: &[u8], iterations: u32) -> [u8; KEY_BYTES] {
        let mut name = Sha256::new();
        name.update(kind);
        name.update(iterations.to_be_bytes());
        name.update((salt.len() as u64).to_be_bytes());
        name.update(salt);
        name.update(password);
        name.finalize().into()
    }

    pub(crate) fn knows(&self, name: &[u8; KEY_BYTES]) -> bool {
        self.lock().contains_key(name)
    }

    pub(crate) fn insert(&self, name: [u8; KEY_BYTES], keys: Keys) {
        let mut entries = self.lock();
        if entries.len() >= MAX_CACHED_KEYS {
            entries.clear();
        }
        entries.insert(name, keys);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<[u8; KEY_BYTES], Keys>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Server, Verifier};

    const CHALLENGE: &[u8] = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    #[test]
    fn the_example_of_rfc_7677_succeeds() {
        let (mut client, first) = Client::with_name("user", "rOprNGfwEbeRWgbNEkqO".into(), ChannelBinding::Unsupported);
        assert_eq!(first, b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let cache = KeyCache::default();
        let last = client.respond(CHALLENGE, "pencil", &cache).unwrap();
        let expected = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(String::from_utf8(last).unwrap(), expected);
        assert_eq!(client.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="), Ok(()));
        assert_eq!(cache.lock().len(), 1);
    }

    #[test]
    fn a_server_that_does_not_know_the_verifier_is_not_believed() {
        let (mut client, _) = Client::with_name("user", "rOprNGfwEbeRWgbNEkqO".into(), ChannelBinding::Unsupported);
        client.respond(CHALLENGE, "pencil", &KeyCache::default()).unwrap();
        assert_eq!(client.verify(b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="), Err(Error::WrongProof));
        assert_eq!(client.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="), Err(Error::OutOfTurn));
    }

    #[test]
    fn a_challenge_that_is_not_ours_is_refused() {
        let respond = |challenge: &str| {
            let (mut client, _) = Client::new("abc".into());
            client.respond(challenge.as_bytes(), "pencil", &KeyCache::default())
        };
        assert!(respond("r=abcd,s=AAAA,i=1").is_ok());
        for bad in [
            "",
            "r=abc,s=AAAA,i=1",
            "r=xabc,s=AAAA,i=1",
            "r=abcd,s=,i=1",
            "r=abcd,s=AAAA,i=0",
            "r=abcd,s=AAAA,i=1000001",
            "r=abcd,s=AAAA,i=4294967296",
            "r=abcd,s=AAAA",
            "m=x,r=abcd,s=AAAA,i=1",
        ] {
            assert!(respond(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_server_that_asks_for_too_many_iterations_is_told_so_before_any_is_made() {
        let (mut client, _) = Client::new("abc".into());
        let cache = KeyCache::default();
        assert_eq!(client.respond(b"r=abcd,s=AAAA,i=2000000", "pencil", &cache), Err(Error::Iterations));
        assert!(cache.lock().is_empty(), "no key was derived");
        assert!(Error::Iterations.to_string().contains("1 to 1000000"));
    }

    #[test]
    fn a_server_whose_nonce_has_no_end_is_refused() {
        let (mut client, _) = Client::new("abc".into());
        let challenge = format!("r=abc{},s=AAAA,i=1", "x".repeat(message::MAX_NONCE_BYTES));
        let answer = client.respond(challenge.as_bytes(), "pencil", &KeyCache::default());
        assert!(matches!(answer, Err(Error::Malformed(_))), "{answer:?}");
    }

    #[test]
    fn both_ends_agree_whether_or_not_the_keys_are_cached() {
        let cache = KeyCache::default();
        let verifier = Arc::new(Verifier::from_password("p\u{e4}ss\u{ad}wort", b"salt", 10));
        for round in 0..2 {
            let mut server = Server::new(verifier.clone(), format!("server{round}"));
            let (mut client, first) = Client::new(format!("client{round}"));
            let last = client.respond(&server.first(&first).unwrap(), "p\u{e4}sswort", &cache).unwrap();
            assert_eq!(client.verify(&server.last(&last).unwrap()), Ok(()));
        }
        assert_eq!(cache.lock().len(), 1);
    }

    #[test]
    fn both_ends_agree_only_on_the_same_channel() {
        let login = |client_sees: &[u8], server_has: &[u8]| {
            let cache = KeyCache::default();
            let verifier = Arc::new(Verifier::from_password("pencil", b"salt", 1));
            let mut server = Server::new(verifier, "server".into()).offering_channel(Some(server_has.into()));
            let (mut client, first) = Client::bound("client".into(), ChannelBinding::Bound(client_sees.into()));
            assert!(first.starts_with(b"p=tls-server-end-point,,"));
            let last = client.respond(&server.first_bound(&first).unwrap(), "pencil", &cache).unwrap();
            server.last(&last).map(|last| client.verify(&last).unwrap())
        };
        assert_eq!(login(b"certificate", b"certificate"), Ok(()));
        assert_eq!(login(b"another", b"certificate"), Err(Error::WrongChannel));
    }
}
