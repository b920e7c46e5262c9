//! A request of a client: held back until its body is there, because that tells where it goes; then passed on as it
//! came to a server that is asked for. What Poolhouse answers itself never gets that far.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use seam::{
    Blame, ClientTag, CloseReason, Effect, Input, Origin, Outbox, Peer, Refusal, ServerTag, Sessions, Standing, Verdict,
};

use crate::{
    MongoDb,
    bson::{Document, Malformed},
    chores::{Chore, Collection, OwnCursor},
    client::{Client, Refused, Request, State},
    command::{Command, Transaction},
    cursors::Place,
    directory::Welcome,
    errors::{Code, Failure},
    own::{Taken, is_own},
    routes::{Goal, Route, collection},
    server::Server,
    sessions::goes_to_all,
    streams::opens_stream,
    waits::no_host,
    wire::{self, Body, EXHAUST_ALLOWED, HEADER, Header, Number, Op},
};

/// Bytes of a request that Poolhouse answers itself.
const MAX_OWN: usize = 48 * 1024;

impl MongoDb {
    pub(crate) fn welcome(&self, origin: Origin) -> Client {
        let (stranger, refused) = match self.directory.welcome(origin) {
            Welcome::Open => (false, None),
            Welcome::Password => (true, None),
            Welcome::Forbidden(why) => (true, Some(Failure::new(Code::Unauthorized, format!("Poolhouse: {why}")))),
        };
        let none = Header { length: 0, id: 0, answers: 0, op: Op::Msg };
        Client {
            key: self.topology().new_key(),
            number: self.last_number.fetch_add(1, Relaxed) as i32 & i32::MAX,
            encryption: self.directory.encryption(origin.listener),
            stranger,
            counted: false,
            closing: false,
            refused: refused.map(|failure| Refused::AtOnce(Box::new(failure))),
            greeter: false,
            was_greeter: false,
            since: None,
            waited: 0,
            wanted: None,
            stalls: false,
            user: Arc::from(""),
            login: None,
            state: State::Idle,
            request: Request::new(none, 0),
            cursors: Vec::new(),
            belongings: None,
            waiting: None,
            others: Vec::new(),
            gathered: None,
            held: Vec::new(),
        }
    }

    /// Takes what a client says.
    pub(crate) fn hear_client(
        &self,
        me: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        if client.closing {
            return input.bytes.len();
        }
        if input.bytes.is_empty() {
            return 0;
        }
        if let Some(consumed) = client.first_bytes(me, input, out) {
            return consumed;
        }
        match client.state {
            State::Idle => self.begin(me, client, input, out),
            State::Sending { .. } => pass_on(client, servers, input, out),
            State::Dropping { left } => {
                let dropped = left.min(input.bytes.len());
                client.drop_rest(left - dropped);
                dropped
            }
            State::Parked { .. } | State::Queued { .. } | State::Awaiting(_) => {
                out.need = Outbox::UNTIL_WOKEN;
                0
            }
        }
    }

    /// A request begins, or has begun and its body is still to come.
    fn begin(&self, me: ClientTag, client: &mut Client, input: Input<'_>, out: &mut Outbox) -> usize {
        if client.held.is_empty() {
            let dealt_with = self.look_at(me, client, input.bytes, input.full, out);
            if dealt_with == 0 && client.state == State::Idle && std::mem::take(&mut client.greeter) {
                // Whoever says only a part of what it says is no monitor, and is never taken for one again.
                client.was_greeter = true;
                out.push(Effect::Standing { client: me, standing: Standing::Login });
            }
            if dealt_with > 0 || !input.full || client.state != State::Idle {
                return dealt_with;
            }
        }
        let taken = (client.request.header.length - client.held.len()).min(input.bytes.len());
        // Whoever is not let in yet has nothing to say that is so long.
        if client.stranger || !self.holding.take(&client.user, taken) {
            let text = "Poolhouse: too much is held for large requests (512 MB for all clients, and 256 MB for a user), or before a login";
            client.tell_failure(me, &Failure::new(Code::TemporarilyUnavailable, text), out);
            let left = client.request.header.length - client.held.len() - taken;
            self.forget_request(client);
            client.drop_rest(left);
            return taken;
        }
        client.held.extend(&input.bytes[..taken]);
        self.note_progress(me, client);
        self.look_at_held(me, client, out);
        taken
    }

