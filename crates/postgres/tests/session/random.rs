//! Random clients against model backends: what they receive is what they would receive from a server of their own, and
//! no server is given back that still owes or awaits anything.

use std::collections::BTreeMap;

use postgres::PoolMode;
use proptest::prelude::*;
use protocol::{ClientTag, ServerTag, Verdict};

use crate::{
    backend::Backend,
    world::{World, message, server_welcome, startup},
};

/// Pool and model together.
struct Play {
    world: World,
    backends: BTreeMap<u32, Backend>,
    seen_releases: usize,
}

impl Play {
    fn new(mode: PoolMode, servers: usize, clients: usize) -> (Self, Vec<ClientTag>) {
        let mut play = Self { world: World::trusting(mode), backends: BTreeMap::new(), seen_releases: 0 };
        for _ in 0..servers {
            play.new_server();
        }
        let clients = (0..clients).map(|_| {
            let tag = play.world.connect_client();
            play.world.client_says(tag, &startup(3 << 16, &[("user", "app")]));
            assert!(play.world.clients.0[&tag.0].logged_in);
            play.world.client_got(tag);
            tag
        });
        let clients = clients.collect();
        (play, clients)
    }

    fn new_server(&mut self) {
        let tag = self.world.connect_server();
        self.world.server_got(tag);
        self.backends.insert(tag.0, Backend::default());
        self.world.server_says(tag, &server_welcome());
    }

    /// Backends read what was sent to them.
    fn read(&mut self) {
        let tags: Vec<u32> = self.backends.keys().copied().collect();
        for tag in tags {
            let bytes = self.world.server_got(ServerTag(tag));
            self.backends.get_mut(&tag).unwrap().receive(&bytes);
        }
    }

    /// A backend's output is delivered, at most so much of it; then the invariants are checked.
    fn deliver(&mut self, tag: u32, most: usize) {
        let backend = self.backends.get_mut(&tag).unwrap();
        let part: Vec<u8> = backend.output.drain(..most.min(backend.output.len())).collect();
        self.world.server_says(ServerTag(tag), &part);
        self.check();
        let backend = &self.backends[&tag];
        let closed = self.world.servers.0.get(&tag).is_none_or(|end| end.closed.is_some());
        if closed || (backend.dead && backend.output.is_empty()) {
            self.world.server_dies(ServerTag(tag));
            self.backends.remove(&tag);
            self.new_server();
        }
    }

    fn check(&mut self) {
        let releases = self.world.releases[self.seen_releases..].to_vec();
        self.seen_releases = self.world.releases.len();
        for (tag, verdict) in releases {
            if verdict == Verdict::Clean {
                // Bytes sent since may belong to the next holder.
                let held = &self.world.servers.0[&tag.0].held;
                assert!(held.is_empty(), "a clean server has said everything");
                let pristine = self.backends[&tag.0].is_pristine();
                assert!(pristine || !self.world.servers.0[&tag.0].received.is_empty(), "given back unclean");
            }
        }
    }

    /// Lets everything come to rest.
    fn drain(&mut self) {
        for _ in 0..10_000 {
            self.read();
            let Some((&tag, _)) = self.backends.iter().find(|(_, backend)| !backend.output.is_empty()) else { return };
            self.deliver(tag, usize::MAX);
        }
        panic!("it never comes to rest");
    }
}

/// What a client would receive from a backend of its own.
fn direct(stream: &[Vec<u8>]) -> Vec<u8> {
    let mut backend = Backend::default();
    for message in stream {
        backend.receive(message);
    }
    backend.output
}

fn text(texts: &'static [&'static str]) -> impl Strategy<Value = &'static str> + Clone {
    proptest::sample::select(texts)
}

/// A statement by the extended protocol, up to its Execute.
fn execute(text: &str) -> Vec<Vec<u8>> {
    vec![
        message(b'P', format!("\0{text}\0\0\0").as_bytes()),
        message(b'B', &[0; 8]),
        message(b'D', b"P\0"),
        message(b'E', &[0; 5]),
    ]
}

/// The body of a FunctionCall, which leaves nothing behind.
const LOREAD: &[u8] = &954u32.to_be_bytes();

/// Of a COPY that fails nobody can tell whether a Sync came before that, if more data follows: the Sync is taken to have been part of
/// the COPY, as are those among the units, and a client sends another behind its data.
fn without_syncs_before_data(mut stream: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut data = false;
    for at in (0..stream.len()).rev() {
        match stream[at][0] {
            b'S' if data => _ = stream.remove(at),
            b'S' | b'H' => {}
            kind => data = matches!(kind, b'd' | b'c' | b'f'),
        }
    }
    stream
}

