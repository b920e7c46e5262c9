//! A database of the simulator, as seen through one connection: executes requests in order, remembers what a client
//! left behind in it. It knows the toys' wire format and the ledger, no driver.

use std::collections::VecDeque;

use super::ledger::Ledger;
use crate::{random::Rng, toys::wire};

/// How databases behave in a schedule.
#[derive(Clone, Copy, Debug)]
pub struct Manners {
    /// Percent of connections that are refused.
    pub refuses: u64,
    /// Percent of the refusals that are for good.
    pub for_good: u64,
    /// Percent of work after which a notice is sent unasked.
    pub notices: u64,
    /// Percent of work after which it says goodbye, and does nothing more.
    pub leaves: u64,
    /// Longest filler of a reply.
    pub filler: u64,
    /// Requests come in parts.
    pub parts: bool,
}

/// One connection of a database.
#[derive(Debug, Default)]
pub struct Upstream {
    received: Vec<u8>,
    pending: VecDeque<(wire::Header, u32)>,
    /// Sent, on its way to the proxy.
    pub sent: VecDeque<u8>,
    sent_total: u64,
    /// Where in all that was sent the last thing ended that somebody waits for.
    pub awaited_until: u64,
    in_transaction: bool,
    setting: bool,
    left: bool,
}

impl Upstream {
    /// Bytes from the proxy.
    pub fn read(&mut self, bytes: impl Iterator<Item = u8>, manners: &Manners) {
        self.received.extend(bytes);
        let mut at = 0;
        while let Some(head) = wire::header(&self.received[at..]).expect("a server is sent no broken frames")
            && self.received.len() - at >= head.len
        {
            let filling = head.len - wire::HEADER;
            assert!(wire::intact(&self.received[at..at + head.len], 0), "a server is sent a broken frame {head:?}");
            if !self.left {
                self.pending.push_back((head, if manners.parts { filling as u32 / 5 } else { 0 }));
            }
            at += head.len;
        }
        self.received.drain(..at);
    }

    /// There is something to do.
    pub fn has_work(&self) -> bool {
        !self.pending.is_empty()
    }

    /// It is being sent nothing, has nothing to do, and all that it sent has been received.
    pub fn is_quiet(&self) -> bool {
        self.received.is_empty() && self.pending.is_empty() && self.sent.is_empty()
    }

    /// The request that a cancel request would hit now.
    pub fn working_on(&self) -> Option<u32> {
        self.pending.front().filter(|p| p.0.kind == wire::REQUEST).map(|p| p.0.nonce)
    }

    fn say(&mut self, kind: u8, nonce: u32, flags: u8, filler: usize) {
        let mut bytes = Vec::new();
        wire::frame(&mut bytes, kind, nonce, flags, filler);
        self.sent_total += bytes.len() as u64;
        if !matches!(kind, wire::NOTICE | wire::GOODBYE) {
            self.awaited_until = self.sent_total;
        }
        self.sent.extend(bytes);
    }

    /// Does the next piece of work.
    pub fn work(&mut self, manners: &Manners, ledger: &mut Ledger, rng: &mut Rng) {
        let Some((head, part)) = self.pending.pop_front() else { return };
        match head.kind {
            wire::HELLO if rng.percent(manners.refuses) => {
                let flags = if rng.percent(manners.for_good) { wire::PERMANENT } else { 0 };
                self.say(wire::REFUSED, 0, flags, 0);
            }
            wire::HELLO | wire::PING => self.say(wire::DONE, 0, 0, 0),
            wire::RESET => {
                (self.in_transaction, self.setting) = (false, false);
                self.say(wire::DONE, 0, 0, 0);
            }
            wire::REQUEST => {
                ledger.executed(head.nonce, part);
                self.in_transaction |= head.flags & wire::TRANSACTION != 0;
                self.in_transaction &= head.flags & wire::END == 0;
                self.setting |= head.flags & wire::SETTING != 0;
                let flags = if self.in_transaction { wire::TRANSACTION } else { 0 };
                let filler = if rng.percent(50) { 0 } else { rng.within(0..=manners.filler) };
                self.say(wire::REPLY, head.nonce, flags, filler as usize);
            }
            wire::GOODBYE => {}
            other => panic!("a server is sent {}", other as char),
        }
        if rng.percent(manners.notices) {
            self.say(wire::NOTICE, rng.next() as u32, 0, rng.within(0..=20) as usize);
        }
        if manners.leaves > 0 && rng.percent(manners.leaves) {
            self.say(wire::GOODBYE, 0, 0, 0);
            self.pending.clear();
            self.left = true;
        }
    }

    /// Nothing of a client is left in it. `consumed`: how much of what it sent has been read by its session.
    /// `under_way`: bytes that are still on their way to it.
    pub fn check_untouched(&self, consumed: u64, under_way: usize, when: &str) {
        let busy = under_way > 0 || !self.received.is_empty() || !self.pending.is_empty();
        assert!(!busy, "{when}: a server is still being sent something, or at work");
        assert!(consumed >= self.awaited_until, "{when}: a reply is still on its way");
        assert!(!self.in_transaction, "{when}: a transaction is open");
        assert!(!self.setting, "{when}: a client's setting is left behind");
    }
}
