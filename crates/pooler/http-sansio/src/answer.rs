//! Answers, and the description of a protocol that they depend on.

use std::fmt::Write;

use http::StatusCode;

use crate::{Denied, access::AnswerOptions};

/// The description of a protocol over HTTP.
#[derive(Debug)]
pub struct Service {
    /// Header fields of requests that the protocol reads: names in lower case. HTTP's own fields must not be among
    /// them.
    pub fields: &'static [&'static str],
    /// The query parameter that may contain the token.
    pub query_token: &'static str,
    /// Header fields of answers that pages may read (`Access-Control-Expose-Headers`): names in lower case, separated
    /// by commas.
    pub exposed: &'static str,
    /// The media type of the bodies that `refusal` writes.
    pub refusal_type: &'static str,
    /// Appends the body of an answer that refuses a request for this reason.
    pub refusal: fn(&mut Vec<u8>, &str),
}

/// Allowed methods.
const METHODS: &str = "GET, HEAD, POST, PUT";

/// An answer in any version of HTTP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The status code (RFC 9110, section 15).
    pub status: u16,
    /// `Content-Type`.
    pub content_type: Option<&'static str>,
    /// Further header fields, with names in lower case. Content-Length, Connection and the fields of CORS are added.
    pub fields: Vec<(&'static str, String)>,
    /// `None` for a status that allows no body.
    pub body: Option<Vec<u8>>,
}

impl Answer {
    /// An answer with a body and no further fields.
    pub fn new(status: u16, content_type: &'static str, body: Vec<u8>) -> Self {
        Self { status, content_type: Some(content_type), fields: Vec::new(), body: Some(body) }
    }

    pub(crate) fn denied(service: &Service, denied: &Denied) -> Self {
        let mut body = Vec::new();
        (service.refusal)(&mut body, &denied.error);
        let mut answer = Self::new(denied.status, service.refusal_type, body);
        if let Some(seconds) = denied.retry_after {
            answer.fields.push(("retry-after", seconds.to_string()));
        }
        match denied.status {
            401 => answer.fields.push(("www-authenticate", "Bearer".to_owned())),
            405 => answer.fields.push(("allow", METHODS.to_owned())),
            _ => {}
        }
        answer
    }

    /// The answer to a preflight request (CORS).
    pub(crate) fn permission(options: &AnswerOptions) -> Self {
        let mut answer = Self { status: 204, content_type: None, fields: Vec::new(), body: None };
        if options.origin.is_some() {
            answer.fields.push(("access-control-allow-methods", METHODS.to_owned()));
            answer.fields.push(("access-control-allow-headers", "authorization, *".to_owned()));
            answer.fields.push(("access-control-max-age", "86400".to_owned()));
        }
        answer
    }

    /// The head of a stream of server-sent events.
    pub(crate) fn events() -> Self {
        let fields = vec![("cache-control", "no-store".to_owned())];
        Self { status: 200, content_type: Some("text/event-stream"), fields, body: None }
    }

    /// All fields except those that only one version of HTTP has.
    pub(crate) fn all_fields<'a>(
        &'a self,
        service: &'a Service,
        options: &'a AnswerOptions,
    ) -> impl Iterator<Item = (&'static str, &'a str)> {
        let content_type = self.content_type.map(|value| ("content-type", value));
        let origin = options.origin.as_deref().into_iter().flat_map(|origin| {
            let varies = (origin != "*").then_some(("vary", "origin"));
            [("access-control-allow-origin", origin), ("access-control-expose-headers", service.exposed)]
                .into_iter()
                .chain(varies)
        });
        let fields = self.fields.iter().map(|(name, value)| (*name, &**value));
        content_type.into_iter().chain(origin).chain(fields)
    }

    /// The head and the body in HTTP/1.1.
    pub(crate) fn http1(self, service: &Service, options: &AnswerOptions) -> (Vec<u8>, Vec<u8>) {
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        for (name, value) in self.all_fields(service, options) {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if let Some(body) = &self.body {
            let _ = write!(head, "content-length: {}\r\n", body.len());
        }
        head.push_str(if options.keep_alive { "\r\n" } else { "connection: close\r\n\r\n" });
        (head.into_bytes(), self.body.filter(|_| !options.head_only).unwrap_or_default())
    }
}

/// The reason phrase of a status.
fn reason(status: u16) -> &'static str {
    match status {
        // The name in RFC 9110.
        413 => "Content Too Large",
        _ => StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("Error"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A service for tests. Its refusals are the reasons.
    pub(crate) const SERVICE: Service = Service {
        fields: &["x-form"],
        query_token: "token",
        exposed: "x-state",
        refusal_type: "text/plain",
        refusal: |to, why| to.extend_from_slice(why.as_bytes()),
    };

    fn text(answer: Answer, options: &AnswerOptions) -> String {
        let (head, body) = answer.http1(&SERVICE, options);
        String::from_utf8([head, body].concat()).expect("text")
    }

    #[test]
    fn an_answer_says_how_long_it_is_and_what_becomes_of_the_connection() {
        let options = AnswerOptions { keep_alive: true, ..AnswerOptions::default() };
        let mut answer = Answer::new(200, "application/json", b"{}".to_vec());
        answer.fields.push(("x-state", "7".to_owned()));
        let expected = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-state: 7\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(text(answer, &options), expected);
    }

    #[test]
    fn the_head_alone_has_no_body() {
        let options = AnswerOptions { head_only: true, ..AnswerOptions::default() };
        let text = text(Answer::denied(&SERVICE, &Denied::new(401, "no")), &options);
        assert!(text.ends_with("content-length: 2\r\nconnection: close\r\n\r\n"), "{text}");
        assert!(text.contains("www-authenticate: Bearer\r\n"));
    }

    #[test]
    fn a_browser_is_told_whose_pages_may_read_an_answer() {
        let told = |origin: Option<&str>| {
            let options = AnswerOptions { origin: origin.map(str::to_owned), ..AnswerOptions::default() };
            text(Answer::new(200, "text/plain", Vec::new()), &options)
        };
        assert!(!told(None).contains("access-control"));
        assert!(
            told(Some("*")).contains("allow-origin: *\r\naccess-control-expose-headers: x-state\r\ncontent-length")
        );
        assert!(told(Some("https://a")).contains("allow-origin: https://a\r\n"));
        assert!(told(Some("https://a")).contains("\r\nvary: origin\r\n"));
    }
}
