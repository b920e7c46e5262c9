//! Sessions of Redis: what a client may send, what Poolhouse answers itself, and what goes to a server.
//!
//! A client's settings (user, database, version of the protocol, name) are kept with the client, and hold on any server
//! that executes its commands. A server serves a client from its first unanswered command to its last reply; longer
//! while the client is in a transaction or watches keys; and until the client goes once a command such as MONITOR has
//! changed the connection itself. One server holds the subscriptions of all clients of a pool (`hub`).
//!
//! This crate opens no connection and knows no configuration: [`Directory`] answers who may log in, and which pool
//! serves a client.
#![forbid(unsafe_code)]

mod blocking_waits;
mod client;
mod command;
mod directory;
mod glob;
mod hello;
mod hub;
mod login;
mod refusal;
mod replies;
mod resp;
mod rest;
mod sentinel;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http_sansio::MemoryBudget;
use seam::{
    ClientRules, ClientTag, Input, LeaseFailure, Origin, Outbox, PoolId, Protocol, Refusal, Secured, ServerTag,
    Sessions, SurveyedClient,
};

use self::sentinel::Start;
pub use self::{
    client::Client,
    directory::{Directory, OverRate, Sentinel, ServerLogin, Welcome},
    resp::{Version, split},
    rest::rules::{Access, Fingerprint, Rules},
    server::Server,
};
/// Commands, replies and logins in bytes, for a client that asks a Redis on its own account.
pub mod wire {
    pub use crate::{
        login::{is_permanent, without_secret, write_auth, write_select},
        refusal::{of_failure, of_refusal},
        resp::{ReplyScanner, command, head, text},
    };
}

/// The rules of a listener whose clients speak HTTP.
pub use http_sansio::{DEFAULT_MAX_REQUEST, Rules as HttpRules};

/// Bytes that may wait for a client that does not read. Redis has the same limit for subscribers.
const MAX_UNREAD: usize = 32 << 20;

pub(crate) type Clients<'s> = dyn Sessions<ClientTag, Client> + 's;
pub(crate) type Servers<'s> = dyn Sessions<ServerTag, Server> + 's;

pub struct Redis {
    directory: Arc<dyn Directory>,
    /// The reply of CLIENT ID to the next client.
    next_id: AtomicU64,
    /// The number of HTTP requests that may have written something.
    writes: AtomicU64,
    /// By listener: whether its clients speak HTTP, and the memory that those which do hold together.
    memory_budgets: Vec<(bool, Arc<MemoryBudget>)>,
    hubs: hub::Hubs,
    /// Clients of HTTP that hear messages.
    streams: client::StreamClients,
    blocking_waits: blocking_waits::BlockingWaits,
    /// How many of the next commands get a server of their own. Behind a write, a client's pause of all clients (CLIENT
    /// PAUSE) would hold up the commands of the clients that share a server.
    unshared_commands: AtomicU32,
}

/// The memory that the clients of an HTTP listener hold: bodies, requests, and answers and messages that are not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListenerMemory {
    pub listener: u16,
    /// Without the first 64 KB of each connection.
    pub bytes: u64,
    pub max_bytes: u64,
}

/// How many commands after CLIENT PAUSE do not share a server: Poolhouse does not know when a pause ends.
const UNSHARED_COMMANDS_AFTER_PAUSE: u32 = 10_000;

impl Redis {
    /// Sessions that ask `directory` who may log in.
    pub fn new(directory: Arc<dyn Directory>) -> Self {
        Self {
            directory,
            next_id: AtomicU64::new(1),
            writes: AtomicU64::new(0),
            memory_budgets: Vec::new(),
            hubs: hub::Hubs::default(),
            streams: client::StreamClients::default(),
            blocking_waits: blocking_waits::BlockingWaits::default(),
            unshared_commands: AtomicU32::new(0),
        }
    }

    pub fn with_http(mut self, listeners: &[bool]) -> Self {
        let count = listeners.iter().filter(|speaks| **speaks).count();
        self.memory_budgets =
            listeners.iter().map(|speaks| (*speaks, Arc::new(MemoryBudget::for_one_of(count)))).collect();
        self
    }

    /// Returns a function that tells what clients of HTTP hold.
    pub fn listener_memory(&self) -> impl Fn() -> Vec<ListenerMemory> + Send + Sync + 'static {
        let budgets = self.memory_budgets.clone();
        move || {
            let of = |(listener, (_, budget)): (usize, &(bool, Arc<MemoryBudget>))| ListenerMemory {
                listener: listener as u16,
                bytes: budget.held() as u64,
                max_bytes: budget.most() as u64,
            };
            budgets.iter().enumerate().filter(|(_, (speaks, _))| *speaks).map(of).collect()
        }
    }

    fn memory_budget(&self, listener: u16) -> Arc<MemoryBudget> {
        Arc::clone(&self.memory_budgets[usize::from(listener)].1)
    }

    /// Whether the next command must not share a server, because of a pause. Counts it.
    fn takes_unshared_command(&self) -> bool {
        let left = self.unshared_commands.load(Relaxed);
        if left > 0 {
            self.unshared_commands.store(left - 1, Relaxed);
        }
        left > 0
    }

    fn note_pause(&self, pauses: bool) {
        self.unshared_commands.store(if pauses { UNSHARED_COMMANDS_AFTER_PAUSE } else { 0 }, Relaxed);
    }

    fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Relaxed)
    }
}

