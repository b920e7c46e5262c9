//! CLIENT LIST, INFO, KILL and UNBLOCK. They are about Poolhouse's clients, not about the server connections. Poolhouse
//! does not know which users Redis would let see other users, so a client sees and closes connections of its own user
//! only.

use std::io::Write;

use seam::{Blame, CloseReason, Effect, LeaseKind, Outbox, Peer, Standing, SurveyedClient};

use super::{
    Client, Outcome,
    lease::{Held, LeaseRequest, Purpose},
};
use crate::{
    Redis,
    command::AboutClients,
    resp::{self, Limits, Request},
};

/// A client's answer to CLIENT KILL: it closes.
const CLOSED: u8 = b'x';

/// The same of the client that sent CLIENT KILL.
const CLOSES_ITSELF: u8 = b'!';

/// A client's answer to CLIENT UNBLOCK: it waited for a server, and waits no more.
const STOPPED_WAITING: u8 = b'w';

/// Clients that a command may name. Each of all clients compares itself with these.
const MAX_IDS: usize = 256;

/// A command about other clients that is being executed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) enum Survey {
    #[default]
    None,
    Asked(AboutClients),
    /// All clients are asked, for CLIENT UNBLOCK.
    AskedToUnblock {
        with_error: bool,
    },
    /// CLIENT UNBLOCK has ended a wait for a server in Poolhouse, of which Redis does not know. Its reply is to come.
    Unblocked,
}

impl Survey {
    pub(super) fn is_asking(self) -> bool {
        matches!(self, Self::Asked(_) | Self::AskedToUnblock { .. })
    }
}

#[derive(Default, Debug, PartialEq, Eq)]
struct Filter<'a> {
    /// Empty: all ids.
    ids: Vec<i64>,
    pubsub: Option<bool>,
    /// TYPE replica or master, of which Poolhouse has no clients.
    matches_none: bool,
    address: Option<&'a [u8]>,
    listener: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    /// MAXAGE in seconds: clients that are at least as old.
    min_age: Option<i64>,
    /// The client that sent the command is left out.
    skips_me: bool,
}

impl Redis {
    pub(super) fn client_list_command(
        &self,
        client: &mut Client,
        what: AboutClients,
        arguments: &[&[u8]],
        out: &mut Outbox,
    ) -> Outcome {
        let given = &arguments[2..];
        let id = client.id.to_string();
        // INFO is a list of the client itself.
        let own = [&b"ID"[..], id.as_bytes()];
        let (words, what) = match (what, given) {
            (AboutClients::Info, []) => (&own[..], what),
            (AboutClients::Info, _) => return client.wrong_arity("client|info", out),
            (AboutClients::Kill, []) => return client.wrong_arity("client|kill", out),
            (AboutClients::Kill, [_]) => (given, AboutClients::KillAddress),
            (AboutClients::Unblock, [_] | [_, _]) => (given, what),
            (AboutClients::Unblock, _) => return client.wrong_arity("client|unblock", out),
            _ => (given, what),
        };
        match Filter::read(what, words) {
            Err(error) => return client.write_error(&error, out),
            Ok(Filter { ids, .. }) if ids.len() > MAX_IDS => {
                return client.write_error(&format!("ERR Poolhouse: name {MAX_IDS} clients at most"), out);
            }
            // No other user exists for it.
            Ok(Filter { user: Some(user), .. }) if user != client.identity.user_name().as_bytes() => {
                return client.write_error(&format!("ERR No such user '{}'", user.escape_ascii()), out);
            }
            Ok(_) => {}
        }
        if what == AboutClients::Unblock {
            return self.ask_to_unblock(client, given, out);
        }
        client.ask_all(Survey::Asked(what), what, words, out);
        out.push(Effect::Standing { client: client.tag, standing: Standing::Active });
        Outcome::Consumed
    }

