//! Commands on keys of any kind.

use super::{Connection, Done, Redis, Reply};

impl Redis {
    /// Notes that a key has changed: transactions that watch it fail.
    pub(super) fn touch(&mut self, database: usize, key: &[u8]) {
        for session in self.sessions.values_mut() {
            session.dirty |= session.watched.iter().any(|watched| watched.0 == database && watched.1 == key);
        }
    }

    pub(super) fn del(&mut self, client: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let database = self.database(client);
        let mut removed = 0;
        for key in &words[1..] {
            if self.keys.remove(database, key) {
                self.touch(database, key);
                removed += 1;
            }
        }
        reply.count(removed);
        Ok(())
    }

    pub(super) fn exists(&mut self, client: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let database = self.database(client);
        reply.count(words[1..].iter().filter(|key| self.keys.contains(database, key)).count());
        Ok(())
    }
}
