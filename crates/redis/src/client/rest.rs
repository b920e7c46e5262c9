//! A client that speaks HTTP: its requests go to servers as commands.
//!
//! A request is answered when all its replies have come, so that a server that is lost on the way is an error in an answer, and
//! never half of one. The last byte of the input is not consumed before the commands of all requests have been sent: for as long as the
//! driver holds something back, it hands it over again when there is a server.
//!
//! - [`one`]: requests of HTTP/1.1;
//! - [`two`]: requests of HTTP/2, and streams of messages;
//! - [`sending`]: commands to servers, and replies as answers;
//! - [`ending`]: whatever ends a connection.

mod ending;
mod one;
mod sending;
mod two;

use std::{collections::VecDeque, sync::Arc, sync::atomic::Ordering::Relaxed};

use protocol::{ClientTag, CloseReason, Input, Outbox, ServerTag, Sessions};

use self::two::Two;
use super::{Client, work::Work};
use crate::{
    HttpRules, Redis, Server,
    rest::{
        Denied,
        answer::Manner,
        body::Body,
        call::{self, Call, Command, Shape, Target},
        events::Events,
        head::{Form, Head, Method},
        rules::Access,
    },
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
    /// Bytes of commands that have been sent since no reply was due.
    unanswered: usize,
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
    Listening(Box<Listening>),
    /// HTTP/2, which keeps the state of its requests itself.
    Two(Box<Two>),
}

struct Upload {
    request: Request,
    body: Body,
}

/// A request whose answer does not end.
struct Listening {
    manner: Manner,
    /// The head of the answer has been sent.
    begun: bool,
    events: Events,
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

    /// Bytes that its requests hold which have come whole.
    fn weight(&self) -> usize {
        self.works.iter().map(Work::weight).sum()
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
                Stage::Two(two) => (self.streams(me, client, two, &input.bytes[at..], out), true),
                Stage::Listening(listening) => {
                    rest.stage = Stage::Listening(listening);
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

    fn rules(&self, client: &mut Client) -> Result<Arc<HttpRules>, Denied> {
        let rules = self.directory.http(client.http().listener);
        rules.ok_or_else(|| Denied::new(503, "this address does not serve HTTP any more"))
    }

    /// The first token that a connection shows lets it in.
    fn let_in(&self, me: ClientTag, client: &mut Client, access: &Access, out: &mut Outbox) -> Result<(), Denied> {
        if client.stranger {
            client.database = access.database;
            self.directory
                .route(&access.user, access.database, client.version)
                .map_err(|why| Denied::new(503, format!("ERR Poolhouse: {why}")))?;
            self.enter(me, client, Arc::clone(&access.user), out);
        }
        Ok(())
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

    fn two(&mut self) -> Option<&mut Two> {
        match &mut self.rest.as_mut()?.stage {
            Stage::Two(two) => Some(two),
            _ => None,
        }
    }
}
