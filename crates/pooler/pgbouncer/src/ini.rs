//! A `pgbouncer.ini` with the files that it includes, as settings in their order with their places. Knows the names of
//! sections, and no setting.

use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
};

use settings::Problem;

use crate::lines::{Line, lines};

/// Depth of files that include each other.
const MAX_INCLUDE_DEPTH: usize = 10;
/// Files in all: a file may be included many times.
const MAX_FILES: usize = 1000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SectionName {
    PgBouncer,
    Databases,
    Users,
    Peers,
}

impl SectionName {
    const ALL: [(&'static str, Self); 4] = [
        ("pgbouncer", Self::PgBouncer),
        ("databases", Self::Databases),
        ("users", Self::Users),
        ("peers", Self::Peers),
    ];

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, section)| *section)
    }
}

/// A place: a file of [`Ini::files`], and bytes of its text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spot {
    pub file: usize,
    pub span: Range<usize>,
}

impl Spot {
    /// A part of the place.
    pub fn part(&self, within: &Range<usize>) -> Self {
        let at = self.span.start;
        Self { file: self.file, span: at + within.start..at + within.end }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    pub section: SectionName,
    pub key: String,
    pub value: String,
    pub key_spot: Spot,
    pub value_spot: Spot,
}

/// A file that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IniFile {
    pub path: PathBuf,
    pub text: String,
}

/// A file of PgBouncer's, with all that it includes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ini {
    pub files: Vec<IniFile>,
    pub settings: Vec<Setting>,
    /// The places of `[pgbouncer]`, each with the number of settings before it.
    pub general_sections: Vec<(usize, Spot)>,
    /// What was set beside the files, and the number of files before it.
    pub set: Option<(usize, Vec<(String, String)>)>,
}

/// The name in errors of what was set beside the files.
const BESIDE_FILES: &str = "SET";

/// How a file is read; tests have files of their own.
pub type ReadFile<'r> = &'r dyn Fn(&Path) -> io::Result<String>;

impl Ini {
    /// Reads a file and those that it includes. Paths are relative to the current folder, as PgBouncer's are.
    ///
    /// # Errors
    /// The first line that cannot be read: nothing behind it can be understood.
    pub fn read(path: &Path, read_file: ReadFile<'_>) -> Result<Self, Problem> {
        let mut reader = Reader { ini: Self::default(), section: None, read_file };
        let text = read_file(path).map_err(|error| Problem::error(format!("cannot read it: {error}")).in_file(path))?;
        reader.file(path, text, 0)?;
        Ok(reader.ini)
    }

    /// Sets a setting of `[pgbouncer]` beside the files, whatever they say.
    pub fn set(&mut self, key: &str, value: &str) {
        let (file, mut set) = self.set.take().unwrap_or((self.files.len(), Vec::new()));
        set.retain(|(known, _)| known != key);
        set.push((key.to_owned(), value.to_owned()));
        self.files.truncate(file);
        self.settings.retain(|setting| setting.key_spot.file < file);
        let mut text = String::new();
        for (key, value) in &set {
            let at = text.len();
            let spot = |start: usize, length: usize| Spot { file, span: start..start + length };
            self.settings.push(Setting {
                section: SectionName::PgBouncer,
                key: key.clone(),
                value: value.clone(),
                key_spot: spot(at, key.len()),
                value_spot: spot(at + key.len() + 3, value.len()),
            });
            text.push_str(&format!("{key} = {value}\n"));
        }
        self.files.push(IniFile { path: BESIDE_FILES.into(), text });
        self.set = Some((file, set));
    }

    /// The files that were read.
    pub fn read_files(&self) -> &[IniFile] {
        &self.files[..self.set.as_ref().map_or(self.files.len(), |(file, _)| *file)]
    }

    /// A problem at its place.
    pub fn locate(&self, problem: Problem, spot: &Spot) -> Problem {
        let file = &self.files[spot.file];
        problem.at(&file.path, &file.text, spot.span.clone())
    }
}

struct Reader<'r> {
    ini: Ini,
    /// The section of the next setting. It goes on behind an included file, whose sections count.
    section: Option<SectionName>,
    read_file: ReadFile<'r>,
}

