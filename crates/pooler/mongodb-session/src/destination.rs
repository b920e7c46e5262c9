//! Where a client's request goes: to one host, to one host after the other until one knows its cursor, or to all hosts
//! (a broadcast).

use std::sync::Arc;

use crate::{
    routes::{CursorReference, Route, Target},
    selection::ReadRequirements,
    wire::Number,
};

#[derive(Default, Debug)]
pub struct Destination {
    target: Target,
    requirements: Option<Arc<ReadRequirements>>,
    cursors: Box<[CursorReference]>,
    /// The hosts that follow, in reverse order.
    next_hosts: Vec<usize>,
    broadcast: Option<Box<Broadcast>>,
}

#[derive(Default, Debug)]
struct Broadcast {
    /// The first error reply, as a message.
    error: Option<Vec<u8>>,
}

impl Destination {
    pub fn of(route: Route) -> Self {
        let Route { target, cursors, next_hosts, requirements, .. } = route;
        Self { target, requirements, cursors: cursors.into(), next_hosts, broadcast: None }
    }

    /// A broadcast to these hosts, or to any writable one if the list is empty.
    pub fn all(mut hosts: Vec<usize>) -> Self {
        hosts.reverse();
        let target = hosts.pop().map_or(Target::Writable, Target::Host);
        Self { target, next_hosts: hosts, broadcast: Some(Box::default()), ..Self::default() }
    }

    pub fn target(&self) -> Target {
        self.target
    }

    pub fn requirements(&self) -> Option<&ReadRequirements> {
        self.requirements.as_deref()
    }

    /// The cursor of a `getMore`, or the first of a `killCursors`.
    pub fn cursor(&self) -> Option<CursorReference> {
        self.cursors.first().copied()
    }

    /// The cursors whose ids differ at the host: the places of the ids in the message, whose body begins at `body_at`,
    /// and the host's ids.
    pub fn translated_cursors(&self, body_at: usize) -> impl Iterator<Item = (usize, Number)> {
        let translated = self.cursors.iter().filter(|named| named.client_id != named.host_id);
        translated.map(move |named| (body_at + named.at, Number::Int64(named.host_id)))
    }

    pub fn next_hosts(&self) -> &[usize] {
        &self.next_hosts
    }

    pub fn has_next_host(&self) -> bool {
        !self.next_hosts.is_empty()
    }

    /// Goes to the next host. There must be one.
    pub fn go_to_next_host(&mut self) {
        self.target = Target::Host(self.next_hosts.pop().expect("there is another host"));
    }

    /// Sends the request to its first host only: it is not held, and cannot be sent again.
    pub fn forget_next_hosts(&mut self) {
        self.next_hosts.clear();
    }

    pub fn is_broadcast(&self) -> bool {
        self.broadcast.is_some()
    }

    /// A host has answered a broadcast. The first error is kept.
    pub fn note_error(&mut self, error: Option<Vec<u8>>) {
        if let Some(broadcast) = &mut self.broadcast
            && broadcast.error.is_none()
        {
            broadcast.error = error;
        }
    }

    pub fn take_error(&mut self) -> Option<Vec<u8>> {
        self.broadcast.as_mut()?.error.take()
    }
}
