//! Run-time parameters of sessions: compact immutable sets of them, and the SQL that leads from one set to another. It
//! knows no session.

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
};

use crate::{
    sql::{
        parameter_names::{can_be_named, rules_reading},
        tokens::{Token, Tokens},
    },
    wire::message::take_text,
};

pub(crate) const APPLICATION_NAME: &[u8] = b"application_name";

/// Longest parameter set; a change that would make one longer is not recorded.
pub(crate) const MAX_SETTINGS_BYTES: usize = 64 * 1024;

/// Reported parameters that no client can set.
const READ_ONLY: [&str; 11] = [
    "server_version",
    "server_version_num",
    "server_encoding",
    "integer_datetimes",
    "is_superuser",
    "session_authorization",
    "in_hot_standby",
    "lc_collate",
    "lc_ctype",
    "max_identifier_length",
    "crdb_version",
];

/// Parameters that hold a list of identifiers: `SET x = 'a, b'` would mean one identifier with a comma in it.
const IDENTIFIER_LISTS: [&str; 6] = [
    "search_path",
    "temp_tablespaces",
    "local_preload_libraries",
    "session_preload_libraries",
    "shared_preload_libraries",
    "unix_socket_directories",
];

/// Whether a reported parameter is a fact about the server instead of a setting of the session.
pub(crate) fn is_fact(name: &[u8]) -> bool {
    READ_ONLY.iter().any(|fact| name.eq_ignore_ascii_case(fact.as_bytes()))
}

/// Names and values, as zero-terminated texts one after the other.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Pairs(Box<[u8]>);

impl Pairs {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || Some((take_text(&mut rest)?, take_text(&mut rest)?)))
    }

    /// The value of a parameter; names are compared without regard to case, as PostgreSQL does.
    pub(crate) fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// A copy with one value replaced or added at the end.
    pub(crate) fn with(&self, name: &[u8], value: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(self.0.len() + name.len() + value.len() + 2);
        let mut found = false;
        for (known, old) in self.iter() {
            let same = known.eq_ignore_ascii_case(name);
            found |= same;
            push(&mut bytes, known, if same { value } else { old });
        }
        if !found {
            push(&mut bytes, name, value);
        }
        if bytes.len() > MAX_SETTINGS_BYTES { self.clone() } else { Self(bytes.into()) }
    }

    pub(crate) fn without(&self, name: &[u8]) -> Self {
        self.iter().filter(|(known, _)| !known.eq_ignore_ascii_case(name)).collect()
    }
}

impl<'a> FromIterator<(&'a [u8], &'a [u8])> for Pairs {
    fn from_iter<T: IntoIterator<Item = (&'a [u8], &'a [u8])>>(pairs: T) -> Self {
        let mut bytes = Vec::new();
        for (name, value) in pairs {
            push(&mut bytes, name, value);
        }
        Self(bytes.into())
    }
}

impl fmt::Debug for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy;
        f.debug_map().entries(self.iter().map(|(name, value)| (text(name), text(value)))).finish()
    }
}

