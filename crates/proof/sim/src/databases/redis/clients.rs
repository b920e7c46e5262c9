//! CLIENT: what a connection may say of itself, and ask or do about others.

use super::{
    Connection, Done, Redis, Refusal, Reply,
    numbers::{integer, required},
    pausing::wrong_subcommand,
    session::{Blocked, Session},
};

/// Which connections are meant.
#[derive(Default)]
struct Filter {
    /// Any if there are none.
    ids: Vec<u64>,
    subscribers: Option<bool>,
    /// Of a kind that there is none of.
    none: bool,
    address: Option<Vec<u8>>,
    own_address: Option<Vec<u8>>,
    spares_me: bool,
}

impl Filter {
    fn set_kind(&mut self, kind: &[u8]) -> Done {
        match &*kind.to_ascii_lowercase() {
            b"normal" => self.subscribers = Some(false),
            b"pubsub" => self.subscribers = Some(true),
            b"slave" | b"replica" | b"master" => self.none = true,
            _ => return Err(Refusal::quoting("ERR Unknown client type '", kind, "'")),
        }
        Ok(())
    }

    fn holds(&self, connection: Connection, session: &Session) -> bool {
        let is =
            |wanted: &Option<Vec<u8>>, there: &str| wanted.as_ref().is_none_or(|wanted| wanted == there.as_bytes());
        !self.none
            && (self.ids.is_empty() || self.ids.contains(&connection))
            && self.subscribers.is_none_or(|subscribers| subscribers == session.is_subscriber())
            && is(&self.address, &address(connection))
            && is(&self.own_address, OWN_ADDRESS)
    }
}

const OWN_ADDRESS: &str = "127.0.0.1:6379";

/// Where a connection comes from: nowhere, but it has to be told.
fn address(connection: Connection) -> String {
    format!("127.0.0.1:{}", 10_000 + connection % 50_000)
}

pub(super) fn is_on(word: &[u8], on: &str, off: &str) -> Result<bool, Refusal> {
    match word {
        word if word.eq_ignore_ascii_case(on.as_bytes()) => Ok(true),
        word if word.eq_ignore_ascii_case(off.as_bytes()) => Ok(false),
        _ => Err("ERR syntax error".into()),
    }
}

impl Redis {
    pub(super) fn client_id(&mut self, me: Connection, _: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.number(me as i64);
        Ok(())
    }

    pub(super) fn client_getname(&mut self, me: Connection, _: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.maybe(self.session(me).name.as_ref());
        Ok(())
    }

    pub(super) fn client_setname(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        self.set_name(me, &words[2])?;
        reply.ok();
        Ok(())
    }

    pub(super) fn client_no_evict(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        self.session(me).no_evict = is_on(&words[2], "on", "off")?;
        reply.ok();
        Ok(())
    }

    pub(super) fn client_reply(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let silence = &mut self.session(me).silence;
        match &*words[2].to_ascii_uppercase() {
            b"ON" => {
                (silence.off, silence.now) = (false, false);
                reply.ok();
            }
            b"OFF" => silence.off = true,
            b"SKIP" => silence.next = !silence.off,
            _ => return Err("ERR syntax error".into()),
        }
        Ok(())
    }

    pub(super) fn client_unblock(&mut self, _: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let with_error = match &words[3..] {
            [] => false,
            [how] if how.eq_ignore_ascii_case(b"TIMEOUT") => false,
            [how] if how.eq_ignore_ascii_case(b"ERROR") => true,
            [_] => return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".into()),
            _ => return Err(wrong_subcommand("CLIENT", &words[1])),
        };
        let id = required(&words[2])? as u64;
        let unblocked = if with_error { self.break_wait(id) } else { self.end_wait(id) };
        reply.count(usize::from(unblocked));
        Ok(())
    }

