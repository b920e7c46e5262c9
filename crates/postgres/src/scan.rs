//! Looks over the text of SQL for what may outlive its transaction: settings, temporary tables, locks and the like. It need
//! not understand: it only has to suspect too much rather than too little, because what is really there is then
//! asked of the server (see `survey`). What a function does inside is hidden from it. It knows no session.

use crate::{
    amend,
    glance::only_the_first_word_counts,
    suspects::{ALL_CHANNELS, ALL_PARAMETERS, Findings, Suspects},
    tokens::{Token, Tokens},
};

/// Most names of custom parameters noted of one text.
const MAX_CUSTOM: usize = 64;

/// Longest name of a parameter that is noted, in bytes.
const MAX_NAME: usize = 255;

/// Most tokens looked at behind a word to see what it does: there may be such words without end.
const MAX_AHEAD: usize = 64;

/// Settings that change neither what a text means nor the types of its results.
const HARMLESS: [&str; 24] = [
    "application_name",
    "client_min_messages",
    "constraint_exclusion",
    "cursor_tuple_fraction",
    "deadlock_timeout",
    "default_transaction_deferrable",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "effective_cache_size",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "jit",
    "lock_timeout",
    "log_min_duration_statement",
    "log_min_messages",
    "log_statement",
    "maintenance_work_mem",
    "plan_cache_mode",
    "random_page_cost",
    "statement_timeout",
    "synchronous_commit",
    "temp_buffers",
    "transaction_timeout",
    "work_mem",
];

/// Looks over the text of a Query or Parse.
pub(crate) fn scan(text: &[u8]) -> Findings {
    let mut findings = Findings::default();
    glance(text, &mut findings);
    if findings.suspects.any(Suspects::SETS_BACK) && amend::mark(text).is_some() {
        // It was amended before: what it sets back is as it should be.
        findings.settle_resets();
    }
    findings
}

/// The short way, where it leads to the same.
#[inline]
fn glance(text: &[u8], found: &mut Findings) {
    let mut tokens = Tokens::new(text);
    match tokens.next() {
        Some(Token::Word(word)) if !word.eq_ignore_ascii_case(b"do") && only_the_first_word_counts(text) => {
            begin(word, &mut tokens, found);
        }
        _ => look(text, found, true),
    }
}

fn look(text: &[u8], found: &mut Findings, outermost: bool) {
    let mut tokens = Tokens::new(text);
    let mut start = true;
    let mut procedural = false;
    // The word before, if it may stand before TEMP or HOLD.
    let mut before = Before::Other;
    while let Some(token) = tokens.next() {
        let Token::Word(word) = token else {
            match token {
                Token::Symbol(b';') => (start, procedural) = (true, false),
                Token::Literal(body) if procedural && outermost => look(body, found, false),
                Token::Symbol(b'(') => {}
                _ => start = false,
            }
            before = Before::Other;
            continue;
        };
        if std::mem::take(&mut start) {
            procedural = word.eq_ignore_ascii_case(b"do");
            begin(word, &mut tokens, found);
        }
        anywhere(word, before, &tokens, found);
        if !outermost {
            // In procedural code a statement begins after many words, and a text may be composed.
            start = true;
            if word.eq_ignore_ascii_case(b"execute") {
                found.suspects.add(Suspects::ALL);
            }
        }
        before = Before::of(word);
    }
}

/// What a word means for the next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// CREATE TEMP, INTO TEMP
    Temporary,
    /// WITH HOLD
    Hold,
    Other,
}

impl Before {
    #[inline]
    fn of(word: &[u8]) -> Self {
        let is = |other: &str| word.eq_ignore_ascii_case(other.as_bytes());
        match word.len() {
            4 if is("with") => Self::Hold,
            4 if is("into") => Self::Temporary,
            5 if is("local") => Self::Temporary,
            6 if is("create") || is("global") => Self::Temporary,
            7 if is("replace") => Self::Temporary,
            _ => Self::Other,
        }
    }
}

