//! What servers say: the answers to clients, which are passed on as they come, and those to what Poolhouse itself has
//! asked.

use std::{sync::Arc, time::Duration};

use seam::{ClientTag, Effect, Input, Outbox, Peer, ServerTag, Sessions, Verdict};

use crate::{
    MongoDb,
    answers::{Said, is_ok, rewrite_labelled},
    bson::Document,
    chores::{OwnCursor, UnderWay},
    client::{Client, State},
    command::Transaction,
    cursors::Place,
    errors::Failure,
    facts::Facts,
    scan::Scan,
    server::{Answer, Role, Server},
    topology::{Ask, Heard},
    wire::{self, Answers, Body, HEADER, Header, MORE_TO_COME, Number, Relayed},
};

/// Bytes of an answer to what Poolhouse itself has asked.
const MAX_OWN: usize = 48 * 1024;

/// A host that has not said in this time what it is gets another connection for that; drivers wait as long
/// (`connectTimeoutMS`).
const PATIENCE: Duration = Duration::from_secs(10);

/// Cursors of a connection behind a load balancer before it is looked which of them are closed. Where many are open, it
/// is looked again when there are twice as many, so that a connection has no more than twice what is remembered of all.
const MANY_CURSORS: usize = 1_000;

/// Chores that a server sees to before others may have it.
const MAX_IN_A_ROW: u32 = 8;

/// Bytes of an answer that is looked at as a whole; errors are not longer, and a longer one is looked at while it
/// passes.
const MAX_LOOKED_AT: usize = 16 * 1024;

impl MongoDb {
    /// Takes what a server says.
    pub(crate) fn hear_server(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        if let Role::Serving(Answer { left: 1.., .. }) = server.role {
            return self.relay(me, server, clients, input, out);
        }
        let header = match Header::read(input.bytes) {
            None => {
                out.need = HEADER;
                return 0;
            }
            Some(Ok(header)) => header,
            Some(Err(error)) => {
                Server::fail(me, error.0, out);
                return input.bytes.len();
            }
        };
        if let Role::Serving(answer) = &mut server.role {
            let Some(flags) = wire::flags(input.bytes) else {
                out.need = HEADER + 4;
                return 0;
            };
            // The second of several answers that nobody asked for one by one is to the first.
            let known = header.answers == answer.asked || (answer.exhausts && answer.begun);
            // There are servers that answer though nobody wants it.
            if !known && answer.silent != Some(header.answers) {
                Server::fail(me, "an answer to what was not asked", out);
                return input.bytes.len();
            }
            let flags = if header.op == wire::Op::Msg { flags } else { 0 };
            answer.more = flags & MORE_TO_COME != 0 || !known;
            let passed_on = answer.silent.is_none();
            let short = passed_on && header.length <= MAX_LOOKED_AT;
            if short && input.bytes.len() < header.length {
                out.need = header.length;
                return 0;
            }
            if (Relayed { length: header.length, flags }).end().is_none() {
                Server::fail(me, "an answer without a body", out);
                return input.bytes.len();
            }
            (answer.length, answer.left, answer.flags) = (header.length, header.length, flags);
            answer.first = !answer.begun;
            answer.scan = (passed_on && !short).then(Scan::new);
            answer.begun = passed_on;
            if passed_on && let Some(client) = clients.get(answer.client) {
                client.request.begun = true;
            }
            if short {
                return self.pass_on(me, server, clients, &input.bytes[..header.length], &header, out);
            }
            return self.relay(me, server, clients, input, out);
        }
        if header.length > MAX_OWN {
            Server::fail(me, "an answer that is too long", out);
            return input.bytes.len();
        }
        if input.bytes.len() < header.length {
            out.need = header.length;
            return 0;
        }
        self.hear_own(me, server, (&input.bytes[..header.length], &header, input.now), out);
        header.length
    }

