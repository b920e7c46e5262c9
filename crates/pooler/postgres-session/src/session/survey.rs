//! The survey of a session, in SQL, and reading its answer: what the session has beyond its transaction. It asks only
//! for what is suspected.

use crate::{
    session::pins::Pin,
    sql::{
        ALL_PARAMETERS, Pairs, Settings, Suspects, is_fact, is_identity, parameter_names::is_hidden_setting,
        write_literal,
    },
    wire::read_row,
};

/// Names of parameters that are listed as set in the session, but belong to a transaction or to the server.
const NOT_OF_SESSION: [&str; 4] =
    ["transaction_isolation", "transaction_read_only", "transaction_deferrable", "in_hot_standby"];

/// Most custom parameters that are asked for.
const MAX_CUSTOM: usize = 512;

/// Surveys that are tried before a client's state is called unknown.
const MAX_TRIES: u8 = 8;

/// Custom parameters to ask for: those in texts, and those known.
pub(crate) fn custom_names(seen: &[&[Box<[u8]>]], known: &Pairs) -> Vec<Box<[u8]>> {
    let known = known.iter().map(|(name, _)| name).filter(|name| name.contains(&b'.'));
    let mut names: Vec<Box<[u8]>> = known.map(Box::from).collect();
    for name in seen.iter().copied().flatten() {
        if names.len() < MAX_CUSTOM && !names.iter().any(|other| other.eq_ignore_ascii_case(name)) {
            names.push(name.clone());
        }
    }
    names
}

/// Which prepared statements a survey asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum StatementScope {
    #[default]
    None,
    /// Statements prepared in SQL.
    OfSql,
    /// Also statements that a client has parsed under a name of its own.
    OfClients,
}

/// Names that poolers give to statements: this Poolhouse, others before or behind it, PgBouncer.
const NAMES_OF_POOLERS: &str = "^(poolhouse_[0-9a-f]{16}_|PGBOUNCER_)[0-9]+$";

/// Former names of parameters, which clients may use and the server lists by another.
const OLD_NAMES: [&str; 2] = ["sort_mem", "vacuum_mem"];

/// Appends an expression for a text as hexadecimal bytes in the encoding of the database: the client's encoding does
/// not matter.
fn write_bytes(sql: &mut Vec<u8>, expression: &[u8]) {
    sql.extend_from_slice(b"pg_catalog.encode(pg_catalog.convert_to(");
    sql.extend_from_slice(expression);
    sql.extend_from_slice(b", pg_catalog.getdatabaseencoding()), 'hex')");
}

/// The bytes of such a text; `None` if it is malformed.
fn bytes_of(hex: &[u8]) -> Option<Box<[u8]>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, []) = hex.as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

/// Parameters that are set for a guarded query itself.
const GUARDED: [&str; 3] = ["statement_timeout", "lock_timeout", "jit"];

/// The query in a form that no time-out of the client ends, with the session's own values of the guarding parameters
/// and their defaults. It leaves nothing behind, within a transaction or outside.
fn write_guarded(suspects: Suspects, custom: &[Box<[u8]>], statements: StatementScope, within: bool) -> Vec<u8> {
    let (begin, end): (&[u8], &[u8]) = if within {
        (b"SAVEPOINT poolhouse;", b";ROLLBACK TO SAVEPOINT poolhouse;RELEASE SAVEPOINT poolhouse")
    } else {
        (b"BEGIN ISOLATION LEVEL READ COMMITTED, READ ONLY, NOT DEFERRABLE;", b";COMMIT")
    };
    let mut sql = begin.to_vec();
    let ask = |sql: &mut Vec<u8>, word: char| {
        for (number, name) in GUARDED.iter().enumerate() {
            let between = if number == 0 { "" } else { " UNION ALL " };
            sql.extend_from_slice(format!("{between}SELECT '{word}', ").as_bytes());
            write_bytes(sql, format!("'{name}'").as_bytes());
            sql.push(b',');
            write_bytes(sql, format!("pg_catalog.current_setting('{name}')").as_bytes());
        }
    };
    ask(&mut sql, 't');
    sql.extend_from_slice(
        b";SET LOCAL statement_timeout = 0;SET LOCAL lock_timeout TO DEFAULT;SET LOCAL jit TO DEFAULT;\
          SET LOCAL statement_timeout TO DEFAULT;",
    );
    ask(&mut sql, 'd');
    sql.extend_from_slice(b";SET LOCAL statement_timeout = 0;SET LOCAL lock_timeout = 0;SET LOCAL jit = off;");
    sql.extend(write(suspects, custom, statements));
    sql.extend_from_slice(end);
    sql
}

