//! A running Poolhouse at its admin address: who may ask there, one HTTP request, and its answer.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use clap::Args;
use serde_json::Value;

/// Environment variable with the admin token.
const TOKEN: &str = "POOLHOUSE_ADMIN_TOKEN";

/// How long connecting, and an answer beyond the time that the order itself takes, may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of an answer.
const MAX_ANSWER: u64 = 256 * 1024 * 1024;

/// Which Poolhouse, and who asks.
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
    /// The same for people.
    shown: String,
    token: Option<String>,
}

/// What is asked.
pub struct Request {
    pub method: Method,
    pub path: String,
    pub parameters: Vec<(&'static str, String)>,
    /// How long the order itself may take.
    pub patience: Duration,
}

/// Whether it only looks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
}

/// What came back.
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

impl RemoteArgs {
    /// Asks nobody yet.
    ///
    /// # Errors
    /// The URL is none, or the token cannot be read: bad usage.
    pub fn remote(&self) -> anyhow::Result<Remote> {
        let token = self.token()?.or_else(|| std::env::var(TOKEN).ok());
        self.asked_with(token)
    }

    /// The same for an address that may be somebody else's: the token of the environment is not for those.
    ///
    /// # Errors
    /// As above.
    pub fn remote_of_anybody(&self) -> anyhow::Result<Remote> {
        self.asked_with(self.token()?)
    }

    fn token(&self) -> anyhow::Result<Option<String>> {
        let read =
            |path: &PathBuf| settings::read_small(path).with_context(|| format!("cannot read {}", path.display()));
        self.token_file.as_ref().map(read).transpose()
    }

    fn asked_with(&self, token: Option<String>) -> anyhow::Result<Remote> {
        let token = token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
        Remote::new(&self.url, token).context("the admin URL must begin with http://, such as http://127.0.0.1:9930")
    }
}

impl Remote {
    /// `None` if the URL is none. An address alone is taken, too.
    fn new(url: &str, token: Option<String>) -> Option<Self> {
        let base = match url.split_once("://") {
            Some(("http", _)) => url.to_owned(),
            Some(_) => return None,
            None => format!("http://{url}"),
        };
        let base = base.trim_end_matches('/').to_owned();
        (base.len() > "http://".len()).then(|| Self { shown: without_login(&base), base, token })
    }

    /// Where it is, without `http://`.
    pub fn address(&self) -> &str {
        self.shown.trim_start_matches("http://")
    }

    /// Looks at something that is there at once.
    ///
    /// # Errors
    /// It cannot be reached, or refuses, or the answer is none of such a question.
    pub fn look<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        parameters: &[(&'static str, &str)],
    ) -> anyhow::Result<T> {
        let parameters = parameters.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let request = Request { method: Method::Get, path: path.to_owned(), parameters, patience: Duration::ZERO };
        let answer = self.ask(&request)?;
        if let Some(error) = answer.error() {
            bail!("{}: {error}", self.shown);
        }
        serde_json::from_value(answer.body)
            .with_context(|| format!("{} is no admin address of this Poolhouse", self.shown))
    }

    /// Asks.
    pub fn ask(&self, request: &Request) -> anyhow::Result<Answer> {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(PATIENCE))
            .timeout_global(Some(request.patience + PATIENCE))
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
        let mut response = called.with_context(|| format!("cannot ask {}", self.shown))?;
        let status = response.status().as_u16();
        let text = response.body_mut().with_config().limit(MAX_ANSWER).read_to_string();
        let text = text.with_context(|| format!("cannot read the answer of {}", self.shown))?;
        match serde_json::from_str(&text) {
            Ok(body) => Ok(Answer { status, body }),
            Err(_) => bail!("{}: {} (HTTP status {status})", self.shown, shown(&text)),
        }
    }
}

/// A URL for people: without the user and the password that it may have.
pub fn without_login(url: &str) -> String {
    let (scheme, rest) = url.split_at(url.find("://").map_or(0, |at| at + "://".len()));
    format!("{scheme}{}", rest.rsplit_once('@').map_or(rest, |(_, place)| place))
}

/// The beginning of what is no JSON, harmless to a terminal.
fn shown(text: &str) -> String {
    let flat = |c: char| if c.is_whitespace() { ' ' } else { c };
    top::harmless(&text.trim().chars().take(MAX_SHOWN).map(flat).collect::<String>())
}

impl Answer {
    /// What went wrong, with all its parts, harmless to a terminal.
    pub fn error(&self) -> Option<String> {
        let harmless = |text: &str| text.lines().map(top::harmless).collect::<Vec<_>>().join("\n");
        let error = harmless(self.body["error"].as_str()?);
        let problems = self.body["problems"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let problems: Vec<String> = problems.map(harmless).collect();
        let separator = if problems.is_empty() { "" } else { "\n  " };
        Some(format!("{error}{separator}{}", problems.join("\n  ")))
    }

    /// Whether what was asked for is done.
    pub fn is_done(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_of_a_url_has_no_password() {
        for (url, shown) in [
            ("http://a:9930/x", "http://a:9930/x"),
            ("http://me:pass@a:9930", "http://a:9930"),
            ("http://me:p@ss@a:9930/x", "http://a:9930/x"),
            ("me:pass@a:9930", "a:9930"),
        ] {
            assert_eq!(without_login(url), shown);
        }
        let remote = Remote::new("http://me:pass@a:9930/", None).unwrap();
        assert_eq!((remote.base.as_str(), remote.address()), ("http://me:pass@a:9930", "a:9930"));
    }

    #[test]
    fn no_error_of_a_server_steers_the_terminal() {
        let body = serde_json::json!({ "error": "no\u{1b}[2J", "problems": ["a.toml:1: \u{202e}", "b\u{9b}"] });
        let told = Answer { status: 400, body }.error().unwrap();
        assert_eq!(told, "no\u{fffd}[2J\n  a.toml:1: \u{fffd}\n  b\u{fffd}");
        assert_eq!(shown("<html>\r\n\u{1b}[2J\u{202e}"), "<html>  \u{fffd}[2J\u{fffd}");
    }
}
