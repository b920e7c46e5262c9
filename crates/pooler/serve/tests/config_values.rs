//! What a configuration file and a URL with flags come to.

use std::{path::Path, time::Duration};

use console::Role;
use serve::{Compatibility, Config, Endpoint, Flags, Mode, Preset};
use upstream::Kind;

fn variables(name: &str) -> Option<String> {
    (name == "APP_PASSWORD").then(|| "s3cret@/".to_owned())
}

fn read(text: &str) -> Config {
    serve::from_text(Path::new("poolhouse.toml"), text, &variables).unwrap_or_else(|problems| panic!("{problems}"))
}

const CONTRACT: &str = r#"
[admin]
listen = "127.0.0.1:9930"

[limits]
max_server_connections = 300

[pool]
max_connecting = 4

[[listener]]
protocol = "postgres"
listen = "0.0.0.0:6432"
soft_limit = 800
hard_limit = 1000
evict_min_idle = "5s"
client_idle_time = "off"
newcomer_wait_time = "4s"
login_time = "3s"
query_time = "1h"
transaction_idle_time = "1m"

[[listener]]
listen = "/run/x/.s.PGSQL.6432"
socket_mode = "0777"
hard_limit = 10
preset = "serverless"

[[database]]
name = "bench"
url = "postgres://app:${APP_PASSWORD}@10.0.0.5:5432/bench"
mode = "transaction"
max_size = 20
max_connections = 60
min_size = 1
max_connecting = 2
max_idle_time = "5m"
max_life_time = "off"
max_wait_time = "2s"
unavailable_wait_time = "30s"

[[database]]
name = "*"
url = "postgres://10.0.0.5?connect_timeout=7"
mode = "session"

[[user]]
name = "app"
password = "plain"
max_user_connections = 30
"#;

#[test]
fn every_key_of_the_contract_is_understood() {
    let config = read(CONTRACT);
    assert_eq!(config.admin.listen.map(|a| a.port()), Some(9930));
    assert_eq!(config.limits.max_server_connections, 300);
    let [tcp, unix] = &config.listeners[..] else { panic!("two listeners") };
    assert_eq!((tcp.gate.soft_limit, tcp.gate.hard_limit), (800, 1000));
    assert_eq!(tcp.timeouts.client_idle, None);
    assert_eq!(tcp.timeouts.login, Some(Duration::from_secs(3)));
    let waits = [tcp, unix].map(|listener| listener.timeouts.newcomer_wait);
    assert_eq!(waits, [4, 6].map(|seconds| Some(Duration::from_secs(seconds))));
    assert_eq!(tcp.timeouts.query, Some(Duration::from_secs(3600)));
    assert_eq!(tcp.timeouts.transaction_idle, Some(Duration::from_secs(60)));
    assert_eq!((unix.gate.soft_limit, unix.gate.hard_limit), (8, 10));
    assert_eq!(unix.timeouts.client_idle, Some(Duration::from_secs(310)));
    assert_eq!(unix.socket_mode, 0o777);
    let [bench, rest] = &config.databases[..] else { panic!("two databases") };
    assert_eq!(bench.password.as_ref().map(|p| p.reveal().to_string()).as_deref(), Some("s3cret@/"));
    assert_eq!(bench.pool.config.max_connecting, 2);
    assert_eq!(bench.pool.config.max_life_time, None);
    assert_eq!(bench.max_connections, 60);
    assert_eq!(rest.pool.config.max_connecting, 4);
    assert_eq!(rest.pool.config.connect_timeout, Duration::from_secs(7));
    assert_eq!((rest.pool.mode, rest.database.as_deref(), rest.user.as_deref()), (Mode::Session, None, None));
    assert_eq!(config.users[0].max_user_connections, Some(30));
    assert!(config.authenticates(Kind::Postgres));
}

#[test]
fn peers_are_in_the_order_of_their_numbers_and_have_the_size_of_pools() {
    let peers = "[serve]\nnode_id = 16383\n[pool]\nmax_size = 7\n[[peer]]\nnode_id = 9\naddress = \"@p/s\"\n\
                 [[peer]]\nnode_id = 2\naddress = \"h.test:6432\"\nmax_size = 3\n";
    let config = read(&format!("{peers}[[database]]\nname = \"d\"\nurl = \"postgres://h/d\"\n"));
    assert_eq!(config.serve.node_id, 16_383);
    let shown = config.peers.iter().map(|peer| (peer.node, peer.address.to_string(), peer.max_size));
    assert_eq!(shown.collect::<Vec<_>>(), [(2, "h.test:6432".to_owned(), 3), (9, "@p/s".to_owned(), 7)]);
}

