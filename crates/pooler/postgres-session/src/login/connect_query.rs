//! The operator's SQL on each new server: it runs before the server is used, and what it has set is what all clients of
//! the pool start with.

use seam::{CloseReason, Effect, Outbox, Peer, ServerTag};

use crate::{
    session::{
        Postgres, Purpose, Server, Stage, Survey,
        survey::{self, Statements},
    },
    sql::{Suspects, scan::scan},
    wire::Failure,
};

/// The beginning of the last error of a pool whose `connect_query` the database refuses.
pub(crate) const FAILED: &str = "connect_query failed";

impl Postgres {
    /// The SQL has run, or the survey of what it has set was answered.
    pub(crate) fn connect_query_ready(
        &self,
        me: ServerTag,
        server: &mut Server,
        set: Option<&Survey>,
        failure: Option<Failure>,
        out: &mut Outbox,
    ) {
        match (set, failure) {
            (_, Some(failure)) => {
                server.stage = Stage::Closed;
                let message = format!("{FAILED}: {}", failure.text());
                let reason = CloseReason::StartFailed { permanent: failure.is_permanent(), message };
                out.push(Effect::Close { peer: Peer::Server(me), reason });
            }
            (None, None) => {
                let found = server.connect_query.sql().map(|text| scan(text.as_bytes())).unwrap_or_default();
                // What it does behind its text has to be done again.
                let acts_unseen = found.suspects.intersects(Suspects::OPAQUE) || !found.calls.is_empty();
                if acts_unseen {
                    server.connect_query.note_objects();
                }
                let hidden = if acts_unseen { Suspects::OPAQUE } else { Suspects::NONE };
                let asked =
                    Suspects::SETTINGS.union(found.suspects.intersection(Suspects::MAY_CHANGE_ROLE)).union(hidden);
                let sql = survey::write(asked, &found.custom, Statements::OfSql);
                let survey = Survey::new(asked, Vec::new(), &found.custom, Statements::OfSql);
                server.begin(me, Purpose::Connected(survey), &[&sql], out);
            }
            (Some(set), None) => {
                if set.pin.is_some() || !set.channels.is_empty() || set.too_long {
                    server.connect_query.note_objects();
                }
                let current = server.settings.current();
                match set.settings(&current.reported, current, server.facts.user()) {
                    Some((there, _)) => server.settings.replace(self.parameters.intern(there)),
                    None => server.connect_query.note_objects(),
                }
                self.connect_query_done(me, server, out);
            }
        }
    }
}
