//! Input of clients. A request stays in the driver's buffer until its body is complete, because the body decides where
//! the request goes.

use std::{ops::Range, sync::atomic::Ordering::Relaxed};

use seam::{ClientTag, CloseReason, Effect, Input, Origin, Outbox, Standing};

use crate::{
    MongoDb, Servers,
    access::{Access, RefusalTime},
    bson::{Document, Malformed},
    client::{Client, State},
    command::Command,
    command_names::is_local,
    destination::Destination,
    directory::Welcome,
    errors::{Code, Failure},
    local_commands::LocalAnswer,
    logical_sessions::is_broadcast,
    request::{Request, RequestKind},
    routes::namespace_of,
    sending::relay_request,
    stream_slots::opens_stream,
    wire::{self, Body, HEADER, Header, Op},
};

/// Maximum size of a request that Poolhouse answers itself, in bytes.
const MAX_LOCAL_REQUEST: usize = 48 * 1024;

enum Decision {
    Incomplete,
    Waits,
    /// The request is answered, or the client is closed. `taken` bytes are consumed.
    Answered {
        taken: usize,
    },
}

impl MongoDb {
    pub(crate) fn welcome(&self, me: ClientTag, origin: Origin) -> Client {
        let access = match self.directory.welcome(origin) {
            Welcome::Open => Access::open(),
            Welcome::Password => Access::with_login(),
            Welcome::Forbidden(why) => Access::forbidden(&why),
        };
        let number = self.last_number.fetch_add(1, Relaxed) as i32 & i32::MAX;
        Client::new(me, self.topology().new_key(), number, self.directory.encryption(origin.listener), access)
    }

    pub(crate) fn on_client_input(
        &self,
        client: &mut Client,
        servers: &mut Servers<'_>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        if client.closing {
            return input.bytes.len();
        }
        if input.bytes.is_empty() {
            return 0;
        }
        if let Some(consumed) = client.read_first_bytes(input, out) {
            return consumed;
        }
        match client.state {
            State::Idle if client.held.is_empty() => self.begin(client, input, out),
            State::Idle => self.hold_more(client, input, out),
            State::Sending { .. } => relay_request(client, servers, input, out),
            State::DiscardingRest { left } => {
                let dropped = left.min(input.bytes.len());
                client.discard_rest(left - dropped);
                dropped
            }
            State::WaitingForHost { .. } | State::WaitingForServer { .. } | State::AwaitingReply(_) => {
                out.need = Outbox::UNTIL_WOKEN;
                0
            }
        }
    }

    fn begin(&self, client: &mut Client, input: Input<'_>, out: &mut Outbox) -> usize {
        match self.process_request(client, input.bytes, input.full, out) {
            Decision::Incomplete => {
                if client.access.note_partial_message() {
                    out.push(Effect::Standing { client: client.tag, standing: Standing::Login });
                }
                if input.full { self.hold_more(client, input, out) } else { 0 }
            }
            Decision::Waits if client.destination.has_next_host() => {
                let length = client.request.length();
                self.hold_whole(client, &input.bytes[..length]);
                length
            }
            Decision::Waits => 0,
            Decision::Answered { taken } => taken,
        }
    }

    /// Holds the next piece of a request that does not fit into the driver's buffer, and checks whether its body is
    /// complete.
    fn hold_more(&self, client: &mut Client, input: Input<'_>, out: &mut Outbox) -> usize {
        let left = client.request.length() - client.held.len();
        let taken = left.min(input.bytes.len());
        if self.hold(client, &input.bytes[..taken]) {
            self.process_held(client, out);
        } else {
            let text = "Poolhouse: too much is held for large requests (512 MB for all clients, and 256 MB for a \
                        user), or before a login";
            client.send_failure(&Failure::new(Code::TemporarilyUnavailable, text), out);
            self.forget_request(client);
            client.discard_rest(left - taken);
        }
        taken
    }

    pub(crate) fn process_held(&self, client: &mut Client, out: &mut Outbox) {
        self.with_held(client, |client, held| {
            let decision = self.process_request(client, held, true, out);
            if !matches!(decision, Decision::Incomplete) {
                self.stop_stall_timer(client);
            }
            !matches!(decision, Decision::Answered { .. })
        });
    }

    /// Decides what to do with a request. `full`: the driver's buffer cannot take more of it.
    fn process_request(&self, client: &mut Client, bytes: &[u8], full: bool, out: &mut Outbox) -> Decision {
        let header = match Header::read(bytes) {
            None => {
                out.need = HEADER;
                return Decision::Incomplete;
            }
            Some(Ok(header)) => header,
            Some(Err(error)) => {
                let id = i32::from_le_bytes(bytes[4..8].try_into().expect("a header is there"));
                client.request = Request::unreadable(id);
                return fail_malformed(client, error, bytes, out);
            }
        };
        client.request = Request::new(header, wire::flags(bytes).unwrap_or(0));
        let bytes = &bytes[..bytes.len().min(header.length)];
        let command = match read_command(&mut client.request, header, bytes, full, out) {
            Ok(Some(command)) => command,
            Ok(None) => return Decision::Incomplete,
            Err(error) => return fail_malformed(client, error, bytes, out),
        };
        client.request.set_command(&command);
        let is_answered = match client.access.refusal_of(command.name) {
            Some(refusal) => {
                client.send_failure(refusal.failure(), out);
                if refusal.time() == RefusalTime::AtOnce {
                    client.close(CloseReason::Done, out);
                    return Decision::Answered { taken: bytes.len() };
                }
                // The connection stays open until its login times out: a driver that finds a connection closed closes
                // all its others.
                true
            }
            None => self.serve(client, &command, out).unwrap_or_else(|failure| {
                client.send_failure(&failure, out);
                true
            }),
        };
        if !is_answered {
            if bytes.len() < header.length {
                client.destination.forget_next_hosts();
            }
            return Decision::Waits;
        }
        client.forget_route();
        client.discard_rest(header.length - bytes.len());
        Decision::Answered { taken: bytes.len() }
    }

    /// Answers a command, or starts the wait for a host or a server. Returns whether it is answered.
    fn serve(&self, client: &mut Client, command: &Command<'_>, out: &mut Outbox) -> Result<bool, Failure> {
        match self.answer_locally(client, command, out)? {
            Some(LocalAnswer::Given) => return Ok(true),
            Some(LocalAnswer::AwaitsHost) => {
                self.wait_for_host(client, out);
                return Ok(false);
            }
            None => {}
        }
        self.check_authenticated(client, command)?;
        if self.end_sessions(client, command, out)? {
            return Ok(true);
        }
        self.check_may_kill(command)?;
        self.note_route(client, command, out)?;
        self.select_server(client, out)?;
        Ok(false)
    }

    fn note_route(&self, client: &mut Client, command: &Command<'_>, out: &mut Outbox) -> Result<(), Failure> {
        let route = self.make_route(client.access.user(), command, out)?;
        if let Some(resources) = &mut client.resources {
            resources.begin_request(namespace_of(command), &route.closed);
        }
        client.request.set_kind(match command.name {
            "getMore" => RequestKind::GetMore { awaits_data: route.awaits_data },
            _ if opens_stream(command)? => RequestKind::OpensStream,
            _ => RequestKind::Other,
        });
        client.destination =
            if is_broadcast(command.name) { self.begin_broadcast(client, command) } else { Destination::of(route) };
        Ok(())
    }

    /// Frees what the request holds: it is answered.
    pub(crate) fn forget_request(&self, client: &mut Client) {
        self.release_held(client);
        client.forget_route();
        client.stream = None;
        if let Some(resources) = &mut client.resources {
            resources.end_request();
        }
    }
}

