//! A script as a list of commands with jumps for its conditions, read once. Knows which meta-commands there are; what
//! SQL, commands of Redis and MongoDB and expressions look like is `sql`'s, `redis`'s, `mongodb`'s and `expression`'s
//! matter.

use std::time::Duration;

use super::{
    error::ScriptError,
    expression::{self, Expression, Mistake},
    mongodb,
    names::{Names, VarId},
    redis,
    request::{Request, Words},
    sql::{self, End, Statement},
};

/// Bytes that a script may have.
const MAX_SCRIPT: usize = 1 << 20;
/// Commands that a script may have.
const MAX_COMMANDS: usize = 10_000;
/// `\if` within one another.
const MAX_NESTED: usize = 100;

#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    pub(super) name: Box<str>,
    pub(super) commands: Vec<Command>,
}

/// Jumps only lead forward, so every pass ends.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Command {
    Sql(Statement),
    Request(Request),
    Set(VarId, Expression),
    Sleep(Amount, Unit),
    Jump(usize),
    /// Jumps there unless the condition is true.
    Unless(Expression, usize),
}

/// What stands between the meta-commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Language {
    /// Statements that end with `;`.
    Sql,
    /// Commands of Redis, one in each line.
    Redis,
    /// Commands of MongoDB: documents.
    MongoDb,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Amount {
    Number(u64),
    Variable(VarId),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    Micros,
    Millis,
    Seconds,
}

impl Unit {
    pub(super) fn times(self, number: u64) -> Duration {
        match self {
            Self::Micros => Duration::from_micros(number),
            Self::Millis => Duration::from_millis(number),
            Self::Seconds => Duration::from_secs(number),
        }
    }
}

impl Program {
    /// What people call it: the file's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its statements, in the order of the text.
    pub fn statements(&self) -> impl Iterator<Item = &Statement> {
        self.commands.iter().filter_map(|command| match command {
            Command::Sql(statement) => Some(statement),
            _ => None,
        })
    }

    /// Reads a script. `statements`: how many the scripts before it have.
    ///
    /// # Errors
    /// The first mistake, at its place.
    pub(super) fn parse(
        name: &str,
        text: &str,
        language: Language,
        names: &mut Names,
        statements: u32,
    ) -> Result<Self, ScriptError> {
        if text.len() > MAX_SCRIPT {
            return Err(ScriptError::of(name, format!("a script has at most {MAX_SCRIPT} bytes")));
        }
        let mut reader = Reader { text, at: 0, names, commands: Vec::new(), open: Vec::new(), next_number: statements };
        let (read, usual) = match language {
            Language::Sql => (reader.statements(), "a SQL statement"),
            Language::Redis => (reader.lines(), "a command of Redis, such as PING"),
            Language::MongoDb => (reader.documents(), "a command of MongoDB, such as {\"ping\": 1}"),
        };
        read.and_then(|()| reader.finish())
            .map_err(|(offset, message)| ScriptError::at(name, text, offset, message))?;
        let program = Self { name: name.into(), commands: reader.commands };
        if !program.commands.iter().any(|c| matches!(c, Command::Sql(_) | Command::Request(_) | Command::Sleep(..))) {
            return Err(ScriptError::of(name, format!("there is nothing to do in it: write {usual}")));
        }
        Ok(program)
    }
}

/// An `\if` whose `\endif` has not come.
struct Open {
    offset: usize,
    /// The `Unless` that leads to the next branch, unless that was `\else`.
    condition: Option<usize>,
    /// The `Jump`s at the ends of branches.
    ends: Vec<usize>,
}

struct Reader<'r> {
    text: &'r str,
    at: usize,
    names: &'r mut Names,
    commands: Vec<Command>,
    open: Vec<Open>,
    next_number: u32,
}

/// Meta-commands of pgbench and psql that a script might hold, for a better word than "unknown".
const UNSUPPORTED: &[&str] =
    &["aset", "setshell", "shell", "setrandom", "startpipeline", "syncpipeline", "endpipeline", "bind", "include"];
const SUPPORTED: &[&str] = &["set", "sleep", "if", "elif", "else", "endif", "gset"];

