//! The outgoing connections of one thread that asks on its own account: a load generator. Opens them, secures them,
//! carries bytes, and tells what has happened. Knows no protocol, and nothing of what is asked.
//!
//! Call order: [`Lines::open`], [`Lines::send`] and the others as one likes; [`Lines::next`] until there is nothing
//! more; [`Lines::wait`]; and again. One wait may bring many events. A connection is called by a key of the caller's
//! choice, a small number. What goes wrong is always told as an event, never by the call that met it.

use std::{
    collections::VecDeque,
    fmt, io,
    net::{IpAddr, SocketAddr},
    ops::Deref,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use driver::{
    Address, Clock, TlsConnector,
    reactor::{
        Buffer, Completion, ConnId, Data, Owner, Reactor, Submitted,
        epoll::{Epoll, Seed, Waker},
    },
    resolver::{self, Resolver},
    tls_failure_of,
};
use pool::Time;
use rustix::io::Errno;
use seam::Secured;

/// Bytes of one receive: more than a record of TLS.
const BUFFER_SIZE: usize = 32 * 1024;
/// How long an address is tried before the next one of the same host gets its turn.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(2);
/// Before a deadline the thread does not sleep but looks again and again: to wake it takes about as long.
const SPIN_TIME: Duration = Duration::from_micros(20);
/// Keys are smaller: it is the number of descriptors that Linux gives a process at most by default.
const MAX_KEY: u32 = 1 << 20;

/// What has happened to a connection.
#[derive(Debug)]
pub enum Event {
    /// Its host's name was looked up.
    Resolved {
        key: u32,
        took: Duration,
    },
    Connected {
        key: u32,
    },
    /// The TLS handshake is done.
    Secured {
        key: u32,
        secured: Box<Secured>,
    },
    /// Bytes came.
    Received {
        key: u32,
        /// At least one. To be given to [`Lines::done`] when they have been looked at.
        bytes: Received,
    },
    /// The peer has ended it in order. It is closed, and the key is free.
    Ended {
        key: u32,
    },
    /// It could not be made, or broke. It is closed, and the key is free.
    Failed {
        key: u32,
        error: LineError,
    },
}

impl Event {
    /// The connection that it is about.
    pub fn key(&self) -> u32 {
        match self {
            Self::Resolved { key, .. }
            | Self::Connected { key }
            | Self::Secured { key, .. }
            | Self::Received { key, .. }
            | Self::Ended { key }
            | Self::Failed { key, .. } => *key,
        }
    }
}

/// Bytes that were received.
#[derive(Debug)]
pub struct Received {
    buffer: Rc<Buffer>,
    length: usize,
}

impl Deref for Received {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

/// Why a connection failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineError {
    pub fault: LineFault,
    /// For people: what was tried and what came of it.
    pub message: String,
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for LineError {}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LineFault {
    /// The host's name has no address, or no name server answers.
    Resolve,
    Refused,
    Unreachable,
    /// The kernel gave up waiting for an answer.
    TimedOut,
    /// The peer has broken it off.
    Reset,
    /// This machine has no more descriptors, ports or memory for it.
    Exhausted,
    /// TLS failed. `certificate`: one side does not accept the other's, and trying again will not help.
    Tls {
        certificate: bool,
    },
    Other,
}

pub struct Lines {
    reactor: Epoll,
    resolver: Resolver,
    answers: Arc<Answers>,
    clock: Clock,
    lines: Vec<Option<Line>>,
    /// Tells a connection from those that had its key before.
    serial: u32,
    /// What is to be told though the reactor has nothing to say; at most two for each connection.
    notes: VecDeque<(Name, Note)>,
    /// When the reactor wakes by itself.
    alarm: Option<Time>,
    /// Connects that may go on with another address, in the order of time; one for each address.
    impatient: VecDeque<(Time, Name)>,
}

/// A connection, and not one that had its key before or will have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Name {
    key: u32,
    serial: u32,
}

struct Line {
    serial: u32,
    address: Arc<Address>,
    conn: Option<ConnId>,
    addresses: VecDeque<SocketAddr>,
}

enum Note {
    Resolved(Duration),
    Failed(LineError),
}

/// What the resolver's threads leave behind.
struct Answers {
    inbox: Mutex<Vec<(Name, resolver::Answer)>>,
    waker: Waker,
}

impl Lines {
    /// No connections yet. Times count from `origin`.
    ///
    /// # Errors
    /// The machine has no more descriptors.
    pub fn new(origin: Instant) -> io::Result<Self> {
        let (seed, waker) = Seed::new(Duration::ZERO)?;
        Ok(Self {
            reactor: Epoll::new(seed, BUFFER_SIZE),
            resolver: Resolver::start(),
            answers: Arc::new(Answers { inbox: Mutex::default(), waker }),
            clock: Clock::Real(origin),
            lines: Vec::new(),
            serial: 0,
            notes: VecDeque::new(),
            alarm: None,
            impatient: VecDeque::new(),
        })
    }

    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Begins to connect. [`Event::Connected`] or [`Event::Failed`] follows; before that [`Event::Resolved`], if the
    /// host is a name. All addresses of a name are tried in turn.
    ///
    /// # Panics
    /// If the key is in use.
    pub fn open(&mut self, key: u32, address: &Arc<Address>) {
        assert!(key < MAX_KEY, "keys are small numbers");
        let index = key as usize;
        if index >= self.lines.len() {
            self.lines.resize_with(index + 1, || None);
        }
        assert!(self.lines[index].is_none(), "a key stands for one connection");
        self.serial = self.serial.wrapping_add(1);
        let name = Name { key, serial: self.serial };
        let address = Arc::clone(address);
        let line = Line { serial: name.serial, address: Arc::clone(&address), conn: None, addresses: VecDeque::new() };
        self.lines[index] = Some(line);
        match &*address {
            Address::Unix(path) => {
                let conn = self.reactor.connect_unix(path, Owner::Server(key));
                self.on_begun(name, conn);
            }
            Address::Tcp { host, port } => match host.parse::<IpAddr>() {
                Ok(ip) => self.try_addresses(name, [SocketAddr::new(ip, *port)].into()),
                Err(_) => {
                    let answers = Arc::clone(&self.answers);
                    self.resolver.resolve(host, *port, move |answer| answers.leave(name, answer));
                }
            },
        }
    }

    /// Goes on in TLS with a peer that calls itself `host`, a name or an address. `received` came from it already and
    /// is part of the handshake. [`Event::Secured`] or [`Event::Failed`] follows. What is sent before that is lost.
    pub fn start_tls(&mut self, key: u32, connector: &TlsConnector, host: &str, received: &[u8]) {
        let name = self.name(key);
        let Some(conn) = self.line(name).conn else { return };
        match connector.connect(host) {
            Err(error) => {
                let fault = LineFault::Tls { certificate: true };
                self.fail(name, LineError { fault, message: error.to_string() });
            }
            Ok(channel) => {
                if let Submitted::Broken(error) = self.reactor.start_tls(conn, channel, received) {
                    self.fail_with(name, "TLS", &error);
                }
            }
        }
    }

    /// Sends, after all that was sent before. What the peer does not take at once is kept, within a limit of some
    /// megabytes.
    pub fn send(&mut self, key: u32, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let name = self.name(key);
        // Without one it has just failed, which is told soon.
        let Some(conn) = self.line(name).conn else { return };
        if let Submitted::Broken(error) = self.reactor.send(conn, Data::Bytes(bytes)) {
            self.fail_with(name, "sending", &error);
        }
    }

    /// Closes a connection, or gives it up. Nothing more is told of it, and the key is free.
    pub fn close(&mut self, key: u32) {
        let line = self.lines.get_mut(key as usize).and_then(Option::take).expect("only what was opened is closed");
        if let Some(conn) = line.conn {
            self.reactor.close(conn);
        }
    }

    /// The key stands for a connection, be it only in the making.
    pub fn is_open(&self, key: u32) -> bool {
        self.lines.get(key as usize).is_some_and(Option::is_some)
    }

    /// Gives back the bytes of [`Event::Received`], so that their memory is used again.
    pub fn done(&mut self, bytes: Received) {
        self.reactor.give_back(bytes.buffer);
    }

    /// Waits until something has happened, or until a time; or forever. It may also end for nothing.
    ///
    /// # Errors
    /// The kernel refuses to wait: there is no going on.
    pub fn wait(&mut self, until: Option<Time>) -> io::Result<()> {
        self.hear_resolver();
        self.try_next_addresses();
        if !self.notes.is_empty() {
            return self.reactor.wait(false, None);
        }
        let until = [until, self.impatient.front().map(|(time, _)| *time)].into_iter().flatten().min();
        let Some(until) = until else { return self.reactor.wait(true, None) };
        let now = self.now();
        // One that comes too early does no harm, and need not be set again each time.
        let mut may_sleep = until > now + SPIN_TIME;
        if may_sleep && self.alarm.is_none_or(|alarm| alarm > until || alarm <= now) {
            let wake = Time(until.0 - SPIN_TIME.as_nanos() as u64);
            self.reactor.alarm(wake - now)?;
            self.alarm = Some(wake);
        }
        loop {
            self.reactor.wait(may_sleep, None)?;
            if may_sleep || self.reactor.has_news() || self.now() >= until {
                return Ok(());
            }
            may_sleep = false;
            std::hint::spin_loop();
        }
    }

    /// What has happened since the last wait, one after the other.
    #[expect(clippy::should_implement_trait, reason = "it goes on after a None")]
    pub fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((name, note)) = self.notes.pop_front() {
                if !self.is_current(name) {
                    continue;
                }
                match note {
                    Note::Resolved(took) => return Some(Event::Resolved { key: name.key, took }),
                    Note::Failed(error) => {
                        self.close(name.key);
                        return Some(Event::Failed { key: name.key, error });
                    }
                }
            }
            let event = match self.reactor.next()? {
                Completion::Received { owner, buffer, length } => self.on_received(owner, buffer, length),
                Completion::Connected { owner, result } => self.on_connected(owner, result),
                Completion::Secured { owner, secured } => Some(Event::Secured { key: key_of(owner), secured }),
                Completion::Broken { owner, error } => {
                    let name = self.name(key_of(owner));
                    self.fail_with(name, "the connection", &error);
                    None
                }
                Completion::Sent { .. } | Completion::HungUp { .. } => None,
                Completion::Accepted { .. } | Completion::AcceptFailed { .. } => unreachable!("no socket listens here"),
            };
            if event.is_some() {
                return event;
            }
        }
    }

    fn on_received(&mut self, owner: Owner, buffer: Rc<Buffer>, length: usize) -> Option<Event> {
        let key = key_of(owner);
        if length == 0 {
            self.reactor.give_back(buffer);
            self.close(key);
            return Some(Event::Ended { key });
        }
        let conn = self.opened(key).1;
        self.reactor.receive(conn);
        Some(Event::Received { key, bytes: Received { buffer, length } })
    }

    fn on_connected(&mut self, owner: Owner, result: io::Result<()>) -> Option<Event> {
        let (name, conn) = self.opened(key_of(owner));
        match result {
            Ok(()) => {
                self.line(name).addresses = VecDeque::new();
                self.reactor.receive(conn);
                Some(Event::Connected { key: name.key })
            }
            Err(error) => {
                self.next_address(name, &error);
                None
            }
        }
    }

    fn try_addresses(&mut self, name: Name, mut addresses: VecDeque<SocketAddr>) {
        let address = addresses.pop_front().expect("there is an address to try");
        if !addresses.is_empty() {
            let late = self.now() + ADDRESS_TIMEOUT;
            self.impatient.push_back((late, name));
        }
        self.line(name).addresses = addresses;
        let conn = self.reactor.connect_tcp(address, Owner::Server(name.key));
        self.on_begun(name, conn);
    }

    fn on_begun(&mut self, name: Name, conn: io::Result<ConnId>) {
        match conn {
            Ok(conn) => self.line(name).conn = Some(conn),
            Err(error) => self.next_address(name, &error),
        }
    }

    /// The address at hand will not do.
    fn next_address(&mut self, name: Name, error: &io::Error) {
        if let Some(conn) = self.line(name).conn.take() {
            self.reactor.close(conn);
        }
        let line = self.line(name);
        if line.addresses.is_empty() {
            let message = format!("cannot connect to {}: {error}", line.address);
            return self.fail(name, LineError { fault: LineFault::of(error), message });
        }
        let addresses = std::mem::take(&mut line.addresses);
        self.try_addresses(name, addresses);
    }

    /// Gives the next address its turn where one does not answer.
    fn try_next_addresses(&mut self) {
        if self.impatient.is_empty() {
            return;
        }
        let now = self.now();
        while let Some(&(late, name)) = self.impatient.front() {
            if late > now {
                return;
            }
            self.impatient.pop_front();
            // One that is connected has forgotten the other addresses.
            let waits =
                self.is_current(name) && self.line(name).conn.is_some() && !self.line(name).addresses.is_empty();
            if waits {
                self.next_address(name, &io::ErrorKind::TimedOut.into());
            }
        }
    }

    fn hear_resolver(&mut self) {
        let answers = std::mem::take(&mut *self.answers.inbox.lock().unwrap_or_else(PoisonError::into_inner));
        for (name, (result, took)) in answers {
            if !self.is_current(name) {
                continue;
            }
            self.notes.push_back((name, Note::Resolved(took)));
            match result {
                Ok(addresses) if !addresses.is_empty() => self.try_addresses(name, addresses.into()),
                Ok(_) => self.unresolved(name, format!("{}: the name has no address", self.address(name))),
                Err(message) => self.unresolved(name, message),
            }
        }
    }

    fn unresolved(&mut self, name: Name, message: String) {
        self.fail(name, LineError { fault: LineFault::Resolve, message });
    }

    fn fail_with(&mut self, name: Name, what: &str, error: &io::Error) {
        let message = match tls_failure_of(error) {
            Some(failure) => format!("TLS with {} failed: {}", self.address(name), failure.message),
            None => format!("{what} ({}): {error}", self.address(name)),
        };
        self.fail(name, LineError { fault: LineFault::of(error), message });
    }

    /// Tells it at the next opportunity; until then the key stays in use.
    fn fail(&mut self, name: Name, error: LineError) {
        if let Some(conn) = self.line(name).conn.take() {
            self.reactor.close(conn);
        }
        self.notes.push_back((name, Note::Failed(error)));
    }

    fn address(&self, name: Name) -> Arc<Address> {
        Arc::clone(&self.lines[name.key as usize].as_ref().expect("the connection is there").address)
    }

    fn line(&mut self, name: Name) -> &mut Line {
        let line = self.lines[name.key as usize].as_mut().expect("the connection is there");
        assert!(line.serial == name.serial, "the connection is the one that was meant");
        line
    }

    fn is_current(&self, name: Name) -> bool {
        self.lines.get(name.key as usize).and_then(Option::as_ref).is_some_and(|line| line.serial == name.serial)
    }

    fn name(&self, key: u32) -> Name {
        let line = self.lines.get(key as usize).and_then(Option::as_ref).expect("only open connections are spoken of");
        Name { key, serial: line.serial }
    }

    fn opened(&self, key: u32) -> (Name, ConnId) {
        let name = self.name(key);
        let conn = self.lines[key as usize].as_ref().and_then(|line| line.conn);
        (name, conn.expect("the connection is open"))
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").field("open", &self.lines.iter().flatten().count()).finish_non_exhaustive()
    }
}

