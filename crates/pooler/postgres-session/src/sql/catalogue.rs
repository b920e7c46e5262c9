//! What a database could do to a session behind a text: functions that set settings, take locks, create temporary
//! objects and the like, and run because a trigger, a view, a rule, a default, an operator, a cast or a policy calls
//! them. The catalogue is asked when a pool's first server has logged in, again after DDL that was seen, and every ten
//! seconds while the pool is used. It knows no session.
//!
//! A function counts as harmless if its source can be read (SQL or PL/pgSQL) and nothing but harmless is in it, or if
//! it belongs to an extension whose functions are known to be. Any other makes the database one whose servers are
//! cleaned whenever they change hands, unless `trusted_functions` names it.

mod question;
mod reading;

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

pub(crate) use reading::Reading;
use reading::{Outcome, Partial};

use crate::sql::{
    harmless::MAX_NAME,
    scan::{for_each_field, for_each_name},
};

/// Milliseconds after which a catalogue is read again.
const READ_INTERVAL_MS: u64 = 10_000;

/// Milliseconds between the parts of a large catalogue at its first reading: they occupy a server for a tenth of the
/// time at most.
const FIRST_PART_INTERVAL_MS: u64 = 100;

/// Milliseconds between the parts of a large catalogue at later readings: a hundredth of the time.
const PART_INTERVAL_MS: u64 = 1_000;

/// Milliseconds after which a large catalogue is checked for changes.
const CHANGE_CHECK_INTERVAL_MS: u64 = 2_000;

/// From this number of catalogues on, those of databases without a server are forgotten: clients can invent names.
const MIN_SWEEP_COUNT: usize = 1024;

#[derive(Default)]
pub(crate) struct Catalogues {
    by_database: Mutex<HashMap<Arc<str>, Arc<Catalogue>>>,
    clock: Arc<AtomicU64>,
}

impl Catalogues {
    /// The catalogue of a database, which pools of several users may share.
    pub(crate) fn of(&self, database: &Arc<str>) -> Arc<Catalogue> {
        let mut by_database = self.by_database.lock().unwrap_or_else(PoisonError::into_inner);
        if by_database.len() >= MIN_SWEEP_COUNT && !by_database.contains_key(database) {
            by_database.retain(|_, catalogue| Arc::strong_count(catalogue) > 1);
        }
        by_database.entry(database.clone()).or_insert_with(|| Arc::new(Catalogue::new(self.clock.clone()))).clone()
    }

    pub(crate) fn on_tick(&self, now_ms: u64) {
        self.clock.fetch_max(now_ms, Relaxed);
    }
}

#[derive(Default)]
pub(crate) struct Catalogue {
    /// The driver's clock, in milliseconds.
    clock: Arc<AtomicU64>,
    /// Raised by DDL: statements prepared at an earlier version may be stale.
    schema_version: AtomicU32,
    /// Raised whenever a function may have appeared that can touch a session behind a text.
    doubts: AtomicU64,
    /// Servers with DDL in an open transaction.
    changing: AtomicU32,
    /// The catalogue was changed since the last reading.
    stale: AtomicBool,
    /// A server is being asked.
    asking: AtomicBool,
    /// When the next reading is due, by the driver's clock.
    due_ms: AtomicU64,
    /// No server is asked before that time, whatever has changed.
    not_before_ms: AtomicU64,
    /// The parts of a large catalogue that were read.
    partial: Mutex<Option<Partial>>,
    /// Nothing in the catalogue can touch a session behind a text.
    clean: AtomicBool,
    /// Something in the catalogue may prepare or deallocate statements.
    prepares: AtomicBool,
    /// The catalogue has functions whose plans a session keeps.
    keeps_plans: AtomicBool,
    /// A trigger or a stored expression may do what no SQL takes back.
    irreversible_unseen: AtomicBool,
    /// The catalogue has functions whose names have to be looked for in all texts.
    watches_names: AtomicBool,
    known: RwLock<Contents>,
}

impl Catalogue {
    fn new(clock: Arc<AtomicU64>) -> Self {
        let (stale, prepares, keeps_plans) = (true.into(), true.into(), true.into());
        Self { clock, stale, prepares, keeps_plans, ..Self::default() }
    }

