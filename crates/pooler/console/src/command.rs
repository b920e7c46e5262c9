//! The text of a command. The grammar is PgBouncer's: one command with at most one argument in a text, whose words may
//! stand in double quotes; only the value of SET may stand in single quotes.

use crate::{answer::Failure, shows::Show};

/// Bytes of a word, which may be the name of a database.
const MAX_WORD_BYTES: usize = 63;
/// Bytes of a value in SET.
const MAX_VALUE_BYTES: usize = 4096;
/// Bytes of a wrong command that its error repeats.
const MAX_QUOTED_BYTES: usize = 512;

/// What a user may do at the console.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    /// Looks on.
    Viewer,
    /// Gives orders, too.
    Admin,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    Show(Show),
    /// SHOW of a parameter that drivers ask for, and its value.
    ShowParameter(&'static str, &'static str),
    /// SET of a parameter of PostgreSQL, which has no meaning here.
    IgnoredSet,
    Set {
        key: String,
        value: String,
    },
    /// A database, or `None` for all; so for the following ones.
    Pause(Option<String>),
    Resume(Option<String>),
    Reconnect(Option<String>),
    Kill(Option<String>),
    WaitClose(Option<String>),
    /// Takes no new clients. Needs a database; so for the following one.
    Disable(Option<String>),
    Enable(Option<String>),
    /// A client, by what was given as its id.
    KillClient(String),
    Reload,
    Shutdown(Shutdown),
}

/// How the process is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    Now,
    /// When all servers are released.
    WaitForServers,
    /// When all clients have left.
    WaitForClients,
}

/// Parameters that drivers ask for after a login, and their values here.
const PARAMETERS: [(&str, &str); 5] = [
    ("client_encoding", "UTF-8"),
    ("datestyle", "ISO"),
    ("default_transaction_isolation", "read committed"),
    ("standard_conforming_strings", "on"),
    ("timezone", "GMT"),
];

/// Parameters that drivers set after a login, which mean nothing here.
const IGNORED_PARAMETERS: [&str; 5] =
    ["client_encoding", "datestyle", "extra_float_digits", "standard_conforming_strings", "timezone"];

impl Command {
    /// # Errors
    /// The text is no command.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let words = Words::read(text).ok_or_else(|| invalid(text))?;
        if words.is_too_long() {
            return Err(Failure::new("bad arguments"));
        }
        let Words { verb, rest } = words;
        let one = |rest: Rest| match rest {
            Rest::Nothing => Ok(None),
            Rest::Word(word) => Ok(Some(word).filter(|word| !word.is_empty())),
            Rest::Assignment(..) => Err(invalid(text)),
        };
        let none = |rest: Rest| if rest == Rest::Nothing { Ok(()) } else { Err(invalid(text)) };
        Ok(match verb.to_ascii_lowercase().as_str() {
            "show" => one(rest)?.and_then(|name| show(&name)).ok_or_else(|| invalid(text))?,
            "set" => match rest {
                Rest::Assignment(key, value) => set(key, value),
                _ => return Err(invalid(text)),
            },
            "pause" => Self::Pause(one(rest)?),
            "resume" => Self::Resume(one(rest)?),
            "reconnect" => Self::Reconnect(one(rest)?),
            "kill" => Self::Kill(one(rest)?),
            "wait_close" => Self::WaitClose(one(rest)?),
            "disable" => Self::Disable(one(rest)?),
            "enable" => Self::Enable(one(rest)?),
            "kill_client" => Self::KillClient(one(rest)?.unwrap_or_default()),
            "reload" => {
                none(rest)?;
                Self::Reload
            }
            "shutdown" => Self::Shutdown(match one(rest)?.map(|how| how.to_ascii_lowercase()).as_deref() {
                None => Shutdown::Now,
                Some("wait_for_servers") => Shutdown::WaitForServers,
                Some("wait_for_clients") => Shutdown::WaitForClients,
                Some(_) => return Err(invalid(text)),
            }),
            _ => return Err(invalid(text)),
        })
    }

    /// Who may give this command.
    pub(crate) fn role(&self) -> Role {
        match self {
            Self::Show(_) | Self::ShowParameter(..) | Self::IgnoredSet => Role::Viewer,
            _ => Role::Admin,
        }
    }
}

fn show(name: &str) -> Option<Command> {
    let name = name.to_ascii_lowercase();
    let parameter = || PARAMETERS.iter().find(|(known, _)| *known == name);
    Show::named(&name)
        .map(Command::Show)
        .or_else(|| parameter().map(|(name, value)| Command::ShowParameter(name, value)))
}

fn set(key: String, value: String) -> Command {
    let key = key.to_ascii_lowercase();
    if IGNORED_PARAMETERS.contains(&key.as_str()) { Command::IgnoredSet } else { Command::Set { key, value } }
}

