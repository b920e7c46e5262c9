//! A client that has set nothing has what its server has: the database's defaults of the moment, which a reload of its
//! configuration changes, or a promotion. It is told of another value before it gets a row that was made under that.
//!
//! A server of which it is not known what it begins with now is asked, before anything else is done with it
//! (`session::defaults`). What it says is that server's own; if it was another before, it is what all servers of the
//! pool are asked for when they are granted next. It sets nothing.

use seam::{Blame, ClientTag, CloseReason, Effect, Outbox, Peer, ServerTag, Standing, Verdict};

use crate::{
    session::{
        AfterDefaults, Client, Link, Phase, Postgres, Server, ServerSide, Stage, defaults::DefaultsQuestion,
        server_settings::OwnAnswer,
    },
    sql::{Pairs, Settings},
    wire::{Failure, write_parameter},
};

impl Postgres {
    /// A client has been granted a server. Asks the server for its defaults if they are not known (true), or has the
    /// client follow them.
    #[inline]
    pub(crate) fn ask_or_follow_defaults(&self, link: &mut Link<'_>) -> bool {
        let version = self.parameters.defaults_version();
        if !link.server.settings.is_known_at(version) {
            let known = link.server.settings.is_checked_at(version)
                || self.parameters.are_defaults(link.server.pool, link.server.settings.defaults());
            if !known || !link.server.settings.is_explained() {
                link.client.phase = Phase::ServerAtWork;
                link.server.settings.begin_check(version);
                link.server.ask_defaults(link.server_tag, AfterDefaults::Grant, link.out);
                return true;
            }
            link.server.settings.pass_check(version);
        }
        if !link.client.settings().is_based_on(link.server.settings.defaults()) {
            let before = link.client.settings_mut().rebase(link.server.settings.defaults(), &self.parameters);
            tell_differences(link.client_tag, &before, link.client.settings().current(), link.out);
        }
        false
    }

    /// The client goes on with its server: it is told of reported values that differ from those it was told last,
    /// unless it has set them.
    pub(crate) fn tell_reported(&self, link: &mut Link<'_>) {
        let known = link.client.settings().current().clone();
        let reported = &link.server.settings.current().reported;
        if known.reported == *reported || matches!(link.client.phase, Phase::Closed) {
            return;
        }
        let value_of = |(name, value)| (name, known.extras.get(name).unwrap_or(value));
        let now = Settings::new(reported.iter().map(value_of).collect(), known.extras.clone());
        let now = self.parameters.intern(now);
        tell_differences(link.client_tag, &known, &now, link.out);
        link.client.settings_mut().set_current(now);
    }

    /// The server has described the defaults of its session.
    pub(crate) fn defaults_answered(
        &self,
        side: &mut ServerSide<'_>,
        (question, failure, cancelled): (DefaultsQuestion, Option<Failure>, bool),
    ) {
        let then = question.then;
        if side.server.lease.is_none() {
            return self.defaults_answered_idle(side.server_tag, side.server, (question, failure), side.out);
        }
        let link = &mut side.link();
        link.client.phase = Phase::Ready;
        let found = match &failure {
            None => self.take_defaults(link.server, question),
            Some(_) => Found { set: Pairs::default(), outdated: true },
        };
        if then == AfterDefaults::Finish {
            let added = self.parameters.intern(found.added_to(link.client));
            link.client.settings_mut().set_current(added);
            self.tell_reported(link);
        }
        match then {
            AfterDefaults::Finish if found.outdated => {
                link.client.tell_ready(link.client_tag, link.out);
                self.replace_server(link);
            }
            AfterDefaults::Finish => self.finish_with_notifications(link),
            _ if cancelled => {
                link.cancel_request(Verdict::Clean);
            }
            _ if found.outdated => self.replace_server(link),
            _ => {
                self.prepare_for(link);
                link.wake();
            }
        }
    }

