//! A client's application: writes a script of requests, reads what comes back and believes nothing. It knows the toys'
//! wire format and the ledger, no driver.

use std::collections::VecDeque;

use super::ledger::{Ledger, Outcome};
use crate::{
    random::Rng,
    toys::{several::MAX_PARTS, wire},
};

/// What the applications of a schedule write.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Flags they may set.
    pub flags: u8,
    /// Longest filler.
    pub filler: u64,
    /// Longest run of requests without waiting for the replies.
    pub pipeline: u64,
    /// Requests name pools, and are executed in parts.
    pub parts: bool,
    /// Percent of logins with a wrong password.
    pub wrong_passwords: u64,
}

/// One application with one connection.
#[derive(Debug)]
pub struct App {
    /// Unique in the schedule.
    pub serial: u64,
    /// Requests still to be written.
    pub left: u64,
    /// Written, on its way to the proxy.
    pub written: VecDeque<u8>,
    /// Sent and not resolved, oldest first.
    pub unresolved: VecDeque<u32>,
    /// Tag and secret as told at the login.
    pub key: Option<(u32, u64)>,
    /// It said goodbye, or will never say anything again.
    pub finished: bool,
    read: Vec<u8>,
    pinned: bool,
    in_transaction: bool,
    turned_away: bool,
}

impl App {
    /// An application with `left` requests to make; its login is written.
    pub fn new(serial: u64, left: u64, habits: &Habits, rng: &mut Rng) -> Self {
        let mut written = Vec::new();
        let wrong = if rng.percent(habits.wrong_passwords) { wire::PERMANENT } else { 0 };
        wire::frame(&mut written, wire::LOGIN, rng.next() as u32, wrong, 0);
        Self {
            serial,
            left,
            written: written.into(),
            unresolved: VecDeque::new(),
            key: None,
            finished: false,
            read: Vec::new(),
            pinned: false,
            in_transaction: false,
            turned_away: false,
        }
    }

    /// One that connects only to cancel what another is doing.
    pub fn canceller(serial: u64, tag: u32, secret: u64) -> Self {
        let mut app = Self::new(
            serial,
            0,
            &Habits { flags: 0, filler: 0, pipeline: 1, parts: false, wrong_passwords: 0 },
            &mut Rng::new(0),
        );
        let mut written = Vec::new();
        wire::frame_with(&mut written, wire::CANCEL, tag, 0, &secret.to_le_bytes(), 0);
        (app.written, app.finished) = (written.into(), true);
        app
    }

    /// Writes some more of its script, or goodbye when it is through.
    pub fn write(&mut self, habits: &Habits, ledger: &mut Ledger, rng: &mut Rng) {
        if self.finished || self.unresolved.len() as u64 >= habits.pipeline {
            return;
        }
        let mut bytes = Vec::new();
        if self.left == 0 {
            if self.unresolved.is_empty() {
                self.finished = true;
                wire::frame(&mut bytes, wire::GOODBYE, 0, 0, 0);
            }
        } else {
            for _ in 0..rng.within(1..=habits.pipeline).min(self.left) {
                self.left -= 1;
                self.request(habits, ledger, rng, &mut bytes);
            }
        }
        self.written.extend(bytes);
    }

    fn request(&mut self, habits: &Habits, ledger: &mut Ledger, rng: &mut Rng, bytes: &mut Vec<u8>) {
        let parts = habits.parts;
        let nonce = ledger.sent(self.serial, |n| if parts { 1 + n % MAX_PARTS as u32 } else { 1 });
        let mut flags = 0;
        if self.in_transaction && rng.percent(50) {
            (flags, self.in_transaction) = (wire::END, false);
        } else if !self.in_transaction && rng.percent(30) {
            (flags, self.in_transaction) = (wire::TRANSACTION, habits.flags & wire::TRANSACTION != 0);
        }
        if rng.percent(20) {
            flags |= wire::SETTING;
        }
        if rng.percent(if self.pinned { 50 } else { 10 }) {
            flags |= if self.pinned { wire::UNPIN } else { wire::PIN };
            self.pinned = !self.pinned;
        }
        let named: Vec<u8> = if parts { (0..MAX_PARTS).map(|_| rng.next() as u8).collect() } else { Vec::new() };
        let filler = if parts || rng.percent(50) { 0 } else { rng.within(0..=habits.filler) };
        wire::frame_with(bytes, wire::REQUEST, nonce, flags & habits.flags, &named, filler as usize);
        self.unresolved.push_back(nonce);
    }

    /// Bytes from the proxy.
    pub fn read(&mut self, bytes: impl Iterator<Item = u8>, ledger: &mut Ledger) {
        self.read.extend(bytes);
        let mut at = 0;
        while let Some(head) = wire::header(&self.read[at..]).expect("the proxy writes no broken frames")
            && self.read.len() - at >= head.len
        {
            let frame = &self.read[at..at + head.len];
            assert!(!self.turned_away, "something comes after the last word");
            let body = if head.kind == wire::WELCOME { 8 } else { 0 };
            assert!(wire::intact(frame, body), "client {} reads a broken frame {head:?}", self.serial);
            match head.kind {
                wire::WELCOME => {
                    let secret = frame[wire::HEADER..].try_into().expect("eight bytes");
                    self.key = Some((head.nonce, u64::from_le_bytes(secret)));
                }
                wire::REPLY | wire::ERROR => {
                    let outcome = if head.kind == wire::REPLY { Outcome::Answered } else { Outcome::Failed };
                    ledger.ended(head.nonce, self.serial, outcome);
                    assert_eq!(self.unresolved.pop_front(), Some(head.nonce), "replies come in order");
                    if head.kind == wire::ERROR {
                        (self.in_transaction, self.pinned) = (false, false);
                    }
                }
                wire::TURNED_AWAY => self.turned_away = true,
                wire::NOTICE => {}
                other => panic!("the proxy says {} to client {}", other as char, self.serial),
            }
            at += head.len;
        }
        self.read.drain(..at);
    }

    /// The connection has ended: what was open stays open for ever.
    pub fn cut(&mut self, ledger: &mut Ledger) {
        self.finished = true;
        self.written.clear();
        for nonce in self.unresolved.drain(..) {
            ledger.ended(nonce, self.serial, Outcome::Cut);
        }
    }
}
