//! Answers, and what a protocol says of them once for all.

use std::fmt::Write;

use http::StatusCode;

use crate::{Denied, access::AnswerOptions};

/// What a protocol says of itself.
#[derive(Debug)]
pub struct Service {
    /// Header fields of requests that it wants to see: names in lower case, none of those that HTTP itself looks at.
    pub fields: &'static [&'static str],
    /// The parameter of the query in which a token may stand.
    pub query_token: &'static str,
    /// Header fields of its answers that pages in browsers may read (`Access-Control-Expose-Headers`): names in lower
    /// case with commas between them.
    pub exposed: &'static str,
    /// The media type of what `refusal` writes.
    pub refusal_type: &'static str,
    /// Appends the body of the answer to a request that is not carried out, which says why.
    pub refusal: fn(&mut Vec<u8>, &str),
}

/// The methods that requests may have.
const METHODS: &str = "GET, HEAD, POST, PUT";

/// An answer, whatever the version of HTTP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Its status (RFC 9110, section 15).
    pub status: u16,
    /// The media type of its body.
    pub content: Option<&'static str>,
    /// Its other header fields but Content-Length, Connection and those of CORS, which are added. Names in lower case.
    pub fields: Vec<(&'static str, String)>,
    /// `None` where there can be none.
    pub body: Option<Vec<u8>>,
}

impl Answer {
    /// With a body, and no other fields.
    pub fn new(status: u16, content: &'static str, body: Vec<u8>) -> Self {
        Self { status, content: Some(content), fields: Vec::new(), body: Some(body) }
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

    /// What a browser is told before it lets a page ask.
    pub(crate) fn permission(options: &AnswerOptions) -> Self {
        let mut answer = Self { status: 204, content: None, fields: Vec::new(), body: None };
        if options.origin.is_some() {
            answer.fields.push(("access-control-allow-methods", METHODS.to_owned()));
            answer.fields.push(("access-control-allow-headers", "authorization, *".to_owned()));
            answer.fields.push(("access-control-max-age", "86400".to_owned()));
        }
        answer
    }

    /// The beginning of an answer that goes on until the connection or the stream ends: server-sent events.
    pub(crate) fn events() -> Self {
        let fields = vec![("cache-control", "no-store".to_owned())];
        Self { status: 200, content: Some("text/event-stream"), fields, body: None }
    }

    /// All its fields but those that only one version of HTTP has.
    pub(crate) fn all_fields<'a>(
        &'a self,
        service: &'a Service,
        options: &'a AnswerOptions,
    ) -> impl Iterator<Item = (&'static str, &'a str)> {
        let content = self.content.map(|content| ("content-type", content));
        let origin = options.origin.as_deref().into_iter().flat_map(|origin| {
            let varies = (origin != "*").then_some(("vary", "origin"));
            [("access-control-allow-origin", origin), ("access-control-expose-headers", service.exposed)]
                .into_iter()
                .chain(varies)
        });
        let fields = self.fields.iter().map(|(name, value)| (*name, &**value));
        content.into_iter().chain(origin).chain(fields)
    }

    /// Its head and its body as HTTP/1.1.
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

/// The words that HTTP/1.1 has beside a status.
fn reason(status: u16) -> &'static str {
    match status {
        // As RFC 9110 has it.
        413 => "Content Too Large",
        _ => StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("Error"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A protocol whose refusals are their reasons.
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
