//! Reload of the configuration. If the new one has an error, the old one stays in force; what takes a restart to change
//! is reported.

use std::sync::{
    Arc, Mutex, PoisonError, RwLock,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use ::pgbouncer::Translation;
use driver::{Changes, DatabaseName, Handle};
use settings::{Problem, Problems, Severity};
use upstream::Kind;

use crate::{
    certificates::{KnownCertificate, certificates},
    check::{Machine, check},
    config::{Config, Listener, Source},
    live_pools::{LivePools, Succession},
    logs::LogControl,
    password_commands::{CommandStatus, PasswordCommands},
    peers::Peers,
    pools::ConfigPools,
    read::{again, named_files_again, with_setting},
    seeds::look_up_hosts,
    tls::Tls,
};

pub struct Reloader {
    handle: Handle,
    pools: Arc<LivePools>,
    /// The TLS settings of the opened listeners.
    tls: Arc<Tls>,
    /// The programs that give passwords of databases.
    commands: Arc<PasswordCommands>,
    certificates: RwLock<Arc<[KnownCertificate]>>,
    logs: LogControl,
    /// The configuration at start. Its listeners are open, in its order, and settings that take a restart follow it.
    first: Arc<Config>,
    in_force: RwLock<Arc<Config>>,
    /// Held during a reload. Readers do not take it.
    reloading: Mutex<()>,
    failed: AtomicU64,
    done: AtomicU64,
    is_behind: AtomicBool,
}

/// Counts of reloads.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReloadCounts {
    pub failed: u64,
    pub done: u64,
    /// Whether the last reload failed, so that the file is not what runs. Always false without a file.
    pub is_behind: bool,
}

/// What a successful reload changed.
#[derive(Debug)]
pub struct Reloaded {
    pub pools: Succession,
    /// Warnings, and changes that take a restart; each on one line.
    pub notes: Vec<String>,
}

/// Whether a setting that was set is in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Applied {
    Now,
    /// With the next one that is set, if both together make sense.
    Later,
}

/// Whether a setting names a file of TLS, which belongs to another one.
fn is_of_tls(key: &str) -> bool {
    ["client_tls_", "server_tls_"].iter().any(|side| key.starts_with(side)) && key.ends_with("_file")
}

impl Reloader {
    /// Objects in a pool's database that could change a session without a trace in the statement's text.
    pub fn suspicious(&self, pool: seam::PoolId) -> Arc<[String]> {
        self.pools.suspicious(pool)
    }

    /// For a process that has just started with `config`.
    pub fn new(
        handle: Handle,
        pools: Arc<LivePools>,
        config: Arc<Config>,
        tls: Arc<Tls>,
        commands: Arc<PasswordCommands>,
        logs: LogControl,
    ) -> Self {
        let certificates = RwLock::new(certificates(&config).into());
        let (first, in_force) = (Arc::clone(&config), RwLock::new(config));
        let (failed, done, is_behind) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        Self {
            handle,
            pools,
            tls,
            commands,
            certificates,
            logs,
            first,
            in_force,
            reloading: Mutex::new(()),
            failed,
            done,
            is_behind,
        }
    }

