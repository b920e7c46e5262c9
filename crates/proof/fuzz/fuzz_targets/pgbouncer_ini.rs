//! A `pgbouncer.ini` may hold anything, and include a file, which follows behind 0xFF. Either it is translated into a
//! text that the configuration's reader takes, or each error has its place: a line, or a file as a whole. No error
//! tells a password: a byte 0x01 stands for one, as a pair of a connection string.
#![no_main]

use std::{
    io,
    path::{Path, PathBuf},
};

use libfuzzer_sys::fuzz_target;
use pgbouncer::{Machine, translate};
use settings::{Problem, Problems};

const SECRET: &str = "s3cr3t0fFuzz";
const INI: &str = "fuzzed.ini";

/// Checks the errors of a configuration that is refused.
fn check(problems: &[Problem]) {
    assert!(!problems.is_empty(), "a refusal says why");
    for problem in problems {
        assert!(problem.file.is_some(), "no place: {problem}");
    }
    let shown = Problems(problems.to_vec()).to_string();
    assert!(!shown.contains(SECRET), "an error tells a password: {shown}");
}

fuzz_target!(|data: &[u8]| {
    let text = |part: &[u8]| String::from_utf8_lossy(part).replace('\u{1}', &format!(" password={SECRET} "));
    let mut parts = data.splitn(2, |byte| *byte == 0xFF).map(text);
    let (ini, included) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let read_file = |path: &Path| match path.to_str() {
        Some(INI) => Ok(ini.clone()),
        Some("included.ini") => Ok(included.clone()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    let addresses = |_: &str| Ok(vec![[127, 0, 0, 1].into()]);
    let folder = PathBuf::from("/nonexistent");
    let machine = Machine { read_file: &read_file, addresses: &addresses, folder, has_ipv6: true };
    match translate(Path::new(INI), &machine) {
        Err(Problems(problems)) => check(&problems),
        Ok(translation) => {
            let shown: String = translation.notes.iter().map(Problem::to_string).collect();
            assert!(!shown.contains(SECRET), "a note tells a password: {shown}");
            if let Err(Problems(problems)) = serve::from_text(Path::new(INI), &translation.toml, &|_| None) {
                check(&problems.into_iter().map(|problem| translation.locate(problem)).collect::<Vec<_>>());
            }
        }
    }
});
