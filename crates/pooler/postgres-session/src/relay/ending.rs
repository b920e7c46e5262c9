//! Leases that fail and connections that end, on either side and for any reason: what the other side is told, and in
//! which state a server is left behind.

use seam::{
    Blame, ClientTag, CloseReason, Effect, LeaseFailure, LeaseKind, Outage, Outbox, Peer, Refusal, ServerTag, Sessions,
    Verdict,
};

use crate::{
    directory::PoolMode,
    login::{connect_query, lookup::fail_lookup},
    session::{
        Client, ErrorText, Link, Occasion, Phase, Postgres, Purpose, Server, ServerSide, Stage, Wording, cancel,
        refusal::seconds, send_away_from,
    },
    wire::{CANCELLED, IDLE, Report, Severity, code},
};

/// What a client is told that gets no server: code, message and hint. The last value is the side that is to blame.
fn describe_failure(why: LeaseFailure) -> (&'static str, String, String, Blame) {
    match why {
        LeaseFailure::WaitTimeout { waited, shortage } => (
            code::TOO_MANY_CONNECTIONS,
            format!("no server became free within {} ({shortage})", seconds(waited)),
            format!("Make transactions shorter, or {}; `poolhouse doctor` tells which.", shortage.limit.remedy()),
            Blame::Exhausted,
        ),
        LeaseFailure::QueueFull => (
            code::TOO_MANY_CONNECTIONS,
            "too many clients are waiting for a server".to_owned(),
            "Raise max_size or max_waiters.".to_owned(),
            Blame::Exhausted,
        ),
        LeaseFailure::Unavailable { waited, last_error, outage } => (
            code::CANNOT_CONNECT_NOW,
            match &last_error {
                Some(error) => format!("the database is unavailable, waited {}: {error}", seconds(waited)),
                None => format!("the database is unavailable, waited {}", seconds(waited)),
            },
            match last_error {
                Some(error) if error.starts_with(connect_query::FAILED) => {
                    "Correct connect_query of the [[database]].".to_owned()
                }
                _ => outage.remedy().to_owned(),
            },
            Blame::Server,
        ),
        LeaseFailure::UnknownDatabase { said } => (
            code::INVALID_CATALOG_NAME,
            said.map_or_else(|| "the database does not exist".to_owned(), |said| said.to_string()),
            String::new(),
            Blame::Client,
        ),
        // A pool to which a client has logged in is not forgotten.
        LeaseFailure::Closed | LeaseFailure::Forgotten => (
            code::CANNOT_CONNECT_NOW,
            "the pool of this database was closed".to_owned(),
            "Connect again.".to_owned(),
            Blame::Exhausted,
        ),
    }
}

/// The error in the words that clients expect.
fn reword(wording: Wording, why: &LeaseFailure, ours: ErrorText) -> ErrorText {
    let occasion = match why {
        LeaseFailure::Unavailable { last_error: Some(error), outage: Outage::Refused, .. } => {
            Occasion::LoginRefused(error)
        }
        LeaseFailure::WaitTimeout { .. } | LeaseFailure::QueueFull | LeaseFailure::Unavailable { .. } => {
            Occasion::NoServerInTime
        }
        LeaseFailure::Closed | LeaseFailure::Forgotten => Occasion::PoolClosed,
        LeaseFailure::UnknownDatabase { .. } => return ours,
    };
    wording.choose(occasion, ours)
}

