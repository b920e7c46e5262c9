//! A worker: one thread, one reactor, the clients that live on it and the servers they hold.
//!
//! The loop takes completions and messages one at a time, lets sessions turn them into effects, and executes these.
//! What an effect sets off for another connection (a grant, a failure, a close) becomes [`Work`], which the loop does
//! when the effect at hand is finished, so that nothing recurses.
//!
//! All of it is one state machine, whose state is in parts. Each part is a struct with private fields, in a file that
//! says what may be done to it:
//!
//! | state | file | what it holds |
//! |-|-|-|
//! | [`Pools`] | [`pools`] | the pools the worker uses, where their connections are, and what they want done |
//! | [`ServerConn`], [`ClientConn`] | [`servers`], [`clients`] | the connections, and their sessions |
//! | `Usage`, `Hold`, `Share` | [`usage`], [`share`] | who uses a server |
//! | `Life`, `ReadSide`, `Lease` | [`life`], [`lease`] | how far a client is on its way to its end; its lease |
//! | `Places` | [`places`] | the places that a client takes at its listener, with its database and its user |
//! | [`Sharing`] | [`sharing`] | the clients that share servers, and those that do not read |
//! | [`Dial`] | [`dials`], [`attempts`] | connections in the making, host by host |
//! | [`ClosingServer`], [`ClosingClients`] | [`closing_servers`], [`closing_clients`] | connections that are closing |
//! | [`CancelConnection`] | [`cancel_connections`] | cancel requests on their way |
//! | [`Accepting`], `Newcomers` | [`accepting`], [`newcomers`] | listening sockets; clients that wait for a place |
//! | [`Proxies`] | [`proxies`] | proxies that have not said yet whom they speak for |
//! | [`TenantQueue`] | [`tenant_queue`] | clients that wait for a place with their database or their user |
//! | [`TimeoutQueues`] | [`timeout_queues`] | clients in the order in which time-outs and evictions reach them |
//! | [`LoginDelays`], `LoginDelay` | [`login_delays`] | logins from addresses that guess passwords |
//! | [`ServerDeadlines`], [`Lingering`] | [`server_deadlines`], [`client_end`] | what is due after a while |
//! | [`PoolScan`], `SlowReaders` | [`pool_scan`], [`slow_readers`] | scans that go on from tick to tick |
//! | [`Counters`], [`TrafficCounts`] | [`counters`], [`traffic_counts`] | metrics; what clients ask for |
//! | [`Shutdown`], [`Outboxes`] | [`shutdown`], [`outboxes`] | end; memory |
//!
//! What moves between these parts is methods of [`Worker`], each in the file of what it is about. The other files are:
//!
//! - [`event_loop`]: turns of the loop. [`tick`]: what happens because time passes. [`effects`]: executes effects.
//! - [`leases`]: check-out and check-in. [`return_requests`]: servers that a pool wants back from their clients.
//! - [`client_end`], [`server_end`], [`panics`]: clients that go, servers that end, sessions that panic.
//! - [`calls`]: how sessions are called. [`ids`]: how clients and servers are named. [`input_buffer`]: input that no
//!   session has consumed. [`preface`]: bytes for a server that wait for the request behind them.
//! - [`unauthenticated`], [`eviction`]: clients that make room for others. [`client_states`]: the states of clients.
//! - [`posts`], [`surveys`]: what sessions send to each other. [`tls_upgrade`]: connections that go on in TLS.
//! - [`connection_log`], [`server_log`], [`inspect`]: what logs and operators are told.
//!
//! What a pool decides comes back as [`Work`], for a client (`leases`) or for the mux of clients that share
//! (`sharing`).

