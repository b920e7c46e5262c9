//! A toy protocol for a cluster of three hosts, to try the seam and as an example of its use. Each host has a pool of its own, and routing is
//! nothing but the choice of the pool. What is known of the hosts is in the protocol object, which all workers share. Monitors tell it, which
//! no client has asked for.
//!
//! Requests and answers are lines. `PUT key value` goes to the primary, `GET key any|primary` where it says, `OPEN count label` anywhere;
//! `MORE cursor` and `CLOSE cursor` go to the host of the cursor, on any of its connections. Hosts number their cursors without regard to each
//! other, so each client has numbers of its own. A line that begins with `!` is an error. A write is sent again only if the host says that it
//! has not carried it out, because it is a secondary.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use protocol::{
    Blame, ClientTag, CloseReason, Effect, Input, LeaseFailure, LeaseKind, Origin, Outbox, Peer, PoolId, Protocol,
    Refusal, ServerTag, Sessions, Standing, Verdict,
};

use super::topology::{HOSTS, Topology};

/// A write waits so long for a primary.
const MAX_WAIT: Duration = Duration::from_secs(1);
const MAX_LINE: usize = 256;
/// Open cursors of a client.
const MAX_CURSORS: usize = 16;

type Clients<'a> = &'a mut dyn Sessions<ClientTag, Client>;
type Servers<'a> = &'a mut dyn Sessions<ServerTag, Server>;

/// The protocol.
#[derive(Default)]
pub struct Cluster(Mutex<Topology>);

/// A client's connection.
pub struct Client {
    /// Tells what is posted to it from what was meant for another.
    key: u64,
    /// The request under way, and where it is.
    line: String,
    place: Place,
    /// When a write that waits for a primary has waited long enough.
    until: Duration,
    /// Hosts that were not to be had for this request.
    tried: [bool; HOSTS],
    /// Its open cursors: the host of each, and its number there.
    cursors: BTreeMap<u32, (usize, u32)>,
    last_cursor: u32,
}

#[derive(PartialEq)]
enum Place {
    /// No request is under way.
    Nowhere,
    /// It waits for a primary.
    Parked,
    /// It waits for a server of this host.
    Queued(usize),
    Sent(ServerTag),
}

/// A server's connection.
pub struct Server {
    host: usize,
    role: Role,
}

enum Role {
    /// Its greeting is due.
    Starting {
        monitor: bool,
    },
    Idle,
    /// It has a request of this client.
    Serving(ClientTag),
    /// It owes an answer that no client waits for.
    Owing,
    /// It tells what the host is, and closes what clients left open. `silent`: it has not shown that it is alive.
    Monitor {
        key: u64,
        silent: bool,
    },
}

/// Where a request goes.
enum Goal {
    Primary,
    Any,
    /// To the host of a cursor: the client's number of it, the host, and its number there.
    Cursor(u32, usize, u32),
    /// Nowhere: this is the answer.
    Answer(String),
}

impl Client {
    fn goal(&self) -> Goal {
        let cursor = |own: &str, unknown: String| {
            let own = own.parse().unwrap_or(0);
            self.cursors.get(&own).map_or(Goal::Answer(unknown), |(host, id)| Goal::Cursor(own, *host, *id))
        };
        let words: Vec<&str> = self.line.split(' ').collect();
        match words[..] {
            ["PING"] => Goal::Answer("=pong".into()),
            ["PUT", key, value] if !key.is_empty() && !value.is_empty() => Goal::Primary,
            ["GET", _, "primary"] => Goal::Primary,
            ["GET", _, "any"] => Goal::Any,
            ["OPEN", ..] if self.cursors.len() >= MAX_CURSORS => Goal::Answer("!too many cursors".into()),
            ["OPEN", count, _] if count.parse::<u32>().is_ok() => Goal::Any,
            ["MORE", own] => cursor(own, "!no cursor".into()),
            ["CLOSE", own] => cursor(own, format!("-{own}")),
            _ => Goal::Answer("!not understood".into()),
        }
    }

    fn answer(&mut self, me: ClientTag, answer: &str, out: &mut Outbox) {
        out.insert(Peer::Client(me), |bytes| bytes.extend([answer, "\n"].concat().bytes()));
        self.place = Place::Nowhere;
        out.push(Effect::Standing { client: me, standing: Standing::Idle });
        out.push(Effect::Wake { client: me });
    }

