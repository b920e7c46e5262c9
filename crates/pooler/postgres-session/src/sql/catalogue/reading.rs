//! What a server says of its database's catalogue, and which of it could touch a session.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    Asked,
    question::{HARMFUL_IF_CALLED, MAX_AT_ONCE, Part, question, question_of_part},
};
use crate::{
    sql::{
        harmless,
        scan::{for_each_name, scan, scan_procedure},
        suspects::{Findings, Suspects},
    },
    wire::message::read_row,
};

/// Most custom parameters of functions that are remembered.
const MAX_CUSTOM: usize = 64;

/// Most harmless functions that are remembered; a call of another is a call of an unknown one.
const MAX_FUNCTIONS: usize = 50_000;

/// Most functions that people are told of.
const MAX_TOLD_FUNCTIONS: usize = 100;

const UNREADABLE: &str = "its language cannot be read";

/// Extensions of PostgreSQL's own distribution whose functions leave nothing behind in a session.
const TRUSTED: &[&str] = &[
    "adminpack",
    "amcheck",
    "autoinc",
    "bloom",
    "btree_gin",
    "btree_gist",
    "citext",
    "cube",
    "dict_int",
    "dict_xsyn",
    "earthdistance",
    "file_fdw",
    "fuzzystrmatch",
    "hstore",
    "insert_username",
    "intagg",
    "intarray",
    "lo",
    "ltree",
    "moddatetime",
    "old_snapshot",
    "pageinspect",
    "pg_buffercache",
    "pg_freespacemap",
    "pg_logicalinspect",
    "pg_overexplain",
    "pg_prewarm",
    "pg_stat_statements",
    "pg_surgery",
    "pg_trgm",
    "pg_visibility",
    "pg_walinspect",
    "pgcrypto",
    "pgrowlocks",
    "pgstattuple",
    "plpgsql",
    "refint",
    "seg",
    "sslinfo",
    "tcn",
    "tsm_system_rows",
    "tsm_system_time",
    "unaccent",
    "uuid-ossp",
];

struct Function {
    schema: Box<[u8]>,
    name: Box<[u8]>,
    language: Box<[u8]>,
    source: Box<[u8]>,
    /// Its SET clauses, one on each line.
    set_clauses: Box<[u8]>,
    /// The extension that the function belongs to; empty if to none.
    extension: Box<[u8]>,
    /// Triggers call it.
    fires: bool,
    /// The function can be called without a parenthesis, like a column.
    by_notation: bool,
}

/// The name of a function that a stored expression calls, and where that expression is.
type ExpressionCall = (Box<[u8]>, Box<[u8]>);

/// A call by a function whose body is stored as an expression, or by an aggregate.
struct StoredCall {
    schema: Box<[u8]>,
    caller: Box<[u8]>,
    called: Box<[u8]>,
}

pub(crate) struct Reading {
    /// Held until the answer has come, or the server has gone.
    #[expect(dead_code, reason = "what matters is when it is dropped")]
    pub(super) asked: Asked,
    pub(super) mark: Box<[u8]>,
    pub(super) schema_version: u32,
    pub(super) trusted: Arc<[String]>,
    /// Nothing has changed since the last reading.
    pub(super) same: bool,
    /// The number of rows that matter.
    pub(super) count: usize,
    rows: Rows,
    /// The part that is asked for; `None` for the whole.
    part: Option<Part>,
    /// The last row of that part.
    last: Option<u32>,
    /// All parts were read: the query checks whether anything has changed meanwhile.
    verifies: bool,
}

#[derive(Default)]
struct Rows {
    functions: Vec<Function>,
    /// Functions that stored expressions call, and where.
    expressions: Vec<ExpressionCall>,
    /// Calls that no source shows.
    stored_calls: Vec<StoredCall>,
    /// A row was too long.
    unreadable: bool,
}

pub(super) struct Partial {
    /// The mark when the first part was asked for.
    mark: Box<[u8]>,
    pub(super) schema_version: u32,
    rows: Rows,
    /// The next part; `None` after the last.
    part: Option<Part>,
}

/// The result of an answer.
pub(super) enum Outcome {
    Same,
    Whole,
    /// More is to be read.
    Partly(Partial),
}

