//! The keys that several sections share, read into plain values: pool settings and listener limits.

use std::time::Duration;

use driver::{PoolTimeouts, TenantLimits};
use pool::PoolConfig;
use settings::{Problem, Section};

use super::{
    AutoSize, DEFAULT_HARD_LIMIT, Listener, Mode, ON_STATE_WORDS, PoolSettings, Preset, Reset, StateSettings,
    default_soft_limit,
};

/// Keys of `[pool]`, and of `[[database]]` where they override it.
pub const POOL_KEYS: &[&str] = &[
    "mode",
    "max_size",
    "reserve_size",
    "reserve_wait_time",
    "min_size",
    "max_connecting",
    "max_idle_time",
    "pool_idle_time",
    "max_life_time",
    "life_time_jitter",
    "max_wait_time",
    "unavailable_wait_time",
    "max_waiters",
    "check_after_idle",
    "connect_time",
    "on_session_state",
    "reset",
    "max_pinned",
    "max_replication_size",
    "max_prepared_statements",
    "client_idle_time",
    "query_time",
    "transaction_idle_time",
    "transaction_time",
    "login_retry_time",
    "round_robin",
    "cancel_wait_time",
    "fast_close",
    "connect_query",
    "trusted_functions",
    "application_name_add_host",
    "auto_min_size",
    "auto_max_size",
    "auto_start_size",
    "auto_window",
];

/// Keys that only mean something where the size is tuned.
pub const AUTO_KEYS: &[&str] = &["auto_min_size", "auto_max_size", "auto_start_size", "auto_window"];

/// Bounds of `auto_window`, the time for which a size is measured.
const AUTO_WINDOW_BOUNDS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(600));

/// Shorter, and pools would be made anew for each request.
const SHORTEST_POOL_IDLE_TIME: Duration = Duration::from_secs(1);

/// Most of anything that is counted: above it a number is a mistake.
pub const MAX_COUNT: u32 = 1_000_000;

/// Pool settings of a section over those it inherits.
pub fn pool_settings(section: &Section<'_>, inherited: &PoolSettings) -> PoolSettings {
    let base = &inherited.config;
    let size = section.number_or("max_size", 1..=MAX_COUNT, "auto");
    let auto = auto_size(section, size, inherited.auto);
    let mut config = PoolConfig {
        max_size: match size {
            Some(size) => size.unwrap_or(PoolConfig::default().max_size),
            None => base.max_size,
        },
        reserve_size: section.number("reserve_size", 0..=MAX_COUNT).unwrap_or(base.reserve_size),
        reserve_wait_time: section.duration("reserve_wait_time").unwrap_or(base.reserve_wait_time),
        min_size: section.number("min_size", 0..=MAX_COUNT).unwrap_or(base.min_size),
        max_connecting: section.number("max_connecting", 1..=MAX_COUNT).unwrap_or(base.max_connecting),
        max_idle_time: section.duration("max_idle_time").unwrap_or(base.max_idle_time),
        max_life_time: section.duration("max_life_time").unwrap_or(base.max_life_time),
        life_time_jitter: section.fraction("life_time_jitter").unwrap_or(base.life_time_jitter),
        max_wait_time: section.duration("max_wait_time").unwrap_or(base.max_wait_time),
        unavailable_wait_time: section.duration("unavailable_wait_time").unwrap_or(base.unavailable_wait_time),
        max_waiters: section.number("max_waiters", 0..=MAX_COUNT).unwrap_or(base.max_waiters),
        check_after_idle: section.duration("check_after_idle").unwrap_or(base.check_after_idle),
        connect_timeout: section.duration_on("connect_time").unwrap_or(base.connect_timeout),
        round_robin: section.truth("round_robin").unwrap_or(base.round_robin),
        ..base.clone()
    };
    login_retry_time(section, &mut config);
    if auto.enabled {
        config.max_size = auto.first_size(config.min_size);
    }
    let connect_query = section.string("connect_query").map(|sql| (!sql.trim().is_empty()).then(|| sql.into()));
    let trusted_functions = trusted_functions(section).unwrap_or_else(|| inherited.trusted_functions.clone());
    let add_host = section.truth("application_name_add_host");
    let settings = PoolSettings {
        mode: section.choice("mode", Mode::WORDS).unwrap_or(inherited.mode),
        config,
        auto,
        state: state_settings(section, &inherited.state),
        timeouts: own_timeouts(section, &inherited.timeouts),
        pool_idle_time: pool_idle_time(section).unwrap_or(inherited.pool_idle_time),
        forgets_configured: inherited.forgets_configured || section.has("pool_idle_time"),
        cancel_wait_time: section.duration_on("cancel_wait_time").unwrap_or(inherited.cancel_wait_time),
        fast_close: section.truth("fast_close").unwrap_or(inherited.fast_close),
        connect_query: connect_query.unwrap_or_else(|| inherited.connect_query.clone()),
        trusted_functions,
        max_replication_size: section
            .number("max_replication_size", 1..=MAX_COUNT)
            .unwrap_or(inherited.max_replication_size),
        application_name_add_host: add_host.unwrap_or(inherited.application_name_add_host),
    };
    check_pool(section, &settings);
    settings
}