impl Postgres {
    /// The client gets no lease. `arrived`: bytes of its input that have arrived.
    pub(crate) fn lease_denied(
        &self,
        me: ClientTag,
        client: &mut Client,
        why: LeaseFailure,
        arrived: usize,
        out: &mut Outbox,
    ) {
        if let (LeaseFailure::Forgotten, Phase::Login(_)) = (&why, &client.phase) {
            return self.route_again(me, client, out);
        }
        self.end_wait_notice(client);
        let said = why.clone();
        let (code, message, hint, blame) = describe_failure(why);
        if let Phase::Login(login) = &client.phase
            && let Some(asked) = login.asked()
        {
            return fail_lookup(me, client, &asked.user, &message, out);
        }
        if let Phase::Login(login) = &client.phase
            && code == code::TOO_MANY_CONNECTIONS
            && let Some(learned) = self.parameters.outcome(client.pool, &login.start.settings, true)
        {
            // It need not be asked for what is not told from memory alone for long.
            self.complete_login(me, client, learned, out);
            return out.push(Effect::Wake { client: me });
        }
        let stays =
            matches!(client.phase, Phase::Waiting) && blame == Blame::Exhausted && code != code::CANNOT_CONNECT_NOW;
        let stays = stays && client.entrance.wording().severity(Severity::Error) == Severity::Error;
        let severity = if stays { Severity::Error } else { Severity::Fatal };
        let ErrorText { code, message, hint } =
            reword(client.entrance.wording(), &said, ErrorText::new(code, message, hint));
        let report = Report { severity, code: &code, message: &message, hint: &hint };
        if stays {
            client.decline(me, &report, out);
            client.phase = Phase::Refused(u32::try_from(arrived).unwrap_or(u32::MAX));
            client.stand(me, seam::Standing::Idle, out);
        } else if !matches!(client.phase, Phase::Closed) {
            client.fail(me, &report, blame, out);
        }
    }

    pub(crate) fn client_lost(
        &self,
        me: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        out: &mut Outbox,
    ) {
        client.phase = Phase::Closed;
        if client.listening.is_some() {
            self.unlisten_all(client, out);
        }
        let Some(tag) = client.lease else { return self.forget_pin(client) };
        let server = servers.get(tag).expect("a leased server has a session");
        if matches!(server.stage, Stage::Dedicated(_)) {
            return self.dedicated_client_lost(&mut Link { client_tag: me, client, server_tag: tag, server, out });
        }
        if server.fatal.is_none() && server.work.as_mut().is_some_and(|work| work.lookup().is_some()) {
            // Its answer is dropped, and it is free then: a client that hangs up before it has logged in costs no
            // connection.
            return Link { client_tag: me, client, server_tag: tag, server, out }.release(Verdict::Reset);
        }
        let whole = !client.owes_server() && server.partial.is_complete() && server.work.is_none();
        let verdict = if !whole || !server.exchange.is_settled() || server.fatal.is_some() {
            // A cancel ends one request, and PostgreSQL goes on with the next: outside of the transaction that the
            // first was to begin, or without its settings. Then it does what it does with a client of its own that has
            // gone: all that has come, in order.
            if server.exchange.is_running() && (server.work.is_some() || server.exchange.is_on_last_request()) {
                cancel(tag, server, out);
            }
            server.stage = Stage::Closed;
            Verdict::Discard
        } else if server.exchange.status() != IDLE || client.mode == PoolMode::Session {
            Verdict::Reset
        } else {
            Verdict::Clean
        };
        self.unpin(client, tag, out);
        Link { client_tag: me, client, server_tag: tag, server, out }.release(verdict);
    }

