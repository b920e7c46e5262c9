//! Configuration files for Redis: what they come to, and what they may not say.

use std::{path::Path, time::Duration};

use serve::{Config, Endpoint, Mode};
use upstream::Kind;

const BASE: &str = "[[database]]\nurl = \"rediss://:pw@h:7000?sslmode=require\"\nmax_size = 4\n";

fn read(text: &str) -> Result<Config, String> {
    serve::from_text(Path::new("poolhouse.toml"), text, &|_| None).map_err(|problems| problems.to_string())
}

fn error(text: &str) -> String {
    read(text).expect_err("this was accepted")
}

#[test]
fn one_database_serves_all_numbers() {
    let config = read(&format!(
        "{BASE}[[listener]]\nprotocol = \"redis\"\nlisten = \"127.0.0.1:1\"\n\
         [[user]]\nname = \"app\"\npassword = \"secret\"\nmax_size = 2\n"
    ))
    .unwrap();
    let database = &config.databases[0];
    assert_eq!((database.name.as_str(), database.user.as_deref()), ("*", Some("default")));
    assert_eq!(database.pool.config.max_size, 4);
    assert_eq!(config.listeners[0].timeouts.client_idle, Some(Duration::from_secs(310)));
    assert_eq!(config.users[0].name, "app");
}

#[test]
fn a_listener_has_the_port_and_the_times_of_its_protocol() {
    let config = read(BASE).unwrap();
    assert_eq!(config.listeners[0].listen, Endpoint::parse("127.0.0.1:7379").unwrap());
    assert_eq!(config.listeners[0].timeouts.client_idle, Some(Duration::from_secs(310)));
    let config = read(&format!("{BASE}[[listener]]\nlisten = \":1\"\nclient_idle_time = \"off\"\n")).unwrap();
    assert_eq!(config.listeners[0].timeouts.client_idle, None);
}

#[test]
fn databases_of_two_kinds_have_a_listener_each() {
    let both = format!("{BASE}[[database]]\nname = \"x\"\nurl = \"postgres://a@h/x\"\n");
    let config = read(&both).unwrap();
    let listeners: Vec<_> = config.listeners.iter().map(|l| (l.kind, l.listen.to_string())).collect();
    assert_eq!(listeners, [(Kind::Postgres, "127.0.0.1:6432".to_owned()), (Kind::Redis, "127.0.0.1:7379".to_owned())]);
    let kinds: Vec<_> = config.databases.iter().map(|d| (d.kind, d.name.as_str())).collect();
    assert_eq!(kinds, [(Kind::Redis, "*"), (Kind::Postgres, "x")]);
    let listener =
        |protocol: &str, port: u16| format!("[[listener]]\nprotocol = \"{protocol}\"\nlisten = \":{port}\"\n");
    let config = read(&format!("{both}{}{}", listener("redis", 1), listener("postgres", 2))).unwrap();
    assert_eq!(config.listeners.iter().map(|l| l.kind).collect::<Vec<_>>(), [Kind::Redis, Kind::Postgres]);
    // Each listener says what it speaks, and each database can be reached.
    for (text, place, part) in [
        (format!("{both}[[listener]]\nlisten = \":1\"\n"), ":7:1:", "does not say which `protocol`"),
        (format!("{both}{}", listener("postgres", 1)), ":2:7:", "no [[listener]] is for clients of Redis"),
        (format!("{both}{}", listener("redis", 1)), ":6:7:", "no [[listener]] is for clients of PostgreSQL"),
        (format!("{BASE}{}", listener("postgres", 1)), ":5:12:", "no [[database]] in this file is of PostgreSQL"),
    ] {
        let error = error(&text);
        assert!(error.contains(part) && error.contains(place), "{error}");
    }
}

#[test]
fn what_is_said_for_all_pools_means_nothing_to_those_of_redis() {
    let both = format!("{BASE}[[database]]\nname = \"x\"\nurl = \"postgres://a@h/x\"\n");
    let config = read(&format!("{both}[pool]\nmode = \"session\"\nmax_size = 7\n")).unwrap();
    let pools: Vec<_> = config.databases.iter().map(|d| (d.pool.mode, d.pool.config.max_size)).collect();
    assert_eq!(pools, [(Mode::Transaction, 4), (Mode::Session, 7)]);
    // At the database itself it is a mistake.
    let error = error(&format!("{BASE}mode = \"session\"\n[[database]]\nname = \"x\"\nurl = \"postgres://a@h/x\"\n"));
    assert!(error.contains(":4:") && error.contains("`mode` is for PostgreSQL"), "{error}");
    // The user in the url of PostgreSQL is not whom a token of Redis asks as.
    let both = "[[database]]\nurl = \"redis://h\"\n[[database]]\nname = \"x\"\nurl = \"postgres://a@h/x\"\n";
    let user = "[[user]]\nname = \"a\"\npassword = \"b\"\n";
    let token = "[[token]]\nname = \"t\"\ntoken = \"0123456789abcdef\"\nuser = \"a\"\n";
    read(&format!("{both}{user}{token}")).unwrap();
    // And whose password is a hash may come to the databases where that is enough.
    read(&format!("{both}[[user]]\nname = \"a\"\npassword = \"md5aabbccddeeff00112233445566778899\"\n")).unwrap();
}

#[test]
fn what_means_something_to_postgresql_only_is_refused() {
    for (more, place, part) in [
        ("mode = \"session\"\n", ":4:", "`mode` is for PostgreSQL"),
        ("[pool]\nmax_pinned = 3\n", ":5:", "`max_pinned` is for PostgreSQL"),
        ("[[user]]\nname = \"a\"\ncertificate = true\n", ":6:", "`certificate` is for PostgreSQL"),
        ("[auth]\nauth_query = \"default\"\nauth_user = \"x\"\n", ":5:", "`auth_query` is for PostgreSQL"),
        ("name = \"shop\"\n", ":4:", "clients of Redis ask for numbers"),
        ("[[user]]\nname = \"a\"\npassword = \"md5aabbccddeeff00112233445566778899\"\n", ":6:", "give it as it is"),
    ] {
        let error = error(&format!("{BASE}{more}"));
        assert!(error.contains(part) && error.contains(place), "{error}");
    }
    assert!(error("[[database]]\nurl = \"redis://h/3\"\n").contains("take the number off"));
    assert!(error(&format!("{BASE}{BASE}")).contains("configured twice"));
}

#[test]
fn a_size_cannot_be_tuned_where_clients_share_connections() {
    let auto = BASE.replace("max_size = 4", "max_size = \"auto\"");
    assert!(error(&auto).contains(":3:12: error: clients of Redis share connections, which leaves nothing to tune"));
    let general = format!("[pool]\nmax_size = \"auto\"\n{BASE}");
    assert!(error(&general).contains(":2:12: error: clients of Redis share connections"));
    assert!(error(&format!("{BASE}auto_window = \"2s\"\n")).contains("which is not for Redis"));
    // Beside a database of PostgreSQL it is meant for that.
    let both = "[pool]\nmax_size = \"auto\"\n[[database]]\nurl = \"redis://h\"\n[[database]]\nname = \"x\"\n\
        url = \"postgres://a@h/x\"\n";
    let config = read(both).unwrap();
    let tuned: Vec<_> =
        config.databases.iter().map(|d| (d.kind, d.pool.tuner_limits(0).is_some(), d.pool.config.max_size)).collect();
    assert_eq!(tuned, [(Kind::Redis, false, 20), (Kind::Postgres, true, 20)]);
}
