//! Clients that have not logged in: they give way to others where there is no room, and only so many of them may look
//! on.

use seam::{Protocol, Refusal, Standing};

use super::{Work, Worker};
use crate::{
    client_state::State,
    listener::Listener,
    lobby::{Displaced, Guest, LooksOn},
    mailbox::{Admitted, Message},
    reactor::Reactor,
};

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// What the lobby knows a client by.
    pub(super) fn guest(&self, slot: usize) -> Guest {
        Guest { worker: self.number, slot: slot as u32, serial: self.clients[slot].serial }
    }

    fn listener_of(&self, slot: usize) -> &Listener {
        &self.host.listeners[usize::from(self.clients[slot].listener)]
    }

    /// A client has logged in, or goes. False if it has to go: another client has got its place, and there is no other.
    #[must_use]
    pub(super) fn leave_lobby(&mut self, slot: usize) -> bool {
        if !std::mem::take(&mut self.clients[slot].in_lobby) {
            return true;
        }
        let guest = self.guest(slot);
        if self.listener_of(slot).leave_lobby(guest) {
            return true;
        }
        // Another has its place, of which it has not heard yet.
        let goes = self.clients[slot].life.is_closing();
        if goes || !self.listener_of(slot).readmit() {
            self.clients[slot].admitted = Admitted::Displaced;
            return goes;
        }
        true
    }

    /// A client that has logged in has to go, because another has got its place.
    pub(super) fn push_crowded(&mut self, slot: usize) {
        let (client, serial) = (slot as u32, self.clients[slot].serial);
        self.work.push_back(Work::Refuse { client, serial, why: Refusal::Displaced });
    }

    /// Another client has got the place of one that lives here. If that has logged in meanwhile, it has heard of that.
    pub(super) fn give_way(&mut self, client: u32, serial: u32, of: usize) {
        let slot = client as usize;
        if !self.client_is(client, serial) || !std::mem::take(&mut self.clients[slot].in_lobby) {
            return;
        }
        self.clients[slot].admitted = Admitted::Displaced;
        if let Some(withheld) = self.paces.crowded.permits(self.now) {
            tracing::warn!(
                withheld,
                listener = %self.listener_of(slot).name, client = %self.client_address(slot), of_its_address = of,
                "too many clients: one that has not logged in gives way to another"
            );
        }
        self.refuse(slot, Refusal::Displaced);
        self.refresh_state(slot);
    }

    /// Another client looks on instead of one that lives here.
    pub(super) fn look_away(&mut self, client: u32, serial: u32, of: usize) {
        let slot = client as usize;
        if !self.client_is(client, serial)
            || self.clients[slot].state != State::Subscribed
            || !self.clients[slot].in_lobby
        {
            return;
        }
        if let Some(withheld) = self.paces.looks_away.permits(self.now) {
            tracing::warn!(
                withheld,
                listener = %self.listener_of(slot).name, client = %self.client_address(slot), of_its_address = of,
                "too many clients only look on without logging in: login_time runs for one of the address that has most"
            );
        }
        self.set_standing(slot, Standing::Login);
    }

    /// How a client stands that has not logged in and says so of itself.
    pub(super) fn standing_of_stranger(&self, slot: usize, standing: Standing) -> Standing {
        match standing {
            Standing::Subscribed if self.may_look_on(slot) => Standing::Subscribed,
            Standing::Subscribed => Standing::Login,
            Standing::Login => {
                if self.clients[slot].state == State::Subscribed {
                    self.listener_of(slot).log_in(self.guest(slot), self.now);
                }
                Standing::Login
            }
            other => other,
        }
    }

    /// Whether a client may look on only. One of an address that has more onlookers may do so no longer.
    fn may_look_on(&self, slot: usize) -> bool {
        let looks_on = self.listener_of(slot).look_on(self.guest(slot), self.now);
        if let LooksOn::Yes { instead_of: Some(Displaced { guest: Guest { worker, slot: client, serial }, of }) } =
            looks_on
        {
            self.shared.mailboxes[usize::from(worker)].send(Message::LookAway { client, serial, of });
        }
        looks_on != LooksOn::No
    }

    /// Another client gets the place of this one, or there are too many.
    pub(super) fn tell_displaced(&self, displaced: Displaced) {
        let Displaced { guest: Guest { worker, slot: client, serial }, of } = displaced;
        self.shared.mailboxes[usize::from(worker)].send(Message::GiveWay { client, serial, of });
    }
}
