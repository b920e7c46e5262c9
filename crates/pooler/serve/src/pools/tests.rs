//! The pools of small configurations, asked as the protocol and the driver ask.

use std::path::Path;

use postgres_session::{Directory, LoginAttempt, Look, PoolMode, Proof, StartRequest};
use seam::Origin;

use super::*;
use crate::config::{Flags, from_url};
use crate::read::from_text;

const LOCAL: Origin = Origin { listener: 0, address: None, port: 0, uid: None };

fn attempt(user: &str) -> LoginAttempt {
    LoginAttempt::new(remote(), "a", user)
}

fn remote() -> Origin {
    Origin { listener: 0, address: Some([10, 0, 0, 5].into()), port: 4711, uid: None }
}

fn made(config: Config) -> ConfigPools {
    let tls = Tls::load(&config).unwrap();
    ConfigPools::new(Arc::new(config), Arc::new(tls))
}

fn pools(text: &str) -> ConfigPools {
    made(from_text(Path::new("p.toml"), text, &|_| None).unwrap())
}

const OWN_USERS: &str = r#"
    [limits]
    max_server_connections = 9
    [[database]]
    name = "a"
    url = "postgres://h"
    max_connections = 5
    [[database]]
    name = "*"
    url = "postgres://forced:pw@h"
    [[user]]
    name = "u"
    password = "plain"
    mode = "session"
    max_user_connections = 3
    [[user]]
    name = "v"
    password = "md50123456789abcdef0123456789abcdef"
"#;

/// The proof of a client once what it needs is known.
fn later_proof(pools: &ConfigPools, attempt: &LoginAttempt) -> Result<Proof, Unknown> {
    if let Some(Preparation::Verifiers(password, others)) = pools.preparation(attempt) {
        password.derive_verifiers(&others);
    }
    pools.proof(attempt)
}

#[test]
fn a_client_is_served_under_its_own_user_when_the_url_has_none() {
    let pools = pools(OWN_USERS);
    let attempt = LoginAttempt::new(remote(), "a", "u");
    assert!(matches!(pools.proof(&attempt), Ok(Proof::Later)), "keys are derived off the worker");
    assert!(matches!(later_proof(&pools, &attempt), Ok(Proof::Scram(_))));
    assert!(pools.preparation(&attempt).is_none());
    let login = pools.route("a", "u").unwrap();
    assert_eq!(login.mode, PoolMode::Session);
    let server = pools.server_login(login.pool);
    assert_eq!((server.database.as_str(), server.user.as_str()), ("a", "u"));
    assert_eq!(server.password.as_deref(), Some("plain"));
    let caps: Vec<_> = pools.spec(login.pool).caps;
    let named = |name: &str, limit| (name.to_owned(), limit);
    let of_pool = named("user u of database a", 20);
    assert_eq!(caps, [named("process", 9), named("database a", 5), named("user u", 3), of_pool]);
    assert!(matches!(pools.proof(&LoginAttempt::new(remote(), "a", "v")), Ok(Proof::Md5(_))));
}

#[test]
fn users_of_a_database_with_a_user_of_its_own_share_a_pool() {
    let pools = pools(OWN_USERS);
    let (u, v) = (pools.route("x", "u").unwrap(), pools.route("x", "v").unwrap());
    assert_eq!(u.pool, v.pool);
    assert_ne!(u.pool, pools.route("y", "u").unwrap().pool);
    let server = pools.server_login(u.pool);
    assert_eq!((server.database.as_str(), server.user.as_str()), ("x", "forced"));
    assert_eq!(server.password.as_deref(), Some("pw"));
    assert_eq!(pools.spec(u.pool).database, "x");
}

#[test]
fn who_is_not_configured_gets_no_pool() {
    let pools = pools(OWN_USERS);
    assert!(matches!(pools.proof(&LoginAttempt::new(LOCAL, "a", "w")), Err(Unknown::User)));
    assert!(matches!(pools.route("", "u"), Err(Unknown::Database)));
    assert!(pools.table.read().unwrap().entries.is_empty());
}

#[test]
fn without_users_only_this_machine_is_let_in() {
    let config = from_url("postgres://app@h/d", &Flags::default(), &|_| None).unwrap();
    let pools = made(config);
    assert!(matches!(pools.proof(&LoginAttempt::new(LOCAL, "a", "anybody")), Ok(Proof::Trust)));
    assert_eq!(pools.server_login(pools.route("d", "anybody").unwrap().pool).user, "app");
    assert!(matches!(pools.proof(&LoginAttempt::new(remote(), "a", "app")), Err(Unknown::Forbidden(_))));
}