    pub(crate) fn answer_survey(
        &self,
        client: &mut Client,
        seen: &SurveyedClient<'_>,
        question: &[u8],
        answer: &mut Vec<u8>,
        out: &mut Outbox,
    ) {
        let Ok(Request::Command(_, words)) = resp::read(question, &Limits::AUTHENTICATED) else {
            unreachable!("`ask_all` has written the question")
        };
        let words: Vec<&[u8]> = words.collect();
        let [asker, user, what, words @ ..] = words.as_slice() else {
            unreachable!("`ask_all` has written the question")
        };
        let is_visible = client.identity.is_authenticated() && client.http.is_none() && !client.closing;
        if !is_visible || client.identity.user().as_bytes() != *user {
            return;
        }
        let what = AboutClients::of(what);
        let Ok(filter) = Filter::read(what, words) else { unreachable!("it was read before it was asked") };
        let itself = client.id.to_string().as_bytes() == *asker;
        if !filter.matches(client, seen, itself) {
            return;
        }
        match what {
            AboutClients::List | AboutClients::Info => client.describe(seen, itself.then_some(what), answer),
            AboutClients::Unblock if client.waits_to_block() => {
                self.unblock_waiting(client, asks_for_error(words), out);
                answer.push(STOPPED_WAITING);
            }
            AboutClients::Unblock => {
                let connection = client.lease.held_mut().and_then(Held::unblock);
                answer.extend(connection.unwrap_or_default().to_string().bytes());
            }
            AboutClients::Kill | AboutClients::KillAddress if itself => answer.push(CLOSES_ITSELF),
            AboutClients::Kill | AboutClients::KillAddress => {
                answer.push(CLOSED);
                let message = format!("closed by CLIENT KILL of client {}", String::from_utf8_lossy(asker));
                client.close(CloseReason::Error(Blame::Client, message), out);
            }
        }
    }

    pub(crate) fn end_survey(&self, client: &mut Client, answer: &[u8], out: &mut Outbox) {
        let survey = std::mem::take(&mut client.survey);
        let what = match survey {
            Survey::Asked(what) => what,
            Survey::AskedToUnblock { with_error } => return client.unblock(answer, with_error, out),
            Survey::None | Survey::Unblocked => unreachable!("answers came to a question that was not asked"),
        };
        let itself = answer.contains(&CLOSES_ITSELF);
        match what {
            AboutClients::List | AboutClients::Info => {
                out.insert(Peer::Client(client.tag), |to| resp::verbatim(to, answer, client.settings.version()));
            }
            AboutClients::Kill => out.insert(Peer::Client(client.tag), |to| {
                to.extend_from_slice(format!(":{}\r\n", answer.len()).as_bytes());
            }),
            AboutClients::KillAddress if answer.is_empty() => {
                out.insert(Peer::Client(client.tag), |to| resp::error(to, "ERR No such client"));
            }
            AboutClients::KillAddress => out.insert(Peer::Client(client.tag), |to| to.extend_from_slice(b"+OK\r\n")),
            AboutClients::Unblock => unreachable!("it has a survey of its own"),
        }
        if itself && matches!(what, AboutClients::Kill | AboutClients::KillAddress) {
            return client.close(CloseReason::Done, out);
        }
        out.push(Effect::Standing { client: client.tag, standing: client.standing() });
        out.push(Effect::Wake { client: client.tag });
    }

    /// Requests a server for CLIENT UNBLOCK. The clients are asked when the server is there: until then, the blocked
    /// client's connection could become another client's.
    fn ask_to_unblock(&self, client: &mut Client, given: &[&[u8]], out: &mut Outbox) -> Outcome {
        let (id, with_error) = (given[0], asks_for_error(given));
        match self.directory.route(client.identity.user(), 0, client.settings.version()) {
            Ok(pool) => {
                let purpose = Purpose::Unblock { id: Box::from(id), with_error };
                client.request_lease(pool, LeaseRequest::new(LeaseKind::Exclusive, purpose, true), out);
                Outcome::Consumed
            }
            Err(why) => client.write_error(&format!("ERR Poolhouse: {why}"), out),
        }
    }
}

impl Client {
    /// Whether this client has ended a wait for a server of which Redis does not know. Only the reply of its CLIENT
    /// UNBLOCK has to ask.
    pub(crate) fn take_unblocked(&mut self) -> bool {
        let unblocked = self.survey == Survey::Unblocked;
        if unblocked {
            self.survey = Survey::None;
        }
        unblocked
    }

