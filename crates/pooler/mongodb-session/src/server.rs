//! A server's connection: its role, and the requests that Poolhouse itself sends over it.

use seam::{Blame, ClientTag, CloseReason, Effect, Outbox, Peer, PoolId, ServerTag, Verdict};

use crate::{
    cleanup_tasks::{AssignedTask, PoolInUse},
    directory::ServerLogin,
    login::ServerHandshake,
    monitor::Monitor,
    owed_reply::OwedReply,
    reply::Reply,
    wire,
};

pub struct Server {
    host: usize,
    pool: PoolId,
    pub(crate) role: Role,
    /// Marks its pool as in use while the server lives.
    used: Option<PoolInUse>,
    /// The last id of Poolhouse's own requests. They are negative: clients count up from zero.
    last_id: i32,
}

const MAX_SERVER_SIZE: usize = 128;
const _: () = assert!(size_of::<Server>() <= MAX_SERVER_SIZE);

pub(crate) enum Role {
    Starting(Box<ServerHandshake>),
    Idle,
    Serving(Reply),
    OwesReply(OwedReply),
    Monitor(Monitor),
}

impl Server {
    pub(crate) fn start(me: ServerTag, pool: PoolId, login: ServerLogin, out: &mut Outbox) -> Self {
        let (host, tls) = (login.host, login.tls);
        let mut start = ServerHandshake::new(login);
        if tls {
            out.push(Effect::StartTls { peer: Peer::Server(me) });
        } else {
            out.insert(Peer::Server(me), |to| start.begin(to));
        }
        Self { host, pool, role: Role::Starting(Box::new(start)), used: None, last_id: 0 }
    }

    pub(crate) fn host(&self) -> usize {
        self.host
    }

    pub(crate) fn pool(&self) -> PoolId {
        self.pool
    }

    pub(crate) fn secured(&mut self, me: ServerTag, out: &mut Outbox) {
        if let Role::Starting(start) = &mut self.role {
            out.insert(Peer::Server(me), |to| start.begin(to));
        }
    }

    /// The login is complete, and clients may use the server.
    pub(crate) fn set_usable(&mut self, used: PoolInUse) {
        (self.role, self.used) = (Role::Idle, Some(used));
    }

    pub(crate) fn serve(&mut self, client: ClientTag, request: i32, allows_exhaust: bool) {
        self.role = Role::Serving(Reply::new(client, request, allows_exhaust));
    }

    /// Its client has gone. An unacknowledged write is carried out all the same. Any other request is aborted by the
    /// host when the connection closes.
    pub(crate) fn abandon(&mut self) -> Verdict {
        match &self.role {
            Role::Serving(reply) => match reply.abandoned() {
                Some(owed) => {
                    self.role = Role::OwesReply(owed);
                    Verdict::Reset
                }
                None => Verdict::Discard,
            },
            _ => Verdict::Discard,
        }
    }

    /// The client wants no reply: the reply to a ping behind its request tells when that has been carried out.
    pub(crate) fn ping_behind_request(&mut self, me: ServerTag, out: &mut Outbox) {
        if let Role::Serving(reply) = &self.role
            && reply.awaits(self.next_id())
        {
            // Some servers reply to unacknowledged requests: such a reply must not be taken for that to the ping.
            self.set_id_used(self.next_id());
        }
        let ping_id = self.ping(me, out);
        if let Role::Serving(reply) = &mut self.role {
            reply.await_ping(ping_id);
        }
    }

    pub(crate) fn next_id(&self) -> i32 {
        self.last_id.checked_sub(1).unwrap_or(-1)
    }

    pub(crate) fn set_id_used(&mut self, id: i32) {
        self.last_id = id;
    }

    fn new_id(&mut self) -> i32 {
        self.set_id_used(self.next_id());
        self.last_id
    }

    fn ping(&mut self, me: ServerTag, out: &mut Outbox) -> i32 {
        let id = self.new_id();
        out.insert(Peer::Server(me), |to| {
            wire::request(to, id, |body| {
                body.int32("ping", 1).text("$db", "admin");
            });
        });
        id
    }

    /// Sends a cleanup task. The server may be used when it has replied.
    pub(crate) fn assign(&mut self, me: ServerTag, task: AssignedTask, out: &mut Outbox) {
        let before = if let Role::OwesReply(owed) = &self.role { owed.tasks() } else { 0 };
        let id = self.new_id();
        out.insert(Peer::Server(me), |to| wire::request(to, id, |body| task.write(body)));
        self.role = Role::OwesReply(OwedReply::of_task(id, task, before + 1));
    }

    pub(crate) fn check(&mut self, me: ServerTag, out: &mut Outbox) {
        self.role = Role::OwesReply(OwedReply::of_ping(self.ping(me, out)));
    }

    pub(crate) fn fail(me: ServerTag, why: &str, out: &mut Outbox) {
        out.push(Effect::Close { peer: Peer::Server(me), reason: CloseReason::Error(Blame::Server, why.to_owned()) });
    }
}
