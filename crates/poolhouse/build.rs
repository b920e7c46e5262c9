//! Tells the program which commit it is built from: `POOLHOUSE_COMMIT` if that is set, else what git says. The sources
//! of a release have no git: then it is "unknown".

use std::{path::Path, process::Command};

const VARIABLE: &str = "POOLHOUSE_COMMIT";
/// Digits of a commit that are shown.
const DIGITS: &str = "12";

fn main() {
    println!("cargo:rerun-if-env-changed={VARIABLE}");
    let given = std::env::var(VARIABLE).ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(from_git).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env={VARIABLE}={commit}");
}

fn from_git() -> Option<String> {
    // Sources without git may lie in a folder of another repository.
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if !sources.join(".git").exists() {
        return None;
    }
    let watched = ["HEAD", "logs/HEAD"].map(|name| git(&["rev-parse", "--git-path", name]));
    for file in watched.into_iter().flatten().filter(|file| Path::new(file).exists()) {
        println!("cargo:rerun-if-changed={file}");
    }
    git(&["rev-parse", &format!("--short={DIGITS}"), "HEAD"])
}

fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok().filter(|output| output.status.success())?;
    let said = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    Some(said).filter(|said| !said.is_empty())
}
