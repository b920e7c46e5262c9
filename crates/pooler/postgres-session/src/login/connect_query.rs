//! The operator's SQL on each new server: it runs before the server is used, and what it has set is what all clients of
//! the pool start with.

use seam::{CloseReason, Effect, Peer};

use crate::{
    session::{
        Postgres, Purpose, ServerSide, Stage, Survey,
        survey::{self, StatementScope},
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
        side: &mut ServerSide<'_>,
        set: Option<&Survey>,
        failure: Option<Failure>,
    ) {
        match (set, failure) {
            (_, Some(failure)) => {
                side.server.stage = Stage::Closed;
                let message = format!("{FAILED}: {}", failure.text());
                let reason = CloseReason::StartFailed { permanent: failure.is_permanent(), message };
                side.out.push(Effect::Close { peer: Peer::Server(side.server_tag), reason });
            }
            (None, None) => {
                let found = side.server.connect_query.sql().map(|text| scan(text.as_bytes())).unwrap_or_default();
                // What it does behind its text has to be done again.
                let acts_unseen = found.suspects.intersects(Suspects::OPAQUE) || !found.calls.is_empty();
                if acts_unseen {
                    side.server.connect_query.note_objects();
                }
                let hidden = if acts_unseen { Suspects::OPAQUE } else { Suspects::NONE };
                let asked =
                    Suspects::SETTINGS.union(found.suspects.intersection(Suspects::MAY_CHANGE_ROLE)).union(hidden);
                let sql = survey::write(asked, &found.custom, StatementScope::OfSql);
                let survey = Survey::new(asked, Vec::new(), &found.custom, StatementScope::OfSql);
                side.server.begin_queries(side.server_tag, Purpose::Connected(survey), &[&sql], side.out);
            }
            (Some(set), None) => {
                if set.pin.is_some() || !set.channels.is_empty() || set.too_long {
                    side.server.connect_query.note_objects();
                }
                let current = side.server.settings.current();
                match set.settings(&current.reported, current, side.server.facts.user()) {
                    Some((there, _)) => side.server.settings.replace(self.parameters.intern(there)),
                    None => side.server.connect_query.note_objects(),
                }
                self.connect_query_done(side.server_tag, side.server, side.out);
            }
        }
    }
}
