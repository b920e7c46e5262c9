//! This very Poolhouse in front of a private database, with a configuration of its own.

use std::{
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use ::load::{plan::PoolhouseWishes, scenario::Kind};
use anyhow::{Context, bail};

use super::{
    PrivateDatabase, PrivatePoolhouse,
    cleanup::DRAIN,
    cluster::{DATABASE, USER, free_addresses},
    url,
};

/// How long it may take until it serves.
const START_LIMIT: Duration = Duration::from_secs(15);

impl PrivateDatabase {
    /// Starts a Poolhouse; it ends with the database, or when it is stopped. It has an admin address only if the doctor
    /// looks at it (`is_watched`).
    ///
    /// # Errors
    /// It does not come up, for instance because the wishes make no sense together.
    pub fn start_poolhouse(&self, wishes: &PoolhouseWishes, is_watched: bool) -> anyhow::Result<PrivatePoolhouse> {
        let [listen, admin] = free_addresses()?;
        let admin = is_watched.then_some(admin);
        let file = self.shell.directory.join(format!("poolhouse-{}.toml", listen.port()));
        self.shell.write_secret(&file, &self.configuration(listen, admin, wishes))?;
        let executable = std::env::current_exe().context("cannot tell where poolhouse itself is")?;
        let mut command = self.shell.command(executable);
        command.arg("serve").arg("--config").arg(&file);
        let started = self.shell.start(&mut command, DRAIN)?;
        let deadline = Instant::now() + START_LIMIT;
        while TcpStream::connect(listen).is_err() {
            if self.shell.cleanup.poll(started.id)?.is_some() || Instant::now() > deadline {
                bail!("Poolhouse did not come up:\n{}", self.shell.last_errors(&started).trim());
            }
            thread::sleep(Duration::from_millis(20));
        }
        let admin = admin.map(|admin| format!("http://{admin}"));
        Ok(PrivatePoolhouse { url: url(self.kind, &self.password, listen), admin, id: started.id })
    }

    fn configuration(&self, listen: SocketAddr, admin: Option<SocketAddr>, wishes: &PoolhouseWishes) -> String {
        let admin = admin.map_or("off".to_owned(), |admin| admin.to_string());
        let PoolhouseWishes { max_size, max_wait_time, soft_limit, hard_limit, evict_min_idle, client_idle_time } =
            wishes;
        let number =
            |key: &str, value: Option<u32>| value.map(|value| format!("{key} = {value}\n")).unwrap_or_default();
        let time = |key: &str, value: Option<Option<Duration>>| match value {
            None => String::new(),
            Some(None) => format!("{key} = \"off\"\n"),
            Some(Some(time)) => format!("{key} = \"{}ms\"\n", time.as_millis().max(1)),
        };
        let (protocol, name, user) = match self.kind {
            Kind::Postgres => ("postgres", format!("name = \"{DATABASE}\"\n"), USER),
            Kind::Redis => ("redis", String::new(), "default"),
            Kind::MongoDb => ("mongodb", String::new(), USER),
        };
        [
            &format!("[admin]\nlisten = \"{admin}\"\n"),
            &format!("[[listener]]\nprotocol = \"{protocol}\"\nlisten = \"{listen}\"\n"),
            &number("soft_limit", *soft_limit),
            &number("hard_limit", *hard_limit),
            &time("evict_min_idle", evict_min_idle.map(Some)),
            // As a plan has it, and the database itself: the functions of a scenario are told at once.
            "newcomer_wait_time = \"off\"\n",
            &time("client_idle_time", *client_idle_time),
            "[pool]\n",
            &number("max_size", *max_size),
            &time("max_wait_time", *max_wait_time),
            &format!("[[database]]\n{name}url = \"{}\"\n", self.url.reveal()),
            &format!("[[user]]\nname = \"{user}\"\npassword = \"{}\"\n", self.password),
        ]
        .concat()
    }
}
