//! `poolhouse doctor`: looks at a running pooler or a database for some time, or reads a recording, and says what is
//! wrong. This file collects looks; the crate `doctor` decides what they mean.

use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use clap::{Args, value_parser};
use doctor::{Diagnosis, Line, MAX_LOOKS, Subject};
use settings::Secret;

use self::{
    metrics::Metrics,
    mongodb::MongoDb,
    recorder::Recorder,
    redis::Redis,
    sources::{PoolhouseSource, Source, SqlSource},
};
use crate::remote::{RemoteArgs, without_login};

#[cfg(feature = "lab")]
pub mod background;
#[cfg(feature = "lab")]
mod forecast;
mod metrics;
mod mongodb;
mod recorder;
mod redis;
mod sources;

const EXAMPLE: &str = "\
Examples:
  poolhouse doctor http://127.0.0.1:9930
  poolhouse doctor http://127.0.0.1:9930 --window 10m --json - | jq '.findings[].symptom'
  poolhouse doctor 'postgres://watcher:${WATCHER_PASSWORD}@10.0.0.5/shop' --window 5m
  poolhouse doctor http://127.0.0.1:9930 --database 'postgres://watcher:${WATCHER_PASSWORD}@10.0.0.5/shop'
  poolhouse doctor postgres://watcher@10.0.0.6:6432/pgbouncer --database postgres://watcher@10.0.0.5/shop
  poolhouse doctor 'mongodb://watcher:${WATCHER_PASSWORD}@10.0.0.7/' --window 5m
  poolhouse doctor 'redis://watcher:${WATCHER_PASSWORD}@10.0.0.8' --window 5m
  poolhouse doctor http://10.0.0.9:8080/actuator/prometheus --window 10m
  poolhouse doctor http://127.0.0.1:9930 --record looks.jsonl
  poolhouse doctor looks.jsonl
  while sleep 5; do date +%s; curl -s http://10.0.0.9:8080/actuator/prometheus; done > scrapes.txt
  poolhouse doctor scrapes.txt

It only looks. Of a PostgreSQL it reads the statistics views, for which pg_monitor suffices, and no text of a \
statement; of a PgBouncer what SHOW shows to one of stats_users; of a MongoDB serverStatus, hostInfo, its time limit \
of transactions and $currentOp, for which clusterMonitor suffices, and no text of a command; of a Redis INFO and \
CLIENT LIST. Of an application's own pools it reads HikariCP's metrics as Micrometer shows them (Prometheus text), \
from the application or from a file of scrapes, and the events of MongoDB's drivers (CMAP) from a file, as lines of \
JSON.
A finding names two signals, the cause that looks alike and why it is not that, and what to change.
Where what was seen suffices, the value to set is computed: the load that was seen is played with other values (as \
`poolhouse plan` does it), and what comes of that is told with it. Else the value is that of a rule, and it says \
why.
The token of [admin] comes from --token-file or from POOLHOUSE_ADMIN_TOKEN.

Exit status: 0 healthy, 1 there are findings, 2 undetermined (or bad usage), 3 it could not look, or there is no pool.";

const FINDINGS: u8 = 1;
const UNDETERMINED: u8 = 2;
const NO_LOOK: u8 = 3;

/// The fewest looks of a window.
const MIN_WINDOW_LOOKS: u32 = 4;
/// The most looks of a window: each is kept until the end. Two more may come for its beginning and end.
const MAX_WINDOW_LOOKS: u32 = MAX_LOOKS as u32 - 2;
/// Bounds the time between two looks.
const MIN_LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// The doctor gives up after this long without an answer; a restart takes less.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause before a last look that failed is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Say what is wrong between clients, pools and the database, with evidence and the setting that cures it
#[derive(Args)]
#[command(after_help = EXAMPLE)]
pub struct DoctorArgs {
    /// What to look at: a Poolhouse by its admin address (http://address:port), a PostgreSQL
    /// (postgres://user@host/name), a PgBouncer by its console (postgres://user@host:6432/pgbouncer), a MongoDB
    /// (mongodb://user@host), a Redis (redis://host), an application's metrics of HikariCP (http://address:port/path),
    /// or a recording. Other users of this machine can read it (`ps`): write ${NAME} in single quotes for a password,
    /// or use --url-file
    #[arg(value_name = "URL|FILE", required_unless_present = "url_file")]
    what: Option<String>,

