//! What a session has: its settings, statements, portals, temporary tables and channels, and its transaction. It knows
//! no messages.

use std::{
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    time::Duration,
};

use super::{
    super::Connection,
    failure::Failure,
    settings::{self, Settings},
    shared::{Key, Notification, Shared},
    sql::Statement,
    values::{Column, Type, Value},
    wire::{message, text},
};

/// Bytes that PostgreSQL keeps before it sends them without being told to.
const BUFFER: usize = 8192;

/// Where the connection stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// No user has logged in yet.
    Start,
    Ready,
    Over,
}

#[derive(Clone)]
pub(super) struct Prepared {
    /// `None`: an empty one.
    pub(super) statement: Option<Rc<Statement>>,
    pub(super) types: Vec<Type>,
    pub(super) columns: Option<Vec<Column>>,
    /// It was made by PREPARE.
    pub(super) from_sql: bool,
}

pub(super) struct Portal {
    pub(super) statement: Option<Rc<Statement>>,
    pub(super) arguments: Vec<Value>,
    pub(super) columns: Option<Vec<Column>>,
    pub(super) formats: Vec<u16>,
    /// What it has still to tell, once it has been run, and the word for that.
    pub(super) rows: Option<(VecDeque<Vec<Value>>, String)>,
    /// It has been run, and cannot be run again.
    pub(super) done: bool,
    /// It is to outlive its transaction.
    pub(super) hold: bool,
    pub(super) held: bool,
}

impl Portal {
    /// That of a statement of a text, which runs once. Where it fails within a transaction, it is there to the end of
    /// that.
    pub(super) fn spent(statement: &Rc<Statement>, columns: Option<Vec<Column>>) -> Self {
        let statement = Some(statement.clone());
        let (arguments, formats) = (Vec::new(), Vec::new());
        Self { statement, arguments, columns, formats, rows: None, done: true, hold: false, held: false }
    }
}

/// The state of a transaction, as PostgreSQL calls it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Block {
    #[default]
    Idle,
    /// An implicit one: it ends with the statement, or the Sync.
    Started,
    /// The same of a text with several statements.
    Implicit,
    Open,
    Failed,
}

pub(super) type Temps = BTreeMap<String, Vec<String>>;

/// A change of what is listened to.
#[derive(Clone)]
pub(super) enum Hearing {
    Listen(String),
    Unlisten(String),
    Nothing,
}

/// What there was at a savepoint.
struct Savepoint {
    name: String,
    settings: settings::Mark,
    temps: Temps,
    hearings: usize,
    notifies: usize,
    locks: usize,
    row: usize,
    read_only: bool,
    portals: Vec<String>,
}

#[derive(Default)]
pub(super) struct Transaction {
    temps: Temps,
    pub(super) hearings: Vec<Hearing>,
    pub(super) notifies: Vec<(String, String)>,
    pub(super) locks: Vec<Key>,
    savepoints: Vec<Savepoint>,
    pub(super) read_only: bool,
    pub(super) level: Option<String>,
    /// It has looked at what was committed.
    pub(super) snapshot: bool,
}

/// What a session waits for.
#[derive(Clone, Debug)]
pub(super) enum Wait {
    Sleep(Duration),
    /// `looked`: whether it is one for itself has been looked at.
    Lock {
        key: Key,
        of_transaction: bool,
        since: Duration,
        looked: bool,
    },
}

pub(super) enum Running {
    Query(Query),
    /// With what has been computed of it.
    Portal {
        name: String,
        limit: u32,
        progress: Vec<Value>,
    },
}

/// A text that is being carried out.
pub(super) struct Query {
    pub(super) rest: VecDeque<Rc<Statement>>,
    pub(super) several: bool,
    pub(super) job: Option<Job>,
}

/// A statement that is being carried out.
pub(super) struct Job {
    pub(super) statement: Rc<Statement>,
    pub(super) columns: Option<Vec<Column>>,
    /// What has been computed of it.
    pub(super) progress: Vec<Value>,
}