/// The pause after a failed connect, in place of one that becomes longer with each failure.
fn login_retry_time(section: &Section<'_>, config: &mut PoolConfig) {
    match section.duration("login_retry_time") {
        None => {}
        Some(None) => {
            let usual = PoolConfig::default();
            (config.backoff_min, config.backoff_max) = (usual.backoff_min, usual.backoff_max);
        }
        Some(Some(Duration::ZERO)) => {
            section.error("login_retry_time", "`login_retry_time`: this must be a duration above 0, or \"off\"");
        }
        Some(Some(time)) => (config.backoff_min, config.backoff_max) = (time, time),
    }
}

/// After how long without use a pool goes that can be made again on demand.
fn pool_idle_time(section: &Section<'_>) -> Option<Option<Duration>> {
    let time = section.duration("pool_idle_time");
    if time.flatten().is_some_and(|time| time < SHORTEST_POOL_IDLE_TIME) {
        section.error("pool_idle_time", "`pool_idle_time`: this must be a duration of 1s at least, or \"off\"");
    }
    time
}

/// Whether the size is tuned, and how. A number in this section means that it is not.
fn auto_size(section: &Section<'_>, size: Option<Option<u32>>, inherited: AutoSize) -> AutoSize {
    let window = section.duration_on("auto_window");
    if window.is_some_and(|window| window < AUTO_WINDOW_BOUNDS.0 || window > AUTO_WINDOW_BOUNDS.1) {
        section.error("auto_window", "`auto_window`: this must be a duration from 200ms to 10m");
    }
    let auto = AutoSize {
        enabled: size.map_or(inherited.enabled, |size| size.is_none()),
        min: section.number("auto_min_size", 1..=MAX_COUNT).unwrap_or(inherited.min),
        max: section.number("auto_max_size", 1..=MAX_COUNT).or(inherited.max),
        start: section.number("auto_start_size", 1..=MAX_COUNT).or(inherited.start),
        window: window.unwrap_or(inherited.window),
    };
    let most = auto.max.unwrap_or(AutoSize::DEFAULT_MAX_SIZE);
    if auto.min > most {
        let key = if section.has("auto_min_size") { "auto_min_size" } else { "auto_max_size" };
        section.error(key, format!("auto_min_size {} is above auto_max_size {most}", auto.min));
    } else if let Some(start) = auto.start.filter(|start| *start < auto.min || *start > most) {
        let own = ["auto_start_size", "auto_min_size", "auto_max_size"].into_iter().find(|key| section.has(key));
        let bounds = format!("auto_min_size {} to auto_max_size {most}", auto.min);
        section.error(own.unwrap_or_default(), format!("auto_start_size {start} is outside {bounds}"));
    }
    for key in AUTO_KEYS.iter().filter(|key| size.is_some_and(|size| size.is_some()) && section.has(key)) {
        section.error(key, format!("`{key}` is for max_size = \"auto\", and this max_size is a number"));
    }
    auto
}

/// Functions that are taken to be harmless: `schema.name`, `schema.*` or `extension:name`.
fn trusted_functions(section: &Section<'_>) -> Option<std::sync::Arc<[String]>> {
    let trusted = section.texts("trusted_functions")?;
    for entry in &trusted {
        let known = entry.strip_prefix("extension:").is_some_and(|name| !name.is_empty())
            || entry.split_once('.').is_some_and(|(schema, name)| !schema.is_empty() && !name.is_empty());
        if !known {
            let message = format!("\"{entry}\" is none of \"schema.function\", \"schema.*\" and \"extension:name\"");
            section.error("trusted_functions", message);
        }
    }
    Some(trusted.into())
}

fn state_settings(section: &Section<'_>, inherited: &StateSettings) -> StateSettings {
    StateSettings {
        on_session_state: section.choice("on_session_state", ON_STATE_WORDS).unwrap_or(inherited.on_session_state),
        reset: section.choice("reset", Reset::WORDS).unwrap_or(inherited.reset),
        max_pinned: section.number("max_pinned", 0..=MAX_COUNT).or(inherited.max_pinned),
        max_prepared_statements: section
            .number("max_prepared_statements", 1..=MAX_COUNT)
            .or(inherited.max_prepared_statements),
    }
}

