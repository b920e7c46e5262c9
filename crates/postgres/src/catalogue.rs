//! What a database could do to a session behind a text: functions that set settings, take locks, create temporary objects and the like,
//! and run because a trigger, a view, a rule, a default, an operator, a cast or a policy calls them. The catalogue is asked when a pool's
//! first server has logged in, again after DDL that was seen, and every ten seconds while the pool is used. It knows no session.
//!
//! A function counts as harmless if its source can be read (SQL or PL/pgSQL) and nothing but harmless is in it, or if it belongs to an
//! extension whose functions are known to be. Any other makes the database one whose servers are cleaned whenever they change hands,
//! unless `trusted_functions` names it.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

use crate::{
    harmless,
    message::take_u32,
    parameters::write_literal,
    scan::{scan, scan_procedure},
    suspects::{Findings, Suspects},
};

/// Milliseconds after which the catalogue is asked again.
const AGAIN_MS: u64 = 10_000;

/// Most names of parameters that functions set and that are remembered.
const MAX_CUSTOM: usize = 64;

/// Most harmless functions whose names are remembered; calling one of the others is a call of an unknown one.
const MAX_FUNCTIONS: usize = 50_000;

/// Most names of functions that are told to people.
const MAX_TOLD: usize = 100;

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

/// Extensions whose functions do harm only if they are called with the wrong arguments: to have them does none.
const TO_BE_CALLED: &[&str] = &["dblink", "isn", "postgres_fdw", "tablefunc", "xml2"];

/// The catalogues of all databases.
#[derive(Default)]
pub(crate) struct Catalogues {
    by_database: Mutex<HashMap<Arc<str>, Arc<Catalogue>>>,
    clock: Arc<AtomicU64>,
}

impl Catalogues {
    /// That of a database: pools of several users may share it.
    pub(crate) fn of(&self, database: &Arc<str>) -> Arc<Catalogue> {
        let mut by_database = self.by_database.lock().unwrap_or_else(PoisonError::into_inner);
        by_database.entry(database.clone()).or_insert_with(|| Arc::new(Catalogue::new(self.clock.clone()))).clone()
    }

    /// So many milliseconds have passed by the driver's clock.
    pub(crate) fn tell_time(&self, now_ms: u64) {
        self.clock.fetch_max(now_ms, Relaxed);
    }
}

/// What is known of one database.
pub(crate) struct Catalogue {
    /// The driver's clock, in milliseconds.
    clock: Arc<AtomicU64>,
    /// Raised by DDL: what was prepared before it may be stale.
    epoch: AtomicU32,
    /// Servers with DDL in a transaction that is not over.
    changing: AtomicU32,
    /// It was changed since it was read last.
    stale: AtomicBool,
    /// A server is being asked.
    asking: AtomicBool,
    /// When it is to be asked again, by the driver's clock.
    due_ms: AtomicU64,
    /// Nothing in it can touch a session behind a text.
    clean: AtomicBool,
    /// Something in it may prepare statements, or deallocate them.
    prepares: AtomicBool,
    known: RwLock<Known>,
}

impl Catalogue {
    fn new(clock: Arc<AtomicU64>) -> Self {
        Self {
            clock,
            epoch: AtomicU32::new(0),
            changing: AtomicU32::new(0),
            stale: AtomicBool::new(true),
            asking: AtomicBool::new(false),
            due_ms: AtomicU64::new(0),
            clean: AtomicBool::new(false),
            prepares: AtomicBool::new(true),
            known: RwLock::default(),
        }
    }

    fn now_ms(&self) -> u64 {
        self.clock.load(Relaxed)
    }
}

#[derive(Default)]
struct Known {
    /// Changes whenever the catalogue does.
    mark: Box<[u8]>,
    /// Names, in lower case, of functions that were found to be harmless.
    functions: HashSet<Box<[u8]>>,
    /// Names of functions after which a server cannot be cleaned.
    beyond: HashSet<Box<[u8]>>,
    /// Names of custom parameters that functions set.
    custom: Vec<Box<[u8]>>,
    /// What is not harmless, for people.
    suspicious: Vec<String>,
}

