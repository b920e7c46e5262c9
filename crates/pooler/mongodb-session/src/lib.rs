//! MongoDB's wire protocol through the seam: what drivers are told, where their requests go, and what belongs together.
//!
//! Each request takes one server connection, from its first byte to the last of its answer. Poolhouse answers `hello`
//! itself: drivers see one mongos, or one standalone server, whatever is behind it. See the drivers' specifications
//! (Server Discovery and Monitoring, Connection Monitoring and Pooling, Authentication) at
//! <https://github.com/mongodb/specifications>.
//!
//! It opens no connection and knows no configuration: [`Directory`] answers who may log in and where to.
#![forbid(unsafe_code)]

mod access;
pub mod bson;
mod check;
mod checks;
mod chores;
mod client;
mod client_end;
mod client_input;
mod cluster_time;
mod command;
mod command_names;
mod connection_resources;
mod cursor_ids;
mod cursors;
mod destination;
mod directory;
mod errors;
mod facts;
mod held;
mod hello;
mod holding;
mod local_commands;
mod login;
mod members;
mod monitor;
mod monitoring;
mod partial_requests;
mod reply;
mod reply_summary;
mod request;
mod requester;
mod room;
mod routes;
mod scan;
mod selection;
mod sending;
mod server;
mod server_input;
mod sessions;
mod stalls;
mod starting;
mod streams;
mod tags;
mod topology;
mod transactions;
mod wait;
mod waits;
pub mod wire;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU32},
    time::Duration,
};

use seam::{
    ClientTag, CloseReason, Effect, Input, LeaseFailure, Origin, Outbox, PoolId, Protocol, Refusal, Secured, ServerTag,
    Sessions, TlsFailure,
};

use self::{
    chores::Chores,
    cursors::Cursors,
    facts::{Facts, Role},
    holding::Holding,
    members::Unlisted,
    stalls::Stalls,
    streams::Streams,
    topology::{Ask, Heard, Topology},
    transactions::Transactions,
};
pub use self::{
    client::Client,
    directory::{Directory, ServerLogin, Welcome},
    requester::{CommandError, Fault, Requester, Verdict},
    server::Server,
};
pub use scram::KeyCache;
/// What is stored of a user's password.
pub use scram::Verifier;
/// The default of [`Directory::local_threshold`]: that of drivers and of mongos.
pub use selection::WINDOW as LOCAL_THRESHOLD;

pub struct MongoDb {
    directory: Arc<dyn Directory>,
    topology: Mutex<Topology>,
    cursors: Cursors,
    transactions: Transactions,
    streams: Streams,
    chores: Chores,
    stalls: Stalls,
    unlisted: Unlisted,
    /// What clients are told as their connection's number.
    last_number: AtomicU32,
    held_memory: Holding,
    /// What drivers of load-balanced deployments know this process by.
    service: [u8; 12],
    keys: scram::KeyCache,
    /// Servers whose keys are derived part by part.
    derivations: scram::Turns<(ServerTag, u64)>,
    mock: scram::Mock,
}

impl MongoDb {
    /// Asks `directory` who may do what.
    pub fn new(directory: Arc<dyn Directory>) -> Self {
        let (mut service, mut secret, mut begin) = ([0; 12], [0; 32], [0; 8]);
        getrandom::fill(&mut service).expect("the system gives random bytes");
        getrandom::fill(&mut secret).expect("the system gives random bytes");
        getrandom::fill(&mut begin).expect("the system gives random bytes");
        Self {
            directory,
            topology: Mutex::new(Topology::new()),
            cursors: Cursors::new(u64::from_le_bytes(begin)),
            transactions: Transactions::default(),
            streams: Streams::default(),
            chores: Chores::default(),
            stalls: Stalls::default(),
            unlisted: Unlisted::default(),
            last_number: AtomicU32::new(1),
            held_memory: Holding::default(),
            service,
            keys: scram::KeyCache::default(),
            derivations: scram::Turns::default(),
            mock: scram::Mock::new(secret),
        }
    }