/// Messages a client may send.
fn request() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let statement = text(&["ok", "ok", "err", "begin", "end", "end", "copy", "copy trigger", "out", "empty"]);
    let extended = text(&["ok", "ok", "ok", "err"]);
    let single = prop_oneof![
        4 => statement.clone().prop_map(|s| message(b'Q', format!("{s}\0").as_bytes())),
        2 => (text(&["P", "B", "C", "D"]), extended).prop_map(|(k, s)| message(k.as_bytes()[0], s.as_bytes())),
        1 => Just(message(b'D', b"s")),
        1 => text(&["ok", "begin", "end", "out"]).prop_map(|s| message(b'E', s.as_bytes())),
        4 => Just(message(b'S', b"")),
        1 => Just(message(b'H', b"")),
        1 => Just(message(b'F', LOREAD)),
        2 => text(&["line", "bad", ""]).prop_map(|s| message(b'd', s.as_bytes())),
        2 => Just(message(b'c', b"")),
        1 => Just(message(b'f', b"\0")),
    ];
    prop_oneof![15 => single.prop_map(|message| vec![message]), 3 => statement.prop_map(execute)]
}

/// Well-behaved clients as there are: units that keep to the rules.
fn unit() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let q = |s: &str| message(b'Q', format!("{s}\0").as_bytes());
    let m = |k: u8| message(k, b"");
    let copy = |start: Vec<Vec<u8>>, data: &[u8], end: Vec<Vec<u8>>| [start, vec![message(b'd', data)], end].concat();
    let execute = |s: &str| [execute(s), vec![m(b'S')]].concat();
    proptest::sample::select(vec![
        vec![q("ok")],
        vec![q("begin"), q("ok"), q("end")],
        vec![q("begin"), q("err"), q("end")],
        execute("ok"),
        [execute("begin"), execute("ok"), execute("end")].concat(),
        execute("err"),
        copy(vec![q("copy")], b"line", vec![m(b'c')]),
        copy(vec![q("copy")], b"bad", vec![m(b'c')]),
        copy(execute("copy"), b"line", vec![m(b'c'), m(b'S')]),
        copy(execute("copy"), b"bad", vec![m(b'c'), m(b'S')]),
        copy(vec![q("begin"), q("copy")], b"bad", vec![m(b'c'), q("end")]),
        [execute("copy trigger"), execute("ok")].concat(),
        [execute("ok"), execute("copy trigger"), vec![q("begin"), q("end")]].concat(),
        copy(execute("ok"), b"stray", vec![m(b'c'), m(b'S')]),
        vec![q("out")],
        vec![message(b'F', LOREAD)],
    ])
}

/// Pipelines about named statements, as drivers and careless clients send them.
fn named() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let name = text(&["a", "b", "c"]);
    let of = text(&["aa", "bb", "cc", "dd", "err", "wrong"]);
    let part = prop_oneof![
        3 => (name.clone(), of).prop_map(|(n, t)| vec![message(b'P', format!("{n}\0{t}\0\0\0").as_bytes())]),
        6 => name.clone().prop_map(|n| vec![
            message(b'B', format!("\0{n}\0\0\0\0\0\0\0").as_bytes()),
            message(b'E', b"\0\0\0\0\0"),
        ]),
        1 => name.clone().prop_map(|n| vec![message(b'D', format!("S{n}\0").as_bytes())]),
        1 => name.prop_map(|n| vec![message(b'C', format!("S{n}\0").as_bytes())]),
        1 => text(&["begin", "end", "ok", "err"]).prop_map(|s| vec![message(b'Q', format!("{s}\0").as_bytes())]),
        4 => Just(vec![message(b'S', b"")]),
    ];
    proptest::collection::vec(part, 0..16).prop_map(|parts| [parts.concat(), vec![message(b'S', b"")]].concat())
}

