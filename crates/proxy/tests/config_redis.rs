//! Configuration files for Redis: what they come to, and what they may not say.

use std::{path::Path, time::Duration};

use proxy::{Config, Endpoint};

const BASE: &str = "[[database]]\nurl = \"rediss://:pw@h:7000?sslmode=require\"\nmax_size = 4\n";

fn read(text: &str) -> Result<Config, String> {
    proxy::from_text(Path::new("poolhouse.toml"), text, &|_| None).map_err(|problems| problems.to_string())
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
fn two_kinds_of_databases_are_two_processes() {
    let text = format!("{BASE}[[listener]]\nprotocol = \"postgres\"\nlisten = \":1\"\n");
    assert!(error(&text).contains("poolhouse.toml:5:12: error: one process serves either"), "{}", error(&text));
    let text = format!("{BASE}[[database]]\nname = \"x\"\nurl = \"postgres://a@h/x\"\n");
    assert!(error(&text).contains("poolhouse.toml:6:7: error: one process serves either"), "{}", error(&text));
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
