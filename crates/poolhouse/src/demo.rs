//! `poolhouse demo`: the story of case 2 (how many connections?) in miniature, on a throw-away PostgreSQL cluster, with
//! numbers from the reader's own machine. It prints every command it runs and leaves nothing behind.
//!
//! This file tells the story; the submodules know how each thing is done. It refuses to know Poolhouse's insides: it
//! starts `poolhouse serve` as any user would and looks at it from outside.

use std::{cmp::Ordering, path::PathBuf, process::ExitCode, time::Instant};

use anyhow::Context;
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};

use crate::private::{cleanup, cluster, command};

mod measure;
mod pgbench;
mod pooler;
mod recovery;
mod table;

use cleanup::Cleanup;
use cluster::{Cluster, ClusterOptions, application_url, connect};
use command::{Account, Shell};
use measure::Watch;
use pgbench::{Load, Script};
use pooler::{MAX_SIZE, Pooler};
use recovery::Recovery;
use table::{Row, milliseconds};

/// The server's own limit, PostgreSQL's default.
const MAX_CONNECTIONS: u32 = 100;
/// Rows of `pgbench_branches`; updates of one branch wait for one another, so it should not be below the pool's size.
const SCALE: u32 = 20;
/// Clients beside which a database with 100 connections still copes.
const FITTING_CLIENTS: u32 = 90;
/// Clients of the runs with short-lived connections, one for each transaction.
const SHORT_LIVED_CLIENTS: u32 = 20;
/// How often each load runs through each pooler, in turns: a row of the table is the run in the middle. An odd number.
const ROUNDS: usize = 3;
/// Descriptors that Poolhouse and pgbench may open.
const DESCRIPTORS: u64 = 65_536;
/// Exit status after Ctrl-C or SIGTERM.
const INTERRUPTED: i32 = 130;

/// Show what Poolhouse does for PostgreSQL, on a throw-away cluster, in about a minute.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoArgs {
    /// Clients of the large runs
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(101..=5000))]
    clients: u32,
    /// Seconds of each large run; the small ones take less
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=60))]
    seconds: u32,
    /// Directory of initdb, postgres and pgbench; by default the demo finds it
    #[arg(long, value_name = "DIR")]
    pg_bin: Option<PathBuf>,
    /// Leave PgBouncer out even if it is installed
    #[arg(long)]
    without_pgbouncer: bool,
}

