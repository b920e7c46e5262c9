//! A relay on loopback between the load generator and its target, with faults on the flow: delays, stalls, silence,
//! oblivion, cuts. It moves bytes and refuses to know what they mean.
//!
//! One thread serves all connections with epoll and a timer of nanoseconds, so that a delay is kept to about 0.1 ms on
//! an idle machine. The order of the bytes of a connection is kept; what is under way is bounded ([`MAX_UNDER_WAY`] in
//! each direction), beyond that the relay reads no more and the sender feels it.
//!
//! TCP's handshake is answered by the kernel at once, so a delay cannot reach it. Its round trip is added to the first
//! bytes of the client instead: making a connection takes as long as it would, only its phase is another.

mod pair;

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use arrivals::{Direction, Fault, FaultTimeline, nanos};
use rustix::{
    event::{EventfdFlags, epoll, eventfd},
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType},
    time::{ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec},
};
use slab::Slab;

pub use pair::MAX_UNDER_WAY;
use pair::{CLIENT, Pair, PairEnd, SERVER};

use crate::random::Random;

/// Connections at a time; further ones are closed at once.
const MAX_PAIRS: usize = 20_000;
/// Connections accepted in a row.
const ACCEPT_BATCH: usize = 256;
/// Events taken in one wait.
const EVENT_BATCH: usize = 512;
/// Bytes of one read.
const READ_SIZE: usize = 64 * 1024;
/// Pause after an accept that failed, for example for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

const LISTENER: u64 = 0;
const TIMER: u64 = 1;
const WAKER: u64 = 2;
/// Sockets are 2 * slot + end above this.
const SOCKETS: u64 = 16;

/// A running relay; ends when dropped.
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    waker: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// Connections that the relay has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RelayCounts {
    pub connections: u64,
    /// Connections cut by a fault.
    pub cut: u64,
    /// Connections that ended because the target could not be reached, or this machine had no descriptor left.
    pub failed: u64,
}

#[derive(Default)]
struct Shared {
    stopped: AtomicBool,
    /// When windows of faults begin to count, on the monotonic clock; 0: they do not yet.
    windows_start: AtomicU64,
    connections: AtomicU64,
    cut: AtomicU64,
    failed: AtomicU64,
}

impl Relay {
    /// Starts a relay to `target` on a free port of loopback. Delays hold at once, windows count from
    /// [`Relay::start_windows`].
    ///
    /// # Errors
    /// The system refuses a socket or a thread.
    pub fn start(target: SocketAddr, faults: &[Fault], seed: u64) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let waker = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let timer =
            rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), edge)?;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(TIMER), edge)?;
        epoll::add(&epoll, &*waker, epoll::EventData::new_u64(WAKER), edge)?;
        let work = RelayThread {
            listener,
            target,
            epoll,
            timer,
            _waker: Arc::clone(&waker),
            alarm: None,
            shared: Arc::clone(&shared),
            timeline: FaultTimeline::new(faults, Random::new(seed, u32::MAX - 1).bits()),
            cut_next: None,
            pairs: Slab::new(),
            due: BinaryHeap::new(),
            serials: 0,
            accept_again: None,
            chunk: vec![0; READ_SIZE].into(),
        };
        let thread = std::thread::Builder::new().name("relay".to_owned()).spawn(move || work.run())?;
        Ok(Self { address, shared, waker, thread: Some(thread) })
    }

    /// Where it accepts connections.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts the windows of faults at `windows_start`.
    pub fn start_windows(&self, windows_start: Instant) {
        let began = match windows_start.checked_duration_since(Instant::now()) {
            Some(ahead) => now().saturating_add(nanos(ahead)),
            None => now().saturating_sub(nanos(windows_start.elapsed())),
        };
        self.shared.windows_start.store(began.max(1), Relaxed);
        self.wake();
    }

    /// The connections until now.
    pub fn counts(&self) -> RelayCounts {
        RelayCounts {
            connections: self.shared.connections.load(Relaxed),
            cut: self.shared.cut.load(Relaxed),
            failed: self.shared.failed.load(Relaxed),
        }
    }

    fn wake(&self) {
        // It fails only when nearly 2^64 calls have not been read, and then the thread is awake.
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Relaxed);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // The thread itself reports a panic.
            let _ = thread.join();
        }
    }
}

struct RelayThread {
    listener: TcpListener,
    target: SocketAddr,
    epoll: OwnedFd,
    timer: OwnedFd,
    /// Kept open as long as epoll looks at it.
    _waker: Arc<OwnedFd>,
    /// When the timer goes off.
    alarm: Option<u64>,
    shared: Arc<Shared>,
    timeline: FaultTimeline,
    /// When all connections are cut next.
    cut_next: Option<u64>,
    pairs: Slab<Pair>,
    /// When pairs are due: time, slot, and serial of the pair.
    due: BinaryHeap<Reverse<(u64, usize, u64)>>,
    serials: u64,
    /// When accepting continues, if connections may be waiting.
    accept_again: Option<u64>,
    chunk: Box<[u8]>,
}

