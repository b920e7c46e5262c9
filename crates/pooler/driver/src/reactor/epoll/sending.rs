//! What is sent, and what waits here until the peer's socket takes it.

use std::{collections::VecDeque, io, ops::Range, os::fd::AsFd, rc::Rc, sync::Arc};

use rustix::{io::Errno, net::SendFlags};

use super::Epoll;
use crate::reactor::{Buffer, ConnId, Data, Submitted};

/// Bytes that may wait for one slow peer. The worker stops reading from the other side as soon as anything waits, keeps
/// a bounded number of them for clients that would have others wait, and gives up clients that do not read what is
/// posted to them, so this is reached only by a defect or by one huge message; the connection is then broken off.
const MAX_UNSENT_BYTES: usize = 192 << 20;

/// What a peer that does not read has not taken yet.
pub(super) struct Unsent {
    chunks: VecDeque<Chunk>,
    pub(super) bytes: usize,
}

enum Chunk {
    Ring(Rc<Buffer>, Range<usize>),
    Shared(Arc<[u8]>, Range<usize>),
    Own(Box<[u8]>, usize),
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Chunk::Ring(buffer, range) => &buffer[range.clone()],
            Chunk::Shared(bytes, range) => &bytes[range.clone()],
            Chunk::Own(bytes, at) => &bytes[*at..],
        }
    }

    fn advance(&mut self, by: usize) {
        match self {
            Chunk::Ring(_, range) | Chunk::Shared(_, range) => range.start += by,
            Chunk::Own(_, at) => *at += by,
        }
    }
}

impl Epoll {
    pub(super) fn submit(&mut self, id: ConnId, data: Data<'_>) -> Submitted {
        let conn = &mut self.conns[id.0 as usize];
        let bytes = data.bytes();
        let mut sent = 0;
        if conn.unsent.is_none() {
            let socket = conn.socket.as_ref().expect("only open connections send");
            match send_some(socket, bytes) {
                Ok(n) if n == bytes.len() => return Submitted::Done,
                Ok(n) => sent = n,
                Err(error) => return Submitted::Broken(error),
            }
        }
        let chunk = match &data {
            // A small part does not keep a whole buffer.
            Data::Ring(buffer, range) if bytes.len() - sent >= buffer.len() / 4 => {
                Chunk::Ring(Rc::clone(buffer), range.start + sent..range.end)
            }
            Data::Shared(bytes, range) => Chunk::Shared(Arc::clone(bytes), range.start + sent..range.end),
            _ => Chunk::Own(bytes[sent..].into(), 0),
        };
        let unsent =
            conn.unsent.get_or_insert_with(|| Box::new(Unsent { chunks: VecDeque::with_capacity(1), bytes: 0 }));
        unsent.bytes += bytes.len() - sent;
        if unsent.bytes > MAX_UNSENT_BYTES {
            return Submitted::Broken(io::Error::other("the peer does not read what is sent to it"));
        }
        unsent.chunks.push_back(chunk);
        Submitted::Pending
    }

    /// Sends as much of the unsent bytes as the socket takes. True if that is all.
    pub(super) fn send_unsent(&mut self, id: ConnId) -> io::Result<bool> {
        let conn = &mut self.conns[id.0 as usize];
        let (Some(unsent), Some(socket)) = (conn.unsent.as_mut(), conn.socket.as_ref()) else { return Ok(false) };
        while let Some(chunk) = unsent.chunks.front_mut() {
            let wanted = chunk.bytes().len();
            let sent = send_some(socket, chunk.bytes())?;
            unsent.bytes -= sent;
            conn.deferred_bytes_sent = conn.deferred_bytes_sent.wrapping_add(sent as u32);
            if sent < wanted {
                chunk.advance(sent);
                return Ok(false);
            }
            if let Some(Chunk::Ring(buffer, _)) = unsent.chunks.pop_front() {
                self.ring.put(buffer);
            }
        }
        Ok(true)
    }
}

/// Sends what the socket takes now; 0 when it takes nothing.
pub(super) fn send_some(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match rustix::net::send(socket.as_fd(), bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => return Ok(sent),
            Err(Errno::AGAIN) => return Ok(0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