#[test]
fn debug_output_of_a_configuration_shows_no_secret() {
    let shown = format!("{:?}", read(CONTRACT));
    assert!(!shown.contains("s3cret") && !shown.contains("plain"), "{shown}");
}

#[test]
fn secrets_and_users_may_come_from_files_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("url", "postgres://app:from-file@h/d\n");
    write("users.txt", "\"app\" \"one\"\n\"other\" \"two\"\n");
    write("pw", "three\n");
    let text = "[auth]\nfile = \"users.txt\"\n[[database]]\nname = \"d\"\nurl_file = \"url\"\n\
                [[user]]\nname = \"app\"\nmode = \"session\"\n[[user]]\nname = \"third\"\npassword_file = \"pw\"\n";
    write("p.toml", text);
    let config = serve::from_file(&folder.path().join("p.toml"), false).unwrap_or_else(|problems| panic!("{problems}"));
    let password = |user: &serve::User| user.password.as_ref().unwrap().plain().unwrap().reveal().to_string();
    let users: Vec<_> = config.users.iter().map(|user| (user.name.as_str(), password(user), user.mode)).collect();
    let expected = [("app", "one", Some(Mode::Session)), ("third", "three", None), ("other", "two", None)];
    assert_eq!(users, expected.map(|(name, password, mode)| (name, password.to_owned(), mode)));
    assert_eq!(config.databases[0].password.as_ref().unwrap().reveal().as_ref(), "from-file");

    write("users.txt", "\"app\" \"one\"\nother two\n");
    let shown = serve::from_file(&folder.path().join("p.toml"), false).unwrap_err().to_string();
    assert!(shown.contains("users.txt:2:1: error: expected the user's name"), "{shown}");
    assert!(!shown.contains("two"), "{shown}");
}

#[test]
fn a_url_alone_is_a_configuration() {
    let config = serve::from_url("postgres://app:${APP_PASSWORD}@h/bench", &Flags::default(), &variables).unwrap();
    assert_eq!(config.listeners[0].listen.to_string(), "127.0.0.1:6432");
    assert_eq!(config.listeners[0].gate.evict_min_idle, Duration::from_secs(5));
    let names: Vec<_> = config.databases.iter().map(|d| (d.name.as_str(), d.database.as_deref())).collect();
    assert_eq!(names, [("bench", Some("bench")), ("*", None)]);
    assert_eq!(config.users[0].name, "app");
    assert_eq!(config.users[0].password.as_ref().unwrap().plain().unwrap().reveal().as_ref(), "s3cret@/");
    assert!(config.authenticates(Kind::Postgres));
}

#[test]
fn flags_go_where_the_file_would_put_them() {
    let flags = Flags {
        listen: vec![Endpoint::parse("/run/x/.s.PGSQL.1").unwrap(), Endpoint::parse("127.0.0.1:2").unwrap()],
        mode: Some(Mode::Session),
        max_size: Some(7),
        hard_limit: Some(100),
        preset: Some(Preset::Serverless),
        max_wait_time: Some(None),
        admin: Some(None),
        ..Flags::default()
    };
    let config = serve::from_url("postgres:///d?host=/run/pg", &flags, &variables).unwrap();
    assert_eq!(config.listeners.len(), 2);
    assert_eq!((config.listeners[1].gate.soft_limit, config.listeners[1].gate.hard_limit), (80, 100));
    assert_eq!(config.listeners[0].timeouts.client_idle, Some(Duration::from_secs(310)));
    let pool = &config.databases[0].pool;
    assert_eq!((pool.mode, pool.config.max_size, pool.config.max_wait_time), (Mode::Session, 7, None));
    assert_eq!(config.admin.listen, None);
    assert!(!config.authenticates(Kind::Postgres));
}