impl Query {
    /// What has been computed of the statement that waits.
    pub(super) fn progress(&mut self) -> Option<&mut Vec<Value>> {
        self.job.as_mut().map(|job| &mut job.progress)
    }
}

/// A COPY that takes rows.
pub(super) struct Copying {
    pub(super) pending: Vec<u8>,
    pub(super) count: u64,
    /// The end was marked in the data.
    pub(super) ended: bool,
}

pub(super) struct Session {
    pub(super) me: Connection,
    pub(super) stage: Stage,
    pub(super) pid: u32,
    pub(super) secret: u32,
    pub(super) database: String,
    pub(super) user: String,
    pub(super) input: Vec<u8>,
    pub(super) buffer: Vec<u8>,
    pub(super) output: Vec<u8>,
    pub(super) now: Duration,
    pub(super) settings: Settings,
    /// The server's configuration changes now and then.
    pub(super) is_reloaded: bool,
    pub(super) statements: BTreeMap<String, Prepared>,
    pub(super) portals: BTreeMap<String, Portal>,
    pub(super) temps: Temps,
    pub(super) channels: Vec<String>,
    pub(super) last_values: BTreeMap<String, i64>,
    pub(super) last_sequence: Option<String>,
    pub(super) block: Block,
    pub(super) transaction: Transaction,
    /// Something went wrong: nothing is done up to the next Sync.
    pub(super) skipping: bool,
    /// The last message was one of the extended protocol.
    pub(super) extended: bool,
    /// Something of the extended protocol was carried out since the last Sync.
    pub(super) pipelining: bool,
    pub(super) running: Option<Running>,
    pub(super) wait: Option<Wait>,
    pub(super) copying: Option<Copying>,
    pub(super) inbox: Vec<Notification>,
    /// Since when it has waited for a request.
    pub(super) idle_since: Option<Duration>,
    /// When the statement began that time-outs are counted for.
    pub(super) statement_since: Option<Duration>,
}

impl Session {
    pub(super) fn new(me: Connection, now: Duration) -> Self {
        let pid = 1000 + me as u32;
        Self {
            me,
            stage: Stage::Start,
            pid,
            // The key need not be hard to guess.
            secret: pid.wrapping_mul(2_654_435_761),
            database: String::new(),
            user: String::new(),
            input: Vec::new(),
            buffer: Vec::new(),
            output: Vec::new(),
            now,
            settings: Settings::default(),
            is_reloaded: false,
            statements: BTreeMap::new(),
            portals: BTreeMap::new(),
            temps: Temps::new(),
            channels: Vec::new(),
            last_values: BTreeMap::new(),
            last_sequence: None,
            block: Block::Idle,
            transaction: Transaction::default(),
            skipping: false,
            extended: false,
            pipelining: false,
            running: None,
            wait: None,
            copying: None,
            inbox: Vec::new(),
            idle_since: None,
            statement_since: None,
        }
    }

    /// A message to the client. It is sent later.
    pub(super) fn say(&mut self, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
        message(&mut self.buffer, kind, body);
        while self.buffer.len() > BUFFER {
            self.output.extend(self.buffer.drain(..BUFFER));
        }
    }

    pub(super) fn flush(&mut self) {
        self.output.append(&mut self.buffer);
    }

    /// Tells an error, or a warning; both are sent at once.
    pub(super) fn tell(&mut self, failure: &Failure) {
        let latin1 = self.settings.is_latin1();
        failure.write(&mut self.buffer, |text| encode(text, latin1));
        self.flush();
    }

    pub(super) fn complete(&mut self, tag: &str) {
        self.say(b'C', |to| text(to, tag.as_bytes()));
    }

    /// The end of the session, with these words.
    pub(super) fn end_with(&mut self, failure: Failure) {
        self.tell(&failure.fatal());
        self.stage = Stage::Over;
    }

