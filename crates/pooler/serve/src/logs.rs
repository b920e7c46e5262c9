//! Logs on standard error: one line per event, as text or JSON. They are written by a thread of their own; when it
//! cannot keep up, lines are dropped and counted rather than anybody kept waiting. What strangers have chosen, such as
//! a user's name, may be part of an event: it can neither begin a line of its own nor steer a terminal.

use std::{
    fmt::{self, Debug, Write},
    io::IsTerminal,
};

use tracing::field::Field;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{
    EnvFilter,
    field::MakeExt,
    fmt::format::{Writer, debug_fn},
};

/// Lines that may wait to be written.
pub const MAX_LINES: usize = 8192;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
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
        settings::choose(text, Self::WORDS)
    }
}

/// Which events are logged, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogOptions {
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
            LogFormat::Text => {
                let fields = debug_fn(write_field).delimited(" ");
                lines.fmt_fields(fields).with_ansi(std::io::stderr().is_terminal()).try_init()
            }
            LogFormat::Json => lines.json().flatten_event(true).try_init(),
        };
        Ok(Self { dropped, _guard: guard })
    }

    /// Counts the lines that were dropped.
    pub fn dropped(&self) -> ErrorCounter {
        self.dropped.clone()
    }
}

/// Writes a part of an event as text.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    match field.name() {
        "message" => write!(writer, "{}", Harmless(value)),
        name => write!(writer, "{name}={}", Harmless(value)),
    }
}

/// A value without line ends and other characters that steer a terminal: they are written as in Rust's texts.
struct Harmless<'a>(&'a dyn Debug);

impl fmt::Display for Harmless<'_> {
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
        let shown = Harmless(&format_args!("{value}")).to_string();
        assert_eq!(shown, "caf\u{e9} \\n2026 ERROR \\u{1b}[31mforged\\u{9b}1m\\u{202e}");
    }
}
