//! A worker: one thread, one reactor, the clients that live on it and the servers they hold.
//!
//! The loop takes completions and messages one at a time, lets the protocol turn them into effects and executes those.
//! What an effect sets off for somebody else (a grant, a failure, a close) is put into `work` and done when the effect
//! at hand is finished, so that nothing recurses.
//!
//! All of it is one state machine. Its files are in groups:
//!
//! | group | files | what they do |
//! |-|-|-|
//! | loop | this one, [`turns`], [`inspect`] | hand out completions, mail and work; answer operators |
//! | expiry | [`upkeep`], [`evicting`], [`unused_pools`] | whatever happens because time passes; clients and pools that make room |
//! | | [`unread`] | clients that hold a server and do not read |
//! | effects | [`effects`] | execute what sessions wish |
//! | relay | [`clients`], [`servers`] | take bytes, hand them to sessions, and listen again |
//! | | [`held`], [`prelude`] | input that no session has consumed; a preface that waits for the request behind it |
//! | | [`secure`], [`delays`] | TLS; logins from where passwords are guessed |
//! | | [`standing`], [`lines`] | what clients are counted as, where they stand in line, and their names for logs |
//! | | [`diary`] | what logs are told of clients that come and go, and of databases that do |
//! | | [`newcomers`], [`entrance`] | clients that wait for a place; clients that have not logged in, and give way to others |
//! | | [`tenancy`] | clients that have logged in, and wait for a place with their database or user |
//! | | [`posts`], [`surveys`] | what sessions leave for each other, and ask each other |
//! | lease | [`leases`], [`dials`], [`attempts`] | check-out and check-in; connections in the making, host by host |
//! | | [`asking_back`] | servers that clients keep for long, where there are too few for others |
//! | share | [`sharing`], [`gathering`] | servers that clients share; the wait for more requests |
//! | | [`stalls`], [`silence`], [`relief`] | clients that do not read; servers that do not answer |
//! | side | [`sides`] | cancel requests |
//! | ends | [`leaving`], [`partings`], [`ending`], [`farewells`], [`defects`] | clients that go, servers that end, sessions that panic |
//! | pools | [`pools`], [`calls`], [`lease`] | ask pools under their locks, find servers, call sessions |
//!
//! Who calls whom:
//!
//! - The loop calls all, and nobody calls the loop. Only the loop calls expiry, which calls all others.
//! - Whoever has called a session hands what it wishes to effects, which calls relay, lease, share, side and ends.
//! - Relay asks for no server and gives none back: lease does both, on account of an effect. It tells share and side of
//!   bytes that came or left, because shared servers and cancel requests hold input back, and ends of connections that
//!   broke.
//! - Lease calls relay and ends, and of share only [`offer`](Worker::offer): somebody waits, so an unused shared server
//!   is given back.
//! - Share is to lease like one client that holds a server. It calls lease, relay and ends.
//! - Side calls relay, lease and ends, and asks share whether input is held back.
//! - Ends calls relay, lease and share. Each of these may have something that ends.
//! - Pools calls none of these.
//!
//! What a pool decides, for a client (lease) or for clients that share (share), comes back as [`Work`], and is told
//! apart here.

mod accepting;
mod asking_back;
mod attempts;
mod calls;
mod cancel_request;
mod clients;
mod counters;
mod defects;
mod dials;
mod diary;
mod effects;
mod ending;
mod entrance;
mod evicting;
mod farewells;
mod held;
mod ids;
mod inspect;
mod lease;
mod leases;
mod leaving;
mod life;
mod login_delays;
mod newcomers;
mod outboxes;
mod partings;
mod pools;
mod posts;
mod prelude;
mod secure;
mod server_deadlines;
mod servers;
mod share;
mod sharing;
mod shutdown;
mod sides;
mod standing;
mod surveys;
mod tenant_queue;
mod timeout_queues;
mod turns;
mod unread;
mod unused_pools;
mod upkeep;
mod usage;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use pool::{CheckOutFailed, Grant, Home, ServerId, Time, WaiterId};
use seam::{CloseReason, Peer, PoolId, Protocol, Refusal};
use slab::Slab;