    /// Read the URL from a file
    #[arg(long, value_name = "FILE", conflicts_with = "what")]
    url_file: Option<PathBuf>,

    /// Read the admin token from a file
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Beside a Poolhouse or a PgBouncer: the database behind it, which knows what servers do while clients have them
    #[arg(long, value_name = "URL")]
    database: Option<String>,

    /// Processors of the database's machine; without it they are known only where the database runs on this one, or
    /// tells (MongoDB)
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=100_000))]
    processors: Option<u32>,

    /// How long to look. A longer window sees more: loads that change tell a small pool from a slow database
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = settings::parse_duration_on)]
    window: Duration,

    /// Time between two looks; longer in a window of many. Of HikariCP's metrics at least a second: it shows the same
    /// for so long
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = settings::parse_duration_on)]
    every: Duration,

    /// Write the looks to a file, too: `poolhouse doctor FILE` examines it. They take the place of what it had once the
    /// first look has succeeded. At most 256 MB; it has names and addresses, and no secrets
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Print JSON to standard output: --json -
    #[arg(long, value_name = "FILE", value_parser = ["-"])]
    json: Option<String>,
}

/// Runs the verb.
pub fn run(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let diagnosis = match diagnose(&args) {
        Ok(diagnosis) => diagnosis,
        Err(error) => {
            eprintln!("error: {}", printable::lines(&format!("{error:#}")));
            return Ok(NO_LOOK.into());
        }
    };
    if args.json.is_some() {
        println!("{}", printable::json(&serde_json::to_string_pretty(&diagnosis)?));
    } else {
        let is_terminal = std::io::stdout().is_terminal();
        let bold = |text: &str| if is_terminal { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() };
        print!("{}", diagnosis.text(bold));
    }
    Ok(match (&diagnosis.findings[..], &diagnosis.undecided[..]) {
        ([], []) if diagnosis.has_no_pools() => NO_LOOK.into(),
        ([], []) => ExitCode::SUCCESS,
        ([], _) => UNDETERMINED.into(),
        _ => FINDINGS.into(),
    })
}

fn diagnose(args: &DoctorArgs) -> anyhow::Result<Diagnosis> {
    let what = match (&args.what, &args.url_file) {
        (Some(what), _) => what.clone(),
        (None, Some(path)) => settings::read_small(path)
            .map(|text| text.trim().to_owned())
            .with_context(|| format!("cannot read {}", path.display()))?,
        (None, None) => unreachable!("clap asks for one of them"),
    };
    if let Some(path) = recording_path(&what) {
        if args.record.is_some() || args.database.is_some() {
            bail!("{what} is a recording: there is nothing more to look at");
        }
        return examine(&recorder::read(path)?);
    }
    check_is_url(&what)?;
    let mut source = source(what, args)?;
    look(source.as_mut(), args)
}

/// The path of a recording, if the argument is no URL and no address.
fn recording_path(what: &str) -> Option<&Path> {
    let path = Path::new(what);
    let is_file = !what.contains("://")
        && (path.is_file()
            || !what.contains(':') && (what.contains('/') || what.ends_with(".jsonl") || what.ends_with(".txt")));
    is_file.then_some(path)
}

/// Refuses a word that is no URL, no address and no file.
fn check_is_url(what: &str) -> anyhow::Result<()> {
    if what.contains([':', '/']) {
        return Ok(());
    }
    bail!(
        "there is no file `{what}` here, and no URL is written so: for a recording give its path, for a Poolhouse its \
         admin address (http://{what}:9930), for a database its URL (postgres://user@{what}/name)"
    )
}

