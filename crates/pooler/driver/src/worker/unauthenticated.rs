//! Clients that have not logged in: they lose their places to other clients if there is no room, and a limited number
//! of them may be monitors.

use seam::{Protocol, Refusal, Standing};

use super::{ClientWork, Worker};
use crate::{
    client_state::State,
    listener::Listener,
    lobby::{Displaced, LobbyClient, Monitoring},
    mailbox::{ClientKey, Message},
    reactor::Reactor,
};

impl<P: Protocol, R: Reactor> Worker<P, R> {
    pub(super) fn lobby_client(&self, slot: usize) -> LobbyClient {
        LobbyClient { worker: self.number, slot: slot as u32, serial: self.clients[slot].serial }
    }

    fn listener_of(&self, slot: usize) -> &Listener {
        &self.process.listeners[usize::from(self.clients[slot].listener)]
    }

    /// A client has logged in, or goes. False if it has to go: another client has got its place, and there is no other.
    #[must_use]
    pub(super) fn leave_lobby(&mut self, slot: usize) -> bool {
        if !self.clients[slot].places.leave_lobby() {
            return true;
        }
        let client = self.lobby_client(slot);
        if self.listener_of(slot).leave_lobby(client) {
            return true;
        }
        // Another client has its place, and it has not heard of that yet.
        let goes = self.clients[slot].life.is_closing();
        if goes || !self.listener_of(slot).readmit() {
            self.clients[slot].places.displace();
            return goes;
        }
        true
    }

    /// A client that has logged in has to go, because another has got its place.
    pub(super) fn push_displaced(&mut self, slot: usize) {
        self.push_client_work(slot, ClientWork::Refuse(Refusal::Displaced));
    }

    /// Another client has got the place of a client of this worker. If that client has logged in meanwhile, it knows
    /// already.
    pub(super) fn on_displaced(&mut self, client: ClientKey, of_its_address: usize) {
        let slot = client.slot as usize;
        if !self.client_is(client) || !self.clients[slot].places.leave_lobby() {
            return;
        }
        self.clients[slot].places.displace();
        if let Some(withheld) = self.paces.displaced.take_line(self.now) {
            tracing::warn!(
                withheld,
                listener = %self.listener_of(slot).name, client = %self.client_address(slot), of_its_address,
                "too many clients: one that has not logged in gives way to another"
            );
        }
        self.refuse(slot, Refusal::Displaced);
        self.refresh_state(slot);
    }

    /// Another client is a monitor instead of a client of this worker.
    pub(super) fn end_monitoring(&mut self, client: ClientKey, of_its_address: usize) {
        let slot = client.slot as usize;
        if !self.client_is(client)
            || self.clients[slot].state != State::Subscribed
            || !self.clients[slot].places.is_in_lobby()
        {
            return;
        }
        if let Some(withheld) = self.paces.monitoring_ended.take_line(self.now) {
            tracing::warn!(
                withheld,
                listener = %self.listener_of(slot).name, client = %self.client_address(slot), of_its_address,
                "too many clients only look on without logging in: login_time runs for one of the address that has most"
            );
        }
        self.set_standing(slot, Standing::Login);
    }

    /// Begins or ends the monitoring of a client that has not logged in, as its session reports. Returns the standing
    /// that the client gets.
    pub(super) fn note_standing_before_login(&self, slot: usize, standing: Standing) -> Standing {
        match standing {
            Standing::Subscribed if self.try_begin_monitoring(slot) => Standing::Subscribed,
            Standing::Subscribed => Standing::Login,
            Standing::Login => {
                if self.clients[slot].state == State::Subscribed {
                    self.listener_of(slot).end_monitoring(self.lobby_client(slot), self.now);
                }
                Standing::Login
            }
            other => other,
        }
    }

    /// Makes a client a monitor if it may be one. A monitor of an address that has more of them may lose its place for
    /// that.
    fn try_begin_monitoring(&self, slot: usize) -> bool {
        let monitoring = self.listener_of(slot).begin_monitoring(self.lobby_client(slot), self.now);
        if let Monitoring::Allowed {
            instead_of: Some(Displaced { client: LobbyClient { worker, slot, serial }, of_its_address }),
        } = monitoring
        {
            self.shared.mailboxes[usize::from(worker)]
                .send(Message::EndMonitoring { client: ClientKey { slot, serial }, of_its_address });
        }
        monitoring != Monitoring::Denied
    }

    /// Tells a client that another one has got its place, or that there are too many.
    pub(super) fn notify_displaced(&self, displaced: Displaced) {
        let Displaced { client: LobbyClient { worker, slot, serial }, of_its_address } = displaced;
        self.shared.mailboxes[usize::from(worker)]
            .send(Message::Displaced { client: ClientKey { slot, serial }, of_its_address });
    }
}
