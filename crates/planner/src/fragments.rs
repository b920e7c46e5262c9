//! The settings as they are pasted into a configuration: Poolhouse's, PgBouncer's, HikariCP's, and the options of MongoDB's drivers. What
//! has no counterpart there is named. Says how settings are called; chooses none.

use std::time::Duration;

use bench::plan::Target;
use serde::Serialize;
use settings::show_duration;

use crate::advice::Advice;

const POOLHOUSE: &str = "Poolhouse";
const PGBOUNCER: &str = "PgBouncer";
/// Whose options a connection string has.
pub const MONGODB: &str = "MongoDB's drivers";
/// PgBouncer cannot switch a life time off: 0 would close each connection after one use. None lives for longer than a year.
const ENDLESS: Duration = Duration::from_secs(365 * 86_400);
/// HikariCP takes its defaults (10 and 30 minutes, 30 s) for an idle time, a life time and a time-out that are shorter than these.
const HIKARI_IDLE: Duration = Duration::from_secs(10);
const HIKARI_LIFE: Duration = Duration::from_secs(30);
const HIKARI_WAIT: Duration = Duration::from_millis(250);

/// A part of a configuration.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Fragment {
    /// Whose.
    pub of: &'static str,
    /// The file, or the place, it belongs to.
    pub place: &'static str,
    /// It is of one pooler in front of all instances, where there are several.
    pub is_for_all: bool,
    /// The text.
    pub text: String,
    /// Our settings that have no counterpart there.
    pub missing: Vec<&'static str>,
}

/// The settings that are pasted.
#[derive(Clone, Copy, Debug)]
pub struct Pasted<'a> {
    /// Those of the pool in each instance of an application.
    pub each: &'a Advice,
    /// Those of a pooler that stands apart, which is one for all instances; `None`: nothing is said of one.
    pub pooler: Option<&'a Advice>,
}

/// Those that make sense for a database; `None`: it is not known which.
pub fn fragments(pasted: &Pasted<'_>, target: Option<&Target>) -> Vec<Fragment> {
    let (pooler, each) = (pasted.pooler, Some(pasted.each));
    let one_for_all = pasted.each.instances > 1 && pooler.is_some_and(|pooler| pooler.instances == 1);
    let of_pooler = |make: fn(&Advice) -> Fragment, place: &'static str| {
        let fragment = pooler.map(make);
        let place_of = |fragment: &Fragment| if one_for_all { place } else { fragment.place };
        fragment.map(|fragment| Fragment { place: place_of(&fragment), is_for_all: one_for_all, ..fragment })
    };
    let all = [
        of_pooler(poolhouse, "poolhouse.toml of one in front of all instances"),
        of_pooler(pgbouncer, "pgbouncer.ini of one in front of all instances"),
        each.map(hikaricp),
        each.map(mongodb),
    ];
    let shares = pasted.each.budget.is_some_and(|budget| u64::from(budget) < pasted.each.in_all());
    let chosen: &[usize] = match target {
        // Limits for clients only, which the others do not have; nor have they a limit for all pools, without which these are too large.
        _ if pasted.each.max_size == 0 || shares => &[0],
        Some(Target::Postgres(_)) => &[0, 1, 2],
        Some(Target::Redis(_)) => &[0],
        Some(Target::MongoDb(_)) => &[0, 3],
        Some(Target::Http(_)) | None => &[0, 1, 2, 3],
    };
    chosen.iter().filter_map(|index| all[*index].clone()).collect()
}

/// Lines of `key = value`, where there is a value.
fn lines<'a>(pairs: impl IntoIterator<Item = (&'a str, Option<String>)>, between: &str) -> Vec<String> {
    pairs.into_iter().filter_map(|(key, value)| Some(format!("{key}{between}{}", value?))).collect()
}

fn number(value: impl ToString) -> Option<String> {
    Some(value.to_string())
}

fn poolhouse(advice: &Advice) -> Fragment {
    let time = |time: Option<Duration>| Some(time.map_or("\"off\"".to_owned(), |time| format!("\"{}\"", show(time))));
    let mut text = Vec::new();
    let listener = [
        ("soft_limit", advice.soft_limit.and_then(number)),
        ("hard_limit", advice.hard_limit.and_then(number)),
        ("evict_min_idle", advice.evict_min_idle.map(|time| format!("\"{}\"", show(time)))),
        ("client_idle_time", advice.client_idle_time.map(|time| format!("\"{}\"", show(time)))),
    ];
    let listener = lines(listener, " = ");
    if !listener.is_empty() {
        text.push("[[listener]]".to_owned());
        text.extend(listener);
        text.push(String::new());
    }
    if let Some(budget) = advice.budget {
        text.push(format!("[limits]\nmax_server_connections = {budget}\n"));
    }
    if advice.max_size > 0 {
        text.push("[[database]]".to_owned());
        text.extend(lines(
            [
                ("max_size", number(advice.max_size)),
                ("min_size", number(advice.min_size)),
                ("max_connecting", number(advice.max_connecting)),
                ("max_idle_time", time(advice.max_idle_time)),
                ("max_life_time", time(advice.max_life_time)),
                ("max_wait_time", time(advice.max_wait_time)),
            ],
            " = ",
        ));
    }
    Fragment { of: POOLHOUSE, place: "poolhouse.toml", is_for_all: false, text: text.join("\n"), missing: Vec::new() }
}

