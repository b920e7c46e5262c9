//! A server's session: its messages go to the client that holds it, settle its exchange, and end the lease.

use seam::{Blame, ClientTag, CloseReason, Effect, Input, Outbox, Peer, ServerTag, Sessions};

use crate::{
    exchange::Note,
    features::prepared::{
        deallocate,
        named::{self, ClientAnswer},
        replan,
    },
    relay::answer::{AnswerStep, Incoming, Relay},
    session::{Client, PartialMessage, Postgres, Server, Stage},
    sql::{Suspects, is_fact},
    wire::{Failure, HEADER, Header, back, message::write_parse_complete, take_text},
};

/// The one fact that changes during a session, by a promotion.
const IN_HOT_STANDBY: &[u8] = b"in_hot_standby";

/// Longest message of a server: the length is a signed number.
const MAX_LENGTH: u32 = i32::MAX as u32;

impl Server {
    pub(crate) fn record(&mut self, postgres: &Postgres, mut body: &[u8]) -> bool {
        let (Some(name), Some(value), []) = (take_text(&mut body), take_text(&mut body), body) else { return false };
        if is_fact(name) {
            if self.facts.record(name, value) && name == IN_HOT_STANDBY {
                postgres.parameters.fact_changed(self.pool, name, value);
            }
        } else if self.settings.report(name, value, &postgres.parameters) {
            self.note_reported(name);
        }
        true
    }
}

impl Postgres {
    pub(crate) fn relay_server(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        input: Input<'_>,
        at: usize,
        out: &mut Outbox,
    ) -> usize {
        let limited = self.rules.limit_length();
        let longest = if limited { self.longest_answer(server, clients) } else { u32::MAX };
        let mut relay = Relay::new(me, clients, input, at, out);
        loop {
            if !server.partial.is_complete() {
                relay.take_part(server);
                if !server.partial.is_complete() {
                    break;
                }
                relay.completed(self, server);
            }
            let Some(header) = Header::read(&relay.bytes[relay.at..]) else { break };
            let end = relay.at + header.total();
            if header.length > longest {
                relay.flush(server, relay.at);
                self.refuse_answer(&mut relay.side(server), header);
                return input.bytes.len();
            }
            if header.kind == back::DATA_ROW && (4..=MAX_LENGTH).contains(&header.length) && server.serves_client() {
                // Most messages are rows: they only have to be stepped over.
                let here = end.min(relay.bytes.len());
                server.partial = PartialMessage::new(end - here, true);
                relay.at = here;
                continue;
            }
            let here = end.min(relay.bytes.len());
            let step = self.handle_message(&mut relay, server, Incoming { header, end, whole: here == end });
            if server.exchange.take_progress() {
                relay.wake_holder(server);
            }
            let forwarded = match step {
                AnswerStep::Forward => true,
                AnswerStep::Drop => {
                    relay.flush(server, relay.at);
                    relay.run = here;
                    false
                }
                AnswerStep::Handled => {
                    assert!(relay.run == end, "a handled message leaves no run behind");
                    false
                }
                AnswerStep::Wait => {
                    relay.out.need = if end > relay.bytes.len() { header.total() } else { 0 };
                    break;
                }
                AnswerStep::Broken(what) => {
                    relay.flush(server, relay.at);
                    self.protocol_broken(&mut relay.side(server), &what);
                    return input.bytes.len();
                }
                AnswerStep::Over => return input.bytes.len(),
            };
            server.partial = PartialMessage::new(end - here, forwarded);
            relay.at = here;
        }
        relay.flush(server, relay.at);
        relay.tell_holder(server);
        relay.at
    }

    #[inline]
    fn handle_message(&self, relay: &mut Relay<'_, '_>, server: &mut Server, message: Incoming) -> AnswerStep {
        if !(4..=MAX_LENGTH).contains(&message.header.length) {
            AnswerStep::Broken(format!("a message of length {}", message.header.length))
        } else if server.work.is_some() {
            self.handle_for_us(relay, server, message)
        } else if server.holder().is_some() {
            self.handle_for_holder(relay, server, message)
        } else {
            self.handle_without_holder(relay, server, message)
        }
    }

