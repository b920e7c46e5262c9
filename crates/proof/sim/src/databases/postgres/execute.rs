//! Carrying out statements.

use std::{collections::VecDeque, rc::Rc};

use super::{
    analysis::{Table, foresee},
    failure::{Failure, no_relation, unknown_syntax},
    functions::{Analysis, Stop},
    session::{Block, Hearing, Portal, Prepared, Session},
    shared::Shared,
    sql::{Discard, Expression, Modes, Node, Read, Statement, What},
    values::{Type, Value},
};

pub(super) struct Done {
    pub(super) rows: VecDeque<Vec<Value>>,
    /// The word that CommandComplete tells.
    pub(super) tag: String,
    /// That is followed by the number of rows.
    pub(super) counts: bool,
}

/// What is to be done next.
pub(super) enum Outcome {
    Done(Done),
    /// Rows of a COPY are to come.
    CopyIn,
}

impl Done {
    pub(super) fn new(tag: impl Into<String>) -> Self {
        Self { rows: VecDeque::new(), tag: tag.into(), counts: false }
    }

    pub(super) fn rows(tag: &str, rows: impl Into<VecDeque<Vec<Value>>>) -> Self {
        Self { rows: rows.into(), tag: tag.into(), counts: tag != "SHOW" }
    }
}

impl Session {
    /// Carries out a statement. `progress` is what has been computed of it before it had to wait.
    pub(super) fn run(
        &mut self,
        shared: &mut Shared,
        statement: &Statement,
        arguments: &[Value],
        progress: &mut Vec<Value>,
    ) -> Result<Outcome, Stop> {
        if let Some(word) = statement.node.writes_as() {
            self.writes(word)?;
        }
        self.transaction.snapshot |= statement.node.takes_snapshot(false);
        let done = match &statement.node {
            Node::Begin { .. } | Node::Commit | Node::Rollback => {
                Done::new(self.end_or_begin(shared, &statement.node)?)
            }
            Node::Savepoint(_) | Node::RollbackTo(_) | Node::Release(_) => self.savepoints(shared, &statement.node)?,
            Node::SetTransaction(_) | Node::Set { .. } | Node::Show(_) | Node::Reset(_) => {
                self.run_setting(&statement.node)?
            }
            Node::Discard(what) => self.discard(shared, *what)?,
            Node::Select(items) => {
                for item in items.iter().skip(progress.len()) {
                    let value = self.evaluate(shared, &item.expression, arguments)?;
                    progress.push(value);
                }
                Done::rows("SELECT", [std::mem::take(progress)])
            }
            Node::Read(read) => Done::rows("SELECT", self.read(shared, statement, read, arguments)?),
            Node::Insert { table, values } => {
                let table = self.table(&statement.text, table)?;
                self.insert(shared, table, &statement.node, values, arguments)?
            }
            Node::CreateTemp(_) | Node::Drop { .. } => self.run_table(&statement.node)?,
            Node::Listen(_) | Node::Unlisten(_) | Node::Notify { .. } => self.hear(&statement.node)?,
            Node::Prepare { .. } | Node::Deallocate(_) => self.run_prepared(&statement.node)?,
            Node::Execute { name, arguments: given } => {
                return self.execute_prepared(shared, (name, &statement.text), (given, arguments), progress);
            }
            Node::Declare { name, hold, statement } => self.declare(shared, (name, *hold), statement, progress)?,
            Node::Fetch { .. } | Node::Close(_) => self.run_cursor(&statement.node)?,
            Node::CopyIn(table) => {
                if self.table(&statement.text, table).map_err(|_| no_relation(&table.text))? != Table::Ledger {
                    return Err(unknown_syntax("COPY of a temporary table").into());
                }
                self.writes("COPY FROM")?;
                return Ok(Outcome::CopyIn);
            }
            Node::CopyOut(inner) => {
                let columns = self.analyse(inner, &[])?.1.unwrap_or_default();
                let Outcome::Done(done) = self.run(shared, inner, arguments, progress)? else {
                    return Err(unknown_syntax(&statement.text).into());
                };
                Done::new(self.copy_out(&columns, &done.rows))
            }
            Node::Do(steps) => self.procedure(shared, steps)?,
            Node::Survey { settings, names, statements } => self.survey(shared, *settings, names, *statements),
            Node::Guarded { mark, names } => self.guarded(mark, names),
            Node::Sources => self.sources(),
            Node::Fixed(_, rows) => {
                let value = |text: &String| Value::Text(text.clone());
                Done::rows("SELECT", rows.iter().map(|row| row.iter().map(value).collect()).collect::<VecDeque<_>>())
            }
        };
        Ok(Outcome::Done(done))
    }

