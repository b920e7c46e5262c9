//! A client that speaks HTTP: its requests go to servers as commands.
//!
//! A request is answered when all its replies have come, so that a server that is lost on the way is an error in an answer, and
//! never half of one. The last byte of the input is not consumed before the commands of all requests have been sent: for as long as the
//! driver holds something back, it hands it over again when there is a server.

use std::{cell::Cell, collections::VecDeque, sync::Arc, sync::atomic::Ordering::Relaxed};

use protocol::{Blame, ClientTag, CloseReason, Effect, Input, Outbox, Peer, Refusal, ServerTag, Sessions, Standing};

use super::{Client, Lease, passing::STREAM_FROM, work::Work};
use crate::{
    HttpRules, Redis, Server,
    command::{Kind, Subscription},
    refusal, resp,
    rest::{
        Denied, MAX_DROPPED,
        answer::{Answer, Manner},
        body::Body,
        call::{self, Call, Command, Shape, Target},
        events::Events,
        h2::{Arrived, H2, PREFACE},
        head::{self, Form, Framing, Head, MAX_HEAD, Method},
        rules::Access,
    },
    server::LOST,
};

/// What a client that speaks HTTP has beside others.
#[derive(Default)]
pub(crate) struct Rest {
    listener: u16,
    /// It is to be sent away as soon as it asks something.
    refusal: Option<Box<Denied>>,
    stage: Stage,
    /// Requests that are being carried out, in order. In HTTP/1.1 there is one at a time.
    works: VecDeque<Work>,
    /// The first byte of the next input has been read already.
    ahead: bool,
    /// It is to go when what it has asked has been answered.
    leaving: bool,
}

#[derive(Default)]
enum Stage {
    /// The head of a request is next.
    #[default]
    Head,
    /// A body comes in pieces.
    Body(Box<Upload>),
    /// The rest of a request that was answered already: so many bytes are dropped before the connection ends. Who closes on unread
    /// bytes resets the connection, and the answer may be lost with it.
    Drop(u64),
    /// Messages come until the connection ends.
    Events(Box<Events>),
    /// HTTP/2, which keeps the state of its requests itself.
    Two(Box<H2>),
}

struct Upload {
    request: Request,
    body: Body,
}

/// A request whose head has been read.
struct Request {
    method: Method,
    target: Target,
    form: Form,
    manner: Manner,
    access: Arc<Access>,
}

impl Rest {
    pub(crate) fn new(listener: u16) -> Self {
        Self { listener, ..Self::default() }
    }
}

impl Redis {
    /// Reads HTTP requests.
    pub(super) fn http_requests(
        &self,
        me: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        let total = input.bytes.len();
        let mut at = usize::from(std::mem::take(&mut client.http().ahead));
        loop {
            self.send_all(me, client, servers, out);
            client.answer(me, out);
            if client.closing {
                return total;
            }
            let rest = client.http();
            let idle = rest.works.is_empty();
            let (used, go_on) = match std::mem::take(&mut rest.stage) {
                stage if at == total => {
                    rest.stage = stage;
                    break;
                }
                Stage::Two(h2) => (self.streams(me, client, h2, &input.bytes[at..], out), true),
                Stage::Events(events) => {
                    rest.stage = Stage::Events(events);
                    return total;
                }
                Stage::Drop(left) => {
                    rest.stage = Stage::Drop(left.saturating_sub((total - at) as u64));
                    if left <= (total - at) as u64 {
                        client.close(me, CloseReason::Done, out);
                    }
                    return total;
                }
                stage if !idle => {
                    rest.stage = stage;
                    client.held_back = true;
                    break;
                }
                Stage::Head => self.begin(me, client, &input.bytes[at..], out),
                Stage::Body(upload) => self.upload(me, client, upload, &input.bytes[at..], out),
            };
            at += used;
            if !go_on {
                break;
            }
        }
        if client.closing {
            return total;
        }
        let unsent = client.http().works.iter().any(|work| !work.is_sent());
        client.http().ahead = unsent && at == total;
        if unsent && at == total { total - 1 } else { at }
    }