    #[inline]
    fn handle_for_holder(&self, relay: &mut Relay<'_, '_>, server: &mut Server, message: Incoming) -> AnswerStep {
        let kind = message.header.kind;
        relay.ended |= match kind {
            back::READY_FOR_QUERY => true,
            back::COMMAND_COMPLETE => server.exchange.answers_extended(),
            _ => false,
        };
        match kind {
            back::COPY_DATA | back::NOTICE_RESPONSE => AnswerStep::Forward,
            back::NOTIFICATION_RESPONSE => handle_notification(relay, server, message),
            back::READY_FOR_QUERY => match ready_status(relay, message) {
                Ok(status) if server.exchange.enter_ready(status) => {
                    server.unsynced = false;
                    if server.statements.is_about_to_repeat() && replan::repeat(&mut relay.link(server)) {
                        relay.wake_holder(server);
                        AnswerStep::Drop
                    } else {
                        self.handle_ready(relay, server, status, message)
                    }
                }
                Ok(_) => AnswerStep::Broken("a ReadyForQuery that no request asked for".to_owned()),
                Err(step) => step,
            },
            back::PARAMETER_STATUS => self.handle_parameter(relay, server, message),
            back::ERROR_RESPONSE if relay.may_wait(message) => AnswerStep::Wait,
            back::ERROR_RESPONSE => self.handle_error_response(relay, server, message),
            back::PARSE_COMPLETE | back::CLOSE_COMPLETE => match server.exchange.answered(kind) {
                None => AnswerStep::Forward,
                Some(note) => handle_noted_answer(relay, server, note, message),
            },
            back::COMMAND_COMPLETE
                if server.traces.may_have_any(Suspects::WATCHED_COMPLETIONS) || !server.unlistened.is_empty() =>
            {
                if relay.may_wait(message) {
                    return AnswerStep::Wait;
                }
                self.handle_command_complete(relay, server, message)
            }
            back::BIND_COMPLETE => match server.exchange.answered(kind) {
                None => AnswerStep::Forward,
                Some(Note::Swallowed) => AnswerStep::Drop,
                Some(_) => AnswerStep::Broken("a Parse or Close answered by a BindComplete".to_owned()),
            },
            back::PARAMETER_DESCRIPTION | back::ROW_DESCRIPTION | back::NO_DATA
                if server.exchange.describing().is_some() =>
            {
                self.handle_description(relay, server, message)
            }
            back::COPY_IN_RESPONSE if server.exchange.enter_copy_in() => AnswerStep::Forward,
            back::COPY_IN_RESPONSE => AnswerStep::Broken("a COPY that no request has begun".to_owned()),
            back::COMMAND_COMPLETE
            | back::COPY_DONE
            | back::COPY_OUT_RESPONSE
            | back::EMPTY_QUERY_RESPONSE
            | back::FUNCTION_CALL_RESPONSE
            | back::NO_DATA
            | back::PARAMETER_DESCRIPTION
            | back::PORTAL_SUSPENDED
            | back::ROW_DESCRIPTION => handle_plain_answer(server, kind),
            kind => AnswerStep::Broken(unexpected(kind)),
        }
    }

    /// A part of the answer to a Describe that is looked at.
    fn handle_description(&self, relay: &mut Relay<'_, '_>, server: &mut Server, message: Incoming) -> AnswerStep {
        if relay.may_wait(message) {
            return AnswerStep::Wait;
        }
        let Incoming { header, end, .. } = message;
        let has_come = relay.bytes.get(relay.at + HEADER..end.min(relay.bytes.len())).unwrap_or_default();
        let client = server.holder().and_then(|tag| relay.clients.get(tag));
        if self.take_description(client, server, (header.kind, has_come, header.total() - HEADER)) {
            return AnswerStep::Forward;
        }
        if header.kind != back::PARAMETER_DESCRIPTION {
            relay.wake_holder(server);
        }
        AnswerStep::Drop
    }

