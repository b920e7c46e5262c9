//! The recommended settings in the syntax of Poolhouse, PgBouncer and the pools of applications.

mod applications;

use std::time::Duration;

use load::plan::Target;
use serde::Serialize;
use settings::show_duration;

use crate::{advice::Advice, products::Product};

const POOLHOUSE: &str = "Poolhouse";
const PGBOUNCER: &str = "PgBouncer";
pub const MONGODB: &str = "MongoDB's drivers";
/// Stands for no limit in products that cannot switch a time off.
const ENDLESS: Duration = Duration::from_secs(365 * 86_400);

/// A part of a configuration.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Fragment {
    pub of: &'static str,
    /// The file or place it belongs to.
    pub place: &'static str,
    /// It configures one pooler in front of several instances.
    pub is_for_all: bool,
    pub text: String,
    /// Poolhouse's settings without a counterpart.
    pub missing: Vec<&'static str>,
}

#[derive(Clone, Copy, Debug)]
pub struct Recommended<'a> {
    /// Settings of the pool in each instance of an application.
    pub each: &'a Advice,
    /// Settings of a separate pooler.
    pub pooler: Option<&'a Advice>,
}

/// The fragments of these products, or without any of the default ones for the database (`None`: unknown).
pub fn fragments(settings: &Recommended<'_>, target: Option<&Target>, products: &[Product]) -> Vec<Fragment> {
    let one_for_all = settings.each.instances > 1 && settings.pooler.is_some_and(|pooler| pooler.instances == 1);
    let of_pooler = |make: fn(&Advice) -> Fragment, place: &'static str| {
        let fragment = settings.pooler.map(make)?;
        let place = if one_for_all { place } else { fragment.place };
        Some(Fragment { place, is_for_all: one_for_all, ..fragment })
    };
    let fragment = |product: &Product| match product {
        Product::Poolhouse => of_pooler(poolhouse, "poolhouse.toml of one in front of all instances"),
        Product::PgBouncer => of_pooler(pgbouncer, "pgbouncer.ini of one in front of all instances"),
        Product::HikariCp => Some(applications::hikaricp(settings.each)),
        Product::Django => Some(applications::django(settings.each)),
        Product::Rails => Some(applications::rails(settings.each)),
        Product::NodePostgres => Some(applications::node_postgres(settings.each)),
        Product::SqlAlchemy => Some(applications::sqlalchemy(settings.each)),
        Product::Pgx => Some(applications::pgx(settings.each)),
        Product::MongoDb => Some(applications::mongodb(settings.each)),
    };
    let shares = settings.each.budget.is_some_and(|budget| u64::from(budget) < settings.each.total_max_size());
    let chosen: &[Product] = match products {
        // Only Poolhouse has limits for clients and a limit for all pools.
        _ if settings.each.max_size == 0 || shares => &[Product::Poolhouse],
        [] => Product::defaults(target),
        products => products,
    };
    chosen.iter().filter_map(fragment).collect()
}

/// Lines of the keys that have a value.
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
    // Times are whole seconds, and 0 switches one off; but with a life time of 0 a connection is used once. The
    // simulation corresponds to transaction mode, which is not PgBouncer's default.
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

/// Rounds up to whole milliseconds, at least one.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).max(1)
}

/// A duration in Poolhouse's syntax.
fn show(time: Duration) -> String {
    show_duration(Duration::from_millis(millis(time)))
}

