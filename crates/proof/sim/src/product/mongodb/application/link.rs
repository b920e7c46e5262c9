//! One of an application's connections: it greets, logs in if it has to, then carries one command after the other.

use std::{collections::VecDeque, sync::OnceLock};

use clients::mongodb::{Requester, Verdict};
use mongodb_session::{
    KeyCache, ServerLogin,
    wire::{self, Header},
};

use crate::network::{EndId, Network};

/// The id of the greeting.
const GREETING: i32 = 5;

pub struct Link {
    pub end: EndId,
    phase: Phase,
    login: Option<ServerLogin>,
    unsent: VecDeque<u8>,
    received: Vec<u8>,
}

enum Phase {
    Greeting,
    Login(Box<Requester>),
    Ready,
}

/// What a connection has come to.
pub enum Event {
    Ready,
    Message(Vec<u8>),
    /// It is over, for this reason.
    Lost(String),
}

/// All schedules log in with the same passwords: these are derived once.
fn keys() -> &'static KeyCache {
    static KEYS: OnceLock<KeyCache> = OnceLock::new();
    KEYS.get_or_init(KeyCache::default)
}

impl Link {
    /// A connection that begins. `balanced`: a load balancer is believed to stand between.
    pub fn open(network: &Network, login: Option<ServerLogin>, balanced: bool) -> Self {
        let mut hello = Vec::new();
        wire::request(&mut hello, GREETING, |body| {
            body.int32("hello", 1).text("$db", "admin");
            if balanced {
                body.bool("loadBalanced", true);
            }
        });
        let (phase, unsent) = (Phase::Greeting, hello.into());
        Self { end: network.connect(), phase, login, unsent, received: Vec::new() }
    }

    /// Sends a message, as far as the network takes it now.
    pub fn send(&mut self, network: &Network, message: &[u8]) {
        self.unsent.extend(message);
        self.flush(network);
    }

    /// Sends what could not be sent yet.
    pub fn flush(&mut self, network: &Network) {
        if !self.unsent.is_empty() && !network.is_reset(self.end) {
            let sent = network.send(self.end, self.unsent.make_contiguous());
            self.unsent.drain(..sent);
        }
    }

    /// Something has happened to its end.
    pub fn listen(&mut self, network: &Network) -> Vec<Event> {
        self.flush(network);
        self.received.extend(network.receive(self.end, usize::MAX));
        let mut events = Vec::new();
        while let Some(length) = whole(&self.received) {
            let message: Vec<u8> = self.received.drain(..length).collect();
            match self.take(network, message) {
                Ok(event) => events.extend(event),
                Err(why) => {
                    events.push(Event::Lost(why));
                    return events;
                }
            }
        }
        if network.is_over(self.end) {
            events.push(Event::Lost("the connection was closed".into()));
        }
        events
    }

    fn take(&mut self, network: &Network, message: Vec<u8>) -> Result<Option<Event>, String> {
        match &mut self.phase {
            Phase::Ready => Ok(Some(Event::Message(message))),
            Phase::Greeting => {
                let header = Header::read(&message).expect("it is whole").expect("a header that may be");
                let answer = wire::reply_document(&message, &header).expect("an answer that is well formed");
                if let Some((code, text)) = super::super::texts::error(answer) {
                    return Err(format!("{code} {text}"));
                }
                let Some(login) = self.login.clone() else {
                    self.phase = Phase::Ready;
                    return Ok(Some(Event::Ready));
                };
                let mut requester = Requester::new(login);
                let mut out = Vec::new();
                requester.take(keys(), &mut &[][..], &mut out).expect("it only greets");
                self.phase = Phase::Login(Box::new(requester));
                self.send(network, &out);
                Ok(None)
            }
            Phase::Login(requester) => {
                let (mut input, mut out, mut ready) = (&message[..], Vec::new(), false);
                while !input.is_empty() {
                    let verdict = requester.take(keys(), &mut input, &mut out).map_err(|fault| fault.message)?;
                    ready |= verdict == Verdict::Ready;
                }
                if ready {
                    self.phase = Phase::Ready;
                }
                self.send(network, &out);
                Ok(ready.then_some(Event::Ready))
            }
        }
    }
}

/// The length of the message that these bytes begin with, if all of it is there.
fn whole(bytes: &[u8]) -> Option<usize> {
    let length = Header::read(bytes)?.expect("a header that may be").length;
    (length <= bytes.len()).then_some(length)
}