fn pgbouncer(advice: &Advice) -> Fragment {
    // 0 switches a time off there (but for a life), and times are whole seconds. A server comes back after each transaction, as is played here;
    // by default it would stay with its client for as long as that is connected.
    let time = |time: Option<Duration>| Some(time.map_or(0, |time| time.as_secs_f64().ceil() as u64).to_string());
    let text = lines(
        [
            ("pool_mode", number("transaction")),
            ("default_pool_size", number(advice.max_size)),
            ("min_pool_size", number(advice.min_size)),
            ("server_idle_timeout", time(advice.max_idle_time)),
            ("server_lifetime", time(Some(advice.max_life_time.unwrap_or(ENDLESS)))),
            ("query_wait_timeout", time(advice.max_wait_time)),
            ("max_client_conn", advice.hard_limit.and_then(number)),
            ("client_idle_timeout", advice.client_idle_time.and_then(|idle| time(Some(idle)))),
        ],
        " = ",
    );
    let mut missing = vec!["max_connecting"];
    missing.extend(advice.budget.map(|_| "max_server_connections"));
    missing.extend(advice.soft_limit.map(|_| "soft_limit"));
    missing.extend(advice.evict_min_idle.map(|_| "evict_min_idle"));
    let note = "; for clients that keep nothing in their session from one transaction to the next";
    let text = format!("[pgbouncer]\n{note}\n{}", text.join("\n"));
    Fragment { of: PGBOUNCER, place: "pgbouncer.ini", is_for_all: false, text, missing }
}

fn hikaricp(advice: &Advice) -> Fragment {
    // 0 switches a time off there, too.
    let time =
        |time: Option<Duration>, least: Duration| Some(time.map_or(0, |time| millis(time.max(least))).to_string());
    let text = lines(
        [
            ("maximumPoolSize", number(advice.max_size)),
            ("minimumIdle", number(advice.min_size)),
            ("idleTimeout", time(advice.max_idle_time, HIKARI_IDLE)),
            ("maxLifetime", time(advice.max_life_time, HIKARI_LIFE)),
            ("connectionTimeout", time(advice.max_wait_time, HIKARI_WAIT)),
        ],
        "=",
    );
    // It counts only idle connections towards its minimum, so that it may keep more than ours.
    Fragment {
        of: "HikariCP",
        place: "each instance's properties",
        is_for_all: false,
        text: text.join("\n"),
        missing: without_clients(advice),
    }
}

fn mongodb(advice: &Advice) -> Fragment {
    // Without a limit where nothing is said; a 0 not all of the drivers take.
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
    let text = text.join("&");
    let mut missing = vec!["max_life_time"];
    missing.extend(without_clients(advice).into_iter().filter(|name| *name != "max_connecting"));
    // A driver has such a pool for each host of a replica set.
    let place = "each instance's connection string, for the pool of each host";
    Fragment { of: MONGODB, place, is_for_all: false, text, missing }
}

/// What the pool of an application has no setting for.
fn without_clients(advice: &Advice) -> Vec<&'static str> {
    let clients = [
        ("max_connecting", true),
        ("evict_min_idle", advice.evict_min_idle.is_some()),
        ("max_server_connections", advice.budget.is_some()),
        ("soft_limit", advice.soft_limit.is_some()),
        ("hard_limit", advice.hard_limit.is_some()),
        ("client_idle_time", advice.client_idle_time.is_some()),
    ];
    clients.into_iter().filter(|(_, there)| *there).map(|(name, _)| name).collect()
}

/// In whole milliseconds, and never none.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).max(1)
}

