//! What is wrong with a configuration, and where: a message with file, line and column, the line itself, and
//! what to do. The line is shown without its secrets.

use std::{
    fmt,
    ops::Range,
    path::{Path, PathBuf},
};

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// Poolhouse does not start with it.
    Error,
    /// It starts, but will not do what was probably meant.
    Warning,
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// The file; `None` when the configuration comes from the command line.
    pub file: Option<PathBuf>,
    /// Where in the file.
    pub place: Option<Place>,
    /// What is wrong, on one line.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// A place in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// Characters concerned, within the line.
    pub width: usize,
    /// The line, its secrets masked.
    pub text: String,
}

impl Problem {
    /// An error without a place.
    pub fn error(message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, file: None, place: None, message: message.into(), hint: None }
    }

    /// A warning without a place.
    pub fn warning(message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(message) }
    }

    /// The same with advice.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The same in a file as a whole.
    pub fn in_file(self, file: &Path) -> Self {
        Self { file: Some(file.to_owned()), ..self }
    }

    /// The same at a place of a file's text, given in bytes.
    pub fn at(self, file: &Path, text: &str, span: Range<usize>) -> Self {
        Self { file: Some(file.to_owned()), place: Some(Place::of(text, span)), ..self }
    }

    /// Line and column, for the order of a file's problems; those of no place come first.
    pub fn position(&self) -> (usize, usize) {
        self.place.as_ref().map_or((0, 0), |place| (place.line, place.column))
    }
}

impl Place {
    fn of(text: &str, span: Range<usize>) -> Self {
        let mut start = span.start.min(text.len());
        while !text.is_char_boundary(start) {
            start -= 1;
        }
        let begin = text[..start].rfind('\n').map_or(0, |n| n + 1);
        let line = text[begin..].lines().next().unwrap_or_default();
        let column = text[begin..start].chars().count();
        let width = text
            .get(start..span.end.min(begin + line.len()).max(start))
            .map_or(1, |covered| covered.chars().count().max(1));
        Self { line: text[..begin].matches('\n').count() + 1, column: column + 1, width, text: masked(line) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}:", file.display())?;
            if let Some(place) = &self.place {
                write!(f, "{}:{}:", place.line, place.column)?;
            }
            write!(f, " ")?;
        }
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{severity}: {}", self.message)?;
        if let Some(place) = &self.place {
            let mark = "^".repeat(place.width);
            let indent = " ".repeat(place.column - 1);
            write!(f, "\n{:>5} | {}\n      | {indent}{mark}", place.line, place.text)?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n      = {hint}")?;
        }
        Ok(())
    }
}

/// Everything that is wrong with a configuration; at least one error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

/// Keys whose values hold no secret.
const HARMLESS: &[&str] = &[
    "about",
    "allow",
    "application_name_add_host",
    "auth_cache_time",
    "auth_database",
    "auth_failure_cache_time",
    "auth_file",
    "auth_password_file",
    "auth_pool_size",
    "auth_query",
    "auth_type",
    "auth_user",
    "auto_max_size",
    "auto_min_size",
    "auto_start_size",
    "auto_window",
    "blocking_time",
    "certificate",
    "check_after_idle",
    "client_idle_time",
    "client_idle_timeout",
    "client_login_timeout",
    "client_tls_sslmode",
    "connect",
    "connect_time",
    "curve",
    "default_pool_size",
    "delay",
    "deny",
    "dns",
    "drain_time",
    "duration",
    "every",
    "evict_min_idle",
    "exclusive",
    "expect",
    "fault",
    "file",
    "first",
    "freeze",
    "freeze_after",
    "from",
    "hard_limit",
    "idle",
    "idle_transaction_timeout",
    "jitter",
    "kill_after",
    "kind",
    "length",
    "life_time_jitter",
    "listen",
    "listen_addr",
    "listen_port",
    "load",
    "log_connections",
    "log_disconnections",
    "login_time",
    "max_auth_failures",
    "max_client_conn",
    "max_connecting",
    "max_connections",
    "max_idle_time",
    "max_life_time",
    "max_pinned",
    "max_prepared_statements",
    "max_server_connections",
    "max_size",
    "max_user_connections",
    "max_wait_time",
    "max_waiters",
    "measured",
    "method",
    "min_pool_size",
    "min_size",
    "mode",
    "name",
    "names",
    "newcomer_wait_time",
    "node_id",
    "objectives",
    "on_session_state",
    "operation",
    "origins",
    "password_file",
    "pause",
    "platform",
    "pool",
    "pool_mode",
    "pool_size",
    "preset",
    "processor_time",
    "protocol",
    "query_time",
    "query_timeout",
    "query_wait_timeout",
    "read_only",
    "ready",
    "reset",
    "schema",
    "script",
    "scripts",
    "server_check_delay",
    "server_connect_timeout",
    "server_idle_timeout",
    "server_lifetime",
    "service",
    "service_p99",
    "socket_mode",
    "soft_limit",
    "spacing",
    "spread",
    "stages",
    "start",
    "tcp",
    "think",
    "timeout",
    "tls",
    "tls_cert",
    "tls_client_auth",
    "tls_client_ca",
    "to",
    "token_file",
    "transaction_idle_time",
    "transaction_time",
    "trusted_functions",
    "unavailable_wait_time",
    "url_file",
    "user_label",
    "warmup",
    "workers",
];

