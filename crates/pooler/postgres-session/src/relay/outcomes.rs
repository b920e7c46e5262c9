//! How a request of a client's ended, where that means more than being passed on: errors, completions that tell what
//! the server has forgotten, or that the client is to be told otherwise, and the ReadyForQuery behind it.

use std::num::NonZeroU8;

use seam::{Blame, Effect, Peer, Standing, Verdict};

use crate::{
    directory::{OnState, PoolMode},
    exchange::Note,
    features::prepared::named,
    relay::answer::{AnswerStep, Incoming, Relay},
    session::{Client, ErrorText, Occasion, Phase, Postgres, Server, Stage, reset::ToldCompletion},
    sql::{Suspects, Tag},
    wire::{Failure, IDLE, Report, Severity, back, code, front, message::write, write_ready},
};

/// Why a ReadyForQuery is kept back from the holder.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct ReadyOutcome {
    /// Parameters that were reset have to be corrected first.
    corrects: bool,
    /// The holder listens: notifications that were committed before come first.
    awaits_notifications: bool,
    /// A survey comes first: the holder may listen now, or may have to go for want of a pin.
    is_surveyed: bool,
}

impl Postgres {
    pub(crate) fn handle_command_complete(
        &self,
        relay: &mut Relay<'_, '_>,
        server: &mut Server,
        message: Incoming,
    ) -> AnswerStep {
        let note = server.exchange.answered(back::COMMAND_COMPLETE);
        let tag = relay.body(message).unwrap_or_default();
        let told = match (note, server.traces.amended()) {
            // Another tag is that of a statement which took the place of the amended one.
            (Some(Note::Amended(own)), _) if matches!(tag, b"" | b"DO\0" | b"SET\0") => ToldCompletion::As(own),
            (_, Some(requests)) => requests.translate_completion(tag),
            _ => ToldCompletion::Same,
        };
        match told {
            ToldCompletion::Same => {}
            ToldCompletion::Nothing => return AnswerStep::Drop,
            ToldCompletion::As(_) if tag.is_empty() => {
                return AnswerStep::Broken("a CommandComplete that is too long".to_owned());
            }
            ToldCompletion::As(told) => {
                relay.skip(server, message);
                let told: &[u8] = if told == Tag::Reset { b"RESET\0" } else { b"SET\0" };
                let holder = server.holder().expect("a client is served");
                relay.out.insert(Peer::Client(holder), |to| {
                    write(to, back::COMMAND_COMPLETE, |to| to.extend_from_slice(told));
                });
                return AnswerStep::Handled;
            }
        }
        let forgets = server.traces.may_have_any(Suspects::DEALLOCATE);
        match tag {
            b"DISCARD ALL\0" if forgets => self.note_deallocate_all(relay, server, true),
            // In session mode Poolhouse does not follow statements.
            b"DISCARD ALL\0" if server.traces.may_have_any(Suspects::RESET) => server.traces.note_discard_all(),
            b"DEALLOCATE ALL\0" if forgets => self.note_deallocate_all(relay, server, false),
            // Of a statement that is not known by its name: it may have been one of ours.
            b"DEALLOCATE\0" | b"DO\0" if forgets => {
                server.statements.doubt_all();
            }
            b"COMMIT\0" => server.traces.note_commit(),
            b"ROLLBACK\0" if server.exchange.is_on_last_request() => server.unlistened.clear(),
            _ => {}
        }
        match note {
            None | Some(Note::Amended(_)) => AnswerStep::Forward,
            Some(_) => AnswerStep::Broken("a Parse or Close answered by a CommandComplete".to_owned()),
        }
    }

    /// The server has deallocated all prepared statements and, with `all`, discarded everything else.
    fn note_deallocate_all(&self, relay: &mut Relay<'_, '_>, server: &mut Server, all: bool) {
        server.statements.forget_all();
        if all {
            server.traces.note_discard_all();
        }
        let tag = server.holder().expect("a client is served");
        let client = relay.client(tag);
        if let Some(named) = &mut client.named {
            named.clear();
        }
        if all && client.listening.is_some() {
            let client = relay.clients.get(tag).expect("the holder of a server has a session");
            self.unlisten_all(client, relay.out);
        }
    }

    pub(crate) fn handle_error_response(
        &self,
        relay: &mut Relay<'_, '_>,
        server: &mut Server,
        message: Incoming,
    ) -> AnswerStep {
        let body = relay.body(message);
        let repeated = server.statements.decide_repeat(&server.exchange, body.unwrap_or_default());
        let prepared = server.exchange.answers_extended();
        let syncs = server.exchange.enter_error();
        if server.exchange.is_on_last_request() && !server.traces.has_discarded_all() {
            // A request that resets or stops listening is the last under way: what follows waits for its answer.
            server.unlistened.clear();
            server.traces.note_failure();
        }
        if let Some(body) = body {
            server.note_fatal(body);
            if server.for_writes && Failure::read(body).code == code::READ_ONLY_SQL_TRANSACTION {
                relay.out.push(Effect::Outdated { server: relay.me });
            }
        }
        let mut link = relay.link(server);
        link.client.copies.note_failure();
        let mut renamed = named::error_answered(body, prepared, link.client, link.server);
        for _ in 0..syncs {
            // Behind a COPY that failed before more data came, they mean something again.
            link.write_to_server(|to| write(to, front::SYNC, |_| {}));
            link.server.exchange.enter_sync();
            link.end_pipeline();
        }
        if repeated {
            return AnswerStep::Drop;
        }
        if let Some(requests) = server.traces.amended() {
            renamed = renamed.as_deref().or(body).and_then(|body| requests.relocate(body)).or(renamed);
        }
        let Some(renamed) = renamed else { return AnswerStep::Forward };
        relay.skip(server, message);
        relay.out.insert(Peer::Client(server.lease().holder), |to| {
            write(to, back::ERROR_RESPONSE, |to| to.extend_from_slice(&renamed));
        });
        AnswerStep::Handled
    }

