//! A file for what will come out: opened before there is anything to write, so that a path that does not work is told
//! at once and not after the work. What stands in it stays until something is written.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;

/// An open file for the output. If nothing is written, a file that was not there before is removed again.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    file: File,
    /// The file is new, and nothing is written yet.
    is_unused: bool,
}

impl OutputFile {
    /// Opens it for writing, and makes it if it is not there.
    ///
    /// # Errors
    /// What is wrong with the path, in words.
    pub fn open(path: &Path) -> Result<Self, String> {
        let mut options = OpenOptions::new();
        options.write(true);
        let made = options.clone().create_new(true).open(path).map(|file| (file, true));
        let opened = match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                options.create(true).open(path).map(|file| (file, false))
            }
            made => made,
        };
        match opened {
            Ok((file, is_unused)) => Ok(Self { path: path.to_owned(), file, is_unused }),
            Err(error) => Err(format!("cannot write {}: {error}", path.display())),
        }
    }

    /// Writes it whole, in the place of what was there.
    ///
    /// # Errors
    /// The system refuses.
    pub fn write(mut self, text: &str) -> anyhow::Result<()> {
        self.is_unused = false;
        let written = (|| {
            // A pipe or a terminal has no length.
            if self.file.metadata()?.is_file() {
                self.file.set_len(0)?;
            }
            self.file.write_all(text.as_bytes())
        })();
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if self.is_unused {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Where a result goes.
#[derive(Debug)]
pub struct Outputs {
    json: Json,
    html: Option<OutputFile>,
}

/// Standard output, whose reader may close the pipe early, as `head` does: that is no failure.
struct PipeOutput<W>(W);

impl<W: Write> Write for PipeOutput<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(bytes.len()),
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0.flush() {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            flushed => flushed,
        }
    }
}

/// Where the JSON goes.
#[derive(Debug)]
enum Json {
    Nowhere,
    StandardOutput,
    File(OutputFile),
}

impl Outputs {
    /// Opens what was asked for; a `-` is standard output.
    ///
    /// # Errors
    /// What is wrong with a path, in words.
    pub fn open(json: Option<&Path>, html: Option<&Path>) -> Result<Self, String> {
        let json = match json {
            None => Json::Nowhere,
            Some(path) if path == Path::new("-") => Json::StandardOutput,
            Some(path) => Json::File(OutputFile::open(path)?),
        };
        Ok(Self { json, html: html.map(OutputFile::open).transpose()? })
    }

    /// First shows the table (unless the JSON takes its place), then writes the files: whatever happens to these,
    /// something is seen.
    ///
    /// # Errors
    /// Those of writing. A file that cannot be written does not keep the other from it.
    pub fn write_all(
        self,
        table: impl FnOnce(&mut dyn Write) -> io::Result<()>,
        json: impl FnOnce() -> anyhow::Result<String>,
        html: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        let mut out = PipeOutput(io::stdout().lock());
        let shown = match &self.json {
            Json::StandardOutput => Ok(()),
            Json::Nowhere | Json::File(_) => table(&mut out).context("cannot write to standard output"),
        };
        let kept = match self.json {
            Json::Nowhere => Ok(()),
            Json::StandardOutput => {
                json().and_then(|text| out.write_all(text.as_bytes()).context("cannot write to standard output"))
            }
            Json::File(file) => json().and_then(|text| file.write(&text)),
        };
        let page = self.html.map_or(Ok(()), |file| file.write(&html()));
        shown.and(kept).and(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_cannot_be_written_is_told_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let error = OutputFile::open(&folder.path().join("no/such/folder.json")).unwrap_err();
        assert!(error.starts_with("cannot write ") && error.contains("folder.json: "), "{error}");
        assert!(Outputs::open(None, Some(folder.path())).is_err(), "a folder");
        assert!(Outputs::open(Some(Path::new("-")), None).is_ok());
    }

    #[test]
    fn what_was_there_stays_until_something_is_written_and_is_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result.json");
        fs::write(&path, "a result of yesterday").unwrap();
        drop(OutputFile::open(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "a result of yesterday");
        OutputFile::open(&path).unwrap().write("today").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "today");
    }

    #[test]
    fn a_reader_that_has_seen_enough_is_no_failure_and_a_full_disk_is_one() {
        struct Failing(io::ErrorKind);
        impl Write for Failing {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(self.0.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Err(self.0.into())
            }
        }
        let mut left = PipeOutput(Failing(io::ErrorKind::BrokenPipe));
        assert!(left.write_all(b"table").and_then(|()| left.flush()).is_ok());
        let mut full = PipeOutput(Failing(io::ErrorKind::StorageFull));
        assert!(full.write_all(b"table").is_err() && full.flush().is_err());
    }

    #[test]
    fn nothing_is_left_behind_when_nothing_came_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result.json");
        let file = OutputFile::open(&path).unwrap();
        assert!(path.exists());
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn the_page_is_written_even_if_the_json_is_not_and_the_failure_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let (json, html) = (folder.path().join("a.json"), folder.path().join("a.html"));
        let outputs = Outputs::open(Some(&json), Some(&html)).unwrap();
        let mut shown = false;
        let told = outputs.write_all(
            |_| {
                shown = true;
                Ok(())
            },
            || anyhow::bail!("no JSON"),
            || "a page".to_owned(),
        );
        assert!(shown && told.unwrap_err().to_string() == "no JSON");
        assert_eq!(fs::read_to_string(&html).unwrap(), "a page");
    }
}
