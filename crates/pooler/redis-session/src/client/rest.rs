//! A client that speaks HTTP: its requests go to servers as commands.
//!
//! A request is answered when all its replies have come. So the loss of a server is an error in an answer, and never
//! half an answer. An answer goes to the driver in parts, the next one when the client has taken the one before. So
//! unread bytes stay here, and are counted with those of all clients ([`Room`]). The last byte of the input is not
//! consumed before the commands of all requests were sent, because the driver calls again only while it holds input.
//!
//! - [`door`]: the login by token;
//! - [`sending`]: commands to servers, and replies as answers;
//! - [`feeds`]: streams of messages over HTTP/2;
//! - [`revoking`]: the end of streams whose token is gone;
//! - [`ending`]: the ends of connections;
//! - [`work`]: the state of a request.

mod door;
mod ending;
mod feeds;
mod revoking;
mod sending;
mod work;

use std::{collections::VecDeque, sync::Arc, sync::atomic::Ordering::Relaxed};

use http_sansio::{Connection, Denied, Event, Method, Request, Room, Stream};
use seam::{ClientTag, Effect, Input, Outbox, ServerTag, Sessions, Standing};

pub(crate) use self::revoking::Streams;
use self::{door::Doorkeeper, feeds::Feeds, work::Work};
use super::Client;
use crate::{
    OverRate, Redis, Server,
    rest::{
        MAX_COMMAND, SERVICE,
        call::{self, Call, Command, Shape},
        form::Form,
        messages::Messages,
        rules::Access,
    },
};

/// The state of a client that speaks HTTP.
pub(crate) struct Rest {
    listener: u16,
    connection: Connection<Arc<Access>>,
    /// Requests that are executed, in order. HTTP/1.1 has one at a time.
    works: VecDeque<Work>,
    /// Bytes of commands that were sent since no reply was pending.
    unanswered: usize,
    /// The first byte of the next input was read already.
    ahead: bool,
    /// Bytes that were sent since the client is known to have taken all.
    untaken: usize,
    /// The driver was asked to tell when it has.
    asked: bool,
    /// Requests wait until the client has read some of its answers.
    blocked: bool,
    /// Unread bytes of answers at the last flush.
    unread: usize,
    /// HTTP/1.1: a request for messages, which come until the connection ends.
    listening: Option<Box<Listening>>,
    /// HTTP/2: requests for messages.
    feeds: Feeds,
    /// The key of posts about another configuration, once the client has requested messages.
    stream_key: Option<u64>,
}

/// A request whose answer does not end.
struct Listening {
    stream: Stream,
    access: Arc<Access>,
    /// The command in lower case.
    command: &'static str,
    begun: bool,
    messages: Messages,
}

impl Rest {
    pub(crate) fn new(listener: u16, room: Arc<Room>) -> Self {
        Self {
            listener,
            connection: Connection::new(&SERVICE, room),
            works: VecDeque::new(),
            unanswered: 0,
            ahead: false,
            untaken: 0,
            asked: false,
            blocked: false,
            unread: 0,
            listening: None,
            feeds: Feeds::default(),
            stream_key: None,
        }
    }

    /// Whether the client has unread answers.
    pub(crate) fn is_being_read(&self) -> bool {
        self.connection.unread() > 0
    }

    /// Whether a post with this key is about another configuration.
    pub(super) fn is_told_as(&self, key: u64) -> bool {
        self.stream_key == Some(key)
    }

    /// Bytes of memory that whole requests take.
    fn weight(&self) -> usize {
        self.works.iter().map(Work::weight).sum()
    }
}

