//! Run-time parameters of sessions: compact immutable sets of them, shared by all sessions that have the same, and the
//! SQL that leads from one set to another. It knows no session.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use protocol::PoolId;

use crate::{
    sql::{
        parameter_names::{can_be_named, rules_reading},
        tokens::{Token, Tokens},
    },
    wire::message::take_text,
};

/// Most different sets remembered per process before those that nobody uses are dropped; it doubles when all are used.
const SWEEP_AT: usize = 1024;

/// Most combinations of pool and start-up settings whose outcome is remembered; beyond it the memory starts anew.
const MAX_LEARNED: usize = 4096;

/// Longest parameter set, in bytes; a change that would make one longer is not recorded.
pub(crate) const MAX_SET: usize = 64 * 1024;

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

/// Parameters that hold a list of identifiers: `SET x = 'a, b'` would mean a single identifier with a comma in it.
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

/// Names and values, as the zero-terminated texts of the wire, one after the other.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Pairs(Box<[u8]>);

impl Pairs {
    /// Names and values in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || Some((take_text(&mut rest)?, take_text(&mut rest)?)))
    }

    /// The value of a parameter; names are compared without regard to case, as PostgreSQL does.
    pub(crate) fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The same with one value replaced or added at the end.
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
        if bytes.len() > MAX_SET { self.clone() } else { Self(bytes.into()) }
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

/// What a session has set.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Settings {
    /// What the server reports, except facts.
    pub(crate) reported: Pairs,
    /// What the client asked for at start-up and the server does not report.
    pub(crate) extras: Pairs,
    /// See [`Settings::context`]; computed when the set is interned.
    context: u64,
    /// See [`Settings::reading`]; likewise.
    reading: u64,
}

impl Settings {
    pub(crate) fn new(reported: Pairs, extras: Pairs) -> Self {
        Self { reported, extras, context: 0, reading: 0 }
    }

    /// A hash of all that may rule what a text means: everything but the application's name. Known of interned sets.
    pub(crate) fn context(&self) -> u64 {
        self.context
    }

    /// A hash of all that may rule how constants are read, and that PostgreSQL does not look at when it uses a plan. Known of interned sets.
    #[inline]
    pub(crate) fn reading(&self) -> u64 {
        self.reading
    }

    /// Whether what is created without the name of a schema is temporary: no word of a statement says so then.
    pub(crate) fn creates_temporary(&self) -> bool {
        let path = self.extras.get(b"search_path").or_else(|| self.reported.get(b"search_path")).unwrap_or_default();
        let first = path.trim_ascii_start();
        first.strip_prefix(b"\"").unwrap_or(first).starts_with(b"pg_temp")
    }

    /// Whether who acts was changed in two ways. Whether both can be had again on another server depends on their order.
    pub(crate) fn acts_as_two(&self) -> bool {
        IDENTITY.iter().all(|identity| self.extras.get(identity).is_some())
    }

    fn compute_context(&mut self) {
        let (mut hasher, mut reading) = (DefaultHasher::new(), DefaultHasher::new());
        for (name, value) in self.reported.iter().chain(self.extras.iter()) {
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
            let (name, value) = (name.as_bytes(), value.as_bytes());
            let part = if self.reported.get(name).is_some() { &mut settings.reported } else { &mut settings.extras };
            *part = part.with(name, value);
        }
        settings
    }

    /// The same for a client that began with `start`, on a server whose own settings are `defaults`. What the client has set to the server's
    /// own value although it began with another stands among the extras, too: a server has to be told of it, so that a RESET can be
    /// told from one that came to nothing.
    pub(crate) fn with_defaults_set(&self, start: &Settings, defaults: &Settings) -> Self {
        let others = self.extras.iter().filter(|(name, _)| self.reported.get(name).is_none());
        let set = self.reported.iter().filter(|(name, value)| is_default_set(name, value, start, defaults));
        Self::new(self.reported.clone(), others.chain(set).collect())
    }

    /// Appends the SQL that leads a session from these settings to others; appends nothing if there is nothing to do.
    /// Who acts is given up first and taken on last, because it rules who may set what.
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
    /// Appends what makes these settings of a session that has those, and nothing beside them.
    pub(crate) fn write_beyond(&self, own: &Settings, sql: &mut Vec<u8>) {
        self.beyond(own).for_each(|(name, value)| write_set(sql, name, value));
    }

