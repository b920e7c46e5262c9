//! Passwords of databases that programs give: each program runs at the start, and again before its password expires. A
//! thread of its own waits for the programs. The last password stays if a program fails. Writes no password to the log.
//!
//! - [`answer`]: the password and its expiry in what a program writes.

mod answer;

use std::{
    collections::HashMap,
    io,
    process::Stdio,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    thread,
    time::{Duration, Instant, SystemTime},
};

use settings::Secret;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
    sync::{Notify, mpsc},
};

use self::answer::Answer;
use crate::config::{Config, PasswordCommand};

/// Bytes of a program's output that are read.
const MAX_OUTPUT_BYTES: u64 = 64 * 1024;

/// Characters of a program's last line of errors in the log.
const MAX_ERROR_CHARS: usize = 200;

/// A password is renewed when this part of its time is over.
const RENEWAL: f64 = 0.75;

/// The shortest pause between two runs of a program.
const MIN_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause, so that a password with an expiry far away is renewed, too.
const MAX_PAUSE: Duration = Duration::from_secs(24 * 3600);

/// The pause after a program has failed for the first time; it doubles with each failure.
const FIRST_RETRY: Duration = Duration::from_secs(1);

const MAX_RETRY: Duration = Duration::from_secs(60);

/// The passwords of all programs of a process.
#[derive(Default)]
pub struct PasswordCommands {
    commands: RwLock<HashMap<PasswordCommand, Arc<Commanded>>>,
    /// Where new programs are handed to the thread; `None` before it runs.
    thread: Mutex<Option<mpsc::UnboundedSender<Arc<Commanded>>>>,
}

/// A program and what it has given.
struct Commanded {
    command: PasswordCommand,
    /// The databases that have it, for the log.
    databases: Mutex<Vec<String>>,
    state: Mutex<State>,
    /// Told when no configuration has the program any more.
    retired: Notify,
}

#[derive(Default)]
struct State {
    password: Option<Secret>,
    expires: Option<SystemTime>,
    failures: u64,
    has_run: bool,
}

/// What the metrics show of a program.
#[derive(Clone, Debug)]
pub struct CommandStatus {
    pub databases: Vec<String>,
    pub failures: u64,
    /// How long the password holds; `None` without one.
    pub remaining: Option<Duration>,
}

impl PasswordCommands {
    /// Runs the programs of a configuration, as [`Self::follow`] does.
    pub fn of(config: &Config) -> Arc<Self> {
        let commands = Self::default();
        commands.follow(config);
        Arc::new(commands)
    }

    /// The password that a program gave last.
    pub fn password(&self, command: &PasswordCommand) -> Option<Secret> {
        let commands = self.commands.read().unwrap_or_else(PoisonError::into_inner);
        commands.get(command)?.state.lock().unwrap_or_else(PoisonError::into_inner).password.clone()
    }

    pub fn status(&self) -> Vec<CommandStatus> {
        let commands = self.commands.read().unwrap_or_else(PoisonError::into_inner);
        commands.values().map(|commanded| commanded.status()).collect()
    }

    /// Runs the programs of a configuration that do not run yet, and ends those that it has no more. Returns when each
    /// new one has run once, or has taken too long.
    pub fn follow(&self, config: &Config) {
        let mut wanted: HashMap<&PasswordCommand, Vec<String>> = HashMap::new();
        for database in &config.databases {
            if let Some(command) = &database.password_command {
                wanted.entry(command).or_default().push(database.name.clone());
            }
        }
        let mut new = Vec::new();
        {
            let mut commands = self.commands.write().unwrap_or_else(PoisonError::into_inner);
            commands.retain(|command, commanded| {
                let stays = wanted.contains_key(command);
                if !stays {
                    commanded.retired.notify_one();
                }
                stays
            });
            for (command, databases) in wanted {
                let commanded = commands.entry(command.clone()).or_insert_with(|| {
                    let made = Arc::new(Commanded::new(command.clone()));
                    new.push(Arc::clone(&made));
                    made
                });
                *commanded.databases.lock().unwrap_or_else(PoisonError::into_inner) = databases;
            }
        }
        if !new.is_empty() {
            self.start(new);
        }
    }

