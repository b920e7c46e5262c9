//! A small driver for tests: it executes the effects of the protocol in order, as the contract says, and hands bytes
//! over in whatever pieces a test wants. Servers are fed by the test.

#![allow(dead_code)]

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use postgres::{
    Client, Directory, Encryption, Look, PoolMode, Postgres, Proof, ResetPolicy, Route, Server, ServerEncryption,
    ServerLogin, StatePolicy, Unknown,
};
use protocol::{
    Bytes, ClientTag, CloseReason, Effect, Input, LeaseFailure, Origin, Outbox, Peer, PoolId, Protocol, Refusal,
    Secured, ServerTag, Sessions, Standing, Verdict,
};

/// The only pool.
pub const POOL: PoolId = PoolId(7);

/// Pieces in which input arrives.
#[derive(Clone, Copy, Debug)]
pub enum Pieces {
    Whole,
    /// Each input arrives in two pieces, split here.
    SplitAt(usize),
    /// Each input arrives in pieces of this size.
    Of(usize),
}

/// One end of a connection.
pub struct End<S> {
    pub session: S,
    /// Sent to it.
    pub received: Vec<u8>,
    /// Sent by it and not consumed.
    pub held: Vec<u8>,
    /// The session need not see less.
    pub need: usize,
    pub closed: Option<CloseReason>,
    pub waiting: bool,
    pub standing: Standing,
    pub logged_in: bool,
}

pub struct Table<S>(pub BTreeMap<u32, End<S>>);

impl Sessions<ClientTag, Client> for Table<Client> {
    fn get(&mut self, tag: ClientTag) -> Option<&mut Client> {
        self.0.get_mut(&tag.0).map(|end| &mut end.session)
    }
}

impl Sessions<ServerTag, Server> for Table<Server> {
    fn get(&mut self, tag: ServerTag) -> Option<&mut Server> {
        self.0.get_mut(&tag.0).map(|end| &mut end.session)
    }
}

/// Lets everybody in as the test says.
pub struct Doors {
    pub mode: PoolMode,
    pub proof: Proof,
    pub password: Option<Arc<str>>,
    pub encryption: Encryption,
    pub server_encryption: ServerEncryption,
    pub state: StatePolicy,
}

impl Doors {
    pub fn new(mode: PoolMode, proof: Proof, password: Option<Arc<str>>) -> Self {
        let server_encryption = ServerEncryption::default();
        // No database is asked for its catalogue, unless a test is about that.
        let state = StatePolicy { reset: ResetPolicy::Never, ..StatePolicy::default() };
        Self { mode, proof, password, encryption: Encryption::Off, server_encryption, state }
    }
}

impl Directory for Doors {
    fn proof(&self, origin: Origin, _: &str, user: &str) -> Result<Proof, Unknown> {
        match user {
            "nobody" => Err(Unknown::User),
            "remote" => Err(Unknown::Forbidden(format!("only from loopback: {}", origin.is_local()))),
            _ => Ok(self.proof.clone()),
        }
    }

    fn route(&self, database: &str, _: &str) -> Result<Route, Unknown> {
        if database == "nowhere" {
            Err(Unknown::Database)
        } else {
            Ok(Route { pool: POOL, mode: self.mode, pass_through: self.password.is_none(), add_host: false })
        }
    }

    fn answered(&self, _: &str, _: &str, stored: Option<&str>) -> Result<Proof, Unknown> {
        stored.map(|hash| Proof::Md5(hash.into())).ok_or(Unknown::User)
    }

    fn looks(&self, _: &str) -> Vec<Look> {
        match &self.proof {
            Proof::Md5(_) => vec![Look::Md5],
            Proof::Scram(verifier) => vec![Look::Scram(verifier.shape())],
            Proof::Trust | Proof::Certificate | Proof::Ask(_) => Vec::new(),
        }
    }

    fn refuted(&self, _: &str, _: &str) {}

    fn catalogue_read(&self, _: PoolId, _: &[String]) {}

    fn server_login(&self, pool: PoolId) -> ServerLogin {
        assert_eq!(pool, POOL);
        ServerLogin {
            database: "db".into(),
            user: "app".into(),
            password: self.password.clone(),
            parameters: vec![("application_name".into(), "ph".into())],
            mode: self.mode,
            state: self.state,
            encryption: self.server_encryption,
            ..ServerLogin::default()
        }
    }

