//! The current request of a client: what is known after its body has been read, and the progress of its reply.

use crate::{
    bson::Document,
    command::{Command, Transaction, TransactionId},
    errors,
    reply_summary::{ReplySummary, is_ok},
    wire::{Answers, EXHAUST_ALLOWED, Header, MORE_TO_COME, Op, Relayed},
};

#[derive(Clone, Copy, Debug)]
pub struct Request {
    id: i32,
    length: u32,
    flags: u32,
    /// Where the body begins in the message.
    body_at: u32,
    is_op_query: bool,
    transaction: Transaction,
    transaction_id: Option<TransactionId>,
    kind: RequestKind,
    host: Option<u32>,
    reply: Reply,
}

/// What kind of command it is, as far as that matters after routing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestKind {
    Hello,
    /// It opens a change stream, or a cursor with `awaitData`.
    OpensStream,
    /// `awaits_data`: the server may delay the reply until other clients write.
    GetMore {
        awaits_data: bool,
    },
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reply {
    Awaited,
    /// The client has a part of it.
    Begun,
    Ok,
    /// An error. `transaction_gone`: the server no longer has the transaction that the request was to end.
    Error {
        transaction_gone: bool,
    },
}

/// A transaction, and the host that its first command was sent to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartedTransaction {
    pub id: TransactionId,
    pub host: usize,
}

impl Request {
    /// `flags` are those of its OP_MSG.
    pub fn new(header: Header, flags: u32) -> Self {
        let is_op_query = header.op == Op::Query;
        Self {
            id: header.id,
            length: header.length as u32,
            flags: if is_op_query { 0 } else { flags },
            body_at: 0,
            is_op_query,
            transaction: Transaction::None,
            transaction_id: None,
            kind: RequestKind::Other,
            host: None,
            reply: Reply::Awaited,
        }
    }

    /// A request of which only the id is known.
    pub fn unreadable(id: i32) -> Self {
        Self::new(Header { length: 0, id, answers: 0, op: Op::Msg }, 0)
    }

    pub fn set_body(&mut self, at: usize) {
        self.body_at = at as u32;
    }

    pub fn set_command(&mut self, command: &Command<'_>) {
        self.transaction = command.transaction;
        self.transaction_id = command.transaction_id();
    }

    pub fn set_kind(&mut self, kind: RequestKind) {
        self.kind = kind;
    }

    pub fn set_host(&mut self, host: usize) {
        self.host = Some(host as u32);
    }

    pub fn id(&self) -> i32 {
        self.id
    }

    pub fn length(&self) -> usize {
        self.length as usize
    }

    pub fn body_at(&self) -> usize {
        self.body_at as usize
    }

    pub fn kind(&self) -> RequestKind {
        self.kind
    }

    pub fn transaction(&self) -> Transaction {
        self.transaction
    }

    pub fn transaction_id(&self) -> Option<TransactionId> {
        self.transaction_id
    }

    /// The transaction that it starts. The host keeps it even if the session has started another one elsewhere since.
    pub fn started_transaction(&self) -> Option<StartedTransaction> {
        let id = self.transaction_id.filter(|_| self.transaction == Transaction::Starts)?;
        Some(StartedTransaction { id, host: self.host? as usize })
    }

    pub fn relayed(&self) -> Relayed {
        Relayed { length: self.length(), flags: self.flags }
    }

    /// Bytes at the end of the request that no server gets.
    pub fn checksum_length(&self) -> usize {
        self.relayed().end().map_or(0, |end| self.length() - end)
    }

    pub fn answers(&self) -> Answers {
        Answers { id: self.id, old: self.is_op_query }
    }

    pub fn is_op_query(&self) -> bool {
        self.is_op_query
    }

    pub fn wants_answer(&self) -> bool {
        self.flags & MORE_TO_COME == 0
    }

    /// Whether the client accepts several replies (`exhaustAllowed`).
    pub fn allows_exhaust(&self) -> bool {
        self.flags & EXHAUST_ALLOWED != 0
    }

    /// Whether the server may delay the reply until other clients write.
    pub fn awaits_data(&self) -> bool {
        self.kind == RequestKind::GetMore { awaits_data: true }
    }

    /// The label of an error reply, if a retry is safe.
    pub fn error_label(&self) -> Option<&'static str> {
        let of_change_stream = matches!(self.kind, RequestKind::OpensStream | RequestKind::GetMore { .. });
        errors::label(self.transaction, of_change_stream)
    }

    /// The client gets the first part of the reply.
    pub fn begin_reply(&mut self) {
        self.reply = Reply::Begun;
    }

    /// The client has nothing of the reply: the request goes to another host.
    pub fn restart_reply(&mut self) {
        self.reply = Reply::Awaited;
    }

    pub fn is_reply_begun(&self) -> bool {
        self.reply != Reply::Awaited
    }

    /// Notes a complete reply. `summary` is `None` if it is malformed.
    pub fn note_reply(&mut self, reply: Document<'_>, summary: Option<&ReplySummary>) {
        let gone = |summary: &ReplySummary| match self.transaction {
            Transaction::Commits => summary.is_committed_or_gone(reply),
            _ => summary.is_aborted(reply),
        };
        self.reply = match is_ok(reply) {
            true if summary.is_some() => Reply::Ok,
            true => Reply::Begun,
            false => Reply::Error { transaction_gone: summary.is_some_and(gone) },
        };
    }

    pub fn has_failed(&self) -> bool {
        matches!(self.reply, Reply::Error { .. })
    }

    /// Whether the reply shows that the transaction to be ended is over at its host.
    pub fn has_ended_transaction(&self) -> bool {
        self.transaction.ends() && matches!(self.reply, Reply::Ok | Reply::Error { transaction_gone: true })
    }
}
