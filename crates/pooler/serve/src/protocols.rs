//! All protocols of the process as one [`Protocol`]: a client speaks the protocol of its listener, and a server that of
//! its pool. Each call goes to the protocol of the session.

mod sessions_of;

use std::{sync::Arc, time::Duration};

use mongodb_session::MongoDb;
use postgres_session::Postgres;
use redis_session::Redis;
use seam::{
    ClientRules, ClientTag, CloseReason, Input, LeaseFailure, Origin, Outbox, PoolId, Protocol, Refusal, Secured,
    ServerTag, SessionDescription, Sessions, SurveyedClient, TlsFailure,
};
use upstream::Kind;

use self::sessions_of::SessionsOf;
use crate::live_pools::LivePools;

pub struct Protocols {
    postgres: Postgres,
    redis: Redis,
    mongodb: MongoDb,
    listeners: Vec<Kind>,
    pools: Arc<LivePools>,
}

/// A client's session. Sessions larger than PostgreSQL's are boxed, so that they do not enlarge all others.
pub enum Client {
    Postgres(postgres_session::Client),
    Redis(Box<redis_session::Client>),
    MongoDb(Box<mongodb_session::Client>),
}

#[expect(clippy::large_enum_variant, reason = "servers are few, and a box costs an indirection for each message")]
pub enum Server {
    Postgres(postgres_session::Server),
    Redis(Box<redis_session::Server>),
    MongoDb(Box<mongodb_session::Server>),
}

const KIND_MISMATCH: &str = "a client's server belongs to a pool of the client's protocol";

/// Calls the protocol of a session.
macro_rules! call {
    ($this:ident, $kind:ident, $session:ident, $protocol:ident => $call:expr) => {
        match $session {
            $kind::Postgres($session) => {
                let $protocol = &$this.postgres;
                $call
            }
            $kind::Redis($session) => {
                let $protocol = &$this.redis;
                $call
            }
            $kind::MongoDb($session) => {
                let $protocol = &$this.mongodb;
                $call
            }
        }
    };
}

impl Protocols {
    /// `listeners` has the kind of each listener.
    pub fn new(
        postgres: Postgres,
        redis: Redis,
        mongodb: MongoDb,
        listeners: Vec<Kind>,
        pools: Arc<LivePools>,
    ) -> Self {
        Self { postgres, redis, mongodb, listeners, pools }
    }

    fn kind_of_listener(&self, listener: u16) -> Kind {
        self.listeners[usize::from(listener)]
    }
}

impl Protocol for Protocols {
    type Client = Client;
    type Server = Server;

    fn client_rules(&self, listener: u16) -> ClientRules {
        match self.kind_of_listener(listener) {
            Kind::Postgres => self.postgres.client_rules(listener),
            Kind::Redis => self.redis.client_rules(listener),
            Kind::MongoDb => self.mongodb.client_rules(listener),
        }
    }

    fn on_tick(&self, now: Duration, out: &mut Outbox) {
        self.postgres.on_tick(now, out);
        self.redis.on_tick(now, out);
        self.mongodb.on_tick(now, out);
    }

    fn client_start(&self, me: ClientTag, origin: Origin, out: &mut Outbox) -> Client {
        match self.kind_of_listener(origin.listener) {
            Kind::Postgres => Client::Postgres(self.postgres.client_start(me, origin, out)),
            Kind::Redis => Client::Redis(Box::new(self.redis.client_start(me, origin, out))),
            Kind::MongoDb => Client::MongoDb(Box::new(self.mongodb.client_start(me, origin, out))),
        }
    }

    fn server_start(&self, me: ServerTag, pool: PoolId, out: &mut Outbox) -> Server {
        match self.pools.kind(pool) {
            Kind::Postgres => Server::Postgres(self.postgres.server_start(me, pool, out)),
            Kind::Redis => Server::Redis(Box::new(self.redis.server_start(me, pool, out))),
            Kind::MongoDb => Server::MongoDb(Box::new(self.mongodb.server_start(me, pool, out))),
        }
    }