    fn encryption(&self, _: u16) -> Encryption {
        self.encryption
    }
}

pub struct World {
    pub postgres: Postgres,
    pub clients: Table<Client>,
    pub servers: Table<Server>,
    pub idle: VecDeque<ServerTag>,
    pub waiters: VecDeque<ClientTag>,
    pub pieces: Pieces,
    /// Somebody is always there to take a soiled server at once.
    pub hurried: bool,
    /// Most bytes held for one connection.
    pub max_held: usize,
    /// Everything that happened except sends, in words.
    pub log: Vec<String>,
    /// Bytes of side connections.
    pub side: Vec<(ServerTag, Vec<u8>)>,
    /// Connections whose TLS handshake was begun, in order.
    pub handshakes: Vec<Peer>,
    pub auth_failures: usize,
    /// Servers that were given back, and how.
    pub releases: Vec<(ServerTag, Verdict)>,
    grants: VecDeque<(ServerTag, ClientTag)>,
    lost: VecDeque<ServerTag>,
    wakes: VecDeque<ClientTag>,
    resets: VecDeque<ServerTag>,
    gone: VecDeque<ClientTag>,
    posts: VecDeque<(Peer, u64, Vec<u8>)>,
    next: u32,
}

impl World {
    pub fn new(doors: Doors) -> Self {
        Self {
            postgres: Postgres::new(Arc::new(doors)),
            clients: Table(BTreeMap::new()),
            servers: Table(BTreeMap::new()),
            idle: VecDeque::new(),
            waiters: VecDeque::new(),
            pieces: Pieces::Whole,
            hurried: false,
            max_held: 16 * 1024,
            log: Vec::new(),
            side: Vec::new(),
            handshakes: Vec::new(),
            auth_failures: 0,
            releases: Vec::new(),
            grants: VecDeque::new(),
            lost: VecDeque::new(),
            wakes: VecDeque::new(),
            resets: VecDeque::new(),
            gone: VecDeque::new(),
            posts: VecDeque::new(),
            next: 1,
        }
    }

    pub fn trusting(mode: PoolMode) -> Self {
        Self::new(Doors::new(mode, Proof::Trust, None))
    }

    fn end<S>(session: S) -> End<S> {
        End {
            session,
            received: Vec::new(),
            held: Vec::new(),
            need: 0,
            closed: None,
            waiting: false,
            standing: Standing::Login,
            logged_in: false,
        }
    }

    pub fn connect_client(&mut self) -> ClientTag {
        let tag = ClientTag(self.next);
        self.next += 1;
        let mut out = Outbox::new();
        let session = self.postgres.client_start(tag, Origin { listener: 0, address: None, port: 0 }, &mut out);
        self.clients.0.insert(tag.0, Self::end(session));
        self.execute(&out, &[]);
        tag
    }

    pub fn connect_server(&mut self) -> ServerTag {
        let tag = ServerTag(self.next);
        self.next += 1;
        let mut out = Outbox::new();
        let session = self.postgres.server_start(tag, POOL, &mut out);
        self.servers.0.insert(tag.0, Self::end(session));
        self.execute(&out, &[]);
        tag
    }

    /// The client's TLS handshake is done.
    pub fn client_secured(&mut self, tag: ClientTag, secured: Secured) {
        assert_eq!(self.handshakes.pop(), Some(Peer::Client(tag)));
        let mut out = Outbox::new();
        self.postgres.client_secured(tag, &mut self.clients.0.get_mut(&tag.0).unwrap().session, secured, &mut out);
        self.execute(&out, &[]);
        self.settle();
    }

    /// The server's TLS handshake is done.
    pub fn server_secured(&mut self, tag: ServerTag, secured: Secured) {
        assert_eq!(self.handshakes.pop(), Some(Peer::Server(tag)));
        let mut out = Outbox::new();
        self.postgres.server_secured(tag, &mut self.servers.0.get_mut(&tag.0).unwrap().session, secured, &mut out);
        self.execute(&out, &[]);
        self.settle();
    }

