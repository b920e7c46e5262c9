//! The keys of `[auth]` that say how clients of PostgreSQL log in, and the files that they name.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use settings::{Document, Problem, Section};

use super::{
    hba::{self, Hba, IdentMaps, Method, Wrong},
    ldap::LdapOptions,
};

/// Keys of `[auth]`.
pub const LOGIN_KEYS: &[&str] = &["type", "hba_file", "ident_file", "ldap_options"];

/// How clients of PostgreSQL log in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AuthType {
    /// The same for all.
    One(Method),
    /// Each client gets in, under any name.
    Any,
    Hba(Arc<Hba>),
}

impl Default for AuthType {
    fn default() -> Self {
        Self::One(Method::Stored)
    }
}

impl AuthType {
    /// Whether it is the default: passwords and certificates of the configured users, and no login without any.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// All methods by which clients may log in.
    pub fn methods(&self) -> Vec<&Method> {
        match self {
            Self::One(method) => vec![method],
            Self::Any => vec![&Method::Trust],
            Self::Hba(hba) => hba.methods().collect(),
        }
    }

    /// Whether a user can log in of whom no password is stored.
    pub fn takes_users_without_password(&self) -> bool {
        let needs_none = |method: &&Method| {
            matches!(method, Method::Trust | Method::Certificate(_) | Method::Peer(_) | Method::Ldap(_))
        };
        self.methods().iter().any(needs_none)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Default,
    Any,
    Hba,
    Ldap,
    Pam,
    Trust,
    Md5,
    Scram,
    Cleartext,
    Certificate,
}

const WORDS: &[(&str, Word)] = &[
    ("stored", Word::Default),
    ("hba", Word::Hba),
    ("scram-sha-256", Word::Scram),
    ("md5", Word::Md5),
    ("plain", Word::Cleartext),
    ("cert", Word::Certificate),
    ("ldap", Word::Ldap),
    ("trust", Word::Trust),
    ("any", Word::Any),
    ("pam", Word::Pam),
];

/// Reads the keys. The files that were read are added to `files`. Errors are reported.
pub fn auth_type(section: &Section<'_>, document: &Document<'_>, files: &mut Vec<PathBuf>) -> AuthType {
    let word = section.choice("type", WORDS);
    for (key, of) in [("hba_file", Word::Hba), ("ident_file", Word::Hba), ("ldap_options", Word::Ldap)] {
        if section.has(key) && word.unwrap_or(Word::Default) != of && (word.is_some() || !section.has("type")) {
            let name = WORDS.iter().find(|(_, word)| *word == of).expect("each has a word").0;
            section.error(key, format!("`{key}` has no effect: it needs type = \"{name}\""));
        }
    }
    AuthType::One(match word.unwrap_or(Word::Default) {
        Word::Default => Method::Stored,
        Word::Any => return AuthType::Any,
        Word::Hba => return hba_rules(section, document, files).map_or_else(AuthType::default, AuthType::Hba),
        Word::Ldap => match section.string("ldap_options") {
            Some(text) => match LdapOptions::parse(&text) {
                Ok(options) => Method::Ldap(Arc::new(options)),
                Err(message) => {
                    section.error("ldap_options", message);
                    Method::Stored
                }
            },
            None => {
                if !section.has("ldap_options") {
                    section.error("type", "type = \"ldap\" needs `ldap_options`");
                }
                Method::Stored
            }
        },
        Word::Pam => {
            section.error("type", hba::NO_PAM);
            Method::Stored
        }
        Word::Trust => Method::Trust,
        Word::Md5 => Method::Md5,
        Word::Scram => Method::Scram,
        Word::Cleartext => Method::Cleartext,
        Word::Certificate => Method::Certificate(None),
    })
}

fn hba_rules(section: &Section<'_>, document: &Document<'_>, files: &mut Vec<PathBuf>) -> Option<Arc<Hba>> {
    let Some(path) = section.path("hba_file") else {
        if !section.has("hba_file") {
            section.error("type", "type = \"hba\" needs `hba_file`");
        }
        return None;
    };
    let report = |path: &Path, text: &str, wrongs: Vec<Wrong>| {
        let problems =
            wrongs.into_iter().map(|wrong| Problem::error(wrong.message).at_open_text(path, text, wrong.span));
        document.problems.borrow_mut().extend(problems);
    };
    let mut read = |key, path: &Path| {
        files.push(path.to_owned());
        read_text(path).map_err(|why| section.error(key, format!("cannot read {}: {why}", path.display()))).ok()
    };
    let maps = match section.path("ident_file") {
        None => None,
        Some(path) => {
            let text = read("ident_file", &path)?;
            Some(IdentMaps::parse(&text).map_err(|wrongs| report(&path, &text, wrongs)).ok()?)
        }
    };
    let text = read("hba_file", &path)?;
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    let mut included = |name: &str| {
        let path = folder.join(name);
        files.push(path.clone());
        read_text(&path)
    };
    let rules = hba::parse(&text, maps.as_ref(), &mut included);
    rules.map(Arc::new).map_err(|wrongs| report(&path, &text, wrongs)).ok()
}

fn read_text(path: &Path) -> Result<String, String> {
    let length = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    if length > hba::MAX_BYTES {
        return Err(format!("it is longer than {} bytes", hba::MAX_BYTES));
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}
