//! A server's connection: its start, and answers on their way to clients.

use protocol::{Blame, ClientTag, CloseReason, Effect, Input, Outbox, Peer, ServerTag, Sessions, TlsFailure, Verdict};

use crate::{
    MongoDb,
    client::Client,
    directory::ServerLogin,
    login::{Next, ServerStart},
    wire::{self, HEADER, Header, MORE_TO_COME},
};

/// Bytes of an answer to what Poolhouse itself has asked.
const MAX_OWN: usize = 48 * 1024;

/// See the file's head.
pub struct Server {
    /// Which host it is.
    host: usize,
    role: Role,
    /// The last id of Poolhouse's own requests. They are negative: clients count up from zero.
    last_id: i32,
}

enum Role {
    Starting(Box<ServerStart>),
    Idle,
    Serving(Answer),
    /// It owes the answer to a question whether it is still there.
    Checked {
        asked: i32,
    },
    Monitor {
        key: u64,
        asked: Option<i32>,
    },
}

/// The answer to a client's request.
#[derive(Clone, Copy)]
struct Answer {
    client: ClientTag,
    /// The id of the request; of Poolhouse's own where the client wants no answer.
    asked: i32,
    /// The client wants none: the end of this one tells that its request, of this id, is done with.
    silent: Option<i32>,
    /// The client reads answers that it has not asked for one by one.
    exhausts: bool,
    /// Bytes of the message at hand that are still to come.
    left: usize,
    /// Another message follows it.
    more: bool,
    /// The client has got a part of it.
    begun: bool,
}

impl Server {
    pub(crate) fn start(me: ServerTag, login: ServerLogin, out: &mut Outbox) -> Self {
        let (host, tls) = (login.host, login.tls);
        let mut start = ServerStart::new(login);
        if tls {
            out.push(Effect::StartTls { peer: Peer::Server(me) });
        } else {
            out.insert(Peer::Server(me), |to| start.begin(to));
        }
        Self { host, role: Role::Starting(Box::new(start)), last_id: 0 }
    }

    pub(crate) fn secured(&mut self, me: ServerTag, out: &mut Outbox) {
        if let Role::Starting(start) = &mut self.role {
            out.insert(Peer::Server(me), |to| start.begin(to));
        }
    }

    pub(crate) fn tls_failed(failure: TlsFailure) -> CloseReason {
        CloseReason::StartFailed { permanent: failure.certificate, message: failure.message }
    }

    /// It is this client's for one request.
    pub(crate) fn serve(&mut self, client: ClientTag, asked: i32, exhausts: bool) {
        let silent = None;
        self.role = Role::Serving(Answer { client, asked, silent, exhausts, left: 0, more: false, begun: false });
    }

    /// Its client has gone. A request that wants no answer is carried out all the same; of any other the server notices that nobody waits
    /// for it when the connection ends.
    pub(crate) fn abandon(&mut self) -> Verdict {
        match self.role {
            Role::Serving(Answer { silent: Some(_), asked, .. }) => {
                self.role = Role::Checked { asked };
                Verdict::Reset
            }
            _ => Verdict::Discard,
        }
    }

    /// Its client wants no answer: its own question behind the request shows when that is done with.
    pub(crate) fn ask_for_sign(&mut self, me: ServerTag, out: &mut Outbox) {
        let sign = self.ping(me, out);
        if let Role::Serving(answer) = &mut self.role {
            answer.silent = Some(answer.asked);
            answer.asked = sign;
        }
    }

    fn ping(&mut self, me: ServerTag, out: &mut Outbox) -> i32 {
        self.last_id = self.last_id.checked_sub(1).unwrap_or(-1);
        out.insert(Peer::Server(me), |to| {
            wire::request(to, self.last_id, |body| {
                body.int32("ping", 1).text("$db", "admin");
            });
        });
        self.last_id
    }

    pub(crate) fn check(&mut self, me: ServerTag, out: &mut Outbox) {
        self.role = Role::Checked { asked: self.ping(me, out) };
    }

    fn fail(me: ServerTag, why: &str, out: &mut Outbox) {
        out.push(Effect::Close { peer: Peer::Server(me), reason: CloseReason::Error(Blame::Server, why.to_owned()) });
    }
}

impl MongoDb {
    /// Takes what a server says.
    pub(crate) fn hear_server(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        if let Role::Serving(Answer { left: 1.., .. }) = server.role {
            return relay(me, server, clients, input, out);
        }
        let header = match Header::read(input.bytes) {
            None => {
                out.need = HEADER;
                return 0;
            }
            Some(Ok(header)) => header,
            Some(Err(error)) => {
                Server::fail(me, error.0, out);
                return input.bytes.len();
            }
        };
        if let Role::Serving(answer) = &mut server.role {
            let Some(flags) = wire::flags(input.bytes) else {
                out.need = HEADER + 4;
                return 0;
            };
            // The second of several answers that nobody asked for one by one is to the first.
            let known = header.answers == answer.asked || (answer.exhausts && answer.begun);
            // There are servers that answer though nobody wants it.
            if !known && answer.silent != Some(header.answers) {
                Server::fail(me, "an answer to what was not asked", out);
                return input.bytes.len();
            }
            answer.more = header.op == wire::Op::Msg && flags & MORE_TO_COME != 0 || !known;
            answer.left = header.length;
            answer.begun = answer.silent.is_none();
            return relay(me, server, clients, input, out);
        }
        if header.length > MAX_OWN {
            Server::fail(me, "an answer that is too long", out);
            return input.bytes.len();
        }
        if input.bytes.len() < header.length {
            out.need = header.length;
            return 0;
        }
        self.hear_own(me, server, &input.bytes[..header.length], &header, out);
        header.length
    }