/// Reads the command of a request. `None` if more input is needed.
fn read_command<'a>(
    request: &mut Request,
    header: Header,
    bytes: &'a [u8],
    full: bool,
    out: &mut Outbox,
) -> Result<Option<Command<'a>>, Malformed> {
    let is_whole = bytes.len() == header.length;
    if !is_whole && !full {
        // A server is taken only for a complete request where possible: the rest may never come.
        out.need = header.length;
        return Ok(None);
    }
    let command = match header.op {
        Op::Msg => match wire::body(bytes, &header)? {
            Body::Needs(needs) => {
                // If the driver's buffer is full, the session holds the request.
                out.need = if full { 0 } else { needs };
                return Ok(None);
            }
            Body::At(Range { start, end }) => {
                request.set_body(start);
                Command::read(Document::read(&bytes[start..end])?, "")?
            }
        },
        Op::Query if header.length > MAX_LOCAL_REQUEST => return Err(Malformed("a query that is too long")),
        Op::Query if !is_whole => {
            out.need = header.length;
            return Ok(None);
        }
        Op::Query => {
            let (database, body) = wire::query(bytes)?;
            Command::read(body, database)?
        }
        Op::Compressed => return Err(Malformed("a compressed message, which was not agreed on")),
        Op::Reply | Op::Unknown(_) => {
            return Err(Malformed("a message of an opcode that MongoDB no longer knows"));
        }
    };
    if is_local(command.name) && !is_whole {
        if header.length > MAX_LOCAL_REQUEST {
            return Err(Malformed("a command that is too long"));
        }
        out.need = header.length;
        return Ok(None);
    }
    if is_broadcast(command.name) && !is_whole {
        // It is sent to several hosts, so the session has to hold all of it.
        out.need = if full { 0 } else { header.length };
        return Ok(None);
    }
    Ok(Some(command))
}

fn fail_malformed(client: &mut Client, error: Malformed, bytes: &[u8], out: &mut Outbox) -> Decision {
    client.fail_malformed(error, out);
    Decision::Answered { taken: bytes.len() }
}
