//! `poolhouse doctor`: looks at a running Poolhouse for some time and says what is wrong. Asks; what that means is decided in the crate `doctor`.

use std::{
    io::IsTerminal,
    process::ExitCode,
    time::{Duration, Instant},
};

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

Exit status: 0 healthy, 1 there are findings, 2 undetermined, 3 it could not look.";

const FINDINGS: u8 = 1;
const UNDETERMINED: u8 = 2;
const BLIND: u8 = 3;

/// Clients that are asked for.
const MAX_CLIENTS: &str = "10000";
/// Looks that a window needs.
const LEAST_LOOKS: u32 = 4;

/// Say what is wrong between clients, pools and the database, with evidence and the setting that cures it
#[derive(Args)]
#[command(after_help = EXAMPLE)]
pub struct DoctorArgs {
    #[command(flatten)]
    remote: RemoteArgs,

    /// How long to look. A longer window sees more: loads that change tell a small pool from a slow database
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = settings::parse_duration_on)]
    window: Duration,

    /// Time between two looks
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
        ([], []) => ExitCode::SUCCESS,
        ([], _) => UNDETERMINED.into(),
        _ => FINDINGS.into(),
    })
}

fn look(remote: &Remote, args: &DoctorArgs) -> anyhow::Result<Diagnosis> {
    let every = args.every.max(Duration::from_millis(50)).min(args.window / LEAST_LOOKS);
    let began = Instant::now();
    let shows_progress = std::io::stderr().is_terminal();
    let mut window = Window::default();
    loop {
        let look: Look = remote.look("/api/pools", &[])?;
        let busy: Clients = remote.look("/api/clients", &[("busy", "true"), ("limit", MAX_CLIENTS)])?;
        let at = began.elapsed();
        if !window.add(Observation { at, look, busy: busy.clients }) {
            eprintln!("it was restarted: what was seen before does not count");
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
    let clients: Clients = remote.look("/api/clients", &[("limit", MAX_CLIENTS)])?;
    window.clients = clients.clients;
    Ok(examine(&window))
}
