//! What is wrong with a configuration, and where: a message with file, line and column, the line itself, and
//! what to do. The line is shown without its secrets.

use std::{
    fmt,
    ops::Range,
    path::{Path, PathBuf},
};

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
    pub severity: Severity,
    /// The file; `None` when the configuration comes from the command line.
    pub file: Option<PathBuf>,
    pub place: Option<Box<Place>>,
    /// What is wrong, on one line.
    pub message: String,
    pub hint: Option<String>,
}

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

    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The same in a file as a whole.
    pub fn in_file(self, file: &Path) -> Self {
        Self { file: Some(file.to_owned()), ..self }
    }

    /// The same at a place of a file's text, given in bytes.
    pub fn at(self, file: &Path, text: &str, span: Range<usize>) -> Self {
        Self { file: Some(file.to_owned()), place: Some(Box::new(Place::of(text, span))), ..self }
    }

    /// The same in a text whose lines hold no secret, except those that say `passw`.
    pub fn at_open_text(self, file: &Path, text: &str, span: Range<usize>) -> Self {
        let mut place = Place::of(text, span);
        let line = text.lines().nth(place.line - 1).unwrap_or_default();
        if !line.contains("passw") {
            place.text = line.to_owned();
        }
        Self { file: Some(file.to_owned()), place: Some(Box::new(place)), ..self }
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
        let text_of_line = mask_line(line, is_in_multiline_text(text, begin));
        Self {
            line: text.as_bytes()[..begin].iter().filter(|b| **b == b'\n').count() + 1,
            column: column + 1,
            width,
            text: text_of_line,
        }
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
const KEYS_WITHOUT_SECRETS: &[&[&str]] = &[
    // The process, and its administrators
    &["workers", "drain_time", "stay_time", "max_auth_failures", "node_id", "log_connections", "log_disconnections"],
    &["address", "log_client_errors", "failure_ttl"],
    &["compatible_with", "max_message_size", "refuse_simple_queries", "wait_notice_time", "login_notice"],
    &["allow_startup_parameters", "ignore_startup_parameters"],
    &["scram_iterations"],
    &["listen", "user_label", "names", "admins", "viewers", "view_needs_token", "role"],
    &["pid_file", "user", "level", "syslog", "syslog_ident", "syslog_facility", "stats_period"],
    // Users and tokens
    &[
        "name",
        "file",
        "password_file",
        "password_files",
        "token_file",
        "certificate",
        "rules_only",
        "auth_user",
        "auth_query",
        "auth_server",
        "auth_database",
    ],
    &["type", "hba_file", "ident_file"],
    &["auth_password_file", "auth_pool_size", "auth_cache_time", "auth_failure_cache_time", "read_only", "allow"],
    &["deny"],
    // Listeners
    &["protocol", "soft_limit", "hard_limit", "evict_min_idle", "client_idle_time", "newcomer_wait_time", "login_time"],
    &["query_time", "transaction_idle_time", "preset", "socket_mode", "tls_cert", "tls_client_auth", "tls_client_ca"],
    &["tls_protocols", "tls_ciphers", "tls_curves", "proxy_protocol_from", "origins", "blocking_time"],
    // Databases and pools
    &["password_command_time", "password_command_lifetime"],
    &["url_file", "max_server_connections", "max_connections", "max_user_connections", "mode", "max_size", "min_size"],
    &["max_connecting", "max_idle_time", "pool_idle_time", "max_life_time", "life_time_jitter", "max_wait_time"],
    &["reserve_size", "reserve_wait_time", "transaction_time", "login_retry_time", "round_robin", "cancel_wait_time"],
    &["fast_close", "max_clients", "max_database_clients", "max_user_clients", "max_database_connections"],
    &["backlog", "reuse_port", "socket_group", "keepalive", "keep_idle", "keep_interval", "keep_count", "user_timeout"],
    &["defer_accept", "socket_buffer", "max_ttl"],
    &["unavailable_wait_time", "max_waiters", "check_after_idle", "connect_time", "on_session_state", "reset"],
    &[
        "max_pinned",
        "max_replication_size",
        "max_prepared_statements",
        "trusted_functions",
        "application_name_add_host",
        "auto_min_size",
    ],
    &["auto_max_size", "auto_start_size", "auto_window"],
    // PgBouncer's names
    &["auth_file", "auth_type", "client_idle_timeout", "client_login_timeout", "client_tls_sslmode"],
    &["default_pool_size", "idle_transaction_timeout", "listen_addr", "listen_port", "max_client_conn"],
    &["min_pool_size", "pool_mode", "pool_size", "query_timeout", "query_wait_timeout", "server_check_delay"],
    &["server_connect_timeout", "server_idle_timeout", "server_lifetime"],
    // Scenarios
    &["about", "connect", "curve", "delay", "dns", "duration", "every", "exclusive", "expect", "fault", "first"],
    &["freeze", "freeze_after", "from", "idle", "jitter", "kill_after", "kind", "length", "load", "measured", "method"],
    &["objectives", "operation", "pause", "platform", "pool", "processor_time", "ready", "schema", "script", "scripts"],
    &["service", "service_p99", "spacing", "spread", "stages", "start", "tcp", "think", "timeout", "tls", "to"],
    &["transaction_time", "warmup"],
];

/// Characters of a key. A longer text before an `=` may be a secret.
const MAX_KEY_CHARS: usize = 48;

/// Masks what may be a secret, each character by a star: everything after a key that is secret or unknown, unless it is
/// a number or a truth value; and everything that is no key. `in_multiline_text`: the line begins in a text of several
/// lines, which may have any contents.
///
/// With anything masked, the comment is left out: it may have an earlier value of the line.
fn mask_line(line: &str, in_multiline_text: bool) -> String {
    if in_multiline_text {
        return mask_all(line);
    }
    let (code, comment) = line.split_at(outside_quotes(line, '#').unwrap_or(line.len()));
    let shown = mask_code(code);
    match shown == code && !comment.contains(['=', '"', '\'']) {
        true => shown + comment,
        false => shown.trim_end().to_owned(),
    }
}

fn mask_code(code: &str) -> String {
    if code.trim().is_empty() || is_header(code) {
        return code.to_owned();
    }
    let mut result = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(equals) = outside_quotes(rest, '=') {
        let (before, value) = rest.split_at(equals + 1);
        // What stands before the first one is a key and nothing else, or not of a configuration.
        if result.is_empty() && !is_key(&before[..equals]) {
            return mask_all(code);
        }
        result.push_str(before);
        rest = value;
        let key = last_word(&before[..equals]);
        if !KEYS_WITHOUT_SECRETS.iter().any(|keys| keys.contains(&key)) && (is_secret(key) || !is_plain(value)) {
            return result + &mask_all(rest);
        }
    }
    if result.is_empty() { mask_all(code) } else { result + rest }
}

/// Where this character stands first, outside of quotes. A quote that does not end goes on to the end.
fn outside_quotes(line: &str, wanted: char) -> Option<usize> {
    let mut quote = None;
    let mut is_escaped = false;
    for (at, c) in line.char_indices() {
        match quote {
            _ if is_escaped => is_escaped = false,
            Some('"') if c == '\\' => is_escaped = true,
            Some(opened) if c == opened => quote = None,
            Some(_) => {}
            None if c == wanted => return Some(at),
            None if matches!(c, '"' | '\'') => quote = Some(c),
            None => {}
        }
    }
    None
}

/// The name of a table, in its brackets.
fn is_header(code: &str) -> bool {
    let code = code.trim();
    code.starts_with('[') && code.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_' | '.' | '[' | ']'))
}

fn is_key(text: &str) -> bool {
    let key = text.trim().trim_matches(['"', '\'']);
    (1..=MAX_KEY_CHARS).contains(&key.len())
        && key.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.'))
}

/// Whether a place of a file is inside a text of several lines.
fn is_in_multiline_text(text: &str, place: usize) -> bool {
    if !text.contains("\"\"\"") && !text.contains("'''") {
        return false;
    }
    let bytes = text.as_bytes();
    let (mut at, mut opened): (usize, Option<&[u8]>) = (0, None);
    let many: [&[u8]; 2] = [b"\"\"\"", b"'''"];
    while at < place {
        let rest = &bytes[at..];
        let quotes = many.into_iter().find(|quotes| rest.starts_with(quotes));
        at += match (opened, rest[0]) {
            (Some(open), _) if quotes == Some(open) => {
                opened = None;
                3
            }
            (Some(open), b'\\') if open[0] == b'"' => 2,
            (Some(_), _) => 1,
            (None, _) if quotes.is_some() => {
                opened = quotes;
                3
            }
            (None, b'#') => rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()),
            (None, quote @ (b'"' | b'\'')) => string_length(rest, quote),
            (None, _) => 1,
        };
    }
    opened.is_some()
}