impl Reader<'_> {
    fn statements(&mut self) -> Result<(), Mistake> {
        loop {
            self.check_length()?;
            let (statement, end, next) = sql::statement(self.text, self.at, self.names)?;
            if let Some(mut statement) = statement {
                statement.number = self.next_number;
                self.next_number += 1;
                self.commands.push(Command::Sql(statement));
            }
            self.at = next;
            match end {
                End::Semicolon => {}
                End::Backslash => self.meta()?,
                End::Script => return Ok(()),
            }
        }
    }

    fn lines(&mut self) -> Result<(), Mistake> {
        while self.at < self.text.len() {
            self.check_length()?;
            let line = self.text[self.at..].split_inclusive('\n').next().unwrap_or_default();
            let inner = line.trim_start();
            let (from, next) = (self.at + line.len() - inner.len(), self.at + line.len());
            if inner.starts_with('\\') {
                self.at = from;
                self.meta_without_rows("Redis")?;
                continue;
            }
            if let Some(command) = redis::command(inner, from, self.names)? {
                self.commands.push(Command::Request(Request(Words::Redis(command))));
            }
            self.at = next;
        }
        Ok(())
    }

    fn documents(&mut self) -> Result<(), Mistake> {
        loop {
            let inner = self.text[self.at..].trim_start();
            self.at = self.text.len() - inner.len();
            self.check_length()?;
            if inner.is_empty() {
                return Ok(());
            } else if inner.starts_with('\\') {
                self.meta_without_rows("MongoDB")?;
            } else if ["#", "--", "//"].iter().any(|mark| inner.starts_with(mark)) {
                self.at += inner.find('\n').unwrap_or(inner.len());
            } else {
                let (command, length) = mongodb::command(inner, self.at, self.names)?;
                self.commands.push(Command::Request(Request(Words::MongoDb(command))));
                self.at += length;
            }
        }
    }

    fn meta_without_rows(&mut self, of: &str) -> Result<(), Mistake> {
        if self.text[self.at..].starts_with("\\gset") {
            return Err((self.at, format!("`\\gset` takes a row of SQL, and {of} gives none")));
        }
        self.meta()
    }

    fn check_length(&self) -> Result<(), Mistake> {
        match self.commands.len() >= MAX_COMMANDS {
            true => Err((self.at, format!("a script has at most {MAX_COMMANDS} commands"))),
            false => Ok(()),
        }
    }

    fn finish(&self) -> Result<(), Mistake> {
        match self.open.last() {
            None => Ok(()),
            Some(open) => Err((open.offset, "this `\\if` has no `\\endif`".to_owned())),
        }
    }

    /// A meta-command: from its backslash to the end of the line.
    fn meta(&mut self) -> Result<(), Mistake> {
        let start = self.at;
        let (line, next) = line_from(self.text, start);
        let length = line[1..].bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
        let (name, rest) = line[1..].split_at(length);
        let rest_at = start + 1 + length;
        self.at = next;
        let Rest { text, at } = trimmed(rest, rest_at);
        match name {
            "set" => self.set(text, at),
            "sleep" => self.sleep(text, at),
            "gset" => self.gset(text, at, start),
            "if" => {
                if self.open.len() >= MAX_NESTED {
                    return Err((start, format!("more than {MAX_NESTED} `\\if` within one another")));
                }
                self.open.push(Open { offset: start, condition: None, ends: Vec::new() });
                self.condition(text, at)
            }
            "elif" => {
                self.next_branch(start, "elif")?;
                self.condition(text, at)
            }
            "else" => {
                nothing_behind(text, at, name)?;
                self.next_branch(start, "else")
            }
            "endif" => {
                nothing_behind(text, at, name)?;
                self.endif(start)
            }
            _ => Err((start, unknown(name))),
        }
    }

    fn set(&mut self, text: &str, at: usize) -> Result<(), Mistake> {
        let length = text.find(|c: char| c.is_ascii_whitespace()).unwrap_or(text.len());
        let (name, rest) = text.split_at(length);
        if name.is_empty() {
            return Err((at, "`\\set` needs a variable and an expression".to_owned()));
        }
        let variable = self.names.intern(name).map_err(|message| (at, message))?;
        let expression = self.expression(rest, at + length)?;
        self.commands.push(Command::Set(variable, expression));
        Ok(())
    }

    fn expression(&mut self, text: &str, at: usize) -> Result<Expression, Mistake> {
        expression::parse(text, self.names).map_err(|(offset, message)| (at + offset, message))
    }

    fn sleep(&mut self, text: &str, at: usize) -> Result<(), Mistake> {
        let expected = || (at, "write `\\sleep 10 ms`: a number or `:variable`, and us, ms or s".to_owned());
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (amount, rest) = if digits > 0 {
            (Amount::Number(text[..digits].parse().map_err(|_| expected())?), &text[digits..])
        } else {
            let name = text.strip_prefix(':').ok_or_else(expected)?;
            let length = name.find(|c: char| c.is_ascii_whitespace()).unwrap_or(name.len());
            (Amount::Variable(self.names.intern(&name[..length]).map_err(|m| (at, m))?), &name[length..])
        };
        let unit = match rest.trim().to_ascii_lowercase().as_str() {
            "us" => Unit::Micros,
            "ms" => Unit::Millis,
            "s" | "" => Unit::Seconds,
            _ => return Err(expected()),
        };
        self.commands.push(Command::Sleep(amount, unit));
        Ok(())
    }

    fn gset(&mut self, text: &str, at: usize, start: usize) -> Result<(), Mistake> {
        if text.contains(|c: char| c.is_ascii_whitespace()) {
            return Err((at, "`\\gset` takes one prefix at most".to_owned()));
        }
        match self.commands.last_mut() {
            Some(Command::Sql(statement)) if statement.gset.is_none() => {
                statement.gset = Some(text.into());
                Ok(())
            }
            _ => Err((start, "`\\gset` must follow a SQL statement".to_owned())),
        }
    }

    /// The condition of `\if` or `\elif`: where it leads to is known later.
    fn condition(&mut self, text: &str, at: usize) -> Result<(), Mistake> {
        let condition = self.expression(text, at)?;
        let here = self.commands.len();
        self.commands.push(Command::Unless(condition, usize::MAX));
        self.open.last_mut().expect("it was just entered").condition = Some(here);
        Ok(())
    }

    /// Ends the branch before `\elif` or `\else`.
    fn next_branch(&mut self, start: usize, name: &str) -> Result<(), Mistake> {
        let here = self.commands.len();
        let Some(open) = self.open.last_mut() else { return Err((start, format!("`\\{name}` without `\\if`"))) };
        let Some(condition) = open.condition.take() else {
            return Err((start, format!("`\\{name}` behind `\\else`")));
        };
        open.ends.push(here);
        self.commands.push(Command::Jump(usize::MAX));
        self.lead(condition, here + 1);
        Ok(())
    }

    fn endif(&mut self, start: usize) -> Result<(), Mistake> {
        let Some(open) = self.open.pop() else { return Err((start, "`\\endif` without `\\if`".to_owned())) };
        for from in open.ends.into_iter().chain(open.condition) {
            self.lead(from, self.commands.len());
        }
        Ok(())
    }

    fn lead(&mut self, from: usize, to: usize) {
        match &mut self.commands[from] {
            Command::Jump(target) | Command::Unless(_, target) => *target = to,
            other => unreachable!("{other:?} is no jump"),
        }
    }
}