    /// The client sends bytes.
    pub fn client_says(&mut self, tag: ClientTag, bytes: &[u8]) {
        for piece in self.cut(bytes) {
            let Some(end) = self.clients.0.get_mut(&tag.0) else { return };
            end.held.extend_from_slice(&piece);
            if end.held.len() >= end.need.min(self.max_held) {
                self.pump_client(tag);
            }
            self.settle();
        }
    }

    /// The server sends bytes.
    pub fn server_says(&mut self, tag: ServerTag, bytes: &[u8]) {
        for piece in self.cut(bytes) {
            let Some(end) = self.servers.0.get_mut(&tag.0) else { return };
            end.held.extend_from_slice(&piece);
            if end.held.len() >= end.need.min(self.max_held) {
                self.pump_server(tag);
            }
            self.settle();
        }
    }

    fn cut(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        match self.pieces {
            Pieces::Whole => vec![bytes.to_vec()],
            Pieces::SplitAt(at) if at < bytes.len() => vec![bytes[..at].to_vec(), bytes[at..].to_vec()],
            Pieces::SplitAt(_) => vec![bytes.to_vec()],
            Pieces::Of(size) => bytes.chunks(size).map(<[u8]>::to_vec).collect(),
        }
    }

    pub fn client_leaves(&mut self, tag: ClientTag) {
        self.drop_client(tag);
        self.settle();
    }

    pub fn server_dies(&mut self, tag: ServerTag) {
        let Some(mut end) = self.servers.0.remove(&tag.0) else { return };
        self.idle.retain(|idle| *idle != tag);
        if end.closed.is_none() {
            let mut out = Outbox::new();
            self.postgres.server_gone(tag, &mut end.session, &mut self.clients, &mut out);
            for effect in &out.effects {
                if let Effect::Close { peer: Peer::Server(_), reason } = effect {
                    self.log.push(format!("lost {reason:?}"));
                }
            }
            out.effects.retain(|effect| !matches!(effect, Effect::Close { peer: Peer::Server(_), .. }));
            self.execute(&out, &[]);
        }
        self.settle();
    }

    fn tell_lost(&mut self, tag: ServerTag) {
        let Some(end) = self.servers.0.get_mut(&tag.0) else { return };
        let mut out = Outbox::new();
        self.postgres.server_gone(tag, &mut end.session, &mut self.clients, &mut out);
        assert!(!out.effects.iter().any(|effect| matches!(effect, Effect::Lease { .. })), "a holder cannot lease");
        self.execute(&out, &[]);
    }

    /// A server that was on its way when the client's request was withdrawn comes to it all the same.
    pub fn grant_late(&mut self, server: ServerTag, client: ClientTag) {
        self.idle.retain(|idle| *idle != server);
        let mut out = Outbox::new();
        let holder = &mut self.clients.0.get_mut(&client.0).unwrap().session;
        let session = &mut self.servers.0.get_mut(&server.0).unwrap().session;
        self.postgres.granted(client, holder, server, session, &mut out);
        self.execute(&out, &[]);
        self.settle();
    }

    /// A server is free.
    fn offer(&mut self, server: ServerTag) {
        if self.servers.0.get(&server.0).is_none_or(|end| end.closed.is_some()) {
            return;
        }
        match self.waiters.pop_front() {
            Some(client) => self.grants.push_back((server, client)),
            None => self.idle.push_front(server),
        }
    }

    pub fn refuse(&mut self, tag: ClientTag, why: Refusal) {
        let mut out = Outbox::new();
        let end = self.clients.0.get_mut(&tag.0).unwrap();
        self.postgres.refuse(tag, &mut end.session, why, &mut out);
        self.execute(&out, &[]);
        self.client_leaves(tag);
    }

    pub fn fail_lease(&mut self, tag: ClientTag, why: LeaseFailure) {
        self.waiters.retain(|waiter| *waiter != tag);
        let mut out = Outbox::new();
        let end = self.clients.0.get_mut(&tag.0).unwrap();
        assert!(std::mem::take(&mut end.waiting));
        self.postgres.lease_failed(tag, &mut end.session, why, &mut out);
        self.execute(&out, &[]);
        self.pump_client(tag);
        self.settle();
    }

