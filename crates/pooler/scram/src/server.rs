//! The server's side of the exchange: client-first in, server-first out, client-final in, server-final out.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::binding::{self, KIND};
use crate::crypto::{self, KEY_BYTES};
use crate::message::{self, Attributes, BindingFlag, Error};
use crate::verifier::key_from;
use crate::{LoginKeys, Mock, Shape, Verifier, Verifiers};

/// One login, seen from the server. Call [`Server::first`] or [`Server::first_bound`], then [`Server::last`], each
/// once.
pub struct Server {
    verifiers: Verifiers,
    /// The login cannot succeed: the user does not exist.
    doomed: bool,
    /// The data that a client can bind to, if that is offered.
    channel: Option<Box<[u8]>>,
    state: State,
}

enum State {
    Start {
        nonce: String,
    },
    Challenged {
        /// The channel binding that the client must repeat: the header of its first message, and the data.
        binding: Vec<u8>,
        /// client-first-bare, a comma, server-first: what both sides sign, so far.
        signed: String,
        nonce: String,
    },
    /// The client has proved that it knows the password.
    Proved(LoginKeys),
    Over,
}

impl Server {
    /// A login of a user with this verifier, or any of these. `nonce` is fresh randomness, printable and without
    /// commas.
    pub fn new(verifiers: impl Into<Verifiers>, nonce: String) -> Self {
        assert!(message::nonce(&nonce).is_ok(), "our own nonce is printable");
        let verifiers = verifiers.into();
        Self { verifiers, doomed: false, channel: None, state: State::Start { nonce } }
    }

    /// Offers SCRAM-SHA-256-PLUS, too, with these data of `tls-server-end-point`; `None` takes the offer back.
    pub fn offering_channel(self, channel: Option<Box<[u8]>>) -> Self {
        Self { channel, ..self }
    }

    /// Whether SCRAM-SHA-256-PLUS is offered.
    pub fn offers_channel(&self) -> bool {
        self.channel.is_some()
    }

    /// A login of a user who does not exist: it looks like any other and always ends with [`Error::WrongProof`].
    pub fn mock(mock: &Mock, user: &str, shape: Shape, nonce: String) -> Self {
        Self { doomed: true, ..Self::new(Arc::new(mock.verifier(user, shape)), nonce) }
    }

    /// Takes the first message of a client that chose SCRAM-SHA-256, and gives the server's.
    pub fn first(&mut self, client_first: &[u8]) -> Result<Vec<u8>, Error> {
        self.begin(client_first, false)
    }

    /// Takes the first message of a client that chose SCRAM-SHA-256-PLUS, and gives the server's.
    pub fn first_bound(&mut self, client_first: &[u8]) -> Result<Vec<u8>, Error> {
        self.begin(client_first, true)
    }

    fn begin(&mut self, client_first: &[u8], plus: bool) -> Result<Vec<u8>, Error> {
        let State::Start { nonce } = std::mem::replace(&mut self.state, State::Over) else {
            return Err(Error::OutOfTurn);
        };
        let (flag, header, bare) = message::gs2_header(message::text(client_first)?)?;
        let data: &[u8] = match (flag, plus, &self.channel) {
            (BindingFlag::Bound(KIND), true, Some(channel)) => channel,
            (BindingFlag::Bound(_), true, Some(_)) => {
                return Err(Error::Unsupported("channel binding other than tls-server-end-point"));
            }
            (BindingFlag::Bound(_), ..) | (_, true, None) => return Err(Error::Unsupported("channel binding")),
            (_, true, Some(_)) => return Err(Error::Malformed("channel binding, as the mechanism says")),
            // It believes that binding was not offered, though it was.
            (BindingFlag::Unused, false, Some(_)) => return Err(Error::WrongChannel),
            (BindingFlag::Unused | BindingFlag::Unsupported, false, _) => &[],
        };
        let binding = binding::input(header, data);
        if bare.starts_with("m=") {
            return Err(Error::Unsupported("a mandatory extension"));
        }
        let mut attributes = Attributes::new(bare);
        // The name is ignored, as in PostgreSQL: the start-up packet has told it already.
        attributes.expect('n', "a user name")?;
        let client_nonce = message::nonce(attributes.expect('r', "a nonce")?)?;
        attributes.finish()?;
        let nonce = format!("{client_nonce}{nonce}");
        let verifier = self.verifiers.first();
        let salt = STANDARD.encode(&verifier.salt);
        let server_first = format!("r={nonce},s={salt},i={}", verifier.iterations);
        let signed = format!("{bare},{server_first}");
        self.state = State::Challenged { binding, signed, nonce };
        Ok(server_first.into_bytes())
    }

