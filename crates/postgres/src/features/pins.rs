//! Clients keep their servers beyond their transactions, as many as may.

use protocol::{Blame, ClientTag, Effect, Outbox, ServerTag, Verdict};

use crate::{
    session::{client::Client, pins::Pin, server::Server, shared::Postgres, soil::Soil},
    wire::error::{Report, Severity, code},
};

impl Postgres {
    /// Pins the client's server, or lets it go. False if there is no room for another pin: then the client is told to go.
    pub(crate) fn set_pin(
        &self,
        me: ClientTag,
        client: &mut Client,
        tag: ServerTag,
        server: &mut Server,
        pin: Option<Pin>,
        out: &mut Outbox,
    ) -> bool {
        match (client.pin, pin) {
            (None, Some(new)) if !self.add_pin(me, client, tag, server, new, out) => return false,
            (Some(_), None) => {
                server.pinned = false;
                self.unpin(client, tag, out);
            }
            (Some(old), Some(new)) if old != new => {
                out.push(Effect::Pinned { server: tag, reason: Some(new.word()) });
            }
            _ => {}
        }
        client.pin = pin;
        true
    }

    /// One more server of the pool is pinned. False if there is no room for it: then the client is told to go.
    pub(crate) fn add_pin(
        &self,
        me: ClientTag,
        client: &mut Client,
        tag: ServerTag,
        server: &mut Server,
        pin: Pin,
        out: &mut Outbox,
    ) -> bool {
        let max = server.policy.max_pinned;
        if self.pins.add(client.pool, max) {
            server.pinned = true;
            out.push(Effect::Pinned { server: tag, reason: Some(pin.word()) });
            return true;
        }
        let message =
            format!("this session needs a server of its own ({}), and max_pinned = {max} have one", pin.word());
        let report = Report {
            severity: Severity::Fatal,
            code: code::CONFIGURATION_LIMIT_EXCEEDED,
            message: &message,
            hint: "Raise max_pinned, or use mode = \"session\" for such clients.",
        };
        client.fail(me, &report, Blame::Exhausted, out);
        server.soil.add(Soil::ALL);
        client.release(me, tag, server, Verdict::Reset, out);
        false
    }

    /// The client no longer keeps the server.
    pub(crate) fn unpin(&self, client: &mut Client, tag: ServerTag, out: &mut Outbox) {
        if client.pin.take().is_some() {
            self.pins.remove(client.pool);
            out.push(Effect::Pinned { server: tag, reason: None });
        }
    }

    /// The pinned server of a client is lost.
    pub(crate) fn forget_pin(&self, client: &mut Client) {
        if client.pin.take().is_some() {
            self.pins.remove(client.pool);
        }
    }
}
