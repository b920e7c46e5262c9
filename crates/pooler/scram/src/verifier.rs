//! What a server stores instead of a password, in PostgreSQL's form
//! `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`.

use std::{fmt, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use zeroize::Zeroize;

use crate::crypto::{self, KEY_BYTES};
use crate::prepare::prepare;

/// Iterations that PostgreSQL uses unless told otherwise.
pub const DEFAULT_ITERATIONS: u32 = 4096;

/// Most iterations accepted, in a stored verifier and from a server, as by PgBouncer. Keys for a server's login are
/// derived once for a password and salt, this many [part by part](crate::Derivation): 244 times as much as PostgreSQL's
/// 4096.
pub const MAX_ITERATIONS: u32 = 1_000_000;

/// Longest salt accepted, in bytes.
pub(crate) const MAX_SALT_BYTES: usize = 1024;

/// Bytes of salt that PostgreSQL's verifiers have.
const DEFAULT_SALT_BYTES: usize = 16;

const PREFIX: &str = "SCRAM-SHA-256$";

/// Enough to check that a client knows a password, without knowing it. Wiped from memory when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    pub(crate) iterations: u32,
    pub(crate) salt: Box<[u8]>,
    pub(crate) stored_key: [u8; KEY_BYTES],
    pub(crate) server_key: [u8; KEY_BYTES],
}

/// What a server tells of a verifier before anything is proved.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    /// The number of iterations that it was made with.
    pub iterations: u32,
    /// Bytes of its salt.
    pub salt: usize,
}

impl Default for Shape {
    fn default() -> Self {
        Self { iterations: DEFAULT_ITERATIONS, salt: DEFAULT_SALT_BYTES }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VerifierError {
    /// The text does not begin with `SCRAM-SHA-256$`.
    Scheme,
    /// The text lacks the parts of a verifier.
    Shape,
    /// The number of iterations is not from 1 to [`MAX_ITERATIONS`].
    Iterations,
    /// The salt is not base64, empty or longer than 1024 bytes.
    Salt,
    /// A key is not the base64 of 32 bytes.
    Key,
}

impl fmt::Display for VerifierError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => "a SCRAM verifier begins with SCRAM-SHA-256$",
            Self::Shape => "a SCRAM verifier has the form SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey",
            Self::Iterations => "the iterations of a SCRAM verifier are a number from 1 to 1000000",
            Self::Salt => "the salt of a SCRAM verifier is 1 to 1024 bytes in base64",
            Self::Key => "each key of a SCRAM verifier is 32 bytes in base64",
        })
    }
}

impl std::error::Error for VerifierError {}

impl Verifier {
    /// Derives the verifier of a password. Slow on purpose: `iterations` rounds of HMAC. Panics without a salt or
    /// without iterations: both come from our own code.
    pub fn from_password(password: &str, salt: &[u8], iterations: u32) -> Self {
        assert!(!salt.is_empty() && iterations > 0, "a verifier needs a salt and iterations");
        let mut salted = crypto::salted_password(prepare(password).as_bytes(), salt, iterations);
        let mut client_key = crypto::hmac(&salted, &[b"Client Key"]);
        let stored_key = crypto::hash(&client_key);
        let server_key = crypto::hmac(&salted, &[b"Server Key"]);
        salted.zeroize();
        client_key.zeroize();
        Self { iterations, salt: salt.into(), stored_key, server_key }
    }

    pub fn parse(text: &str) -> Result<Self, VerifierError> {
        let rest = text.strip_prefix(PREFIX).ok_or(VerifierError::Scheme)?;
        let (rounds, keys) = rest.split_once('$').ok_or(VerifierError::Shape)?;
        let (iterations, salt) = rounds.split_once(':').ok_or(VerifierError::Shape)?;
        let (stored_key, server_key) = keys.split_once(':').ok_or(VerifierError::Shape)?;
        let iterations = iterations_from(iterations).ok_or(VerifierError::Iterations)?;
        let salt = salt_from(salt).ok_or(VerifierError::Salt)?;
        let key = |text| key_from(text).ok_or(VerifierError::Key);
        Ok(Self { iterations, salt, stored_key: key(stored_key)?, server_key: key(server_key)? })
    }

    /// The verifier of another password with the same salt and iterations. Slow, as [`Verifier::from_password`] is.
    pub fn of_other_password(&self, password: &str) -> Self {
        Self::from_password(password, &self.salt, self.iterations)
    }

