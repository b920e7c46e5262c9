//! The state of a session: settings, statements, portals, temporary tables, channels, and its transaction. It knows no
//! messages.

use std::{
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    time::Duration,
};

use super::{
    super::Connection,
    failure::Failure,
    settings::{Mark, Settings},
    shared::{Key, Notification, Shared},
    sql::Statement,
    values::{Column, Type, Value},
    wire::{message, text},
};

/// Size of the output buffer in bytes.
const BUFFER: usize = 8192;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Before the login.
    Start,
    Ready,
    Over,
}

#[derive(Clone)]
pub(super) struct Prepared {
    /// `None` is an empty statement.
    pub(super) statement: Option<Rc<Statement>>,
    pub(super) types: Vec<Type>,
    pub(super) columns: Option<Vec<Column>>,
    /// Made by PREPARE, and not by a Parse.
    pub(super) from_sql: bool,
}

pub(super) struct Portal {
    pub(super) statement: Option<Rc<Statement>>,
    pub(super) arguments: Vec<Value>,
    pub(super) columns: Option<Vec<Column>>,
    /// The rows still to be sent, and the tag. A tag that the number of rows does not follow begins with `=`.
    pub(super) rows: Option<(VecDeque<Vec<Value>>, String)>,
    /// It has been executed.
    pub(super) done: bool,
    /// WITH HOLD.
    pub(super) hold: bool,
    /// It has outlived its transaction.
    pub(super) held: bool,
}

impl Portal {
    /// The portal of a Query. After an error it exists until the end of the transaction.
    pub(super) fn spent(statement: &Rc<Statement>, columns: Option<Vec<Column>>) -> Self {
        let statement = Some(statement.clone());
        Self { statement, arguments: Vec::new(), columns, rows: None, done: true, hold: false, held: false }
    }
}

/// The state of the transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Block {
    #[default]
    Idle,
    /// An implicit transaction, which ends with the statement or the Sync.
    Started,
    /// The implicit transaction of a text with several statements.
    Implicit,
    Open,
    Failed,
}

pub(super) type Temps = BTreeMap<String, Vec<String>>;

#[derive(Clone)]
pub(super) enum ChannelChange {
    Listen(String),
    Unlisten(String),
    Nothing,
}

#[derive(Default)]
pub(super) struct Transaction {
    temps: Temps,
    /// The pooler's savepoint: what it does behind it changes only settings.
    pub(super) savepoint: Option<(String, Mark)>,
    pub(super) channel_changes: Vec<ChannelChange>,
    pub(super) notifies: Vec<(String, String)>,
    pub(super) locks: Vec<Key>,
}

pub(super) enum Wait {
    Sleep(Duration),
    Lock { key: Key, of_transaction: bool },
}

pub(super) enum Running {
    Query(Query),
    Portal { name: String, limit: u32, progress: Vec<Value> },
}

/// A Query that is being executed.
pub(super) struct Query {
    pub(super) rest: VecDeque<Rc<Statement>>,
    pub(super) several: bool,
    pub(super) job: Option<Job>,
}

/// A statement of it that is being executed.
pub(super) struct Job {
    pub(super) statement: Rc<Statement>,
    pub(super) columns: Option<Vec<Column>>,
    /// The columns computed so far.
    pub(super) progress: Vec<Value>,
}

/// A COPY that takes rows.
pub(super) struct Copying {
    pub(super) pending: Vec<u8>,
    pub(super) count: u64,
}

pub(super) struct Session {
    pub(super) id: Connection,
    pub(super) phase: Phase,
    pub(super) pid: u32,
    pub(super) secret: u32,
    pub(super) database: String,
    pub(super) user: String,
    /// A connection for replication, in which SQL works as in any other.
    pub(super) replication: bool,
    pub(super) input: Vec<u8>,
    pub(super) buffer: Vec<u8>,
    pub(super) output: Vec<u8>,
    pub(super) now: Duration,
    pub(super) settings: Settings,
    /// The server's configuration changes from time to time.
    pub(super) changes_configuration: bool,
    pub(super) statements: BTreeMap<String, Prepared>,
    pub(super) portals: BTreeMap<String, Portal>,
    pub(super) temps: Temps,
    pub(super) channels: Vec<String>,
    pub(super) block: Block,
    pub(super) transaction: Transaction,
    /// After an error, messages are skipped up to the next Sync.
    pub(super) skipping: bool,
    /// The last message belongs to the extended protocol, and is no Sync: after an error, messages are skipped up to
    /// the next Sync.
    pub(super) extended: bool,
    /// A portal was executed since the last Sync.
    pub(super) pipelining: bool,
    pub(super) running: Option<Running>,
    pub(super) wait: Option<Wait>,
    pub(super) copying: Option<Copying>,
    pub(super) inbox: Vec<Notification>,
}

impl Session {
    pub(super) fn new(id: Connection, now: Duration) -> Self {
        let pid = 1000 + id as u32;
        Self {
            id,
            phase: Phase::Start,
            pid,
            secret: pid.wrapping_mul(2_654_435_761),
            database: String::new(),
            user: String::new(),
            replication: false,
            input: Vec::new(),
            buffer: Vec::new(),
            output: Vec::new(),
            now,
            settings: Settings::default(),
            changes_configuration: false,
            statements: BTreeMap::new(),
            portals: BTreeMap::new(),
            temps: Temps::new(),
            channels: Vec::new(),
            block: Block::Idle,
            transaction: Transaction::default(),
            skipping: false,
            extended: false,
            pipelining: false,
            running: None,
            wait: None,
            copying: None,
            inbox: Vec::new(),
        }
    }