    /// Nothing is under way, and no transaction is open: the client can be told what was committed elsewhere.
    pub(super) fn is_at_rest(&self) -> bool {
        self.stage == Stage::Ready && self.block == Block::Idle && self.running.is_none()
    }

    /// Tells what has been heard.
    pub(super) fn tell_notifications(&mut self) {
        for heard in std::mem::take(&mut self.inbox) {
            let latin1 = self.settings.is_latin1();
            self.say(b'A', |to| {
                to.extend(heard.pid.to_be_bytes());
                text(to, &encode(&heard.channel, latin1));
                text(to, &encode(&heard.payload, latin1));
            });
        }
    }

    /// Begins a transaction, if there is none.
    pub(super) fn start(&mut self) {
        if self.block == Block::Idle {
            self.block = Block::Started;
            let read_only = self.settings.is_on("default_transaction_read_only");
            let level = self.settings.show("default_transaction_isolation").ok();
            self.transaction = Transaction { temps: self.temps.clone(), read_only, level, ..Transaction::default() };
        }
        self.statement_since.get_or_insert(self.now);
    }

    /// Ends an implicit transaction.
    pub(super) fn finish(&mut self, shared: &mut Shared) {
        self.statement_since = None;
        if self.block == Block::Started {
            self.commit(shared);
        }
    }

    pub(super) fn commit(&mut self, shared: &mut Shared) {
        let transaction = std::mem::take(&mut self.transaction);
        self.settings.commit();
        for hearing in transaction.hearings {
            match hearing {
                Hearing::Listen(channel) if self.channels.contains(&channel) => {}
                Hearing::Listen(channel) => self.channels.push(channel),
                Hearing::Unlisten(channel) => self.channels.retain(|other| *other != channel),
                Hearing::Nothing => self.channels.clear(),
            }
        }
        shared.commit(self.me);
        for (channel, payload) in transaction.notifies {
            let database = self.database.clone();
            let notification = Notification { database, pid: self.pid, channel, payload };
            if self.channels.contains(&notification.channel) {
                self.inbox.push(notification.clone());
            }
            shared.notifications.push(notification);
        }
        for key in transaction.locks {
            shared.unlock(self.me, &key, true);
        }
        self.portals.retain(|_, portal| {
            portal.held |= portal.hold;
            portal.held
        });
        (self.block, self.pipelining) = (Block::Idle, false);
    }

    /// Takes back all that the transaction has done.
    pub(super) fn roll_back(&mut self, shared: &mut Shared) {
        let transaction = std::mem::take(&mut self.transaction);
        self.settings.roll_back();
        if self.block != Block::Idle {
            self.temps = transaction.temps;
        }
        shared.roll_back(self.me, 0);
        shared.leave_queues(self.me);
        for key in transaction.locks {
            shared.unlock(self.me, &key, true);
        }
        self.portals.retain(|_, portal| portal.held);
        (self.block, self.pipelining) = (Block::Idle, false);
    }

    pub(super) fn abort(&mut self, shared: &mut Shared) {
        self.statement_since = None;
        match self.block {
            Block::Idle => {}
            Block::Started | Block::Implicit => self.roll_back(shared),
            Block::Open | Block::Failed => {
                let savepoints = std::mem::take(&mut self.transaction.savepoints);
                if savepoints.is_empty() {
                    // They cannot be used any more, but they are there.
                    let portals = std::mem::take(&mut self.portals);
                    self.roll_back(shared);
                    self.portals = portals;
                    self.transaction.temps = self.temps.clone();
                } else {
                    // What came before the last of them may yet be returned to.
                    self.transaction.savepoints = savepoints;
                    self.return_to(shared, self.transaction.savepoints.len() - 1);
                }
                self.block = Block::Failed;
            }
        }
    }