impl Protocol for Redis {
    type Client = Client;
    type Server = Server;

    fn client_rules(&self, listener: u16) -> ClientRules {
        let speaks_http = self.memory_budgets.get(usize::from(listener)).is_some_and(|(speaks, _)| *speaks);
        ClientRules {
            upstream_keeps_replies: true,
            answers_half_closed: true,
            session_keeps_replies: speaks_http,
            max_unread: MAX_UNREAD,
        }
    }

    fn on_tick(&self, _now: Duration, out: &mut Outbox) {
        self.announce_configuration(out);
    }

    fn client_start(&self, me: ClientTag, origin: Origin, out: &mut Outbox) -> Client {
        self.welcome(me, origin, out)
    }

    fn server_start(&self, me: ServerTag, pool: PoolId, out: &mut Outbox) -> Server {
        Server::start(me, Start::new(self.directory.server_login(pool)), out)
    }

    fn server_start_redirected(&self, me: ServerTag, pool: PoolId, out: &mut Outbox) -> Server {
        Server::start(me, Start::at_master(self.directory.server_login(pool)), out)
    }

    fn client_input(
        &self,
        _: ClientTag,
        client: &mut Client,
        servers: &mut Servers<'_>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        self.read_input(client, servers, input, out)
    }

    fn client_flushed(&self, _: ClientTag, client: &mut Client, out: &mut Outbox) {
        client.on_flushed(out);
    }

    fn server_input(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut Clients<'_>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        if server.is_hub() {
            self.read_hub_input(me, server, input, out)
        } else {
            self.read_replies(me, server, clients, input, out)
        }
    }

    fn granted(&self, _: ClientTag, client: &mut Client, tag: ServerTag, server: &mut Server, out: &mut Outbox) {
        self.on_granted(client, tag, server, out);
    }

    fn lease_failed(&self, _: ClientTag, client: &mut Client, why: LeaseFailure, _arrived: usize, out: &mut Outbox) {
        let words = refusal::of_failure(&why);
        if !self.on_no_hub_server(client, &words, out) && !self.continue_wait(client, &why, out) {
            client.on_lease_failed(&words, out);
        }
    }

    fn posted_to_client(&self, _: ClientTag, client: &mut Client, key: u64, bytes: &[u8], out: &mut Outbox) {
        self.on_post(client, key, bytes, out);
    }

    fn posted_to_server(&self, me: ServerTag, server: &mut Server, key: u64, _bytes: &[u8], out: &mut Outbox) {
        self.on_hub_notified(me, server, key, out);
    }

    fn surveyed(
        &self,
        _: ClientTag,
        client: &mut Client,
        seen: &SurveyedClient<'_>,
        question: &[u8],
        answer: &mut Vec<u8>,
        out: &mut Outbox,
    ) {
        self.answer_survey(client, seen, question, answer, out);
    }

    fn survey_done(&self, _: ClientTag, client: &mut Client, answer: &[u8], out: &mut Outbox) {
        self.end_survey(client, answer, out);
    }

    fn client_gone(&self, _: ClientTag, client: &mut Client, servers: &mut Servers<'_>, out: &mut Outbox) {
        self.leave_subscriptions(client, out);
        self.forget_streams(client);
        self.blocking_waits.end(client.id);
        client.on_gone(servers, out);
    }

    fn request_release(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        self.hub_outdated(me, server, out);
    }

    fn server_gone(&self, _me: ServerTag, server: &mut Server, clients: &mut Clients<'_>, out: &mut Outbox) {
        if !self.hub_lost(server, out) {
            self.server_lost(server, clients, out);
        }
    }

    fn refuse(&self, _: ClientTag, client: &mut Client, why: Refusal, out: &mut Outbox) {
        client.on_refused(&why, out);
    }

    fn share_ended(&self, _: ClientTag, client: &mut Client, out: &mut Outbox) {
        client.on_server_gone(out);
    }

    fn request_return(
        &self,
        _: ClientTag,
        client: &mut Client,
        tag: ServerTag,
        pool: PoolId,
        out: &mut Outbox,
    ) -> bool {
        self.on_return_requested(client, tag, pool, out)
    }

    fn reset(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        server.reset(me, out);
    }

    fn check(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        server.check(me, out);
    }

    fn server_secured(&self, me: ServerTag, server: &mut Server, _secured: Secured, out: &mut Outbox) {
        server.secured(me, out);
    }

    fn awaits_client(&self, client: &Client, _server: &Server) -> bool {
        client.leaves_command_open()
    }

    fn backend(&self, server: &Server) -> Option<u32> {
        server.backend()
    }
}
