//! The reactor on readiness: epoll, edge-triggered, through mio.
//!
//! A socket is registered once, for reading and writing, and never touched again until it is
//! closed or leaves: no system call arms or disarms anything. Readiness is remembered per
//! connection; a read that fills less than its buffer has drained the socket. What TLS adds is in [`secure`], and
//! what waits for a peer that does not read in [`sending`].

mod secure;
mod sending;

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::Path,
    rc::Rc,
    time::Duration,
};

use mio::{Events, Interest, Poll, Token, unix::SourceFd};
use rustix::{
    io::Errno,
    net::{RecvFlags, SocketFlags},
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime},
};
use sending::{Unsent, send_some};
use slab::Slab;

use super::{Buffer, Completion, ConnId, Data, Owner, Reactor, Ring, Submitted, Wake, writable};
use crate::{
    descriptors::Descriptors,
    socket::{self, TcpOptions},
    tcp_info,
    tls::{Channel, MAX_RECORD},
};

/// Events taken from the kernel at once.
const MAX_EVENTS: usize = 1024;
/// Connections accepted before others get their turn.
const ACCEPT_BATCH: u32 = 64;

const WAKER: Token = Token(usize::MAX);
const TICKER: Token = Token(usize::MAX - 1);

pub type Waker = mio::Waker;

impl Wake for Waker {
    fn wake(&self) -> io::Result<()> {
        mio::Waker::wake(self)
    }
}

/// What a reactor grows from: made by the thread that starts the workers, so that a failure is told there.
pub struct Seed {
    poll: Poll,
    ticker: OwnedFd,
}

impl Seed {
    /// Its reactor will never wait longer than `tick`. Zero: it waits until something happens, or for
    /// [`Epoll::arm_timer`].
    pub fn new(tick: Duration) -> io::Result<(Self, Waker)> {
        let poll = Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), WAKER)?;
        // One timer for all waits: a time-out of its own would have the kernel start and stop a timer at each.
        let ticker = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        let tick = Timespec { tv_sec: tick.as_secs() as i64, tv_nsec: tick.subsec_nanos().into() };
        let period = Itimerspec { it_interval: tick, it_value: tick };
        timerfd_settime(&ticker, TimerfdTimerFlags::empty(), &period)?;
        poll.registry().register(&mut SourceFd(&ticker.as_raw_fd()), TICKER, Interest::READABLE)?;
        Ok((Self { poll, ticker }, waker))
    }
}

/// See [`super`].
pub struct Epoll {
    poll: Poll,
    ticker: OwnedFd,
    /// The ticker comes again by itself.
    ticking: bool,
    events: Events,
    /// What the kernel said, in a form that does not borrow `events`.
    batch: Vec<(u32, Readiness)>,
    next_in_batch: usize,
    conns: Slab<Conn>,
    /// Connections with something to do though the kernel says nothing.
    ready: VecDeque<ConnId>,
    /// How many of `ready` still have their turn before the kernel is asked again.
    round: usize,
    /// Clients that may still be accepted before the kernel is asked again.
    accepts_left: u32,
    /// Handshakes of TLS that may still be taken part in before the kernel is asked again.
    handshakes_left: u32,
    /// Slots of connections closed during this batch: not reused before its end, because events of
    /// the old connection may still be in it.
    closed: Vec<u32>,
    /// Slots of connections of which a try to send tells something that the kernel may not tell again.
    tried: Vec<u32>,
    ring: Ring,
    descriptors: Descriptors,
    /// Ciphertext on its way out.
    scratch: Vec<u8>,
    /// For connections that are made here.
    tcp: TcpOptions,
}

/// A connection between two reactors.
pub struct Moved {
    socket: OwnedFd,
    tls: Option<Box<Channel>>,
}

#[derive(Clone, Copy, Default)]
struct Readiness {
    read: bool,
    write: bool,
    hangup: bool,
}

