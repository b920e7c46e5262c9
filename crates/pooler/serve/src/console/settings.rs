//! SHOW CONFIG and SET: the configuration under PgBouncer's names. What has no counterpart is listed only if the file
//! is PgBouncer's.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use console::{Answer, Failure, Table, Value};
use upstream::Kind;

use settings::Problems;

use super::{Console, inventory::seconds};
use crate::config::{Config, Listener, Mode, PoolSettings, shown_path};
use crate::reload::{Applied, one_line};

/// What SET tells of a file of TLS that does not go with the others.
const NOT_APPLIED: &str = "TLS settings could not be applied, still using old configuration";

/// A setting: PgBouncer's name for it, and where it is.
struct Setting {
    name: &'static str,
    read: fn(&Config) -> Option<String>,
    /// Changes it at run time; `None` if only the file can. False if the value makes no sense.
    change: Option<fn(&mut Config, &str) -> bool>,
}

/// In the order of their names.
const SETTINGS: &[Setting] = &[
    Setting {
        name: "admin_users",
        read: |config| Some(config.console.admins.join(",")),
        change: Some(|config, value| change_list(&mut config.console.admins, value)),
    },
    Setting {
        name: "application_name_add_host",
        read: |config| Some(u8::from(config.pool.application_name_add_host).to_string()),
        change: Some(|config, value| {
            let Some(is_on) = truth(value) else { return false };
            change_pools(config, "application_name_add_host", |pool| pool.application_name_add_host = is_on)
        }),
    },
    Setting {
        name: "client_idle_timeout",
        read: |config| {
            Some(time(client_time(config, |pool| pool.timeouts.client_idle, |all| all.timeouts.client_idle)))
        },
        change: Some(|config, value| {
            let Some(limit) = parse_time(value) else { return false };
            change_pools(config, "client_idle_time", |pool| pool.timeouts.client_idle = Some(limit))
        }),
    },
    Setting {
        name: "client_login_timeout",
        read: |config| Some(time(listeners(config).next()?.timeouts.login)),
        change: Some(|config, value| {
            let Some(limit) = parse_time(value) else { return false };
            change_listeners(config, |listener| listener.timeouts.login = limit)
        }),
    },
    Setting {
        name: "conffile",
        read: |config| config.source.as_ref().map(|source| source.path.display().to_string()),
        change: None,
    },
    Setting {
        name: "default_pool_size",
        read: |config| Some(config.pool.config.max_size.to_string()),
        change: Some(|config, value| {
            let Some(size) = number(value).filter(|size| *size > 0) else { return false };
            change_pools(config, "max_size", |pool| pool.config.max_size = size)
        }),
    },
    Setting {
        name: "idle_transaction_timeout",
        read: |config| {
            let limit = client_time(config, |pool| pool.timeouts.transaction_idle, |all| all.timeouts.transaction_idle);
            Some(time(limit))
        },
        change: Some(|config, value| {
            let Some(limit) = parse_time(value) else { return false };
            change_pools(config, "transaction_idle_time", |pool| pool.timeouts.transaction_idle = Some(limit))
        }),
    },
    Setting {
        name: "listen_addr",
        read: |config| {
            let addresses: Vec<String> =
                listeners(config).filter_map(|all| Some(all.listen.tcp()?.ip().to_string())).collect();
            Some(addresses.join(","))
        },
        change: None,
    },
    Setting {
        name: "listen_port",
        read: |config| listeners(config).find_map(|all| Some(all.listen.tcp()?.port().to_string())),
        change: None,
    },
    Setting {
        name: "log_connections",
        read: |config| Some(u8::from(config.serve.log_connections).to_string()),
        change: Some(|config, value| truth(value).map(|is_on| config.serve.log_connections = is_on).is_some()),
    },
    Setting {
        name: "log_disconnections",
        read: |config| Some(u8::from(config.serve.log_disconnections).to_string()),
        change: Some(|config, value| truth(value).map(|is_on| config.serve.log_disconnections = is_on).is_some()),
    },
    Setting {
        name: "log_pooler_errors",
        read: |config| Some(u8::from(config.serve.log_client_errors).to_string()),
        change: Some(|config, value| truth(value).map(|is_on| config.serve.log_client_errors = is_on).is_some()),
    },
    Setting {
        name: "max_client_conn",
        read: |config| Some(listeners(config).next()?.gate.hard_limit.to_string()),
        change: Some(|config, value| {
            let Some(limit) = number(value).filter(|limit| *limit > 0) else { return false };
            if config.limits.max_clients > 0 {
                config.limits.max_clients = limit;
            }
            change_listeners(config, |listener| {
                let gate = &mut listener.gate;
                gate.soft_limit = match gate.soft_limit == gate.hard_limit {
                    true => limit,
                    false => gate.soft_limit.min(crate::config::default_soft_limit(limit)),
                };
                gate.hard_limit = limit;
            })
        }),
    },
    Setting {
        name: "max_prepared_statements",
        read: |config| config.pool.state.max_prepared_statements.map(|most| most.to_string()),
        change: None,
    },
    Setting {
        name: "max_user_connections",
        read: |config| Some(config.limits.max_user_connections.to_string()),
        change: Some(|config, value| number(value).map(|limit| config.limits.max_user_connections = limit).is_some()),
    },
    Setting {
        name: "min_pool_size",
        read: |config| Some(config.pool.config.min_size.to_string()),
        change: Some(|config, value| {
            let Some(size) = number(value).filter(|size| *size <= config.pool.config.max_size) else { return false };
            change_pools(config, "min_size", |pool| pool.config.min_size = size)
        }),
    },
    Setting { name: "peer_id", read: |config| Some(config.serve.node_id.to_string()), change: None },
    Setting {
        name: "pool_mode",
        read: |config| Some(config.pool.mode.to_string()),
        change: Some(|config, value| {
            let Ok(mode) = value.parse::<Mode>() else { return false };
            change_pools(config, "mode", |pool| pool.mode = mode)
        }),
    },
    Setting {
        name: "query_timeout",
        read: |config| Some(time(client_time(config, |pool| pool.timeouts.query, |all| all.timeouts.query))),
        change: Some(|config, value| {
            let Some(limit) = parse_time(value) else { return false };
            change_pools(config, "query_time", |pool| pool.timeouts.query = Some(limit))
        }),
    },
    Setting {
        name: "query_wait_timeout",
        read: |config| Some(time(config.pool.config.max_wait_time)),
        change: Some(|config, value| {
            let Some(limit) = parse_time(value) else { return false };
            change_pools(config, "max_wait_time", |pool| pool.config.max_wait_time = limit)
        }),
    },
    Setting {
        name: "server_check_delay",
        read: |config| config.pool.config.check_after_idle.map(|limit| time(Some(limit))),
        change: Some(|config, value| {
            let Some(limit) = parse_time(value) else { return false };
            change_pools(config, "check_after_idle", |pool| pool.config.check_after_idle = limit)
        }),
    },
    Setting {
        name: "server_connect_timeout",
        read: |config| Some(time(Some(config.pool.config.connect_timeout))),
        change: Some(|config, value| {
            let Some(Some(limit)) = parse_time(value) else { return false };
            change_pools(config, "connect_time", |pool| pool.config.connect_timeout = limit)
        }),
    },
    Setting {
        name: "server_idle_timeout",
        read: |config| Some(time(config.pool.config.max_idle_time)),
        change: Some(|config, value| {
            let Some(limit) = parse_time(value) else { return false };
            change_pools(config, "max_idle_time", |pool| pool.config.max_idle_time = limit)
        }),
    },
    Setting {
        name: "server_lifetime",
        read: |config| Some(time(config.pool.config.max_life_time)),
        change: Some(|config, value| {
            let Some(limit) = parse_time(value) else { return false };
            change_pools(config, "max_life_time", |pool| pool.config.max_life_time = limit)
        }),
    },
    Setting {
        name: "stats_period",
        read: |config| Some(time(Some(super::statistics::period(config)))),
        change: Some(|config, value| {
            let Some(Some(period)) = parse_time(value) else { return false };
            config.log.stats_period.as_mut().map(|now| *now = period).is_some()
        }),
    },
    Setting {
        name: "stats_users",
        read: |config| Some(config.console.viewers.join(",")),
        change: Some(|config, value| change_list(&mut config.console.viewers, value)),
    },
    Setting {
        name: "unix_socket_dir",
        read: |config| listeners(config).find_map(|all| Some(shown_path(all.listen.path()?.parent()?))),
        change: None,
    },
    Setting {
        name: "verbose",
        read: |config| Some(verbosity(config.log.level).to_string()),
        change: Some(|config, value| {
            let Some(level) = number(value).and_then(|number| LEVELS.get(number as usize)) else { return false };
            config.log.level = Some(level);
            true
        }),
    },
];