fn source(what: String, args: &DoctorArgs) -> anyhow::Result<Box<dyn Source>> {
    let scheme = what.split_once("://").map_or("", |(scheme, _)| scheme);
    if matches!(scheme, "postgres" | "postgresql") {
        let beside = args.database.as_deref().map(secret).transpose()?;
        return Ok(Box::new(SqlSource::new(secret(&what)?, beside, args.processors)));
    }
    if args.database.is_some() && !matches!(scheme, "" | "http") {
        bail!(
            "--database goes beside a pooler, which is a Poolhouse by its admin address or a PgBouncer by its console"
        );
    }
    if let Some(beside) = args.database.as_deref().filter(|url| !is_of_postgres(url)) {
        let scheme = beside.split_once("://").map_or("no URL", |(scheme, _)| scheme);
        bail!("--database takes the postgres:// URL of the database behind the pooler, and not {scheme}");
    }
    match scheme {
        "mongodb" => return Ok(Box::new(MongoDb::new(secret(&what)?, args.processors))),
        "redis" | "rediss" => return Ok(Box::new(Redis::new(secret(&what)?))),
        "" | "http" => {}
        _ => bail!(
            "it looks at http:// (the admin address of a Poolhouse), at postgres://, mongodb:// and redis://, and at \
             recordings; {scheme}:// is none of these"
        ),
    }
    let url = if scheme.is_empty() { format!("http://{what}") } else { what };
    let what = secret(&url)?.reveal().to_string();
    if let Some(metrics) = Metrics::at(&what, args.token_file.as_deref())? {
        if args.database.is_some() {
            bail!("--database goes beside a pooler, and {} shows metrics of an application", without_login(&what));
        }
        return Ok(Box::new(metrics));
    }
    // The server may be an application without a pool, which must not get the token of a Poolhouse.
    let may_be_other = metrics::has_path(&what);
    let remote = RemoteArgs { url: what, token_file: args.token_file.clone() };
    let remote = if may_be_other { remote.remote_without_own_token()? } else { remote.remote()? };
    let beside = args.database.as_deref().map(secret).transpose()?;
    Ok(Box::new(PoolhouseSource::new(remote, beside, args.processors)))
}

/// Examines the looks. The lab predicts values of settings; without it they come from rules.
fn examine(subject: &Subject) -> anyhow::Result<Diagnosis> {
    #[cfg(feature = "lab")]
    let diagnosis = subject.examine_with(Some(&forecast::Player::default()))?;
    #[cfg(not(feature = "lab"))]
    let diagnosis = subject.examine_with(None)?;
    Ok(diagnosis)
}

fn is_of_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://") || url.starts_with("${")
}

fn secret(url: &str) -> anyhow::Result<Secret> {
    settings::interpolate_url(url, &settings::environment).map(Secret::new).map_err(anyhow::Error::msg)
}

fn look(source: &mut dyn Source, args: &DoctorArgs) -> anyhow::Result<Diagnosis> {
    let every = look_interval(args.every, args.window, source.refresh_interval());
    let recorder = args.record.as_deref().map(Recorder::create).transpose()?;
    let shows_progress = std::io::stderr().is_terminal();
    let mut pause = |at: Duration| {
        let left = args.window.saturating_sub(at);
        if left.is_zero() {
            return false;
        }
        if shows_progress {
            eprint!("\rlooking, {:.0} s left \x1b[K", left.as_secs_f64());
        }
        std::thread::sleep(every.min(left));
        true
    };
    let looked = look_repeatedly(source, recorder, &mut pause);
    if shows_progress {
        eprint!("\r\x1b[K");
    }
    looked
}

/// The time between two looks, where `every` is given.
fn look_interval(every: Duration, window: Duration, refresh_interval: Duration) -> Duration {
    every.max(MIN_LOOK_INTERVAL).max(refresh_interval).max(window / MAX_WINDOW_LOOKS).min(window / MIN_WINDOW_LOOKS)
}

