//! Logs on standard error: one line per event, as text or JSON. They are written by a thread of their own; when it
//! cannot keep up, lines are dropped and counted rather than anybody kept waiting.

use std::io::IsTerminal;

use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

/// Lines that may wait to be written.
pub const MAX_LINES: usize = 8192;

/// How a line looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl LogFormat {
    /// The words of the command line.
    pub const WORDS: &[(&'static str, Self)] = &[("text", Self::Text), ("json", Self::Json)];
}

impl std::str::FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        crate::config::choose(text, Self::WORDS)
    }
}

/// Which events are logged, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogOptions {
    /// How a line looks.
    pub format: LogFormat,
    /// `error`, `warn`, `info`, `debug` or `trace`, or one for each part (`info,driver=debug`).
    pub level: String,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: "info".to_owned() }
    }
}

/// Logs are written until this is dropped, which waits for those under way.
pub struct Logs {
    dropped: ErrorCounter,
    _guard: WorkerGuard,
}

impl Logs {
    /// Starts logging for the whole process. The error says what is wrong with the level.
    pub fn start(options: &LogOptions) -> Result<Self, String> {
        let filter = EnvFilter::try_new(&options.level)
            .map_err(|_| format!("`{}` is no log level: error, warn, info, debug or trace", options.level))?;
        let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(MAX_LINES).thread_name("logs");
        let (writer, guard) = builder.finish(std::io::stderr());
        let dropped = writer.error_counter();
        let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_target(false);
        // A process that logs already (a test) keeps its own way.
        let _ = match options.format {
            LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).try_init(),
            LogFormat::Json => lines.json().flatten_event(true).try_init(),
        };
        Ok(Self { dropped, _guard: guard })
    }

    /// Counts the lines that were dropped.
    pub fn dropped(&self) -> ErrorCounter {
        self.dropped.clone()
    }
}