    /// Looks at the request of which a part is held here.
    pub(crate) fn look_at_held(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) {
        // What it says may be that it is somebody else.
        let (held, user) = (std::mem::take(&mut client.held), Arc::clone(&client.user));
        let taken = self.look_at(me, client, &held, true, out);
        if taken == 0 {
            client.held = held;
        } else {
            self.holding.give_back(&user, held.len());
        }
        if taken > 0 || client.state != State::Idle {
            self.end_progress(client);
        }
    }

    /// Looks at a request as far as it is there. Returns how much of it is dealt with.
    fn look_at(&self, me: ClientTag, client: &mut Client, bytes: &[u8], full: bool, out: &mut Outbox) -> usize {
        let header = match Header::read(bytes) {
            None => {
                out.need = HEADER;
                return 0;
            }
            Some(Ok(header)) => header,
            Some(Err(error)) => {
                let id = i32::from_le_bytes(bytes[4..8].try_into().expect("a header is there"));
                client.request = Request::new(Header { length: 0, id, answers: 0, op: Op::Msg }, 0);
                return client.fail_malformed(me, error, bytes.len(), out);
            }
        };
        client.request = Request::new(header, wire::flags(bytes).unwrap_or(0));
        let bytes = &bytes[..bytes.len().min(header.length)];
        if bytes.len() < header.length && !full {
            // A server is not taken for what may never come whole, if that can be helped.
            out.need = header.length;
            return 0;
        }
        let read = match header.op {
            Op::Msg => match wire::body(bytes, &header) {
                Ok(Body::Needs(needs)) => {
                    // What the driver cannot hold is held here.
                    out.need = if full { 0 } else { needs };
                    return 0;
                }
                Ok(Body::At(Range { start, end })) => {
                    client.request.body_at = start;
                    Document::read(&bytes[start..end]).and_then(|body| Command::read(body, ""))
                }
                Err(error) => Err(error),
            },
            Op::Query if header.length > MAX_OWN => Err(Malformed("a query that is too long")),
            Op::Query if bytes.len() < header.length => {
                out.need = header.length;
                return 0;
            }
            Op::Query => {
                client.request.flags = 0;
                wire::query(bytes).and_then(|(database, body)| Command::read(body, database))
            }
            Op::Compressed => Err(Malformed("a compressed message, which was not agreed on")),
            Op::Reply | Op::Unknown(_) => Err(Malformed("a message of an opcode that MongoDB no longer knows")),
        };
        let command = match read {
            Ok(command) => command,
            Err(error) => return client.fail_malformed(me, error, bytes.len(), out),
        };
        if is_own(command.name) && bytes.len() < header.length {
            if header.length > MAX_OWN {
                return client.fail_malformed(me, Malformed("a command that is too long"), bytes.len(), out);
            }
            out.need = header.length;
            return 0;
        }
        if goes_to_all(command.name) && bytes.len() < header.length {
            // It is sent several times, so all of it is held here.
            out.need = if full { 0 } else { header.length };
            return 0;
        }
        client.request.transaction = command.transaction;
        client.request.commits = command.name == "commitTransaction";
        client.request.repeatable = command.number.is_some() && command.transaction == Transaction::None;
        if let Some(refused) = client.refused.take_if(|refused| !refused.lets_pass(command.name)) {
            client.tell_failure(me, refused.why(), out);
            if matches!(refused, Refused::AtOnce(_)) {
                client.close(me, CloseReason::Done, out);
                return bytes.len();
            }
            // A driver that finds the connection closed when it uses it again would close all its others; a login that
            // takes so long is ended in any case.
            client.refused = Some(refused);
            client.drop_rest(header.length - bytes.len());
            return bytes.len();
        }
        let answered = match self.own(me, client, &command, out) {
            Ok(Some(Taken::Yes)) => true,
            Ok(Some(Taken::Parks)) => {
                self.park(me, client, out);
                false
            }
            Ok(None) => match self.ask_for(me, client, &command, out) {
                Ok(answered) => answered,
                Err(failure) => {
                    client.tell_failure(me, &failure, out);
                    true
                }
            },
            Err(failure) => {
                client.tell_failure(me, &failure, out);
                true
            }
        };
        if !answered && client.state != State::Idle {
            if client.others.is_empty() || bytes.len() < header.length || !client.held.is_empty() {
                client.others.clear();
                return 0;
            }
            client.held = bytes.to_vec();
            self.holding.note(&client.user, bytes.len());
            return bytes.len();
        }
        client.forget_wait();
        client.drop_rest(header.length - bytes.len());
        bytes.len()
    }