pub(crate) fn write(suspects: Suspects, custom: &[Box<[u8]>], statements: StatementScope) -> Vec<u8> {
    let mut sql = Vec::new();
    // Rows of: s name value, for a setting; p word, for what pins; l name, for a channel that is listened to; u, if
    // pg_settings is not PostgreSQL's own.
    sql.extend_from_slice(
        b"/* poolhouse */ SELECT 'p'::pg_catalog.text, 'temporary'::pg_catalog.text, NULL::pg_catalog.text \
          WHERE pg_catalog.pg_my_temp_schema() OPERATOR(pg_catalog.<>) 0::pg_catalog.oid AND (\
          EXISTS (SELECT 1 FROM pg_catalog.pg_depend WHERE refclassid OPERATOR(pg_catalog.=) \
          'pg_catalog.pg_namespace'::pg_catalog.regclass \
          AND refobjid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema())) \
          UNION ALL SELECT 'p', 'cursor', NULL WHERE EXISTS (SELECT 1 FROM pg_catalog.pg_cursors WHERE is_holdable) \
          UNION ALL SELECT 'p', 'lock', NULL WHERE EXISTS (SELECT 1 FROM pg_catalog.pg_locks \
          WHERE locktype OPERATOR(pg_catalog.=) 'advisory'::pg_catalog.text \
          AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()) \
          UNION ALL SELECT 'l', channel, NULL FROM pg_catalog.pg_listening_channels() AS channel",
    );
    if statements != StatementScope::None {
        let named = format!(" OR name OPERATOR(pg_catalog.!~) '{NAMES_OF_POOLERS}'::pg_catalog.text");
        let named = if statements == StatementScope::OfClients { named.as_bytes() } else { b"" };
        sql.extend_from_slice(
            b" UNION ALL SELECT 'p', 'prepare', NULL WHERE EXISTS (SELECT 1 FROM pg_catalog.pg_prepared_statements \
             WHERE from_sql",
        );
        sql.extend_from_slice(named);
        sql.push(b')');
    }
    if suspects.intersects(Suspects::NAME_FROM_VIEW) {
        sql.extend_from_slice(
            b" UNION ALL SELECT 'u', NULL, NULL WHERE \
             pg_catalog.to_regclass('pg_settings'::pg_catalog.text)::pg_catalog.oid \
              OPERATOR(pg_catalog.<>) 'pg_catalog.pg_settings'::pg_catalog.regclass::pg_catalog.oid",
        );
    }
    if suspects.intersects(Suspects::NEEDS_SETTINGS) {
        sql.extend_from_slice(b" UNION ALL SELECT 's', ");
        write_bytes(&mut sql, b"name");
        sql.push(b',');
        write_bytes(&mut sql, b"setting");
        sql.extend_from_slice(
            b" FROM pg_catalog.pg_settings WHERE source OPERATOR(pg_catalog.=) 'session'::pg_catalog.text",
        );
        let always: [&[u8]; 2] = [b"role", b"session_authorization"];
        for name in always.into_iter().chain(custom.iter().map(|name| &**name)) {
            let mut literal = Vec::new();
            write_literal(&mut literal, name);
            sql.extend_from_slice(b" UNION ALL SELECT 's', ");
            write_bytes(&mut sql, &literal);
            sql.push(b',');
            write_bytes(&mut sql, &[b"pg_catalog.current_setting(", &literal[..], b", true)"].concat());
        }
    }
    sql
}

type Setting = (Box<[u8]>, Box<[u8]>);

