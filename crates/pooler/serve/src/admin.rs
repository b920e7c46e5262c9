//! The admin address: metrics, health and JSON views of a running driver over HTTP, and [`orders`], all behind a
//! [`guard`]. Queries of the driver block, so they run on threads of their own, few at a time.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use admin_api::NewExaminer;
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{
        HeaderMap, HeaderValue, Method, StatusCode, Uri,
        header::{CONTENT_ENCODING, CONTENT_TYPE, VARY, WWW_AUTHENTICATE},
    },
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::get,
};
use driver::{ClientFilter, PoolState};
use seam::PoolId;
use serde_json::Value;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::MissedTickBehavior,
};

use self::{
    body::Pieces,
    findings::{Findings, Sample},
    guard::Denied,
    gzip::Packed,
    history::History,
    metrics::{Metrics, Process},
};
use crate::{config::Config, peers::Peers};

mod api;
mod body;
pub mod connections;
mod ending;
mod findings;
mod guard;
mod gzip;
mod history;
mod json_list;
mod metrics;
mod orders;
mod page;
mod tuned;

pub use api::{POOL_BYTES, POOL_VALUES};
pub use ending::EndingOrder;
pub use metrics::ProtocolMemory;
pub use orders::{Control, DrainOrder};

/// Queries of the driver at a time; further requests are answered with 503.
const MAX_CONCURRENT_QUERIES: usize = 4;
/// Streamed answers at a time; further requests are answered with 503. Each keeps a snapshot of all pools until the
/// client has read it.
const MAX_STREAMED_ANSWERS: usize = 8;

/// Entries of a list, if the request names no limit.
const DEFAULT_LIMIT: usize = 1_000;
/// The largest limit that a request may name.
pub const MAX_LIMIT: usize = 100_000;

/// What the handlers of the admin address share.
#[derive(Clone)]
pub struct Admin(Arc<Inner>);

pub struct Inner {
    handle: driver::Handle,
    control: Control,
    dropped_log_lines: Box<dyn Fn() -> u64 + Send + Sync>,
    held: Box<dyn Fn() -> ProtocolMemory + Send + Sync>,
    /// A random id, by which clients notice that another process answers.
    instance: String,
    began: Instant,
    draining: AtomicBool,
    queries: Semaphore,
    streamed_answers: Arc<Semaphore>,
    findings: Findings,
    history: History,
}

impl Inner {
    /// The configuration in force. A reload may replace it between two calls.
    fn config(&self) -> Arc<Config> {
        self.control.reloader.in_force()
    }

    /// `/api/pools`, in pieces.
    fn pools_json(&self) -> impl Iterator<Item = Vec<u8>> + Send + Unpin + use<> {
        api::pools(self.handle.snapshot(), (&self.instance, self.began.elapsed()), self.extras_of_pools())
    }

    /// What `/api/pools` shows of a pool beside its snapshot: suspicious functions and its tuner.
    fn extras_of_pools(&self) -> impl Fn(PoolId) -> api::PoolExtras + Send + Unpin + use<> {
        let (reloader, tuners) = (Arc::clone(&self.control.reloader), self.control.tuning.tuners());
        move |id| (reloader.suspicious(id), tuners.get(&id).map(tuned::shown))
    }

    /// `/metrics`, in pieces.
    fn metrics(&self) -> Metrics {
        let reloader = &self.control.reloader;
        let snapshot = self.handle.snapshot();
        let suspicious = |id| (id, reloader.suspicious(id).len() as u64);
        let process = Process {
            dropped_log_lines: (self.dropped_log_lines)(),
            held: (self.held)(),
            reloads: reloader.count(),
            password_commands: reloader.password_commands(),
            certificates: reloader.certificates(),
            peers: reloader.peers().map(Peers::status).unwrap_or_default(),
            dropped_cancels: reloader.peers().map_or(0, Peers::dropped),
            suspicious: snapshot.pools.iter().map(|pool| suspicious(pool.id)).filter(|(_, count)| *count > 0).collect(),
            tuners: self.control.tuning.tuners(),
            history_bytes: self.history.bytes(),
        };
        Metrics::new(snapshot, self.config().admin.user_label, process)
    }

