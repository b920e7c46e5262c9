//! What can be looked at, and how it is asked: a Poolhouse over HTTP, a PostgreSQL or a PgBouncer's console over a
//! connection that stays. Others have files of their own.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use admin_api::{
    Activity, Backend, Client, Clients, Console, ConsoleAnswers, Look, MAX_BACKENDS, MAX_CONSOLE_ROWS, PoolServer, Row,
    Servers,
};
use anyhow::{Context, bail};
use clients::postgres::{Answer, Querier};
use doctor::Line;
use settings::Secret;

use crate::remote::Remote;

/// Clients that are asked for at the end, and holders at each look.
const MAX_CLIENTS: &str = "10000";
const MAX_HOLDERS: &str = "2000";
/// Servers that are asked for at each look where the database is asked, too.
const MAX_SERVERS: &str = "5000";
/// Clients of a PgBouncer that are kept.
const MAX_CONSOLE_CLIENTS: usize = 10_000;
/// Bounds connecting, and an answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// What connections call themselves.
const APPLICATION_NAME: &str = "poolhouse doctor";
/// How a PgBouncer's console ends what it calls its version.
const CONSOLE_VERSION_SUFFIX: &str = "/bouncer";
/// What a server says when it has no connection left, and to whom it lets in by no such URL. Digits alone may be a
/// port.
const TOO_MANY_CONNECTIONS: &str = "SQLSTATE 53300";
/// What a PgBouncer says to who may not use its console.
const CONSOLE_FORBIDDEN: &str = "not allowed (SQLSTATE 08P01)";
const LOGIN_REFUSALS: [&str; 3] = ["SQLSTATE 28000", "SQLSTATE 28P01", "SQLSTATE 3D000"];

/// Something that can be looked at.
pub trait Source {
    /// Looks. `began`: the beginning of the window.
    ///
    /// # Errors
    /// It does not answer, or not as it should.
    fn look(&mut self, began: Instant) -> anyhow::Result<Line>;

    /// Who is there at the end, where a look does not tell.
    ///
    /// # Errors
    /// Those of looking.
    fn clients(&mut self) -> anyhow::Result<Vec<Client>>;

    /// What it shows is for so long the same: who looks again sooner sees some of it a second time.
    fn stale_for(&self) -> Duration {
        Duration::ZERO
    }
}

/// A Poolhouse.
pub struct Admin {
    remote: Remote,
    beside: Option<Neighbour>,
}

impl Admin {
    /// Asks nothing yet. `beside`: the database behind it, and on how many processors that runs, if that was said.
    pub fn new(remote: Remote, beside: Option<Secret>, processors: Option<u32>) -> Self {
        Self { remote, beside: beside.map(|url| Neighbour::new(url, processors)) }
    }
}

impl Source for Admin {
    fn look(&mut self, began: Instant) -> anyhow::Result<Line> {
        let mut look: Look = self.remote.look("/api/pools", &[])?;
        let holders: Clients = self.remote.look("/api/clients", &[("holders", "true"), ("limit", MAX_HOLDERS)])?;
        if let Some(beside) = &mut self.beside {
            let servers: Servers = self.remote.look("/api/servers", &[("limit", MAX_SERVERS)])?;
            if let Some(backends) = beside.backends()? {
                let of_postgres = servers.servers.iter().filter(|server| server.protocol == "postgres");
                let servers = of_postgres.filter_map(|server| {
                    Some(PoolServer { database: &server.database, user: &server.user, pid: server.backend? })
                });
                look.set_work(servers, &backends, beside.processors());
            }
        }
        Ok(Line::Pooler { at_us: micros(began), look: Box::new(look), holders: holders.clients })
    }

    fn clients(&mut self) -> anyhow::Result<Vec<Client>> {
        let clients: Clients = self.remote.look("/api/clients", &[("limit", MAX_CLIENTS)])?;
        Ok(clients.clients)
    }
}

/// The database behind a pooler, which says what its sessions do.
struct Neighbour {
    database: Database,
    /// When it was last asked in vain.
    silent: Option<Instant>,
}

impl Neighbour {
    fn new(url: Secret, processors: Option<u32>) -> Self {
        Self { database: Database { url, processors: processors.map(u64::from), known: None }, silent: None }
    }

    fn processors(&self) -> Option<u64> {
        self.database.processors()
    }

    /// Its sessions. None while it does not answer: what is wrong then the pooler shows.
    ///
    /// # Errors
    /// The login of the URL is refused.
    fn backends(&mut self) -> anyhow::Result<Option<Vec<Backend>>> {
        if self.silent.is_some_and(|asked| asked.elapsed() < ANSWER_TIMEOUT) {
            return Ok(None);
        }
        let asked = self.database.sessions().map(|(backends, _)| Some(backends)).context("the database beside it");
        asked.or_else(|error| {
            let message = format!("{error:#}");
            if LOGIN_REFUSALS.iter().any(|refusal| message.contains(refusal)) {
                return Err(error);
            }
            if self.silent.is_none() {
                eprintln!("without {}", printable::lines(&message));
            }
            self.silent = Some(Instant::now());
            Ok(None)
        })
    }
}

/// What is asked in SQL: it tells itself whether it is a database or the console of a PgBouncer.
pub struct Sql {
    url: Secret,
    querier: Option<Querier<'static>>,
    /// The database behind a PgBouncer.
    beside: Option<Neighbour>,
    database: Database,
    console: Console,
    /// The console has SHOW STATE.
    has_state: bool,
    clients: Vec<Client>,
}