    /// Takes the client's last message and, if it proves knowledge of the password, gives the server's.
    pub fn last(&mut self, client_final: &[u8]) -> Result<Vec<u8>, Error> {
        let State::Challenged { binding, signed, nonce } = std::mem::replace(&mut self.state, State::Over) else {
            return Err(Error::OutOfTurn);
        };
        let text = message::text(client_final)?;
        let (unproved, proof) = text.rsplit_once(",p=").ok_or(Error::Malformed("a proof"))?;
        let mut attributes = Attributes::new(unproved);
        let repeated = attributes.expect('c', "channel-binding data")?;
        if repeated != STANDARD.encode(&binding) {
            return Err(match self.channel {
                Some(_) => Error::WrongChannel,
                None => Error::Malformed("the channel-binding data of the first message"),
            });
        }
        if !crypto::equal(attributes.expect('r', "a nonce")?.as_bytes(), nonce.as_bytes()) {
            return Err(Error::Malformed("the nonce of this exchange"));
        }
        attributes.finish()?;
        let proof = key_from(proof).ok_or(Error::Malformed("a proof of 32 bytes"))?;
        let parts = [signed.as_bytes(), b",", unproved.as_bytes()];
        let proved = self.proves(&proof, &parts).filter(|_| !self.doomed);
        let (verifier, client_key) = proved.ok_or(Error::WrongProof)?;
        let keys = LoginKeys::new(verifier, client_key);
        let signature = crypto::hmac(&verifier.server_key, &parts);
        self.state = State::Proved(keys);
        Ok(format!("v={}", STANDARD.encode(signature)).into_bytes())
    }

    /// The keys that a successful [`Server::last`] has shown, once.
    pub fn take_keys(&mut self) -> Option<LoginKeys> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Proved(keys) => Some(keys),
            _ => None,
        }
    }

    /// The verifier that the proof is right for, and the client's key.
    fn proves(&self, proof: &[u8; KEY_BYTES], signed: &[&[u8]]) -> Option<(&Verifier, [u8; KEY_BYTES])> {
        self.verifiers.iter().find_map(|verifier| {
            let signature = crypto::hmac(&verifier.stored_key, signed);
            let client_key = crypto::xor(proof, &signature);
            crypto::equal(&crypto::hash(&client_key), &verifier.stored_key).then_some((verifier, client_key))
        })
    }
}

