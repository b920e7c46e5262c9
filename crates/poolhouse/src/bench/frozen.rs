//! A load in a process of its own that is frozen and thawed (SIGSTOP, SIGCONT), as a platform does with a function:
//! this very program once more, with the same arguments. It learns from its environment which run is its own and where
//! the target is, says when the load begins, and in the end what it has measured. Its clock goes on while it is frozen.

use std::{
    io::{BufRead, BufReader, PipeReader, Read, Write, pipe, stdout},
    process::{Command, ExitCode, Stdio},
    sync::{
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use ::load::{
    plan::{Plan, Window},
    run::RunError,
    target::{Blame, TargetError},
};
use ::report::result::BenchResult;
use rustix::process::{Signal, set_parent_process_death_signal};
use settings::Secret;

use crate::private::cleanup::{Cleanup, Farewell, ProcessId, TERMINATE};

/// The number of the run that a process is for.
const PART: &str = "POOLHOUSE_BENCH_PART";
/// Where its target is.
const TARGET: &str = "POOLHOUSE_BENCH_TARGET";
/// What stands before the nanoseconds after which the measured load begins.
const BEGUN: &str = "begun ";
/// Interrupts are looked for so often.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// It has said all that it had to say, and may take so long to end.
const END_TIME: Duration = Duration::from_secs(10);
/// What is kept of its complaints, in bytes.
const MAX_COMPLAINTS: u64 = 64 * 1024;
/// A process that is frozen hears nothing but this.
const FAREWELL: Farewell = TERMINATE;

/// What the process of a load is for.
pub struct Part {
    /// Which of the runs.
    pub number: usize,
    /// Where its target is.
    pub target: Secret,
}

/// Whether this process is that of a load.
pub fn part() -> Option<Part> {
    let number = std::env::var(PART).ok()?.parse().ok()?;
    Some(Part { number, target: Secret::new(std::env::var(TARGET).ok()?) })
}

/// Runs the plan here, for the process that freezes this one.
///
/// # Errors
/// That process is gone.
pub fn serve(plan: &Plan, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    // Whoever is frozen would otherwise stay behind for ever.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut told = false;
    let mut watch = |engine: &::load::engine::Engine, now: ::load::engine::Time| {
        if let (Some(from), false) = (engine.measured_from(), told) {
            println!("{BEGUN}{}", if from > now { (from - now).as_nanos() } else { 0 });
            told = true;
        }
    };
    match ::load::run::run(plan, stop, &mut watch) {
        Ok(result) => {
            let text = serde_json::to_string(&result)?;
            writeln!(stdout(), "{text}")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            eprintln!("{error}");
            let usage =
                matches!(&error, RunError::Plan(_) | RunError::Target(TargetError { blame: Blame::Configuration, .. }));
            Ok(if usage { crate::BAD_USAGE.into() } else { ExitCode::FAILURE })
        }
    }
}

/// What it says.
enum Said {
    /// The measured load begins after so long.
    Begins(Duration),
    Result(String),
}

/// Runs a plan in a process of its own, and freezes that in the windows. `number`: that of the plan among the runs.
///
/// # Errors
/// As those of a run, or that there can be no such process.
pub fn run(
    plan: &Plan,
    window: Window,
    number: usize,
    cleanup: &Cleanup,
    stop: &AtomicBool,
) -> Result<BenchResult, RunError> {
    let machine = |error: &dyn std::fmt::Display| {
        RunError::from(TargetError::machine(format!("the process of the load cannot be run: {error}")))
    };
    let (words, complaints, id) = start(plan, number, cleanup).map_err(|error| machine(&error))?;
    let said = listen(words);
    let result = freeze(id, window, &said, cleanup, stop);
    let status = cleanup.wait(id, END_TIME).map_err(|error| machine(&error))?;
    let complaints = complaints.join().unwrap_or_default();
    match (result, status.code()) {
        (Some(text), Some(0)) => serde_json::from_str(&text).map_err(|error| machine(&error)),
        (_, Some(code)) if code == i32::from(crate::BAD_USAGE) => {
            Err(TargetError::configuration(complaints.trim()).into())
        }
        _ if complaints.trim().is_empty() => Err(machine(&status)),
        _ => Err(TargetError::target(complaints.trim()).into()),
    }
}

/// Starts the process. Returns what it says, and what it complains of in the end.
fn start(plan: &Plan, number: usize, cleanup: &Cleanup) -> anyhow::Result<(PipeReader, JoinHandle<String>, ProcessId)> {
    let (words, out) = pipe()?;
    let (complaints, err) = pipe()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1));
    command.env(PART, number.to_string()).env(TARGET, plan.target.url());
    command.stdin(Stdio::null()).stdout(out).stderr(err);
    let id = cleanup.spawn(&mut command, FAREWELL)?;
    // Our ends of the pipes would keep them open for ever.
    drop(command);
    let complaints = thread::spawn(move || {
        let mut text = Vec::new();
        let _ = complaints.take(MAX_COMPLAINTS).read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    Ok((words, complaints, id))
}

fn listen(words: PipeReader) -> Receiver<Said> {
    let (say, said) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(words).lines().map_while(Result::ok) {
            let told = match line.strip_prefix(BEGUN).map(str::parse) {
                Some(Ok(nanos)) => Said::Begins(Duration::from_nanos(nanos)),
                _ => Said::Result(line),
            };
            if say.send(told).is_err() {
                return;
            }
        }
    });
    said
}

