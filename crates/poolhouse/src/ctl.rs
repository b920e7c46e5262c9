//! `poolhouse ctl`: steers a running Poolhouse over its admin address. Knows the paths there and how answers are shown;
//! decides nothing itself.

use std::{io::IsTerminal, process::ExitCode, time::Duration};

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    BAD_USAGE,
    remote::{Method, RemoteArgs, Request},
};

mod table;

use table::Beside;

/// The status of an answer to who has no token, or a wrong one.
const UNAUTHORIZED: u16 = 401;

const EXAMPLE: &str = "\
Examples:
  poolhouse ctl show pools
  poolhouse ctl http://127.0.0.1:9930 pause --database shop --time 10s
  poolhouse ctl http://127.0.0.1:9930 resume --database shop
  poolhouse ctl http://127.0.0.1:9930 reconnect
  poolhouse ctl http://127.0.0.1:9930 reload
  poolhouse ctl http://127.0.0.1:9930 drain --over 60s
  poolhouse ctl http://127.0.0.1:9930 kill 42
  poolhouse ctl http://127.0.0.1:9930 kill --database shop
  poolhouse ctl http://10.0.0.5:9930 --token-file /run/secrets/token drain --database shop

Without an address the order is for the Poolhouse at http://127.0.0.1:9930.
The token of [admin] comes from --token-file or from POOLHOUSE_ADMIN_TOKEN. Without one, changes are taken from this \
machine only.

Exit status: 0 done, 1 it failed or was not done in time, 2 bad usage.";

/// Steer a running Poolhouse: pause, resume, reconnect, drain, disable, enable, reload, show, kill
#[derive(Args)]
#[command(after_help = EXAMPLE)]
pub struct CtlArgs {
    #[command(flatten)]
    remote: RemoteArgs,

    /// Write the answer as JSON to standard output: --json -
    #[arg(long, value_name = "FILE", value_parser = ["-"], global = true)]
    json: Option<String>,

    #[command(subcommand)]
    order: Order,
}

#[derive(Subcommand)]
enum Order {
    /// Hold back new transactions, and wait until running ones have ended and no server is left
    Pause(Scope),
    /// End a pause or a drain
    Resume(Scope),
    /// Replace all servers: idle ones now, the others at the end of their transactions
    Reconnect(Scope),
    /// Wait until the servers are gone that a reconnect, a reload or a pause has made old
    WaitClose(Scope),
    /// Refuse new clients of a database; present ones stay
    Disable(Scope),
    /// Accept new clients of a database again
    Enable(Scope),
    /// Disconnect the clients of a database at the end of their transactions, and accept no new ones; without a
    /// database all clients, and then end the process
    Drain(Drain),
    /// Read the configuration file again
    Reload,
    /// List pools, clients, servers, databases, counts or settings
    Show {
        /// What
        what: List,
        /// At most so many lines
        #[arg(long, value_name = "N", default_value_t = 1000)]
        limit: u32,
    },
    /// Disconnect a client, or at once all clients and servers of a database, which then waits for `resume`
    Kill(Kill),
}

#[derive(Args)]
struct Drain {
    /// Disconnect the clients one after the other, the last of them after this time, and be not ready meanwhile
    #[arg(long, value_name = "TIME", conflicts_with = "database", value_parser = settings::parse_duration_on)]
    over: Option<Duration>,
    #[command(flatten)]
    scope: Scope,
}

#[derive(Args)]
struct Kill {
    /// The client's id, as in `show clients`
    #[arg(value_parser = client, required_unless_present_any = ["database", "all"])]
    #[arg(conflicts_with_all = ["database", "all"])]
    client: Option<u64>,
    /// All databases
    #[arg(long, conflicts_with = "database")]
    all: bool,
    #[command(flatten)]
    scope: Scope,
}

fn client(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "write the number that `show clients` has under ID".to_owned())
}

#[derive(Args)]
struct Scope {
    /// Only this database
    #[arg(long, value_name = "NAME")]
    database: Option<String>,
    /// The database of that name which speaks this, where databases of more than one kind are called the same
    #[arg(long, requires = "database")]
    protocol: Option<Protocol>,
    /// How long to wait until the order is done
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = settings::parse_duration_on)]
    time: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Protocol {
    Postgres,
    Redis,
    Mongodb,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum List {
    Pools,
    Clients,
    Servers,
    Databases,
    Stats,
    Config,
    Version,
}

impl List {
    fn path(self) -> &'static str {
        match self {
            Self::Pools => "/api/pools",
            Self::Clients => "/api/clients",
            Self::Servers => "/api/servers",
            Self::Databases => DATABASES,
            Self::Stats => "/api/show/stats",
            Self::Config => "/api/show/config",
            Self::Version => "/api/show/version",
        }
    }
}

/// The databases that are configured or in use.
const DATABASES: &str = "/api/show/databases";

