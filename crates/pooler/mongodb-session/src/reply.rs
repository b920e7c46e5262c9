//! The reply to the request of a client: whose it is, and how much of it the server has sent.

use seam::{ClientTag, Outbox, Peer};

use crate::{
    check::Check,
    scan::Scan,
    wire::{Header, MORE_TO_COME, Number, Relayed},
};

pub struct Reply {
    client: ClientTag,
    /// The id of the request that it answers: of the client's, or of the ping behind one that wants no answer.
    awaited: i32,
    expected: Expected,
    /// The message at hand, and how many bytes of it are still to come.
    message: Relayed,
    left: usize,
    /// Looks at the message at hand while it passes.
    scan: Option<Scan>,
    /// Another message follows the one at hand.
    more_to_come: bool,
    /// The client has a part of it.
    is_begun: bool,
}

/// What the client expects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expected {
    OneMessage,
    /// It reads replies that it has not asked for one by one.
    Exhaust,
    /// It wants no answer to its request of this id.
    Nothing {
        request: i32,
    },
}

/// A piece of the message at hand.
pub struct Piece {
    pub length: usize,
    /// What the client is told in other numbers, and where these are in the message. A change of the server's state is
    /// among them if this is not empty.
    pub numbers: Vec<(usize, Number)>,
    /// The id of a cursor, and where it is in the message.
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

    /// The client wants no answer: that to this ping tells that its request has been carried out.
    pub fn await_sign(&mut self, ping: i32) {
        self.expected = Expected::Nothing { request: self.awaited };
        self.awaited = ping;
    }

    /// The client has gone: what the server still owes, if it may be used after that. The next bytes of a message that
    /// has begun would be taken for the beginning of another.
    pub fn abandoned(&self) -> Option<Check> {
        match self.expected {
            Expected::Nothing { request } if self.left == 0 => Some(Check::of_sign(self.awaited, request)),
            _ => None,
        }
    }

    pub fn awaits(&self, id: i32) -> bool {
        self.awaited == id
    }

    /// Whether a message with this head belongs to it.
    pub fn accepts(&self, header: &Header) -> bool {
        let is_later = self.expected == Expected::Exhaust && self.is_begun;
        self.awaits(header.answers) || is_later || self.is_unwanted(header)
    }

    /// There are servers that answer though no answer is wanted.
    fn is_unwanted(&self, header: &Header) -> bool {
        self.expected == Expected::Nothing { request: header.answers }
    }

    /// Whether the client gets it.
    pub fn is_relayed(&self) -> bool {
        !matches!(self.expected, Expected::Nothing { .. })
    }

    /// A message begins, which is relayed as it comes, or whole.
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

    /// Whether there are bytes of the message at hand to come.
    pub fn is_amid_message(&self) -> bool {
        self.left > 0
    }

    pub fn has_more_to_come(&self) -> bool {
        self.more_to_come
    }

    pub fn is_over(&self) -> bool {
        self.left == 0 && !self.more_to_come
    }

    /// How much of the bytes that have come may be relayed, and what is to be changed in that.
    pub fn look(&mut self, bytes: &[u8]) -> Piece {
        let (at, length) = (self.message.length - self.left, self.left.min(bytes.len()));
        let mut piece = Piece { length, numbers: Vec::new(), cursor: None };
        if let Some(scan) = &mut self.scan {
            let looked_at = scan.look(&bytes[..length], at, &mut piece.numbers);
            // The rest is shown again with more behind it, if there is more.
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

    /// Relays the next `length` bytes of the message at hand, with other numbers at these places of the message.
    pub fn relay(&mut self, length: usize, numbers: impl Iterator<Item = (usize, Number)>, out: &mut Outbox) {
        if self.is_relayed() {
            let at = self.message.length - self.left;
            self.message.span(out, Peer::Client(self.client), at, length, numbers);
        }
        self.left -= length;
    }

    /// The message at hand is dealt with: the client is told another in its place.
    pub fn replace(&mut self) {
        self.left = 0;
    }
}
