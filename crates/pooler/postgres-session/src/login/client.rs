//! A client's login: its first packets, the proof of who it is, and the parameters it is told. It asks the directory
//! who may log in, and knows no configuration itself.

use std::sync::Arc;

use scram::Mechanism;
use seam::{
    Blame, ClientTag, CloseReason, Effect, Input, LeaseKind, Origin, Outbox, Peer, Refusal, Secured, Standing, Verdict,
};

use super::{
    refusal::refuse_route,
    startup_rules::{NotAllowed, restrict},
};
use crate::{
    Encryption, LoginAttempt, LoginQuestion, Look, PoolMode, Proof, Route, StartRequest, Unknown,
    random::{nonce, random},
    session::{
        Client, ErrorText, Link, Lookup, Occasion, Phase, Postgres, Purpose, ServerSide,
        client_login::{Comparison, Login, Step},
        client_settings::ClientSettings,
        known_parameters::LoginOutcome,
        send_away,
    },
    wire::{
        Failure, Header, IDLE, Packet, Report, SMALL_LIMIT, Severity, Start, back, cancel_key, code, encryption, front,
        md5,
        message::write,
        startup::{self, StartError},
        take_text, take_u32, write_notice, write_parameter, write_ready, write_text,
    },
};

/// How a step of the login ended.
enum Progress {
    Consumed(usize),
    /// The login waits for more bytes, or for a server.
    Wait,
}

impl Login {
    fn challenge_for_md5(&mut self, me: ClientTag, stored: Arc<[Arc<str>]>, out: &mut Outbox) {
        let salt = random();
        self.step = Step::Md5 { stored, salt };
        out.insert(Peer::Client(me), |to| write_authentication(to, 5, |to| to.extend_from_slice(&salt)));
    }

    /// Offers a SCRAM exchange, bound to the TLS connection if possible.
    fn offer_scram(&mut self, me: ClientTag, exchange: scram::Server, out: &mut Outbox) {
        let both = [Mechanism::Plus, Mechanism::Plain];
        let mechanisms = if exchange.offers_channel() { &both[..] } else { &both[1..] };
        out.insert(Peer::Client(me), |to| write_sasl_offer(to, mechanisms));
        self.step = Step::SaslFirst(exchange);
    }
}

impl Postgres {
    pub(crate) fn take_login_input(
        &self,
        me: ClientTag,
        client: &mut Client,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        let mut at = 0;
        loop {
            let Phase::Login(login) = &client.phase else { return at };
            let bytes = &input.bytes[at..];
            let progress = match login.step {
                Step::Packet => self.take_login_packet(me, client, bytes, out),
                Step::Parameters | Step::Asking | Step::Checking { .. } | Step::HandingOn { .. } => Progress::Wait,
                _ => self.take_login_answer(me, client, bytes, out),
            };
            match progress {
                Progress::Consumed(count) => at += count,
                Progress::Wait if matches!(client.phase, Phase::Closed) => return input.bytes.len(),
                Progress::Wait => return at,
            }
        }
    }

    fn take_login_packet(&self, me: ClientTag, client: &mut Client, bytes: &[u8], out: &mut Outbox) -> Progress {
        let (packet, length) = match startup::read(bytes) {
            Ok(Some(read)) => read,
            Ok(None) => return Progress::Wait,
            Err(error) => {
                refuse_start(me, client, &error, out);
                return Progress::Wait;
            }
        };
        match packet {
            Packet::Cancel { pid, secret } => {
                self.pass_on_cancel(me, client, pid, secret, out);
                if matches!(client.phase, Phase::Closed) { Progress::Wait } else { Progress::Consumed(length) }
            }
            Packet::Terminate => {
                client.close(me, CloseReason::Goodbye, out);
                Progress::Wait
            }
            Packet::Tls => {
                self.begin_direct_tls(me, client, out);
                Progress::Wait
            }
            Packet::Ssl if self.offers_tls(client) => {
                if bytes.len() > length {
                    refuse_start(me, client, &StartError::EarlyBytes, out);
                    return Progress::Wait;
                }
                out.insert(Peer::Client(me), |to| to.push(encryption::AGREED));
                out.push(Effect::StartTls { peer: Peer::Client(me) });
                Progress::Consumed(length)
            }
            Packet::Ssl | Packet::Gss => {
                let Phase::Login(login) = &mut client.phase else { unreachable!("the client is logging in") };
                if login.declined.contains(&packet) || login.secured.is_some() {
                    refuse_start(me, client, &StartError::Malformed("encryption asked for twice"), out);
                    return Progress::Wait;
                }
                login.declined.push(packet);
                out.insert(Peer::Client(me), |to| to.push(encryption::DECLINED));
                Progress::Consumed(length)
            }
            Packet::Start(start) => {
                let Phase::Login(login) = &mut client.phase else { unreachable!("the client is logging in") };
                if let Some(why) = login.refusal.take().filter(|why| !self.may_have_kept_place(why, &start)) {
                    send_away(me, client, why, out);
                    client.close(me, CloseReason::Done, out);
                    return Progress::Wait;
                }
                self.begin_proof(me, client, *start, out);
                if matches!(client.phase, Phase::Closed) { Progress::Wait } else { Progress::Consumed(length) }
            }
        }
    }

