//! Lines of the log in the shape of PgBouncer's, because people search logs for it: `login attempt`, `closing because`
//! with the age of the connection, `pooler error`. Events that have no counterpart there are written with their fields
//! behind them.

use std::{
    fmt::{self, Debug, Write as _},
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::Writer,
        time::{FormatTime, SystemTime},
    },
    registry::LookupSpan,
};

use super::Escaped;
use crate::{compatibility::Compatibility, config::Serve};

/// Characters of a time of [`SystemTime`] up to its milliseconds.
const TIME_LENGTH: usize = "2026-11-29T21:49:00.540".len();

/// How a client was sent away, and PgBouncer's words for it.
const SENT_AWAY: &[(&str, &str)] = &[
    ("client_idle_time", "client_idle_timeout"),
    ("login_time", "client_login_timeout"),
    ("query_time", "query timeout"),
    ("transaction_time", "transaction timeout"),
    ("transaction_idle_time", "idle transaction timeout"),
    ("the client ended the session", "client close request"),
    ("the client closed the connection", "client unexpected eof"),
    ("shutdown", "server shutting down"),
    ("drain", "server shutting down"),
    ("fast_close", "database configuration changed"),
];

/// Why a server's connection ended, and PgBouncer's words for it.
const SERVER_ENDS: &[(&str, &str)] = &[
    ("stale", "database configuration changed"),
    ("interrupted", "database configuration changed"),
    ("idle", "server idle timeout"),
    ("life", "server lifetime over"),
    ("reclaimed", "evicted"),
    ("discarded", "unclean server"),
    ("pool_closed", "database removed"),
    ("check failed", "server test query failed"),
    ("lookup failed", "server DNS lookup failed"),
    ("its login takes too long", "connect timeout"),
];

/// Events that are about no connection, and PgBouncer's words for them.
const PROCESS_EVENTS: &[(&str, &str)] = &[
    ("server of the reserve", "taking connection from reserve_pool"),
    ("first use of a database that only \"*\" covers", "registered new auto-database:"),
];

/// Suffixes of a pool's database that tell what it is for.
const PURPOSES: [&str; 2] = ["/auth_query", "/replication"];

/// Writes events as PgBouncer does. A clone follows the same configuration.
#[derive(Clone)]
pub struct PgBouncerLines(Arc<Switches>);

struct Switches {
    /// Whether a connection to a database is worth a line.
    connections: AtomicBool,
    /// Whether the end of a connection is worth a line.
    disconnections: AtomicBool,
    /// Whether an error that a client is told is worth one.
    errors: AtomicBool,
}

impl PgBouncerLines {
    /// The shape of the log, if it is not our own.
    pub fn wanted(serve: &Serve) -> Option<Self> {
        let lines = || Self::new(serve.log_connections, serve.log_disconnections, serve.log_client_errors);
        (serve.compatible_with == Compatibility::PgBouncer).then(lines)
    }

    fn new(connections: bool, disconnections: bool, errors: bool) -> Self {
        let (connections, disconnections) = (connections.into(), disconnections.into());
        Self(Arc::new(Switches { connections, disconnections, errors: errors.into() }))
    }

    /// Follows a configuration that has come into force.
    pub fn follow(&self, serve: &Serve) {
        self.0.connections.store(serve.log_connections, Relaxed);
        self.0.disconnections.store(serve.log_disconnections, Relaxed);
        self.0.errors.store(serve.log_client_errors, Relaxed);
    }

    fn tells_of_connections(&self) -> bool {
        self.0.connections.load(Relaxed)
    }

    fn tells_of_ends(&self) -> bool {
        self.0.disconnections.load(Relaxed)
    }

    fn tells_of_errors(&self) -> bool {
        self.0.errors.load(Relaxed)
    }
}

impl<S, N> FormatEvent<S, N> for PgBouncerLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut now = String::new();
        SystemTime.format_time(&mut Writer::new(&mut now))?;
        let now = now.get(..TIME_LENGTH).unwrap_or(&now).replace('T', " ");
        for (level, text) in self.lines(word(*event.metadata().level()), &fields) {
            writeln!(writer, "{now} UTC [{}] {level} {text}", process::id())?;
        }
        Ok(())
    }
}