/// Runs the verb.
pub fn run(args: CtlArgs) -> anyhow::Result<ExitCode> {
    let remote = match args.remote.remote() {
        Ok(remote) => remote,
        Err(error) => {
            eprintln!("error: {error:#}");
            return Ok(BAD_USAGE.into());
        }
    };
    let answer = remote.send(&request(&args.order))?;
    let body = answer.body()?;
    if args.json.is_some() {
        println!("{}", printable::json(&body.to_string()));
    }
    if let Some(error) = answer.error() {
        eprintln!("error: {error}");
        if answer.status == UNAUTHORIZED {
            eprintln!("      = {}", remote.token_hint());
        }
        return Ok(if answer.status == 400 { BAD_USAGE.into() } else { ExitCode::FAILURE });
    }
    if args.json.is_none() {
        let list = |path: &str| {
            let request = Request { path: path.to_owned(), ..request(&args.order) };
            let answer = remote.send(&request).ok().filter(|answer| answer.status == 200);
            answer.and_then(|answer| answer.body().ok()).unwrap_or_default()
        };
        let beside = match args.order {
            Order::Show { what: List::Pools, .. } => {
                Beside { pools: list("/api/show/pools"), databases: list(DATABASES), config: list("/api/show/config") }
            }
            _ => Beside::default(),
        };
        show(&args.order, body, &beside, answer.is_done())?;
    }
    Ok(if answer.is_done() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The HTTP request for an order, with how long the order may take.
fn request(order: &Order) -> Request {
    let which = |path: &str, which: &Scope| {
        let time = settings::show_duration(which.time);
        let protocol = which.protocol.map(|protocol| match protocol {
            Protocol::Postgres => "postgres".to_owned(),
            Protocol::Redis => "redis".to_owned(),
            Protocol::Mongodb => "mongodb".to_owned(),
        });
        let parameters = [("time", Some(time)), ("database", which.database.clone()), ("protocol", protocol)];
        let parameters = parameters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        Request { method: Method::Post, path: path.to_owned(), parameters, order_timeout: which.time }
    };
    let plain = |method, path: &str, parameters| {
        let order_timeout = Duration::from_secs(30);
        Request { method, path: path.to_owned(), parameters, order_timeout }
    };
    match order {
        Order::Pause(w) => which("/api/pause", w),
        Order::Resume(w) => which("/api/resume", w),
        Order::Reconnect(w) => which("/api/reconnect", w),
        Order::WaitClose(w) => which("/api/wait-close", w),
        Order::Disable(w) => which("/api/disable", w),
        Order::Enable(w) => which("/api/enable", w),
        Order::Drain(Drain { over, scope }) => {
            let mut request = which("/api/drain", scope);
            if let Some(over) = over {
                request.parameters.push(("over", settings::show_duration(*over)));
                request.order_timeout = *over;
            }
            request
        }
        Order::Reload => plain(Method::Post, "/api/reload", Vec::new()),
        Order::Kill(Kill { client: Some(client), .. }) => {
            plain(Method::Post, "/api/kill", vec![("client", client.to_string())])
        }
        Order::Kill(Kill { all, scope, .. }) => {
            let mut request = which("/api/kill", scope);
            request.parameters.extend(all.then(|| ("all", "true".to_owned())));
            request
        }
        Order::Show { what, limit } => {
            let has_limit = matches!(what, List::Clients | List::Servers);
            plain(Method::Get, what.path(), has_limit.then(|| ("limit", limit.to_string())).into_iter().collect())
        }
    }
}

/// The answer for people.
fn show(order: &Order, body: Value, beside: &Beside, is_done: bool) -> anyhow::Result<()> {
    match order {
        Order::Show { what: List::Pools, .. } => print!("{}", table::pools(&read(body)?, beside)),
        Order::Show { what: List::Clients, .. } => print!("{}", table::clients(&read(body)?)),
        Order::Show { what: List::Servers, .. } => print!("{}", table::servers(&read(body)?)),
        Order::Show { what: List::Stats | List::Version, .. } => print!("{}", table::records(&body)),
        Order::Show { what: List::Databases | List::Config, .. } => print!("{}", table::rows(&body)),
        Order::Reload => {
            let count = |name: &str| body["pools"][name].as_u64().unwrap_or(0);
            let (followed, gone) = (count("followed"), count("left_behind"));
            println!(
                "reloaded: {followed} {} it, {} with new servers; {gone} no longer configured",
                if followed == 1 { "pool follows" } else { "pools follow" },
                count("renewed"),
            );
            for note in body["notes"].as_array().into_iter().flatten() {
                println!("note: {}", printable::lines(note.as_str().unwrap_or_default()));
            }
        }
        Order::Kill(Kill { client: Some(client), .. }) => println!("client {client} is closed"),
        Order::Drain(Drain { over, scope: Scope { database: None, .. } }) => {
            let clients = body["clients"].as_u64();
            match clients.filter(|_| over.is_some()) {
                Some(0) => println!("drained: the process ends"),
                Some(left) => println!("draining: {left} clients are left, and the process ends when they have gone"),
                None => println!("draining: the process ends when the last client has gone"),
            }
        }
        Order::Pause(_)
        | Order::Resume(_)
        | Order::Reconnect(_)
        | Order::WaitClose(_)
        | Order::Disable(_)
        | Order::Enable(_)
        | Order::Kill(_)
        | Order::Drain(_) => {
            let words = ["paused", "resumed", "reconnecting", "drained", "closed", "disabled", "enabled", "killed"];
            let word = words.into_iter().find(|word| !body[word].is_null());
            let state = if is_done { "" } else { "not yet " };
            let waited = body["waited_ms"].as_f64().unwrap_or(0.0) / 1e3;
            println!("{state}{} after {waited:.1} s", word.unwrap_or("done"));
            print!("{}", table::states(&body));
            if !is_done && std::io::stderr().is_terminal() {
                eprintln!("the order stands: it goes on, or `resume` takes it back");
            }
        }
    }
    Ok(())
}

fn read<T: DeserializeOwned>(body: Value) -> anyhow::Result<T> {
    serde_json::from_value(body).context("this is no answer of a Poolhouse")
}
