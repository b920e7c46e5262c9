//! The errors for clients that get no server, or have to go. They begin as Redis's own, and say what to do.

use seam::{LeaseFailure, Refusal};

/// The beginning of the error for a command that no server got. Of Redis's error codes, this one makes most client
/// libraries connect or try again, and none takes it for a mistake in the command.
pub const NO_SERVER: &str = "LOADING Poolhouse";

/// The error of a command for which there is no server.
pub fn of_failure(why: &LeaseFailure) -> String {
    let words = match why {
        LeaseFailure::Unavailable { last_error: Some(said), .. }
        | LeaseFailure::UnknownDatabase { said: Some(said) }
            if is_redis_error(said) =>
        {
            return match REFUSED.contains(&code_of(said)) {
                true => format!(
                    "{said} (Redis refuses Poolhouse itself: correct user and password in the url of its [[database]] \
                    or, where \
                     that has none, of the [[user]])"
                ),
                false => said.to_string(),
            };
        }
        LeaseFailure::WaitTimeout { waited, shortage } => format!(
            "the server connections stayed busy for {:.1} s: {shortage}. Look for commands that block, or {}.",
            waited.as_secs_f64(),
            shortage.limit.remedy()
        ),
        LeaseFailure::Unavailable { waited, last_error, .. } => format!(
            "no connection to Redis after {:.1} s: {}",
            waited.as_secs_f64(),
            last_error.as_deref().unwrap_or("the reason is not known")
        ),
        LeaseFailure::UnknownDatabase { said } => {
            format!("Redis refuses the connection: {}", said.as_deref().unwrap_or("the reason is not known"))
        }
        LeaseFailure::QueueFull => "too many clients wait for a server connection. Raise max_size.".to_owned(),
        LeaseFailure::Closed | LeaseFailure::Forgotten => "the pool was closed. Connect again.".to_owned(),
    };
    format!("{NO_SERVER}: {words}")
}

/// Codes of Redis's errors to a connection that begins. Clients understand them. An error with another first word is
/// Poolhouse's own, such as `TLS with ... failed`.
const CODES: [&str; 13] = [
    "ERR",
    "WRONGPASS",
    "NOAUTH",
    "NOPERM",
    "NOPROTO",
    "DENIED",
    "LOADING",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "READONLY",
    "MISCONF",
    "BUSY",
    "OOM",
];

const REFUSED: [&str; 2] = ["WRONGPASS", "NOAUTH"];

/// Whether it is Redis's own error, such as `WRONGPASS ...` or `ERR DB index ...`.
fn is_redis_error(text: &str) -> bool {
    CODES.contains(&code_of(text))
}

fn code_of(text: &str) -> &str {
    text.split(' ').next().unwrap_or_default()
}

/// The last error for a client that has to go.
pub fn of_refusal(why: &Refusal) -> String {
    match why {
        Refusal::TooManyClients { limit, setting } => {
            format!("ERR max number of clients reached (Poolhouse's {setting} is {limit})")
        }
        Refusal::Full { of, limit } => {
            let section = of.section();
            format!("ERR max number of clients reached for {of} (hard_limit of its {section} is {limit})")
        }
        Refusal::Throttled { retry_after } => format!(
            "ERR Poolhouse: too many failed logins from this address. Try again in {:.0} s.",
            retry_after.as_secs_f64().ceil()
        ),
        Refusal::LoginTimeout => "ERR Poolhouse: no login within login_time".to_owned(),
        Refusal::IdleTimeout => "ERR Poolhouse: idle for longer than client_idle_time".to_owned(),
        Refusal::Evicted => {
            "ERR Poolhouse: closed as the longest idle client above soft_limit. Connect again when needed.".to_owned()
        }
        Refusal::QueryTimeout => "ERR Poolhouse: no answer within query_time".to_owned(),
        Refusal::TransactionIdleTimeout => "ERR Poolhouse: a transaction idle for transaction_idle_time".to_owned(),
        Refusal::TransactionTimeout => "ERR Poolhouse: a transaction took longer than transaction_time".to_owned(),
        Refusal::ServerReplaced => "ERR Poolhouse: its server is replaced (fast_close). Connect again.".to_owned(),
        Refusal::ShuttingDown => "ERR Poolhouse is shutting down. Connect again.".to_owned(),
        Refusal::Drained { .. } => {
            format!("{NO_SERVER}: an administrator drains this database. Connect again later.")
        }
        Refusal::Disabled { .. } => {
            format!("{NO_SERVER}: an administrator has disabled this database. Connect again later.")
        }
        Refusal::Displaced => {
            "ERR max number of clients reached, and this one took long to log in or shares its address with most of \
            those who do"
                .to_owned()
        }
        Refusal::Killed | Refusal::DatabaseKilled => "ERR Poolhouse: closed by an operator".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use seam::Outage;

    use super::*;

    #[test]
    fn errors_of_redis_are_passed_on_unchanged() {
        let error_of = |said: &str| {
            of_failure(&LeaseFailure::Unavailable {
                waited: Duration::from_secs(1),
                last_error: Some(said.into()),
                outage: Outage::Unreachable,
            })
        };
        let unknown = of_failure(&LeaseFailure::UnknownDatabase { said: Some("ERR DB index is out of range".into()) });
        assert_eq!(unknown, "ERR DB index is out of range");
        assert_eq!(error_of("NOPERM no"), "NOPERM no");
        let wrong = error_of("WRONGPASS invalid");
        assert!(wrong.starts_with("WRONGPASS invalid (Redis refuses Poolhouse itself: "), "{wrong}");
        assert!(wrong.contains("[[database]]") && wrong.contains("[[user]]"), "{wrong}");
        for own in ["connection refused", "TLS with 10.0.0.5:6379 failed: bad certificate", "ERRATIC words"] {
            assert_eq!(error_of(own), format!("LOADING Poolhouse: no connection to Redis after 1.0 s: {own}"));
        }
    }
}