mod accepting;
mod attempts;
mod calls;
mod cancel_connections;
mod cancel_request;
mod client_end;
mod client_states;
mod clients;
mod closing_clients;
mod closing_servers;
mod connection_log;
mod counters;
mod departures;
mod dials;
mod effects;
mod event_loop;
mod eviction;
mod ids;
mod input_buffer;
mod inspect;
mod lease;
mod leases;
mod life;
mod login_delays;
mod newcomers;
mod outboxes;
mod panics;
mod places;
mod pool_scan;
mod pools;
mod posts;
mod preface;
mod proxies;
mod return_requests;
mod server_deadlines;
mod server_end;
mod server_log;
mod servers;
mod share;
mod sharing;
mod shutdown;
mod slow_readers;
mod surveys;
mod tenant_queue;
mod tick;
mod timeout_queues;
mod tls_upgrade;
mod traffic_counts;
mod unauthenticated;
mod usage;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use pool::{CheckOutFailed, Grant, Home, ServerId, Time, WaiterId};
use seam::{CloseReason, Peer, PoolId, Protocol, Refusal};
use slab::Slab;

pub(crate) use self::event_loop::{Sleep, TICK};
use self::{
    accepting::Accepting, cancel_connections::CancelConnection, client_end::Lingering, clients::ClientConn,
    closing_servers::ClosingServer, counters::Counters, departures::Departures, dials::Dial, ids::Waiter,
    login_delays::LoginDelays, outboxes::Outboxes, pool_scan::PoolScan, pools::Pools, proxies::Proxies,
    server_deadlines::ServerDeadlines, servers::ServerConn, sharing::Sharing, shutdown::Shutdown,
    slow_readers::SlowReaders, tenant_queue::TenantQueue, timeout_queues::TimeoutQueues, traffic_counts::TrafficCounts,
};
use crate::{
    mailbox::{Asker, ClientKey, Command, Message, Post, Survey},
    pace::Pace,
    process::Process,
    reactor::{Completion, Owner, Reactor},
    shared::Shared,
    shared_pool::SharedPool,
};

pub(crate) struct Worker<P: Protocol, R: Reactor> {
    number: u8,
    /// The same as `shared.process`.
    process: Arc<Process>,
    shared: Arc<Shared<P, R>>,
    reactor: R,
    now: Time,
    clients: Slab<ClientConn<P::Client>>,
    servers: Slab<ServerConn<P::Server>>,
    dials: Slab<Dial>,
    cancel_connections: Slab<CancelConnection>,
    closing_servers: Slab<ClosingServer>,
    proxies: Proxies,
    /// The client that asked for the cancel request at hand, until a connection for the request is opened.
    asker: Option<Asker>,
    sharing: Sharing,
    server_deadlines: ServerDeadlines,
    slow_readers: SlowReaders,
    pools: Pools,
    pool_scan: PoolScan,
    accepting: Accepting,
    newcomers: newcomers::Newcomers<R::Socket>,
    tenant_queue: TenantQueue,
    queues: TimeoutQueues,
    login_delays: LoginDelays,
    lingering: Lingering,
    closing_clients: closing_clients::ClosingClients<R>,
    /// Clients to whom all bytes have left, and whose sessions are to be told.
    flushed_clients: Vec<ClientKey>,
    mail: VecDeque<Message<P, R>>,
    work: VecDeque<Work>,
    outboxes: Outboxes,
    preface: preface::Preface,
    /// Servers that the worker does not receive from, because their sessions post too much.
    posters: Vec<u32>,
    /// A connection that goes on in TLS after the call at hand.
    upgrading: Option<Peer>,
    next_serial: u32,
    next_tick: Time,
    /// When the worker next looks for idle clients of pools, slow readers, silent hosts and outdated servers.
    next_idle_check: Time,
    counters: Counters,
    traffic: TrafficCounts,
    shutdown: Shutdown,
    departures: Option<Departures>,
    paces: Paces,
}

/// How often each kind of event may be logged.
#[derive(Default)]
struct Paces {
    slow_wait: Pace,
    return_requested: Pace,
    pinned: Pace,
    pin_refused: Pace,
    no_server: Pace,
    sent_away: Pace,
    auth_failed: Pace,
    database_lost: Pace,
    displaced: Pace,
    tenant_full: Pace,
    monitoring_ended: Pace,
    client_error: Pace,
    server_lost: Pace,
    accept_failed: Pace,
    panic: Pace,
}

