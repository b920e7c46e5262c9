//! What an operator can order over the admin address: pause, resume, reconnect, drain, reload, kill. Each is a POST and
//! answers with JSON; who may is asked of the guard. Knows no pool from inside.

use std::{
    net::SocketAddr,
    sync::Arc,
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
    Admin, Inner, busy,
    guard::{self, Denied},
};
use crate::{config::FALLBACK, pools::RESP3_SUFFIX, reload::one_line};

/// How long an order waits to be done, unless it says otherwise.
const DEFAULT_ORDER_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest wait that an order may ask for.
const MAX_ORDER_TIMEOUT: Duration = Duration::from_secs(3600);
/// Bytes of an answer to an order: the states of all pools at most.
const MAX_ANSWER: usize = 64 << 20;
/// Letters of an answer's error that the log has.
const MAX_LOGGED: usize = 300;
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The routes, behind the guard.
pub fn router(admin: &Admin) -> Router<Admin> {
    Router::new()
        .route("/api/pause", post(pause))
        .route("/api/resume", post(resume))
        .route("/api/reconnect", post(reconnect))
        .route("/api/drain", post(drain))
        .route("/api/reload", post(reload))
        .route("/api/kill", post(kill))
        .route_layer(from_fn_with_state(admin.clone(), authorized))
}

async fn authorized(
    State(admin): State<Admin>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    match guard::authorize(request.headers(), peer, admin.token().as_ref()) {
        Ok(()) => {
            let order = request.uri().path().trim_start_matches("/api/").to_owned();
            let parameters = request.uri().query().unwrap_or_default();
            tracing::info!(%peer, order, parameters, "ordered over the admin address");
            let began = Instant::now();
            let (answer, said) = overheard(next.run(request).await).await;
            let (status, took_ms) = (answer.status().as_u16(), began.elapsed().as_millis() as u64);
            tracing::info!(%peer, order, status, took_ms, answer = said, "the order is done");
            answer
        }
        Err(Denied::Token) => {
            tracing::warn!(%peer, "an order without the right token");
            let answer = problem(StatusCode::UNAUTHORIZED, "the token is missing or wrong");
            ([(WWW_AUTHENTICATE, "Bearer")], answer).into_response()
        }
        Err(Denied::NotLocal(why)) => problem(StatusCode::FORBIDDEN, why),
    }
}

/// An answer, and what it says in short.
async fn overheard(answer: Response) -> (Response, String) {
    let (parts, body) = answer.into_parts();
    let bytes = axum::body::to_bytes(body, MAX_ANSWER).await.unwrap_or_default();
    let said = serde_json::from_slice(&bytes).map_or_else(|_| String::new(), |answer: Value| in_short(&answer));
    (Response::from_parts(parts, bytes.into()), said)
}

