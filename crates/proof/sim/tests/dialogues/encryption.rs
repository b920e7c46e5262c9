//! How sessions handle TLS, call by call: a rig has no TLS. The tests on real sockets cover the whole.

use std::sync::Arc;

use postgres_session::{Binding, Client, Encryption, Postgres, Proof, Server, ServerEncryption, Tls};
use seam::{ClientTag, CloseReason, Effect, Outbox, Protocol, Secured, ServerTag};
use sim::rig::{
    POOL,
    postgres::{TestDirectory, message, messages, startup},
};

use crate::support::{NoSessions, UNKNOWN_ORIGIN, input, text};

const SSL_REQUEST: &[u8] = &[0, 0, 0, 8, 4, 210, 22, 47];
const CHANNEL: &[u8] = b"hash of the certificate";

fn secured() -> Secured {
    Secured { end_point: Some(CHANNEL.into()), peer_name: None, alpn_agreed: true }
}

/// The session of a client, and the effects of its last call.
struct Caller {
    postgres: Postgres,
    session: Client,
    out: Outbox,
}

impl Caller {
    const TAG: ClientTag = ClientTag(1);

    fn new(encryption: Encryption, proof: Proof) -> Self {
        let postgres = Postgres::new(Arc::new(TestDirectory { encryption, proof, ..TestDirectory::default() }));
        let mut out = Outbox::new();
        let session = postgres.client_start(Self::TAG, UNKNOWN_ORIGIN, &mut out);
        Self { postgres, session, out }
    }

    fn send(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.out = Outbox::new();
        self.postgres.client_input(Self::TAG, &mut self.session, &mut NoSessions, input(bytes), &mut self.out);
        self.out.inserted.clone()
    }

    fn is_secured(&mut self) {
        assert!(self.out.effects.iter().any(|effect| matches!(effect, Effect::StartTls { .. })));
        self.out = Outbox::new();
        self.postgres.client_secured(Self::TAG, &mut self.session, secured(), &mut self.out);
    }
}

#[test]
fn tls_is_begun_once() {
    let mut client = Caller::new(Encryption::Allow, Proof::Trust);
    assert_eq!(client.send(SSL_REQUEST), b"S");
    client.is_secured();
    assert!(text(&client.send(SSL_REQUEST)).contains("encryption asked for twice"));
}

#[test]
fn where_tls_is_required_a_cancel_request_may_come_in_the_clear() {
    // Older clients send them in the clear, and they contain no secret but the key.
    let mut client = Caller::new(Encryption::Require, Proof::Trust);
    client.send(&[0, 0, 0, 16, 4, 210, 22, 46, 1, 0, 0, 1, 0, 0, 0, 7]);
    let cancels = |effect: &Effect| matches!(effect, Effect::Cancel { target: ClientTag(1), secret: 7, .. });
    assert!(client.out.effects.iter().any(cancels), "{:?}", client.out.effects);
}

/// The last message of a SCRAM login within TLS.
fn bound_login(mechanism: &str, binding: scram::ChannelBinding) -> Vec<u8> {
    let proof = Proof::Scram(Arc::new(scram::Verifier::from_password("pencil", b"salt", 2)).into());
    let mut client = Caller::new(Encryption::Allow, proof);
    client.send(SSL_REQUEST);
    client.is_secured();
    let offered = client.send(&startup(3 << 16, &[("user", "app")]));
    assert_eq!(text(&offered[9..]), "SCRAM-SHA-256-PLUS~SCRAM-SHA-256~~");
    let (mut exchange, first) = scram::Client::bound("nonce".into(), binding);
    let length = (first.len() as u32).to_be_bytes();
    let received = client.send(&message(b'p', &[mechanism.as_bytes(), b"\0", &length, &first].concat()));
    if received[0] != b'R' {
        return received;
    }
    let last = exchange.respond(&received[9..], "pencil", &scram::KeyCache::default()).unwrap();
    client.send(&message(b'p', &last))
}

#[test]
fn a_clients_login_is_bound_to_its_tls_connection() {
    use scram::ChannelBinding::{Bound, Unsupported, Unused};
    for received in
        [bound_login("SCRAM-SHA-256-PLUS", Bound(CHANNEL.into())), bound_login("SCRAM-SHA-256", Unsupported)]
    {
        assert_eq!((received[0], &received[5..9]), (b'R', &[0, 0, 0, 12][..]));
    }
    let other = Bound(b"of an attacker"[..].into());
    for received in [bound_login("SCRAM-SHA-256-PLUS", other), bound_login("SCRAM-SHA-256", Unused)] {
        assert!(received[0] == b'E' && text(&received).contains("between"), "{}", text(&received));
    }
}

/// The session of a server, and the effects of its last call.
struct Called {
    postgres: Postgres,
    session: Server,
    out: Outbox,
}