    /// What is set otherwise than in a session that began with the settings `own`, in the order in which it can be set.
    pub(crate) fn beyond<'a>(&'a self, own: &'a Settings) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let reported = self.reported.iter().filter(|(name, value)| own.reported.get(name) != Some(*value));
        let extras = self.extras.iter().filter(|(name, _)| !is_identity(name));
        let identity = IDENTITY.iter().filter_map(|name| Some((*name, self.extras.get(name)?)));
        reported.chain(extras).chain(identity)
    }

    /// The same without a change of who acts.
    pub(crate) fn write_change_but_identity(&self, to: &Settings, sql: &mut Vec<u8>) {
        // One may be refused as long as another is set: log_parser_stats and log_statement_stats.
        for (name, _) in self.extras.iter() {
            if to.extras.get(name).is_none() && !is_identity(name) {
                write_reset(sql, name);
            }
        }
        for (name, value) in to.reported.iter() {
            if self.reported.get(name).is_some_and(|old| old != value) {
                write_set(sql, name, value);
            }
        }
        for (name, value) in to.extras.iter() {
            if self.extras.get(name) != Some(value) && !is_identity(name) {
                write_set(sql, name, value);
            }
        }
    }
}

/// Whether a reported parameter has the server's own value although its client began with another.
pub(crate) fn is_default_set(name: &[u8], value: &[u8], start: &Settings, defaults: &Settings) -> bool {
    defaults.reported.get(name) == Some(value) && start.reported.get(name).is_some_and(|own| own != value)
}

/// Parameters that say who acts, in the order in which they are taken on.
const IDENTITY: [&[u8]; 2] = [b"session_authorization", b"role"];

/// Whether a parameter says who acts.
pub(crate) fn is_identity(name: &[u8]) -> bool {
    IDENTITY.iter().any(|identity| name.eq_ignore_ascii_case(identity))
}

fn write_reset(sql: &mut Vec<u8>, name: &[u8]) {
    sql.extend_from_slice(b"RESET ");
    write_parameter_name(sql, name);
    sql.push(b';');
}

/// Appends a statement that sets a parameter.
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

/// Appends a SET, which needs no snapshot; false, and nothing is appended, if none leads to exactly this value.
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

/// Its parts one by one: all of them together may be longer than an identifier.
fn write_parameter_name(sql: &mut Vec<u8>, name: &[u8]) {
    for (n, part) in name.split(|&byte| byte == b'.').enumerate() {
        if n > 0 {
            sql.push(b'.');
        }
        write_quoted_name(sql, part);
    }
}

fn write_quoted_name(sql: &mut Vec<u8>, name: &[u8]) {
    sql.push(b'"');
    for &b in name {
        if b == b'"' {
            sql.push(b'"');
        }
        sql.push(b);
    }
    sql.push(b'"');
}

/// A literal that means the same whatever standard_conforming_strings and client_encoding are: it is ASCII, and what is not, or might end
/// it, is written by its number, in the encoding of the database.
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

/// What a client that logs in with certain settings will have.
#[derive(Clone)]
pub(crate) struct Learned {
    /// Its settings, in the server's spelling.
    pub(crate) settings: Arc<Settings>,
    /// Facts about the server.
    pub(crate) facts: Arc<Pairs>,
}

/// The parameter sets of the process: each exists once.
#[derive(Default)]
pub(crate) struct Parameters {
    known: Mutex<Known>,
    learned: Mutex<LearnedByPool>,
}

#[derive(Default)]
struct Known {
    sets: HashSet<Arc<Settings>>,
    sweep_at: usize,
}

#[derive(Default)]
struct LearnedByPool {
    /// By pool: what its servers report when they start.
    defaults: HashMap<PoolId, Learned>,
    /// By pool and what a client asks for.
    outcomes: HashMap<(PoolId, Pairs), Learned>,
}

