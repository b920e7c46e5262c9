//! The toy for a cluster as a player speaks it, and what it asks: rows under keys of its own.

use std::collections::VecDeque;

use crate::{
    databases::cluster as model,
    product::player::{Kind, Message, Request, Speech},
    random::Rng,
};

pub(super) struct Voice {
    number: usize,
    /// Its keys change after a fault, when it is not known what became of its last writes.
    alias: u32,
    next: u32,
    /// Writes that are there for certain.
    acknowledged: Vec<String>,
    /// What was asked and not answered: what is to be written, if anything.
    asked: VecDeque<Option<String>>,
    /// Writes that were answered with an error that says they were not carried out.
    refused: Vec<String>,
}

impl Voice {
    pub(super) fn new(number: usize) -> Self {
        let (acknowledged, refused) = (Vec::new(), Vec::new());
        Self { number, alias: 0, next: 0, acknowledged, asked: VecDeque::new(), refused }
    }

    /// What all its keys begin with.
    fn prefix(&self) -> String {
        format!("p{}x{}.", self.number, self.alias)
    }
}

fn one(line: &str) -> Request {
    Request { bytes: format!("{line}\n").into_bytes(), answers: 1 }
}

impl Speech for Voice {
    type Database = model::Cluster;

    fn reference(&self) -> model::Cluster {
        model::Cluster::own()
    }

    fn open(&mut self, _: &mut Rng) -> Request {
        self.asked = [None].into();
        one("PING")
    }

    fn ask(&mut self, rng: &mut Rng) -> Request {
        self.next += 1;
        let next = self.next;
        let key = format!("{}{}", self.prefix(), rng.pick(&["a", "b"]));
        let what = rng.below(3);
        self.asked.push_back((what == 0).then(|| format!("{key}={next}")));
        match what {
            0 => one(&format!("PUT {key} {next}")),
            1 => one(&format!("GET {key} primary")),
            _ => one(&format!("GET {key} any")),
        }
    }

    fn learn(&mut self, _: &Message) {}

    fn hear(&mut self, answer: &[u8]) {
        let write = self.asked.pop_front().flatten();
        self.refused.extend(write.filter(|_| answer.starts_with(b"!the host")));
    }

    fn is_idle(&self) -> bool {
        true
    }

    fn farewell(&self) -> Vec<u8> {
        Vec::new()
    }

    fn cut(&mut self, bytes: &[u8], _: bool) -> Option<(usize, Option<Message>)> {
        let length = 1 + bytes.iter().position(|byte| *byte == b'\n')?;
        let line = &bytes[..length];
        let kind = if line[0] == b'!' && line != b"!not understood\n" { Kind::Fault } else { Kind::End };
        Some((length, Some(Message { kind, text: line.to_vec() })))
    }

    fn sort_opening(&self, _: &mut Vec<Message>) {}

    fn is_as_good(&self, _: &Message, _: &Message, _: bool) -> bool {
        false
    }

    fn check(&mut self, real: &model::Cluster, own: &model::Cluster) {
        let (real, own) = (real.written(&self.prefix()), own.written(&self.prefix()));
        assert!(real == own, "the ledger of player {} holds {real:?} instead of {own:?}", self.number);
        self.acknowledged = own;
    }

    fn check_after_fault(&mut self, real: &model::Cluster, _: &model::Cluster) {
        let real = real.written(&self.prefix());
        let done = self.refused.iter().find(|write| real.contains(write));
        assert!(done.is_none(), "{done:?} is written, and its client was told that it is not");
        let known = &self.acknowledged;
        assert!(known.iter().all(|row| real.contains(row)), "a ledger holds {real:?}, acknowledged were {known:?}");
        let mut once = real.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), real.len(), "a write is there twice: {real:?}");
        self.alias += 1;
        self.acknowledged.clear();
        self.refused.clear();
    }

    fn cancel(&self) -> Option<Vec<u8>> {
        None
    }
}
