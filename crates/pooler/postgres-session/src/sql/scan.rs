//! Looks over the text of SQL for what may outlive its transaction: settings, temporary tables, locks and the like.
//! Nothing is taken for harmless but what is known to be: kinds of statements (`kinds`), and functions of the system
//! that are called by name (`calls`). What is left behind is then asked of the server (see `session::survey`), and
//! cleaned before somebody else gets it (see `features::cleaning`). What a text sets and sets back is in `settings`. It
//! knows no session.

mod calls;
mod glance;
mod kinds;
mod listed;
mod notation;
mod settings;

use crate::sql::{
    reset,
    suspects::{ALL_PARAMETERS, Findings, Suspects},
    tokens::{Token, Tokens},
};
use calls::Before;
use kinds::Kind;
pub(crate) use notation::{fields, names};
use settings::next_is;

/// Looks over the text of a Query or Parse.
pub(crate) fn scan(text: &[u8]) -> Findings {
    if glance::is_plain(text) {
        return Findings::default();
    }
    let mut findings = Findings::default();
    if look(text, &mut findings, true).unclear {
        findings = Findings::misread(&findings);
    }
    if findings.suspects.any(Suspects::UNNAMED)
        && let Some((named, qualified)) = listed::named(text)
    {
        findings = scan(&named);
        findings.suspects.add(if qualified { Suspects::NONE } else { Suspects::LISTED });
    }
    if findings.suspects.any(Suspects::SETS_BACK) && reset::mark(text).is_some() {
        // It was amended before: what it sets back is as it should be.
        findings.settle_resets();
    }
    findings
}

/// Looks over the beginning of a text that is too long to be kept. Anything is supposed of it but that it sets what
/// nobody has seen; unless that is to be seen, or it is code, which is all of one piece.
pub(crate) fn scan_beginning(text: &[u8]) -> Findings {
    let mut seen = Findings::default();
    let reading = look(text, &mut seen, true);
    let mut supposed = Findings { custom: seen.custom, ..Findings::unreadable() };
    let kept = Suspects::UNNAMED.and(Suspects::BOUND_NAME).and(Suspects::STRINGS);
    supposed.suspects.add(seen.suspects.of(kept));
    if reading.code {
        supposed.suspects.add(Suspects::UNNAMED);
    }
    supposed
}

/// What a text is, beside what is found in it.
struct Reading {
    /// There is a quotation or a comment without an end.
    unclear: bool,
    /// There is procedural code in it.
    code: bool,
}

/// What is supposed of code that cannot be read.
const UNREAD_CODE: Suspects = Suspects::ALL.and(Suspects::BEYOND);

/// Which name is that of a table, so that what is in parentheses behind it are columns.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Table {
    #[default]
    No,
    Next,
    Last,
}

/// Where in a text its reader is.
struct Place<'a> {
    /// A statement begins here.
    start: bool,
    /// Options of EXPLAIN are being read.
    prefix: bool,
    /// The next text constant is code.
    procedural: bool,
    depth: u32,
    /// Of the lowest 64 depths: those whose parenthesis may be followed by a call.
    open: u64,
    /// The name just read, if it is one: whether it is quoted, and qualified.
    name: Option<(&'a [u8], bool, bool)>,
    /// It is qualified by the schema of temporary objects.
    temporary: bool,
    /// What stands before that name, and all that qualifies it.
    before_name: Before<'a>,
    last: Before<'a>,
    dot: bool,
    /// The word before the last.
    last_but_one: Before<'a>,
    /// Whether the next name is that of a table, or the last one was.
    table: Table,
    updates: bool,
    settings_table: bool,
    /// It is the text itself, and not code in it.
    outermost: bool,
    begun: bool,
}