/// The levels of the log, by PgBouncer's `verbose`.
const LEVELS: [&str; 4] = ["info", "debug", "debug", "trace"];

/// PgBouncer's `verbose` for a level of the log.
fn verbosity(level: Option<&str>) -> usize {
    level.and_then(|level| LEVELS.iter().position(|known| *known == level)).unwrap_or(0)
}

impl Console {
    pub(super) fn list_settings(&self, table: &mut Table) {
        let (config, defaults) = (self.reloader().in_force(), defaults());
        let mut all: BTreeMap<&str, Shown> = BTreeMap::new();
        for Setting { name, read, change } in SETTINGS {
            let default = defaults.as_ref().and_then(read);
            all.insert(name, Shown { value: read(&config), default, is_changeable: change.is_some() });
        }
        let translation = config.source.as_ref().and_then(|source| source.translation.as_ref());
        for (name, given, default) in translation.iter().flat_map(|translation| translation.general_settings()) {
            let shown = all.entry(name).or_default();
            shown.value.get_or_insert_with(|| given.to_owned());
            shown.default = Some(default.to_owned());
            shown.is_changeable = ::pgbouncer::can_change(name);
        }
        for (name, Shown { value, default, is_changeable }) in &all {
            let changeable = if *is_changeable { "yes" } else { "no" };
            table.push([(*name).into(), value.as_ref().into(), default.as_ref().into(), Value::from(changeable)]);
        }
    }