    fn now_ms(&self) -> u64 {
        self.clock.load(Relaxed)
    }
}

#[derive(Default)]
struct Contents {
    /// Changes whenever the catalogue does.
    mark: Box<[u8]>,
    /// Names of harmless functions, as the catalogue spells them.
    functions: HashSet<Box<[u8]>>,
    /// Functions and aggregates after which a server cannot be cleaned.
    irreversible: HashSet<Box<[u8]>>,
    /// Harmful functions that take one argument.
    by_notation: HashSet<Box<[u8]>>,
    /// Custom parameters that functions set.
    custom: Vec<Box<[u8]>>,
    /// What is not harmless, for people.
    suspicious: Vec<String>,
}

/// Whether this may name one of these functions: the server cuts off long names, and letters beyond ASCII may come in
/// another encoding than the catalogue's. An empty name is one that cannot be read.
fn may_name_one_of(functions: &HashSet<Box<[u8]>>, name: &[u8]) -> bool {
    let cut_off = |known: &[u8]| known.len() + 4 > MAX_NAME && name.starts_with(known);
    (name.is_empty() && !functions.is_empty())
        || functions.contains(name)
        || (name.len() > MAX_NAME && functions.iter().any(|known| cut_off(known)))
        || (!name.is_ascii() && functions.iter().any(|known| !known.is_ascii()))
}

/// The number of doubts, and in the lowest bit whether the catalogue is clean. If two are equal and clean, it was clean
/// all the time between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Assessment(u64);

impl Assessment {
    #[inline]
    pub(crate) fn is_clean(self) -> bool {
        self.0 & 1 != 0
    }
}

impl Catalogue {
    #[inline]
    pub(crate) fn assessment(&self) -> Assessment {
        Assessment(self.doubts.load(SeqCst) << 1 | u64::from(self.is_clean()))
    }

    /// A harmful function may have appeared, and `is_clean` says so already.
    fn doubt(&self) {
        self.doubts.fetch_add(1, SeqCst);
    }

    /// Nothing in the database can touch a session behind a text, as far as is known now.
    #[inline]
    pub(crate) fn is_clean(&self) -> bool {
        self.clean.load(SeqCst) && !self.stale.load(SeqCst) && self.changing.load(SeqCst) == 0
    }

    /// A function may have to do with prepared statements.
    pub(crate) fn prepares(&self) -> bool {
        self.prepares.load(SeqCst) || self.stale.load(SeqCst) || self.changing.load(SeqCst) > 0
    }

    /// A function may keep plans of its own.
    pub(crate) fn keeps_plans(&self) -> bool {
        self.keeps_plans.load(SeqCst) || self.stale.load(SeqCst) || self.changing.load(SeqCst) > 0
    }

