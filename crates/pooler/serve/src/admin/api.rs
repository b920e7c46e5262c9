//! The JSON views. Times are in milliseconds, counters count from the start; what is not known is null.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use driver::{
    BUCKET_BOUNDS_US, ClientInfo, DurationHistogram, ListenerSnapshot, PoolSnapshot, PoolTimes, ServerInfo, Snapshot,
};
use pool::PoolConfig;
use seam::PoolId;
use serde::Serialize;
use serde_json::Value;

use super::listed::{Listed, write};

/// Bytes of JSON that a pool takes in the answer of [`pools`] at most, and values in it: who asks needs no room for
/// more.
pub const POOL_BYTES: usize = 9 * 1024 + 256;
/// See [`POOL_BYTES`].
pub const POOL_VALUES: usize = 480;

/// What is told of a pool beside its snapshot: what is suspicious about its database, and its tuner if it has one.
pub type About = (Arc<[String]>, Option<Value>);

/// `/api/pools` of this process, in pieces.
pub fn pools<A: Fn(PoolId) -> About>(
    snapshot: Snapshot,
    (instance, uptime): (&str, Duration),
    about: A,
) -> impl Iterator<Item = Vec<u8>> + use<A> {
    let mut begin = text(&Begin {
        auth_failures: snapshot.auth_failures,
        bucket_bounds_ms: BUCKET_BOUNDS_US.map(|us| us as f64 / 1e3),
        draining: snapshot.draining,
        instance,
        listeners: snapshot.listeners.iter().map(listener).collect(),
    });
    // Of its three parts the outer two are objects of their own, opened and closed here.
    begin.pop();
    begin.extend_from_slice(b",\"pools\":[");
    let workers = snapshot.workers.iter().map(|worker| Worker {
        clients: worker.clients,
        cpu_ms: ms(worker.cpu),
        moves: worker.moves,
        transactions: worker.transactions,
    });
    let behind = text(&End {
        reactor: snapshot.reactor,
        uptime_ms: ms(uptime),
        version: env!("CARGO_PKG_VERSION"),
        workers: workers.collect(),
    });
    let end = [&b"],"[..], &behind[1..]].concat();
    let write_pool = move |text: &mut Vec<u8>, shown: &PoolSnapshot| write(text, &pool(shown, &about(shown.id)));
    Listed::new(begin, snapshot.pools, write_pool, end)
}

/// `/api/clients`, in pieces.
pub fn clients(clients: Vec<ClientInfo>) -> impl Iterator<Item = Vec<u8>> {
    Listed::alone("clients", clients, |text, client| write(text, &self::client(client)))
}

/// `/api/servers`, in pieces.
pub fn servers(servers: Vec<ServerInfo>) -> impl Iterator<Item = Vec<u8>> {
    Listed::alone("servers", servers, |text, server| write(text, &self::server(server)))
}

// ---- writing ----

fn text(shown: &impl Serialize) -> Vec<u8> {
    let mut text = Vec::new();
    write(&mut text, shown);
    text
}

// ---- what is told, by the names that it has there, in the order of the alphabet ----

type Counts = BTreeMap<&'static str, u64>;

#[derive(Serialize)]
struct Begin<'s> {
    auth_failures: u64,
    bucket_bounds_ms: [f64; BUCKET_BOUNDS_US.len()],
    draining: bool,
    instance: &'s str,
    listeners: Vec<Listener<'s>>,
}

#[derive(Serialize)]
struct End<'s> {
    reactor: &'s str,
    uptime_ms: f64,
    version: &'static str,
    workers: Vec<Worker>,
}

#[derive(Serialize)]
struct Worker {
    clients: u64,
    cpu_ms: f64,
    moves: u64,
    transactions: u64,
}

#[derive(Serialize)]
struct Listener<'s> {
    accepted: u64,
    accepts_failed: u64,
    clients: ListenerClients,
    eviction_loops: u64,
    evictions: Counts,
    hard_limit: u32,
    logins: u64,
    name: &'s str,
    protocol: &'static str,
    rejections: Counts,
    soft_limit: u32,
    unanswered: Counts,
}

#[derive(Serialize)]
struct ListenerClients {
    active: u64,
    idle: u64,
    login: u64,
    subscribed: u64,
    waiting: u64,
}

