//! Asking a database who may log in: while a client waits, a query of the configuration runs with the client's user
//! name as its parameter on a borrowed server. The directory knows what the answer means.

use seam::{Blame, ClientTag, CloseReason, Effect, LeaseKind, Outbox, Peer, Verdict};

use crate::{
    Ask, LoginAttempt, Proof, Unknown,
    session::{
        Client, ErrorText, Link, Lookup, Occasion, Phase, Postgres, Purpose, ServerSide, lookup::write_question,
    },
    wire::{Failure, Report, Severity, code},
};

impl Postgres {
    /// A server must be asked for the proof of the client.
    pub(crate) fn request_lookup(&self, me: ClientTag, client: &mut Client, ask: Ask, out: &mut Outbox) {
        client.pool = ask.pool;
        client.retried = false;
        out.push(Effect::Lease { client: me, pool: ask.pool, kind: LeaseKind::Exclusive });
    }

    /// A server was granted to ask. It is given back if the answer has become known meanwhile.
    pub(crate) fn look_up(&self, link: &mut Link<'_>, asked: LoginAttempt) -> Option<Result<Proof, Unknown>> {
        match self.directory.proof(&asked) {
            // The configuration may have changed, and another server be the one to ask.
            Ok(Proof::Ask(ask)) if ask.pool == link.client.pool => {
                let user = asked.user.clone();
                let question = |to: &mut Vec<u8>| write_question(to, &ask.query, &user);
                let lookup = Lookup::new(asked);
                link.server.begin_messages(link.server_tag, Purpose::Lookup(lookup), 1, question, link.out);
                None
            }
            found => {
                link.release(Verdict::Clean);
                Some(found)
            }
        }
    }

    /// The server has answered. Returns the answer if its client still waits.
    pub(crate) fn looked_up(
        &self,
        side: &mut ServerSide<'_>,
        lookup: Lookup,
        failure: Option<Failure>,
    ) -> Option<(ClientTag, Result<Proof, Unknown>)> {
        let found = lookup.found(failure);
        let outcome = found.map(|found| self.directory.note_lookup(&lookup.attempt, found));
        if lookup.abandoned {
            side.out.push(Effect::Ready { server: side.server_tag });
        }
        let tag = side.server.holder()?;
        let mut link = side.link();
        link.release(Verdict::Clean);
        if matches!(link.client.phase, Phase::Closed) {
            return None;
        }
        match outcome {
            Ok(found) => Some((tag, found)),
            Err(why) => {
                fail_lookup(tag, link.client, &lookup.attempt.user, &why, link.out);
                None
            }
        }
    }
}

/// No server could be asked who the client is. The client, which has not logged in, is not told why.
pub(crate) fn fail_lookup(me: ClientTag, client: &mut Client, user: &str, why: &str, out: &mut Outbox) {
    let hint = "The database could not be asked who may log in; Poolhouse's log says why.";
    let ours = ErrorText::new(code::CANNOT_CONNECT_NOW, "authentication is not possible now", hint);
    let ErrorText { code, message, hint } = client.entrance.wording().choose(Occasion::LookupFailed, ours);
    let report = Report { severity: Severity::Fatal, code: &code, message: &message, hint: &hint };
    out.insert(Peer::Client(me), |to| report.write(to));
    let text = format!("auth_query for user \"{}\" failed: {why}", user.escape_debug());
    client.close(me, CloseReason::Error(Blame::Server, text), out);
}
