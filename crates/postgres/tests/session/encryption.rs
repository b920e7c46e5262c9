//! TLS as sessions see it, on both sides, and logins that are bound to it. The handshake itself is played.

use std::sync::Arc;

use postgres::{Binding, Encryption, PoolMode, Proof, ServerEncryption, Tls};
use protocol::{CloseReason, Effect, Outbox, Peer, Protocol, Secured, ServerTag, TlsFailure};

use crate::{
    logins::{failed, request},
    world::{Doors, Pieces, World, message, messages, server_welcome, startup},
};

const SSL_REQUEST: &[u8] = &[0, 0, 0, 8, 4, 210, 22, 47];
const CHANNEL: &[u8] = b"hash of the certificate";

fn doors(encryption: Encryption, proof: Proof) -> Doors {
    Doors { encryption, ..Doors::new(PoolMode::Transaction, proof, None) }
}

fn scram_proof() -> Proof {
    Proof::Scram(Arc::new(scram::Verifier::from_password("pencil", b"salt", 2)))
}

fn world(encryption: Encryption, proof: Proof) -> World {
    let mut world = World::new(doors(encryption, proof));
    let server = world.connect_server();
    world.server_got(server);
    world.server_says(server, &server_welcome());
    world
}

fn secured() -> Secured {
    Secured { end_point: Some(CHANNEL.into()), peer_name: None, alpn: true }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "~")
}

#[test]
fn a_client_that_asks_for_tls_gets_it_in_whatever_pieces_it_asks() {
    for pieces in [Pieces::Whole, Pieces::Of(1), Pieces::SplitAt(5)] {
        let mut world = world(Encryption::Allow, Proof::Trust);
        world.pieces = pieces;
        let client = world.connect_client();
        world.client_says(client, SSL_REQUEST);
        assert_eq!(world.client_got(client), b"S");
        assert_eq!(world.handshakes, [Peer::Client(client)]);
        world.client_secured(client, secured());
        world.client_says(client, &startup(3 << 16, &[("user", "app")]));
        assert!(world.clients.0[&client.0].logged_in);
    }
}

#[test]
fn bytes_behind_a_request_for_tls_are_never_taken_for_the_clients() {
    let mut world = world(Encryption::Allow, Proof::Trust);
    let client = world.connect_client();
    world.client_says(client, &[SSL_REQUEST, &startup(3 << 16, &[("user", "app")])].concat());
    let got = text(&world.client_got(client));
    assert!(got.contains("08P01") && got.contains("unencrypted"), "{got}");
    assert!(world.handshakes.is_empty() && world.clients.0[&client.0].closed.is_some());
}

#[test]
fn tls_is_begun_once() {
    let mut world = world(Encryption::Allow, Proof::Trust);
    let client = world.connect_client();
    world.client_says(client, SSL_REQUEST);
    world.client_secured(client, secured());
    world.client_got(client);
    world.client_says(client, SSL_REQUEST);
    assert!(text(&world.client_got(client)).contains("encryption asked for twice"));
    assert!(world.handshakes.is_empty());
}

#[test]
fn a_handshake_without_asking_needs_the_protocols_name() {
    let hello = [0x16, 3, 1, 0, 200, 1];
    for (alpn, lets_in) in [(true, true), (false, false)] {
        let mut world = world(Encryption::Allow, Proof::Trust);
        let client = world.connect_client();
        world.client_says(client, &hello);
        assert_eq!(world.clients.0[&client.0].held, hello, "the handshake is not the session's to consume");
        world.clients.0.get_mut(&client.0).unwrap().held.clear();
        world.client_secured(client, Secured { alpn, ..secured() });
        assert_eq!(world.clients.0[&client.0].closed.is_none(), lets_in);
    }
    let mut world = world(Encryption::Off, Proof::Trust);
    let client = world.connect_client();
    world.client_says(client, &hello);
    assert!(world.handshakes.is_empty() && text(&world.client_got(client)).contains("no TLS"));
}

