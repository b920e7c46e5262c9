//! The head of a request (RFC 9112; RFC 9110 for the fields).

use crate::Denied;

/// Maximum number of header fields.
const MAX_FIELDS: usize = 64;

/// Maximum size of a head, in bytes.
pub(crate) const MAX_HEAD: usize = 32 * 1024;

/// The methods that are supported (RFC 9110, section 9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    Get,
    /// GET without the body of the answer.
    Head,
    /// POST or PUT: they are treated alike.
    Post,
    /// A preflight request (CORS). It is answered here, and never becomes a [`Request`](crate::Request).
    Options,
}

/// The framing of the body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Framing {
    /// `Content-Length`.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    /// The size of the head.
    pub length: usize,
    pub method: Method,
    /// Path and query, undecoded.
    pub target: String,
    pub framing: Framing,
    /// The connection stays open after the answer.
    pub keep_alive: bool,
    /// `Expect: 100-continue`.
    pub expects: bool,
    pub token: Option<Vec<u8>>,
    /// `Origin`.
    pub origin: Option<String>,
    /// Fields that the protocol reads.
    pub fields: Vec<(&'static str, Vec<u8>)>,
}

/// The first bytes of a TLS handshake: the record type and the major version.
const TLS_HANDSHAKE: &[u8] = &[22, 3];

/// Reads a head; `None` if it is incomplete. Fields with the names `wanted` are kept.
///
/// # Errors
///
/// It is malformed, or not supported: the connection is to be closed after the answer.
pub(crate) fn read(bytes: &[u8], wanted: &'static [&'static str]) -> Result<Option<Head>, Denied> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let too_large =
        || Denied::new(431, format!("the head of a request may have {MAX_HEAD} bytes and {MAX_FIELDS} fields"));
    let length = match request.parse(&bytes[..bytes.len().min(MAX_HEAD)]) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() >= MAX_HEAD => return Err(too_large()),
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(too_large()),
        Err(_) if bytes.starts_with(TLS_HANDSHAKE) => {
            let why = "this is a TLS handshake, and TLS is off here: see `tls` of the [[listener]]";
            return Err(Denied::new(400, why));
        }
        Err(error) => return Err(Denied::new(400, format!("this is no HTTP request: {error}"))),
    };
    // The httparse crate accepts a bare LF as a line end, but a proxy before us may not.
    if bytes[..length].split(|byte| *byte == b'\n').rev().skip(1).any(|line| !line.ends_with(b"\r")) {
        return Err(Denied::new(400, "this is no HTTP request: lines of a head end with CR LF"));
    }
    let mut head = Head::new(request.method.unwrap_or_default(), request.path.unwrap_or_default())?;
    (head.length, head.keep_alive) = (length, request.version == Some(1));
    head.read_fields(request.headers.iter().map(|field| (field.name, field.value)), wanted)?;
    if request.version == Some(0) && head.framing == Framing::Chunked {
        return Err(Denied::new(400, "HTTP/1.0 has no Transfer-Encoding"));
    }
    Ok(Some(head))
}

impl Head {
    /// The head of a persistent connection's request, without fields.
    ///
    /// # Errors
    ///
    /// The method is not supported.
    pub(crate) fn new(method: &str, target: &str) -> Result<Self, Denied> {
        Ok(Self {
            length: 0,
            method: match method {
                "GET" => Method::Get,
                "HEAD" => Method::Head,
                "POST" | "PUT" => Method::Post,
                "OPTIONS" => Method::Options,
                _ => return Err(Denied::new(405, "use GET, HEAD, POST or PUT")),
            },
            target: target.to_owned(),
            framing: Framing::Length(0),
            keep_alive: true,
            expects: false,
            token: None,
            origin: None,
            fields: Vec::new(),
        })
    }

