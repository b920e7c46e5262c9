//! The state of a server's connection, and what every server does whatever its client wants.

use std::{fmt, sync::Arc};

use seam::{ClientTag, Effect, Outbox, Peer, PoolId, ServerTag, Verdict};

use crate::{
    directory::{OnState, PoolMode, ResetPolicy, StatePolicy},
    exchange::Exchange,
    session::{
        catalogue_view::CatalogueView,
        client_id::ClientId,
        connect_query::ConnectQuery,
        dedicated::Dedicated,
        defaults::{self, AfterDefaults, DefaultsQuestion},
        facts::Facts,
        lease::Lease,
        listen::Unlistened,
        own_queries::{OwnQueries, Purpose},
        partial_message::PartialMessage,
        plans::Plans,
        sequences::Sequences,
        server_login::Login,
        server_settings::ServerSettings,
        server_statements::ServerStatements,
        server_unnamed::ServerUnnamed,
        soil::Soil,
        traces::Traces,
    },
    sql::Catalogue,
    wire::{Failure, IDLE, Wire, message::write_cancel, write_query},
};

pub struct Server {
    pub(crate) stage: Stage,
    pub(crate) pool: PoolId,
    pub(crate) mode: PoolMode,
    pub(crate) policy: StatePolicy,
    /// The pool wants servers that take writes.
    pub(crate) for_writes: bool,
    pub(crate) key: CancelKey,
    pub(crate) wire: Wire,
    pub(crate) facts: Facts,
    /// The server has sent this FATAL error and will close.
    pub(crate) fatal: Option<Box<str>>,
    /// The current message, which goes to the client or nowhere.
    pub(crate) partial: PartialMessage,

    // Of its holder.
    pub(crate) lease: Option<Lease>,
    pub(crate) duty: Duty,
    /// What the server owes its holder.
    pub(crate) exchange: Exchange,
    /// Queries of Poolhouse; their answers go to no client.
    pub(crate) work: Option<Box<OwnQueries>>,
    /// Steps were carried out, and no Sync was sent since.
    pub(crate) unsynced: bool,

    /// SQL that runs on a new server, and after everything was discarded.
    pub(crate) connect_query: ConnectQuery,

    // Of what may be left behind in it: `judging`, and `features::cleaning`.
    /// What the texts forwarded since the grant, or the last survey, may have left behind.
    pub(crate) traces: Traces,
    /// What may have been left behind since the last cleaning: it is cleaned for another client.
    pub(crate) soil: Soil,
    /// The client that the server was prepared for last: what is left in it since is of that client.
    pub(crate) held_last: Option<ClientId>,
    pub(crate) catalogue: CatalogueView,

    /// Channels that forwarded texts stop listening to, unless the transaction fails.
    pub(crate) unlistened: Unlistened,

    // Of `features::settings`.
    pub(crate) settings: ServerSettings,

    // Of `features::plans`.
    /// The settings by which the server's plans may have been made.
    pub(crate) plans: Plans,

    pub(crate) sequences: Sequences,

    // Of `features::prepared`.
    pub(crate) statements: ServerStatements,
    pub(crate) unnamed: ServerUnnamed,
}

pub(crate) enum Stage {
    Login(Box<Login>),
    Ready,
    /// The server is ready for the one client that it is made for, or serves that client.
    Dedicated(Box<Dedicated>),
    Closed,
}

/// What a server is kept for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Duty {
    /// The server returns to its pool after each transaction, or with its client in session mode.
    Pooled,
    /// The holder keeps the server beyond transactions: see `features::pins`.
    Pinned,
    /// The server listens for all clients of its pool. Their requests come with this key.
    Hub(u64),
}

#[derive(Default)]
pub(crate) struct CancelKey {
    pub(crate) pid: u32,
    pub(crate) secret: Box<[u8]>,
}

/// Without the secret, which must reach no log.
impl fmt::Debug for CancelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelKey").field("pid", &self.pid).finish_non_exhaustive()
    }
}

