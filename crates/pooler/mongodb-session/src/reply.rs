//! The reply to a client's request: its client, and how much of it has arrived.

use seam::{ClientTag, Outbox, Peer};

use crate::{
    owed_reply::OwedReply,
    scan::Scan,
    wire::{Header, MORE_TO_COME, Number, Relayed},
};

pub struct Reply {
    client: ClientTag,
    /// The id of the client's request, or of the ping behind an unacknowledged one.
    awaited: i32,
    expected: Expected,
    /// The current message, and how many of its bytes are still to come.
    message: Relayed,
    left: usize,
    /// Scans a long message while it is relayed.
    scan: Option<Scan>,
    /// Another message follows the current one.
    more_to_come: bool,
    /// The client has a part of it.
    is_begun: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expected {
    OneMessage,
    /// It accepts several messages (`exhaustAllowed`).
    Exhaust,
    /// Its request of this id is unacknowledged.
    Nothing {
        request: i32,
    },
}

pub struct Piece {
    pub length: usize,
    /// Replaced numbers and their offsets in the message. They are codes of state change errors.
    pub numbers: Vec<(usize, Number)>,
    /// The id of a cursor, and its offset in the message.
    pub cursor: Option<(i64, usize)>,
}

impl Reply {
    pub fn new(client: ClientTag, request: i32, allows_exhaust: bool) -> Self {
        Self {
            client,
            awaited: request,
            expected: if allows_exhaust { Expected::Exhaust } else { Expected::OneMessage },
            message: Relayed { length: 0, flags: 0 },
            left: 0,
            scan: None,
            more_to_come: false,
            is_begun: false,
        }
    }

    pub fn client(&self) -> ClientTag {
        self.client
    }

    /// The client expects no reply: that to this ping tells that its request has been carried out.
    pub fn await_ping(&mut self, ping: i32) {
        self.expected = Expected::Nothing { request: self.awaited };
        self.awaited = ping;
    }

    /// Its client has gone: what the server still owes if it can be kept. In the middle of a message it cannot.
    pub fn abandoned(&self) -> Option<OwedReply> {
        match self.expected {
            Expected::Nothing { request } if self.left == 0 => Some(OwedReply::of_ping_behind(self.awaited, request)),
            _ => None,
        }
    }

    pub fn awaits(&self, id: i32) -> bool {
        self.awaited == id
    }

    /// Whether a message with this header belongs to it.
    pub fn accepts(&self, header: &Header) -> bool {
        let is_later = self.expected == Expected::Exhaust && self.is_begun;
        self.awaits(header.answers) || is_later || self.is_unwanted(header)
    }

    /// Some servers reply to unacknowledged requests.
    fn is_unwanted(&self, header: &Header) -> bool {
        self.expected == Expected::Nothing { request: header.answers }
    }

    pub fn is_relayed(&self) -> bool {
        !matches!(self.expected, Expected::Nothing { .. })
    }

    /// A message begins. `is_whole`: it is handled when it is complete, else relayed as it arrives.
    pub fn begin(&mut self, header: &Header, message: Relayed, is_whole: bool) {
        (self.message, self.left) = (message, message.length);
        self.more_to_come =
            message.flags & MORE_TO_COME != 0 || !self.awaits(header.answers) && self.is_unwanted(header);
        self.is_begun = self.is_relayed();
        self.scan = (self.is_begun && !is_whole).then(Scan::new);
    }

    pub fn is_begun(&self) -> bool {
        self.is_begun
    }

    pub fn is_amid_message(&self) -> bool {
        self.left > 0
    }

    pub fn has_more_to_come(&self) -> bool {
        self.more_to_come
    }

    pub fn is_over(&self) -> bool {
        self.left == 0 && !self.more_to_come
    }

    /// How much of the input can be relayed, and what is to be replaced in it.
    pub fn next_piece(&mut self, bytes: &[u8]) -> Piece {
        let (at, length) = (self.message.length - self.left, self.left.min(bytes.len()));
        let mut piece = Piece { length, numbers: Vec::new(), cursor: None };
        if let Some(scan) = &mut self.scan {
            let looked_at = scan.advance(&bytes[..length], at, &mut piece.numbers);
            // The driver shows the rest again, with more input after it.
            if length < self.left {
                piece.length = looked_at;
            }
            piece.cursor = scan.id();
        }
        if piece.cursor.is_some() {
            self.scan = None;
        }
        piece
    }

    /// Relays the next `length` bytes of the current message, with the numbers at these offsets of the message
    /// replaced.
    pub fn relay(&mut self, length: usize, numbers: impl Iterator<Item = (usize, Number)>, out: &mut Outbox) {
        if self.is_relayed() {
            let at = self.message.length - self.left;
            self.message.span(out, Peer::Client(self.client), at, length, numbers);
        }
        self.left -= length;
    }

    /// The client gets another message in place of the current one.
    pub fn replace(&mut self) {
        self.left = 0;
    }
}
