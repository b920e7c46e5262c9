//! The driver's reactor over the simulated network. It follows the rules of the trait, and returns the completions of
//! one round in random order. It counts the bytes that wait for a peer. It has no TLS.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    io,
    net::SocketAddr,
    path::Path,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use driver::reactor::{Buffer, Channel, Completion, ConnId, Data, Owner, Reactor, Ring, Submitted, Wake, writable};

use super::{EndId, HostBehaviour, Network, State};
use crate::random::Rng;

#[derive(Clone, Default)]
pub struct VirtualWaker(Arc<AtomicBool>);

impl VirtualWaker {
    /// Whether the reactor was woken since its last wait.
    pub fn is_awake(&self) -> bool {
        self.0.load(SeqCst)
    }
}

impl Wake for VirtualWaker {
    fn wake(&self) -> io::Result<()> {
        self.0.store(true, SeqCst);
        Ok(())
    }
}

/// A connection, or the listener, outside of a reactor. Dropping it closes it.
pub struct Socket {
    network: Network,
    /// `None` is the listener.
    end: Option<EndId>,
    /// A reactor owns it, so dropping it does nothing.
    taken: bool,
}

impl Socket {
    pub fn listener(network: &Network) -> Self {
        Self { network: network.clone(), end: None, taken: false }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        match self.end.take() {
            _ if self.taken => {}
            Some(end) => self.network.close(end),
            None => self.network.lock().stop_listening(),
        }
    }
}

/// The connections of a reactor, shared with the harness, which decides when the worker takes a step and checks them.
#[derive(Clone)]
pub struct ReactorView {
    network: Network,
    waker: VirtualWaker,
    conns: Rc<RefCell<BTreeMap<u32, Conn>>>,
    most_unsent: Rc<Cell<usize>>,
}

pub struct VirtualReactor {
    view: ReactorView,
    rng: Rng,
    next_id: u32,
    /// Connections still to be examined in this round.
    round: VecDeque<u32>,
    ring: Ring,
}

struct Conn {
    end: Option<EndId>,
    owner: Owner,
    receiving: bool,
    connecting: bool,
    hang_up_reported: bool,
    unsent: VecDeque<u8>,
    deferred_bytes_sent: u32,
}

impl ReactorView {
    /// Whether the worker of the reactor has been woken, or a connection has news.
    pub fn has_news(&self) -> bool {
        let state = self.network.lock();
        self.waker.is_awake() || self.conns.borrow().values().any(|conn| conn.has_news(&state))
    }

    /// The most bytes so far that waited for one peer.
    pub fn most_unsent(&self) -> usize {
        self.most_unsent.get()
    }

    /// Server connections that are open, connecting or closing, without cancel requests.
    pub fn servers(&self) -> usize {
        let counts = |owner| matches!(owner, Owner::Server(_) | Owner::Dial(_) | Owner::ClosingServer(_));
        self.conns.borrow().values().filter(|conn| counts(conn.owner)).count()
    }
}

impl Conn {
    fn has_news(&self, state: &State) -> bool {
        let Some(end) = self.end else { return !state.backlog.is_empty() };
        let (end, peer) = (&state.ends[end as usize], &state.ends[(end ^ 1) as usize]);
        if self.connecting {
            return end.answer.is_some();
        }
        let over = end.fin || end.reset;
        let sendable = !self.unsent.is_empty() && (end.reset || state.room(peer) > 0);
        sendable || if self.receiving { over || !end.inbox.is_empty() } else { over && !self.hang_up_reported }
    }
}

impl VirtualReactor {
    /// A reactor, and a view of its connections. The seed decides the order of completions.
    pub fn new(network: &Network, seed: u64, buffer_size: usize) -> (Self, ReactorView) {
        let view = ReactorView {
            network: network.clone(),
            waker: VirtualWaker::default(),
            conns: Rc::default(),
            most_unsent: Rc::default(),
        };
        let reactor = Self {
            view: view.clone(),
            rng: Rng::new(seed),
            next_id: 0,
            round: VecDeque::new(),
            ring: Ring::new(buffer_size),
        };
        (reactor, view)
    }

    pub fn waker(&self) -> VirtualWaker {
        self.view.waker.clone()
    }

    fn register(&mut self, end: Option<EndId>, owner: Owner, connecting: bool) -> ConnId {
        let id = self.next_id;
        self.next_id += 1;
        let conn = Conn {
            end,
            owner,
            receiving: false,
            connecting,
            hang_up_reported: false,
            unsent: VecDeque::new(),
            deferred_bytes_sent: 0,
        };
        self.view.conns.borrow_mut().insert(id, conn);
        ConnId(id)
    }