    /// Writes the stored form. An attacker can pose as the server with it: it is not for logs.
    pub fn format(&self) -> String {
        format!(
            "{PREFIX}{}:{}${}:{}",
            self.iterations,
            STANDARD.encode(&self.salt),
            STANDARD.encode(self.stored_key),
            STANDARD.encode(self.server_key)
        )
    }

    pub fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// What a server tells of it before anything is proved.
    pub fn shape(&self) -> Shape {
        Shape { iterations: self.iterations, salt: self.salt.len() }
    }

    /// Whether it was made from this password. Slow, as [`Verifier::from_password`] is.
    pub fn matches(&self, password: &str) -> bool {
        let other = Self::from_password(password, &self.salt, self.iterations);
        crypto::equal(&self.stored_key, &other.stored_key)
    }
}

/// Verifiers of one user, each of which will do, as while a password is being replaced. All have the same salt and
/// number of iterations, because a server tells these before it knows which password the client has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verifiers(Arc<[Arc<Verifier>]>);

impl Verifiers {
    /// `None` without a verifier, or if they differ in salt or iterations.
    pub fn new(all: Vec<Arc<Verifier>>) -> Option<Self> {
        let first = all.first()?;
        let fits = |other: &Arc<Verifier>| other.salt == first.salt && other.iterations == first.iterations;
        all.iter().all(fits).then(|| Self(all.into()))
    }

    pub(crate) fn first(&self) -> &Verifier {
        &self.0[0]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Verifier> {
        self.0.iter().map(|verifier| &**verifier)
    }
}

impl From<Arc<Verifier>> for Verifiers {
    fn from(only: Arc<Verifier>) -> Self {
        Self(Arc::new([only]))
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

impl Drop for Verifier {
    fn drop(&mut self) {
        self.stored_key.zeroize();
        self.server_key.zeroize();
    }
}

/// A number of iterations in the form that both RFC 5802 and PostgreSQL write: digits without a sign or leading zero.
pub(crate) fn iterations_from(text: &str) -> Option<u32> {
    let first = text.bytes().next()?;
    if !first.is_ascii_digit() || first == b'0' {
        return None;
    }
    text.parse().ok().filter(|n| (1..=MAX_ITERATIONS).contains(n))
}

pub(crate) fn salt_from(text: &str) -> Option<Box<[u8]>> {
    if text.len() > MAX_SALT_BYTES * 2 {
        return None;
    }
    let salt = STANDARD.decode(text).ok()?;
    (!salt.is_empty() && salt.len() <= MAX_SALT_BYTES).then(|| salt.into())
}

/// A key, proof or signature in base64.
pub(crate) fn key_from(text: &str) -> Option<[u8; KEY_BYTES]> {
    if text.len() > KEY_BYTES * 2 {
        return None;
    }
    STANDARD.decode(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verifier_survives_formatting_and_parsing() {
        let verifier = Verifier::from_password("pencil", b"0123456789abcdef", 4096);
        let text = verifier.format();
        assert!(text.starts_with("SCRAM-SHA-256$4096:MDEyMzQ1Njc4OWFiY2RlZg==$"));
        assert_eq!(Verifier::parse(&text).unwrap(), verifier);
        assert!(verifier.matches("pencil"));
        assert!(!verifier.matches("Pencil"));
    }

    #[test]
    fn debug_output_shows_no_key() {
        let verifier = Verifier::from_password("pencil", b"salt", 1);
        assert_eq!(format!("{verifier:?}"), "Verifier { iterations: 1, .. }");
    }

    #[test]
    fn what_is_no_verifier_is_refused_by_its_part() {
        let keys = "$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        let cases = [
            ("md5abc".to_string(), VerifierError::Scheme),
            ("SCRAM-SHA-256$4096".to_string(), VerifierError::Shape),
            (format!("SCRAM-SHA-256$0:AAAA{keys}"), VerifierError::Iterations),
            (format!("SCRAM-SHA-256$+1:AAAA{keys}"), VerifierError::Iterations),
            (format!("SCRAM-SHA-256$99999999999:AAAA{keys}"), VerifierError::Iterations),
            (format!("SCRAM-SHA-256$1:{keys}"), VerifierError::Salt),
            (format!("SCRAM-SHA-256$1:?{keys}"), VerifierError::Salt),
            ("SCRAM-SHA-256$1:AAAA$AAAA:AAAA".to_string(), VerifierError::Key),
        ];
        for (text, error) in cases {
            assert_eq!(Verifier::parse(&text), Err(error), "{text}");
        }
        assert!(Verifier::parse(&format!("SCRAM-SHA-256$1:AAAA{keys}")).is_ok());
    }
}