    /// Changes a setting until the next reload of the file.
    pub(super) async fn set(self: &Arc<Self>, key: &str, value: &str) -> Result<Answer, Failure> {
        let failed = |hint: String| Failure::new("SET failed").hint(hint);
        let config = self.reloader().in_force();
        if config.source.as_ref().is_some_and(|source| source.translation.is_some()) {
            return self.set_beside_file(key, value).await;
        }
        let Some(setting) = SETTINGS.iter().find(|setting| setting.name == key) else {
            return Err(failed(format!("The console changes no `{key}`: write it into the file, and RELOAD.")));
        };
        let Some(change) = setting.change else {
            return Err(failed(format!(
                "`{key}` cannot change while Poolhouse runs: write it into the file, and restart."
            )));
        };
        let (console, given) = (Arc::clone(self), value.to_owned());
        let outcome = tokio::task::spawn_blocking(move || {
            console.reloader().change(|config| if change(config, &given) { Ok(()) } else { Err(()) })
        });
        match outcome.await {
            Ok(Ok(())) => Ok(Answer::done(format!("SET {key}={value}"))),
            Ok(Err(Some(problem))) => Err(failed(problem)),
            _ => Err(failed(format!("This is no value for `{key}`. Times are in seconds."))),
        }
    }
}

impl Console {
    /// Changes a setting of a file of PgBouncer's until that is read again.
    async fn set_beside_file(self: &Arc<Self>, key: &str, value: &str) -> Result<Answer, Failure> {
        let failed = |hint: String| Failure::new("SET failed").hint(hint);
        if !::pgbouncer::can_change(key) {
            return Err(failed(format!(
                "`{key}` cannot change while the process runs: write it into the file, and restart."
            )));
        }
        let (console, pair) = (Arc::clone(self), (key.to_owned(), value.to_owned()));
        let outcome = tokio::task::spawn_blocking(move || console.reloader().set(&pair.0, &pair.1));
        match outcome.await {
            Ok(Some(Ok(applied))) => {
                let answer = Answer::done(format!("SET {key}={value}"));
                Ok(if applied == Applied::Now { answer } else { answer.with_notice(NOT_APPLIED) })
            }
            Ok(Some(Err(Problems(problems)))) => {
                let problems: Vec<String> = problems.iter().map(one_line).collect();
                problems.iter().for_each(|problem| tracing::error!("{problem}"));
                Err(failed(problems.join("; ")))
            }
            _ => Err(failed("The configuration is not PgBouncer's any more.".to_owned())),
        }
    }
}