fn look(text: &[u8], found: &mut Findings, outermost: bool) -> Reading {
    let (mut code, mut escaped) = (false, false);
    let mut tokens = Tokens::new(text);
    let mut at = Place {
        start: outermost,
        prefix: false,
        procedural: false,
        depth: 0,
        open: 0,
        name: None,
        temporary: false,
        before_name: Before::Other,
        last: Before::Other,
        dot: false,
        last_but_one: Before::Other,
        table: Table::No,
        updates: false,
        settings_table: false,
        outermost,
        begun: false,
    };
    while let Some(token) = tokens.next() {
        match token {
            Token::Word(word) => read_name(&mut at, word, false, &mut tokens, found),
            Token::Quoted(word) => read_name(&mut at, word, true, &mut tokens, found),
            Token::Symbol(symbol) => read_symbol(&mut at, symbol, &tokens, found),
            Token::Literal(body) => {
                if at.procedural && outermost {
                    code = true;
                    match notation::code(text, body) {
                        Some(body) => {
                            if look(&body, found, false).unclear {
                                *found = Findings::misread(found);
                            }
                        }
                        None => found.suspects.add(UNREAD_CODE),
                    }
                }
                at.end_name(Before::Other);
                at.start = false;
            }
            Token::Escaped | Token::EscapedName => {
                // Whatever it names.
                let of_name = if token == Token::EscapedName { Suspects::BEYOND } else { Suspects::NONE };
                found.suspects.add(Suspects::HIDDEN.and(of_name));
                escaped |= token == Token::EscapedName;
                if at.procedural {
                    found.suspects.add(UNREAD_CODE);
                }
                at.end_name(Before::Other);
                at.start = false;
            }
            Token::Number => {
                at.end_name(Before::Other);
                at.start = false;
            }
        }
    }
    if at.updates && at.settings_table {
        // Its rule sets what is updated.
        let settings = Suspects::SETTINGS.and(Suspects::MEANING).and(Suspects::READING).and(Suspects::STRINGS);
        found.suspects.add(Suspects::HIDDEN.and(settings).and(Suspects::RESET));
        found.resets.push(Box::from(*ALL_PARAMETERS));
    }
    if outermost {
        found.backslash |= tokens.backslash;
        found.wide |= !text.is_ascii();
    }
    if found.backslash || found.wide || tokens.unclear {
        notation::look_for_words(text, found);
    }
    if escaped {
        settings::note_literals(text, found);
    }
    Reading { unclear: tokens.unclear, code }
}

impl<'a> Place<'a> {
    /// What was read last is no name.
    fn end_name(&mut self, last: Before<'a>) {
        (self.name, self.dot) = (None, false);
        (self.last_but_one, self.last) = (self.last, last);
    }
}

fn read_name<'a>(at: &mut Place<'a>, word: &'a [u8], quoted: bool, tokens: &mut Tokens<'a>, found: &mut Findings) {
    let qualified = at.dot;
    if !qualified {
        at.before_name = at.last;
    }
    at.temporary = qualified && (at.temporary || at.name.is_some_and(|(schema, ..)| is_temporary(schema)));
    if !quoted && !qualified {
        if at.prefix {
            let option = ["analyze", "analyse", "verbose"].iter().any(|option| settings::is(word, option));
            if !option && at.depth == 0 {
                (at.start, at.prefix) = (true, false);
            }
        }
        if std::mem::take(&mut at.start) {
            let exits = found.exits;
            let kind = kinds::begin(word, tokens, found);
            // Behind another statement it is of no interest.
            found.several |= at.begun;
            found.exits = if std::mem::replace(&mut at.begun, true) { exits } else { found.exits };
            at.prefix = kind == Kind::Prefix;
            at.procedural = kind == Kind::Procedural;
            at.table = if kind == Kind::OfTable { Table::Next } else { Table::No };
            anywhere(word, at, found);
            return at.end_name(Before::Word(word));
        }
    } else {
        at.start = false;
    }
    if qualified {
        notation::read(word, found);
    } else {
        at.table = if at.table == Table::Next { Table::Last } else { Table::No };
    }
    anywhere(word, at, found);
    if at.procedural && at.outermost && !["language", "plpgsql"].iter().any(|known| settings::is(word, known)) {
        // Of another language than that nothing is known.
        found.suspects.add(UNREAD_CODE);
    }
    if !at.outermost && !quoted && !qualified {
        // In procedural code a statement begins after many words, and a text may be composed.
        procedural(word, at.last, tokens, found);
    }
    (at.last_but_one, at.last) = (at.last, if quoted { Before::Quoted } else { Before::Word(word) });
    (at.name, at.dot) = (Some((word, quoted, qualified)), false);
}