impl Parameters {
    /// The one copy of a set.
    pub(crate) fn intern(&self, mut settings: Settings) -> Arc<Settings> {
        settings.compute_context();
        let mut known = lock(&self.known);
        if let Some(set) = known.sets.get(&settings) {
            return set.clone();
        }
        if known.sets.len() >= known.sweep_at.max(SWEEP_AT) {
            known.sets.retain(|set| Arc::strong_count(set) > 1);
            known.sweep_at = known.sets.len() * 2;
        }
        let set = Arc::new(settings);
        known.sets.insert(set.clone());
        set
    }

    /// A server of the pool has started with these; if they are not what was known, what was learned is void.
    pub(crate) fn started(&self, pool: PoolId, learned: Learned) {
        let mut known = lock(&self.learned);
        let same = |old: &Learned| Arc::ptr_eq(&old.settings, &learned.settings) && old.facts == learned.facts;
        if !known.defaults.get(&pool).is_some_and(same) {
            known.outcomes.retain(|(of, _), _| *of != pool);
            known.defaults.insert(pool, learned);
        }
    }

    /// What a client of the pool that asks for `wanted` will have, if that is known without asking a server.
    pub(crate) fn outcome(&self, pool: PoolId, wanted: &[(String, String)]) -> Option<Learned> {
        let (key, name) = split(wanted);
        let known = lock(&self.learned);
        let base = if key == Pairs::default() { known.defaults.get(&pool) } else { known.outcomes.get(&(pool, key)) };
        let base = base?.clone();
        drop(known);
        let Some(name) = name else { return Some(base) };
        base.settings.reported.get(APPLICATION_NAME)?;
        let reported = base.settings.reported.with(APPLICATION_NAME, name.as_bytes());
        let settings = self.intern(Settings::new(reported, base.settings.extras.clone()));
        Some(Learned { settings, facts: base.facts })
    }

    /// A client of the pool asked for `wanted` and got this.
    pub(crate) fn learn(&self, pool: PoolId, wanted: &[(String, String)], defaults: &Settings, learned: Learned) {
        let (key, name) = split(wanted);
        let mut base = learned;
        if name.is_some() {
            // Remembered with the application's name of the pool, which is replaced for each client.
            let Some(default) = defaults.reported.get(APPLICATION_NAME) else { return };
            let reported = base.settings.reported.with(APPLICATION_NAME, default);
            base.settings = self.intern(Settings::new(reported, base.settings.extras.clone()));
        }
        if key == Pairs::default() {
            return;
        }
        let mut known = lock(&self.learned);
        if known.outcomes.len() >= MAX_LEARNED {
            known.outcomes.clear();
        }
        known.outcomes.insert((pool, key), base);
    }
}

const APPLICATION_NAME: &[u8] = b"application_name";

/// Longest application name that PostgreSQL keeps.
const MAX_APPLICATION_NAME: usize = 63;