impl Called {
    const TAG: ServerTag = ServerTag(1);

    fn new(server_encryption: ServerEncryption) -> Self {
        let directory =
            TestDirectory { password: Some("pencil".into()), server_encryption, ..TestDirectory::default() };
        let postgres = Postgres::new(Arc::new(directory));
        let mut out = Outbox::new();
        let session = postgres.server_start(Self::TAG, POOL, &mut out);
        Self { postgres, session, out }
    }

    fn within_tls(binding: Binding, end_point: bool) -> Self {
        let mut server = Self::new(encryption(Tls::Require, binding));
        server.send(b"S");
        server.is_secured(Secured { end_point: end_point.then(|| CHANNEL.into()), ..secured() });
        server
    }

    fn send(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.out = Outbox::new();
        self.postgres.server_input(Self::TAG, &mut self.session, &mut NoSessions, input(bytes), &mut self.out);
        self.out.inserted.clone()
    }

    fn is_secured(&mut self, secured: Secured) -> Vec<u8> {
        self.out = Outbox::new();
        self.postgres.server_secured(Self::TAG, &mut self.session, secured, &mut self.out);
        self.out.inserted.clone()
    }

    /// Whether its start failed for good, and why.
    fn failed(&self) -> Option<(bool, &str)> {
        self.out.effects.iter().find_map(|effect| match effect {
            Effect::Close { reason: CloseReason::StartFailed { permanent, message }, .. } => {
                Some((*permanent, message.as_str()))
            }
            _ => None,
        })
    }
}

fn encryption(tls: Tls, binding: Binding) -> ServerEncryption {
    ServerEncryption { tls, direct: false, binding }
}

/// An authentication request.
fn request(kind: u8, body: &[u8]) -> Vec<u8> {
    message(b'R', &[&[0, 0, 0, kind], body].concat())
}

#[test]
fn tls_is_requested_before_the_start_up() {
    let mut server = Called::new(encryption(Tls::Require, Binding::Prefer));
    assert_eq!(server.out.inserted, SSL_REQUEST);
    assert_eq!(server.send(b"S"), b"");
    assert!(text(&server.is_secured(secured())).contains("user~app~"));
}

#[test]
fn an_error_in_the_clear_is_not_repeated() {
    let mut server = Called::new(encryption(Tls::Prefer, Binding::Prefer));
    server.send(&messages("E:SFATAL~C53300~Mforged~~"));
    let (permanent, message) = server.failed().unwrap();
    assert!(!permanent && !message.contains("forged"));
}

#[test]
fn direct_tls_asks_nothing_and_needs_the_protocols_name() {
    let direct = ServerEncryption { direct: true, ..encryption(Tls::Require, Binding::Prefer) };
    let mut server = Called::new(direct);
    assert_eq!(server.out.inserted, b"");
    assert!(text(&server.is_secured(secured())).contains("user~app~"));

    let mut server = Called::new(direct);
    server.is_secured(Secured { alpn_agreed: false, ..secured() });
    assert!(server.failed().unwrap().0);
}

#[test]
fn a_login_at_a_server_is_bound_where_it_can_be() {
    let both = b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0";
    let plain = b"SCRAM-SHA-256\0\0";
    let chosen = |binding, end_point, mechanisms: &[u8]| {
        let mut server = Called::within_tls(binding, end_point);
        let answer = server.send(&request(10, mechanisms));
        match server.failed() {
            None => text(&answer[5..]),
            Some((_, why)) => why.to_owned(),
        }
    };
    for binding in [Binding::Prefer, Binding::Require] {
        let answer = chosen(binding, true, both);
        assert!(answer.starts_with("SCRAM-SHA-256-PLUS~") && answer.contains("p=tls-server-end-point,,"), "{answer}");
    }
    assert!(chosen(Binding::Never, true, both).contains("n,,n="));
    assert!(chosen(Binding::Prefer, false, both).contains("n,,n="));
    // A server that did offer it sees from this that the offer was removed on the way.
    assert!(chosen(Binding::Prefer, true, plain).contains("y,,n="));
    assert!(chosen(Binding::Require, true, plain).contains("channel_binding=require"));
    assert!(chosen(Binding::Require, false, both).contains("channel_binding=require"));
}

#[test]
fn where_binding_is_required_no_other_login_will_do() {
    for asked in [request(0, b""), request(3, b""), request(5, b"salt")] {
        let mut server = Called::within_tls(Binding::Require, true);
        assert_eq!(server.send(&asked), b"", "the password stays here");
        assert!(server.failed().unwrap().1.contains("channel_binding=require"));
    }
}

#[test]
fn an_offer_to_bind_in_the_clear_is_an_attack() {
    let mut server = Called::new(encryption(Tls::Never, Binding::Prefer));
    server.send(&request(10, b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0"));
    assert!(server.failed().unwrap().1.contains("in between"));
}
