//! Scripted clients and servers, without a driver, a socket or a clock.

use std::collections::BTreeMap;

use seam::{Bytes, Encryption, Peer, Verdict as Left};

use super::*;
use crate::{
    bson::{Document, Writer},
    wire::{Answers, Header},
};

mod broadcasts;
mod checksums;
mod replies;
mod requests;
mod transactions;
mod waiting;

/// The pool of a host's monitor has the host's number plus this.
const MONITORS: u32 = 100;

const SESSION: [u8; 16] = [7; 16];

/// Clients need not log in. These hosts are configured.
struct Doors(Mutex<Vec<usize>>);

impl Directory for Doors {
    fn encryption(&self, _: u16) -> Encryption {
        Encryption::Off
    }

    fn welcome(&self, _: Origin) -> Welcome {
        Welcome::Open
    }

    fn verifiers(&self, _: &str) -> Option<Verifiers> {
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

    fn note_expired_cleanup(&self, _: PoolId, _: usize) {}

    fn replica_set(&self) -> Option<Arc<str>> {
        None
    }

    fn shares_login(&self) -> bool {
        false
    }

    fn local_threshold(&self) -> Duration {
        LOCAL_THRESHOLD
    }

    fn unavailable_wait(&self) -> Duration {
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

/// The protocol object, one client, and the effects of the last call.
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
        let client = stage.mongodb.client_start(
            CLIENT,
            Origin { listener: 0, address: None, port: 0, uid: None },
            &mut stage.out,
        );
        stage.clients.0.insert(CLIENT.0, client);
        stage.pass(Duration::ZERO);
        stage.watch(0, true);
        stage
    }

    /// The same with a server connection of the primary.
    fn with_server() -> (Self, ServerTag) {
        let mut stage = Self::new();
        let server = stage.connect(PoolId(0), true);
        (stage, server)
    }

    /// As [`Self::new`], with more hosts, which are secondaries. Each has a server connection.
    fn with_hosts(count: usize) -> (Self, Vec<ServerTag>) {
        let mut stage = Self::new();
        stage.doors.0.lock().unwrap().extend(1..count);
        stage.pass(topology::HEARTBEAT_INTERVAL);
        (1..count).for_each(|host| _ = stage.watch(host, false));
        let servers = (0..count).map(|host| stage.connect(PoolId(host as u32), host == 0)).collect();
        (stage, servers)
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.out.clear();
        self.mongodb.on_tick(self.now, &mut self.out);
    }

    fn connect(&mut self, pool: PoolId, primary: bool) -> ServerTag {
        self.connect_as(pool, primary, !primary)
    }

    /// The same for a host that may be neither primary nor secondary.
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

    /// Starts the monitor of a host, which replies to `hello`.
    fn watch(&mut self, host: usize, primary: bool) -> ServerTag {
        let me = self.connect(PoolId(MONITORS + host as u32), primary);
        assert!(self.did(|effect| *effect == Effect::Retain { server: me, briefly: false }));
        me
    }

    fn say(&mut self, server: ServerTag, bytes: &[u8]) {
        let session = self.servers.0.get_mut(&server.0).unwrap();
        self.out.clear();
        let input = Input { bytes, full: false, unread: false, now: self.now };
        assert_eq!(self.mongodb.server_input(server, session, &mut self.clients, input, &mut self.out), bytes.len());
    }

    /// A server replies to the request `id` with this error code, or with success.
    fn answer(&mut self, server: ServerTag, id: i32, code: Option<i32>) {
        let mut bytes = Vec::new();
        wire::answer(&mut bytes, Answers { id, old: false }, |answer| match code {
            Some(code) => _ = answer.double("ok", 0.0).text("errmsg", "no").int32("code", code),
            None => _ = answer.double("ok", 1.0),
        });
        self.say(server, &bytes);
    }

    /// What the client was sent in the last call, in which a server sent `said`.
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

    /// The client opens a cursor, to which the host gives this id.
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

    fn wanted(&self) -> Option<PoolId> {
        self.out.effects.iter().find_map(|effect| match effect {
            Effect::Lease { pool, .. } => Some(*pool),
            _ => None,
        })
    }

    /// The client sends a command. The driver shows it again when there is a server.
    fn ask(&mut self, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        self.last_id += 1;
        let mut bytes = Vec::new();
        wire::request(&mut bytes, self.last_id, write);
        self.hear(&bytes);
        bytes
    }

    fn hear(&mut self, bytes: &[u8]) -> usize {
        self.hear_from(bytes, false)
    }

    /// The driver shows all that it can hold, and the session takes it.
    fn hear_full(&mut self, bytes: &[u8]) {
        assert_eq!(self.hear_from(bytes, true), bytes.len());
    }

    fn hear_from(&mut self, bytes: &[u8], full: bool) -> usize {
        let client = self.clients.0.get_mut(&CLIENT.0).unwrap();
        self.out.clear();
        let input = Input { bytes, full, unread: false, now: self.now };
        self.mongodb.client_input(CLIENT, client, &mut self.servers, input, &mut self.out)
    }

    fn send(&mut self, server: ServerTag, write: impl FnOnce(&mut Writer<'_>)) {
        let bytes = self.ask(write);
        self.grant(server, &bytes);
    }

    /// Gives the client, which has sent `bytes`, the server that it asked for.
    fn grant(&mut self, server: ServerTag, bytes: &[u8]) {
        self.grant_held(server);
        assert_eq!(self.hear(bytes), bytes.len());
    }

    fn exchange(&mut self, server: ServerTag, code: Option<i32>, write: impl FnOnce(&mut Writer<'_>)) {
        self.send(server, write);
        let id = self.last_id;
        self.answer(server, id, code);
        assert!(self.did(|effect| *effect == Effect::Release { server, verdict: Left::Clean }));
    }

    fn own(&self, server: ServerTag) -> Option<(String, i32)> {
        self.out.effects.iter().find_map(|effect| match effect {
            Effect::Send { to: Peer::Server(to), bytes: Bytes::Insert(range) } if *to == server => {
                let bytes = &self.out.inserted[range.clone()];
                let header = Header::read(bytes).unwrap().unwrap();
                let body: Document<'_> = wire::reply_document(bytes, &header).unwrap();
                Some((body.elements().next().unwrap().unwrap().name.to_owned(), header.id))
            }
            _ => None,
        })
    }

    /// What a server was sent in the last call, in which the client sent `said`.
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

    /// Gives the client the server that it asked for. The session holds all of the request.
    fn grant_held(&mut self, server: ServerTag) {
        assert_eq!(self.wanted(), Some(PoolId(server.0)));
        let client = self.clients.0.get_mut(&CLIENT.0).unwrap();
        let session = self.servers.0.get_mut(&server.0).unwrap();
        self.out.clear();
        self.mongodb.granted(CLIENT, client, server, session, &mut self.out);
    }

    fn refuse(&mut self, why: Refusal) {
        let client = self.clients.0.get_mut(&CLIENT.0).unwrap();
        self.out.clear();
        self.mongodb.refuse(CLIENT, client, why, &mut self.out);
    }

    /// Has a server carry out the next cleanup task.
    fn reset(&mut self, server: ServerTag) {
        let session = self.servers.0.get_mut(&server.0).unwrap();
        self.out.clear();
        self.mongodb.reset(server, session, &mut self.out);
    }

    /// The number and the text of the error that the client was sent in the last call, and whether it has a label.
    fn error(&self) -> (i64, String, bool) {
        let told = self.told(&[]);
        let header = Header::read(&told).unwrap().unwrap();
        assert_eq!((header.answers, header.length), (self.last_id, told.len()), "one reply to the last request");
        let body = wire::reply_document(&told, &header).unwrap();
        let text = body.get("errmsg").unwrap().unwrap().text().unwrap().to_owned();
        (body.get("code").unwrap().unwrap().integer().unwrap(), text, body.get("errorLabels").unwrap().is_some())
    }

    /// A client of a driver with `loadBalanced=true`, and a server of the primary.
    fn behind_a_balancer() -> (Self, ServerTag) {
        let (mut stage, server) = Self::with_server();
        stage.ask(|body| _ = body.int32("hello", 1).bool("loadBalanced", true).text("$db", "admin"));
        (stage, server)
    }

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

    fn host_of_transaction(&self) -> Option<usize> {
        self.mongodb.transactions.host(&(Arc::from(""), SESSION), 1)
    }
}

fn finds(body: &mut Writer<'_>) {
    body.text("find", "things").text("$db", "app");
    prefers_secondary(body);
}

fn prefers_secondary(body: &mut Writer<'_>) {
    body.document("$readPreference", |preference| _ = preference.text("mode", "secondary"));
}

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

/// Longer than the table of transactions keeps those that have ended.
const LONG: Duration = Duration::from_secs(61);

/// Codes of MongoDB's errors: `MaxTimeMSExpired`, `NoSuchTransaction`.
const EXPIRED: i32 = 50;
const NO_SUCH_TRANSACTION: i32 = 251;

fn get_more(id: i64) -> impl FnOnce(&mut Writer<'_>) {
    move |body| _ = body.int64("getMore", id).text("collection", "things").text("$db", "app")
}
