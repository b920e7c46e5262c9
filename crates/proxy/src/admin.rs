//! The admin address: metrics, health and JSON views of a running driver over HTTP, and [`orders`], all behind a [`guard`].
//! Asked questions block, so they are asked from threads of their own, few at a time.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{Method, StatusCode, Uri, header::CONTENT_TYPE},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::get,
};
use driver::{PoolSnapshot, Snapshot, Which};
use serde_json::Value;
use settings::Secret;
use tokio::sync::Semaphore;

use self::{
    body::Pieces,
    findings::{Findings, Seen, Unseen},
};
use crate::config::Config;

mod api;
mod body;
pub mod door;
mod findings;
mod guard;
mod metrics;
mod orders;
mod page;
mod tuned;

pub use api::{POOL_BYTES, POOL_VALUES};
pub use metrics::{Process, render};
pub use orders::Control;

/// Questions that may be in progress at once; further ones are answered with 503.
const MAX_QUESTIONS: usize = 4;

/// Entries of a list unless the question says otherwise.
const DEFAULT_LIMIT: usize = 1_000;
/// Entries of a list at most.
pub const MAX_LIMIT: usize = 100_000;

/// What the admin address looks at.
#[derive(Clone)]
pub struct Admin(Arc<Inner>);

struct Inner {
    handle: driver::Handle,
    control: Control,
    dropped_log_lines: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Tells this process from those before and after it.
    instance: String,
    began: Instant,
    draining: AtomicBool,
    questions: Semaphore,
    findings: Findings,
}

impl Inner {
    /// As of now: a reload may change whatever is read from it.
    fn config(&self) -> Arc<Config> {
        self.control.reloader.in_force()
    }

    /// `/api/pools`, in pieces.
    fn told(&self, snapshot: Snapshot) -> impl Iterator<Item = Vec<u8>> + Send + Unpin + use<> {
        let (reloader, tuners) = (Arc::clone(&self.control.reloader), self.control.tuning.tuners());
        let about = move |id| (reloader.suspicious(id), tuners.get(&id).map(tuned::shown));
        api::pools(snapshot, (&self.instance, self.began.elapsed()), about)
    }

    /// What the doctor looks at, as it would be told to one outside.
    fn seen(&self) -> Result<Seen, Unseen> {
        let clients = |which, most| {
            let told = api::clients(&self.handle.clients(which, most));
            serde_json::from_slice::<watch::Clients>(&told).map_err(|_| Unseen::Unread)
        };
        let snapshot = self.handle.snapshot();
        if snapshot.pools.len() > findings::MAX_POOLS {
            return Err(Unseen::TooManyPools);
        }
        let told = self.told(snapshot).collect::<Vec<_>>().concat();
        Ok(Seen {
            look: serde_json::from_slice(&told).map_err(|_| Unseen::Unread)?,
            holders: clients(Which::Holders, findings::MAX_HOLDERS)?.clients,
            clients: clients(Which::All, findings::MAX_CLIENTS)?.clients,
        })
    }

    /// Databases that are configured by name, and not those that clients made up: the word of their protocol, and the name.
    fn names(&self) -> HashSet<(&'static str, String)> {
        self.config().databases.iter().map(|database| (database.kind.word(), database.name.clone())).collect()
    }
}