    /// Asks all clients, itself included.
    fn ask_all(&mut self, survey: Survey, what: AboutClients, words: &[&[u8]], out: &mut Outbox) {
        self.survey = survey;
        let (id, start) = (self.id.to_string(), out.inserted.len());
        let question = [&[id.as_bytes(), self.identity.user().as_bytes(), what.name().as_bytes()], words].concat();
        resp::command(&mut out.inserted, &question);
        out.push(Effect::Survey { client: self.tag, question: start..out.inserted.len() });
    }

    /// Sends CLIENT UNBLOCK for this connection, or for one that does not exist if the client is not blocked. The reply
    /// is pending already.
    fn unblock(&mut self, connection: &[u8], with_error: bool, out: &mut Outbox) {
        let unblocked = connection == [STOPPED_WAITING];
        if unblocked {
            self.survey = Survey::Unblocked;
        }
        // A server that was lost meanwhile has closed the client.
        if let Some(held) = self.lease.held() {
            let server = held.server();
            let connection = if connection.is_empty() || unblocked { b"0" } else { connection };
            let how = unblock_reason(with_error);
            out.insert(Peer::Server(server), |to| resp::command(to, &[b"CLIENT", b"UNBLOCK", connection, how]));
        }
        out.push(Effect::Wake { client: self.tag });
    }

    /// Asks all clients where the one with this id is blocked.
    pub(super) fn survey_for_unblock(&mut self, id: &[u8], with_error: bool, out: &mut Outbox) {
        let words = [id, unblock_reason(with_error)];
        self.ask_all(Survey::AskedToUnblock { with_error }, AboutClients::Unblock, &words, out);
    }

    /// Writes the client's line in Redis's format. It has all fields in their order, because client libraries read them
    /// by name. A field that Poolhouse does not know has its default. `asks`: the command of the client itself; the
    /// last commands of other clients are not known.
    fn describe(&self, seen: &SurveyedClient<'_>, asks: Option<AboutClients>, to: &mut Vec<u8>) {
        let [sub, psub, ssub] = self.subscription_counts();
        let transaction = self.lease.transaction();
        let blocked = self.lease.held().is_some_and(|held| held.blocked_on().is_some()) || self.waits_to_block();
        let mut flags = String::new();
        for (flag, holds) in [("P", sub + psub + ssub > 0), ("x", transaction.is_open()), ("b", blocked)] {
            flags.push_str(if holds { flag } else { "" });
        }
        let flags = if flags.is_empty() { "N" } else { &flags };
        let text = |text: Option<&[u8]>| String::from_utf8_lossy(text.unwrap_or_default()).into_owned();
        let [lib_name, lib_version] = self.settings.library();
        writeln!(
            to,
            "id={} addr={} laddr={} fd=-1 name={} age={} idle={} flags={flags} db={} sub={sub} psub={psub} \
             ssub={ssub} multi={} \
             watch={} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r \
             cmd={} user={} \
             redir=-1 resp={} lib-name={} lib-ver={} io-thread=0 tot-net-in=0 tot-net-out=0 tot-cmds=0",
            self.id,
            seen.address,
            seen.listener,
            text(self.settings.name()),
            seen.age.as_secs(),
            seen.idle.as_secs(),
            self.settings.database(),
            if transaction.is_open() { 0 } else { -1 },
            u8::from(transaction.is_watching()),
            asks.map_or_else(|| "NULL".to_owned(), |what| format!("client|{}", what.name().to_ascii_lowercase())),
            self.identity.user_name(),
            self.settings.version().number(),
            text(Some(lib_name)),
            text(Some(lib_version)),
        )
        .expect("a vector takes all bytes");
    }
}

