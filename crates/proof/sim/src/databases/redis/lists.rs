//! Commands on lists that wait for nothing.

use super::{
    Connection, Done, Redis, Refusal, Reply,
    keyspace::List,
    numbers::{positive, required},
    session::End,
    table::wrong_number,
};

impl End {
    pub(super) fn read(word: &[u8]) -> Result<Self, Refusal> {
        match &*word.to_ascii_uppercase() {
            b"LEFT" => Ok(Self::Left),
            b"RIGHT" => Ok(Self::Right),
            _ => Err("ERR syntax error".into()),
        }
    }

    fn put(self, list: &mut List, item: Vec<u8>) {
        match self {
            Self::Left => list.push_front(item),
            Self::Right => list.push_back(item),
        }
    }

    fn take(self, list: &mut List) -> Option<Vec<u8>> {
        match self {
            Self::Left => list.pop_front(),
            Self::Right => list.pop_back(),
        }
    }
}

impl Redis {
    /// Puts items into a list, one after another. Returns how long it is then.
    pub(super) fn put_into(
        &mut self,
        database: usize,
        key: &[u8],
        end: End,
        items: &[Vec<u8>],
    ) -> Result<usize, Refusal> {
        let list = self.keys.find_or_make::<List>(database, key)?;
        let is_new = list.is_empty();
        items.iter().for_each(|item| end.put(list, item.clone()));
        let length = list.len();
        if is_new {
            self.list_is_there(database, key);
        }
        self.touch(database, key);
        Ok(length)
    }

    /// Takes an item out of a list, which ends with its last one.
    pub(super) fn take_from(&mut self, database: usize, key: &[u8], end: End) -> Result<Option<Vec<u8>>, Refusal> {
        let Some(list) = self.keys.find_mut::<List>(database, key)? else { return Ok(None) };
        let item = end.take(list);
        if list.is_empty() {
            self.keys.remove(database, key);
        }
        self.touch(database, key);
        Ok(item)
    }

    /// Takes an item from one list to another, if there is one.
    pub(super) fn pass(
        &mut self,
        database: usize,
        (key, from): (&[u8], End),
        (target, to): (&[u8], End),
    ) -> Result<Option<Vec<u8>>, Refusal> {
        if self.keys.find::<List>(database, key)?.is_none() {
            return Ok(None);
        }
        self.keys.find::<List>(database, target)?;
        let item = self.take_from(database, key, from)?.expect("lists are never empty");
        self.put_into(database, target, to, std::slice::from_ref(&item))?;
        Ok(Some(item))
    }

    pub(super) fn lpush(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.count(self.put_into(self.database(me), &words[1], End::Left, &words[2..])?);
        Ok(())
    }

    pub(super) fn rpush(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.count(self.put_into(self.database(me), &words[1], End::Right, &words[2..])?);
        Ok(())
    }

    pub(super) fn lpushx(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        match self.keys.find::<List>(self.database(me), &words[1])? {
            Some(_) => self.lpush(me, words, reply),
            None => {
                reply.count(0);
                Ok(())
            }
        }
    }

    pub(super) fn rpushx(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        match self.keys.find::<List>(self.database(me), &words[1])? {
            Some(_) => self.rpush(me, words, reply),
            None => {
                reply.count(0);
                Ok(())
            }
        }
    }

    pub(super) fn lpop(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        self.pop(me, words, "lpop", End::Left, reply)
    }

    pub(super) fn rpop(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        self.pop(me, words, "rpop", End::Right, reply)
    }

    fn pop(&mut self, me: Connection, words: &[Vec<u8>], name: &str, end: End, reply: &mut Reply) -> Done {
        let (database, key) = (self.database(me), &words[1]);
        match words {
            [_, _] => {
                let item = self.take_from(database, key, end)?;
                reply.maybe(item.as_ref());
            }
            [_, _, count] => {
                let count = positive(count)?;
                match self.keys.find::<List>(database, key)?.map(List::len) {
                    None => reply.null_array(),
                    Some(length) => {
                        let count = count.min(length);
                        reply.array(count);
                        for _ in 0..count {
                            reply.text(self.take_from(database, key, end)?.expect("there are so many"));
                        }
                    }
                }
            }
            _ => return Err(wrong_number(name)),
        }
        Ok(())
    }

    pub(super) fn llen(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.count(self.keys.find::<List>(self.database(me), &words[1])?.map_or(0, List::len));
        Ok(())
    }

    pub(super) fn lrange(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let (first, last) = (required(&words[2])?, required(&words[3])?);
        let Some(list) = self.keys.find::<List>(self.database(me), &words[1])? else {
            reply.array(0);
            return Ok(());
        };
        let length = list.len() as i64;
        let place = |at: i64| if at < 0 { at.saturating_add(length) } else { at };
        let (first, end) = (place(first).max(0), place(last).min(length - 1) + 1);
        let range = if first < end { first as usize..end as usize } else { 0..0 };
        reply.texts(list.range(range));
        Ok(())
    }

    pub(super) fn lindex(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let list = self.keys.find::<List>(self.database(me), &words[1])?;
        let Some(list) = list else {
            reply.null();
            return Ok(());
        };
        let at = required(&words[2])?;
        let at = if at < 0 { at + list.len() as i64 } else { at };
        reply.maybe(usize::try_from(at).ok().and_then(|at| list.get(at)));
        Ok(())
    }

    pub(super) fn lmove(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let (from, to) = (End::read(&words[3])?, End::read(&words[4])?);
        let item = self.pass(self.database(me), (&words[1], from), (&words[2], to))?;
        reply.maybe(item.as_ref());
        Ok(())
    }

    pub(super) fn rpoplpush(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let item = self.pass(self.database(me), (&words[1], End::Right), (&words[2], End::Left))?;
        reply.maybe(item.as_ref());
        Ok(())
    }
}
