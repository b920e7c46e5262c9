//! Clients and servers that keep to a script, call by call of the seam: without a driver, a socket or a clock.

use std::collections::BTreeMap;

use seam::{Bytes, Encryption, Peer, Verdict as Left};

use super::*;
use crate::{
    bson::{Document, Writer},
    wire::{Answers, Header},
};

mod checksums;
mod everywhere;
mod waits;

/// Pools of those who watch hosts have the numbers of these behind this one.
const MONITORS: u32 = 100;

const SESSION: [u8; 16] = [7; 16];

/// Nobody has to log in, and these hosts are configured now.
struct Doors(Mutex<Vec<usize>>);

impl Directory for Doors {
    fn encryption(&self, _: u16) -> Encryption {
        Encryption::Off
    }

    fn welcome(&self, _: Origin) -> Welcome {
        Welcome::Open
    }

    fn verifier(&self, _: &str) -> Option<Arc<Verifier>> {
        None
    }

    fn hosts(&self) -> Vec<usize> {
        self.0.lock().unwrap().clone()
    }

    fn host_name(&self, host: usize) -> Arc<str> {
        format!("host{host}:27017").into()
    }

    fn lists_members(&self) -> bool {
        false
    }

    fn note_unlisted(&self, _: &str) {}

    fn note_undone(&self, _: PoolId, _: usize) {}

    fn replica_set(&self) -> Option<Arc<str>> {
        None
    }

    fn shares_login(&self) -> bool {
        false
    }

    fn local_threshold(&self) -> Duration {
        LOCAL_THRESHOLD
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn route(&self, _: &str, host: usize) -> Result<PoolId, String> {
        let is_there = self.hosts().contains(&host);
        is_there.then_some(PoolId(host as u32)).ok_or_else(|| "no such host".to_owned())
    }

    fn is_configured(&self, _: PoolId) -> bool {
        true
    }

    fn max_wait(&self, _: PoolId) -> Option<Duration> {
        None
    }

    fn max_pinned(&self, _: PoolId) -> u32 {
        10
    }

    fn server_login(&self, pool: PoolId) -> ServerLogin {
        let (host, monitors) = ((pool.0 % MONITORS) as usize, pool.0 >= MONITORS);
        ServerLogin { host, monitors, ..ServerLogin::default() }
    }
}

/// Sessions by the numbers of their tags.
struct Seats<S>(BTreeMap<u32, S>);

impl Sessions<ClientTag, Client> for Seats<Client> {
    fn get(&mut self, tag: ClientTag) -> Option<&mut Client> {
        self.0.get_mut(&tag.0)
    }
}

impl Sessions<ServerTag, Server> for Seats<Server> {
    fn get(&mut self, tag: ServerTag) -> Option<&mut Server> {
        self.0.get_mut(&tag.0)
    }
}

/// The product, one client, and what was said last.
struct Stage {
    mongodb: MongoDb,
    doors: Arc<Doors>,
    clients: Seats<Client>,
    servers: Seats<Server>,
    out: Outbox,
    last_id: i32,
    now: Duration,
}

const CLIENT: ClientTag = ClientTag(1);

impl Stage {
    /// A client, and host 0, which is the primary.
    fn new() -> Self {
        let doors = Arc::new(Doors(Mutex::new(vec![0])));
        let mongodb = MongoDb::new(doors.clone());
        let (clients, servers) = (Seats(BTreeMap::new()), Seats(BTreeMap::new()));
        let (out, last_id, now) = (Outbox::new(), 0, Duration::ZERO);
        let mut stage = Self { mongodb, doors, clients, servers, out, last_id, now };
        let client = stage.mongodb.client_start(CLIENT, Origin { listener: 0, address: None, port: 0 }, &mut stage.out);
        stage.clients.0.insert(CLIENT.0, client);
        stage.pass(Duration::ZERO);
        stage.watch(0, true);
        stage
    }

    /// The same, and other hosts, which are secondaries; each has a connection.
    fn with_hosts(count: usize) -> (Self, Vec<ServerTag>) {
        let mut stage = Self::new();
        stage.doors.0.lock().unwrap().extend(1..count);
        stage.pass(topology::BEAT);
        (1..count).for_each(|host| _ = stage.watch(host, false));
        let servers = (0..count).map(|host| stage.connect(PoolId(host as u32), host == 0)).collect();
        (stage, servers)
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.out.clear();
        self.mongodb.on_tick(self.now, &mut self.out);
    }