    fn topology(&self) -> MutexGuard<'_, Topology> {
        self.topology.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A host has told what it is.
    fn learn(&self, host: usize, facts: Facts, heard: Heard, out: &mut Outbox) {
        if topology::is_other_set(&facts, self.directory.replica_set().as_ref()) {
            return;
        }
        let names_members = facts.role == Role::Primary;
        {
            let mut topology = self.topology();
            if !topology.is_present(host) {
                // A new configuration may have it, of which the topology is not told before the next beat.
                topology.keep_only(self.directory.hosts(), out);
            }
            topology.learn(host, facts, heard, out);
        }
        if names_members {
            self.look_for_unlisted();
        }
    }
}

impl Protocol for MongoDb {
    type Client = Client;
    type Server = Server;

    fn on_tick(&self, now: Duration, out: &mut Outbox) {
        let beats = {
            let mut topology = self.topology();
            let beats = topology.is_beat_due(now);
            if beats {
                topology.keep_only(self.directory.hosts(), out);
                topology.window = self.directory.local_threshold();
            }
            topology.on_tick(now, out);
            beats
        };
        if beats {
            self.chores.keep_only(|pool| self.directory.is_configured(pool));
        }
        for (pool, count) in self.chores.on_tick(now) {
            self.directory.note_undone(pool, count);
        }
        for pool in self.chores.returned() {
            out.push(Effect::ResetOne { pool });
        }
        self.derive_next(now, out);
        for (client, key) in self.stalls.on_tick(now) {
            topology::post(seam::Peer::Client(client), key, out);
        }
        self.cursors.on_tick(now);
        self.transactions.on_tick(now);
    }

    fn client_start(&self, _: ClientTag, origin: Origin, _: &mut Outbox) -> Client {
        self.welcome(origin)
    }

    fn server_start(&self, me: ServerTag, pool: PoolId, out: &mut Outbox) -> Server {
        Server::start(me, pool, self.directory.server_login(pool), out)
    }

    fn client_input(
        &self,
        me: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        self.hear_client(me, client, servers, input, out)
    }

    fn server_input(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        self.hear_server(me, server, clients, input, out)
    }

    fn granted(&self, me: ClientTag, client: &mut Client, tag: ServerTag, server: &mut Server, out: &mut Outbox) {
        self.on_granted(me, client, tag, server, out);
    }

    fn lease_failed(&self, me: ClientTag, client: &mut Client, why: LeaseFailure, _arrived: usize, out: &mut Outbox) {
        self.on_lease_failed(me, client, &why, out);
    }

    fn posted_to_client(&self, me: ClientTag, client: &mut Client, key: u64, _: &[u8], out: &mut Outbox) {
        self.hear_post(me, client, key, out);
    }

    fn posted_to_server(&self, me: ServerTag, server: &mut Server, key: u64, bytes: &[u8], out: &mut Outbox) {
        self.go_on_deriving(me, server, key, out);
        self.beat(me, server, key, Ask::read(bytes), out);
    }

    fn pool_forgotten(&self, pool: PoolId) {
        self.chores.forget(pool);
    }

    fn client_gone(
        &self,
        _: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        out: &mut Outbox,
    ) {
        self.client_left(client, servers, out);
    }

    fn server_gone(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        out: &mut Outbox,
    ) {
        self.server_left(me, server, clients, out);
    }

    fn refuse(&self, me: ClientTag, client: &mut Client, why: Refusal, out: &mut Outbox) {
        self.on_refused(me, client, &why, out);
    }

    /// Nothing that a client does stays with a connection: what it leaves belongs to its session or its cursors. The
    /// sign that its last request is done with may be due, or there are chores.
    fn reset(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        self.on_errand(me, server, out);
    }

    fn check(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        server.check(me, out);
    }

    fn retire(&self, _: ServerTag, server: &mut Server, out: &mut Outbox) {
        self.server_retired(server, out);
    }

    fn cancel(
        &self,
        _: ClientTag,
        _: &mut Client,
        _: &mut dyn Sessions<ServerTag, Server>,
        _: u64,
        _: bool,
        _: &mut Outbox,
    ) {
        unreachable!("nobody asks to cancel: the protocol has no such request");
    }

    fn client_secured(&self, _: ClientTag, _: &mut Client, _: Secured, _: &mut Outbox) {
        // Certificates do not log in here.
    }

    fn server_secured(&self, me: ServerTag, server: &mut Server, _: Secured, out: &mut Outbox) {
        server.secured(me, out);
    }

    fn server_tls_failed(&self, _: &mut Server, failure: TlsFailure) -> CloseReason {
        Server::tls_failed(failure)
    }
}

#[cfg(test)]
mod tests;
