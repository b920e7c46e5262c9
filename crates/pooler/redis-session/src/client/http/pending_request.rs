//! A request over HTTP that is being executed: which of its commands were sent, and which results have come.

use std::sync::Arc;

use http_sansio::{Answer, Denied, Stream};

use crate::rest::{
    MAX_ANSWER,
    call::{Call, Command, RequestKind},
    json,
    result_format::ResultFormat,
    results,
    rules::Access,
};

/// The error for commands whose server was lost before their replies.
const UNKNOWN: &str = "ERR Poolhouse: the connection to Redis was lost; whether the command was executed is not known";

/// The same for a transaction whose EXEC had not been sent.
const NOT_EXECUTED: &str = "ERR Poolhouse: the connection to Redis was lost before all of the transaction had been \
    sent; nothing of it \
                            was executed";

/// The error for results that were dropped, because all clients together hold too much.
const NO_ROOM: &str = "ERR Poolhouse: the command was executed, but its results were dropped, because clients of HTTP \
    hold as much \
                       here as they may together: ask again, or for less at a time";

pub(super) struct PendingRequest {
    pub(super) stream: Stream,
    pub(super) format: ResultFormat,
    pub(super) call: Call,
    pub(super) access: Arc<Access>,
    pub(super) next: usize,
    /// The number of known results.
    pub(super) known: usize,
    /// The beginning of a reply.
    partial: Vec<u8>,
    body: Vec<u8>,
    status: u16,
    /// The error that replaces all results.
    denied: Option<Denied>,
    /// The name of the state behind this request.
    token: u64,
}

impl PendingRequest {
    pub(super) fn new(stream: Stream, format: ResultFormat, call: Call, access: Arc<Access>, token: u64) -> Self {
        Self {
            stream,
            format,
            call,
            access,
            next: 0,
            known: 0,
            partial: Vec::new(),
            body: Vec::new(),
            status: 200,
            denied: None,
            token,
        }
    }

    /// There is no server for the commands that were not sent.
    pub(super) fn give_up(&mut self, error: &str) {
        if self.call.kind != RequestKind::Pipeline {
            self.deny(503, error);
        }
        for command in &mut self.call.commands[self.next..] {
            *command = Command::Refused(error.to_owned());
        }
        self.next = self.call.commands.len();
    }

    /// Answers with this error. No more of its commands are sent.
    pub(super) fn refuse(&mut self, status: u16, error: &str) {
        self.deny(status, error);
        self.give_up(error);
    }

    fn deny(&mut self, status: u16, error: &str) {
        self.denied.get_or_insert_with(|| Denied::new(status, error));
    }

    pub(super) fn drop_results(&mut self) {
        self.deny(507, NO_ROOM);
        (self.body, self.partial) = (Vec::new(), Vec::new());
    }

    /// Takes a part of a reply. `over`: the reply ends with it.
    pub(super) fn add_reply_part(&mut self, bytes: &[u8], over: bool) {
        if self.body.len() + self.partial.len() + bytes.len() > MAX_ANSWER {
            self.give_up_results();
        }
        if self.denied.is_some() {
            self.partial = Vec::new();
        } else if !over || !self.partial.is_empty() {
            self.partial.extend_from_slice(bytes);
        }
        if over {
            let reply = std::mem::take(&mut self.partial);
            let reply = if reply.is_empty() { bytes } else { &reply };
            // A byte becomes six at most, so only few replies have to be measured.
            if (self.body.len() + reply.len()) * 6 > MAX_ANSWER
                && self.format != ResultFormat::Resp2
                && self.body.len() + json::max_json_length(reply, self.format) > MAX_ANSWER
            {
                self.give_up_results();
            }
            self.add_result(reply);
        }
    }

    fn give_up_results(&mut self) {
        let why = format!(
            "ERR Poolhouse: the command was executed, but its results were dropped, because they have more than \
            {MAX_ANSWER} bytes: \
             ask for less at a time"
        );
        self.deny(507, &why);
        (self.body, self.partial) = (Vec::new(), Vec::new());
    }

    pub(super) fn result_bytes(&self) -> usize {
        self.partial.len() + self.body.len()
    }

    /// The bytes of memory that commands and results take.
    pub(super) fn held_bytes(&self) -> usize {
        self.call.wire.len() + self.call.commands.len() * size_of::<Command>() + self.result_bytes()
    }

    fn add_result(&mut self, reply: &[u8]) {
        self.add_refusals();
        self.known += 1;
        match self.call.kind {
            _ if self.denied.is_some() => {}
            RequestKind::Transaction => self.add_transaction_reply(reply),
            _ => self.write_result(|to, format| match format {
                ResultFormat::Resp2 => {
                    to.extend_from_slice(reply);
                    reply.starts_with(b"-")
                }
                _ => json::result(to, reply, format),
            }),
        }
    }