    /// A connection of this pool is open, and its host says what it is.
    fn connect(&mut self, pool: PoolId, primary: bool) -> ServerTag {
        self.connect_as(pool, primary, !primary)
    }

    /// The same, to one that may be neither of both.
    fn connect_as(&mut self, pool: PoolId, primary: bool, secondary: bool) -> ServerTag {
        let me = ServerTag(pool.0);
        self.out.clear();
        let server = self.mongodb.server_start(me, pool, &mut self.out);
        self.servers.0.insert(me.0, server);
        let mut hello = Vec::new();
        wire::answer(&mut hello, Answers { id: 1, old: true }, |answer| {
            answer.bool("ismaster", primary).bool("secondary", secondary).text("setName", "rs");
            answer.int32("maxWireVersion", 21).int32("logicalSessionTimeoutMinutes", 30).double("ok", 1.0);
        });
        self.say(me, &hello);
        me
    }

    /// The monitor of a host begins, and the host says what it is.
    fn watch(&mut self, host: usize, primary: bool) -> ServerTag {
        let me = self.connect(PoolId(MONITORS + host as u32), primary);
        assert!(self.did(|effect| *effect == Effect::Keep { server: me, briefly: false }));
        me
    }

    fn say(&mut self, server: ServerTag, bytes: &[u8]) {
        let session = self.servers.0.get_mut(&server.0).unwrap();
        self.out.clear();
        let input = Input { bytes, full: false, unread: false, now: self.now };
        assert_eq!(self.mongodb.server_input(server, session, &mut self.clients, input, &mut self.out), bytes.len());
    }

    /// A server answers Poolhouse's last question, or the client's, as an error with this code or as a success.
    fn answer(&mut self, server: ServerTag, id: i32, code: Option<i32>) {
        let mut bytes = Vec::new();
        wire::answer(&mut bytes, Answers { id, old: false }, |answer| match code {
            Some(code) => _ = answer.double("ok", 0.0).text("errmsg", "no").int32("code", code),
            None => _ = answer.double("ok", 1.0),
        });
        self.say(server, &bytes);
    }

    /// What the client was told in the last call, in which a server has said this.
    fn told(&self, said: &[u8]) -> Vec<u8> {
        let bytes = self.out.effects.iter().filter_map(|effect| match effect {
            Effect::Send { to: Peer::Client(_), bytes: Bytes::Insert(range) } => {
                Some(&self.out.inserted[range.clone()])
            }
            Effect::Send { to: Peer::Client(_), bytes: Bytes::Span(range) } => Some(&said[range.clone()]),
            _ => None,
        });
        bytes.flatten().copied().collect()
    }

    /// The client asks for what has a cursor, which its host opens with this id.
    fn open(&mut self, server: ServerTag, id: i64) {
        self.send(server, |body| _ = body.text("find", "things").text("$db", "app"));
        let answers = Answers { id: self.last_id, old: false };
        let mut bytes = Vec::new();
        wire::answer(&mut bytes, answers, |answer| {
            answer.document("cursor", |cursor| _ = cursor.array("firstBatch", |_| ()).int64("id", id));
            answer.double("ok", 1.0);
        });
        self.say(server, &bytes);
    }

    fn did(&self, what: impl Fn(&Effect) -> bool) -> bool {
        self.out.effects.iter().any(what)
    }

    /// The pool of which the client wants a server.
    fn wanted(&self) -> Option<PoolId> {
        self.out.effects.iter().find_map(|effect| match effect {
            Effect::Lease { pool, .. } => Some(*pool),
            _ => None,
        })
    }

    /// The client says this. What is not taken comes again when it has a server.
    fn ask(&mut self, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        self.last_id += 1;
        let mut bytes = Vec::new();
        wire::request(&mut bytes, self.last_id, write);
        self.hear(&bytes);
        bytes
    }

    fn hear(&mut self, bytes: &[u8]) -> usize {
        let client = self.clients.0.get_mut(&CLIENT.0).unwrap();
        self.out.clear();
        let input = Input { bytes, full: false, unread: false, now: self.now };
        self.mongodb.client_input(CLIENT, client, &mut self.servers, input, &mut self.out)
    }

