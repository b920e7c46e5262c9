//! HTTP answers.

use std::fmt::Write;

use super::{Denied, json};

/// What an answer says beside its body.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Manner {
    /// The connection stays open.
    pub keep_alive: bool,
    /// The head alone was asked for.
    pub head_only: bool,
    /// What is said to a browser: the origin that may read this.
    pub origin: Option<String>,
}

/// What the body is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    Json,
    Bytes,
}

/// Appends an answer. `token` names the state that holds this request's writes.
pub(crate) fn write(to: &mut Vec<u8>, manner: &Manner, status: u16, content: Content, token: Option<u64>, body: &[u8]) {
    let content = match content {
        Content::Json => "application/json",
        Content::Bytes => "application/octet-stream",
    };
    let mut head = format!("HTTP/1.1 {status} {}\r\nContent-Type: {content}\r\n", reason(status));
    if let Some(token) = token {
        let _ = write!(head, "Upstash-Sync-Token: {token}\r\n");
    }
    end(&mut head, manner, Some(body.len()));
    to.extend_from_slice(head.as_bytes());
    if !manner.head_only {
        to.extend_from_slice(body);
    }
}

/// Appends a refusal.
pub(crate) fn deny(to: &mut Vec<u8>, manner: &Manner, denied: &Denied) {
    let mut body = Vec::new();
    json::error(&mut body, &denied.error);
    let mut head =
        format!("HTTP/1.1 {} {}\r\nContent-Type: application/json\r\n", denied.status, reason(denied.status));
    if let Some(seconds) = denied.retry_after {
        let _ = write!(head, "Retry-After: {seconds}\r\n");
    }
    match denied.status {
        401 => head.push_str("WWW-Authenticate: Bearer\r\n"),
        405 => head.push_str("Allow: GET, HEAD, POST, PUT\r\n"),
        _ => {}
    }
    end(&mut head, manner, Some(body.len()));
    to.extend_from_slice(head.as_bytes());
    if !manner.head_only {
        to.extend_from_slice(&body);
    }
}

/// Appends what a browser is told before it lets a page ask.
pub(crate) fn permit(to: &mut Vec<u8>, manner: &Manner) {
    let mut head = "HTTP/1.1 204 No Content\r\n".to_owned();
    if manner.origin.is_some() {
        head.push_str(
            "Access-Control-Allow-Methods: GET, HEAD, POST, PUT\r\n\
             Access-Control-Allow-Headers: Authorization, *\r\n\
             Access-Control-Max-Age: 86400\r\n",
        );
    }
    end(&mut head, manner, None);
    to.extend_from_slice(head.as_bytes());
}

/// Appends the head of an answer that goes on until the connection ends: server-sent events.
pub(crate) fn stream(to: &mut Vec<u8>, manner: &Manner) {
    let mut head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n".to_owned();
    end(&mut head, &Manner { keep_alive: false, ..manner.clone() }, None);
    to.extend_from_slice(head.as_bytes());
}

fn end(head: &mut String, manner: &Manner, length: Option<usize>) {
    if let Some(length) = length {
        let _ = write!(head, "Content-Length: {length}\r\n");
    }
    if let Some(origin) = &manner.origin {
        let _ = write!(
            head,
            "Access-Control-Allow-Origin: {origin}\r\nAccess-Control-Expose-Headers: Upstash-Sync-Token\r\n"
        );
        if origin != "*" {
            head.push_str("Vary: Origin\r\n");
        }
    }
    if !manner.keep_alive {
        head.push_str("Connection: close\r\n");
    }
    head.push_str("\r\n");
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_how_long_it_is_and_what_becomes_of_the_connection() {
        let mut to = Vec::new();
        write(&mut to, &Manner { keep_alive: true, ..Manner::default() }, 200, Content::Json, Some(7), b"{}");
        let expected =
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nUpstash-Sync-Token: 7\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(String::from_utf8(to).expect("text"), expected);
    }

    #[test]
    fn the_head_alone_has_no_body() {
        let mut to = Vec::new();
        deny(&mut to, &Manner { head_only: true, ..Manner::default() }, &Denied::new(401, "no"));
        let text = String::from_utf8(to).expect("text");
        assert!(text.ends_with("Content-Length: 14\r\nConnection: close\r\n\r\n"), "{text}");
        assert!(text.contains("WWW-Authenticate: Bearer\r\n"));
    }
}