    /// Takes a command that is for a host. True if it is answered already.
    fn ask_for(
        &self,
        me: ClientTag,
        client: &mut Client,
        command: &Command<'_>,
        out: &mut Outbox,
    ) -> Result<bool, Failure> {
        self.may_ask(client, command)?;
        if self.end_sessions(me, client, command, out)? {
            return Ok(true);
        }
        self.may_kill(command)?;
        self.note_route(client, command, out)?;
        self.route(me, client, out);
        Ok(false)
    }

    /// Notes where a command goes.
    fn note_route(&self, client: &mut Client, command: &Command<'_>, out: &mut Outbox) -> Result<(), Failure> {
        let Route { goal, cursors, closed, others, waits, wanted } = self.goal(&client.user, command, out)?;
        client.wanted = wanted;
        if let Some(own) = &mut client.belongings {
            own.about = collection(command);
            if !closed.is_empty() {
                own.forget(|told| closed.contains(&told));
            }
        }
        let malformed = |error: Malformed| Failure::new(Code::FailedToParse, format!("Poolhouse: {error}"));
        client.request.opens_stream = opens_stream(command).map_err(malformed)?;
        client.request.follows = client.request.opens_stream || command.name == "getMore";
        (client.request.waits, client.request.exhausts) = (waits, client.request.flags & EXHAUST_ALLOWED != 0);
        client.request.of = command.session.zip(command.number).filter(|_| command.transaction != Transaction::None);
        (client.request.goal, client.cursors, client.others) = (goal, cursors, others);
        if goes_to_all(command.name) {
            self.note_all(client, command);
        }
        Ok(())
    }

    pub(crate) fn on_granted(
        &self,
        me: ClientTag,
        client: &mut Client,
        tag: ServerTag,
        server: &mut Server,
        out: &mut Outbox,
    ) {
        let held = std::mem::take(&mut client.held);
        if !held.is_empty() {
            let cursors = translated_cursors(client);
            out.insert(Peer::Server(tag), |to| client.request.relayed().append(to, &held, cursors));
        }
        let left = client.request.header.length - held.len();
        if client.others.is_empty() {
            self.holding.give_back(&client.user, held.len());
        } else {
            client.held = held;
        }
        client.request.host = Some(server.host);
        if let Some((session, number, host)) = client.request.begins() {
            // From now on others may wait for it.
            self.transactions.begins((Arc::clone(&client.user), session), number, host);
        }
        server.serve(me, client.request.header.id, client.request.flags & EXHAUST_ALLOWED != 0);
        if client.waiting.is_some() {
            out.push(Effect::Pinned { server: tag, reason: Some("stream") });
        }
        sent(client, tag, server, left, out);
    }

    /// The host that was asked does not know the client's cursor, or is done with what goes to all, and there is
    /// another to be asked.
    pub(crate) fn ask_another(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) {
        let host = client.others.pop().expect("there is another");
        client.request.goal = Goal::Host(host);
        client.state = State::Idle;
        client.waiting = None;
        // It was served, so its wait begins anew.
        (client.since, client.waited) = (None, 0);
        if let Err(failure) = self.seek(me, client, out) {
            // There is no such host any more, which keeps no other one from hearing of what goes to all.
            if self.gather_failure(me, client, &failure, out) {
                return;
            }
            let first = Self::gathered(client);
            client.tell_first(me, first, &failure, out);
            self.forget_request(client);
            out.push(Effect::Standing { client: me, standing: Standing::Idle });
            out.push(Effect::Wake { client: me });
        }
    }