    /// Reads a request of HTTP/1.1 from its beginning. Returns what was consumed, and whether there is more to do.
    fn begin(&self, me: ClientTag, client: &mut Client, bytes: &[u8], out: &mut Outbox) -> (usize, bool) {
        let plain = Manner::default();
        if PREFACE.starts_with(&bytes[..bytes.len().min(PREFACE.len())]) {
            let most = self.directory.http(client.http().listener).map_or(0, |rules| rules.max_request);
            if bytes.len() >= PREFACE.len() {
                client.set_stage(Stage::Two(Box::new(H2::new(most))));
            }
            return (0, bytes.len() >= PREFACE.len());
        }
        let head = match head::read(bytes) {
            Ok(Some(head)) => head,
            // The driver holds at least twice as much.
            Ok(None) if bytes.len() < MAX_HEAD => return (0, false),
            Ok(None) => return client.deny(me, &plain, &Denied::new(431, "the head has no end"), out),
            Err(denied) => return client.deny(me, &plain, &denied, out),
        };
        if let Some(denied) = client.http().refusal.take() {
            return client.deny(me, &plain, &denied, out);
        }
        let rules = match self.rules(client) {
            Ok(rules) => rules,
            Err(denied) => return client.deny(me, &plain, &denied, out),
        };
        let manner = manner(&head, &rules);
        if head.method == Method::Options {
            let manner = Manner { keep_alive: manner.keep_alive && head.framing == Framing::Length(0), ..manner };
            out.insert(Peer::Client(me), |to| Answer::permission(&manner).write(to));
            if head.framing != Framing::Length(0) {
                client.drop_rest(head.framing);
            }
            return (head.length, true);
        }
        let target = Target::read(&head.target);
        let access = match self.access(&head, &target, &rules) {
            Ok(access) => access,
            Err(denied) => {
                if has_token(&head, &target, &rules) {
                    out.push(Effect::AuthFailed { client: me });
                }
                return client.deny(me, &manner, &denied, out);
            }
        };
        if client.stranger && !self.let_in(me, client, &access, out) {
            return (bytes.len(), false);
        }
        let mut body = match Body::new(head.framing, rules.max_request) {
            Ok(body) => body,
            Err(denied) => {
                client.deny_and_drop(me, &manner, &denied, head.framing, out);
                return (head.length, true);
            }
        };
        let request = Request { method: head.method, target, form: head.form, manner, access };
        match head.framing {
            Framing::Length(length) if (bytes.len() - head.length) as u64 >= length => {
                let end = head.length + length as usize;
                self.plan(me, client, request, &bytes[head.length..end], out);
                (end, true)
            }
            _ => {
                if head.expects {
                    out.insert(Peer::Client(me), |to| to.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n"));
                }
                body.bytes.reserve(bytes.len() - head.length);
                // Nobody is idle who sends a request.
                out.push(Effect::Standing { client: me, standing: Standing::Active });
                client.set_stage(Stage::Body(Box::new(Upload { request, body })));
                (head.length, true)
            }
        }
    }

    /// Takes a piece of a body.
    fn upload(
        &self,
        me: ClientTag,
        client: &mut Client,
        mut upload: Box<Upload>,
        bytes: &[u8],
        out: &mut Outbox,
    ) -> (usize, bool) {
        match upload.body.take(bytes) {
            Err(denied) if denied.status == 413 => {
                client.deny_and_drop(me, &upload.request.manner, &denied, Framing::Chunked, out);
                (0, true)
            }
            Err(denied) => client.deny(me, &upload.request.manner, &denied, out),
            Ok(used) if upload.body.is_whole() => {
                let Upload { request, body } = *upload;
                self.plan(me, client, request, &body.bytes, out);
                (used, true)
            }
            Ok(used) => {
                client.set_stage(Stage::Body(upload));
                (used, used > 0)
            }
        }
    }

    /// A request of HTTP/1.1 is there as a whole.
    fn plan(&self, me: ClientTag, client: &mut Client, request: Request, body: &[u8], out: &mut Outbox) {
        let manner = request.manner.clone();
        match self.work(request, body) {
            Ok(work) => client.http().works.push_back(work),
            Err(denied) => {
                out.insert(Peer::Client(me), |to| Answer::denied(&manner, &denied).write(to));
                out.push(Effect::Standing { client: me, standing: Standing::Idle });
                if !manner.keep_alive {
                    client.close(me, CloseReason::Done, out);
                }
            }
        }
    }

    /// Reads HTTP/2. Returns what was consumed.
    fn streams(&self, me: ClientTag, client: &mut Client, mut h2: Box<H2>, bytes: &[u8], out: &mut Outbox) -> usize {
        let mut arrived = Vec::new();
        let rules = self.rules(client);
        let refusal = client.http().refusal.take();
        let guessed = Cell::new(client.http().leaving);
        // Who is refused, or has no token, sends no body either.
        let admit = |head: &Head| match (&refusal, &rules) {
            (Some(denied), _) => Err(Denied::clone(denied)),
            (None, Ok(_)) if guessed.get() => {
                Err(Denied::new(401, "Unauthorized: a wrong token came before this request"))
            }
            (None, Ok(rules)) if head.method != Method::Options => {
                let target = Target::read(&head.target);
                let access = self.access(head, &target, rules).map(|_| ());
                guessed.set(access.is_err() && has_token(head, &target, rules));
                access
            }
            _ => Ok(()),
        };
        let over = h2.take(bytes, &admit, &mut arrived).err();
        let refused = refusal.is_some() && !arrived.is_empty();
        client.http().refusal = refusal;
        if guessed.get() && !client.http().leaving {
            out.push(Effect::AuthFailed { client: me });
        }
        client.http().leaving |= refused || guessed.get();
        for Arrived { request, mut respond } in arrived {
            match request.and_then(|(head, body)| self.arrive(me, client, head, &body, out)) {
                Ok(Ok(mut work)) => {
                    work.respond = Some(respond);
                    client.http().works.push_back(work);
                }
                Ok(Err(answer)) => respond.answer(answer),
                Err(denied) => respond.answer(Answer::denied(&Manner::default(), &denied)),
            }
        }
        h2.turn();
        out.insert(Peer::Client(me), |to| h2.drain(to));
        client.set_stage(Stage::Two(h2));
        match over {
            Some(why) => client.close(me, CloseReason::Error(Blame::Client, why), out),
            None => client.leave_if_answered(me, out),
        }
        bytes.len()
    }

    /// A request of HTTP/2 is there as a whole: what is to be done, or the answer at once.
    fn arrive(
        &self,
        me: ClientTag,
        client: &mut Client,
        head: Head,
        body: &[u8],
        out: &mut Outbox,
    ) -> Result<Result<Work, Answer>, Denied> {
        let rules = self.rules(client)?;
        let manner = manner(&head, &rules);
        if head.method == Method::Options {
            return Ok(Err(Answer::permission(&manner)));
        }
        let target = Target::read(&head.target);
        let prepare = |client: &mut Client, out: &mut Outbox| {
            let access = self.access(&head, &target, &rules)?;
            if client.stranger && !self.let_in(me, client, &access, out) {
                return Err(Denied::new(503, "ERR Poolhouse: there is no pool for this token"));
            }
            let request = Request { method: head.method, target, form: head.form, manner: manner.clone(), access };
            let work = self.work(request, body)?;
            match work.call.shape {
                Shape::Events => {
                    Err(Denied::new(501, "ERR messages come over HTTP/1.1 only: they take a whole connection"))
                }
                _ => Ok(work),
            }
        };
        Ok(prepare(client, out).map_err(|denied| Answer::denied(&manner, &denied)))
    }

    fn rules(&self, client: &mut Client) -> Result<Arc<HttpRules>, Denied> {
        let rules = self.directory.http(client.http().listener);
        rules.ok_or_else(|| Denied::new(503, "this address does not serve HTTP any more"))
    }

    fn let_in(&self, me: ClientTag, client: &mut Client, access: &Access, out: &mut Outbox) -> bool {
        client.database = access.database;
        self.enter(me, client, Arc::clone(&access.user), out)
    }

    /// Who asks.
    fn access(&self, head: &Head, target: &Target, rules: &HttpRules) -> Result<Arc<Access>, Denied> {
        let unauthorized = |why: &str| Denied::new(401, format!("Unauthorized: {why}"));
        let token = match (&head.token, &target.token) {
            (Some(token), _) => token,
            (None, Some(_)) if !rules.token_in_query => {
                let why =
                    "a token in the URL ends up in logs and is not taken here: send `Authorization: Bearer TOKEN`";
                return Err(unauthorized(why));
            }
            (None, Some(token)) => token,
            (None, None) => return Err(unauthorized("send `Authorization: Bearer TOKEN`")),
        };
        self.directory.access(token).ok_or_else(|| unauthorized("this token is not known"))
    }

    /// What a request comes to.
    fn work(&self, request: Request, body: &[u8]) -> Result<Work, Denied> {
        let Request { method, target, form, manner, access } = request;
        let call = call::read(&target, method, body, form, &access.rules)?;
        if call.shape == Shape::Events && method == Method::Head {
            return Err(Denied::new(405, "ERR messages are a body, and HEAD wants none: ask with GET or POST"));
        }
        self.admit(&call, &access)?;
        let token = match call.writes {
            true => self.writes.fetch_add(1, Relaxed) + 1,
            false => self.writes.load(Relaxed),
        };
        Ok(Work::new(manner, form, call, access, token))
    }

    /// Whether this much is to be done now.
    fn admit(&self, call: &Call, access: &Access) -> Result<(), Denied> {
        let refused = call.commands.iter().find_map(|command| match command {
            Command::Refused(error) => Some(error),
            Command::Send(_) => None,
        });
        if let (Shape::Transaction, Some(error)) = (call.shape, refused) {
            return Err(Denied::new(400, format!("EXECABORT Transaction discarded because of: {error}")));
        }
        match self.directory.spend(access, call.commands.len() as u32) {
            None => Ok(()),
            Some(wait) => {
                let mut denied =
                    Denied::new(429, format!("ERR the token `{}` has used up its rate_limit", access.name));
                denied.retry_after = Some(wait.as_secs_f64().ceil().max(1.0) as u64);
                Err(denied)
            }
        }
    }

    /// Sends what can be sent now: nothing, if a server has been asked for. (More of HTTP/2 may be read in the same turn.)
    fn send_all(
        &self,
        me: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        out: &mut Outbox,
    ) {
        if matches!(client.lease, Lease::Asked(..)) {
            return;
        }
        let Some(first) = client.http().works.iter().position(|work| !work.is_sent()) else { return };
        for number in first.. {
            let Some(work) = client.http().works.get_mut(number) else { break };
            if let Some(what) = work.call.subscription() {
                return self.begin_events(me, client, what, out);
            }
            // It is out of the client's hands meanwhile.
            let mut call = std::mem::take(&mut work.call);
            let (mut next, access) = (work.next, Arc::clone(&work.access));
            let outcome = self.send(me, client, &mut call, &mut next, &access, servers, out);
            let keeping = client.keeping;
            let work = &mut client.http().works[number];
            (work.call, work.next) = (call, next);
            match outcome {
                Ok(true) if keeping => {
                    let work = client.http().works.pop_back().expect("it was just sent");
                    client.set_stage(Stage::Events(Box::new(Events::new(work.manner))));
                    return;
                }
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => work.give_up(&error),
            }
        }
    }

    /// Begins to pass on messages. The request is the only one of its connection.
    fn begin_events(&self, me: ClientTag, client: &mut Client, what: Subscription, out: &mut Outbox) {
        let work = client.http().works.pop_back().expect("a request that was just seen");
        (client.user, client.database) = (Arc::clone(&work.access.user), work.access.database);
        client.set_stage(Stage::Events(Box::new(Events::new(work.manner.clone()))));
        let words = resp::parts(&work.call.wire);
        if let Err(why) = self.change_subscriptions(me, client, what, &words[1..], out) {
            client.deny(me, &work.manner, &Denied::new(503, why), out);
        }
    }

    /// Sends a request's commands. `Ok(false)`: the rest has to wait; `Err`: there is no server for it, and why.
    #[allow(clippy::too_many_arguments)]
    fn send(
        &self,
        me: ClientTag,
        client: &mut Client,
        call: &mut Call,
        next: &mut usize,
        access: &Access,
        servers: &mut dyn Sessions<ServerTag, Server>,
        out: &mut Outbox,
    ) -> Result<bool, Box<str>> {
        if client.user != access.user || client.database != access.database {
            // The replies to the requests of another come first.
            if client.lease != Lease::None {
                client.held_back = true;
                return Ok(false);
            }
            (client.user, client.database) = (Arc::clone(&access.user), access.database);
        }
        let last = call.commands.len().saturating_sub(1);
        let alone = call.wire.len() as u64 >= STREAM_FROM;
        while let Some(command) = call.commands.get(*next) {
            let Command::Send(span) = command else {
                *next += 1;
                continue;
            };
            let kind = match call.shape {
                Shape::Transaction if *next == 0 => Kind::Multi,
                Shape::Transaction if *next == last => Kind::Ending,
                Shape::Events => Kind::Keeping,
                _ => Kind::Ordinary,
            };
            match self.server_for(me, client, servers, kind, alone, out) {
                Some((tag, server)) => {
                    client.note(me, tag, server, kind, out);
                    out.insert(Peer::Server(tag), |to| to.extend_from_slice(&call.wire[span.clone()]));
                    *next += 1;
                }
                None => return client.failing.take().map_or(Ok(false), Err),
            }
        }
        Ok(true)
    }
}

/// Whether somebody shows a token, right or wrong.
fn has_token(head: &Head, target: &Target, rules: &HttpRules) -> bool {
    head.token.is_some() || (rules.token_in_query && target.token.is_some())
}

fn manner(head: &Head, rules: &HttpRules) -> Manner {
    let origin = head.origin.as_deref().and_then(|origin| match &*rules.origins {
        [any] if any == "*" => Some("*"),
        origins => origins.iter().any(|known| known == origin).then_some(origin),
    });
    Manner { keep_alive: head.keep_alive, head_only: head.method == Method::Head, origin: origin.map(str::to_owned) }
}

impl Client {
    fn http(&mut self) -> &mut Rest {
        self.rest.as_mut().expect("it speaks HTTP")
    }

