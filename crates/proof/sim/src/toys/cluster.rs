//! A toy protocol for a cluster of three hosts: the example of how the seam is used. Each host has a pool of its own,
//! and routing is nothing but the choice of the pool. What is known of the hosts is in the protocol object, which all
//! workers share. Monitors tell it, which no client has asked for.
//!
//! Requests and answers are lines. `PUT key value` goes to the primary, `GET key any|primary` where it says. A line
//! that begins with `!` is an error. A write is sent again only if the host says that it has not carried it out,
//! because it is a secondary.

use std::sync::{Mutex, MutexGuard, PoisonError};

use seam::{
    Blame, ClientTag, CloseReason, Effect, Input, LeaseFailure, LeaseKind, Origin, Outbox, Peer, PoolId, Protocol,
    Refusal, ServerTag, Sessions, Standing, Verdict,
};

use super::topology::{HOSTS, Topology};

const MAX_LINE: usize = 256;

type Clients<'a> = &'a mut dyn Sessions<ClientTag, Client>;
type Servers<'a> = &'a mut dyn Sessions<ServerTag, Server>;

#[derive(Default)]
pub struct Cluster(Mutex<Topology>);

pub struct Client {
    /// The request under way, and where it is.
    line: String,
    place: Place,
}

#[derive(PartialEq)]
enum Place {
    /// No request is under way.
    Nowhere,
    /// It waits for a primary.
    Parked,
    Queued,
    Sent(ServerTag),
}

pub struct Server {
    host: usize,
    role: Role,
}

enum Role {
    Starting {
        monitor: bool,
    },
    Idle,
    /// It has a request of this client.
    Serving(ClientTag),
    /// It owes an answer that no client waits for.
    Owing,
    /// It tells what the host is.
    Monitor,
}

enum Goal {
    Primary,
    Any,
    /// Nowhere: this is the answer.
    Answer(&'static str),
}

impl Client {
    fn goal(&self) -> Goal {
        let words: Vec<&str> = self.line.split(' ').collect();
        match words[..] {
            ["PING"] => Goal::Answer("=pong"),
            ["PUT", key, value] if !key.is_empty() && !value.is_empty() => Goal::Primary,
            ["GET", _, "primary"] => Goal::Primary,
            ["GET", _, "any"] => Goal::Any,
            _ => Goal::Answer("!not understood"),
        }
    }

    fn answer(&mut self, me: ClientTag, answer: &str, out: &mut Outbox) {
        out.insert(Peer::Client(me), |bytes| bytes.extend([answer, "\n"].concat().bytes()));
        self.place = Place::Nowhere;
        out.push(Effect::Standing { client: me, standing: Standing::Idle });
        out.push(Effect::Wake { client: me });
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
            Goal::Answer(answer) => return client.answer(me, answer, out),
            Goal::Any => Some(topology.any()),
            Goal::Primary => topology.primary(),
        };
        match host {
            Some(host) => {
                client.place = Place::Queued;
                out.push(Effect::Lease { client: me, pool: PoolId(host as u32), kind: LeaseKind::Exclusive });
            }
            None => {
                client.place = Place::Parked;
                topology.parked.push(me);
            }
        }
    }

    fn close(peer: Peer, blame: Blame, why: &str, out: &mut Outbox) {
        out.push(Effect::Close { peer, reason: CloseReason::Error(blame, why.into()) });
    }
}

impl Protocol for Cluster {
    type Client = Client;
    type Server = Server;

    fn client_start(&self, _: ClientTag, _: Origin, _: &mut Outbox) -> Client {
        Client { line: String::new(), place: Place::Nowhere }
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
                server.role = Role::Idle;
                out.push(Effect::Ready { server: me });
            }
            (Role::Starting { monitor: true }, Some('+')) => {
                server.role = Role::Monitor;
                out.push(Effect::Keep { server: me, briefly: false });
                out.insert(Peer::Server(me), |bytes| bytes.extend(b"WATCH\n"));
            }
            (Role::Serving(tag), _) => {
                let (tag, client) = (*tag, clients.get(*tag).expect("who is served is here"));
                server.role = Role::Idle;
                out.push(Effect::Release { server: me, verdict: Verdict::Clean });
                if said.starts_with("!secondary") {
                    self.topology().learn(host, said, out);
                    self.route(tag, client, out);
                } else {
                    client.answer(tag, said, out);
                }
            }
            (Role::Owing, _) => {
                server.role = Role::Idle;
                out.push(Effect::Ready { server: me });
            }
            (Role::Monitor, Some('*')) => self.topology().learn(host, said, out),
            _ => Self::close(Peer::Server(me), Blame::Server, "a host says what it was not asked", out),
        }
        end + 1
    }

    fn granted(&self, me: ClientTag, client: &mut Client, tag: ServerTag, server: &mut Server, out: &mut Outbox) {
        (client.place, server.role) = (Place::Sent(tag), Role::Serving(me));
        out.insert(Peer::Server(tag), |bytes| bytes.extend([&client.line, "\n"].concat().bytes()));
    }

    fn lease_failed(&self, me: ClientTag, client: &mut Client, _: LeaseFailure, _: usize, out: &mut Outbox) {
        client.answer(me, "!the host is not to be had", out);
    }

    /// A primary is known. If this was for another client that had the tag before, it does no harm.
    fn posted_to_client(&self, me: ClientTag, client: &mut Client, _: u64, _: &[u8], out: &mut Outbox) {
        if client.place == Place::Parked {
            self.route(me, client, out);
        }
    }

    fn client_gone(&self, me: ClientTag, client: &mut Client, servers: Servers, out: &mut Outbox) {
        if let Place::Sent(server) = client.place {
            servers.get(server).expect("who has a server has one that is here").role = Role::Owing;
            out.push(Effect::Release { server, verdict: Verdict::Reset });
        }
        self.topology().parked.retain(|parked| *parked != me);
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
        if let Role::Monitor = server.role {
            self.topology().end_watch(server.host);
        }
    }

    fn cancel(&self, _: ClientTag, _: &mut Client, _: Servers, _: u64, _: bool, _: &mut Outbox) {}
}