    /// Whether all of these functions are known to leave nothing behind.
    pub(crate) fn knows(&self, calls: &[Box<[u8]>]) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        self.is_clean() && calls.iter().all(|name| known.functions.contains(name))
    }

    /// Whether any text may leave behind what no SQL takes back, by a trigger or the like.
    pub(crate) fn any_text_may_be_irreversible(&self) -> bool {
        self.irreversible_unseen.load(SeqCst)
    }

    /// Whether it has functions that leave such state behind: an unreadable text may call them.
    pub(crate) fn has_irreversible(&self) -> bool {
        self.watches_names() && !self.known.read().unwrap_or_else(PoisonError::into_inner).irreversible.is_empty()
    }

    /// Whether names of functions have to be looked for in all texts.
    #[inline]
    pub(crate) fn watches_names(&self) -> bool {
        self.watches_names.load(Relaxed)
    }

    /// Adds to `calls` the harmful functions that this text may call without a parenthesis. True if the text has the
    /// name of an irreversible function anywhere, whether it looks like a call or not.
    pub(crate) fn look_for_names(&self, text: &[u8], calls: &mut Vec<Box<[u8]>>) -> bool {
        if !self.watches_names() {
            return false;
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        for_each_field(text, |name| {
            if may_name_one_of(&known.by_notation, name) && !calls.iter().any(|call| **call == *name) {
                calls.push(name.into());
            }
        });
        let mut irreversible = false;
        if !known.irreversible.is_empty() {
            for_each_name(text, |name| irreversible |= may_name_one_of(&known.irreversible, name));
        }
        irreversible
    }

    /// Custom parameters that functions set.
    pub(crate) fn custom(&self) -> Vec<Box<[u8]>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).custom.clone()
    }

    /// Statements prepared at an earlier version may be stale.
    pub(crate) fn schema_version(&self) -> u32 {
        self.schema_version.load(SeqCst)
    }

    /// A transaction has its first DDL.
    pub(crate) fn begin_change(&self) {
        self.changing.fetch_add(1, SeqCst);
        self.schema_version.fetch_add(1, SeqCst);
        self.doubt();
    }

    /// A transaction with DDL has ended.
    pub(crate) fn end_change(&self) {
        self.stale.store(true, SeqCst);
        self.changing.fetch_sub(1, SeqCst);
        self.schema_version.fetch_add(1, SeqCst);
    }

    /// Begins to read the catalogue: what a server is to be asked now, if anything.
    pub(crate) fn begin_reading(this: &Arc<Self>, trusted: Arc<[String]>) -> Option<Reading> {
        let now = this.now_ms();
        let due = this.stale.load(SeqCst) || now >= this.due_ms.load(SeqCst);
        let waits = now < this.not_before_ms.load(SeqCst) || this.changing.load(SeqCst) > 0;
        if !due || waits || this.asking.swap(true, SeqCst) {
            return None;
        }
        let (asked, schema_version) = (Asked(this.clone()), this.schema_version());
        // What has changed meanwhile may be in a part that was read.
        let so_far = this.partial.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(so_far) = so_far.filter(|partial| partial.schema_version == schema_version) {
            return Some(Reading::continued(asked, so_far, trusted));
        }
        let known = this.known.read().unwrap_or_else(PoisonError::into_inner);
        Some(Reading::new(asked, known.mark.clone(), schema_version, trusted))
    }

    /// The server did not answer: everything unknown counts as harmful. Returns what people are to be told, if it is
    /// new.
    pub(crate) fn reading_failed(&self, why: &str) -> Option<Vec<String>> {
        let told = vec![format!("the catalogue cannot be read: {why}")];
        self.clean.store(false, SeqCst);
        self.doubt();
        self.prepares.store(true, SeqCst);
        self.keeps_plans.store(true, SeqCst);
        self.due_ms.store(self.now_ms() + READ_INTERVAL_MS, SeqCst);
        self.stale.store(false, SeqCst);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.mark = Box::default();
        let news = (known.suspicious != told).then(|| told.clone());
        known.suspicious = told;
        news
    }

    /// The server has answered. Returns what people are to be told, if it is new.
    pub(crate) fn take_reading(&self, mut reading: Reading) -> Option<Vec<String>> {
        let schema_version = reading.schema_version;
        let now = self.now_ms();
        if reading.is_large() {
            self.not_before_ms.store(now + CHANGE_CHECK_INTERVAL_MS, SeqCst);
        }
        let news = match reading.take_outcome() {
            Outcome::Same => None,
            Outcome::Whole => self.take_over(reading),
            Outcome::Partly(partial) => {
                self.keep_partial(partial, now);
                return None;
            }
        };
        self.due_ms.store(now + READ_INTERVAL_MS, SeqCst);
        // DDL that came meanwhile may not have been seen.
        if self.schema_version() == schema_version && self.changing.load(SeqCst) == 0 {
            self.stale.store(false, SeqCst);
        }
        news
    }

    /// Keeps the parts that were read. More is to be read: until then everything is in doubt.
    fn keep_partial(&self, partial: Partial, now: u64) {
        self.stale.store(true, SeqCst);
        self.doubt();
        let first = self.known.read().unwrap_or_else(PoisonError::into_inner).mark.is_empty();
        let pause = if first { FIRST_PART_INTERVAL_MS } else { PART_INTERVAL_MS };
        self.not_before_ms.store(now + pause, SeqCst);
        *self.partial.lock().unwrap_or_else(PoisonError::into_inner) = Some(partial);
    }

    fn take_over(&self, reading: Reading) -> Option<Vec<String>> {
        let judged = reading.judge();
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let first = known.mark.is_empty();
        let news = (known.suspicious != judged.suspicious || (first && !judged.suspicious.is_empty()))
            .then(|| judged.suspicious.clone());
        self.prepares.store(judged.prepares, SeqCst);
        self.keeps_plans.store(judged.keeps_plans, SeqCst);
        self.irreversible_unseen.store(judged.irreversible_unseen, SeqCst);
        self.watches_names.store(!judged.by_notation.is_empty() || !judged.irreversible.is_empty(), Relaxed);
        self.clean.store(judged.suspicious.is_empty(), SeqCst);
        if !judged.suspicious.is_empty() {
            self.doubt();
        }
        *known = Contents {
            mark: judged.mark,
            functions: judged.functions,
            irreversible: judged.irreversible,
            by_notation: judged.by_notation,
            custom: judged.custom,
            suspicious: judged.suspicious,
        };
        news
    }
}

