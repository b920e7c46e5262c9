//! Named prepared statements. Clients choose names, and several clients may mean the same text; servers know each text
//! under one name of ours (`poolhouse_<secret>_7`), whichever client asked for it. The statements of one client are
//! here, those of one server in `our_statements`.
//!
//! An error may yet discard a forwarded request. So a request without an answer is believed only up to the Sync that
//! ends its pipeline.

use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc, LazyLock, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
};

use crate::{
    random::random,
    session::descriptions::ToldDescription,
    sql::{Findings, scan::scan},
};

/// The prefix of our names. It cannot be guessed, so no client prepares or deallocates one of them by accident. The
/// scan and the survey notice a client that has read it in `pg_prepared_statements`.
pub static PREFIX: LazyLock<String> = LazyLock::new(|| {
    let secret: [u8; 8] = random();
    format!("poolhouse_{:016x}_", u64::from_be_bytes(secret))
});

/// A name of ours that no statement ever has: numbers begin with 1.
pub(crate) static NOTHING: LazyLock<String> = LazyLock::new(|| format!("{}0", *PREFIX));

/// The name of an empty statement, for Parses that must find their name taken.
pub(crate) static TAKEN: LazyLock<String> = LazyLock::new(|| format!("{}00", *PREFIX));

/// Most statements of one client; beyond it the least recently used go.
const MAX_OF_CLIENT: usize = 2048;

/// Most bytes of the names and texts of one client's statements, unanswered ones included.
const MAX_BYTES_OF_CLIENT: usize = 8 << 20;

/// Most unanswered Parses and Closes of one client.
pub(crate) const MAX_PENDING_REQUESTS: usize = 16 * 1024;

/// Statements remembered before those without a client or server are dropped; doubled when all are in use.
const MIN_SWEEP_COUNT: usize = 4096;

/// Bytes of further texts after which unused ones are dropped, or a quarter of the bytes in use if that is more.
const MAX_UNSWEPT_BYTES: usize = 16 << 20;

/// A text with its parameter types, in the context of the settings that rule its meaning.
pub(crate) struct Statement {
    /// The number in its name at servers; never 0, never used twice.
    pub(crate) id: u32,
    pub(crate) name: Box<str>,
    /// A hash of the settings under which it was parsed.
    pub(crate) context: u64,
    /// The version of its database's schema in which it was prepared.
    pub(crate) schema_version: u32,
    /// The body of its Parse behind the name.
    pub(crate) body: Box<[u8]>,
    pub(crate) findings: Findings,
    /// Raised when a server says that its plan no longer fits: every server has to parse it again.
    pub(crate) edition: AtomicU32,
    /// What clients were told of it.
    pub(crate) told: ToldDescription,
    /// The statement was found to be stale: a Parse of its text gets another one.
    retired: AtomicBool,
}

impl Statement {
    /// The statement belongs to one client: its meaning depends on that client's session.
    pub(crate) fn is_of_one_client(&self) -> bool {
        self.context == context_of_one_client(self.id)
    }

    fn is(&self, context: u64, schema_version: u32, body: &[u8], told: Option<&ToldDescription>) -> bool {
        let same = self.context == context && self.schema_version == schema_version && *self.body == *body;
        same && !self.retired.load(Relaxed) && told.is_none_or(|told| self.told == *told)
    }

    /// The body of a Parse of it. Types that clients were told are named, so that every server means the same by the
    /// values that clients send.
    pub(crate) fn parse_body(&self) -> Cow<'_, [u8]> {
        let text = self.body.iter().position(|byte| *byte == 0);
        match (self.told.parameters(), text) {
            (Some(types), Some(text)) => Cow::Owned([&self.body[..=text], types].concat()),
            _ => Cow::Borrowed(&self.body),
        }
    }

    pub(crate) fn retire(&self) {
        self.retired.store(true, Relaxed);
    }
}

/// The context of a statement that belongs to one client: a value that settings have only by chance.
fn context_of_one_client(id: u32) -> u64 {
    u64::MAX - u64::from(id)
}

