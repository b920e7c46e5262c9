//! `poolhouse doctor`: looks at a running Poolhouse for some time and says what is wrong. Asks; what that means is decided in the crate `doctor`.

use std::{
    io::IsTerminal,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::bail;
use clap::Args;
use doctor::{Diagnosis, Observation, Window, examine};
use watch::{Clients, Look};

use crate::remote::{Remote, RemoteArgs};

const EXAMPLE: &str = "\
Examples:
  poolhouse doctor http://127.0.0.1:9930
  poolhouse doctor http://127.0.0.1:9930 --window 10m
  poolhouse doctor http://127.0.0.1:9930 --json - | jq '.findings[].symptom'

It only looks. A finding names two signals, the cause that looks alike and why it is not that, and what to change.
The token of [admin] comes from --token-file or from POOLHOUSE_ADMIN_TOKEN.

Exit status: 0 healthy, 1 there are findings, 2 undetermined (or bad usage), 3 it could not look, or there is no pool.";

const FINDINGS: u8 = 1;
const UNDETERMINED: u8 = 2;
const BLIND: u8 = 3;

/// Clients that are asked for at the end, and holders at each look.
const MAX_CLIENTS: &str = "10000";
const MAX_HOLDERS: &str = "2000";
/// Looks that a window needs, and at most: each is kept until the end.
const LEAST_LOOKS: u32 = 4;
const MAX_LOOKS: u32 = 5_000;
/// How long it may be without an answer, as in a restart, before it gives up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Say what is wrong between clients, pools and the database, with evidence and the setting that cures it
#[derive(Args)]
#[command(after_help = EXAMPLE)]
pub struct DoctorArgs {
    #[command(flatten)]
    remote: RemoteArgs,

    /// How long to look. A longer window sees more: loads that change tell a small pool from a slow database
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = settings::parse_duration_on)]
    window: Duration,

    /// Time between two looks; longer in a window of many
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = settings::parse_duration_on)]
    every: Duration,

    /// Print JSON to standard output: --json -
    #[arg(long, value_name = "FILE", value_parser = ["-"])]
    json: Option<String>,
}

/// Runs the verb.
pub fn run(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let diagnosis = match args.remote.remote().and_then(|remote| look(&remote, &args)) {
        Ok(diagnosis) => diagnosis,
        Err(error) => {
            eprintln!("error: {error:#}");
            return Ok(BLIND.into());
        }
    };
    if args.json.is_some() {
        println!("{}", serde_json::to_string_pretty(&diagnosis)?);
    } else {
        let is_terminal = std::io::stdout().is_terminal();
        let bold = |text: &str| if is_terminal { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() };
        print!("{}", diagnosis.text(bold));
    }
    Ok(match (&diagnosis.findings[..], &diagnosis.undecided[..]) {
        ([], []) if diagnosis.pools == 0 => BLIND.into(),
        ([], []) => ExitCode::SUCCESS,
        ([], _) => UNDETERMINED.into(),
        _ => FINDINGS.into(),
    })
}

fn look(remote: &Remote, args: &DoctorArgs) -> anyhow::Result<Diagnosis> {
    let every = args.every.max(Duration::from_millis(50)).max(args.window / MAX_LOOKS).min(args.window / LEAST_LOOKS);
    let began = Instant::now();
    let shows_progress = std::io::stderr().is_terminal();
    let mut window = Window::default();
    let mut answered = None;
    loop {
        let seen = remote.look::<Look>("/api/pools", &[]).and_then(|look| {
            let holders: Clients = remote.look("/api/clients", &[("holders", "true"), ("limit", MAX_HOLDERS)])?;
            Ok((look, holders))
        });
        let at = began.elapsed();
        match seen {
            Ok((look, holders)) => {
                if !window.add(Observation { at, look, holders: holders.clients }) {
                    eprintln!("it was restarted: what was seen before does not count");
                }
                answered = Some(at);
            }
            Err(error) if answered.is_none_or(|before| at - before > PATIENCE) => return Err(error),
            Err(_) => {}
        }
        if at >= args.window {
            break;
        }
        if shows_progress {
            eprint!("\rlooking, {:.0} s left \x1b[K", (args.window - at).as_secs_f64());
        }
        std::thread::sleep(every.min(args.window - at));
    }
    if shows_progress {
        eprint!("\r\x1b[K");
    }
    if window.looks() < LEAST_LOOKS as usize {
        bail!("only {} looks at this process: too few to say anything; use a longer --window", window.looks());
    }
    let clients: Clients = remote.look("/api/clients", &[("limit", MAX_CLIENTS)])?;
    window.clients = clients.clients;
    Ok(examine(&window))
}