impl Catalogue {
    /// Nothing in the database can touch a session behind a text, as far as is known now.
    #[inline]
    pub(crate) fn is_clean(&self) -> bool {
        self.clean.load(SeqCst) && !self.stale.load(SeqCst) && self.changing.load(SeqCst) == 0
    }

    /// Something in the database may have to do with prepared statements.
    pub(crate) fn prepares(&self) -> bool {
        self.prepares.load(SeqCst) || self.stale.load(SeqCst) || self.changing.load(SeqCst) > 0
    }

    /// Whether all of these functions are known to leave nothing behind.
    pub(crate) fn knows(&self, calls: &[Box<[u8]>]) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        self.is_clean() && calls.iter().all(|name| known.functions.contains(name))
    }

    /// Whether one of these functions leaves behind what no SQL takes back.
    pub(crate) fn is_beyond_cleaning(&self, calls: &[Box<[u8]>]) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        calls.iter().any(|name| known.beyond.contains(name))
    }

    /// Names of custom parameters that functions set.
    pub(crate) fn custom(&self) -> Vec<Box<[u8]>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).custom.clone()
    }

    /// Statements prepared in an earlier epoch may be stale.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(SeqCst)
    }

    /// A transaction has its first DDL.
    pub(crate) fn change_begins(&self) {
        self.changing.fetch_add(1, SeqCst);
        self.epoch.fetch_add(1, SeqCst);
    }

    /// That transaction is over.
    pub(crate) fn change_ends(&self) {
        self.stale.store(true, SeqCst);
        self.changing.fetch_sub(1, SeqCst);
        self.epoch.fetch_add(1, SeqCst);
    }

    /// What a server is to be asked now, if one is.
    pub(crate) fn ask(this: &Arc<Self>, trusted: Arc<[String]>) -> Option<Reading> {
        let due = this.stale.load(SeqCst) || this.now_ms() >= this.due_ms.load(SeqCst);
        if !due || this.changing.load(SeqCst) > 0 || this.asking.swap(true, SeqCst) {
            return None;
        }
        let known = this.known.read().unwrap_or_else(PoisonError::into_inner);
        Some(Reading {
            asked: Asked(this.clone()),
            mark: known.mark.clone(),
            epoch: this.epoch(),
            trusted,
            same: false,
            functions: Vec::new(),
            expressions: Vec::new(),
            unreadable: false,
        })
    }

    /// The server was not able to answer: all that is not known is supposed. Returns what people are to be told, if that is new.
    pub(crate) fn failed(&self, why: &str) -> Option<Vec<String>> {
        let told = vec![format!("the catalogue cannot be read: {why}")];
        self.clean.store(false, SeqCst);
        self.due_ms.store(self.now_ms() + AGAIN_MS, SeqCst);
        self.stale.store(false, SeqCst);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.mark = Box::default();
        let news = (known.suspicious != told).then(|| told.clone());
        known.suspicious = told;
        news
    }

    /// The server has answered. Returns what people are to be told, if that is new.
    pub(crate) fn read(&self, reading: Reading) -> Option<Vec<String>> {
        let epoch = reading.epoch;
        let news = (!reading.same).then(|| self.take_over(reading)).flatten();
        self.due_ms.store(self.now_ms() + AGAIN_MS, SeqCst);
        // DDL that came meanwhile may not have been seen.
        if self.epoch() == epoch && self.changing.load(SeqCst) == 0 {
            self.stale.store(false, SeqCst);
        }
        news
    }

    fn take_over(&self, reading: Reading) -> Option<Vec<String>> {
        let judged = reading.judge();
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let first = known.mark.is_empty();
        let news = (known.suspicious != judged.suspicious || (first && !judged.suspicious.is_empty()))
            .then(|| judged.suspicious.clone());
        self.prepares.store(judged.prepares, SeqCst);
        self.clean.store(judged.suspicious.is_empty(), SeqCst);
        *known = Known {
            mark: judged.mark,
            functions: judged.functions,
            beyond: judged.beyond,
            custom: judged.custom,
            suspicious: judged.suspicious,
        };
        news
    }
}

