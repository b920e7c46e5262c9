//! The extended query protocol: statements and portals of a connection. Commands take no parameters.

use std::collections::HashMap;

use crate::{
    answer::{Answer, Failure},
    command::Command,
    shows::Show,
    table::{Column, Table, Type},
    wire::{Fields, Message, back, code, write_empty, write_text},
    writing::{write_columns, write_failure, write_notice},
};

/// Prepared statements of a connection.
const MAX_STATEMENTS: usize = 256;
/// Portals of a connection. They end with Sync.
const MAX_PORTALS: usize = 16;
/// Result formats in a Bind: more than any table has columns.
const MAX_FORMATS: u16 = 64;

/// A statement: a command, or `None` for an empty text.
type Statement = Option<Command>;

#[derive(Default)]
pub(crate) struct Extended {
    statements: HashMap<String, Statement>,
    portals: HashMap<String, Portal>,
    /// After an error all messages up to Sync are skipped.
    skips: bool,
}

struct Portal {
    statement: Statement,
    /// For each column, whether it is sent in binary format.
    formats: Vec<bool>,
    /// Rows that remain after an Execute with a limit.
    rest: Option<Rest>,
}

struct Rest {
    table: Table,
    sent: usize,
    tag: String,
}

impl Extended {
    pub(crate) fn skips(&self) -> bool {
        self.skips
    }

    /// All portals end with the transaction, and each Sync ends one.
    pub(crate) fn sync(&mut self) {
        self.skips = false;
        self.portals.clear();
    }

    /// Takes a message other than Execute and Sync.
    pub(crate) fn take(&mut self, kind: u8, body: &[u8], out: &mut Vec<u8>) {
        if self.skips {
            return;
        }
        let done = match kind {
            b'P' => self.parse(body, out),
            b'B' => self.bind(body, out),
            b'D' => self.describe(body, out),
            b'C' => self.close(body, out),
            _ => Ok(()),
        };
        if let Err(failure) = done {
            self.fail(&failure, out);
        }
    }

    pub(crate) fn fail(&mut self, failure: &Failure, out: &mut Vec<u8>) {
        self.skips = true;
        write_failure(failure, out);
    }

    fn parse(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
        let mut fields = Fields::new(body);
        let (name, text) = fields.text().zip(fields.text()).ok_or_else(malformed)?;
        if !name.is_empty() {
            if self.statements.contains_key(&name) {
                let message = format!("prepared statement \"{name}\" already exists");
                return Err(Failure::with_code(code::DUPLICATE_STATEMENT, message));
            }
            if self.statements.len() >= MAX_STATEMENTS {
                let message = format!("the console keeps {MAX_STATEMENTS} prepared statements for a connection");
                return Err(Failure::with_code(code::CONFIGURATION_LIMIT_EXCEEDED, message));
            }
        }
        let is_empty = text.trim_matches([' ', '\t', '\n', '\r', ';']).is_empty();
        let statement = if is_empty { None } else { Some(Command::parse(&text)?) };
        self.statements.insert(name, statement);
        write_empty(out, back::PARSE_COMPLETE);
        Ok(())
    }

    fn bind(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
        let mut fields = Fields::new(body);
        let (portal, statement) = fields.text().zip(fields.text()).ok_or_else(malformed)?;
        let statement = self.statement(&statement)?.clone();
        let parameter_formats = fields.u16().ok_or_else(malformed)?;
        fields.skip(2 * usize::from(parameter_formats)).ok_or_else(malformed)?;
        let parameters = fields.u16().ok_or_else(malformed)?;
        if parameters > 0 {
            return Err(Failure::new(format!("commands of the console take no parameters, and {parameters} came")));
        }
        let columns = columns(&statement).len();
        let formats = read_formats(&mut fields, columns).ok_or_else(malformed)?;
        if !self.portals.contains_key(&portal) && self.portals.len() >= MAX_PORTALS {
            let message = format!("the console keeps {MAX_PORTALS} portals for a connection");
            return Err(Failure::with_code(code::CONFIGURATION_LIMIT_EXCEEDED, message));
        }
        self.portals.insert(portal, Portal { statement, formats, rest: None });
        write_empty(out, back::BIND_COMPLETE);
        Ok(())
    }

