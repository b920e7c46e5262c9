//! A protocol of lines: a client sends a line, and the upstream answers it with a line.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    thread,
    time::Duration,
};

use seam::{
    ClientTag, CloseReason, Effect, Input, LeaseFailure, LeaseKind, Origin, Outbox, Peer, PoolId, Protocol, Refusal,
    ServerTag, Sessions, Standing, Verdict,
};

use super::POOL;

/// Lines there and back, over servers of one's own or shared ones. A client logs in by its first line. Lines for the
/// session itself:
///
/// - `echo X` is answered without a server or a login, and so are `look`, by which the client becomes a monitor, and
///   `wait`, by which it waits for a server. `in` logs it in, and no more.
/// - `flood N` is answered without a server, by N megabytes, each when the one before has left.
/// - `dawdle` is a protocol's mistake: it keeps its worker for a second.
/// - `panic WHERE` has the session panic: at once (`early`), in a later call, or at the answer (`back`).
pub struct Lines {
    pub kind: LeaseKind,
    /// Its servers are ready as soon as they are connected; otherwise they never are.
    pub starts: bool,
}

/// Megabytes that a flood has brought so far: one test has one.
pub static PUT_OUT: AtomicU32 = AtomicU32::new(0);

#[derive(Default)]
pub struct LineClient {
    logged_in: bool,
    server: Option<ServerTag>,
    /// Lines that are still to be answered.
    due: u32,
    /// Megabytes that it is still to be sent, one after another.
    flood: usize,
    /// The call in which it is to panic.
    trap: Option<&'static str>,
}

impl LineClient {
    fn spring(&self, place: &'static str) {
        assert!(self.trap != Some(place), "the word was said");
    }

    fn log_in(&mut self, me: ClientTag, out: &mut Outbox) {
        if !std::mem::replace(&mut self.logged_in, true) {
            out.push(Effect::LoggedIn { client: me, pool: POOL, user: "".into() });
            out.push(Effect::Standing { client: me, standing: Standing::Idle });
        }
    }

    fn lose_server(&mut self, me: ClientTag, out: &mut Outbox) {
        self.spring("lost");
        self.server = None;
        for _ in 0..std::mem::take(&mut self.due) {
            out.insert(Peer::Client(me), |bytes| bytes.extend(b"server lost\n"));
        }
        out.push(Effect::Standing { client: me, standing: Standing::Idle });
    }
}

/// The clients that wait for its answers.
pub struct LineServer(VecDeque<ClientTag>);

impl Lines {
    fn give_back(&self, me: ClientTag, client: &mut LineClient, verdict: Verdict, out: &mut Outbox) {
        let server = client.server.take().expect("it has one");
        client.due = 0;
        out.push(match self.kind {
            LeaseKind::Exclusive | LeaseKind::LongTerm | LeaseKind::Fresh => Effect::Release { server, verdict },
            LeaseKind::Shared => Effect::Leave { client: me, server, verdict },
        });
    }

    /// A line that needs no server. False if it is none.
    fn answer_alone(&self, me: ClientTag, client: &mut LineClient, line: &str, out: &mut Outbox) -> bool {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("echo", _) => {}
            ("look", _) => out.push(Effect::Standing { client: me, standing: Standing::Subscribed }),
            ("wait", _) => out.push(Effect::Lease { client: me, pool: POOL, kind: self.kind }),
            ("in", _) => client.log_in(me, out),
            ("flood", count) => {
                client.log_in(me, out);
                client.flood = count.parse().expect("a number");
                // Told once, however often it asks.
                out.push(Effect::NotifyFlushed { client: me });
                out.insert(Peer::Client(me), |bytes| bytes.extend(b"flood\n"));
                out.push(Effect::NotifyFlushed { client: me });
                return true;
            }
            _ => return false,
        }
        out.insert(Peer::Client(me), |bytes| bytes.extend([line.as_bytes(), b"\n"].concat()));
        true
    }
}

impl Protocol for Lines {
    type Client = LineClient;
    type Server = LineServer;

    fn client_start(&self, _: ClientTag, _: Origin, _: &mut Outbox) -> LineClient {
        LineClient::default()
    }

    fn server_start(&self, me: ServerTag, _: PoolId, out: &mut Outbox) -> LineServer {
        if self.starts {
            out.push(Effect::Ready { server: me });
        }
        LineServer(VecDeque::new())
    }

