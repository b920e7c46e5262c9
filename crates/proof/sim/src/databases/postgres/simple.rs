//! The simple protocol: a Query with any number of statements.

use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
    rc::Rc,
};

use super::{
    execute::{Done, Outcome},
    failure::{Failure, protocol_violation},
    functions::Stop,
    parser,
    session::{Block, Job, Portal, Query, Running, Session},
    shared::Shared,
    sql::Statement,
    values::{Column, Value, describe, row},
    wire::Reader,
};

/// Texts whose statements are remembered. When there are more, all are forgotten.
const MAX_PARSED: usize = 4096;

/// The statements of a text. Each thread remembers the texts that it has parsed.
pub(super) fn parse_text(text: &str) -> Result<VecDeque<Rc<Statement>>, Failure> {
    thread_local! {
        static PARSED: RefCell<HashMap<String, VecDeque<Rc<Statement>>>> = RefCell::default();
    }
    PARSED.with_borrow_mut(|parsed| {
        if let Some(known) = parsed.get(text) {
            return Ok(known.clone());
        }
        let statements: VecDeque<_> = parser::statements(text)?.into_iter().map(Rc::new).collect();
        if parsed.len() == MAX_PARSED {
            parsed.clear();
        }
        parsed.insert(text.to_owned(), statements.clone());
        Ok(statements)
    })
}

/// A text of a client.
pub(super) fn decode(bytes: &[u8]) -> Result<String, Failure> {
    let invalid = |_| Failure::new("22021", "invalid byte sequence for encoding \"UTF8\"");
    std::str::from_utf8(bytes).map(str::to_owned).map_err(invalid)
}

impl Session {
    pub(super) fn query(&mut self, shared: &mut Shared, body: &[u8]) {
        self.start_transaction();
        self.statements.remove("");
        let mut reader = Reader(body);
        let text = reader.text().filter(|_| reader.0.is_empty());
        let text = text.ok_or_else(|| protocol_violation("invalid message format")).and_then(decode);
        let read = text.and_then(|text| parse_text(&text));
        let statements = match read {
            Ok(statements) => statements,
            Err(failure) => return self.fail(shared, &failure),
        };
        if statements.is_empty() {
            self.finish_implicit_transaction(shared);
            self.send(b'I', |_| {});
            return self.send_ready();
        }
        let several = statements.len() > 1;
        self.running = Some(Running::Query(Query { rest: statements, several, job: None }));
    }

    pub(super) fn resume_query(&mut self, shared: &mut Shared, mut query: Query) {
        let mut job = match query.job.take() {
            Some(job) => job,
            None => {
                let Some(next) = query.rest.pop_front() else { return self.send_ready() };
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
            self.start_transaction();
            if several && self.block == Block::Started {
                self.block = Block::Implicit;
            }
        }
        let columns = self.analyse_alone(&statement)?;
        self.portals.insert(String::new(), Portal::spent(&statement, columns.clone()));
        if statement.node.is_query() {
            self.send_description(columns.as_deref().unwrap_or_default());
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
            self.send_description(&columns);
        }
        for values in &done.rows {
            self.send_row(values);
        }
        if last && self.block == Block::Implicit {
            self.block = Block::Started;
        }
        if last || statement.node.is_of_transactions() {
            self.finish_implicit_transaction(shared);
        }
        let tag = if done.counts { format!("{} {}", done.tag, done.rows.len()) } else { done.tag };
        self.send_complete(&tag);
    }

    pub(super) fn end_query_copy(&mut self, shared: &mut Shared, mut query: Query, tag: String) {
        if let Some(job) = query.job.take() {
            self.end_job(shared, &job.statement, None, Done::new(tag), query.rest.is_empty());
        }
        self.running = Some(Running::Query(query));
    }

    pub(super) fn send_description(&mut self, columns: &[Column]) {
        describe(&mut self.buffer, columns);
    }

    pub(super) fn send_row(&mut self, values: &[Value]) {
        row(&mut self.buffer, values);
    }

    pub(super) fn fail(&mut self, shared: &mut Shared, failure: &Failure) {
        self.send_failure(failure);
        (self.running, self.wait, self.copying) = (None, None, None);
        self.abort(shared);
        if self.extended {
            self.skipping = true;
        } else {
            self.send_ready();
        }
    }

    pub(super) fn send_ready(&mut self) {
        if self.block == Block::Idle {
            self.send_notifications();
        }
        self.settings.report(&mut self.buffer);
        let status = self.status();
        self.send(b'Z', |to| to.push(status));
        self.flush();
    }
}
