//! Where a command goes: to a writable host, to one that its read preference allows, or to the host that has its cursor
//! or its transaction.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use seam::Outbox;

use crate::{
    MongoDb,
    bson::{Document, Element, Malformed, Value},
    cleanup_tasks::{CleanupTask, Namespace},
    command::{Command, Transaction},
    errors::{Code, Failure},
    selection::{MIN_MAX_STALENESS_SECONDS, ReadRequirements},
    tags::{self, TagSet},
};

/// The modes of read preferences other than `primary`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadPreference {
    PrimaryPreferred,
    Secondary,
    SecondaryPreferred,
    Nearest,
}

/// The id that no cursor has.
const NO_CURSOR: i64 = 0;

/// MongoDB's limit of a namespace's length, in bytes.
const MAX_NAMESPACE_LENGTH: usize = 255;

const MAX_CURSORS_PER_COMMAND: usize = 10_000;

/// Commands that only read, and so follow their read preference. A mongos sends all others to the primary.
const READ_COMMANDS: [&str; 12] = [
    "aggregate",
    "collStats",
    "count",
    "dbStats",
    "distinct",
    "explain",
    "find",
    "geoSearch",
    "listCollections",
    "listDatabases",
    "listIndexes",
    "ping",
];

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Target {
    /// A host that takes writes.
    #[default]
    Writable,
    /// A host that the read preference allows.
    Read(ReadPreference),
    Host(usize),
    /// This host, or a writable one if it is down.
    HostIfUp(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CursorReference {
    pub client_id: i64,
    pub host_id: i64,
    /// Where the id is in the body.
    pub at: usize,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Route {
    pub target: Target,
    pub cursors: Vec<CursorReference>,
    /// The cursors that it closes, by the ids that the client knows.
    pub closed: BTreeSet<i64>,
    /// Hosts to try if that host does not know the cursor, in reverse order: another Poolhouse may have opened it.
    pub next_hosts: Vec<usize>,
    /// The server may delay the reply until other clients write.
    pub awaits_data: bool,
    pub requirements: Option<Arc<ReadRequirements>>,
}

impl MongoDb {
    /// Where a command goes. A `killCursors` removes its cursors from the table, and adds cleanup tasks for those at
    /// other hosts.
    pub(crate) fn make_route(
        &self,
        user: &Arc<str>,
        command: &Command<'_>,
        out: &mut Outbox,
    ) -> Result<Route, Failure> {
        let cursors = cursors_of(command)?;
        match (command.name, cursors.first()) {
            ("getMore", Some(cursor)) => self.route_get_more(user, command, *cursor),
            (_, Some((first, _))) => Ok(self.route_kill_cursors(user, command, (*first, &cursors), out)),
            (_, None) => {
                let target = self.target_without_cursor(user, command)?;
                let requirements = if let Target::Read(_) = target { requirements(command)? } else { None };
                Ok(Route { target, requirements, ..Route::default() })
            }
        }
    }

    /// A `getMore` goes to the host of its cursor. If that is unknown, another Poolhouse may have relayed the command
    /// that opened the cursor: the hosts are asked one after the other.
    fn route_get_more(
        &self,
        user: &Arc<str>,
        command: &Command<'_>,
        (client_id, at): (i64, usize),
    ) -> Result<Route, Failure> {
        let location = self.cursors.find(user, client_id);
        if self.cursors.belongs_to_another_user(user, client_id) {
            return Err(Failure::new(Code::CursorNotFound, format!("cursor id {client_id} not found")));
        }
        // Drivers send `maxTimeMS` with a `getMore` of an `awaitData` cursor.
        let timed = || command.body.get("maxTimeMS").ok().flatten().is_some();
        let awaits_data = location.map_or_else(timed, |location| location.awaits_data);
        let cursors =
            vec![CursorReference { client_id, host_id: location.map_or(client_id, |location| location.id), at }];
        let host = location.map(|location| location.host);
        let mut next_hosts = Vec::new();
        if host.is_none() {
            next_hosts = self.topology().readable_hosts();
            next_hosts.reverse();
        }
        let target = host.or_else(|| next_hosts.pop()).map_or(Target::Writable, Target::Host);
        Ok(Route { target, cursors, next_hosts, awaits_data, ..Route::default() })
    }

    /// A `killCursors` goes to the host of its first cursor. Cleanup tasks close the cursors at other hosts.
    fn route_kill_cursors(
        &self,
        user: &Arc<str>,
        command: &Command<'_>,
        (first, cursors): (i64, &[(i64, usize)]),
        out: &mut Outbox,
    ) -> Route {
        let location = |client_id| self.cursors.find(user, client_id);
        let host = location(first).map(|location| location.host);
        let known = |(client_id, at): &(i64, usize)| {
            let (client_id, at) = (*client_id, *at);
            let own = match location(client_id) {
                Some(location) if Some(location.host) == host => location.id,
                // The id may belong to another cursor at this host.
                Some(_) => NO_CURSOR,
                None if self.cursors.belongs_to_another_user(user, client_id) => NO_CURSOR,
                None => client_id,
            };
            CursorReference { client_id, host_id: own, at }
        };
        let mut named = cursors.iter().map(known).collect::<Vec<_>>();
        let mut elsewhere = BTreeMap::<usize, Vec<i64>>::new();
        for location in named.iter().filter_map(|named| location(named.client_id)) {
            if Some(location.host) != host {
                elsewhere.entry(location.host).or_default().push(location.id);
            }
        }
        for (host, cursors) in elsewhere {
            if let Some(of) = namespace_of(command) {
                self.add_cleanup_tasks(user, host, CleanupTask::kill(&of, &cursors), out);
            }
        }
        named.iter().for_each(|named| self.cursors.remove(user, named.client_id));
        let closed = named.iter().map(|named| named.client_id).collect();
        named.retain(|named| named.client_id != named.host_id);
        let target = host.map_or(Target::Writable, Target::Host);
        Route { target, cursors: named, closed, ..Route::default() }
    }

    /// Where a command goes that names no cursor.
    fn target_without_cursor(&self, user: &Arc<str>, command: &Command<'_>) -> Result<Target, Failure> {
        let key = command.transaction_id();
        let begun = || key.and_then(|id| self.transactions.host(&(Arc::clone(user), id.session), id.number));
        Ok(match (command.transaction, preference(command)) {
            (Transaction::None | Transaction::RetryableWrite, Some(preference)) => Target::Read(preference),
            (Transaction::None | Transaction::RetryableWrite | Transaction::Starts, _) => Target::Writable,
            // A retried commit goes to the current primary, which knows the outcome.
            (Transaction::Commits, _) if !self.topology().is_sharded() => Target::Writable,
            // With a recovery token any mongos can find the outcome, but the mongos of the transaction need not look
            // for it.
            (Transaction::Commits, _) if has_recovery_token(command) => {
                begun().map_or(Target::Writable, Target::HostIfUp)
            }
            (Transaction::Commits | Transaction::Aborts, _) => begun().map_or(Target::Writable, Target::Host),
            (Transaction::Continues, _) => match begun() {
                Some(host) if self.topology().has_lost_transactions(host) => return Err(Failure::primary_changed()),
                begun => begun.map_or(Target::Writable, Target::Host),
            },
        })
    }
}

/// Whether a commit has a `recoveryToken`, with which any mongos can find the outcome.
fn has_recovery_token(command: &Command<'_>) -> bool {
    matches!(command.body.get("recoveryToken"), Ok(Some(Value::Document(_))))
}

/// What a read preference requires beside its mode.
fn requirements(command: &Command<'_>) -> Result<Option<Arc<ReadRequirements>>, Failure> {
    let Some(preference) = command.body.get("$readPreference")?.and_then(Value::document) else { return Ok(None) };
    let (tags, staleness) = (tag_sets(preference)?, staleness(preference)?);
    if let Some(seconds) = staleness.filter(|seconds| *seconds < MIN_MAX_STALENESS_SECONDS) {
        let least = MIN_MAX_STALENESS_SECONDS;
        let text = format!("Poolhouse: maxStalenessSeconds is {seconds}, and must be {least} at least");
        return Err(Failure::new(Code::MaxStalenessOutOfRange, text));
    }
    let max_staleness = staleness.map(|seconds| Duration::from_secs(seconds.unsigned_abs()));
    let requirements = ReadRequirements { tags, max_staleness };
    Ok((requirements != ReadRequirements::default()).then(|| requirements.into()))
}

/// `maxStalenessSeconds`, if it is set.
fn staleness(preference: Document<'_>) -> Result<Option<i64>, Malformed> {
    match preference.get_nested("maxStalenessSeconds")? {
        None | Some(Value::Null) => Ok(None),
        Some(seconds) => match seconds.integer() {
            // Drivers send these for "no maximum".
            Some(-1 | 0) => Ok(None),
            Some(seconds) => Ok(Some(seconds)),
            None => Err(Malformed("`maxStalenessSeconds` is no whole number")),
        },
    }
}

/// The namespace of a command. Cursors of a command about a whole database have MongoDB's pseudo-collections.
pub fn namespace_of(command: &Command<'_>) -> Option<Namespace> {
    let name = match (command.name, command.subject) {
        (_, Value::Text(name)) => name,
        ("aggregate", _) => "$cmd.aggregate",
        ("listCollections", _) => "$cmd.listCollections",
        ("bulkWrite", _) => "$cmd.bulkWrite",
        _ => return None,
    };
    if name.len() + command.database.len() > MAX_NAMESPACE_LENGTH {
        return None;
    }
    Some(Namespace { database: command.database.into(), name: name.into() })
}

fn tag_sets(preference: Document<'_>) -> Result<Vec<TagSet>, Malformed> {
    let Some(sets) = preference.get_nested("tags")?.and_then(Value::array) else { return Ok(Vec::new()) };
    let set = |element: Element<'_>| element.value()?.document().map_or(Ok(TagSet::new()), tags::read);
    let mut read = Vec::new();
    for element in sets.elements() {
        if read.len() == tags::MAX_TAG_SETS {
            return Err(Malformed("too many sets of tags"));
        }
        read.push(element.and_then(set)?);
    }
    Ok(read)
}

/// The ids of the cursors that a command names, and their places in its body.
fn cursors_of(command: &Command<'_>) -> Result<Vec<(i64, usize)>, Malformed> {
    const WRONG: Malformed = Malformed("the id of a cursor is a number of 64 bits");
    match (command.name, command.subject) {
        ("getMore", Value::Int64(id)) => Ok(vec![(id, command.subject_at)]),
        ("getMore", _) => Err(WRONG),
        ("killCursors", _) => {
            let mut found = Vec::new();
            for element in command.body.elements() {
                let element = element?;
                if let ("cursors", Value::Array(ids)) = (element.name, element.value()?) {
                    for id in ids.elements() {
                        let id = id?;
                        let Value::Int64(client_id) = id.value()? else { return Err(WRONG) };
                        if found.len() == MAX_CURSORS_PER_COMMAND {
                            return Err(Malformed("a command about too many cursors"));
                        }
                        found.push((client_id, element.at + id.at));
                    }
                }
            }
            Ok(found)
        }
        _ => Ok(Vec::new()),
    }
}

fn preference(command: &Command<'_>) -> Option<ReadPreference> {
    let preference = match command.preference? {
        "primaryPreferred" => ReadPreference::PrimaryPreferred,
        "secondary" => ReadPreference::Secondary,
        "secondaryPreferred" => ReadPreference::SecondaryPreferred,
        "nearest" => ReadPreference::Nearest,
        _ => return None,
    };
    (READ_COMMANDS.contains(&command.name) && !writes_its_result(command)).then_some(preference)
}

/// MongoDB's limit of stages in a pipeline (`internalPipelineLengthLimit`).
const MAX_STAGES: usize = 1_000;

/// Whether an aggregation writes its result to a collection. So does, for routing, one with too many stages: MongoDB
/// refuses it.
fn writes_its_result(command: &Command<'_>) -> bool {
    let pipeline = command.body.get("pipeline").ok().flatten().and_then(Value::array);
    let stages = pipeline.into_iter().flat_map(Document::elements).take(MAX_STAGES + 1).flatten();
    let (count, last) = stages.fold((0, None), |(count, _), stage| (count + 1, Some(stage)));
    if count > MAX_STAGES {
        return true;
    }
    let stage = last.and_then(|last| last.value().ok()?.document()?.elements().next()?.ok());
    stage.is_some_and(|stage| matches!(stage.name, "$out" | "$merge"))
}