    fn set_stage(&mut self, stage: Stage) {
        self.http().stage = stage;
    }

    /// A part of a reply, if the client speaks HTTP. False if it does not: then the bytes are its own.
    pub(crate) fn hear(&mut self, bytes: &[u8], over: bool) -> bool {
        let Some(rest) = &mut self.rest else { return false };
        if let Some(work) = rest.works.iter_mut().find_map(|work| work.is_waiting().then_some(work)) {
            work.hear(bytes, over);
        }
        true
    }

    /// What comes from a server that is the client's own, if the client speaks HTTP. False if it does not.
    pub(crate) fn hear_events(&mut self, me: ClientTag, bytes: &[u8], out: &mut Outbox) -> bool {
        let Some(rest) = &mut self.rest else { return false };
        let Stage::Events(events) = &mut rest.stage else { return true };
        if self.closing {
            return true;
        }
        let mut denied = None;
        out.insert(Peer::Client(me), |to| denied = events.take(bytes, to).err());
        if let Some(denied) = denied {
            let manner = events.manner().clone();
            if events.has_begun() {
                self.close(me, CloseReason::Error(Blame::Server, denied.error), out);
            } else {
                self.deny(me, &manner, &denied, out);
            }
        }
        true
    }

    /// Answers requests all of whose results are known.
    pub(crate) fn answer(&mut self, me: ClientTag, out: &mut Outbox) {
        let Some(rest) = &mut self.rest else { return };
        let (mut ends, mut answered) = (false, false);
        while let Some(work) = rest.works.front_mut()
            && !ends
            && work.is_done()
        {
            let mut work = rest.works.pop_front().expect("seen above");
            answered = true;
            match work.respond.take() {
                Some(mut respond) => respond.answer(work.answer()),
                None => {
                    ends = !work.manner.keep_alive;
                    out.insert(Peer::Client(me), |to| work.answer().write(to));
                }
            }
        }
        if let Stage::Two(h2) = &mut rest.stage {
            h2.turn();
            out.insert(Peer::Client(me), |to| h2.drain(to));
        }
        if ends {
            self.close(me, CloseReason::Done, out);
        } else if rest.leaving {
            self.leave_if_answered(me, out);
        } else if answered && rest.works.is_empty() && self.lease == Lease::None {
            out.push(Effect::Standing { client: me, standing: self.standing() });
        }
    }

