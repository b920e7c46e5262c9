//! Sessions that panic, by a toy protocol that does so on a word: each ends with its own connection and its own server,
//! and the worker and all other sessions go on.
//!
//! A client sends lines, the upstream answers each with a line of its own. A line `panic WHERE` sets the fault off.

mod harness;

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::atomic::Ordering::SeqCst,
    thread,
    time::Duration,
};

use driver::Timeouts;
use harness::{Harness, POOL, eventually, roomy};
use pool::PoolConfig;
use seam::{
    ClientTag, CloseReason, Effect, Input, LeaseFailure, LeaseKind, Origin, Outbox, Peer, PoolId, Protocol, Refusal,
    ServerTag, Sessions, Standing, Verdict,
};

/// Lines there and back, over servers of one's own or shared ones.
struct Fragile(LeaseKind);

#[derive(Default)]
struct Client {
    greeted: bool,
    server: Option<ServerTag>,
    due: u32,
    trap: Option<&'static str>,
}

impl Client {
    fn spring(&self, place: &'static str) {
        assert!(self.trap != Some(place), "the word was said");
    }
}

/// Who waits for which reply.
struct Server(VecDeque<ClientTag>);

impl Fragile {
    fn give_back(&self, me: ClientTag, client: &mut Client, verdict: Verdict, out: &mut Outbox) {
        let server = client.server.take().expect("it has one");
        client.due = 0;
        out.push(match self.0 {
            LeaseKind::Exclusive | LeaseKind::LongTerm | LeaseKind::Fresh => Effect::Release { server, verdict },
            LeaseKind::Shared => Effect::Leave { client: me, server, verdict },
        });
    }

    fn lose(me: ClientTag, client: &mut Client, out: &mut Outbox) {
        client.server = None;
        for _ in 0..std::mem::take(&mut client.due) {
            out.insert(Peer::Client(me), |to| to.extend_from_slice(b"server lost\n"));
        }
        out.push(Effect::Standing { client: me, standing: Standing::Idle });
    }
}

impl Protocol for Fragile {
    type Client = Client;
    type Server = Server;

    fn client_start(&self, _: ClientTag, _: Origin, _: &mut Outbox) -> Client {
        Client::default()
    }

    fn server_start(&self, me: ServerTag, _: PoolId, out: &mut Outbox) -> Server {
        out.push(Effect::Ready { server: me });
        Server(VecDeque::new())
    }

    fn client_input(
        &self,
        me: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        if !std::mem::replace(&mut client.greeted, true) {
            out.push(Effect::LoggedIn { client: me, pool: POOL, user: "".into() });
            out.push(Effect::Standing { client: me, standing: Standing::Idle });
        }
        let Some(end) = input.bytes.iter().position(|b| *b == b'\n') else { return 0 };
        client.trap = match &input.bytes[..end] {
            b"panic early" => panic!("the word was said"),
            b"panic granted" => Some("granted"),
            b"panic late" => Some("late"),
            b"panic gone" => Some("gone"),
            b"panic lost" => Some("lost"),
            _ => client.trap,
        };
        let Some(server) = client.server else {
            out.push(Effect::Lease { client: me, pool: POOL, kind: self.0 });
            return 0;
        };
        client.due += 1;
        // The reply is due, and the bytes that ask for it are never sent: what the server's session holds is in doubt
        // now.
        servers.get(server).expect("it is held").0.push_back(me);
        client.spring("late");
        out.push(Effect::Standing { client: me, standing: Standing::Active });
        out.span(Peer::Server(server), 0..end + 1);
        end + 1
    }

    fn server_input(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        let Some(end) = input.bytes.iter().position(|b| *b == b'\n') else { return 0 };
        let tag = server.0.pop_front().expect("answers only when asked");
        let client = clients.get(tag);
        assert!(!input.bytes[..end].ends_with(b"panic back"), "the word was said");
        if let Some(client) = client {
            client.due -= 1;
            out.span(Peer::Client(tag), 0..end + 1);
            if client.due == 0 {
                out.push(Effect::Standing { client: tag, standing: Standing::Idle });
                self.give_back(tag, client, Verdict::Clean, out);
            }
        }
        let _ = me;
        end + 1
    }

    fn granted(&self, _: ClientTag, client: &mut Client, tag: ServerTag, _: &mut Server, _: &mut Outbox) {
        client.spring("granted");
        client.server = Some(tag);
    }

    fn lease_failed(&self, me: ClientTag, _: &mut Client, why: LeaseFailure, _: usize, out: &mut Outbox) {
        out.insert(Peer::Client(me), |bytes| bytes.extend(format!("failed {why:?}\n").as_bytes()));
        out.push(Effect::Close { peer: Peer::Client(me), reason: CloseReason::Done });
    }

    fn client_gone(
        &self,
        me: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        out: &mut Outbox,
    ) {
        client.spring("gone");
        if let Some(server) = client.server {
            servers.get(server).expect("it is held");
            self.give_back(me, client, Verdict::Discard, out);
        }
    }

    fn server_gone(
        &self,
        _: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        out: &mut Outbox,
    ) {
        if self.0 == LeaseKind::Exclusive {
            let Some(tag) = server.0.front().copied() else { return };
            let client = clients.get(tag).expect("a holder is there");
            client.spring("lost");
            Self::lose(tag, client, out);
        }
    }

    fn share_ended(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) {
        client.spring("lost");
        Self::lose(me, client, out);
    }

    fn refuse(&self, me: ClientTag, _: &mut Client, _: Refusal, out: &mut Outbox) {
        out.push(Effect::Close { peer: Peer::Client(me), reason: CloseReason::Done });
    }

    fn reset(&self, me: ServerTag, _: &mut Server, out: &mut Outbox) {
        out.push(Effect::Ready { server: me });
    }