fn listener(listener: &ListenerSnapshot) -> Listener<'_> {
    Listener {
        accepted: listener.accepted,
        accepts_failed: listener.accepts_failed,
        clients: ListenerClients {
            active: listener.active,
            idle: listener.idle,
            login: listener.login,
            subscribed: listener.subscribed,
            waiting: listener.waiting,
        },
        eviction_loops: listener.eviction_loops,
        evictions: counted(&listener.evictions),
        hard_limit: listener.limits.1,
        logins: listener.logins,
        name: &listener.name,
        protocol: listener.protocol,
        rejections: counted(&listener.rejections),
        soft_limit: listener.limits.0,
        unanswered: counted(&listener.unanswered),
    }
}

#[derive(Serialize)]
struct Client<'c> {
    address: &'c str,
    connected_ms: f64,
    database: &'c str,
    id: u64,
    listener: &'c str,
    pinned: Option<&'static str>,
    pool: Option<u32>,
    protocol: &'static str,
    server: Option<u32>,
    state: &'static str,
    state_ms: f64,
    user: &'c str,
}

fn client(client: &ClientInfo) -> Client<'_> {
    Client {
        address: &client.address,
        connected_ms: ms(client.connected_for),
        database: &client.database,
        id: client.id,
        listener: &client.listener,
        pinned: client.pinned,
        pool: client.pool.map(|pool| pool.0),
        protocol: client.protocol,
        server: client.server,
        state: client.state,
        state_ms: ms(client.state_for),
        user: &client.user,
    }
}

#[derive(Serialize)]
struct Server<'s> {
    address: &'s str,
    age_ms: f64,
    backend: Option<u32>,
    client: Option<u64>,
    database: &'s str,
    id: u32,
    pinned: Option<&'static str>,
    protocol: &'static str,
    state: &'static str,
    state_ms: f64,
    user: &'s str,
    worker: u8,
}

fn server(server: &ServerInfo) -> Server<'_> {
    Server {
        address: &server.address,
        age_ms: ms(server.age),
        backend: server.backend,
        client: server.client,
        database: &server.database,
        id: server.id,
        pinned: server.pinned,
        protocol: server.protocol,
        state: server.state,
        state_ms: ms(server.state_for),
        user: &server.user,
        worker: server.worker,
    }
}

#[derive(Serialize)]
struct Pool<'p> {
    address: &'p str,
    checkout: BTreeMap<&'static str, Histogram<'p>>,
    checkout_failed: Counts,
    clients: u64,
    closed: Counts,
    connect: BTreeMap<&'static str, Histogram<'p>>,
    created: u64,
    database: &'p str,
    drained: bool,
    hold: Histogram<'p>,
    id: u32,
    last_error: Option<&'p str>,
    limited_by: Option<&'static str>,
    max_size: u32,
    min_size: u32,
    oldest_hold_ms: Option<f64>,
    oldest_wait_ms: Option<f64>,
    paused: bool,
    pinned: Counts,
    pins_refused: Counts,
    protocol: &'static str,
    servers: Servers,
    settings: Settings,
    suspicious: &'p [String],
    transactions: u64,
    tuning: Option<&'p Value>,
    unavailable_ms: Option<f64>,
    user: &'p str,
    waiters: u32,
}

#[derive(Serialize)]
struct Servers {
    checking: u32,
    closing: u32,
    connecting: u32,
    idle: u32,
    in_use: u32,
    total: u32,
}

fn pool<'p>(pool: &'p PoolSnapshot, (suspicious, tuning): &'p About) -> Pool<'p> {
    Pool {
        address: &pool.address,
        checkout: histograms(&pool.checkout),
        checkout_failed: counted(&pool.checkout_failed),
        clients: pool.clients,
        closed: counted(&pool.closed),
        connect: histograms(&pool.connect),
        created: pool.created,
        database: &pool.database,
        drained: pool.drained,
        hold: histogram(&pool.hold),
        id: pool.id.0,
        last_error: pool.last_error.as_deref(),
        limited_by: pool.limited_by,
        max_size: pool.config.max_size,
        min_size: pool.config.min_size,
        oldest_hold_ms: pool.oldest_hold.map(ms),
        oldest_wait_ms: pool.oldest_wait.map(ms),
        paused: pool.paused,
        pinned: counted(&pool.pinned),
        pins_refused: counted(&pool.pins_refused),
        protocol: pool.protocol,
        servers: Servers {
            checking: pool.counts.checking,
            closing: pool.counts.closing,
            connecting: pool.counts.connecting,
            idle: pool.counts.idle,
            in_use: pool.counts.in_use,
            total: pool.counts.total,
        },
        settings: settings(&pool.config, pool.timeouts),
        suspicious,
        transactions: pool.transactions,
        tuning: tuning.as_ref(),
        unavailable_ms: pool.unavailable_for.map(ms),
        user: &pool.user,
        waiters: pool.counts.waiters,
    }
}

