//! Compares the tables of settings with PgBouncer's own manual, and docs/pgbouncer-settings.md with the tables. With
//! `UPDATE_DOCS=1` the page is written anew.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// The settings of a section of the manual page: its `.SS` or `.TP` lines between two `.SH`.
fn names_in(manual: &str, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let (mut is_wanted, mut names) = (false, Vec::new());
    for line in manual.lines() {
        if let Some(title) = line.strip_prefix(".SH ") {
            is_wanted = wanted(title.trim_matches('"'));
        } else if let (Some(name), true) = (line.strip_prefix(".SS "), is_wanted) {
            names.push(name.trim_matches('"').replace("\\_", "_").replace('\\', ""));
        }
    }
    names
}

#[test]
fn every_setting_of_the_manual_is_in_the_tables() {
    let path = root().join(".venv/pgbouncer/pgbouncer.5");
    let Ok(manual) = std::fs::read_to_string(&path) else {
        eprintln!("skipped: the manual {} is missing; scripts/setup.sh unpacks it", path.display());
        return;
    };
    let general =
        |title: &str| ["SETTINGS", "TIMEOUTS", "ACCESS CONTROL"].iter().any(|word| title.to_uppercase().contains(word));
    for section in ["[pgbouncer]", "[databases]", "[users]", "[peers]"] {
        let wanted = |title: &str| match section {
            "[pgbouncer]" => general(title),
            _ => title.eq_ignore_ascii_case(&format!("SECTION {section}")),
        };
        let mut told = names_in(&manual, wanted);
        // An alias, which the text of another setting names.
        told.extend((section == "[databases]").then(|| "reserve_pool".to_owned()));
        assert!(told.len() >= 3, "{section}: {told:?}");
        let mut known = pgbouncer::names(section);
        told.sort();
        known.sort_unstable();
        assert_eq!(known, told, "{section}");
    }
}

#[test]
fn the_page_has_the_tables() {
    const BEGIN: &str = "<!-- settings -->\n";
    const END: &str = "<!-- end of settings -->";
    let path = root().join("docs/pgbouncer-settings.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (written, after) = rest.split_once(END).unwrap();
    let table = pgbouncer::table();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    } else {
        assert!(written == table, "run `UPDATE_DOCS=1 cargo test -p pgbouncer --test manual`");
    }
}
