//! What becomes of a `pgbouncer.ini`, and how its mistakes are told.

use std::{io, net::IpAddr, path::Path};

use pgbouncer::{Machine, Translation, translate};
use proptest::prelude::*;
use settings::Problems;

fn translate_files(files: &[(&str, &str)]) -> Result<Translation, Problems> {
    let read_file = |path: &Path| {
        let file = files.iter().find(|(name, _)| Path::new(name) == path);
        file.map(|(_, text)| (*text).to_owned()).ok_or(io::Error::from(io::ErrorKind::NotFound))
    };
    let addresses = |host: &str| match host {
        "localhost" => Ok(vec![IpAddr::from([127, 0, 0, 1]), "::1".parse().unwrap()]),
        _ => Err(io::Error::other("no such host")),
    };
    let machine = Machine { read_file: &read_file, addresses: &addresses, folder: "/here".into(), has_ipv6: true };
    translate(Path::new(files[0].0), &machine)
}

fn toml(ini: &str) -> String {
    translate_files(&[("p.ini", ini)]).unwrap().toml
}

/// One database, and a user list.
fn with(general: &str) -> String {
    format!("[databases]\na = host=h\n[pgbouncer]\nauth_file = users\n{general}\n")
}

fn errors(ini: &str) -> String {
    translate_files(&[("p.ini", ini)]).unwrap_err().to_string()
}

fn notes(ini: &str) -> String {
    let notes = translate_files(&[("p.ini", ini)]).unwrap().notes;
    notes.iter().map(|note| format!("{note}\n")).collect()
}

#[test]
fn defaults_of_pgbouncer_are_written_where_they_differ() {
    let text = toml(&with(""));
    for line in [
        "mode = \"session\"",
        "max_size = 20",
        "max_idle_time = \"10m\"",
        "max_life_time = \"1h\"",
        "max_wait_time = \"2m\"",
        "unavailable_wait_time = \"2m\"",
        "check_after_idle = \"30s\"",
        "connect_time = \"15s\"",
        "max_prepared_statements = 200",
        "listen = \"/tmp/.s.PGSQL.6432\"",
        "socket_mode = \"0777\"",
        "hard_limit = 100",
        "soft_limit = 100",
        "newcomer_wait_time = \"off\"",
        "login_time = \"1m\"",
        "log_connections = true",
        "file = \"/here/users\"",
        "url = \"postgres://h/a\"",
    ] {
        assert!(text.lines().any(|written| written == line), "{line} in\n{text}");
    }
}

#[test]
fn addresses_are_those_that_pgbouncer_would_listen_on() {
    let listens = |general: &str| {
        let text = toml(&with(&format!("unix_socket_dir =\nlisten_port = 7\n{general}")));
        text.lines().filter_map(|line| line.strip_prefix("listen = ").map(str::to_owned)).collect::<Vec<_>>().join(" ")
    };
    assert!(listens("listen_addr = 10.0.0.1").ends_with("\"10.0.0.1:7\""));
    for (addr, all) in [("*", ["0.0.0.0:7", "[::]:7"]), ("localhost,127.0.0.1", ["127.0.0.1:7", "[::1]:7"])] {
        let listened = listens(&format!("listen_addr = {addr}"));
        assert!(all.iter().all(|address| listened.contains(address)), "{listened}");
    }
    assert!(errors(&with("unix_socket_dir =\n")).contains("nowhere to listen on"));
    assert!(errors(&with("listen_addr = nonsense")).contains("p.ini:5:15: error: listen_addr: `nonsense`"));
}

