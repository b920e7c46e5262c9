//! The JSON views. Times are in milliseconds, counters count from the start; what is not known is null.

use std::{sync::Arc, time::Duration};

use driver::{BUCKET_BOUNDS_US, ClientInfo, DurationHistogram, ListenerSnapshot, PoolSnapshot, ServerInfo, Snapshot};
use pool::PoolConfig;
use protocol::PoolId;
use serde_json::{Map, Value, json};
use tuner::Tuner;

use super::tuned;

/// Bytes of JSON that a pool takes in the answer of [`pools`] at most, and values in it: who asks needs no room for more.
pub const POOL_BYTES: usize = 8 * 1024;
/// See [`POOL_BYTES`].
pub const POOL_VALUES: usize = 448;

/// `/api/pools`. Of each pool: what is suspicious about its database, and its tuner if it has one.
pub fn pools<'t>(
    snapshot: &Snapshot,
    (instance, uptime): (&str, Duration),
    about: impl Fn(PoolId) -> (Arc<[String]>, Option<&'t Tuner>),
) -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "instance": instance,
        "uptime_ms": ms(uptime),
        "bucket_bounds_ms": BUCKET_BOUNDS_US.map(|us| us as f64 / 1e3),
        "reactor": snapshot.reactor,
        "draining": snapshot.draining,
        "auth_failures": snapshot.auth_failures,
        "listeners": snapshot.listeners.iter().map(listener).collect::<Vec<_>>(),
        "pools": snapshot.pools.iter().map(|shown| pool(shown, &about(shown.id))).collect::<Vec<_>>(),
        "workers": snapshot.workers.iter().map(|worker| json!({
            "cpu_ms": ms(worker.cpu),
            "clients": worker.clients,
            "transactions": worker.transactions,
            "moves": worker.moves,
        })).collect::<Vec<_>>(),
    })
}

/// `/api/clients`.
pub fn clients(clients: &[ClientInfo]) -> Value {
    let client = |c: &ClientInfo| {
        json!({
            "id": c.id,
            "address": c.address,
            "listener": c.listener,
            "protocol": c.protocol,
            "database": c.database,
            "user": c.user,
            "state": c.state,
            "state_ms": ms(c.state_for),
            "connected_ms": ms(c.connected_for),
            "pool": c.pool.map(|pool| pool.0),
            "server": c.server,
            "pinned": c.pinned,
        })
    };
    json!({ "clients": clients.iter().map(client).collect::<Vec<_>>() })
}

/// `/api/servers`.
pub fn servers(servers: &[ServerInfo]) -> Value {
    let server = |s: &ServerInfo| {
        json!({
            "id": s.id,
            "protocol": s.protocol,
            "database": s.database,
            "user": s.user,
            "address": s.address,
            "state": s.state,
            "state_ms": ms(s.state_for),
            "age_ms": ms(s.age),
            "backend": s.backend,
            "client": s.client,
            "pinned": s.pinned,
            "worker": s.worker,
        })
    };
    json!({ "servers": servers.iter().map(server).collect::<Vec<_>>() })
}

fn listener(listener: &ListenerSnapshot) -> Value {
    json!({
        "name": listener.name,
        "protocol": listener.protocol,
        "clients": {
            "login": listener.login,
            "idle": listener.idle,
            "active": listener.active,
            "waiting": listener.waiting,
            "subscribed": listener.subscribed,
        },
        "soft_limit": listener.limits.0,
        "hard_limit": listener.limits.1,
        "accepted": listener.accepted,
        "logins": listener.logins,
        "rejections": counted(&listener.rejections),
        "evictions": counted(&listener.evictions),
        "unanswered": counted(&listener.unanswered),
        "eviction_loops": listener.eviction_loops,
    })
}