    /// Takes a reply of a transaction. The results are in the last one.
    fn add_transaction_reply(&mut self, reply: &[u8]) {
        if self.known == self.call.commands.len() && json::results(&mut self.body, reply, self.format) {
            return;
        }
        // A command that cannot be queued aborts the transaction. The reply of EXEC does not have the reason.
        if let Some(error) = reply.strip_prefix(b"-") {
            let error = String::from_utf8_lossy(error.trim_ascii_end()).into_owned();
            self.deny(400, &format!("EXECABORT Transaction discarded because of: {error}"));
            if self.known == 1 {
                // MULTI has failed, and the other commands would be executed outside of a transaction.
                self.next = self.call.commands.len();
                self.known = self.next;
            }
        } else if self.known == self.call.commands.len() {
            self.deny(400, "EXECABORT Transaction discarded");
        }
    }

    /// Writes the results of the next commands, as far as they were refused.
    fn add_refusals(&mut self) {
        while let Some(Command::Refused(error)) = self.call.commands[..self.next].get_mut(self.known) {
            let error = std::mem::take(error);
            self.known += 1;
            self.write_result(|to, format| {
                match format {
                    ResultFormat::Resp2 => crate::resp::error(to, &error),
                    _ => json::error(to, &error),
                }
                true
            });
        }
    }

    /// Writes one result. `write` returns whether it is an error.
    fn write_result(&mut self, write: impl FnOnce(&mut Vec<u8>, ResultFormat) -> bool) {
        let list = self.call.kind == RequestKind::Pipeline && self.format != ResultFormat::Resp2;
        if list {
            self.body.push(if self.body.is_empty() { b'[' } else { b',' });
        }
        if write(&mut self.body, self.format) && self.call.kind == RequestKind::Single {
            self.status = 400;
        }
        if list && self.known == self.call.commands.len() {
            self.body.push(b']');
        }
    }

    /// Its server is lost: pending replies will not come, and a transaction cannot go on with another server.
    pub(super) fn on_server_lost(&mut self) {
        self.partial = Vec::new();
        if self.call.kind != RequestKind::Pipeline {
            self.deny(502, if self.is_in_transaction() { NOT_EXECUTED } else { UNKNOWN });
            self.next = self.call.commands.len();
            self.known = self.next;
            return;
        }
        let sent = self.next;
        for command in &mut self.call.commands[self.known..sent] {
            if let Command::Send(_) = command {
                *command = Command::Refused(UNKNOWN.to_owned());
            }
        }
    }

    pub(super) fn is_done(&mut self) -> bool {
        if !self.is_sent() {
            return false;
        }
        self.add_refusals();
        self.known == self.call.commands.len()
    }

    /// Whether all commands were sent or refused.
    pub(super) fn is_sent(&self) -> bool {
        self.next == self.call.commands.len()
    }

    /// Whether it has begun a transaction, and has to send the rest to the same server.
    pub(super) fn is_in_transaction(&self) -> bool {
        self.call.kind == RequestKind::Transaction && self.next > 0 && !self.is_sent()
    }

    /// Whether it fails if its server is lost.
    pub(super) fn needs_its_server(&mut self) -> bool {
        self.is_waiting() || self.is_in_transaction()
    }

    pub(super) fn is_waiting(&mut self) -> bool {
        self.add_refusals();
        self.known < self.next
    }

    /// The answer, or the error that replaces all results.
    pub(super) fn answer(self) -> Result<Answer, Denied> {
        match self.denied {
            Some(denied) => Err(denied),
            None => Ok(results(self.status, self.format, self.token, self.body)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transaction() -> PendingRequest {
        let wire = b"*1\r\n$5\r\nMULTI\r\n*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n*1\r\n$4\r\nEXEC\r\n".to_vec();
        let commands = [0..15, 15..36, 36..50].map(Command::Send).to_vec();
        let call = Call { kind: RequestKind::Transaction, wire, commands, writes: true };
        PendingRequest::new(Stream::default(), ResultFormat::Json, call, Arc::default(), 1)
    }

    /// The error after the loss of its server.
    fn lost(mut request: PendingRequest) -> Denied {
        assert!(request.needs_its_server());
        request.on_server_lost();
        assert!(request.is_done(), "nothing of it is sent to another server");
        let Err(denied) = request.answer() else { panic!("it has no results") };
        denied
    }

    #[test]
    fn a_transaction_that_has_begun_does_not_go_on_with_another_server() {
        let mut request = transaction();
        assert!(!request.needs_its_server(), "it has not begun");
        request.next = 1;
        request.add_reply_part(b"+OK\r\n", true);
        assert!(!request.is_waiting());
        let denied = lost(request);
        assert_eq!((denied.status, &*denied.error), (502, NOT_EXECUTED));
    }

    #[test]
    fn the_outcome_of_a_transaction_is_unknown_once_all_of_it_was_sent() {
        let mut request = transaction();
        request.next = 1;
        request.add_reply_part(b"+OK\r\n", true);
        request.next = 3;
        let denied = lost(request);
        assert_eq!((denied.status, &*denied.error), (502, UNKNOWN));
    }
}