#[derive(Default)]
pub(crate) struct Statements {
    known: Mutex<Interned>,
}

#[derive(Default)]
struct Interned {
    /// By a hash of context and body.
    by_hash: HashMap<u64, Vec<Arc<Statement>>>,
    count: usize,
    sweep_at: usize,
    bytes: usize,
    sweep_at_bytes: usize,
    last_id: u32,
}

impl Statements {
    pub(crate) fn bytes(&self) -> usize {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }

    /// The statement with this context and body, prepared at this version of its database's schema; with `told`, only
    /// one of which clients were told exactly that. Without a context it belongs to one client.
    pub(crate) fn intern(
        &self,
        context: Option<u64>,
        schema_version: u32,
        body: &[u8],
        told: Option<&ToldDescription>,
    ) -> Arc<Statement> {
        let mut hasher = DefaultHasher::new();
        (context, schema_version, body).hash(&mut hasher);
        let key = hasher.finish();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(context) = context
            && let Some(same) = known.by_hash.get(&key)
            && let Some(statement) = same.iter().find(|s| s.is(context, schema_version, body, told))
        {
            return statement.clone();
        }
        if known.count >= known.sweep_at.max(MIN_SWEEP_COUNT)
            || known.bytes >= known.sweep_at_bytes.max(MAX_UNSWEPT_BYTES)
        {
            known.sweep();
        }
        known.last_id = known.last_id.checked_add(1).expect("4 billion statements have not been seen yet");
        let id = known.last_id;
        let findings = scan(body);
        let own = context.unwrap_or_else(|| context_of_one_client(id));
        let (edition, retired) = (AtomicU32::new(0), AtomicBool::new(false));
        let told = told.cloned().unwrap_or_default();
        let name = format!("{}{id}", *PREFIX).into_boxed_str();
        let statement = Arc::new(Statement {
            id,
            name,
            context: own,
            schema_version,
            body: body.into(),
            findings,
            edition,
            told,
            retired,
        });
        if context.is_some() {
            known.by_hash.entry(key).or_default().push(statement.clone());
            known.count += 1;
            known.bytes += body.len();
        }
        statement
    }
}

impl Interned {
    /// Drops those that no client and no server has.
    fn sweep(&mut self) {
        self.by_hash.retain(|_, same| {
            same.retain(|statement| Arc::strong_count(statement) > 1);
            !same.is_empty()
        });
        self.count = self.by_hash.values().map(Vec::len).sum();
        self.sweep_at = self.count * 2;
        self.bytes = self.by_hash.values().flatten().map(|statement| statement.body.len()).sum();
        self.sweep_at_bytes = self.bytes + MAX_UNSWEPT_BYTES.max(self.bytes / 4);
    }
}

#[derive(Default)]
pub(crate) struct ClientStatements {
    map: HashMap<Box<[u8]>, ClientStatement>,
    /// Bytes of their names and texts.
    bytes: usize,
    clock: u64,
    /// Unanswered requests, oldest first.
    pending: VecDeque<Pending>,
    /// Bytes of the names and texts of `pending`.
    pending_bytes: usize,
    /// Counts all noted requests.
    asked: u64,
    /// A request of the pipeline under way deallocates all statements noted before `asked` had this value; and the
    /// number of such requests without an answer.
    forgotten: Option<(u64, u32)>,
}

struct ClientStatement {
    statement: Arc<Statement>,
    used: u64,
    /// The client was told the types of its columns, and relies on them.
    described: bool,
    /// The number of the statement that this one has replaced; 0: none. Errors that name it may be on their way.
    former: u32,
}

/// An unanswered Parse or Close of the client.
struct Pending {
    name: Box<[u8]>,
    /// The statement that is parsed; `None` for a Close.
    parsed: Option<Arc<Statement>>,
    /// A Describe followed.
    described: bool,
    /// The pipeline of the request.
    pipeline: u32,
}

