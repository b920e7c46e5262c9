//! What all workers of a protocol share: the process state, the protocol itself, and their mailboxes.

use std::sync::{Arc, atomic::Ordering::SeqCst};

use seam::Protocol;

use crate::{
    clock::Clock,
    config::{DriverConfig, ListenerSpec, Upstreams},
    listener::Listener,
    mailbox::{Command, Mailbox, Message, Workers},
    process::Process,
    reactor::Reactor,
};

pub(crate) struct Shared<P: Protocol, R: Reactor> {
    pub(crate) process: Arc<Process>,
    pub(crate) protocol: Arc<P>,
    pub(crate) mailboxes: Vec<Mailbox<P, R>>,
}

impl<P: Protocol, R: Reactor> Shared<P, R> {
    /// What the workers share, and the sockets on which they listen. Each worker is woken by one of the wakers.
    pub(crate) fn new(
        config: DriverConfig,
        protocol: Arc<P>,
        upstreams: Arc<dyn Upstreams>,
        listeners: Vec<ListenerSpec<R::Socket>>,
        wakers: Vec<R::Waker>,
        clock: Clock,
    ) -> (Self, Vec<R::Socket>) {
        assert!((1..=255).contains(&config.workers), "1 to 255 workers");
        assert_eq!(wakers.len(), config.workers, "each worker is woken by its own");
        let listening = |(number, spec)| Listener::new(spec, protocol.client_rules(number));
        let (listeners, sockets): (Vec<_>, Vec<_>) = (0..).zip(listeners).map(listening).unzip();
        let process = Arc::new(Process::new(config, upstreams, listeners, clock, R::NAME));
        (Self { process, protocol, mailboxes: wakers.into_iter().map(Mailbox::new).collect() }, sockets)
    }

    /// A worker has ended, meant or not.
    pub(crate) fn on_ended(&self, number: usize, failed: bool) {
        self.process.boards[number].ended.store(true, SeqCst);
        // The others cannot go on without it: its servers and its mail are gone.
        if failed || !self.process.is_ending() {
            (0..self.mailboxes.len()).for_each(|worker| self.command(worker, Command::Stop));
        }
    }
}

impl<P: Protocol, R: Reactor> Workers for Shared<P, R> {
    fn command(&self, worker: usize, command: Command) {
        self.mailboxes[worker].send(Message::Command(command));
    }
}
