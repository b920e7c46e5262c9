//! A server's connection: what it is for, and what it owes.

use seam::{Blame, ClientTag, CloseReason, Effect, Outbox, Peer, PoolId, ServerTag, TlsFailure, Verdict};

use crate::{
    check::Check,
    chores::{UnderWay, Used},
    directory::ServerLogin,
    login::ServerStart,
    monitor::Monitor,
    reply::Reply,
    wire,
};

pub struct Server {
    host: usize,
    pool: PoolId,
    pub(crate) role: Role,
    /// Its pool has had a server that clients could use.
    used: Option<Used>,
    /// The last id of Poolhouse's own requests. They are negative: clients count up from zero.
    last_id: i32,
}

/// Bytes that the session of a server takes, at most.
const MAX_SERVER_SIZE: usize = 128;
const _: () = assert!(size_of::<Server>() <= MAX_SERVER_SIZE);

pub(crate) enum Role {
    Starting(Box<ServerStart>),
    Idle,
    Serving(Reply),
    /// It owes the answer to a request of Poolhouse itself.
    Checked(Check),
    Monitor(Monitor),
}

impl Server {
    pub(crate) fn start(me: ServerTag, pool: PoolId, login: ServerLogin, out: &mut Outbox) -> Self {
        let (host, tls) = (login.host, login.tls);
        let mut start = ServerStart::new(login);
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

    pub(crate) fn tls_failed(failure: TlsFailure) -> CloseReason {
        CloseReason::StartFailed { permanent: failure.certificate, message: failure.message }
    }

    /// Its login is over, and clients may use it.
    pub(crate) fn set_usable(&mut self, used: Used) {
        (self.role, self.used) = (Role::Idle, Some(used));
    }

    /// It serves this client for one request.
    pub(crate) fn serve(&mut self, client: ClientTag, request: i32, allows_exhaust: bool) {
        self.role = Role::Serving(Reply::new(client, request, allows_exhaust));
    }

    /// Its client has gone. A request that wants no answer is carried out all the same; of any other the server notices
    /// when the connection ends that nothing waits for its answer.
    pub(crate) fn abandon(&mut self) -> Verdict {
        match &self.role {
            Role::Serving(reply) => match reply.abandoned() {
                Some(check) => {
                    self.role = Role::Checked(check);
                    Verdict::Reset
                }
                None => Verdict::Discard,
            },
            _ => Verdict::Discard,
        }
    }

    /// Its client wants no answer: a ping behind the request shows when that has been carried out.
    pub(crate) fn ask_for_sign(&mut self, me: ServerTag, out: &mut Outbox) {
        if let Role::Serving(reply) = &self.role
            && reply.awaits(self.next_id())
        {
            // There are servers that answer though no answer is wanted: that is not to be taken for the sign.
            self.set_id_used(self.next_id());
        }
        let sign = self.ping(me, out);
        if let Role::Serving(reply) = &mut self.role {
            reply.await_sign(sign);
        }
    }

    /// The id of the next request of Poolhouse's own.
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

    /// It carries out a chore, and may be used when that is done.
    pub(crate) fn see_to(&mut self, me: ServerTag, chore: UnderWay, out: &mut Outbox) {
        let before = if let Role::Checked(check) = &self.role { check.chores() } else { 0 };
        let id = self.new_id();
        out.insert(Peer::Server(me), |to| wire::request(to, id, |body| chore.write(body)));
        self.role = Role::Checked(Check::of_chore(id, chore, before + 1));
    }

    pub(crate) fn check(&mut self, me: ServerTag, out: &mut Outbox) {
        self.role = Role::Checked(Check::of_ping(self.ping(me, out)));
    }

    pub(crate) fn fail(me: ServerTag, why: &str, out: &mut Outbox) {
        out.push(Effect::Close { peer: Peer::Server(me), reason: CloseReason::Error(Blame::Server, why.to_owned()) });
    }
}