impl Reader<'_> {
    fn file(&mut self, path: &Path, text: String, depth: usize) -> Result<(), Problem> {
        let file = self.ini.files.len();
        self.ini.files.push(IniFile { path: path.to_owned(), text: text.clone() });
        let spot = |span| Spot { file, span };
        for line in lines(&text) {
            match line {
                Line::Section { name, span } => self.open_section(name, spot(span))?,
                Line::Setting { key, value, key_span, value_span } => {
                    let key_spot = spot(key_span);
                    let Some(section) = self.section else {
                        let problem = Problem::error(format!("value without section: {}", key.escape_debug()));
                        return Err(self
                            .ini
                            .locate(problem.hint("a section such as [pgbouncer] comes first"), &key_spot));
                    };
                    let (value, value_spot) = (value.to_owned(), spot(value_span));
                    self.ini.settings.push(Setting { section, key, value, key_spot, value_spot });
                }
                Line::Include { path, span } => self.include(path, &spot(span), depth)?,
                Line::Unreadable { span } => {
                    let problem = Problem::error("syntax error in configuration");
                    let hint = "a line is a [section], `key = value`, `%include file`, or a comment behind `;` or `#`";
                    return Err(self.ini.locate(problem.hint(hint), &spot(span)));
                }
            }
        }
        Ok(())
    }

    fn open_section(&mut self, name: &str, spot: Spot) -> Result<(), Problem> {
        let Some(section) = SectionName::parse(name) else {
            // It may be a connection string, with its password.
            let shown = name.split_once('=').map_or(name, |(key, _)| key.trim_end());
            let problem = Problem::error(format!("invalid section \"{}\"", shown.escape_debug()));
            let hint = "sections are [databases], [users], [peers] and [pgbouncer]";
            return Err(self.ini.locate(problem.hint(hint), &spot));
        };
        if section == SectionName::PgBouncer {
            self.ini.general_sections.push((self.ini.settings.len(), spot));
        }
        self.section = Some(section);
        Ok(())
    }

    fn include(&mut self, path: &str, spot: &Spot, depth: usize) -> Result<(), Problem> {
        let fail = |ini: &Ini, message: String| Err(ini.locate(Problem::error(message), spot));
        if depth == MAX_INCLUDE_DEPTH {
            return fail(&self.ini, format!("files include each other more than {MAX_INCLUDE_DEPTH} deep"));
        }
        if self.ini.files.len() == MAX_FILES {
            return fail(&self.ini, format!("more than {MAX_FILES} files are included"));
        }
        match (self.read_file)(Path::new(path)) {
            Ok(text) => self.file(Path::new(path), text, depth + 1),
            Err(error) => fail(&self.ini, format!("could not load file \"{}\": {error}", path.escape_debug())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> Result<Ini, Problem> {
        let find = |path: &Path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path);
            file.map(|(_, text)| (*text).to_owned()).ok_or(io::Error::from(io::ErrorKind::NotFound))
        };
        Ini::read(Path::new("p.ini"), &find)
    }

    #[test]
    fn an_included_file_goes_on_in_the_section_and_may_open_another() {
        let included = "a = host=h\n[databases]\nb = host=h\n";
        let ini = read(&[("p.ini", "[users]\n%include q.ini\nc = host=h\n"), ("q.ini", included)]).unwrap();
        let read: Vec<_> = ini.settings.iter().map(|s| (s.section, s.key.as_str(), s.key_spot.file)).collect();
        let expected =
            [(SectionName::Users, "a", 1), (SectionName::Databases, "b", 1), (SectionName::Databases, "c", 0)];
        assert_eq!(read, expected);
    }

    #[test]
    fn what_is_set_beside_the_files_comes_last_and_once() {
        let mut ini = read(&[("p.ini", "[pgbouncer]\nverbose = 1\n")]).unwrap();
        for (key, value) in [("verbose", "2"), ("user", "a"), ("verbose", "3")] {
            ini.set(key, value);
        }
        let said: Vec<_> = ini.settings.iter().map(|setting| (setting.key.as_str(), setting.value.as_str())).collect();
        assert_eq!(said, [("verbose", "1"), ("user", "a"), ("verbose", "3")]);
        assert_eq!((ini.read_files().len(), ini.files.len()), (1, 2));
        let problem = ini.locate(Problem::error("no"), &ini.settings[2].value_spot);
        assert_eq!(problem.position(), (2, 11));
    }

    #[test]
    fn a_file_that_includes_itself_is_refused() {
        let problem = read(&[("p.ini", "[users]\n%include p.ini\n")]).unwrap_err();
        assert!(problem.message.contains("10 deep"), "{problem}");
    }

    #[test]
    fn mistakes_name_file_and_line() {
        for (text, place, message) in [
            ("[users]\n[nonsense]\n", (2, 1), "invalid section \"nonsense\""),
            ("[db = host=h password=p]\n", (1, 1), "invalid section \"db\""),
            ("a = b\n", (1, 1), "value without section: a"),
            ("[users]\n\n  a b\n", (3, 3), "syntax error"),
            ("[users]\n%include none.ini\n", (2, 10), "could not load file \"none.ini\""),
        ] {
            let problem = read(&[("p.ini", text)]).unwrap_err();
            assert_eq!(problem.position(), place, "{problem}");
            assert!(problem.message.contains(message), "{problem}");
        }
    }
}