    /// Whether a client for which there is no room may go on: the driver keeps places for operators, and gives one to a
    /// client that has proved that it is one.
    fn may_have_kept_place(&self, why: &Refusal, start: &Start) -> bool {
        matches!(why, Refusal::TooManyClients { .. }) && self.directory.keeps_places(&start.database)
    }

    /// Whether a client that asks for TLS gets it.
    fn offers_tls(&self, client: &Client) -> bool {
        let Phase::Login(login) = &client.phase else { unreachable!("the client is logging in") };
        login.secured.is_none() && self.directory.encryption(login.origin.listener) != Encryption::Off
    }

    fn begin_direct_tls(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) {
        let offered = self.offers_tls(client);
        let Phase::Login(login) = &mut client.phase else { unreachable!("the client is logging in") };
        if !offered || !login.declined.is_empty() {
            return refuse_start(me, client, &StartError::Tls, out);
        }
        login.direct = true;
        out.push(Effect::StartTls { peer: Peer::Client(me) });
    }

    pub(crate) fn login_secured(&self, me: ClientTag, client: &mut Client, secured: Secured, out: &mut Outbox) {
        let Phase::Login(login) = &mut client.phase else { return };
        let wrong = login.direct && !secured.alpn_agreed;
        login.secured = Some(secured);
        if wrong {
            // Otherwise a browser could be made to speak to us.
            let hint = "The client must name the application protocol \"postgresql\" (ALPN).";
            fail(
                me,
                client,
                code::PROTOCOL_VIOLATION,
                "a direct TLS connection without its protocol's name",
                hint,
                out,
            );
        }
    }

    /// Chooses how the client has to prove itself, and asks for the proof.
    fn begin_proof(&self, me: ClientTag, client: &mut Client, start: Start, out: &mut Outbox) {
        if start.negotiate {
            out.insert(Peer::Client(me), |to| write_negotiation(to, start.version, &start.unknown_options));
        }
        let login = Box::new((start.database.clone(), start.user.clone()));
        out.push(Effect::LoginRequest { client: me, login });
        let Phase::Login(login) = &mut client.phase else { unreachable!("the client is logging in") };
        if login.secured.is_none() && self.directory.encryption(login.origin.listener) == Encryption::Require {
            let hint = "Connect with sslmode=require, or a stricter one.";
            return fail(me, client, code::INVALID_AUTHORIZATION, "TLS is required here", hint, out);
        }
        let rules = self.directory.rules(login.origin.listener);
        self.rules.set(login.origin.listener, &rules);
        login.start = start;
        if let Err(NotAllowed { name, in_options }) = restrict(&mut login.start, &rules) {
            let place = if in_options { " in options" } else { "" };
            let message = format!("unsupported startup parameter{place}: {name}");
            let hint = "The listener's allow_startup_parameters does not name it.";
            return fail(me, client, code::PROTOCOL_VIOLATION, &message, hint, out);
        }
        let found = self.directory.proof(&login.attempt());
        self.ask_for_proof(me, client, found, out);
    }

