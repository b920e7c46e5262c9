//! What is sent to a server ahead of its new holder's request, in one write with it: the cleaning after the holder
//! before, and the new holder's settings. The answers are swallowed. If any of it fails, nothing of the request has
//! been carried out.
//!
//! It has one of two forms. As steps (`steps`), of which none is followed by a Sync: if one fails, PostgreSQL discards
//! all that follows, up to the Sync of the request. That costs the database about a third of the other, but PostgreSQL
//! does not say then what parameters it reports, so it is for servers on which these are the same before and after,
//! `is_superuser` among them.
//!
//! Otherwise as a transaction whose BEGIN comes by the extended protocol and without a Sync: if that fails, PostgreSQL
//! discards all that follows, too. The rest of it is one Query that ends with COMMIT: if that fails, it leaves an
//! aborted transaction behind, in which nothing is carried out but what ends transactions, and that waits for the
//! outcome.
//!
//! So one request goes ahead of the outcome, up to its Sync, or a single Query, and no more; the input stays with the
//! driver until the outcome is known, and then counts as taken, or is handed over again for another server.

mod steps;

use std::sync::Arc;

use seam::{Blame, Outbox, Peer, ServerTag, Verdict};

use crate::{
    features::{cleaning, plans, preface::steps::Steps, prepared::named, sequences},
    session::{
        Arrived, Client, ClientId, Link, OwnQueries, Phase, Postgres, Purpose, Server, ServerSide, Soil, Stage, cancel,
        our_statements::CleaningStatements, plans::PlanFate, preface::Preface,
    },
    sql::{Findings, Pairs, Settings, Suspects, is_identity, parameters::write_set, scan::scan},
    wire::{Failure, HEADER, Header, front, message::write, take_text, write_query},
};

/// Servers that may fail to take the settings of a client before the client is told, if another server may take them.
const MAX_TRIES: u8 = 3;

/// Servers that may fail so with a permanent error, which another server may not raise if it comes from past use.
const MAX_REFUSALS: u8 = 2;

/// The parameter that a server refuses to set once its session has used a temporary table.
const TEMP_BUFFERS: &[u8] = b"temp_buffers";

/// What a text that goes ahead may do: nothing that needs more than forwarding.
const MAY_GO_AHEAD: Suspects = Suspects::SEQUENCE
    .union(Suspects::OPAQUE)
    .union(Suspects::DDL)
    .union(Suspects::TEMPORARY)
    .union(Suspects::TEMPORARY_CODE);

impl Postgres {
    /// Gives a server that was just granted the settings of its holder, and cleans it first if another client may have
    /// left something behind.
    pub(crate) fn prepare_for(&self, link: &mut Link<'_>) {
        if self.ask_or_follow_defaults(link) {
            return;
        }
        let want = link.client.settings().current().clone();
        // A client that only logs in, or leaves before it is served, is not prepared for, and leaves what it found.
        let holder = Some(ClientId(link.client_tag, link.client.secret));
        let same_holder = std::mem::replace(&mut link.server.held_last, holder) == holder;
        let cleans = !link.server.soil.is_clean() && !same_holder;
        let forgets = sequences::begin_lease(link.client_tag, link.client, link.server);
        let fresh = !link.server.plans.is_used();
        let plans = link.server.plans.begin_lease(&want, same_holder, link.server.catalogue.shared());
        if plans == PlanFate::ReplaceServer {
            return self.take_another(link);
        }
        let forgets_plans = plans == PlanFate::Discard;
        if !cleans && !forgets && !forgets_plans && Arc::ptr_eq(&want, link.server.settings.current()) {
            return;
        }
        if cleans && let Some(whole) = link.server.cleans_by_steps(&want) {
            return self.clean_by_steps(link, (want, whole, forgets_plans));
        }
        let mut sql = Vec::new();
        if cleans {
            let statements = link.server.soil.contains(Soil::ALL);
            cleaning::write(&mut sql, statements, &want);
            if statements {
                link.server.statements.drop_ours();
            }
            // What is noted from here on is left by requests that go behind the cleaning, perhaps ahead of its outcome.
            // If the cleaning fails, the server is closed.
            link.server.forget_soil();
        } else {
            if forgets {
                sql.extend_from_slice(sequences::DISCARD);
            }
            link.server.settings.current().write_change(&want, &mut sql);
        }
        if forgets_plans {
            sql.extend_from_slice(plans::DISCARD);
            sql.push(b';');
        }
        if sql.is_empty() {
            link.server.settings.apply(&want, &self.parameters);
            return self.tell_reported(link);
        }
        sql.extend_from_slice(b"COMMIT");
        let preface = Preface { fresh, ..Preface::new(want, cleans, 0, link.client.unnamed.parse().cloned()) };
        let write_all = |to: &mut Vec<u8>| {
            Steps::new(to).step(cleaning::BEGIN);
            write_query(to, &sql);
        };
        link.server.begin_messages(link.server_tag, Purpose::Preface(Box::new(preface)), 1, write_all, link.out);
    }

