//! What a person reads who made a mistake in the configuration: the whole text, with file, line and column.

use std::path::Path;

const BASE: &str = "[[database]]\nname = \"bench\"\nurl = \"postgres://app@h/bench\"\n";

fn errors(text: &str) -> String {
    let variables = |name: &str| (name == "PW").then(|| "hunter2".to_owned());
    match serve::from_text(Path::new("poolhouse.toml"), text, &variables) {
        Ok(_) => panic!("this was accepted:\n{text}"),
        Err(problems) => problems.to_string(),
    }
}

#[track_caller]
fn expect(text: &str, expected: &str) {
    assert_eq!(errors(text), expected.trim_matches('\n'));
}

/// As [`expect`], with a valid database on lines 1 to 3 before it.
#[track_caller]
fn expect_after_base(text: &str, expected: &str) {
    expect(&format!("{BASE}{text}"), expected);
}

fn errors_after_base(text: &str) -> String {
    errors(&format!("{BASE}{text}"))
}

#[test]
fn an_unknown_key_names_the_nearest_one() {
    expect_after_base(
        "max_sise = 20\n",
        r"
poolhouse.toml:4:1: error: unknown key `max_sise` in [[database]]
    4 | max_sise = 20
      | ^^^^^^^^
      = did you mean `max_size`?",
    );
    expect_after_base(
        "[[listner]]\nlisten = \"127.0.0.1:1\"\n",
        r"
poolhouse.toml:4:3: error: unknown key `listner` in the file
    4 | [[listner]]
      |   ^^^^^^^
      = did you mean `listener`?",
    );
}

#[test]
fn an_unknown_key_like_no_other_lists_the_known_ones() {
    expect_after_base(
        "[admin]\nzzz = 1\n",
        r"
poolhouse.toml:5:1: error: unknown key `zzz` in [admin]
    5 | zzz = 1
      | ^^^
      = known keys: listen, user_label, token, token_file, names, view_needs_token",
    );
}

#[test]
fn peers_that_make_no_sense_are_told() {
    let own = "[serve]\nnode_id = 1\n";
    for (text, said) in [
        ("[[peer]]\nnode_id = 2\naddress = \"h:1\"\n".to_owned(), "does not say which of them this Poolhouse is"),
        (format!("{own}[[peer]]\naddress = \"h:1\"\n"), "this [[peer]] has no `node_id`"),
        (format!("{own}[[peer]]\nnode_id = 2\n"), "this [[peer]] has no `address`"),
        (format!("{own}[[peer]]\nnode_id = 0\naddress = \"h:1\"\n"), "a whole number from 1 to 16383"),
        (format!("{own}[[peer]]\nnode_id = 2\naddress = \"h\"\n"), "`h` is no address of a peer"),
        (format!("{own}{}", "[[peer]]\nnode_id = 2\naddress = \"h:1\"\n".repeat(2)), "has the `node_id` 2, too"),
    ] {
        let shown = errors_after_base(&text);
        assert!(shown.contains(said), "{said} in\n{shown}");
    }
}

#[test]
fn a_key_of_another_section_is_told_where_it_belongs() {
    for (text, place) in [
        ("[serve]\nmax_size = 5\n", "`max_size` belongs in [pool], [[database]], [[user]] or [[peer]]"),
        ("[pool]\nhard_limit = 5\n", "`hard_limit` belongs in [[listener]], [[database]] or [[user]]"),
        (
            "[[listener]]\nlisten = \":1\"\nmax_wait_time = \"1s\"\n",
            "`max_wait_time` belongs in [pool], [[database]] or [[user]]",
        ),
        ("[limits]\ndrain_time = \"1s\"\n", "`drain_time` belongs in [serve]"),
    ] {
        let shown = errors_after_base(text);
        assert!(shown.contains(place) && !shown.contains("known keys"), "{shown}");
    }
}

