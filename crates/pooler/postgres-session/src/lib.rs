//! The PostgreSQL wire protocol as a poolable session: bytes in, bytes and verdicts out. It knows no socket, no clock
//! and no configuration; who may log in is asked of a [`Directory`].
//!
//! Its rooms, from the bottom up; each may use those before it:
//!
//! - `wire`: the bytes.
//! - `sql`: what is read in texts of SQL, and written in it.
//! - `directory`: what the sessions ask of the configuration.
//! - `exchange`: what a server still owes, and to which request.
//! - `session`: what is known of each connection, and of all of them.
//! - `login`: clients log in to Poolhouse, and Poolhouse to servers.
//! - `features`: what is more than forwarding, such as prepared statements, settings, LISTEN.
//! - `relay`: messages on their way between a client and its server. It calls the features.
//!
//! `handshake` logs clients in that serve themselves, such as the load generator, and `messages` is for what they send
//! then.
#![forbid(unsafe_code)]

mod directory;
mod exchange;
mod features;
mod handshake;
mod login;
mod random;
mod relay;
mod session;
mod sql;
mod wire;

/// Messages and errors in bytes, for clients of a server.
pub mod messages {
    pub use crate::wire::{
        error::Failure,
        message::{HEADER, Header, LARGE_LIMIT, back, front, take_text, take_u16, take_value, write, write_text},
    };
}

use seam::{
    ClientTag, CloseReason, Input, LeaseFailure, Origin, Outbox, PoolId, Protocol, Refusal, Secured, ServerTag,
    SessionDescription, Sessions, TlsFailure,
};

pub use seam::Encryption;
pub use session::client::Client;
pub use wire::cancel_key::MAX_NODE;

pub use directory::{
    Ask, CancelDealtWith, CheckOutcome, CheckVerdict, Directory, ForeignCancel, ListenerRules, LoginAttempt,
    LoginCheck, LoginQuestion, Look, OnState, PoolMode, Proof, Rejection, ResetPolicy, Route, ServerLogin,
    StartRequest, StatePolicy, StoredPassword, Target, Unknown,
};
pub use handshake::{Fault, LoggedIn, ServerHandshake, SharedLogin, Step};
pub use session::server::Server;
pub use session::shared::{Memory, Postgres};
pub use session::statements::PREFIX as STATEMENT_PREFIX;
pub use session::wording::Wording;
pub use wire::encryption::{Binding, ServerEncryption, Tls};
pub use wire::md5::{is_md5_hash, md5_hash};

use session::{
    client::{Phase, awaits_client},
    link::{Link, ServerSide},
    own_queries::Purpose,
    server::Stage,
    wait_notices::is_about_waiting,
};

impl Protocol for Postgres {
    type Client = Client;
    type Server = Server;

    fn on_tick(&self, now: std::time::Duration, out: &mut Outbox) {
        let now_ms = now.as_millis() as u64;
        self.catalogues.on_tick(now_ms);
        self.parameters.on_tick(now_ms);
        self.hubs.on_tick(now_ms, out);
        self.refresh_rules(now_ms);
        self.post_wait_notices(now_ms, out);
        self.derive_next(now, out);
        self.post_verdicts(out);
        self.post_handed_on(out);
    }

    fn client_start(&self, _me: ClientTag, origin: Origin, _out: &mut Outbox) -> Client {
        Client::new(origin, self.wording)
    }

    fn server_start(&self, me: ServerTag, pool: PoolId, out: &mut Outbox) -> Server {
        self.new_server(me, pool, out)
    }

    fn server_start_fallback(&self, me: ServerTag, pool: PoolId, out: &mut Outbox) -> Server {
        let mut server = self.new_server(me, pool, out);
        server.accept_any();
        server
    }

    fn client_input(
        &self,
        me: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        match client.phase {
            Phase::Ready | Phase::Refused(_) => self.relay_client(me, client, servers, input, 0, out),
            Phase::Login(_) => {
                let at = self.take_login_input(me, client, input, out);
                if matches!(client.phase, Phase::Ready) {
                    self.relay_client(me, client, servers, input, at, out)
                } else {
                    at
                }
            }
            Phase::Dedicated => self.relay_dedicated_client(me, client, servers, input, out),
            Phase::Waiting | Phase::ServerAtWork | Phase::Subscribing => 0,
            Phase::Closed => input.bytes.len(),
        }
    }

    fn server_input(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        match server.stage {
            Stage::Ready => self.relay_server(me, server, clients, input, 0, out),
            Stage::Login(_) => {
                let at = self.take_server_login_input(me, server, input, out);
                match server.stage {
                    Stage::Ready => self.relay_server(me, server, clients, input, at, out),
                    Stage::Dedicated(_) => self.relay_dedicated_server(me, server, clients, input, at, out),
                    Stage::Login(_) | Stage::Closed => at,
                }
            }
            Stage::Dedicated(_) => self.relay_dedicated_server(me, server, clients, input, 0, out),
            Stage::Closed => input.bytes.len(),
        }
    }

