use std::sync::Arc;

use super::*;
use crate::{EventWriter, Rules, answer::tests::SERVICE};

/// Admits the token `t`, and answers 503 to `shut`.
struct Doors(Rules);

impl Door for Doors {
    type Caller = u8;

    fn rules(&self) -> Option<Arc<Rules>> {
        Some(Arc::new(self.0.clone()))
    }

    fn recognise(&mut self, token: &[u8]) -> Option<u8> {
        matches!(token, b"t" | b"shut").then(|| token[0])
    }

    fn enter(&mut self, caller: &u8) -> Result<(), Denied> {
        if *caller == b's' { Err(Denied::new(503, "it is shut")) } else { Ok(()) }
    }
}

/// A connection, the input that is not consumed, and a log of events.
struct Peer {
    connection: Connection<u8>,
    doors: Doors,
    held: Vec<u8>,
    asked: Vec<Stream>,
    log: Vec<String>,
}

impl Peer {
    fn new() -> Self {
        Self::with_budget(&Arc::default())
    }

    fn with_budget(budget: &Arc<MemoryBudget>) -> Self {
        let rules = Rules { origins: vec!["https://a".to_owned()], token_in_query: false, max_request: 1000 };
        Self {
            connection: Connection::new(&SERVICE, Arc::clone(budget)),
            doors: Doors(rules),
            held: Vec::new(),
            asked: Vec::new(),
            log: Vec::new(),
        }
    }

    fn hear(&mut self, bytes: impl AsRef<[u8]>) {
        self.held.extend_from_slice(bytes.as_ref());
        self.read();
    }

    fn read(&mut self) {
        let mut at = 0;
        loop {
            let (used, event) = self.connection.read(&self.held[at..], 0, &mut self.doors);
            at += used;
            match event {
                None => break,
                Some(InputEvent::Uploading) => self.log.push("uploading".to_owned()),
                Some(InputEvent::Request(request)) => {
                    let path: Vec<_> = request.target.path.iter().map(|part| String::from_utf8_lossy(part)).collect();
                    let body = String::from_utf8_lossy(&request.body);
                    let fields: Vec<_> =
                        request.fields.iter().map(|(name, value)| (*name, String::from_utf8_lossy(value))).collect();
                    self.log.push(format!("{:?} {} {body:?} {fields:?}", request.method, path.join(" ")));
                    self.asked.push(request.stream);
                }
            }
        }
        self.held.drain(..at);
    }

    /// Answers the first unanswered request.
    fn answer(&mut self, body: &str) {
        let answer = Answer::new(200, "text/plain", body.into());
        self.connection.answer(self.asked.remove(0), answer);
    }

    /// What the client is sent.
    fn told(&mut self) -> String {
        self.told_of(usize::MAX)
    }

    /// The same with a limit.
    fn told_of(&mut self, most: usize) -> String {
        let mut to = Vec::new();
        self.connection.flush(&mut to, most);
        String::from_utf8_lossy(&to).into_owned()
    }

    fn log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }
}

const HEAD: &str = "Host: x\r\nAuthorization: Bearer t\r\n";

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\n{HEAD}\r\n")
}

#[test]
fn requests_of_http1_are_answered_one_after_another() {
    let mut peer = Peer::new();
    peer.hear(get("/a/b") + &get("/c"));
    assert_eq!(peer.log(), ["Get a b \"\" []"]);
    assert_eq!((peer.told().as_str(), peer.held.len()), ("", get("/c").len()), "one request at a time");
    peer.answer("one");
    assert!(peer.told().ends_with("content-length: 3\r\n\r\none"));
    peer.read();
    assert_eq!(peer.log(), ["Get c \"\" []"]);
    let stream = peer.asked[0];
    peer.connection.deny(stream, &Denied::new(400, "no"));
    assert!(peer.told().ends_with("content-length: 2\r\n\r\nno"));
    // The request has been answered already.
    peer.connection.deny(stream, &Denied::new(400, "no"));
    assert_eq!((peer.told().as_str(), peer.connection.end()), ("", None));
}