fn push(bytes: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for text in [name, value] {
        bytes.extend(text.iter().filter(|&&b| b != 0));
        bytes.push(0);
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Settings {
    /// All that the server reports, except facts, whether it was set or not.
    pub(crate) reported: Pairs,
    /// Values set in the session or asked for at its start, reported or not. Other parameters have the server's own
    /// values and follow them.
    pub(crate) extras: Pairs,
    /// See [`Settings::context`]; computed when the set is interned.
    context: u64,
    /// See [`Settings::reading`]; computed when the set is interned.
    reading: u64,
}

impl Settings {
    pub(crate) fn new(reported: Pairs, extras: Pairs) -> Self {
        let odd = |(name, value): (&[u8], &[u8])| reported.get(name).is_some_and(|spelt| spelt != value);
        let extras = if extras.iter().any(odd) {
            extras.iter().map(|(name, value)| (name, reported.get(name).unwrap_or(value))).collect()
        } else {
            extras
        };
        Self { reported, extras, context: 0, reading: 0 }
    }

    /// Reported values that were not set in the session.
    pub(crate) fn unset(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.reported.iter().filter(|(name, _)| self.extras.get(name).is_none())
    }

    /// The name that the application gave itself, for people.
    pub(crate) fn application_name(&self) -> String {
        let name = self.reported.get(APPLICATION_NAME).or_else(|| self.extras.get(APPLICATION_NAME));
        String::from_utf8_lossy(name.unwrap_or_default()).into_owned()
    }

    /// Values that were set and that the server does not report.
    pub(crate) fn unreported(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.extras.iter().filter(|(name, _)| self.reported.get(name).is_none())
    }

    /// Each parameter once.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.reported.iter().chain(self.unreported())
    }

    /// Whether sessions with these settings and those have set the same reported parameters: none is reset on the way
    /// from one to the other.
    pub(crate) fn keeps_reported(&self, other: &Settings) -> bool {
        let covers = |one: &Settings, other: &Settings| {
            let mut set = one.extras.iter().filter(|(name, _)| one.reported.get(name).is_some());
            set.all(|(name, _)| other.extras.get(name).is_some())
        };
        self.reported == other.reported && covers(self, other) && covers(other, self)
    }

    /// A hash of all that may rule what a text means: everything but the application's name and custom parameters. Zero
    /// until `compute_context`, which interning calls.
    pub(crate) fn context(&self) -> u64 {
        self.context
    }

    /// A hash of what may rule how constants are read and PostgreSQL does not compare before it reuses a plan. For
    /// interned sets.
    #[inline]
    pub(crate) fn reading(&self) -> u64 {
        self.reading
    }

    /// Whether objects without a schema in their name are temporary: no word of a statement says so then.
    pub(crate) fn creates_temporary(&self) -> bool {
        let path = self.extras.get(b"search_path").or_else(|| self.reported.get(b"search_path")).unwrap_or_default();
        let first = path.trim_ascii_start();
        first.strip_prefix(b"\"").unwrap_or(first).starts_with(b"pg_temp")
    }

    /// Whether both the role and the session authorization are set: another server may refuse one after the other.
    pub(crate) fn has_two_identities(&self) -> bool {
        IDENTITY.iter().all(|identity| self.extras.get(identity).is_some())
    }

    /// Computes [`Settings::context`] and [`Settings::reading`].
    pub(crate) fn compute_context(&mut self) {
        let (mut hasher, mut reading) = (DefaultHasher::new(), DefaultHasher::new());
        for (name, value) in self.iter() {
            if !name.eq_ignore_ascii_case(APPLICATION_NAME) && !name.contains(&b'.') {
                (name.to_ascii_lowercase(), value).hash(&mut hasher);
            }
            if rules_reading(name) {
                (name.to_ascii_lowercase(), value).hash(&mut reading);
            }
        }
        (self.context, self.reading) = (hasher.finish(), reading.finish());
    }

    /// These settings, changed as a client asks at start-up.
    pub(crate) fn overlaid(&self, wanted: &[(String, String)]) -> Self {
        let mut settings = self.clone();
        for (name, value) in wanted {
            let (mut name, value) = (name.as_bytes(), value.as_bytes());
            if let Some((spelt, _)) = self.reported.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
                name = spelt;
                settings.reported = settings.reported.with(name, value);
            }
            settings.extras = settings.extras.with(name, value);
        }
        settings
    }

    /// These settings in a session whose defaults are `to` instead of `from`.
    pub(crate) fn rebased(&self, from: &Settings, to: &Settings) -> Self {
        let own = |(name, value): &(&[u8], &[u8])| from.extras.get(name) != Some(*value);
        let extras = self.extras.iter().filter(own).fold(to.extras.clone(), |all, (name, value)| all.with(name, value));
        let value_of = |(name, value)| (name, self.extras.get(name).filter(|set| own(&(name, *set))).unwrap_or(value));
        Self::new(to.reported.iter().map(value_of).collect(), extras)
    }

    /// Appends SQL that leads a session from these settings to others, if they differ. The identity is given up first
    /// and taken on last, because it rules what may be set.
    pub(crate) fn write_change(&self, to: &Settings, sql: &mut Vec<u8>) {
        let mut others = Vec::new();
        self.write_change_but_identity(to, &mut others);
        if others.is_empty() && IDENTITY.iter().all(|name| self.extras.get(name) == to.extras.get(name)) {
            return;
        }
        for name in IDENTITY.iter().rev().filter(|name| self.extras.get(name).is_some()) {
            write_reset(sql, name);
        }
        sql.append(&mut others);
        for name in IDENTITY {
            if let Some(value) = to.extras.get(name) {
                write_set(sql, name, value);
            }
        }
    }
}

impl Settings {
    /// Appends SQL that makes these settings in a session in which nothing is set.
    pub(crate) fn write_all(&self, sql: &mut Vec<u8>) {
        self.in_order().for_each(|(name, value)| write_set(sql, name, value));
    }