    fn granted(&self, me: ClientTag, client: &mut Client, tag: ServerTag, server: &mut Server, out: &mut Outbox) {
        assert!(client.lease.is_none() && server.lease.is_none(), "a lease is exclusive");
        assert!(!matches!(server.stage, Stage::Login(_)), "only a ready server is granted");
        client.lease = Some(tag);
        client.withheld_ready = None;
        server.begin_lease(me);
        let closed = matches!(server.stage, Stage::Closed);
        assert!(closed || (server.work.is_none() && server.exchange.is_settled()), "a granted server owes nothing");
        let link = &mut Link { client_tag: me, client, server_tag: tag, server, out };
        if matches!(link.server.stage, Stage::Dedicated(_)) {
            return self.dedicated_granted(link);
        }
        match link.client.phase {
            // It asked to be closed after it was given back: `server_gone` follows.
            Phase::Login(_) if closed => {}
            Phase::Waiting if closed => link.client.phase = Phase::ServerAtWork,
            Phase::Login(_) => self.learn_parameters(link),
            Phase::Waiting => {
                link.client.phase = Phase::Ready;
                self.end_wait_notice(link.client);
                self.prepare_for(link);
            }
            // It was sent away, or cancelled, while the grant was on its way.
            Phase::Ready | Phase::Refused(_) | Phase::Closed => link.release(seam::Verdict::Clean),
            Phase::ServerAtWork | Phase::Subscribing | Phase::Dedicated => {
                unreachable!("a client that is being served asks for no server")
            }
        }
    }

    fn lease_failed(&self, me: ClientTag, client: &mut Client, why: LeaseFailure, arrived: usize, out: &mut Outbox) {
        self.lease_denied(me, client, why, arrived, out);
    }

    fn posted_to_client(&self, me: ClientTag, client: &mut Client, key: u64, bytes: &[u8], out: &mut Outbox) {
        if is_about_waiting(key) {
            self.tell_waiting(me, client, key, out);
        } else if !self.take_verdict(me, client, key, bytes, out) && !self.take_handed_on(me, client, key, out) {
            self.take_post(me, client, key, bytes, out);
        }
    }

    fn posted_to_server(&self, me: ServerTag, server: &mut Server, key: u64, _bytes: &[u8], out: &mut Outbox) {
        if server.hub_key() == Some(key) {
            self.drive_hub(me, server, out);
        } else {
            self.go_on_deriving(me, server, key, out);
        }
    }

    fn pool_forgotten(&self, pool: PoolId) {
        self.parameters.forget(pool);
        self.pins.forget(pool);
        self.second_tries.forget(pool);
    }

    fn client_gone(
        &self,
        me: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        out: &mut Outbox,
    ) {
        self.client_lost(me, client, servers, out);
    }

    fn server_gone(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        out: &mut Outbox,
    ) {
        self.server_lost(&mut ServerSide { server_tag: me, server, clients, out });
    }

    fn refuse(&self, me: ClientTag, client: &mut Client, why: Refusal, out: &mut Outbox) {
        self.turn_away(me, client, why, out);
    }

    fn request_release(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        self.hub_outdated(me, server, out);
    }

    fn reset(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        self.reset_server(me, server, out);
    }

    fn check(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        server.begin_queries(me, Purpose::Check, &[b""], out);
    }

    fn retire(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        if matches!(server.stage, Stage::Ready | Stage::Dedicated(_)) {
            out.insert(seam::Peer::Server(me), |to| wire::message::write(to, wire::message::front::TERMINATE, |_| {}));
        }
        server.stage = Stage::Closed;
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
        self.cancel_client(me, client, servers, secret, waiting, out);
    }

    fn client_secured(&self, me: ClientTag, client: &mut Client, secured: Secured, out: &mut Outbox) {
        self.login_secured(me, client, secured, out);
    }

    fn server_secured(&self, me: ServerTag, server: &mut Server, secured: Secured, out: &mut Outbox) {
        self.server_login_secured(me, server, secured, out);
    }

    fn server_tls_failed(&self, server: &mut Server, failure: TlsFailure) -> CloseReason {
        self.server_handshake_failed(server, failure)
    }

    fn awaits_client(&self, client: &Client, server: &Server) -> bool {
        awaits_client(client, server)
    }

    fn describe_client(&self, client: &Client) -> SessionDescription {
        let settings = client.settings.as_ref().map(|settings| settings.current());
        SessionDescription {
            application_name: settings.map(|settings| settings.application_name()).unwrap_or_default(),
            prepared_statements: client.named.as_ref().map_or(0, |named| named.count()) as u64,
            replication: None,
        }
    }

    fn describe_server(&self, server: &Server) -> SessionDescription {
        SessionDescription {
            application_name: server.settings.current().application_name(),
            prepared_statements: server.statements.ours().map_or(0, |ours| ours.count()) as u64,
            replication: None,
        }
    }

    fn backend(&self, server: &Server) -> Option<u32> {
        (!server.key.secret.is_empty()).then_some(server.key.pid)
    }
}
