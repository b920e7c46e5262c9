//! One relayed connection: two sockets, and the bytes under way between them, which the pair delivers when they are
//! due.
//! The caller says when that is.

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
    /// Distinguishes the pairs of one slot.
    pub(super) serial: u64,
    /// The earliest entry of this pair in the list of times.
    pub(super) armed: Option<u64>,
    /// The connection to the server is open.
    connected: bool,
    /// [`CLIENT`] and [`SERVER`].
    ends: [End; 2],
    /// Up, which leads from the client, and down.
    flows: [Flow; 2],
    silence: SilenceLimit,
}

/// How long a connection may be silent before the network forgets it.
struct SilenceLimit {
    /// The longest silence.
    max: u64,
    /// When bytes passed last.
    last: u64,
    is_forgotten: bool,
}

impl SilenceLimit {
    /// Notes that bytes are sent. Returns whether the network still passes them: after too long a silence it has
    /// forgotten the connection for good.
    fn note_traffic(&mut self, now: u64) -> bool {
        self.is_forgotten |= now.saturating_sub(self.last) > self.max;
        self.last = now;
        !self.is_forgotten
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
struct Flow {
    queue: VecDeque<Chunk>,
    /// Bytes in the queue.
    under_way: usize,
    /// When the bytes that were sent last arrive: later ones do not arrive before.
    last_due: u64,
    /// When the receiver learns that the sender has ended; `None`: the sender has not.
    end: Option<u64>,
    /// The receiver has learnt that the sender has ended, or never will.
    ended: bool,
}

struct Chunk {
    due: u64,
    bytes: Box<[u8]>,
    sent: usize,
}

/// Why a pair has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PairEnd {
    Ended,
    Broken,
    /// The server could not be reached.
    NoServer,
}

impl Pair {
    /// A client that has been accepted and a server that is being connected to. Nothing of the client arrives before
    /// `earliest`. After a silence of more than `max_silence` nothing arrives at all.
    pub(super) fn new(
        serial: u64,
        client: TcpStream,
        server: TcpStream,
        now: u64,
        earliest: u64,
        max_silence: u64,
    ) -> Self {
        let end = |stream, open| End { stream, readable: open, writable: open };
        Self {
            serial,
            armed: None,
            connected: false,
            ends: [end(client, true), end(server, false)],
            flows: [Flow { last_due: earliest, ..Flow::default() }, Flow::default()],
            silence: SilenceLimit { max: max_silence, last: now, is_forgotten: false },
        }
    }

    pub(super) fn stream(&self, end: usize) -> &TcpStream {
        &self.ends[end].stream
    }

    /// Notes that an end may be read from or written to, or has failed.
    pub(super) fn ready(&mut self, end: usize, readable: bool, writable: bool) {
        self.ends[end].readable |= readable;
        self.ends[end].writable |= writable;
    }

    /// Moves the bytes that can be moved now; `arrival` says when bytes that are sent now arrive. Returns the next time
    /// at which the pair is due.
    ///
    /// # Errors
    /// The pair has ended.
    pub(super) fn pump(
        &mut self,
        now: u64,
        buffer: &mut [u8],
        arrival: &mut dyn FnMut(Direction) -> u64,
    ) -> Result<Option<u64>, PairEnd> {
        if !self.connected {
            let server = &self.ends[SERVER];
            match server.stream.take_error() {
                Ok(None) => self.connected = server.writable,
                Ok(Some(_)) | Err(_) => return Err(PairEnd::NoServer),
            }
        }
        let mut next = None;
        for (from, direction) in [(CLIENT, Direction::Up), (SERVER, Direction::Down)] {
            let [client, server] = &mut self.ends;
            let (sender, receiver) = if from == CLIENT { (client, server) } else { (server, client) };
            let flow = &mut self.flows[from];
            flow.pump(sender, receiver, &mut self.silence, now, buffer, &mut || arrival(direction))
                .map_err(|_| PairEnd::Broken)?;
            next = [next, flow.next(now)].into_iter().flatten().min();
        }
        if self.flows.iter().all(|flow| flow.ended) {
            return Err(PairEnd::Ended);
        }
        Ok(next)
    }

    /// Ends both connections at once, as a broken line does: bytes under way are lost, and both sides see a reset.
    pub(super) fn cut(self) {
        for end in &self.ends {
            // It fails only if the connection is gone already.
            let _ = rustix::net::sockopt::set_socket_linger(&end.stream, Some(Duration::ZERO));
        }
    }
}

impl Flow {
    fn pump(
        &mut self,
        sender: &mut End,
        receiver: &mut End,
        silence: &mut SilenceLimit,
        now: u64,
        buffer: &mut [u8],
        arrival: &mut dyn FnMut() -> u64,
    ) -> io::Result<()> {
        self.deliver(receiver, now)?;
        // Each turn fills the queue or empties the socket, so this ends.
        while sender.readable && self.end.is_none() && self.under_way < MAX_UNDER_WAY {
            let free = buffer.len().min(MAX_UNDER_WAY - self.under_way);
            match sender.stream.read(&mut buffer[..free]) {
                Ok(0) if silence.note_traffic(now) => self.end = Some(arrival().max(self.last_due)),
                Ok(0) => self.end_silently(now),
                Ok(length) if silence.note_traffic(now) => self.accept(&buffer[..length], arrival()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => sender.readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) if !silence.note_traffic(now) => self.end_silently(now),
                Err(error) => return Err(error),
            }
            self.deliver(receiver, now)?;
        }
        Ok(())
    }

    fn accept(&mut self, bytes: &[u8], due: u64) {
        self.last_due = self.last_due.max(due);
        self.under_way += bytes.len();
        self.queue.push_back(Chunk { due: self.last_due, bytes: bytes.into(), sent: 0 });
    }

    /// Notes the end of a sender of which the receiver does not learn.
    fn end_silently(&mut self, now: u64) {
        (self.end, self.ended) = (Some(now), true);
    }

    fn deliver(&mut self, receiver: &mut End, now: u64) -> io::Result<()> {
        while let Some(chunk) = self.queue.front_mut().filter(|chunk| chunk.due <= now) {
            if !receiver.writable {
                return Ok(());
            }
            match receiver.stream.write(&chunk.bytes[chunk.sent..]) {
                Ok(length) => {
                    chunk.sent += length;
                    self.under_way -= length;
                    if chunk.sent == chunk.bytes.len() {
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

    /// When the next bytes or the end are due; `None`: only an event changes anything.
    fn next(&self, now: u64) -> Option<u64> {
        let due = self.queue.front().map_or(self.end.filter(|_| !self.ended), |chunk| Some(chunk.due));
        due.filter(|due| *due > now)
    }
}
