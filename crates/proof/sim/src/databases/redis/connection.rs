//! Commands on the connection itself: who speaks, in which version of the protocol, in which database.

use super::{Connection, Done, Redis, Refusal, Reply, keyspace::DATABASES, numbers::integer, table::wrong_number};

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// Whether it may be a connection's name.
fn is_name(name: &[u8]) -> bool {
    name.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

impl Redis {
    pub(super) fn ping(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let session = &self.sessions[&me];
        match words {
            [_] | [_, _] if session.is_subscriber() && session.version == 2 => {
                reply.array(2);
                reply.text("pong");
                reply.text(words.get(1).map_or(&b""[..], Vec::as_slice));
            }
            [_] => reply.simple("PONG"),
            [_, word] => reply.text(word),
            _ => return Err(wrong_number("ping")),
        }
        Ok(())
    }

    pub(super) fn echo(&mut self, _: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.text(&words[1]);
        Ok(())
    }

    pub(super) fn select(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let index = integer(&words[1]).ok_or("ERR value is not an integer or out of range")?;
        if i32::try_from(index).is_err() {
            return Err("ERR value is out of range, value must between -2147483648 and 2147483647".into());
        }
        let index = usize::try_from(index).ok().filter(|index| *index < DATABASES);
        self.session(me).database = index.ok_or("ERR DB index is out of range")?;
        reply.ok();
        Ok(())
    }

    pub(super) fn auth(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        match words {
            [_, _] if self.password.is_none() => {
                return Err("ERR AUTH <password> called without any password configured for the default user. \
                            Are you sure your configuration is correct?"
                    .into());
            }
            [_, password] => self.log_in(me, b"default", password)?,
            [_, user, password] => self.log_in(me, user, password)?,
            _ => return Err("ERR syntax error".into()),
        }
        reply.ok();
        Ok(())
    }

    fn log_in(&mut self, me: Connection, user: &[u8], password: &[u8]) -> Done {
        let is_right = self.password.as_ref().is_none_or(|right| right == password);
        if user != b"default" || !is_right {
            return Err(WRONG_PASSWORD.into());
        }
        self.session(me).known = true;
        Ok(())
    }

    /// Calls a connection so. An empty name is none.
    pub(super) fn set_name(&mut self, me: Connection, name: &[u8]) -> Done {
        if !is_name(name) {
            return Err("ERR Client names cannot contain spaces, newlines or special characters.".into());
        }
        self.session(me).name = (!name.is_empty()).then(|| name.to_vec());
        Ok(())
    }

    pub(super) fn hello(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let mut version = reply.version;
        if let Some(word) = words.get(1) {
            version = match integer(word) {
                Some(2) => 2,
                Some(3) => 3,
                Some(_) => return Err("NOPROTO unsupported protocol version".into()),
                None => return Err("ERR Protocol version is not an integer or out of range".into()),
            };
        }
        let mut rest = words.get(2..).unwrap_or_default();
        while let [option, behind @ ..] = rest {
            rest = match (&*option.to_ascii_uppercase(), behind) {
                (b"AUTH", [user, password, behind @ ..]) => {
                    self.log_in(me, user, password)?;
                    behind
                }
                (b"SETNAME", [name, behind @ ..]) => {
                    self.set_name(me, name)?;
                    behind
                }
                _ => return Err(Refusal::quoting("ERR Syntax error in HELLO option '", option, "'")),
            };
        }
        let session = self.session(me);
        if !session.known {
            return Err("NOAUTH HELLO must be called with the client already authenticated, otherwise the \
                        HELLO AUTH <user> <pass> option can be used to authenticate the client and \
                        select the RESP protocol version at the same time"
                .into());
        }
        (session.version, reply.version) = (version, version);
        reply.map(7);
        for (key, value) in [("server", "redis"), ("version", "7.0.15")] {
            reply.text(key);
            reply.text(value);
        }
        for (key, value) in [("proto", i64::from(version)), ("id", me as i64)] {
            reply.text(key);
            reply.number(value);
        }
        for (key, value) in [("mode", "standalone"), ("role", "master")] {
            reply.text(key);
            reply.text(value);
        }
        reply.text("modules");
        reply.array(0);
        Ok(())
    }

    pub(super) fn reset(&mut self, me: Connection, _: &[Vec<u8>], reply: &mut Reply) -> Done {
        self.discard_all(me);
        self.unsubscribe_silently(me);
        let known = self.password.is_none();
        let session = self.session(me);
        (session.known, session.version, session.database) = (known, 2, 0);
        (session.name, session.tracking, session.silence) = (None, None, super::session::Silence::default());
        reply.simple("RESET");
        Ok(())
    }
}