/// A server is being asked, as long as this is there.
struct Asked(Arc<Catalogue>);

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.asking.store(false, SeqCst);
    }
}

/// A function of the database's own.
struct Function {
    schema: Box<[u8]>,
    name: Box<[u8]>,
    language: Box<[u8]>,
    source: Box<[u8]>,
    /// Its SET clauses.
    set: Box<[u8]>,
    /// The extension that it belongs to; empty if to none.
    extension: Box<[u8]>,
}

/// What a server has answered so far.
pub(crate) struct Reading {
    /// Held until the answer is there, or the server has gone.
    #[expect(dead_code, reason = "what matters is when it is dropped")]
    asked: Asked,
    mark: Box<[u8]>,
    epoch: u32,
    trusted: Arc<[String]>,
    /// Nothing has changed since it was read last.
    same: bool,
    functions: Vec<Function>,
    /// Functions that stored expressions call, and where.
    expressions: Vec<(Box<[u8]>, Box<[u8]>)>,
    /// Something was too long.
    unreadable: bool,
}

/// What follows from it.
struct Judged {
    mark: Box<[u8]>,
    functions: HashSet<Box<[u8]>>,
    beyond: HashSet<Box<[u8]>>,
    custom: Vec<Box<[u8]>>,
    suspicious: Vec<String>,
    prepares: bool,
}

impl Reading {
    /// The query, for a server of this version.
    pub(crate) fn question(&self, version: u32) -> Vec<u8> {
        question(version, &self.mark)
    }

    /// Takes the body of a DataRow; `None` if it is malformed.
    pub(crate) fn row(&mut self, body: &[u8]) -> Option<()> {
        let (_, mut rest) = body.split_first_chunk::<2>()?;
        let mut columns: [&[u8]; 7] = [b""; 7];
        for column in &mut columns {
            let length = take_u32(&mut rest)?;
            if length != u32::MAX {
                let (value, after) = rest.split_at_checked(length as usize)?;
                (*column, rest) = (value, after);
            }
        }
        let [kind, schema, name, language, source, set, extension] = columns;
        match kind {
            b"m" => {
                self.same = *self.mark == *name;
                self.mark = name.into();
            }
            b"f" => self.functions.push(Function {
                schema: schema.into(),
                name: name.into(),
                language: language.into(),
                source: source.into(),
                set: set.into(),
                extension: extension.into(),
            }),
            b"x" => self.expressions.push((name.into(), source.into())),
            _ => return None,
        }
        Some(())
    }

    /// A row that is too long to be kept.
    pub(crate) fn long_row(&mut self) {
        self.unreadable = true;
    }

    fn judge(self) -> Judged {
        let mut judged = Judged {
            mark: self.mark,
            functions: HashSet::new(),
            beyond: HashSet::new(),
            custom: Vec::new(),
            suspicious: Vec::new(),
            prepares: false,
        };
        // What calls one of these is judged by them.
        let names: HashSet<Box<[u8]>> = self
            .functions
            .iter()
            .filter(|function| !in_list(TO_BE_CALLED, &function.extension))
            .map(|function| function.name.to_ascii_lowercase().into())
            .collect();
        let is_known = |name: &[u8]| names.contains(name) || harmless::is_harmless(name);
        for function in &self.functions {
            if in_list(TO_BE_CALLED, &function.extension) {
                continue;
            }
            let trusted = in_list(TRUSTED, &function.extension) || function.is_trusted(&self.trusted);
            let why = if trusted { None } else { function.judge(&is_known, &mut judged) };
            match why {
                None if judged.functions.len() < MAX_FUNCTIONS => _ = judged.functions.insert(function.name.clone()),
                None => {}
                Some(why) => judged.suspicious.push(format!("{} ({why})", function.full_name())),
            }
        }
        for (name, place) in &self.expressions {
            if !harmless::is_harmless(name) {
                let place = String::from_utf8_lossy(place);
                judged.suspicious.push(format!("{place} (calls {})", String::from_utf8_lossy(name)));
                judged.prepares = true;
            }
        }
        if self.unreadable {
            judged.suspicious.push("a function that is too long to be read".to_owned());
            judged.prepares = true;
        }
        // A name that one harmless function has may be another's, too.
        if !judged.suspicious.is_empty() {
            judged.functions.clear();
        }
        judged.suspicious.sort();
        judged.suspicious.truncate(MAX_TOLD);
        judged
    }
}

