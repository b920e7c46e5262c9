//! Sources of looks: a Poolhouse over HTTP, a PostgreSQL or a PgBouncer's console over a lasting connection. Other
//! sources have files of their own.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use admin_api::{
    Activity, Backend, Client, Clients, Console, ConsoleAnswers, Look, MAX_BACKENDS, MAX_CONSOLE_ROWS, Row,
    ServerProcess, Servers,
};
use anyhow::{Context, bail};
use clients::postgres::{Answer, Querier};
use doctor::Line;
use settings::Secret;

use crate::remote::Remote;

/// Clients that are listed at the end, and holders at each look.
const MAX_CLIENTS: &str = "10000";
const MAX_HOLDERS: &str = "2000";
/// Servers that are listed at each look where the database is queried, too.
const MAX_SERVERS: &str = "5000";
/// Clients of a PgBouncer that are kept.
const MAX_CONSOLE_CLIENTS: usize = 10_000;
/// Bounds connecting, and an answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The name of connections.
const APPLICATION_NAME: &str = "poolhouse doctor";
/// Ends the version of a PgBouncer's console.
const CONSOLE_VERSION_SUFFIX: &str = "/bouncer";
/// The error of a server without a free connection. Digits alone may be a port.
const TOO_MANY_CONNECTIONS: &str = "SQLSTATE 53300";
/// The error of a PgBouncer for users that may not use its console.
const CONSOLE_FORBIDDEN: &str = "not allowed (SQLSTATE 08P01)";
/// Errors of a server that refuses a login.
const LOGIN_REFUSALS: [&str; 3] = ["SQLSTATE 28000", "SQLSTATE 28P01", "SQLSTATE 3D000"];

/// A source of looks.
pub trait Source {
    /// Looks. `began`: the beginning of the window.
    ///
    /// # Errors
    /// It does not answer, or not as it should.
    fn look(&mut self, began: Instant) -> anyhow::Result<Line>;

    /// The clients at the end, where looks do not have them.
    ///
    /// # Errors
    /// Those of looking.
    fn clients(&mut self) -> anyhow::Result<Vec<Client>>;

    /// The time for which the source shows the same figures.
    fn refresh_interval(&self) -> Duration {
        Duration::ZERO
    }
}

/// A Poolhouse.
pub struct PoolhouseSource {
    remote: Remote,
    backend: Option<BackendDatabase>,
}

impl PoolhouseSource {
    /// Sends nothing yet. `backend`: the database behind it, with its number of processors, if that is given.
    pub fn new(remote: Remote, backend: Option<Secret>, processors: Option<u32>) -> Self {
        Self { remote, backend: backend.map(|url| BackendDatabase::new(url, processors)) }
    }
}

impl Source for PoolhouseSource {
    fn look(&mut self, began: Instant) -> anyhow::Result<Line> {
        let mut look: Look = self.remote.get("/api/pools", &[])?;
        let holders: Clients = self.remote.get("/api/clients", &[("holders", "true"), ("limit", MAX_HOLDERS)])?;
        if let Some(backend) = &mut self.backend {
            let servers: Servers = self.remote.get("/api/servers", &[("limit", MAX_SERVERS)])?;
            if let Some(backends) = backend.backends()? {
                let of_postgres = servers.servers.iter().filter(|server| server.protocol == "postgres");
                let servers = of_postgres.filter_map(|server| {
                    Some(ServerProcess { database: &server.database, user: &server.user, pid: server.backend? })
                });
                look.set_work(servers, &backends, backend.processors());
            }
        }
        Ok(Line::Pooler { at_us: micros_since(began), look: Box::new(look), holders: holders.clients })
    }

    fn clients(&mut self) -> anyhow::Result<Vec<Client>> {
        let clients: Clients = self.remote.get("/api/clients", &[("limit", MAX_CLIENTS)])?;
        Ok(clients.clients)
    }
}

/// The database behind a pooler.
struct BackendDatabase {
    database: Database,
    /// When it last failed to answer.
    failed_at: Option<Instant>,
}

impl BackendDatabase {
    fn new(url: Secret, processors: Option<u32>) -> Self {
        Self { database: Database { url, processors: processors.map(u64::from), session: None }, failed_at: None }
    }

    fn processors(&self) -> Option<u64> {
        self.database.processors()
    }

