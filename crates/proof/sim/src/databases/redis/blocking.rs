//! BLPOP: connections wait for lists, and are served in the order in which they came.

use super::{Connection, Done, Redis, Reply, arguments::timeout, keyspace::List, lists::End, session::Blocked};

impl Redis {
    pub(super) fn blpop(&mut self, client: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let [_, keys @ .., wait] = words else { unreachable!("BLPOP has at least three words") };
        let wait = timeout(wait)?;
        let database = self.database(client);
        for key in keys {
            if let Some(item) = self.take_from(database, key, End::Left)? {
                reply.texts([key, &item].into_iter());
                return Ok(());
            }
        }
        if self.session(client).in_exec {
            reply.null_array();
            return Ok(());
        }
        for key in keys {
            let queue = self.waiting.entry((database, key.clone())).or_default();
            if !queue.contains(&client) {
                queue.push_back(client);
            }
        }
        let until = wait.map(|wait| self.now + wait);
        self.session(client).blocked = Some(Blocked { until });
        Ok(())
    }

    /// Notes a new list: connections that wait for it are served after the present command.
    pub(super) fn note_new_list(&mut self, database: usize, key: &[u8]) {
        let place = (database, key.to_vec());
        if self.waiting.contains_key(&place) && !self.ready.contains(&place) {
            self.ready.push_back(place);
        }
    }

    pub(super) fn serve_lists(&mut self) {
        while let Some((database, key)) = self.ready.pop_front() {
            while let Ok(Some(_)) = self.keys.find::<List>(database, &key)
                && let Some(&first) = self.waiting.get(&(database, key.clone())).and_then(|queue| queue.front())
            {
                let item = self.take_from(database, &key, End::Left).ok().flatten().expect("the list is there");
                let mut reply = Reply::new(self.session(first).version);
                reply.texts([&key, &item].into_iter());
                self.resume(first, reply);
            }
        }
    }

    /// Ends the wait of a connection with this reply.
    fn resume(&mut self, client: Connection, reply: Reply) {
        self.leave_queues(client);
        self.session(client).blocked = None;
        self.send(client, reply.bytes);
        self.resumed.push_back(client);
    }

    pub(super) fn leave_queues(&mut self, client: Connection) {
        for queue in self.waiting.values_mut() {
            queue.retain(|other| *other != client);
        }
        self.waiting.retain(|_, queue| !queue.is_empty());
    }

    /// Ends the waits whose time-outs have passed.
    pub(super) fn end_waits(&mut self) {
        loop {
            let waits = self.sessions.iter().filter_map(|(client, session)| {
                let until = session.blocked.as_ref()?.until?;
                Some((until, *client))
            });
            let Some((_, client)) = waits.min().filter(|(until, _)| *until <= self.now) else { return };
            let mut reply = Reply::new(self.session(client).version);
            reply.null_array();
            self.resume(client, reply);
        }
    }
}
