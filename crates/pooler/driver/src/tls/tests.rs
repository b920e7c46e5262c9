//! Both sides of TLS against each other, in memory, in pieces of several sizes.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use super::*;

/// As the reactor's buffers.
const BUFFER: usize = 32 * 1024;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn issue(authority: &Authority, common_name: &str, hosts: &[&str]) -> TlsIdentity {
    let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    TlsIdentity { certificates: certificate.pem().into_bytes(), key: key.serialize_pem().into_bytes() }
}

fn pem(authority: &Authority) -> Vec<u8> {
    authority.pem().into_bytes()
}

/// One side: its channel, and what it has decrypted.
struct End {
    channel: Channel,
    plain: Vec<u8>,
    secured: Option<seam::Secured>,
}

impl End {
    fn new(mut channel: Channel, out: &mut Vec<u8>) -> Self {
        channel.begin(&[], out).unwrap();
        Self { channel, plain: Vec::new(), secured: None }
    }

    /// Hears something, as the reactor hands it over.
    fn hear(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), rustls::Error> {
        let (mut cipher, mut plain) = (vec![0; BUFFER], vec![0; BUFFER]);
        let laid = self.channel.copy_incoming(&mut cipher);
        cipher[laid..laid + bytes.len()].copy_from_slice(bytes);
        let decrypted = self.channel.receive(&mut cipher[..laid + bytes.len()], &mut plain, out)?;
        self.plain.extend(&plain[..decrypted.length]);
        assert!(!(decrypted.secured.is_some() && self.secured.is_some()), "a handshake ends once");
        self.secured = self.secured.take().or(decrypted.secured);
        Ok(())
    }
}

/// Lets two sides speak until both are silent. At most `piece` bytes arrive at once.
fn converse(
    accepting: &mut End,
    connecting: &mut End,
    mut to_accepting: Vec<u8>,
    piece: usize,
) -> Result<(), rustls::Error> {
    let mut to_connecting = Vec::new();
    while !to_accepting.is_empty() || !to_connecting.is_empty() {
        for bytes in std::mem::take(&mut to_accepting).chunks(piece) {
            accepting.hear(bytes, &mut to_connecting)?;
        }
        for bytes in std::mem::take(&mut to_connecting).chunks(piece) {
            connecting.hear(bytes, &mut to_accepting)?;
        }
    }
    Ok(())
}

fn shake_hands(
    acceptor: &TlsAcceptor,
    connector: &TlsConnector,
    host: &str,
    piece: usize,
) -> Result<(End, End), rustls::Error> {
    let (mut silence, mut hello) = (Vec::new(), Vec::new());
    let mut accepting = End::new(acceptor.accept().unwrap(), &mut silence);
    let mut connecting = End::new(connector.client_channel(host).unwrap(), &mut hello);
    assert!(silence.is_empty() && !hello.is_empty());
    converse(&mut accepting, &mut connecting, hello, piece)?;
    Ok((accepting, connecting))
}

fn acceptor(identity: &TlsIdentity, clients: &ClientCertificates) -> TlsAcceptor {
    TlsAcceptor::new(identity, clients, &[b"x"]).unwrap()
}

fn connector(trust: &Trust) -> TlsConnector {
    TlsConnector::new(trust, None, &[b"x"]).unwrap()
}

#[test]
fn what_is_said_arrives_in_whatever_pieces_and_nothing_is_kept() {
    let ours = authority("ours");
    let acceptor = acceptor(&issue(&ours, "host", &["host.test"]), &ClientCertificates::Ignored);
    for piece in [1, 7, 1000, 20_000] {
        let (mut a, mut b) = shake_hands(&acceptor, &connector(&Trust::Host(pem(&ours))), "host.test", piece).unwrap();
        let (seen, own) = (b.secured.clone().unwrap(), a.secured.clone().unwrap());
        assert!(own.alpn_agreed && seen.alpn_agreed && own.peer_name.is_none());
        assert!(own.end_point.is_some() && own.end_point == seen.end_point, "both bind to the same certificate");
        let text: Vec<u8> = (0..50_000u32).map(|n| n as u8).collect();
        let mut sent = Vec::new();
        b.channel.encrypt(&text, &mut sent).unwrap();
        converse(&mut a, &mut b, sent, piece).unwrap();
        assert_eq!(a.plain, text);
        assert!(a.channel.copy_incoming(&mut vec![0; BUFFER]) == 0 && !a.channel.has_input());
        let mut sent = Vec::new();
        b.channel.close_notify(&mut sent).unwrap();
        a.hear(&sent, &mut Vec::new()).unwrap();
        assert!(a.channel.has_ended());
    }
}

