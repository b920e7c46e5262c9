//! Transactions: commands that wait for EXEC, and keys that must not change before it.

use super::{
    Connection, Done, Redis, Reply,
    session::{Blocked, Queue, Watched},
    table,
};

impl Redis {
    pub(super) fn multi(&mut self, me: Connection, _: &[Vec<u8>], reply: &mut Reply) -> Done {
        let session = self.session(me);
        if session.multi.is_some() {
            return Err("ERR MULTI calls can not be nested".into());
        }
        session.multi = Some(Queue::default());
        reply.ok();
        Ok(())
    }

    pub(super) fn watch(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let session = self.session(me);
        if session.multi.is_some() {
            return Err("ERR WATCH inside MULTI is not allowed".into());
        }
        for key in &words[1..] {
            let database = session.database;
            if !session.watched.iter().any(|watched| watched.database == database && watched.key == *key) {
                session.watched.push(Watched { database, key: key.clone() });
            }
        }
        reply.ok();
        Ok(())
    }

    pub(super) fn unwatch(&mut self, me: Connection, _: &[Vec<u8>], reply: &mut Reply) -> Done {
        self.unwatch_all(me);
        reply.ok();
        Ok(())
    }

    pub(super) fn discard(&mut self, me: Connection, _: &[Vec<u8>], reply: &mut Reply) -> Done {
        if self.session(me).multi.is_none() {
            return Err("ERR DISCARD without MULTI".into());
        }
        self.discard_all(me);
        reply.ok();
        Ok(())
    }

    fn unwatch_all(&mut self, me: Connection) {
        let session = self.session(me);
        session.watched.clear();
        session.dirty = false;
    }

    /// The connection is in no transaction, and watches nothing.
    pub(super) fn discard_all(&mut self, me: Connection) {
        self.session(me).multi = None;
        self.unwatch_all(me);
    }

    pub(super) fn exec(&mut self, me: Connection, _: &[Vec<u8>], reply: &mut Reply) -> Done {
        let session = self.session(me);
        let dirty = session.dirty;
        let Some(queue) = session.multi.take() else { return Err("ERR EXEC without MULTI".into()) };
        self.unwatch_all(me);
        if queue.broken {
            return Err("EXECABORT Transaction discarded because of previous errors.".into());
        }
        if dirty {
            reply.null_array();
            return Ok(());
        }
        reply.array(queue.commands.len());
        self.say(me, std::mem::take(&mut reply.bytes));
        self.session(me).executing = Some(queue.commands);
        self.execute(me);
        Ok(())
    }

    /// Carries out what is left of a transaction, until one of its scripts does not end.
    pub(super) fn execute(&mut self, me: Connection) {
        while let Some(words) = self.session(me).executing.as_mut().and_then(|left| left.pop_front()) {
            let spec = table::find(&words).expect("what is queued was found");
            self.run(me, spec, &words);
            if matches!(self.session(me).blocked, Some(Blocked::Script)) {
                return;
            }
        }
        self.session(me).executing = None;
    }
}