/// The line with what may be a secret as stars, of the same length: everything after a key that is secret or unknown,
/// unless it is a plain number or truth value; and the inside of a text of several lines.
fn masked(line: &str) -> String {
    if !line.contains('=') {
        let shown = line.trim_start().starts_with('[') || line.trim_end().ends_with('[');
        return if shown { line.to_owned() } else { stars(line) };
    }
    let mut result = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(equals) = rest.find('=') {
        let (before, value) = rest.split_at(equals + 1);
        result.push_str(before);
        rest = value;
        let key = last_word(&before[..equals]);
        if !HARMLESS.contains(&key) && (is_secret(key) || !is_plain(value)) {
            return result + &stars(rest);
        }
    }
    result + rest
}

fn is_secret(key: &str) -> bool {
    ["url", "pw", "pass", "secret", "token"].iter().any(|word| key.contains(word))
        || strsim::damerau_levenshtein(key, "password") <= 3
}

fn is_plain(value: &str) -> bool {
    let value = value.split(['#', ',']).next().unwrap_or_default().trim();
    matches!(value, "true" | "false") || value.bytes().all(|b| b.is_ascii_digit() || b"+-._".contains(&b))
}

fn stars(text: &str) -> String {
    text.chars().map(|c| if c.is_whitespace() || c == '"' || c == '\'' { c } else { '*' }).collect()
}

fn last_word(text: &str) -> &str {
    let text = text.trim_end().trim_end_matches(['"', '\'']);
    text.rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_problem_shows_file_line_column_and_the_offending_line() {
        let text = "[admin]\nlisten = 7\n";
        let problem = Problem::error("not a text").hint("quote it").at(Path::new("p.toml"), text, 17..18);
        let expected = "p.toml:2:10: error: not a text\n    2 | listen = 7\n      |          ^\n      = quote it";
        assert_eq!(problem.to_string(), expected);
    }

    #[test]
    fn a_shown_line_keeps_its_secrets() {
        for line in [
            "password = \"hunter2\"",
            "password = hunter2",
            "user = [{ password = \"hunter2\" }]",
            "hunter2\"\"\"",
            "pasword = 'hunter2'",
            "url = \"postgres://app:hunter2@h/d\"",
            "url = \"postgres://app:hunter2",
            "x = { mode = \"session\", password = \"hunter2\" }",
            "password = \"a\\\"hunter2\"",
            "users = [\"hunter2\"]",
            "password = \"x\"   # before: hunter2",
            "tls_cert = \"c.pem\"   # password = hunter2",
            "tokn = \"hunter2\"",
            "tls_key = \"hunter2\"",
            "connect_query = \"SELECT login('hunter2')\"",
            "\"hunter2\" \"hunter2\"",
        ] {
            let shown = masked(line);
            assert!(!shown.contains("hunter2"), "{shown}");
            assert_eq!(shown.chars().count(), line.chars().count());
        }
        for line in [
            "max_idle_time = \"5 min\"",
            "max_sise = 20",
            "[[databse]]",
            "tls_cert = \"no.pem\"           # a file of another machine",
            "query_wait_timeout = \"120s\"   # as before",
        ] {
            assert_eq!(masked(line), line);
        }
    }

    proptest! {
        #[test]
        fn any_place_of_any_text_can_be_shown(text in "(?s).{0,80}", a in 0usize..200, b in 0usize..200) {
            let _ = Problem::error("x").at(Path::new("f"), &text, a..b).to_string();
        }
    }
}
