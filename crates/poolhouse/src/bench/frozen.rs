//! A load in a child process that is frozen and thawed (SIGSTOP, SIGCONT), as a platform does with a function. The
//! child is this program once more, with the same arguments. Its environment says which run it executes and where the
//! target is. It prints when the load begins, and in the end its result. Its clock continues while it is frozen.

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

use crate::private::cleanup::{Cleanup, EndSignals, ProcessId, TERMINATE};

/// The variable with the number of the run that a child executes.
const RUN_VARIABLE: &str = "POOLHOUSE_BENCH_PART";
/// The variable with the URL of the target.
const TARGET_VARIABLE: &str = "POOLHOUSE_BENCH_TARGET";
/// Precedes the nanoseconds until the measured load begins.
const BEGIN_PREFIX: &str = "begun ";
/// Bounds how late an interrupt is seen.
const STOP_POLL: Duration = Duration::from_millis(50);
/// Bounds how long a child takes to exit after its output has ended.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of its standard error that are kept.
const MAX_COMPLAINTS: u64 = 64 * 1024;
/// Ends a child; only SIGKILL ends one that is frozen.
const END_SIGNALS: EndSignals = TERMINATE;

/// The run that a child executes.
pub struct ChildRun {
    /// The number of the run.
    pub number: usize,
    /// Where its target is.
    pub target: Secret,
}

/// The run that this process executes for its parent, if it is a child.
pub fn child_run() -> Option<ChildRun> {
    let number = std::env::var(RUN_VARIABLE).ok()?.parse().ok()?;
    Some(ChildRun { number, target: Secret::new(std::env::var(TARGET_VARIABLE).ok()?) })
}

/// Executes the plan in this process, which its parent freezes.
///
/// # Errors
/// The parent is gone.
pub fn execute_for_parent(plan: &Plan, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    // A frozen child would otherwise stay behind for ever.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut announced = false;
    let mut watch = |engine: &::load::engine::Engine, now: ::load::engine::Time| {
        if let (Some(from), false) = (engine.measured_from(), announced) {
            println!("{BEGIN_PREFIX}{}", if from > now { (from - now).as_nanos() } else { 0 });
            announced = true;
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

/// A line of a child's output.
enum Message {
    /// The measured load begins after this time.
    Begins(Duration),
    Result(String),
}

/// Runs a plan in a process of its own, and freezes that in the windows. `number`: that of the plan among the runs.
///
/// # Errors
/// As those of a run, or that there can be no such process.
pub fn run_in_child(
    plan: &Plan,
    window: Window,
    number: usize,
    cleanup: &Cleanup,
    stop: &AtomicBool,
) -> Result<BenchResult, RunError> {
    let machine = |error: &dyn std::fmt::Display| {
        RunError::from(TargetError::machine(format!("the process of the load cannot be run: {error}")))
    };
    let (output, complaints, id) = start(plan, number, cleanup).map_err(|error| machine(&error))?;
    let messages = read_messages(output);
    let result = freeze_until_done(id, window, &messages, cleanup, stop);
    let status = cleanup.wait(id, EXIT_TIMEOUT).map_err(|error| machine(&error))?;
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

/// Starts a child. Returns its standard output, and its standard error when it has ended.
fn start(plan: &Plan, number: usize, cleanup: &Cleanup) -> anyhow::Result<(PipeReader, JoinHandle<String>, ProcessId)> {
    let (output, out) = pipe()?;
    let (complaints, err) = pipe()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1));
    command.env(RUN_VARIABLE, number.to_string()).env(TARGET_VARIABLE, plan.target.url());
    command.stdin(Stdio::null()).stdout(out).stderr(err);
    let id = cleanup.spawn(&mut command, END_SIGNALS)?;
    // Our ends of the pipes would keep them open for ever.
    drop(command);
    let complaints = thread::spawn(move || {
        let mut text = Vec::new();
        let _ = complaints.take(MAX_COMPLAINTS).read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    Ok((output, complaints, id))
}

fn read_messages(output: PipeReader) -> Receiver<Message> {
    let (say, messages) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let announced = match line.strip_prefix(BEGIN_PREFIX).map(str::parse) {
                Some(Ok(nanos)) => Message::Begins(Duration::from_nanos(nanos)),
                _ => Message::Result(line),
            };
            if say.send(announced).is_err() {
                return;
            }
        }
    });
    messages
}

/// Freezes and thaws a child until its output ends. Returns the result that the child printed, if it printed one.
fn freeze_until_done(
    id: ProcessId,
    window: Window,
    messages: &Receiver<Message>,
    cleanup: &Cleanup,
    stop: &AtomicBool,
) -> Option<String> {
    let (mut result, mut freezer) = (None, Freezer { window, schedule: None, is_stopped: false });
    loop {
        let now = Instant::now();
        let next: Option<Instant> = freezer.schedule.as_ref().and_then(FreezeSchedule::next);
        let timeout = next.map_or(STOP_POLL, |next| next.saturating_duration_since(now).min(STOP_POLL));
        match messages.recv_timeout(timeout) {
            Ok(Message::Begins(after)) => freezer.begin(Instant::now() + after),
            Ok(Message::Result(text)) => result = Some(text),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if stop.load(Relaxed) && !freezer.is_stopped {
            freezer.stop();
            cleanup.signal(id, Signal::CONT);
            cleanup.signal(id, Signal::TERM);
        }
        if let Some(schedule) = &mut freezer.schedule
            && schedule.next().is_some_and(|next| next <= Instant::now())
        {
            cleanup.signal(id, schedule.take());
        }
    }
    cleanup.signal(id, Signal::CONT);
    result
}

/// What is known of a child's windows.
struct Freezer {
    window: Window,
    /// `None`: the measured load has not begun, or the child is to end.
    schedule: Option<FreezeSchedule>,
    is_stopped: bool,
}

impl Freezer {
    /// Notes when the measured load begins.
    fn begin(&mut self, begin: Instant) {
        // A child that was told to end must not be frozen before it does.
        if !self.is_stopped {
            self.schedule = Some(FreezeSchedule { begin, window: self.window, done: 0 });
        }
    }

    fn stop(&mut self) {
        (self.is_stopped, self.schedule) = (true, None);
    }
}

/// When a child is frozen and thawed.
struct FreezeSchedule {
    begin: Instant,
    window: Window,
    /// How often the child was frozen or thawed.
    done: u32,
}

impl FreezeSchedule {
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
        let mut schedule = FreezeSchedule { begin, window, done: 0 };
        for (at, signal) in [(1, Signal::STOP), (3, Signal::CONT), (6, Signal::STOP), (8, Signal::CONT)] {
            assert_eq!(schedule.next(), Some(begin + second(at)));
            assert_eq!(schedule.take(), signal);
        }
        let mut once = FreezeSchedule { begin, window: Window { every: None, ..window }, done: 0 };
        once.take();
        once.take();
        assert_eq!(once.next(), None);
    }

    #[test]
    fn a_child_that_was_told_to_end_is_not_frozen_when_its_load_begins() {
        let window = Window { first: Duration::ZERO, length: Duration::from_secs(60), every: None };
        let mut freezer = Freezer { window, schedule: None, is_stopped: false };
        freezer.begin(Instant::now());
        assert!(freezer.schedule.is_some());
        freezer.stop();
        freezer.begin(Instant::now());
        assert!(freezer.schedule.is_none());
    }
}