    /// The request is answered: nothing of it is needed any more.
    pub(crate) fn forget_request(&self, client: &mut Client) {
        self.holding.give_back(&client.user, client.held.len());
        client.held = Vec::new();
        client.forget_wait();
        client.waiting = None;
        if let Some(own) = &mut client.belongings {
            own.about = None;
        }
        self.end_progress(client);
    }

    fn note_progress(&self, me: ClientTag, client: &mut Client) {
        self.stalls.progress(me, client.key);
        client.stalls = true;
    }

    fn end_progress(&self, client: &mut Client) {
        if std::mem::take(&mut client.stalls) {
            self.stalls.over(client.key);
        }
    }

    /// Nothing has come of a request for a while.
    pub(crate) fn look_whether_it_stalls(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) {
        let comes = client.state == State::Idle && !client.held.is_empty();
        if !comes || !self.stalls.is_stale(client.key) {
            return;
        }
        let failure = Failure::new(Code::CommandFailed, "Poolhouse: the rest of this message does not come");
        client.tell_failure(me, &failure, out);
        client.close(me, CloseReason::Error(Blame::Client, "the rest of a message does not come".to_owned()), out);
    }

    /// The driver wishes that a client goes.
    pub(crate) fn on_refused(&self, me: ClientTag, client: &mut Client, why: &Refusal, out: &mut Outbox) {
        let failure = match (client.state, why) {
            (State::Parked { .. }, Refusal::LoginTimeout) => no_host(&client.request),
            _ => Failure::of_refusal(why),
        };
        if matches!(why, Refusal::Full { .. }) && client.state == State::Idle {
            client.refused = Some(Refused::BehindLogin(Box::new(failure)));
            return;
        }
        if !client.counted && client.state == State::Idle {
            match why {
                Refusal::TooManyClients { .. } => {
                    client.refused = Some(Refused::BehindLogin(Box::new(failure)));
                    return;
                }
                // Whoever guessed too often does not get another guess.
                Refusal::Throttled { .. } => {
                    client.refused = Some(Refused::BehindHello(Box::new(failure)));
                    return;
                }
                _ => {}
            }
        }
        if let (State::Parked { .. }, Refusal::QueryTimeout) = (client.state, why) {
            self.topology().forget(client.key);
            return self.give_up(me, client, &failure, out);
        }
        // What is under way is asked again on another connection, as when the database itself stops: whether it was
        // done is not known.
        let ends = matches!(why, Refusal::ShuttingDown | Refusal::Drained { at_login: false });
        let waits = matches!(client.state, State::Parked { .. } | State::Queued { .. } | State::Awaiting(_));
        // The answer to its login, or to its first request where no login is needed, is not sent.
        let at_login = matches!(why, Refusal::Drained { at_login: true })
            && matches!(client.state, State::Idle | State::Dropping { .. });
        let told = !client.request.begun && !ends && (waits || at_login);
        if told {
            client.tell_failure(me, &failure, out);
        }
        if let (State::Awaiting(server), Refusal::QueryTimeout, true) = (client.state, why, told) {
            // Only this request ends: a driver whose connection ends closes all the others as well.
            if let Some(own) = &mut client.belongings {
                match client.request.transaction {
                    Transaction::Begins => own.transaction = client.request.begins(),
                    // It may be under way. An abort may be asked for once more.
                    Transaction::Ends if client.request.commits => own.transaction = None,
                    Transaction::None | Transaction::Within | Transaction::Ends => {}
                }
            }
            out.push(Effect::Pinned { server, reason: None });
            out.push(Effect::Release { server, verdict: Verdict::Discard });
            self.kill_at_the_rest(client, out);
            self.forget_request(client);
            client.state = State::Idle;
            out.push(Effect::Standing { client: me, standing: Standing::Idle });
            out.push(Effect::Wake { client: me });
            return;
        }
        client.close(me, CloseReason::Done, out);
    }