#[derive(Default)]
pub(crate) struct Survey {
    asked: Suspects,
    /// Names of parameters that may have been reset.
    resets: Vec<Box<[u8]>>,
    /// What ties the client to the server.
    pub(crate) pin: Option<Pin>,
    /// Channels that the server listens to.
    pub(crate) channels: Vec<Box<[u8]>>,
    set: Vec<Setting>,
    /// The query is guarded: the session's own values of the guarding parameters come first.
    guarded: bool,
    own: Vec<Setting>,
    /// A row was too long to be kept.
    pub(crate) too_long: bool,
    /// The view that named the parameters is not PostgreSQL's own.
    pub(crate) unlisted: bool,
    /// The role that was set in the server before.
    role_before: Option<Box<[u8]>>,
    /// Custom parameters that no text has named: an empty one was only cleaned.
    pub(crate) guessed: Vec<Box<[u8]>>,
    /// Custom parameters to ask for in a repetition.
    custom: Vec<Box<[u8]>>,
    statements: StatementScope,
    tries: u8,
}

impl Survey {
    pub(crate) fn new(
        asked: Suspects,
        resets: Vec<Box<[u8]>>,
        custom: &[Box<[u8]>],
        statements: StatementScope,
    ) -> Self {
        Self { asked, resets, custom: custom.to_vec(), statements, tries: 1, ..Self::default() }
    }

    /// The survey of a server in which these settings were made before.
    pub(crate) fn after(self, before: &Settings) -> Self {
        Self { role_before: before.extras.get(b"role").map(Box::from), ..self }
    }

    /// A repetition, and its query; `None` after enough tries.
    pub(crate) fn repetition(&self) -> Option<(Self, Vec<u8>)> {
        let survey = Self {
            tries: self.tries + 1,
            guessed: self.guessed.clone(),
            role_before: self.role_before.clone(),
            guarded: true,
            ..Self::new(self.asked, self.resets.clone(), &self.custom, self.statements)
        };
        (self.tries < MAX_TRIES).then(|| (survey, self.guarded_sql(false)))
    }

    /// Guards the survey, and returns its query for an open transaction.
    pub(crate) fn guard_in_savepoint(&mut self) -> Vec<u8> {
        self.guarded = true;
        self.guarded_sql(true)
    }

    fn guarded_sql(&self, within: bool) -> Vec<u8> {
        write_guarded(self.asked, &self.custom, self.statements, within)
    }

    /// A survey that was never answered.
    pub(crate) fn unknown(other: &Self) -> Self {
        let mut unknown = Self::new(other.asked, Vec::new(), &[], StatementScope::None);
        unknown.asked.remove(Suspects::NEEDS_SETTINGS);
        unknown
    }

    pub(crate) fn note_long_row(&mut self) {
        self.too_long = true;
    }

    fn was_reset(&self, name: &[u8]) -> bool {
        self.resets.iter().any(|reset| **reset == *ALL_PARAMETERS || reset.eq_ignore_ascii_case(name))
    }

