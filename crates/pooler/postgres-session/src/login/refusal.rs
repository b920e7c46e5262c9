//! What clients are told that no pool serves, or that no rule admits. Some texts are PgBouncer's, because people look
//! for them.

use seam::{Blame, ClientTag, Outbox};

use crate::{
    Rejection, Unknown,
    session::{Client, ErrorText, Occasion, Phase},
    wire::{Report, Severity, code},
};

/// The database of PgBouncer's console, which its users look for.
const PGBOUNCER: &str = "pgbouncer";

/// No pool serves the client, or not from its address.
pub(super) fn refuse_route(me: ClientTag, client: &mut Client, why: Unknown, out: &mut Outbox) {
    let Phase::Login(login) = &client.phase else { unreachable!("the client is logging in") };
    let (database, user) = (login.start.database.clone(), &login.start.user);
    let (code, message, hint) = match why {
        Unknown::Database if database == PGBOUNCER => {
            let hint = "There is no console here: `poolhouse ctl` shows pools and gives orders. The database \
                        `poolhouse` does so, too, once [console] names users in admins or viewers.";
            (code::INVALID_CATALOG_NAME, format!("database \"{database}\" does not exist"), hint.to_owned())
        }
        Unknown::Database => {
            let hint = "Poolhouse serves no database of this name and has no \"*\" database.";
            let message = format!("database \"{database}\" does not exist");
            let ours = ErrorText::new(code::INVALID_CATALOG_NAME, message, hint);
            return client.fail_for(me, Occasion::NoSuchDatabase(&database), ours, Blame::Client, out);
        }
        Unknown::Full(what) => {
            let hint =
                "Unused ones are forgotten after pool_idle_time: try again then, or configure databases by name.";
            let hint = hint.to_owned();
            (code::TOO_MANY_CONNECTIONS, what, hint)
        }
        Unknown::Rejected(rejection) => describe(rejection, user),
        Unknown::User | Unknown::Forbidden(_) => {
            let hint = if let Unknown::Forbidden(hint) = why { hint } else { String::new() };
            let message = format!("user \"{user}\" may not connect to database \"{database}\" from here");
            let ours = ErrorText::new(code::INVALID_AUTHORIZATION, message, hint);
            return client.fail_for(me, Occasion::NotAdmitted, ours, Blame::Client, out);
        }
    };
    let report = Report { severity: Severity::Fatal, code, message: &message, hint: &hint };
    client.fail(me, &report, Blame::Client, out);
}

/// The code, the message and the hint for a client that no rule admits.
fn describe(rejection: Rejection, user: &str) -> (&'static str, String, String) {
    let (code, message, hint) = match rejection {
        Rejection::NoRule => (
            code::PROTOCOL_VIOLATION,
            "no authentication method is found".to_owned(),
            "No line of the HBA file is for this kind of connection, address, database and user.",
        ),
        Rejection::Rule => {
            (code::PROTOCOL_VIOLATION, "login rejected".to_owned(), "A line of the HBA file refuses such clients.")
        }
        Rejection::UnknownUser => (code::PROTOCOL_VIOLATION, "\"trust\" authentication failed".to_owned(), ""),
        Rejection::NotFound => (code::PROTOCOL_VIOLATION, "no such user".to_owned(), ""),
        Rejection::Peer => (
            code::PROTOCOL_VIOLATION,
            "unix socket login rejected".to_owned(),
            "The client's process runs as a user of this machine who may not log in under this name.",
        ),
        Rejection::Console => (
            code::PROTOCOL_VIOLATION,
            "not allowed".to_owned(),
            "The console is for users whom `admins` or `viewers` of [console] name.",
        ),
        Rejection::Certificate => (
            code::INVALID_AUTHORIZATION,
            format!("certificate authentication failed for user \"{user}\""),
            "Connect with TLS and a certificate (sslcert, sslkey) whose common name is the user's.",
        ),
    };
    (code, message, hint.to_owned())
}
