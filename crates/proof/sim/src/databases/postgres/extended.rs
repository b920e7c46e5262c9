//! The extended protocol: Parse, Bind, Describe, Execute, Close and Sync.

use super::{
    analysis::check_plan,
    execute::{Done, Outcome, cursor_exists, no_statement},
    failure::{Failure, in_failed_transaction, protocol_violation},
    functions::Stop,
    session::{Block, Portal, Prepared, Running, Session},
    shared::Shared,
    simple::{decode, parse_text},
    sql::{Discard, Node},
    values::{Type, Value},
    wire::Reader,
};

fn too_short() -> Failure {
    protocol_violation("insufficient data left in message")
}

impl Session {
    pub(super) fn parse(&mut self, body: &[u8]) -> Result<(), Failure> {
        let mut reader = Reader(body);
        let (name, text) = (reader.text().ok_or_else(too_short)?, reader.text().ok_or_else(too_short)?);
        let count = reader.u16().ok_or_else(too_short)?;
        let oids: Option<Vec<u32>> = (0..count).map(|_| reader.u32()).collect();
        let oids = oids.ok_or_else(too_short)?;
        self.start_transaction();
        let (name, text) = (decode(name)?, decode(text)?);
        if name.is_empty() {
            self.statements.remove("");
        }
        let mut statements = parse_text(&text)?;
        if statements.len() > 1 {
            return Err(Failure::new("42601", "cannot insert multiple commands into a prepared statement"));
        }
        let statement = statements.pop_front();
        let mut declared = Vec::new();
        for oid in oids {
            let kind = Type::of_oid(oid);
            if oid != 0 && kind.is_none() {
                return Err(Failure::new("42704", format!("the model does not know the type with OID {oid}")));
            }
            declared.push(kind);
        }
        let (types, columns) = match &statement {
            Some(statement) if self.block == Block::Failed && !statement.node.ends_transaction() => {
                return Err(in_failed_transaction());
            }
            Some(statement) => self.analyse(statement, &declared)?,
            None => (declared.into_iter().flatten().collect(), None),
        };
        self.keep_statement(&name, Prepared { statement, types, columns, from_sql: false })?;
        self.send(b'1', |_| {});
        Ok(())
    }

    fn find_statement(&self, name: &str) -> Result<Prepared, Failure> {
        let missing = || match name {
            "" => Failure::new("26000", "unnamed prepared statement does not exist"),
            name => no_statement(name),
        };
        self.statements.get(name).cloned().ok_or_else(missing)
    }

    pub(super) fn bind(&mut self, body: &[u8]) -> Result<(), Failure> {
        let mut reader = Reader(body);
        let (portal, name) = (reader.text().ok_or_else(too_short)?, reader.text().ok_or_else(too_short)?);
        let (portal, name) = (decode(portal)?, decode(name)?);
        let prepared = self.find_statement(&name)?;
        self.start_transaction();
        check_formats(&mut reader)?;
        let count = usize::from(reader.u16().ok_or_else(too_short)?);
        let wanted = prepared.types.len();
        if count != wanted {
            let message = format!(
                "bind message supplies {count} parameters, but prepared statement \"{name}\" requires {wanted}"
            );
            return Err(protocol_violation(message));
        }
        let leaves = prepared.statement.as_ref().is_some_and(|statement| statement.node.ends_transaction());
        if self.block == Block::Failed && (!leaves || count > 0) {
            return Err(in_failed_transaction());
        }
        if !portal.is_empty() && self.portals.contains_key(&portal) {
            return Err(cursor_exists(&portal));
        }
        self.portals.remove(&portal);
        let mut arguments = Vec::new();
        for kind in &prepared.types {
            let length = reader.u32().ok_or_else(too_short)?;
            if length == u32::MAX {
                arguments.push(Value::Null);
                continue;
            }
            let bytes = reader.bytes(length as usize).ok_or_else(too_short)?;
            arguments.push(Value::read(&decode(bytes)?, *kind)?);
        }
        check_formats(&mut reader)?;
        if !reader.0.is_empty() {
            return Err(protocol_violation("invalid message format"));
        }
        if let Some(statement) = &prepared.statement {
            let types: Vec<_> = prepared.types.iter().copied().map(Some).collect();
            self.analyse(statement, &types)?;
            check_plan(statement)?;
        }
        let bound = Portal {
            statement: prepared.statement,
            arguments,
            columns: prepared.columns,
            rows: None,
            done: false,
            hold: false,
            held: false,
        };
        self.portals.insert(portal, bound);
        self.send(b'2', |_| {});
        Ok(())
    }

    pub(super) fn describe_message(&mut self, body: &[u8]) -> Result<(), Failure> {
        let mut reader = Reader(body);
        let kind = reader.byte().ok_or_else(too_short)?;
        let name = decode(reader.text().ok_or_else(too_short)?)?;
        self.start_transaction();
        let (columns, types) = match kind {
            b'S' => {
                let prepared = self.find_statement(&name)?;
                (prepared.columns, Some(prepared.types))
            }
            b'P' => {
                let Some(portal) = self.portals.get(&name) else { return Err(no_portal(&name)) };
                (portal.columns.clone(), None)
            }
            kind => return Err(protocol_violation(format!("invalid DESCRIBE message subtype {kind}"))),
        };
        if self.block == Block::Failed && columns.is_some() {
            return Err(in_failed_transaction());
        }
        if let Some(types) = types {
            self.send(b't', |to| {
                to.extend((types.len() as u16).to_be_bytes());
                types.iter().for_each(|kind| to.extend(kind.oid().to_be_bytes()));
            });
        }
        match columns {
            Some(columns) => self.send_description(&columns),
            None => self.send(b'n', |_| {}),
        }
        Ok(())
    }

