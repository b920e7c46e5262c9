//! A client that speaks HTTP: its requests go to servers as commands, one request after another.
//!
//! A request is answered when all its replies have come, so that a server that is lost on the way is an error in an answer, and
//! never half of one. The bytes of a request are consumed when its commands have been sent: until then the driver keeps the last of
//! them, and hands them over again when there is a server.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use protocol::{Blame, ClientTag, CloseReason, Effect, Input, Outbox, Peer, Refusal, ServerTag, Sessions};

use super::{Client, passing::STREAM_FROM};
use crate::{
    HttpRules, Redis, Server,
    command::Kind,
    refusal,
    rest::{
        Denied, MAX_ANSWER,
        answer::{self, Content, Manner},
        body::Body,
        call::{self, Call, Command, Shape, Target},
        events::Events,
        head::{self, Form, Framing, Head, MAX_HEAD, Method},
        json,
        rules::Access,
    },
    server::LOST,
};

/// Bytes of a request that are dropped before its connection is closed all the same.
const MAX_DROPPED: u64 = 64 * 1024 * 1024;

/// What is told when a server was lost with replies that were due.
const UNKNOWN: &str = "ERR Poolhouse: the connection to Redis was lost; whether the command was executed is not known";

/// What a client that speaks HTTP has beside others.
#[derive(Default)]
pub(crate) struct Rest {
    listener: u16,
    /// It is to be sent away as soon as it asks something.
    refusal: Option<Box<Denied>>,
    stage: Stage,
}

#[derive(Default)]
enum Stage {
    /// The head of a request is next.
    #[default]
    Head,
    /// A body comes in pieces.
    Body(Box<Upload>),
    /// Commands are under way.
    Work(Box<Work>),
    /// Messages come until the connection ends.
    Events(Box<Events>),
    /// The rest of a request that was answered already: so many bytes are dropped before the connection ends. Who closes on unread
    /// bytes resets the connection, and the answer may be lost with it.
    Drop(u64),
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

/// A request that is being carried out.
struct Work {
    manner: Manner,
    form: Form,
    call: Call,
    /// What of the input belongs to it and is not consumed yet.
    span: usize,
    /// The next command to send.
    next: usize,
    /// Commands whose results are known.
    known: usize,
    /// The beginning of a reply.
    partial: Vec<u8>,
    /// The results so far, as they will be sent.
    body: Vec<u8>,
    status: u16,
    /// Why none of the results is told.
    denied: Option<Denied>,
    /// What names the state behind this request.
    token: u64,
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
        let mut at = 0;
        while at < input.bytes.len() && !client.closing {
            let bytes = &input.bytes[at..];
            let Some(rest) = &mut client.rest else { unreachable!("it speaks HTTP") };
            let (used, go_on) = match std::mem::take(&mut rest.stage) {
                Stage::Head => self.begin(me, client, bytes, out),
                Stage::Body(upload) => self.upload(me, client, upload, bytes, out),
                Stage::Drop(left) => {
                    if left <= bytes.len() as u64 {
                        client.close(me, CloseReason::Done, out);
                    }
                    client.set_stage(Stage::Drop(left.saturating_sub(bytes.len() as u64)));
                    return input.bytes.len();
                }
                Stage::Work(work) if work.span == 0 => {
                    rest.stage = Stage::Work(work);
                    client.held_back = true;
                    break;
                }
                Stage::Events(events) => {
                    rest.stage = Stage::Events(events);
                    return input.bytes.len();
                }
                Stage::Work(mut work) => {
                    let sent = self.send(me, client, &mut work, servers, out);
                    let used = if sent { std::mem::take(&mut work.span) } else { 0 };
                    client.set_stage(match client.keeping {
                        true => Stage::Events(Box::new(Events::new(work.manner))),
                        false => Stage::Work(work),
                    });
                    client.answer(me, out);
                    (used, sent)
                }
            };
            at += used;
            if !go_on {
                break;
            }
        }
        if client.closing { input.bytes.len() } else { at }
    }