#[test]
fn flags_that_cannot_go_together_are_refused() {
    let error = |flags: Flags| serve::from_url("postgres://h/d", &flags, &variables).unwrap_err().to_string();
    let sizes = error(Flags { max_size: Some(5), min_size: Some(6), ..Flags::default() });
    assert!(sizes.contains("min_size (6) is above max_size (5)"), "{sizes}");
    let bounds = error(Flags { auto_min_size: Some(3), ..Flags::default() });
    assert!(bounds.contains("are for --max-size auto"), "{bounds}");
    let bounds = error(Flags { auto_size: true, auto_min_size: Some(70), ..Flags::default() });
    assert!(bounds.contains("--auto-min-size 70 is above --auto-max-size 60"), "{bounds}");
    assert!(bounds.contains("raise --auto-max-size"), "nobody has given the 60: {bounds}");
    let both = error(Flags { auto_size: true, auto_min_size: Some(9), auto_max_size: Some(8), ..Flags::default() });
    assert!(both.contains("exchange them"), "{both}");
    let tuned = |auto_max_size| Flags { auto_size: true, min_size: Some(100), auto_max_size, ..Flags::default() };
    let kept = error(tuned(None));
    assert!(kept.contains("--min-size 100 is above --auto-max-size, which is 60 by default"), "{kept}");
    assert!(kept.contains("raise --auto-max-size to 100 at least, or lower --min-size"), "{kept}");
    let kept = error(tuned(Some(80)));
    assert!(kept.contains("--min-size 100 is above --auto-max-size 80") && !kept.contains("max_size"), "{kept}");
    assert!(serve::from_url("postgres://h/d", &tuned(Some(100)), &variables).is_ok());
    let start = error(Flags { auto_size: true, auto_start_size: Some(61), ..Flags::default() });
    assert!(start.contains("--auto-start-size 61 is outside --auto-min-size 1 to --auto-max-size 60"), "{start}");
    let limits = error(Flags { soft_limit: Some(5), hard_limit: Some(4), ..Flags::default() });
    assert!(limits.contains("--soft-limit 5"), "{limits}");
}

#[test]
fn flags_have_a_size_tuned_within_bounds() {
    let tuned = |url: &str, flags: Flags| serve::from_url(url, &flags, &variables).map(|config| config.databases);
    let flags = Flags { auto_size: true, auto_min_size: Some(2), auto_max_size: Some(12), ..Flags::default() };
    // The database of the URL, and whatever else its server has.
    let databases = tuned("postgres://a@h/d", flags.clone()).unwrap();
    let limits = tuner::Limits { min: 2, max: 12, window: Duration::from_secs(4) };
    let found: Vec<_> = databases.iter().map(|d| (d.pool.tuner_limits(0), d.pool.config.max_size)).collect();
    assert_eq!(found, [(Some(limits), 12), (Some(limits), 12)]);
    let start = Flags { auto_start_size: Some(5), ..flags.clone() };
    assert_eq!(tuned("mongodb://a@h/d", start).unwrap()[0].pool.config.max_size, 5);
    let redis = tuned("redis://h", flags).unwrap_err().to_string();
    assert!(redis.contains("clients of Redis share connections"), "{redis}");
    let number = tuned("postgres://a@h/d", Flags { max_size: Some(7), ..Flags::default() }).unwrap();
    assert_eq!((number[0].pool.tuner_limits(0), number[0].pool.config.max_size), (None, 7));
}

#[test]
fn a_size_may_be_tuned_within_bounds_and_a_number_further_in_ends_that() {
    let database =
        |name: &str, more: &str| format!("[[database]]\nname = \"{name}\"\nurl = \"postgres://u@h\"\n{more}");
    let config = read(&format!(
        "[pool]\nmax_size = \"auto\"\nauto_window = \"2s\"\n{}{}{}{}{}",
        database("a", ""),
        database("b", "max_size = 7\n"),
        database("c", "auto_min_size = 3\nauto_max_size = 12\nmin_size = 5\n"),
        database("d", "auto_min_size = 30\n"),
        database("s", "auto_start_size = 9\n"),
    ));
    let tuned: Vec<_> = config.databases.iter().map(|database| database.pool.tuner_limits(0)).collect();
    let limits = |min, max| Some(tuner::Limits { min, max, window: Duration::from_secs(2) });
    assert_eq!(tuned, [limits(1, 60), None, limits(5, 12), limits(30, 60), limits(1, 60)]);
    let begins: Vec<_> = config.databases.iter().map(|database| database.pool.config.max_size).collect();
    assert_eq!(begins, [20, 7, 12, 30, 9]);
    // What other limits leave, unless a bound is named.
    assert_eq!(config.databases[0].pool.tuner_limits(25), limits(1, 25));
    assert_eq!(config.databases[2].pool.tuner_limits(6), limits(5, 12));
    assert!(read(&database("e", "")).databases[0].pool.tuner_limits(0).is_none(), "off by default");
}