    /// A sample for the doctor; `None` if there are too many pools.
    fn sample(&self) -> Option<Sample> {
        if self.handle.pool_count() > findings::MAX_POOLS {
            return None;
        }
        let clients = |which, max| self.handle.clients(which, max).into_iter().map(api::client).collect();
        Some(Sample {
            look: api::look(self.handle.snapshot(), (&self.instance, self.began.elapsed()), self.extras_of_pools()),
            holders: clients(ClientFilter::Holders, findings::MAX_HOLDERS),
            clients: clients(ClientFilter::All, findings::MAX_CLIENTS),
        })
    }

    /// The pools whose servers clients share. A server that is made for one client may fail for what that client asks.
    fn shared_pools(&self) -> Vec<PoolState> {
        let mut pools = self.handle.pools(None);
        pools.retain(|pool| !self.control.reloader.is_dedicated(pool.id));
        pools
    }

    /// The protocol and the name of each configured database.
    fn configured_databases(&self) -> HashSet<(&'static str, String)> {
        self.config().databases.iter().map(|database| (database.kind.word(), database.name.clone())).collect()
    }
}

impl Admin {
    /// Looks at a driver, and steers it through `control`. `new_examiner` makes what answers `/api/findings`.
    pub fn new(
        handle: driver::Handle,
        control: Control,
        new_examiner: NewExaminer,
        dropped_log_lines: impl Fn() -> u64 + Send + Sync + 'static,
        held: impl Fn() -> ProtocolMemory + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner {
            handle,
            control,
            dropped_log_lines: Box::new(dropped_log_lines),
            held: Box::new(held),
            instance: instance(),
            began: Instant::now(),
            draining: AtomicBool::new(false),
            queries: Semaphore::new(MAX_CONCURRENT_QUERIES),
            streamed_answers: Arc::new(Semaphore::new(MAX_STREAMED_ANSWERS)),
            findings: Findings::new(new_examiner),
            history: History::default(),
        }))
    }

    /// What it steers through.
    pub fn control(&self) -> &Control {
        &self.0.control
    }

    /// Bytes of memory by what they are for.
    pub fn memory(&self) -> Vec<(&'static str, u64)> {
        let held = (self.0.held)();
        let http = held.http.iter().map(|listener| listener.bytes).sum();
        vec![
            ("named_statements", held.statements.named_bytes),
            ("unnamed_statements", held.statements.unnamed_bytes),
            ("http", http),
            ("history", self.0.history.bytes()),
        ]
    }

    fn config(&self) -> Arc<Config> {
        self.0.config()
    }

    /// From now on `/ready` answers 503.
    pub fn set_draining(&self) {
        self.0.draining.store(true, Ordering::Relaxed);
    }

    /// Whether the process is about to end.
    pub fn is_draining(&self) -> bool {
        self.0.draining.load(Ordering::Relaxed)
    }

    /// Keeps the last hour of the pools, from now on and for ever.
    pub async fn keep_history(self) {
        let mut looks = tokio::time::interval(history::SAMPLE_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let Inner { handle, history, began, .. } = &*self.0;
            let few = handle.pool_count() <= history::MAX_POOLS;
            history.add_sample(began.elapsed(), few.then(|| handle.snapshot().pools).as_deref());
        }
    }

    /// All pages, and `more`, which are guarded in the same way.
    pub fn router(&self, more: Router<Self>) -> Router {
        Router::new()
            .route("/", get(page))
            .route("/health", get(health))
            .route("/ready", get(ready))
            .route("/metrics", get(metrics))
            .route("/api/pools", get(pools))
            .route("/api/clients", get(clients))
            .route("/api/servers", get(servers))
            .route("/api/findings", get(findings))
            .route("/api/history", get(history))
            .merge(orders::router(self))
            .merge(more)
            .fallback(|| async { (StatusCode::NOT_FOUND, "no such page; / lists all\n") })
            .layer(from_fn_with_state(self.clone(), guarded))
            .with_state(self.clone())
    }

    /// Runs a query that blocks; `None` if [`MAX_CONCURRENT_QUERIES`] are running.
    pub async fn query<T: Send + 'static>(&self, question: impl FnOnce(&Inner) -> T + Send + 'static) -> Option<T> {
        let _permit = self.0.queries.try_acquire().ok()?;
        let inner = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || question(&inner)).await.ok()
    }

    /// Runs a query whose answer is made while the client reads it, with a permit that the answer holds until its end.
    async fn query_streamed<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Inner) -> T + Send + 'static,
    ) -> Option<(T, OwnedSemaphorePermit)> {
        let permit = Arc::clone(&self.0.streamed_answers).try_acquire_owned().ok()?;
        Some((self.query(question).await?, permit))
    }
}