impl Answers {
    fn leave(&self, name: Name, answer: resolver::Answer) {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).push((name, answer));
        // It fails only when the reactor has gone, and then no caller waits.
        let _ = self.waker.wake();
    }
}

impl LineFault {
    fn of(error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        if let Some(failure) = tls_failure_of(error) {
            return Self::Tls { certificate: failure.certificate };
        }
        match error.kind() {
            // The kernel refuses a missing Unix socket like a port where no socket listens.
            Kind::ConnectionRefused | Kind::NotFound => Self::Refused,
            Kind::HostUnreachable | Kind::NetworkUnreachable | Kind::NetworkDown => Self::Unreachable,
            Kind::TimedOut => Self::TimedOut,
            Kind::ConnectionReset | Kind::BrokenPipe | Kind::ConnectionAborted => Self::Reset,
            Kind::OutOfMemory | Kind::AddrNotAvailable | Kind::AddrInUse => Self::Exhausted,
            _ => match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS) => Self::Exhausted,
                // A Unix socket whose queue is full.
                Some(Errno::AGAIN) => Self::Refused,
                _ => Self::Other,
            },
        }
    }
}

fn key_of(owner: Owner) -> u32 {
    match owner {
        Owner::Server(key) => key,
        _ => unreachable!("all connections are to servers"),
    }
}

#[cfg(test)]
mod tests;
