//! What TLS adds to the reactor: a [`Channel`] between the socket and the worker. Plaintext leaves this
//! file in a buffer of the ring, as if it had come from the socket.

use std::{io, os::fd::OwnedFd};

use rustix::io::Errno;

use super::{Channel, Epoll, receive_some, send_some, writable};
use crate::{
    reactor::{Buffer, Completion, ConnId, Data, Submitted},
    socket,
    tls::{Decrypted, Failed, MAX_RECORD},
};

/// Handshakes that are taken part in before others get their turn: one can take a millisecond.
pub(super) const HANDSHAKE_BATCH: u32 = 16;

impl Epoll {
    /// Goes on in TLS. `received` came from the peer already and is part of the handshake.
    pub(super) fn begin_tls(&mut self, id: ConnId, mut channel: Channel, received: &[u8]) -> Submitted {
        assert!(self.ring.size() > MAX_RECORD, "a buffer must hold a record of TLS");
        if received.len() >= self.ring.size() {
            return Submitted::Broken(io::Error::other("too long a beginning of a TLS handshake"));
        }
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        let begun = channel.begin(received, &mut out);
        let conn = self.conn(id);
        assert!(conn.tls.is_none(), "TLS begins once");
        conn.tls = Some(Box::new(channel));
        let submitted = match begun {
            Ok(()) => self.submit_nonempty(id, &out),
            Err(error) => Submitted::Broken(Failed::error(&error)),
        };
        self.scratch = out;
        let conn = self.conn(id);
        if conn.receiving && conn.has_input() {
            self.enqueue(id);
        }
        submitted
    }

    pub(super) fn send_secured(&mut self, id: ConnId, data: &Data<'_>) -> Submitted {
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        let tls = self.conn(id).tls.as_mut().expect("the connection is in TLS");
        let submitted = match tls.encrypt(data.bytes(), &mut out) {
            Ok(()) => self.submit_nonempty(id, &out),
            Err(error) => Submitted::Broken(Failed::error(&error)),
        };
        self.scratch = out;
        submitted
    }

    fn submit_nonempty(&mut self, id: ConnId, bytes: &[u8]) -> Submitted {
        if bytes.is_empty() { Submitted::Done } else { self.submit(id, Data::Bytes(bytes)) }
    }

    pub(super) fn receive_secured(&mut self, id: ConnId) -> Option<Completion<OwnedFd>> {
        let conn = self.conn(id);
        let owner = conn.owner;
        let tls = conn.tls.as_mut()?;
        if tls.has_unread() || !tls.has_input() {
            if tls.is_handshaking() {
                match self.handshakes_left.checked_sub(1) {
                    Some(left) => self.handshakes_left = left,
                    None => {
                        self.enqueue(id);
                        return None;
                    }
                }
            }
            return self.look(id);
        }
        conn.receiving = false;
        let mut buffer = self.ring.take();
        let length = self.conn(id).tls.as_mut()?.take_early(writable(&mut buffer));
        Some(Completion::Received { owner, buffer, length })
    }

    /// Receives once and lets the channel take it. If that brought nothing to tell, others get their turn before the
    /// next look: a peer may go on for ever with records that hold nothing.
    fn look(&mut self, id: ConnId) -> Option<Completion<OwnedFd>> {
        let mut cipher = self.ring.take();
        let conn = &mut self.conns[id.0 as usize];
        let (owner, socket) = (conn.owner, conn.socket.as_ref().expect("the connection is open"));
        let tls = conn.tls.as_mut().expect("the connection is in TLS");
        let space = writable(&mut cipher);
        let mut filled = tls.copy_incoming(space);
        if filled == space.len() {
            self.ring.put(cipher);
            return Some(self.broken(id, io::Error::other("too long a message in a TLS handshake")));
        }
        if !tls.has_unread() {
            match receive_some(socket, &mut space[filled..]) {
                // An end without a goodbye is an end all the same: the protocol inside tells whether anything is
                // missing.
                Ok(0) => {
                    conn.receiving = false;
                    conn.readable = conn.hangup;
                    return Some(Completion::Received { owner, buffer: cipher, length: 0 });
                }
                Ok(length) => {
                    filled += length;
                    conn.readable = filled == space.len() || conn.hangup;
                }
                Err(error) => {
                    self.ring.put(cipher);
                    self.conn(id).readable = false;
                    return (error != Errno::AGAIN).then(|| self.broken(id, error.into()));
                }
            }
        }
        let mut plain = self.ring.take();
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        let tls = self.conn(id).tls.as_mut().expect("the connection is in TLS");
        let decrypted = tls.receive(&mut writable(&mut cipher)[..filled], writable(&mut plain), &mut out);
        let submitted = self.submit_nonempty(id, &out);
        self.scratch = out;
        self.ring.put(cipher);
        match (decrypted, submitted) {
            (Err(error), _) => {
                self.ring.put(plain);
                // So that the alert arrives.
                socket::half_close(self.socket(id));
                Some(self.broken(id, Failed::error(&error)))
            }
            (Ok(_), Submitted::Broken(error)) => {
                self.ring.put(plain);
                Some(self.broken(id, error))
            }
            (Ok(decrypted), _) => self.pass_on(id, decrypted, plain),
        }
    }

    fn pass_on(&mut self, id: ConnId, decrypted: Decrypted, plain: std::rc::Rc<Buffer>) -> Option<Completion<OwnedFd>> {
        let conn = &mut self.conns[id.0 as usize];
        let (owner, length) = (conn.owner, decrypted.length);
        let tls = conn.tls.as_mut().expect("the connection is in TLS");
        if let Some(secured) = decrypted.secured {
            // The receive goes on; what came behind the handshake is its result.
            tls.keep_early(&plain[..length]);
            self.ring.put(plain);
            if self.conn(id).has_input() {
                self.enqueue(id);
            }
            return Some(Completion::Secured { owner, secured: Box::new(secured) });
        }
        if length > 0 || tls.has_ended() {
            conn.receiving = false;
            return Some(Completion::Received { owner, buffer: plain, length });
        }
        self.ring.put(plain);
        if self.conn(id).readable {
            self.enqueue(id);
        }
        None
    }

    fn broken(&mut self, id: ConnId, error: io::Error) -> Completion<OwnedFd> {
        let conn = self.conn(id);
        conn.receiving = false;
        conn.readable = false;
        Completion::Broken { owner: conn.owner, error }
    }

    /// Ends TLS in order, if it can be said at once.
    pub(super) fn close_tls(&mut self, id: ConnId) {
        let conn = &mut self.conns[id.0 as usize];
        let (Some(tls), Some(socket)) = (conn.tls.as_mut(), conn.socket.as_ref()) else { return };
        if conn.unsent.is_some() {
            return;
        }
        self.scratch.clear();
        if tls.close_notify(&mut self.scratch).is_ok() && !self.scratch.is_empty() {
            let _ = send_some(socket, &self.scratch);
        }
    }
}

#[cfg(test)]
mod tests;
