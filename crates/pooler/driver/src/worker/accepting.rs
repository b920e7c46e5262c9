//! The sockets on which a worker listens, and the clients that come there: whether there is a place for them, and which
//! worker serves them.

use std::sync::{
    Arc,
    atomic::Ordering::{Relaxed, SeqCst},
};

use seam::Protocol;

use super::{Worker, newcomers::Newcomer};
use crate::{
    lobby::Net,
    mailbox::{Accepted, Admission, Message},
    reactor::{ConnId, Owner, Reactor},
    throttle,
};

/// The listening sockets of a worker.
#[derive(Default)]
pub(super) struct Accepting {
    /// Each with its listener, which may have several.
    sockets: Vec<(u32, ConnId)>,
    /// The worker accepts from these again at the next tick, because accepting failed.
    failed: Vec<ConnId>,
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// Listens on these sockets, each with its listener's number.
    pub(super) fn listen(&mut self, sockets: Vec<(u32, R::Socket)>) -> std::io::Result<()> {
        for (listener, socket) in sockets {
            let conn = self.reactor.attach(socket, Owner::Listener(listener))?;
            self.accepting.sockets.push((listener, conn));
        }
        Ok(())
    }

    pub(super) fn stop_listening(&mut self) {
        for (_, conn) in self.accepting.sockets.drain(..) {
            // Detached rather than closed: the socket lives on in another process, and epoll would go on telling of it.
            if let Err(error) = self.reactor.detach(conn) {
                tracing::error!(%error, "cannot let go of a listening socket");
            }
            self.process.listening.fetch_sub(1, SeqCst);
        }
        self.accepting.failed.clear();
    }

    pub(super) fn on_accepted(&mut self, listener: u32, socket: R::Socket) {
        let process = Arc::clone(&self.process);
        let rules = &process.listeners[listener as usize];
        if process.draining.load(Relaxed) {
            return;
        }
        let peer = rules.tcp.then(|| R::peer_of(&socket)).flatten();
        match peer.filter(|peer| rules.takes_proxy_header(peer.ip().to_canonical())) {
            Some(proxy) => self.await_proxy_header(listener, socket, proxy),
            None => self.admit_accepted(listener, Accepted { socket, peer, received: Vec::new() }),
        }
    }

    /// Finds a place for a client, and a worker.
    pub(super) fn admit_accepted(&mut self, listener: u32, accepted: Accepted<R::Socket>) {
        let process = Arc::clone(&self.process);
        let rules = &process.listeners[listener as usize];
        let net = accepted.peer.map(|peer| throttle::net(peer.ip()));
        // Where others wait for places it waits behind them.
        if !self.newcomers.any(listener) && self.admit_newcomer(listener, net) {
            self.assign_client(accepted, listener, Admission::Admitted);
        } else if let Some(refused) = self.newcomers.wait(rules, listener, Newcomer { accepted, net, since: self.now })
        {
            self.turn_away(refused.accepted, listener, false);
        }
    }

    pub(super) fn on_accept_failed(&mut self, listener: u32, error: &std::io::Error) {
        self.process.listeners[listener as usize].count_accept_failed();
        if let Some(withheld) = self.paces.accept_failed.take_line(self.now) {
            let name = &self.process.listeners[listener as usize].name;
            tracing::error!(withheld, listener = %name, %error, "cannot accept clients; trying again shortly");
        }
        let Accepting { sockets, failed } = &mut self.accepting;
        for (_, conn) in sockets.iter().filter(|(l, _)| *l == listener) {
            if !failed.contains(conn) {
                failed.push(*conn);
            }
        }
    }

    /// Accepts again where accepting failed.
    pub(super) fn resume_accepting(&mut self) {
        for conn in std::mem::take(&mut self.accepting.failed) {
            self.reactor.resume_accept(conn);
        }
    }

    /// Whether there is a place for a client from `net`. If the place is another client's, that client is told.
    pub(super) fn admit_newcomer(&self, listener: u32, net: Net) -> bool {
        let (welcome, displaced) = self.process.listeners[listener as usize].admit(net, self.now);
        if let Some(displaced) = displaced {
            self.notify_displaced(displaced);
        }
        welcome
    }

    /// There is no place for a client: it is let in only to be told so, or closed at once.
    pub(super) fn turn_away(&mut self, accepted: Accepted<R::Socket>, listener: u32, waited: bool) {
        if self.process.listeners[listener as usize].turn_away(waited) {
            self.assign_client(accepted, listener, Admission::Surplus);
        }
    }

    /// Gives a client to the worker that has the fewest.
    pub(super) fn assign_client(&mut self, accepted: Accepted<R::Socket>, listener: u32, admission: Admission) {
        let boards = &self.process.boards;
        let load = |n: &usize| (boards[*n].clients.load(Relaxed), *n != usize::from(self.number));
        let chosen = (0..boards.len()).min_by_key(load).expect("there is a worker");
        boards[chosen].clients.fetch_add(1, SeqCst);
        if chosen == usize::from(self.number) {
            self.add_client(accepted, listener, admission);
        } else {
            self.shared.mailboxes[chosen].send(Message::Client { accepted, listener, admission });
        }
    }
}
