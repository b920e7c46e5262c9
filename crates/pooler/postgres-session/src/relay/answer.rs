//! One input of a server on its way to the client that holds the server.

use seam::{ClientTag, Effect, Input, Outbox, Peer, ServerTag, Sessions};

use crate::{
    session::{Client, Link, Postgres, Server, ServerSide},
    wire::{HEADER, Header},
};

pub(crate) enum AnswerStep {
    Wait,
    Forward,
    Drop,
    /// The message has been handled up to its end.
    Handled,
    Broken(String),
    Over,
}

/// A message of a server, at the place that its [`Relay`] has reached.
#[derive(Clone, Copy)]
pub(crate) struct Incoming {
    pub(crate) header: Header,
    /// Where the message ends, in the input or beyond it.
    pub(crate) end: usize,
    pub(crate) whole: bool,
}

/// One input of a server on its way to the client.
pub(crate) struct Relay<'a, 'b> {
    pub(crate) me: ServerTag,
    pub(crate) clients: &'a mut dyn Sessions<ClientTag, Client>,
    pub(crate) bytes: &'b [u8],
    pub(crate) full: bool,
    pub(crate) at: usize,
    /// The start of what is to be forwarded and has not been yet; it ends at `at`.
    pub(crate) run: usize,
    /// A request has been answered completely.
    pub(crate) ended: bool,
    /// A transaction has ended.
    pub(crate) transaction_ended: bool,
    pub(crate) out: &'a mut Outbox,
}

impl<'a, 'b> Relay<'a, 'b> {
    /// A relay that has forwarded nothing, and has taken the input up to `at`.
    pub(crate) fn new(
        me: ServerTag,
        clients: &'a mut dyn Sessions<ClientTag, Client>,
        input: Input<'b>,
        at: usize,
        out: &'a mut Outbox,
    ) -> Self {
        let Input { bytes, full, .. } = input;
        Self { me, clients, bytes, full, at, run: at, ended: false, transaction_ended: false, out }
    }
}

impl<'b> Relay<'_, 'b> {
    pub(crate) fn flush(&mut self, server: &Server, end: usize) {
        if let Some(holder) = server.holder() {
            self.out.span(Peer::Client(holder), self.run..end);
        }
        self.run = end;
    }

    /// Forwards what comes before this message, and nothing of the message.
    pub(crate) fn skip(&mut self, server: &Server, message: Incoming) {
        self.flush(server, self.at);
        self.run = message.end;
    }

    /// The body of this message, if that has come.
    pub(crate) fn body(&self, message: Incoming) -> Option<&'b [u8]> {
        self.bytes.get(self.at + HEADER..message.end)
    }

    /// The rest of this message may still come while it waits.
    pub(crate) fn may_wait(&self, message: Incoming) -> bool {
        !message.whole && !self.full
    }

    pub(crate) fn take_part(&mut self, server: &mut Server) {
        let part = server.partial.rest().min(self.bytes.len() - self.at);
        if !server.partial.is_forwarded() {
            self.flush(server, self.at);
            self.run += part;
        }
        self.at += part;
        server.partial.take(part);
    }

    /// Tells the holder whether it has received only a part of a message, and that requests of its were answered while
    /// others run.
    pub(crate) fn tell_holder(&mut self, server: &mut Server) {
        let Some(holder) = server.holder() else { return };
        if self.ended && server.serves_client() && server.exchange.is_running() {
            self.out.push(Effect::Progress { client: holder, in_transaction: !self.transaction_ended });
        }
        let mid = server.owes_client();
        if std::mem::replace(&mut server.lease_mut().told_mid_message, mid) != mid {
            self.client(holder).mid_message = mid;
        }
    }

    /// A message that came in parts is complete. The client may have finished before it was.
    pub(crate) fn completed(&mut self, postgres: &Postgres, server: &mut Server) {
        if !(server.partial.is_forwarded() && server.exchange.is_settled() && server.serves_client()) {
            return;
        }
        self.flush(server, self.at);
        let mut link = self.link(server);
        if link.may_release() {
            link.client.mid_message = false;
            postgres.finish(&mut link);
        }
    }

    /// Something was answered that the holder's next request may wait for.
    pub(crate) fn wake_holder(&mut self, server: &Server) {
        if let Some(tag) = server.holder()
            && std::mem::take(&mut self.client(tag).awaits_answers)
        {
            self.out.push(Effect::Wake { client: tag });
        }
    }

    pub(crate) fn side<'c>(&'c mut self, server: &'c mut Server) -> ServerSide<'c> {
        ServerSide { server_tag: self.me, server, clients: self.clients, out: self.out }
    }

    pub(crate) fn link<'c>(&'c mut self, server: &'c mut Server) -> Link<'c> {
        Link::of_holder(self.me, server, self.clients, self.out)
    }

    pub(crate) fn client(&mut self, tag: ClientTag) -> &mut Client {
        self.clients.get(tag).expect("the holder of a server has a session")
    }
}