#[test]
fn where_tls_is_required_nobody_logs_in_without() {
    let mut world = world(Encryption::Require, Proof::Trust);
    let client = world.connect_client();
    world.client_says(client, &startup(3 << 16, &[("user", "app")]));
    let got = text(&world.client_got(client));
    assert!(got.contains("C28000~") && got.contains("sslmode=require"), "{got}");
    // Older clients send cancel requests in the clear, and those tell nothing.
    let client = world.connect_client();
    world.client_says(client, &[0, 0, 0, 16, 4, 210, 22, 46, 0, 1, 0, 1, 0, 0, 0, 2]);
    assert!(world.log.contains(&"cancel 1 2".to_owned()));
}

#[test]
fn a_certificate_lets_in_whom_it_names() {
    for (name, lets_in) in [(Some("app"), true), (Some("App"), false), (Some("other"), false), (None, false)] {
        let mut world = world(Encryption::Allow, Proof::Certificate);
        let client = world.connect_client();
        world.client_says(client, SSL_REQUEST);
        world.client_got(client);
        world.client_secured(client, Secured { peer_name: name.map(str::to_owned), ..secured() });
        world.client_says(client, &startup(3 << 16, &[("user", "app")]));
        assert_eq!(world.clients.0[&client.0].logged_in, lets_in, "{name:?}");
        assert_eq!(world.auth_failures, usize::from(!lets_in));
    }
    let mut world = world(Encryption::Allow, Proof::Certificate);
    let client = world.connect_client();
    world.client_says(client, &startup(3 << 16, &[("user", "app")]));
    assert!(text(&world.client_got(client)).contains("certificate authentication failed"));
}

/// A SCRAM login within TLS: what the client chose, and whether it got in.
fn bound_login(mechanism: &str, binding: scram::ChannelBinding) -> (bool, String) {
    let mut world = world(Encryption::Allow, scram_proof());
    let client = world.connect_client();
    world.client_says(client, SSL_REQUEST);
    world.client_got(client);
    world.client_secured(client, secured());
    world.client_says(client, &startup(3 << 16, &[("user", "app")]));
    assert_eq!(text(&world.client_got(client)[9..]), "SCRAM-SHA-256-PLUS~SCRAM-SHA-256~~");
    let (mut exchange, first) = scram::Client::bound("nonce".into(), binding);
    let length = (first.len() as u32).to_be_bytes();
    world.client_says(client, &message(b'p', &[mechanism.as_bytes(), b"\0", &length, &first].concat()));
    let challenge = world.client_got(client);
    if challenge[0] == b'R' {
        let last = exchange.respond(&challenge[9..], "pencil", &scram::KeyCache::default()).unwrap();
        world.client_says(client, &message(b'p', &last));
        return (world.clients.0[&client.0].logged_in, text(&world.client_got(client)));
    }
    (false, text(&challenge))
}

#[test]
fn a_clients_login_is_bound_to_its_tls_connection() {
    use scram::ChannelBinding::{Bound, Unsupported, Unused};
    assert!(bound_login("SCRAM-SHA-256-PLUS", Bound(CHANNEL.into())).0);
    assert!(bound_login("SCRAM-SHA-256", Unsupported).0);
    let (lets_in, error) = bound_login("SCRAM-SHA-256-PLUS", Bound(b"of somebody in between"[..].into()));
    assert!(!lets_in && error.contains("between"), "{error}");
    let (lets_in, error) = bound_login("SCRAM-SHA-256", Unused);
    assert!(!lets_in && error.contains("between"), "{error}");
}

// ---- servers ----

fn encryption(tls: Tls, binding: Binding) -> ServerEncryption {
    ServerEncryption { tls, direct: false, binding }
}

fn connecting(server_encryption: ServerEncryption) -> (World, ServerTag) {
    let doors = Doors::new(PoolMode::Transaction, Proof::Trust, Some("pencil".into()));
    let mut world = World::new(Doors { server_encryption, ..doors });
    let server = world.connect_server();
    (world, server)
}