fn instance() -> String {
    let mut random = [0; 8];
    getrandom::fill(&mut random).expect("the system has random numbers");
    format!("{:016x}", u64::from_ne_bytes(random))
}

/// Orders have a guard of their own.
async fn guarded(State(admin): State<Admin>, request: Request, next: Next) -> Response {
    if request.method() != Method::POST {
        let config = admin.0.config();
        match guard::may_look(request.headers(), request.uri().path(), &config.admin) {
            Ok(()) => {}
            Err(Denied::NotLocal(why)) => return (StatusCode::FORBIDDEN, format!("{why}\n")).into_response(),
            Err(Denied::Token | Denied::Role(_)) => {
                let answer = (StatusCode::UNAUTHORIZED, "looking needs a token, which is missing or wrong\n");
                return ([(WWW_AUTHENTICATE, "Bearer")], answer).into_response();
            }
        }
    }
    next.run(request).await
}

pub fn busy() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "too many questions at once\n").into_response()
}

fn json(value: Option<Value>) -> Response {
    value.map_or_else(busy, |value| axum::Json(value).into_response())
}

/// JSON that is made while the client reads it.
fn streamed<I>(answer: Option<(I, OwnedSemaphorePermit)>) -> Response
where
    I: Iterator<Item = Vec<u8>> + Send + Unpin + 'static,
{
    let Some((pieces, permit)) = answer else { return busy() };
    ([(CONTENT_TYPE, "application/json")], Body::new(Pieces::new(pieces, permit))).into_response()
}

async fn page() -> Response {
    (page::headers(), page::PAGE.as_str()).into_response()
}

/// The process answers.
async fn health() -> &'static str {
    "ok\n"
}

/// 200 unless the process drains, or no upstream can be reached.
async fn ready(State(admin): State<Admin>) -> Response {
    if admin.is_draining() {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response();
    }
    match admin
        .query(|inner| unready(&inner.shared_pools(), inner.handle.is_ending(), &inner.configured_databases()))
        .await
    {
        Some(None) => "ready\n".into_response(),
        Some(Some(why)) => (StatusCode::SERVICE_UNAVAILABLE, why).into_response(),
        None => busy(),
    }
}

