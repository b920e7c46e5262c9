//! A reactor with TLS on socket pairs: what one turn of it may cost the others.

use std::{io::Write, os::unix::net::UnixStream};

use super::*;
use crate::{
    reactor::{Owner, Reactor, epoll::Seed},
    tls::{ClientCertificates, TlsAcceptor, TlsConnector, TlsIdentity, Trust},
};

const CLIENTS: u32 = 3 * HANDSHAKE_BATCH;

fn acceptor() -> TlsAcceptor {
    let made = rcgen::generate_simple_self_signed(["host.test".to_owned()]).unwrap();
    let identity =
        TlsIdentity { certificates: made.cert.pem().into_bytes(), key: made.signing_key.serialize_pem().into_bytes() };
    TlsAcceptor::new(&identity, &ClientCertificates::Ignored, &[]).unwrap()
}

#[test]
fn a_turn_takes_part_in_so_many_handshakes_and_none_is_forgotten() {
    let (acceptor, connector) = (acceptor(), TlsConnector::new(&Trust::Anybody, None, &[]).unwrap());
    let (seed, _waker) = Seed::new(std::time::Duration::from_millis(20)).unwrap();
    let mut reactor = Epoll::new(seed, 32 * 1024);
    let mut peers = Vec::new();
    for client in 0..CLIENTS {
        let (here, mut there) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        there.set_nonblocking(true).unwrap();
        let conn = reactor.attach(here.into(), Owner::Client(client)).unwrap();
        assert!(matches!(reactor.start_tls(conn, acceptor.accept().unwrap(), &[]), Submitted::Done));
        reactor.receive(conn);
        let mut hello = Vec::new();
        connector.client_channel("host.test").unwrap().begin(&[], &mut hello).unwrap();
        there.write_all(&hello).unwrap();
        peers.push(there);
    }
    let answered = || {
        let is_answered = |peer: &&UnixStream| rustix::io::ioctl_fionread(peer).unwrap() > 0;
        u32::try_from(peers.iter().filter(is_answered).count()).unwrap()
    };
    let mut before = 0;
    while before < CLIENTS {
        reactor.wait(false, None).unwrap();
        while reactor.next().is_some() {}
        let now = answered();
        assert!((before + 1..=before + HANDSHAKE_BATCH).contains(&now), "{before} were answered, now {now}");
        before = now;
    }
}