fn nothing_behind(text: &str, at: usize, name: &str) -> Result<(), Mistake> {
    match text.is_empty() {
        true => Ok(()),
        false => Err((at, format!("nothing may stand behind `\\{name}`"))),
    }
}

fn unknown(name: &str) -> String {
    let supported = SUPPORTED.iter().map(|name| format!("\\{name}")).collect::<Vec<_>>().join(", ");
    match settings::nearest(name, SUPPORTED) {
        _ if UNSUPPORTED.contains(&name) => {
            format!("the meta-command `\\{name}` is not supported; these are: {supported}")
        }
        Some(nearest) => format!("unknown meta-command `\\{name}`; did you mean `\\{nearest}`?"),
        None => format!("unknown meta-command `\\{name}`; these are supported: {supported}"),
    }
}

/// The line from here on, a backslash before its end goes on with the next; and where the next begins.
fn line_from(text: &str, start: usize) -> (&str, usize) {
    let mut end = start;
    loop {
        end = match text[end..].find('\n') {
            Some(length) => end + length,
            None => return (&text[start..], text.len()),
        };
        if !text[start..end].trim_end_matches('\r').ends_with('\\') {
            return (&text[start..end], end + 1);
        }
        end += 1;
    }
}

struct Rest<'t> {
    text: &'t str,
    at: usize,
}

/// What stands behind a command's name, and where.
fn trimmed(text: &str, at: usize) -> Rest<'_> {
    let inner = text.trim_start();
    Rest { text: inner.trim_end(), at: at + text.len() - inner.len() }
}
