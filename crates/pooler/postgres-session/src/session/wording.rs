//! Whose words the errors of Poolhouse have: its own, or those of PgBouncer 1.26 for clients and tests that look for
//! them. PgBouncer has one SQLSTATE for all errors that it makes itself, and no hints; nearly all of them end the
//! connection. This is the table of its words, as a client receives them.

use seam::{Refusal, Tenant};

use crate::wire::{Severity, code};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wording {
    #[default]
    Poolhouse,
    PgBouncer,
}

/// How the error begins if a server asks for a password that is not known.
pub(crate) const NO_PASSWORD: &str = "the server asks for a password of user";
/// How the error begins if a server checks against another SCRAM verifier than the one that is known.
pub(crate) const OTHER_VERIFIER: &str = "the server's SCRAM verifier of user";
/// How errors begin if nothing is known with which Poolhouse could log in to a server.
const NOTHING_TO_PROVE: [&str; 2] = [NO_PASSWORD, OTHER_VERIFIER];

/// Why a client gets an error, as far as PgBouncer has words for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Occasion<'a> {
    NoSuchDatabase(&'a str),
    /// An administrator has disabled the database, and the client wants to log in.
    DatabaseDisabled(&'a str),
    NoUserName,
    /// The first packet has a major version other than 3.
    OldProtocol,
    /// The start-up parameter `options` has what is no setting.
    Options,
    /// `scram`: the proof was one of SCRAM.
    WrongPassword {
        scram: bool,
    },
    /// The client was not asked for a proof, and may not connect.
    NotAdmitted,
    Refused(&'a Refusal),
    /// No database could be asked who the client is.
    LookupFailed,
    NoServerInTime,
    /// The database refuses Poolhouse's login. The text is the database's, with its SQLSTATE behind it.
    LoginRefused(&'a str),
    PoolClosed,
    ServerLost,
    OpenTransaction,
    UnknownMessage,
    /// A message of a client is too long or too short. These are its first bytes.
    BadHeader(&'a [u8]),
    /// A message of the server is too long.
    LongAnswer,
    SimpleQuery,
}

/// An error for a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ErrorText {
    pub(crate) code: String,
    pub(crate) message: String,
    /// May be empty.
    pub(crate) hint: String,
}

impl ErrorText {
    pub(crate) fn new(code: &str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), hint: hint.into() }
    }
}

impl Wording {
    /// What a client is told: `ours`, unless these words are PgBouncer's and it has some for the occasion.
    pub(crate) fn choose(self, occasion: Occasion<'_>, ours: ErrorText) -> ErrorText {
        match self {
            Self::Poolhouse => ours,
            Self::PgBouncer => words_of_pgbouncer(occasion).unwrap_or(ours),
        }
    }

    pub(crate) fn severity(self, ours: Severity) -> Severity {
        match self {
            Self::Poolhouse => ours,
            Self::PgBouncer => Severity::Fatal,
        }
    }

    /// The notice for a client whose request waits for a server.
    pub(crate) fn of_waiting(self) -> &'static str {
        match self {
            Self::Poolhouse => "all servers are busy: the request waits for one",
            Self::PgBouncer => "No server connection available in postgres backend, client being queued",
        }
    }
}

fn words_of_pgbouncer(occasion: Occasion<'_>) -> Option<ErrorText> {
    let message = match occasion {
        Occasion::NoSuchDatabase(name) => format!("no such database: {name}"),
        Occasion::BadHeader(bytes) => {
            let digits: String = bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            format!("bad packet header: '{digits}'")
        }
        Occasion::DatabaseDisabled(name) => format!("database \"{name}\" is disabled"),
        Occasion::LoginRefused(text) if NOTHING_TO_PROVE.iter().any(|begin| text.starts_with(begin)) => {
            "wrong password type".to_owned()
        }
        Occasion::LoginRefused(text) => {
            let (message, sqlstate) = split_sqlstate(text);
            return Some(ErrorText::new(sqlstate.unwrap_or(code::PROTOCOL_VIOLATION), message, ""));
        }
        occasion => fixed_words(occasion)?.to_owned(),
    };
    Some(ErrorText::new(code::PROTOCOL_VIOLATION, message, ""))
}