/// Runs the demo. The status is a failure when a client failed through Poolhouse.
pub fn run(args: DemoArgs) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let cleanup = Cleanup::default();
    let _guard = cleanup.guard();
    let on_signal = cleanup.clone();
    ctrlc::set_handler(move || {
        eprintln!("\ninterrupted: stopping everything");
        on_signal.sweep();
        std::process::exit(INTERRUPTED);
    })
    .context("cannot catch Ctrl-C")?;
    raise_descriptor_limit();

    let mut story = Story::begin(args, &cleanup)?;
    story.directly()?;
    let poolers = story.start_poolers()?;
    story.through(&poolers)?;
    for pooler in poolers {
        pooler.stop(&story.shell);
    }
    let failed = story.print_result(began);
    cleanup.sweep();
    println!("\nEverything that was started has been stopped and removed ({} s).", began.elapsed().as_secs());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Story {
    args: DemoArgs,
    shell: Shell,
    cluster: Cluster,
    watch: Watch,
    flood: Vec<Row>,
    short_lived: Vec<Row>,
    single: Vec<Row>,
    recoveries: Vec<(&'static str, Recovery)>,
}

impl Story {
    fn begin(args: DemoArgs, cleanup: &Cleanup) -> anyhow::Result<Story> {
        let account = if geteuid().is_root() { Some(Account::unprivileged()?) } else { None };
        let directory = tempfile::Builder::new().prefix("poolhouse-demo-").tempdir()?.keep();
        cleanup.add_directory(&directory);
        let shell = Shell::new(cleanup.clone(), directory, account, true);
        print_heading("A PostgreSQL of our own, with the default of 100 connections");
        shell.give_away(&shell.directory)?;
        let options = ClusterOptions { max_connections: MAX_CONNECTIONS, password: None };
        let cluster = Cluster::start(&shell, args.pg_bin.as_deref(), &options)?;
        cluster.load(&shell, SCALE)?;
        let watch = Watch::new(&cluster.superuser())?;
        Ok(Story {
            args,
            shell,
            cluster,
            watch,
            flood: Vec::new(),
            short_lived: Vec::new(),
            single: Vec::new(),
            recoveries: Vec::new(),
        })
    }

    fn directly(&mut self) -> anyhow::Result<()> {
        let clients = self.args.clients;
        print_heading(&format!("{clients} clients directly: the database refuses most of them"));
        self.count_refusals()?;
        let flood = self.flood_load(clients);
        let row = self.measure("directly", self.cluster.address, flood)?;
        if let Some(complaint) = &row.outcome.complaint {
            println!("pgbench gives up: {complaint}");
        }
        self.flood.push(row);
        let row = self.measure("directly, as many as fit", self.cluster.address, self.flood_load(FITTING_CLIENTS))?;
        self.flood.push(row);

        print_heading("Short-lived connections directly: a new backend for every transaction");
        let row = self.measure("short-lived, directly", self.cluster.address, self.short_lived_load())?;
        self.short_lived.push(row);
        self.recover("directly", None)
    }

    fn start_poolers(&self) -> anyhow::Result<Vec<Pooler>> {
        print_heading(&format!("Poolers beside each other, {MAX_SIZE} server connections each"));
        let mut poolers = Vec::new();
        if !self.args.without_pgbouncer {
            match Pooler::pgbouncer(&self.shell, &self.cluster, self.args.clients)? {
                Some(pooler) => poolers.push(pooler),
                None => println!("PgBouncer is not installed: left out"),
            }
        }
        poolers.push(Pooler::poolhouse(&self.shell, &self.cluster)?);
        Ok(poolers)
    }

    /// Every load through every pooler, in rounds: a busy moment of the machine falls on one run of several, and not
    /// always on the same pooler.
    fn through(&mut self, poolers: &[Pooler]) -> anyhow::Result<()> {
        for round in 0..ROUNDS {
            print_heading(&format!("Round {} of {ROUNDS}", round + 1));
            let mut turns: Vec<&Pooler> = poolers.iter().collect();
            turns.rotate_left(round % poolers.len());
            let direct = self.measure_single_client("directly", self.cluster.address)?;
            self.single.push(direct);
            for pooler in &turns {
                let row = self.measure_single_client(pooler.name, pooler.address)?;
                self.single.push(row);
            }
            for pooler in &turns {
                let flood = self.flood_load(self.args.clients);
                let row = self.measure(&through(pooler.name), pooler.address, flood)?;
                self.flood.push(row);
            }
            for pooler in &turns {
                let title = format!("short-lived, {}", through(pooler.name));
                let row = self.measure(&title, pooler.address, self.short_lived_load())?;
                self.short_lived.push(row);
            }
        }
        poolers.iter().try_for_each(|pooler| self.recover(pooler.name, Some(pooler)))
    }

    fn measure_single_client(&mut self, name: &str, address: std::net::SocketAddr) -> anyhow::Result<Row> {
        let load = Load { script: Script::SelectOnly, clients: 1, seconds: 1, reconnect: false };
        let row = self.measure(&format!("one client, {}", through(name)), address, load)?;
        // Other connections stay open beside the one in use, so the sample says nothing of this run.
        Ok(Row { sample: None, ..row })
    }

    fn recover(&mut self, name: &'static str, pooler: Option<&Pooler>) -> anyhow::Result<()> {
        println!("# {} clients run a short query over and over; then all backends are killed", recovery::CLIENTS);
        let target = application_url(pooler.map_or(self.cluster.address, |pooler| pooler.address));
        let recovery = recovery::measure(&target, &mut self.watch)?;
        println!("  {}", describe_recovery(name, &recovery));
        pooler.map_or(Ok(()), |pooler| pooler.must_be_alive(&self.shell))?;
        self.recoveries.push((name, recovery));
        Ok(())
    }

    fn count_refusals(&self) -> anyhow::Result<()> {
        let (mut sessions, mut refused) = (Vec::new(), None);
        println!("# opening {} connections and keeping them", self.args.clients);
        let address = self.cluster.address;
        for _ in 0..self.args.clients {
            match connect(&application_url(address)) {
                Ok(session) => sessions.push(session),
                Err(error) if error.to_string().contains("SQLSTATE") => refused = Some(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        let accepted = sessions.len();
        print!("{accepted} accepted, {} refused", self.args.clients as usize - accepted);
        println!("{}", refused.map(|error| error.replace(&address.to_string(), "")).unwrap_or_default());
        Ok(())
    }

    fn measure(&mut self, title: &str, address: std::net::SocketAddr, load: Load) -> anyhow::Result<Row> {
        let (watch, mut sample) = (&mut self.watch, None);
        let outcome = pgbench::run(&self.shell, &self.cluster.bin, address, load, &mut || {
            sample = Some(watch.sample()?);
            Ok(())
        })?;
        // A run that never began has no middle to look at.
        let sample = sample.filter(|_| outcome.throughput.is_some());
        let row = Row { title: title.to_owned(), clients: load.clients, outcome, sample };
        println!("  {}", row.brief());
        Ok(row)
    }

    fn flood_load(&self, clients: u32) -> Load {
        Load { script: Script::TpcB, clients, seconds: self.args.seconds, reconnect: false }
    }

    fn short_lived_load(&self) -> Load {
        let seconds = self.args.seconds.div_ceil(2);
        Load { script: Script::SelectOnly, clients: SHORT_LIVED_CLIENTS, seconds, reconnect: true }
    }

    /// Prints what was found; returns how much failed through Poolhouse.
    fn print_result(&self, began: Instant) -> u64 {
        print_heading("Result");
        let all: Vec<Row> = self.flood.iter().chain(&self.short_lived).chain(&self.single).cloned().collect();
        let rows = middle_of_each(&all);
        println!(
            "PostgreSQL {} with max_connections = {MAX_CONNECTIONS}, this machine, pgbench, {} s so far.\n\
             The first rows run pgbench's own transaction, the others its SELECT. Where poolers are compared,\n\
             each row is the middle one of {ROUNDS} rounds in which they take turns, with the failures of all.\n",
            self.cluster.version,
            began.elapsed().as_secs()
        );
        print!("{}", table::render(&rows));
        println!();
        self.print_added_latency(&rows);
        for (name, recovery) in &self.recoveries {
            println!("{}", describe_recovery(name, recovery));
        }
        let unserved = self.recoveries.iter().any(|(name, recovery)| *name == "Poolhouse" && recovery.time.is_none());
        let failed: u64 =
            rows.iter().filter(|row| row.title.ends_with("Poolhouse")).map(|row| row.outcome.failed).sum();
        failed + u64::from(unserved)
    }

    fn print_added_latency(&self, rows: &[Row]) {
        let p50 = |title: &str| rows.iter().find(|row| row.title == title).and_then(|row| row.outcome.p50);
        let Some(direct) = p50("one client, directly") else { return };
        for name in ["PgBouncer", "Poolhouse"] {
            if let Some(time) = p50(&format!("one client, through {name}")) {
                let extra = time.saturating_sub(direct).as_micros();
                println!("{name} adds {extra} us to the median transaction of a single client.");
            }
        }
    }
}

fn through(name: &str) -> String {
    if name == "directly" { name.to_owned() } else { format!("through {name}") }
}

/// Of rows with equal titles the one with the median throughput, with the failures of all of them.
fn middle_of_each(rows: &[Row]) -> Vec<Row> {
    let mut titles: Vec<&str> = Vec::new();
    rows.iter().for_each(|row| {
        if !titles.contains(&row.title.as_str()) {
            titles.push(&row.title)
        }
    });
    let middle = |title: &&str| {
        let mut same: Vec<&Row> = rows.iter().filter(|row| row.title == **title).collect();
        same.sort_by(|a, b| a.outcome.throughput.partial_cmp(&b.outcome.throughput).unwrap_or(Ordering::Equal));
        let mut row = same[same.len() / 2].clone();
        row.outcome.failed = same.iter().map(|row| row.outcome.failed).sum();
        row
    };
    titles.iter().map(middle).collect()
}

fn describe_recovery(name: &str, recovery: &Recovery) -> String {
    let time = match recovery.time {
        Some(time) => format!("all {} clients served again after {} ms", recovery::CLIENTS, milliseconds(time)),
        None => "NOT all clients were served again".to_owned(),
    };
    format!(
        "{} backends killed, {}: {time}; {} queries failed, {} clients had to reconnect.",
        recovery.killed,
        through(name),
        recovery.errors,
        recovery.reconnected
    )
}

fn print_heading(title: &str) {
    println!("\n== {title}");
}

/// For the children: a thousand clients need as many descriptors at either end.
fn raise_descriptor_limit() {
    let now = getrlimit(Resource::Nofile);
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= DESCRIPTORS);
    if enough(now.current) {
        return;
    }
    let hard = if enough(now.maximum) { now.maximum } else { Some(DESCRIPTORS) };
    if setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), maximum: hard }).is_err() {
        // Only root may raise the hard limit; the rest makes do with it.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum });
    }
}

#[cfg(test)]
mod tests {
    use super::{pgbench::Outcome, *};

    #[test]
    fn the_run_in_the_middle_counts_with_the_failures_of_all() {
        let row = |throughput, failed| Row {
            title: "one".to_owned(),
            outcome: Outcome { throughput: Some(throughput), failed, ..Outcome::default() },
            ..Row::default()
        };
        let middle = middle_of_each(&[row(1.0, 1), row(9.0, 0), row(2.0, 0)]);
        let shown: Vec<_> = middle.iter().map(|row| (row.outcome.throughput, row.outcome.failed)).collect();
        assert_eq!(shown, [(Some(2.0), 1)]);
    }

    #[test]
    fn a_client_that_is_never_served_again_is_said_aloud() {
        assert!(describe_recovery("Poolhouse", &Recovery::default()).contains("NOT all"));
    }
}