fn in_list(list: &[&str], name: &[u8]) -> bool {
    list.iter().any(|known| known.as_bytes() == name)
}

impl Function {
    fn full_name(&self) -> String {
        format!("{}.{}", String::from_utf8_lossy(&self.schema), String::from_utf8_lossy(&self.name))
    }

    /// Whether the configuration says that it is harmless.
    fn is_trusted(&self, trusted: &[String]) -> bool {
        let full = self.full_name();
        trusted.iter().any(|entry| match entry.strip_prefix("extension:") {
            Some(extension) => extension.as_bytes() == &*self.extension,
            None => match entry.strip_suffix(".*") {
                Some(schema) => schema.as_bytes() == &*self.schema,
                None => *entry == full,
            },
        })
    }

    /// Why it is not harmless; `None` if it is.
    fn judge(&self, is_known: &dyn Fn(&[u8]) -> bool, judged: &mut Judged) -> Option<&'static str> {
        let findings = match &*self.language {
            b"sql" => scan(&self.source),
            b"plpgsql" => scan_procedure(&self.source),
            _ => {
                judged.prepares = true;
                return Some("its language cannot be read");
            }
        };
        for name in &findings.custom {
            if judged.custom.len() < MAX_CUSTOM && !judged.custom.contains(name) {
                judged.custom.push(name.clone());
            }
        }
        if findings.suspects.any(Suspects::BEYOND) {
            judged.beyond.insert(self.name.clone());
        }
        let why = why_not(&findings, is_known).or_else(|| self.judge_set());
        if why.is_some() {
            judged.prepares |= findings.suspects.any(Suspects::HIDDEN.and(Suspects::PREPARE).and(Suspects::FORGET));
        }
        why
    }

    /// SET clauses hold for the time of a call only; but what is created then may be temporary.
    fn judge_set(&self) -> Option<&'static str> {
        let set = self.set.to_ascii_lowercase();
        let temporary = set.split(|&byte| byte == b'\n').any(|line| {
            let value = line.strip_prefix(b"search_path=").unwrap_or_default().trim_ascii_start();
            value.strip_prefix(b"\"").unwrap_or(value).starts_with(b"pg_temp")
        });
        temporary.then_some("its search_path begins with pg_temp")
    }
}

fn why_not(findings: &Findings, is_known: &dyn Fn(&[u8]) -> bool) -> Option<&'static str> {
    let any = |suspects| findings.suspects.any(suspects);
    if any(Suspects::HIDDEN.and(Suspects::DDL)) {
        Some("it runs what cannot be read")
    } else if any(Suspects::SETTINGS.and(Suspects::UNNAMED)) {
        Some("it sets parameters of the session")
    } else if any(Suspects::TEMPORARY) {
        Some("it uses temporary objects")
    } else if any(Suspects::LOCK) {
        Some("it takes advisory locks of the session")
    } else if any(Suspects::LISTEN
        .and(Suspects::CURSOR)
        .and(Suspects::PREPARE)
        .and(Suspects::FORGET)
        .and(Suspects::BEYOND))
    {
        Some("it leaves something behind in the session")
    } else if !findings.calls.iter().all(|name| is_known(name)) {
        Some("it calls what is not known to be harmless")
    } else {
        None
    }
}