struct Conn {
    socket: Option<OwnedFd>,
    owner: Owner,
    readable: bool,
    /// The peer will send no more, or the connection is broken: reading tells which.
    hangup: bool,
    hangup_told: bool,
    receiving: bool,
    connecting: bool,
    queued: bool,
    unsent: Option<Box<Unsent>>,
    deferred_bytes_sent: u32,
    tls: Option<Box<Channel>>,
}

impl Epoll {
    pub fn new(seed: Seed, buffer_size: usize) -> Self {
        Self {
            poll: seed.poll,
            ticker: seed.ticker,
            ticking: true,
            events: Events::with_capacity(MAX_EVENTS),
            batch: Vec::with_capacity(MAX_EVENTS),
            next_in_batch: 0,
            conns: Slab::new(),
            ready: VecDeque::new(),
            round: 0,
            accepts_left: 0,
            handshakes_left: 0,
            closed: Vec::new(),
            tried: Vec::new(),
            ring: Ring::new(buffer_size),
            descriptors: Descriptors::new(),
            scratch: Vec::new(),
            tcp: TcpOptions::default(),
        }
    }

    /// The same, with these options for connections to servers.
    pub fn with_tcp_options(self, tcp: TcpOptions) -> Self {
        Self { tcp, ..self }
    }

    /// Ends a wait once, after `delay`. From the first call on the reactor has no ticks. Good to some tens of
    /// microseconds, where a time-out of `epoll_wait` has milliseconds.
    pub fn arm_timer(&mut self, delay: Duration) -> io::Result<()> {
        self.ticking = false;
        // Zero would switch it off.
        let delay = delay.max(Duration::from_nanos(1));
        let once = Timespec { tv_sec: delay.as_secs() as i64, tv_nsec: delay.subsec_nanos().into() };
        let alarm = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: once };
        timerfd_settime(&self.ticker, TimerfdTimerFlags::empty(), &alarm)?;
        Ok(())
    }

    /// There may be completions to be taken.
    pub fn has_news(&self) -> bool {
        self.next_in_batch < self.batch.len() || !self.ready.is_empty()
    }
}

impl Reactor for Epoll {
    type Socket = OwnedFd;
    type Moved = Moved;
    type Waker = Waker;

    const NAME: &'static str = "epoll";