#[test]
fn a_request_comes_in_pieces_of_any_size() {
    let text = format!("POST /a HTTP/1.1\r\n{HEAD}X-Form: f\r\nContent-Length: 5\r\n\r\nhelloGET");
    for size in 1..text.len() {
        let mut peer = Peer::new();
        text.as_bytes().chunks(size).for_each(|piece| peer.hear(piece));
        let log: Vec<_> = peer.log().into_iter().filter(|event| event != "uploading").collect();
        assert_eq!(log, ["Post a \"hello\" [(\"x-form\", \"f\")]"], "pieces of {size}");
        assert_eq!(peer.held, b"GET");
    }
}

#[test]
fn a_client_that_expects_100_continue_gets_it() {
    let mut peer = Peer::new();
    peer.hear(format!("POST / HTTP/1.1\r\n{HEAD}Content-Length: 1\r\nExpect: 100-continue\r\n\r\n"));
    assert_eq!((peer.told().as_str(), peer.log()), ("HTTP/1.1 100 Continue\r\n\r\n", vec!["uploading".to_owned()]));
    peer.hear("x");
    assert_eq!(peer.log(), ["Post  \"x\" []"]);
}

#[test]
fn the_answer_to_the_last_request_ends_the_connection() {
    let mut peer = Peer::new();
    peer.hear(format!("GET / HTTP/1.1\r\n{HEAD}Connection: close\r\n\r\n"));
    peer.answer("bye");
    assert!(peer.told().ends_with("connection: close\r\n\r\nbye"));
    assert_eq!((peer.connection.end(), peer.connection.end()), (Some(End::Done), None));
    peer.hear(get("/"));
    assert_eq!((peer.log().len(), peer.held.len()), (1, 0), "what comes behind it is dropped");
}

#[test]
fn a_caller_that_is_refused_is_told_and_the_connection_ends() {
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 401),
        ("GET /?token=t HTTP/1.1\r\n\r\n".to_owned(), 401),
        (get("/").replace("Bearer t", "Bearer wrong"), 401),
        (get("/").replace("Bearer t", "Bearer shut"), 503),
        (get("/").replace("GET", "DELETE"), 405),
        ("PING\r\n\r\n".to_owned(), 400),
        (format!("POST / HTTP/1.1\r\n{HEAD}Transfer-Encoding: chunked\r\n\r\nzz\r\n"), 400),
    ] {
        let mut peer = Peer::new();
        peer.hear(&request);
        let told = peer.told();
        assert!(told.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {told}");
        assert!(told.contains("connection: close"));
        assert!(matches!(peer.connection.end(), Some(End::Fault(_))), "{request}");
        assert!(peer.asked.is_empty());
    }
    let mut peer = Peer::new();
    peer.doors.0.token_in_query = true;
    peer.hear("GET /a?token=t HTTP/1.1\r\n\r\n");
    assert_eq!(peer.log(), ["Get a \"\" []"]);
}

#[test]
fn a_request_on_a_refused_connection_is_told_why() {
    let mut peer = Peer::new();
    peer.connection.refuse(Denied { retry_after: Some(7), ..Denied::new(429, "too many") });
    assert_eq!(peer.told(), "", "nothing was asked");
    peer.hear(get("/"));
    assert!(peer.told().contains("\r\nretry-after: 7\r\n"));
}

#[test]
fn the_body_of_a_request_that_is_too_large_is_dropped_before_the_connection_ends() {
    let mut peer = Peer::new();
    peer.hear(format!("POST / HTTP/1.1\r\n{HEAD}Content-Length: 1001\r\n\r\n"));
    assert!(peer.told().starts_with("HTTP/1.1 413 Content Too Large\r\n"));
    peer.hear([b'x'; 1000]);
    assert_eq!((peer.connection.end(), peer.held.len()), (None, 0));
    peer.hear("x");
    assert_eq!(peer.connection.end(), Some(End::Done));
}

#[test]
fn a_browser_may_ask_for_the_pages_that_the_rules_name() {
    for (origin, allowed) in [("https://a", true), ("https://b", false)] {
        let mut peer = Peer::new();
        peer.hear(format!("OPTIONS / HTTP/1.1\r\nOrigin: {origin}\r\n\r\n"));
        let told = peer.told();
        assert!(told.starts_with("HTTP/1.1 204 No Content\r\n") && !told.contains("content-length"), "{told}");
        assert_eq!(told.contains("access-control-allow-origin: https://a\r\n"), allowed);
        peer.hear(get("/a"));
        assert_eq!(peer.log(), ["Get a \"\" []"], "the connection goes on");
    }
}