#[test]
fn connection_strings_become_urls() {
    for (entry, url) in [
        ("a =", "postgres:///a?host=%2Ftmp"),
        ("a = dbname=b", "postgres:///b?host=%2Ftmp"),
        ("a = host=h port=5 user=u password='p@:/ x'", "postgres://u:p%40%3A%2F%20x@h:5/a"),
        ("a = host=::1 port=5", "postgres://[::1]:5/a"),
        ("a = host=/run/pg user=u", "postgres://u@/a?host=%2Frun%2Fpg"),
        ("a = host=h,i port=5", "postgres://h:5,i:5/a?load_balance_hosts=round-robin"),
        ("a = host=h,i load_balance_hosts=disable", "postgres://h,i/a?load_balance_hosts=last-good"),
        ("* = host=h", "postgres://h/"),
        ("a = host=h timezone='Europe/Berlin'", "postgres://h/a?options=-c%20timezone%3DEurope%2FBerlin"),
        ("a = host=h datestyle='ISO, DMY'", "postgres://h/a?options=-c%20datestyle%3DISO,%5C%20DMY"),
        ("a = host=h password='${X}' user=u", "postgres://u:%24%7BX%7D@h/a"),
    ] {
        let text = toml(&format!("[databases]\n{entry}\n[pgbouncer]\nauth_file = users\n"));
        let written = text.lines().find_map(|line| line.strip_prefix("url = ")).unwrap();
        assert_eq!(written, format!("\"{url}\""), "{entry}");
    }
}

#[test]
fn rules_of_databases_and_users_are_kept() {
    let text = toml(
        "[databases]\na = host=h pool_size=3 pool_mode=statement max_db_connections=4 query_wait_timeout=0 \
         connect_query='SELECT ''x''' server_lifetime=7\n\
         [users]\nu = pool_size=2 max_user_connections=9 query_timeout=1.5\nv =\n\
         [pgbouncer]\nauth_file = users\nmin_pool_size = 5\n",
    );
    let database = "[[database]]\nname = \"a\"\nurl = \"postgres://h/a\"\nmax_size = 3\nmax_replication_size = 3\nmin_size = 3\n\
                    max_connections = 4\nmode = \"statement\"\nconnect_query = \"SELECT 'x'\"\nmax_wait_time = \"off\"\n\
                    unavailable_wait_time = \"off\"\nmax_life_time = \"7s\"\n";
    assert!(text.contains(database), "{text}");
    let user = "[[user]]\nname = \"u\"\nmax_size = 2\nmax_user_connections = 9\nquery_time = \"1500ms\"\n";
    assert!(text.ends_with(user), "{text}");
}

#[test]
fn peers_are_listed_with_what_they_have_by_default() {
    let peers = "[peers]\n1 = host=/run/a\n2 = host=h port=7 pool_size=3\n3 = host=::1\n4 = host=@b\n";
    let text = toml(&format!("{peers}{}", with("peer_id = 1\ndefault_pool_size = 9")));
    assert!(text.contains("node_id = 1\n"), "{text}");
    let listed = "[[peer]]\nnode_id = 1\naddress = \"/run/a/.s.PGSQL.6432\"\nmax_size = 9\n\n\
                  [[peer]]\nnode_id = 2\naddress = \"h:7\"\nmax_size = 3\n\n\
                  [[peer]]\nnode_id = 3\naddress = \"[::1]:6432\"\nmax_size = 9\n\n\
                  [[peer]]\nnode_id = 4\naddress = \"@b/.s.PGSQL.6432\"\nmax_size = 9\n";
    assert!(text.ends_with(listed), "{text}");
    let without = format!("{peers}{}", with(""));
    assert!(!toml(&without).contains("[[peer]]") && notes(&without).contains("peering is switched off"));
    for (peer, said) in [
        ("x = host=h", "p.ini:2:1: error: `x` is no peer_id"),
        ("16384 = host=h", "is no peer_id"),
        ("2 = port=5", "this peer has no host"),
        ("2 = host=h port=x", "`x` is no port"),
        ("2 = host=a,b", "a peer has one host"),
        ("2 = host=h dbname=x", "unrecognized connection parameter: dbname"),
    ] {
        let told = errors(&format!("[peers]\n{peer}\n{}", with("peer_id = 1")));
        assert!(told.contains(said), "{said} in\n{told}");
    }
}

#[test]
fn the_last_value_counts_and_a_further_section_sets_defaults_back() {
    assert!(toml(&with("listen_port = 7\nlisten_port = 8")).contains(".s.PGSQL.8\""));
    let twice = with("listen_port = 7\n[pgbouncer]\nmin_pool_size = 0");
    assert!(toml(&twice).contains(".s.PGSQL.6432\""));
    assert!(
        notes(&twice).contains("p.ini:6:1: warning: this further [pgbouncer] sets back to their defaults: listen_port")
    );
    let entries = "[databases]\na = host=h\na = host=i\n[pgbouncer]\nauth_file = users\n";
    assert!(toml(entries).contains("url = \"postgres://i/a\"") && !toml(entries).contains("postgres://h/"));
}

