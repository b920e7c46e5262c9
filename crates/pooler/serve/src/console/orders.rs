//! What changes something: orders for databases, clients and the process.

use std::{sync::Arc, time::Duration};

use console::{Answer, Command, Failure, Shutdown};
use driver::{DatabaseName, PoolState};
use upstream::Kind;

use super::Console;
use crate::{config::FALLBACK, reload::one_line, signals::Manner};

const RELOAD_FAILED: &str = "RELOAD failed, see logs for additional details";
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Logs an order, and who gave it. Values of SET may be secrets.
pub fn log(command: &Command, user: &str) {
    match command {
        Command::Show(_) => tracing::debug!(user, ?command, "asked at the console"),
        Command::Set { key, .. } => tracing::info!(user, order = "SET", key, "ordered at the console"),
        order => tracing::info!(user, ?order, "ordered at the console"),
    }
}

impl Console {
    /// Carries out a command other than SHOW.
    pub async fn carry_out(self: &Arc<Self>, command: Command) -> Result<Answer, Failure> {
        match command {
            Command::Pause(database) => self.pause(database).await,
            Command::Resume(database) => self.resume(database),
            Command::Reconnect(database) => {
                let name = self.name_of(database, "reconnect")?;
                self.handle.reconnect(name.as_ref());
                Ok(Answer::done("RECONNECT"))
            }
            Command::WaitClose(database) => self.wait_close(database).await,
            Command::Kill(database) => {
                let name = self.name_of(database, "kill")?;
                remembered(self.handle.kill_database(name.as_ref()), "KILL")
            }
            Command::Disable(database) => {
                let name = self.name_of(database, "disable")?;
                remembered(self.handle.disable(name.as_ref()), "DISABLE")
            }
            Command::Enable(database) => {
                let name = self.name_of(database, "enable")?;
                remembered(self.handle.enable(name.as_ref()), "ENABLE")
            }
            Command::KillClient(client) => self.kill_client(client).await,
            Command::Reload => self.reload().await,
            Command::Shutdown(how) => {
                let control = self.admin.control();
                match how {
                    Shutdown::Now => control.ending.give(Manner::AtOnce),
                    Shutdown::WaitForServers => control.drain.order(None),
                    Shutdown::WaitForClients => control.ending.give(Manner::Leave),
                }
                Ok(Answer::done("SHUTDOWN"))
            }
            Command::Set { key, value } => self.set(&key, &value).await,
            Command::Show(_) | Command::ShowParameter(..) | Command::IgnoredSet => {
                unreachable!("they are answered elsewhere")
            }
        }
    }

    /// Makes clients wait, and returns when no server is left.
    async fn pause(&self, database: Option<String>) -> Result<Answer, Failure> {
        let name = self.name_of(database, "pause")?;
        if name.is_none() && self.handle.are_all_paused() {
            return Err(Failure::new("already paused"));
        }
        remembered(self.handle.pause(name.as_ref()), "PAUSE")?;
        while !self.pools(name.as_ref()).iter().all(|pool| pool.counts.total == 0) {
            tokio::time::sleep(POLL_INTERVAL).await;
            if !self.is_paused(name.as_ref()) {
                return Err(Failure::new("resumed before all servers were released"));
            }
        }
        Ok(Answer::done("PAUSE"))
    }

    fn resume(&self, database: Option<String>) -> Result<Answer, Failure> {
        if self.admin.is_draining() {
            return Err(Failure::new("pooler is shutting down"));
        }
        let name = self.name_of(database, "resume")?;
        match &name {
            Some(name) if !self.is_paused(Some(name)) => {
                return Err(Failure::new(format!("database {} is not paused", name.database)));
            }
            None if !self.handle.are_all_paused() => return Err(Failure::new("pooler is not paused")),
            _ => {}
        }
        remembered(self.handle.resume(name.as_ref()), "RESUME")
    }

    /// Returns when all servers that a reload or RECONNECT has outdated are closed.
    async fn wait_close(&self, database: Option<String>) -> Result<Answer, Failure> {
        let name = self.name_of(database, "wait_close")?;
        while !self.pools(name.as_ref()).iter().all(|pool| pool.stale == 0) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(Answer::done("WAIT_CLOSE"))
    }

    /// Closes a client, by the id or the `ptr` of SHOW CLIENTS.
    async fn kill_client(self: &Arc<Self>, client: String) -> Result<Answer, Failure> {
        let digits = client.strip_prefix("0x").map_or_else(|| client.parse(), |hex| u64::from_str_radix(hex, 16));
        let is_number = client.bytes().next().is_some_and(|first| first.is_ascii_digit());
        let id = match digits {
            Ok(id) => super::sockets::id_of_pointer(id),
            // A number that no id reaches.
            Err(_) if is_number => u64::MAX,
            Err(_) => return Err(Failure::new("invalid client pointer supplied")),
        };
        let handle = self.handle.clone();
        let killed = tokio::task::spawn_blocking(move || handle.kill(id)).await.unwrap_or(false);
        if killed { Ok(Answer::done("KILL_CLIENT")) } else { Err(Failure::new("client not found")) }
    }

    async fn reload(self: &Arc<Self>) -> Result<Answer, Failure> {
        let console = Arc::clone(self);
        let reloaded = tokio::task::spawn_blocking(move || console.reloader().reload()).await;
        match reloaded {
            Ok(Ok(_)) => Ok(Answer::done("RELOAD")),
            Ok(Err(problems)) => {
                let problems: Vec<String> = problems.0.iter().map(one_line).collect();
                let hint = format!("the old configuration stays in force: {}", problems.join("; "));
                Err(Failure::of_configuration(RELOAD_FAILED).hint(hint))
            }
            Err(_) => Err(Failure::of_configuration(RELOAD_FAILED)),
        }
    }

    /// The pools that an order is for.
    fn pools(&self, name: Option<&DatabaseName>) -> Vec<PoolState> {
        self.handle.pools(name)
    }

    /// Whether a database is paused by an order of its own, or all are.
    pub(super) fn is_paused(&self, name: Option<&DatabaseName>) -> bool {
        match name {
            Some(name) => self.handle.is_ordered(name) && self.handle.order_for(name).is_paused(),
            None => self.handle.are_all_paused(),
        }
    }

    /// The name in orders of a database of PostgreSQL; `None` is all.
    fn name_of(&self, database: Option<String>, verb: &str) -> Result<Option<DatabaseName>, Failure> {
        let Some(database) = database else { return Ok(None) };
        let config = self.reloader().in_force();
        if database == config.console.name {
            return Err(match verb {
                "resume" => Failure::new(format!("database {database} is not paused")),
                verb => Failure::new(format!("cannot {verb} admin db: {database}")),
            });
        }
        let configured = |name: &str| config.databases_of(Kind::Postgres).any(|database| database.name == name);
        let name = postgres_database(database);
        let is_known = || configured(&name.database) || configured(FALLBACK) || self.handle.is_ordered(&name);
        if is_known() || !self.handle.pools(Some(&name)).is_empty() {
            Ok(Some(name))
        } else {
            Err(Failure::new(format!("no such database: {}", name.database)))
        }
    }
}

/// The name of a database of PostgreSQL in orders.
pub fn postgres_database(database: String) -> DatabaseName {
    DatabaseName { protocol: Kind::Postgres.word(), database }
}

/// The answer to an order, unless too many databases have orders of their own.
fn remembered(is_remembered: bool, tag: &str) -> Result<Answer, Failure> {
    if is_remembered {
        return Ok(Answer::done(tag));
    }
    Err(Failure::new("too many databases have orders of their own").hint("give an order for all databases"))
}
