use super::{
    super::{
        Catalogue,
        tests::{catalogue, function, row},
    },
    *,
};

fn judged(rows: &[[&str; 7]], trusted: &[&str]) -> Judged {
    let trusted: Vec<String> = trusted.iter().map(|&name| name.to_owned()).collect();
    let mut reading = Catalogue::begin_reading(&catalogue(), trusted.into()).unwrap();
    rows.iter().for_each(|columns| reading.take_row(&row(*columns)).unwrap());
    reading.judge()
}

#[test]
fn functions_that_can_be_read_and_touch_nothing_are_harmless() {
    for (language, source) in [
        ("sql", "select a + 1 from t where lower(b) = $1"),
        ("plpgsql", "begin new.changed := now(); return new; end"),
        (
            "plpgsql",
            "declare x numeric(10, 2); begin if (x > 1) then update t set a = x, b = g(x); end if; return query \
             (select 1); end",
        ),
        (
            "plpgsql",
            "begin perform set_config('app.tenant', x, true); set local work_mem = '1MB'; insert into t (a) values \
             (1); end",
        ),
        (
            "plpgsql",
            "declare c cursor (n int) for select n; begin open c(1); close c; perform pg_notify('a', 'b'); end",
        ),
    ] {
        let rows = [function("f", language, source), function("g", "sql", "select 1")];
        assert_eq!(judged(&rows, &[]).suspicious, [""; 0], "{source}");
    }
}

#[test]
fn a_quoted_name_means_the_function_that_is_spelled_so() {
    let spelled = |called| {
        let rows = ["MyFunc", "a\"b"].map(|name| function(name, "sql", "select 1"));
        judged(&[rows[0], rows[1], function("f", "sql", called)], &[]).suspicious.len()
    };
    assert_eq!((spelled("select \"MyFunc\"()"), spelled("select MyFunc()")), (0, 1));
    assert_eq!((spelled("select \"a\"\"b\"()"), spelled("select \"a\"()")), (0, 1));
}

#[test]
fn functions_that_could_touch_a_session_are_named() {
    for (language, source) in [
        ("sql", "select set_config('app.tenant', 'x', false)"),
        ("sql", "select h(1)"),
        ("plpgsql", "begin perform set_config('role', 'x', false); end"),
        ("plpgsql", "begin set search_path = a; end"),
        ("plpgsql", "begin if true then set app.x = 1; end if; end"),
        ("plpgsql", "begin execute 'x'; end"),
        ("plpgsql", "begin perform pg_advisory_lock(1); end"),
        ("plpgsql", "begin create temp table t (a int); end"),
        ("plpgsql", "begin perform \"pg_temp\".f(); end"),
        ("plpgsql", "begin perform query_to_xml('select 1', true, true, ''); end"),
        ("plpgsql", "begin listen x; end"),
        ("plpgsql", "begin return currval('s'); end"),
        ("sql", "select ('s'::regclass).currval"),
        ("sql", "select lastval()"),
        ("c", "f"),
        ("plpython3u", "pass"),
    ] {
        let judged = judged(&[function("f", language, source)], &[]);
        assert_eq!(judged.suspicious.len(), 1, "{source}");
        assert!(judged.suspicious[0].starts_with("public.f ("), "{source}");
    }
    let set = ["f", "public", "f", "sql", "select 1", "search_path=\"pg_temp\", a", ""];
    assert_eq!(judged(&[set], &[]).suspicious.len(), 1);
    assert_eq!(
        judged(&[["f", "public", "f", "sql", "select 1", "search_path=a, pg_temp", ""]], &[]).suspicious.len(),
        0
    );
}

#[test]
fn clauses_that_change_how_texts_are_read_or_stay_are_noticed() {
    let odd = ["f", "public", "odd", "sql", "select 'x'", "work_mem=1MB\nstandard_conforming_strings=off", ""];
    let hides = ["f", "public", "hides", "plpgsql", "begin perform 'x\\'', y() --'; end", odd[5], ""];
    let seeds = ["f", "public", "seeds", "c", "x", "Seed=0.25", "hstore"];
    let judged = judged(&[odd, hides, seeds, function("calls", "sql", "select seeds()")], &[]);
    assert_eq!(judged.suspicious.len(), 3);
    let mut names: Vec<_> = judged.irreversible.into_iter().collect();
    names.sort();
    assert_eq!(names, [&b"calls"[..], b"hides", b"seeds"].map(Box::from));
}

#[test]
fn a_function_that_was_added_to_an_extension_is_looked_at() {
    for extension in ["hstore", "dblink", "xml2"] {
        let added = ["f", "public", "f", "sql", "select set_config('app.tenant', 'x', false)", "", extension];
        assert_eq!(judged(&[added], &[]).suspicious.len(), 1, "{extension}");
    }
    for (language, source, extension) in [
        ("c", "f", "dblink"),
        ("c", "f", "hstore"),
        ("sql", "SELECT xpath_nodeset($1,$2,'',$3)", "xml2"),
        ("sql", "SELECT pg_catalog.strpos(pg_catalog.lower($1), $2)", "citext"),
    ] {
        assert_eq!(judged(&[["f", "public", "f", language, source, "", extension]], &[]).suspicious, [""; 0]);
    }
}