    fn with<T>(&self, id: ConnId, f: impl FnOnce(&mut Conn) -> T) -> T {
        f(self.view.conns.borrow_mut().get_mut(&id.0).expect("the connection is open"))
    }

    /// Removes a connection; its end, unless it is the listener.
    fn forget(&mut self, id: ConnId) -> Option<EndId> {
        self.view.conns.borrow_mut().remove(&id.0).expect("a connection is closed once").end
    }

    /// Carries on with a connection: accepts, sends the bytes that wait, or receives. Returns the completion, if there
    /// is one now.
    fn next_completion(&mut self, id: u32) -> Option<Completion<Socket>> {
        let mut conns = self.view.conns.borrow_mut();
        let conn = conns.get_mut(&id)?;
        let owner = conn.owner;
        let mut state = self.view.network.lock();
        if !conn.has_news(&state) {
            return None;
        }
        let Some(at) = conn.end else {
            let Owner::Listener(listener) = owner else { unreachable!("only listeners have no end") };
            let end = state.backlog.pop_front();
            let socket = Socket { network: self.view.network.clone(), end, taken: false };
            return Some(Completion::Accepted { listener, socket });
        };
        if conn.connecting {
            conn.connecting = false;
            let open = state.ends[at as usize].answer == Some(true);
            let result = if open { Ok(()) } else { Err(io::ErrorKind::ConnectionRefused.into()) };
            return Some(Completion::Connected { owner, result });
        }
        if !conn.unsent.is_empty() {
            let Some(sent) = state.send(at, conn.unsent.make_contiguous()) else {
                return Some(Completion::Broken { owner, error: io::ErrorKind::ConnectionReset.into() });
            };
            conn.unsent.drain(..sent);
            conn.deferred_bytes_sent = conn.deferred_bytes_sent.wrapping_add(sent as u32);
            if conn.unsent.is_empty() {
                return Some(Completion::Sent { owner });
            }
        }
        let end = &state.ends[at as usize];
        if !conn.receiving {
            if (end.fin || end.reset) && !std::mem::replace(&mut conn.hang_up_reported, true) {
                return Some(Completion::HungUp { owner });
            }
            return None;
        }
        if end.inbox.is_empty() && !end.fin && !end.reset {
            return None;
        }
        conn.receiving = false;
        if end.inbox.is_empty() && end.reset {
            return Some(Completion::Broken { owner, error: io::ErrorKind::ConnectionReset.into() });
        }
        let mut length = end.inbox.len().min(self.ring.size());
        if length > 1 && self.rng.percent(state.conditions.short_reads) {
            length = 1 + self.rng.index(length);
        }
        let bytes = state.take(at, length);
        let mut buffer = self.ring.take();
        writable(&mut buffer)[..length].copy_from_slice(&bytes);
        Some(Completion::Received { owner, buffer, length })
    }
}

impl Drop for VirtualReactor {
    fn drop(&mut self) {
        for conn in self.view.conns.take().into_values() {
            conn.end.into_iter().for_each(|end| self.view.network.close(end));
        }
    }
}

impl Reactor for VirtualReactor {
    type Socket = Socket;
    type Moved = Socket;
    type Waker = VirtualWaker;

    const NAME: &'static str = "virtual";

    fn wait(&mut self, _may_sleep: bool, _at_most: Option<Duration>) -> io::Result<()> {
        self.view.waker.0.store(false, SeqCst);
        let mut round: Vec<u32> = self.view.conns.borrow().keys().copied().collect();
        for at in (1..round.len()).rev() {
            round.swap(at, self.rng.index(at + 1));
        }
        self.round = round.into();
        Ok(())
    }

    fn next(&mut self) -> Option<Completion<Socket>> {
        while let Some(id) = self.round.pop_front() {
            if let Some(completion) = self.next_completion(id) {
                // One round may report that bytes were sent and received, and several accepted connections.
                if matches!(completion, Completion::Sent { .. } | Completion::Accepted { .. }) {
                    self.round.push_front(id);
                }
                return Some(completion);
            }
        }
        None
    }

    fn attach(&mut self, mut socket: Socket, owner: Owner) -> io::Result<ConnId> {
        socket.taken = true;
        Ok(self.register(socket.end, owner, false))
    }

    fn attach_moved(&mut self, moved: Socket, owner: Owner) -> io::Result<ConnId> {
        self.attach(moved, owner)
    }