#[test]
fn events_go_on_until_the_connection_ends() {
    let mut peer = Peer::new();
    peer.hear(get("/events"));
    let stream = peer.asked[0];
    let event = |data: &str| {
        let mut to = Vec::new();
        let mut event = EventWriter::new(&mut to);
        event.push(data.as_bytes());
        event.end();
        to
    };
    peer.connection.send_events([stream], &event("too early"));
    assert_eq!(peer.told(), "");
    assert!(peer.connection.open_events(stream) && !peer.connection.open_events(stream));
    peer.connection.send_events([stream], &event("a"));
    let told = peer.told();
    assert!(told.contains("content-type: text/event-stream\r\n") && told.contains("connection: close\r\n"), "{told}");
    assert!(told.ends_with("\r\n\r\ndata: a\n\n"));
    peer.hear(get("/"));
    assert_eq!(peer.log().len(), 1, "nothing more is asked here");
    peer.connection.end_events(stream);
    assert_eq!(peer.connection.end(), Some(End::Done));
}

#[test]
fn an_owner_may_end_the_connection() {
    let mut peer = Peer::new();
    peer.connection.close(&Denied::new(503, "later"));
    assert_eq!((peer.told().as_str(), peer.connection.end()), ("", Some(End::Done)), "nothing was asked");
    let mut peer = Peer::new();
    peer.hear(get("/"));
    peer.connection.close(&Denied::new(503, "later"));
    assert!(peer.told().ends_with("connection: close\r\n\r\nlater"));
    let mut peer = Peer::new();
    peer.connection.fail(&Denied::new(400, "this is no way to begin"));
    assert!(peer.told().ends_with("this is no way to begin"), "also without a request");
    assert!(matches!(peer.connection.end(), Some(End::Fault(_))));
}

/// A HEADERS frame with END_HEADERS and END_STREAM: a GET of `/PATH` (RFC 9113, section 6.2; RFC 7541).
fn get2(stream: u8, path: &str, token: &str) -> Vec<u8> {
    let authorization = format!("Bearer {token}");
    let block = [
        &[0x82, 0x87, 0x41, 1, b'x', 0x04, path.len() as u8],
        path.as_bytes(),
        &[0x0f, 0x08, authorization.len() as u8],
        authorization.as_bytes(),
    ]
    .concat();
    [&[0, 0, block.len() as u8, 1, 5, 0, 0, 0, stream], &*block].concat()
}

fn http2() -> Peer {
    http2_with_budget(&Arc::default())
}

fn http2_with_budget(budget: &Arc<MemoryBudget>) -> Peer {
    let mut peer = Peer::with_budget(budget);
    let (preface, settings) = (crate::http2::PREFACE, [0, 0, 0, 4, 0, 0, 0, 0, 0]);
    peer.hear(&preface[..10]);
    assert!(!peer.connection.has_streams());
    peer.hear([&preface[10..], &settings].concat());
    assert!(peer.connection.has_streams());
    peer.told();
    peer
}

#[test]
fn requests_of_http2_are_answered_in_any_order() {
    let mut peer = http2();
    peer.hear([get2(1, "/a", "t"), get2(3, "/b", "t")].concat());
    assert_eq!(peer.log(), ["Get a \"\" []", "Get b \"\" []"]);
    peer.asked.reverse();
    peer.answer("second");
    assert!(peer.told().ends_with("second"));
    peer.answer("first");
    assert!(peer.told().ends_with("first"));
    assert_eq!(peer.connection.end(), None);
}

#[test]
fn a_wrong_token_ends_a_connection_of_http2_once_what_was_asked_is_answered() {
    let mut peer = http2();
    peer.hear([get2(1, "/a", "t"), get2(3, "/b", "wrong"), get2(5, "/c", "t")].concat());
    assert_eq!(peer.log(), ["Get a \"\" []"]);
    let told = peer.told();
    assert!(told.contains("this token is not known") && told.contains("a wrong token came before"), "{told}");
    assert_eq!(peer.connection.end(), None);
    peer.answer("first");
    assert!(peer.told().contains("first"));
    assert_eq!(peer.connection.end(), Some(End::Done));
}

