//! Commands on texts and the numbers that they are.

use super::{
    Connection, Done, Redis, Refusal, Reply,
    keyspace::{Text, Value},
    numbers::{integer, required},
    table::wrong_number,
};

/// Whether a value is to be put by SET.
#[derive(Default)]
struct Options {
    only_new: bool,
    only_old: bool,
    tells_old: bool,
    keeps_deadline: bool,
    /// When it ends: a number, whether it is of seconds, and whether it is counted from now.
    end: Option<(Vec<u8>, bool, bool)>,
}

impl Options {
    fn read(words: &[Vec<u8>]) -> Result<Self, Refusal> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let timed = options.keeps_deadline || options.end.is_some();
            match &*word.to_ascii_uppercase() {
                b"NX" if !options.only_old => options.only_new = true,
                b"XX" if !options.only_new => options.only_old = true,
                b"GET" => options.tells_old = true,
                b"KEEPTTL" if !timed => options.keeps_deadline = true,
                unit @ (b"EX" | b"PX" | b"EXAT" | b"PXAT") if !timed => {
                    let number = words.next().ok_or("ERR syntax error")?;
                    options.end = Some((number.clone(), unit[0] == b'E', unit.len() == 2));
                }
                _ => return Err("ERR syntax error".into()),
            }
        }
        Ok(options)
    }
}

impl Redis {
    /// The time in milliseconds at which something ends by what was said to `command`.
    fn end_of(&self, command: &str, number: &[u8], seconds: bool, from_now: bool) -> Result<u64, Refusal> {
        let number = required(number)?;
        let invalid = || Refusal::from(format!("ERR invalid expire time in '{command}' command"));
        let milliseconds = if seconds { number.checked_mul(1000) } else { Some(number) };
        let milliseconds = milliseconds.filter(|number| *number > 0).ok_or_else(invalid)?;
        let start = if from_now { self.milliseconds() as i64 } else { 0 };
        milliseconds.checked_add(start).map(|end| end as u64).ok_or_else(invalid)
    }

    fn put_text(&mut self, database: usize, key: &[u8], text: &[u8], keeps_deadline: bool) {
        self.keys.put(database, key, Value::Text(text.to_vec()), keeps_deadline);
        self.touch(database, key);
    }

    pub(super) fn set(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let (key, database) = (&words[1], self.database(me));
        let options = Options::read(&words[3..])?;
        let end = match &options.end {
            Some((number, seconds, from_now)) => Some(self.end_of("set", number, *seconds, *from_now)?),
            None => None,
        };
        if options.tells_old {
            reply.maybe(self.keys.find::<Text>(database, key)?);
        }
        let there = self.keys.value(database, key).is_some();
        if (options.only_new && there) || (options.only_old && !there) {
            if !options.tells_old {
                reply.null();
            }
            return Ok(());
        }
        self.put_text(database, key, &words[2], options.keeps_deadline);
        if end.is_some() {
            self.keys.set_deadline(database, key, end);
        }
        self.expire_now();
        if !options.tells_old {
            reply.ok();
        }
        Ok(())
    }

    pub(super) fn setnx(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let database = self.database(me);
        let there = self.keys.value(database, &words[1]).is_some();
        if !there {
            self.put_text(database, &words[1], &words[2], false);
        }
        reply.count(usize::from(!there));
        Ok(())
    }

    pub(super) fn setex(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        self.set_until(me, words, "setex", true, reply)
    }

    pub(super) fn psetex(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        self.set_until(me, words, "psetex", false, reply)
    }

    fn set_until(&mut self, me: Connection, words: &[Vec<u8>], name: &str, seconds: bool, reply: &mut Reply) -> Done {
        let end = self.end_of(name, &words[2], seconds, true)?;
        let database = self.database(me);
        self.put_text(database, &words[1], &words[3], false);
        self.keys.set_deadline(database, &words[1], Some(end));
        reply.ok();
        Ok(())
    }

    pub(super) fn get_command(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.maybe(self.keys.find::<Text>(self.database(me), &words[1])?);
        Ok(())
    }

    pub(super) fn getset(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        self.get_command(me, words, reply)?;
        self.put_text(self.database(me), &words[1], &words[2], false);
        Ok(())
    }

    pub(super) fn getdel(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        self.get_command(me, words, reply)?;
        self.remove(self.database(me), &words[1]);
        Ok(())
    }

    pub(super) fn mget(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.array(words.len() - 1);
        for key in &words[1..] {
            reply.maybe(self.keys.find::<Text>(self.database(me), key).ok().flatten());
        }
        Ok(())
    }

    pub(super) fn mset(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        if words.len().is_multiple_of(2) {
            return Err(wrong_number("mset"));
        }
        for pair in words[1..].chunks_exact(2) {
            self.put_text(self.database(me), &pair[0], &pair[1], false);
        }
        reply.ok();
        Ok(())
    }

    pub(super) fn strlen(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.count(self.keys.find::<Text>(self.database(me), &words[1])?.map_or(0, Vec::len));
        Ok(())
    }

    pub(super) fn append(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let database = self.database(me);
        let text = self.keys.find_or_make::<Text>(database, &words[1])?;
        text.extend_from_slice(&words[2]);
        reply.count(text.len());
        self.touch(database, &words[1]);
        Ok(())
    }

    pub(super) fn incr(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.number(self.add(self.database(me), &words[1], 1)?);
        Ok(())
    }

    pub(super) fn incrby(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let more = required(&words[2])?;
        reply.number(self.add(self.database(me), &words[1], more)?);
        Ok(())
    }

    pub(super) fn decr(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.number(self.add(self.database(me), &words[1], -1)?);
        Ok(())
    }

    pub(super) fn decrby(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let less = required(&words[2])?;
        let more = less.checked_neg().ok_or("ERR decrement would overflow")?;
        reply.number(self.add(self.database(me), &words[1], more)?);
        Ok(())
    }

    /// Adds to the number at a key.
    pub(super) fn add(&mut self, database: usize, key: &[u8], more: i64) -> Result<i64, Refusal> {
        let before = match self.keys.find::<Text>(database, key)? {
            Some(text) => integer(text).ok_or("ERR value is not an integer or out of range")?,
            None => 0,
        };
        let after = before.checked_add(more).ok_or("ERR increment or decrement would overflow")?;
        self.put_text(database, key, after.to_string().as_bytes(), true);
        Ok(after)
    }
}