    /// A ParameterStatus: it concerns the server and its holder.
    fn handle_parameter(&self, relay: &mut Relay<'_, '_>, server: &mut Server, message: Incoming) -> AnswerStep {
        if relay.may_wait(message) {
            return AnswerStep::Wait;
        }
        let Some(body) = relay.body(message) else {
            return AnswerStep::Broken("a ParameterStatus without an end".to_owned());
        };
        if !server.record(self, body) {
            return AnswerStep::Broken("a malformed ParameterStatus".to_owned());
        }
        match server.holder() {
            Some(tag) if server.work.is_none() => {
                if let Some(settings) = &mut relay.client(tag).settings {
                    settings.set_current(server.settings.current().clone());
                }
                AnswerStep::Forward
            }
            _ => AnswerStep::Drop,
        }
    }

    fn handle_for_us(&self, relay: &mut Relay<'_, '_>, server: &mut Server, message: Incoming) -> AnswerStep {
        let prefaces = server.is_prefaced();
        let work = server.work.as_mut().expect("the server is at work for us");
        match message.header.kind {
            back::READY_FOR_QUERY => match ready_status(relay, message) {
                Ok(status) => {
                    relay.skip(server, message);
                    self.work_ready(&mut relay.side(server), status);
                    if matches!(server.stage, Stage::Closed) { AnswerStep::Over } else { AnswerStep::Handled }
                }
                Err(step) => step,
            },
            back::PARAMETER_STATUS => self.handle_parameter(relay, server, message),
            back::ERROR_RESPONSE if relay.may_wait(message) => AnswerStep::Wait,
            back::ERROR_RESPONSE => {
                work.answered = true;
                let body = relay.body(message);
                work.failure.get_or_insert(Failure::read(body.unwrap_or_default()));
                if let Some(body) = body {
                    server.note_fatal(body);
                }
                // Even a FATAL one tells that nothing behind it was carried out.
                if prefaces {
                    let failure = server.work.as_mut().and_then(|work| work.failure.take()).expect("just set");
                    self.preface_failed(&mut relay.side(server), failure);
                    return AnswerStep::Over;
                }
                AnswerStep::Drop
            }
            back::PARSE_COMPLETE | back::BIND_COMPLETE if prefaces => AnswerStep::Drop,
            back::PARSE_COMPLETE | back::BIND_COMPLETE | back::CLOSE_COMPLETE if work.is_lookup() => AnswerStep::Drop,
            back::CLOSE_COMPLETE if !prefaces => AnswerStep::Broken(unexpected(back::CLOSE_COMPLETE)),
            back::COMMAND_COMPLETE | back::CLOSE_COMPLETE if prefaces && !message.whole => AnswerStep::Wait,
            back::COMMAND_COMPLETE | back::EMPTY_QUERY_RESPONSE | back::CLOSE_COMPLETE => {
                work.answered = true;
                if !prefaces {
                    return AnswerStep::Drop;
                }
                relay.skip(server, message);
                self.step_answered(&mut relay.side(server));
                AnswerStep::Handled
            }
            back::DATA_ROW if relay.may_wait(message) && work.reads_rows() => AnswerStep::Wait,
            back::DATA_ROW => {
                if !work.take_row(relay.body(message)) {
                    return AnswerStep::Broken("a malformed DataRow".to_owned());
                }
                AnswerStep::Drop
            }
            back::NOTIFICATION_RESPONSE => self.handle_idle_notification(relay, server, message),
            back::ROW_DESCRIPTION | back::NOTICE_RESPONSE => AnswerStep::Drop,
            kind => AnswerStep::Broken(unexpected(kind)),
        }
    }

    /// A message while no client holds the server: only asynchronous ones may come.
    fn handle_without_holder(&self, relay: &mut Relay<'_, '_>, server: &mut Server, message: Incoming) -> AnswerStep {
        match message.header.kind {
            back::NOTIFICATION_RESPONSE => self.handle_idle_notification(relay, server, message),
            back::NOTICE_RESPONSE => AnswerStep::Drop,
            back::PARAMETER_STATUS => self.handle_parameter(relay, server, message),
            back::ERROR_RESPONSE if relay.may_wait(message) => AnswerStep::Wait,
            back::ERROR_RESPONSE => {
                let failure = Failure::read(relay.body(message).unwrap_or_default());
                server.fatal = Some(failure.text().into());
                server.stage = Stage::Closed;
                let reason = CloseReason::Error(Blame::Server, failure.text());
                relay.out.push(Effect::Close { peer: Peer::Server(relay.me), reason });
                AnswerStep::Over
            }
            kind => AnswerStep::Broken(unexpected(kind)),
        }
    }