    fn server_start_fallback(&self, me: ServerTag, pool: PoolId, out: &mut Outbox) -> Server {
        match self.pools.kind(pool) {
            Kind::Postgres => Server::Postgres(self.postgres.server_start_fallback(me, pool, out)),
            Kind::Redis => Server::Redis(Box::new(self.redis.server_start_fallback(me, pool, out))),
            Kind::MongoDb => Server::MongoDb(Box::new(self.mongodb.server_start_fallback(me, pool, out))),
        }
    }

    fn server_start_redirected(&self, me: ServerTag, pool: PoolId, out: &mut Outbox) -> Server {
        match self.pools.kind(pool) {
            Kind::Postgres => Server::Postgres(self.postgres.server_start_redirected(me, pool, out)),
            Kind::Redis => Server::Redis(Box::new(self.redis.server_start_redirected(me, pool, out))),
            Kind::MongoDb => Server::MongoDb(Box::new(self.mongodb.server_start_redirected(me, pool, out))),
        }
    }

    #[inline]
    fn client_input(
        &self,
        me: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        call!(self, Client, client, protocol => protocol.client_input(me, client, &mut SessionsOf(servers), input, out))
    }

    fn client_flushed(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) {
        call!(self, Client, client, protocol => protocol.client_flushed(me, client, out));
    }

    #[inline]
    fn server_input(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        call!(self, Server, server, protocol => protocol.server_input(me, server, &mut SessionsOf(clients), input, out))
    }

    #[inline]
    fn granted(&self, me: ClientTag, client: &mut Client, tag: ServerTag, server: &mut Server, out: &mut Outbox) {
        match (client, server) {
            (Client::Postgres(client), Server::Postgres(server)) => {
                self.postgres.granted(me, client, tag, server, out);
            }
            (Client::Redis(client), Server::Redis(server)) => self.redis.granted(me, client, tag, server, out),
            (Client::MongoDb(client), Server::MongoDb(server)) => self.mongodb.granted(me, client, tag, server, out),
            _ => unreachable!("{KIND_MISMATCH}"),
        }
    }

    fn lease_failed(&self, me: ClientTag, client: &mut Client, why: LeaseFailure, arrived: usize, out: &mut Outbox) {
        call!(self, Client, client, protocol => protocol.lease_failed(me, client, why, arrived, out));
    }

    fn request_release(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        call!(self, Server, server, protocol => protocol.request_release(me, server, out));
    }

    fn request_return(
        &self,
        me: ClientTag,
        client: &mut Client,
        tag: ServerTag,
        pool: PoolId,
        out: &mut Outbox,
    ) -> bool {
        call!(self, Client, client, protocol => protocol.request_return(me, client, tag, pool, out))
    }

    fn posted_to_client(&self, me: ClientTag, client: &mut Client, key: u64, bytes: &[u8], out: &mut Outbox) {
        call!(self, Client, client, protocol => protocol.posted_to_client(me, client, key, bytes, out));
    }

    fn posted_to_server(&self, me: ServerTag, server: &mut Server, key: u64, bytes: &[u8], out: &mut Outbox) {
        call!(self, Server, server, protocol => protocol.posted_to_server(me, server, key, bytes, out));
    }

    fn surveyed(
        &self,
        me: ClientTag,
        client: &mut Client,
        seen: &SurveyedClient<'_>,
        question: &[u8],
        answer: &mut Vec<u8>,
        out: &mut Outbox,
    ) {
        // Only Redis' CLIENT commands survey other clients.
        if let Client::Redis(client) = client {
            self.redis.surveyed(me, client, seen, question, answer, out);
        }
    }

    fn survey_done(&self, me: ClientTag, client: &mut Client, answer: &[u8], out: &mut Outbox) {
        call!(self, Client, client, protocol => protocol.survey_done(me, client, answer, out));
    }