    /// Passes on an answer that is there whole.
    fn pass_on(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        message: &[u8],
        header: &Header,
        out: &mut Outbox,
    ) -> usize {
        let Role::Serving(answer) = &mut server.role else { unreachable!("an answer is on its way") };
        let client = clients.get(answer.client).expect("who is served is here");
        let to = Peer::Client(answer.client);
        let body = match wire::body(message, header) {
            Ok(Body::At(range)) => range,
            _ => 0..0,
        };
        let read = Document::read(&message[body.clone()]).and_then(|document| Ok((document, Said::read(document)?)));
        let ends = note_outcome(client, &message[body.clone()], read.as_ref().ok());
        if answer.more && ends {
            // Its server would be given back with more to come, which the next client would get.
            Server::fail(me, "more follows an answer that ends its request", out);
            return message.len();
        }
        match read {
            Ok((_, Said { no_such_cursor: true, .. })) if answer.first && !client.others.is_empty() => {
                client.request.begun = false;
                let tag = answer.client;
                server.role = Role::Idle;
                out.push(Effect::Release { server: me, verdict: Verdict::Clean });
                self.ask_another(tag, client, out);
                return message.len();
            }
            Ok((document, said)) if said.state_changed => {
                self.topology().suspect(server.host, out);
                let (mut told, mut bytes) = (Ok(()), Vec::new());
                let answers = Answers { id: header.answers, old: false };
                let label = client.label();
                wire::answer(&mut bytes, answers, |writer| told = rewrite_labelled(document, label, writer));
                if let Err(error) = told {
                    Server::fail(me, error.0, out);
                    return message.len();
                }
                if client.gathered.is_some() {
                    return self.pass_on_gathered(me, server, clients, Some(bytes), message.len(), out);
                }
                out.insert(to, |to| to.append(&mut bytes));
            }
            Ok((document, _)) if client.gathered.is_some() => {
                let error = (!is_ok(document)).then(|| message.to_vec());
                return self.pass_on_gathered(me, server, clients, error, message.len(), out);
            }
            Ok((_, Said { no_such_cursor: true, .. })) => {
                self.lose_cursor(client);
                answer.relay(message.len(), None.into_iter(), out);
            }
            Ok((_, Said { cursor: Some((id, at)), .. })) => {
                let told = self.name_cursor(client, server.host, id);
                let place = body.start + at;
                let other = (told != id).then_some((place, Number::Long(told)));
                answer.relay(message.len(), other.into_iter(), out);
            }
            _ => answer.relay(message.len(), None.into_iter(), out),
        }
        answer.left = 0;
        let answer = *answer;
        if !answer.more {
            self.end(me, server, answer, clients, out);
        }
        message.len()
    }

    /// A host has answered a command that goes to all of them: the next one is asked, or the client is told what came
    /// of it.
    fn pass_on_gathered(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        error: Option<Vec<u8>>,
        length: usize,
        out: &mut Outbox,
    ) -> usize {
        let Role::Serving(mut answer) = server.role else { unreachable!("an answer is on its way") };
        let client = clients.get(answer.client).expect("who is served is here");
        if !client.others.is_empty() {
            self.ask_next(me, server, (answer.client, client), error, out);
            return length;
        }
        match Self::gathered(client).or(error) {
            Some(mut error) => out.insert(Peer::Client(answer.client), |to| to.append(&mut error)),
            None => out.span(Peer::Client(answer.client), 0..length),
        }
        (answer.left, answer.more) = (0, false);
        self.end(me, server, answer, clients, out);
        length
    }

    /// A host is done with a command that goes to all of them, and has answered with this error, or with none: the next
    /// one is asked.
    fn ask_next(
        &self,
        me: ServerTag,
        server: &mut Server,
        (tag, client): (ClientTag, &mut Client),
        error: Option<Vec<u8>>,
        out: &mut Outbox,
    ) {
        server.role = Role::Idle;
        out.push(Effect::Release { server: me, verdict: Verdict::Clean });
        self.gather(tag, client, error, out);
    }

