//! A client and a server of Redis say anything to each other, in any pieces: no session may panic, consume more than it was
//! given, or speak to somebody who is not there. The first byte says who speaks first, and whether the client speaks HTTP; 0xFF changes
//! the speaker.
#![no_main]

use std::{collections::VecDeque, sync::Arc, time::Duration};

use libfuzzer_sys::fuzz_target;
use protocol::{
    Bytes, ClientTag, Effect, Encryption, Input, LeaseKind, Origin, Outbox, Peer, PoolId, Protocol, Seen, ServerTag, Sessions, Verdict,
};
use redis::{Access, Client, Directory, HttpRules, Redis, Server, ServerLogin, Version, Welcome};

const CLIENT: ClientTag = ClientTag(1);
const SERVER: ServerTag = ServerTag(1);
/// As much as is held for either side.
const MAX_HELD: usize = 1 << 16;

struct Doors {
    guarded: bool,
    http: bool,
}

impl Directory for Doors {
    fn encryption(&self, _: u16) -> Encryption {
        Encryption::Off
    }

    fn welcome(&self, _: Origin) -> Welcome {
        if self.guarded { Welcome::Password } else { Welcome::Open }
    }

    fn is_password(&self, _: &str, password: &[u8]) -> bool {
        password == b"p"
    }

    fn route(&self, _: &str, database: u32, _: Version) -> Result<PoolId, String> {
        if database == 7 { Err("no such pool".to_owned()) } else { Ok(PoolId(database)) }
    }

    fn http(&self, _: u16) -> Option<Arc<HttpRules>> {
        let rules = HttpRules { origins: vec!["*".to_owned()], token_in_query: true, max_request: 4096 };
        self.http.then(|| Arc::new(rules))
    }

    fn access(&self, token: &[u8]) -> Option<Arc<Access>> {
        (token == b"t").then(Arc::default)
    }

    fn server_login(&self, _: PoolId) -> ServerLogin {
        ServerLogin { password: Some("s".into()), database: 1, ..ServerLogin::default() }
    }
}

struct One<'a, S>(&'a mut S);

impl<T, S> Sessions<T, S> for One<'_, S> {
    fn get(&mut self, _: T) -> Option<&mut S> {
        Some(self.0)
    }
}

/// The driver, as far as two sessions need one.
struct World {
    redis: Redis,
    client: Client,
    server: Server,
    asked: Option<LeaseKind>,
    held: Option<LeaseKind>,
    ready: bool,
    client_open: bool,
    server_open: bool,
    /// The server was given back with replies due.
    resets: bool,
    /// The client does not read.
    unread: bool,
    /// The server's session keeps it for itself.
    kept: bool,
    /// What sessions have left for each other.
    posts: VecDeque<(Peer, u64, Vec<u8>)>,
    /// What the client has asked all clients.
    survey: Option<Vec<u8>>,
}

impl World {
    fn run(&mut self, mut out: Outbox, input: &[u8]) {
        for effect in std::mem::take(&mut out.effects) {
            match effect {
                Effect::Send { to, bytes } => {
                    match bytes {
                        Bytes::Span(span) => assert!(span.end <= input.len() && !span.is_empty()),
                        Bytes::Insert(range) => assert!(range.end <= out.inserted.len()),
                    }
                    if let Peer::Server(_) = to {
                        assert!(self.server_open, "a server is spoken to that has gone");
                    }
                }
                Effect::Lease { kind, .. } => {
                    assert!(self.asked.is_none() && self.held.is_none());
                    self.asked = Some(kind);
                }
                Effect::Keep { .. } => {
                    assert_eq!(self.held.take(), Some(LeaseKind::Exclusive), "a server is kept that nobody holds");
                    self.kept = true;
                }
                Effect::Post { to, key, bytes } => self.posts.push_back((to, key, out.inserted[bytes].to_vec())),
                Effect::Survey { question, .. } => {
                    let asked = self.survey.replace(out.inserted[question].to_vec());
                    assert!(asked.is_none(), "a client asks while it waits for an answer");
                }
                Effect::Release { verdict, .. } => {
                    let held = std::mem::take(&mut self.kept) || matches!(self.held.take(), Some(LeaseKind::Exclusive | LeaseKind::Lasting));
                    assert!(held, "a server is released that nobody holds");
                    if verdict != Verdict::Clean {
                        (self.server_open, self.ready) = (false, false);
                    }
                }
                Effect::Leave { verdict, .. } => {
                    assert_eq!(self.held.take(), Some(LeaseKind::Shared), "a share is given back that nobody has");
                    match verdict {
                        Verdict::Clean => {}
                        Verdict::Soiled | Verdict::Reset => (self.ready, self.resets) = (false, true),
                        Verdict::Discard => (self.server_open, self.ready) = (false, false),
                    }
                }
                Effect::Ready { .. } => self.ready = true,
                Effect::Close { peer: Peer::Client(_), .. } => self.client_open = false,
                Effect::Close { peer: Peer::Server(_), .. } => (self.server_open, self.ready) = (false, false),
                _ => {}
            }
        }
    }

