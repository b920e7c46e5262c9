//! Commands that ask about the server.

use super::{Connection, Done, Redis, Reply, keyspace::DATABASES, session::Blocked};

impl Redis {
    pub(super) fn role(&mut self, _: Connection, _: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.array(3);
        reply.text("master");
        reply.count(0);
        reply.array(0);
        Ok(())
    }

    pub(super) fn acl_whoami(&mut self, _: Connection, _: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.text("default");
        Ok(())
    }

    pub(super) fn info(&mut self, _: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let blocked = |blocked: &Option<Blocked>| matches!(blocked, Some(Blocked::Pop { .. } | Blocked::Wait { .. }));
        let blocked = self.sessions.values().filter(|session| blocked(&session.blocked)).count();
        let mut databases = String::new();
        for database in (0..DATABASES).filter(|database| self.keys.len(*database) > 0) {
            let (keys, ending) = (self.keys.len(database), self.keys.ending(database));
            databases += &format!("db{database}:keys={keys},expires={ending},avg_ttl=0\r\n");
        }
        let sections = [
            ("Server", "redis_version:7.0.15\r\nredis_mode:standalone\r\n".to_owned()),
            ("Clients", format!("connected_clients:{}\r\nblocked_clients:{blocked}\r\n", self.sessions.len())),
            ("Persistence", "loading:0\r\n".to_owned()),
            ("Replication", "role:master\r\nconnected_slaves:0\r\n".to_owned()),
            ("Keyspace", databases),
        ];
        let all = ["all", "default", "everything"];
        let wanted = |name: &str| {
            let is = |word: &Vec<u8>, name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            words.len() == 1 || words[1..].iter().any(|word| is(word, name) || all.iter().any(|all| is(word, all)))
        };
        let told = sections.iter().filter(|(name, _)| wanted(name)).map(|(name, lines)| format!("# {name}\r\n{lines}"));
        reply.verbatim(&told.collect::<Vec<_>>().join("\r\n"));
        Ok(())
    }
}
