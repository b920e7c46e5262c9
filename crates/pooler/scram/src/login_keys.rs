//! What a login leaves behind that is enough to log in elsewhere as the same user: the keys, not the password. Only a
//! server with the very same verifier (same salt, same iterations) accepts them. Never shown, wiped when dropped.

use crate::{
    Verifier,
    crypto::{KEY_BYTES, Keys},
};

/// The keys of a user who has proved that it knows the password.
pub struct LoginKeys {
    pub(crate) iterations: u32,
    pub(crate) salt: Box<[u8]>,
    pub(crate) keys: Keys,
}

impl LoginKeys {
    pub(crate) fn new(verifier: &Verifier, client_key: [u8; KEY_BYTES]) -> Self {
        let Verifier { iterations, salt, server_key, .. } = verifier;
        Self { iterations: *iterations, salt: salt.clone(), keys: Keys { client_key, server_key: *server_key } }
    }

    /// Whether they were derived with this salt and this number of iterations.
    pub fn fit(&self, salt: &[u8], iterations: u32) -> bool {
        *self.salt == *salt && self.iterations == iterations
    }

    /// Whether others were derived with the same salt and iterations.
    pub fn same_verifier(&self, other: &Self) -> bool {
        self.fit(&other.salt, other.iterations)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Client, Error, KeyCache, Mock, Server, Shape};

    /// The keys that a server with this verifier learns from a login with the password.
    fn keys_of_a_login(verifier: &Arc<Verifier>, password: &str) -> Option<LoginKeys> {
        let mut server = Server::new(verifier.clone(), "server".into());
        let (mut client, first) = Client::new("client".into());
        let last = client.respond(&server.first(&first).unwrap(), password, &KeyCache::default()).unwrap();
        let _ = server.last(&last);
        server.take_keys()
    }

    #[test]
    fn the_keys_of_a_login_open_another_server_with_the_same_verifier() {
        let verifier = Arc::new(Verifier::from_password("pencil", b"salt", 10));
        let keys = keys_of_a_login(&verifier, "pencil").unwrap();
        let mut server = Server::new(Arc::new(Verifier::parse(&verifier.format()).unwrap()), "another".into());
        let (mut client, first) = Client::new("pooler".into());
        let last = client.respond_with(&server.first(&first).unwrap(), |salt, n| keys.fit(salt, n).then_some(&keys));
        assert_eq!(client.verify(&server.last(&last.unwrap()).unwrap()), Ok(()));
    }

    #[test]
    fn keys_of_another_salt_are_not_used() {
        let keys = keys_of_a_login(&Arc::new(Verifier::from_password("pencil", b"salt", 10)), "pencil").unwrap();
        for verifier in
            [Verifier::from_password("pencil", b"pepper", 10), Verifier::from_password("pencil", b"salt", 11)]
        {
            let mut server = Server::new(Arc::new(verifier), "another".into());
            let (mut client, first) = Client::new("pooler".into());
            let challenge = server.first(&first).unwrap();
            assert_eq!(
                client.respond_with(&challenge, |salt, n| keys.fit(salt, n).then_some(&keys)),
                Err(Error::NoKeys)
            );
        }
    }

    #[test]
    fn a_failed_login_leaves_no_keys() {
        let verifier = Arc::new(Verifier::from_password("pencil", b"salt", 10));
        assert!(keys_of_a_login(&verifier, "Pencil").is_none());
        let mut unknown =
            Server::mock(&Mock::new([7; KEY_BYTES]), "unknown", Shape { iterations: 1, salt: 16 }, "server".into());
        let (mut client, first) = Client::new("client".into());
        let last = client.respond(&unknown.first(&first).unwrap(), "x", &KeyCache::default()).unwrap();
        assert_eq!(unknown.last(&last), Err(Error::WrongProof));
        assert!(unknown.take_keys().is_none());
    }
}
