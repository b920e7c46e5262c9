//! "cached plan must not change result type": a server says so when a table has changed under a named statement. Where
//! nobody can notice, the statement is parsed again there and used again, instead of the client being told. Nobody can
//! when Bind, perhaps Describe of its portal, Execute and Sync are all that the client has asked for, outside a
//! transaction, and when it was never told the statement's columns. The server says it when it reads the Bind, before
//! anything is executed, so that nothing is done twice. It knows no texts.

use seam::{Outbox, Peer, ServerTag};

use crate::{
    features::prepared::named,
    session::{request::Arrived, server::Server},
};

impl Server {
    /// Any message of the client's is looked at.
    #[inline]
    pub(crate) fn keep_more(&mut self, message: &Arrived<'_>) {
        if let Some(replan) = &mut self.replan
            && replan.is_on()
        {
            replan.follow(message);
        }
    }

    /// The server has refused the request, and it is not sent again before the server is ready: what the client asks
    /// for next has to wait, or it would be answered first.
    #[inline]
    pub(crate) fn is_about_to_repeat(&self) -> bool {
        self.replan.as_ref().is_some_and(|replan| replan.is_refused())
    }

    /// The server sent this error: whether the request is to be repeated instead of passing that on.
    pub(crate) fn is_to_repeat(&mut self, error: &[u8]) -> bool {
        let Some(replan) = &mut self.replan else { return false };
        replan.is_to_repeat(&self.exchange, error)
    }

    /// The server is ready: if it has refused the request that was kept, that is sent again.
    pub(crate) fn repeat(&mut self, me: ServerTag, out: &mut Outbox) -> bool {
        let Some(replan) = self.replan.take_if(|replan| replan.is_refused()) else { return false };
        let (statement, bytes, count) = replan.into_request();
        named::bring((me, self), &statement, out);
        out.insert(Peer::Server(me), |to| to.extend_from_slice(&bytes));
        (0..count).for_each(|_| self.exchange.extended());
        self.exchange.sync();
        self.prepared.as_mut().expect("it has the statement").end_pipeline();
        true
    }
}
