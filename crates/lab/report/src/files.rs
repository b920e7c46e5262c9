//! Reads result files, and makes one page of several.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde::{Deserialize, de::DeserializeOwned};

use super::html::{self, Part};
use crate::result::{
    BenchResult, FORMAT,
    sweep::{self, SweepResult},
};

/// The largest result file that is read, in bytes.
pub const MAX_FILE_BYTES: u64 = 256 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: more than {} MB, which no result has", .0.display(), MAX_FILE_BYTES >> 20)]
    TooLarge(PathBuf),
    #[error("{}: not a result of `poolhouse bench` or `poolhouse sweep`: {source}", path.display())]
    NotAResult { path: PathBuf, source: serde_json::Error },
    #[error(
        "{}: format {format}, and this Poolhouse reads format {expected}: use the version that wrote it",
        path.display()
    )]
    Format { path: PathBuf, format: u32, expected: u32 },
    #[error("{}: {results} results, where one is needed", path.display())]
    Several { path: PathBuf, results: usize },
    #[error("{}: the result of `poolhouse sweep`, where that of a run is needed", .0.display())]
    Sweep(PathBuf),
    #[error("{}: the result of a run, where that of `poolhouse sweep` is needed", .0.display())]
    Run(PathBuf),
}

/// The page of result files. Single runs are compared; a sweep, and the variants of a scenario, are parts of their own.
///
/// # Errors
/// A file cannot be read.
pub fn page(paths: &[PathBuf]) -> Result<String, ReadError> {
    let files: Vec<_> = paths.iter().map(|path| read_any(path)).collect::<Result<_, _>>()?;
    let (mut runs, mut parts) = (Vec::new(), Vec::new());
    for file in files {
        if !matches!(file, ResultFile::Run(_)) && !runs.is_empty() {
            parts.push(ResultFile::Variants(std::mem::take(&mut runs)));
        }
        match file {
            ResultFile::Run(run) => runs.push(*run),
            part => parts.push(part),
        }
    }
    if !runs.is_empty() {
        parts.push(ResultFile::Variants(runs));
    }
    let parts: Vec<_> = parts
        .iter()
        .map(|part| match part {
            ResultFile::Run(run) => Part::Runs(std::slice::from_ref(run)),
            ResultFile::Variants(runs) => Part::Runs(runs),
            ResultFile::Sweep(sweep) => Part::Sweep(sweep),
        })
        .collect();
    Ok(html::report(&parts))
}

/// Reads the result of a single run.
///
/// # Errors
/// The file cannot be read, or contains several results.
pub fn read(path: &Path) -> Result<BenchResult, ReadError> {
    let mut results = read_all(path)?;
    match (results.pop(), results.len()) {
        (Some(result), 0) => Ok(result),
        (last, rest) => Err(ReadError::Several { path: path.to_owned(), results: rest + usize::from(last.is_some()) }),
    }
}

/// Reads the result of a run, or the list of results of a scenario's variants.
///
/// # Errors
/// The file cannot be read.
pub fn read_all(path: &Path) -> Result<Vec<BenchResult>, ReadError> {
    match read_any(path)? {
        ResultFile::Run(run) => Ok(vec![*run]),
        ResultFile::Variants(runs) => Ok(runs),
        ResultFile::Sweep(_) => Err(ReadError::Sweep(path.to_owned())),
    }
}

/// Reads the result of a sweep.
///
/// # Errors
/// The file cannot be read.
pub fn read_sweep(path: &Path) -> Result<SweepResult, ReadError> {
    match read_any(path)? {
        ResultFile::Sweep(sweep) => Ok(*sweep),
        ResultFile::Run(_) | ResultFile::Variants(_) => Err(ReadError::Run(path.to_owned())),
    }
}

enum ResultFile {
    Run(Box<BenchResult>),
    Variants(Vec<BenchResult>),
    Sweep(Box<SweepResult>),
}

fn read_any(path: &Path) -> Result<ResultFile, ReadError> {
    let text = read_text(path)?;
    if is_list(&text) {
        let runs: Vec<BenchResult> = parse(path, &text)?;
        runs.iter().try_for_each(|run| check_format(path, run.format, FORMAT))?;
        return Ok(ResultFile::Variants(runs));
    }
    let Kind { kind } = parse(path, &text)?;
    if kind == SWEEP {
        let sweep: SweepResult = parse(path, &text)?;
        return check_format(path, sweep.format, sweep::FORMAT).map(|()| ResultFile::Sweep(Box::new(sweep)));
    }
    let run: BenchResult = parse(path, &text)?;
    check_format(path, run.format, FORMAT).map(|()| ResultFile::Run(Box::new(run)))
}