    /// Passes on an answer, as far as it is there.
    fn relay(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        let Role::Serving(answer) = &mut server.role else { unreachable!("an answer is on its way") };
        let at = answer.length - answer.left;
        let mut taken = answer.left.min(input.bytes.len());
        let mut others = Vec::new();
        if let Some(scan) = &mut answer.scan {
            let looked_at = scan.look(&input.bytes[..taken], at, &mut others);
            // What was not done with is shown again with more behind it, if there is more.
            if taken < answer.left {
                taken = looked_at;
            }
            if !others.is_empty() {
                self.topology().suspect(server.host, out);
            }
            if let Some((id, place)) = scan.id() {
                let client = clients.get(answer.client).expect("who is served is here");
                let told = self.name_cursor(client, server.host, id);
                others.extend((told != id).then_some((place, Number::Long(told))));
                answer.scan = None;
            }
        }
        if answer.silent.is_none() {
            answer.relay(taken, others.into_iter(), out);
        }
        answer.left -= taken;
        if taken < input.bytes.len() && answer.left > 0 {
            out.need = input.bytes.len() - taken + 1;
        }
        let answer = *answer;
        if answer.left == 0 && !answer.more {
            let client = clients.get(answer.client).expect("who is served is here");
            if answer.silent.is_some() && client.gathered.is_some() && !client.others.is_empty() {
                self.ask_next(me, server, (answer.client, client), None, out);
            } else {
                self.end(me, server, answer, clients, out);
            }
        }
        taken
    }

    /// The cursor that a client reads on with is not there any more.
    fn lose_cursor(&self, client: &mut Client) {
        if let (user, Some(named)) = client.reads_on() {
            self.cursors.closed(user, named.told);
            if let Some(own) = &mut client.belongings {
                own.forget(|told| told == named.told);
            }
        }
    }

    /// An answer has the id of a cursor: what the client is to be told in its place.
    fn name_cursor(&self, client: &mut Client, host: usize, id: i64) -> i64 {
        let told = self.told_of_cursor(client, host, id);
        if let Some(own) = &mut client.belongings {
            match own.about.take() {
                Some(about) if told != 0 => {
                    if own.cursors.len() >= own.many.max(MANY_CURSORS) {
                        own.cursors.retain(|cursor| self.cursors.knows(&client.user, cursor.told));
                        own.many = 2 * own.cursors.len();
                    }
                    own.cursors.push(OwnCursor { told, host, id, of: about });
                }
                _ => {}
            }
            if let Some(named) = client.cursors.first().filter(|_| told == 0) {
                own.forget(|ended| ended == named.told);
            }
        }
        told
    }

    fn told_of_cursor(&self, client: &Client, host: usize, id: i64) -> i64 {
        match client.reads_on() {
            (user, Some(named)) if id == 0 => {
                self.cursors.closed(user, named.told);
                0
            }
            (user, Some(named)) if id == named.own => {
                // Now it is known where it is, if it was not.
                self.cursors.keep(user, named.told, Place { host, id, waits: client.request.waits });
                named.told
            }
            (user, _) if id != 0 => {
                let waits = client.request.opens_stream;
                self.cursors.opened(user, Place { host, id, waits })
            }
            _ => 0,
        }
    }