    fn client_gone(
        &self,
        me: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        out: &mut Outbox,
    ) {
        call!(self, Client, client, protocol => protocol.client_gone(me, client, &mut SessionsOf(servers), out));
    }

    fn server_gone(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        out: &mut Outbox,
    ) {
        call!(self, Server, server, protocol => protocol.server_gone(me, server, &mut SessionsOf(clients), out));
    }

    fn share_ended(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) {
        call!(self, Client, client, protocol => protocol.share_ended(me, client, out));
    }

    fn refuse(&self, me: ClientTag, client: &mut Client, why: Refusal, out: &mut Outbox) {
        call!(self, Client, client, protocol => protocol.refuse(me, client, why, out));
    }

    fn reset(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        call!(self, Server, server, protocol => protocol.reset(me, server, out));
    }

    fn pool_forgotten(&self, pool: PoolId) {
        // The pool's kind is no longer known.
        self.postgres.pool_forgotten(pool);
        self.redis.pool_forgotten(pool);
        self.mongodb.pool_forgotten(pool);
    }

    fn check(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        call!(self, Server, server, protocol => protocol.check(me, server, out));
    }

    fn retire(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        call!(self, Server, server, protocol => protocol.retire(me, server, out));
    }

    fn cancel(
        &self,
        me: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        secret: u64,
        waiting: bool,
        out: &mut Outbox,
    ) {
        // A guessed cancel key of PostgreSQL may name any client.
        if let Client::Postgres(client) = client {
            self.postgres.cancel(me, client, &mut SessionsOf(servers), secret, waiting, out);
        }
    }

    fn client_secured(&self, me: ClientTag, client: &mut Client, secured: Secured, out: &mut Outbox) {
        call!(self, Client, client, protocol => protocol.client_secured(me, client, secured, out));
    }

    fn server_secured(&self, me: ServerTag, server: &mut Server, secured: Secured, out: &mut Outbox) {
        call!(self, Server, server, protocol => protocol.server_secured(me, server, secured, out));
    }

    fn server_tls_failed(&self, server: &mut Server, failure: TlsFailure) -> CloseReason {
        call!(self, Server, server, protocol => protocol.server_tls_failed(server, failure))
    }

    fn awaits_client(&self, client: &Client, server: &Server) -> bool {
        match (client, server) {
            (Client::Postgres(client), Server::Postgres(server)) => self.postgres.awaits_client(client, server),
            (Client::Redis(client), Server::Redis(server)) => self.redis.awaits_client(client, server),
            (Client::MongoDb(client), Server::MongoDb(server)) => self.mongodb.awaits_client(client, server),
            _ => unreachable!("{KIND_MISMATCH}"),
        }
    }

    fn describe_client(&self, client: &Client) -> SessionDescription {
        call!(self, Client, client, protocol => protocol.describe_client(client))
    }

    fn describe_server(&self, server: &Server) -> SessionDescription {
        call!(self, Server, server, protocol => protocol.describe_server(server))
    }

    fn backend(&self, server: &Server) -> Option<u32> {
        call!(self, Server, server, protocol => protocol.backend(server))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// The names of the methods between this line and the end of its block.
    fn methods(text: &'static str, begin: &str) -> BTreeSet<&'static str> {
        let body = text.split(begin).nth(1).and_then(|rest| rest.split("\n}\n").next()).expect("the block is there");
        body.lines().filter_map(|line| line.strip_prefix("    fn ")?.split(['(', '<']).next()).collect()
    }

    #[test]
    fn every_question_to_a_protocol_is_passed_on() {
        let asked = methods(include_str!("../../seam/src/session.rs"), "pub trait Protocol");
        let passed_on = methods(include_str!("protocols.rs"), "impl Protocol for Protocols");
        assert_eq!(asked, passed_on, "a default that is not passed on is every protocol's");
    }
}
