//! Execution of statements.

use std::{collections::VecDeque, rc::Rc};

use super::{
    analysis::{Table, check_plan},
    failure::{Failure, no_relation, unknown_syntax},
    functions::Stop,
    session::{Block, ChannelChange, Portal, Prepared, Session},
    shared::Shared,
    sql::{Discard, Expression, Node, Read, Statement},
    values::Value,
};

pub(super) struct Done {
    pub(super) rows: VecDeque<Vec<Value>>,
    /// The tag of the CommandComplete.
    pub(super) tag: String,
    /// The number of rows follows the tag.
    pub(super) counts: bool,
}

pub(super) enum Outcome {
    Done(Done),
    /// The rows of a COPY follow.
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
    /// Runs a statement. `progress`: the columns that were computed before it had to wait.
    pub(super) fn run(
        &mut self,
        shared: &mut Shared,
        statement: &Statement,
        arguments: &[Value],
        progress: &mut Vec<Value>,
    ) -> Result<Outcome, Stop> {
        let done = match &statement.node {
            Node::Begin | Node::Commit | Node::Rollback => Done::new(self.end_or_begin(shared, &statement.node)),
            Node::Savepoint(_) | Node::RollbackTo(_) | Node::Release(_) => self.savepoint(&statement.node)?,
            Node::Set { name, value, local } => self.set(name, value.as_deref(), *local)?,
            Node::Show(name) => Done::rows("SHOW", [vec![Value::Text(self.settings.show(name)?)]]),
            Node::Reset(name) => self.reset(name.as_deref())?,
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
            Node::CreateTemp(name) => self.create_temporary(name)?,
            Node::Drop(table) => match self.temps.remove(table) {
                Some(_) => Done::new("DROP TABLE"),
                None => return Err(Failure::new("42P01", format!("table \"{table}\" does not exist")).into()),
            },
            Node::Listen(channel) => self.change_channels("LISTEN", ChannelChange::Listen(channel.clone())),
            Node::Unlisten(channel) => self
                .change_channels("UNLISTEN", channel.clone().map_or(ChannelChange::Nothing, ChannelChange::Unlisten)),
            Node::Notify { channel, payload } => {
                self.notify(channel, payload);
                Done::new("NOTIFY")
            }
            Node::Prepare { name, statement } => self.prepare(name, statement)?,
            Node::Deallocate(name) => self.deallocate(name.as_deref())?,
            Node::Execute(name) => return self.execute_prepared(shared, name, progress),
            Node::Declare { name, hold, statement } => self.declare(shared, (name, *hold), statement, progress)?,
            Node::Fetch(name) => {
                let Some(portal) = self.portals.get_mut(name) else { return Err(no_cursor(name).into()) };
                let row = portal.rows.as_mut().and_then(|(rows, _)| rows.pop_front());
                Done::rows("FETCH", row.into_iter().collect::<VecDeque<_>>())
            }
            Node::Close(name) => self.close_cursor(name.as_deref())?,
            Node::CopyIn(table) => {
                if self.table(&statement.text, table).map_err(|_| no_relation(&table.text))? != Table::Ledger {
                    return Err(unknown_syntax("COPY of a temporary table").into());
                }
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
        };
        Ok(Outcome::Done(done))
    }

    fn set(&mut self, name: &str, value: Option<&[String]>, local: bool) -> Result<Done, Failure> {
        if local && matches!(self.block, Block::Idle | Block::Started) {
            let message = "SET LOCAL can only be used in transaction blocks";
            self.send_failure(&Failure::warning("25P01", message));
        }
        match value {
            Some(words) => self.settings.assign(name, words, local)?,
            None => self.settings.set(name, None, local)?,
        }
        Ok(Done::new("SET"))
    }

    /// Resets a setting, or all.
    fn reset(&mut self, name: Option<&str>) -> Result<Done, Failure> {
        match name {
            None => self.settings.reset_all(),
            Some(name) => {
                self.settings.set(name, None, false)?;
                if name == "session_authorization" {
                    self.settings.set("role", None, false)?;
                }
            }
        }
        Ok(Done::new("RESET"))
    }

    /// Closes a cursor, or all.
    fn close_cursor(&mut self, name: Option<&str>) -> Result<Done, Failure> {
        let Some(name) = name else {
            self.portals.clear();
            return Ok(Done::new("CLOSE CURSOR ALL"));
        };
        self.portals.remove(name).map(|_| Done::new("CLOSE CURSOR")).ok_or_else(|| no_cursor(name))
    }

    fn create_temporary(&mut self, name: &str) -> Result<Done, Failure> {
        if self.temps.contains_key(name) {
            return Err(Failure::new("42P07", format!("relation \"{name}\" already exists")));
        }
        self.temps.insert(name.to_owned(), Vec::new());
        Ok(Done::new("CREATE TABLE"))
    }

    fn change_channels(&mut self, tag: &str, change: ChannelChange) -> Done {
        self.transaction.channel_changes.push(change);
        Done::new(tag)
    }

    fn prepare(&mut self, name: &str, statement: &Statement) -> Result<Done, Failure> {
        let (types, columns) = self.analyse(statement, &[])?;
        let statement = Some(Rc::new(statement.clone()));
        self.keep_statement(name, Prepared { statement, types, columns, from_sql: true })?;
        Ok(Done::new("PREPARE"))
    }

    fn deallocate(&mut self, name: Option<&str>) -> Result<Done, Failure> {
        let Some(name) = name else {
            self.statements.retain(|name, _| name.is_empty());
            return Ok(Done::new("DEALLOCATE ALL"));
        };
        if name.is_empty() || self.statements.remove(name).is_none() {
            return Err(no_statement(name));
        }
        Ok(Done::new("DEALLOCATE"))
    }

    fn end_or_begin(&mut self, shared: &mut Shared, node: &Node) -> &'static str {
        let inside = matches!(self.block, Block::Open | Block::Failed);
        if *node == Node::Begin {
            if inside {
                self.send_failure(&Failure::warning("25001", "there is already a transaction in progress"));
            }
            self.block = Block::Open;
            return "BEGIN";
        }
        if !inside {
            self.send_failure(&Failure::warning("25P01", "there is no transaction in progress"));
        }
        if *node != Node::Commit || self.block == Block::Failed {
            self.roll_back(shared);
            return "ROLLBACK";
        }
        self.commit(shared);
        "COMMIT"
    }

