//! Whether a command is carried out now, is kept for later, or is refused. It knows of a command only what the table
//! says.

use super::{
    Connection, Redis,
    reply::{Refusal, Reply},
    session::{Blocked, Queue, Words},
    table::{self, AT_ONCE, FREE, IN_TIME, READS, REPLICATES, SUBSCRIBER, Spec, WRITES},
};

const BUSY: &str = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";

impl Redis {
    /// Deals with a command of a connection that waits for nothing.
    pub(super) fn command(&mut self, me: Connection, words: Words) {
        let is = |name: &str| words[0].eq_ignore_ascii_case(name.as_bytes());
        if is("quit") {
            self.say(me, b"+OK\r\n".to_vec());
            return self.close_after_reply(me);
        }
        // Somebody takes this for a web server, and may have been made to.
        if is("post") || is("host:") {
            return self.close(me);
        }
        match table::find(&words) {
            Err(why) => self.reject(me, is("exec"), &why),
            Ok(spec) => match self.objection(me, spec, &words) {
                Some(why) => self.reject(me, is("exec"), &why),
                None => self.admit(me, spec, words),
            },
        }
    }

    /// Why a command cannot be carried out.
    fn objection(&mut self, me: Connection, spec: &Spec, words: &[Vec<u8>]) -> Option<Refusal> {
        let now = self.now;
        let busy = self.running.is_some();
        let session = self.session(me);
        (session.active, session.command) = (now, spec.name);
        if !session.known && !spec.is(FREE) {
            return Some("NOAUTH Authentication required.".into());
        }
        if session.is_subscriber() && session.version == 2 && !spec.is(SUBSCRIBER) {
            let why = format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
                spec.name
            );
            return Some(why.into());
        }
        debug_assert!(!words.is_empty(), "there is no command without a name");
        (busy && !spec.is(IN_TIME)).then(|| BUSY.into())
    }

    /// Refuses a command: a transaction that it was meant for is not to be carried out.
    fn reject(&mut self, me: Connection, ends_transaction: bool, why: &Refusal) {
        if ends_transaction {
            self.discard_all(me);
            let why = [b"EXECABORT Transaction discarded because of: ", why.0.strip_prefix(b"ERR ").unwrap_or(&why.0)];
            self.refuse(me, &Refusal(why.concat()));
        } else {
            if let Some(queue) = &mut self.session(me).multi {
                queue.broken = true;
            }
            self.refuse(me, why);
        }
        self.over(me);
    }

    /// Carries out a command, or keeps it.
    fn admit(&mut self, me: Connection, spec: &Spec, words: Words) {
        let queue_writes = self.session(me).multi.as_ref().is_some_and(|queue| queue.writes);
        let changes = spec.is(WRITES | REPLICATES) || (spec.name == "exec" && queue_writes);
        if self.pause.as_ref().is_some_and(|pause| pause.all || changes) {
            let session = self.session(me);
            session.postponed = Some(words);
            session.blocked = Some(Blocked::Postponed);
            return self.postponed.push_back(me);
        }
        match &mut self.session(me).multi {
            Some(queue) if !spec.is(AT_ONCE) => {
                let Queue { commands, writes, .. } = queue;
                commands.push_back(words);
                *writes |= spec.is(WRITES | REPLICATES);
                self.say(me, b"+QUEUED\r\n".to_vec());
                self.over(me);
            }
            _ => {
                self.at_work = Some(me);
                self.run(me, spec, &words);
                self.finish(me);
            }
        }
    }

    /// Carries out a command and says what it comes to.
    pub(super) fn run(&mut self, me: Connection, spec: &Spec, words: &[Vec<u8>]) {
        let mut reply = Reply::new(self.session(me).version);
        if let Err(why) = (spec.run)(self, me, words, &mut reply) {
            reply.error(&why);
        }
        self.say(me, reply.bytes);
        if spec.is(READS) {
            let keys = if ["exists", "mget"].contains(&spec.name) { &words[1..] } else { &words[1..2] };
            self.remember(me, keys);
        }
    }

    /// A command, or a whole transaction, has been carried out, unless it waits.
    pub(super) fn finish(&mut self, me: Connection) {
        if self.sessions.get(&me).is_some_and(|session| session.blocked.is_none()) {
            self.over(me);
        }
        self.tell_own_changes(me);
        self.serve_lists();
        self.tell_own_changes(me);
        self.at_work = None;
        if self.sessions.get(&me).is_some_and(|session| session.closing) {
            self.close_after_reply(me);
        }
    }

    /// The next command begins.
    pub(super) fn over(&mut self, me: Connection) {
        let Some(session) = self.sessions.get_mut(&me) else { return };
        session.silence.now = std::mem::take(&mut session.silence.next);
        if session.command != "client|caching"
            && let Some(tracking) = &mut session.tracking
        {
            tracking.caching = None;
        }
    }
}