    /// The client's request goes to a server, which has it.
    fn send(&mut self, server: ServerTag, write: impl FnOnce(&mut Writer<'_>)) {
        let bytes = self.ask(write);
        self.grant(server, &bytes);
    }

    /// The client, which has said this, gets the server that it asked for.
    fn grant(&mut self, server: ServerTag, bytes: &[u8]) {
        assert_eq!(self.wanted(), Some(PoolId(server.0)));
        let client = self.clients.0.get_mut(&CLIENT.0).unwrap();
        let session = self.servers.0.get_mut(&server.0).unwrap();
        self.out.clear();
        self.mongodb.granted(CLIENT, client, server, session, &mut self.out);
        assert_eq!(self.hear(bytes), bytes.len());
    }

    /// The same, and it is answered so.
    fn exchange(&mut self, server: ServerTag, code: Option<i32>, write: impl FnOnce(&mut Writer<'_>)) {
        self.send(server, write);
        let id = self.last_id;
        self.answer(server, id, code);
        assert!(self.did(|effect| *effect == Effect::Release { server, verdict: Left::Clean }));
    }

    /// The command that was sent to a server on Poolhouse's own account in the last call, and its id.
    fn own(&self, server: ServerTag) -> Option<(String, i32)> {
        self.out.effects.iter().find_map(|effect| match effect {
            Effect::Send { to: Peer::Server(to), bytes: Bytes::Insert(range) } if *to == server => {
                let bytes = &self.out.inserted[range.clone()];
                let header = Header::read(bytes).unwrap().unwrap();
                let body: Document<'_> = wire::answered(bytes, &header).unwrap();
                Some((body.elements().next().unwrap().unwrap().name.to_owned(), header.id))
            }
            _ => None,
        })
    }

    /// What a server was sent in the last call, in which the client has said this.
    fn sent(&self, server: ServerTag, said: &[u8]) -> Vec<u8> {
        let bytes = self.out.effects.iter().filter_map(|effect| match effect {
            Effect::Send { to: Peer::Server(to), bytes } if *to == server => Some(match bytes {
                Bytes::Insert(range) => &self.out.inserted[range.clone()],
                Bytes::Span(range) => &said[range.clone()],
            }),
            _ => None,
        });
        bytes.flatten().copied().collect()
    }

    /// The client gets the server that it asked for, and all of its request is held here.
    fn grant_held(&mut self, server: ServerTag) {
        assert_eq!(self.wanted(), Some(PoolId(server.0)));
        let client = self.clients.0.get_mut(&CLIENT.0).unwrap();
        let session = self.servers.0.get_mut(&server.0).unwrap();
        self.out.clear();
        self.mongodb.granted(CLIENT, client, server, session, &mut self.out);
    }

    /// The connection of a server ends.
    fn lose(&mut self, server: ServerTag) {
        let session = self.servers.0.get_mut(&server.0).unwrap();
        self.out.clear();
        self.mongodb.server_gone(server, session, &mut self.clients, &mut self.out);
    }

    fn leave(&mut self) {
        let client = self.clients.0.get_mut(&CLIENT.0).unwrap();
        self.out.clear();
        self.mongodb.client_gone(CLIENT, client, &mut self.servers, &mut self.out);
    }

    /// The host of the client's transaction, as far as that is known.
    fn host_of_transaction(&self) -> Option<usize> {
        self.mongodb.transactions.host(&(Arc::from(""), SESSION), 1)
    }
}

/// A request about the client's transaction.
fn within(body: &mut Writer<'_>) {
    body.document("lsid", |lsid| _ = lsid.uuid("id", SESSION));
    body.int64("txnNumber", 1).bool("autocommit", false).text("$db", "admin");
}

fn begins(body: &mut Writer<'_>) {
    body.text("insert", "things").bool("startTransaction", true);
    within(body);
}

fn aborts(body: &mut Writer<'_>) {
    body.int32("abortTransaction", 1);
    within(body);
}

fn commits(body: &mut Writer<'_>) {
    body.int32("commitTransaction", 1);
    within(body);
}

/// What ends a transaction.
const ENDS: [fn(&mut Writer<'_>); 2] = [aborts, commits];

/// Longer than what is over is kept in mind.
const LONG: Duration = Duration::from_secs(61);

/// Codes of MongoDB's errors: `MaxTimeMSExpired`, `NoSuchTransaction`.
const EXPIRED: i32 = 50;
const NO_SUCH_TRANSACTION: i32 = 251;

#[test]
fn a_transaction_whose_end_is_refused_is_known_until_another_one_has_ended_it() {
    for ends in ENDS {
        let mut stage = Stage::new();
        let server = stage.connect(PoolId(0), true);
        stage.exchange(server, None, begins);
        stage.exchange(server, Some(EXPIRED), ends);
        stage.pass(LONG);
        assert_eq!(stage.host_of_transaction(), Some(0), "it may be open still, with its locks");
        assert!(stage.mongodb.transactions.may_hold_up(0));
        stage.exchange(server, None, ends);
        stage.pass(LONG);
        assert_eq!(stage.host_of_transaction(), None);
    }
}

#[test]
fn a_transaction_that_its_host_does_not_have_is_over_when_it_is_to_be_ended() {
    for ends in ENDS {
        let mut stage = Stage::new();
        let server = stage.connect(PoolId(0), true);
        stage.exchange(server, None, begins);
        stage.exchange(server, Some(NO_SUCH_TRANSACTION), ends);
        stage.pass(LONG);
        assert_eq!(stage.host_of_transaction(), None);
    }
}

#[test]
fn a_transaction_whose_end_has_no_answer_is_known_until_its_session_is_forgotten() {
    for ends in ENDS {
        let mut stage = Stage::new();
        let server = stage.connect(PoolId(0), true);
        stage.exchange(server, None, begins);
        stage.send(server, ends);
        stage.lose(server);
        stage.pass(LONG);
        assert_eq!(stage.host_of_transaction(), Some(0));
        stage.pass(30 * LONG);
        assert_eq!(stage.host_of_transaction(), None);
    }
}

#[test]
fn what_became_of_a_commit_that_fails_is_not_known_and_nobody_but_its_driver_aborts_it() {
    let mut stage = Stage::new();
    let server = stage.connect(PoolId(0), true);
    stage.ask(|body| _ = body.int32("hello", 1).bool("loadBalanced", true).text("$db", "admin"));
    stage.exchange(server, None, begins);
    stage.exchange(server, Some(EXPIRED), commits);
    stage.leave();
    assert!(!stage.did(|effect| matches!(effect, Effect::ResetOne { .. })));
    stage.pass(LONG);
    assert_eq!(stage.host_of_transaction(), Some(0));
}

/// A client whose driver believes in a load balancer has begun a transaction, and its abort was refused.
fn refused_behind_a_balancer() -> (Stage, ServerTag) {
    let mut stage = Stage::new();
    let server = stage.connect(PoolId(0), true);
    stage.ask(|body| _ = body.int32("hello", 1).bool("loadBalanced", true).text("$db", "admin"));
    stage.exchange(server, None, begins);
    stage.exchange(server, Some(EXPIRED), aborts);
    (stage, server)
}

#[test]
fn what_a_refused_abort_leaves_is_aborted_when_its_connection_ends() {
    let (mut stage, server) = refused_behind_a_balancer();
    stage.leave();
    assert!(stage.did(|effect| *effect == Effect::ResetOne { pool: PoolId(0) }));
    let session = stage.servers.0.get_mut(&server.0).unwrap();
    stage.out.clear();
    stage.mongodb.reset(server, session, &mut stage.out);
    let (command, id) = stage.own(server).unwrap();
    assert_eq!(command, "abortTransaction");
    stage.answer(server, id, None);
    assert!(stage.did(|effect| *effect == Effect::Ready { server }) && stage.own(server).is_none());
    stage.pass(LONG);
    assert_eq!(stage.host_of_transaction(), None);
}

#[test]
fn a_transaction_is_aborted_when_its_connection_ends_though_its_session_has_begun_another_elsewhere() {
    let mut stage = Stage::new();
    let server = stage.connect(PoolId(0), true);
    stage.ask(|body| _ = body.int32("hello", 1).bool("loadBalanced", true).text("$db", "admin"));
    stage.exchange(server, None, begins);
    stage.mongodb.transactions.begins((Arc::from(""), SESSION), 2, 1);
    stage.leave();
    assert!(stage.did(|effect| *effect == Effect::ResetOne { pool: PoolId(0) }));
    let session = stage.servers.0.get_mut(&server.0).unwrap();
    stage.out.clear();
    stage.mongodb.reset(server, session, &mut stage.out);
    assert_eq!(stage.own(server).unwrap().0, "abortTransaction");
}

#[test]
fn a_transaction_whose_first_statement_is_unanswered_is_aborted_though_its_session_has_begun_another_elsewhere() {
    for times_out in [false, true] {
        let mut stage = Stage::new();
        let server = stage.connect(PoolId(0), true);
        stage.ask(|body| _ = body.int32("hello", 1).bool("loadBalanced", true).text("$db", "admin"));
        stage.send(server, begins);
        stage.mongodb.transactions.begins((Arc::from(""), SESSION), 2, 1);
        if times_out {
            let client = stage.clients.0.get_mut(&CLIENT.0).unwrap();
            stage.mongodb.refuse(CLIENT, client, Refusal::QueryTimeout, &mut stage.out);
            assert!(stage.did(|effect| *effect == Effect::Release { server, verdict: Left::Discard }));
        }
        stage.leave();
        let chore = stage.mongodb.chores.take(PoolId(0)).expect("its host is to abort it");
        assert_eq!(chore.aborts(), Some(((Arc::from(""), SESSION), 1)), "{times_out}");
    }
}

#[test]
fn an_abort_of_poolhouses_own_that_is_refused_is_asked_for_once_more() {
    for (codes, known) in [([EXPIRED, EXPIRED], Some(0)), ([EXPIRED, NO_SUCH_TRANSACTION], None)] {
        let (mut stage, server) = refused_behind_a_balancer();
        stage.leave();
        let session = stage.servers.0.get_mut(&server.0).unwrap();
        stage.out.clear();
        stage.mongodb.reset(server, session, &mut stage.out);
        for (turn, code) in codes.into_iter().enumerate() {
            let (command, id) = stage.own(server).unwrap_or_else(|| panic!("turn {turn}"));
            assert_eq!(command, "abortTransaction");
            stage.answer(server, id, Some(code));
        }
        assert!(stage.own(server).is_none() && stage.did(|effect| *effect == Effect::Ready { server }));
        stage.pass(LONG);
        assert_eq!(stage.host_of_transaction(), known);
    }
}

#[test]
fn a_host_that_a_new_configuration_adds_is_used_as_soon_as_it_has_said_what_it_is() {
    let mut stage = Stage::new();
    stage.pass(Duration::from_secs(10));
    stage.doors.0.lock().unwrap().push(1);
    let monitor = stage.watch(1, false);
    assert!(stage.mongodb.topology().is_up(1));
    stage.ask(|body| {
        body.text("find", "things").text("$db", "app");
        body.document("$readPreference", |preference| _ = preference.text("mode", "secondary"));
    });
    assert_eq!(stage.wanted(), Some(PoolId(1)));
    stage.pass(topology::BEAT);
    assert!(stage.did(|effect| matches!(effect, Effect::Post { to, .. } if *to == Peer::Server(monitor))));
    // One that is no longer configured is none that says so.
    *stage.doors.0.lock().unwrap() = vec![0];
    stage.pass(topology::BEAT);
    stage.watch(1, false);
    assert!(!stage.mongodb.topology().is_up(1));
}

fn get_more(id: i64) -> impl FnOnce(&mut Writer<'_>) {
    move |body| _ = body.int64("getMore", id).text("collection", "things").text("$db", "app")
}

#[test]
fn a_change_of_state_in_a_long_answer_is_told_in_another_number_and_its_host_is_asked() {
    let mut stage = Stage::new();
    let server = stage.connect(PoolId(0), true);
    stage.send(server, |body| _ = body.text("insert", "things").text("$db", "app"));
    let answers = Answers { id: stage.last_id, old: false };
    let answered = |code: i32| {
        let mut bytes = Vec::new();
        wire::answer(&mut bytes, answers, |answer| {
            answer.array("writeErrors", |errors| {
                for index in 0..200 {
                    let text = "E11000 duplicate key error ".repeat(5);
                    errors.document(&index.to_string(), |error| _ = error.int32("code", 11_000).text("errmsg", &text));
                }
            });
            answer.document("writeConcernError", |error| _ = error.int32("code", code).text("errmsg", "down"));
            answer.double("ok", 1.0);
        });
        bytes
    };
    let said = answered(91);
    stage.say(server, &said);
    assert!(stage.told(&said) == answered(6), "code 91 passed");
    assert!(stage.did(|effect| matches!(effect, Effect::Post { to: Peer::Server(_), .. })), "its monitor asks");
    assert!(stage.did(|effect| *effect == Effect::Release { server, verdict: Left::Clean }));
}

#[test]
fn a_server_that_says_more_behind_an_error_serves_nobody_else() {
    let mut stage = Stage::new();
    let server = stage.connect(PoolId(0), true);
    stage.open(server, 5);
    for code in [91, 50] {
        stage.last_id += 1;
        let mut bytes = Vec::new();
        wire::request(&mut bytes, stage.last_id, get_more(5));
        bytes[wire::HEADER..wire::HEADER + 4].copy_from_slice(&wire::EXHAUST_ALLOWED.to_le_bytes());
        stage.hear(&bytes);
        stage.grant(server, &bytes);
        let mut said = Vec::new();
        wire::answer(&mut said, Answers { id: stage.last_id, old: false }, |answer| {
            answer.double("ok", 0.0).text("errmsg", "no").int32("code", code);
        });
        said[wire::HEADER..wire::HEADER + 4].copy_from_slice(&wire::MORE_TO_COME.to_le_bytes());
        stage.say(server, &said);
        assert!(!stage.did(|effect| matches!(effect, Effect::Release { .. })), "{code}");
        assert!(stage.did(|effect| matches!(effect, Effect::Close { peer: Peer::Server(_), .. })), "{code}");
        // As if nothing had happened, for the next.
        stage = Stage::new();
        stage.connect(PoolId(0), true);
        stage.open(server, 5);
    }
}

#[test]
fn a_cursor_that_its_host_does_not_know_is_forgotten() {
    let mut stage = Stage::new();
    let server = stage.connect(PoolId(0), true);
    stage.open(server, 5);
    let user = Arc::from("");
    assert!(stage.mongodb.cursors.knows(&user, 5));
    stage.exchange(server, Some(EXPIRED), get_more(5));
    assert!(stage.mongodb.cursors.knows(&user, 5), "it may go on");
    stage.exchange(server, Some(43), get_more(5));
    assert!(!stage.mongodb.cursors.knows(&user, 5));
}

#[test]
fn nobody_is_told_that_a_request_does_not_come_which_has_come() {
    let mut stage = Stage::new();
    let server = stage.connect(PoolId(0), true);
    // Documents before the body: where it goes is not known before that is there.
    let documents = [&[1][..], &14i32.to_le_bytes(), b"docs\0", &[5, 0, 0, 0, 0]].concat();
    let mut bytes = Vec::new();
    wire::request(&mut bytes, 1, |body| _ = body.text("insert", "things").text("$db", "app"));
    bytes.splice(wire::HEADER + 4..wire::HEADER + 4, documents);
    let length = i32::try_from(bytes.len()).unwrap();
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    let hear_full = |stage: &mut Stage, bytes: &[u8]| {
        let client = stage.clients.0.get_mut(&CLIENT.0).unwrap();
        stage.out.clear();
        let input = Input { bytes, full: true, unread: false, now: stage.now };
        assert_eq!(stage.mongodb.client_input(CLIENT, client, &mut stage.servers, input, &mut stage.out), bytes.len());
    };
    hear_full(&mut stage, &bytes[..30]);
    stage.pass(LONG / 3);
    hear_full(&mut stage, &bytes[30..]);
    stage.grant(server, &[]);
    stage.pass(LONG);
    assert!(!stage.did(|effect| matches!(effect, Effect::Post { to: Peer::Client(_), .. })));
}

#[test]
fn a_pipeline_of_more_stages_than_there_may_be_is_not_looked_at_to_its_end() {
    for (stages, pool) in [(1_000, PoolId(1)), (1_001, PoolId(0))] {
        let mut stage = Stage::new();
        stage.doors.0.lock().unwrap().push(1);
        stage.pass(topology::BEAT);
        stage.watch(1, false);
        stage.ask(|body| {
            body.text("aggregate", "things").text("$db", "app");
            body.array("pipeline", |pipeline| {
                for number in 0..stages {
                    pipeline.document(&number.to_string(), |one| _ = one.document("$match", |_| {}));
                }
            });
            body.document("$readPreference", |preference| _ = preference.text("mode", "secondary"));
        });
        assert_eq!(stage.wanted(), Some(pool), "{stages}");
    }
}