impl Server {
    pub(crate) fn new(pool: PoolId, login: Login, catalogue: Arc<Catalogue>) -> Self {
        let (mode, policy, for_writes) = (login.how.mode, login.how.state, login.how.target.is_for_writes());
        let (connect_query, trusted) = (login.how.connect_query.clone(), login.how.trusted_functions.clone());
        Self {
            stage: Stage::Login(Box::new(login)),
            pool,
            mode,
            for_writes,
            lease: None,
            duty: Duty::Pooled,
            exchange: Exchange::new(),
            work: None,
            partial: PartialMessage::default(),
            unnamed: ServerUnnamed::default(),
            held_last: None,
            statements: ServerStatements::default(),
            policy,
            traces: Traces::default(),
            unlistened: Unlistened::default(),
            sequences: Sequences::default(),
            soil: Soil::default(),
            catalogue: CatalogueView::new(catalogue, trusted),
            unsynced: false,
            plans: Plans::default(),
            fatal: None,
            settings: ServerSettings::default(),
            facts: Facts::default(),
            key: CancelKey::default(),
            connect_query: ConnectQuery::new(connect_query),
            wire: Wire::Clear,
        }
    }

    #[inline]
    pub(crate) fn begin_lease(&mut self, client: ClientTag) {
        self.lease = Some(Lease::new(client));
        self.catalogue.begin_lease();
        self.statements.begin_lease();
        self.unnamed.begin_lease();
    }

    #[inline]
    pub(crate) fn holder(&self) -> Option<ClientTag> {
        self.lease.as_ref().map(|lease| lease.holder)
    }

    #[inline]
    pub(crate) fn lease(&self) -> &Lease {
        self.lease.as_ref().expect("a client holds the server")
    }

    #[inline]
    pub(crate) fn lease_mut(&mut self) -> &mut Lease {
        self.lease.as_mut().expect("a client holds the server")
    }

    pub(crate) fn stays_out_of_pool(&self) -> bool {
        self.duty != Duty::Pooled
    }

    /// The key of requests of listening clients, if the server is a hub.
    #[inline]
    pub(crate) fn hub_key(&self) -> Option<u64> {
        match self.duty {
            Duty::Hub(key) => Some(key),
            Duty::Pooled | Duty::Pinned => None,
        }
    }

    /// A part of a message has been forwarded, and the client waits for the rest.
    pub(crate) fn owes_client(&self) -> bool {
        self.partial.is_awaited()
    }

    /// Messages of the server are for a client.
    pub(crate) fn serves_client(&self) -> bool {
        self.lease.is_some() && self.work.is_none()
    }

    pub(crate) fn note_fatal(&mut self, body: &[u8]) {
        let failure = Failure::read(body);
        if failure.fatal {
            self.fatal = Some(failure.text().into());
        }
    }

    /// The server is ready and answers no query of Poolhouse.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.work.is_none()
            && self.exchange.is_settled()
            && self.exchange.status() == IDLE
            && matches!(self.stage, Stage::Ready)
    }
}

impl Server {
    /// Sends queries, each of which a ReadyForQuery answers.
    pub(crate) fn begin_queries(&mut self, me: ServerTag, purpose: Purpose, queries: &[&[u8]], out: &mut Outbox) {
        let write = |to: &mut Vec<u8>| queries.iter().for_each(|sql| write_query(to, sql));
        let text = if purpose.may_be_repeated() { queries.join(&b';').into() } else { Box::default() };
        self.begin_messages(me, purpose, queries.len() as u8, write, out);
        if let Some(work) = &mut self.work {
            work.text = text;
        }
    }

    /// A time-out of the client, or a late cancel request, has ended a query of Poolhouse: it is repeated in a
    /// transaction without statement_timeout.
    pub(crate) fn repeat_own_queries(&mut self, me: ServerTag, work: OwnQueries, out: &mut Outbox) {
        let guarded = [b"BEGIN;SET LOCAL statement_timeout = 0;", &work.text[..], b";COMMIT"].concat();
        // The ROLLBACK is for a BEGIN or SET that was too slow itself.
        self.begin_queries(me, work.purpose, &[&guarded, b"ROLLBACK"], out);
        if let Some(again) = &mut self.work {
            (again.text, again.tries, again.cancelled) = (work.text, work.tries + 1, work.cancelled);
        }
    }

