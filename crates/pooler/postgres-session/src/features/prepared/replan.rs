//! "cached plan must not change result type": a server says so when a table has changed under a named statement. Where
//! the client cannot notice, the statement is parsed again there and used again, and the client is not told. That is so
//! when Bind, perhaps Describe of its portal, Execute and Sync are all that the client has asked for, outside a
//! transaction, and when it was never told the statement's columns. The server says it when it reads the Bind, before
//! anything is executed, so that nothing is done twice. It knows no texts.

use seam::{Outbox, Peer, ServerTag};

use crate::{features::prepared::named, session::Server};

impl Server {
    /// The server is ready: a request that it has refused is sent again.
    pub(crate) fn repeat(&mut self, me: ServerTag, out: &mut Outbox) -> bool {
        let Some(replan) = self.statements.take_refused() else { return false };
        let (statement, bytes, count) = replan.into_request();
        named::ensure_prepared((me, self), &statement, out);
        out.insert(Peer::Server(me), |to| to.extend_from_slice(&bytes));
        (0..count).for_each(|_| self.exchange.enter_extended());
        self.exchange.enter_sync();
        self.statements.end_pipeline();
        true
    }
}