/// An answer for the log: its error; or its figures, and how many entries its lists have.
fn in_short(answer: &Value) -> String {
    if let Some(error) = answer["error"].as_str() {
        let mut said: String = error.chars().take(MAX_LOGGED).collect();
        if said.len() < error.len() {
            said.push('…');
        }
        return said;
    }
    let part = |(name, value): (&String, &Value)| match value {
        Value::Array(list) => format!("{name}: {}", list.len()),
        Value::Object(_) => in_short(value),
        value => format!("{name}: {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
    };
    answer.as_object().into_iter().flatten().map(part).collect::<Vec<_>>().join(", ")
}

/// Holds clients back and waits until no server is left.
async fn pause(State(admin): State<Admin>, order: Order) -> Response {
    let database = order.database.clone();
    match admin.ask(move |inner| inner.handle.pause(database.as_ref())).await {
        Some(true) => order.wait(&admin, "paused", |pool| pool.counts.total == 0).await,
        Some(false) => too_many(),
        None => busy(),
    }
}

/// Ends pauses and drains.
async fn resume(State(admin): State<Admin>, order: Order) -> Response {
    let database = order.database.clone();
    match admin.ask(move |inner| inner.handle.resume(database.as_ref())).await {
        Some(true) => order.wait(&admin, "resumed", |pool| !pool.paused && !pool.drained).await,
        Some(false) => too_many(),
        None => busy(),
    }
}

/// Has all servers made anew. Those in use close when they are free, which is not waited for.
async fn reconnect(State(admin): State<Admin>, order: Order) -> Response {
    let database = order.database.clone();
    match admin.ask(move |inner| inner.handle.reconnect(database.as_ref())).await {
        Some(()) => order.wait(&admin, "reconnecting", |_| true).await,
        None => busy(),
    }
}

/// Lets the clients of a database go; without one, those of the whole process, which then ends.
async fn drain(State(admin): State<Admin>, order: Order) -> Response {
    let Some(database) = order.database.clone() else {
        admin.0.control.drain.notify_one();
        return answer(StatusCode::ACCEPTED, json!({ "draining": true, "then": "the process ends" }));
    };
    match admin.ask(move |inner| inner.handle.drain_database(&database)).await {
        Some(true) => order.wait(&admin, "drained", |pool| pool.clients == 0 && pool.counts.total == 0).await,
        Some(false) => too_many(),
        None => busy(),
    }
}

/// Reads the configuration again.
async fn reload(State(admin): State<Admin>) -> Response {
    let reloaded = admin.ask(|inner| inner.control.reloader.reload()).await;
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

async fn kill(State(admin): State<Admin>, uri: Uri) -> Response {
    let parameters = match parameters(&uri, &["client"]) {
        Ok(parameters) => parameters,
        Err(message) => return problem(StatusCode::BAD_REQUEST, &message),
    };
    let Some(client) = parameters.iter().find_map(|(_, value)| value.parse::<u64>().ok()) else {
        return problem(StatusCode::BAD_REQUEST, "name the client by its id in /api/clients: ?client=ID");
    };
    match admin.ask(move |inner| inner.handle.kill(client)).await {
        Some(true) => answer(StatusCode::OK, json!({ "killed": client })),
        Some(false) => problem(StatusCode::NOT_FOUND, "there is no such client"),
        None => busy(),
    }
}

struct Order {
    /// Which database; `None` is all.
    database: Option<DatabaseName>,
    /// How long to wait for its completion.
    patience: Duration,
}

impl FromRequestParts<Admin> for Order {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, admin: &Admin) -> Result<Self, Response> {
        let bad = |message: String| problem(StatusCode::BAD_REQUEST, &message);
        let mut order = Self { database: None, patience: DEFAULT_ORDER_TIMEOUT };
        let (mut called, mut protocol) = (None, None);
        for (name, value) in parameters(&parts.uri, &["database", "protocol", "time"]).map_err(bad)? {
            match &*name {
                "database" => called = Some(value),
                "protocol" => {
                    let kind = KINDS.into_iter().find(|kind| kind.word() == value);
                    let words = || KINDS.map(Kind::word).join(", ");
                    protocol = Some(kind.ok_or_else(|| bad(format!("protocol: it is one of {}", words())))?);
                }
                _ => {
                    let time = parse_duration_on(&value).map_err(|error| bad(format!("time: {error}")))?;
                    order.patience = time.min(MAX_ORDER_TIMEOUT);
                }
            }
        }
        match called {
            None if protocol.is_some() => {
                return Err(bad("protocol= says which database= is meant: name that, too".to_owned()));
            }
            None => {}
            Some(called) => {
                let meant = admin.ask(move |inner| meant(&called, protocol, |kind| inner.knows(kind, &called)));
                order.database = Some(meant.await.ok_or_else(busy)?.map_err(|why| why.answer())?);
            }
        }
        Ok(order)
    }
}

impl Order {
    /// Waits until all its pools are as they should be, and tells how they are then.
    async fn wait(self, admin: &Admin, word: &str, done: impl Fn(&PoolState) -> bool) -> Response {
        let began = Instant::now();
        loop {
            let pools = admin.0.handle.pools(self.database.as_ref());
            let complete = pools.iter().all(&done);
            if complete || began.elapsed() >= self.patience {
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
    /// How well a database of this name is known.
    fn knows(&self, kind: Kind, database: &str) -> Known {
        let configured =
            |name: &str| self.config().databases.iter().any(|known| known.kind == kind && known.name == name);
        let name = name_of(kind, database);
        let in_use = || !self.handle.pools(Some(&name)).is_empty();
        // Redis's have numbers, and none is configured by its number.
        let number = || name.database.parse::<u32>().is_ok();
        match kind {
            _ if in_use() || self.handle.is_ordered(&name) => Known::ByName,
            Kind::Postgres if database != FALLBACK && configured(database) => Known::ByName,
            Kind::Redis if configured(FALLBACK) && number() => Known::ByName,
            Kind::Postgres | Kind::Redis | Kind::MongoDb => Known::No,
        }
    }
}

/// The protocols that databases speak.
const KINDS: [Kind; 3] = [Kind::Postgres, Kind::Redis, Kind::MongoDb];

/// How well a database is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Known {
    No,
    /// It is configured, in use, or under an order. That clients may ask for whatever name is not enough: it would hide
    /// a typing error.
    ByName,
}

/// Why a name is none of a database.
#[derive(PartialEq, Eq, Debug)]
enum Unclear {
    Unknown,
    Several(String),
}

impl Unclear {
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

/// The database that is called so: of Redis, whatever its clients speak, by its number or by what `show pools` calls
/// one of its pools.
fn name_of(kind: Kind, called: &str) -> DatabaseName {
    let number = called.strip_suffix(RESP3_SUFFIX).filter(|_| kind == Kind::Redis);
    DatabaseName { protocol: kind.word(), database: number.unwrap_or(called).to_owned() }
}

/// The database that is meant: the one of this name that is known best.
///
/// # Errors
/// There is none, or more than one.
fn meant(called: &str, protocol: Option<Kind>, knows: impl Fn(Kind) -> Known) -> Result<DatabaseName, Unclear> {
    let candidates = KINDS.into_iter().filter(|kind| protocol.is_none_or(|protocol| protocol == *kind));
    let known: Vec<(Kind, Known)> = candidates.map(|kind| (kind, knows(kind))).collect();
    let best = known.iter().map(|(_, known)| *known).max().filter(|best| *best > Known::No).ok_or(Unclear::Unknown)?;
    let mut named = known.into_iter().filter(|(_, known)| *known == best).map(|(kind, _)| kind);
    match (named.next(), named.next()) {
        (Some(kind), None) => Ok(name_of(kind, called)),
        _ => Err(Unclear::Several(called.to_owned())),
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

fn too_many() -> Response {
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
    /// Notified when the process is to drain.
    pub drain: tokio::sync::Notify,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_two_protocols_have_is_not_enough() {
        let name = |kind: Kind| Ok(DatabaseName { protocol: kind.word(), database: "0".to_owned() });
        let meant = |protocol, postgres, redis| {
            meant("0", protocol, |kind| match kind {
                Kind::Postgres => postgres,
                Kind::Redis => redis,
                Kind::MongoDb => Known::No,
            })
        };
        assert_eq!(meant(None, Known::ByName, Known::No), name(Kind::Postgres));
        assert_eq!(meant(None, Known::ByName, Known::ByName), Err(Unclear::Several("0".to_owned())));
        assert_eq!(meant(Some(Kind::Redis), Known::ByName, Known::ByName), name(Kind::Redis));
        assert_eq!(meant(Some(Kind::Postgres), Known::ByName, Known::ByName), name(Kind::Postgres));
        assert_eq!(meant(None, Known::No, Known::No), Err(Unclear::Unknown));
        // What is called so in PostgreSQL is another database.
        let called = |kind| name_of(kind, "0/resp3").database;
        assert_eq!([called(Kind::Postgres), called(Kind::Redis)], ["0/resp3", "0"]);
        assert_eq!(meant(Some(Kind::Redis), Known::ByName, Known::No), Err(Unclear::Unknown));
    }

    #[test]
    fn the_log_has_whole_words_of_an_answer() {
        let pools = vec![json!({ "database": "shop" }); 40];
        let told = in_short(&json!({ "paused": true, "waited_ms": 12, "pools": pools }));
        assert_eq!(told, "paused: true, pools: 40, waited_ms: 12");
        assert_eq!(in_short(&json!({ "error": "there is no such client" })), "there is no such client");
        let long = in_short(&json!({ "error": "ä".repeat(MAX_LOGGED + 1) }));
        assert_eq!(long, format!("{}…", "ä".repeat(MAX_LOGGED)));
        let reloaded = in_short(&json!({ "reloaded": true, "notes": ["a"], "pools": { "followed": 2, "renewed": 1 } }));
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