impl Admin {
    /// Looks at a driver, and steers it through `control`.
    pub fn new(
        handle: driver::Handle,
        control: Control,
        dropped_log_lines: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner {
            handle,
            control,
            dropped_log_lines: Box::new(dropped_log_lines),
            instance: instance(),
            began: Instant::now(),
            draining: AtomicBool::new(false),
            questions: Semaphore::new(MAX_QUESTIONS),
            findings: Findings::default(),
        }))
    }

    /// What it steers through.
    pub fn control(&self) -> &Control {
        &self.0.control
    }

    fn token(&self) -> Option<Secret> {
        self.0.config().admin.token.clone()
    }

    /// From now on `/ready` says no.
    pub fn set_draining(&self) {
        self.0.draining.store(true, Ordering::Relaxed);
    }

    /// What it answers to.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/", get(page))
            .route("/health", get(health))
            .route("/ready", get(ready))
            .route("/metrics", get(metrics))
            .route("/api/pools", get(pools))
            .route("/api/clients", get(clients))
            .route("/api/servers", get(servers))
            .route("/api/findings", get(findings))
            .merge(orders::router(self))
            .fallback(|| async { (StatusCode::NOT_FOUND, "no such page; / lists all\n") })
            .layer(from_fn_with_state(self.clone(), guarded))
            .with_state(self.clone())
    }

    /// Asks the driver something that blocks; `None` when too many ask already.
    async fn ask<T: Send + 'static>(&self, question: impl FnOnce(&Inner) -> T + Send + 'static) -> Option<T> {
        let _permit = self.0.questions.try_acquire().ok()?;
        let inner = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || question(&inner)).await.ok()
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
        if let Err(why) = guard::may_look(request.headers(), config.admin.token.as_ref(), &config.admin.names) {
            return (StatusCode::FORBIDDEN, format!("{why}\n")).into_response();
        }
    }
    next.run(request).await
}

fn busy() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "too many questions at once\n").into_response()
}

fn json(value: Option<Value>) -> Response {
    value.map_or_else(busy, |value| axum::Json(value).into_response())
}

/// JSON that is written already, or will be.
fn written(text: Option<impl Into<Body>>) -> Response {
    text.map_or_else(busy, |text| ([(CONTENT_TYPE, "application/json")], text.into()).into_response())
}

async fn page() -> Response {
    (page::headers(), page::PAGE.as_str()).into_response()
}

/// The process lives and answers.
async fn health() -> &'static str {
    "ok\n"
}

/// New clients are welcome: not draining, and not every upstream out of reach.
async fn ready(State(admin): State<Admin>) -> Response {
    if admin.0.draining.load(Ordering::Relaxed) {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response();
    }
    match admin.ask(|inner| unready(&inner.handle.snapshot(), &inner.names())).await {
        Some(None) => "ready\n".into_response(),
        Some(Some(why)) => (StatusCode::SERVICE_UNAVAILABLE, why).into_response(),
        None => busy(),
    }
}