impl<'a> Filter<'a> {
    /// Reads the arguments behind the subcommand.
    /// Fails with Redis's error.
    fn read(what: AboutClients, mut words: &[&'a [u8]]) -> Result<Self, String> {
        const SYNTAX: &str = "ERR syntax error";
        let mut filter = Self { skips_me: what == AboutClients::Kill, ..Self::default() };
        if what == AboutClients::KillAddress {
            let [address] = words else { return Err(SYNTAX.to_owned()) };
            filter.address = Some(address);
            return Ok(filter);
        }
        if let (AboutClients::Unblock, [given, how @ ..]) = (what, words) {
            filter.ids.push(resp::integer(given).ok_or("ERR value is not an integer or out of range")?);
            let known = |how: &&[u8]| how.eq_ignore_ascii_case(b"TIMEOUT") || how.eq_ignore_ascii_case(b"ERROR");
            if !how.iter().all(known) {
                return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".to_owned());
            }
            return Ok(filter);
        }
        while let [option, behind @ ..] = words {
            let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
            let (value, behind) = behind.split_first().ok_or(SYNTAX)?;
            words = behind;
            if is("ID") {
                filter.ids.push(id(what, value)?);
                while let (AboutClients::List | AboutClients::Info, [value, behind @ ..]) = (what, words) {
                    filter.ids.push(id(what, value)?);
                    words = behind;
                }
            } else if is("TYPE") {
                filter.of_type(value)?;
            } else if what == AboutClients::List || what == AboutClients::Info {
                return Err(SYNTAX.to_owned());
            } else if is("ADDR") {
                filter.address = Some(value);
            } else if is("LADDR") {
                filter.listener = Some(value);
            } else if is("USER") {
                filter.user = Some(value);
            } else if is("MAXAGE") {
                filter.min_age = Some(resp::integer(value).ok_or("ERR maxage is not an integer or out of range")?);
            } else if is("SKIPME") {
                filter.skips_me = match value.to_ascii_lowercase().as_slice() {
                    b"yes" => true,
                    b"no" => false,
                    _ => return Err(SYNTAX.to_owned()),
                };
            } else {
                return Err(SYNTAX.to_owned());
            }
        }
        Ok(filter)
    }

    fn of_type(&mut self, name: &[u8]) -> Result<(), String> {
        match name.to_ascii_lowercase().as_slice() {
            b"normal" => self.pubsub = Some(false),
            b"pubsub" => self.pubsub = Some(true),
            b"master" | b"replica" | b"slave" => self.matches_none = true,
            _ => return Err(format!("ERR Unknown client type '{}'", name.escape_ascii())),
        }
        Ok(())
    }

    fn matches(&self, client: &Client, seen: &SurveyedClient<'_>, itself: bool) -> bool {
        let user = client.identity.user_name();
        let is = |wanted: Option<&[u8]>, has: &str| wanted.is_none_or(|wanted| wanted == has.as_bytes());
        let subscribes = || client.subscription_counts().iter().any(|count| *count > 0);
        !(self.matches_none || (self.skips_me && itself))
            && (self.ids.is_empty() || self.ids.contains(&(client.id as i64)))
            && self.pubsub.is_none_or(|pubsub| pubsub == subscribes())
            && is(self.address, seen.address)
            && is(self.listener, seen.listener)
            && is(self.user, user)
            && self.min_age.is_none_or(|age| seen.age.as_secs() as i64 >= age)
    }
}

/// Whether CLIENT UNBLOCK with these arguments ends with an error, and not as by a time-out.
fn asks_for_error(arguments: &[&[u8]]) -> bool {
    arguments.get(1).is_some_and(|reason| reason.eq_ignore_ascii_case(b"ERROR"))
}

/// The argument of CLIENT UNBLOCK that says how the command ends.
fn unblock_reason(with_error: bool) -> &'static [u8] {
    if with_error { b"ERROR" } else { b"TIMEOUT" }
}

fn id(what: AboutClients, text: &[u8]) -> Result<i64, String> {
    match (what, resp::integer(text)) {
        (AboutClients::Kill, Some(id)) if id > 0 => Ok(id),
        (AboutClients::List | AboutClients::Info, Some(id)) => Ok(id),
        (AboutClients::Kill, _) => Err("ERR client-id should be greater than 0".to_owned()),
        _ => Err("ERR Invalid client ID".to_owned()),
    }
}