    fn check(&self, me: ServerTag, _: &mut Server, out: &mut Outbox) {
        out.push(Effect::Ready { server: me });
    }
}

/// An upstream that answers each line with itself; before it answers `slow`, it thinks. `die` makes it close.
fn serve(mut stream: TcpStream, _: u32) {
    for line in BufReader::new(stream.try_clone().unwrap()).lines() {
        let Ok(line) = line else { return };
        if line == "slow" {
            thread::sleep(Duration::from_millis(700));
        }
        if line == "die" || line == "panic lost" || stream.write_all(format!("{line}\n").as_bytes()).is_err() {
            return;
        }
    }
}

impl Harness {
    fn open(kind: LeaseKind) -> Self {
        let config = PoolConfig { max_size: 2, ..PoolConfig::default() };
        Self::of(Fragile(kind), serve, (1, config, roomy(), Timeouts::default()))
    }

    fn eventually(&self, what: &str, holds: impl Fn(&driver::Snapshot) -> bool) {
        eventually(what, || holds(&self.handle.snapshot()));
    }
}

const KINDS: [LeaseKind; 2] = [LeaseKind::Exclusive, LeaseKind::Shared];

#[test]
fn a_session_that_panics_ends_alone_and_its_server_with_it() {
    for kind in KINDS {
        // Whether the session had a server by then.
        for (word, had_a_server) in
            [("panic early", false), ("panic granted", true), ("panic late", true), ("panic back", true)]
        {
            let harness = Harness::open(kind);
            let (mut other, mut unlucky) = (harness.client(), harness.client());
            assert_eq!(other.ask("before"), "before");
            assert_eq!(unlucky.ask("before"), "before");
            unlucky.say(word);
            let heard = unlucky.last_words();
            assert!(heard.is_empty() || heard == "server lost\n", "{kind:?} {word}: {heard:?}");
            assert_eq!(other.ask("after"), "after", "{kind:?} {word}");
            assert_eq!(harness.client().ask("new"), "new", "{kind:?} {word}");
            harness.eventually("it is counted and nothing of it is left", |seen| {
                let pool = &seen.pools[0];
                seen.session_panics == 1
                    && pool.clients == 1
                    && pool.counts.in_use <= usize_of(kind)
                    && pool.counts.closing == 0
            });
            assert_eq!(harness.upstream_connections.load(SeqCst), 1 + u32::from(had_a_server), "{kind:?} {word}");
        }
    }
}

/// Servers that are in use although nothing is asked: a worker keeps a shared one for a while.
fn usize_of(kind: LeaseKind) -> u32 {
    u32::from(kind == LeaseKind::Shared)
}

#[test]
fn clients_that_share_a_server_with_a_session_that_panics_hear_of_its_loss_and_go_on() {
    for word in ["panic late", "panic back"] {
        let harness = Harness::open(LeaseKind::Shared);
        let (mut waiting, mut unlucky) = (harness.client(), harness.client());
        assert_eq!(waiting.ask("before"), "before");
        assert_eq!(unlucky.ask("before"), "before");
        // In the same batch the server answers both, and its session panics at the first.
        unlucky.say(word);
        waiting.say("slow");
        unlucky.last_words();
        let answer = waiting.hear();
        assert!(answer == "server lost" || answer == "slow", "{word}: {answer}");
        for n in 0..20 {
            assert_eq!(waiting.ask(&format!("line {n}")), format!("line {n}"), "{word}");
        }
        assert_eq!(harness.handle.snapshot().session_panics, 1);
    }
}

#[test]
fn a_session_that_panics_when_its_client_goes_takes_only_its_server_along() {
    for kind in KINDS {
        let harness = Harness::open(kind);
        let mut other = harness.client();
        assert_eq!(other.ask("before"), "before");
        let mut unlucky = harness.client();
        assert_eq!(unlucky.ask("panic gone"), "panic gone");
        unlucky.say("slow");
        harness.eventually("it works", |seen| seen.listeners[0].active == 1);
        drop(unlucky);
        harness.eventually("it has gone", |seen| seen.session_panics > 0 && seen.pools[0].clients == 1);
        assert_eq!(other.ask("after"), "after");
    }
}

#[test]
fn a_session_that_panics_when_it_hears_of_a_loss_is_the_only_one_to_end() {
    for kind in KINDS {
        let harness = Harness::open(kind);
        let (mut other, mut unlucky) = (harness.client(), harness.client());
        assert_eq!(other.ask("before"), "before");
        unlucky.say("panic lost");
        assert_eq!(unlucky.last_words(), "");
        assert_eq!(other.ask("after"), "after", "{kind:?}");
        harness.eventually("it has gone", |seen| seen.session_panics > 0 && seen.pools[0].clients == 1);
    }
}

#[test]
fn many_sessions_that_panic_leave_nothing_behind() {
    for kind in KINDS {
        let harness = Harness::open(kind);
        let words = ["panic early", "panic granted", "panic late", "panic back", "panic gone", "panic lost", "die"];
        thread::scope(|scope| {
            for visitor in 0..8 {
                let harness = &harness;
                scope.spawn(move || {
                    for n in 0..60 {
                        let mut client = harness.client();
                        client.say(&format!("line {n}"));
                        client.say(words[(visitor * 5 + n * 3) % words.len()]);
                        client.0.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
                        client.last_words();
                    }
                });
            }
        });
        harness.eventually("nothing is left", |seen| {
            let pool = &seen.pools[0];
            pool.clients == 0 && pool.counts.waiters == 0 && pool.counts.in_use <= usize_of(kind)
        });
        assert_eq!(harness.client().ask("still here"), "still here");
    }
}