/// What SHOW CONFIG shows of a setting.
#[derive(Default)]
struct Shown {
    value: Option<String>,
    default: Option<String>,
    is_changeable: bool,
}

/// The configuration of a file that sets nothing.
fn defaults() -> Option<Config> {
    let text = "[[database]]\nname = \"d\"\nurl = \"postgres://localhost/d\"\n";
    let mut config = crate::read::from_text(std::path::Path::new(""), text, &|_| None).ok()?;
    config.source = None;
    Some(config)
}

fn listeners(config: &Config) -> impl Iterator<Item = &Listener> {
    config.listeners.iter().filter(|listener| listener.kind == Kind::Postgres)
}

/// A time-out of clients: that of `[pool]`, or else of the first listener.
fn client_time(
    config: &Config,
    of_pool: fn(&PoolSettings) -> Option<Option<Duration>>,
    of_listener: fn(&Listener) -> Option<Duration>,
) -> Option<Duration> {
    of_pool(&config.pool).unwrap_or_else(|| listeners(config).next().and_then(of_listener))
}

/// A time in seconds, where 0 is none.
fn time(time: Option<Duration>) -> String {
    match time {
        Some(time) if time.subsec_nanos() > 0 => time.as_secs_f64().to_string(),
        time => seconds(time).to_string(),
    }
}

/// Seconds, where 0 is none.
fn parse_time(text: &str) -> Option<Option<Duration>> {
    let time = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())?;
    Some(Some(time).filter(|time| !time.is_zero()))
}

fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| *number <= crate::config::MAX_COUNT)
}

fn truth(text: &str) -> Option<bool> {
    match text {
        "1" | "on" | "yes" | "true" => Some(true),
        "0" | "off" | "no" | "false" => Some(false),
        _ => None,
    }
}

fn change_list(list: &mut Vec<String>, value: &str) -> bool {
    *list = value.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    true
}

/// Changes `[pool]`, and all databases that have no such key of their own.
fn change_pools(config: &mut Config, key: &'static str, change: impl Fn(&mut PoolSettings)) -> bool {
    change(&mut config.pool);
    let databases = config.databases.iter_mut().filter(|database| !database.spots.contains_key(key));
    databases.for_each(|database| change(&mut database.pool));
    true
}

fn change_listeners(config: &mut Config, change: impl Fn(&mut Listener)) -> bool {
    config.listeners.iter_mut().filter(|listener| listener.kind == Kind::Postgres).for_each(change);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_in_order_and_change_what_they_show() {
        assert!(SETTINGS.is_sorted_by_key(|setting| setting.name));
        let mut config = defaults().unwrap();
        config.log.stats_period = Some(Duration::from_secs(60));
        let values = [("0", "0"), ("1", "1"), ("7", "7"), ("session", "session"), ("a, b", "a,b")];
        for Setting { name, read, change } in SETTINGS {
            let Some(change) = change else { continue };
            let changed = values.iter().filter(|(value, _)| change(&mut config, value));
            let (_, shown) = changed.last().unwrap_or_else(|| panic!("{name} takes no value"));
            assert!(read(&config).is_none_or(|now| now == *shown || *shown == "0"), "{name}");
            assert!(!change(&mut config, "nonsense") || name.ends_with("_users"), "{name}");
        }
    }

    #[test]
    fn times_are_in_seconds() {
        assert_eq!(parse_time("0"), Some(None));
        assert_eq!(parse_time("1.5").map(time), Some("1.5".to_owned()));
        for wrong in ["", "x", "-1", "1e400", "nan", "5s"] {
            assert_eq!(parse_time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_database_with_a_size_of_its_own_keeps_it() {
        let text = "[[database]]\nname = \"a\"\nurl = \"postgres://localhost/d\"\nmax_size = 3\n\
                    [[database]]\nname = \"b\"\nurl = \"postgres://localhost/d\"\n";
        let mut config = crate::read::from_text(std::path::Path::new("p"), text, &|_| None).unwrap();
        assert!(change_pools(&mut config, "max_size", |pool| pool.config.max_size = 9));
        let sizes: Vec<u32> = config.databases.iter().map(|database| database.pool.config.max_size).collect();
        assert_eq!((sizes, config.pool.config.max_size), (vec![3, 9], 9));
    }
}