    /// A used server cannot serve this client: it is closed, and the client gets one that is connected for it. At the
    /// end of the queue the client would get a used one time after time.
    fn take_another(&self, link: &mut Link<'_>) {
        link.server.stage = Stage::Closed;
        link.client.wants_unused = true;
        link.release(Verdict::Discard);
        link.wake();
    }

    /// Cleans a server by steps: as a `whole`, or all but the statements that Poolhouse has prepared.
    fn clean_by_steps(&self, link: &mut Link<'_>, (want, whole, forgets_plans): (Arc<Settings>, bool, bool)) {
        if whole {
            link.server.statements.drop_ours();
        }
        let there = link
            .server
            .statements
            .ours_mut()
            .map(|prepared| std::mem::replace(&mut prepared.cleaning, CleaningStatements::There));
        link.server.forget_soil();
        let mut bytes = Vec::new();
        let mut steps = Steps::new(&mut bytes);
        let mut set = want.in_order().peekable();
        let commits = !whole || set.peek().is_some();
        match there {
            Some(copies) => steps.clean(copies == CleaningStatements::There),
            None if commits => steps.step(b"DISCARD ALL"),
            None => steps.last(b"DISCARD ALL"),
        }
        if whole && commits {
            steps.step(cleaning::BEGIN);
        }
        for (name, value) in set {
            let mut sql = Vec::new();
            write_set(&mut sql, name, value);
            steps.step(&sql);
        }
        if forgets_plans && !whole {
            steps.step(plans::DISCARD);
        }
        if commits {
            steps.last(b"COMMIT");
        }
        let preface = Preface::new(want, true, steps.count, link.client.unnamed.parse().cloned());
        link.server.begin_messages(
            link.server_tag,
            Purpose::Preface(Box::new(preface)),
            0,
            |to| to.extend_from_slice(&bytes),
            link.out,
        );
    }

    /// The server does not take the settings of a client that logs in. True if another server is asked: one whose
    /// session has used a temporary table refuses `temp_buffers`.
    pub(crate) fn ask_another_server(&self, link: &mut Link<'_>, extras: &Pairs) -> bool {
        let of_server = extras.get(TEMP_BUFFERS).is_some() && link.server.plans.is_used();
        if !of_server || link.client.tries >= MAX_TRIES || matches!(link.client.phase, Phase::Closed) {
            return false;
        }
        link.client.tries += 1;
        link.server.stage = Stage::Closed;
        link.release(Verdict::Discard);
        link.client.wants_unused = true;
        link.out.push(link.client.take_lease_request(link.client_tag));
        true
    }

    /// One step of a preface has been carried out.
    pub(crate) fn step_answered(&self, side: &mut ServerSide<'_>) {
        let Some(preface) = side.server.preface().filter(|preface| preface.steps > 0) else { return };
        preface.steps -= 1;
        if preface.steps > 0 {
            return;
        }
        let work = side.server.work.take().expect("it is at work for us");
        let Purpose::Preface(preface) = work.purpose else { unreachable!("it was asked for a preface") };
        side.server.unsynced = true;
        self.preface_succeeded(side, (*preface, work.cancelled));
    }

    /// The preface succeeded: the answers that follow are the client's.
    pub(crate) fn preface_succeeded(&self, side: &mut ServerSide<'_>, (preface, cancelled): (Preface, bool)) {
        side.server.settings.apply(&preface.settings, &self.parameters);
        let link = &mut side.link();
        self.tell_reported(link);
        link.client.tries = 0;
        if cancelled {
            if link.client.ahead.bytes() == 0 {
                return link.cancel_request(Verdict::Clean);
            }
            if !preface.cancel_sent {
                cancel(link.server_tag, link.server, link.out);
            }
        }
        link.wake();
    }

    /// The preface failed, and nothing behind it was carried out: the client's request goes to another server.
    pub(crate) fn preface_failed(&self, side: &mut ServerSide<'_>, failure: Failure) {
        let work = side.server.work.take().expect("the server is at work for us");
        let Purpose::Preface(preface) = work.purpose else { unreachable!("it was asked for a preface") };
        let link = &mut side.link();
        link.server.exchange.abandon();
        named::settle_discarded(link.client, link.server);
        *link.client.unnamed.parse_mut() = preface.unnamed;
        link.client.ahead.clear();
        link.client.awaits_answers = false;
        link.server.stage = Stage::Closed;
        if work.cancelled && !matches!(link.client.phase, Phase::Closed) {
            link.client.tries = 0;
            return link.cancel_request(Verdict::Discard);
        }
        link.client.tries += 1;
        link.client.wants_unused = preface.settings.extras.get(TEMP_BUFFERS).is_some();
        let for_good = !preface.cleaned && failure.is_permanent();
        let limit = match () {
            () if preface.fresh && for_good => 1,
            () if for_good => MAX_REFUSALS,
            () => MAX_TRIES,
        };
        if link.client.tries >= limit && !matches!(link.client.phase, Phase::Closed) {
            link.fail(&failure.report(), Blame::Client);
        }
        link.release(Verdict::Discard);
        if !matches!(link.client.phase, Phase::Closed) {
            link.wake();
        }
    }
}