    /// Reads the fields, and keeps those with the names `wanted`.
    ///
    /// # Errors
    ///
    /// They contradict each other, or require what is not supported.
    pub(crate) fn read_fields<'f>(
        &mut self,
        fields: impl Iterator<Item = (&'f str, &'f [u8])>,
        wanted: &'static [&'static str],
    ) -> Result<(), Denied> {
        let (mut length, mut authorized) = (None, false);
        for (name, value) in fields {
            let value = value.trim_ascii();
            let is = |known: &str| name.eq_ignore_ascii_case(known);
            if is("content-length") {
                let given = decimal(value).ok_or_else(|| Denied::new(400, "Content-Length is no number"))?;
                // A proxy before us may have used the other value.
                if length.replace(given).is_some_and(|earlier| earlier != given) {
                    return Err(Denied::new(400, "two values of Content-Length"));
                }
            } else if is("transfer-encoding") {
                if !value.eq_ignore_ascii_case(b"chunked") || self.framing == Framing::Chunked {
                    return Err(Denied::new(501, "of the transfer encodings only `chunked` is known"));
                }
                self.framing = Framing::Chunked;
            } else if is("authorization") {
                if authorized {
                    return Err(Denied::new(400, "two fields Authorization"));
                }
                authorized = true;
                self.token = bearer(value).map(<[u8]>::to_vec);
            } else if is("connection") {
                self.connection(value);
            } else if is("expect") {
                self.expects = value.eq_ignore_ascii_case(b"100-continue");
            } else if is("origin") {
                self.origin = std::str::from_utf8(value).ok().map(str::to_owned);
            } else if let Some(name) = wanted.iter().find(|wanted| is(wanted)) {
                self.fields.push((name, value.to_vec()));
            }
        }
        match (self.framing, length) {
            (Framing::Chunked, Some(_)) => return Err(Denied::new(400, "both Content-Length and Transfer-Encoding")),
            (_, Some(length)) => self.framing = Framing::Length(length),
            _ => {}
        }
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) {
        for word in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if word.eq_ignore_ascii_case(b"close") {
                self.keep_alive = false;
            } else if word.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            }
        }
    }
}

fn decimal(text: &[u8]) -> Option<u64> {
    // Rust's parser would accept a plus sign.
    text.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(text).ok()?.parse().ok())?
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Head {
        read(text.as_bytes(), &["x-form"]).unwrap_or_else(|denied| panic!("{denied:?}")).expect("it is whole")
    }

    fn status(text: &str) -> u16 {
        read(text.as_bytes(), &[]).expect_err(text).status
    }

    #[test]
    fn what_is_asked_is_read() {
        let text = "POST /pipeline HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer  abc \r\nContent-Length: 12\r\n\
                    X-Form:  a b \r\nX-Other: c\r\nOrigin: https://a\r\nExpect: 100-continue\r\n\r\n[";
        let read = head(text);
        assert_eq!((read.method, read.target.as_str(), read.length), (Method::Post, "/pipeline", text.len() - 1));
        assert_eq!((read.framing, read.keep_alive, read.expects), (Framing::Length(12), true, true));
        assert_eq!(read.fields, [("x-form", b"a b".to_vec())]);
        assert_eq!((read.token.as_deref(), read.origin.as_deref()), (Some(&b"abc"[..]), Some("https://a")));
    }

    #[test]
    fn connections_stay_open_as_the_versions_have_it() {
        for (text, kept) in [
            ("GET / HTTP/1.1\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nConnection: close\r\n\r\n", false),
            ("GET / HTTP/1.0\r\n\r\n", false),
            ("GET / HTTP/1.0\r\nConnection: foo, Keep-Alive\r\n\r\n", true),
        ] {
            assert_eq!(head(text).keep_alive, kept, "{text}");
        }
    }

    #[test]
    fn a_head_that_can_be_read_in_two_ways_is_refused() {
        for field in [
            "Content-Length: 1\r\nContent-Length: 2",
            "Content-Length: 1\r\nTransfer-Encoding: chunked",
            "Content-Length: +1",
            "Content-Length: 1,1",
            "Content-Length : 1",
            "Authorization: Bearer a\r\nAuthorization: Bearer b",
        ] {
            assert_eq!(status(&format!("POST / HTTP/1.1\r\n{field}\r\n\r\n")), 400, "{field}");
        }
        assert_eq!(status("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
        for text in [
            "GET / HTTP/1.1\n\r\n",
            "GET / HTTP/1.1\r\nA: b\n\r\n",
            "GET / HTTP/1.1\r\nA: b\r\n\n",
            "\nGET / HTTP/1.1\r\n\r\n",
        ] {
            assert_eq!(status(text), 400, "{text:?}");
        }
        assert_eq!(status("POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"), 501);
        assert_eq!(status("DELETE / HTTP/1.1\r\n\r\n"), 405);
        assert_eq!(status("PING\r\n"), 400);
    }

    #[test]
    fn a_head_has_an_end() {
        let long = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(MAX_HEAD));
        assert_eq!(status(&long), 431);
        assert_eq!(status(&format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(MAX_FIELDS + 1))), 431);
        for end in 0..20 {
            assert_eq!(read(&b"GET / HTTP/1.1\r\nA: b\r\n\r\n"[..end], &[]), Ok(None));
        }
    }
}