/// Columns of stored expressions, with the words for where they are.
const EXPRESSIONS: [&str; 10] = [
    "SELECT concat('statistics ', stxname), stxexprs::text FROM pg_statistic_ext WHERE oid >= 16384 AND stxexprs IS NOT NULL",
    "SELECT concat('rule of ', ev_class::regclass), concat(ev_action, ev_qual) FROM pg_rewrite WHERE oid >= 16384",
    "SELECT concat('default in ', adrelid::regclass), adbin::text FROM pg_attrdef WHERE oid >= 16384",
    "SELECT concat('constraint ', conname), conbin::text FROM pg_constraint WHERE oid >= 16384 AND conbin IS NOT NULL",
    "SELECT concat('policy ', polname), concat(polqual, polwithcheck) FROM pg_policy WHERE oid >= 16384",
    "SELECT concat('trigger ', tgname), tgqual::text FROM pg_trigger WHERE oid >= 16384 AND tgqual IS NOT NULL",
    "SELECT concat('index ', indexrelid::regclass), concat(indexprs, indpred) FROM pg_index WHERE indexrelid >= 16384 \
     AND (indexprs IS NOT NULL OR indpred IS NOT NULL)",
    "SELECT concat('type ', typname), typdefaultbin::text FROM pg_type WHERE oid >= 16384 AND typdefaultbin IS NOT NULL",
    "SELECT concat('function ', proname), proargdefaults::text FROM pg_proc WHERE oid >= 16384 AND proargdefaults IS NOT NULL",
    "SELECT concat('partitions of ', partrelid::regclass), partexprs::text FROM pg_partitioned_table WHERE partexprs IS NOT NULL",
];

/// Catalogues whose rows matter, and the columns that name them.
const MARKED: [(&str, &str); 15] = [
    ("pg_statistic_ext", "oid"),
    ("pg_proc", "oid"),
    ("pg_rewrite", "oid"),
    ("pg_attrdef", "oid"),
    ("pg_constraint", "oid"),
    ("pg_policy", "oid"),
    ("pg_trigger", "oid"),
    ("pg_index", "indexrelid"),
    ("pg_type", "oid"),
    ("pg_operator", "oid"),
    ("pg_cast", "oid"),
    ("pg_aggregate", "aggfnoid"),
    ("pg_event_trigger", "oid"),
    ("pg_extension", "oid"),
    ("pg_partitioned_table", "partrelid"),
];