    /// The driver believes that a load balancer stands between, so what belongs to the connection ends with it.
    fn end_belongings(&self, client: &mut Client, out: &mut Outbox) {
        let Some(own) = client.belongings.take() else { return };
        let mut open = BTreeMap::<(usize, Collection), Vec<i64>>::new();
        for OwnCursor { told, host, id, of } in own.cursors {
            // One that the client has closed may have left its number to a cursor of another host, which is somebody
            // else's.
            let is_there = |place: Place| (place.host, place.id) == (host, id);
            if self.cursors.find(&client.user, told).is_some_and(is_there) {
                self.cursors.closed(&client.user, told);
                open.entry((host, of)).or_default().push(id);
            }
        }
        for ((host, of), cursors) in open {
            self.add_chores(&client.user, host, Chore::kill(&of, &cursors), out);
        }
        let sent = matches!(client.state, State::Sending { .. } | State::Awaiting(_));
        let waits = matches!(client.state, State::Parked { .. } | State::Queued { .. });
        let begun = client.request.begins().filter(|_| sent);
        if let Some((session, number, host)) = begun.or(own.transaction) {
            // A commit may be under way, or wait here for a server, and a driver that has lost it asks for it once
            // more, over another connection: an abort would come between. MongoDB aborts by itself what stays open too
            // long.
            if !((sent || waits) && client.request.commits) {
                self.add_chores(&client.user, host, [Chore::Abort { session, number }], out);
            }
        }
    }

    pub(crate) fn add_chores(
        &self,
        user: &Arc<str>,
        host: usize,
        chores: impl IntoIterator<Item = Chore>,
        out: &mut Outbox,
    ) {
        if let Ok(pool) = self.directory.route(user, host) {
            chores.into_iter().for_each(|chore| self.chores.add(pool, user, chore));
            out.push(Effect::ResetOne { pool });
        }
    }

    pub(crate) fn client_left(
        &self,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        out: &mut Outbox,
    ) {
        self.kill_at_the_rest(client, out);
        self.forget_request(client);
        self.end_belongings(client, out);
        client.closing = true;
        if client.counted {
            self.topology().leave(client.key);
        }
        match client.state {
            State::Parked { .. } => self.topology().forget(client.key),
            // The server notices that its connection ends, and gives up what nobody waits for.
            State::Sending { server, .. } => out.push(Effect::Release { server, verdict: Verdict::Discard }),
            State::Awaiting(tag) => {
                let verdict = servers.get(tag).expect("a held server lives").abandon();
                out.push(Effect::Release { server: tag, verdict });
            }
            State::Idle | State::Queued { .. } | State::Dropping { .. } => {}
        }
        client.state = State::Idle;
    }
}

/// The cursors of a request that its host knows by other ids than the client: their places in the message, and the
/// host's ids.
fn translated_cursors(client: &Client) -> impl Iterator<Item = (usize, Number)> {
    let cursors = client.cursors.iter().filter(|named| named.told != named.own);
    cursors.map(|named| (client.request.body_at + named.at, Number::Long(named.own)))
}

/// Passes a request on to its server, as far as it is there.
fn pass_on(
    client: &mut Client,
    servers: &mut dyn Sessions<ServerTag, Server>,
    input: Input<'_>,
    out: &mut Outbox,
) -> usize {
    let State::Sending { server: tag, left } = client.state else { unreachable!("a request that is being sent") };
    let taken = left.min(input.bytes.len());
    let at = client.request.header.length - left;
    client.request.relayed().span(out, Peer::Server(tag), at, taken, translated_cursors(client));
    sent(client, tag, servers.get(tag).expect("a held server lives"), left - taken, out);
    taken
}

/// So much of a request is still to be sent.
fn sent(client: &mut Client, tag: ServerTag, server: &mut Server, left: usize, out: &mut Outbox) {
    if left > 0 {
        client.state = State::Sending { server: tag, left };
        return;
    }
    client.state = State::Awaiting(tag);
    if !client.request.wants_answer() {
        // What the client asks next comes behind it, though it may go to another server.
        server.ask_for_sign(tag, out);
    }
}