/// The first word of a statement.
fn begin(word: &[u8], tokens: &mut Tokens<'_>, found: &mut Findings) {
    let is = |other: &str| word.eq_ignore_ascii_case(other.as_bytes());
    let suspects = match word.first().map(u8::to_ascii_lowercase) {
        Some(b's') if is("set") => return set(tokens, found),
        Some(b'r') if is("reset") => {
            note_name(tokens, found);
            note_reset(tokens, found);
            Suspects::SETTINGS.and(Suspects::MEANING).and(Suspects::RESET)
        }
        Some(b'd') if is("discard") && !next_is(tokens, "all") => Suspects::UNDO,
        Some(b'd') if is("discard") => {
            found.resets.push(Box::from(*ALL_PARAMETERS));
            let settings = Suspects::SETTINGS.and(Suspects::MEANING).and(Suspects::RESET);
            settings.and(Suspects::UNDO).and(Suspects::FORGET)
        }
        Some(b'd') if is("deallocate") => Suspects::UNDO.and(Suspects::FORGET),
        Some(b'd') if is("drop") => Suspects::UNDO,
        Some(b'c') if is("close") => Suspects::UNDO,
        Some(b'u') if is("unlisten") => {
            note_unlisten(tokens, found);
            Suspects::UNDO
        }
        Some(b'l') if is("listen") => Suspects::LISTEN,
        Some(b'i') if is("insert") => Suspects::SEQUENCE,
        Some(b'p') if is("prepare") && !next_is(tokens, "transaction") => Suspects::PREPARE,
        _ => return,
    };
    found.suspects.add(suspects);
}

fn next_is(tokens: &Tokens<'_>, other: &str) -> bool {
    matches!(tokens.clone().next(), Some(Token::Word(word)) if word.eq_ignore_ascii_case(other.as_bytes()))
}

/// What follows SET.
fn set(tokens: &mut Tokens<'_>, found: &mut Findings) {
    let mut lasting = true;
    let mut ahead = tokens.clone();
    loop {
        let word = match ahead.next() {
            Some(Token::Word(word) | Token::Quoted(word)) => word,
            _ => return found.suspects.add(Suspects::SETTINGS.and(Suspects::MEANING)),
        };
        let is = |other: &str| word.eq_ignore_ascii_case(other.as_bytes());
        if is("local") {
            lasting = false;
        } else if is("transaction") || is("constraints") {
            return;
        } else if !is("session") {
            break;
        }
        *tokens = ahead.clone();
    }
    if lasting {
        found.suspects.add(Suspects::SETTINGS);
    }
    let value = tokens.clone().take(MAX_AHEAD).take_while(|token| *token != Token::Symbol(b';'));
    // SET TIME ZONE LOCAL; of other parameters it is a value like any.
    let zone = next_is(tokens, "time");
    let is_word =
        |token: &Token<'_>, other: &[u8]| matches!(token, Token::Word(word) if word.eq_ignore_ascii_case(other));
    if value.into_iter().any(|token| is_word(&token, b"default") || (zone && is_word(&token, b"local"))) {
        found.suspects.add(if lasting { Suspects::RESET } else { Suspects::LOCAL_RESET });
        note_reset(tokens, found);
    }
    if !note_name(tokens, found) {
        found.suspects.add(Suspects::MEANING);
    }
}

/// Notes the name that follows as one that is set back.
fn note_reset(tokens: &Tokens<'_>, found: &mut Findings) {
    let name = name(tokens).unwrap_or_default().to_ascii_lowercase();
    let name: &[u8] = match &name[..] {
        b"all" => ALL_PARAMETERS,
        b"time" => b"timezone",
        b"names" => b"client_encoding",
        b"schema" => b"search_path",
        // SESSION AUTHORIZATION
        b"session" | b"authorization" => b"session_authorization",
        other => other,
    };
    match found.resets.len() {
        0..MAX_CUSTOM => found.resets.push(name.into()),
        _ => found.resets[MAX_CUSTOM - 1] = Box::from(*ALL_PARAMETERS),
    }
}