    /// What a host has answered, with the client's number of the cursor.
    fn translated(&mut self, host: usize, said: &str) -> String {
        let own = if let Goal::Cursor(own, ..) = self.goal() { own } else { 0 };
        let Some((id, rows)) = said.strip_prefix('#').and_then(|batch| batch.split_once(' ')) else {
            return match self.cursors.remove(&own) {
                None => said.into(),
                Some(_) if said.starts_with('-') => format!("-{own}"),
                Some(_) => "!lost the cursor".into(),
            };
        };
        let own = match (id.parse().unwrap_or(0), own) {
            (0, own) => self.cursors.remove(&own).map_or(0, |_| 0),
            (id, 0) => {
                self.last_cursor += 1;
                self.cursors.insert(self.last_cursor, (host, id));
                self.last_cursor
            }
            (_, own) => own,
        };
        format!("#{own} {rows}")
    }
}

impl Cluster {
    fn topology(&self) -> MutexGuard<'_, Topology> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a server of the host that the request is to go to.
    fn route(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) {
        let mut topology = self.topology();
        let host = match client.goal() {
            Goal::Answer(answer) => return client.answer(me, &answer, out),
            Goal::Cursor(_, host, _) => Some(host),
            Goal::Any => topology.any(client.tried),
            Goal::Primary => topology.primary(),
        };
        match host {
            Some(host) => {
                client.place = Place::Queued(host);
                out.push(Effect::Lease { client: me, pool: PoolId(host as u32), kind: LeaseKind::Exclusive });
            }
            None if topology.now < client.until && !client.tried.contains(&true) => {
                topology.park(me, client.key);
                client.place = Place::Parked;
            }
            None => client.answer(me, "!no host for it is known", out),
        }
    }

    fn close(peer: Peer, blame: Blame, why: &str, out: &mut Outbox) {
        out.push(Effect::Close { peer, reason: CloseReason::Error(blame, why.into()) });
    }
}

impl Protocol for Cluster {
    type Client = Client;
    type Server = Server;

    fn tell_time(&self, now: Duration, out: &mut Outbox) {
        self.topology().tell_time(now, out);
    }

    fn client_start(&self, _: ClientTag, _: Origin, _: &mut Outbox) -> Client {
        let (key, line, place, cursors) = (self.topology().new_key(), String::new(), Place::Nowhere, BTreeMap::new());
        Client { key, line, place, until: Duration::ZERO, tried: [false; HOSTS], cursors, last_cursor: 0 }
    }

    fn server_start(&self, _: ServerTag, pool: PoolId, _: &mut Outbox) -> Server {
        let pool = pool.0 as usize;
        Server { host: pool % HOSTS, role: Role::Starting { monitor: pool >= HOSTS } }
    }

    fn client_input(&self, me: ClientTag, client: &mut Client, _: Servers, input: Input, out: &mut Outbox) -> usize {
        if client.place != Place::Nowhere {
            out.need = Outbox::UNTIL_WOKEN;
            return 0;
        }
        let Some(end) = input.bytes.iter().take(MAX_LINE).position(|byte| *byte == b'\n') else {
            if input.bytes.len() >= MAX_LINE {
                Self::close(Peer::Client(me), Blame::Client, "a line has no end", out);
            }
            return 0;
        };
        out.push(Effect::Standing { client: me, standing: Standing::Active });
        client.line = String::from_utf8_lossy(&input.bytes[..end]).into_owned();
        (client.until, client.tried) = (self.topology().now + MAX_WAIT, [false; HOSTS]);
        self.route(me, client, out);
        end + 1
    }

