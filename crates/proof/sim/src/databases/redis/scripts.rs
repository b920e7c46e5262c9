//! Scripts: the model knows three texts, one of which loops for ever. While it runs, Redis reads no commands for five
//! seconds; then it answers every command with BUSY, until SCRIPT KILL.

use std::time::Duration;

use super::{Connection, Done, Redis, Refusal, Reply, keyspace::Text, numbers::required, session::Blocked};

/// Redis' `busy-reply-threshold`.
const BUSY_THRESHOLD: Duration = Duration::from_secs(5);

const NOT_BUSY: &str = "NOTBUSY No scripts in execution right now.";
const BUSY: &str = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";

pub struct Running {
    pub me: Connection,
    since: Duration,
    busy: bool,
    /// It ends as soon as everybody has been heard.
    pub killed: bool,
}

impl Running {
    /// When others will be heard.
    pub(super) fn busy_at(&self) -> Option<Duration> {
        (!self.busy).then(|| self.since + BUSY_THRESHOLD)
    }
}

/// A script that is known.
struct Script {
    body: &'static str,
    sum: &'static str,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    Get,
    Increment,
    RunForEver,
}

static SCRIPTS: [Script; 3] = [
    Script {
        body: "return redis.call('get', KEYS[1])",
        sum: "4e6d8fc8bb01276962cce5371fa795a7763657ae",
        what: What::Get,
    },
    Script {
        body: "return redis.call('incr', KEYS[1])",
        sum: "2bab3b661081db58bd2341920e0ba7cf5dc77b25",
        what: What::Increment,
    },
    Script { body: "while true do end", sum: "694a5fe1ddb97a4c6a1bf299d9537c7d3d0f84e7", what: What::RunForEver },
];

impl Script {
    fn with_body(body: &[u8]) -> Result<&'static Self, Refusal> {
        let script = SCRIPTS.iter().find(|script| script.body.as_bytes() == body);
        script.ok_or(
            "ERR Error compiling script (new function): user_script:1: this is no script that the model knows".into(),
        )
    }

    /// What an error inside of it becomes.
    fn blame(&self, Refusal(why): &Refusal) -> Refusal {
        Refusal([why, format!(" script: {}, on @user_script:1.", self.sum).as_bytes()].concat())
    }
}

impl Redis {
    pub(super) fn eval(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let keys = keys(words)?;
        let script = Script::with_body(&words[1])?;
        self.scripts.insert(script.sum);
        self.run_script(me, script, keys, reply)
    }

    pub(super) fn evalsha(&mut self, me: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let keys = keys(words)?;
        let sum = words[1].to_ascii_lowercase();
        let Some(sum) = self.scripts.iter().find(|known| known.as_bytes() == sum) else {
            return Err("NOSCRIPT No matching script. Please use EVAL.".into());
        };
        let known = SCRIPTS.iter().find(|script| script.sum == *sum).expect("it was put there");
        self.run_script(me, Script::with_body(known.body.as_bytes())?, keys, reply)
    }

    fn run_script(&mut self, me: Connection, script: &Script, keys: &[Vec<u8>], reply: &mut Reply) -> Done {
        let database = self.database(me);
        let key = || {
            let why = "ERR Lua redis lib command arguments must be strings or integers";
            keys.first().ok_or_else(|| script.blame(&why.into()))
        };
        match script.what {
            What::Get => {
                let text = self.keys.find::<Text>(database, key()?).map_err(|why| script.blame(&why))?;
                reply.maybe(text);
                self.remember(me, &keys[..1]);
            }
            What::Increment => {
                let number = self.add(database, key()?, 1).map_err(|why| script.blame(&why))?;
                reply.number(number);
            }
            What::RunForEver => {
                self.session(me).blocked = Some(Blocked::Script);
                self.running = Some(Running { me, since: self.now, busy: false, killed: false });
            }
        }
        Ok(())
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.running.as_ref().is_some_and(|running| !running.busy)
    }

    /// If a script has run for long, others are heard again.
    pub(super) fn become_busy(&mut self) {
        let Some(running) = self.running.as_mut() else { return };
        if running.busy || self.now < running.since + BUSY_THRESHOLD {
            return;
        }
        running.busy = true;
        while let Some(me) = self.unread.pop_front() {
            self.read(me);
            if self.sessions.get(&me).is_some_and(|session| session.gone) && !self.unread.contains(&me) {
                self.leave(me);
            }
        }
    }

    /// A connection whose peer has gone is forgotten, unless its script runs.
    fn leave(&mut self, me: Connection) {
        if !matches!(self.session(me).blocked, Some(Blocked::Script)) {
            self.forget(me);
        }
    }

    /// The script was ended: whoever ran it is told so, and goes on.
    pub(super) fn end_script(&mut self) {
        let Some(Running { me, .. }) = self.running.take() else { return };
        let script = &SCRIPTS[What::RunForEver as usize];
        if self.sessions.contains_key(&me) {
            self.session(me).blocked = None;
            self.at_work = Some(me);
            self.refuse(me, &script.blame(&"ERR Script killed by user with SCRIPT KILL...".into()));
            self.execute(me);
            if self.running.is_some() {
                return;
            }
            self.finish(me);
            if self.sessions.get(&me).is_some_and(|session| session.gone) {
                self.forget(me);
            } else {
                self.resumed.push_back(me);
            }
        }
        self.serve_lists();
        self.end_waits();
        self.end_pause();
    }

    pub(super) fn script_kill(&mut self, _: Connection, _: &[Vec<u8>], reply: &mut Reply) -> Done {
        // It has written nothing, so that it may be ended.
        self.running.as_mut().ok_or(NOT_BUSY)?.killed = true;
        reply.ok();
        Ok(())
    }

    pub(super) fn function_kill(&mut self, _: Connection, _: &[Vec<u8>], _: &mut Reply) -> Done {
        Err(if self.running.is_some() { BUSY } else { NOT_BUSY }.into())
    }

    pub(super) fn function_stats(&mut self, _: Connection, _: &[Vec<u8>], reply: &mut Reply) -> Done {
        if self.running.is_some() {
            return Err(BUSY.into());
        }
        reply.map(2);
        reply.text("running_script");
        reply.null();
        reply.text("engines");
        reply.map(1);
        reply.text("LUA");
        reply.map(2);
        for what in ["libraries_count", "functions_count"] {
            reply.text(what);
            reply.count(0);
        }
        Ok(())
    }

    pub(super) fn script_load(&mut self, _: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let script = Script::with_body(&words[2])?;
        self.scripts.insert(script.sum);
        reply.text(script.sum);
        Ok(())
    }

    pub(super) fn script_exists(&mut self, _: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.array(words.len() - 2);
        for sum in &words[2..] {
            let known = self.scripts.iter().any(|known| known.as_bytes() == sum);
            reply.count(usize::from(known));
        }
        Ok(())
    }

    pub(super) fn script_flush(&mut self, _: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        match &words[2..] {
            [] => {}
            [how] if [&b"ASYNC"[..], b"SYNC"].contains(&&*how.to_ascii_uppercase()) => {}
            _ => return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into()),
        }
        self.scripts.clear();
        reply.ok();
        Ok(())
    }
}

fn keys(words: &[Vec<u8>]) -> Result<&[Vec<u8>], Refusal> {
    match required(&words[2])? {
        count if count > words.len() as i64 - 3 => {
            Err("ERR Number of keys can't be greater than number of args".into())
        }
        count if count < 0 => Err("ERR Number of keys can't be negative".into()),
        count => Ok(&words[3..3 + count as usize]),
    }
}