    /// A notification while the server serves no client: it is for the clients of a hub, or for the holder, which may
    /// have been told already that its transaction is over.
    fn handle_idle_notification(&self, relay: &mut Relay<'_, '_>, server: &Server, message: Incoming) -> AnswerStep {
        let for_all = server.hub_key().is_some();
        let for_holder = server.holder().is_some_and(|tag| Self::notifies_holder(relay.client(tag), server));
        match (message.whole, relay.full) {
            _ if !for_all && !for_holder => AnswerStep::Drop,
            (false, false) => AnswerStep::Wait,
            (false, true) => AnswerStep::Broken("a notification without an end".to_owned()),
            (true, _) if for_all => {
                self.fan_out(server, &relay.bytes[relay.at..message.end], relay.out);
                AnswerStep::Drop
            }
            (true, _) => handle_notification(relay, server, message),
        }
    }
}

/// A notification for the holder, unless the hub sends it the same.
fn handle_notification(relay: &mut Relay<'_, '_>, server: &Server, message: Incoming) -> AnswerStep {
    let holder = server.holder().expect("a client is served");
    if relay.client(holder).listening.is_none() {
        return AnswerStep::Forward;
    }
    if relay.may_wait(message) {
        return AnswerStep::Wait;
    }
    // The process that notifies comes before the channel.
    let mut body = relay.body(message).and_then(|body| body.get(4..)).unwrap_or_default();
    let known = take_text(&mut body).is_some_and(|channel| relay.client(holder).listens_to(channel));
    if known { AnswerStep::Drop } else { AnswerStep::Forward }
}

/// A ParseComplete or CloseComplete that answers a noted request.
fn handle_noted_answer(relay: &mut Relay<'_, '_>, server: &mut Server, note: Note, message: Incoming) -> AnswerStep {
    let client = server.holder().and_then(|tag| relay.clients.get(tag));
    match named::settle(note, true, client, server) {
        ClientAnswer::Same => AnswerStep::Forward,
        ClientAnswer::Nothing => AnswerStep::Drop,
        answer @ (ClientAnswer::ParseComplete | ClientAnswer::Deallocated { .. }) => {
            relay.skip(server, message);
            let tag = server.holder().expect("a client is served");
            relay.out.insert(Peer::Client(tag), |to| match answer {
                ClientAnswer::Deallocated { all } => deallocate::write_complete(to, all),
                _ => write_parse_complete(to),
            });
            match message.whole {
                true => AnswerStep::Handled,
                false => AnswerStep::Broken("a CloseComplete with a body".to_owned()),
            }
        }
    }
}

/// Decides about an answer of this type, which answers no Parse or Close.
#[inline]
fn handle_plain_answer(server: &mut Server, kind: u8) -> AnswerStep {
    match server.exchange.answered(kind) {
        None | Some(Note::Amended(_)) => AnswerStep::Forward,
        Some(_) => AnswerStep::Broken(format!("a Parse or Close answered by 0x{kind:02X}")),
    }
}

fn ready_status(relay: &Relay<'_, '_>, message: Incoming) -> Result<u8, AnswerStep> {
    if message.header.length != 5 {
        return Err(AnswerStep::Broken(format!("a ReadyForQuery of length {}", message.header.length)));
    }
    if !message.whole {
        return Err(AnswerStep::Wait);
    }
    match relay.bytes[relay.at + HEADER] {
        status @ (b'I' | b'T' | b'E') => Ok(status),
        status => Err(AnswerStep::Broken(format!("a ReadyForQuery of unknown status 0x{status:02X}"))),
    }
}

fn unexpected(kind: u8) -> String {
    if kind.is_ascii_graphic() {
        format!("an unexpected message of type '{}'", char::from(kind))
    } else {
        format!("an unexpected message of type 0x{kind:02X}")
    }
}