    /// Reads a request from its beginning. Returns what was consumed, and whether there is more to do.
    fn begin(&self, me: ClientTag, client: &mut Client, bytes: &[u8], out: &mut Outbox) -> (usize, bool) {
        let head = match head::read(bytes) {
            Ok(Some(head)) => head,
            // The driver holds at least twice as much.
            Ok(None) if bytes.len() < MAX_HEAD => return (0, false),
            Ok(None) => return client.deny(me, &Manner::default(), &Denied::new(431, "the head has no end"), out),
            Err(denied) => return client.deny(me, &Manner::default(), &denied, out),
        };
        let rest = client.rest.as_mut().expect("it speaks HTTP");
        if let Some(denied) = rest.refusal.take() {
            return client.deny(me, &Manner::default(), &denied, out);
        }
        let Some(rules) = self.directory.http(rest.listener) else {
            return client.deny(
                me,
                &Manner::default(),
                &Denied::new(503, "this address does not serve HTTP any more"),
                out,
            );
        };
        let manner = manner(&head, &rules);
        if head.method == Method::Options && head.framing == Framing::Length(0) {
            out.insert(Peer::Client(me), |to| answer::permit(to, &manner));
            return (head.length, true);
        }
        let target = Target::read(&head.target);
        let access = match self.access(me, &head, &target, &rules, out) {
            Ok(access) => access,
            Err(denied) => return client.deny(me, &manner, &denied, out),
        };
        client.user = Arc::clone(&access.user);
        client.database = access.database;
        if client.stranger && !self.enter(me, client, Arc::clone(&access.user), out) {
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
                self.plan(me, client, request, &bytes[head.length..end], end, out)
            }
            _ => {
                if head.expects {
                    out.insert(Peer::Client(me), |to| to.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n"));
                }
                body.bytes.reserve(bytes.len() - head.length);
                client.set_stage(Stage::Body(Box::new(Upload { request, body })));
                (head.length, true)
            }
        }
    }

    /// Who asks.
    fn access(
        &self,
        me: ClientTag,
        head: &Head,
        target: &Target,
        rules: &HttpRules,
        out: &mut Outbox,
    ) -> Result<Arc<Access>, Denied> {
        let unauthorized = |why: &str| Err(Denied::new(401, format!("Unauthorized: {why}")));
        let token = match (&head.token, &target.token) {
            (Some(token), _) => token,
            (None, Some(_)) if !rules.token_in_query => {
                return unauthorized(
                    "a token in the URL ends up in logs and is not taken here: send `Authorization: Bearer TOKEN`",
                );
            }
            (None, Some(token)) => token,
            (None, None) => return unauthorized("send `Authorization: Bearer TOKEN`"),
        };
        if let Some(access) = self.directory.access(token) {
            return Ok(access);
        }
        out.push(Effect::AuthFailed { client: me });
        unauthorized("this token is not known")
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
            // The last piece stays where it is until the commands are sent.
            Ok(used) if upload.body.is_whole() => {
                let Upload { request, body } = *upload;
                self.plan(me, client, request, &body.bytes, used, out)
            }
            Ok(used) => {
                client.set_stage(Stage::Body(upload));
                (used, used > 0)
            }
        }
    }

    /// A request is there as a whole, `span` bytes of the input being its end.
    fn plan(
        &self,
        me: ClientTag,
        client: &mut Client,
        request: Request,
        body: &[u8],
        span: usize,
        out: &mut Outbox,
    ) -> (usize, bool) {
        let Request { method, target, form, manner, access } = request;
        let call = call::read(&target, method, body, form, &access.rules).and_then(|call| self.admit(call, &access));
        let call = match call {
            Ok(call) => call,
            Err(denied) => {
                client.say_denied(me, &manner, &denied, out);
                return (span, true);
            }
        };
        let token = match call.writes {
            true => self.writes.fetch_add(1, Relaxed) + 1,
            false => self.writes.load(Relaxed),
        };
        let work = Work {
            manner,
            form,
            call,
            span,
            next: 0,
            known: 0,
            partial: Vec::new(),
            body: Vec::new(),
            status: 200,
            denied: None,
            token,
        };
        client.set_stage(Stage::Work(Box::new(work)));
        (0, true)
    }

    /// Whether this much is to be done now.
    fn admit(&self, call: Call, access: &Access) -> Result<Call, Denied> {
        let refused = call.commands.iter().find_map(|command| match command {
            Command::Refused(error) => Some(error),
            Command::Send(_) => None,
        });
        if let (Shape::Transaction, Some(error)) = (call.shape, refused) {
            return Err(Denied::new(400, format!("EXECABORT Transaction discarded because of: {error}")));
        }
        if let Some(wait) = self.directory.spend(access, call.commands.len() as u32) {
            let mut denied = Denied::new(429, format!("ERR the token `{}` has used up its rate_limit", access.name));
            denied.retry_after = Some(wait.as_secs_f64().ceil().max(1.0) as u64);
            return Err(denied);
        }
        Ok(call)
    }

    /// Sends what is to be sent. False if that has to wait.
    fn send(
        &self,
        me: ClientTag,
        client: &mut Client,
        work: &mut Work,
        servers: &mut dyn Sessions<ServerTag, Server>,
        out: &mut Outbox,
    ) -> bool {
        let last = work.call.commands.len() - 1;
        let alone = work.call.wire.len() as u64 >= STREAM_FROM;
        while let Some(command) = work.call.commands.get(work.next) {
            let Command::Send(span) = command else {
                work.next += 1;
                continue;
            };
            let kind = match work.call.shape {
                Shape::Transaction if work.next == 0 => Kind::Multi,
                Shape::Transaction if work.next == last => Kind::Ending,
                Shape::Events => Kind::Keeping,
                _ => Kind::Ordinary,
            };
            match self.server_for(me, client, servers, kind, alone, out) {
                Some((tag, server)) => {
                    client.note(me, tag, server, kind, out);
                    out.insert(Peer::Server(tag), |to| to.extend_from_slice(&work.call.wire[span.clone()]));
                    work.next += 1;
                }
                None => match client.failing.take() {
                    Some(error) => work.give_up(&error),
                    None => return false,
                },
            }
        }
        true
    }
}