/// A server is being asked while this exists.
struct Asked(Arc<Catalogue>);

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.asking.store(false, SeqCst);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::wire::message::row_body;

    pub(super) fn row(columns: [&str; 7]) -> Vec<u8> {
        row_body(&columns.map(Some))
    }

    pub(super) fn catalogue() -> Arc<Catalogue> {
        Arc::new(Catalogue::new(Arc::default()))
    }

    pub(super) fn function<'a>(name: &'a str, language: &'a str, source: &'a str) -> [&'a str; 7] {
        ["f", "public", name, language, source, "", ""]
    }

    #[test]
    fn what_changes_meanwhile_stays_in_doubt() {
        let catalogue = catalogue();
        let ask = || Catalogue::begin_reading(&catalogue, Arc::default());
        let reading = ask().unwrap();
        assert!(!catalogue.is_clean() && ask().is_none());
        let first = catalogue.assessment();
        catalogue.begin_change();
        catalogue.end_change();
        catalogue.take_reading(reading);
        assert!(!catalogue.is_clean());
        let mut reading = ask().unwrap();
        reading.take_row(&row(function("f", "sql", "select 1"))).unwrap();
        catalogue.take_reading(reading);
        assert!(catalogue.is_clean() && catalogue.knows(&[Box::from(*b"f")]) && !catalogue.knows(&[Box::from(*b"g")]));
        assert!(catalogue.assessment() != first && catalogue.assessment() == catalogue.assessment());
        catalogue.clock.store(READ_INTERVAL_MS - 1, Relaxed);
        assert!(ask().is_none());
        catalogue.clock.store(READ_INTERVAL_MS, Relaxed);
        assert!(ask().is_some());
    }

    #[test]
    fn a_harmful_function_is_found_behind_a_dot_however_its_name_is_written() {
        let catalogue = catalogue();
        let mut reading = Catalogue::begin_reading(&catalogue, Arc::default()).unwrap();
        let long = "f".repeat(MAX_NAME);
        for name in ["sets", &long, "s\"t", "\u{e4}"] {
            let mut harmful = function(name, "sql", "select set_config('a.b', 'c', false)");
            harmful[0] = "n";
            reading.take_row(&row(harmful)).unwrap();
        }
        catalogue.take_reading(reading);
        let calls = |text: &str| {
            let mut calls = Vec::new();
            catalogue.look_for_names(text.as_bytes(), &mut calls);
            calls.len()
        };
        for written in ["Sets", "\"s\"\"t\"", &format!("{long}gg"), "\u{f6}", "U&\"s\\0065ts\""] {
            assert_eq!(calls(&format!("SELECT t.{written} FROM t")), 1, "{written}");
        }
        for other in ["set", "\"Sets\"", &long[1..]] {
            assert_eq!(calls(&format!("SELECT t.{other} FROM t")), 0, "{other}");
        }
    }

    #[test]
    fn a_large_one_is_read_by_parts_and_in_doubt_until_all_are_known() {
        let catalogue = catalogue();
        let now = AtomicU64::new(0);
        let ask = || {
            catalogue.clock.store(now.fetch_add(FIRST_PART_INTERVAL_MS, Relaxed) + FIRST_PART_INTERVAL_MS, Relaxed);
            Catalogue::begin_reading(&catalogue, Arc::default())
        };
        let mark = |text, count: &'static str| row(["m", "", text, "", count, "off", ""]);
        let text = |reading: &Reading| String::from_utf8(reading.question(15)).unwrap();
        let mut reading = ask().unwrap();
        reading.take_row(&mark("1", "5000")).unwrap();
        catalogue.take_reading(reading);
        assert!(!catalogue.is_clean() && Catalogue::begin_reading(&catalogue, Arc::default()).is_none(), "too soon");
        catalogue.clock.store(CHANGE_CHECK_INTERVAL_MS, Relaxed);
        now.store(CHANGE_CHECK_INTERVAL_MS, Relaxed);
        let mut parts = 0;
        let mut reading = ask().unwrap();
        while !text(&reading).contains("WITH marks") {
            assert!(!catalogue.is_clean());
            reading.take_row(&row(["b", "", if parts == 1 { "20000" } else { "" }, "", "", "0", ""])).unwrap();
            assert_eq!(text(&reading).contains("> 20000"), parts == 2, "{}", text(&reading));
            let name = format!("f{parts}");
            reading.take_row(&row(function(&name, "sql", "select 1"))).unwrap();
            catalogue.take_reading(reading);
            parts += 1;
            reading = ask().unwrap();
        }
        assert!(parts > 10, "{parts}");
        // Whether it is still the same is asked at last.
        reading.take_row(&mark("1", "5000")).unwrap();
        catalogue.take_reading(reading);
        assert!(catalogue.is_clean() && catalogue.knows(&[Box::from(*b"f0"), Box::from(*b"f7")]));
    }

    #[test]
    fn what_changes_while_a_large_one_is_read_begins_it_anew() {
        let catalogue = catalogue();
        let answer = |at_ms, rows: &[[&str; 7]]| {
            catalogue.clock.store(at_ms, Relaxed);
            let mut reading = Catalogue::begin_reading(&catalogue, Arc::default()).unwrap();
            let sql = String::from_utf8(reading.question(15)).unwrap();
            rows.iter().for_each(|columns| reading.take_row(&row(*columns)).unwrap());
            catalogue.take_reading(reading);
            sql.contains("WITH marks")
        };
        let mark = |text| ["m", "", text, "", "5000", "off", ""];
        assert!(answer(0, &[mark("1")]));
        assert!(!answer(10_000, &[["b", "", "", "", "", "0", ""], function("old", "sql", "select 1")]));
        catalogue.begin_change();
        catalogue.end_change();
        assert!(answer(20_000, &[mark("2")]));
        let mut at = 30_000;
        while !answer(at, &[["b", "", "", "", "", "0", ""], mark("2")]) {
            at += 10_000;
        }
        assert!(catalogue.is_clean() && !catalogue.knows(&[Box::from(*b"old")]));
    }

    #[test]
    fn what_was_in_it_for_a_while_is_remembered_by_its_version() {
        let catalogue = catalogue();
        let read = |source| {
            catalogue.stale.store(true, SeqCst);
            let mut reading = Catalogue::begin_reading(&catalogue, Arc::default()).unwrap();
            reading.take_row(&row(function("f", "sql", source))).unwrap();
            catalogue.take_reading(reading);
        };
        read("select 1");
        let granted = catalogue.assessment();
        assert!(granted.is_clean());
        // Another function that does nothing is no reason for doubt, wherever it came from.
        read("select 2");
        assert_eq!(catalogue.assessment(), granted);
        read("select setseed(0.5)");
        assert!(!catalogue.assessment().is_clean());
        read("select 2");
        assert!(catalogue.assessment().is_clean() && catalogue.assessment() != granted);
        let granted = catalogue.assessment();
        catalogue.begin_change();
        catalogue.end_change();
        read("select 2");
        assert!(catalogue.assessment().is_clean() && catalogue.assessment() != granted);
        assert!(catalogue.reading_failed("why").is_some());
        read("select 2");
        assert!(catalogue.assessment().is_clean() && catalogue.assessment() != granted);
    }

    #[test]
    fn after_a_failed_reading_functions_may_prepare() {
        let catalogue = catalogue();
        let mut reading = Catalogue::begin_reading(&catalogue, Arc::default()).unwrap();
        reading.take_row(&row(function("f", "sql", "select 1"))).unwrap();
        catalogue.take_reading(reading);
        assert!(!catalogue.prepares());
        catalogue.begin_change();
        catalogue.end_change();
        catalogue.reading_failed("why");
        assert!(catalogue.prepares());
    }
}
