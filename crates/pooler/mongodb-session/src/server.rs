//! A server's connection: what it is for, and what it owes.

use std::time::Duration;

use seam::{Blame, ClientTag, CloseReason, Effect, Outbox, Peer, PoolId, ServerTag, TlsFailure, Verdict};

use crate::{
    chores::{UnderWay, Used},
    directory::ServerLogin,
    login::ServerStart,
    scan::Scan,
    wire,
};

pub struct Server {
    pub(crate) host: usize,
    pub(crate) pool: PoolId,
    pub(crate) role: Role,
    /// It counts among those that clients have used.
    pub(crate) used: Option<Used>,
    /// The last id of Poolhouse's own requests. They are negative: clients count up from zero.
    pub(crate) last_id: i32,
}

pub(crate) enum Role {
    Starting(Box<ServerStart>),
    Idle,
    Serving(Answer),
    /// It owes the answer to a question whether it is still there.
    Checked {
        asked: i32,
        /// The request of a client that has left, which wanted no answer.
        silent: Option<i32>,
        /// What it was asked to see to.
        under_way: Option<Box<UnderWay>>,
        /// Chores that it was given, one after the other.
        chores: u32,
    },
    Monitor {
        key: u64,
        /// The id of what it was asked, and when.
        asked: Option<(i32, Duration)>,
        /// It is to be asked again: what it answers may have been true before.
        again: bool,
    },
}

/// The answer to a client's request.
#[derive(Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) client: ClientTag,
    /// The id of the request; of Poolhouse's own where the client wants no answer.
    pub(crate) asked: i32,
    /// The client wants none: the end of this one tells that its request, of this id, is done with.
    pub(crate) silent: Option<i32>,
    /// The client reads answers that it has not asked for one by one.
    pub(crate) exhausts: bool,
    /// Bytes of the message at hand, and how many of them are still to come.
    pub(crate) length: usize,
    pub(crate) left: usize,
    /// The id of a cursor is looked for in it.
    pub(crate) scan: Option<Scan>,
    /// The flags of the message at hand.
    pub(crate) flags: u32,
    /// The message at hand is the first one.
    pub(crate) first: bool,
    /// Another message follows it.
    pub(crate) more: bool,
    /// The client has got a part of it.
    pub(crate) begun: bool,
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
        let (length, left, flags, scan, silent) = (0, 0, 0, None, None);
        let (first, more, begun) = (true, false, false);
        let answer = Answer { client, asked, silent, exhausts, length, left, flags, scan, first, more, begun };
        self.role = Role::Serving(answer);
    }

    /// Its client has gone. A request that wants no answer is carried out all the same; of any other the server notices
    /// that nobody waits for it when the connection ends.
    pub(crate) fn abandon(&mut self) -> Verdict {
        match self.role {
            // In the middle of an answer that nobody wants the next bytes would be taken for the beginning of another.
            Role::Serving(Answer { silent: Some(silent), asked, left: 0, .. }) => {
                self.role = Role::Checked { asked, silent: Some(silent), under_way: None, chores: 0 };
                Verdict::Reset
            }
            _ => Verdict::Discard,
        }
    }

    /// Its client wants no answer: its own question behind the request shows when that is done with.
    pub(crate) fn ask_for_sign(&mut self, me: ServerTag, out: &mut Outbox) {
        if let Role::Serving(answer) = &self.role
            && answer.asked == self.next_id()
        {
            // There are servers that answer though nobody wants it: that is not to be taken for the sign.
            self.last_id = self.next_id();
        }
        let sign = self.ping(me, out);
        if let Role::Serving(answer) = &mut self.role {
            answer.silent = Some(answer.asked);
            answer.asked = sign;
        }
    }

    pub(crate) fn next_id(&self) -> i32 {
        self.last_id.checked_sub(1).unwrap_or(-1)
    }

    pub(crate) fn ping(&mut self, me: ServerTag, out: &mut Outbox) -> i32 {
        self.last_id = self.next_id();
        out.insert(Peer::Server(me), |to| {
            wire::request(to, self.last_id, |body| {
                body.int32("ping", 1).text("$db", "admin");
            });
        });
        self.last_id
    }

    /// It sees to something that no client waits for, and may be used when that is done.
    pub(crate) fn see_to(&mut self, me: ServerTag, chore: UnderWay, out: &mut Outbox) {
        let before = if let Role::Checked { chores, .. } = self.role { chores } else { 0 };
        self.last_id = self.next_id();
        out.insert(Peer::Server(me), |to| wire::request(to, self.last_id, |body| chore.write(body)));
        let under_way = Some(Box::new(chore));
        self.role = Role::Checked { asked: self.last_id, silent: None, under_way, chores: before + 1 };
    }

    pub(crate) fn check(&mut self, me: ServerTag, out: &mut Outbox) {
        self.role = Role::Checked { asked: self.ping(me, out), silent: None, under_way: None, chores: 0 };
    }

    pub(crate) fn fail(me: ServerTag, why: &str, out: &mut Outbox) {
        out.push(Effect::Close { peer: Peer::Server(me), reason: CloseReason::Error(Blame::Server, why.to_owned()) });
    }
}