fn manner(head: &Head, rules: &HttpRules) -> Manner {
    let origin = head.origin.as_deref().and_then(|origin| match &*rules.origins {
        [any] if any == "*" => Some("*"),
        origins => origins.iter().any(|known| known == origin).then_some(origin),
    });
    Manner { keep_alive: head.keep_alive, head_only: head.method == Method::Head, origin: origin.map(str::to_owned) }
}

impl Work {
    /// There is no server for what has not been sent.
    fn give_up(&mut self, error: &str) {
        if self.call.shape != Shape::Pipeline {
            self.deny(503, error);
        }
        for command in &mut self.call.commands[self.next..] {
            *command = Command::Refused(error.to_owned());
        }
        self.next = self.call.commands.len();
    }

    fn deny(&mut self, status: u16, error: &str) {
        self.denied.get_or_insert_with(|| Denied::new(status, error));
    }

    /// A part of a reply has come; with it the reply is `over`, or not.
    fn hear(&mut self, bytes: &[u8], over: bool) {
        if self.body.len() + self.partial.len() + bytes.len() > MAX_ANSWER {
            self.deny(400, &format!("ERR the results have more than {MAX_ANSWER} bytes: ask for less at a time"));
        }
        if self.denied.is_some() {
            self.partial = Vec::new();
        } else if !over || !self.partial.is_empty() {
            self.partial.extend_from_slice(bytes);
        }
        if over {
            let reply = std::mem::take(&mut self.partial);
            self.result(if reply.is_empty() { bytes } else { &reply });
        }
    }

    /// The next command that was sent has this reply.
    fn result(&mut self, reply: &[u8]) {
        self.refusals();
        self.known += 1;
        match self.call.shape {
            _ if self.denied.is_some() => {}
            Shape::Transaction => self.step(reply),
            _ => self.write(|to, form| match form {
                Form::Resp2 => {
                    to.extend_from_slice(reply);
                    reply.starts_with(b"-")
                }
                _ => json::result(to, reply, form),
            }),
        }
    }

    /// One of a transaction's replies: what its commands did stands in the last one.
    fn step(&mut self, reply: &[u8]) {
        if self.known == self.call.commands.len() && json::results(&mut self.body, reply, self.form) {
            return;
        }
        // A command that cannot be queued spoils it; EXEC only tells that this has happened.
        if let Some(error) = reply.strip_prefix(b"-") {
            let error = String::from_utf8_lossy(error.trim_ascii_end()).into_owned();
            self.deny(400, &format!("EXECABORT Transaction discarded because of: {error}"));
        } else if self.known == self.call.commands.len() {
            self.deny(400, "EXECABORT Transaction discarded");
        }
    }

    /// Writes the results of commands that were not sent and are next.
    fn refusals(&mut self) {
        while let Some(Command::Refused(error)) = self.call.commands.get_mut(self.known) {
            let error = std::mem::take(error);
            self.known += 1;
            self.write(|to, form| {
                match form {
                    Form::Resp2 => crate::resp::error(to, &error),
                    _ => json::error(to, &error),
                }
                true
            });
        }
    }

    /// Writes one result; `write` says whether it is an error.
    fn write(&mut self, write: impl FnOnce(&mut Vec<u8>, Form) -> bool) {
        let list = self.call.shape == Shape::Pipeline && self.form != Form::Resp2;
        if list {
            self.body.push(if self.body.is_empty() { b'[' } else { b',' });
        }
        if write(&mut self.body, self.form) && self.call.shape == Shape::Single {
            self.status = 400;
        }
        if list && self.known == self.call.commands.len() {
            self.body.push(b']');
        }
    }