/// The SQL. Its rows have seven columns: what they are about, schema, name, language, source, SET clauses, extension.
fn question(version: u32, mark: &[u8]) -> Vec<u8> {
    let mut sql = String::from(GUARD);
    // Each row's transaction and number, summed up: any change shows, but by a chance of one in millions.
    let marks: Vec<String> = MARKED
        .iter()
        .map(|(table, oid)| {
            format!(
                "(SELECT concat(count(*), '.', sum((xmin::text::bigint * 31 + {oid}::oid::bigint) % 1000003)) FROM {table} \
                 WHERE {oid}::oid >= 16384)"
            )
        })
        .collect();
    let current = format!("SELECT concat_ws(' ', {}) AS mark", marks.join(", "));
    sql.push_str(&format!("SELECT 'm', '', mark, '', '', '', '' FROM ({current}) AS now;"));
    // The rest is not executed where nothing has changed.
    let mut literal = Vec::new();
    write_literal(&mut literal, mark);
    let literal = String::from_utf8(literal).expect("a literal is ASCII");
    let changed = format!("(SELECT mark FROM ({current}) AS now) <> {literal}");
    sql.push_str(&format!(
        "SELECT 'f', n.nspname, p.proname, l.lanname, p.prosrc, array_to_string(p.proconfig, chr(10)), e.extname \
         FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace JOIN pg_language AS l ON l.oid = p.prolang \
         LEFT JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e' \
         LEFT JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid \
         WHERE p.oid >= 16384 AND p.prokind IN ('f', 'p', 'w') AND n.nspname !~ '^pg_temp' AND {changed};"
    ));
    let mut expressions = EXPRESSIONS.join(" UNION ALL ");
    if version >= 14 {
        expressions.push_str(
            " UNION ALL SELECT concat('function ', proname), prosqlbody::text FROM pg_proc WHERE oid >= 16384 AND prosqlbody IS NOT NULL",
        );
    }
    let extensions = TO_BE_CALLED.join("', '");
    sql.push_str(&format!(
        "WITH e(place, tree) AS MATERIALIZED (SELECT * FROM ({expressions}) AS all_of_them WHERE {changed}) \
         SELECT 'x', '', p.proname, '', min(c.place), '', '' FROM \
         (SELECT DISTINCT place, (regexp_matches(tree, ':(?:funcid|opfuncid|aggfnoid|winfnoid) ([0-9]+)', 'g'))[1]::oid FROM e \
         UNION ALL SELECT concat('operator ', oprname), oprcode::oid FROM pg_operator WHERE oid >= 16384 AND {changed} \
         UNION ALL SELECT concat('cast to ', casttarget::regtype), castfunc FROM pg_cast WHERE oid >= 16384 AND {changed} \
         UNION ALL SELECT concat('aggregate ', aggfnoid), unnest(ARRAY[aggtransfn, aggfinalfn, aggcombinefn, aggmtransfn, aggminvtransfn, \
         aggmfinalfn])::oid FROM pg_aggregate WHERE aggfnoid::oid >= 16384 AND {changed}) \
         AS c(place, function) JOIN pg_proc AS p ON p.oid = c.function WHERE p.oid < 16384 OR p.proname = 'set_limit' OR EXISTS (SELECT FROM pg_depend AS d \
         JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid WHERE d.classid = 'pg_proc'::regclass \
         AND d.objid = p.oid AND d.deptype = 'e' AND e.extname IN ('{extensions}')) GROUP BY p.proname \
         UNION ALL SELECT 'x', '', 'an update of pg_settings', '', place, '', '' FROM e \
         WHERE tree ~ concat(':relid ', 'pg_settings'::regclass::oid, '\\M');COMMIT"
    ));
    sql.into_bytes()
}

/// Whatever the session has set does not matter to what follows, up to COMMIT.
const GUARD: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY, NOT DEFERRABLE;SET LOCAL SESSION AUTHORIZATION DEFAULT;\
    SET LOCAL ROLE NONE;SET LOCAL search_path = pg_catalog;SET LOCAL statement_timeout = '5s';SET LOCAL lock_timeout = '1s';\
    SET LOCAL jit = off;SET LOCAL standard_conforming_strings = on;SET LOCAL client_encoding = SQL_ASCII;";

#[cfg(test)]
mod tests {
    use super::*;

    fn row(columns: [&str; 7]) -> Vec<u8> {
        let mut body = 7u16.to_be_bytes().to_vec();
        for column in columns {
            body.extend((column.len() as u32).to_be_bytes());
            body.extend(column.as_bytes());
        }
        body
    }

    fn catalogue() -> Arc<Catalogue> {
        Arc::new(Catalogue::new(Arc::default()))
    }

    fn judged(rows: &[[&str; 7]], trusted: &[&str]) -> Judged {
        let trusted: Vec<String> = trusted.iter().map(|&name| name.to_owned()).collect();
        let mut reading = Catalogue::ask(&catalogue(), trusted.into()).unwrap();
        rows.iter().for_each(|columns| reading.row(&row(*columns)).unwrap());
        reading.judge()
    }

