//! MongoDB's wire protocol through the seam: `hello`, logins, server selection, cursors, transactions and sessions.
//!
//! Each request takes one server connection, from its first byte to the last byte of its reply. Poolhouse answers
//! `hello` itself: drivers see one mongos, or one standalone server, whatever the upstream is. See the drivers'
//! specifications (Server Discovery and Monitoring, Connection Monitoring and Pooling, Authentication) at
//! <https://github.com/mongodb/specifications>.
//!
//! The crate opens no connection and reads no configuration: [`Directory`] answers who may log in, and to which pool a
//! request goes.
#![forbid(unsafe_code)]

mod access;
pub mod bson;
mod cleanup;
mod cleanup_tasks;
mod client;
mod client_exit;
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
mod handshake;
mod held_memory;
mod held_request;
mod hello;
mod local_commands;
mod logical_sessions;
mod login;
mod monitor;
mod monitoring;
mod owed_reply;
mod partial_requests;
mod quota;
mod reply;
mod reply_summary;
mod request;
mod routes;
mod scan;
mod selection;
mod sending;
mod server;
mod server_description;
mod server_input;
mod stall_timers;
mod stream_slots;
mod tags;
mod topology;
mod transactions;
mod unlisted_members;
mod wait;
mod waiting;
pub mod wire;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU32},
    time::Duration,
};

use seam::{
    ClientTag, Effect, Input, LeaseFailure, Origin, Outbox, PoolId, Protocol, Refusal, Secured, ServerTag, Sessions,
};

use self::{
    cleanup_tasks::CleanupTasks,
    cursors::Cursors,
    held_memory::HeldMemory,
    server_description::{ServerDescription, ServerType},
    stall_timers::StallTimers,
    stream_slots::StreamSlots,
    topology::{CheckRequest, HelloReceived, Topology},
    transactions::Transactions,
    unlisted_members::UnlistedMembers,
};
pub use self::{
    client::Client,
    directory::{Directory, ServerLogin, Welcome},
    login::{HandshakeStep, ServerHandshake},
    server::Server,
};
pub use scram::KeyCache;
/// What is stored of a user's password.
pub use scram::{Verifier, Verifiers};
/// The default of [`Directory::local_threshold`]: that of drivers and of mongos.
pub use selection::DEFAULT_LOCAL_THRESHOLD as LOCAL_THRESHOLD;

pub(crate) type Clients<'s> = dyn Sessions<ClientTag, Client> + 's;
pub(crate) type Servers<'s> = dyn Sessions<ServerTag, Server> + 's;

pub struct MongoDb {
    directory: Arc<dyn Directory>,
    topology: Mutex<Topology>,
    cursors: Cursors,
    transactions: Transactions,
    stream_slots: StreamSlots,
    cleanup_tasks: CleanupTasks,
    stall_timers: StallTimers,
    unlisted: UnlistedMembers,
    /// The `connectionId` of the client that connected last.
    last_number: AtomicU32,
    held_memory: HeldMemory,
    /// The `serviceId` that drivers of load-balanced deployments are told.
    service: [u8; 12],
    keys: scram::KeyCache,
    /// Servers whose SCRAM keys are derived in parts.
    derivations: scram::DerivationQueue<(ServerTag, u64)>,
    mock: scram::Mock,
}

impl MongoDb {
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
            stream_slots: StreamSlots::default(),
            cleanup_tasks: CleanupTasks::default(),
            stall_timers: StallTimers::default(),
            unlisted: UnlistedMembers::default(),
            last_number: AtomicU32::new(1),
            held_memory: HeldMemory::default(),
            service,
            keys: scram::KeyCache::default(),
            derivations: scram::DerivationQueue::default(),
            mock: scram::Mock::new(secret),
        }
    }

    fn topology(&self) -> MutexGuard<'_, Topology> {
        self.topology.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A host has sent a `hello` reply.
    fn learn(&self, host: usize, description: ServerDescription, heard: HelloReceived, out: &mut Outbox) {
        if topology::is_other_set(&description, self.directory.replica_set().as_ref()) {
            return;
        }
        let names_members = description.server_type == ServerType::Primary;
        {
            let mut topology = self.topology();
            if !topology.is_configured(host) {
                // A reload may have added the host, of which the topology hears only with the next heartbeat.
                topology.retain_only(self.directory.hosts(), out);
            }
            topology.learn(host, description, heard, out);
        }
        if names_members {
            self.report_unlisted_members();
        }
    }
}