impl Pending {
    fn bytes(&self) -> usize {
        self.name.len() + self.parsed.as_ref().map_or(0, |statement| statement.body.len())
    }
}

/// What a client means by the name of a statement.
#[derive(Clone)]
pub(crate) enum Meaning {
    Statement(Arc<Statement>),
    Nothing,
    /// The meaning depends on answers to earlier pipelines that are still to come.
    Undecided,
}

/// Whether a client relies on what it was told of a statement's columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reliance {
    /// The client has only just asked for the statement.
    New,
    /// The client was told nothing of the columns.
    Untold,
    /// The client was told, or will have been told by the server that it holds.
    Told,
}

impl ClientStatements {
    /// Statements that the client has prepared.
    pub(crate) fn count(&self) -> usize {
        self.map.len()
    }

    /// The meaning of a name for a request of this pipeline: earlier requests of the pipeline will have been carried
    /// out, or this one will be discarded, too.
    pub(crate) fn meaning(&mut self, name: &[u8], pipeline: u32) -> Meaning {
        if let Some(pending) = self.last_pending(name) {
            return match &pending.parsed {
                _ if pending.pipeline != pipeline => Meaning::Undecided,
                Some(statement) => Meaning::Statement(statement.clone()),
                None => Meaning::Nothing,
            };
        }
        if self.forgotten.is_some() {
            return Meaning::Nothing;
        }
        self.clock += 1;
        let Some(held) = self.map.get_mut(name) else { return Meaning::Nothing };
        held.used = self.clock;
        Meaning::Statement(held.statement.clone())
    }

    /// The meaning of a name if no unanswered request fails.
    pub(crate) fn expected(&self, name: &[u8]) -> Option<Arc<Statement>> {
        match self.last_pending(name) {
            Some(pending) => pending.parsed.clone(),
            None if self.forgotten.is_some() => None,
            None => self.map.get(name).map(|held| held.statement.clone()),
        }
    }

    /// Whether a statement may have this name, whichever of the unanswered requests fail.
    pub(crate) fn may_have(&self, name: &[u8]) -> bool {
        let parses = |pending: &Pending| pending.parsed.is_some() && *pending.name == *name;
        self.has(name) || self.pending.iter().any(parses)
    }

    pub(crate) fn has(&self, name: &[u8]) -> bool {
        self.map.contains_key(name)
    }

    /// Whether the client relies on what it was told of the columns of a statement.
    pub(crate) fn reliance(&self, name: &[u8]) -> Reliance {
        match self.map.get(name) {
            _ if self.last_pending(name).is_some() => Reliance::New,
            Some(held) if held.described => Reliance::Told,
            Some(_) => Reliance::Untold,
            None => Reliance::New,
        }
    }

    /// The client was told something else of this statement than others: it gets another of the same text.
    pub(crate) fn part(&mut self, name: &[u8], id: u32, statement: &Arc<Statement>) {
        if let Some(held) = self.map.get_mut(name).filter(|held| held.statement.id == id) {
            held.statement = statement.clone();
            held.former = id;
        }
    }

    /// Replaces a statement by one of the same text in another context.
    pub(crate) fn replace(&mut self, name: &[u8], statement: &Arc<Statement>) {
        if let Some(held) = self.map.get_mut(name)
            && held.statement.body == statement.body
        {
            let former = std::mem::replace(&mut held.statement, statement.clone());
            held.former = former.id;
        }
    }

    pub(crate) fn describe(&mut self, name: &[u8]) {
        if let Some(pending) = self.pending.iter_mut().rev().find(|pending| *pending.name == *name) {
            pending.described = true;
        } else if let Some(held) = self.map.get_mut(name) {
            held.described = true;
        }
    }

    pub(crate) fn parse(&mut self, name: &[u8], statement: Arc<Statement>, pipeline: u32) {
        self.push_pending(Pending { name: name.into(), parsed: Some(statement), described: false, pipeline });
    }