fn fixed_words(occasion: Occasion<'_>) -> Option<&'static str> {
    Some(match occasion {
        Occasion::NoUserName => "no username supplied",
        Occasion::OldProtocol => "old V2 protocol not supported",
        Occasion::Options => {
            "unsupported options startup parameter: only '-c config=val' and '--config=val' are allowed"
        }
        Occasion::WrongPassword { scram: true } => "SASL authentication failed",
        Occasion::WrongPassword { scram: false } => "password authentication failed",
        Occasion::NotAdmitted => "\"trust\" authentication failed",
        Occasion::LookupFailed => "bouncer config error",
        Occasion::NoServerInTime => "query_wait_timeout",
        Occasion::PoolClosed => "database removed",
        Occasion::ServerLost => "server conn crashed?",
        Occasion::OpenTransaction => "transaction blocks not allowed in statement pooling mode",
        Occasion::UnknownMessage => "unknown pkt",
        Occasion::LongAnswer => "bad pkt header",
        Occasion::SimpleQuery => "PQexec disallowed",
        Occasion::Refused(Refusal::TooManyClients { .. }) => "no more connections allowed (max_client_conn)",
        Occasion::Refused(Refusal::Full { of: Tenant::Database { .. }, .. }) => {
            "client connections exceeded (max_db_client_connections)"
        }
        Occasion::Refused(Refusal::Full { of: Tenant::User(_), .. }) => {
            "client connections exceeded (max_user_client_connections)"
        }
        Occasion::Refused(Refusal::DatabaseKilled) => "database removed",
        Occasion::Refused(Refusal::Killed) => "admin forced disconnect",
        Occasion::Refused(Refusal::ShuttingDown) => "server shutting down",
        Occasion::Refused(Refusal::ServerReplaced) => "database configuration changed",
        Occasion::Refused(Refusal::LoginTimeout) => "client_login_timeout",
        Occasion::Refused(Refusal::IdleTimeout) => "client_idle_timeout",
        Occasion::Refused(Refusal::QueryTimeout) => "query timeout",
        Occasion::Refused(Refusal::TransactionTimeout) => "transaction timeout",
        Occasion::Refused(Refusal::TransactionIdleTimeout) => "idle transaction timeout",
        // Without counterpart there.
        Occasion::Refused(_)
        | Occasion::NoSuchDatabase(_)
        | Occasion::DatabaseDisabled(_)
        | Occasion::BadHeader(_)
        | Occasion::LoginRefused(_) => {
            return None;
        }
    })
}

/// An error of a database as it is remembered: the text, and the SQLSTATE behind it, if there is one.
fn split_sqlstate(text: &str) -> (&str, Option<&str>) {
    let known = text.strip_suffix(')').and_then(|text| text.rsplit_once(" (SQLSTATE "));
    known.map_or((text, None), |(message, sqlstate)| (message, Some(sqlstate)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_pgbouncer_replace_ours_where_it_has_some() {
        let ours = ErrorText::new("3D000", "database \"x\" does not exist", "a hint");
        let occasion = Occasion::NoSuchDatabase("x");
        assert_eq!(Wording::Poolhouse.choose(occasion, ours.clone()), ours);
        assert_eq!(
            Wording::PgBouncer.choose(occasion, ours.clone()),
            ErrorText::new("08P01", "no such database: x", "")
        );
        assert_eq!(Wording::PgBouncer.choose(Occasion::Refused(&Refusal::Evicted), ours.clone()), ours);
    }

    #[test]
    fn an_error_of_the_database_keeps_its_sqlstate() {
        let ours = ErrorText::new("57P03", "the database is unavailable", "");
        let text = "password authentication failed for user \"app\" (SQLSTATE 28P01)";
        let expected = ErrorText::new("28P01", "password authentication failed for user \"app\"", "");
        assert_eq!(Wording::PgBouncer.choose(Occasion::LoginRefused(text), ours.clone()), expected);
        let plain = Wording::PgBouncer.choose(Occasion::LoginRefused("no password (sorry)"), ours);
        assert_eq!((plain.code.as_str(), plain.message.as_str()), ("08P01", "no password (sorry)"));
    }

    #[test]
    fn a_bad_header_is_shown_in_digits() {
        let ours = ErrorText::new("08P01", "x", "");
        let chosen = Wording::PgBouncer.choose(Occasion::BadHeader(b"Q\0\0\x0b\xc4SELECT"), ours);
        assert_eq!(chosen.message, "bad packet header: '5100000bc453454c'");
    }
}