    /// The whole answer to what Poolhouse itself has asked.
    fn hear_own(
        &self,
        me: ServerTag,
        server: &mut Server,
        (message, header, now): (&[u8], &Header, Duration),
        out: &mut Outbox,
    ) {
        let answer = match wire::answered(message, header) {
            Ok(answer) => answer,
            Err(error) => return Server::fail(me, error.0, out),
        };
        let host = server.host;
        match &mut server.role {
            Role::Starting(start) => {
                if header.answers != start.asked() {
                    return Server::fail(me, "an answer to what was not asked", out);
                }
                let mut said = Vec::new();
                let mut learnt = None;
                let next = start.answered(answer, &self.keys, &mut said, |facts| learnt = Some(facts));
                out.insert(Peer::Server(me), |to| to.extend(&said));
                if let Some(facts) = learnt {
                    // How long this took tells of the login, too.
                    self.learn(host, facts, Heard { at: now, took: None }, out);
                }
                self.started(me, server, next, out);
            }
            // There are servers that answer though nobody wants it.
            Role::Checked { silent, .. } if *silent == Some(header.answers) => {}
            Role::Checked { asked, .. } if *asked == header.answers => self.on_checked(me, server, answer, out),
            Role::Monitor { asked, again, key } if asked.is_some_and(|(id, _)| id == header.answers) => {
                let took = asked.take().map(|(_, since)| now.saturating_sub(since));
                let asks_again = std::mem::take(again).then_some(*key);
                match Facts::read(answer) {
                    // What it said may have been true before something was seen that it has to be asked about.
                    Ok(_) if asks_again.is_some() => {}
                    Ok(facts) => self.learn(host, facts, Heard { at: now, took }, out),
                    Err(error) => return Server::fail(me, error.0, out),
                }
                if let Some(key) = asks_again {
                    self.beat(me, server, key, Ask::Beat, out);
                }
            }
            _ => Server::fail(me, "a message that nobody asked for", out),
        }
    }

    /// A monitor is to ask what its host is.
    pub(crate) fn beat(&self, me: ServerTag, server: &mut Server, key: u64, ask: Ask, out: &mut Outbox) {
        let Role::Monitor { key: own, asked, again } = &mut server.role else { return };
        if *own != key {
            return;
        }
        if !self.topology().is_present(server.host) {
            return Server::fail(me, "its host is no longer configured", out);
        }
        let now = self.topology().now;
        match *asked {
            Some((_, since)) if now >= since + PATIENCE => return Server::fail(me, "it does not answer", out),
            Some(_) => {
                *again |= ask != Ask::Beat;
                return;
            }
            None if ask == Ask::Doubt => return,
            None => {}
        }
        server.last_id = server.last_id.checked_sub(1).unwrap_or(-1);
        *asked = Some((server.last_id, now));
        out.insert(Peer::Server(me), |to| {
            wire::old_request(to, server.last_id, |body| {
                body.int32("isMaster", 1);
            });
        });
    }

    pub(crate) fn server_left(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        out: &mut Outbox,
    ) {
        match server.role {
            Role::Serving(answer) => {
                // One whose time was over does not wait for it any more.
                let waits = |client: &Client| match client.state {
                    State::Awaiting(tag) | State::Sending { server: tag, .. } => tag == me,
                    _ => false,
                };
                if let Some(client) = clients.get(answer.client).filter(|client| waits(client)) {
                    // It may have carried out what began a transaction: what follows of that, and its abort, go to the
                    // same host.
                    self.note_transaction(client, server.host);
                    client.request.failed = true;
                    if answer.begun || !self.gather_failure(answer.client, client, &Failure::of_lost_server(), out) {
                        let first = Self::gathered(client);
                        self.forget_request(client);
                        client.on_server_lost(answer.client, answer.begun, first, out);
                    }
                }
                self.topology().ask_soon(out);
            }
            Role::Monitor { key, .. } => self.topology().end_watch(server.host, key, out),
            Role::Starting(_) | Role::Idle | Role::Checked { .. } => {}
        }
    }
}

impl MongoDb {
    /// An answer has come to its end.
    fn end(
        &self,
        me: ServerTag,
        server: &mut Server,
        answer: Answer,
        clients: &mut dyn Sessions<ClientTag, Client>,
        out: &mut Outbox,
    ) {
        server.role = Role::Idle;
        let client = clients.get(answer.client).expect("who is served is here");
        if client.waiting.is_some() {
            out.push(Effect::Pinned { server: me, reason: None });
        }
        self.note_transaction(client, server.host);
        self.forget_request(client);
        let mut verdict = client.on_answered(answer.client, out);
        if verdict == Verdict::Clean
            && let Some(chore) = self.chores.take(server.pool)
        {
            server.see_to(me, chore, out);
            verdict = Verdict::Reset;
        }
        out.push(Effect::Release { server: me, verdict });
    }