#[test]
fn what_is_not_read_of_events_is_bounded() {
    let mut peer = http2();
    peer.hear(get2(1, "/events", "t"));
    let stream = peer.asked[0];
    assert!(peer.connection.open_events(stream));
    for _ in 0..32 {
        peer.connection.send_events([stream], &vec![b'x'; 1 << 20]);
        peer.told();
    }
    assert!(peer.connection.is_behind() && peer.connection.ended().is_empty());
    peer.connection.send_events([stream], &vec![b'x'; 1 << 20]);
    assert_eq!((peer.connection.ended(), peer.connection.is_behind()), (vec![stream], false));
    assert_eq!(peer.connection.end(), None, "other requests go on");
}

#[test]
fn what_is_not_read_of_events_of_http1_waits_here_and_is_bounded_too() {
    let mut peer = Peer::new();
    peer.hear(get("/events"));
    let stream = peer.asked[0];
    assert!(peer.connection.open_events(stream));
    peer.told();
    for _ in 0..32 {
        peer.connection.send_events([stream], &vec![b'x'; 1 << 20]);
    }
    assert_eq!((peer.told_of(500).len(), peer.connection.has_more(), peer.connection.end()), (500, true, None));
    peer.connection.send_events([stream], &vec![b'x'; 1 << 20]);
    assert!(matches!(peer.connection.end(), Some(End::Fault(why)) if why.contains("does not read")));
    assert!(!peer.connection.has_more(), "nothing is kept of it");
}

#[test]
fn events_for_which_there_is_no_room_end_their_streams() {
    let budget = Arc::default();
    let mut subscribers: Vec<(Peer, Stream)> = (0..40)
        .map(|number| {
            let mut peer = if number % 2 == 0 { Peer::with_budget(&budget) } else { http2_with_budget(&budget) };
            peer.hear(if number % 2 == 0 { get("/events").into_bytes() } else { get2(1, "/events", "t") });
            let stream = peer.asked[0];
            assert!(peer.connection.open_events(stream));
            peer.told();
            (peer, stream)
        })
        .collect();
    for _ in 0..12 {
        for (peer, stream) in &mut subscribers {
            peer.connection.send_events([*stream], &vec![b'x'; 1 << 20]);
            peer.connection.count(0);
        }
    }
    let held: usize = subscribers.iter().map(|(peer, _)| peer.connection.holds()).sum();
    assert!(held <= 300 << 20, "{held} bytes are held for clients that do not read");
    assert!(held >= 100 << 20, "there is room for some");
}