/// Splits off an application name that the server will take as it is: that one need not be learned. The rest is
/// brought into a form that is the same for the same settings.
fn split(wanted: &[(String, String)]) -> (Pairs, Option<&str>) {
    let verbatim =
        |value: &str| value.len() <= MAX_APPLICATION_NAME && value.bytes().all(|b| (b' '..=b'~').contains(&b));
    let mut name = None;
    let mut rest = Vec::new();
    for (key, value) in wanted {
        if key.as_bytes().eq_ignore_ascii_case(APPLICATION_NAME) && verbatim(value) {
            name = Some(value.as_str());
        } else {
            rest.push((key.to_ascii_lowercase(), value));
        }
    }
    rest.sort();
    (rest.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())).collect(), name)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Pairs {
        pairs.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect()
    }

    fn wanted(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn change(from: &Settings, to: &Settings) -> String {
        let mut sql = Vec::new();
        from.write_change(to, &mut sql);
        String::from_utf8(sql).unwrap()
    }

    #[test]
    fn equal_sets_are_one_set() {
        let parameters = Parameters::default();
        let set = |value| Settings::new(pairs(&[("TimeZone", value)]), Pairs::default());
        assert!(Arc::ptr_eq(&parameters.intern(set("UTC")), &parameters.intern(set("UTC"))));
        assert!(!Arc::ptr_eq(&parameters.intern(set("UTC")), &parameters.intern(set("CET"))));
    }

    #[test]
    fn sets_that_nobody_uses_are_dropped() {
        let parameters = Parameters::default();
        for i in 0..3 * SWEEP_AT {
            parameters.intern(Settings::new(pairs(&[("a", &i.to_string())]), Pairs::default()));
        }
        assert!(lock(&parameters.known).sets.len() <= SWEEP_AT);
    }

    #[test]
    fn the_change_between_two_sets_sets_resets_and_leaves_alone() {
        let from = Settings::new(
            pairs(&[("TimeZone", "UTC"), ("DateStyle", "ISO, MDY")]),
            pairs(&[("work_mem", "1MB"), ("geqo", "off")]),
        );
        let to = from.overlaid(&wanted(&[("timezone", "CET"), ("Search_Path", "a, b")]));
        let to = Settings { extras: pairs(&[("work_mem", "1MB"), ("Search_Path", "a, b")]), ..to };
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
    fn the_application_name_does_not_change_what_a_text_means() {
        let parameters = Parameters::default();
        let context = |name, zone| {
            parameters
                .intern(Settings::new(pairs(&[("application_name", name), ("TimeZone", zone)]), Pairs::default()))
                .context()
        };
        assert_eq!(context("a", "UTC"), context("b", "UTC"));
        assert_ne!(context("a", "UTC"), context("a", "CET"));
    }

    #[test]
    fn names_and_values_cannot_break_out_of_their_quotes() {
        let to = Settings::new(Pairs::default(), pairs(&[("a\"b", r"x'; DROP TABLE t; --\"), ("c", "\u{e4}")]));
        let sql = "SET \"a\"\"b\" = E'x\\x27; DROP TABLE t; --\\x5c';SET \"c\" = E'\\xc3\\xa4';";
        assert_eq!(change(&Settings::default(), &to), sql);
    }

    #[test]
    fn what_was_learned_is_known_for_every_application_name() {
        let parameters = Parameters::default();
        let pool = PoolId(1);
        let reported = pairs(&[("application_name", "ph"), ("TimeZone", "UTC")]);
        let defaults = parameters.intern(Settings::new(reported, Pairs::default()));
        let facts = Arc::new(pairs(&[("server_version", "17")]));
        assert!(parameters.outcome(pool, &[]).is_none());
        parameters.started(pool, Learned { settings: defaults.clone(), facts: facts.clone() });
        assert!(Arc::ptr_eq(&parameters.outcome(pool, &[]).unwrap().settings, &defaults));
        let psql = parameters.outcome(pool, &wanted(&[("application_name", "psql")])).unwrap();
        assert_eq!(psql.settings.reported, pairs(&[("application_name", "psql"), ("TimeZone", "UTC")]));
        assert!(parameters.outcome(pool, &wanted(&[("application_name", "\u{e4}")])).is_none());

        let asked = wanted(&[("timezone", "utc"), ("application_name", "one")]);
        assert!(parameters.outcome(pool, &asked).is_none());
        let settings = parameters.intern(defaults.overlaid(&wanted(&[("application_name", "one")])));
        parameters.learn(pool, &asked, &defaults, Learned { settings, facts });
        let two = parameters.outcome(pool, &wanted(&[("application_name", "two"), ("TimeZone", "utc")])).unwrap();
        assert_eq!(two.settings.reported, pairs(&[("application_name", "two"), ("TimeZone", "UTC")]));
        let plain = parameters.outcome(pool, &wanted(&[("timezone", "utc")])).unwrap();
        assert_eq!(plain.settings.reported.get(b"application_name"), Some(&b"ph"[..]));
    }

    #[test]
    fn a_server_that_starts_otherwise_voids_what_was_learned() {
        let parameters = Parameters::default();
        let set = |value| Settings::new(pairs(&[("TimeZone", value)]), Pairs::default());
        let learned = |value| Learned { settings: parameters.intern(set(value)), facts: Arc::default() };
        parameters.started(PoolId(1), learned("UTC"));
        parameters.learn(PoolId(1), &wanted(&[("a", "b")]), &set("UTC"), learned("UTC"));
        parameters.started(PoolId(1), learned("UTC"));
        assert!(parameters.outcome(PoolId(1), &wanted(&[("a", "b")])).is_some());
        parameters.started(PoolId(1), learned("CET"));
        assert!(parameters.outcome(PoolId(1), &wanted(&[("a", "b")])).is_none());
    }
}
