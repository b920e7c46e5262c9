//! Writes the TOML: what all sections share, and the order in which they are written.

mod auth;
mod databases;
mod listeners;
mod peers;
mod pools;
mod process;
mod tls;
mod users;

use std::{
    fmt,
    path::{Path, PathBuf},
};

use settings::{Problem, Problems};

use crate::{
    general::{General, Given},
    ini::{Ini, SectionName, Spot},
    known::{Fate, GENERAL},
    machine::Machine,
    pairs::pairs,
    toml_text::{TomlText, Value},
};

/// The setting that may have a password in it.
const LDAP_OPTIONS: &str = "auth_ldap_options";

/// A translated configuration.
pub struct Translation {
    /// The text of a `poolhouse.toml`.
    pub toml: String,
    /// What is different, or without effect: warnings with their places in the ini.
    pub notes: Vec<Problem>,
    /// For each line of the TOML, the place that it comes from.
    origins: Vec<Option<Spot>>,
    ini: Ini,
    /// Settings beside the files that are not translated yet.
    kept: Vec<(String, String)>,
}

impl fmt::Debug for Translation {
    /// Without the texts, which may hold passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files: Vec<&Path> = self.files().collect();
        f.debug_struct("Translation").field("files", &files).finish_non_exhaustive()
    }
}

impl Translation {
    /// The files that it was made of.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.ini.read_files().iter().map(|file| file.path.as_path())
    }

    /// The settings of `[pgbouncer]`, those that the file does not set included: name, value and default.
    pub fn general_settings(&self) -> impl Iterator<Item = (&'static str, &str, &'static str)> {
        GENERAL.iter().map(|known| {
            let mut given = self.ini.settings.iter().rev();
            let given = given.find(|setting| setting.section == SectionName::PgBouncer && setting.key == known.name);
            let shown = match given {
                Some(setting) if setting.key == LDAP_OPTIONS && !setting.value.is_empty() => "*****",
                Some(setting) => &setting.value,
                None => known.default,
            };
            (known.name, shown, known.default)
        })
    }

    /// The same files, with a setting of `[pgbouncer]` that is set beside them. They are not read again.
    ///
    /// # Errors
    /// As [`translate`].
    pub fn with_setting(&self, key: &str, value: &str, machine: &Machine<'_>) -> Result<Self, Problems> {
        let mut ini = self.ini.clone();
        // Any setting of TLS, such as its mode, may be the one with which those that are kept make sense.
        let is_of_tls = key.contains("_tls_");
        if is_of_tls {
            self.kept.iter().for_each(|(key, value)| ini.set(key, value));
        }
        ini.set(key, value);
        let made = translate_ini(ini, machine)?;
        Ok(if is_of_tls { made } else { Self { kept: self.kept.clone(), ..made } })
    }

    /// The same translation, which keeps such a setting until the next one is set: only together may they make sense,
    /// as a certificate and its key do.
    #[must_use]
    pub fn keeping(&self, key: &str, value: &str) -> Self {
        let Self { toml, notes, origins, ini, kept } = self;
        let (toml, notes, origins, ini) = (toml.clone(), notes.clone(), origins.clone(), ini.clone());
        let kept = kept.iter().cloned().chain([(key.to_owned(), value.to_owned())]).collect();
        Self { toml, notes, origins, ini, kept }
    }

    /// Whether the TOML has a password in it.
    pub fn has_passwords(&self) -> bool {
        let mut settings = self.ini.settings.iter();
        settings.any(|setting| {
            setting.key == LDAP_OPTIONS
                || pairs(&setting.value).is_ok_and(|pairs| pairs.iter().any(|pair| pair.key == "password"))
        })
    }

    /// A problem of the TOML, at the place of the ini that it comes from.
    pub fn locate(&self, problem: Problem) -> Problem {
        // A user list, and a file of rules, have lines of their own.
        if problem.file.as_deref().is_some_and(|file| file != self.ini.files[0].path) {
            return problem;
        }
        let Some(place) = problem.place.clone() else { return problem };
        let before = self.origins.iter().take(place.line).rev();
        // A line that no setting asked for belongs to the table above it, or to the file.
        match before.flatten().next() {
            Some(spot) => self.ini.locate(Problem { place: None, ..problem }, spot),
            None => Problem { place: None, ..problem }.in_file(&self.ini.files[0].path),
        }
    }
}

/// Translates a file and what it includes.
///
/// # Errors
/// All that is wrong with it, and all that cannot be done here.
pub fn translate(path: &Path, machine: &Machine<'_>) -> Result<Translation, Problems> {
    translate_ini(Ini::read(path, machine.read_file)?, machine)
}