/// Something to do once the effect at hand is finished.
enum Work {
    /// A server that lives here was granted to a client that lives here.
    Granted(PoolId, Grant),
    /// A server that lives here was granted to a client that lives elsewhere.
    Bring(PoolId, Grant),
    /// A server that lives here answers, and may replace one that does not.
    ProbeAnswered {
        server: u32,
        id: ServerId,
    },
    Client(ClientKey, ClientWork),
    LeaseFailed {
        pool: Arc<SharedPool>,
        waiter: WaiterId,
        reason: CheckOutFailed,
        waited: Duration,
    },
    /// The pool that was asked is forgotten.
    PoolGone {
        pool: PoolId,
        waiter: WaiterId,
    },
    /// A session has posted something to one that lives here.
    Post(Post),
    /// A session asks the sessions of all clients.
    Survey(Box<Survey>),
    /// A session asked to close its server, or the server's connection has ended.
    ServerGone {
        server: u32,
        id: ServerId,
        reason: CloseReason,
    },
}

/// Something to do for a client, unless it is gone by then.
enum ClientWork {
    /// The client's buffered input is handed to its session again.
    Feed,
    Refuse(Refusal),
    /// The client has ended its sending side, and may have all its answers.
    Answered,
    LoginFailed,
    /// A session asked to close its client.
    Close(CloseReason),
    /// The client's connection has ended.
    Gone,
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// A worker that accepts clients on these sockets, each with its listener's number, or on none. They are spread
    /// over all workers from here.
    pub(crate) fn listening(
        number: u8,
        shared: Arc<Shared<P, R>>,
        reactor: R,
        sockets: Vec<(u32, R::Socket)>,
    ) -> std::io::Result<Self> {
        let mut worker = Self::new(number, shared, reactor);
        worker.listen(sockets)?;
        Ok(worker)
    }

    fn new(number: u8, shared: Arc<Shared<P, R>>, reactor: R) -> Self {
        let process = Arc::clone(&shared.process);
        let listeners = process.listeners.len();
        Self {
            number,
            reactor,
            now: process.clock.now(),
            process,
            clients: Slab::new(),
            servers: Slab::new(),
            dials: Slab::new(),
            cancel_connections: Slab::new(),
            closing_servers: Slab::new(),
            proxies: Proxies::default(),
            asker: None,
            sharing: Sharing::default(),
            server_deadlines: ServerDeadlines::default(),
            slow_readers: SlowReaders::default(),
            pools: Pools::new(Arc::clone(&shared.process), Home(number)),
            pool_scan: PoolScan::default(),
            accepting: Accepting::default(),
            newcomers: newcomers::Newcomers::new(listeners),
            tenant_queue: TenantQueue::default(),
            queues: TimeoutQueues::new(listeners),
            login_delays: LoginDelays::default(),
            lingering: Lingering::default(),
            closing_clients: closing_clients::ClosingClients::new(),
            flushed_clients: Vec::new(),
            mail: VecDeque::new(),
            work: VecDeque::new(),
            outboxes: Outboxes::default(),
            preface: preface::Preface::default(),
            posters: Vec::new(),
            upgrading: None,
            next_serial: 0,
            next_tick: Time(0),
            next_idle_check: Time(0),
            counters: Counters::new(listeners),
            traffic: TrafficCounts::default(),
            shutdown: Shutdown::None,
            departures: None,
            paces: Paces::default(),
            shared,
        }
    }

