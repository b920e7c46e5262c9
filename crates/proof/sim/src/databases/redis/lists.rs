//! Commands on lists that do not block.

use super::{Connection, Done, Redis, Refusal, Reply, arguments::required_integer, keyspace::List};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Left,
    Right,
}

impl Redis {
    /// Takes an item out of a list. An empty list is removed.
    pub(super) fn take_from(&mut self, database: usize, key: &[u8], end: End) -> Result<Option<Vec<u8>>, Refusal> {
        let Some(list) = self.keys.find_mut::<List>(database, key)? else { return Ok(None) };
        let item = match end {
            End::Left => list.pop_front(),
            End::Right => list.pop_back(),
        };
        if list.is_empty() {
            self.keys.remove(database, key);
        }
        self.touch(database, key);
        Ok(item)
    }

    pub(super) fn lpush(&mut self, client: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        self.push(client, words, End::Left, reply)
    }

    pub(super) fn rpush(&mut self, client: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        self.push(client, words, End::Right, reply)
    }

    fn push(&mut self, client: Connection, words: &[Vec<u8>], end: End, reply: &mut Reply) -> Done {
        let (database, key) = (self.database(client), &words[1]);
        let list = self.keys.find_or_add::<List>(database, key)?;
        let is_new = list.is_empty();
        for item in words[2..].iter().cloned() {
            match end {
                End::Left => list.push_front(item),
                End::Right => list.push_back(item),
            }
        }
        reply.count(list.len());
        if is_new {
            self.note_new_list(database, key);
        }
        self.touch(database, key);
        Ok(())
    }

    pub(super) fn rpop(&mut self, client: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let item = self.take_from(self.database(client), &words[1], End::Right)?;
        reply.maybe(item.as_ref());
        Ok(())
    }

    pub(super) fn lrange(&mut self, client: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let (first, last) = (required_integer(&words[2])?, required_integer(&words[3])?);
        let Some(list) = self.keys.find::<List>(self.database(client), &words[1])? else {
            reply.array(0);
            return Ok(());
        };
        let length = list.len() as i64;
        let index = |at: i64| if at < 0 { at.saturating_add(length) } else { at };
        let (first, end) = (index(first).max(0), index(last).min(length - 1) + 1);
        let range = if first < end { first as usize..end as usize } else { 0..0 };
        reply.texts(list.range(range));
        Ok(())
    }
}
