//! Making a server as it was when it had just started, whichever client used it.
//!
//! All of it is one transaction: see `preface` for what that is good for.

use seam::{Outbox, ServerTag, Verdict};

use crate::{
    directory::{PoolMode, ResetPolicy},
    exchange::Exchange,
    session::{Postgres, Purpose, Server, ServerSide, Soil},
    sql::{Reading, Settings},
    wire::{Failure, IDLE},
};

/// Without these words a transaction could wait, if the session made it deferrable by default.
pub(crate) const BEGIN: &[u8] = b"BEGIN ISOLATION LEVEL READ COMMITTED, NOT DEFERRABLE";

/// Statements that end a session's work and reset its state. RESET ALL does not reset the identity, which rules what
/// may be reset.
pub(crate) const RESET_STATEMENTS: [&[u8]; 8] = [
    b"RESET SESSION AUTHORIZATION",
    b"RESET ROLE",
    b"RESET ALL",
    b"CLOSE ALL",
    b"UNLISTEN *",
    b"DISCARD TEMP",
    b"DISCARD SEQUENCES",
    b"SELECT pg_catalog.pg_advisory_unlock_all()",
];

/// Appends SQL that, within a transaction, cleans a session and gives it the settings of `start`; with `statements`, it
/// deallocates them, too.
pub(crate) fn write(sql: &mut Vec<u8>, statements: bool, start: &Settings) {
    for piece in RESET_STATEMENTS {
        sql.extend_from_slice(piece);
        sql.push(b';');
    }
    if statements {
        sql.extend_from_slice(b"DEALLOCATE ALL;");
    }
    start.write_all(sql);
}

/// As [`write`], in a transaction of its own.
pub(crate) fn write_in_transaction(sql: &mut Vec<u8>, statements: bool, start: &Settings) {
    sql.extend_from_slice(BEGIN);
    sql.push(b';');
    write(sql, statements, start);
    sql.extend_from_slice(b"COMMIT");
}

impl Postgres {
    pub(crate) fn reset_server(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        if let Some(lookup) = server.work.as_mut().and_then(|work| work.lookup()) {
            // Nothing is left behind by that: it is clean when it has answered.
            lookup.abandoned = true;
            return;
        }
        let cleaned = server.mode == PoolMode::Session || !server.soil.is_clean();
        let statements = cleaned
            && (server.mode == PoolMode::Session
                || server.soil.contains(Soil::ALL)
                || server.connect_query.makes_objects());
        let mut cleaning = Vec::new();
        if cleaned {
            write_in_transaction(&mut cleaning, statements, server.settings.defaults());
        }
        let connect_query = server.connect_query.to_repeat().filter(|_| cleaned).cloned();
        let mut queries: Vec<&[u8]> = Vec::new();
        if server.exchange.status() != IDLE {
            queries.push(b"ROLLBACK");
        }
        if cleaned || queries.is_empty() {
            queries.push(&cleaning);
        }
        queries.extend(connect_query.as_deref().map(str::as_bytes));
        server.begin_queries(me, Purpose::Reset { cleaned, statements }, &queries, out);
    }

    /// The server was reset: it is as new or, unless it was `cleaned`, as a client left it that left nothing behind.
    pub(crate) fn reset_answered(&self, side: &mut ServerSide<'_>, cleaned: bool, statements: bool) {
        side.server.exchange = Exchange::new();
        side.server.forget_suspects();
        if statements {
            side.server.statements.drop_ours();
        }
        if cleaned {
            self.note_cleaned(side.server);
        }
        side.server.become_ready(side.server_tag, side.out);
    }

    /// Notes that all of the session but its prepared statements is as it was when the server was new.
    pub(crate) fn note_cleaned(&self, server: &mut Server) {
        server.forget_soil();
        server.settings.reset(&self.parameters);
    }

    /// The server has described its catalogue.
    pub(crate) fn catalogue_answered(
        &self,
        side: &mut ServerSide<'_>,
        reading: Reading,
        failure: Option<Failure>,
        verdict: Option<Verdict>,
    ) {
        let news = match failure {
            Some(failure) => side.server.catalogue.shared().reading_failed(&failure.text()),
            None => side.server.catalogue.shared().take_reading(reading),
        };
        // In session mode all servers are cleaned when they change hands, whatever the functions are; and so are they
        // where that is asked for.
        let tells = side.server.mode != PoolMode::Session && side.server.policy.reset == ResetPolicy::Auto;
        if let Some(suspicious) = news.filter(|_| tells) {
            self.directory.note_catalogue(side.server.pool, &suspicious);
        }
        match verdict {
            None => side.server.become_ready(side.server_tag, side.out),
            Some(verdict) => side.server.release_kept(side.server_tag, verdict, side.out),
        }
    }
}
