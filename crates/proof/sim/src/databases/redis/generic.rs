//! Commands on keys of any kind, and on whole databases.

use super::{
    Connection, Done, Redis, Refusal, Reply,
    glob::matches,
    keyspace::{DATABASES, Value},
    numbers::required,
};

/// Whether a new deadline is to be set.
#[derive(Default)]
struct Condition {
    if_none: bool,
    if_any: bool,
    if_later: bool,
    if_earlier: bool,
}

impl Condition {
    fn read(words: &[Vec<u8>]) -> Result<Self, Refusal> {
        let mut condition = Self::default();
        for word in words {
            match &*word.to_ascii_uppercase() {
                b"NX" => condition.if_none = true,
                b"XX" => condition.if_any = true,
                b"GT" => condition.if_later = true,
                b"LT" => condition.if_earlier = true,
                _ => return Err(Refusal::quoting("ERR Unsupported option ", word, "")),
            }
        }
        let Self { if_none, if_any, if_later, if_earlier } = condition;
        if if_none && (if_any || if_later || if_earlier) {
            return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
        }
        if if_later && if_earlier {
            return Err("ERR GT and LT options at the same time are not compatible".into());
        }
        Ok(condition)
    }

    /// What has no deadline ends later than anything.
    fn holds(&self, before: Option<u64>, end: i64) -> bool {
        let before = before.map_or(i64::MAX, |before| before as i64);
        let none = before == i64::MAX;
        !((self.if_none && !none)
            || (self.if_any && none)
            || (self.if_later && (none || end <= before))
            || (self.if_earlier && end >= before))
    }
}

impl Redis {
    /// A key has changed: transactions that watch it are to fail, and clients that have read it are
    /// told.
    pub(super) fn touch(&mut self, database: usize, key: &[u8]) {
        self.touch_watched(database, key);
        self.invalidate(key);
    }

    fn touch_watched(&mut self, database: usize, key: &[u8]) {
        for session in self.sessions.values_mut() {
            session.dirty |= session.watched.iter().any(|watched| watched.database == database && watched.key == key);
        }
    }

    /// Removes a key. Whether there was one.
    pub(super) fn remove(&mut self, database: usize, key: &[u8]) -> bool {
        let removed = self.keys.remove(database, key);
        if removed {
            self.touch(database, key);
        }
        removed
    }

    /// What has come to its end is removed.
    pub(super) fn expire_now(&mut self) {
        for (database, key) in self.keys.expire(self.milliseconds()) {
            self.touch(database, &key);
        }
    }

    pub(super) fn del(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let database = self.database(me);
        reply.count(words[1..].iter().filter(|key| self.remove(database, key)).count());
        Ok(())
    }

    pub(super) fn exists(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let database = self.database(me);
        reply.count(words[1..].iter().filter(|key| self.keys.value(database, key).is_some()).count());
        Ok(())
    }

    pub(super) fn type_command(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.simple(self.keys.value(self.database(me), &words[1]).map_or("none", Value::name));
        Ok(())
    }

    pub(super) fn keys_command(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let mut names = self.keys.names(self.database(me));
        names.retain(|name| matches(&words[1], name));
        reply.texts(names.iter());
        Ok(())
    }

    pub(super) fn dbsize(&mut self, me: Connection, _: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.count(self.keys.len(self.database(me)));
        Ok(())
    }

    pub(super) fn flushdb(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        self.flush(self.database(me)..self.database(me) + 1, words, reply)
    }

    pub(super) fn flushall(&mut self, _: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        self.flush(0..DATABASES, words, reply)
    }

    fn flush(&mut self, databases: std::ops::Range<usize>, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        match words {
            [_] => {}
            [_, how] if [&b"ASYNC"[..], b"SYNC"].contains(&&*how.to_ascii_uppercase()) => {}
            _ => return Err("ERR syntax error".into()),
        }
        for database in databases {
            for key in self.keys.names(database) {
                self.keys.remove(database, &key);
                self.touch_watched(database, &key);
            }
        }
        self.invalidate_all();
        reply.ok();
        Ok(())
    }

    pub(super) fn expire(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        self.end_in(me, words, "expire", 1000, reply)
    }

    pub(super) fn pexpire(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        self.end_in(me, words, "pexpire", 1, reply)
    }

    fn end_in(&mut self, me: Connection, words: &[Vec<u8>], name: &str, unit: i64, reply: &mut Reply) -> Done {
        let (database, key, now) = (self.database(me), &words[1], self.milliseconds() as i64);
        let condition = Condition::read(&words[3..])?;
        let end = required(&words[2])?.checked_mul(unit).and_then(|number| number.checked_add(now));
        let end = end.ok_or_else(|| format!("ERR invalid expire time in '{name}' command"))?;
        let there = self.keys.value(database, key).is_some();
        let changed = there && condition.holds(self.keys.deadline(database, key), end);
        if changed && end <= now {
            self.remove(database, key);
        } else if changed {
            self.keys.set_deadline(database, key, Some(end as u64));
            self.touch(database, key);
        }
        reply.count(usize::from(changed));
        Ok(())
    }

    pub(super) fn persist(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let database = self.database(me);
        let had_one = self.keys.deadline(database, &words[1]).is_some();
        if had_one {
            self.keys.set_deadline(database, &words[1], None);
            self.touch(database, &words[1]);
        }
        reply.count(usize::from(had_one));
        Ok(())
    }

    pub(super) fn pttl(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.number(self.left(self.database(me), &words[1]));
        Ok(())
    }

    pub(super) fn ttl(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let left = self.left(self.database(me), &words[1]);
        reply.number(if left < 0 { left } else { (left + 500) / 1000 });
        Ok(())
    }

    /// Milliseconds that a key holds; -1: for ever, -2: there is none.
    fn left(&self, database: usize, key: &[u8]) -> i64 {
        match (self.keys.value(database, key), self.keys.deadline(database, key)) {
            (None, _) => -2,
            (_, None) => -1,
            (_, Some(deadline)) => (deadline as i64 - self.milliseconds() as i64).max(0),
        }
    }
}
