//! Whether a command is run now, queued for EXEC, or refused. It knows of a command only its row in the table.

use super::{
    Connection, Redis,
    commands::{self, Command},
    reply::{Refusal, Reply},
    session::Words,
};

impl Redis {
    /// Handles a command of a connection that is not blocked.
    pub(super) fn command(&mut self, client: Connection, words: Words) {
        let is = |name: &str| words[0].eq_ignore_ascii_case(name.as_bytes());
        if is("quit") {
            self.send(client, b"+OK\r\n".to_vec());
            return self.close_after_reply(client);
        }
        match commands::find(&words) {
            Err(why) => self.reject(client, is("exec"), &why),
            Ok(command) => match self.objection(client, command) {
                Some(why) => self.reject(client, is("exec"), &why),
                None => self.run_or_queue(client, command, words),
            },
        }
    }

    /// Why a subscriber may not send a command: RESP2 has no way to tell its reply from a message.
    fn objection(&mut self, client: Connection, command: &Command) -> Option<Refusal> {
        let session = self.session(client);
        let refused = session.is_subscriber() && session.version == 2 && !command.is(commands::FOR_SUBSCRIBERS);
        refused.then(|| {
            let name = command.name;
            format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed \
                 in this context"
            )
            .into()
        })
    }

    /// Refuses a command. The transaction that it was queued for, or should have run, fails.
    fn reject(&mut self, client: Connection, ends_transaction: bool, why: &Refusal) {
        if ends_transaction {
            self.end_transaction(client);
            let why = [b"EXECABORT Transaction discarded because of: ", why.0.strip_prefix(b"ERR ").unwrap_or(&why.0)];
            return self.refuse(client, &Refusal(why.concat()));
        }
        if let Some(queue) = &mut self.session(client).multi {
            queue.broken = true;
        }
        self.refuse(client, why);
    }

    fn run_or_queue(&mut self, client: Connection, command: &Command, words: Words) {
        match &mut self.session(client).multi {
            Some(queue) if !command.is(commands::NOT_QUEUED) => {
                queue.commands.push(words);
                self.send(client, b"+QUEUED\r\n".to_vec());
            }
            _ => {
                self.run(client, command, &words);
                self.serve_lists();
            }
        }
    }

    /// Runs a command and sends its reply.
    pub(super) fn run(&mut self, client: Connection, command: &Command, words: &[Vec<u8>]) {
        let mut reply = Reply::new(self.session(client).version);
        if let Err(why) = (command.run)(self, client, words, &mut reply) {
            reply.error(&why);
        }
        self.send(client, reply.bytes);
    }
}