/// The rules of a pool that are in force, by the names that they have in the configuration; times in milliseconds, null
/// is off or unlimited.
#[derive(Serialize)]
struct Settings {
    check_after_idle: Option<f64>,
    client_idle_time: Option<f64>,
    connect_time: f64,
    max_connecting: u32,
    max_idle_time: Option<f64>,
    max_life_time: Option<f64>,
    max_size: Option<u32>,
    max_wait_time: Option<f64>,
    max_waiters: Option<u32>,
    min_size: u32,
    query_time: Option<f64>,
    transaction_idle_time: Option<f64>,
    unavailable_wait_time: Option<f64>,
}

fn settings(config: &PoolConfig, times: PoolTimes) -> Settings {
    let unlimited = |most: u32| (most > 0).then_some(most);
    Settings {
        check_after_idle: config.check_after_idle.map(ms),
        client_idle_time: times.client_idle.map(ms),
        connect_time: ms(config.connect_timeout),
        max_connecting: config.max_connecting,
        max_idle_time: config.max_idle_time.map(ms),
        max_life_time: config.max_life_time.map(ms),
        max_size: unlimited(config.max_size),
        max_wait_time: config.max_wait_time.map(ms),
        max_waiters: unlimited(config.max_waiters),
        min_size: config.min_size,
        query_time: times.query.map(ms),
        transaction_idle_time: times.transaction_idle.map(ms),
        unavailable_wait_time: config.unavailable_wait_time.map(ms),
    }
}

