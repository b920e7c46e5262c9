//! The errors for clients that must go.

use std::time::Duration;

use seam::{ClientTag, Outbox, Peer, Refusal};

use crate::{
    session::{
        client::{Client, Phase},
        wording::{ErrorText, Occasion},
    },
    wire::{Report, Severity, code},
};

/// As [`send_away`]. `name` is what the client calls its database.
pub(crate) fn send_away_from(
    name: impl FnOnce() -> String,
    me: ClientTag,
    client: &mut Client,
    why: Refusal,
    out: &mut Outbox,
) {
    if let (Refusal::Disabled { .. }, Phase::Ready) = (&why, &client.phase) {
        let ErrorText { code, message, hint } =
            client.entrance.wording().choose(Occasion::DatabaseDisabled(&name()), words(&why));
        let report = Report { severity: Severity::Fatal, code: &code, message: &message, hint: &hint };
        out.insert(Peer::Client(me), |to| report.write(to));
        client.phase = Phase::Closed;
        return;
    }
    send_away(me, client, why, out);
}

/// Tells a client why it must go; the driver closes it.
pub(crate) fn send_away(me: ClientTag, client: &mut Client, why: Refusal, out: &mut Outbox) {
    if !client.mid_message && !matches!(client.phase, Phase::Closed) {
        let occasion = match (&why, &client.phase) {
            (Refusal::Disabled { .. }, Phase::Login(login)) => Occasion::DatabaseDisabled(&login.start.database),
            _ => Occasion::Refused(&why),
        };
        let ErrorText { code, message, hint } = client.entrance.wording().choose(occasion, words(&why));
        let report = Report { severity: Severity::Fatal, code: &code, message: &message, hint: &hint };
        out.insert(Peer::Client(me), |to| report.write(to));
    }
    client.phase = Phase::Closed;
}

/// Poolhouse's own words for it.
fn words(why: &Refusal) -> ErrorText {
    let hint_of_full;
    let (code, message, hint) = match why {
        Refusal::Full { of, limit } => {
            hint_of_full = format!("Raise hard_limit of its {}.", of.section());
            (code::TOO_MANY_CONNECTIONS, format!("too many clients of {of} (hard_limit = {limit})"), &*hint_of_full)
        }
        Refusal::TooManyClients { limit, setting } => {
            hint_of_full = format!("Raise {setting}.");
            (code::TOO_MANY_CONNECTIONS, format!("too many clients ({setting} = {limit})"), &*hint_of_full)
        }
        Refusal::Throttled { retry_after } => (
            code::INVALID_AUTHORIZATION,
            format!("too many failed logins from this address, try again in {}", seconds(*retry_after)),
            "",
        ),
        Refusal::LoginTimeout => (code::PROTOCOL_VIOLATION, "login took too long".to_owned(), ""),
        Refusal::IdleTimeout => {
            let message = "terminating connection due to client_idle_time".to_owned();
            (code::IDLE_SESSION_TIMEOUT, message, "")
        }
        Refusal::Evicted => (
            code::IDLE_SESSION_TIMEOUT,
            "terminating connection: it was idle longest, and there are more clients than soft_limit".to_owned(),
            "Raise soft_limit.",
        ),
        Refusal::QueryTimeout => (code::QUERY_CANCELED, "terminating connection due to query_time".to_owned(), ""),
        Refusal::TransactionIdleTimeout => {
            (code::IDLE_IN_TRANSACTION_TIMEOUT, "terminating connection due to transaction_idle_time".to_owned(), "")
        }
        Refusal::TransactionTimeout => {
            (code::TRANSACTION_TIMEOUT, "terminating connection due to transaction_time".to_owned(), "")
        }
        Refusal::ServerReplaced => (
            code::ADMIN_SHUTDOWN,
            "terminating connection: its server is replaced (fast_close)".to_owned(),
            "Connect again.",
        ),
        Refusal::ShuttingDown => {
            (code::ADMIN_SHUTDOWN, "terminating connection: Poolhouse is shutting down".to_owned(), "Connect again.")
        }
        Refusal::Drained { .. } => (
            code::ADMIN_SHUTDOWN,
            "terminating connection: an administrator drains this database".to_owned(),
            "Connect again later.",
        ),
        Refusal::Disabled { .. } => (
            code::CANNOT_CONNECT_NOW,
            "an administrator has disabled this database: it takes no new clients".to_owned(),
            "Connect again later.",
        ),
        Refusal::Displaced => (
            code::TOO_MANY_CONNECTIONS,
            "too many clients, and this one took long to log in or shares its address with most of those who do"
                .to_owned(),
            "Connect again.",
        ),
        Refusal::Killed => (code::ADMIN_SHUTDOWN, "terminating connection due to administrator command".to_owned(), ""),
        Refusal::DatabaseKilled => (
            code::ADMIN_SHUTDOWN,
            "terminating connection: an administrator has closed all connections of this database".to_owned(),
            "Connect again: the server comes when the database is resumed.",
        ),
    };
    ErrorText::new(code, message, hint)
}

pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