    fn describe(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
        let mut fields = Fields::new(body);
        let (kind, name) = fields.u8().zip(fields.text()).ok_or_else(malformed)?;
        match kind {
            b'S' => {
                let columns = columns(self.statement(&name)?);
                let mut message = Message::begin(out, back::PARAMETER_DESCRIPTION);
                message.u16(0);
                message.end();
                write_columns(&columns, &[], out);
            }
            b'P' => {
                let portal = self.portals.get(&name).ok_or_else(|| no_portal(&name))?;
                write_columns(&columns(&portal.statement), &portal.formats, out);
            }
            _ => return Err(malformed()),
        }
        Ok(())
    }

    fn close(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
        let mut fields = Fields::new(body);
        let (kind, name) = fields.u8().zip(fields.text()).ok_or_else(malformed)?;
        match kind {
            b'S' => drop(self.statements.remove(&name)),
            b'P' => drop(self.portals.remove(&name)),
            _ => return Err(malformed()),
        }
        write_empty(out, back::CLOSE_COMPLETE);
        Ok(())
    }

    /// The portal, the limit and the command of an Execute; `None` if it has been answered.
    pub(crate) fn execute(&mut self, body: &[u8], out: &mut Vec<u8>) -> Option<(String, i32, Command)> {
        let mut fields = Fields::new(body);
        let Some((name, max_rows)) = fields.text().zip(fields.i32()) else {
            self.fail(&malformed(), out);
            return None;
        };
        let Some(portal) = self.portals.get_mut(&name) else {
            self.fail(&no_portal(&name), out);
            return None;
        };
        if let Some(rest) = portal.rest.take() {
            portal.send(rest, max_rows, out);
            return None;
        }
        match &portal.statement {
            Some(command) => Some((name, max_rows, command.clone())),
            None => {
                write_empty(out, back::EMPTY_QUERY);
                None
            }
        }
    }

    /// Answers an Execute whose command succeeded.
    pub(crate) fn finish(&mut self, portal: &str, max_rows: i32, answer: Answer, out: &mut Vec<u8>) {
        write_notice(answer.notice.as_ref(), out);
        let portal = self.portals.get_mut(portal).expect("no message is taken while a command runs");
        match answer.table {
            Some(table) => portal.send(Rest { table, sent: 0, tag: answer.tag }, max_rows, out),
            None => write_text(out, back::COMPLETE, &answer.tag),
        }
    }

    fn statement(&self, name: &str) -> Result<&Statement, Failure> {
        self.statements.get(name).ok_or_else(|| {
            let message = format!("prepared statement \"{name}\" does not exist");
            Failure::with_code(code::INVALID_STATEMENT_NAME, message)
        })
    }
}

impl Portal {
    fn send(&mut self, mut rest: Rest, max_rows: i32, out: &mut Vec<u8>) {
        let left = rest.table.len() - rest.sent;
        let limit = usize::try_from(max_rows).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let count = left.min(limit);
        rest.table.encode(&self.formats, rest.sent, count, out);
        rest.sent += count;
        if count == left && limit > left {
            write_text(out, back::COMPLETE, &rest.tag);
        } else {
            write_empty(out, back::SUSPENDED);
            self.rest = Some(rest);
        }
    }
}

/// The columns of what a statement returns.
fn columns(statement: &Statement) -> Vec<Column> {
    match statement {
        Some(Command::Show(show)) if *show != Show::Help => show.columns(),
        Some(Command::ShowParameter(name, _)) => vec![(*name, Type::Text)],
        _ => Vec::new(),
    }
}

/// The result formats of a Bind, one for each column: none is text, and one is for all.
fn read_formats(fields: &mut Fields<'_>, columns: usize) -> Option<Vec<bool>> {
    let count = fields.u16().filter(|count| *count <= MAX_FORMATS)?;
    let mut formats = Vec::new();
    for _ in 0..count {
        formats.push(fields.u16()? == 1);
    }
    if !fields.is_over() {
        return None;
    }
    match formats[..] {
        [] => Some(vec![false; columns]),
        [all] => Some(vec![all; columns]),
        _ => Some(formats).filter(|formats| formats.len() == columns),
    }
}

fn malformed() -> Failure {
    Failure::new("malformed message")
}

fn no_portal(name: &str) -> Failure {
    Failure::with_code(code::INVALID_PORTAL_NAME, format!("portal \"{name}\" does not exist"))
}