    /// A ReadyForQuery for the holder has been entered.
    #[inline]
    pub(crate) fn handle_ready(
        &self,
        relay: &mut Relay<'_, '_>,
        server: &mut Server,
        status: u8,
        message: Incoming,
    ) -> AnswerStep {
        let settled = server.exchange.is_settled();
        relay.transaction_ended |= status == IDLE;
        if let Some(requests) = server.traces.amended() {
            requests.end_query();
        }
        let tag = server.holder().expect("a client holds the server");
        if !server.exchange.discarded().is_empty() {
            // It has answered less than it was asked.
            named::settle_discarded(relay.client(tag), server);
        }
        relay.wake_holder(server);
        if !settled && status == IDLE {
            return AnswerStep::Forward;
        }
        if status != IDLE && relay.client(tag).mode == PoolMode::Statement {
            relay.skip(server, message);
            return self.refuse_transaction(relay, server, settled);
        }
        if !settled {
            return AnswerStep::Forward;
        }
        relay.client(tag).copies.note_settled();
        if status == IDLE {
            server.statements.begin_transaction();
        }
        server.lease_mut().may_copy &= status != IDLE;
        if status == IDLE {
            server.traces.ask_doubted_resets();
        }
        let ready = self.ready_outcome(relay.client(tag), server, status);
        if ready != ReadyOutcome::default() {
            relay.skip(server, message);
            relay.client(tag).withheld_ready = NonZeroU8::new(status);
        } else {
            relay.flush(server, message.end);
        }
        let mut link = relay.link(server);
        if std::mem::take(&mut link.server.lease_mut().told_mid_message) {
            link.client.mid_message = false;
        }
        if status != IDLE {
            link.stand(Standing::InTransaction);
            if ready.corrects && !link.client.owes_server() && !link.server.owes_client() {
                self.survey_for_resets(&mut link);
            }
        } else if link.may_release() {
            self.finish(&mut link);
        } else if !link.client.owes_server() {
            link.stand(Standing::Idle);
            if ready.corrects && !link.server.owes_client() {
                self.survey_for_resets(&mut link);
            }
        }
        if matches!(link.client.phase, Phase::Ready) && link.client.withheld_ready.is_some() {
            if ready.awaits_notifications && !link.client.owes_server() {
                self.resume_after_notifications(tag, link.client, link.out);
            } else {
                link.client.tell_ready(tag, link.out);
            }
        }
        AnswerStep::Handled
    }

    /// What comes before the holder is told that the server is ready.
    #[inline]
    fn ready_outcome(&self, client: &Client, server: &Server, status: u8) -> ReadyOutcome {
        let idle = status == IDLE;
        let corrects = server.traces.may_have_any(Suspects::RESET)
            && (server.policy.on_state != OnState::Allow || server.mode == PoolMode::Session)
            && status != b'E';
        let listens = idle && server.traces.may_have_any(Suspects::LISTEN) && Self::shares_listening(server);
        let lacks_pin = idle && !server.traces.is_none() && self.may_lack_pin(client, server);
        let awaits_notifications = idle && client.listening.is_some();
        ReadyOutcome { corrects, awaits_notifications, is_surveyed: listens || lacks_pin }
    }

    /// A transaction stays open in statement mode: it is rolled back, and the client is told.
    fn refuse_transaction(&self, relay: &mut Relay<'_, '_>, server: &mut Server, settled: bool) -> AnswerStep {
        let mut link = relay.link(server);
        link.client.mid_message = false;
        link.server.lease_mut().told_mid_message = false;
        self.unpin(link.client, link.server_tag, link.out);
        let severity = link.client.entrance.wording().severity(Severity::Error);
        let stays = settled && !link.client.owes_server() && severity == Severity::Error;
        let message = "transactions of several statements are not allowed in statement mode";
        let hint = "The transaction was rolled back. Use mode = \"transaction\" for this database.";
        let ours = ErrorText::new(code::FEATURE_NOT_SUPPORTED, message, hint);
        let ErrorText { code, message, hint } = link.client.entrance.wording().choose(Occasion::OpenTransaction, ours);
        let severity = if stays { Severity::Error } else { Severity::Fatal };
        let report = Report { severity, code: &code, message: &message, hint: &hint };
        if stays {
            link.write_to_client(|to| {
                report.write(to);
                write_ready(to, IDLE);
            });
            link.release(Verdict::Reset);
            AnswerStep::Handled
        } else {
            link.fail(&report, Blame::Client);
            link.release(Verdict::Discard);
            link.server.stage = Stage::Closed;
            AnswerStep::Over
        }
    }
}