/// Freezes and thaws until the process has nothing more to say. Returns its result.
fn freeze(
    id: ProcessId,
    window: Window,
    said: &Receiver<Said>,
    cleanup: &Cleanup,
    stop: &AtomicBool,
) -> Option<String> {
    let (mut result, mut turns, mut stopped) = (None, None, false);
    loop {
        let now = Instant::now();
        let next: Option<Instant> = turns.as_ref().and_then(Turns::next);
        let patience = next.map_or(LOOK_EVERY, |next| next.saturating_duration_since(now).min(LOOK_EVERY));
        match said.recv_timeout(patience) {
            Ok(Said::Begins(after)) => turns = Some(Turns { begin: Instant::now() + after, window, done: 0 }),
            Ok(Said::Result(text)) => result = Some(text),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if stop.load(Relaxed) && !stopped {
            (stopped, turns) = (true, None);
            cleanup.signal(id, Signal::CONT);
            cleanup.signal(id, Signal::TERM);
        }
        if let Some(turns) = &mut turns
            && turns.next().is_some_and(|next| next <= Instant::now())
        {
            cleanup.signal(id, turns.take());
        }
    }
    cleanup.signal(id, Signal::CONT);
    result
}

/// When the process is frozen and thawed.
struct Turns {
    begin: Instant,
    window: Window,
    /// How often it was frozen or thawed.
    done: u32,
}

impl Turns {
    fn next(&self) -> Option<Instant> {
        let Window { first, length, every } = self.window;
        let (round, thaws) = (self.done / 2, self.done % 2 == 1);
        let start = match (round, every) {
            (0, _) => first,
            (_, None) => return None,
            (round, Some(every)) => first + every * round,
        };
        Some(self.begin + start + if thaws { length } else { Duration::ZERO })
    }

    fn take(&mut self) -> Signal {
        self.done += 1;
        if self.done % 2 == 1 { Signal::STOP } else { Signal::CONT }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_window_begins_with_a_stop_and_ends_with_a_continuation() {
        let (begin, second) = (Instant::now(), Duration::from_secs);
        let window = Window { first: second(1), length: second(2), every: Some(second(5)) };
        let mut turns = Turns { begin, window, done: 0 };
        for (at, signal) in [(1, Signal::STOP), (3, Signal::CONT), (6, Signal::STOP), (8, Signal::CONT)] {
            assert_eq!(turns.next(), Some(begin + second(at)));
            assert_eq!(turns.take(), signal);
        }
        let mut once = Turns { begin, window: Window { every: None, ..window }, done: 0 };
        once.take();
        once.take();
        assert_eq!(once.next(), None);
    }
}
