//! A running Poolhouse at its admin address: who may ask there, one HTTP request, and its answer.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::Value;

/// Environment variable with the admin token.
const TOKEN_VARIABLE: &str = "POOLHOUSE_ADMIN_TOKEN";

/// Bounds connecting, and an answer beyond the time that the order itself takes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of an answer, and values in it: what all pools take that a Poolhouse can have. The longest lists of clients
/// and servers take less. So no answer takes more memory than that of such a Poolhouse.
const MAX_ANSWER: usize = serve::MAX_POOLS * serve::POOL_BYTES;
const MAX_VALUES: usize = serve::MAX_POOLS * serve::POOL_VALUES;

/// What is said where a connection is refused.
const REFUSED: &str = "nothing listens there. Is Poolhouse running, and is this what [admin] listen says";
/// The admin address, unless another is configured.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:9930";

/// The address of a Poolhouse, and the token.
#[derive(Args)]
pub struct RemoteArgs {
    /// The admin address, as http://address:port
    #[arg(value_name = "ADMIN_URL")]
    pub url: String,

    /// Read the admin token from a file
    #[arg(long, value_name = "FILE", global = true)]
    pub token_file: Option<PathBuf>,
}

/// Characters of an answer that is no JSON.
const MAX_SHOWN: usize = 300;

/// A running Poolhouse.
pub struct Remote {
    base: String,
    /// The address without a login, for people.
    display_url: String,
    token: Option<String>,
}

/// A request.
pub struct Request {
    pub method: Method,
    pub path: String,
    pub parameters: Vec<(&'static str, String)>,
    /// Bounds the time of the order itself.
    pub order_timeout: Duration,
}

/// Whether a request only reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
}

/// An answer: JSON of a bounded number of values.
pub struct Answer {
    pub status: u16,
    text: String,
}

/// The answer to a request that failed.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Problem {
    error: Value,
    problems: Value,
}

impl RemoteArgs {
    /// Sends no request yet.
    ///
    /// # Errors
    /// The text is no URL, or the token cannot be read: bad usage.
    pub fn remote(&self) -> anyhow::Result<Remote> {
        let token = self.token()?.or_else(|| std::env::var(TOKEN_VARIABLE).ok());
        self.remote_with(token)
    }

    /// The same for an address that may be another server's, which must not get the token of the environment.
    ///
    /// # Errors
    /// The text is no URL, or the token cannot be read: bad usage.
    pub fn remote_without_own_token(&self) -> anyhow::Result<Remote> {
        self.remote_with(self.token()?)
    }

    fn token(&self) -> anyhow::Result<Option<String>> {
        let read =
            |path: &PathBuf| settings::read_small(path).with_context(|| format!("cannot read {}", path.display()));
        self.token_file.as_ref().map(read).transpose()
    }

    fn remote_with(&self, token: Option<String>) -> anyhow::Result<Remote> {
        let token = token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
        Remote::new(&self.url, token).context("the admin URL must begin with http://, such as http://127.0.0.1:9930")
    }
}

impl Remote {
    /// `None` if this is no URL. An address alone is accepted, too.
    fn new(url: &str, token: Option<String>) -> Option<Self> {
        let base = match url.split_once("://") {
            Some(("http", _)) => url.to_owned(),
            Some(_) => return None,
            None => format!("http://{url}"),
        };
        let base = base.trim_end_matches('/').to_owned();
        (base.len() > "http://".len()).then(|| Self { display_url: without_login(&base), base, token })
    }

    /// Where it is, without `http://`.
    pub fn address(&self) -> &str {
        self.display_url.trim_start_matches("http://")
    }

    /// What the user can do if the token is missing or wrong.
    pub fn token_hint(&self) -> String {
        let said = match self.token {
            Some(_) => "this token is not the one of [admin] there",
            None => "orders need the token of [admin] there",
        };
        format!("{said}: give it with --token-file FILE, or in the environment as {TOKEN_VARIABLE}")
    }