    pub fn cancel(&mut self, tag: ClientTag, secret: u64) {
        let mut out = Outbox::new();
        let Some(end) = self.clients.0.get_mut(&tag.0) else { return };
        let waiting = end.waiting;
        self.postgres.cancel(tag, &mut end.session, &mut self.servers, secret, waiting, &mut out);
        self.execute(&out, &[]);
        self.settle();
    }

    pub fn check(&mut self, tag: ServerTag) {
        self.idle.retain(|idle| *idle != tag);
        let mut out = Outbox::new();
        let end = self.servers.0.get_mut(&tag.0).unwrap();
        self.postgres.check(tag, &mut end.session, &mut out);
        self.execute(&out, &[]);
    }

    fn pump_client(&mut self, tag: ClientTag) {
        loop {
            let Some(end) = self.clients.0.get_mut(&tag.0) else { return };
            if end.waiting || end.closed.is_some() || end.held.is_empty() {
                return;
            }
            let held = std::mem::take(&mut end.held);
            let input = Input { bytes: &held, full: held.len() >= self.max_held, unread: false };
            let mut out = Outbox::new();
            let consumed = self.postgres.client_input(tag, &mut end.session, &mut self.servers, input, &mut out);
            let end = self.clients.0.get_mut(&tag.0).unwrap();
            (end.held, end.need) = (held[consumed..].to_vec(), out.need);
            self.execute(&out, &held);
            if consumed == 0 || consumed == held.len() {
                return;
            }
        }
    }

    fn pump_server(&mut self, tag: ServerTag) {
        let Some(end) = self.servers.0.get_mut(&tag.0) else { return };
        if end.closed.is_some() || end.held.is_empty() {
            return;
        }
        let held = std::mem::take(&mut end.held);
        let input = Input { bytes: &held, full: held.len() >= self.max_held, unread: false };
        let mut out = Outbox::new();
        let consumed = self.postgres.server_input(tag, &mut end.session, &mut self.clients, input, &mut out);
        let closed = out.effects.iter().any(|e| {
            matches!(e, Effect::Close { peer: Peer::Server(s), .. } if *s == tag)
                || matches!(e, Effect::Release { server, verdict: Verdict::Discard } if *server == tag)
        });
        assert!(!input.full || consumed > 0 || closed, "a full buffer is consumed or closed");
        let end = self.servers.0.get_mut(&tag.0).unwrap();
        (end.held, end.need) = (held[consumed..].to_vec(), out.need);
        self.execute(&out, &held);
    }

    fn send(&mut self, to: Peer, bytes: &[u8]) {
        match to {
            Peer::Client(tag) => {
                if let Some(end) = self.clients.0.get_mut(&tag.0)
                    && end.closed.is_none()
                {
                    end.received.extend_from_slice(bytes);
                }
            }
            Peer::Server(tag) => {
                let end = self.servers.0.get_mut(&tag.0).expect("sent to a server that exists");
                end.received.extend_from_slice(bytes);
            }
        }
    }