const LIMITS_AND_TIMES: &str = r#"
[limits]
max_clients = 100
max_database_clients = 50
max_user_clients = 20
max_database_connections = 30

[tcp]
keepalive = false
keep_idle = "2h"
keep_interval = "75s"
keep_count = 9
user_timeout = "off"
socket_buffer = 8192

[dns]
max_ttl = "15s"

[pool]
reserve_size = 5
reserve_wait_time = "3s"
login_retry_time = "15s"
round_robin = true
cancel_wait_time = "10s"
fast_close = true
transaction_time = "1m"

[[listener]]
listen = ["127.0.0.1:1", "[::1]:2"]
backlog = 128
transaction_time = "2m"

[[listener]]
listen = "*:3"

[[listener]]
listen = "/run/x/s"
socket_group = "apps"

[[database]]
name = "a"
url = "postgres://u@h1,h2/a?load_balance_hosts=round-robin"

[[database]]
name = "b"
url = "postgres://u@h1,h2/b?load_balance_hosts=last-good"
max_connections = 7
login_retry_time = "off"
reserve_wait_time = "off"

[[user]]
name = "u"
reserve_size = 0
transaction_time = "off"
"#;

#[test]
fn limits_times_and_options_of_connections_are_read() {
    let config = read(LIMITS_AND_TIMES);
    assert_eq!(config.limits.max_clients, 100);
    let limits = |limit| Some(driver::TenantLimits { soft_limit: limit, hard_limit: limit });
    assert_eq!((config.limits.of_each_database(), config.limits.of_each_user()), (limits(50), limits(20)));
    assert_eq!(
        (config.tcp.keepalive, config.tcp.keep_idle, config.tcp.keep_count),
        (false, Duration::from_secs(7200), 9)
    );
    assert_eq!((config.tcp.user_timeout, config.tcp.socket_buffer), (Some(None), Some(8192)));
    assert_eq!(config.dns.max_ttl, Some(Duration::from_secs(15)));
    let [several, all, path] = &config.listeners[..] else { panic!("three listeners") };
    let shown = |listener: &serve::Listener| listener.endpoints().map(Endpoint::to_string).collect::<Vec<_>>();
    assert_eq!(shown(several), ["127.0.0.1:1", "[::1]:2"]);
    assert_eq!((several.backlog, several.timeouts.transaction), (128, Some(Duration::from_secs(120))));
    assert_eq!(
        (shown(all), all.is_local(), several.is_local()),
        (vec!["0.0.0.0:3".into(), "[::]:3".into()], false, true)
    );
    assert_eq!(path.socket_group.as_deref(), Some("apps"));
    let [a, b] = &config.databases[..] else { panic!("two databases") };
    assert_eq!((a.max_connections, b.max_connections), (30, 7));
    assert_eq!((a.hosts.begin, b.hosts.begin), (driver::BeginWith::Next, driver::BeginWith::LastGood));
    let pause = |database: &serve::Database| (database.pool.config.backoff_min, database.pool.config.backoff_max);
    assert_eq!(pause(a), (Duration::from_secs(15), Duration::from_secs(15)));
    assert_eq!(pause(b), (Duration::from_millis(100), Duration::from_secs(5)));
    assert_eq!((a.pool.config.effective_reserve(), b.pool.config.effective_reserve()), (5, 0));
    assert!(a.pool.config.round_robin && a.pool.fast_close);
    assert_eq!(a.pool.cancel_wait_time, Duration::from_secs(10));
    assert_eq!(a.pool.timeouts.transaction, Some(Some(Duration::from_secs(60))));
    assert_eq!((config.users[0].reserve_size, config.users[0].timeouts.transaction), (Some(0), Some(None)));
}

