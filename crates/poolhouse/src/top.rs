//! `poolhouse top`: a running Poolhouse in a terminal, or once for a script. Asks; what it shows is made in the crate
//! `top`.

use std::{
    io::{ErrorKind, IsTerminal, Write, stdout},
    process::ExitCode,
    sync::mpsc::{SyncSender, sync_channel},
    time::{Duration, Instant},
};

use admin_api::{Change, Clients, Look};
use clap::Args;
use top::Report;

use crate::{
    BAD_USAGE,
    remote::{Remote, RemoteArgs},
};

const EXAMPLE: &str = "\
Examples:
  poolhouse top http://127.0.0.1:9930
  poolhouse top http://127.0.0.1:9930 --every 5s
  poolhouse top http://127.0.0.1:9930 --once --json - | jq '.pools[] | {database, waiters, hold_p99_ms}'

The key ? tells what columns mean and which keys there are. Statements are not shown: Poolhouse keeps none.
The token of [admin] comes from --token-file or from POOLHOUSE_ADMIN_TOKEN.

NO_COLOR=1 takes the colours away.

Exit status: 0 done, 1 it could not look, 2 bad usage.";

/// Clients that are listed: those who hold a server or wait for one, the longest first. More than a terminal shows at
/// once, and little work for the process that is looked at.
const MAX_CLIENTS: usize = 500;

/// The state of a client that wants a server.
const WAITING: &str = "waiting";

/// Watch a running Poolhouse: pools, waiters, who holds servers, who is pinned and why
#[derive(Args)]
#[command(after_help = EXAMPLE)]
pub struct TopArgs {
    #[command(flatten)]
    remote: RemoteArgs,

    /// Time between two looks; rates and percentiles are those of this time
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = settings::parse_duration_on)]
    every: Duration,

    /// Look twice, print what was seen, and end
    #[arg(long)]
    once: bool,

    /// With --once: print JSON to standard output: --json -
    #[arg(long, value_name = "FILE", value_parser = ["-"], requires = "once")]
    json: Option<String>,
}

/// Runs the verb.
pub fn run(args: TopArgs) -> anyhow::Result<ExitCode> {
    let remote = match args.remote.remote() {
        Ok(remote) => remote,
        Err(error) => {
            eprintln!("error: {error:#}");
            return Ok(BAD_USAGE.into());
        }
    };
    let every = args.every.max(Duration::from_millis(100));
    let mut watcher = Watcher { remote, before: None };
    if args.once {
        watcher.report()?;
        std::thread::sleep(every);
        let report = watcher.report()?;
        let text = match args.json {
            Some(_) => printable::json(&serde_json::to_string_pretty(&report)?) + "\n",
            None => report.lines(),
        };
        return match stdout().lock().write_all(text.as_bytes()) {
            // The reader may close the pipe early, as `head` does.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
            written => {
                written?;
                Ok(ExitCode::SUCCESS)
            }
        };
    }
    if !stdout().is_terminal() {
        eprintln!("error: standard output is no terminal; --once prints what is seen, and ends");
        return Ok(BAD_USAGE.into());
    }
    if std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
        eprintln!("error: nothing can be drawn on this terminal (TERM=dumb); --once prints what is seen, and ends");
        return Ok(BAD_USAGE.into());
    }
    let address = watcher.remote.address().to_owned();
    let has_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let (reports, incoming) = sync_channel(1);
    // It ends with the process: an answer that does not come must not hold up the key that ends it.
    std::thread::spawn(move || watcher.run(every, &reports));
    Ok(top::run(&address, has_colours, every, &incoming)?.into())
}

/// Looks, and remembers what it saw before.
struct Watcher {
    remote: Remote,
    before: Option<Look>,
}

impl Watcher {
    fn report(&mut self) -> anyhow::Result<Report> {
        let look: Look = self.remote.get("/api/pools", &[])?;
        // With one more it is known whether there are more.
        let limit = (MAX_CLIENTS + 1).to_string();
        let mut clients: Clients = self.remote.get("/api/clients", &[("busy", "true"), ("limit", &limit)])?;
        if clients.clients.len() > MAX_CLIENTS {
            // Clients that wait may fill the list, and who holds the servers would not be in it.
            let holders: Clients = self.remote.get("/api/clients", &[("holders", "true"), ("limit", &limit)])?;
            clients.clients.retain(|client| client.state == WAITING);
            clients.clients.splice(0..0, holders.clients);
        }
        let change = self.before.as_ref().and_then(|before| Change::between(before, &look, apart(before, &look)));
        let report = Report::new(&look, &clients, MAX_CLIENTS, change.as_ref());
        self.before = Some(look);
        Ok(report)
    }

    /// Reports until the receiver is gone.
    fn run(mut self, every: Duration, reports: &SyncSender<Result<Report, String>>) {
        loop {
            let began = Instant::now();
            if reports.send(self.report().map_err(|error| format!("{error:#}"))).is_err() {
                return;
            }
            std::thread::sleep(every.saturating_sub(began.elapsed()));
        }
    }
}

/// How far two looks are apart by the clock of the process that was looked at: an answer that takes long, or a machine
/// here that slept meanwhile, must not change what is told of rates.
fn apart(before: &Look, after: &Look) -> Duration {
    Duration::try_from_secs_f64((after.uptime_ms - before.uptime_ms).max(0.0) / 1e3).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_apart_by_the_clock_of_who_was_looked_at() {
        let look = |uptime_ms| Look { uptime_ms, ..Look::default() };
        assert_eq!(apart(&look(500.0), &look(2_500.0)), Duration::from_secs(2));
        assert_eq!(apart(&look(2_500.0), &look(500.0)), Duration::ZERO);
        assert_eq!(apart(&look(0.0), &look(1e300)), Duration::ZERO, "told by a strange server");
    }
}