    fn settle(&mut self) {
        if let Some(question) = self.survey.take_if(|_| self.client_open) {
            let seen = Seen { address: "1.2.3.4:5", listener: "[::1]:6", age: Duration::MAX, idle: Duration::ZERO };
            let (mut answer, mut out) = (Vec::new(), Outbox::new());
            self.redis.surveyed(CLIENT, &mut self.client, &seen, &question, &mut answer, &mut out);
            self.redis.survey_done(CLIENT, &mut self.client, &answer, &mut out);
            self.run(out, b"");
        }
        if let (false, Some(kind)) = (self.server_open, self.held.take_if(|_| !self.server_open)) {
            let mut out = Outbox::new();
            self.redis.server_gone(SERVER, &mut self.server, &mut One(&mut self.client), &mut out);
            self.run(out, b"");
            if kind == LeaseKind::Shared {
                let mut out = Outbox::new();
                self.redis.share_ended(CLIENT, &mut self.client, &mut out);
                self.run(out, b"");
            }
        }
        if !self.server_open && std::mem::take(&mut self.kept) {
            let mut out = Outbox::new();
            self.redis.server_gone(SERVER, &mut self.server, &mut One(&mut self.client), &mut out);
            self.run(out, b"");
        }
        if std::mem::take(&mut self.resets) && self.server_open {
            let mut out = Outbox::new();
            self.redis.reset(SERVER, &mut self.server, &mut out);
            self.run(out, b"");
        }
        if !self.server_open {
            let mut out = Outbox::new();
            self.server_open = true;
            self.server = self.redis.server_start(SERVER, PoolId(0), &mut out);
            self.run(out, b"");
        }
        self.deliver();
        if self.asked.is_some() && self.ready && self.client_open && !self.kept {
            self.held = self.asked.take();
            let mut out = Outbox::new();
            self.redis.granted(CLIENT, &mut self.client, SERVER, &mut self.server, &mut out);
            self.run(out, b"");
            self.deliver();
        }
    }

    fn deliver(&mut self) {
        while let Some((to, key, bytes)) = self.posts.pop_front() {
            let mut out = Outbox::new();
            match to {
                Peer::Client(tag) if self.client_open => {
                    self.redis.posted_to_client(tag, &mut self.client, key, &bytes, &mut out);
                }
                Peer::Server(tag) if self.server_open => {
                    self.redis.posted_to_server(tag, &mut self.server, key, &bytes, &mut out);
                }
                _ => {}
            }
            self.run(out, &bytes);
        }
    }

    fn client_says(&mut self, bytes: &mut Vec<u8>) {
        while self.client_open && self.asked.is_none() && !bytes.is_empty() {
            let mut out = Outbox::new();
            let input = Input { bytes, full: bytes.len() >= MAX_HELD, unread: self.unread };
            let used =
                self.redis.client_input(CLIENT, &mut self.client, &mut One(&mut self.server), input, &mut out);
            assert!(used <= bytes.len());
            self.run(out, bytes);
            bytes.drain(..used);
            let waited = self.asked.is_some();
            self.settle();
            if used == 0 && !waited {
                break;
            }
        }
    }

    fn server_says(&mut self, bytes: &mut Vec<u8>) {
        while self.server_open && !bytes.is_empty() {
            let mut out = Outbox::new();
            let input = Input { bytes, full: bytes.len() >= MAX_HELD, unread: false };
            let used =
                self.redis.server_input(SERVER, &mut self.server, &mut One(&mut self.client), input, &mut out);
            assert!(used <= bytes.len());
            self.run(out, bytes);
            bytes.drain(..used);
            if !self.server_open {
                bytes.clear();
            }
            self.settle();
            if used == 0 {
                break;
            }
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, data)) = data.split_first() else { return };
    let redis = Redis::new(Arc::new(Doors { guarded: how & 1 == 1, http: how & 8 == 8 }));
    let mut out = Outbox::new();
    let client = redis.client_start(CLIENT, Origin { listener: 0, address: None, port: 0 }, &mut out);
    let server = redis.server_start(SERVER, PoolId(0), &mut out);
    let mut world = World {
        redis,
        client,
        server,
        asked: None,
        held: None,
        ready: false,
        client_open: true,
        server_open: true,
        resets: false,
        unread: how & 4 == 4,
        kept: false,
        posts: VecDeque::new(),
        survey: None,
    };
    world.run(out, b"");
    let (mut from_client, mut from_server) = (Vec::new(), Vec::new());
    if how & 2 == 2 {
        world.server_says(&mut b"*2\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n+OK\r\n".to_vec());
    }
    for (turn, piece) in data.split(|byte| *byte == 0xFF).enumerate() {
        if turn % 2 == 0 {
            from_client.extend_from_slice(piece);
        } else {
            from_server.extend_from_slice(piece);
        }
        world.client_says(&mut from_client);
        world.server_says(&mut from_server);
        world.client_says(&mut from_client);
    }
    let mut out = Outbox::new();
    if world.client_open || world.held.is_some() {
        world.redis.client_gone(CLIENT, &mut world.client, &mut One(&mut world.server), &mut out);
        world.run(out, b"");
    }
    assert!(world.held.is_none(), "a client that has gone holds a server");
});