    fn connect_tcp(&mut self, address: SocketAddr, owner: Owner) -> io::Result<ConnId> {
        let (mut state, host) = (self.view.network.lock(), address.port() - 1);
        if state.behaviour_of(host) == HostBehaviour::Unreachable {
            return Err(io::Error::other("no descriptors are left"));
        }
        let end = state.dial(host);
        drop(state);
        Ok(self.register(Some(end), owner, true))
    }

    fn connect_unix(&mut self, _path: &Path, owner: Owner) -> io::Result<ConnId> {
        self.connect_tcp(SocketAddr::from(([127, 0, 0, 1], 1)), owner)
    }

    fn set_owner(&mut self, id: ConnId, owner: Owner) {
        self.with(id, |conn| conn.owner = owner);
    }

    fn receive(&mut self, id: ConnId) {
        self.with(id, |conn| conn.receiving = true);
    }

    fn send(&mut self, id: ConnId, data: Data<'_>) -> Submitted {
        let bytes = data.bytes();
        self.with(id, |conn| {
            let mut sent = 0;
            if conn.unsent.is_empty() {
                let end = conn.end.expect("nothing is sent to a listener");
                match self.view.network.lock().send(end, bytes) {
                    Some(taken) => sent = taken,
                    None => return Submitted::Broken(io::ErrorKind::BrokenPipe.into()),
                }
            }
            if sent == bytes.len() {
                return Submitted::Done;
            }
            conn.unsent.extend(&bytes[sent..]);
            self.view.most_unsent.set(self.view.most_unsent.get().max(conn.unsent.len()));
            Submitted::Pending
        })
    }

    fn unreceived(&self, id: ConnId) -> usize {
        self.with(id, |conn| conn.end.map_or(0, |end| self.view.network.readable(end)))
    }

    fn unsent(&self, id: ConnId) -> usize {
        self.with(id, |conn| conn.unsent.len())
    }

    fn deferred_bytes_sent(&self, id: ConnId) -> u32 {
        self.with(id, |conn| conn.deferred_bytes_sent)
    }

    /// Each round examines every connection that can send.
    fn try_to_send(&mut self, _id: ConnId) {}

    fn is_sending(&self, id: ConnId) -> bool {
        self.with(id, |conn| !conn.unsent.is_empty())
    }

    fn start_tls(&mut self, _id: ConnId, _channel: Channel, _received: &[u8]) -> Submitted {
        unreachable!("the simulated network has no TLS")
    }

    fn detach(&mut self, id: ConnId) -> io::Result<Socket> {
        assert!(!self.is_sending(id), "a connection with unsent bytes does not move");
        let end = self.forget(id);
        Ok(Socket { network: self.view.network.clone(), end, taken: false })
    }

    fn release(&mut self, id: ConnId) -> io::Result<Socket> {
        self.detach(id)
    }

    fn half_close(&mut self, id: ConnId) {
        let end = self.with(id, |conn| {
            conn.unsent.clear();
            conn.end.expect("a listener has no peer")
        });
        self.view.network.lock().shut(end);
    }

    fn half_close_and_detach(&mut self, id: ConnId) -> io::Result<Socket> {
        let end = self.forget(id);
        self.view.network.lock().shut(end.expect("a listener has no peer"));
        Ok(Socket { network: self.view.network.clone(), end, taken: false })
    }

    fn has_peer_closed(socket: &Socket) -> bool {
        let mut state = socket.network.lock();
        let Some(end) = socket.end else { return true };
        let most = state.ends[end as usize].inbox.len();
        state.take(end, most);
        let end = &state.ends[end as usize];
        end.fin || end.reset
    }

    fn has_hung_up(socket: &Socket) -> bool {
        let state = socket.network.lock();
        socket.end.is_none_or(|end| state.ends[end as usize].fin || state.ends[end as usize].reset)
    }

    fn close(&mut self, id: ConnId) {
        if let Some(end) = self.forget(id) {
            self.view.network.lock().close(end);
        }
    }

    fn give_back(&mut self, buffer: Rc<Buffer>) {
        self.ring.put(buffer);
    }

    fn resume_accept(&mut self, _id: ConnId) {}

    fn peer_of(socket: &Socket) -> Option<SocketAddr> {
        socket.end.map(State::peer)
    }

    fn peer(&self, id: ConnId) -> Option<SocketAddr> {
        self.with(id, |conn| conn.end.map(State::peer))
    }

    fn peer_uid(&self, _id: ConnId) -> Option<u32> {
        None
    }

    fn set_user_timeout(&self, _id: ConnId, _timeout: Duration) {}

    fn is_host_silent(&self, _id: ConnId, _time: Duration) -> bool {
        false
    }
}