    /// Ends a connection of HTTP/2 that is not wanted any more, as soon as nothing is under way.
    fn leave_if_answered(&mut self, me: ClientTag, out: &mut Outbox) {
        let rest = self.http();
        if !rest.leaving || !rest.works.is_empty() {
            return;
        }
        if let Stage::Two(h2) = &mut rest.stage {
            h2.say_goodbye();
            out.insert(Peer::Client(me), |to| h2.drain(to));
        }
        self.close(me, CloseReason::Done, out);
    }

    /// The rest of a request that was answered already.
    fn drop_rest(&mut self, framing: Framing) {
        self.set_stage(Stage::Drop(match framing {
            Framing::Length(length) => length.min(MAX_DROPPED),
            Framing::Chunked => MAX_DROPPED,
        }));
    }

    /// Tells why a request of HTTP/1.1 is not carried out, when what follows cannot be told from the rest of it, or is not wanted: the
    /// connection ends.
    fn deny(&mut self, me: ClientTag, manner: &Manner, denied: &Denied, out: &mut Outbox) -> (usize, bool) {
        let manner = Manner { keep_alive: false, ..manner.clone() };
        out.insert(Peer::Client(me), |to| Answer::denied(&manner, denied).write(to));
        let text = format!("HTTP {}: {}", denied.status, denied.error);
        self.close(me, CloseReason::Error(Blame::Client, text), out);
        (0, false)
    }