    /// Its sessions; `None` while it does not answer, which the looks at the pooler show.
    ///
    /// # Errors
    /// The login of the URL is refused.
    fn backends(&mut self) -> anyhow::Result<Option<Vec<Backend>>> {
        if self.failed_at.is_some_and(|asked| asked.elapsed() < ANSWER_TIMEOUT) {
            return Ok(None);
        }
        let asked = self.database.sessions().map(|(backends, _)| Some(backends)).context("the database beside it");
        asked.or_else(|error| {
            let message = format!("{error:#}");
            if LOGIN_REFUSALS.iter().any(|refusal| message.contains(refusal)) {
                return Err(error);
            }
            if self.failed_at.is_none() {
                eprintln!("without {}", printable::lines(&message));
            }
            self.failed_at = Some(Instant::now());
            Ok(None)
        })
    }
}

/// A server that speaks SQL: a database, or the console of a PgBouncer.
pub struct SqlSource {
    url: Secret,
    querier: Option<Querier<'static>>,
    /// The database behind a PgBouncer.
    backend: Option<BackendDatabase>,
    database: Database,
    console: Console,
    /// The console has SHOW STATE.
    has_state: bool,
    clients: Vec<Client>,
}

impl SqlSource {
    /// Sends nothing yet.
    pub fn new(url: Secret, backend: Option<Secret>, processors: Option<u32>) -> Self {
        let database = Database { url: url.clone(), processors: processors.map(u64::from), session: None };
        let backend = backend.map(|url| BackendDatabase::new(url, processors));
        let (console, clients) = (Console::default(), Vec::new());
        Self { url, querier: None, backend, database, console, has_state: true, clients }
    }

    fn console(&mut self, began: Instant) -> anyhow::Result<Line> {
        let at_us = micros_since(began);
        let querier = self.querier.as_mut().expect("the console is connected to");
        let version = querier.version().unwrap_or_default();
        let mut show = |what: &str| -> anyhow::Result<(Vec<Row>, u64)> {
            let answer = querier.query_rows(&format!("SHOW {what}"), MAX_CONSOLE_ROWS, ANSWER_TIMEOUT)?;
            let left_out = answer.rows_left_out();
            Ok((rows(answer), left_out))
        };
        let (pools, stats, databases) = (show("POOLS")?.0, show("STATS")?.0, show("DATABASES")?.0);
        let (clients, clients_left_out) = show("CLIENTS")?;
        let mut shown = ConsoleAnswers {
            version: version.trim_end_matches(CONSOLE_VERSION_SUFFIX).to_owned(),
            pools,
            stats,
            databases,
            clients,
            clients_left_out,
            servers: show("SERVERS")?.0,
            state: None,
            config: show("CONFIG")?.0,
        };
        if self.has_state {
            shown.state = show("STATE").ok().map(|(rows, _)| rows);
            if shown.state.is_none() {
                // Where it is not known, it is not asked for again: each error is a line in PgBouncer's log. Or else
                // the connection is gone.
                show("VERSION")?;
                self.has_state = false;
            }
        }
        let backends = self.backend.as_mut().map(BackendDatabase::backends).transpose()?.flatten();
        let (mut look, holders, clients) = self.console.make_look(at_us as f64 / 1e3, &shown, backends.as_deref());
        if let (Some(backends), Some(backend)) = (&backends, &self.backend) {
            let servers = shown.servers.iter().filter_map(Console::server);
            look.set_work(servers, backends, backend.processors());
        }
        self.clients = clients;
        self.clients.truncate(MAX_CONSOLE_CLIENTS);
        Ok(Line::Pooler { at_us, look: Box::new(look), holders })
    }
}

impl Source for SqlSource {
    fn look(&mut self, began: Instant) -> anyhow::Result<Line> {
        if self.querier.is_none() && self.database.session.is_none() {
            let mut querier = connect(&self.url)?;
            if querier.version().is_some_and(|version| version.ends_with(CONSOLE_VERSION_SUFFIX)) {
                self.querier = Some(querier);
            } else if self.backend.is_some() {
                bail!(
                    "this is a database, and --database is for who looks at a PgBouncer's console (its database \
                     `pgbouncer`)"
                );
            } else {
                self.database.begin(querier)?;
            }
        }
        let looked = match self.querier {
            Some(_) => self.console(began),
            None => {
                self.database.look().map(|look| Line::Postgres { at_us: micros_since(began), look: Box::new(look) })
            }
        };
        if looked.is_err() {
            // It may have been restarted: the next look connects anew.
            (self.querier, self.database.session) = (None, None);
        }
        looked
    }

    fn clients(&mut self) -> anyhow::Result<Vec<Client>> {
        Ok(std::mem::take(&mut self.clients))
    }
}