    fn handle_completion(&mut self, completion: Completion<R::Socket>) {
        match completion {
            Completion::Received { owner, buffer, length } => {
                match owner {
                    Owner::Client(slot) => self.on_client_received(slot as usize, &buffer, length),
                    Owner::Server(slot) => self.on_server_received(slot as usize, &buffer, length),
                    Owner::Cancel(slot) => self.on_cancel_received(slot as usize, &buffer[..length]),
                    Owner::ClosingServer(slot) => self.on_closing_received(slot as usize, length),
                    Owner::Proxy(slot) => self.on_proxy_received(slot as usize, &buffer[..length]),
                    Owner::Listener(_) | Owner::Dial(_) => unreachable!("nothing is received there"),
                }
                self.reactor.give_back(buffer);
            }
            Completion::Sent { owner } => match owner {
                Owner::Client(slot) => self.on_client_sent(slot as usize),
                Owner::Server(slot) => self.on_server_sent(slot as usize),
                Owner::Cancel(_) | Owner::ClosingServer(_) => {}
                Owner::Listener(_) | Owner::Dial(_) | Owner::Proxy(_) => unreachable!("nothing is sent there"),
            },
            Completion::Accepted { listener, socket } => self.on_accepted(listener, socket),
            Completion::AcceptFailed { listener, error } => self.on_accept_failed(listener, &error),
            Completion::Connected { owner, result } => match owner {
                Owner::Dial(slot) => self.on_dialled(slot as usize, result),
                Owner::Cancel(slot) => self.on_cancel_connected(slot as usize, result),
                _ => unreachable!("only dials and side connections connect"),
            },
            Completion::Secured { owner, secured } => match owner {
                Owner::Client(slot) => self.on_client_secured(slot as usize, *secured),
                Owner::Server(slot) => self.on_server_secured(slot as usize, *secured),
                Owner::Cancel(slot) => self.on_cancel_secured(slot as usize),
                Owner::Listener(_) | Owner::Dial(_) | Owner::ClosingServer(_) | Owner::Proxy(_) => {
                    unreachable!("these speak in the clear")
                }
            },
            Completion::Broken { owner, error } => self.on_broken(owner, &error),
            Completion::HungUp { owner } => {
                if let Owner::Client(slot) = owner {
                    self.on_client_hung_up(slot as usize);
                }
            }
        }
    }

    fn on_broken(&mut self, owner: Owner, error: &std::io::Error) {
        match owner {
            Owner::Client(slot) => self.on_client_broken(slot as usize, error),
            Owner::Server(slot) => self.on_server_broken(slot as usize, error),
            Owner::Cancel(slot) => self.on_cancel_broken(slot as usize),
            Owner::ClosingServer(slot) => self.end_close(slot as usize),
            Owner::Proxy(slot) => self.end_proxy(slot as usize, None),
            Owner::Listener(_) | Owner::Dial(_) => unreachable!("these report in their own completions"),
        }
    }

    fn handle_message(&mut self, message: Message<P, R>) {
        match message {
            Message::Client { accepted, listener, admission } => self.add_client(accepted, listener, admission),
            Message::Server(server, grant) => {
                let pool = Arc::clone(&server.pool);
                match self.take_in(*server) {
                    true => self.on_granted(pool.id, &grant),
                    false => self.on_grant_lost(pool.id, &grant),
                }
            }
            Message::Bring(pool, grant) => self.bring(pool, grant),
            Message::GrantLost(pool, grant) => self.on_grant_lost(pool, &grant),
            Message::Failed { pool, waiter, reason, waited } => {
                self.work.push_back(Work::LeaseFailed { pool, waiter, reason, waited });
            }
            Message::Resolved { lookup, result, took } => self.on_resolved(lookup, result, took),
            Message::Cancel { asker, target } => self.on_cancel(asker, target),
            Message::CancelDone(asker) => self.on_cancel_done(asker),
            Message::Post(post) => self.on_post(post),
            Message::Survey(survey) => self.survey(survey),
            Message::SurveyDone(survey) => self.on_survey_done(&survey),
            Message::Displaced { client, of_its_address } => self.on_displaced(client, of_its_address),
            Message::EndMonitoring { client, of_its_address } => self.end_monitoring(client, of_its_address),
            Message::Command(command) => self.handle_command(command),
        }
    }

    fn handle_command(&mut self, command: Command) {
        match command {
            Command::Act(pool, action) => self.pools.push_action(pool, action),
            Command::Forget(pool) => self.forget_pool(pool),
            Command::Meet(demand) => self.pools.push_demand(demand),
            Command::PublishTraffic { reply } => {
                self.publish_traffic_now();
                let _ = reply.try_send(Vec::new());
            }
            Command::Clients { which, limit, reply } => {
                let _ = reply.try_send(self.inspect_clients(which, limit));
            }
            Command::Servers { limit, reply } => {
                let _ = reply.try_send(self.inspect_servers(limit));
            }
            Command::Kill { client, reply } => {
                let _ = reply.try_send(self.kill(client));
            }
            Command::KillClientsOf(database) => self.kill_clients_of(database.as_ref()),
            Command::Leave => self.leave(),
            Command::DrainOver(over) => self.drain_over(over),
            Command::Drain => self.drain(),
            Command::Stop => self.stop(),
        }
    }

