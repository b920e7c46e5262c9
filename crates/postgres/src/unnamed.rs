//! The unnamed prepared statement. A client may parse it in one round trip and use it in the next, and in between the
//! server may have served somebody else. Then it is parsed again if its text was kept, else closed, so that the
//! server itself says that it does not exist. A client never meets the statement of another.
//!
//! The text is kept only of a statement that was not bound together with its parsing: most are, and those cost
//! nothing here. Named statements are not looked at.

use std::ops::Range;

use protocol::{ClientTag, Outbox, Peer, ServerTag};

use crate::{
    PoolMode,
    client::Client,
    message::{HEADER, Header, back, front, take_text, write},
    server::Server,
};

/// Longest Parse that is kept for a client, in bytes.
const MAX_KEPT: usize = 16 * 1024;

/// Whose statement a server has: a client's tag, which may be reused, and its secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner(ClientTag, u32);

impl Server {
    /// An error was reported: a Parse that is not answered yet may be discarded.
    pub(crate) fn doubt_unnamed(&mut self) {
        self.hidden = None;
        if self.parsing {
            self.unnamed = None;
        }
    }
}

/// What is to be done with a message on account of the unnamed statement.
pub(crate) enum Unnamed {
    Forward,
    /// More of it is needed to tell.
    Wait,
    /// The statement is elsewhere, and it is too late to bring it here.
    Lost,
}

/// A message of a client that holds a server, as far as it has arrived.
pub(crate) struct Arrived<'a> {
    pub(crate) header: Header,
    /// The whole input.
    pub(crate) bytes: &'a [u8],
    /// Where the message begins in it.
    pub(crate) at: usize,
    /// No more of it can be waited for.
    pub(crate) full: bool,
}

impl Arrived<'_> {
    fn body(&self) -> &[u8] {
        let end = self.at + self.header.total();
        &self.bytes[self.at + HEADER..end.min(self.bytes.len())]
    }

    fn is_whole(&self) -> bool {
        self.at + self.header.total() <= self.bytes.len()
    }

    /// Whether the message is about the unnamed statement; `None` if that cannot be told yet.
    fn names_unnamed(&self) -> Option<bool> {
        let mut body = self.body();
        match self.header.kind {
            front::PARSE => Some(*body.first()? == 0),
            front::BIND => {
                take_text(&mut body)?;
                Some(*body.first()? == 0)
            }
            _ => Some(*body.first()? == b'S' && *body.get(1)? == 0),
        }
    }
}

/// Follows a message, before it is entered into the exchange. `kept` is the span of a Parse that has not been bound.
#[inline]
pub(crate) fn follow(
    (me, client): (ClientTag, &mut Client),
    (tag, server): (ServerTag, &mut Server),
    message: &Arrived<'_>,
    kept: &mut Option<Range<usize>>,
    out: &mut Outbox,
) -> Unnamed {
    let owner = Owner(me, client.secret);
    match message.header.kind {
        front::QUERY => {
            // A simple query destroys the statement.
            server.unnamed = None;
            client.unnamed = None;
            *kept = None;
        }
        front::BIND if server.unnamed == Some(owner) => *kept = None,
        front::DESCRIBE if server.unnamed == Some(owner) => {}
        // The server discards it.
        _ if server.exchange.is_skipping() => {}
        front::PARSE | front::BIND | front::DESCRIBE | front::CLOSE if client.mode != PoolMode::Session => {
            let may_wait = !message.is_whole() && !message.full;
            match message.names_unnamed() {
                None if may_wait => return Unnamed::Wait,
                None | Some(false) => {}
                Some(true) if message.header.kind == front::PARSE => {
                    if may_wait {
                        return Unnamed::Wait;
                    }
                    server.unnamed = Some(owner);
                    server.parsing = true;
                    client.unnamed = None;
                    let span = message.at..message.at + message.header.total();
                    *kept = (message.is_whole() && span.len() <= MAX_KEPT).then_some(span);
                }
                Some(true) if message.header.kind == front::CLOSE => {
                    server.unnamed = None;
                    client.unnamed = None;
                    *kept = None;
                }
                Some(true) => return bring(client, (tag, server), owner, out),
            }
        }
        _ => {}
    }
    Unnamed::Forward
}

/// Makes sure that the server has the client's unnamed statement, or none.
fn bring(client: &Client, (tag, server): (ServerTag, &mut Server), owner: Owner, out: &mut Outbox) -> Unnamed {
    if !server.exchange.is_settled() {
        return if server.unnamed.is_none() && client.unnamed.is_none() { Unnamed::Forward } else { Unnamed::Lost };
    }
    out.insert(Peer::Server(tag), |to| match &client.unnamed {
        Some(parse) => to.extend_from_slice(parse),
        None => write(to, front::CLOSE, |to| to.extend_from_slice(b"S\0")),
    });
    server.hidden = Some(if client.unnamed.is_some() { back::PARSE_COMPLETE } else { back::CLOSE_COMPLETE });
    server.exchange.extended();
    server.unnamed = Some(owner);
    server.parsing = true;
    Unnamed::Forward
}