fn play(mode: PoolMode, streams: Vec<Vec<Vec<u8>>>, steps: Vec<(usize, usize, usize)>) {
    // As many servers as clients: some of these never end their transactions.
    let (mut play, clients) = Play::new(mode, streams.len(), streams.len());
    let mut waiting: Vec<Vec<u8>> = streams.iter().map(|stream| stream.concat()).collect();
    for (what, which, size) in steps {
        if what % 2 == 0 {
            let which = which % clients.len();
            let size = size.min(waiting[which].len());
            let part: Vec<u8> = waiting[which].drain(..size).collect();
            play.world.client_says(clients[which], &part);
            play.check();
        } else {
            play.read();
            let tags: Vec<u32> = play.backends.keys().copied().collect();
            play.deliver(tags[which % tags.len()], size);
        }
    }
    for (client, rest) in clients.iter().zip(waiting) {
        play.drain();
        play.world.client_says(*client, &rest);
        play.check();
        play.drain();
        // It leaves, so that others need not wait for what it holds.
        let received = play.world.client_got(*client);
        play.world.client_leaves(*client);
        play.drain();
        play.world.clients.0.insert(client.0, fresh(&play.world, received));
    }
    for (client, stream) in clients.iter().zip(&streams) {
        let received = play.world.client_got(*client);
        let expected = direct(stream);
        // Who sends in a COPY what has no place there is cut off by PostgreSQL; here the COPY fails, and it goes on.
        match show(&expected).strip_suffix("E!") {
            Some(before) => assert!(show(&received).starts_with(before), "{} {before}", show(&received)),
            None => assert_eq!(show(&received), show(&expected)),
        }
    }
}

fn fresh(world: &World, received: Vec<u8>) -> crate::world::End<postgres::Client> {
    use protocol::{Origin, Outbox, Protocol};
    let session =
        world.postgres.client_start(ClientTag(0), Origin { listener: 0, address: None, port: 0 }, &mut Outbox::new());
    crate::world::End {
        session,
        received,
        held: Vec::new(),
        need: 0,
        closed: None,
        waiting: false,
        standing: protocol::Standing::Login,
        logged_in: false,
    }
}

/// Message types with the status of ReadyForQuery; what the end of a connection adds is left out.
fn show(mut bytes: &[u8]) -> String {
    let mut text = String::new();
    while bytes.len() >= 5 {
        let length = u32::from_be_bytes(bytes[1..5].try_into().unwrap()) as usize;
        text.push(char::from(bytes[0]));
        if bytes[0] == b'D' || (bytes[0] == b'E' && bytes.windows(3).take(length).any(|w| w == b"C26" || w == b"C42")) {
            text += &String::from_utf8_lossy(&bytes[5..(1 + length).min(bytes.len())]).replace('\0', "~");
        }
        if bytes[0] == b'Z' {
            text.push(char::from(bytes[5]));
        }
        if bytes[0] == b'E' && bytes.windows(9).take(length).any(|w| w == b"C08P01\0Ml") {
            text.push('!');
        }
        bytes = &bytes[(1 + length).min(bytes.len())..];
    }
    text
}

fn steps() -> impl Strategy<Value = Vec<(usize, usize, usize)>> {
    proptest::collection::vec((0..2usize, 0..8usize, prop_oneof![1..20usize, 20..2000usize]), 0..80)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn well_behaved_clients_receive_what_a_server_of_their_own_would_send(
        streams in proptest::collection::vec(proptest::collection::vec(unit(), 0..6), 1..4),
        steps in steps(),
    ) {
        play(PoolMode::Transaction, streams.into_iter().map(|units| units.concat()).collect(), steps);
    }

    #[test]
    fn clients_with_named_statements_receive_what_a_server_of_their_own_would_send(
        streams in proptest::collection::vec(named(), 1..4),
        steps in steps(),
    ) {
        play(PoolMode::Transaction, streams, steps);
    }

    #[test]
    fn any_client_receives_what_a_server_of_its_own_would_send(
        streams in proptest::collection::vec(proptest::collection::vec(request(), 0..14), 1..3),
        steps in steps(),
    ) {
        play(PoolMode::Transaction, streams.into_iter().map(|parts| without_syncs_before_data(parts.concat())).collect(), steps);
    }

    #[test]
    fn clients_in_session_mode_receive_what_a_server_of_their_own_would_send(
        streams in proptest::collection::vec(proptest::collection::vec(unit(), 0..6), 1..3),
        steps in steps(),
    ) {
        play(PoolMode::Session, streams.into_iter().map(|units| units.concat()).collect(), steps);
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        client in proptest::collection::vec(any::<u8>(), 0..200),
        server in proptest::collection::vec(any::<u8>(), 0..200),
        login in any::<bool>(),
    ) {
        let mut world = World::trusting(PoolMode::Transaction);
        world.max_held = 64;
        let server_tag = world.connect_server();
        if login {
            world.server_says(server_tag, &server_welcome());
        }
        let tag = world.connect_client();
        if login {
            world.client_says(tag, &startup(3 << 16, &[("user", "app")]));
        }
        world.client_says(tag, &client);
        world.server_says(server_tag, &server);
        world.client_says(tag, &client);
        world.client_leaves(tag);
        world.server_dies(server_tag);
    }
}