/// A word of procedural code: it may begin a statement.
fn procedural(word: &[u8], last: Before<'_>, tokens: &mut Tokens<'_>, found: &mut Findings) {
    let is = |other: &str| settings::is(word, other);
    // ON CONFLICT DO is no statement.
    let composes = is("execute") || (is("do") && !next_is(tokens, "nothing") && !next_is(tokens, "update"));
    if composes {
        found.suspects.add(Suspects::ALL);
    } else if is("set") && !last.may_end() {
        // UPDATE t SET
    } else if STARTS.iter().any(|start| is(start)) {
        kinds::begin(word, tokens, found);
    }
}

/// Words that begin a statement wherever they stand in procedural code.
const STARTS: [&str; 16] = [
    "set",
    "reset",
    "discard",
    "deallocate",
    "drop",
    "close",
    "unlisten",
    "listen",
    "insert",
    "prepare",
    "load",
    "create",
    "alter",
    "import",
    "reassign",
    "refresh",
];

/// Looks over the body of a function in PL/pgSQL.
pub(crate) fn scan_procedure(body: &[u8]) -> Findings {
    let mut findings = Findings { backslash: body.contains(&b'\\'), ..Findings::default() };
    if look(body, &mut findings, false).unclear {
        findings = Findings::misread(&findings);
    }
    findings
}

fn read_symbol<'a>(at: &mut Place<'a>, symbol: u8, tokens: &Tokens<'a>, found: &mut Findings) {
    match symbol {
        b';' if at.depth == 0 => {
            (at.start, at.prefix, at.procedural, at.table) = (at.outermost, false, false, Table::No);
            at.end_name(Before::Other);
        }
        b'.' => {
            if at.name.is_none() {
                // `(x).f`, `x[1].f`, `$1.f`
                at.end_name(Before::Other);
                (at.before_name, at.start) = (Before::Other, false);
            }
            at.dot = true;
        }
        b'(' => {
            let odd = match at.name.take() {
                Some((name, quoted, qualified)) => {
                    let of_table = std::mem::take(&mut at.table) == Table::Last;
                    let before = at.before_name;
                    if at.temporary && !before.is_one_of(&["table", "exists", "into"]) {
                        // What a temporary function does is in no catalogue that others read.
                        found.suspects.add(Suspects::HIDDEN.and(Suspects::BEYOND));
                    }
                    if !of_table {
                        let procedural = !at.outermost && !quoted && !qualified && calls::is_procedural(name, before);
                        if !procedural {
                            calls::call(name, quoted, qualified, before, tokens, found);
                        }
                    }
                    // DISTINCT ON (...) f(), OPERATOR(...) f()
                    !quoted && (settings::is(name, "on") || settings::is(name, "operator"))
                }
                None => {
                    at.table = Table::No;
                    false
                }
            };
            at.depth += 1;
            if at.depth < 64 {
                let bit = 1 << at.depth;
                at.open = if odd { at.open | bit } else { at.open & !bit };
            }
            at.end_name(Before::Other);
        }
        b')' => {
            let odd = at.depth >= 64 || at.depth == 0 || at.open >> at.depth & 1 == 1;
            at.depth = at.depth.saturating_sub(1);
            at.end_name(if odd || at.prefix { Before::Other } else { Before::Closed });
        }
        _ => {
            at.end_name(Before::Other);
            at.start = false;
        }
    }
}

