//! A client says anything to a connection of HTTP, in any pieces, while its requests are answered, opened for events or
//! left waiting: nothing may panic, more be consumed than there is, or anything be asked on a connection that is over.
//! The first byte says what holds for it; 0xFF ends a piece.
#![no_main]

use std::sync::Arc;

use http_sansio::{Answer, Connection, Denied, Door, End, Event, EventWriter, Rules, Service, Stream};
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

struct Doors {
    token_in_query: bool,
}

impl Door for Doors {
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

struct World {
    connection: Connection<u8>,
    doors: Doors,
    held: Vec<u8>,
    waiting: Vec<Stream>,
    open: Vec<Stream>,
    over: bool,
    /// The client takes little at a time.
    slow: bool,
}

impl World {
    fn read(&mut self) {
        let mut at = 0;
        loop {
            let rest = &self.held[at..];
            let (used, event) = self.connection.read(rest, self.waiting.len(), &mut self.doors);
            assert!(used <= rest.len(), "more is consumed than there is");
            at += used;
            match event {
                None => break,
                Some(Event::Uploading) => assert!(!self.over, "a body on a connection that is over"),
                Some(Event::Request(request)) => {
                    assert!(!self.over, "a request on a connection that is over");
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
            assert!(!std::mem::replace(&mut self.over, true), "a connection ends twice");
        }
    }

    /// Does with a request that waits what its number says.
    fn act(&mut self, how: usize) {
        if self.waiting.is_empty() || (how % 4 == 3 && self.waiting.len() < MAX_WAITING) {
            return;
        }
        let stream = self.waiting.remove(how % self.waiting.len());
        match how % 4 {
            0 => self.connection.answer(stream, Answer::new(200, "text/plain", vec![b'x'; how * 1000])),
            1 => self.connection.deny(stream, &Denied::crowded()),
            _ if self.connection.open(stream) => {
                self.open.push(stream);
                let mut events = Vec::new();
                let mut event = EventWriter::new(&mut events);
                event.push(b"a\nb");
                event.end();
                self.connection.say(self.open.iter().copied(), &events);
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
    let doors = Doors { token_in_query: how & 1 == 1 };
    let mut world = World {
        connection,
        doors,
        held: Vec::new(),
        waiting: Vec::new(),
        open: Vec::new(),
        over: false,
        slow: how & 8 == 8,
    };
    for (turn, piece) in data.split(|byte| *byte == 0xFF).enumerate() {
        world.held.extend_from_slice(piece);
        world.read();
        world.act(turn + usize::from(how >> 4));
        world.read();
    }
    if how & 4 == 4 {
        world.connection.close(&Denied::new(503, "later"));
    } else {
        world.connection.fail(&Denied::new(400, "no"));
    }
    world.flush();
    while world.connection.has_more() {
        world.flush();
    }
    assert!(world.over, "the connection goes on");
});