    pub(crate) fn close(&mut self, name: &[u8], pipeline: u32) {
        self.push_pending(Pending { name: name.into(), parsed: None, described: false, pipeline });
    }

    /// A request was forwarded that deallocates all statements: what follows in its pipeline is carried out only if it
    /// is.
    pub(crate) fn forget_all(&mut self) {
        let before = self.forgotten.map_or(0, |(_, times)| times);
        self.forgotten = Some((self.asked, before + 1));
    }

    /// A Sync was forwarded: later requests wait until it is known whether statements were deallocated.
    #[inline]
    pub(crate) fn end_pipeline(&mut self) {
        self.forgotten = None;
    }

    /// The last unanswered request about this name that is not undone by a deallocation.
    fn last_pending(&self, name: &[u8]) -> Option<&Pending> {
        let first = self.asked - self.pending.len() as u64;
        let forgotten = self.forgotten.map_or(0, |(asked, _)| asked.saturating_sub(first) as usize);
        self.pending.iter().skip(forgotten).rev().find(|pending| *pending.name == *name)
    }

    fn push_pending(&mut self, pending: Pending) {
        self.asked += 1;
        self.pending_bytes += pending.bytes();
        self.pending.push_back(pending);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.pending.len() >= MAX_PENDING_REQUESTS || self.pending_bytes >= MAX_BYTES_OF_CLIENT
    }

    /// The oldest unanswered request was answered, or discarded.
    pub(crate) fn settle(&mut self, done: bool) {
        let settled = self.pending.pop_front().expect("only what was asked is settled");
        self.pending_bytes -= settled.bytes();
        let Pending { name, parsed, described, .. } = settled;
        match parsed {
            _ if !done => {}
            Some(statement) => self.insert(name, statement, described),
            None => self.remove(&name),
        }
    }

