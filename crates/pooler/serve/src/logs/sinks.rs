//! Where lines of the log go: standard error, a file, the system's log. Knows no event, only whole lines.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    process,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use syslog::{Facility, Formatter3164, Logger, LoggerBackend};

use crate::config::{Log, Syslog};

/// All sinks of a process. A clone is the same.
#[derive(Clone)]
pub struct Sinks(Arc<Mutex<Open>>);

struct Open {
    stderr: bool,
    file: Option<(PathBuf, File)>,
    system: Option<(Syslog, Logger<LoggerBackend, Formatter3164>)>,
}

impl Sinks {
    /// Opens what is configured, and standard error unless `quiet`.
    pub fn open(log: &Log, quiet: bool) -> Result<Self, String> {
        let file = log.file.as_deref().map(open_file).transpose()?;
        let system = log.syslog.as_ref().and_then(|settings| match open_system(settings) {
            Ok(system) => Some(system),
            // In a container there often is none.
            Err(error) => {
                eprintln!("{error}: logging without it");
                None
            }
        });
        Ok(Self(Arc::new(Mutex::new(Open { stderr: !quiet, file, system }))))
    }

    /// Whether standard error is all there is.
    pub fn is_stderr_only(&self) -> bool {
        let open = self.lock();
        open.stderr && open.file.is_none() && open.system.is_none()
    }

    /// Opens the file anew, which may have been moved away, and what is configured differently now. A sink that cannot
    /// be opened stays as it was.
    pub fn reopen(&self, log: &Log) -> Result<(), String> {
        let mut open = self.lock();
        let same = open.system.as_ref().map(|(system, _)| system) == log.syslog.as_ref();
        if !same {
            open.system = log.syslog.as_ref().map(open_system).transpose()?;
        }
        open.file = log.file.as_deref().map(open_file).transpose()?;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Sinks {
    /// Writes a line to each sink. A sink that fails, for example on a full disk, keeps no other from it.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let open = &mut *self.lock();
        if open.stderr {
            let _ = io::stderr().write_all(line);
        }
        if let Some((_, file)) = &mut open.file {
            let _ = file.write_all(line);
        }
        if let Some((_, logger)) = &mut open.system {
            send(logger, &String::from_utf8_lossy(line));
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends a line to the system's log, which has a time of its own.
fn send(logger: &mut Logger<LoggerBackend, Formatter3164>, line: &str) {
    let text = without_time(line.trim_end());
    let _ = match text.split(' ').next() {
        Some("ERROR" | "FATAL") => logger.err(text),
        Some("WARN" | "WARNING") => logger.warning(text),
        Some("DEBUG" | "TRACE" | "NOISE") => logger.debug(text),
        _ => logger.info(text),
    };
}

/// A line from its level on.
fn without_time(line: &str) -> &str {
    // In PgBouncer's shape a line begins like "2026-11-29 21:49:00.540 UTC [4711] LOG".
    let rest = line.get(23..).and_then(|rest| rest.strip_prefix(" UTC [")?.split_once("] "));
    rest.or_else(|| line.split_once(' ')).map_or(line, |(_, text)| text.trim_start())
}

fn open_file(path: &Path) -> Result<(PathBuf, File), String> {
    let file = OpenOptions::new().append(true).create(true).open(path);
    file.map(|file| (path.to_owned(), file)).map_err(|error| format!("cannot log to {}: {error}", path.display()))
}

fn open_system(settings: &Syslog) -> Result<(Syslog, Logger<LoggerBackend, Formatter3164>), String> {
    let facility: Facility = settings.facility.parse().unwrap_or(Facility::LOG_DAEMON);
    let formatter = Formatter3164 { facility, hostname: None, process: settings.ident.clone(), pid: process::id() };
    let logger = syslog::unix(formatter).map_err(|error| format!("cannot reach the system's log: {error}"))?;
    Ok((settings.clone(), logger))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_comes_first_without_the_time() {
        assert_eq!(without_time("2026-11-29T22:08:38.965290Z  INFO stopped"), "INFO stopped");
        assert_eq!(without_time("2026-11-29 21:49:00.540 UTC [4711] WARNING C-0x1: x"), "WARNING C-0x1: x");
        assert_eq!(without_time("word"), "word");
    }

    #[test]
    fn a_file_that_was_moved_away_is_opened_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = Log { file: Some(path.clone()), ..Log::default() };
        let mut sinks = Sinks::open(&log, true).unwrap();
        sinks.write_all(b"one\n").unwrap();
        std::fs::rename(&path, folder.path().join("old")).unwrap();
        sinks.reopen(&log).unwrap();
        sinks.write_all(b"two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(std::fs::read_to_string(folder.path().join("old")).unwrap(), "one\n");
        let nowhere = Log { file: Some(folder.path().join("none/log")), ..Log::default() };
        assert!(sinks.reopen(&nowhere).unwrap_err().contains("cannot log to"));
        sinks.write_all(b"three\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\nthree\n");
    }
}
