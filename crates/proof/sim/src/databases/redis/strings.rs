//! Commands on strings and on numbers in strings.

use super::{
    Connection, Done, Redis, Refusal, Reply,
    arguments::required_integer,
    keyspace::{Text, Value},
};

impl Redis {
    fn put_text(&mut self, database: usize, key: &[u8], text: &[u8]) {
        self.keys.put(database, key, Value::Text(text.to_vec()));
        self.touch(database, key);
    }

    /// SET without options.
    pub(super) fn set(&mut self, client: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        if words.len() > 3 {
            return Err("ERR syntax error".into());
        }
        self.put_text(self.database(client), &words[1], &words[2]);
        reply.ok();
        Ok(())
    }

    pub(super) fn get(&mut self, client: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.maybe(self.keys.find::<Text>(self.database(client), &words[1])?);
        Ok(())
    }

    pub(super) fn mget(&mut self, client: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.array(words.len() - 1);
        for key in &words[1..] {
            reply.maybe(self.keys.find::<Text>(self.database(client), key).ok().flatten());
        }
        Ok(())
    }

    pub(super) fn append(&mut self, client: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let database = self.database(client);
        let text = self.keys.find_or_add::<Text>(database, &words[1])?;
        text.extend_from_slice(&words[2]);
        reply.count(text.len());
        self.touch(database, &words[1]);
        Ok(())
    }

    pub(super) fn incr(&mut self, client: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.number(self.increment(self.database(client), &words[1])?);
        Ok(())
    }

    pub(super) fn increment(&mut self, database: usize, key: &[u8]) -> Result<i64, Refusal> {
        let before = self.keys.find::<Text>(database, key)?.map_or(Ok(0), |text| required_integer(text))?;
        let after = before.checked_add(1).ok_or("ERR increment or decrement would overflow")?;
        self.put_text(database, key, after.to_string().as_bytes());
        Ok(after)
    }
}