    pub(crate) fn remove(&mut self, name: &[u8]) {
        if let Some(held) = self.map.remove(name) {
            self.bytes -= name.len() + held.statement.body.len();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.forgotten = self.forgotten.and_then(|(asked, times)| Some((asked, times.checked_sub(1)?)));
        self.forgotten = self.forgotten.filter(|(_, times)| *times > 0);
        self.map.clear();
        self.bytes = 0;
    }

    /// The name in the oldest unanswered request.
    pub(crate) fn oldest_pending(&self) -> Option<&[u8]> {
        self.pending.front().map(|pending| &*pending.name)
    }

    /// The client's name of the statement with this number.
    pub(crate) fn name_of(&self, id: u32) -> Option<&[u8]> {
        let is = |pending: &&Pending| pending.parsed.as_ref().is_some_and(|statement| statement.id == id);
        let pending = self.pending.iter().find(is).map(|pending| &*pending.name);
        let has = |held: &ClientStatement| held.statement.id == id || held.former == id;
        pending.or_else(|| self.map.iter().find(|(_, held)| has(held)).map(|(name, _)| &**name))
    }

    fn insert(&mut self, name: Box<[u8]>, statement: Arc<Statement>, described: bool) {
        self.remove(&name);
        self.bytes += name.len() + statement.body.len();
        self.clock += 1;
        self.map.insert(name, ClientStatement { statement, used: self.clock, described, former: 0 });
        if self.map.len() > MAX_OF_CLIENT || self.bytes > MAX_BYTES_OF_CLIENT {
            self.evict();
        }
    }

    /// Forgets the least recently used eighth of the statements.
    fn evict(&mut self) {
        let mut uses: Vec<u64> = self.map.values().map(|held| held.used).collect();
        uses.sort_unstable();
        let limit = uses[uses.len() / 8];
        self.map.retain(|_, held| held.used > limit);
        self.bytes = self.map.iter().map(|(name, held)| name.len() + held.statement.body.len()).sum();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn statements(count: usize) -> Vec<Arc<Statement>> {
        let all = Statements::default();
        (0..count).map(|i| all.intern(Some(1), 0, format!("select {i}\0\0\0").as_bytes(), None)).collect()
    }

    #[test]
    fn equal_texts_in_equal_contexts_are_one_statement() {
        let all = Statements::default();
        let one = all.intern(Some(1), 0, b"select 1\0\0\0", None);
        assert!(Arc::ptr_eq(&one, &all.intern(Some(1), 0, b"select 1\0\0\0", None)));
        assert!(!Arc::ptr_eq(&one, &all.intern(Some(2), 0, b"select 1\0\0\0", None)));
        assert!(!Arc::ptr_eq(&all.intern(None, 0, b"x", None), &all.intern(None, 0, b"x", None)));
    }

    #[test]
    fn statements_without_a_client_are_dropped() {
        let all = Statements::default();
        for i in 0..3 * MIN_SWEEP_COUNT {
            all.intern(Some(1), 0, format!("{i}").as_bytes(), None);
        }
        assert!(all.known.lock().unwrap().count <= MIN_SWEEP_COUNT);
    }

    #[test]
    fn long_texts_without_a_client_are_dropped() {
        let all = Statements::default();
        let text = |i: usize| [i.to_string().as_bytes(), &[b' '; 60_000]].concat();
        let had: Vec<_> = (0..200).map(|i| all.intern(Some(1), 0, &text(i), None)).collect();
        for i in 0..2000 {
            all.intern(Some(1), 0, &text(i), None);
            assert!(all.bytes() <= 200 * 60_010 + MAX_UNSWEPT_BYTES + 60_010, "{}", all.bytes());
        }
        assert!(Arc::ptr_eq(&had[0], &all.intern(Some(1), 0, &text(0), None)));
    }

    fn id(meaning: &Meaning) -> Option<u32> {
        if let Meaning::Statement(statement) = meaning { Some(statement.id) } else { None }
    }

    #[test]
    fn a_client_sees_its_statements_as_they_will_be() {
        let all = statements(2);
        let mut client = ClientStatements::default();
        client.parse(b"a", all[0].clone(), 1);
        assert_eq!(id(&client.meaning(b"a", 1)), Some(all[0].id));
        client.close(b"a", 1);
        assert!(matches!(client.meaning(b"a", 1), Meaning::Nothing));
        // Whether the name is free in the next pipeline depends on the answers.
        assert!(matches!(client.meaning(b"a", 2), Meaning::Undecided));
        client.settle(true);
        client.settle(false);
        assert_eq!(id(&client.meaning(b"a", 2)), Some(all[0].id));
        assert_eq!(client.name_of(all[0].id), Some(&b"a"[..]));
        client.parse(b"b", all[1].clone(), 2);
        client.settle(false);
        assert!(!client.has(b"b"));
    }

    #[test]
    fn a_statement_that_is_still_to_be_parsed_is_not_put_in_the_place_of_the_one_before() {
        let all = Statements::default();
        let (before, after) = (all.intern(Some(1), 0, b"select 1", None), all.intern(Some(1), 0, b"select 22", None));
        let mut client = ClientStatements::default();
        client.parse(b"a", before.clone(), 1);
        client.settle(true);
        client.close(b"a", 2);
        client.parse(b"a", after, 2);
        client.replace(b"a", &all.intern(Some(2), 0, b"select 22", None));
        client.settle(false);
        client.settle(false);
        assert_eq!(client.name_of(before.id), Some(&b"a"[..]));
    }

    #[test]
    fn a_client_that_never_closes_anything_is_bounded() {
        let mut client = ClientStatements::default();
        let all = Statements::default();
        for i in 0..3 * MAX_OF_CLIENT {
            client.parse(format!("s{i}").as_bytes(), all.intern(Some(1), 0, format!("{i}").as_bytes(), None), 0);
            client.settle(true);
        }
        assert!(client.map.len() <= MAX_OF_CLIENT);
        assert!(client.has(format!("s{}", 3 * MAX_OF_CLIENT - 1).as_bytes()));
    }
}