#[test]
fn rules_of_listeners_and_whose_words_errors_have() {
    let config = read(
        r#"
        [serve]
        compatible_with = "pgbouncer"
        [auth]
        scram_iterations = 20000
        [[listener]]
        listen = "127.0.0.1:1"
        max_message_size = 2048
        refuse_simple_queries = true
        wait_notice_time = "5s"
        login_notice = "maintenance at ten"
        [[listener]]
        listen = "127.0.0.1:2"
        wait_notice_time = "off"
        login_notice = ""
        [[database]]
        name = "d"
        url = "postgres://u:p@h"
        max_replication_size = 3
        "#,
    );
    assert_eq!((config.serve.compatible_with, config.scram_iterations), (Compatibility::PgBouncer, 20_000));
    let rules = &config.listeners[0].rules;
    assert_eq!((rules.max_message_size, rules.refuse_simple_queries), (Some(2048), true));
    assert_eq!(rules.wait_notice_time, Some(Duration::from_secs(5)));
    assert_eq!(rules.login_notice.as_deref(), Some("maintenance at ten"));
    assert_eq!(config.listeners[1].rules, Default::default());
    assert_eq!(config.databases[0].pool.max_replication_size, 3);
    let plain = read("[[database]]\nname = \"d\"\nurl = \"postgres://u:p@h\"\n");
    assert_eq!((plain.serve.compatible_with, plain.scram_iterations), (Compatibility::Own, 4096));
    assert_eq!(plain.databases[0].pool.max_replication_size, 10);
}

#[test]
fn the_console_is_there_once_a_user_may_use_it() {
    let database = "[[database]]\nname = \"d\"\nurl = \"postgres://u@h\"\n";
    let off = read(database);
    assert!(!off.has_console() && off.console_role("ops").is_none());
    let console = format!("[console]\nadmins = [\"ops\"]\nviewers = [\"ops\", \"watcher\"]\n{database}");
    assert_eq!(read(&console).console_role("ops"), None, "clients do not prove who they are");
    let on = read(&format!("{console}[[user]]\nname = \"u\"\npassword = \"x\"\n"));
    let roles = ["ops", "watcher", "u"].map(|user| on.console_role(user));
    assert_eq!((on.console.name.as_str(), roles), ("poolhouse", [Some(Role::Admin), Some(Role::Viewer), None]));
    let any = read(&format!("[console]\nname = \"pgbouncer\"\nadmins = [\"ops\"]\n[auth]\ntype = \"any\"\n{database}"));
    assert_eq!(["ops", "u"].map(|user| any.console_role(user)), [Some(Role::Admin), Some(Role::Viewer)]);
    let none = read(&format!("[console]\nname = \"c\"\n{database}"));
    assert!(!none.has_console());
}

#[test]
fn the_log_goes_where_the_file_says() {
    let base = "[[database]]\nname = \"d\"\nurl = \"postgres://h/d\"\n";
    let config = read(&format!(
        "[serve]\npid_file = \"p.pid\"\nuser = \"u\"\n[log]\nfile = \"p.log\"\nlevel = \"debug\"\nsyslog = true\n\
         syslog_ident = \"p\"\nstats_period = \"1m\"\n{base}"
    ));
    assert_eq!((config.serve.pid_file.as_deref(), config.serve.user.as_deref()), (Some(Path::new("p.pid")), Some("u")));
    let log = config.log;
    assert_eq!(
        (log.file.as_deref(), log.level, log.stats_period),
        (Some(Path::new("p.log")), Some("debug"), Some(Duration::from_secs(60)))
    );
    assert_eq!(log.syslog, Some(serve::Syslog { ident: "p".to_owned(), facility: "daemon" }));
    assert_eq!(read(base).log, serve::Log::default());
    for (text, said) in [
        ("syslog_ident = \"p\"", "`syslog_ident` has no effect without syslog = true"),
        ("level = \"loud\"", "it may be error, warn, info, debug, trace"),
        ("syslog = true\nsyslog_facility = \"kern\"", "it may be auth, authpriv, daemon"),
    ] {
        let text = format!("[log]\n{text}\n{base}");
        let problems = serve::from_text(Path::new("p.toml"), &text, &variables).unwrap_err();
        assert!(problems.to_string().contains(said), "{problems}");
    }
}
