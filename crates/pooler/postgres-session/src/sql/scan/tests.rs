use super::*;

fn suspects(sql: &str) -> Suspects {
    scan(sql.as_bytes()).suspects
}

fn texts(names: &[Box<[u8]>]) -> Vec<String> {
    names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

fn has(sql: &str, wanted: Suspects) {
    assert!(suspects(sql).intersects(wanted), "{sql}");
}

fn has_not(sql: &str, unwanted: Suspects) {
    assert!(!suspects(sql).intersects(unwanted), "{sql}");
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
        has_not(sql, Suspects::ANYTHING);
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
        ("discard all", Suspects::DEALLOCATE),
        ("select set_config('a.b', $1, false)", Suspects::SETTINGS),
        ("select set_config('search_path', x(1, 2), $2)", Suspects::SETTINGS),
        ("select set_config($1, $2, true)", Suspects::BOUND_NAME),
        ("select set_config('a.' || 'b', $2, true)", Suspects::UNKNOWN_NAME),
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
    has_not(&text("pg_settings"), Suspects::UNKNOWN_NAME);
    has(&text("pg_settings"), Suspects::NAME_FROM_VIEW);
    has(&text("pg_catalog.pg_settings"), Suspects::SETTINGS);
    has_not(&text("pg_catalog.pg_settings"), Suspects::NAME_FROM_VIEW);
    has(&text("mine"), Suspects::UNKNOWN_NAME);
}

#[test]
fn what_is_local_is_left_alone_but_may_change_meanings() {
    has_not("set local work_mem = '1MB'", Suspects::ANYTHING);
    has_not("set synchronous_commit = local", Suspects::RESET);
    // One more than there are would keep the text from being amended.
    assert_eq!(scan(b"set synchronous_commit = local; reset all; savepoint one").resets.len(), 1);
    has_not("set local app.tenant = '1'", Suspects::LASTING);
    has_not("select set_config('request.jwt', $1, true)", Suspects::ANYTHING);
    has_not("set local search_path = a", Suspects::SETTINGS);
    has_not("discard plans", Suspects::SETTINGS);
    has("set local search_path = a", Suspects::MEANING);
    has("set local work_mem to default", Suspects::LOCAL_RESET);
    has_not("set local work_mem to default", Suspects::LASTING);
    has("select set_config('search_path', 'a', true)", Suspects::MEANING);
}

#[test]
fn names_of_custom_parameters_are_noted() {
    let names = |sql: &str| texts(&scan(sql.as_bytes()).custom);
    assert_eq!(names("set App.Tenant = 1; set session a.\"B\" to 2"), ["app.tenant", "a.B"]);
    assert_eq!(names("reset a.b"), ["a.b"]);
    assert_eq!(names("select set_config('a.b', '1', false)"), ["a.b"]);
    assert_eq!(names("set work_mem = 1"), [""; 0]);
    let resets = |sql: &str| texts(&scan(sql.as_bytes()).resets);
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
    let calls = |sql: &str| texts(&scan(sql.as_bytes()).calls);
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
        assert!(!suspects(sql).intersects(Suspects::LASTING), "{sql}");
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
        has(sql, Suspects::OPAQUE);
    }
    for sql in ["load 'x'", "set seed = 0.1", "select setseed(0.1)", "select * from dblink_connect('x')"] {
        has(sql, Suspects::IRREVERSIBLE);
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
        ("select set_config(values, 'evil', false) from t", Suspects::UNKNOWN_NAME),
        ("select * into orders from public.orders", Suspects::TEMPORARY),
        ("set app.länge = 1", Suspects::UNKNOWN_NAME),
        ("select set_config('app.tenant','evil', true and false)", Suspects::SETTINGS),
        ("select \"set_config\"('app.tenant','evil', false)", Suspects::SETTINGS),
        ("select \"pg_advisory_lock\"(1)", Suspects::LOCK),
        ("select U&\"setsee\\0064\"(0.25)", Suspects::IRREVERSIBLE),
        ("select set_config(E'app\\x2etenant', 'evil', false)", Suspects::UNKNOWN_NAME),
        ("SELECT E'a'\n'b\\''; SET app.tenant=evil; SELECT ''", Suspects::SETTINGS),
    ] {
        has(sql, what);
    }
    assert!(scan(b"select 'O\\'Brien'; set app.tenant to 'evil'; select ''").suspects.intersects(Suspects::OPAQUE));
    assert!(scan(b"select 'O\\'; set app.tenant to 1").backslash);
    assert!(scan("select 'ä'".as_bytes()).wide && !scan(b"select 'a'").wide);
    assert!(scan(b"; commit").exits && !scan(b"select 1; commit").exits);
}

#[test]
fn no_text_is_too_strange() {
    for sql in r#"'|"|/*|--|$|$a$|$1|E'\|set|set local|set_config("#.split('|') {
        scan(sql.as_bytes());
    }
    scan(b"\xff\xfe;\0");
}
