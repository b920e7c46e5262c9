//! The outgoing connections of one thread of a database client: opens them, secures them, carries bytes, and reports
//! what happens as events. It knows no protocol and no request.
//!
//! Call order: [`Transport::open`], [`Transport::send`] and the others in any order; [`Transport::next`] until there is
//! no event left; [`Transport::wait`]; and again. One wait may bring many events. The caller gives each connection a
//! key, a small number. A failure is always an event, never a result of the call that met it.

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
/// For this time before a deadline the thread spins instead of sleeping: to wake it would take about as long.
const SPIN_TIME: Duration = Duration::from_micros(20);
/// Bounds keys: the number of descriptors that Linux gives a process at most by default.
const KEY_LIMIT: u32 = 1 << 20;

/// What has happened to a connection.
#[derive(Debug)]
pub enum Event {
    /// The host's name was resolved.
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
        /// At least one. The caller gives them back with [`Transport::give_back`].
        bytes: Received,
    },
    /// The peer has closed the connection. It is closed here, too, and the key is free.
    Ended {
        key: u32,
    },
    /// The connection could not be made, or broke. It is closed, and the key is free.
    Failed {
        key: u32,
        error: TransportError,
    },
}

impl Event {
    /// The connection of the event.
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

/// Received bytes.
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
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct TransportError {
    pub fault: TransportFault,
    /// For people: what was tried, and how it failed.
    pub message: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransportFault {
    /// The host's name has no address, or no name server answers.
    Resolve,
    Refused,
    Unreachable,
    /// The kernel gave up waiting for an answer.
    TimedOut,
    /// The peer has reset the connection.
    Reset,
    /// This machine has no more descriptors, ports or memory for it.
    Exhausted,
    /// TLS failed. `certificate`: one side does not accept the other's, and trying again will not help.
    Tls {
        certificate: bool,
    },
    Other,
}

pub struct Transport {
    reactor: Epoll,
    resolver: Resolver,
    resolver_inbox: Arc<ResolverInbox>,
    clock: Clock,
    slots: Vec<Option<Slot>>,
    /// Distinguishes a connection from earlier ones with its key.
    serial: u32,
    /// Events that do not come from the reactor; at most two for each connection.
    pending: VecDeque<(SlotId, PendingEvent)>,
    /// When the reactor wakes by itself.
    alarm: Option<Time>,
    /// When attempts to connect go on with another address, in the order of time; one for each attempt that has another
    /// address left.
    address_timeouts: VecDeque<AddressTimeout>,
}

/// When an attempt to reach an address gives way to the next one.
struct AddressTimeout {
    at: Time,
    id: SlotId,
    /// The number of addresses that were untried when the attempt began: a later attempt has fewer.
    untried: usize,
}

/// A connection, distinguished from earlier and later ones with its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SlotId {
    key: u32,
    serial: u32,
}

struct Slot {
    serial: u32,
    address: Arc<Address>,
    conn: Option<ConnId>,
    /// Those that are not tried yet.
    addresses: VecDeque<SocketAddr>,
}

enum PendingEvent {
    Resolved(Duration),
    Failed(TransportError),
}

/// Answers from the resolver's threads.
struct ResolverInbox {
    answers: Mutex<Vec<(SlotId, resolver::Answer)>>,
    waker: Waker,
}

impl Transport {
    /// No connections yet. Times count from `origin`.
    ///
    /// # Errors
    /// The machine has no more descriptors.
    pub fn new(origin: Instant) -> io::Result<Self> {
        let (seed, waker) = Seed::new(Duration::ZERO)?;
        Ok(Self {
            reactor: Epoll::new(seed, BUFFER_SIZE),
            resolver: Resolver::start(),
            resolver_inbox: Arc::new(ResolverInbox { answers: Mutex::default(), waker }),
            clock: Clock::Real(origin),
            slots: Vec::new(),
            serial: 0,
            pending: VecDeque::new(),
            alarm: None,
            address_timeouts: VecDeque::new(),
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
        assert!(key < KEY_LIMIT, "keys are small numbers");
        let index = key as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        assert!(self.slots[index].is_none(), "a key stands for one connection");
        self.serial = self.serial.wrapping_add(1);
        let id = SlotId { key, serial: self.serial };
        let address = Arc::clone(address);
        let slot = Slot { serial: id.serial, address: Arc::clone(&address), conn: None, addresses: VecDeque::new() };
        self.slots[index] = Some(slot);
        match &*address {
            Address::Unix(path) => {
                let conn = self.reactor.connect_unix(path, Owner::Server(key));
                self.on_begun(id, conn);
            }
            Address::Tcp { host, port } => match host.parse::<IpAddr>() {
                Ok(ip) => self.try_addresses(id, [SocketAddr::new(ip, *port)].into()),
                Err(_) => {
                    let inbox = Arc::clone(&self.resolver_inbox);
                    self.resolver.resolve(host, *port, move |answer| inbox.post(id, answer));
                }
            },
        }
    }

    /// Goes on in TLS with a peer that calls itself `host`, a name or an address. `received` came from it already and
    /// is part of the handshake. [`Event::Secured`] or [`Event::Failed`] follows. What is sent before that is lost.
    pub fn start_tls(&mut self, key: u32, connector: &TlsConnector, host: &str, received: &[u8]) {
        let id = self.slot_id(key);
        let Some(conn) = self.slot(id).conn else { return };
        match connector.client_channel(host) {
            Err(error) => {
                let fault = TransportFault::Tls { certificate: true };
                self.fail(id, TransportError { fault, message: error.to_string() });
            }
            Ok(channel) => {
                if let Submitted::Broken(error) = self.reactor.start_tls(conn, channel, received) {
                    self.fail_with(id, "TLS", &error);
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
        let id = self.slot_id(key);
        // Without one the connection has just failed, and the event follows.
        let Some(conn) = self.slot(id).conn else { return };
        if let Submitted::Broken(error) = self.reactor.send(conn, Data::Bytes(bytes)) {
            self.fail_with(id, "sending", &error);
        }
    }

    /// Closes a connection. No event follows, and the key is free.
    pub fn close(&mut self, key: u32) {
        let slot = self.slots.get_mut(key as usize).and_then(Option::take).expect("only what was opened is closed");
        if let Some(conn) = slot.conn {
            self.reactor.close(conn);
        }
    }

    /// Whether the key stands for a connection that is open or being opened.
    pub fn is_open(&self, key: u32) -> bool {
        self.slots.get(key as usize).is_some_and(Option::is_some)
    }

    /// Gives back the bytes of [`Event::Received`], so that their memory is used again.
    pub fn give_back(&mut self, bytes: Received) {
        self.reactor.give_back(bytes.buffer);
    }

    /// Waits for an event, at most `until` a time. It may also return without an event.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn wait(&mut self, until: Option<Time>) -> io::Result<()> {
        self.take_resolver_answers();
        self.try_next_addresses();
        if !self.pending.is_empty() {
            return self.reactor.wait(false, None);
        }
        let until = [until, self.address_timeouts.front().map(|timeout| timeout.at)].into_iter().flatten().min();
        let Some(until) = until else { return self.reactor.wait(true, None) };
        let now = self.now();
        // A timer that goes off too early does no harm, so an earlier alarm is left as it is.
        let mut may_sleep = until > now + SPIN_TIME;
        if may_sleep && self.alarm.is_none_or(|alarm| alarm > until || alarm <= now) {
            let wake = Time(until.0 - SPIN_TIME.as_nanos() as u64);
            self.reactor.arm_timer(wake - now)?;
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

    /// The next event since the last wait.
    #[expect(clippy::should_implement_trait, reason = "it continues after a None")]
    pub fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((id, event)) = self.pending.pop_front() {
                if !self.is_current(id) {
                    continue;
                }
                match event {
                    PendingEvent::Resolved(took) => return Some(Event::Resolved { key: id.key, took }),
                    PendingEvent::Failed(error) => {
                        self.close(id.key);
                        return Some(Event::Failed { key: id.key, error });
                    }
                }
            }
            let event = match self.reactor.next()? {
                Completion::Received { owner, buffer, length } => self.on_received(owner, buffer, length),
                Completion::Connected { owner, result } => self.on_connected(owner, result),
                Completion::Secured { owner, secured } => Some(Event::Secured { key: key_of(owner), secured }),
                Completion::Broken { owner, error } => {
                    let id = self.slot_id(key_of(owner));
                    self.fail_with(id, "the connection", &error);
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
        let (id, conn) = self.opened(key_of(owner));
        match result {
            Ok(()) => {
                self.slot(id).addresses = VecDeque::new();
                self.reactor.receive(conn);
                Some(Event::Connected { key: id.key })
            }
            Err(error) => {
                self.next_address(id, &error);
                None
            }
        }
    }

    fn try_addresses(&mut self, id: SlotId, mut addresses: VecDeque<SocketAddr>) {
        let address = addresses.pop_front().expect("there is an address to try");
        if !addresses.is_empty() {
            let at = self.now() + ADDRESS_TIMEOUT;
            self.address_timeouts.push_back(AddressTimeout { at, id, untried: addresses.len() });
        }
        self.slot(id).addresses = addresses;
        let conn = self.reactor.connect_tcp(address, Owner::Server(id.key));
        self.on_begun(id, conn);
    }

    fn on_begun(&mut self, id: SlotId, conn: io::Result<ConnId>) {
        match conn {
            Ok(conn) => self.slot(id).conn = Some(conn),
            Err(error) => self.next_address(id, &error),
        }
    }

    /// The address that was tried has failed: tries the next one.
    fn next_address(&mut self, id: SlotId, error: &io::Error) {
        if let Some(conn) = self.slot(id).conn.take() {
            self.reactor.close(conn);
        }
        let slot = self.slot(id);
        if slot.addresses.is_empty() {
            let message = format!("cannot connect to {}: {error}", slot.address);
            return self.fail(id, TransportError { fault: TransportFault::of(error), message });
        }
        let addresses = std::mem::take(&mut slot.addresses);
        self.try_addresses(id, addresses);
    }

    /// Tries the next address of each host whose present address does not answer.
    fn try_next_addresses(&mut self) {
        if self.address_timeouts.is_empty() {
            return;
        }
        let now = self.now();
        while let Some(&AddressTimeout { at, id, untried }) = self.address_timeouts.front() {
            if at > now {
                return;
            }
            self.address_timeouts.pop_front();
            // A connection that is made has forgotten the other addresses; a later attempt has a time-out of its own.
            let waits = self.is_current(id) && self.slot(id).conn.is_some() && self.slot(id).addresses.len() == untried;
            if waits {
                self.next_address(id, &io::ErrorKind::TimedOut.into());
            }
        }
    }

    fn take_resolver_answers(&mut self) {
        let answers = std::mem::take(&mut *self.resolver_inbox.answers.lock().unwrap_or_else(PoisonError::into_inner));
        for (id, (result, took)) in answers {
            if !self.is_current(id) {
                continue;
            }
            self.pending.push_back((id, PendingEvent::Resolved(took)));
            match result {
                Ok(addresses) if !addresses.is_empty() => self.try_addresses(id, addresses.into()),
                Ok(_) => self.unresolved(id, format!("{}: the name has no address", self.address(id))),
                Err(message) => self.unresolved(id, message),
            }
        }
    }

    fn unresolved(&mut self, id: SlotId, message: String) {
        self.fail(id, TransportError { fault: TransportFault::Resolve, message });
    }

    fn fail_with(&mut self, id: SlotId, what: &str, error: &io::Error) {
        let message = match tls_failure_of(error) {
            Some(failure) => format!("TLS with {} failed: {}", self.address(id), failure.message),
            None => format!("{what} ({}): {error}", self.address(id)),
        };
        self.fail(id, TransportError { fault: TransportFault::of(error), message });
    }

    /// Closes a connection. The event follows from [`Transport::next`]; until then the key stays in use.
    fn fail(&mut self, id: SlotId, error: TransportError) {
        if let Some(conn) = self.slot(id).conn.take() {
            self.reactor.close(conn);
        }
        self.pending.push_back((id, PendingEvent::Failed(error)));
    }

    fn address(&self, id: SlotId) -> Arc<Address> {
        Arc::clone(&self.slots[id.key as usize].as_ref().expect("the connection is there").address)
    }

    fn slot(&mut self, id: SlotId) -> &mut Slot {
        let slot = self.slots[id.key as usize].as_mut().expect("the connection is there");
        assert!(slot.serial == id.serial, "the connection is the one that was meant");
        slot
    }

    fn is_current(&self, id: SlotId) -> bool {
        self.slots.get(id.key as usize).and_then(Option::as_ref).is_some_and(|slot| slot.serial == id.serial)
    }

    fn slot_id(&self, key: u32) -> SlotId {
        let slot = self.slots.get(key as usize).and_then(Option::as_ref).expect("the connection is open");
        SlotId { key, serial: slot.serial }
    }

    fn opened(&self, key: u32) -> (SlotId, ConnId) {
        let id = self.slot_id(key);
        let conn = self.slots[key as usize].as_ref().and_then(|slot| slot.conn);
        (id, conn.expect("the connection is open"))
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("open", &self.slots.iter().flatten().count()).finish_non_exhaustive()
    }
}

impl ResolverInbox {
    fn post(&self, id: SlotId, answer: resolver::Answer) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).push((id, answer));
        // It fails only when the reactor has gone, and then no caller waits.
        let _ = self.waker.wake();
    }
}

impl TransportFault {
    fn of(error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        if let Some(failure) = tls_failure_of(error) {
            return Self::Tls { certificate: failure.bad_certificate };
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
