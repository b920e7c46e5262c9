//! The reactor on socket pairs.

use std::{io::Read, os::unix::net::UnixStream, time::Duration};

use super::*;

const PIECE: usize = 1024;

/// A reactor with a connection whose peer has not read: a piece of what was sent to it is unsent.
fn behind() -> (Epoll, ConnId, UnixStream) {
    let (seed, _waker) = Seed::new(Duration::from_millis(20)).unwrap();
    let mut reactor = Epoll::new(seed, 32 * 1024);
    let (here, there) = UnixStream::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    let conn = reactor.attach(here.into(), Owner::Client(0)).unwrap();
    while matches!(reactor.send(conn, Data::Bytes(&[0; PIECE])), Submitted::Done) {}
    assert!(said(&mut reactor).is_empty());
    (reactor, conn, there)
}

fn said(reactor: &mut Epoll) -> Vec<Completion<OwnedFd>> {
    reactor.wait(false, None).unwrap();
    std::iter::from_fn(|| reactor.next()).collect()
}

#[test]
fn a_peer_that_reads_less_than_the_kernel_tells_of_is_seen_to_read_when_a_send_is_tried() {
    let (mut reactor, conn, mut peer) = behind();
    peer.read_exact(&mut [0; 2 * PIECE]).unwrap();
    assert!(said(&mut reactor).is_empty(), "the kernel tells of little room, so this test shows nothing");
    assert_eq!(reactor.deferred_bytes_sent(conn), 0);
    reactor.try_to_send(conn);
    assert_eq!((reactor.deferred_bytes_sent(conn), reactor.unsent(conn)), (PIECE as u32, 0));
    // That all has left is told as ever.
    let said = said(&mut reactor);
    assert!(matches!(said[..], [Completion::Sent { owner: Owner::Client(0) }]), "{said:?}");
    assert!(!reactor.is_sending(conn));
}

#[test]
fn a_try_to_send_to_a_peer_that_does_not_read_or_is_closed_changes_nothing() {
    let (mut reactor, conn, _peer) = behind();
    reactor.try_to_send(conn);
    assert_eq!((reactor.deferred_bytes_sent(conn), reactor.unsent(conn)), (0, PIECE));
    assert!(said(&mut reactor).is_empty());
    let (mut reactor, conn, mut peer) = behind();
    peer.read_exact(&mut [0; 2 * PIECE]).unwrap();
    reactor.try_to_send(conn);
    reactor.close(conn);
    assert!(said(&mut reactor).is_empty());
}

#[test]
fn a_try_to_send_to_a_peer_that_has_gone_tells_that_the_connection_is_broken() {
    let (mut reactor, conn, peer) = behind();
    drop(peer);
    reactor.try_to_send(conn);
    let said = said(&mut reactor);
    assert!(matches!(said[..], [Completion::Broken { owner: Owner::Client(0), .. }, ..]), "{said:?}");
}
