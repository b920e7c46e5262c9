//! A server that holds the subscriptions of all clients of its pool.

use seam::{Blame, CloseReason, Effect, Input, Outbox, Peer, PoolId, ServerTag, Verdict};

use super::Server;
use crate::{
    Redis,
    command::Topic,
    resp::{ReplyScanner, Said, said},
    rest::messages::Made,
};

/// Longest message that is passed on, in bytes. Redis itself keeps no more for a subscriber, if it is not told
/// otherwise.
const MAX_MESSAGE: usize = 32 << 20;

/// What such a server is at.
pub(crate) struct Holding {
    pool: PoolId,
    /// Tells what is posted to it from what was meant for another.
    key: u64,
    /// A message that has not come whole, and where it ends.
    gathered: Vec<u8>,
    scanner: ReplyScanner,
}

/// Messages for the same subscribers, one behind the other.
struct Run<'a> {
    topic: Topic,
    name: &'a [u8],
    messages: &'a [u8],
}

impl Redis {
    /// The server holds the subscriptions of its pool from now on.
    pub(crate) fn hold(&self, me: ServerTag, server: &mut Server, pool: PoolId, key: u64, out: &mut Outbox) {
        let (gathered, scanner) = (Vec::new(), ReplyScanner::default());
        server.holder = None;
        server.holding = Some(Box::new(Holding { pool, key, gathered, scanner }));
        out.push(Effect::Keep { server: me, briefly: false });
        out.push(Effect::Pinned { server: me, reason: Some("subscribe") });
        self.look_after(me, server, out);
    }

    /// Somebody wants something.
    pub(crate) fn on_notified(&self, me: ServerTag, server: &mut Server, key: u64, out: &mut Outbox) {
        if server.holding.as_ref().is_some_and(|holding| holding.key == key) {
            self.look_after(me, server, out);
        }
    }

    /// Does what is to be done, and gives the server back when nobody has a subscription any more.
    fn look_after(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        let Some(holding) = &server.holding else { return };
        let mut clean = holding.scanner.is_between();
        let goes_on = self.hubs.serve(holding.pool, holding.key, |hub| {
            let goes_on = hub.look_after(me, out);
            clean &= !hub.stained;
            goes_on
        });
        if !goes_on {
            server.holding = None;
            out.push(Effect::Pinned { server: me, reason: None });
            let verdict = if clean { Verdict::Clean } else { Verdict::Discard };
            out.push(Effect::Release { server: me, verdict });
        }
    }

    /// The server's pool makes its servers anew: another one holds the subscriptions from now on, as if this one had
    /// been lost.
    pub(crate) fn holder_outdated(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        if server.holding.is_none() {
            return;
        }
        out.push(Effect::Pinned { server: me, reason: None });
        out.push(Effect::Release { server: me, verdict: Verdict::Discard });
        self.holder_lost(server, out);
    }

    /// The server has gone. False if it held no subscriptions.
    pub(crate) fn holder_lost(&self, server: &mut Server, out: &mut Outbox) -> bool {
        let Some(holding) = server.holding.take() else { return false };
        self.hubs.serve(holding.pool, holding.key, |hub| hub.lost(out));
        true
    }

    /// Takes what such a server says.
    pub(crate) fn hear_server(&self, me: ServerTag, server: &mut Server, input: Input<'_>, out: &mut Outbox) -> usize {
        let holding = server.holding.as_deref_mut().expect("seen by the caller");
        let mut answers = false;
        let end = match self.hear_all(me, holding, input.bytes, &mut answers, out) {
            Ok(0) if input.full => Err("a line of the server's has no end".to_owned()),
            end => end,
        };
        match end {
            Ok(taken) => {
                if answers {
                    self.look_after(me, server, out);
                }
                taken
            }
            Err(message) => {
                let reason = CloseReason::Error(Blame::Server, message);
                out.push(Effect::Close { peer: Peer::Server(me), reason });
                input.bytes.len()
            }
        }
    }

    fn hear_all(
        &self,
        me: ServerTag,
        holding: &mut Holding,
        bytes: &[u8],
        answers: &mut bool,
        out: &mut Outbox,
    ) -> Result<usize, String> {
        let mut run: Option<Run<'_>> = None;
        let mut at = 0;
        while at < bytes.len() {
            let (begins, begin) = (holding.scanner.is_between(), at);
            let mut scanner = holding.scanner;
            let end = scanner.advance(&bytes[at..]).map_err(|error| error.to_string())?;
            if end.taken == 0 {
                break;
            }
            holding.scanner = scanner;
            at += end.taken;
            let taken = &bytes[begin..at];
            if !(begins && end.over) {
                if holding.gathered.len() <= MAX_MESSAGE {
                    holding.gathered.extend_from_slice(taken);
                }
                if end.over {
                    self.tell(holding, run.take(), out);
                    *answers |= self.hear_gathered(me, holding, out)?;
                }
                continue;
            }
            match (said(taken), &mut run) {
                (Some(Said::Message(topic, name)), Some(run)) if run.topic == topic && run.name == name => {
                    run.messages = &bytes[begin - run.messages.len()..at];
                }
                (Some(Said::Message(topic, name)), _) => {
                    self.tell(holding, run.replace(Run { topic, name, messages: taken }), out);
                }
                (answer, _) => {
                    self.tell(holding, run.take(), out);
                    self.answered(me, holding, answer, taken, out)?;
                    *answers = true;
                }
            }
        }
        self.tell(holding, run, out);
        Ok(at)
    }

    /// Something that came in pieces is there. True if it is an answer.
    fn hear_gathered(&self, me: ServerTag, holding: &mut Holding, out: &mut Outbox) -> Result<bool, String> {
        let gathered = std::mem::take(&mut holding.gathered);
        let Some(Said::Message(topic, name)) = said(&gathered) else {
            self.answered(me, holding, said(&gathered), &gathered, out)?;
            return Ok(true);
        };
        if gathered.len() > MAX_MESSAGE {
            let why = format!("a message of more than {MAX_MESSAGE} bytes came, and longer ones are not passed on");
            self.hubs.serve(holding.pool, holding.key, |hub| {
                hub.disappoint(topic, name, &why, out);
                true
            });
        } else {
            self.tell(holding, Some(Run { topic, name, messages: &gathered }), out);
        }
        Ok(false)
    }

    fn answered(
        &self,
        me: ServerTag,
        holding: &Holding,
        answer: Option<Said<'_>>,
        bytes: &[u8],
        out: &mut Outbox,
    ) -> Result<(), String> {
        let mut meant = false;
        if let Some(answer) = answer {
            self.hubs.serve(holding.pool, holding.key, |hub| {
                meant = hub.answered(me, answer, out);
                true
            });
        }
        let unasked = || format!("a server that holds subscriptions said something unasked: {}", super::shown(bytes));
        if meant { Ok(()) } else { Err(unasked()) }
    }

    fn tell(&self, holding: &Holding, run: Option<Run<'_>>, out: &mut Outbox) {
        let Some(Run { topic, name, messages }) = run else { return };
        let mut hears_events = false;
        self.hubs.serve(holding.pool, holding.key, |hub| {
            hears_events = hub.fan_out(topic, name, messages, out);
            true
        });
        if hears_events {
            // Once for all, and while other workers may go to the hubs: a message of a million lines takes long to
            // become an event.
            let start = out.inserted.len();
            Made::write(topic, name, messages, &mut out.inserted);
            let made = start..out.inserted.len();
            self.hubs.serve(holding.pool, holding.key, |hub| {
                hub.fan_out_made(topic, name, made, out);
                true
            });
        }
    }
}