const LOOKED_UP: &str = r#"
    [auth]
    auth_user = "lookup"
    auth_password = "pw"
    [[database]]
    name = "a"
    url = "postgres://h"
    [[database]]
    name = "b"
    url = "postgres://h"
    auth_query = "off"
    [[user]]
    name = "known"
    password = "plain"
"#;

#[test]
fn users_who_are_not_configured_are_looked_up_and_remembered() {
    let pools = pools(LOOKED_UP);
    let ask = |user: &str| later_proof(&pools, &LoginAttempt::new(remote(), "a", user));
    assert!(matches!(ask("known"), Ok(Proof::Scram(_))));
    let Ok(Proof::Ask(question)) = ask("app") else { panic!("it must be asked") };
    let login = pools.server_login(question.pool);
    assert_eq!((login.user.as_str(), login.database.as_str()), ("lookup", "a"));
    assert_eq!(login.password.as_deref(), Some("pw"));
    let spec = pools.spec(question.pool);
    assert_eq!((spec.database.as_str(), spec.config.max_size), ("a/auth_query", 2));

    let hash = "md50123456789abcdef0123456789abcdef";
    assert!(matches!(pools.note_lookup(&attempt("app"), Some(hash)), Ok(Proof::Md5(_))));
    assert!(matches!(ask("app"), Ok(Proof::Md5(_))));
    assert!(matches!(pools.note_lookup(&attempt("unknown"), None), Err(Unknown::User)));
    assert!(matches!(ask("unknown"), Err(Unknown::User)));
    let route = pools.route("a", "app").unwrap();
    assert!(route.pass_through && route.pool != question.pool);
    assert_eq!(pools.server_login(route.pool).md5_hash.as_deref(), Some(hash));
    assert!(!pools.route("a", "known").unwrap().pass_through);
}

#[test]
fn who_does_not_exist_looks_like_those_who_are_looked_up_once_any_is_known() {
    let pools = pools(LOOKED_UP);
    let plain = Look::Scram(scram::Shape::default());
    assert_eq!(pools.looks(&LoginAttempt::new(remote(), "a", "x")), [plain], "as the configured user");
    let hash = "md50123456789abcdef0123456789abcdef";
    assert!(pools.note_lookup(&attempt("app"), Some(hash)).is_ok());
    assert_eq!(
        (
            pools.looks(&LoginAttempt::new(remote(), "a", "x")),
            pools.looks(&LoginAttempt::new(remote(), "nowhere", "x"))
        ),
        (vec![Look::Md5], vec![Look::Md5])
    );
    assert_eq!(pools.looks(&LoginAttempt::new(remote(), "b", "x")), [plain], "no user is looked up there");
}

#[test]
fn users_are_looked_up_over_connections_as_safe_as_the_databases_own() {
    let text = LOOKED_UP.replacen("postgres://h", "postgres://h?sslmode=require&channel_binding=require", 1);
    let pools = pools(&text);
    let Ok(Proof::Ask(question)) = pools.proof(&LoginAttempt::new(remote(), "a", "app")) else {
        panic!("it must be asked")
    };
    let own = pools.route("a", "known").unwrap().pool;
    for pool in [question.pool, own] {
        let encryption = pools.server_login(pool).encryption;
        assert_eq!(
            (encryption.tls, encryption.binding),
            (postgres_session::Tls::Require, postgres_session::Binding::Require)
        );
        assert!(pools.spec(pool).tls.is_some());
    }
}

#[test]
fn strangers_cannot_tell_which_databases_exist_by_what_is_asked() {
    let pools = pools(LOOKED_UP);
    assert!(matches!(pools.proof(&LoginAttempt::new(remote(), "nowhere", "app")), Ok(Proof::Ask(_))));
    assert!(matches!(pools.proof(&LoginAttempt::new(remote(), "b", "app")), Err(Unknown::User)));
    assert!(matches!(later_proof(&pools, &LoginAttempt::new(remote(), "b", "known")), Ok(Proof::Scram(_))));
}