fn start_up() -> Vec<u8> {
    startup(3 << 16, &[("user", "app"), ("database", "db"), ("application_name", "ph")])
}

#[test]
fn tls_is_asked_for_before_anything_is_told() {
    let (mut world, server) = connecting(encryption(Tls::Require, Binding::Prefer));
    assert_eq!(world.server_got(server), SSL_REQUEST);
    world.server_says(server, b"S");
    assert_eq!(world.server_got(server), b"");
    world.server_secured(server, secured());
    assert_eq!(world.server_got(server), start_up());
    world.server_says(server, &server_welcome());
    assert_eq!(world.idle, [server]);
}

#[test]
fn a_server_without_tls_is_used_only_if_that_is_allowed() {
    let (mut world, server) = connecting(encryption(Tls::Prefer, Binding::Prefer));
    assert_eq!(world.server_got(server), SSL_REQUEST);
    world.server_says(server, b"N");
    assert_eq!(world.server_got(server), start_up());

    let (mut world, server) = connecting(encryption(Tls::Require, Binding::Prefer));
    world.server_got(server);
    world.server_says(server, b"N");
    let (permanent, message) = failed(&world, server);
    assert!(permanent && message.contains("does not support TLS"));
    assert_eq!(world.server_got(server), b"", "nothing is told in the clear");
}

#[test]
fn bytes_behind_the_agreement_are_never_taken_for_the_servers() {
    let (mut world, server) = connecting(encryption(Tls::Require, Binding::Prefer));
    world.server_says(server, &[b"S", &server_welcome()[..]].concat());
    assert!(failed(&world, server).1.contains("unencrypted"));
    assert!(world.handshakes.is_empty());
}

#[test]
fn an_error_in_the_clear_is_not_repeated() {
    let (mut world, server) = connecting(encryption(Tls::Prefer, Binding::Prefer));
    world.server_says(server, &messages("E:SFATAL~C53300~Mforged~~"));
    let (permanent, message) = failed(&world, server);
    assert!(!permanent && !message.contains("forged"));
}

#[test]
fn direct_tls_asks_nothing_and_needs_the_protocols_name() {
    let direct = ServerEncryption { direct: true, ..encryption(Tls::Require, Binding::Prefer) };
    let (mut world, server) = connecting(direct);
    assert_eq!(world.server_got(server), b"");
    world.server_secured(server, secured());
    assert_eq!(world.server_got(server), start_up());

    let (mut world, server) = connecting(direct);
    world.server_secured(server, Secured { alpn: false, ..secured() });
    assert!(failed(&world, server).0);
}

/// Makes another connection of the same pool; whether it asks for TLS.
fn next_asks_for_tls(world: &mut World) -> bool {
    let next = world.connect_server();
    world.server_got(next) == SSL_REQUEST
}

#[test]
fn allow_goes_without_tls_until_it_is_turned_away() {
    let (mut world, server) = connecting(encryption(Tls::Allow, Binding::Prefer));
    assert_eq!(world.server_got(server), start_up());
    world.server_says(server, &messages("E:SFATAL~C28000~Mno~~"));
    assert!(!failed(&world, server).0, "the other way may do");
    assert!(next_asks_for_tls(&mut world));
}

#[test]
fn prefer_goes_without_tls_if_the_handshake_fails() {
    let (mut world, server) = connecting(encryption(Tls::Prefer, Binding::Prefer));
    world.server_says(server, b"S");
    let failure = TlsFailure { certificate: true, message: "no".into() };
    let session = &mut world.servers.0.get_mut(&server.0).unwrap().session;
    let reason = world.postgres.server_tls_failed(session, failure.clone());
    assert_eq!(reason, CloseReason::StartFailed { permanent: false, message: "no".into() });
    assert!(!next_asks_for_tls(&mut world));

    let (mut world, server) = connecting(encryption(Tls::Require, Binding::Prefer));
    world.server_says(server, b"S");
    let session = &mut world.servers.0.get_mut(&server.0).unwrap().session;
    let reason = world.postgres.server_tls_failed(session, failure);
    assert_eq!(reason, CloseReason::StartFailed { permanent: true, message: "no".into() });
    assert!(next_asks_for_tls(&mut world));
}