fn counted(counts: &[(&'static str, u64)]) -> Counts {
    counts.iter().copied().collect()
}

/// Count, mean, for a few percentiles the bucket bound that they lie below, and all buckets, so that who asks twice can
/// tell what happened in between.
#[derive(Serialize)]
struct Histogram<'h> {
    buckets: &'h [u64],
    count: u64,
    mean_ms: Option<f64>,
    p50_below_ms: Option<f64>,
    p95_below_ms: Option<f64>,
    p99_below_ms: Option<f64>,
    sum_ms: f64,
}

fn histograms<'h>(histograms: &'h [(&'static str, DurationHistogram)]) -> BTreeMap<&'static str, Histogram<'h>> {
    histograms.iter().map(|(name, times)| (*name, histogram(times))).collect()
}

fn histogram(times: &DurationHistogram) -> Histogram<'_> {
    let count: u64 = times.buckets.iter().sum();
    let mean = (count > 0).then(|| times.sum_ns as f64 / count as f64 / 1e6);
    Histogram {
        buckets: &times.buckets,
        count,
        mean_ms: mean,
        p50_below_ms: below(times, count, 0.5),
        p95_below_ms: below(times, count, 0.95),
        p99_below_ms: below(times, count, 0.99),
        sum_ms: times.sum_ns as f64 / 1e6,
    }
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
    use serde_json::json;

    use super::*;
    use crate::admin::body::PIECE;

    fn tree(shown: &impl Serialize) -> Value {
        serde_json::to_value(shown).unwrap()
    }

    #[test]
    fn unknown_values_are_null_and_percentiles_are_bounds() {
        let mut times = DurationHistogram::default();
        assert_eq!(tree(&histogram(&times))["mean_ms"], Value::Null);
        assert_eq!(tree(&histogram(&times))["p99_below_ms"], Value::Null);
        times.buckets[0] = 99;
        times.buckets[4] = 1;
        times.sum_ns = 100_000_000;
        let shown = tree(&histogram(&times));
        assert_eq!(shown["mean_ms"], json!(1.0));
        assert_eq!(shown["p50_below_ms"], json!(0.05));
        assert_eq!(shown["p99_below_ms"], json!(0.05));
        *times.buckets.last_mut().unwrap() = 10;
        assert_eq!(tree(&histogram(&times))["p99_below_ms"], Value::Null);
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
            pinned: counts.clone(),
            pins_refused: counts,
            transactions: u64::MAX,
            checkout: ["idle", "created", "queued"].map(|path| (path, full.clone())),
            connect: ["dns", "tcp", "tls", "auth", "ready"].map(|phase| (phase, full.clone())),
            hold: full,
            oldest_hold: Some(Duration::from_secs(999_999)),
            oldest_wait: Some(Duration::from_secs(999_999)),
            unavailable_for: Some(Duration::from_secs(999_999)),
            last_error: Some("e".repeat(255).into()),
            timeouts: PoolTimes {
                client_idle: Some(Duration::from_secs(999_999)),
                query: Some(Duration::from_secs(999_999)),
                transaction_idle: Some(Duration::from_secs(999_999)),
            },
            ..super::super::metrics::tests::pool(&name, &name)
        };
        let about = (Arc::from([]), None);
        let (shown, bytes) = (tree(&pool(&shown, &about)), text(&pool(&shown, &about)).len());
        // A tuner and a few suspicious functions come besides.
        assert!(bytes + 1_400 <= POOL_BYTES, "{bytes}");
        assert!(values(&shown) + 60 <= POOL_VALUES, "{}", values(&shown));
    }

    fn pieces(count: u32) -> Vec<Vec<u8>> {
        let pool =
            |n: u32| PoolSnapshot { id: PoolId(n), ..super::super::metrics::tests::pool("d", &format!("u\"{n}")) };
        let snapshot = Snapshot {
            listeners: vec![ListenerSnapshot::default(); 2],
            pools: (0..count).map(pool).collect(),
            workers: vec![driver::WorkerSnapshot::default(); 2],
            ..Snapshot::default()
        };
        let about = |id: PoolId| (Arc::from([]), (id.0 % 2 == 1).then(|| json!({ "state": "searching", "min": 1 })));
        pools(snapshot, ("i", Duration::from_millis(1_500)), about).collect()
    }

    #[test]
    fn pieces_are_together_what_a_tree_of_all_values_would_be() {
        for count in [0, 1, 2, 500] {
            let text = String::from_utf8(pieces(count).concat()).unwrap();
            let tree: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(tree.to_string(), text, "the order of the alphabet, and no name twice");
            let ids: Vec<_> =
                tree["pools"].as_array().unwrap().iter().map(|pool| pool["id"].as_u64().unwrap()).collect();
            assert_eq!(ids, (0..u64::from(count)).collect::<Vec<_>>());
            assert_eq!((&tree["uptime_ms"], &tree["instance"]), (&json!(1500.0), &json!("i")));
            assert_eq!(tree["workers"].as_array().map(Vec::len), Some(2));
        }
    }

    #[test]
    fn however_many_pools_there_are_a_piece_is_small_and_none_is_empty() {
        let pieces = pieces(500);
        assert!(pieces.len() > 10, "{}", pieces.len());
        assert!(pieces.iter().all(|piece| (1..PIECE + POOL_BYTES).contains(&piece.len())));
    }

    #[test]
    fn lists_of_clients_and_servers_are_json_with_one_entry_none_and_several() {
        let server = ServerInfo {
            id: 7,
            protocol: "redis",
            database: "d\"".to_owned(),
            user: String::new(),
            address: "a:1".to_owned(),
            state: "idle",
            state_for: Duration::from_millis(3),
            age: Duration::from_secs(1),
            backend: None,
            client: Some(9),
            pinned: None,
            worker: 1,
        };
        for count in 0..3 {
            let text = String::from_utf8(servers(vec![server.clone(); count]).collect::<Vec<_>>().concat()).unwrap();
            let tree: Value = serde_json::from_str(&text).unwrap();
            assert_eq!((tree.to_string(), tree["servers"].as_array().map(Vec::len)), (text, Some(count)));
            assert!(tree["servers"].as_array().unwrap().iter().all(|one| one["database"] == json!("d\"")));
        }
        assert_eq!(clients(Vec::new()).collect::<Vec<_>>().concat(), b"{\"clients\":[]}");
    }

    #[test]
    fn a_pool_is_shown_with_all_its_parts() {
        let pool = PoolSnapshot { protocol: "redis", ..super::super::metrics::tests::pool("d", "u") };
        let snapshot = Snapshot { pools: vec![pool], ..Snapshot::default() };
        let pieces = pools(snapshot, ("i", Duration::ZERO), |_| {
            (Arc::from(["public.f (it sets parameters of the session)".to_owned()]), None)
        });
        let shown: Value = serde_json::from_slice(&pieces.collect::<Vec<_>>().concat()).unwrap();
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
