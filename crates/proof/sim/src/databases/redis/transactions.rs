//! Transactions: commands that wait for EXEC, and keys that must not change before it.

use super::{Connection, Done, Redis, Reply, commands, session::Queue};

impl Redis {
    pub(super) fn multi(&mut self, client: Connection, _: &[Vec<u8>], reply: &mut Reply) -> Done {
        let session = self.session(client);
        if session.multi.is_some() {
            return Err("ERR MULTI calls can not be nested".into());
        }
        session.multi = Some(Queue::default());
        reply.ok();
        Ok(())
    }

    pub(super) fn watch(&mut self, client: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let session = self.session(client);
        if session.multi.is_some() {
            return Err("ERR WATCH inside MULTI is not allowed".into());
        }
        session.watched.extend(words[1..].iter().map(|key| (session.database, key.clone())));
        reply.ok();
        Ok(())
    }

    pub(super) fn unwatch(&mut self, client: Connection, _: &[Vec<u8>], reply: &mut Reply) -> Done {
        self.unwatch_all(client);
        reply.ok();
        Ok(())
    }

    pub(super) fn discard(&mut self, client: Connection, _: &[Vec<u8>], reply: &mut Reply) -> Done {
        if self.session(client).multi.is_none() {
            return Err("ERR DISCARD without MULTI".into());
        }
        self.end_transaction(client);
        reply.ok();
        Ok(())
    }

    fn unwatch_all(&mut self, client: Connection) {
        let session = self.session(client);
        session.watched.clear();
        session.dirty = false;
    }

    pub(super) fn end_transaction(&mut self, client: Connection) {
        self.session(client).multi = None;
        self.unwatch_all(client);
    }

    pub(super) fn exec(&mut self, client: Connection, _: &[Vec<u8>], reply: &mut Reply) -> Done {
        let session = self.session(client);
        let dirty = session.dirty;
        let Some(queue) = session.multi.take() else { return Err("ERR EXEC without MULTI".into()) };
        self.unwatch_all(client);
        if queue.broken {
            return Err("EXECABORT Transaction discarded because of previous errors.".into());
        }
        if dirty {
            reply.null_array();
            return Ok(());
        }
        reply.array(queue.commands.len());
        self.send(client, std::mem::take(&mut reply.bytes));
        self.session(client).in_exec = true;
        for words in queue.commands {
            let command = commands::find(&words).expect("a queued command was found before");
            self.run(client, command, &words);
        }
        self.session(client).in_exec = false;
        Ok(())
    }
}
