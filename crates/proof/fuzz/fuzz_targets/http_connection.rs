//! A client sends any bytes, in any pieces, on an HTTP connection, while its requests are answered, opened for events
//! or left waiting. Nothing may panic, no more may be consumed than was sent, and a closed connection yields no
//! request. The first byte of the input selects the settings; 0xFF ends a piece.
#![no_main]

use std::sync::Arc;

use http_sansio::{Answer, Connection, Denied, Door, End, EventWriter, InputEvent, Rules, Service, Stream};
use libfuzzer_sys::fuzz_target;

static SERVICE: Service = Service {
    fields: &["x-form"],
    query_token: "token",
    exposed: "x-state",
    refusal_type: "text/plain",
    refusal: |to, why| to.extend_from_slice(why.as_bytes()),
};

/// Requests that wait for their answers at a time.
const MAX_WAITING: usize = 8;

struct TestDoor {
    token_in_query: bool,
}

impl Door for TestDoor {
    type Caller = u8;

    fn rules(&self) -> Option<Arc<Rules>> {
        let origins = vec!["*".to_owned()];
        Some(Arc::new(Rules { origins, token_in_query: self.token_in_query, max_request: 4096 }))
    }

    fn recognise(&mut self, token: &[u8]) -> Option<u8> {
        token.first().copied().filter(|first| matches!(first, b's' | b't'))
    }

    fn enter(&mut self, caller: &u8) -> Result<(), Denied> {
        if *caller == b's' { Err(Denied::new(503, "shut")) } else { Ok(()) }
    }
}

struct Exchange {
    connection: Connection<u8>,
    door: TestDoor,
    held: Vec<u8>,
    waiting: Vec<Stream>,
    open: Vec<Stream>,
    ended: bool,
    /// The client takes little at a time.
    slow: bool,
}

impl Exchange {
    fn read(&mut self) {
        let mut at = 0;
        loop {
            let rest = &self.held[at..];
            let (used, event) = self.connection.read(rest, self.waiting.len(), &mut self.door);
            assert!(used <= rest.len(), "more is consumed than there is");
            at += used;
            match event {
                None => break,
                Some(InputEvent::Uploading) => assert!(!self.ended, "a body on a closed connection"),
                Some(InputEvent::Request(request)) => {
                    assert!(!self.ended, "a request on a closed connection");
                    assert!(request.body.len() <= 4096 && !self.waiting.contains(&request.stream));
                    self.waiting.push(request.stream);
                }
            }
        }
        self.held.drain(..at);
        self.flush();
    }

    fn flush(&mut self) {
        let most = if self.slow { 1000 } else { usize::MAX };
        self.connection.flush(&mut Vec::new(), most);
        self.connection.count(self.waiting.len());
        for ended in self.connection.ended() {
            let at = self.open.iter().position(|open| *open == ended).expect("a stream ends that was open, once");
            self.open.swap_remove(at);
        }
        if let Some(End::Done | End::Fault(_)) = self.connection.end() {
            assert!(!std::mem::replace(&mut self.ended, true), "a connection ends twice");
        }
    }

    /// Answers, denies, opens or leaves a waiting request, as `how` selects.
    fn act(&mut self, how: usize) {
        if self.waiting.is_empty() || (how % 4 == 3 && self.waiting.len() < MAX_WAITING) {
            return;
        }
        let stream = self.waiting.remove(how % self.waiting.len());
        match how % 4 {
            0 => self.connection.answer(stream, Answer::new(200, "text/plain", vec![b'x'; how * 1000])),
            1 => self.connection.deny(stream, &Denied::crowded()),
            _ if self.connection.open_events(stream) => {
                self.open.push(stream);
                let mut events = Vec::new();
                let mut event = EventWriter::new(&mut events);
                event.push(b"a\nb");
                event.end();
                self.connection.send_events(self.open.iter().copied(), &events);
            }
            _ => {}
        }
        self.flush();
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, data)) = data.split_first() else { return };
    let mut connection = Connection::new(&SERVICE, Arc::default());
    if how & 2 == 2 {
        connection.refuse(Denied::new(429, "too many"));
    }
    let door = TestDoor { token_in_query: how & 1 == 1 };
    let mut exchange = Exchange {
        connection,
        door,
        held: Vec::new(),
        waiting: Vec::new(),
        open: Vec::new(),
        ended: false,
        slow: how & 8 == 8,
    };
    for (turn, piece) in data.split(|byte| *byte == 0xFF).enumerate() {
        exchange.held.extend_from_slice(piece);
        exchange.read();
        exchange.act(turn + usize::from(how >> 4));
        exchange.read();
    }
    if how & 4 == 4 {
        exchange.connection.close(&Denied::new(503, "later"));
    } else {
        exchange.connection.fail(&Denied::new(400, "no"));
    }
    exchange.flush();
    while exchange.connection.has_more() {
        exchange.flush();
    }
    assert!(exchange.ended, "the connection does not end");
});