/// A PostgreSQL.
struct Database {
    url: Secret,
    processors: Option<u64>,
    session: Option<Connection>,
}

/// A connection.
struct Connection {
    querier: Querier<'static>,
    /// The query of the server's figures.
    query: String,
    /// The server runs on this machine.
    is_local: bool,
    /// A pooler answers in its place.
    is_pooled: bool,
}

impl Connection {
    fn processors(&self) -> Option<u64> {
        let here = self.is_local.then(|| std::thread::available_parallelism().ok()).flatten();
        here.map(|count| count.get() as u64)
    }
}

impl Database {
    fn begin(&mut self, mut querier: Querier<'static>) -> anyhow::Result<&mut Connection> {
        let first = rows(querier.query_rows(Activity::VERSION_QUERY, 1, ANSWER_TIMEOUT)?)
            .into_iter()
            .next()
            .unwrap_or_default();
        let figure = |name: &str| first.get(name).and_then(|text| text.parse::<u64>().ok());
        let number = figure("number").context("it does not tell its version")?;
        let query = Activity::server_query(number).map_err(anyhow::Error::msg)?;
        let is_local = figure("pid").is_some_and(is_local_postgres);
        let is_pooled = querier.process().zip(figure("pid")).is_some_and(|(here, there)| u64::from(here) != there);
        Ok(self.session.insert(Connection { querier, query, is_local, is_pooled }))
    }

    fn connected(&mut self) -> anyhow::Result<&mut Connection> {
        if self.session.is_none() {
            let querier = connect(&self.url)?;
            self.begin(querier)?;
        }
        Ok(self.session.as_mut().expect("it was just connected to"))
    }

    /// Its sessions, and the number of further ones.
    fn sessions(&mut self) -> anyhow::Result<(Vec<Backend>, u64)> {
        let asked = self.connected()?.querier.query_rows(Activity::SESSIONS_QUERY, MAX_BACKENDS, ANSWER_TIMEOUT);
        if asked.is_err() {
            self.session = None;
        }
        let answer = asked?;
        let left_out = answer.rows_left_out();
        Ok((rows(answer).iter().filter_map(Backend::read).collect(), left_out))
    }

    fn look(&mut self) -> anyhow::Result<Activity> {
        let processors = self.processors;
        let session = self.connected()?;
        let server = rows(session.querier.query_rows(&session.query, 1, ANSWER_TIMEOUT)?);
        let sessions = session.querier.query_rows(Activity::SESSIONS_QUERY, MAX_BACKENDS, ANSWER_TIMEOUT)?;
        let left_out = sessions.rows_left_out();
        let server = server.into_iter().next().unwrap_or_default();
        let look = Activity::read(&server, &rows(sessions), left_out).map_err(anyhow::Error::msg)?;
        let known = Activity { processors: processors.or(session.processors()), is_pooled: session.is_pooled, ..look };
        Ok(known)
    }

    /// The processors of its machine, if they are given or the machine is this one.
    fn processors(&self) -> Option<u64> {
        self.processors.or_else(|| self.session.as_ref()?.processors())
    }
}

/// Whether the process of that number is a PostgreSQL of this machine, and not of another one at the end of a tunnel.
fn is_local_postgres(pid: u64) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == "postgres")
}

fn connect(url: &Secret) -> anyhow::Result<Querier<'static>> {
    Querier::connect_to(url, APPLICATION_NAME, ANSWER_TIMEOUT).map_err(|error| {
        let message = error.to_string();
        if message.contains(TOO_MANY_CONNECTIONS) {
            let why = "every connection that it allows is taken, and that itself is what is wrong: pg_stat_activity, \
                       read by a superuser, tells by whom";
            return anyhow::anyhow!("{message}: {why}");
        }
        if message.contains(CONSOLE_FORBIDDEN) {
            let why = "a PgBouncer shows its console to users that its `stats_users` or `admin_users` names: log in as \
                       one of them, or add this one to stats_users and RELOAD";
            return anyhow::anyhow!("{message}: {why}");
        }
        error.into()
    })
}

fn rows(answer: Answer) -> Vec<Row> {
    let row = |row: clients::postgres::Row| -> BTreeMap<String, String> {
        row.into_iter().filter_map(|(name, value)| Some((name.into(), value?.into()))).collect()
    };
    answer.kept.into_iter().map(row).collect()
}

/// Since the beginning of the window.
pub fn micros_since(began: Instant) -> u64 {
    began.elapsed().as_micros() as u64
}
