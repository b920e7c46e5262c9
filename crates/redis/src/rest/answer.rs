//! HTTP answers.

use std::fmt::Write;

use super::{Denied, json};

/// What a request's head says of the answer.
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

/// An answer, whatever the version of HTTP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub status: u16,
    /// Names in lower case.
    pub fields: Vec<(&'static str, String)>,
    /// `None` where there can be none.
    pub body: Option<Vec<u8>>,
    pub manner: Manner,
}

impl Answer {
    fn new(manner: &Manner, status: u16, content: Option<&str>, body: Option<Vec<u8>>) -> Self {
        let mut fields: Vec<_> = content.iter().map(|content| ("content-type", (*content).to_owned())).collect();
        if let Some(origin) = &manner.origin {
            fields.push(("access-control-allow-origin", origin.clone()));
            fields.push(("access-control-expose-headers", "upstash-sync-token".to_owned()));
            if origin != "*" {
                fields.push(("vary", "origin".to_owned()));
            }
        }
        Self { status, fields, body, manner: manner.clone() }
    }

    /// What came of a request. `token` names the state that holds its writes.
    pub(crate) fn results(manner: &Manner, status: u16, content: Content, token: u64, body: Vec<u8>) -> Self {
        let content = match content {
            Content::Json => "application/json",
            Content::Bytes => "application/octet-stream",
        };
        let mut answer = Self::new(manner, status, Some(content), Some(body));
        answer.fields.push(("upstash-sync-token", token.to_string()));
        answer
    }

    /// A refusal.
    pub(crate) fn denied(manner: &Manner, denied: &Denied) -> Self {
        let mut body = Vec::new();
        json::error(&mut body, &denied.error);
        let mut answer = Self::new(manner, denied.status, Some("application/json"), Some(body));
        if let Some(seconds) = denied.retry_after {
            answer.fields.push(("retry-after", seconds.to_string()));
        }
        match denied.status {
            401 => answer.fields.push(("www-authenticate", "Bearer".to_owned())),
            405 => answer.fields.push(("allow", "GET, HEAD, POST, PUT".to_owned())),
            _ => {}
        }
        answer
    }

    /// What a browser is told before it lets a page ask.
    pub(crate) fn permission(manner: &Manner) -> Self {
        let mut answer = Self::new(manner, 204, None, None);
        if manner.origin.is_some() {
            answer.fields.push(("access-control-allow-methods", "GET, HEAD, POST, PUT".to_owned()));
            answer.fields.push(("access-control-allow-headers", "authorization, *".to_owned()));
            answer.fields.push(("access-control-max-age", "86400".to_owned()));
        }
        answer
    }

    /// The beginning of an answer that goes on until the connection ends: server-sent events.
    pub(crate) fn events(manner: &Manner) -> Self {
        let mut answer =
            Self::new(&Manner { keep_alive: false, ..manner.clone() }, 200, Some("text/event-stream"), None);
        answer.fields.push(("cache-control", "no-store".to_owned()));
        answer
    }

    /// Appends it as HTTP/1.1.
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        for (name, value) in &self.fields {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if let Some(body) = &self.body {
            let _ = write!(head, "content-length: {}\r\n", body.len());
        }
        head.push_str(if self.manner.keep_alive { "\r\n" } else { "connection: close\r\n\r\n" });
        to.extend_from_slice(head.as_bytes());
        if let (Some(body), false) = (&self.body, self.manner.head_only) {
            to.extend_from_slice(body);
        }
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        400 => "Bad Request",
        401 => "Unauthorized",
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

    fn text(answer: &Answer) -> String {
        let mut to = Vec::new();
        answer.write(&mut to);
        String::from_utf8(to).expect("text")
    }

    #[test]
    fn an_answer_says_how_long_it_is_and_what_becomes_of_the_connection() {
        let manner = Manner { keep_alive: true, ..Manner::default() };
        let answer = Answer::results(&manner, 200, Content::Json, 7, b"{}".to_vec());
        let expected =
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nupstash-sync-token: 7\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(text(&answer), expected);
    }

    #[test]
    fn the_head_alone_has_no_body() {
        let manner = Manner { head_only: true, ..Manner::default() };
        let text = text(&Answer::denied(&manner, &Denied::new(401, "no")));
        assert!(text.ends_with("content-length: 14\r\nconnection: close\r\n\r\n"), "{text}");
        assert!(text.contains("www-authenticate: Bearer\r\n"));
    }
}