    pub(super) fn client_kill(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let mut filter = Filter { spares_me: true, ..Filter::default() };
        if let [_, _, address] = words {
            filter = Filter { address: Some(address.clone()), ..Filter::default() };
        }
        let mut rest = if words.len() == 3 { &[] } else { &words[2..] };
        while let [option, value, behind @ ..] = rest {
            match &*option.to_ascii_uppercase() {
                b"ID" => match integer(value) {
                    Some(id) if id > 0 => filter.ids = vec![id as u64],
                    _ => return Err("ERR client-id should be greater than 0".into()),
                },
                b"TYPE" => filter.set_kind(value)?,
                b"ADDR" => filter.address = Some(value.clone()),
                b"LADDR" => filter.own_address = Some(value.clone()),
                b"USER" if value == b"default" => {}
                b"USER" => return Err(Refusal::quoting("ERR No such user '", value, "'")),
                b"SKIPME" => filter.spares_me = is_on(value, "yes", "no")?,
                _ => return Err("ERR syntax error".into()),
            }
            rest = behind;
        }
        if !rest.is_empty() {
            return Err("ERR syntax error".into());
        }
        let meant = |(id, session): (&Connection, &Session)| {
            (filter.holds(*id, session) && !(filter.spares_me && *id == me)).then_some(*id)
        };
        let killed: Vec<Connection> = self.sessions.iter().filter_map(meant).collect();
        for id in killed.iter().filter(|id| **id != me) {
            self.close(*id);
        }
        match words.len() {
            3 if killed.is_empty() => return Err("ERR No such client".into()),
            3 => reply.ok(),
            _ => reply.count(killed.len()),
        }
        if killed.contains(&me) {
            self.say(me, std::mem::take(&mut reply.bytes));
            self.session(me).closing = true;
        }
        Ok(())
    }

    pub(super) fn client_info(&mut self, me: Connection, _: &[Vec<u8>], reply: &mut Reply) -> Done {
        let line = self.describe(me, &self.sessions[&me]);
        reply.verbatim(&line);
        Ok(())
    }

    pub(super) fn client_list(&mut self, _: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let mut filter = Filter::default();
        match &words[2..] {
            [] => {}
            [option, kind] if option.eq_ignore_ascii_case(b"TYPE") => filter.set_kind(kind)?,
            [option, ids @ ..] if option.eq_ignore_ascii_case(b"ID") && !ids.is_empty() => {
                for id in ids {
                    filter.ids.push(integer(id).ok_or("ERR Invalid client ID")? as u64);
                }
            }
            _ => return Err("ERR syntax error".into()),
        }
        let meant = self.sessions.iter().filter(|(id, session)| filter.holds(**id, session));
        let lines: String = meant.map(|(id, session)| self.describe(*id, session)).collect();
        reply.verbatim(&lines);
        Ok(())
    }

    /// What is told of a connection. Numbers that there is nothing behind are zero.
    fn describe(&self, id: Connection, session: &Session) -> String {
        let name = String::from_utf8_lossy(session.name.as_deref().unwrap_or_default()).into_owned();
        let blocked = matches!(session.blocked, Some(Blocked::Pop { .. } | Blocked::Wait { .. }));
        let flags = [
            (session.is_subscriber(), 'P'),
            (session.multi.is_some(), 'x'),
            (blocked, 'b'),
            (session.tracking.is_some(), 't'),
            (session.dirty, 'd'),
            (session.no_evict, 'e'),
        ];
        let mut flags: String = flags.into_iter().filter_map(|(is_set, flag)| is_set.then_some(flag)).collect();
        if flags.is_empty() {
            flags.push('N');
        }
        let [channels, patterns, shards] = session.subscriptions.each_ref().map(|names| names.len());
        let multi = session.multi.as_ref().map_or(-1, |queue| queue.commands.len() as i64);
        format!(
            "id={id} addr={} laddr={OWN_ADDRESS} fd=8 name={name} age={} idle={} flags={flags} db={} sub={channels} \
             psub={patterns} ssub={shards} multi={multi} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 \
             oll=0 omem=0 tot-mem=0 events=r cmd={} user=default redir={} resp={}\n",
            address(id),
            (self.now - session.since).as_secs(),
            (self.now - session.active).as_secs(),
            session.database,
            session.command,
            self.redirection(id),
            session.version,
        )
    }
}
