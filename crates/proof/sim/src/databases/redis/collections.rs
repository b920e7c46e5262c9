//! Commands on hashes and sets. The members of a set are told in their order.

use super::{
    Connection, Done, Redis, Reply,
    keyspace::{Hash, Set},
    table::wrong_number,
};

fn field<'a>(hash: Option<&'a Hash>, name: &[u8]) -> Option<&'a Vec<u8>> {
    hash?.iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

impl Redis {
    pub(super) fn hset(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        if !words.len().is_multiple_of(2) {
            return Err(wrong_number("hset"));
        }
        let database = self.database(me);
        let hash = self.keys.find_or_make::<Hash>(database, &words[1])?;
        let mut added = 0;
        for pair in words[2..].chunks_exact(2) {
            match hash.iter_mut().find(|(known, _)| *known == pair[0]) {
                Some((_, value)) => value.clone_from(&pair[1]),
                None => {
                    hash.push((pair[0].clone(), pair[1].clone()));
                    added += 1;
                }
            }
        }
        reply.count(added);
        self.touch(database, &words[1]);
        Ok(())
    }

    pub(super) fn hget(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.maybe(field(self.keys.find::<Hash>(self.database(me), &words[1])?, &words[2]));
        Ok(())
    }

    pub(super) fn hexists(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let there = field(self.keys.find::<Hash>(self.database(me), &words[1])?, &words[2]).is_some();
        reply.count(usize::from(there));
        Ok(())
    }

    pub(super) fn hlen(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.count(self.keys.find::<Hash>(self.database(me), &words[1])?.map_or(0, Vec::len));
        Ok(())
    }

    pub(super) fn hgetall(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let hash = self.keys.find::<Hash>(self.database(me), &words[1])?;
        reply.map(hash.map_or(0, Vec::len));
        for (name, value) in hash.into_iter().flatten() {
            reply.text(name);
            reply.text(value);
        }
        Ok(())
    }

    pub(super) fn hdel(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let database = self.database(me);
        let Some(hash) = self.keys.find_mut::<Hash>(database, &words[1])? else {
            reply.count(0);
            return Ok(());
        };
        let before = hash.len();
        hash.retain(|(name, _)| !words[2..].contains(name));
        let (removed, is_empty) = (before - hash.len(), hash.is_empty());
        self.removed_from(database, &words[1], removed, is_empty);
        reply.count(removed);
        Ok(())
    }

    pub(super) fn sadd(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let database = self.database(me);
        let set = self.keys.find_or_make::<Set>(database, &words[1])?;
        let added = words[2..].iter().filter(|member| set.insert((*member).clone())).count();
        reply.count(added);
        if added > 0 {
            self.touch(database, &words[1]);
        }
        Ok(())
    }

    pub(super) fn srem(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let database = self.database(me);
        let Some(set) = self.keys.find_mut::<Set>(database, &words[1])? else {
            reply.count(0);
            return Ok(());
        };
        let removed = words[2..].iter().filter(|member| set.remove(*member)).count();
        let is_empty = set.is_empty();
        self.removed_from(database, &words[1], removed, is_empty);
        reply.count(removed);
        Ok(())
    }

    pub(super) fn smembers(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let set = self.keys.find::<Set>(self.database(me), &words[1])?;
        reply.set(set.map_or(0, Set::len));
        set.into_iter().flatten().for_each(|member| reply.text(member));
        Ok(())
    }

    pub(super) fn sismember(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let set = self.keys.find::<Set>(self.database(me), &words[1])?;
        reply.count(usize::from(set.is_some_and(|set| set.contains(&words[2]))));
        Ok(())
    }

    pub(super) fn scard(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.count(self.keys.find::<Set>(self.database(me), &words[1])?.map_or(0, Set::len));
        Ok(())
    }

    /// So much was taken out of a value, which ends with its last part.
    fn removed_from(&mut self, database: usize, key: &[u8], removed: usize, is_empty: bool) {
        if is_empty {
            self.keys.remove(database, key);
        }
        if removed > 0 {
            self.touch(database, key);
        }
    }
}