    pub(crate) fn server_lost(&self, side: &mut ServerSide<'_>) {
        match std::mem::replace(&mut side.server.stage, Stage::Closed) {
            stage @ Stage::Login(_) => {
                side.server.stage = stage;
                return self.server_login_lost(side.server_tag, side.server, side.out);
            }
            Stage::Ready | Stage::Dedicated(_) | Stage::Closed => {}
        }
        let work = side.server.work.take();
        let ours = work.is_some();
        if side.server.hub_key().is_some() {
            let why = side.server.fatal.take().unwrap_or_else(|| "it closed the connection unexpectedly".into());
            return self.hub_lost(side.server, &why, side.out);
        }
        let Some(tag) = side.server.lease.take().map(|lease| lease.holder) else { return };
        let client = side.clients.get(tag).expect("the holder of a server has a session");
        client.lease = None;
        let prefaced = matches!(&work, Some(work) if matches!(work.purpose, Purpose::Preface(_)));
        let untouched = (matches!(client.phase, Phase::ServerAtWork) || (prefaced && client.ahead.bytes() == 0))
            && client.pin.is_none()
            && side.server.exchange.status() == IDLE
            && work.is_none_or(|work| work.precedes_request());
        self.forget_pin(client);
        // A part of a message has reached the client: only the end of the connection can tell it.
        client.mid_message = side.server.owes_client();
        let message = match &side.server.fatal {
            Some(text) => format!("the server closed the connection: {text}"),
            None => "the server closed the connection unexpectedly".to_owned(),
        };
        if matches!(client.phase, Phase::Closed) {
            // It has been told to go.
        } else if untouched && !client.retried {
            // Nothing of its request has been sent, and nothing of the client was there: it asks again.
            client.retried = true;
            client.phase = Phase::Ready;
            side.out.push(Effect::Wake { client: tag });
        } else if matches!(client.phase, Phase::Login(_)) && !client.retried {
            // It only asked for its parameters, which another server knows, too.
            client.retried = true;
            side.out.push(Effect::Lease { client: tag, pool: client.pool, kind: LeaseKind::Exclusive });
        } else if let Phase::Login(login) = &client.phase
            && let Some(asked) = login.asked()
        {
            fail_lookup(tag, client, &asked.user, &message, side.out);
        } else if side.server.fatal.is_some() && !ours {
            // It has told the client itself.
            client.close(tag, CloseReason::Error(Blame::Server, message), side.out);
        } else {
            let hint = "The outcome of a transaction under way is unknown. Connect again.";
            let ours = ErrorText::new(code::CONNECTION_FAILURE, message, hint);
            client.fail_for(tag, Occasion::ServerLost, ours, Blame::Server, side.out);
        }
    }

    /// A client must go. It is told now, or when its start-up message has come.
    pub(crate) fn turn_away(&self, me: ClientTag, client: &mut Client, why: Refusal, out: &mut Outbox) {
        let later = matches!(why, Refusal::TooManyClients { .. } | Refusal::Throttled { .. } | Refusal::ShuttingDown);
        let why = match &mut client.phase {
            Phase::Login(login) if later => login.defer(why),
            _ => Some(why),
        };
        if let Some(why) = why {
            let pool = client.pool;
            send_away_from(|| self.directory.database_name(pool), me, client, why, out);
        }
    }

    pub(crate) fn cancel_client(
        &self,
        me: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        secret: u64,
        waiting: bool,
        out: &mut Outbox,
    ) {
        let may_cancel = client.settings.is_some() || matches!(client.phase, Phase::Dedicated);
        if !may_cancel || !scram::equal(&client.secret.to_be_bytes(), &secret.to_be_bytes()) {
            return;
        }
        if let Some(tag) = client.lease {
            let server = servers.get(tag).expect("a leased server has a session");
            if let Stage::Dedicated(dedicated) = &server.stage
                && dedicated.is_busy()
            {
                cancel(tag, server, out);
            }
            match &mut server.work {
                Some(work) => {
                    let prefaced = matches!(work.purpose, Purpose::Preface(_));
                    work.cancelled = prefaced || matches!(client.phase, Phase::ServerAtWork);
                    if client.ahead.has_ended() {
                        server.cancel_ahead(tag, out);
                    }
                }
                None if server.exchange.is_running() => cancel(tag, server, out),
                None => {}
            }
        } else if waiting && matches!(client.phase, Phase::Waiting) {
            out.push(Effect::Withdraw { client: me });
            client.decline(me, &CANCELLED, out);
            client.stand(me, seam::Standing::Idle, out);
        }
    }

    /// The server broke the protocol: it is closed, and so is its holder.
    pub(crate) fn protocol_broken(&self, side: &mut ServerSide<'_>, what: &str) {
        side.server.stage = Stage::Closed;
        side.server.work = None;
        let text = format!("the server broke the protocol: {what}");
        if side.server.lease.is_none() {
            let reason = CloseReason::Error(Blame::Server, text);
            return side.out.push(Effect::Close { peer: Peer::Server(side.server_tag), reason });
        }
        let mut link = side.link();
        // The server's last message was complete.
        link.client.mid_message = false;
        let hint = "The outcome of a transaction under way is unknown.";
        let report = Report { severity: Severity::Fatal, code: code::CONNECTION_FAILURE, message: &text, hint };
        if !matches!(link.client.phase, Phase::Closed) {
            link.fail(&report, Blame::Server);
        }
        link.release(Verdict::Discard);
    }
}