    fn function<'a>(name: &'a str, language: &'a str, source: &'a str) -> [&'a str; 7] {
        ["f", "public", name, language, source, "", ""]
    }

    #[test]
    fn functions_that_can_be_read_and_touch_nothing_are_harmless() {
        for (language, source) in [
            ("sql", "select a + 1 from t where lower(b) = $1"),
            ("plpgsql", "begin new.changed := now(); return new; end"),
            (
                "plpgsql",
                "declare x numeric(10, 2); begin if (x > 1) then update t set a = x, b = g(x); end if; return query (select 1); end",
            ),
            (
                "plpgsql",
                "begin perform set_config('app.tenant', x, true); set local work_mem = '1MB'; insert into t (a) values (1); end",
            ),
            (
                "plpgsql",
                "declare c cursor (n int) for select n; begin open c(1); close c; perform pg_notify('a', 'b'); end",
            ),
        ] {
            let rows = [function("f", language, source), function("g", "sql", "select 1")];
            assert_eq!(judged(&rows, &[]).suspicious, [""; 0], "{source}");
        }
    }

    #[test]
    fn functions_that_could_touch_a_session_are_named() {
        for (language, source) in [
            ("sql", "select set_config('app.tenant', 'x', false)"),
            ("sql", "select h(1)"),
            ("plpgsql", "begin perform set_config('role', 'x', false); end"),
            ("plpgsql", "begin set search_path = a; end"),
            ("plpgsql", "begin if true then set app.x = 1; end if; end"),
            ("plpgsql", "begin execute 'x'; end"),
            ("plpgsql", "begin perform pg_advisory_lock(1); end"),
            ("plpgsql", "begin create temp table t (a int); end"),
            ("plpgsql", "begin perform \"pg_temp\".f(); end"),
            ("plpgsql", "begin perform query_to_xml('select 1', true, true, ''); end"),
            ("plpgsql", "begin listen x; end"),
            ("c", "f"),
            ("plpython3u", "pass"),
        ] {
            let judged = judged(&[function("f", language, source)], &[]);
            assert_eq!(judged.suspicious.len(), 1, "{source}");
            assert!(judged.suspicious[0].starts_with("public.f ("), "{source}");
        }
        let set = ["f", "public", "f", "sql", "select 1", "search_path=\"pg_temp\", a", ""];
        assert_eq!(judged(&[set], &[]).suspicious.len(), 1);
        assert_eq!(
            judged(&[["f", "public", "f", "sql", "select 1", "search_path=a, pg_temp", ""]], &[]).suspicious.len(),
            0
        );
    }

    #[test]
    fn what_is_trusted_is_not_looked_at() {
        let rows = [["f", "gis", "f", "c", "f", "", "postgis"], ["f", "public", "digest", "c", "x", "", "pgcrypto"]];
        assert_eq!(judged(&rows, &[]).suspicious, ["gis.f (its language cannot be read)"]);
        for trusted in ["gis.f", "gis.*", "extension:postgis"] {
            assert_eq!(judged(&rows, &[trusted]).suspicious, [""; 0], "{trusted}");
        }
        assert!(judged(&rows, &["gis.f"]).functions.contains(&b"digest"[..]));
    }

    #[test]
    fn expressions_that_call_what_is_not_harmless_are_named() {
        let rows = [["x", "", "set_config", "", "rule of v", "", ""], ["x", "", "lower", "", "default in t", "", ""]];
        assert_eq!(judged(&rows, &[]).suspicious, ["rule of v (calls set_config)"]);
    }

    #[test]
    fn what_changes_meanwhile_stays_in_doubt() {
        let catalogue = catalogue();
        let ask = || Catalogue::ask(&catalogue, Arc::default());
        let reading = ask().unwrap();
        assert!(!catalogue.is_clean() && ask().is_none());
        catalogue.change_begins();
        catalogue.change_ends();
        catalogue.read(reading);
        assert!(!catalogue.is_clean());
        let mut reading = ask().unwrap();
        reading.row(&row(function("f", "sql", "select 1"))).unwrap();
        catalogue.read(reading);
        assert!(catalogue.is_clean() && catalogue.knows(&[Box::from(*b"f")]) && !catalogue.knows(&[Box::from(*b"g")]));
        catalogue.clock.store(AGAIN_MS - 1, Relaxed);
        assert!(ask().is_none());
        catalogue.clock.store(AGAIN_MS, Relaxed);
        assert!(ask().is_some());
    }

    #[test]
    fn a_malformed_row_is_noticed() {
        let mut reading = Catalogue::ask(&catalogue(), Arc::default()).unwrap();
        for body in [&b""[..], b"\0\x07", b"\0\x07\0\0\0\x05ab"] {
            assert!(reading.row(body).is_none());
        }
    }
}