/// Notes the channel that follows as one not listened to any more.
fn note_unlisten(tokens: &Tokens<'_>, found: &mut Findings) {
    let name = match name(tokens) {
        Some(name) => name,
        None if tokens.clone().next() == Some(Token::Symbol(b'*')) => ALL_CHANNELS.to_vec(),
        None => return,
    };
    if found.unlistens.len() < MAX_CUSTOM {
        found.unlistens.push(name.into());
    }
}

/// Notes the name that follows; whether it is harmless.
fn note_name(tokens: &Tokens<'_>, found: &mut Findings) -> bool {
    name(tokens).is_some_and(|name| note(&name, found))
}

/// The name that follows, as PostgreSQL would spell it.
fn name(tokens: &Tokens<'_>) -> Option<Vec<u8>> {
    let mut ahead = tokens.clone();
    let mut name = Vec::new();
    loop {
        match ahead.next() {
            Some(Token::Word(word)) => name.extend(word.to_ascii_lowercase()),
            Some(Token::Quoted(word)) => name.extend_from_slice(word),
            _ => return None,
        }
        // One that is too long need not be known to its end.
        if ahead.next() != Some(Token::Symbol(b'.')) || name.len() > MAX_NAME {
            return Some(name);
        }
        name.push(b'.');
    }
}

fn note(name: &[u8], found: &mut Findings) -> bool {
    if !name.contains(&b'.') {
        return HARMLESS.iter().any(|harmless| name.eq_ignore_ascii_case(harmless.as_bytes()))
            || name.to_ascii_lowercase().starts_with(b"enable_");
    }
    if name.len() > MAX_NAME || found.custom.len() >= MAX_CUSTOM {
        found.suspects.add(Suspects::UNNAMED);
    } else if !found.custom.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        found.custom.push(name.into());
    }
    true
}

/// A word anywhere in a statement.
#[inline]
fn anywhere(word: &[u8], before: Before, tokens: &Tokens<'_>, found: &mut Findings) {
    let is = |other: &str| word.eq_ignore_ascii_case(other.as_bytes());
    let suspects = match (word.len(), word[0] | 0x20) {
        (4, b't') if before == Before::Temporary && is("temp") => Suspects::TEMPORARY,
        (9, b't') if before == Before::Temporary && is("temporary") => Suspects::TEMPORARY,
        (4, b'h') if before == Before::Hold && is("hold") => Suspects::CURSOR,
        (10, b's') if is("set_config") => return set_config(tokens.clone(), found),
        (9, b's') if is("set_limit") => Suspects::SETTINGS,
        (7, b'c') if is("currval") => Suspects::LAST_VALUE,
        (7, b'l') if is("lastval") => Suspects::LAST_VALUE,
        (7, b'n') if is("nextval") => Suspects::SEQUENCE,
        (6, b's') if is("setval") => Suspects::SEQUENCE,
        (7.., b'p') if word[1..].starts_with(b"g_") || word[1..].starts_with(b"G_") => {
            let word = word.to_ascii_lowercase();
            if word.starts_with(b"pg_temp") {
                Suspects::TEMPORARY
            } else if word.starts_with(b"pg_advisory_unlock") {
                Suspects::LOCK.and(Suspects::UNDO)
            } else if (word.starts_with(b"pg_advisory_") || word.starts_with(b"pg_try_advisory_"))
                && !word.windows(4).any(|part| part == b"xact")
            {
                Suspects::LOCK
            } else {
                return;
            }
        }
        _ => return,
    };
    found.suspects.add(suspects);
}