/// Why new clients should connect elsewhere. A database that is not configured by name counts once it has been reached:
/// before that, a client may have invented it.
fn unready(pools: &[PoolState], is_ending: bool, databases: &HashSet<(&'static str, String)>) -> Option<&'static str> {
    if is_ending {
        return Some("draining\n");
    }
    let named = |pool: &PoolState| databases.contains(&(pool.protocol, pool.database.clone()));
    let counts = |pool: &&PoolState| pool.created > 0 || named(pool);
    let mut pools = pools.iter().filter(counts).peekable();
    (pools.peek().is_some() && pools.all(|pool| pool.unavailable)).then_some("no upstream can be reached\n")
}

async fn metrics(State(admin): State<Admin>, headers: HeaderMap) -> Response {
    let Some((pieces, permit)) = admin.query_streamed(Inner::metrics).await else { return busy() };
    let is_packed = gzip::accepts_gzip(&headers);
    let body = match is_packed {
        true => Body::new(Pieces::new(Packed::new(pieces), permit)),
        false => Body::new(Pieces::new(pieces, permit)),
    };
    let mut response = ([(CONTENT_TYPE, metrics::CONTENT), (VARY, "Accept-Encoding")], body).into_response();
    if is_packed {
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

async fn pools(State(admin): State<Admin>) -> Response {
    streamed(admin.query_streamed(Inner::pools_json).await)
}

/// The findings of the doctor, after a new sample if the last one is old.
async fn findings(State(admin): State<Admin>) -> Response {
    let answer = admin.query(|inner| inner.findings.answer(Instant::now(), || inner.sample())).await;
    if answer.as_ref().is_some_and(|(_, has_sampled)| *has_sampled) {
        tokio::spawn(async move {
            tokio::time::sleep(findings::FORGET_AFTER).await;
            admin.0.findings.tidy(Instant::now());
        });
    }
    json(answer.map(|(findings, _)| findings))
}

/// The last hour of all pools, or of one.
async fn history(State(admin): State<Admin>, uri: Uri) -> Response {
    let query = uri.query().unwrap_or_default();
    let only = query.strip_prefix("pool=").and_then(|id| id.parse().ok()).map(PoolId);
    if only.is_none() && !query.is_empty() {
        return (StatusCode::BAD_REQUEST, "the only parameter is pool=ID, of /api/pools\n").into_response();
    }
    let answer = move |inner: &Inner| inner.history.json(only, (&inner.instance, inner.began.elapsed()));
    streamed(admin.query_streamed(answer).await)
}

async fn clients(State(admin): State<Admin>, uri: Uri) -> Response {
    match list_parameters(&uri, true) {
        Ok((limit, which)) => {
            streamed(admin.query_streamed(move |inner| api::clients(inner.handle.clients(which, limit))).await)
        }
        Err(message) => (StatusCode::BAD_REQUEST, message).into_response(),
    }
}

async fn servers(State(admin): State<Admin>, uri: Uri) -> Response {
    match list_parameters(&uri, false) {
        Ok((limit, _)) => streamed(admin.query_streamed(move |inner| api::servers(inner.handle.servers(limit))).await),
        Err(message) => (StatusCode::BAD_REQUEST, message).into_response(),
    }
}

/// The number of entries that a request asks for, and of which clients.
fn list_parameters(uri: &Uri, of_clients: bool) -> Result<(usize, ClientFilter), String> {
    let (mut limit, mut which) = (DEFAULT_LIMIT, ClientFilter::All);
    for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let number = pair.strip_prefix("limit=").and_then(|value| value.parse().ok());
        match number.filter(|n| (1..=MAX_LIMIT).contains(n)) {
            Some(number) => limit = number,
            None if of_clients && pair == "busy=true" => which = ClientFilter::Busy,
            None if of_clients && pair == "holders=true" => which = ClientFilter::Holders,
            None if of_clients => {
                return Err(format!("the parameters are limit=1..{MAX_LIMIT}, busy=true and holders=true\n"));
            }
            None => return Err(format!("the only parameter is limit=1..{MAX_LIMIT}\n")),
        }
    }
    Ok((limit, which))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(pools: &[PoolState], is_ending: bool) -> Option<&'static str> {
        unready(pools, is_ending, &HashSet::from([("postgres", "d".to_owned())]))
    }

    fn pool(database: &str, unavailable: bool, created: u64) -> PoolState {
        PoolState {
            id: seam::PoolId(0),
            protocol: "postgres",
            database: database.to_owned(),
            user: "u".to_owned(),
            counts: pool::Counts::default(),
            clients: 1,
            created,
            unavailable,
            stale: 0,
            paused: false,
            drained: false,
            disabled: false,
        }
    }

    #[test]
    fn a_driver_without_pools_is_ready_and_a_draining_one_is_not() {
        assert_eq!(why(&[], false), None);
        assert_eq!(why(&[], true), Some("draining\n"));
    }

    #[test]
    fn it_is_unready_only_when_no_upstream_can_be_reached() {
        assert_eq!(why(&[pool("d", true, 0), pool("d", false, 0)], false), None);
        assert!(why(&[pool("d", true, 0), pool("other", true, 1)], false).is_some());
    }

    #[test]
    fn a_database_that_a_client_made_up_does_not_make_it_unready() {
        assert_eq!(why(&[pool("made up", true, 0)], false), None);
    }

    #[test]
    fn limits_of_lists_are_checked() {
        let of =
            |query: &str, of_clients| list_parameters(&format!("/api/clients{query}").parse().unwrap(), of_clients);
        assert_eq!(of("", true), Ok((DEFAULT_LIMIT, ClientFilter::All)));
        assert_eq!(of("?limit=5", false), Ok((5, ClientFilter::All)));
        assert_eq!(of("?busy=true&limit=5", true), Ok((5, ClientFilter::Busy)));
        assert_eq!(of("?holders=true", true), Ok((DEFAULT_LIMIT, ClientFilter::Holders)));
        for wrong in ["?limit=0", "?limit=x", "?other=1", "?busy=1"] {
            assert!(of(wrong, true).is_err() && of(wrong, false).is_err(), "{wrong}");
        }
        assert!(of("?busy=true", false).is_err(), "a server cannot be asked for so");
    }
}