    /// Asks the client for the proof that was found, or a server which proof is due.
    pub(crate) fn ask_for_proof(
        &self,
        me: ClientTag,
        client: &mut Client,
        found: Result<Proof, Unknown>,
        out: &mut Outbox,
    ) {
        let Phase::Login(login) = &mut client.phase else { unreachable!("the client is logging in") };
        let channel = login.secured.as_ref().and_then(|secured| secured.end_point.clone());
        let proof = match found {
            Ok(proof) => proof,
            Err(Unknown::User) => {
                let user = &login.start.user;
                return match self.look(&login.attempt()) {
                    Look::Md5 => login.challenge_for_md5(me, [md5::no_hash(random())].into(), out),
                    Look::Scram(shape) => {
                        let exchange = scram::Server::mock(&self.mock, user, shape, nonce());
                        login.offer_scram(me, exchange.offering_channel(channel), out);
                    }
                    Look::Cleartext(shape) => login.ask_for_password(me, Comparison::Mock(shape), out),
                };
            }
            Err(why) => {
                out.push(Effect::AuthFailed { client: me });
                return refuse_route(me, client, why, out);
            }
        };
        match proof {
            Proof::Trust => self.authenticated(me, client, None, out),
            Proof::Ask(ask) => {
                login.step = Step::Asking;
                self.request_lookup(me, client, ask, out);
            }
            Proof::Md5(stored) => login.challenge_for_md5(me, stored, out),
            Proof::Scram(verifiers) => {
                login.offer_scram(me, scram::Server::new(verifiers, nonce()).offering_channel(channel), out);
            }
            Proof::Cleartext(stored) => login.ask_for_password(me, Comparison::With(stored), out),
            Proof::Elsewhere => login.ask_for_password(me, Comparison::Elsewhere, out),
            Proof::Later => self.begin_check(me, login, LoginQuestion::Proof),
        }
    }

    /// The look of a login of a user who does not exist: always the same for one name.
    fn look(&self, attempt: &LoginAttempt) -> Look {
        let looks = self.directory.looks(attempt);
        let label = |look: &Look| match look {
            Look::Md5 => Vec::new(),
            Look::Cleartext(_) => b"password".to_vec(),
            Look::Scram(scram::Shape { iterations, salt }) => format!("{iterations}:{salt}").into_bytes(),
        };
        let best = looks.into_iter().max_by_key(|look| self.mock.rank(&attempt.user, &label(look)));
        best.unwrap_or(Look::Scram(scram::Shape::default()))
    }

    fn take_login_answer(&self, me: ClientTag, client: &mut Client, bytes: &[u8], out: &mut Outbox) -> Progress {
        let Some(header) = Header::read(bytes) else { return Progress::Wait };
        if header.kind != front::PASSWORD || !(4..=SMALL_LIMIT).contains(&header.length) {
            let message = "expected a password or SASL response";
            fail(me, client, code::PROTOCOL_VIOLATION, message, "", out);
            return Progress::Wait;
        }
        let Some(body) = bytes.get(crate::wire::message::HEADER..header.total()) else { return Progress::Wait };
        let Phase::Login(login) = &mut client.phase else { unreachable!("the client is logging in") };
        let (mut keys, scram) = (None, matches!(login.step, Step::SaslFirst(_) | Step::SaslLast(_)));
        let verified = match std::mem::replace(&mut login.step, Step::Parameters) {
            Step::Md5 { stored, salt } => {
                let answer = body.strip_suffix(&[0]).unwrap_or(body);
                let is_right = |stored: &Arc<str>| scram::equal(answer, md5::answer(stored, salt).as_bytes());
                if stored.iter().any(is_right) { Ok(()) } else { Err(scram::Error::WrongProof) }
            }
            Step::SaslFirst(mut exchange) => match first_response(&mut exchange, body) {
                Ok(challenge) => {
                    login.step = Step::SaslLast(exchange);
                    out.insert(Peer::Client(me), |to| {
                        write_authentication(to, 11, |to| to.extend_from_slice(&challenge));
                    });
                    return Progress::Consumed(header.total());
                }
                Err(error) => Err(error),
            },
            Step::SaslLast(mut exchange) => exchange.last(body).map(|proof| {
                keys = exchange.take_keys();
                out.insert(Peer::Client(me), |to| write_authentication(to, 12, |to| to.extend_from_slice(&proof)));
            }),
            Step::Cleartext(comparison) => match self.take_password(me, login, comparison, body) {
                Some(verified) => verified,
                None => return Progress::Consumed(header.total()),
            },
            Step::Packet | Step::Parameters | Step::Asking | Step::Checking { .. } | Step::HandingOn { .. } => {
                unreachable!("no answer is awaited")
            }
        };
        match verified {
            Ok(()) => {
                self.authenticated(me, client, keys, out);
                if matches!(client.phase, Phase::Closed) { Progress::Wait } else { Progress::Consumed(header.total()) }
            }
            Err(scram::Error::WrongProof) => {
                self.refuse_password(me, client, scram, out);
                Progress::Wait
            }
            Err(error) => {
                out.push(Effect::AuthFailed { client: me });
                fail(me, client, code::PROTOCOL_VIOLATION, &error.to_string(), "", out);
                Progress::Wait
            }
        }
    }