/// A server within TLS that offers these mechanisms: what Poolhouse answers.
fn offered(binding: Binding, end_point: bool, mechanisms: &[u8]) -> Result<String, String> {
    let (mut world, server) = connecting(encryption(Tls::Require, binding));
    world.server_says(server, b"S");
    world.server_got(server);
    world.server_secured(server, Secured { end_point: end_point.then(|| CHANNEL.into()), ..secured() });
    world.server_got(server);
    world.server_says(server, &request(10, mechanisms));
    match world.servers.0[&server.0].closed {
        None => Ok(text(&world.server_got(server)[5..])),
        Some(_) => Err(failed(&world, server).1),
    }
}

#[test]
fn a_login_at_a_server_is_bound_where_it_can_be() {
    let both = b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0";
    let plain = b"SCRAM-SHA-256\0\0";
    let chosen = |binding, end_point, mechanisms: &[u8]| offered(binding, end_point, mechanisms).unwrap();
    for binding in [Binding::Prefer, Binding::Require] {
        let answer = chosen(binding, true, both);
        assert!(answer.starts_with("SCRAM-SHA-256-PLUS~") && answer.contains("p=tls-server-end-point,,"), "{answer}");
    }
    assert!(chosen(Binding::Never, true, both).contains("n,,n="));
    assert!(chosen(Binding::Prefer, false, both).contains("n,,n="));
    // If the server did offer it, it will see from this that somebody took the offer away.
    assert!(chosen(Binding::Prefer, true, plain).contains("y,,n="));
    assert!(offered(Binding::Require, true, plain).unwrap_err().contains("channel_binding=require"));
    assert!(offered(Binding::Require, false, both).unwrap_err().contains("channel_binding=require"));
}

#[test]
fn where_binding_is_required_no_other_login_will_do() {
    for asked in [request(0, b""), request(3, b""), request(5, b"salt")] {
        let (mut world, server) = connecting(encryption(Tls::Require, Binding::Require));
        world.server_says(server, b"S");
        world.server_secured(server, secured());
        world.server_got(server);
        world.server_says(server, &asked);
        assert!(failed(&world, server).1.contains("channel_binding=require"));
        assert_eq!(world.server_got(server), b"", "the password stays here");
    }
}

#[test]
fn an_offer_to_bind_in_the_clear_is_somebody_elses() {
    let (mut world, server) = connecting(encryption(Tls::Never, Binding::Prefer));
    world.server_got(server);
    world.server_says(server, &request(10, b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0"));
    assert!(failed(&world, server).1.contains("in between"));
}

#[test]
fn a_cancel_request_is_encrypted_like_the_connection_it_is_for() {
    let (mut world, server) = connecting(encryption(Tls::Require, Binding::Prefer));
    world.server_says(server, b"S");
    world.server_secured(server, secured());
    world.server_says(server, &server_welcome());
    let client = world.connect_client();
    world.client_says(client, &startup(3 << 16, &[("user", "app")]));
    world.client_says(client, &messages("Q:SELECT~"));
    let crate::world::World { postgres, clients, servers, .. } = &mut world;
    let mut out = Outbox::new();
    postgres.client_gone(client, &mut clients.0.get_mut(&client.0).unwrap().session, servers, &mut out);
    let upgrade = out.effects.iter().find_map(|effect| match effect {
        Effect::SideConnection { upgrade, .. } => Some(upgrade.clone()),
        _ => None,
    });
    let upgrade = upgrade.expect("a query that runs for nobody is cancelled").expect("it is encrypted");
    assert_eq!(&out.inserted[upgrade.ask], SSL_REQUEST);
    assert_eq!(upgrade.agreed, b'S');
}