/// What follows set_config: `('name', value, whether it is local)`.
fn set_config(mut tokens: Tokens<'_>, found: &mut Findings) {
    let opened = tokens.next() == Some(Token::Symbol(b'('));
    let name = tokens.next();
    let simple = opened && tokens.next() == Some(Token::Symbol(b','));
    let name = match name {
        Some(Token::Literal(name)) if simple => Some(name),
        Some(Token::Number) if simple => {
            return found.suspects.add(Suspects::SETTINGS.and(Suspects::MEANING).and(Suspects::BOUND_NAME));
        }
        _ => None,
    };
    let mut depth = 1;
    let mut last = None;
    let mut commas = 0;
    let mut ahead = tokens.by_ref().take(MAX_AHEAD);
    while name.is_some() && depth > 0 {
        match ahead.next() {
            Some(Token::Symbol(b'(' | b'[')) => depth += 1,
            Some(Token::Symbol(b')' | b']')) => depth -= 1,
            Some(Token::Symbol(b',')) if depth == 1 => (commas, last) = (commas + 1, None),
            Some(token) => last = Some(token),
            None => break,
        }
    }
    let local = commas == 1
        && match last {
            Some(Token::Word(word)) => word.eq_ignore_ascii_case(b"true"),
            Some(Token::Literal(text)) => text.eq_ignore_ascii_case(b"true") || text.eq_ignore_ascii_case(b"t"),
            _ => false,
        };
    match name {
        Some(name) => {
            // Whether it is local is not always to be seen.
            let harmless = if local && name.contains(&b'.') { true } else { note(name, found) };
            if !harmless {
                found.suspects.add(Suspects::MEANING);
            }
            if !local {
                found.suspects.add(Suspects::SETTINGS);
            }
        }
        None => found.suspects.add(Suspects::SETTINGS.and(Suspects::MEANING).and(Suspects::UNNAMED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suspects(sql: &str) -> Suspects {
        scan(sql.as_bytes()).suspects
    }

    fn has(sql: &str, wanted: Suspects) {
        assert!(suspects(sql).any(wanted), "{sql}");
    }

    fn has_not(sql: &str, unwanted: Suspects) {
        assert!(!suspects(sql).any(unwanted), "{sql}");
    }

    #[test]
    fn ordinary_statements_raise_no_suspicion() {
        for sql in [
            "",
            "SELECT abalance FROM pgbench_accounts WHERE aid = 12;",
            "BEGIN; UPDATE t SET a = 1, temp = 2 WHERE b = 'set x'; COMMIT",
            "select temp, hold from t -- set x = 1",
            "/* set /* nested */ x */ select $$listen$$, $a$ set $a$, E'\\'; listen x'",
            "select pg_advisory_xact_lock(1), pg_try_advisory_xact_lock(2)",
            "set transaction isolation level serializable",
            "set constraints all deferred",
            "prepare transaction 'x'",
            "select \"set_config\" from t",
        ] {
            has_not(sql, Suspects::ALL);
        }
    }

    #[test]
    fn what_lasts_is_suspected() {
        for (sql, what) in [
            ("set x = 1", Suspects::SETTINGS),
            ("select 1;\n SET SESSION search_path TO a", Suspects::SETTINGS),
            ("(select 1); set role x", Suspects::SETTINGS),
            ("set session authorization x", Suspects::SETTINGS),
            ("set session characteristics as transaction read only", Suspects::SETTINGS),
            ("set time zone 'UTC'", Suspects::SETTINGS),
            ("reset all", Suspects::SETTINGS),
            ("reset a", Suspects::RESET),
            ("set time zone local", Suspects::RESET),
            ("set a to default; select 1", Suspects::RESET),
            ("discard all", Suspects::FORGET),
            ("select set_config('a.b', $1, false)", Suspects::SETTINGS),
            ("select set_config('search_path', x(1, 2), $2)", Suspects::SETTINGS),
            ("select set_config($1, $2, true)", Suspects::BOUND_NAME),
            ("select set_config('a.' || 'b', $2, true)", Suspects::UNNAMED),
            ("create temp table t(a int)", Suspects::TEMPORARY),
            ("CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 1", Suspects::TEMPORARY),
            ("create local temporary table t()", Suspects::TEMPORARY),
            ("select 1 into temp x", Suspects::TEMPORARY),
            ("create function pg_temp.f() returns int", Suspects::TEMPORARY),
            ("declare c cursor with hold for select 1", Suspects::CURSOR),
            ("select pg_advisory_lock(1)", Suspects::LOCK),
            ("select PG_TRY_ADVISORY_LOCK_SHARED(1)", Suspects::LOCK),
            ("listen a", Suspects::LISTEN),
            ("prepare a as select 1", Suspects::PREPARE),
            ("select currval('s')", Suspects::LAST_VALUE),
            ("do $$ begin perform set_config('a.b', 'c', false); end $$", Suspects::SETTINGS),
            ("do $$ begin execute 'li' || 'sten x'; end $$", Suspects::LISTEN),
        ] {
            has(sql, what);
        }
    }

    #[test]
    fn what_is_local_is_left_alone_but_may_change_meanings() {
        has_not("set local work_mem = '1MB'", Suspects::ALL);
        has_not("set synchronous_commit = local", Suspects::RESET);
        // One more than there are would keep the text from being amended.
        assert_eq!(scan(b"set synchronous_commit = local; reset all; savepoint one").resets.len(), 1);
        has_not("set local app.tenant = '1'", Suspects::LASTING);
        has_not("select set_config('request.jwt', $1, true)", Suspects::ALL);
        has_not("set local search_path = a", Suspects::SETTINGS);
        has_not("discard plans", Suspects::SETTINGS);
        has("set local search_path = a", Suspects::MEANING);
        has("set local work_mem to default", Suspects::LOCAL_RESET);
        has_not("set local work_mem to default", Suspects::LASTING);
        has("select set_config('search_path', 'a', true)", Suspects::MEANING);
    }

    #[test]
    fn names_of_custom_parameters_are_noted() {
        let names = |sql: &str| -> Vec<String> {
            scan(sql.as_bytes()).custom.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
        };
        assert_eq!(names("set App.Tenant = 1; set session a.\"B\" to 2"), ["app.tenant", "a.B"]);
        assert_eq!(names("reset a.b"), ["a.b"]);
        assert_eq!(names("select set_config('a.b', '1', false)"), ["a.b"]);
        assert_eq!(names("set work_mem = 1"), [""; 0]);
        let resets = |sql: &str| -> Vec<String> {
            scan(sql.as_bytes()).resets.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
        };
        assert_eq!(
            resets("reset Work_Mem; set time zone local; set a.b to default; discard all"),
            ["work_mem", "timezone", "a.b", "*"]
        );
    }

    #[test]
    fn a_text_is_looked_at_once_or_a_few_times_whatever_is_in_it() {
        let most = 64 * 1024;
        let texts = [
            format!("do $$ {} $$", "set ".repeat(most / 4)),
            "set_config('a.b',".repeat(most / 17),
            "select $a".repeat(most / 9),
            "reset a.".repeat(most / 8),
            "set session ".repeat(most / 12),
            format!("do $$ reset{} $$", ".reset".repeat(most / 6)),
        ];
        for text in texts {
            let start = std::time::Instant::now();
            scan(text.as_bytes());
            let taken = start.elapsed();
            assert!(taken.as_secs() < 2, "{}: {taken:?}", &text[..20]);
        }
    }

    proptest::proptest! {
        #[test]
        fn a_glance_finds_what_a_look_finds(parts in proptest::collection::vec(
            proptest::sample::select(&[
                "set", "RESET ", "do $$", "$$", "insert", "select", "discard all", ";", " ", "\n", "(", "'", "--", "/*", "*/", "x.y",
                "=1", "TEMP", "temporary", "create ", "with ", "hold", "set_config('a',", "set_limit", "pg_temp.x", "currval",
                "LastVal(", "nextval", "setval", "pg_advisory_lock", "pg_try_Advisory_lock", "to default", "local ", "\0", "e", "\"",
                "unlisten ", "listen ", "*", "prepare ", "execute", "close", "_", "$1", ",",
            ][..]), 0..12)
        ) {
            let text = parts.concat();
            let (mut glanced, mut looked) = (Findings::default(), Findings::default());
            glance(text.as_bytes(), &mut glanced);
            look(text.as_bytes(), &mut looked, true);
            proptest::prop_assert_eq!(glanced, looked);
        }
    }

    #[test]
    fn no_text_is_too_strange() {
        for sql in [
            &b"'"[..],
            b"\"",
            b"/*",
            b"--",
            b"$",
            b"$a$",
            b"$1",
            b"E'\\",
            b"set",
            b"set local",
            b"set_config(",
            b"\xff\xfe;\0",
        ] {
            scan(sql);
        }
    }
}
