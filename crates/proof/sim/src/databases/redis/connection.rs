//! Commands on the connection itself: its name, its protocol version and its database.

use super::{
    Connection, Done, Redis, Reply,
    arguments::{integer, required_integer},
    commands::wrong_number,
    keyspace::DATABASES,
};

impl Redis {
    pub(super) fn ping(&mut self, client: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let session = &self.sessions[&client];
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

    pub(super) fn select(&mut self, client: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let index = required_integer(&words[1])?;
        if i32::try_from(index).is_err() {
            return Err("ERR value is out of range, value must between -2147483648 and 2147483647".into());
        }
        let index = usize::try_from(index).ok().filter(|index| *index < DATABASES);
        self.session(client).database = index.ok_or("ERR DB index is out of range")?;
        reply.ok();
        Ok(())
    }

    pub(super) fn client_getname(&mut self, client: Connection, _: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.maybe(self.session(client).name.as_ref());
        Ok(())
    }

    /// CLIENT SETNAME. An empty name is none.
    pub(super) fn client_setname(&mut self, client: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let name = &words[2];
        if !name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
            return Err("ERR Client names cannot contain spaces, newlines or special characters.".into());
        }
        self.session(client).name = (!name.is_empty()).then(|| name.clone());
        reply.ok();
        Ok(())
    }

    pub(super) fn hello(&mut self, client: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let mut version = reply.version;
        if let Some(word) = words.get(1) {
            version = match integer(word) {
                Some(2) => 2,
                Some(3) => 3,
                Some(_) => return Err("NOPROTO unsupported protocol version".into()),
                None => return Err("ERR Protocol version is not an integer or out of range".into()),
            };
        }
        if words.len() > 2 {
            return Err("ERR the model knows no options of HELLO".into());
        }
        self.session(client).version = version;
        reply.version = version;
        reply.map(7);
        for (key, value) in [("server", "redis"), ("version", "7.0.15")] {
            reply.text(key);
            reply.text(value);
        }
        for (key, value) in [("proto", i64::from(version)), ("id", client as i64)] {
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
}
