//! Commands that wait for lists, or for replicas: first come, first served.

use super::{
    Connection, Done, Redis, Reply,
    keyspace::List,
    numbers::{milliseconds, required, seconds},
    session::{Blocked, End},
};

impl Redis {
    pub(super) fn blpop(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        self.pop_or_wait(me, words, End::Left, reply)
    }

    pub(super) fn brpop(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        self.pop_or_wait(me, words, End::Right, reply)
    }

    fn pop_or_wait(&mut self, me: Connection, words: &[Vec<u8>], from: End, reply: &mut Reply) -> Done {
        let [_, keys @ .., timeout] = words else { unreachable!("the table wants three words") };
        let timeout = seconds(timeout)?;
        for key in keys {
            if let Some(item) = self.take_from(self.database(me), key, from)? {
                reply.texts([key, &item].into_iter());
                return Ok(());
            }
        }
        if self.session(me).executing.is_some() {
            reply.null_array();
            return Ok(());
        }
        let until = timeout.map(|timeout| self.now + timeout);
        self.wait_for_lists(me, keys, Blocked::Pop { from, to: None, until });
        Ok(())
    }

    pub(super) fn blmove(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let ends = (End::read(&words[3])?, End::read(&words[4])?);
        self.pass_or_wait(me, words, ends, reply)
    }

    pub(super) fn brpoplpush(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        self.pass_or_wait(me, words, (End::Right, End::Left), reply)
    }

    fn pass_or_wait(&mut self, me: Connection, words: &[Vec<u8>], (from, to): (End, End), reply: &mut Reply) -> Done {
        let timeout = seconds(&words[words.len() - 1])?;
        if let Some(item) = self.pass(self.database(me), (&words[1], from), (&words[2], to))? {
            reply.text(item);
            return Ok(());
        }
        if self.session(me).executing.is_some() {
            reply.null();
            return Ok(());
        }
        let until = timeout.map(|timeout| self.now + timeout);
        let keys = &words[1..2];
        let to = Some((words[2].clone(), to));
        self.wait_for_lists(me, keys, Blocked::Pop { from, to, until });
        Ok(())
    }

    fn wait_for_lists(&mut self, me: Connection, keys: &[Vec<u8>], blocked: Blocked) {
        let database = self.database(me);
        for key in keys {
            let queue = self.waiting.entry((database, key.clone())).or_default();
            if !queue.contains(&me) {
                queue.push_back(me);
            }
        }
        self.session(me).blocked = Some(blocked);
    }

    pub(super) fn wait(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let replicas = required(&words[1])?;
        let timeout = milliseconds(&words[2])?;
        if replicas <= 0 || self.session(me).executing.is_some() {
            reply.count(0);
            return Ok(());
        }
        let until = timeout.map(|timeout| self.now + timeout);
        self.session(me).blocked = Some(Blocked::Wait { until });
        Ok(())
    }

    /// A list has come to be: those who wait for it are served when the present command has been carried out.
    pub(super) fn list_is_there(&mut self, database: usize, key: &[u8]) {
        let place = (database, key.to_vec());
        if self.waiting.contains_key(&place) && !self.ready.contains(&place) {
            self.ready.push_back(place);
        }
    }

    /// Serves those who wait for lists that there are now.
    pub(super) fn serve_lists(&mut self) {
        // Not in the middle of a transaction.
        while self.running.is_none()
            && let Some((database, key)) = self.ready.pop_front()
        {
            while let Ok(Some(_)) = self.keys.find::<List>(database, &key)
                && let Some(&first) = self.waiting.get(&(database, key.clone())).and_then(|queue| queue.front())
            {
                self.serve(first, database, &key);
            }
        }
    }

    fn serve(&mut self, me: Connection, database: usize, key: &[u8]) {
        let blocked = self.session(me).blocked.take();
        let Some(Blocked::Pop { from, to, .. }) = blocked else { unreachable!("who is in a queue waits for lists") };
        self.unregister(me);
        let mut reply = Reply::new(self.session(me).version);
        match to {
            None => {
                let item = self.take_from(database, key, from).ok().flatten().expect("the list is there");
                reply.texts([key, &item].into_iter());
            }
            Some((target, to)) => match self.pass(database, (key, from), (&target, to)) {
                Ok(item) => reply.maybe(item.as_ref()),
                Err(why) => reply.error(&why),
            },
        }
        self.resume(me, reply);
    }

    /// Who waited goes on with this.
    fn resume(&mut self, me: Connection, reply: Reply) {
        self.session(me).blocked = None;
        self.say(me, reply.bytes);
        self.over(me);
        self.resumed.push_back(me);
    }

    /// A connection waits for no list any more.
    pub(super) fn unregister(&mut self, me: Connection) {
        for queue in self.waiting.values_mut() {
            queue.retain(|other| *other != me);
        }
        self.waiting.retain(|_, queue| !queue.is_empty());
    }

    /// Waits whose time is over end without a value.
    pub(super) fn end_waits(&mut self) {
        loop {
            let waits =
                self.sessions.iter().filter_map(|(me, session)| Some((session.blocked.as_ref()?.until()?, *me)));
            let Some((_, me)) = waits.min().filter(|(until, _)| *until <= self.now) else { return };
            self.end_wait(me);
        }
    }

    /// A connection goes on as if it had waited for long enough. False if it does not wait.
    pub(super) fn end_wait(&mut self, me: Connection) -> bool {
        let Some(session) = self.sessions.get(&me) else { return false };
        let mut reply = Reply::new(session.version);
        match session.blocked {
            Some(Blocked::Pop { .. }) => reply.null_array(),
            Some(Blocked::Wait { .. }) => reply.count(0),
            _ => return false,
        }
        self.unregister(me);
        self.resume(me, reply);
        true
    }

    /// A connection goes on with an error. False if it does not wait.
    pub(super) fn break_wait(&mut self, me: Connection) -> bool {
        let Some(session) = self.sessions.get(&me) else { return false };
        if !matches!(session.blocked, Some(Blocked::Pop { .. } | Blocked::Wait { .. })) {
            return false;
        }
        let mut reply = Reply::new(session.version);
        reply.error(&"UNBLOCKED client unblocked via CLIENT UNBLOCK".into());
        self.unregister(me);
        self.resume(me, reply);
        true
    }
}