    /// The whole answer to what Poolhouse itself has asked.
    fn hear_own(&self, me: ServerTag, server: &mut Server, message: &[u8], header: &Header, out: &mut Outbox) {
        let answer = match wire::answered(message, header) {
            Ok(answer) => answer,
            Err(error) => return Server::fail(me, error.0, out),
        };
        let host = server.host;
        match &mut server.role {
            Role::Starting(start) => {
                if header.answers != start.asked() {
                    return Server::fail(me, "an answer to what was not asked", out);
                }
                let mut said = Vec::new();
                let mut learnt = None;
                let next = start.answered(answer, &self.keys, &mut said, |facts| learnt = Some(facts));
                out.insert(Peer::Server(me), |to| to.extend(&said));
                if let Some(facts) = learnt {
                    self.learn(host, facts, out);
                }
                match next {
                    Next::Wait => {}
                    Next::Failed { message, permanent } => {
                        let reason = CloseReason::StartFailed { permanent, message };
                        out.push(Effect::Close { peer: Peer::Server(me), reason });
                    }
                    Next::Done if start.login.monitors => {
                        let key = self.topology().new_key();
                        server.role = Role::Monitor { key, asked: None };
                        self.topology().watch(host, me, key);
                        out.push(Effect::Keep { server: me, briefly: false });
                    }
                    Next::Done => {
                        server.role = Role::Idle;
                        out.push(Effect::Authenticated { server: me });
                        out.push(Effect::Ready { server: me });
                    }
                }
            }
            Role::Checked { asked } if *asked == header.answers => {
                server.role = Role::Idle;
                out.push(Effect::Ready { server: me });
            }
            Role::Monitor { asked, .. } if *asked == Some(header.answers) => {
                *asked = None;
                match crate::facts::Facts::read(answer) {
                    Ok(facts) => self.learn(host, facts, out),
                    Err(error) => Server::fail(me, error.0, out),
                }
            }
            _ => Server::fail(me, "a message that nobody asked for", out),
        }
    }

    /// A monitor is to ask what its host is.
    pub(crate) fn beat(&self, me: ServerTag, server: &mut Server, key: u64, out: &mut Outbox) {
        let Role::Monitor { key: own, asked } = &mut server.role else { return };
        if *own != key {
            return;
        }
        if asked.is_some() {
            return Server::fail(me, "it does not answer", out);
        }
        server.last_id = server.last_id.checked_sub(1).unwrap_or(-1);
        *asked = Some(server.last_id);
        out.insert(Peer::Server(me), |to| {
            wire::old_request(to, server.last_id, |body| {
                body.int32("isMaster", 1);
            });
        });
    }

    pub(crate) fn server_left(
        &self,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        out: &mut Outbox,
    ) {
        match server.role {
            Role::Serving(answer) => {
                if let Some(client) = clients.get(answer.client) {
                    client.on_server_lost(answer.client, answer.begun, out);
                }
            }
            Role::Monitor { key, .. } => self.topology().end_watch(server.host, key),
            Role::Starting(_) | Role::Idle | Role::Checked { .. } => {}
        }
    }
}

impl MongoDb {
    /// A server that nobody holds is closed.
    pub(crate) fn server_retired(&self, server: &Server) {
        if let Role::Monitor { key, .. } = server.role {
            self.topology().end_watch(server.host, key);
        }
    }
}

/// Passes an answer on, as far as it is there.
fn relay(
    me: ServerTag,
    server: &mut Server,
    clients: &mut dyn Sessions<ClientTag, Client>,
    input: Input<'_>,
    out: &mut Outbox,
) -> usize {
    let Role::Serving(answer) = &mut server.role else { unreachable!("an answer is on its way") };
    let taken = answer.left.min(input.bytes.len());
    if answer.silent.is_none() {
        out.span(Peer::Client(answer.client), 0..taken);
    }
    answer.left -= taken;
    let answer = *answer;
    if answer.left == 0 && !answer.more {
        end(me, server, answer, clients, out);
    }
    taken
}

/// An answer has come to its end.
fn end(
    me: ServerTag,
    server: &mut Server,
    answer: Answer,
    clients: &mut dyn Sessions<ClientTag, Client>,
    out: &mut Outbox,
) {
    server.role = Role::Idle;
    let client = clients.get(answer.client).expect("who is served is here");
    let verdict = client.on_answered(answer.client, out);
    out.push(Effect::Release { server: me, verdict });
}