#[test]
fn pools_exist_from_the_start_where_the_login_is_known() {
    let pools = pools(
        r#"
        [pool]
        min_size = 1
        [[database]]
        name = "forced"
        url = "postgres://f:pw@h"
        [[database]]
        name = "own"
        url = "postgres://h"
        [[database]]
        name = "*"
        url = "postgres://f:pw@h"
        [[user]]
        name = "eager"
        password = "plain"
        min_size = 2
        [[user]]
        name = "lazy"
        password = "plain"
        [[user]]
        name = "hashed"
        password = "md50123456789abcdef0123456789abcdef"
        min_size = 2
    "#,
    );
    let specs: Vec<_> = pools.at_start().into_iter().map(|pool| pools.spec(pool)).collect();
    let found: Vec<_> = specs.iter().map(|s| (s.database.as_str(), s.user.as_str(), s.config.min_size)).collect();
    assert_eq!(found, [("forced", "f", 1), ("own", "eager", 2)]);
}

#[test]
fn names_chosen_by_clients_cannot_make_pools_without_end_nor_leave_none_to_the_configured() {
    let pools = pools(OWN_USERS);
    let most = MAX_POOLS - RESERVED_FOR_CONFIGURED;
    for n in 0..most / 2 {
        pools.route(&format!("d{n}"), "u").unwrap();
    }
    let Err(Unknown::Full(text)) = pools.route("one more", "u") else { panic!("half is enough for one user") };
    assert!(text.contains("user \"u\"") && text.contains(&(most / 2).to_string()), "{text}");
    assert!(pools.route("d7", "u").is_ok());
    // What is forgotten makes room.
    pools.forget(pools.route("d7", "u").unwrap().pool);
    assert!(pools.route("one more", "u").is_ok());
    assert!(pools.route("d7", "u").is_err());
    for n in 0..most / 4 {
        pools.route(&format!("d{n}"), "v").unwrap();
    }
    assert!(pools.route("d", "w").is_ok(), "whatever some do, others have a place");
    assert!(pools.route("a", "u").is_ok());
    assert!(matches!(pools.route(&"x".repeat(256), "u"), Err(Unknown::Database)));
}

#[test]
fn a_user_who_is_refused_a_pool_leaves_no_entry() {
    let pools = pools(
        "[auth]\nauth_user = \"lookup\"\nauth_password = \"pw\"\nauth_database = \"users\"\n\
         [[database]]\nname = \"*\"\nurl = \"postgres://h\"\n",
    );
    let route = |n: usize| {
        let key = Key::Postgres { database: "d".into(), user: format!("u{n}").into() };
        pools.find_or_add_pool_for(0, key, Some(&format!("u{n}")))
    };
    // The pool that looks users up is there from the start.
    let most = MAX_POOLS - RESERVED_FOR_CONFIGURED - 1;
    for n in 0..most {
        route(n).unwrap();
    }
    assert!(matches!(route(most), Err(Unknown::Full(_))));
    assert_eq!(pools.table.read().unwrap().made_up.len(), most);
}

#[test]
fn a_tuned_pool_may_grow_to_what_the_limits_leave_and_a_user_with_a_size_of_his_own_is_not_tuned() {
    let pools = pools(
        "[limits]\nmax_server_connections = 50\n[[database]]\nname = \"a\"\nurl = \"postgres://h\"\n\
            max_size = \"auto\"\n\
         max_connections = 40\n[[user]]\nname = \"u\"\npassword = \"x\"\n\
         [[user]]\nname = \"v\"\npassword = \"x\"\nmax_size = 3\n\
         [[user]]\nname = \"w\"\npassword = \"x\"\nmin_size = 30\n",
    );
    let (u, v) = (pools.route("a", "u").unwrap().pool, pools.route("a", "v").unwrap().pool);
    let spec = pools.spec(u);
    assert_eq!((spec.config.max_size, spec.sizes), (20, Some((1, 40))));
    assert!(spec.caps.contains(&("user u of database a".to_owned(), 40)), "{:?}", spec.caps);
    assert_eq!((pools.spec(v).config.max_size, pools.spec(v).sizes, pools.tuner_limits(v)), (3, None, None));
    assert!(pools.tunes());
    let w = pools.spec(pools.route("a", "w").unwrap().pool);
    assert_eq!((w.config.min_size, w.config.max_size, w.sizes), (30, 30, Some((30, 40))));
}