/// Bytes of the text of one line that begins here, with its quotes; it ends with its line if it does not end before.
fn string_length(bytes: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        match *byte {
            b'\n' => return at,
            byte if byte == quote => return at + 1,
            b'\\' if quote == b'"' && bytes.get(at + 1) != Some(&b'\n') => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn is_secret(key: &str) -> bool {
    ["url", "pw", "pass", "secret", "token"].iter().any(|word| key.contains(word))
        || strsim::damerau_levenshtein(key, "password") <= 3
}

fn is_plain(value: &str) -> bool {
    let value = value.split(['#', ',']).next().unwrap_or_default().trim();
    matches!(value, "true" | "false") || value.bytes().all(|b| b.is_ascii_digit() || b"+-._".contains(&b))
}

fn mask_all(text: &str) -> String {
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
            "\"hunter2 = x\",",
            "hunter2+/= x",
            "HUNTER hunter2 = x",
            "[\"hunter2\"]",
            "hunter2 [",
        ] {
            let shown = mask_line(line, false);
            assert!(!shown.contains("hunter2"), "{shown}");
            let code = line.split(" #").next().unwrap().trim_end();
            assert_eq!(shown.chars().count(), code.chars().count());
        }
        for line in [
            "max_idle_time = \"5 min\"",
            "max_sise = 20",
            "[[databse]]",
            "tls_cert = \"no.pem\"           # a file of another machine",
            "query_wait_timeout = \"120s\"   # as before",
        ] {
            assert_eq!(mask_line(line, false), line);
        }
        assert_eq!(mask_line("url = \"a\"  # which one", false), "url = \"*\"");
    }

    #[test]
    fn a_line_of_a_text_of_several_lines_is_all_masked() {
        let text = "[[user]]\nabout = 'a \"\"\"' # \"\"\"\nkey = \"\"\"\nhunter2 = hunter2 # hunter2\n\
                    \\\"\"\" hunter2 = \\\\\n\"\"\"\nmax_size = 3\n\
                    x = '''\nhunter2=\n'''\nmode = \"a\n";
        let shown: Vec<String> = text
            .match_indices('\n')
            .map(|(at, _)| Problem::error("").at(Path::new("f"), text, at..at).place.unwrap().text)
            .collect();
        assert!(shown.iter().all(|line| !line.contains("hunter2")), "{shown:#?}");
        for line in ["[[user]]", "max_size = 3"] {
            assert!(shown.iter().any(|shown| shown == line), "{shown:#?}");
        }
    }

    proptest! {
        #[test]
        fn any_place_of_any_text_can_be_shown(text in "(?s).{0,80}", a in 0usize..200, b in 0usize..200) {
            let _ = Problem::error("x").at(Path::new("f"), &text, a..b).to_string();
        }
    }
}
