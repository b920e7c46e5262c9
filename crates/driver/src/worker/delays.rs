//! Answers to failed logins that are kept back for a while, because their addresses guess passwords.

use std::net::IpAddr;

use pool::Time;
use protocol::Protocol;

use super::Worker;
use crate::{reactor::Data, throttle};

/// Bytes of a kept-back answer to a failed login.
const MAX_KEPT_BACK: usize = 4096;

/// A kept-back answer.
pub(super) struct Delayed {
    client: u32,
    serial: u32,
    /// Where it comes from; once it has gone, its socket does not tell.
    address: Option<IpAddr>,
    until: Time,
    bytes: Vec<u8>,
}

impl<P: Protocol> Worker<P> {
    pub(super) fn on_auth_failed(&mut self, slot: usize) {
        let address = self.client_ip(slot);
        if !self.shared.throttle.failed(address, self.now) {
            return;
        }
        let client = &mut self.clients[slot];
        client.muted = true;
        let (serial, until) = (client.serial, self.now + throttle::DELAY);
        self.delayed.push_back(Delayed { client: slot as u32, serial, address, until, bytes: Vec::new() });
    }

    pub(super) fn keep_back(&mut self, slot: usize, data: &Data<'_>) {
        let bytes = data.bytes();
        let serial = self.clients[slot].serial;
        if let Some(delayed) = self.delayed.iter_mut().rev().find(|d| d.client as usize == slot && d.serial == serial)
            && delayed.bytes.len() + bytes.len() <= MAX_KEPT_BACK
        {
            delayed.bytes.extend_from_slice(bytes);
        }
    }

    /// Gives the kept-back answers whose time has come.
    pub(super) fn answer_delayed(&mut self) {
        while self.delayed.front().is_some_and(|delayed| delayed.until <= self.now) {
            let delayed = self.delayed.pop_front().expect("there is one");
            self.shared.throttle.answered(delayed.address);
            if !self.client_is(delayed.client, delayed.serial) {
                continue;
            }
            let slot = delayed.client as usize;
            self.clients[slot].muted = false;
            let _ = self.reactor.send(self.clients[slot].conn, Data::Bytes(&delayed.bytes));
            if self.clients[slot].closing {
                self.linger_or_remove(slot);
            }
        }
    }
}