    /// Replies that were due will not come.
    fn lose(&mut self) {
        self.partial = Vec::new();
        if self.call.shape != Shape::Pipeline {
            self.deny(502, UNKNOWN);
            self.next = self.call.commands.len();
            return;
        }
        let sent = self.next;
        for command in &mut self.call.commands[self.known..sent] {
            if let Command::Send(_) = command {
                *command = Command::Refused(UNKNOWN.to_owned());
            }
        }
    }

    fn is_done(&mut self) -> bool {
        if self.span > 0 || self.next < self.call.commands.len() {
            return false;
        }
        self.refusals();
        self.known == self.call.commands.len()
    }
}

impl Client {
    fn set_stage(&mut self, stage: Stage) {
        self.rest.as_mut().expect("it speaks HTTP").stage = stage;
    }

    /// A part of a reply, if the client speaks HTTP. False if it does not: then the bytes are its own.
    pub(crate) fn hear(&mut self, bytes: &[u8], over: bool) -> bool {
        let Some(rest) = &mut self.rest else { return false };
        if let Stage::Work(work) = &mut rest.stage {
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

    /// Answers a request all of whose results are known.
    pub(crate) fn answer(&mut self, me: ClientTag, out: &mut Outbox) {
        let Some(Rest { stage: Stage::Work(work), .. }) = self.rest.as_deref_mut() else { return };
        // A transaction that is lost has no result for each of its commands.
        let given_up =
            work.denied.is_some() && self.due == 0 && work.span == 0 && work.next == work.call.commands.len();
        if !given_up && !work.is_done() {
            return;
        }
        let Stage::Work(work) = std::mem::take(&mut self.rest.as_mut().expect("seen above").stage) else {
            unreachable!("seen above")
        };
        match &work.denied {
            Some(denied) => self.say_denied(me, &work.manner, denied, out),
            None => {
                let content = if work.form == Form::Resp2 { Content::Bytes } else { Content::Json };
                out.insert(Peer::Client(me), |to| {
                    answer::write(to, &work.manner, work.status, content, Some(work.token), &work.body);
                });
                if !work.manner.keep_alive {
                    self.close(me, CloseReason::Done, out);
                }
            }
        }
    }

    /// Tells why a request is not carried out; the connection goes on if it may.
    fn say_denied(&mut self, me: ClientTag, manner: &Manner, denied: &Denied, out: &mut Outbox) {
        out.insert(Peer::Client(me), |to| answer::deny(to, manner, denied));
        if !manner.keep_alive {
            self.close(me, CloseReason::Done, out);
        }
    }

    /// The same, and what follows cannot be told from the rest of the request, or is not wanted: the connection ends.
    fn deny(&mut self, me: ClientTag, manner: &Manner, denied: &Denied, out: &mut Outbox) -> (usize, bool) {
        let manner = Manner { keep_alive: false, ..manner.clone() };
        out.insert(Peer::Client(me), |to| answer::deny(to, &manner, denied));
        let text = format!("HTTP {}: {}", denied.status, denied.error);
        self.close(me, CloseReason::Error(Blame::Client, text), out);
        (0, false)
    }

    /// The same, once the rest of the request has come.
    fn deny_and_drop(&mut self, me: ClientTag, manner: &Manner, denied: &Denied, framing: Framing, out: &mut Outbox) {
        out.insert(Peer::Client(me), |to| answer::deny(to, &Manner { keep_alive: false, ..manner.clone() }, denied));
        self.set_stage(Stage::Drop(match framing {
            Framing::Length(length) => length.min(MAX_DROPPED),
            Framing::Chunked => MAX_DROPPED,
        }));
    }

    /// [`fail`](Client::fail) in HTTP. False if the client does not speak it.
    pub(super) fn fail_http(&mut self, me: ClientTag, error: &str, out: &mut Outbox) -> bool {
        if self.rest.is_some() {
            self.deny(me, &Manner::default(), &Denied::new(400, error), out);
        }
        self.rest.is_some()
    }

    /// The server is gone that replies were due from. False if the client does not speak HTTP.
    pub(super) fn lose_http(&mut self, me: ClientTag, out: &mut Outbox) -> bool {
        let Some(rest) = &mut self.rest else { return false };
        match &mut rest.stage {
            Stage::Work(work) => work.lose(),
            Stage::Events(_) => {
                self.close(me, CloseReason::Error(Blame::Server, LOST.to_owned()), out);
                return true;
            }
            Stage::Head | Stage::Body(_) | Stage::Drop(_) => {}
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
        // Between requests the end of the connection says it all: clients of HTTP connect again.
        if matches!(rest.stage, Stage::Work(_)) {
            out.insert(Peer::Client(me), |to| answer::deny(to, &Manner::default(), &denied));
        }
        self.close(me, CloseReason::Done, out);
        true
    }
}