/// What all rows of a reading come to: see [`Contents`](super::Contents), and for the flags the methods of
/// [`Catalogue`](super::Catalogue).
#[derive(Default)]
pub(super) struct Judged {
    pub(super) mark: Box<[u8]>,
    pub(super) functions: HashSet<Box<[u8]>>,
    pub(super) irreversible: HashSet<Box<[u8]>>,
    pub(super) irreversible_unseen: bool,
    pub(super) by_notation: HashSet<Box<[u8]>>,
    pub(super) custom: Vec<Box<[u8]>>,
    pub(super) suspicious: Vec<String>,
    pub(super) prepares: bool,
    pub(super) keeps_plans: bool,
}

impl Reading {
    pub(super) fn new(asked: Asked, mark: Box<[u8]>, schema_version: u32, trusted: Arc<[String]>) -> Self {
        let (rows, part) = (Rows::default(), None);
        Self { asked, mark, schema_version, trusted, same: false, count: 0, rows, part, last: None, verifies: false }
    }

    /// Continues what was read so far.
    pub(super) fn continued(asked: Asked, so_far: Partial, trusted: Arc<[String]>) -> Self {
        let Partial { mark, schema_version, rows, part } = so_far;
        Self { rows, part, verifies: part.is_none(), ..Self::new(asked, mark, schema_version, trusted) }
    }

    pub(crate) fn question(&self, version: u32) -> Vec<u8> {
        match self.part {
            Some(part) => question_of_part(version, part),
            None => question(version, &self.mark),
        }
    }

    pub(super) fn is_large(&self) -> bool {
        self.count > MAX_AT_ONCE
    }

    /// The server has answered. Returns what to do with it.
    pub(super) fn take_outcome(&mut self) -> Outcome {
        let (mark, schema_version) = (self.mark.clone(), self.schema_version);
        match self.part {
            Some(part) => Outcome::Partly(Partial {
                mark,
                schema_version,
                rows: std::mem::take(&mut self.rows),
                part: part.next(self.last),
            }),
            None if self.same && !self.verifies => Outcome::Same,
            None if !self.same && self.is_large() => {
                Outcome::Partly(Partial { mark, schema_version, rows: Rows::default(), part: Some(Part::FIRST) })
            }
            None => Outcome::Whole,
        }
    }

    pub(crate) fn take_row(&mut self, body: &[u8]) -> Option<()> {
        let [kind, schema, name, language, source, set, extension] = read_row(body)?.map(Option::unwrap_or_default);
        match kind {
            b"m" => {
                self.same = *self.mark == *name;
                self.mark = name.into();
                self.count = std::str::from_utf8(source).ok()?.parse().ok()?;
                if !self.same {
                    // What was read of it by parts is of another time.
                    self.rows = Rows::default();
                }
            }
            b"b" => self.last = std::str::from_utf8(name).ok().and_then(|oid| oid.parse().ok()),
            b"f" | b"n" | b"t" => self.rows.functions.push(Function {
                fires: kind == b"t",
                by_notation: kind == b"n",
                schema: schema.into(),
                name: name.into(),
                language: language.into(),
                source: source.into(),
                set_clauses: set.into(),
                extension: extension.into(),
            }),
            b"c" => self.rows.stored_calls.push(StoredCall {
                schema: schema.into(),
                called: name.into(),
                caller: source.into(),
            }),
            // Of a function one place is told.
            b"x" if self.rows.expressions.iter().any(|(known, _)| **known == *name && !name.contains(&b' ')) => {}
            b"x" => self.rows.expressions.push((name.into(), source.into())),
            _ => return None,
        }
        Some(())
    }

    /// A row that is too long to be kept.
    pub(crate) fn note_long_row(&mut self) {
        self.rows.unreadable = true;
    }

    pub(super) fn judge(self) -> Judged {
        let keeps_plans = self.rows.unreadable || self.rows.functions.iter().any(Function::keeps_plans);
        let mut judged = Judged { mark: self.mark.clone(), keeps_plans, ..Judged::default() };
        let mut callers: Callers = HashMap::new();
        for call in self.rows.stored_calls.iter().filter(|call| !is_listed(&self.trusted, &call.schema, &call.caller)) {
            if harmless::is_irreversible(&call.called) {
                judged.irreversible.insert(call.caller.clone());
            }
            callers.entry(call.called.clone()).or_default().push(call.caller.clone());
        }
        self.judge_functions(&mut judged, &mut callers);
        self.follow_callers(&mut judged, callers);
        self.judge_expressions(&mut judged);
        if self.rows.unreadable {
            judged.suspicious.push("a function that is too long to be read".to_owned());
            judged.prepares = true;
        }
        // A name that one harmless function has may be another's, too.
        if !judged.suspicious.is_empty() {
            judged.functions.clear();
        }
        judged.suspicious.sort();
        judged.suspicious.truncate(MAX_TOLD_FUNCTIONS);
        judged
    }