#[test]
fn clients_count_for_the_name_that_they_ask_for_and_for_their_own_user() {
    let pools = pools(
        r#"
        [[database]]
        name = "a"
        url = "postgres://forced:pw@h"
        hard_limit = 10
        [[database]]
        name = "*"
        url = "postgres://forced:pw@h"
        soft_limit = 3
        [[database]]
        url = "redis://h"
        soft_limit = 4
        hard_limit = 4
        [[user]]
        name = "u"
        password = "plain"
        hard_limit = 1
        "#,
    );
    let limits = |soft_limit, hard_limit| Some(driver::TenantLimits { soft_limit, hard_limit });
    let of = |pool| pools.tenant(pool).and_then(|tenant| pools.limits(&tenant));
    let [a, x, y] = ["a", "x", "y"].map(|name| pools.route(name, "u").unwrap().pool);
    assert_eq!([of(a), of(x), of(y)], [limits(8, 10), limits(3, u32::MAX), limits(3, u32::MAX)]);
    assert_ne!(pools.tenant(x), pools.tenant(y), "each name has the limits for itself");
    let redis =
        |number| ::redis_session::Directory::route(&pools, "u", number, ::redis_session::Version::Resp2).unwrap();
    assert_eq!((of(redis(0)), pools.tenant(redis(0))), (limits(4, 4), pools.tenant(redis(1))));
    let user = |name: &str| pools.limits(&seam::Tenant::User(name.into()));
    assert_eq!((user("u"), user("forced")), (limits(1, 1), None));
}

fn request<'a>(replication: Option<&'a str>, settings: &'a [(String, String)]) -> StartRequest<'a> {
    StartRequest { replication, settings, origin: LOCAL }
}

#[test]
fn replication_connections_have_pools_by_their_parameters_and_share_a_limit() {
    let pools = pools(
        "[pool]\nmax_replication_size = 3\nconnect_query = \"SET a.b = 1\"\n\
         [[database]]\nname = \"shop\"\nurl = \"postgres://app:pw@h/d?application_name=ph\"\nmax_connections = 9\n",
    );
    let dedicated = |replication, settings: &[(String, String)]| {
        pools.dedicated_route("shop", "u", &request(replication, settings)).unwrap().map(|route| route.pool)
    };
    assert_eq!(dedicated(None, &[]), None);
    let named = [("application_name".to_owned(), "sub".to_owned())];
    let [plain, again, other] = [&[][..], &[], &named].map(|settings| dedicated(Some("database"), settings).unwrap());
    assert_eq!(plain, again);
    assert_ne!(plain, other, "its servers have other parameters");
    let of = |pool| pools.server_login(pool).parameters;
    let database = ("replication".to_owned(), "database".to_owned());
    assert_eq!(of(plain), [("application_name".to_owned(), "ph".to_owned()), database.clone()]);
    assert_eq!(of(other), [database, named[0].clone()]);
    let (login, spec) = (pools.server_login(plain), pools.spec(plain));
    assert_eq!((login.user.as_str(), login.mode, login.connect_query), ("app", PoolMode::Dedicated, None));
    assert_eq!((spec.database.as_str(), spec.ordered_as.as_deref()), ("shop/replication", Some("shop")));
    assert_eq!((spec.config.max_size, spec.sizes, spec.hidden), (3, None, false));
    assert_eq!(spec.caps, pools.spec(other).caps);
    assert!(spec.caps.contains(&("database shop".to_owned(), 9)), "{:?}", spec.caps);
    assert!(spec.caps.contains(&("replication user app of database shop".to_owned(), 3)), "{:?}", spec.caps);
    assert_eq!(pools.tenant(plain), pools.tenant(pools.route("shop", "u").unwrap().pool));
}

#[test]
fn users_are_looked_up_at_the_server_that_auth_server_names() {
    let pools = pools(
        r#"
        [auth]
        auth_user = "lookup"
        auth_password = "pw"
        auth_server = "users"
        [console]
        admins = ["boss"]
        [[database]]
        name = "shop"
        url = "postgres://app:pw@one"
        [[database]]
        name = "users"
        url = "postgres://two/accounts"
        [[database]]
        name = "own"
        url = "postgres://three"
        auth_server = "shop"
        auth_database = "x"
        "#,
    );
    let asked = |database: &str| {
        let Ok(Proof::Ask(ask)) = pools.proof(&LoginAttempt::new(remote(), database, "boss")) else {
            panic!("users of {database} are looked up")
        };
        let (spec, login) = (pools.spec(ask.pool), pools.server_login(ask.pool));
        (spec.hosts.to_string(), login.database, login.user, spec.database)
    };
    let at = |host: &str, name: &str, label: &str| {
        (format!("{host}:5432"), name.to_owned(), "lookup".to_owned(), format!("{label}/auth_query"))
    };
    assert_eq!(asked("shop"), at("two", "accounts", "shop"));
    assert_eq!(asked("poolhouse"), at("two", "accounts", "poolhouse"), "the console's users, too");
    assert_eq!(asked("own"), at("one", "x", "own"));
}

