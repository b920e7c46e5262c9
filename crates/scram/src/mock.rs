//! Verifiers of users who do not exist, so that an unknown user looks like a wrong password.

use std::fmt;

use crate::Verifier;
use crate::crypto::{self, KEY};

/// Bytes of a mock salt: as many as PostgreSQL's salts have.
const SALT: usize = 16;

/// Makes mock verifiers: always the same for one name, and unpredictable without the secret.
pub struct Mock {
    secret: [u8; KEY],
    iterations: u32,
}

impl Mock {
    /// `secret` is randomness that lives as long as the process; `iterations` what real users have.
    pub fn new(secret: [u8; KEY], iterations: u32) -> Self {
        Self { secret, iterations }
    }

    /// The verifier of a user who does not exist. No password is known that fits it.
    pub fn verifier(&self, user: &str) -> Verifier {
        let part = |label: &[u8]| crypto::hmac(&self.secret, &[label, user.as_bytes()]);
        Verifier {
            iterations: self.iterations,
            salt: part(b"salt:")[..SALT].into(),
            stored_key: part(b"stored:"),
            server_key: part(b"server:"),
        }
    }
}

impl fmt::Debug for Mock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mock").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Client, Error, KeyCache, Server};

    #[test]
    fn the_salt_of_a_name_is_always_the_same_and_differs_between_names_and_secrets() {
        let mock = Mock::new([7; KEY], 4096);
        assert_eq!(mock.verifier("nobody"), mock.verifier("nobody"));
        assert_ne!(mock.verifier("nobody").salt, mock.verifier("somebody").salt);
        assert_ne!(mock.verifier("nobody").salt, Mock::new([8; KEY], 4096).verifier("nobody").salt);
    }

    #[test]
    fn nobody_ever_gets_in() {
        let mock = Mock::new([7; KEY], 1);
        let mut server = Server::mock(&mock, "nobody", "servernonce".into());
        let (mut client, first) = Client::new("clientnonce".into());
        let challenge = server.first(&first).unwrap();
        let last = client.respond(&challenge, "password", &KeyCache::default()).unwrap();
        assert_eq!(server.last(&last), Err(Error::WrongProof));
    }
}