#[test]
fn sizes_that_are_inherited_are_wrong_once() {
    let shown =
        errors_after_base("[[database]]\nname = \"e\"\nurl = \"postgres://h\"\n[pool]\nmax_size = 5\nmin_size = 6\n");
    assert_eq!(shown.matches("error:").count(), 1, "{shown}");
    assert!(shown.contains("poolhouse.toml:9:12: error: min_size 6 is above max_size 5"), "{shown}");
    let own = errors_after_base("min_size = 3\n[pool]\nmax_size = 2\n");
    assert!(own.contains("poolhouse.toml:4:12: error: min_size 3 is above max_size 2"), "{own}");
}

#[test]
fn curly_quotes_are_named() {
    let shown = errors_after_base("mode = “session”\n");
    assert!(shown.contains("the quotes in this line are curly"), "{shown}");
    assert!(!errors_after_base("mode = session\n").contains("curly"));
}

#[test]
fn a_wrong_unit_lists_the_right_ones() {
    expect_after_base(
        "  max_idle_time = \"5 min\"\n",
        r#"
poolhouse.toml:4:19: error: `max_idle_time`: unknown unit `min` in `5 min`: us, ms, s, m, h or d (for example "250ms", "310s", "5m")
    4 |   max_idle_time = "5 min"
      |                   ^^^^^^^"#,
    );
}

#[test]
fn a_number_in_place_of_a_duration_is_explained() {
    expect_after_base(
        "max_wait_time = 2\n",
        r#"
poolhouse.toml:4:17: error: `max_wait_time` must be a duration in quotes, with a unit ("250ms", "310s", "5m"), not a whole number
    4 | max_wait_time = 2
      |                 ^"#,
    );
}

#[test]
fn a_number_out_of_range_is_told_its_range() {
    expect_after_base(
        "max_size = 0\nmax_connecting = -1\n",
        r"
poolhouse.toml:4:12: error: `max_size`: this must be a whole number from 1 to 1000000
    4 | max_size = 0
      |            ^
poolhouse.toml:5:18: error: `max_connecting`: this must be a whole number from 1 to 1000000
    5 | max_connecting = -1
      |                  ^^",
    );
}

#[test]
fn impossible_combinations_are_refused() {
    expect_after_base(
        "max_size = 5\nmin_size = 6\n",
        r"
poolhouse.toml:5:12: error: min_size 6 is above max_size 5
    5 | min_size = 6
      |            ^",
    );
    expect_after_base(
        "[[listener]]\nlisten = \"127.0.0.1:1\"\nsoft_limit = 9\nhard_limit = 8\n",
        r"
poolhouse.toml:6:14: error: soft_limit 9 is above hard_limit 8
    6 | soft_limit = 9
      |              ^",
    );
    expect_after_base(
        "[[listener]]\nlisten = \"127.0.0.1:1\"\nsocket_mode = \"0770\"\n",
        r#"
poolhouse.toml:6:15: error: socket_mode is for Unix sockets only
    6 | socket_mode = "0770"
      |               ^^^^^^"#,
    );
}

#[test]
fn a_wrong_word_names_the_possible_ones() {
    expect_after_base(
        "mode = \"transactions\"\n",
        r#"
poolhouse.toml:4:8: error: `mode`: unknown value "transactions"; it may be transaction, session, statement; did you mean "transaction"?
    4 | mode = "transactions"
      |        ^^^^^^^^^^^^^^"#,
    );
}

#[test]
fn tls_keys_that_do_not_fit_together_are_named() {
    let listener = |keys: &str| format!("[[listener]]\nlisten = \"127.0.0.1:1\"\n{keys}\n");
    for (keys, part) in [
        ("tls = \"require\"", "`tls_cert`"),
        ("tls = \"allow\"\ntls_cert = \"c\"", "`tls_key`"),
        ("tls = \"off\"\ntls_cert = \"c\"", "no effect"),
        ("tls_cert = \"c\"\ntls_key = \"k\"\ntls_client_auth = \"require\"", "`tls_client_ca`"),
        ("tls = \"yes\"", "off, allow, require"),
    ] {
        let problems = errors_after_base(&listener(keys));
        assert!(problems.contains(part), "{keys}: {problems}");
    }
    let socket = "[[listener]]\nlisten = \"/tmp/s\"\ntls_cert = \"c\"\ntls_key = \"k\"\n";
    assert!(errors_after_base(socket).contains("Unix socket"));
}