/// A word anywhere in a statement.
#[inline]
fn anywhere(word: &[u8], at: &mut Place<'_>, found: &mut Findings) {
    let Some(first) = word.first() else { return };
    let is = |other: &str| settings::is(word, other);
    let before =
        |others: &[&str]| others.iter().any(|other| matches!(at.last, Before::Word(last) if settings::is(last, other)));
    let suspects = match (word.len(), first | 0x20) {
        (4, b't') if is("temp") && before(&TEMPORARY) => Suspects::TEMPORARY,
        (9, b't') if is("temporary") && before(&TEMPORARY) => Suspects::TEMPORARY,
        (4, b'h') if is("hold") && before(&["with"]) => Suspects::CURSOR,
        // SELECT INTO: of the place that is first in search_path.
        (4, b'i') if at.outermost && is("into") && !before(&["insert", "merge"]) => Suspects::TEMPORARY,
        (7, b'c') if is("currval") => Suspects::LAST_VALUE,
        (7, b'l') if is("lastval") => Suspects::LAST_VALUE,
        (7, b'n') if is("nextval") => Suspects::SEQUENCE,
        (6, b's') if is("setval") => Suspects::SEQUENCE,
        (6, b'i') if is("insert") => Suspects::SEQUENCE,
        // CREATE TABLE ... AS EXECUTE
        (7, b'e') if is("execute") && before(&["as"]) => Suspects::HIDDEN,
        (6, b'u') if is("update") => {
            at.updates = true;
            return;
        }
        (11, b'p') if is("pg_settings") => {
            at.settings_table = true;
            return;
        }
        (7.., b'p') if is_temporary(word) => Suspects::TEMPORARY,
        _ => return,
    };
    found.suspects.add(suspects);
}

/// Whether a schema is one of temporary objects.
fn is_temporary(schema: &[u8]) -> bool {
    schema.get(..7).is_some_and(|start| start.eq_ignore_ascii_case(b"pg_temp"))
}