    /// Where a client is served that has proved who it is.
    fn find_route(&self, start: &Start, origin: Origin) -> Result<Route, Unknown> {
        let request = StartRequest { replication: start.replication.as_deref(), settings: &start.settings, origin };
        match self.directory.dedicated_route(&start.database, &start.user, &request)? {
            Some(route) => Ok(route),
            None => self.directory.route(&start.database, &start.user),
        }
    }

    /// The client has proved who it is. A server is asked for its parameters unless they are known.
    pub(super) fn authenticated(
        &self,
        me: ClientTag,
        client: &mut Client,
        keys: Option<scram::LoginKeys>,
        out: &mut Outbox,
    ) {
        let Phase::Login(login) = &mut client.phase else { unreachable!("the client is logging in") };
        login.step = Step::Parameters;
        match self.find_route(&login.start, login.origin) {
            Ok(route) => {
                client.pool = route.pool;
                client.mode = route.mode;
                client.retried = false;
                if route.add_host {
                    startup::add_host(&mut login.start, login.origin);
                }
                if let Some(keys) = keys.filter(|_| route.pass_through) {
                    self.keyring.learn(&login.start.user, keys);
                }
            }
            Err(why) => return refuse_route(me, client, why, out),
        }
        if client.mode == PoolMode::Dedicated {
            // First: what follows waits for a place, if need be.
            push_logged_in(me, client, out);
            return out.push(Effect::Lease { client: me, pool: client.pool, kind: LeaseKind::Exclusive });
        }
        match self.parameters.outcome(client.pool, &login.start.settings, false) {
            Some(learned) => self.complete_login(me, client, learned, out),
            None => out.push(Effect::Lease { client: me, pool: client.pool, kind: LeaseKind::Exclusive }),
        }
    }

    /// The pool was forgotten while the client waited for its parameters: another pool is routed to.
    pub(crate) fn route_again(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) {
        let Phase::Login(login) = &client.phase else { unreachable!("the client is logging in") };
        match login.asked() {
            Some(asked) => {
                let found = self.directory.proof(&asked);
                self.ask_for_proof(me, client, found, out);
            }
            None => self.authenticated(me, client, None, out),
        }
    }

    /// A server was granted to learn the parameters from: it takes the client's settings.
    pub(crate) fn learn_parameters(&self, link: &mut Link<'_>) {
        let Phase::Login(login) = &link.client.phase else { unreachable!("the client is logging in") };
        if let Some(asked) = login.asked() {
            if let Some(found) = self.look_up(link, asked) {
                self.go_on_with_proof(link.client_tag, link.client, found, link.out);
            }
            return;
        }
        let want = link.server.settings.defaults().overlaid(&login.start.settings);
        let mut sql = Vec::new();
        // A value may be given in part, like DateStyle's, and then keeps the rest of what was there before.
        link.server.settings.current().write_change(link.server.settings.defaults(), &mut sql);
        link.server.settings.defaults().write_change(&want, &mut sql);
        if sql.is_empty() && !self.parameters.is_stale(link.server.settings.answer_clock()) {
            link.server.settings.apply(&self.parameters.intern(want), &self.parameters);
            self.parameters_learned(link);
        } else {
            // Even one that has nothing to do tells what is new.
            link.server.begin_queries(link.server_tag, Purpose::Learn(want.extras), &[&sql], link.out);
        }
    }

