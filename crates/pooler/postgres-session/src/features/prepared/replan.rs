//! "cached plan must not change result type": a server says so when a table has changed under a named statement. Where
//! the client cannot notice, the statement is parsed again there and used again, and the client is not told. That is so
//! when Bind, perhaps Describe of its portal, Execute and Sync are all that the client has asked for, outside a
//! transaction, and when it was never told the statement's columns. The server says it when it reads the Bind, before
//! anything is executed, so that nothing is done twice. It knows no texts.

use crate::{features::prepared::named, session::Link};

/// The server is ready: a request that it has refused is sent again.
pub(crate) fn repeat(link: &mut Link<'_>) -> bool {
    let Some(replan) = link.server.statements.take_refused() else { return false };
    let (statement, bytes, count) = replan.into_request();
    named::ensure_prepared(link, &statement);
    link.write_to_server(|to| to.extend_from_slice(&bytes));
    (0..count).for_each(|_| link.server.exchange.enter_extended());
    link.server.exchange.enter_sync();
    link.server.statements.end_pipeline();
    true
}