impl Sql {
    /// Asks nothing yet.
    pub fn new(url: Secret, beside: Option<Secret>, processors: Option<u32>) -> Self {
        let database = Database { url: url.clone(), processors: processors.map(u64::from), known: None };
        let beside = beside.map(|url| Neighbour::new(url, processors));
        let (console, clients) = (Console::default(), Vec::new());
        Self { url, querier: None, beside, database, console, has_state: true, clients }
    }

    fn console(&mut self, began: Instant) -> anyhow::Result<Line> {
        let at_us = micros(began);
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
        let backends = self.beside.as_mut().map(Neighbour::backends).transpose()?.flatten();
        let (mut look, holders, clients) = self.console.look(at_us as f64 / 1e3, &shown, backends.as_deref());
        if let (Some(backends), Some(beside)) = (&backends, &self.beside) {
            let servers = shown.servers.iter().filter_map(Console::server);
            look.set_work(servers, backends, beside.processors());
        }
        self.clients = clients;
        self.clients.truncate(MAX_CONSOLE_CLIENTS);
        Ok(Line::Pooler { at_us, look: Box::new(look), holders })
    }
}

impl Source for Sql {
    fn look(&mut self, began: Instant) -> anyhow::Result<Line> {
        if self.querier.is_none() && self.database.known.is_none() {
            let mut querier = connect(&self.url)?;
            if querier.version().is_some_and(|version| version.ends_with(CONSOLE_VERSION_SUFFIX)) {
                self.querier = Some(querier);
            } else if self.beside.is_some() {
                bail!(
                    "this is a database, and --database is for who looks at a PgBouncer's console (its database `pgbouncer`)"
                );
            } else {
                self.database.begin(querier)?;
            }
        }
        let looked = match self.querier {
            Some(_) => self.console(began),
            None => self.database.look().map(|look| Line::Postgres { at_us: micros(began), look: Box::new(look) }),
        };
        if looked.is_err() {
            // It may have been restarted: the next look connects anew.
            (self.querier, self.database.known) = (None, None);
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
    known: Option<Known>,
}

/// One that is connected to.
struct Known {
    querier: Querier<'static>,
    /// What asks for its own figures.
    question: String,
    /// It runs on this machine.
    is_here: bool,
    /// A pooler answers in its place.
    is_pooled: bool,
}

impl Known {
    fn processors(&self) -> Option<u64> {
        let here = self.is_here.then(|| std::thread::available_parallelism().ok()).flatten();
        here.map(|count| count.get() as u64)
    }
}

impl Database {
    fn begin(&mut self, mut querier: Querier<'static>) -> anyhow::Result<&mut Known> {
        let first =
            rows(querier.query_rows(Activity::VERSION_QUERY, 1, ANSWER_TIMEOUT)?).into_iter().next().unwrap_or_default();
        let figure = |name: &str| first.get(name).and_then(|text| text.parse::<u64>().ok());
        let number = figure("number").context("it does not tell its version")?;
        let question = Activity::server_query(number).map_err(anyhow::Error::msg)?;
        let is_here = figure("pid").is_some_and(runs_here);
        let is_pooled = querier.process().zip(figure("pid")).is_some_and(|(here, there)| u64::from(here) != there);
        Ok(self.known.insert(Known { querier, question, is_here, is_pooled }))
    }

    fn connected(&mut self) -> anyhow::Result<&mut Known> {
        if self.known.is_none() {
            let querier = connect(&self.url)?;
            self.begin(querier)?;
        }
        Ok(self.known.as_mut().expect("it was just connected to"))
    }

    /// Its sessions, and how many more there are.
    fn sessions(&mut self) -> anyhow::Result<(Vec<Backend>, u64)> {
        let asked = self.connected()?.querier.query_rows(Activity::SESSIONS_QUERY, MAX_BACKENDS, ANSWER_TIMEOUT);
        if asked.is_err() {
            self.known = None;
        }
        let answer = asked?;
        let left_out = answer.rows_left_out();
        Ok((rows(answer).iter().filter_map(Backend::read).collect(), left_out))
    }

    fn look(&mut self) -> anyhow::Result<Activity> {
        let processors = self.processors;
        let known = self.connected()?;
        let server = rows(known.querier.query_rows(&known.question, 1, ANSWER_TIMEOUT)?);
        let sessions = known.querier.query_rows(Activity::SESSIONS_QUERY, MAX_BACKENDS, ANSWER_TIMEOUT)?;
        let left_out = sessions.rows_left_out();
        let server = server.into_iter().next().unwrap_or_default();
        let look = Activity::read(&server, &rows(sessions), left_out).map_err(anyhow::Error::msg)?;
        let known = Activity { processors: processors.or(known.processors()), is_pooled: known.is_pooled, ..look };
        Ok(known)
    }

    /// Those of its machine, if that was said or is this one.
    fn processors(&self) -> Option<u64> {
        self.processors.or_else(|| self.known.as_ref()?.processors())
    }
}

/// Whether the process of that number is a PostgreSQL of this machine, and not of another one at the end of a tunnel.
fn runs_here(pid: u64) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == "postgres")
}

fn connect(url: &Secret) -> anyhow::Result<Querier<'static>> {
    Querier::connect_to(url, APPLICATION_NAME, ANSWER_TIMEOUT).map_err(|error| {
        let message = error.to_string();
        if message.contains(TOO_MANY_CONNECTIONS) {
            let why = "every connection that it allows is taken, and that itself is what is wrong: pg_stat_activity, read by a superuser, \
                       tells by whom";
            return anyhow::anyhow!("{message}: {why}");
        }
        if message.contains(CONSOLE_FORBIDDEN) {
            let why = "a PgBouncer shows its console to users that its `stats_users` or `admin_users` names: log in as one of them, or add this \
                       one to stats_users and RELOAD";
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
pub fn micros(began: Instant) -> u64 {
    began.elapsed().as_micros() as u64
}