    /// The set values, in an order in which they can be set.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let identity = IDENTITY.iter().filter_map(|name| Some((*name, self.extras.get(name)?)));
        self.extras.iter().filter(|(name, _)| !is_identity(name)).chain(identity)
    }

    /// Appends SQL that leads a session from these settings to others, without a change of who acts.
    pub(crate) fn write_change_but_identity(&self, to: &Settings, sql: &mut Vec<u8>) {
        // One may be refused as long as another is set: log_parser_stats and log_statement_stats.
        for (name, _) in self.extras.iter() {
            if to.extras.get(name).is_none() && !is_identity(name) {
                write_reset(sql, name);
            }
        }
        for (name, value) in to.extras.iter() {
            if self.extras.get(name) != Some(value) && !is_identity(name) {
                write_set(sql, name, value);
            }
        }
    }
}

/// Parameters that say who acts, in the order in which they are taken on.
const IDENTITY: [&[u8]; 2] = [b"session_authorization", b"role"];

pub(crate) fn is_identity(name: &[u8]) -> bool {
    IDENTITY.iter().any(|identity| name.eq_ignore_ascii_case(identity))
}

fn write_reset(sql: &mut Vec<u8>, name: &[u8]) {
    sql.extend_from_slice(b"RESET ");
    write_parameter_name(sql, name);
    sql.push(b';');
}

pub(crate) fn write_set(sql: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    if IDENTIFIER_LISTS.iter().any(|list| name.eq_ignore_ascii_case(list.as_bytes())) || !can_be_named(name) {
        sql.extend_from_slice(b"SELECT ");
        write_set_config(sql, name, value, false);
        sql.push(b';');
    } else {
        sql.extend_from_slice(b"SET ");
        write_parameter_name(sql, name);
        sql.extend_from_slice(b" = ");
        write_literal(sql, value);
        sql.push(b';');
    }
}

/// Appends a SET, which needs no snapshot. False, and nothing is appended, if no SET leads to this very value.
pub(crate) fn write_assignment(sql: &mut Vec<u8>, name: &[u8], value: &[u8], local: bool) -> bool {
    let start = sql.len();
    let written = try_assignment(sql, name, value, local);
    if !written {
        sql.truncate(start);
    }
    written
}

/// Appends a call of set_config, which takes any value.
pub(crate) fn write_set_config(sql: &mut Vec<u8>, name: &[u8], value: &[u8], local: bool) {
    sql.extend_from_slice(b"pg_catalog.set_config(");
    write_literal(sql, name);
    sql.push(b',');
    write_literal(sql, value);
    sql.extend_from_slice(if local { b",true)" } else { b",false)" });
}

fn try_assignment(sql: &mut Vec<u8>, name: &[u8], value: &[u8], local: bool) -> bool {
    sql.extend_from_slice(if local { b"SET LOCAL " } else { b"SET " });
    write_parameter_name(sql, name);
    sql.extend_from_slice(b" = ");
    if !IDENTIFIER_LISTS.iter().any(|list| name.eq_ignore_ascii_case(list.as_bytes())) {
        write_literal(sql, value);
        return true;
    }
    // The server writes a list in its own way, and the value must be written in that.
    let is_plain = |word: &[u8]| word.iter().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'));
    let mut tokens = Tokens::new(value);
    let mut spelt = Vec::new();
    loop {
        match tokens.next() {
            Some(Token::Word(word)) if is_plain(word) => {
                write_literal(sql, word);
                spelt.extend_from_slice(word);
            }
            Some(Token::Quoted(word)) if !word.contains(&b'"') && !is_plain(word) => {
                write_literal(sql, word);
                write_quoted_name(&mut spelt, word);
            }
            _ => return false,
        }
        match tokens.next() {
            None => return spelt == value,
            Some(Token::Symbol(b',')) => {
                sql.push(b',');
                spelt.extend_from_slice(b", ");
            }
            Some(_) => return false,
        }
    }
}

/// Appends a name part by part: the whole may be longer than an identifier.
fn write_parameter_name(sql: &mut Vec<u8>, name: &[u8]) {
    for (n, part) in name.split(|&byte| byte == b'.').enumerate() {
        if n > 0 {
            sql.push(b'.');
        }
        write_quoted_name(sql, part);
    }
}

/// Appends a name as an identifier in double quotes.
pub(crate) fn write_quoted_name(sql: &mut Vec<u8>, name: &[u8]) {
    sql.push(b'"');
    for &b in name {
        if b == b'"' {
            sql.push(b'"');
        }
        sql.push(b);
    }
    sql.push(b'"');
}