impl PgBouncerLines {
    /// The lines for an event: their levels and texts.
    fn lines(&self, level: &'static str, fields: &Fields) -> Vec<(&'static str, String)> {
        if let Some(lines) = self.lines_of_server(fields) {
            return lines;
        }
        let Some(client) = fields.get("client") else { return vec![(level, fields.as_text_with(theirs(fields)))] };
        let prefix = prefix(client, fields);
        let closing = |why: &str| ("LOG", closing(&prefix, why, fields));
        let error = |why: &str| self.tells_of_errors().then(|| ("WARNING", format!("{prefix} pooler error: {why}")));
        let reason = fields.get("reason").map(|reason| {
            let known = SENT_AWAY.iter().find(|(ours, _)| *ours == reason);
            known.map_or(reason, |(_, theirs)| theirs)
        });
        match (fields.message.as_str(), reason) {
            ("login attempt", _) => {
                let [database, user] = ["database", "user"].map(|name| fields.get(name).unwrap_or_default());
                let tls = if fields.get("tls") == Some("true") { "yes" } else { "no" };
                vec![("LOG", format!("{prefix} login attempt: db={database} user={user} tls={tls}"))]
            }
            ("client connected", _) => Vec::new(),
            // Another line has told more.
            ("client disconnected", Some("an error" | "an error of the client")) => Vec::new(),
            ("client disconnected", why) => {
                self.tells_of_ends().then(|| closing(why.unwrap_or_default())).into_iter().collect()
            }
            ("client sent away", Some(why)) => error(why).into_iter().collect(),
            ("a login has failed", why) => self.end(closing, error, why.unwrap_or("login failed")),
            (why, _) if fields.get("lasted_s").is_some() => self.end(closing, error, why),
            _ => vec![(level, format!("{prefix} {}", fields.as_text()))],
        }
    }

    /// The lines for an event of a connection to a database; `None` for other events.
    fn lines_of_server(&self, fields: &Fields) -> Option<Vec<(&'static str, String)>> {
        let address = fields.get("server")?;
        let get = |name| fields.get(name).unwrap_or_default();
        let database = get("database");
        let database = PURPOSES.iter().find_map(|purpose| database.strip_suffix(purpose)).unwrap_or(database);
        let number: u64 = get("number").parse().unwrap_or_default();
        let prefix = format!("S-0x{number:012x}: {database}/{}@{address}", get("user"));
        let mut lines = Vec::new();
        match fields.message.as_str() {
            "server connected" => {
                let from = fields.get("from").map(|from| format!(" (from {from})")).unwrap_or_default();
                lines.extend(
                    self.tells_of_connections().then(|| ("LOG", format!("{prefix} new connection to server{from}"))),
                );
            }
            "server closed" => {
                let reason = get("reason");
                let said = reason.split_once(" (SQLSTATE ").map_or(reason, |(said, _)| said);
                if get("refused") == "true" {
                    lines.push(("WARNING", format!("server login failed: FATAL {said}")));
                }
                let why = SERVER_ENDS.iter().find(|(ours, _)| *ours == reason).map_or(said, |(_, theirs)| *theirs);
                lines.extend(self.tells_of_ends().then(|| ("LOG", closing(&prefix, why, fields))));
            }
            _ => return None,
        }
        Some(lines)
    }

    fn end(
        &self,
        closing: impl Fn(&str) -> (&'static str, String),
        error: impl Fn(&str) -> Option<(&'static str, String)>,
        why: &str,
    ) -> Vec<(&'static str, String)> {
        let closing = self.tells_of_ends().then(|| closing(why));
        closing.into_iter().chain(error(why)).collect()
    }
}

/// PgBouncer's words for the message of an event that is about no connection.
fn theirs(fields: &Fields) -> &str {
    let known = PROCESS_EVENTS.iter().find(|(ours, _)| *ours == fields.message);
    known.map_or(&fields.message, |(_, theirs)| theirs)
}

fn closing(prefix: &str, why: &str, fields: &Fields) -> String {
    let age = fields.get("lasted_s").and_then(|age| age.parse::<f64>().ok()).unwrap_or_default();
    format!("{prefix} closing because: {why} (age={}s)", age as u64)
}

/// The client as the lines name it. The number stands for the connection, as an address in memory does there.
fn prefix(client: &str, fields: &Fields) -> String {
    let number = client
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let named = |name, without| fields.get(name).filter(|text| !text.is_empty()).unwrap_or(without);
    let (database, user) = (named("database", "(nodb)"), named("user", "(nouser)"));
    format!("C-0x{:012x}: {database}/{user}@{client}", number >> 16)
}

fn word(level: Level) -> &'static str {
    match level {
        Level::ERROR => "ERROR",
        Level::WARN => "WARNING",
        Level::INFO => "LOG",
        Level::DEBUG => "DEBUG",
        Level::TRACE => "NOISE",
    }
}

/// The fields of an event, as text without control characters.
#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, String)>,
}