impl RelayThread {
    fn run(mut self) {
        let mut events = Vec::with_capacity(EVENT_BATCH);
        let mut touched = Vec::with_capacity(EVENT_BATCH);
        while !self.shared.stopped.load(Relaxed) {
            self.set_alarm();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => panic!("epoll failed: {error}"),
            }
            let mut accept = false;
            for event in events.drain(..) {
                match event.data.u64() {
                    LISTENER => accept = true,
                    TIMER => self.alarm = None,
                    WAKER => self.read_windows_start(),
                    key => touched.extend(self.ready(key, event.flags)),
                }
            }
            let now = now();
            for slot in touched.drain(..) {
                self.pump(slot, now);
            }
            self.deliver_due(now);
            // Behind the rest, so that no slot is used again while events of its last pair are looked at.
            self.cut_if_due(now);
            if accept || self.accept_again.is_some_and(|again| again <= now) {
                self.accept(now);
            }
        }
    }

    fn ready(&mut self, key: u64, flags: epoll::EventFlags) -> Option<usize> {
        let slot = ((key - SOCKETS) / 2) as usize;
        let failed = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
        let readable = failed || flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP);
        let writable = failed || flags.intersects(epoll::EventFlags::OUT);
        self.pairs.get_mut(slot)?.ready(((key - SOCKETS) % 2) as usize, readable, writable);
        Some(slot)
    }

    fn read_windows_start(&mut self) {
        let began = self.shared.windows_start.load(Relaxed);
        if began != 0 && self.timeline.windows_start != Some(began) {
            self.timeline.windows_start = Some(began);
            self.cut_next = self.timeline.next_cut(began.saturating_sub(1));
        }
    }

    fn pump(&mut self, slot: usize, now: u64) {
        let Some(pair) = self.pairs.get_mut(slot) else { return };
        let timeline = &mut self.timeline;
        match pair.pump(now, &mut self.chunk, &mut |direction| timeline.draw_arrival(direction, now)) {
            Ok(Some(next)) if pair.armed.is_none_or(|armed| next < armed) => {
                pair.armed = Some(next);
                self.due.push(Reverse((next, slot, pair.serial)));
            }
            Ok(_) => {}
            Err(over) => {
                self.shared.failed.fetch_add(u64::from(over == PairEnd::NoServer), Relaxed);
                let pair = self.pairs.remove(slot);
                if over != PairEnd::Ended {
                    // The other end sees a reset, too.
                    pair.cut();
                }
            }
        }
    }

    fn deliver_due(&mut self, now: u64) {
        while let Some(Reverse((_, slot, serial))) = self.due.peek().copied().filter(|Reverse((due, ..))| *due <= now) {
            self.due.pop();
            let Some(pair) = self.pairs.get_mut(slot).filter(|pair| pair.serial == serial) else { continue };
            pair.armed = None;
            self.pump(slot, now);
        }
    }

    fn cut_if_due(&mut self, now: u64) {
        if self.cut_next.is_none_or(|at| at > now) {
            return;
        }
        self.cut_next = self.timeline.next_cut(now);
        self.shared.cut.fetch_add(self.pairs.len() as u64, Relaxed);
        for pair in self.pairs.drain() {
            pair.cut();
        }
    }

    fn accept(&mut self, now: u64) {
        self.accept_again = None;
        for _ in 0..ACCEPT_BATCH {
            let client = match self.listener.accept() {
                Ok((client, _)) => client,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => {
                    self.shared.failed.fetch_add(1, Relaxed);
                    self.accept_again = Some(now + nanos(ACCEPT_PAUSE));
                    return;
                }
            };
            self.shared.connections.fetch_add(1, Relaxed);
            if self.pairs.len() >= MAX_PAIRS || self.connect_target(client, now).is_err() {
                self.shared.failed.fetch_add(1, Relaxed);
            }
        }
        self.accept_again = Some(now);
    }

    /// Begins to connect to the target on behalf of a client.
    fn connect_target(&mut self, client: TcpStream, now: u64) -> io::Result<()> {
        let family = if self.target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let server = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&server, &self.target) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let server = TcpStream::from(server);
        client.set_nonblocking(true)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        // What is sent as soon as the handshake is over arrives this much later.
        let handshake = now + self.timeline.draw_round_trip();
        let earliest = self.timeline.draw_arrival(Direction::Up, handshake);
        self.serials += 1;
        let slot =
            self.pairs.insert(Pair::new(self.serials, client, server, now, earliest, self.timeline.max_silence()));
        let pair = &self.pairs[slot];
        let both = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let added = [CLIENT, SERVER].into_iter().try_for_each(|end| {
            let key = SOCKETS + 2 * slot as u64 + end as u64;
            epoll::add(&self.epoll, pair.stream(end), epoll::EventData::new_u64(key), both)
        });
        if let Err(error) = added {
            self.pairs.remove(slot);
            return Err(error.into());
        }
        Ok(())
    }

    /// Sets the timer to whatever is due next.
    fn set_alarm(&mut self) {
        let due = self.due.peek().map(|Reverse((due, ..))| *due);
        let next = [due, self.cut_next, self.accept_again].into_iter().flatten().min();
        if next == self.alarm {
            return;
        }
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A timer set to zero is off; what is due at zero goes off a nanosecond later.
        let value = next.map_or(zero, |next| timespec(next.max(1)));
        rustix::time::timerfd_settime(
            &self.timer,
            TimerfdTimerFlags::ABSTIME,
            &Itimerspec { it_interval: zero, it_value: value },
        )
        .expect("the timer is ours and its time is valid");
        self.alarm = next;
    }
}

/// The monotonic clock in nanoseconds.
fn now() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn timespec(nanos: u64) -> Timespec {
    Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as _ }
}

#[cfg(test)]
mod tests;