    fn server_input(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: Clients,
        input: Input,
        out: &mut Outbox,
    ) -> usize {
        let Some(end) = input.bytes.iter().position(|byte| *byte == b'\n') else { return 0 };
        let said = &*String::from_utf8_lossy(&input.bytes[..end]);
        let host = server.host;
        match (&mut server.role, said.chars().next()) {
            (Role::Starting { monitor: false }, Some('+')) => {
                self.topology().learn(host, said, out);
                server.role = Role::Idle;
                out.push(Effect::Ready { server: me });
            }
            (Role::Starting { monitor: true }, Some('+')) => {
                let mut topology = self.topology();
                let key = topology.new_key();
                server.role = Role::Monitor { key, silent: false };
                out.push(Effect::Keep { server: me, briefly: false });
                topology.watch(host, me, key, out);
                topology.learn(host, said, out);
            }
            (Role::Serving(tag), _) => {
                let (tag, client) = (*tag, clients.get(*tag).expect("who is served is here"));
                server.role = Role::Idle;
                out.push(Effect::Release { server: me, verdict: Verdict::Clean });
                if said.starts_with("!secondary") {
                    self.topology().learn(host, said, out);
                    self.route(tag, client, out);
                } else {
                    let answer = client.translated(host, said);
                    client.answer(tag, &answer, out);
                }
            }
            (Role::Owing, _) => {
                let opened = said.strip_prefix('#').and_then(|batch| batch.split(' ').next()?.parse().ok());
                opened.into_iter().for_each(|id| self.topology().close(host, id, out));
                server.role = Role::Idle;
                out.push(Effect::Ready { server: me });
            }
            (Role::Monitor { .. }, Some('*')) => self.topology().learn(host, said, out),
            (Role::Monitor { silent, .. }, Some('=')) => *silent = false,
            (Role::Monitor { .. }, Some('-')) => self.topology().closed(host, said[1..].parse().unwrap_or(0)),
            _ => Self::close(Peer::Server(me), Blame::Server, "a host says what it was not asked", out),
        }
        end + 1
    }

    fn granted(&self, me: ClientTag, client: &mut Client, tag: ServerTag, server: &mut Server, out: &mut Outbox) {
        (client.place, server.role) = (Place::Sent(tag), Role::Serving(me));
        let line = match (client.goal(), client.line.split_once(' ')) {
            (Goal::Cursor(.., id), Some((verb, _))) => format!("{verb} {id}\n"),
            _ => format!("{}\n", client.line),
        };
        out.insert(Peer::Server(tag), |bytes| bytes.extend(line.bytes()));
    }

    fn lease_failed(&self, me: ClientTag, client: &mut Client, _: LeaseFailure, out: &mut Outbox) {
        match (client.goal(), &client.place) {
            (Goal::Any, Place::Queued(host)) => {
                client.tried[*host] = true;
                self.route(me, client, out);
            }
            _ => client.answer(me, "!the host is not to be had", out),
        }
    }

    /// A primary is known, or time has passed.
    fn posted_to_client(&self, me: ClientTag, client: &mut Client, key: u64, _: &[u8], out: &mut Outbox) {
        if client.key == key && client.place == Place::Parked {
            self.route(me, client, out);
        }
    }

    /// What a monitor is to say.
    fn posted_to_server(&self, me: ServerTag, server: &mut Server, key: u64, bytes: &[u8], out: &mut Outbox) {
        let Role::Monitor { key: own, silent } = &mut server.role else { return };
        if *own == key {
            out.span(Peer::Server(me), 0..bytes.len());
            if bytes == b"PING\n" && std::mem::replace(silent, true) {
                Self::close(Peer::Server(me), Blame::Server, "a host is silent", out);
            }
        }
    }

    fn client_gone(&self, _: ClientTag, client: &mut Client, servers: Servers, out: &mut Outbox) {
        if let Place::Sent(server) = client.place {
            servers.get(server).expect("who has a server has one that is here").role = Role::Owing;
            out.push(Effect::Release { server, verdict: Verdict::Reset });
        }
        let mut topology = self.topology();
        topology.forget(client.key);
        client.cursors.values().for_each(|(host, id)| topology.close(*host, *id, out));
    }

    fn server_gone(&self, me: ServerTag, server: &mut Server, clients: Clients, out: &mut Outbox) {
        match server.role {
            Role::Serving(tag) => {
                let client = clients.get(tag).expect("who is served is here");
                client.answer(tag, "!lost: nobody knows whether it was carried out", out);
            }
            _ => self.retire(me, server, out),
        }
    }

    fn refuse(&self, me: ClientTag, _: &mut Client, _: Refusal, out: &mut Outbox) {
        out.insert(Peer::Client(me), |bytes| bytes.extend(b"!turned away\n"));
    }

    /// The answer to who has left comes first.
    fn reset(&self, _: ServerTag, _: &mut Server, _: &mut Outbox) {}

    fn check(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        server.role = Role::Owing;
        out.insert(Peer::Server(me), |bytes| bytes.extend(b"PING\n"));
    }

    fn retire(&self, _: ServerTag, server: &mut Server, _: &mut Outbox) {
        if let Role::Monitor { key, .. } = server.role {
            self.topology().end_watch(server.host, key);
        }
    }

    fn cancel(&self, _: ClientTag, _: &mut Client, _: Servers, _: u64, _: bool, _: &mut Outbox) {}
}