    /// SET, SHOW, RESET and SET TRANSACTION.
    fn run_setting(&mut self, node: &Node) -> Result<Done, Stop> {
        Ok(match node {
            Node::SetTransaction(modes) => {
                self.warn_outside("SET TRANSACTION");
                self.set_modes(modes)?;
                Done::new("SET")
            }
            Node::Set { name, value, local } => {
                if *local {
                    self.warn_outside("SET LOCAL");
                }
                match value {
                    Some(words) => self.settings.assign(name, &words.0, *local)?,
                    None => self.settings.set(name, None, *local)?,
                }
                Done::new("SET")
            }
            Node::Show(name) => Done::rows("SHOW", [vec![Value::Text(self.settings.show(name)?)]]),
            Node::Reset(Some(name)) => {
                self.settings.set(name, None, false)?;
                if name == "session_authorization" {
                    self.settings.set("role", None, false)?;
                }
                Done::new("RESET")
            }
            Node::Reset(None) => {
                self.settings.reset_all();
                Done::new("RESET")
            }
            _ => unreachable!("another kind of statement"),
        })
    }

    /// CREATE TEMPORARY TABLE and DROP TABLE.
    fn run_table(&mut self, node: &Node) -> Result<Done, Stop> {
        Ok(match node {
            Node::CreateTemp(name) => {
                if self.temps.contains_key(name) {
                    return Err(Failure::new("42P07", format!("relation \"{name}\" already exists")).into());
                }
                self.temps.insert(name.clone(), Vec::new());
                Done::new("CREATE TABLE")
            }
            Node::Drop { table, if_exists } => {
                if self.temps.remove(table).is_none() {
                    let message = format!("table \"{table}\" does not exist");
                    if !if_exists {
                        return Err(Failure::new("42P01", message).into());
                    }
                    return Err(unknown_syntax("DROP TABLE IF EXISTS of what is not there").into());
                }
                Done::new("DROP TABLE")
            }
            _ => unreachable!("another kind of statement"),
        })
    }

    /// PREPARE and DEALLOCATE.
    fn run_prepared(&mut self, node: &Node) -> Result<Done, Stop> {
        Ok(match node {
            Node::Prepare { name, types, statement } => {
                let declared: Vec<_> = types.iter().copied().map(Some).collect();
                let (types, columns) = self.analyse(statement, &declared)?;
                let statement = Some(Rc::new((**statement).clone()));
                self.keep_statement(name, Prepared { statement, types, columns, from_sql: true })?;
                Done::new("PREPARE")
            }
            Node::Deallocate(None) => {
                self.statements.retain(|name, _| name.is_empty());
                Done::new("DEALLOCATE ALL")
            }
            Node::Deallocate(Some(name)) => {
                let there = !name.is_empty() && self.statements.remove(name).is_some();
                if !there {
                    return Err(no_statement(name).into());
                }
                Done::new("DEALLOCATE")
            }
            _ => unreachable!("another kind of statement"),
        })
    }