    fn execute(&mut self, out: &Outbox, input: &[u8]) {
        for effect in &out.effects {
            match effect.clone() {
                Effect::Send { to, bytes: Bytes::Span(span) } => self.send(to, &input[span]),
                Effect::Send { to, bytes: Bytes::Insert(span) } => self.send(to, &out.inserted[span]),
                Effect::Lease { client, pool, .. } => {
                    assert_eq!(pool, POOL);
                    let end = self.clients.0.get_mut(&client.0).unwrap();
                    assert!(!end.waiting, "one lease at a time");
                    end.waiting = true;
                    match self.idle.pop_front() {
                        Some(server) => self.grants.push_back((server, client)),
                        None => self.waiters.push_back(client),
                    }
                    self.log.push(format!("lease {}", client.0));
                }
                Effect::Release { server, verdict } => {
                    self.log.push(format!("release {} {verdict:?}", server.0));
                    self.releases.push((server, verdict));
                    match verdict {
                        Verdict::Clean => self.offer(server),
                        Verdict::Soiled if self.hurried => self.offer(server),
                        // Nobody takes it for a millisecond.
                        Verdict::Soiled | Verdict::Reset => self.resets.push_back(server),
                        Verdict::Discard => {
                            self.servers.0.get_mut(&server.0).unwrap().closed = Some(CloseReason::Done);
                        }
                    }
                }
                Effect::Ready { server } => {
                    self.log.push(format!("ready {}", server.0));
                    self.offer(server);
                }
                Effect::Standing { client, standing } => {
                    if let Some(end) = self.clients.0.get_mut(&client.0) {
                        end.standing = standing;
                    }
                }
                Effect::Wake { client } => self.wakes.push_back(client),
                Effect::TellSent { .. } => unreachable!("the protocol never asks"),
                Effect::LoggedIn { client, pool } => {
                    assert_eq!(pool, POOL);
                    self.clients.0.get_mut(&client.0).unwrap().logged_in = true;
                }
                Effect::AuthFailed { .. } => self.auth_failures += 1,
                Effect::Cancel { asker, target, secret } => {
                    self.log.push(format!("cancel {} {secret}", target.0));
                    self.clients.0.get_mut(&asker.0).unwrap().closed = Some(CloseReason::Done);
                    self.gone.push_back(asker);
                }
                Effect::SideConnection { server, bytes, .. } => {
                    self.side.push((server, out.inserted[bytes].to_vec()));
                }
                Effect::Withdraw { client } => {
                    self.waiters.retain(|waiter| *waiter != client);
                    self.clients.0.get_mut(&client.0).unwrap().waiting = false;
                }
                Effect::Close { peer: Peer::Client(tag), reason } => {
                    if let Some(end) = self.clients.0.get_mut(&tag.0) {
                        end.closed = Some(reason);
                        self.gone.push_back(tag);
                    }
                }
                Effect::Close { peer: Peer::Server(tag), reason } => {
                    self.idle.retain(|idle| *idle != tag);
                    self.servers.0.get_mut(&tag.0).unwrap().closed = Some(reason);
                    self.lost.push_back(tag);
                }
                Effect::Authenticated { server } => self.log.push(format!("authenticated {}", server.0)),
                Effect::Outdated { server } => self.log.push(format!("outdated {}", server.0)),
                Effect::StartTls { peer } => self.handshakes.push(peer),
                Effect::Pinned { .. } => {}
                Effect::Keep { server, .. } => self.log.push(format!("keep {}", server.0)),
                Effect::Leave { .. } => panic!("a server of PostgreSQL is never shared"),
                Effect::Survey { .. } => panic!("sessions of PostgreSQL ask nobody"),
                Effect::Post { to, key, bytes } => self.posts.push_back((to, key, out.inserted[bytes].to_vec())),
            }
        }
    }

    /// Executes what follows from effects: grants, resets, wakes, departures.
    pub fn settle(&mut self) {
        loop {
            if let Some(tag) = self.gone.pop_front() {
                self.tell_gone(tag);
            } else if let Some(tag) = self.resets.pop_front() {
                let mut out = Outbox::new();
                let end = self.servers.0.get_mut(&tag.0).unwrap();
                self.postgres.reset(tag, &mut end.session, &mut out);
                self.execute(&out, &[]);
            } else if let Some(tag) = self.wakes.pop_front() {
                self.pump_client(tag);
            } else if let Some((server, client)) = self.grants.pop_front() {
                let mut out = Outbox::new();
                let Some(holder) = self.clients.0.get_mut(&client.0).filter(|end| end.waiting) else {
                    self.offer(server);
                    continue;
                };
                holder.waiting = false;
                let end = self.servers.0.get_mut(&server.0).unwrap();
                self.postgres.granted(client, &mut holder.session, server, &mut end.session, &mut out);
                self.execute(&out, &[]);
                self.pump_client(client);
            } else if let Some((to, key, bytes)) = self.posts.pop_front() {
                self.deliver(to, key, &bytes);
            } else if let Some(tag) = self.lost.pop_front() {
                // Granted after its session asked for the close: the holder is told.
                self.tell_lost(tag);
            } else {
                return;
            }
        }
    }

    fn deliver(&mut self, to: Peer, key: u64, bytes: &[u8]) {
        let mut out = Outbox::new();
        match to {
            Peer::Client(tag) => {
                let Some(end) = self.clients.0.get_mut(&tag.0).filter(|end| end.closed.is_none()) else { return };
                self.postgres.posted_to_client(tag, &mut end.session, key, bytes, &mut out);
            }
            Peer::Server(tag) => {
                let Some(end) = self.servers.0.get_mut(&tag.0).filter(|end| end.closed.is_none()) else { return };
                self.postgres.posted_to_server(tag, &mut end.session, key, bytes, &mut out);
            }
        }
        self.execute(&out, &[]);
    }

