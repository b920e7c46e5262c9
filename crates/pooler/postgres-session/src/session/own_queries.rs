//! What Poolhouse itself asks of a server, and what has come of the answer.

use std::sync::Arc;

use seam::Verdict;

use crate::{
    session::{
        defaults::{Question, Then},
        lookup::Lookup,
        preface::Preface,
        survey::Survey,
    },
    sql::{
        catalogue::Reading,
        parameters::{Pairs, Settings},
    },
    wire::error::{Failure, code},
};

/// How often what a time-out of the client's has ended is tried again.
const MAX_TRIES: u8 = 8;

/// Queries of ours that a server is answering.
pub(crate) struct OwnQueries {
    pub(crate) purpose: Purpose,
    /// Queries that are still to be answered.
    pub(crate) pending: u8,
    /// Something other than ReadyForQuery has answered the oldest of them.
    pub(crate) answered: bool,
    pub(crate) failure: Option<Failure>,
    /// The request that it precedes was cancelled meanwhile.
    pub(crate) cancelled: bool,
    /// What was asked, where it may be asked again.
    pub(crate) text: Box<[u8]>,
    pub(crate) tries: u8,
}

/// What the queries are for.
pub(crate) enum Purpose {
    /// To clean it, and to give it the settings of its new holder, whose request may be under way behind that.
    Preface(Box<Preface>),
    /// To learn what settings a client will have; with those that the server does not report.
    Learn(Pairs),
    Reset {
        /// Of all but what our own queries leave behind.
        cleaned: bool,
        /// Of prepared statements, too.
        statements: bool,
    },
    /// To learn what its database could do to sessions; then it is given back, or, if that is how it began, ready.
    Catalogue(Box<Reading>, Option<Verdict>),
    /// To see whether it lives.
    Check,
    /// To learn what its holder has left behind in it.
    Survey(Survey),
    /// To have it stop listening to these channels for its holder.
    Unlisten(Vec<Box<[u8]>>),
    /// To have it listen to these channels for others, or no more to others.
    Listen(Vec<Box<[u8]>>),
    /// To have it stop listening, so that it can go back to its pool.
    Retire,
    /// To clean it before it listens for all.
    CleanListener,
    /// To have it forget the last values of sequences, or plans, before its holder goes on.
    Discard,
    /// To give it its holder's start-up values, within a transaction.
    Correct(Arc<Settings>),
    /// To run the `connect_query` on a new server.
    Connect,
    /// To learn what that has set.
    Connected(Survey),
    Lookup(Lookup),
    /// To learn what of its parameters is its own.
    Defaults(Box<Question>),
}

impl Purpose {
    /// Doing it twice is as doing it once, and it needs no transaction of its holder's.
    pub(crate) fn may_be_repeated(&self) -> bool {
        matches!(self, Purpose::Discard | Purpose::Unlisten(_) | Purpose::Correct(_))
    }
}

impl OwnQueries {
    /// It was ended from outside, nothing else is wrong with it, and it may be tried again.
    pub(crate) fn is_to_repeat(&self) -> bool {
        let ended = self.failure.as_ref().is_some_and(|failure| failure.code == code::QUERY_CANCELED);
        ended && self.purpose.may_be_repeated() && self.tries < MAX_TRIES
    }

    /// The question who may log in, if that is what the server is asked.
    pub(crate) fn lookup(&mut self) -> Option<&mut Lookup> {
        match &mut self.purpose {
            Purpose::Lookup(lookup) => Some(lookup),
            _ => None,
        }
    }

    /// It is asked who may log in.
    pub(crate) fn is_lookup(&self) -> bool {
        matches!(self.purpose, Purpose::Lookup(_))
    }

    /// It is done before the holder's request is sent, not because of what the holder has done already.
    pub(crate) fn precedes_request(&self) -> bool {
        match &self.purpose {
            Purpose::Defaults(question) => question.then == Then::Grant,
            purpose => matches!(purpose, Purpose::Preface(_) | Purpose::Discard),
        }
    }

    /// Rows that come are looked at.
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

    /// A row; `None` if it is too long. False if it is malformed.
    pub(crate) fn row(&mut self, body: Option<&[u8]>) -> bool {
        match (&mut self.purpose, body) {
            (Purpose::Survey(survey) | Purpose::Connected(survey), Some(body)) => survey.row(body).is_some(),
            (Purpose::Lookup(lookup), Some(body)) => {
                lookup.row(body);
                true
            }
            (Purpose::Lookup(lookup), None) => {
                lookup.long_row();
                true
            }
            (Purpose::Survey(survey) | Purpose::Connected(survey), None) => {
                survey.long_row();
                true
            }
            (Purpose::Catalogue(reading, _), Some(body)) => reading.row(body).is_some(),
            (Purpose::Defaults(question), Some(body)) => question.row(body).is_some(),
            (Purpose::Catalogue(reading, _), None) => {
                reading.long_row();
                true
            }
            _ => true,
        }
    }
}