#[test]
fn the_console_gets_the_client_as_it_is_and_counts_for_nothing() {
    let config = from_text(
        Path::new("p.toml"),
        "[limits]\nmax_server_connections = 1\n[console]\nadmins = [\"admin\"]\n\
        [[user]]\nname = \"other\"\npassword = \"x\"\n[[database]]\nname = \"*\"\nurl = \"postgres://app:pw@h\"\n",
        &|_| None,
    )
    .unwrap();
    let pools = made(config);
    let settings = [("application_name".to_owned(), "psql".to_owned())];
    let route =
        pools.dedicated_route("poolhouse", "admin", &request(None, &settings)).unwrap().expect("it is dedicated");
    let (login, spec) = (pools.server_login(route.pool), pools.spec(route.pool));
    assert_eq!((login.user.as_str(), login.database.as_str(), login.password), ("admin", "poolhouse", None));
    assert!(login.parameters.is_empty(), "a client could call itself the owner");
    assert_eq!(spec.client_rank, driver::ClientRank::Operator);
    assert!(spec.hosts.to_string().starts_with("@poolhouse-console-") && spec.hidden, "{}", spec.hosts);
    assert!(spec.caps.is_empty() && pools.tenant(route.pool).is_none());
}

#[test]
fn the_owner_of_the_process_needs_no_password_at_the_console_in_pgbouncers_place() {
    let text = |wording: &str| {
        format!(
            "[serve]\ncompatible_with = \"{wording}\"\n[console]\nname = \"pgbouncer\"\nadmins = [\"a\"]\n\
             [[user]]\nname = \"pgbouncer\"\npassword = \"x\"\n[[database]]\nname = \"d\"\nurl = \"postgres://h\"\n"
        )
    };
    let made_of = |wording| made(from_text(Path::new("p.toml"), &text(wording), &|_| None).unwrap());
    let (pools, other) = (made_of("pgbouncer"), made_of("poolhouse"));
    let own = nix::unistd::geteuid().as_raw();
    let from = |uid| Origin { uid, ..LOCAL };
    let ask = |pools: &ConfigPools, database: &str, user: &str, uid| {
        let attempt = LoginAttempt::new(from(uid), database, user);
        matches!(pools.proof(&attempt), Ok(Proof::Trust))
    };
    assert!(ask(&pools, "pgbouncer", "pgbouncer", Some(own)));
    assert!(!ask(&pools, "pgbouncer", "pgbouncer", Some(own + 1)) && !ask(&pools, "pgbouncer", "pgbouncer", None));
    assert!(!ask(&pools, "d", "pgbouncer", Some(own)) && !ask(&other, "pgbouncer", "pgbouncer", Some(own)));
    let claim = [(console::OWNER_PARAMETER.to_owned(), "1".to_owned())];
    let parameters = |user, uid| {
        let request = StartRequest { origin: from(uid), ..request(None, &claim) };
        pools
            .dedicated_route("pgbouncer", user, &request)
            .map(|route| pools.server_login(route.unwrap().pool).parameters)
    };
    assert_eq!(parameters("pgbouncer", Some(own)), Ok(claim.to_vec()));
    assert_eq!(parameters("a", Some(own)), Ok(Vec::new()));
    assert!(parameters("pgbouncer", None).is_err());
}

#[test]
fn the_reserve_counts_in_the_pools_own_limit_and_tuned_pools_have_none() {
    let pools = pools(
        r#"
        [limits]
        max_database_clients = 4
        [pool]
        reserve_size = 3
        [[database]]
        name = "a"
        url = "postgres://forced:p@h"
        max_size = 2
        fast_close = true
        mode = "session"
        [[database]]
        name = "b"
        url = "postgres://h"
        max_size = "auto"
        reserve_size = 0
        fast_close = true
        [[user]]
        name = "u"
        password = "plain"
        reserve_size = 9
        "#,
    );
    let spec = |name: &str| pools.spec(pools.route(name, "u").unwrap().pool);
    let (a, b) = (spec("a"), spec("b"));
    assert_eq!((a.config.max_size, a.config.reserve_size, a.caps[3].1), (2, 3, 5));
    assert_eq!((b.config.reserve_size, a.fast_close, b.fast_close), (0, true, false));
    let tenant = pools.tenant(pools.route("a", "u").unwrap().pool).unwrap();
    let limits = driver::TenantLimits { soft_limit: 4, hard_limit: 4 };
    assert_eq!(pools.limits(&tenant), Some(limits));
}