/// Why new clients had better go elsewhere. A database that is not configured by name says nothing until it has been
/// reached once: a client may have made it up.
fn unready(snapshot: &Snapshot, databases: &HashSet<(&'static str, String)>) -> Option<&'static str> {
    if snapshot.draining {
        return Some("draining\n");
    }
    let named = |pool: &PoolSnapshot| databases.contains(&(pool.protocol, pool.database.clone()));
    let counts = |pool: &&PoolSnapshot| pool.created > 0 || named(pool);
    let mut pools = snapshot.pools.iter().filter(counts).peekable();
    (pools.peek().is_some() && pools.all(|pool| pool.unavailable_for.is_some()))
        .then_some("no upstream can be reached\n")
}

async fn metrics(State(admin): State<Admin>) -> Response {
    let render = |inner: &Inner| {
        let reloader = &inner.control.reloader;
        let snapshot = inner.handle.snapshot();
        let suspicious =
            snapshot.pools.iter().map(|pool| (pool.id, reloader.suspicious(pool.id).len() as u64)).collect();
        let (dropped_log_lines, tuners) = ((inner.dropped_log_lines)(), inner.control.tuning.tuners());
        let process = Process { dropped_log_lines, reloads: reloader.count(), suspicious, tuners };
        render(snapshot, inner.config().admin.user_label, process)
    };
    match admin.ask(render).await {
        Some(text) => ([(CONTENT_TYPE, metrics::CONTENT)], text).into_response(),
        None => busy(),
    }
}

async fn pools(State(admin): State<Admin>) -> Response {
    let told = admin.ask(|inner| inner.told(inner.handle.snapshot())).await;
    written(told.map(|pieces| Body::new(Pieces::new(pieces))))
}

/// What the doctor says, with a look of its own if the last one was some time ago.
async fn findings(State(admin): State<Admin>) -> Response {
    let asked = admin.ask(|inner| inner.findings.answer(Instant::now(), || inner.seen())).await;
    if asked.as_ref().is_some_and(|(_, looked)| *looked) {
        tokio::spawn(async move {
            tokio::time::sleep(findings::FORGETS_AFTER).await;
            admin.0.findings.tidy(Instant::now());
        });
    }
    json(asked.map(|(told, _)| told))
}

async fn clients(State(admin): State<Admin>, uri: Uri) -> Response {
    match limit(&uri, true) {
        Ok((limit, which)) => written(admin.ask(move |inner| api::clients(&inner.handle.clients(which, limit))).await),
        Err(message) => (StatusCode::BAD_REQUEST, message).into_response(),
    }
}

async fn servers(State(admin): State<Admin>, uri: Uri) -> Response {
    match limit(&uri, false) {
        Ok((limit, _)) => written(admin.ask(move |inner| api::servers(&inner.handle.servers(limit))).await),
        Err(message) => (StatusCode::BAD_REQUEST, message).into_response(),
    }
}

/// How many entries a list is to have, and of which clients, where that can be asked.
fn limit(uri: &Uri, of_clients: bool) -> Result<(usize, Which), String> {
    let (mut limit, mut which) = (DEFAULT_LIMIT, Which::All);
    for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let number = pair.strip_prefix("limit=").and_then(|value| value.parse().ok());
        match number.filter(|n| (1..=MAX_LIMIT).contains(n)) {
            Some(number) => limit = number,
            None if of_clients && pair == "busy=true" => which = Which::Busy,
            None if of_clients && pair == "holders=true" => which = Which::Holders,
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

    fn why(pools: Vec<PoolSnapshot>, draining: bool) -> Option<&'static str> {
        unready(&Snapshot { pools, draining, ..Snapshot::default() }, &HashSet::from([("postgres", "d".to_owned())]))
    }

    fn pool(database: &str, down: bool, created: u64) -> PoolSnapshot {
        let unavailable_for = down.then_some(std::time::Duration::from_secs(1));
        PoolSnapshot { unavailable_for, created, ..metrics::tests::pool(database, "u") }
    }

    #[test]
    fn a_driver_without_pools_is_ready_and_a_draining_one_is_not() {
        assert_eq!(why(Vec::new(), false), None);
        assert_eq!(why(Vec::new(), true), Some("draining\n"));
    }

    #[test]
    fn it_is_unready_only_when_no_upstream_can_be_reached() {
        assert_eq!(why(vec![pool("d", true, 0), pool("d", false, 0)], false), None);
        assert!(why(vec![pool("d", true, 0), pool("other", true, 1)], false).is_some());
    }

    #[test]
    fn a_database_that_a_client_made_up_does_not_make_it_unready() {
        assert_eq!(why(vec![pool("made up", true, 0)], false), None);
    }

    #[test]
    fn limits_of_lists_are_checked() {
        let of = |query: &str, of_clients| limit(&format!("/api/clients{query}").parse().unwrap(), of_clients);
        assert_eq!(of("", true), Ok((DEFAULT_LIMIT, Which::All)));
        assert_eq!(of("?limit=5", false), Ok((5, Which::All)));
        assert_eq!(of("?busy=true&limit=5", true), Ok((5, Which::Busy)));
        assert_eq!(of("?holders=true", true), Ok((DEFAULT_LIMIT, Which::Holders)));
        for wrong in ["?limit=0", "?limit=x", "?other=1", "?busy=1"] {
            assert!(of(wrong, true).is_err() && of(wrong, false).is_err(), "{wrong}");
        }
        assert!(of("?busy=true", false).is_err(), "a server cannot be asked for so");
    }
}
