//! Logs, on standard error and where the configuration says: one line per event, as text or JSON. A thread of their own
//! writes them; if it cannot keep up, lines are dropped and counted, and no worker waits. Only in PgBouncer's place, a
//! file without another sink is written to at once. Values that clients choose, such as a user's name, can neither
//! begin a line nor send control characters to a terminal.

mod pgbouncer;
mod sinks;

use std::{
    fmt::{self, Debug, Write},
    io::IsTerminal,
    sync::Arc,
};

use tracing::field::Field;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{
    EnvFilter,
    field::MakeExt,
    fmt::{
        format::{Writer, debug_fn},
        writer::BoxMakeWriter,
    },
    layer::SubscriberExt,
    reload,
    util::SubscriberInitExt,
};

pub use self::{pgbouncer::PgBouncerLines, sinks::Sinks};
use crate::config::{Config, Log};

/// Lines that wait to be written.
pub const MAX_QUEUED_LINES: usize = 8192;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl LogFormat {
    /// The words of the command line.
    pub const WORDS: &[(&'static str, Self)] = &[("text", Self::Text), ("json", Self::Json)];
}

impl std::str::FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        settings::choose(text, Self::WORDS)
    }
}

/// Which events are logged, and how.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogOptions {
    pub format: LogFormat,
    /// `error`, `warn`, `info`, `debug` or `trace`, or one for each crate (`info,driver=debug`). `None` is what the
    /// configuration says.
    pub level: Option<String>,
    /// Whether nothing is logged on standard error.
    pub quiet: bool,
}

/// The level if none is configured.
const DEFAULT_LEVEL: &str = "info";

/// The running log. Dropping it waits until all queued lines are written.
pub struct Logs {
    dropped: ErrorCounter,
    control: LogControl,
    _guard: WorkerGuard,
}

/// Has a running log follow a configuration that is read again. A clone is the same.
#[derive(Clone)]
pub struct LogControl {
    sinks: Sinks,
    /// Changes the level; `None` if the command line has set it, or the log is another's.
    level: Option<Arc<dyn Fn(EnvFilter) + Send + Sync>>,
    shape: Option<PgBouncerLines>,
}

impl LogControl {
    /// Takes the level that is configured, and tells of the connections that are to be told of.
    pub fn follow(&self, config: &Config) {
        if let Some(change) = &self.level {
            change(EnvFilter::new(config.log.level.unwrap_or(DEFAULT_LEVEL)));
        }
        if let Some(shape) = &self.shape {
            shape.follow(&config.serve);
        }
    }

    /// Opens files anew.
    ///
    /// # Errors
    /// When a file cannot be opened: lines go where they went before.
    pub fn reopen(&self, configured: &Log) -> Result<(), String> {
        self.sinks.reopen(configured)
    }
}

fn filter(level: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(level).map_err(|_| format!("`{level}` is no log level: error, warn, info, debug or trace"))
}

impl Logs {
    /// Starts logging for the whole process. Text may have the shape of PgBouncer's log.
    ///
    /// # Errors
    /// When the level is invalid, or a file cannot be opened.
    pub fn start(options: &LogOptions, configured: &Log, as_pgbouncer: Option<PgBouncerLines>) -> Result<Self, String> {
        let level = options.level.as_deref().or(configured.level).unwrap_or(DEFAULT_LEVEL);
        let filter = filter(level)?;
        let sinks = Sinks::open(configured, options.quiet)?;
        let builder =
            NonBlockingBuilder::default().lossy(true).buffered_lines_limit(MAX_QUEUED_LINES).thread_name("logs");
        let (writer, guard) = builder.finish(sinks.clone());
        let dropped = writer.error_counter();
        let (filter, handle) = reload::Layer::new(filter);
        let all = tracing_subscriber::registry().with(filter);
        // In PgBouncer's place a file has each line before the client that it is about can read it, as there.
        let is_at_once = as_pgbouncer.is_some() && options.quiet && configured.syslog.is_none();
        let writer = match (is_at_once, sinks.clone()) {
            (true, sinks) => BoxMakeWriter::new(move || sinks.clone()),
            (false, _) => BoxMakeWriter::new(writer),
        };
        let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_target(false);
        let is_on_terminal = sinks.is_stderr_only() && std::io::stderr().is_terminal();
        // A test may have set up a log already, which stays.
        let shape = as_pgbouncer.clone();
        let begun = match (options.format, as_pgbouncer) {
            (LogFormat::Text, Some(shape)) => all.with(lines.with_ansi(false).event_format(shape)).try_init(),
            (LogFormat::Text, None) => {
                let fields = debug_fn(write_field).delimited(" ");
                all.with(lines.fmt_fields(fields).with_ansi(is_on_terminal)).try_init()
            }
            (LogFormat::Json, _) => all.with(lines.json().flatten_event(true)).try_init(),
        };
        let change: Arc<dyn Fn(EnvFilter) + Send + Sync> = Arc::new(move |filter| drop(handle.reload(filter)));
        let level = (begun.is_ok() && options.level.is_none()).then_some(change);
        Ok(Self { dropped, control: LogControl { sinks, level, shape }, _guard: guard })
    }

    /// What a reload changes.
    pub fn control(&self) -> LogControl {
        self.control.clone()
    }

    /// The counter of dropped lines.
    pub fn dropped(&self) -> ErrorCounter {
        self.dropped.clone()
    }
}

/// Writes a field of an event as text.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    match field.name() {
        "message" => write!(writer, "{}", Escaped(value)),
        name => write!(writer, "{name}={}", Escaped(value)),
    }
}

/// A value whose line ends and control characters are escaped, as in Rust's literals.
struct Escaped<'a>(&'a dyn Debug);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for char in format!("{:?}", self.0).chars() {
            match printable::steers(char) {
                true => write!(f, "{}", char.escape_default())?,
                false => f.write_char(char)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_keeps_to_its_line() {
        let value = format_args!("caf\u{e9} \n2026 ERROR \u{1b}[31mforged\u{9b}1m\u{202e}").to_string();
        let shown = Escaped(&format_args!("{value}")).to_string();
        assert_eq!(shown, "caf\u{e9} \\n2026 ERROR \\u{1b}[31mforged\\u{9b}1m\\u{202e}");
    }
}
