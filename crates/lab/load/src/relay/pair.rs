//! One relayed connection: two sockets, and what is under way between them. Moves bytes when they are due; when that
//! is, is said from outside.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use arrivals::Direction;

/// Bytes under way in one direction of a connection, as a fast line holds; beyond that the sender waits.
pub const MAX_UNDER_WAY: usize = 1 << 20;

/// A connection from a client, and the one to the server that belongs to it.
pub(super) struct Pair {
    /// Counts up: tells the pairs that one slot had apart.
    pub(super) serial: u64,
    /// The earliest entry of this pair in the list of what is due.
    pub(super) armed: Option<u64>,
    /// The connection to the server stands.
    connected: bool,
    /// [`CLIENT`] and [`SERVER`].
    ends: [End; 2],
    /// Up, which leads from the client, and down.
    ways: [Way; 2],
    memory: Memory,
}

/// Whether the network still knows a connection.
struct Memory {
    /// For how long it is kept while nothing passes.
    kept: u64,
    /// When something passed last.
    last: u64,
    lost: bool,
}

impl Memory {
    /// Something is sent: whether it passes.
    fn holds(&mut self, now: u64) -> bool {
        self.lost |= now.saturating_sub(self.last) > self.kept;
        self.last = now;
        !self.lost
    }
}

/// The end towards the client.
pub(super) const CLIENT: usize = 0;
/// The end towards the server.
pub(super) const SERVER: usize = 1;

struct End {
    stream: TcpStream,
    readable: bool,
    writable: bool,
}

#[derive(Default)]
struct Way {
    queue: VecDeque<Parcel>,
    /// Bytes in the queue.
    under_way: usize,
    /// Nothing arrives before what was sent earlier.
    last_due: u64,
    /// The sender has ended: when the receiver learns of it.
    end: Option<u64>,
    /// The receiver has learnt of it.
    ended: bool,
}

struct Parcel {
    due: u64,
    bytes: Box<[u8]>,
    sent: usize,
}

/// Why a pair has come to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Over {
    Ended,
    Broken,
    /// The server could not be reached.
    NoServer,
}

impl Pair {
    /// A client that has been accepted and a server that is being connected to. Nothing of the client arrives before
    /// `earliest`. After a silence of more than `memory` nothing arrives at all.
    pub(super) fn new(serial: u64, client: TcpStream, server: TcpStream, now: u64, earliest: u64, memory: u64) -> Self {
        let end = |stream, open| End { stream, readable: open, writable: open };
        Self {
            serial,
            armed: None,
            connected: false,
            ends: [end(client, true), end(server, false)],
            ways: [Way { last_due: earliest, ..Way::default() }, Way::default()],
            memory: Memory { kept: memory, last: now, lost: false },
        }
    }

    pub(super) fn stream(&self, end: usize) -> &TcpStream {
        &self.ends[end].stream
    }

    /// The kernel says that an end may be read from or written to, or has failed.
    pub(super) fn ready(&mut self, end: usize, readable: bool, writable: bool) {
        self.ends[end].readable |= readable;
        self.ends[end].writable |= writable;
    }

    /// Moves what can be moved now; `arrival` says when what sets out now arrives. Returns when something is due next.
    ///
    /// # Errors
    /// The pair has come to its end.
    pub(super) fn pump(
        &mut self,
        now: u64,
        chunk: &mut [u8],
        arrival: &mut dyn FnMut(Direction) -> u64,
    ) -> Result<Option<u64>, Over> {
        if !self.connected {
            let server = &self.ends[SERVER];
            match server.stream.take_error() {
                Ok(None) => self.connected = server.writable,
                Ok(Some(_)) | Err(_) => return Err(Over::NoServer),
            }
        }
        let mut next = None;
        for (from, direction) in [(CLIENT, Direction::Up), (SERVER, Direction::Down)] {
            let [client, server] = &mut self.ends;
            let (sender, receiver) = if from == CLIENT { (client, server) } else { (server, client) };
            let way = &mut self.ways[from];
            way.pump(sender, receiver, &mut self.memory, now, chunk, &mut || arrival(direction))
                .map_err(|_| Over::Broken)?;
            next = [next, way.next(now)].into_iter().flatten().min();
        }
        if self.ways.iter().all(|way| way.ended) {
            return Err(Over::Ended);
        }
        Ok(next)
    }

    /// Ends both connections at once, as a broken line does: what is under way is lost, and both sides see a reset.
    pub(super) fn cut(self) {
        for end in &self.ends {
            // It fails only if the connection is gone already.
            let _ = rustix::net::sockopt::set_socket_linger(&end.stream, Some(Duration::ZERO));
        }
    }
}

impl Way {
    fn pump(
        &mut self,
        sender: &mut End,
        receiver: &mut End,
        memory: &mut Memory,
        now: u64,
        chunk: &mut [u8],
        arrival: &mut dyn FnMut() -> u64,
    ) -> io::Result<()> {
        self.deliver(receiver, now)?;
        // Each turn fills the queue or empties the socket, so this ends.
        while sender.readable && self.end.is_none() && self.under_way < MAX_UNDER_WAY {
            let room = chunk.len().min(MAX_UNDER_WAY - self.under_way);
            match sender.stream.read(&mut chunk[..room]) {
                Ok(0) if memory.holds(now) => self.end = Some(arrival().max(self.last_due)),
                Ok(0) => self.end_unheard(now),
                Ok(length) if memory.holds(now) => self.accept(&chunk[..length], arrival()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => sender.readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) if !memory.holds(now) => self.end_unheard(now),
                Err(error) => return Err(error),
            }
            self.deliver(receiver, now)?;
        }
        Ok(())
    }

    fn accept(&mut self, bytes: &[u8], due: u64) {
        self.last_due = self.last_due.max(due);
        self.under_way += bytes.len();
        self.queue.push_back(Parcel { due: self.last_due, bytes: bytes.into(), sent: 0 });
    }

    /// The sender has ended, and the receiver does not learn of it.
    fn end_unheard(&mut self, now: u64) {
        (self.end, self.ended) = (Some(now), true);
    }

    fn deliver(&mut self, receiver: &mut End, now: u64) -> io::Result<()> {
        while let Some(parcel) = self.queue.front_mut().filter(|parcel| parcel.due <= now) {
            if !receiver.writable {
                return Ok(());
            }
            match receiver.stream.write(&parcel.bytes[parcel.sent..]) {
                Ok(length) => {
                    parcel.sent += length;
                    self.under_way -= length;
                    if parcel.sent == parcel.bytes.len() {
                        self.queue.pop_front();
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => receiver.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if !self.ended && receiver.writable && self.queue.is_empty() && self.end.is_some_and(|end| end <= now) {
            self.ended = true;
            // It fails only if the connection is gone already, which the other direction tells.
            let _ = receiver.stream.shutdown(Shutdown::Write);
        }
        Ok(())
    }

    /// When something is due next; `None`: only an event can change anything.
    fn next(&self, now: u64) -> Option<u64> {
        let due = self.queue.front().map_or(self.end.filter(|_| !self.ended), |parcel| Some(parcel.due));
        due.filter(|due| *due > now)
    }
}