    pub(crate) fn lookup_answered(&self, side: &mut ServerSide<'_>, (lookup, failure): (Lookup, Option<Failure>)) {
        if let Some((tag, found)) = self.looked_up(side, lookup, failure) {
            self.go_on_with_proof(
                tag,
                side.clients.get(tag).expect("the holder of a server has a session"),
                found,
                side.out,
            );
        }
    }

    /// It is known what the client has to prove.
    fn go_on_with_proof(&self, me: ClientTag, client: &mut Client, found: Result<Proof, Unknown>, out: &mut Outbox) {
        self.ask_for_proof(me, client, found, out);
        // What the client has sent meanwhile was not consumed.
        out.push(Effect::Wake { client: me });
    }

    /// The server has the client's settings, in its own spelling: the client is told, and the server given back.
    pub(crate) fn parameters_learned(&self, link: &mut Link<'_>) {
        let Phase::Login(login) = &link.client.phase else { unreachable!("the client is logging in") };
        let learned = LoginOutcome {
            settings: link.server.settings.current().clone(),
            base: link.server.settings.defaults().clone(),
            facts: link.server.facts.current().clone(),
        };
        self.parameters.note_answer_time(link.server.settings.answer_clock());
        if link.server.settings.is_explained() {
            self.parameters.learn(link.server.pool, &login.start.settings, learned.clone());
        }
        link.client.tries = 0;
        link.release(Verdict::Clean);
        self.complete_login(link.client_tag, link.client, learned, link.out);
        // What the client has sent meanwhile was not consumed.
        link.wake();
    }
}

impl Postgres {
    /// The client is logged in: tells it its parameters and its cancel key.
    pub(crate) fn complete_login(&self, me: ClientTag, client: &mut Client, learned: LoginOutcome, out: &mut Outbox) {
        // First: what follows waits for a place, if need be.
        push_logged_in(me, client, out);
        let announced = self.directory.announcements(client.pool);
        let announced = announced.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let parameters = announced.chain(learned.facts.iter()).chain(learned.settings.reported.iter());
        self.write_welcome(me, client, parameters, out);
        client.settings = Some(ClientSettings::new(learned));
        client.phase = Phase::Ready;
        client.stand(me, Standing::Idle, out);
    }

    /// The end of a login as the client sees it: its parameters, its cancel key, and that it may begin.
    pub(crate) fn write_welcome<'a>(
        &self,
        me: ClientTag,
        client: &mut Client,
        parameters: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        out: &mut Outbox,
    ) {
        let Phase::Login(login) = &client.phase else { unreachable!("the client is logging in") };
        client.secret = cancel_key::new_secret(login.start.version, random());
        out.insert(Peer::Client(me), |to| {
            write_authentication(to, 0, |_| {});
            for (name, value) in parameters {
                write_parameter(to, name, value);
            }
            write(to, back::BACKEND_KEY_DATA, |to| {
                to.extend_from_slice(&cancel_key::process_id(self.node, me).to_be_bytes());
                cancel_key::write_secret(to, client.secret);
            });
            if let Some(notice) = self.directory.rules(client.entrance.listener()).login_notice {
                write_notice(to, &notice);
            }
            write_ready(to, IDLE);
        });
    }
}

fn push_logged_in(me: ClientTag, client: &Client, out: &mut Outbox) {
    let Phase::Login(login) = &client.phase else { unreachable!("the client is logging in") };
    out.push(Effect::LoggedIn { client: me, pool: client.pool, user: login.start.user.as_str().into() });
}

pub(super) fn fail(me: ClientTag, client: &mut Client, code: &str, message: &str, hint: &str, out: &mut Outbox) {
    client.fail(me, &Report { severity: Severity::Fatal, code, message, hint }, Blame::Client, out);
}