#[test]
fn a_missing_variable_is_named() {
    expect_after_base(
        "[[user]]\nname = \"app\"\npassword = \"${APP_PASSWORD}\"\n",
        r#"
poolhouse.toml:6:12: error: `password`: the environment variable APP_PASSWORD is not set
    6 | password = "***************"
      |            ^^^^^^^^^^^^^^^^^"#,
    );
}

#[test]
fn no_secret_is_shown_with_an_error() {
    for text in [
        "[[user]]\nname = \"app\"\npasword = \"hunter2\"\n",
        "[[user]]\nname = \"app\"\npassword = hunter2\n",
        "[[user]]\nname = \"app\"\npassword = \"hunter2\n",
        "[[user]]\nname = \"app\"\npassword = \"SCRAM-SHA-256$hunter2\"\n",
        "[[user]]\nname = \"app\"\npassword = \"hunter2\"\npassword = \"hunter2\"\n",
        "[[database]]\nname = \"x\"\nurl = \"postgres://a:hunter2/3@h/x\"\n",
        "[[database]]\nname = \"x\"\nurl = \"postgres://a:hunter2@h/x?foo=hunter2\"\n",
        "[[database]]\nname = \"x\"\nurl = \"postgres://a:${PW}@h:hunter2/x\"\n",
    ] {
        let shown = errors(&format!("{BASE}{text}"));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn a_syntax_error_has_its_place() {
    let shown = errors("[admin]\nlisten = \n");
    assert!(shown.starts_with("poolhouse.toml:2:"), "{shown}");
    assert!(shown.contains("this is no TOML"), "{shown}");
}

#[test]
fn all_errors_are_told_at_once_and_in_order() {
    let shown = errors("[admin]\nlisten = 5\n[pool]\nmode = 7\n[[database]]\nurl = \"x\"\nfoo = 1\n");
    let lines: Vec<&str> = shown.lines().filter(|line| line.starts_with("poolhouse")).collect();
    assert_eq!(lines.len(), 4, "{shown}");
    for (line, place) in lines.iter().zip(["2:10", "4:8", "6:7", "7:1"]) {
        assert!(line.starts_with(&format!("poolhouse.toml:{place}: error:")), "{line}");
    }
}

#[test]
fn sections_of_the_wrong_shape_are_explained() {
    expect(
        "[database]\nname = \"x\"\n",
        r"
poolhouse.toml:1:1: error: `database` must be an array of tables: write [[database]], in two pairs of brackets
    1 | [database]
      | ^^^^^^^^^^",
    );
    assert!(errors("").contains("no [[database]] is configured"));
}

#[test]
fn users_must_have_passwords_if_any_has_one() {
    expect_after_base(
        "[[user]]\nname = \"a\"\npassword = \"x\"\n[[user]]\nname = \"b\"\n",
        r#"
poolhouse.toml:8:8: error: the user `b` has no password, though others have
    8 | name = "b"
      |        ^^^
      = give it one, here or in the [auth] file"#,
    );
}

#[test]
fn names_are_unique() {
    let shown = errors(&format!("{BASE}{BASE}"));
    assert!(shown.starts_with("poolhouse.toml:5:8: error: the database `bench` is configured twice"), "{shown}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let shown = serve::from_file(Path::new("no-such.toml"), false).unwrap_err().to_string();
    assert!(shown.starts_with("no-such.toml: error: cannot read it: No such file"), "{shown}");
}

#[test]
fn an_auth_query_needs_a_parameter_a_user_and_a_database() {
    expect_after_base(
        "auth_query = \"SELECT a, b FROM t\"\n",
        r#"
poolhouse.toml:4:14: error: `auth_query`: the query takes the user's name as parameter $1 (or "off")
    4 | auth_query = "SELECT a, b FROM t"
      |              ^^^^^^^^^^^^^^^^^^^^"#,
    );
    expect(
        "[[database]]\nname = \"d\"\nurl = \"postgres://h/d\"\nauth_query = \"SELECT a, b FROM f($1)\"\n",
        r#"
poolhouse.toml:4:14: error: `d` has an auth_query and no user to run it as
    4 | auth_query = "SELECT a, b FROM f($1)"
      |              ^^^^^^^^^^^^^^^^^^^^^^^^
      = add `auth_user`, or a user to the url"#,
    );
    let found = errors("[auth]\nauth_user = \"x\"\n[[database]]\nname = \"*\"\nurl = \"postgres://h\"\n");
    assert!(found.contains("no database to run it in") && found.contains("add `auth_database`"), "{found}");
    let database = "[[database]]\nname = \"d\"\nurl = \"postgres://h\"\n";
    for (text, place) in [
        (format!("[auth]\nauth_user = \"x\"\nauth_server = \"nowhere\"\n{database}"), ":3:15"),
        (format!("[auth]\nauth_user = \"x\"\n{database}auth_server = \"nowhere\"\n"), ":6:15"),
    ] {
        let found = errors(&text);
        assert!(found.contains("no [[database]] `nowhere`") && found.contains(place), "{found}");
    }
}

#[test]
fn monitors_of_mongodb_that_take_every_connection_are_refused() {
    let text = |most: u32| {
        format!(
            "[limits]\nmax_server_connections = {most}\n[[database]]\nurl = \"mongodb://a,b,c/?replicaSet=rs0\"\n\
                max_pinned = 1\n"
        )
    };
    let told = errors(&text(3));
    assert!(
        told.contains("poolhouse.toml:2:26") && told.contains("no client is served") && told.contains("write 4"),
        "{told}"
    );
    assert!(serve::from_text(Path::new("poolhouse.toml"), &text(4), &|_| None).is_ok());
}

#[test]
fn what_a_tuned_size_cannot_be_is_explained() {
    expect_after_base(
        "max_size = \"automatic\"\n",
        r#"
poolhouse.toml:4:12: error: `max_size`: this must be a whole number from 1 to 1000000, or "auto"
    4 | max_size = "automatic"
      |            ^^^^^^^^^^^"#,
    );
    expect_after_base(
        "max_size = \"auto\"\nauto_min_size = 30\nauto_max_size = 20\n",
        r"
poolhouse.toml:5:17: error: auto_min_size 30 is above auto_max_size 20
    5 | auto_min_size = 30
      |                 ^^",
    );
    expect_after_base(
        "max_size = \"auto\"\nauto_max_size = 20\nauto_start_size = 25\n",
        r"
poolhouse.toml:6:19: error: auto_start_size 25 is outside auto_min_size 1 to auto_max_size 20
    6 | auto_start_size = 25
      |                   ^^",
    );
    expect_after_base(
        "max_size = \"auto\"\nmin_size = 100\n",
        r"
poolhouse.toml:5:12: error: min_size 100 is above auto_max_size, which is 60 by default
    5 | min_size = 100
      |            ^^^
      = raise auto_max_size to 100 at least, or lower min_size",
    );
    expect_after_base(
        "max_size = 5\nauto_max_size = 20\n",
        r#"
poolhouse.toml:5:17: error: `auto_max_size` is for max_size = "auto", and this max_size is a number
    5 | auto_max_size = 20
      |                 ^^"#,
    );
    expect_after_base(
        "max_size = \"auto\"\nauto_window = \"5ms\"\n",
        r#"
poolhouse.toml:5:15: error: `auto_window`: this must be a duration from 200ms to 10m
    5 | auto_window = "5ms"
      |               ^^^^^"#,
    );
}

#[test]
fn what_is_wrong_with_the_whole_is_told_although_something_else_is_wrong() {
    let text = "[[database]]\nurl = \"postgres://:x@h/d\"\nmax_sise = 4\n\
                [[listener]]\nlisten = \"127.0.0.1:1\"\n[[listener]]\nlisten = \"127.0.0.1:1\"\ntls_cert = \"no.pem\"\n\
                tls_key = \"no.key\"\n[[listener]]\nlisten = \"0.0.0.0:2\"\n[[listener]]\nlisten = \"nowhere\"\n\
                tls_cert = \"none.pem\"\ntls_key = \"no.key\"\n";
    let shown = errors(text);
    let places: Vec<&str> =
        shown.lines().filter_map(|line| Some(line.strip_prefix("poolhouse.toml:")?.split_once(": error")?.0)).collect();
    assert_eq!(places, ["2:7", "3:1", "7:10", "8:12", "11:10", "13:10", "14:12"], "{shown}");
    for said in ["has no user", "max_size", "two listeners", "no.pem", "no user has a password", "nowhere", "none.pem"]
    {
        assert!(shown.contains(said), "{said}: {shown}");
    }
}

#[test]
fn what_only_follows_from_another_mistake_is_not_told() {
    let open = "[[listener]]\nlisten = \"0.0.0.0:2\"\n";
    for (wrong, text) in [
        ("pasword", format!("{BASE}{open}[[user]]\nname = \"a\"\npasword = \"x\"\n")),
        ("nowhere", format!("{BASE}{open}[auth]\nfile = \"nowhere\"\n")),
        ("max_size", format!("{BASE}max_size = \"many\"\n[[user]]\nname = \"a\"\nmin_size = 30\n")),
        ("listn", format!("{BASE}[[listener]]\nlistn = \":1\"\ntls_cert = \"{0}\"\ntls_key = \"{0}\"\n", "no.pem")),
    ] {
        let shown = errors(&text);
        assert!(shown.contains(wrong), "{shown}");
        let follows = ["no user has a password", "min_size", "Unix socket"];
        assert!(!follows.iter().any(|words| shown.contains(words)), "{shown}");
    }
}

#[test]
fn a_key_that_is_written_twice_does_not_hide_what_else_is_wrong() {
    expect_after_base(
        "max_size = 4\nmax_size = 5\nmin_sise = 1\n",
        "\
poolhouse.toml:5:1: error: `max_size` is written twice here
    5 | max_size = 5
      | ^^^^^^^^
      = keep one of the two
poolhouse.toml:6:1: error: unknown key `min_sise` in [[database]]
    6 | min_sise = 1
      | ^^^^^^^^
      = did you mean `min_size`?",
    );
    let shown = errors("[pool]\n[pool]\n");
    assert!(shown.contains("`pool` is written twice here"), "{shown}");
}

#[test]
fn names_of_pgbouncer_are_told_what_they_are_here() {
    for (text, here) in [
        ("[pool]\ndefault_pool_size = 20\n", "`max_size` in `[pool]`"),
        ("pool_size = 20\n", "`max_size` in a `[[database]]`"),
        ("[pool]\nquery_wait_timeout = \"120s\"\n", "`max_wait_time`"),
        ("[auth]\nauth_file = \"users.txt\"\n", "`file` in `[auth]`"),
        ("[[listener]]\nmax_client_conn = 20\n", "`hard_limit`"),
        ("max_db_client_connections = 20\n", "`hard_limit` in a `[[database]]`"),
        ("[[user]]\nmax_user_client_connections = 20\n", "`hard_limit` in a `[[user]]`"),
        ("[databases]\nshop = \"host=h\"\n", "`[[database]]`"),
    ] {
        let shown = errors_after_base(text);
        assert!(shown.contains(here) && shown.contains("docs/from-pgbouncer.md"), "{shown}");
        assert!(!shown.contains("did you mean"), "{shown}");
    }
}

#[test]
fn a_variable_that_is_not_set_is_the_only_error_that_comes_of_it() {
    let text = r#"[[listener]]
protocol = "http"
listen = "127.0.0.1:1"
[[database]]
url = "redis://:${NONE}@h"
[[user]]
name = "a"
password = "x"
[[user]]
name = "b"
password_file = "/none/of/that/name"
[[token]]
name = "t"
token = "0123456789abcdef"
user = "a"
"#;
    let said = errors(text);
    assert_eq!(said.matches("error:").count(), 2, "{said}");
    assert!(said.contains("the environment variable NONE is not set") && said.contains("/none/of/that/name"), "{said}");
    let unreadable = errors(&text.replace("url = \"redis://:${NONE}@h\"", "url_file = \"/none/of/that/name\""));
    assert_eq!(unreadable.matches("error:").count(), 2, "{unreadable}");
}

#[test]
fn limits_times_and_options_that_make_no_sense_are_refused() {
    for (text, expected) in [
        ("reserve_wait_time = \"0s\"\n", "a duration of zero is ambiguous"),
        ("max_size = \"auto\"\nreserve_size = 2\n", "reserve_size 2 is for a max_size that is a number"),
        ("login_retry_time = \"0s\"\n", "`login_retry_time`: a duration of zero is ambiguous"),
        ("cancel_wait_time = \"off\"\n", "cancel_wait_time"),
        ("[[user]]\nname = \"u\"\nreserve_wait_time = \"0s\"\n", "a duration of zero is ambiguous"),
        ("[tcp]\ndefer_accept = true\n", "Poolhouse has no safe way to set TCP_DEFER_ACCEPT"),
        ("[tcp]\nkeep_idle = \"10ms\"\n", "`keep_idle`: this must be a duration from 1s to 32767s"),
        ("[tcp]\nuser_timeout = \"30d\"\n", "`user_timeout`: this must be a duration of 24 days at most"),
        ("[tcp]\nsocket_buffer = 1\n", "this must be a whole number from 4096"),
        ("[dns]\nmax_ttl = \"1ms\"\n", "`max_ttl`: this must be a duration of 1s at least"),
        ("[dns]\nresolv_conf = \"/x\"\n", "the system resolves names"),
        ("[[listener]]\nlisten = []\n", "the array is empty"),
        ("[[listener]]\nlisten = [\"127.0.0.1:1\", \"/run/s\"]\n", "addresses, or paths of Unix sockets, and not both"),
        ("[[listener]]\nlisten = [\"127.0.0.1:1\", \"nowhere:2\"]\n", "`nowhere:2` is no address to listen on"),
        ("[[listener]]\nlisten = \"127.0.0.1:1\"\nsocket_group = \"x\"\n", "socket_group is for Unix sockets only"),
        ("[[listener]]\nlisten = \"/run/s\"\nreuse_port = true\n", "reuse_port is for addresses"),
        ("[[listener]]\nlisten = \"127.0.0.1:1\"\nbacklog = 0\n", "this must be a whole number from 1"),
    ] {
        let shown = errors_after_base(text);
        assert!(shown.contains(expected), "{text}\n{shown}");
    }
}

#[test]
fn a_reserve_for_all_pools_and_a_size_that_is_tuned_for_one_need_a_word_there() {
    let text = |more: &str| format!("[pool]\nreserve_size = 2\n{BASE}max_size = \"auto\"\n{more}");
    let shown = errors(&text(""));
    assert!(shown.contains("write reserve_size = 0 here"), "{shown}");
    assert!(serve::from_text(Path::new("p.toml"), &text("reserve_size = 0\n"), &|_| None).is_ok());
}

#[test]
fn rules_are_for_listeners_of_postgresql_and_within_bounds() {
    expect(
        "[[listener]]\nlisten = \"127.0.0.1:1\"\nlogin_notice = \"hello\"\n[[database]]\nurl = \"redis://h\"\n",
        r#"
poolhouse.toml:3:16: error: `login_notice` is for listeners of PostgreSQL
    3 | login_notice = "hello"
      |                ^^^^^^^"#,
    );
    let found = errors_after_base("[[listener]]\nlisten = \"127.0.0.1:1\"\nmax_message_size = 100\n");
    assert!(found.contains("a whole number from 1024 to 2147483647"), "{found}");
    let found = errors_after_base("[serve]\ncompatible_with = \"odyssey\"\n");
    assert!(found.contains("poolhouse") && found.contains("pgbouncer"), "{found}");
    let found = errors_after_base("[auth]\nscram_iterations = 0\n");
    assert!(found.contains("a whole number from 1 to 200000"), "{found}");
}

#[test]
fn the_console_hides_no_database() {
    let text = "[console]\nadmins = [\"a\"]\n[[database]]\nname = \"poolhouse\"\nurl = \"postgres://h/d\"\n";
    let said = errors(text);
    assert!(said.contains("the console is called `poolhouse`, too"), "{said}");
    let said = errors(&text.replace("admins", "name = \"\"\nadmins"));
    assert!(said.contains("the console's database needs a name"), "{said}");
}