#[test]
fn nothing_is_said_before_the_handshake_is_done_or_after_the_end() {
    let ours = authority("ours");
    let acceptor = acceptor(&issue(&ours, "host", &["host.test"]), &ClientCertificates::Ignored);
    let mut out = Vec::new();
    let mut early = End::new(acceptor.accept().unwrap(), &mut out);
    early.channel.encrypt(b"secret", &mut out).unwrap();
    early.channel.close_notify(&mut out).unwrap();
    assert!(out.is_empty());
    assert!(early.hear(b"GET / HTTP/1.1\r\n\r\n", &mut out).is_err());
    assert_eq!(out[0], 0x15, "the other side is told by an alert");
    out.clear();
    assert!(early.hear(b"more", &mut out).is_err());
    early.channel.encrypt(b"secret", &mut out).unwrap();
    assert!(out.is_empty());
}

#[test]
fn an_upstream_is_believed_as_the_rule_says() {
    let (ours, others) = (authority("ours"), authority("others"));
    let acceptor = acceptor(&issue(&ours, "host", &["host.test", "127.0.0.1"]), &ClientCertificates::Ignored);
    let goes = |trust: &Trust, host: &str| match shake_hands(&acceptor, &connector(trust), host, BUFFER / 2) {
        Ok(_) => Ok(()),
        Err(error) => Err(tls_failure_of(&Failed::error(&error)).unwrap().clone()),
    };
    assert!(goes(&Trust::Anybody, "elsewhere.test").is_ok());
    assert!(goes(&Trust::Authority(pem(&ours)), "elsewhere.test").is_ok());
    assert!(goes(&Trust::Host(pem(&ours)), "host.test").is_ok());
    assert!(goes(&Trust::Host(pem(&ours)), "127.0.0.1").is_ok());
    let wrong_host = goes(&Trust::Host(pem(&ours)), "elsewhere.test").unwrap_err();
    assert!(wrong_host.bad_certificate && wrong_host.message.contains("host name"), "{wrong_host:?}");
    let stranger = goes(&Trust::Authority(pem(&others)), "host.test").unwrap_err();
    assert!(stranger.bad_certificate && stranger.message.contains("trusted"), "{stranger:?}");
}

#[test]
fn clients_are_known_by_their_certificates() {
    let (ours, others) = (authority("ours"), authority("others"));
    let server = issue(&ours, "host", &["host.test"]);
    let shown = |clients: &ClientCertificates, identity: Option<&TlsIdentity>| {
        let connector = TlsConnector::new(&Trust::Anybody, identity, &[b"x"]).unwrap();
        let ends = shake_hands(&acceptor(&server, clients), &connector, "host.test", BUFFER / 2);
        ends.map(|(accepting, _)| accepting.secured.unwrap().peer_name)
    };
    let (optional, required) = (ClientCertificates::Optional(pem(&ours)), ClientCertificates::Required(pem(&ours)));
    let (app, stranger) = (issue(&ours, "app", &[]), issue(&others, "app", &[]));
    assert_eq!(shown(&ClientCertificates::Ignored, Some(&app)), Ok(None));
    assert_eq!(shown(&optional, None), Ok(None));
    for clients in [&optional, &required] {
        assert_eq!(shown(clients, Some(&app)), Ok(Some("app".to_owned())));
        assert!(shown(clients, Some(&stranger)).is_err());
    }
    assert!(shown(&required, None).is_err());
}

#[test]
fn what_is_shown_can_be_replaced_under_way() {
    let ours = authority("ours");
    let acceptor = acceptor(&issue(&ours, "old", &["old.test"]), &ClientCertificates::Ignored);
    let trust = Trust::Host(pem(&ours));
    let (mut a, mut b) = shake_hands(&acceptor, &connector(&trust), "old.test", BUFFER / 2).unwrap();
    let newer = TlsAcceptor::new(&issue(&ours, "new", &["new.test"]), &ClientCertificates::Ignored, &[b"x"]).unwrap();
    acceptor.replace(&newer);
    assert!(shake_hands(&acceptor, &connector(&trust), "old.test", BUFFER / 2).is_err());
    assert!(shake_hands(&acceptor, &connector(&trust), "new.test", BUFFER / 2).is_ok());
    let mut sent = Vec::new();
    b.channel.encrypt(b"still here", &mut sent).unwrap();
    a.hear(&sent, &mut Vec::new()).unwrap();
    assert_eq!(a.plain, b"still here");
}

#[test]
fn files_that_hold_the_wrong_thing_are_explained() {
    let ours = authority("ours");
    let identity = issue(&ours, "host", &["host.test"]);
    let error =
        |identity: TlsIdentity| TlsAcceptor::new(&identity, &ClientCertificates::Ignored, &[]).unwrap_err().to_string();
    assert!(error(TlsIdentity { certificates: b"x".to_vec(), ..identity.clone() }).contains("no certificate"));
    assert!(error(TlsIdentity { key: identity.certificates.clone(), ..identity.clone() }).contains("no private key"));
    assert!(error(TlsIdentity { key: issue(&ours, "x", &[]).key, ..identity.clone() }).contains("does not belong"));
    assert!(!format!("{identity:?}").contains("PRIVATE"));
}
