//! A snapshot of the driver as the values that `admin-api` defines, and as their JSON. Times are in milliseconds,
//! counters count from the start; what is not known is null.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use admin_api::{
    Client, Counts, Listener, ListenerClients, Look, Pool, PoolServers, PoolSettings, Server, Summarized, Times,
    Tuning, Worker,
};
use driver::{
    BUCKET_BOUNDS_US, ClientInfo, DurationHistogram, ListenerSnapshot, PoolSnapshot, PoolTimes, ServerInfo, Snapshot,
};
use pool::PoolConfig;
use seam::PoolId;

use super::json_list::{JsonList, write};

/// Bytes of JSON that a pool takes at most in the answer of [`pools`], and values in it: the room that a reader needs.
pub const POOL_BYTES: usize = 9 * 1024 + 256;
/// See [`POOL_BYTES`].
pub const POOL_VALUES: usize = 480;

/// What a pool shows beside its snapshot: functions that change sessions of its database, and its tuner if it has one.
pub type PoolExtras = (Arc<[String]>, Option<Tuning>);

/// `/api/pools` of this process, in pieces.
pub fn pools<A: Fn(PoolId) -> PoolExtras>(
    mut snapshot: Snapshot,
    (instance, uptime): (&str, Duration),
    about: A,
) -> impl Iterator<Item = Vec<u8>> + use<A> {
    let pools = std::mem::take(&mut snapshot.pools);
    let around = serde_json::to_string(&process(snapshot, (instance, uptime))).expect("it has text keys");
    // In a text within it, the quotation marks would be escaped.
    let (begin, end) = around.split_once("\"pools\":[]").expect("it lists no pool");
    let write_pool = move |text: &mut Vec<u8>, shown: PoolSnapshot| {
        let about = about(shown.id);
        write(text, &pool(shown, about, summarized));
    };
    JsonList::new(format!("{begin}\"pools\":[").into_bytes(), pools, write_pool, format!("]{end}").into_bytes())
}

/// `/api/pools` as values, for the doctor.
pub fn look(mut snapshot: Snapshot, process_id: (&str, Duration), about: impl Fn(PoolId) -> PoolExtras) -> Look {
    let pools = std::mem::take(&mut snapshot.pools).into_iter();
    let pools = pools.map(|shown| {
        let about = about(shown.id);
        pool(shown, about, times)
    });
    Look { pools: pools.collect(), ..process(snapshot, process_id) }
}

/// `/api/clients`, in pieces.
pub fn clients(clients: Vec<ClientInfo>) -> impl Iterator<Item = Vec<u8>> {
    JsonList::alone("clients", clients, |text, shown| write(text, &client(shown)))
}

/// `/api/servers`, in pieces.
pub fn servers(servers: Vec<ServerInfo>) -> impl Iterator<Item = Vec<u8>> {
    JsonList::alone("servers", servers, |text, shown| write(text, &server(shown)))
}

/// All but the pools.
fn process(snapshot: Snapshot, (instance, uptime): (&str, Duration)) -> Look {
    let workers = snapshot.workers.iter().map(|worker| Worker {
        clients: worker.clients,
        cpu_ms: ms(worker.cpu),
        moves: worker.moves,
        transactions: worker.transactions,
    });
    Look {
        auth_failures: snapshot.auth_failures,
        bucket_bounds_ms: BUCKET_BOUNDS_US.map(|us| us as f64 / 1e3).to_vec(),
        draining: snapshot.draining,
        instance: instance.to_owned(),
        listeners: snapshot.listeners.iter().map(listener).collect(),
        reactor: snapshot.reactor.to_owned(),
        uptime_ms: ms(uptime),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        workers: workers.collect(),
        ..Look::default()
    }
}

fn listener(listener: &ListenerSnapshot) -> Listener {
    Listener {
        accepted: listener.accepted,
        accepts_failed: listener.accepts_failed,
        brief: None,
        clients: ListenerClients {
            active: listener.active,
            idle: listener.idle,
            login: listener.login,
            subscribed: listener.subscribed,
            waiting: listener.waiting,
        },
        eviction_loops: listener.eviction_loops,
        evictions: counted(&listener.evictions),
        hard_limit: listener.limits.1.into(),
        logins: listener.logins,
        name: listener.name.clone(),
        protocol: listener.protocol.to_owned(),
        rejections: counted(&listener.rejections),
        soft_limit: listener.limits.0.into(),
        unanswered: counted(&listener.unanswered),
    }
}

