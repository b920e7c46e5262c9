//! A question of one client's session to those of all clients: it goes from worker to worker, each of which adds what
//! its clients say, and back to where it was asked.

use std::{sync::Arc, time::Duration};

use seam::{ClientTag, Protocol, SurveyedClient};

use super::{Work, Worker, calls::Source};
use crate::{
    client_state::State,
    mailbox::{Asker, Message, Survey},
    reactor::Reactor,
};

impl<P: Protocol, R: Reactor> Worker<P, R> {
    pub(super) fn begin_survey(&mut self, client: ClientTag, question: &[u8]) {
        let Some(serial) = self.clients.get(client.slot()).map(|client| client.serial) else { return };
        let asker = Asker { tag: client, serial };
        let survey = Survey { asker, question: question.to_vec(), answer: Vec::new() };
        // Sessions are at work: their turn is after that.
        self.work.push_back(Work::Survey(Box::new(survey)));
    }

    /// Asks the clients of this worker, and passes the question on.
    pub(super) fn survey(&mut self, mut survey: Box<Survey>) {
        let slots: Vec<usize> = self.clients.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            let Some(client) = self.clients.get(slot).filter(|client| !client.life.is_closing()) else { continue };
            let is_idle = matches!(client.state, State::Idle | State::Subscribed);
            let address = self.client_address(slot);
            let process = Arc::clone(&self.process);
            let facts = SurveyedClient {
                address: &address,
                listener: &process.listeners[usize::from(client.listener)].name,
                age: self.now - client.born,
                idle: if is_idle { self.now - client.since } else { Duration::ZERO },
            };
            let Survey { question, answer, .. } = &mut *survey;
            let before = answer.len();
            let called = self.call_client(slot, Source::NONE, |protocol, tag, session, out| {
                protocol.surveyed(tag, session, &facts, question, answer, out);
            });
            if called.is_none() {
                answer.truncate(before);
            }
        }
        let workers = self.shared.mailboxes.len();
        let next = (usize::from(self.number) + 1) % workers;
        if next == usize::from(survey.asker.tag.worker()) {
            self.shared.mailboxes[next].send(Message::SurveyDone(survey));
        } else {
            self.shared.mailboxes[next].send(Message::Survey(survey));
        }
    }

    pub(super) fn on_survey_done(&mut self, survey: &Survey) {
        let Survey { asker, answer, .. } = survey;
        let slot = asker.tag.slot();
        if self.client_is(asker.key()) && !self.clients[slot].life.is_closing() {
            self.call_client(slot, Source::NONE, |protocol, tag, session, out| {
                protocol.survey_done(tag, session, answer, out);
            });
        }
    }
}