    /// Appends a message to the output buffer.
    pub(super) fn send(&mut self, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
        message(&mut self.buffer, kind, body);
        while self.buffer.len() > BUFFER {
            self.output.extend(self.buffer.drain(..BUFFER));
        }
    }

    pub(super) fn flush(&mut self) {
        self.output.append(&mut self.buffer);
    }

    /// Sends an error or a warning at once.
    pub(super) fn send_failure(&mut self, failure: &Failure) {
        failure.write(&mut self.buffer);
        self.flush();
    }

    pub(super) fn send_complete(&mut self, tag: &str) {
        self.send(b'C', |to| text(to, tag.as_bytes()));
    }

    /// Ends the session with an error.
    pub(super) fn end_with(&mut self, failure: Failure) {
        self.send_failure(&failure.fatal());
        self.phase = Phase::Over;
    }

    /// Whether the session is idle, so that notifications may be sent.
    pub(super) fn is_at_rest(&self) -> bool {
        self.phase == Phase::Ready && self.block == Block::Idle && self.running.is_none()
    }

    pub(super) fn send_notifications(&mut self) {
        for heard in std::mem::take(&mut self.inbox) {
            self.send(b'A', |to| {
                to.extend(heard.pid.to_be_bytes());
                text(to, heard.channel.as_bytes());
                text(to, heard.payload.as_bytes());
            });
        }
    }

    /// Begins a transaction, if there is none.
    pub(super) fn start_transaction(&mut self) {
        if self.block == Block::Idle {
            self.block = Block::Started;
            self.transaction = Transaction { temps: self.temps.clone(), ..Transaction::default() };
        }
    }

    /// Ends an implicit transaction.
    pub(super) fn finish_implicit_transaction(&mut self, shared: &mut Shared) {
        if self.block == Block::Started {
            self.commit(shared);
        }
    }

    pub(super) fn commit(&mut self, shared: &mut Shared) {
        let transaction = std::mem::take(&mut self.transaction);
        self.settings.commit();
        for change in transaction.channel_changes {
            match change {
                ChannelChange::Listen(channel) if self.channels.contains(&channel) => {}
                ChannelChange::Listen(channel) => self.channels.push(channel),
                ChannelChange::Unlisten(channel) => self.channels.retain(|other| *other != channel),
                ChannelChange::Nothing => self.channels.clear(),
            }
        }
        shared.commit(self.id);
        for (channel, payload) in transaction.notifies {
            let database = self.database.clone();
            let notification = Notification { database, pid: self.pid, channel, payload };
            if self.channels.contains(&notification.channel) {
                self.inbox.push(notification.clone());
            }
            shared.notifications.push(notification);
        }
        for key in transaction.locks {
            shared.unlock(self.id, &key, true);
        }
        self.portals.retain(|_, portal| {
            portal.held |= portal.hold;
            portal.held
        });
        (self.block, self.pipelining) = (Block::Idle, false);
    }

    pub(super) fn roll_back(&mut self, shared: &mut Shared) {
        let transaction = std::mem::take(&mut self.transaction);
        self.settings.roll_back();
        if self.block != Block::Idle {
            self.temps = transaction.temps;
        }
        shared.roll_back(self.id);
        shared.leave_queues(self.id);
        for key in transaction.locks {
            shared.unlock(self.id, &key, true);
        }
        self.portals.retain(|_, portal| portal.held);
        (self.block, self.pipelining) = (Block::Idle, false);
    }

    pub(super) fn abort(&mut self, shared: &mut Shared) {
        match self.block {
            Block::Idle => {}
            Block::Started | Block::Implicit => self.roll_back(shared),
            Block::Open | Block::Failed => {
                // Portals of a failed transaction cannot be used any more, but their names are taken.
                let portals = std::mem::take(&mut self.portals);
                self.roll_back(shared);
                self.portals = portals;
                self.transaction.temps = self.temps.clone();
                self.block = Block::Failed;
            }
        }
    }

    /// The status in a ReadyForQuery.
    pub(super) fn status(&self) -> u8 {
        match self.block {
            Block::Open => b'T',
            Block::Failed => b'E',
            _ => b'I',
        }
    }

    /// Ends the session, and releases its locks.
    pub(super) fn let_go(&mut self, shared: &mut Shared) {
        self.phase = Phase::Over;
        self.roll_back(shared);
        shared.unlock_all(self.id);
        self.channels.clear();
    }

    /// State that a new session would not have.
    pub(super) fn leftovers(&self, shared: &Shared) -> Vec<String> {
        let mut left = self.settings.leftovers();
        left.extend(self.temps.keys().map(|name| format!("temporary table {name}")));
        left.extend(shared.held(self.id).filter(|(_, session)| *session).map(|((_, key), _)| format!("lock {key}")));
        left.extend(self.portals.iter().filter(|(_, portal)| portal.held).map(|(name, _)| format!("cursor {name}")));
        left.extend(self.channels.iter().map(|name| format!("channel {name}")));
        let prepared = self.statements.iter().filter(|(_, statement)| statement.from_sql);
        left.extend(prepared.map(|(name, _)| format!("prepared statement {name}")));
        left
    }
}