    fn client_input(
        &self,
        me: ClientTag,
        client: &mut LineClient,
        servers: &mut dyn Sessions<ServerTag, LineServer>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        let Some(end) = input.bytes.iter().position(|byte| *byte == b'\n') else { return 0 };
        let line = std::str::from_utf8(&input.bytes[..end]).expect("lines are text");
        if self.answer_alone(me, client, line, out) {
            return end + 1;
        }
        client.log_in(me, out);
        client.trap = match line {
            "dawdle" => {
                thread::sleep(Duration::from_secs(1));
                client.trap
            }
            "panic early" => panic!("the word was said"),
            "panic granted" => Some("granted"),
            "panic late" => Some("late"),
            "panic gone" => Some("gone"),
            "panic lost" => Some("lost"),
            _ => client.trap,
        };
        let Some(server) = client.server else {
            out.push(Effect::Lease { client: me, pool: POOL, kind: self.kind });
            return 0;
        };
        client.due += 1;
        // If it panics now, the answer is due, and the bytes that ask for it are never sent: what the server's session
        // holds is in doubt.
        servers.get(server).expect("it is held").0.push_back(me);
        client.spring("late");
        out.push(Effect::Standing { client: me, standing: Standing::Active });
        out.span(Peer::Server(server), 0..end + 1);
        end + 1
    }

    fn client_flushed(&self, me: ClientTag, client: &mut LineClient, out: &mut Outbox) {
        let megabyte = b"f".repeat(1 << 20);
        match client.flood {
            0 => out.insert(Peer::Client(me), |bytes| bytes.extend(b"\n")),
            _ => {
                client.flood -= 1;
                PUT_OUT.fetch_add(1, SeqCst);
                out.insert(Peer::Client(me), |bytes| bytes.extend(megabyte));
                out.push(Effect::NotifyFlushed { client: me });
            }
        }
    }

    fn server_input(
        &self,
        _: ServerTag,
        server: &mut LineServer,
        clients: &mut dyn Sessions<ClientTag, LineClient>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        let tag = *server.0.front().expect("answers only when asked");
        let end = input.bytes.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(input.bytes.len(), |end| end + 1);
        if end.is_some() {
            server.0.pop_front();
        }
        let client = clients.get(tag);
        assert!(!input.bytes[..taken].ends_with(b"panic back\n"), "the word was said");
        assert!(client.is_some() || self.kind == LeaseKind::Shared, "a holder is there");
        let Some(client) = client else { return taken };
        out.span(Peer::Client(tag), 0..taken);
        if end.is_some() {
            client.due -= 1;
            if client.due == 0 {
                out.push(Effect::Standing { client: tag, standing: Standing::Idle });
                self.give_back(tag, client, Verdict::Clean, out);
            }
        }
        taken
    }

    fn granted(&self, _: ClientTag, client: &mut LineClient, tag: ServerTag, server: &mut LineServer, _: &mut Outbox) {
        assert!(self.kind == LeaseKind::Shared || server.0.is_empty(), "a server has one holder");
        client.spring("granted");
        client.server = Some(tag);
    }

    fn lease_failed(&self, me: ClientTag, _: &mut LineClient, why: LeaseFailure, _: usize, out: &mut Outbox) {
        out.insert(Peer::Client(me), |bytes| bytes.extend(format!("failed {why:?}\n").as_bytes()));
        out.push(Effect::Close { peer: Peer::Client(me), reason: CloseReason::Done });
    }

    fn client_gone(
        &self,
        me: ClientTag,
        client: &mut LineClient,
        servers: &mut dyn Sessions<ServerTag, LineServer>,
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
        me: ServerTag,
        server: &mut LineServer,
        clients: &mut dyn Sessions<ClientTag, LineClient>,
        out: &mut Outbox,
    ) {
        if self.kind != LeaseKind::Shared
            && let Some(tag) = server.0.pop_front()
            && let Some(client) = clients.get(tag).filter(|client| client.server == Some(me))
        {
            client.lose_server(tag, out);
        }
    }

    fn share_ended(&self, me: ClientTag, client: &mut LineClient, out: &mut Outbox) {
        client.lose_server(me, out);
    }

    /// A client whose request took too long stays, if it has a server.
    fn refuse(&self, me: ClientTag, client: &mut LineClient, why: Refusal, out: &mut Outbox) {
        out.insert(Peer::Client(me), |bytes| bytes.extend(format!("refused {why:?}\n").as_bytes()));
        if why == Refusal::QueryTimeout && client.server.is_some() {
            self.give_back(me, client, Verdict::Discard, out);
            out.push(Effect::Standing { client: me, standing: Standing::Idle });
        } else {
            out.push(Effect::Close { peer: Peer::Client(me), reason: CloseReason::Done });
        }
    }

    fn reset(&self, me: ServerTag, _: &mut LineServer, out: &mut Outbox) {
        out.push(Effect::Ready { server: me });
    }

    fn check(&self, me: ServerTag, _: &mut LineServer, out: &mut Outbox) {
        out.push(Effect::Ready { server: me });
    }
}