fn invalid(text: &str) -> Failure {
    let mut end = text.len().min(MAX_QUOTED_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Failure::new(format!("invalid command '{}', use SHOW HELP;", &text[..end]))
}

/// The words of a command.
#[derive(PartialEq, Eq, Debug)]
struct Words {
    verb: String,
    rest: Rest,
}

#[derive(PartialEq, Eq, Debug)]
enum Rest {
    Nothing,
    Word(String),
    /// The key and the value of `key = value` or `key TO value`.
    Assignment(String, String),
}

impl Words {
    fn read(text: &str) -> Option<Self> {
        let mut scan = Scan { rest: text };
        scan.space();
        let verb = scan.bare()?;
        let apart = scan.space();
        if scan.is_over() {
            return Some(Self { verb, rest: Rest::Nothing });
        }
        let word = scan.word().filter(|_| apart)?;
        let apart = scan.space();
        if scan.is_over() {
            return Some(Self { verb, rest: Rest::Word(word) });
        }
        if !scan.take('=') {
            let to = scan.bare().filter(|to| apart && to.eq_ignore_ascii_case("to"));
            to.filter(|_| scan.space())?;
        }
        scan.space();
        let value = scan.quoted('\'').or_else(|| scan.word())?;
        scan.space();
        scan.is_over().then_some(Self { verb, rest: Rest::Assignment(word, value) })
    }

    fn is_too_long(&self) -> bool {
        let (word, value) = match &self.rest {
            Rest::Nothing => ("", ""),
            Rest::Word(word) => (word.as_str(), ""),
            Rest::Assignment(key, value) => (key.as_str(), value.as_str()),
        };
        self.verb.len().max(word.len()) > MAX_WORD_BYTES || value.len() > MAX_VALUE_BYTES
    }
}

struct Scan<'t> {
    rest: &'t str,
}

impl Scan<'_> {
    /// Skips white space. False if there is none.
    fn space(&mut self) -> bool {
        let rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
        let found = rest.len() < self.rest.len();
        self.rest = rest;
        found
    }

    /// Whether the text ends here, perhaps with a semicolon.
    fn is_over(&self) -> bool {
        let mut end = Scan { rest: self.rest };
        end.take(';');
        end.space();
        end.rest.is_empty()
    }

    fn take(&mut self, expected: char) -> bool {
        let rest = self.rest.strip_prefix(expected);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn word(&mut self) -> Option<String> {
        self.quoted('"').or_else(|| self.bare())
    }

    /// Letters, digits and underscores.
    fn bare(&mut self) -> Option<String> {
        let length = self.rest.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
        let (word, rest) = self.rest.split_at(length);
        self.rest = rest;
        (length > 0).then(|| word.to_owned())
    }

    /// A text in quotes, in which a double quote stands for one.
    fn quoted(&mut self, quote: char) -> Option<String> {
        let mut word = String::new();
        let mut rest = self.rest.strip_prefix(quote)?;
        loop {
            let (part, after) = rest.split_once(quote)?;
            word.push_str(part);
            match after.strip_prefix(quote) {
                Some(more) => {
                    word.push(quote);
                    rest = more;
                }
                None => {
                    self.rest = after;
                    return Some(word);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        Command::parse(text).unwrap_err().message
    }

    #[test]
    fn words_may_be_quoted_and_a_semicolon_may_follow() {
        for text in ["SHOW VERSION", "show version;", " \n show\t\"version\" ; ", "Show Version ;"] {
            assert_eq!(Command::parse(text), Ok(Command::Show(Show::Version)), "{text:?}");
        }
        assert_eq!(Command::parse("PAUSE"), Ok(Command::Pause(None)));
        assert_eq!(Command::parse("PAUSE \"\""), Ok(Command::Pause(None)));
        assert_eq!(Command::parse("pause 5db;"), Ok(Command::Pause(Some("5db".to_owned()))));
        assert_eq!(Command::parse("kill \"a\"\"b c\""), Ok(Command::Kill(Some("a\"b c".to_owned()))));
    }

    #[test]
    fn a_value_may_be_a_word_or_quoted_in_both_ways() {
        for text in [
            "set query_timeout = 5",
            "SET Query_Timeout=5;",
            "set \"query_timeout\" to '5'",
            "set query_timeout = \"5\"",
        ] {
            let set = Command::Set { key: "query_timeout".to_owned(), value: "5".to_owned() };
            assert_eq!(Command::parse(text), Ok(set), "{text:?}");
        }
        let set = Command::Set { key: "k".to_owned(), value: "a'b".to_owned() };
        assert_eq!(Command::parse("set k = 'a''b'"), Ok(set));
        assert_eq!(Command::parse("set extra_float_digits = 3"), Ok(Command::IgnoredSet));
    }

    #[test]
    fn everything_else_is_an_invalid_command() {
        let wrong = [
            "",
            ";",
            "  ",
            "select 1",
            "show",
            "show foo",
            "SHOW VERSION; SHOW STATE",
            "show clients;;",
            "SHOWVERSION",
            "pause my-db",
            "pause 'bench'",
            "pause \"bench",
            "reload foo",
            "shutdown foo",
            "set",
            "set a",
            "set a 1",
            "set a = -5",
            "set a = 1.5",
            "set a = 1 2",
            "set a.b = c",
            "ä",
            "pause ä",
            "-- x\nshow version",
            "set a to",
            "suspend",
            "show fds",
            "set a = 'x",
            "begin",
            "kill_client 5 6",
            "set a=to=b",
            "pause a = b",
        ];
        for text in wrong {
            assert_eq!(message(text), format!("invalid command '{text}', use SHOW HELP;"));
        }
        assert_eq!(message(&"x".repeat(600)), "bad arguments");
        assert!(message(&format!("{}ä", "- ".repeat(256))).len() < 600);
    }
}