/// The user that the first message of a client names, where the protocol has not named one before.
pub fn user_of(client_first: &[u8]) -> Result<String, Error> {
    let (_, _, bare) = message::gs2_header(message::text(client_first)?)?;
    let name = Attributes::new(bare).expect('n', "a user name")?;
    Ok(name.replace("=2C", ",").replace("=3D", "="))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT_FIRST: &[u8] = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const CLIENT_FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                                p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";

    fn of_rfc_7677() -> Server {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = Verifier::from_password("pencil", &salt, 4096);
        Server::new(Arc::new(verifier), "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0".into())
    }

    #[test]
    fn the_example_of_rfc_7677_succeeds() {
        let mut server = of_rfc_7677();
        assert_eq!(
            server.first(CLIENT_FIRST).unwrap(),
            b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        assert_eq!(server.last(CLIENT_FINAL.as_bytes()).unwrap(), b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn the_user_is_the_one_who_is_named() {
        assert_eq!(user_of(CLIENT_FIRST).unwrap(), "user");
        assert_eq!(user_of(b"n,,n=a=3Db=2C=3D2C,r=abc").unwrap(), "a=b,=2C");
        assert!(user_of(b"n,,r=abc").is_err());
    }

    #[test]
    fn a_wrong_proof_fails() {
        let mut server = of_rfc_7677();
        server.first(CLIENT_FIRST).unwrap();
        assert_eq!(server.last(CLIENT_FINAL.replace("p=dH", "p=eH").as_bytes()), Err(Error::WrongProof));
    }

    #[test]
    fn each_of_several_verifiers_will_do_and_no_other_password() {
        let old = Arc::new(Verifier::from_password("old", b"salt", 10));
        let new = Arc::new(old.of_other_password("new"));
        let verifiers = Verifiers::new(vec![Arc::clone(&new), Arc::clone(&old)]).unwrap();
        for (password, is_right) in [("old", true), ("new", true), ("other", false)] {
            let mut server = Server::new(verifiers.clone(), "server".into());
            let (mut client, first) = crate::Client::new("client".into());
            let last = client.respond(&server.first(&first).unwrap(), password, &crate::KeyCache::default()).unwrap();
            let answer = server.last(&last);
            assert_eq!(answer.is_ok(), is_right, "{password}");
            if let Ok(answer) = answer {
                assert_eq!(client.verify(&answer), Ok(()));
            }
        }
        let other = Arc::new(Verifier::from_password("old", b"other salt", 10));
        assert!(Verifiers::new(vec![old, other]).is_none() && Verifiers::new(Vec::new()).is_none());
    }

    #[test]
    fn a_changed_header_or_nonce_fails() {
        for (from, to) in [("c=biws", "c=eSws"), ("hNlF$k0", "hNlF$k1"), (",p=", ",q="), (",r=", ",x=")] {
            let mut server = of_rfc_7677();
            server.first(CLIENT_FIRST).unwrap();
            assert!(matches!(server.last(CLIENT_FINAL.replace(from, to).as_bytes()), Err(Error::Malformed(_))), "{to}");
        }
    }

    #[test]
    fn messages_out_of_turn_fail() {
        let mut server = of_rfc_7677();
        assert_eq!(server.last(CLIENT_FINAL.as_bytes()), Err(Error::OutOfTurn));
        assert_eq!(server.first(CLIENT_FIRST), Err(Error::OutOfTurn));
    }

    #[test]
    fn channel_binding_and_mandatory_extensions_are_declined() {
        let first = |text: &[u8]| of_rfc_7677().first(text);
        assert_eq!(first(b"p=tls-server-end-point,,n=,r=abc"), Err(Error::Unsupported("channel binding")));
        assert_eq!(first(b"n,,m=x,n=,r=abc"), Err(Error::Unsupported("a mandatory extension")));
        assert!(first(b"y,,n=,r=abc,x=1").is_ok());
        for bad in [&b"n,,n=,r="[..], b"n,,n=", b"n,,r=abc", b"\xff", b"n,,n=,r=a\x01b"] {
            assert!(matches!(first(bad), Err(Error::Malformed(_))));
        }
    }

    #[test]
    fn a_client_that_was_kept_from_binding_is_refused() {
        let offering = || of_rfc_7677().offering_channel(Some(b"certificate"[..].into()));
        assert_eq!(offering().first(b"y,,n=,r=abc"), Err(Error::WrongChannel));
        assert!(offering().first(b"n,,n=,r=abc").is_ok());
        assert!(matches!(offering().first(b"p=tls-server-end-point,,n=,r=abc"), Err(Error::Unsupported(_))));
        assert!(offering().first_bound(b"p=tls-server-end-point,,n=,r=abc").is_ok());
        assert!(matches!(offering().first_bound(b"p=tls-unique,,n=,r=abc"), Err(Error::Unsupported(_))));
        assert!(matches!(offering().first_bound(b"n,,n=,r=abc"), Err(Error::Malformed(_))));
        assert!(matches!(of_rfc_7677().first_bound(b"p=tls-server-end-point,,n=,r=abc"), Err(Error::Unsupported(_))));
    }
}