impl Protocol for MongoDb {
    type Client = Client;
    type Server = Server;

    fn on_tick(&self, now: Duration, out: &mut Outbox) {
        let beats = {
            let mut topology = self.topology();
            let beats = topology.is_check_due(now);
            if beats {
                topology.retain_only(self.directory.hosts(), out);
                topology.set_local_threshold(self.directory.local_threshold());
            }
            topology.on_tick(now, out);
            beats
        };
        if beats {
            self.cleanup_tasks.retain_only(|pool| self.directory.is_configured(pool));
        }
        for (pool, count) in self.cleanup_tasks.on_tick(now) {
            self.directory.note_expired_cleanup(pool, count);
        }
        for pool in self.cleanup_tasks.take_returned() {
            out.push(Effect::ResetOne { pool });
        }
        self.derive_next(now, out);
        for (client, key) in self.stall_timers.on_tick(now) {
            topology::post(seam::Peer::Client(client), key, out);
        }
        self.cursors.on_tick(now);
        self.transactions.on_tick(now);
    }

    fn client_start(&self, me: ClientTag, origin: Origin, _: &mut Outbox) -> Client {
        self.welcome(me, origin)
    }

    fn server_start(&self, me: ServerTag, pool: PoolId, out: &mut Outbox) -> Server {
        Server::start(me, pool, self.directory.server_login(pool), out)
    }

    fn client_input(
        &self,
        _: ClientTag,
        client: &mut Client,
        servers: &mut Servers<'_>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        self.on_client_input(client, servers, input, out)
    }

    fn server_input(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut Clients<'_>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        self.on_server_input(me, server, clients, input, out)
    }

    fn granted(&self, _: ClientTag, client: &mut Client, tag: ServerTag, server: &mut Server, out: &mut Outbox) {
        self.on_granted(client, tag, server, out);
    }

    fn lease_failed(&self, _: ClientTag, client: &mut Client, why: LeaseFailure, _arrived: usize, out: &mut Outbox) {
        self.on_lease_failed(client, &why, out);
    }

    fn posted_to_client(&self, _: ClientTag, client: &mut Client, key: u64, _: &[u8], out: &mut Outbox) {
        self.on_post(client, key, out);
    }

    fn posted_to_server(&self, me: ServerTag, server: &mut Server, key: u64, bytes: &[u8], out: &mut Outbox) {
        self.continue_derivation(me, server, key, out);
        self.check_host(me, server, key, CheckRequest::read(bytes), out);
    }

    fn pool_forgotten(&self, pool: PoolId) {
        self.cleanup_tasks.forget(pool);
    }

    fn client_gone(&self, _: ClientTag, client: &mut Client, servers: &mut Servers<'_>, out: &mut Outbox) {
        self.on_client_gone(client, servers, out);
    }

    fn server_gone(&self, me: ServerTag, server: &mut Server, clients: &mut Clients<'_>, out: &mut Outbox) {
        self.on_server_gone(me, server, clients, out);
    }

    fn refuse(&self, _: ClientTag, client: &mut Client, why: Refusal, out: &mut Outbox) {
        self.on_refused(client, &why, out);
    }

    /// Clients leave no state in a connection: cursors and transactions belong to sessions. But the ping behind an
    /// unacknowledged write may be due, or a cleanup task.
    fn reset(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        self.carry_out_next_task(me, server, out);
    }

    fn check(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        server.check(me, out);
    }

    fn retire(&self, _: ServerTag, server: &mut Server, out: &mut Outbox) {
        self.server_retired(server, out);
    }

    fn server_secured(&self, me: ServerTag, server: &mut Server, _: Secured, out: &mut Outbox) {
        server.secured(me, out);
    }
}

#[cfg(test)]
mod tests;