#[cfg(test)]
mod tests {
    use super::{
        applications::{django, hikaricp, mongodb, node_postgres, pgx, rails, sqlalchemy},
        *,
    };

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
        }
    }

    /// A product's fragment, the end of its text, and its missing settings.
    type ProductCase = (fn(&Advice) -> Fragment, &'static str, Vec<&'static str>);

    #[test]
    fn each_product_gets_its_own_names_and_units_and_its_missing_settings_are_named() {
        let of_applications = ["max_connecting", "soft_limit", "hard_limit", "client_idle_time"];
        let without = |more: &[&'static str]| [more, &of_applications].concat();
        let of_poolhouse = "[[listener]]\nsoft_limit = 800\nhard_limit = 1000\nclient_idle_time = \"310s\"\n\n\
                            [[database]]\nmax_size = 200\nmin_size = 30\nmax_connecting = 4\nmax_idle_time = \"5m\"\n\
                            max_life_time = \"off\"\nmax_wait_time = \"2500ms\"";
        let cases: [ProductCase; 9] = [
            (poolhouse, of_poolhouse, vec![]),
            (
                pgbouncer,
                "\npool_mode = transaction\ndefault_pool_size = 200\nmin_pool_size = 30\nserver_idle_timeout = 300\n\
                 server_lifetime = 31536000\nquery_wait_timeout = 3\nmax_client_conn = 1000\nclient_idle_timeout = 310",
                vec!["max_connecting", "soft_limit"],
            ),
            (
                hikaricp,
                "maximumPoolSize=200\nminimumIdle=30\nidleTimeout=300000\nmaxLifetime=0\nconnectionTimeout=2500",
                without(&[]),
            ),
            (
                django,
                "[\"pool\"] = {\n    \"min_size\": 30,\n    \"max_size\": 200,\n    \"timeout\": 2.5,\n    \
                 \"max_idle\": 300,\n    \"max_lifetime\": 31536000,\n}",
                without(&[]),
            ),
            (rails, "pool: 200\ncheckout_timeout: 2.5\nidle_timeout: 300", without(&["min_size", "max_life_time"])),
            (
                node_postgres,
                "new pg.Pool({\n  max: 200,\n  min: 30,\n  idleTimeoutMillis: 300000,\n  \
                 connectionTimeoutMillis: 2500,\n  maxLifetimeSeconds: 0,\n})",
                without(&[]),
            ),
            (
                sqlalchemy,
                "create_engine(\n    url,\n    pool_size=200,\n    max_overflow=0,\n    pool_timeout=2.5,\n    \
                 pool_recycle=-1,\n)",
                without(&["min_size", "max_idle_time"]),
            ),
            (
                pgx,
                "pool_max_conns=200&pool_min_conns=30&pool_max_conn_idle_time=300000ms&\
                 pool_max_conn_lifetime=31536000000ms",
                without(&["max_wait_time"]),
            ),
            (
                mongodb,
                "maxPoolSize=200&minPoolSize=30&maxConnecting=4&maxIdleTimeMS=300000&waitQueueTimeoutMS=2500",
                vec!["max_life_time", "soft_limit", "hard_limit", "client_idle_time"],
            ),
        ];
        for (fragment_of, text, missing) in cases {
            let fragment = fragment_of(&advice());
            assert!(fragment.text.ends_with(text), "{fragment:?}");
            assert_eq!(fragment.missing, missing, "{}", fragment.of);
        }
    }

    #[test]
    fn times_that_are_off_or_too_short_are_written_as_each_product_needs_them() {
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
    fn only_poolhouse_has_a_limit_for_all_pools() {
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
        let known = [Product::Poolhouse, Product::PgBouncer, Product::HikariCp, Product::MongoDb];
        let fragments =
            |each: &Advice, pooler: Option<&Advice>| super::fragments(&Recommended { each, pooler }, None, &known);
        let all = fragments(&each, Some(&one));
        let lines = ["max_size = 33", "default_pool_size = 33", "maximumPoolSize=2", "maxPoolSize=2"];
        for (fragment, line) in all.iter().zip(lines) {
            assert!(fragment.text.contains(line), "{fragment:?}");
        }
        assert!(
            all[0].place == "poolhouse.toml of one in front of all instances"
                && all[1].place.ends_with("all instances")
        );
        // With a common pooler, or a single instance, the pooler has the settings of each pool.
        for each in [each, one] {
            let all = fragments(&each, Some(&each));
            assert!(all.len() == 4 && all[0].place == "poolhouse.toml", "{all:?}");
        }
        // Pools that rely on a common limit are only Poolhouse's.
        for (budget, count) in [(80, 4), (79, 1)] {
            let each = Advice { max_size: 2, instances: 40, budget: Some(budget), ..advice() };
            assert_eq!(fragments(&each, Some(&each)).len(), count, "{budget}");
        }
        let drivers = fragments(&advice(), None);
        assert_eq!(drivers.iter().map(|one| one.of).collect::<Vec<_>>(), ["HikariCP", MONGODB]);
    }

    #[test]
    fn the_named_products_or_the_default_ones_get_a_fragment() {
        let of = |products: &[Product]| {
            let each = advice();
            let all = fragments(&Recommended { each: &each, pooler: Some(&each) }, None, products);
            all.iter().map(|fragment| fragment.of).collect::<Vec<_>>()
        };
        assert_eq!(of(&[]), ["Poolhouse", "PgBouncer", "HikariCP"], "it is taken to be PostgreSQL");
        assert_eq!(of(&[Product::Poolhouse, Product::Rails]), ["Poolhouse", "Rails"]);
        assert!("node-postgre".parse::<Product>().unwrap_err().contains("did you mean \"node-postgres\""));
    }
}