    /// A server without a holder has described the defaults of its session.
    fn defaults_answered_idle(
        &self,
        me: ServerTag,
        server: &mut Server,
        (question, failure): (DefaultsQuestion, Option<Failure>),
        out: &mut Outbox,
    ) {
        let then = question.then;
        if then == AfterDefaults::Start && failure.is_some() {
            self.publish_defaults(server, Some(Vec::new()));
            return self.defaults_known(me, server, out);
        }
        let outdated = failure.is_some() || self.take_defaults(server, question).outdated;
        if outdated {
            server.stage = Stage::Closed;
        }
        match (then, outdated) {
            (AfterDefaults::Release(_), true) => out.push(Effect::Release { server: me, verdict: Verdict::Discard }),
            (_, true) => {
                let error = |failure: Failure| CloseReason::Error(Blame::Server, failure.text());
                let reason = failure.map_or(CloseReason::Done, error);
                out.push(Effect::Close { peer: Peer::Server(me), reason });
            }
            (AfterDefaults::Start, false) => self.defaults_known(me, server, out),
            (AfterDefaults::Release(verdict), false) => {
                if !server.ask_catalogue(me, Some(verdict), out) {
                    server.release_kept(me, verdict, out);
                }
            }
            (_, false) => server.become_ready(me, out),
        }
    }

    /// Takes the answer about the defaults of a server.
    fn take_defaults(&self, server: &mut Server, question: DefaultsQuestion) -> Found {
        let OwnAnswer { set, changed } = server.settings.take_answer(&question, &self.parameters);
        let begins = question.then == AfterDefaults::Start;
        let outdated = !begins && self.has_outdated_defaults(server, if changed { &[] } else { &question.of_role });
        if begins || (changed && !outdated) {
            server.plans.note_settings_left(server.settings.current());
            self.publish_defaults(server, begins.then_some(question.of_role));
        }
        Found { set, outdated }
    }

    /// The server's defaults become those of all servers of its pool.
    pub(crate) fn publish_defaults(&self, server: &mut Server, of_role: Option<Vec<Box<[u8]>>>) {
        self.parameters.set_defaults(server.pool, server.settings.defaults(), server.facts.current(), of_role);
        server.settings.set_answer_clock(self.parameters.clock(server.pool));
    }

    /// Whether a role or a database gives new servers other defaults than this one has: an old session never learns of
    /// that. `of_role`: its own defaults of that kind.
    fn has_outdated_defaults(&self, server: &Server, of_role: &[Box<[u8]>]) -> bool {
        let Some((newest, of_newest)) = self.parameters.defaults(server.pool) else { return false };
        let differs = |(name, value): &(&[u8], &[u8])| server.settings.defaults().reported.get(name) != Some(*value);
        let is_of_role = |name: &[u8]| of_role.iter().chain(&of_newest).any(|known| known.eq_ignore_ascii_case(name));
        newest.reported.iter().filter(differs).any(|(name, _)| is_of_role(name))
    }

    /// The client needs another server.
    fn replace_server(&self, link: &mut Link<'_>) {
        link.server.stage = Stage::Closed;
        link.release(Verdict::Discard);
        link.wake();
    }

    /// The client is done with its server, and what it leaves behind is known.
    fn finish_with_notifications(&self, link: &mut Link<'_>) {
        self.resume_after_notifications(link.client_tag, link.client, link.out);
        self.finish(link);
        if matches!(link.client.phase, Phase::Subscribing) {
            link.stand(Standing::Active);
        }
    }
}

struct Found {
    /// Settings made in the session that were not known.
    set: Pairs,
    /// The server cannot be used any more.
    outdated: bool,
}

impl Found {
    /// The client's settings with those that were found.
    fn added_to(&self, client: &Client) -> Settings {
        let known = client.settings().current();
        let extras = self.set.iter().fold(known.extras.clone(), |all, (name, value)| all.with(name, value));
        Settings::new(known.reported.clone(), extras)
    }
}

/// Tells a client which of its parameters have other values now.
pub(crate) fn tell_differences(me: ClientTag, old: &Settings, new: &Settings, out: &mut Outbox) {
    for (name, value) in new.reported.iter().filter(|(name, value)| old.reported.get(name) != Some(*value)) {
        out.insert(Peer::Client(me), |to| write_parameter(to, name, value));
    }
}
