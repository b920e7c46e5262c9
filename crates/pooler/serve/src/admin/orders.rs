//! Orders over the admin address: pause, resume, reconnect, drain, disable, enable, reload, kill. Each is a POST and
//! answers with JSON; the guard decides which requests may give orders.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{ConnectInfo, FromRequestParts, Request, State},
    http::{StatusCode, Uri, header::WWW_AUTHENTICATE, request::Parts},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::post,
};
use driver::{DatabaseName, PoolState};
use serde_json::{Value, json};
use settings::parse_duration_on;
use upstream::Kind;

use super::{
    Admin, EndingOrder, Inner, busy,
    guard::{self, Denied},
};
use crate::{config::FALLBACK, pools::RESP3_SUFFIX, reload::one_line};

/// The wait for an order to be carried out, if the request names no time.
const DEFAULT_ORDER_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time that a request may name.
const MAX_ORDER_TIMEOUT: Duration = Duration::from_secs(3600);
/// Bytes of an answer to an order: the states of all pools at most.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// Characters of an error in the log.
const MAX_LOGGED_CHARS: usize = 300;
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long before the end of a drain over time the order is answered, so that the process is still there for that.
const END_OF_DRAIN: Duration = Duration::from_millis(200);

/// The routes, behind the guard.
pub fn router(admin: &Admin) -> Router<Admin> {
    Router::new()
        .route("/api/pause", post(pause))
        .route("/api/resume", post(resume))
        .route("/api/reconnect", post(reconnect))
        .route("/api/wait-close", post(wait_close))
        .route("/api/drain", post(drain))
        .route("/api/disable", post(disable))
        .route("/api/enable", post(enable))
        .route("/api/reload", post(reload))
        .route("/api/kill", post(kill))
        .route_layer(from_fn_with_state(admin.clone(), check_and_log_order))
}

async fn check_and_log_order(
    State(admin): State<Admin>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    match guard::authorize(request.headers(), peer, &admin.config().admin) {
        Ok(token) => {
            let order = request.uri().path().trim_start_matches("/api/").to_owned();
            let parameters = request.uri().query().unwrap_or_default();
            tracing::info!(%peer, token, order, parameters, "ordered over the admin address");
            let began = Instant::now();
            let (answer, summary) = with_summary(next.run(request).await).await;
            let (status, took_ms) = (answer.status().as_u16(), began.elapsed().as_millis() as u64);
            tracing::info!(%peer, token, order, status, took_ms, answer = summary, "the order is done");
            answer
        }
        Err(Denied::Token) => {
            tracing::warn!(%peer, "an order without the right token");
            let answer = problem(StatusCode::UNAUTHORIZED, "the token is missing or wrong");
            ([(WWW_AUTHENTICATE, "Bearer")], answer).into_response()
        }
        Err(Denied::Role(token)) => {
            tracing::warn!(%peer, token, "an order with a token that only permits to look");
            problem(StatusCode::FORBIDDEN, "this token only permits to look: orders need one with role = \"operate\"")
        }
        Err(Denied::NotLocal(why)) => problem(StatusCode::FORBIDDEN, why),
    }
}

/// An answer, and its summary for the log.
async fn with_summary(answer: Response) -> (Response, String) {
    let (parts, body) = answer.into_parts();
    let bytes = axum::body::to_bytes(body, MAX_ANSWER_BYTES).await.unwrap_or_default();
    let summary = serde_json::from_slice(&bytes).map_or_else(|_| String::new(), |answer: Value| summarize(&answer));
    (Response::from_parts(parts, bytes.into()), summary)
}