impl Redis {
    pub(super) fn http_requests(
        &self,
        me: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        let total = input.bytes.len();
        if !input.unread {
            client.http().untaken = 0;
        }
        let mut at = usize::from(std::mem::take(&mut client.http().ahead));
        loop {
            self.send_all(me, client, servers, out);
            client.answer(me, out);
            if client.closing {
                return total;
            }
            if at == total {
                break;
            }
            if client.http().listening.is_some() {
                return total;
            }
            let used = self.read_http(me, client, &input.bytes[at..], out);
            at += used;
            if used == 0 {
                if !client.http().works.is_empty() {
                    client.replies.hold_input();
                }
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

    /// Reads requests. Returns the number of bytes that were consumed.
    fn read_http(&self, me: ClientTag, client: &mut Client, bytes: &[u8], out: &mut Outbox) -> usize {
        let (mut at, held) = (0, client.http().weight());
        loop {
            let mut door = Doorkeeper::new(&*self.directory, client);
            let (used, event) = client.http().connection.read(&bytes[at..], held, &mut door);
            at += used;
            if door.has_refused {
                out.push(Effect::AuthFailed { client: me });
            }
            if let Some((access, pool)) = door.entered {
                client.settings.set_database(access.database);
                client.log_in(me, Arc::clone(&access.user), pool, out);
            }
            match event {
                None => break,
                Some(Event::Uploading) => out.push(Effect::Standing { client: me, standing: Standing::Active }),
                Some(Event::Request(request)) => self.take_on(me, client, request, out),
            }
        }
        client.flush(me, out);
        at
    }

    /// Queues a request, or answers it at once.
    fn take_on(&self, me: ClientTag, client: &mut Client, request: Request<'_, Arc<Access>>, out: &mut Outbox) {
        let stream = request.stream;
        let rest = client.http();
        let work = self.work(request, rest.connection.has_streams());
        let work = work.and_then(|work| match rest.connection.may_hold(rest.weight() + work.weight()) {
            true => Ok(work),
            false => Err(Denied::crowded()),
        });
        match work {
            Ok(work) => rest.works.push_back(work),
            Err(denied) => {
                rest.connection.deny(stream, &denied);
                if !rest.connection.has_streams() {
                    out.push(Effect::Standing { client: me, standing: Standing::Idle });
                }
            }
        }
    }

    /// The work of a request. `among_others`: other requests share its connection.
    fn work(&self, request: Request<'_, Arc<Access>>, among_others: bool) -> Result<Work, Denied> {
        let Request { stream, method, target, fields, body, caller: access } = request;
        let form = Form::read(&fields)?;
        let call = call::read(&target, method, &body, form, &access.rules)?;
        if call.shape == Shape::Events && method == Method::Head {
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
        if among_others && call.shape == Shape::Events && call.subscription().is_none() {
            return Err(Denied::new(501, "ERR MONITOR comes over HTTP/1.1 only: it takes a whole connection"));
        }
        Ok(Work::new(stream, form, call, access, token))
    }

    /// Checks that a request is allowed now.
    fn admit(&self, call: &Call, access: &Access) -> Result<(), Denied> {
        let refused = call.commands.iter().find_map(|command| match command {
            Command::Refused(error) => Some(error),
            Command::Send(_) => None,
        });
        if let (Shape::Transaction, Some(error)) = (call.shape, refused) {
            return Err(Denied::new(400, format!("EXECABORT Transaction discarded because of: {error}")));
        }
        self.directory.spend(access, call.asked()).map_err(|over| over_rate(over, call, &access.name))
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
            let (asked, commands) = (call.asked(), if most == 1 { "command" } else { "commands" });
            let why = format!(
                "ERR this request has {asked} commands, and rate_limit = {most} lets the token `{token}` have {most} \
                 {commands} at once: send {most} at most in one request, or raise rate_limit. Nothing was carried out"
            );
            Denied::new(400, why)
        }
    }
}

impl Client {
    fn http(&mut self) -> &mut Rest {
        self.rest.as_mut().expect("it speaks HTTP")
    }

    /// Whether it may have several requests at a time (HTTP/2).
    fn has_streams(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.connection.has_streams())
    }
}
