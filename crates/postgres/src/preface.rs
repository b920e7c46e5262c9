//! What is sent to a server ahead of its new holder's request, in one write with it: the cleaning after the holder before, and the new
//! holder's settings. The answers are swallowed. If any of it fails, nothing of the request has been carried out.
//!
//! The preface is a transaction. Its BEGIN comes by the extended protocol and without a Sync: if that fails, PostgreSQL discards all that follows,
//! up to a Sync. The rest of it is one Query that ends with COMMIT: if that fails, it leaves an aborted transaction behind, in which nothing
//! is carried out but what ends transactions, and that waits for the outcome. So one request goes ahead of the outcome, up to its Sync, or a single
//! Query, and no more; the input stays with the driver until the outcome is known, and then counts as taken, or is handed over again for
//! another server.

use std::sync::Arc;

use protocol::{Blame, ClientTag, Effect, Outbox, ServerTag, Sessions, Verdict};

use crate::{
    Postgres,
    cleaning::{self, Soil},
    client::{Client, Phase},
    ending::CANCELLED,
    error::{Failure, Report, Severity},
    message::{Header, front, take_text, write, write_query},
    named::write_named_parse,
    parameters::Settings,
    requests::Arrived,
    scan::scan,
    sequences,
    server::{Server, Stage},
    suspects::{Findings, Suspects},
    work::Purpose,
};

/// Servers that are tried before a client is told that its settings are refused.
const MAX_TRIES: u8 = 3;

/// What is under way ahead of a request.
pub(crate) struct Preface {
    /// The settings that the server will have.
    pub(crate) settings: Arc<Settings>,
    /// It is cleaned.
    cleaned: bool,
    /// The client's unnamed statement when it began: the request may have changed that.
    unnamed: Option<Box<[u8]>>,
}

/// What a text may do that goes ahead: nothing for which more than forwarding is done.
const MAY_GO_AHEAD: Suspects = Suspects::SEQUENCE.and(Suspects::HIDDEN).and(Suspects::DDL).and(Suspects::TEMPORARY);

impl Postgres {
    /// Brings a server that was just granted to its holder's settings, and cleans it first if somebody else may have left something behind.
    pub(crate) fn prepare_for(
        &self,
        me: ClientTag,
        client: &mut Client,
        tag: ServerTag,
        server: &mut Server,
        out: &mut Outbox,
    ) {
        let want = client.settings.clone().expect("a client that is logged in has settings");
        // Whoever only logs in, or leaves before it is served, has not been prepared for, and leaves what it found.
        let same_holder = server.held_last.replace((me, client.secret)) == Some((me, client.secret));
        let cleans = !server.soil.is_clean() && !same_holder;
        let forgets = sequences::at_grant(me, client, server);
        if !cleans && !forgets && Arc::ptr_eq(&want, &server.settings) {
            return;
        }
        let mut sql = Vec::new();
        if cleans {
            // What is added from now on is of the request that goes ahead.
            let statements = std::mem::take(&mut server.soil).has(Soil::ALL);
            cleaning::write(&mut sql, statements, &server.own, &want);
            if statements {
                server.prepared = None;
            }
        } else {
            if forgets {
                sql.extend_from_slice(sequences::FORGET);
            }
            server.settings.write_change(&want, &mut sql);
            if sql.is_empty() {
                server.settings = want;
                return;
            }
        }
        sql.extend_from_slice(b"COMMIT");
        let preface = Preface { settings: want, cleaned: cleans, unnamed: client.unnamed.clone() };
        let write_all = |to: &mut Vec<u8>| {
            write_named_parse(to, b"", &[cleaning::BEGIN, b"\0\0\0"].concat());
            write(to, front::BIND, |to| to.extend_from_slice(&[0; 8]));
            write(to, front::EXECUTE, |to| to.extend_from_slice(&[0; 5]));
            write_query(to, &sql);
        };
        server.begin_with(tag, Purpose::Preface(Box::new(preface)), 1, write_all, out);
    }

    /// All of it went well: the answers that follow are the client's.
    pub(crate) fn prefaced(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        (preface, cancelled): (Preface, bool),
        out: &mut Outbox,
    ) {
        if preface.cleaned {
            let since = server.soil;
            self.was_cleaned(server);
            server.soil = since;
        }
        server.settings = preface.settings;
        let tag = server.holder.expect("it was done for a holder");
        let client = clients.get(tag).expect("the holder of a server has a session");
        client.tries = 0;
        if cancelled {
            if client.ahead == 0 {
                client.phase = Phase::Waiting;
                client.decline(tag, &CANCELLED, out);
                return client.release(tag, me, server, Verdict::Clean, out);
            }
            crate::ending::cancel(me, server, out);
        }
        out.push(Effect::Wake { client: tag });
    }

    /// It failed, and nothing that was sent behind it is carried out: the client's request goes to another server.
    pub(crate) fn preface_failed(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        failure: Failure,
        out: &mut Outbox,
    ) {
        let work = server.work.take().expect("the server is at work for us");
        let Purpose::Preface(preface) = work.purpose else { unreachable!("it was asked for a preface") };
        let tag = server.holder.expect("it was done for a holder");
        let client = clients.get(tag).expect("the holder of a server has a session");
        server.exchange.abandon();
        crate::named::settle_discarded(client, server);
        client.unnamed = preface.unnamed;
        (client.ahead, client.ahead_ended, client.awaits_answers) = (0, false, false);
        server.stage = Stage::Closed;
        client.tries += 1;
        let hopeless = !preface.cleaned && failure.is_permanent();
        if (hopeless || client.tries >= MAX_TRIES) && !matches!(client.phase, Phase::Closed) {
            let report = Report {
                severity: Severity::Fatal,
                code: &failure.code,
                message: &failure.message,
                hint: &failure.hint,
            };
            client.fail(tag, &report, Blame::Client, out);
        }
        client.release(tag, me, server, Verdict::Discard, out);
        if !matches!(client.phase, Phase::Closed) {
            out.push(Effect::Wake { client: tag });
        }
    }
}

impl Server {
    /// What is to be sent ahead of its holder's request has not been answered yet.
    #[inline]
    pub(crate) fn is_prefaced(&self) -> bool {
        self.work.as_ref().is_some_and(|work| matches!(work.purpose, Purpose::Preface(_)))
    }
}

impl Client {
    /// Whether a message may be sent ahead of the outcome of a preface.
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
                match (name, &self.unnamed, &self.named) {
                    (b"", Some(parse), _) => self.text_may_go_ahead(server, &parse[crate::message::HEADER + 1..]),
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
            let own = self.settings.as_ref().and_then(|settings| settings.reported.get(name));
            own.is_some() && own == server.settings.reported.get(name)
        };
        // How they are read is ruled by what the server has now.
        let read = (!findings.backslash || same(b"standard_conforming_strings"))
            && (!findings.wide || same(b"client_encoding"));
        let mut further = findings.suspects;
        further.remove(MAY_GO_AHEAD);
        read && further == Suspects::NONE && !findings.exits
    }
}

/// Whether a message ends what may go ahead.
pub(crate) fn ends_request(header: Header) -> bool {
    matches!(header.kind, front::QUERY | front::FUNCTION_CALL | front::SYNC)
}
