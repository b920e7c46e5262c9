//! One HTTP request to an admin address and its answer.

use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;

/// How long connecting, and an answer beyond the time that the order itself takes, may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of an answer.
const MAX_ANSWER: u64 = 256 * 1024 * 1024;

/// A running Poolhouse.
pub struct Remote {
    base: String,
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

impl Remote {
    /// `None` if the URL is none. An address alone is taken, too.
    pub fn new(url: &str, token: Option<String>) -> Option<Self> {
        let base = match url.split_once("://") {
            Some(("http", _)) => url.to_owned(),
            Some(_) => return None,
            None => format!("http://{url}"),
        };
        let base = base.trim_end_matches('/').to_owned();
        (base.len() > "http://".len()).then_some(Self { base, token })
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
        let mut response = called.with_context(|| format!("cannot ask {}", self.base))?;
        let status = response.status().as_u16();
        let text = response.body_mut().with_config().limit(MAX_ANSWER).read_to_string();
        let text = text.with_context(|| format!("cannot read the answer of {}", self.base))?;
        match serde_json::from_str(&text) {
            Ok(body) => Ok(Answer { status, body }),
            Err(_) => bail!("{}: {} (HTTP status {status})", self.base, text.trim()),
        }
    }
}

impl Answer {
    /// What went wrong, with all its parts.
    pub fn error(&self) -> Option<String> {
        let error = self.body["error"].as_str()?;
        let problems: Vec<&str> =
            self.body["problems"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let separator = if problems.is_empty() { "" } else { "\n  " };
        Some(format!("{error}{separator}{}", problems.join("\n  ")))
    }

    /// Whether what was asked for is done.
    pub fn is_done(&self) -> bool {
        (200..300).contains(&self.status)
    }
}