pub(crate) use self::turns::{Sleep, TICK};
use self::{
    accepting::Accepting, clients::ClientConn, counters::Counters, dials::Dial, farewells::Farewell, ids::Waiter,
    leaving::Lingering, login_delays::LoginDelays, outboxes::Outboxes, pools::Pools, server_deadlines::ServerDeadlines,
    servers::ServerConn, sharing::Sharing, shutdown::Shutdown, sides::Side, tenant_queue::TenantQueue,
    timeout_queues::TimeoutQueues, unused_pools::UnusedPools,
};
use crate::{
    host::Host,
    mailbox::{Asker, Command, Message, Post, Survey},
    pace::Pace,
    reactor::{Completion, Owner, Reactor},
    shared::Shared,
    shared_pool::SharedPool,
};

pub(crate) struct Worker<P: Protocol, R: Reactor> {
    number: u8,
    /// The same as in `shared`, which is one step further away.
    host: Arc<Host>,
    shared: Arc<Shared<P, R>>,
    reactor: R,
    now: Time,
    clients: Slab<ClientConn<P::Client>>,
    servers: Slab<ServerConn<P::Server>>,
    dials: Slab<Dial>,
    sides: Slab<Side>,
    /// Servers' connections that have been ended here, and not yet by the database.
    farewells: Slab<Farewell>,
    /// The client that asked for the cancel at hand, until a side connection is opened for it.
    asker: Option<Asker>,
    sharing: Sharing,
    server_deadlines: ServerDeadlines,
    /// Clients that hold a server and do not read.
    unread: unread::AllUnread,
    pools: Pools,
    unused_pools: UnusedPools,
    accepting: Accepting,
    /// Clients that wait for a place.
    newcomers: newcomers::Newcomers<R::Socket>,
    tenant_queue: TenantQueue,
    queues: TimeoutQueues,
    login_delays: LoginDelays,
    lingering: Lingering,
    partings: partings::Partings<R>,
    /// Clients whose sessions are to be told that all has left that was sent to them.
    sent: Vec<(u32, u32)>,
    mail: VecDeque<Message<P, R>>,
    work: VecDeque<Work>,
    outboxes: Outboxes,
    /// What a server is sent with its new holder's request.
    prelude: prelude::Prelude,
    /// Servers that are not listened to because their sessions post too much.
    posters: Vec<u32>,
    /// A connection that goes on in TLS as soon as the call at hand is done.
    upgrading: Option<Peer>,
    next_serial: u32,
    next_tick: Time,
    /// When idle clients are looked through, if pools have an idle time of their own.
    next_idle_look: Time,
    counters: Counters,
    shutdown: Shutdown,
    paces: Paces,
}

/// How often each kind of event may be logged.
#[derive(Default)]
struct Paces {
    slow_wait: Pace,
    asked_back: Pace,
    pinned: Pace,
    pin_refused: Pace,
    no_server: Pace,
    sent_away: Pace,
    auth_failed: Pace,
    lost: Pace,
    crowded: Pace,
    full: Pace,
    looks_away: Pace,
    client_error: Pace,
    server_lost: Pace,
    accept_failed: Pace,
    defect: Pace,
}

