//! A connection of an application: a hello, a login if one is needed, then one command after another.

use std::{collections::VecDeque, sync::OnceLock};

use clients::mongodb::{Requester, Verdict};
use mongodb_session::{
    KeyCache, ServerLogin,
    wire::{self, Header},
};

use crate::network::{EndId, Network};

/// The id of the hello.
const GREETING: i32 = 5;

pub struct DriverConnection {
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

pub enum Event {
    Ready,
    Message(Vec<u8>),
    /// The connection has ended, for this reason.
    Lost(String),
}

/// All schedules use the same password, whose keys are derived once.
fn keys() -> &'static KeyCache {
    static KEYS: OnceLock<KeyCache> = OnceLock::new();
    KEYS.get_or_init(KeyCache::default)
}

impl DriverConnection {
    /// Begins a connection. `balanced`: the hello has `loadBalanced`.
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

    pub fn send(&mut self, network: &Network, message: &[u8]) {
        self.unsent.extend(message);
        self.flush(network);
    }

    /// Sends as much as the network takes now.
    pub fn flush(&mut self, network: &Network) {
        if !self.unsent.is_empty() && !network.is_reset(self.end) {
            let sent = network.send(self.end, self.unsent.make_contiguous());
            self.unsent.drain(..sent);
        }
    }

    pub fn on_event(&mut self, network: &Network) -> Vec<Event> {
        self.flush(network);
        self.received.extend(network.receive(self.end, usize::MAX));
        let mut events = Vec::new();
        while let Some(length) = whole(&self.received) {
            let message: Vec<u8> = self.received.drain(..length).collect();
            match self.on_message(network, message) {
                Ok(event) => events.extend(event),
                Err(why) => {
                    events.push(Event::Lost(why));
                    return events;
                }
            }
        }
        if network.has_input_ended(self.end) {
            events.push(Event::Lost("the connection was closed".into()));
        }
        events
    }

    fn on_message(&mut self, network: &Network, message: Vec<u8>) -> Result<Option<Event>, String> {
        match &mut self.phase {
            Phase::Ready => Ok(Some(Event::Message(message))),
            Phase::Greeting => {
                let header = Header::read(&message).expect("it is whole").expect("a header that may be");
                let answer = wire::reply_document(&message, &header).expect("an answer that is well formed");
                if let Some((code, text)) = super::super::answer_text::error(answer) {
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

/// The length of the first message, if it is complete.
fn whole(bytes: &[u8]) -> Option<usize> {
    let length = Header::read(bytes)?.expect("a header that may be").length;
    (length <= bytes.len()).then_some(length)
}
