//! CLIENT PAUSE: for some time all commands, or those that write, are held up; then they are carried out in the order
//! in which they came.

use std::time::Duration;

use super::{Connection, Done, Redis, Refusal, Reply, numbers::milliseconds};

pub struct Pause {
    pub until: Duration,
    /// All of them; otherwise those that write.
    pub all: bool,
}

impl Redis {
    pub(super) fn client_pause(&mut self, _: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let all = match &words[3..] {
            [] => true,
            [mode] if mode.eq_ignore_ascii_case(b"WRITE") => false,
            [mode] if mode.eq_ignore_ascii_case(b"ALL") => true,
            [_] => return Err("ERR CLIENT PAUSE mode must be WRITE or ALL".into()),
            _ => return Err(wrong_subcommand("CLIENT", &words[1])),
        };
        if let Some(length) = milliseconds(&words[2])? {
            let until = self.now + length;
            let pause = self.pause.get_or_insert(Pause { until, all });
            *pause = Pause { until: pause.until.max(until), all: pause.all || all };
        }
        reply.ok();
        Ok(())
    }

    pub(super) fn client_unpause(&mut self, _: Connection, _: &[Vec<u8>], reply: &mut Reply) -> Done {
        self.go_on();
        reply.ok();
        Ok(())
    }

    /// The pause is over when its time is.
    pub(super) fn end_pause(&mut self) {
        if self.pause.as_ref().is_some_and(|pause| pause.until <= self.now) {
            self.go_on();
        }
    }

    fn go_on(&mut self) {
        self.pause = None;
        for me in std::mem::take(&mut self.postponed) {
            self.session(me).blocked = None;
            self.resumed.push_back(me);
        }
    }
}

/// A subcommand has more words than it may.
pub fn wrong_subcommand(container: &str, subcommand: &[u8]) -> Refusal {
    let behind = format!("'. Try {container} HELP.");
    Refusal::quoting("ERR unknown subcommand or wrong number of arguments for '", subcommand, &behind)
}