    /// A request of a transaction is answered: those that follow go to the same host.
    fn note_transaction(&self, client: &mut Client, host: usize) {
        let Some((session, number)) = client.request.of else { return };
        // After what was to end it and fails, or has no answer, its driver may ask for that once more, or do nothing:
        // the transaction is known until something else ends it, or until the server has given it up by itself.
        let ends = client.request.transaction == Transaction::Ends && client.request.over;
        if let Some(own) = &mut client.belongings {
            // What became of a commit that fails may not be known: nobody aborts that but its driver.
            let refused = client.request.transaction == Transaction::Begins && client.request.failed;
            own.transaction = (!ends && !refused && !client.request.commits).then_some((session, number, host));
        }
        let session = (Arc::clone(&client.user), session);
        match client.request.transaction {
            Transaction::Begins if client.request.failed => self.transactions.refused(&session, number),
            Transaction::Begins => self.transactions.taken(host),
            Transaction::Ends if ends => self.transactions.ended(&session, number),
            Transaction::None | Transaction::Within | Transaction::Ends => {}
        }
    }

    /// It has answered what Poolhouse itself asked: it sees to the next chore, or may be used.
    fn on_checked(&self, me: ServerTag, server: &mut Server, answer: Document<'_>, out: &mut Outbox) {
        let Role::Checked { chores, under_way, .. } = &mut server.role else { unreachable!("it was asked") };
        if let Some(chore) = under_way.take() {
            self.end_chore(*chore, answer);
        }
        if *chores < MAX_IN_A_ROW
            && let Some(chore) = self.chores.take(server.pool)
        {
            return server.see_to(me, chore, out);
        }
        server.role = Role::Idle;
        out.push(Effect::Ready { server: me });
        if self.chores.is_any(server.pool) {
            out.push(Effect::ResetOne { pool: server.pool });
        }
    }

    /// A server has answered what it was asked to see to.
    fn end_chore(&self, chore: UnderWay, answer: Document<'_>) {
        if let Some((session, number)) = chore.aborts() {
            // Like one whose server is lost it is asked for once more.
            if !Said::read(answer).is_ok_and(|said| said.is_aborted(answer)) {
                return;
            }
            self.transactions.ended(&session, number);
        }
        chore.done();
    }

    /// It is to see to what no client waits for, if there is anything, unless it does so already.
    pub(crate) fn on_errand(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        if !matches!(server.role, Role::Idle) {
            return;
        }
        match self.chores.take(server.pool) {
            Some(chore) => server.see_to(me, chore, out),
            None => out.push(Effect::Ready { server: me }),
        }
    }

    /// A server that nobody holds is closed.
    pub(crate) fn server_retired(&self, server: &Server, out: &mut Outbox) {
        if let Role::Monitor { key, .. } = server.role {
            self.topology().end_watch(server.host, key, out);
        }
    }
}

impl Answer {
    /// Relays the next `length` bytes of the message at hand, with other numbers at these places of the message.
    fn relay(&self, length: usize, numbers: impl Iterator<Item = (usize, Number)>, out: &mut Outbox) {
        let message = Relayed { length: self.length, flags: self.flags };
        message.span(out, Peer::Client(self.client), self.length - self.left, length, numbers);
    }
}

/// Notes what an answer with this body tells of its client's request. True if it ends that: it is an error, or of a
/// kind that is told once.
fn note_outcome(client: &mut Client, body: &[u8], read: Option<&(Document<'_>, Said)>) -> bool {
    let request = &mut client.request;
    request.failed = Document::read(body).is_ok_and(|document| !is_ok(document));
    request.over = read.is_some_and(|(document, said)| match request.commits {
        true => said.is_committed_or_gone(*document),
        false => said.is_aborted(*document),
    });
    request.failed || client.gathered.is_some() || read.is_some_and(|(_, said)| said.state_changed)
}
