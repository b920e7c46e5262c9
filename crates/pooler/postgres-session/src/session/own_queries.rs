//! Queries of Poolhouse itself that a server is answering.

use std::sync::Arc;

use seam::Verdict;

use crate::{
    session::{
        defaults::{AfterDefaults, DefaultsQuestion},
        lookup::Lookup,
        preface::Preface,
        survey::Survey,
    },
    sql::{Pairs, Reading, Settings},
    wire::{Failure, code},
};

/// Most repetitions of a query that a time-out or a cancel request of the client has ended.
const MAX_TRIES: u8 = 8;

pub(crate) struct OwnQueries {
    pub(crate) purpose: Purpose,
    /// Queries that are not answered yet.
    pub(crate) pending: u8,
    /// A message other than ReadyForQuery has answered the oldest query.
    pub(crate) answered: bool,
    pub(crate) failure: Option<Failure>,
    /// The request that the query precedes was cancelled meanwhile.
    pub(crate) cancelled: bool,
    /// The SQL, if it may be repeated.
    pub(crate) text: Box<[u8]>,
    pub(crate) tries: u8,
}

pub(crate) enum Purpose {
    /// Cleans the server, and sets the settings of its new holder, whose request may be under way behind that.
    Preface(Box<Preface>),
    /// Learns the settings that a client will have; holds those that the server does not report.
    Learn(Pairs),
    /// Cleans the server after its last holder.
    Reset {
        /// All but the statements of Poolhouse is cleaned.
        cleaned: bool,
        /// Prepared statements are cleaned, too.
        statements: bool,
    },
    /// Learns what the database could do to sessions; then the server is given back, or becomes ready.
    Catalogue(Box<Reading>, Option<Verdict>),
    /// An empty query, to see that an idle server answers.
    Check,
    /// Learns what the holder has left behind.
    Survey(Survey),
    /// Stops listening to these channels for the holder.
    Unlisten(Vec<Box<[u8]>>),
    /// Listens to these channels for all clients, or stops listening to others.
    Listen(Vec<Box<[u8]>>),
    /// Stops listening, so that the server can return to its pool.
    Retire,
    /// Cleans the server before it listens for all clients.
    CleanListener,
    /// Discards the last values of sequences, or plans, before the holder goes on.
    Discard,
    /// Sets the holder's start-up values, within a transaction.
    Correct(Arc<Settings>),
    /// Runs the `connect_query` on a new server.
    Connect,
    /// Learns what the `connect_query` has set.
    Connected(Survey),
    /// Asks who may log in.
    Lookup(Lookup),
    /// Learns which parameters have the session's defaults.
    Defaults(Box<DefaultsQuestion>),
}

impl Purpose {
    /// Doing it twice is as doing it once, and it needs no transaction of the holder.
    pub(crate) fn may_be_repeated(&self) -> bool {
        matches!(self, Purpose::Discard | Purpose::Unlisten(_) | Purpose::Correct(_))
    }
}

impl OwnQueries {
    /// A time-out or a cancel request has ended the query, nothing else is wrong, and it may be tried again.
    pub(crate) fn is_to_repeat(&self) -> bool {
        let ended = self.failure.as_ref().is_some_and(|failure| failure.code == code::QUERY_CANCELED);
        ended && self.purpose.may_be_repeated() && self.tries < MAX_TRIES
    }

    /// The lookup, if the server is asked who may log in.
    pub(crate) fn lookup(&mut self) -> Option<&mut Lookup> {
        match &mut self.purpose {
            Purpose::Lookup(lookup) => Some(lookup),
            _ => None,
        }
    }

    /// The server is asked who may log in.
    pub(crate) fn is_lookup(&self) -> bool {
        matches!(self.purpose, Purpose::Lookup(_))
    }

    /// The query comes before the holder's request, not because of an earlier one.
    pub(crate) fn precedes_request(&self) -> bool {
        match &self.purpose {
            Purpose::Defaults(question) => question.then == AfterDefaults::Grant,
            purpose => matches!(purpose, Purpose::Preface(_) | Purpose::Discard),
        }
    }

    pub(crate) fn reads_rows(&self) -> bool {
        matches!(
            self.purpose,
            Purpose::Survey(_)
                | Purpose::Connected(_)
                | Purpose::Lookup(_)
                | Purpose::Catalogue(..)
                | Purpose::Defaults(_)
        )
    }

    /// Takes a row; `None` if it is too long. False if it is malformed.
    pub(crate) fn take_row(&mut self, body: Option<&[u8]>) -> bool {
        match (&mut self.purpose, body) {
            (Purpose::Survey(survey) | Purpose::Connected(survey), Some(body)) => survey.take_row(body).is_some(),
            (Purpose::Lookup(lookup), Some(body)) => {
                lookup.take_row(body);
                true
            }
            (Purpose::Lookup(lookup), None) => {
                lookup.note_long_row();
                true
            }
            (Purpose::Survey(survey) | Purpose::Connected(survey), None) => {
                survey.note_long_row();
                true
            }
            (Purpose::Catalogue(reading, _), Some(body)) => reading.take_row(body).is_some(),
            (Purpose::Defaults(question), Some(body)) => question.take_row(body).is_some(),
            (Purpose::Catalogue(reading, _), None) => {
                reading.note_long_row();
                true
            }
            _ => true,
        }
    }
}