impl Fields {
    fn get(&self, name: &str) -> Option<&str> {
        self.others.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// The message, with the fields behind it that no prefix names.
    fn as_text(&self) -> String {
        self.as_text_with(&self.message)
    }

    /// The same, with another message.
    fn as_text_with(&self, message: &str) -> String {
        let mut text = message.to_owned();
        let named = ["client", "database", "user"].map(|name| (name, self.get("client").is_some()));
        for (name, value) in self.others.iter().filter(|(name, _)| !named.contains(&(name, true))) {
            let _ = write!(text, " {name}={value}");
        }
        text
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = Escaped(value).to_string();
        match field.name() {
            "message" => self.message = text,
            name => self.others.push((name, text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(message: &str, others: &[(&'static str, &str)]) -> Fields {
        let others = others.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Fields { message: message.to_owned(), others }
    }

    const CLIENT: [(&str, &str); 3] = [("client", "10.0.0.1:4711"), ("database", "shop"), ("user", "app")];

    fn lines(message: &str, more: &[(&'static str, &str)]) -> Vec<String> {
        let fields = fields(message, &[&CLIENT, more].concat());
        let lines = PgBouncerLines::new(true, true, true).lines("LOG", &fields);
        lines.into_iter().map(|(level, text)| format!("{level} {}", &text[text.find(": ").unwrap() + 2..])).collect()
    }

    #[test]
    fn a_clients_life_is_told_in_pgbouncers_words() {
        assert_eq!(
            lines("login attempt", &[("tls", "false")]),
            ["LOG shop/app@10.0.0.1:4711 login attempt: db=shop user=app tls=no"]
        );
        assert!(lines("client connected", &[]).is_empty());
        assert_eq!(
            lines("client disconnected", &[("lasted_s", "61.5"), ("reason", "the client ended the session")]),
            ["LOG shop/app@10.0.0.1:4711 closing because: client close request (age=61s)"]
        );
    }

    #[test]
    fn an_error_is_told_once_with_its_text() {
        assert_eq!(
            lines("query_wait_timeout", &[("lasted_s", "4.0")]),
            [
                "LOG shop/app@10.0.0.1:4711 closing because: query_wait_timeout (age=4s)",
                "WARNING shop/app@10.0.0.1:4711 pooler error: query_wait_timeout"
            ]
        );
        assert!(lines("client disconnected", &[("lasted_s", "4.0"), ("reason", "an error")]).is_empty());
        assert_eq!(
            lines("client sent away", &[("reason", "client_idle_time")]),
            ["WARNING shop/app@10.0.0.1:4711 pooler error: client_idle_timeout"]
        );
    }

    #[test]
    fn a_servers_life_is_told_in_pgbouncers_words() {
        let lines = |message: &str, more: &[(&'static str, &str)]| {
            let server = [("server", "db:5432"), ("number", "255"), ("database", "shop/auth_query"), ("user", "app")];
            let lines = PgBouncerLines::new(true, true, true);
            lines.lines("LOG", &fields(message, &[&server, more].concat()))
        };
        let prefix = "S-0x0000000000ff: shop/app@db:5432";
        assert_eq!(
            lines("server connected", &[("from", "10.0.0.1:4711")]),
            [("LOG", format!("{prefix} new connection to server (from 10.0.0.1:4711)"))]
        );
        assert_eq!(
            lines("server closed", &[("lasted_s", "61.5"), ("reason", "life")]),
            [("LOG", format!("{prefix} closing because: server lifetime over (age=61s)"))]
        );
        let refused = [("lasted_s", "0.1"), ("reason", "no such role (SQLSTATE 28000)"), ("refused", "true")];
        assert_eq!(
            lines("server closed", &refused),
            [
                ("WARNING", "server login failed: FATAL no such role".to_owned()),
                ("LOG", format!("{prefix} closing because: no such role (age=0s)"))
            ]
        );
    }

    #[test]
    fn errors_can_be_left_out() {
        let fields = fields("query_wait_timeout", &[&CLIENT[..], &[("lasted_s", "4.0")]].concat());
        let lines = PgBouncerLines::new(true, true, false).lines("LOG", &fields);
        assert!(matches!(&lines[..], [("LOG", text)] if text.contains("closing because")));
    }

    #[test]
    fn other_events_keep_their_fields() {
        let plain = fields("reloaded", &[("pools", "3")]);
        let lines_of = PgBouncerLines::new(false, false, true).lines("LOG", &plain);
        assert_eq!(lines_of, [("LOG", "reloaded pools=3".into())]);
        assert_eq!(
            lines("a client waited long for a server", &[("waited_ms", "1200")]),
            ["LOG shop/app@10.0.0.1:4711 a client waited long for a server waited_ms=1200"]
        );
    }
}
