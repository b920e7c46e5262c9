//! A pool of pools: an application keeps a pool of objects, each with connections of its own. Seen from here: one
//! origin with many connections that came in batches of one size, of which hardly any works.

use std::collections::BTreeMap;

use admin_api::Pooler;

use super::{Verdict, format_percent};
use crate::{
    finding::{Symptom, Undecided},
    pooler::PoolerWindow,
    postgres::PostgresWindow,
};

/// Connections of one origin and user, at least.
const MIN_ORIGIN_CONNECTIONS: usize = 60;
/// At most this share of them works at a time.
const MAX_WORKING_SHARE: f64 = 0.1;
/// Connections that come within this time of each other are one batch.
const BATCH_INTERVAL_MS: f64 = 250.0;
/// PgBouncer tells the time of a connection in whole seconds: connections of two consecutive seconds may have come
/// together.
const CLOCK_STEP_MS: f64 = 1_000.0;
/// Batches, at least.
const MIN_BATCHES: usize = 5;
/// Connections of each batch, at least.
const MIN_BATCH_CONNECTIONS: usize = 3;

/// A connection, as it is seen from outside.
struct Connection<'c> {
    host: &'c str,
    user: &'c str,
    database: &'c str,
    works: bool,
    age_ms: f64,
}

pub(super) fn examine_pooler(window: &PoolerWindow) -> Verdict {
    let clients = window.clients.iter().filter(|client| client.address != "unix");
    let connections = clients.map(|client| Connection {
        host: client.address.rsplit_once(':').map_or(client.address.as_str(), |(host, _)| host),
        user: &client.user,
        database: &client.database,
        works: client.state != "idle",
        age_ms: client.connected_ms,
    });
    match window.last().map(|look| look.pooler) {
        Some(Pooler::PgBouncer) => examine(connections, BATCH_INTERVAL_MS + CLOCK_STEP_MS, "PgBouncer"),
        _ => examine(connections, BATCH_INTERVAL_MS, "Poolhouse"),
    }
}

pub(super) fn examine_postgres(window: &PostgresWindow) -> Verdict {
    let Some(last) = window.series().last() else { return Verdict::Absent };
    let connections = last.backends.iter().filter(|backend| !backend.address.is_empty()).map(|backend| Connection {
        host: &backend.address,
        user: &backend.user,
        database: &backend.database,
        works: backend.works() || backend.pauses(),
        age_ms: backend.age_ms,
    });
    examine(connections, BATCH_INTERVAL_MS, "A pooler in front")
}

/// `absorber`: what keeps these connections from the database.
fn examine<'c>(connections: impl Iterator<Item = Connection<'c>>, batch_ms: f64, absorber: &str) -> Verdict {
    let mut origins: BTreeMap<(&str, &str, &str), Vec<Connection<'c>>> = BTreeMap::new();
    for one in connections {
        origins.entry((one.host, one.user, one.database)).or_default().push(one);
    }
    let Some(((host, user, database), own)) = origins.into_iter().max_by_key(|(_, own)| own.len()) else {
        return Verdict::Absent;
    };
    let working = own.iter().filter(|connection| connection.works).count();
    let working_share = working as f64 / own.len() as f64;
    let mut ages: Vec<f64> = own.iter().map(|connection| connection.age_ms).collect();
    ages.sort_by(f64::total_cmp);
    let batches = ages.chunk_by(|a, b| b - a <= batch_ms).filter(|batch| batch.len() >= MIN_BATCH_CONNECTIONS);
    let sizes: Vec<usize> = batches.map(<[f64]>::len).collect();
    let in_batches: usize = sizes.iter().sum();
    if own.len() < MIN_ORIGIN_CONNECTIONS
        || working_share > MAX_WORKING_SHARE
        || sizes.len() < MIN_BATCHES
        || in_batches * 2 < own.len()
    {
        return Verdict::Absent;
    }
    Undecided::new([Symptom::PoolOfPools], format!("{user} of {database} from {host}"))
        .seen(format!(
            "{} connections from one origin, of which {working} work ({})",
            own.len(),
            format_percent(working_share)
        ))
        .seen(format!(
            "{in_batches} of them came in {} batches of {} to {}",
            sizes.len(),
            sizes.iter().min().unwrap_or(&0),
            sizes.iter().max().unwrap_or(&0)
        ))
        .needs(format!(
            "whether that is one process, or several behind one address. One process with many small pools should \
             share \
             one driver, with its one pool; most drivers are made for that. {absorber} absorbs the connections \
             meanwhile."
        ))
        .into()
}
