//! A client and the server that it holds, for one call of the driver: what is done with both.

use seam::{Blame, ClientTag, Effect, Outbox, Peer, ServerTag, Sessions, Standing, Verdict};

use crate::{
    directory::PoolMode,
    session::{
        client::{Client, Phase},
        server::{Duty, Server},
    },
    wire::{CANCELLED, IDLE, Report},
};

pub(crate) struct Link<'a> {
    pub(crate) client_tag: ClientTag,
    pub(crate) client: &'a mut Client,
    pub(crate) server_tag: ServerTag,
    pub(crate) server: &'a mut Server,
    pub(crate) out: &'a mut Outbox,
}

/// A server and the clients of its worker, for one call of the driver.
pub(crate) struct ServerSide<'a> {
    pub(crate) server_tag: ServerTag,
    pub(crate) server: &'a mut Server,
    pub(crate) clients: &'a mut dyn Sessions<ClientTag, Client>,
    pub(crate) out: &'a mut Outbox,
}

impl ServerSide<'_> {
    pub(crate) fn link(&mut self) -> Link<'_> {
        Link::of_holder(self.server_tag, self.server, self.clients, self.out)
    }
}

impl<'a> Link<'a> {
    pub(crate) fn of_holder(
        server_tag: ServerTag,
        server: &'a mut Server,
        clients: &'a mut dyn Sessions<ClientTag, Client>,
        out: &'a mut Outbox,
    ) -> Self {
        let client_tag = server.lease().holder;
        let client = clients.get(client_tag).expect("the holder of a server has a session");
        Self { client_tag, client, server_tag, server, out }
    }
}

impl Link<'_> {
    #[inline]
    pub(crate) fn stand(&mut self, standing: Standing) {
        self.client.stand(self.client_tag, standing, self.out);
    }

    /// Tells the client why and closes its connection.
    pub(crate) fn fail(&mut self, report: &Report<'_>, blame: Blame) {
        self.client.fail(self.client_tag, report, blame, self.out);
    }

    /// Answers the request, of which nothing was carried out, as cancelled, and gives the server back.
    pub(crate) fn cancel_request(&mut self, verdict: Verdict) {
        self.client.phase = Phase::Waiting;
        self.client.decline(self.client_tag, &CANCELLED, self.out);
        self.release(verdict);
    }

    /// Has the client's input handed over again.
    pub(crate) fn wake(&mut self) {
        self.out.push(Effect::Wake { client: self.client_tag });
    }

    pub(crate) fn write_to_client(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.out.insert(Peer::Client(self.client_tag), write);
    }

    /// Appends bytes of Poolhouse to those for the server.
    pub(crate) fn write_to_server(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.out.insert(Peer::Server(self.server_tag), write);
    }

    /// Gives the server back, with a verdict that is strict enough for what may be left behind in it.
    pub(crate) fn release(&mut self, verdict: Verdict) {
        self.server.note_soil_at_release();
        let verdict = self.server.effective_verdict(verdict);
        self.end_lease();
        self.server.give_back(self.server_tag, verdict, self.out);
        if !matches!(self.client.phase, Phase::Login(_)) {
            self.stand(Standing::Idle);
        }
    }

    /// Ends the lease, whatever becomes of the server.
    pub(crate) fn end_lease(&mut self) {
        self.client.lease = None;
        self.server.lease = None;
        self.server.duty = Duty::Pooled;
        self.server.exchange.shrink();
        self.server.catalogue.end_ddl();
    }

    /// Whether the client may give its server back now: no answer is owed, no message is under way, and no transaction
    /// is open.
    pub(crate) fn may_release(&self) -> bool {
        self.client.mode != PoolMode::Session
            && !self.client.owes_server()
            && self.server.exchange.is_settled()
            && self.server.exchange.status() == IDLE
            && !self.server.owes_client()
            && self.server.work.is_none()
    }

    #[inline]
    pub(crate) fn end_pipeline(&mut self) {
        self.server.statements.end_pipeline();
        self.server.unnamed.end_pipeline();
        if let Some(named) = &mut self.client.named {
            named.end_pipeline();
        }
        self.client.unnamed.end_pipeline();
        self.server.lease_mut().mid_pipeline = false;
    }
}