fn translate_ini(ini: Ini, machine: &Machine<'_>) -> Result<Translation, Problems> {
    let mut problems = Vec::new();
    let mut notes = Vec::new();
    let general = General::new(&ini, &mut problems, &mut notes);
    let mut writer = Writer { ini: &ini, machine, general, toml: TomlText::default(), problems, notes };
    writer.file();
    let Writer { toml, mut problems, mut notes, .. } = writer;
    if !problems.is_empty() {
        problems.sort_by_key(Problem::position);
        problems.dedup();
        return Err(Problems(problems));
    }
    notes.sort_by_key(Problem::position);
    let (toml, origins) = toml.finish();
    Ok(Translation { toml, notes, origins, ini, kept: Vec::new() })
}

struct Writer<'a> {
    ini: &'a Ini,
    machine: &'a Machine<'a>,
    general: General<'a>,
    toml: TomlText,
    problems: Vec<Problem>,
    notes: Vec<Problem>,
}

impl<'a> Writer<'a> {
    fn file(&mut self) {
        let path = self.ini.files[0].path.display().to_string();
        let path = path.escape_debug();
        self.toml.head(&format!("Translated from {path} for Poolhouse {}.", env!("CARGO_PKG_VERSION")));
        self.process();
        self.limits();
        self.auth();
        self.console();
        self.network();
        self.pool();
        self.listeners();
        let databases = self.read_databases();
        self.databases(&databases);
        self.users(&databases);
        self.peers();
        self.note_fates();
    }

    fn get(&self, name: &'static str) -> Given<'a> {
        self.general.get(name)
    }

    /// Opens a section.
    fn open(&mut self, section: &'static str) {
        self.toml.table(&format!("[{section}]"), None);
    }

    /// Opens a section of which there may be several.
    fn open_entry(&mut self, section: &'static str, origin: Option<&Spot>) {
        self.toml.table(&format!("[[{section}]]"), origin);
    }

    /// Writes a key that a setting asks for.
    fn set(&mut self, key: &'static str, value: impl Into<Value>, given: Given<'_>) {
        self.toml.set(key, &value.into(), given.spot);
    }

    /// The same, but nothing is written for what is so without the key.
    fn set_unless_default(&mut self, key: &'static str, value: impl Into<Value>, given: Given<'_>) {
        if !given.is_default() {
            self.set(key, value, given);
        }
    }

    /// Writes a key that comes of no single setting.
    fn put(&mut self, key: &'static str, value: impl Into<Value>) {
        self.toml.set(key, &value.into(), None);
    }

    fn refuse(&mut self, spot: &Spot, message: impl Into<String>, hint: impl Into<String>) {
        self.problems.push(self.ini.locate(Problem::error(message).hint(hint), spot));
    }

    /// Refuses a setting, wherever it stands.
    fn refuse_given(&mut self, given: Given<'_>, message: impl Into<String>, hint: impl Into<String>) {
        match given.spot {
            Some(spot) => self.refuse(spot, message, hint),
            None => {
                let problem = Problem::error(message).hint(hint).in_file(&self.ini.files[0].path);
                self.problems.push(problem);
            }
        }
    }

    fn note(&mut self, spot: &Spot, message: impl Into<String>) {
        self.notes.push(self.ini.locate(Problem::warning(message), spot));
    }

    /// A path as PgBouncer means it: relative to the current folder.
    fn path(&self, text: &str) -> String {
        let path: PathBuf = self.machine.folder.join(text);
        path.to_string_lossy().into_owned()
    }

    fn is_this_file(&self, path: &str) -> bool {
        self.machine.folder.join(path) == self.machine.folder.join(&self.ini.files[0].path)
    }

    /// Tells what the tables say of each setting that is written and not at its default; refuses what they refuse.
    fn note_fates(&mut self) {
        let mut without_effect: Vec<Given<'a>> = Vec::new();
        for given in self.general.given() {
            let Some(spot) = given.spot.filter(|_| !given.is_default()) else { continue };
            match given.known.fate {
                Fate::Same => {}
                Fate::Different(why) => self.note(spot, format!("{}: {why}", given.known.name)),
                Fate::Accepted(_) => without_effect.push(given),
                // An operator of Kubernetes names the file in itself.
                Fate::Refused(_) if given.known.name == "conffile" && self.is_this_file(given.value) => {}
                Fate::Refused(why) => self.refuse(spot, format!("{} is not supported", given.known.name), why),
            }
        }
        if let Some(spot) = without_effect.first().and_then(|given| given.spot) {
            let names: Vec<&str> = without_effect.iter().map(|given| given.known.name).collect();
            self.note(spot, format!("taken, and without effect here: {}", names.join(", ")));
        }
    }
}