/// The error in an answer; or its figures, and the lengths of its lists.
fn summarize(answer: &Value) -> String {
    if let Some(error) = answer["error"].as_str() {
        let mut summary: String = error.chars().take(MAX_LOGGED_CHARS).collect();
        if summary.len() < error.len() {
            summary.push('…');
        }
        return summary;
    }
    let part = |(name, value): (&String, &Value)| match value {
        Value::Array(list) => format!("{name}: {}", list.len()),
        Value::Object(_) => summarize(value),
        value => format!("{name}: {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
    };
    answer.as_object().into_iter().flatten().map(part).collect::<Vec<_>>().join(", ")
}

/// Makes clients wait, and returns when no server is left.
async fn pause(State(admin): State<Admin>, order: Order) -> Response {
    let database = order.database.clone();
    match admin.query(move |inner| inner.handle.pause(database.as_ref())).await {
        Some(true) => order.wait(&admin, "paused", |pool| pool.counts.total == 0).await,
        Some(false) => too_many_orders(),
        None => busy(),
    }
}

/// Ends pauses and drains.
async fn resume(State(admin): State<Admin>, order: Order) -> Response {
    let database = order.database.clone();
    match admin.query(move |inner| inner.handle.resume(database.as_ref())).await {
        Some(true) => order.wait(&admin, "resumed", |pool| !pool.paused && !pool.drained).await,
        Some(false) => too_many_orders(),
        None => busy(),
    }
}

/// Replaces all servers. Servers in use close when they are released, which is not waited for.
async fn reconnect(State(admin): State<Admin>, order: Order) -> Response {
    let database = order.database.clone();
    match admin.query(move |inner| inner.handle.reconnect(database.as_ref())).await {
        Some(()) => order.wait(&admin, "reconnecting", |_| true).await,
        None => busy(),
    }
}

/// Waits until the servers are gone that a reconnect, a reload or a pause has made old.
async fn wait_close(State(admin): State<Admin>, order: Order) -> Response {
    order.wait(&admin, "closed", |pool| pool.stale == 0).await
}

/// Refuses new clients of a database.
async fn disable(State(admin): State<Admin>, order: Order) -> Response {
    set_disabled(admin, order, true).await
}

/// Lets new clients in again.
async fn enable(State(admin): State<Admin>, order: Order) -> Response {
    set_disabled(admin, order, false).await
}

async fn set_disabled(admin: Admin, order: Order, disabled: bool) -> Response {
    let Some(database) = order.database.clone() else {
        return problem(StatusCode::BAD_REQUEST, "name the database: ?database=NAME");
    };
    let change = move |inner: &Inner| match disabled {
        true => inner.handle.disable(Some(&database)),
        false => inner.handle.enable(Some(&database)),
    };
    let word = if disabled { "disabled" } else { "enabled" };
    match admin.query(change).await {
        Some(true) => order.wait(&admin, word, |pool| pool.disabled == disabled).await,
        Some(false) => too_many_orders(),
        None => busy(),
    }
}

/// Lets the clients of a database finish; without a database, all clients, and then the process ends.
async fn drain(State(admin): State<Admin>, order: Order) -> Response {
    let database = match (order.database.clone(), order.over) {
        (Some(_), Some(_)) => {
            return problem(StatusCode::BAD_REQUEST, "over= is for the clients of all databases: leave database= out");
        }
        (Some(database), None) => database,
        (None, over) => {
            admin.0.control.drain.order(over);
            return match over {
                Some(over) => report_drain(&admin, over).await,
                None => answer(StatusCode::ACCEPTED, json!({ "draining": true, "then": "the process ends" })),
            };
        }
    };
    match admin.query(move |inner| inner.handle.drain_database(&database)).await {
        Some(true) => order.wait(&admin, "drained", |pool| pool.clients == 0 && pool.counts.total == 0).await,
        Some(false) => too_many_orders(),
        None => busy(),
    }
}

/// Waits until the clients have gone, or nearly all of the drain's time has passed: then the process may end.
async fn report_drain(admin: &Admin, over: Duration) -> Response {
    let (began, until) = (Instant::now(), over.saturating_sub(END_OF_DRAIN));
    loop {
        let clients: u64 = admin.0.handle.pools(None).iter().map(|pool| pool.clients).sum();
        if clients == 0 || began.elapsed() >= until {
            let waited = began.elapsed().as_millis() as u64;
            let body = json!({ "draining": true, "clients": clients, "waited_ms": waited, "then": "the process ends" });
            return answer(StatusCode::ACCEPTED, body);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Reads the configuration again.
async fn reload(State(admin): State<Admin>) -> Response {
    let reloaded = admin.query(|inner| inner.control.reloader.reload()).await;
    match reloaded {
        Some(Ok(reloaded)) => {
            let pools = reloaded.pools;
            let pools = json!({
                "followed": pools.followed, "renewed": pools.renewed, "left_behind": pools.left_behind,
            });
            answer(StatusCode::OK, json!({ "reloaded": true, "pools": pools, "notes": reloaded.notes }))
        }
        Some(Err(problems)) => {
            let problems: Vec<String> = problems.0.iter().map(one_line).collect();
            let body = json!({ "error": "the old configuration stays in force", "problems": problems });
            answer(StatusCode::UNPROCESSABLE_ENTITY, body)
        }
        None => busy(),
    }
}

/// Closes one client, or all clients and servers of a database.
async fn kill(State(admin): State<Admin>, uri: Uri, request: Request) -> Response {
    let parameters = match parameters(&uri, &["client", "all", "database", "protocol", "time"]) {
        Ok(parameters) => parameters,
        Err(message) => return problem(StatusCode::BAD_REQUEST, &message),
    };
    let has = |key: &str| parameters.iter().any(|(name, _)| name == key);
    match (has("client"), has("database"), has("all")) {
        (true, false, false) => kill_client(admin, &parameters).await,
        (false, true, false) | (false, false, true) => {
            let (mut parts, _) = request.into_parts();
            match Order::from_request_parts(&mut parts, &admin).await {
                Ok(order) => kill_database(admin, order).await,
                Err(answer) => answer,
            }
        }
        _ => problem(
            StatusCode::BAD_REQUEST,
            "say what: ?client=ID with an id of /api/clients, ?database=NAME, or ?all for all databases",
        ),
    }
}

async fn kill_database(admin: Admin, order: Order) -> Response {
    let database = order.database.clone();
    match admin.query(move |inner| inner.handle.kill_database(database.as_ref())).await {
        Some(true) => order.wait(&admin, "killed", |pool| pool.clients == 0 && pool.counts.total == 0).await,
        Some(false) => too_many_orders(),
        None => busy(),
    }
}

async fn kill_client(admin: Admin, parameters: &[(String, String)]) -> Response {
    let client = parameters.iter().find(|(name, _)| name == "client").and_then(|(_, id)| id.parse::<u64>().ok());
    let Some(client) = client else {
        return problem(StatusCode::BAD_REQUEST, "name the client by its id in /api/clients: ?client=ID");
    };
    match admin.query(move |inner| inner.handle.kill(client)).await {
        Some(true) => answer(StatusCode::OK, json!({ "killed": client })),
        Some(false) => problem(StatusCode::NOT_FOUND, "there is no such client"),
        None => busy(),
    }
}

struct Order {
    /// `None` is all databases.
    database: Option<DatabaseName>,
    timeout: Duration,
    /// The time of a drain over time.
    over: Option<Duration>,
}

impl FromRequestParts<Admin> for Order {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, admin: &Admin) -> Result<Self, Response> {
        let bad = |message: String| problem(StatusCode::BAD_REQUEST, &message);
        let mut order = Self { database: None, timeout: DEFAULT_ORDER_TIMEOUT, over: None };
        let (mut called, mut protocol) = (None, None);
        for (name, value) in parameters(&parts.uri, &["database", "protocol", "time", "over", "all"]).map_err(bad)? {
            match &*name {
                "database" => called = Some(value),
                // Without a database it is meant for all.
                "all" => {}
                "over" => {
                    let time = parse_duration_on(&value).map_err(|error| bad(format!("over: {error}")))?;
                    order.over = Some(time.min(MAX_ORDER_TIMEOUT));
                }
                "protocol" => {
                    let kind = KINDS.into_iter().find(|kind| kind.word() == value);
                    let words = || KINDS.map(Kind::word).join(", ");
                    protocol = Some(kind.ok_or_else(|| bad(format!("protocol: it is one of {}", words())))?);
                }
                _ => {
                    let time = parse_duration_on(&value).map_err(|error| bad(format!("time: {error}")))?;
                    order.timeout = time.min(MAX_ORDER_TIMEOUT);
                }
            }
        }
        match called {
            None if protocol.is_some() => {
                return Err(bad("protocol= says which database= is meant: name that, too".to_owned()));
            }
            None => {}
            Some(called) => {
                let resolve =
                    admin.query(move |inner| resolve(&called, protocol, |kind| inner.match_of(kind, &called)));
                order.database = Some(resolve.await.ok_or_else(busy)?.map_err(|why| why.answer())?);
            }
        }
        Ok(order)
    }
}

impl Order {
    /// Waits until `done` holds for all its pools, and answers with their states.
    async fn wait(self, admin: &Admin, word: &str, done: impl Fn(&PoolState) -> bool) -> Response {
        let began = Instant::now();
        loop {
            let pools = admin.0.handle.pools(self.database.as_ref());
            let complete = pools.iter().all(&done);
            if complete || began.elapsed() >= self.timeout {
                let status = if complete { StatusCode::OK } else { StatusCode::GATEWAY_TIMEOUT };
                let waited = began.elapsed().as_millis() as u64;
                let pools: Vec<Value> = pools.iter().map(state).collect();
                return answer(status, json!({ word: complete, "waited_ms": waited, "pools": pools }));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

impl Inner {
    fn match_of(&self, kind: Kind, database: &str) -> Match {
        let configured =
            |name: &str| self.config().databases.iter().any(|matches| matches.kind == kind && matches.name == name);
        let name = name_of(kind, database);
        let in_use = || !self.handle.pools(Some(&name)).is_empty();
        // Redis's have numbers, and none is configured by its number.
        let number = || name.database.parse::<u32>().is_ok();
        match kind {
            _ if in_use() || self.handle.is_ordered(&name) => Match::Named,
            Kind::Postgres if database != FALLBACK && configured(database) => Match::Named,
            Kind::Redis if configured(FALLBACK) && number() => Match::Named,
            Kind::Postgres | Kind::Redis | Kind::MongoDb => Match::No,
        }
    }
}

/// The protocols that databases speak.
const KINDS: [Kind; 3] = [Kind::Postgres, Kind::Redis, Kind::MongoDb];

/// Whether a name is that of a database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Match {
    No,
    /// It is configured, in use, or under an order. That clients may ask for any name under `*` is not enough: it would
    /// hide a typing error.
    Named,
}

/// Why a name leads to no database.
#[derive(PartialEq, Eq, Debug)]
enum NameError {
    Unknown,
    Several(String),
}

impl NameError {
    fn answer(&self) -> Response {
        match self {
            Self::Unknown => problem(
                StatusCode::NOT_FOUND,
                "no pool has this name: no database of this name is configured or in use",
            ),
            Self::Several(called) => {
                let words = KINDS.map(|kind| format!("protocol={}", kind.word())).join(" or ");
                let why = format!("databases of more than one kind are called `{called}`: say which, with {words}");
                problem(StatusCode::CONFLICT, &why)
            }
        }
    }
}

/// The name in orders. A database of Redis has its number, or the label of one of its pools.
fn name_of(kind: Kind, called: &str) -> DatabaseName {
    let number = called.strip_suffix(RESP3_SUFFIX).filter(|_| kind == Kind::Redis);
    DatabaseName { protocol: kind.word(), database: number.unwrap_or(called).to_owned() }
}

/// The database of this name.
///
/// # Errors
/// There is none, or more than one.
fn resolve(called: &str, protocol: Option<Kind>, match_of: impl Fn(Kind) -> Match) -> Result<DatabaseName, NameError> {
    let candidates = KINDS.into_iter().filter(|kind| protocol.is_none_or(|protocol| protocol == *kind));
    let matches: Vec<(Kind, Match)> = candidates.map(|kind| (kind, match_of(kind))).collect();
    let best =
        matches.iter().map(|(_, matches)| *matches).max().filter(|best| *best > Match::No).ok_or(NameError::Unknown)?;
    let mut named = matches.into_iter().filter(|(_, matches)| *matches == best).map(|(kind, _)| kind);
    match (named.next(), named.next()) {
        (Some(kind), None) => Ok(name_of(kind, called)),
        _ => Err(NameError::Several(called.to_owned())),
    }
}

fn state(pool: &PoolState) -> Value {
    let counts = &pool.counts;
    json!({
        "protocol": pool.protocol,
        "database": pool.database,
        "user": pool.user,
        "clients": pool.clients,
        "waiters": counts.waiters,
        "servers": { "in_use": counts.in_use, "total": counts.total },
        "paused": pool.paused,
        "drained": pool.drained,
        "disabled": pool.disabled,
        "stale": pool.stale,
    })
}

/// The parameters of a query, of which only these may be there.
fn parameters(uri: &Uri, known: &[&str]) -> Result<Vec<(String, String)>, String> {
    let mut found = Vec::new();
    for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if !known.contains(&name) {
            return Err(format!("the only parameters are {}", known.join(", ")));
        }
        let value = upstream::percent_decode(value).map_err(|error| format!("{name}: {error}"))?;
        found.push((name.to_owned(), value));
    }
    Ok(found)
}

fn too_many_orders() -> Response {
    problem(StatusCode::CONFLICT, "too many databases are under orders of their own: order it for all")
}

fn problem(status: StatusCode, message: &str) -> Response {
    answer(status, json!({ "error": message }))
}

fn answer(status: StatusCode, body: Value) -> Response {
    (status, axum::Json(body)).into_response()
}

/// What orders need besides the driver.
pub struct Control {
    /// Reads the configuration again.
    pub reloader: Arc<crate::reload::Reloader>,
    /// Changes the sizes of pools that are tuned.
    pub tuning: Arc<crate::tuning::Tuning>,
    /// The order to drain the process.
    pub drain: DrainOrder,
    /// The order to end in another way.
    pub ending: EndingOrder,
    /// The names of hosts that are followed.
    pub hosts: Arc<crate::host_names::LookedUpHosts>,
}

/// The order to drain the process, and over which time.
#[derive(Default)]
pub struct DrainOrder {
    given: tokio::sync::Notify,
    over: Mutex<Option<Duration>>,
}

impl DrainOrder {
    /// Gives the order.
    pub fn order(&self, over: Option<Duration>) {
        *self.over.lock().unwrap_or_else(PoisonError::into_inner) = over;
        self.given.notify_one();
    }

    /// Waits for the order. Returns the time over which clients are to be sent away first, if it names one.
    pub async fn wait(&self) -> Option<Duration> {
        self.given.notified().await;
        *self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_two_protocols_have_is_not_enough() {
        let name = |kind: Kind| Ok(DatabaseName { protocol: kind.word(), database: "0".to_owned() });
        let resolve = |protocol, postgres, redis| {
            resolve("0", protocol, |kind| match kind {
                Kind::Postgres => postgres,
                Kind::Redis => redis,
                Kind::MongoDb => Match::No,
            })
        };
        assert_eq!(resolve(None, Match::Named, Match::No), name(Kind::Postgres));
        assert_eq!(resolve(None, Match::Named, Match::Named), Err(NameError::Several("0".to_owned())));
        assert_eq!(resolve(Some(Kind::Redis), Match::Named, Match::Named), name(Kind::Redis));
        assert_eq!(resolve(Some(Kind::Postgres), Match::Named, Match::Named), name(Kind::Postgres));
        assert_eq!(resolve(None, Match::No, Match::No), Err(NameError::Unknown));
        // What is called so in PostgreSQL is another database.
        let called = |kind| name_of(kind, "0/resp3").database;
        assert_eq!([called(Kind::Postgres), called(Kind::Redis)], ["0/resp3", "0"]);
        assert_eq!(resolve(Some(Kind::Redis), Match::Named, Match::No), Err(NameError::Unknown));
    }

    #[test]
    fn the_log_has_whole_words_of_an_answer() {
        let pools = vec![json!({ "database": "shop" }); 40];
        let summary = summarize(&json!({ "paused": true, "waited_ms": 12, "pools": pools }));
        assert_eq!(summary, "paused: true, pools: 40, waited_ms: 12");
        assert_eq!(summarize(&json!({ "error": "there is no such client" })), "there is no such client");
        let long = summarize(&json!({ "error": "ä".repeat(MAX_LOGGED_CHARS + 1) }));
        assert_eq!(long, format!("{}…", "ä".repeat(MAX_LOGGED_CHARS)));
        let reloaded =
            summarize(&json!({ "reloaded": true, "notes": ["a"], "pools": { "followed": 2, "renewed": 1 } }));
        assert_eq!(reloaded, "notes: 1, followed: 2, renewed: 1, reloaded: true");
    }

    #[test]
    fn parameters_are_decoded_and_unknown_ones_refused() {
        let read = |query: &str| parameters(&format!("/api/pause?{query}").parse().unwrap(), &["database", "time"]);
        assert_eq!(read("database=a%20b").unwrap(), [("database".to_owned(), "a b".to_owned())]);
        assert!(read("databse=a").unwrap_err().contains("database"));
        assert!(read("database=%zz").is_err());
    }
}