const TEMPORARY: [&str; 5] = ["create", "into", "local", "global", "replace"];

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
    fn a_name_that_pg_settings_has_is_no_unknown_one() {
        let text = |view: &str| format!("SELECT set_config(name, 'view', false) FROM {view} WHERE name = 'geqo'");
        has_not(&text("pg_settings"), Suspects::UNNAMED);
        has(&text("pg_settings"), Suspects::LISTED);
        has(&text("pg_catalog.pg_settings"), Suspects::SETTINGS);
        has_not(&text("pg_catalog.pg_settings"), Suspects::LISTED);
        has(&text("mine"), Suspects::UNNAMED);
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

    #[test]
    fn what_is_not_known_to_be_harmless_is_noted() {
        let calls = |sql: &str| -> Vec<String> {
            scan(sql.as_bytes()).calls.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
        };
        for sql in [
            "select count(*), lower(a) from t where a in (1, 2) and b = any (array[1]) group by (a) having (max(b) > 1)",
            "insert into t (a, b) values (1, default) on conflict (a) do update set (b) = (excluded.b)",
            "insert into s.\"T\" (\"a\") select (1)",
            "with a (x) as (select 1), b as not materialized (select 2) select * from a join (select 1) v (z) using (x)",
            "with recursive r(n) as (values (1) union all select n + 1 from r) select * from r as q(m)",
            "select sum(x) filter (where x > 1) over (partition by (y) order by (z)) from unnest($1) as u(a, b)",
            "select cast(a as numeric(10, 2)), b::varchar(20), extract(epoch from c), a operator(pg_catalog.+) (b) from t",
            "explain (analyze, costs off) select now()",
            "copy t (a, b) from stdin",
            "select pg_catalog.format_type(a, b), distance from t cross join lateral (select 1) x",
            "update t set (a, b) = (1, 2) where exists (select from u)",
        ] {
            assert_eq!(calls(sql), [""; 0], "{sql}");
            assert!(!suspects(sql).any(Suspects::LASTING), "{sql}");
        }
        for (sql, name) in [
            ("select f(1)", "f"),
            ("select F (1)", "f"),
            ("select a.\"F\"(1)", "F"),
            ("select \"Lower\"(1)", "Lower"),
            ("select distinct on (a) f(x)", "f"),
            ("select a operator(pg_catalog.+) f(x)", "f"),
            ("select 1 where 1in(f(2))", "f"),
            ("call p()", "p"),
            ("copy (select f(1)) to stdout", "f"),
            ("explain analyze select f(1)", "f"),
            ("select query_to_xml('select 1', true, true, '')", "query_to_xml"),
            ("select zone(1)", "zone"),
            ("select set (1)", "set"),
            ("select * from f(1) as g(a)", "f"),
            ("copy t from stdin where f(1)", "f"),
            ("select f(values) from (values (1)) as t(values)", "f"),
        ] {
            assert_eq!(calls(sql), [name], "{sql}");
        }
    }

    #[test]
    fn what_is_hidden_or_strange_may_do_anything() {
        for sql in [
            "execute p",
            "do 'begin end'",
            "load 'x'",
            "frobnicate",
            "select U&'a'",
            "select 'a",
            "update pg_settings set setting = '1'",
            "update \"pg_catalog\".\"pg_settings\" set setting = '1'",
            "explain analyze execute p",
            "select dblink_connect('x')",
            "select \"setseed\"(0.5)",
        ] {
            has(sql, Suspects::HIDDEN);
        }
        for sql in ["load 'x'", "set seed = 0.1", "select setseed(0.1)", "select * from dblink_connect('x')"] {
            has(sql, Suspects::BEYOND);
        }
        has_not("create temp table t (a int)", Suspects::DDL);
        for sql in [
            "create table t (a int)",
            "create function f() returns int language sql as 'select 1'",
            "alter table t add a int",
            "drop type t",
        ] {
            has(sql, Suspects::DDL);
        }
    }

    #[test]
    fn what_was_once_overlooked_is_found() {
        for (sql, what) in [
            ("CREATE TABLE \"pg_temp\".\"orders\" (LIKE public.orders)", Suspects::TEMPORARY),
            ("set local search_path = 'pg_temp'", Suspects::TEMPORARY),
            ("select set_config('search_path', $1, true)", Suspects::TEMPORARY),
            ("select set_config('app.tenant','evil', NOT true)", Suspects::SETTINGS),
            ("copy t from stdin where set_config('a.b', 'c', false) = 'c'", Suspects::SETTINGS),
            ("set session.tenant = 1", Suspects::SETTINGS),
            ("set local.tenant = 1", Suspects::SETTINGS),
            ("set \"transaction\".tenant = 1", Suspects::SETTINGS),
            ("select set_config(values, 'evil', false) from t", Suspects::UNNAMED),
            ("select * into orders from public.orders", Suspects::TEMPORARY),
            ("set app.länge = 1", Suspects::UNNAMED),
            ("select set_config('app.tenant','evil', true and false)", Suspects::SETTINGS),
            ("select \"set_config\"('app.tenant','evil', false)", Suspects::SETTINGS),
            ("select \"pg_advisory_lock\"(1)", Suspects::LOCK),
            ("select U&\"setsee\\0064\"(0.25)", Suspects::BEYOND),
            ("select set_config(E'app\\x2etenant', 'evil', false)", Suspects::UNNAMED),
            ("SELECT E'a'\n'b\\''; SET app.tenant=evil; SELECT ''", Suspects::SETTINGS),
        ] {
            has(sql, what);
        }
        assert!(scan(b"select 'O\\'Brien'; set app.tenant to 'evil'; select ''").suspects.any(Suspects::HIDDEN));
        assert!(scan(b"select 'O\\'; set app.tenant to 1").backslash);
        assert!(scan("select 'ä'".as_bytes()).wide && !scan(b"select 'a'").wide);
        assert!(scan(b"; commit").exits && !scan(b"select 1; commit").exits);
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