#[test]
fn a_client_of_http1_that_does_not_read_is_asked_for_nothing_more() {
    let mut peer = Peer::new();
    peer.hear(get("/a") + &get("/b").replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
    assert_eq!(peer.log(), ["Get a \"\" []"]);
    peer.answer(&"x".repeat(1000));
    let mut told = peer.told_of(500);
    assert!(told.len() == 500 && peer.connection.has_more() && peer.connection.is_behind());
    peer.read();
    assert!(peer.log().is_empty() && !peer.held.is_empty(), "it has not read the answer before");
    told += &peer.told_of(10_000);
    assert!(told.ends_with(&"x".repeat(1000)) && !peer.connection.has_more());
    peer.read();
    assert_eq!(peer.log(), ["Get b \"\" []"]);
    peer.answer(&"y".repeat(1000));
    told = peer.told_of(500);
    assert_eq!(peer.connection.end(), None, "what has not been flushed would be lost");
    told += &peer.told();
    assert!(told.ends_with(&"y".repeat(1000)));
    assert_eq!(peer.connection.end(), Some(End::Done));
}

#[test]
fn answers_of_http2_go_on_when_the_client_has_taken_those_before() {
    let mut peer = http2();
    peer.hear([get2(1, "/a", "t"), get2(3, "/b", "t")].concat());
    peer.answer(&"x".repeat(10_000));
    peer.answer(&"y".repeat(10_000));
    let mut parts = Vec::new();
    while parts.is_empty() || peer.connection.has_more() {
        parts.push(peer.told_of(3000));
    }
    assert_eq!(parts.len(), 7, "each brings its 3000 bytes");
    let of = |told: &str| (told.matches('x').count(), told.matches('y').count());
    assert!(parts.iter().all(|part| part.len() < 3300));
    assert!(of(&parts[..3].concat()).1 >= 3000, "none waits for another");
    let (x, y) = of(&parts.concat());
    assert!(x >= 10_000 && y >= 10_000, "{x} {y}");
    assert!(!peer.connection.is_behind() && peer.connection.end().is_none());
}

/// A connection that holds all that it may.
fn hoarder(budget: &Arc<MemoryBudget>) -> Peer {
    let mut peer = Peer::with_budget(budget);
    assert!((0..400).rev().any(|held| peer.connection.try_hold(held << 20)), "there is room for nothing at least");
    peer
}

#[test]
fn bodies_get_the_memory_that_others_leave() {
    let budget = Arc::default();
    let hoarders: Vec<Peer> = (0..5).map(|_| hoarder(&budget)).collect();
    let large = 8 << 20;
    let post = |framing: &str| format!("POST /a HTTP/1.1\r\n{HEAD}{framing}\r\n\r\n");
    let chunked = format!("{}{large:x}\r\n", post("Transfer-Encoding: chunked"));
    let begins = || {
        let mut peer = Peer::with_budget(&budget);
        peer.doors.0.max_request = 10 << 20;
        peer
    };
    // With and without a known length.
    let mut peer = begins();
    peer.hear(post(&format!("Content-Length: {large}")));
    let told = peer.told();
    assert!(told.starts_with("HTTP/1.1 503 ") && told.contains("retry-after: 1\r\n"), "{told}");
    let mut peer = begins();
    peer.hear(&chunked);
    for _ in 0..7 {
        peer.hear(vec![b'x'; 1 << 20]);
    }
    assert!(peer.told().starts_with("HTTP/1.1 503 "));
    assert_eq!((peer.held.len(), peer.connection.end()), (0, None), "what comes of it is dropped");
    // A small body is always accepted.
    let mut peer = begins();
    peer.hear(post("Content-Length: 60000"));
    peer.hear(vec![b'x'; 60_000]);
    peer.answer("small");
    assert!(peer.told().ends_with("small"));
    drop(hoarders);
    for begin in [post(&format!("Content-Length: {large}")), chunked] {
        let mut peer = begins();
        peer.hear(&begin);
        peer.hear(vec![b'x'; large]);
        peer.hear("\r\n0\r\n\r\n");
        assert_eq!(peer.asked.len(), 1);
    }
}

#[test]
fn answers_that_are_not_read_leave_less_room_to_others() {
    let budget = Arc::default();
    let mut slow = Peer::with_budget(&budget);
    slow.hear(get("/a"));
    slow.answer(&"x".repeat(100 << 20));
    slow.told_of(1000);
    slow.connection.count(0);
    let mut next = http2_with_budget(&budget);
    assert!(!next.connection.try_hold(150 << 20));
    assert!(slow.told().len() > (100 << 20) - 1000);
    slow.connection.count(0);
    assert!(next.connection.try_hold(150 << 20));
}

#[test]
fn a_cancelled_request_gets_no_answer() {
    let mut peer = http2();
    peer.hear(get2(1, "/a", "t"));
    peer.hear([0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8]);
    assert!(!peer.connection.open_events(peer.asked[0]));
    peer.answer("too late");
    assert!(!peer.told().contains("too late"));
    assert_eq!(peer.connection.end(), None);
}

#[test]
fn the_methods_are_those_that_a_refusal_names() {
    let mut peer = Peer::new();
    for (method, shown) in [("GET", "Get"), ("HEAD", "Head"), ("POST", "Post"), ("PUT", "Post")] {
        peer.hear(get("/").replace("GET", method));
        assert!(peer.log()[0].starts_with(shown), "{method}");
        peer.answer("body");
        assert_eq!(peer.told().ends_with("body"), method != "HEAD");
    }
    peer.hear(get("/").replace("GET", "DELETE"));
    assert!(peer.told().contains("allow: GET, HEAD, POST, PUT\r\n"));
}
