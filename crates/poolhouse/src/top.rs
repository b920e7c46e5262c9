//! `poolhouse top`: a running Poolhouse in a terminal, or once for a script. Asks; what it shows is made in the crate `top`.

use std::{
    io::{IsTerminal, stdout},
    process::ExitCode,
    sync::mpsc::{SyncSender, sync_channel},
    time::{Duration, Instant},
};

use clap::Args;
use top::Report;
use watch::{Change, Clients, Look};

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

Exit status: 0 done, 1 it could not look, 2 bad usage.";

/// Clients that are asked for: those who hold a server or wait for one, the longest first. More than a terminal shows at once, and little work
/// for the process that is looked at.
const MAX_CLIENTS: &str = "500";

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
        match args.json {
            Some(_) => println!("{}", printable::json(&serde_json::to_string_pretty(&report)?)),
            None => print!("{}", report.lines()),
        }
        return Ok(ExitCode::SUCCESS);
    }
    if !stdout().is_terminal() {
        eprintln!("error: standard output is no terminal; --once prints what is seen, and ends");
        return Ok(BAD_USAGE.into());
    }
    let address = watcher.remote.address().to_owned();
    let (reports, incoming) = sync_channel(1);
    // It ends with the process: an answer that does not come must not hold up the key that ends it.
    std::thread::spawn(move || watcher.run(every, &reports));
    top::run(&address, &incoming)?;
    Ok(ExitCode::SUCCESS)
}

/// Looks, and remembers what it saw before.
struct Watcher {
    remote: Remote,
    before: Option<(Instant, Look)>,
}

impl Watcher {
    fn report(&mut self) -> anyhow::Result<Report> {
        let look: Look = self.remote.look("/api/pools", &[])?;
        let now = Instant::now();
        let clients: Clients = self.remote.look("/api/clients", &[("busy", "true"), ("limit", MAX_CLIENTS)])?;
        let change = self.before.as_ref().and_then(|(at, before)| Change::between(before, &look, now - *at));
        let report = Report::new(&look, &clients, change.as_ref());
        self.before = Some((now, look));
        Ok(report)
    }

    /// Until nobody listens.
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