    fn wait(&mut self, may_sleep: bool, at_most: Option<Duration>) -> io::Result<()> {
        debug_assert!(self.next_in_batch == self.batch.len());
        for slot in self.closed.drain(..) {
            self.conns.remove(slot as usize);
        }
        self.batch.clear();
        self.next_in_batch = 0;
        let tried = self.tried.drain(..).filter(|slot| self.conns.contains(*slot as usize));
        self.batch.extend(tried.map(|slot| (slot, Readiness { write: true, ..Readiness::default() })));
        self.round = self.ready.len();
        self.accepts_left = ACCEPT_BATCH;
        self.handshakes_left = secure::HANDSHAKE_BATCH;
        let timeout =
            if may_sleep && self.ready.is_empty() && self.batch.is_empty() { at_most } else { Some(Duration::ZERO) };
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            result => result?,
        }
        for event in &self.events {
            if event.token() == WAKER {
                continue;
            }
            if event.token() == TICKER {
                // Reading starts the next tick. After an alarm there is none.
                if self.ticking {
                    let _ = rustix::io::read(&self.ticker, &mut [0; 8]);
                }
                continue;
            }
            let hangup = event.is_read_closed() || event.is_error();
            let readiness = Readiness {
                read: event.is_readable() || hangup,
                write: event.is_writable() || event.is_error(),
                hangup,
            };
            self.batch.push((event.token().0 as u32, readiness));
        }
        Ok(())
    }

    fn next(&mut self) -> Option<Completion<OwnedFd>> {
        loop {
            if let Some(&(slot, readiness)) = self.batch.get(self.next_in_batch) {
                let id = ConnId(slot);
                let conn = &mut self.conns[slot as usize];
                conn.readable |= readiness.read;
                conn.hangup |= readiness.hangup;
                if readiness.write && (conn.connecting || conn.unsent.is_some()) && conn.socket.is_some() {
                    // Reading comes in a second look at the same entry.
                    self.batch[self.next_in_batch].1.write = false;
                    if let Some(completion) = self.on_writable(id) {
                        return Some(completion);
                    }
                    continue;
                }
                self.next_in_batch += 1;
                if let Some(completion) = self.on_readable(id) {
                    return Some(completion);
                }
                continue;
            }
            // One round of the connections that are ready without the kernel; what they queue anew waits for the
            // next, so that one busy connection does not keep the others from theirs.
            self.round = self.round.checked_sub(1)?;
            let id = self.ready.pop_front()?;
            // It may have been closed since, and another connection may have its slot: a look does no harm to that.
            let Some(conn) = self.conns.get_mut(id.0 as usize) else { continue };
            conn.queued = false;
            if let Some(completion) = self.on_readable(id) {
                return Some(completion);
            }
        }
    }

    fn attach(&mut self, socket: OwnedFd, owner: Owner) -> io::Result<ConnId> {
        self.register(socket, None, owner, false)
    }

    fn attach_moved(&mut self, moved: Moved, owner: Owner) -> io::Result<ConnId> {
        self.register(moved.socket, moved.tls, owner, false)
    }

    fn connect_tcp(&mut self, address: SocketAddr, owner: Owner) -> io::Result<ConnId> {
        self.descriptors.permit(&self.ticker)?;
        let socket = socket::connect_tcp(address, &self.tcp)?;
        self.descriptors.note(&socket);
        self.register(socket, None, owner, true)
    }

    fn connect_unix(&mut self, path: &Path, owner: Owner) -> io::Result<ConnId> {
        self.descriptors.permit(&self.ticker)?;
        let socket = socket::connect_unix(path)?;
        self.descriptors.note(&socket);
        self.register(socket, None, owner, true)
    }

    fn set_owner(&mut self, id: ConnId, owner: Owner) {
        self.conn(id).owner = owner;
    }

    fn receive(&mut self, id: ConnId) {
        let conn = self.conn(id);
        if conn.receiving {
            return;
        }
        conn.receiving = true;
        if conn.has_input() {
            self.enqueue(id);
        }
    }

    fn send(&mut self, id: ConnId, data: Data<'_>) -> Submitted {
        if self.conns[id.0 as usize].tls.is_some() {
            return self.send_secured(id, &data);
        }
        self.submit(id, data)
    }

    fn unreceived(&self, id: ConnId) -> usize {
        let conn = &self.conns[id.0 as usize];
        let Some(socket) = conn.socket.as_ref() else { return 0 };
        let Some(tls) = conn.tls.as_ref() else {
            return rustix::io::ioctl_fionread(socket).unwrap_or(0) as usize;
        };
        let mut records = [0; MAX_RECORD];
        let seen = rustix::net::recv(socket, &mut records[..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        tls.unreceived(&records[..seen.map_or(0, |(length, _)| length)])
    }

    fn unsent(&self, id: ConnId) -> usize {
        self.conns[id.0 as usize].unsent.as_ref().map_or(0, |unsent| unsent.bytes)
    }

    fn deferred_bytes_sent(&self, id: ConnId) -> u32 {
        self.conns[id.0 as usize].deferred_bytes_sent
    }

    fn try_to_send(&mut self, id: ConnId) {
        if !matches!(self.send_unsent(id), Ok(false)) {
            self.tried.push(id.0);
        }
    }

    fn is_sending(&self, id: ConnId) -> bool {
        self.conns[id.0 as usize].unsent.is_some()
    }

    fn start_tls(&mut self, id: ConnId, channel: Channel, received: &[u8]) -> Submitted {
        self.begin_tls(id, channel, received)
    }

    fn detach(&mut self, id: ConnId) -> io::Result<Moved> {
        assert!(!self.is_sending(id), "a connection with unsent bytes does not move");
        let tls = self.conn(id).tls.take();
        let socket = self.forget(id);
        self.poll.registry().deregister(&mut SourceFd(&socket.as_raw_fd()))?;
        Ok(Moved { socket, tls })
    }

    fn release(&mut self, id: ConnId) -> io::Result<OwnedFd> {
        assert!(self.conn(id).tls.is_none(), "what TLS has received would be lost");
        self.detach(id).map(|moved| moved.socket)
    }

    fn half_close(&mut self, id: ConnId) {
        self.close_tls(id);
        let conn = self.conn(id);
        (conn.unsent, conn.tls) = (None, None);
        socket::half_close(self.socket(id));
    }

    fn half_close_and_detach(&mut self, id: ConnId) -> io::Result<OwnedFd> {
        self.close_tls(id);
        socket::half_close_and_detach(self.socket(id));
        let socket = self.forget(id);
        self.poll.registry().deregister(&mut SourceFd(&socket.as_raw_fd()))?;
        Ok(socket)
    }

    fn has_peer_closed(socket: &OwnedFd) -> bool {
        socket::has_peer_closed(socket)
    }

    fn has_hung_up(socket: &OwnedFd) -> bool {
        socket::has_hung_up(socket)
    }

    fn close(&mut self, id: ConnId) {
        if self.conns[id.0 as usize].tls.is_some() {
            self.close_tls(id);
        }
        drop(self.forget(id));
    }

    fn give_back(&mut self, buffer: Rc<Buffer>) {
        self.ring.put(buffer);
    }

    fn resume_accept(&mut self, id: ConnId) {
        self.enqueue(id);
    }

    fn peer_of(socket: &OwnedFd) -> Option<SocketAddr> {
        socket::peer(socket)
    }

    fn local(&self, id: ConnId) -> Option<SocketAddr> {
        socket::local(self.socket(id))
    }

    fn peer_process(&self, id: ConnId) -> Option<u32> {
        socket::peer_process(self.socket(id))
    }

    fn tls_of(&self, id: ConnId) -> Option<String> {
        self.conns.get(id.0 as usize)?.tls.as_ref()?.describe()
    }

    fn peer(&self, id: ConnId) -> Option<SocketAddr> {
        socket::peer(self.socket(id))
    }

    fn peer_uid(&self, id: ConnId) -> Option<u32> {
        socket::peer_uid(self.socket(id))
    }

    fn set_user_timeout(&self, id: ConnId, user_timeout: Duration) {
        socket::set_user_timeout(self.socket(id), user_timeout);
    }

    fn is_host_silent(&self, id: ConnId, time: Duration) -> bool {
        tcp_info::is_host_silent(self.socket(id), time)
    }
}

impl Epoll {
    fn register(
        &mut self,
        socket: OwnedFd,
        tls: Option<Box<Channel>>,
        owner: Owner,
        connecting: bool,
    ) -> io::Result<ConnId> {
        let entry = self.conns.vacant_entry();
        let id = ConnId(u32::try_from(entry.key()).expect("descriptors are fewer than 2^32"));
        let interest = match owner {
            Owner::Listener(_) => Interest::READABLE,
            _ => Interest::READABLE | Interest::WRITABLE,
        };
        self.poll.registry().register(&mut SourceFd(&socket.as_raw_fd()), Token(entry.key()), interest)?;
        entry.insert(Conn {
            socket: Some(socket),
            owner,
            readable: false,
            hangup: false,
            hangup_told: false,
            receiving: false,
            connecting,
            queued: false,
            unsent: None,
            deferred_bytes_sent: 0,
            tls,
        });
        Ok(id)
    }

    fn forget(&mut self, id: ConnId) -> OwnedFd {
        let conn = self.conn(id);
        conn.receiving = false;
        conn.unsent = None;
        conn.tls = None;
        self.closed.push(id.0);
        self.conns[id.0 as usize].socket.take().expect("a connection is closed once")
    }

    /// The socket, for its addresses and options.
    fn socket(&self, id: ConnId) -> &OwnedFd {
        self.conns[id.0 as usize].socket.as_ref().expect("the connection is open")
    }

    fn on_writable(&mut self, id: ConnId) -> Option<Completion<OwnedFd>> {
        let conn = &mut self.conns[id.0 as usize];
        let owner = conn.owner;
        let socket = conn.socket.as_ref()?;
        if conn.connecting {
            conn.connecting = false;
            let result = match rustix::net::sockopt::socket_error(socket) {
                Ok(result) => result.map_err(io::Error::from),
                Err(error) => Err(error.into()),
            };
            return Some(Completion::Connected { owner, result });
        }
        conn.unsent.as_ref()?;
        match self.send_unsent(id) {
            Ok(true) => {
                self.conn(id).unsent = None;
                Some(Completion::Sent { owner })
            }
            Ok(false) => None,
            Err(error) => Some(Completion::Broken { owner, error }),
        }
    }

    fn on_readable(&mut self, id: ConnId) -> Option<Completion<OwnedFd>> {
        let conn = &mut self.conns[id.0 as usize];
        let owner = conn.owner;
        let socket = conn.socket.as_ref()?;
        if !conn.has_input() || conn.connecting {
            return None;
        }
        if let Owner::Listener(listener) = owner {
            return self.accept(id, listener);
        }
        if !conn.receiving {
            if conn.hangup && !conn.hangup_told {
                conn.hangup_told = true;
                return Some(Completion::HungUp { owner });
            }
            return None;
        }
        if conn.tls.is_some() {
            return self.receive_secured(id);
        }
        let mut buffer = self.ring.take();
        match receive_some(socket, writable(&mut buffer)) {
            Ok(length) => {
                conn.receiving = false;
                // A short read has drained the socket; but an end of stream seen together with the
                // bytes is not announced again.
                conn.readable = length == buffer.len() || conn.hangup;
                Some(Completion::Received { owner, buffer, length })
            }
            Err(Errno::AGAIN) => {
                conn.readable = false;
                self.ring.put(buffer);
                None
            }
            Err(error) => {
                conn.receiving = false;
                conn.readable = false;
                self.ring.put(buffer);
                Some(Completion::Broken { owner, error: error.into() })
            }
        }
    }

    fn accept(&mut self, id: ConnId, listener: u32) -> Option<Completion<OwnedFd>> {
        let conn = &mut self.conns[id.0 as usize];
        let socket = conn.socket.as_ref()?;
        if let Err(error) = self.descriptors.permit(socket) {
            return Some(Completion::AcceptFailed { listener, error });
        }
        for _ in 0..ACCEPT_BATCH {
            match rustix::net::accept_with(socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => {
                    self.descriptors.note(&socket);
                    if self.accepts_left > 0 {
                        // One more turn in this round.
                        self.accepts_left -= 1;
                        self.round += 1;
                    }
                    self.enqueue(id);
                    return Some(Completion::Accepted { listener, socket });
                }
                Err(Errno::AGAIN) => {
                    conn.readable = false;
                    return None;
                }
                Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    return Some(Completion::AcceptFailed { listener, error: error.into() });
                }
                // The client has gone already, or another passing fault of one connection.
                Err(_) => {}
            }
        }
        self.enqueue(id);
        None
    }

    fn enqueue(&mut self, id: ConnId) {
        let conn = self.conn(id);
        if !conn.queued {
            conn.queued = true;
            self.ready.push_back(id);
        }
    }

    fn conn(&mut self, id: ConnId) -> &mut Conn {
        &mut self.conns[id.0 as usize]
    }
}

impl Conn {
    /// There may be something to receive.
    #[inline]
    fn has_input(&self) -> bool {
        self.readable || self.tls.as_ref().is_some_and(|tls| tls.has_input())
    }
}

fn receive_some(socket: impl AsFd, into: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match rustix::net::recv(socket.as_fd(), &mut *into, RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
            Ok((length, _)) => return Ok(length),
        }
    }
}

#[cfg(test)]
mod tests;