impl Server {
    /// Whether the server can be cleaned by steps for a client with these settings; true: as a whole, statements
    /// included.
    fn cleans_by_steps(&self, want: &Settings) -> Option<bool> {
        if !want.keeps_reported(self.settings.current()) || self.changes_identity(want) {
            return None;
        }
        if !self.soil.contains(Soil::ALL)
            && let Some(prepared) = self.statements.ours().filter(|prepared| !prepared.is_empty())
        {
            return (prepared.cleaning != CleaningStatements::Doubtful).then_some(false);
        }
        // DISCARD ALL does not set a role, and it takes a snapshot, for which a deferrable transaction that only reads
        // would wait.
        let plain = !self.settings.own().extras.iter().any(|(name, _)| is_identity(name));
        let writes = self.settings.reported(b"default_transaction_read_only") == Some(&b"off"[..]);
        (plain && writes && self.facts.version().discards_all_for_good()).then_some(true)
    }

    /// Whether the server reports now, or will with these settings, another acting user than the one it logged in as.
    fn changes_identity(&self, want: &Settings) -> bool {
        !self.facts.has_own_identity() || want.extras.iter().any(|(name, _)| is_identity(name))
    }

    fn preface(&mut self) -> Option<&mut Preface> {
        match &mut self.work.as_mut()?.purpose {
            Purpose::Preface(preface) => Some(preface),
            _ => None,
        }
    }

    /// The client's request waits for the outcome of the preface: PostgreSQL is asked to send it now.
    pub(crate) fn hurry_preface(&mut self, me: ServerTag, out: &mut Outbox) {
        if let Some(preface) = self.preface().filter(|preface| preface.steps > 0 && !preface.hurried) {
            preface.hurried = true;
            out.insert(Peer::Server(me), |to| write(to, front::FLUSH, |_| {}));
        }
    }

    /// A cancel request may mean a request that runs ahead of the outcome of its preface, whose answers would come too
    /// late: it is passed on now. If it hits a step instead, nothing of the request is carried out.
    pub(crate) fn cancel_ahead(&mut self, me: ServerTag, out: &mut Outbox) {
        let Some(preface) = self.preface().filter(|preface| preface.steps > 0 && !preface.hurried) else { return };
        preface.cancel_sent = true;
        cancel(me, self, out);
    }

    fn is_prefaced_by_steps(&self) -> bool {
        let by_steps = |work: &OwnQueries| matches!(&work.purpose, Purpose::Preface(preface) if preface.steps > 0);
        self.work.as_deref().is_some_and(by_steps)
    }

    /// A preface was sent, and its outcome is not known.
    #[inline]
    pub(crate) fn is_prefaced(&self) -> bool {
        self.work.as_ref().is_some_and(|work| matches!(work.purpose, Purpose::Preface(_)))
    }
}

impl Client {
    /// Whether a message may be sent ahead of the outcome of a preface. After a failed step PostgreSQL carries out
    /// nothing.
    pub(crate) fn may_go_ahead(&self, server: &Server, message: &Arrived<'_>) -> bool {
        if !message.is_whole() {
            return false;
        }
        let mut body = message.body();
        match message.header.kind {
            front::QUERY => self.text_may_go_ahead(server, body),
            front::PARSE => take_text(&mut body).is_some() && self.text_may_go_ahead(server, body),
            front::BIND => {
                let (Some(_), Some(name)) = (take_text(&mut body), take_text(&mut body)) else { return true };
                match (name, self.unnamed.parse(), &self.named) {
                    (b"", Some(parse), _) => parse.bytes().is_some_and(|parse| {
                        parse.is_read_whole() && self.text_may_go_ahead(server, &parse[HEADER + 1..])
                    }),
                    (b"", None, _) | (_, _, None) => true,
                    (name, _, Some(named)) => {
                        named.expected(name).is_none_or(|statement| self.findings_may(server, &statement.findings))
                    }
                }
            }
            front::COPY_DATA | front::COPY_DONE | front::COPY_FAIL => false,
            _ => true,
        }
    }

    fn text_may_go_ahead(&self, server: &Server, text: &[u8]) -> bool {
        self.findings_may(server, &scan(text))
    }

    fn findings_may(&self, server: &Server, findings: &Findings) -> bool {
        let same = |name: &[u8]| {
            let own = self.settings().current().reported.get(name);
            own.is_some() && own == server.settings.reported(name)
        };
        // How they are read is ruled by what the server has now.
        let read = (!findings.backslash || same(b"standard_conforming_strings"))
            && (!findings.wide || same(b"client_encoding"));
        let mut further = findings.suspects;
        further.remove(MAY_GO_AHEAD);
        let stops = !findings.exits || server.is_prefaced_by_steps();
        read && further == Suspects::NONE && stops && !server.needs_new_plans_for(findings)
    }
}

/// Whether a ReadyForQuery answers this message: no later one may go ahead of the preface.
pub(crate) fn ends_request(header: Header) -> bool {
    matches!(header.kind, front::QUERY | front::FUNCTION_CALL | front::SYNC)
}