/// Distinguishes the result of a sweep from that of a run.
#[derive(Deserialize)]
struct Kind {
    #[serde(default)]
    kind: String,
}

const SWEEP: &str = "sweep";

fn is_list(text: &[u8]) -> bool {
    text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[')
}

fn parse<T: DeserializeOwned>(path: &Path, text: &[u8]) -> Result<T, ReadError> {
    serde_json::from_slice(text).map_err(|source| ReadError::NotAResult { path: path.to_owned(), source })
}

fn check_format(path: &Path, format: u32, expected: u32) -> Result<(), ReadError> {
    if format == expected { Ok(()) } else { Err(ReadError::Format { path: path.to_owned(), format, expected }) }
}

fn read_text(path: &Path) -> Result<Vec<u8>, ReadError> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut text));
    match read {
        Ok(_) if text.len() as u64 > MAX_FILE_BYTES => Err(ReadError::TooLarge(path.to_owned())),
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
    fn a_written_result_is_read() {
        let written = BenchResult { format: FORMAT, name: "a sample".to_owned(), ..BenchResult::default() };
        assert_eq!(of(&serde_json::to_string(&written).unwrap()), Ok(written));
    }

    #[test]
    fn another_file_is_refused_with_its_error() {
        let other = of("{\"format\": 1,\n \"name\": 7}").unwrap_err();
        assert!(
            other.starts_with("/result.json: not a result of `poolhouse bench` or `poolhouse sweep`: ")
                && other.contains("line 2"),
            "{other}"
        );
        let newer = BenchResult { format: FORMAT + 1, ..BenchResult::default() };
        let newer = of(&serde_json::to_string(&newer).unwrap()).unwrap_err();
        assert!(newer.contains("format 2, and this Poolhouse reads format 1"), "{newer}");
        assert!(read(Path::new("/no/such/file")).unwrap_err().to_string().starts_with("/no/such/file: "));
    }

    #[test]
    fn the_variants_of_a_scenario_are_a_list() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("variants.json");
        let variants = ["one", "two"].map(super::super::sample::full);
        std::fs::write(&path, serde_json::to_string_pretty(&variants).unwrap()).unwrap();
        assert_eq!(read_all(&path).unwrap(), variants);
        assert!(page(std::slice::from_ref(&path)).unwrap().contains("All runs"));
        assert!(read(&path).unwrap_err().to_string().ends_with("2 results, where one is needed"));
    }

    #[test]
    fn a_page_may_have_parts_of_every_kind() {
        let directory = tempfile::tempdir().unwrap();
        let [sweep, run, variants] =
            ["sweep.json", "run.json", "variants.json"].map(|name| directory.path().join(name));
        let swept = SweepResult { format: sweep::FORMAT, kind: SWEEP.to_owned(), ..SweepResult::default() };
        let two = ["churn: one", "churn: two"].map(super::super::sample::full);
        std::fs::write(&sweep, serde_json::to_string(&swept).unwrap()).unwrap();
        std::fs::write(&run, serde_json::to_string(&super::super::sample::full("a sample")).unwrap()).unwrap();
        std::fs::write(&variants, serde_json::to_string(&two).unwrap()).unwrap();
        assert!(page(std::slice::from_ref(&sweep)).unwrap().contains("Throughput against clients"));
        // Single runs, also of several files, are compared; variants and a sweep are parts of their own.
        let both = page(&[run.clone(), run.clone(), variants, sweep.clone(), sweep.clone()]).unwrap();
        assert_eq!(both.matches("<h3>All runs</h3>").count(), 2);
        assert!(both.contains("\"groups\":[[0,2],[2,4]]"));
        assert!(
            both.contains("data-kind=\"all-rate\" data-run=\"1\"")
                && both.contains("data-kind=\"rate\" data-run=\"3\"")
        );
        assert!(both.contains("data-kind=\"sweep-throughput\" data-run=\"1\"") && both.contains(">churn</a>"));
        assert!(read_all(&sweep).unwrap_err().to_string().ends_with("where that of a run is needed"));
    }
}