/// A duration as it is written there: to the millisecond.
fn show(time: Duration) -> String {
    show_duration(Duration::from_millis(millis(time)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice() -> Advice {
        Advice {
            max_size: 200,
            min_size: 30,
            max_idle_time: Some(Duration::from_secs(300)),
            max_life_time: None,
            max_wait_time: Some(Duration::from_millis(2500)),
            max_connecting: 4,
            instances: 1,
            budget: None,
            soft_limit: Some(800),
            hard_limit: Some(1000),
            evict_min_idle: None,
            client_idle_time: Some(Duration::from_secs(310)),
            exclusive: None,
        }
    }

    #[test]
    fn each_product_gets_its_own_names_and_units() {
        let text = |of: fn(&Advice) -> Fragment| of(&advice()).text;
        assert!(
            text(poolhouse).contains("max_idle_time = \"5m\"\nmax_life_time = \"off\"\nmax_wait_time = \"2500ms\"")
        );
        assert!(
            text(poolhouse)
                .starts_with("[[listener]]\nsoft_limit = 800\nhard_limit = 1000\nclient_idle_time = \"310s\"")
        );
        assert!(text(pgbouncer).contains("\npool_mode = transaction\ndefault_pool_size = 200\nmin_pool_size = 30\nserver_idle_timeout = 300\nserver_lifetime = 31536000\nquery_wait_timeout = 3"));
        assert!(text(hikaricp).contains(
            "maximumPoolSize=200\nminimumIdle=30\nidleTimeout=300000\nmaxLifetime=0\nconnectionTimeout=2500"
        ));
        assert_eq!(
            text(mongodb),
            "maxPoolSize=200&minPoolSize=30&maxConnecting=4&maxIdleTimeMS=300000&waitQueueTimeoutMS=2500"
        );
    }

    #[test]
    fn what_is_off_or_too_short_is_written_as_each_product_means_it() {
        let off = Advice { max_idle_time: None, max_wait_time: None, ..advice() };
        // 0 is an error to PyMongo, and to PgBouncer a connection that is used once.
        assert_eq!(mongodb(&off).text, "maxPoolSize=200&minPoolSize=30&maxConnecting=4");
        assert!(pgbouncer(&off).text.contains("server_idle_timeout = 0\nserver_lifetime = 31536000"));
        assert!(hikaricp(&off).text.ends_with("idleTimeout=0\nmaxLifetime=0\nconnectionTimeout=0"));
        let short = |time| Some(Duration::from_micros(time));
        let short = Advice {
            max_idle_time: short(400),
            max_life_time: short(5_000_000),
            max_wait_time: short(100_000),
            ..advice()
        };
        assert!(
            hikaricp(&short).text.ends_with("idleTimeout=10000\nmaxLifetime=30000\nconnectionTimeout=250"),
            "it would take its defaults instead: {}",
            hikaricp(&short).text
        );
        assert!(mongodb(&short).text.ends_with("maxIdleTimeMS=1&waitQueueTimeoutMS=100"));
        assert!(
            pgbouncer(&short).text.contains("server_idle_timeout = 1\nserver_lifetime = 5\nquery_wait_timeout = 1")
        );
    }

    #[test]
    fn what_pools_have_together_is_said_where_they_are_those_of_one_poolhouse() {
        let shared = Advice { budget: Some(90), ..advice() };
        assert!(
            poolhouse(&shared).text.contains("\n\n[limits]\nmax_server_connections = 90\n\n[[database]]\nmax_size")
        );
        for fragment in [pgbouncer(&shared), hikaricp(&shared), mongodb(&shared)] {
            assert!(fragment.missing.contains(&"max_server_connections"), "{fragment:?}");
        }
    }

    #[test]
    fn a_pooler_in_front_of_all_instances_has_the_pool_for_all_of_them() {
        let each = Advice { max_size: 2, instances: 40, ..advice() };
        let one = Advice { max_size: 33, ..advice() };
        let all = fragments(&Pasted { each: &each, pooler: Some(&one) }, None);
        let lines = ["max_size = 33", "default_pool_size = 33", "maximumPoolSize=2", "maxPoolSize=2"];
        for (fragment, line) in all.iter().zip(lines) {
            assert!(fragment.text.contains(line), "{fragment:?}");
        }
        assert!(
            all[0].place == "poolhouse.toml of one in front of all instances"
                && all[1].place.ends_with("all instances")
        );
        // Pools of one Poolhouse are its own, however many, and a single instance has a pooler like its own pool.
        for each in [each, one] {
            let all = fragments(&Pasted { each: &each, pooler: Some(&each) }, None);
            assert!(all.len() == 4 && all[0].place == "poolhouse.toml", "{all:?}");
        }
        // Pools that would be too large without a common limit are nobody else's.
        for (budget, count) in [(80, 4), (79, 1)] {
            let each = Advice { max_size: 2, instances: 40, budget: Some(budget), ..advice() };
            assert_eq!(fragments(&Pasted { each: &each, pooler: Some(&each) }, None).len(), count, "{budget}");
        }
        let drivers = fragments(&Pasted { each: &advice(), pooler: None }, None);
        assert_eq!(drivers.iter().map(|one| one.of).collect::<Vec<_>>(), ["HikariCP", MONGODB]);
    }

    #[test]
    fn what_has_no_counterpart_is_named() {
        assert_eq!(pgbouncer(&advice()).missing, ["max_connecting", "soft_limit"]);
        assert_eq!(hikaricp(&advice()).missing, ["max_connecting", "soft_limit", "hard_limit", "client_idle_time"]);
        assert_eq!(mongodb(&advice()).missing, ["max_life_time", "soft_limit", "hard_limit", "client_idle_time"]);
    }
}