    /// Does all work that has been put off.
    fn settle(&mut self) {
        loop {
            if let Some((pool, action)) = self.pools.next_action() {
                self.perform(pool, action);
            } else if let Some(demand) = self.pools.next_demand() {
                self.meet(demand);
            } else if let Some(work) = self.work.pop_front() {
                self.handle_work(work);
            } else if self.preface.waits() {
                self.send_preface();
            } else {
                return;
            }
        }
    }

    fn handle_work(&mut self, work: Work) {
        match work {
            Work::Granted(pool, grant) => self.on_granted(pool, &grant),
            Work::Bring(pool, grant) => self.bring(pool, grant),
            Work::ProbeAnswered { server, id } => self.on_probe_answered(server as usize, id),
            Work::Client(client, work) => {
                if self.client_is(client) {
                    self.handle_client_work(client.slot as usize, work);
                }
            }
            Work::LeaseFailed { pool, waiter, reason, waited } => self.on_lease_failed(&pool, waiter, reason, waited),
            Work::PoolGone { pool, waiter } => match waiter.into() {
                Waiter::Client(slot, number) => self.on_client_pool_gone((slot, number)),
                Waiter::Mux(number) => self.on_mux_pool_gone(pool, number),
            },
            Work::Post(post) => self.deliver_post(&post),
            Work::Survey(survey) => self.survey(survey),
            Work::ServerGone { server, id, reason } => {
                if self.servers.get(server as usize).is_some_and(|s| s.id == id) {
                    self.remove_server(server as usize, reason);
                }
            }
        }
    }

    fn handle_client_work(&mut self, slot: usize, work: ClientWork) {
        match work {
            ClientWork::Feed => self.feed(slot),
            ClientWork::Refuse(why) => self.refuse(slot, why),
            ClientWork::Answered => self.on_answered(slot),
            ClientWork::LoginFailed => self.on_login_failed(slot),
            ClientWork::Close(reason) => self.close_client(slot, &reason),
            ClientWork::Gone => self.remove_client(slot),
        }
    }

    // ---- what a pool has decided, for a client or for a mux ----

    /// A server that lives here was granted to a waiter of this worker.
    fn on_granted(&mut self, pool: PoolId, grant: &Grant) {
        match grant.waiter.into() {
            Waiter::Client(slot, number) => self.on_client_granted(pool, (slot, number), grant),
            Waiter::Mux(number) => self.on_mux_granted(pool, number, grant),
        }
    }

    /// The server died between the grant and its arrival.
    fn on_grant_lost(&mut self, pool: PoolId, grant: &Grant) {
        match grant.waiter.into() {
            Waiter::Client(slot, number) => self.on_client_grant_lost(pool, (slot, number)),
            Waiter::Mux(number) => self.on_mux_grant_lost(pool, number),
        }
    }

    /// There is no server for a waiter of this worker.
    fn on_lease_failed(&mut self, pool: &Arc<SharedPool>, waiter: WaiterId, reason: CheckOutFailed, waited: Duration) {
        match waiter.into() {
            Waiter::Client(slot, number) => self.on_client_lease_failed(pool, (slot, number), reason, waited),
            Waiter::Mux(number) => self.on_mux_failed(pool, number, reason, waited),
        }
    }

    /// Nothing of a pool is here any more. (A mux that waits for its answer gets that, and goes by itself.)
    fn forget_pool(&mut self, id: PoolId) {
        self.pools.forget(id);
        self.sharing.forget_pool(id);
    }

    fn publish(&mut self) {
        self.counters.publish(&self.process.boards[usize::from(self.number)]);
    }
}