/// Something to do once the effect at hand is finished.
enum Work {
    /// A server that lives here was granted to a client that lives here.
    Granted(PoolId, Grant),
    /// A server that lives here was granted to a client that lives elsewhere.
    Bring(PoolId, Grant),
    /// A server that lives here answers, and may take the place of one that is silent.
    ProbeAnswered {
        server: u32,
        id: ServerId,
    },
    /// A client's held-back input is handed to it again.
    Feed {
        client: u32,
        serial: u32,
    },
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
    /// A session has left something for one that lives here.
    Post(Post),
    /// A session asks those of all clients.
    Survey(Box<Survey>),
    Refuse {
        client: u32,
        serial: u32,
        why: Refusal,
    },
    /// A client that has ended its side may have all its answers.
    Answered {
        client: u32,
        serial: u32,
    },
    /// A client failed to log in.
    LoginFailed {
        client: u32,
        serial: u32,
    },
    /// A session asked to close its client.
    CloseClient {
        client: u32,
        serial: u32,
        reason: CloseReason,
    },
    /// The client's connection has ended.
    ClientGone {
        client: u32,
        serial: u32,
    },
    /// A session asked to close its server, or the server's connection has ended.
    ServerGone {
        server: u32,
        id: ServerId,
        reason: CloseReason,
    },
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// A worker that accepts clients on these sockets, one for each listener, or on none. They are spread over all
    /// workers from here.
    pub(crate) fn listening(
        number: u8,
        shared: Arc<Shared<P, R>>,
        reactor: R,
        sockets: Vec<R::Socket>,
    ) -> std::io::Result<Self> {
        let mut worker = Self::new(number, shared, reactor);
        worker.listen(sockets)?;
        Ok(worker)
    }