    /// Sends messages that `pending` ReadyForQuery answer.
    pub(crate) fn begin_messages(
        &mut self,
        me: ServerTag,
        purpose: Purpose,
        pending: u8,
        write: impl FnOnce(&mut Vec<u8>),
        out: &mut Outbox,
    ) {
        if matches!(self.stage, Stage::Closed) {
            // It has asked to be closed since it was given back.
            return;
        }
        assert!(self.work.is_none(), "a server is at work for one purpose at a time");
        assert!(matches!(self.stage, Stage::Ready), "only a ready server is put to work");
        out.insert(Peer::Server(me), write);
        self.unnamed.owner = None;
        self.work = Some(Box::new(OwnQueries {
            purpose,
            pending,
            answered: false,
            failure: None,
            cancelled: false,
            text: Box::default(),
            tries: 0,
        }));
    }
}

impl Server {
    /// What clients have left behind so far no longer matters.
    pub(crate) fn forget_soil(&mut self) {
        self.soil = Soil::default();
        self.traces.forget_cleaned();
        self.sequences.clear_owner();
    }

    /// Gives the server back to its pool, perhaps after a reading of its database's catalogue.
    pub(crate) fn give_back(&mut self, me: ServerTag, verdict: Verdict, out: &mut Outbox) {
        let usable = verdict != Verdict::Discard && matches!(self.stage, Stage::Ready) && self.work.is_none();
        let at_rest = usable && self.exchange.status() == IDLE && self.exchange.is_settled();
        let mark = out.effects.len();
        out.push(Effect::Retain { server: me, briefly: true });
        let asked = at_rest
            && if verdict == Verdict::Reset || self.settings.is_explained() {
                self.ask_catalogue(me, Some(verdict), out)
            } else {
                self.ask_defaults(me, AfterDefaults::Release(verdict), out);
                true
            };
        if !asked {
            out.effects.truncate(mark);
            out.push(Effect::Release { server: me, verdict });
        }
    }

    /// Asks which reported values are the session's defaults now.
    #[cold]
    pub(crate) fn ask_defaults(&mut self, me: ServerTag, then: AfterDefaults, out: &mut Outbox) {
        let sql = defaults::write(self.settings.current());
        self.begin_queries(me, Purpose::Defaults(Box::new(DefaultsQuestion::new(then))), &[&sql], out);
    }

    /// The server may be used, unless its defaults must be asked for first.
    pub(crate) fn become_ready(&mut self, me: ServerTag, out: &mut Outbox) {
        if self.settings.is_explained() {
            self.settings.settle_doubt();
            out.push(Effect::Ready { server: me });
        } else {
            self.ask_defaults(me, AfterDefaults::Ready, out);
        }
    }

    /// A server that was kept for an answer returns to its pool, unless its defaults must be asked for first.
    pub(crate) fn release_kept(&mut self, me: ServerTag, verdict: Verdict, out: &mut Outbox) {
        if verdict == Verdict::Reset || self.settings.is_explained() {
            self.note_soil_at_release();
            out.push(Effect::Release { server: me, verdict: self.effective_verdict(verdict) });
        } else {
            self.ask_defaults(me, AfterDefaults::Release(verdict), out);
        }
    }

    /// What functions may do to sessions matters to this pool.
    pub(crate) fn watches_catalogue(&self) -> bool {
        self.policy.reset != ResetPolicy::Never && self.policy.on_state != OnState::Allow
    }

    /// Asks what the database could do to sessions, if that is due. True if it was asked.
    pub(crate) fn ask_catalogue(&mut self, me: ServerTag, verdict: Option<Verdict>, out: &mut Outbox) -> bool {
        if !self.watches_catalogue() {
            return false;
        }
        let Some(reading) = self.catalogue.next_reading() else { return false };
        let sql = reading.question(self.facts.version().major);
        self.begin_queries(me, Purpose::Catalogue(Box::new(reading), verdict), &[&sql, b"ROLLBACK"], out);
        true
    }
}

pub(crate) fn cancel(tag: ServerTag, server: &Server, out: &mut Outbox) {
    if server.key.secret.is_empty() {
        return;
    }
    let start = out.inserted.len();
    write_cancel(&mut out.inserted, server.key.pid, &server.key.secret);
    let bytes = start..out.inserted.len();
    let upgrade = server.wire.upgrade(out);
    out.push(Effect::SideConnection { server: tag, bytes, upgrade });
}