/// Looks again after each `pause`, which is told how long it has been since the first look, until that returns false.
fn look_repeatedly(
    source: &mut dyn Source,
    mut recorder: Option<Recorder>,
    pause: &mut dyn FnMut(Duration) -> bool,
) -> anyhow::Result<Diagnosis> {
    let began = Instant::now();
    let mut subject: Option<Subject> = None;
    let (mut looks, mut answered, mut first) = (0, None, None);
    loop {
        let seen = source.look(began);
        let at = began.elapsed();
        let first = *first.get_or_insert(at);
        let answers = seen.is_ok();
        match seen {
            Ok(line) => {
                answered = Some(at);
                let Some(line) = record(&mut recorder, line)? else { break };
                looks += 1;
                if subject.is_none() {
                    subject = Subject::of(&line);
                }
                let subject = subject.as_mut().context("it is no look")?;
                if !subject.add(line)? {
                    eprintln!("it was restarted: what was seen before does not count");
                }
                if subject.is_at_memory_limit() {
                    eprintln!("more looks at this number of pools are not kept: the window ends here");
                    break;
                }
            }
            Err(error) if answered.is_none_or(|before| at - before > SILENCE_TIMEOUT) => return Err(error),
            Err(_) => {}
        }
        if !pause(at - first) {
            // A source that is gone at the end is not well: it has as long to come back as in between.
            if answers {
                break;
            }
            std::thread::sleep(RETRY_PAUSE);
        }
    }
    let Some(mut subject) = subject else { bail!("there was no look") };
    let clients = source.clients().unwrap_or_else(|error| {
        eprintln!("could not list the clients at the end: {}", printable::lines(&format!("{error:#}")));
        Vec::new()
    });
    let end = Line::End { looks, clients };
    subject.add(match recorder {
        Some(recorder) => recorder.finish(end)?,
        None => end,
    })?;
    examine(&subject)
}

/// Records a line, if there is a recording, and returns it as the recording has it; `None` if the recording is full.
fn record(recorder: &mut Option<Recorder>, line: Line) -> anyhow::Result<Option<Line>> {
    let Some(recorder) = recorder else { return Ok(Some(line)) };
    let recorded = recorder.record(line)?;
    if recorded.is_none() {
        eprintln!("the recording is full: the window ends here");
    }
    Ok(recorded)
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    /// Answers as `answers` says, and never lists clients.
    struct Scripted {
        answers: Vec<bool>,
        asked: usize,
    }

    impl Source for Scripted {
        fn look(&mut self, _: Instant) -> anyhow::Result<Line> {
            self.asked += 1;
            match self.answers.get(self.asked - 1) {
                Some(false) => Err(anyhow!("gone")),
                _ => Ok(Line::Redis { at_us: self.asked as u64 * 500_000, look: Box::default() }),
            }
        }

        fn clients(&mut self) -> anyhow::Result<Vec<admin_api::Client>> {
            Err(anyhow!("gone"))
        }
    }

    /// Looks for six looks and one more.
    fn looked(answers: &[bool]) -> (anyhow::Result<Diagnosis>, usize) {
        let mut source = Scripted { answers: answers.to_vec(), asked: 0 };
        let mut left = 6;
        let diagnosis = look_repeatedly(&mut source, None, &mut |_| {
            left -= 1;
            left >= 0
        });
        (diagnosis, source.asked)
    }

    #[test]
    fn what_is_shown_anew_each_second_is_looked_at_as_often() {
        let interval_ms = |every: u64, window: u64, stale: u64| {
            look_interval(Duration::from_millis(every), Duration::from_secs(window), Duration::from_millis(stale))
                .as_millis()
        };
        assert_eq!(
            (interval_ms(500, 30, 0), interval_ms(500, 30, 1_000), interval_ms(5_000, 30, 1_000)),
            (500, 1_000, 5_000)
        );
        assert_eq!(interval_ms(500, 2, 1_000), 500, "four looks are the least that says anything");
        assert_eq!((interval_ms(1, 30, 0), interval_ms(500, 36_000, 1_000) > 5_000), (50, true));
    }

    #[test]
    fn who_does_not_answer_at_the_end_is_asked_until_it_does() {
        let (diagnosis, asked) = looked(&[true, true, true, true, true, true, false, false, true]);
        assert_eq!((diagnosis.unwrap().window_s, asked), (4.0, 9));
    }

    #[test]
    fn what_was_seen_counts_although_nobody_says_who_is_connected_at_the_end() {
        let (diagnosis, asked) = looked(&[]);
        assert_eq!((diagnosis.unwrap().window_s, asked), (3.0, 7));
    }
}