fn pool(pool: &PoolSnapshot, (suspicious, tuner): &(Arc<[String]>, Option<&Tuner>)) -> Value {
    json!({
        "id": pool.id.0,
        "protocol": pool.protocol,
        "database": pool.database,
        "user": pool.user,
        "address": pool.address,
        "clients": pool.clients,
        "waiters": pool.counts.waiters,
        "oldest_hold_ms": pool.oldest_hold.map(ms),
        "oldest_wait_ms": pool.oldest_wait.map(ms),
        "servers": {
            "connecting": pool.counts.connecting,
            "idle": pool.counts.idle,
            "in_use": pool.counts.in_use,
            "checking": pool.counts.checking,
            "closing": pool.counts.closing,
            "total": pool.counts.total,
        },
        "max_size": pool.config.max_size,
        "min_size": pool.config.min_size,
        "settings": settings(&pool.config),
        "created": pool.created,
        "closed": counted(&pool.closed),
        "checkout_failed": counted(&pool.checkout_failed),
        "pinned": counted(&pool.pinned),
        "suspicious": &**suspicious,
        "tuning": tuner.map(tuned::shown),
        "transactions": pool.transactions,
        "checkout": histograms(&pool.checkout),
        "connect": histograms(&pool.connect),
        "hold": histogram(&pool.hold),
        "unavailable_ms": pool.unavailable_for.map(ms),
        "last_error": pool.last_error.as_deref(),
        "paused": pool.paused,
        "drained": pool.drained,
    })
}

/// The rules of a pool that are in force, by the names that they have in the configuration; times in milliseconds, null is off or
/// unlimited.
fn settings(config: &PoolConfig) -> Value {
    let unlimited = |most: u32| (most > 0).then_some(most);
    json!({
        "max_size": unlimited(config.max_size),
        "min_size": config.min_size,
        "max_connecting": config.max_connecting,
        "max_waiters": unlimited(config.max_waiters),
        "max_wait_time": config.max_wait_time.map(ms),
        "unavailable_wait_time": config.unavailable_wait_time.map(ms),
        "max_idle_time": config.max_idle_time.map(ms),
        "max_life_time": config.max_life_time.map(ms),
        "check_after_idle": config.check_after_idle.map(ms),
        "connect_time": ms(config.connect_timeout),
    })
}