    /// Judges each function by its source, its extension, and its calls.
    fn judge_functions(&self, judged: &mut Judged, callers: &mut Callers) {
        // What calls one of these is judged by them.
        let names: HashSet<Box<[u8]>> = self
            .rows
            .functions
            .iter()
            .filter(|function| !in_list(HARMFUL_IF_CALLED, &function.extension))
            .map(|function| function.name.clone())
            .collect();
        let is_known = |name: &[u8]| names.contains(name) || harmless::is_harmless(name);
        // Aggregates are called, too.
        let own: HashSet<&[u8]> = self
            .rows
            .functions
            .iter()
            .map(|function| &*function.name)
            .chain(self.rows.stored_calls.iter().map(|call| &*call.caller))
            .collect();
        for function in &self.rows.functions {
            let to_be_called = in_list(HARMFUL_IF_CALLED, &function.extension);
            if to_be_called && !function.is_readable() {
                continue;
            }
            let why = if function.is_trusted(&self.trusted) {
                None
            } else if in_list(TRUSTED, &function.extension) && !function.is_readable() {
                function.judge_set_clauses(None, judged)
            } else {
                function.judge(&is_known, &own, judged, callers)
            };
            // Functions that cannot be read are many, and some have the names of columns.
            if why.is_some_and(|why| why != UNREADABLE) && function.by_notation {
                judged.by_notation.insert(function.name.clone());
            }
            match why {
                None if !to_be_called && judged.functions.len() < MAX_FUNCTIONS => {
                    _ = judged.functions.insert(function.name.clone())
                }
                None => {}
                Some(why) => judged.suspicious.push(format!("{} ({why})", function.full_name())),
            }
        }
    }

    /// A function that calls an irreversible one, even through others, is irreversible, too.
    fn follow_callers(&self, judged: &mut Judged, mut callers: Callers) {
        let mut found: Vec<Box<[u8]>> = judged.irreversible.iter().cloned().collect();
        while let Some(name) = found.pop() {
            let by = callers.remove(&name).unwrap_or_default();
            found.extend(by.into_iter().filter(|caller| judged.irreversible.insert(caller.clone())));
        }
        let by_notation = self.rows.functions.iter().filter(|function| function.by_notation);
        let irreversible = by_notation.filter(|function| judged.irreversible.contains(&function.name));
        judged.by_notation.extend(irreversible.map(|function| function.name.clone()));
        judged.irreversible_unseen =
            self.rows.functions.iter().any(|function| function.fires && judged.irreversible.contains(&function.name))
                || self.rows.expressions.iter().any(|(name, _)| harmless::is_irreversible(name));
    }

    /// Judges the calls of defaults, checks, policies and the like.
    fn judge_expressions(&self, judged: &mut Judged) {
        for (name, place) in &self.rows.expressions {
            let asks = matches!(&**name, b"currval" | b"lastval");
            if asks || !harmless::is_harmless(name) {
                let place = String::from_utf8_lossy(place);
                judged.suspicious.push(format!("{place} (calls {})", String::from_utf8_lossy(name)));
                judged.prepares |= !asks;
            }
        }
    }
}

type Callers = HashMap<Box<[u8]>, Vec<Box<[u8]>>>;

fn in_list(list: &[&str], name: &[u8]) -> bool {
    list.iter().any(|known| known.as_bytes() == name)
}

fn full_name(schema: &[u8], name: &[u8]) -> String {
    format!("{}.{}", String::from_utf8_lossy(schema), String::from_utf8_lossy(name))
}

/// Whether the configuration trusts a function by its name or its schema.
fn is_listed(trusted: &[String], schema: &[u8], name: &[u8]) -> bool {
    let full = full_name(schema, name);
    trusted.iter().any(|entry| match entry.strip_suffix(".*") {
        Some(listed) => listed.as_bytes() == schema,
        None => *entry == full,
    })
}

impl Function {
    /// Whether sessions keep plans for it: for SQL, from PostgreSQL 18 on.
    fn keeps_plans(&self) -> bool {
        *self.language != *b"c" && *self.language != *b"internal"
    }

    fn full_name(&self) -> String {
        full_name(&self.schema, &self.name)
    }

