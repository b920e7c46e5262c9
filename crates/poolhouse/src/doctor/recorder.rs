//! Recordings as files. What stands in their lines is known by the crate `doctor`.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use doctor::{FileReader, Line, MAX_LINE_BYTES, MAX_RECORDING_BYTES, Subject};

/// Writes a recording to a file. What the file had before stays until the first line is recorded, so that a look that
/// fails destroys nothing.
pub struct Recorder {
    path: PathBuf,
    file: BufWriter<File>,
    /// The file was not there before.
    is_new: bool,
    has_begun: bool,
    written: u64,
}

impl Recorder {
    /// Opens the file, and writes nothing yet.
    ///
    /// # Errors
    /// The system refuses.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let new = OpenOptions::new().write(true).create_new(true).open(path);
        let is_new = new.is_ok();
        let opened = match new {
            // It may be a link to where nothing is yet.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                OpenOptions::new().write(true).create(true).truncate(false).open(path)
            }
            opened => opened,
        };
        let file = opened.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path: path.to_owned(), file: BufWriter::new(file), is_new, has_begun: false, written: 0 })
    }

    /// Records a line, as much of it as fits, and returns what a reader will make of it. `None`: there is room left for
    /// the end only.
    ///
    /// # Errors
    /// The system refuses, or the line is none that can be recorded.
    pub fn record(&mut self, line: Line) -> anyhow::Result<Option<Line>> {
        let (_, text) = line.fitted();
        if self.written + text.len() as u64 + MAX_LINE_BYTES as u64 > MAX_RECORDING_BYTES {
            return Ok(None);
        }
        let read = Line::read(&text).context("this cannot be recorded")?;
        self.begin()?;
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
        self.begin()?;
        self.write(&text)?;
        self.file.flush().with_context(|| format!("cannot write {}", self.path.display()))?;
        Ok(read)
    }

    /// Takes the place of what was there, once.
    fn begin(&mut self) -> anyhow::Result<()> {
        if self.has_begun {
            return Ok(());
        }
        self.has_begun = true;
        let file = self.file.get_ref();
        // A pipe or a terminal has no length.
        let emptied = file.metadata().and_then(|about| if about.is_file() { file.set_len(0) } else { Ok(()) });
        emptied.with_context(|| format!("cannot write {}", self.path.display()))?;
        self.write(&Line::first(env!("CARGO_PKG_VERSION")).text())
    }

    fn write(&mut self, text: &str) -> anyhow::Result<()> {
        self.written += text.len() as u64 + 1;
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.write_all(b"\n"));
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

impl Drop for Recorder {
    /// Leaves no file where there was none, and nothing was kept.
    fn drop(&mut self) {
        if self.is_new && !self.has_begun {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Reads a recording, or what others recorded of drivers' own pools; from beginning to end and once, for it may be a
/// pipe.
///
/// # Errors
/// It cannot be read, or is none, or not whole.
pub fn read(path: &Path) -> anyhow::Result<Subject> {
    let named = || path.display().to_string();
    let file = File::open(path).with_context(|| format!("cannot read {}", named()))?;
    let mut file = BufReader::new(file.take(MAX_RECORDING_BYTES + 1));
    let (mut reading, mut line, mut total) = (None, Vec::new(), 0);
    loop {
        line.clear();
        let length = (&mut file).take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut line);
        let length = length.with_context(|| format!("cannot read {}", named()))?;
        total += length as u64;
        if total > MAX_RECORDING_BYTES {
            bail!("{}: it has more than {MAX_RECORDING_BYTES} bytes, which no recording has", named());
        }
        if length == 0 {
            return reading.unwrap_or_else(|| FileReader::of("")).finish().with_context(named);
        }
        if length > MAX_LINE_BYTES {
            bail!("{}: it has a line of more than {MAX_LINE_BYTES} bytes, which no recording has", named());
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let Ok(text) = std::str::from_utf8(text) else { bail!("{}: it is no text, so no recording", named()) };
        reading.get_or_insert_with(|| FileReader::of(text)).read(text).with_context(named)?;
    }
}
