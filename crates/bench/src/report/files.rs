//! Result files, read back. Knows the format's version; what is in them is told by `result`.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use crate::result::{BenchResult, FORMAT};

/// A result file is never larger, in bytes.
pub const MAX_FILE: u64 = 256 << 20;

/// Why a result file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system says so.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Larger than [`MAX_FILE`].
    #[error("{}: more than {} MB, which no result has", .0.display(), MAX_FILE >> 20)]
    TooLarge(PathBuf),
    /// No JSON, or other JSON.
    #[error("{}: not a result of `poolhouse bench --json`: {source}", path.display())]
    NotAResult {
        /// Which.
        path: PathBuf,
        /// What is wrong, with line and column.
        source: serde_json::Error,
    },
    /// Written by another version.
    #[error("{}: format {format}, and this Poolhouse reads format {FORMAT}: use the version that wrote it", path.display())]
    Format {
        /// Which.
        path: PathBuf,
        /// What it says.
        format: u32,
    },
}

/// A result that `poolhouse bench --json` has written.
///
/// # Errors
/// If there is none, or not one that this version reads.
pub fn read(path: &Path) -> Result<BenchResult, ReadError> {
    let text = read_text(path)?;
    let result: BenchResult =
        serde_json::from_slice(&text).map_err(|source| ReadError::NotAResult { path: path.to_owned(), source })?;
    match result.format {
        FORMAT => Ok(result),
        format => Err(ReadError::Format { path: path.to_owned(), format }),
    }
}

fn read_text(path: &Path) -> Result<Vec<u8>, ReadError> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut text));
    match read {
        Ok(_) if text.len() as u64 > MAX_FILE => Err(ReadError::TooLarge(path.to_owned())),
        Ok(_) => Ok(text),
        Err(source) => Err(ReadError::Io { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<BenchResult, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("result.json");
        std::fs::write(&path, text).unwrap();
        read(&path).map_err(|error| error.to_string().replace(&*directory.path().to_string_lossy(), ""))
    }

    #[test]
    fn what_was_written_is_read() {
        let written = BenchResult { format: FORMAT, name: "a sample".to_owned(), ..BenchResult::default() };
        assert_eq!(of(&serde_json::to_string(&written).unwrap()), Ok(written));
    }

    #[test]
    fn another_file_is_refused_with_the_place_that_is_wrong() {
        let other = of("{\"format\": 1,\n \"name\": 7}").unwrap_err();
        assert!(
            other.starts_with("/result.json: not a result of `poolhouse bench --json`: ") && other.contains("line 2"),
            "{other}"
        );
        let newer = BenchResult { format: FORMAT + 1, ..BenchResult::default() };
        let newer = of(&serde_json::to_string(&newer).unwrap()).unwrap_err();
        assert!(newer.contains("format 2, and this Poolhouse reads format 1"), "{newer}");
        assert!(read(Path::new("/no/such/file")).unwrap_err().to_string().starts_with("/no/such/file: "));
    }
}
