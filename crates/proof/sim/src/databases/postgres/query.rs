//! The simple protocol: a text of statements, answered one after the other, and at the end that the session is ready.

use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
    rc::Rc,
};

use super::{
    execute::{Done, Outcome},
    failure::{Failure, protocol_violation},
    functions::Stop,
    reading,
    session::{Block, Job, Portal, Query, Running, Session, encode},
    shared::Shared,
    sql::Statement,
    tokens::{Tokens, invalid_bytes},
    values::{Column, Value, describe, row},
    wire::Reader,
};

/// A text that has been read.
#[derive(Clone)]
struct Read {
    statements: VecDeque<Rc<Statement>>,
    odd: Vec<(usize, char)>,
}

/// Most texts that are remembered as they were read: those of the pooler, and some of the clients'.
const MAX_READ: usize = 4096;

impl Read {
    /// What it says depends on nothing else, so it is read once, by whichever session.
    fn of(text: &str, standard: bool) -> Result<Self, Failure> {
        thread_local! {
            static READ: RefCell<[HashMap<String, Read>; 2]> = RefCell::default();
        }
        READ.with_borrow_mut(|read| {
            let read = &mut read[usize::from(standard)];
            if let Some(known) = read.get(text) {
                return Ok(known.clone());
            }
            let (statements, Tokens { odd, .. }) = reading::statements(text, standard)?;
            let made = Self { statements: statements.into_iter().map(Rc::new).collect(), odd };
            if read.len() == MAX_READ {
                read.clear();
            }
            read.insert(text.to_owned(), made.clone());
            Ok(made)
        })
    }
}

impl Session {
    pub(super) fn query(&mut self, shared: &mut Shared, body: &[u8]) {
        self.start();
        self.statements.remove("");
        let mut reader = Reader(body);
        let text = reader.text().filter(|_| reader.0.is_empty());
        let text = text.ok_or_else(|| protocol_violation("invalid message format")).and_then(|text| self.decode(text));
        let read = text.and_then(|text| self.read_statements(&text));
        let statements = match read {
            Ok(statements) => statements,
            Err(failure) => return self.fail(shared, &failure),
        };
        if statements.is_empty() {
            self.finish(shared);
            self.say(b'I', |_| {});
            return self.ready();
        }
        let several = statements.len() > 1;
        self.running = Some(Running::Query(Query { rest: statements, several, job: None }));
    }

    /// The statements of a text, with warnings about how it is written.
    pub(super) fn read_statements(&mut self, text: &str) -> Result<VecDeque<Rc<Statement>>, Failure> {
        let standard = self.settings.is_on("standard_conforming_strings");
        let Read { statements, odd } = Read::of(text, standard)?;
        if self.settings.is_on("escape_string_warning") {
            for (at, next) in odd {
                let (what, hint) = match next {
                    '\'' => ("\\'", "Use '' to write quotes in strings, or use the escape string syntax (E'...')."),
                    '\\' => ("\\\\", "Use the escape string syntax for backslashes, e.g., E'\\\\'."),
                    _ => ("escape", "Use the escape string syntax for escapes, e.g., E'\\r\\n'."),
                };
                let warning = Failure::warning("22P06", format!("nonstandard use of {what} in a string literal"));
                self.tell(&warning.hint(hint).at(text, at));
            }
        }
        Ok(statements)
    }

    /// A text in the client's encoding.
    pub(super) fn decode(&self, bytes: &[u8]) -> Result<String, Failure> {
        if self.settings.is_latin1() {
            return Ok(bytes.iter().map(|&byte| char::from(byte)).collect());
        }
        let error = |error: std::str::Utf8Error| invalid_bytes(&bytes[error.valid_up_to()..]);
        std::str::from_utf8(bytes).map(str::to_owned).map_err(error)
    }

    /// Carries on with a text.
    pub(super) fn go_on_with_query(&mut self, shared: &mut Shared, mut query: Query) {
        let mut job = match query.job.take() {
            Some(job) => job,
            None => {
                let Some(next) = query.rest.pop_front() else { return self.ready() };
                match self.begin_job(next, query.several) {
                    Ok(job) => job,
                    Err(failure) => return self.fail(shared, &failure),
                }
            }
        };
        let outcome = self.run(shared, &job.statement, &[], &mut job.progress);
        match outcome {
            Ok(Outcome::Done(done)) => {
                let columns = job.columns.take();
                self.end_job(shared, &job.statement, columns, done, query.rest.is_empty());
                self.running = Some(Running::Query(query));
            }
            Ok(Outcome::CopyIn) => {
                query.job = Some(job);
                self.running = Some(Running::Query(query));
                self.begin_copy();
            }
            Err(Stop::Waits) => {
                query.job = Some(job);
                self.running = Some(Running::Query(query));
            }
            Err(Stop::Failed(failure)) => self.fail(shared, &failure),
        }
    }

    fn begin_job(&mut self, statement: Rc<Statement>, several: bool) -> Result<Job, Failure> {
        if self.block != Block::Failed {
            self.start();
            if several && self.block == Block::Started {
                self.block = Block::Implicit;
            }
        }
        let columns = self.analyse_alone(&statement)?;
        self.portals.insert(String::new(), Portal::spent(&statement, columns.clone()));
        if statement.node.is_query() {
            self.describe(columns.as_deref().unwrap_or_default(), &[]);
        }
        Ok(Job { statement, columns, progress: Vec::new() })
    }

    fn end_job(
        &mut self,
        shared: &mut Shared,
        statement: &Statement,
        columns: Option<Vec<Column>>,
        done: Done,
        last: bool,
    ) {
        self.portals.remove("");
        let columns = columns.unwrap_or_default();
        if !columns.is_empty() && !statement.node.is_query() {
            self.describe(&columns, &[]);
        }
        for values in &done.rows {
            self.row(&columns, values, &[]);
        }
        if last && self.block == Block::Implicit {
            self.block = Block::Started;
        }
        if last || statement.node.is_of_transactions() {
            self.finish(shared);
        }
        self.statement_since = None;
        let tag = if done.counts { format!("{} {}", done.tag, done.rows.len()) } else { done.tag };
        self.complete(&tag);
    }

    /// The rows of a COPY have come.
    pub(super) fn end_query_copy(&mut self, shared: &mut Shared, mut query: Query, tag: String) {
        if let Some(job) = query.job.take() {
            self.end_job(shared, &job.statement, None, Done::new(tag), query.rest.is_empty());
        }
        self.running = Some(Running::Query(query));
    }

    pub(super) fn describe(&mut self, columns: &[Column], formats: &[u16]) {
        let latin1 = self.settings.is_latin1();
        describe(&mut self.buffer, columns, formats, &|text| encode(text, latin1));
    }

    pub(super) fn row(&mut self, columns: &[Column], values: &[Value], formats: &[u16]) {
        let latin1 = self.settings.is_latin1();
        row(&mut self.buffer, columns, values, formats, &|text| encode(text, latin1));
    }

    /// What was asked for went wrong.
    pub(super) fn fail(&mut self, shared: &mut Shared, failure: &Failure) {
        self.tell(failure);
        (self.running, self.wait, self.copying) = (None, None, None);
        self.abort(shared);
        if self.extended {
            self.skipping = true;
        } else {
            self.ready();
        }
    }

    /// The session waits for a request.
    pub(super) fn ready(&mut self) {
        if self.block == Block::Idle {
            self.tell_notifications();
        }
        self.settings.report(&mut self.buffer);
        let status = self.status();
        self.say(b'Z', |to| to.push(status));
        self.flush();
        self.idle_since = Some(self.now);
    }
}
