//! Recordings as files. What stands in their lines is known by the crate `doctor`.

use std::{
    fs::File,
    io::{BufRead, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use doctor::{FileReading, Line, MAX_LINE, MAX_RECORDING, Patient};

/// Writes one.
pub struct Recorder {
    path: PathBuf,
    file: BufWriter<File>,
    written: u64,
}

impl Recorder {
    /// Begins one, in the place of what was there.
    ///
    /// # Errors
    /// The system refuses.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut this = Self { path: path.to_owned(), file: BufWriter::new(file), written: 0 };
        this.write(&Line::first(env!("CARGO_PKG_VERSION")).text())?;
        Ok(this)
    }

    /// Keeps a line, as much of it as fits, and returns what a reader will make of it. `None`: there is room left for the end only.
    ///
    /// # Errors
    /// The system refuses, or the line is none that can be recorded.
    pub fn keep(&mut self, line: Line) -> anyhow::Result<Option<Line>> {
        let (_, text) = line.fitted();
        if self.written + text.len() as u64 + MAX_LINE as u64 > MAX_RECORDING {
            return Ok(None);
        }
        let read = Line::read(&text).context("this cannot be recorded")?;
        self.write(&text)?;
        Ok(Some(read))
    }

    /// Keeps the end, for which there is room.
    ///
    /// # Errors
    /// The system refuses, or the line is none that can be recorded.
    pub fn finish(mut self, end: Line) -> anyhow::Result<Line> {
        let (_, text) = end.fitted();
        let read = Line::read(&text).context("this cannot be recorded")?;
        self.write(&text)?;
        self.file.flush().with_context(|| format!("cannot write {}", self.path.display()))?;
        Ok(read)
    }

    fn write(&mut self, text: &str) -> anyhow::Result<()> {
        self.written += text.len() as u64 + 1;
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.write_all(b"\n"));
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// Reads one, or what others recorded of drivers' own pools; from beginning to end and once, for it may be a pipe.
///
/// # Errors
/// It cannot be read, or is none, or not whole.
pub fn read(path: &Path) -> anyhow::Result<Patient> {
    let named = || path.display().to_string();
    let file = File::open(path).with_context(|| format!("cannot read {}", named()))?;
    let mut file = BufReader::new(file.take(MAX_RECORDING + 1));
    let (mut reading, mut line, mut total) = (None, Vec::new(), 0);
    loop {
        line.clear();
        let length = (&mut file).take(MAX_LINE as u64 + 1).read_until(b'\n', &mut line);
        let length = length.with_context(|| format!("cannot read {}", named()))?;
        total += length as u64;
        if total > MAX_RECORDING {
            bail!("{}: it has more than {MAX_RECORDING} bytes, which no recording has", named());
        }
        if length == 0 {
            return reading.unwrap_or_else(|| FileReading::of("")).finish().with_context(named);
        }
        if length > MAX_LINE {
            bail!("{}: it has a line of more than {MAX_LINE} bytes, which no recording has", named());
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let Ok(text) = std::str::from_utf8(text) else { bail!("{}: it is no text, so no recording", named()) };
        reading.get_or_insert_with(|| FileReading::of(text)).take(text).with_context(named)?;
    }
}