    fn new(number: u8, shared: Arc<Shared<P, R>>, reactor: R) -> Self {
        let host = Arc::clone(&shared.host);
        let listeners = host.listeners.len();
        Self {
            number,
            reactor,
            now: host.clock.now(),
            host,
            clients: Slab::new(),
            servers: Slab::new(),
            dials: Slab::new(),
            sides: Slab::new(),
            farewells: Slab::new(),
            asker: None,
            sharing: Sharing::default(),
            server_deadlines: ServerDeadlines::default(),
            unread: unread::AllUnread::new(),
            pools: Pools::new(Arc::clone(&shared.host), Home(number)),
            unused_pools: UnusedPools::default(),
            accepting: Accepting::default(),
            newcomers: newcomers::Newcomers::new(listeners),
            tenant_queue: TenantQueue::default(),
            queues: TimeoutQueues::new(listeners),
            login_delays: LoginDelays::default(),
            lingering: Lingering::default(),
            partings: partings::Partings::new(),
            sent: Vec::new(),
            mail: VecDeque::new(),
            work: VecDeque::new(),
            outboxes: Outboxes::default(),
            prelude: prelude::Prelude::default(),
            posters: Vec::new(),
            upgrading: None,
            next_serial: 0,
            next_tick: Time(0),
            next_idle_look: Time(0),
            counters: Counters::new(listeners),
            shutdown: Shutdown::None,
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
                    Owner::Side(slot) => self.on_side_received(slot as usize, &buffer[..length]),
                    Owner::Farewell(slot) => self.on_farewell_received(slot as usize, length),
                    Owner::Listener(_) | Owner::Dial(_) => unreachable!("nothing is received there"),
                }
                self.reactor.give_back(buffer);
            }
            Completion::Sent { owner } => match owner {
                Owner::Client(slot) => self.on_client_sent(slot as usize),
                Owner::Server(slot) => self.on_server_sent(slot as usize),
                Owner::Side(_) | Owner::Farewell(_) => {}
                Owner::Listener(_) | Owner::Dial(_) => unreachable!("nothing is sent there"),
            },
            Completion::Accepted { listener, socket } => self.on_accepted(listener, socket),
            Completion::AcceptFailed { listener, error } => self.on_accept_failed(listener, &error),
            Completion::Connected { owner, result } => match owner {
                Owner::Dial(slot) => self.on_dialled(slot as usize, result),
                Owner::Side(slot) => self.on_side_connected(slot as usize, result),
                _ => unreachable!("only dials and side connections connect"),
            },
            Completion::Secured { owner, secured } => match owner {
                Owner::Client(slot) => self.on_client_secured(slot as usize, *secured),
                Owner::Server(slot) => self.on_server_secured(slot as usize, *secured),
                Owner::Side(slot) => self.on_side_secured(slot as usize),
                Owner::Listener(_) | Owner::Dial(_) | Owner::Farewell(_) => unreachable!("these speak in the clear"),
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
            Owner::Side(slot) => self.on_side_broken(slot as usize),
            Owner::Farewell(slot) => self.end_farewell(slot as usize),
            Owner::Listener(_) | Owner::Dial(_) => unreachable!("these report in their own completions"),
        }
    }

    fn handle_message(&mut self, message: Message<P, R>) {
        match message {
            Message::Client { socket, listener, admitted } => self.add_client(socket, listener, admitted),
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
            Message::Resolved { question, result, took } => self.on_resolved(question, result, took),
            Message::Cancel { asker, target, secret } => self.on_cancel(asker, target, secret),
            Message::CancelDone(asker) => self.on_cancel_done(asker),
            Message::Post(post) => self.on_post(post),
            Message::Survey(survey) => self.survey(survey),
            Message::SurveyDone(survey) => self.on_survey_done(&survey),
            Message::GiveWay { client, serial, of } => self.give_way(client, serial, of),
            Message::LookAway { client, serial, of } => self.look_away(client, serial, of),
            Message::Command(command) => self.handle_command(command),
        }
    }

    fn handle_command(&mut self, command: Command) {
        match command {
            Command::Act(pool, action) => self.pools.push_action(pool, action),
            Command::Forget(pool) => self.forget_pool(pool),
            Command::Meet(demand) => self.pools.push_demand(demand),
            Command::Clients { which, limit, reply } => {
                let _ = reply.try_send(self.inspect_clients(which, limit));
            }
            Command::Servers { limit, reply } => {
                let _ = reply.try_send(self.inspect_servers(limit));
            }
            Command::Kill { client, reply } => {
                let _ = reply.try_send(self.kill(client));
            }
            Command::Leave => self.leave(),
            Command::Drain => self.drain(),
            Command::Stop => self.stop(),
        }
    }

    /// Does what has been put off until nothing is left.
    fn settle(&mut self) {
        loop {
            if let Some((pool, action)) = self.pools.next_action() {
                self.perform(pool, action);
            } else if let Some(demand) = self.pools.next_demand() {
                self.meet(demand);
            } else if let Some(work) = self.work.pop_front() {
                self.handle_work(work);
            } else if self.prelude.waits() {
                self.send_prelude();
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
            Work::Feed { client, serial } => {
                if self.client_is(client, serial) {
                    self.feed(client as usize);
                }
            }
            Work::LeaseFailed { pool, waiter, reason, waited } => self.on_lease_failed(&pool, waiter, reason, waited),
            Work::PoolGone { pool, waiter } => match waiter.into() {
                Waiter::Client(slot, number) => self.on_client_pool_gone((slot, number)),
                Waiter::Mux(number) => self.on_mux_pool_gone(pool, number),
            },
            Work::Post(post) => self.deliver_post(&post),
            Work::Survey(survey) => self.survey(survey),
            Work::Refuse { client, serial, why } => {
                if self.client_is(client, serial) {
                    self.refuse(client as usize, why);
                }
            }
            Work::Answered { client, serial } => {
                if self.client_is(client, serial) {
                    self.on_answered(client as usize);
                }
            }
            Work::LoginFailed { client, serial } => {
                if self.client_is(client, serial) {
                    self.on_login_failed(client as usize);
                }
            }
            Work::CloseClient { client, serial, reason } => {
                if self.client_is(client, serial) {
                    self.close_client(client as usize, &reason);
                }
            }
            Work::ClientGone { client, serial } => {
                if self.client_is(client, serial) {
                    self.remove_client(client as usize);
                }
            }
            Work::ServerGone { server, id, reason } => {
                if self.servers.get(server as usize).is_some_and(|s| s.id == id) {
                    self.remove_server(server as usize, reason);
                }
            }
        }
    }

    // ---- what a pool has decided, for a client or for those who share ----

    /// A server that lives here was granted to somebody who lives here.
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

    /// There is no server for somebody who lives here.
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
        self.counters.publish(&self.host.board[usize::from(self.number)]);
    }
}
