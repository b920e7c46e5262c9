//! Clients keep their servers beyond their transactions, as many as may.

use seam::{Blame, Effect, Outbox, ServerTag, Verdict};

use crate::{
    directory::{OnState, PoolMode},
    features::rejection::refuse,
    session::{Arrived, Client, Duty, Link, Pin, Postgres, Server, Soil, request::Step},
    sql::{Findings, Suspects},
    wire::{IDLE, Report, Severity, code, front},
};

/// What to do instead of pinning a server.
const HINT: &str = "Raise max_pinned, or use mode = \"session\" for such clients.";

/// Beginnings of statements that pin unless they fail, alone and outside of a transaction, with their findings and
/// reasons.
const PINNING: [(&[u8], Suspects, Pin); 3] = [
    (b"declare", Suspects::CURSOR, Pin::Cursor),
    (b"prepare", Suspects::PREPARE, Pin::Prepare),
    (b"create temp", Suspects::TEMPORARY, Pin::Temporary),
];

/// The pin that this text needs if it succeeds, as far as its first words tell.
fn certain_pin(findings: &Findings, text: &[u8]) -> Option<Pin> {
    if findings.several {
        return None;
    }
    let text = text.trim_ascii_start();
    let begins = |word: &[u8]| text.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
    let found = PINNING.iter().find(|(begin, suspects, _)| findings.suspects.intersects(*suspects) && begins(begin));
    // What goes with its transaction needs no server beyond that.
    found.map(|(_, _, pin)| *pin).filter(|pin| *pin != Pin::Temporary || !drops_at_commit(text))
}

fn drops_at_commit(text: &[u8]) -> bool {
    let mut words = text.split(|byte| !byte.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).peekable();
    while let Some(word) = words.next() {
        if word.eq_ignore_ascii_case(b"commit") && words.peek().is_some_and(|next| next.eq_ignore_ascii_case(b"drop")) {
            return true;
        }
    }
    false
}

fn no_room(pin: Pin, max: u32) -> String {
    format!("this session needs a server of its own ({}), and max_pinned = {max} have one", pin.word())
}

impl Postgres {
    /// A text is about to be forwarded. If it is sure to pin its client, the pin is taken now. Without room for it,
    /// returns what to do instead: the statement fails without having run.
    pub(crate) fn pin_before(
        &self,
        link: &mut Link<'_>,
        (findings, text): (&Findings, &[u8]),
        message: &Arrived<'_>,
    ) -> Option<Step> {
        let outside = link.server.exchange.is_settled()
            && link.server.exchange.status() == IDLE
            && !link.server.lease().mid_pipeline;
        if link.client.pin.is_some()
            || !outside
            || matches!(link.server.policy.on_state, OnState::Allow | OnState::Reject)
        {
            return None;
        }
        let pin = certain_pin(findings, text)?;
        if link.server.is_prefaced() {
            // Another server may yet take its place.
            return Some(Step::Wait);
        }
        let max = link.server.policy.max_pinned;
        if self.pins.add(link.client.pool, max) {
            link.server.duty = Duty::Pinned;
            link.client.pin = Some(pin);
            link.out.push(Effect::Pinned { server: link.server_tag, reason: Some(pin.word()) });
            return None;
        }
        link.out.push(Effect::PinRefused { client: link.client_tag, pool: link.client.pool, reason: pin.word() });
        let sql = format!(
            "DO $poolhouse$ BEGIN RAISE EXCEPTION USING ERRCODE = '{}', MESSAGE = '{}', HINT = '{HINT}'; END \
             $poolhouse$",
            code::CONFIGURATION_LIMIT_EXCEEDED,
            no_room(pin, max)
        );
        refuse(link, message.header.kind, sql.as_bytes(), None);
        (message.header.kind == front::QUERY).then_some(Step::Replaced(message.end()))
    }

    /// Whether the client, whose transaction is over, may need a pin for which there is no room: then the client is
    /// told so before it is told that it may go on.
    pub(crate) fn may_lack_pin(&self, client: &Client, server: &Server) -> bool {
        let advances = client.habits.asks_last_values && server.traces.may_have_any(Suspects::SEQUENCE);
        client.pin.is_none()
            && client.mode != PoolMode::Session
            && server.policy.on_state != OnState::Allow
            && (advances || server.traces.may_have_any(Suspects::LASTING))
            && !self.pins.has_room(client.pool, server.policy.max_pinned)
    }

    /// Pins the client's server, or unpins it. False if there is no room for another pin: then the client is told to
    /// go.
    pub(crate) fn set_pin(&self, link: &mut Link<'_>, pin: Option<Pin>) -> bool {
        match (link.client.pin, pin) {
            (None, Some(new)) if !self.add_pin(link, new) => return false,
            (Some(_), None) => {
                link.server.duty = Duty::Pooled;
                self.unpin(link.client, link.server_tag, link.out);
            }
            (Some(old), Some(new)) if old != new => {
                link.out.push(Effect::Pinned { server: link.server_tag, reason: Some(new.word()) });
            }
            _ => {}
        }
        link.client.pin = pin;
        true
    }

    /// Pins one more server of the pool. False if there is no room for it: then the client is told to go.
    pub(crate) fn add_pin(&self, link: &mut Link<'_>, pin: Pin) -> bool {
        let max = link.server.policy.max_pinned;
        if self.pins.add(link.client.pool, max) {
            link.server.duty = Duty::Pinned;
            link.out.push(Effect::Pinned { server: link.server_tag, reason: Some(pin.word()) });
            return true;
        }
        let message = no_room(pin, max);
        let report = Report {
            severity: Severity::Fatal,
            code: code::CONFIGURATION_LIMIT_EXCEEDED,
            message: &message,
            hint: HINT,
        };
        link.fail(&report, Blame::Exhausted);
        link.out.push(Effect::PinRefused { client: link.client_tag, pool: link.client.pool, reason: pin.word() });
        link.server.soil.insert(Soil::ALL);
        link.release(Verdict::Reset);
        false
    }

    pub(crate) fn unpin(&self, client: &mut Client, tag: ServerTag, out: &mut Outbox) {
        if client.pin.take().is_some() {
            self.pins.remove(client.pool);
            out.push(Effect::Pinned { server: tag, reason: None });
        }
    }

    pub(crate) fn forget_pin(&self, client: &mut Client) {
        if client.pin.take().is_some() {
            self.pins.remove(client.pool);
        }
    }
}