    /// Gets what the server answers at once.
    ///
    /// # Errors
    /// It cannot be reached, or refuses, or the answer is none of such a question.
    pub fn get<T: DeserializeOwned>(&self, path: &str, parameters: &[(&'static str, &str)]) -> anyhow::Result<T> {
        let parameters = parameters.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let request = Request { method: Method::Get, path: path.to_owned(), parameters, order_timeout: Duration::ZERO };
        let answer = self.send(&request)?;
        if let Some(error) = answer.error() {
            bail!("{}: {error}", self.display_url);
        }
        serde_json::from_str(&answer.text)
            .with_context(|| format!("{} is no admin address of this Poolhouse", self.display_url))
    }

    /// Sends a request.
    pub fn send(&self, request: &Request) -> anyhow::Result<Answer> {
        let agent = ureq::Agent::config_builder()
            // The environment's proxy would see the token, and cannot reach what is on this machine.
            .proxy(None)
            .http_status_as_error(false)
            .timeout_connect(Some(ANSWER_TIMEOUT))
            .timeout_global(Some(request.order_timeout + ANSWER_TIMEOUT))
            .user_agent(concat!("poolhouse/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        let url = format!("{}{}", self.base, request.path);
        let parameters = || request.parameters.iter().map(|(name, value)| (*name, value.as_str()));
        let token = self.token.as_ref().map(|token| ("Authorization", format!("Bearer {token}")));
        let called = match request.method {
            Method::Get => {
                let get = agent.get(&url).query_pairs(parameters());
                token.into_iter().fold(get, |get, (name, value)| get.header(name, value)).call()
            }
            Method::Post => {
                let post = agent.post(&url).query_pairs(parameters()).header("X-Poolhouse", "ctl");
                token.into_iter().fold(post, |post, (name, value)| post.header(name, value)).send_empty()
            }
        };
        let mut response = called.map_err(|error| {
            let why = self.explain_failure(&error);
            anyhow::Error::new(error).context(format!("cannot ask {}{why}", self.display_url))
        })?;
        let status = response.status().as_u16();
        let text = response.body_mut().with_config().limit(MAX_ANSWER as u64).read_to_string();
        let text = text.map_err(|error| match error {
            ureq::Error::BodyExceedsLimit(_) => self.too_long(),
            error => anyhow::Error::new(error).context(format!("cannot read the answer of {}", self.display_url)),
        })?;
        // Checked before anything is allocated for it.
        if serde_json::from_str::<IgnoredAny>(&text).is_err() {
            bail!("{}: {} (HTTP status {status})", self.display_url, shown(&text));
        }
        if count_values(&text) > MAX_VALUES {
            return Err(self.too_long());
        }
        Ok(Answer { status, text })
    }

    /// Explains why there is no answer, and what to try.
    fn explain_failure(&self, error: &ureq::Error) -> String {
        let why = match error {
            ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => REFUSED,
            ureq::Error::ConnectionFailed => REFUSED,
            ureq::Error::HostNotFound => "is this what [admin] listen says",
            ureq::Error::Timeout(_) => "there was no answer in time. Is this what [admin] listen says",
            // Who speaks another protocol closes the connection, or answers in it.
            ureq::Error::Io(_) | ureq::Error::Protocol(_) => {
                "what listens there is no admin address: clients' own ports speak no HTTP. Is this what [admin] listen \
                 says"
            }
            _ => return String::new(),
        };
        format!(" ({why}? By default it is http://{DEFAULT_ADDRESS})")
    }

    fn too_long(&self) -> anyhow::Error {
        anyhow!(
            "the answer of {} is longer than one about {} pools, the most that a Poolhouse has ({} MB): give the admin \
             address of a Poolhouse, and ask for fewer lines (--limit) where it is a list",
            self.display_url,
            serve::MAX_POOLS,
            MAX_ANSWER / (1024 * 1024)
        )
    }
}

/// The number of values in a text of JSON, lists and objects included; an empty one may count as two.
fn count_values(text: &str) -> usize {
    let (mut count, mut in_text, mut is_escaped) = (1, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            b',' | b'[' | b'{' if !in_text => count += 1,
            _ => {}
        }
    }
    count
}

/// A URL for people: without the user and the password that it may have, and without a query, which may have a token.
/// Where an `@` may belong to either, nothing of it is shown.
pub fn without_login(url: &str) -> String {
    let (scheme, rest) = url.split_at(url.find("://").map_or(0, |at| at + "://".len()));
    let (head, query) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    let place = match head.rsplit_once('@') {
        _ if query.contains('@') => "…",
        Some((_, place)) => place,
        None => head,
    };
    format!("{scheme}{place}")
}

/// The beginning of what is no JSON, harmless to a terminal.
fn shown(text: &str) -> String {
    let begin: String = text.trim().chars().take(MAX_SHOWN).map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
    printable::line(&begin)
}

impl Answer {
    /// The text of the answer, read as JSON.
    ///
    /// # Errors
    /// It is JSON, but with numbers or texts that Rust cannot represent.
    pub fn body(&self) -> anyhow::Result<Value> {
        serde_json::from_str(&self.text).context("the answer is none of a Poolhouse")
    }

    /// The error with all its parts, harmless to a terminal.
    pub fn error(&self) -> Option<String> {
        let problem: Problem = serde_json::from_str(&self.text).ok()?;
        let parts = problem.problems.as_array().into_iter().flatten().filter_map(Value::as_str);
        let parts: Vec<&str> = std::iter::once(problem.error.as_str()?).chain(parts).collect();
        Some(printable::lines(&parts.join("\n  ")))
    }

    /// Whether the request is done.
    pub fn is_done(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
    };

    use super::*;

    #[test]
    fn what_is_shown_of_a_url_has_no_password() {
        for (url, shown) in [
            ("http://a:9930/x", "http://a:9930/x"),
            ("http://me:pass@a:9930", "http://a:9930"),
            ("http://me:p@ss@a:9930/x", "http://a:9930/x"),
            ("me:pass@a:9930", "a:9930"),
            ("http://a:9930/x?token=secret", "http://a:9930/x"),
            ("http://me:pass@a:9930/x?token=secret#more", "http://a:9930/x"),
            ("http://a:9930/x?to=b@c&token=secret", "http://…"),
            ("http://me:p?ss@a:9930/x", "http://…"),
        ] {
            assert_eq!(without_login(url), shown);
        }
        let remote = Remote::new("http://me:pass@a:9930/", None).unwrap();
        assert_eq!((remote.base.as_str(), remote.address()), ("http://me:pass@a:9930", "a:9930"));
    }

    /// An address at which one answer is given.
    fn answering(body: Vec<u8>) -> Remote {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut asked = [0; 4096];
            assert!(client.read(&mut asked).unwrap() > 0);
            // Who has had enough goes.
            _ = client.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes());
            _ = client.write_all(&body);
        });
        Remote::new(&format!("http://{address}"), None).unwrap()
    }