    /// The same, once the rest of the request has come.
    fn deny_and_drop(&mut self, me: ClientTag, manner: &Manner, denied: &Denied, framing: Framing, out: &mut Outbox) {
        let manner = Manner { keep_alive: false, ..manner.clone() };
        out.insert(Peer::Client(me), |to| Answer::denied(&manner, denied).write(to));
        self.drop_rest(framing);
    }

    /// [`fail`](Client::fail) in HTTP. False if the client does not speak it.
    pub(super) fn fail_http(&mut self, me: ClientTag, error: &str, out: &mut Outbox) -> bool {
        let Some(rest) = &self.rest else { return false };
        let denied = Denied::new(400, error);
        if let Stage::Two(_) = rest.stage {
            self.leave_http(me, &denied, out);
        } else {
            self.deny(me, &Manner::default(), &denied, out);
        }
        true
    }

    /// The server is gone that replies were due from. False if the client does not speak HTTP.
    pub(super) fn lose_http(&mut self, me: ClientTag, out: &mut Outbox) -> bool {
        let Some(rest) = &mut self.rest else { return false };
        if let Stage::Events(_) = rest.stage {
            self.close(me, CloseReason::Error(Blame::Server, LOST.to_owned()), out);
            return true;
        }
        for work in &mut rest.works {
            if work.is_waiting() {
                work.lose();
            }
        }
        self.answer(me, out);
        true
    }

