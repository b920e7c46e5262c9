//! A client that speaks HTTP: its requests go to servers as commands.
//!
//! A request is answered when all its replies have come. So the loss of a server is an error in an answer, and never
//! half an answer. An answer goes to the driver in parts, the next one when the client has taken the one before. So
//! unread bytes stay here, and are counted with those of all clients ([`MemoryBudget`]). The last byte of the input is
//! not consumed before the commands of all requests were sent, because the driver calls again only while it holds
//! input.
//!
//! - [`token_login`]: the login by token;
//! - [`sending`]: commands to servers, and replies as answers;
//! - [`event_streams`]: streams of messages over HTTP/2;
//! - [`revoking`]: the end of streams whose token is gone;
//! - [`ending`]: the ends of connections;
//! - [`pending_request`]: the state of a request.

mod ending;
mod event_streams;
mod pending_request;
mod revoking;
mod sending;
mod token_login;

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use http_sansio::{Connection, Denied, InputEvent, MemoryBudget, Method, Request, Stream};
use seam::{Effect, Input, Outbox, Standing};

pub(crate) use self::revoking::StreamClients;
use self::{event_streams::EventStreams, pending_request::PendingRequest, token_login::TokenLogin};
use super::Client;
use crate::{
    OverRate, Redis, Servers,
    rest::{
        MAX_COMMAND, SERVICE,
        call::{self, Call, Command, RequestKind},
        messages::Messages,
        result_format::ResultFormat,
        rules::Access,
    },
};

pub(crate) struct HttpSession {
    listener: u16,
    connection: Connection<Arc<Access>>,
    requests: Requests,
    output: Output,
    messages: MessageRequests,
}

#[derive(Default)]
struct Requests {
    /// In order. HTTP/1.1 has one at a time.
    queue: VecDeque<PendingRequest>,
    /// Bytes of commands that were sent since no reply was pending.
    unanswered_bytes: usize,
    /// The first byte of the next input was read already.
    has_read_ahead: bool,
}

/// How far the client has read its answers.
#[derive(Default)]
struct Output {
    /// Bytes that were sent since the client is known to have taken all.
    untaken: usize,
    /// The driver was asked to tell when the client has taken them.
    awaits_flush: bool,
    /// Requests wait until the client has read some of its answers.
    is_behind: bool,
    /// Unread bytes of answers at the last flush.
    unread: usize,
}

#[derive(Default)]
struct MessageRequests {
    /// HTTP/1.1: its messages come until the connection ends.
    endless_answer: Option<Box<EndlessAnswer>>,
    /// HTTP/2.
    streams: EventStreams,
    /// The key of posts about another configuration, once the client has requested messages.
    key: Option<u64>,
}

/// A request whose answer does not end.
struct EndlessAnswer {
    stream: Stream,
    access: Arc<Access>,
    /// The command in lower case.
    command: &'static str,
    begun: bool,
    messages: Messages,
}

impl EndlessAnswer {
    /// Writes events, and begins the answer with the first of them.
    fn say(&mut self, events: &[u8], connection: &mut Connection<Arc<Access>>) {
        if !std::mem::replace(&mut self.begun, true) {
            connection.open_events(self.stream);
        }
        connection.send_events([self.stream], events);
    }
}

impl HttpSession {
    pub(crate) fn new(listener: u16, budget: Arc<MemoryBudget>) -> Self {
        Self {
            listener,
            connection: Connection::new(&SERVICE, budget),
            requests: Requests::default(),
            output: Output::default(),
            messages: MessageRequests::default(),
        }
    }

    pub(crate) fn is_being_read(&self) -> bool {
        self.connection.unflushed() > 0
    }

    /// Whether a post with this key is about another configuration.
    pub(super) fn has_stream_key(&self, key: u64) -> bool {
        self.messages.key == Some(key)
    }

    /// A server is lost, or will not answer: fails the requests that need it.
    fn lose_server(&mut self) {
        for request in &mut self.requests.queue {
            if request.needs_its_server() {
                request.on_server_lost();
            }
        }
    }

    /// Bytes of memory that the queued requests take, with the results that have come.
    fn held_bytes(&self) -> usize {
        self.requests.queue.iter().map(PendingRequest::held_bytes).sum()
    }
}

impl Redis {
    pub(super) fn http_requests(
        &self,
        client: &mut Client,
        servers: &mut Servers<'_>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        let total = input.bytes.len();
        if !input.unread {
            client.http_mut().output.untaken = 0;
        }
        let mut at = usize::from(std::mem::take(&mut client.http_mut().requests.has_read_ahead));
        loop {
            self.send_all(client, servers, out);
            client.answer(out);
            if client.closing {
                return total;
            }
            if at == total {
                break;
            }
            if client.http_mut().messages.endless_answer.is_some() {
                return total;
            }
            let used = self.read_http(client, &input.bytes[at..], out);
            at += used;
            if used == 0 {
                if !client.http_mut().requests.queue.is_empty() {
                    client.replies.hold_input();
                }
                break;
            }
        }
        if client.closing {
            return total;
        }
        let unsent = client.http_mut().requests.queue.iter().any(|request| !request.is_sent());
        client.http_mut().requests.has_read_ahead = unsent && at == total;
        if unsent && at == total { total - 1 } else { at }
    }

