//! The recommended settings in the syntax of the pools of applications: HikariCP, Django, Rails, node-postgres,
//! SQLAlchemy, pgx, MongoDB's drivers.

use std::time::Duration;

use super::{ENDLESS, Fragment, MONGODB, lines, millis, number};
use crate::advice::Advice;

/// HikariCP replaces shorter times with its defaults (10 min, 30 min, 30 s).
const HIKARI_MIN_IDLE_TIME: Duration = Duration::from_secs(10);
const HIKARI_MIN_LIFE_TIME: Duration = Duration::from_secs(30);
const HIKARI_MIN_WAIT_TIME: Duration = Duration::from_millis(250);

fn application_fragment(of: &'static str, place: &'static str, text: String, missing: Vec<&'static str>) -> Fragment {
    Fragment { of, place, is_for_all: false, text, missing }
}

/// For products in which 0 does not switch a time off.
fn seconds_or_endless(time: Option<Duration>) -> f64 {
    time.unwrap_or(ENDLESS).as_secs_f64()
}

pub fn hikaricp(advice: &Advice) -> Fragment {
    // 0 switches a time off.
    let time =
        |time: Option<Duration>, least: Duration| Some(time.map_or(0, |time| millis(time.max(least))).to_string());
    let text = lines(
        [
            ("maximumPoolSize", number(advice.max_size)),
            ("minimumIdle", number(advice.min_size)),
            ("idleTimeout", time(advice.max_idle_time, HIKARI_MIN_IDLE_TIME)),
            ("maxLifetime", time(advice.max_life_time, HIKARI_MIN_LIFE_TIME)),
            ("connectionTimeout", time(advice.max_wait_time, HIKARI_MIN_WAIT_TIME)),
        ],
        "=",
    );
    // HikariCP counts only idle connections towards its minimum, so it may keep more.
    application_fragment("HikariCP", "each instance's properties", text.join("\n"), without_counterpart(advice, &[]))
}

pub fn django(advice: &Advice) -> Fragment {
    let pool = lines(
        [
            ("\"min_size\"", number(advice.min_size)),
            ("\"max_size\"", number(advice.max_size)),
            ("\"timeout\"", number(seconds_or_endless(advice.max_wait_time))),
            ("\"max_idle\"", number(seconds_or_endless(advice.max_idle_time))),
            ("\"max_lifetime\"", number(seconds_or_endless(advice.max_life_time))),
        ],
        ": ",
    );
    let text = format!(
        "# Django 5.1 or newer with psycopg 3; each process has such a pool\n\
         DATABASES[\"default\"][\"CONN_MAX_AGE\"] = 0\n\
         DATABASES[\"default\"].setdefault(\"OPTIONS\", {{}})[\"pool\"] = {{\n    {},\n}}",
        pool.join(",\n    ")
    );
    application_fragment("Django", "settings.py of each instance", text, without_counterpart(advice, &[]))
}

pub fn rails(advice: &Advice) -> Fragment {
    // 0 switches the idle time off.
    let text = lines(
        [
            ("pool", number(advice.max_size)),
            ("checkout_timeout", number(seconds_or_endless(advice.max_wait_time))),
            ("idle_timeout", number(advice.max_idle_time.map_or(0.0, |time| time.as_secs_f64()))),
        ],
        ": ",
    );
    let text = format!("# each process has such a pool\n{}", text.join("\n"));
    application_fragment(
        "Rails",
        "config/database.yml of each instance",
        text,
        without_counterpart(advice, &["min_size", "max_life_time"]),
    )
}

pub fn node_postgres(advice: &Advice) -> Fragment {
    // 0 switches a time off.
    let ms = |time: Option<Duration>| number(time.map_or(0, millis));
    let life = number(advice.max_life_time.map_or(0, |time| time.as_secs_f64().ceil() as u64));
    let text = lines(
        [
            ("max", number(advice.max_size)),
            ("min", number(advice.min_size)),
            ("idleTimeoutMillis", ms(advice.max_idle_time)),
            ("connectionTimeoutMillis", ms(advice.max_wait_time)),
            ("maxLifetimeSeconds", life),
        ],
        ": ",
    );
    let text = format!("new pg.Pool({{\n  {},\n}})", text.join(",\n  "));
    application_fragment("node-postgres", "the Pool of each instance", text, without_counterpart(advice, &[]))
}

pub fn sqlalchemy(advice: &Advice) -> Fragment {
    let text = lines(
        [
            ("pool_size", number(advice.max_size)),
            ("max_overflow", number(0)),
            ("pool_timeout", number(seconds_or_endless(advice.max_wait_time))),
            ("pool_recycle", number(advice.max_life_time.map_or(-1.0, |time| time.as_secs_f64().ceil()))),
        ],
        "=",
    );
    let text = format!("create_engine(\n    url,\n    {},\n)", text.join(",\n    "));
    application_fragment(
        "SQLAlchemy",
        "the engine of each process",
        text,
        without_counterpart(advice, &["min_size", "max_idle_time"]),
    )
}

pub fn pgx(advice: &Advice) -> Fragment {
    let time = |time: Option<Duration>| Some(format!("{}ms", millis(time.unwrap_or(ENDLESS))));
    let text = lines(
        [
            ("pool_max_conns", number(advice.max_size)),
            ("pool_min_conns", number(advice.min_size)),
            ("pool_max_conn_idle_time", time(advice.max_idle_time)),
            ("pool_max_conn_lifetime", time(advice.max_life_time)),
        ],
        "=",
    );
    let place = "the connection string of each instance's pgxpool";
    application_fragment("pgx", place, text.join("&"), without_counterpart(advice, &["max_wait_time"]))
}

pub fn mongodb(advice: &Advice) -> Fragment {
    // Omitted times have no limit. Some drivers refuse 0.
    let time = |time: Option<Duration>| time.map(millis).and_then(number);
    let text = lines(
        [
            ("maxPoolSize", number(advice.max_size)),
            ("minPoolSize", number(advice.min_size)),
            ("maxConnecting", number(advice.max_connecting)),
            ("maxIdleTimeMS", time(advice.max_idle_time)),
            ("waitQueueTimeoutMS", time(advice.max_wait_time)),
        ],
        "=",
    );
    let mut missing = without_counterpart(advice, &["max_life_time"]);
    missing.retain(|name| *name != "max_connecting");
    // A driver has one pool for each host of a replica set.
    let place = "each instance's connection string, for the pool of each host";
    application_fragment(MONGODB, place, text.join("&"), missing)
}

/// The names of Poolhouse's settings without a counterpart in the pool of an application. `more`: those that this
/// product lacks besides.
fn without_counterpart(advice: &Advice, more: &[&'static str]) -> Vec<&'static str> {
    let clients = [
        ("max_connecting", true),
        ("evict_min_idle", advice.evict_min_idle.is_some()),
        ("max_server_connections", advice.budget.is_some()),
        ("soft_limit", advice.soft_limit.is_some()),
        ("hard_limit", advice.hard_limit.is_some()),
        ("client_idle_time", advice.client_idle_time.is_some()),
    ];
    let clients = clients.into_iter().filter(|(_, there)| *there).map(|(name, _)| name);
    more.iter().copied().chain(clients).collect()
}