#[test]
fn what_is_beyond_cleaning_is_so_for_whatever_calls_it() {
    let seeds = function("seed", "sql", "select setseed(0.5)");
    let calls = function("calls", "sql", "select seed()");
    let far = function("far", "plpgsql", "begin perform calls(); perform far(); end");
    let not = function("not", "plpgsql", "begin perform lower('a'); end");
    let fires = ["t", "public", "fires", "plpgsql", "begin perform far(); end", "", ""];
    let mut names: Vec<_> = judged(&[far, calls, not, seeds], &[]).irreversible.into_iter().collect();
    names.sort();
    assert_eq!(names, [&b"calls"[..], b"far", b"seed"].map(Box::from));
    assert!(!judged(&[far, calls, not, seeds], &[]).irreversible_unseen);
    assert!(judged(&[far, calls, seeds, fires], &[]).irreversible_unseen);
    assert!(!judged(&[far, calls, fires], &[]).irreversible_unseen);
    assert!(!judged(&[far, calls, seeds, fires], &["public.seed"]).irreversible_unseen);
    assert!(judged(&[["x", "", "setseed", "", "default in t", "", ""]], &[]).irreversible_unseen);
}

#[test]
fn what_calls_without_a_source_is_beyond_cleaning_with_what_it_calls() {
    let seeds = function("seeds", "sql", "select setseed(0.5)");
    let calls = |called, caller| ["c", "public", called, "", caller, "", ""];
    let rows = [
        seeds,
        function("body", "sql", ""),
        function("round", "sql", ""),
        function("names", "plpgsql", "begin perform round('a'); end"),
        function("encodes", "plpgsql", "begin set local client_encoding = sjis; end"),
        calls("setseed", "body"),
        calls("seeds", "aggregate"),
        calls("aggregate", "round"),
        calls("random", "harmless"),
    ];
    let found = judged(&rows, &[]);
    assert!(found.suspicious.contains(&"public.encodes (it changes how texts are read)".to_owned()));
    let mut names: Vec<_> = found.irreversible.into_iter().collect();
    names.sort();
    assert_eq!(names, [&b"aggregate"[..], b"body", b"names", b"round", b"seeds"].map(Box::from));
    assert_eq!(judged(&rows, &["public.body", "public.seeds"]).irreversible.len(), 0);
}

#[test]
fn what_takes_one_argument_is_called_by_a_name_behind_a_dot_too() {
    let one = |name, source| ["n", "public", name, "sql", source, "", ""];
    let rows = [
        one("seed", "select setseed($1)"),
        one("sets", "select set_config('app.tenant', $1, false)"),
        one("far", "select (0.5::float8).seed"),
        one("not", "select ($1).a"),
        ["n", "public", "box", "c", "LWGEOM_box", "", "postgis"],
        function("two", "sql", "select set_config('app.tenant', $1, $2 = '')"),
    ];
    let mut names: Vec<_> = judged(&rows, &[]).by_notation.into_iter().collect();
    names.sort();
    assert_eq!(names, [&b"far"[..], b"seed", b"sets"].map(Box::from));
    assert!(judged(&rows, &["public.sets", "public.seed", "public.two", "public.box"]).by_notation.is_empty());
    assert_eq!(judged(&[one("locks", "select (1::bigint).pg_advisory_lock")], &[]).suspicious.len(), 1);
}

#[test]
fn what_is_trusted_is_not_looked_at() {
    let rows = [["f", "gis", "f", "c", "f", "", "postgis"], ["f", "public", "digest", "c", "x", "", "pgcrypto"]];
    assert_eq!(judged(&rows, &[]).suspicious, ["gis.f (its language cannot be read)"]);
    for trusted in ["gis.f", "gis.*", "extension:postgis"] {
        assert_eq!(judged(&rows, &[trusted]).suspicious, [""; 0], "{trusted}");
    }
    assert!(judged(&rows, &["gis.f"]).functions.contains(&b"digest"[..]));
}

#[test]
fn expressions_that_call_what_is_not_harmless_are_named() {
    let rows = [["x", "", "set_config", "", "rule of v", "", ""], ["x", "", "lower", "", "default in t", "", ""]];
    assert_eq!(judged(&rows, &[]).suspicious, ["rule of v (calls set_config)"]);
    let asks = judged(&[["x", "", "currval", "", "default in t", "", ""], rows[1]], &[]);
    assert_eq!(asks.suspicious, ["default in t (calls currval)"]);
    assert!(!asks.prepares);
}

#[test]
fn a_malformed_row_is_noticed() {
    let mut reading = Catalogue::begin_reading(&catalogue(), Arc::default()).unwrap();
    for body in [&b""[..], b"\0\x07", b"\0\x07\0\0\0\x05ab"] {
        assert!(reading.take_row(body).is_none());
    }
}