/// Time-outs of clients in a section that is no listener's, over those it inherits.
pub fn own_timeouts(section: &Section<'_>, inherited: &PoolTimeouts) -> PoolTimeouts {
    PoolTimeouts {
        client_idle: section.duration("client_idle_time").or(inherited.client_idle),
        query: section.duration("query_time").or(inherited.query),
        transaction_idle: section.duration("transaction_idle_time").or(inherited.transaction_idle),
        transaction: section.duration("transaction_time").or(inherited.transaction),
    }
}

/// Keys that bound how many servers a pool has.
const SIZE_KEYS: &[&str] = &["max_size", "min_size", "auto_min_size", "auto_max_size", "auto_start_size"];

fn check_pool(section: &Section<'_>, settings: &PoolSettings) {
    let config = &settings.config;
    if config.min_size > config.max_size && !SIZE_KEYS.iter().any(|key| section.has(key)) {
        // That is an error of the section from which both are inherited.
        return;
    }
    let reserve_keys = ["reserve_size", "max_size", "reserve_wait_time"];
    if settings.auto.enabled && config.effective_reserve() > 0 && reserve_keys.iter().any(|key| section.has(key)) {
        let key = if section.has("reserve_size") { "reserve_size" } else { "max_size" };
        let text = format!("reserve_size {} is for a max_size that is a number", config.reserve_size);
        section.report(key, Problem::error(text).hint("write reserve_size = 0 here: the size is tuned"));
    }
    if settings.auto.enabled && config.min_size > config.max_size {
        let own = ["min_size", "auto_max_size"].into_iter().find(|key| section.has(key));
        let text =
            format!("min_size {} is above {}", config.min_size, settings.auto.describe_max_size("auto_max_size"));
        let hint = format!("raise auto_max_size to {} at least, or lower min_size", config.min_size);
        section.report(own.unwrap_or("max_size"), Problem::error(text).hint(hint));
    } else if config.min_size > config.max_size {
        let key = if section.has("min_size") { "min_size" } else { "max_size" };
        section.error(key, format!("min_size {} is above max_size {}", config.min_size, config.max_size));
    } else if let Err(error) = config.validate() {
        section.error("", error.to_string());
    }
}

/// How many clients a database or a user may have, if its section says so.
pub fn tenant_limits(section: &Section<'_>) -> Option<TenantLimits> {
    let hard = section.number("hard_limit", 1..=MAX_COUNT);
    let soft = section.number("soft_limit", 1..=MAX_COUNT);
    let soft_limit = soft.or(hard.map(default_soft_limit))?;
    let hard_limit = hard.unwrap_or(u32::MAX);
    if soft_limit > hard_limit {
        let problem = Problem::error(format!("soft_limit {soft_limit} is above hard_limit {hard_limit}"));
        section.report("soft_limit", problem.hint(format!("write {hard_limit} or less, or raise hard_limit")));
    }
    Some(TenantLimits { soft_limit, hard_limit })
}

/// Limits and time-outs of a listener's section, over the defaults that `listener` holds.
pub fn listener_limits(section: &Section<'_>, listener: &mut Listener) {
    let hard = section.number("hard_limit", 1..=MAX_COUNT).unwrap_or(DEFAULT_HARD_LIMIT);
    let soft = section.number("soft_limit", 1..=MAX_COUNT).unwrap_or(default_soft_limit(hard));
    if soft > hard {
        section.error("soft_limit", format!("soft_limit {soft} is above hard_limit {hard}"));
    }
    listener.gate.hard_limit = hard;
    listener.gate.soft_limit = soft;
    if let Some(time) = section.duration_on("evict_min_idle") {
        listener.gate.evict_min_idle = time;
    }
    let times = &mut listener.timeouts;
    if let Some(preset) = section.choice("preset", Preset::WORDS) {
        times.client_idle = Some(preset.client_idle_time());
    }
    times.newcomer_wait = section.duration("newcomer_wait_time").unwrap_or(times.newcomer_wait);
    times.login = section.duration("login_time").unwrap_or(times.login);
    times.client_idle = section.duration("client_idle_time").unwrap_or(times.client_idle);
    times.query = section.duration("query_time").unwrap_or(times.query);
    times.transaction_idle = section.duration("transaction_idle_time").unwrap_or(times.transaction_idle);
    times.transaction = section.duration("transaction_time").unwrap_or(times.transaction);
}
