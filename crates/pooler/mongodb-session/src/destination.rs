//! Where the request of a client goes: to one host, to one after the other until one of them knows its cursor, or to
//! all of them.

use std::sync::Arc;

use crate::{
    routes::{Goal, Named, Route},
    selection::Wanted,
    wire::Number,
};

#[derive(Debug)]
pub struct Destination {
    goal: Goal,
    /// What the request requires of a host beside.
    wanted: Option<Arc<Wanted>>,
    /// The cursors that it is about.
    cursors: Box<[Named]>,
    /// The hosts that it goes to afterwards, the last one first.
    next_hosts: Vec<usize>,
    /// Present if it goes to all hosts.
    broadcast: Option<Box<Broadcast>>,
}

/// What hosts have answered to a request that goes to all of them.
#[derive(Default, Debug)]
struct Broadcast {
    /// The first answer that is an error, as a message.
    error: Option<Vec<u8>>,
}

impl Default for Destination {
    fn default() -> Self {
        Self { goal: Goal::Writable, wanted: None, cursors: Box::default(), next_hosts: Vec::new(), broadcast: None }
    }
}

impl Destination {
    pub fn of(route: Route) -> Self {
        let Route { goal, cursors, next_hosts, wanted, .. } = route;
        Self { goal, wanted, cursors: cursors.into(), next_hosts, broadcast: None }
    }

    /// All these hosts, one after the other; without one, any that takes writes.
    pub fn all(mut hosts: Vec<usize>) -> Self {
        hosts.reverse();
        let goal = hosts.pop().map_or(Goal::Writable, Goal::Host);
        Self { goal, next_hosts: hosts, broadcast: Some(Box::default()), ..Self::default() }
    }

    pub fn goal(&self) -> Goal {
        self.goal
    }

    pub fn wanted(&self) -> Option<&Wanted> {
        self.wanted.as_deref()
    }

    /// The cursor that the request reads on with, or the first that it is about.
    pub fn cursor(&self) -> Option<Named> {
        self.cursors.first().copied()
    }

    /// The cursors that the host knows by other ids than the client: the places of the ids in the message, whose body
    /// begins at `body_at`, and the host's ids.
    pub fn translated_cursors(&self, body_at: usize) -> impl Iterator<Item = (usize, Number)> {
        let translated = self.cursors.iter().filter(|named| named.told != named.own);
        translated.map(move |named| (body_at + named.at, Number::Long(named.own)))
    }

    /// The hosts that have not been asked.
    pub fn next_hosts(&self) -> &[usize] {
        &self.next_hosts
    }

    pub fn has_next_host(&self) -> bool {
        !self.next_hosts.is_empty()
    }

    /// Goes to the next host, which there has to be.
    pub fn go_to_next_host(&mut self) {
        self.goal = Goal::Host(self.next_hosts.pop().expect("there is another host"));
    }

    /// The request goes to its first host only: it cannot be sent again.
    pub fn forget_next_hosts(&mut self) {
        self.next_hosts.clear();
    }

    pub fn is_broadcast(&self) -> bool {
        self.broadcast.is_some()
    }

    /// A host has answered a broadcast, with this error or with none. The first error is kept.
    pub fn note_error(&mut self, error: Option<Vec<u8>>) {
        if let Some(broadcast) = &mut self.broadcast
            && broadcast.error.is_none()
        {
            broadcast.error = error;
        }
    }

    /// The first error of a broadcast, as a message.
    pub fn take_error(&mut self) -> Option<Vec<u8>> {
        self.broadcast.as_mut()?.error.take()
    }
}