    /// The certificates of the configuration in force.
    pub fn certificates(&self) -> Arc<[KnownCertificate]> {
        Arc::clone(&self.certificates.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is known of the programs that give passwords.
    pub fn password_commands(&self) -> Vec<CommandStatus> {
        self.commands.status()
    }

    pub fn in_force(&self) -> Arc<Config> {
        Arc::clone(&self.in_force.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn count(&self) -> ReloadCounts {
        let (failed, done, is_behind) = (&self.failed, &self.done, &self.is_behind);
        ReloadCounts { failed: failed.load(Relaxed), done: done.load(Relaxed), is_behind: is_behind.load(Relaxed) }
    }

    /// Reads the configuration and all files that it names, and puts it in force. Both outcomes are logged. Reading
    /// files may block.
    ///
    /// # Errors
    /// When the new configuration has an error; the old one then stays in force.
    pub fn reload(&self) -> Result<Reloaded, Problems> {
        self.reload_with(again)
    }

    /// Reads the files again that the configuration names, and not the configuration itself.
    ///
    /// # Errors
    /// As [`Reloader::reload`].
    pub fn reload_named_files(&self) -> Result<Reloaded, Problems> {
        self.reload_with(named_files_again)
    }

    fn reload_with(&self, read_again: ReadAgain) -> Result<Reloaded, Problems> {
        let _reloading = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = read(&self.in_force(), &self.first.listeners, read_again).and_then(|(config, warnings)| {
            let tls = self.tls.renew(&config)?;
            Ok(self.put_in_force(config, tls, &warnings))
        });
        // Whatever became of it, a log file that was moved away is opened anew.
        if let Err(error) = self.logs.reopen(&self.in_force().log) {
            tracing::error!("{error}");
        }
        match &outcome {
            Ok(Reloaded { pools, notes, .. }) => {
                self.done.fetch_add(1, Relaxed);
                self.is_behind.store(false, Relaxed);
                notes.iter().for_each(|note| tracing::warn!("{note}"));
                let Succession { followed, renewed, left_behind } = *pools;
                tracing::info!(followed, renewed, left_behind, "configuration read again");
            }
            Err(problems) => {
                self.failed.fetch_add(1, Relaxed);
                self.is_behind.store(self.in_force().source.is_some(), Relaxed);
                let errors = problems.0.iter().filter(|problem| problem.severity == Severity::Error);
                errors.for_each(|problem| tracing::error!("{}", one_line(problem)));
                tracing::error!("the configuration was not read again: the old one stays in force");
            }
        }
        outcome
    }

    /// Replaces the configuration in force by what `renew` makes of it, if anything. Returns the second value of
    /// `renew`.
    pub fn replace_config_with<T>(&self, renew: impl FnOnce(&Config) -> (Option<Config>, T)) -> T {
        let _reloading = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let (config, said) = renew(&self.in_force());
        let Some(config) = config else { return said };
        match self.tls.renew(&config) {
            Ok(tls) => {
                let Succession { followed, renewed, left_behind } = self.put_in_force(config, tls, &[]).pools;
                tracing::info!(followed, renewed, left_behind, "the hosts of a mongodb+srv:// name have changed");
            }
            Err(problems) => problems.0.iter().for_each(|problem| tracing::error!("{}", one_line(problem))),
        }
        said
    }

    /// Whether each server of a pool is made for one client.
    pub fn is_dedicated(&self, pool: seam::PoolId) -> bool {
        self.pools.is_dedicated(pool)
    }

    /// How servers of a pool return to it; `None` if the pool has been forgotten.
    pub fn mode(&self, pool: seam::PoolId) -> Option<crate::config::Mode> {
        self.pools.mode(pool)
    }

    /// The processes that cancel requests are handed on to.
    pub fn peers(&self) -> Option<&Peers> {
        self.pools.peers()
    }

    /// Changes the configuration in force, until the file is read again.
    ///
    /// # Errors
    /// When `change` refuses (`None`), or the outcome makes no sense.
    pub fn change(&self, change: impl FnOnce(&mut Config) -> Result<(), ()>) -> Result<(), Option<String>> {
        let _reloading = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let mut config = (*self.in_force()).clone();
        change(&mut config).map_err(|()| None)?;
        let problems = check(&config, Machine::here());
        if let Some(problem) = problems.iter().find(|problem| problem.severity == Severity::Error) {
            return Err(Some(one_line(problem)));
        }
        let pools = config.databases.iter().map(|database| &database.pool).chain([&config.pool]);
        for pool in pools {
            pool.config.validate().map_err(|error| Some(error.to_string()))?;
        }
        let tls = self.tls.renew(&config).map_err(|problems| problems.0.first().map(one_line))?;
        self.put_in_force(config, tls, &[]);
        Ok(())
    }

    /// Sets a setting of a file of PgBouncer's, until the file is read again. `None` if the configuration is of another
    /// kind.
    ///
    /// # Errors
    /// When the value makes no sense, or what comes of it; nothing changes then.
    pub fn set(&self, key: &str, value: &str) -> Option<Result<Applied, Problems>> {
        let _reloading = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let in_force = self.in_force();
        let source = in_force.source.as_ref()?;
        let translation = source.translation.as_ref()?;
        let outcome = self.set_in(&in_force, translation, key, value);
        if let (Err(problems), true) = (&outcome, is_of_tls(key)) {
            problems.0.iter().for_each(|problem| tracing::warn!("not applied yet: {}", one_line(problem)));
            let translation = Some(Arc::new(translation.keeping(key, value)));
            let source = Some(Source { translation, ..source.clone() });
            let config = Config { source, ..(*in_force).clone() };
            *self.in_force.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
            return Some(Ok(Applied::Later));
        }
        Some(outcome.map(|()| Applied::Now))
    }

    fn set_in(&self, in_force: &Config, translation: &Translation, key: &str, value: &str) -> Result<(), Problems> {
        let changed = |source: &Source, _| with_setting(&source.path, translation, key, value);
        let (config, _) = read(in_force, &self.first.listeners, changed)?;
        let (mut before, mut after) = (Vec::new(), Vec::new());
        note_restarts(&self.first, in_force, &mut before);
        note_restarts(&self.first, &config, &mut after);
        if let Some(note) = after.into_iter().find(|note| !before.contains(note)) {
            return Err(Problem::error(note).into());
        }
        let tls = self.tls.renew(&config)?;
        self.logs.reopen(&config.log).map_err(Problem::error)?;
        self.put_in_force(config, tls, &[]);
        Ok(())
    }

    fn put_in_force(&self, config: Config, tls: Tls, warnings: &[Problem]) -> Reloaded {
        let mut notes: Vec<String> = warnings.iter().map(one_line).collect();
        note_restarts(&self.first, &config, &mut notes);
        let listeners = self.first.listeners.iter().map(|opened| {
            let now = config.listeners.iter().find(|listener| listener.listen == opened.listen).unwrap_or(opened);
            (now.gate, now.timeouts)
        });
        let changes = Changes {
            listeners: listeners.collect(),
            max_clients: config.limits.max_clients,
            max_auth_failures: config.serve.max_auth_failures,
            name_failure_ttl: config.dns.failure_ttl,
            logged: config.logged_connections(),
        };
        self.logs.follow(&config);
        // New programs have given their passwords before a server connects.
        self.commands.follow(&config);
        *self.certificates.write().unwrap_or_else(PoisonError::into_inner) = certificates(&config).into();
        let config = Arc::new(config);
        let pools = self.pools.make_current(ConfigPools::new(Arc::clone(&config), Arc::new(tls)));
        self.handle.reconfigure(&changes);
        if let Some(peers) = self.pools.peers() {
            peers.follow(&config);
        }
        if config.is_in_place_of_pgbouncer() {
            self.close_removed_databases();
        }
        *self.in_force.write().unwrap_or_else(PoisonError::into_inner) = config;
        Reloaded { pools, notes }
    }

    /// Ends the clients of databases that are no longer configured, as PgBouncer does.
    fn close_removed_databases(&self) {
        for database in self.pools.removed_databases() {
            tracing::info!(%database, "the database was removed: its connections are closed");
            let name = DatabaseName { protocol: Kind::Postgres.word(), database: database.to_string() };
            self.handle.close_all_of(Some(&name));
        }
    }
}

/// What makes a configuration of the source of another one.
type ReadAgain = fn(&Source, bool) -> Result<Config, Problems>;

/// Reads the file of the configuration in force; `opened` are the open listeners. Returns warnings, too.
fn read(
    in_force: &Config,
    opened: &[Listener],
    read_again: impl FnOnce(&Source, bool) -> Result<Config, Problems>,
) -> Result<(Config, Vec<Problem>), Problems> {
    let Some(source) = &in_force.source else {
        let problem = Problem::error("there is no configuration file to read again: all was given on the command line");
        return Err(problem.hint("start with --config, or restart with other arguments").into());
    };
    let config = read_again(source, in_force.insecure_no_auth)?;
    let config = look_up_hosts(config, Some(in_force))?;
    let serves = |listener: &Listener| config.databases_of(listener.kind).next().is_some();
    if !opened.iter().any(serves) {
        let problem = Problem::error("the file is for another kind of database than what is served");
        return Err(problem.hint("start another Poolhouse with it").into());
    }
    for listener in opened {
        let now = config.listeners.iter().find(|now| now.listen == listener.listen);
        if let Some(now) = now.filter(|now| now.kind != listener.kind) {
            let (before, now) = (listener.kind.name(), now.kind.name());
            let problem =
                Problem::error(format!("{} is for clients of {before}, and {now} in the file", listener.listen));
            return Err(problem.hint("restart Poolhouse for that").into());
        }
    }
    let problems = check(&config, Machine::here());
    if problems.iter().any(|problem| problem.severity == Severity::Error) {
        return Err(Problems(problems));
    }
    Ok((config, problems))
}

/// Notes the changes that take a restart.
fn note_restarts(old: &Config, new: &Config, notes: &mut Vec<String>) {
    let mut note = |what: String| notes.push(format!("{what}: restart Poolhouse for that"));
    let opened = |config: &Config, listener: &Listener| config.listeners.iter().any(|l| l.listen == listener.listen);
    for listener in new.listeners.iter().filter(|listener| !opened(old, listener)) {
        note(format!("the listener {} is new", listener.listen));
    }
    for listener in old.listeners.iter().filter(|listener| !opened(new, listener)) {
        note(format!("the listener {} is gone from the file and goes on listening", listener.listen));
    }
    for listener in &new.listeners {
        let before = old.listeners.iter().find(|l| l.listen == listener.listen);
        if before.is_some_and(|before| before.socket_mode != listener.socket_mode) {
            note(format!("socket_mode of {} has changed", listener.listen));
        }
        if before.is_some_and(|before| before.more != listener.more) {
            note(format!("the addresses beside {} have changed", listener.listen));
        }
        if before.is_some_and(|before| before.backlog != listener.backlog) {
            note(format!("backlog of {} has changed", listener.listen));
        }
        if before.is_some_and(|before| before.reuse_port != listener.reuse_port) {
            note(format!("reuse_port of {} has changed", listener.listen));
        }
        if before.is_some_and(|before| before.socket_group != listener.socket_group) {
            note(format!("socket_group of {} has changed", listener.listen));
        }
        if before.is_some_and(|before| before.proxies != listener.proxies) {
            note(format!("proxy_protocol_from of {} has changed", listener.listen));
        }
        if before.is_some_and(|before| before.http.is_some() != listener.http.is_some()) {
            note(format!("the protocol of {} has changed", listener.listen));
        }
    }
    if old.tcp != new.tcp {
        note("[tcp] has changed".to_owned());
    }
    if old.admin.listen != new.admin.listen {
        note("the admin address has changed".to_owned());
    }
    for (key, is_other) in [
        ("node_id", old.serve.node_id != new.serve.node_id),
        ("pid_file", old.serve.pid_file != new.serve.pid_file),
        ("compatible_with", old.serve.compatible_with != new.serve.compatible_with),
    ] {
        if is_other {
            note(format!("{key} has changed"));
        }
    }
    if old.serve.workers != new.serve.workers {
        note(format!("workers is {} now instead of {}", new.serve.workers, old.serve.workers));
    }
}

/// A problem on one line, without the quoted source line.
pub fn one_line(problem: &Problem) -> String {
    let mut text = String::new();
    if let Some(file) = &problem.file {
        text = format!("{}:", file.display());
        if let Some(place) = &problem.place {
            text += &format!("{}:{}:", place.line, place.column);
        }
        text.push(' ');
    }
    text += &problem.message;
    if let Some(hint) = &problem.hint {
        text += &format!(" ({hint})");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::read::from_text;

    fn config(text: &str) -> Config {
        let text = format!("{text}\n[[database]]\nname = \"d\"\nurl = \"postgres://u:p@h\"\n");
        from_text(Path::new("p.toml"), &text, &|_| None).unwrap()
    }

    #[test]
    fn changes_that_take_a_restart_are_noted() {
        let old = config("[serve]\nworkers = 1\n[admin]\nlisten = \"127.0.0.1:1\"\n[[listener]]\nlisten = \":2\"\n");
        let new = config("[serve]\nworkers = 2\n[admin]\nlisten = \"off\"\n[[listener]]\nlisten = \":3\"\n");
        let mut notes = Vec::new();
        note_restarts(&old, &new, &mut notes);
        assert_eq!(notes.len(), 4, "{notes:?}");
        assert!(notes.iter().all(|note| note.contains("restart Poolhouse")));
        notes.clear();
        note_restarts(&old, &old, &mut notes);
        assert!(notes.is_empty());
    }

    #[test]
    fn a_problem_fits_on_a_line_of_the_log() {
        let problem = Problem::error("unknown key `max_sise`").hint("did you mean `max_size`?");
        let text = one_line(&problem.at(Path::new("p.toml"), "max_sise = 1\n", 0..8));
        assert_eq!(text, "p.toml:1:1: unknown key `max_sise` (did you mean `max_size`?)");
    }
}