fn counted(counts: &[(&'static str, u64)]) -> Value {
    counts.iter().map(|(reason, count)| ((*reason).to_owned(), json!(count))).collect::<Map<_, _>>().into()
}

fn histograms(histograms: &[(&'static str, DurationHistogram)]) -> Value {
    histograms.iter().map(|(name, times)| ((*name).to_owned(), histogram(times))).collect::<Map<_, _>>().into()
}

/// Count, mean, for a few percentiles the bucket bound that they lie below, and all buckets, so that who asks twice can tell what happened
/// in between.
fn histogram(times: &DurationHistogram) -> Value {
    let count: u64 = times.buckets.iter().sum();
    let mean = (count > 0).then(|| times.sum_ns as f64 / count as f64 / 1e6);
    json!({
        "count": count,
        "mean_ms": mean,
        "p50_below_ms": below(times, count, 0.5),
        "p95_below_ms": below(times, count, 0.95),
        "p99_below_ms": below(times, count, 0.99),
        "buckets": times.buckets,
        "sum_ms": times.sum_ns as f64 / 1e6,
    })
}

fn below(times: &DurationHistogram, count: u64, quantile: f64) -> Option<f64> {
    let rank = ((count as f64 * quantile).ceil() as u64).max(1);
    let mut seen = 0;
    let bucket = times.buckets.iter().position(|in_bucket| {
        seen += in_bucket;
        seen >= rank
    })?;
    BUCKET_BOUNDS_US.get(bucket).map(|bound| *bound as f64 / 1e3)
}

fn ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_are_null_and_percentiles_are_bounds() {
        let mut times = DurationHistogram::default();
        assert_eq!(histogram(&times)["mean_ms"], Value::Null);
        assert_eq!(histogram(&times)["p99_below_ms"], Value::Null);
        times.buckets[0] = 99;
        times.buckets[4] = 1;
        times.sum_ns = 100_000_000;
        let shown = histogram(&times);
        assert_eq!(shown["mean_ms"], json!(1.0));
        assert_eq!(shown["p50_below_ms"], json!(0.05));
        assert_eq!(shown["p99_below_ms"], json!(0.05));
        *times.buckets.last_mut().unwrap() = 10;
        assert_eq!(histogram(&times)["p99_below_ms"], Value::Null);
    }

    fn values(value: &Value) -> usize {
        let within: usize = match value {
            Value::Array(values) => values.iter().map(self::values).sum(),
            Value::Object(values) => values.values().map(self::values).sum(),
            _ => 0,
        };
        within + 1
    }

    #[test]
    fn a_pool_with_everything_takes_no_more_room_than_is_left_for_it() {
        // Years of each, and more reasons than there are.
        let full = DurationHistogram { buckets: [999_999_999_999; BUCKET_BOUNDS_US.len() + 1], sum_ns: u64::MAX };
        let reasons = [
            "reason-01",
            "reason-02",
            "reason-03",
            "reason-04",
            "reason-05",
            "reason-06",
            "reason-07",
            "reason-08",
            "reason-09",
            "reason-10",
            "reason-11",
            "reason-12",
            "reason-13",
            "reason-14",
            "reason-15",
            "reason-16",
        ];
        let counts = reasons.map(|reason| (reason, 999_999_999_999)).to_vec();
        let name = "n".repeat(255);
        let shown = PoolSnapshot {
            address: name.clone(),
            created: u64::MAX,
            closed: counts.clone(),
            checkout_failed: counts.clone(),
            pinned: counts,
            transactions: u64::MAX,
            checkout: ["idle", "created", "queued"].map(|path| (path, full.clone())),
            connect: ["dns", "tcp", "tls", "auth", "ready"].map(|phase| (phase, full.clone())),
            hold: full,
            oldest_wait: Some(Duration::from_secs(999_999)),
            unavailable_for: Some(Duration::from_secs(999_999)),
            last_error: Some("e".repeat(255).into()),
            ..super::super::metrics::tests::pool(&name, &name)
        };
        let shown = pool(&shown, &(Arc::from([]), None));
        // A tuner and a few suspicious functions come besides.
        assert!(shown.to_string().len() + 1_400 <= POOL_BYTES, "{}", shown.to_string().len());
        assert!(values(&shown) + 60 <= POOL_VALUES, "{}", values(&shown));
    }

    #[test]
    fn a_pool_is_shown_with_all_its_parts() {
        let pool = PoolSnapshot { protocol: "redis", ..super::super::metrics::tests::pool("d", "u") };
        let snapshot = Snapshot { pools: vec![pool], ..Snapshot::default() };
        let shown = pools(&snapshot, ("i", Duration::ZERO), |_| {
            (Arc::from(["public.f (it sets parameters of the session)".to_owned()]), None)
        });
        assert_eq!(shown["pools"][0]["suspicious"].as_array().map(Vec::len), Some(1));
        assert_eq!(shown["pools"][0]["protocol"], json!("redis"));
        assert_eq!(shown["pools"][0]["servers"]["idle"], json!(2));
        assert_eq!(shown["pools"][0]["closed"]["idle"], json!(5));
        assert_eq!(shown["pools"][0]["last_error"], Value::Null);
        let settings = &shown["pools"][0]["settings"];
        assert_eq!((&settings["max_size"], &settings["max_waiters"]), (&json!(20), &Value::Null));
        assert_eq!((&settings["max_wait_time"], &settings["check_after_idle"]), (&json!(2000.0), &Value::Null));
        assert_eq!(shown["pools"][0]["tuning"], Value::Null);
    }
}