    /// FETCH and CLOSE.
    fn run_cursor(&mut self, node: &Node) -> Result<Done, Stop> {
        Ok(match node {
            Node::Fetch { name, count } => {
                let Some(portal) = self.portals.get_mut(name) else { return Err(no_cursor(name).into()) };
                let rows = portal.rows.as_mut().map(|(rows, _)| rows);
                let fetched = rows.map(|rows| rows.drain(..count.unwrap_or(rows.len()).min(rows.len())).collect());
                Done::rows("FETCH", fetched.unwrap_or_else(VecDeque::new))
            }
            Node::Close(None) => {
                self.portals.clear();
                Done::new("CLOSE CURSOR ALL")
            }
            Node::Close(Some(name)) => {
                if self.portals.remove(name).is_none() {
                    return Err(no_cursor(name).into());
                }
                Done::new("CLOSE CURSOR")
            }
            _ => unreachable!("another kind of statement"),
        })
    }

    fn end_or_begin(&mut self, shared: &mut Shared, node: &Node) -> Result<&'static str, Failure> {
        let inside = matches!(self.block, Block::Open | Block::Failed);
        Ok(match node {
            Node::Begin { word, modes } => {
                if inside {
                    self.tell(&Failure::warning("25001", "there is already a transaction in progress"));
                }
                self.set_modes(modes)?;
                self.block = Block::Open;
                word
            }
            Node::Commit if self.block == Block::Failed => {
                self.roll_back(shared);
                "ROLLBACK"
            }
            _ => {
                if !inside {
                    self.tell(&Failure::warning("25P01", "there is no transaction in progress"));
                }
                if *node != Node::Commit {
                    self.roll_back(shared);
                    return Ok("ROLLBACK");
                }
                self.commit(shared);
                "COMMIT"
            }
        })
    }

    /// How the transaction is to be. Most of that has to be said before it looks at anything.
    fn set_modes(&mut self, modes: &Modes) -> Result<(), Failure> {
        let too_late = |message: &str| Err(Failure::new("25001", message));
        let transaction = &mut self.transaction;
        if let Some(level) = modes.level {
            if transaction.snapshot && transaction.level.as_deref() != Some(level) {
                return too_late("SET TRANSACTION ISOLATION LEVEL must be called before any query");
            }
            transaction.level = Some(level.to_owned());
        }
        if let Some(read_only) = modes.read_only {
            if transaction.snapshot && transaction.read_only && !read_only {
                return too_late("transaction read-write mode must be set before any query");
            }
            transaction.read_only = read_only;
        }
        if modes.deferrable && transaction.snapshot {
            return too_late("SET TRANSACTION [NOT] DEFERRABLE must be called before any query");
        }
        Ok(())
    }

    fn savepoints(&mut self, shared: &mut Shared, node: &Node) -> Result<Done, Failure> {
        let word = match node {
            Node::Savepoint(_) => "SAVEPOINT",
            Node::Release(_) => "RELEASE SAVEPOINT",
            _ => "ROLLBACK TO SAVEPOINT",
        };
        if !matches!(self.block, Block::Open | Block::Failed) {
            return Err(Failure::new("25P01", format!("{word} can only be used in transaction blocks")));
        }
        match node {
            Node::Savepoint(name) => {
                self.savepoint(name.clone(), shared);
                Ok(Done::new("SAVEPOINT"))
            }
            Node::Release(name) => {
                let place = self.find_savepoint(name)?;
                self.release(place);
                Ok(Done::new("RELEASE"))
            }
            Node::RollbackTo(name) => {
                let place = self.find_savepoint(name)?;
                self.return_to(shared, place);
                self.block = Block::Open;
                Ok(Done::new("ROLLBACK"))
            }
            _ => unreachable!("only those are savepoints"),
        }
    }

    /// It has no effect outside a transaction.
    fn warn_outside(&mut self, what: &str) {
        if matches!(self.block, Block::Idle | Block::Started) {
            self.tell(&Failure::warning("25P01", format!("{what} can only be used in transaction blocks")));
        }
    }

    fn discard(&mut self, shared: &mut Shared, what: Discard) -> Result<Done, Failure> {
        let word = match what {
            Discard::Plans => "DISCARD PLANS",
            Discard::Sequences => "DISCARD SEQUENCES",
            Discard::Temp => "DISCARD TEMP",
            Discard::All => {
                self.stands_alone("DISCARD ALL")?;
                self.portals.clear();
                self.settings.set("session_authorization", None, false)?;
                self.settings.set("role", None, false)?;
                self.settings.reset_all();
                self.statements.retain(|name, _| name.is_empty());
                self.transaction.hearings.push(Hearing::Nothing);
                shared.unlock_all(self.me);
                "DISCARD ALL"
            }
        };
        if matches!(what, Discard::Temp | Discard::All) {
            self.temps.clear();
        }
        if matches!(what, Discard::Sequences | Discard::All) {
            self.last_values.clear();
            self.last_sequence = None;
        }
        Ok(Done::new(word))
    }

    /// It cannot be part of a transaction.
    fn stands_alone(&self, what: &str) -> Result<(), Failure> {
        if self.block != Block::Started {
            return Err(Failure::new("25001", format!("{what} cannot run inside a transaction block")));
        }
        if self.pipelining {
            return Err(Failure::new("25001", format!("{what} cannot be executed within a pipeline")));
        }
        Ok(())
    }

    fn read(
        &mut self,
        shared: &mut Shared,
        statement: &Statement,
        read: &Read,
        arguments: &[Value],
    ) -> Result<VecDeque<Vec<Value>>, Stop> {
        let table = self.table(&statement.text, &read.table)?;
        let columns = table.columns();
        let place = |name: &str| columns.iter().position(|column| column.name == name);
        let filter = match &read.filter {
            None => None,
            Some((name, _, expression)) => {
                let place = place(name).unwrap_or_default();
                Some((place, self.evaluate(shared, expression, arguments)?.cast(columns[place].kind)?))
            }
        };
        let all: Vec<Vec<Value>> = match table {
            Table::Ledger => {
                let row = |(who, n): (&str, i64)| vec![Value::Text(who.to_owned()), Value::Int(n)];
                shared.read(self.me, &self.database).map(row).collect()
            }
            Table::Temporary => {
                let rows = self.temps.get(&read.table.text).into_iter().flatten();
                rows.map(|v| vec![Value::Text(v.clone())]).collect()
            }
        };
        let fits = |row: &Vec<Value>| {
            filter.as_ref().is_none_or(|(place, value)| row[*place] == *value && *value != Value::Null)
        };
        let rows = all.into_iter().filter(fits);
        Ok(match &read.what {
            What::Count => [vec![Value::Int(rows.count() as i64)]].into(),
            What::All => rows.collect(),
            What::Columns(names) => rows
                .map(|row| names.iter().map(|(name, _)| row[place(name).unwrap_or_default()].clone()).collect())
                .collect(),
        })
    }

    fn insert(
        &mut self,
        shared: &mut Shared,
        table: Table,
        node: &Node,
        values: &[Expression],
        arguments: &[Value],
    ) -> Result<Done, Stop> {
        let mut row = Vec::new();
        for (value, column) in values.iter().zip(table.columns()) {
            row.push(self.evaluate(shared, value, arguments)?.cast(column.kind)?);
        }
        match (table, &row[..], node) {
            (Table::Ledger, [Value::Text(who), Value::Int(n)], _) => {
                self.writes("INSERT")?;
                shared.insert(self.me, &self.database, who.clone(), *n);
            }
            (Table::Temporary, [Value::Text(v)], Node::Insert { table, .. }) => {
                self.temps.entry(table.text.clone()).or_default().push(v.clone());
            }
            _ => return Err(unknown_syntax("INSERT of fewer values, or NULL").into()),
        }
        Ok(Done::new("INSERT 0 1"))
    }

    fn hear(&mut self, node: &Node) -> Result<Done, Failure> {
        let hearings = &mut self.transaction.hearings;
        let word = match node {
            Node::Listen(channel) => {
                hearings.push(Hearing::Listen(channel.clone()));
                "LISTEN"
            }
            Node::Unlisten(channel) => {
                hearings.push(channel.clone().map_or(Hearing::Nothing, Hearing::Unlisten));
                "UNLISTEN"
            }
            Node::Notify { channel, payload } => {
                self.notify(channel, payload)?;
                "NOTIFY"
            }
            _ => unreachable!("only those are about channels"),
        };
        Ok(Done::new(word))
    }

    /// Keeps a prepared statement under a name that must be new.
    pub(super) fn keep_statement(&mut self, name: &str, prepared: Prepared) -> Result<(), Failure> {
        if !name.is_empty() && self.statements.contains_key(name) {
            return Err(Failure::new("42P05", format!("prepared statement \"{name}\" already exists")));
        }
        self.statements.insert(name.to_owned(), prepared);
        Ok(())
    }

    fn execute_prepared(
        &mut self,
        shared: &mut Shared,
        (name, sql): (&str, &str),
        (given, outer): (&[Expression], &[Value]),
        progress: &mut Vec<Value>,
    ) -> Result<Outcome, Stop> {
        let prepared = self.statements.get(name).filter(|_| !name.is_empty()).cloned();
        let Some(prepared) = prepared else { return Err(no_statement(name).into()) };
        if prepared.types.len() != given.len() {
            let message = format!("wrong number of parameters for prepared statement \"{name}\"");
            let detail = format!("Expected {} parameters but got {}.", prepared.types.len(), given.len());
            return Err(Failure::new("42601", message).detail(detail).into());
        }
        let mut arguments = Vec::new();
        for (value, kind) in given.iter().zip(&prepared.types) {
            Analysis { sql, sees_public: self.sees_public(), types: &mut Vec::new() }.type_of(value, Some(*kind))?;
            arguments.push(self.evaluate(shared, value, outer)?.cast(*kind)?);
        }
        let Some(statement) = prepared.statement else { return Ok(Outcome::Done(Done::new(""))) };
        let types: Vec<Option<Type>> = prepared.types.into_iter().map(Some).collect();
        self.analyse(&statement, &types)?;
        foresee(&statement, &arguments)?;
        self.run(shared, &statement, &arguments, progress)
    }

    fn declare(
        &mut self,
        shared: &mut Shared,
        (name, hold): (&str, bool),
        statement: &Statement,
        progress: &mut Vec<Value>,
    ) -> Result<Done, Stop> {
        if !hold && matches!(self.block, Block::Idle | Block::Started) {
            return Err(Failure::new("25P01", "DECLARE CURSOR can only be used in transaction blocks").into());
        }
        if self.portals.contains_key(name) {
            return Err(cursor_exists(name).into());
        }
        let columns = self.analyse(statement, &[])?.1;
        let Outcome::Done(done) = self.run(shared, statement, &[], progress)? else {
            return Err(unknown_syntax(&statement.text).into());
        };
        let rows = Some((done.rows, "SELECT".into()));
        let (arguments, formats) = (Vec::new(), Vec::new());
        let portal = Portal { statement: None, arguments, columns, formats, rows, done: true, hold, held: false };
        self.portals.insert(name.to_owned(), portal);
        Ok(Done::new("DECLARE CURSOR"))
    }
}

/// There is no prepared statement of this name.
pub(super) fn no_statement(name: &str) -> Failure {
    Failure::new("26000", format!("prepared statement \"{name}\" does not exist"))
}

fn no_cursor(name: &str) -> Failure {
    Failure::new("34000", format!("cursor \"{name}\" does not exist"))
}

/// There is a cursor, or a portal, of this name.
pub(super) fn cursor_exists(name: &str) -> Failure {
    Failure::new("42P03", format!("cursor \"{name}\" already exists"))
}