    /// Reads requests. Returns the number of bytes that were consumed.
    fn read_http(&self, client: &mut Client, bytes: &[u8], out: &mut Outbox) -> usize {
        let (mut at, held) = (0, client.http_mut().held_bytes());
        loop {
            let mut door = TokenLogin::new(&*self.directory, client);
            let (used, event) = client.http_mut().connection.read(&bytes[at..], held, &mut door);
            at += used;
            if door.has_refused {
                out.push(Effect::AuthFailed { client: client.tag });
            }
            if let Some((access, pool)) = door.entered {
                client.settings.set_database(access.database);
                client.log_in(Arc::clone(&access.user), pool, out);
            }
            match event {
                None => break,
                Some(InputEvent::Uploading) => {
                    out.push(Effect::Standing { client: client.tag, standing: Standing::Active })
                }
                Some(InputEvent::Request(request)) => self.queue_request(client, request, out),
            }
        }
        client.flush(out);
        at
    }

    fn queue_request(&self, client: &mut Client, request: Request<'_, Arc<Access>>, out: &mut Outbox) {
        let stream = request.stream;
        let http = client.http_mut();
        let request = self.read_request(request, http.connection.has_streams());
        let request =
            request.and_then(|request| match http.connection.try_hold(http.held_bytes() + request.held_bytes()) {
                true => Ok(request),
                false => Err(Denied::crowded()),
            });
        match request {
            Ok(request) => http.requests.queue.push_back(request),
            Err(denied) => {
                http.connection.deny(stream, &denied);
                if !http.connection.has_streams() {
                    out.push(Effect::Standing { client: client.tag, standing: Standing::Idle });
                }
            }
        }
    }

    /// Reads a request's commands, and checks that they are allowed. `among_others`: other requests share its
    /// connection.
    fn read_request(&self, request: Request<'_, Arc<Access>>, among_others: bool) -> Result<PendingRequest, Denied> {
        let Request { stream, method, target, fields, body, caller: access } = request;
        let format = ResultFormat::read(&fields)?;
        let call = call::read(&target, method, &body, format, &access.rules)?;
        if call.kind == RequestKind::Events && method == Method::Head {
            return Err(Denied::new(405, "ERR messages are a body, and HEAD wants none: ask with GET or POST"));
        }
        if call.largest() > MAX_COMMAND {
            return Err(Denied::new(413, format!("ERR a command may have {MAX_COMMAND} bytes over HTTP")));
        }
        self.admit(&call, &access)?;
        let token = match call.writes {
            true => self.writes.fetch_add(1, Relaxed) + 1,
            false => self.writes.load(Relaxed),
        };
        if among_others && call.kind == RequestKind::Events && call.subscription().is_none() {
            return Err(Denied::new(501, "ERR MONITOR comes over HTTP/1.1 only: it takes a whole connection"));
        }
        Ok(PendingRequest::new(stream, format, call, access, token))
    }

    fn admit(&self, call: &Call, access: &Access) -> Result<(), Denied> {
        let refused = call.commands.iter().find_map(|command| match command {
            Command::Refused(error) => Some(error),
            Command::Send(_) => None,
        });
        if let (RequestKind::Transaction, Some(error)) = (call.kind, refused) {
            return Err(Denied::new(400, format!("EXECABORT Transaction discarded because of: {error}")));
        }
        self.directory.spend(access, call.command_count()).map_err(|over| over_rate(over, call, &access.name))
    }
}

/// The answer to a request that exceeds the rate limit. After 429, clients try again, so a request that is too large
/// for any time gets another status.
fn over_rate(over: OverRate, call: &Call, token: &str) -> Denied {
    match over {
        OverRate::Wait(wait) => {
            let mut denied = Denied::new(429, format!("ERR the token `{token}` has used up its rate_limit"));
            denied.retry_after = Some(wait.as_secs_f64().ceil().max(1.0) as u64);
            denied
        }
        OverRate::Burst(most) => {
            let (count, commands) = (call.command_count(), if most == 1 { "command" } else { "commands" });
            let why = format!(
                "ERR this request has {count} commands, and rate_limit = {most} lets the token `{token}` have {most} \
                 {commands} at once: send {most} at most in one request, or raise rate_limit. Nothing was carried out"
            );
            Denied::new(400, why)
        }
    }
}

impl Client {
    fn http_mut(&mut self) -> &mut HttpSession {
        self.http.as_mut().expect("it speaks HTTP")
    }

    /// Whether it may have several requests at a time (HTTP/2).
    fn has_streams(&self) -> bool {
        self.http.as_ref().is_some_and(|http| http.connection.has_streams())
    }
}