    /// Whether the configuration trusts the function.
    fn is_trusted(&self, trusted: &[String]) -> bool {
        let extension = |entry: &String| entry.strip_prefix("extension:").map(str::as_bytes) == Some(&*self.extension);
        trusted.iter().any(extension) || is_listed(trusted, &self.schema, &self.name)
    }

    /// The source of the function can be read. People add such functions to extensions, too.
    fn is_readable(&self) -> bool {
        matches!(&*self.language, b"sql" | b"plpgsql")
    }

    /// Some SQL functions of xml2 call C functions of the same name.
    fn calls_its_own(&self, name: &[u8]) -> bool {
        *self.extension == *b"xml2" && matches!(name, b"xpath_list" | b"xpath_nodeset")
    }

    /// Why it is not harmless; `None` if it is. Adds it to the `callers` of the functions that it calls.
    fn judge(
        &self,
        is_known: &dyn Fn(&[u8]) -> bool,
        own: &HashSet<&[u8]>,
        judged: &mut Judged,
        callers: &mut Callers,
    ) -> Option<&'static str> {
        let findings = match &*self.language {
            b"sql" => scan(&self.source),
            b"plpgsql" => scan_procedure(&self.source),
            _ => {
                judged.prepares = true;
                self.judge_set_clauses(None, judged);
                return Some(UNREADABLE);
            }
        };
        for name in &findings.custom {
            if judged.custom.len() < MAX_CUSTOM && !judged.custom.contains(name) {
                judged.custom.push(name.clone());
            }
        }
        if findings.suspects.intersects(Suspects::IRREVERSIBLE) {
            judged.irreversible.insert(self.name.clone());
        } else {
            // Whether it looks like a call or not.
            for_each_name(&self.source, |name| {
                if own.contains(name) && *name != *self.name {
                    callers.entry(name.into()).or_default().push(self.name.clone());
                }
            });
        }
        let of_set = self.judge_set_clauses(Some(&findings), judged);
        let why = why_not(&findings, &|name| is_known(name) || self.calls_its_own(name)).or(of_set);
        if why.is_some() {
            judged.prepares |=
                findings.suspects.intersects(Suspects::OPAQUE.union(Suspects::PREPARE).union(Suspects::DEALLOCATE));
        }
        why
    }

    /// Judges SET clauses, which hold for one call: objects created by it may be temporary, texts may be read
    /// otherwise, and a seed stays. `findings`: of its source, if that can be read.
    fn judge_set_clauses(&self, findings: Option<&Findings>, judged: &mut Judged) -> Option<&'static str> {
        let set = self.set_clauses.to_ascii_lowercase();
        let value = |name: &[u8]| set.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name));
        if value(b"seed=").is_some() {
            judged.irreversible.insert(self.name.clone());
            return Some("it sets the seed of random numbers");
        }
        if value(b"standard_conforming_strings=").is_some() {
            judged.prepares = true;
            if findings.is_some_and(|findings| findings.backslash) {
                judged.irreversible.insert(self.name.clone());
            }
            return Some("it changes how texts are read");
        }
        let path = value(b"search_path=").unwrap_or_default().trim_ascii_start();
        let temporary = path.strip_prefix(b"\"").unwrap_or(path).starts_with(b"pg_temp");
        temporary.then_some("its search_path begins with pg_temp")
    }
}

fn why_not(findings: &Findings, is_known: &dyn Fn(&[u8]) -> bool) -> Option<&'static str> {
    let any = |suspects| findings.suspects.intersects(suspects);
    if any(Suspects::OPAQUE.union(Suspects::DDL)) {
        Some("it runs what cannot be read")
    } else if any(Suspects::SETTINGS.union(Suspects::UNKNOWN_NAME)) {
        Some("it sets parameters of the session")
    } else if any(Suspects::ENCODING) {
        // Perhaps for its transaction only, but what comes behind it is read before that is known.
        Some("it changes how texts are read")
    } else if any(Suspects::TEMPORARY) {
        Some("it uses temporary objects")
    } else if any(Suspects::LOCK) {
        Some("it takes advisory locks of the session")
    } else if any(Suspects::LISTEN
        .union(Suspects::CURSOR)
        .union(Suspects::PREPARE)
        .union(Suspects::DEALLOCATE)
        .union(Suspects::IRREVERSIBLE))
    {
        Some("it leaves something behind in the session")
    } else if any(Suspects::LAST_VALUE) {
        Some("it asks for the last value of a sequence")
    } else if !findings.calls.iter().all(|name| is_known(name)) {
        Some("it calls what is not known to be harmless")
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
