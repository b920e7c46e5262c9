//! What all workers of a protocol share: the process state, the protocol itself, and their mailboxes.

use std::sync::{Arc, atomic::Ordering::SeqCst};

use seam::Protocol;

use crate::{
    client_total::ClientTotal,
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
    /// What the workers share, and the sockets on which they listen, each with its listener's number. Each worker is
    /// woken by one of the wakers.
    pub(crate) fn new(
        config: DriverConfig,
        protocol: Arc<P>,
        upstreams: Arc<dyn Upstreams>,
        listeners: Vec<ListenerSpec<R::Socket>>,
        wakers: Vec<R::Waker>,
        clock: Clock,
    ) -> (Self, Vec<(u32, R::Socket)>) {
        assert!((1..=255).contains(&config.workers), "1 to 255 workers");
        assert_eq!(wakers.len(), config.workers, "each worker is woken by its own");
        let total = Arc::new(ClientTotal::new(config.max_clients));
        let listening = |(number, spec): (u16, ListenerSpec<R::Socket>)| {
            let user_timeout = config.tcp.user_timeout_of_clients(spec.timeouts.client_idle);
            Listener::new(spec, protocol.client_rules(number), Arc::clone(&total), user_timeout)
        };
        let (listeners, sockets): (Vec<_>, Vec<_>) = (0..).zip(listeners).map(listening).unzip();
        let numbered = |(number, sockets): (u32, Vec<_>)| sockets.into_iter().map(move |socket| (number, socket));
        let sockets: Vec<(u32, R::Socket)> = (0..).zip(sockets).flat_map(numbered).collect();
        let process = Process::new(config, upstreams, (listeners, total), sockets.len(), clock, R::NAME);
        let process = Arc::new(process);
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