#[test]
fn mistakes_are_told_with_their_place() {
    for (ini, said) in [
        (with("foo = 1"), "p.ini:5:1: error: unknown parameter: pgbouncer/foo"),
        (with("pool_mod = session"), "did you mean `pool_mode`?"),
        (with("listen_port = abc"), "p.ini:5:15: error: invalid value \"abc\" for parameter listen_port"),
        (with("pool_mode = sesion"), "invalid value \"sesion\" for parameter pool_mode"),
        (with("server_lifetime = 5s"), "invalid value \"5s\" for parameter server_lifetime"),
        (with("client_tls_sslmode = require"), "p.ini:5:22: error: client_tls_sslmode needs a key"),
        (with("auth_type = pam"), "auth_type = pam is not supported"),
        (with("server_reset_query = SELECT 1"), "does more than reset"),
        (
            with(
                "listen_addr = 127.0.0.1\nclient_tls_sslmode = require\nclient_tls_key_file = k\nclient_tls_cert_file = c\nclient_tls_protocols = tlsv1.0",
            ),
            "asks for versions of TLS that are out of use",
        ),
        (with("server_tls_sslmode = verify-ca"), "set server_tls_ca_file, or server_tls_sslmode = verify-full"),
        (with("unix_socket_mode = 770"), "write them in octal"),
        (with("conffile = x"), "conffile is not supported"),
        (
            "[databases]\na = host=h foo=1\n[pgbouncer]\nauth_file = users\n".to_owned(),
            "p.ini:2:12: error: unrecognized connection parameter: foo",
        ),
        (
            "[databases]\na = host='h\n[pgbouncer]\nauth_file = users\n".to_owned(),
            "p.ini:2:10: error: syntax error in connection string",
        ),
        ("[databases]\na = host=h port=0\n[pgbouncer]\nauth_file = users\n".to_owned(), "invalid port: 0"),
        ("[databases]\npgbouncer = host=h\n[pgbouncer]\nauth_file = users\n".to_owned(), "is reserved"),
        (
            "[databases]\na = host=h\n[users]\nu = min_pool_size=1\n[pgbouncer]\nauth_file = users\n".to_owned(),
            "unrecognized user parameter: min_pool_size",
        ),
        ("[databases]\na = host=h\n[pgbouncer]\n".to_owned(), "no client could log in"),
    ] {
        let told = errors(&ini);
        assert!(told.contains(said), "{said} in\n{told}");
    }
}

#[test]
fn all_mistakes_are_told_at_once_and_no_password() {
    let told = errors("[databases]\na = host=h password=hunter2 foo=1\nb = port=0\n[pgbouncer]\nfoo = 1\n");
    assert_eq!(told.matches("error:").count(), 4, "{told}");
    assert!(!told.contains("hunter2"), "{told}");
}

#[test]
fn what_has_no_effect_is_listed_once() {
    let told = notes(&with("pkt_buf = 8192\nsbuf_loopcnt = 3\njob_name = x\nservice_name = pgbouncer"));
    assert_eq!(
        told.lines().next().unwrap(),
        "p.ini:5:11: warning: taken, and without effect here: pkt_buf, sbuf_loopcnt"
    );
    assert!(notes(&with("track_extra_parameters = search_path")).contains("all parameters follow the client"));
}

#[test]
fn a_problem_of_the_toml_is_told_at_its_place_in_the_ini() {
    let files = [
        ("p.ini", "[databases]\n%include q.ini\n[pgbouncer]\nauth_file = users\n"),
        ("q.ini", "a = host=h pool_size=7\n"),
    ];
    let translation = translate_files(&files).unwrap();
    let line = translation.toml.lines().position(|line| line == "max_size = 7").unwrap();
    let at = translation.toml.lines().take(line).map(|line| line.len() + 1).sum();
    let problem = settings::Problem::error("x").at(Path::new("p.ini"), &translation.toml, at..at + 1);
    let told = translation.locate(problem).to_string();
    assert!(told.starts_with("q.ini:1:22: error: x"), "{told}");
    let elsewhere = settings::Problem::error("x").at(Path::new("users"), "a\nb\n", 2..3);
    assert_eq!(translation.locate(elsewhere.clone()), elsewhere);
}

