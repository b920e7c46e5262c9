//! The extended protocol: statements that are prepared, bound and executed by messages of their own.

use super::{
    analysis::foresee,
    execute::{Done, Outcome, cursor_exists, no_statement},
    failure::{Failure, in_failed_transaction, protocol_violation},
    functions::Stop,
    session::{Block, Portal, Prepared, Running, Session},
    shared::Shared,
    sql::{Discard, Node},
    values::{Type, Value, is_binary},
    wire::Reader,
};

/// A message that ends too early.
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
        self.start();
        let (name, text) = (self.decode(name)?, self.decode(text)?);
        if name.is_empty() {
            self.statements.remove("");
        }
        let mut statements = self.read_statements(&text)?;
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
            Some(statement) if self.block == Block::Failed && !statement.node.leaves_failed() => {
                return Err(in_failed_transaction());
            }
            Some(statement) => {
                self.transaction.snapshot |= statement.node.takes_snapshot(true);
                self.analyse(statement, &declared)?
            }
            None => (declared.into_iter().flatten().collect(), None),
        };
        self.keep_statement(&name, Prepared { statement, types, columns, from_sql: false })?;
        self.say(b'1', |_| {});
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
        let (portal, name) = (self.decode(portal)?, self.decode(name)?);
        let prepared = self.find_statement(&name)?;
        self.start();
        let formats = reader.u16s().ok_or_else(too_short)?;
        let count = usize::from(reader.u16().ok_or_else(too_short)?);
        if formats.len() > 1 && formats.len() != count {
            let formats = formats.len();
            let message = format!("bind message has {formats} parameter formats but {count} parameters");
            return Err(protocol_violation(message));
        }
        let wanted = prepared.types.len();
        if count != wanted {
            let message = format!(
                "bind message supplies {count} parameters, but prepared statement \"{name}\" requires {wanted}"
            );
            return Err(protocol_violation(message));
        }
        let leaves = prepared.statement.as_ref().is_some_and(|statement| statement.node.leaves_failed());
        if self.block == Block::Failed && (!leaves || count > 0) {
            return Err(in_failed_transaction());
        }
        if !portal.is_empty() && self.portals.contains_key(&portal) {
            return Err(cursor_exists(&portal));
        }
        self.portals.remove(&portal);
        let mut arguments = Vec::new();
        for (place, kind) in prepared.types.iter().enumerate() {
            let binary = is_binary(&formats, place);
            let value = self.read_argument(&mut reader, *kind, binary).map_err(|failure| {
                let portal = if portal.is_empty() { "unnamed portal".into() } else { format!("portal \"{portal}\"") };
                let shown = if binary { "" } else { " = '...'" };
                failure.context(format!("{portal} parameter ${}{shown}", place + 1))
            });
            arguments.push(value?);
        }
        let formats = reader.u16s().ok_or_else(too_short)?;
        if !reader.0.is_empty() {
            return Err(protocol_violation("invalid message format"));
        }
        if let Some(statement) = &prepared.statement {
            self.transaction.snapshot |= count > 0 || statement.node.takes_snapshot(true);
            let types: Vec<_> = prepared.types.iter().copied().map(Some).collect();
            let (_, columns) = self.analyse(statement, &types)?;
            if statement.node.is_query() && columns != prepared.columns {
                return Err(Failure::new("0A000", "cached plan must not change result type"));
            }
            foresee(statement, &arguments)?;
        }
        check_result_formats(&formats, prepared.columns.as_ref().map(Vec::len))?;
        let bound = Portal {
            statement: prepared.statement,
            arguments,
            columns: prepared.columns,
            formats,
            rows: None,
            done: false,
            hold: false,
            held: false,
        };
        self.portals.insert(portal, bound);
        self.say(b'2', |_| {});
        Ok(())
    }

    fn read_argument(&self, reader: &mut Reader<'_>, kind: Type, binary: bool) -> Result<Value, Failure> {
        let length = reader.u32().ok_or_else(too_short)?;
        if length == u32::MAX {
            return Ok(Value::Null);
        }
        let bytes = reader.bytes(length as usize).ok_or_else(too_short)?;
        match (kind, binary) {
            (Type::Text | Type::Varchar | Type::Name | Type::Regclass, _) | (_, false) => {
                Value::read(&self.decode(bytes)?, kind)
            }
            _ => Value::read_binary(bytes, kind)
                .ok_or_else(|| Failure::new("22P03", "incorrect binary data format in bind parameter")),
        }
    }

    /// A Describe, of a statement or a portal.
    pub(super) fn describe_message(&mut self, body: &[u8]) -> Result<(), Failure> {
        let mut reader = Reader(body);
        let kind = reader.byte().ok_or_else(too_short)?;
        let name = self.decode(reader.text().ok_or_else(too_short)?)?;
        self.start();
        let (columns, formats, types) = match kind {
            b'S' => {
                let prepared = self.find_statement(&name)?;
                (prepared.columns, Vec::new(), Some(prepared.types))
            }
            b'P' => {
                let Some(portal) = self.portals.get(&name) else { return Err(no_portal(&name)) };
                (portal.columns.clone(), portal.formats.clone(), None)
            }
            kind => return Err(protocol_violation(format!("invalid DESCRIBE message subtype {kind}"))),
        };
        if self.block == Block::Failed && columns.is_some() {
            return Err(in_failed_transaction());
        }
        if let Some(types) = types {
            self.say(b't', |to| {
                to.extend((types.len() as u16).to_be_bytes());
                types.iter().for_each(|kind| to.extend(kind.oid().to_be_bytes()));
            });
        }
        match columns {
            Some(columns) => self.describe(&columns, &formats),
            None => self.say(b'n', |_| {}),
        }
        Ok(())
    }

    pub(super) fn execute_message(&mut self, body: &[u8]) -> Result<(), Failure> {
        let mut reader = Reader(body);
        let name = self.decode(reader.text().ok_or_else(too_short)?)?;
        let limit = reader.u32().ok_or_else(too_short)?;
        let Some(portal) = self.portals.get(&name) else { return Err(no_portal(&name)) };
        if portal.statement.is_none() && portal.rows.is_none() {
            self.say(b'I', |_| {});
            return Ok(());
        }
        let leaves = portal.statement.as_ref().is_some_and(|statement| statement.node.leaves_failed());
        let spent = portal.done && portal.rows.is_none();
        self.start();
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

    /// Carries on with a portal.
    pub(super) fn go_on_with_portal(
        &mut self,
        shared: &mut Shared,
        (name, limit): (String, u32),
        mut progress: Vec<Value>,
    ) {
        let Some(portal) = self.portals.get(&name) else { return };
        let Some(statement) = portal.statement.clone().filter(|_| portal.rows.is_none()) else {
            return self.tell_rows(&name, limit);
        };
        let arguments = portal.arguments.clone();
        match self.run(shared, &statement, &arguments, &mut progress) {
            Ok(Outcome::Done(done)) => {
                let tells = self.portals.get(&name).is_some_and(|portal| portal.columns.is_some());
                if tells && let Some(portal) = self.portals.get_mut(&name) {
                    let word = if done.counts { done.tag } else { format!("={}", done.tag) };
                    (portal.rows, portal.done) = (Some((done.rows, word)), true);
                    return self.tell_rows(&name, limit);
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

    /// A portal without rows has been run.
    pub(super) fn end_portal(&mut self, shared: &mut Shared, name: &str, done: Done) {
        let node = self.portals.get_mut(name).and_then(|portal| {
            portal.done = true;
            portal.statement.clone()
        });
        let at_once = node.as_ref().is_none_or(|statement| {
            statement.node.is_of_transactions() || statement.node == Node::Discard(Discard::All)
        });
        if at_once && done.tag != "CLOSE CURSOR ALL" {
            self.finish(shared);
        } else {
            (self.pipelining, self.statement_since) = (true, None);
        }
        self.complete(&done.tag);
    }

    /// Tells so many rows of a portal; 0: all.
    fn tell_rows(&mut self, name: &str, limit: u32) {
        let Some(portal) = self.portals.get_mut(name) else { return };
        let Some((rows, word)) = &mut portal.rows else { return };
        let count = if limit == 0 { rows.len() } else { rows.len().min(limit as usize) };
        let told: Vec<Vec<Value>> = rows.drain(..count).collect();
        let (word, formats) = (word.clone(), portal.formats.clone());
        let columns = portal.columns.clone().unwrap_or_default();
        for values in &told {
            self.row(&columns, values, &formats);
        }
        (self.pipelining, self.statement_since) = (true, None);
        if limit > 0 && told.len() == limit as usize {
            return self.say(b's', |_| {});
        }
        match word.strip_prefix('=') {
            Some(word) => self.complete(word),
            None => self.complete(&format!("{word} {}", told.len())),
        }
    }

    /// A Close, of a statement or a portal.
    pub(super) fn close_message(&mut self, body: &[u8]) -> Result<(), Failure> {
        let mut reader = Reader(body);
        let kind = reader.byte().ok_or_else(too_short)?;
        let name = self.decode(reader.text().ok_or_else(too_short)?)?;
        match kind {
            b'S' => _ = self.statements.remove(&name),
            b'P' => _ = self.portals.remove(&name),
            kind => return Err(protocol_violation(format!("invalid CLOSE message subtype {kind}"))),
        }
        self.say(b'3', |_| {});
        Ok(())
    }

    pub(super) fn sync(&mut self, shared: &mut Shared) {
        self.finish(shared);
        self.ready();
    }
}

fn no_portal(name: &str) -> Failure {
    Failure::new("34000", format!("portal \"{name}\" does not exist"))
}

/// A Bind message gives no, one, or as many result formats as there are columns.
fn check_result_formats(formats: &[u16], columns: Option<usize>) -> Result<(), Failure> {
    match columns {
        Some(columns) if formats.len() > 1 && formats.len() != columns => {
            let formats = formats.len();
            let message = format!("bind message has {formats} result formats but query has {columns} columns");
            Err(protocol_violation(message))
        }
        _ => Ok(()),
    }
}