/// Appends a literal that means the same under all values of standard_conforming_strings and client_encoding: ASCII,
/// with other bytes and quotes as escapes in the encoding of the database.
pub(crate) fn write_literal(sql: &mut Vec<u8>, value: &[u8]) {
    let is_plain = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'\'' && byte != b'\\';
    if !value.iter().all(|&byte| is_plain(byte)) {
        sql.push(b'E');
    }
    sql.push(b'\'');
    for &byte in value {
        if is_plain(byte) {
            sql.push(byte);
        } else {
            sql.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
        }
    }
    sql.push(b'\'');
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn pairs(pairs: &[(&str, &str)]) -> Pairs {
        pairs.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect()
    }

    pub(crate) fn wanted(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn change(from: &Settings, to: &Settings) -> String {
        let mut sql = Vec::new();
        from.write_change(to, &mut sql);
        String::from_utf8(sql).unwrap()
    }

    #[test]
    fn the_change_between_two_sets_sets_resets_and_leaves_alone() {
        let from = Settings::new(
            pairs(&[("TimeZone", "UTC"), ("DateStyle", "ISO, MDY")]),
            pairs(&[("work_mem", "1MB"), ("geqo", "off")]),
        );
        let to = from.overlaid(&wanted(&[("timezone", "CET"), ("Search_Path", "a, b")]));
        let to = Settings { extras: to.extras.without(b"geqo"), ..to };
        let sql = r#"RESET "geqo";SET "TimeZone" = 'CET';SELECT pg_catalog.set_config('Search_Path','a, b',false);"#;
        assert_eq!(change(&from, &to), sql);
        assert_eq!(change(&from, &from), "");
    }

    #[test]
    fn who_acts_is_given_up_first_and_taken_on_last() {
        let from = Settings::new(Pairs::default(), pairs(&[("role", "a"), ("geqo", "off")]));
        let to =
            Settings::new(Pairs::default(), pairs(&[("role", "b"), ("session_authorization", "c"), ("jit", "off")]));
        let sql = r#"RESET "role";RESET "geqo";SET "jit" = 'off';SET "session_authorization" = 'c';SET "role" = 'b';"#;
        assert_eq!(change(&from, &to), sql);
    }

    #[test]
    fn names_and_values_cannot_break_out_of_their_quotes() {
        let to = Settings::new(Pairs::default(), pairs(&[("a\"b", r"x'; DROP TABLE t; --\"), ("c", "\u{e4}")]));
        let sql = "SET \"a\"\"b\" = E'x\\x27; DROP TABLE t; --\\x5c';SET \"c\" = E'\\xc3\\xa4';";
        assert_eq!(change(&Settings::default(), &to), sql);
    }
    #[test]
    fn what_was_not_set_is_as_the_server_has_it_now() {
        let base = |style, zone| Settings::new(pairs(&[("DateStyle", style), ("TimeZone", zone)]), Pairs::default());
        let (old, new) = (base("ISO, MDY", "UTC"), base("ISO, DMY", "CET"));
        // Set to what the server has anyway: it stays so.
        let own = old.overlaid(&wanted(&[("timezone", "UTC"), ("geqo", "off")]));
        let now = own.rebased(&old, &new);
        assert_eq!(now.reported, pairs(&[("DateStyle", "ISO, DMY"), ("TimeZone", "UTC")]));
        assert_eq!(now.extras, pairs(&[("TimeZone", "UTC"), ("geqo", "off")]));
        assert_eq!(change(&old, &own), r#"SET "TimeZone" = 'UTC';SET "geqo" = 'off';"#);
        assert_eq!(change(&own, &new), r#"RESET "TimeZone";RESET "geqo";"#, "a SET would hide what comes later");
        assert_eq!(change(&old, &new), "", "that is the server's business");
    }

    #[test]
    fn what_the_operators_sql_sets_is_replaced_by_what_it_sets_later() {
        let base = |memory| Settings::new(Pairs::default(), pairs(&[("work_mem", memory), ("jit", "off")]));
        let own = base("1MB").overlaid(&wanted(&[("geqo", "off"), ("jit", "on")]));
        let now = own.rebased(&base("1MB"), &base("2MB"));
        assert_eq!(now.extras, pairs(&[("work_mem", "2MB"), ("jit", "on"), ("geqo", "off")]));
    }
}