fn refuse_start(me: ClientTag, client: &mut Client, error: &StartError, out: &mut Outbox) {
    let (code, message, hint) = match error {
        StartError::Http => {
            let text = "This port speaks the PostgreSQL protocol, not HTTP.\n";
            out.insert(Peer::Client(me), |to| {
                let head = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n";
                to.extend_from_slice(format!("{head}Content-Length: {}\r\n\r\n{text}", text.len()).as_bytes());
            });
            return client.close(me, CloseReason::Error(Blame::Client, "an HTTP request".to_owned()), out);
        }
        StartError::Tls => {
            let hint = "Connect without sslnegotiation=direct.";
            (code::PROTOCOL_VIOLATION, "a TLS handshake where there is no TLS".to_owned(), hint)
        }
        StartError::EarlyBytes => {
            let message = "received unencrypted data after a request for TLS".to_owned();
            let hint = "The client is wrong, or somebody is between it and Poolhouse.";
            (code::PROTOCOL_VIOLATION, message, hint)
        }
        StartError::Length(length) => {
            let message = format!("invalid length {length} of the start-up packet (it is 8 to {SMALL_LIMIT})");
            (code::PROTOCOL_VIOLATION, message, "The client does not speak the PostgreSQL protocol.")
        }
        StartError::Version(major, minor) => {
            let message = format!("unsupported frontend protocol {major}.{minor}: Poolhouse supports 3.0 to 3.2");
            (code::FEATURE_NOT_SUPPORTED, message, "")
        }
        StartError::Replication(value) => {
            let message = format!("invalid value for parameter \"replication\": \"{value}\"");
            (code::INVALID_PARAMETER_VALUE, message, "It is a truth value, or \"database\".")
        }
        StartError::Malformed(why) => (code::PROTOCOL_VIOLATION, format!("invalid start-up packet: {why}"), ""),
        StartError::NoUser => {
            let message = "no PostgreSQL user name specified in startup packet".to_owned();
            (code::INVALID_AUTHORIZATION, message, "")
        }
        StartError::Option(option) => {
            let message = format!("unsupported word in the start-up parameter \"options\": {option}");
            let hint =
                "Use -c name=value or --name=value, or a switch of `postgres` for a session's settings (-e, -S 8MB).";
            (code::INVALID_PARAMETER_VALUE, message, hint)
        }
    };
    let ours = ErrorText::new(code, message, hint);
    match error {
        StartError::NoUser => client.fail_for(me, Occasion::NoUserName, ours, Blame::Client, out),
        StartError::Option(_) => client.fail_for(me, Occasion::Options, ours, Blame::Client, out),
        StartError::Version(..=2, _) => client.fail_for(me, Occasion::OldProtocol, ours, Blame::Client, out),
        _ => fail(me, client, &ours.code, &ours.message, &ours.hint, out),
    }
}

fn first_response(exchange: &mut scram::Server, mut body: &[u8]) -> Result<Vec<u8>, scram::Error> {
    let mechanism = take_text(&mut body).ok_or(scram::Error::Malformed("a SASL mechanism"))?;
    let mechanism = Mechanism::named(mechanism)?;
    let length = take_u32(&mut body).ok_or(scram::Error::Malformed("a SASL initial response"))?;
    if length as usize != body.len() {
        return Err(scram::Error::Malformed("a SASL initial response of the length it tells"));
    }
    match mechanism {
        Mechanism::Plain => exchange.first(body),
        Mechanism::Plus => exchange.first_bound(body),
    }
}

pub(super) fn write_authentication(to: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    write(to, back::AUTHENTICATION, |to| {
        to.extend_from_slice(&kind.to_be_bytes());
        body(to);
    });
}

fn write_sasl_offer(to: &mut Vec<u8>, mechanisms: &[Mechanism]) {
    write_authentication(to, 10, |to| {
        mechanisms.iter().for_each(|mechanism| write_text(to, mechanism.name()));
        to.push(0);
    });
}

fn write_negotiation(to: &mut Vec<u8>, version: u32, unknown_options: &[String]) {
    write(to, back::NEGOTIATE_PROTOCOL_VERSION, |to| {
        to.extend_from_slice(&version.to_be_bytes());
        to.extend_from_slice(&(unknown_options.len() as u32).to_be_bytes());
        for option in unknown_options {
            write_text(to, option);
        }
    });
}