    /// Whether the answer says that a parameter was set in the session.
    fn tells_setter(&self, name: &[u8]) -> bool {
        let is_of = |names: &[&str]| names.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes()));
        let unlisted = name.contains(&b'.') || is_identity(name) || is_hidden_setting(name) || is_of(&OLD_NAMES);
        !(unlisted || self.guarded && is_of(&GUARDED))
    }

    pub(crate) fn settings_asked(&self) -> bool {
        self.asked.intersects(Suspects::NEEDS_SETTINGS)
    }

    pub(crate) fn take_row(&mut self, body: &[u8]) -> Option<()> {
        let columns = read_row::<3>(body)?;
        if columns[0] == Some(b"u") {
            self.unlisted = true;
            return Some(());
        }
        match (columns[0]?, columns[1]?, columns[2]) {
            (b"s", name, Some(value)) => {
                let name = bytes_of(name)?;
                if !(self.guarded && GUARDED.iter().any(|other| *other.as_bytes() == *name)) {
                    self.set.push((name, bytes_of(value)?));
                }
            }
            (b"t", name, Some(value)) => self.own.push((bytes_of(name)?, bytes_of(value)?)),
            (b"d", name, Some(value)) => {
                let default = (bytes_of(name)?, bytes_of(value)?);
                let own = self.own.iter().find(|own| own.0 == default.0);
                self.set.extend(own.filter(|own| **own != default).cloned());
            }
            (b"s", _, None) => {}
            (b"l", name, _) => self.channels.push(name.into()),
            (b"p", word, _) => {
                let pin = match word {
                    b"temporary" => Pin::Temporary,
                    b"cursor" => Pin::Cursor,
                    b"lock" => Pin::Lock,
                    b"prepare" => Pin::Prepare,
                    _ => return None,
                };
                self.pin.get_or_insert(pin);
            }
            _ => return None,
        }
        Some(())
    }

    /// Whether this role was set in the session. The server does not say that, and a login may begin with a role:
    /// "none" counts as set only if a text has named the role. An identity set by SET SESSION AUTHORIZATION has no role
    /// until one is set.
    fn has_set_role(&self, role: &[u8], acts_as_another: bool) -> bool {
        if !self.asked.intersects(Suspects::MAY_CHANGE_ROLE) {
            return self.role_before.is_some();
        }
        let none_before = || self.role_before.as_deref() == Some(&b"none"[..]);
        *role != *b"none" || !acts_as_another && (self.asked.intersects(Suspects::NAMES_ROLE) || none_before())
    }

    /// The settings of the server, and those of its client: the same, but for values that were reset to the server's
    /// own, where the client's `start` was another. `user`: the login of the server. `None` if that is more than can be
    /// remembered.
    pub(crate) fn settings(
        &self,
        reported: &Pairs,
        start: &Settings,
        user: Option<&[u8]>,
    ) -> Option<(Settings, Settings)> {
        let set = |name: &[u8]| self.set.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let mut there = Pairs::default();
        let is_own = |value: &[u8]| user.is_none_or(|user| *user == *value);
        let acts_as_another = set(b"session_authorization").is_some_and(|(_, value)| !is_own(value));
        for (name, value) in &self.set {
            let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
            let guessed = value.is_empty() && self.guessed.iter().any(|guess| guess.eq_ignore_ascii_case(name));
            let nothing = guessed
                || (is("role") && !self.has_set_role(value, acts_as_another))
                || (is("session_authorization") && is_own(value))
                || NOT_OF_SESSION.iter().any(|other| is(other));
            if !nothing && (!is_fact(name) || is("session_authorization")) {
                there = there.with(name, value);
                if there.get(name) != Some(value) {
                    return None;
                }
            }
        }
        let (mut wanted, mut wanted_reported) = (there.clone(), reported.clone());
        // What the client began with was set in the server: so what is no longer set was set back.
        let unset = |name: &[u8], was_set: bool| {
            // A custom parameter that was set back is empty, not gone.
            let emptied = |(_, value): &Setting| value.is_empty() && name.contains(&b'.');
            set(name).is_none_or(emptied) && (self.was_reset(name) || (was_set && self.tells_setter(name)))
        };
        for (name, value) in start.extras.iter().filter(|(name, _)| unset(name, true)) {
            wanted = wanted.with(name, value);
            if reported.get(name).is_some() {
                wanted_reported = wanted_reported.with(name, value);
            }
        }
        Some((Settings::new(reported.clone(), there), Settings::new(wanted_reported, wanted)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sql::parameters::tests::pairs, wire::message::row_body};

    fn survey(rows: &[[Option<&str>; 3]]) -> Survey {
        let resets = vec![Box::from(*b"datestyle"), Box::from(*b"geqo")];
        let mut survey = Survey::new(Suspects::SETTINGS, resets, &[], StatementScope::OfSql);
        for [kind, name, value] in rows {
            let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
            let (name, value) = (name.map(hex), value.map(hex));
            let columns =
                if *kind == Some("s") { [*kind, name.as_deref(), value.as_deref()] } else { [*kind, rows[0][1], None] };
            survey.take_row(&row_body(&columns)).unwrap();
        }
        survey
    }

    #[test]
    fn settings_made_in_the_session_become_the_clients() {
        let survey = survey(&[
            [Some("s"), Some("search_path"), Some("a, b")],
            [Some("s"), Some("TimeZone"), Some("CET")],
            [Some("s"), Some("role"), Some("none")],
            [Some("s"), Some("session_authorization"), Some("app")],
            [Some("s"), Some("app.x"), None],
        ]);
        let reported = pairs(&[("TimeZone", "CET"), ("DateStyle", "ISO, MDY")]);
        let own = pairs(&[("TimeZone", "UTC"), ("DateStyle", "ISO, DMY")]);
        let start = Settings::new(own, pairs(&[("geqo", "off"), ("DateStyle", "ISO, DMY")]));
        let (there, wanted) = survey.settings(&reported, &start, Some(b"app")).unwrap();
        assert_eq!(there.extras, pairs(&[("search_path", "a, b"), ("TimeZone", "CET")]));
        // What is no longer set has gone back to the client's start.
        assert_eq!(wanted.reported, pairs(&[("TimeZone", "CET"), ("DateStyle", "ISO, DMY")]));
        let set = [("search_path", "a, b"), ("TimeZone", "CET"), ("geqo", "off"), ("DateStyle", "ISO, DMY")];
        assert_eq!(wanted.extras, pairs(&set));
    }

    #[test]
    fn a_role_is_brought_along() {
        let mut survey = survey(&[
            [Some("s"), Some("role"), Some("reader")],
            [Some("s"), Some("session_authorization"), Some("other")],
        ]);
        survey.asked.insert(Suspects::ROLE);
        let start = Settings::default();
        let (there, _) = survey.settings(&Pairs::default(), &start, Some(b"app")).unwrap();
        assert_eq!(there.extras, pairs(&[("role", "reader"), ("session_authorization", "other")]));
        assert!(there.has_two_identities() && !start.has_two_identities());
    }

    #[test]
    fn a_role_that_no_text_could_have_set_is_the_logins() {
        let role_of = |survey: Survey| {
            let (there, _) = survey.settings(&Pairs::default(), &Settings::default(), Some(b"app")).unwrap();
            there.extras.get(b"role").map(<[u8]>::to_vec)
        };
        let of = |role, suspects| {
            let mut survey = survey(&[[Some("s"), Some("role"), Some(role)]]);
            survey.asked.insert(suspects);
            survey
        };
        assert_eq!(role_of(of("reader", Suspects::NONE)), None);
        assert_eq!(role_of(of("reader", Suspects::OPAQUE)), Some(b"reader".to_vec()));
        assert_eq!(role_of(of("none", Suspects::ROLE)), Some(b"none".to_vec()));
        assert_eq!(role_of(of("none", Suspects::DDL)), None);
        let before = Settings::new(Pairs::default(), pairs(&[("role", "none")]));
        assert_eq!(role_of(of("none", Suspects::NONE).after(&before)), Some(b"none".to_vec()));
    }

    #[test]
    fn a_malformed_row_is_noticed() {
        let mut survey = Survey::new(Suspects::NONE, Vec::new(), &[], StatementScope::None);
        for body in [
            &b""[..],
            b"\0\x03",
            b"\0\x03\0\0\0\x05ab",
            &row_body(&[Some("p"), Some("?"), None]),
            &row_body(&[None; 3]),
        ] {
            assert!(survey.take_row(body).is_none());
        }
    }

    #[test]
    fn only_what_is_suspected_is_asked_for() {
        let sql = |suspects, custom: &[Box<[u8]>], statements| {
            String::from_utf8(write(suspects, custom, statements)).unwrap()
        };
        assert!(!sql(Suspects::LOCK, &[], StatementScope::None).contains("pg_settings"));
        let settings = sql(Suspects::SETTINGS, &[Box::from(*b"a.'b")], StatementScope::None);
        assert!(settings.contains("current_setting(E'a.\\x27b', true)"), "{settings}");
        assert!(!settings.contains("pg_prepared_statements"));
        let of_sql = sql(Suspects::LOCK, &[], StatementScope::OfSql);
        assert!(of_sql.contains("pg_prepared_statements WHERE from_sql)"), "{of_sql}");
        assert!(sql(Suspects::LOCK, &[], StatementScope::OfClients).contains("from_sql OR name"));
    }
}