    pub(super) fn savepoint(&mut self, name: String, shared: &Shared) {
        let transaction = &self.transaction;
        let savepoint = Savepoint {
            name,
            settings: self.settings.mark(),
            temps: self.temps.clone(),
            hearings: transaction.hearings.len(),
            notifies: transaction.notifies.len(),
            locks: transaction.locks.len(),
            row: shared.row_mark(),
            read_only: transaction.read_only,
            portals: self.portals.keys().cloned().collect(),
        };
        self.transaction.savepoints.push(savepoint);
    }

    /// Where the savepoint of this name stands.
    pub(super) fn find_savepoint(&self, name: &str) -> Result<usize, Failure> {
        let place = self.transaction.savepoints.iter().rposition(|savepoint| savepoint.name == name);
        place.ok_or_else(|| Failure::new("3B001", format!("savepoint \"{name}\" does not exist")))
    }

    /// Forgets this savepoint, and all behind it.
    pub(super) fn release(&mut self, place: usize) {
        self.transaction.savepoints.truncate(place);
    }

    /// Takes back what was done since this savepoint.
    pub(super) fn return_to(&mut self, shared: &mut Shared, place: usize) {
        let transaction = &mut self.transaction;
        transaction.savepoints.truncate(place + 1);
        let Some(savepoint) = transaction.savepoints.last() else { return };
        self.settings.return_to(&savepoint.settings);
        self.temps = savepoint.temps.clone();
        transaction.hearings.truncate(savepoint.hearings);
        transaction.notifies.truncate(savepoint.notifies);
        transaction.read_only = savepoint.read_only;
        self.portals.retain(|name, portal| portal.held || savepoint.portals.contains(name));
        shared.roll_back(self.me, savepoint.row);
        shared.leave_queues(self.me);
        for key in transaction.locks.split_off(savepoint.locks) {
            shared.unlock(self.me, &key, true);
        }
    }

    /// The status that a ReadyForQuery tells.
    pub(super) fn status(&self) -> u8 {
        match self.block {
            Block::Open => b'T',
            Block::Failed => b'E',
            _ => b'I',
        }
    }

    /// The session is over: what it held is let go of.
    pub(super) fn let_go(&mut self, shared: &mut Shared) {
        self.stage = Stage::Over;
        self.roll_back(shared);
        shared.unlock_all(self.me);
        self.channels.clear();
    }

    /// What a session that has just begun would not have.
    pub(super) fn leftovers(&self, shared: &Shared) -> Vec<String> {
        let mut left = self.settings.leftovers();
        left.extend(self.temps.keys().map(|name| format!("temporary table {name}")));
        left.extend(shared.held(self.me).filter(|(_, session)| *session).map(|((_, key), _)| format!("lock {key}")));
        left.extend(self.portals.iter().filter(|(_, portal)| portal.held).map(|(name, _)| format!("cursor {name}")));
        left.extend(self.channels.iter().map(|name| format!("channel {name}")));
        let prepared = self.statements.iter().filter(|(_, statement)| statement.from_sql);
        left.extend(prepared.map(|(name, _)| format!("prepared statement {name}")));
        left
    }
}

/// A text in the encoding of the client.
pub(super) fn encode(text: &str, latin1: bool) -> Vec<u8> {
    let latin = |c: char| u8::try_from(u32::from(c)).unwrap_or(b'?');
    if latin1 { text.chars().map(latin).collect() } else { text.as_bytes().to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_that_fails_leaves_nothing_behind() {
        let mut shared = Shared::default();
        let mut session = Session::new(1, Duration::ZERO);
        session.start();
        session.block = Block::Open;
        session.temps.insert("t".into(), Vec::new());
        shared.insert(1, "", "a".into(), 1);
        session.savepoint("s".into(), &shared);
        session.temps.insert("u".into(), Vec::new());
        session.abort(&mut shared);
        assert_eq!((session.block, session.temps.len()), (Block::Failed, 1));
        session.roll_back(&mut shared);
        assert!(session.leftovers(&shared).is_empty() && shared.ledger().is_empty());
    }
}