    fn told(body: Vec<u8>) -> String {
        let answer: anyhow::Result<admin_api::Clients> = answering(body).get("/api/clients", &[]);
        format!("{:#}", answer.expect_err("it is none"))
    }

    #[test]
    fn who_speaks_no_http_is_said_to_be_no_admin_address() {
        for said in ["", "-ERR unknown command 'GET'\r\n", "E\0\0\0\u{c}SFATAL\0\0"] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let remote = Remote::new(&listener.local_addr().unwrap().to_string(), None).unwrap();
            std::thread::spawn(move || {
                let (mut client, _) = listener.accept().unwrap();
                assert!(client.read(&mut [0; 4096]).unwrap() > 0);
                client.write_all(said.as_bytes()).unwrap();
            });
            let told = remote.get::<admin_api::Clients>("/api/clients", &[]).err().map(|error| format!("{error:#}"));
            let told = told.expect("it is none");
            assert!(told.contains("no admin address") && told.contains("[admin] listen"), "{told}");
        }
        let remote = Remote::new("127.0.0.1:1", None).unwrap();
        let told = remote.get::<admin_api::Clients>("/api/clients", &[]).err().map(|error| format!("{error:#}"));
        assert!(told.is_some_and(|told| told.contains("nothing listens there")));
    }

    #[test]
    fn an_answer_that_no_poolhouse_gives_is_refused_before_it_takes_up_memory() {
        // Each value is two bytes of the answer, and many times that in memory.
        let many = |count: usize| format!("[{}0]", "0,".repeat(count)).into_bytes();
        assert!(told(many(MAX_VALUES)).contains("--limit"));
        assert!(told(many(MAX_VALUES / 2)).contains("is no admin address"), "it is bounded");
        let told = told(format!("\"{}\"", "x".repeat(MAX_ANSWER)).into_bytes());
        assert!(told.contains("the most that a Poolhouse has (148 MB)") && told.contains("admin address"), "{told}");
    }

    #[test]
    fn an_answer_of_unrepresentable_values_is_an_error() {
        for body in [r#"{"pools":[1e400]}"#, r#"{"error":"\ud800"}"#] {
            let request = Request {
                method: Method::Get,
                path: "/".to_owned(),
                parameters: Vec::new(),
                order_timeout: Duration::ZERO,
            };
            let asked = answering(body.as_bytes().to_vec()).send(&request).and_then(|answer| answer.body());
            assert!(asked.is_err(), "{body}");
        }
    }

    #[test]
    fn values_are_counted_outside_of_texts() {
        for (text, count) in
            [("7", 1), ("[1,2,3]", 4), (r#"{"a":[1],"b":{"c":null}}"#, 5), (r#"["a,[{\",{,b"]"#, 2), (r#"["\\",1]"#, 3)]
        {
            assert!(serde_json::from_str::<Value>(text).is_ok(), "{text}");
            assert_eq!(count_values(text), count, "{text}");
        }
    }

    #[test]
    fn what_went_wrong_is_told_without_what_steers_a_terminal() {
        let told = told(r#"{"error":"a\u001b[2J","problems":["b\u202e","c"]}"#.as_bytes().to_vec());
        assert!(told.ends_with("a\u{fffd}[2J\n  b\u{fffd}\n  c"), "{told}");
        let told = self::told("<html>\n\u{9b}2J\u{202e}</html>".as_bytes().to_vec());
        assert!(told.ends_with("<html> \u{fffd}2J\u{fffd}</html> (HTTP status 200)"), "{told}");
    }
}