    pub(super) fn execute_message(&mut self, body: &[u8]) -> Result<(), Failure> {
        let mut reader = Reader(body);
        let name = decode(reader.text().ok_or_else(too_short)?)?;
        let limit = reader.u32().ok_or_else(too_short)?;
        let Some(portal) = self.portals.get(&name) else { return Err(no_portal(&name)) };
        if portal.statement.is_none() && portal.rows.is_none() {
            self.send(b'I', |_| {});
            return Ok(());
        }
        let leaves = portal.statement.as_ref().is_some_and(|statement| statement.node.ends_transaction());
        let spent = portal.done && portal.rows.is_none();
        self.start_transaction();
        if self.block == Block::Failed && !leaves {
            return Err(in_failed_transaction());
        }
        if spent {
            return Err(Failure::new("55000", format!("portal \"{name}\" cannot be run")));
        }
        let limit = if limit > i32::MAX as u32 { 0 } else { limit };
        self.running = Some(Running::Portal { name, limit, progress: Vec::new() });
        Ok(())
    }

    pub(super) fn resume_portal(
        &mut self,
        shared: &mut Shared,
        (name, limit): (String, u32),
        mut progress: Vec<Value>,
    ) {
        let Some(portal) = self.portals.get(&name) else { return };
        let Some(statement) = portal.statement.clone().filter(|_| portal.rows.is_none()) else {
            return self.send_rows(&name, limit);
        };
        let arguments = portal.arguments.clone();
        match self.run(shared, &statement, &arguments, &mut progress) {
            Ok(Outcome::Done(done)) => {
                let has_columns = self.portals.get(&name).is_some_and(|portal| portal.columns.is_some());
                if has_columns && let Some(portal) = self.portals.get_mut(&name) {
                    let word = if done.counts { done.tag } else { format!("={}", done.tag) };
                    (portal.rows, portal.done) = (Some((done.rows, word)), true);
                    return self.send_rows(&name, limit);
                }
                self.end_portal(shared, &name, done);
            }
            Ok(Outcome::CopyIn) => {
                self.running = Some(Running::Portal { name, limit, progress });
                self.begin_copy();
            }
            Err(Stop::Waits) => self.running = Some(Running::Portal { name, limit, progress }),
            Err(Stop::Failed(failure)) => self.fail(shared, &failure),
        }
    }

    /// Ends the execution of a portal without rows.
    pub(super) fn end_portal(&mut self, shared: &mut Shared, name: &str, done: Done) {
        let node = self.portals.get_mut(name).and_then(|portal| {
            portal.done = true;
            portal.statement.clone()
        });
        let at_once = node.as_ref().is_none_or(|statement| {
            statement.node.is_of_transactions() || statement.node == Node::Discard(Discard::All)
        });
        if at_once && done.tag != "CLOSE CURSOR ALL" {
            self.finish_implicit_transaction(shared);
        } else {
            self.pipelining = true;
        }
        self.send_complete(&done.tag);
    }

    /// Sends at most `limit` rows of a portal; 0: all.
    fn send_rows(&mut self, name: &str, limit: u32) {
        let Some(portal) = self.portals.get_mut(name) else { return };
        let Some((rows, word)) = &mut portal.rows else { return };
        let count = if limit == 0 { rows.len() } else { rows.len().min(limit as usize) };
        let sent: Vec<Vec<Value>> = rows.drain(..count).collect();
        let word = word.clone();
        for values in &sent {
            self.send_row(values);
        }
        self.pipelining = true;
        if limit > 0 && sent.len() == limit as usize {
            return self.send(b's', |_| {});
        }
        match word.strip_prefix('=') {
            Some(word) => self.send_complete(word),
            None => self.send_complete(&format!("{word} {}", sent.len())),
        }
    }

    pub(super) fn close_message(&mut self, body: &[u8]) -> Result<(), Failure> {
        let mut reader = Reader(body);
        let kind = reader.byte().ok_or_else(too_short)?;
        let name = decode(reader.text().ok_or_else(too_short)?)?;
        match kind {
            b'S' => _ = self.statements.remove(&name),
            b'P' => _ = self.portals.remove(&name),
            kind => return Err(protocol_violation(format!("invalid CLOSE message subtype {kind}"))),
        }
        self.send(b'3', |_| {});
        Ok(())
    }

    pub(super) fn sync(&mut self, shared: &mut Shared) {
        self.finish_implicit_transaction(shared);
        self.send_ready();
    }
}

fn no_portal(name: &str) -> Failure {
    Failure::new("34000", format!("portal \"{name}\" does not exist"))
}

/// The model knows text format only.
fn check_formats(reader: &mut Reader<'_>) -> Result<(), Failure> {
    let count = reader.u16().ok_or_else(too_short)?;
    for _ in 0..count {
        if reader.u16().ok_or_else(too_short)? != 0 {
            return Err(Failure::new("0A000", "the model knows no binary format"));
        }
    }
    Ok(())
}