    fn drop_client(&mut self, tag: ClientTag) {
        self.tell_gone(tag);
        self.clients.0.remove(&tag.0);
    }

    fn tell_gone(&mut self, tag: ClientTag) {
        self.waiters.retain(|waiter| *waiter != tag);
        let Some(end) = self.clients.0.get_mut(&tag.0) else { return };
        let mut out = Outbox::new();
        self.postgres.client_gone(tag, &mut end.session, &mut self.servers, &mut out);
        end.waiting = false;
        end.closed.get_or_insert(CloseReason::Done);
        self.execute(&out, &[]);
    }

    /// What the client received since last asked.
    pub fn client_got(&mut self, tag: ClientTag) -> Vec<u8> {
        std::mem::take(&mut self.clients.0.get_mut(&tag.0).unwrap().received)
    }

    /// What the server received since last asked.
    pub fn server_got(&mut self, tag: ServerTag) -> Vec<u8> {
        std::mem::take(&mut self.servers.0.get_mut(&tag.0).unwrap().received)
    }
}

/// Does something with input arriving whole.
pub fn whole<T>(world: &mut World, act: impl FnOnce(&mut World) -> T) -> T {
    let pieces = std::mem::replace(&mut world.pieces, Pieces::Whole);
    let result = act(world);
    world.pieces = pieces;
    result
}

/// A message.
pub fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend((body.len() as u32 + 4).to_be_bytes());
    bytes.extend(body);
    bytes
}

/// Messages from a shorthand: `Q:text` is a Query, `Z:I` a ReadyForQuery, and so on: a type, and a body that may use
/// `~` for a zero byte; separated by blanks (`_` is a blank in a body).
pub fn messages(shorthand: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in shorthand.split_whitespace() {
        let (kind, body) = word.split_once(':').unwrap_or((word, ""));
        assert_eq!(kind.len(), 1, "{word}");
        let mut body = body.replace('~', "\0").replace('_', " ").into_bytes();
        if kind == "Q" {
            body.push(0);
        }
        bytes.extend(message(kind.as_bytes()[0], &body));
    }
    bytes
}

/// A server's answer to the question what its client has left behind: rows of kind, name and value.
pub fn survey_answer(rows: &[[&str; 3]]) -> Vec<u8> {
    let mut bytes = messages("T:~~");
    for row in rows {
        let mut body = 3u16.to_be_bytes().to_vec();
        for (place, column) in row.iter().enumerate() {
            // Settings are told in hexadecimal numbers.
            let hex: String = column.bytes().map(|byte| format!("{byte:02x}")).collect();
            let column = if row[0] == "s" && place > 0 { &hex } else { *column };
            body.extend((column.len() as u32).to_be_bytes());
            body.extend(column.as_bytes());
        }
        bytes.extend(message(b'D', &body));
    }
    bytes.extend(messages("C:SELECT~ Z:I"));
    bytes
}

/// A StartupMessage.
pub fn startup(version: u32, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = version.to_be_bytes().to_vec();
    for (name, value) in parameters {
        for text in [name, value] {
            body.extend(text.as_bytes());
            body.push(0);
        }
    }
    body.push(0);
    let mut bytes = (body.len() as u32 + 4).to_be_bytes().to_vec();
    bytes.extend(body);
    bytes
}

/// What a server says when it lets Poolhouse in without asking.
pub fn server_welcome() -> Vec<u8> {
    let mut bytes = message(b'R', &[0; 4]);
    for (name, value) in [
        ("application_name", "ph"),
        ("client_encoding", "UTF8"),
        ("DateStyle", "ISO, MDY"),
        ("server_version", "17.2"),
        ("TimeZone", "UTC"),
    ] {
        bytes.extend(message(b'S', format!("{name}\0{value}\0").as_bytes()));
    }
    bytes.extend(message(b'K', &[0, 0, 0, 9, 1, 2, 3, 4]));
    bytes.extend(message(b'Z', b"I"));
    bytes
}