#[test]
fn passwords_are_known_to_be_there() {
    let has = |ini: &str| translate_files(&[("p.ini", ini)]).unwrap().has_passwords();
    assert!(!has(&with("")));
    assert!(has("[databases]\na = host=h user=u password=p\n[pgbouncer]\nauth_file = users\n"));
}

proptest! {
    /// The translation of any text ends, and what it writes can be read as TOML by its reader's rules for quotes.
    #[test]
    fn any_text_is_translated_or_refused(text in "(\\PC|\n|=|'|\\[databases\\]\n|\\[pgbouncer\\]\n|a = host=h |pool_mode=){0,40}") {
        if let Ok(translation) = translate_files(&[("p.ini", &text)]) {
            prop_assert!(translation.toml.lines().all(|line| line.matches('"').count() % 2 == 0 || line.contains('\\')));
        }
    }
}

#[test]
fn a_file_may_name_itself() {
    for name in ["/here/p.ini", "p.ini"] {
        let ini = with(&format!("conffile = {name}"));
        assert!(translate_files(&[("p.ini", ini.as_str())]).is_ok(), "{name}");
    }
}

#[test]
fn what_files_of_old_say_is_taken() {
    assert!(notes("[pgbouncer]\nauth_file = users\n").contains("no database is configured: clients reach the console"));
    let text = toml(&with("default_pool_size = 0\nmax_client_conn = 70\nserver_lifetime = 0"));
    assert!(text.contains("max_size = 70\n") && text.contains("max_life_time = \"1ms\"\n"), "{text}");
    let of_database =
        |values: &str| toml(&format!("[databases]\na = host=h {values}\n[pgbouncer]\nauth_file = users\n"));
    assert!(of_database("port=5433,5434").contains("url = \"postgres://h:5433/a\""));
    assert!(of_database("application_name=x").contains("options=-c%20application_name%3Dx"));
    assert!(of_database("password=x").contains("\"postgres://h/a\""));
    assert!(of_database("pool_size=0").contains("max_size = 100\n"));
}

#[test]
fn lists_of_versions_and_ciphers_of_openssl_are_reduced_to_what_is_spoken() {
    let tls =
        "listen_addr = 127.0.0.1\nclient_tls_sslmode = require\nclient_tls_key_file = k\nclient_tls_cert_file = c\n";
    let of = |lines: &str| with(&format!("{tls}{lines}"));
    let all = of("client_tls_protocols = all");
    assert!(toml(&all).contains("tls_protocols = [\"tlsv1.2\", \"tlsv1.3\"]"), "{}", toml(&all));
    assert!(notes(&all).contains("TLS 1.0 and 1.1 are out of use"));
    let words = of("client_tls_ciphers = HIGH:!ADH:!LOW:@STRENGTH");
    assert!(!toml(&words).contains("tls_ciphers") && notes(&words).contains("what holds is all of Poolhouse's own"));
    let some = of("client_tls_ciphers = HIGH:ECDHE-RSA-AES128-GCM-SHA256:AES128-SHA");
    assert!(toml(&some).contains("tls_ciphers = [\"ECDHE-RSA-AES128-GCM-SHA256\"]"), "{}", toml(&some));
}

#[test]
fn only_databases_with_a_user_for_it_are_asked_for_passwords() {
    let two = "[databases]\na = host=h auth_user=x\nb = host=h\n[pgbouncer]\nauth_file = users\n";
    let text = toml(&format!("{two}auth_query = SELECT 1\n"));
    let (before, behind) = text.split_once("name = \"b\"").unwrap();
    assert!(before.contains("auth_user = \"x\"\nauth_query = \"SELECT 1\"\n"), "{text}");
    assert_eq!(text.matches("auth_query").count(), 1);
    assert!(!behind.contains("auth_"), "{text}");
}
