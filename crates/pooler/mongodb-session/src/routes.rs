//! Where a command goes: to a host that takes writes, to one that its read preference allows, or to the one that has
//! its cursor or its transaction.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use seam::Outbox;

use crate::{
    MongoDb,
    bson::{Document, Element, Malformed, Value},
    chores::{Chore, Collection},
    command::{Command, Transaction},
    errors::{Code, Failure},
    selection::{LEAST_STALENESS, Wanted},
    tags::{self, TagSet},
};

/// The mode of a read preference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preference {
    PrimaryPreferred,
    Secondary,
    SecondaryPreferred,
    Nearest,
}

/// The id that no cursor has.
const NO_CURSOR: i64 = 0;

/// Bytes of a database's and a collection's name together, as MongoDB has it.
const MAX_NAME: usize = 255;

/// Cursors that one command may be about.
const MAX_NAMED: usize = 10_000;

/// Commands that only read, which may go where their read preference says. A mongos sends all others to the primary,
/// whatever they say.
const READS: [&str; 12] = [
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Goal {
    /// To a host that takes writes.
    Writable,
    /// To one that may be behind.
    Read(Preference),
    Host(usize),
    /// To this one, or to another that takes writes if this one is gone.
    HostIfThere(usize),
}

/// What a command says of a cursor: the id that the client knows, and the one that its host knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    pub told: i64,
    pub own: i64,
    /// Where in the body it is.
    pub at: usize,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    pub goal: Goal,
    /// The cursors that it is about.
    pub cursors: Vec<Named>,
    /// Those that it closes, by what the client knows.
    pub closed: BTreeSet<i64>,
    /// Where it goes if that host does not know its cursor, the last one first: another Poolhouse may have opened it.
    pub next_hosts: Vec<usize>,
    /// It waits for what others may write.
    pub waits: bool,
    /// What a host must have or be beside.
    pub wanted: Option<Arc<Wanted>>,
}

impl Route {
    fn to(goal: Goal) -> Self {
        Self { goal, cursors: Vec::new(), closed: BTreeSet::new(), next_hosts: Vec::new(), waits: false, wanted: None }
    }
}

impl MongoDb {
    /// Where a user's command goes.
    pub(crate) fn goal(&self, user: &Arc<str>, command: &Command<'_>, out: &mut Outbox) -> Result<Route, Failure> {
        let cursors =
            named(command).map_err(|error| Failure::new(Code::FailedToParse, format!("Poolhouse: {error}")))?;
        match (command.name, cursors.first()) {
            ("getMore", Some(cursor)) => self.goal_of_get_more(user, command, *cursor),
            (_, Some((first, _))) => Ok(self.goal_of_kill_cursors(user, command, (*first, &cursors), out)),
            (_, None) => {
                let goal = self.goal_without_cursor(user, command)?;
                let wanted = if let Goal::Read(_) = goal { wanted(command)? } else { None };
                Ok(Route { wanted, ..Route::to(goal) })
            }
        }
    }

    /// A `getMore` goes to the host that has opened the cursor. Where that is not known, another Poolhouse may have
    /// relayed the command that opened it: one host after the other is asked.
    fn goal_of_get_more(
        &self,
        user: &Arc<str>,
        command: &Command<'_>,
        (told, at): (i64, usize),
    ) -> Result<Route, Failure> {
        let place = self.cursors.find(user, told);
        if self.cursors.is_anothers(user, told) {
            return Err(Failure::new(Code::CursorNotFound, format!("cursor id {told} not found")));
        }
        // Drivers give `maxTimeMS` to a `getMore` that waits for data.
        let timed = || command.body.get("maxTimeMS").ok().flatten().is_some();
        let waits = place.map_or_else(timed, |place| place.waits);
        let cursors = vec![Named { told, own: place.map_or(told, |place| place.id), at }];
        let host = place.map(|place| place.host);
        let mut next_hosts = Vec::new();
        if host.is_none() {
            next_hosts = self.topology().all_read_from();
            next_hosts.reverse();
        }
        let goal = host.or_else(|| next_hosts.pop()).map_or(Goal::Writable, Goal::Host);
        Ok(Route { cursors, next_hosts, waits, ..Route::to(goal) })
    }

    /// A `killCursors` goes to the host that has opened its first cursor, and the answer tells of those at that host.
    /// Cleanup tasks close the cursors at other hosts.
    fn goal_of_kill_cursors(
        &self,
        user: &Arc<str>,
        command: &Command<'_>,
        (first, cursors): (i64, &[(i64, usize)]),
        out: &mut Outbox,
    ) -> Route {
        let place = |told| self.cursors.find(user, told);
        let host = place(first).map(|place| place.host);
        let known = |(told, at): &(i64, usize)| {
            let (told, at) = (*told, *at);
            let own = match place(told) {
                Some(place) if Some(place.host) == host => place.id,
                // The command reaches one host, and no other's cursor may have this number there.
                Some(_) => NO_CURSOR,
                None if self.cursors.is_anothers(user, told) => NO_CURSOR,
                None => told,
            };
            Named { told, own, at }
        };
        let mut named = cursors.iter().map(known).collect::<Vec<_>>();
        let mut elsewhere = BTreeMap::<usize, Vec<i64>>::new();
        for place in named.iter().filter_map(|named| place(named.told)) {
            if Some(place.host) != host {
                elsewhere.entry(place.host).or_default().push(place.id);
            }
        }
        for (host, cursors) in elsewhere {
            if let Some(of) = collection(command) {
                self.add_chores(user, host, Chore::kill(&of, &cursors), out);
            }
        }
        named.iter().for_each(|named| self.cursors.closed(user, named.told));
        let closed = named.iter().map(|named| named.told).collect();
        named.retain(|named| named.told != named.own);
        Route { cursors: named, closed, ..Route::to(host.map_or(Goal::Writable, Goal::Host)) }
    }

