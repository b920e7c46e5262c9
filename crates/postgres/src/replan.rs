//! "cached plan must not change result type": a server says so when a table has changed under a named statement. Where nobody
//! can notice, the statement is parsed again there and used again, instead of the client being told. Nobody can
//! when Bind, perhaps Describe of its portal, Execute and Sync are all that the client has asked for, outside a transaction, and
//! when it was never told the statement's columns. The server says it when it reads the Bind, before anything is
//! executed, so that nothing is done twice. It knows no texts.

use std::sync::Arc;

use protocol::{Outbox, Peer, ServerTag};

use crate::{
    named,
    server::Server,
    session::{request::Arrived, statements::Statement},
    wire::{
        error::Failure,
        message::{HEADER, front},
    },
};

/// Longest such request that is kept until it is answered, in bytes.
const MAX_KEPT: usize = 8 * 1024;

/// The last request of a holder's, if it is of that kind.
#[derive(Default)]
pub(crate) struct Replan {
    stage: Stage,
    statement: Option<Arc<Statement>>,
    /// What was forwarded. Its memory is kept for the next.
    bytes: Vec<u8>,
    /// Messages in it before the Sync.
    count: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    /// It is of another kind.
    #[default]
    Off,
    /// Its Sync is still to come.
    Begun,
    /// It is under way.
    Asked,
    /// The server said that the plan does not fit, and is not ready yet.
    Refused,
}

impl Server {
    /// A Bind of the statement is forwarded, in these parts, and entered into the exchange after this.
    pub(crate) fn keep_bind(&mut self, statement: &Arc<Statement>, parts: [&[u8]; 4]) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length > MAX_KEPT || !self.exchange.is_settled() || self.exchange.status() != crate::wire::message::IDLE {
            return;
        }
        let replan = self.replan.get_or_insert_default();
        replan.bytes.clear();
        parts.iter().for_each(|part| replan.bytes.extend_from_slice(part));
        replan.count = 1;
        replan.stage = Stage::Begun;
        if !replan.statement.as_ref().is_some_and(|known| Arc::ptr_eq(known, statement)) {
            replan.statement = Some(statement.clone());
        }
    }

    /// Any message of the client's is looked at.
    #[inline]
    pub(crate) fn keep_more(&mut self, message: &Arrived<'_>) {
        if let Some(replan) = &mut self.replan
            && replan.stage != Stage::Off
        {
            replan.follow(message);
        }
    }

    /// The server has refused the request, and it is not sent again before the server is ready: what the client asks for next has to wait,
    /// or it would be answered first.
    #[inline]
    pub(crate) fn is_about_to_repeat(&self) -> bool {
        self.replan.as_ref().is_some_and(|replan| replan.stage == Stage::Refused)
    }

    /// The server sent this error: whether the request is to be repeated instead of passing that on.
    pub(crate) fn is_to_repeat(&mut self, error: &[u8]) -> bool {
        let Some(replan) = &mut self.replan else { return false };
        let repeat = replan.stage == Stage::Asked
            && self.exchange.is_only_pipeline(replan.count)
            && Failure::is_outdated_plan(error);
        replan.stage = if repeat { Stage::Refused } else { Stage::Off };
        repeat
    }

    /// The server is ready: if it has refused the request that was kept, that is sent again.
    pub(crate) fn repeat(&mut self, me: ServerTag, out: &mut Outbox) -> bool {
        let Some(mut replan) = self.replan.take_if(|replan| replan.stage == Stage::Refused) else { return false };
        let statement = replan.statement.take().expect("a request was kept with its statement");
        named::bring((me, self), &statement, out);
        out.insert(Peer::Server(me), |to| to.extend_from_slice(&replan.bytes));
        (0..replan.count).for_each(|_| self.exchange.extended());
        self.exchange.sync();
        self.prepared.as_mut().expect("it has the statement").end_pipeline();
        true
    }
}

impl Replan {
    fn follow(&mut self, message: &Arrived<'_>) {
        let bytes = &message.bytes[message.at..message.end().min(message.bytes.len())];
        let fits = message.is_whole() && self.bytes.len() + bytes.len() <= MAX_KEPT;
        let belongs = match message.header.kind {
            front::DESCRIBE => bytes.get(HEADER) == Some(&b'P'),
            front::EXECUTE | front::SYNC => true,
            _ => false,
        };
        if self.stage != Stage::Begun || !fits || !belongs {
            self.stage = Stage::Off;
            return;
        }
        self.bytes.extend_from_slice(bytes);
        if message.header.kind == front::SYNC {
            self.stage = Stage::Asked;
        } else {
            self.count += 1;
        }
    }
}