    /// Sets, returns to, or releases the only savepoint.
    fn savepoint(&mut self, node: &Node) -> Result<Done, Failure> {
        if self.block != Block::Open {
            return Err(Failure::new("25P01", "savepoints can only be used in transaction blocks"));
        }
        let place = &mut self.transaction.savepoint;
        match node {
            Node::Savepoint(name) if place.is_none() => {
                *place = Some((name.clone(), self.settings.mark()));
                return Ok(Done::new("SAVEPOINT"));
            }
            Node::RollbackTo(name) | Node::Release(name) => {
                if let Some((_, mark)) = place.as_ref().filter(|(of, _)| of == name) {
                    if matches!(node, Node::Release(_)) {
                        *place = None;
                        return Ok(Done::new("RELEASE"));
                    }
                    self.settings.return_to(mark);
                    return Ok(Done::new("ROLLBACK"));
                }
            }
            _ => {}
        }
        Err(Failure::new("3B001", "savepoint does not exist, or is not the only one"))
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
                self.transaction.channel_changes.push(ChannelChange::Nothing);
                shared.unlock_all(self.id);
                "DISCARD ALL"
            }
        };
        if matches!(what, Discard::Temp | Discard::All) {
            self.temps.clear();
        }
        Ok(Done::new(word))
    }

    /// Fails within a transaction.
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
                shared.read(self.id, &self.database).map(row).collect()
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
        Ok([vec![Value::Int(rows.count() as i64)]].into())
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
                shared.insert(self.id, &self.database, who.clone(), *n);
            }
            (Table::Temporary, [Value::Text(v)], Node::Insert { table, .. }) => {
                self.temps.entry(table.text.clone()).or_default().push(v.clone());
            }
            _ => return Err(unknown_syntax("INSERT of fewer values, or NULL").into()),
        }
        Ok(Done::new("INSERT 0 1"))
    }

    /// Keeps a prepared statement. A name that is not empty must be new.
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
        name: &str,
        progress: &mut Vec<Value>,
    ) -> Result<Outcome, Stop> {
        let prepared = self.statements.get(name).filter(|_| !name.is_empty()).cloned();
        let Some(prepared) = prepared else { return Err(no_statement(name).into()) };
        if !prepared.types.is_empty() {
            let message = format!("wrong number of parameters for prepared statement \"{name}\"");
            return Err(Failure::new("42601", message).into());
        }
        let Some(statement) = prepared.statement else { return Ok(Outcome::Done(Done::new(""))) };
        self.analyse(&statement, &[])?;
        check_plan(&statement)?;
        self.run(shared, &statement, &[], progress)
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
        let portal = Portal { statement: None, arguments: Vec::new(), columns, rows, done: true, hold, held: false };
        self.portals.insert(name.to_owned(), portal);
        Ok(Done::new("DECLARE CURSOR"))
    }
}

pub(super) fn no_statement(name: &str) -> Failure {
    Failure::new("26000", format!("prepared statement \"{name}\" does not exist"))
}

fn no_cursor(name: &str) -> Failure {
    Failure::new("34000", format!("cursor \"{name}\" does not exist"))
}

pub(super) fn cursor_exists(name: &str) -> Failure {
    Failure::new("42P03", format!("cursor \"{name}\" already exists"))
}