pub fn client(client: ClientInfo) -> Client {
    Client {
        address: client.address,
        connected_ms: ms(client.connected_for),
        database: client.database,
        id: client.id,
        listener: client.listener,
        pinned: client.pinned.map(str::to_owned),
        pool: client.pool.map(|pool| pool.0.into()),
        protocol: client.protocol.to_owned(),
        server: client.server.map(u64::from),
        state: client.state.to_owned(),
        state_ms: ms(client.state_for),
        user: client.user,
    }
}

fn server(server: ServerInfo) -> Server {
    Server {
        address: server.address,
        age_ms: ms(server.age),
        backend: server.backend,
        client: server.client,
        database: server.database,
        id: server.id.into(),
        pinned: server.pinned.map(str::to_owned),
        protocol: server.protocol.to_owned(),
        state: server.state.to_owned(),
        state_ms: ms(server.state_for),
        user: server.user,
        worker: server.worker.into(),
    }
}

/// `histogram` makes a pool's histograms.
fn pool<H>(pool: PoolSnapshot, (suspicious, tuning): PoolExtras, histogram: fn(&DurationHistogram) -> H) -> Pool<H> {
    let histograms = |named: &[(&'static str, DurationHistogram)]| -> BTreeMap<String, H> {
        named.iter().map(|(name, times)| ((*name).to_owned(), histogram(times))).collect()
    };
    Pool {
        address: pool.address,
        busy_ms: None,
        checkout: histograms(&pool.totals.checkout),
        checkout_failed: counted(&pool.totals.checkout_failed),
        clients: pool.clients,
        closed: counted(&pool.totals.closed),
        connect: histograms(&pool.totals.connect),
        created: pool.totals.created,
        database: pool.database,
        disabled: pool.disabled,
        drained: pool.drained,
        hold: histogram(&pool.totals.hold),
        id: pool.id.0.into(),
        keeps_servers: None,
        last_error: pool.last_error.as_deref().map(str::to_owned),
        limited_by: pool.limited_by.map(str::to_owned),
        max_size: pool.config.max_size.into(),
        min_size: pool.config.min_size.into(),
        oldest_hold_ms: pool.oldest_hold.map(ms),
        oldest_wait_ms: pool.oldest_wait.map(ms),
        paused: pool.paused,
        pinned: counted(&pool.pinned),
        pins_refused: counted(&pool.totals.pins_refused),
        protocol: pool.protocol.to_owned(),
        servers: PoolServers {
            checking: pool.counts.checking.into(),
            closing: pool.counts.closing.into(),
            connecting: pool.counts.connecting.into(),
            idle: pool.counts.idle.into(),
            in_use: pool.counts.in_use.into(),
            total: pool.counts.total.into(),
        },
        settings: settings(&pool.config, pool.timeouts),
        suspicious: suspicious.to_vec(),
        transactions: pool.totals.transactions,
        tuning,
        unavailable_ms: pool.unavailable_for.map(ms),
        user: pool.user,
        waiters: pool.counts.waiters.into(),
        work: None,
    }
}

fn settings(config: &PoolConfig, times: PoolTimes) -> PoolSettings {
    let unlimited = |max: u32| (max > 0).then_some(max.into());
    PoolSettings {
        check_after_idle: config.check_after_idle.map(ms),
        client_idle_time: times.client_idle.map(ms),
        connect_time: Some(ms(config.connect_timeout)),
        max_connecting: Some(config.max_connecting.into()),
        max_idle_time: config.max_idle_time.map(ms),
        max_life_time: config.max_life_time.map(ms),
        max_size: unlimited(config.max_size),
        max_wait_time: config.max_wait_time.map(ms),
        max_waiters: unlimited(config.max_waiters),
        min_size: Some(config.min_size.into()),
        query_time: times.query.map(ms),
        reserve_size: Some(config.effective_reserve().into()),
        transaction_idle_time: times.transaction_idle.map(ms),
        transaction_time: times.transaction.map(ms),
        unavailable_wait_time: config.unavailable_wait_time.map(ms),
    }
}

fn counted(counts: &[(&'static str, u64)]) -> Counts {
    counts.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect()
}

pub fn times(times: &DurationHistogram) -> Times {
    Times { buckets: times.buckets.to_vec(), sum_ms: times.sum_ns as f64 / 1e6 }
}

fn summarized(times: &DurationHistogram) -> Summarized {
    let count: u64 = times.buckets.iter().sum();
    Summarized {
        buckets: times.buckets.to_vec(),
        count,
        mean_ms: (count > 0).then(|| times.sum_ns as f64 / count as f64 / 1e6),
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
    use serde::Serialize;
    use serde_json::{Value, json};

    use super::*;
    use crate::admin::body::PIECE;

    fn tree(shown: &impl Serialize) -> Value {
        serde_json::to_value(shown).unwrap()
    }

    #[test]
    fn unknown_values_are_null_and_percentiles_are_bounds() {
        let mut times = DurationHistogram::default();
        assert_eq!(tree(&summarized(&times))["mean_ms"], Value::Null);
        assert_eq!(tree(&summarized(&times))["p99_below_ms"], Value::Null);
        times.buckets[0] = 99;
        times.buckets[4] = 1;
        times.sum_ns = 100_000_000;
        let shown = tree(&summarized(&times));
        assert_eq!(shown["mean_ms"], json!(1.0));
        assert_eq!(shown["p50_below_ms"], json!(0.05));
        assert_eq!(shown["p99_below_ms"], json!(0.05));
        *times.buckets.last_mut().unwrap() = 10;
        assert_eq!(tree(&summarized(&times))["p99_below_ms"], Value::Null);
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
        let counts: Vec<(&str, u64)> = (1..=16).map(|n| (&*format!("reason-{n:02}").leak(), 999_999_999_999)).collect();
        let name = "n".repeat(255);
        let shown = PoolSnapshot {
            address: name.clone(),
            totals: driver::PoolTotals {
                created: u64::MAX,
                closed: counts.clone(),
                checkout_failed: counts.clone(),
                pins_refused: counts.clone(),
                transactions: u64::MAX,
                checkout: ["idle", "created", "queued"].map(|path| (path, full.clone())),
                connect: ["dns", "tcp", "tls", "auth", "ready"].map(|phase| (phase, full.clone())),
                hold: full,
                ..driver::PoolTotals::default()
            },
            pinned: counts,
            oldest_hold: Some(Duration::from_secs(999_999)),
            oldest_wait: Some(Duration::from_secs(999_999)),
            unavailable_for: Some(Duration::from_secs(999_999)),
            last_error: Some("e".repeat(255).into()),
            timeouts: PoolTimes {
                client_idle: Some(Duration::from_secs(999_999)),
                query: Some(Duration::from_secs(999_999)),
                transaction_idle: Some(Duration::from_secs(999_999)),
                transaction: Some(Duration::from_secs(999_999)),
            },
            ..super::super::metrics::tests::pool(&name, &name)
        };
        let about = (Arc::from([]), None);
        let shown = pool(shown, about, summarized);
        let (shown, bytes) = (tree(&shown), serde_json::to_string(&shown).unwrap().len());
        // A tuner and a few suspicious functions come besides.
        assert!(bytes + 1_400 <= POOL_BYTES, "{bytes}");
        assert!(values(&shown) + 60 <= POOL_VALUES, "{}", values(&shown));
    }

    fn snapshot(count: u32) -> Snapshot {
        let pool =
            |n: u32| PoolSnapshot { id: PoolId(n), ..super::super::metrics::tests::pool("d", &format!("u\"{n}")) };
        Snapshot {
            listeners: vec![ListenerSnapshot::default(); 2],
            pools: (0..count).map(pool).collect(),
            workers: vec![driver::WorkerSnapshot::default(); 2],
            ..Snapshot::default()
        }
    }

    fn about(id: PoolId) -> PoolExtras {
        (Arc::from([]), (id.0 % 2 == 1).then(|| Tuning { state: "searching".to_owned(), ..Tuning::default() }))
    }

    fn pieces(count: u32) -> Vec<Vec<u8>> {
        pools(snapshot(count), ("i", Duration::from_millis(1_500)), about).collect()
    }

    #[test]
    fn the_doctor_of_this_process_gets_the_values_that_one_outside_reads() {
        let outside: Look = serde_json::from_slice(&pieces(3).concat()).unwrap();
        assert_eq!(tree(&look(snapshot(3), ("i", Duration::from_millis(1_500)), about)), tree(&outside));
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
            local: String::new(),
            tls: String::new(),
            about: seam::SessionDescription::default(),
            is_stale: false,
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