    /// The client has to go. False if it does not speak HTTP.
    pub(crate) fn refuse_http(&mut self, me: ClientTag, why: &Refusal, out: &mut Outbox) -> bool {
        let Some(rest) = &mut self.rest else { return false };
        let mut denied = Denied::new(503, refusal::of_refusal(why));
        match why {
            // It is told in the answer to what it asks first.
            Refusal::TooManyClients { .. } => {
                denied.retry_after = Some(1);
                rest.refusal = Some(Box::new(denied));
                return true;
            }
            Refusal::Throttled { retry_after } => {
                denied.status = 429;
                denied.retry_after = Some(retry_after.as_secs_f64().ceil() as u64);
                rest.refusal = Some(Box::new(denied));
                return true;
            }
            Refusal::QueryTimeout => denied.status = 504,
            _ => {}
        }
        self.leave_http(me, &denied, out);
        true
    }

    /// Ends the connection. Between requests its end says it all: clients of HTTP connect again.
    fn leave_http(&mut self, me: ClientTag, denied: &Denied, out: &mut Outbox) {
        let rest = self.http();
        let works = std::mem::take(&mut rest.works);
        for work in works {
            let answer = Answer::denied(&Manner { keep_alive: false, ..work.manner }, denied);
            match work.respond {
                Some(mut respond) => respond.answer(answer),
                None => out.insert(Peer::Client(me), |to| answer.write(to)),
            }
        }
        if let Stage::Two(h2) = &mut rest.stage {
            h2.say_goodbye();
            out.insert(Peer::Client(me), |to| h2.drain(to));
        }
        self.close(me, CloseReason::Done, out);
    }
}