    /// The same of a command that is about no cursor.
    fn goal_without_cursor(&self, user: &Arc<str>, command: &Command<'_>) -> Result<Goal, Failure> {
        let key = command.transaction_id();
        let begun = || key.and_then(|id| self.transactions.host(&(Arc::clone(user), id.session), id.number));
        Ok(match (command.transaction, preference(command)) {
            (Transaction::None | Transaction::RetryableWrite, Some(preference)) => Goal::Read(preference),
            (Transaction::None | Transaction::RetryableWrite | Transaction::Starts, _) => Goal::Writable,
            // A commit may be sent again, and then the present primary knows what became of it.
            (Transaction::Commits, _) if !self.topology().is_sharded() => Goal::Writable,
            // With the token any mongos finds out what became of it, but one that has the transaction need not.
            (Transaction::Commits, _) if recovers(command) => begun().map_or(Goal::Writable, Goal::HostIfThere),
            (Transaction::Commits | Transaction::Aborts, _) => begun().map_or(Goal::Writable, Goal::Host),
            (Transaction::Continues, _) => match begun() {
                Some(host) if self.topology().is_over_at(host) => return Err(Failure::of_old_primary()),
                begun => begun.map_or(Goal::Writable, Goal::Host),
            },
        })
    }
}

/// Whether a commit names the shard that knows what became of it, as a mongos has told it.
fn recovers(command: &Command<'_>) -> bool {
    matches!(command.body.get("recoveryToken"), Ok(Some(Value::Document(_))))
}

/// What a command's read preference says beside its mode.
fn wanted(command: &Command<'_>) -> Result<Option<Arc<Wanted>>, Failure> {
    let malformed = |error: Malformed| Failure::new(Code::FailedToParse, format!("Poolhouse: {error}"));
    let tags = tag_sets(command).map_err(malformed)?;
    let staleness = match staleness(command).map_err(malformed)? {
        None => None,
        Some(seconds) if seconds < LEAST_STALENESS => {
            let text = format!("Poolhouse: maxStalenessSeconds is {seconds}, and must be {LEAST_STALENESS} at least");
            return Err(Failure::new(Code::MaxStalenessOutOfRange, text));
        }
        Some(seconds) => Some(Duration::from_secs(seconds.unsigned_abs())),
    };
    let wanted = Wanted { tags, staleness };
    Ok((wanted != Wanted::default()).then(|| wanted.into()))
}

/// The seconds that a member may be behind, if that is said.
fn staleness(command: &Command<'_>) -> Result<Option<i64>, Malformed> {
    let preference = command.body.get("$readPreference")?.and_then(Value::document);
    match preference.map(|preference| preference.get_nested("maxStalenessSeconds")).transpose()?.flatten() {
        None | Some(Value::Null) => Ok(None),
        Some(seconds) => match seconds.integer() {
            // Drivers' ways to say that it does not matter.
            Some(-1 | 0) => Ok(None),
            Some(seconds) => Ok(Some(seconds)),
            None => Err(Malformed("`maxStalenessSeconds` is no whole number")),
        },
    }
}

/// The collection that a command is about, or the name that MongoDB gives in the place of one to the cursors of a
/// command about a whole database.
pub fn collection(command: &Command<'_>) -> Option<Collection> {
    let name = match (command.name, command.subject) {
        (_, Value::Text(name)) => name,
        ("aggregate", _) => "$cmd.aggregate",
        ("listCollections", _) => "$cmd.listCollections",
        ("bulkWrite", _) => "$cmd.bulkWrite",
        _ => return None,
    };
    if name.len() + command.database.len() > MAX_NAME {
        return None;
    }
    Some(Collection { database: command.database.into(), name: name.into() })
}

/// The sets of tags that a command's read preference names.
fn tag_sets(command: &Command<'_>) -> Result<Vec<TagSet>, Malformed> {
    let preference = command.body.get("$readPreference")?.and_then(Value::document);
    let Some(sets) =
        preference.map(|preference| preference.get_nested("tags")).transpose()?.flatten().and_then(Value::array)
    else {
        return Ok(Vec::new());
    };
    let set = |element: Element<'_>| element.value()?.document().map_or(Ok(TagSet::new()), tags::read);
    let mut read = Vec::new();
    for element in sets.elements() {
        if read.len() == tags::MAX_SETS {
            return Err(Malformed("too many sets of tags"));
        }
        read.push(element.and_then(set)?);
    }
    Ok(read)
}

/// The ids of the cursors that a command is about, and where in its body they are.
fn named(command: &Command<'_>) -> Result<Vec<(i64, usize)>, Malformed> {
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
                        let Value::Int64(told) = id.value()? else { return Err(WRONG) };
                        if found.len() == MAX_NAMED {
                            return Err(Malformed("a command about too many cursors"));
                        }
                        found.push((told, element.at + id.at));
                    }
                }
            }
            Ok(found)
        }
        _ => Ok(Vec::new()),
    }
}

fn preference(command: &Command<'_>) -> Option<Preference> {
    let preference = match command.preference? {
        "primaryPreferred" => Preference::PrimaryPreferred,
        "secondary" => Preference::Secondary,
        "secondaryPreferred" => Preference::SecondaryPreferred,
        "nearest" => Preference::Nearest,
        _ => return None,
    };
    (READS.contains(&command.name) && !writes_its_result(command)).then_some(preference)
}

/// Stages of a pipeline, as MongoDB has it (`internalPipelineLengthLimit`).
const MAX_STAGES: usize = 1_000;

/// An aggregation whose last stage puts what it finds into a collection. One of more stages than there may be counts as
/// such: it is refused.
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