    /// Hands programs to the thread, and waits until each has run once.
    fn start(&self, new: Vec<Arc<Commanded>>) {
        let timeout = new.iter().map(|commanded| commanded.command.timeout).max().unwrap_or_default();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = thread.get_or_insert_with(|| {
            let (sender, receiver) = mpsc::unbounded_channel();
            if let Err(error) = thread::Builder::new().name("passwords".to_owned()).spawn(move || run(receiver)) {
                tracing::error!(%error, "no thread for password_command");
            }
            sender
        });
        for commanded in &new {
            let _ = sender.send(Arc::clone(commanded));
        }
        drop(thread);
        let deadline = Instant::now() + timeout + Duration::from_secs(1);
        while Instant::now() < deadline && !new.iter().all(|commanded| commanded.state().has_run) {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The thread: each program is a task.
fn run(mut new: mpsc::UnboundedReceiver<Arc<Commanded>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return tracing::error!(%error, "password_command cannot run"),
    };
    runtime.block_on(async move {
        while let Some(commanded) = new.recv().await {
            tokio::spawn(async move {
                tokio::select! {
                    () = commanded.keep() => {}
                    () = commanded.retired.notified() => {}
                }
            });
        }
    });
}

impl Commanded {
    fn new(command: PasswordCommand) -> Self {
        Self { command, databases: Mutex::default(), state: Mutex::default(), retired: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn databases(&self) -> Vec<String> {
        self.databases.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn status(&self) -> CommandStatus {
        let state = self.state();
        let now = SystemTime::now();
        let remaining = state.expires.map(|expires| expires.duration_since(now).unwrap_or_default());
        CommandStatus { databases: self.databases(), failures: state.failures, remaining }
    }

    /// Runs the program again and again.
    async fn keep(&self) {
        let mut retry = FIRST_RETRY;
        loop {
            let outcome = tokio::time::timeout(self.command.timeout, output(&self.command)).await;
            let outcome = outcome.unwrap_or_else(|_| Err("it takes longer than password_command_time".to_owned()));
            let pause = match outcome.and_then(|output| answer::read(&output, SystemTime::now())) {
                Ok(answer) => {
                    retry = FIRST_RETRY;
                    self.take(answer)
                }
                Err(why) => {
                    self.note_failure(&why, retry);
                    let next = (retry * 2).min(MAX_RETRY);
                    std::mem::replace(&mut retry, next)
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Takes a password, and returns after what time the next one is due.
    fn take(&self, answer: Answer) -> Duration {
        let now = SystemTime::now();
        let expires = answer.expires.unwrap_or(now + self.command.lifetime);
        let remaining = expires.duration_since(now).unwrap_or_default();
        let mut state = self.state();
        let is_new = state.password.as_ref() != Some(&answer.password);
        (state.password, state.expires, state.has_run) = (Some(answer.password), Some(expires), true);
        drop(state);
        if is_new {
            let holds = settings::show_duration(Duration::from_secs(remaining.as_secs()));
            tracing::info!(databases = self.databases().join(", "), holds, "password_command gave a password");
        }
        remaining.mul_f64(RENEWAL).clamp(MIN_PAUSE, MAX_PAUSE)
    }

    fn note_failure(&self, why: &str, retry: Duration) {
        let mut state = self.state();
        (state.failures, state.has_run) = (state.failures + 1, true);
        let (failures, keeps) = (state.failures, state.password.is_some());
        drop(state);
        let databases = self.databases().join(", ");
        let kept = if keeps { "the last password is kept" } else { "there is no password yet" };
        let again = settings::show_duration(retry);
        tracing::error!(databases, failures, again, "password_command failed, {kept}: {why}");
    }
}

/// What a program writes to its standard output.
async fn output(command: &PasswordCommand) -> Result<Vec<u8>, String> {
    let (program, arguments) = command.words.split_first().expect("a command names its program");
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("cannot run {program}: {error}"))?;
    let (stdout, stderr) = (child.stdout.take().expect("it is piped"), child.stderr.take().expect("it is piped"));
    let (output, errors) = tokio::join!(read(stdout), read(stderr));
    let status = child.wait().await.map_err(|error| error.to_string())?;
    if !status.success() {
        let errors = errors.unwrap_or_default();
        let text = String::from_utf8_lossy(&errors);
        let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let said: String = last.chars().take(MAX_ERROR_CHARS).collect();
        return Err(format!("{program} ended with {status}: {}", printable::line(&said)));
    }
    output.map_err(|error| format!("cannot read what {program} writes: {error}"))
}

async fn read(from: impl AsyncRead + Unpin) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes).await?;
    Ok(bytes)
}
